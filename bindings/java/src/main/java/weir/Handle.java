package weir;

import java.lang.invoke.MethodHandle;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;

/** A handle of the library, which its owner or the collector releases once. */
final class Handle implements AutoCloseable {
    private static final Cleaner CLEANER = Cleaner.create();

    private final Object owner;
    private final Cleaner.Cleanable cleanable;
    private volatile long value;

    Handle(Object owner, long value, MethodHandle free) {
        this.owner = owner;
        this.value = value;
        this.cleanable = CLEANER.register(owner, new Free(value, free));
    }

    /** The action of the cleaner. Must not reference the owner. */
    private record Free(long value, MethodHandle free) implements Runnable {
        @Override
        public void run() {
            Lib.release(free, value);
        }
    }

    /** The number of the handle. The library rejects it after its release. */
    long get() {
        if (value == 0) {
            throw new IllegalStateException("it was closed");
        }
        return value;
    }

    /**
     * Keeps the owner reachable until this call. A method that waits in the library ends with it; otherwise the
     * collector could release the handle, and so cancel the wait.
     */
    void keepOwnerReachable() {
        Reference.reachabilityFence(owner);
    }

    @Override
    public void close() {
        value = 0;
        cleanable.clean();
    }
}
