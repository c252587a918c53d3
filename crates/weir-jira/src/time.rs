//! Converts between times in Jira's form and milliseconds since 1970-01-01 UTC.

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::Offset;

/// Milliseconds of a day.
pub const DAY_MS: i64 = 86_400_000;
/// Milliseconds of a minute.
pub const MINUTE_MS: i64 = 60_000;

/// Parses `2024-11-29T10:44:51.887-0800`. `None` for any other text.
pub fn parse(text: &str) -> Option<i64> {
    let parts = strtime::parse("%Y-%m-%dT%H:%M:%S%.f%z", text).ok()?;
    Some(parts.to_timestamp().ok()?.as_millisecond())
}

/// Formats a time as `2024-11-29T18:44:51.887+0000`. A time outside of the calendar becomes
/// 1970-01-01.
pub fn format(ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S%.3f+0000").to_string()
}

/// The date of a time, such as `2024-11-29`, in a time zone `offset_minutes` from UTC.
pub fn date(ms: i64, offset_minutes: i64) -> String {
    let time = Timestamp::from_millisecond(ms + offset_minutes * MINUTE_MS).unwrap_or_default();
    time.strftime("%Y-%m-%d").to_string()
}

/// Parses `2024-11-29`, `2024/11/29`, each with an optional ` 10:44`, in a time zone with this
/// offset.
pub fn parse_literal(text: &str, offset_minutes: i64) -> Option<i64> {
    let text = text.trim().replace('/', "-");
    let (day, clock) = text.split_once(' ').unwrap_or((&text, "00:00"));
    let full = format!("{day} {clock}");
    let parts = strtime::parse("%Y-%m-%d %H:%M", full).ok()?;
    let civil = parts.to_datetime().ok()?;
    let utc = Offset::UTC.to_timestamp(civil).ok()?.as_millisecond();
    Some(utc - offset_minutes * MINUTE_MS)
}

/// Parses a duration such as `-1w2d3h4m` into milliseconds.
pub fn parse_span(text: &str) -> Option<i64> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return None;
    }
    let (mut total, mut number) = (0_i64, None::<i64>);
    for letter in rest.chars() {
        if let Some(digit) = letter.to_digit(10) {
            let digit = i64::from(digit);
            number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(digit)?);
            continue;
        }
        let unit = match letter {
            'w' => 7 * DAY_MS,
            'd' => DAY_MS,
            'h' => 60 * MINUTE_MS,
            'm' => MINUTE_MS,
            _ => return None,
        };
        total = total.checked_add(number.take()?.checked_mul(unit)?)?;
    }
    number.is_none().then_some(sign * total)
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_read_in_their_zone() {
        assert_eq!(super::parse("1970-01-01T01:00:00.005+0100"), Some(5));
        assert_eq!(
            super::parse(&super::format(1_732_877_091_887)),
            Some(1_732_877_091_887)
        );
        assert_eq!(super::parse_literal("1970-01-01 02:00", 120), Some(0));
        assert_eq!(super::parse_span("-1d2h"), Some(-26 * 3_600_000));
        assert_eq!(super::parse_span("-1"), None);
    }
}
