//! First pull, changes, moves, deletions, lost projects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use weir_jira::client::Client;
use weir_jira::index::Index;
use weir_jira::outbox::{Choice, Outbox};
use weir_jira::pull::{PullOptions, pull};
use weir_jira::push::{PushOptions, push};
use weir_jira::replica::Location;
use weir_jira::sim::SimOptions;
use weir_jira::{JiraError, offline, site_query, time};

use crate::world::{World, small};

#[test]
fn a_first_pull_is_complete_and_a_pull_without_changes_is_one_request() {
    let world = World::new(small());
    let report = world.pull();
    // The first page is read twice, and counted once.
    assert_eq!((report.stored, report.unchanged), (45, 0), "{report:?}");
    world.converged();
    let report = world.pull();
    assert_eq!((report.requests, report.writes), (1, 0), "{report:?}");
}

/// A refresh of the index that fails changes nothing, and the next one reads what it missed.
#[test]
fn a_change_is_in_the_index_after_a_failed_refresh() {
    let world = World::new(small());
    world.pull();
    let mut index = Index::load(&world.replica).unwrap();
    let other = world.site_issue("AA-2");
    let id = other["id"].as_str().unwrap();
    let project = other["fields"]["project"]["id"].as_str().unwrap();
    let name = format!("issues.{project}");
    let stored = world.replica.get(&name, id).unwrap().unwrap().bytes;
    let topic = world.replica.topic(&name).unwrap();
    assert!(topic.put(id, b"no JSON").unwrap().is_valid());
    let mine = [("summary".to_owned(), "Mine".to_owned())];
    world.outbox().edit("AA-1", &mine).unwrap();
    assert!(index.refresh(&world.replica).is_err());
    assert_eq!(index.row("AA-1").unwrap().pending, 0);
    assert!(topic.put(id, stored).unwrap().is_valid());
    index.refresh(&world.replica).unwrap();
    let row = index.row("AA-1").unwrap();
    assert_eq!((row.summary.as_str(), row.pending), ("Mine", 1));
}

/// A change in the outbox updates its own issue in the index, and no other issue with operations.
#[test]
fn an_operation_updates_only_its_issue_in_the_index() {
    let world = World::new(small());
    world.pull();
    let mut index = Index::load(&world.replica).unwrap();
    let outbox = world.outbox();
    for key in ["AA-1", "AA-2", "AA-3"] {
        outbox.label(key, &["mine".to_owned()], &[]).unwrap();
        assert_eq!(index.refresh(&world.replica).unwrap(), 1, "{key}");
    }
    outbox.resolve("2", Choice::Drop, None, None).unwrap();
    assert_eq!(index.refresh(&world.replica).unwrap(), 1);
    let labelled = index.select("labels = mine", world.now(), 10).unwrap();
    assert_eq!(labelled.len(), 2);
    assert_eq!(index.row("AA-2").unwrap().pending, 0);
}

#[test]
fn the_index_finds_an_issue_by_its_current_key() {
    let world = World::new(small());
    world.pull();
    let mut index = Index::load(&world.replica).unwrap();
    let id = index.row("AA-1").unwrap().id.clone();
    assert_eq!(index.row("aa-1").unwrap().id, id);
    assert_eq!(index.row(&id).unwrap().key, "AA-1");
    // A moved issue gets another key. After enough changes the index renumbers its rows.
    let body = json!({"issue": "AA-1", "project": "BB"});
    world.sim.control("POST", "/_sim/move", &body);
    for _ in 0..115 {
        world.edit("AA-2", &json!({"summary": "again"}));
        world.pull();
        index.refresh(&world.replica).unwrap();
    }
    let moved = world.site()[&id]["key"].as_str().unwrap().to_owned();
    assert_eq!(index.row(&moved).unwrap().id, id);
    assert!(index.row("AA-1").is_none());
    assert_eq!(index.row("AA-2").unwrap().summary, "again");
    assert_eq!(index.len(), world.site().len());
    let now = world.now();
    let found = offline::search(&world.replica, "again", now).unwrap();
    assert_eq!(index.search("again", usize::MAX).len(), found.len());
    for query in ["project = AA", "project = BB", "summary ~ again"] {
        let found = offline::select(&world.replica, query, now).unwrap();
        let rows = index.select(query, now, usize::MAX).unwrap();
        assert_eq!(rows.len(), found.len(), "{query}");
        assert!(!rows.is_empty(), "{query}");
    }
}

#[test]
fn an_index_from_before_the_first_pull_gets_the_account() {
    let world = World::new(small());
    let mut index = Index::load(&world.replica).unwrap();
    world.pull();
    index.refresh(&world.replica).unwrap();
    let mine = "assignee = currentUser()";
    let found = index.select(mine, world.now(), usize::MAX).unwrap();
    assert!(!found.is_empty());
}

#[test]
fn changes_moves_and_new_issues_are_pulled() {
    let world = World::new(small());
    world.pull();
    world.edit("AA-1", &json!({"summary": "changed"}));
    world.sim.control(
        "POST",
        "/_sim/comments",
        &json!({"issue": "AA-2", "count": 50}),
    );
    world.advance(1000);
    world.sim.control(
        "POST",
        "/_sim/move",
        &json!({"issue": "AA-3", "project": "BB"}),
    );
    let report = world.pull();
    assert_eq!((report.stored, report.moved), (3, 1), "{report:?}");
    world.converged();
    // The old key finds the moved issue.
    let moved = world.replica.issue("AA-3").unwrap();
    assert!(moved["key"].as_str().unwrap().starts_with("BB-"));
}

/// A lagging search returns a moved issue in its old project, after a push has read it in its new
/// one.
#[test]
fn an_old_index_moves_no_issue_back() {
    let world = World::new(SimOptions {
        search_lag_ms: 120_000,
        ..small()
    });
    world.pull();
    world.advance(200_000);
    world.pull();
    let body = json!({"issue": "AA-3", "project": "BB"});
    world.edit("AA-3", &json!({"summary": "still here"}));
    world.advance(121_000);
    world.sim.control("POST", "/_sim/move", &body);
    world.outbox().comment("AA-3", "read back").unwrap();
    assert_eq!(world.push().sent, 1);
    let key = || world.replica.issue("AA-3").unwrap()["key"].clone();
    let moved = key();
    assert!(moved.as_str().unwrap().starts_with("BB-"), "{moved}");
    // The first pull after a push requests the issues that the push has changed.
    world.pull();
    let report = world.pull();
    assert!(report.stale > 0, "{report:?}");
    assert_eq!(key(), moved);
    world.advance(121_000);
    world.pull();
    world.converged();
}

/// The state after a pull was killed between storing a moved issue and removing the old one.
#[test]
fn a_moved_issue_that_was_left_in_its_old_project_is_removed() {
    let world = World::new(small());
    world.pull();
    let old = world.replica.issue("AA-3").unwrap();
    let from = world.replica.locate("AA-3").unwrap().unwrap();
    let body = json!({"issue": "AA-3", "project": "BB"});
    world.sim.control("POST", "/_sim/move", &body);
    world.pull();
    let topic = format!("issues.{}", from.project);
    world.replica.store(&topic, &from.id, &old).unwrap();
    let report = world.census().unwrap();
    assert_eq!((report.gone, report.moved), (0, 0), "{report:?}");
    assert!(world.replica.get(&topic, &from.id).unwrap().is_none());
    assert_eq!(world.replica.issues().unwrap().len(), world.site().len());
}

#[test]
fn an_added_project_is_read_from_its_first_change() {
    let world = World::new(small());
    let pull = |projects: &[&str]| {
        let projects = projects.iter().map(|key| (*key).to_owned()).collect();
        let options = weir_jira::pull::PullOptions {
            projects,
            ..world.options()
        };
        weir_jira::pull::pull(&world.client, &world.replica, &options).unwrap()
    };
    pull(&["AA"]);
    let count = |key: &str| {
        let all = world.replica.issues().unwrap().into_iter();
        all.filter(|issue| issue["fields"]["project"]["key"] == key)
            .count()
    };
    assert!(count("AA") > 0 && count("BB") == 0);
    world.advance(3_600_000);
    world.edit("AA-1", &json!({"summary": "the watermark moves on"}));
    pull(&["AA"]);
    pull(&["AA", "BB"]);
    world.converged();
    // A project is left out and added again.
    pull(&["AA"]);
    world.edit("BB-1", &json!({"summary": "not pulled"}));
    world.advance(3_600_000);
    world.edit("AA-1", &json!({"summary": "pulled"}));
    pull(&["AA"]);
    pull(&[]);
    world.converged();
    let report = pull(&[]);
    assert_eq!((report.requests, report.writes), (1, 0), "{report:?}");
}

/// The keys of projects in the settings can have small letters, as in a query.
#[test]
fn keys_of_projects_can_have_small_letters() {
    let world = World::new(small());
    let pull = |projects: &[&str], census: bool| {
        let options = PullOptions {
            projects: projects.iter().map(|key| (*key).to_owned()).collect(),
            census,
            ..world.options()
        };
        pull(&world.client, &world.replica, &options).unwrap()
    };
    pull(&["aa"], false);
    world.advance(3_600_000);
    world.edit("AA-1", &json!({"summary": "the watermark advances"}));
    pull(&["aa"], false);
    // The added project is read from its first change.
    pull(&["aa", "bb"], false);
    world.converged();
    let body = json!({"issue": "AA-2"});
    world.sim.control("POST", "/_sim/delete", &body);
    assert_eq!(pull(&["aa", "bb"], true).gone, 1);
    world.converged();
    assert_eq!(pull(&["aa", "bb"], false).requests, 1);
}

#[test]
fn a_shown_text_has_no_control_characters() {
    for text in ["red\u{1b}[31m", "\u{9b}31mred\u{7}"] {
        let part = json!({"type": "paragraph", "content": [{"type": "text", "text": text}]});
        let document = json!({"type": "doc", "version": 1, "content": [part]});
        for value in [document, json!(format!("{text}\r\nnext\tline"))] {
            let shown = weir_jira::rich::shown(&value, 1);
            let harmless = |c: char| matches!(c, '\n' | '\t') || !c.is_control();
            assert!(
                shown.contains("red") && shown.chars().all(harmless),
                "{shown:?}"
            );
        }
    }
}

#[test]
fn a_page_of_large_issues_is_stored() {
    let world = World::new(small());
    let change = |number: u32| weir_jira::replica::Change {
        key: number.to_string(),
        value: Some(vec![b' '; 2 << 20]),
        found: None,
    };
    let changes: Vec<_> = (0..40).map(change).collect();
    assert!(world.replica.apply("large", &changes).unwrap());
    assert_eq!(world.replica.keys("large", "").unwrap().len(), 40);
}

#[test]
fn a_census_finds_deletions_and_needs_a_confirmation_for_many() {
    let world = World::new(small());
    world.pull();
    world
        .sim
        .control("POST", "/_sim/delete", &json!({"issue": "AA-1"}));
    assert_eq!(world.pull().gone, 0);
    assert_eq!(world.census().unwrap().gone, 1);
    world.converged();
    for number in 2..12 {
        world.sim.control(
            "POST",
            "/_sim/delete",
            &json!({"issue": format!("AA-{number}")}),
        );
    }
    let error = world.census().unwrap_err();
    assert!(
        matches!(error, JiraError::TooManyGone { gone: 10, .. }),
        "{error}"
    );
    // The census asks about one project, does not block the others, and does not ask again by
    // itself.
    world
        .sim
        .control("POST", "/_sim/delete", &json!({"issue": "BB-1"}));
    world.census().unwrap_err();
    assert!(world.replica.issue("BB-1").is_err());
    world.advance(60_000);
    world.pull();
    let mut options = world.options();
    (options.census, options.confirm_removal) = (true, true);
    let report = weir_jira::pull::pull(&world.client, &world.replica, &options).unwrap();
    assert_eq!(report.gone, 10);
    world.converged();
}

#[test]
fn issues_of_a_hidden_project_are_kept_and_the_project_is_marked() {
    let world = World::new(small());
    world.pull();
    let before = world.replica.issues().unwrap().len();
    world
        .sim
        .control("POST", "/_sim/revoke", &json!({"project": "AA"}));
    assert_eq!(world.census().unwrap().gone, 0);
    assert_eq!(world.replica.issues().unwrap().len(), before);
    let projects = world.replica.projects().unwrap();
    let of = |key: &str| {
        let found = projects
            .iter()
            .find(|(_, value)| value["project"]["key"] == key);
        found.unwrap().1["visible"].clone()
    };
    assert_eq!((of("AA"), of("BB")), (json!(false), json!(true)));
}

#[test]
fn issues_of_a_hidden_project_are_purged_on_request() {
    let world = World::new(small());
    world.pull();
    world
        .sim
        .control("POST", "/_sim/revoke", &json!({"project": "AA"}));
    let mut options = world.options();
    options.purge_lost = true;
    // Without a census nothing is purged.
    assert_eq!(
        weir_jira::pull::pull(&world.client, &world.replica, &options)
            .unwrap()
            .gone,
        0
    );
    options.census = true;
    let report = weir_jira::pull::pull(&world.client, &world.replica, &options).unwrap();
    assert!(report.gone > 0, "{report:?}");
    let left = world.replica.issues().unwrap();
    assert!(
        !left.is_empty()
            && left
                .iter()
                .all(|issue| issue["fields"]["project"]["key"] == "BB")
    );
    assert!(world.replica.locate("AA-1").unwrap().is_none());
    // The project is visible again: its issues return.
    let body = json!({"project": "AA", "visible": true});
    world.sim.control("POST", "/_sim/revoke", &body);
    world.census().unwrap();
    world.converged();
}

#[test]
fn a_site_without_favourite_filters_is_pulled() {
    let world = World::new(small());
    world.fault(
        "GET",
        "/rest/api/3/filter/favourite",
        1,
        1,
        &json!({"name": "403"}),
    );
    world.pull();
    assert!(weir_jira::meta::filters(&world.replica).unwrap().is_empty());
    world.advance(2 * 86_400_000);
    world.pull();
    let filters = weir_jira::meta::filters(&world.replica).unwrap();
    assert_eq!(filters.len(), 2);
    for (name, jql) in filters {
        assert!(weir_jira::jql::parse(&jql).is_ok(), "{name}: {jql}");
    }
}

/// Worklogs that other users change or delete without a change of the issue.
#[test]
fn worklogs_that_change_without_their_issue_are_found() {
    let world = World::new(SimOptions {
        worklogs: 2,
        ..small()
    });
    world.pull();
    let mut index = Index::load(&world.replica).unwrap();
    let worklogs = |issue: &Value| {
        let all = &issue["fields"]["worklog"]["worklogs"];
        all.as_array().unwrap().clone()
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (mut changed, mut deleted) = (0, 0);
    for issue in world.site().values() {
        for (number, worklog) in worklogs(issue).iter().enumerate() {
            world.advance(500);
            if number == 0 {
                let new = json!({"id": worklog["id"], "timeSpentSeconds": 3600});
                let body = json!({"issue": issue["key"], "worklog": new});
                world.sim.control("POST", "/_sim/edit", &body);
                changed += 1;
            } else if number == 1 {
                let body = json!({"issue": issue["key"], "worklog": worklog["id"]});
                let done = world.sim.control("POST", "/_sim/delete", &body);
                assert_eq!(done["deleted"], true);
                deleted += 1;
            }
        }
    }
    // Both feeds have several pages.
    assert!(changed > 10 && deleted > 10, "{changed} {deleted}");
    assert_eq!(world.pull().stored, 0);
    // The site shows the last minute later.
    world.advance(61_000);
    world.census().unwrap();
    for (id, issue) in world.site() {
        let project = text(&issue["fields"]["project"]["id"]);
        let location = Location { id, project };
        assert_eq!(world.replica.worklogs(&location).unwrap(), worklogs(&issue));
    }
    assert_eq!(index.refresh(&world.replica).unwrap(), changed);
    // The feeds begin shortly before the end of the last census, so after a second day they begin
    // after these changes.
    for _ in 0..2 {
        world.advance(86_400_000);
        world.sim.control("DELETE", "/_sim/log", &Value::Null);
        world.census().unwrap();
    }
    let log = world.sim.control("GET", "/_sim/log", &Value::Null);
    let lists = log.as_array().unwrap().iter();
    let lists = lists.filter(|request| text(&request["path"]).ends_with("worklog/list"));
    assert_eq!(lists.count(), 0);
}

/// The clock of this machine was wrong at the first pull, and the feeds of worklogs began in the
/// future.
#[test]
fn worklogs_are_found_after_the_clock_was_set_back() {
    let world = World::new(SimOptions {
        worklogs: 2,
        ..small()
    });
    let now_ms = world.now() + 3650 * 86_400_000;
    let ahead = PullOptions {
        now_ms,
        ..world.options()
    };
    pull(&world.client, &world.replica, &ahead).unwrap();
    let site = world.site();
    let first = |issue: &Value| issue["fields"]["worklog"]["worklogs"][0].clone();
    let issue = site.values().find(|issue| !first(issue).is_null()).unwrap();
    let id = first(issue)["id"].clone();
    let body = json!({"issue": issue["key"], "worklog": {"id": id, "timeSpentSeconds": 60_000}});
    world.sim.control("POST", "/_sim/edit", &body);
    world.advance(61_000);
    world.pull();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let location = Location {
        id: text(&issue["id"]),
        project: text(&issue["fields"]["project"]["id"]),
    };
    let stored = world.replica.worklogs(&location).unwrap();
    let stored = stored.iter().find(|worklog| worklog["id"] == id).unwrap();
    assert_eq!(stored["timeSpentSeconds"], 60_000);
}

/// The feeds of worklogs do not show those of a hidden project. They are read again once the
/// project is visible.
#[test]
fn worklogs_that_change_while_their_project_is_hidden_are_found() {
    let world = World::new(SimOptions {
        worklogs: 2,
        ..small()
    });
    world.pull();
    let site = world.site();
    let worklogs = |issue: &Value| {
        let all = &issue["fields"]["worklog"]["worklogs"];
        all.as_array().unwrap().clone()
    };
    let here = |issue: &Value| {
        let location = world.replica.locate(issue["key"].as_str().unwrap());
        world.replica.worklogs(&location.unwrap().unwrap()).unwrap()
    };
    let mut worked = site
        .values()
        .filter(|issue| issue["fields"]["project"]["key"] == "AA" && !worklogs(issue).is_empty());
    let [changed, deleted] = [worked.next().unwrap(), worked.next().unwrap()];
    let show = |visible: bool| {
        let body = json!({"project": "AA", "visible": visible});
        world.sim.control("POST", "/_sim/revoke", &body);
    };
    let next_day = || {
        world.advance(86_400_000);
        world.sim.control("DELETE", "/_sim/log", &Value::Null);
        world.pull()
    };
    show(false);
    next_day();
    // The count of the worklogs stays, so only the feed shows this change.
    let new = json!({"id": worklogs(changed)[0]["id"], "timeSpentSeconds": 3600});
    let body = json!({"issue": changed["key"], "worklog": new});
    world.sim.control("POST", "/_sim/edit", &body);
    let gone = &worklogs(deleted)[0]["id"];
    let body = json!({"issue": deleted["key"], "worklog": gone});
    world.sim.control("POST", "/_sim/delete", &body);
    // The start of the feeds moves past the changes.
    next_day();
    next_day();
    assert_ne!(here(changed)[0]["timeSpentSeconds"], 3600);
    show(true);
    next_day();
    assert_eq!(here(changed)[0]["timeSpentSeconds"], 3600);
    assert!(here(deleted).iter().all(|worklog| worklog["id"] != *gone));
    // The feeds are read again only once.
    next_day();
    let log = world.sim.control("GET", "/_sim/log", &Value::Null);
    let lists = log.as_array().unwrap().iter();
    let lists = lists.filter(|request| request["path"].to_string().contains("worklog/list"));
    assert_eq!(lists.count(), 0);
}

/// The account loses a project after a pull has read the list of projects, and before the pull
/// reads the feeds of worklogs.
#[test]
fn worklogs_of_a_project_that_is_lost_during_a_pull_are_found() {
    let world = Arc::new(World::new(SimOptions {
        worklogs: 2,
        ..small()
    }));
    world.pull();
    let site = world.site();
    let mut worked = site.values().filter(|issue| {
        let worklogs = &issue["fields"]["worklog"]["worklogs"];
        issue["fields"]["project"]["key"] == "AA" && !worklogs[0].is_null()
    });
    let changed = worked.next().unwrap();
    let seconds = || {
        let location = world.replica.locate(changed["key"].as_str().unwrap());
        let worklogs = world.replica.worklogs(&location.unwrap().unwrap());
        worklogs.unwrap()[0]["timeSpentSeconds"].clone()
    };
    let id = &changed["fields"]["worklog"]["worklogs"][0]["id"];
    let new = json!({"id": id, "timeSpentSeconds": 3600});
    let body = json!({"issue": changed["key"], "worklog": new});
    world.sim.control("POST", "/_sim/edit", &body);
    world.advance(86_400_000);
    let path = "/rest/api/3/worklog/updated";
    world.fault("GET", path, 1, 1, &json!({"name": "503"}));
    let shared = Arc::clone(&world);
    let pause = Arc::new(move |_| {
        let body = json!({"project": "AA", "visible": false});
        shared.sim.control("POST", "/_sim/revoke", &body);
    });
    let client = Client::with(&world.sim.url(), None, Duration::from_mins(5), pause).unwrap();
    pull(&client, &world.replica, &world.options()).unwrap();
    world.advance(86_400_000);
    world.pull();
    assert_ne!(seconds(), 3600);
    let body = json!({"project": "AA", "visible": true});
    world.sim.control("POST", "/_sim/revoke", &body);
    world.advance(86_400_000);
    world.pull();
    assert_eq!(seconds(), 3600);
}

#[test]
fn worklogs_are_pulled_beyond_those_that_an_issue_shows() {
    let world = World::new(SimOptions {
        worklogs: 30,
        issues: 12,
        ..small()
    });
    world.pull();
    let site = world.site();
    let mut long = 0;
    for (id, issue) in &site {
        let there = issue["fields"]["worklog"]["worklogs"].as_array().unwrap();
        let location = world.replica.locate(id).unwrap().unwrap();
        assert_eq!(&world.replica.worklogs(&location).unwrap(), there, "{id}");
        long += usize::from(there.len() > 20);
    }
    assert!(long > 0);
}

#[test]
fn an_index_that_lags_loses_nothing_within_the_overlap() {
    let world = World::new(SimOptions {
        search_lag_ms: 120_000,
        ..small()
    });
    world.pull();
    for round in 0..8 {
        for number in 1..6 {
            let summary = format!("round {round} issue {number}");
            world.edit(&format!("AA-{number}"), &json!({"summary": summary}));
        }
        world.pull();
        world.advance(20_000);
    }
    world.advance(121_000);
    world.pull();
    world.converged();
}

#[test]
fn the_time_zone_of_the_account_does_not_affect_a_pull() {
    for zone in [
        "GMT-12:00",
        "Etc/UTC",
        "Asia/Kolkata",
        "Pacific/Kiritimati",
        "Europe/Berlin",
    ] {
        let world = World::new(SimOptions {
            time_zone: zone.to_owned(),
            ..small()
        });
        world.pull();
        world.edit("AA-1", &json!({"summary": "elsewhere"}));
        assert_eq!(world.pull().stored, 1, "{zone}");
        world.converged();
    }
}

/// An importer can give an issue a time in the future. Later changes of other issues are not before
/// the watermark.
#[test]
fn a_time_in_the_future_does_not_advance_the_watermark() {
    let world = World::new(small());
    world.pull();
    let today = world.options();
    world.advance(10 * 86_400_000);
    world.edit("AA-1", &json!({"summary": "imported"}));
    let report = pull(&world.client, &world.replica, &today).unwrap();
    assert_eq!(report.stored, 1, "{report:?}");
    let cursor: Value = world.replica.read("cursors", "issues").unwrap().unwrap();
    let watermark = cursor["watermark_ms"].as_i64().unwrap();
    assert!(watermark <= today.now_ms, "{cursor}");
    world.pull();
    world.converged();
}

/// A stored time in the future does not hide the later versions of the issue, which have an earlier
/// time.
#[test]
fn an_issue_with_a_time_in_the_future_gets_its_next_version() {
    let world = World::new(small());
    world.pull();
    let import = |key: &str| {
        let location = world.replica.locate(key).unwrap().unwrap();
        let mut issue = world.replica.issue(key).unwrap();
        let future = time::format(world.now() + 10 * 86_400_000);
        issue["fields"]["updated"] = future.into();
        let topic = format!("issues.{}", location.project);
        world.replica.store(&topic, &location.id, &issue).unwrap();
    };
    import("AA-1");
    import("AA-2");
    world.edit("AA-1", &json!({"summary": "after the import"}));
    let body = json!({"issue": "AA-2", "project": "BB"});
    world.sim.control("POST", "/_sim/move", &body);
    let report = world.pull();
    assert_eq!((report.stored, report.stale), (2, 0), "{report:?}");
    world.converged();
    // The version before the import is too old for a pull. The census finds it.
    world.advance(3_600_000);
    world.edit("AA-3", &json!({"summary": "the watermark advances"}));
    world.pull();
    import("AA-4");
    assert_eq!(world.pull().stored, 0);
    assert_eq!(world.census().unwrap().repaired, 1);
    assert_eq!(world.census().unwrap().repaired, 0);
    let stored = world.replica.issue("AA-4").unwrap();
    let site = world.site_issue("AA-4");
    assert_eq!(stored["fields"]["updated"], site["fields"]["updated"]);
}

/// A census at a wrong time in the future does not prevent the next one for years.
#[test]
fn a_census_is_due_after_the_clock_was_set_back() {
    let world = World::new(small());
    let now_ms = world.now() + 3650 * 86_400_000;
    let ahead = PullOptions {
        now_ms,
        ..world.options()
    };
    pull(&world.client, &world.replica, &ahead).unwrap();
    let body = json!({"issue": "AA-1"});
    world.sim.control("POST", "/_sim/delete", &body);
    assert_eq!(world.pull().gone, 1);
    assert_eq!(world.pull().requests, 1);
    world.converged();
}

/// Another process adds a comment to an issue, and reads it back, while a pull stores a page from
/// before the comment. The pull removes the comment from the replica and fails; the next census adds
/// it again.
#[test]
fn a_comment_that_another_process_reads_back_during_a_pull_is_not_lost() {
    let world = World::new(SimOptions {
        page_cap: 100,
        ..small()
    });
    world.pull();
    world.advance(60_000);
    let id = |key: &str| world.replica.locate(key).unwrap().unwrap().id;
    let (first, second) = if id("AA-1") < id("AA-2") {
        ("AA-1", "AA-2")
    } else {
        ("AA-2", "AA-1")
    };
    // More comments than a page shows: the pull requests them before it stores the second issue.
    let text = json!({"type": "doc", "version": 1, "content": []});
    for _ in 0..30 {
        let path = format!("issue/{first}/comment");
        let body = json!({"body": text});
        world.client.write("POST", &path, &body).unwrap();
    }
    world.edit(second, &json!({"summary": "changed"}));
    let fault = json!({"name": "429", "retry_after": "7"});
    world.fault("GET", "/rest/api/3/issue/*/comment", 1, 1, &fault);
    let (replica, now_ms) = (world.other_replica(), world.now());
    let other = world.client_within(Duration::from_mins(5));
    let pauses = AtomicUsize::new(0);
    let pause = Arc::new(move |_| {
        if pauses.fetch_add(1, Ordering::SeqCst) == 0 {
            let outbox = Outbox::new(&replica, now_ms);
            outbox.comment(second, "of another process").unwrap();
            let report = push(&other, &replica, &PushOptions { now_ms }).unwrap();
            assert_eq!(report.sent, 1, "{report:?}");
        }
    });
    let client = Client::with(&world.sim.url(), None, Duration::from_mins(5), pause).unwrap();
    let error = pull(&client, &world.replica, &world.options()).unwrap_err();
    assert!(matches!(error, JiraError::Busy), "{error}");
    world.pull();
    world.census().unwrap();
    world.converged();
}

/// Some changes do not change the time of an issue. Once a week, a pull reads a part of the issues
/// again.
#[test]
fn a_weekly_sample_finds_changes_without_a_new_time() {
    let world = World::new(SimOptions {
        issues: 130,
        comments: 0,
        ..small()
    });
    world.pull();
    for key in world.keys() {
        let body = json!({"issue": key, "silent": {"customfield_10019": "0|i0000f:"}});
        world.sim.control("POST", "/_sim/edit", &body);
    }
    let sampled = || {
        let report = world.pull();
        (report.sampled, report.outdated)
    };
    // A forced census does not sample either.
    assert_eq!(world.census().unwrap().sampled, 0);
    world.advance(6 * 86_400_000);
    assert_eq!(sampled(), (0, 0));
    world.advance(86_400_000);
    assert_eq!(sampled(), (100, 100));
    world.advance(86_400_000);
    assert_eq!(sampled(), (0, 0));
    // The second sample has the other issues, then begins again. The pulls before it have read the
    // newest issue again.
    world.advance(6 * 86_400_000);
    assert_eq!(sampled(), (100, 29));
    world.converged();
    world.advance(7 * 86_400_000);
    assert_eq!(sampled(), (100, 0));
}

/// The dates of a query without a request are those of the account, as at the site.
#[test]
fn a_day_of_a_query_is_in_the_time_zone_of_the_account() {
    let world = World::new(SimOptions {
        time_zone: "Asia/Tokyo".to_owned(),
        ..small()
    });
    let mut index = Index::load(&world.replica).unwrap();
    // 2024-11-28 23:30 in Tokyo, and 00:30 on the next day; both are on one day in UTC.
    world.advance(70 * 60_000);
    world.edit("AA-1", &json!({"summary": "yesterday"}));
    world.advance(60 * 60_000);
    world.edit(
        "AA-2",
        &json!({"summary": "today", "duedate": "2024-11-29"}),
    );
    world.pull();
    index.refresh(&world.replica).unwrap();
    for (query, wanted) in [
        ("updated >= startOfDay()", vec!["AA-2"]),
        (
            "updated >= startOfDay(-1d) AND updated <= endOfDay(-1d)",
            vec!["AA-1"],
        ),
        ("updated >= 2024-11-29", vec!["AA-2"]),
        ("due >= startOfDay() AND due <= endOfDay()", vec!["AA-2"]),
        (
            "updated >= '2024-11-28 23:30' ORDER BY key",
            vec!["AA-1", "AA-2"],
        ),
    ] {
        let key = |issue: &serde_json::Value| issue["key"].as_str().unwrap().to_owned();
        let found = offline::select(&world.replica, query, world.now()).unwrap();
        assert_eq!(found.iter().map(key).collect::<Vec<_>>(), wanted, "{query}");
        let rows = index.select(query, world.now(), usize::MAX).unwrap();
        let rows: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
        assert_eq!(rows, wanted, "{query}");
        let asked = site_query::fetch_or_cached(&world.client, &world.replica, query, world.now());
        assert_eq!(asked.unwrap().ids.len(), wanted.len(), "{query}");
    }
}

/// An index compares values without reading the issues. It selects what the replica selects, also
/// after changes by others and with operations in the outbox.
#[test]
fn an_index_and_the_replica_select_the_same_issues() {
    let world = World::new(small());
    world.pull();
    let mut index = Index::load(&world.replica).unwrap();
    world.edit(
        "AA-1",
        &json!({"labels": ["Größe", "two"], "assignee": null}),
    );
    world.edit("AA-2", &json!({"labels": []}));
    world.pull();
    let outbox = world.outbox();
    outbox.label("AA-3", &["waits".to_owned()], &[]).unwrap();
    outbox.create("AA", "Task", "New", &[], None).unwrap();
    index.refresh(&world.replica).unwrap();
    let now = world.now();
    let check = |query: &str| {
        let wanted = offline::select(&world.replica, query, now).unwrap();
        let ids: Vec<&str> = wanted
            .iter()
            .map(|issue| issue["id"].as_str().unwrap())
            .collect();
        let rows = index.select(query, now, usize::MAX).unwrap();
        let rows: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(rows, ids, "{query}");
        rows.len()
    };
    for query in [
        "project = aa ORDER BY updated DESC",
        "project IN (aa, BB) ORDER BY created",
        "type = task",
        "issuetype != Task ORDER BY updated",
        "status = Done ORDER BY created DESC",
        "status NOT IN (done, nothing)",
        "statusCategory != Done ORDER BY created DESC, key",
        "assignee = currentUser()",
        "assignee IS EMPTY",
        "reporter IS NOT EMPTY AND NOT status = Done",
        "resolution IS EMPTY OR priority = high",
        "creator = currentUser()",
        "labels IS EMPTY",
        "summary ~ new",
        "summary !~ new",
        "ORDER BY updated",
        "",
    ] {
        assert!(check(query) > 0, "{query}");
    }
    for query in [
        "description ~ \"print*\"",
        "comment ~ mail AND status = Done",
    ] {
        check(query);
    }
    for query in ["labels = \"GRÖSSE\"", "status = \"\""] {
        assert_eq!(check(query), 0, "{query}");
    }
    assert_eq!(check("labels = \"GRÖßE\" AND labels = TWO"), 1);
    assert_eq!(check("labels = Waits"), 1);
}

#[test]
fn offline_queries_need_no_request() {
    let world = World::new(small());
    world.pull();
    let requests = world.client.requests();
    let now = world.now();
    let all = offline::select(&world.replica, "", now).unwrap();
    assert_eq!(all.len(), 45);
    let site = world.site();
    let done = site
        .values()
        .filter(|issue| issue["fields"]["status"]["name"] == "Done")
        .count();
    let found = offline::select(&world.replica, "status = Done ORDER BY key", now).unwrap();
    assert_eq!(found.len(), done);
    let mine = offline::select(&world.replica, "assignee = currentUser()", now).unwrap();
    assert!(
        mine.iter()
            .all(|issue| issue["fields"]["assignee"]["accountId"] == "user-0")
    );
    for name in ["key", "issue", "issueKey"] {
        let query = format!("{name} = aa-4");
        let found = offline::select(&world.replica, &query, now).unwrap();
        let keys: Vec<_> = found.iter().map(|issue| &issue["key"]).collect();
        assert_eq!(keys, ["AA-4"], "{name}");
    }
    world.edit("AA-4", &json!({"summary": "Zeppelin hangar"}));
    world.pull();
    let found = offline::search(&world.replica, "zepp hang", now).unwrap();
    assert_eq!(found.len(), 1);
    let error = offline::select(&world.replica, "status = ", now)
        .unwrap_err()
        .to_string();
    assert!(error.contains("character 10"), "{error}");
    // A query that the replica cannot answer fails; it does not return an empty result.
    for query in ["sprint = 4", "sprint in openSprints()"] {
        assert!(offline::select(&world.replica, query, now).is_err());
    }
    assert!(offline::search(&world.replica, " ", now).is_err());
    // Only the pull in between sent requests.
    assert_eq!(world.client.requests(), requests + 1);
}

#[test]
fn a_value_of_a_query_that_the_replica_lacks_is_reported() {
    let world = World::new(small());
    world.pull();
    let unknown = |query: &str| -> Vec<String> {
        let found = offline::select(&world.replica, query, world.now()).unwrap();
        let unknown = offline::unknown_values(&world.replica, query, &found).unwrap();
        let unknown = unknown.into_iter();
        unknown
            .map(|one| format!("{}={}", one.field, one.value))
            .collect()
    };
    assert_eq!(unknown("status = Nope"), ["status=Nope"]);
    let query = "NOT type IN (Bug, Nope) OR (priority != None AND project = ZZ)";
    assert_eq!(unknown(query), ["type=Nope", "priority=None", "project=ZZ"]);
    assert_eq!(
        unknown("assignee = me OR assignee = ME"),
        ["assignee=me", "assignee=ME"]
    );
    // These values are known, although the queries select no issue.
    for known in [
        "status IN (\"to do\", Done)",
        "type = bug",
        "priority IN (High, Medium, Low)",
        "project = aa",
    ] {
        let query = format!("{known} AND summary ~ zeppelin");
        assert_eq!(unknown(&query), [""; 0], "{query}");
    }
    // These fields and operators are not checked.
    let query = "assignee = currentUser() OR assignee = Nobody OR labels = Nope OR status ~ Nope";
    assert_eq!(unknown(query), [""; 0]);
}

#[test]
fn the_last_answer_of_the_site_to_a_query_is_stored() {
    let world = World::new(small());
    world.pull();
    let jql = "project = AA ORDER BY key DESC";
    let (client, replica) = (&world.client, &world.replica);
    let keys = |issues: &[serde_json::Value]| -> Vec<String> {
        let keys = issues
            .iter()
            .map(|issue| issue["key"].as_str().unwrap().to_owned());
        keys.collect()
    };
    let asked = site_query::fetch(client, replica, jql, 7).unwrap();
    let wanted = offline::select(replica, jql, world.now()).unwrap();
    assert!(wanted.len() > 10, "more than one page");
    assert_eq!(
        keys(&site_query::issues(replica, &asked).unwrap()),
        keys(&wanted)
    );
    // The answer includes a pending edit.
    let first = keys(&wanted).remove(0);
    let edit = [("summary".to_owned(), "Mine".to_owned())];
    world.outbox().edit(&first, &edit).unwrap();
    let shown = site_query::issues(replica, &asked).unwrap();
    assert_eq!(shown[0]["fields"]["summary"], "Mine");
    // A query without a condition fails, and so does a query that the site rejects.
    let before = client.requests();
    for empty in ["", "  ", "order by key", "ORDER \t BY key"] {
        let error = site_query::fetch(client, replica, empty, 8).unwrap_err();
        assert!(matches!(error, JiraError::EmptyQuery), "{error}");
    }
    assert_eq!(client.requests(), before);
    let error = site_query::fetch_or_cached(client, replica, "colour = red", 8).unwrap_err();
    assert!(
        matches!(error, JiraError::Status { status: 400, .. }),
        "{error}"
    );
    // If the site cannot be reached, the last answer is returned, with its time.
    let fault = serde_json::json!({"name": "reset-before"});
    world.fault("POST", "/rest/api/3/search/jql", 1, 0, &fault);
    assert_eq!(
        site_query::fetch_or_cached(client, replica, jql, 9).unwrap(),
        asked
    );
    let error = site_query::fetch_or_cached(client, replica, "project = BB", 9).unwrap_err();
    assert!(matches!(error, JiraError::Transport { .. }), "{error}");
}
