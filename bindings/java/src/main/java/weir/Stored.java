package weir;

import java.nio.charset.StandardCharsets;
import java.time.Instant;

/**
 * A copy of a record, which may be kept.
 *
 * @param offset its place in the topic, from 1
 * @param intention the place in the order of the whole store of what caused it
 * @param time when it was proposed
 * @param kind what happened
 * @param key the key; empty without one
 * @param value the value; empty for kinds without one
 * @param meta what the writer added
 */
public record Stored(long offset, long intention, Instant time, TopicRecord.Kind kind, byte[] key,
        byte[] value, byte[] meta) {
    /** The value as text. */
    public String text() {
        return new String(value, StandardCharsets.UTF_8);
    }
}
