//! Interfaces for programs, which judge the writes to a topic.
//!
//! The machine owns all data that a program can see or change (its [`CallContext`]). An engine,
//! which implements [`ProgramHost`], only runs code. The rules for limits, reverts and state are
//! therefore independent of the engine, and two engines can be compared.
//!
//! Invariant: no implementation of these traits gives an outcome that depends on anything except
//! the code, the call and the context.

use std::fmt;
use std::sync::Arc;

use crate::call_context::{CallContext, Image};
pub use crate::code::{CodeHash, StateMode, TrapKind};
use crate::error_code::{Class, ErrorCode};
use crate::kv::KvMap;

/// Stack bytes of a thread that applies, enough for every call of a program without a second stack.
/// This is address space: pages that no call touches use no memory.
pub const PROGRAM_STACK_BYTES: usize = 8 << 20;

/// The properties of a topic that decide whether a host admits code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The state mode of the topic.
    pub mode: StateMode,
    /// Upper bound for the maximum size of memory that a module declares, in bytes.
    pub memory_bytes_max: u64,
    /// Number of the meter that counts fuel and measures the stack, from the CREATE or REPLACE.
    pub meter: u32,
}

/// Why a host does not admit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The code breaks a rule. The text names the rule and the position, and is equal on every
    /// node.
    Bad(String),
    /// This node cannot store or compile the code, although other nodes may. The node must stop,
    /// because its history would differ from theirs.
    Unable(String),
}

/// Properties of a module, which never change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "four independent facts")]
pub struct Facts {
    /// Whether it may read the bytes of key, value or principal.
    pub reads_input: bool,
    /// Whether it may read the topic's keys.
    pub reads_keys: bool,
    /// Whether it exports a function that runs at the CREATE.
    pub has_init: bool,
    /// Whether it exports a function that runs at the REPLACE of another program.
    pub has_upgrade: bool,
    /// Version of the layout of its state; 0 if the module declares none. A program without
    /// `has_upgrade` cannot replace a program of another version.
    pub state_version: i32,
    /// Maximum bytes of its linear memory.
    pub memory_bytes_max: u64,
    /// Estimate of the time to compile it, in microseconds, from its code. Decides no outcome.
    pub compile_us: u64,
}

/// An engine that runs programs. All topics of a store share it.
pub trait ProgramHost: Send + Sync + fmt::Debug {
    /// SHA-256 of the bytes.
    fn hash(&self, code: &[u8]) -> CodeHash;

    /// Returns a program for one topic. A host caches results, refusals included, so that a second
    /// call with equal code returns at once. An unknown meter is [`Refusal::Unable`], because
    /// another meter would produce a different history.
    fn admit(&self, code: &[u8], setup: &Setup) -> Result<Box<dyn Program>, Refusal>;

    /// Keeps the rejection of this code in the cache while the returned text exists. `None` if the
    /// host needs no compiler to find the rejection again, or has not rejected the code.
    fn keep_rejection(&self, code: &[u8]) -> Option<Arc<str>> {
        let _ = code;
        None
    }

    /// As `admit`, for code in a snapshot that was admitted before. The code is checked again, but
    /// may be compiled later: by [`compile_restored`](Self::compile_restored), or in its first
    /// call. If that compilation fails, the call is [`Trap::Unable`].
    fn restore(&self, code: &[u8], setup: &Setup) -> Result<Box<dyn Program>, Refusal> {
        self.admit(code, setup)
    }

    /// Compiles one module whose compilation [`restore`](Self::restore) deferred: `first` if it is
    /// one of them. Returns the compiled module, or `None` if none is left. If a module cannot be
    /// compiled, its first call reports it.
    fn compile_restored(&self, first: Option<CodeHash>) -> Option<CodeHash> {
        let _ = first;
        None
    }

    /// Whether the compilation of this module is deferred to
    /// [`compile_restored`](Self::compile_restored).
    fn is_deferred(&self, code: CodeHash) -> bool {
        let _ = code;
        false
    }

    /// Runs `work` on a stack that is large enough for any call of a program, so that the calls
    /// allocate no stack. For threads with many calls.
    fn on_deep_stack(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// Identifies everything that determines fuel. Two nodes with different fingerprints may differ
    /// in `OUT_OF_FUEL`.
    fn fingerprint(&self) -> String;
}

/// A program bound to one topic. All state that can change a result is in the context.
pub trait Program: Send + Sync {
    /// Properties of its module.
    fn facts(&self) -> Facts;

    /// Checks that the program can run in a topic with this setup.
    ///
    /// # Errors
    /// A text that names the property that does not fit.
    fn fits(&self, setup: &Setup) -> Result<(), String>;

    /// Whether the module could have produced this memory and these globals: none at all, or a size
    /// that the module permits and its number of globals.
    fn accepts(&self, image: &Image) -> bool;

    /// Runs one call. Its changes are in the context afterwards, also after a failure; the machine
    /// commits or reverts them.
    ///
    /// `fuel` is the limit in units of the meter; the fuel that was used is added to the context.
    /// The context is in a box because it is large: an engine moves it to its host functions and
    /// back without copying.
    fn judge(
        &mut self,
        entry: Entry,
        fuel: u64,
        context: &mut Box<CallContext>,
    ) -> Result<Decision, Trap>;

    /// Ends the intention. With `kept`, the memory after its last call is the new state (mode
    /// `memory`); otherwise the memory before the intention is restored.
    fn end_intention(&mut self, kept: bool, context: &mut CallContext);

    /// Returns another program of the same module, for another topic or for a copy of this topic.
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
    /// It did something that is not permitted.
    Trapped(TrapKind),
    /// It used up its fuel.
    OutOfFuel,
    /// It exceeded a limit of its topic; the number is the limit.
    Limit(u64),
    /// This node cannot run the call. Never an outcome.
    Unable(String),
}

/// Counters of the calls of a topic's programs since the machine was created or loaded, including
/// replayed intentions. For display and metrics: not part of the state or digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramCounts {
    /// Number of calls, of every entry.
    pub calls: u64,
    /// Fuel used by these calls.
    pub fuel: u64,
    /// Number of calls that rejected.
    pub rejects: u64,
    /// Number of calls that ended without a decision: trapped, out of fuel, over a limit.
    pub traps: u64,
}

/// Counters of the verdicts on writes that the programs of a topic judged, since the machine was
/// created or loaded. A transaction counts as one write. For display and metrics, as
/// [`ProgramCounts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// VALID.
    pub valid: u64,
    /// INVALID: `REJECTED`.
    pub rejected: u64,
    /// INVALID: `QUOTA`.
    pub over_quota: u64,
    /// INVALID: `TXN_ABORTED`, for whatever reason the step failed.
    pub aborted: u64,
    /// ERROR: `TRAP`.
    pub trapped: u64,
    /// ERROR: `OUT_OF_FUEL`.
    pub out_of_fuel: u64,
    /// ERROR: `LIMIT`.
    pub over_limit: u64,
    /// INVALID with any other reason.
    pub other_invalid: u64,
    /// ERROR with any other reason.
    pub other_error: u64,
}

impl Verdicts {
    /// Counts a write; `None` is VALID.
    pub(crate) fn count(&mut self, reason: Option<ErrorCode>) {
        let count = match reason {
            None => &mut self.valid,
            Some(ErrorCode::Rejected) => &mut self.rejected,
            Some(ErrorCode::Quota) => &mut self.over_quota,
            Some(ErrorCode::TxnAborted) => &mut self.aborted,
            Some(ErrorCode::Trap) => &mut self.trapped,
            Some(ErrorCode::OutOfFuel) => &mut self.out_of_fuel,
            Some(ErrorCode::Limit) => &mut self.over_limit,
            Some(reason) if reason.class() == Class::Invalid => &mut self.other_invalid,
            Some(_) => &mut self.other_error,
        };
        *count += 1;
    }
}

/// A module and its arguments in a topic.
#[derive(Clone, Copy, Debug)]
pub struct ProgramView<'a> {
    /// Identity of the module.
    pub code: CodeHash,
    /// Its arguments.
    pub args: &'a [u8],
    /// Number of the meter that counts its fuel.
    pub meter: u32,
    /// Its state mode.
    pub mode: StateMode,
    /// The entries of mode `kv`.
    pub state: Option<&'a KvMap>,
    /// Number of these entries.
    pub state_entries: u64,
    /// Bytes of its state: keys and values, or memory.
    pub state_bytes: u64,
    /// Counters of the calls of this program and of earlier programs of the topic.
    pub counts: ProgramCounts,
    /// Counters of the verdicts of these programs.
    pub verdicts: Verdicts,
}
