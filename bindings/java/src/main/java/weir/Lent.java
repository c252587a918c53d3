package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;

/**
 * Memory of the library that segments show, and the handle that it hangs on.
 *
 * <p>Each segment holds the scope of the arena, not the object that made it. So the collector gives the
 * handle back when the scope is gone, and no segment that somebody still has can outlive its memory.
 */
final class Lent {
    private static final Cleaner CLEANER = Cleaner.create();

    private final Arena arena;
    private final Free free;
    private final Cleaner.Cleanable cleanable;

    Lent(Arena arena, long handle, MethodHandle give) {
        this.arena = arena;
        this.free = new Free(handle, give);
        this.cleanable = CLEANER.register(arena.scope(), free);
    }

    /** What the cleaner does; knows nothing of the arena. */
    private static final class Free implements Runnable {
        private final long handle;
        private final MethodHandle give;
        private volatile boolean kept;

        Free(long handle, MethodHandle give) {
            this.handle = handle;
            this.give = give;
        }

        @Override
        public void run() {
            if (!kept) {
                Lib.release(give, handle);
            }
        }
    }

    /** The bytes at an address, which end with this. */
    @SuppressWarnings("restricted")
    MemorySegment part(MemorySegment start, long bytes) {
        return start.reinterpret(bytes, arena, null);
    }

    /** Whether neither {@link #close} nor {@link #leave} was called. */
    boolean isAlive() {
        return arena.scope().isAlive();
    }

    /** Ends all segments and gives the memory back. */
    void close() {
        arena.close();
        cleanable.clean();
    }

    /** Ends all segments; the memory is somebody else's from now on. */
    void leave() {
        arena.close();
        free.kept = true;
        cleanable.clean();
        // Else the scope could be found gone before `kept` is set.
        Reference.reachabilityFence(arena);
    }
}
