package weir;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Instant;

/**
 * A copy of a record.
 *
 * @param offset the position in the topic, from 1
 * @param intention the position of the causing intention in the order of the whole store
 * @param time when the intention was proposed
 * @param kind the kind of the record
 * @param key the key; empty if there is none
 * @param value the value; empty if the kind has none
 * @param meta the metadata that the writer added
 */
public record Stored(long offset, long intention, Instant time, TopicRecord.Kind kind, byte[] key,
        byte[] value, byte[] meta) {
    /** Number of characters of a key or value that a summary shows. */
    private static final int SHOWN = 100;

    /** The value as text. */
    public String text() {
        return new String(value, StandardCharsets.UTF_8);
    }

    /** A summary for people: offset, kind, key, and the beginning of the value if the record has one. */
    @Override
    public String toString() {
        String start = offset + " " + kind;
        if (value.length > 0 || kind == TopicRecord.Kind.PUT) {
            return start + " " + shown(key) + "=" + shown(value);
        }
        return key.length == 0 ? start : start + " " + shown(key);
    }

    /** The beginning of a text, or the number of bytes if they are not UTF-8. */
    private static String shown(byte[] bytes) {
        try {
            String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
            int end = text.offsetByCodePoints(0, Math.min(SHOWN, text.codePointCount(0, text.length())));
            // In one line: white space is a blank, other control characters are U+FFFD.
            String line = text.substring(0, end).replaceAll("[\\t\\n\\r]", " ").replaceAll("\\p{Cc}", "\ufffd");
            return end == text.length() ? line : line + "…";
        } catch (CharacterCodingException binary) {
            return "<" + bytes.length + " bytes>";
        }
    }
}
