package weir

import (
	"context"
	"runtime"
	"time"
)

// TopicsOptions say which records a query over topics is about; see
// [Store.Query].
type TopicsOptions struct {
	// From are names of topics, or patterns: "orders.*" has one more part,
	// "orders.**" any number.
	From []string
	// Latest makes the current value of each key an item; else each record is
	// one.
	Latest bool
	// AsOf is the intention up to which records count; 0: all that are there
	// when the query begins.
	AsOf uint64
	// Follow makes the query go on with what comes. It ends with its context.
	Follow bool
	// Kinds are the kinds of records that are items; nil: of values alone.
	Kinds []RecordKind
	// ResetEarliest makes a token go on with the first record that is left when
	// its own are gone; else that is an error.
	ResetEarliest bool
	// NoPushDown makes a server send all records; for measurements.
	NoPushDown bool
	// Patience is the longest wait for records that are there (30 s).
	Patience time.Duration
}

// Query begins a query over topics, here or at a server. It fetches its pages
// itself: it has no sources of its own, and Pages and Items go on to its end.
func (s *Store) Query(ctx context.Context, topics TopicsOptions, options QueryOptions) (*Query, error) {
	handle, err := open(ctx, s, func(store storeHandle) (queryHandle, error) {
		return nativeQueryOpenTopics(store, &topics, &options)
	}, nativeQueryFree)
	if err != nil {
		return nil, err
	}
	query := &Query{handle: handle, topics: true}
	query.cleanup = runtime.AddCleanup(query, nativeQueryFree, handle)
	return query, nil
}

// SourceName is the name of a source, which for a query over topics is that of
// the topic; empty for none.
func (q *Query) SourceName(source uint32) (string, error) {
	defer runtime.KeepAlive(q)
	return nativeQuerySourceName(q.handle, source)
}

// queryStep bounds one wait in the library. A cancel would end the query, so
// that there would be no token.
const queryStep = 50 * time.Millisecond

// wait is the next page of a query over topics; nil when there is none.
func (q *Query) wait(ctx context.Context) (*Page, error) {
	defer runtime.KeepAlive(q)
	for {
		if ctx.Err() != nil {
			return nil, ended(ctx)
		}
		step, page, err := nativeQueryNext(q.handle, Bounds{}, queryStep)
		if err != nil || step != Needing {
			return page, err
		}
	}
}
