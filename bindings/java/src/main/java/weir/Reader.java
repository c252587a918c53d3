package weir;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Optional;

/** Reads a topic in order, each record once. One thread at a time may use it. */
public final class Reader implements AutoCloseable {
    private final Handle handle;
    private final Marks marks;

    Reader(Topic topic, From from, boolean await) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment given = Lib.sized(call, 24);
            given.set(JAVA_INT, 4, from.kind);
            given.set(JAVA_LONG, 8, from.value);
            given.set(JAVA_INT, 16, await ? 1 : 0);
            MemorySegment name = Lib.slice(call, topic.name());
            MemorySegment out = call.allocate(JAVA_LONG);
            handle = topic.store().open(this, call,
                    (store, error) -> (int) Lib.READER_OPEN.invokeExact(store, name, given, out, error),
                    out, Lib.READER_FREE);
            marks = new Marks(handle, Lib.READER_CANCEL);
        }
    }

    /** The next adjacent records; empty if none arrives within {@code wait}. */
    public Optional<Page> next(Duration wait) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            long reader = handle.get();
            long time = Weir.millis(wait);
            int result = marks.check(call, error -> (int) Lib.READER_NEXT.invokeExact(reader, time, out, error));
            return result == Lib.TIMEOUT ? Optional.empty() : Optional.of(new Page(out.get(JAVA_LONG, 0)));
        }
    }

    /** Cancels the call that waits, or else the next call, which fails with CANCELLED. Any thread may call it. */
    public void cancel() {
        marks.cancel();
    }

    @Override
    public void close() {
        handle.close();
    }
}
