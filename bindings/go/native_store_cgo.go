//go:build cgo

package weir

/*
#cgo noescape weir_open
#cgo nocallback weir_open
#cgo noescape weir_connect
#cgo nocallback weir_connect
#cgo noescape weir_describe
#cgo nocallback weir_describe
#cgo noescape weir_sync
#cgo nocallback weir_sync
#cgo noescape weir_within
#cgo nocallback weir_within
#cgo noescape weir_with_consistency
#cgo nocallback weir_with_consistency
#cgo noescape weir_cancel
#cgo nocallback weir_cancel
#cgo noescape weir_close
#cgo nocallback weir_close
#cgo noescape weir_submit
#cgo nocallback weir_submit
#cgo noescape weir_send
#cgo nocallback weir_send
#cgo noescape weir_pending_wait
#cgo nocallback weir_pending_wait
#cgo noescape weir_pending_received
#cgo nocallback weir_pending_received
#cgo noescape weir_pending_free
#cgo nocallback weir_pending_free
#cgo noescape weir_session_open
#cgo nocallback weir_session_open
#cgo noescape weir_session_submit
#cgo nocallback weir_session_submit
#cgo noescape weir_session_next_nonce
#cgo nocallback weir_session_next_nonce
#cgo noescape weir_session_resume
#cgo nocallback weir_session_resume
#cgo noescape weir_session_cancel
#cgo nocallback weir_session_cancel
#cgo noescape weir_session_free
#cgo nocallback weir_session_free
#cgo noescape weir_topic_ensure
#cgo nocallback weir_topic_ensure
#cgo noescape weir_topic_describe
#cgo nocallback weir_topic_describe
#cgo noescape weir_topics
#cgo nocallback weir_topics
#cgo noescape weir_get
#cgo nocallback weir_get
#cgo noescape weir_at
#cgo nocallback weir_at
#cgo noescape weir_scan
#cgo nocallback weir_scan
#cgo noescape weir_position
#cgo nocallback weir_position
#cgo noescape weir_reader_open
#cgo nocallback weir_reader_open
#cgo noescape weir_reader_next
#cgo nocallback weir_reader_next
#cgo noescape weir_reader_cancel
#cgo nocallback weir_reader_cancel
#cgo noescape weir_reader_free
#cgo nocallback weir_reader_free
#cgo noescape weir_group_open
#cgo nocallback weir_group_open
#cgo noescape weir_group_claim
#cgo nocallback weir_group_claim
#cgo noescape weir_group_settle
#cgo nocallback weir_group_settle
#cgo noescape weir_group_step
#cgo nocallback weir_group_step
#cgo noescape weir_group_describe
#cgo nocallback weir_group_describe
#cgo noescape weir_group_cancel
#cgo nocallback weir_group_cancel
#cgo noescape weir_group_free
#cgo nocallback weir_group_free
#cgo noescape weir_page_release
#cgo nocallback weir_page_release
#cgo noescape weir_page_describe
#cgo nocallback weir_page_describe
#include <weir.h>
*/
import "C"

import (
	"time"
	"unsafe"
)

// Handles are values of the library; this package does not dereference them.
type (
	storeHandle   = *C.weir
	pendingHandle = *C.weir_pending
	sessionHandle = *C.weir_session
	readerHandle  = *C.weir_reader
	groupHandle   = *C.weir_group
)

// storeInfo describes a store.
type storeInfo struct {
	remote bool
	id     [16]byte
}

// millis converts a duration to milliseconds, rounded up; 0 if it is negative.
func millis(span time.Duration) C.uint64_t {
	count := span / time.Millisecond
	if span%time.Millisecond > 0 {
		count++
	}
	return C.uint64_t(max(count, 0))
}

func nativeOpen(directory string, o *OpenOptions) (storeHandle, error) {
	if err := checkVersion(); err != nil {
		return nil, err
	}
	var pin pinned
	defer pin.Unpin()
	options := C.weir_open_options{
		struct_size: C.sizeof_weir_open_options,
		durability:  C.uint32_t(o.Durability),
		interval_ms: millis(o.Interval),
		flags: flag(o.Existing, C.WEIR_OPEN_EXISTING) |
			flag(o.OrConnect, C.WEIR_OPEN_OR_CONNECT),
		program:            pin.text(o.Program),
		snapshot_log_bytes: C.uint64_t(o.SnapshotLogBytes),
		log_segment_bytes:  C.uint64_t(o.LogSegmentBytes),
		key_bytes_max:      C.uint64_t(o.KeyBytes),
		value_bytes_max:    C.uint64_t(o.ValueBytes),
	}
	var store *C.weir
	var callError C.weir_error
	err := errorIfFailed(C.weir_open(textOf(directory), &options, &store, &callError), &callError)
	return store, err
}

func nativeConnect(address string, o *ConnectOptions) (storeHandle, error) {
	if err := checkVersion(); err != nil {
		return nil, err
	}
	var pin pinned
	defer pin.Unpin()
	options := C.weir_connect_options{
		struct_size: C.sizeof_weir_connect_options,
		flags:       flag(o.Received, C.WEIR_CONNECT_RECEIVED),
		token:       pin.text(o.Token),
		authority:   pin.text(o.Authority),
		certificate: pin.text(o.Certificate),
		key:         pin.text(o.Key),
		agent:       pin.text(o.Agent),
		connect_ms:  millis(o.ConnectTimeout),
		patience_ms: millis(o.Patience),
	}
	var store *C.weir
	var callError C.weir_error
	err := errorIfFailed(C.weir_connect(textOf(address), &options, &store, &callError), &callError)
	return store, err
}

func nativeDescribe(store storeHandle) (storeInfo, error) {
	info := C.weir_info{struct_size: C.sizeof_weir_info}
	var callError C.weir_error
	if result := C.weir_describe(store, &info, &callError); result < 0 {
		return storeInfo{}, errorOf(result, &callError)
	}
	found := storeInfo{remote: info.place == 2}
	for at := range found.id {
		found.id[at] = byte(info.store_id[at])
	}
	return found, nil
}

func nativeSync(store storeHandle) error {
	var callError C.weir_error
	return errorIfFailed(C.weir_sync(store, &callError), &callError)
}

// nativeWithin returns a second handle of a store; a negative limit means no deadline.
func nativeWithin(store storeHandle, limit time.Duration) (storeHandle, error) {
	time := C.uint64_t(C.WEIR_FOREVER)
	if limit >= 0 {
		time = millis(limit)
	}
	var own *C.weir
	var callError C.weir_error
	err := errorIfFailed(C.weir_within(store, time, &own, &callError), &callError)
	return own, err
}

// nativeWithConsistency returns a second handle of a store.
func nativeWithConsistency(store storeHandle, consistency Consistency) (storeHandle, error) {
	var own *C.weir
	var callError C.weir_error
	err := errorIfFailed(C.weir_with_consistency(store, C.uint32_t(consistency), &own, &callError), &callError)
	return own, err
}

func nativeCancel(store storeHandle) { C.weir_cancel(store) }

func nativeClose(store storeHandle) error {
	var callError C.weir_error
	return errorIfFailed(C.weir_close(store, &callError), &callError)
}

func nativeTopics(store storeHandle, withDestroyed bool) ([]string, error) {
	var handle *C.weir_page
	var callError C.weir_error
	if result := C.weir_topics(store, flag(withDestroyed, 1), &handle, &callError); result < 0 {
		return nil, errorOf(result, &callError)
	}
	if handle == nil {
		return nil, nil
	}
	defer C.weir_page_release(handle)
	page := viewOf(handle)
	names := make([]string, 0, page.Len())
	for item := range page.Items() {
		names = append(names, string(item.Bytes()))
	}
	return names, nil
}

// stateMemory is the state of a program that is its memory.
const stateMemory = 3

// topicOptions fills a structure whose memory is valid as long as pin.
func topicOptions(pin *pinned, o *TopicOptions) *C.weir_topic_options {
	if o == nil {
		return nil
	}
	options := &C.weir_topic_options{
		struct_size: C.sizeof_weir_topic_options,
		compaction:  flag(o.Latest, 1),
		state:       flag(o.MemoryState, stateMemory),
	}
	set := func(from *uint64, into *C.uint64_t, bit C.uint32_t) {
		if from != nil {
			*into = C.uint64_t(*from)
			options.set |= bit
		}
	}
	set(o.TombstoneTTLMS, &options.tombstone_ttl_ms, C.WEIR_TOPIC_TOMBSTONE_TTL_MS)
	set(o.CompactionLagMS, &options.compaction_lag_ms, C.WEIR_TOPIC_COMPACTION_LAG_MS)
	set(o.KeyBytes, &options.key_bytes_max, C.WEIR_TOPIC_KEY_BYTES_MAX)
	set(o.ValueBytes, &options.value_bytes_max, C.WEIR_TOPIC_VALUE_BYTES_MAX)
	set(o.Keys, &options.keys_max, C.WEIR_TOPIC_KEYS_MAX)
	set(o.RetentionAgeMS, &options.retention_age_ms, C.WEIR_TOPIC_RETENTION_AGE_MS)
	set(o.RetentionBytes, &options.retention_bytes, C.WEIR_TOPIC_RETENTION_BYTES)
	set(o.RetentionRecords, &options.retention_records, C.WEIR_TOPIC_RETENTION_RECORDS)
	set(o.Fuel, &options.fuel_max, C.WEIR_TOPIC_FUEL_MAX)
	set(o.MemoryBytes, &options.memory_bytes_max, C.WEIR_TOPIC_MEMORY_BYTES_MAX)
	set(o.Emits, &options.emits_max, C.WEIR_TOPIC_EMITS_MAX)
	set(o.EmitBytes, &options.emit_bytes_max, C.WEIR_TOPIC_EMIT_BYTES_MAX)
	set(o.StateEntries, &options.state_entries_max, C.WEIR_TOPIC_STATE_ENTRIES_MAX)
	set(o.StateBytes, &options.state_bytes_max, C.WEIR_TOPIC_STATE_BYTES_MAX)
	options.hold_for_groups, options.hold_for_groups_count = pin.texts(o.HoldForGroups)
	pin.Pin(options)
	return options
}

func nativeTopicEnsure(store storeHandle, topic string, o *TopicOptions) (bool, error) {
	var pin pinned
	defer pin.Unpin()
	var created C.uint32_t
	var callError C.weir_error
	options := topicOptions(&pin, o)
	err := errorIfFailed(C.weir_topic_ensure(store, textOf(topic), options, &created, &callError), &callError)
	return created != 0, err
}

func nativeTopicDescribe(store storeHandle, topic string) (Info, bool, error) {
	info := C.weir_topic_info{struct_size: C.sizeof_weir_topic_info}
	var callError C.weir_error
	result := C.weir_topic_describe(store, textOf(topic), &info, &callError)
	if result < 0 {
		return Info{}, false, errorOf(result, &callError)
	}
	if result == C.WEIR_ABSENT {
		return Info{}, false, nil
	}
	return Info{
		Live:        info.live != 0,
		ID:          uint64(info.id),
		Incarnation: uint64(info.incarnation),
		First:       uint64(info.first),
		Last:        uint64(info.last),
		Keys:        uint64(info.keys),
		Bytes:       uint64(info.bytes),
	}, true, nil
}

// intentionsOf fills structures whose memory is valid as long as pin.
func intentionsOf(pin *pinned, intentions []Intention) []C.weir_intention {
	filled := make([]C.weir_intention, len(intentions))
	for at := range intentions {
		from, into := &intentions[at], &filled[at]
		*into = C.weir_intention{
			struct_size: C.sizeof_weir_intention,
			operation:   C.uint32_t(from.Operation),
			topic:       pin.text(from.Topic),
			key:         pin.bytes(from.Key),
			value:       pin.bytes(from.Value),
			meta:        pin.bytes(from.Meta),
			options:     topicOptions(pin, from.Options),
			code:        pin.bytes(from.Code),
			args:        pin.bytes(from.Args),
			replaced:    pin.bytes(from.Replaced),
		}
		if len(from.Expect) > 0 {
			expects := make([]C.weir_expect, len(from.Expect))
			for at, expect := range from.Expect {
				expects[at] = C.weir_expect{
					kind:    C.uint32_t(expect.kind),
					has_key: flag(expect.hasKey, 1),
					key:     pin.bytes(expect.key),
					offset:  C.uint64_t(expect.offset),
				}
			}
			pin.Pin(&expects[0])
			into.expects, into.expect_count = &expects[0], C.size_t(len(expects))
		}
		if len(from.Steps) > 0 {
			steps := make([]C.weir_step, len(from.Steps))
			for at, step := range from.Steps {
				steps[at] = C.weir_step{
					operation: C.WEIR_PUT,
					key:       pin.bytes(step.Key),
					value:     pin.bytes(step.Value),
					meta:      pin.bytes(step.Meta),
				}
				if step.Delete {
					steps[at].operation = C.WEIR_DELETE
				}
			}
			pin.Pin(&steps[0])
			into.steps, into.step_count = &steps[0], C.size_t(len(steps))
		}
	}
	return filled
}

// verdictsOf converts verdicts and their texts, and releases the texts.
func verdictsOf(filled []C.weir_verdict, texts *C.weir_page) []Verdict {
	verdicts := make([]Verdict, len(filled))
	for at, from := range filled {
		verdicts[at] = Verdict{
			Effect:    Effect(from.effect),
			Reason:    Code(abs(from.reason)),
			Intention: uint64(from.intention),
			Offset:    uint64(from.offset),
			Records:   uint32(from.records),
			Nonce:     uint64(from.nonce),
			Replayed:  from.flags&1 != 0,
			Fuel:      uint64(from.fuel),
			Detail: Detail{
				Kind:   DetailKind(from.detail_kind),
				Number: uint64(from.detail),
				Reason: Code(abs(from.detail_reason)),
			},
		}
	}
	if texts != nil {
		page := viewOf(texts)
		for at := range min(len(verdicts), page.Len()) {
			verdicts[at].Detail.Text = string(page.At(at).Bytes())
		}
		C.weir_page_release(texts)
	}
	return verdicts
}

func abs(number C.int32_t) C.int32_t { return max(number, -number) }

func nativeSubmit(store storeHandle, intentions []Intention) ([]Verdict, error) {
	var pin pinned
	defer pin.Unpin()
	filled := intentionsOf(&pin, intentions)
	verdicts := make([]C.weir_verdict, len(intentions))
	var texts *C.weir_page
	var callError C.weir_error
	result := C.weir_submit(store, unsafe.SliceData(filled), C.size_t(len(filled)),
		unsafe.SliceData(verdicts), &texts, &callError)
	if result < 0 {
		return nil, errorOf(result, &callError)
	}
	return verdictsOf(verdicts, texts), nil
}

func nativeSend(store storeHandle, intentions []Intention) (pendingHandle, error) {
	var pin pinned
	defer pin.Unpin()
	filled := intentionsOf(&pin, intentions)
	var pending *C.weir_pending
	var callError C.weir_error
	err := errorIfFailed(C.weir_send(store, unsafe.SliceData(filled), C.size_t(len(filled)), &pending, &callError), &callError)
	return pending, err
}

// nativePendingWait returns verdicts, or none if they did not arrive in time.
func nativePendingWait(pending pendingHandle, wait time.Duration, count int) ([]Verdict, error) {
	verdicts := make([]C.weir_verdict, count)
	var texts *C.weir_page
	var callError C.weir_error
	result := C.weir_pending_wait(pending, millis(wait), unsafe.SliceData(verdicts),
		C.size_t(count), &texts, &callError)
	switch {
	case result < 0:
		return nil, errorOf(result, &callError)
	case result == C.WEIR_TIMEOUT:
		return nil, nil
	}
	return verdictsOf(verdicts, texts), nil
}

// nativePendingReceived reports whether all intentions were queued in time.
func nativePendingReceived(pending pendingHandle, wait time.Duration) (bool, error) {
	var callError C.weir_error
	result := C.weir_pending_received(pending, millis(wait), &callError)
	if result < 0 {
		return false, errorOf(result, &callError)
	}
	return result == C.WEIR_OK, nil
}

func nativePendingFree(pending pendingHandle) { C.weir_pending_free(pending) }

func nativeSessionOpen(store storeHandle, client [16]byte) (sessionHandle, error) {
	var session *C.weir_session
	var callError C.weir_error
	err := errorIfFailed(C.weir_session_open(store, sliceOf(client[:]), &session, &callError), &callError)
	return session, err
}

func nativeSessionFree(session sessionHandle) { C.weir_session_free(session) }

func nativeSessionSubmit(session sessionHandle, intentions []Intention) ([]Verdict, error) {
	var pin pinned
	defer pin.Unpin()
	filled := intentionsOf(&pin, intentions)
	verdicts := make([]C.weir_verdict, len(intentions))
	var texts *C.weir_page
	var callError C.weir_error
	result := C.weir_session_submit(session, unsafe.SliceData(filled), C.size_t(len(filled)),
		unsafe.SliceData(verdicts), &texts, &callError)
	if result < 0 {
		return nil, errorOf(result, &callError)
	}
	return verdictsOf(verdicts, texts), nil
}

func nativeSessionSend(session sessionHandle, intentions []Intention) (pendingHandle, error) {
	var pin pinned
	defer pin.Unpin()
	filled := intentionsOf(&pin, intentions)
	var pending *C.weir_pending
	var callError C.weir_error
	err := errorIfFailed(C.weir_session_send(session, unsafe.SliceData(filled), C.size_t(len(filled)), &pending, &callError), &callError)
	return pending, err
}

func nativeSessionCancel(session sessionHandle) { C.weir_session_cancel(session) }

func nativeSessionNextNonce(session sessionHandle) (uint64, error) {
	var nonce C.uint64_t
	var callError C.weir_error
	err := errorIfFailed(C.weir_session_next_nonce(session, &nonce, &callError), &callError)
	return uint64(nonce), err
}

func nativeSessionResume(session sessionHandle, nonce uint64) error {
	var callError C.weir_error
	return errorIfFailed(C.weir_session_resume(session, C.uint64_t(nonce), &callError), &callError)
}

// nativeGet returns a page with one record, or none.
func nativeGet(store storeHandle, topic string, key []byte) (pageHandle, error) {
	var page *C.weir_page
	var callError C.weir_error
	err := errorIfFailed(C.weir_get(store, textOf(topic), sliceOf(key), &page, &callError), &callError)
	return page, err
}

// nativeAt returns a page with the record at an offset, or none.
func nativeAt(store storeHandle, topic string, offset uint64) (pageHandle, error) {
	var page *C.weir_page
	var callError C.weir_error
	err := errorIfFailed(C.weir_at(store, textOf(topic), C.uint64_t(offset), &page, &callError), &callError)
	return page, err
}

// nativeScan returns a page of keys, or none after the last key.
func nativeScan(store storeHandle, topic string, o *ScanOptions) (pageHandle, error) {
	var page *C.weir_page
	var callError C.weir_error
	flags := flag(o.After != nil, C.WEIR_SCAN_AFTER) | flag(!o.KeysOnly, C.WEIR_SCAN_VALUES)
	err := errorIfFailed(C.weir_scan(store, textOf(topic), sliceOf(o.Prefix), sliceOf(o.After),
		C.uint64_t(o.Limit), flags, &page, &callError), &callError)
	return page, err
}

// nativePosition parses a position.
func nativePosition(text string) (From, error) {
	var kind C.uint32_t
	var value C.uint64_t
	var callError C.weir_error
	err := errorIfFailed(C.weir_position(textOf(text), &kind, &value, &callError), &callError)
	return From{kind: uint32(kind), value: uint64(value)}, err
}

func nativeReaderOpen(store storeHandle, topic string, from From, wait bool) (readerHandle, error) {
	options := C.weir_read_options{
		struct_size: C.sizeof_weir_read_options,
		from:        C.uint32_t(from.kind),
		value:       C.uint64_t(from.value),
		flags:       flag(wait, C.WEIR_READ_AWAIT),
	}
	var reader *C.weir_reader
	var callError C.weir_error
	err := errorIfFailed(C.weir_reader_open(store, textOf(topic), &options, &reader, &callError), &callError)
	return reader, err
}

// nativeReaderNext returns a page, or none if no record arrived in time.
func nativeReaderNext(reader readerHandle, wait time.Duration) (pageHandle, error) {
	var page *C.weir_page
	var callError C.weir_error
	err := errorIfFailed(C.weir_reader_next(reader, millis(wait), &page, &callError), &callError)
	return page, err
}

func nativeReaderCancel(reader readerHandle) { C.weir_reader_cancel(reader) }

func nativeReaderFree(reader readerHandle) { C.weir_reader_free(reader) }

func nativeGroupOpen(store storeHandle, topic, name string, mode GroupMode, o *GroupOptions) (groupHandle, error) {
	var pin pinned
	defer pin.Unpin()
	options := C.weir_group_options{
		struct_size:    C.sizeof_weir_group_options,
		mode:           C.uint32_t(mode),
		flags:          flag(o.Existing, C.WEIR_GROUP_EXISTING),
		member:         pin.text(o.Member),
		claim_lease_ms: millis(o.ClaimLease),
		from:           C.uint32_t(o.Start.kind),
		value:          C.uint64_t(o.Start.value),
		lease_ms:       millis(o.Lease),
		attempts_max:   C.uint32_t(o.Attempts),
		pending_max:    C.uint32_t(o.Pending),
		dead_letters:   pin.text(o.DeadLetters),
	}
	var group *C.weir_group
	var callError C.weir_error
	err := errorIfFailed(C.weir_group_open(store, textOf(topic), textOf(name), &options, &group, &callError), &callError)
	return group, err
}

func nativeGroupFree(group groupHandle) { C.weir_group_free(group) }

func nativeGroupCancel(group groupHandle) { C.weir_group_cancel(group) }

// nativeGroupClaim returns a page, or none if no record arrived in time.
func nativeGroupClaim(group groupHandle, limit int, wait time.Duration) (pageHandle, error) {
	var page *C.weir_page
	var callError C.weir_error
	err := errorIfFailed(C.weir_group_claim(group, C.uint64_t(limit), millis(wait), &page, &callError), &callError)
	return page, err
}

func nativeGroupSettle(group groupHandle, claims []Claimed, verb uint32, span time.Duration, reason string) ([]uint64, error) {
	lost := make([]uint64, len(claims))
	var count C.size_t
	var callError C.weir_error
	result := C.weir_group_settle(group, (*C.weir_claim)(unsafe.Pointer(unsafe.SliceData(claims))),
		C.size_t(len(claims)), C.uint32_t(verb), millis(span), textOf(reason),
		(*C.uint64_t)(unsafe.SliceData(lost)), &count, &callError)
	if result < 0 {
		return nil, errorOf(result, &callError)
	}
	return lost[:count], nil
}

func nativeGroupStep(group groupHandle, verb uint32, to From) error {
	var callError C.weir_error
	from, value := C.uint32_t(to.kind), C.uint64_t(to.value)
	return errorIfFailed(C.weir_group_step(group, C.uint32_t(verb), from, value, &callError), &callError)
}

func nativeGroupDescribe(group groupHandle) (GroupInfo, error) {
	info := C.weir_group_info{struct_size: C.sizeof_weir_group_info}
	var callError C.weir_error
	if result := C.weir_group_describe(group, &info, &callError); result < 0 {
		return GroupInfo{}, errorOf(result, &callError)
	}
	return GroupInfo{
		Mode:                 GroupMode(info.mode),
		Cursor:               uint64(info.cursor),
		Frontier:             uint64(info.frontier),
		Last:                 uint64(info.last),
		Lag:                  uint64(info.lag),
		Leased:               uint64(info.leased),
		Waiting:              uint64(info.waiting),
		Redeliveries:         uint64(info.redeliveries),
		DeadLettered:         uint64(info.dead_lettered),
		UnwrittenDeadLetters: uint64(info.unwritten_dead_letters),
	}, nil
}
