//! Loans: pages in memory of the caller, which is returned when no query uses it any more.
//!
//! Invariants:
//! - A loan of a successful call is returned exactly once, by the thread that drops the last
//!   reference, after the last read.
//! - A loan of a failed call is never returned.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use weir::ErrorCode;

use crate::buffer;
use crate::error::{Fail, Kind};
use crate::handle::{BorrowedBytes, Callback, Caller, ELEMENTS_MAX};
use crate::raw;
use crate::registry;

/// A list that receives the cookies of returned loans.
#[derive(Debug, Default)]
pub(crate) struct Loans {
    /// The cookies of returned loans that were not collected.
    returned: Mutex<VecDeque<u64>>,
    /// The number of loans that are not returned, plus the cookies that were not collected.
    outstanding: AtomicU64,
}

/// How memory is returned.
enum Release {
    Call(Callback),
    Cookie(Arc<Loans>, u64),
    /// Memory of the library: returns to the pool.
    Pool,
}

enum Memory {
    Borrowed(BorrowedBytes),
    Owned(Vec<u8>),
}

/// The call that passes the page has not ended, so it may still fail.
const IN_CALL: u8 = 0;
/// The call succeeded. The memory is returned when the engine drops it.
const ACCEPTED: u8 = 1;
/// The engine dropped the page during the call.
const DROPPED: u8 = 2;

/// A page inside the engine, and how its memory is returned.
struct EnginePage {
    memory: Option<Memory>,
    return_state: Arc<ReturnState>,
}

impl AsRef<[u8]> for EnginePage {
    fn as_ref(&self) -> &[u8] {
        match &self.memory {
            Some(Memory::Borrowed(borrowed)) => borrowed.bytes(),
            Some(Memory::Owned(bytes)) => bytes,
            None => &[],
        }
    }
}

impl Drop for EnginePage {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else {
            return;
        };
        // Stored before the exchange, so that the call can take it.
        let return_state = &self.return_state;
        *return_state
            .dropped
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(memory);
        if return_state.state.swap(DROPPED, Ordering::AcqRel) == ACCEPTED
            && let Some(memory) = return_state.take_dropped()
        {
            return_state.release.return_memory(memory);
        }
    }
}

/// The call's part of a page that it passes to the engine.
pub(crate) struct ReturnState {
    state: AtomicU8,
    release: Release,
    /// The memory, after the engine dropped it.
    dropped: Mutex<Option<Memory>>,
}

impl Release {
    fn return_memory(&self, memory: Memory) {
        match (self, memory) {
            (Self::Call(callback), Memory::Borrowed(borrowed)) => callback.call(&borrowed),
            (Self::Cookie(loans, cookie), Memory::Borrowed(_)) => loans.put(*cookie),
            (_, Memory::Owned(bytes)) => buffer::recycle(bytes),
            (Self::Pool, Memory::Borrowed(_)) => {}
        }
    }
}

impl Loans {
    fn put(&self, cookie: u64) {
        let mut returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        returned.push_back(cookie);
    }
}

/// The page for the engine, and whether it was returned.
fn wrap(memory: Memory, release: Release) -> (Bytes, Arc<ReturnState>) {
    let return_state = Arc::new(ReturnState {
        state: AtomicU8::new(IN_CALL),
        release,
        dropped: Mutex::new(None),
    });
    let page = EnginePage {
        memory: Some(memory),
        return_state: Arc::clone(&return_state),
    };
    (Bytes::from_owner(page), return_state)
}

/// A page of borrowed memory.
pub(crate) fn borrow(
    c: &Caller,
    page: raw::Slice,
    loan: *const raw::Loan,
) -> Result<(Bytes, Arc<ReturnState>), Fail> {
    let loan = c.optional(loan)?;
    let loan = loan.ok_or_else(|| Fail::of(ErrorCode::NullPointer))?;
    let borrowed = BorrowedBytes::new(c, page)?;
    let release = match (loan.release, loan.loans.is_null()) {
        (Some(callback), true) => Release::Call(Callback::new(callback, loan.user)),
        (None, false) => Release::Cookie(registry::get::<Loans, _>(loan.loans)?, loan.cookie),
        _ => {
            return Err(Fail::option(
                "the loan",
                "without exactly one of `release` and `loans`",
            ));
        }
    };
    Ok(wrap(Memory::Borrowed(borrowed), release))
}

/// A page of memory of the library.
pub(crate) fn owned(bytes: Vec<u8>) -> (Bytes, Arc<ReturnState>) {
    wrap(Memory::Owned(bytes), Release::Pool)
}

impl ReturnState {
    /// Confirms the loan after the call succeeded.
    pub(crate) fn accept(&self) {
        if let Release::Cookie(loans, _) = &self.release {
            loans.outstanding.fetch_add(1, Ordering::AcqRel);
        }
        let was =
            self.state
                .compare_exchange(IN_CALL, ACCEPTED, Ordering::AcqRel, Ordering::Acquire);
        if was.is_err()
            && let Some(memory) = self.take_dropped()
        {
            self.release.return_memory(memory);
        }
    }

    /// Ends the loan after the call failed. Returns memory of the library if the engine dropped it.
    pub(crate) fn reject(&self) -> Option<Vec<u8>> {
        match self.take_dropped() {
            Some(Memory::Owned(bytes)) => Some(bytes),
            _ => None,
        }
    }

    fn take_dropped(&self) -> Option<Memory> {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped.take()
    }
}

pub(crate) fn new(c: &Caller, out: *mut *mut raw::Loans) -> Result<Kind, Fail> {
    c.check_output(out, 1)?;
    c.write(out, registry::insert(Arc::new(Loans::default()))?)?;
    Ok(Kind::Ok)
}

pub(crate) fn collect(
    c: &Caller,
    loans: *mut raw::Loans,
    cookies: *mut u64,
    room: usize,
    count: *mut usize,
    left: *mut u64,
) -> Result<Kind, Fail> {
    let loans = registry::get::<Loans, _>(loans)?;
    c.check_output(cookies, room)?;
    c.check_output(count, 1)?;
    if !left.is_null() {
        c.check_output(left, 1)?;
    }
    let mut returned = loans
        .returned
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let some = room.min(ELEMENTS_MAX).min(returned.len());
    let found: Vec<u64> = returned.drain(..some).collect();
    drop(returned);
    let before = loans
        .outstanding
        .fetch_sub(found.len() as u64, Ordering::AcqRel);
    c.write_all(cookies, &found)?;
    c.write(count, found.len())?;
    c.write_if(left, before.saturating_sub(found.len() as u64))?;
    Ok(Kind::Ok)
}

pub(crate) fn free(loans: *mut raw::Loans) {
    drop(registry::remove::<Loans, _>(loans));
}
