//! Moments: milliseconds since 1970-01-01 UTC, and how files write them.
//!
//! The wall clock is read here and nowhere else in the crate: for the expiry of
//! identities and streams, and for the audit. No rule of the store depends on it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in milliseconds since 1970-01-01 UTC; 0 for a clock before that.
#[must_use]
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}

/// A date and time of day, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    pub(crate) month: u8,
    pub(crate) day: u8,
    pub(crate) hour: u8,
    pub(crate) minute: u8,
    pub(crate) second: u8,
}

/// Days of 400 years, after which the calendar repeats itself.
const DAYS_OF_ERA: i64 = 146_097;
/// Days from the first of March of the year 0 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;

impl Civil {
    /// Milliseconds since 1970-01-01; none when it is no date, or before 1970.
    pub(crate) fn ms(self) -> Option<u64> {
        let (month, day) = (i64::from(self.month), i64::from(self.day));
        let leap = self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        let days_of_month = match self.month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            _ => return None,
        };
        let in_range = (1970..=9999).contains(&self.year)
            && (1..=days_of_month).contains(&day)
            && self.hour < 24
            && self.minute < 60
            && self.second <= 60;
        if !in_range {
            return None;
        }
        // Years that begin in March have their leap day at the end.
        let year = if month <= 2 { self.year - 1 } else { self.year };
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + day_of_year;
        let days = era * DAYS_OF_ERA + day_of_era - DAYS_TO_1970;
        let (hour, minute) = (i64::from(self.hour), i64::from(self.minute));
        let seconds = days * 86_400 + hour * 3_600 + minute * 60 + i64::from(self.second);
        u64::try_from(seconds).ok().map(|seconds| seconds * 1_000)
    }
}

/// The moment as `2026-11-20T09:30:00Z`, whole seconds.
#[must_use]
pub fn rfc3339(ms: u64) -> String {
    let seconds = i64::try_from(ms / 1_000)
        .unwrap_or(i64::MAX)
        .min(253_402_300_799);
    let (days, of_day) = (seconds / 86_400 + DAYS_TO_1970, seconds % 86_400);
    let (era, of_era) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Reads what [`rfc3339`] writes, also with a fraction or an offset of hours
/// and minutes.
pub(crate) fn from_toml(value: &toml::value::Datetime) -> Option<u64> {
    let (date, time) = (value.date?, value.time?);
    let civil = Civil {
        year: i64::from(date.year),
        month: date.month,
        day: date.day,
        hour: time.hour,
        minute: time.minute,
        second: time.second.unwrap_or(0),
    };
    let offset_ms = match value.offset? {
        toml::value::Offset::Z => 0,
        toml::value::Offset::Custom { minutes } => i64::from(minutes) * 60_000,
    };
    let ms = i64::try_from(civil.ms()?).ok()?.checked_sub(offset_ms)?;
    u64::try_from(ms).ok()
}

/// Reads a moment with its offset, to the millisecond.
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
    fn moments_are_read_as_they_are_written() {
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
    fn offsets_count_and_local_times_are_refused() {
        let read = |text: &str| from_toml(&text.parse().unwrap());
        assert_eq!(read("2026-11-20T10:29:56+01:00"), Some(1_795_166_996_000));
        assert_eq!(read("2026-11-20T09:29:56"), None);
        assert_eq!(read("2026-11-20"), None);
        assert_eq!(read("1969-12-31T23:59:59Z"), None);
    }
}
