package weir

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// forever is a time without an end.
const forever time.Duration = -1

// within is a handle on the store for one call, which ends with its context, and
// what gives it back; that says whether the context ended before.
func (s *Store) within(ctx context.Context, limited bool) (storeHandle, func() bool, error) {
	if ctx.Err() != nil {
		return nil, nil, ended(ctx)
	}
	handle, err := s.opened()
	if err != nil || ctx.Done() == nil {
		return handle, func() bool { return false }, err
	}
	left := forever
	if deadline, there := ctx.Deadline(); there && limited {
		left = max(time.Until(deadline), 0)
	}
	own, err := nativeWithin(handle, left)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { nativeCancel(own) })
	return own, func() bool {
		late := !stop()
		_ = nativeClose(own)
		return late
	}, nil
}

// write makes a call at a store that is open, for as long as the context lasts.
func write[T any](ctx context.Context, s *Store, work func(storeHandle) (T, error)) (T, error) {
	defer runtime.KeepAlive(s)
	var none T
	handle, done, err := s.within(ctx, true)
	if err != nil {
		return none, err
	}
	value, err := work(handle)
	done()
	return value, because(ctx, err)
}

// ask does the same for what is there at once in a directory.
func ask[T any](ctx context.Context, s *Store, work func(storeHandle) (T, error)) (T, error) {
	if !s.far && ctx.Err() == nil {
		ctx = context.WithoutCancel(ctx)
	}
	return write(ctx, s, work)
}

// open makes a call whose result stays when the context ends, so that it has no
// deadline of it; free gives it back when the context ended a moment too early.
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
	return value, because(ctx, err)
}

// during makes a call in a handle of one goroutine for as long as the context
// lasts; cancel ends the call that runs, or else the next one.
func during[T any](ctx context.Context, cancel func(), work func() (T, error)) (T, error) {
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
			// It must not come while a later call runs.
			<-cancelled
		}
		if codeOf(err) == ErrCancelled && ctx.Err() == nil {
			// By what an earlier context left: nothing was done.
			continue
		}
		return value, because(ctx, err)
	}
}

// because is the error of a call that was ended, with the context that did.
func because(ctx context.Context, err error) error {
	code := codeOf(err)
	if code != ErrCancelled && code != ErrDeadline && code != ErrIndeterminate {
		return err
	}
	if deadline, there := ctx.Deadline(); there && !time.Now().Before(deadline) {
		// Its timer may be a moment late.
		<-ctx.Done()
	}
	if ctx.Err() == nil {
		return err
	}
	if code == ErrIndeterminate {
		return indeterminate(ctx)
	}
	return ended(ctx)
}

// indeterminate is the error of a write that was handed over when its context
// ended.
func indeterminate(ctx context.Context) error {
	over := ended(ctx)
	var failed *Error
	if errors.As(over, &failed) {
		failed.Code, failed.Message = ErrIndeterminate, ErrIndeterminate.Sentence()
	}
	return over
}
