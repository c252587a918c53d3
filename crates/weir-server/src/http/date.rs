//! The field `date`, formatted at most once a second in each thread.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::SignedDuration;
use jiff::civil::DateTime;

/// The last second of the year 9999. HTTP dates have four digits for the year.
const SECONDS_MAX: u64 = 253_402_300_799;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

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

/// Formats seconds since 1970 as an HTTP date. Later times become the end of the year 9999.
pub(crate) fn http(seconds: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(SECONDS_MAX));
    httpdate::fmt_http_date(time)
}

/// Formats milliseconds since 1970 as in RFC 3339. Later times become the end of the year 9999.
pub(crate) fn rfc3339(ms: u64) -> String {
    let since = SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX));
    format!("{:.3}Z", EPOCH.saturating_add(since))
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
        assert_eq!(rfc3339(1_700_000_000_000), "2023-11-14T22:13:20.000Z");
        assert_eq!(rfc3339(u64::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!(http(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
