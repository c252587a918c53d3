package weir;

import java.lang.invoke.MethodHandle;
import java.lang.ref.Cleaner;

/** A handle of the library: given back once, by its owner or by the collector. */
final class Handle implements AutoCloseable {
    private static final Cleaner CLEANER = Cleaner.create();

    private final Cleaner.Cleanable cleanable;
    private volatile long value;

    Handle(Object owner, long value, MethodHandle free) {
        this.value = value;
        this.cleanable = CLEANER.register(owner, new Free(value, free));
    }

    /** What the cleaner does; knows nothing of the owner. */
    private record Free(long value, MethodHandle free) implements Runnable {
        @Override
        public void run() {
            Lib.release(free, value);
        }
    }

    /** The number; the library refuses it once it was given back. */
    long get() {
        if (value == 0) {
            throw new IllegalStateException("it was closed");
        }
        return value;
    }

    @Override
    public void close() {
        value = 0;
        cleanable.clean();
    }
}
