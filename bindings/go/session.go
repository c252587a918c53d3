package weir

import (
	"context"
	"runtime"
)

// Session is a writer whose intentions are executed exactly once: each has a number,
// and the store records the numbers. An intention without an answer is sent again
// with its number. One goroutine at a time may use a session.
type Session struct {
	handle  sessionHandle // never changes: the library rejects it after Close
	closed  bool
	store   *Store // keeps the store open
	cleanup runtime.Cleanup
}

// Session opens the session of a client. The id must not be all zeros. One writer at
// a time may use it. The caller must close the session.
func (s *Store) Session(ctx context.Context, client [16]byte) (*Session, error) {
	handle, err := open(ctx, s, func(store storeHandle) (sessionHandle, error) {
		return nativeSessionOpen(store, client)
	}, nativeSessionFree)
	if err != nil {
		return nil, err
	}
	session := &Session{handle: handle, store: s}
	session.cleanup = runtime.AddCleanup(session, nativeSessionFree, handle)
	return session, nil
}

// Close closes the session; the store retains its numbers. At a server, Close waits up
// to 5 s for the answers to sent intentions.
func (s *Session) Close() {
	if s.closed {
		return
	}
	s.closed = true
	s.cleanup.Stop()
	nativeSessionFree(s.handle)
}

// Submit executes intentions with the next numbers, in order. If the context ends
// first, the error is [ErrIndeterminate]. To learn the outcome, call [Session.Resume]
// and submit the same intentions again.
func (s *Session) Submit(ctx context.Context, intentions ...Intention) ([]Verdict, error) {
	return callSession(ctx, s, func(session sessionHandle) ([]Verdict, error) {
		return nativeSessionSubmit(session, intentions)
	})
}

// Send sends intentions with the next numbers and does not wait for their verdicts.
// Further calls of Send may follow at once. At a server, Send may block until there is
// room for the intentions.
func (s *Session) Send(ctx context.Context, intentions ...Intention) (*Pending, error) {
	handle, err := callSession(ctx, s, func(session sessionHandle) (pendingHandle, error) {
		return nativeSessionSend(session, intentions)
	})
	if err != nil {
		return nil, err
	}
	return newPending(handle, s, len(intentions)), nil
}

// NextNonce returns the number of the next intention.
func (s *Session) NextNonce(ctx context.Context) (uint64, error) {
	return callSession(ctx, s, nativeSessionNextNonce)
}

// Resume sets the next number back to one without an answer. At a server, it waits for
// the answers that have not arrived yet.
func (s *Session) Resume(ctx context.Context, nonce uint64) error {
	_, err := callSession(ctx, s, func(session sessionHandle) (struct{}, error) {
		return struct{}{}, nativeSessionResume(session, nonce)
	})
	return err
}

// callSession runs a call of a session until the context ends.
func callSession[T any](ctx context.Context, s *Session, work func(sessionHandle) (T, error)) (T, error) {
	defer runtime.KeepAlive(s)
	handle := s.handle
	return untilContextEnds(ctx, func() { nativeSessionCancel(handle) }, func() (T, error) { return work(handle) })
}
