package weir;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.spi.AbstractInterruptibleChannel;
import java.time.Duration;

/**
 * A call that an interrupt of the thread cancels, as it closes the channel that a thread reads from: one at a
 * store through a handle of its own, one in a handle by its mark.
 */
final class Wait extends AbstractInterruptibleChannel {
    private static final long FOREVER = -1;
    /** How often a wait in slices looks whether the thread is interrupted. */
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

    /** A second handle on a store, with a time for each call. */
    static long within(long store, long millis) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            Lib.check(call, error -> (int) Lib.WITHIN.invokeExact(store, millis, out, error));
            return out.get(JAVA_LONG, 0);
        }
    }

    /** Makes a call at a server: what it returned, if that is a success. */
    static int check(Arena call, long store, At work) {
        return new Wait(within(store, FOREVER)).run(call, work);
    }

    /** The same for what stays; it is of no use when it was opened through a handle that was cancelled. */
    static void open(Arena call, long store, At work, MemorySegment out, MethodHandle free) {
        Wait wait = new Wait(within(store, FOREVER));
        wait.run(call, work);
        if (!wait.isOpen()) {
            Lib.release(free, out.get(JAVA_LONG, 0));
            // What was sent is on its way.
            ErrorCode code = free == Lib.PENDING_FREE ? ErrorCode.INDETERMINATE : ErrorCode.CANCELLED;
            throw new WeirException(code, code.sentence());
        }
    }

    private int run(Arena call, At work) {
        try {
            return mark(call, error -> work.run(handle, error));
        } finally {
            Lib.check(call, error -> (int) Lib.CLOSE.invokeExact(handle, error));
        }
    }

    /** Makes the call; it is over and open when no interrupt came. */
    int mark(Arena call, Lib.Call work) {
        try {
            begin();
            return Lib.check(call, work);
        } finally {
            over();
        }
    }

    /** A wait of so many milliseconds. */
    @FunctionalInterface
    interface Slice {
        int run(long millis);
    }

    /** Waits so long for what has no mark, a slice at a time, unless the thread is interrupted. */
    static int sliced(Duration wait, Slice slice) {
        long millis = Weir.millis(wait);
        long begun = System.nanoTime();
        while (true) {
            if (Thread.currentThread().isInterrupted()) {
                throw new WeirException(ErrorCode.CANCELLED, ErrorCode.CANCELLED.sentence());
            }
            long left = millis - (System.nanoTime() - begun) / 1_000_000;
            int result = slice.run(Math.clamp(left, 0, SLICE_MILLIS));
            if (result != Lib.TIMEOUT || left <= SLICE_MILLIS) {
                return result;
            }
        }
    }

    private void over() {
        try {
            end(true);
        } catch (AsynchronousCloseException interrupted) {
            // The thread stays interrupted, and the call says what it came to.
        }
    }

    @Override
    protected void implCloseChannel() {
        Lib.plain(cancel, handle);
    }
}
