//! Random changes at the site, with a lagging index, broken answers, crashes and restarts. After a
//! time without changes, the replica equals the site, and nothing was stored twice.
//!
//! `PULL_SEED` runs one seed; `PULL_STEPS` sets the number of steps.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use serde_json::{Value, json};
use weir_jira::pull::{PullOptions, pull_with};
use weir_jira::replica::Location;
use weir_jira::sim::SimOptions;

use crate::chaos::Random;
use crate::world::{World, small};

/// Default number of steps for each seed.
const STEPS: usize = 60;
const SEEDS: [u64; 6] = [1, 2, 3, 4, 5, 6];
/// Faults of a search.
const FAULTS: &[&str] = &[
    "500",
    "503",
    "reset-before",
    "reset-during",
    "truncate",
    "garbage-json",
    "empty-object",
    "repeat-token",
    "empty-page",
    "missing-token",
    "expired-token",
    "short-page",
    "missing",
    "dup",
    "stale",
];

/// A seed, and what it has done so far.
struct Run {
    world: World,
    random: Random,
    seed: u64,
    /// The worklogs of the start: the id of the issue, and their own.
    worklogs: Vec<(String, String)>,
    /// Number of pulls that a fault or a crash has interrupted.
    interrupted: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let world = World::new(SimOptions {
            seed,
            projects: 3,
            issues: 24,
            comments: 1,
            page_cap: 6,
            worklogs: 1,
            search_lag_ms: 1000 * i64::try_from(random.below(121)).unwrap(),
            ..small()
        });
        let mut worklogs = Vec::new();
        for (id, issue) in world.site() {
            let all = issue["fields"]["worklog"]["worklogs"].clone();
            for worklog in all.as_array().unwrap() {
                worklogs.push((id.clone(), worklog["id"].as_str().unwrap().to_owned()));
            }
        }
        Self {
            world,
            random,
            seed,
            worklogs,
            interrupted: 0,
        }
    }

    fn control(&self, path: &str, body: &Value) {
        self.world.sim.control("POST", path, body);
    }

    /// The key of an issue that the account can see.
    fn key(&mut self) -> String {
        let keys = self.world.keys();
        keys[self.random.below(keys.len())].clone()
    }

    fn project(&mut self) -> &'static str {
        ["AA", "BB", "CC"][self.random.below(3)]
    }

    fn step(&mut self, number: usize) {
        match self.random.below(15) {
            0..=2 => {
                let key = self.key();
                let fields = json!({"summary": format!("step {number}")});
                self.control("/_sim/edit", &json!({"issue": key, "fields": fields}));
            }
            3 => {
                let count = [1, 2, 25][self.random.below(3)];
                let body = json!({"issue": self.key(), "count": count});
                self.control("/_sim/comments", &body);
            }
            4 => {
                let body = json!({"issue": self.key(), "project": self.project()});
                self.control("/_sim/move", &body);
            }
            5 => {
                if self.world.keys().len() > 10 {
                    let body = json!({"issue": self.key()});
                    self.control("/_sim/delete", &body);
                }
            }
            6 => {
                let fields = json!({"project": {"key": self.project()}, "issuetype": {"name": "Task"},
                    "summary": format!("created in step {number}")});
                // The account may not see the project now.
                drop(
                    self.world
                        .client
                        .write("POST", "issue", &json!({"fields": fields})),
                );
            }
            7 => self.revoke(),
            8 => self.change_worklog(number),
            9 => {
                let name = FAULTS[self.random.below(FAULTS.len())];
                let fits = json!({"path": "/rest/api/3/search/jql", "chance": 300, "count": 2,
                    "seed": self.seed + u64::try_from(number).unwrap()});
                let fault = json!({"name": name, "bytes": 700});
                self.control("/_sim/faults", &json!({"match": fits, "fault": fault}));
            }
            10 => self.world.restart(),
            11 => self.pull(true, false),
            12 => self.pull(false, true),
            _ => self.pull(false, false),
        }
        let pause = [1, 500, 7000, 90_000][self.random.below(4)];
        self.world.advance(pause);
    }

    /// Hides a project or shows it again.
    fn revoke(&mut self) {
        let shown = self.random.below(3) > 0;
        // One project is always visible.
        let project = ["AA", "BB"][self.random.below(2)];
        let body = json!({"project": project, "visible": shown});
        self.control("/_sim/revoke", &body);
    }

    /// Changes or deletes a worklog without a change of its issue, which can be hidden.
    fn change_worklog(&mut self, number: usize) {
        let at = self.random.below(self.worklogs.len().max(1));
        let Some((issue, worklog)) = self.worklogs.get(at) else {
            return;
        };
        if self.random.below(3) > 0 {
            let new = json!({"id": worklog, "timeSpentSeconds": 60 * (1 + number)});
            self.control("/_sim/edit", &json!({"issue": issue, "worklog": new}));
        } else {
            self.control("/_sim/delete", &json!({"issue": issue, "worklog": worklog}));
        }
    }

    /// Pulls; a crash ends the pull after its first page.
    fn pull(&mut self, census: bool, crash: bool) {
        let options = PullOptions {
            census,
            confirm_removal: self.random.below(2) == 0,
            ..self.world.options()
        };
        let World {
            client, replica, ..
        } = &self.world;
        let pulled = catch_unwind(AssertUnwindSafe(|| {
            pull_with(client, replica, &options, |_| {
                if crash {
                    resume_unwind(Box::new("crash"));
                }
            })
        }));
        self.interrupted += usize::from(!matches!(pulled, Ok(Ok(_))));
    }

    /// Ends the changes, and checks that the replica becomes equal to the site.
    fn rest(&mut self) {
        self.world
            .sim
            .control("DELETE", "/_sim/faults", &Value::Null);
        for project in ["AA", "BB"] {
            self.control(
                "/_sim/revoke",
                &json!({"project": project, "visible": true}),
            );
        }
        self.world.advance(181_000);
        let options = PullOptions {
            census: true,
            confirm_removal: true,
            ..self.world.options()
        };
        pull_with(&self.world.client, &self.world.replica, &options, |_| ()).unwrap();
        self.world.pull();
        self.world.converged();
        for (id, issue) in self.world.site() {
            let project = issue["fields"]["project"]["id"]
                .as_str()
                .unwrap()
                .to_owned();
            let there = issue["fields"]["worklog"]["worklogs"].as_array().unwrap();
            let location = Location { id, project };
            assert_eq!(&self.world.replica.worklogs(&location).unwrap(), there);
        }
        assert_eq!(self.world.pull().writes, 0);
    }
}

#[test]
fn a_replica_converges_after_random_changes() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let steps = number("PULL_STEPS").map_or(STEPS, |steps| usize::try_from(steps).unwrap());
    let seeds = number("PULL_SEED").map_or(SEEDS.to_vec(), |seed: u64| vec![seed]);
    let mut interrupted = 0;
    for seed in &seeds {
        // Shown if the test fails.
        println!("PULL_SEED={seed}");
        let mut run = Run::new(*seed);
        for step in 0..steps {
            run.step(step);
        }
        run.rest();
        interrupted += run.interrupted;
    }
    assert!(
        interrupted > 0 || seeds.len() == 1,
        "nothing was interrupted"
    );
}
