package weir

import (
	"bytes"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
	"unsafe"
)

// span is one item in the layout of the library.
type span struct {
	ptr    *byte
	length uint64
	offset uint64
	buffer uint32
	source uint32
	flags  uint32
	index  uint32
}

// stored is the data of a record without its value, in the layout of the library.
type stored struct {
	offset     uint64
	intention  uint64
	timeMS     uint64
	nonce      uint64
	client     [16]byte
	key        *byte
	keyLength  uint64
	keyOffset  uint64
	meta       *byte
	metaLength uint64
	metaOffset uint64
	term       uint64
	claim      uint64
	kind       uint32
	flags      uint32
	attempts   uint32
	buffer     uint32
}

// The flags of a span.
const (
	flagConstructed  = 1
	flagRequired     = 2
	flagContinuation = 4
)

// Page is a sequence of results or records. It is immutable. Any number of
// goroutines may use it. It outlives the query or store that returned it. All views
// of its bytes end with [Page.Release].
type Page struct {
	handle   pageHandle
	spans    []span
	records  []stored
	skipped  uint64
	position uint64
	hint     uint64
	cleanup  runtime.Cleanup
}

// newPage creates a Page for a handle of the library. The collector releases it if
// the program does not.
func newPage(handle pageHandle) *Page { return viewOf(handle).withCleanup() }

// withCleanup registers the release of the page with the collector.
func (p *Page) withCleanup() *Page {
	p.cleanup = runtime.AddCleanup(p, releaseLate, p.handle)
	return p
}

func releaseLate(handle pageHandle) { pins.release(handle) }

// Release releases the page. Views of it must not be used after the call; its items
// and records panic. A second release is a no-op. Release must not be called while
// another goroutine uses the page.
func (p *Page) Release() {
	if p == nil {
		return
	}
	p.spans, p.records = nil, nil
	if p.handle == nil {
		return
	}
	p.cleanup.Stop()
	handle := p.handle
	p.handle = nil
	pins.release(handle)
}

// Len returns the number of items or records; 0 after the release, or for nil.
func (p *Page) Len() int {
	if p == nil {
		return 0
	}
	return len(p.spans)
}

// At returns an item by its index in the page, from 0.
func (p *Page) At(index int) Item { return Item{page: p, at: index} }

// Items iterates over the items in order.
func (p *Page) Items() iter.Seq[Item] {
	return func(yield func(Item) bool) {
		for at := range p.spans {
			if !yield(Item{page: p, at: at}) {
				return
			}
		}
	}
}

// Records iterates over the records in order; a page of query results has none.
func (p *Page) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for at := range p.records {
			if !yield(Record{Item{page: p, at: at}}) {
				return
			}
		}
	}
}

// Skipped returns the number of bad items that the query has skipped so far.
func (p *Page) Skipped() uint64 { return p.skipped }

// Position returns the offset after which the next page of the topic begins.
func (p *Page) Position() uint64 { return p.position }

// Get finds the value at a path ("$.a.b[0]") in every item, in one call, and
// appends it to values; nil if an item has no value there. Values are views of
// the page.
func (p *Page) Get(path string, values [][]byte) ([][]byte, error) {
	if len(p.spans) == 0 {
		return values, nil
	}
	defer runtime.KeepAlive(p)
	return nativePageGet(p.handle, 0, len(p.spans), path, values)
}

// Values finds the values at up to 64 paths ("$.a.b[0]") in every item, with one
// walk over each item, and appends them to values. It appends a row for each item,
// in the order of the paths, so values grows by [Page.Len] times the number of
// paths. An absent value is nil. Values are views of the page.
func (p *Page) Values(values [][]byte, paths ...string) ([][]byte, error) {
	if len(p.spans) == 0 || len(paths) == 0 {
		return values, nil
	}
	defer runtime.KeepAlive(p)
	return nativePageValues(p.handle, len(p.spans), paths, values)
}

// Item is one result: a view of its page. Creating or copying it costs nothing.
type Item struct {
	page *Page
	at   int
}

// keepAlive returns a value that was read from the memory of a page, and keeps the page
// alive until after the read.
func keepAlive[T any](page *Page, value T) T {
	runtime.KeepAlive(page)
	return value
}

// span panics with a message if the page was released.
func (i Item) span() *span {
	if uint(i.at) >= uint(len(i.page.spans)) {
		panic("weir: an item is used after its page was released, or is not in it")
	}
	return &i.page.spans[i.at]
}

// Bytes returns the item as it is in its page: JSON, including white space. The
// slice is a view: it must not be changed, and is valid until the page is released.
func (i Item) Bytes() []byte {
	found := i.span()
	return keepAlive(i.page, unsafe.Slice(found.ptr, found.length))
}

// Clone returns a copy of the bytes.
func (i Item) Clone() []byte {
	defer runtime.KeepAlive(i.page)
	return bytes.Clone(i.Bytes())
}

// Source returns the number of the source of the item.
func (i Item) Source() uint32 { return keepAlive(i.page, i.span().source) }

// Index returns the index of the item in the page of its source, from 0.
func (i Item) Index() uint32 { return keepAlive(i.page, i.span().index) }

// Constructed reports whether the query created the item: a group, or an aggregate.
func (i Item) Constructed() bool { return keepAlive(i.page, i.span().flags)&flagConstructed != 0 }

// Get finds the value at a path ("$.a.b[0]") in the item; nil if there is none. The
// result is a view of the page. For many items, [Page.Get] is cheaper.
func (i Item) Get(path string) ([]byte, error) {
	i.span()
	defer runtime.KeepAlive(i.page)
	if i.page.handle == nil {
		return nativeFind(i.Bytes(), path) // a copy in Go memory
	}
	var values [1][]byte
	found, err := nativePageGet(i.page.handle, i.at, 1, path, values[:0])
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// Decode decodes an item with a decoder of Go, such as json.Unmarshal:
//
//	order, err := weir.Decode[Order](item, json.Unmarshal)
//
// Data that the decoder stores without a copy is a view of the page.
func Decode[T any](item Item, decode func(data []byte, into any) error) (T, error) {
	defer runtime.KeepAlive(item.page)
	var value T
	err := decode(item.Bytes(), &value)
	return value, err
}

// RecordKind is the kind of a record.
type RecordKind uint32

// The kinds of records.
const (
	RecordCreate  RecordKind = 1 + iota // the topic was created
	RecordDestroy                       // the topic was destroyed
	RecordPut                           // a value was written
	RecordDelete                        // a key was deleted
	RecordAlter                         // the options of the topic were replaced
	RecordReplace                       // the program of the topic was replaced
)

// String returns the name of the kind.
func (k RecordKind) String() string {
	names := [...]string{"CREATE", "DESTROY", "PUT", "DELETE", "ALTER", "REPLACE"}
	if k < RecordCreate || int(k) > len(names) {
		return "UNKNOWN"
	}
	return names[k-1]
}

// Record is one record of a topic: a view of its page. Its [Item] is its value.
type Record struct{ Item }

func (r Record) stored() *stored {
	if uint(r.at) >= uint(len(r.page.records)) {
		panic("weir: a record is used after its page was released, or is not in it")
	}
	return &r.page.records[r.at]
}

// Offset returns the position in the topic, from 1.
func (r Record) Offset() uint64 { return keepAlive(r.page, r.stored().offset) }

// Intention returns the position of the causing intention in the order of the whole store.
func (r Record) Intention() uint64 { return keepAlive(r.page, r.stored().intention) }

// Time returns when the intention was proposed, with a precision of 1 ms.
func (r Record) Time() time.Time { return time.UnixMilli(int64(keepAlive(r.page, r.stored().timeMS))) }

// Kind returns the kind of the record.
func (r Record) Kind() RecordKind { return RecordKind(keepAlive(r.page, r.stored().kind)) }

// Key returns the key, as a view; empty if there is none.
func (r Record) Key() []byte {
	record := r.stored()
	return keepAlive(r.page, unsafe.Slice(record.key, record.keyLength))
}

// Value returns the value, as a view; empty if the kind has none.
func (r Record) Value() []byte { return r.Bytes() }

// Meta returns the metadata that the writer added, as a view. The store does not interpret it.
func (r Record) Meta() []byte {
	record := r.stored()
	return keepAlive(r.page, unsafe.Slice(record.meta, record.metaLength))
}

// Client returns the id of the session that wrote the record; zeros without a session.
func (r Record) Client() [16]byte { return keepAlive(r.page, r.stored().client) }

// Nonce returns the number of the intention in the session; 0 without a session.
func (r Record) Nonce() uint64 { return keepAlive(r.page, r.stored().nonce) }

// Attempts returns how often a group has delivered the record, including this time.
func (r Record) Attempts() uint32 { return keepAlive(r.page, r.stored().attempts) }

// shownBytes is the number of bytes of a key or value that a summary shows.
const shownBytes = 100

// shown returns the beginning of a text, or the number of bytes if they are not UTF-8.
func shown(text []byte) string {
	if !utf8.Valid(text) {
		return fmt.Sprintf("<%d bytes>", len(text))
	}
	if len(text) <= shownBytes {
		return strings.Map(printable, string(text))
	}
	end := shownBytes
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Map(printable, string(text[:end])) + "…"
}

// printable returns a character for a line of text: white space is a blank, other control characters
// are U+FFFD.
func printable(char rune) rune {
	switch {
	case char == '\t' || char == '\n' || char == '\r':
		return ' '
	case unicode.IsControl(char):
		return unicode.ReplacementChar
	default:
		return char
	}
}

// String returns a summary for people: offset, kind, key, and the beginning of the value
// if the record has one.
func (r Record) String() string {
	defer runtime.KeepAlive(r.page)
	text := fmt.Sprintf("%d %v", r.Offset(), r.Kind())
	if len(r.Value()) > 0 || r.Kind() == RecordPut {
		return text + " " + shown(r.Key()) + "=" + shown(r.Value())
	}
	if len(r.Key()) > 0 {
		text += " " + shown(r.Key())
	}
	return text
}

// Clone returns a copy in Go memory.
func (r Record) Clone() Record {
	defer runtime.KeepAlive(r.page)
	key, value, meta := r.Key(), r.Value(), r.Meta()
	copied := make([]byte, 0, len(key)+len(value)+len(meta)+1)
	copied = append(append(append(copied, value...), key...), meta...)
	page := &Page{
		spans:    []span{*r.span()},
		records:  []stored{*r.stored()},
		position: r.page.position,
	}
	page.spans[0].ptr = unsafe.SliceData(copied)
	page.records[0].key = unsafe.SliceData(copied[len(value):])
	page.records[0].meta = unsafe.SliceData(copied[len(value)+len(key):])
	return Record{Item{page: page}}
}
