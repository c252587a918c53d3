//! Programs: what a topic may ask before a write becomes history.
//!
//! The machine owns everything that a program can see or change (its
//! [`CallContext`]); an engine, which implements [`ProgramHost`], only runs
//! code. So the rules of limits, revert and state are here, once, whatever
//! engine is used, and two engines can be compared.
//!
//! What no implementation of these traits may do: give an outcome that depends on
//! anything but the code, the call and the context.

use std::fmt;

use crate::call_context::{CallContext, Image};
pub use crate::code::{CodeHash, StateMode, TrapKind};
use crate::error_code::ErrorCode;
use crate::kv::KvMap;

/// Bytes of stack of a thread that applies, so that no call of a program needs
/// another one. Address space: what no call touches takes no memory.
pub const PROGRAM_STACK_BYTES: usize = 8 << 20;

/// What a host must know to judge whether code may run in a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// What is kept between calls.
    pub mode: StateMode,
    /// Bytes that the module's memory may declare as its maximum.
    pub memory_bytes_max: u64,
    /// By what fuel is counted and the stack measured: the number that the
    /// CREATE or REPLACE carries.
    pub meter: u32,
}

/// Why a host has no program for some code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The code breaks a rule. The sentence says which and where; every node
    /// says the same.
    Bad(String),
    /// This node cannot hold or compile it, whatever the code is. The node
    /// must stop: going on would make another history.
    Unable(String),
}

/// What is true of a module for as long as it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "four independent facts")]
pub struct Facts {
    /// It may ask for the bytes of key, value or principal.
    pub reads_input: bool,
    /// It may ask for the topic's own keys.
    pub reads_keys: bool,
    /// It has something to run when the topic is created.
    pub has_init: bool,
    /// It has something to run when it replaces another program.
    pub has_upgrade: bool,
    /// Version of the layout of its state: a program of another version takes over only if it
    /// has something to run then. 0 unless the module says it.
    pub state_version: i32,
    /// Bytes that its linear memory may have.
    pub memory_bytes_max: u64,
    /// Time to compile it, in microseconds: an estimate from its code, which
    /// decides no outcome.
    pub compile_us: u64,
}

/// An engine that runs programs. Shared by all topics of a store.
pub trait ProgramHost: Send + Sync + fmt::Debug {
    /// SHA-256 of the bytes.
    fn hash(&self, code: &[u8]) -> CodeHash;

    /// A program for one topic. A host keeps what it compiled and answers the
    /// same code again at once, refusals included. A meter that it does not
    /// know is [`Refusal::Unable`]: another one would make another history.
    fn admit(&self, code: &[u8], setup: &Setup) -> Result<Box<dyn Program>, Refusal>;

    /// As `admit`, for code that was admitted before and stands in a snapshot. It is checked again,
    /// and may be compiled later: by [`compile_restored`](Self::compile_restored), or in its first
    /// call, which is [`Trap::Unable`] when that fails.
    fn restore(&self, code: &[u8], setup: &Setup) -> Result<Box<dyn Program>, Refusal> {
        self.admit(code, setup)
    }

    /// Compiles a module that [`restore`](Self::restore) put off: `first` if it is one of them.
    /// Returns which one; `None` when none is left. A module that cannot be compiled is met again in
    /// its first call.
    fn compile_restored(&self, first: Option<CodeHash>) -> Option<CodeHash> {
        let _ = first;
        None
    }

    /// Whether this module will be compiled by [`compile_restored`](Self::compile_restored).
    fn is_put_off(&self, code: CodeHash) -> bool {
        let _ = code;
        false
    }

    /// Runs `work` on a stack that is large enough for any call, so that no call
    /// has to make one. For threads that make many calls.
    fn on_deep_stack(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// What decides fuel: two nodes of different fingerprints may disagree about
    /// `OUT_OF_FUEL`.
    fn fingerprint(&self) -> String;
}

/// A program bound to one topic. Between two calls it keeps nothing that could
/// change an answer: state is in the context.
pub trait Program: Send + Sync {
    /// What is true of its module.
    fn facts(&self) -> Facts;

    /// Whether a topic set up so may go on with it.
    ///
    /// # Errors
    /// A sentence about what does not fit.
    fn fits(&self, setup: &Setup) -> Result<(), String>;

    /// Whether its memory and globals can have been left like this: none at
    /// all, or a size that the module allows and as many globals as it has.
    fn accepts(&self, image: &Image) -> bool;

    /// Runs one call. Whatever it did is in the context afterwards, also when it
    /// failed; the machine keeps or reverts it. `fuel` is the limit; the context
    /// is told how much was used. The context is in a box so that an engine can
    /// take it to where its host functions find it, and give it back: it is
    /// large, and a call is short.
    fn judge(
        &mut self,
        entry: Entry,
        fuel: u64,
        context: &mut Box<CallContext>,
    ) -> Result<Decision, Trap>;

    /// The intention is over: with `kept` the memory after its last call is
    /// the state from now on (mode `memory`), else it is as it was before.
    fn settle(&mut self, kept: bool, context: &mut CallContext);

    /// Another program of the same module, for another topic or for a copy of
    /// this one.
    fn fork(&self) -> Box<dyn Program>;
}

/// Which function of a module is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// `weir_init`, under the CREATE.
    Init,
    /// `weir_apply`, for each PUT and DELETE.
    Apply,
    /// `weir_upgrade`, under a REPLACE.
    Upgrade,
}

/// The result of one call of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The intention is executed.
    Accept,
    /// The intention is rejected, with a code of the program (1 to 65,535).
    Reject(u16),
}

/// Why a call ended without a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trap {
    /// It did what no program may do.
    Trapped(TrapKind),
    /// It used up its fuel.
    OutOfFuel,
    /// It went over a limit of its topic; the number is the limit.
    Limit(u64),
    /// This node cannot go on; never an outcome.
    Unable(String),
}

/// What the programs of a topic did since the machine was made or loaded, what
/// was replayed included. For people and metrics: no part of state or digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramCounts {
    /// Calls of any entry.
    pub calls: u64,
    /// Fuel that they used.
    pub fuel: u64,
    /// Calls that rejected.
    pub rejects: u64,
    /// Calls that ended without a decision: trapped, out of fuel, over a limit.
    pub traps: u64,
}

/// What became of the writes that the programs of a topic judged, since the machine was made or
/// loaded: a transaction is one. For people and metrics, as [`ProgramCounts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// VALID.
    pub valid: u64,
    /// INVALID: `REJECTED`.
    pub rejected: u64,
    /// INVALID: `QUOTA`.
    pub over_quota: u64,
    /// INVALID: `TXN_ABORTED`, whatever the program said of the step.
    pub aborted: u64,
    /// ERROR: `TRAP`.
    pub trapped: u64,
    /// ERROR: `OUT_OF_FUEL`.
    pub out_of_fuel: u64,
    /// ERROR: `LIMIT`.
    pub over_limit: u64,
    /// Any other reason.
    pub others: u64,
}

impl Verdicts {
    /// Counts a write; no reason is VALID.
    pub(crate) fn count(&mut self, reason: Option<ErrorCode>) {
        let count = match reason {
            None => &mut self.valid,
            Some(ErrorCode::Rejected) => &mut self.rejected,
            Some(ErrorCode::Quota) => &mut self.over_quota,
            Some(ErrorCode::TxnAborted) => &mut self.aborted,
            Some(ErrorCode::Trap) => &mut self.trapped,
            Some(ErrorCode::OutOfFuel) => &mut self.out_of_fuel,
            Some(ErrorCode::Limit) => &mut self.over_limit,
            Some(_) => &mut self.others,
        };
        *count += 1;
    }
}

/// A module and its arguments, as a topic runs them.
#[derive(Clone, Copy, Debug)]
pub struct ProgramView<'a> {
    /// Identity of the module.
    pub code: CodeHash,
    /// Its arguments.
    pub args: &'a [u8],
    /// By what its fuel is counted.
    pub meter: u32,
    /// What it keeps.
    pub mode: StateMode,
    /// The entries of mode `kv`.
    pub state: Option<&'a KvMap>,
    /// Their number.
    pub state_entries: u64,
    /// Bytes of its state: keys and values, or memory.
    pub state_bytes: u64,
    /// What it and those before it did.
    pub counts: ProgramCounts,
    /// What became of the writes that they judged.
    pub verdicts: Verdicts,
}
