//! Damaged files: every kind of damage, at every position. The open either reports the
//! damage and changes nothing, or repairs it without losing an entry.

use std::sync::Arc;

use crate::log_sim::{
    Entries, ID, SplitMix, Step, entries, open, options, payload, register_payloads, run, scale,
};
use weir_store::disk::{Disk, SimDisk};
use weir_store::error::StoreError;
use weir_store::log::{Log, LogIndex, LogSeverity, verify};

/// How the store was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// A clean stop.
    Clean,
    /// The log was sealed, then the process was killed.
    Sealed,
    /// The process was killed after several synced batches, and no later write proves them.
    Synced,
}

/// A store with several segments, a truncation, a purge, a cut file and a repair segment.
/// All its entries are durable.
fn store(stop: Stop) -> (SimDisk, Entries) {
    let mut draw = SplitMix(5);
    let mut steps: Vec<Step> = Vec::new();
    for round in 0..4 {
        for _ in 0..9 {
            steps.push(Step::Append(draw.next()));
        }
        steps.extend([
            Step::Sync,
            Step::Truncate(2),
            Step::Append(round),
            Step::Append(77),
        ]);
        steps.extend([Step::Sync, Step::Seal, Step::Kill]);
    }
    steps.push(Step::Purge(20));
    register_payloads(&mut steps);
    let disk = SimDisk::new();
    assert!(run(&disk, &steps, &options()).complete);
    // A torn end results in a cut file and a repair segment.
    let torn = {
        let disk = disk.killed();
        let (mut log, _) = open(&disk, &options()).unwrap();
        log.append(9, 1, &[&payload(payload_number(&mut draw, 2000))])
            .unwrap();
        (0..1000)
            .map(|seed| disk.power_cut(seed))
            .find(has_torn_end)
            .unwrap()
    };
    let (mut log, recovery) = open(&torn, &options()).unwrap();
    assert_eq!(recovery.cuts.len(), 1, "{recovery:?}");
    for number in [payload_number(&mut draw, 9), payload_number(&mut draw, 700)] {
        log.append(10, 1, &[&payload(number)]).unwrap();
    }
    log.sync().unwrap();
    for _ in 0..3 {
        log.append(11, 1, &[&payload(payload_number(&mut draw, 600))])
            .unwrap();
    }
    log.sync().unwrap();
    let all = entries(&log);
    match stop {
        Stop::Clean => log.close().unwrap(),
        Stop::Sealed => log.seal().unwrap(),
        Stop::Synced => drop(log),
    }
    assert!(
        torn.files()
            .iter()
            .filter(|file| file.ends_with(".log"))
            .count()
            >= 3
    );
    assert_eq!(
        torn.files()
            .iter()
            .filter(|file| file.starts_with("cut/"))
            .count(),
        1
    );
    // All writes were synced, so a power cut changes nothing.
    (torn.power_cut(1), all)
}

fn payload_number(draw: &mut SplitMix, least: usize) -> u64 {
    loop {
        let mut step = [Step::Append(draw.next())];
        register_payloads(&mut step);
        let [Step::Append(number)] = step else {
            unreachable!()
        };
        if payload(number).len() >= least {
            return number;
        }
    }
}

fn has_torn_end(disk: &SimDisk) -> bool {
    let probe = disk.killed();
    open(&probe, &options()).is_ok_and(|(_, recovery)| recovery.cuts.len() == 1)
}

fn verify_findings(disk: &SimDisk) -> Vec<(String, u64, LogSeverity)> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let report = verify(&disk, &ID).unwrap();
    let findings = report.findings.into_iter();
    findings
        .map(|finding| (finding.file, finding.position, finding.severity))
        .collect()
}

/// The content of all files, to check that nothing changed.
fn image(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    disk.files()
        .into_iter()
        .map(|file| (file.clone(), disk.content(&file).unwrap()))
        .collect()
}

fn is_refusal(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Damage { .. }
            | StoreError::NewerFormat { .. }
            | StoreError::UnknownContent { .. }
            | StoreError::ForeignStore { .. }
            | StoreError::Missing { .. }
    )
}

/// Opens a damaged disk. Returns whether it has all entries; if not, the open was refused
/// without a change.
fn is_complete_or_refused(damaged: &SimDisk, all: &Entries, what: &str) -> bool {
    let before = image(damaged);
    let mut strict = options();
    strict.create = false;
    match open(damaged, &strict) {
        Ok((log, _)) => {
            assert_eq!(&entries(&log), all, "{what}: silently different");
            true
        }
        Err(error) if is_refusal(&error) => {
            assert!(
                before == image(damaged),
                "{what}: {error}, but something was changed"
            );
            false
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
fn a_flipped_bit_is_refused_or_harmless_and_always_reported() {
    for stop in [Stop::Clean, Stop::Sealed, Stop::Synced] {
        let (disk, all) = store(stop);
        let before = verify_findings(&disk);
        assert!(
            before.iter().all(|finding| finding.2 == LogSeverity::Note),
            "{before:?}"
        );
        let mut draw = SplitMix(stop as u64);
        let (mut refused, mut harmless) = (0, 0);
        for file in disk.files() {
            let content = disk.content(&file).unwrap();
            let mut at = 0;
            while at < content.len() {
                let bit = (draw.next() % 8) as u8;
                let what = format!("{stop:?}: {file} byte {at} bit {bit}");
                let damaged = disk.killed();
                damaged.flip(&file, at, bit);
                assert_ne!(
                    verify_findings(&damaged),
                    before,
                    "{what}: not found by verify"
                );
                if is_complete_or_refused(&damaged, &all, &what) {
                    harmless += 1;
                } else {
                    refused += 1;
                }
                // Smaller steps in parts of the file that are not zero.
                let is_zero = content[at..].iter().take(64).all(|byte| *byte == 0);
                let step = if is_zero { 700 } else { 40 };
                at += 1 + draw.below(1 + step / scale()) as usize;
            }
        }
        assert!(
            refused > 300 && harmless > 20,
            "{refused} refused, {harmless} harmless"
        );
    }
}

#[test]
fn a_file_of_any_other_length_is_refused_or_harmless() {
    for stop in [Stop::Clean, Stop::Synced] {
        let (disk, all) = store(stop);
        let before = verify_findings(&disk);
        for file in disk.files() {
            let len = disk.content(&file).unwrap().len();
            for to in (0..len).step_by(397).chain([len - 1, len - 512]) {
                let what = format!("{stop:?}: {file} {len} -> {to}");
                let damaged = disk.killed();
                damaged.shorten(&file, to);
                assert_ne!(
                    verify_findings(&damaged),
                    before,
                    "{what}: not found by verify"
                );
                is_complete_or_refused(&damaged, &all, &what);
            }
            let damaged = disk.killed();
            let mut longer = disk.content(&file).unwrap();
            longer.extend([0; 512]);
            damaged.put(&file, longer);
            is_complete_or_refused(&damaged, &all, &format!("{stop:?}: {file} longer"));
        }
    }
}

#[test]
fn missing_swapped_and_duplicated_files_are_refused() {
    for stop in [Stop::Clean, Stop::Sealed, Stop::Synced] {
        let (disk, all) = store(stop);
        let files: Vec<String> = disk
            .files()
            .into_iter()
            .filter(|file| file.starts_with("log/"))
            .collect();
        for file in &files {
            let damaged = disk.killed();
            damaged.take(file);
            assert!(!is_complete_or_refused(
                &damaged,
                &all,
                &format!("{stop:?}: {file} missing")
            ));
            assert!(!verify_findings(&damaged).is_empty());
            for other in &files {
                if file == other {
                    continue;
                }
                let (one, two) = (disk.content(file).unwrap(), disk.content(other).unwrap());
                let damaged = disk.killed();
                damaged.put(file, two.clone());
                assert!(!is_complete_or_refused(
                    &damaged,
                    &all,
                    &format!("{stop:?}: {other} as {file}")
                ));
                damaged.put(other, one);
                assert!(!is_complete_or_refused(
                    &damaged,
                    &all,
                    &format!("{stop:?}: {file} <> {other}")
                ));
            }
            if file.ends_with(".log") {
                let damaged = disk.killed();
                damaged.put("log/00000000000000009999.log", disk.content(file).unwrap());
                assert!(!is_complete_or_refused(
                    &damaged,
                    &all,
                    &format!("{stop:?}: {file} twice")
                ));
            }
        }
        let damaged = disk.killed();
        for file in &files {
            damaged.take(file);
        }
        assert!(!is_complete_or_refused(&damaged, &all, "all files missing"));
    }
}

#[test]
fn a_missing_repair_segment_is_refused() {
    // The start file names the repair segment, although no roll mark leads to it.
    let (disk, _, _) = groups(&[1, 3]);
    let (mut log, recovery) = open(&disk, &options()).unwrap();
    assert!(recovery.repaired);
    log.append(1, 1, &[&payload(3)]).unwrap();
    log.sync().unwrap();
    let all = entries(&log);
    drop(log);
    let segments = disk
        .files()
        .into_iter()
        .filter(|file| file.ends_with(".log"));
    let newest = segments.max().unwrap();
    assert_ne!(newest, FIRST);
    disk.take(&newest);
    // Also if the preceding segment is not shortened yet.
    let not_shortened = disk.killed();
    let mut front = disk.content(FIRST).unwrap();
    front.resize(16 << 10, 0);
    not_shortened.put(FIRST, front);
    assert!(!is_complete_or_refused(
        &not_shortened,
        &all,
        "the repair segment is missing after a complete segment"
    ));
    assert!(!is_complete_or_refused(
        &disk,
        &all,
        "the repair segment is missing"
    ));
    assert!(
        verify_findings(&disk)
            .iter()
            .any(|finding| finding.2 == LogSeverity::Damage)
    );
}

#[test]
fn a_segment_with_another_salt_is_refused() {
    let (disk, all) = store(Stop::Synced);
    // Two disks with one script have equal file names; only the salt differs.
    let mut other_options = options();
    other_options.entropy = 43;
    let files: Vec<String> = disk
        .files()
        .into_iter()
        .filter(|file| file.ends_with(".log"))
        .collect();
    let mut steps = vec![Step::Append(1); 60];
    register_payloads(&mut steps);
    let other = SimDisk::new();
    run(&other, &steps, &other_options);
    for file in &files {
        for foreign in other.files().iter().filter(|file| file.ends_with(".log")) {
            let damaged = disk.killed();
            damaged.put(file, other.content(foreign).unwrap());
            assert!(!is_complete_or_refused(
                &damaged,
                &all,
                &format!("{foreign} as {file}")
            ));
        }
    }
}

#[test]
fn any_damage_of_sectors_is_refused_or_leaves_a_prefix() {
    // Sectors are zeroed, copied, or filled with random bytes, several at once. There
    // must be no panic, no entry that was never written, and no entry out of order.
    let (disk, all) = store(Stop::Synced);
    let files = disk.files();
    let mut draw = SplitMix(99);
    let (mut refused, mut opened) = (0, 0);
    for round in 0..1500 * scale() {
        let damaged = disk.killed();
        for _ in 0..=draw.below(3) {
            let file = &files[draw.below(files.len() as u64) as usize];
            let mut content = damaged.content(file).unwrap();
            let sectors = (content.len() / 512) as u64;
            let at = draw.below(sectors) as usize * 512;
            let from = draw.below(sectors) as usize * 512;
            match draw.below(4) {
                0 => content[at..at + 512].fill(0),
                1 => content.copy_within(from..from + 512, at),
                2 => content[at..at + 512].fill_with(|| draw.next() as u8),
                _ => content[at..].fill(0),
            }
            damaged.put(file, content);
        }
        match open(&damaged, &options()) {
            Ok((log, _)) => {
                let found = entries(&log);
                assert!(all.starts_with(&found), "round {round}");
                opened += 1;
            }
            Err(error) => {
                assert!(is_refusal(&error), "round {round}: {error}");
                refused += 1;
            }
        }
        let disk: Arc<dyn Disk> = Arc::new(damaged);
        verify(&disk, &ID).unwrap();
    }
    assert!(refused > 500 && opened > 50, "{refused} {opened}");
}

// The rows of the table in docs/formats/log.md, section 7.2.

/// Appends entries in groups, with a sync after each group. Returns the disk, the positions
/// of the entries in the first segment, and the entries.
fn groups(sizes: &[usize]) -> (SimDisk, Vec<usize>, Entries) {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk, &options()).unwrap();
    let mut step = [Step::Append(3), Step::Append(4)];
    register_payloads(&mut step);
    let [Step::Append(first), Step::Append(second)] = step else {
        unreachable!()
    };
    for size in sizes {
        for at in 0..*size {
            let number = if at % 2 == 0 { first } else { second };
            log.append(1, 1, &[&payload(number)]).unwrap();
        }
        log.sync().unwrap();
    }
    let all = entries(&log);
    let content = disk.content("log/00000000000000000001.log").unwrap();
    let positions = (4096..content.len())
        .step_by(512)
        .filter(|at| content[*at..].starts_with(b"WBAT") && content[at + 6] == 1)
        .collect();
    (disk, positions, all)
}

const FIRST: &str = "log/00000000000000000001.log";

fn zero_sector(disk: &SimDisk, at: usize) {
    let mut content = disk.content(FIRST).unwrap();
    content[at..at + 512].fill(0);
    disk.put(FIRST, content);
}

fn reopen(disk: &SimDisk) -> Result<(Entries, u64), StoreError> {
    let (log, recovery) = open(disk, &options())?;
    Ok((
        entries(&log),
        recovery.cuts.iter().map(|cut| cut.bytes).sum(),
    ))
}

fn check_refused_at(disk: &SimDisk, at: usize) {
    check_refused_in(disk, FIRST, at);
}

fn check_refused_in(disk: &SimDisk, path: &str, at: usize) {
    match open(disk, &options()) {
        Err(StoreError::Damage { file, position, .. }) => {
            assert_eq!((file.as_str(), position), (path, at as u64));
        }
        other => panic!("{:?}", other.map(|(_, recovery)| recovery)),
    }
}

#[test]
fn row_1_a_lost_batch_that_a_later_one_proves_is_damage() {
    // The second group proves that the first was synced.
    let (disk, at, _) = groups(&[2, 1]);
    zero_sector(&disk, at[0]);
    check_refused_at(&disk, at[0]);
    let (disk, at, _) = groups(&[2, 1]);
    zero_sector(&disk, at[1]);
    check_refused_at(&disk, at[1]);
}

#[test]
fn row_2_zeros_to_the_end_are_the_end() {
    let (disk, at, all) = groups(&[1, 1]);
    // The last batch is removed completely, so no byte proves that it existed.
    let (_, _, one) = groups(&[1]);
    let mut content = disk.content(FIRST).unwrap();
    content[at[1]..].fill(0);
    disk.put(FIRST, content);
    assert_eq!(reopen(&disk).unwrap(), (one, 0));
    assert_eq!(all.len(), 2);
}

#[test]
fn row_3_anything_after_a_clean_stop_is_damage() {
    let (disk, _, _) = groups(&[2]);
    let (log, _) = open(&disk, &options()).unwrap();
    log.close().unwrap();
    let segments = disk
        .files()
        .into_iter()
        .filter(|file| file.ends_with(".log"));
    let last = segments.max().unwrap();
    let content = disk.content(&last).unwrap();
    let end = content
        .chunks(512)
        .rposition(|sector| sector.iter().any(|byte| *byte != 0));
    let end = (end.unwrap() + 1) * 512;
    for at in [end, end + 600, content.len() - 1] {
        let damaged = disk.killed();
        damaged.flip(&last, at, 3);
        check_refused_in(&damaged, &last, end);
    }
}

#[test]
fn row_4_a_valid_batch_out_of_order_is_damage() {
    // The third batch of a longer log is after the first batch of a shorter log, and the
    // second batch is missing.
    let (disk, at, _) = groups(&[1, 1]);
    let (longer, other_at, _) = groups(&[1, 1, 1]);
    let mut content = disk.content(FIRST).unwrap();
    let other = longer.content(FIRST).unwrap();
    content[at[1]..at[1] + 512].fill(0);
    content[other_at[2]..].copy_from_slice(&other[other_at[2]..]);
    disk.put(FIRST, content);
    // The successor of the lost batch proves it.
    check_refused_at(&disk, at[1]);
}

#[test]
fn row_5_a_lost_header_that_nothing_proves_is_torn() {
    // One group of three entries is not proven. One of its entries is lost, and so is
    // everything after it.
    let (_, _, all) = groups(&[1, 3]);
    for lost in 1..4 {
        let (disk, at, _) = groups(&[1, 3]);
        zero_sector(&disk, at[lost]);
        let (found, cut) = reopen(&disk).unwrap();
        assert_eq!(found, all[..lost]);
        let len = disk
            .files()
            .iter()
            .filter(|file| file.starts_with("cut/"))
            .count();
        assert_eq!(len > 0, cut > 0);
    }
}

#[test]
fn row_6_a_lost_payload_sector_that_nothing_proves_is_torn() {
    let (disk, at, all) = groups(&[1, 2]);
    let long = at
        .windows(2)
        .position(|pair| pair[1] - pair[0] > 512 && pair[0] == at[1]);
    let lost = if long.is_some() { 1 } else { 2 };
    zero_sector(&disk, at[lost] + 512);
    assert_eq!(reopen(&disk).unwrap().0, all[..lost]);
}

#[test]
fn row_8_a_batch_with_all_its_sectors_is_damage_even_if_nothing_proves_it() {
    for group in 1..4 {
        for byte in [0, 7, 40, 96, 124, 130, 300] {
            let (disk, at, _) = groups(&[1, 3]);
            disk.flip(FIRST, at[group] + byte, 2);
            check_refused_at(&disk, at[group]);
        }
    }
}

#[test]
fn a_sector_with_one_set_bit_is_never_written() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk, &options()).unwrap();
    for len in [1, 385, 384 + 513, 5000] {
        for byte in [1_u8, 2, 4, 8, 16, 32, 64, 128] {
            let mut bytes = vec![0; len];
            bytes[len - 1] = byte;
            log.append(1, 1, &[&bytes]).unwrap();
            let mut reader = log.reader(log.last_index());
            assert_eq!(
                &*reader.next(log.last_index()).unwrap().unwrap().payload,
                &bytes[..]
            );
        }
    }
    log.sync().unwrap();
    assert!(log.stats().masked >= 24, "{:?}", log.stats());
    for file in disk.files().iter().filter(|file| file.ends_with(".log")) {
        for sector in disk.content(file).unwrap().chunks(512) {
            assert_ne!(sector.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        }
    }
}

#[test]
fn a_cut_file_is_retained_for_seven_days() {
    let (disk, at, _) = groups(&[1, 3]);
    let whole = disk.content(FIRST).unwrap();
    zero_sector(&disk, at[2]);
    let (_, recovery) = open(&disk, &options()).unwrap();
    let cut = &recovery.cuts[0];
    let content = disk.content(cut.kept_in.as_ref().unwrap()).unwrap();
    assert_eq!(cut.position, at[2] as u64);
    assert_eq!(
        content[512 + 512..],
        whole[at[2] + 512..at[2] + cut.bytes as usize]
    );
    let mut later = options();
    later.now_unix_s += 7 * 24 * 3600;
    drop(Log::open(Arc::new(disk.clone()), ID, later.clone()).unwrap());
    assert!(disk.files().iter().any(|file| file.starts_with("cut/")));
    later.now_unix_s += 1;
    drop(Log::open(Arc::new(disk.clone()), ID, later).unwrap());
    assert!(!disk.files().iter().any(|file| file.starts_with("cut/")));
}

#[test]
fn a_reader_reports_damage_after_the_open() {
    let (disk, at, _) = groups(&[3]);
    let (log, _) = open(&disk, &options()).unwrap();
    let last = at.len() - 1;
    // The repair has copied the entries, so the last entry may be in any file.
    let mut damaged = 0;
    for file in disk.files().iter().filter(|file| file.ends_with(".log")) {
        let content = disk.content(file).unwrap();
        for position in (4096..content.len()).step_by(512) {
            let header = &content[position..];
            if header.starts_with(b"WBAT") && header[6] == 1 && header[48] == last as u8 + 1 {
                disk.flip(file, position + 200, 1);
                damaged += 1;
            }
        }
    }
    assert!(damaged > 0);
    let mut reader = log.reader(LogIndex(1));
    assert!(reader.next(LogIndex(9)).unwrap().is_some());
    assert!(reader.next(LogIndex(9)).unwrap().is_some());
    match reader.next(LogIndex(9)) {
        Err(error) => assert!(error.is_damage()),
        Ok(entry) => panic!("{entry:?}"),
    }
}
