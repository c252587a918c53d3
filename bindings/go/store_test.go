package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	weir "weir.example/bindings/go"
)

// openLocal opens a new store with durability level memory.
func openLocal(t testing.TB) *weir.Store {
	t.Helper()
	store, err := weir.Open(t.TempDir(), &weir.OpenOptions{Durability: weir.DurabilityMemory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// openRemote connects to a new server.
func openRemote(t testing.TB) *weir.Store {
	t.Helper()
	store, err := weir.Connect(context.Background(), serve(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// serve starts a server with a new store and returns its address. WEIR_COMMAND names
// the command.
func serve(t testing.TB) string {
	t.Helper()
	command := os.Getenv("WEIR_COMMAND")
	if command == "" {
		t.Skip("WEIR_COMMAND does not name the command `weir`")
	}
	dir := t.TempDir()
	server := exec.Command(command, "serve", "--at", filepath.Join(dir, "store"), "--http", "off",
		"--native", "127.0.0.1:0", "--durability", "memory")
	server.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir)
	stderr, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	address := make(chan string, 1)
	go func() {
		buffer, text := make([]byte, 4096), ""
		for {
			n, err := stderr.Read(buffer)
			if err != nil {
				return
			}
			text += string(buffer[:n])
			if _, after, found := strings.Cut(text, "native at "); found && strings.Contains(after, "\n") {
				address <- strings.Fields(after)[0]
				text = ""
			}
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var found string
	select {
	case found = <-address:
	case <-ctx.Done():
		t.Fatal("the server does not print its address")
	}
	return found
}

// localAndRemote runs a test with a directory and with a server.
func localAndRemote(t *testing.T, test func(t *testing.T, store *weir.Store)) {
	t.Run("local", func(t *testing.T) { test(t, openLocal(t)) })
	t.Run("remote", func(t *testing.T) { test(t, openRemote(t)) })
}

// topic creates a topic.
func topic(t testing.TB, store *weir.Store, name string) weir.Topic {
	t.Helper()
	topic := store.Topic(name)
	if created, err := topic.Ensure(context.Background(), nil); err != nil || !created {
		t.Fatal(created, err)
	}
	return topic
}

func TestWritesConditionsAndReads(t *testing.T) {
	localAndRemote(t, func(t *testing.T, store *weir.Store) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		orders := topic(t, store, "orders")
		first, err := orders.Put(ctx, []byte("k"), []byte("1"))
		if err != nil || !first.Valid() || first.Err() != nil || first.Offset != 2 {
			t.Fatal(first, err)
		}
		second, err := orders.PutIf(ctx, []byte("k"), []byte("2"), weir.KeyAbsent())
		if err != nil || second.Valid() || !errors.Is(second.Err(), weir.ErrConflict) ||
			second.Detail.Kind != weir.DetailActual || second.Detail.Number != 2 {
			t.Fatal(second, err)
		}
		many, err := orders.Transaction(ctx, []weir.Change{
			{Key: []byte("a"), Value: []byte("3")},
			{Key: []byte("k"), Delete: true},
		}, weir.KeyPresent().Of([]byte("k")))
		if err != nil || many.Records != 2 {
			t.Fatal(many, err)
		}
		record, ok, err := orders.Get(ctx, []byte("a"))
		if err != nil || !ok || string(record.Value()) != "3" || record.Kind() != weir.RecordPut {
			t.Fatal(ok, err)
		}
		if _, ok, err := orders.Get(ctx, []byte("k")); ok || err != nil {
			t.Fatal("the key exists", err)
		}
		if record, ok, err := orders.At(ctx, 2); !ok || err != nil || string(record.Key()) != "k" {
			t.Fatal(ok, err)
		}
		info, ok, err := orders.Info(ctx)
		if err != nil || !ok || !info.Live || info.Last != 4 || info.Keys != 1 {
			t.Fatal(info, ok, err)
		}
		if _, ok, err := store.Topic("none").Info(ctx); ok || err != nil {
			t.Fatal(ok, err)
		}
		names, err := store.Topics(ctx)
		if err != nil || strings.Join(names, " ") != "orders" {
			t.Fatal(names, err)
		}
		var kinds []string
		for record, err := range orders.Records(ctx, weir.FromStart()) {
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, fmt.Sprint(record.Offset(), ":", record.Kind(), string(record.Key())))
		}
		if got := strings.Join(kinds, " "); got != "1:CREATE 2:PUTk 3:PUTa 4:DELETEk" {
			t.Fatal(got)
		}
	})
}

func TestARecordThatIsACopyHasItsValuesAndPrintsThem(t *testing.T) {
	ctx, topic := context.Background(), topic(t, openLocal(t), "t")
	verdict, err := topic.Put(ctx, []byte("k"), []byte(`{"n":{"m":12}}`))
	if err != nil || fmt.Sprint(verdict) != "VALID at 2" {
		t.Fatal(verdict, err)
	}
	late, err := topic.PutIf(ctx, []byte("k"), nil, weir.KeyAbsent())
	if err != nil || fmt.Sprint(late) != "INVALID CONFLICT" {
		t.Fatal(late, err)
	}
	record, _, err := topic.Get(ctx, []byte("k"))
	if err != nil || fmt.Sprint(record) != `2 PUT k={"n":{"m":12}}` {
		t.Fatal(record, err)
	}
	for _, copied := range []weir.Record{record, record.Clone()} {
		if value, err := copied.Get("$.n.m"); err != nil || string(value) != "12" {
			t.Fatal(string(value), err)
		}
		if value, err := copied.Get("$.a"); err != nil || value != nil {
			t.Fatal(string(value), err)
		}
		if _, err := copied.Get("$..n"); !errors.Is(err, weir.ErrNotSingular) {
			t.Fatal(err)
		}
	}
	if created, _, err := topic.At(ctx, 1); err != nil || fmt.Sprint(created) != "1 CREATE" {
		t.Fatal(created, err)
	}
	if _, err := topic.Put(ctx, []byte{0xff}, []byte(strings.Repeat("é", 51))); err != nil {
		t.Fatal(err)
	}
	long, _, err := topic.At(ctx, 3)
	if want := "3 PUT <1 bytes>=" + strings.Repeat("é", 50) + "…"; err != nil || fmt.Sprint(long) != want {
		t.Fatal(long, err)
	}
	// A deleted key has no value, unlike a key with an empty one.
	for _, change := range []func() (weir.Verdict, error){
		func() (weir.Verdict, error) { return topic.Put(ctx, []byte("k"), nil) },
		func() (weir.Verdict, error) { return topic.Delete(ctx, []byte("k")) },
	} {
		if _, err := change(); err != nil {
			t.Fatal(err)
		}
	}
	var printed []string
	for record, err := range topic.Records(ctx, weir.After(3)) {
		if err != nil {
			t.Fatal(err)
		}
		printed = append(printed, fmt.Sprint(record))
	}
	if got := strings.Join(printed, ", "); got != "4 PUT k=, 5 DELETE k" {
		t.Fatal(got)
	}
	// A record is one line, without control characters.
	if _, err := topic.Put(ctx, []byte("a\n9 PUT b"), []byte("x\x1b[2J\ty")); err != nil {
		t.Fatal(err)
	}
	if line, _, err := topic.At(ctx, 6); err != nil || fmt.Sprint(line) != "6 PUT a 9 PUT b=x\ufffd[2J y" {
		t.Fatal(line, err)
	}
}

func TestKeysAreScannedInPages(t *testing.T) {
	localAndRemote(t, func(t *testing.T, store *weir.Store) {
		ctx := context.Background()
		keys := topic(t, store, "keys")
		var writes []weir.Intention
		for at := range 2500 {
			writes = append(writes, weir.Put(fmt.Appendf(nil, "a%04d", at), fmt.Appendf(nil, "%d", at)))
		}
		writes = append(writes, weir.Put([]byte("b"), []byte("x")))
		verdicts, err := keys.Batch(ctx, writes...)
		if err != nil || len(verdicts) != len(writes) || !verdicts[2500].Valid() {
			t.Fatal(len(verdicts), err)
		}
		count := 0
		for record, err := range keys.Scan(ctx, []byte("a")) {
			if err != nil {
				t.Fatal(err)
			}
			if string(record.Key()) != fmt.Sprintf("a%04d", count) || string(record.Value()) != fmt.Sprint(count) {
				t.Fatalf("%s=%s at %d", record.Key(), record.Value(), count)
			}
			count++
		}
		if count != 2500 {
			t.Fatal(count)
		}
	})
}

func TestAListOfIntentionsServesSeveralTopics(t *testing.T) {
	ctx, store := context.Background(), openLocal(t)
	list := []weir.Intention{weir.Put([]byte("k"), []byte("v"))}
	for _, name := range []string{"a", "b"} {
		if _, err := topic(t, store, name).Batch(ctx, list...); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := store.Topic(name).Get(ctx, []byte("k")); !ok || err != nil {
			t.Fatal(name, ok, err)
		}
	}
	if list[0].Topic != "" {
		t.Fatal("the list of the caller names the topic", list[0].Topic)
	}
}

func TestAListenerReceivesNewRecordsUntilItsContextEnds(t *testing.T) {
	localAndRemote(t, func(t *testing.T, store *weir.Store) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		news := store.Topic("news")
		received, ended := make(chan string), make(chan error, 1)
		go func() {
			for record, err := range news.Follow(ctx, weir.FromStart()) {
				if err != nil {
					ended <- err
					return
				}
				received <- string(record.Clone().Value())
			}
			ended <- nil
		}()
		if _, err := news.Ensure(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := news.Append(ctx, []byte("one")); err != nil {
			t.Fatal(err)
		}
		if got := <-received + <-received; got != "one" {
			t.Fatal(got)
		}
		cancel()
		if err := <-ended; !errors.Is(err, weir.ErrCancelled) || !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

func TestAGroupProcessesATopic(t *testing.T) {
	localAndRemote(t, func(t *testing.T, store *weir.Store) {
		ctx := context.Background()
		jobs := topic(t, store, "jobs")
		for at := range 3 {
			if _, err := jobs.Append(ctx, fmt.Appendf(nil, "%d", at)); err != nil {
				t.Fatal(err)
			}
		}
		group, err := jobs.Group(ctx, "workers", weir.Shared, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer group.Close()
		page, err := group.Claim(ctx, 10)
		if err != nil || page.Len() != 3 {
			t.Fatal(page, err)
		}
		var claims []weir.Claimed
		for record := range page.Records() {
			claims = append(claims, record.Claimed())
		}
		page.Release()
		if lost, err := group.DoneWith(ctx, claims[0], claims[2]); err != nil || len(lost) != 0 {
			t.Fatal(lost, err)
		}
		if lost, err := group.Fail(ctx, 0, "later", claims[1]); err != nil || len(lost) != 0 {
			t.Fatal(lost, err)
		}
		again, err := group.Claim(ctx, 10)
		if err != nil || again.Len() != 1 {
			t.Fatal(err)
		}
		record := weir.Record{Item: again.At(0)}
		if string(record.Value()) != "1" || record.Attempts() != 2 {
			t.Fatal(string(record.Value()), record.Attempts())
		}
		if _, err := group.Done(ctx, again); err != nil {
			t.Fatal(err)
		}
		again.Release()
		if info, err := group.Info(ctx); err != nil || info.Lag != 0 || info.Redeliveries != 1 {
			t.Fatal(info, err)
		}
		if none, err := group.TryClaim(ctx, 10); none != nil || err != nil {
			t.Fatal(none, err)
		}
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		if _, err := group.Claim(short, 1); !errors.Is(err, weir.ErrDeadline) {
			t.Fatal(err)
		}
	})
}

func TestAReleasedPageAcknowledgesNothing(t *testing.T) {
	ctx, jobs := context.Background(), topic(t, openLocal(t), "jobs")
	if _, err := jobs.Append(ctx, []byte("0")); err != nil {
		t.Fatal(err)
	}
	group, err := jobs.Group(ctx, "workers", weir.Shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	page, err := group.Claim(ctx, 10)
	if err != nil || page.Len() != 1 {
		t.Fatal(page, err)
	}
	claim := weir.Record{Item: page.At(0)}.Claimed()
	page.Release()
	if _, err := group.Done(ctx, page); !errors.Is(err, weir.ErrBadHandle) {
		t.Fatal(err)
	}
	if lost, err := group.DoneWith(ctx, claim); err != nil || len(lost) != 0 {
		t.Fatal(lost, err)
	}
	// TryClaim returns nil if there is no record.
	if lost, err := group.Done(ctx, nil); err != nil || len(lost) != 0 {
		t.Fatal(lost, err)
	}
	if info, err := group.Info(ctx); err != nil || info.Lag != 0 {
		t.Fatal(info, err)
	}
}

func TestANegativeTimeOrNumberIsAnError(t *testing.T) {
	ctx, store := context.Background(), openLocal(t)
	jobs := topic(t, store, "jobs")
	group, err := jobs.Group(ctx, "workers", weir.Shared, &weir.GroupOptions{Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	options := func(options weir.GroupOptions) error {
		_, err := jobs.Group(ctx, "others", weir.Shared, &options)
		return err
	}
	claim := weir.Claimed{Offset: 2, Claim: 1}
	for want, call := range map[string]func() error{
		"Lease is -1s":      func() error { return options(weir.GroupOptions{Lease: -time.Second}) },
		"ClaimLease is -1s": func() error { return options(weir.GroupOptions{ClaimLease: -time.Second}) },
		"lease is -1s":      func() error { _, err := group.Extend(ctx, -time.Second, claim); return err },
		"delay is -1s":      func() error { _, err := group.Fail(ctx, -time.Second, "", claim); return err },
		"limit is -1":       func() error { _, err := group.TryClaim(ctx, -1); return err },
		"Limit is -1": func() error {
			_, err := jobs.ScanPage(ctx, weir.ScanOptions{Limit: -1})
			return err
		},
		"Interval is -1s": func() error {
			_, err := weir.Open(t.TempDir(), &weir.OpenOptions{Interval: -time.Second})
			return err
		},
		"ConnectTimeout is -1s": func() error {
			_, err := weir.Connect(ctx, "weir://127.0.0.1:1", &weir.ConnectOptions{ConnectTimeout: -time.Second})
			return err
		},
	} {
		if err := call(); !errors.Is(err, weir.ErrBadOption) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v instead of %s", err, want)
		}
	}
	// The longest time is not the default either.
	if err := options(weir.GroupOptions{Lease: math.MaxInt64}); err == nil {
		t.Error("a lease of 292 years")
	}
}

func TestASessionExecutesAnIntentionOnce(t *testing.T) {
	localAndRemote(t, func(t *testing.T, store *weir.Store) {
		ctx := context.Background()
		log := topic(t, store, "log")
		session, err := store.Session(ctx, [16]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		write := weir.Put(nil, []byte("x"))
		write.Topic = log.Name()
		first, err := session.Submit(ctx, write)
		if err != nil || first[0].Nonce != 1 || first[0].Replayed {
			t.Fatal(first, err)
		}
		if err := session.Resume(ctx, 1); err != nil {
			t.Fatal(err)
		}
		again, err := session.Submit(ctx, write)
		if err != nil || !again[0].Replayed || again[0].Offset != first[0].Offset {
			t.Fatal(again, err)
		}
		if nonce, err := session.NextNonce(ctx); err != nil || nonce != 2 {
			t.Fatal(nonce, err)
		}
	})
}

func TestASessionSendsAheadAndIsAnsweredInOrder(t *testing.T) {
	localAndRemote(t, func(t *testing.T, store *weir.Store) {
		ctx := context.Background()
		log := topic(t, store, "log")
		session, err := store.Session(ctx, [16]byte{2})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		write := weir.Put(nil, []byte("x"))
		write.Topic = log.Name()
		for _, replayed := range []bool{false, true} {
			var sent []*weir.Pending
			for range 3 {
				pending, err := session.Send(ctx, write, write)
				if err != nil {
					t.Fatal(err)
				}
				sent = append(sent, pending)
			}
			nonce := uint64(0)
			for _, pending := range sent {
				verdicts, err := pending.Wait(ctx)
				if err != nil || len(verdicts) != 2 {
					t.Fatal(verdicts, err)
				}
				for _, verdict := range verdicts {
					nonce++
					if !verdict.Valid() || verdict.Nonce != nonce || verdict.Replayed != replayed {
						t.Fatal(nonce, verdict)
					}
				}
			}
			if err := session.Resume(ctx, 1); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestAClosedObjectRejectsItsCalls(t *testing.T) {
	ctx, store := context.Background(), openLocal(t)
	topic := topic(t, store, "t")
	reader, err := topic.Reader(ctx, weir.FromStart())
	if err != nil {
		t.Fatal(err)
	}
	group, err := topic.Group(ctx, "g", weir.Shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	session, err := store.Session(ctx, [16]byte{4})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		reader.Close()
		group.Close()
		session.Close()
	}
	if _, err := reader.TryNext(ctx); !errors.Is(err, weir.ErrBadHandle) {
		t.Error(err)
	}
	if _, err := group.TryClaim(ctx, 1); !errors.Is(err, weir.ErrBadHandle) {
		t.Error(err)
	}
	if _, err := session.NextNonce(ctx); !errors.Is(err, weir.ErrBadHandle) {
		t.Error(err)
	}
	write := weir.Put(nil, []byte("x"))
	write.Topic = "t"
	pending, err := store.Send(ctx, write)
	if err != nil {
		t.Fatal(err)
	}
	if verdicts, err := pending.Wait(ctx); err != nil || !verdicts[0].Valid() {
		t.Fatal(verdicts, err)
	}
	if _, err := pending.Wait(ctx); !errors.Is(err, weir.ErrBadOption) {
		t.Error(err)
	}
	if err := pending.Received(ctx); !errors.Is(err, weir.ErrBadOption) {
		t.Error(err)
	}
}

func TestACallWithAnEndedContextDoesNothing(t *testing.T) {
	localAndRemote(t, func(t *testing.T, store *weir.Store) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := store.Topic("t").Ensure(ctx, nil); !errors.Is(err, weir.ErrCancelled) {
			t.Fatal(err)
		}
		if _, err := store.Topic("t").Append(ctx, nil); !errors.Is(err, weir.ErrCancelled) {
			t.Fatal(err)
		}
		if names, err := store.Topics(context.Background()); err != nil || len(names) != 0 {
			t.Fatal(names, err)
		}
	})
}

func TestAClosedStoreFailsAndItsPagesStayValid(t *testing.T) {
	store := openLocal(t)
	record := func() weir.Record {
		topic := topic(t, store, "t")
		if _, err := topic.Put(context.Background(), []byte("k"), make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		record, _, err := topic.Get(context.Background(), []byte("k"))
		if err != nil {
			t.Fatal(err)
		}
		return record
	}()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if len(record.Value()) != 100_000 {
		t.Fatal("a page ended with its store")
	}
	if _, err := store.Topic("t").Append(context.Background(), nil); err == nil {
		t.Fatal("a closed store accepts writes")
	}
}

func TestASessionAndAGroupEndWithTheirStore(t *testing.T) {
	localAndRemote(t, func(t *testing.T, store *weir.Store) {
		ctx := context.Background()
		group, err := topic(t, store, "t").Group(ctx, "g", weir.Shared, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer group.Close()
		session, err := store.Session(ctx, [16]byte{3})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := group.Info(ctx); !errors.Is(err, weir.ErrClosed) {
			t.Error(err)
		}
		if _, err := session.NextNonce(ctx); !errors.Is(err, weir.ErrClosed) {
			t.Error(err)
		}
		write := weir.Put(nil, []byte("x"))
		write.Topic = "t"
		if _, err := session.Submit(ctx, write); !errors.Is(err, weir.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestAQueryOverTopicsMergesFollowsAndResumes(t *testing.T) {
	localAndRemote(t, func(t *testing.T, store *weir.Store) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, name := range []string{"orders.a", "orders.b"} {
			topic := topic(t, store, name)
			for at := range 3 {
				value := fmt.Appendf(nil, `{"n":%d,"in":"%s"}`, at, name)
				if _, err := topic.Append(ctx, value); err != nil {
					t.Fatal(err)
				}
			}
		}
		topics := weir.TopicsOptions{Topics: []string{"orders.*"}}
		query, err := store.Query(ctx, topics, weir.QueryOptions{
			Where: "@.n > 0", Order: "$.n desc, $.in", Select: "$.in",
		})
		if err != nil {
			t.Fatal(err)
		}
		defer query.Close()
		var got []string
		for item, err := range query.Items(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			name, err := query.SourceName(item.Source())
			if err != nil {
				t.Fatal(err)
			}
			if string(item.Bytes()) != `"`+name+`"` {
				t.Fatalf("%s came from %s", item.Bytes(), name)
			}
			got = append(got, name)
		}
		if strings.Join(got, " ") != "orders.a orders.b orders.a orders.b" {
			t.Fatal(got)
		}
		if _, err := query.Source(weir.SourceOptions{}); !errors.Is(err, weir.ErrUnsupported) {
			t.Fatal(err)
		}

		topics.Follow = true
		options := weir.QueryOptions{Where: "@.n == 9"}
		first := follow(t, ctx, store, topics, options, nil)
		second := follow(t, ctx, store, topics, options, first)
		if first == nil || second == nil {
			t.Fatal("there is no token")
		}
	})
}

// follow writes a record, waits until a query returns it, and returns the token of
// the query.
func follow(
	t *testing.T,
	ctx context.Context,
	store *weir.Store,
	topics weir.TopicsOptions,
	options weir.QueryOptions,
	token []byte,
) []byte {
	t.Helper()
	options.Token = token
	query, err := store.Query(ctx, topics, options)
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	text := fmt.Sprintf(`{"n":9,"after":%d}`, len(token))
	if _, err := store.Topic("orders.b").Append(ctx, []byte(text)); err != nil {
		t.Fatal(err)
	}
	for page, err := range query.Pages(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if page.Len() != 1 || string(page.At(0).Bytes()) != text {
			t.Fatalf("%d results, the first is %s", page.Len(), page.At(0).Bytes())
		}
		page.Release()
		break
	}
	ended, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	for _, err := range query.Pages(ended) {
		if !errors.Is(err, weir.ErrDeadline) {
			t.Fatal(err)
		}
	}
	token, err = query.Token()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestAQueryOverTopicsStartsAtAPosition(t *testing.T) {
	localAndRemote(t, func(t *testing.T, store *weir.Store) {
		ctx := context.Background()
		orders := topic(t, store, "orders")
		for at := range 3 {
			if _, err := orders.Append(ctx, fmt.Append(nil, at)); err != nil {
				t.Fatal(err)
			}
		}
		position, err := weir.ParseFrom("-1")
		if err != nil {
			t.Fatal(err)
		}
		// The topic begins with the record of its creation.
		for want, from := range map[string]weir.From{
			"012": {}, "12": weir.After(2), "2": position, "": weir.FromEnd(),
		} {
			topics := weir.TopicsOptions{Topics: []string{"orders"}, From: from}
			query, err := store.Query(ctx, topics, weir.QueryOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for item, err := range query.Items(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				got += string(item.Bytes())
			}
			query.Close()
			if got != want {
				t.Fatalf("%q instead of %q", got, want)
			}
		}
		latest := weir.TopicsOptions{Topics: []string{"orders"}, Latest: true, From: weir.FromEnd()}
		if _, err := store.Query(ctx, latest, weir.QueryOptions{}); !errors.Is(err, weir.ErrBadOption) {
			t.Fatal(err)
		}
	})
}

func TestEveryConsistencyReadsTheSameWithoutACluster(t *testing.T) {
	localAndRemote(t, func(t *testing.T, store *weir.Store) {
		ctx := context.Background()
		orders := topic(t, store, "orders")
		if _, err := orders.Put(ctx, []byte("k"), []byte("v")); err != nil {
			t.Fatal(err)
		}
		for _, consistency := range []weir.Consistency{
			weir.ConsistencyLocal, weir.ConsistencyLeader, weir.ConsistencyLinear,
		} {
			checkValue(ctx, t, store, consistency, "v")
		}
		_, err := store.WithConsistency(9)
		if !errors.Is(err, weir.ErrBadOption) || !strings.Contains(err.Error(), "the consistency is 9") {
			t.Fatal(err)
		}
	})
}

func TestAQueryRejectsAnUnknownKind(t *testing.T) {
	ctx, store := context.Background(), openLocal(t)
	topic(t, store, "t")
	for _, kind := range []weir.RecordKind{0, 7, 31, 32, 40, math.MaxUint32} {
		topics := weir.TopicsOptions{Topics: []string{"t"}, Kinds: []weir.RecordKind{kind}}
		if _, err := store.Query(ctx, topics, weir.QueryOptions{}); !errors.Is(err, weir.ErrBadOption) {
			t.Error(kind, err)
		}
	}
}

func TestTheOptionsOfATopicSetTheStateOfItsProgram(t *testing.T) {
	ctx, store := context.Background(), openLocal(t)
	path := filepath.Join(vectors(t, ""), "..", "programs", "prebuilt", "vanilla-memory.wasm")
	code, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, memory := range []bool{false, true} {
		topic := store.Topic(fmt.Sprint("memory.", memory))
		options := &weir.TopicOptions{MemoryState: memory}
		created, err := topic.Batch(ctx, weir.Intention{Operation: weir.OpCreate, Options: options, Code: code})
		if err != nil || !created[0].Valid() {
			t.Fatal(created, err)
		}
		// A program that does not export weir_upgrade cannot use the memory of another one.
		replaced, err := topic.Batch(ctx, weir.Intention{Operation: weir.OpReplace, Code: code})
		if err != nil || errors.Is(replaced[0].Err(), weir.ErrBadProgram) != memory {
			t.Fatal(memory, replaced, err)
		}
	}
}

func TestAWriteIsReceivedAndThenCommitted(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store, err := weir.Connect(ctx, serve(t), &weir.ConnectOptions{Received: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	topic(t, store, "orders")
	session, err := store.Session(ctx, [16]byte{7})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	put := weir.Put([]byte("k"), []byte("v"))
	put.Topic = "orders"
	for _, send := range []func(context.Context, ...weir.Intention) (*weir.Pending, error){store.Send, session.Send} {
		pending, err := send(ctx, put, put)
		if err != nil {
			t.Fatal(err)
		}
		if err := pending.Received(ctx); err != nil {
			t.Fatal(err)
		}
		verdicts, err := pending.Wait(ctx)
		if err != nil || len(verdicts) != 2 || verdicts[1].Effect != weir.Valid {
			t.Fatal(verdicts, err)
		}
	}
}
