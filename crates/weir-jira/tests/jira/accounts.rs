//! The accounts of the simulator.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use weir_jira::client::Client;
use weir_jira::outbox::Choice;
use weir_jira::pull::pull;
use weir_jira::push::{PushOptions, push};
use weir_jira::sim::SimOptions;
use weir_jira::{JiraError, access};

use crate::world::{World, small};

/// The three accounts of a site: the administrator, a member, and an outsider who reads one
/// project.
#[test]
fn an_account_sees_and_does_what_its_rights_permit() {
    let world = World::new(SimOptions {
        auth: Some(("me@example.com".to_owned(), "s3cret".to_owned())),
        ..small()
    });
    let client = |email: &str| {
        let pause = Arc::new(|_| ());
        let login = Some((email, "s3cret"));
        Client::with(&world.sim.url(), login, Duration::from_mins(5), pause).unwrap()
    };
    let granted = |client: &Client| {
        let rights = access::rights(client).unwrap();
        let granted = rights.iter().filter(|right| right.granted);
        granted.map(|right| right.name).collect::<Vec<_>>()
    };
    let [admin, member, outsider] = [
        "me@example.com",
        "member@example.com",
        "outsider@example.com",
    ]
    .map(client);
    assert_eq!(granted(&admin).len(), 13);
    let missing = ["ADMINISTER_PROJECTS", "ADMINISTER"];
    assert_eq!(granted(&member).len(), 13 - missing.len());
    assert!(missing.iter().all(|name| !granted(&member).contains(name)));
    assert_eq!(granted(&outsider), ["BROWSE_PROJECTS"]);
    let mut accounts = Vec::new();
    for client in [&admin, &member, &outsider] {
        let me: Value = client.get("myself").unwrap();
        accounts.push(me["accountId"].clone());
    }
    assert_eq!(accounts, ["user-0", "user-1", "user-2"]);
    // A replica of the outsider has one project, and no change of it is executed.
    pull(&outsider, &world.replica, &world.options()).unwrap();
    let issues = world.replica.issues().unwrap();
    let first = |issue: &Value| issue["fields"]["project"]["key"] == "AA";
    assert!(!issues.is_empty() && issues.iter().all(first));
    assert_eq!(world.replica.projects().unwrap().len(), 1);
    let edit = [("summary".to_owned(), "Mine".to_owned())];
    world.outbox().edit("AA-1", &edit).unwrap();
    let options = PushOptions {
        now_ms: world.now(),
    };
    let report = push(&outsider, &world.replica, &options).unwrap();
    assert_eq!((report.sent, report.rejected), (0, 1), "{report:?}");
    // A change of the member is one by its own user.
    world
        .outbox()
        .resolve("1", Choice::Retry, None, None)
        .unwrap();
    assert_eq!(push(&member, &world.replica, &options).unwrap().sent, 1);
    let changed: Value = admin.get("issue/AA-1?expand=changelog").unwrap();
    let last = &changed["changelog"]["histories"][0];
    assert_eq!(last["author"]["accountId"], "user-1");
    // An unknown address, or another token, is refused.
    let error = client("other@example.com")
        .get::<Value>("myself")
        .unwrap_err();
    assert!(matches!(error, JiraError::Unauthenticated), "{error}");
}
