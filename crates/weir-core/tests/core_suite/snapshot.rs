//! The bytes of a machine's state (docs/formats/snapshot.md), truncated and changed at every
//! position.
//!
//! Loading never panics, never requests more than the length of a key at once, and accepts only
//! bytes that `save` could have written. A loaded machine can continue.

use proptest::prelude::*;
use weir_core::batch::{Batch, BatchBuilder};
use weir_core::intention::{Intention, IntentionLimits, ONCE};
use weir_core::limits::{KEY_BYTES_MAX, MACHINE_VERSION};
use weir_core::record::ConsequenceSink;
use weir_core::{
    ClientId, Expect, Machine, Operation, Outcomes, Record, SnapshotError, SnapshotSource, TopicId,
    TopicName, TopicOptions, TxnOp,
};

struct DiscardSink;

impl ConsequenceSink for DiscardSink {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}
    fn record(&mut self, _: TopicId, _: &Record<'_>) {}
}

/// A source that records the size of the largest read.
struct Measured<'a> {
    rest: &'a [u8],
    largest: usize,
}

impl SnapshotSource for Measured<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<(), SnapshotError> {
        self.largest = self.largest.max(buffer.len());
        self.rest.read(buffer)
    }
}

fn apply(machine: &mut Machine, time_ms: u64, intentions: &[Intention<'_>]) {
    let mut builder = BatchBuilder::default();
    for intention in intentions {
        builder
            .push(intention, &IntentionLimits::default())
            .unwrap();
    }
    let bytes = builder.to_bytes(time_ms);
    let batch = Batch::read(&bytes, 1).unwrap();
    let mut outcomes = Outcomes::default();
    machine
        .apply(&batch, &mut DiscardSink, &mut outcomes)
        .unwrap();
    assert_eq!(outcomes.len(), intentions.len());
}

const PUT: Operation<'static> = Operation::Put {
    key: b"key",
    value: b"value",
};

/// A machine with live and destroyed topics, keys, and sessions with runs of every kind of outcome.
fn machine() -> Machine {
    let mut machine = Machine::new(1);
    let (a, b) = (ClientId([3; 16]), ClientId([1; 16]));
    let mut options = TopicOptions::default();
    options.keys_max = Some(3);
    options.value_bytes_max = Some(200);
    let create = Operation::Create { options: &options };
    let (key, value, meta) = (&b"zz"[..], &[9; 201][..], &[][..]);
    let value_too_long = [TxnOp::Put { key, value, meta }];
    let two_deletes = [TxnOp::Delete { key, meta }, TxnOp::Delete { key, meta }];
    apply(
        &mut machine,
        1_000,
        &[
            Intention::new("orders", create).under(a, 1),
            Intention::new("orders", PUT).under(a, 2),
            Intention::new("orders", PUT).under(a, 3),
            Intention::new("orders", PUT).under(a, 4),
            Intention::new("nowhere", PUT).under(a, 5),
            Intention::new("nowhere", PUT).under(a, 6),
            Intention::new("orders", PUT)
                .under(a, 7)
                .expecting(&[Expect::KeyAbsent(None)]),
            Intention::new("orders", Operation::Put { key, value }).under(a, 8),
            Intention::new(
                "orders",
                Operation::Txn {
                    ops: &value_too_long,
                },
            )
            .under(a, 9),
            Intention::new("orders", Operation::Txn { ops: &two_deletes }).under(a, 10),
            Intention::new("orders", Operation::Txn { ops: &two_deletes }).under(a, 11),
        ],
    );
    apply(
        &mut machine,
        70_000,
        &[
            Intention::new("gone", create),
            Intention::new("gone", PUT),
            Intention::new("gone", Operation::Trim { through: 2 }),
            Intention::new("gone", Operation::Destroy).under(b, 1),
            Intention::new(
                "orders",
                Operation::Put {
                    key: b"\x00",
                    value: b"",
                },
            )
            .under(b, 2),
            Intention::new(
                "orders",
                Operation::Put {
                    key: &[b'k'; 300],
                    value: b"",
                },
            ),
            Intention::new("last", create).under(b, 3),
            Intention::new("last", Operation::Trim { through: 300 }),
        ],
    );
    let put_empty = Operation::Put {
        key: b"",
        value: b"",
    };
    apply(
        &mut machine,
        70_500,
        &[
            Intention::new("orders", put_empty).under(ClientId([9; 16]), ONCE),
            Intention::new("nowhere", put_empty).under(ClientId([2; 16]), ONCE),
        ],
    );
    machine
}

fn saved(machine: &Machine) -> Vec<u8> {
    let mut bytes = Vec::new();
    machine.save(&mut bytes).unwrap();
    bytes
}

/// Checks the invariants for any bytes. Returns whether they were accepted.
fn check(bytes: &[u8]) -> bool {
    let mut source = Measured {
        rest: bytes,
        largest: 0,
    };
    let loaded = Machine::load(&mut source, 7);
    assert!(source.largest <= KEY_BYTES_MAX, "{}", source.largest);
    let Ok(mut machine) = loaded else {
        return false;
    };
    let consumed = &bytes[..bytes.len() - source.rest.len()];
    assert_eq!(saved(&machine), consumed, "only bytes that `save` writes");
    let _ = machine.digest();
    let (applied, time_ms) = (machine.applied().0, machine.time_ms());
    let next = |number: u8| machine.sessions().last_nonce(ClientId([number; 16])) + 1;
    let (a, b) = (next(3), next(1));
    let puts = [
        Intention::new("orders", PUT),
        Intention::new("orders", PUT).under(ClientId([3; 16]), a),
        Intention::new("gone", PUT).under(ClientId([1; 16]), b),
        Intention::new("", Operation::ExpireSessions { idle_ms: 10 }),
        Intention::new("last", Operation::Destroy),
    ];
    apply(&mut machine, time_ms, &puts);
    assert!(machine.applied().0 > applied);
    true
}

#[test]
fn a_loaded_machine_continues_like_the_saved_one() {
    let mut machine = machine();
    let bytes = saved(&machine);
    assert!(check(&bytes));
    let mut source = &bytes[..];
    let mut loaded = Machine::load(&mut source, 99).unwrap();
    assert!(source.is_empty());
    for machine in [&mut machine, &mut loaded] {
        apply(machine, 80_000, &[Intention::new("orders", PUT)]);
    }
    assert_eq!(saved(&machine), saved(&loaded));
    assert_eq!(machine.digest(), loaded.digest());
    assert!(check(&saved(&Machine::new(0))), "even an empty one");
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = saved(&machine());
    for len in 0..bytes.len() {
        assert!(!check(&bytes[..len]), "{len} bytes of {}", bytes.len());
    }
}

#[test]
fn any_byte_may_change_without_a_panic() {
    let bytes = saved(&machine());
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        let tries = if bytes[at] == b'k' { 2 } else { 255 };
        for step in 1..=tries {
            changed[at] = bytes[at].wrapping_add(step);
            check(&changed);
        }
    }
}

/// Equal states have equal bytes, so a run of outcomes must not be split, although two pieces would
/// mean the same.
#[test]
fn a_run_in_two_pieces_is_rejected() {
    let bytes = saved(&machine());
    // 7 runs. The first has 4 nonces, starting at 1: VALID, one record each.
    let whole = [7, 4, 1, 0, 0, 0, 0, 0, 1, 1, 1];
    let pieces = [
        8, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 3, 2, 0, 0, 0, 0, 0, 2, 2, 1,
    ];
    let at = bytes.windows(whole.len()).position(|part| part == whole);
    let (before, after) = bytes.split_at(at.unwrap());
    let split = [before, &pieces, &after[whole.len()..]].concat();
    assert!(!check(&split));
}

#[test]
fn another_machine_version_is_a_version_error() {
    let mut bytes = saved(&machine());
    bytes[0] += 1;
    let error = Machine::load(&mut &bytes[..], 0).unwrap_err();
    let SnapshotError::Version { found, known } = error else {
        panic!("{error}");
    };
    assert_eq!((found, known), (MACHINE_VERSION + 1, MACHINE_VERSION));
}

/// An error of the storage must not be reported as a malformed snapshot.
#[test]
fn storage_errors_are_returned_unchanged() {
    struct Failing;
    impl SnapshotSource for Failing {
        fn read(&mut self, _: &mut [u8]) -> Result<(), SnapshotError> {
            Err(SnapshotError::Storage("pulled out".into()))
        }
    }
    impl weir_core::SnapshotSink for Failing {
        fn write(&mut self, _: &[u8]) -> Result<(), SnapshotError> {
            Err(SnapshotError::Storage("full".into()))
        }
    }
    let is_storage = |error| matches!(error, SnapshotError::Storage(_));
    assert!(is_storage(Machine::load(&mut Failing, 0).unwrap_err()));
    assert!(is_storage(machine().save(&mut Failing).unwrap_err()));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn several_changes_at_once(changes in prop::collection::vec((any::<u16>(), any::<u8>(), 0..4_u8), 1..8)) {
        let mut bytes = saved(&machine());
        for (at, byte, kind) in changes {
            let at = usize::from(at) % bytes.len();
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes[at] ^= 1 << (byte % 8),
            }
        }
        check(&bytes);
    }

    #[test]
    fn random_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        bytes.insert(0, 1);
        check(&bytes);
    }
}
