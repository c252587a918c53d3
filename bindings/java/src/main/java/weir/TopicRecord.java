package weir;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import java.lang.foreign.MemorySegment;
import java.time.Instant;

/** One record of a topic: a view of its page. */
public final class TopicRecord {
    private static final long OFFSET = 0;
    private static final long INTENTION = 8;
    private static final long TIME = 16;
    private static final long NONCE = 24;
    private static final long KEY_LENGTH = 56;
    private static final long KEY_OFFSET = 64;
    private static final long META_LENGTH = 80;
    private static final long META_OFFSET = 88;
    private static final long CLAIM = 104;
    private static final long KIND = 112;
    private static final long ATTEMPTS = 120;
    private static final long BUFFER = 124;

    /** The kind of a record. */
    public enum Kind {
        /** The topic was created. */
        CREATE,
        /** The topic was destroyed. */
        DESTROY,
        /** A value was written. */
        PUT,
        /** A key was deleted. */
        DELETE,
        /** The options of the topic were replaced. */
        ALTER,
        /** The program of the topic was replaced. */
        REPLACE,
        /** A kind that this package does not know. */
        OTHER
    }

    private final Page page;
    private final int at;

    TopicRecord(Page page, int at) {
        this.page = page;
        this.at = at;
    }

    /** Position in the topic, from 1. */
    public long offset() {
        return page.recordLong(at, OFFSET);
    }

    /** Position of the causing intention in the order of the whole store. */
    public long intention() {
        return page.recordLong(at, INTENTION);
    }

    /** When the intention was proposed, with a precision of 1 ms. */
    public Instant time() {
        return Instant.ofEpochMilli(page.recordLong(at, TIME));
    }

    /** Number of the intention in its session; 0 without a session. */
    public long nonce() {
        return page.recordLong(at, NONCE);
    }

    /** The kind of the record. */
    public Kind kind() {
        int number = page.recordInt(at, KIND);
        return number < 1 || number > Kind.OTHER.ordinal() ? Kind.OTHER : Kind.values()[number - 1];
    }

    /** How often a group has delivered the record, including this time. */
    public int attempts() {
        return page.recordInt(at, ATTEMPTS);
    }

    /** The claim of the record; valid after the page is closed. */
    public Claimed claimed() {
        return new Claimed(offset(), page.recordLong(at, CLAIM));
    }

    /** The value, without a copy. The segment ends with the page. */
    public MemorySegment valueSegment() {
        return page.get(at).segment();
    }

    /** A copy of the value. */
    public byte[] value() {
        return valueSegment().toArray(JAVA_BYTE);
    }

    /** A copy of the value as text. */
    public String text() {
        return page.get(at).text();
    }

    /** The key, without a copy. The segment ends with the page. */
    public MemorySegment keySegment() {
        return page.bytes(buffer(), page.recordLong(at, KEY_OFFSET), page.recordLong(at, KEY_LENGTH));
    }

    /** A copy of the key; empty if there is none. */
    public byte[] key() {
        return keySegment().toArray(JAVA_BYTE);
    }

    /** A copy of the metadata that the writer added. The store does not interpret it. */
    public byte[] meta() {
        return page.bytes(buffer(), page.recordLong(at, META_OFFSET), page.recordLong(at, META_LENGTH))
                .toArray(JAVA_BYTE);
    }

    /** A copy of the record. */
    public Stored copy() {
        return new Stored(offset(), intention(), time(), kind(), key(), value(), meta());
    }

    /** A summary for people: offset, kind, key, and the beginning of the value if the record has one. */
    @Override
    public String toString() {
        return copy().toString();
    }

    private int buffer() {
        return page.recordInt(at, BUFFER);
    }
}
