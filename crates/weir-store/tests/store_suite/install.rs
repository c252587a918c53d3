//! Installs of a snapshot of another node: each is complete or has no effect, also after an
//! interruption.

use std::sync::Arc;

use tempfile::TempDir;
use weir_core::ConsequenceOffset;
use weir_store::disk::{Disk, SimDisk, SimFailure, SimOp};
use weir_store::replica::{EntryBody, EntryId, Replica, ShippedSnapshot, StagedSnapshot};
use weir_store::{Durability, LogIndex, OpenOptions, Store, StoreError, verify_disk};

use crate::disks::{Gate, Op, Rule};
use crate::replica::{SingleNode, append, entry, node, open_node};
use crate::world::{Rec, create, drain, execute, options, put, records};

/// Number of records of the sender, including that of the creation.
const SENT: u64 = 30;

/// A node with a snapshot, and the content of the snapshot.
struct Sender {
    store: Store,
    replica: Replica,
    records: Vec<Rec>,
    directory: TempDir,
}

fn sender() -> Sender {
    let directory = tempfile::tempdir().unwrap();
    let (store, replica, _) = open_node(directory.path()).unwrap();
    create(&store, "orders");
    for number in 1..SENT {
        execute(&store, &[put("orders", &number.to_le_bytes(), &[7; 3000])]);
    }
    store.checkpoint().unwrap();
    Sender {
        records: records(&store, "orders"),
        store,
        replica,
        directory,
    }
}

fn open(disk: &SimDisk) -> Result<(Store, Replica, Arc<SingleNode>), StoreError> {
    let provider = Arc::new(SingleNode::default());
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (store, replica) =
        Store::open_node_disk(disk, &options(), &node(), Arc::clone(&provider) as _)?;
    provider.follow(&replica);
    Ok((store, replica, provider))
}

/// Log entries of the receiver after the applied ones.
#[derive(Clone, Copy, Debug)]
enum Tail {
    None,
    /// Entries of a leader without a majority, also at the index of the snapshot.
    OfAnotherTerm,
    /// Entries of the sender's term, also after the index of the snapshot.
    Longer,
}

/// A node with fewer entries than the sender.
fn receiver(disk: &SimDisk, tail: Tail) {
    let (store, replica, _) = open(disk).unwrap();
    create(&store, "orders");
    for number in 1..3_u64 {
        execute(&store, &[put("orders", &number.to_le_bytes(), &[7; 3000])]);
    }
    create(&store, "own");
    execute(&store, &[put("own", b"a", b"1")]);
    // The checkpoint makes the state independent of the committed index, which is not
    // synced.
    store.checkpoint().unwrap();
    let term = match tail {
        Tail::None => None,
        Tail::OfAnotherTerm => Some(9),
        Tail::Longer => Some(7),
    };
    if let Some(term) = term {
        let blanks = (6..SENT + 20).map(|index| entry(term, index, EntryBody::Blank));
        append(&replica, blanks.collect()).unwrap();
    }
    store.close().unwrap();
}

fn stage(shipped: &ShippedSnapshot, replica: &Replica) -> Result<StagedSnapshot, StoreError> {
    let mut staged = replica.stage(shipped.id, shipped.files.clone())?;
    for (number, file) in shipped.files.iter().enumerate() {
        let mut at = 0;
        while at < file.bytes {
            let part = shipped.read(number, at, 20_000)?;
            staged.write(number, at, &part)?;
            at += part.len() as u64;
        }
    }
    assert_eq!(staged.membership()?, shipped.membership);
    Ok(staged)
}

fn ship(sender: &Sender) -> ShippedSnapshot {
    sender.replica.ship().unwrap().unwrap()
}

fn install(disk: &SimDisk, sender: &Sender) -> Result<(), StoreError> {
    let (store, replica, _) = open(disk)?;
    replica.install(stage(&ship(sender), &replica)?)?;
    store.close()
}

#[test]
fn an_install_is_complete_or_without_effect_after_any_power_cut() {
    let sender = sender();
    let snapshot = ship(&sender).id;
    for tail in [Tail::None, Tail::OfAnotherTerm, Tail::Longer] {
        let before = SimDisk::new();
        receiver(&before, tail);
        let before = before.killed();
        let (store, _, _) = open(&before.killed()).unwrap();
        let (old, old_records) = (store.digest(), records(&store, "orders"));
        store.close().unwrap();
        let uncut = before.killed();
        install(&uncut, &sender).unwrap();
        let operations = uncut.counts().ops;
        assert!(operations > 30, "{operations}");
        let (mut olds, mut news) = (0, 0);
        for at in 1..=operations {
            let disk = before.killed();
            disk.cut_at(at);
            let installed = install(&disk, &sender);
            for seed in 0..3 {
                let crashed = disk.power_cut(at * 10 + seed);
                let (store, replica, _) =
                    open(&crashed).unwrap_or_else(|error| panic!("{tail:?}, cut {at}: {error}"));
                let applied = replica.applied().last;
                if applied == Some(snapshot) {
                    news += 1;
                    assert_eq!(store.digest(), sender.store.digest(), "{tail:?}, cut {at}");
                    assert_eq!(records(&store, "orders"), sender.records);
                    assert!(store.topic("own").is_none());
                    let last = replica.log_state().last;
                    let keeps_tail = matches!(tail, Tail::Longer);
                    let index = if keeps_tail {
                        SENT + 19
                    } else {
                        snapshot.index.0
                    };
                    assert_eq!(last.map(|id| id.index.0), Some(index), "{tail:?}, cut {at}");
                } else {
                    olds += 1;
                    assert!(installed.is_err(), "{tail:?}, cut {at}: {applied:?}");
                    assert_eq!(
                        (store.digest(), records(&store, "orders")),
                        (old, old_records.clone())
                    );
                }
                // The store continues after its newest entry.
                let id = applied.unwrap();
                if replica.log_state().last == Some(id) {
                    execute(&store, &[put("orders", b"after", b"1")]);
                }
            }
        }
        assert!(olds > 10 && news > 10, "{tail:?}: {olds} old, {news} new");
    }
}

/// A level that does not sync may lose entries, but an open refuses a log that ends before the
/// snapshot.
#[test]
fn a_node_that_does_not_sync_opens_after_an_install_and_a_power_cut() {
    let sender = sender();
    let disk = SimDisk::new();
    let options = OpenOptions {
        durability: Durability::Memory,
        ..options()
    };
    let provider = Arc::new(SingleNode::default());
    let on: Arc<dyn Disk> = Arc::new(disk.clone());
    let (_store, replica) = Store::open_node_disk(on, &options, &node(), provider).unwrap();
    // The log continues the snapshot, so the install keeps it.
    let blanks = (1..SENT + 20).map(|index| entry(7, index, EntryBody::Blank));
    append(&replica, blanks.collect()).unwrap();
    let shipped = ship(&sender);
    replica.install(stage(&shipped, &replica).unwrap()).unwrap();
    for seed in 0..20 {
        let crashed = disk.power_cut(seed);
        let opened = open(&crashed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let (store, replica, _) = opened;
        assert_eq!(replica.applied().last, Some(shipped.id), "seed {seed}");
        assert_eq!(store.digest(), sender.store.digest(), "seed {seed}");
    }
}

#[test]
fn readers_of_the_old_state_continue_in_the_installed_state_without_a_gap() {
    let sender = sender();
    let disk = SimDisk::new();
    receiver(&disk, Tail::None);
    let (store, replica, _) = open(&disk).unwrap();
    // One record is read; the next records are in files that the install removes.
    store.checkpoint().unwrap();
    let mut reader = store.read("orders", ConsequenceOffset::ZERO).unwrap();
    let mut seen = drain(&mut reader).unwrap();
    assert_eq!(seen.len(), 3);
    let listener = store.listen("orders", ConsequenceOffset(3));
    let keys = store.scan_from("orders", b"", b"", 1000).unwrap();
    assert_eq!(keys.len(), 2);
    let waiter = std::thread::spawn(move || listener.wait(None));
    replica
        .install(stage(&ship(&sender), &replica).unwrap())
        .unwrap();
    assert!(waiter.join().unwrap(), "the waiting listener is woken");
    seen.extend(drain(&mut reader).unwrap());
    assert_eq!(seen, sender.records);
    let keys = store.scan_from("orders", b"", b"", 1000).unwrap();
    assert_eq!(keys.len() as u64, SENT - 1);
    for key in &keys {
        assert!(store.get("orders", &key.key).unwrap().is_some());
    }
    assert_eq!(store.stats().applied_index, SENT);
    execute(&store, &[put("orders", b"after", b"1")]);
    store.checkpoint().unwrap();
    store.close().unwrap();
    let (store, _, _) = open(&disk).unwrap();
    assert_eq!(records(&store, "orders").len() as u64, SENT + 1);
}

#[test]
fn an_install_during_a_scrub_is_not_reported_as_damage() {
    let sender = sender();
    let gate = Gate::new(SimDisk::new());
    let provider = Arc::new(SingleNode::default());
    let on = gate.disk();
    let opened = Store::open_node_disk(on, &options(), &node(), Arc::clone(&provider) as _);
    let (store, replica) = opened.unwrap();
    provider.follow(&replica);
    create(&store, "orders");
    // Two blocks in one segment. The sender has a segment with the same path.
    for key in ["a", "b"] {
        execute(&store, &[put("orders", key.as_bytes(), &[7; 3000])]);
        store.checkpoint().unwrap();
    }
    let staged = stage(&ship(&sender), &replica).unwrap();
    gate.rule(Op::Read, "topics/", Rule::HoldOne);
    let report = std::thread::scope(|scope| {
        let scrub = scope.spawn(|| store.scrub(u64::MAX));
        gate.wait_held();
        replica.install(staged).unwrap();
        gate.release();
        scrub.join().unwrap()
    });
    assert_eq!(store.digest(), sender.store.digest());
    assert!(report.complete);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn a_snapshot_that_differs_from_the_sent_one_changes_nothing() {
    let sender = sender();
    let shipped = ship(&sender);
    let disk = SimDisk::new();
    receiver(&disk, Tail::None);
    let (store, replica, _) = open(&disk).unwrap();
    let (digest, files) = (store.digest(), disk.files());
    let refused = |staged: Result<StagedSnapshot, StoreError>| {
        let error = staged.and_then(|staged| replica.install(staged));
        assert!(error.is_err());
        assert_eq!(store.digest(), digest);
    };
    // A flipped bit in each file.
    for (number, file) in shipped.files.iter().enumerate() {
        let mut staged = stage(&shipped, &replica).unwrap();
        let staged_file = disk
            .files()
            .into_iter()
            .filter(|path| path.starts_with("staged/"));
        let mut staged_file = staged_file.filter(|path| path.contains(".snap") == (number == 0));
        disk.flip(
            &staged_file.next_back().unwrap(),
            file.bytes as usize / 2,
            3,
        );
        assert!(staged.write(number, file.bytes, b"more").is_err());
        refused(Ok(staged));
    }
    // A wrong entry id, a missing file, and parts out of order.
    let id = EntryId {
        term: shipped.id.term + 1,
        ..shipped.id
    };
    let mut staged = replica.stage(id, shipped.files.clone()).unwrap();
    let second = replica.stage(id, shipped.files.clone());
    assert!(second.is_err(), "only one snapshot is staged at a time");
    assert!(staged.write(0, 1, b"x").is_err());
    assert!(staged.write(99, 0, b"x").is_err());
    refused(Ok(staged));
    assert!(replica.stage(id, shipped.files[1..].to_vec()).is_err());
    assert!(replica.stage(id, Vec::new()).is_err());
    // The disk is as before: no staged file remains.
    let remaining: Vec<_> = disk
        .files()
        .into_iter()
        .filter(|path| path.starts_with("staged"))
        .collect();
    assert!(remaining.is_empty(), "{remaining:?}");
    assert_eq!(disk.files(), files);
    // A snapshot that is older than the applied state.
    replica.install(stage(&shipped, &replica).unwrap()).unwrap();
    execute(&store, &[put("orders", b"after", b"1")]);
    let newer = replica.applied().last.unwrap();
    assert!(newer.index > LogIndex(SENT));
    assert!(replica.install(stage(&shipped, &replica).unwrap()).is_err());
    execute(&store, &[put("orders", b"after", b"2")]);
}

/// Returns the size of all files in bytes.
fn used_bytes(disk: &SimDisk) -> u64 {
    let files = disk.files().into_iter();
    files
        .map(|path| disk.content(&path).unwrap().len() as u64)
        .sum()
}

fn staged_files(disk: &SimDisk) -> Vec<String> {
    let mut files = disk.files();
    files.retain(|path| path.starts_with("staged/"));
    files
}

#[test]
fn a_full_disk_refuses_an_install_and_the_node_continues() {
    let sender = sender();
    let disk = SimDisk::new();
    receiver(&disk, Tail::None);
    let (store, replica, _) = open(&disk).unwrap();
    let digest = store.digest();
    let shipped = ship(&sender);
    let bytes: u64 = shipped.files.iter().map(|file| file.bytes).sum();
    disk.set_capacity(used_bytes(&disk) + bytes + (1 << 20));
    let error = replica
        .stage(shipped.id, shipped.files.clone())
        .unwrap_err();
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    disk.set_capacity(u64::MAX);
    let mut staged = stage(&shipped, &replica).unwrap();
    replica.check(&mut staged).unwrap();
    disk.set_capacity(used_bytes(&disk) + (1 << 20));
    let error = replica.check(&mut staged).unwrap_err();
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    let error = replica.install(staged).unwrap_err();
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    assert!(store.poison_cause().is_none());
    assert_eq!(store.digest(), digest);
    // The staged files do not use space that the next install needs.
    assert_eq!(staged_files(&disk), Vec::<String>::new());
    disk.set_capacity(u64::MAX);
    execute(&store, &[put("own", b"b", b"2")]);
    install_again(&store, &replica, &sender);
}

fn install_again(store: &Store, replica: &Replica, sender: &Sender) {
    let staged = stage(&ship(sender), replica).unwrap();
    replica.install(staged).unwrap();
    assert_eq!(store.digest(), sender.store.digest());
}

#[test]
fn a_failed_operation_during_an_install_loses_nothing() {
    let sender = sender();
    let before = SimDisk::new();
    receiver(&before, Tail::None);
    let before = before.killed();
    let (mut refused, mut stopped) = (0, 0);
    for (op, failure) in [
        (SimOp::Create, SimFailure::Full),
        (SimOp::Resize, SimFailure::Full),
        (SimOp::Write, SimFailure::Full),
        (SimOp::Rename, SimFailure::Io),
        (SimOp::Remove, SimFailure::Io),
        (SimOp::Sync, SimFailure::Io),
        (SimOp::SyncDir, SimFailure::Io),
    ] {
        for nth in 1.. {
            let disk = before.killed();
            let (store, replica, _) = open(&disk).unwrap();
            let digest = store.digest();
            let staged = stage(&ship(&sender), &replica).unwrap();
            disk.fail(op, nth, failure);
            if replica.install(staged).is_ok() {
                assert!(nth > 1, "{op:?} is never used");
                break;
            }
            if store.poison_cause().is_none() {
                refused += 1;
                assert_eq!(store.digest(), digest, "{op:?} {nth}");
                install_again(&store, &replica, &sender);
            } else {
                stopped += 1;
                // Staged files remain until the next open.
                let staged = stage(&ship(&sender), &replica);
                assert!(matches!(staged, Err(StoreError::Poisoned { .. })));
            }
            drop((store, replica));
            let (store, _, _) =
                open(&disk.killed()).unwrap_or_else(|error| panic!("{op:?} {nth}: {error}"));
            assert_eq!(store.digest(), sender.store.digest(), "{op:?} {nth}");
            assert_eq!(records(&store, "orders"), sender.records, "{op:?} {nth}");
        }
    }
    assert!(refused > 3 && stopped > 10, "{refused} {stopped}");
}

#[test]
fn read_only_opens_return_the_result_of_an_interrupted_install() {
    let sender = sender();
    let snapshot = ship(&sender).id;
    // The longer tail differs from the log of the sender, which a check would detect.
    for tail in [Tail::None, Tail::OfAnotherTerm] {
        let before = SimDisk::new();
        receiver(&before, tail);
        let before = before.killed();
        let uncut = before.killed();
        install(&uncut, &sender).unwrap();
        let mut pending = 0;
        for at in 1..=uncut.counts().ops {
            let disk = before.killed();
            disk.cut_at(at);
            drop(install(&disk, &sender));
            let crashed = disk.power_cut(at);
            let is_pending = crashed.content("staged/manifest").is_some();
            pending += u32::from(is_pending);
            let files = crashed.files();
            let on = || Arc::new(crashed.clone()) as Arc<dyn Disk>;
            let report = verify_disk(&on()).unwrap();
            assert!(
                report.is_clean(),
                "{tail:?}, cut {at}: {:?}",
                report.findings
            );
            let has_finding = |name| report.findings.iter().any(|found| found.file == name);
            assert_eq!(
                has_finding("staged/manifest"),
                is_pending,
                "{tail:?}, cut {at}"
            );
            let reading = OpenOptions {
                seed: Some(3),
                ..OpenOptions::read_only()
            };
            let reader = Store::open_disk(on(), &reading)
                .unwrap_or_else(|error| panic!("{tail:?}, cut {at}: {error}"));
            let seen = (reader.digest(), records(&reader, "orders"));
            drop(reader);
            assert_eq!(crashed.files(), files, "{tail:?}, cut {at}");
            // The open of the node completes the install, with an equal result.
            let (store, replica, _) = open(&crashed).unwrap();
            let expected = (store.digest(), records(&store, "orders"));
            assert_eq!(seen, expected, "{tail:?}, cut {at}");
            assert_eq!(report.digest, Some(expected.0), "{tail:?}, cut {at}");
            if is_pending {
                assert_eq!(replica.applied().last, Some(snapshot));
            }
            assert!(!has_finding("cluster"));
        }
        assert!(pending > 10, "{tail:?}: {pending}");
    }
}

#[test]
fn an_install_removes_the_digests_of_the_old_state() {
    let [(_sender, shipped), (_receiver, replica)] = [310, 300].map(|puts| {
        let (store, replica, _) = open(&SimDisk::new()).unwrap();
        create(&store, "orders");
        for _ in 0..puts {
            execute(&store, &[put("orders", b"a", b"1")]);
        }
        store.checkpoint().unwrap();
        (store, replica)
    });
    let sample = replica.digest_sample();
    assert_eq!(sample.map(|(index, _)| index), Some(LogIndex(256)));
    let shipped = shipped.ship().unwrap().unwrap();
    replica.install(stage(&shipped, &replica).unwrap()).unwrap();
    assert_eq!(replica.digest_sample(), None);
}

#[test]
fn files_of_a_snapshot_exist_while_it_is_sent() {
    let sender = sender();
    let shipped = ship(&sender);
    // Two later snapshots replace this one, and an install removes all files of the old state.
    for number in 0..3_u64 {
        execute(&sender.store, &[put("orders", &number.to_le_bytes(), b"2")]);
        sender.store.checkpoint().unwrap();
    }
    let disk = SimDisk::new();
    receiver(&disk, Tail::None);
    let (store, replica, _) = open(&disk).unwrap();
    replica.install(stage(&shipped, &replica).unwrap()).unwrap();
    assert_eq!(records(&store, "orders"), sender.records);
    let names = |sender: &Sender| {
        let directory = sender.directory.path().join("snapshots");
        std::fs::read_dir(directory).unwrap().count()
    };
    assert_eq!(names(&sender), 3);
    drop(shipped);
    assert_eq!(names(&sender), 2);
}
