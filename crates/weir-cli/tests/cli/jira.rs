//! `weir jira` at a simulated site, as the guide shows it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::run::{Done, Place, done};

const GUIDE: &str = include_str!("../../../../docs/guide/jira.md");

/// A simulated site; killed when it is dropped.
struct Site {
    child: Child,
    url: String,
}

impl Site {
    #[allow(
        clippy::zombie_processes,
        reason = "it is waited for when this is dropped"
    )]
    fn new(place: &Place, options: &[&str]) -> Self {
        let mut child = place
            .weir()
            .args(["jira-sim", "--port", "0"])
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = said.next().expect("the simulator starts").unwrap();
        let (_, url) = line.split_once(" at ").unwrap();
        let url = url.trim().to_owned();
        Self { child, url }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn shell(place: &Place, command: &str) -> Done {
    let bin = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut shell = place.command("/bin/sh");
    shell
        .args(["-c", command])
        .env("PATH", format!("{}:{path}", bin.display()));
    done(shell.output().unwrap())
}

/// Every command of the guide succeeds at a simulated site, and the last pull changes nothing.
#[test]
fn the_guide_to_jira_runs() {
    let place = Place::new();
    let commands: Vec<&str> = GUIDE
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .collect();
    let (first, rest) = commands.split_first().unwrap();
    assert_eq!(*first, "weir jira-sim --issues 50 &");
    let site = Site::new(&place, &["--issues", "50"]);
    let mut last = String::new();
    for command in rest {
        let command = command.replace("http://127.0.0.1:1938", &site.url);
        let done = shell(&place, &command).ok();
        last = done.text();
        assert!(!last.is_empty(), "{command} printed nothing");
    }
    let report: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!(report["requests"], 1, "{report}");
    assert_eq!(report["writes"], 0, "{report}");
}

/// The replica is read after the site is gone, and a pull then says that it cannot be reached.
#[test]
fn a_replica_is_read_without_its_site() {
    let place = Place::new();
    let site = Site::new(&place, &["--issues", "20"]);
    shell(&place, &format!("weir jira login {}", site.url)).ok();
    place.run("jira pull").ok();
    drop(site);
    assert_eq!(place.run("jira list -o jsonl").ok().lines().len(), 20);
    let first = place.run("jira list --limit 1 -o json").ok().json();
    let key = first[0]["key"].as_str().unwrap().to_owned();
    let shown = place.run(&format!("jira show {key}")).ok().text();
    assert!(shown.starts_with(&format!("* {key} ")), "{shown}");
    let failed = place.run("jira pull");
    assert_ne!(failed.code, 0);
    assert!(failed.err.contains("cannot pull"), "{}", failed.err);
}

/// A query outside of the subset is refused with the place of the fault.
#[test]
fn a_query_that_is_not_understood_is_refused() {
    let place = Place::new();
    let site = Site::new(&place, &["--issues", "5"]);
    shell(&place, &format!("weir jira login {}", site.url)).ok();
    place.run("jira pull").ok();
    let refused = place.words(&["jira", "list", "status = "]);
    assert_ne!(refused.code, 0);
    assert!(
        refused.err.contains("cannot list issues"),
        "{}",
        refused.err
    );
    let missing = place.run("jira show NO-1");
    assert_ne!(missing.code, 0);
}
