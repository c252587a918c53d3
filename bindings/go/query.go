package weir

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync/atomic"
)

// Query is a run of a query over pages that its user fetches: partitions of a
// foreign data base, files, anything that is JSON and comes in pages.
//
// Add sources, hand in the pages that are needed, take results:
//
//	query, err := weir.NewQuery(weir.QueryOptions{Order: "$.updated desc"})
//	source, err := query.Source(weir.SourceOptions{Sorted: true})
//	err = source.Enqueue(page, nil)
//	for item, err := range query.Items(ctx) { ... }
//
// A query is used by one goroutine at a time, whichever; a second one gets
// [ErrHandleBusy]. It does not wait and does no input or output.
type Query struct {
	handle  queryHandle // never changes: the library refuses it after Close
	closed  atomic.Bool
	fetch   Fetch
	handed  atomic.Uint64 // calls that moved a source on
	topics  bool
	cleanup runtime.Cleanup
}

// Fetch hands in at least one page that is required, or finishes, splits or
// moves its source on; see [Source]. One that returns nil without any of these
// ends the loop with [ErrBadOption].
type Fetch func(ctx context.Context, needs []Need) error

// Need is a page that the query would like.
type Need struct {
	// Source is whose page.
	Source Source
	// Continuation names the page: what came with the page before it, or the
	// First of the source. Nil when a first page has no name.
	Continuation []byte
	// Required says that nothing goes on without the page; else it is worth
	// fetching ahead.
	Required bool
	// Hint is a suggested size in bytes.
	Hint uint64
}

// Step is what [Query.Next] came to.
type Step int

// What Query.Next comes to.
const (
	Ready   Step = 1 + iota // there is a page of results
	Needing                 // nothing can be said before pages, or records of topics, come
	Done                    // that was all
)

// NewQuery compiles a query. It is to be closed.
func NewQuery(options QueryOptions) (*Query, error) {
	handle, err := nativeQueryOpen(&options)
	if err != nil {
		return nil, err
	}
	query := &Query{handle: handle, fetch: options.Fetch}
	query.cleanup = runtime.AddCleanup(query, nativeQueryFree, handle)
	return query, nil
}

// Close forgets the query. Pages that it gave out stay good. Closing it again
// does nothing.
func (q *Query) Close() {
	if q.handle == nil || q.closed.Swap(true) {
		return
	}
	q.cleanup.Stop()
	nativeQueryFree(q.handle)
	pins.collect()
}

// Source adds a source.
func (q *Query) Source(options SourceOptions) (Source, error) {
	defer runtime.KeepAlive(q)
	number, err := nativeQuerySource(q.handle, &options)
	return Source{query: q, number: number}, err
}

// SourceAt is the source of a number.
func (q *Query) SourceAt(number uint32) Source { return Source{query: q, number: number} }

// Next hands out what can be decided: a page, if there is any; else it says
// whether pages are needed ([Query.Needs] says which) or the query is done. An
// error is final: each further call repeats it.
func (q *Query) Next(bounds Bounds) (Step, *Page, error) {
	step, page, err := nativeQueryNext(q.handle, bounds, 0)
	runtime.KeepAlive(q)
	if err != nil || step == Done {
		pins.collect()
	}
	return step, page, err
}

// Needs are the pages that would be asked for now, required ones first.
func (q *Query) Needs() ([]Need, error) {
	defer runtime.KeepAlive(q)
	return nativeQueryNeeds(q)
}

// Token is what to give as [QueryOptions.Token] to continue after the last page
// that was handed out, in another process too.
func (q *Query) Token() ([]byte, error) {
	defer runtime.KeepAlive(q)
	return nativeQueryText(q.handle, textToken)
}

// Abandon says that a source of the run that [QueryOptions.Token] is of is gone for good: the rows it
// had left do not come. Without this, and without the source, Next fails with [ErrSourcesOwed], which
// is not final.
func (q *Query) Abandon(name string) error {
	defer runtime.KeepAlive(q)
	return nativeQueryAbandon(q.handle, name)
}

// Explain says what the query will do, for people.
func (q *Query) Explain() (string, error) {
	defer runtime.KeepAlive(q)
	text, err := nativeQueryText(q.handle, textExplain)
	return string(text), err
}

// Cancel ends the query, from any goroutine, also while it is closed: what runs and each further Next
// fail with [ErrCancelled].
func (q *Query) Cancel() {
	defer runtime.KeepAlive(q)
	nativeQueryCancel(q.handle)
}

// Pages are pages of results, as they come. Each is the receiver's, to be
// released. When pages are needed, [QueryOptions.Fetch] is called; without one
// that is [ErrBadOption]. After an error the loop ends. When it came from the
// fetch, or there was none, the next call of Pages goes on where it was.
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

// Items are the items of [Query.Pages]. An item, and what it gives, is good
// until the end of the loop body. A loop that is left early leaves out the rest
// of its page; who needs a [Query.Token] there loops over pages.
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

// each hands out the items of a page and releases it, whatever happens.
func each(page *Page, yield func(Item, error) bool) bool {
	defer page.Release()
	for at := range page.spans {
		if !yield(Item{page: page, at: at}, nil) {
			return false
		}
	}
	return true
}

// page is the next page; nil when there is none.
func (q *Query) page(ctx context.Context) (*Page, error) {
	if q.topics {
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
			return nil, q.starved(needs, "a page of source %s is needed; give `fetch`")
		}
		before := q.handed.Load()
		if err := q.fetch(ctx, needs); err != nil {
			return nil, err
		}
		if q.handed.Load() == before {
			return nil, q.starved(needs, "`fetch` handed in nothing, and a page of source %s is needed")
		}
	}
}

// starved is the error of a page that is needed and that nobody will hand in.
func (q *Query) starved(needs []Need, format string) error {
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

// counted notes a call that moved a source on, unless it failed.
func (q *Query) counted(err error) error {
	if err == nil {
		q.handed.Add(1)
	}
	return err
}
