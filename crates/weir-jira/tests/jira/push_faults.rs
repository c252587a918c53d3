//! Tests each fault of the simulator at a write, and the state after it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use serde_json::{Value, json};
use weir_jira::JiraError;
use weir_jira::client::Client;
use weir_jira::index::Index;
use weir_jira::offline;
use weir_jira::op::State;
use weir_jira::outbox::{Choice, Outbox};
use weir_jira::overlay::Overlay;
use weir_jira::push::{PushOptions, PushReport, push};
use weir_jira::sim::SimOptions;

use crate::push::pulled;
use crate::world::{World, small};

/// Queues one change of each kind whose repetition would be visible, and one edit.
fn queue(world: &World) {
    let outbox = world.outbox();
    outbox
        .edit("AA-1", &[("summary".to_owned(), "edited".to_owned())])
        .unwrap();
    outbox.label("AA-2", &["added".to_owned()], &[]).unwrap();
    outbox.comment("AA-1", "the comment").unwrap();
    outbox.worklog("AA-2", 3600, world.now(), "").unwrap();
    outbox
        .create("AA", "Task", "the new issue", &[], None)
        .unwrap();
    outbox
        .comment("AA+5", "a comment of the new issue")
        .unwrap();
    outbox.transition("AA-4", "In Progress", &[], None).unwrap();
    outbox.link("AA-1", "blocks", "AA-2", false).unwrap();
    outbox.watch("AA-2", true).unwrap();
}

/// Changes one of the two worklogs that [`recovers`] has created, and deletes the other one.
fn queue_worklogs(world: &World) {
    let [edited, deleted] = worklogs(world);
    let outbox = world.outbox();
    outbox
        .edit_worklog("AA-3", &edited, Some(7200), None, None)
        .unwrap();
    outbox.delete_worklog("AA-3", &deleted).unwrap();
}

/// Ids of the two worklogs of an issue that [`recovers`] has created.
fn worklogs(world: &World) -> [String; 2] {
    let issue = world.outbox().show("AA-3").unwrap();
    let id = |at: usize| issue["fields"]["worklog"]["worklogs"][at]["id"].clone();
    [0, 1].map(|at| id(at).as_str().unwrap().to_owned())
}

/// Checks that each change of [`queue`] is exactly once at the site, and in the replica.
fn check_executed_once(world: &World) {
    let site = world.site();
    let count = |test: &dyn Fn(&Value) -> bool| site.values().filter(|issue| test(issue)).count();
    let comments = |wanted: &str| {
        let all = site.values().flat_map(|issue| {
            issue["fields"]["comment"]["comments"]
                .as_array()
                .unwrap()
                .clone()
        });
        all.filter(|item| item["body"].to_string().contains(wanted))
            .count()
    };
    assert_eq!(world.site_issue("AA-1")["fields"]["summary"], "edited");
    assert_eq!(comments("\"the comment\""), 1);
    assert_eq!(comments("\"a comment of the new issue\""), 1);
    assert_eq!(
        count(&|issue| issue["fields"]["summary"] == "the new issue"),
        1
    );
    let other = world.site_issue("AA-2");
    assert_eq!(other["fields"]["worklog"]["total"], 1);
    assert_eq!(other["fields"]["watches"]["watchCount"], 1);
    let labels = other["fields"]["labels"].as_array().unwrap();
    assert_eq!(labels.iter().filter(|label| **label == "added").count(), 1);
    assert_eq!(
        world.site_issue("AA-1")["fields"]["issuelinks"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        world.site_issue("AA-4")["fields"]["status"]["name"],
        "In Progress"
    );
    world.converged();
}

/// Injects a fault at every kind of write of a push, `count` times each. Then each change must be
/// executed once.
fn recovers(fault: &Value, count: u64) -> World {
    let world = pulled();
    world.edit("AA-4", &json!({"status": {"id": "1", "name": "To Do"}}));
    for minutes in [10, 20] {
        let started = "2024-11-28T09:00:00.000+0000";
        let body = json!({"timeSpentSeconds": 60 * minutes, "started": started});
        let path = "issue/AA-3/worklog";
        world.client.write("POST", path, &body).unwrap();
    }
    world.pull();
    queue(&world);
    queue_worklogs(&world);
    world.outbox().delete("AA-5", false).unwrap();
    for (method, path) in [
        ("PUT", "/rest/api/3/issue/*"),
        ("POST", "/rest/api/3/issue"),
        ("POST", "/rest/api/3/issue/*/comment"),
        ("POST", "/rest/api/3/issue/*/worklog"),
        ("POST", "/rest/api/3/issue/*/transitions"),
        ("POST", "/rest/api/3/issue/*/watchers"),
        ("POST", "/rest/api/3/issueLink"),
        ("PUT", "/rest/api/3/issue/*/worklog/*"),
        ("DELETE", "/rest/api/3/issue/*/worklog/*"),
        ("DELETE", "/rest/api/3/issue/*"),
    ] {
        world.fault(method, path, 1, count, fault);
    }
    world.push_all();
    check_executed_once(&world);
    let worked = world.site_issue("AA-3")["fields"]["worklog"].clone();
    assert_eq!(worked["total"], 1);
    assert_eq!(worked["worklogs"][0]["timeSpentSeconds"], 7200);
    assert!(!world.keys().contains(&"AA-5".to_owned()));
    world
}

#[test]
fn a_reset_before_the_execution_loses_nothing() {
    recovers(&json!({"name": "reset-before"}), 1);
    recovers(&json!({"name": "reset-before"}), 5);
}

#[test]
fn a_reset_after_the_execution_doubles_nothing() {
    recovers(&json!({"name": "reset-after"}), 1);
    recovers(&json!({"name": "reset-after"}), 3);
    recovers(&json!({"name": "reset-during", "bytes": 5}), 1);
    recovers(&json!({"name": "truncate", "bytes": 5}), 1);
}

#[test]
fn an_executed_write_with_a_broken_answer_is_not_sent_again() {
    for name in [
        "empty-object",
        "endless",
        "garbage-gzip",
        "garbage-json",
        "garbage-utf8",
    ] {
        let world = pulled();
        queue(&world);
        for path in ["issue", "issue/*/comment", "issue/*/worklog", "issueLink"] {
            let path = format!("/rest/api/3/{path}");
            world.fault("POST", &path, 1, 1, &json!({"name": name}));
        }
        world.push_all();
        check_executed_once(&world);
    }
}

#[test]
fn a_failed_write_is_looked_up_before_its_retry() {
    for name in [
        "500",
        "502-html",
        "503",
        "500-after",
        "503-after",
        "garbage-html",
    ] {
        recovers(&json!({"name": name, "retry_after": "1"}), 2);
    }
}

#[test]
fn a_limited_write_waits_as_long_as_the_server_requires() {
    let world = recovers(&json!({"name": "429", "retry_after": "7"}), 1);
    let pauses = world.pauses.lock().unwrap().clone();
    let least = Duration::from_secs(7);
    assert!(
        pauses.iter().filter(|pause| **pause >= least).count() >= 7,
        "{pauses:?}"
    );
    recovers(
        &json!({"name": "429", "retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        1,
    );
    recovers(&json!({"name": "429"}), 1);
}

#[test]
fn a_limit_on_one_issue_delays_only_that_issue() {
    let world = pulled();
    queue(&world);
    let fault = json!({"name": "429", "retry_after": "30", "reason": "jira-per-issue-on-write"});
    world.fault("PUT", "/rest/api/3/issue/*", 1, 1, &fault);
    let report = world.push();
    assert!(
        world
            .pauses
            .lock()
            .unwrap()
            .iter()
            .all(|pause| *pause < Duration::from_secs(10))
    );
    // The edit, the comment and the link of AA-1 wait; all others are executed.
    assert_eq!(report.waiting, 3, "{report:?}");
    assert_eq!(world.site_issue("AA-2")["fields"]["worklog"]["total"], 1);
    let report = world.push();
    assert_eq!((report.sent, report.waiting), (0, 3), "{report:?}");
    world.advance(60_000);
    assert_eq!(world.push().waiting, 0);
    assert_eq!(world.site_issue("AA-1")["fields"]["summary"], "edited");
}

/// The site requests a pause of millions of years. The operation waits until the user sends it
/// again.
#[test]
fn a_limit_on_one_issue_that_never_ends_is_ended_by_the_user() {
    let world = pulled();
    queue(&world);
    let fault = json!({"name": "429", "retry_after": "9223372036854775",
        "reason": "jira-per-issue-on-write"});
    world.fault("PUT", "/rest/api/3/issue/*", 1, 1, &fault);
    let report = world.push();
    assert_eq!(report.waiting, 3, "{report:?}");
    let outbox = world.outbox();
    let first = outbox.ops().unwrap().remove(0).id;
    outbox.resolve(&first, Choice::Retry, None, None).unwrap();
    assert_eq!(world.push().waiting, 0);
}

#[test]
fn a_long_limit_ends_the_push_and_keeps_the_outbox() {
    let world = pulled();
    queue(&world);
    world.fault(
        "PUT",
        "/rest/api/3/issue/*",
        1,
        1,
        &json!({"name": "429", "retry_after": "3600"}),
    );
    let error = world.try_push().unwrap_err();
    assert!(error.to_string().contains("3600 s"), "{error}");
    assert_eq!(world.outbox().ops().unwrap().len(), 9);
    world.push_all();
}

/// The site begins to refuse all reads during a push. The push does not wait for each operation.
#[test]
fn a_site_that_refuses_all_reads_ends_the_push() {
    for name in ["429", "503"] {
        let world = pulled();
        let outbox = world.outbox();
        let edit = [("summary".to_owned(), "edited".to_owned())];
        for key in ["AA-1", "AA-2", "AA-3", "AA-4"] {
            outbox.edit(key, &edit).unwrap();
        }
        // The first edit is still read and executed.
        let path = "/rest/api/3/issue/*";
        world.fault("GET", path, 2, 0, &json!({"name": name}));
        let before = world.client.requests();
        let error = world.try_push().unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        // The time of the site, one read, one write, and the attempts to read the second issue.
        assert_eq!(world.client.requests() - before, 3 + 5);
        assert_eq!(world.pauses.lock().unwrap().len(), 4);
        let ops = outbox.ops().unwrap();
        let states: Vec<State> = ops.iter().map(|op| op.state).collect();
        let queued = State::Queued;
        assert_eq!(states, [State::Sent, queued, queued, queued]);
        let problem = ops[1].problem.as_deref().unwrap_or_default();
        assert!(problem.contains(name), "{problem}");
        assert_eq!((ops[2].attempts, ops[3].attempts), (0, 0));
        world.sim.control("DELETE", "/_sim/faults", &Value::Null);
        world.push_all();
        assert_eq!(world.site_issue("AA-4")["fields"]["summary"], "edited");
        world.converged();
    }
}

/// A push at a site that limits writes, whose user corrects or drops the change during the wait.
fn changed_during_the_wait(change: fn(&Outbox<'_>)) -> (World, PushReport) {
    let world = pulled();
    let edit = [("summary".to_owned(), "mistkae".to_owned())];
    world.outbox().edit("AA-1", &edit).unwrap();
    world.outbox().comment("AA-1", "waits for it").unwrap();
    let fault = json!({"name": "429", "retry_after": "7"});
    world.fault("PUT", "/rest/api/3/issue/*", 1, 1, &fault);
    let (replica, now_ms) = (world.other_replica(), world.now());
    let pauses = AtomicUsize::new(0);
    let pause = Arc::new(move |_| {
        if pauses.fetch_add(1, Ordering::SeqCst) == 0 {
            change(&Outbox::new(&replica, now_ms));
        }
    });
    let client = Client::with(&world.sim.url(), None, Duration::from_mins(5), pause).unwrap();
    let report = push(&client, &world.replica, &PushOptions { now_ms }).unwrap();
    assert_ne!(world.site_issue("AA-1")["fields"]["summary"], "mistkae");
    (world, report)
}

#[test]
fn a_correction_while_a_push_waits_is_not_overwritten() {
    let (world, report) = changed_during_the_wait(|outbox| {
        outbox
            .correct("1", "summary", "mistkae", "mistake")
            .unwrap();
    });
    // The correction and the comment wait for the next push; no outcome is unknown.
    assert_eq!(
        (report.sent, report.waiting, report.unknown),
        (0, 2, 0),
        "{report:?}"
    );
    let op = world.outbox().find("1").unwrap();
    assert_eq!(op.what(), "summary: mistake");
    assert_eq!(world.push().sent, 2);
    assert_eq!(world.site_issue("AA-1")["fields"]["summary"], "mistake");
    world.converged();
}

#[test]
fn a_change_that_is_dropped_while_a_push_waits_is_not_sent() {
    let (world, report) = changed_during_the_wait(|outbox| {
        let left = outbox.resolve("1", Choice::Drop, None, None).unwrap();
        assert!(left.is_none());
    });
    // The comment no longer waits for it.
    assert_eq!((report.sent, report.waiting), (1, 0), "{report:?}");
    assert!(world.outbox().ops().unwrap().is_empty());
    world.converged();
}

#[test]
fn a_write_is_retried_after_a_concurrent_change() {
    recovers(&json!({"name": "409"}), 1);
    recovers(&json!({"name": "409"}), 4);
}

/// Pushes a comment for which the client waits `ms` milliseconds, and which the site executes later.
fn pushed_too_early(ms: u64) -> Result<(World, PushReport), JiraError> {
    let world = pulled();
    let (timeout, pause) = (Duration::from_millis(ms), Arc::new(|_| ()));
    let short_timeout_client = Client::with(&world.sim.url(), None, timeout, pause).unwrap();
    world.outbox().comment("AA-1", "late").unwrap();
    world.fault(
        "POST",
        "/rest/api/3/issue/*/comment",
        1,
        1,
        &json!({"name": "slow", "ms": ms * 7 / 2}),
    );
    let options = PushOptions {
        now_ms: world.now(),
    };
    let report = push(&short_timeout_client, &world.replica, &options)?;
    Ok((world, report))
}

#[test]
fn a_slow_site_may_execute_late_and_nothing_is_doubled() {
    // On a busy machine, other answers can be late too, which ends the push with an error.
    let pushes = [200, 2_000, 20_000].into_iter().map(pushed_too_early);
    let mut pushes = pushes.filter_map(Result::ok);
    let (world, report) = pushes.find(|(_, report)| report.unknown > 0).unwrap();
    assert_eq!((report.sent, report.unknown), (0, 1), "{report:?}");
    // It is too early to send the comment again, even if it is not there yet.
    let late = || {
        let comments = world.site_issue("AA-1")["fields"]["comment"]["comments"].clone();
        let all = comments.as_array().unwrap().clone();
        all.iter()
            .filter(|item| item["body"].to_string().contains("\"late\""))
            .count()
    };
    while late() == 0 {
        std::thread::yield_now();
    }
    world.push_all();
    assert_eq!(late(), 1);
}

#[test]
fn an_answer_of_400_names_the_field_and_is_not_repeated() {
    let world = pulled();
    world
        .outbox()
        .edit("AA-1", &[("summary".to_owned(), "x".to_owned())])
        .unwrap();
    world.fault("PUT", "/rest/api/3/issue/*", 1, 1, &json!({"name": "400"}));
    let report = world.push();
    assert_eq!((report.rejected, report.sent), (1, 0));
    assert!(report.messages[0].contains("summary: Field"), "{report:?}");
    assert_eq!(world.push().requests, 0);
    let retried = world
        .outbox()
        .resolve("1", Choice::Retry, None, None)
        .unwrap();
    assert_eq!(retried.unwrap().state, State::Queued);
    assert_eq!(world.push().sent, 1);
    world.converged();
}

#[test]
fn missing_rights_are_reported_and_no_change_is_lost() {
    let world = pulled();
    queue(&world);
    for right in ["EDIT_ISSUES", "ADD_COMMENTS", "CREATE_ISSUES"] {
        world
            .sim
            .control("POST", "/_sim/deny", &json!({"right": right}));
    }
    let report = world.push();
    // Edit, label, comment and creation are rejected; the comment on the new issue waits.
    assert_eq!((report.rejected, report.waiting), (4, 1), "{report:?}");
    assert!(
        report
            .messages
            .iter()
            .any(|text| text.contains("ADD_COMMENTS")),
        "{report:?}"
    );
    for right in ["EDIT_ISSUES", "ADD_COMMENTS", "CREATE_ISSUES"] {
        world
            .sim
            .control("POST", "/_sim/deny", &json!({"right": right, "on": false}));
    }
    for op in world.outbox().ops().unwrap() {
        world
            .outbox()
            .resolve(&op.id, Choice::Retry, None, None)
            .unwrap();
    }
    world.push_all();
    let site = world.site();
    let fresh = site
        .values()
        .filter(|issue| issue["fields"]["summary"] == "the new issue");
    assert_eq!(fresh.count(), 1);
    // The project is no longer visible.
    world.outbox().comment("AA-1", "hidden").unwrap();
    world
        .sim
        .control("POST", "/_sim/revoke", &json!({"project": "AA"}));
    let report = world.push();
    assert_eq!(report.rejected, 1, "{report:?}");
    assert!(report.messages[0].contains("permission"), "{report:?}");
}

/// The answers to a comment and a worklog are lost, and then the project is hidden for some time.
#[test]
fn a_change_without_answer_is_not_doubled_after_a_refusal() {
    let world = pulled();
    let outbox = world.outbox();
    for list in ["comment", "worklog"] {
        let op = match list {
            "comment" => outbox.comment("AA-1", "once"),
            _ => outbox.worklog("AA-1", 3600, world.now(), ""),
        };
        let op = op.unwrap().id;
        let path = format!("/rest/api/3/issue/*/{list}");
        world.fault("POST", &path, 1, 1, &json!({"name": "reset-after"}));
        world.fault("GET", &path, 1, 0, &json!({"name": "reset-before"}));
        let error = world.try_push().unwrap_err();
        assert!(matches!(error, JiraError::Transport { .. }), "{error}");
        world.sim.control("DELETE", "/_sim/faults", &Value::Null);
        let show = |visible: bool| {
            let body = json!({"project": "AA", "visible": visible});
            world.sim.control("POST", "/_sim/revoke", &body);
        };
        show(false);
        let report = world.push();
        assert_eq!(report.rejected, 1, "{report:?}");
        // A correction of a comment that exists at the site would be lost.
        let error = outbox.correct(&op, "comment", "", "twice").unwrap_err();
        assert!(error.to_string().contains("may have executed"), "{error}");
        show(true);
        outbox.resolve(&op, Choice::Retry, None, None).unwrap();
        let report = world.push();
        assert_eq!((report.sent, report.already), (0, 1), "{report:?}");
    }
    let fields = world.site_issue("AA-1")["fields"].clone();
    let comments = fields["comment"].to_string();
    assert_eq!(comments.matches("\"once\"").count(), 1, "{comments}");
    assert_eq!(fields["worklog"]["total"], 1);
    world.converged();
}

/// The site answers 404 for a comment whose project is hidden, as for a deleted one.
#[test]
fn a_deletion_is_not_lost_while_the_project_is_hidden() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.comment("AA-1", "mine").unwrap();
    outbox.worklog("AA-1", 3600, world.now(), "").unwrap();
    assert_eq!(world.push().sent, 2);
    let last_id = |field: &str, list: &str| {
        let items = world.site_issue("AA-1")["fields"][field][list].clone();
        let last = items.as_array().unwrap().last().cloned();
        last.map(|item| item["id"].as_str().unwrap().to_owned())
    };
    let comment = last_id("comment", "comments").unwrap();
    let worklog = last_id("worklog", "worklogs").unwrap();
    outbox.delete_comment("AA-1", &comment).unwrap();
    outbox.delete_worklog("AA-1", &worklog).unwrap();
    let show = |visible: bool| {
        let body = json!({"project": "AA", "visible": visible});
        world.sim.control("POST", "/_sim/revoke", &body);
    };
    show(false);
    let report = world.push();
    assert_eq!((report.rejected, report.already), (2, 0), "{report:?}");
    assert!(report.messages[0].contains("permission"), "{report:?}");
    show(true);
    for op in outbox.ops().unwrap() {
        outbox.resolve(&op.id, Choice::Retry, None, None).unwrap();
    }
    assert_eq!(world.push().sent, 2);
    assert_ne!(last_id("comment", "comments"), Some(comment));
    assert_ne!(last_id("worklog", "worklogs"), Some(worklog));
    world.converged();
}

/// The site answers 404 for the watchers of an issue whose project is hidden.
#[test]
fn the_end_of_watching_is_not_lost_while_the_project_is_hidden() {
    let world = pulled();
    let outbox = world.outbox();
    let watchers = || world.site_issue("AA-2")["fields"]["watches"]["watchCount"].clone();
    outbox.watch("AA-2", true).unwrap();
    assert_eq!(world.push().sent, 1);
    assert_eq!(watchers(), 1);
    let op = outbox.watch("AA-2", false).unwrap().id;
    let show = |visible: bool| {
        let body = json!({"project": "AA", "visible": visible});
        world.sim.control("POST", "/_sim/revoke", &body);
    };
    show(false);
    let report = world.push();
    assert_eq!((report.rejected, report.already), (1, 0), "{report:?}");
    show(true);
    outbox.resolve(&op, Choice::Retry, None, None).unwrap();
    assert_eq!(world.push().sent, 1);
    assert_eq!(watchers(), 0);
    world.converged();
}

/// The site answers 404 for an issue of a hidden project, and shows no link to it.
#[test]
fn an_issue_and_a_link_are_deleted_after_their_project_was_hidden() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.link("AA-1", "blocks", "BB-1", false).unwrap();
    assert_eq!(world.push().sent, 1);
    let is_linked = || {
        let links = world.site_issue("AA-1")["fields"]["issuelinks"].clone();
        let mut links = links.as_array().unwrap().iter();
        links.any(|link| link["outwardIssue"]["key"] == "BB-1")
    };
    assert!(is_linked());
    outbox.link("AA-1", "blocks", "BB-1", true).unwrap();
    outbox.delete("BB-2", true).unwrap();
    let show = |visible: bool| {
        let body = json!({"project": "BB", "visible": visible});
        world.sim.control("POST", "/_sim/revoke", &body);
    };
    show(false);
    let report = world.push();
    assert_eq!((report.rejected, report.already), (2, 0), "{report:?}");
    for message in &report.messages {
        assert!(message.contains("the project of"), "{report:?}");
    }
    show(true);
    for op in outbox.ops().unwrap() {
        outbox.resolve(&op.id, Choice::Retry, None, None).unwrap();
    }
    let report = world.push();
    assert_eq!((report.sent, report.rejected), (2, 0), "{report:?}");
    assert!(!is_linked());
    assert!(!world.keys().contains(&"BB-2".to_owned()));
}

/// The clock of this machine was wrong when an operation began to wait, and was then set back.
#[test]
fn an_operation_does_not_wait_until_a_wrong_time() {
    let world = pulled();
    world.outbox().comment("AA-1", "waits").unwrap();
    let fault = json!({"name": "429", "retry_after": "30", "reason": "jira-per-issue-on-write"});
    let path = "/rest/api/3/issue/*/comment";
    world.fault("POST", path, 1, 1, &fault);
    let now_ms = world.now() + 3650 * 86_400_000;
    let report = push(&world.client, &world.replica, &PushOptions { now_ms }).unwrap();
    assert_eq!((report.sent, report.waiting), (0, 1), "{report:?}");
    assert_eq!(world.push().sent, 1);
    world.converged();
}

#[test]
fn a_wrong_token_ends_the_push_at_once() {
    for name in ["401", "401-html", "403-captcha"] {
        let world = pulled();
        queue(&world);
        world.fault("PUT", "/rest/api/3/issue/*", 1, 1, &json!({"name": name}));
        let error = world.try_push().unwrap_err();
        let expected = matches!(error, JiraError::Unauthenticated | JiraError::Captcha);
        assert!(expected, "{error}");
        assert_eq!(world.outbox().ops().unwrap().len(), 9);
        world.push_all();
    }
}

#[test]
fn all_operations_stay_queued_without_a_connection() {
    let world = pulled();
    queue(&world);
    let before = world.outbox().ops().unwrap();
    // A socket that does not listen. No other process gets its port.
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let nobody = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
    let pause = std::sync::Arc::new(|_| ());
    let offline = Client::with(
        &format!("http://{nobody}"),
        None,
        Duration::from_secs(2),
        pause,
    );
    let offline = offline.unwrap();
    let options = PushOptions {
        now_ms: world.now(),
    };
    let error = push(&offline, &world.replica, &options).unwrap_err();
    assert!(
        matches!(error, JiraError::Transport { sent: false, .. }),
        "{error}"
    );
    assert_eq!(world.outbox().ops().unwrap(), before);
    world.push_all();
}

#[test]
fn a_creation_without_answer_waits_for_the_index() {
    for fault in ["reset-after", "reset-before"] {
        let world = World::new(SimOptions {
            search_lag_ms: 120_000,
            ..small()
        });
        world.pull();
        world
            .outbox()
            .create("AA", "Task", "the new issue", &[], None)
            .unwrap();
        world.outbox().comment("AA+1", "waits").unwrap();
        world.fault("POST", "/rest/api/3/issue", 1, 1, &json!({"name": fault}));
        let report = world.push();
        assert_eq!((report.unknown, report.waiting), (1, 1), "{report:?}");
        assert_eq!(world.outbox().find("1").unwrap().state, State::Unknown);
        // The site may have executed it: it cannot be dropped, and is not sent again too early.
        assert!(
            world
                .outbox()
                .resolve("1", Choice::Drop, None, None)
                .is_err()
        );
        world.advance(60_000);
        assert_eq!(world.push().unknown, 1);
        world.push_all();
        let site = world.site();
        let fresh = site
            .values()
            .filter(|issue| issue["fields"]["summary"] == "the new issue");
        assert_eq!(fresh.count(), 1, "{fault}");
        world.converged();
    }
}

/// Pushes while no issue can be read back: the operations are executed, and the read fails.
fn push_without_reading_back(world: &World) {
    let fault = json!({"name": "reset-before"});
    world.fault("GET", "/rest/api/3/issue/*", 1, 0, &fault);
    let error = world.try_push().unwrap_err();
    assert!(matches!(error, JiraError::Transport { .. }), "{error}");
    world
        .sim
        .control("DELETE", "/_sim/faults", &serde_json::Value::Null);
}

/// One changed issue cannot be read back. The other changes leave the outbox, and pulls succeed.
#[test]
fn an_issue_that_cannot_be_read_back_stops_no_other() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.comment("AA-1", "one").unwrap();
    outbox.comment("AA-2", "two").unwrap();
    let id = world.site_issue("AA-1")["id"].as_str().unwrap().to_owned();
    let path = format!("/rest/api/3/issue/{id}");
    world.fault("GET", &path, 1, 0, &json!({"name": "500"}));
    let report = world.push();
    assert_eq!(report.sent, 2, "{report:?}");
    assert!(report.messages[0].contains("HTTP 500"), "{report:?}");
    let left = || outbox.ops().unwrap().len();
    assert_eq!(left(), 1);
    world.edit("AA-3", &json!({"summary": "of another user"}));
    world.pull();
    assert_eq!(
        world.replica.issue("AA-3").unwrap()["fields"]["summary"],
        "of another user"
    );
    assert_eq!(left(), 1);
    world.sim.control("DELETE", "/_sim/faults", &Value::Null);
    world.push();
    assert_eq!(left(), 0);
    world.converged();
}

#[test]
fn an_issue_is_visible_after_an_interrupted_push() {
    for settles_by_pull in [false, true] {
        let world = pulled();
        let outbox = world.outbox();
        let fields = [("labels".to_owned(), "red".to_owned())];
        outbox
            .create("AA", "Task", "the new issue", &fields, None)
            .unwrap();
        push_without_reading_back(&world);
        // The site has the issue; until it is read back, the outbox shows it under both keys.
        let shown = outbox.show("AA+1").unwrap();
        assert_eq!(shown["fields"]["summary"], "the new issue");
        assert_eq!(shown["fields"]["labels"], json!(["red"]));
        assert_eq!(shown["pending"], Value::Null);
        let key = shown["key"].as_str().unwrap().to_owned();
        assert_eq!(world.site_issue(&key)["id"], shown["id"]);
        assert_eq!(outbox.show(&key).unwrap(), shown);
        assert_eq!(outbox.find("1").unwrap().state, State::Sent);
        assert!(outbox.resolve("1", Choice::Drop, None, None).is_err());
        let mut index = Index::load(&world.replica).unwrap();
        let found = |index: &Index| -> Vec<String> {
            let rows = index.search("the new issue", 10).into_iter();
            rows.map(|row| format!("{} {}", row.key, row.pending))
                .collect()
        };
        assert_eq!(found(&index), [format!("{key} 0")]);
        let query = "summary ~ \"the new issue\"";
        let listed = |now| offline::select(&world.replica, query, now).unwrap().len();
        assert_eq!(listed(world.now()), 1);
        // The issue can be changed under its temporary key.
        outbox.comment("AA+1", "and more").unwrap();
        outbox
            .edit("AA+1", &[("priority".to_owned(), "High".to_owned())])
            .unwrap();
        outbox
            .edit("AA+1", &[("due".to_owned(), "2030-01-31".to_owned())])
            .unwrap();
        // A value that the site assigned to the new issue is no conflict; a change by another user
        // is one.
        world.edit(&key, &json!({"duedate": "2030-02-28"}));
        index.refresh(&world.replica).unwrap();
        assert_eq!(found(&index), [format!("{key} 2")]);
        if settles_by_pull {
            assert_eq!(world.pull().stored, 1);
            assert_eq!(outbox.ops().unwrap().len(), 2);
        }
        let report = world.push();
        assert_eq!((report.conflicts, report.waiting), (1, 0), "{report:?}");
        let conflict = outbox.ops().unwrap().remove(0);
        assert_eq!(conflict.conflicts[0].field, "duedate");
        outbox
            .resolve(&conflict.id, Choice::Theirs, None, None)
            .unwrap();
        index.refresh(&world.replica).unwrap();
        assert_eq!(found(&index), [format!("{key} 0")]);
        assert_eq!(listed(world.now()), 1);
        let there = world.site_issue(&key);
        assert_eq!(there["fields"]["priority"]["name"], "High");
        assert_eq!(there["fields"]["comment"]["total"], 1);
        world.converged();
    }
}

#[test]
fn a_change_is_shown_once_after_an_interrupted_push() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.create("AA", "Task", "first", &[], None).unwrap();
    world.push();
    let id = outbox.show("AA+1").unwrap()["id"].clone();
    outbox.comment("AA+1", "once").unwrap();
    // A comment is planned without reading the issue.
    push_without_reading_back(&world);
    let comments = || {
        let shown = outbox.show("AA+1").unwrap()["fields"]["comment"].clone();
        let all = shown["comments"].as_array().unwrap().clone();
        assert_eq!(shown["total"], all.len());
        all.iter()
            .map(|item| item["id"].clone())
            .collect::<Vec<_>>()
    };
    let there = world.site_issue(outbox.show("AA+1").unwrap()["key"].as_str().unwrap());
    assert_eq!(there["id"], id);
    let sent = there["fields"]["comment"]["comments"][0]["id"].clone();
    assert_eq!(comments(), std::slice::from_ref(&sent));
    world.pull();
    assert_eq!(comments(), [sent]);
    assert!(outbox.ops().unwrap().is_empty());
    world.converged();
}

/// A replica keeps the operations of its outbox in memory and reads only new records. It returns
/// what a new replica reads, for the whole outbox and for one issue.
#[test]
fn the_operations_in_memory_are_those_of_the_outbox() {
    let world = pulled();
    let outbox = world.outbox();
    let check = |keys: &[&str]| {
        let fresh = world.other_replica();
        let stored = Outbox::new(&fresh, 0).listing().unwrap();
        assert_eq!(outbox.listing().unwrap(), stored);
        let whole = Overlay::load(&fresh).unwrap();
        for key in keys {
            let own = Overlay::load_issue(&world.replica, key).unwrap();
            let location = fresh.locate(key).unwrap();
            let id = location.map_or_else(|| (*key).to_owned(), |location| location.id);
            assert_eq!(own.of_issue(&id), whole.of_issue(&id), "{key}");
            let mut created = whole.created();
            created.retain(|issue| issue["id"] == *id || issue["key"] == **key);
            assert_eq!(own.created(), created, "{key}");
        }
        stored.len()
    };
    let summary = |text: &str| [("summary".to_owned(), text.to_owned())];
    assert_eq!(check(&["AA-1"]), 0);
    outbox.edit("AA-1", &summary("first")).unwrap();
    let other = world.other_replica();
    let other = Outbox::new(&other, world.now());
    other.comment("AA-2", "by another handle").unwrap();
    assert_eq!(check(&["AA-1", "AA-2"]), 2);
    other.edit("AA-1", &summary("second")).unwrap();
    other.resolve("2", Choice::Drop, None, None).unwrap();
    assert_eq!(check(&["AA-1", "AA-2"]), 1);
    world.push();
    assert_eq!(check(&["AA-1"]), 0);
    // An issue has its temporary key, then also its key and its id.
    outbox.create("AA", "Task", "new", &[], None).unwrap();
    outbox.comment("AA+3", "to the new issue").unwrap();
    assert_eq!(check(&["AA+3", "AA-1"]), 2);
    push_without_reading_back(&world);
    let shown = outbox.show("AA+3").unwrap();
    let names = ["key", "id"].map(|name| shown[name].as_str().unwrap());
    assert_eq!(check(&["AA+3", names[0], names[1]]), 2);
    outbox.comment("AA+3", "again").unwrap();
    assert_eq!(check(&["AA+3", names[0], names[1]]), 3);
    world.pull();
    assert_eq!(check(&["AA+3", names[0], names[1]]), 1);
    // A change of an issue waits for a rejected one.
    world.fault("PUT", "/rest/api/3/issue/*", 1, 1, &json!({"name": "400"}));
    outbox.edit("AA-1", &summary("rejected")).unwrap();
    assert_eq!(world.push().rejected, 1);
    outbox.edit("AA-1", &summary("waits")).unwrap();
    assert_eq!(check(&["AA-1", "AA-2"]), 2);
    let waits = outbox.pending_of("AA-1").unwrap().remove(1);
    assert_eq!(
        waits.problem.as_deref(),
        Some("it waits for operation 6"),
        "{waits:?}"
    );
}
