//! How programs start: CREATE with a program, and REPLACE.
//!
//! The start has three steps:
//! - [`Machine::begin`] checks what does not depend on the program.
//! - [`Start::run`] admits the program and runs its `weir_init` or `weir_upgrade`.
//! - [`Machine::finish_start`] writes the records and keeps the program.
//!
//! Invariant: a start that is not VALID leaves no topic, no module and no state.

use std::sync::Arc;

use super::change::emit;
use super::programs::{admit, announcement, info, limited, publish, within_quota};
use super::running::{RunningProgram, bad, setup};
use super::topic::{LiveTopic, Topic};
use super::{ApplyError, Machine, RecordRange, Stamp};
use crate::batch::{Action, Item};
use crate::call_context::{CallContext, Image, op};
use crate::effect::Detail;
use crate::effect::Rejection;
use crate::error_code::ErrorCode;
use crate::exact::to_u32;
use crate::ids::{ConsequenceOffset, TopicId};
use crate::keys::KeyIndex;
use crate::limits::{ARGUMENT_BYTES_MAX, CODES_BYTES_MAX, TOPICS_MAX};
use crate::options::TopicOptions;
use crate::program::{CodeHash, Entry, Program, ProgramHost, StateMode};
use crate::record::{ConsequenceSink, RecordFlags, RecordKind};

/// Whether the action starts a program.
pub(super) fn is_start(action: &Action<'_>) -> bool {
    match action {
        Action::Create { code, .. } => !code.is_empty(),
        Action::Replace { .. } => true,
        _ => false,
    }
}

/// A program that is being started for a topic.
#[derive(Debug)]
pub(super) struct Start {
    host: Arc<dyn ProgramHost>,
    options: TopicOptions,
    /// Offset of the topic's newest record.
    last: ConsequenceOffset,
    /// Whether its module is stored already, or fits.
    has_room: bool,
    target: Target,
    started: Option<StartedProgram>,
}

/// Where the program will run.
#[derive(Debug)]
enum Target {
    /// In a new topic.
    New(Box<LiveTopic>),
    /// In target of another program.
    Replaced(Box<ReplacedProgram>),
}

/// The program that is replaced.
#[derive(Debug)]
struct ReplacedProgram {
    running: Box<RunningProgram>,
    /// Whether the topic has keys.
    has_keys: bool,
    image: Image,
}

/// A program whose start succeeded.
#[derive(Debug)]
struct StartedProgram {
    code: Arc<[u8]>,
    running: Box<RunningProgram>,
}

impl Start {
    /// Admits the program and runs its start, which may take long.
    pub(super) fn run(
        &mut self,
        item: &Item<'_>,
        stamp: &Stamp,
    ) -> Result<Result<(), Rejection>, ApplyError> {
        let (Action::Create {
            code, args, meter, ..
        }
        | Action::Replace {
            code, args, meter, ..
        }) = item.action
        else {
            return Ok(Err(Rejection::without_detail(ErrorCode::NoTopic)));
        };
        let mode = match &self.target {
            Target::New(live) => live.options.program.state,
            Target::Replaced(old) => old.running.mode,
        };
        let setup = setup(&self.options, mode, meter);
        let program = match admit(&*self.host, code, &setup, stamp)? {
            Ok(program) => program,
            Err(rejection) => return Ok(Err(rejection)),
        };
        if !self.has_room {
            return Ok(Err(limited(CODES_BYTES_MAX)));
        }
        let module = AdmittedModule {
            code: (self.host.hash(code), meter),
            args: Arc::from(args),
            mode,
            program,
            first: self.last.plus(2),
        };
        let started = match &mut self.target {
            Target::New(live) => module.begin(live, item, stamp)?,
            Target::Replaced(old) => module.start_with_state(old, item, stamp)?,
        };
        Ok(started.map(|running| {
            let code = Arc::from(code);
            self.started = Some(StartedProgram { code, running });
        }))
    }
}

/// An admitted module and its setup.
struct AdmittedModule {
    code: (CodeHash, u32),
    args: Arc<[u8]>,
    mode: StateMode,
    program: Box<dyn Program>,
    /// Offset of the first record of the start.
    first: ConsequenceOffset,
}

impl AdmittedModule {
    fn begin(
        self,
        live: &LiveTopic,
        item: &Item<'_>,
        stamp: &Stamp,
    ) -> Result<Result<Box<RunningProgram>, Rejection>, ApplyError> {
        let limits = live.options.program_limits();
        let mut context = CallContext::new(self.mode, limits, Arc::clone(&self.args));
        context.set_topic(&String::from_utf8_lossy(item.topic));
        let facts = self.program.facts();
        context.track_keys(facts.reads_keys);
        let mut running = RunningProgram::new(
            self.code,
            self.args,
            self.mode,
            self.program,
            context,
            facts.reads_keys,
            Arc::from(item.principal),
        );
        running.begin_intention(self.first, item);
        if facts.has_init {
            let verdict = running.call(Entry::Init, info(stamp, op::INIT), (&[], &[]))?;
            let verdict = verdict.and_then(|()| within_quota(&running.context, live, item));
            stamp.fuel.set(running.context.fuel());
            if let Err(rejection) = verdict {
                return Ok(Err(rejection));
            }
        }
        running.end_intention(true);
        Ok(Ok(Box::new(running)))
    }

    /// Starts the new program with the state of the old program. If the start is rejected, restores
    /// the state of the old program.
    fn start_with_state(
        self,
        old: &mut ReplacedProgram,
        item: &Item<'_>,
        stamp: &Stamp,
    ) -> Result<Result<Box<RunningProgram>, Rejection>, ApplyError> {
        let facts = self.program.facts();
        if self.mode == StateMode::Memory && !facts.has_upgrade {
            return Ok(Err(bad(
                "a program of state mode memory can only be replaced by one that exports weir_upgrade",
            )));
        }
        let (old_version, version) = (old.running.facts.state_version, facts.state_version);
        if self.mode == StateMode::Kv && old_version != version && !facts.has_upgrade {
            return Ok(Err(bad(&format!(
                "the state of the topic has version {old_version}, that of the program is {version}: it has to export weir_upgrade",
            ))));
        }
        let had_keys = old.running.tracks_keys;
        if facts.reads_keys && !had_keys && old.has_keys {
            return Ok(Err(bad(
                "the program reads the topic's keys, whose values are not kept for the old one",
            )));
        }
        let mut context = std::mem::take(&mut *old.running.context);
        old.image = std::mem::take(context.image_mut());
        context.set_args(Arc::clone(&self.args));
        context.set_old_code(Some(old.running.code));
        if facts.reads_keys && !had_keys {
            context.track_keys(true);
        }
        let tracks_keys = had_keys || facts.reads_keys;
        let owner = Arc::clone(&old.running.owner);
        let mut running = RunningProgram::new(
            self.code,
            self.args,
            self.mode,
            self.program,
            context,
            tracks_keys,
            owner,
        );
        (running.counts, running.verdicts) = (old.running.counts, old.running.verdicts);
        running.charged = old.running.charged;
        running.begin_intention(self.first, item);
        let verdict = if facts.has_upgrade {
            running.call(Entry::Upgrade, info(stamp, op::UPGRADE), (&[], &[]))?
        } else {
            Ok(())
        };
        stamp.fuel.set(running.context.fuel());
        if let Err(rejection) = verdict {
            old.restore_old(running);
            return Ok(Err(rejection));
        }
        Ok(Ok(Box::new(running)))
    }
}

impl ReplacedProgram {
    /// Reverts the changes of a new program that was rejected, and restores the state of the old
    /// program.
    fn restore_old(&mut self, mut new: RunningProgram) {
        new.end_intention(false);
        let mut context = new.context;
        context.set_old_code(None);
        context.set_args(Arc::clone(&self.running.args));
        *context.image_mut() = std::mem::take(&mut self.image);
        if !self.running.tracks_keys {
            context.track_keys(false);
        }
        self.running.context = context;
        self.running.counts = new.counts;
    }
}

impl Machine {
    /// Checks a CREATE with a program, or a REPLACE, as far as possible without the program. A
    /// REPLACE takes the program out of the topic until [`finish_start`](Self::finish_start)
    /// returns.
    pub(super) fn begin(
        &mut self,
        item: &Item<'_>,
        topic: Option<TopicId>,
        stamp: &Stamp,
    ) -> Result<Result<Start, Rejection>, ApplyError> {
        let host = self.host.as_ref().map(Arc::clone);
        let host = host.ok_or(ApplyError::ProgramNeeded(stamp.intention))?;
        let has_room = |code: &[u8]| self.codes.has_room(&*host, code, CODES_BYTES_MAX);
        let known = topic.and_then(|id| self.topics.get(id.index()));
        let last = known.map_or(ConsequenceOffset::ZERO, |topic| topic.last);
        let too_long = |args: &[u8]| args.len() > ARGUMENT_BYTES_MAX;
        let (options, has_room, target) = match item.action {
            Action::Create {
                options,
                code,
                args,
                ..
            } => {
                if known.is_none() && self.topics.len() >= TOPICS_MAX {
                    return Ok(Err(limited(TOPICS_MAX as u64)));
                }
                if too_long(args) {
                    return Ok(Err(limited(ARGUMENT_BYTES_MAX as u64)));
                }
                let options = TopicOptions::of_item(options);
                let live = Box::new(LiveTopic {
                    incarnation: stamp.intention,
                    created: last.plus(1),
                    options: options.clone(),
                    keys: KeyIndex::new(self.seed),
                    program: None,
                    stopped: false,
                });
                (options, has_room(code), Target::New(live))
            }
            Action::Replace {
                expected,
                code,
                args,
                ..
            } => {
                let has_room = has_room(code);
                let topic = topic.and_then(|id| self.topics.get_mut(id.index()));
                let Some(live) = topic.and_then(|topic| topic.live.as_mut()) else {
                    return Ok(Err(Rejection::without_detail(ErrorCode::TopicAbsent)));
                };
                let Some(running) = live.program.take() else {
                    return Ok(Err(bad("the topic has no program to replace")));
                };
                let rejection = match expected.filter(|hash| *hash != running.code) {
                    Some(_) => Some(Rejection {
                        reason: ErrorCode::Conflict,
                        detail: Detail::Text(Arc::from(format!("the topic runs {}", running.code))),
                    }),
                    None => too_long(args).then(|| limited(ARGUMENT_BYTES_MAX as u64)),
                };
                if let Some(rejection) = rejection {
                    live.program = Some(running);
                    return Ok(Err(rejection));
                }
                let old = Box::new(ReplacedProgram {
                    running,
                    has_keys: !live.keys.is_empty(),
                    image: Image::default(),
                });
                (live.options.clone(), has_room, Target::Replaced(old))
            }
            _ => return Ok(Err(Rejection::without_detail(ErrorCode::NoTopic))),
        };
        Ok(Ok(Start {
            host,
            options,
            last,
            has_room,
            target,
            started: None,
        }))
    }

    /// Executes the result of a start. A topic is created only if the start of its program
    /// succeeded (T2). In a REPLACE, either the new program gets the state, or the old program
    /// remains.
    pub(super) fn finish_start<S: ConsequenceSink + ?Sized>(
        &mut self,
        start: Start,
        verdict: Result<Result<(), Rejection>, ApplyError>,
        (item, topic, stamp): (&Item<'_>, Option<TopicId>, &Stamp),
        sink: &mut S,
    ) -> Result<Result<RecordRange, Rejection>, ApplyError> {
        let verdict = verdict?;
        match (start.target, topic) {
            (Target::New(live), known) => {
                let (Ok(()), Some(mut started)) = (&verdict, start.started) else {
                    return Ok(Err(verdict
                        .err()
                        .unwrap_or(Rejection::without_detail(ErrorCode::NoTopic))));
                };
                if let Err(rejection) = started.running.charge(&mut self.states) {
                    return Ok(Err(rejection));
                }
                let id = match known {
                    Some(id) => id,
                    None => self.assign_id(item.topic, sink)?,
                };
                let Some(topic) = self.topics.get_mut(id.index()) else {
                    return Ok(Err(limited(TOPICS_MAX as u64)));
                };
                self.codes.add_topic(started.running.code, started.code);
                self.newest = self.newest.max(stamp.intention);
                topic.live = Some(*live);
                let kind = RecordKind::Create;
                Ok(Ok(announce(
                    (id, topic),
                    kind,
                    started.running,
                    item,
                    stamp,
                    sink,
                )))
            }
            (Target::Replaced(mut old), Some(id)) => {
                let absent = || Rejection::without_detail(ErrorCode::TopicAbsent);
                let Some(topic) = self.topics.get_mut(id.index()) else {
                    return Ok(Err(absent()));
                };
                let Some(live) = topic.live.as_mut() else {
                    return Ok(Err(absent()));
                };
                let verdict = match (verdict, start.started) {
                    (Ok(()), Some(mut started)) => {
                        let verdict = within_quota(&started.running.context, live, item)
                            .and_then(|()| started.running.charge(&mut self.states));
                        match verdict {
                            Ok(()) => Ok(started),
                            Err(rejection) => {
                                old.restore_old(*started.running);
                                Err(rejection)
                            }
                        }
                    }
                    (verdict, _) => Err(verdict.err().unwrap_or_else(absent)),
                };
                let mut started = match verdict {
                    Ok(started) => started,
                    Err(rejection) => {
                        live.program = Some(old.running);
                        return Ok(Err(rejection));
                    }
                };
                started.running.end_intention(true);
                started.running.context.set_old_code(None);
                live.stopped = false;
                self.codes.add_topic(started.running.code, started.code);
                self.codes.remove_topic(old.running.code);
                sink.discard(old);
                let kind = RecordKind::Replace;
                Ok(Ok(announce(
                    (id, topic),
                    kind,
                    started.running,
                    item,
                    stamp,
                    sink,
                )))
            }
            (Target::Replaced(_), None) => {
                Ok(Err(Rejection::without_detail(ErrorCode::TopicAbsent)))
            }
        }
    }
}

/// Writes the CREATE or REPLACE record and the records of the start, and installs the program in
/// the topic.
fn announce<S: ConsequenceSink + ?Sized>(
    (id, topic): (TopicId, &mut Topic),
    kind: RecordKind,
    mut running: Box<RunningProgram>,
    item: &Item<'_>,
    stamp: &Stamp,
    sink: &mut S,
) -> RecordRange {
    topic.digest = topic.digest.fold(running.context.digest());
    let value = announcement(running.code, &running.args);
    let emits = running.context.emits().len();
    let flags = if emits == 0 { RecordFlags::LAST } else { 0 };
    let offset = emit(id, topic, stamp, sink, kind, flags, |r| {
        r.value = &value;
        r.meta = item.meta;
    });
    publish(id, topic, &running.context, item, stamp, sink, false);
    running.context.release_memory();
    if let Some(live) = &mut topic.live {
        live.program = Some(running);
    }
    (
        offset,
        to_u32(emits + 1, "the records of a call are limited"),
    )
}
