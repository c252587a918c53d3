// Package weir is the Go binding of Weir: an event store in a local directory
// or at a server, and a query engine for pages of JSON from any source.
//
// # Stores
//
// [Open] opens a directory, and [Connect] connects to a server. Both return a
// [Store] with the same methods. A [Topic] accepts writes and returns records.
// The result of a write is a [Verdict], which is a value even if the write was
// rejected. An error means that there is no verdict.
//
//	store, err := weir.Open("data", nil)
//	orders := store.Topic("orders")
//	verdict, err := orders.Put(ctx, []byte("4711"), []byte(`{"state":"open"}`))
//	for record, err := range orders.Records(ctx, weir.FromStart()) { ... }
//
// # Queries over pages from any source
//
// A [Query] does no input and output. Its caller adds sources, supplies the
// pages that the query requests, and reads results. The results are slices of
// these pages: nothing is parsed into Go values, copied or serialized. See
// [NewQuery].
//
// # Memory
//
// Results are returned as pages. [Item.Bytes] and the fields of a [Record] are
// views of a page. A view is valid until [Page.Release], or within the loop body
// if the loop is over items or records. [Item.Clone] and [Record.Clone] return
// copies. The garbage collector releases a page that you drop, but possibly
// late; a program that releases its pages needs less memory.
//
// # Errors
//
// Every error of this package is an [*Error] with a [Code]. All languages have
// the same codes and names:
//
//	if errors.Is(err, weir.ErrSourceNotSorted) { ... }
//
// # Linking
//
// The package calls the C library, which pkg-config finds as "weir". Without
// cgo, it compiles, and every call fails with [ErrUnsupported].
package weir
