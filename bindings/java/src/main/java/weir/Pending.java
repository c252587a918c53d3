package weir;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/** Verdicts that are on their way. What was sent is carried out whether somebody waits or not. */
public final class Pending implements AutoCloseable {
    private final Handle handle;
    private final int count;

    Pending(Weir store, List<Intention> intentions) {
        count = intentions.size();
        try (Arena call = Arena.ofConfined()) {
            MemorySegment given = Verdicts.given(call, "", intentions);
            MemorySegment out = call.allocate(JAVA_LONG);
            handle = store.open(this, call,
                    (to, error) -> (int) Lib.SEND.invokeExact(to, given, (long) count, out, error),
                    out, Lib.PENDING_FREE);
        }
    }

    /** The same in a session. */
    Pending(Session session, List<Intention> intentions) {
        count = intentions.size();
        try (Arena call = Arena.ofConfined()) {
            MemorySegment given = Verdicts.given(call, "", intentions);
            MemorySegment out = call.allocate(JAVA_LONG);
            session.check(call,
                    (to, error) -> (int) Lib.SESSION_SEND.invokeExact(to, given, (long) count, out, error));
            handle = new Handle(this, out.get(JAVA_LONG, 0), Lib.PENDING_FREE);
        }
    }

    /** The verdicts, once; nothing when they did not come in this time. */
    public Optional<List<Verdict>> await(Duration wait) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = Verdicts.room(call, count);
            MemorySegment texts = call.allocate(JAVA_LONG);
            long pending = handle.get();
            int result = Wait.sliced(wait, time -> Lib.check(call, error -> (int) Lib.PENDING_WAIT.invokeExact(
                    pending, time, out, (long) count, texts, error)));
            if (result == Lib.TIMEOUT) {
                return Optional.empty();
            }
            return Optional.of(Verdicts.read(out, count, texts.get(JAVA_LONG, 0)));
        }
    }

    /**
     * Waits until all that was sent is queued for the log, which promises nothing, or answered. False when
     * it was not in this time. A server says it to who connected with {@link ConnectOptions#received}.
     */
    public boolean awaitReceived(Duration wait) {
        try (Arena call = Arena.ofConfined()) {
            long pending = handle.get();
            int result = Wait.sliced(wait, time -> Lib.check(call,
                    error -> (int) Lib.PENDING_RECEIVED.invokeExact(pending, time, error)));
            return result != Lib.TIMEOUT;
        }
    }

    @Override
    public void close() {
        handle.close();
    }
}
