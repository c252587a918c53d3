package weir

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// forever is a timeout without end.
const forever time.Duration = -1

// within returns a handle of the store for one call, which is cancelled when the
// context ends, and a function that closes the handle. The function reports
// whether the context had already ended.
func (s *Store) within(ctx context.Context, limited bool) (storeHandle, func() bool, error) {
	if ctx.Err() != nil {
		return nil, nil, ended(ctx)
	}
	handle, err := s.opened()
	if err != nil || ctx.Done() == nil {
		return handle, func() bool { return false }, err
	}
	left := forever
	if deadline, ok := ctx.Deadline(); ok && limited {
		left = max(time.Until(deadline), 0)
	}
	callHandle, err := nativeWithin(handle, left)
	if err != nil {
		return nil, nil, s.closedError(err)
	}
	stop := context.AfterFunc(ctx, func() { nativeCancel(callHandle) })
	return callHandle, func() bool {
		late := !stop()
		_ = nativeClose(callHandle)
		return late
	}, nil
}

// write runs work with a handle of the store that is cancelled when the context ends.
func write[T any](ctx context.Context, s *Store, work func(storeHandle) (T, error)) (T, error) {
	defer runtime.KeepAlive(s)
	var none T
	handle, done, err := s.within(ctx, true)
	if err != nil {
		return none, err
	}
	value, err := work(handle)
	done()
	return value, withContextError(ctx, s.closedError(err))
}

// read is write for reads. A local store responds at once, so its calls ignore the
// context.
func read[T any](ctx context.Context, s *Store, work func(storeHandle) (T, error)) (T, error) {
	if !s.remote && ctx.Err() == nil {
		ctx = context.WithoutCancel(ctx)
	}
	return write(ctx, s, work)
}

// open runs work, whose result outlives the context and does not inherit its
// deadline. If the context ends during the call, free releases the result.
func open[T any](ctx context.Context, s *Store, work func(storeHandle) (T, error), free func(T)) (T, error) {
	defer runtime.KeepAlive(s)
	var none T
	handle, done, err := s.within(ctx, false)
	if err != nil {
		return none, err
	}
	value, err := work(handle)
	if done() && err == nil {
		free(value)
		return none, ended(ctx)
	}
	return value, withContextError(ctx, s.closedError(err))
}

// untilContextEnds runs work until the context ends. The function cancel ends the running
// call of the handle, or otherwise its next call.
func untilContextEnds[T any](ctx context.Context, cancel func(), work func() (T, error)) (T, error) {
	for {
		if ctx.Err() != nil {
			var none T
			return none, ended(ctx)
		}
		if ctx.Done() == nil {
			if value, err := work(); codeOf(err) != ErrCancelled {
				return value, err
			}
			continue
		}
		cancelled := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(cancelled)
			cancel()
		})
		value, err := work()
		if !stop() {
			// A late cancel would end a later call.
			<-cancelled
		}
		if codeOf(err) == ErrCancelled && ctx.Err() == nil {
			// The cancel of an earlier context ended this call before it did anything.
			continue
		}
		return value, withContextError(ctx, err)
	}
}

// withContextError adds the error of the context to the error of a call that the context
// ended.
func withContextError(ctx context.Context, err error) error {
	code := codeOf(err)
	if code != ErrCancelled && code != ErrDeadline && code != ErrIndeterminate {
		return err
	}
	if !hasEnded(ctx) {
		return err
	}
	if code == ErrIndeterminate {
		return indeterminate(ctx)
	}
	return ended(ctx)
}

// hasEnded reports whether a context has ended.
func hasEnded(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		// The timer of the context may be late.
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// indeterminate is the error of a write that was sent before its context ended.
func indeterminate(ctx context.Context) error {
	over := ended(ctx)
	var failed *Error
	if errors.As(over, &failed) {
		failed.Code, failed.Message = ErrIndeterminate, ErrIndeterminate.Sentence()
	}
	return over
}
