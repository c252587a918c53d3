//! Readings of the canary, before and after each block.

use std::time::Duration;

use crate::child::{Child, Launch};
use crate::error::Result;
use crate::protocol::Fields;

/// Times of the fixed pieces of work, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Reading {
    /// The integer loop.
    pub integer_ms: f64,
    /// The copy of 32 MiB.
    pub copy_ms: f64,
}

/// A resident canary on the measured CPU.
#[derive(Debug)]
pub struct Canary {
    child: Child,
}

impl Canary {
    /// Starts a canary from the program `lab`.
    pub fn start(lab: &str, cpu: Option<usize>) -> Result<Canary> {
        let words = [lab.to_owned(), "contender".to_owned(), "canary".to_owned()];
        let launch = Launch {
            cpu,
            timeout: Duration::from_mins(1),
            padding: 0,
        };
        let mut child = Child::start("canary", &words, launch)?;
        for (input, kind) in ["integer", "copy"].into_iter().enumerate() {
            child.load(input, Fields::from([("kind".to_owned(), kind.to_owned())]))?;
        }
        child.run(1, 1)?; // touches the memory of the copy
        Ok(Canary { child })
    }

    /// Process id of the canary, whose CPU time does not count as foreign.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Takes a reading: the smallest of three times for each piece of work.
    pub fn read(&mut self) -> Result<Reading> {
        Ok(Reading {
            integer_ms: self.quickest(0)?,
            copy_ms: self.quickest(1)?,
        })
    }

    #[allow(clippy::cast_precision_loss)] // milliseconds
    fn quickest(&mut self, input: usize) -> Result<f64> {
        let mut least = u64::MAX;
        for _ in 0..3 {
            least = least.min(self.child.run(input, 1)?.wall_ns);
        }
        Ok(least as f64 / 1e6)
    }
}
