package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;

/**
 * Memory of the library that segments refer to, and the handle that owns it.
 *
 * <p>Each segment references the scope of the arena, not this object. The collector releases the handle only
 * after the scope is unreachable, so no reachable segment outlives its memory.
 */
final class NativeMemory {
    private static final Cleaner CLEANER = Cleaner.create();

    private final Arena arena;
    private final Free free;
    private final Cleaner.Cleanable cleanable;

    NativeMemory(Arena arena, long handle, MethodHandle release) {
        this.arena = arena;
        this.free = new Free(handle, release);
        this.cleanable = CLEANER.register(arena.scope(), free);
    }

    /** The action of the cleaner. Must not reference the arena. */
    private static final class Free implements Runnable {
        private final long handle;
        private final MethodHandle release;
        private volatile boolean transferred;

        Free(long handle, MethodHandle release) {
            this.handle = handle;
            this.release = release;
        }

        @Override
        public void run() {
            if (!transferred) {
                Lib.release(release, handle);
            }
        }
    }

    /** The bytes at an address, as a segment that ends with this object. */
    @SuppressWarnings("restricted")
    MemorySegment segment(MemorySegment start, long bytes) {
        return start.reinterpret(bytes, arena, null);
    }

    /** Whether neither {@link #close} nor {@link #transfer} was called yet. */
    boolean isAlive() {
        return arena.scope().isAlive();
    }

    /** Ends all segments and releases the memory. */
    void close() {
        arena.close();
        cleanable.clean();
    }

    /** Ends all segments; the memory has another owner from now on. */
    void transfer() {
        arena.close();
        free.transferred = true;
        cleanable.clean();
        // Otherwise the collector could find the scope unreachable before `transferred` is set.
        Reference.reachabilityFence(arena);
    }
}
