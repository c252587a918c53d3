//! The data of the simulator: its storage in topics, and its forms.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir::{Durability, OpenOptions, Topic, TopicOptions, Weir};
use weir_jira::client::Client;
use weir_jira::replica::VALUE_BYTES_MAX;
use weir_jira::sim::{SimOptions, Simulator};

use crate::world::{World, small};

fn open(folder: &tempfile::TempDir) -> Weir {
    let mut options = OpenOptions {
        durability: Durability::Memory,
        ..OpenOptions::default()
    };
    options.limits.value_bytes_max = VALUE_BYTES_MAX;
    Weir::open_with(folder.path(), &options).unwrap()
}

fn start(weir: &Weir, seed: u64) -> Simulator {
    let options = SimOptions {
        seed,
        store: Some(weir.clone()),
        ..small()
    };
    Simulator::start(options).unwrap()
}

/// Sets the maximum number of keys of a topic; `None`: the default of the store.
fn limit_keys(topic: &Topic, keys_max: Option<u64>) {
    let mut options = TopicOptions::default();
    options.keys_max = keys_max;
    assert_eq!(topic.alter(&options).unwrap().reason(), None);
}

fn client(sim: &Simulator) -> Client {
    Client::with(&sim.url(), None, Duration::from_mins(5), Arc::new(|_| ())).unwrap()
}

/// Creates an issue; returns its id and key.
fn create(sim: &Simulator) -> weir_jira::Result<Value> {
    let fields = json!({"project": {"key": "AA"}, "issuetype": {"name": "Task"}, "summary": "New"});
    client(sim).write("POST", "issue", &json!({"fields": fields}))
}

#[test]
fn the_state_outlives_the_simulator() {
    let folder = tempfile::tempdir().unwrap();
    let state = |sim: &Simulator| sim.control("GET", "/_sim/state", &Value::Null);
    let weir = open(&folder);
    let sim = start(&weir, 1);
    for (path, body) in [
        (
            "/_sim/edit",
            json!({"issue": "AA-1", "fields": {"summary": "Changed"}}),
        ),
        ("/_sim/delete", json!({"issue": "AA-2"})),
        ("/_sim/move", json!({"issue": "AA-3", "project": "BB"})),
        ("/_sim/clock", json!({"advance_ms": 5000})),
    ] {
        sim.control("POST", path, &body);
    }
    let first = create(&sim).unwrap();
    let before = state(&sim);
    drop(sim);
    weir.close().unwrap();
    // The seed of the second run has no effect, because the state exists.
    let weir = open(&folder);
    let sim = start(&weir, 2);
    assert_eq!(state(&sim), before);
    let clock = sim.control("POST", "/_sim/clock", &json!({"advance_ms": 0}));
    assert_eq!(clock["now_ms"], 1_732_800_005_000_i64);
    // Ids and keys are not used twice, and the old key of the moved issue finds it.
    let second = create(&sim).unwrap();
    assert_ne!(first["id"], second["id"]);
    assert_ne!(first["key"], second["key"]);
    let body = json!({"issue": "AA-3", "fields": {"summary": "Moved"}});
    assert_eq!(sim.control("POST", "/_sim/edit", &body)["found"], true);
    // The issues are ordinary values of a topic.
    let topic = weir.topic("jira._simulator.issues").unwrap();
    let stored = topic.get(second["id"].as_str().unwrap()).unwrap().unwrap();
    let issue: Value = serde_json::from_slice(stored.value()).unwrap();
    assert_eq!(issue["key"], second["key"]);
}

/// A limit of the topic interrupts the first start after 64 issues. The next start generates all
/// issues from its own options.
#[test]
fn an_interrupted_first_start_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let state = |sim: &Simulator| sim.control("GET", "/_sim/state", &Value::Null);
    let weir = open(&folder);
    let issues = weir.topic("jira._simulator.issues").unwrap();
    issues.ensure().unwrap();
    limit_keys(&issues, Some(64));
    let many = SimOptions {
        issues: 100,
        store: Some(weir.clone()),
        ..small()
    };
    let error = Simulator::start(many).unwrap_err();
    assert!(error.to_string().contains("refused a write"), "{error}");
    assert_eq!(issues.scan(b"", None, 1000).unwrap().len(), 64);
    limit_keys(&issues, None);
    let sim = start(&weir, 2);
    let generated = state(&sim);
    assert_eq!(generated["issues"].as_object().unwrap().len(), 45);
    drop(sim);
    assert_eq!(state(&start(&weir, 3)), generated);
}

/// The store refuses the key of a new issue. When it accepts keys again, the next request also
/// stores that issue.
#[test]
fn a_change_that_the_store_refused_is_stored_later() {
    let folder = tempfile::tempdir().unwrap();
    let state = |sim: &Simulator| sim.control("GET", "/_sim/state", &Value::Null);
    let weir = open(&folder);
    let sim = start(&weir, 1);
    let issues = weir.topic("jira._simulator.issues").unwrap();
    limit_keys(&issues, Some(45));
    create(&sim).unwrap_err();
    limit_keys(&issues, None);
    let before = state(&sim);
    assert_eq!(before["issues"].as_object().unwrap().len(), 46);
    drop(sim);
    assert_eq!(state(&start(&weir, 1)), before);
}

#[test]
fn a_lagging_search_finds_issues_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let weir = open(&folder);
    let lagging = || {
        let options = SimOptions {
            search_lag_ms: 1000,
            store: Some(weir.clone()),
            ..small()
        };
        Simulator::start(options).unwrap()
    };
    let count = |sim: &Simulator, jql: &str| {
        let answer: Value = client(sim)
            .read_by_post("search/approximate-count", &json!({"jql": jql}))
            .unwrap();
        answer["count"].as_u64().unwrap()
    };
    let sim = lagging();
    let body = json!({"issue": "AA-1", "fields": {"summary": "Changed"}});
    sim.control("POST", "/_sim/edit", &body);
    drop(sim);
    let sim = lagging();
    // The change is too recent, and the version before it is not stored.
    assert_eq!(count(&sim, "project in (AA, BB)"), 44);
    sim.control("POST", "/_sim/clock", &json!({"advance_ms": 1000}));
    assert_eq!(count(&sim, "project in (AA, BB)"), 45);
    assert_eq!(count(&sim, "summary ~ \"Changed\""), 1);
}

#[test]
fn varied_data_is_pulled_completely() {
    // With a lag, a search shows the indexed versions.
    let world = World::new(SimOptions {
        varied: true,
        search_lag_ms: 1000,
        issues: 600,
        page_cap: 100,
        ..small()
    });
    world.pull();
    world.converged();
    let site = world.site();
    let count = |test: &dyn Fn(&Value) -> bool| site.values().filter(|issue| test(issue)).count();
    assert!(count(&|issue| issue["fields"]["parent"].is_object()) > 5);
    assert!(count(&|issue| issue["fields"]["issuelinks"][0].is_object()) > 5);
    let long = |issue: &Value| issue["fields"]["description"].to_string().len() > 700;
    assert!(count(&long) > 5);
    let nested =
        |issue: &Value| issue["fields"]["description"]["content"][0]["type"] == "bulletList";
    assert!(count(&nested) > 0);
    // A moved issue is found by its old key.
    let keys = world.keys();
    let moved = (1..600)
        .map(|number| format!("AA-{number}"))
        .find(|key| !keys.contains(key))
        .unwrap();
    let issue: Value = world.client.get(&format!("issue/{moved}")).unwrap();
    assert!(issue["key"].as_str().unwrap().starts_with("BB-"));
}
