package weir;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * A writer whose intentions are carried out exactly once: they are numbered, and the store remembers
 * the numbers. Used by one thread at a time.
 */
public final class Session implements AutoCloseable {
    private final Handle handle;
    private final Marks marks;
    private final boolean far;

    Session(Weir store, byte[] client) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment id = Lib.slice(call, client);
            MemorySegment out = call.allocate(JAVA_LONG);
            handle = store.open(this, call,
                    (from, error) -> (int) Lib.SESSION_OPEN.invokeExact(from, id, out, error), out, Lib.SESSION_FREE);
            marks = new Marks(handle, Lib.SESSION_CANCEL);
            far = store.isFar();
        }
    }

    /** Makes a call; in a store of this process it is not broken off, as in {@link Weir}. */
    int check(Arena call, Wait.At work) {
        long session = handle.get();
        Lib.Call made = error -> work.run(session, error);
        return far ? marks.check(call, made) : Lib.check(call, made);
    }

    /** Carries out intentions under the next numbers, in order. */
    public List<Verdict> submit(List<Intention> intentions) {
        return Verdicts.submit(this, intentions);
    }

    /**
     * Hands over intentions under the next numbers and does not wait for their verdicts; what is sent next may
     * follow at once. At a server it may wait until there is room for them.
     */
    public Pending send(List<Intention> intentions) {
        return new Pending(this, intentions);
    }

    /** The number of the next intention. */
    public long nextNonce() {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            check(call, (session, error) -> (int) Lib.SESSION_NEXT_NONCE.invokeExact(session, out, error));
            return out.get(JAVA_LONG, 0);
        }
    }

    /** Goes back to a number whose answer was not seen. */
    public void resume(long nonce) {
        try (Arena call = Arena.ofConfined()) {
            check(call, (session, error) -> (int) Lib.SESSION_RESUME.invokeExact(session, nonce, error));
        }
    }

    /**
     * From any thread: the call that waits, or else the next one, fails with CANCELLED, a submit that has
     * handed over with INDETERMINATE.
     */
    public void cancel() {
        marks.cancel();
    }

    /** Forgets the session. At a server it waits up to 5 s for the answers to what was sent. */
    @Override
    public void close() {
        handle.close();
    }
}
