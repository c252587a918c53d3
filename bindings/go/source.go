package weir

import (
	"fmt"
	"io"
	"runtime"
)

// Source is one supply of items of a [Query]. It costs nothing to copy and is
// used by one goroutine at a time together with its query.
//
// Pages of a source come in their order. Each says what names the page after
// it; a nil name says that it was the last. The query keeps the name and hands
// it back with a [Need]. A page is taken as a whole or not at all: after an
// error everything is as before, and the page can be given again.
type Source struct {
	query  *Query
	number uint32
}

// Number is the number of the source in its query.
func (s Source) Number() uint32 { return s.number }

// Enqueue hands in a page; its bytes are copied.
func (s Source) Enqueue(page, next []byte) error {
	defer runtime.KeepAlive(s.query)
	return s.query.counted(nativeQueryEnqueue(s.query.handle, s.number, page, next))
}

// EnqueueFramed hands in a page of the shape "framed"; its bytes are copied.
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
	return s.query.counted(nativeQueryEnqueueFramed(s.query.handle, s.number, page, next, frames.Items, properties))
}

// EnqueuePinned lends a page: nothing is copied, the bytes stay where they are
// and must not be changed until the query and every page of results that lies
// in them are gone. Returned, if not nil, is then called, on any goroutine that
// uses this package.
func (s Source) EnqueuePinned(page, next []byte, returned func(page []byte)) error {
	defer runtime.KeepAlive(s.query)
	cookie := pins.add(page, returned)
	err := s.query.counted(nativeQueryEnqueuePinned(s.query.handle, s.number, page, next, cookie))
	if err != nil {
		pins.remove(cookie)
	}
	pins.collect()
	return err
}

// EnqueueBuffer gives away what was written to a buffer; nothing is copied. The
// buffer is empty afterwards, and stays as it was after an error.
func (s Source) EnqueueBuffer(buffer *Buffer, next []byte) error {
	defer runtime.KeepAlive(s.query)
	if buffer.handle == nil {
		return s.Enqueue(nil, next)
	}
	err := s.query.counted(nativeQueryEnqueueBuffer(s.query.handle, s.number, buffer.handle, buffer.used, next))
	if err == nil {
		buffer.cleanup.Stop()
		*buffer = Buffer{}
	}
	return err
}

// Finish says that the last page was the last one.
func (s Source) Finish() error {
	defer runtime.KeepAlive(s.query)
	return s.query.counted(nativeQueryFinish(s.query.handle, s.number))
}

// Replace puts parts in the place of a source that was split; none ends it.
// What was handed in of it still comes.
func (s Source) Replace(parts ...SourceOptions) ([]Source, error) {
	defer runtime.KeepAlive(s.query)
	numbers, err := nativeQueryReplace(s.query.handle, s.number, parts)
	sources := make([]Source, len(numbers))
	for at, number := range numbers {
		sources[at] = Source{query: s.query, number: number}
	}
	return sources, s.query.counted(err)
}

// Watermark says that nothing below these keys, JSON scalars, comes from the
// source any more: others need not wait for it.
func (s Source) Watermark(keys ...string) error {
	defer runtime.KeepAlive(s.query)
	return s.query.counted(nativeQueryWatermark(s.query.handle, s.number, keys))
}

// Buffer is memory of the library: what is written to it, or read into it, is
// given to a query without a copy. Used by one goroutine at a time.
type Buffer struct {
	handle  bufferHandle
	data    []byte
	used    int
	cleanup runtime.Cleanup
}

// NewBuffer makes an empty buffer with room for size bytes; it grows when more
// come.
func NewBuffer(size int) (*Buffer, error) {
	buffer := &Buffer{}
	if size == 0 {
		return buffer, nil
	}
	return buffer, buffer.grow(size)
}

// grow makes room for size bytes in all.
func (b *Buffer) grow(size int) error {
	handle, data, err := nativeBufferNew(size)
	if err != nil {
		return err
	}
	used := copy(data, b.data[:b.used])
	b.Free()
	b.handle, b.data, b.used = handle, data, used
	b.cleanup = runtime.AddCleanup(b, nativeBufferFree, handle)
	return nil
}

// bufferStep is the least that a buffer grows by.
const bufferStep = 64 << 10

// Write adds bytes.
func (b *Buffer) Write(bytes []byte) (int, error) {
	if need := b.used + len(bytes); need > len(b.data) {
		if err := b.grow(max(need, 2*len(b.data))); err != nil {
			return 0, err
		}
	}
	b.used += copy(b.data[b.used:], bytes)
	return len(bytes), nil
}

// ReadFrom reads to the end of a reader, straight into the buffer.
func (b *Buffer) ReadFrom(reader io.Reader) (int64, error) {
	before := b.used
	for {
		var err error
		if b.used == len(b.data) {
			// Often this is the end; room would be made for nothing.
			var probe [1]byte
			var n int
			n, err = reader.Read(probe[:])
			if n > 0 {
				if err := b.grow(max(2*len(b.data), b.used+bufferStep)); err != nil {
					return int64(b.used - before), err
				}
				b.data[b.used] = probe[0]
				b.used++
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

// Len is the number of bytes that were written.
func (b *Buffer) Len() int { return b.used }

// Bytes is what was written, a view that ends when the buffer grows, is given
// away or freed.
func (b *Buffer) Bytes() []byte { return b.data[:b.used] }

// Reset forgets what was written and keeps the memory.
func (b *Buffer) Reset() { b.used = 0 }

// Free gives the memory back; the buffer is empty then. Only a buffer that was
// not given away needs it.
func (b *Buffer) Free() {
	if b.handle == nil {
		return
	}
	b.cleanup.Stop()
	nativeBufferFree(b.handle)
	*b = Buffer{}
}
