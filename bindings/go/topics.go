package weir

import (
	"context"
	"runtime"
	"time"
)

// TopicsOptions select the records of a query over topics; see [Store.Query].
type TopicsOptions struct {
	// Topics are names of topics, or patterns: "orders.*" matches one more part,
	// "orders.**" any number of parts.
	Topics []string
	// From is the first record of each topic; the zero value is the first retained
	// record. A topic that is created after the query starts is read from its start.
	// A query that resumes from a token ignores From. With Latest, From must be the
	// zero value.
	From From
	// Latest makes the current value of each key an item; otherwise each record is an
	// item.
	Latest bool
	// AsOf is the last intention whose records are included; 0: all records that exist
	// when the query starts.
	AsOf uint64
	// Follow makes the query continue with new records until its context ends. Not
	// with AsOf.
	Follow bool
	// Kinds are the kinds of records that are items; nil: only PUT.
	Kinds []RecordKind
	// ResetEarliest: if the next record of a token was removed, the query continues
	// with the first retained record. Otherwise this is an error.
	ResetEarliest bool
	// NoPushDown makes a server send all records; for measurements.
	NoPushDown bool
	// Patience limits one wait for records that exist (30 s).
	Patience time.Duration
}

// Query starts a query over topics of a directory or a server. It fetches its pages
// itself, so the caller adds no sources. Pages and Items run to its end.
func (s *Store) Query(ctx context.Context, topics TopicsOptions, options QueryOptions) (*Query, error) {
	if err := negative("Patience", topics.Patience); err != nil {
		return nil, err
	}
	if topics.Follow && topics.AsOf > 0 {
		return nil, failure(ErrBadOption, "a query with Follow has no AsOf")
	}
	handle, err := open(ctx, s, func(store storeHandle) (queryHandle, error) {
		return nativeQueryOpenTopics(store, &topics, &options)
	}, nativeQueryFree)
	if err != nil {
		return nil, err
	}
	query := &Query{handle: handle, store: s}
	query.cleanup = runtime.AddCleanup(query, freeQuery, handle)
	return query, nil
}

// SourceName returns the name of a source, which is the name of the topic for a query
// over topics; empty if there is no such source.
func (q *Query) SourceName(source uint32) (string, error) {
	defer runtime.KeepAlive(q)
	return nativeQuerySourceName(q.handle, source)
}

// queryStep limits one wait in the library. A cancel would end the query, and there
// would be no token.
const queryStep = 50 * time.Millisecond

// wait returns the next page of a query over topics; nil if there is none.
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
