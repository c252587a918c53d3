//! Several writers, background snapshots and compaction run concurrently. Images of power
//! cuts are captured meanwhile and checked afterwards. The order of operations depends on
//! the threads, so only guarantees are checked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;

use weir_core::ClientId;
use weir_store::disk::{Disk, SimDisk};
use weir_store::{OpenOptions, Store};

use crate::disks::Gate;
use crate::world::{create, create_with, execute, keys, latest, options, put, records};

const WRITERS: u8 = 4;
const CALLS: u64 = 120;
/// Keys of each writer.
const KEYS: u64 = 8;

/// The acknowledged offsets by nonce, of each writer.
type Acks = BTreeMap<u8, BTreeMap<u64, u64>>;

struct Image {
    disk: SimDisk,
    acks: Acks,
    number: u64,
}

fn frequent_snapshots() -> OpenOptions {
    OpenOptions {
        snapshot_log_bytes: 12_000,
        ..options()
    }
}

fn value(writer: u8, nonce: u64) -> Vec<u8> {
    let mut value = vec![writer];
    value.extend(nonce.to_be_bytes());
    value.resize(9 + nonce as usize % 90, 0xee);
    value
}

fn write(store: &Store, writer: u8, acks: &Mutex<Acks>) {
    let client = ClientId([writer; 16]);
    let mut nonce = 1;
    for call in 0..CALLS {
        let size = 1 + call % 3;
        let items: Vec<_> = (nonce..nonce + size)
            .map(|n| ([writer, (n % KEYS) as u8], value(writer, n), n))
            .collect();
        let call: Vec<_> = items
            .iter()
            .map(|(key, value, n)| put("t", key, value).under(client, *n))
            .collect();
        let commits = execute(store, &call);
        let mut acks = acks.lock().unwrap();
        let own = acks.entry(writer).or_default();
        own.extend(commits.iter().map(|commit| (commit.nonce, commit.first.0)));
        nonce += size;
    }
}

fn check(image: &Image, compacts: bool) {
    let what = format!("image {}", image.number);
    let disk: Arc<dyn Disk> = Arc::new(image.disk.killed());
    let report = weir_store::verify_disk(&disk).unwrap();
    assert!(report.is_sound(), "{what}: {:?}", report.findings);
    let store = Store::open_disk(Arc::new(image.disk.clone()), &frequent_snapshots())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = records(&store, "t");
    let by_nonce: BTreeMap<(u8, u64), u64> = found
        .iter()
        .filter(|record| record.nonce > 0)
        .map(|record| ((record.client.0[0], record.nonce), record.offset))
        .collect();
    let mut total = 1;
    let mut wanted = BTreeMap::new();
    for writer in 1..=WRITERS {
        let last = store.last_nonce(ClientId([writer; 16]));
        total += last;
        for (nonce, offset) in image.acks.get(&writer).into_iter().flatten() {
            assert!(*nonce <= last, "{what}: {writer}/{nonce} was acknowledged");
            let stored = store.outcome(ClientId([writer; 16]), *nonce).unwrap();
            assert_eq!(stored.first.0, *offset, "{what}");
            if let Some(found) = by_nonce.get(&(writer, *nonce)) {
                assert_eq!(found, offset, "{what}");
            }
        }
        for nonce in 1..=last {
            wanted.insert(vec![writer, (nonce % KEYS) as u8], value(writer, nonce));
        }
        if !compacts {
            assert!(
                (1..=last).all(|nonce| by_nonce.contains_key(&(writer, nonce))),
                "{what}"
            );
        }
    }
    assert_eq!(store.applied().0, total, "{what}: a part of a batch");
    assert_eq!(store.topic("t").unwrap().last.0, total, "{what}");
    assert!(
        found.windows(2).all(|pair| pair[0].offset < pair[1].offset),
        "{what}"
    );
    if !compacts {
        assert_eq!(found.len() as u64, total, "{what}: a record is missing");
    }
    let now: BTreeMap<Vec<u8>, Vec<u8>> = keys(&store, "t")
        .into_iter()
        .map(|(key, (_, value))| (key, value))
        .collect();
    assert!(now == wanted, "{what}: keys");
    let (digest, applied) = (store.digest(), store.applied());
    drop(store);
    let again = Store::open_disk(Arc::new(image.disk.power_cut(3)), &frequent_snapshots()).unwrap();
    assert_eq!(
        (again.digest(), again.applied()),
        (digest, applied),
        "{what}"
    );
}

fn run_with_cuts(compacts: bool) {
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let store = Arc::new(Store::open_disk(gate.disk(), &frequent_snapshots()).unwrap());
    if compacts {
        create_with(&store, "t", &latest());
    } else {
        create(&store, "t");
    }
    let acks: Arc<Mutex<Acks>> = Arc::default();
    let images: Arc<Mutex<Vec<Image>>> = Arc::default();
    let (current, captured) = (Arc::clone(&acks), Arc::clone(&images));
    let mut number = 0;
    gate.observe(move |op, path| {
        number += u64::from(op.changes());
        // Renames and similar changes are rare, and each of them matters.
        let rare = !path.starts_with("log/") || number % 9 == 0;
        if op.changes() && rare {
            let acks = current.lock().unwrap().clone();
            let disk = disk.power_cut(number);
            captured.lock().unwrap().push(Image { disk, acks, number });
        }
    });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=WRITERS)
            .map(|writer| {
                let (store, acks) = (&store, &acks);
                scope.spawn(move || write(store, writer, acks))
            })
            .collect();
        if compacts {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    store.compact_topic("t").unwrap();
                    store.compact_log().unwrap();
                }
            });
        }
        let joined = writers.into_iter().map(ScopedJoinHandle::join);
        let ended: Result<Vec<()>, _> = joined.collect();
        done.store(true, Ordering::SeqCst);
        ended.unwrap();
    });
    drop(store);
    gate.observe(|_, _| {});
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 40, "{} images", images.len());
    // A regular sample, so that the duration does not depend on the threads.
    let step = images.len().div_ceil(150);
    for image in images.iter().step_by(step) {
        check(image, compacts);
    }
}

#[test]
fn writers_and_background_snapshots_survive_cuts() {
    run_with_cuts(false);
}

#[test]
fn writers_and_every_kind_of_compaction_survive_cuts() {
    run_with_cuts(true);
}
