//! Times in queries, in the time zone of the account.

use serde_json::json;
use weir_jira::jql::{Context, matches, parse};
use weir_jira::time;

/// Checks that `value` is the time `wanted` for an account in `zone` at the time `now`.
fn check(value: &str, zone: &str, now: &str, wanted: &str) {
    let context = Context {
        now_ms: time::parse(now).unwrap(),
        zone: time::zone(zone).unwrap(),
        ..Context::default()
    };
    let query = parse(&format!("updated >= {value}")).unwrap();
    let wanted = time::parse(wanted).unwrap();
    let issue = |ms| json!({"fields": {"updated": time::format(ms)}});
    for (ms, found) in [(wanted, true), (wanted - 1, false)] {
        let text = format!("{value} in {zone}, not {}", time::format(ms));
        assert_eq!(matches(&query, &issue(ms), &context), found, "{text}");
    }
}

/// Europe/Berlin changes from +01:00 to +02:00 on 2025-03-30, and back on 2025-10-26.
#[test]
fn a_day_has_the_offset_of_its_own_date() {
    let change = "2025-03-30T10:00:00.000+0000";
    let later = "2025-04-02T10:00:00.000+0000";
    let end = "2025-10-28T10:00:00.000+0000";
    for (value, now, wanted) in [
        ("startOfDay()", change, "2025-03-30T00:00:00.000+0100"),
        ("endOfDay()", change, "2025-03-30T23:59:59.999+0200"),
        ("startOfDay(1d)", change, "2025-03-31T00:00:00.000+0200"),
        ("startOfDay(-1w)", change, "2025-03-23T00:00:00.000+0100"),
        ("startOfDay(3h)", change, "2025-03-30T04:00:00.000+0200"),
        ("startOfWeek()", change, "2025-03-30T00:00:00.000+0100"),
        ("startOfWeek()", later, "2025-03-30T00:00:00.000+0100"),
        ("startOfMonth()", later, "2025-04-01T00:00:00.000+0200"),
        ("startOfMonth()", end, "2025-10-01T00:00:00.000+0200"),
        ("now(-3d)", end, "2025-10-25T11:00:00.000+0200"),
        // The days of a duration without a function have 24 hours, as in Jira.
        ("-3d", end, "2025-10-25T12:00:00.000+0200"),
        ("2025-07-01", end, "2025-07-01T00:00:00.000+0200"),
        ("'2025-01-01 12:00'", end, "2025-01-01T12:00:00.000+0100"),
    ] {
        check(value, "Europe/Berlin", now, wanted);
    }
}

#[test]
fn every_kind_of_zone_is_known() {
    let now = "2025-01-15T10:00:00.000+0000";
    for (value, zone, wanted) in [
        (
            "2025/07/01",
            "America/New_York",
            "2025-07-01T00:00:00.000-0400",
        ),
        ("2025-07-01", "GMT+05:30", "2025-07-01T00:00:00.000+0530"),
        ("startOfDay()", "Etc/UTC", "2025-01-15T00:00:00.000+0000"),
        (
            "startOfDay()",
            "Pacific/Kiritimati",
            "2025-01-16T00:00:00.000+1400",
        ),
        // At this midnight, the clocks went from 00:00 to 01:00.
        (
            "2018-11-04",
            "America/Sao_Paulo",
            "2018-11-04T01:00:00.000-0200",
        ),
    ] {
        check(value, zone, now, wanted);
    }
    assert!(time::zone("Nowhere/Town").is_none());
}
