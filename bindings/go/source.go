package weir

import (
	"fmt"
	"io"
	"runtime"
)

// Source is one source of items of a [Query]. Copying it costs nothing. One goroutine
// at a time may use a query and its sources.
//
// The pages of a source are enqueued in order. Each page is enqueued with the name of
// the next page; a nil name means that the page is the last. The query returns the
// name in a [Need]. An error changes nothing, so the page can be enqueued again.
type Source struct {
	query  *Query
	number uint32
}

// Number returns the number of the source in its query.
func (s Source) Number() uint32 { return s.number }

// Enqueue enqueues a page and copies its bytes.
func (s Source) Enqueue(page, next []byte) error {
	defer runtime.KeepAlive(s.query)
	return s.query.countAdvance(nativeQueryEnqueue(s.query.handle, s.number, page, next))
}

// EnqueueFramed enqueues a page of the shape "framed" and copies its bytes.
func (s Source) EnqueueFramed(page, next []byte, frames Frames) error {
	defer runtime.KeepAlive(s.query)
	for name, values := range frames.Meta {
		if len(values) != len(frames.Items) {
			return failure(ErrBadOption, fmt.Sprintf("%d values of %s for %d items", len(values), name, len(frames.Items)))
		}
	}
	names, err := nativeQueryMetas(s.query.handle)
	if err != nil {
		return err
	}
	properties := make([]Property, 0, len(names)*len(frames.Items))
	for at := range frames.Items {
		for _, name := range names {
			var property Property
			if values := frames.Meta[name]; values != nil {
				property = values[at]
			}
			properties = append(properties, property)
		}
	}
	return s.query.countAdvance(nativeQueryEnqueueFramed(s.query.handle, s.number, page, next, frames.Items, properties))
}

// EnqueuePinned lends a page to the query without a copy. The bytes must not be
// changed until the query, and all result pages that refer to them, are released.
// Then returned is called, if not nil, on any goroutine that uses this package, or on one
// of the collector. It must not block.
func (s Source) EnqueuePinned(page, next []byte, returned func(page []byte)) error {
	defer runtime.KeepAlive(s.query)
	cookie := pins.add(page, returned)
	err := s.query.countAdvance(nativeQueryEnqueuePinned(s.query.handle, s.number, page, next, cookie))
	if err != nil {
		pins.remove(cookie)
	}
	pins.collect()
	return err
}

// EnqueueBuffer transfers the bytes of a buffer to the query without a copy. The buffer
// is empty afterwards; after an error, it is unchanged.
func (s Source) EnqueueBuffer(buffer *Buffer, next []byte) error {
	defer runtime.KeepAlive(s.query)
	if buffer.handle == nil {
		return s.Enqueue(nil, next)
	}
	err := s.query.countAdvance(nativeQueryEnqueueBuffer(s.query.handle, s.number, buffer.handle, buffer.used, next))
	if err == nil {
		buffer.cleanup.Stop()
		*buffer = Buffer{}
	}
	return err
}

// Finish declares that the last page was the final one.
func (s Source) Finish() error {
	defer runtime.KeepAlive(s.query)
	return s.query.countAdvance(nativeQueryFinish(s.query.handle, s.number))
}

// Replace replaces a source that was split by its parts. Without parts, the source
// ends. Items that were already enqueued are still returned.
func (s Source) Replace(parts ...SourceOptions) ([]Source, error) {
	defer runtime.KeepAlive(s.query)
	numbers, err := nativeQueryReplace(s.query.handle, s.number, parts)
	sources := make([]Source, len(numbers))
	for at, number := range numbers {
		sources[at] = Source{query: s.query, number: number}
	}
	return sources, s.query.countAdvance(err)
}

// Watermark declares that the source has no more items below these keys, JSON scalars.
// The query then does not wait for the source before it returns items of other sources.
func (s Source) Watermark(keys ...string) error {
	defer runtime.KeepAlive(s.query)
	return s.query.countAdvance(nativeQueryWatermark(s.query.handle, s.number, keys))
}

// Buffer is memory of the library. Bytes that are written to it are transferred to a
// query without a copy. One goroutine at a time may use it.
type Buffer struct {
	handle  bufferHandle
	data    []byte
	used    int
	cleanup runtime.Cleanup
}

// NewBuffer creates an empty buffer with room for size bytes; it grows when needed.
func NewBuffer(size int) (*Buffer, error) {
	buffer := &Buffer{}
	if size == 0 {
		return buffer, nil
	}
	return buffer, buffer.grow(size, nil)
}

// grow increases the capacity to size bytes, and appends bytes, which may be a part of the buffer.
func (b *Buffer) grow(size int, bytes []byte) error {
	handle, data, err := nativeBufferNew(size)
	if err != nil {
		return err
	}
	used := copy(data, b.data[:b.used])
	used += copy(data[used:], bytes)
	b.Free()
	b.handle, b.data, b.used = handle, data, used
	b.cleanup = runtime.AddCleanup(b, nativeBufferFree, handle)
	return nil
}

// bufferStep is the minimum growth of a buffer, in bytes.
const bufferStep = 64 << 10

// Write appends bytes.
func (b *Buffer) Write(bytes []byte) (int, error) {
	if need := b.used + len(bytes); need > len(b.data) {
		if err := b.grow(max(need, 2*len(b.data)), bytes); err != nil {
			return 0, err
		}
		return len(bytes), nil
	}
	b.used += copy(b.data[b.used:], bytes)
	return len(bytes), nil
}

// ReadFrom reads a reader to its end, directly into the buffer.
func (b *Buffer) ReadFrom(reader io.Reader) (int64, error) {
	before := b.used
	for {
		var err error
		if b.used == len(b.data) {
			// The reader is often at its end here, so do not grow the buffer yet.
			var probe [1]byte
			var n int
			n, err = reader.Read(probe[:])
			if n > 0 {
				if err := b.grow(max(2*len(b.data), b.used+bufferStep), probe[:]); err != nil {
					return int64(b.used - before), err
				}
			}
		} else {
			var n int
			n, err = reader.Read(b.data[b.used:])
			b.used += n
		}
		if err == io.EOF {
			return int64(b.used - before), nil
		}
		if err != nil {
			return int64(b.used - before), err
		}
	}
}

// Len returns the number of written bytes.
func (b *Buffer) Len() int { return b.used }

// Bytes returns a view of the written bytes. It is valid until the buffer grows, is
// transferred or is freed. The collector frees a buffer that you drop, even if there is
// a view of it.
func (b *Buffer) Bytes() []byte { return b.data[:b.used] }

// Reset empties the buffer and retains its memory.
func (b *Buffer) Reset() { b.used = 0 }

// Free releases the memory; the buffer is then empty. Not needed for a buffer that was
// transferred to a query.
func (b *Buffer) Free() {
	if b.handle == nil {
		return
	}
	b.cleanup.Stop()
	nativeBufferFree(b.handle)
	*b = Buffer{}
}
