//! Batches whose programs take long: applied out of their order by one machine
//! and in order by another. Outcomes, records, digests and states are equal,
//! whatever the interleaving.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use proptest::prelude::*;
use weir_core::batch::{Batch, BatchBuilder};
use weir_core::desk::{Desk, Image};
use weir_core::intention::{Intention, IntentionLimits, ONCE};
use weir_core::machine::Slice;
use weir_core::machine::deferred::{COSTLY_FUEL, Deferred, Judging, Turn};
use weir_core::program::{Entry, Trap, Verdict};
use weir_core::record::ConsequenceSink;
use weir_core::{
    ClientId, CodeHash, Expect, Facts, Machine, Operation, Outcomes, Program, ProgramHost, Record,
    Refusal, Setup, TopicId, TopicName, TopicOptions, TxnOp,
};

/// Counts in its state and in a record. The first byte of a value says what a
/// call costs and whether it is refused.
#[derive(Debug)]
struct Counting;

impl ProgramHost for Counting {
    fn hash(&self, code: &[u8]) -> CodeHash {
        CodeHash([code[0]; 32])
    }

    fn admit(&self, _: &[u8], _: &Setup) -> Result<Box<dyn Program>, Refusal> {
        Ok(Box::new(Self))
    }

    fn fingerprint(&self) -> String {
        "counting".to_owned()
    }
}

impl Program for Counting {
    fn facts(&self) -> Facts {
        Facts {
            reads_input: true,
            ..Facts::default()
        }
    }

    fn fits(&self, _: &Setup) -> Result<(), String> {
        Ok(())
    }

    fn accepts(&self, _: &Image) -> bool {
        true
    }

    fn judge(&mut self, _: Entry, _: u64, desk: &mut Box<Desk>) -> Result<Verdict, Trap> {
        let kind = desk.input(1, 0).unwrap().first().copied().unwrap_or(0);
        desk.burn(if kind >= 100 { COSTLY_FUEL } else { 10 });
        let count = desk.state_get(b"n").unwrap().map_or(0, |n| n[0]);
        let free = |_| Ok(());
        desk.state_put(b"n", &[count.wrapping_add(1)], free)
            .unwrap();
        if kind % 5 == 4 {
            desk.reject_text(&[b'a' + count % 26]).unwrap();
            return Ok(Verdict::Reject(7));
        }
        desk.emit_input(free).unwrap();
        desk.emit_put(b"count", &[count], free).unwrap();
        Ok(Verdict::Valid)
    }

    fn settle(&mut self, _: bool, _: &mut Desk) {}

    fn fork(&self) -> Box<dyn Program> {
        Box::new(Self)
    }
}

/// The records of each topic, as they would be read.
#[derive(Debug, Default, PartialEq)]
struct Records(BTreeMap<u32, Vec<String>>);

impl ConsequenceSink for Records {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}

    fn record(&mut self, id: TopicId, record: &Record<'_>) {
        self.0.entry(id.0).or_default().push(format!("{record:?}"));
    }
}

#[derive(Clone, Debug)]
struct Wish {
    topic: usize,
    client: u8,
    kind: u8,
    what: u8,
}

const TOPICS: [&str; 5] = ["judged.a", "judged.b", "plain.a", "plain.b", "none"];

fn wish() -> impl Strategy<Value = Wish> {
    (0..TOPICS.len(), 0_u8..5, 0_u8..200, 0_u8..40).prop_map(|(topic, client, kind, what)| Wish {
        topic,
        client,
        kind,
        what,
    })
}

fn start() -> Machine {
    let mut machine = Machine::new(1).with_host(Some(Arc::new(Counting)));
    let options = TopicOptions::default();
    let mut builder = BatchBuilder::default();
    for (name, judged) in [
        (TOPICS[0], true),
        (TOPICS[1], true),
        (TOPICS[2], false),
        (TOPICS[3], false),
    ] {
        let operation = if judged {
            Operation::CreateProgram {
                options: &options,
                code: b"code",
                args: b"",
            }
        } else {
            Operation::Create { options: &options }
        };
        let intention = Intention::new(name, operation);
        builder
            .push(&intention, &IntentionLimits::default())
            .unwrap();
    }
    let bytes = builder.to_bytes(1);
    let batch = Batch::read(&bytes, 1).unwrap();
    let mut outcomes = Outcomes::default();
    machine
        .apply(&batch, &mut Records::default(), &mut outcomes)
        .unwrap();
    machine
}

/// Sessions count up; some nonces come again, some leave a gap.
fn encode(wishes: &[Wish], nonces: &mut BTreeMap<u8, u64>, once: &mut u8) -> BatchBuilder {
    let mut builder = BatchBuilder::default();
    for wish in wishes {
        let value = [wish.kind];
        let steps = [
            TxnOp::Put {
                key: b"a",
                value: &value,
                meta: &[],
            },
            TxnOp::Delete {
                key: b"k",
                meta: &[],
            },
        ];
        let options = TopicOptions::default();
        let operation = match wish.what {
            0..=2 => Operation::Delete { key: b"k" },
            3..=5 => Operation::Txn { ops: &steps },
            6 if wish.topic >= 2 => Operation::Create { options: &options },
            7 if wish.topic >= 2 => Operation::Destroy,
            8 => Operation::Quarantine {
                stopped: wish.kind % 2 == 0,
            },
            _ => Operation::Put {
                key: b"k",
                value: &value,
            },
        };
        let mut intention = Intention::new(TOPICS[wish.topic], operation);
        match wish.client {
            0 | 1 => {
                let last = nonces.entry(wish.client).or_default();
                let step = [1, 1, 1, 1, 1, 1, 0, 2][usize::from(wish.what) % 8];
                intention.client = ClientId([wish.client + 1; 16]);
                intention.nonce = (*last + step).max(1);
                if step == 1 {
                    *last += 1;
                }
            }
            2 => {
                if wish.what % 4 != 0 {
                    *once += 1;
                }
                // Some are ids that a session has, or once had.
                intention.client = ClientId([1 + *once % 100; 16]);
                intention.nonce = ONCE;
            }
            _ => {}
        }
        let expects = [Expect::KeyPresent(Some(b"count"))];
        if wish.what == 9 {
            intention.expect = &expects;
        }
        builder
            .push(&intention, &IntentionLimits::default())
            .unwrap();
    }
    builder
}

/// A deferred batch and what was answered of it.
struct Waiting {
    number: usize,
    deferred: Deferred,
    judging: Option<Box<Judging>>,
    outcomes: Outcomes,
}

struct Late {
    machine: Machine,
    records: Records,
    waiting: Option<Waiting>,
    answers: BTreeMap<usize, Outcomes>,
    deferred: usize,
}

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

const SLICE: Slice = Slice {
    items_max: 3,
    fuel_max: COSTLY_FUEL,
    stops: true,
};

impl Late {
    /// One step of the deferred batch: a call judged, or the next one begun.
    fn step(&mut self, batches: &[Vec<u8>]) {
        let Some(mut waiting) = self.waiting.take() else {
            return;
        };
        let batch = Batch::read(&batches[waiting.number], 1).unwrap();
        let Waiting {
            deferred,
            outcomes,
            judging,
            number,
        } = &mut waiting;
        if let Some(mut judging) = judging.take() {
            judging.run(&batch);
            self.machine
                .settle(deferred, *judging, &batch, &mut self.records, outcomes)
                .unwrap();
        } else {
            let turn = self
                .machine
                .resume(deferred, &batch, &SLICE, &mut self.records, outcomes)
                .unwrap();
            match turn {
                Turn::Judge(call) => *judging = Some(call),
                Turn::Pause(_) => {}
                Turn::End => {
                    self.answers.insert(*number, waiting.outcomes);
                    return;
                }
            }
        }
        self.waiting = Some(waiting);
    }

    fn apply(&mut self, number: usize, batches: &[Vec<u8>]) {
        let batch = Batch::read(&batches[number], 1).unwrap();
        while let Some(waiting) = &self.waiting
            && self.machine.conflicts(&waiting.deferred, &batch)
        {
            self.step(batches);
        }
        let mut items = batch.items();
        let mut outcomes = Outcomes::default();
        while items.left() > 0 {
            let costly = self
                .machine
                .apply_slice(&batch, &mut items, &SLICE, &mut self.records, &mut outcomes)
                .unwrap();
            if costly.is_none() || self.waiting.is_some() {
                continue;
            }
            if let Some(deferred) = self.machine.defer(&batch, &items) {
                self.deferred += 1;
                self.waiting = Some(Waiting {
                    number,
                    deferred,
                    judging: None,
                    outcomes,
                });
                return;
            }
        }
        self.answers.insert(number, outcomes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn late_is_as_in_order(
        script in prop::collection::vec(prop::collection::vec(wish(), 1..12), 1..10),
        // Ids end after a day.
        jumps in prop::collection::vec(prop_oneof![Just(1), Just(DAY_MS)], 1..10),
        mut steps in prop::collection::vec(0_u8..4, 1..40).prop_map(VecDeque::from),
    ) {
        let (mut nonces, mut once) = (BTreeMap::new(), 0);
        let mut time = 1;
        let batches: Vec<Vec<u8>> = script
            .iter()
            .zip(jumps.iter().cycle())
            .map(|(wishes, jump)| {
                time += jump;
                encode(wishes, &mut nonces, &mut once).to_bytes(time)
            })
            .collect();
        let mut machine = start();
        let mut records = Records::default();
        let mut late = Late {
            machine: start(),
            records: Records::default(),
            waiting: None,
            answers: BTreeMap::new(),
            deferred: 0,
        };
        let mut expected = BTreeMap::new();
        for (number, bytes) in batches.iter().enumerate() {
            let batch = Batch::read(bytes, 1).unwrap();
            let mut outcomes = Outcomes::default();
            machine.apply(&batch, &mut records, &mut outcomes).unwrap();
            expected.insert(number, outcomes);
            for _ in 0..steps.pop_front().unwrap_or(0) {
                late.step(&batches);
            }
            late.apply(number, &batches);
        }
        while late.waiting.is_some() {
            late.step(&batches);
        }
        prop_assert_eq!(&late.answers, &expected);
        prop_assert_eq!(&late.records, &records);
        prop_assert_eq!(late.machine.digest(), machine.digest());
        let (mut a, mut b) = (Vec::new(), Vec::new());
        machine.save(&mut a).unwrap();
        late.machine.save(&mut b).unwrap();
        prop_assert_eq!(a, b);
    }
}
