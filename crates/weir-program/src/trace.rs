//! Tracing: records each call of a host function that a program makes.
//!
//! A host with a [`Tracer`] links functions that record each call and otherwise do the same as the
//! plain functions. A host without a tracer does not contain that code.
//!
//! Invariant: tracing changes neither an outcome nor the fuel of a call.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_core::IntentionOffset;
pub use weir_core::call_context::Stop;

/// Bytes of an argument or result that are kept.
pub const SNIPPET_BYTES_MAX: usize = 256;
/// Innermost functions of a call stack that are kept.
pub const FRAMES_MAX: usize = 64;
/// Bytes of the name of a function that are kept.
pub const NAME_BYTES_MAX: usize = 256;
/// Calls that are kept. [`RecordedCalls`] defines which calls are dropped.
pub const CALLS_MAX: usize = 100_000;

/// The first bytes of an argument or a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snippet {
    /// At most [`SNIPPET_BYTES_MAX`] bytes; of a line of `log` at most
    /// [`LINE_BYTES_MAX`](crate::LINE_BYTES_MAX).
    pub bytes: Vec<u8>,
    /// Length of the whole argument or result in bytes.
    pub len: usize,
}

impl Snippet {
    pub(crate) fn new(bytes: &[u8], len: usize, max: usize) -> Self {
        let bytes = bytes.get(..max).unwrap_or(bytes).to_vec();
        Self { bytes, len }
    }
}

/// An argument of a call, in a readable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Bytes of the guest.
    Bytes(Snippet),
    /// A number.
    Number(u64),
    /// A part of the input, an algorithm or a level, by its name.
    Name(&'static str),
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The function has no result.
    Done,
    /// A number.
    Number(i64),
    /// Bytes that were written into the guest.
    Bytes(Snippet),
    /// The entry that was looked up does not exist.
    Absent,
    /// The call stopped the program.
    Stopped(Stop),
    /// The call had too little fuel.
    OutOfFuel,
}

/// A call of a host function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCall {
    /// Name of the topic whose program called.
    pub topic: Arc<str>,
    /// The intention of the call.
    pub intention: IntentionOffset,
    /// Time stamp of the intention, in milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// Step of a transaction, from 0.
    pub step: u32,
    /// Name of the function, as in the import.
    pub name: &'static str,
    /// Arguments with their names, in order.
    pub arguments: Vec<(&'static str, Argument)>,
    /// The result of the call.
    pub answer: Answer,
    /// Fuel of the call, in addition to that of the call instruction.
    pub fuel: u64,
}

/// A function on the call stack of a failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its index in the module as it was deployed, imports first.
    pub function: u32,
    /// Its name in the name section of the module, demangled, or else the name of its export; at
    /// most [`NAME_BYTES_MAX`] bytes. `None` if the module has no name for it.
    pub name: Option<String>,
}

/// The call stack at the moment when a trap, a limit or a lack of fuel ended a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallStack {
    /// The intention of the call.
    pub intention: IntentionOffset,
    /// Step of a transaction, from 0.
    pub step: u32,
    /// The functions, innermost first; at most [`FRAMES_MAX`].
    pub frames: Vec<Frame>,
}

/// What a [`Tracer`] recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// The calls, oldest first.
    pub calls: Vec<HostCall>,
    /// Number of calls that were dropped because of the limit.
    pub left_out: u64,
    /// Fuel of the dropped calls.
    pub left_out_fuel: u64,
    /// The call stack of the newest call that failed; only with [`RecordedCalls::All`].
    pub stack: Option<CallStack>,
}

/// Which calls are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedCalls {
    /// All calls; the first [`CALLS_MAX`] are kept.
    All,
    /// Calls of `log`; the newest [`CALLS_MAX`] are kept.
    Log,
}

/// Records the calls of some intentions.
#[derive(Debug)]
pub struct Tracer {
    recorded: RecordedCalls,
    first: AtomicU64,
    last: AtomicU64,
    seen: Mutex<TraceLog>,
}

#[derive(Debug, Default)]
struct TraceLog {
    calls: VecDeque<HostCall>,
    left_out: u64,
    left_out_fuel: u64,
    stack: Option<CallStack>,
}

impl Tracer {
    /// Creates a tracer of the calls of `intentions`.
    #[must_use]
    pub fn new(recorded: RecordedCalls, intentions: &RangeInclusive<IntentionOffset>) -> Self {
        Self {
            recorded,
            first: AtomicU64::new(intentions.start().0),
            last: AtomicU64::new(intentions.end().0),
            seen: Mutex::default(),
        }
    }

    /// Traces only these intentions from now on.
    pub fn watch(&self, intentions: &RangeInclusive<IntentionOffset>) {
        self.first.store(intentions.start().0, Ordering::Relaxed);
        self.last.store(intentions.end().0, Ordering::Relaxed);
    }

    pub(crate) fn records(&self, name: &str, intention: IntentionOffset) -> bool {
        self.watches(intention) && (self.recorded == RecordedCalls::All || name == "log")
    }

    /// Whether to record the call stack of a failed call.
    pub(crate) fn records_stack(&self, intention: IntentionOffset) -> bool {
        self.watches(intention) && self.recorded == RecordedCalls::All
    }

    fn watches(&self, intention: IntentionOffset) -> bool {
        let (first, last) = (&self.first, &self.last);
        (first.load(Ordering::Relaxed)..=last.load(Ordering::Relaxed)).contains(&intention.0)
    }

    pub(crate) fn add_stack(&self, stack: CallStack) {
        self.seen.lock().stack = Some(stack);
    }

    pub(crate) fn add(&self, call: HostCall) {
        let mut seen = self.seen.lock();
        if seen.calls.len() >= CALLS_MAX {
            seen.left_out += 1;
            if self.recorded == RecordedCalls::All {
                seen.left_out_fuel += call.fuel;
                return;
            }
            let oldest = seen.calls.pop_front();
            seen.left_out_fuel += oldest.map_or(0, |oldest| oldest.fuel);
        }
        seen.calls.push_back(call);
    }

    /// Returns the calls since the last call of this method.
    #[must_use]
    pub fn take(&self) -> Traced {
        let seen = std::mem::take(&mut *self.seen.lock());
        Traced {
            calls: seen.calls.into(),
            left_out: seen.left_out,
            left_out_fuel: seen.left_out_fuel,
            stack: seen.stack,
        }
    }
}
