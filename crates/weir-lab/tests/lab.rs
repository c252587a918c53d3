//! The program as a user runs it: whole runs with contenders whose true times are known, because
//! they return synthetic times.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a failed set-up is a failed test

#[path = "lab/checks.rs"]
mod checks;
#[path = "lab/quick.rs"]
mod quick;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tempfile::TempDir;
use weir_lab::child::started_by;
use weir_lab::contender::synthetic::SOCKET_FILE;
use weir_lab::rng::SplitMix64;

const BLOCKS: usize = 8;

/// A directory with `lab/experiments/t.toml`.
fn laboratory(experiment: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let experiments = dir.path().join("lab/experiments");
    fs::create_dir_all(&experiments).unwrap();
    fs::write(experiments.join("t.toml"), experiment).unwrap();
    dir
}

fn lab(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-lab"));
    command.current_dir(dir).args(words);
    command
}

fn run(dir: &Path, words: &[&str]) -> Output {
    lab(dir, words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The only result set in `dir`.
fn result_set(dir: &Path) -> PathBuf {
    let mut sets = fs::read_dir(dir.join("lab/results")).unwrap();
    let set = sets.next().unwrap().unwrap().path();
    assert!(sets.next().is_none(), "one set only");
    set
}

/// Two contenders: `slow` takes `slower` times as long as `quick`.
fn experiment(slower: f64, contenders: &str) -> String {
    let slow = 1_000_000.0 * slower;
    format!(
        r#"
[experiment]
name = "t"
title = "Test"
question = "Which is quicker?"
mode = "inproc"
samples = 3
warmup_ms = 1
foreign_max = 1.0
canary = false
pin = "none"
blocks = {BLOCKS}
[[contender]]
name = "quick"
builtin = "synthetic"
answers = "all"
params = {{ ns = 1000000, noise = 0.02, seed = 11 }}
[[contender]]
name = "slow"
builtin = "synthetic"
answers = "all"
params = {{ ns = {slow}, noise = 0.02, seed = 12 }}
{contenders}
[[workload]]
name = "w"
[[claim]]
text = "quick is quicker by a fifth"
compare = ["quick", "slow"]
expect = "lower"
max_ratio = 0.8
"#
    )
}

fn samples_of(set: &Path, block: usize) -> Vec<String> {
    let text = fs::read_to_string(set.join(format!("blocks/B{block:03}.jsonl"))).unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn a_known_difference_is_decided_both_ways() {
    for (slower, verdict, counts) in [
        (1.5, "| holds ", "holds 1, DOES NOT HOLD 0,"),
        (1.1, "| DOES NOT HOLD ", "holds 0, DOES NOT HOLD 1,"),
    ] {
        let dir = laboratory(&experiment(slower, ""));
        let out = run(dir.path(), &["run", "t", "--allow-debug"]);
        let stdout = text(&out.stdout);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        assert!(stdout.contains(verdict), "{verdict} not in {stdout}");
        assert!(stdout.contains(counts), "{counts} not in {stdout}");
        assert!(stdout.contains("No contender has a twin"), "{stdout}");
        let is_lost = verdict.contains("NOT");
        assert_eq!(stdout.contains("## Losses"), is_lost, "{stdout}");
        assert_eq!(
            stdout.contains("a fifth**: not explained"),
            is_lost,
            "{stdout}"
        );
        let report = fs::read_to_string(result_set(dir.path()).join("report.md")).unwrap();
        assert!(
            stdout.contains(&report),
            "the stored report is the printed one"
        );
    }
}

#[test]
fn a_repeated_report_is_equal_byte_for_byte() {
    let dir = laboratory(&experiment(1.5, ""));
    assert!(
        run(dir.path(), &["run", "t", "--allow-debug"])
            .status
            .success()
    );
    let set = result_set(dir.path());
    let files = ["report.md", "report.html", "figures.csv", "summary.json"];
    let before = files.map(|name| fs::read(set.join(name)).unwrap());
    for name in files {
        fs::remove_file(set.join(name)).unwrap();
    }
    let again = run(dir.path(), &["report", set.to_str().unwrap()]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!(files.map(|name| fs::read(set.join(name)).unwrap()), before);
}

#[test]
fn the_page_contains_the_report_and_refers_to_no_other_file() {
    let dir = laboratory(&experiment(1.5, ""));
    assert!(
        run(dir.path(), &["run", "t", "--allow-debug"])
            .status
            .success()
    );
    let set = result_set(dir.path());
    fs::create_dir(set.join("profiles")).unwrap();
    let flame = "<?xml version=\"1.0\"?>\n<svg id=\"flame\"></svg>\n";
    fs::write(set.join("profiles/quick-w.svg"), flame).unwrap();
    assert!(
        run(dir.path(), &["report", set.to_str().unwrap()])
            .status
            .success()
    );
    let page = fs::read_to_string(set.join("report.html")).unwrap();
    for words in [
        "<h1>Test</h1>",
        "Which is quicker?",
        "<td>holds</td>",
        "<td>less time by 1.5",
        "<h2>Medians of <code>wall</code></h2>",
        "aria-label=\"Medians of wall at w: quick ",
        "aria-label=\"quick / slow at w ",
        "w: percentiles of wall",
        "<svg id=\"flame\">",
        "href=\"data:text/csv",
        "weir-lab run t --seed 1",
    ] {
        assert!(page.contains(words), "{words} not in {page}");
    }
    for outside in ["http:", "https:", " src=", "<link", "@import", "<?xml"] {
        assert!(!page.contains(outside), "{outside}");
    }
    let csv = fs::read_to_string(set.join("figures.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + BLOCKS * 2);
    assert!(csv.starts_with("block,workload,contender,metric,figure\n1,w,quick,wall,"));
}

/// A result set of an experiment in which `slow` takes `slower` times as long.
fn measured(slower: f64) -> (TempDir, String) {
    let dir = laboratory(&experiment(slower, ""));
    let out = run(dir.path(), &["run", "t", "--allow-debug"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let set = result_set(dir.path()).to_str().unwrap().to_owned();
    (dir, set)
}

#[test]
fn only_a_slower_contender_fails_the_gate() {
    let ((here, before), (_there, after)) = (measured(1.5), measured(1.8));
    let compare = |old: &str, new: &str| run(here.path(), &["compare", old, new, "--gate"]);
    for (old, new, code, sum) in [
        (
            &before,
            &after,
            3,
            "1 REGRESSED, 0 improved, 1 equal, 0 cannot tell, 0 not comparable",
        ),
        (
            &after,
            &before,
            0,
            "0 REGRESSED, 1 improved, 1 equal, 0 cannot tell, 0 not comparable",
        ),
        (
            &before,
            &before,
            0,
            "0 REGRESSED, 0 improved, 2 equal, 0 cannot tell, 0 not comparable",
        ),
    ] {
        let out = compare(old, new);
        let message = text(&out.stdout);
        assert_eq!(
            out.status.code(),
            Some(code),
            "{message}{}",
            text(&out.stderr)
        );
        assert!(message.ends_with(&format!("{sum}\n")), "{message}");
    }
    let out = run(here.path(), &["compare", &before, &after, "--json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["rows"][0]["contender"], "slow");
    assert_eq!(json["rows"][0]["change"], "regressed");
    let ratio = json["rows"][0]["ratio"][0].as_f64().unwrap();
    assert!((1.18..1.22).contains(&ratio), "{ratio}");
}

#[test]
fn sets_of_different_machines_or_experiments_are_not_compared() {
    let ((here, before), (_there, after)) = (measured(1.5), measured(1.5));
    let file = Path::new(&after).join("fingerprint.json");
    let stored = fs::read_to_string(&file).unwrap();
    let other = stored.replacen("\"cpus\": \"", "\"cpus\": \"9", 1);
    assert_ne!(stored, other);
    fs::write(&file, other).unwrap();
    let refused = run(here.path(), &["compare", &before, &after]);
    assert_eq!(refused.status.code(), Some(2));
    let message = text(&refused.stderr);
    assert!(message.contains("the machines differ (cpus: "), "{message}");
    let across = run(here.path(), &["compare", &before, &after, "--across"]);
    assert_eq!(across.status.code(), Some(0), "{}", text(&across.stderr));
    let file = Path::new(&after).join("experiment.toml");
    let stored = fs::read_to_string(&file).unwrap();
    fs::write(&file, stored.replace("name = \"t\"", "name = \"u\"")).unwrap();
    let refused = run(here.path(), &["compare", &before, &after, "--across"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("of `t`, the other of `u`"));
}

#[test]
fn all_samples_are_exported_and_a_cell_is_shown() {
    let (dir, set) = measured(1.5);
    let csv = run(dir.path(), &["export", &set]);
    assert!(csv.status.success(), "{}", text(&csv.stderr));
    let csv = text(&csv.stdout);
    assert_eq!(csv.lines().count(), 1 + BLOCKS * 3 * 2);
    let first = csv.lines().nth(1).unwrap();
    assert!(first.starts_with("1,false,w,"), "{first}");
    let json = text(&run(dir.path(), &["export", &set, "--format", "json"]).stdout);
    assert_eq!(json.lines().count(), BLOCKS * 3 * 2);
    let first_json: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    let wall = first_json["wall_ns"].as_u64().unwrap().to_string();
    assert_eq!(first.split(',').nth(5), Some(wall.as_str()));
    let shown = run(dir.path(), &["show", &set, "--cell", "slow@w"]);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let shown = text(&shown.stdout);
    assert!(
        shown.starts_with("slow at w: wall of 24 samples"),
        "{shown}"
    );
    let bars = shown.lines().filter(|line| line.starts_with("<= "));
    let counted = bars.filter_map(|line| line.split_whitespace().nth(3)?.parse::<usize>().ok());
    assert_eq!(counted.sum::<usize>(), 24, "{shown}");
    for (cell, what) in [
        ("nobody@w", "there are quick@w, slow@w"),
        ("slow@w:syncs", "`syncs`"),
    ] {
        let out = run(dir.path(), &["show", &set, "--cell", cell]);
        assert_eq!(out.status.code(), Some(2), "{cell}");
        assert!(text(&out.stderr).contains(what), "{}", text(&out.stderr));
    }
}

#[test]
fn a_wrong_answer_stops_before_anything_is_timed() {
    let wrong = "[[contender]]\nname = \"incorrect\"\nbuiltin = \"wrong\"\nanswers = \"all\"\nparams = { ns = 5, seed = 1 }\n";
    let dir = laboratory(&experiment(1.5, wrong));
    let out = run(dir.path(), &["run", "t", "--allow-debug"]);
    assert_eq!(out.status.code(), Some(5));
    let message = text(&out.stderr);
    assert!(
        message.contains("`incorrect`") && message.contains("nothing was timed"),
        "{message}"
    );
    assert!(!dir.path().join("lab/results").exists());
}

#[test]
fn a_missing_contender_is_reported_as_left_out() {
    let absent = "[[contender]]\nname = \"foreign\"\ncommand = [\"{peers}/foreign\"]\nneeds = \"a compiler of Foreign\"\n";
    let claim = "[[claim]]\ntext = \"quick is quicker than foreign\"\ncompare = [\"quick\", \"foreign\"]\nexpect = \"lower\"\nmax_ratio = 1.0\n";
    let dir = laboratory(&(experiment(1.5, absent) + claim));
    let out = run(dir.path(), &["run", "t", "--allow-debug"]);
    let report = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    for words in [
        "LEFT OUT: foreign",
        "## Gaps",
        "It needs a compiler of Foreign.",
    ] {
        assert!(report.contains(words), "{words} not in {report}");
    }
    let row = report
        .lines()
        .find(|line| line.contains("than foreign"))
        .unwrap();
    assert!(row.contains("| not measured |"), "{row}");
    // The limit of a ratio is a ratio, even without a figure.
    assert!(row.contains("| <= 1.00x "), "{row}");
    // A contender that is named explicitly is an error if it is missing.
    let out = run(
        dir.path(),
        &["run", "t", "--allow-debug", "--only", "foreign"],
    );
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("lab/peers/install.sh"));
}

#[test]
fn a_run_without_an_optional_contender_can_be_recorded() {
    for (line, code) in [("optional = true\n", 0), ("", 2)] {
        let absent = "[[contender]]\nname = \"foreign\"\ncommand = [\"{peers}/foreign\"]\nneeds = \"a compiler of Foreign\"\n";
        let dir = laboratory(&experiment(1.5, &(absent.to_owned() + line)));
        let out = run(dir.path(), &["run", "t", "--allow-debug"]);
        assert!(text(&out.stdout).contains("LEFT OUT: foreign"));
        let set = result_set(dir.path());
        let record = ["record", set.to_str().unwrap(), "lab/record/t"];
        let out = run(dir.path(), &record);
        assert_eq!(out.status.code(), Some(code), "{}", text(&out.stderr));
    }
}

#[test]
fn an_unoptimised_contender_is_refused() {
    let script = r"printf 'hello\t1\tprofile=debug\n'; cat";
    let slow_build =
        format!("[[contender]]\nname = \"d\"\ncommand = [\"/bin/sh\", \"-c\", '''{script}''']\n");
    let plain = experiment(1.5, &slow_build);
    let dir = laboratory(&plain);
    let out = run(dir.path(), &["run", "t", "--only", "d"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stderr).contains("built as `debug`"),
        "{}",
        text(&out.stderr)
    );
}

/// Starts a run and reads its output up to the end of block `blocks`.
fn start_until(dir: &Path, blocks: usize) -> std::process::Child {
    let mut child = lab(dir, &["run", "t", "--allow-debug"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let wanted = format!("block {blocks} of ");
    lines
        .find(|line| line.as_ref().is_ok_and(|line| line.starts_with(&wanted)))
        .unwrap()
        .unwrap();
    // Continues to read, so that a closed pipe does not end the run.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

fn send(child: &std::process::Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn a_killed_run_resumes_after_its_last_block() {
    let whole = laboratory(&experiment(1.5, ""));
    assert!(
        run(whole.path(), &["run", "t", "--allow-debug"])
            .status
            .success()
    );
    let dir = laboratory(&experiment(1.5, ""));
    let mut child = start_until(dir.path(), 2);
    send(&child, Signal::KILL);
    child.wait().unwrap();
    let set = result_set(dir.path());
    let first = fs::metadata(set.join("blocks/B000.jsonl")).unwrap().ino();
    // The state after a crash in the middle of writing a block.
    fs::write(set.join("blocks/B007.part"), "{\"schema\":1,\"blo").unwrap();
    let resumed = run(
        dir.path(),
        &["run", "--allow-debug", "--resume", set.to_str().unwrap()],
    );
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    let now = fs::metadata(set.join("blocks/B000.jsonl")).unwrap().ino();
    assert_eq!(now, first, "a complete block is not measured again");
    let uninterrupted = result_set(whole.path());
    for block in 0..BLOCKS {
        assert_eq!(
            samples_of(&set, block),
            samples_of(&uninterrupted, block),
            "block {block}"
        );
    }
}

/// Waits up to `limit` for process `child` to end. Returns whether it ended.
fn ends_within(child: &std::process::Child, limit: Duration) -> bool {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let handle = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let mut ended = [PollFd::new(&handle, PollFlags::IN)];
    poll(&mut ended, Some(&Timespec::try_from(limit).unwrap())).unwrap() == 1
}

/// Number of kills in [`a_run_killed_at_any_moment_can_be_resumed`]: `WEIR_LAB_KILLS`, or 20.
fn kills() -> u64 {
    let kills = std::env::var("WEIR_LAB_KILLS").ok();
    kills.map_or(20, |kills| kills.parse().unwrap())
}

/// Waits until no process that lab `lab` started runs, and checks that their sockets in the
/// laboratory `dir` are closed.
fn assert_nothing_is_left(lab: u32, dir: &Path) {
    while let Some(process) = started_by(lab).next() {
        // A process that has ended meanwhile has no handle.
        let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else {
            continue;
        };
        assert!(ends(&handle), "a process is left");
    }
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table
        .lines()
        .filter_map(|line| line.split_whitespace().nth(9));
    let open: Vec<&str> = rows.collect();
    let scratch = fs::read_dir(dir.join("target/lab-scratch"));
    for entry in scratch.into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if name.starts_with(SOCKET_FILE) {
            let number = fs::read_to_string(&path).unwrap();
            assert!(
                !open.contains(&number.as_str()),
                "port of socket {number} is left"
            );
            fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn a_run_killed_at_any_moment_can_be_resumed() {
    let text = experiment(1.5, "").replace("seed = 11", "seed = 11, listen = true");
    let whole = laboratory(&text);
    let began = Instant::now();
    assert!(
        run(whole.path(), &["run", "t", "--allow-debug"])
            .status
            .success()
    );
    let whole_run = u64::try_from(began.elapsed().as_micros()).unwrap();
    let uninterrupted = result_set(whole.path());
    let mut rng = SplitMix64::new(7);
    let mut dir = laboratory(&text);
    for kill in 0..=kills() {
        // A set without a plan cannot be resumed.
        let sets = fs::read_dir(dir.path().join("lab/results"));
        let sets = sets.into_iter().flatten().map(|set| set.unwrap().path());
        let set = sets.into_iter().find(|set| set.join("plan.json").exists());
        let mut words = vec!["run", "--allow-debug"];
        match &set {
            Some(set) => words.extend(["--resume", set.to_str().unwrap()]),
            None => words.push("t"),
        }
        let mut command = lab(dir.path(), &words);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let moment = Duration::from_micros(rng.next_u64() % whole_run);
        if kill < kills() && !ends_within(&child, moment) {
            send(&child, Signal::KILL);
            child.wait().unwrap();
            assert_nothing_is_left(child.id(), dir.path());
            continue;
        }
        assert!(child.wait().unwrap().success(), "after {kill} kills");
        let Some(set) = set else { continue };
        for block in 0..BLOCKS {
            let expected = samples_of(&uninterrupted, block);
            assert_eq!(samples_of(&set, block), expected, "block {block}");
        }
        assert!(set.join("report.md").exists());
        dir = laboratory(&text);
    }
}

/// Starts a lab whose contender reads nothing. Returns it with the handle of the contender.
fn start_unresponsive(mode: &str) -> (TempDir, std::process::Child, OwnedFd) {
    let script = "echo $$ > {root}/new; mv {root}/new {root}/pid; exec sleep 600";
    let contender = format!(
        "[[contender]]\nname = \"unresponsive\"\ncommand = [\"/bin/sh\", \"-c\", \"{script}\"]\n"
    );
    let text = experiment(1.5, &contender).replace("\"inproc\"", &format!("\"{mode}\""));
    let dir = laboratory(&text.replace("samples = 3", "samples = 3\ntimeout_s = 100000"));
    let words = ["run", "t", "--allow-debug", "--only", "unresponsive"];
    let mut child = lab(dir.path(), &words).spawn().unwrap();
    let pid = loop {
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        if let Ok(pid) = fs::read_to_string(dir.path().join("pid")) {
            break Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        }
        std::thread::yield_now();
    };
    let contender = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    (dir, child, contender)
}

/// Whether the process of `handle` ends within a minute.
fn ends(handle: &OwnedFd) -> bool {
    // The handle of a process becomes readable when the process ends.
    let mut ended = [PollFd::new(handle, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    poll(&mut ended, Some(&limit)).unwrap() == 1
}

#[test]
fn no_contender_outlives_a_killed_lab() {
    for mode in ["inproc", "process"] {
        let (_dir, mut child, contender) = start_unresponsive(mode);
        send(&child, Signal::KILL);
        child.wait().unwrap();
        assert!(ends(&contender), "{mode}");
    }
}

#[test]
fn a_second_interrupt_ends_a_lab_that_waits_for_a_contender() {
    for mode in ["inproc", "process"] {
        let (_dir, mut child, contender) = start_unresponsive(mode);
        // Two signals that arrive together count as one.
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            send(&child, Signal::INT);
            std::thread::yield_now();
        };
        assert_eq!(status.code(), Some(130), "{mode}");
        assert!(ends(&contender), "{mode}");
    }
}

#[test]
fn an_interrupted_run_reports_its_complete_blocks() {
    let dir = laboratory(&experiment(1.5, "").replace("blocks = 8", "blocks = 500"));
    let mut child = start_until(dir.path(), 1);
    send(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let set = result_set(dir.path());
    let report = fs::read_to_string(set.join("report.md")).unwrap();
    assert!(report.contains(" of 500 planned"), "{report}");
}

#[test]
fn a_budget_ends_a_run_after_a_whole_block() {
    let dir = laboratory(&experiment(1.5, ""));
    let out = run(
        dir.path(),
        &["run", "t", "--allow-debug", "--budget", "1ms"],
    );
    let stdout = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(
        row(&stdout, "block 1 of 8 done").ends_with(" left"),
        "{stdout}"
    );
    assert!(row(&stdout, "the budget").contains(" 1 of 8 blocks are measured"));
    let set = result_set(dir.path());
    assert_eq!(samples_of(&set, 0).len(), 6);
    assert!(!set.join("blocks/B001.jsonl").exists());
    let set = set.to_str().unwrap();
    let rest = ["run", "--allow-debug", "--resume", set, "--budget", "1h"];
    let out = run(dir.path(), &rest);
    let stdout = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(!row(&stdout, "block 8 of 8").contains("left"), "{stdout}");
    assert!(!stdout.contains("the budget"), "{stdout}");
    let wrong = run(dir.path(), &["run", "t", "--budget", "10"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn an_interrupt_before_the_first_block_ends_the_check() {
    // The script interrupts the lab during the check.
    let (dir, out) = run_beside("interrupting", "[ $word = check ] && kill -INT $PPID");
    assert_eq!(out.status.code(), Some(130), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("no block was measured"));
    assert!(!dir.path().join("lab/results").exists());
}

#[test]
fn each_row_states_whether_its_load_is_open_or_closed() {
    let open = "[[workload]]\nname = \"at-{size}\"\nsizes = [5, 50]\nload = \"open\"\n";
    let dir = laboratory(&experiment(1.5, open));
    let out = run(dir.path(), &["run", "t", "--allow-debug"]);
    let report = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let figures = report.split("## Figures").nth(1).unwrap();
    for (workload, words) in [("w", "closed"), ("at-5", "open"), ("at-50", "open")] {
        let rows = figures.lines().map(|line| line.split('|').map(str::trim));
        let rows = rows.filter(|row| row.clone().nth(1) == Some(workload));
        let loops: Vec<_> = rows.filter_map(|mut row| row.nth(2)).collect();
        assert_eq!(loops, [words, words], "{workload}: {figures}");
    }
    // Workloads with a fixed rate declare an open load.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/experiments");
    for entry in fs::read_dir(root).unwrap() {
        let file = fs::read_to_string(entry.unwrap().path()).unwrap();
        let sections = file.split("[[workload]]").skip(1);
        for section in sections.filter(|section| section.contains("name = \"open-")) {
            assert!(section.contains("load = \"open\""), "{section}");
        }
    }
}

#[test]
fn an_alias_runs_each_of_its_experiments() {
    let aliased = |name: &str, command: &str| {
        let header = format!("name = \"{name}\"\nalias = \"study\"");
        let text = processes("hello", "hello").replacen("name = \"t\"", &header, 1);
        text.replace("/bin/echo", command)
    };
    let dir = laboratory(&aliased("a", "/bin/false"));
    let other = dir.path().join("lab/experiments/u.toml");
    fs::write(other, aliased("b", "/bin/echo")).unwrap();
    let out = run(dir.path(), &["run", "study", "--blocks", "6"]);
    let stdout = text(&out.stdout);
    // The first contender cannot be measured; the second can.
    assert_eq!(out.status.code(), Some(1), "{stdout}");
    assert!(stdout.contains("t.toml: contender `one`"), "{stdout}");
    assert!(stdout.contains("| holds "), "{stdout}");
    let named = |set: &Path| set.to_string_lossy().contains("-b-");
    assert!(named(&result_set(dir.path())));
    let checked = run(dir.path(), &["check", "study"]);
    assert_eq!(checked.status.code(), Some(2));
    assert!(text(&checked.stderr).contains("several experiments"));
}

#[test]
fn a_run_is_not_resumed_after_its_parts_changed() {
    let dir = laboratory(&experiment(1.5, ""));
    assert!(
        run(dir.path(), &["run", "t", "--allow-debug"])
            .status
            .success()
    );
    let set = result_set(dir.path());
    let plan = fs::read_to_string(set.join("plan.json")).unwrap();
    let start = plan.find("\"fingerprint\": \"").unwrap() + 16;
    let other = format!("{}00000000{}", &plan[..start], &plan[start + 8..]);
    fs::write(set.join("plan.json"), other).unwrap();
    let out = run(
        dir.path(),
        &["run", "--allow-debug", "--resume", set.to_str().unwrap()],
    );
    assert_eq!(out.status.code(), Some(2));
    assert!(
        text(&out.stderr).contains("changed since"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn a_result_set_contains_no_path_or_host_name() {
    let dir = laboratory(&experiment(1.5, ""));
    assert!(
        run(dir.path(), &["run", "t", "--allow-debug"])
            .status
            .success()
    );
    let set = result_set(dir.path());
    for file in ["fingerprint.json", "plan.json", "summary.json", "report.md"] {
        let stored = fs::read_to_string(set.join(file)).unwrap();
        assert!(
            !stored.contains(dir.path().to_str().unwrap()),
            "{file} holds a path"
        );
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let named = stored
            .split(|c: char| !c.is_alphanumeric())
            .any(|word| word == host.trim());
        assert!(
            !named || host.trim().len() < 4,
            "{file} holds the host name"
        );
    }
}

fn processes(first: &str, second: &str) -> String {
    format!(
        r#"
[experiment]
name = "t"
title = "Test"
question = "?"
mode = "process"
samples = 2
foreign_max = 1.0
canary = false
show = ["wall", "cpu", "max_rss"]
[[contender]]
name = "one"
command = ["/bin/echo", "{first}"]
answers = "all"
[[contender]]
name = "other"
command = ["/bin/echo", "{second}"]
answers = "all"
[[workload]]
name = "w"
params = {{ word = "hello" }}
[[claim]]
text = "echo stays small"
compare = ["one"]
metric = "max_rss"
expect = "lower"
max_value = 100000000
"#
    )
}

#[test]
fn whole_processes_are_measured_and_compared() {
    let dir = laboratory(&processes("hello", "{word}"));
    let out = run(dir.path(), &["run", "t", "--blocks", "6"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let stdout = text(&out.stdout);
    assert!(
        stdout.contains("Medians of `max_rss`") && stdout.contains("| holds "),
        "{stdout}"
    );
    let dir = laboratory(&processes("hello", "hallo"));
    assert_eq!(run(dir.path(), &["run", "t"]).status.code(), Some(5));
}

#[test]
fn a_guarded_server_ends_when_its_starter_is_killed() {
    // The starter reports the process id of the server, and waits for the server.
    let script = "\"$1\" guard $$ -- sleep 600 & echo $!; wait";
    let mut starter = Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_weir-lab")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let output = starter.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    let server = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
    let handle = pidfd_open(server, PidfdFlags::empty()).unwrap();
    let name = || fs::read_to_string(format!("/proc/{}/comm", line.trim())).unwrap();
    while name().trim() != "sleep" {
        assert!(starter.try_wait().unwrap().is_none(), "it ended early");
        std::thread::yield_now();
    }
    starter.kill().unwrap();
    starter.wait().unwrap();
    assert!(ends(&handle), "it still runs");
}

#[test]
fn a_profile_without_perf_is_an_error() {
    let dir = laboratory(&experiment(1.5, ""));
    let mut profile = lab(dir.path(), &["profile", "t", "--allow-debug"]);
    let out = profile.env("PATH", dir.path()).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let message = text(&out.stderr);
    assert!(
        message.contains("there is no `perf` on this machine"),
        "{message}"
    );
    assert!(!dir.path().join("lab/results").exists());
}

#[test]
fn a_profile_is_added_only_to_a_set_of_its_experiment() {
    let text_of = experiment(1.5, "");
    let dir = laboratory(&text_of);
    assert!(
        run(dir.path(), &["run", "t", "--allow-debug"])
            .status
            .success()
    );
    let set = result_set(dir.path());
    let other = text_of.replacen("name = \"t\"", "name = \"u\"", 1);
    fs::write(dir.path().join("lab/experiments/u.toml"), other).unwrap();
    for (into, message) in [
        (set.as_path(), "is a result set of `t`"),
        (dir.path(), "is not a result set"),
    ] {
        let into = into.to_str().unwrap();
        let words = ["profile", "u", "--allow-debug", "--into", into];
        let refused = run(dir.path(), &words);
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(text(&refused.stderr).contains(message), "{message}");
    }
}

#[test]
fn a_record_holds_every_sample_compressed() {
    let dir = laboratory(&experiment(1.5, ""));
    assert!(
        run(dir.path(), &["run", "t", "--allow-debug"])
            .status
            .success()
    );
    let set = result_set(dir.path());
    fs::create_dir(set.join("profiles")).unwrap();
    fs::write(set.join("profiles/quick-w.svg"), "<svg id=\"flame\"></svg>").unwrap();
    let out = run(
        dir.path(),
        &["record", set.to_str().unwrap(), "lab/record/t"],
    );
    assert!(out.status.success(), "{}", text(&out.stderr));
    let packed = fs::File::open(dir.path().join("lab/record/t/samples.tsv.gz")).unwrap();
    let lines = BufReader::new(flate2::read::GzDecoder::new(packed))
        .lines()
        .count();
    assert_eq!(lines, 1 + BLOCKS * 3 * 2);
    // The report follows from the record alone.
    let record = dir.path().join("lab/record/t");
    for name in ["report.md", "report.html", "figures.csv", "summary.json"] {
        fs::remove_file(record.join(name)).unwrap();
    }
    let again = run(dir.path(), &["report", "lab/record/t"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    for name in ["report.md", "report.html", "figures.csv", "summary.json"] {
        let stored = fs::read(set.join(name)).unwrap();
        assert_eq!(fs::read(record.join(name)).unwrap(), stored, "{name}");
    }
    // A record of an older lab can be compared; its report would lack the state of the machine.
    fs::remove_file(record.join("blocks.jsonl")).unwrap();
    let compared = run(
        dir.path(),
        &["compare", set.to_str().unwrap(), "lab/record/t"],
    );
    let sum = "0 REGRESSED, 0 improved, 2 equal, ";
    assert!(
        text(&compared.stdout).contains(sum),
        "{}",
        text(&compared.stderr)
    );
    let refused = run(dir.path(), &["report", "lab/record/t"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("without blocks.jsonl"));
}

/// A contender as a shell script, which fails at the moments that `faults` names.
fn script(dir: &Path, name: &str, faults: &str) -> String {
    let text = format!(
        r#"printf 'hello\t1\tprofile=optimised\n'
while read -r word rest; do
    state=''
    case $word in
        load) fields=$rest; answer=ok ;;
        check) answer='answer\t0000000000000000\t1\t0\t0' ;;
        run) n=${{rest##*	}}; answer="time\t1000000\t1000000\t$(printf %x "$n")" ;;
        *) exit 0 ;;
    esac
    {faults}
    printf "$answer\n"
done
"#
    );
    fs::write(dir.join(name), text).unwrap();
    format!(
        "[[contender]]\nname = \"{name}\"\ncommand = [\"/bin/sh\", \"{{root}}/{name}\"]\nanswers = \"all\"\n"
    )
}

/// Runs the experiment of [`experiment`] with another contender, a script that answers.
fn run_beside(name: &str, faults: &str) -> (TempDir, Output) {
    run_beside_within(name, faults, 100)
}

/// Like `run_beside`, with a time limit for each answer.
fn run_beside_within(name: &str, faults: &str, seconds: u32) -> (TempDir, Output) {
    let dir = tempfile::tempdir().unwrap();
    let contender = script(dir.path(), name, faults);
    let experiments = dir.path().join("lab/experiments");
    fs::create_dir_all(&experiments).unwrap();
    let claim = format!(
        "[[claim]]\ntext = \"quick beside {name}\"\ncompare = [\"quick\", \"{name}\"]\nexpect = \"lower\"\nmax_ratio = 2.0\n"
    );
    let text = experiment(1.5, &contender) + &claim;
    let limit = format!("samples = 3\ntimeout_s = {seconds}");
    let text = text.replace("samples = 3", &limit);
    fs::write(experiments.join("t.toml"), text).unwrap();
    let out = run(dir.path(), &["run", "t", "--allow-debug"]);
    (dir, out)
}

fn row<'a>(report: &'a str, words: &str) -> &'a str {
    let found = report.lines().find(|line| line.contains(words));
    found.unwrap_or_else(|| panic!("{words} not in {report}"))
}

#[test]
fn a_script_without_faults_is_measured() {
    let (_dir, out) = run_beside("script", "");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(row(&text(&out.stdout), "quick beside script").contains("| 8   |"));
}

#[test]
fn a_slow_first_execution_does_not_shorten_the_batches() {
    // An iteration takes 1 us, except in the first batch of the process, which takes 1 ms.
    let times = r#"if [ $word = run ]; then
        [ -n "$warm" ] && ns=$((n * 1000)) || ns=1000000
        warm=yes
        answer="time\t$ns\t$ns\t$(printf %x "$n")"
    fi"#;
    let (dir, out) = run_beside("cold", times);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let plan = fs::read_to_string(result_set(dir.path()).join("plan.json")).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let mut cells = plan["cells"].as_array().unwrap().iter();
    let cold = cells.find(|cell| cell["contender"] == "cold").unwrap();
    // The shortest batch takes 200 us.
    assert_eq!(cold["iterations"], 256);
}

#[test]
fn a_contender_that_fails_the_check_does_not_stop_the_others() {
    for (name, faults, what) in [
        (
            "refuses",
            r"[ $word = check ] && answer='error\tno port'",
            "no port",
        ),
        (
            "exits",
            "[ $word = check ] && exit 3",
            "ended: exit status: 3",
        ),
        (
            "hangs",
            "[ $word = load ] && read -r word",
            "no answer within 2 s",
        ),
        ("silent", "exit 0", "ended: exit status: 0"),
    ] {
        let seconds = if name == "hangs" { 2 } else { 100 };
        let (dir, out) = run_beside_within(name, faults, seconds);
        let (report, message) = (text(&out.stdout), text(&out.stderr));
        assert_eq!(out.status.code(), Some(1), "{name}: {message}");
        assert!(message.contains(&format!("{name} failed")), "{message}");
        let failed = row(&report, &format!("| {name} "));
        assert!(
            failed.contains("| check |") && failed.contains(what),
            "{failed}"
        );
        assert!(row(&report, "quick is quicker").contains("| holds "));
        assert!(row(&report, &format!("quick beside {name}")).contains("not measured"));
        // An incomplete set cannot be recorded.
        let set = result_set(dir.path());
        let record = ["record", set.to_str().unwrap(), "lab/record/t"];
        let refused = run(dir.path(), &record);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(&format!("{name} failed")));
        assert!(!dir.path().join("lab/record").exists());
    }
}

#[test]
fn a_contender_that_fails_twice_is_not_started_again() {
    let faults = r"case $word$fields in run*block=[2-9]*) answer='error\tlost its disk' ;; esac";
    let (dir, out) = run_beside("failing", faults);
    let report = text(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    let failures = report
        .lines()
        .filter(|line| line.starts_with("| failing ") && line.contains("lost its disk"));
    let blocks: Vec<&str> = failures.filter_map(|line| line.split('|').nth(2)).collect();
    let blocks: Vec<&str> = blocks.iter().map(|block| block.trim()).collect();
    assert_eq!(blocks, ["3", "4"], "{report}");
    // Two blocks are complete: too few to decide. No incomplete block is among them.
    let claim = row(&report, "quick beside failing");
    assert!(
        claim.contains("| 2   |") && claim.contains("cannot tell"),
        "{claim}"
    );
    assert!(row(&report, "quick is quicker").contains("| 8   |"));
    let set = result_set(dir.path());
    assert_eq!(samples_of(&set, 1).len(), 9);
    assert_eq!(samples_of(&set, 2).len(), 6);
    let record = ["record", set.to_str().unwrap(), "lab/record/t"];
    let refused = run(dir.path(), &record);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("failing failed"));
}

#[test]
fn a_contender_that_fails_once_is_recorded_with_its_failure() {
    let faults = r"case $word$fields in run*block=4*) answer='error\tlost its disk' ;; esac";
    let (dir, out) = run_beside("failing", faults);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    let set = result_set(dir.path());
    let record = ["record", set.to_str().unwrap(), "lab/record/t"];
    let recorded = run(dir.path(), &record);
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let report = fs::read_to_string(dir.path().join("lab/record/t/report.md")).unwrap();
    let failure = row(&report, "lost its disk");
    assert!(failure.starts_with("| failing "), "{failure}");
    assert!(row(&report, "quick beside failing").contains("| 7   |"));
    assert!(row(&report, "quick is quicker").contains("| 8   |"));
}

#[test]
fn an_incomplete_set_cannot_be_recorded() {
    for (words, what) in [
        (&["--quick"][..], "quick run"),
        (&["--only", "quick"], "it ran quick only"),
    ] {
        let dir = laboratory(&experiment(1.5, ""));
        let run_words = [&["run", "t", "--allow-debug"], words].concat();
        assert!(run(dir.path(), &run_words).status.success());
        let set = result_set(dir.path());
        let record = ["record", set.to_str().unwrap(), "lab/record/t"];
        let refused = run(dir.path(), &record);
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        let message = text(&refused.stderr);
        assert!(message.contains(what), "{message}");
    }
}

#[test]
fn a_set_with_a_claim_without_figures_cannot_be_recorded() {
    let claim = "[[claim]]\ntext = \"quick does fewer syncs\"\ncompare = [\"quick\", \"slow\"]\nmetric = \"syncs\"\nexpect = \"lower\"\nmax_ratio = 1.0\n";
    let dir = laboratory(&(experiment(1.5, "") + claim));
    let out = run(dir.path(), &["run", "t", "--allow-debug"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let report = text(&out.stdout);
    assert!(row(&report, "fewer syncs").contains("| not measured |"));
    let set = result_set(dir.path());
    let record = ["record", set.to_str().unwrap(), "lab/record/t"];
    let refused = run(dir.path(), &record);
    assert_eq!(refused.status.code(), Some(2));
    let message = text(&refused.stderr);
    let words = "nothing was measured for the claim `quick does fewer syncs`";
    assert!(message.contains(words), "{message}");
    assert!(!dir.path().join("lab/record").exists());
}

#[test]
fn an_invalid_command_line_exits_with_2() {
    let dir = laboratory(&experiment(1.5, ""));
    for words in [
        &["run", "nothing"][..],
        &["run", "t", "--only", "nobody"],
        &["run"],
        &["report", "lab"],
        &["run", "t", "--blocks", "0"],
    ] {
        assert_eq!(run(dir.path(), words).status.code(), Some(2), "{words:?}");
    }
    fs::write(
        dir.path().join("lab/experiments/bad.toml"),
        "[experiment]\nnaem = 1\n",
    )
    .unwrap();
    let out = run(dir.path(), &["list"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("naem"), "{}", text(&out.stderr));
}

#[test]
fn peers_lists_the_groups_that_an_experiment_needs() {
    let peers = |words: &[&str]| text(&run(Path::new("."), words).stdout);
    assert_eq!(peers(&["peers", "store-write"]), "libraries\n");
    assert_eq!(peers(&["peers", "ffi-pipeline"]), "json\nbindings\n");
    assert_eq!(peers(&["peers", "store-open"]), "");
    assert_eq!(peers(&["peers", "jiroscope"]), "emacs\n");
    let all = "libraries\nbrokers\nstores\nhttp\njson\ncodec\nbindings\nemacs\n";
    assert_eq!(peers(&["peers"]), all);
    // The error for a missing program of the peers names the group that builds it.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/experiments");
    for entry in fs::read_dir(root).unwrap() {
        let file = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert_eq!(
            file.contains("\"{peers}/"),
            file.contains("\npeers = ["),
            "{file}"
        );
    }
}

#[test]
fn the_guide_lists_every_experiment() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = fs::read_to_string(root.join("docs/guide/lab.md")).unwrap();
    for entry in fs::read_dir(root.join("lab/experiments")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(guide.contains(&format!("\n| `{name}` |")), "{name}");
    }
}
