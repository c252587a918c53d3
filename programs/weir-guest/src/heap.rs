//! A heap for one call: `format!`, `vec!` and `String` work with it.
//!
//! An arena: it allocates consecutive pieces after the program's data, and adds pages if the module
//! may have more. The newest piece grows in place and is freed immediately; the others are freed
//! together when none of them is in use. So a call that drops its allocations leaves the arena
//! empty. This matters in mode `memory`; in the other modes the store resets the whole memory after
//! each call.
//!
//! Invariant: a piece in use is never allocated again, whatever allocations a program keeps.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::wasm32;
use core::cell::UnsafeCell;
use core::ptr::{null_mut, with_exposed_provenance_mut};

/// Size of a page of memory in bytes.
const PAGE_BYTES: usize = 65_536;

unsafe extern "C" {
    /// The first byte after the data and the stack; the linker defines it.
    static __heap_base: u8;
}

#[global_allocator]
static HEAP: Heap = Heap(UnsafeCell::new(Arena { next: 0, used: 0 }));

struct Heap(UnsafeCell<Arena>);

// SAFETY: a program has one thread.
unsafe impl Sync for Heap {}

struct Arena {
    /// Address of the first free byte; 0 before the first allocation.
    next: usize,
    /// Number of pieces in use.
    used: usize,
}

/// The first byte of the heap.
fn base() -> usize {
    (&raw const __heap_base).expose_provenance()
}

/// Grows the memory to this address; `false` if the module may not have so much.
fn reach(end: usize) -> bool {
    let pages = wasm32::memory_size(0);
    let missing = end.div_ceil(PAGE_BYTES).saturating_sub(pages);
    missing == 0 || wasm32::memory_grow(0, missing) != usize::MAX
}

impl Arena {
    fn take(&mut self, layout: Layout) -> Option<usize> {
        if self.used == 0 {
            self.next = base();
        }
        let at = self.next.checked_next_multiple_of(layout.align())?;
        let end = at.checked_add(layout.size())?;
        if !reach(end) {
            return None;
        }
        self.next = end;
        self.used += 1;
        Some(at)
    }

    /// Whether a piece is the newest one.
    fn is_newest(&self, at: usize, bytes: usize) -> bool {
        at + bytes == self.next
    }
}

// SAFETY: `take` returns disjoint pieces inside the memory, aligned, for as long as they are in use.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: there is one thread, and no call of these functions is inside another one.
        let arena = unsafe { &mut *self.0.get() };
        arena
            .take(layout)
            .map_or(null_mut(), with_exposed_provenance_mut)
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        let arena = unsafe { &mut *self.0.get() };
        if arena.is_newest(piece.addr(), layout.size()) {
            arena.next = piece.addr();
        }
        arena.used -= 1;
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as in `alloc`; the reference ends before the calls below.
        let newest = unsafe { &mut *self.0.get() }.is_newest(piece.addr(), layout.size());
        if newest && let Some(end) = piece.addr().checked_add(bytes) {
            if !reach(end) {
                return null_mut();
            }
            // SAFETY: as in `alloc`.
            unsafe { &mut *self.0.get() }.next = end;
            return piece;
        }
        if bytes <= layout.size() {
            return piece;
        }
        // SAFETY: the caller keeps the rules of `realloc`, so size and alignment fit.
        let other = unsafe { self.alloc(Layout::from_size_align_unchecked(bytes, layout.align())) };
        if !other.is_null() {
            // SAFETY: both pieces are in use, hence disjoint, and the old one is the shorter.
            unsafe {
                other.copy_from_nonoverlapping(piece, layout.size());
                self.dealloc(piece, layout);
            }
        }
        other
    }
}
