//! A program that runs in a topic: its calls, its state, and the bytes that are charged for it.

use std::sync::Arc;

use super::ApplyError;
use super::states::States;
use crate::batch::Item;
use crate::call_context::{CallContext, CallInfo};
use crate::effect::{Detail, Rejection};
use crate::error_code::ErrorCode;
use crate::ids::ConsequenceOffset;
use crate::kv::KvMap;
use crate::limits::{DETAIL_TEXT_BYTES_MAX, START_FUEL, STATE_ENTRY_BYTES};
use crate::options::TopicOptions;
use crate::program::{
    CodeHash, Decision, Entry, Facts, Program, ProgramCounts, Setup, StateMode, Trap, Verdicts,
};

/// A program that runs in a topic.
pub(crate) struct RunningProgram {
    pub(crate) code: CodeHash,
    pub(crate) args: Arc<[u8]>,
    pub(crate) meter: u32,
    pub(crate) mode: StateMode,
    pub(super) facts: Facts,
    pub(super) program: Box<dyn Program>,
    pub(crate) context: Box<CallContext>,
    /// Whether the context keeps the topic's keys and values.
    pub(crate) tracks_keys: bool,
    /// Principal of the CREATE, which is charged for the state.
    pub(crate) owner: Arc<[u8]>,
    /// Bytes that are charged for it now.
    pub(crate) charged: u64,
    pub(crate) counts: ProgramCounts,
    pub(crate) verdicts: Verdicts,
}

impl Clone for RunningProgram {
    fn clone(&self) -> Self {
        Self {
            code: self.code,
            args: Arc::clone(&self.args),
            meter: self.meter,
            mode: self.mode,
            facts: self.facts,
            program: self.program.fork(),
            context: Box::new(self.context.without_call()),
            tracks_keys: self.tracks_keys,
            owner: Arc::clone(&self.owner),
            charged: self.charged,
            counts: self.counts,
            verdicts: self.verdicts,
        }
    }
}

impl std::fmt::Debug for RunningProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningProgram")
            .field("code", &self.code)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl RunningProgram {
    pub(crate) fn new(
        (code, meter): (CodeHash, u32),
        args: Arc<[u8]>,
        mode: StateMode,
        program: Box<dyn Program>,
        context: CallContext,
        tracks_keys: bool,
        owner: Arc<[u8]>,
    ) -> Self {
        Self {
            code,
            args,
            meter,
            mode,
            facts: program.facts(),
            program,
            context: Box::new(context),
            tracks_keys,
            owner,
            charged: 0,
            counts: ProgramCounts::default(),
            verdicts: Verdicts::default(),
        }
    }

    /// Runs one call. Every result other than VALID is an `Err`.
    pub(super) fn call(
        &mut self,
        entry: Entry,
        info: CallInfo,
        (key, value): (&[u8], &[u8]),
    ) -> Result<Result<(), Rejection>, ApplyError> {
        let copies = self.facts.reads_input || self.tracks_keys;
        self.context.set_input(info, key, value, copies);
        // All calls of a transaction together may use at most the fuel of one start.
        let intention_fuel_max = self.context.limits().fuel_max.max(START_FUEL);
        let left = intention_fuel_max.saturating_sub(self.context.fuel());
        let fuel = match entry {
            Entry::Apply => self.context.limits().fuel_max.min(left),
            Entry::Init | Entry::Upgrade => intention_fuel_max,
        };
        let reason = |reason, detail| Ok(Err(Rejection { reason, detail }));
        let before = self.context.fuel();
        let judged = self.program.judge(entry, fuel, &mut self.context);
        self.counts.calls += 1;
        self.counts.fuel += self.context.fuel() - before;
        match judged {
            Ok(Decision::Accept) => {}
            Ok(Decision::Reject(_)) => self.counts.rejects += 1,
            Err(_) => self.counts.traps += 1,
        }
        match judged {
            Ok(Decision::Accept) => Ok(Ok(())),
            Ok(Decision::Reject(code)) => {
                let text = String::from_utf8_lossy(self.context.text());
                let text = Arc::from(text.as_ref());
                reason(ErrorCode::Rejected, Detail::Rejected { code, text })
            }
            Err(Trap::Trapped(kind)) => reason(ErrorCode::Trap, Detail::Trapped(kind)),
            Err(Trap::OutOfFuel) => reason(ErrorCode::OutOfFuel, Detail::Limit(fuel)),
            Err(Trap::Limit(max)) => reason(ErrorCode::Limit, Detail::Limit(max)),
            Err(Trap::Unable(why)) => Err(ApplyError::ProgramUnable {
                intention: info.intention,
                why,
            }),
        }
    }

    /// Prepares for an intention whose first record gets the offset `first`.
    pub(super) fn begin_intention(&mut self, first: ConsequenceOffset, item: &Item<'_>) {
        self.context.begin_intention(first);
        self.context.set_principal(item.principal);
    }

    /// Commits the changes of an intention's calls if `kept`, otherwise reverts them.
    pub(super) fn end_intention(&mut self, kept: bool) {
        self.program.end_intention(kept, &mut self.context);
        if kept {
            self.context.commit();
        } else {
            self.context.revert();
        }
    }

    /// Checks whether the topic may change to these options. The error has a text.
    pub(super) fn check_options(&self, options: &TopicOptions) -> Result<(), Rejection> {
        if options.program.state != self.mode {
            return Err(bad("the state mode of a topic is fixed when it is created"));
        }
        let setup = setup(options, self.mode, self.meter);
        self.program.fits(&setup).map_err(|sentence| bad(&sentence))
    }

    /// Whether the module could have produced this memory and these globals.
    pub(super) fn accepts_image(&self) -> bool {
        self.program.accepts(self.context.image())
    }

    /// Whether the module needs the topic's keys.
    pub(super) fn reads_keys(&self) -> bool {
        self.facts.reads_keys
    }

    /// Bytes that its current state should be charged for.
    pub(super) fn charge_bytes(&self) -> u64 {
        let of = |map: &KvMap| map.bytes() + STATE_ENTRY_BYTES * map.len() as u64;
        let own = match self.mode {
            StateMode::None => 0,
            StateMode::Kv => of(self.context.state()),
            StateMode::Memory => self.facts.memory_bytes_max,
        };
        own + self.context.keys().map_or(0, of)
    }

    /// Charges its state. Fails with the cap that would be exceeded.
    pub(super) fn charge(&mut self, states: &mut States) -> Result<(), Rejection> {
        let charge_bytes = self.charge_bytes();
        if charge_bytes != self.charged {
            states.charge(&self.owner, self.charged, charge_bytes)?;
            self.charged = charge_bytes;
        }
        Ok(())
    }

    /// Bytes of its state: keys and values, or memory.
    pub(crate) fn state_bytes(&self) -> u64 {
        self.context.state().bytes() + self.context.image().memory.len() as u64
    }
}

pub(super) fn bad(text: &str) -> Rejection {
    let mut end = text.len().min(DETAIL_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Rejection {
        reason: ErrorCode::BadProgram,
        detail: Detail::Text(Arc::from(&text[..end])),
    }
}

pub(super) fn setup(options: &TopicOptions, mode: StateMode, meter: u32) -> Setup {
    Setup {
        mode,
        memory_bytes_max: options.program_limits().memory_bytes_max,
        meter,
    }
}
