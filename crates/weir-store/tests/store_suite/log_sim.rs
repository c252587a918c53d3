//! A scripted workload on the simulated disk, and the oracle that determines the valid
//! contents of a recovered log.

use std::sync::Arc;

use weir_store::disk::{Disk, SimDisk};
use weir_store::error::StoreError;
use weir_store::log::{Log, LogIndex, LogOptions, Recovery};

pub const ID: [u8; 16] = *b"a store of tests";

/// Pseudo-random numbers from a seed (the splitmix generator).
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Factor for the work of a sweep: `WEIR_TEST_SCALE`; 1 if unset.
pub fn scale() -> u64 {
    std::env::var("WEIR_TEST_SCALE")
        .ok()
        .and_then(|scale| scale.parse().ok())
        .unwrap_or(1)
}

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Appends an entry with the payload of this number.
    Append(u64),
    Sync,
    Seal,
    /// Removes this number of entries from the end.
    Truncate(u64),
    /// Purges all entries except this number of the last ones.
    Purge(u64),
    /// Drops all entries and continues this number of indexes later.
    Reset(u64),
    /// Clean stop, then open.
    Close,
    /// The process is killed and restarted; the page cache survives.
    Kill,
}

/// Entries as index, term and payload number.
pub type Entries = Vec<(u64, u64, u64)>;

/// The results of a run of a script.
#[derive(Debug, Default)]
pub struct Trace {
    /// The entries after each step that may change them. Purges are not applied.
    pub states: Vec<Entries>,
    /// Index of the last state that was reported as durable.
    pub acknowledged: usize,
    /// Highest index for which a purge was requested.
    pub purged: u64,
    /// Whether the script ran to its end.
    pub complete: bool,
}

pub fn options() -> LogOptions {
    let mut options = LogOptions::default();
    options.segment_bytes_first = 16 << 10;
    options.segment_bytes_max = 32 << 10;
    options.reserve_bytes = 0;
    options.zero_ahead_bytes = 4096;
    options.now_unix_s = 1_000_000;
    options.entropy = 42;
    options
}

/// Returns the payload of a number: sizes around sector borders, zeros, sparse bytes, and
/// last sectors with a single set bit.
pub fn payload(number: u64) -> Vec<u8> {
    let mut draw = SplitMix(number);
    let len = match draw.below(8) {
        0 => draw.below(8),
        1 => 384 + 512 * draw.below(4),
        2 => 385 + 512 * draw.below(4),
        3 => 3000 + draw.below(6000),
        _ => draw.below(1500),
    };
    let len = usize::try_from(len).unwrap();
    let mut bytes = vec![0; len];
    match draw.below(6) {
        0 => {}
        1 => {
            for _ in 0..3 {
                if len > 0 {
                    let at = usize::try_from(draw.below(len as u64)).unwrap();
                    bytes[at] = 0x20;
                }
            }
        }
        2 => {
            bytes.fill(b'x');
            if let Some(last) = bytes.last_mut() {
                *last = b'@';
            }
        }
        _ => bytes
            .iter_mut()
            .for_each(|byte| *byte = draw.next().to_le_bytes()[0]),
    }
    bytes
}

/// Creates a script of about `len` steps from a seed.
pub fn script(seed: u64, len: u64) -> Vec<Step> {
    let mut draw = SplitMix(seed);
    let mut steps = Vec::new();
    while (steps.len() as u64) < len {
        steps.push(match draw.below(40) {
            0 | 1 => Step::Seal,
            2 | 3 => Step::Truncate(1 + draw.below(6)),
            4 => Step::Purge(draw.below(10)),
            5 => Step::Close,
            6 => Step::Kill,
            7 if draw.below(3) == 0 => Step::Reset(1 + draw.below(5)),
            8..=19 => Step::Sync,
            _ => Step::Append(draw.next()),
        });
    }
    steps
}

fn shared(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

pub fn open(disk: &SimDisk, options: &LogOptions) -> Result<(Log, Recovery), StoreError> {
    Log::open(shared(disk), ID, options.clone())
}

/// Runs a script on `disk` until it ends or a call fails.
pub fn run(disk: &SimDisk, script: &[Step], options: &LogOptions) -> Trace {
    let mut trace = Trace {
        states: vec![Vec::new()],
        ..Trace::default()
    };
    trace.complete = steps(disk, script, options, &mut trace).is_ok();
    trace
}

fn steps(
    disk: &SimDisk,
    script: &[Step],
    options: &LogOptions,
    trace: &mut Trace,
) -> Result<(), StoreError> {
    let (mut log, _) = open(disk, options)?;
    let mut current: Entries = Vec::new();
    let mut term = 1;
    for step in script {
        match *step {
            Step::Append(number) => {
                let bytes = payload(number);
                let (head, tail) = bytes.split_at(bytes.len() / 2);
                let index = log.last_index().0 + 1;
                current.push((index, term, number));
                // The entry may be in the log even if the append fails.
                trace.states.push(current.clone());
                assert_eq!(log.append(term, 1, &[head, tail])?.0, index);
            }
            Step::Sync => {
                log.sync()?;
                trace.acknowledged = trace.states.len() - 1;
                assert_eq!(log.durable_index(), log.last_index());
            }
            Step::Seal => {
                log.seal()?;
                trace.acknowledged = trace.states.len() - 1;
            }
            Step::Truncate(back) => {
                let low = log.first_index().0 - 1;
                let keep = log.last_index().0.saturating_sub(back).max(low);
                current.retain(|entry| entry.0 <= keep);
                trace.states.push(current.clone());
                if keep == log.last_index().0 {
                    // A truncation after the last entry is a no-op, without a sync.
                    log.sync()?;
                }
                log.truncate_after(LogIndex(keep))?;
                term += 1;
                trace.acknowledged = trace.states.len() - 1;
            }
            Step::Purge(leave) => {
                let low = log.first_index().0 - 1;
                let through = log.durable_index().0.saturating_sub(leave).max(low);
                trace.purged = trace.purged.max(through);
                log.purge_through(LogIndex(through))?;
            }
            Step::Reset(ahead) => {
                let next = log.last_index().0 + ahead;
                current.clear();
                trace.states.push(current.clone());
                trace.purged = next - 1;
                term += 1;
                log.reset(LogIndex(next), term)?;
                trace.acknowledged = trace.states.len() - 1;
            }
            Step::Close => {
                log.close()?;
                trace.acknowledged = trace.states.len() - 1;
                let (again, recovery) = open(disk, options)?;
                assert!(recovery.clean && !recovery.repaired, "{recovery:?}");
                log = again;
                assert_eq!(read_all(&log)?, purged(&current, &log));
            }
            Step::Kill => {
                drop(log);
                let (again, recovery) = open(disk, options)?;
                assert!(
                    recovery.cuts.is_empty(),
                    "a kill tears no batch: {recovery:?}"
                );
                log = again;
                assert_eq!(read_all(&log)?, purged(&current, &log));
                trace.acknowledged = trace.states.len() - 1;
            }
        }
    }
    Ok(())
}

fn purged(state: &Entries, log: &Log) -> Entries {
    let first = log.first_index().0;
    state
        .iter()
        .copied()
        .filter(|entry| entry.0 >= first)
        .collect()
}

/// Returns the entries of a log; their payloads are identified by checksum.
pub fn entries(log: &Log) -> Entries {
    read_all(log).unwrap()
}

/// As `entries`, but returns an error of the read.
pub fn read_all(log: &Log) -> Result<Entries, StoreError> {
    let mut reader = log.reader(log.first_index());
    let mut found = Vec::new();
    while let Some(entry) = reader.next(log.last_index())? {
        found.push((entry.index.0, entry.term, u64::from(entry.payload_crc)));
    }
    assert_eq!(
        found.len() as u64,
        log.last_index().0 + 1 - log.first_index().0
    );
    NUMBERS.with_borrow(|numbers| {
        for entry in &mut found {
            let crc = u32::try_from(entry.2).unwrap();
            entry.2 = *numbers.get(&crc).expect("an unknown entry");
        }
    });
    Ok(found)
}

thread_local! {
    /// From payload checksum to payload number.
    static NUMBERS: std::cell::RefCell<std::collections::BTreeMap<u32, u64>> =
        const { std::cell::RefCell::new(std::collections::BTreeMap::new()) };
}

/// Registers the payloads of a script for [`entries`]. Numbers with equal (short) payloads
/// are replaced by one of them.
pub fn register_payloads(script: &mut [Step]) {
    NUMBERS.with_borrow_mut(|numbers| {
        for step in script {
            if let Step::Append(number) = step {
                let crc = crc_fast::crc32_iscsi(&payload(*number));
                *number = *numbers.entry(crc).or_insert(*number);
            }
        }
    });
}

/// Checks that a recovered log equals the last acknowledged state or a later one.
pub fn check_recovered(log: &Log, trace: &Trace) -> Result<(), String> {
    let found = entries(log);
    let first = log.first_index().0;
    if first > trace.purged + 1 {
        return Err(format!(
            "purged through {}, requested {}",
            first - 1,
            trace.purged
        ));
    }
    let fits = trace.states[trace.acknowledged..].iter().any(|state| {
        let remaining: Entries = state
            .iter()
            .copied()
            .filter(|entry| entry.0 >= first)
            .collect();
        remaining == found
    });
    if fits {
        return Ok(());
    }
    let acknowledged = &trace.states[trace.acknowledged];
    Err(format!(
        "found {} entries ..{:?}, first {first}; acknowledged {} ..{:?}; {} later states",
        found.len(),
        found.last(),
        acknowledged.len(),
        acknowledged.last(),
        trace.states.len() - trace.acknowledged,
    ))
}
