//! Stores opened for reading only: a directory without write permission, a copy, and a
//! directory that another process writes to.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_core::ConsequenceOffset;
use weir_core::intention::{Intention, Operation};
use weir_store::disk::SimDisk;
use weir_store::{Durability, History, OnLocked, OpenOptions, Severity, Store, StoreError, verify};

use crate::disks::{Gate, Op, PATIENCE};
use crate::world::{
    CLIENT, create, create_with, execute, keys, latest, open, options, put, put_many, records,
    state,
};

/// Environment variable with the directory that the child reads.
const DIRECTORY: &str = "WEIR_TEST_READ_ONLY_DIRECTORY";
/// Id of a user without rights on the files of other users.
const NOBODY: u32 = 65_534;

fn reading() -> OpenOptions {
    OpenOptions {
        program: "reader".to_owned(),
        seed: Some(9),
        ..OpenOptions::read_only()
    }
}

/// Writes a history with all cases of an open: records in segments of a snapshot, records
/// only in the log, a compacted topic, a purged log.
fn fill(store: &Store) {
    create(store, "plain");
    create_with(store, "latest", &latest());
    create(store, "later");
    let key = |n: u32| format!("key {}", n % 50);
    put_many(store, "plain", (0..600).map(|n| (key(n), vec![b'a'; 300])));
    put_many(store, "latest", (0..600).map(|n| (key(n), vec![b'b'; 100])));
    store.checkpoint().unwrap();
    store.compact_topic("latest").unwrap();
    store.compact_log().unwrap();
    // Enough for several writes of the replay, and a block that stays open.
    put_many(
        store,
        "plain",
        (0..2_000).map(|n| (key(n), vec![b'c'; 400])),
    );
    put_many(store, "later", (0..10).map(|n| (key(n), b"new")));
    execute(store, &[put("plain", b"own", b"1").under(CLIENT, 1)]);
}

/// Returns every path below a directory, with its metadata and bytes.
fn tree(directory: &Path) -> BTreeMap<PathBuf, (u64, i64, i64, u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let data = path.symlink_metadata().unwrap();
            let content = if data.is_dir() {
                directories.push(path.clone());
                Vec::new()
            } else {
                std::fs::read(&path).unwrap()
            };
            let seen = (
                data.len(),
                data.mtime(),
                data.mtime_nsec(),
                data.mode(),
                content,
            );
            found.insert(path, seen);
        }
    }
    found
}

fn check_writes_are_refused(store: &Store) {
    let outcome = store.propose(&[put("plain", b"k", b"v")]).map(drop);
    assert!(matches!(outcome, Err(StoreError::ReadOnly)), "{outcome:?}");
    let creation = store.propose(&[Intention::new(
        "new",
        Operation::Create {
            options: &weir_core::TopicOptions::default(),
        },
    )]);
    assert!(matches!(creation, Err(StoreError::ReadOnly)));
    for refused in [
        store.sync().map(drop),
        store.checkpoint().map(drop),
        store.compact_log().map(drop),
        store.compact_topic("latest").map(drop),
        store.retain(None).map(drop),
        store.move_cursor("plain", "g", 1, ConsequenceOffset(1)),
    ] {
        assert!(matches!(refused, Err(StoreError::ReadOnly)), "{refused:?}");
    }
}

#[test]
fn a_read_only_store_has_equal_content_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let writer = Store::open(directory.path(), &options()).unwrap();
    fill(&writer);
    let (expected, digest) = (state(&writer), writer.digest());
    // The writer is still open, so the log has no clean end.
    let reader = Store::open(directory.path(), &reading()).unwrap();
    assert!(reader.is_read_only() && !writer.is_read_only());
    assert!(reader.report().snapshot.is_some() && reader.report().replayed_entries > 0);
    assert_eq!(
        (state(&reader), reader.digest()),
        (expected.clone(), digest)
    );
    assert_eq!(reader.last_nonce(CLIENT), 1);
    check_writes_are_refused(&reader);
    // The reader does not follow the writer.
    execute(&writer, &[put("plain", b"own", b"2")]);
    assert_eq!(state(&reader), expected);
    drop(reader);
    let (expected, digest) = (state(&writer), writer.digest());
    writer.close().unwrap();
    let before = tree(directory.path());
    let reader = Store::open(directory.path(), &reading()).unwrap();
    assert_eq!((state(&reader), reader.digest()), (expected, digest));
    check_writes_are_refused(&reader);
    reader.close().unwrap();
    assert_eq!(tree(directory.path()), before);
    // Without a lock file, the reader does not create one.
    std::fs::remove_file(directory.path().join("LOCK")).unwrap();
    drop(Store::open(directory.path(), &reading()).unwrap());
    assert!(!directory.path().join("LOCK").exists());
}

#[test]
fn nothing_is_created_where_there_is_no_store() {
    let directory = tempfile::tempdir().unwrap();
    let missing = |path: &Path| {
        let error = Store::open(path, &reading()).unwrap_err();
        assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    };
    missing(&directory.path().join("absent"));
    missing(directory.path());
    assert_eq!(tree(directory.path()).len(), 0);
}

#[test]
fn a_torn_end_is_ignored_and_damage_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let writer = Store::open(directory.path(), &options()).unwrap();
    create(&writer, "t");
    put_many(
        &writer,
        "t",
        (0..20_u32).map(|n| (n.to_be_bytes(), [7; 900])),
    );
    let count = records(&writer, "t").len();
    drop(writer);
    // A kill in the middle of a write: the second sector of the last batch is missing.
    let newest = std::fs::read_dir(directory.path().join("log")).unwrap();
    let newest = newest.map(|entry| entry.unwrap().path());
    let newest = newest.filter(|path| path.extension().is_some_and(|end| end == "log"));
    let newest = newest.max().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    let batches: Vec<usize> = (4096..bytes.len())
        .step_by(512)
        .filter(|at| bytes[*at..].starts_with(b"WBAT") && bytes[at + 6] == 1)
        .collect();
    let last = *batches.last().unwrap();
    let whole = bytes.clone();
    bytes[last + 512..].fill(0);
    std::fs::write(&newest, &bytes).unwrap();
    let reader = Store::open(directory.path(), &reading());
    let reader = reader.expect("a torn end is not damage");
    assert!(records(&reader, "t").len() < count);
    assert_eq!(std::fs::read(&newest).unwrap(), bytes);
    // A flipped bit in an acknowledged entry is damage at each attempt.
    let mut bytes = whole;
    bytes[batches[batches.len() / 2] + 600] ^= 1;
    std::fs::write(&newest, &bytes).unwrap();
    let error = Store::open(directory.path(), &reading()).unwrap_err();
    assert!(error.is_damage(), "{error}");
}

/// Reads the store in the directory that the environment names, in every way, and prints
/// its digest.
#[test]
fn child_reads_the_directory() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let directory = Path::new(&directory);
    let probe = std::fs::write(directory.join("probe"), b"");
    assert!(probe.is_err(), "the directory is not read-only");
    let locked = Store::open(directory, &options()).unwrap_err();
    assert!(matches!(locked, StoreError::Io { .. }), "{locked}");
    let store = Store::open(directory, &reading()).unwrap();
    check_writes_are_refused(&store);
    let report = verify(directory).unwrap();
    let worst = report.findings.iter().map(|finding| finding.severity).max();
    assert!(
        worst.is_none_or(|worst| worst == Severity::Note),
        "{report:?}"
    );
    assert_eq!(report.digest, Some(store.digest()));
    History::open(directory, None).unwrap().first().unwrap();
    let records: usize = state(&store)
        .values()
        .map(|topic| topic.records.len())
        .sum();
    println!("digest {:?} records {records}", store.digest());
}

fn child(mut command: Command, directory: &Path) -> Output {
    command.env(DIRECTORY, directory);
    let until = Instant::now() + PATIENCE;
    loop {
        match command.output() {
            // A process that another test starts inherits the file of the copied program, which is
            // open for writing, and closes it a moment later.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                assert!(Instant::now() < until, "{error}");
                std::thread::yield_now();
            }
            output => return output.unwrap(),
        }
    }
}

const CHILD: [&str; 4] = [
    "--exact",
    "read_only::child_reads_the_directory",
    "--nocapture",
    "--test-threads=1",
];

/// Makes all files below a directory readable for all users, and writable for none.
fn make_readable(directory: &Path) {
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            make_readable(&path);
        } else {
            mode(&path, 0o444);
        }
    }
    mode(directory, 0o555);
}

#[test]
fn a_directory_that_cannot_be_written_can_be_read() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("store");
    let store = Store::open(&directory, &options()).unwrap();
    fill(&store);
    let records: usize = state(&store)
        .values()
        .map(|topic| topic.records.len())
        .sum();
    let expected = format!("digest {:?} records {records}", store.digest());
    store.close().unwrap();
    let check_output = |output: Output, how: &str| {
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{how}: {text}{errors}");
        assert!(text.contains(&expected), "{how}: {text}{errors}");
    };
    let test = std::env::current_exe().unwrap();
    let is_root = root.path().metadata().unwrap().uid() == 0;
    if is_root {
        // Mode bits do not restrict root, so the whole mount is read-only.
        let mut mount = Command::new("unshare");
        mount.args(["--mount", "sh", "-ec"]);
        mount.arg("mount --bind \"$0\" \"$0\"; mount -o remount,bind,ro \"$0\"; exec \"$@\"");
        mount.arg(&directory).arg(&test).args(CHILD);
        let allowed = Command::new("unshare").args(["--mount", "true"]).output();
        if allowed.is_ok_and(|output| output.status.success()) {
            check_output(child(mount, &directory), "a read-only mount");
        } else {
            eprintln!("no mount namespaces here: only the copy of another user is tested");
        }
    }
    // A copy that belongs to another user, or without write permission.
    let before = tree(&directory);
    make_readable(&directory);
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // The other user may be unable to access the directory of the program.
    let copy = root.path().join("test");
    std::fs::copy(&test, &copy).unwrap();
    let mut other = Command::new(&copy);
    other.args(CHILD).current_dir("/");
    if is_root {
        other.uid(NOBODY).gid(NOBODY);
    }
    check_output(child(other, &directory), "a copy");
    let names = |tree: &BTreeMap<PathBuf, _>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&tree(&directory)), names(&before));
    // Restore the permissions, so that the directory can be removed.
    for name in [".", "log", "topics", "snapshots", "cut"] {
        let path = directory.join(name);
        if path.exists() {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

/// Least number of snapshots while readers open the store.
const SNAPSHOTS: u64 = 20;

/// Options of a writer that purges its log as often as possible.
fn purging() -> OpenOptions {
    OpenOptions {
        snapshot_log_bytes: 48 << 10,
        log_keep_bytes: Some(0),
        // Many snapshots in a short time: at `Group`, syncs take most of that time.
        durability: Durability::Interval(Duration::from_millis(20)),
        ..options()
    }
}

/// A writer writes ascending numbers, creates snapshots, purges the log and compacts.
/// Meanwhile the store is opened again and again. Each open returns a prefix of the written
/// numbers that contains all numbers acknowledged before the open.
#[test]
fn a_reader_beside_a_busy_writer_reads_a_prefix() {
    let directory = tempfile::tempdir().unwrap();
    let writer = Store::open(directory.path(), &purging()).unwrap();
    create(&writer, "all");
    create_with(&writer, "latest", &latest());
    let (acknowledged, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let opens = 100 * crate::world::times();
    let (mut changed, mut done) = (0, 0);
    std::thread::scope(|scope| {
        let write = || {
            let mut number = 0_u64;
            while !stop.load(Ordering::Acquire) {
                let next: Vec<Vec<u8>> = (number + 1..=number + 4)
                    .map(|number| [&number.to_be_bytes()[..], &[b'x'; 500]].concat())
                    .collect();
                let call = next.iter().flat_map(|value| {
                    let key = &value[7..8];
                    [put("all", key, value), put("latest", key, value)]
                });
                execute(&writer, &call.collect::<Vec<_>>());
                number += 4;
                acknowledged.store(number, Ordering::Release);
                if number.is_multiple_of(512) {
                    writer.compact_topic("latest").unwrap();
                }
            }
        };
        let thread = scope.spawn(write);
        while done < opens || writer.stats().snapshots < SNAPSHOTS {
            assert!(!thread.is_finished(), "the writer failed");
            let before = acknowledged.load(Ordering::Acquire);
            let store = match Store::open(directory.path(), &reading()) {
                Ok(store) => store,
                Err(StoreError::ChangedWhileRead { .. }) => {
                    changed += 1;
                    continue;
                }
                Err(error) => {
                    stop.store(true, Ordering::Release);
                    panic!("after {done} opens: {error}");
                }
            };
            let numbers: Vec<u64> = records(&store, "all")
                .iter()
                .filter(|record| !record.value.is_empty())
                .map(|record| u64::from_be_bytes(*record.value.first_chunk().unwrap()))
                .collect();
            let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
            if numbers != expected || (numbers.len() as u64) < before {
                stop.store(true, Ordering::Release);
                panic!("{before} were acknowledged, found {numbers:?}");
            }
            // Compaction may remove the files of the reader: then the read fails.
            let reader = store.read("latest", ConsequenceOffset::ZERO).unwrap();
            match crate::world::drain(&mut { reader }) {
                Ok(_) | Err(StoreError::ChangedWhileRead { .. }) => {}
                Err(error) => {
                    stop.store(true, Ordering::Release);
                    panic!("after {done} opens: {error}");
                }
            }
            done += 1;
        }
        stop.store(true, Ordering::Release);
        thread.join().unwrap();
    });
    let stats = writer.stats();
    println!(
        "{done} opens beside {} intentions, {} snapshots, purged to {}; {changed} failed",
        stats.intentions, stats.snapshots, stats.purged_index
    );
    assert!(stats.purged_index > 0, "the log was purged meanwhile");
}

/// The writer replaces all snapshots and purges the log after the reader has listed the
/// files and before it opens them.
#[test]
fn files_that_are_removed_during_an_open_cause_another_attempt() {
    let disk = SimDisk::new();
    let writer = Arc::new(open(Arc::new(disk.clone())));
    create(&writer, "t");
    put_many(
        &writer,
        "t",
        (0..100_u32).map(|n| (n.to_be_bytes(), [1; 300])),
    );
    writer.checkpoint().unwrap();
    let purge = |writer: &Store| {
        // Two snapshots are retained: three new ones replace those that were listed.
        for _ in 0..3 {
            put_many(
                writer,
                "t",
                (0..100_u32).map(|n| (n.to_be_bytes(), [1; 300])),
            );
            writer.compact_log().unwrap();
        }
    };
    let gate = Gate::new(disk.clone());
    let rounds = Arc::new(AtomicU64::new(0));
    let limit = Arc::new(AtomicU64::new(2));
    {
        let (writer, rounds, limit) =
            (Arc::clone(&writer), Arc::clone(&rounds), Arc::clone(&limit));
        // The reader opens `log/start` once in each attempt, after it has listed the
        // snapshots.
        gate.observe(move |op, path| {
            if op == Op::Open && path == "log/start" {
                let round = rounds.fetch_add(1, Ordering::SeqCst);
                if round < limit.load(Ordering::SeqCst) {
                    purge(&writer);
                }
            }
        });
    }
    let reader = Store::open_disk(gate.disk(), &reading()).unwrap();
    assert_eq!(rounds.load(Ordering::SeqCst), 3, "two attempts failed");
    assert_eq!(state(&reader), state(&writer));
    drop(reader);
    // The writer replaces the files at every attempt.
    rounds.store(0, Ordering::SeqCst);
    limit.store(u64::MAX, Ordering::SeqCst);
    let error = Store::open_disk(gate.disk(), &reading()).unwrap_err();
    let StoreError::ChangedWhileRead { attempts, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(u64::from(*attempts), rounds.load(Ordering::SeqCst));
    assert_eq!(error.code(), weir_core::ErrorCode::ChangedWhileRead);
}

/// A compaction of the writer removes a segment that the reader has not opened yet.
#[test]
fn a_segment_that_the_writer_removed_is_a_typed_error() {
    let directory = tempfile::tempdir().unwrap();
    let writer = Store::open(directory.path(), &options()).unwrap();
    create_with(&writer, "t", &latest());
    put_many(&writer, "t", (0..200_u32).map(|_| (b"key", [1; 300])));
    // More topics than the reader has open files.
    for topic in 0..200 {
        create(&writer, &format!("other-{topic}"));
        execute(&writer, &[put(&format!("other-{topic}"), b"k", b"v")]);
    }
    writer.checkpoint().unwrap();
    let reader = Store::open(directory.path(), &reading()).unwrap();
    for topic in 0..200 {
        records(&reader, &format!("other-{topic}"));
    }
    writer.compact_topic("t").unwrap();
    let mut pages = reader.read("t", ConsequenceOffset::ZERO).unwrap();
    let error = crate::world::drain(&mut pages).unwrap_err();
    assert!(
        matches!(error, StoreError::ChangedWhileRead { .. }),
        "{error}"
    );
    // A new open reads the content of the writer.
    let reader = Store::open(directory.path(), &reading()).unwrap();
    assert_eq!(keys(&reader, "t"), keys(&writer, "t"));
}

/// The records that a read-only open stores outside of the directory have a limit in bytes,
/// however long the log is.
#[test]
fn an_open_fails_above_the_limit_of_records_of_a_reader() {
    let directory = tempfile::tempdir().unwrap();
    let writer = Store::open(directory.path(), &options()).unwrap();
    create(&writer, "t");
    for round in 0..8_u8 {
        let bytes = vec![b'a' + round; 1_000];
        put_many(
            &writer,
            "t",
            (0..500).map(|n| (n.to_string(), bytes.clone())),
        );
    }
    let limited = |read_only_bytes_max| OpenOptions {
        read_only_bytes_max,
        ..reading()
    };
    let error = Store::open(directory.path(), &limited(1 << 20)).unwrap_err();
    let StoreError::ReadOnlyLimit { limit_bytes, bytes } = error else {
        panic!("{error}")
    };
    assert_eq!(limit_bytes, 1 << 20);
    // The open stopped soon after the limit: the log has 4 MB.
    assert!((1 << 20..3 << 20).contains(&bytes), "{bytes}");
    assert_eq!(error.code(), weir_core::ErrorCode::ReadOnlyLimit);
    let reader = Store::open(directory.path(), &limited(8 << 20)).unwrap();
    assert_eq!(state(&reader), state(&writer));
    // Records that a snapshot covers are in the directory, so the limit does not apply.
    writer.checkpoint().unwrap();
    let reader = Store::open(directory.path(), &limited(1 << 20)).unwrap();
    assert_eq!(state(&reader), state(&writer));
    // An open for writing stores nothing outside of the directory.
    let replaying = OpenOptions {
        read_only_bytes_max: 0,
        ..options()
    };
    execute(&writer, &[put("t", b"k", b"v")]);
    writer.close().unwrap();
    drop(Store::open(directory.path(), &replaying).unwrap());
}

/// A second opener for writing is notified of the process that holds the directory, waits,
/// and then opens it.
#[test]
fn a_second_writer_gets_the_holder_of_the_directory_and_waits() {
    let directory = tempfile::tempdir().unwrap();
    let first = Store::open(directory.path(), &options()).unwrap();
    let first = Arc::new(Mutex::new(Some(first)));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let on_locked = {
        let (first, seen) = (Arc::clone(&first), Arc::clone(&seen));
        OnLocked::new(move |holder| {
            seen.lock().unwrap().push(holder.clone());
            // The first opener ends because the second one waits.
            first
                .lock()
                .unwrap()
                .take()
                .is_none_or(|store| store.close().is_ok())
        })
    };
    let waiting = OpenOptions {
        lock_wait: Duration::from_mins(1),
        on_locked: Some(on_locked),
        ..options()
    };
    let second = Store::open(directory.path(), &waiting).unwrap();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(seen.len(), 1);
    assert_eq!(
        (seen[0].pid, seen[0].program.as_str()),
        (std::process::id(), "test")
    );
    // An opener whose callback declines to wait fails at once, and a reader never waits.
    let impatient = OpenOptions {
        lock_wait: Duration::from_mins(1),
        on_locked: Some(OnLocked::new(|_| false)),
        ..options()
    };
    let error = Store::open(directory.path(), &impatient).unwrap_err();
    let own_pid = std::process::id();
    assert!(
        matches!(error, StoreError::Locked { pid, .. } if pid == own_pid),
        "{error}"
    );
    drop(Store::open(directory.path(), &reading()).unwrap());
    drop(second);
}
