package weir;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * A sequence of results or records. It is immutable and outlives the query or store that returned it. All
 * its memory ends with {@link #close}; a later read throws an {@link IllegalStateException}.
 *
 * <p>A page belongs to the thread that received it. After {@link #share}, any thread may use it.
 */
public final class Page implements AutoCloseable, Iterable<Item> {
    static final long INFO_BYTES = 96;
    private static final long INFO_ITEMS = 8;
    private static final long INFO_RECORDS = 24;
    private static final long INFO_BUFFERS = 40;
    private static final long INFO_SKIPPED = 64;
    private static final long INFO_HINT = 72;
    private static final long INFO_POSITION = 80;

    static final long ITEM_BYTES = 40;
    static final long RECORD_BYTES = 128;

    private final long handle;
    private final int count;
    private final int recordCount;
    private final long skipped;
    private final long hint;
    private final long position;
    private NativeMemory memory;
    private MemorySegment items;
    private MemorySegment records;
    private MemorySegment[] buffers;

    /** Takes ownership of a page of the library. */
    Page(long handle) {
        this.handle = handle;
        this.memory = new NativeMemory(Arena.ofConfined(), handle, Lib.PAGE_RELEASE);
        MemorySegment info = describe();
        this.count = Math.toIntExact(info.get(JAVA_LONG, INFO_ITEMS + 8));
        this.recordCount = Math.toIntExact(info.get(JAVA_LONG, INFO_RECORDS + 8));
        this.skipped = info.get(JAVA_LONG, INFO_SKIPPED);
        this.hint = info.get(JAVA_LONG, INFO_HINT);
        this.position = info.get(JAVA_LONG, INFO_POSITION);
        wrap(info);
    }

    /** The description of the page, valid until the next call of this thread. */
    private MemorySegment describe() {
        Lib.CallScratch scratch = Lib.CallScratch.ofThread();
        MemorySegment info = scratch.info;
        Lib.check(scratch.error, error -> (int) Lib.PAGE_DESCRIBE.invokeExact(handle, info, error));
        return info;
    }

    private void wrap(MemorySegment info) {
        items = memory.segment(info.get(ADDRESS, INFO_ITEMS), count * ITEM_BYTES);
        records = memory.segment(info.get(ADDRESS, INFO_RECORDS), recordCount * RECORD_BYTES);
        int bufferCount = Math.toIntExact(info.get(JAVA_LONG, INFO_BUFFERS + 8));
        MemorySegment slices = memory.segment(info.get(ADDRESS, INFO_BUFFERS), bufferCount * Lib.SLICE.byteSize());
        buffers = new MemorySegment[bufferCount];
        for (int at = 0; at < bufferCount; at++) {
            long offset = at * Lib.SLICE.byteSize();
            buffers[at] = memory.segment(slices.get(ADDRESS, offset), slices.get(JAVA_LONG, offset + 8)).asReadOnly();
        }
    }

    /** Allows any thread to use the page from now on. Only the thread that received it may call this. */
    public Page share() {
        MemorySegment info = describe();
        memory.transfer();
        memory = new NativeMemory(Arena.ofShared(), handle, Lib.PAGE_RELEASE);
        wrap(info);
        return this;
    }

    /** Releases the memory. A second call is a no-op. */
    @Override
    public void close() {
        if (memory.isAlive()) {
            memory.close();
        }
    }

    /** Number of items or records. */
    public int size() {
        return count;
    }

    /** Number of bad items that the query has skipped so far. */
    public long skipped() {
        return skipped;
    }

    /** Offset after which the next page of the topic begins. */
    public long position() {
        return position;
    }

    long hint() {
        return hint;
    }

    /** An item by its index, from 0. */
    public Item get(int index) {
        if (index < 0 || index >= count) {
            throw new IndexOutOfBoundsException(index);
        }
        return new Item(this, index);
    }

    @Override
    public Iterator<Item> iterator() {
        return new Iterator<>() {
            private int next;

            @Override
            public boolean hasNext() {
                return next < count;
            }

            @Override
            public Item next() {
                if (next >= count) {
                    throw new NoSuchElementException();
                }
                return new Item(Page.this, next++);
            }
        };
    }

    /** The items in order. */
    public Stream<Item> stream() {
        return IntStream.range(0, count).mapToObj(this::get);
    }

    /** The records in order; a page of query results has none. */
    public List<TopicRecord> records() {
        List<TopicRecord> found = new ArrayList<>(recordCount);
        for (int at = 0; at < recordCount; at++) {
            found.add(new TopicRecord(this, at));
        }
        return found;
    }

    /**
     * The value at a path ({@code $.a.b[0]}) in each item, in one call; null if an item has no value there.
     * The segments end with the page.
     */
    public List<MemorySegment> get(String path) {
        return values(0, count, path);
    }

    /**
     * The values at up to 64 paths ({@code $.a.b[0]}) in each item, in one call that walks each item once.
     * Returns a row for each item, with a buffer for each path in the order of the paths, or null if there is
     * no value. The buffers are views of the page and end with it.
     */
    public ByteBuffer[][] values(String... paths) {
        items.get(JAVA_INT, 0);
        ByteBuffer[][] rows = new ByteBuffer[count][paths.length];
        try (Arena call = Arena.ofConfined()) {
            MemorySegment texts = call.allocate(Lib.SLICE, paths.length);
            for (int at = 0; at < paths.length; at++) {
                byte[] path = paths[at].getBytes(StandardCharsets.UTF_8);
                Lib.putBytes(call, texts, at * Lib.SLICE.byteSize(), path);
            }
            MemorySegment out = call.allocate(Lib.SLICE, (long) count * paths.length);
            Lib.check(call, error -> (int) Lib.PAGE_VALUES.invokeExact(
                    handle, 0L, (long) count, texts, (long) paths.length, out, error));
            long at = 0;
            for (ByteBuffer[] row : rows) {
                for (int path = 0; path < row.length; path++, at++) {
                    MemorySegment value = value(out, at);
                    row[path] = value == null ? null : value.asByteBuffer();
                }
            }
            return rows;
        } finally {
            Reference.reachabilityFence(memory);
        }
    }

    List<MemorySegment> values(int first, int size, String path) {
        if (size == 0) {
            return List.of();
        }
        items.get(JAVA_INT, 0);
        try (Arena call = Arena.ofConfined()) {
            MemorySegment text = Lib.slice(call, path);
            MemorySegment out = call.allocate(Lib.SLICE, size);
            Lib.check(call, error -> (int) Lib.PAGE_GET.invokeExact(
                    handle, (long) first, (long) size, text, out, error));
            List<MemorySegment> found = new ArrayList<>(size);
            for (int at = 0; at < size; at++) {
                found.add(value(out, at));
            }
            return found;
        } finally {
            Reference.reachabilityFence(memory);
        }
    }

    /** The bytes of a slice in an array; null if the slice is absent. */
    private MemorySegment value(MemorySegment slices, long at) {
        long offset = at * Lib.SLICE.byteSize();
        MemorySegment start = slices.get(ADDRESS, offset);
        long bytes = slices.get(JAVA_LONG, offset + 8);
        return start.address() == 0 ? null : memory.segment(start, bytes).asReadOnly();
    }

    // Accessors for items and records.

    MemorySegment bytes(int buffer, long offset, long length) {
        return length == 0 ? MemorySegment.NULL : buffers[buffer].asSlice(offset, length);
    }

    int itemInt(int at, long field) {
        return items.get(JAVA_INT, at * ITEM_BYTES + field);
    }

    long itemLong(int at, long field) {
        return items.get(JAVA_LONG, at * ITEM_BYTES + field);
    }

    int recordInt(int at, long field) {
        return records.get(JAVA_INT, at * RECORD_BYTES + field);
    }

    long recordLong(int at, long field) {
        return records.get(JAVA_LONG, at * RECORD_BYTES + field);
    }
}
