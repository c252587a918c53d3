package weir

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync/atomic"
)

// Query is a run of a query over pages that its user fetches: partitions of another
// database, files, any JSON that arrives in pages.
//
// Add sources, enqueue the pages that the query needs, and read results:
//
//	query, err := weir.NewQuery(weir.QueryOptions{Order: "$.updated desc"})
//	source, err := query.Source(weir.SourceOptions{Sorted: true})
//	err = source.Enqueue(page, nil)
//	for item, err := range query.Items(ctx) { ... }
//
// One goroutine at a time may use a query; a concurrent call gets [ErrHandleBusy].
// A query over pages does not block and does no input or output.
type Query struct {
	handle   queryHandle // never changes: the library rejects it after Close
	closed   atomic.Bool
	fetch    Fetch
	advanced atomic.Uint64 // calls that advanced a source
	store    *Store        // of a query over topics: keeps the store open
	cleanup  runtime.Cleanup
}

// Fetch enqueues at least one required page, or finishes, splits or advances the
// source of one; see [Source]. If it returns nil and did none of these, the loop ends
// with [ErrBadOption].
type Fetch func(ctx context.Context, needs []Need) error

// Need is a page that the query requests.
type Need struct {
	// Source is the source of the page.
	Source Source
	// Continuation names the page: the continuation of the previous page, or the
	// First of the source. Nil if the first page has no name.
	Continuation []byte
	// Required: the query cannot continue without the page. Otherwise the page is
	// only worth reading ahead.
	Required bool
	// Hint is a suggested size in bytes.
	Hint uint64
}

// Step is the result of [Query.Next].
type Step int

// The results of Query.Next.
const (
	Ready   Step = 1 + iota // there is a page of results
	Needing                 // the query needs pages, or records of topics, to continue
	Done                    // there are no more results
)

// NewQuery compiles a query. The caller must close it.
func NewQuery(options QueryOptions) (*Query, error) {
	handle, err := nativeQueryOpen(&options)
	if err != nil {
		return nil, err
	}
	query := &Query{handle: handle, fetch: options.Fetch}
	query.cleanup = runtime.AddCleanup(query, freeQuery, handle)
	return query, nil
}

// freeQuery releases a query, and unpins the pages that it returns.
func freeQuery(handle queryHandle) {
	nativeQueryFree(handle)
	pins.collect()
}

// Close closes the query. Its result pages stay valid. A second Close is a no-op.
func (q *Query) Close() {
	if q.handle == nil || q.closed.Swap(true) {
		return
	}
	q.cleanup.Stop()
	freeQuery(q.handle)
}

// Source adds a source.
func (q *Query) Source(options SourceOptions) (Source, error) {
	defer runtime.KeepAlive(q)
	number, err := nativeQuerySource(q.handle, &options)
	return Source{query: q, number: number}, err
}

// SourceAt returns the source with the given number.
func (q *Query) SourceAt(number uint32) Source { return Source{query: q, number: number} }

// Next returns a page of results, if there are any. Otherwise it reports that the
// query needs pages (see [Query.Needs]) or is done. An error of the query is final:
// each further call returns it again.
func (q *Query) Next(bounds Bounds) (Step, *Page, error) {
	if err := negative("Items", bounds.Items); err != nil {
		return 0, nil, err
	}
	step, page, err := nativeQueryNext(q.handle, bounds, 0)
	runtime.KeepAlive(q)
	if err != nil || step == Done {
		pins.collect()
	}
	return step, page, err
}

// Needs returns the pages that the query requests now, required ones first.
func (q *Query) Needs() ([]Need, error) {
	defer runtime.KeepAlive(q)
	return nativeQueryNeeds(q)
}

// Token returns the value of [QueryOptions.Token] with which a query, also in another
// process, continues after the last page that Next returned.
func (q *Query) Token() ([]byte, error) {
	defer runtime.KeepAlive(q)
	return nativeQueryText(q.handle, textToken)
}

// Abandon declares that a source of the query that returned [QueryOptions.Token] no longer exists, so
// its remaining rows never arrive. Without this call, and without the source, Next fails with
// [ErrSourcesOwed], which is not final.
func (q *Query) Abandon(name string) error {
	defer runtime.KeepAlive(q)
	return nativeQueryAbandon(q.handle, name)
}

// Explain returns a description of the execution, for people.
func (q *Query) Explain() (string, error) {
	defer runtime.KeepAlive(q)
	text, err := nativeQueryText(q.handle, textExplain)
	return string(text), err
}

// Cancel ends the query. Any goroutine may call it, also during Close. A running Next and each further
// Next fail with [ErrCancelled].
func (q *Query) Cancel() {
	defer runtime.KeepAlive(q)
	nativeQueryCancel(q.handle)
}

// Pages iterates over pages of results. The caller must release each page. When the
// query needs pages, it calls [QueryOptions.Fetch]; without a Fetch, it fails with
// [ErrBadOption]. The loop ends after an error. If Fetch returned the error, or there
// was no Fetch, the next call of Pages resumes at the same position.
func (q *Query) Pages(ctx context.Context) iter.Seq2[*Page, error] {
	return func(yield func(*Page, error) bool) {
		for {
			page, err := q.page(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			if page == nil || !yield(page, nil) {
				return
			}
		}
	}
}

// Items iterates over the items of [Query.Pages]. An item and its views are valid
// within the loop body only. A loop that is left early skips the rest of its page.
// To use [Query.Token] after such a loop, iterate over pages instead.
func (q *Query) Items(ctx context.Context) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for {
			page, err := q.page(ctx)
			if err != nil {
				yield(Item{}, err)
				return
			}
			if page == nil || !each(page, yield) {
				return
			}
		}
	}
}

// each yields the items of a page, and always releases the page.
func each(page *Page, yield func(Item, error) bool) bool {
	defer page.Release()
	for at := range page.spans {
		if !yield(Item{page: page, at: at}, nil) {
			return false
		}
	}
	return true
}

// page returns the next page; nil if there is none.
func (q *Query) page(ctx context.Context) (*Page, error) {
	if q.store != nil {
		return q.wait(ctx)
	}
	for {
		if ctx.Err() != nil {
			return nil, ended(ctx)
		}
		step, page, err := q.Next(Bounds{})
		if err != nil || step == Ready || step == Done {
			return page, err
		}
		needs, err := q.Needs()
		if err != nil {
			return nil, err
		}
		if q.fetch == nil {
			return nil, q.missingPageError(needs, "a page of source %s is needed; give `fetch`")
		}
		before := q.advanced.Load()
		if err := q.fetch(ctx, needs); err != nil {
			return nil, err
		}
		if q.advanced.Load() == before {
			return nil, q.missingPageError(needs, "`fetch` enqueued nothing, and a page of source %s is needed")
		}
	}
}

// missingPageError returns the error for a required page that was not enqueued.
func (q *Query) missingPageError(needs []Need, format string) error {
	defer runtime.KeepAlive(q)
	number := needs[0].Source.number
	name, err := nativeQuerySourceName(q.handle, number)
	if err != nil {
		return err
	}
	if name == "" {
		name = fmt.Sprint("number ", number)
	}
	return &Error{
		Code: ErrBadOption, Message: fmt.Sprintf(format, name), Source: int(number), Offset: NoOffset,
	}
}

// countAdvance counts a call that advanced a source, unless it failed.
func (q *Query) countAdvance(err error) error {
	if err == nil {
		q.advanced.Add(1)
	}
	return err
}
