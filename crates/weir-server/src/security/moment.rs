//! Times: milliseconds since 1970-01-01 UTC, and their text form in files.
//!
//! Only this module reads the wall clock: for the expiry of identities and streams, and for the
//! audit log. No rule of the store depends on it.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::SignedDuration;
use jiff::civil::DateTime;

/// The current time, in milliseconds since 1970-01-01 UTC; 0 if the clock is before that.
#[must_use]
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}

/// 1970-01-01T00:00:00, the origin of times. Civil dates in UTC are used because a timestamp of
/// `jiff` ends a day before 9999-12-31T23:59:59Z, which means "never" in certificates.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Formats a time as `2026-11-20T09:30:00Z`, in whole seconds.
#[must_use]
pub fn rfc3339(ms: u64) -> String {
    format!("{}Z", civil(ms / 1_000 * 1_000))
}

/// Converts a time to a date and time of day, at the latest the end of the year 9999.
fn civil(ms: u64) -> DateTime {
    let since = SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX));
    EPOCH.saturating_add(since)
}

/// Parses the output of [`rfc3339`], optionally with a fraction, or with an offset in hours and
/// minutes. The fraction is dropped.
pub(crate) fn from_toml(value: &toml::value::Datetime) -> Option<u64> {
    let (date, time) = (value.date?, value.time?);
    let signed = |number: u8| i8::try_from(number).ok();
    let civil = DateTime::new(
        i16::try_from(date.year).ok()?,
        signed(date.month)?,
        signed(date.day)?,
        signed(time.hour)?,
        signed(time.minute)?,
        // A leap second becomes the second before it.
        signed(time.second.unwrap_or(0).min(59))?,
        0,
    );
    let offset = match value.offset? {
        toml::value::Offset::Z => 0,
        toml::value::Offset::Custom { minutes } => i64::from(minutes),
    };
    let since = civil.ok()?.duration_since(EPOCH);
    let since = since.checked_sub(SignedDuration::from_mins(offset))?;
    u64::try_from(since.as_millis()).ok()
}

/// Parses a time with its offset, in milliseconds since 1970.
pub(crate) fn from_rfc3339(text: &str) -> Option<u64> {
    let value: toml::value::Datetime = text.parse().ok()?;
    let nanoseconds = value.time?.nanosecond.unwrap_or(0);
    Some(from_toml(&value)? + u64::from(nanoseconds / 1_000_000))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{from_toml, rfc3339};

    #[test]
    fn times_are_parsed_as_they_are_formatted() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_709_164_799_000, "2024-02-28T23:59:59Z"),
            (1_795_166_996_000, "2026-11-20T09:29:56Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
            (253_402_300_799_000, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(ms), text);
            assert_eq!(from_toml(&text.parse().unwrap()), Some(ms), "{text}");
        }
        // Every day of four hundred years.
        for day in 0..146_097_u64 {
            let ms = day * 86_400_000 + 45_296_000;
            let text = rfc3339(ms);
            assert_eq!(from_toml(&text.parse().unwrap()), Some(ms), "{text}");
        }
    }

    #[test]
    fn offsets_apply_and_times_without_offset_are_refused() {
        let read = |text: &str| from_toml(&text.parse().unwrap());
        assert_eq!(read("2026-11-20T10:29:56+01:00"), Some(1_795_166_996_000));
        assert_eq!(read("2026-11-20T09:29:56"), None);
        assert_eq!(read("2026-11-20"), None);
        assert_eq!(read("1969-12-31T23:59:59Z"), None);
    }
}
