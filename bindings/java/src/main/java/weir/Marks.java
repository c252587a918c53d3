package weir;

import java.lang.foreign.Arena;
import java.lang.invoke.MethodHandle;

/** Calls in a handle with a mark, which an interrupt of the thread sets as {@code cancel} does. */
final class Marks {
    private final Handle handle;
    private final MethodHandle cancel;
    /** An interrupt came when its call was over: the mark is there still, and for no other call. */
    private volatile boolean left;

    Marks(Handle handle, MethodHandle cancel) {
        this.handle = handle;
        this.cancel = cancel;
    }

    /** Makes a call. */
    int check(Arena call, Lib.Call work) {
        while (true) {
            Wait one = new Wait(cancel, handle.get());
            boolean taken = false;
            try {
                return one.mark(call, work);
            } catch (WeirException failed) {
                taken = failed.code() == ErrorCode.CANCELLED || failed.code() == ErrorCode.INDETERMINATE;
                if (failed.code() != ErrorCode.CANCELLED || !left || !one.isOpen()) {
                    throw failed;
                }
                // It took the mark of an earlier one, before it did anything.
                left = false;
            } finally {
                left |= !one.isOpen() && !taken;
            }
        }
    }

    void cancel() {
        left = false;
        Lib.plain(cancel, handle.get());
    }
}
