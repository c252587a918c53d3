package weir_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	weir "weir.example/bindings/go"
)

// uses opens an object of a store, and returns a function that uses and closes the object.
type uses func(*weir.Store) (func() error, error)

func TestAnObjectKeepsItsStoreOpen(t *testing.T) {
	ctx := context.Background()
	for name, open := range map[string]uses{
		"Reader": func(store *weir.Store) (func() error, error) {
			reader, err := store.Topic("t").Reader(ctx, weir.FromStart())
			return func() error {
				defer reader.Close()
				page, err := reader.TryNext(ctx)
				page.Release()
				return err
			}, err
		},
		"Group": func(store *weir.Store) (func() error, error) {
			group, err := store.Topic("t").Group(ctx, "g", weir.Shared, nil)
			return func() error {
				defer group.Close()
				_, err := group.Info(ctx)
				return err
			}, err
		},
		"Session": func(store *weir.Store) (func() error, error) {
			session, err := store.Session(ctx, [16]byte{1})
			return func() error {
				defer session.Close()
				write := weir.Put(nil, []byte("x"))
				write.Topic = "t"
				_, err := session.Submit(ctx, write)
				return err
			}, err
		},
		"Query": func(store *weir.Store) (func() error, error) {
			query, err := store.Query(ctx, weir.TopicsOptions{Topics: []string{"t"}}, weir.QueryOptions{})
			return func() error {
				defer query.Close()
				for _, err := range query.Items(ctx) {
					if err != nil {
						return err
					}
				}
				return nil
			}, err
		},
	} {
		use, err := openUnreferenced(t.TempDir(), open)
		if err != nil {
			t.Fatal(name, err)
		}
		collectGarbage()
		if err := use(); err != nil {
			t.Error(name, err)
		}
		// The collector closes the store before its directory is removed.
		collectGarbage()
	}
}

// openUnreferenced opens an object of a new store. Only the object references the store.
func openUnreferenced(directory string, open uses) (func() error, error) {
	store, err := weir.Open(directory, &weir.OpenOptions{Durability: weir.DurabilityMemory})
	if err != nil {
		return nil, err
	}
	if _, err := store.Topic("t").Ensure(context.Background(), nil); err != nil {
		return nil, err
	}
	return open(store)
}

func TestALargeRecordNeedsNoRelease(t *testing.T) {
	ctx, topic := context.Background(), topic(t, openLocal(t), "t")
	large := bytes.Repeat([]byte("x"), 100_000)
	if _, err := topic.Put(ctx, []byte("k"), large); err != nil {
		t.Fatal(err)
	}
	collectGarbage()
	open := weir.OpenHandles()
	record, ok, err := topic.Get(ctx, []byte("k"))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if now := weir.OpenHandles(); now > open {
		t.Fatalf("%d handles are open, not %d", now, open)
	}
	value := record.Value()
	collectGarbage()
	if !bytes.Equal(value, large) {
		t.Fatal("a view of a record ended before the program dropped it")
	}
}

func TestAnEmptyPartOfAnArrayIsEmpty(t *testing.T) {
	ctx, topic := context.Background(), topic(t, openLocal(t), "t")
	array, text := make([]byte, 16), strings.Repeat("x", 16)
	empty := array[:0]
	for name, write := range map[string]func() (weir.Verdict, error){
		"Append": func() (weir.Verdict, error) { return topic.Append(ctx, empty) },
		"Put":    func() (weir.Verdict, error) { return topic.Put(ctx, []byte("k"), empty) },
		"Transaction": func() (weir.Verdict, error) {
			return topic.Transaction(ctx, []weir.Change{{Key: []byte("k"), Value: empty, Meta: empty}})
		},
	} {
		if verdict, err := write(); err != nil || !verdict.Valid() {
			t.Error(name, verdict, err)
		}
	}
	query, err := weir.NewQuery(weir.QueryOptions{Where: text[:0], Token: empty})
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	if _, err := query.Source(weir.SourceOptions{Name: text[:0], First: empty}); err != nil {
		t.Fatal(err)
	}
}

func TestTheErrorOfACancelledCallHasTheContextErrorAndItsCause(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("enough")
	cancel(reason)
	_, err := openLocal(t).Topics(ctx)
	for _, want := range []error{weir.ErrCancelled, context.Canceled, reason} {
		if !errors.Is(err, want) {
			t.Errorf("%v is not %v", err, want)
		}
	}
}

func TestTheCollectorReturnsThePagesOfADroppedQuery(t *testing.T) {
	done := make(chan struct{})
	err := func() error {
		query, err := weir.NewQuery(weir.QueryOptions{})
		if err != nil {
			return err
		}
		source, err := query.Source(weir.SourceOptions{Shape: "lines"})
		if err != nil {
			return err
		}
		return source.EnqueuePinned([]byte("1\n"), nil, func([]byte) { close(done) })
	}()
	if err != nil {
		t.Fatal(err)
	}
	for {
		runtime.GC()
		select {
		case <-done:
			return
		default:
			runtime.Gosched()
		}
	}
}

func TestAnIntervalHasADefault(t *testing.T) {
	store, err := weir.Open(t.TempDir(), &weir.OpenOptions{Durability: weir.DurabilityInterval})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestALimitAbove32BitsIsNoSmallerLimit(t *testing.T) {
	query, err := weir.NewQuery(weir.QueryOptions{Budgets: weir.Budgets{Sources: 1<<32 + 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	for range 2 {
		if _, err := query.Source(weir.SourceOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAQueryThatFollowsHasNoEnd(t *testing.T) {
	ctx, store := context.Background(), openLocal(t)
	topic(t, store, "t")
	topics := weir.TopicsOptions{Topics: []string{"t"}, Follow: true, AsOf: 1}
	if _, err := store.Query(ctx, topics, weir.QueryOptions{}); !errors.Is(err, weir.ErrBadOption) {
		t.Fatal(err)
	}
}
