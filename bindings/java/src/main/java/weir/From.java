package weir;

import java.time.Instant;

/** Where reading begins. */
public final class From {
    final int kind;
    final long value;

    private From(int kind, long value) {
        this.kind = kind;
        this.value = value;
    }

    /** With the first record that is there. */
    public static From start() {
        return new From(0, 0);
    }

    /** After the newest record. */
    public static From end() {
        return new From(1, 0);
    }

    /** With the first record after an offset. */
    public static From after(long offset) {
        return new From(2, offset);
    }

    /** So many offsets before the end. */
    public static From last(long records) {
        return new From(3, records);
    }

    /** With the first record of a time or later. */
    public static From time(Instant begin) {
        return new From(4, Math.max(begin.toEpochMilli(), 0));
    }
}
