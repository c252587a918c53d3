//! Pushes from the outbox to the site: executed changes and conflicts.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir_jira::client::Client;
use weir_jira::meta;
use weir_jira::op::{Action, Op, State};
use weir_jira::outbox::Choice;
use weir_jira::push::{PushOptions, push};

use crate::world::{World, small};

fn text(field: &str, value: &str) -> (String, String) {
    (field.to_owned(), value.to_owned())
}

/// A world with a replica, in which time has passed since the last change.
pub(crate) fn pulled() -> World {
    let world = World::new(small());
    world.pull();
    world.advance(60_000);
    world
}

fn document(lines: &[&str]) -> Value {
    let block =
        |line: &&str| json!({"type": "paragraph", "content": [{"type": "text", "text": line}]});
    let blocks: Vec<Value> = lines.iter().map(block).collect();
    json!({"type": "doc", "version": 1, "content": blocks})
}

/// A field that is corrected back to the site's value leaves the change; the other fields stay.
#[test]
fn a_field_that_is_corrected_back_leaves_the_edit() {
    let world = pulled();
    let outbox = world.outbox();
    let old = world.site_issue("AA-1")["fields"]["summary"].clone();
    let old = old.as_str().unwrap();
    let op = outbox.edit("AA-1", &[text("summary", "Mein")]).unwrap();
    let number = op.number.to_string();
    let none = outbox.correct(&number, "summary", "Mein", old).unwrap_err();
    assert!(none.to_string().contains("drop"), "{none}");

    let old = world.site_issue("AA-2")["fields"]["summary"].clone();
    let edits = [text("summary", "Mein"), text("priority", "Low")];
    let op = outbox.edit("AA-2", &edits).unwrap();
    let number = op.number.to_string();
    let op = outbox
        .correct(&number, "summary", "Mein", old.as_str().unwrap())
        .unwrap();
    let Action::Edit { fields, .. } = &op.action else {
        panic!("{op:?}")
    };
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["priority"]);
}

/// A correction of a queued change keeps its base: the change of another user still conflicts.
#[test]
fn a_queued_change_is_corrected_and_keeps_its_base() {
    let world = pulled();
    let outbox = world.outbox();
    let old = world.site_issue("AA-1")["fields"]["summary"].clone();
    let edits = [text("summary", "Mein"), text("priority", "Low")];
    let op = outbox.edit("AA-1", &edits).unwrap();
    let number = op.number.to_string();
    // Another correction was written first.
    let late = outbox
        .correct(&number, "summary", "Meine", "Mine")
        .unwrap_err();
    assert!(late.to_string().contains("meanwhile"), "{late}");
    let wrong = outbox
        .correct(&number, "summary", "Mein", "two\nlines")
        .unwrap_err();
    assert!(wrong.to_string().contains("one line"), "{wrong}");
    assert_eq!(outbox.ops().unwrap(), std::slice::from_ref(&op));
    let op = outbox.correct(&number, "summary", "Mein", "Mine").unwrap();
    let Action::Edit { fields, .. } = &op.action else {
        panic!("{op:?}")
    };
    let edit = &fields["summary"];
    assert_eq!((&edit.base, &edit.mine), (&old, &json!("Mine")));
    world.edit("AA-1", &json!({"summary": "Theirs"}));
    assert_eq!(world.push().conflicts, 1);
    assert_eq!(world.site_issue("AA-1")["fields"]["summary"], "Theirs");
    let stuck = outbox
        .correct(&number, "summary", "Mine", "Other")
        .unwrap_err();
    assert!(stuck.to_string().contains("conflict"), "{stuck}");
}

#[test]
fn a_rejected_change_is_corrected_and_sent_once() {
    let world = pulled();
    let outbox = world.outbox();
    let count = |key: &str| {
        world.site_issue(key)["fields"]["comment"]["total"]
            .as_u64()
            .unwrap()
    };
    let before = count("AA-1");
    let deny = |on: bool| {
        let body = json!({"right": "ADD_COMMENTS", "on": on});
        world.sim.control("POST", "/_sim/deny", &body);
    };
    deny(true);
    outbox.comment("AA-1", "a *bold* mistkae").unwrap();
    let created = outbox
        .create(
            "AA",
            "Task",
            "Frehs",
            &[text("description", "d"), text("labels", "a")],
            None,
        )
        .unwrap();
    assert_eq!(world.push().rejected, 1);
    let op = outbox.ops().unwrap().remove(0);
    assert_eq!(op.state, State::Rejected);
    let [shown] = outbox.texts(&op).unwrap().try_into().unwrap();
    assert_eq!(
        (shown.field.as_str(), shown.text.trim()),
        ("comment", "a *bold* mistkae")
    );
    let op = outbox
        .correct(&op.id, "comment", &shown.text, "a *bold* mistake")
        .unwrap();
    assert_eq!((op.state, op.problem.as_deref()), (State::Queued, None));
    deny(false);
    assert_eq!(world.push().sent, 1);
    assert_eq!(count("AA-1"), before + 1);
    let there = world.site_issue("AA-1").to_string();
    assert!(
        there.contains("mistake") && !there.contains("mistkae"),
        "{there}"
    );
    assert!(
        outbox
            .correct(&created.id, "summary", "Frehs", "Fresh")
            .is_err()
    );
    // The fields of a new issue.
    let op = outbox
        .create(
            "AA",
            "Task",
            "Frehs",
            &[text("description", "d"), text("labels", "a")],
            None,
        )
        .unwrap();
    for (field, before, after) in [
        ("summary", "Frehs", "Fresh"),
        ("description", "d", "- one"),
        ("labels", "a", "b,c"),
    ] {
        let texts = outbox.texts(&outbox.find(&op.id).unwrap()).unwrap();
        let shown = texts.iter().find(|shown| shown.field == field).unwrap();
        assert_eq!(shown.text.trim(), before);
        outbox.correct(&op.id, field, &shown.text, after).unwrap();
    }
    world.push();
    let site = world.site();
    let fresh = site
        .values()
        .find(|issue| issue["fields"]["summary"] == "Fresh");
    let fields = &fresh.unwrap()["fields"];
    assert_eq!(fields["labels"], json!(["b", "c"]));
    assert_eq!(fields["description"]["content"][0]["type"], "bulletList");
}

/// The values that can be corrected, as pairs of field and text.
fn texts(world: &World, op: &str) -> Vec<(String, String)> {
    let outbox = world.outbox();
    let texts = outbox.texts(&outbox.find(op).unwrap()).unwrap();
    texts
        .into_iter()
        .map(|shown| (shown.field, shown.text))
        .collect()
}

#[test]
fn a_change_of_a_list_is_corrected() {
    let world = pulled();
    world.edit("AA-1", &json!({"labels": ["old", "gone"]}));
    world.pull();
    let outbox = world.outbox();
    let edits = [text("labels", "+mistkae,-gone"), text("priority", "Low")];
    outbox.edit("AA-1", &edits).unwrap();
    assert_eq!(
        texts(&world, "1"),
        [text("priority", "Low"), text("labels", "+mistkae,-gone")]
    );
    let correct = |before: &str, after: &str| outbox.correct("1", "labels", before, after);
    correct("+mistkae,-gone", "+mistake").unwrap();
    assert_eq!(texts(&world, "1")[1], text("labels", "+mistake"));
    let shown = outbox.show("AA-1").unwrap()["fields"]["labels"].clone();
    assert_eq!(shown, json!(["old", "gone", "mistake"]));
    // The whole list is another way to write it.
    correct("+mistake", "old,new").unwrap();
    assert_eq!(texts(&world, "1")[1], text("labels", "+new,-gone"));
    let wrong = correct("+new,-gone", "+two words").unwrap_err();
    assert!(wrong.to_string().contains("has a space"), "{wrong}");
    assert_eq!(world.push().sent, 1);
    let there = world.site_issue("AA-1")["fields"]["labels"].clone();
    assert_eq!(there, json!(["old", "new"]));
    // A list that stays as it is leaves a change of several fields, and is no change alone.
    let edits = [text("labels", "+one"), text("priority", "High")];
    outbox.edit("AA-1", &edits).unwrap();
    outbox.correct("2", "labels", "+one", "").unwrap();
    assert_eq!(texts(&world, "2"), [text("priority", "High")]);
    outbox.label("AA-2", &["one".to_owned()], &[]).unwrap();
    let none = outbox.correct("3", "labels", "+one", "").unwrap_err();
    assert!(none.to_string().contains("drop"), "{none}");
}

#[test]
fn a_watcher_and_a_link_are_corrected() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.watch("AA-1", true).unwrap();
    assert_eq!(texts(&world, "1"), [text("watch", "on")]);
    let wrong = outbox.correct("1", "watch", "on", "maybe").unwrap_err();
    assert!(wrong.to_string().contains("choose from on, off"), "{wrong}");
    outbox.correct("1", "watch", "on", "off").unwrap();
    assert_eq!(outbox.find("1").unwrap().what(), "stop watching");
    outbox.link("AA-1", "is blocked by", "AA-2", false).unwrap();
    assert_eq!(
        texts(&world, "2"),
        [text("link", "is blocked by"), text("issue", "AA-2")]
    );
    let correct = |field, before, after| outbox.correct("2", field, before, after);
    correct("issue", "AA-2", "aa-3").unwrap();
    assert_eq!(texts(&world, "2")[1], text("issue", "AA-3"));
    correct("link", "is blocked by", "blocks").unwrap();
    for (field, before, after, expected) in [
        ("issue", "AA-3", "AA-1", "not linked to itself"),
        ("issue", "AA-3", "NO-1", "no issue NO-1"),
        ("link", "blocks", "eats", "is not a link"),
        ("link", "is blocked by", "blocks", "meanwhile"),
    ] {
        let error = correct(field, before, after).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(world.push().sent, 2);
    let links = world.site_issue("AA-1")["fields"]["issuelinks"].clone();
    assert_eq!(links.as_array().unwrap().len(), 1);
    assert_eq!(links[0]["type"]["name"], "Blocks");
    assert_eq!(links[0]["outwardIssue"]["key"], "AA-3");
    world.converged();
}

/// Corrections name an issue whose creation has a higher number. They wait for the creation, and
/// name the issue by its id at the site.
#[test]
fn a_change_waits_for_the_issue_that_a_later_change_creates() {
    let world = pulled();
    meta::fetch_issue(&world.client, &world.replica, "AA-3").unwrap();
    let outbox = world.outbox();
    outbox.link("AA-1", "blocks", "AA-2", false).unwrap();
    outbox.edit("AA-3", &[text("parent", "AA-1")]).unwrap();
    let child = outbox.create("AA", "Subtask", "Child", &[], Some("AA-1"));
    child.unwrap();
    outbox.create("AA", "Task", "New", &[], None).unwrap();
    outbox.correct("1", "issue", "AA-2", "AA+4").unwrap();
    outbox.correct("2", "parent", "AA-1", "AA+4").unwrap();
    outbox.correct("3", "parent", "AA-1", "AA+4").unwrap();
    let needed = outbox.resolve("4", Choice::Drop, None, None).unwrap_err();
    assert!(
        needed.to_string().contains("operation 1 needs AA+4"),
        "{needed}"
    );
    let deny = |on: bool| {
        let body = json!({"right": "CREATE_ISSUES", "on": on});
        world.sim.control("POST", "/_sim/deny", &body);
    };
    deny(true);
    let report = world.push();
    assert_eq!(
        (report.sent, report.rejected, report.waiting),
        (0, 1, 3),
        "{report:?}"
    );
    deny(false);
    outbox.resolve("4", Choice::Retry, None, None).unwrap();
    let report = world.push();
    assert_eq!((report.sent, report.rejected), (4, 0), "{report:?}");
    let site = world.site();
    let called = |summary: &str| {
        let mut all = site.values();
        all.find(|issue| issue["fields"]["summary"] == summary)
            .unwrap()
    };
    let new = &called("New")["id"];
    assert_eq!(called("Child")["fields"]["parent"]["id"], *new);
    assert_eq!(world.site_issue("AA-3")["fields"]["parent"]["id"], *new);
    let links = world.site_issue("AA-1")["fields"]["issuelinks"].clone();
    assert_eq!(links.as_array().unwrap().len(), 1, "{links}");
    assert_eq!(links[0]["outwardIssue"]["id"], *new);
    world.converged();
}

/// The second edit is merged into one that is older than the creation of the parent. After a lost
/// answer, the temporary key of the parent equals its key at the site.
#[test]
fn an_edit_that_names_a_new_issue_is_no_conflict_with_itself() {
    let world = pulled();
    meta::fetch_issue(&world.client, &world.replica, "AA-3").unwrap();
    let outbox = world.outbox();
    outbox.edit("AA-3", &[text("summary", "One")]).unwrap();
    outbox.create("AA", "Task", "New", &[], None).unwrap();
    outbox.edit("AA-3", &[text("parent", "AA+2")]).unwrap();
    assert_eq!(outbox.ops().unwrap().len(), 2);
    outbox.comment("AA-3", "between the edits").unwrap();
    outbox.edit("AA-3", &[text("parent", "AA-1")]).unwrap();
    let fault = json!({"name": "reset-after"});
    world.fault("PUT", "/rest/api/3/issue/*", 1, 1, &fault);
    let report = world.push();
    assert_eq!(
        (report.sent, report.already, report.conflicts),
        (3, 1, 0),
        "{report:?}"
    );
    let fields = world.site_issue("AA-3")["fields"].clone();
    assert_eq!(fields["summary"], "One");
    assert_eq!(fields["parent"]["key"], "AA-1");
    world.converged();
}

/// Two new issues that are each other's parents: neither is sent, and a correction resolves it.
#[test]
fn new_issues_that_need_each_other_are_rejected() {
    let world = pulled();
    let outbox = world.outbox();
    for summary in ["One", "Two"] {
        let created = outbox.create("AA", "Subtask", summary, &[], Some("AA-1"));
        created.unwrap();
    }
    outbox.correct("1", "parent", "AA-1", "AA+2").unwrap();
    outbox.correct("2", "parent", "AA-1", "AA+1").unwrap();
    let report = world.push();
    assert_eq!(
        (report.sent, report.rejected, report.waiting),
        (0, 1, 1),
        "{report:?}"
    );
    assert!(report.messages[0].ends_with("AA+1 was not created"));
    outbox.correct("2", "parent", "AA+1", "AA-1").unwrap();
    assert_eq!(world.push().sent, 2);
    world.converged();
}

/// A field that only the screen of a transition has.
#[test]
fn a_field_of_a_transition_is_corrected() {
    let world = pulled();
    world.edit("AA-1", &json!({"status": {"id": "1", "name": "To Do"}}));
    world.pull();
    meta::fetch_issue(&world.client, &world.replica, "AA-1").unwrap();
    let outbox = world.outbox();
    let fields = [text("resolution", "Fixed")];
    outbox.transition("AA-1", "Done", &fields, None).unwrap();
    let texts = outbox.texts(&outbox.find("1").unwrap()).unwrap();
    assert_eq!(texts[0].allowed, ["Fixed", "Won't do"]);
    outbox
        .correct("1", "resolution", "Fixed", "Won't do")
        .unwrap();
    assert_eq!(world.push().sent, 1);
    let there = world.site_issue("AA-1")["fields"]["resolution"].clone();
    assert_eq!(there["name"], "Won't do");
}

#[test]
fn every_kind_of_change_is_executed() {
    let world = pulled();
    world.edit("AA-1", &json!({"status": {"id": "1", "name": "To Do"}}));
    world.pull();
    let outbox = world.outbox();
    outbox
        .edit(
            "AA-1",
            &[
                text("summary", "New"),
                text("priority", "high"),
                text("labels", "+new,-red"),
                text("assignee", "User 3"),
                text("Points", "3.5"),
                text("team", "blue"),
                text("description", "* Head\nand *bold*"),
            ],
        )
        .unwrap();
    outbox.comment("AA-1", "one").unwrap();
    outbox.worklog("AA-1", 5400, world.now(), "worked").unwrap();
    outbox
        .transition("AA-1", "Done", &[], Some("finished"))
        .unwrap();
    outbox.watch("AA-1", true).unwrap();
    outbox.link("AA-1", "blocks", "AA-2", false).unwrap();
    outbox.assign("AA-2", "none").unwrap();
    outbox
        .create("AA", "Task", "Fresh", &[text("due", "2030-02-01")], None)
        .unwrap();
    let report = world.push();
    assert_eq!(
        (report.sent, report.waiting, report.rejected),
        (9, 0, 0),
        "{report:?}"
    );
    assert!(outbox.ops().unwrap().is_empty());
    let there = world.site_issue("AA-1");
    let fields = &there["fields"];
    assert_eq!(fields["summary"], "New");
    assert_eq!(fields["priority"]["name"], "High");
    assert_eq!(fields["assignee"]["accountId"], "user-3");
    assert_eq!(fields["customfield_10011"], 3.5);
    assert_eq!(fields["customfield_10010"]["value"], "Blue");
    assert_eq!(fields["description"]["content"][0]["type"], "heading");
    assert_eq!(fields["status"]["name"], "Done");
    assert_eq!(fields["watches"]["watchCount"], 1);
    assert_eq!(fields["issuelinks"][0]["outwardIssue"]["key"], "AA-2");
    assert_eq!(fields["worklog"]["worklogs"][0]["timeSpentSeconds"], 5400);
    assert!(fields["labels"].as_array().unwrap().contains(&json!("new")));
    let site = world.site();
    let fresh: Vec<&Value> = site
        .values()
        .filter(|issue| issue["fields"]["summary"] == "Fresh")
        .collect();
    assert_eq!(fresh.len(), 1);
    assert_eq!(world.site_issue("AA-2")["fields"]["assignee"], Value::Null);
    // The replica has all changes before the next pull, and the temporary key finds the issue.
    world.converged();
    let shown = outbox.show("AA+9").unwrap();
    assert_eq!(shown["key"], fresh[0]["key"]);
    world.pull();
    world.converged();
}

#[test]
fn an_issue_is_created_before_its_other_operations() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.create("BB", "Story", "Parent", &[], None).unwrap();
    outbox.comment("BB+1", "first").unwrap();
    outbox
        .create("BB", "Subtask", "Child", &[], Some("BB+1"))
        .unwrap();
    outbox.link("BB+3", "relates to", "BB+1", false).unwrap();
    outbox
        .clone_issue("BB+1", &[text("summary", "Copy")])
        .unwrap();
    outbox.delete("AA-3", false).unwrap();
    let report = world.push();
    assert_eq!((report.sent, report.waiting), (7, 0), "{report:?}");
    let site = world.site();
    let called = |summary: &str| {
        let found: Vec<&Value> = site
            .values()
            .filter(|issue| issue["fields"]["summary"] == summary)
            .collect();
        assert_eq!(found.len(), 1, "{summary}");
        found[0].clone()
    };
    let (parent, child, copy) = (called("Parent"), called("Child"), called("Copy"));
    assert_eq!(child["fields"]["parent"]["id"], parent["id"]);
    assert_eq!(parent["fields"]["comment"]["total"], 1);
    assert_eq!(copy["fields"]["issuelinks"][0]["type"]["name"], "Cloners");
    assert!(!site.values().any(|issue| issue["key"] == "AA-3"));
    world.converged();
}

#[test]
fn fields_in_conflict_are_held_back_and_the_others_are_sent() {
    let world = pulled();
    let outbox = world.outbox();
    outbox
        .edit(
            "AA-1",
            &[
                text("summary", "mine"),
                text("duedate", "2030-01-01"),
                text("labels", "+mine"),
                text("priority", "Low"),
            ],
        )
        .unwrap();
    world.edit(
        "AA-1",
        &json!({"summary": "theirs", "labels": ["theirs"],
        "priority": {"id": "3", "name": "Low"}}),
    );
    let report = world.push();
    assert_eq!((report.sent, report.conflicts), (1, 1), "{report:?}");
    let there = world.site_issue("AA-1");
    assert_eq!(there["fields"]["summary"], "theirs");
    assert_eq!(there["fields"]["duedate"], "2030-01-01");
    assert_eq!(there["fields"]["labels"], json!(["theirs", "mine"]));
    let op = outbox.find("1").unwrap();
    assert_eq!(op.state, State::Conflict);
    assert_eq!(op.conflicts.len(), 1);
    let [base, mine, theirs] = op.conflict_texts("summary").unwrap();
    assert_eq!((mine.as_str(), theirs.as_str()), ("mine", "theirs"));
    assert_ne!(base, mine);
    // The conflict remains, without a request, until the user decides.
    let report = world.push();
    assert_eq!((report.requests, report.conflicts), (0, 1));
    assert!(
        outbox
            .resolve("1", Choice::Mine, Some("duedate"), None)
            .is_err()
    );
    outbox
        .resolve("1", Choice::Mine, Some("summary"), None)
        .unwrap()
        .unwrap();
    assert_eq!(world.push().sent, 1);
    assert_eq!(world.site_issue("AA-1")["fields"]["summary"], "mine");
    world.converged();
}

#[test]
fn a_conflict_is_resolved_in_three_ways() {
    for (choice, value, result) in [
        (Choice::Mine, None, "mine"),
        (Choice::Theirs, None, "theirs"),
        (Choice::Mine, Some("both"), "both"),
    ] {
        let world = pulled();
        let outbox = world.outbox();
        outbox.edit("AA-1", &[text("summary", "mine")]).unwrap();
        world.edit("AA-1", &json!({"summary": "theirs"}));
        world.push();
        outbox.resolve("1", choice, None, value).unwrap();
        world.push();
        assert!(outbox.ops().unwrap().is_empty());
        assert_eq!(world.site_issue("AA-1")["fields"]["summary"], result);
        world.converged();
    }
}

#[test]
fn texts_are_merged_by_their_blocks() {
    let world = pulled();
    world.edit(
        "AA-1",
        &json!({"description": document(&["one", "two", "three"])}),
    );
    world.pull();
    let outbox = world.outbox();
    outbox
        .edit(
            "AA-1",
            &[text("description", "one\n\ntwo\n\nthree of mine\n")],
        )
        .unwrap();
    world.edit(
        "AA-1",
        &json!({"description": document(&["one of theirs", "two", "three"])}),
    );
    let report = world.push();
    assert_eq!((report.sent, report.merged), (1, 1), "{report:?}");
    let there = world.site_issue("AA-1");
    assert_eq!(
        there["fields"]["description"],
        document(&["one of theirs", "two", "three of mine"])
    );
    // Both edits change the same block, so they conflict.
    outbox
        .edit(
            "AA-1",
            &[text("description", "mine\n\ntwo\n\nthree of mine\n")],
        )
        .unwrap();
    world.edit(
        "AA-1",
        &json!({"description": document(&["theirs", "two", "three of mine"])}),
    );
    let report = world.push();
    assert_eq!((report.sent, report.conflicts), (0, 1), "{report:?}");
    let op = outbox.find("2").unwrap();
    let [_, mine, theirs] = op.conflict_texts("description").unwrap();
    assert!(
        mine.starts_with("mine\n") && theirs.starts_with("theirs\n"),
        "{mine}{theirs}"
    );
}

/// A pull during an edit: the base is the version at the start of the edit.
#[test]
fn a_pull_during_an_edit_hides_no_change_of_others() {
    let world = pulled();
    world.edit("AA-1", &json!({"labels": ["old"]}));
    world.pull();
    let outbox = world.outbox();
    let base = outbox.edit_base("AA-1").unwrap();
    world.edit(
        "AA-1",
        &json!({"summary": "theirs", "labels": ["old", "theirs"]}),
    );
    world.pull();
    let edits = [text("summary", "mine"), text("labels", "old,mine")];
    outbox.edit_from("AA-1", &base, &edits).unwrap();
    let report = world.push();
    assert_eq!((report.sent, report.conflicts), (1, 1), "{report:?}");
    let op = outbox.ops().unwrap().remove(0);
    assert_eq!(op.conflicts.len(), 1);
    assert_eq!(op.conflicts[0].theirs, "theirs");
    outbox.resolve("1", Choice::Mine, None, None).unwrap();
    assert_eq!(world.push().sent, 1);
    let fields = world.site_issue("AA-1")["fields"].clone();
    assert_eq!(fields["summary"], "mine");
    assert_eq!(fields["labels"], json!(["old", "theirs", "mine"]));
    // A comment.
    let site = world.site();
    let commented = |issue: &&Value| issue["fields"]["comment"]["total"] != 0;
    let issue = site.values().find(commented).unwrap();
    let (key, id) = (
        &issue["key"],
        &issue["fields"]["comment"]["comments"][0]["id"],
    );
    let (key, id) = (key.as_str().unwrap(), id.as_str().unwrap());
    let base = outbox.edit_base(key).unwrap();
    let comment = json!({"id": id, "body": document(&["theirs"])});
    let body = json!({"issue": key, "comment": comment, "fields": {"labels": ["new"]}});
    world.advance(1000);
    world.sim.control("POST", "/_sim/edit", &body);
    world.pull();
    outbox.edit_comment_from(key, &base, id, "mine").unwrap();
    assert_eq!(world.push().conflicts, 1);
}

/// Two edits that began from one version, as in two buffers of one issue: both texts are sent where
/// they merge, and the second is in conflict where they do not.
#[test]
fn two_edits_from_one_version_overwrite_nothing() {
    let world = pulled();
    world.edit(
        "AA-1",
        &json!({"summary": "old", "priority": {"id": "3", "name": "Medium"},
            "description": document(&["one", "two", "three"])}),
    );
    world.pull();
    let outbox = world.outbox();
    let base = outbox.edit_base("AA-1").unwrap();
    let first = [
        text("summary", "first"),
        text("priority", "High"),
        text("description", "one of A\n\ntwo\n\nthree\n"),
    ];
    let second = [
        text("summary", "second"),
        text("priority", "High"),
        text("description", "one\n\ntwo\n\nthree of B\n"),
    ];
    outbox.edit_from("AA-1", &base, &first).unwrap();
    outbox.edit_from("AA-1", &base, &second).unwrap();
    let report = world.push();
    assert_eq!(
        (report.sent, report.merged, report.conflicts),
        (2, 1, 1),
        "{report:?}"
    );
    let fields = world.site_issue("AA-1")["fields"].clone();
    assert_eq!(fields["summary"], "first");
    assert_eq!(fields["priority"]["name"], "High");
    assert_eq!(
        fields["description"],
        document(&["one of A", "two", "three of B"])
    );
    let op = outbox.ops().unwrap().remove(0);
    let [_, mine, theirs] = op.conflict_texts("summary").unwrap();
    assert_eq!((mine.as_str(), theirs.as_str()), ("second", "first"));
    // No other user changed it, and the message does not report one.
    let problem = op.problem.unwrap();
    assert_eq!(problem, "changed since this edit began: summary");
}

/// The text of a conflict refers to parts that org cannot show. Both versions have other numbers of
/// such parts, and one of them lacks the part of the other one.
#[test]
fn a_merged_text_keeps_the_parts_that_it_refers_to() {
    let part = |name: &str| json!({"type": "extension", "attrs": {"extensionKey": name}});
    let line = |words: &str| document(&[words])["content"][0].clone();
    let of = |blocks: &[Value]| json!({"type": "doc", "version": 1, "content": blocks});
    for theirs in [
        of(&[part("added"), line("theirs"), part("old")]),
        of(&[line("theirs")]),
    ] {
        let world = pulled();
        let before = of(&[line("one"), part("old")]);
        world.edit("AA-1", &json!({"description": before}));
        world.pull();
        let outbox = world.outbox();
        let mine = [text("description", "mine\n\n{{{adf(1)}}}\n")];
        outbox.edit("AA-1", &mine).unwrap();
        world.edit("AA-1", &json!({"description": theirs}));
        let report = world.push();
        assert_eq!(report.conflicts, 1, "{report:?}");
        let op = outbox.find("1").unwrap();
        let [_, mine, _] = op.conflict_texts("description").unwrap();
        outbox
            .resolve("1", Choice::Mine, Some("description"), Some(&mine))
            .unwrap();
        assert_eq!(world.push().sent, 1);
        let wanted = of(&[line("mine"), part("old")]);
        let site = world.site_issue("AA-1")["fields"]["description"].clone();
        assert_eq!(site, wanted);
    }
}

/// Two edits of an issue that waits for its creation: the second one does not change the creation,
/// whether it is queued before the creation or after it.
#[test]
fn two_edits_of_a_new_issue_overwrite_nothing() {
    for created in [false, true] {
        let world = pulled();
        let outbox = world.outbox();
        outbox.create("AA", "Task", "New", &[], None).unwrap();
        let base = outbox.edit_base("AA+1").unwrap();
        let first = [text("description", "text of A"), text("summary", "A")];
        outbox.edit_from("AA+1", &base, &first).unwrap();
        if created {
            assert_eq!(world.push().sent, 1);
        }
        let second = [text("description", "text of B"), text("labels", "+b")];
        outbox.edit_from("AA+1", &base, &second).unwrap();
        let report = world.push();
        assert_eq!(report.conflicts, 1, "{created} {report:?}");
        let site = world.site();
        let made = site
            .values()
            .find(|issue| issue["fields"]["summary"] == "A");
        let fields = &made.unwrap()["fields"];
        assert_eq!(fields["description"], document(&["text of A"]));
        assert_eq!(fields["labels"], json!(["b"]));
        let op = outbox.ops().unwrap().remove(0);
        let [_, mine, theirs] = op.conflict_texts("description").unwrap();
        assert_eq!((mine.trim(), theirs.trim()), ("text of B", "text of A"));
    }
}

#[test]
fn a_comment_is_changed_and_deleted_unless_another_user_changed_it() {
    let world = pulled();
    let site = world.site();
    let commented = site
        .values()
        .find(|issue| issue["fields"]["comment"]["total"] != 0)
        .unwrap();
    let key = commented["key"].as_str().unwrap();
    let id = commented["fields"]["comment"]["comments"][0]["id"]
        .as_str()
        .unwrap();
    let outbox = world.outbox();
    outbox.edit_comment(key, id, "mine\n").unwrap();
    assert_eq!(world.push().sent, 1);
    assert_eq!(
        world.site_issue(key)["fields"]["comment"]["comments"][0]["body"],
        document(&["mine"])
    );
    outbox.delete_comment(key, id).unwrap();
    let body = json!({"issue": key, "comment": {"id": id, "body": document(&["theirs"])}});
    world.sim.control("POST", "/_sim/edit", &body);
    let report = world.push();
    assert_eq!((report.sent, report.conflicts), (0, 1), "{report:?}");
    let op = outbox.ops().unwrap().remove(0);
    let field = format!("comment:{id}");
    outbox
        .resolve(&op.id, Choice::Mine, Some(&field), None)
        .unwrap();
    assert_eq!(world.push().sent, 1);
    let comments = world.site_issue(key)["fields"]["comment"]["comments"].clone();
    assert!(
        comments
            .as_array()
            .unwrap()
            .iter()
            .all(|item| item["id"] != id)
    );
    world.converged();
}

#[test]
fn a_worklog_is_changed_and_deleted_unless_another_user_changed_it() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.worklog("AA-1", 5400, world.now(), "worked").unwrap();
    // A worklog that is not at the site has no site id.
    let pending = outbox.show("AA-1").unwrap()["fields"]["worklog"]["worklogs"][0].clone();
    assert_eq!(pending["timeSpentSeconds"], 5400);
    let id = pending["id"].as_str().unwrap();
    let error = outbox.delete_worklog("AA-1", id).unwrap_err().to_string();
    assert!(
        error.contains("no worklog +1 that is at the site"),
        "{error}"
    );
    assert_eq!(world.push().sent, 1);
    let there = || world.site_issue("AA-1")["fields"]["worklog"]["worklogs"].clone();
    let first = there()[0].clone();
    let id = first["id"].as_str().unwrap();
    let error = outbox.edit_worklog("AA-1", id, Some(30), None, None);
    assert!(error.unwrap_err().to_string().contains("one minute"));
    let error = outbox.edit_worklog("AA-1", id, Some(5400), None, Some("worked"));
    assert!(error.unwrap_err().to_string().contains("already"));
    outbox
        .edit_worklog("AA-1", id, Some(7200), None, None)
        .unwrap();
    let shown = outbox.show("AA-1").unwrap()["fields"]["worklog"]["worklogs"][0].clone();
    assert_eq!(shown["timeSpentSeconds"], 7200);
    assert_eq!(world.push().sent, 1);
    assert_eq!(there()[0]["timeSpentSeconds"], 7200);
    assert_eq!(there()[0]["started"], first["started"]);
    assert_eq!(there()[0]["comment"], first["comment"]);
    // Another user changes the worklog; the test resolves the conflict in each of three ways.
    let theirs = |seconds: u64| {
        let body = json!({"issue": "AA-1", "worklog": {"id": id, "timeSpentSeconds": seconds}});
        world.sim.control("POST", "/_sim/edit", &body);
        let report = world.push();
        assert_eq!((report.sent, report.conflicts), (0, 1), "{report:?}");
        let op = outbox.ops().unwrap().remove(0);
        let texts = op.conflict_texts(&format!("worklog:{id}")).unwrap();
        assert!(
            texts[2].starts_with(&format!("{} min", seconds / 60)),
            "{texts:?}"
        );
        op.id
    };
    outbox
        .edit_worklog("AA-1", id, Some(600), None, None)
        .unwrap();
    let op = theirs(1200);
    assert!(
        outbox
            .resolve(&op, Choice::Theirs, None, None)
            .unwrap()
            .is_none()
    );
    world.pull();
    outbox
        .edit_worklog("AA-1", id, Some(1800), None, Some("more"))
        .unwrap();
    let op = theirs(2400);
    outbox.resolve(&op, Choice::Mine, None, None).unwrap();
    assert_eq!(world.push().sent, 1);
    assert_eq!(there()[0]["timeSpentSeconds"], 1800);
    assert_eq!(there()[0]["comment"], document(&["more"]));
    outbox.delete_worklog("AA-1", id).unwrap();
    let op = theirs(3000);
    assert_eq!(there().as_array().unwrap().len(), 1);
    outbox.resolve(&op, Choice::Mine, None, None).unwrap();
    assert_eq!(world.push().sent, 1);
    assert!(there().as_array().unwrap().is_empty());
    assert!(outbox.ops().unwrap().is_empty());
    world.converged();
}

/// An issue that changed at the site after the user saw it is not deleted without a question.
#[test]
fn a_deletion_conflicts_with_a_later_change() {
    let world = pulled();
    let outbox = world.outbox();
    let conflict = |key: &str| {
        world.edit(key, &json!({"summary": "Theirs"}));
        let report = world.push();
        assert_eq!((report.sent, report.conflicts), (0, 1), "{report:?}");
        let message = &report.messages[0];
        assert!(message.contains("others changed summary"), "{report:?}");
        assert_eq!(world.site_issue(key)["fields"]["summary"], "Theirs");
        outbox.ops().unwrap().remove(0)
    };
    outbox.delete("AA-3", true).unwrap();
    let op = conflict("AA-3");
    let [base, mine, theirs] = op.conflict_texts("updated").unwrap();
    assert_eq!(mine, "deleted");
    assert_ne!(base, theirs);
    let refused = outbox.resolve(&op.id, Choice::Mine, None, Some("no"));
    assert!(refused.unwrap_err().to_string().contains("has no value"));
    // Another change after the decision is another conflict.
    outbox.resolve(&op.id, Choice::Mine, None, None).unwrap();
    let op = conflict("AA-3");
    outbox.resolve(&op.id, Choice::Mine, None, None).unwrap();
    assert_eq!(world.push().sent, 1);
    assert!(!world.keys().contains(&"AA-3".to_owned()));
    // The issue stays if the user decides so.
    outbox.delete("AA-2", true).unwrap();
    let op = conflict("AA-2");
    let left = outbox.resolve(&op.id, Choice::Theirs, None, None).unwrap();
    assert!(left.is_none());
    assert_eq!(world.push().sent, 0);
    assert_eq!(world.site_issue("AA-2")["fields"]["summary"], "Theirs");
    world.converged();
}

/// A pull stores a change of another user while the user is asked whether to delete the issue, a
/// comment or a worklog.
#[test]
fn a_deletion_conflicts_with_a_change_that_was_pulled_during_the_question() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.worklog("AA-1", 5400, world.now(), "worked").unwrap();
    outbox.comment("AA-1", "mine").unwrap();
    assert_eq!(world.push().sent, 2);
    world.advance(60_000);
    let id_in = |list: &Value| list.as_array().unwrap().last().unwrap()["id"].clone();
    let fields = world.site_issue("AA-1")["fields"].clone();
    let comment = id_in(&fields["comment"]["comments"]);
    let worklog = id_in(&fields["worklog"]["worklogs"]);
    let base = outbox.edit_base("AA-1").unwrap();
    let other_base = outbox.edit_base("AA-2").unwrap();
    world.edit("AA-2", &json!({"summary": "Theirs"}));
    let body = json!({"issue": "AA-1", "comment": {"id": comment, "body": document(&["theirs"])},
        "worklog": {"id": worklog, "timeSpentSeconds": 60}});
    world.sim.control("POST", "/_sim/edit", &body);
    world.edit("AA-1", &json!({"summary": "Theirs"}));
    world.pull();
    assert_eq!(outbox.show("AA-2").unwrap()["fields"]["summary"], "Theirs");
    outbox.delete_from("AA-2", &other_base, true).unwrap();
    let comment = comment.as_str().unwrap();
    outbox.delete_comment_from("AA-1", &base, comment).unwrap();
    let worklog = worklog.as_str().unwrap();
    outbox.delete_worklog_from("AA-1", &base, worklog).unwrap();
    let report = world.push();
    assert_eq!((report.sent, report.conflicts), (0, 3), "{report:?}");
}

/// The earlier changes of the outbox are no conflict with a deletion, but those of others are.
#[test]
fn a_deletion_after_own_changes_conflicts_only_with_others() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.edit("AA-1", &[text("summary", "Mine")]).unwrap();
    outbox.link("AA-2", "relates to", "AA-3", false).unwrap();
    let new = outbox.create("AA", "Task", "New", &[], None).unwrap();
    for key in ["AA-1", "AA-3", new.key.as_str()] {
        outbox.delete(key, true).unwrap();
    }
    let report = world.push();
    assert_eq!((report.sent, report.conflicts), (6, 0), "{report:?}");
    assert!(outbox.ops().unwrap().is_empty());
    world.converged();
    let site = world.site();
    let commented = site
        .values()
        .find(|issue| issue["fields"]["comment"]["total"] != 0)
        .unwrap();
    let key = commented["key"].as_str().unwrap();
    let comment = &commented["fields"]["comment"]["comments"][0]["id"];
    outbox.edit(key, &[text("summary", "Mine")]).unwrap();
    outbox.delete(key, true).unwrap();
    world.advance(1000);
    let body = json!({"issue": key, "comment": {"id": comment, "body": document(&["theirs"]),
        "updateAuthor": {"accountId": "somebody"}}});
    world.sim.control("POST", "/_sim/edit", &body);
    let report = world.push();
    assert_eq!((report.sent, report.conflicts), (1, 1), "{report:?}");
    let message = &report.messages[0];
    assert!(message.contains("others changed comment"), "{report:?}");
}

/// An own change that is pushed while the user is asked is no conflict with the deletion. An earlier
/// deletion is no own change: it must not hide one that the user made at the site.
#[test]
fn a_deletion_ignores_the_own_changes_before_it_but_no_deletion() {
    let world = pulled();
    let outbox = world.outbox();
    let after_own = |op: &Op| match op.action {
        Action::Delete { after_own, .. } => after_own,
        _ => panic!("{op:?}"),
    };
    outbox.edit("AA-1", &[text("summary", "Mine")]).unwrap();
    let base = outbox.edit_base("AA-1").unwrap();
    assert_eq!(world.push().sent, 1);
    world.pull();
    assert!(outbox.ops().unwrap().is_empty());
    let op = outbox.delete_from("AA-1", &base, true).unwrap();
    assert!(after_own(&op));
    let report = world.push();
    assert_eq!((report.sent, report.conflicts), (1, 0), "{report:?}");
    let world = pulled();
    world.outbox().delete("AA-1", true).unwrap();
    let again = world.outbox().delete("AA-1", true).unwrap();
    assert!(!after_own(&again));
}

/// An emptied comment of a worklog is sent as an empty text; without it, the site would keep the old
/// text.
#[test]
fn the_comment_of_a_worklog_can_be_emptied() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.worklog("AA-1", 5400, world.now(), "worked").unwrap();
    assert_eq!(world.push().sent, 1);
    let there = || world.site_issue("AA-1")["fields"]["worklog"]["worklogs"][0].clone();
    let id = there()["id"].as_str().unwrap().to_owned();
    outbox
        .edit_worklog("AA-1", &id, None, None, Some(""))
        .unwrap();
    assert_eq!(world.push().sent, 1);
    assert_eq!(there()["comment"], document(&[]));
    assert_eq!(there()["timeSpentSeconds"], 5400);
    assert!(outbox.ops().unwrap().is_empty());
}

#[test]
fn an_unreachable_status_is_a_conflict_that_lists_the_possible_ones() {
    let world = pulled();
    let outbox = world.outbox();
    world.edit("AA-1", &json!({"status": {"id": "3", "name": "Done"}}));
    outbox.transition("AA-1", "In Progress", &[], None).unwrap();
    let report = world.push();
    assert_eq!(report.conflicts, 1, "{report:?}");
    let op = outbox.find("1").unwrap();
    assert_eq!(
        op.problem.as_deref(),
        Some("from Done only these are possible: To Do")
    );
    assert!(
        outbox
            .resolve("1", Choice::Theirs, None, None)
            .unwrap()
            .is_none()
    );
    assert!(outbox.ops().unwrap().is_empty());
}

/// The transitions of the status at the site are offered, not those of the status that cannot be
/// reached. The transition stays in the outbox, without the fields that the new one does not set.
#[test]
fn a_transition_in_conflict_gets_another_status() {
    let world = pulled();
    let set = |id: &str, name: &str| {
        world.edit("AA-1", &json!({"status": {"id": id, "name": name}}));
    };
    set("2", "In Progress");
    world.pull();
    meta::fetch_issue(&world.client, &world.replica, "AA-1").unwrap();
    set("1", "To Do");
    world.pull();
    let outbox = world.outbox();
    let fields = [text("summary", "moved")];
    outbox
        .transition("AA-1", "In Progress", &fields, None)
        .unwrap();
    set("3", "Done");
    let report = world.push();
    assert_eq!(report.conflicts, 1, "{report:?}");
    assert_eq!(outbox.transitions("AA-1").unwrap(), ["To Do"]);
    let choose = |status: &str| outbox.resolve("1", Choice::Mine, Some("status"), Some(status));
    let error = choose("In Progress").unwrap_err().to_string();
    assert!(error.contains("choose from To Do"), "{error}");
    assert_eq!(outbox.find("1").unwrap().state, State::Conflict);
    let op = choose("to do").unwrap().unwrap();
    assert_eq!(op.state, State::Queued);
    assert_eq!(op.what(), "status: To Do");
    assert_eq!(world.push().sent, 1);
    assert_eq!(
        world.site_issue("AA-1")["fields"]["status"]["name"],
        "To Do"
    );
    world.converged();
}

#[test]
fn the_comment_of_a_transition_is_sent_only_after_it() {
    let world = pulled();
    let outbox = world.outbox();
    world.edit("AA-1", &json!({"status": {"id": "3", "name": "Done"}}));
    outbox
        .transition("AA-1", "In Progress", &[], Some("begun"))
        .unwrap();
    let report = world.push();
    assert_eq!(
        (report.conflicts, report.waiting, report.sent),
        (1, 1, 0),
        "{report:?}"
    );
    let comments = || world.site_issue("AA-1")["fields"]["comment"].to_string();
    assert!(!comments().contains("begun"));
    for choice in [Choice::Drop, Choice::Theirs] {
        let error = outbox.resolve("1", choice, None, None).unwrap_err();
        assert!(error.to_string().contains("operation 2 needs"), "{error}");
    }
    outbox
        .resolve("1", Choice::Mine, Some("status"), Some("To Do"))
        .unwrap();
    assert_eq!(world.push().sent, 2);
    assert!(comments().contains("begun"));
    world.converged();
}

/// Another user moves the issue first, and chooses another resolution.
#[test]
fn fields_of_a_transition_are_not_lost_if_the_status_is_reached_already() {
    let world = pulled();
    world.edit("AA-1", &json!({"status": {"id": "1", "name": "To Do"}}));
    world.pull();
    meta::fetch_issue(&world.client, &world.replica, "AA-1").unwrap();
    let outbox = world.outbox();
    let fields = [text("resolution", "Won't do")];
    outbox.transition("AA-1", "Done", &fields, None).unwrap();
    let done = json!({"status": {"id": "3", "name": "Done"},
        "resolution": {"id": "1", "name": "Fixed"}});
    world.edit("AA-1", &done);
    let report = world.push();
    assert_eq!((report.rejected, report.already), (1, 0), "{report:?}");
    assert!(
        report.messages[0].contains("other values of resolution"),
        "{report:?}"
    );
    outbox
        .correct("1", "resolution", "Won't do", "Fixed")
        .unwrap();
    assert_eq!(world.push().already, 1);
    assert!(outbox.ops().unwrap().is_empty());
}

#[test]
fn a_change_between_the_read_and_the_write_is_reported() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.edit("AA-1", &[text("summary", "mine")]).unwrap();
    world.fault(
        "GET",
        "/rest/api/3/issue/*",
        1,
        1,
        &json!({"name": "conflict"}),
    );
    let report = world.push();
    assert_eq!((report.sent, report.overwritten), (1, 1), "{report:?}");
    assert!(
        report.messages[0].contains("changed by somebody else"),
        "{report:?}"
    );
    assert_eq!(world.site_issue("AA-1")["fields"]["summary"], "mine");
    world.converged();
}

/// A later change of the same push reads the issue after the change was overwritten.
#[test]
fn an_overwritten_change_is_reported_after_a_later_read() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.edit("AA-2", &[text("summary", "mine")]).unwrap();
    outbox.comment("AA-2", "in between").unwrap();
    outbox.edit("AA-2", &[text("priority", "Low")]).unwrap();
    world.fault(
        "GET",
        "/rest/api/3/issue/*",
        1,
        1,
        &json!({"name": "conflict"}),
    );
    let report = world.push();
    assert_eq!((report.sent, report.overwritten), (3, 1), "{report:?}");
    world.converged();
}

/// Another user adds a label between the read and the write. Both labels remain.
#[test]
fn a_list_that_another_user_changed_is_not_reported_as_overwritten() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.label("AA-2", &["mine".to_owned()], &[]).unwrap();
    let fault = json!({"name": "conflict", "field": "labels", "value": ["theirs"]});
    world.fault("GET", "/rest/api/3/issue/*", 1, 1, &fault);
    let report = world.push();
    assert_eq!((report.sent, report.overwritten), (1, 0), "{report:?}");
    let labels = world.site_issue("AA-2")["fields"]["labels"].clone();
    let has = |label: &str| labels.as_array().unwrap().iter().any(|one| *one == label);
    assert!(has("mine") && has("theirs"), "{labels}");
    world.converged();
}

/// Another user changes the field after the write, while the push waits to send a comment.
#[test]
fn a_change_after_the_write_is_not_reported_as_overwritten() {
    let world = Arc::new(pulled());
    let outbox = world.outbox();
    outbox.edit("AA-2", &[text("summary", "mine")]).unwrap();
    outbox.comment("AA-2", "later").unwrap();
    let fault = json!({"name": "429", "retry_after": "1"});
    world.fault("POST", "/rest/api/3/issue/*/comment", 1, 1, &fault);
    let (shared, now_ms) = (Arc::clone(&world), world.now());
    let pause = Arc::new(move |_| shared.edit("AA-2", &json!({"summary": "theirs"})));
    let client = Client::with(&world.sim.url(), None, Duration::from_mins(5), pause).unwrap();
    let report = push(&client, &world.replica, &PushOptions { now_ms }).unwrap();
    assert_eq!((report.sent, report.overwritten), (2, 0), "{report:?}");
    assert_eq!(world.site_issue("AA-2")["fields"]["summary"], "theirs");
    world.converged();
}

#[test]
fn a_change_that_the_site_already_has_is_not_sent() {
    let world = pulled();
    let outbox = world.outbox();
    outbox
        .edit("AA-1", &[text("summary", "same"), text("labels", "+same")])
        .unwrap();
    outbox.transition("AA-2", "Done", &[], None).unwrap();
    outbox.delete("AA-3", false).unwrap();
    world.edit("AA-1", &json!({"summary": "same", "labels": ["same"]}));
    world.edit("AA-2", &json!({"status": {"id": "3", "name": "Done"}}));
    world
        .sim
        .control("POST", "/_sim/delete", &json!({"issue": "AA-3"}));
    let report = world.push();
    assert_eq!((report.sent, report.already), (0, 3), "{report:?}");
    assert!(outbox.ops().unwrap().is_empty());
    world.converged();
}

#[test]
fn a_rejected_change_does_not_block_the_others() {
    let world = pulled();
    let outbox = world.outbox();
    let rule = json!({"match": {"method": "PUT", "path": "/rest/api/3/issue/*", "count": 1},
        "fault": {"name": "400"}});
    world.sim.control("POST", "/_sim/faults", &rule);
    outbox.edit("AA-1", &[text("summary", "refused")]).unwrap();
    outbox.comment("AA-1", "sent all the same").unwrap();
    outbox
        .edit("AA-1", &[text("summary", "waits for the first")])
        .unwrap();
    outbox
        .edit("AA-2", &[text("summary", "another issue")])
        .unwrap();
    let report = world.push();
    assert_eq!(
        (report.sent, report.rejected, report.waiting),
        (2, 1, 1),
        "{report:?}"
    );
    let op = outbox.find("1").unwrap();
    assert!(
        op.problem
            .unwrap()
            .contains("summary: Field 'summary' cannot be set")
    );
    assert_eq!(
        world.site_issue("AA-1")["fields"]["comment"]["comments"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()["body"],
        document(&["sent all the same"])
    );
    outbox.resolve("1", Choice::Retry, None, None).unwrap();
    assert_eq!(world.push().sent, 2);
    assert_eq!(
        world.site_issue("AA-1")["fields"]["summary"],
        "waits for the first"
    );
    world.converged();
}

/// The parent of an issue is a new issue that the site rejects. Changes of other fields are sent,
/// and do not join the edit of the parent.
#[test]
fn a_change_that_waits_for_a_rejected_one_does_not_block_the_others() {
    let world = pulled();
    meta::fetch_issue(&world.client, &world.replica, "AA-3").unwrap();
    let outbox = world.outbox();
    let deny = |on: bool| {
        let body = json!({"right": "CREATE_ISSUES", "on": on});
        world.sim.control("POST", "/_sim/deny", &body);
    };
    deny(true);
    outbox.create("AA", "Task", "New", &[], None).unwrap();
    outbox.edit("AA-3", &[text("parent", "AA+1")]).unwrap();
    let report = world.push();
    assert_eq!((report.rejected, report.waiting), (1, 1), "{report:?}");
    outbox.edit("AA-3", &[text("summary", "Sent")]).unwrap();
    outbox.comment("AA-3", "sent too").unwrap();
    outbox.edit("AA-3", &[text("parent", "AA-1")]).unwrap();
    let report = world.push();
    assert_eq!(
        (report.sent, report.rejected, report.waiting),
        (2, 1, 2),
        "{report:?}"
    );
    assert_eq!(world.site_issue("AA-3")["fields"]["summary"], "Sent");
    let listed = outbox.listing().unwrap().into_iter().skip(1);
    let problems: Vec<_> = listed.map(|op| (op.number, op.problem)).collect();
    let waits = |number: u64| Some(format!("it waits for operation {number}"));
    assert_eq!(problems, [(2, waits(1)), (5, waits(2))]);
    let own = outbox.pending_of("AA-3").unwrap().into_iter();
    let own: Vec<_> = own.map(|op| (op.number, op.problem)).collect();
    assert_eq!(own, problems);
    assert_eq!(outbox.find("5").unwrap().problem, waits(2));
    let shown = outbox.show("AA-3").unwrap();
    assert_eq!(shown["pending"][0]["problem"], "it waits for operation 1");
    deny(false);
    outbox.resolve("1", Choice::Retry, None, None).unwrap();
    let report = world.push();
    assert_eq!((report.sent, report.conflicts), (3, 0), "{report:?}");
    let fields = world.site_issue("AA-3")["fields"].clone();
    assert_eq!(fields["parent"]["key"], "AA-1");
    world.converged();
}
