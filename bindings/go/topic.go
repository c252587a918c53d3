package weir

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"time"
)

// Topic is a handle on a topic of a [Store], whether it is there or not. It
// costs nothing to copy and may be used by any number of goroutines.
//
// Writes return when their verdict is there, which at the default durability
// means: when it is synced to disk. When the context of a write ends first, the
// write is carried out all the same, and the error is [ErrIndeterminate].
type Topic struct {
	store *Store
	name  string
}

// Name is the name of the topic.
func (t Topic) Name() string { return t.name }

// Ensure makes the topic if it is not there; options, which may be nil, hold
// only then. It says whether the topic was made now.
func (t Topic) Ensure(ctx context.Context, options *TopicOptions) (bool, error) {
	return ask(ctx, t.store, func(store storeHandle) (bool, error) {
		return nativeTopicEnsure(store, t.name, options)
	})
}

// Create makes the topic; INVALID with [ErrTopicExists] when it is there.
func (t Topic) Create(ctx context.Context, options *TopicOptions) (Verdict, error) {
	return t.one(ctx, Intention{Operation: OpCreate, Options: options})
}

// Destroy ends the topic: its keys are gone, its offsets go on if it is made
// again.
func (t Topic) Destroy(ctx context.Context) (Verdict, error) {
	return t.one(ctx, Intention{Operation: OpDestroy})
}

// Alter replaces the options of the topic.
func (t Topic) Alter(ctx context.Context, options *TopicOptions) (Verdict, error) {
	return t.one(ctx, Intention{Operation: OpAlter, Options: options})
}

// Append writes a record without a key.
func (t Topic) Append(ctx context.Context, value []byte) (Verdict, error) {
	return t.one(ctx, Put(nil, value))
}

// Put writes a record and sets its key.
func (t Topic) Put(ctx context.Context, key, value []byte) (Verdict, error) {
	return t.one(ctx, Put(key, value))
}

// PutIf does the same if all conditions hold; else the verdict is INVALID with
// [ErrConflict], and its detail has the offset that was found.
func (t Topic) PutIf(ctx context.Context, key, value []byte, expect ...Expect) (Verdict, error) {
	return t.one(ctx, Put(key, value, expect...))
}

// Delete removes a key. It is VALID even if the key has no value.
func (t Topic) Delete(ctx context.Context, key []byte, expect ...Expect) (Verdict, error) {
	return t.one(ctx, Delete(key, expect...))
}

// Transaction makes all changes, in order, or none; every condition on a key
// names it by [Expect.Of].
func (t Topic) Transaction(ctx context.Context, changes []Change, expect ...Expect) (Verdict, error) {
	return t.one(ctx, Intention{Operation: OpTransaction, Steps: changes, Expect: expect})
}

// Batch carries out intentions together, each by itself: one may be VALID beside
// another that is not. Verdicts come in the same order.
func (t Topic) Batch(ctx context.Context, intentions ...Intention) ([]Verdict, error) {
	intentions = slices.Clone(intentions) // a caller's list is the caller's
	for at := range intentions {
		if intentions[at].Topic == "" {
			intentions[at].Topic = t.name
		}
	}
	return t.store.Submit(ctx, intentions...)
}

// Submit carries out intentions of any topics; see [Topic.Batch].
func (s *Store) Submit(ctx context.Context, intentions ...Intention) ([]Verdict, error) {
	return write(ctx, s, func(store storeHandle) ([]Verdict, error) {
		return nativeSubmit(store, intentions)
	})
}

// Send hands over intentions and does not wait for their verdicts. At a server it
// may wait until there is room for them.
func (s *Store) Send(ctx context.Context, intentions ...Intention) (*Pending, error) {
	late := false
	handle, err := open(ctx, s, func(store storeHandle) (pendingHandle, error) {
		return nativeSend(store, intentions)
	}, func(pending pendingHandle) {
		nativePendingFree(pending)
		late = true
	})
	switch {
	case late:
		return nil, indeterminate(ctx)
	case err != nil:
		return nil, err
	}
	return newPending(handle, len(intentions)), nil
}

func (t Topic) one(ctx context.Context, intention Intention) (Verdict, error) {
	intention.Topic = t.name
	verdicts, err := t.store.Submit(ctx, intention)
	if err != nil {
		return Verdict{}, err
	}
	return verdicts[0], nil
}

// Get is the record with the value of a key, and whether there is one. It may
// be kept.
func (t Topic) Get(ctx context.Context, key []byte) (Record, bool, error) {
	return t.record(ctx, func(store storeHandle) (pageHandle, error) {
		return nativeGet(store, t.name, key)
	})
}

// At is the record at an offset, and whether it is there. It may be kept.
func (t Topic) At(ctx context.Context, offset uint64) (Record, bool, error) {
	return t.record(ctx, func(store storeHandle) (pageHandle, error) {
		return nativeAt(store, t.name, offset)
	})
}

// cloneBytes is the size up to which a single record is copied into memory of
// Go; a longer one keeps its page.
const cloneBytes = 64 << 10

func (t Topic) record(ctx context.Context, find func(storeHandle) (pageHandle, error)) (Record, bool, error) {
	handle, err := ask(ctx, t.store, find)
	if err != nil || handle == nil {
		return Record{}, false, err
	}
	page := viewOf(handle)
	if len(page.spans) == 1 && page.spans[0].length <= cloneBytes {
		record := Record{page.At(0)}.Clone()
		nativePageRelease(handle)
		return record, true, nil
	}
	return Record{page.guarded().At(0)}, true, nil
}

// Info is what a topic is now.
type Info struct {
	// Live says that the topic is there; else it was destroyed.
	Live bool
	// ID is its number in the store, Incarnation the intention that made it.
	ID, Incarnation uint64
	// First is the offset of the oldest record that is there, Last that of the
	// newest one.
	First, Last uint64
	// Keys is the number of keys with a value, Bytes the size of the records.
	Keys, Bytes uint64
}

// Info is what the topic is now, and whether it ever was made.
func (t Topic) Info(ctx context.Context) (Info, bool, error) {
	type answer struct {
		info  Info
		there bool
	}
	got, err := ask(ctx, t.store, func(store storeHandle) (answer, error) {
		info, there, err := nativeTopicDescribe(store, t.name)
		return answer{info, there}, err
	})
	return got.info, got.there, err
}

// From says where reading begins.
type From struct {
	kind  uint32
	value uint64
}

// FromStart begins with the first record that is there.
func FromStart() From { return From{} }

// FromEnd begins after the newest record.
func FromEnd() From { return From{kind: 1} }

// After begins with the first record after an offset.
func After(offset uint64) From { return From{kind: 2, value: offset} }

// Last begins so many offsets before the end.
func Last(records uint64) From { return From{kind: 3, value: records} }

// Since begins with the first record of a time or later.
func Since(begin time.Time) From {
	return From{kind: 4, value: uint64(max(begin.UnixMilli(), 0))}
}

// ParseFrom reads a position: "start", "end", an offset (that record is the
// first one), "-N" for the last N records, a time ago with its unit ("10m",
// "2d"), "today", "yesterday", a date in UTC ("2026-11-01") or a time of
// RFC 3339. The error of any other text has the code [ErrBadOption].
func ParseFrom(text string) (From, error) { return nativePosition(text) }

// Pages are the records from a place to the newest one, as they lie together.
// Each page is the receiver's, to be released.
func (t Topic) Pages(ctx context.Context, from From) iter.Seq2[*Page, error] {
	return t.read(ctx, from, false)
}

// ListenPages are the same, and go on: they wait for new records until the
// context ends, which is then the last error. The topic need not be there yet.
func (t Topic) ListenPages(ctx context.Context, from From) iter.Seq2[*Page, error] {
	return t.read(ctx, from, true)
}

// Records are the records of [Topic.Pages]; each is good until the end of the
// loop body.
func (t Topic) Records(ctx context.Context, from From) iter.Seq2[Record, error] {
	return recordsOf(t.read(ctx, from, false))
}

// Listen are the records of [Topic.ListenPages]; each is good until the end of
// the loop body.
func (t Topic) Listen(ctx context.Context, from From) iter.Seq2[Record, error] {
	return recordsOf(t.read(ctx, from, true))
}

func (t Topic) read(ctx context.Context, from From, wait bool) iter.Seq2[*Page, error] {
	return func(yield func(*Page, error) bool) {
		reader, err := t.reader(ctx, from, wait)
		if err != nil {
			yield(nil, err)
			return
		}
		defer reader.Close()
		for {
			var page *Page
			if wait {
				page, err = reader.Next(ctx)
			} else {
				page, err = reader.TryNext(ctx)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if page == nil || !yield(page, nil) {
				return
			}
		}
	}
}

// recordsOf hands out the records of pages and releases each page after its
// last one.
func recordsOf(pages iter.Seq2[*Page, error]) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for page, err := range pages {
			if err != nil {
				yield(Record{}, err)
				return
			}
			if !eachRecord(page, yield) {
				return
			}
		}
	}
}

func eachRecord(page *Page, yield func(Record, error) bool) bool {
	defer page.Release()
	for at := range page.records {
		if !yield(Record{Item{page: page, at: at}}, nil) {
			return false
		}
	}
	return true
}

// ScanOptions say which keys a page of a scan has.
type ScanOptions struct {
	// Prefix is what the keys begin with.
	Prefix []byte
	// After is the key after which the page begins; nil: with the first one.
	After []byte
	// Limit is the largest number of keys; 0: 1,000.
	Limit int
	// KeysOnly leaves values out: records have key and offset alone.
	KeysOnly bool
}

// ScanPage is one page of keys in byte order, to be released; nil when there is
// none.
func (t Topic) ScanPage(ctx context.Context, options ScanOptions) (*Page, error) {
	handle, err := ask(ctx, t.store, func(store storeHandle) (pageHandle, error) {
		return nativeScan(store, t.name, &options)
	})
	if err != nil || handle == nil {
		return nil, err
	}
	return adopt(handle), nil
}

// Scan are the keys that begin with a prefix, in byte order, with their values;
// each record is good until the end of the loop body.
func (t Topic) Scan(ctx context.Context, prefix []byte) iter.Seq2[Record, error] {
	return recordsOf(func(yield func(*Page, error) bool) {
		options := ScanOptions{Prefix: prefix}
		for {
			page, err := t.ScanPage(ctx, options)
			if err != nil {
				yield(nil, err)
				return
			}
			if page == nil {
				return
			}
			options.After = bytes.Clone(Record{page.At(page.Len() - 1)}.Key())
			if !yield(page, nil) {
				return
			}
		}
	})
}
