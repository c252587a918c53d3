//! Converts between times in Jira's form and milliseconds since 1970-01-01 UTC.

use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

/// Milliseconds of a day of 24 hours.
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
    format_in(ms, &TimeZone::UTC)
}

/// Formats a time as [`format`](fn@format) does, with the offset that a time zone has at that time.
pub fn format_in(ms: i64, zone: &TimeZone) -> String {
    let time = Timestamp::from_millisecond(ms).unwrap_or_default();
    let time = time.to_zoned(zone.clone());
    time.strftime("%Y-%m-%dT%H:%M:%S%.3f%z").to_string()
}

/// The time zone with an IANA name, such as `Europe/Berlin`, or with an offset, such as
/// `GMT+05:30`. `None` for any other name.
pub fn zone(name: &str) -> Option<TimeZone> {
    if let Some(offset) = name.strip_prefix("GMT").filter(|rest| !rest.is_empty()) {
        let offset = strtime::parse("%:z", offset).ok()?.offset()?;
        return Some(TimeZone::fixed(offset));
    }
    TimeZone::get(name).ok()
}

/// Parses `2024-11-29`, `2024/11/29`, each with an optional ` 10:44`, in a time zone. A time that a
/// change of the clocks skips is moved to after the change; of a repeated time, the first one
/// counts.
pub fn parse_literal(text: &str, zone: &TimeZone) -> Option<i64> {
    let text = text.trim().replace('/', "-");
    let (day, clock) = text.split_once(' ').unwrap_or((&text, "00:00"));
    let full = format!("{day} {clock}");
    let parts = strtime::parse("%Y-%m-%d %H:%M", full).ok()?;
    let civil = parts.to_datetime().ok()?;
    Some(zone.to_timestamp(civil).ok()?.as_millisecond())
}

/// Parses a duration such as `-1w2d3h4m`.
pub fn parse_span(text: &str) -> Option<Span> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return None;
    }
    let (mut span, mut number) = (Span::new(), None::<i64>);
    for letter in rest.chars() {
        if let Some(digit) = letter.to_digit(10) {
            let digit = i64::from(digit);
            number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(digit)?);
            continue;
        }
        let count = number.take()?;
        let longer = match letter {
            'w' => span.try_weeks(count.checked_add(span.get_weeks().into())?),
            'd' => span.try_days(count.checked_add(span.get_days().into())?),
            'h' => span.try_hours(count.checked_add(span.get_hours().into())?),
            'm' => span.try_minutes(count.checked_add(span.get_minutes())?),
            _ => return None,
        };
        span = longer.ok()?;
    }
    number.is_none().then_some(span * sign)
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;

    #[test]
    fn times_are_read_in_their_zone() {
        assert_eq!(super::parse("1970-01-01T01:00:00.005+0100"), Some(5));
        assert_eq!(
            super::parse(&super::format(1_732_877_091_887)),
            Some(1_732_877_091_887)
        );
        let zone = super::zone("GMT+02:00").unwrap_or_else(|| panic!("it is an offset"));
        assert_eq!(super::parse_literal("1970-01-01 02:00", &zone), Some(0));
        assert_eq!(super::format(5), "1970-01-01T00:00:00.005+0000");
        assert_eq!(super::format_in(5, &zone), "1970-01-01T02:00:00.005+0200");
        assert!(super::zone("Nowhere/Town").is_none());
        let span = super::parse_span("-1d2h").map(jiff::Span::fieldwise);
        assert_eq!(span, Some((-1).day().hours(-2).fieldwise()));
        assert!(super::parse_span("-1").is_none());
    }
}
