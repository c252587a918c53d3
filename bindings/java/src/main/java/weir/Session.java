package weir;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * A writer whose intentions are executed exactly once: each has a number, and the store records the
 * numbers. One thread at a time may use it.
 */
public final class Session implements AutoCloseable {
    private final Handle handle;
    private final CancelMark cancelMark;
    private final boolean remote;

    Session(Weir store, byte[] client) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment id = Lib.slice(call, client);
            MemorySegment out = call.allocate(JAVA_LONG);
            handle = store.open(this, call,
                    (from, error) -> (int) Lib.SESSION_OPEN.invokeExact(from, id, out, error), out, Lib.SESSION_FREE);
            cancelMark = new CancelMark(handle, Lib.SESSION_CANCEL);
            remote = store.isRemote();
        }
    }

    /** Makes a call. In a local store, an interrupt does not end the call, as in {@link Weir}. */
    int check(Arena call, Wait.At work) {
        long session = handle.get();
        Lib.Call nativeCall = error -> work.run(session, error);
        if (remote) {
            return cancelMark.check(call, nativeCall);
        }
        try {
            return Lib.check(call, nativeCall);
        } finally {
            handle.keepOwnerReachable();
        }
    }

    /** Executes intentions with the next numbers, in order. */
    public List<Verdict> submit(List<Intention> intentions) {
        return Verdicts.submit(this, intentions);
    }

    /**
     * Sends intentions with the next numbers and does not wait for their verdicts. Further calls may follow at
     * once. At a server, this may block until there is room for the intentions.
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

    /** Sets the next number back to one without an answer. */
    public void resume(long nonce) {
        Weir.nonNegative("nonce", nonce);
        try (Arena call = Arena.ofConfined()) {
            check(call, (session, error) -> (int) Lib.SESSION_RESUME.invokeExact(session, nonce, error));
        }
    }

    /**
     * Cancels the call that waits, or else the next call, which fails with CANCELLED. A submit that has sent its
     * intentions fails with INDETERMINATE. Any thread may call it.
     */
    public void cancel() {
        cancelMark.cancel();
    }

    /** Closes the session. At a server, this waits up to 5 s for the answers to sent intentions. */
    @Override
    public void close() {
        handle.close();
    }
}
