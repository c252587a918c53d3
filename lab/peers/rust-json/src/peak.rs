//! Measures the maximum heap memory of a pass besides the page.
//!
//! The allocator of the program is that of the system. It counts only on request, and never while
//! anything is timed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

static COUNTS: AtomicBool = AtomicBool::new(false);
static NOW: AtomicI64 = AtomicI64::new(0);
static MOST: AtomicI64 = AtomicI64::new(0);

struct Counted;

#[global_allocator]
static HEAP: Counted = Counted;

fn add(bytes: usize, taken: bool) {
    if COUNTS.load(Ordering::Relaxed) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let bytes = if taken { bytes } else { -bytes };
        let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
        MOST.fetch_max(now, Ordering::Relaxed);
    }
}

#[allow(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]
// SAFETY: every call is forwarded unchanged to the allocator of the system.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size(), true);
        // SAFETY: the caller upholds the contract of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size(), true);
        // SAFETY: the caller upholds the contract of this call.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        add(layout.size(), false);
        // SAFETY: the caller upholds the contract of this call.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The allocator may copy the block; then, for a moment, both blocks exist.
        add(size, true);
        add(layout.size(), false);
        // SAFETY: the caller upholds the contract of this call.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

/// The result of `work`, and the maximum number of bytes that it had allocated at a time.
pub(crate) fn of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    NOW.store(0, Ordering::Relaxed);
    MOST.store(0, Ordering::Relaxed);
    COUNTS.store(true, Ordering::Relaxed);
    let done = work();
    COUNTS.store(false, Ordering::Relaxed);
    let most = MOST.load(Ordering::Relaxed);
    (done, u64::try_from(most).unwrap_or(0))
}
