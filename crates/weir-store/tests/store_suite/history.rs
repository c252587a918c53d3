//! Replays intentions: the verdicts equal those of the first execution, from every state
//! that is old enough, and the store is not changed.

use std::collections::BTreeMap;
use std::path::Path;

use weir_core::intention::{Expect, Intention, Operation};
use weir_core::{Commit, ConsequenceOffset, IntentionOffset, TopicOptions};
use weir_store::{Agreement, History, OwnedRecord, Store, StoreError};

use crate::world::{CLIENT, create, execute, options, put};

/// Returns every file below a directory with its bytes.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.insert(path.display().to_string(), std::fs::read(path).unwrap());
        }
    }
    all
}

/// Fills a store with 40 writes, some of which conflict, and returns their commits.
fn filled(store: &Store) -> Vec<Commit> {
    let options = &TopicOptions::default();
    let create = |topic| Intention::new(topic, Operation::Create { options });
    let mut commits = execute(store, &[create("t"), create("other")]);
    for n in 0..38_u64 {
        let key = format!("key-{}", n % 5);
        let mut one = put("t", key.as_bytes(), &[7; 3000]).under(CLIENT, n + 1);
        let absent = [Expect::KeyAbsent(None)];
        if n % 3 == 0 {
            one = one.expecting(&absent);
        }
        commits.extend(execute(store, &[one]));
    }
    commits
}

fn replay(history: &History, from: u64, to: u64) -> Vec<(Commit, Vec<OwnedRecord>, Agreement)> {
    let mut all = Vec::new();
    let range = IntentionOffset(from)..=IntentionOffset(to);
    history
        .replay(range, &mut |replayed| {
            let agreement = history.compare(&replayed).unwrap();
            all.push((
                replayed.commit.clone(),
                replayed.records.to_vec(),
                agreement,
            ));
        })
        .unwrap();
    all
}

#[test]
fn a_replay_returns_the_acknowledged_commits_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &options()).unwrap();
    let commits = filled(&store);
    assert!(
        commits.iter().any(|commit| commit.records == 0),
        "a conflict"
    );
    // The store is still open, and its log is complete.
    let history = History::open(dir.path(), None).unwrap();
    let again = replay(&history, 1, 40);
    let verdicts: Vec<Commit> = again.iter().map(|(commit, ..)| commit.clone()).collect();
    assert_eq!(verdicts, commits);
    store.checkpoint().unwrap();
    execute(&store, &[put("t", b"late", b"1"), put("t", b"later", b"2")]);
    store.close().unwrap();

    let before = files(dir.path());
    let history = History::open(dir.path(), None).unwrap();
    let again = replay(&history, 17, 23);
    assert_eq!(again.len(), 7);
    for ((commit, records, agreement), expected) in again.iter().zip(&commits[16..]) {
        assert_eq!(commit, expected);
        assert_eq!(records.len(), commit.records as usize);
        assert_eq!(*agreement, Agreement::Equal, "{commit:?}");
    }
    // From the snapshot to the end of the log.
    let newest = replay(&history, 42, u64::MAX);
    assert_eq!(newest.len(), 1);
    assert_eq!(newest[0].1[0].key, b"later");
    assert_eq!(newest[0].2, Agreement::Unknown, "only the log contains it");
    let intention_of = |offset| {
        history
            .intention_of("t", ConsequenceOffset(offset))
            .unwrap()
    };
    let record = &again[1].1;
    let record = record.first().unwrap_or(&again[0].1[0]);
    assert_eq!(intention_of(record.offset.0), Some(record.intention));
    assert_eq!(intention_of(1), Some(IntentionOffset(1)));
    assert_eq!(intention_of(1000), None);
    assert_eq!(before, files(dir.path()), "a file was changed");
}

#[test]
fn a_record_that_differs_from_the_log_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &options()).unwrap();
    create(&store, "t");
    execute(&store, &[put("t", b"k", b"right"), put("t", b"k", b"2")]);
    store.checkpoint().unwrap();
    store.close().unwrap();
    let history = History::open(dir.path(), None).unwrap();
    let mut seen = Vec::new();
    let range = IntentionOffset(2)..=IntentionOffset(2);
    let compare = &mut |replayed: weir_store::Replayed<'_>| {
        let mut records = replayed.records.to_vec();
        seen.push(history.compare(&replayed).unwrap());
        records[0].value = b"wrong".to_vec();
        let other = weir_store::Replayed {
            records: &records,
            ..replayed
        };
        seen.push(history.compare(&other).unwrap());
    };
    history.replay(range, compare).unwrap();
    assert_eq!(seen, [Agreement::Equal, Agreement::Differs]);
}

#[test]
fn a_replay_of_a_purged_part_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &options()).unwrap();
    filled(&store);
    store.compact_log().unwrap();
    let destroy = Intention::new("other", Operation::Destroy);
    execute(&store, &[destroy]);
    store.close().unwrap();
    let history = History::open(dir.path(), None).unwrap();
    let range = IntentionOffset(7)..=IntentionOffset(7);
    let refused = history.replay(range, &mut |_| panic!("nothing may be replayed"));
    let Err(StoreError::Gone { intention, first }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((intention.0, first.0), (7, 41));
    assert_eq!(replay(&history, 41, 41).len(), 1);
    assert!(History::open(&dir.path().join("none"), None).is_err());
    assert!(!dir.path().join("none").exists());
}
