//! Sizes and counts near their limits: one below, at, and one above.

use std::sync::Arc;

use weir_core::intention::{Intention, IntentionError, IntentionLimits, Operation};
use weir_core::limits::{
    BATCH_BYTES_HARD_MAX, CALL_ITEMS_MAX, FUEL_DEFAULT, FUEL_MAX, FUEL_OPTION_MAX_DEFAULT,
    KEY_BYTES_DEFAULT, KEY_BYTES_MAX, META_BYTES_MAX, TOPIC_NAME_BYTES_MAX, VALUE_BYTES_DEFAULT,
    VALUE_BYTES_MAX,
};
use weir_core::{ConsequenceOffset, TopicOptions, TxnOp};
use weir_store::disk::{FileDisk, SimDisk};
use weir_store::{OpenOptions, Store, StoreError};

use crate::disks::{Gate, Op, Rule};
use crate::replay_cost::ExpensiveProgram;
use crate::world::{create, execute, open, options, put, records};

fn is_refused(result: Result<weir_store::Proposal, StoreError>, at: usize) -> bool {
    matches!(result, Err(StoreError::Refused { index, .. }) if index == at)
}

#[test]
fn a_call_of_ten_thousand_intentions_is_one_batch() {
    let gate = Gate::new(SimDisk::new());
    let store = open(gate.disk());
    create(&store, "t");
    let keys: Vec<[u8; 4]> = (0..10_001_u32).map(u32::to_be_bytes).collect();
    let call: Vec<_> = keys.iter().map(|key| put("t", key, b"value")).collect();
    let (syncs, on_disk) = (store.stats().syncs, gate.count(Op::Sync, "log/"));
    for size in [CALL_ITEMS_MAX - 1, CALL_ITEMS_MAX] {
        let commits = execute(&store, &call[..size]);
        assert_eq!(commits.len(), size);
        assert!(
            commits
                .windows(2)
                .all(|w| w[1].intention.0 == w[0].intention.0 + 1)
        );
    }
    assert_eq!(store.stats().syncs - syncs, 2);
    // The second call needs a new segment and so a few more syncs, as do seals.
    assert!(gate.count(Op::Sync, "log/") - on_disk < 12);
    let outcomes = store
        .propose(&call[..CALL_ITEMS_MAX])
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(outcomes.runs().len(), 1, "equal outcomes are one run");
    let over = store.propose(&call);
    let limit = CALL_ITEMS_MAX as u64;
    assert!(
        matches!(over, Err(StoreError::LimitExceeded { limit: l, value, .. }) if l == limit && value == limit + 1)
    );
    assert_eq!(records(&store, "t").len(), 30_000);
    assert!(store.propose(&[]).unwrap().wait().unwrap().is_empty());
}

/// The operator limits the fuel that a topic may request; an existing topic retains its value.
#[test]
fn fuel_that_topics_may_request() {
    let dir = tempfile::tempdir().unwrap();
    let disk = || Arc::new(FileDisk::open(dir.path()).unwrap());
    let with_fuel = |fuel| {
        let mut options = TopicOptions::default();
        options.program.fuel_max = Some(fuel);
        options
    };
    let (custom, before) = (20_000_000, with_fuel(FUEL_MAX));
    let create = Intention::new("t", Operation::Create { options: &before });
    let all = OpenOptions {
        program_fuel_max: FUEL_MAX,
        ..options()
    };
    let store = Store::open_disk(disk(), &all).unwrap();
    execute(&store, &[create]);
    store.close().unwrap();
    // The limit of the operator cannot be below the default fuel of a topic.
    let default = options().program_fuel_max;
    assert_eq!(default, FUEL_OPTION_MAX_DEFAULT);
    for (cap, limit) in [(custom, custom), (default, default), (5, FUEL_DEFAULT)] {
        let capped = OpenOptions {
            program_fuel_max: cap,
            ..options()
        };
        let store = Store::open_disk(disk(), &capped).unwrap();
        for (fuel, accepted) in [(limit - 1, true), (limit, true), (limit + 1, false)] {
            let options = &with_fuel(fuel);
            for operation in [Operation::Create { options }, Operation::Alter { options }] {
                let result = store.propose(&[put("t", b"k", b"v"), Intention::new("t", operation)]);
                match result {
                    Ok(_) => assert!(accepted, "{fuel} of {limit}"),
                    Err(StoreError::LimitExceeded {
                        limit: l, value, ..
                    }) => {
                        assert_eq!((accepted, l, value), (false, limit, fuel));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
        store.close().unwrap();
    }
}

/// Modules that are stored, modules that wait for their apply, and modules of the same call count.
#[test]
fn the_number_of_different_modules_is_limited() {
    let gate = Gate::new(SimDisk::new());
    let with_host = OpenOptions {
        host: Some(Arc::new(ExpensiveProgram)),
        ..options()
    };
    let store = Store::open_disk(gate.disk(), &with_host).unwrap();
    let options = TopicOptions::default();
    let codes: Vec<[u8; 4]> = (0..=8192_u32).map(u32::to_be_bytes).collect();
    // Only the first CREATE is VALID: afterwards the topic exists.
    let starts: Vec<_> = codes
        .iter()
        .map(|code| {
            let create = Operation::CreateProgram {
                options: &options,
                code,
                args: b"",
            };
            Intention::new("t", create)
        })
        .collect();
    let is_over = |call: &[Intention<'_>]| {
        let over = store.propose(call);
        matches!(
            over,
            Err(StoreError::LimitExceeded {
                limit: 8192,
                value: 8193,
                ..
            })
        )
    };
    assert!(is_over(&starts), "all in one call");
    assert!(store.topic("t").is_none());
    execute(&store, &starts[..1]);
    // The reservation ends after the outcome, at the latest before the next task of this thread.
    store.checkpoint().unwrap();
    assert!(is_over(&starts[1..]), "one is stored");
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let waiting = store.propose(&starts[..8192]).unwrap();
    assert!(is_over(&starts[8192..]), "the others wait for their apply");
    let stored = store.propose(&starts[..1]).unwrap();
    gate.release();
    assert_eq!(waiting.wait().unwrap().len(), 8192);
    assert_eq!(stored.wait().unwrap().len(), 1);
    store.checkpoint().unwrap();
    let others = store.propose(&starts[2..]).unwrap();
    assert_eq!(others.wait().unwrap().len(), 8191);
}

#[test]
fn one_oversized_intention_refuses_its_whole_call_and_nothing_is_written() {
    let gate = Gate::new(SimDisk::new());
    let store = open(gate.disk());
    create(&store, "t");
    gate.wait_sealed();
    let writes = gate.count(Op::Write, "");
    let value = vec![b'v'; VALUE_BYTES_DEFAULT + 1];
    let good = put("t", b"k", b"v");
    assert!(is_refused(
        store.propose(&[good, good, put("t", b"k", &value)]),
        2
    ));
    let key = vec![b'k'; KEY_BYTES_DEFAULT + 1];
    assert!(is_refused(store.propose(&[put("t", &key, b"")]), 0));
    let long = "n".repeat(TOPIC_NAME_BYTES_MAX + 1);
    for name in ["", "a b", ".weir", long.as_str()] {
        assert!(
            is_refused(store.propose(&[good, put(name, b"k", b"v")]), 1),
            "{name}"
        );
    }
    let meta = vec![0; META_BYTES_MAX + 1];
    let too_large = Intention {
        meta: &meta,
        ..good
    };
    assert!(is_refused(store.propose(&[too_large]), 0));
    let delete = Intention::new("t", Operation::Delete { key: b"" });
    assert!(is_refused(store.propose(&[delete]), 0));
    assert!(is_refused(
        store.propose(&[Intention::new("t", Operation::Txn { ops: &[] })]),
        0
    ));
    assert!(is_refused(
        store.propose(&[good.under(crate::world::CLIENT, 0)]),
        0
    ));
    assert_eq!(gate.count(Op::Write, ""), writes);
    assert_eq!(store.topic("t").unwrap().last.0, 1);
    // A refused call does not affect other calls.
    assert_eq!(execute(&store, &[good])[0].first.0, 2);
}

#[test]
fn values_and_keys_at_the_default_limits_are_read_back() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "t");
    let key = vec![0xff; KEY_BYTES_DEFAULT];
    for size in [VALUE_BYTES_DEFAULT - 1, VALUE_BYTES_DEFAULT] {
        let value: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
        execute(&store, &[put("t", &key, &value)]);
        let page = store.get("t", &key).unwrap().unwrap();
        assert!(page.iter().next().unwrap().unwrap().value == value);
    }
    let before = records(&store, "t");
    drop(store);
    assert!(records(&open(Arc::new(disk)), "t") == before);
}

#[test]
fn the_largest_value_and_key_survive_log_replay_and_snapshot() {
    let disk = SimDisk::new();
    let raised = OpenOptions {
        limits: IntentionLimits {
            key_bytes_max: KEY_BYTES_MAX,
            value_bytes_max: VALUE_BYTES_MAX,
        },
        ..options()
    };
    let store = Store::open_disk(Arc::new(disk.clone()), &raised).unwrap();
    create(&store, "t");
    let key = vec![0; KEY_BYTES_MAX];
    let mut value = vec![0_u8; VALUE_BYTES_MAX];
    for (n, byte) in value.iter_mut().step_by(4099).enumerate() {
        *byte = n as u8;
    }
    execute(&store, &[put("t", &key, &value)]);
    let is_stored = |store: &Store| {
        let page = store.get("t", &key).unwrap().unwrap();
        let record = page.iter().next().unwrap().unwrap();
        record.value == value && record.key == key
    };
    assert!(is_stored(&store));
    let longer = vec![0; VALUE_BYTES_MAX + 1];
    let over = store.propose(&[put("t", b"k", &longer)]);
    assert!(matches!(
        over,
        Err(StoreError::Refused { error: IntentionError::TooLarge { actual, max, .. }, .. })
            if actual == max + 1
    ));
    drop(store);
    let store = Store::open_disk(Arc::new(disk.clone()), &raised).unwrap();
    assert!(is_stored(&store), "after replay");
    store.compact_log().unwrap();
    store.close().unwrap();
    let store = Store::open_disk(Arc::new(disk), &raised).unwrap();
    assert_eq!(store.report().replayed_entries, 0);
    assert!(is_stored(&store), "from the segment");
}

#[test]
fn whether_a_call_fits_does_not_depend_on_the_queue() {
    let gate = Gate::new(SimDisk::new());
    let store = open(gate.disk());
    create(&store, "t");
    let mebibyte = vec![1_u8; VALUE_BYTES_DEFAULT];
    let part = vec![1_u8; 3 << 20];
    let raised = OpenOptions {
        limits: IntentionLimits {
            value_bytes_max: 4 << 20,
            ..IntentionLimits::default()
        },
        ..options()
    };
    drop(store);
    let store = Store::open_disk(gate.disk(), &raised).unwrap();
    gate.rule(Op::Sync, "log/", Rule::Hold);
    let first = store.propose(&[put("t", b"", b"")]).unwrap();
    gate.wait_held();
    let waiting = store.propose(&[put("t", b"", &part)]).unwrap();
    let count = BATCH_BYTES_HARD_MAX / VALUE_BYTES_DEFAULT - 1;
    let call = vec![put("t", b"", &mebibyte); count];
    let large = store.propose(&call);
    gate.release();
    first.wait().unwrap();
    waiting.wait().unwrap();
    assert_eq!(large.unwrap().wait().unwrap().len(), count);
    let over = vec![put("t", b"", &mebibyte); count + 1];
    assert!(is_refused(store.propose(&over), count));
}

#[test]
fn a_transaction_is_applied_whole_and_marked() {
    let store = open(Arc::new(SimDisk::new()));
    create(&store, "t");
    let step = |key: &'static [u8]| TxnOp::Put {
        key,
        value: b"v",
        meta: b"",
    };
    let ops = [
        step(b"a"),
        TxnOp::Delete {
            key: b"a",
            meta: b"",
        },
        step(b"b"),
    ];
    let commit = execute(&store, &[Intention::new("t", Operation::Txn { ops: &ops })])[0].clone();
    assert_eq!((commit.first.0, commit.records), (2, 3));
    let found = records(&store, "t");
    let flags: Vec<u8> = found[1..].iter().map(|r| r.flags).collect();
    assert_eq!(flags, [2, 2, 3]);
    assert!(store.get("t", b"a").unwrap().is_none());
    assert!(store.get("t", b"b").unwrap().is_some());
    let mut reader = store.read("t", ConsequenceOffset(3)).unwrap();
    let page = reader.next_page().unwrap().unwrap();
    assert_eq!(page.iter().next().unwrap().unwrap().offset.0, 4);
}

#[test]
fn only_the_process_writes_topics_with_a_leading_dot() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    let note = put(".weir.notes", b"", b"once");
    assert!(is_refused(store.propose(&[note]), 0));
    let options = weir_core::TopicOptions::default();
    let create = Intention::new(".weir.notes", Operation::Create { options: &options });
    let outcomes = store.propose_own(&[create, note]).unwrap().wait().unwrap();
    assert_eq!(outcomes.len(), 2);
    assert!(is_refused(store.propose_own(&[put("a b", b"", b"")]), 0));
    drop(store);
    let store = open(Arc::new(disk));
    assert_eq!(records(&store, ".weir.notes").len(), 2);
}

/// Environment variable with the directory of the child that has few descriptors.
const FEW: &str = "WEIR_TEST_FEW_DESCRIPTORS_DIRECTORY";

/// Writes and reads 200 topics in a process with few descriptors.
#[test]
fn child_serves_many_topics() {
    let Ok(directory) = std::env::var(FEW) else {
        return;
    };
    let directory = std::path::Path::new(&directory);
    let names: Vec<String> = (0..200).map(|n| format!("t{n}")).collect();
    let store = Store::open(directory, &options()).unwrap();
    for name in &names {
        create(&store, name);
        execute(&store, &[put(name, b"k", name.as_bytes())]);
    }
    store.checkpoint().unwrap();
    let before = crate::world::state(&store);
    // The log creates segments while the files of topics are open.
    for _ in 0..5 {
        execute(&store, &[put("t0", b"large", &vec![7; 40 << 10])]);
    }
    store.compact_log().unwrap();
    for name in &names {
        execute(&store, &[put(name, b"k", b"2")]);
    }
    store.close().unwrap();
    let reading = OpenOptions::read_only();
    for options in [options(), reading] {
        let store = Store::open(directory, &options).unwrap();
        let state = crate::world::state(&store);
        for (name, topic) in &before {
            assert_eq!(topic.records, state[name].records[..2], "{name}");
        }
    }
    println!("served");
}

/// The open files of topics leave the descriptors that the store needs for other files.
#[test]
fn many_topics_are_served_with_few_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    for descriptors in ["20", "32", "64"] {
        let child = std::process::Command::new("sh")
            .args(["-c", "ulimit -n $0; exec \"$@\"", descriptors])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "limits::child_serves_many_topics", "--nocapture"])
            .env(FEW, directory.path().join(descriptors))
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        let errors = String::from_utf8_lossy(&child.stderr);
        assert!(output.contains("served"), "{descriptors}: {output}{errors}");
    }
}
