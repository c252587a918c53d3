//! Counts the heap allocations of a contender.
//!
//! Counting is off except inside [`count`], so that it costs the timed loops
//! one predictable load per allocation. Invariant: every call reaches the
//! system allocator unchanged.
//!
//! Invariant: this module does not allocate.
#![allow(unsafe_code)] // `GlobalAlloc` cannot be implemented without it; this is the crate's only such file

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static ON: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The system allocator with two counters in front.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

fn note(bytes: usize) {
    if ON.load(Relaxed) {
        CALLS.fetch_add(1, Relaxed);
        BYTES.fetch_add(bytes as u64, Relaxed);
    }
}

// SAFETY: each method forwards its arguments to `System`, which upholds the
// contract of `GlobalAlloc`; the counters touch no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller promised a layout of non-zero size.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller promised a layout of non-zero size.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: `pointer` came from `System` with `layout`, because every
        // allocation above did; the caller promised a non-zero `size`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with `layout`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Allocations, and allocated bytes, of all threads while `work` ran. Zero in a program that does
/// not install [`Counting`].
pub fn count<T>(work: impl FnOnce() -> T) -> (T, u64, u64) {
    let calls = CALLS.load(Relaxed);
    let bytes = BYTES.load(Relaxed);
    ON.store(true, Relaxed);
    let value = work();
    ON.store(false, Relaxed);
    (
        value,
        CALLS.load(Relaxed) - calls,
        BYTES.load(Relaxed) - bytes,
    )
}
