//! Power cuts and kills at every operation of a script, and again at every operation of the
//! recovery. The recovered store must be a prefix of the sent items that contains all
//! answered items (I2). The order of purged, snapshot and applied must hold (I3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use weir_core::{Digest, Outcome};
use weir_store::disk::{Disk, SimDisk};
use weir_store::{Durability, OpenOptions, Store};

use crate::disks::{Gate, Op};
use crate::model::{Act, Expected, Item, check_topic, script, with_intentions};
use crate::world::{create, execute, options, put, state, times};

/// The progress of a script at the moment of an image.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Number of items sent.
    pub sent: usize,
    /// Number of items answered.
    pub acknowledged: usize,
    /// Number of items that a power cut must not lose.
    pub durable: usize,
    /// Topics whose compaction has begun.
    pub compacted: BTreeSet<&'static str>,
    /// Digest after each number of items.
    pub digests: BTreeMap<usize, Digest>,
    pub ended: bool,
}

/// A disk after a crash.
pub struct Image {
    pub disk: SimDisk,
    pub progress: Progress,
    pub what: String,
    pub power: bool,
}

/// Runs a script and sends an image of the disk at every moment.
fn run(
    seed: u64,
    (expected, acts): (&Expected, &[Act]),
    options: &OpenOptions,
    images: u64,
    sender: &mpsc::SyncSender<Image>,
) {
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let progress = Arc::new(Mutex::new(Progress::default()));
    let mut number = 0;
    let (moments, now) = (sender.clone(), Arc::clone(&progress));
    let image_of = disk.clone();
    gate.observe(move |op, path| {
        if !op.changes() {
            return;
        }
        number += 1;
        let what = format!("seed {seed}, operation {number} ({op:?} {path})");
        let progress = now.lock().unwrap().clone();
        for image in 0..=images {
            let power = image > 0;
            let disk = match image {
                0 => image_of.killed(),
                n => image_of.power_cut(number * 1_000_003 + n),
            };
            let what = format!("{what}, image {image}");
            let progress = progress.clone();
            let image = Image {
                disk,
                progress,
                what,
                power,
            };
            // The checkers may have ended already.
            drop(moments.send(image));
        }
    });
    let mut store = Some(Store::open_disk(gate.disk(), options).unwrap());
    for act in acts {
        step(&mut store, act, expected, &gate, options, &progress);
    }
    progress.lock().unwrap().ended = true;
    store.unwrap().close().unwrap();
}

fn step(
    store: &mut Option<Store>,
    act: &Act,
    expected: &Expected,
    gate: &Gate,
    options: &OpenOptions,
    progress: &Mutex<Progress>,
) {
    let open = store.as_ref().unwrap();
    let all_durable = || {
        let mut progress = progress.lock().unwrap();
        progress.durable = progress.acknowledged;
    };
    match act {
        Act::Calls(calls) => {
            progress.lock().unwrap().sent = calls.last().map_or(0, |call| call.end);
            let sent: Vec<_> = calls
                .iter()
                .map(|call| {
                    with_intentions(&expected.items[call.clone()], |i| open.propose(i)).unwrap()
                })
                .collect();
            for (call, proposal) in calls.iter().zip(sent) {
                let outcomes: Vec<Outcome> = proposal.wait().unwrap().iter().collect();
                let commits = expected.commits[call.clone()].iter();
                let wanted: Vec<Outcome> = commits.map(|c| Outcome::Committed(c.clone())).collect();
                assert_eq!(outcomes, wanted);
                let mut progress = progress.lock().unwrap();
                progress.acknowledged = call.end;
                if options.durability.is_synced() {
                    progress.durable = call.end;
                }
            }
            let mut progress = progress.lock().unwrap();
            let at = progress.acknowledged;
            progress.digests.insert(at, open.digest());
        }
        Act::Checkpoint => {
            open.checkpoint().unwrap();
            all_durable();
        }
        Act::CompactLog => {
            open.compact_log().unwrap();
            all_durable();
        }
        Act::CompactTopic(name) => {
            if !open.topic(name).is_some_and(|topic| topic.live) {
                return;
            }
            progress.lock().unwrap().compacted.insert(name);
            if open.topic(name).unwrap().options.compaction == weir_core::Compaction::Off {
                assert!(open.compact_topic(name).is_err());
                return;
            }
            open.compact_topic(name).unwrap();
            all_durable();
        }
        Act::Sync => {
            open.sync().unwrap();
            all_durable();
        }
        Act::Reopen => {
            store.take().unwrap().close().unwrap();
            all_durable();
            *store = Some(Store::open_disk(gate.disk(), options).unwrap());
        }
        Act::Kill => {
            drop(store.take());
            *store = Some(Store::open_disk(gate.disk(), options).unwrap());
            all_durable();
        }
    }
}

/// Checks that a recovered store is a prefix that contains all required items. Returns the
/// number of its items.
fn check_content(store: &Store, image: &Image, expected: &Expected) -> usize {
    let what = &image.what;
    let there = |at: &usize| {
        let item = &expected.items[*at];
        item.nonce <= store.last_nonce(item.client)
    };
    let found = (0..expected.items.len()).take_while(there).count();
    assert!(
        !(found..expected.items.len()).any(|at| there(&at)),
        "{what}: a hole"
    );
    let must = if image.power {
        image.progress.durable
    } else {
        image.progress.acknowledged
    };
    assert!(
        found >= must,
        "{what}: {found} items, {must} were acknowledged"
    );
    assert!(found <= image.progress.sent, "{what}: from the future");
    assert_eq!(store.applied().0, found as u64, "{what}");
    for (item, commit) in expected.items.iter().zip(&expected.commits).take(found) {
        let kept = store.outcome(item.client, item.nonce);
        assert_eq!(
            kept.as_ref(),
            Some(commit),
            "{what}: outcome {}",
            commit.intention
        );
    }
    if let Some(digest) = image.progress.digests.get(&found) {
        assert_eq!(store.digest(), *digest, "{what}: digest");
    }
    let (now, wanted) = (state(store), &expected.states[found]);
    assert!(now.keys().eq(wanted.keys()), "{what}: topics");
    for (name, topic) in &now {
        let compacted = image.progress.compacted.contains(name.as_str());
        check_topic(
            topic,
            &wanted[name],
            compacted,
            &format!("{what}: topic {name}"),
        );
    }
    found
}

/// Recovers an image twice, and sends all items again.
pub fn check(image: &Image, expected: &Expected, acts: &[Act], options: &OpenOptions) {
    let what = &image.what;
    let open = |disk: &SimDisk| {
        Store::open_disk(Arc::new(disk.clone()), options)
            .unwrap_or_else(|error| panic!("{what}: {error}"))
    };
    // A read-only open before the recovery changes nothing, and finds nothing except the
    // remains of a crash. A directory without an identity is not a store yet.
    if image.disk.content("weir.id").is_some() {
        let disk: Arc<dyn Disk> = Arc::new(image.disk.killed());
        let report = weir_store::verify_disk(&disk).unwrap();
        assert!(report.is_sound(), "{what}: {:?}", report.findings);
    } else {
        assert_eq!(image.progress.sent, 0, "{what}");
    }
    let store = open(&image.disk);
    let aside = &store.report().set_aside;
    assert!(
        aside.is_empty(),
        "{what}: no crash makes a snapshot useless: {aside:?}"
    );
    let found = check_content(&store, image, expected);
    let digest = store.digest();
    // A record that was served once exists after any later crash.
    let again = open(&image.disk.power_cut(7));
    assert!(again.report().log.cuts.is_empty(), "{what}: a second cut");
    assert_eq!(check_content(&again, image, expected), found, "{what}");
    assert_eq!(again.digest(), digest, "{what}");
    drop(again);
    let calls = acts.iter().filter_map(|act| match act {
        Act::Calls(calls) => Some(calls.iter()),
        _ => None,
    });
    let mut edges = BTreeSet::from([0]);
    for call in calls.flatten() {
        edges.insert(call.end);
        let proposal = with_intentions(&expected.items[call.clone()], |i| store.propose(i));
        let outcomes = proposal.unwrap().wait().unwrap();
        for (outcome, at) in outcomes.iter().zip(call.clone()) {
            let commit = expected.commits[at].clone();
            let wanted = if at < found {
                Outcome::Replayed(commit)
            } else {
                Outcome::Committed(commit)
            };
            assert_eq!(outcome, wanted, "{what}: item {at} sent again");
        }
    }
    assert!(edges.contains(&found), "{what}: half a call");
    let end = expected.states.last().unwrap();
    for (name, topic) in &state(&store) {
        let compacted = image.progress.compacted.contains(name.as_str());
        check_topic(
            topic,
            &end[name],
            compacted,
            &format!("{what}: at the end, {name}"),
        );
    }
}

/// Cuts at every operation. Returns the number of images checked.
fn sweep(seed: u64, len: usize, images: u64, level: Durability) -> usize {
    let options = OpenOptions {
        durability: level,
        ..options()
    };
    let (items, acts) = script(seed, len);
    sweep_acts(seed, (items, acts), images, &options, |_| {})
}

fn sweep_acts(
    seed: u64,
    (items, acts): (Vec<Item>, Vec<Act>),
    images: u64,
    options: &OpenOptions,
    mut each: impl FnMut(&Image),
) -> usize {
    let expected = Expected::of(items);
    let (sender, receiver) = mpsc::sync_channel(8);
    std::thread::scope(|scope| {
        let runner = scope.spawn(|| {
            let sender = sender;
            run(seed, (&expected, &acts), options, images, &sender);
        });
        let mut count = 0;
        for image in receiver {
            each(&image);
            check(&image, &expected, &acts, options);
            count += 1;
        }
        runner.join().unwrap();
        count
    })
}

#[test]
fn nothing_acknowledged_is_lost_at_any_operation_of_the_group_level() {
    let count: usize = (0..4 * times())
        .map(|seed| sweep(seed, 36, 2, Durability::Group))
        .sum();
    assert!(count > 1_500, "the scripts do too little: {count}");
}

#[test]
fn nothing_acknowledged_is_lost_at_any_operation_of_the_each_level() {
    let count = sweep(40, 36, 2, Durability::Each);
    assert!(count > 300, "the script does too little: {count}");
}

#[test]
fn weaker_levels_lose_a_tail_and_never_leave_a_hole() {
    let mut count = 0;
    for (seed, level) in [
        (50, Durability::Memory),
        (51, Durability::Interval(Duration::ZERO)),
        (52, Durability::Interval(Duration::from_hours(1))),
    ] {
        count += sweep(seed, 36, 2, level);
    }
    assert!(count > 500, "the scripts do too little: {count}");
}

#[test]
fn nothing_acknowledged_is_lost_while_the_log_is_purged_by_itself() {
    let options = OpenOptions {
        log_segment_bytes: 8 << 10,
        snapshot_log_bytes: 10 << 10,
        log_keep_bytes: Some(0),
        ..options()
    };
    let (mut purged, mut between) = (0, 0);
    for seed in 70..70 + 2 * times() {
        let (items, mut acts) = script(seed, 60);
        // The script requests neither purges nor snapshots.
        acts.retain(|act| !matches!(act, Act::CompactLog | Act::Checkpoint));
        let count = sweep_acts(seed, (items, acts), 2, &options, |image| {
            let logs = |path: &String| path.starts_with("log/0");
            let Some(first) = image.disk.files().into_iter().find(logs) else {
                return;
            };
            purged += u64::from(!first.ends_with("/00000000000000000001.log"));
            between += u64::from(image.what.contains("(Remove log/"));
        });
        assert!(count > 500, "the script does too little: {count}");
    }
    assert!(purged > 100 && between > 5, "{purged}, {between}");
}

/// At levels that do not wait for a sync, a separate thread syncs a full log segment while
/// the commit thread continues to write. An image of that moment must not contain more than
/// its progress.
#[test]
fn the_disk_stands_still_while_a_moment_is_observed() {
    let disk = SimDisk::new();
    let gate = Gate::new(disk.clone());
    let options = OpenOptions {
        durability: Durability::Memory,
        ..options()
    };
    let store = Store::open_disk(gate.disk(), &options).unwrap();
    create(&store, "t");
    let sent = Arc::new(AtomicU64::new(0));
    let observed = Arc::new(AtomicBool::new(false));
    let (now, done, image_of, waits) = (sent.clone(), observed.clone(), disk, gate.clone());
    let (sender, images) = mpsc::channel();
    gate.observe(move |op, _| {
        let beside = std::thread::current().name() == Some("weir-log-sync");
        if op != Op::Sync || !beside || done.load(Ordering::SeqCst) {
            return;
        }
        let before = now.load(Ordering::SeqCst);
        // The writer continues by itself: it stops at the gate, or sends two more items, of
        // which the first is answered. If it stops because its segment is full, it waits
        // for this thread; then the next sync is observed instead.
        let start = Instant::now();
        while waits.waiting() == 0 && now.load(Ordering::SeqCst) < before + 2 {
            if start.elapsed() > Duration::from_millis(200) {
                return;
            }
            std::thread::yield_now();
        }
        sender.send((image_of.killed(), before)).unwrap();
        done.store(true, Ordering::SeqCst);
    });
    while !observed.load(Ordering::SeqCst) {
        sent.fetch_add(1, Ordering::SeqCst);
        execute(&store, &[put("t", b"key", &[7; 1000])]);
    }
    store.close().unwrap();
    gate.observe(|_, _| {});
    let (image, sent) = images.recv().unwrap();
    let store = Store::open_disk(Arc::new(image), &options).unwrap();
    // One more intention is the creation of the topic.
    let found = store.applied().0 - 1;
    assert!(found <= sent, "{found} of {sent}: from the future");
}

#[test]
fn a_cut_during_recovery_changes_nothing() {
    let options = options();
    let (items, acts) = script(60, 30);
    let expected = Expected::of(items);
    let (sender, receiver) = mpsc::sync_channel(8);
    let mut count = 0;
    std::thread::scope(|scope| {
        let runner = scope.spawn(|| {
            let sender = sender;
            run(60, (&expected, &acts), &options, 1, &sender);
        });
        for (at, image) in receiver.into_iter().enumerate() {
            if at % 11 != 0 {
                continue;
            }
            for inner in recovery_images(&image, &options) {
                check(&inner, &expected, &acts, &options);
                count += 1;
            }
        }
        runner.join().unwrap();
    });
    assert!(count > 300, "recovery does too little: {count}");
}

/// Returns the rest of a script, for a store that already has `found` items.
fn acts_after(acts: &[Act], found: usize) -> Vec<Act> {
    let mut rest = Vec::new();
    for act in acts {
        match act {
            Act::Calls(calls) => {
                let left: Vec<_> = calls.iter().filter(|c| c.start >= found).cloned().collect();
                if left.is_empty() {
                    rest.clear();
                } else {
                    rest.push(Act::Calls(left));
                }
            }
            other => rest.push(other.clone()),
        }
    }
    rest
}

#[test]
fn several_lives_with_a_cut_in_each() {
    let options = options();
    let mut lives = 0;
    for seed in 300..300 + 30 * times() {
        let (items, acts) = script(seed, 50);
        let expected = Expected::of(items);
        let mut draw = crate::world::Draw(seed);
        let mut image = Image {
            disk: SimDisk::new(),
            progress: Progress::default(),
            what: String::new(),
            power: true,
        };
        while image.progress.acknowledged < expected.items.len() {
            lives += 1;
            image = live(&image, &expected, &acts, &options, &mut draw);
            image.what = format!("seed {seed}, life {lives}");
        }
        check(&image, &expected, &acts, &options);
    }
    assert!(lives > 100, "too few lives: {lives}");
}

/// Opens a disk after a crash and continues the script until the next crash.
fn live(
    image: &Image,
    expected: &Expected,
    acts: &[Act],
    options: &OpenOptions,
    draw: &mut crate::world::Draw,
) -> Image {
    let disk = image.disk.killed();
    let gate = Gate::new(disk.clone());
    let store = Store::open_disk(gate.disk(), options)
        .unwrap_or_else(|error| panic!("{}: {error}", image.what));
    let found = check_content(&store, image, expected);
    let mut start = image.progress.clone();
    (start.sent, start.acknowledged, start.durable) = (found, found, found);
    let progress = Arc::new(Mutex::new(start));
    let crash: Arc<Mutex<Option<(SimDisk, Progress)>>> = Arc::default();
    let (mut left, power, cut) = (draw.below(120), draw.below(3) > 0, draw.next());
    let (now, taken, source) = (Arc::clone(&progress), Arc::clone(&crash), disk.clone());
    gate.observe(move |op, _| {
        left = left.saturating_sub(u64::from(op.changes()));
        let mut taken = taken.lock().unwrap();
        if left == 0 && taken.is_none() {
            let disk = if power {
                source.power_cut(cut)
            } else {
                source.killed()
            };
            *taken = Some((disk, now.lock().unwrap().clone()));
        }
    });
    let mut store = Some(store);
    for act in acts_after(acts, found) {
        if crash.lock().unwrap().is_some() {
            break;
        }
        step(&mut store, &act, expected, &gate, options, &progress);
    }
    drop(store);
    let crash = crash.lock().unwrap().take();
    let end = || (disk.killed(), progress.lock().unwrap().clone());
    let (disk, progress) = crash.unwrap_or_else(end);
    Image {
        disk,
        progress,
        what: image.what.clone(),
        power,
    }
}

/// Returns images of every moment of the recovery of an image.
fn recovery_images(image: &Image, options: &OpenOptions) -> Vec<Image> {
    let found = Arc::new(Mutex::new(Vec::new()));
    let disk = image.disk.killed();
    let gate = Gate::new(disk.clone());
    let (collected, outer) = (Arc::clone(&found), image.what.clone());
    let (progress, power) = (image.progress.clone(), image.power);
    gate.observe(move |op, path| {
        if !op.changes() {
            return;
        }
        let mut collected = collected.lock().unwrap();
        let number = collected.len() as u64;
        for (disk, kind) in [(disk.power_cut(number + 5), "cut"), (disk.killed(), "kill")] {
            collected.push(Image {
                disk,
                progress: progress.clone(),
                what: format!("{outer}, {kind} in recovery at {number} ({op:?} {path})"),
                power,
            });
        }
    });
    drop(Store::open_disk(gate.disk(), options).unwrap());
    gate.observe(|_, _| {});
    let mut found = found.lock().unwrap();
    std::mem::take(&mut *found)
}
