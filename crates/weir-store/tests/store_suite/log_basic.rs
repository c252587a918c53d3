//! Tests of the log in a real directory, without faults.

use std::sync::Arc;

use weir_store::disk::{Disk, FileDisk};
use weir_store::error::StoreError;
use weir_store::log::{Log, LogIndex, LogOptions, LogReader, Recovery};

const ID: [u8; 16] = *b"a store of tests";

fn options() -> LogOptions {
    let mut options = LogOptions::default();
    options.segment_bytes_first = 64 << 10;
    options.segment_bytes_max = 256 << 10;
    options.reserve_bytes = 0;
    options
}

fn disk(directory: &tempfile::TempDir) -> Arc<dyn Disk> {
    Arc::new(FileDisk::open(directory.path()).unwrap())
}

fn open(directory: &tempfile::TempDir) -> (Log, Recovery) {
    Log::open(disk(directory), ID, options()).unwrap()
}

fn all(mut reader: LogReader, through: LogIndex) -> Vec<(u64, u64, u32, Vec<u8>)> {
    let mut entries = Vec::new();
    while let Some(entry) = reader.next(through).unwrap() {
        entries.push((
            entry.index.0,
            entry.term,
            entry.count,
            entry.payload.to_vec(),
        ));
    }
    entries
}

fn payload(index: u64) -> Vec<u8> {
    let len = usize::try_from(index * 37 % 3000).unwrap();
    (0..len)
        .map(|at| (at as u64 * index).to_le_bytes()[0])
        .collect()
}

#[test]
fn appended_entries_are_read_after_each_kind_of_stop() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for round in 0..6_u64 {
        let (mut log, recovery) = open(&directory);
        assert_eq!(recovery.created, round == 0);
        assert_eq!(recovery.clean, round % 2 == 1);
        assert!(recovery.cuts.is_empty());
        assert_eq!(all(log.reader(LogIndex(1)), log.last_index()), expected);
        for _ in 0..100 {
            let index = log.last_index().0 + 1;
            let bytes = payload(index);
            let (head, tail) = bytes.split_at(bytes.len() / 3);
            let count = u32::try_from(index).unwrap();
            assert_eq!(
                log.append(round, count, &[head, &[], tail]).unwrap().0,
                index
            );
            expected.push((index, round, count, bytes));
        }
        assert!(log.durable_index() < log.last_index());
        log.sync().unwrap();
        assert_eq!(log.durable_index(), log.last_index());
        assert_eq!(log.term_at(log.last_index()), Some(round));
        assert_eq!(all(log.reader(LogIndex(1)), log.last_index()), expected);
        if round % 2 == 0 {
            log.close().unwrap();
        }
    }
}

#[test]
fn a_reader_follows_the_writer_and_returns_nothing_above_its_bound() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(&directory);
    let mut reader = log.readers().reader(LogIndex(1));
    assert!(reader.next(LogIndex(10)).unwrap().is_none());
    for index in 1..=500 {
        log.append(1, 1, &[&payload(index)]).unwrap();
        assert!(reader.next(LogIndex(index - 1)).unwrap().is_none());
        let entry = reader.next(LogIndex(index)).unwrap().unwrap();
        assert_eq!(
            (entry.index.0, entry.payload.to_vec()),
            (index, payload(index))
        );
    }
    for from in [1, 2, 77, 250, 499, 500] {
        let entry = log
            .reader(LogIndex(from))
            .next(log.last_index())
            .unwrap()
            .unwrap();
        assert_eq!(
            (entry.index.0, entry.payload.to_vec()),
            (from, payload(from))
        );
    }
}

#[test]
fn a_reader_on_another_thread_misses_nothing_across_segments() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(&directory);
    let readers = log.readers();
    let last = 6_000;
    let reading = std::thread::spawn(move || {
        let mut reader = readers.reader(LogIndex(1));
        let mut expected = 1;
        while expected <= last {
            match reader.next(readers.last_index()).unwrap() {
                Some(entry) => {
                    assert_eq!(entry.index.0, expected);
                    assert_eq!(&*entry.payload, payload(expected));
                    expected += 1;
                }
                None => std::thread::yield_now(),
            }
        }
    });
    for index in 1..=last {
        log.append(1, 1, &[&payload(index)]).unwrap();
    }
    assert!(log.stats().segments > 20);
    reading.join().unwrap();
}

#[test]
fn large_payloads_get_their_own_segments() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(&directory);
    let large: Vec<u8> = (0..64_u32 << 20)
        .map(|at| (at % 255).to_le_bytes()[0])
        .collect();
    let zeros = vec![0_u8; 5 << 20];
    log.append(1, 1, &[b"before"]).unwrap();
    log.append(1, 1, &[&large]).unwrap();
    log.append(1, 1, &[&zeros]).unwrap();
    log.append(1, 1, &[b"after"]).unwrap();
    log.sync().unwrap();
    drop(log);
    let (mut log, recovery) = open(&directory);
    assert!(!recovery.clean);
    let entries = all(log.reader(LogIndex(1)), log.last_index());
    let lengths: Vec<usize> = entries.iter().map(|entry| entry.3.len()).collect();
    assert_eq!(lengths, [6, 64 << 20, 5 << 20, 5]);
    assert!(entries[1].3 == large && entries[2].3 == zeros);
    let too_long = vec![1_u8; 128 << 20];
    match log.append(1, 1, &[&too_long, &too_long]) {
        Err(StoreError::LimitExceeded { value, .. }) => assert_eq!(value, 256 << 20),
        other => panic!("{other:?}"),
    }
    log.append(1, 1, &[b"small"]).unwrap();
}

#[test]
fn a_purge_removes_segments_and_a_reset_removes_all() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(&directory);
    for index in 1..=400 {
        log.append(3, 1, &[&payload(index)]).unwrap();
    }
    log.sync().unwrap();
    let before = log.stats().segments;
    assert!(before > 2);
    log.purge_through(LogIndex(300)).unwrap();
    assert!(log.stats().segments < before);
    assert_eq!(log.first_index().0, 301);
    assert_eq!(log.term_at(LogIndex(300)), Some(3));
    assert_eq!(log.term_at(LogIndex(299)), None);
    match log.reader(LogIndex(300)).next(LogIndex(400)) {
        Err(StoreError::IndexOutOfRange { low: 301, .. }) => {}
        other => panic!("{other:?}"),
    }
    drop(log);
    let (mut log, _) = open(&directory);
    assert_eq!((log.first_index().0, log.last_index().0), (301, 400));
    assert_eq!(log.term_at(LogIndex(300)), Some(3));
    assert_eq!(all(log.reader(LogIndex(301)), log.last_index()).len(), 100);
    log.purge_through(LogIndex(400)).unwrap();
    assert_eq!((log.first_index().0, log.last_index().0), (401, 400));
    log.reset(LogIndex(1000), 9).unwrap();
    assert_eq!(
        (log.first_index().0, log.last_index().0, log.last_term()),
        (1000, 999, 9)
    );
    assert_eq!(log.stats().segments, 1);
    log.append(9, 1, &[b"new"]).unwrap();
    log.close().unwrap();
    let (mut log, recovery) = open(&directory);
    assert!(recovery.clean);
    assert_eq!((log.first_index().0, log.last_index().0), (1000, 1000));
    assert_eq!(log.term_at(LogIndex(999)), Some(9));
    log.purge_through(LogIndex(1000)).unwrap();
    drop(log);
    let (log, _) = open(&directory);
    assert_eq!((log.first_index().0, log.last_index().0), (1001, 1000));
}

#[test]
fn a_reader_in_a_purged_segment_does_not_skip_purged_entries() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(&directory);
    for index in 1..=400 {
        log.append(3, 1, &[&payload(index)]).unwrap();
    }
    log.sync().unwrap();
    let mut reader = log.reader(LogIndex(1));
    reader.next(LogIndex(400)).unwrap().unwrap();
    assert!(log.stats().segments > 2);
    log.purge_through(LogIndex(400)).unwrap();
    assert_eq!(log.stats().segments, 1);
    // The reader has the first segment open and can read it to its end.
    let ended = loop {
        match reader.next(LogIndex(400)) {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    match ended {
        Err(StoreError::IndexOutOfRange { low: 401, .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_truncated_suffix_is_removed_and_its_indexes_are_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(&directory);
    for index in 1..=300 {
        log.append(1, 1, &[&payload(index)]).unwrap();
    }
    let mut reader = log.reader(LogIndex(1));
    for _ in 0..100 {
        reader.next(LogIndex(100)).unwrap().unwrap();
    }
    log.truncate_after(LogIndex(100)).unwrap();
    assert_eq!((log.last_index().0, log.last_term()), (100, 1));
    log.append(2, 1, &[b"other 101"]).unwrap();
    log.append(2, 1, &[b"other 102"]).unwrap();
    log.truncate_after(LogIndex(101)).unwrap();
    log.append(3, 1, &[b"third 102"]).unwrap();
    log.sync().unwrap();
    // The reader has buffered the truncated entries.
    assert_eq!(
        &*reader.next(LogIndex(101)).unwrap().unwrap().payload,
        b"other 101"
    );
    assert_eq!(
        &*reader.next(LogIndex(102)).unwrap().unwrap().payload,
        b"third 102"
    );
    drop(log);
    for _ in 0..3 {
        let (log, _) = open(&directory);
        let entries = all(log.reader(LogIndex(99)), log.last_index());
        assert_eq!(
            entries[2..],
            [
                (101, 2, 1, b"other 101".to_vec()),
                (102, 3, 1, b"third 102".to_vec()),
            ]
        );
        assert_eq!(
            [100, 101, 102].map(|i| log.term_at(LogIndex(i)).unwrap()),
            [1, 2, 3]
        );
    }
}

#[test]
fn another_store_and_a_missing_log_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut strict = options();
    strict.create = false;
    assert!(matches!(
        Log::open(disk(&directory), ID, strict.clone()),
        Err(StoreError::Missing { .. })
    ));
    drop(open(&directory));
    Log::open(disk(&directory), ID, strict).unwrap();
    assert!(matches!(
        Log::open(disk(&directory), [7; 16], options()),
        Err(StoreError::ForeignStore { .. })
    ));
}

#[test]
fn files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    drop(open(&directory));
    let mode = |path: &str| {
        std::fs::metadata(directory.path().join(path))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode("log"), 0o700);
    assert_eq!(mode("log/start"), 0o600);
    assert_eq!(mode("log/00000000000000000001.log"), 0o600);
}
