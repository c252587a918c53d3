package weir_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	weir "weir.example/bindings/go"
)

func TestGoroutinesShareAStore(t *testing.T) {
	ctx := context.Background()
	topic := topic(t, openLocal(t), "shared")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				if _, err := topic.Put(ctx, []byte("key"), []byte("value")); err != nil {
					t.Error(err)
				}
				record, ok, err := topic.Get(ctx, []byte("key"))
				if err != nil || !ok || string(record.Value()) != "value" {
					t.Error(ok, err)
				}
			}
			for record, err := range topic.Records(ctx, weir.Last(50)) {
				if err != nil || string(record.Key()) != "key" {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestAConcurrentCallOfAQueryIsRejected(t *testing.T) {
	query, source := newLineQuery(t, weir.QueryOptions{})
	okOrBusy := func(err error) bool { return err == nil || errors.Is(err, weir.ErrHandleBusy) }
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				if err := source.Enqueue([]byte("1\n2\n"), []byte("more")); !okOrBusy(err) {
					t.Error(err)
				}
				step, page, err := query.Next(weir.Bounds{})
				if !okOrBusy(err) {
					t.Error(err)
				}
				if err == nil && step == weir.Ready {
					if got := string(page.At(0).Bytes()); got != "1" && got != "2" {
						t.Error(got)
					}
					page.Release()
				}
			}
		})
	}
	all.Wait()
}

func TestAQueryIsCancelledWhileItIsClosed(t *testing.T) {
	for range 100 {
		query, err := weir.NewQuery(weir.QueryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(query.Cancel)
		all.Go(query.Close)
		all.Wait()
		if _, _, err := query.Next(weir.Bounds{}); !errors.Is(err, weir.ErrBadHandle) {
			t.Fatal(err)
		}
	}
}

// closing is a context that closes a store when a call of the store reads its channel.
type closing struct {
	context.Context
	store *weir.Store
}

func (c closing) Done() <-chan struct{} {
	_ = c.store.Close()
	return c.Context.Done()
}

func TestACallOfAStoreThatIsClosedMeanwhileIsErrClosed(t *testing.T) {
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, call := range map[string]func(context.Context, *weir.Store) error{
		"Put": func(ctx context.Context, store *weir.Store) error {
			_, err := store.Topic("t").Put(ctx, nil, []byte("v"))
			return err
		},
		"Session": func(ctx context.Context, store *weir.Store) error {
			_, err := store.Session(ctx, [16]byte{1})
			return err
		},
	} {
		for _, base := range []context.Context{context.Background(), cancellable} {
			store := openLocal(t)
			if err := call(closing{base, store}, store); !errors.Is(err, weir.ErrClosed) {
				t.Error(name, err)
			}
		}
	}
}
