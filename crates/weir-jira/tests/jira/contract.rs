//! The checks of a site against the simulator: it satisfies all of them, and each check fails if
//! the site violates its expectation.

use serde_json::json;
use weir_jira::contract::{self, Finding, Outcome};
use weir_jira::sim::SimOptions;

use crate::world::{World, small};

fn broken(found: &[Finding]) -> Vec<&Finding> {
    let broken = found
        .iter()
        .filter(|finding| finding.outcome != Outcome::Passed);
    broken.collect()
}

#[test]
fn the_simulator_satisfies_every_expectation() {
    let world = World::new(small());
    let before = world.site();
    let found = contract::check(&world.client, None, false).unwrap();
    assert_eq!(broken(&found), Vec::<&Finding>::new());
    assert_eq!(found.len(), 25);
    // The checks only read the site.
    assert_eq!(world.site(), before);
    let found = contract::check(&world.client, Some("BB"), true).unwrap();
    assert_eq!(broken(&found), Vec::<&Finding>::new());
    assert_eq!(found.len(), 26);
    // All created issues are deleted.
    assert_eq!(world.site(), before);
    let center = World::new(SimOptions {
        data_center: true,
        ..small()
    });
    let found = contract::check(&center.client, None, true).unwrap();
    assert_eq!(broken(&found), Vec::<&Finding>::new());
    assert_eq!(found.len(), 12);
}

#[test]
fn equal_seeds_make_equal_sites() {
    let site = |seed| {
        let world = World::new(SimOptions {
            seed,
            worklogs: 1,
            ..small()
        });
        world.site()
    };
    assert_eq!(site(7), site(7));
    assert_ne!(site(7), site(8));
}

#[test]
fn a_site_that_violates_an_expectation_is_reported() {
    // A fault, the requests with that fault, and the expectation that it violates.
    for (fault, method, path, expectation) in [
        ("repeat-token", "POST", "search/jql", "pages by token"),
        ("stale", "POST", "search/jql", "a date in JQL"),
        ("gone", "GET", "issue/*/changelog", "the changelog"),
        ("garbage-json", "GET", "issueLinkType", "issueLinkType"),
        ("500", "GET", "issue/*/transitions", "transitions"),
        ("403", "GET", "users/search", "users/search"),
    ] {
        let world = World::new(small());
        let path = format!("/rest/api/3/{path}");
        world.fault(method, &path, 1, 0, &json!({"name": fault}));
        let found = contract::check(&world.client, None, false).unwrap();
        let broken = broken(&found);
        let noticed = broken.iter().any(|finding| {
            finding.expectation.starts_with(expectation)
                && matches!(finding.outcome, Outcome::Failed(_))
        });
        assert!(noticed, "{fault}: {broken:#?}");
    }
}

#[test]
fn an_issue_that_was_created_is_deleted_when_a_check_fails() {
    let world = World::new(small());
    let before = world.site();
    let path = "/rest/api/3/issue/*/comment";
    world.fault("POST", path, 1, 1, &json!({"name": "500"}));
    let found = contract::check(&world.client, Some("AA"), true).unwrap();
    assert_eq!(broken(&found).len(), 1, "{found:#?}");
    assert_eq!(world.site(), before);
}
