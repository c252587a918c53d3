package weir

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// pins are the pages of Go memory that all queries have lent to the library.
var pins loans

// loans pins each lent page until the library returns its cookie.
type loans struct {
	// out counts lent pages, so that programs without loans avoid the lock.
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

// remove unpins a page that the library refused.
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

// release releases a result page and unpins the loans that it returns.
func (l *loans) release(page pageHandle) {
	if l.out.Load() == 0 {
		nativePageRelease(page)
		return
	}
	var cookies [8]uint64
	found := nativePageReleaseCollect(page, cookies[:])
	l.unpin(cookies[:found])
	if found == len(cookies) {
		l.collect()
	}
}

// collect unpins the returned loans.
func (l *loans) collect() {
	for l.out.Load() > 0 {
		var cookies [64]uint64
		found := nativeLoansCollect(cookies[:])
		l.unpin(cookies[:found])
		if found < len(cookies) {
			return
		}
	}
}

// unpin returns the pages in order, and all of them even if a function of the caller panics.
func (l *loans) unpin(cookies []uint64) {
	if len(cookies) == 0 {
		return
	}
	defer l.unpin(cookies[1:])
	lent := l.take(cookies[0])
	if lent == nil {
		return
	}
	lent.pinner.Unpin()
	if lent.returned != nil {
		lent.returned(lent.page)
	}
}
