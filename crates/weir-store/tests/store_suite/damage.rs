//! Damaged bytes: flipped, cut off, missing, swapped, or from an earlier time. A read never
//! returns wrong content: a file is derived again with equal content, or the damage is
//! reported with the name of a file (I7).

use std::sync::Arc;

use weir_core::intention::{Intention, Operation};
use weir_core::{ClientId, ConsequenceOffset, Digest, TopicOptions};
use weir_store::disk::{Disk, SimDisk};
use weir_store::log::{Log, LogOptions};
use weir_store::{Store, StoreError, verify_disk};

use crate::world::{
    CLIENT, SplitMix, create, create_with, drain, execute, keys, latest, open, options, outcomes,
    put, records, state,
};

type State = std::collections::BTreeMap<String, crate::world::TopicState>;

/// A closed store with several topics, sessions, two snapshots, and a log after the newest
/// snapshot.
struct Sample {
    disk: SimDisk,
    state: State,
    digest: Digest,
    /// The disk at an earlier time.
    earlier: SimDisk,
}

fn sample(purged: bool) -> Sample {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "a");
    create_with(&store, "b", &latest());
    let fill = |from: u64, to: u64| {
        let client = ClientId([1; 16]);
        let sent: Vec<_> = (from..to)
            .map(|n| {
                let value = vec![n as u8; 40 + (n as usize * 37) % 300];
                let (key, number) = ((n % 30).to_be_bytes(), n.to_be_bytes());
                let call = [
                    put("a", &key, &value).under(client, n * 2 + 1),
                    put("b", b"only", &number).under(client, n * 2 + 2),
                ];
                store.propose(&call).unwrap()
            })
            .collect();
        for proposal in sent {
            proposal.wait().unwrap();
        }
    };
    fill(0, 60);
    store.checkpoint().unwrap();
    fill(60, 140);
    let earlier = disk.killed();
    if purged {
        store.compact_log().unwrap();
    } else {
        store.checkpoint().unwrap();
    }
    fill(140, 160);
    let (state, digest) = (state(&store), store.digest());
    store.close().unwrap();
    Sample {
        disk,
        state,
        digest,
        earlier,
    }
}

/// The result of opening a changed directory.
#[derive(Debug, PartialEq, Eq)]
enum OpenResult {
    /// All content is equal to that before the change.
    Complete,
    /// The open or a read failed; contains the name of the reported file.
    Reported(String),
}

fn file_of(error: &StoreError) -> Option<String> {
    match error {
        StoreError::Damage { file, .. }
        | StoreError::NewerFormat { file, .. }
        | StoreError::UnknownContent { file, .. }
        | StoreError::ForeignStore { file } => Some(file.clone()),
        StoreError::Io { subject, .. } => Some(subject.clone()),
        StoreError::Missing { what } => Some((*what).to_owned()),
        _ => None,
    }
}

/// Opens the disk and reads everything. Panics on wrong content.
fn open_and_read(disk: &SimDisk, sample: &Sample, what: &str) -> OpenResult {
    let mut no_store = options();
    no_store.create = false;
    let store = match Store::open_disk(Arc::new(disk.clone()), &no_store) {
        Ok(store) => store,
        Err(error) => {
            let file = file_of(&error).unwrap_or_else(|| panic!("{what}: {error}"));
            return OpenResult::Reported(file);
        }
    };
    assert_eq!(store.digest(), sample.digest, "{what}: digest");
    for (name, wanted) in &sample.state {
        let read = store
            .read(name, ConsequenceOffset::ZERO)
            .and_then(|mut reader| drain(&mut reader));
        match read {
            Ok(found) => assert!(found == wanted.records, "{what}: records of {name}"),
            Err(error) => {
                let file = file_of(&error).unwrap_or_else(|| panic!("{what}: {error}"));
                return OpenResult::Reported(file);
            }
        }
    }
    assert!(state(&store) == sample.state, "{what}: state");
    let again = store.outcome(ClientId([1; 16]), 320);
    assert_eq!(
        again.map(|commit| commit.nonce),
        Some(320),
        "{what}: session"
    );
    OpenResult::Complete
}

fn is_snapshot(path: &str) -> bool {
    path.starts_with("snapshots/")
}

fn is_derived(path: &str) -> bool {
    path.starts_with("topics/") || is_snapshot(path)
}

/// `verify` must find every change of a byte, in derived files too.
fn check_verify_reports(disk: &SimDisk, what: &str) {
    let shared: Arc<dyn Disk> = Arc::new(disk.killed());
    if let Ok(report) = weir_store::verify_disk(&shared) {
        assert!(!report.is_clean(), "{what}: verify reports nothing");
    }
}

/// Checks a changed directory against the guarantees of the formats.
fn check_damage(
    disk: &SimDisk,
    sample: &Sample,
    path: &str,
    purged: bool,
    what: &str,
) -> OpenResult {
    let first = open_and_read(disk, sample, what);
    if let OpenResult::Reported(file) = &first
        && is_derived(path)
        && !purged
    {
        // A read found the damage. The next open derives the file again.
        assert!(is_derived(file), "{what}: reported {file}");
        let second = open_and_read(disk, sample, &format!("{what}, opened again"));
        assert_eq!(second, OpenResult::Complete, "{what}: not derived again");
    }
    first
}

/// Returns one path of each kind and age.
fn paths(disk: &SimDisk) -> Vec<String> {
    let mut paths = disk.files();
    paths.retain(|path| !path.starts_with("cut/"));
    paths
}

#[test]
fn a_flipped_bit_anywhere_is_repaired_or_reported() {
    for purged in [false, true] {
        let sample = sample(purged);
        assert_eq!(
            open_and_read(&sample.disk.killed(), &sample, "untouched"),
            OpenResult::Complete
        );
        let mut draw = SplitMix(5);
        for path in paths(&sample.disk) {
            let len = sample.disk.content(&path).unwrap().len();
            let mut reported = 0;
            let tries = 60;
            for n in 0..tries {
                // Flip more often in the first bytes of a file.
                let byte = match n {
                    0..20 => draw.below(128.min(len as u64)),
                    _ => draw.below(len as u64),
                };
                let bit = draw.below(8) as u8;
                let disk = sample.disk.killed();
                disk.flip(&path, byte as usize, bit);
                let what = format!("purged {purged}, {path} byte {byte} bit {bit}");
                check_verify_reports(&disk, &what);
                match check_damage(&disk, &sample, &path, purged, &what) {
                    OpenResult::Complete => {}
                    OpenResult::Reported(file) => {
                        reported += 1;
                        let same = file == path || (is_derived(&path) && is_derived(&file));
                        // A later segment or mark may reveal the damage.
                        let log = path.starts_with("log/") && file.starts_with("log/");
                        assert!(same || log, "{what}: reported {file}");
                    }
                }
            }
            if path == "weir.id" {
                assert_eq!(reported, tries, "{path}");
            }
        }
    }
}

#[test]
fn a_file_cut_short_at_any_length_is_repaired_or_reported() {
    for purged in [false, true] {
        let sample = sample(purged);
        let mut draw = SplitMix(6);
        for path in paths(&sample.disk) {
            let len = sample.disk.content(&path).unwrap().len() as u64;
            let mut lengths = vec![0, 1, len / 2, len - 1, len.saturating_sub(512)];
            lengths.extend((0..12).map(|_| draw.below(len)));
            for to in lengths {
                let disk = sample.disk.killed();
                disk.shorten(&path, to as usize);
                let what = format!("purged {purged}, {path} cut to {to} of {len}");
                check_verify_reports(&disk, &what);
                let found = check_damage(&disk, &sample, &path, purged, &what);
                // The start file has two copies of its content.
                let has_copy = path == "log/start" && to >= 512;
                if !is_derived(&path) && !has_copy {
                    assert_ne!(found, OpenResult::Complete, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_missing_file_is_derived_again_or_refused() {
    for purged in [false, true] {
        let sample = sample(purged);
        let newest = sample.disk.files();
        let newest = newest.iter().rfind(|path| is_snapshot(path)).unwrap();
        for path in paths(&sample.disk) {
            let disk = sample.disk.killed();
            disk.take(&path);
            let what = format!("purged {purged}, without {path}");
            let found = check_damage(&disk, &sample, &path, purged, &what);
            let needed = !is_derived(&path) || (purged && (!is_snapshot(&path) || path == *newest));
            assert_eq!(found != OpenResult::Complete, needed, "{what}: {found:?}");
        }
    }
}

#[test]
fn swapped_and_outdated_files_are_detected() {
    for purged in [false, true] {
        let sample = sample(purged);
        let all = paths(&sample.disk);
        for (at, path) in all.iter().enumerate() {
            for other in &all[at + 1..] {
                let kind = |path: &str| path.split('/').next().unwrap().to_owned();
                if kind(path) != kind(other) {
                    continue;
                }
                let disk = sample.disk.killed();
                let (own, theirs) = (disk.take(path).unwrap(), disk.take(other).unwrap());
                disk.put(path, theirs);
                disk.put(other, own);
                let what = format!("purged {purged}, {path} and {other} swapped");
                check_damage(&disk, &sample, path, purged, &what);
            }
            if let Some(old) = sample.earlier.content(path)
                && !path.starts_with("log/")
            {
                let disk = sample.disk.killed();
                disk.take(path);
                disk.put(path, old);
                let what = format!("purged {purged}, {path} of an earlier time");
                check_damage(&disk, &sample, path, purged, &what);
            }
        }
    }
}

#[test]
fn derived_files_can_be_deleted_while_the_log_is_complete() {
    let sample = sample(false);
    for kinds in [
        &["topics/"][..],
        &["snapshots/"],
        &["topics/", "snapshots/"],
    ] {
        let disk = sample.disk.killed();
        for path in disk.files() {
            if kinds.iter().any(|kind| path.starts_with(kind)) {
                disk.take(&path);
            }
        }
        let what = format!("without {kinds:?}");
        assert_eq!(open_and_read(&disk, &sample, &what), OpenResult::Complete);
        // The derived files are equal to the original ones.
        let store = open(Arc::new(disk.clone()));
        store.compact_log().unwrap();
        drop(store);
        assert_eq!(
            open_and_read(&disk, &sample, "compacted"),
            OpenResult::Complete
        );
    }
}

#[test]
fn damage_in_a_topic_is_reported_with_its_file_and_repaired_from_the_log() {
    let sample = sample(false);
    let disk = sample.disk.killed();
    let files = disk.files();
    let segment = files
        .iter()
        .find(|path| path.starts_with("topics/00000000/"))
        .unwrap();
    // Far after the header of the first block, where only a reader finds the damage.
    disk.flip(segment, 3_000, 3);
    let store = open(Arc::new(disk.clone()));
    let mut reader = store.read("a", ConsequenceOffset::ZERO).unwrap();
    let error = drain(&mut reader).unwrap_err();
    let StoreError::Damage { file, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(file, segment);
    assert_eq!(
        records(&store, "b"),
        sample.state["b"].records,
        "the other topic is readable"
    );
    execute(&store, &[put("a", b"still", b"writes")]);
    drop(store);
    let store = open(Arc::new(disk.clone()));
    let found = records(&store, "a");
    assert_eq!(found[..found.len() - 1], sample.state["a"].records);
    assert!(store.report().snapshot.is_none(), "derived from the log");
    drop(store);
    let store = open(Arc::new(disk));
    assert_eq!(records(&store, "a").len(), found.len());
}

#[test]
fn a_purge_never_removes_the_last_good_copy() {
    let sample = sample(false);
    let disk = sample.disk.killed();
    let files = disk.files();
    let segment = files
        .iter()
        .find(|path| path.starts_with("topics/00000000/"))
        .unwrap();
    disk.flip(segment, 3_000, 3);
    let store = open(Arc::new(disk.clone()));
    let refused = store.compact_log().unwrap_err();
    assert!(
        matches!(&refused, StoreError::Damage { file, .. } if file == segment),
        "{refused}"
    );
    let target = tempfile::tempdir().unwrap();
    let copy = target.path().join("copy");
    assert!(
        store.backup(&copy).is_err(),
        "a backup does not copy damage"
    );
    assert!(!copy.exists());
    drop(store);
    assert_eq!(
        open_and_read(&disk, &sample, "reopened"),
        OpenResult::Complete
    );
}

#[test]
fn a_damaged_newest_snapshot_falls_back_or_is_refused() {
    let sample = sample(false);
    let disk = sample.disk.killed();
    let files = disk.files();
    let snapshots: Vec<&String> = files.iter().filter(|path| is_snapshot(path)).collect();
    let (older, newest) = (snapshots[0], snapshots[1]);
    disk.flip(newest, 700, 0);
    let store = open(Arc::new(disk.clone()));
    let report = store.report();
    assert_eq!(report.set_aside.len(), 1);
    assert_eq!(report.set_aside[0].0, *newest);
    let used = report.snapshot.unwrap();
    assert!(older.contains(&format!("{:020}", used.0)));
    assert_eq!(state(&store), sample.state);
    assert_eq!(store.digest(), sample.digest);
    store.close().unwrap();
    assert!(
        !disk.files().contains(newest),
        "the damaged snapshot is removed"
    );
    assert_eq!(open_and_read(&disk, &sample, "again"), OpenResult::Complete);
    // With both snapshots damaged, the open replays the whole log.
    let disk = sample.disk.killed();
    disk.flip(newest, 700, 0);
    disk.flip(older, 700, 0);
    let store = open(Arc::new(disk));
    assert_eq!(store.report().set_aside.len(), 2);
    assert!(store.report().snapshot.is_none());
    assert_eq!(state(&store), sample.state);
    // If the log was purged, the state cannot be rebuilt.
    let sample = self::sample(true);
    let disk = sample.disk.killed();
    let files = disk.files();
    let newest = files.iter().rfind(|path| is_snapshot(path)).unwrap();
    disk.flip(newest, 700, 0);
    let before: Vec<_> = files.iter().map(|path| disk.content(path)).collect();
    let refused = Store::open_disk(Arc::new(disk.clone()), &options()).unwrap_err();
    assert!(
        matches!(&refused, StoreError::Damage { file, .. } if file == newest),
        "{refused}"
    );
    let after: Vec<_> = files.iter().map(|path| disk.content(path)).collect();
    let derived_or_same = files
        .iter()
        .zip(before.iter().zip(&after))
        .all(|(path, (before, after))| before == after || path.starts_with("log/"));
    assert!(
        derived_or_same,
        "a refused open changes no topic and no snapshot"
    );
}

#[test]
fn a_session_survives_every_way_of_opening() {
    let disk = SimDisk::new();
    let store = open(Arc::new(disk.clone()));
    create(&store, "t");
    let first = execute(&store, &[put("t", b"k", b"v").under(CLIENT, 1)])[0].clone();
    let sent_again = |store: &Store| {
        let outcome = outcomes(store, &[put("t", b"k", b"v").under(CLIENT, 1)])[0].clone();
        assert_eq!(outcome, weir_core::Outcome::Replayed(first.clone()));
        assert_eq!(records(store, "t").len(), 2);
        assert_eq!(keys(store, "t").len(), 1);
    };
    sent_again(&store);
    store.compact_log().unwrap();
    sent_again(&store);
    drop(store);
    let store = open(Arc::new(disk.clone()));
    sent_again(&store);
    let target = tempfile::tempdir().unwrap();
    let copy = target.path().join("copy");
    store.backup(&copy).unwrap();
    sent_again(&Store::open(&copy, &options()).unwrap());
    drop(store);
    sent_again(&open(Arc::new(disk.power_cut(1))));
}

/// Changes bytes of a header and updates its checksum.
fn forge(disk: &SimDisk, path: &str, header: usize, change: impl FnOnce(&mut [u8])) {
    let mut bytes = disk.take(path).unwrap();
    change(&mut bytes);
    let crc = crc_fast::crc32_iscsi(&bytes[..header - 4]);
    bytes[header - 4..header].copy_from_slice(&crc.to_le_bytes());
    disk.put(path, bytes);
}

#[test]
fn files_of_a_later_format_are_refused_and_not_changed() {
    let sample = sample(false);
    let files = sample.disk.files();
    let newest = |kind: &str| files.iter().rfind(|path| path.starts_with(kind)).unwrap();
    let segment = newest("topics/00000000/");
    for (path, header, format, reserved) in [
        ("weir.id", 512, 8, 100),
        (newest("snapshots/").as_str(), 512, 8, 200),
        (segment.as_str(), 88, 4, 6),
    ] {
        for (at, value) in [(format, 2), (reserved, 1)] {
            let disk = sample.disk.killed();
            forge(&disk, path, header, |bytes| bytes[at] = value);
            let before: Vec<_> = files.iter().map(|path| disk.content(path)).collect();
            let refused = Store::open_disk(Arc::new(disk.clone()), &options()).unwrap_err();
            let newer = match &refused {
                StoreError::NewerFormat { file, .. } | StoreError::UnknownContent { file, .. } => {
                    file == path
                }
                _ => false,
            };
            assert!(newer, "{path} byte {at}: {refused}");
            for (path, before) in files.iter().zip(before) {
                let same = disk.content(path) == before;
                assert!(same || path.starts_with("log/"), "{path} was changed");
            }
        }
    }
}

#[test]
fn unknown_files_are_not_changed() {
    let sample = sample(false);
    let disk = sample.disk.killed();
    let unknown = [
        "topics/.DS_Store",
        "topics/0/0000000001.seg",
        "topics/zz/0000000001.seg",
        "topics/00000000/1.seg",
        "topics/00000000/notes.txt",
        "snapshots/5.snap",
        "snapshots/999999999.snap",
        "snapshots/+0000000000000000005.snap",
        "notes.txt",
    ];
    for path in unknown {
        disk.put(path, b"mine".to_vec());
    }
    disk.put("snapshots/00000000000000000001.snap.new", b"half".to_vec());
    assert_eq!(
        open_and_read(&disk, &sample, "with unknown files"),
        OpenResult::Complete
    );
    for path in unknown {
        assert_eq!(disk.content(path).as_deref(), Some(&b"mine"[..]), "{path}");
    }
    let left = disk.content("snapshots/00000000000000000001.snap.new");
    assert!(
        left.is_none(),
        "an unfinished snapshot of the store is removed"
    );
    // The files do not impede later work.
    let store = open(Arc::new(disk.clone()));
    for n in 0..4_u32 {
        execute(&store, &[put("a", b"new", &n.to_be_bytes())]);
        store.checkpoint().unwrap();
    }
    store.compact_topic("b").unwrap();
    store.compact_log().unwrap();
    for path in unknown {
        assert_eq!(disk.content(path).as_deref(), Some(&b"mine"[..]), "{path}");
    }
}

#[test]
fn an_open_of_a_missing_store_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut existing = options();
    existing.create = false;
    let missing = Store::open(dir.path(), &existing).unwrap_err();
    assert!(matches!(missing, StoreError::Missing { .. }), "{missing}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let nowhere = dir.path().join("nowhere");
    assert!(Store::open(&nowhere, &existing).is_err());
    assert!(!nowhere.exists());
}

#[test]
fn a_directory_without_its_identity_is_not_treated_as_empty() {
    let sample = sample(false);
    let disk = sample.disk.killed();
    disk.take("weir.id");
    let refused = Store::open_disk(Arc::new(disk.clone()), &options()).unwrap_err();
    assert!(refused.is_damage(), "{refused}");
    for path in sample.disk.files().iter().filter(|path| *path != "weir.id") {
        assert_eq!(disk.content(path), sample.disk.content(path), "{path}");
    }
    let nothing = SimDisk::new();
    let mut existing = options();
    existing.create = false;
    let missing = Store::open_disk(Arc::new(nothing.clone()), &existing).unwrap_err();
    assert!(matches!(missing, StoreError::Missing { .. }));
    assert!(nothing.files().is_empty());
}

#[test]
fn files_of_a_diverged_copy_of_the_store_are_detected() {
    let root = SimDisk::new();
    open(Arc::new(root.clone())).close().unwrap();
    // Equal identity, names and lengths, with different records.
    let copy = |value: u8, purged: bool| {
        let disk = root.killed();
        let store = open(Arc::new(disk.clone()));
        let (plain, value) = (TopicOptions::default(), [value; 300]);
        let operation = Operation::Create { options: &plain };
        // One call, so that all records have one stamp.
        let mut call = vec![Intention::new("t", operation)];
        call.extend((0..100).map(|_| put("t", b"k", &value)));
        execute(&store, &call);
        if purged {
            store.compact_log().unwrap();
        } else {
            store.checkpoint().unwrap();
        }
        store.close().unwrap();
        disk
    };
    for purged in [false, true] {
        let (ours, other) = (copy(1, purged), copy(2, purged));
        let segment = "topics/00000000/0000000001.seg";
        let (own, theirs) = (ours.take(segment).unwrap(), other.content(segment).unwrap());
        assert!(own.len() == theirs.len() && own != theirs);
        ours.put(segment, theirs);
        match Store::open_disk(Arc::new(ours.clone()), &options()) {
            Err(error) => {
                assert!(purged, "{error}");
                assert!(matches!(&error, StoreError::Damage { file, .. } if file == segment));
            }
            Ok(store) => {
                assert!(!purged, "the log cannot restore it");
                let found = records(&store, "t");
                assert!(found.iter().skip(1).all(|record| record.value == [1; 300]));
            }
        }
    }
}

/// An empty entry is not a batch, because later versions write the kind of each
/// entry.
#[test]
fn an_empty_payload_in_the_log_is_an_entry_that_cannot_be_applied() {
    let appended = |payload: &[u8]| {
        let disk = SimDisk::new();
        let store = open(Arc::new(disk.clone()));
        create(&store, "t");
        let store_id = store.identity().store_id;
        store.close().unwrap();
        let on = || Arc::new(disk.clone()) as Arc<dyn Disk>;
        let (mut log, _) = Log::open(on(), store_id, LogOptions::default()).unwrap();
        let index = log.append(1, 0, &[payload]).unwrap();
        log.close().unwrap();
        let report = verify_disk(&on()).unwrap();
        assert!(!report.is_sound(), "{:?}", report.findings);
        (index, Store::open_disk(on(), &options()).unwrap_err())
    };
    let (appended_at, error) = appended(b"");
    assert!(
        matches!(error, StoreError::Apply { index, .. } if index == appended_at),
        "{error}"
    );
    let (_, error) = appended(&[200; 64]);
    assert!(
        matches!(error, StoreError::NewerFormat { found: 200, .. }),
        "{error}"
    );
}
