//! What a run of the demo measured and checked, for `--json`.

use std::time::Duration;

use serde_json::{Map, Value};

/// What was measured and checked, by chapter.
pub(super) type Facts = Map<String, Value>;

/// Seconds with microseconds, for facts.
pub(super) fn seconds(time: Duration) -> Value {
    ((time.as_secs_f64() * 1e6).round() / 1e6).into()
}
