//! Tracing: what a program asked of the host, call by call.
//!
//! A host with a [`Tracer`] links other functions, which do the same and write
//! down what they did; a host without one has no place where it could. What
//! must never happen here: a change of an outcome, or of the fuel.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_core::IntentionOffset;
pub use weir_core::call_context::Stop;

/// Bytes of an argument or result that are kept.
pub const SNIPPET_BYTES_MAX: usize = 256;
/// Calls that are kept; what happens depends on what is traced.
pub const CALLS_MAX: usize = 100_000;

/// The beginning of some bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snippet {
    /// At most [`SNIPPET_BYTES_MAX`] bytes; of a line of `log` at most
    /// [`LINE_BYTES_MAX`](crate::LINE_BYTES_MAX).
    pub bytes: Vec<u8>,
    /// How many there are in all.
    pub len: usize,
}

impl Snippet {
    pub(crate) fn new(bytes: &[u8], len: usize, max: usize) -> Self {
        let bytes = bytes.get(..max).unwrap_or(bytes).to_vec();
        Self { bytes, len }
    }
}

/// An argument of a call, as a person would name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Bytes of the guest.
    Bytes(Snippet),
    /// A number.
    Number(u64),
    /// A part of the input, an algorithm or a level, by its name.
    Name(&'static str),
}

/// What a call gave back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing: the function returns none.
    Done,
    /// A number.
    Number(i64),
    /// Bytes that were written into the guest.
    Bytes(Snippet),
    /// There is none.
    Absent,
    /// The call ended the program.
    Stopped(Stop),
    /// The fuel did not suffice for it.
    OutOfFuel,
}

/// A call of a host function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCall {
    /// Name of the topic whose program called.
    pub topic: Arc<str>,
    /// The intention that was judged.
    pub intention: IntentionOffset,
    /// Its stamp, milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// Step of a transaction, from 0.
    pub step: u32,
    /// Name of the function, as in the import.
    pub name: &'static str,
    /// Arguments with their names, in order.
    pub arguments: Vec<(&'static str, Argument)>,
    /// What came back.
    pub answer: Answer,
    /// Fuel of the call beyond the instruction that made it.
    pub fuel: u64,
}

/// Which calls are written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All; the first [`CALLS_MAX`] are kept.
    All,
    /// Those of `log`; the newest [`CALLS_MAX`] are kept.
    Log,
}

/// Writes down the calls of some intentions.
#[derive(Debug)]
pub struct Tracer {
    wanted: Wanted,
    first: AtomicU64,
    last: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    calls: VecDeque<HostCall>,
    left_out: u64,
}

impl Tracer {
    /// A tracer of these intentions.
    #[must_use]
    pub fn new(wanted: Wanted, intentions: &RangeInclusive<IntentionOffset>) -> Self {
        Self {
            wanted,
            first: AtomicU64::new(intentions.start().0),
            last: AtomicU64::new(intentions.end().0),
            seen: Mutex::default(),
        }
    }

    /// From now on these intentions.
    pub fn watch(&self, intentions: &RangeInclusive<IntentionOffset>) {
        self.first.store(intentions.start().0, Ordering::Relaxed);
        self.last.store(intentions.end().0, Ordering::Relaxed);
    }

    pub(crate) fn wants(&self, name: &str, intention: IntentionOffset) -> bool {
        let (first, last) = (&self.first, &self.last);
        (first.load(Ordering::Relaxed)..=last.load(Ordering::Relaxed)).contains(&intention.0)
            && (self.wanted == Wanted::All || name == "log")
    }

    pub(crate) fn add(&self, call: HostCall) {
        let mut seen = self.seen.lock();
        if seen.calls.len() >= CALLS_MAX {
            seen.left_out += 1;
            if self.wanted == Wanted::All {
                return;
            }
            seen.calls.pop_front();
        }
        seen.calls.push_back(call);
    }

    /// What was written down since the last time, and how many calls were left
    /// out because there were too many.
    #[must_use]
    pub fn take(&self) -> (Vec<HostCall>, u64) {
        let mut seen = self.seen.lock();
        let seen = std::mem::take(&mut *seen);
        (seen.calls.into(), seen.left_out)
    }
}
