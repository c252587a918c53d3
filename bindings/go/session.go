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
func (s *Store) Session(client [16]byte) (*Session, error) {
	defer runtime.KeepAlive(s)
	store, err := s.opened()
	if err != nil {
		return nil, err
	}
	handle, err := nativeSessionOpen(store, client)
	if err != nil {
		return nil, err
	}
	session := &Session{handle: handle}
	session.cleanup = runtime.AddCleanup(session, nativeSessionFree, handle)
	return session, nil
}

// Close forgets the session; the store remembers its numbers.
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
	defer runtime.KeepAlive(s)
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	if ctx.Done() == nil {
		return nativeSessionSubmit(s.handle, intentions)
	}
	pending, err := nativeSessionSend(s.handle, intentions)
	if err != nil {
		return nil, err
	}
	return newPending(pending, len(intentions)).Wait(ctx)
}

// NextNonce is the number of the next intention.
func (s *Session) NextNonce() (uint64, error) {
	defer runtime.KeepAlive(s)
	return nativeSessionNextNonce(s.handle)
}

// Resume goes back to a number whose answer was not seen.
func (s *Session) Resume(nonce uint64) error {
	defer runtime.KeepAlive(s)
	return nativeSessionResume(s.handle, nonce)
}
