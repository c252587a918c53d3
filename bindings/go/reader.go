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
func (t Topic) Reader(from From) (*Reader, error) { return t.reader(from, false) }

// Listener begins to read a topic that need not be there yet.
func (t Topic) Listener(from From) (*Reader, error) { return t.reader(from, true) }

func (t Topic) reader(from From, await bool) (*Reader, error) {
	defer runtime.KeepAlive(t.store)
	store, err := t.store.opened()
	if err != nil {
		return nil, err
	}
	handle, err := nativeReaderOpen(store, t.name, from, await)
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
	defer runtime.KeepAlive(r)
	handle := r.handle
	return waited(ctx, func() { nativeReaderCancel(handle) }, func() (pageHandle, error) {
		return nativeReaderNext(handle, readStep)
	})
}

// TryNext is the next page of records that are there now; nil when there is
// none.
func (r *Reader) TryNext() (*Page, error) {
	defer runtime.KeepAlive(r)
	handle := r.handle
	return tried(func() (pageHandle, error) { return nativeReaderNext(handle, 0) })
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

// waited makes a call that waits, again and again until it gives a page or the
// context ends; cancel ends the call that runs.
func waited(ctx context.Context, cancel func(), next func() (pageHandle, error)) (*Page, error) {
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	for {
		if ctx.Err() != nil {
			return nil, ended(ctx)
		}
		page, err := next()
		switch {
		case err == nil && page != nil:
			return adopt(page), nil
		case err != nil && codeOf(err) != ErrCancelled:
			return nil, err
		}
		// Cancelled for this context, or by what an earlier one left.
	}
}

// tried makes a call that does not wait.
func tried(next func() (pageHandle, error)) (*Page, error) {
	for {
		page, err := next()
		switch {
		case err == nil && page != nil:
			return adopt(page), nil
		case err == nil:
			return nil, nil
		case codeOf(err) != ErrCancelled:
			return nil, err
		}
	}
}
