//! Times in queries and edits, in the time zone of the account.

use serde_json::json;
use weir_jira::jql::{Context, matches, parse};
use weir_jira::sim::SimOptions;
use weir_jira::time;

use crate::world::{World, small};

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

/// As in Jira, a due date is compared with days: an issue that is due today is not overdue.
#[test]
fn a_due_date_is_compared_with_days() {
    let context = Context {
        now_ms: time::parse("2025-03-30T10:00:00.000+0000").unwrap(),
        zone: time::zone("Europe/Berlin").unwrap(),
        ..Context::default()
    };
    let days = ["2025-03-29", "2025-03-30", "2025-03-31"];
    for (query, wanted) in [
        ("due < now()", [true, false, false]),
        ("due <= now()", [true, true, false]),
        ("due = now()", [false, true, false]),
        ("due != endOfDay()", [true, false, true]),
        ("due > endOfDay()", [false, false, true]),
        ("due > endOfDay(-1d)", [false, true, true]),
        ("dueDate < 1d", [true, true, false]),
        ("due >= -1d", [true, true, true]),
        ("due > -1d", [false, true, true]),
        ("due = 2025-03-30", [false, true, false]),
    ] {
        let parsed = parse(query).unwrap();
        let found = days.map(|day| {
            let issue = json!({"fields": {"duedate": day}});
            matches(&parsed, &issue, &context)
        });
        assert_eq!(found, wanted, "{query}");
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

/// A time without an offset is one of the account, with the offset of its own date. The site stores
/// it as it was sent, so that a push whose answer is lost finds it again.
#[test]
fn a_time_of_an_edit_has_the_offset_of_the_account() {
    let world = World::new(SimOptions {
        time_zone: "Europe/Berlin".to_owned(),
        ..small()
    });
    world.pull();
    let outbox = world.outbox();
    let starts = |text: &str| [("Starts".to_owned(), text.to_owned())];
    for (text, wanted) in [
        ("2030-01-31 10:00", "2030-01-31T10:00:00.000+0100"),
        ("2030/07/31 10:00", "2030-07-31T10:00:00.000+0200"),
        (
            "2030-07-31T02:00:00.000-0800",
            "2030-07-31T12:00:00.000+0200",
        ),
    ] {
        let op = outbox.edit("AA-1", &starts(text)).unwrap();
        assert!(op.what().ends_with(wanted), "{}", op.what());
        let fault = json!({"name": "reset-after"});
        world.fault("PUT", "/rest/api/3/issue/*", 1, 1, &fault);
        let report = world.push();
        assert_eq!((report.already, report.conflicts), (1, 0), "{report:?}");
        let there = world.site_issue("AA-1")["fields"]["customfield_10012"].clone();
        assert_eq!(there, wanted);
    }
    // An equal time in another zone is no change.
    let same = outbox.edit("AA-1", &starts("2030-07-31T10:00:00.000+0000"));
    assert!(same.unwrap_err().to_string().contains("already"));
    let wrong = outbox.edit("AA-1", &starts("soon")).unwrap_err();
    assert!(wrong.to_string().contains("is not a time"), "{wrong}");
}

/// The site shows the time of a change in another zone than the change was written in.
#[test]
fn an_equal_time_in_another_zone_is_no_conflict() {
    let world = World::new(SimOptions {
        time_zone: "Asia/Tokyo".to_owned(),
        ..small()
    });
    world.pull();
    let outbox = world.outbox();
    let starts = [("Starts".to_owned(), "2030-01-31 10:00".to_owned())];
    outbox.edit("AA-1", &starts).unwrap();
    world.edit(
        "AA-1",
        &json!({"customfield_10012": "2030-01-31T01:00:00.000+0000"}),
    );
    let report = world.push();
    assert_eq!((report.already, report.conflicts), (1, 0), "{report:?}");
    assert!(outbox.ops().unwrap().is_empty());
}
