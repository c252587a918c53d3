//! Groups of a store: claims return claimable records, and a takeover loses no
//! acknowledgement that succeeded. Unfinished records are delivered again, and records that
//! no member can process become dead letters, once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_core::group::{GroupSetup, Offsets};
use weir_core::intention::{Intention, Operation};
use weir_core::{
    Commit, ConsequenceOffset, Effect, ErrorCode, GroupMode, GroupStep, RecordKind, TopicOptions,
};
use weir_store::disk::{Disk, SimDisk};
use weir_store::{ClaimRequest, Claimed, OpenOptions, Store, StoreError};

use crate::disks::{EMFILE, ENOSPC, Gate, Op, Rule};
use crate::world::{create, create_with, execute, latest, open, options, put, put_many, records};

/// An offset and a key.
type Seen = (u64, Vec<u8>);

fn open_group(
    store: &Store,
    topic: &str,
    mode: GroupMode,
    change: impl FnOnce(&mut GroupSetup<'_>),
) {
    let mut setup = GroupSetup::new(mode);
    change(&mut setup);
    step(store, topic, GroupStep::Open(setup));
}

fn step(store: &Store, topic: &str, step: GroupStep<'_>) -> Commit {
    let commit = store.group_step(topic, "g", step).unwrap();
    assert_eq!(commit.effect, Effect::Valid, "{commit:?}");
    commit
}

fn claim(store: &Store, topic: &str, member: &str, max: usize) -> Claimed {
    let request = ClaimRequest {
        member: member.as_bytes(),
        max,
        lease_ms: 0,
        bytes_max: usize::MAX,
    };
    store.claim(topic, "g", &request).unwrap()
}

fn offsets(claimed: &Claimed) -> Vec<u64> {
    claimed.deliveries.iter().map(|d| d.offset.0).collect()
}

fn ack(store: &Store, topic: &str, claimed: &Claimed) {
    for delivery in &claimed.deliveries {
        ack_one(store, topic, delivery.claim, delivery.offset.0);
    }
}

fn ack_one(store: &Store, topic: &str, claim: u64, offset: u64) {
    let list = [offset];
    let offsets = Offsets::Plain(&list);
    step(store, topic, GroupStep::Ack { claim, offsets });
}

fn nack(store: &Store, topic: &str, claimed: &Claimed, reason: &str) {
    for delivery in &claimed.deliveries {
        let list = [delivery.offset.0];
        let nack = GroupStep::Nack {
            claim: delivery.claim,
            delay_ms: 0,
            reason,
            offsets: Offsets::Plain(&list),
        };
        step(store, topic, nack);
    }
}

#[test]
fn members_of_a_shared_group_get_each_record_once_and_the_cursor_follows() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "t");
    put_many(&store, "t", (0..10).map(|n| (format!("k{n}"), "v")));
    open_group(&store, "t", GroupMode::Shared, |_| {});
    let anna = claim(&store, "t", "anna", 4);
    assert_eq!(offsets(&anna), [2, 3, 4, 5], "the CREATE is skipped");
    let record = anna.deliveries[0].page.iter().next().unwrap().unwrap();
    assert_eq!(
        (record.offset.0, record.key, record.kind),
        (2, &b"k0"[..], RecordKind::Put)
    );
    let bert = claim(&store, "t", "bert", 100);
    assert_eq!(offsets(&bert), [6, 7, 8, 9, 10, 11]);
    let none = claim(&store, "t", "carl", 100);
    assert!(
        none.deliveries.is_empty() && none.commit.is_none(),
        "an empty claim writes no log entry"
    );
    assert!(none.due_ms.is_some());
    ack(&store, "t", &bert);
    let info = store.group("t", "g").unwrap();
    assert_eq!((info.cursor.0, info.lag, info.leased), (1, 4, 4));
    assert!(info.oldest_ms.is_some());
    assert_eq!(info.members[&b"anna"[..]], 4);
    // The process ends and another one opens the directory.
    store.close().unwrap();
    let store = open(Arc::new(disk));
    let info = store.group("t", "g").unwrap();
    assert_eq!(
        (info.cursor.0, info.lag, info.leased),
        (1, 4, 4),
        "the acknowledgements of bert are durable"
    );
    ack(&store, "t", &anna);
    let info = store.group("t", "g").unwrap();
    assert_eq!((info.cursor.0, info.lag, info.oldest_ms), (11, 0, None));
    assert_eq!(store.groups("t").unwrap(), [info]);
    let names = |after| {
        let names = store.group_names("t", after).unwrap();
        names.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(names("f"), ["g"]);
    assert!(names("g").is_empty());
    assert!(matches!(
        store.groups("x"),
        Err(StoreError::TopicUnknown { .. })
    ));
    let request = ClaimRequest {
        member: b"m",
        max: 1,
        lease_ms: 0,
        bytes_max: usize::MAX,
    };
    assert!(matches!(
        store.claim("t", "x", &request),
        Err(StoreError::GroupUnknown { .. })
    ));
    assert!(matches!(
        store.claim("x", "x", &request),
        Err(StoreError::TopicUnknown { .. })
    ));
}

#[test]
fn a_nacked_record_is_delivered_again_and_counted() {
    let store = open(Arc::new(SimDisk::new()));
    create(&store, "t");
    put_many(&store, "t", [("a", "1"), ("b", "2")]);
    open_group(&store, "t", GroupMode::Shared, |_| {});
    let first = claim(&store, "t", "anna", 10);
    nack(&store, "t", &first, "");
    let again = claim(&store, "t", "bert", 1);
    assert_eq!(offsets(&again), [2]);
    assert_eq!(again.deliveries[0].attempts, 2);
    let list = [2];
    let late = GroupStep::Ack {
        claim: first.deliveries[0].claim,
        offsets: Offsets::Plain(&list),
    };
    let late = store.group_step("t", "g", late).unwrap();
    assert_eq!(
        late.reason,
        Some(ErrorCode::NotOwner),
        "bert has the claim now"
    );
    assert_eq!(store.group("t", "g").unwrap().redeliveries, 1);
}

#[test]
fn a_lease_ends_by_the_clock_of_the_log() {
    let store = open(Arc::new(SimDisk::new()));
    create(&store, "t");
    put_many(&store, "t", [("a", "1")]);
    open_group(&store, "t", GroupMode::Shared, |setup| setup.lease_ms = 1);
    let first = claim(&store, "t", "anna", 1);
    // Claim repeatedly until the stamp of a batch is after the end of the lease, without a
    // sleep.
    let again = loop {
        let again = claim(&store, "t", "bert", 1);
        if !again.deliveries.is_empty() {
            break again;
        }
    };
    assert_eq!(offsets(&again), [2]);
    let list = [2];
    let offsets = Offsets::Plain(&list);
    let late = GroupStep::Ack {
        claim: first.deliveries[0].claim,
        offsets,
    };
    assert_eq!(
        store.group_step("t", "g", late).unwrap().reason,
        Some(ErrorCode::NotOwner)
    );
}

#[test]
fn concurrent_members_get_each_record_once() {
    for mode in [GroupMode::Shared, GroupMode::Keyed] {
        let store = Arc::new(open(Arc::new(SimDisk::new())));
        create(&store, "t");
        put_many(
            &store,
            "t",
            (0..300).map(|n| (format!("k{}", n % 7), n.to_string())),
        );
        open_group(&store, "t", mode, |_| {});
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let owners: Arc<Mutex<BTreeMap<Vec<u8>, usize>>> = Arc::default();
        let workers: Vec<_> = (0..4)
            .map(|number| {
                let (store, seen, owners) =
                    (Arc::clone(&store), Arc::clone(&seen), Arc::clone(&owners));
                std::thread::spawn(move || {
                    while store.group("t", "g").unwrap().lag > 0 {
                        let claimed = claim(&store, "t", &format!("m{number}"), 5);
                        for delivery in &claimed.deliveries {
                            let record = delivery.page.iter().next().unwrap().unwrap();
                            if mode == GroupMode::Keyed {
                                let before =
                                    owners.lock().unwrap().insert(record.key.to_vec(), number);
                                assert!(before.is_none_or(|b| b == number), "one member at a time");
                            }
                            seen.lock()
                                .unwrap()
                                .push((record.offset.0, record.key.to_vec()));
                        }
                        // Removed before the acknowledgement, after which other members may claim
                        // the key.
                        for delivery in claimed.deliveries.iter().rev() {
                            let record = delivery.page.iter().next().unwrap().unwrap();
                            let last = claimed.deliveries.iter().find(|other| {
                                other.page.iter().next().unwrap().unwrap().key == record.key
                            });
                            if last.is_some_and(|last| last.offset == delivery.offset) {
                                owners.lock().unwrap().remove(record.key);
                            }
                            ack_one(&store, "t", delivery.claim, delivery.offset.0);
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        let seen = seen.lock().unwrap();
        let distinct: BTreeSet<u64> = seen.iter().map(|(offset, _)| *offset).collect();
        assert_eq!((seen.len(), distinct.len()), (300, 300), "{mode:?}");
        if mode == GroupMode::Keyed {
            let mut last: BTreeMap<&[u8], u64> = BTreeMap::new();
            for (offset, key) in seen.iter() {
                let before = last.insert(key, *offset);
                assert!(
                    before.is_none_or(|before| before < *offset),
                    "in order within a key"
                );
            }
        }
    }
}

#[test]
fn removed_records_are_not_delivered() {
    let store = open(Arc::new(SimDisk::new()));
    create_with(&store, "t", &latest());
    put_many(&store, "t", (0..20).map(|n| (format!("k{}", n % 4), "v")));
    open_group(&store, "t", GroupMode::Shared, |setup| setup.start = 0);
    store.compact_topic("t").unwrap();
    let claimed = claim(&store, "t", "anna", 100);
    assert_eq!(offsets(&claimed), [18, 19, 20, 21]);
    ack(&store, "t", &claimed);
    assert_eq!(store.group("t", "g").unwrap().cursor.0, 21);
    // A delivered record is nacked and then removed by retention. It is not delivered again.
    put_many(&store, "t", [("k0", "w")]);
    let claimed = claim(&store, "t", "anna", 1);
    nack(&store, "t", &claimed, "");
    let mut options = TopicOptions::default();
    options.retention.records = Some(0);
    execute(
        &store,
        &[Intention::new("t", Operation::Alter { options: &options })],
    );
    store.retain(None).unwrap();
    let claimed = claim(&store, "t", "anna", 10);
    assert!(claimed.deliveries.is_empty());
    assert_eq!(store.group("t", "g").unwrap().cursor.0, 23);
    // A group that was reset to an offset before the first remaining record continues with
    // the remaining records.
    step(&store, "t", GroupStep::Reset { offset: 0 });
    put_many(&store, "t", [("k0", "x")]);
    assert_eq!(offsets(&claim(&store, "t", "anna", 10)), [24]);
}

#[test]
fn a_record_that_fails_at_every_delivery_gets_one_dead_letter() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "t");
    put_many(&store, "t", [("bad", "poison"), ("good", "fine")]);
    open_group(&store, "t", GroupMode::Shared, |setup| {
        setup.attempts_max = 2;
        setup.dead_letters = "t.dead";
    });
    for _ in 0..2 {
        let claimed = claim(&store, "t", "anna", 1);
        assert_eq!(offsets(&claimed), [2]);
        nack(&store, "t", &claimed, "cannot \"do\" it");
    }
    let info = store.group("t", "g").unwrap();
    assert_eq!(
        (info.dead_lettered, info.unwritten_dead_letters),
        (1, 1),
        "the dead letter is not written yet"
    );
    let claimed = claim(&store, "t", "anna", 10);
    assert_eq!(offsets(&claimed), [3]);
    let info = store.group("t", "g").unwrap();
    assert_eq!((info.dead_lettered, info.unwritten_dead_letters), (1, 0));
    let letters = records(&store, "t.dead");
    let kinds: Vec<RecordKind> = letters.iter().map(|letter| letter.kind).collect();
    assert_eq!(
        kinds,
        [RecordKind::Create, RecordKind::Put, RecordKind::Put]
    );
    assert_eq!(letters[1].key, b"t/g/4.1/why");
    let why = String::from_utf8(letters[1].value.clone()).unwrap();
    assert!(
        why.starts_with(
            r#"{"topic":"t","group":"g","offset":2,"key":"bad","reason":"cannot \"do\" it","attempts":2,"time_ms":"#
        ),
        "{why}"
    );
    assert_eq!(
        (&letters[2].key[..], &letters[2].value[..]),
        (&b"t/g/4.1"[..], &b"poison"[..])
    );
    assert_eq!(store.write_dead_letters("t", "g").unwrap(), 0);
}

#[test]
fn a_crash_after_the_write_of_a_dead_letter_does_not_write_it_twice() {
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let images: Arc<Mutex<Vec<SimDisk>>> = Arc::default();
    let (captured, image_of) = (Arc::clone(&images), disk);
    gate.observe(move |op, path| {
        if op == Op::Sync && path.starts_with("log/") {
            captured.lock().unwrap().push(image_of.killed());
        }
    });
    let store = open(gate.disk());
    create(&store, "t");
    put_many(&store, "t", [("bad", "poison")]);
    open_group(&store, "t", GroupMode::Keyed, |setup| {
        setup.attempts_max = 1;
        setup.dead_letters = "dead";
    });
    let claimed = claim(&store, "t", "anna", 1);
    nack(&store, "t", &claimed, "no");
    store.write_dead_letters("t", "g").unwrap();
    store.close().unwrap();
    let (mut before, mut between, mut after) = (0, 0, 0);
    for image in images.lock().unwrap().drain(..) {
        let store = open(Arc::new(image));
        let Some(info) = store.group("t", "g").filter(|info| info.dead_lettered == 1) else {
            continue;
        };
        let is_written = store.topic("dead").is_some_and(|topic| topic.last.0 == 3);
        match (info.unwritten_dead_letters, is_written) {
            (1, false) => before += 1,
            (1, true) => between += 1,
            (0, true) => after += 1,
            other => panic!("{other:?}"),
        }
        store.write_dead_letters("t", "g").unwrap();
        assert_eq!(store.group("t", "g").unwrap().unwritten_dead_letters, 0);
        assert_eq!(records(&store, "dead").len(), 3, "CREATE, why, the record");
        store.close().unwrap();
    }
    assert!(
        before > 0 && between > 0 && after > 0,
        "{before} {between} {after}"
    );
}

#[test]
fn a_dead_letter_that_its_topic_rejects_stays_unwritten() {
    let store = open(Arc::new(SimDisk::new()));
    create(&store, "t");
    put_many(&store, "t", [("bad", "poison")]);
    let mut narrow = TopicOptions::default();
    narrow.value_bytes_max = Some(1);
    create_with(&store, "dead", &narrow);
    open_group(&store, "t", GroupMode::Shared, |setup| {
        setup.attempts_max = 1;
        setup.dead_letters = "dead";
    });
    let claimed = claim(&store, "t", "anna", 1);
    nack(&store, "t", &claimed, "no");
    assert_eq!(store.write_dead_letters("t", "g").unwrap(), 0);
    assert_eq!(store.group("t", "g").unwrap().unwritten_dead_letters, 1);
    let options = TopicOptions::default();
    execute(
        &store,
        &[Intention::new(
            "dead",
            Operation::Alter { options: &options },
        )],
    );
    assert_eq!(store.write_dead_letters("t", "g").unwrap(), 1);
}

#[test]
fn a_dead_letter_over_a_limit_of_the_store_does_not_fail_claims() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "t");
    put_many(&store, "t", [("bad", "poison"), ("good", "fine")]);
    open_group(&store, "t", GroupMode::Shared, |setup| {
        setup.attempts_max = 1;
        setup.dead_letters = "dead";
    });
    let claimed = claim(&store, "t", "anna", 1);
    nack(&store, "t", &claimed, "no");
    store.close().unwrap();
    // The reason of the letter is longer.
    let mut narrow = options();
    narrow.limits.value_bytes_max = 20;
    let store = Store::open_disk(Arc::new(disk.clone()), &narrow).unwrap();
    assert_eq!(offsets(&claim(&store, "t", "anna", 1)), [3]);
    assert_eq!(store.group("t", "g").unwrap().unwritten_dead_letters, 1);
    store.close().unwrap();
    let store = open(Arc::new(disk));
    assert_eq!(store.write_dead_letters("t", "g").unwrap(), 1);
}

#[test]
fn a_dead_letter_whose_record_is_damaged_does_not_stop_the_others() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "t");
    // Each record is in its own block.
    for key in ["first", "second"] {
        put_many(&store, "t", [(key, "poison")]);
        store.checkpoint().unwrap();
    }
    open_group(&store, "t", GroupMode::Shared, |setup| {
        setup.attempts_max = 1;
        setup.dead_letters = "dead";
    });
    let claimed = claim(&store, "t", "anna", 2);
    assert_eq!(offsets(&claimed), [2, 3]);
    nack(&store, "t", &claimed, "no");
    let files = disk.files().into_iter();
    let segment: Vec<_> = files.filter(|path| path.starts_with("topics/")).collect();
    // A byte of the first block, after its header.
    disk.flip(&segment[0], 100, 0);
    let error = store.write_dead_letters("t", "g").unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert_eq!(store.group("t", "g").unwrap().unwritten_dead_letters, 1);
    assert_eq!(records(&store, "dead").len(), 3, "CREATE, why, the record");
    // An empty claim does not fail.
    assert!(claim(&store, "t", "anna", 2).deliveries.is_empty());
    assert_eq!(store.group("t", "g").unwrap().unwritten_dead_letters, 1);
}

/// Creates a topic with the records 2 and 3, each in its own block, and a shared group. Returns the
/// path of the segment.
fn two_blocks(store: &Store, disk: &SimDisk) -> String {
    create(store, "t");
    for key in ["first", "second"] {
        put_many(store, "t", [(key, "value")]);
        store.checkpoint().unwrap();
    }
    open_group(store, "t", GroupMode::Shared, |_| {});
    let mut segments = disk.files().into_iter();
    let segment = segments.find(|path| path.starts_with("topics/"));
    segment.unwrap()
}

#[test]
fn a_claim_returns_the_records_before_a_damaged_block() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    let segment = two_blocks(&store, &disk);
    let end = disk.content(&segment).unwrap().len();
    // The last byte of the second block.
    disk.flip(&segment, end - 1, 0);
    assert_eq!(offsets(&claim(&store, "t", "anna", 10)), [2]);
    let request = ClaimRequest {
        member: b"anna",
        max: 10,
        lease_ms: 0,
        bytes_max: usize::MAX,
    };
    let error = store.claim("t", "g", &request).unwrap_err();
    assert!(error.is_damage(), "{error}");
}

#[test]
fn a_damaged_record_that_was_delivered_does_not_stop_the_redelivery_of_others() {
    for bytes_max in [usize::MAX, 1 << 20] {
        let disk = SimDisk::new();
        let store = open(Arc::new(disk.clone()));
        let segment = two_blocks(&store, &disk);
        let claimed = claim(&store, "t", "anna", 10);
        assert_eq!(offsets(&claimed), [2, 3]);
        nack(&store, "t", &claimed, "no");
        // A byte of the first block, after its header.
        disk.flip(&segment, 100, 0);
        let request = ClaimRequest {
            member: b"anna",
            max: 1,
            lease_ms: 0,
            bytes_max,
        };
        // The lease of the damaged record lets the next claim get the other one.
        let error = store.claim("t", "g", &request).unwrap_err();
        assert!(error.is_damage(), "{error}");
        assert_eq!(offsets(&store.claim("t", "g", &request).unwrap()), [3]);
        let claimed = store.claim("t", "g", &request).unwrap();
        assert!(claimed.deliveries.is_empty() && claimed.due_ms.is_some());
    }
}

#[test]
fn a_claim_with_a_damaged_record_returns_the_others() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    let segment = two_blocks(&store, &disk);
    let claimed = claim(&store, "t", "anna", 10);
    nack(&store, "t", &claimed, "no");
    disk.flip(&segment, 100, 0);
    assert_eq!(offsets(&claim(&store, "t", "anna", 10)), [3]);
}

#[test]
fn a_claim_whose_records_cannot_be_read_now_leases_none() {
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let store = open(gate.disk());
    two_blocks(&store, &disk);
    let claimed = claim(&store, "t", "anna", 10);
    nack(&store, "t", &claimed, "no");
    gate.rule(Op::Read, "topics/", Rule::Fail(EMFILE));
    let request = ClaimRequest {
        member: b"anna",
        max: 10,
        lease_ms: 0,
        bytes_max: usize::MAX,
    };
    assert!(store.claim("t", "g", &request).is_err());
    gate.release();
    let info = store.group("t", "g").unwrap();
    assert_eq!((info.leased, info.redeliveries), (0, 0));
    assert_eq!(offsets(&claim(&store, "t", "anna", 10)), [2, 3]);
}

#[test]
fn a_dead_letter_that_cannot_be_written_keeps_no_claimed_record_from_its_member() {
    let gate = Gate::new(SimDisk::new());
    let large = OpenOptions {
        log_segment_bytes: 1 << 20,
        ..options()
    };
    let store = Store::open_disk(gate.disk(), &large).unwrap();
    create(&store, "t");
    let (bad, good) = (vec![7_u8; 700 << 10], vec![7_u8; 10]);
    put_many(&store, "t", [("bad", bad), ("good", good)]);
    open_group(&store, "t", GroupMode::Shared, |setup| {
        setup.attempts_max = 1;
        setup.dead_letters = "dead";
    });
    let claimed = claim(&store, "t", "anna", 1);
    nack(&store, "t", &claimed, "no");
    // The letter needs a new segment of the log. A claim does not.
    gate.rule(Op::Create, "log/", Rule::Fail(ENOSPC));
    assert_eq!(offsets(&claim(&store, "t", "anna", 1)), [3]);
    assert_eq!(store.group("t", "g").unwrap().unwritten_dead_letters, 1);
    // No record is left, so the claim returns the error.
    let request = ClaimRequest {
        member: b"anna",
        max: 1,
        lease_ms: 0,
        bytes_max: usize::MAX,
    };
    assert!(store.claim("t", "g", &request).is_err());
    gate.release();
    assert_eq!(store.write_dead_letters("t", "g").unwrap(), 1);
}

#[test]
fn deferred_cursors_are_written_together_or_at_the_close() {
    let disk = SimDisk::new();
    let never = OpenOptions {
        cursor_flush: Duration::from_hours(1),
        ..options()
    };
    let store = Store::open_disk(Arc::new(disk.clone()), &never).unwrap();
    create(&store, "t");
    put_many(&store, "t", (0..50).map(|n| (n.to_string(), "v")));
    open_group(&store, "t", GroupMode::Exclusive, |_| {});
    let generation = step(
        &store,
        "t",
        GroupStep::Join {
            member: b"anna",
            takeover: false,
        },
    );
    let generation = generation.intention.0;
    let before = store.applied().0;
    for offset in 1..=30 {
        store
            .move_cursor("t", "g", generation, ConsequenceOffset(offset))
            .unwrap();
    }
    assert_eq!(store.applied().0, before, "the moves are deferred");
    store.flush_cursors().unwrap();
    assert_eq!(store.applied().0, before + 1, "one entry for all of them");
    assert_eq!(store.group("t", "g").unwrap().cursor.0, 30);
    store
        .move_cursor("t", "g", generation, ConsequenceOffset(40))
        .unwrap();
    let now = store
        .move_cursor_now("t", "g", generation, ConsequenceOffset(41))
        .unwrap();
    assert_eq!(
        (now.effect, store.applied().0),
        (Effect::Valid, before + 2),
        "written at once, in its own entry"
    );
    store
        .move_cursor("t", "g", generation, ConsequenceOffset(50))
        .unwrap();
    store.close().unwrap();
    let store = open(Arc::new(disk));
    assert_eq!(
        store.group("t", "g").unwrap().cursor.0,
        50,
        "the close wrote it"
    );
    // Another member takes over and continues at the cursor. The previous member is rejected.
    let takeover = step(
        &store,
        "t",
        GroupStep::Join {
            member: b"bert",
            takeover: true,
        },
    );
    let late = store
        .move_cursor_now("t", "g", generation, ConsequenceOffset(51))
        .unwrap();
    assert_eq!(late.reason, Some(ErrorCode::NotOwner));
    let moved = store
        .move_cursor_now("t", "g", takeover.intention.0, ConsequenceOffset(51))
        .unwrap();
    assert_eq!(moved.effect, Effect::Valid);
}

#[test]
fn a_deferred_cursor_is_written_after_its_time() {
    let soon = OpenOptions {
        cursor_flush: Duration::from_millis(1),
        ..options()
    };
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let store = Store::open_disk(disk, &soon).unwrap();
    create(&store, "t");
    execute(&store, &[put("t", b"k", b"v")]);
    open_group(&store, "t", GroupMode::Exclusive, |_| {});
    store
        .move_cursor("t", "g", 0, ConsequenceOffset(2))
        .unwrap();
    // The cursor is written without a request.
    while store.group("t", "g").unwrap().cursor.0 < 2 {
        std::thread::yield_now();
    }
}
