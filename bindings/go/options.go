package weir

// QueryOptions is what is asked, and what may be held for it. The zero value
// asks for every item, source by source.
type QueryOptions struct {
	// Where is a logical expression of RFC 9535 in which @ and $ both stand for
	// the item; empty: all items.
	Where string
	// Order is up to eight keys with commas between, each a path or
	// "meta.NAME", then optionally "asc" or "desc".
	Order string
	// Select is a path, or aggregates with commas between ("count", "sum(PATH)",
	// "min", "max", "avg"), each optionally with "as NAME"; empty: the item.
	Select string
	// Group is up to eight paths with commas between, each optionally with
	// "as NAME".
	Group string
	// Distinct keeps the first of each equal selected value.
	Distinct bool
	// Offset is the number of results to leave out first.
	Offset uint64
	// Limit is the largest number of results; nil: no limit.
	Limit *uint64
	// Top is the same as Limit; with both, the smaller counts.
	Top *uint64
	// Params are values for "param('NAME')" in Where: JSON scalars.
	Params []Field
	// Strings says how strings are ordered.
	Strings StringOrder
	// Complex says what an array or object as order key is.
	Complex ComplexKeys
	// Missing says what becomes of items without an order key.
	Missing MissingKeys
	// Level says how much of each page is checked, where its source does not
	// say.
	Level Level
	// BadItems says what becomes of items that are not JSON, where each item
	// stands alone.
	BadItems BadItems
	// Mode is the order in which results come.
	Mode Mode
	// Budgets are what the query may hold.
	Budgets Budgets
	// Token makes the query go on where another one stopped; see [Query.Token].
	// Its sources are added again, under the same names.
	Token []byte
	// Fetch is called by [Query.Pages] and [Query.Items] when nothing can be
	// said before pages come. It hands in at least one page that is required,
	// or finishes its source.
	Fetch Fetch
}

// Field is a named JSON scalar.
type Field struct {
	Name, Value string
}

// Budgets bound what a query holds; 0 is the default of each.
type Budgets struct {
	// BufferBytes bounds all pages that are referenced, by result pages too.
	BufferBytes uint64
	// PagesAhead is the number of pages asked for ahead of the one in use, of
	// each source; a negative number is none.
	PagesAhead int
	// SortBytes bounds what a sort holds: pages, and what is known of each of
	// their items.
	SortBytes uint64
	// Groups and Distinct bound the values that are remembered.
	Groups, Distinct uint64
	// Sources bounds the sources, finished ones included.
	Sources uint64
	// PageBytes and ItemBytes bound one page and one item.
	PageBytes, ItemBytes uint64
	// Depth bounds the nesting in a page.
	Depth uint32
	// PageHint is the size in bytes that needs suggest for a page.
	PageHint uint64
}

// StringOrder says how strings are ordered.
type StringOrder uint32

// How strings are ordered.
const (
	ByScalar StringOrder = iota // by Unicode scalar values
	ByUTF16                     // by UTF-16 code units, as some services do
)

// ComplexKeys says what arrays and objects as order keys are.
type ComplexKeys uint32

// What arrays and objects as order keys are.
const (
	ComplexError ComplexKeys = iota // an error
	ComplexRank                     // all arrays are equal, and all objects
)

// MissingKeys says what becomes of items without an order key.
type MissingKeys uint32

// What becomes of items without an order key.
const (
	MissingFirst MissingKeys = iota // they sort before everything else
	MissingDrop                     // they are left out
)

// Level says how much of a page is checked.
type Level uint32

// How much of a page is checked.
const (
	LevelDefault    Level = iota // as the query says; structural if it does not
	LevelNone                    // nothing
	LevelStructural              // what boundaries, keys and order depend on
	LevelStrict                  // every byte
)

// BadItems says what becomes of items that are not JSON, where each item stands
// alone.
type BadItems uint32

// What becomes of items that are not JSON.
const (
	BadItemError     BadItems = iota // their page is refused
	BadItemSkip                      // they are left out and counted
	BadItemUndefined                 // they have no values
)

// Mode is the order in which results come.
type Mode uint32

// The orders in which results come.
const (
	ModeDefault    Mode = iota // by source without Order, else a merge or a sort
	ModeSequential             // all of the first source, then all of the next
	ModeArrival                // as pages come
	ModeRoundRobin             // one item of each source in turn
	ModeMerge                  // by Order; every source is sorted
	ModeSort                   // by Order; everything is held, or offset and limit
)

// SourceOptions describe one supply of items. The zero value is a source of
// pages that are JSON arrays.
type SourceOptions struct {
	// Name is for messages and tokens; empty: the number of the source.
	Name string
	// Ordinal is the rank among equal items; nil: after the sources that are
	// there.
	Ordinal *uint64
	// Shape says where items are in a page: "array" (also when empty),
	// "lines", "values" (one after the other), "single", "framed", or
	// "member:PATH" for the array at a path.
	Shape string
	// Level says how much of a page is checked.
	Level Level
	// First names the first page, and is handed back when it is wanted.
	First []byte
	// Sorted says that items come in the order of the query; it is checked.
	Sorted bool
	// TrustOrder leaves that check out.
	TrustOrder bool
	// Unstable says that the same continuation may give other items.
	Unstable bool
	// Tie is a path that orders and identifies items of equal keys, for tokens
	// of unstable sources.
	Tie string
	// Meta are values of "meta.NAME" that all items share: JSON scalars.
	Meta []Field
	// Bound is a lower bound for the order keys, JSON scalars; a source that is
	// added to a merge under way needs one.
	Bound []string
	// Partial says that items are partial aggregates.
	Partial bool
}

// Bounds say how much one call of [Query.Next] hands out; the zero value is 256
// items or 1 MiB.
type Bounds struct {
	Items int
	Bytes uint64
}

// Frame is the place of an item in a page of the shape "framed".
type Frame struct{ Offset, Len uint32 }

// Property is a property of one item. The zero value is none; see
// [NumberProperty] and [BytesProperty].
type Property struct {
	kind   uint32
	length uint32
	number uint64
}

// NumberProperty is a number.
func NumberProperty(number uint64) Property { return Property{kind: 1, number: number} }

// BytesProperty is bytes of the page, by their place.
func BytesProperty(offset, length uint32) Property {
	return Property{kind: 2, length: length, number: uint64(offset)}
}

// Frames say where the items of a page are, and what they have.
type Frames struct {
	Items []Frame
	// Meta has by the name of a property one value for each item. A property
	// that is not here is none of any.
	Meta map[string][]Property
}
