//! The field `date`, formatted once a second for each thread.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

thread_local! {
    static LINE: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

/// Appends the line `date: ...`.
pub(crate) fn append(out: &mut Vec<u8>) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    LINE.with_borrow_mut(|(second, line)| {
        if *second != now || line.is_empty() {
            line.clear();
            let _ = write!(line, "date: {}\r\n", http(now));
            *second = now;
        }
        out.extend_from_slice(line.as_bytes());
    });
}

/// Year, month (from 0) and day (from 1) of a day since 1970-01-01.
fn civil(days: u64) -> (u64, usize, u64) {
    // Years begin in March here, so that the leap day is the last one.
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = usize::try_from((month + 2) % 12).unwrap_or(0);
    (era * 400 + year + u64::from(month < 2), month, day)
}

/// A time in the form of HTTP, from seconds since 1970.
pub(crate) fn http(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let weekday = DAYS
        .get(usize::try_from(days % 7).unwrap_or(0))
        .unwrap_or(&"");
    let month = MONTHS.get(month).unwrap_or(&"");
    format!(
        "{weekday}, {day:02} {month} {year:04} {:02}:{:02}:{:02} GMT",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// A time in the form of RFC 3339, from milliseconds since 1970.
pub(crate) fn rfc3339(ms: u64) -> String {
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (year, month, day) = civil(seconds / 86_400);
    let rest = seconds % 86_400;
    format!(
        "{year:04}-{:02}-{day:02}T{:02}:{:02}:{:02}.{ms:03}Z",
        month + 1,
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::{http, rfc3339};

    #[test]
    fn dates_are_right() {
        for (seconds, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(http(seconds), text);
        }
        assert_eq!(rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
    }
}
