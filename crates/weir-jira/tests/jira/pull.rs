//! First load, changes, moves, deletions, lost projects.

use serde_json::json;
use weir_jira::sim::SimOptions;
use weir_jira::{JiraError, offline};

use crate::world::{World, small};

#[test]
fn a_first_load_brings_everything_and_a_pull_without_changes_is_one_request() {
    let world = World::new(small());
    let report = world.pull();
    assert_eq!(report.stored, 45);
    world.converged();
    let report = world.pull();
    assert_eq!((report.requests, report.writes), (1, 0), "{report:?}");
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

#[test]
fn a_census_finds_deletions_and_asks_before_many() {
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
    let mut options = world.options();
    (options.census, options.confirm_removal) = (true, true);
    let report = weir_jira::pull::pull(&world.client, &world.replica, &options).unwrap();
    assert_eq!(report.gone, 10);
    world.converged();
}

#[test]
fn issues_of_a_revoked_project_are_kept_and_it_is_marked() {
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
fn the_zone_of_the_account_changes_nothing() {
    for offset_minutes in [-720, 0, 330, 840] {
        let world = World::new(SimOptions {
            offset_minutes,
            ..small()
        });
        world.pull();
        world.edit("AA-1", &json!({"summary": "elsewhere"}));
        assert_eq!(world.pull().stored, 1, "{offset_minutes}");
        world.converged();
    }
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
    world.edit("AA-4", &json!({"summary": "Zeppelin hangar"}));
    world.pull();
    let found = offline::search(&world.replica, "zepp hang", now).unwrap();
    assert_eq!(found.len(), 1);
    let error = offline::select(&world.replica, "status = ", now)
        .unwrap_err()
        .to_string();
    assert!(error.contains("character 10"), "{error}");
    assert!(offline::search(&world.replica, " ", now).is_err());
    // The pull in between is the only one that asked.
    assert_eq!(world.client.requests(), requests + 1);
}
