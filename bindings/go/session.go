package weir

import (
	"context"
	"runtime"
)

// Session is a writer whose intentions are carried out exactly once: they are
// numbered, and the store remembers the numbers. What was not answered is sent
// again under its number. It is used by one goroutine at a time.
type Session struct {
	handle  sessionHandle
	cleanup runtime.Cleanup
}

// Session opens the session of a client; the id is not all zero, and belongs to
// one writer at a time. It is to be closed.
func (s *Store) Session(ctx context.Context, client [16]byte) (*Session, error) {
	handle, err := open(ctx, s, func(store storeHandle) (sessionHandle, error) {
		return nativeSessionOpen(store, client)
	}, nativeSessionFree)
	if err != nil {
		return nil, err
	}
	session := &Session{handle: handle}
	session.cleanup = runtime.AddCleanup(session, nativeSessionFree, handle)
	return session, nil
}

// Close forgets the session; the store remembers its numbers. At a server it
// waits up to 5 s for the answers to what was sent.
func (s *Session) Close() {
	if s.handle == nil {
		return
	}
	s.cleanup.Stop()
	nativeSessionFree(s.handle)
	s.handle = nil
}

// Submit carries out intentions under the next numbers, in order. When the
// context ends first the error is [ErrIndeterminate]; [Session.Resume] and the
// same intentions again find out.
func (s *Session) Submit(ctx context.Context, intentions ...Intention) ([]Verdict, error) {
	return of(ctx, s, func(session sessionHandle) ([]Verdict, error) {
		return nativeSessionSubmit(session, intentions)
	})
}

// Send hands over intentions under the next numbers and does not wait for their
// verdicts; what is sent next may follow at once. At a server it may wait until
// there is room for them.
func (s *Session) Send(ctx context.Context, intentions ...Intention) (*Pending, error) {
	handle, err := of(ctx, s, func(session sessionHandle) (pendingHandle, error) {
		return nativeSessionSend(session, intentions)
	})
	if err != nil {
		return nil, err
	}
	return newPending(handle, len(intentions)), nil
}

// NextNonce is the number of the next intention.
func (s *Session) NextNonce(ctx context.Context) (uint64, error) {
	return of(ctx, s, nativeSessionNextNonce)
}

// Resume goes back to a number whose answer was not seen. At a server it waits for
// what is on its way.
func (s *Session) Resume(ctx context.Context, nonce uint64) error {
	_, err := of(ctx, s, func(session sessionHandle) (struct{}, error) {
		return struct{}{}, nativeSessionResume(session, nonce)
	})
	return err
}

// of makes a call of a session for as long as the context lasts.
func of[T any](ctx context.Context, s *Session, work func(sessionHandle) (T, error)) (T, error) {
	defer runtime.KeepAlive(s)
	handle := s.handle
	return during(ctx, func() { nativeSessionCancel(handle) }, func() (T, error) { return work(handle) })
}
