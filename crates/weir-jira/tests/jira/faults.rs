//! Each fault of the simulator, and the state after it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use weir_jira::client::Client;
use weir_jira::index::Index;
use weir_jira::pull::{PullReport, pull};
use weir_jira::sim::SimOptions;
use weir_jira::{JiraError, offline};

use crate::world::{World, small};

const SEARCH: &str = "/rest/api/3/search/jql";

/// A first pull with a fault from the second page of the changes on: the replica must equal the
/// site. The first search of a first pull requests the newest issues.
fn recovers(fault: &Value, count: u64) -> (World, PullReport) {
    let world = World::new(small());
    world.fault("POST", SEARCH, 3, count, fault);
    let report = world.try_pull();
    let report = report.unwrap_or_else(|error| panic!("{fault}: {error}"));
    world.converged();
    (world, report)
}

/// A first pull that fails with an error, and succeeds on the next attempt.
fn fails(fault: &Value) -> JiraError {
    let world = World::new(small());
    world.fault("POST", SEARCH, 2, 1, fault);
    let error = world.try_pull().expect_err(&fault.to_string());
    // The stored issues are readable, and the next pull resumes.
    assert!(!world.replica.issues().unwrap().is_empty(), "{fault}");
    world.pull();
    world.converged();
    error
}

#[test]
fn a_limited_read_waits_as_long_as_the_server_requires() {
    for (retry_after, least) in [("7", 7), ("0", 0)] {
        let (world, _) = recovers(&json!({"name": "429", "retry_after": retry_after}), 1);
        let pauses = world.pauses.lock().unwrap().clone();
        let (least, most) = (
            Duration::from_secs(least),
            Duration::from_secs(least) * 13 / 10,
        );
        assert_eq!(pauses.len(), 1);
        assert!(pauses[0] >= least && pauses[0] <= most, "{pauses:?}");
    }
    let (world, _) = recovers(&json!({"name": "429", "reason": "jira-burst-based"}), 2);
    let pauses = world.pauses.lock().unwrap().clone();
    assert!(
        pauses.len() == 2 && pauses[0] >= Duration::from_secs(2),
        "{pauses:?}"
    );
    recovers(
        &json!({"name": "429", "retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        1,
    );
    // A limit that lasts longer than five minutes ends the pull.
    for reason in ["jira-burst-based", "jira-quota-tenant-based"] {
        let error = fails(&json!({"name": "429", "retry_after": "86400", "reason": reason}));
        assert!(
            matches!(error, JiraError::Status { status: 429, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_limited_site_answers_its_burst_and_then_429() {
    let world = World::new(SimOptions {
        rate: Some((2, 3)),
        ..small()
    });
    let ask = || world.client.get::<serde_json::Value>("myself");
    for _ in 0..3 {
        ask().unwrap();
    }
    assert!(matches!(
        ask().unwrap_err(),
        JiraError::Status { status: 429, .. }
    ));
    // The simulated clock does not advance while the client waits.
    assert!(!world.pauses.lock().unwrap().is_empty());
    world.advance(1000);
    for _ in 0..2 {
        ask().unwrap();
    }
    ask().unwrap_err();
}

#[test]
fn a_new_connection_has_the_configured_delay() {
    let world = World::new(SimOptions {
        connect_latency_ms: 50,
        ..small()
    });
    let began = std::time::Instant::now();
    world.client.get::<serde_json::Value>("myself").unwrap();
    assert!(began.elapsed() >= Duration::from_millis(50));
}

#[test]
fn the_latency_is_random_within_its_limits() {
    let world = World::new(SimOptions {
        latency_ms: 1,
        latency_jitter_ms: 3,
        ..small()
    });
    for _ in 0..60 {
        world.client.get::<Value>("myself").unwrap();
    }
    let log = world.sim.control("GET", "/_sim/log", &Value::Null);
    let requests = log.as_array().unwrap().iter();
    let delays: BTreeSet<u64> = requests
        .map(|request| request["delay_ms"].as_u64().unwrap())
        .collect();
    assert_eq!(delays, BTreeSet::from([1, 2, 3, 4]));
}

#[test]
fn failed_reads_are_retried_or_reported() {
    recovers(&json!({"name": "502-html"}), 2);
    recovers(&json!({"name": "503", "retry_after": "1"}), 2);
    recovers(&json!({"name": "503"}), 2);
    let error = fails(&json!({"name": "500"}));
    assert!(
        error
            .to_string()
            .contains("HTTP 500: Internal server error"),
        "{error}"
    );
    let error = fails(&json!({"name": "gone"}));
    assert!(error.to_string().contains("search/jql"), "{error}");
}

#[test]
fn a_refused_token_is_reported_and_not_retried() {
    for name in ["401", "401-html"] {
        let world = World::new(small());
        world.fault("POST", SEARCH, 2, 1, &json!({"name": name}));
        let error = world.try_pull().unwrap_err();
        assert!(matches!(error, JiraError::Unauthenticated), "{error}");
        assert!(error.to_string().contains("may have expired"));
        assert!(world.pauses.lock().unwrap().is_empty());
    }
    assert!(matches!(
        fails(&json!({"name": "403-captcha"})),
        JiraError::Captcha
    ));
}

#[test]
fn reads_are_retried_after_a_broken_connection() {
    recovers(&json!({"name": "reset-before"}), 1);
    recovers(&json!({"name": "reset-after"}), 1);
    recovers(&json!({"name": "reset-during", "bytes": 100}), 1);
    recovers(&json!({"name": "truncate", "bytes": 100}), 1);
    recovers(&json!({"name": "drip", "ms": 1}), 1);
    recovers(&json!({"name": "endless"}), 1);
}

/// A site that does not answer counts as offline: a retry would only delay the error.
#[test]
fn a_request_that_times_out_is_not_retried() {
    let world = World::new(small());
    let short_timeout_client = world.client_within(Duration::from_millis(600));
    // The delays exceed the duration of the test, so no answer is ever in time: no header, or no
    // complete body.
    for name in ["slow", "drip"] {
        let fault = json!({"name": name, "ms": 3_600_000});
        world.fault("POST", SEARCH, 1, 0, &fault);
        let body = json!({"jql": "project = AA"});
        let error = short_timeout_client
            .read_by_post::<Value>("search/jql", &body)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "POST search/jql: the site did not answer within 0.6 s",
            "{fault}"
        );
        assert!(matches!(error, JiraError::Transport { sent: true, .. }));
        assert!(world.pauses.lock().unwrap().is_empty(), "{fault}");
        world.sim.control("DELETE", "/_sim/faults", &Value::Null);
    }
    assert_eq!(short_timeout_client.requests(), 2);
    world.pull();
    world.converged();
}

#[test]
fn an_invalid_answer_is_reported_and_changes_nothing() {
    for name in ["garbage-html", "garbage-json", "garbage-utf8"] {
        let error = fails(&json!({"name": name}));
        assert!(
            matches!(error, JiraError::Garbage { .. }),
            "{name}: {error}"
        );
    }
    // A body that cannot be decompressed is treated as a truncated one.
    recovers(&json!({"name": "garbage-gzip"}), 1);
}

#[test]
fn inconsistent_pages_are_detected_and_repaired() {
    let (_, report) = recovers(&json!({"name": "missing-token"}), 1);
    assert!(report.repaired > 0, "{report:?}");
    let (_, report) = recovers(&json!({"name": "repeat-token"}), 1);
    assert_eq!(report.restarted, 1, "{report:?}");
    let (_, report) = recovers(&json!({"name": "expired-token"}), 1);
    assert_eq!(report.restarted, 1, "{report:?}");
    recovers(&json!({"name": "empty-page"}), 2);
    recovers(&json!({"name": "short-page"}), 2);
    recovers(&json!({"name": "dup"}), 2);
    let (_, report) = recovers(&json!({"name": "missing"}), 1);
    assert_eq!(report.repaired, 1, "{report:?}");
}

#[test]
fn the_census_repairs_a_server_that_always_stops_early() {
    let world = World::new(small());
    world.fault("POST", SEARCH, 1, 0, &json!({"name": "missing-token"}));
    let report = world.pull();
    // One page of the newest issues and one of the oldest arrived.
    assert_eq!(report.repaired, 25, "{report:?}");
    world.converged();
}

#[test]
fn a_server_that_always_repeats_its_tokens_is_read_completely() {
    let world = World::new(small());
    world.fault("POST", SEARCH, 2, 0, &json!({"name": "repeat-token"}));
    // Each restart begins at the watermark; the census continues after the greatest id.
    assert!(world.pull().restarted > 1);
    world.converged();
}

#[test]
fn an_old_index_never_overwrites_a_newer_version() {
    let world = World::new(small());
    world.pull();
    world.edit("AA-1", &json!({"summary": "the newest"}));
    world.pull();
    world.fault("POST", SEARCH, 1, 1, &json!({"name": "stale"}));
    let report = world.pull();
    assert!(report.stale > 0 && report.stored == 0, "{report:?}");
    world.converged();
}

#[test]
fn all_comments_are_read_in_spite_of_faulty_pages() {
    for fault in ["short-page", "shrink-total"] {
        let world = World::new(small());
        world.sim.control(
            "POST",
            "/_sim/comments",
            &json!({"issue": "AA-1", "count": 250}),
        );
        let path = "/rest/api/3/issue/*/comment";
        world.fault("GET", path, 1, 2, &json!({"name": fault}));
        world.pull();
        world.converged();
    }
}

/// Faulty pages of the comments of one issue neither remove comments nor stop the pull of other
/// issues. The census reads the comments again.
#[test]
fn no_comment_is_removed_because_of_a_faulty_page() {
    for (fault, is_complete) in [
        ("500", false),
        ("empty-page", false),
        ("garbage-json", false),
        ("repeat-page", false),
        ("odd", true),
    ] {
        let world = World::new(small());
        let body = json!({"issue": "AA-1", "count": 250});
        world.sim.control("POST", "/_sim/comments", &body);
        world.pull();
        let location = world.replica.locate("AA-1").unwrap().unwrap();
        let count = world.replica.comments(&location).unwrap().len();
        assert!(count >= 250, "{count}");
        world.edit("AA-1", &json!({"summary": "again"}));
        if is_complete {
            // An answer without the comments.
            world.fault("POST", SEARCH, 1, 1, &json!({"name": fault}));
            world.pull();
        } else {
            world.edit("AA-2", &json!({"summary": "not stopped"}));
            let body = json!({"issue": "AA-1", "count": 10});
            world.sim.control("POST", "/_sim/comments", &body);
            // All pages except the first one fail, also when the list is read again.
            let path = "/rest/api/3/issue/*/comment";
            world.fault("GET", path, 2, 0, &json!({"name": fault}));
            let report = world.pull();
            assert_eq!((report.stored, report.incomplete), (2, 1), "{report:?}");
            assert_eq!(world.census().unwrap().incomplete, 1);
        }
        let comments = world.replica.comments(&location).unwrap();
        assert_eq!(comments.len(), count, "{fault}");
        world.sim.control("DELETE", "/_sim/faults", &Value::Null);
        world.pull();
        assert_eq!(world.census().unwrap().incomplete, 0);
        world.converged();
    }
}

#[test]
fn a_description_that_is_nested_too_deeply_does_not_stop_a_pull() {
    let world = World::new(small());
    world.fault("POST", SEARCH, 2, 1, &json!({"name": "deep"}));
    let report = world.pull();
    assert_eq!((report.stored, report.unreadable), (45, 0), "{report:?}");
    let issues = world.replica.issues().unwrap();
    let deep = |issue: &&Value| issue.to_string().contains("nested-too-deeply");
    let issue = issues.iter().find(deep).unwrap();
    let key = issue["key"].as_str().unwrap();
    // The text is incomplete in the replica, so an edit must not replace it.
    let outbox = world.outbox();
    let field = |name: &str| [(name.to_owned(), "mine".to_owned())];
    let error = outbox.edit(key, &field("description")).unwrap_err();
    assert!(error.to_string().contains("at the site"), "{error}");
    outbox.edit(key, &field("summary")).unwrap();
    assert_eq!(world.push().sent, 1);
}

#[test]
fn a_page_without_projects_hides_none() {
    let world = World::new(small());
    world.pull();
    let path = "/rest/api/3/project/search";
    world.fault("GET", path, 1, 1, &json!({"name": "empty-object"}));
    let error = world.census().unwrap_err();
    assert!(matches!(error, JiraError::Garbage { .. }), "{error}");
    let projects = world.replica.projects().unwrap();
    assert!(projects.iter().all(|(_, value)| value["visible"] == true));
}

#[test]
fn an_issue_of_ten_megabytes_is_stored() {
    let world = World::new(small());
    // The first page has the issues that changed last, which are read again later.
    world.fault("POST", SEARCH, 2, 1, &json!({"name": "huge"}));
    // A busy machine needs time for such a long answer.
    let pause = std::sync::Arc::new(|_| ());
    let long_timeout_client =
        Client::with(&world.sim.url(), None, Duration::from_mins(5), pause).unwrap();
    pull(&long_timeout_client, &world.replica, &world.options()).unwrap();
    let issues = world.replica.issues().unwrap();
    let longest = issues.iter().max_by_key(|issue| issue.to_string().len());
    let longest = longest.unwrap();
    assert!(longest.to_string().len() > 10 << 20);
    // A later version replaces it.
    world.advance(60_000);
    world.edit(
        longest["key"].as_str().unwrap(),
        &json!({"summary": "short again"}),
    );
    world.pull();
    world.converged();
}

#[test]
fn five_thousand_comments_are_stored() {
    let world = World::new(small());
    world.sim.control(
        "POST",
        "/_sim/comments",
        &json!({"issue": "AA-1", "count": 5000}),
    );
    world.pull();
    world.converged();
}

#[test]
fn unusual_values_are_stored_unchanged() {
    let world = World::new(small());
    world.fault("POST", SEARCH, 2, 1, &json!({"name": "odd"}));
    world.pull();
    let found = world.replica.issues().unwrap();
    let odd = found
        .iter()
        .filter(|issue| issue["fields"]["customfield_99999"].is_object());
    assert_eq!(odd.count(), 10);
    let document = found
        .iter()
        .find(|issue| issue["fields"]["description"]["content"][0]["type"] == "hologram");
    assert_eq!(
        document.unwrap()["fields"]["description"]["content"][0]["attrs"]["depth"],
        3
    );
    // Lists show an issue of a deleted user and without a priority.
    let key = document.unwrap()["key"].as_str().unwrap();
    let index = Index::load(&world.replica).unwrap();
    let row = index.row(key).unwrap();
    assert_eq!(
        (row.assignee.as_str(), row.priority.as_str()),
        ("unknown", "")
    );
    let found = offline::select(&world.replica, "assignee = unknown", world.now()).unwrap();
    assert_eq!(found.len(), 10);
    world.outbox().show(key).unwrap();
}

#[test]
fn no_error_shows_the_token() {
    let (email, token) = ("me@example.com", "s3cret-of-the-test");
    let encoded = STANDARD.encode(format!("{email}:{token}"));
    let world = World::new(SimOptions {
        auth: Some((email.to_owned(), token.to_owned())),
        ..small()
    });
    let client = |token: &str| {
        let pause = std::sync::Arc::new(|_| ());
        let login = Some((email, token));
        Client::with(&world.sim.url(), login, Duration::from_mins(5), pause).unwrap()
    };
    let mut texts = vec![format!("{:?}", client(token))];
    let other = format!("not-{token}");
    let error = pull(&client(&other), &world.replica, &world.options()).unwrap_err();
    assert!(matches!(error, JiraError::Unauthenticated), "{error}");
    texts.push(format!("{error} {error:?}"));
    for name in [
        "400",
        "401",
        "401-html",
        "403-captcha",
        "429",
        "500",
        "502-html",
        "503",
        "gone",
        "reset-before",
        "reset-during",
        "truncate",
        "garbage-html",
        "garbage-json",
        "garbage-utf8",
    ] {
        for method in ["GET", "POST"] {
            let rule = json!({"match": {"method": method}, "fault": {"name": name}});
            world.sim.control("POST", "/_sim/faults", &rule);
        }
        let error = pull(&client(token), &world.replica, &world.options()).unwrap_err();
        texts.push(format!("{error} {error:?}"));
        world.sim.control("DELETE", "/_sim/faults", &Value::Null);
    }
    for text in &texts {
        assert!(
            !text.contains("s3cret") && !text.contains(&encoded),
            "{text}"
        );
    }
    pull(&client(token), &world.replica, &world.options()).unwrap();
    world.converged();
}

/// The request that gets the fault in `every_fault_has_an_end_state`.
enum At {
    /// A page of the search of a pull.
    Search,
    /// The comments of an issue.
    Comments,
    /// The write of an edit.
    Write,
    /// The read of an issue before its edit is sent.
    ReadBeforeWrite,
}

/// Each fault, the request where it occurs once, and the result of the call.
const END_STATES: &[(&str, At, Option<&str>)] = &[
    ("400", At::Write, None),
    ("401", At::Search, Some("may have expired")),
    ("401-html", At::Search, Some("may have expired")),
    ("403", At::Write, None),
    ("403-captcha", At::Search, Some("CAPTCHA")),
    ("409", At::Write, None),
    ("413", At::Write, None),
    ("429", At::Search, None),
    ("500", At::Search, Some("HTTP 500")),
    ("500-after", At::Write, None),
    ("502-html", At::Search, None),
    ("503", At::Search, None),
    ("503-after", At::Write, None),
    ("conflict", At::ReadBeforeWrite, None),
    ("deep", At::Search, None),
    ("drip", At::Search, Some("did not answer within 2 s")),
    ("dup", At::Search, None),
    ("empty-object", At::Search, Some("not a valid answer")),
    ("empty-page", At::Search, None),
    ("endless", At::Search, None),
    ("expired-token", At::Search, None),
    ("garbage-gzip", At::Search, None),
    ("garbage-html", At::Search, Some("not a valid answer")),
    ("garbage-json", At::Search, Some("not a valid answer")),
    ("garbage-utf8", At::Search, Some("not a valid answer")),
    ("gone", At::Search, Some("HTTP 410")),
    ("huge", At::Search, None),
    ("missing", At::Search, None),
    ("missing-token", At::Search, None),
    ("odd", At::Search, None),
    ("repeat-page", At::Comments, None),
    ("repeat-token", At::Search, None),
    ("reset-after", At::Search, None),
    ("reset-before", At::Search, None),
    ("reset-during", At::Search, None),
    ("short-page", At::Search, None),
    ("shrink-total", At::Comments, None),
    ("slow", At::Search, Some("did not answer within 2 s")),
    ("stale", At::Search, None),
    ("truncate", At::Search, None),
];

/// After each fault that occurs once, the outbox is empty or contains operations that need a
/// decision of the user. After the decisions, a pull and a census, the replica equals the site.
#[test]
fn every_fault_has_an_end_state() {
    let names: Vec<&str> = END_STATES.iter().map(|(name, ..)| *name).collect();
    assert_eq!(
        names,
        weir_jira::sim::FAULTS,
        "a fault without an end state"
    );
    for (name, at, failure) in END_STATES {
        let mut world = World::new(SimOptions {
            issues: 12,
            page_cap: 5,
            ..small()
        });
        let fault = json!({"name": name, "ms": 3_600_000, "bytes": 100, "retry_after": "1"});
        let (method, path, nth) = match at {
            At::Search => ("POST", SEARCH, 3),
            At::Comments => ("GET", "/rest/api/3/issue/*/comment", 1),
            At::Write => ("PUT", "/rest/api/3/issue/*", 1),
            At::ReadBeforeWrite => ("GET", "/rest/api/3/issue/*", 1),
        };
        let pulls = matches!(at, At::Search | At::Comments);
        if matches!(at, At::Comments) {
            let body = json!({"issue": "AA-1", "count": 250});
            world.sim.control("POST", "/_sim/comments", &body);
        }
        if !pulls {
            world.pull();
            let fields = [("summary".to_owned(), "mine".to_owned())];
            world.outbox().edit("AA-1", &fields).unwrap();
        }
        world.fault(method, path, nth, 1, &fault);
        let long_timeout_client = world.client_within(Duration::from_mins(5));
        if failure.is_some_and(|text| text.contains("did not answer")) {
            world.client = world.client_within(Duration::from_secs(2));
        }
        let error = if pulls {
            world.try_pull().err()
        } else {
            world.try_push().err()
        };
        match (failure, &error) {
            (None, None) => {}
            (Some(text), Some(error)) if error.to_string().contains(text) => {}
            _ => panic!("{name}: {failure:?}, {error:?}"),
        }
        world.client = long_timeout_client;
        // The next calls have no fault. A newer version replaces an issue that a fault had changed.
        world.advance(6 * 60_000);
        drop(world.push());
        for op in world.outbox().ops().unwrap() {
            assert!(op.state.is_stuck(), "{name}: {op:?}");
            let choice = if op.state == weir_jira::op::State::Conflict {
                weir_jira::outbox::Choice::Mine
            } else {
                weir_jira::outbox::Choice::Retry
            };
            world.outbox().resolve(&op.id, choice, None, None).unwrap();
        }
        world.push_all();
        if !pulls {
            assert_eq!(
                world.site_issue("AA-1")["fields"]["summary"],
                "mine",
                "{name}"
            );
        }
        for key in world.keys() {
            world.edit(&key, &json!({"labels": ["touched"]}));
        }
        world.pull();
        world.census().unwrap();
        world.converged();
    }
}

#[test]
fn an_unknown_fault_is_refused() {
    let world = World::new(small());
    let rule = json!({"match": {}, "fault": {"name": "nonsense"}});
    let answer = world.sim.control("POST", "/_sim/faults", &rule);
    let error = answer["error"].as_str().unwrap();
    assert!(
        error.contains("nonsense") && error.contains("truncate"),
        "{error}"
    );
}

#[test]
fn a_header_gives_one_request_a_fault() {
    let world = World::new(small());
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent = ureq::Agent::new_with_config(config.build());
    let url = format!("{}/rest/api/3/myself", world.sim.url());
    let ask = |fault: &str| {
        let request = ureq::http::Request::builder().uri(&url);
        let request = request.header("X-Sim-Fault", fault).body(()).unwrap();
        agent.run(request).unwrap().status().as_u16()
    };
    assert_eq!((ask("503"), ask("gone"), ask("nonsense")), (503, 410, 400));
    let me: Value = world.client.get("myself").unwrap();
    assert_eq!(me["accountId"], "user-0");
}

/// A server that answers each request with this status line and headers, and a body made from the
/// value of `Authorization`. Returns its address.
fn echoing(head: &'static str, body: fn(&str) -> String, requests: usize) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for _ in 0..requests {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut credentials = String::new();
            while let Some(Ok(line)) = lines.next()
                && !line.is_empty()
            {
                if let Some((name, value)) = line.split_once(": ")
                    && name.eq_ignore_ascii_case("authorization")
                {
                    value.clone_into(&mut credentials);
                }
            }
            let (head, body) = (head.replace("ECHO", &credentials), body(&credentials));
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    address
}

/// The head of a response, and its body for the header that was sent.
type Case = (&'static str, fn(&str) -> String);

#[test]
fn no_message_has_a_token_that_the_site_echoes() {
    // Longer than the first 200 characters, at which a message ends.
    let long = |value: &str| format!("<p>{}{value}</p>", "x".repeat(190));
    let decoded = |value: &str| {
        let encoded = value.strip_prefix("Basic ").unwrap();
        let text = String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap();
        json!({"errors": {text.clone(): text}}).to_string()
    };
    let cases: [Case; 5] = [
        ("400 Bad", |value| {
            json!({"errorMessages": [format!("bad header {value}")]}).to_string()
        }),
        ("400 Bad", decoded),
        ("400 Bad", long),
        ("200 OK", |value| json!(value).to_string()),
        ("302 Found\r\nLocation: /login/ECHO", |_| String::new()),
    ];
    for (head, body) in cases {
        let address = echoing(head, body, 1);
        let client = Client::new(&address, Some(("me@example.com", "s3cret-token"))).unwrap();
        let error = client.get::<u64>("serverInfo").unwrap_err();
        let text = format!("{error} {error:?}");
        let encoded = STANDARD.encode("me@example.com:s3cret-token");
        assert!(text.contains('…') || head.starts_with("200"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
        assert!(!text.contains(&encoded[..8]), "{text}");
    }
}

#[test]
fn a_redirect_is_not_followed_and_its_target_is_reported() {
    let head = "302 Found\r\nLocation: https://jira.example.com/jira/rest/api/3/myself?os=1";
    let client = Client::new(&echoing(head, |_| String::new(), 1), None).unwrap();
    let error = client.get::<Value>("myself?expand=groups").unwrap_err();
    assert_eq!(
        error.to_string(),
        "GET myself failed with HTTP 302: it leads to https://jira.example.com/jira/rest/api/3/myself"
    );
}
