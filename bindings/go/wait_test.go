package weir_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	weir "weir.example/bindings/go"
)

// relay is a proxy between clients and a server. It can hold back the replies of the
// server.
type relay struct {
	address   string
	requested chan struct{} // a client sent a request while replies are held back
	gate      sync.RWMutex  // locked while replies are held back
	held      chan struct{} // has a value while replies are held back
}

// newRelay returns a relay to a new server.
func newRelay(t testing.TB) *relay {
	t.Helper()
	server := strings.TrimPrefix(serve(t), "weir://")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	r := &relay{
		address:   "weir://" + listener.Addr().String(),
		requested: make(chan struct{}, 1),
		held:      make(chan struct{}, 1),
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go r.pass(client, server)
		}
	}()
	return r
}

func (r *relay) pass(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, reader(func(into []byte) (int, error) {
			n, err := server.Read(into)
			r.gate.RLock()
			defer r.gate.RUnlock()
			return n, err
		}))
		_ = client.Close()
	}()
	_, _ = io.Copy(server, reader(func(into []byte) (int, error) {
		n, err := client.Read(into)
		if len(r.held) > 0 {
			select {
			case r.requested <- struct{}{}:
			default:
			}
		}
		return n, err
	}))
}

type reader func([]byte) (int, error)

func (r reader) Read(into []byte) (int, error) { return r(into) }

// hold holds back the replies of the server until resume.
func (r *relay) hold() {
	r.gate.Lock()
	select {
	case <-r.requested:
	default:
	}
	r.held <- struct{}{}
}

func (r *relay) resume() {
	<-r.held
	r.gate.Unlock()
}

// waiting is a call that waits for a server, and its name.
type waiting struct {
	name string
	call func(context.Context) error
	// code is the error of the call when it is cancelled. After a deadline, the error
	// is ErrDeadline or this code.
	code weir.Code
}

// waitingCalls returns calls of every kind that can wait.
func waitingCalls(t *testing.T, store *weir.Store) []waiting {
	t.Helper()
	ctx := context.Background()
	topic := topic(t, store, "t")
	first, err := topic.Put(ctx, []byte("k"), []byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	session, err := store.Session(ctx, [16]byte{7})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	group, err := topic.Group(ctx, "g", weir.Shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(group.Close)
	page, err := group.Claim(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	claimed := page.Records()
	var claims []weir.Claimed
	for record := range claimed {
		claims = append(claims, record.Claimed())
	}
	page.Release()
	none := func(_ any, err error) error { return err }
	return []waiting{
		{"Store.Sync", store.Sync, weir.ErrCancelled},
		{"Store.Topics", func(ctx context.Context) error { return none(store.Topics(ctx)) }, weir.ErrCancelled},
		{"Topic.Ensure", func(ctx context.Context) error { return none(topic.Ensure(ctx, nil)) }, weir.ErrCancelled},
		{"Topic.Info", func(ctx context.Context) error { _, _, err := topic.Info(ctx); return err }, weir.ErrCancelled},
		{"Topic.Get", func(ctx context.Context) error { _, _, err := topic.Get(ctx, []byte("k")); return err }, weir.ErrCancelled},
		{"Topic.At", func(ctx context.Context) error { _, _, err := topic.At(ctx, first.Offset); return err }, weir.ErrCancelled},
		{"Topic.ScanPage", func(ctx context.Context) error {
			return none(topic.ScanPage(ctx, weir.ScanOptions{}))
		}, weir.ErrCancelled},
		{"Topic.Put", func(ctx context.Context) error {
			return none(topic.Put(ctx, []byte("k"), []byte("w")))
		}, weir.ErrIndeterminate},
		{"Topic.Reader", func(ctx context.Context) error { return none(topic.Reader(ctx, weir.FromStart())) }, weir.ErrCancelled},
		{"Topic.Listener", func(ctx context.Context) error { return none(topic.Listener(ctx, weir.Last(1))) }, weir.ErrCancelled},
		{"Topic.Records", func(ctx context.Context) error {
			for _, err := range topic.Records(ctx, weir.FromStart()) {
				return err
			}
			return nil
		}, weir.ErrCancelled},
		{"Topic.Follow", func(ctx context.Context) error {
			for _, err := range topic.Follow(ctx, weir.FromStart()) {
				return err
			}
			return nil
		}, weir.ErrCancelled},
		{"Topic.Group", func(ctx context.Context) error {
			return none(topic.Group(ctx, "g", weir.Shared, nil))
		}, weir.ErrIndeterminate},
		{"Group.Claim", func(ctx context.Context) error { return none(group.Claim(ctx, 1)) }, weir.ErrCancelled},
		{"Group.Info", func(ctx context.Context) error { return none(group.Info(ctx)) }, weir.ErrCancelled},
		{"Group.Extend", func(ctx context.Context) error {
			return none(group.Extend(ctx, time.Minute, claims...))
		}, weir.ErrIndeterminate},
		{"Session.Submit", func(ctx context.Context) error {
			put := weir.Put([]byte("s"), []byte("v"))
			put.Topic = "t"
			return none(session.Submit(ctx, put))
		}, weir.ErrIndeterminate},
		{"Session.Resume", func(ctx context.Context) error { return session.Resume(ctx, 1) }, weir.ErrCancelled},
		{"Store.Query", func(ctx context.Context) error {
			return none(store.Query(ctx, weir.TopicsOptions{Topics: []string{"t"}}, weir.QueryOptions{}))
		}, weir.ErrCancelled},
	}
}

// stalledStore returns a store behind a relay; the relay forwards again at the end of the test.
func stalledStore(t *testing.T) (*weir.Store, *relay) {
	t.Helper()
	relay := newRelay(t)
	store, err := weir.Connect(context.Background(), relay.address, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store, relay
}

// checkUsable fails the test if a store is no longer usable.
func checkUsable(t *testing.T, store *weir.Store) {
	t.Helper()
	record, ok, err := store.Topic("t").Get(context.Background(), []byte("k"))
	if err != nil || !ok || len(record.Value()) != 1 {
		t.Fatal(ok, err)
	}
}

func TestADeadlineReachesEveryCallThatWaitsForAServer(t *testing.T) {
	store, relay := stalledStore(t)
	calls := waitingCalls(t, store)
	relay.hold()
	for _, one := range calls {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		err := one.call(ctx)
		cancel()
		if !errors.Is(err, weir.ErrDeadline) && (one.code == weir.ErrCancelled || !errors.Is(err, one.code)) {
			t.Errorf("%s: %v", one.name, err)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: its cause is %v", one.name, errors.Unwrap(err))
		}
	}
	relay.resume()
	checkUsable(t, store)
}

func TestADeadlineReachesConnect(t *testing.T) {
	relay := newRelay(t)
	relay.hold()
	defer relay.resume()
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		_, err := weir.Connect(ctx, relay.address, nil)
		cancel()
		if !errors.Is(err, weir.ErrDeadline) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
}

func TestACancelReachesEveryCallThatWaitsForAServer(t *testing.T) {
	store, relay := stalledStore(t)
	calls := waitingCalls(t, store)
	isHeld := false
	for _, one := range calls {
		if !isHeld {
			relay.hold()
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		reason := errors.New("enough")
		ended := make(chan error)
		go func() { ended <- one.call(ctx) }()
		if one.name != "Session.Resume" {
			// This call sends no request: it waits for earlier answers.
			<-relay.requested
		}
		cancel(reason)
		if err := <-ended; !errors.Is(err, one.code) || !errors.Is(err, reason) {
			t.Errorf("%s: %v", one.name, err)
		}
		// The next call waits for the write of this one.
		if isHeld = one.name == "Session.Submit"; isHeld {
			continue
		}
		relay.resume()
		checkUsable(t, store)
	}
}

func TestHandlesOutliveTheContextThatOpenedThem(t *testing.T) {
	store, _ := stalledStore(t)
	topic := topic(t, store, "t")
	if _, err := topic.Put(context.Background(), []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	reader, err := topic.Reader(ctx, weir.FromStart())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	group, err := topic.Group(ctx, "g", weir.Exclusive, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	session, err := store.Session(ctx, [16]byte{7})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	query, err := store.Query(ctx, weir.TopicsOptions{Topics: []string{"t"}}, weir.QueryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	cancel()
	if _, err := topic.Reader(ctx, weir.FromStart()); !errors.Is(err, weir.ErrCancelled) {
		t.Error(err)
	}
	ctx = context.Background()
	page, err := reader.TryNext(ctx)
	if err != nil || page == nil {
		t.Fatal(page, err)
	}
	page.Release()
	if page, err = group.TryClaim(ctx, 1); err != nil || page == nil {
		t.Fatal(page, err)
	}
	if _, err := group.Done(ctx, page); err != nil {
		t.Fatal(err)
	}
	page.Release()
	if nonce, err := session.NextNonce(ctx); nonce != 1 || err != nil {
		t.Fatal(nonce, err)
	}
	for _, err := range query.Items(ctx) {
		if err != nil {
			t.Fatal(err)
		}
	}
}
