package weir

import (
	"context"
	"runtime"
	"time"
)

// Pending are verdicts that are on their way. What was sent is carried out
// whether somebody waits or not.
type Pending struct {
	handle  pendingHandle
	count   int
	cleanup runtime.Cleanup
}

func newPending(handle pendingHandle, count int) *Pending {
	pending := &Pending{handle: handle, count: count}
	pending.cleanup = runtime.AddCleanup(pending, nativePendingFree, handle)
	return pending
}

// waitStep bounds one wait in the library, so that an ended context is seen.
const waitStep = 50 * time.Millisecond

// Wait gives the verdicts, once. When the context ends first the error is
// [ErrIndeterminate].
func (p *Pending) Wait(ctx context.Context) ([]Verdict, error) {
	defer p.free()
	for {
		verdicts, err := nativePendingWait(p.handle, stepOf(ctx), p.count)
		if verdicts != nil || err != nil {
			return verdicts, err
		}
		if ctx.Err() != nil {
			return nil, indeterminate(ctx)
		}
	}
}

// Received waits until all that was sent is queued for the log, which promises
// nothing, or answered. A server says it to who connected with
// [ConnectOptions.Received]. When the context ends first the error is
// [ErrDeadline] or [ErrCancelled], and the verdicts can still be waited for.
func (p *Pending) Received(ctx context.Context) error {
	for {
		received, err := nativePendingReceived(p.handle, stepOf(ctx))
		if received || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ended(ctx)
		}
	}
}

func (p *Pending) free() {
	p.cleanup.Stop()
	nativePendingFree(p.handle)
	p.handle = nil
}

// stepOf is the time until the deadline of a context, at most waitStep.
func stepOf(ctx context.Context) time.Duration {
	if deadline, there := ctx.Deadline(); there {
		return max(min(waitStep, time.Until(deadline)), 0)
	}
	return waitStep
}
