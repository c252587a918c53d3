//! Stores the state of the simulator in topics, so that it outlives the process and other commands
//! can read it.
//!
//! The topic `jira._simulator.issues` has the issues by id, and `jira._simulator.state` the rest as
//! one value. Invariants:
//! - An answer is sent after the changes of its request were stored.
//! - If the state is stored, so are all generated issues.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use weir::Weir;

use super::SimOptions;
use super::world::{Issue, OtherState, World};
use crate::error::{JiraError, Result};
use crate::replica::{Change, Replica};

/// Replaces the name of a site in the names of the topics. No site has this name.
const NAME: &str = "_simulator";
/// Topic of the issues.
const ISSUES: &str = "issues";
/// Topic and key of the rest.
const STATE: &str = "state";

/// The topics with the state.
#[derive(Debug)]
pub(super) struct StoredState(Replica);

impl StoredState {
    /// The topics in a store.
    pub(super) fn new(weir: Weir) -> Self {
        Self(Replica::new(weir, NAME))
    }

    /// The stored world; a new one if the store has none.
    pub(super) fn load(&self, options: SimOptions, zone: TimeZone) -> Result<World> {
        let Some(other) = self.0.read::<OtherState>(STATE, STATE)? else {
            return Ok(World::new(options, zone));
        };
        let stored = self.0.values(ISSUES, "")?.into_iter();
        let issues = stored.map(|(_, issue)| serde_json::from_value(issue));
        let issues: std::result::Result<Vec<Issue>, _> = issues.collect();
        Ok(World::restored(options, zone, other, issues?))
    }

    /// Stores the changes of a world.
    ///
    /// # Errors
    /// `Busy` if another process writes to the topics.
    pub(super) fn store(&self, world: &mut World) -> Result<()> {
        let mut ids = world.issues.changed().clone();
        if self.0.get(STATE, STATE)?.is_none() {
            // The rest is stored after all issues, because a start without it generates them again.
            // Issues that are stored already are from an interrupted first start.
            let stored = self.0.keys(ISSUES, "")?;
            ids.extend(stored.iter().filter_map(|key| key.parse::<u64>().ok()));
            self.store_issues(world, &ids)?;
            self.0.store(STATE, STATE, &world.other_state())?;
        } else {
            // The rest has the next id: after a crash before the issues, an id is unused, but none
            // is used twice.
            self.0.store(STATE, STATE, &world.other_state())?;
            self.store_issues(world, &ids)?;
        }
        // After a failure, the next call stores these issues again.
        world.issues.clear_changed();
        Ok(())
    }

    /// Stores the issues with these ids, and removes those that the world does not have.
    fn store_issues(&self, world: &World, ids: &BTreeSet<u64>) -> Result<()> {
        let mut changes = Vec::new();
        for id in ids {
            let key = id.to_string();
            let value = world.issues.get(id).map(serde_json::to_vec).transpose()?;
            let stored = self.0.get(ISSUES, &key)?;
            let bytes = stored.as_ref().map(|stored| &stored.bytes);
            if bytes != value.as_ref() {
                let found = stored.map(|stored| stored.offset);
                changes.push(Change { key, value, found });
            }
        }
        if self.0.apply(ISSUES, &changes)? {
            Ok(())
        } else {
            Err(JiraError::Busy)
        }
    }
}
