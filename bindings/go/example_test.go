package weir_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	weir "weir.example/bindings/go"
)

// Merges two ordered sources; the results are the original bytes.
func ExampleQuery() {
	query, err := weir.NewQuery(weir.QueryOptions{Order: "$.n", Where: "@.n > 1"})
	if err != nil {
		log.Fatal(err)
	}
	defer query.Close()
	for _, page := range []string{`[{"n":1},{"n":3}]`, `[{"n": 2}, {"n":4e0}]`} {
		source, err := query.Source(weir.SourceOptions{Sorted: true})
		if err != nil {
			log.Fatal(err)
		}
		if err := source.Enqueue([]byte(page), nil); err != nil {
			log.Fatal(err)
		}
	}
	for item, err := range query.Items(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d: %s\n", item.Source(), item.Bytes())
	}
	// Output:
	// 1: {"n": 2}
	// 0: {"n":3}
	// 1: {"n":4e0}
}

// Decodes the bytes of an item with a custom decoder.
func ExampleDecode() {
	query, err := weir.NewQuery(weir.QueryOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer query.Close()
	source, err := query.Source(weir.SourceOptions{Shape: "lines"})
	if err != nil {
		log.Fatal(err)
	}
	if err := source.Enqueue([]byte("{\"id\":\"a\",\"points\":3}\n"), nil); err != nil {
		log.Fatal(err)
	}
	type ticket struct {
		ID     string
		Points int
	}
	for item, err := range query.Items(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		ticket, err := weir.Decode[ticket](item, json.Unmarshal)
		fmt.Println(ticket, err)
	}
	// Output: {a 3} <nil>
}

// Distinguishes errors by their code, which is the same in every language.
func ExampleError() {
	_, err := weir.NewQuery(weir.QueryOptions{Where: "@.a = 1"})
	var failed *weir.Error
	fmt.Println(errors.Is(err, weir.ErrSyntax), errors.As(err, &failed), failed.Offset)
	// Output: true true 4
}

// Writes by key, reads in order.
func ExampleTopic() {
	directory, err := os.MkdirTemp("", "weir")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(directory)
	ctx := context.Background()
	store, err := weir.Open(directory, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	topic := store.Topic("letters")
	if _, err := topic.Ensure(ctx, nil); err != nil {
		log.Fatal(err)
	}
	verdicts, err := topic.Batch(ctx,
		weir.Put([]byte("a"), []byte("1")),
		weir.Put([]byte("a"), []byte("2"), weir.KeyAbsent()),
		weir.Put([]byte("b"), []byte("3")))
	if err != nil {
		log.Fatal(err)
	}
	for _, verdict := range verdicts {
		fmt.Print(verdict.Effect, " ")
	}
	record, ok, err := topic.Get(ctx, []byte("b"))
	fmt.Println(string(record.Value()), ok, err)
	// Output: VALID INVALID VALID 3 true <nil>
}
