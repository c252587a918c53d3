//! A machine gives the same outcomes, records, digest and snapshot for every division of a batch
//! into portions. The results also do not depend on whether its state was saved and loaded between
//! two batches (I4).

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use weir_core::batch::{Batch, BatchBuilder};
use weir_core::call_context::{CallContext, Image};
use weir_core::intention::{Intention, IntentionLimits, ONCE};
use weir_core::machine::Portion;
use weir_core::program::{Decision, Entry, Trap};
use weir_core::record::ConsequenceSink;
use weir_core::{
    ClientId, CodeHash, ErrorCode, Expect, Facts, GroupMode, GroupSetup, GroupStep, Machine,
    Operation, Outcomes, Program, ProgramHost, Record, Refusal, Setup, TopicId, TopicName,
    TopicOptions, TxnOp,
};

/// A program that counts its calls in its state and in a record. The first byte of a value, or of
/// the arguments at the start, decides the fuel and the decision of the call.
#[derive(Debug)]
struct Counting;

impl ProgramHost for Counting {
    fn hash(&self, code: &[u8]) -> CodeHash {
        CodeHash([code[0]; 32])
    }

    fn admit(&self, code: &[u8], _: &Setup) -> Result<Box<dyn Program>, Refusal> {
        if code[0] == b'!' {
            return Err(Refusal::Bad("no module".to_owned()));
        }
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
            has_init: true,
            has_upgrade: true,
            ..Facts::default()
        }
    }

    fn fits(&self, _: &Setup) -> Result<(), String> {
        Ok(())
    }

    fn accepts(&self, _: &Image) -> bool {
        true
    }

    fn judge(
        &mut self,
        entry: Entry,
        _: u64,
        context: &mut Box<CallContext>,
    ) -> Result<Decision, Trap> {
        let what = if entry == Entry::Apply { 1 } else { 2 };
        let kind = context
            .input(what, 0)
            .unwrap()
            .first()
            .copied()
            .unwrap_or(0);
        context.consume_fuel(if kind >= 100 { 1_000 } else { 10 });
        let count = context.state_get(b"n").unwrap().map_or(0, |n| n[0]);
        let free = |_| Ok(());
        context
            .state_put(b"n", &[count.wrapping_add(1)], free)
            .unwrap();
        if kind % 5 == 4 {
            context.reject_text(&[b'a' + count % 26]).unwrap();
            return Ok(Decision::Reject(7));
        }
        if entry == Entry::Apply {
            context.emit_input(free).unwrap();
        }
        context.emit_put(b"count", &[count], free).unwrap();
        if kind % 7 == 6 {
            context.emit_put(b"more", &[count], free).unwrap();
        }
        Ok(Decision::Accept)
    }

    fn end_intention(&mut self, _: bool, _: &mut CallContext) {}

    fn fork(&self) -> Box<dyn Program> {
        Box::new(Self)
    }
}

/// The records of each topic, as text.
#[derive(Debug, Default, PartialEq)]
struct Records(BTreeMap<u32, Vec<String>>);

impl ConsequenceSink for Records {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}

    fn record(&mut self, id: TopicId, record: &Record<'_>) {
        self.0.entry(id.0).or_default().push(format!("{record:?}"));
    }
}

#[derive(Clone, Debug)]
struct IntentionSeed {
    topic: usize,
    client: u8,
    kind: u8,
    what: u8,
}

const TOPICS: [&str; 8] = [
    "with_program.a",
    "with_program.b",
    "plain.a",
    "plain.b",
    "none",
    "none.b",
    "none.c",
    "none.d",
];

fn seed() -> impl Strategy<Value = IntentionSeed> {
    (0..TOPICS.len(), 0_u8..5, 0_u8..200, 0_u8..40).prop_map(|(topic, client, kind, what)| {
        IntentionSeed {
            topic,
            client,
            kind,
            what,
        }
    })
}

fn start() -> Machine {
    let mut machine = Machine::new(1).with_host(Some(Arc::new(Counting)));
    let options = TopicOptions::default();
    let mut builder = BatchBuilder::default();
    for (name, with_program) in [
        (TOPICS[0], true),
        (TOPICS[1], true),
        (TOPICS[2], false),
        (TOPICS[3], false),
    ] {
        let operation = if with_program {
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

/// Encodes intentions. Nonces of sessions ascend, with some repeats and some gaps.
fn encode(seeds: &[IntentionSeed], nonces: &mut BTreeMap<u8, u64>, once: &mut u8) -> BatchBuilder {
    let mut builder = BatchBuilder::default();
    for seed in seeds {
        let value = [seed.kind];
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
        let mut options = TopicOptions::default();
        if seed.kind % 3 == 0 {
            options.keys_max = Some(u64::from(1 + seed.kind % 2));
        }
        let code = [b"code", b"more", b"!bad"][usize::from(seed.kind % 8 / 3)];
        let operation = match seed.what {
            0..=2 => Operation::Delete { key: b"k" },
            3..=5 => Operation::Txn { ops: &steps },
            6 | 18 | 19 if seed.topic >= 2 => Operation::Create { options: &options },
            7 if seed.topic >= 2 => Operation::Destroy,
            8 => Operation::Quarantine {
                stopped: seed.kind % 2 == 0,
            },
            20 => Operation::Trim {
                through: u64::from(seed.kind),
            },
            10 => Operation::Alter { options: &options },
            11 => Operation::Cursor {
                group: "g",
                step: match seed.kind % 4 {
                    0 => GroupStep::Delete,
                    1 => GroupStep::Reset {
                        offset: u64::from(seed.kind),
                    },
                    _ => GroupStep::Open(GroupSetup::new(GroupMode::Shared)),
                },
            },
            12 if seed.kind < 20 => Operation::ExpireSessions {
                idle_ms: u64::from(seed.kind),
            },
            13 | 16 => Operation::Replace {
                expected: (seed.kind % 5 == 0).then_some(CodeHash([b'c'; 32])),
                code,
                args: &value,
            },
            14 | 17 | 23..=25 => Operation::CreateProgram {
                options: &options,
                code,
                args: &value,
            },
            15 if seed.kind % 2 == 0 => Operation::Destroy,
            _ => Operation::Put {
                key: b"k",
                value: &value,
            },
        };
        let topic = match operation {
            Operation::ExpireSessions { .. } => "",
            _ => TOPICS[seed.topic],
        };
        let mut intention = Intention::new(topic, operation);
        match seed.client {
            0 | 1 => {
                let last = nonces.entry(seed.client).or_default();
                let step = [1, 1, 1, 1, 1, 1, 0, 2][usize::from(seed.what) % 8];
                intention.client = ClientId([seed.client + 1; 16]);
                intention.nonce = (*last + step).max(1);
                if step == 1 {
                    *last += 1;
                }
            }
            2 => {
                if seed.what % 4 != 0 {
                    *once += 1;
                }
                // Some of these ids belong to a session, or did earlier.
                intention.client = ClientId([1 + *once % 100; 16]);
                intention.nonce = ONCE;
            }
            _ => {}
        }
        let expects = [Expect::KeyPresent(Some(b"count"))];
        if seed.what == 9 {
            intention.expect = &expects;
        }
        builder
            .push(&intention, &IntentionLimits::default())
            .unwrap();
    }
    builder
}

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The results of a sequence of batches.
#[derive(Debug, PartialEq)]
struct History {
    outcomes: Vec<Outcomes>,
    records: Records,
    digest: weir_core::Digest,
    state: Vec<u8>,
}

fn saved(machine: &Machine) -> Vec<u8> {
    let mut state = Vec::new();
    machine.save(&mut state).unwrap();
    state
}

/// Applies batches, each in the given portions. Before the batches marked in `reload`, the machine
/// is loaded again from its saved state.
fn history(batches: &[Vec<u8>], portions: &[Portion], reload: &[bool]) -> History {
    let mut machine = start();
    let mut records = Records::default();
    let mut all = Vec::new();
    for (number, bytes) in batches.iter().enumerate() {
        if reload.get(number).copied().unwrap_or(false) {
            let state = saved(&machine);
            let host: Arc<dyn ProgramHost> = Arc::new(Counting);
            machine = Machine::load_with(&mut &state[..], 2, Some(host)).unwrap();
        }
        let batch = Batch::read(bytes, 1).unwrap();
        let mut outcomes = Outcomes::default();
        let mut items = batch.items();
        for portion in portions.iter().cycle() {
            machine
                .apply_some(&batch, &mut items, portion, &mut records, &mut outcomes)
                .unwrap();
            if items.left() == 0 {
                break;
            }
        }
        all.push(outcomes);
    }
    History {
        outcomes: all,
        records,
        digest: machine.digest(),
        state: saved(&machine),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn portions_and_reloads_change_nothing(
        script in prop::collection::vec(prop::collection::vec(seed(), 1..12), 1..10),
        // Ids expire after a day.
        jumps in prop::collection::vec(prop_oneof![Just(1), Just(DAY_MS)], 1..10),
        sizes in prop::collection::vec((1_u32..5, 1_u64..3_000), 1..6),
        reload in prop::collection::vec(any::<bool>(), 10),
    ) {
        let (mut nonces, mut once) = (BTreeMap::new(), 0);
        let mut time = 1;
        let batches: Vec<Vec<u8>> = script
            .iter()
            .zip(jumps.iter().cycle())
            .map(|(seeds, jump)| {
                time += jump;
                encode(seeds, &mut nonces, &mut once).to_bytes(time)
            })
            .collect();
        let portions: Vec<_> = sizes
            .into_iter()
            .map(|(items_max, fuel_max)| Portion { items_max, fuel_max })
            .collect();
        let whole = history(&batches, &[Portion::WHOLE], &[]);
        prop_assert_eq!(history(&batches, &portions, &reload), whole);
    }
}

#[test]
fn a_portion_ends_where_its_items_or_its_fuel_are_used_up() {
    let put = |value: &'static [u8]| {
        let operation = Operation::Put { key: b"k", value };
        Intention::new(TOPICS[0], operation)
    };
    let mut builder = BatchBuilder::default();
    for value in [&[0][..], &[0], &[100], &[0], &[0]] {
        let limits = IntentionLimits::default();
        builder.push(&put(value), &limits).unwrap();
    }
    let bytes = builder.to_bytes(1);
    let batch = Batch::read(&bytes, 1).unwrap();
    let mut machine = start();
    let mut items = batch.items();
    let mut left = |items_max, fuel_max| {
        let portion = Portion {
            items_max,
            fuel_max,
        };
        let (mut records, mut outcomes) = (Records::default(), Outcomes::default());
        machine
            .apply_some(&batch, &mut items, &portion, &mut records, &mut outcomes)
            .unwrap();
        items.left()
    };
    assert_eq!(left(1, u64::MAX), 4);
    assert_eq!(left(u32::MAX, 11), 2, "a cheap call and a costly one");
    assert_eq!(left(0, u64::MAX), 2);
    assert_eq!(left(u32::MAX, u64::MAX), 0);
}

#[test]
fn an_upgrade_that_exceeds_the_key_limit_is_rolled_back() {
    let mut options = TopicOptions::default();
    options.keys_max = Some(1);
    let mut builder = BatchBuilder::default();
    for operation in [
        Operation::Alter { options: &options },
        Operation::Replace {
            expected: None,
            code: b"other",
            args: &[6],
        },
    ] {
        let intention = Intention::new("with_program.a", operation);
        let limits = IntentionLimits::default();
        builder.push(&intention, &limits).unwrap();
    }
    let bytes = builder.to_bytes(1);
    let count = |machine: &Machine| {
        let program = machine.topic("with_program.a").unwrap().program.unwrap();
        assert_eq!(program.code, CodeHash([b'c'; 32]));
        program.state.unwrap().get(b"n").unwrap().to_vec()
    };
    let mut machine = start();
    let before = count(&machine);
    let batch = Batch::read(&bytes, 1).unwrap();
    let mut outcomes = Outcomes::default();
    machine
        .apply(&batch, &mut Records::default(), &mut outcomes)
        .unwrap();
    let reasons: Vec<_> = outcomes
        .iter()
        .map(|outcome| outcome.commit().unwrap().reason)
        .collect();
    assert_eq!(reasons, [None, Some(ErrorCode::Quota)]);
    assert_eq!(count(&machine), before);
}
