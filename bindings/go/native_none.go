//go:build !cgo

package weir

import "time"

// Without cgo there are no handles. Opening always fails, so the functions below are
// reached only by opening calls and by calls on empty values.
type (
	queryHandle   = *struct{ _ [1]byte }
	pageHandle    = *struct{ _ [2]byte }
	bufferHandle  = *struct{ _ [3]byte }
	storeHandle   = *struct{ _ [4]byte }
	pendingHandle = *struct{ _ [5]byte }
	sessionHandle = *struct{ _ [6]byte }
	readerHandle  = *struct{ _ [7]byte }
	groupHandle   = *struct{ _ [8]byte }
)

// storeInfo describes a store.
type storeInfo struct {
	remote bool
	id     [16]byte
}

// The texts of a query.
const (
	textToken = iota
	textExplain
)

// errNoCgo is the error of every call.
var errNoCgo = failure(ErrUnsupported, "package weir calls a C library, but this program was built without cgo: set CGO_ENABLED=1 and install a C compiler")

func nativeHandlesOpen() uint64 { return 0 }

func nativeBuildInfo() string { return "" }

func nativeQueryOpen(*QueryOptions) (queryHandle, error) { return nil, errNoCgo }

func nativeQueryOpenTopics(storeHandle, *TopicsOptions, *QueryOptions) (queryHandle, error) {
	return nil, errNoCgo
}

func nativeQuerySourceName(queryHandle, uint32) (string, error) { return "", errNoCgo }

func nativeQuerySource(queryHandle, *SourceOptions) (uint32, error) { return 0, errNoCgo }

func nativeQueryEnqueue(queryHandle, uint32, []byte, []byte) error { return errNoCgo }

func nativeQueryMetas(queryHandle) ([]string, error) { return nil, errNoCgo }

func nativeQueryEnqueueFramed(queryHandle, uint32, []byte, []byte, []Frame, []Property) error {
	return errNoCgo
}

func nativeQueryEnqueuePinned(queryHandle, uint32, []byte, []byte, uint64) error { return errNoCgo }

func nativeQueryEnqueueBuffer(queryHandle, uint32, bufferHandle, int, []byte) error { return errNoCgo }

func nativeQueryFinish(queryHandle, uint32) error { return errNoCgo }

func nativeQueryAbandon(queryHandle, string) error { return errNoCgo }

func nativeQueryReplace(queryHandle, uint32, []SourceOptions) ([]uint32, error) { return nil, errNoCgo }

func nativeQueryWatermark(queryHandle, uint32, []string) error { return errNoCgo }

func nativeQueryNext(queryHandle, Bounds, time.Duration) (Step, *Page, error) {
	return 0, &Page{}, errNoCgo
}

func nativeQueryNeeds(*Query) ([]Need, error) { return nil, errNoCgo }

func nativeQueryText(queryHandle, int) ([]byte, error) { return nil, errNoCgo }

func nativeQueryCancel(queryHandle) {}

func nativeQueryFree(queryHandle) {}

func viewOf(pageHandle) *Page { return &Page{} }

func nativePageGet(pageHandle, int, int, string, [][]byte) ([][]byte, error) { return nil, errNoCgo }

func nativePageValues(pageHandle, int, []string, [][]byte) ([][]byte, error) { return nil, errNoCgo }

func nativeFind([]byte, string) ([]byte, error) { return nil, errNoCgo }

func nativePageRelease(pageHandle) {}

func nativeBufferNew(int) (bufferHandle, []byte, error) { return nil, nil, errNoCgo }

func nativeBufferFree(bufferHandle) {}

func nativePageReleaseCollect(pageHandle, []uint64) int { return 0 }

func nativeLoansCollect([]uint64) int { return 0 }

func nativeOpen(string, *OpenOptions) (storeHandle, error) { return nil, errNoCgo }

func nativeConnect(string, *ConnectOptions) (storeHandle, error) { return nil, errNoCgo }

func nativeDescribe(storeHandle) (storeInfo, error) { return storeInfo{}, errNoCgo }

func nativeSync(storeHandle) error { return errNoCgo }

func nativeWithin(storeHandle, time.Duration) (storeHandle, error) { return nil, errNoCgo }

func nativeWithConsistency(storeHandle, Consistency) (storeHandle, error) { return nil, errNoCgo }

func nativeCancel(storeHandle) {}

func nativeClose(storeHandle) error { return errNoCgo }

func nativeTopics(storeHandle, bool) ([]string, error) { return nil, errNoCgo }

func nativeTopicEnsure(storeHandle, string, *TopicOptions) (bool, error) { return false, errNoCgo }

func nativeTopicDescribe(storeHandle, string) (Info, bool, error) { return Info{}, false, errNoCgo }

func nativeSubmit(storeHandle, []Intention) ([]Verdict, error) { return nil, errNoCgo }

func nativeSend(storeHandle, []Intention) (pendingHandle, error) { return nil, errNoCgo }

func nativePendingWait(pendingHandle, time.Duration, int) ([]Verdict, error) { return nil, errNoCgo }

func nativePendingReceived(pendingHandle, time.Duration) (bool, error) { return false, errNoCgo }

func nativePendingFree(pendingHandle) {}

func nativeSessionOpen(storeHandle, [16]byte) (sessionHandle, error) { return nil, errNoCgo }

func nativeSessionFree(sessionHandle) {}

func nativeSessionSubmit(sessionHandle, []Intention) ([]Verdict, error) { return nil, errNoCgo }

func nativeSessionSend(sessionHandle, []Intention) (pendingHandle, error) { return nil, errNoCgo }

func nativeSessionCancel(sessionHandle) {}

func nativeSessionNextNonce(sessionHandle) (uint64, error) { return 0, errNoCgo }

func nativeSessionResume(sessionHandle, uint64) error { return errNoCgo }

func nativeGet(storeHandle, string, []byte) (pageHandle, error) { return nil, errNoCgo }

func nativeAt(storeHandle, string, uint64) (pageHandle, error) { return nil, errNoCgo }

func nativeScan(storeHandle, string, *ScanOptions) (pageHandle, error) { return nil, errNoCgo }

func nativePosition(string) (From, error) { return From{}, errNoCgo }

func nativeReaderOpen(storeHandle, string, From, bool) (readerHandle, error) { return nil, errNoCgo }

func nativeReaderNext(readerHandle, time.Duration) (pageHandle, error) { return nil, errNoCgo }

func nativeReaderCancel(readerHandle) {}

func nativeReaderFree(readerHandle) {}

func nativeGroupOpen(storeHandle, string, string, GroupMode, *GroupOptions) (groupHandle, error) {
	return nil, errNoCgo
}

func nativeGroupFree(groupHandle) {}

func nativeGroupCancel(groupHandle) {}

func nativeGroupClaim(groupHandle, int, time.Duration) (pageHandle, error) { return nil, errNoCgo }

func nativeGroupSettle(groupHandle, []Claimed, uint32, time.Duration, string) ([]uint64, error) {
	return nil, errNoCgo
}

func nativeGroupStep(groupHandle, uint32, From) error { return errNoCgo }

func nativeGroupDescribe(groupHandle) (GroupInfo, error) { return GroupInfo{}, errNoCgo }
