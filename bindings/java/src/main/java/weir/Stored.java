package weir;

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
    /** The value as text. */
    public String text() {
        return new String(value, StandardCharsets.UTF_8);
    }
}
