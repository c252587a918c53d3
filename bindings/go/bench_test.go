package weir_test

import (
	"context"
	"testing"

	weir "weir.example/bindings/go"
	"weir.example/bindings/go/internal/pages"
)

// shapes are the pages of the measurements: few large items, or many small ones.
var shapes = map[string]pages.Shape{
	"deep":  {Objects: 5, Depth: 6, Width: 10},
	"small": {Objects: 50_000, Depth: 1, Width: 6},
}

// sorted returns a query that is ordered by the key, and its source.
func sorted(b *testing.B, trust bool) (*weir.Query, weir.Source) {
	b.Helper()
	query, err := weir.NewQuery(weir.QueryOptions{Order: "$.order"})
	if err != nil {
		b.Fatal(err)
	}
	source, err := query.Source(weir.SourceOptions{Sorted: true, TrustOrder: trust})
	if err != nil {
		b.Fatal(err)
	}
	return query, source
}

// BenchmarkEnqueue enqueues a page in each way, and compares this with a copy of
// the page into warm memory.
func BenchmarkEnqueue(b *testing.B) {
	for name, shape := range shapes {
		page := pages.Make(shape)
		ways := map[string]func(source weir.Source) error{
			"pinned": func(source weir.Source) error { return source.EnqueuePinned(page, nil, nil) },
			"copied": func(source weir.Source) error { return source.Enqueue(page, nil) },
		}
		for way, enqueue := range ways {
			b.Run(name+"/"+way, func(b *testing.B) {
				b.SetBytes(int64(len(page)))
				b.ReportAllocs()
				// The library reuses memory of pages as long as a query exists.
				keep, _ := sorted(b, false)
				defer keep.Close()
				for b.Loop() {
					b.StopTimer()
					query, source := sorted(b, false)
					b.StartTimer()
					if err := enqueue(source); err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					query.Close()
					b.StartTimer()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(shape.Objects), "ns/item")
			})
		}
		b.Run(name+"/warm-copy", func(b *testing.B) {
			into := make([]byte, len(page))
			copy(into, page)
			b.SetBytes(int64(len(page)))
			for b.Loop() {
				copy(into, page)
			}
		})
	}
}

// BenchmarkNext returns the items of a page, in batches of 256.
func BenchmarkNext(b *testing.B) {
	ctx := context.Background()
	for name, shape := range shapes {
		page := pages.Make(shape)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			length := 0
			for b.Loop() {
				b.StopTimer()
				query, source := sorted(b, false)
				if err := source.EnqueuePinned(page, nil, nil); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				for item, err := range query.Items(ctx) {
					if err != nil {
						b.Fatal(err)
					}
					length += len(item.Bytes())
				}
				b.StopTimer()
				query.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(shape.Objects), "ns/item")
		})
	}
}

// BenchmarkItems iterates over an existing page: the cost that the binding adds
// to each item.
func BenchmarkItems(b *testing.B) {
	query, source := sorted(b, false)
	defer query.Close()
	if err := source.Enqueue(pages.Make(shapes["small"]), nil); err != nil {
		b.Fatal(err)
	}
	_, page, err := query.Next(weir.Bounds{})
	if err != nil {
		b.Fatal(err)
	}
	defer page.Release()
	length := 0
	b.ReportAllocs()
	for b.Loop() {
		for item := range page.Items() {
			length += len(item.Bytes())
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(page.Len()), "ns/item")
}
