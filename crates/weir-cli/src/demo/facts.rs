//! The measurements and the results of the checks of a run, for `-o json`.

use std::time::Duration;

use serde_json::{Map, Value};

/// Measurements and results of checks, by chapter.
pub(super) type Facts = Map<String, Value>;

/// Seconds with microseconds, for facts.
pub(super) fn seconds(time: Duration) -> Value {
    ((time.as_secs_f64() * 1e6).round() / 1e6).into()
}
