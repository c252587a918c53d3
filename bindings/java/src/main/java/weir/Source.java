package weir;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * One source of items of a {@link Query}. The pages of a source are enqueued in order, each with the name of
 * the next page; null means that the page is the last. An error changes nothing, so the page can be enqueued
 * again.
 *
 * @param query the query
 * @param number the number of the source in the query
 */
public record Source(Query query, int number) {
    /** Enqueues a page and copies its bytes. */
    public void enqueue(byte[] page, byte[] next) {
        enqueue(MemorySegment.ofArray(page), next);
    }

    /** Enqueues a page and copies its bytes. */
    public void enqueue(MemorySegment page, byte[] next) {
        try (Buffer buffer = new Buffer(Math.max(page.byteSize(), 1))) {
            MemorySegment.copy(page, 0, buffer.segment(), 0, page.byteSize());
            enqueue(buffer, page.byteSize(), next);
        }
    }

    /** Enqueues all bytes of a stream, which are read directly into memory of the library. */
    public void enqueue(InputStream page, byte[] next) throws IOException {
        try (Buffer buffer = Buffer.of(page)) {
            enqueue(buffer, buffer.used(), next);
        }
    }

    /** Transfers the first {@code length} bytes of a buffer without a copy. After an error, the caller keeps the buffer. */
    public void enqueue(Buffer buffer, long length, byte[] next) {
        query.enqueue(number, buffer, length, null, next);
    }

    /** Enqueues a page of the shape {@code framed} and copies its bytes. The frames are the positions of its items. */
    public void enqueue(byte[] page, Frames frames, byte[] next) {
        try (Buffer buffer = new Buffer(Math.max(page.length, 1))) {
            MemorySegment.copy(MemorySegment.ofArray(page), 0, buffer.segment(), 0, page.length);
            query.enqueue(number, buffer, page.length, frames, next);
        }
    }

    /** Declares that the last page was the final one. */
    public void finish() {
        query.finish(number);
    }

    /** Replaces a source that was split by its parts. Without parts, the source ends. */
    public List<Source> replace(List<SourceOptions> parts) {
        return query.replace(number, parts);
    }

    /** Declares that the source has no more items below these keys, JSON scalars. */
    public void watermark(List<String> keys) {
        query.watermark(number, keys);
    }
}
