// Package weir is the Go binding of Weir: an event store that a process opens
// itself or reaches at a server, and a query engine for pages of JSON from
// anywhere.
//
// # Stores
//
// [Open] opens a directory, [Connect] a server; both give a [Store], and all
// that follows is the same for either. A [Topic] takes writes and gives
// records; what became of a write is a [Verdict], which is a value also when it
// says no. An error means that there is no verdict.
//
//	store, err := weir.Open("data", nil)
//	orders := store.Topic("orders")
//	verdict, err := orders.Put(ctx, []byte("4711"), []byte(`{"state":"open"}`))
//	for record, err := range orders.Records(ctx, weir.FromStart()) { ... }
//
// # Queries over pages from any source
//
// A [Query] does no input and output. Its caller adds sources, supplies
// the pages that the query asks for, and takes results, which are pieces of
// those pages: nothing is parsed into Go values, copied or written again. See
// [NewQuery].
//
// # Memory
//
// Results come as pages. [Item.Bytes] and the fields of a [Record] are views of
// a page and end with it: at [Page.Release], or with the loop body where the
// loop is over items or records. [Item.Clone] and [Record.Clone] give what may
// be kept. A page that is dropped is released when the collector finds it; a
// program that lets pages go explicitly needs less memory.
//
// # Errors
//
// Every error of this package is an [*Error] with a [Code], the same number and
// name in all languages:
//
//	if errors.Is(err, weir.ErrSourceNotSorted) { ... }
//
// # Linking
//
// The package calls the C library, which pkg-config finds as "weir". Without
// cgo it compiles, and every call fails with [ErrUnsupported].
package weir
