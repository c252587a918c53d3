package weir;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.spi.AbstractInterruptibleChannel;
import java.time.Duration;

/**
 * A call that an interrupt of its thread cancels, in the way in which an interrupt closes a channel. A call
 * at a store has its own handle, which is cancelled. A call on another handle has the mark of that handle.
 */
final class Wait extends AbstractInterruptibleChannel {
    private static final long FOREVER = -1;
    /** How often a sliced wait checks for an interrupt, in milliseconds. */
    private static final long SLICE_MILLIS = 50;

    private final MethodHandle cancel;
    private final long handle;

    Wait(MethodHandle cancel, long handle) {
        this.cancel = cancel;
        this.handle = handle;
    }

    private Wait(long handle) {
        this(Lib.CANCEL, handle);
    }

    /** A call at a store. */
    @FunctionalInterface
    interface At {
        int run(long store, MemorySegment error) throws Throwable;
    }

    /** Returns a second handle of a store, with a limit for each call in milliseconds. */
    static long within(long store, long millis) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            Lib.check(call, error -> (int) Lib.WITHIN.invokeExact(store, millis, out, error));
            return out.get(JAVA_LONG, 0);
        }
    }

    /** Makes a call at a server. Returns its result, or throws its error. */
    static int check(Arena call, long store, At work) {
        return new Wait(within(store, FOREVER)).run(call, work);
    }

    /** Makes a call that opens a handle. A handle that was opened through a cancelled handle is unusable. */
    static void open(Arena call, long store, At work, MemorySegment out, MethodHandle free) {
        Wait wait = new Wait(within(store, FOREVER));
        wait.run(call, work);
        if (!wait.isOpen()) {
            Lib.release(free, out.get(JAVA_LONG, 0));
            // The intentions are already sent.
            ErrorCode code = free == Lib.PENDING_FREE ? ErrorCode.INDETERMINATE : ErrorCode.CANCELLED;
            throw new WeirException(code, code.sentence());
        }
    }

    private int run(Arena call, At work) {
        try {
            return callInterruptibly(call, error -> work.run(handle, error));
        } finally {
            Lib.check(call, error -> (int) Lib.CLOSE.invokeExact(handle, error));
        }
    }

    /** Makes the call. Afterwards, this channel is open unless an interrupt came. */
    int callInterruptibly(Arena call, Lib.Call work) {
        try {
            begin();
            return Lib.check(call, work);
        } finally {
            endCall();
        }
    }

    /** A wait of the given number of milliseconds. */
    @FunctionalInterface
    interface Slice {
        int run(long millis);
    }

    /** Waits on a handle without a mark, in slices, until the thread is interrupted. */
    static int inSlices(Duration wait, Slice slice) {
        long millis = Weir.millis(wait);
        long begun = System.nanoTime();
        while (true) {
            if (Thread.currentThread().isInterrupted()) {
                throw new WeirException(ErrorCode.CANCELLED, ErrorCode.CANCELLED.sentence());
            }
            long remaining = millis - (System.nanoTime() - begun) / 1_000_000;
            int result = slice.run(Math.clamp(remaining, 0, SLICE_MILLIS));
            if (result != Lib.TIMEOUT || remaining <= SLICE_MILLIS) {
                return result;
            }
        }
    }

    private void endCall() {
        try {
            end(true);
        } catch (AsynchronousCloseException interrupted) {
            // The thread stays interrupted, and the result of the call is returned.
        }
    }

    @Override
    protected void implCloseChannel() {
        Lib.callWithoutError(cancel, handle);
    }
}
