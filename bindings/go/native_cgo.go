//go:build cgo

package weir

/*
#cgo pkg-config: weir
#cgo noescape weir_abi_version
#cgo nocallback weir_abi_version
#cgo noescape weir_query_open
#cgo nocallback weir_query_open
#cgo noescape weir_query_open_topics
#cgo nocallback weir_query_open_topics
#cgo noescape weir_query_source_name
#cgo nocallback weir_query_source_name
#cgo noescape weir_query_source
#cgo nocallback weir_query_source
#cgo noescape weir_query_enqueue_copy
#cgo nocallback weir_query_enqueue_copy
#cgo nocallback weir_query_enqueue_loan
#cgo noescape weir_query_enqueue_buffer
#cgo nocallback weir_query_enqueue_buffer
#cgo noescape weir_query_finish
#cgo nocallback weir_query_finish
#cgo noescape weir_query_abandon
#cgo nocallback weir_query_abandon
#cgo noescape weir_query_replace
#cgo nocallback weir_query_replace
#cgo noescape weir_query_watermark
#cgo nocallback weir_query_watermark
#cgo noescape weir_query_needs
#cgo nocallback weir_query_needs
#cgo noescape weir_query_token
#cgo nocallback weir_query_token
#cgo noescape weir_query_explain
#cgo nocallback weir_query_explain
#cgo noescape weir_query_cancel
#cgo nocallback weir_query_cancel
#cgo noescape weir_query_free
#cgo nocallback weir_query_free
#cgo noescape weir_page_describe
#cgo nocallback weir_page_describe
#cgo noescape weir_page_get
#cgo nocallback weir_page_get
#cgo noescape weir_page_values
#cgo nocallback weir_page_values
#cgo noescape weir_find
#cgo nocallback weir_find
#cgo noescape weir_page_release
#cgo nocallback weir_page_release
#cgo noescape weir_buffer_new
#cgo nocallback weir_buffer_new
#cgo noescape weir_buffer_data
#cgo nocallback weir_buffer_data
#cgo noescape weir_buffer_free
#cgo nocallback weir_buffer_free
#cgo noescape weir_loans_new
#cgo nocallback weir_loans_new
#cgo noescape weir_loans_collect
#cgo nocallback weir_loans_collect
#cgo noescape weir_handles_open
#cgo nocallback weir_handles_open
#cgo noescape weir_build_info
#cgo nocallback weir_build_info
#cgo noescape weirgo_next
#cgo nocallback weirgo_next
#cgo noescape weirgo_release
#cgo nocallback weirgo_release
#include <weir.h>

// Combined calls, so that a Go program crosses into C only once.

static int32_t weirgo_next(weir_query *query, uint64_t wait, uint32_t items, uint64_t bytes,
                           weir_page **page, weir_page_info *info, weir_error *error) {
    int32_t result = wait > 0 ? weir_query_wait(query, wait, items, bytes, page, error)
                              : weir_query_next(query, items, bytes, page, error);
    if (result == WEIR_READY) {
        int32_t described = weir_page_describe(*page, info, error);
        if (described < 0) {
            return described;
        }
    }
    return result;
}

static int32_t weirgo_release(weir_page *page, weir_loans *loans, uint64_t *cookies, size_t capacity,
                              size_t *count) {
    weir_page_release(page);
    return weir_loans_collect(loans, cookies, capacity, count, NULL, NULL);
}
*/
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"
)

// Handles are values of the library; this package does not dereference them.
type (
	queryHandle  = *C.weir_query
	pageHandle   = *C.weir_page
	bufferHandle = *C.weir_buffer
)

// The layouts that page.go reads must equal those of the header.
const (
	_ = uint(unsafe.Sizeof(span{}) - C.sizeof_weir_item)
	_ = uint(C.sizeof_weir_item - unsafe.Sizeof(span{}))
	_ = uint(unsafe.Sizeof(stored{}) - C.sizeof_weir_record)
	_ = uint(C.sizeof_weir_record - unsafe.Sizeof(stored{}))
)

// checkVersion checks once that the library has the version with which this package was
// compiled.
var checkVersion = sync.OnceValue(func() error {
	got, want := uint32(C.weir_abi_version()), uint32(C.WEIR_ABI_VERSION)
	if isCompatible(got, want) {
		return nil
	}
	text := "the library has the interface %d.%d, this package needs %d.%d"
	return failure(ErrAbiMismatch, fmt.Sprintf(text, got>>16, got&0xffff, want>>16, want&0xffff))
})

func nativeHandlesOpen() uint64 { return uint64(C.weir_handles_open()) }

func nativeBuildInfo() string { return C.GoString(C.weir_build_info()) }

// sliceOf returns a view of bytes for the duration of a call.
func sliceOf(bytes []byte) C.weir_slice {
	return C.weir_slice{
		ptr: (*C.uint8_t)(unsafe.SliceData(bytes)),
		len: C.size_t(len(bytes)),
	}
}

// textOf returns a view of a string for the duration of a call.
func textOf(text string) C.weir_slice {
	return C.weir_slice{
		ptr: (*C.uint8_t)(unsafe.StringData(text)),
		len: C.size_t(len(text)),
	}
}

// pinned creates views inside structures, which cgo requires to be pinned.
type pinned struct{ runtime.Pinner }

// bytes returns no pointer to empty memory, which may belong to an array that is not pinned.
func (p *pinned) bytes(bytes []byte) C.weir_slice {
	if len(bytes) == 0 {
		return C.weir_slice{}
	}
	p.Pin(unsafe.SliceData(bytes))
	return sliceOf(bytes)
}

// text returns no pointer to empty memory, as bytes does.
func (p *pinned) text(text string) C.weir_slice {
	if len(text) == 0 {
		return C.weir_slice{}
	}
	p.Pin(unsafe.StringData(text))
	return textOf(text)
}

func (p *pinned) fields(fields []Field) (*C.weir_param, C.size_t) {
	if len(fields) == 0 {
		return nil, 0
	}
	params := make([]C.weir_param, len(fields))
	for at, field := range fields {
		params[at] = C.weir_param{name: p.text(field.Name), value: p.text(field.Value)}
	}
	p.Pin(&params[0])
	return &params[0], C.size_t(len(params))
}

func (p *pinned) texts(texts []string) (*C.weir_slice, C.size_t) {
	if len(texts) == 0 {
		return nil, 0
	}
	slices := make([]C.weir_slice, len(texts))
	for at, text := range texts {
		slices[at] = p.text(text)
	}
	p.Pin(&slices[0])
	return &slices[0], C.size_t(len(slices))
}

// errorOf converts a negative result to an error.
func errorOf(result C.int32_t, callError *C.weir_error) error {
	err := &Error{Code: Code(-result), Source: -1, Offset: NoOffset}
	if callError == nil || callError.code != result {
		return err
	}
	err.Message = C.GoString(&callError.message[0])
	err.Offset = uint64(callError.offset)
	err.Detail = uint32(callError.detail)
	if callError.source != C.WEIR_NO_SOURCE {
		err.Source = int(callError.source)
	}
	return err
}

// errorIfFailed converts a negative result to an error; other results give nil.
func errorIfFailed(result C.int32_t, callError *C.weir_error) error {
	if result > 0 {
		return nil
	}
	return errorOf(result, callError)
}

// capped converts a limit. A limit that is too large becomes the largest one.
func capped[T int | uint64](value T) C.uint32_t {
	return C.uint32_t(min(uint64(value), math.MaxUint32))
}

func flag(set bool, bit C.uint32_t) C.uint32_t {
	if set {
		return bit
	}
	return 0
}

func nativeQueryOpen(o *QueryOptions) (queryHandle, error) {
	if err := checkVersion(); err != nil {
		return nil, err
	}
	var pin pinned
	defer pin.Unpin()
	options := queryOptions(&pin, o)
	var query *C.weir_query
	var callError C.weir_error
	err := errorIfFailed(C.weir_query_open(&options, &query, &callError), &callError)
	return query, err
}

func nativeQueryOpenTopics(store storeHandle, t *TopicsOptions, o *QueryOptions) (queryHandle, error) {
	var pin pinned
	defer pin.Unpin()
	options := queryOptions(&pin, o)
	topics := C.weir_topics_options{
		struct_size: C.sizeof_weir_topics_options,
		view:        flag(t.Latest, 1),
		as_of:       C.uint64_t(t.AsOf),
		flags: flag(t.ResetEarliest, C.WEIR_TOPICS_RESET_EARLIEST) |
			flag(t.NoPushDown, C.WEIR_TOPICS_NO_PUSH_DOWN),
		from:        C.uint32_t(t.From.kind),
		patience_ms: millis(t.Patience),
		value:       C.uint64_t(t.From.value),
	}
	topics.topics, topics.topic_count = pin.texts(t.Topics)
	switch {
	case t.Follow:
		topics.end = C.WEIR_END_FOLLOW
	case t.AsOf > 0:
		topics.end = C.WEIR_END_AS_OF
	}
	for _, kind := range t.Kinds {
		// The library rejects the bits of unknown kinds.
		topics.kinds |= 1 << min(kind, 31)
	}
	var query *C.weir_query
	var callError C.weir_error
	err := errorIfFailed(C.weir_query_open_topics(store, &topics, &options, &query, &callError), &callError)
	return query, err
}

func nativeQuerySourceName(query queryHandle, source uint32) (string, error) {
	var handle *C.weir_page
	var callError C.weir_error
	result := C.weir_query_source_name(query, C.uint32_t(source), &handle, &callError)
	if result < 0 {
		return "", errorOf(result, &callError)
	}
	if handle == nil {
		return "", nil
	}
	defer C.weir_page_release(handle)
	return string(viewOf(handle).At(0).Bytes()), nil
}

// queryOptions fills a structure whose memory is valid as long as pin.
func queryOptions(pin *pinned, o *QueryOptions) C.weir_query_options {
	options := C.weir_query_options{
		struct_size: C.sizeof_weir_query_options,
		flags: flag(o.Distinct, C.WEIR_QUERY_DISTINCT) |
			flag(o.Strings == ByUTF16, C.WEIR_QUERY_UTF16) |
			flag(o.Complex == ComplexRank, C.WEIR_QUERY_RANK_COMPLEX) |
			flag(o.Missing == MissingDrop, C.WEIR_QUERY_DROP_MISSING) |
			flag(o.Budgets.PagesAhead != 0, C.WEIR_QUERY_PAGES_AHEAD) |
			flag(o.Limit != nil, C.WEIR_QUERY_LIMIT) |
			flag(o.Top != nil, C.WEIR_QUERY_TOP),
		where:            pin.text(o.Where),
		order:            pin.text(o.Order),
		_select:          pin.text(o.Select),
		group:            pin.text(o.Group),
		offset:           C.uint64_t(o.Offset),
		token:            pin.bytes(o.Token),
		mode:             C.uint32_t(o.Mode),
		level:            C.uint32_t(o.Level),
		on_bad_item:      C.uint32_t(o.BadItems),
		pages_ahead:      capped(max(o.Budgets.PagesAhead, 0)),
		buffer_bytes_max: C.uint64_t(o.Budgets.BufferBytes),
		sort_bytes_max:   C.uint64_t(o.Budgets.SortBytes),
		groups_max:       C.uint64_t(o.Budgets.Groups),
		distinct_max:     C.uint64_t(o.Budgets.Distinct),
		page_bytes_max:   C.uint64_t(o.Budgets.PageBytes),
		item_bytes_max:   C.uint64_t(o.Budgets.ItemBytes),
		page_bytes_hint:  C.uint64_t(o.Budgets.PageHint),
		sources_max:      capped(o.Budgets.Sources),
		depth_max:        C.uint32_t(o.Budgets.Depth),
	}
	if o.Limit != nil {
		options.limit = C.uint64_t(*o.Limit)
	}
	if o.Top != nil {
		options.top = C.uint64_t(*o.Top)
	}
	options.params, options.param_count = pin.fields(o.Params)
	return options
}

// sourceOptions fills a structure whose memory is valid as long as pin.
func sourceOptions(pin *pinned, o *SourceOptions) (C.weir_source_options, error) {
	options := C.weir_source_options{
		struct_size: C.sizeof_weir_source_options,
		flags: flag(o.Ordinal != nil, C.WEIR_SOURCE_ORDINAL) |
			flag(o.First != nil, C.WEIR_SOURCE_FIRST) |
			flag(o.Sorted, C.WEIR_SOURCE_SORTED) |
			flag(o.TrustOrder, C.WEIR_SOURCE_TRUST_ORDER) |
			flag(o.Unstable, C.WEIR_SOURCE_UNSTABLE) |
			flag(o.Partial, C.WEIR_SOURCE_PARTIAL) |
			flag(o.Bound != nil, C.WEIR_SOURCE_BOUND),
		name:  pin.text(o.Name),
		level: C.uint32_t(o.Level),
		first: pin.bytes(o.First),
		tie:   pin.text(o.Tie),
	}
	if o.Ordinal != nil {
		options.ordinal = C.uint64_t(*o.Ordinal)
	}
	options.meta, options.meta_count = pin.fields(o.Meta)
	options.bound, options.bound_count = pin.texts(o.Bound)
	if o.Shape != "" {
		var callError C.weir_error
		text := pin.text(o.Shape)
		if result := C.weir_shape(text, &options.shape, &options.member, &callError); result < 0 {
			return options, errorOf(result, &callError)
		}
	}
	return options, nil
}

func nativeQuerySource(query queryHandle, o *SourceOptions) (uint32, error) {
	var pin pinned
	defer pin.Unpin()
	options, err := sourceOptions(&pin, o)
	if err != nil {
		return 0, err
	}
	var number C.uint32_t
	var callError C.weir_error
	err = errorIfFailed(C.weir_query_source(query, &options, &number, &callError), &callError)
	return uint32(number), err
}

// nextOf returns the name of the next page, and whether there is one.
func nextOf(next []byte) (C.weir_slice, C.uint32_t) {
	return sliceOf(next), flag(next != nil, 1)
}

func nativeQueryEnqueue(query queryHandle, source uint32, page, next []byte) error {
	var callError C.weir_error
	name, has := nextOf(next)
	number := C.uint32_t(source)
	return errorIfFailed(C.weir_query_enqueue_copy(query, number, sliceOf(page), nil, name, has, &callError), &callError)
}

// nativeQueryMetas returns the names of the properties of framed items.
func nativeQueryMetas(query queryHandle) ([]string, error) {
	var handle *C.weir_page
	var callError C.weir_error
	result := C.weir_query_metas(query, &handle, &callError)
	switch {
	case result < 0:
		return nil, errorOf(result, &callError)
	case result == C.WEIR_ABSENT:
		return nil, nil
	}
	defer C.weir_page_release(handle)
	page := viewOf(handle)
	names := make([]string, page.Len())
	for at := range names {
		names[at] = string(page.At(at).Bytes())
	}
	return names, nil
}

func nativeQueryEnqueueFramed(
	query queryHandle, source uint32, page, next []byte, items []Frame, properties []Property,
) error {
	var pin pinned
	defer pin.Unpin()
	frames := C.weir_frames{span_count: C.size_t(len(items)), meta_count: C.size_t(len(properties))}
	spans := make([]C.weir_frame, len(items))
	for at, item := range items {
		spans[at] = C.weir_frame{offset: C.uint32_t(item.Offset), len: C.uint32_t(item.Len)}
	}
	metas := make([]C.weir_meta, len(properties))
	for at, property := range properties {
		metas[at] = C.weir_meta{
			kind: C.uint32_t(property.kind), len: C.uint32_t(property.length), number: C.uint64_t(property.number),
		}
	}
	if len(spans) > 0 {
		pin.Pin(&spans[0])
		frames.spans = &spans[0]
	}
	if len(metas) > 0 {
		pin.Pin(&metas[0])
		frames.metas = &metas[0]
	}
	var callError C.weir_error
	name, has := nextOf(next)
	return errorIfFailed(C.weir_query_enqueue_copy(query, C.uint32_t(source), sliceOf(page), &frames, name, has, &callError), &callError)
}

func nativeQueryEnqueuePinned(query queryHandle, source uint32, page, next []byte, cookie uint64) error {
	list, err := cookies()
	if err != nil {
		return err
	}
	var callError C.weir_error
	loan := C.weir_loan{loans: list, cookie: C.uint64_t(cookie)}
	name, has := nextOf(next)
	number := C.uint32_t(source)
	return errorIfFailed(C.weir_query_enqueue_loan(query, number, sliceOf(page), nil, name, has, &loan, &callError), &callError)
}

func nativeQueryEnqueueBuffer(query queryHandle, source uint32, buffer bufferHandle, used int, next []byte) error {
	var callError C.weir_error
	name, has := nextOf(next)
	number := C.uint32_t(source)
	return errorIfFailed(C.weir_query_enqueue_buffer(query, number, buffer, C.size_t(used), nil, name, has, &callError), &callError)
}

func nativeQueryFinish(query queryHandle, source uint32) error {
	var callError C.weir_error
	return errorIfFailed(C.weir_query_finish(query, C.uint32_t(source), &callError), &callError)
}

func nativeQueryAbandon(query queryHandle, name string) error {
	var pin pinned
	defer pin.Unpin()
	slices, _ := pin.texts([]string{name})
	var callError C.weir_error
	return errorIfFailed(C.weir_query_abandon(query, *slices, &callError), &callError)
}

func nativeQueryReplace(query queryHandle, source uint32, parts []SourceOptions) ([]uint32, error) {
	var pin pinned
	defer pin.Unpin()
	options := make([]C.weir_source_options, len(parts))
	for at := range parts {
		filled, err := sourceOptions(&pin, &parts[at])
		if err != nil {
			return nil, err
		}
		options[at] = filled
	}
	numbers := make([]uint32, len(parts))
	var callError C.weir_error
	err := errorIfFailed(C.weir_query_replace(query, C.uint32_t(source), unsafe.SliceData(options),
		C.size_t(len(parts)), (*C.uint32_t)(unsafe.SliceData(numbers)), &callError), &callError)
	if err != nil {
		return nil, err
	}
	return numbers, nil
}

func nativeQueryWatermark(query queryHandle, source uint32, keys []string) error {
	var pin pinned
	defer pin.Unpin()
	slices, count := pin.texts(keys)
	var callError C.weir_error
	return errorIfFailed(C.weir_query_watermark(query, C.uint32_t(source), slices, count, &callError), &callError)
}

// nativeQueryNext returns the step, and a page if one is ready.
func nativeQueryNext(query queryHandle, bounds Bounds, wait time.Duration) (Step, *Page, error) {
	var handle *C.weir_page
	var callError C.weir_error
	info := C.weir_page_info{struct_size: C.sizeof_weir_page_info}
	items, bytes := capped(bounds.Items), C.uint64_t(bounds.Bytes)
	switch result := C.weirgo_next(query, millis(wait), items, bytes, &handle, &info, &callError); {
	case result < 0:
		return 0, nil, errorOf(result, &callError)
	case result == C.WEIR_DONE:
		return Done, nil, nil
	case result == C.WEIR_TIMEOUT:
		return Needing, nil, nil
	case result == C.WEIR_NEED:
		// The caller requests the needs again if it wants them.
		C.weir_page_release(handle)
		return Needing, nil, nil
	}
	page := &Page{handle: handle}
	page.fill(&info)
	return Ready, page.withCleanup(), nil
}

func nativeQueryNeeds(query *Query) ([]Need, error) {
	var handle *C.weir_page
	var callError C.weir_error
	result := C.weir_query_needs(query.handle, &handle, &callError)
	if result < 0 {
		return nil, errorOf(result, &callError)
	}
	if handle == nil {
		return nil, nil
	}
	defer C.weir_page_release(handle)
	page := viewOf(handle)
	needs := make([]Need, len(page.spans))
	for at, span := range page.spans {
		needs[at] = Need{
			Source:   Source{query: query, number: span.source},
			Required: span.flags&flagRequired != 0,
			Hint:     page.hint,
		}
		if span.flags&flagContinuation != 0 {
			name := unsafe.Slice(span.ptr, span.length)
			needs[at].Continuation = append([]byte{}, name...)
		}
	}
	return needs, nil
}

// The texts of a query.
const (
	textToken = iota
	textExplain
)

func nativeQueryText(query queryHandle, which int) ([]byte, error) {
	var handle *C.weir_page
	var callError C.weir_error
	var result C.int32_t
	if which == textToken {
		result = C.weir_query_token(query, &handle, &callError)
	} else {
		result = C.weir_query_explain(query, &handle, &callError)
	}
	if result < 0 {
		return nil, errorOf(result, &callError)
	}
	defer C.weir_page_release(handle)
	return viewOf(handle).At(0).Clone(), nil
}

func nativeQueryCancel(query queryHandle) { C.weir_query_cancel(query) }

func nativeQueryFree(query queryHandle) { C.weir_query_free(query) }

// viewOf describes a page, which the library still owns.
func viewOf(handle pageHandle) *Page {
	info := C.weir_page_info{struct_size: C.sizeof_weir_page_info}
	page := &Page{handle: handle}
	if C.weir_page_describe(handle, &info, nil) > 0 {
		page.fill(&info)
	}
	return page
}

func (p *Page) fill(info *C.weir_page_info) {
	p.spans = unsafe.Slice((*span)(unsafe.Pointer(info.items)), info.item_count)
	p.records = unsafe.Slice((*stored)(unsafe.Pointer(info.records)), info.record_count)
	p.skipped, p.position = uint64(info.skipped), uint64(info.position)
	p.hint = uint64(info.hint)
}

func nativePageGet(page pageHandle, first, count int, path string, values [][]byte) ([][]byte, error) {
	var one [1]C.weir_slice
	found := one[:]
	if count > 1 {
		found = make([]C.weir_slice, count)
	}
	var callError C.weir_error
	result := C.weir_page_get(page, C.size_t(first), C.size_t(count), textOf(path), &found[0], &callError)
	if result < 0 {
		return values, errorOf(result, &callError)
	}
	return appendViews(values, found[:count]), nil
}

func nativePageValues(page pageHandle, count int, paths []string, values [][]byte) ([][]byte, error) {
	var pin pinned
	defer pin.Unpin()
	texts, width := pin.texts(paths)
	found := make([]C.weir_slice, count*len(paths))
	var callError C.weir_error
	result := C.weir_page_values(page, 0, C.size_t(count), texts, width, &found[0], &callError)
	if result < 0 {
		return values, errorOf(result, &callError)
	}
	return appendViews(values, found), nil
}

// nativeFind finds the value at a path in memory of Go; nil if there is none.
func nativeFind(json []byte, path string) ([]byte, error) {
	var pin pinned
	defer pin.Unpin()
	paths, count := pin.texts([]string{path})
	var found C.weir_frame
	var callError C.weir_error
	if result := C.weir_find(sliceOf(json), paths, count, &found, &callError); result < 0 {
		return nil, errorOf(result, &callError)
	}
	if found.len == 0 {
		return nil, nil
	}
	end := found.offset + found.len
	return json[found.offset:end:end], nil
}

// appendViews appends views of the spans; nil for an absent value.
func appendViews(values [][]byte, found []C.weir_slice) [][]byte {
	values = slices.Grow(values, len(found))
	for _, slice := range found {
		if slice.ptr == nil {
			values = append(values, nil)
			continue
		}
		values = append(values, unsafe.Slice((*byte)(slice.ptr), slice.len))
	}
	return values
}

func nativePageRelease(page pageHandle) { C.weir_page_release(page) }

func nativeBufferNew(size int) (bufferHandle, []byte, error) {
	if err := checkVersion(); err != nil {
		return nil, nil, err
	}
	var buffer *C.weir_buffer
	var callError C.weir_error
	if result := C.weir_buffer_new(C.size_t(size), &buffer, &callError); result < 0 {
		return nil, nil, errorOf(result, &callError)
	}
	var capacity C.size_t
	data := C.weir_buffer_data(buffer, &capacity)
	return buffer, unsafe.Slice((*byte)(data), capacity), nil
}

func nativeBufferFree(buffer bufferHandle) { C.weir_buffer_free(buffer) }

// cookies is the list of returned loans of this process.
var cookies = sync.OnceValues(func() (*C.weir_loans, error) {
	var list *C.weir_loans
	var callError C.weir_error
	err := errorIfFailed(C.weir_loans_new(&list, &callError), &callError)
	return list, err
})

// nativePageReleaseCollect releases a page and collects the cookies of returned loans.
func nativePageReleaseCollect(page pageHandle, into []uint64) int {
	list, err := cookies()
	if err != nil {
		C.weir_page_release(page)
		return 0
	}
	var count C.size_t
	if C.weirgo_release(page, list, (*C.uint64_t)(unsafe.SliceData(into)), C.size_t(len(into)), &count) < 0 {
		return 0
	}
	return int(count)
}

func nativeLoansCollect(into []uint64) int {
	list, err := cookies()
	if err != nil {
		return 0
	}
	var count C.size_t
	result := C.weir_loans_collect(list, (*C.uint64_t)(unsafe.SliceData(into)), C.size_t(len(into)), &count, nil, nil)
	if result < 0 {
		return 0
	}
	return int(count)
}
