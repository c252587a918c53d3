//! The position at which reading of a topic starts, as a value and as a text.
//!
//! The command, the HTTP API and the bindings parse positions with
//! [`ReadFrom::parse`], so all of them accept the same texts.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;
use weir_core::ConsequenceOffset;

use crate::error::StoreError;
use crate::reader::TopicReader;
use crate::units;

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// The position at which reading of a topic starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// At the first record that still exists.
    Start,
    /// After the newest record.
    End,
    /// At the first record after this offset.
    After(ConsequenceOffset),
    /// This many offsets before the end. A compaction may have removed some of their records.
    Last(u64),
    /// At the first record stamped at this time or later (milliseconds since
    /// 1970-01-01 UTC).
    Time(u64),
}

/// The error for a text that is not a position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text} is not a position: write start, end, an offset, -N for the last N records, a time ago \
     such as 10m, or a time such as 2026-11-01 or 2026-11-01T08:30:00Z"
)]
pub struct PositionError {
    /// The text.
    pub text: String,
}

impl ReadFrom {
    /// Parses a position:
    ///
    /// - `start` and `end`;
    /// - an offset: the record with this offset is the first one;
    /// - `-N`: the last N records;
    /// - a duration with its unit (`10m`, `2d`): records since that time ago;
    /// - `today` and `yesterday`: records since midnight UTC of that day;
    /// - a date (`2026-11-01`, midnight UTC) or a time of RFC 3339. Its seconds are optional
    ///   (`2026-11-01T08:30Z`).
    ///
    /// Times before 1970 count as 1970-01-01 UTC.
    ///
    /// # Errors
    /// [`PositionError`] for any other text.
    pub fn parse(text: &str) -> Result<Self, PositionError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_millis());
        Self::parse_at(text, u64::try_from(now).unwrap_or(u64::MAX))
    }

    /// As [`parse`](Self::parse), with the present time in milliseconds since
    /// 1970-01-01 UTC.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_at(text: &str, now_ms: u64) -> Result<Self, PositionError> {
        let midnight = now_ms - now_ms % DAY_MS;
        let found = match text {
            "start" => Some(Self::Start),
            "end" => Some(Self::End),
            "today" => Some(Self::Time(midnight)),
            "yesterday" => Some(Self::Time(midnight.saturating_sub(DAY_MS))),
            _ => number(text).or_else(|| time(text, now_ms).map(Self::Time)),
        };
        found.ok_or_else(|| PositionError {
            text: text.to_owned(),
        })
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn number(text: &str) -> Option<ReadFrom> {
    if let Some(count) = text.strip_prefix('-') {
        let count = is_digits(count).then(|| count.parse().ok())?;
        return count.map(ReadFrom::Last);
    }
    let offset: u64 = is_digits(text).then(|| text.parse().ok())??;
    Some(ReadFrom::After(ConsequenceOffset(offset.saturating_sub(1))))
}

/// Parses a time, as milliseconds since 1970-01-01 UTC.
fn time(text: &str, now_ms: u64) -> Option<u64> {
    if let Ok(ago) = units::duration(text) {
        let ago = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
        return Some(now_ms.saturating_sub(ago));
    }
    let date = || {
        // The parser of `Date` also accepts a time without an offset from UTC. Reject it.
        let day = text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'-');
        let day: Date = day.then(|| text.parse().ok())??;
        Offset::UTC.to_timestamp(day.at(0, 0, 0, 0)).ok()
    };
    let time = text.parse::<Timestamp>().ok();
    let time = time.filter(|_| offset_hours(text) < 24).or_else(date)?;
    Some(u64::try_from(time.as_millisecond()).unwrap_or(0))
}

/// Hours of the offset from UTC of a time; 0 without one. RFC 3339 allows at most 23, but the parser
/// of `Timestamp` also accepts 24 and 25.
fn offset_hours(text: &str) -> u8 {
    let time = text.split_once(['T', 't', ' ']).map(|(_, time)| time);
    let offset = time.and_then(|time| time.split_once(['+', '-']));
    let hours = offset.and_then(|(_, offset)| offset.get(..2)?.parse().ok());
    hours.unwrap_or(0)
}

impl TopicReader {
    /// Moves to a position. Only [`ReadFrom::Time`] reads from disk.
    ///
    /// # Errors
    /// The errors of reading.
    pub fn seek_from(&mut self, from: ReadFrom) -> Result<(), StoreError> {
        match from {
            ReadFrom::Start => self.seek(ConsequenceOffset::ZERO),
            ReadFrom::End => self.seek_last(0),
            ReadFrom::After(offset) => self.seek(offset),
            ReadFrom::Last(records) => self.seek_last(records),
            ReadFrom::Time(time_ms) => self.seek_time(time_ms)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-23T03:00:00Z.
    const NOW: u64 = 1_795_402_800_000;

    #[test]
    fn positions_are_words_offsets_counts_and_times() {
        let check = |text: &str, expect: ReadFrom| {
            assert_eq!(ReadFrom::parse_at(text, NOW), Ok(expect), "{text}");
        };
        check("start", ReadFrom::Start);
        check("end", ReadFrom::End);
        check("7", ReadFrom::After(ConsequenceOffset(6)));
        check("0", ReadFrom::After(ConsequenceOffset(0)));
        check("-10", ReadFrom::Last(10));
        check("10m", ReadFrom::Time(NOW - 600_000));
        check("90000d", ReadFrom::Time(0));
        check("today", ReadFrom::Time(1_795_392_000_000));
        check("yesterday", ReadFrom::Time(1_795_305_600_000));
        check("2026-11-01", ReadFrom::Time(1_793_491_200_000));
        check("2026-11-01T00:00Z", ReadFrom::Time(1_793_491_200_000));
        check("1970-01-01T00:00:02Z", ReadFrom::Time(2000));
        check("1970-01-01T01:00:02+01:00", ReadFrom::Time(2000));
        check("1970-01-01T23:59:02+23:59", ReadFrom::Time(2000));
        check("1960-01-01", ReadFrom::Time(0));
    }

    #[test]
    fn everything_else_is_refused_with_advice() {
        for text in [
            "",
            "-",
            "--1",
            "+1",
            "1.5",
            "first",
            "tail",
            "now",
            "Start",
            "10 m",
            "2026-13-01",
            "99999999999999999999",
            "-99999999999999999999",
            "2026-11-01T08:30",
            "2026-11-28T02:00:00+25:00",
            "2026-11-28T02:00:00-24:00",
        ] {
            let error = ReadFrom::parse_at(text, NOW).map_err(|error| error.to_string());
            assert!(
                error.is_err_and(|error| error.contains("-N for the last N")),
                "{text}"
            );
        }
    }
}
