package weir

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"time"
)

// Topic is a handle of a topic of a [Store]; the topic need not exist. Copying it costs
// nothing. Any number of goroutines may use it.
//
// A write blocks until its verdict. At the default durability, the write is then
// synced to disk. If the context of a write ends first, the write may still be
// executed, and the error is [ErrIndeterminate].
type Topic struct {
	store *Store
	name  string
}

// Name returns the name of the topic.
func (t Topic) Name() string { return t.name }

// Ensure creates the topic if it does not exist. Options, which may be nil, apply only
// to a topic that this call creates. Returns true if this call created the topic.
func (t Topic) Ensure(ctx context.Context, options *TopicOptions) (bool, error) {
	return read(ctx, t.store, func(store storeHandle) (bool, error) {
		return nativeTopicEnsure(store, t.name, options)
	})
}

// Create creates the topic. If it exists, the verdict is INVALID with [ErrTopicExists].
func (t Topic) Create(ctx context.Context, options *TopicOptions) (Verdict, error) {
	return t.one(ctx, Intention{Operation: OpCreate, Options: options})
}

// Destroy destroys the topic and its keys. If the topic is created again, its offsets
// continue after the old ones.
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

// PutIf writes the record if all conditions hold. Otherwise the verdict is INVALID with
// [ErrConflict], and its detail has the offset that was found.
func (t Topic) PutIf(ctx context.Context, key, value []byte, expect ...Expect) (Verdict, error) {
	return t.one(ctx, Put(key, value, expect...))
}

// Delete deletes a key. The verdict is VALID even if the key has no value.
func (t Topic) Delete(ctx context.Context, key []byte, expect ...Expect) (Verdict, error) {
	return t.one(ctx, Delete(key, expect...))
}

// Transaction executes all changes, in order, or none. A condition on a key names the
// key with [Expect.Of].
func (t Topic) Transaction(ctx context.Context, changes []Change, expect ...Expect) (Verdict, error) {
	return t.one(ctx, Intention{Operation: OpTransaction, Steps: changes, Expect: expect})
}

// Batch executes several intentions independently: some may be VALID and others not.
// Verdicts have the order of the intentions.
func (t Topic) Batch(ctx context.Context, intentions ...Intention) ([]Verdict, error) {
	intentions = slices.Clone(intentions) // do not change the caller's slice
	for at := range intentions {
		if intentions[at].Topic == "" {
			intentions[at].Topic = t.name
		}
	}
	return t.store.Submit(ctx, intentions...)
}

// Submit executes intentions of any topics; see [Topic.Batch].
func (s *Store) Submit(ctx context.Context, intentions ...Intention) ([]Verdict, error) {
	return write(ctx, s, func(store storeHandle) ([]Verdict, error) {
		return nativeSubmit(store, intentions)
	})
}

// Send sends intentions and does not wait for their verdicts. At a server, it may block
// until there is room for them.
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
	return newPending(handle, s, len(intentions)), nil
}

func (t Topic) one(ctx context.Context, intention Intention) (Verdict, error) {
	intention.Topic = t.name
	verdicts, err := t.store.Submit(ctx, intention)
	if err != nil {
		return Verdict{}, err
	}
	return verdicts[0], nil
}

// Get returns the record with the current value of a key, and whether there is one.
// The record is a copy in Go memory, which the caller need not release.
func (t Topic) Get(ctx context.Context, key []byte) (Record, bool, error) {
	return t.record(ctx, func(store storeHandle) (pageHandle, error) {
		return nativeGet(store, t.name, key)
	})
}

// At returns the record at an offset, and whether it exists. The record is a copy in Go
// memory, which the caller need not release.
func (t Topic) At(ctx context.Context, offset uint64) (Record, bool, error) {
	return t.record(ctx, func(store storeHandle) (pageHandle, error) {
		return nativeAt(store, t.name, offset)
	})
}

func (t Topic) record(ctx context.Context, find func(storeHandle) (pageHandle, error)) (Record, bool, error) {
	handle, err := read(ctx, t.store, find)
	if err != nil || handle == nil {
		return Record{}, false, err
	}
	// The caller has no page to release, so views must stay valid: the record is a copy.
	record := Record{viewOf(handle).At(0)}.Clone()
	nativePageRelease(handle)
	return record, true, nil
}

// Info is the state of a topic.
type Info struct {
	// Live: the topic exists; otherwise it was destroyed.
	Live bool
	// ID is the number of the topic in the store. Incarnation is the intention that
	// created it.
	ID, Incarnation uint64
	// First is the offset of the oldest retained record, Last that of the newest
	// record.
	First, Last uint64
	// Keys is the number of keys with a value, Bytes the size of the records.
	Keys, Bytes uint64
}

// Info returns the state of the topic, and whether it was ever created.
func (t Topic) Info(ctx context.Context) (Info, bool, error) {
	type answer struct {
		info   Info
		exists bool
	}
	got, err := read(ctx, t.store, func(store storeHandle) (answer, error) {
		info, exists, err := nativeTopicDescribe(store, t.name)
		return answer{info, exists}, err
	})
	return got.info, got.exists, err
}

// From is a start position for reading.
type From struct {
	kind  uint32
	value uint64
}

// FromStart starts with the first retained record.
func FromStart() From { return From{} }

// FromEnd starts after the newest record.
func FromEnd() From { return From{kind: 1} }

// After starts with the first record after an offset.
func After(offset uint64) From { return From{kind: 2, value: offset} }

// Last starts at the given number of offsets before the end.
func Last(records uint64) From { return From{kind: 3, value: records} }

// Since starts with the first record at or after a time.
func Since(begin time.Time) From {
	return From{kind: 4, value: uint64(max(begin.UnixMilli(), 0))}
}

// ParseFrom parses a position: "start", "end", an offset (the first record), "-N" (the
// last N records), an age with its unit ("10m", "2d"), "today", "yesterday", a date in
// UTC ("2026-11-01") or a time in RFC 3339. For other text, the error has the code
// [ErrBadOption].
func ParseFrom(text string) (From, error) { return nativePosition(text) }

// Pages iterates over the records from a position to the newest one, in pages of
// adjacent records. The caller must release each page.
func (t Topic) Pages(ctx context.Context, from From) iter.Seq2[*Page, error] {
	return t.read(ctx, from, false)
}

// FollowPages is Pages, but waits for new records at the end, until the context ends;
// the last error is then that of the context. The topic may be created later.
func (t Topic) FollowPages(ctx context.Context, from From) iter.Seq2[*Page, error] {
	return t.read(ctx, from, true)
}

// Records iterates over the records of [Topic.Pages]. Each record is valid within the
// loop body only.
func (t Topic) Records(ctx context.Context, from From) iter.Seq2[Record, error] {
	return recordsOf(t.read(ctx, from, false))
}

// Follow iterates over the records of [Topic.FollowPages]. Each record is valid within
// the loop body only.
func (t Topic) Follow(ctx context.Context, from From) iter.Seq2[Record, error] {
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

// recordsOf yields the records of pages, and releases each page after its last record.
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

// ScanOptions select the keys of a page of a scan.
type ScanOptions struct {
	// Prefix is the prefix of the keys.
	Prefix []byte
	// After is the key after which the page starts; nil: with the first key.
	After []byte
	// Limit is the largest number of keys; 0: 1,000.
	Limit int
	// KeysOnly omits values: records have only key and offset.
	KeysOnly bool
}

// ScanPage returns one page of keys in byte order, which the caller must release; nil
// if there are no more keys.
func (t Topic) ScanPage(ctx context.Context, options ScanOptions) (*Page, error) {
	if err := negative("Limit", options.Limit); err != nil {
		return nil, err
	}
	handle, err := read(ctx, t.store, func(store storeHandle) (pageHandle, error) {
		return nativeScan(store, t.name, &options)
	})
	if err != nil || handle == nil {
		return nil, err
	}
	return newPage(handle), nil
}

// Scan iterates over the keys with a prefix, in byte order, with their values. Each
// record is valid within the loop body only.
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
