//! Random histories of groups against a model that stores the state of each record. Checked:
//! - No two members have one record.
//! - No record is lost.
//! - No acknowledged record is delivered again.
//! - The records of a key stay in order.
//! - A machine that was saved and loaded behaves like one that was not.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_core::batch::{Batch, BatchBuilder};
use weir_core::group::{Hashes, Offsets, key_hash};
use weir_core::intention::{Intention, IntentionLimits, Operation};
use weir_core::machine::groups::EntryState;
use weir_core::{
    Commit, ConsequenceSink, Effect, ErrorCode, GroupMode, GroupSetup, GroupStep, Machine,
    Outcomes, Record, TopicId, TopicName, TopicOptions,
};

const MEMBERS: [&[u8]; 3] = [b"anna", b"bert", b"carl"];
const KEYS: [&[u8]; 4] = [b"", b"k", b"l", b"m"];
const LEASE_MS: u64 = 10;

struct DiscardSink;

impl ConsequenceSink for DiscardSink {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}
    fn record(&mut self, _: TopicId, _: &Record<'_>) {}
}

#[derive(Clone, Debug)]
enum Action {
    Put(usize),
    /// Member, requested old records, number of new records, whether the view is stale.
    Claim(usize, Vec<u8>, u8, bool),
    Ack(u8, u8),
    Nack(u8, u8, u64),
    Extend(u8, u64),
    Wait(u64),
    Reset(u8),
    WriteDeadLetters,
    Reload,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        6 => (0..KEYS.len()).prop_map(Action::Put),
        6 => (0..MEMBERS.len(), prop::collection::vec(any::<u8>(), 0..4), 0..6_u8, any::<bool>())
            .prop_map(|(member, old, new, stale)| Action::Claim(member, old, new, stale)),
        5 => (any::<u8>(), any::<u8>()).prop_map(|(a, b)| Action::Ack(a, b)),
        3 => (any::<u8>(), any::<u8>(), 0..15_u64).prop_map(|(a, b, c)| Action::Nack(a, b, c)),
        2 => (any::<u8>(), 1..30_u64).prop_map(|(a, b)| Action::Extend(a, b)),
        3 => (1..15_u64).prop_map(Action::Wait),
        1 => any::<u8>().prop_map(Action::Reset),
        1 => Just(Action::WriteDeadLetters),
        1 => Just(Action::Reload),
    ];
    prop::collection::vec(action, 1..80)
}

/// State of a record in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RecordState {
    New,
    Done,
    Waiting(u64, u32),
    Leased {
        claim: u64,
        member: usize,
        until: u64,
        attempts: u32,
    },
}

struct Comparison {
    machine: Machine,
    time_ms: u64,
    mode: GroupMode,
    attempts_max: u32,
    pending: usize,
    /// Keys by offset; the first entry is the CREATE.
    keys: Vec<usize>,
    states: Vec<RecordState>,
    unwritten_dead_letters: BTreeMap<u64, u64>,
    dead_lettered: u64,
    frontier: usize,
}

impl Comparison {
    fn new(mode: GroupMode, attempts_max: u32, pending: u32) -> Self {
        let mut comparison = Self {
            machine: Machine::new(1),
            time_ms: 0,
            mode,
            attempts_max,
            pending: pending as usize,
            keys: vec![0],
            states: vec![RecordState::New],
            unwritten_dead_letters: BTreeMap::new(),
            dead_lettered: 0,
            frontier: 0,
        };
        let options = TopicOptions::default();
        comparison.send(Operation::Create { options: &options });
        let mut setup = GroupSetup::new(mode);
        setup.lease_ms = LEASE_MS;
        setup.attempts_max = attempts_max;
        setup.pending_max = pending;
        setup.dead_letters = if attempts_max > 0 { "dead" } else { "" };
        assert_eq!(
            comparison.step(GroupStep::Open(setup)).effect,
            Effect::Valid
        );
        comparison
    }

    fn send(&mut self, operation: Operation<'_>) -> Commit {
        let mut builder = BatchBuilder::default();
        let intention = Intention::new("t", operation);
        builder
            .push(&intention, &IntentionLimits::default())
            .unwrap();
        let bytes = builder.to_bytes(self.time_ms);
        let mut outcomes = Outcomes::default();
        let batch = Batch::read(&bytes, 1).unwrap();
        self.machine
            .apply(&batch, &mut DiscardSink, &mut outcomes)
            .unwrap();
        outcomes.iter().next().unwrap().commit().unwrap().clone()
    }

    fn step(&mut self, step: GroupStep<'_>) -> Commit {
        self.send(Operation::Cursor { group: "g", step })
    }

    fn record_state(&mut self, offset: u64) -> &mut RecordState {
        let index = usize::try_from(offset).unwrap() - 1;
        &mut self.states[index]
    }

    fn key(&self, offset: u64) -> usize {
        self.keys[usize::try_from(offset).unwrap() - 1]
    }

    fn open(&self) -> Vec<u64> {
        let open = |record_state: &RecordState| {
            matches!(
                record_state,
                RecordState::Waiting(..) | RecordState::Leased { .. }
            )
        };
        (1..)
            .zip(&self.states)
            .filter(|(_, record_state)| open(record_state))
            .map(|(offset, _)| offset)
            .collect()
    }

    fn cursor(&self) -> usize {
        self.open()
            .first()
            .map_or(self.frontier, |first| usize::try_from(*first).unwrap() - 1)
    }

    fn run(&mut self, action: &Action) {
        match action {
            Action::Put(key) => {
                let (key_bytes, value) = (KEYS[*key], &b"v"[..]);
                self.send(Operation::Put {
                    key: key_bytes,
                    value,
                });
                self.keys.push(*key);
                self.states.push(RecordState::New);
            }
            Action::Claim(member, old, new, stale) => self.claim(*member, old, *new, *stale),
            Action::Ack(claim, which) => self.acknowledge_or_return(*claim, *which, None),
            Action::Nack(claim, which, delay) => {
                self.acknowledge_or_return(*claim, *which, Some(*delay));
            }
            Action::Extend(which, lease_ms) => self.extend(*which, *lease_ms),
            Action::Wait(ms) => self.time_ms += ms,
            Action::Reset(to) => {
                let offset = u64::from(*to) % (self.states.len() as u64 + 1);
                assert_eq!(self.step(GroupStep::Reset { offset }).effect, Effect::Valid);
                self.frontier = usize::try_from(offset).unwrap();
                for (at, record_state) in self.states.iter_mut().enumerate() {
                    *record_state = if at < self.frontier {
                        RecordState::Done
                    } else {
                        RecordState::New
                    };
                }
            }
            Action::WriteDeadLetters => {
                let numbers: Vec<u64> = self.unwritten_dead_letters.keys().copied().collect();
                if !numbers.is_empty() {
                    let numbers = Offsets::Plain(&numbers);
                    self.step(GroupStep::DeadLettersWritten { numbers });
                    self.unwritten_dead_letters.clear();
                }
            }
            Action::Reload => {
                let (mut bytes, mut again) = (Vec::new(), Vec::new());
                self.machine.save(&mut bytes).unwrap();
                let loaded = Machine::load(&mut bytes.as_slice(), 77).unwrap();
                loaded.save(&mut again).unwrap();
                assert_eq!(bytes, again, "one encoding for each state");
                assert_eq!(self.machine.digest(), loaded.digest());
                self.machine = loaded;
            }
        }
    }

    fn claim(&mut self, member: usize, old: &[u8], new: u8, stale: bool) {
        let open = self.open();
        let mut list: Vec<u64> = Vec::new();
        if !open.is_empty() {
            list.extend(old.iter().map(|n| open[usize::from(*n) % open.len()]));
        }
        let back = if stale { self.frontier.min(2) } else { 0 };
        let seen = self.frontier - back;
        let through = (seen + usize::from(new)).min(self.states.len());
        // Claims skip the CREATE record.
        list.extend(
            (seen + 1..=through)
                .filter(|at| *at > 1)
                .map(|at| at as u64),
        );
        list.sort_unstable();
        list.dedup();
        let hashes: Vec<u64> = list
            .iter()
            .map(|at| key_hash(KEYS[self.key(*at)]))
            .collect();
        let commit = self.step(GroupStep::Claim {
            member: MEMBERS[member],
            lease_ms: 0,
            seen: seen as u64,
            through: through as u64,
            offsets: Offsets::Plain(&list),
            keys: (self.mode == GroupMode::Keyed).then_some(Hashes::Plain(&hashes)),
        });
        assert_eq!(commit.effect, Effect::Valid);
        self.expect_claim(member, &list, through, commit.intention.0);
    }

    /// The rules of a claim, applied to one record at a time without an index.
    fn expect_claim(&mut self, member: usize, list: &[u64], through: usize, claim: u64) {
        let start = self.frontier;
        let acknowledged_above = start - self.cursor() - self.open().len();
        let pauses = acknowledged_above >= self.pending;
        let mut frontier = if pauses { start } else { through.max(start) };
        for at in list {
            if usize::try_from(*at).unwrap() > start {
                if pauses || self.open().len() >= self.pending {
                    frontier = frontier.min(usize::try_from(*at).unwrap() - 1);
                    break;
                }
                *self.record_state(*at) = RecordState::Waiting(0, 0);
            }
            let (free, attempts) = match self.record_state(*at).clone() {
                RecordState::Waiting(from, attempts) => (from <= self.time_ms, attempts),
                RecordState::Leased {
                    until, attempts, ..
                } => (until <= self.time_ms, attempts),
                RecordState::New | RecordState::Done => (false, 0),
            };
            if !free {
                continue;
            }
            if self.attempts_max > 0 && attempts >= self.attempts_max {
                self.dead_letter(*at);
            } else if self.is_deliverable(*at, member) {
                *self.record_state(*at) = RecordState::Leased {
                    claim,
                    member,
                    until: self.time_ms + LEASE_MS,
                    attempts: attempts + 1,
                };
            }
        }
        for at in start..frontier {
            if self.states[at] == RecordState::New {
                self.states[at] = RecordState::Done;
            }
        }
        self.frontier = frontier;
    }

    fn is_deliverable(&self, at: u64, member: usize) -> bool {
        let key = self.key(at);
        if self.mode != GroupMode::Keyed || key == 0 {
            return true;
        }
        self.open()
            .into_iter()
            .filter(|other| *other != at && self.key(*other) == key)
            .all(
                |other| match &self.states[usize::try_from(other).unwrap() - 1] {
                    RecordState::Leased {
                        member: holder,
                        until,
                        ..
                    } if *until > self.time_ms => *holder == member,
                    _ => other > at,
                },
            )
    }

    fn dead_letter(&mut self, at: u64) {
        *self.record_state(at) = RecordState::Done;
        self.dead_lettered += 1;
        self.unwritten_dead_letters.insert(self.dead_lettered, at);
    }

    /// Acknowledges or returns a record of a claim, or one that the claim does not have.
    fn acknowledge_or_return(&mut self, which: u8, foreign: u8, delay: Option<u64>) {
        let open = self.open();
        let Some(at) = open.get(usize::from(which) % open.len().max(1)).copied() else {
            return;
        };
        let (holder, attempts) = match self.record_state(at).clone() {
            RecordState::Leased {
                claim, attempts, ..
            } => (claim, attempts),
            _ => (0, 0),
        };
        let claim = if foreign < 50 {
            u64::from(foreign) + 1
        } else {
            holder.max(1)
        };
        let (list, now) = ([at], self.time_ms);
        let offsets = Offsets::Plain(&list);
        let step = match delay {
            None => GroupStep::Ack { claim, offsets },
            Some(delay_ms) => GroupStep::Nack {
                claim,
                delay_ms,
                reason: "",
                offsets,
            },
        };
        let commit = self.step(step);
        if claim != holder {
            assert_eq!(commit.reason, Some(ErrorCode::NotOwner));
            return;
        }
        assert_eq!(commit.effect, Effect::Valid);
        match delay {
            None => *self.record_state(at) = RecordState::Done,
            Some(_) if self.attempts_max > 0 && attempts >= self.attempts_max => {
                self.dead_letter(at);
            }
            Some(delay) => *self.record_state(at) = RecordState::Waiting(now + delay, attempts),
        }
    }

    fn extend(&mut self, which: u8, lease_ms: u64) {
        let open = self.open();
        let Some(at) = open.get(usize::from(which) % open.len().max(1)).copied() else {
            return;
        };
        if let RecordState::Leased {
            claim,
            member,
            attempts,
            ..
        } = self.record_state(at).clone()
        {
            let list = [at];
            let offsets = Offsets::Plain(&list);
            let step = GroupStep::Extend {
                claim,
                lease_ms,
                offsets,
            };
            assert_eq!(self.step(step).effect, Effect::Valid);
            let until = self.time_ms + lease_ms;
            *self.record_state(at) = RecordState::Leased {
                claim,
                member,
                until,
                attempts,
            };
        }
    }

    /// Checks that machine and model agree on every record.
    fn check(&self) {
        let group = self.machine.group("t", "g").unwrap();
        assert_eq!(group.frontier(), self.frontier as u64);
        assert_eq!(group.cursor(), self.cursor() as u64);
        let open = self.open();
        assert_eq!(group.entries().map(|(at, _)| at).collect::<Vec<_>>(), open);
        for (at, entry) in group.entries() {
            let found = match entry.state {
                EntryState::Waiting { from_ms } => RecordState::Waiting(from_ms, entry.attempts),
                EntryState::Leased { claim, until_ms } => {
                    let name = group.claims().find(|(id, ..)| *id == claim).unwrap().1;
                    RecordState::Leased {
                        claim,
                        member: MEMBERS.iter().position(|member| *member == name).unwrap(),
                        until: until_ms,
                        attempts: entry.attempts,
                    }
                }
            };
            assert_eq!(
                found,
                self.states[usize::try_from(at).unwrap() - 1],
                "record {at}"
            );
        }
        let letters: BTreeMap<u64, u64> = group
            .unwritten_dead_letters()
            .map(|(n, l)| (n, l.offset))
            .collect();
        assert_eq!(letters, self.unwritten_dead_letters);
        let due: Vec<u64> = group.due().map(|(_, at)| at).collect();
        assert_eq!(due.len(), open.len(), "each entry is due once");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_group_behaves_like_the_model(
        actions in actions(),
        keyed in any::<bool>(),
        attempts in 0..4_u32,
        pending in prop_oneof![Just(3_u32), Just(1000)],
    ) {
        let mode = if keyed { GroupMode::Keyed } else { GroupMode::Shared };
        let mut comparison = Comparison::new(mode, attempts, pending);
        for action in &actions {
            comparison.run(action);
            comparison.check();
        }
    }
}
