package weir;

import java.lang.foreign.Arena;
import java.lang.invoke.MethodHandle;

/** Calls on a handle that has a cancel mark. An interrupt of the thread sets the mark, as {@code cancel} does. */
final class CancelMark {
    private final Handle handle;
    private final MethodHandle cancel;
    /** An interrupt came after its call had ended. The mark is still set, but must not end another call. */
    private volatile boolean stale;

    CancelMark(Handle handle, MethodHandle cancel) {
        this.handle = handle;
        this.cancel = cancel;
    }

    /** Makes a call. */
    int check(Arena call, Lib.Call work) {
        while (true) {
            Wait one = new Wait(cancel, handle.get());
            boolean consumed = false;
            try {
                return one.callInterruptibly(call, work);
            } catch (WeirException failed) {
                consumed = failed.code() == ErrorCode.CANCELLED || failed.code() == ErrorCode.INDETERMINATE;
                if (failed.code() != ErrorCode.CANCELLED || !stale || !one.isOpen()) {
                    throw failed;
                }
                // The mark of an earlier interrupt ended this call before it did anything.
                stale = false;
            } finally {
                stale |= !one.isOpen() && !consumed;
                handle.keepOwnerReachable();
            }
        }
    }

    void cancel() {
        stale = false;
        Lib.callWithoutError(cancel, handle.get());
    }
}
