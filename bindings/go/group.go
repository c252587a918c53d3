package weir

import (
	"context"
	"runtime"
	"time"
)

// GroupMode says how the members of a group share a topic.
type GroupMode uint32

// How the members of a group share a topic.
const (
	Exclusive GroupMode = 1 + iota // one member has it all, in order
	Keyed                          // records of a key are with one member at a time, in order
	Shared                         // each record is with one member at a time
)

// GroupOptions are those of a group, which hold if it is made now, and of the
// member; the zero value is the default of each.
type GroupOptions struct {
	// Member is the name of the member, 1 to 64 bytes; one that comes back
	// under its name is the same. Empty: made of process and time.
	Member string
	// ClaimLease is for how long this member claims; 0: the group's Lease.
	ClaimLease time.Duration
	// Existing makes a group that is not there an error.
	Existing bool
	// Start is the position at which a group that is made now starts; the
	// zero value is the first record.
	Start From
	// Lease is for how long a member may be silent (30 s).
	Lease time.Duration
	// Attempts is how often a record is handed out before it goes to the topic
	// DeadLetters; 0: without end.
	Attempts    uint32
	DeadLetters string
	// Pending is how many records members may have together (100,000).
	Pending uint32
}

// Group is a member of a group that works off the records of a topic. It is used
// by one goroutine at a time.
type Group struct {
	handle  groupHandle
	cleanup runtime.Cleanup
}

// Group joins the group of a name, and makes it if it is not there. It is to be
// closed.
func (t Topic) Group(ctx context.Context, name string, mode GroupMode, options *GroupOptions) (*Group, error) {
	if options == nil {
		options = &GroupOptions{}
	}
	handle, err := open(ctx, t.store, func(store storeHandle) (groupHandle, error) {
		return nativeGroupOpen(store, t.name, name, mode, options)
	}, nativeGroupFree)
	if err != nil {
		return nil, err
	}
	group := &Group{handle: handle}
	group.cleanup = runtime.AddCleanup(group, nativeGroupFree, handle)
	return group, nil
}

// Close forgets the member. What it claimed stays with it until its leases end.
func (g *Group) Close() {
	if g.handle == nil {
		return
	}
	g.cleanup.Stop()
	nativeGroupFree(g.handle)
	g.handle = nil
}

// Claim takes up to limit records for this member and waits for the first one
// until the context ends, which is then the error. The page is the receiver's,
// to be released; its records are to be settled, also after that.
func (g *Group) Claim(ctx context.Context, limit int) (*Page, error) {
	for {
		page, err := g.claim(ctx, limit, readStep)
		if page != nil || err != nil {
			return page, err
		}
	}
}

// TryClaim takes up to limit records that are there now; nil when there is none.
func (g *Group) TryClaim(ctx context.Context, limit int) (*Page, error) {
	return g.claim(ctx, limit, 0)
}

func (g *Group) claim(ctx context.Context, limit int, wait time.Duration) (*Page, error) {
	page, err := in(ctx, g, func(group groupHandle) (pageHandle, error) {
		return nativeGroupClaim(group, limit, wait)
	})
	if err != nil || page == nil {
		return nil, err
	}
	return adopt(page), nil
}

// in makes a call of a member for as long as the context lasts.
func in[T any](ctx context.Context, g *Group, work func(groupHandle) (T, error)) (T, error) {
	defer runtime.KeepAlive(g)
	handle := g.handle
	return during(ctx, func() { nativeGroupCancel(handle) }, func() (T, error) { return work(handle) })
}

// Claimed names a record that a member has; it may be kept and sent.
type Claimed struct {
	Offset, Claim uint64
}

// Claimed names the record of a claim.
func (r Record) Claimed() Claimed {
	record := r.stored()
	return kept(r.page, Claimed{Offset: record.offset, Claim: record.claim})
}

// claimsOf names all records of a page.
func claimsOf(page *Page) []Claimed {
	claims := make([]Claimed, page.Len())
	for at := range claims {
		claims[at] = Record{page.At(at)}.Claimed()
	}
	return claims
}

// Verbs of settling.
const (
	settleDone = 1 + iota
	settleDoneSoon
	settleFail
	settleExtend
)

// Done says that all records of a page are done, for good when it returns. In an
// exclusive group everything up to the last of them is done. It gives the
// offsets of those that are with somebody else by now.
func (g *Group) Done(ctx context.Context, page *Page) ([]uint64, error) {
	return g.settle(ctx, claimsOf(page), settleDone, 0, "")
}

// DoneWith says the same of some records.
func (g *Group) DoneWith(ctx context.Context, claims ...Claimed) ([]uint64, error) {
	return g.settle(ctx, claims, settleDone, 0, "")
}

// DoneSoon says the same in an exclusive group without waiting: it is written
// with what follows. A crash can bring the records again.
func (g *Group) DoneSoon(ctx context.Context, claims ...Claimed) error {
	_, err := g.settle(ctx, claims, settleDoneSoon, 0, "")
	return err
}

// Fail gives records back: they may be claimed again after a delay. The reason is
// for people.
func (g *Group) Fail(ctx context.Context, delay time.Duration, reason string, claims ...Claimed) ([]uint64, error) {
	return g.settle(ctx, claims, settleFail, delay, reason)
}

// Extend says that the member is still at these records: their leases end so
// long from now.
func (g *Group) Extend(ctx context.Context, lease time.Duration, claims ...Claimed) ([]uint64, error) {
	return g.settle(ctx, claims, settleExtend, lease, "")
}

func (g *Group) settle(ctx context.Context, claims []Claimed, verb uint32, span time.Duration, reason string) ([]uint64, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	return in(ctx, g, func(group groupHandle) ([]uint64, error) {
		return nativeGroupSettle(group, claims, verb, span, reason)
	})
}

// TakeOver makes this member the owner of an exclusive group, in place of the present owner.
func (g *Group) TakeOver(ctx context.Context) error { return g.step(ctx, 1, From{}) }

// Leave gives up an exclusive group, so that another member need not wait.
func (g *Group) Leave(ctx context.Context) error { return g.step(ctx, 2, From{}) }

// Reset moves the group to a position: everything before it counts as done, and
// nothing after it. Members lose the records that they have claimed.
func (g *Group) Reset(ctx context.Context, to From) error { return g.step(ctx, 3, to) }

// Delete ends the group for all its members.
func (g *Group) Delete(ctx context.Context) error { return g.step(ctx, 4, From{}) }

func (g *Group) step(ctx context.Context, verb uint32, to From) error {
	_, err := in(ctx, g, func(group groupHandle) (struct{}, error) {
		return struct{}{}, nativeGroupStep(group, verb, to)
	})
	return err
}

// GroupInfo is what a group is now.
type GroupInfo struct {
	Mode GroupMode
	// Cursor is the offset up to which everything is done, Frontier the one
	// after which everything is new, Last that of the topic's newest record.
	Cursor, Frontier, Last uint64
	// Lag is the number of offsets that are not done. Leased are those that
	// members have, Waiting those that were given back.
	Lag, Leased, Waiting uint64
	// Redeliveries counts records that were handed out again, Deaths those that
	// were given up, Letters those whose dead letter is not written yet.
	Redeliveries, Deaths, Letters uint64
}

// Info is what the group is now.
func (g *Group) Info(ctx context.Context) (GroupInfo, error) {
	return in(ctx, g, nativeGroupDescribe)
}
