//! Changes without a site: which are queued, which are rejected, and what the user sees.

use serde_json::{Value, json};
use weir_jira::index::Index;
use weir_jira::offline;
use weir_jira::op::{Action, State};
use weir_jira::outbox::{Choice, Outbox};
use weir_jira::replica::Change;
use weir_jira::{JiraError, meta};

use crate::world::{World, small};

fn text(field: &str, value: &str) -> (String, String) {
    (field.to_owned(), value.to_owned())
}

fn pulled() -> World {
    let world = World::new(small());
    world.pull();
    world.sim.control("DELETE", "/_sim/log", &json!(null));
    world
}

fn requests(world: &World) -> usize {
    let log = world.sim.control("GET", "/_sim/log", &json!(null));
    log.as_array().unwrap().len()
}

/// A move and its comment, or a copy and its link, are queued in one transaction: if it fails,
/// nothing is queued.
#[test]
fn operations_that_belong_together_are_one_transaction() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.watch("AA-1", true).unwrap();
    let topic = world.replica.topic("outbox").unwrap();
    let last = || topic.info().unwrap().last.0;
    let before = last();
    outbox.watch("AA-2", true).unwrap();
    let records = last() - before;
    outbox
        .transition("AA-1", "Done", &[], Some("because"))
        .unwrap();
    // One record more than for a single operation.
    assert_eq!(last(), before + 2 * records + 1);
    outbox.clone_issue("AA-2", &[]).unwrap();
    assert_eq!(last(), before + 3 * records + 2);
    let ops = outbox.ops().unwrap();
    let kinds: Vec<_> = ops.iter().map(|op| op.action.name()).collect();
    assert_eq!(kinds[2..], ["transition", "comment_add", "create", "link"]);
    assert_eq!(ops[3].after, Some(ops[2].number));
    assert_eq!(ops[5].issue, ops[4].key);
}

#[test]
fn an_edit_is_seen_at_once_and_sends_nothing() {
    let world = pulled();
    let outbox = world.outbox();
    let edits = [
        text("summary", "A new summary"),
        text("Due date", "2030-01-31"),
    ];
    let op = outbox.edit("AA-1", &edits).unwrap();
    assert_eq!((op.state, op.number), (State::Queued, 1));
    outbox.label("AA-1", &["one".to_owned()], &[]).unwrap();
    outbox.comment("AA-1", "I saw *this*.").unwrap();
    outbox.transition("AA-1", "done", &[], None).unwrap();
    let shown = outbox.show("aa-1").unwrap();
    assert_eq!(shown["fields"]["summary"], "A new summary");
    assert_eq!(shown["fields"]["duedate"], "2030-01-31");
    assert_eq!(shown["fields"]["status"]["statusCategory"]["key"], "done");
    let comments = shown["fields"]["comment"]["comments"].as_array().unwrap();
    assert_eq!(comments.last().unwrap()["id"], "+2");
    assert_eq!(shown["pending"].as_array().unwrap().len(), 3);
    let found = offline::select(&world.replica, "summary ~ \"new summary\"", world.now()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["pending"].as_array().unwrap().len(), 3);
    let found = offline::search(&world.replica, "I saw this", world.now()).unwrap();
    assert_eq!(found.len(), 1);
    let index = Index::load(&world.replica).unwrap();
    assert_eq!(index.row("AA-1").unwrap().pending, 3);
    assert_eq!(index.search("saw this", 10).len(), 1);
    assert_eq!(requests(&world), 0);
    // The replica itself contains the version of the site.
    assert_ne!(
        world.replica.issue("AA-1").unwrap()["fields"]["summary"],
        "A new summary"
    );
}

#[test]
fn later_edits_are_merged_into_an_unsent_one() {
    let world = pulled();
    let outbox = world.outbox();
    outbox.edit("AA-1", &[text("summary", "first")]).unwrap();
    outbox
        .edit(
            "AA-1",
            &[text("summary", "second"), text("labels", "+x,-y")],
        )
        .unwrap();
    let op = outbox.edit("AA-1", &[text("labels", "+y,-x")]).unwrap();
    assert_eq!(outbox.ops().unwrap(), std::slice::from_ref(&op));
    let Action::Edit { fields, sets } = &op.action else {
        panic!("{op:?}")
    };
    assert_eq!(fields["summary"].mine, "second");
    assert_ne!(fields["summary"].base, "first");
    assert_eq!(sets["labels"].add, ["y"]);
    // An edit without a change is not queued.
    let error = outbox
        .edit("AA-1", &[text("summary", "second")])
        .unwrap_err();
    assert!(error.to_string().contains("already"), "{error}");
    // A different change between two edits preserves their order.
    outbox.comment("AA-1", "between").unwrap();
    outbox.edit("AA-1", &[text("summary", "third")]).unwrap();
    assert_eq!(outbox.ops().unwrap().len(), 3);
}

/// JSON is read up to 128 levels, so one deeper text would make the whole outbox unreadable.
#[test]
fn a_text_that_is_nested_too_deeply_is_rejected() {
    let world = pulled();
    let outbox = world.outbox();
    let list = |levels: usize| -> String {
        let line = |level: usize| ["  ".repeat(level), "- a\n".to_owned()].concat();
        (0..levels).map(line).collect()
    };
    for levels in [29, 40, 60] {
        let error = outbox.comment("AA-1", &list(levels)).unwrap_err();
        assert!(error.to_string().contains("nests deeper"), "{error}");
    }
    outbox.comment("AA-1", &list(28)).unwrap();
    let description = [text("description", &list(28))];
    outbox.edit("AA-1", &description).unwrap();
    let stored = world.other_replica();
    assert_eq!(Outbox::new(&stored, 0).ops().unwrap().len(), 2);
    outbox.show("AA-1").unwrap();
}

/// An operation and the counter of operations can be in two transactions, if the operation is large.
/// An operation whose number another process has used must not be written: it would be sent twice.
#[test]
fn changes_after_a_lost_race_are_not_written() {
    let world = World::new(small());
    let put = |key: &str, bytes: usize| Change {
        key: key.to_owned(),
        value: Some(vec![b'1'; bytes]),
        found: None,
    };
    assert!(world.replica.apply("cursors", &[put("a", 1)]).unwrap());
    let changes = [put("a", 1), put("b", 5 << 20)];
    assert!(!world.replica.apply("cursors", &changes).unwrap());
    assert!(world.replica.get("cursors", "b").unwrap().is_none());
}

/// A name can have a comma. An edit of the list does not split it.
#[test]
fn an_item_with_a_comma_stays_in_its_list() {
    let world = pulled();
    world.edit("AA-1", &json!({"labels": ["red,green", "blue"]}));
    world.pull();
    let outbox = world.outbox();
    let op = outbox.edit("AA-1", &[text("labels", "red,green,white")]);
    assert_eq!(op.unwrap().what(), "labels: +white -blue");
    let op = outbox.edit("AA-2", &[text("labels", "red,green")]);
    let what = op.unwrap().what();
    assert!(what.starts_with("labels: +red +green"), "{what}");
}

#[test]
fn an_invalid_value_is_rejected_with_the_name_of_its_field() {
    let world = pulled();
    let outbox = world.outbox();
    for (field, value, expected) in [
        ("summary", "", "cannot be empty"),
        ("summary", "two\nlines", "one line"),
        ("due", "31.1.2030", "YYYY-MM-DD"),
        ("priority", "Huge", "choose from High, Medium, Low"),
        ("Team", "Green", "choose from Red, Blue"),
        ("points", "many", "is not a number"),
        ("labels", "+two words", "has a space"),
        ("labels", "+a,b", "needs + or -"),
        ("assignee", "Nobody Known", "no known person"),
        ("assignee", "User", "not unique"),
        ("colour", "red", "no such field"),
    ] {
        let error = outbox.edit("AA-1", &[text(field, value)]).unwrap_err();
        assert!(matches!(error, JiraError::Field { .. }), "{field}: {error}");
        assert!(error.to_string().contains(expected), "{field}: {error}");
    }
    let error = outbox
        .transition("AA-1", "Sleeping", &[], None)
        .unwrap_err();
    assert!(error.to_string().contains("In Progress"), "{error}");
    let error = outbox.create("AA", "Epic", "x", &[], None).unwrap_err();
    assert!(
        error.to_string().contains("Task, Bug, Story, Subtask"),
        "{error}"
    );
    let error = outbox.create("AA", "Subtask", "x", &[], None).unwrap_err();
    assert!(error.to_string().starts_with("parent: "), "{error}");
    let error = outbox.link("AA-1", "eats", "AA-2", false).unwrap_err();
    assert!(error.to_string().contains("is blocked by"), "{error}");
    assert!(outbox.edit("AA-9999", &[text("summary", "x")]).is_err());
    assert!(outbox.ops().unwrap().is_empty());
}

#[test]
fn an_issue_can_be_edited_before_its_creation() {
    let world = pulled();
    let outbox = world.outbox();
    let op = outbox
        .create(
            "aa",
            "bug",
            "It breaks",
            &[text("assignee", "me"), text("body", "- one")],
            None,
        )
        .unwrap();
    assert_eq!(op.key, "AA+1");
    outbox.comment("AA+1", "more").unwrap();
    outbox
        .create("AA", "Subtask", "A part", &[], Some("AA+1"))
        .unwrap();
    outbox.link("AA+1", "is blocked by", "AA-2", false).unwrap();
    let shown = outbox.show("aa+1").unwrap();
    assert_eq!(shown["fields"]["project"]["key"], "AA");
    assert_eq!(shown["fields"]["comment"]["total"], 1);
    let found = offline::select(&world.replica, "key = \"AA+1\"", world.now()).unwrap();
    assert_eq!(found.len(), 1);
    // An operation cannot be dropped while others depend on it.
    let error = outbox.resolve("1", Choice::Drop, None, None).unwrap_err();
    assert!(error.to_string().contains("needs AA+1"), "{error}");
    for number in ["4", "3", "2", "1"] {
        assert!(
            outbox
                .resolve(number, Choice::Drop, None, None)
                .unwrap()
                .is_none()
        );
    }
    assert!(outbox.ops().unwrap().is_empty());
    assert!(matches!(outbox.find("1"), Err(JiraError::UnknownOp(_))));
    // Numbers are never reused.
    assert_eq!(outbox.comment("AA-1", "x").unwrap().number, 5);
}

#[test]
fn possible_values_are_known_without_a_request() {
    let world = pulled();
    let fields = world.outbox().fields("AA-1").unwrap();
    let team = fields.iter().find(|field| field.name == "Team").unwrap();
    assert_eq!(team.allowed, ["Red", "Blue"]);
    assert_eq!(meta::people(&world.replica).unwrap().len(), 5);
    let phrases = meta::link_phrases(&world.replica).unwrap();
    assert!(phrases.contains(&"is blocked by".to_owned()));
    // The site has three statuses; the current one of the issue is not offered.
    for (id, status, others) in [
        ("1", "To Do", ["Done", "In Progress"]),
        ("3", "Done", ["In Progress", "To Do"]),
    ] {
        world.edit("AA-1", &json!({"status": {"id": id, "name": status}}));
        world.pull();
        assert_eq!(world.outbox().transitions("AA-1").unwrap(), others);
    }
    world.sim.control("DELETE", "/_sim/log", &json!(null));
    assert_eq!(requests(&world), 0);
    meta::fetch_issue(&world.client, &world.replica, "AA-1").unwrap();
    assert_eq!(world.outbox().transitions("AA-1").unwrap(), ["To Do"]);
    assert!(!world.outbox().fields("AA-1").unwrap().is_empty());
}

#[test]
fn a_text_is_edited_as_org() {
    let world = pulled();
    let outbox = world.outbox();
    let org = outbox.edit_base("AA-1").unwrap().text("description");
    let edited = format!("{org}\n- a point with /style/\n");
    outbox
        .edit("AA-1", &[text("description", &edited)])
        .unwrap();
    let shown = outbox.show("AA-1").unwrap();
    let last = shown["fields"]["description"]["content"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    assert_eq!(last["type"], "bulletList");
    assert_eq!(
        outbox.edit_base("AA-1").unwrap().text("description"),
        edited
    );
}

/// People in a list whose names have a comma, are equal, or are no longer known.
#[test]
fn a_corrected_list_keeps_items_by_their_names() {
    let world = pulled();
    let person = |account: &str, name: &str| json!({"accountId": account, "displayName": name});
    let kept = [
        person("a1", "Alex Kim"),
        person("a2", "Alex Kim"),
        person("b", "Berg, Ann"),
    ];
    let known = |last: Value| {
        let all: Vec<Value> = kept.iter().cloned().chain([last]).collect();
        world.replica.store("meta", "users", &all).unwrap();
    };
    let schema = json!({"type": "array", "items": "user"});
    let field = json!({"fieldId": "people", "name": "People", "schema": schema});
    world.edit("AA-2", &json!({"people": [person("a2", "Alex Kim")]}));
    world.pull();
    for key in ["AA-1", "AA-2"] {
        let id = world.replica.issue(key).unwrap()["id"].clone();
        let name = format!("edit.{}", id.as_str().unwrap());
        let fields = json!({"people": field});
        world.replica.store("meta", &name, &fields).unwrap();
    }
    let summary = json!({"fieldId": "summary", "name": "Summary", "schema": {"type": "string"}});
    let types = json!({"types": [{"id": "1", "name": "Task", "fields": [summary, field]}]});
    world.replica.store("meta", "create.10000", &types).unwrap();
    let outbox = world.outbox();
    known(person("c", "Ann"));
    let edit = |key: &str, value: &str| outbox.edit(key, &[text("people", value)]).unwrap();
    edit("AA-1", "+a1,+a2,+b,+c");
    edit("AA-2", "+a1,-a2");
    let new = [text("people", "a1,a2,b,c")];
    outbox.create("AA", "Task", "New", &new, None).unwrap();
    known(person("d", "Anna"));
    let correct = |op: &str, before: &str, after: &str| {
        let op = outbox.correct(op, "people", before, after).unwrap();
        let accounts = |all: &[Value]| {
            let all = all.iter().map(|item| item["accountId"].clone());
            all.collect::<Value>()
        };
        match op.action {
            Action::Edit { sets, .. } => {
                let edit = &sets["people"];
                (accounts(&edit.add), accounts(&edit.remove))
            }
            Action::Create { fields, .. } => {
                let list = fields["people"].as_array().unwrap();
                (accounts(list), json!([]))
            }
            other => panic!("{other:?}"),
        }
    };
    let before = "+Alex Kim,+Alex Kim,+Berg, Ann,+Ann";
    let after = "+Ann,, +Berg, Ann ,+Alex Kim,+Anna,+Alex Kim";
    let found = correct("1", before, after);
    assert_eq!(found, (json!(["c", "b", "a1", "d", "a2"]), json!([])));
    let after = "-Alex Kim,+Alex Kim,+Anna";
    let found = correct("2", "+Alex Kim,-Alex Kim", after);
    assert_eq!(found, (json!(["a1", "d"]), json!(["a2"])));
    let before = "Alex Kim,Alex Kim,Berg, Ann,Ann";
    let after = "Alex Kim,Alex Kim,Ann,Berg, Ann,Anna";
    let found = correct("3", before, after);
    assert_eq!(found, (json!(["a1", "a2", "b", "c", "d"]), json!([])));
}
