//! Projects are created, edited and deleted immediately and exactly once.

use serde_json::{Value, json};
use weir_jira::JiraError;
use weir_jira::project::{self, NewProject};

use crate::push::pulled;
use crate::world::World;

fn new(key: &str, name: &str) -> NewProject {
    NewProject {
        key: key.to_owned(),
        name: name.to_owned(),
        ..NewProject::default()
    }
}

/// The project of the replica with this key, and whether it is visible.
fn stored_project(world: &World, key: &str) -> (Value, bool) {
    let all = world.replica.projects().unwrap();
    let mut own = all
        .into_iter()
        .filter(|(_, value)| value["project"]["key"] == key);
    let (_, value) = own.next().expect("the replica has the project");
    assert!(own.next().is_none(), "{key} is there twice");
    (value["project"].clone(), value["visible"] == true)
}

#[test]
fn a_project_is_created_edited_and_deleted() {
    let world = pulled();
    let (client, replica) = (&world.client, &world.replica);
    let made = project::create(client, replica, &new("new", "The new one")).unwrap();
    assert_eq!(
        (&made["key"], &made["name"]),
        (&json!("NEW"), &json!("The new one"))
    );
    assert_eq!(made["lead"]["accountId"], "user-0");
    assert!(stored_project(&world, "NEW").1);
    // Issues can be created in the project immediately.
    let outbox = world.outbox();
    outbox.create("NEW", "Task", "first", &[], None).unwrap();
    assert_eq!(world.push().sent, 1);
    assert_eq!(outbox.show("NEW-1").unwrap()["fields"]["summary"], "first");
    let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    };
    let fields = pairs(&[
        ("name", "Renamed"),
        ("lead", "User 2"),
        ("assignee", "lead"),
    ]);
    project::edit(client, replica, "NEW", &fields).unwrap();
    let project = stored_project(&world, "NEW").0;
    assert_eq!(project["name"], "Renamed");
    assert_eq!(project["lead"]["accountId"], "user-2");
    assert_eq!(project["assigneeType"], "PROJECT_LEAD");
    assert!(project::delete(client, replica, "NEW").unwrap());
    assert!(!stored_project(&world, "NEW").1);
    assert!(!project::delete(client, replica, "NEW").unwrap());
    // The replica still has the issues.
    assert_eq!(outbox.show("NEW-1").unwrap()["fields"]["summary"], "first");
    world.pull();
}

#[test]
fn an_invalid_project_is_rejected_with_the_name_of_the_field() {
    let world = pulled();
    let (client, replica) = (&world.client, &world.replica);
    let before = client.requests();
    let refused = |result: weir_jira::Result<Value>| match result.unwrap_err() {
        JiraError::Field { field, .. } => field,
        error => error.to_string(),
    };
    for (key, name, field) in [
        ("A", "x", "key"),
        ("1A", "x", "key"),
        ("AB C", "x", "key"),
        ("OK", " ", "name"),
    ] {
        assert_eq!(
            refused(project::create(client, replica, &new(key, name))),
            field
        );
    }
    let lead = NewProject {
        lead: "nobody at all".to_owned(),
        ..new("OK", "x")
    };
    assert_eq!(refused(project::create(client, replica, &lead)), "lead");
    let kind = NewProject {
        kind: "garden".to_owned(),
        ..new("OK", "x")
    };
    assert_eq!(refused(project::create(client, replica, &kind)), "type");
    let field = [("colour".to_owned(), "red".to_owned())];
    assert_eq!(
        refused(project::edit(client, replica, "AA", &field)),
        "colour"
    );
    assert_eq!(client.requests(), before);
    // The site rejects a key that already exists.
    let error = project::create(client, replica, &new("AA", "x")).unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
}

#[test]
fn a_lost_connection_creates_no_project_twice() {
    for (name, arrives) in [
        ("reset-after", true),
        ("reset-before", false),
        ("500-after", true),
    ] {
        let world = pulled();
        let (client, replica) = (&world.client, &world.replica);
        world.fault("POST", "/rest/api/3/project", 1, 1, &json!({"name": name}));
        let made = project::create(client, replica, &new("NEW", "new"));
        assert_eq!(made.is_ok(), arrives, "{name}: {made:?}");
        if !arrives {
            project::create(client, replica, &new("NEW", "new")).unwrap();
        }
        assert!(stored_project(&world, "NEW").1);
        world.fault(
            "DELETE",
            "/rest/api/3/project/*",
            1,
            1,
            &json!({"name": name}),
        );
        assert_eq!(
            project::delete(client, replica, "NEW").is_ok(),
            arrives,
            "{name}"
        );
    }
    // Without the right, nothing changes.
    let world = pulled();
    world
        .sim
        .control("POST", "/_sim/deny", &json!({"right": "ADMINISTER"}));
    let error = project::create(&world.client, &world.replica, &new("NEW", "new")).unwrap_err();
    assert!(error.to_string().contains("ADMINISTER"), "{error}");
}
