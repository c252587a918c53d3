//! Following topics of a server.
//!
//! Invariants:
//! - The state has the position of every printed record, so readers can be
//!   recreated at any time.
//! - A reader is not used after an error, because it may be ahead of the
//!   printed records.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir::{ReadFrom, TopicReader, Weir};

use super::State;
use crate::follower::FOLLOW_PAUSE;
use crate::output::Output;
use crate::query::check_consumer;
use crate::report::{note, temporary};

/// How often the command lists the topics to find new ones.
const LIST_EVERY: Duration = Duration::from_secs(1);

/// Followed topics of one server.
pub(super) struct Follow<'a> {
    weir: &'a Weir,
    readers: BTreeMap<String, TopicReader>,
    listed: Option<Instant>,
}

impl<'a> Follow<'a> {
    pub(super) fn new(weir: &'a Weir) -> Self {
        Self {
            weir,
            readers: BTreeMap::new(),
            listed: None,
        }
    }

    /// Prints new records until the limit is reached, or until a temporary error.
    pub(super) fn run(mut self, state: &mut State<'_>, out: &mut Output) -> anyhow::Result<()> {
        while state.left > 0 {
            if let Err(error) = self.round(state, out) {
                let Some(failure) = temporary(&error) else {
                    return Err(error);
                };
                out.flush()?;
                if !state.retries {
                    note(state.quiet, &format!("{}: retrying", failure.reason()));
                }
                state.retries = true;
                std::thread::sleep(FOLLOW_PAUSE);
                return Ok(());
            }
        }
        Ok(())
    }

    fn round(&mut self, state: &mut State<'_>, out: &mut Output) -> anyhow::Result<()> {
        if self.is_list_old(state) {
            state.open(self.weir, &mut self.readers)?;
            self.listed = Some(Instant::now());
        }
        state.print(&mut self.readers, out)?;
        // Topics that appear from now on are new, so they are read from their start.
        state.from = ReadFrom::Start;
        state.retries = false;
        out.flush()?;
        if state.left == 0 {
            return Ok(());
        }
        check_consumer()?;
        let now = Instant::now();
        if self.readers.len() == 1 {
            for reader in self.readers.values_mut() {
                // The next page returns the records or the error that ended this wait.
                let _ = reader.wait(Some(now + LIST_EVERY));
            }
        } else {
            let mut found = false;
            for reader in self.readers.values_mut() {
                // Without a short circuit, so that each reader listens.
                found |= reader.wait(Some(now));
            }
            if !found {
                std::thread::sleep(FOLLOW_PAUSE);
            }
        }
        Ok(())
    }

    /// Whether there may be selected topics without a reader.
    fn is_list_old(&self, state: &State<'_>) -> bool {
        let Some(listed) = self.listed else {
            return true;
        };
        let topics = &state.args.topics;
        let complete = topics.iter().all(|name| self.readers.contains_key(name));
        !complete && listed.elapsed() >= LIST_EVERY
    }
}
