//! The expected content of a store: scripts of intentions, and the state after each of
//! them, computed by the machine alone without a disk.

use std::collections::BTreeMap;
use std::ops::Range;

use weir_core::intention::{Expect, Intention, IntentionLimits, Operation, TxnOp};
use weir_core::{
    Batch, BatchBuilder, ClientId, Commit, Compaction, ConsequenceSink, Machine, Outcomes, Record,
    RecordKind, TopicId, TopicName, TopicOptions,
};

use crate::world::{Rec, SplitMix, TopicState};

/// An operation that owns its bytes.
#[derive(Clone, Debug)]
pub enum OwnedOperation {
    Create(TopicOptions),
    Destroy,
    Alter(TopicOptions),
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Txn(Vec<(Vec<u8>, Option<Vec<u8>>)>),
}

/// One intention of a script.
#[derive(Clone, Debug)]
pub struct Item {
    pub client: ClientId,
    pub nonce: u64,
    pub topic: &'static str,
    pub operation: OwnedOperation,
    pub expect: Vec<Expect<'static>>,
    pub meta: Vec<u8>,
}

/// Calls `work` with the items as intentions.
pub fn with_intentions<T>(items: &[Item], work: impl FnOnce(&[Intention<'_>]) -> T) -> T {
    let steps: Vec<Vec<TxnOp<'_>>> = items
        .iter()
        .map(|item| match &item.operation {
            OwnedOperation::Txn(steps) => steps.iter().map(step).collect(),
            _ => Vec::new(),
        })
        .collect();
    let intentions: Vec<Intention<'_>> = items
        .iter()
        .zip(&steps)
        .map(|(item, steps)| {
            let operation = match &item.operation {
                OwnedOperation::Create(options) => Operation::Create { options },
                OwnedOperation::Destroy => Operation::Destroy,
                OwnedOperation::Alter(options) => Operation::Alter { options },
                OwnedOperation::Put(key, value) => Operation::Put { key, value },
                OwnedOperation::Delete(key) => Operation::Delete { key },
                OwnedOperation::Txn(_) => Operation::Txn { ops: steps },
            };
            Intention {
                meta: &item.meta,
                ..Intention::new(item.topic, operation)
                    .under(item.client, item.nonce)
                    .expecting(&item.expect)
            }
        })
        .collect();
    work(&intentions)
}

fn step((key, value): &(Vec<u8>, Option<Vec<u8>>)) -> TxnOp<'_> {
    match value {
        Some(value) => TxnOp::Put {
            key,
            value,
            meta: b"",
        },
        None => TxnOp::Delete { key, meta: b"" },
    }
}

#[derive(Default)]
struct Sink {
    names: Vec<String>,
    records: Vec<Vec<Rec>>,
}

impl ConsequenceSink for Sink {
    fn topic(&mut self, id: TopicId, name: &TopicName) {
        assert_eq!(id.index(), self.names.len());
        self.names.push(name.as_str().to_owned());
        self.records.push(Vec::new());
    }

    fn record(&mut self, id: TopicId, record: &Record<'_>) {
        self.records[id.index()].push(Rec::from(*record));
    }
}

/// The state of all topics of a store.
pub type State = BTreeMap<String, TopicState>;

/// A script, and its expected results.
pub struct Expected {
    pub items: Vec<Item>,
    /// Commit of each item.
    pub commits: Vec<Commit>,
    /// State before the first item, and after each item.
    pub states: Vec<State>,
}

impl Expected {
    pub fn compute(items: Vec<Item>) -> Self {
        let mut machine = Machine::new(99);
        let mut sink = Sink::default();
        let mut commits = Vec::new();
        let mut states = vec![State::new()];
        for item in &items {
            let mut builder = BatchBuilder::default();
            with_intentions(std::slice::from_ref(item), |intentions| {
                let limits = IntentionLimits::default();
                builder.push_all(intentions, &limits).unwrap();
            });
            let bytes = builder.to_bytes(1_000);
            let batch = Batch::read(&bytes, 1).unwrap();
            let mut outcomes = Outcomes::default();
            machine.apply(&batch, &mut sink, &mut outcomes).unwrap();
            let outcome = outcomes.iter().next().unwrap();
            commits.push(
                outcome
                    .commit()
                    .expect("items have consecutive nonces")
                    .clone(),
            );
            states.push(state_of(&machine, &sink));
        }
        Self {
            items,
            commits,
            states,
        }
    }
}

fn state_of(machine: &Machine, sink: &Sink) -> State {
    let topics = machine.topics();
    topics
        .map(|view| {
            let records = sink.records[view.id.index()].clone();
            let keys = view.keys.map_or_else(Vec::new, |keys| keys.sorted());
            let keys = keys.into_iter().map(|(key, offset)| {
                let value = records[offset.0 as usize - 1].value.clone();
                (key.to_vec(), (offset.0, value))
            });
            let topic = TopicState {
                live: view.incarnation.is_some(),
                incarnation: view.incarnation.map_or(0, |offset| offset.0),
                last: view.last.0,
                options: view.options.cloned().unwrap_or_default(),
                keys: keys.collect(),
                records,
            };
            (view.name.as_str().to_owned(), topic)
        })
        .collect()
}

/// Checks that a topic is as expected. After a compaction, only superseded records may be
/// missing.
pub fn check_topic(found: &TopicState, expected: &TopicState, compacted: bool, what: &str) {
    assert_eq!(found.live, expected.live, "{what}");
    assert_eq!(found.incarnation, expected.incarnation, "{what}");
    assert_eq!(found.last, expected.last, "{what}: last offset");
    assert_eq!(found.options, expected.options, "{what}: options");
    assert!(found.keys == expected.keys, "{what}: keys");
    if !compacted {
        assert!(
            found.records == expected.records,
            "{what}: {} records, expected {}",
            found.records.len(),
            expected.records.len()
        );
        return;
    }
    let mut rest = found.records.iter().peekable();
    let mut newest: BTreeMap<&[u8], u64> = BTreeMap::new();
    for record in &expected.records {
        newest.insert(&record.key, record.offset);
    }
    for record in &expected.records {
        if rest.next_if(|found| *found == record).is_some() {
            continue;
        }
        let last_of_key = newest.get(record.key.as_slice()) == Some(&record.offset);
        let is_current = record.intention >= expected.incarnation && expected.live;
        let keyed =
            matches!(record.kind, RecordKind::Put | RecordKind::Delete) && !record.key.is_empty();
        assert!(
            !is_current || (keyed && !last_of_key),
            "{what}: record {} is missing",
            record.offset
        );
    }
    assert!(rest.next().is_none(), "{what}: an unexpected record");
}

/// An action of a script. Ranges are indexes of items.
#[derive(Clone, Debug)]
pub enum Action {
    /// Calls that are sent without waiting for the previous one.
    Calls(Vec<Range<usize>>),
    Checkpoint,
    CompactLog,
    CompactTopic(&'static str),
    Sync,
    /// A clean close, then an open.
    Reopen,
    /// The store is dropped without a wait. The stop is still clean.
    Kill,
}

const TOPICS: [&str; 3] = ["a", "b.c", "c"];

/// Creates a script of about `len` actions from a seed.
pub fn script(seed: u64, len: usize) -> (Vec<Item>, Vec<Action>) {
    let mut draw = SplitMix(seed);
    let mut builder = ScriptBuilder::default();
    for (topic, n) in TOPICS.iter().zip(0..) {
        builder.push(&mut draw, topic, OwnedOperation::Create(topic_options(n)));
    }
    let mut actions = vec![builder.calls(1)];
    while actions.len() < len {
        actions.push(match draw.below(24) {
            0 | 1 => Action::Checkpoint,
            2 => Action::CompactLog,
            3 | 4 => Action::CompactTopic("a"),
            5 => Action::Reopen,
            6 => Action::Kill,
            7 => Action::Sync,
            _ => {
                let calls = if draw.below(3) == 0 { 3 } else { 1 };
                for _ in 0..calls * (1 + draw.below(4)) {
                    builder.push_random(&mut draw);
                }
                builder.calls(calls as usize)
            }
        });
    }
    (builder.items, actions)
}

fn topic_options(n: u64) -> TopicOptions {
    let mut options = TopicOptions::default();
    if n.is_multiple_of(3) {
        options.compaction = Compaction::Latest;
    }
    if n == 2 {
        options.keys_max = Some(4);
    }
    options
}

#[derive(Default)]
struct ScriptBuilder {
    items: Vec<Item>,
    nonces: [u64; 3],
    returned: usize,
}

impl ScriptBuilder {
    fn push(&mut self, draw: &mut SplitMix, topic: &'static str, operation: OwnedOperation) {
        let client = draw.below(3) as usize;
        self.nonces[client] += 1;
        let n = draw.below(12);
        let expect = match n {
            0 => vec![Expect::KeyAbsent(Some(b"k1"))],
            1 => vec![Expect::TopicOffset(draw.below(60))],
            2 => vec![Expect::KeyPresent(Some(b"k2"))],
            _ => Vec::new(),
        };
        let meta = match (&operation, draw.below(5)) {
            (OwnedOperation::Put(..), 0) => b"{\"type\":\"x\"}".to_vec(),
            _ => Vec::new(),
        };
        self.items.push(Item {
            client: ClientId([client as u8 + 1; 16]),
            nonce: self.nonces[client],
            topic,
            operation,
            expect: if self.items.len() < TOPICS.len() {
                Vec::new()
            } else {
                expect
            },
            meta,
        });
    }

    fn push_random(&mut self, draw: &mut SplitMix) {
        let topic = TOPICS[draw.below(3) as usize];
        let key = |draw: &mut SplitMix| format!("k{}", draw.below(8)).into_bytes();
        let operation = match draw.below(30) {
            0 => OwnedOperation::Destroy,
            1 | 2 => OwnedOperation::Create(topic_options(u64::from(topic == "c") * 2)),
            3 => OwnedOperation::Alter(topic_options(u64::from(topic != "a"))),
            4..=7 => OwnedOperation::Delete(key(draw)),
            8..=10 => OwnedOperation::Txn(
                (0..=draw.below(5))
                    .map(|_| {
                        let value = (draw.below(4) > 0).then(|| value(draw));
                        (key(draw), value)
                    })
                    .collect(),
            ),
            11 | 12 => OwnedOperation::Put(Vec::new(), value(draw)),
            _ => OwnedOperation::Put(key(draw), value(draw)),
        };
        self.push(draw, topic, operation);
    }

    /// Returns the items added since the last call of this function, as `count` calls.
    fn calls(&mut self, count: usize) -> Action {
        let (from, to) = (self.returned, self.items.len());
        self.returned = to;
        let bound = |n: usize| from + (to - from) * n / count;
        Action::Calls(
            (0..count)
                .map(|n| bound(n)..bound(n + 1))
                .filter(|call| !call.is_empty())
                .collect(),
        )
    }
}

fn value(draw: &mut SplitMix) -> Vec<u8> {
    let len = match draw.below(16) {
        0 => 0,
        1 => 5_000 + draw.below(15_000),
        2 | 3 => 500 + draw.below(1_000),
        _ => draw.below(120),
    };
    let fill = draw.next().to_le_bytes()[0] % 8;
    vec![fill; len as usize]
}
