package weir

import (
	"bytes"
	"iter"
	"runtime"
	"time"
	"unsafe"
)

// span is one item as the library lays it out.
type span struct {
	ptr    *byte
	length uint64
	offset uint64
	buffer uint32
	source uint32
	flags  uint32
	index  uint32
}

// stored is what belongs to a record beside its value, as the library lays it
// out.
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

// Marks of a span.
const (
	flagConstructed  = 1
	flagRequired     = 2
	flagContinuation = 4
)

// Page is a run of results or records. It is immutable, may be used by any
// number of goroutines, and outlives the query or store that it came from. All
// bytes of it end with [Page.Release].
type Page struct {
	handle   pageHandle
	spans    []span
	records  []stored
	skipped  uint64
	position uint64
	hint     uint64
	cleanup  runtime.Cleanup
}

// adopt makes a page of what the library gave out; it is released when the
// collector finds it, if nobody did before.
func adopt(handle pageHandle) *Page { return viewOf(handle).guarded() }

// guarded releases the page when the collector finds it.
func (p *Page) guarded() *Page {
	p.cleanup = runtime.AddCleanup(p, releaseLate, p.handle)
	return p
}

func releaseLate(handle pageHandle) { pins.release(handle) }

// Release gives the page back. Everything that lies in it must not be used any
// more: items and records panic then. Releasing it again does nothing. Not to
// be called while another goroutine uses the page.
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

// Len is the number of items or records; 0 after the release, and of no page.
func (p *Page) Len() int {
	if p == nil {
		return 0
	}
	return len(p.spans)
}

// At is an item by its place in the page, from 0.
func (p *Page) At(place int) Item { return Item{page: p, at: place} }

// Items are the items in order.
func (p *Page) Items() iter.Seq[Item] {
	return func(yield func(Item) bool) {
		for at := range p.spans {
			if !yield(Item{page: p, at: at}) {
				return
			}
		}
	}
}

// Records are the records in order; none in a page of query results.
func (p *Page) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for at := range p.records {
			if !yield(Record{Item{page: p, at: at}}) {
				return
			}
		}
	}
}

// Skipped is the number of bad items that the query left out so far.
func (p *Page) Skipped() uint64 { return p.skipped }

// Position is the offset after which reading of the topic goes on.
func (p *Page) Position() uint64 { return p.position }

// Get finds the value at a path ("$.a.b[0]") in every item, in one call, and
// appends what stands there to values; nil where there is nothing. Values are
// views of the page.
func (p *Page) Get(path string, values [][]byte) ([][]byte, error) {
	if len(p.spans) == 0 {
		return values, nil
	}
	defer runtime.KeepAlive(p)
	return nativePageGet(p.handle, 0, len(p.spans), path, values)
}

// Values finds the values at up to 64 paths ("$.a.b[0]") in every item, in one
// walk over each, and appends them to values, which grows by [Page.Len] times
// the number of paths: a row for each item, in the order of the paths; nil
// where there is nothing. Values are views of the page.
func (p *Page) Values(values [][]byte, paths ...string) ([][]byte, error) {
	if len(p.spans) == 0 || len(paths) == 0 {
		return values, nil
	}
	defer runtime.KeepAlive(p)
	return nativePageValues(p.handle, len(p.spans), paths, values)
}

// Item is one result: a view of its page. It costs nothing to make or copy.
type Item struct {
	page *Page
	at   int
}

// kept is what was read in the memory of a page, which a page that nobody else
// holds must not give back before.
func kept[T any](page *Page, value T) T {
	runtime.KeepAlive(page)
	return value
}

// span panics with a sentence when the page is gone.
func (i Item) span() *span {
	if uint(i.at) >= uint(len(i.page.spans)) {
		panic("weir: an item is used after its page was released, or is not in it")
	}
	return &i.page.spans[i.at]
}

// Bytes is the item as it stood in its page: JSON, white space and all. The
// slice is a view and must not be changed; it ends with the page.
func (i Item) Bytes() []byte {
	found := i.span()
	return kept(i.page, unsafe.Slice(found.ptr, found.length))
}

// Clone is a copy of the bytes that may be kept.
func (i Item) Clone() []byte {
	defer runtime.KeepAlive(i.page)
	return bytes.Clone(i.Bytes())
}

// Source is the number of the source that the item came from.
func (i Item) Source() uint32 { return kept(i.page, i.span().source) }

// Index is the number of the item in the page that it came in, from 0.
func (i Item) Index() uint32 { return kept(i.page, i.span().index) }

// Constructed says that the query made the item: a group, or an aggregate.
func (i Item) Constructed() bool { return kept(i.page, i.span().flags)&flagConstructed != 0 }

// Get finds the value at a path ("$.a.b[0]") in the item; nil when there is
// nothing. It is a view of the page. For many items [Page.Get] is cheaper.
func (i Item) Get(path string) ([]byte, error) {
	i.span()
	defer runtime.KeepAlive(i.page)
	var room [1][]byte
	found, err := nativePageGet(i.page.handle, i.at, 1, path, room[:0])
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// Decode decodes an item with a decoder of the host, such as json.Unmarshal:
//
//	order, err := weir.Decode[Order](item, json.Unmarshal)
//
// What the decoder keeps of data without a copy is a view of the page.
func Decode[T any](item Item, decode func(data []byte, into any) error) (T, error) {
	defer runtime.KeepAlive(item.page)
	var value T
	err := decode(item.Bytes(), &value)
	return value, err
}

// RecordKind says what happened.
type RecordKind uint32

// What a record says happened.
const (
	RecordCreate  RecordKind = 1 + iota // the topic was made
	RecordDestroy                       // the topic was ended
	RecordPut                           // a value was written
	RecordDelete                        // a key was removed
	RecordAlter                         // the options of the topic were replaced
	RecordReplace                       // the program of the topic was replaced
)

// Record is one record of a topic: a view of its page. As an [Item] it is its
// value.
type Record struct{ Item }

func (r Record) stored() *stored {
	if uint(r.at) >= uint(len(r.page.records)) {
		panic("weir: a record is used after its page was released, or is not in it")
	}
	return &r.page.records[r.at]
}

// Offset is its place in the topic, from 1.
func (r Record) Offset() uint64 { return kept(r.page, r.stored().offset) }

// Intention is the place in the order of the whole store of what caused it.
func (r Record) Intention() uint64 { return kept(r.page, r.stored().intention) }

// Time is when it was proposed, to the millisecond.
func (r Record) Time() time.Time { return time.UnixMilli(int64(kept(r.page, r.stored().timeMS))) }

// Kind says what happened.
func (r Record) Kind() RecordKind { return RecordKind(kept(r.page, r.stored().kind)) }

// Key is the key, a view; empty without one.
func (r Record) Key() []byte {
	record := r.stored()
	return kept(r.page, unsafe.Slice(record.key, record.keyLength))
}

// Value is the value, a view; empty for kinds without one.
func (r Record) Value() []byte { return r.Bytes() }

// Meta is what the writer added, a view; the store does not read it.
func (r Record) Meta() []byte {
	record := r.stored()
	return kept(r.page, unsafe.Slice(record.meta, record.metaLength))
}

// Client is the id of the session that wrote it; zeros without one.
func (r Record) Client() [16]byte { return kept(r.page, r.stored().client) }

// Nonce is the number of its intention in the session; 0 without one.
func (r Record) Nonce() uint64 { return kept(r.page, r.stored().nonce) }

// Attempts says how often a group handed it out, this time included.
func (r Record) Attempts() uint32 { return kept(r.page, r.stored().attempts) }

// Clone is a copy that may be kept, in memory of Go.
func (r Record) Clone() Record {
	defer runtime.KeepAlive(r.page)
	key, value, meta := r.Key(), r.Value(), r.Meta()
	room := make([]byte, 0, len(key)+len(value)+len(meta)+1)
	room = append(append(append(room, value...), key...), meta...)
	page := &Page{
		spans:    []span{*r.span()},
		records:  []stored{*r.stored()},
		position: r.page.position,
	}
	page.spans[0].ptr = unsafe.SliceData(room)
	page.records[0].key = unsafe.SliceData(room[len(value):])
	page.records[0].meta = unsafe.SliceData(room[len(value)+len(key):])
	return Record{Item{page: page}}
}
