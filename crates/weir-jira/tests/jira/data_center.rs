//! A replica of Jira Data Center, which is read-only.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use weir_jira::JiraError;
use weir_jira::access::{self, Site};
use weir_jira::client::{Client, Deployment};
use weir_jira::offline;
use weir_jira::pull::pull;
use weir_jira::sim::SimOptions;
use weir_jira::site_query;

use crate::world::{World, small};

fn data_center() -> SimOptions {
    SimOptions {
        data_center: true,
        ..small()
    }
}

#[test]
fn a_replica_is_pulled_listed_shown_and_searched() {
    let world = World::new(data_center());
    let report = world.pull();
    assert_eq!((report.stored, report.gone), (45, 0), "{report:?}");
    world.converged();
    let again = world.pull();
    assert_eq!(
        (again.stored, again.writes, again.requests),
        (0, 0, 1),
        "{again:?}"
    );
    let now = world.now();
    let shown = world.replica.issue("AA-1").unwrap();
    assert!(shown["fields"]["description"].is_string(), "{shown}");
    let description = shown["fields"]["description"].as_str().unwrap();
    let term = description
        .split_whitespace()
        .find(|word| word.chars().all(char::is_alphanumeric));
    let found = offline::search(&world.replica, term.unwrap(), now).unwrap();
    assert!(found.iter().any(|issue| issue["key"] == "AA-1"), "{term:?}");
    let mine = offline::select(&world.replica, "assignee = currentUser()", now).unwrap();
    assert!(!mine.is_empty());
    assert!(
        mine.iter()
            .all(|issue| issue["fields"]["assignee"]["name"] == "user-0")
    );
    let jql = "project = AA ORDER BY key DESC";
    let asked = site_query::fetch(&world.client, &world.replica, jql, now).unwrap();
    let wanted = offline::select(&world.replica, jql, now).unwrap();
    assert!(wanted.len() > 10, "more than one page");
    assert_eq!(site_query::issues(&world.replica, &asked).unwrap(), wanted);
}

/// The site refuses a query of the user with an unknown field or issue. Only a pull, which reads
/// issues by id, gets the issues that still exist.
#[test]
fn a_query_with_an_unknown_field_or_issue_is_refused() {
    let world = World::new(data_center());
    world.pull();
    let ask = |jql: &str| site_query::fetch_or_cached(&world.client, &world.replica, jql, 7);
    for jql in [
        "colour = red",
        "project = AA AND id in (99999999)",
        "key != ZZ-1",
    ] {
        let error = ask(jql).unwrap_err();
        assert!(
            matches!(error, JiraError::Status { status: 400, .. }),
            "{jql}: {error}"
        );
    }
    let known = world.site().into_keys().next().unwrap();
    let jql = format!("id in ({known})");
    assert_eq!(ask(&jql).unwrap().ids, std::slice::from_ref(&known));
    let found = |jql: &str| -> Value {
        let body = json!({"jql": jql, "fields": ["id"], "validateQuery": false});
        world.client.read_by_post("search", &body).unwrap()
    };
    assert_eq!(found("colour = red")["total"], 0);
    assert_eq!(found(&format!("id in (99999999, {known})"))["total"], 1);
}

#[test]
fn edits_moves_and_deletions_are_pulled() {
    let world = World::new(data_center());
    world.pull();
    for round in 0..6 {
        for number in 1..9 {
            let summary = format!("round {round} issue {number}");
            world.edit(&format!("AA-{number}"), &json!({"summary": summary}));
        }
        world.pull();
        world.advance(40_000);
    }
    world.converged();
    world.sim.control(
        "POST",
        "/_sim/move",
        &json!({"issue": "AA-2", "project": "BB"}),
    );
    world
        .sim
        .control("POST", "/_sim/delete", &json!({"issue": "AA-3"}));
    world.advance(60_000);
    let report = world.census().unwrap();
    assert_eq!((report.moved, report.gone), (1, 1), "{report:?}");
    world.converged();
}

/// Sends a control request to a simulator, as another process would.
fn control(url: &str, path: &str, body: &Value) {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    let body = body.to_string();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
}

/// All issues change within one minute, so the pull must read that minute by offset. Before the
/// pull reads the second page, an issue of the first page changes, and the other issues move up by
/// one row.
#[test]
fn an_edit_between_two_pages_hides_no_issue() {
    let world = World::new(data_center());
    world.pull();
    world.advance(3_600_000);
    for issue in world.site().values() {
        let body = json!({"issue": issue["key"], "fields": {"summary": "all at once"}});
        world.sim.control("POST", "/_sim/edit", &body);
    }
    let (url, pauses) = (world.sim.url(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&pauses);
    let pause = move |_| {
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            control(&url, "/_sim/clock", &json!({"advance_ms": 120_000}));
            let body = json!({"issue": "AA-1", "fields": {"summary": "in between"}});
            control(&url, "/_sim/edit", &body);
        }
    };
    // The second query begins at the minute of the first page; the third one requests its next
    // page.
    world.fault("POST", "/rest/api/2/search", 3, 1, &json!({"name": "503"}));
    let client = Client::with(
        &world.sim.url(),
        None,
        Duration::from_mins(5),
        Arc::new(pause),
    );
    let client = client.unwrap().deployed(Deployment::DataCenter);
    let report = pull(&client, &world.replica, &world.options()).unwrap();
    assert_eq!(pauses.load(Ordering::SeqCst), 1);
    assert_eq!(report.stored, 46, "one of 45 changed twice: {report:?}");
    world.converged();
}

#[test]
fn inconsistent_pages_are_repaired() {
    for name in [
        "short-page",
        "empty-page",
        "shrink-total",
        "dup",
        "missing",
        "stale",
    ] {
        let world = World::new(data_center());
        world.fault("POST", "/rest/api/2/search", 2, 1, &json!({"name": name}));
        let first = world.try_pull();
        world.advance(60_000);
        let second = world.census();
        assert!(second.is_ok(), "{name}: {first:?} {second:?}");
        world.converged();
    }
    let world = World::new(data_center());
    world.fault(
        "POST",
        "/rest/api/2/search",
        1,
        0,
        &json!({"name": "empty-page"}),
    );
    let error = world.try_pull().unwrap_err();
    assert!(matches!(error, JiraError::Paging(_)), "{error}");
}

#[test]
fn nothing_is_written() {
    let world = World::new(data_center());
    world.pull();
    let edit = [("summary".to_owned(), "Mine".to_owned())];
    let outbox = world.outbox();
    let refused = [
        outbox.edit("AA-1", &edit).unwrap_err(),
        outbox.comment("AA-1", "text").unwrap_err(),
        outbox.create("AA", "Task", "New", &[], None).unwrap_err(),
        outbox.link("AA-1", "blocks", "AA-2", false).unwrap_err(),
        outbox.delete("AA-1", false).unwrap_err(),
        world
            .client
            .write("PUT", "issue/AA-1", &json!({}))
            .unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error, JiraError::ReadOnly), "{error}");
    }
    assert_eq!(world.push().requests, 0);
    let log = world.sim.control("GET", "/_sim/log", &Value::Null);
    for request in log.as_array().unwrap() {
        let (method, path) = (&request["method"], request["path"].as_str().unwrap());
        assert!(path.starts_with("/rest/api/2/"), "{request}");
        assert!(method == "GET" || path.ends_with("/search"), "{request}");
    }
}

#[test]
fn a_personal_access_token_is_a_bearer_token() {
    let world = World::new(SimOptions {
        auth: Some((String::new(), "s3cret".to_owned())),
        ..data_center()
    });
    let fresh = || Site {
        site_url: world.sim.url(),
        api_url: world.sim.url(),
        ..Site::default()
    };
    let mut site = fresh();
    site.detect(Some("s3cret")).unwrap();
    assert_eq!(
        (site.deployment, site.bearer),
        (Deployment::DataCenter, true)
    );
    let folder = tempfile::tempdir().unwrap();
    site.save(folder.path(), "x", Some("s3cret")).unwrap();
    let site = Site::load(folder.path(), "x").unwrap();
    let token = site.token(folder.path(), "x").unwrap();
    let client = site.client(token.as_deref()).unwrap();
    let rights = access::rights(&client).unwrap();
    assert_eq!(rights.len(), 1);
    assert!(
        rights
            .iter()
            .all(|right| right.granted && right.name == "BROWSE_PROJECTS")
    );
    pull(&client, &world.replica, &world.options()).unwrap();
    world.converged();
    for token in [None, Some("other")] {
        let error = fresh().detect(token).unwrap_err();
        assert!(matches!(error, JiraError::Unauthenticated), "{error}");
    }
    // Cloud rejects a token without its account.
    let cloud = World::new(small());
    let mut site = Site {
        site_url: cloud.sim.url(),
        api_url: cloud.sim.url(),
        ..Site::default()
    };
    let error = site.detect(Some("s3cret")).unwrap_err().to_string();
    assert!(
        error.contains("e-mail address") && !error.contains("s3cret"),
        "{error}"
    );
    site.detect(None).unwrap();
    assert_eq!((site.deployment, site.bearer), (Deployment::Cloud, false));
}
