//! Batches whose programs take long: applied out of their order by one machine
//! and in order by another. Outcomes, records, digests and states are equal,
//! whatever the interleaving.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use weir_core::batch::{Batch, BatchBuilder, Items};
use weir_core::desk::{Desk, Image};
use weir_core::intention::{Intention, IntentionLimits, ONCE};
use weir_core::limits::{ONCE_IDS_MAX, ONCE_MS_MIN};
use weir_core::machine::Slice;
use weir_core::machine::deferred::{COSTLY_FUEL, Deferred, Judging, Turn};
use weir_core::program::{Entry, Trap, Verdict};
use weir_core::record::ConsequenceSink;
use weir_core::{
    ClientId, CodeHash, Effect, ErrorCode, Expect, Facts, GroupMode, GroupSetup, GroupStep,
    IntentionOffset, Machine, Operation, Outcomes, Program, ProgramHost, Record, Refusal, Setup,
    TopicId, TopicName, TopicOptions, TxnOp,
};

thread_local! {
    /// Calls of this thread.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Counts in its state and in a record. The first byte of a value, or of the
/// arguments when it begins, says what a call costs and whether it is refused.
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

    fn judge(&mut self, entry: Entry, _: u64, desk: &mut Box<Desk>) -> Result<Verdict, Trap> {
        let what = if entry == Entry::Apply { 1 } else { 2 };
        let kind = desk.input(what, 0).unwrap().first().copied().unwrap_or(0);
        CALLS.set(CALLS.get() + 1);
        desk.burn(if kind >= 100 { COSTLY_FUEL } else { 10 });
        let count = desk.state_get(b"n").unwrap().map_or(0, |n| n[0]);
        let free = |_| Ok(());
        desk.state_put(b"n", &[count.wrapping_add(1)], free)
            .unwrap();
        if kind % 5 == 4 {
            desk.reject_text(&[b'a' + count % 26]).unwrap();
            return Ok(Verdict::Reject(7));
        }
        if entry == Entry::Apply {
            desk.emit_input(free).unwrap();
        }
        desk.emit_put(b"count", &[count], free).unwrap();
        if kind % 7 == 6 {
            desk.emit_put(b"more", &[count], free).unwrap();
        }
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

const TOPICS: [&str; 8] = [
    "judged.a", "judged.b", "plain.a", "plain.b", "none", "none.b", "none.c", "none.d",
];

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
        let mut options = TopicOptions::default();
        if wish.kind % 3 == 0 {
            options.keys_max = Some(u64::from(1 + wish.kind % 2));
        }
        let code = [b"code", b"more", b"!bad"][usize::from(wish.kind % 8 / 3)];
        let operation = match wish.what {
            0..=2 => Operation::Delete { key: b"k" },
            3..=5 => Operation::Txn { ops: &steps },
            6 | 18 | 19 if wish.topic >= 2 => Operation::Create { options: &options },
            7 if wish.topic >= 2 => Operation::Destroy,
            8 => Operation::Quarantine {
                stopped: wish.kind % 2 == 0,
            },
            10 => Operation::Alter { options: &options },
            11 => Operation::Cursor {
                group: "g",
                step: match wish.kind % 4 {
                    0 => GroupStep::Delete,
                    1 => GroupStep::Reset {
                        offset: u64::from(wish.kind),
                    },
                    _ => GroupStep::Open(GroupSetup::new(GroupMode::Shared)),
                },
            },
            12 if wish.kind < 20 => Operation::ExpireSessions {
                idle_ms: u64::from(wish.kind),
            },
            13 | 16 => Operation::Replace {
                expected: (wish.kind % 5 == 0).then_some(CodeHash([b'c'; 32])),
                code,
                args: &value,
            },
            14 | 17 | 23..=25 => Operation::CreateProgram {
                options: &options,
                code,
                args: &value,
            },
            15 if wish.kind % 2 == 0 => Operation::Destroy,
            _ => Operation::Put {
                key: b"k",
                value: &value,
            },
        };
        let topic = match operation {
            Operation::ExpireSessions { .. } => "",
            _ => TOPICS[wish.topic],
        };
        let mut intention = Intention::new(topic, operation);
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
    /// The rest of the batch could not be deferred: it waits for this.
    is_part: bool,
}

struct Late {
    machine: Machine,
    records: Records,
    waiting: VecDeque<Waiting>,
    answers: BTreeMap<usize, Outcomes>,
    part: Option<Outcomes>,
    /// Says how long calls take, wildly.
    watch: u64,
    /// The newest topic, and when those that live were made.
    known: (IntentionOffset, BTreeSet<IntentionOffset>),
}

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

const SLICE: Slice = Slice {
    items_max: 3,
    fuel_max: COSTLY_FUEL,
    stops: true,
};

/// For an item that cannot be deferred.
const ONE: Slice = Slice {
    items_max: 1,
    stops: false,
    ..SLICE
};

fn parts(waiting: &VecDeque<Waiting>) -> Vec<&Deferred> {
    waiting.iter().map(|one| &one.deferred).collect()
}

impl Late {
    fn new() -> Self {
        Self::from(start())
    }

    fn from(machine: Machine) -> Self {
        Self {
            machine,
            records: Records::default(),
            waiting: VecDeque::new(),
            answers: BTreeMap::new(),
            part: None,
            watch: 7,
            known: Default::default(),
        }
    }

    /// Whoever has listed topics knows by the newest one whether there are more.
    fn look(&mut self) {
        let topics = self.machine.topics().filter_map(|topic| topic.incarnation);
        let now = (self.machine.newest_topic(), topics.collect());
        let (newest, before) = std::mem::replace(&mut self.known, now);
        let fresh: Vec<_> = self.known.1.difference(&before).collect();
        assert!(
            fresh.iter().all(|made| **made > newest),
            "{fresh:?} behind {newest:?}"
        );
    }

    /// One step of the oldest deferred batch: a call judged, or the next one
    /// begun.
    fn step(&mut self, batches: &[Vec<u8>]) {
        let Some(mut waiting) = self.waiting.pop_front() else {
            return;
        };
        let batch = Batch::read(&batches[waiting.number], 1).unwrap();
        let Waiting {
            deferred,
            outcomes,
            judging,
            ..
        } = &mut waiting;
        if let Some(mut judging) = judging.take() {
            judging.run(&batch);
            self.machine
                .settle(deferred, *judging, &batch, &mut self.records, outcomes)
                .unwrap();
        } else {
            let watch = &mut self.watch;
            let turn = self
                .machine
                .resume(
                    deferred,
                    &batch,
                    &SLICE,
                    &mut || time(watch),
                    &mut self.records,
                    outcomes,
                )
                .unwrap();
            match turn {
                Turn::Judge(call) => *judging = Some(call),
                Turn::Pause(_) => {}
                Turn::End => {
                    if waiting.is_part {
                        self.part = Some(waiting.outcomes);
                    } else {
                        self.answers.insert(waiting.number, waiting.outcomes);
                    }
                    return;
                }
            }
        }
        self.waiting.push_front(waiting);
    }

    fn apply(&mut self, number: usize, batches: &[Vec<u8>]) {
        let batch = Batch::read(&batches[number], 1).unwrap();
        let mut items = batch.items();
        let mut outcomes = Outcomes::default();
        let mut apart = self.machine.conflicts(&parts(&self.waiting), &batch);
        loop {
            if apart {
                let earlier = parts(&self.waiting);
                let deferred = self.machine.defer(&earlier, &batch, &mut items);
                let is_part = items.left() > 0;
                if let Some(deferred) = deferred {
                    self.waiting.push_back(Waiting {
                        number,
                        deferred,
                        judging: None,
                        outcomes: std::mem::take(&mut outcomes),
                        is_part,
                    });
                    if !is_part {
                        return;
                    }
                }
                while !self.waiting.is_empty() {
                    self.step(batches);
                }
                outcomes = self.part.take().unwrap_or(outcomes);
            }
            if items.left() == 0 {
                break;
            }
            let watch = &mut self.watch;
            let slice = if apart { &ONE } else { &SLICE };
            let costly = self
                .machine
                .apply_slice(
                    &batch,
                    &mut items,
                    slice,
                    &mut || time(watch),
                    &mut self.records,
                    &mut outcomes,
                )
                .unwrap();
            apart = costly.is_some() && items.left() > 0;
        }
        self.answers.insert(number, outcomes);
    }
}

/// Some times that come in their order.
fn time(watch: &mut u64) -> u64 {
    let jumps = [0, 5, 300, 70_000, 2_000_000];
    let jump = jumps[usize::try_from(*watch % 5).unwrap()];
    *watch = watch.wrapping_mul(31) % 1_000_003 + jump;
    *watch
}

/// Applies a script in order and late, from the same machine.
fn compare(
    from: &Machine,
    script: &[Vec<Wish>],
    jumps: &[u64],
    mut steps: VecDeque<u8>,
) -> Result<(), TestCaseError> {
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
    let mut machine = from.clone();
    let mut records = Records::default();
    let mut late = Late::from(from.clone());
    let mut expected = BTreeMap::new();
    for (number, bytes) in batches.iter().enumerate() {
        let batch = Batch::read(bytes, 1).unwrap();
        let mut outcomes = Outcomes::default();
        machine.apply(&batch, &mut records, &mut outcomes).unwrap();
        expected.insert(number, outcomes);
        for _ in 0..steps.pop_front().unwrap_or(0) {
            late.step(&batches);
            late.look();
        }
        late.apply(number, &batches);
        late.look();
    }
    while !late.waiting.is_empty() {
        late.step(&batches);
        late.look();
    }
    prop_assert_eq!(late.machine.newest_topic(), machine.newest_topic());
    prop_assert_eq!(&late.answers, &expected);
    prop_assert_eq!(&late.records, &records);
    prop_assert_eq!(late.machine.digest(), machine.digest());
    let (mut a, mut b) = (Vec::new(), Vec::new());
    machine.save(&mut a).unwrap();
    late.machine.save(&mut b).unwrap();
    prop_assert!(a == b, "snapshots differ");
    Ok(())
}

/// A machine that keeps as many ids as it may, all of the first millisecond.
fn full_of_ids() -> Machine {
    let mut machine = start();
    let mut left = ONCE_IDS_MAX;
    while left > 0 {
        let mut builder = BatchBuilder::default();
        for _ in 0..left.min(8192) {
            let operation = Operation::Put {
                key: b"k",
                value: b"v",
            };
            let mut intention = Intention::new(TOPICS[2], operation);
            let mut id = [0xff; 16];
            id[..8].copy_from_slice(&(left as u64).to_le_bytes());
            (intention.client, intention.nonce) = (ClientId(id), ONCE);
            let limits = IntentionLimits::default();
            builder.push(&intention, &limits).unwrap();
            left -= 1;
        }
        let bytes = builder.to_bytes(1);
        let batch = Batch::read(&bytes, 1).unwrap();
        let mut outcomes = Outcomes::default();
        let applied = machine.apply(&batch, &mut Records::default(), &mut outcomes);
        applied.unwrap();
    }
    machine
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn late_is_as_in_order(
        script in prop::collection::vec(prop::collection::vec(wish(), 1..12), 1..10),
        // Ids end after a day.
        jumps in prop::collection::vec(prop_oneof![Just(1), Just(DAY_MS)], 1..10),
        steps in prop::collection::vec(0_u8..4, 1..40).prop_map(VecDeque::from),
    ) {
        compare(&start(), &script, &jumps, steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 50 } else { 400 }))]

    /// The oldest ids go after a quarter of an hour, when others come.
    #[test]
    fn late_is_as_in_order_with_a_full_table_of_ids(
        script in prop::collection::vec(prop::collection::vec(wish(), 1..12), 1..10),
        jumps in prop::collection::vec(prop_oneof![Just(1), Just(ONCE_MS_MIN)], 1..10),
        steps in prop::collection::vec(0_u8..4, 1..40).prop_map(VecDeque::from),
    ) {
        static FULL: LazyLock<Machine> = LazyLock::new(full_of_ids);
        compare(&FULL, &script, &jumps, steps)?;
    }
}

#[test]
fn a_full_table_of_ids_keeps_no_costly_call_here() {
    let wish = Wish {
        topic: 0,
        client: 2,
        kind: 100,
        what: 39,
    };
    let builder = encode(&[wish], &mut BTreeMap::new(), &mut 0);
    let batches = [builder.to_bytes(ONCE_MS_MIN + 1)];
    let mut late = Late::from(full_of_ids());
    late.apply(0, &batches);
    assert_eq!(late.waiting.len(), 1);
    while !late.waiting.is_empty() {
        late.step(&batches);
    }
    let outcome = late.answers[&0].iter().next().unwrap();
    assert_eq!(outcome.commit().unwrap().effect, Effect::Valid);
}

#[test]
fn programs_begin_apart() {
    let wish = |topic, what| Wish {
        topic,
        client: 9,
        kind: 100,
        what,
    };
    // A program for a topic that has none, for a new one, and another program.
    let wishes = [wish(4, 14), wish(0, 13)];
    let builder = encode(&wishes, &mut BTreeMap::new(), &mut 0);
    let batches = [builder.to_bytes(1)];
    let mut late = Late::new();
    late.apply(0, &batches);
    for topic in ["none", "judged.a"] {
        let calls = CALLS.get();
        while late.waiting[0].judging.is_none() {
            late.step(&batches);
        }
        assert_eq!(CALLS.get(), calls, "nobody has judged {topic} yet");
        let program = late.machine.topic("judged.a").unwrap().program;
        assert!(program.is_some(), "the old one is told of");
        late.step(&batches);
        assert_eq!(CALLS.get(), calls + 1, "{topic}");
    }
    late.step(&batches);
    let newest = late.machine.newest_topic();
    assert_eq!(
        late.machine.topic("none").unwrap().incarnation,
        Some(newest)
    );
}

#[test]
fn topics_are_made_in_their_order_and_others_go_on() {
    let wish = |topic, what| Wish {
        topic,
        client: 9,
        kind: 100,
        what,
    };
    let (destroy, create, begin, put) = (15, 6, 14, 39);
    let batches: Vec<_> = [
        (3, destroy),
        (4, begin),
        (3, create),
        (2, destroy),
        (0, put),
    ]
    .map(|(topic, what)| {
        let builder = encode(&[wish(topic, what)], &mut BTreeMap::new(), &mut 0);
        builder.to_bytes(1)
    })
    .into();
    let mut late = Late::new();
    for number in 0..batches.len() {
        late.apply(number, &batches);
        late.look();
    }
    let waiting: Vec<_> = late.waiting.iter().map(|one| one.number).collect();
    assert_eq!(waiting, [1, 2, 4], "the costly call for itself");
    while !late.waiting.is_empty() {
        late.step(&batches);
        late.look();
    }
}

#[test]
fn what_an_upgrade_did_is_taken_back_for_too_many_keys() {
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
        let intention = Intention::new("judged.a", operation);
        let limits = IntentionLimits::default();
        builder.push(&intention, &limits).unwrap();
    }
    let batches = [builder.to_bytes(1)];
    let count = |machine: &Machine| {
        let program = machine.topic("judged.a").unwrap().program.unwrap();
        assert_eq!(program.code, CodeHash([b'c'; 32]));
        program.state.unwrap().get(b"n").unwrap().to_vec()
    };
    let mut late = Late::new();
    let before = count(&late.machine);
    late.apply(0, &batches);
    while !late.waiting.is_empty() {
        late.step(&batches);
    }
    let reasons: Vec<_> = late.answers[&0]
        .iter()
        .map(|outcome| outcome.commit().unwrap().reason)
        .collect();
    assert_eq!(reasons, [None, Some(ErrorCode::Quota)]);
    assert_eq!(count(&late.machine), before);
}

#[test]
fn time_ends_a_slice_and_makes_a_call_costly() {
    let wish = Wish {
        topic: 0,
        client: 9,
        kind: 0,
        what: 20,
    };
    let builder = encode(&vec![wish; 43], &mut BTreeMap::new(), &mut 0);
    let bytes = builder.to_bytes(1);
    let batch = Batch::read(&bytes, 1).unwrap();
    let slice = Slice {
        items_max: 1000,
        fuel_max: 2 * COSTLY_FUEL,
        stops: true,
    };
    // Nanoseconds of a call; the items of a slice, and what it said is costly.
    for (call, items, costly) in [
        (1, 40, None),
        (COSTLY_FUEL, 1, Some(COSTLY_FUEL)),
        (100 * COSTLY_FUEL, 1, Some(COSTLY_FUEL)),
        (COSTLY_FUEL / 2, 4, None),
        // It is not looked at behind every call.
        (COSTLY_FUEL / 20, 47, None),
    ] {
        let mut machine = start();
        let mut left = batch.items();
        let (mut records, mut outcomes) = (Records::default(), Outcomes::default());
        // Nobody knows the program before.
        let unknown = machine
            .apply_slice(
                &batch,
                &mut left,
                &slice,
                &mut || 0,
                &mut records,
                &mut outcomes,
            )
            .unwrap();
        assert_eq!((unknown.map(|said| said.fuel), left.left()), (Some(0), 43));
        let first = Slice {
            items_max: 3,
            stops: false,
            ..slice
        };
        machine
            .apply_slice(
                &batch,
                &mut left,
                &first,
                &mut || 0,
                &mut records,
                &mut outcomes,
            )
            .unwrap();
        CALLS.set(0);
        let mut looks = 0;
        let mut watch = || {
            looks += 1;
            call * CALLS.get()
        };
        let said = machine
            .apply_slice(
                &batch,
                &mut left,
                &slice,
                &mut watch,
                &mut records,
                &mut outcomes,
            )
            .unwrap();
        assert_eq!(said.map(|said| said.fuel), costly, "{call} ns a call");
        assert_eq!(CALLS.get(), items.min(40), "{call} ns a call");
        assert!(looks <= 1 + CALLS.get() / 2 || call > 10_000, "{looks}");
    }
}

#[test]
fn a_moment_without_the_thread_makes_no_call_costly() {
    let wish = Wish {
        topic: 0,
        client: 9,
        kind: 0,
        what: 20,
    };
    let builder = encode(&vec![wish; 80], &mut BTreeMap::new(), &mut 0);
    let bytes = builder.to_bytes(1);
    let batch = Batch::read(&bytes, 1).unwrap();
    let mut machine = start();
    let mut left = batch.items();
    let (mut records, mut outcomes) = (Records::default(), Outcomes::default());
    let mut apply = |left: &mut Items<'_>, items_max, stops, time: &mut dyn FnMut() -> u64| {
        let slice = Slice {
            items_max,
            fuel_max: 2 * COSTLY_FUEL,
            stops,
        };
        let said = machine.apply_slice(&batch, left, &slice, time, &mut records, &mut outcomes);
        said.unwrap().map(|said| said.fuel)
    };
    // The program is known to be cheap.
    assert_eq!(apply(&mut left, 30, false, &mut || 0), None);
    // One look in the middle comes 10 ms late: the slice ends, and that is all.
    let mut looks = 0;
    let mut late = || {
        looks += 1;
        if looks < 3 { looks } else { 100 * COSTLY_FUEL }
    };
    assert_eq!(apply(&mut left, 40, true, &mut late), None);
    let after = left.left();
    assert!((10..50).contains(&after), "{after} left");
    assert_eq!(apply(&mut left, 1000, true, &mut || 0), None);
    assert_eq!(left.left(), 0);
    // Calls that are late one behind the other are.
    let mut left = batch.items();
    let mut time = 0;
    let mut slow = || {
        time += 2 * COSTLY_FUEL;
        time
    };
    let said = (0..4).find_map(|_| apply(&mut left, 1000, true, &mut slow));
    assert_eq!(said, Some(COSTLY_FUEL));
}
