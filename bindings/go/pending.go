package weir

import (
	"context"
	"runtime"
	"time"
)

// Pending are verdicts that have not arrived yet. The store executes the intentions
// even if no call waits for them.
type Pending struct {
	handle  pendingHandle
	sender  any // the Store or Session, which stays open until the verdicts arrive
	count   int
	cleanup runtime.Cleanup
}

func newPending(handle pendingHandle, sender any, count int) *Pending {
	pending := &Pending{handle: handle, sender: sender, count: count}
	pending.cleanup = runtime.AddCleanup(pending, nativePendingFree, handle)
	return pending
}

// waitStep limits one wait in the library, so that the end of a context is noticed.
const waitStep = 50 * time.Millisecond

// Wait returns the verdicts; it can do so once. If the context ends first, the error
// is [ErrIndeterminate].
func (p *Pending) Wait(ctx context.Context) ([]Verdict, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
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

// Received waits until every intention is queued for the log or has a verdict. A
// queued intention can still be lost. A server reports this only to a client that
// connected with [ConnectOptions.Received]. If the context ends first, the error is
// [ErrDeadline] or [ErrCancelled], and Wait can still return the verdicts.
func (p *Pending) Received(ctx context.Context) error {
	if err := p.check(); err != nil {
		return err
	}
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

// check fails after a call of Wait.
func (p *Pending) check() error {
	if p.handle == nil {
		return failure(ErrBadOption, "Wait has already returned the verdicts or an error")
	}
	return nil
}

func (p *Pending) free() {
	p.cleanup.Stop()
	nativePendingFree(p.handle)
	p.handle, p.sender = nil, nil
}

// stepOf returns the time until the deadline of a context, at most waitStep.
func stepOf(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(min(waitStep, time.Until(deadline)), 0)
	}
	return waitStep
}
