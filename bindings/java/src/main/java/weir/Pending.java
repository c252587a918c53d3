package weir;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/** Verdicts that have not arrived yet. The store executes the intentions even if no call waits for them. */
public final class Pending implements AutoCloseable {
    private final Handle handle;
    private final int count;
    /** The session that sent the intentions: the collector must not close it before the verdicts. */
    private final Session session;

    Pending(Weir store, List<Intention> intentions) {
        count = intentions.size();
        session = null;
        try (Arena call = Arena.ofConfined()) {
            MemorySegment argument = Verdicts.intentionArray(call, "", intentions);
            MemorySegment out = call.allocate(JAVA_LONG);
            handle = store.open(this, call,
                    (to, error) -> (int) Lib.SEND.invokeExact(to, argument, (long) count, out, error),
                    out, Lib.PENDING_FREE);
        }
    }

    /** Sends intentions in a session. */
    Pending(Session session, List<Intention> intentions) {
        count = intentions.size();
        this.session = session;
        try (Arena call = Arena.ofConfined()) {
            MemorySegment argument = Verdicts.intentionArray(call, "", intentions);
            MemorySegment out = call.allocate(JAVA_LONG);
            session.check(call,
                    (to, error) -> (int) Lib.SESSION_SEND.invokeExact(to, argument, (long) count, out, error));
            handle = new Handle(this, out.get(JAVA_LONG, 0), Lib.PENDING_FREE);
        }
    }

    /** Returns the verdicts, at most once; empty if they do not arrive within {@code wait}. */
    public Optional<List<Verdict>> await(Duration wait) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = Verdicts.verdictArray(call, count);
            MemorySegment texts = call.allocate(JAVA_LONG);
            long pending = handle.get();
            int result = Wait.inSlices(wait, time -> Lib.check(call, error -> (int) Lib.PENDING_WAIT.invokeExact(
                    pending, time, out, (long) count, texts, error)));
            if (result == Lib.TIMEOUT) {
                return Optional.empty();
            }
            return Optional.of(Verdicts.read(out, count, texts.get(JAVA_LONG, 0)));
        } finally {
            handle.keepOwnerReachable();
        }
    }

    /**
     * Waits until every intention is queued for the log or has a verdict. A queued intention can still be
     * lost. Returns false if this does not happen within {@code wait}. A server reports it only to a client
     * that connected with {@link ConnectOptions#received}.
     */
    public boolean awaitReceived(Duration wait) {
        try (Arena call = Arena.ofConfined()) {
            long pending = handle.get();
            int result = Wait.inSlices(wait, time -> Lib.check(call,
                    error -> (int) Lib.PENDING_RECEIVED.invokeExact(pending, time, error)));
            return result != Lib.TIMEOUT;
        } finally {
            handle.keepOwnerReachable();
        }
    }

    @Override
    public void close() {
        handle.close();
    }
}
