//! Runs the machine and the model side by side, with three more machines that must agree with the
//! first. One applies the items one by one, one is saved and loaded between every two batches, and
//! one has another seed.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::batch::{Batch, BatchBuilder};
use weir_core::intention::IntentionLimits;
use weir_core::record::ConsequenceSink;
use weir_core::{
    ClientId, Commit, Detail, Effect, ErrorCode, IntentionOffset, Machine, Outcome, Outcomes,
    Record, TopicId, TopicName,
};

use super::oracle::{self, Answer, Oracle, StepResult};
use super::script::{Entry, Step, client};

/// Stores the records, and checks the invariants of each record.
#[derive(Debug, Default)]
struct Sink {
    names: Vec<String>,
    last: BTreeMap<u32, u64>,
    records: Vec<oracle::Entry>,
    since_executed: u64,
    executed: u64,
}

impl ConsequenceSink for Sink {
    fn topic(&mut self, id: TopicId, name: &TopicName) {
        assert_eq!(id.index(), self.names.len(), "topic numbers are dense");
        self.names.push(name.as_str().to_owned());
    }

    fn record(&mut self, id: TopicId, record: &Record<'_>) {
        let last = self.last.entry(id.0).or_default();
        assert_eq!(record.offset.0, *last + 1, "I1: offsets are dense");
        *last += 1;
        self.since_executed += 1;
        let alter = record.kind == weir_core::RecordKind::Alter;
        self.records.push(oracle::Entry {
            topic: self.names[id.index()].clone(),
            offset: record.offset.0,
            intention: record.intention.0,
            time_ms: record.time_ms,
            client: record.client.0[0],
            nonce: record.nonce,
            last: record.flags.last(),
            txn: record.flags.txn(),
            kind: record.kind.name(),
            key: record.key.to_vec(),
            // The encoding of options is a separate format, which the model does not have.
            value: if alter { &[] } else { record.value }.to_vec(),
            meta: record.meta.to_vec(),
        });
    }

    fn executed(&mut self, intention: IntentionOffset, effect: Effect) {
        assert_eq!(intention.0, self.executed + 1, "R3: no holes");
        self.executed += 1;
        let records = std::mem::take(&mut self.since_executed);
        assert!(effect == Effect::Valid || records == 0, "I10");
    }
}

/// A machine with its sink.
struct Node {
    machine: Machine,
    sink: Sink,
}

impl Node {
    fn new(seed: u64) -> Self {
        Self {
            machine: Machine::new(seed),
            sink: Sink::default(),
        }
    }

    fn apply(&mut self, time_ms: u64, builder: &BatchBuilder) -> Outcomes {
        let bytes = builder.to_bytes(time_ms);
        let batch = Batch::read(&bytes, 1).unwrap();
        let mut outcomes = Outcomes::default();
        let before = (self.machine.applied(), self.sink.executed);
        let applied = self
            .machine
            .apply(&batch, &mut self.sink, &mut outcomes)
            .unwrap();
        assert_eq!(outcomes.len(), builder.len());
        assert_eq!(applied.executed, applied.last.0 - before.0.0);
        assert_eq!(applied.executed, self.sink.executed - before.1);
        outcomes
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.machine.save(&mut bytes).unwrap();
        bytes
    }
}

pub(crate) struct Pair {
    oracle: Oracle,
    first: Node,
    one_by_one: Node,
    reloaded: Node,
    other_seed: Node,
    seed: u64,
    seen: BTreeSet<&'static str>,
}

impl Pair {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            oracle: Oracle::default(),
            first: Node::new(seed),
            one_by_one: Node::new(seed.wrapping_add(1)),
            reloaded: Node::new(seed.wrapping_add(2)),
            other_seed: Node::new(!seed),
            seed,
            seen: BTreeSet::new(),
        }
    }

    pub(crate) fn next_nonce(&self, number: u8) -> u64 {
        self.first.machine.sessions().last_nonce(client(number)) + 1
    }

    /// Applies an entry everywhere, and compares all answers and records.
    pub(crate) fn apply(&mut self, entry: &Entry) {
        self.oracle.begin(entry.time_ms);
        let expected: Vec<StepResult> = entry
            .steps
            .iter()
            .map(|step| self.oracle.step(step))
            .collect();
        let mut whole = BatchBuilder::default();
        let limits = IntentionLimits::default();
        let mut singles = Vec::new();
        for step in &entry.steps {
            step.with_intention(|intention| whole.push(intention, &limits))
                .unwrap_or_else(|error| panic!("{error}: {step:?}"));
            let mut single = BatchBuilder::default();
            step.with_intention(|intention| single.push(intention, &limits))
                .unwrap();
            let outcomes = self.one_by_one.apply(entry.time_ms, &single);
            singles.extend(outcomes.iter());
        }
        self.reload();
        let outcomes = self.first.apply(entry.time_ms, &whole);
        assert_eq!(outcomes, self.reloaded.apply(entry.time_ms, &whole));
        assert_eq!(outcomes, self.other_seed.apply(entry.time_ms, &whole));
        let answers: Vec<Outcome> = outcomes.iter().collect();
        assert_eq!(
            answers, singles,
            "the division into batches changes no outcome"
        );
        for ((step, expected), answer) in entry.steps.iter().zip(&expected).zip(&answers) {
            assert_eq!(*expected, step_result(answer), "{step:?}");
            self.seen.insert(name_of(answer));
        }
        for node in [&self.one_by_one, &self.reloaded, &self.other_seed] {
            assert_eq!(self.first.machine.digest(), node.machine.digest(), "I4");
        }
        self.compare_new_records();
    }

    fn compare_new_records(&mut self) {
        let expected = std::mem::take(&mut self.oracle.records);
        let nodes = [
            &mut self.first,
            &mut self.one_by_one,
            &mut self.reloaded,
            &mut self.other_seed,
        ];
        for node in nodes {
            assert_eq!(std::mem::take(&mut node.sink.records), expected);
        }
    }

    /// Saves a machine, loads it with a new seed, and continues with the loaded one.
    fn reload(&mut self) {
        let sessions = self.reloaded.machine.sessions().len();
        if sessions > 100 && !self.reloaded.machine.applied().0.is_multiple_of(499) {
            return; // a full table has 4,096 sessions
        }
        let bytes = self.reloaded.bytes();
        self.seed = self.seed.wrapping_add(11);
        let machine = Machine::load(&mut bytes.as_slice(), self.seed).unwrap();
        self.reloaded.machine = machine;
        assert_eq!(self.reloaded.bytes(), bytes);
    }

    /// A PUT of one of very many clients, at its next nonce or a later one.
    pub(crate) fn apply_one_of(&mut self, number: u64, gap: u64, time_ms: u64) {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_le_bytes());
        let id = ClientId(id);
        let nonce = self.first.machine.sessions().last_nonce(id) + 1 + gap;
        let step = Step {
            nonce,
            ..super::put(1, 1, b"v")
        };
        self.oracle.begin(time_ms);
        let expected = self.oracle.step_of(number, &step);
        let mut builder = BatchBuilder::default();
        let limits = IntentionLimits::default();
        step.with_intention(|intention| builder.push(&intention.under(id, nonce), &limits))
            .unwrap();
        self.reload();
        for node in [&mut self.first, &mut self.reloaded] {
            let outcome = node.apply(time_ms, &builder).iter().next().unwrap();
            assert_eq!(step_result(&outcome), expected);
            self.seen.insert(name_of(&outcome));
            node.sink.records.clear();
        }
        self.oracle.records.clear();
        let sessions = self.first.machine.sessions();
        assert_eq!(sessions.len(), self.oracle.sessions.len(), "I6: bounded");
        let known = self.oracle.sessions.get(&number).map_or(0, |s| s.last);
        assert_eq!(sessions.last_nonce(id), known);
    }

    /// Compares the observable state of the machine with the model, and the saved bytes of the
    /// machines with each other.
    pub(crate) fn compare_states(&self) {
        let (machine, oracle) = (&self.first.machine, &self.oracle);
        assert_eq!(machine.applied().0, oracle.applied);
        assert_eq!(machine.time_ms(), oracle.time_ms);
        assert_eq!(machine.topics().count(), oracle.topics.len());
        for (name, topic) in &oracle.topics {
            let view = machine.topic(name).unwrap();
            assert_eq!(view.last.0, topic.last, "T4");
            let Some(live) = &topic.live else {
                assert!(view.incarnation.is_none() && view.keys.is_none());
                continue;
            };
            assert_eq!(view.incarnation.unwrap().0, live.incarnation);
            assert_eq!(view.created.unwrap().0, live.created);
            let options = view.options.unwrap();
            assert_eq!(options.key_bytes_max, live.limits.key_bytes);
            assert_eq!(options.value_bytes_max, live.limits.value_bytes);
            assert_eq!(options.keys_max, live.limits.keys);
            let keys = view.keys.unwrap();
            let expected = live.keys.iter().map(|(key, offset)| (key.clone(), *offset));
            let found = keys.sorted().into_iter().map(|(k, o)| (k.to_vec(), o.0));
            assert!(found.eq(expected), "K2");
            assert_eq!(keys.len(), live.keys.len());
        }
        assert_eq!(machine.sessions().len(), oracle.sessions.len());
        for number in 1..4_u8 {
            let session = oracle.sessions.get(&u64::from(number));
            let last = session.map_or(0, |session| session.last);
            assert_eq!(machine.sessions().last_nonce(client(number)), last);
            for (nonce, answer) in session.iter().flat_map(|s| s.answers()) {
                let stored = machine.sessions().outcome(client(number), nonce);
                assert_eq!(
                    stored.map(|commit| answer_of(&commit)).as_ref(),
                    Some(answer)
                );
            }
        }
        let bytes = self.first.bytes();
        assert_eq!(bytes, self.reloaded.bytes(), "M5");
        if self.other_seed.machine.applied() == machine.applied() {
            assert_eq!(bytes, self.other_seed.bytes(), "M5");
            assert_eq!(
                bytes,
                self.one_by_one.bytes(),
                "M5, for every division into batches"
            );
        }
    }

    /// Whether an answer with this name occurred.
    pub(crate) fn occurred(&self, name: &str) -> bool {
        self.seen.contains(name)
    }

    /// Asserts that every kind of answer occurred: a run without one does not test it.
    pub(crate) fn assert_every_outcome_occurred(&self) {
        let all = [
            "CONFLICT",
            "LIMIT",
            "NONCE_GAP",
            "NONCE_REUSED",
            "NO_TOPIC",
            "QUOTA",
            "REPLAYED",
            "SESSION_EXPIRED",
            "TOPIC_ABSENT",
            "TOPIC_EXISTS",
            "TXN_ABORTED",
            "VALID",
        ];
        assert!(self.seen.iter().eq(all.iter()), "{:?}", self.seen);
    }
}

fn name_of(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Committed(commit) => commit.reason.map_or("VALID", |reason| reason.name()),
        Outcome::Replayed(_) => "REPLAYED",
        Outcome::Refused { code, .. } => code.name(),
    }
}

fn step_result(outcome: &Outcome) -> StepResult {
    match outcome {
        Outcome::Committed(commit) => StepResult::Committed(answer_of(commit)),
        Outcome::Replayed(commit) => StepResult::Replayed(answer_of(commit)),
        Outcome::Refused { code, expected } => StepResult::Refused(code.name(), *expected),
    }
}

/// Converts a commit to an answer of the model. The effect must follow from the reason.
fn answer_of(commit: &Commit) -> Answer {
    let reason = commit.reason.map(ErrorCode::name);
    let effect = match reason {
        None => Effect::Valid,
        Some("NO_TOPIC" | "LIMIT") => Effect::Error,
        Some(_) => Effect::Invalid,
    };
    assert_eq!(commit.effect, effect, "{commit:?}");
    Answer {
        nonce: commit.nonce,
        reason,
        detail: match commit.detail {
            Detail::None => None,
            Detail::Actual(offset) => Some((offset, "actual")),
            Detail::Limit(max) => Some((max, "limit")),
            Detail::Operation { index, reason } => Some((u64::from(index), reason.name())),
            ref other => panic!("a detail of a program: {other:?}"),
        },
        intention: commit.intention.0,
        first: commit.first.0,
        records: u64::from(commit.records),
    }
}
