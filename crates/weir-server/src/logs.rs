//! Writes events of `tracing`, one JSON object per line.
//!
//! The process that starts the server may install this or another subscriber; the server
//! itself only emits events. Invariants:
//! - A line contains no payload, no secret, and no external text longer than `TEXT_MAX`.
//! - Logging does not block, even if the destination does.

mod buffered;

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::SetGlobalDefaultError;
use tracing::{Event, Level, Metadata, Subscriber};

pub use self::buffered::{BufferedLines, dropped_lines};
use crate::security::{now_ms, rfc3339};

/// Maximum bytes of one text in a line.
const TEXT_MAX: usize = 512;

/// Writes events of this level and above to `out`, from now on, for the whole process.
///
/// # Errors
/// Fails if the process already has a subscriber.
pub fn install(level: Level, out: BufferedLines) -> Result<(), SetGlobalDefaultError> {
    tracing::subscriber::set_global_default(Lines { level, out })
}

/// Returns the line that reports this many dropped lines.
pub fn gap(lines: u64) -> String {
    format!(
        "{{\"time\":\"{}\",\"level\":\"warn\",\"target\":\"weir_server::logs\",\"lines\":{lines},\
         \"message\":\"log lines were dropped: the log was not read fast enough\"}}\n",
        rfc3339(now_ms())
    )
}

struct Lines {
    level: Level,
    out: BufferedLines,
}

/// Appends a text as JSON.
fn quote(line: &mut String, text: &str) {
    let end = (0..=TEXT_MAX.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    line.push('"');
    for letter in text.get(..end.unwrap_or(0)).unwrap_or_default().chars() {
        match letter {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            control if control.is_control() => {
                // Writing to memory cannot fail.
                let _ = write!(line, "\\u{:04x}", u32::from(control));
            }
            other => line.push(other),
        }
    }
    line.push('"');
}

struct JsonMembers(String);

impl JsonMembers {
    fn name(&mut self, field: &Field) {
        self.0.push(',');
        quote(&mut self.0, field.name());
        self.0.push(':');
    }
}

impl Visit for JsonMembers {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.name(field);
        let _ = write!(self.0, "{value}");
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.name(field);
        let _ = write!(self.0, "{value}");
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.name(field);
        let _ = write!(self.0, "{value}");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.name(field);
        quote(&mut self.0, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.name(field);
        quote(&mut self.0, &format!("{value:?}"));
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        let max = if target.starts_with("weir") {
            self.level
        } else if target.starts_with("openraft") {
            // openraft warns of each failed request; the node itself logs each change of a peer.
            Level::ERROR
        } else {
            Level::WARN.min(self.level)
        };
        *metadata.level() <= max
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut line = format!(
            "{{\"time\":\"{}\",\"level\":\"{}\"",
            rfc3339(now_ms()),
            metadata.level().as_str().to_ascii_lowercase()
        );
        line.push_str(",\"target\":");
        quote(&mut line, metadata.target());
        let mut members = JsonMembers(line);
        event.record(&mut members);
        let mut line = members.0;
        line.push_str("}\n");
        self.out.push(line.as_bytes());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::io::Write;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_a_line_of_json() {
        let buffer = LogBuffer::default();
        let out = BufferedLines::start(buffer.clone(), gap).unwrap();
        let lines = Lines {
            level: Level::INFO,
            out: out.clone(),
        };
        tracing::subscriber::with_default(lines, || {
            let long = "é\"\n".repeat(1000);
            tracing::info!(target: "weir::access", status = 201_u64, ok = true, long, "request");
            tracing::debug!(target: "weir::access", "a level that is off");
            tracing::info!(target: "hyper", "another crate");
            tracing::warn!(target: "openraft::replication", "a warning of openraft");
        });
        assert!(out.flush(Duration::from_mins(1)));
        let bytes = buffer.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&line["status"], &line["ok"], &line["message"]),
            (&201.into(), &true.into(), &"request".into())
        );
        assert!(text.len() < 3000);
    }
}
