//! The allocator of the command, and how it gives memory back (docs/decisions/0072).
//!
//! mimalloc keeps freed memory for a second and looks at its age when something is allocated or
//! freed later: a process that becomes idle after a burst would keep all of it.
#![allow(
    unsafe_code,
    reason = "the library's function to collect has no wrapper"
)]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

// SAFETY: as in the library's header. It takes no pointer, may be called by any thread at any
// time, and is linked because `mimalloc` is the global allocator.
unsafe extern "C" {
    safe fn mi_collect(force: bool);
}

/// Gives the system what has been free for a second. Cheap when there is nothing; call it about
/// once a second in a process that serves.
pub(crate) fn give_back() {
    mi_collect(false);
}
