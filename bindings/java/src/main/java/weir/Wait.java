package weir;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.spi.AbstractInterruptibleChannel;

/**
 * A call that waits for a server, through a handle of its own, which an interrupt of the thread cancels: as
 * it closes the channel that a thread reads from.
 */
final class Wait extends AbstractInterruptibleChannel {
    private static final long FOREVER = -1;

    private final long handle;

    private Wait(long handle) {
        this.handle = handle;
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
            begin();
            return Lib.check(call, error -> work.run(handle, error));
        } finally {
            over();
            Lib.check(call, error -> (int) Lib.CLOSE.invokeExact(handle, error));
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
        Lib.plain(Lib.CANCEL, handle);
    }
}
