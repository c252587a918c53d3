//! Retention removes the oldest records, but no record that a group has not passed. Offsets
//! and keys are retained, and a reader that would miss a record gets an error. All this also
//! holds after a power cut at any moment.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_core::group::GroupSetup;
use weir_core::intention::{Intention, Operation};
use weir_core::{
    ConsequenceOffset, Effect, GroupMode, GroupName, GroupStep, Retention, TopicOptions,
};
use weir_store::disk::{Disk, SimDisk};
use weir_store::{OpenOptions, Store, StoreError};

use crate::disks::{ENOSPC, Gate, Op, Rule};
use crate::world::{
    create, create_with, drain, execute, latest, open, options, put, put_many, records,
};

fn with(retention: impl FnOnce(&mut Retention)) -> TopicOptions {
    let mut options = TopicOptions::default();
    retention(&mut options.retention);
    options
}

fn alter(store: &Store, topic: &str, options: &TopicOptions) {
    let alter = Intention::new(topic, Operation::Alter { options });
    assert_eq!(execute(store, &[alter])[0].effect, Effect::Valid);
}

fn fill(store: &Store, topic: &str, from: u64, to: u64) {
    let items = (from..to).map(|n| (format!("key-{}", n % 10), [n as u8; 1000]));
    put_many(store, topic, items);
}

/// Creates a group whose cursor is at `offset`.
fn group(store: &Store, topic: &str, name: &str, offset: u64) {
    let mut setup = GroupSetup::new(GroupMode::Exclusive);
    setup.start = offset;
    let opened = store
        .group_step(topic, name, GroupStep::Open(setup))
        .unwrap();
    assert_eq!(opened.effect, Effect::Valid);
}

fn move_to(store: &Store, topic: &str, name: &str, offset: u64) {
    let moved = store
        .move_cursor_now(topic, name, 0, ConsequenceOffset(offset))
        .unwrap();
    assert_eq!(moved.effect, Effect::Valid);
}

fn offsets(store: &Store, topic: &str) -> Vec<u64> {
    records(store, topic)
        .iter()
        .map(|record| record.offset)
        .collect()
}

fn segments(disk: &SimDisk) -> usize {
    disk.files()
        .iter()
        .filter(|path| path.starts_with("topics/"))
        .count()
}

#[test]
fn the_retained_number_of_records_stays_with_its_offsets() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create_with(&store, "t", &with(|r| r.records = Some(40)));
    // Offset 1 is the CREATE. Each round is a separate segment, because it exceeds an
    // eighth of the retained size.
    for round in 0..10 {
        fill(&store, "t", round * 10, round * 10 + 10);
        store.retain(None).unwrap();
    }
    let info = store.topic("t").unwrap();
    assert_eq!(info.last.0, 101);
    assert_eq!(
        info.first.0, 62,
        "40 records stay, 2 to 61 are whole segments"
    );
    assert_eq!(offsets(&store, "t"), (62..=101).collect::<Vec<_>>());
    assert_eq!(segments(&disk), 4, "the files are removed");
    assert_eq!(store.removed("t").0, 61);
    assert_eq!(
        store.retain(None).unwrap().segments,
        0,
        "no segment is left to remove"
    );
    // Also after an open, and after another open.
    let before = records(&store, "t");
    store.close().unwrap();
    for _ in 0..2 {
        let store = open(Arc::new(disk.clone()));
        assert_eq!(records(&store, "t"), before);
        assert_eq!(store.removed("t").0, 61);
        assert!(store.report().set_aside.is_empty());
        store.close().unwrap();
    }
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let report = weir_store::verify_disk(&disk).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}

#[test]
fn segments_are_removed_after_a_retention_whose_checkpoint_failed() {
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let store = open(gate.disk());
    create_with(&store, "t", &with(|r| r.records = Some(40)));
    for round in 0..4 {
        fill(&store, "t", round * 10, round * 10 + 10);
        store.retain(None).unwrap();
    }
    fill(&store, "t", 40, 50);
    gate.rule(Op::Write, "snapshots/", Rule::Fail(ENOSPC));
    for _ in 0..2 {
        assert!(store.retain(None).is_err());
        assert_eq!((store.removed("t").0, segments(&disk)), (11, 5));
    }
    gate.release();
    store.retain(None).unwrap();
    assert_eq!((store.removed("t").0, segments(&disk)), (11, 4));
    assert_eq!(offsets(&store, "t"), (12..=51).collect::<Vec<_>>());
}

#[test]
fn a_damaged_topic_does_not_stop_the_retention_of_others() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    for topic in ["a", "b"] {
        create_with(&store, topic, &with(|r| r.age_ms = Some(0)));
        fill(&store, topic, 0, 5);
    }
    store.checkpoint().unwrap();
    for path in disk.files() {
        if path.starts_with("topics/00000000/") {
            // A byte of the first record, after the header of its block.
            disk.flip(&path, 100, 0);
        }
    }
    assert!(store.retain(None).unwrap_err().is_damage());
    assert_eq!((store.removed("a").0, store.removed("b").0), (0, 6));
}

#[test]
fn a_topic_that_cannot_be_written_does_not_stop_the_trims_of_others() {
    let gate = Gate::new(SimDisk::new());
    let store = open(gate.disk());
    for topic in ["a", "b"] {
        create_with(&store, topic, &with(|r| r.age_ms = Some(0)));
        fill(&store, topic, 0, 5);
    }
    gate.rule(Op::Write, "topics/00000000/", Rule::Fail(ENOSPC));
    assert!(store.retain(None).is_err());
    assert_eq!((store.removed("a").0, store.removed("b").0), (0, 6));
    gate.release();
    store.retain(None).unwrap();
    assert_eq!(store.removed("a").0, 6);
}

fn trim(store: &Store, topic: &str, through: u64) {
    let trim = Intention::new(topic, Operation::Trim { through });
    assert_eq!(execute(store, &[trim])[0].effect, Effect::Valid);
}

/// The first record that a reader of the whole topic gets, and that the topic reports; 0 for none.
fn first(store: &Store, topic: &str) -> u64 {
    let reported = store.topic(topic).unwrap().first.0;
    let read = offsets(store, topic).first().copied();
    assert_eq!(reported, read.unwrap_or(0));
    reported
}

#[test]
fn a_trim_inside_a_block_changes_the_first_record_and_no_file() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "t");
    fill(&store, "t", 0, 20);
    let reader = |after| store.read("t", ConsequenceOffset(after)).unwrap();
    let seen = |mut reader: weir_store::TopicReader| -> Vec<u64> {
        let records = drain(&mut reader).unwrap();
        records.iter().map(|record| record.offset).collect()
    };
    let mut started = reader(0);
    let page = started.next_page().unwrap().unwrap();
    let held = page.iter().count();
    started.seek(ConsequenceOffset(5));
    trim(&store, "t", 12);
    assert_eq!(first(&store, "t"), 13);
    let rest: Vec<u64> = (13..=21).collect();
    assert_eq!(seen(reader(0)), rest);
    assert_eq!(seen(reader(5).or_earliest()), rest);
    assert_eq!(
        seen(reader(12)),
        rest,
        "the last record that was read is trimmed"
    );
    assert_eq!(seen(reader(15)), [16, 17, 18, 19, 20, 21]);
    for mut reader in [started, reader(11)] {
        match reader.next_page().unwrap_err() {
            StoreError::RecordsGone { first, last } => assert_eq!((first, last), (13, 21)),
            other => panic!("{other}"),
        }
        assert!(reader.try_next_page().is_pending());
    }
    assert_eq!(page.iter().count(), held, "a page in use does not change");
    let mut now = reader(0);
    let std::task::Poll::Ready(Some(page)) = now.try_next_page() else {
        panic!("the block is in memory");
    };
    assert_eq!(page.iter().next().unwrap().unwrap().offset.0, 13);
    let mut sought = reader(0);
    sought.seek_last(100);
    assert_eq!(seen(sought.clone()), rest);
    sought.seek_time(0).unwrap();
    assert_eq!(seen(sought), rest);
    // key-0 was written at 2 and 12, key-1 at 3 and 13.
    match store.get("t", b"key-0").unwrap_err() {
        StoreError::RecordsGone { first, .. } => assert_eq!(first, 13),
        other => panic!("{other}"),
    }
    assert!(store.get("t", b"key-1").unwrap().is_some());
    assert_eq!(store.scan("t", b"", None, 100).unwrap().len(), 10);
    trim(&store, "t", 3);
    assert_eq!(first(&store, "t"), 13, "the first record never moves back");
    assert_eq!(store.retain(None).unwrap().segments, 0, "no whole segment");

    // From the log, from a snapshot, and after the newest record.
    let killed = open(Arc::new(disk.killed()));
    assert_eq!((first(&killed, "t"), killed.digest()), (13, store.digest()));
    store.compact_log().unwrap();
    let again = open(Arc::new(disk.killed()));
    assert!(again.report().snapshot.is_some());
    assert_eq!((first(&again, "t"), again.digest()), (13, store.digest()));
    trim(&again, "t", 1000);
    assert_eq!((first(&again, "t"), again.removed("t").0), (0, 21));
    assert!(
        !again
            .wait("t", ConsequenceOffset::ZERO, Duration::ZERO)
            .unwrap()
    );
    fill(&again, "t", 0, 1);
    assert_eq!(offsets(&again, "t"), [22]);
}

#[test]
fn a_trim_removes_no_record_that_a_group_has_not_passed() {
    let store = open(Arc::new(SimDisk::new()));
    let hold = |r: &mut Retention| r.hold_for_groups = vec![GroupName::new("g").unwrap()];
    create_with(&store, "t", &with(hold));
    fill(&store, "t", 0, 20);
    trim(&store, "t", 21);
    assert_eq!(first(&store, "t"), 1, "a group that does not exist");
    group(&store, "t", "g", 12);
    let back = Operation::Cursor {
        group: "g",
        step: GroupStep::Reset { offset: 8 },
    };
    let trim = Operation::Trim { through: 12 };
    execute(&store, &[back, trim].map(|one| Intention::new("t", one)));
    assert_eq!(
        first(&store, "t"),
        9,
        "the group was reset in the same call"
    );
    move_to(&store, "t", "g", 21);
    execute(&store, &[Intention::new("t", trim)]);
    assert_eq!(first(&store, "t"), 13);
}

#[test]
fn removed_records_stay_removed_in_a_state_replayed_from_the_log() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create_with(&store, "t", &with(|r| r.records = Some(15)));
    for round in 0..4 {
        fill(&store, "t", round * 10, round * 10 + 10);
        store.retain(None).unwrap();
    }
    let (retained, digest) = (records(&store, "t"), store.digest());
    assert_eq!(first(&store, "t"), 22);
    execute(&store, &[Intention::new("t", Operation::Destroy)]);
    create(&store, "t");
    assert_eq!(
        first(&store, "t"),
        22,
        "a new incarnation does not change the first record"
    );
    assert_ne!(store.digest(), digest);
    let (digest, last) = (store.digest(), store.topic("t").unwrap().last);
    store.close().unwrap();
    for path in disk.files() {
        if path.starts_with("topics/") || path.starts_with("snapshots/") {
            disk.take(&path);
        }
    }
    let store = open(Arc::new(disk.clone()));
    assert!(store.report().snapshot.is_none());
    assert_eq!(store.digest(), digest);
    assert_eq!(first(&store, "t"), 22);
    assert_eq!(records(&store, "t")[..retained.len()], retained);
    // The replay wrote all records to one segment, which is removed with its last record.
    assert_eq!(store.retain(None).unwrap().segments, 0);
    store.close().unwrap();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let report = weir_store::verify_disk(&shared).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    assert_eq!(report.digest, Some(digest));
    let store = open(Arc::new(disk));
    alter(&store, "t", &with(|r| r.records = Some(0)));
    fill(&store, "t", 0, 1);
    assert_eq!(store.retain(None).unwrap().segments, 1);
    assert_eq!((first(&store, "t"), store.removed("t").0), (0, last.0 + 2));
}

#[test]
fn a_compaction_drops_trimmed_records() {
    let store = open(Arc::new(SimDisk::new()));
    create_with(&store, "t", &latest());
    fill(&store, "t", 0, 15);
    trim(&store, "t", 9);
    // The current values of ten keys are at 7 to 16.
    let report = store.compact_topic("t").unwrap();
    assert_eq!((report.records_before, report.records_after), (16, 7));
    assert_eq!(offsets(&store, "t"), (10..=16).collect::<Vec<_>>());
    assert_eq!(first(&store, "t"), 10);
}

#[test]
fn the_byte_limit_counts_stored_bytes() {
    let store = open(Arc::new(SimDisk::new()));
    create_with(&store, "t", &with(|r| r.bytes = Some(50_000)));
    for round in 0..10 {
        fill(&store, "t", round * 10, round * 10 + 10);
        store.retain(Some("t")).unwrap();
    }
    let info = store.topic("t").unwrap();
    assert!(
        (50_000..65_000).contains(&info.bytes),
        "{} bytes",
        info.bytes
    );
    assert_eq!(info.first.0, 52);
}

#[test]
fn records_above_the_maximum_age_are_removed_even_the_newest() {
    let store = open(Arc::new(SimDisk::new()));
    create_with(&store, "young", &with(|r| r.age_ms = Some(3_600_000)));
    create_with(&store, "old", &with(|r| r.age_ms = Some(0)));
    fill(&store, "young", 0, 20);
    fill(&store, "old", 0, 20);
    let report = store.retain(None).unwrap();
    assert_eq!((report.topics, report.segments, report.records), (1, 1, 21));
    let old = store.topic("old").unwrap();
    assert_eq!(
        (old.first.0, old.last.0),
        (0, 21),
        "none is left, the offsets continue"
    );
    assert_eq!(store.topic("young").unwrap().first.0, 1);
    assert_eq!(offsets(&store, "old"), []);
    fill(&store, "old", 0, 1);
    assert_eq!(offsets(&store, "old"), [22]);
}

#[test]
fn retention_needs_a_limit_and_respects_groups() {
    let store = open(Arc::new(SimDisk::new()));
    let hold = |r: &mut Retention| {
        r.hold_for_groups = ["a", "b"]
            .map(|name| GroupName::new(name).unwrap())
            .to_vec();
    };
    create_with(&store, "t", &with(hold));
    let round = |from: u64| {
        fill(&store, "t", from, from + 10);
        store.retain(None).unwrap()
    };
    round(0);
    group(&store, "t", "a", 100);
    assert_eq!(
        store.retain(None).unwrap().segments,
        0,
        "a group alone removes nothing"
    );
    alter(
        &store,
        "t",
        &with(|r| {
            hold(r);
            r.records = Some(0);
        }),
    );
    // Group b does not exist yet, so it has passed no record.
    assert_eq!(store.retain(None).unwrap().segments, 0);
    group(&store, "t", "b", 0);
    assert_eq!(store.retain(None).unwrap().segments, 0);
    move_to(&store, "t", "b", 12);
    assert_eq!(
        store.retain(None).unwrap().segments,
        0,
        "the cursor of group a is 11"
    );
    move_to(&store, "t", "a", 12);
    assert_eq!(store.retain(None).unwrap().segments, 1, "1 to 12 at once");
    assert_eq!(store.removed("t").0, 12);
    // Work queue: records that both groups have passed are removed automatically.
    for from in [20, 30, 40] {
        round(from);
        let last = store.topic("t").unwrap().last.0;
        move_to(&store, "t", "a", last);
        move_to(&store, "t", "b", last - 5);
        assert_eq!(store.retain(None).unwrap().segments, 0);
        move_to(&store, "t", "b", last);
        assert_eq!(store.retain(None).unwrap().segments, 1);
        assert_eq!(offsets(&store, "t"), []);
    }
}

#[test]
fn a_reader_before_the_first_record_fails_or_continues_at_it() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create_with(&store, "t", &with(|r| r.records = Some(20)));
    let mut slow = store.read("t", ConsequenceOffset(5)).unwrap();
    let mut first = store.read("t", ConsequenceOffset::ZERO).unwrap();
    let mut earliest = store.read("t", ConsequenceOffset(5)).unwrap().or_earliest();
    for round in 0..5 {
        fill(&store, "t", round * 10, round * 10 + 10);
        store.retain(None).unwrap();
    }
    let check = |error: StoreError| match error {
        StoreError::RecordsGone { first, last } => assert_eq!((first, last), (32, 51)),
        other => panic!("{other}"),
    };
    check(slow.next_page().unwrap_err());
    check(slow.next_page().unwrap_err());
    slow.seek(ConsequenceOffset(31));
    let seen =
        |records: Vec<crate::world::Rec>| records.iter().map(|r| r.offset).collect::<Vec<_>>();
    let all: Vec<u64> = (32..=51).collect();
    assert_eq!(seen(drain(&mut slow).unwrap()), all);
    assert_eq!(seen(drain(&mut first).unwrap()), all);
    assert_eq!(seen(drain(&mut earliest).unwrap()), all);
    let mut ended = store.read("t", ConsequenceOffset::ZERO).unwrap();
    ended.seek_last(5);
    assert_eq!(seen(drain(&mut ended).unwrap()), [47, 48, 49, 50, 51]);
    ended.seek_last(1000);
    assert_eq!(seen(drain(&mut ended).unwrap()), all);
    ended.seek_time(0).unwrap();
    assert_eq!(seen(drain(&mut ended).unwrap()), all);
    // A key whose record was removed still exists, but its value cannot be read.
    let key = |name: &[u8]| store.get("t", name);
    assert!(key(b"key-0").unwrap().is_some());
    let solo = execute(&store, &[put("t", b"solo", b"x")])[0].first;
    for round in 5..10 {
        fill(&store, "t", round * 10, round * 10 + 10);
        store.retain(None).unwrap();
    }
    match key(b"solo").unwrap_err() {
        StoreError::RecordsGone { first, .. } => assert!(first > solo.0),
        other => panic!("{other}"),
    }
    let keys = store.scan("t", b"", None, 100).unwrap();
    assert_eq!(keys.len(), 11);
    let found = keys
        .iter()
        .filter(|k| store.value("t", k).unwrap().is_some());
    assert_eq!(found.count(), 10);
    let mut current = store.current("t", b"");
    let values = std::iter::from_fn(|| current.next(&store).unwrap());
    assert_eq!(values.count(), 10);
    store.close().unwrap();
    let store = open(Arc::new(disk));
    let mut late = store.read("t", ConsequenceOffset(5)).unwrap();
    assert!(
        matches!(late.next_page(), Err(StoreError::RecordsGone { .. })),
        "also after an open"
    );
}

#[test]
fn a_listener_gets_ascending_offsets_while_retention_runs() {
    let store = Arc::new(open(Arc::new(SimDisk::new())));
    create_with(&store, "t", &with(|r| r.records = Some(50)));
    let done = Arc::new(Mutex::new(false));
    let (reading, is_done) = (Arc::clone(&store), Arc::clone(&done));
    let listener = std::thread::spawn(move || {
        let mut reader = reading.listen("t", ConsequenceOffset::ZERO).or_earliest();
        let (mut last, mut seen) = (0, 0);
        while last < 1_001 {
            let ended = *is_done.lock().unwrap();
            for record in drain(&mut reader).unwrap() {
                assert!(record.offset > last, "ascending");
                (last, seen) = (record.offset, seen + 1);
            }
            assert!(!ended || last == 1_001, "the last record is read");
        }
        seen
    });
    for round in 0..100 {
        fill(&store, "t", round * 10, round * 10 + 10);
        store.retain(None).unwrap();
    }
    *done.lock().unwrap() = true;
    assert!(listener.join().unwrap() >= 50);
}

#[test]
fn compaction_and_retention_keep_records_that_a_group_has_not_passed() {
    let store = open(Arc::new(SimDisk::new()));
    let mut options = latest();
    options.retention.hold_for_groups = vec![GroupName::new("g").unwrap()];
    create_with(&store, "t", &options);
    fill(&store, "t", 0, 40);
    group(&store, "t", "g", 21);
    store.compact_topic("t").unwrap();
    let kept = offsets(&store, "t");
    let held: Vec<u64> = (22..=41).collect();
    assert!(kept.ends_with(&held), "{kept:?}");
    assert_eq!(
        kept.len(),
        21,
        "of the earlier records, only the CREATE stays"
    );
    move_to(&store, "t", "g", 41);
    store.compact_topic("t").unwrap();
    assert_eq!(offsets(&store, "t").len(), 11, "the CREATE and ten keys");
    let gap = store.read("t", ConsequenceOffset(5)).unwrap().next_page();
    assert!(gap.is_ok(), "a gap of a compaction is no error");
    options.retention.records = Some(2);
    alter(&store, "t", &options);
    move_to(&store, "t", "g", 42);
    store.retain(None).unwrap();
    let left = offsets(&store, "t");
    assert_eq!(
        left.len(),
        12,
        "two records must stay, and the newest segment has one"
    );
    fill(&store, "t", 0, 1);
    store.retain(None).unwrap();
    assert_eq!(offsets(&store, "t"), [42, 43]);
}

/// A topic as `latest` returns it: keys with their values, then new records.
fn view(store: &Store, topic: &str) -> Vec<(Vec<u8>, u64)> {
    let mut latest = store.latest(topic);
    let mut found = Vec::new();
    while let Some(page) = latest.next(store).unwrap() {
        let record = page.iter().next().unwrap().unwrap();
        found.push((record.key.to_vec(), record.offset.0));
    }
    assert_eq!(drain(&mut latest.live(store)).unwrap(), []);
    found
}

#[test]
fn a_compaction_does_not_change_the_latest_values() {
    let store = open(Arc::new(SimDisk::new()));
    create_with(&store, "t", &latest());
    fill(&store, "t", 0, 95);
    execute(&store, &[put("t", b"", b"no key")]);
    execute(
        &store,
        &[Intention::new("t", Operation::Delete { key: b"key-3" })],
    );
    let before = view(&store, "t");
    assert_eq!(before.len(), 9, "each existing key once");
    assert!(before.is_sorted(), "in order of keys");
    store.compact_topic("t").unwrap();
    assert_eq!(view(&store, "t"), before);
    assert_eq!(view(&store, "nothing"), []);
    // A key that changes during the read is returned once, with the new records.
    let mut latest = store.latest("t");
    let first = latest.next(&store).unwrap().unwrap();
    assert_eq!(first.iter().next().unwrap().unwrap().key, b"key-0");
    execute(
        &store,
        &[put("t", b"key-1", b"new"), put("t", b"key-0", b"new")],
    );
    let mut rest = Vec::new();
    while let Some(page) = latest.next(&store).unwrap() {
        let record = page.iter().next().unwrap().unwrap();
        assert!(record.offset <= latest.until(), "no new record");
        rest.push(record.key.to_vec());
    }
    assert!(rest.is_sorted() && rest.len() <= 8, "each once");
    let live = drain(&mut latest.live(&store)).unwrap();
    let keys: Vec<&[u8]> = live.iter().map(|record| &record.key[..]).collect();
    assert_eq!(keys, [&b"key-1"[..], b"key-0"]);
}

#[test]
fn a_power_cut_at_any_moment_of_a_retention_loses_nothing() {
    let script = |disk: Arc<dyn Disk>, options: &OpenOptions, before: &dyn Fn(u64)| {
        let store = Store::open_disk(disk, options).unwrap();
        create_with(&store, "t", &with(|r| r.records = Some(12)));
        create_with(&store, "u", &TopicOptions::default());
        for round in 0..4 {
            fill(&store, "t", round * 6, round * 6 + 6);
            fill(&store, "u", round, round + 1);
            before(store.removed("t").0);
            store.retain(None).unwrap();
            if round == 2 {
                store.compact_log().unwrap();
            }
        }
        store.close().unwrap();
    };
    let expected = {
        let store = open(Arc::new(SimDisk::new()));
        create_with(&store, "t", &TopicOptions::default());
        create_with(&store, "u", &TopicOptions::default());
        for round in 0..4 {
            fill(&store, "t", round * 6, round * 6 + 6);
            fill(&store, "u", round, round + 1);
        }
        records(&store, "t")
    };
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let images = Arc::new(Mutex::new(Vec::new()));
    let (captured, image_of) = (Arc::clone(&images), disk);
    let least = Arc::new(Mutex::new(0));
    let current = Arc::clone(&least);
    let mut number = 0;
    gate.observe(move |op, path| {
        if !op.changes() {
            return;
        }
        number += 1;
        let what = format!("operation {number} ({op:?} {path})");
        let least = *current.lock().unwrap();
        let mut images = captured.lock().unwrap();
        images.push((image_of.killed(), least, what.clone()));
        images.push((image_of.power_cut(number * 7919), least, what));
    });
    script(gate.disk(), &options(), &|removed| {
        *least.lock().unwrap() = removed;
    });
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 100, "{} images", images.len());
    let mut removed_at_last = 0;
    for (image, least, what) in images {
        if image.content("weir.id").is_none() {
            continue;
        }
        let disk: Arc<dyn Disk> = Arc::new(image.clone());
        let report = weir_store::verify_disk(&disk).unwrap();
        assert!(report.is_sound(), "{what}: {:?}", report.findings);
        let store = Store::open_disk(disk, &options()).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(store.report().set_aside.is_empty(), "{what}");
        let Some(info) = store.topic("t") else {
            continue;
        };
        let removed = store.removed("t").0;
        assert!(removed >= least, "{what}: removed records are back");
        let found = records(&store, "t");
        // All acknowledged records exist, except those that retention removed.
        let wanted: Vec<_> = expected
            .iter()
            .filter(|record| record.offset > removed && record.offset <= info.last.0)
            .map(|record| (record.offset, record.value.clone()))
            .collect();
        let found: Vec<_> = found.iter().map(|r| (r.offset, r.value.clone())).collect();
        // The options of a CREATE are omitted from both sides.
        assert_eq!(found, wanted, "{what}");
        assert!(
            info.last.0 - removed.min(info.last.0) <= 12 || removed < 18,
            "{what}"
        );
        removed_at_last = removed_at_last.max(removed);
        store.retain(None).unwrap();
        store.close().unwrap();
    }
    assert_eq!(removed_at_last, 13, "12 of 25 records stay");
}
