//! The store contenders give equal answers and leave no files.
#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

use std::fs;
use std::process::Command;

const EXPERIMENT: &str = r#"
[experiment]
name = "t"
title = "t"
question = "?"
mode = "inproc"
pin = "none"
samples = 1
warmup_ms = 0
foreign_max = 1.0
canary = false
blocks = 1
show = ["wall", "syncs", "rss", "file_bytes"]
[[contender]]
name = "memory"
builtin = "weir-put"
answers = "rows"
params = { level = "memory" }
[[contender]]
name = "group"
builtin = "weir-put"
answers = "rows"
params = { level = "group" }
[[contender]]
name = "listen"
builtin = "weir-listen"
answers = "rows"
[[contender]]
name = "open"
builtin = "weir-open"
params = { level = "memory" }
[[contender]]
name = "keys"
builtin = "weir-keys"
[[contender]]
name = "floor"
builtin = "floor-sync"
[[workload]]
name = "small"
items = 600
params = { producers = 3, messages = 600, bytes = 50, batch = 7, window = 2 }
[[claim]]
text = "one sync for many records"
compare = ["group"]
metric = "syncs"
expect = "lower"
max_value = 600
"#;

#[test]
fn store_contenders_agree_and_clean_up() {
    let dir = tempfile::tempdir().unwrap();
    let experiments = dir.path().join("lab/experiments");
    fs::create_dir_all(&experiments).unwrap();
    fs::write(experiments.join("t.toml"), EXPERIMENT).unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_weir-lab"))
        .current_dir(dir.path())
        .args(["run", "t", "--allow-debug"])
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success(),
        "{stdout}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    for metric in ["wall", "syncs", "rss", "file_bytes"] {
        assert!(
            stdout.contains(&format!("Medians of `{metric}`")),
            "{metric}: {stdout}"
        );
    }
    let left = fs::read_dir(dir.path().join("target/lab-scratch"))
        .unwrap()
        .count();
    assert_eq!(left, 0, "scratch files are left");
}
