//! Power cuts and kills at every operation of a script, and again at every operation of the
//! recovery. The recovered store must be a prefix of the sent items that contains all
//! acknowledged items (I2). The order of purged, snapshot and applied must hold (I3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use weir_core::{Digest, Outcome};
use weir_store::disk::{Disk, SimDisk};
use weir_store::{Durability, OpenOptions, Store};

use crate::disks::{Gate, Op};
use crate::model::{Action, Expected, Item, check_topic, script, with_intentions};
use crate::world::{create, execute, options, put, state, times};

/// The progress of a script at the moment of an image.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Number of items sent.
    pub sent: usize,
    /// Number of items acknowledged.
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

/// Runs a script, and sends images of the disk after each operation that changes it.
fn run(
    seed: u64,
    (expected, actions): (&Expected, &[Action]),
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
    for action in actions {
        step(&mut store, action, expected, &gate, options, &progress);
    }
    progress.lock().unwrap().ended = true;
    store.unwrap().close().unwrap();
}

fn step(
    store: &mut Option<Store>,
    action: &Action,
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
    match action {
        Action::Calls(calls) => {
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
        Action::Checkpoint => {
            open.checkpoint().unwrap();
            all_durable();
        }
        Action::CompactLog => {
            open.compact_log().unwrap();
            all_durable();
        }
        Action::CompactTopic(name) => {
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
        Action::Sync => {
            open.sync().unwrap();
            all_durable();
        }
        Action::Reopen => {
            store.take().unwrap().close().unwrap();
            all_durable();
            *store = Some(Store::open_disk(gate.disk(), options).unwrap());
        }
        Action::Kill => {
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
    let is_present = |at: &usize| {
        let item = &expected.items[*at];
        item.nonce <= store.last_nonce(item.client)
    };
    let found = (0..expected.items.len()).take_while(is_present).count();
    assert!(
        !(found..expected.items.len()).any(|at| is_present(&at)),
        "{what}: a gap"
    );
    let required = if image.power {
        image.progress.durable
    } else {
        image.progress.acknowledged
    };
    assert!(
        found >= required,
        "{what}: {found} items, {required} are required"
    );
    assert!(
        found <= image.progress.sent,
        "{what}: more items than were sent"
    );
    assert_eq!(store.applied().0, found as u64, "{what}");
    for (item, commit) in expected.items.iter().zip(&expected.commits).take(found) {
        let stored = store.outcome(item.client, item.nonce);
        assert_eq!(
            stored.as_ref(),
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
pub fn check(image: &Image, expected: &Expected, actions: &[Action], options: &OpenOptions) {
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
        "{what}: a crash must not make a snapshot unusable: {aside:?}"
    );
    let found = check_content(&store, image, expected);
    let digest = store.digest();
    // A record that a reader got must exist after any later crash.
    let again = open(&image.disk.power_cut(7));
    assert!(again.report().log.cuts.is_empty(), "{what}: a second cut");
    assert_eq!(check_content(&again, image, expected), found, "{what}");
    assert_eq!(again.digest(), digest, "{what}");
    drop(again);
    let calls = actions.iter().filter_map(|action| match action {
        Action::Calls(calls) => Some(calls.iter()),
        _ => None,
    });
    let mut call_ends = BTreeSet::from([0]);
    for call in calls.flatten() {
        call_ends.insert(call.end);
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
    assert!(call_ends.contains(&found), "{what}: a part of a call");
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

/// Makes an image at every operation. Returns the number of images checked.
fn check_everywhere(seed: u64, len: usize, images: u64, level: Durability) -> usize {
    let options = OpenOptions {
        durability: level,
        ..options()
    };
    let (items, actions) = script(seed, len);
    check_actions_everywhere(seed, (items, actions), images, &options, |_| {})
}

fn check_actions_everywhere(
    seed: u64,
    (items, actions): (Vec<Item>, Vec<Action>),
    images: u64,
    options: &OpenOptions,
    mut each: impl FnMut(&Image),
) -> usize {
    let expected = Expected::compute(items);
    let (sender, receiver) = mpsc::sync_channel(8);
    std::thread::scope(|scope| {
        let runner = scope.spawn(|| {
            let sender = sender;
            run(seed, (&expected, &actions), options, images, &sender);
        });
        let mut count = 0;
        for image in receiver {
            each(&image);
            check(&image, &expected, &actions, options);
            count += 1;
        }
        runner.join().unwrap();
        count
    })
}

#[test]
fn nothing_acknowledged_is_lost_at_any_operation_of_the_group_level() {
    let count: usize = (0..4 * times())
        .map(|seed| check_everywhere(seed, 36, 2, Durability::Group))
        .sum();
    assert!(count > 1_500, "the scripts do too little: {count}");
}

#[test]
fn nothing_acknowledged_is_lost_at_any_operation_of_the_each_level() {
    let count = check_everywhere(40, 36, 2, Durability::Each);
    assert!(count > 300, "the script does too little: {count}");
}

#[test]
fn weaker_levels_lose_a_tail_and_never_leave_a_gap() {
    let mut count = 0;
    for (seed, level) in [
        (50, Durability::Memory),
        (51, Durability::Interval(Duration::ZERO)),
        (52, Durability::Interval(Duration::from_hours(1))),
    ] {
        count += check_everywhere(seed, 36, 2, level);
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
    let (mut purged, mut removals) = (0, 0);
    for seed in 70..70 + 2 * times() {
        let (items, mut actions) = script(seed, 60);
        // The script requests neither purges nor snapshots.
        actions.retain(|action| !matches!(action, Action::CompactLog | Action::Checkpoint));
        let count = check_actions_everywhere(seed, (items, actions), 2, &options, |image| {
            let logs = |path: &String| path.starts_with("log/0");
            let Some(first) = image.disk.files().into_iter().find(logs) else {
                return;
            };
            purged += u64::from(!first.ends_with("/00000000000000000001.log"));
            removals += u64::from(image.what.contains("(Remove log/"));
        });
        assert!(count > 500, "the script does too little: {count}");
    }
    assert!(purged > 100 && removals > 5, "{purged}, {removals}");
}

/// At levels that do not wait for a sync, a separate thread syncs a full log segment while
/// the commit thread continues to write. An image of that moment must not contain more than
/// was sent until then.
#[test]
fn the_disk_does_not_change_while_an_image_is_captured() {
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
        let is_sync_thread = std::thread::current().name() == Some("weir-log-sync");
        if op != Op::Sync || !is_sync_thread || done.load(Ordering::SeqCst) {
            return;
        }
        let before = now.load(Ordering::SeqCst);
        // The writer continues by itself: it stops at the gate, or sends two more items, of
        // which the first is acknowledged. If it stops because its segment is full, it waits
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
    assert!(found <= sent, "{found} items, {sent} were sent");
}

#[test]
fn a_cut_during_recovery_changes_nothing() {
    let options = options();
    let (items, actions) = script(60, 30);
    let expected = Expected::compute(items);
    let (sender, receiver) = mpsc::sync_channel(8);
    let mut count = 0;
    std::thread::scope(|scope| {
        let runner = scope.spawn(|| {
            let sender = sender;
            run(60, (&expected, &actions), &options, 1, &sender);
        });
        for (at, image) in receiver.into_iter().enumerate() {
            if at % 11 != 0 {
                continue;
            }
            for inner in recovery_images(&image, &options) {
                check(&inner, &expected, &actions, &options);
                count += 1;
            }
        }
        runner.join().unwrap();
    });
    assert!(count > 300, "recovery does too little: {count}");
}

/// Returns the rest of a script, for a store that already has `found` items.
fn actions_after(actions: &[Action], found: usize) -> Vec<Action> {
    let mut rest = Vec::new();
    for action in actions {
        match action {
            Action::Calls(calls) => {
                let left: Vec<_> = calls.iter().filter(|c| c.start >= found).cloned().collect();
                if left.is_empty() {
                    rest.clear();
                } else {
                    rest.push(Action::Calls(left));
                }
            }
            other => rest.push(other.clone()),
        }
    }
    rest
}

#[test]
fn several_runs_with_a_cut_in_each() {
    let options = options();
    let mut runs = 0;
    for seed in 300..300 + 30 * times() {
        let (items, actions) = script(seed, 50);
        let expected = Expected::compute(items);
        let mut draw = crate::world::SplitMix(seed);
        let mut image = Image {
            disk: SimDisk::new(),
            progress: Progress::default(),
            what: String::new(),
            power: true,
        };
        while image.progress.acknowledged < expected.items.len() {
            runs += 1;
            image = run_until_crash(&image, &expected, &actions, &options, &mut draw);
            image.what = format!("seed {seed}, run {runs}");
        }
        check(&image, &expected, &actions, &options);
    }
    assert!(runs > 100, "too few runs: {runs}");
}

/// Opens a disk after a crash and continues the script until the next crash.
fn run_until_crash(
    image: &Image,
    expected: &Expected,
    actions: &[Action],
    options: &OpenOptions,
    draw: &mut crate::world::SplitMix,
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
    let (mut remaining_ops, power, cut) = (draw.below(120), draw.below(3) > 0, draw.next());
    let (now, captured, source) = (Arc::clone(&progress), Arc::clone(&crash), disk.clone());
    gate.observe(move |op, _| {
        remaining_ops = remaining_ops.saturating_sub(u64::from(op.changes()));
        let mut captured = captured.lock().unwrap();
        if remaining_ops == 0 && captured.is_none() {
            let disk = if power {
                source.power_cut(cut)
            } else {
                source.killed()
            };
            *captured = Some((disk, now.lock().unwrap().clone()));
        }
    });
    let mut store = Some(store);
    for action in actions_after(actions, found) {
        if crash.lock().unwrap().is_some() {
            break;
        }
        step(&mut store, &action, expected, &gate, options, &progress);
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

/// Returns images of the disk after each change that the recovery of an image makes.
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
