package weir

import (
	"cmp"
	"context"
	"runtime"
	"time"
)

// GroupMode is how the members of a group share a topic.
type GroupMode uint32

// The modes of a group.
const (
	Exclusive GroupMode = 1 + iota // one member gets all records, in order
	Keyed                          // one member at a time gets the records of a key, in order
	Shared                         // one member at a time gets a record
)

// GroupOptions are the options of a group and of this member. The options of the
// group apply only if this call creates it. The zero value is the default of each.
type GroupOptions struct {
	// Member is the name of the member, 1 to 64 bytes. A member that rejoins under
	// its name is the same member. Empty: a name from the process and the time.
	Member string
	// ClaimLease is the lease of the claims of this member; 0: the group's Lease.
	ClaimLease time.Duration
	// Existing makes the call fail if the group does not exist.
	Existing bool
	// Start is the position at which a new group starts; the zero value is the
	// first record.
	Start From
	// Lease is how long a member may be silent before its claims end (30 s).
	Lease time.Duration
	// Attempts is how often a record is delivered before it is moved to the topic
	// DeadLetters; 0: no limit.
	Attempts    uint32
	DeadLetters string
	// Pending is how many records all members together may have claimed (100,000).
	Pending uint32
}

// Group is a member of a group that processes the records of a topic. One
// goroutine at a time may use it.
type Group struct {
	handle  groupHandle // never changes: the library rejects it after Close
	closed  bool
	store   *Store // keeps the store open
	cleanup runtime.Cleanup
}

// Group joins the group with the given name, and creates it if it does not exist.
// The caller must close it.
func (t Topic) Group(ctx context.Context, name string, mode GroupMode, options *GroupOptions) (*Group, error) {
	if options == nil {
		options = &GroupOptions{}
	}
	if err := cmp.Or(negative("ClaimLease", options.ClaimLease), negative("Lease", options.Lease)); err != nil {
		return nil, err
	}
	handle, err := open(ctx, t.store, func(store storeHandle) (groupHandle, error) {
		return nativeGroupOpen(store, t.name, name, mode, options)
	}, nativeGroupFree)
	if err != nil {
		return nil, err
	}
	group := &Group{handle: handle, store: t.store}
	group.cleanup = runtime.AddCleanup(group, nativeGroupFree, handle)
	return group, nil
}

// Close closes the member. Its claims remain until their leases end.
func (g *Group) Close() {
	if g.closed {
		return
	}
	g.closed = true
	g.cleanup.Stop()
	nativeGroupFree(g.handle)
}

// Claim claims up to limit records for this member. It blocks until there is at
// least one, or returns an error when the context ends. The caller must release
// the page, and settle its records: with [Group.Done] before the release, or with
// the claims of [Record.Claimed] at any time.
func (g *Group) Claim(ctx context.Context, limit int) (*Page, error) {
	for {
		page, err := g.claim(ctx, limit, readStep)
		if page != nil || err != nil {
			return page, err
		}
	}
}

// TryClaim claims up to limit records without waiting; nil if there is none.
func (g *Group) TryClaim(ctx context.Context, limit int) (*Page, error) {
	return g.claim(ctx, limit, 0)
}

func (g *Group) claim(ctx context.Context, limit int, wait time.Duration) (*Page, error) {
	if err := negative("limit", limit); err != nil {
		return nil, err
	}
	page, err := callMember(ctx, g, func(group groupHandle) (pageHandle, error) {
		return nativeGroupClaim(group, limit, wait)
	})
	if err != nil || page == nil {
		return nil, err
	}
	return newPage(page), nil
}

// callMember runs a call of a member until the context ends.
func callMember[T any](ctx context.Context, g *Group, work func(groupHandle) (T, error)) (T, error) {
	defer runtime.KeepAlive(g)
	handle := g.handle
	return untilContextEnds(ctx, func() { nativeGroupCancel(handle) }, func() (T, error) { return work(handle) })
}

// Claimed identifies a claimed record; it may be stored and sent.
type Claimed struct {
	Offset, Claim uint64
}

// Claimed identifies the claim of the record.
func (r Record) Claimed() Claimed {
	record := r.stored()
	return keepAlive(r.page, Claimed{Offset: record.offset, Claim: record.claim})
}

// claimsOf returns the claims of all records of a page.
func claimsOf(page *Page) []Claimed {
	claims := make([]Claimed, page.Len())
	for at := range claims {
		claims[at] = Record{page.At(at)}.Claimed()
	}
	return claims
}

// The operations that settle a claim.
const (
	settleDone = 1 + iota
	settleDoneSoon
	settleFail
	settleExtend
)

// Done acknowledges all records of a page; the acknowledgement is durable when
// Done returns. In an exclusive group, this acknowledges every record up to the
// last one. It returns the offsets of records that another member has claimed by
// now. Fails with [ErrBadHandle] if the page was released: use [Group.DoneWith].
func (g *Group) Done(ctx context.Context, page *Page) ([]uint64, error) {
	if page != nil && page.handle == nil {
		return nil, failure(ErrBadHandle, "the page was released, so its claims are not known")
	}
	return g.settle(ctx, claimsOf(page), settleDone, 0, "")
}

// DoneWith is Done for the given claims.
func (g *Group) DoneWith(ctx context.Context, claims ...Claimed) ([]uint64, error) {
	return g.settle(ctx, claims, settleDone, 0, "")
}

// DoneSoon acknowledges claims of an exclusive group without waiting: the
// acknowledgement is written with the next write. After a crash, the records can
// be delivered again.
func (g *Group) DoneSoon(ctx context.Context, claims ...Claimed) error {
	_, err := g.settle(ctx, claims, settleDoneSoon, 0, "")
	return err
}

// Fail returns claims to the group, which can deliver the records again after the
// delay. The reason is a text for people.
func (g *Group) Fail(ctx context.Context, delay time.Duration, reason string, claims ...Claimed) ([]uint64, error) {
	if err := negative("delay", delay); err != nil {
		return nil, err
	}
	return g.settle(ctx, claims, settleFail, delay, reason)
}

// Extend extends the leases of the claims of this member: each now ends after
// lease.
func (g *Group) Extend(ctx context.Context, lease time.Duration, claims ...Claimed) ([]uint64, error) {
	if err := negative("lease", lease); err != nil {
		return nil, err
	}
	return g.settle(ctx, claims, settleExtend, lease, "")
}

func (g *Group) settle(ctx context.Context, claims []Claimed, verb uint32, span time.Duration, reason string) ([]uint64, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	return callMember(ctx, g, func(group groupHandle) ([]uint64, error) {
		return nativeGroupSettle(group, claims, verb, span, reason)
	})
}

// TakeOver makes this member the owner of an exclusive group and replaces the present owner.
func (g *Group) TakeOver(ctx context.Context) error { return g.step(ctx, 1, From{}) }

// Leave gives up the ownership of an exclusive group, so that another member need not wait.
func (g *Group) Leave(ctx context.Context) error { return g.step(ctx, 2, From{}) }

// Reset moves the group to a position: all earlier records count as acknowledged, all
// later ones as not acknowledged. Members lose the records that they have claimed.
func (g *Group) Reset(ctx context.Context, to From) error { return g.step(ctx, 3, to) }

// Delete deletes the group for all its members.
func (g *Group) Delete(ctx context.Context) error { return g.step(ctx, 4, From{}) }

func (g *Group) step(ctx context.Context, verb uint32, to From) error {
	_, err := callMember(ctx, g, func(group groupHandle) (struct{}, error) {
		return struct{}{}, nativeGroupStep(group, verb, to)
	})
	return err
}

// GroupInfo is the state of a group.
type GroupInfo struct {
	Mode GroupMode
	// All records up to Cursor are acknowledged. No record after Frontier was delivered.
	// Last is the offset of the newest record of the topic.
	Cursor, Frontier, Last uint64
	// Lag is the number of offsets that are not acknowledged. Leased counts the records
	// that members have claimed. Waiting counts the delivered records that are neither
	// acknowledged nor claimed.
	Lag, Leased, Waiting uint64
	// Redeliveries counts the records that were delivered again. DeadLettered counts
	// the records that became dead letters. UnwrittenDeadLetters counts the dead letters
	// that are not written yet.
	Redeliveries, DeadLettered, UnwrittenDeadLetters uint64
}

// Info returns the state of the group.
func (g *Group) Info(ctx context.Context) (GroupInfo, error) {
	return callMember(ctx, g, nativeGroupDescribe)
}
