package weir

import (
	"context"
	"runtime"
	"time"
)

// Reader reads the records of a topic in order, each once. One goroutine at a time
// may use it. For loops, use [Topic.Records] and [Topic.Follow], which need no Reader.
type Reader struct {
	handle  readerHandle // never changes: the library rejects it after Close
	closed  bool
	store   *Store // keeps the store open
	cleanup runtime.Cleanup
}

// Reader starts to read an existing topic. The caller must close the reader.
func (t Topic) Reader(ctx context.Context, from From) (*Reader, error) {
	return t.reader(ctx, from, false)
}

// Listener starts to read a topic that may be created later.
func (t Topic) Listener(ctx context.Context, from From) (*Reader, error) {
	return t.reader(ctx, from, true)
}

func (t Topic) reader(ctx context.Context, from From, await bool) (*Reader, error) {
	handle, err := open(ctx, t.store, func(store storeHandle) (readerHandle, error) {
		return nativeReaderOpen(store, t.name, from, await)
	}, nativeReaderFree)
	if err != nil {
		return nil, err
	}
	reader := &Reader{handle: handle, store: t.store}
	reader.cleanup = runtime.AddCleanup(reader, nativeReaderFree, handle)
	return reader, nil
}

// readStep limits one wait in the library.
const readStep = time.Minute

// Next returns the next page of records; the caller must release it. It blocks until
// there is one, or returns an error when the context ends.
func (r *Reader) Next(ctx context.Context) (*Page, error) {
	for {
		page, err := r.next(ctx, readStep)
		if page != nil || err != nil {
			return page, err
		}
	}
}

// TryNext returns the next page of records without waiting; nil if there is none.
func (r *Reader) TryNext(ctx context.Context) (*Page, error) { return r.next(ctx, 0) }

func (r *Reader) next(ctx context.Context, wait time.Duration) (*Page, error) {
	defer runtime.KeepAlive(r)
	handle := r.handle
	page, err := untilContextEnds(ctx, func() { nativeReaderCancel(handle) }, func() (pageHandle, error) {
		return nativeReaderNext(handle, wait)
	})
	if err != nil || page == nil {
		return nil, err
	}
	return newPage(page), nil
}

// Close closes the reader.
func (r *Reader) Close() {
	if r.closed {
		return
	}
	r.closed = true
	r.cleanup.Stop()
	nativeReaderFree(r.handle)
}
