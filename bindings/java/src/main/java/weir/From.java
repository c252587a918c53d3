package weir;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Instant;

/** A position in a topic, at which reading or a group starts. */
public final class From {
    final int kind;
    final long value;

    private From(int kind, long value) {
        this.kind = kind;
        this.value = value;
    }

    /**
     * Parses a position: {@code start}, {@code end}, an offset (the first record), {@code -N} (the last N
     * records), an age with its unit ({@code 10m}, {@code 2d}), {@code today}, {@code yesterday}, a date in UTC
     * ({@code 2026-11-01}) or a time in RFC 3339. Other text fails with BAD_OPTION.
     */
    public static From parse(String text) {
        Library.requireLoaded();
        try (Arena call = Arena.ofConfined()) {
            MemorySegment argument = Lib.slice(call, text);
            MemorySegment kind = call.allocate(JAVA_INT);
            MemorySegment value = call.allocate(JAVA_LONG);
            Lib.check(call, error -> (int) Lib.POSITION.invokeExact(argument, kind, value, error));
            return new From(kind.get(JAVA_INT, 0), value.get(JAVA_LONG, 0));
        }
    }

    /** Starts with the first retained record. */
    public static From start() {
        return new From(0, 0);
    }

    /** Starts after the newest record. */
    public static From end() {
        return new From(1, 0);
    }

    /** Starts with the first record after an offset. */
    public static From after(long offset) {
        return new From(2, Weir.nonNegative("after", offset));
    }

    /** Starts at the given number of offsets before the end. */
    public static From last(long records) {
        return new From(3, Weir.nonNegative("last", records));
    }

    /** Starts with the first record at or after a time. */
    public static From time(Instant begin) {
        return new From(4, Math.max(begin.toEpochMilli(), 0));
    }
}
