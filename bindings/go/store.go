package weir

import (
	"cmp"
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// Durability is when a write is acknowledged. At every level, a crash leaves a prefix
// of the writes.
type Durability uint32

// When a write is acknowledged.
const (
	DurabilityDefault  Durability = iota // DurabilityGroup
	DurabilityGroup                      // after its sync, which it shares with other waiting writes
	DurabilityEach                       // after its sync, which it does not share
	DurabilityInterval                   // after the write; the sync follows within an interval
	DurabilityMemory                     // after the write; not synced before the store is closed
)

// Consistency is which writes a read at a cluster sees. For a directory or a single
// server, all values are equivalent.
type Consistency uint32

// Which writes a read at a cluster sees.
const (
	ConsistencyLocal  Consistency = 1 + iota // those that the node has applied
	ConsistencyLeader                        // those that the leader has applied, while its lease is valid
	ConsistencyLinear                        // all that were acknowledged anywhere before the read began
)

// OpenOptions are the options of [Open]; the zero value is the default of each.
type OpenOptions struct {
	// Durability is when a write is acknowledged. With DurabilityInterval, Interval is
	// the longest time until the sync of a write (1 s).
	Durability Durability
	Interval   time.Duration
	// Existing makes Open fail if the directory has no store.
	Existing bool
	// OrConnect: if a server has the store open, connect to it through its socket.
	OrConnect bool
	// Program is a name that is reported to others who find the store locked.
	Program string
	// KeyBytes and ValueBytes limit keys (1 KiB) and values (1 MiB).
	KeyBytes, ValueBytes uint64
	// SnapshotLogBytes is the size of the log after the last snapshot at which a new
	// one is created (1 GiB). LogSegmentBytes is the size of a log segment (64 MiB).
	SnapshotLogBytes, LogSegmentBytes uint64
}

// ConnectOptions are the options of [Connect]; the zero value is the default of each.
type ConnectOptions struct {
	// Token authenticates the client.
	Token string
	// Authority, Certificate and Key are PEM files for addresses of the form
	// weirs://: the authority of the server's certificate, the client's certificate,
	// and its key.
	Authority, Certificate, Key string
	// Agent is the name and version of the program, for people.
	Agent string
	// ConnectTimeout limits the first connection (5 s). Patience limits the wait for
	// an answer, and the time without any connection (30 s).
	ConnectTimeout, Patience time.Duration
	// Received: the server reports when a write is queued for its log
	// ([Pending.Received]), which costs one more packet for each write.
	Received bool
}

// Store is an event store, in a directory that this process has open or at a
// server. Any number of goroutines may use it.
//
// Every call that can wait for a server takes a context. This applies to the Store
// and to all values that it returns. The deadline of the context is the deadline of
// the call. When the context ends, the call ends within 50 ms, and a claim ends
// within 1 s. The error is then [ErrDeadline] or [ErrCancelled]; for a write that was
// already sent it is [ErrIndeterminate]. It wraps the error of the context.
type Store struct {
	handle  atomic.Pointer[storeHandle]
	remote  bool
	cleanup runtime.Cleanup
	// parent is the store from which this one is derived; nil for an opened store. The
	// reference keeps the parent open.
	parent *Store
}

// BuildInfo describes the build of the library: "name=value" pairs, separated by
// "; ", among them version, profile and scanner. Empty without cgo.
func BuildInfo() string { return nativeBuildInfo() }

// OpenHandles returns the number of stores, queries, pages and other objects of the
// library that this process has not released. For tests: the collector releases
// dropped objects. The number includes a list of lent pages, which is never released.
func OpenHandles() uint64 { return nativeHandlesOpen() }

// Open opens the store in a directory, or creates one. The caller must close it.
func Open(directory string, options *OpenOptions) (*Store, error) {
	if options == nil {
		options = &OpenOptions{}
	}
	if err := negative("Interval", options.Interval); err != nil {
		return nil, err
	}
	if options.Durability == DurabilityInterval && options.Interval == 0 {
		withInterval := *options
		withInterval.Interval = time.Second
		options = &withInterval
	}
	handle, err := nativeOpen(directory, options)
	if err != nil {
		return nil, err
	}
	info, err := nativeDescribe(handle)
	if err != nil {
		_ = nativeClose(handle)
		return nil, err
	}
	return newStore(handle, info.remote), nil
}

// Connect connects to a server at "weir://HOST[:PORT]", "weirs://HOST[:PORT]"
// (TLS) or "unix:PATH". It returns when the context is cancelled; the connection
// attempt then continues in the background until its timeout at the latest.
func Connect(ctx context.Context, address string, options *ConnectOptions) (*Store, error) {
	if options == nil {
		options = &ConnectOptions{}
	}
	err := cmp.Or(negative("ConnectTimeout", options.ConnectTimeout), negative("Patience", options.Patience))
	if err != nil {
		return nil, err
	}
	limited := *options
	if deadline, ok := ctx.Deadline(); ok {
		left := max(time.Until(deadline), time.Millisecond)
		if limited.ConnectTimeout == 0 || limited.ConnectTimeout > left {
			limited.ConnectTimeout = left
		}
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	if ctx.Done() == nil {
		return connected(nativeConnect(address, &limited))
	}
	// The attempt ends with its timeout. There is no handle yet that could cancel it.
	done := make(chan func() (*Store, error), 1)
	go func() {
		handle, err := nativeConnect(address, &limited)
		done <- func() (*Store, error) { return connected(handle, err) }
	}()
	select {
	case result := <-done:
		store, err := result()
		if err != nil && hasEnded(ctx) {
			return nil, ended(ctx)
		}
		return store, err
	case <-ctx.Done():
		go func() {
			if store, err := (<-done)(); err == nil {
				_ = store.Close()
			}
		}()
		return nil, ended(ctx)
	}
}

func connected(handle storeHandle, err error) (*Store, error) {
	if err != nil {
		return nil, err
	}
	return newStore(handle, true), nil
}

func newStore(handle storeHandle, remote bool) *Store {
	store := &Store{remote: remote}
	store.handle.Store(&handle)
	store.cleanup = runtime.AddCleanup(store, func(handle storeHandle) {
		// No caller is left to report the error to.
		_ = nativeClose(handle)
	}, handle)
	return store
}

// WithConsistency returns a second handle of the store, whose reads have this
// consistency. It also applies to readers, groups and queries that are opened through
// the handle. Without it, reads of keys are linear and all other reads are local. Close
// of the second handle only releases that handle.
func (s *Store) WithConsistency(consistency Consistency) (*Store, error) {
	defer runtime.KeepAlive(s)
	handle, err := s.opened()
	if err != nil {
		return nil, err
	}
	own, err := nativeWithConsistency(handle, consistency)
	if err != nil {
		return nil, s.closedError(err)
	}
	store := newStore(own, s.remote)
	store.parent = s
	return store, nil
}

// Close completes queued writes and closes the store, or the connection. Pages stay
// valid; other calls fail with [ErrClosed]. A second Close is a no-op.
func (s *Store) Close() error {
	handle := s.handle.Swap(nil)
	if handle == nil {
		return nil
	}
	s.cleanup.Stop()
	return nativeClose(*handle)
}

// Sync makes every acknowledged write durable, at any level.
func (s *Store) Sync(ctx context.Context) error {
	_, err := read(ctx, s, func(store storeHandle) (struct{}, error) {
		return struct{}{}, nativeSync(store)
	})
	return err
}

// ID returns the id of the store; copies of the store have the same id.
func (s *Store) ID(ctx context.Context) ([16]byte, error) {
	info, err := read(ctx, s, nativeDescribe)
	return info.id, err
}

// Topic returns a handle of a topic, which need not exist. It costs nothing.
func (s *Store) Topic(name string) Topic { return Topic{store: s, name: name} }

// Topics returns the names of the existing topics, in byte order.
func (s *Store) Topics(ctx context.Context) ([]string, error) { return s.topics(ctx, false) }

// AllTopics returns the names of all topics, including destroyed ones.
func (s *Store) AllTopics(ctx context.Context) ([]string, error) { return s.topics(ctx, true) }

func (s *Store) topics(ctx context.Context, withDestroyed bool) ([]string, error) {
	return read(ctx, s, func(store storeHandle) ([]string, error) {
		return nativeTopics(store, withDestroyed)
	})
}

// opened returns the handle, or an error if the store is closed.
func (s *Store) opened() (storeHandle, error) {
	if handle := s.handle.Load(); handle != nil {
		return *handle, nil
	}
	return nil, failure(ErrClosed, ErrClosed.Sentence())
}

// closedError returns the error of a closed store if Close has released the handle of a
// call since the call began, and otherwise the error of the call.
func (s *Store) closedError(err error) error {
	if codeOf(err) == ErrBadHandle {
		if _, closed := s.opened(); closed != nil {
			return closed
		}
	}
	return err
}
