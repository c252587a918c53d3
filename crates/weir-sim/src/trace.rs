//! Combines the events of a history into one number.

use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Hashes all events with their times. Clones share the hash.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    started: Instant,
    sum: Arc<Mutex<u64>>,
    file: Option<Arc<Mutex<File>>>,
}

impl Trace {
    /// Also writes the events to the file that `WEIR_SIM_TRACE` names, if that variable is set.
    pub(crate) fn new() -> Self {
        let file = std::env::var_os("WEIR_SIM_TRACE").and_then(|path| File::create(path).ok());
        Self {
            started: Instant::now(),
            sum: Arc::new(Mutex::new(0xcbf2_9ce4_8422_2325)),
            file: file.map(|file| Arc::new(Mutex::new(file))),
        }
    }

    /// Simulated time since the history began, in microseconds.
    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Adds an event (FNV-1a).
    pub(crate) fn add(&self, what: &str, numbers: &[u64], bytes: &[u8]) {
        let mut sum = self.sum.lock();
        let mut add = |byte: u8| *sum = (*sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        what.bytes().for_each(&mut add);
        let time = self.now_us();
        for number in std::iter::once(&time).chain(numbers) {
            number.to_le_bytes().into_iter().for_each(&mut add);
        }
        bytes.iter().copied().for_each(&mut add);
        if let Some(file) = &self.file {
            let bytes = bytes.len();
            // The history continues if the file is full.
            drop(writeln!(
                file.lock(),
                "{time:>10} {what} {numbers:?} {bytes} bytes, sum {:016x}",
                *sum
            ));
        }
    }

    pub(crate) fn sum(&self) -> u64 {
        *self.sum.lock()
    }
}
