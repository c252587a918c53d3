package weir_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	weir "weir.example/bindings/go"
)

// newLineQuery returns a query and a source of lines.
func newLineQuery(t testing.TB, options weir.QueryOptions) (*weir.Query, weir.Source) {
	t.Helper()
	query, err := weir.NewQuery(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(query.Close)
	source, err := query.Source(weir.SourceOptions{Shape: "lines"})
	if err != nil {
		t.Fatal(err)
	}
	return query, source
}

// collectGarbage runs the collector until it has cleaned up everything that was
// unreachable at the call.
func collectGarbage() {
	for range 2 {
		cleaned := make(chan struct{})
		func() { runtime.AddCleanup(new([64]byte), func(cleaned chan struct{}) { close(cleaned) }, cleaned) }()
		for done := false; !done; {
			runtime.GC()
			select {
			case <-cleaned:
				done = true
			default:
			}
		}
	}
}

func TestACallKeepsItsPageAlive(t *testing.T) {
	collectGarbage()
	query, source := newLineQuery(t, weir.QueryOptions{})
	if err := source.Enqueue([]byte("[1, 22]\n"), nil); err != nil {
		t.Fatal(err)
	}
	item := func() weir.Item { return next(t, query, weir.Bounds{}).At(0) }
	open := weir.OpenHandles() + 1
	text, err := weir.Decode[string](item(), func(data []byte, into any) error {
		collectGarbage()
		if now := weir.OpenHandles(); now != open {
			t.Errorf("%d handles are open, not %d", now, open)
		}
		*into.(*string) = string(data)
		return nil
	})
	if err != nil || text != "[1, 22]" {
		t.Fatalf("%q %v", text, err)
	}
}

// next returns the next page of results.
func next(t testing.TB, query *weir.Query, bounds weir.Bounds) *weir.Page {
	t.Helper()
	step, page, err := query.Next(bounds)
	if err != nil || step != weir.Ready {
		t.Fatalf("step %d, %v", step, err)
	}
	return page
}

func TestALoanIsReturnedOnceAfterItsLastResult(t *testing.T) {
	query, source := newLineQuery(t, weir.QueryOptions{})
	page := []byte("1\n2\n3\n")
	returned := 0
	if err := source.EnqueuePinned(page, nil, func(got []byte) {
		returned++
		if &got[0] != &page[0] {
			t.Error("another page was returned")
		}
	}); err != nil {
		t.Fatal(err)
	}
	first, second := next(t, query, weir.Bounds{Items: 2}), next(t, query, weir.Bounds{Items: 2})
	if &first.At(0).Bytes()[0] != &page[0] {
		t.Error("the bytes were copied")
	}
	query.Close()
	first.Release()
	if returned != 0 {
		t.Fatal("the page was returned while a result was in it")
	}
	if got := string(second.At(0).Bytes()); got != "3" {
		t.Fatalf("after the query: %s", got)
	}
	second.Release()
	second.Release()
	if returned != 1 {
		t.Fatalf("the page was returned %d times", returned)
	}
}

func TestAPanicOfACallbackKeepsNoOtherLoan(t *testing.T) {
	query, source := newLineQuery(t, weir.QueryOptions{})
	returned := 0
	for at := range 3 {
		err := source.EnqueuePinned([]byte("1\n"), []byte("more"), func([]byte) {
			returned++
			if at == 0 {
				panic("enough")
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	func() {
		defer func() {
			if cause := recover(); cause != "enough" {
				t.Error(cause)
			}
		}()
		query.Close()
	}()
	if returned != 3 {
		t.Fatalf("%d pages were returned", returned)
	}
}

func TestABufferAppendsAPartOfItself(t *testing.T) {
	// The allocator returns memory of this size to the system, so a read of it would be a fault.
	large := bytes.Repeat([]byte("0123456789abcdef"), 33<<16)
	buffer, err := weir.NewBuffer(len(large))
	if err != nil {
		t.Fatal(err)
	}
	defer buffer.Free()
	if _, err := buffer.Write(large); err != nil {
		t.Fatal(err)
	}
	if n, err := buffer.Write(buffer.Bytes()[len(large)-6:]); err != nil || n != 6 {
		t.Fatal(n, err)
	}
	if got := string(buffer.Bytes()[len(large)-1:]); got != "fabcdef" {
		t.Fatal(got)
	}
}

func TestARejectedLoanStaysWithTheCaller(t *testing.T) {
	query, source := newLineQuery(t, weir.QueryOptions{Order: "$.n"})
	refuse := func([]byte) { t.Error("a rejected page was returned") }
	err := source.EnqueuePinned([]byte(`{"n":"x`), nil, refuse)
	if !errors.Is(err, weir.ErrUnterminatedString) {
		t.Fatal(err)
	}
	var failed *weir.Error
	if !errors.As(err, &failed) || failed.Source != 0 || failed.Offset == weir.NoOffset {
		t.Fatalf("%+v", failed)
	}
	query.Close()
}

func TestItemsOfAReleasedPagePanic(t *testing.T) {
	query, source := newLineQuery(t, weir.QueryOptions{})
	if err := source.Enqueue([]byte("1\n"), nil); err != nil {
		t.Fatal(err)
	}
	page := next(t, query, weir.Bounds{})
	item := page.At(0)
	page.Release()
	defer func() {
		if recover() == nil {
			t.Error("an item of a released page was read")
		}
	}()
	_ = item.Bytes()
}

func TestPagesOutliveTheirQueryAndAreReleasedByTheCollector(t *testing.T) {
	query, source := newLineQuery(t, weir.QueryOptions{})
	done := make(chan struct{})
	page := []byte("1\n2\n")
	if err := source.EnqueuePinned(page, nil, func([]byte) { close(done) }); err != nil {
		t.Fatal(err)
	}
	result := next(t, query, weir.Bounds{})
	query.Close()
	if got := string(result.At(1).Clone()); got != "2" {
		t.Fatal(got)
	}
	runtime.KeepAlive(result)
	// Nothing references the page any more.
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

func TestFetchEnqueuesThePagesOfALoop(t *testing.T) {
	pages := map[string]string{"": "1\n2\n", "a": "3\n", "b": "4\n"}
	nexts := map[string]string{"": "a", "a": "b"}
	var requested []string
	query, _ := newLineQuery(t, weir.QueryOptions{
		Fetch: func(_ context.Context, needs []weir.Need) error {
			name := string(needs[0].Continuation)
			requested = append(requested, name)
			var next []byte
			if name, more := nexts[name]; more {
				next = []byte(name)
			}
			return needs[0].Source.Enqueue([]byte(pages[name]), next)
		},
	})
	var got []string
	for item, err := range query.Items(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(item.Bytes()))
	}
	if strings.Join(got, "") != "1234" || strings.Join(requested, ",") != ",a,b" {
		t.Fatal(got, requested)
	}
}

func TestAContextAndAFailedFetchEndTheLoop(t *testing.T) {
	broken := errors.New("broken")
	query, _ := newLineQuery(t, weir.QueryOptions{
		Fetch: func(context.Context, []weir.Need) error { return broken },
	})
	for _, err := range query.Items(context.Background()) {
		if err != broken {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(broken)
	for _, err := range query.Pages(ctx) {
		if !errors.Is(err, weir.ErrCancelled) || !errors.Is(err, broken) {
			t.Fatal(err)
		}
	}
	query.Cancel()
	if _, _, err := query.Next(weir.Bounds{}); !errors.Is(err, weir.ErrCancelled) {
		t.Fatal(err)
	}
}

func TestAFetchThatEnqueuesNothingIsAnError(t *testing.T) {
	idle := func(context.Context, []weir.Need) error { return nil }
	for _, c := range []struct {
		fetch   weir.Fetch
		message string
	}{
		{nil, "BAD_OPTION: a page of source north is needed; give `fetch`"},
		{idle, "BAD_OPTION: `fetch` enqueued nothing, and a page of source north is needed"},
	} {
		query, err := weir.NewQuery(weir.QueryOptions{Fetch: c.fetch})
		if err != nil {
			t.Fatal(err)
		}
		defer query.Close()
		source, err := query.Source(weir.SourceOptions{Name: "north"})
		if err != nil {
			t.Fatal(err)
		}
		loop := func() (items int, last error) {
			for _, err := range query.Items(context.Background()) {
				if last = err; err == nil {
					items++
				}
			}
			return items, last
		}
		_, err = loop()
		var failed *weir.Error
		if !errors.As(err, &failed) || failed.Error() != c.message || failed.Source != 0 {
			t.Fatal(err)
		}
		// The query is still usable.
		if err := source.Enqueue([]byte("[1,2]"), nil); err != nil {
			t.Fatal(err)
		}
		if items, err := loop(); items != 2 || err != nil {
			t.Fatal(items, err)
		}
	}
}

func TestAFetchMayFinishOrSplitItsSource(t *testing.T) {
	query, err := weir.NewQuery(weir.QueryOptions{Order: "$", Fetch: func(_ context.Context, needs []weir.Need) error {
		source := needs[0].Source
		switch source.Number() {
		case 0:
			_, err := source.Replace(weir.SourceOptions{Sorted: true})
			return err
		default:
			return source.Finish()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	if _, err := query.Source(weir.SourceOptions{Sorted: true}); err != nil {
		t.Fatal(err)
	}
	for _, err := range query.Items(context.Background()) {
		t.Fatal(err)
	}
}

func TestABufferReadsAReaderToItsEnd(t *testing.T) {
	text := strings.Repeat("\"0123456789\"\n", 50_000)
	for _, size := range []int{0, 10, len(text), 2 * len(text)} {
		query, source := newLineQuery(t, weir.QueryOptions{Select: "count"})
		buffer, err := weir.NewBuffer(size)
		if err != nil {
			t.Fatal(err)
		}
		half := len(text) / 2
		if _, err := buffer.Write([]byte(text[:half])); err != nil {
			t.Fatal(err)
		}
		if n, err := buffer.ReadFrom(strings.NewReader(text[half:])); err != nil || int(n) != len(text)-half {
			t.Fatal(n, err)
		}
		if string(buffer.Bytes()) != text {
			t.Fatal("other bytes")
		}
		if err := source.EnqueueBuffer(buffer, nil); err != nil {
			t.Fatal(err)
		}
		if buffer.Len() != 0 {
			t.Fatal("a transferred buffer is not empty")
		}
		page := next(t, query, weir.Bounds{})
		if got := string(page.At(0).Bytes()); got != "50000" || !page.At(0).Constructed() {
			t.Fatal(got)
		}
		page.Release()
	}
}

func TestValuesAreFoundInOneItemAndInAll(t *testing.T) {
	query, source := newLineQuery(t, weir.QueryOptions{})
	if err := source.Enqueue([]byte(`{"a":{"b":[1, "x"]}}`+"\n{}\n"), nil); err != nil {
		t.Fatal(err)
	}
	page := next(t, query, weir.Bounds{})
	defer page.Release()
	one, err := page.At(0).Get("$.a.b[1]")
	if err != nil || string(one) != `"x"` {
		t.Fatal(string(one), err)
	}
	all, err := page.Get("$.a.b", nil)
	if err != nil || len(all) != 2 || string(all[0]) != `[1, "x"]` || all[1] != nil {
		t.Fatal(all, err)
	}
	if _, err := page.Get("$..a", nil); !errors.Is(err, weir.ErrNotSingular) {
		t.Fatal(err)
	}
	table, err := page.Values(all, "$.a.b[0]", "$.c")
	if err != nil || len(table) != 6 || string(table[2]) != "1" || table[3] != nil || table[4] != nil {
		t.Fatal(table, err)
	}
	if none, err := page.Values(nil); err != nil || len(none) != 0 {
		t.Fatal(none, err)
	}
	if _, err := page.Values(nil, "$.a", "$..a"); !errors.Is(err, weir.ErrNotSingular) {
		t.Fatal(err)
	}
	if _, err := page.Values(nil, slices.Repeat([]string{"$.a"}, 65)...); !errors.Is(err, weir.ErrTooComplex) ||
		err.Error() != "TOO_COMPLEX: more than 64 paths" {
		t.Fatal(err)
	}
}

func TestAClosedQueryAndBadOptionsAreErrors(t *testing.T) {
	query, source := newLineQuery(t, weir.QueryOptions{})
	query.Close()
	query.Close()
	if err := source.Finish(); err == nil {
		t.Error("a closed query accepts calls")
	}
	if _, err := weir.NewQuery(weir.QueryOptions{Mode: 99}); !errors.Is(err, weir.ErrBadOption) {
		t.Error(err)
	}
	query, _ = newLineQuery(t, weir.QueryOptions{})
	if _, err := query.Source(weir.SourceOptions{Shape: "heap"}); !errors.Is(err, weir.ErrBadOption) {
		t.Error(err)
	}
}

func TestNothingIsAllocatedForAnItem(t *testing.T) {
	const items = 10_000
	page := bytes.Repeat([]byte("{\"n\":1}\n"), items)
	ctx := context.Background()
	pages := 0.0
	run := func() {
		query, source := newLineQuery(t, weir.QueryOptions{})
		if err := source.Enqueue(page, nil); err != nil {
			t.Fatal(err)
		}
		length := 0
		for item, err := range query.Items(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			length += len(item.Bytes())
		}
		if length != 7*items {
			t.Fatal(length)
		}
		pages = items / 256
		query.Close()
	}
	// A few allocations for each page, and for the query.
	if got := testing.AllocsPerRun(5, run); got > 5*pages+60 {
		t.Fatalf("%.0f allocations for %d items", got, items)
	}
}

func TestAnotherQueryResumesAtAToken(t *testing.T) {
	options := weir.QueryOptions{Order: "$.n"}
	run := func(token []byte, items int) (string, []byte) {
		options.Token = token
		query, err := weir.NewQuery(options)
		if err != nil {
			t.Fatal(err)
		}
		defer query.Close()
		source, err := query.Source(weir.SourceOptions{Name: "s", Sorted: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := source.Enqueue([]byte(`[{"n":1},{"n":2},{"n":3}]`), nil); err != nil {
			t.Fatal(err)
		}
		page := next(t, query, weir.Bounds{Items: items})
		defer page.Release()
		next, err := query.Token()
		if err != nil {
			t.Fatal(err)
		}
		return string(page.At(0).Bytes()), next
	}
	first, token := run(nil, 1)
	second, _ := run(token, 1)
	if first != `{"n":1}` || second != `{"n":2}` {
		t.Fatal(first, second)
	}
	token[0]++
	options.Token = token
	if _, err := weir.NewQuery(options); !errors.Is(err, weir.ErrTokenCorrupt) {
		t.Fatal(err)
	}
}
