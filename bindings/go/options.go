package weir

// QueryOptions are the clauses and limits of a query. The zero value selects every
// item, source by source.
type QueryOptions struct {
	// Where is a logical expression of RFC 9535, in which both @ and $ mean the
	// item. Empty: all items.
	Where string
	// Order is up to eight keys, separated by commas: each a path or
	// "meta.NAME", then optionally "asc" or "desc".
	Order string
	// Select is a path, or a list of aggregates separated by commas ("count",
	// "sum(PATH)", "min", "max", "avg"), each optionally with "as NAME". Empty: the
	// item. With several paths, a result is the item, without items that have no value
	// at any of them; [Page.Values] returns the values.
	Select string
	// Group is up to eight paths, separated by commas, each optionally with
	// "as NAME".
	Group string
	// Distinct retains the first of equal selected values.
	Distinct bool
	// Offset is the number of results to skip first.
	Offset uint64
	// Limit is the largest number of results; nil: no limit.
	Limit *uint64
	// Top is an alias of Limit; if both are set, the smaller one applies.
	Top *uint64
	// Params are the values of "param('NAME')" in Where: JSON scalars.
	Params []Field
	// Strings is the order of strings.
	Strings StringOrder
	// Complex is the treatment of an array or object as order key.
	Complex ComplexKeys
	// Missing is the treatment of items without an order key.
	Missing MissingKeys
	// Level is how much of each page is checked, unless its source has a Level.
	Level Level
	// BadItems is the treatment of items that are not JSON, in shapes that have
	// separate items.
	BadItems BadItems
	// Mode is the order of the results.
	Mode Mode
	// Budgets limit the memory of the query.
	Budgets Budgets
	// Token resumes the query that returned the token; see [Query.Token]. Add its
	// sources again, under their names.
	Token []byte
	// [Query.Pages] and [Query.Items] call Fetch when the query cannot continue
	// without a page. Fetch must enqueue at least one required page, or finish its
	// source.
	Fetch Fetch
}

// Field is a named JSON scalar.
type Field struct {
	Name, Value string
}

// Budgets limit the memory of a query; 0 is the default of each.
type Budgets struct {
	// BufferBytes limits all referenced pages, including those of result pages.
	BufferBytes uint64
	// PagesAhead is how many pages of each source are requested ahead of the current
	// page; a negative number: none.
	PagesAhead int
	// SortBytes limits the memory of a sort: pages, and the data about each of their
	// items.
	SortBytes uint64
	// Groups and Distinct limit the number of stored values.
	Groups, Distinct uint64
	// Sources limits the number of sources, including finished ones.
	Sources uint64
	// PageBytes and ItemBytes limit one page and one item.
	PageBytes, ItemBytes uint64
	// Depth limits the nesting in a page.
	Depth uint32
	// PageHint is the size in bytes that a [Need] suggests for a page.
	PageHint uint64
}

// StringOrder is the order of strings.
type StringOrder uint32

// The orders of strings.
const (
	ByScalar StringOrder = iota // by Unicode scalar values
	ByUTF16                     // by UTF-16 code units, as some services do
)

// ComplexKeys is the treatment of arrays and objects as order keys.
type ComplexKeys uint32

// The treatments of arrays and objects as order keys.
const (
	ComplexError ComplexKeys = iota // an error
	ComplexRank                     // all arrays are equal, and all objects are equal
)

// MissingKeys is the treatment of items without an order key.
type MissingKeys uint32

// The treatments of items without an order key.
const (
	MissingFirst MissingKeys = iota // they sort before all other items
	MissingDrop                     // they are skipped
)

// Level is how much of a page is checked.
type Level uint32

// The levels of checks.
const (
	LevelDefault    Level = iota // the level of the query; structural if it has none
	LevelNone                    // nothing
	LevelStructural              // all that boundaries, keys and order depend on
	LevelStrict                  // every byte
)

// BadItems is the treatment of items that are not JSON, in shapes that have
// separate items.
type BadItems uint32

// The treatments of items that are not JSON.
const (
	BadItemError     BadItems = iota // the page is rejected
	BadItemSkip                      // they are skipped and counted
	BadItemUndefined                 // they have no values
)

// Mode is the order of the results.
type Mode uint32

// The orders of the results.
const (
	ModeDefault    Mode = iota // by source without Order, otherwise a merge or a sort
	ModeSequential             // all of the first source, then all of the next
	ModeArrival                // in the order in which pages arrive
	ModeRoundRobin             // one item of each source in turn
	ModeMerge                  // by Order; every source is sorted
	ModeSort                   // by Order; stores all items, or Offset plus Limit of them
)

// SourceOptions describe one source of items. The zero value is a source of pages
// that are JSON arrays.
type SourceOptions struct {
	// Name is the name in messages and tokens; empty: the number of the source.
	Name string
	// Ordinal is the rank among equal items; nil: after the sources that already
	// exist.
	Ordinal *uint64
	// Shape is where the items of a page are: "array" (also if empty), "lines",
	// "values" (one after the other), "single", "framed", or "member:PATH" for the
	// array at a path.
	Shape string
	// Level is how much of a page is checked.
	Level Level
	// First names the first page; the query returns it as the Continuation of a [Need].
	First []byte
	// Sorted declares that items arrive in the order of the query, which is checked.
	Sorted bool
	// TrustOrder disables this check.
	TrustOrder bool
	// Unstable declares that the same continuation may return other items.
	Unstable bool
	// Tie is a path that orders and identifies items with equal keys, for tokens
	// of unstable sources.
	Tie string
	// Meta are the values of "meta.NAME" of all items: JSON scalars.
	Meta []Field
	// Bound is a lower bound of the order keys, JSON scalars. Required for a source
	// that is added to a running merge.
	Bound []string
	// Partial declares that the items are partial aggregates.
	Partial bool
}

// Bounds limit the results of one call of [Query.Next]; the zero value is 256
// items or 1 MiB.
type Bounds struct {
	Items int
	Bytes uint64
}

// Frame is the position of an item in a page of the shape "framed".
type Frame struct{ Offset, Len uint32 }

// Property is a property of one item. The zero value means that there is none; see
// [NumberProperty] and [BytesProperty].
type Property struct {
	kind   uint32
	length uint32
	number uint64
}

// NumberProperty returns a number property.
func NumberProperty(number uint64) Property { return Property{kind: 1, number: number} }

// BytesProperty returns a property whose value is a range of the page.
func BytesProperty(offset, length uint32) Property {
	return Property{kind: 2, length: length, number: uint64(offset)}
}

// Frames are the positions of the items of a page, and their properties.
type Frames struct {
	Items []Frame
	// Meta maps the name of a property to one value for each item. No item has a
	// property that is not in Meta.
	Meta map[string][]Property
}
