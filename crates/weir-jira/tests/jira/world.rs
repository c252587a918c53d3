//! A simulator with a replica of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use weir::{Durability, OpenOptions, Weir};
use weir_jira::client::{Client, Deployment};
use weir_jira::outbox::Outbox;
use weir_jira::pull::{PullOptions, PullReport, pull};
use weir_jira::push::{PushOptions, PushReport, push};
use weir_jira::replica::{Location, Replica};
use weir_jira::sim::{SimOptions, Simulator};
use weir_jira::{JiraError, Result};

pub(crate) struct World {
    pub(crate) sim: Simulator,
    pub(crate) client: Client,
    pub(crate) replica: Replica,
    /// The pauses of the client, which only records them.
    pub(crate) pauses: Arc<Mutex<Vec<Duration>>>,
    weir: Weir,
    folder: tempfile::TempDir,
}

pub(crate) fn small() -> SimOptions {
    SimOptions {
        port: 0,
        issues: 45,
        comments: 3,
        page_cap: 10,
        virtual_clock: true,
        issue_write_limits: false,
        ..SimOptions::default()
    }
}

fn client(sim: &Simulator, pauses: &Arc<Mutex<Vec<Duration>>>, timeout: Duration) -> Client {
    let recorded = Arc::clone(pauses);
    let pause = Arc::new(move |pause| recorded.lock().unwrap().push(pause));
    Client::with(&sim.url(), None, timeout, pause).unwrap()
}

fn open(folder: &tempfile::TempDir) -> Weir {
    let mut options = OpenOptions {
        durability: Durability::Memory,
        ..OpenOptions::default()
    };
    options.limits.value_bytes_max = 64 << 20;
    Weir::open_with(folder.path(), &options).unwrap()
}

impl World {
    pub(crate) fn new(options: SimOptions) -> Self {
        let deployment = if options.data_center {
            Deployment::DataCenter
        } else {
            Deployment::Cloud
        };
        let sim = Simulator::start(options).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let weir = open(&folder);
        let pauses = Arc::<Mutex<Vec<Duration>>>::default();
        // Longer than the time of an answer on a busy machine.
        let client = client(&sim, &pauses, Duration::from_mins(5)).deployed(deployment);
        let replica = Replica::new(weir.clone(), "test");
        Self {
            sim,
            client,
            replica,
            pauses,
            weir,
            folder,
        }
    }

    /// Closes the replica and opens it again.
    pub(crate) fn restart(&mut self) {
        self.weir.clone().close().unwrap();
        self.weir = open(&self.folder);
        self.replica = Replica::new(self.weir.clone(), "test");
    }

    /// The replica, opened by another part of the process.
    pub(crate) fn other_replica(&self) -> Replica {
        Replica::new(self.weir.clone(), "test")
    }

    /// A client with another timeout.
    pub(crate) fn client_within(&self, timeout: Duration) -> Client {
        client(&self.sim, &self.pauses, timeout).deployed(self.client.deployment())
    }

    pub(crate) fn now(&self) -> i64 {
        let clock = self
            .sim
            .control("POST", "/_sim/clock", &json!({"advance_ms": 0}));
        clock["now_ms"].as_i64().unwrap()
    }

    pub(crate) fn advance(&self, ms: i64) {
        self.sim
            .control("POST", "/_sim/clock", &json!({"advance_ms": ms}));
    }

    pub(crate) fn options(&self) -> PullOptions {
        PullOptions {
            now_ms: self.now(),
            ..PullOptions::default()
        }
    }

    pub(crate) fn try_pull(&self) -> Result<PullReport> {
        pull(&self.client, &self.replica, &self.options())
    }

    pub(crate) fn pull(&self) -> PullReport {
        self.try_pull().unwrap()
    }

    pub(crate) fn census(&self) -> std::result::Result<PullReport, JiraError> {
        pull(
            &self.client,
            &self.replica,
            &PullOptions {
                census: true,
                ..self.options()
            },
        )
    }

    pub(crate) fn fault(&self, method: &str, path: &str, nth: u64, count: u64, fault: &Value) {
        let rule = json!({
            "match": {"method": method, "path": path, "nth": nth, "count": count}, "fault": fault,
        });
        self.sim.control("POST", "/_sim/faults", &rule);
    }

    pub(crate) fn edit(&self, issue: &str, fields: &Value) {
        self.advance(1000);
        let body = json!({"issue": issue, "fields": fields});
        assert_eq!(
            self.sim.control("POST", "/_sim/edit", &body)["found"],
            true,
            "{issue}"
        );
    }

    pub(crate) fn outbox(&self) -> Outbox<'_> {
        Outbox::new(&self.replica, self.now())
    }

    pub(crate) fn try_push(&self) -> Result<PushReport> {
        let now_ms = self.now();
        push(&self.client, &self.replica, &PushOptions { now_ms })
    }

    pub(crate) fn push(&self) -> PushReport {
        self.try_push().unwrap()
    }

    /// Pushes until the outbox is empty, as `watch` does; time advances between two pushes.
    pub(crate) fn push_all(&self) {
        for _ in 0..100 {
            drop(self.try_push());
            if self.outbox().ops().unwrap().is_empty() {
                return;
            }
            self.advance(6 * 60_000);
        }
        panic!("{:#?}", self.outbox().ops().unwrap());
    }

    /// The keys of all issues of the site.
    pub(crate) fn keys(&self) -> Vec<String> {
        let all = self.site().into_values();
        all.map(|issue| issue["key"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The issue with this key at the site.
    pub(crate) fn site_issue(&self, key: &str) -> Value {
        let all = self.site();
        let found = all.values().find(|issue| issue["key"] == key);
        found
            .unwrap_or_else(|| panic!("the site has no {key}"))
            .clone()
    }

    /// The issues of the site, by id.
    pub(crate) fn site(&self) -> BTreeMap<String, Value> {
        let state = self.sim.control("GET", "/_sim/state", &Value::Null);
        serde_json::from_value(state["issues"].clone()).unwrap()
    }

    /// Checks that the replica equals the site, comments included, and that no version of an issue
    /// was stored twice.
    pub(crate) fn converged(&self) {
        let there = self.site();
        let here: BTreeMap<String, Value> = self
            .replica
            .issues()
            .unwrap()
            .into_iter()
            .map(|issue| (issue["id"].as_str().unwrap().to_owned(), issue))
            .collect();
        let ids = |map: &BTreeMap<String, Value>| map.keys().cloned().collect::<Vec<_>>();
        assert_eq!(ids(&here), ids(&there));
        for (id, issue) in &there {
            let mut stored = here[id].clone();
            let project = issue["fields"]["project"]["id"]
                .as_str()
                .unwrap()
                .to_owned();
            let location = Location {
                id: id.clone(),
                project,
            };
            let comments = self.replica.comments(&location).unwrap();
            let wanted = issue["fields"]["comment"]["comments"].as_array().unwrap();
            assert_eq!(&comments, wanted, "comments of {id}");
            for part in ["comment", "worklog"] {
                stored["fields"][part] = issue["fields"][part].clone();
            }
            assert_eq!(&stored["fields"], &issue["fields"], "{id}");
            assert_eq!(stored["key"], issue["key"]);
        }
        self.check_nothing_stored_twice();
    }

    fn check_nothing_stored_twice(&self) {
        for (project, _) in self.replica.projects().unwrap() {
            let topic = self.replica.topic(&format!("issues.{project}")).unwrap();
            if topic.info().is_none() {
                continue;
            }
            let mut newest: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            for page in topic.pages(weir::ReadFrom::Start).unwrap() {
                for record in &page.unwrap() {
                    let record = record.unwrap();
                    if record.key.is_empty() {
                        continue;
                    }
                    let before = newest.insert(record.key.to_vec(), record.value.to_vec());
                    assert!(
                        before.as_deref() != Some(record.value),
                        "stored twice: {record:?}"
                    );
                }
            }
        }
    }
}
