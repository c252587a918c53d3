package weir;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** One result: a view of its page. */
public final class Item {
    private static final long LENGTH = 8;
    private static final long OFFSET = 16;
    private static final long BUFFER = 24;
    private static final long SOURCE = 28;
    private static final long FLAGS = 32;
    private static final long INDEX = 36;

    static final int CONSTRUCTED = 1;
    static final int REQUIRED = 2;
    static final int CONTINUATION = 4;

    private final Page page;
    private final int at;

    Item(Page page, int at) {
        this.page = page;
        this.at = at;
    }

    /** Length in bytes. */
    public long length() {
        return page.itemLong(at, LENGTH);
    }

    /** The bytes, without a copy. The segment ends with the page. */
    public MemorySegment segment() {
        return page.bytes(page.itemInt(at, BUFFER), page.itemLong(at, OFFSET), page.itemLong(at, LENGTH));
    }

    /** The bytes as a buffer without a copy; at most 2 GiB. */
    public ByteBuffer buffer() {
        return segment().asByteBuffer();
    }

    /** A copy of the bytes. */
    public byte[] bytes() {
        return segment().toArray(JAVA_BYTE);
    }

    /** A copy as text. */
    public String text() {
        return new String(bytes(), StandardCharsets.UTF_8);
    }

    /**
     * The value at a path ({@code $.a.b[0]}), or null if there is none. The segment ends with the page. For
     * many items, {@link Page#get(String)} is cheaper.
     */
    public MemorySegment get(String path) {
        return page.values(at, 1, path).getFirst();
    }

    /** Number of the source of the item. */
    public int source() {
        return page.itemInt(at, SOURCE);
    }

    /** Index of the item in the page of its source, from 0. */
    public int index() {
        return page.itemInt(at, INDEX);
    }

    /** Whether the query created the item: a group, or an aggregate. */
    public boolean isConstructed() {
        return (flags() & CONSTRUCTED) != 0;
    }

    int flags() {
        return page.itemInt(at, FLAGS);
    }
}
