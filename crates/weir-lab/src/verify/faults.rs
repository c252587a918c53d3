//! Deliberately faulty servers. They show that the checks detect stalls, and which clients do not
//! notice each fault.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::server::{Running, SilenceLimit};
use super::stall::{COLUMNS, Outcome};
use crate::error::{LabError, Result};

use Outcome::{Good, Hangs, NoContinue, Some};

/// Answers on another connection after which a faulty server counts as silent. The server has one
/// thread and handles events in turn, so a few answers suffice.
const ROUNDS: u32 = 300;

/// The faults by name, and the expected outcome in each column.
///
/// - `stateless`: every read is treated as a whole request.
/// - `edge-short-read`: edge-triggered, one short read an event.
/// - `no-continue`: `Expect: 100-continue` is ignored.
/// - `drop-rest`: bytes after the first request of a read are dropped.
/// - `forget-write`: after a short write, the rest is dropped.
/// - `accept-one`: an edge-triggered listener with one accept an event.
pub const FAULTS: &[(&str, [Outcome; 7])] = &[
    ("none", [Good; 7]),
    ("stateless", [Good, Hangs, Good, Good, Hangs, Hangs, Good]),
    (
        "edge-short-read",
        [Good, Good, Hangs, Good, Hangs, Hangs, Good],
    ),
    (
        "no-continue",
        [Good, Good, Good, Good, NoContinue, Good, Good],
    ),
    ("drop-rest", [Good, Good, Good, Some(1), Good, Good, Good]),
    ("forget-write", [Good, Good, Good, Good, Good, Hangs, Good]),
    ("accept-one", [Good, Good, Good, Good, Good, Good, Some(1)]),
];

/// The outcomes of the server that `words` starts. The server and this thread share a CPU
/// meanwhile. Packets on one CPU arrive in the order in which they were sent, over all connections.
/// So before the server answers a question, it has received everything that was sent earlier.
pub fn seen(name: &str, words: &[String]) -> Result<[Outcome; 7]> {
    let mask = sched_getaffinity(None).map_err(|error| LabError::io("CPU mask")(error.into()))?;
    let first = (0..CpuSet::MAX_CPU).find(|cpu| mask.is_set(*cpu));
    let mut only = CpuSet::new();
    only.set(first.unwrap_or(0));
    let pin = |set| sched_setaffinity(None, set).map_err(|e| LabError::io("CPU mask")(e.into()));
    pin(&only)?;
    let seen = seen_on_one(name, words);
    pin(&mask)?;
    seen
}

fn seen_on_one(name: &str, words: &[String]) -> Result<[Outcome; 7]> {
    let mut seen = [Good; 7];
    for (outcome, (_, check)) in seen.iter_mut().zip(COLUMNS) {
        let mut server = Running::start(name, words, SilenceLimit::Rounds(ROUNDS))?;
        *outcome = check(&mut server)?;
    }
    Ok(seen)
}
