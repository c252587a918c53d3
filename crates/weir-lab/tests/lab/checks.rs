//! The checks of figures in a report, the method's own checks, and exit code 4.

use std::io::Write;

use weir_lab::canary::Canary;
use weir_lab::child::{command, end_group, spawn_on};
use weir_lab::machine::allowed_cpus;

use super::*;

/// Runs `experiment`, which must succeed, and returns its report.
fn report_of(experiment: &str) -> String {
    let dir = laboratory(experiment);
    let out = run(dir.path(), &["run", "t", "--allow-debug"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    text(&out.stdout)
}

/// A section of a report.
fn section<'a>(report: &'a str, heading: &str) -> &'a str {
    let heading = format!("## {heading}\n");
    let (_, rest) = report
        .split_once(&heading)
        .unwrap_or_else(|| panic!("{heading} not in {report}"));
    rest.split("\n## ").next().unwrap()
}

/// The words of a row of a table.
fn words(row: &str) -> Vec<&str> {
    row.split('|').map(str::trim).collect()
}

/// A contender that reports `metrics` at 1 ms for each iteration.
fn served(name: &str, metrics: &str) -> String {
    format!(
        "[[contender]]\nname = \"{name}\"\nbuiltin = \"synthetic\"\nparams = {{ ns = 1000000, seed = 3, reports = \"{metrics}\" }}\n"
    )
}

#[test]
fn a_row_with_more_cpu_time_than_the_machine_has_is_not_printed() {
    let cpus = 2 * allowed_cpus().len();
    let impossible = format!(
        "[[contender]]\nname = \"impossible\"\nbuiltin = \"synthetic\"\nparams = {{ ns = 5000000, seed = 3, cpus = {cpus} }}\n"
    );
    let claim = "[[claim]]\ntext = \"quick beats the impossible\"\ncompare = [\"quick\", \"impossible\"]\nexpect = \"lower\"\nmax_ratio = 1.0\n";
    let file = experiment(1.5, &impossible).replace(
        "canary = false",
        "canary = false\nshow = [\"wall\", \"cpu\"]",
    ) + claim;
    let dir = laboratory(&file);
    let out = run(dir.path(), &["run", "t", "--allow-debug"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let report = text(&out.stdout);
    let rows = section(&report, "Impossible rows");
    let rows = rows
        .lines()
        .filter(|line| line.starts_with("| impossible "));
    assert_eq!(rows.count(), BLOCKS, "{report}");
    for heading in ["Figures", "Medians of `wall`", "Medians of `cpu`"] {
        assert!(
            !section(&report, heading).contains("impossible"),
            "{report}"
        );
    }
    let claim = row(section(&report, "Claims"), "quick beats the impossible");
    assert!(claim.contains("| not measured |"), "{claim}");
    let set = result_set(dir.path());
    let csv = fs::read_to_string(set.join("figures.csv")).unwrap();
    assert!(!csv.contains(",impossible,"), "{csv}");
    // A set of an older lab has no number of CPUs.
    let path = set.join("plan.json");
    let mut plan: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    plan.as_object_mut().unwrap().remove("cpus").unwrap();
    fs::write(&path, plan.to_string()).unwrap();
    let out = run(dir.path(), &["report", set.to_str().unwrap()]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(section(&text(&out.stdout), "Figures").contains("| impossible "));
}

#[test]
fn a_rate_and_the_cpu_time_of_a_request_are_checked_too() {
    let cpus = allowed_cpus().len();
    // A request takes 1 ms of CPU, so the rate cannot be above 1,000 for each CPU.
    let metrics = format!("rate={},server_us=1000", 1_500 * cpus);
    let file = experiment(1.5, &served("server", &metrics));
    let report = report_of(&file.replace("canary = false", "canary = false\nshow = [\"rate\"]"));
    assert!(
        section(&report, "Impossible rows").contains("| server "),
        "{report}"
    );
}

#[test]
fn a_row_whose_client_was_the_limit_has_a_bound() {
    let contenders = served("sink", "client_share=0.99,rate=50000,server_us=2,p50_us=20")
        + &served("busy-server", "client_share=0.99,rate=50000,server_us=19.9")
        + &served("idle-client", "client_share=0.5,rate=50000,server_us=2");
    let open = "[[workload]]\nname = \"at-a-rate\"\nload = \"open\"\n";
    let file = experiment(1.5, &(contenders + open));
    let report = report_of(&file.replace(
        "canary = false",
        "canary = false\nshow = [\"rate\", \"wall\"]",
    ));
    let figures = section(&report, "Figures");
    let median = |workload: &str, contender: &str, metric: &str| {
        let mut rows = figures.lines().map(words);
        let found = rows.find(|row| {
            row.get(1) == Some(&workload)
                && row.get(3) == Some(&contender)
                && row.get(4) == Some(&metric)
        });
        (*found.unwrap().get(5).unwrap()).to_owned()
    };
    assert_eq!(median("w", "sink", "rate"), ">= 50000");
    assert_eq!(median("w", "sink", "wall"), "<= 1.00 ms");
    for (workload, contender) in [
        ("w", "busy-server"),
        ("w", "idle-client"),
        ("at-a-rate", "sink"),
    ] {
        assert_eq!(median(workload, contender, "rate"), "50000", "{contender}");
    }
    let medians = section(&report, "Medians of `rate`");
    assert!(
        medians.contains("the load client was the limit"),
        "{medians}"
    );
}

#[test]
fn a_latency_that_is_the_length_of_the_queue_is_called_so() {
    // 100 connections at 50,000 requests a second: 2,000 us.
    let contenders =
        served("queueing", "rate=50000,p50_us=1900") + &served("serving", "rate=50000,p50_us=1500");
    let file = experiment(1.5, &contenders);
    let file = file.replacen(
        "name = \"w\"\n",
        "name = \"w\"\nparams = { connections = 100 }\n",
        1,
    );
    let report = report_of(&file);
    let queues = section(&report, "Queues");
    let expected = [
        "",
        "w",
        "queueing",
        "100",
        "2000 us",
        "1900 us",
        "queueing, not service",
        "",
    ];
    assert_eq!(words(row(queues, "| queueing ")), expected);
    assert_eq!(words(row(queues, "| serving ")).get(6), Some(&""));
}

#[test]
fn a_figure_that_rises_over_the_blocks_is_reported() {
    // The contender takes 5 % longer in each block.
    let faults = r"case $fields in *block=*) block=${fields#*block=}; block=${block%%[!0-9]*} ;; esac
    [ $word = run ] && answer=$(printf 'time\\t%d\\t%d\\t%x' $((1000000 + 50000 * block)) 1000 $n)";
    let (_dir, out) = run_beside("rising", faults);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let report = text(&out.stdout);
    let drift = section(&report, "Drift");
    let found = row(drift, "rising@w:wall: +");
    assert!(
        found.contains(" % from the first block to the last (p 0.0"),
        "{found}"
    );
    assert!(!drift.contains("quick@w"), "{drift}");
}

#[test]
fn equal_contenders_are_compared_and_false_alarms_are_counted() {
    let claims = |contender: &str| {
        let claim = |direction: &str| {
            format!(
                "[[claim]]\ntext = \"{direction}\"\ncompare = [\"copy\", \"{contender}\"]\nexpect = \"{direction}\"\nmin_effect = 0.01\nequal = true\n"
            )
        };
        claim("lower") + &claim("higher")
    };
    let copy = "[[contender]]\nname = \"copy\"\nbuiltin = \"synthetic\"\nparams = { ns = 1000000, noise = 0.001, seed = 31 }\n[[contender]]\nname = \"original\"\nbuiltin = \"synthetic\"\nparams = { ns = 1000000, noise = 0.001, seed = 32 }\n";
    for (contender, sentence) in [
        (
            "original",
            "False alarms: 0 of 1 comparisons of a contender with a copy of itself found a difference (0.0 %; at most 5 %, as required).",
        ),
        (
            "slow",
            "False alarms: 1 of 1 comparisons of a contender with a copy of itself found a difference (100.0 %; MORE THAN 5 %).",
        ),
    ] {
        let report = report_of(&(experiment(1.5, copy) + &claims(contender)));
        assert!(report.contains(sentence), "{report}");
        // The verdicts count the other claim alone.
        assert!(
            report.contains(": holds 1, DOES NOT HOLD 0, cannot tell 0, "),
            "{report}"
        );
        let listed = report.contains(&format!("lower (copy / {contender})"));
        assert_eq!(listed, contender == "slow", "{report}");
    }
}

#[test]
fn equal_work_is_compared_by_a_command() {
    let dir = laboratory(&experiment(1.5, ""));
    let words = [
        "noise",
        "--false-alarms",
        "--allow-debug",
        "--quick",
        "--budget",
        "10s",
    ];
    let out = run(dir.path(), &words);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let report = text(&out.stdout);
    // Three blocks never decide.
    let counted = row(&report, "False alarms: 0 of ");
    assert!(counted.contains("found a difference (0.0 %;"), "{counted}");
    assert!(!report.contains("the copy is different"), "{report}");
    assert!(report.contains("`weir-lab noise --false-alarms --seed 1 --blocks 3 --quick`"));
}

#[test]
fn a_claim_near_its_limit_states_how_many_blocks_would_decide() {
    // The limit is 0.8, and the ratio is 0.7974 with a noise of a percent.
    let report = report_of(&experiment(1.254, ""));
    let claim = row(&report, "quick is quicker");
    assert!(
        claim.contains("| cannot tell |") && claim.contains(" blocks would decide |"),
        "{claim}"
    );
}

#[test]
fn the_claims_of_a_study_are_judged_beside_its_words() {
    let said = "A study found that quick takes at most half of the time of slow.";
    let claim = |most: f64| {
        format!(
            "[[claim]]\ntext = \"at most {most}x\"\ncompare = [\"quick\", \"slow\"]\nexpect = \"lower\"\nmax_ratio = {most}\nstudy = true\n"
        )
    };
    let file = experiment(1.5, "") + &claim(0.5) + &claim(0.9);
    let header = format!("canary = false\nstudy = \"{said}\"");
    let report = report_of(&file.replace("canary = false", &header));
    let study = section(&report, "The study");
    assert!(study.starts_with(&format!("\n{said}\n")), "{study}");
    for (claim, verdict) in [("at most 0.5x", "DOES NOT HOLD"), ("at most 0.9x", "holds")] {
        let found = words(row(study, claim));
        assert_eq!(found.get(2..4), Some(&["w", verdict][..]), "{study}");
    }
    // Claims of our own are not in this section.
    assert!(!study.contains("quick is quicker"), "{study}");
}

/// A process that uses the CPU of contenders until it is dropped.
struct Burner(std::process::Child);

impl Burner {
    fn start() -> Burner {
        let cpu = allowed_cpus().last().copied();
        let words = ["/bin/sh", "-c", "while :; do :; done"].map(str::to_owned);
        let mut command = command(&words, 0);
        Burner(spawn_on(&mut command, cpu).unwrap())
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        end_group(self.0.id());
        self.0.wait().unwrap();
    }
}

/// One contender on the last CPU, with blocks of 100 ms of CPU time.
const PINNED: &str = r#"
[experiment]
name = "t"
title = "Test"
question = "?"
mode = "inproc"
samples = 10
batch_us = 10000
warmup_ms = 1
blocks = 3
foreign_max = 0.1
canary = false
[[contender]]
name = "spin"
builtin = "spin"
[[workload]]
name = "w"
params = { units = 1000 }
"#;

#[test]
fn a_disturbed_machine_decides_nothing_and_exits_with_4() {
    let dir = laboratory(PINNED);
    let burner = Burner::start();
    let out = run(dir.path(), &["run", "t", "--allow-debug"]);
    drop(burner);
    let (report, message) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(4), "{report}{message}");
    let words = "3 of 3 blocks were disturbed by other work; the machine is too noisy to decide";
    assert!(message.contains(words), "{message}");
    assert!(report.contains("3 left out as disturbed"), "{report}");
    let set = result_set(dir.path());
    for block in 0..3 {
        let name = format!("blocks/B{block:03}.disturbed.jsonl");
        assert!(set.join(name).is_file(), "block {block} was repeated");
    }
    assert!(!section(&report, "Figures").contains("| spin "), "{report}");
}

/// The number of samples in `folded` with a frame that contains `name`.
fn samples_with(folded: &str, name: &str) -> u32 {
    let stacks = folded.lines().map(|line| line.rsplit_once(' ').unwrap());
    let found = stacks.filter(|(stack, _)| stack.contains(name));
    found.map(|(_, count)| count.parse::<u32>().unwrap()).sum()
}

/// Checks that the profile in `dir` shows two functions with 30 % and 70 % of the time.
fn assert_known_shares(dir: &Path, out: &Output) {
    let (report, message) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(0), "{message}");
    let folded = result_set(dir).join("shares-w.folded");
    let folded = fs::read_to_string(folded).unwrap();
    let count = |name: &str| f64::from(samples_with(&folded, name));
    let (thirty, seventy) = (count("use_thirty_percent"), count("use_seventy_percent"));
    // The rest reads and writes lines.
    assert!(thirty + seventy > 0.9 * count(""), "{report}");
    let share = thirty / (thirty + seventy);
    // Five standard deviations, if a busy machine allows only few samples.
    let deviation = (0.30 * 0.70 / (thirty + seventy)).sqrt();
    let limit = (5.0 * deviation).max(0.03);
    assert!((share - 0.30).abs() < limit, "{share}: {report}");
}

#[test]
fn a_profile_shows_the_known_shares_of_two_functions() {
    let dir = laboratory(&PINNED.replace("\"spin\"", "\"shares\""));
    let words = ["profile", "t", "--allow-debug", "--seconds", "3"];
    assert_known_shares(dir.path(), &run(dir.path(), &words));
}

#[test]
fn a_profile_from_inside_shows_the_known_shares_of_two_functions() {
    let dir = laboratory(&PINNED.replace("\"spin\"", "\"shares\""));
    // A `perf` that is not permitted to do anything is the first in the path.
    let programs = dir.path().join("programs");
    fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink("/bin/false", programs.join("perf")).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut profile = lab(
        dir.path(),
        &["profile", "t", "--allow-debug", "--seconds", "8"],
    );
    profile.env("PATH", format!("{}:{path}", programs.display()));
    let out = profile.output().unwrap();
    assert!(text(&out.stdout).contains("sampled from inside instead"));
    assert_known_shares(dir.path(), &out);
}

/// Only on a machine without other work, because other tests disturb blocks, too: with
/// `WEIR_LAB_IDLE=1` in the environment.
#[test]
fn exactly_the_blocks_with_a_disturber_are_disturbed() {
    if std::env::var_os("WEIR_LAB_IDLE").is_none() {
        return;
    }
    let file = PINNED.replace("blocks = 3", "blocks = 8");
    let dir = laboratory(&file.replace("samples = 10", "samples = 50"));
    let mut child = lab(dir.path(), &["run", "t", "--allow-debug"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut burner = None;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.starts_with("block 2 of ") {
            burner = Some(Burner::start());
        }
        if line.starts_with("block 4 of ") {
            burner = None;
        }
    }
    assert!(burner.is_none() && child.wait().unwrap().success());
    let report = fs::read_to_string(result_set(dir.path()).join("report.md")).unwrap();
    let rows = section(&report, "Blocks and canary").lines().map(words);
    let disturbed = rows.filter(|row| row.contains(&"disturbed"));
    let disturbed: Vec<&str> = disturbed.filter_map(|row| row.get(1).copied()).collect();
    assert_eq!(disturbed, ["3", "4"], "{report}");
}

/// As above, only on a machine without other work.
#[test]
fn a_neighbour_that_uses_memory_slows_the_copy_of_the_canary() {
    if std::env::var_os("WEIR_LAB_IDLE").is_none() {
        return;
    }
    let cpus = allowed_cpus();
    let mut canary = Canary::start(env!("CARGO_BIN_EXE_weir-lab"), cpus.last().copied()).unwrap();
    let alone = canary.read().unwrap();
    let mut copy = lab(Path::new("."), &["contender", "canary"]);
    copy.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut neighbour = spawn_on(&mut copy, cpus.first().copied()).unwrap();
    // 100,000 copies take longer than the readings.
    let lines = "load\t0\tkind=copy\nrun\t0\t100000\n";
    let mut input = neighbour.stdin.take().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    let beside = canary.read().unwrap();
    neighbour.kill().unwrap();
    neighbour.wait().unwrap();
    let slower = beside.copy_ms / alone.copy_ms;
    assert!(slower > 1.1, "{alone:?} {beside:?}");
}

#[test]
fn reports_are_equal_to_the_stored_ones() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("blocks")).unwrap();
    let inputs = ["experiment.toml", "fingerprint.json", "plan.json"].map(str::to_owned);
    let blocks = (0..7).map(|block| format!("blocks/B{block:03}.jsonl"));
    for name in inputs.into_iter().chain(blocks) {
        fs::copy(golden.join(&name), dir.path().join(&name)).unwrap();
    }
    let out = run(dir.path(), &["report", "."]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    // After an intended change: `weir-lab report crates/weir-lab/tests/golden`.
    for name in ["report.md", "report.html", "figures.csv", "summary.json"] {
        let made = fs::read_to_string(dir.path().join(name)).unwrap();
        let stored = fs::read_to_string(golden.join(name)).unwrap();
        let difference = made.lines().zip(stored.lines()).find(|(a, b)| a != b);
        assert!(made == stored, "{name} differs first at {difference:?}");
    }
}
