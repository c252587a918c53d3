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
    private final CancelMark cancelMark;

    Reader(Topic topic, From from, boolean await) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment argument = Lib.sized(call, 24);
            argument.set(JAVA_INT, 4, from.kind);
            argument.set(JAVA_LONG, 8, from.value);
            argument.set(JAVA_INT, 16, await ? 1 : 0);
            MemorySegment name = Lib.slice(call, topic.name());
            MemorySegment out = call.allocate(JAVA_LONG);
            handle = topic.store().open(this, call,
                    (store, error) -> (int) Lib.READER_OPEN.invokeExact(store, name, argument, out, error),
                    out, Lib.READER_FREE);
            cancelMark = new CancelMark(handle, Lib.READER_CANCEL);
        }
    }

    /** The next adjacent records; empty if none arrives within {@code wait}. */
    public Optional<Page> next(Duration wait) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            long reader = handle.get();
            long time = Weir.millis(wait);
            int result = cancelMark.check(call, error -> (int) Lib.READER_NEXT.invokeExact(reader, time, out, error));
            return result == Lib.TIMEOUT ? Optional.empty() : Optional.of(new Page(out.get(JAVA_LONG, 0)));
        }
    }

    /** Cancels the call that waits, or else the next call, which fails with CANCELLED. Any thread may call it. */
    public void cancel() {
        cancelMark.cancel();
    }

    @Override
    public void close() {
        handle.close();
    }
}
