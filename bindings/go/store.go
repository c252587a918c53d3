package weir

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// Durability says when a write is answered. What a crash leaves is a prefix of
// what was written, at every level.
type Durability uint32

// When a write is answered.
const (
	DurabilityDefault  Durability = iota // DurabilityGroup
	DurabilityGroup                      // when it is synced, together with what else waits
	DurabilityEach                       // when it is synced, by itself
	DurabilityInterval                   // when it is written; synced after a time
	DurabilityMemory                     // when it is written; not synced before the store is closed
)

// OpenOptions say how a store is opened; the zero value is the default of each.
type OpenOptions struct {
	// Durability says when a write is answered; Interval goes with
	// DurabilityInterval.
	Durability Durability
	Interval   time.Duration
	// Existing makes a directory without a store an error.
	Existing bool
	// OrConnect uses a store that a server has open through its socket.
	OrConnect bool
	// Program is the name that others are told who find the store locked.
	Program string
	// KeyBytes and ValueBytes bound keys (1 KiB) and values (1 MiB).
	KeyBytes, ValueBytes uint64
	// SnapshotLogBytes is the log after the newest snapshot that makes a new
	// one (1 GiB); LogSegmentBytes the size of a segment (64 MiB).
	SnapshotLogBytes, LogSegmentBytes uint64
}

// ConnectOptions say how a server is reached; the zero value is the default of
// each.
type ConnectOptions struct {
	// Token is a proof of identity.
	Token string
	// Authority, Certificate and Key are files, in PEM, for addresses of the
	// form weirs://: who signed the server's certificate, the own one, its key.
	Authority, Certificate, Key string
	// Agent is the name and version of the program, for people.
	Agent string
	// ConnectTimeout bounds the first connection (5 s); Patience is the time
	// for an answer, and without any connection (30 s).
	ConnectTimeout, Patience time.Duration
	// Received has the server say when a write is queued for its log
	// ([Pending.Received]), which is a packet more for each write.
	Received bool
}

// Store is an event store: in a directory that this process has open, or behind
// a server. It may be used by any number of goroutines.
//
// Every call that can wait for a server takes a context, here and in what a store
// gives out. A deadline of the context is the deadline of the call, and when the
// context ends, so does the call, within 50 ms, a claim within a second: the
// error is [ErrDeadline] or [ErrCancelled], for a write that was handed over
// [ErrIndeterminate], and wraps that of the context.
type Store struct {
	handle  atomic.Pointer[storeHandle]
	far     bool
	cleanup runtime.Cleanup
}

// BuildInfo says how the library was built: "name=value" pairs with "; "
// between, among them version, profile and scanner. Empty without cgo.
func BuildInfo() string { return nativeBuildInfo() }

// OpenHandles is the number of stores, queries, pages and other things of the
// library that this process has not given back. For tests: what a program drops
// comes back when the collector finds it. One list for lent pages stays.
func OpenHandles() uint64 { return nativeHandlesOpen() }

// Open opens the store in a directory, or makes one. It is to be closed.
func Open(directory string, options *OpenOptions) (*Store, error) {
	if options == nil {
		options = &OpenOptions{}
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
	return newStore(handle, info.far), nil
}

// Connect connects to a server at "weir://HOST[:PORT]", "weirs://HOST[:PORT]"
// (TLS) or "unix:PATH". When the context is cancelled, the attempt ends after
// it, with its timeout at the latest.
func Connect(ctx context.Context, address string, options *ConnectOptions) (*Store, error) {
	if options == nil {
		options = &ConnectOptions{}
	}
	limited := *options
	if deadline, there := ctx.Deadline(); there {
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
	// It ends by itself, with the timeout; there is no handle yet to end it by.
	done := make(chan func() (*Store, error), 1)
	go func() {
		handle, err := nativeConnect(address, &limited)
		done <- func() (*Store, error) { return connected(handle, err) }
	}()
	select {
	case result := <-done:
		return result()
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

func newStore(handle storeHandle, far bool) *Store {
	store := &Store{far: far}
	store.handle.Store(&handle)
	store.cleanup = runtime.AddCleanup(store, func(handle storeHandle) {
		// Nobody is left to be told.
		_ = nativeClose(handle)
	}, handle)
	return store
}

// Close finishes what is queued and closes the store, or the connection. Pages
// stay good; other calls fail with [ErrClosed]. Closing it again does nothing.
func (s *Store) Close() error {
	handle := s.handle.Swap(nil)
	if handle == nil {
		return nil
	}
	s.cleanup.Stop()
	return nativeClose(*handle)
}

// Sync makes everything that was answered so far durable, at any level.
func (s *Store) Sync(ctx context.Context) error {
	_, err := ask(ctx, s, func(store storeHandle) (struct{}, error) {
		return struct{}{}, nativeSync(store)
	})
	return err
}

// ID is the id of the store, which its copies share.
func (s *Store) ID(ctx context.Context) ([16]byte, error) {
	info, err := ask(ctx, s, nativeDescribe)
	return info.id, err
}

// Topic is a handle on a topic, whether it is there or not. It costs nothing.
func (s *Store) Topic(name string) Topic { return Topic{store: s, name: name} }

// Topics are the names of the topics, in byte order.
func (s *Store) Topics(ctx context.Context) ([]string, error) { return s.topics(ctx, false) }

// AllTopics are the names of the topics that are there or ever were.
func (s *Store) AllTopics(ctx context.Context) ([]string, error) { return s.topics(ctx, true) }

func (s *Store) topics(ctx context.Context, deadToo bool) ([]string, error) {
	return ask(ctx, s, func(store storeHandle) ([]string, error) {
		return nativeTopics(store, deadToo)
	})
}

// opened is the handle, unless the store was closed.
func (s *Store) opened() (storeHandle, error) {
	if handle := s.handle.Load(); handle != nil {
		return *handle, nil
	}
	return nil, failure(ErrClosed, ErrClosed.Sentence())
}
