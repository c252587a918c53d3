package weir

import (
	"context"
	"runtime"
	"time"
)

// Reader reads the records of a topic in order, each once. It is used by one
// goroutine at a time. Loops over [Topic.Records] and [Topic.Listen] need none.
type Reader struct {
	handle  readerHandle
	cleanup runtime.Cleanup
}

// Reader begins to read a topic that was made. It is to be closed.
func (t Topic) Reader(ctx context.Context, from From) (*Reader, error) {
	return t.reader(ctx, from, false)
}

// Listener begins to read a topic that need not be there yet.
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
	reader := &Reader{handle: handle}
	reader.cleanup = runtime.AddCleanup(reader, nativeReaderFree, handle)
	return reader, nil
}

// readStep bounds one wait in the library.
const readStep = time.Minute

// Next is the next page of records, to be released. It waits for it until the
// context ends, which is then the error.
func (r *Reader) Next(ctx context.Context) (*Page, error) {
	for {
		page, err := r.next(ctx, readStep)
		if page != nil || err != nil {
			return page, err
		}
	}
}

// TryNext is the next page of records that are there now; nil when there is
// none.
func (r *Reader) TryNext(ctx context.Context) (*Page, error) { return r.next(ctx, 0) }

func (r *Reader) next(ctx context.Context, wait time.Duration) (*Page, error) {
	defer runtime.KeepAlive(r)
	handle := r.handle
	page, err := during(ctx, func() { nativeReaderCancel(handle) }, func() (pageHandle, error) {
		return nativeReaderNext(handle, wait)
	})
	if err != nil || page == nil {
		return nil, err
	}
	return adopt(page), nil
}

// Close forgets the reader.
func (r *Reader) Close() {
	if r.handle == nil {
		return
	}
	r.cleanup.Stop()
	nativeReaderFree(r.handle)
	r.handle = nil
}
