//! The allocator of the command, and how it returns memory to the system (docs/decisions/0072).
//!
//! mimalloc retains freed memory for a second. It checks the age of that memory only on a later
//! allocation or free, so a process that becomes idle after a burst would retain all of it.
#![allow(
    unsafe_code,
    reason = "the library's function to collect has no wrapper"
)]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

// SAFETY: the declaration is that of the library's header. The function takes no pointer and may be
// called by any thread at any time. It is linked because `mimalloc` is the global allocator.
unsafe extern "C" {
    safe fn mi_collect(force: bool);
}

/// Returns memory to the system that has been free for a second. Cheap if there is none; a
/// server process calls it regularly.
pub(crate) fn release_memory() {
    mi_collect(false);
}
