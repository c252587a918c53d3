package weir

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// pins has the pages of Go memory that are lent to the library, in all queries.
var pins loans

// loans keeps each lent page where it is until its cookie comes back.
type loans struct {
	// out counts pages that are lent, so that who lends none pays nothing.
	out   atomic.Int64
	mutex sync.Mutex
	next  uint64
	lent  map[uint64]*loan
}

type loan struct {
	pinner   runtime.Pinner
	page     []byte
	returned func([]byte)
}

// add pins a page under a new cookie.
func (l *loans) add(page []byte, returned func([]byte)) uint64 {
	lent := &loan{page: page, returned: returned}
	if len(page) > 0 {
		lent.pinner.Pin(&page[0])
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.lent == nil {
		l.lent = map[uint64]*loan{}
	}
	l.next++
	l.lent[l.next] = lent
	l.out.Add(1)
	return l.next
}

// remove lets go of a page that the library did not take.
func (l *loans) remove(cookie uint64) {
	if lent := l.take(cookie); lent != nil {
		lent.pinner.Unpin()
	}
}

func (l *loans) take(cookie uint64) *loan {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	lent := l.lent[cookie]
	if lent != nil {
		delete(l.lent, cookie)
		l.out.Add(-1)
	}
	return lent
}

// release releases a page and lets go of what came back with it.
func (l *loans) release(page pageHandle) {
	if l.out.Load() == 0 {
		nativePageRelease(page)
		return
	}
	var cookies [8]uint64
	found := nativePageReleaseCollect(page, cookies[:])
	l.letGo(cookies[:found])
	if found == len(cookies) {
		l.collect()
	}
}

// collect lets go of what came back.
func (l *loans) collect() {
	for l.out.Load() > 0 {
		var cookies [64]uint64
		found := nativeLoansCollect(cookies[:])
		l.letGo(cookies[:found])
		if found < len(cookies) {
			return
		}
	}
}

func (l *loans) letGo(cookies []uint64) {
	for _, cookie := range cookies {
		lent := l.take(cookie)
		if lent == nil {
			continue
		}
		lent.pinner.Unpin()
		if lent.returned != nil {
			lent.returned(lent.page)
		}
	}
}
