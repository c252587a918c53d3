//! Pages in memory of the caller, and their return.
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

/// The list that receives cookies.
#[derive(Debug, Default)]
pub(crate) struct Loans {
    back: Mutex<VecDeque<u64>>,
    /// The number of loans that are not returned, plus the cookies that were not collected.
    left: AtomicU64,
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

/// During the call that passes the page: it is not known yet whether the call succeeds.
const OPEN: u8 = 0;
/// The call succeeded. The memory is returned when the engine drops it.
const ACCEPTED: u8 = 1;
/// The engine dropped the page during the call.
const DROPPED: u8 = 2;

/// A page inside the engine, and how its memory is returned.
struct EnginePage {
    memory: Option<Memory>,
    ticket: Arc<Ticket>,
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
        // Stored before the exchange, so that the call finds it.
        let ticket = &self.ticket;
        *ticket.rest.lock().unwrap_or_else(PoisonError::into_inner) = Some(memory);
        if ticket.state.swap(DROPPED, Ordering::AcqRel) == ACCEPTED
            && let Some(memory) = ticket.rest()
        {
            ticket.way.return_memory(memory);
        }
    }
}

/// The call's part of a page that it passes to the engine.
pub(crate) struct Ticket {
    state: AtomicU8,
    way: Release,
    /// The memory, after the engine dropped it.
    rest: Mutex<Option<Memory>>,
}

impl Release {
    fn return_memory(&self, memory: Memory) {
        match (self, memory) {
            (Self::Call(callback), Memory::Borrowed(borrowed)) => callback.call(&borrowed),
            (Self::Cookie(loans, cookie), Memory::Borrowed(_)) => loans.put(*cookie),
            (_, Memory::Owned(bytes)) => buffer::give_back(bytes),
            (Self::Pool, Memory::Borrowed(_)) => {}
        }
    }
}

impl Loans {
    fn put(&self, cookie: u64) {
        let mut back = self.back.lock().unwrap_or_else(PoisonError::into_inner);
        back.push_back(cookie);
    }
}

/// The page for the engine, and its ticket.
fn wrap(memory: Memory, way: Release) -> (Bytes, Arc<Ticket>) {
    let ticket = Arc::new(Ticket {
        state: AtomicU8::new(OPEN),
        way,
        rest: Mutex::new(None),
    });
    let page = EnginePage {
        memory: Some(memory),
        ticket: Arc::clone(&ticket),
    };
    (Bytes::from_owner(page), ticket)
}

/// A page of borrowed memory.
pub(crate) fn lend(
    c: &Caller,
    page: raw::Slice,
    loan: *const raw::Loan,
) -> Result<(Bytes, Arc<Ticket>), Fail> {
    let loan = c.optional(loan)?;
    let loan = loan.ok_or_else(|| Fail::of(ErrorCode::NullPointer))?;
    let borrowed = BorrowedBytes::new(c, page)?;
    let way = match (loan.release, loan.loans.is_null()) {
        (Some(release), true) => Release::Call(Callback::new(release, loan.user)),
        (None, false) => Release::Cookie(registry::get::<Loans, _>(loan.loans)?, loan.cookie),
        _ => return Err(Fail::option("the loan", "returned both ways or none")),
    };
    Ok(wrap(Memory::Borrowed(borrowed), way))
}

/// A page of memory of the library.
pub(crate) fn owned(bytes: Vec<u8>) -> (Bytes, Arc<Ticket>) {
    wrap(Memory::Owned(bytes), Release::Pool)
}

impl Ticket {
    /// Confirms the loan after the call succeeded.
    pub(crate) fn taken(&self) {
        if let Release::Cookie(loans, _) = &self.way {
            loans.left.fetch_add(1, Ordering::AcqRel);
        }
        let was = self
            .state
            .compare_exchange(OPEN, ACCEPTED, Ordering::AcqRel, Ordering::Acquire);
        if was.is_err()
            && let Some(rest) = self.rest()
        {
            self.way.return_memory(rest);
        }
    }

    /// Ends the loan after the call failed. Returns memory of the library if the engine dropped it.
    pub(crate) fn refused(&self) -> Option<Vec<u8>> {
        match self.rest() {
            Some(Memory::Owned(bytes)) => Some(bytes),
            _ => None,
        }
    }

    fn rest(&self) -> Option<Memory> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        rest.take()
    }
}

pub(crate) fn new(c: &Caller, out: *mut *mut raw::Loans) -> Result<Kind, Fail> {
    c.room(out, 1)?;
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
    c.room(cookies, room)?;
    c.room(count, 1)?;
    if !left.is_null() {
        c.room(left, 1)?;
    }
    let mut back = loans.back.lock().unwrap_or_else(PoisonError::into_inner);
    let some = room.min(ELEMENTS_MAX).min(back.len());
    let found: Vec<u64> = back.drain(..some).collect();
    drop(back);
    let before = loans.left.fetch_sub(found.len() as u64, Ordering::AcqRel);
    c.write_all(cookies, &found)?;
    c.write(count, found.len())?;
    c.write_if(left, before.saturating_sub(found.len() as u64))?;
    Ok(Kind::Ok)
}

pub(crate) fn free(loans: *mut raw::Loans) {
    drop(registry::remove::<Loans, _>(loans));
}
