//! What follows a sync: batches are applied in slices, published, answered.
//!
//! The machine is let go between two slices. A batch whose programs are costly
//! is deferred: a thread of its own judges its calls, and the batches behind it
//! are applied meanwhile (weir-core's `machine::deferred` says which can be).
//! Those that cannot are deferred behind it, in their order. This thread waits
//! for programs only where it cannot be told what becomes of an item, or where
//! too much is deferred. What must never happen here: an applied index that
//! covers a batch before its last call is settled.

use std::collections::VecDeque;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use weir_core::batch::{BatchBuilder, Items};
use weir_core::machine::deferred::{COSTLY_FUEL, Deferred, Judging, Turn};
use weir_core::machine::{Costly, Slice};
use weir_core::{Batch, Outcome, OutcomeRun, Outcomes};

use super::LOCAL_TERM;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::log::LogIndex;
use crate::queue::{JudgeDied, Judged, Pending, QUEUE_BYTES_MAX};
use crate::topic::sink::Topics;

/// For how long the machine is held in one piece: some 100 us.
const SLICE: Slice = Slice {
    items_max: 1024,
    fuel_max: 2 * COSTLY_FUEL,
    stops: true,
};

/// The same for an item that cannot be deferred.
const ONE: Slice = Slice {
    items_max: 1,
    stops: false,
    ..SLICE
};

/// Batches that are deferred at once, with at most as many bytes as may wait in
/// the queue: each one more makes it dearer to find out whether another one may
/// be applied before them.
const AWAY_BATCHES_MAX: usize = 64;

/// Batches that are in the log, with their stamps.
pub(super) type Logged = VecDeque<(Pending, u64)>;

/// A batch that is judged while others are applied.
struct Away {
    /// Who waits; nobody yet for a part whose rest could not be deferred.
    pending: Option<Pending>,
    builder: Arc<BatchBuilder>,
    index: LogIndex,
    time_ms: u64,
    deferred: Deferred,
    outcomes: Outcomes,
}

/// A call on its way to the thread that judges.
struct Call {
    judging: Box<Judging>,
    builder: Arc<BatchBuilder>,
    time_ms: u64,
}

impl Call {
    fn run(mut self) -> Box<Judging> {
        let start = Instant::now();
        self.judging.run(&batch(&self.builder, self.time_ms));
        self.judging.took(nanoseconds(start));
        self.judging
    }
}

/// The thread that judges costly calls, made when the first one comes.
#[derive(Default)]
struct Judge(Option<(mpsc::Sender<Call>, JoinHandle<()>)>);

impl Judge {
    /// Hands a call over, or gives it back when there is no thread.
    fn send(&mut self, engine: &Arc<Engine>, call: Call) -> Result<(), Call> {
        if self.0.is_none() {
            let (sender, calls) = mpsc::channel();
            let engine = Arc::clone(engine);
            let thread = std::thread::Builder::new().name("weir-judge".to_owned());
            let thread = thread.spawn(move || judge(&engine, &calls));
            self.0 = match thread {
                Ok(thread) => Some((sender, thread)),
                Err(error) => {
                    tracing::warn!(%error, "no thread judges costly calls: all wait for them");
                    None
                }
            };
        }
        match &self.0 {
            Some((sender, _)) => sender.send(call).map_err(|mpsc::SendError(call)| call),
            None => Err(call),
        }
    }

    /// Waits for its thread; a call that it has in hand is judged before.
    fn end(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            // It has told when it died.
            drop(thread.join());
        }
    }
}

fn judge(engine: &Engine, calls: &mpsc::Receiver<Call>) {
    /// Tells the commit thread when this one dies in a call.
    struct Alarm<'a>(&'a Engine);
    impl Drop for Alarm<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let thread = "the thread of costly programs";
                self.0.poison(StoreError::Panicked { thread });
                self.0.queue.judged(Err(JudgeDied));
            }
        }
    }
    let _alarm = Alarm(engine);
    while let Ok(call) = calls.recv() {
        engine.queue.judged(Ok(call.run()));
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn batch(builder: &BatchBuilder, time_ms: u64) -> Batch<'_> {
    Batch {
        count: u32::try_from(builder.len()).unwrap_or(u32::MAX),
        time_ms,
        term: LOCAL_TERM,
        items: builder.items(),
    }
}

/// What applies the log: the machine's one writer, and that of all topics.
pub(crate) struct Applier {
    engine: Arc<Engine>,
    pub(crate) topics: Topics,
    outcomes: Outcomes,
    /// The newest entry that is applied, or deferred.
    applied: LogIndex,
    /// The batches that are judged beside the others, oldest first. Only the
    /// first one has begun.
    away: VecDeque<Away>,
    /// A call of it is with the other thread.
    judging: bool,
    /// Outcomes of a part that has ended.
    part: Option<Outcomes>,
    judge: Judge,
}

impl Applier {
    pub(super) fn new(engine: Arc<Engine>, topics: Topics) -> Self {
        Self {
            applied: engine.applied_index(),
            engine,
            topics,
            outcomes: Outcomes::default(),
            away: VecDeque::new(),
            judging: false,
            part: None,
            judge: Judge::default(),
        }
    }

    /// Whether a batch is deferred.
    pub(super) fn is_away(&self) -> bool {
        !self.away.is_empty()
    }

    /// Gives up: what is deferred is answered by its drop.
    pub(super) fn give_up(&mut self) {
        self.away.clear();
    }

    /// Ends the thread that judges.
    pub(super) fn end(&mut self) {
        self.judge.end();
    }

    /// Applies batches of the log, in their order.
    pub(super) fn apply_all(&mut self, batches: Logged) -> Result<(), StoreError> {
        batches
            .into_iter()
            .try_for_each(|(pending, time_ms)| self.apply(pending, time_ms))
    }

    /// Applies a batch of the log and answers it, now or when its costly calls
    /// are judged.
    fn apply(&mut self, mut pending: Pending, time_ms: u64) -> Result<(), StoreError> {
        let builder = Arc::new(std::mem::take(&mut pending.builder));
        let batch = batch(&builder, time_ms);
        if self.is_full() {
            self.finish_away()?;
        }
        let index = self.applied.next();
        let mut outcomes = std::mem::take(&mut self.outcomes);
        outcomes.clear();
        let mut items = batch.items();
        let mut apart = pending.is_slow || self.conflicts(&batch);
        while items.left() > 0 {
            if apart {
                let rest = items.clone();
                let deferred = self.defer(&batch, &mut items);
                let is_whole = items.left() == 0;
                if let Some(deferred) = deferred {
                    if is_whole && !pending.is_slow {
                        self.engine.queue.hold_back(&mut pending, &rest);
                    }
                    self.away.push_back(Away {
                        pending: is_whole.then(|| std::mem::take(&mut pending)),
                        builder: Arc::clone(&builder),
                        index,
                        time_ms,
                        deferred,
                        outcomes: std::mem::take(&mut outcomes),
                    });
                    if is_whole {
                        drop(builder);
                        self.applied = index;
                        self.show_applied();
                        return self.advance();
                    }
                }
                // What becomes of the next item depends on those before it.
                self.finish_away()?;
                outcomes = self.part.take().unwrap_or(outcomes);
            }
            let slice = if apart { &ONE } else { &SLICE };
            let costly = self.slice(&batch, &mut items, slice, &mut outcomes);
            let costly = costly.map_err(|error| StoreError::Apply { index, error })?;
            // A program may begin in what is left of a slow one.
            apart = costly.is_some() || pending.is_slow;
        }
        self.applied = index;
        pending.builder = Arc::into_inner(builder).unwrap_or_default();
        self.done(&mut outcomes, pending);
        self.outcomes = outcomes;
        Ok(())
    }

    /// Whether no more may be deferred.
    fn is_full(&self) -> bool {
        let bytes = || self.away.iter().map(|away| away.builder.bytes());
        self.away.len() >= AWAY_BATCHES_MAX || bytes().sum::<usize>() >= QUEUE_BYTES_MAX
    }

    fn parts(&self) -> Vec<&Deferred> {
        self.away.iter().map(|away| &away.deferred).collect()
    }

    /// Whether a batch must wait for one that is deferred.
    fn conflicts(&self, batch: &Batch<'_>) -> bool {
        let machine = || self.engine.machine.read_ok();
        !self.away.is_empty() && machine().conflicts(&self.parts(), batch)
    }

    fn defer(&self, batch: &Batch<'_>, items: &mut Items<'_>) -> Option<Deferred> {
        let mut machine = self.engine.machine.write_ok();
        machine.defer(&self.parts(), batch, items)
    }

    fn slice(
        &mut self,
        batch: &Batch<'_>,
        items: &mut Items<'_>,
        slice: &Slice,
        outcomes: &mut Outcomes,
    ) -> Result<Option<Costly>, weir_core::ApplyError> {
        let mut machine = self.engine.machine.write_ok();
        let start = Instant::now();
        let mut watch = || nanoseconds(start);
        let topics = &mut self.topics;
        let applied = machine.apply_slice(batch, items, slice, &mut watch, topics, outcomes);
        self.topics.publish();
        drop(machine);
        if let Ok(Some(costly)) = &applied
            && costly.fuel > 0
        {
            self.note(*costly);
        }
        self.engine.machine.give_way();
        applied
    }

    /// Tells the queue, which is locked before the machine.
    fn note(&self, costly: Costly) {
        let Some(topic) = costly.topic else { return };
        let machine = self.engine.machine.read_ok();
        let topic = machine.topic_by_id(topic);
        let name = topic.map(|topic| topic.name.clone());
        drop(machine);
        if let Some(name) = name {
            self.engine.queue.spent(name.as_str(), costly.fuel);
        }
    }

    /// Goes on with the deferred batches until a call must be judged.
    fn advance(&mut self) -> Result<(), StoreError> {
        while !self.judging
            && let Some(mut away) = self.away.pop_front()
        {
            if self.go_on(&mut away)? {
                self.judging = true;
                self.away.push_front(away);
                return Ok(());
            }
            let Away {
                pending,
                builder,
                mut outcomes,
                ..
            } = away;
            let Some(mut pending) = pending else {
                self.part = Some(outcomes);
                continue;
            };
            pending.builder = Arc::into_inner(builder).unwrap_or_default();
            self.done(&mut outcomes, pending);
        }
        Ok(())
    }

    /// Goes on with one of them; whether a call of it is judged.
    fn go_on(&mut self, away: &mut Away) -> Result<bool, StoreError> {
        let index = away.index;
        let fault = |error| StoreError::Apply { index, error };
        let builder = Arc::clone(&away.builder);
        let batch = batch(&builder, away.time_ms);
        loop {
            let mut machine = self.engine.machine.write_ok();
            let start = Instant::now();
            let turn = machine.resume(
                &mut away.deferred,
                &batch,
                &SLICE,
                &mut || nanoseconds(start),
                &mut self.topics,
                &mut away.outcomes,
            );
            self.topics.publish();
            drop(machine);
            match turn.map_err(fault)? {
                Turn::Pause(costly) => {
                    if let Some(costly) = costly {
                        self.note(costly);
                    }
                    self.engine.machine.give_way();
                }
                Turn::End => return Ok(false),
                Turn::Judge(judging) => {
                    let call = Call {
                        judging,
                        builder: Arc::clone(&away.builder),
                        time_ms: away.time_ms,
                    };
                    match self.judge.send(&self.engine, call) {
                        Ok(()) => return Ok(true),
                        Err(call) => self.settle(away, *call.run()).map_err(fault)?,
                    }
                }
            }
        }
    }

    fn settle(&mut self, away: &mut Away, judging: Judging) -> Result<(), weir_core::ApplyError> {
        let builder = Arc::clone(&away.builder);
        let batch = batch(&builder, away.time_ms);
        let mut machine = self.engine.machine.write_ok();
        let settled = machine.settle(
            &mut away.deferred,
            judging,
            &batch,
            &mut self.topics,
            &mut away.outcomes,
        );
        self.topics.publish();
        drop(machine);
        settled.map(|costly| self.note(costly))
    }

    /// Goes on behind a call that has been judged.
    pub(super) fn judged(&mut self, judging: Judged) -> Result<(), StoreError> {
        self.judging = false;
        let (Some(mut away), Ok(judging)) = (self.away.pop_front(), judging) else {
            let thread = "the thread of costly programs";
            return Err(StoreError::Panicked { thread });
        };
        let index = away.index;
        let settled = self.settle(&mut away, *judging);
        self.away.push_front(away);
        settled.map_err(|error| StoreError::Apply { index, error })?;
        self.advance()
    }

    /// Waits until no batch is deferred.
    pub(super) fn finish_away(&mut self) -> Result<(), StoreError> {
        while !self.away.is_empty() {
            if self.judging {
                let judging = self.engine.queue.wait_judged();
                self.judged(judging)?;
            } else {
                self.advance()?;
            }
        }
        Ok(())
    }

    /// A batch is applied: counts and answers it.
    fn done(&mut self, outcomes: &mut Outcomes, mut pending: Pending) {
        self.engine.arrivals.notify();
        self.show_applied();
        self.count(outcomes);
        answer(outcomes, &mut pending);
        if pending.is_slow {
            self.forget_plain(&pending);
        }
        self.engine.queue.recycle(pending);
        self.topics.write_out();
    }

    /// Topics that were costly and have no program any more are not.
    fn forget_plain(&self, pending: &Pending) {
        let machine = self.engine.machine.read_ok();
        let is_plain = |topic: &str| {
            let topic = machine.topic(topic);
            topic.is_none_or(|topic| topic.program.is_none())
        };
        let plain: Vec<_> = pending.held_topics().filter(|one| is_plain(one)).collect();
        drop(machine);
        for topic in plain {
            self.engine.queue.forget(topic);
        }
    }

    /// Everything up to the applied index is applied: a deferred batch is not.
    fn show_applied(&self) {
        let deferred = self.away.front().map(|away| away.index.0 - 1);
        let index = deferred.unwrap_or(self.applied.0);
        self.engine.counters.applied_index.set(index);
    }

    fn count(&self, outcomes: &Outcomes) {
        let counters = &self.engine.counters;
        for run in outcomes.runs() {
            let n = u64::from(run.count);
            match &run.outcome {
                Outcome::Committed(commit) => match commit.effect {
                    weir_core::Effect::Valid => counters.valid.add(n),
                    weir_core::Effect::Invalid => counters.invalid.add(n),
                    weir_core::Effect::Error => counters.errors.add(n),
                },
                Outcome::Replayed(_) => counters.replayed.add(n),
                Outcome::Refused { .. } => counters.refused.add(n),
            }
        }
    }
}

/// Hands each waiter the outcomes of its own items.
fn answer(outcomes: &Outcomes, pending: &mut Pending) {
    let mut runs = outcomes.runs().iter();
    let mut current: Option<OutcomeRun> = None;
    for (items, slot) in pending.waiters.drain(..) {
        let mut own = Outcomes::default();
        let mut missing = items;
        while missing > 0 {
            let Some(run) = current.take().or_else(|| runs.next().cloned()) else {
                break;
            };
            let taken = run.count.min(missing);
            own.push_run(OutcomeRun {
                count: taken,
                outcome: run.outcome.clone(),
            });
            missing -= taken;
            if taken < run.count {
                current = Some(OutcomeRun {
                    count: run.count - taken,
                    outcome: run.outcome.nth(u64::from(taken)),
                });
            }
        }
        assert!(missing == 0, "every item has an outcome");
        slot.complete(Ok(own));
    }
}
