package weir;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * Memory of the library, which is filled and transferred to a query without a copy. It belongs to the thread that
 * created it; any other thread gets a {@link WrongThreadException}.
 */
public final class Buffer implements AutoCloseable {
    private static final int STEP = 64 << 10;

    private long handle;
    private NativeMemory memory;
    private MemorySegment data;
    private long used;

    /** Creates a buffer of {@code size} bytes, at least 1, with unspecified content. */
    public Buffer(long size) {
        Library.requireLoaded();
        allocate(size);
    }

    private void allocate(long size) {
        try (Arena call = Arena.ofConfined()) {
            MemorySegment out = call.allocate(JAVA_LONG);
            Lib.check(call, error -> (int) Lib.BUFFER_NEW.invokeExact(size, out, error));
            handle = out.get(JAVA_LONG, 0);
            memory = new NativeMemory(Arena.ofConfined(), handle, Lib.BUFFER_FREE);
            data = memory.segment(Lib.bufferData(handle), size);
        }
    }

    /** Creates a buffer with all bytes of a stream. */
    static Buffer of(InputStream stream) throws IOException {
        Buffer buffer = new Buffer(Math.max(stream.available(), STEP));
        try {
            byte[] chunk = new byte[STEP];
            for (int n = stream.read(chunk); n >= 0; n = stream.read(chunk)) {
                buffer.append(chunk, n);
            }
        } catch (IOException | RuntimeException failed) {
            buffer.close();
            throw failed;
        }
        return buffer;
    }

    private void append(byte[] chunk, int length) {
        if (used + length > data.byteSize()) {
            NativeMemory old = memory;
            MemorySegment before = data;
            allocate(Math.max(2 * before.byteSize(), used + length));
            MemorySegment.copy(before, 0, data, 0, used);
            old.close();
        }
        MemorySegment.copy(MemorySegment.ofArray(chunk), 0, data, used, length);
        used += length;
    }

    long used() {
        return used;
    }

    /** The memory of the buffer. The segment ends when the buffer is transferred or closed. */
    public MemorySegment segment() {
        if (handle == 0) {
            throw new IllegalStateException("the buffer was transferred or closed");
        }
        return data;
    }

    /** The handle, for a call that transfers the memory. Only the thread of the buffer can end its segments. */
    long handle() {
        if (!segment().isAccessibleBy(Thread.currentThread())) {
            throw new WrongThreadException("the buffer belongs to another thread");
        }
        return handle;
    }

    /** Records that the library owns the memory now. */
    void markTransferred() {
        memory.transfer();
        clear();
    }

    private void clear() {
        handle = 0;
        data = null;
    }

    /** Releases the memory, unless it was transferred. */
    @Override
    public void close() {
        if (handle != 0) {
            memory.close();
            clear();
        }
    }
}
