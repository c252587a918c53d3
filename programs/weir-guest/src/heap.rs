//! A heap for one call: `format!`, `vec!` and `String` work with it.
//!
//! An arena: memory is taken from the end of the program's data on, one piece after the other, and
//! more pages where the module may have them. The newest piece grows in place and is given back at
//! once; the others are given back together when none of them is in use. So a call that drops what
//! it allocated leaves the arena empty, which matters in mode `memory`; in the other modes the store
//! forgets the whole memory after each call anyway.
//!
//! Invariant: a piece that is in use is never handed out again, whatever a program keeps.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::wasm32;
use core::cell::UnsafeCell;
use core::ptr::{null_mut, with_exposed_provenance_mut};

/// Bytes of a page of memory.
const PAGE_BYTES: usize = 65_536;

unsafe extern "C" {
    /// The first byte after the data and the stack; the linker provides it.
    static __heap_base: u8;
}

#[global_allocator]
static HEAP: Heap = Heap(UnsafeCell::new(Arena { next: 0, used: 0 }));

struct Heap(UnsafeCell<Arena>);

// SAFETY: a program has one thread.
unsafe impl Sync for Heap {}

struct Arena {
    /// First byte that is free; 0 before the first piece.
    next: usize,
    /// Pieces in use.
    used: usize,
}

/// The first byte of the heap.
fn base() -> usize {
    (&raw const __heap_base).expose_provenance()
}

/// Makes the memory reach to this byte; false where the module may not have so much.
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
