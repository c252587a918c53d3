package weir;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * One supply of items of a {@link Query}. Pages of a source come in their order. Each says what names
 * the page after it; null says that it was the last. A page is taken as a whole or not at all: after
 * an error everything is as before, and the page can be given again.
 *
 * @param query the query
 * @param number the number of the source in it
 */
public record Source(Query query, int number) {
    /** Hands in a page; its bytes are copied. */
    public void enqueue(byte[] page, byte[] next) {
        enqueue(MemorySegment.ofArray(page), next);
    }

    /** Hands in a page; its bytes are copied. */
    public void enqueue(MemorySegment page, byte[] next) {
        try (Buffer buffer = new Buffer(Math.max(page.byteSize(), 1))) {
            MemorySegment.copy(page, 0, buffer.segment(), 0, page.byteSize());
            enqueue(buffer, page.byteSize(), next);
        }
    }

    /** Hands in what a stream gives to its end, straight into memory of the library. */
    public void enqueue(InputStream page, byte[] next) throws IOException {
        try (Buffer buffer = Buffer.of(page)) {
            enqueue(buffer, buffer.used(), next);
        }
    }

    /** Gives the first bytes of a buffer away; nothing is copied. After an error it is the caller's. */
    public void enqueue(Buffer buffer, long length, byte[] next) {
        query.enqueue(number, buffer, length, null, next);
    }

    /** Hands in a page of the shape {@code framed}: the frames say where its items are. Its bytes are copied. */
    public void enqueue(byte[] page, Frames frames, byte[] next) {
        try (Buffer buffer = new Buffer(Math.max(page.length, 1))) {
            MemorySegment.copy(MemorySegment.ofArray(page), 0, buffer.segment(), 0, page.length);
            query.enqueue(number, buffer, page.length, frames, next);
        }
    }

    /** Says that the last page was the last one. */
    public void finish() {
        query.finish(number);
    }

    /** Puts parts in the place of a source that was split; none ends it. */
    public List<Source> replace(List<SourceOptions> parts) {
        return query.replace(number, parts);
    }

    /** Says that nothing below these keys, JSON scalars, comes from the source any more. */
    public void watermark(List<String> keys) {
        query.watermark(number, keys);
    }
}
