//! Tests `weir demo` as a user runs it, and the commands and programs that the README and the guide
//! print.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is a failed test"
)]

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const MAKEFILE: &str = include_str!("../../../Makefile");
const README: &str = include_str!("../../../README.md");
const GROUPS: &str = include_str!("../../../docs/guide/groups.md");
const QUERIES: &str = include_str!("../../../docs/guide/query.md");
const FIRST_STEPS: &str = include_str!("../../../docs/guide/first-steps.md");
/// This file. The programs of the README and the guide are compiled here.
const PROGRAMS: &str = include_str!("demo.rs");

/// A command without the variables of the environment that could affect it. Temporary files go to
/// `directory`.
fn command(program: &str, directory: &Path) -> Command {
    let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
    let mut path = weir.parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", path)
        .env("HOME", directory)
        .env("TMPDIR", directory)
        .env("LANG", "C.UTF-8")
        .current_dir(directory)
        .stdin(Stdio::null());
    command
}

fn weir(directory: &Path, args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_weir");
    command(program, directory).args(args).output().unwrap()
}

fn facts(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn names(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn the_demo_reports_its_checks_and_leaves_no_files() {
    let dir = TempDir::new().unwrap();
    let until = Instant::now() + Duration::from_mins(1);
    let facts = loop {
        let output = weir(dir.path(), &["demo", "--quick", "-o", "json"]);
        let facts = facts(&output);
        assert!(output.status.success(), "{facts:#}");
        assert_eq!(text(&output.stderr), "");
        // On a busy machine, all writes can end before the thread runs that counts.
        if facts["listen"]["shown_while_writing"].as_u64().unwrap() > 0 {
            break facts;
        }
        assert!(Instant::now() < until, "{facts:#}");
    };
    assert_eq!(facts["ok"], true);
    assert_eq!(facts["durability"], "group");
    assert_eq!(facts["topics"], 12);
    assert_eq!(facts["write"]["events"], 1707);
    assert_eq!(facts["listen"]["listeners"], 12);
    assert_eq!(facts["listen"]["records"], 1707 + 12);
    assert_eq!(facts["get"]["keys"], 1707);
    assert_eq!(facts["scan"]["keys"], 1707);
    assert_eq!(facts["strongest"]["shown"], 5);
    let counts = facts["magnitudes"].as_array().unwrap();
    let counts: Vec<u64> = counts.iter().map(|count| count.as_u64().unwrap()).collect();
    assert_eq!(
        (counts[0] + counts[1], counts.iter().sum::<u64>()),
        (39, 1707)
    );
    assert_eq!(facts["analysts"]["found"], facts["analysts"]["first"]);
    assert_eq!(facts["same_feed"]["rejected"], 1707);
    assert_eq!(facts["same_feed"]["written"], 0);
    assert_eq!(facts["transactions"]["aborted"], 1);
    assert_eq!(facts["kills"]["kills"], 2);
    assert!(facts["kills"]["acknowledged"].as_u64().unwrap() >= 300);
    assert_eq!(facts["kills"]["lost"], 0);
    assert_eq!(facts["load"]["events"], 20_000);
    assert_eq!(facts["conditions_rejected"], 1708);
    let bank = &facts["bank"];
    assert_eq!(
        (&bank["writers"], &bank["transfers"]),
        (&8.into(), &8000.into())
    );
    assert_eq!(
        (&bank["minted"], &bank["sum"]),
        (&100_000.into(), &100_000.into())
    );
    assert_eq!(bank["negative"], 0);
    let number = |value: &Value| value.as_u64().unwrap();
    assert_eq!(number(&bank["done"]) + number(&bank["refused"]), 8000);
    assert_eq!(number(&bank["states"]), number(&bank["done"]) + 100);
    let refusals = bank["refusals"].as_array().unwrap();
    let codes: Vec<u64> = refusals.iter().map(|r| number(&r["code"])).collect();
    assert_eq!(codes, [1, 2, 3, 4, 6, 8], "every reason occurs");
    let refused: u64 = refusals.iter().map(|r| number(&r["count"])).sum();
    assert_eq!(refused, number(&bank["refused"]));
    assert!(refusals.iter().any(|r| r["text"] == "not enough"), "{bank}");
    let failover = &facts["failover"];
    assert_eq!(
        (
            &failover["nodes"],
            &failover["acknowledged"],
            &failover["lost"]
        ),
        (&3.into(), &400.into(), &0.into())
    );
    let of_main_store = 1707 + 2 + 2 + 20_000;
    assert_eq!(facts["verify"]["records"], of_main_store + 12 + 2);
    let killed = facts["kills"]["events"].as_u64().unwrap();
    assert_eq!(facts["events_written"], of_main_store + killed);
    assert_eq!(names(dir.path()), Vec::<PathBuf>::new(), "no files remain");
}

#[test]
fn the_output_for_people_has_a_line_for_each_step_and_next_commands() {
    let dir = TempDir::new().unwrap();
    let output = weir(dir.path(), &["demo", "--quick"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let steps: Vec<&str> = out.lines().filter(|line| line.contains('✓')).collect();
    assert_eq!(steps.len(), 18, "{out}");
    for (step, number) in steps.iter().zip(1..) {
        assert!(
            step.trim_start().starts_with(&format!("{number} ✓ ")),
            "{step}"
        );
    }
    assert!(out.contains("1,707 events"), "{out}");
    let (live, _) = out.split_once("✓ write").unwrap();
    let (_, live) = live.split_once("live, ").unwrap();
    let shown = live.lines().filter(|line| line.contains("  quakes."));
    assert_eq!(shown.count(), 9, "{live}");
    assert!(
        live.contains("6.4  quakes.us  22km NNE of Hualian"),
        "{live}"
    );
    let strong = "6.4  22km NNE of Hualian, Taiwan\n";
    assert!(out.contains(strong), "{out}");
    let bars = out.lines().filter(|line| line.ends_with('█'));
    assert_eq!(bars.count(), 7, "one for each magnitude: {out}");
    for line in out.lines().filter(|line| !line.contains("/weir-demo-")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(out.contains("  not enough\n"), "reasons with words: {out}");
    assert!(out.contains("\nWhat to try next:\n  weir "), "{out}");
    assert!(
        !out.contains('\x1b') && !err.contains('\x1b'),
        "colours in a pipe"
    );
    assert_eq!(err, "", "only terminals get progress bars");
    // At full speed; with pauses, there would be no rate.
    assert!(out.contains(" writers at "), "{out}");
}

#[test]
fn the_demo_pauses_on_a_terminal() {
    const SPAWN: &str = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    let dir = TempDir::new().unwrap();
    let mut python = command("python3", dir.path());
    python.args(["-c", SPAWN, env!("CARGO_BIN_EXE_weir"), "demo", "--quick"]);
    let output = python.env("TERM", "xterm").output().unwrap();
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}{}", text(&output.stderr));
    assert_eq!(out.matches("\x1b[32m✓\x1b[0m").count(), 18, "{out}");
    // A rate would measure the pauses, so it is left out.
    assert!(out.contains(" writers: "), "{out}");
}

#[test]
fn an_interrupt_leaves_no_files() {
    // After the named step: in the middle of a write, and while a child process writes.
    for (step, signal) in [
        ("open", Signal::INT),
        ("together", Signal::INT),
        ("replay", Signal::INT),
        ("replay", Signal::HUP),
    ] {
        let dir = TempDir::new().unwrap();
        // `nohup` may run this test.
        let mut demo = command("env", dir.path());
        demo.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_weir"), "demo"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut demo = demo.spawn().unwrap();
        let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
        let wanted = format!("✓ {step}");
        let mut seen = Vec::new();
        while !seen
            .last()
            .is_some_and(|line: &String| line.contains(&wanted))
        {
            let line = lines.next();
            seen.push(
                line.unwrap_or_else(|| panic!("no {step}: {seen:#?}"))
                    .unwrap(),
            );
        }
        // Without another process, whose start takes long on a busy machine.
        let process = Pid::from_raw(i32::try_from(demo.id()).unwrap()).unwrap();
        kill_process(process, signal).unwrap();
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        let output = demo.wait_with_output().unwrap();
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{err}{rest:?}");
        assert!(err.contains("E508"), "{err}");
        assert_eq!(names(dir.path()), Vec::<PathBuf>::new(), "no files remain");
    }
}

#[test]
fn the_next_commands_of_the_demo_work() {
    const KEPT: &str = "it's kept";
    let dir = TempDir::new().unwrap();
    let output = weir(
        dir.path(),
        &["demo", "--quick", "--keep", KEPT, "-o", "json"],
    );
    let next = facts(&output)["next"].clone();
    let next: Vec<&str> = next
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_str().unwrap())
        .collect();
    assert_eq!(next.len(), 4);
    for line in &next {
        let output = command("sh", dir.path())
            .args(["-ec", line])
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        assert_ne!(output.stdout, b"", "{line}");
    }
    let again = weir(dir.path(), &["demo", "--quick", "--keep", KEPT]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        text(&again.stderr).contains("not empty"),
        "{}",
        text(&again.stderr)
    );
}

#[test]
fn make_demo_ends_with_the_ways_to_run_the_command() {
    const INSTALL: &str = "cargo install --locked --path crates/weir-cli";
    let (_, recipe) = MAKEFILE.split_once("\ndemo:").unwrap();
    let (recipe, _) = recipe.split_once("\n\n").unwrap();
    assert!(recipe.contains("cargo build --release --locked --package weir-cli\n"));
    let (_, end) = recipe.split_once("/weir\" demo\n").unwrap();
    let script = end.replace("\t@", "").replace("$$", "$");
    let dir = TempDir::new().unwrap();
    let mut shell = command("sh", dir.path());
    let output = shell.args(["-euc", &script]).output().unwrap();
    let wanted = format!("Run the command as target/release/weir;\n{INSTALL} installs it.\n");
    assert_eq!(text(&output.stdout), wanted);
    assert!(README.contains(&format!("`{INSTALL}`")));
}

#[test]
fn a_recheck_of_another_directory_advises_what_to_name() {
    let dir = TempDir::new().unwrap();
    let output = weir(dir.path(), &["demo", "--recheck", "nope"]);
    assert_eq!(output.status.code(), Some(1));
    let err = text(&output.stderr);
    assert!(err.contains("`weir demo --keep DIR` created"), "{err}");
}

#[test]
fn damage_is_reported_with_its_file_and_changes_nothing() {
    let dir = TempDir::new().unwrap();
    let output = weir(
        dir.path(),
        &["demo", "--quick", "--keep", "kept", "-o", "json"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let log = dir.path().join("kept/store/log");
    let mut segments = names(&log);
    segments.retain(|path| path.extension().is_some_and(|end| end == "log"));
    segments.sort();
    let segment = &segments[0];
    let mut bytes = fs::read(segment).unwrap();
    let needle = b"\"type\":\"earthquake\"";
    let at = bytes
        .windows(needle.len())
        .position(|part| part == needle)
        .unwrap();
    bytes[at + 8] ^= 1;
    fs::write(segment, &bytes).unwrap();

    let output = weir(dir.path(), &["demo", "--recheck", "kept", "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let facts = facts(&output);
    assert_eq!(facts["ok"], false);
    assert_eq!(facts["failed"], "reopen");
    let error = facts["error"].as_str().unwrap();
    let name = segment.file_name().unwrap().to_str().unwrap();
    assert!(error.contains("damage") && error.contains(name), "{error}");
    let words = text(&output.stderr);
    assert!(
        words.contains("why: ") && words.contains("try: "),
        "{words}"
    );
    assert!(
        fs::read(segment).unwrap() == bytes,
        "the damaged file was changed"
    );
}

#[test]
fn a_closed_output_is_not_a_failure() {
    let dir = TempDir::new().unwrap();
    let program = env!("CARGO_BIN_EXE_weir");
    let mut child = command(program, dir.path())
        .args(["demo", "--quick"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut words = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut words)
        .unwrap();
    assert!(child.wait().unwrap().success(), "{words}");
    assert_eq!(words, "");
    assert_eq!(names(dir.path()), Vec::<PathBuf>::new(), "no files remain");
}

/// The contents of the fenced blocks of a language, in order.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let parts = page.split(&fence).skip(1);
    parts
        .map(|part| part.split("```").next().unwrap().to_owned())
        .collect()
}

/// Runs the commands of a transcript (`$ command`, then its output) in order, and compares their
/// output.
fn replay(transcript: &str, directory: &Path) {
    let mut seen = String::new();
    for line in transcript
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
    {
        let line_with_errors = format!("{{ {line}\n}} 2>&1");
        let output = command("sh", directory)
            .args(["-c", &line_with_errors])
            .output()
            .unwrap();
        seen.push_str("$ ");
        seen.push_str(line);
        seen.push('\n');
        seen.push_str(&text(&output.stdout));
    }
    assert_eq!(seen, transcript);
}

/// The lines of this file between `// [NAME]` and `// [end]`, without their indentation and the
/// marks in between.
fn program(name: &str) -> String {
    let start = format!("    // [{name}]\n");
    let (_, rest) = PROGRAMS.split_once(&start).unwrap();
    let (body, _) = rest.split_once("    // [end]\n").unwrap();
    let mut program = String::new();
    for line in body.lines() {
        let line = line.strip_prefix("    ").unwrap_or(line);
        // Another test calls the `main` of a module in this file, so it is public.
        program.push_str(line.strip_prefix("pub(super) ").unwrap_or(line));
        program.push('\n');
    }
    program
}

#[test]
fn the_readme_prints_the_real_output() {
    let dir = TempDir::new().unwrap();
    let transcripts = blocks(README, "console");
    // The second transcript needs a server: tests/cli/pages.rs.
    assert_eq!(transcripts.len(), 3);
    replay(&transcripts[0], dir.path());
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data");
    std::os::unix::fs::symlink(data, dir.path().join("data")).unwrap();
    replay(&transcripts[2], dir.path());
    assert_eq!(blocks(README, "rust"), [program("readme")]);
    // Not in the directory of the link, because the program creates a store in `data`.
    let other = TempDir::new().unwrap();
    let output = printed(other.path(), "the_program_of_the_readme");
    let lines: Vec<&str> = output.lines().map(str::trim_end).collect();
    let wanted = [
        "1 CREATE",
        r#"2 PUT 4711 {"state":"open"}"#,
        r#"3 PUT 4711 {"state":"paid"}"#,
    ];
    assert_eq!(lines, wanted);
}

/// Variable with the directory in which a program of a page runs. It runs in a separate process,
/// because it opens a store in its working directory.
const PROGRAM_RUNS: &str = "WEIR_TEST_PROGRAM";

/// The output of a test of this file that is a program of a page, run in a directory.
fn printed(directory: &Path, test: &str) -> String {
    let tests = std::env::current_exe().unwrap();
    let output = command(tests.to_str().unwrap(), directory)
        .args(["--exact", test, "--nocapture", "--quiet"])
        .env(PROGRAM_RUNS, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    // The test harness prints the number of tests before and after.
    let (_, stdout) = stdout.split_once("running 1 test\n").unwrap();
    let (stdout, _) = stdout.rsplit_once("\ntest result").unwrap();
    stdout.trim_end_matches(['.', '\n']).to_owned() + "\n"
}

#[test]
fn the_program_of_the_readme() {
    if std::env::var_os(PROGRAM_RUNS).is_some() {
        readme_program::main().unwrap();
    }
}

mod readme_program {
    // [readme]
    use std::error::Error;
    use weir::{Expect, ReadFrom, Weir};

    pub(super) fn main() -> Result<(), Box<dyn Error>> {
        let weir = Weir::open("data")?;
        let orders = weir.topic("orders")?;
        orders.ensure()?;

        let first = orders.put("4711", r#"{"state":"open"}"#)?; // on disk, synced, when this returns
        let seen = first.offset().ok_or("not VALID")?.0;
        let unchanged = [Expect::KeyOffset(None, seen)];
        let paid = orders.put_if("4711", r#"{"state":"paid"}"#, &unchanged)?;
        let late = orders.put_if("4711", r#"{"state":"void"}"#, &unchanged)?;
        assert!(paid.is_valid() && !late.is_valid()); // a rejection is a value with its reason

        for page in orders.pages(ReadFrom::Start)? {
            for record in &page? {
                let record = record?;
                let key = String::from_utf8_lossy(record.key);
                let value = String::from_utf8_lossy(record.value);
                println!("{} {} {key} {value}", record.offset, record.kind.name());
            }
        }
        Ok(())
    }
    // [end]
}

#[test]
fn the_guide_to_groups_prints_the_real_output() {
    let dir = TempDir::new().unwrap();
    assert_eq!(blocks(GROUPS, "rust"), [program("groups")]);
    for transcript in blocks(GROUPS, "console") {
        replay(&transcript, dir.path());
    }
    let other = TempDir::new().unwrap();
    let lines = "\
resize photo 1, delivery 1
resize photo 2, delivery 1
resize photo 3, delivery 1
resize photo 2, delivery 2
";
    assert_eq!(
        printed(other.path(), "the_program_of_the_guide_to_groups"),
        lines
    );
    let dead = weir(
        other.path(),
        &["tail", "jobs.dead", "--at", "data", "-o", "json"],
    );
    assert!(text(&dead.stdout).contains("no such photo"));
}

#[test]
fn the_program_of_the_guide_to_groups() {
    if std::env::var_os(PROGRAM_RUNS).is_some() {
        groups_program::main().unwrap();
    }
}

mod groups_program {
    // [groups]
    use std::error::Error;
    use std::time::Duration;
    use weir::{GroupMode, GroupSetup, Weir};

    pub(super) fn main() -> Result<(), Box<dyn Error>> {
        let weir = Weir::open("data")?;
        let jobs = weir.topic("jobs")?;
        jobs.ensure()?;
        for photo in 1..=3 {
            jobs.append(format!("resize photo {photo}"))?
                .ensure_valid()?;
        }

        let setup = GroupSetup {
            lease_ms: 30_000,
            attempts_max: 2,
            dead_letters: "jobs.dead",
            ..GroupSetup::new(GroupMode::Shared)
        };
        let mut worker = jobs.group_with("resize", &setup)?;
        loop {
            // Blocks up to a second for the first record; empty if none arrived.
            let work = worker.claim(10, Duration::from_secs(1))?;
            if work.is_empty() {
                break;
            }
            for one in work {
                let job = String::from_utf8_lossy(one.record().value).into_owned();
                println!("{job}, delivery {}", one.attempts());
                if job.ends_with('2') {
                    worker.nack(&[one], Duration::ZERO, "no such photo")?;
                } else {
                    for offset in worker.ack(&[one])? {
                        println!("record {offset} is not acknowledged: its claim has ended");
                    }
                }
            }
        }
        Ok(())
    }
    // [end]
}

#[test]
fn the_guide_to_queries_prints_the_real_output() {
    let dir = TempDir::new().unwrap();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::os::unix::fs::symlink(docs, dir.path().join("docs")).unwrap();
    let transcripts = blocks(QUERIES, "console");
    assert_eq!(transcripts.len(), 2);
    for transcript in transcripts {
        replay(&transcript, dir.path());
    }
    let programs = ["query of topics", "query of pages"].map(program);
    assert_eq!(blocks(QUERIES, "rust"), programs);
    let other = TempDir::new().unwrap();
    assert_eq!(
        printed(other.path(), "the_programs_of_the_guide_to_queries"),
        "{\"state\":\"open\"}\n{\"n\":1}\n{\"n\":3}\n{\"n\":4}\n"
    );
}

#[test]
fn the_programs_of_the_guide_to_queries() {
    if std::env::var_os(PROGRAM_RUNS).is_some() {
        let weir = weir::Weir::open("data").unwrap();
        let orders = weir.topic("orders.eu").unwrap();
        orders.ensure().unwrap();
        for state in ["open", "paid"] {
            orders
                .append(format!("{{\"state\":\"{state}\"}}"))
                .unwrap()
                .ensure_valid()
                .unwrap();
        }
        drop(orders);
        weir.close().unwrap();
        query_of_topics().unwrap();
        query_of_pages().unwrap();
    }
}

fn query_of_topics() -> Result<(), Box<dyn Error>> {
    // [query of topics]
    use weir::query::{Bounds, QueryText};
    use weir::{ReadFrom, TopicQueryOptions, TopicStep, Weir};

    let weir = Weir::open("data")?; // or Weir::connect("weir://host:7071")
    let text = QueryText {
        filter: "@.state == 'open'".into(),
        ..QueryText::default()
    };
    let mut options = TopicQueryOptions::new(["orders.*"]).text(text);
    options.from = ReadFrom::parse("yesterday")?; // without this line: from the first record
    let mut query = weir.query(options)?;
    while let TopicStep::Page(page) = query.next(Bounds::default(), None)? {
        for value in page.iter() {
            println!("{}", String::from_utf8_lossy(value));
        }
    }
    // [end]
    Ok(())
}

fn query_of_pages() -> Result<(), Box<dyn Error>> {
    // [query of pages]
    use bytes::Bytes;
    use std::sync::Arc;
    use weir::query::{Bounds, Budgets, Query, QueryText, SourceOptions, Step};

    /// A page with an array of items, and the name of the next page.
    fn fetch(name: Option<&[u8]>) -> (Bytes, Option<Bytes>) {
        let (page, next) = match name {
            None => (r#"[{"n":1},{"n":3}]"#, Some("second")),
            Some(_) => (r#"[{"n":4}]"#, None),
        };
        (page.into(), next.map(Bytes::from))
    }

    let text = QueryText {
        order: "$.n".into(),
        ..QueryText::default()
    };
    let mut query = Query::new(Arc::new(text.compile()?), Budgets::default());
    query.add_source(SourceOptions {
        sorted: true,
        ..SourceOptions::default()
    })?;
    loop {
        match query.next(Bounds::default())? {
            Step::Ready(page) => {
                for value in page.iter() {
                    println!("{}", String::from_utf8_lossy(value));
                }
            }
            Step::Need(needs) => {
                for need in needs {
                    let (page, next) = fetch(need.continuation.as_deref());
                    query.enqueue(need.source, page, next)?;
                }
            }
            Step::Done => break,
        }
    }
    // [end]
    Ok(())
}

#[test]
fn the_first_steps_print_the_real_output() {
    let dir = TempDir::new().unwrap();
    let steps = [
        "open",
        "condition",
        "listen",
        "session",
        "together",
        "close",
    ];
    let programs: Vec<String> = steps.map(program).to_vec();
    assert_eq!(blocks(FIRST_STEPS, "rust"), programs);
    printed(dir.path(), "the_program_of_the_first_steps");
    for transcript in blocks(FIRST_STEPS, "console") {
        replay(&transcript, dir.path());
    }
    for manifest in blocks(FIRST_STEPS, "toml") {
        let path = manifest.split('"').nth(1).unwrap();
        let inside = path.split_once("weir/").unwrap().1;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert!(root.join(inside).join("Cargo.toml").exists(), "{path}");
    }
}

#[test]
fn the_program_of_the_first_steps() {
    if std::env::var_os(PROGRAM_RUNS).is_some() {
        first_steps().unwrap();
    }
}

fn first_steps() -> Result<(), Box<dyn Error>> {
    // [open]
    use std::time::Duration;
    use weir::{ClientId, Expect, Intention, Operation, ReadFrom, TxnOp, Weir};

    let directory = "first-steps";
    let weir = Weir::open(directory)?; // creates the store if it does not exist
    let orders = weir.topic("orders")?;
    orders.ensure()?; // creates the topic if it does not exist

    let verdict = orders.put("4711", r#"{"state":"open"}"#)?;
    assert!(verdict.is_valid());
    assert_eq!(verdict.offset().unwrap().0, 2); // record 1 is the creation of the topic

    let value = orders.get("4711")?.unwrap();
    assert_eq!(value.value(), br#"{"state":"open"}"#);
    // [end]
    // [condition]
    let seen = value.record().offset.0;
    let unchanged = [Expect::KeyOffset(None, seen)];
    let paid = orders.put_if("4711", r#"{"state":"paid"}"#, &unchanged)?;
    let late = orders.put_if("4711", r#"{"state":"void"}"#, &unchanged)?;

    assert!(paid.is_valid());
    assert_eq!(late.effect().name(), "INVALID");
    assert_eq!(late.reason().unwrap().name(), "CONFLICT");
    assert_eq!(late.detail(), weir::Detail::Actual(3)); // the current offset of the key
    // [end]
    // [listen]
    let patience = Duration::from_secs(10);
    let pages = orders.follow(ReadFrom::Start, patience)?;
    let listener = std::thread::spawn(move || -> Result<Vec<u64>, weir::StoreError> {
        let mut offsets = Vec::new();
        for page in pages {
            for record in &page? {
                offsets.push(record?.offset.0);
            }
            if offsets.len() == 5 {
                break;
            }
        }
        Ok(offsets)
    });
    orders.put("4712", r#"{"state":"open"}"#)?.ensure_valid()?;
    orders.delete("4712")?.ensure_valid()?;
    assert_eq!(listener.join().unwrap()?, [1, 2, 3, 4, 5]);
    // [end]
    // [session]
    let mut session = weir.session(ClientId(*b"billing, node 1."));
    let bill = Intention::new(
        "orders",
        Operation::Put {
            key: b"bill",
            value: b"1",
        },
    );
    let nonce = session.next_nonce(); // store it where it survives a crash
    let first = &session.execute(&[bill])?[0];

    session.resume(nonce); // as after a lost answer
    let again = &session.execute(&[bill])?[0];
    assert!(again.is_replayed());
    assert_eq!(again.offset(), first.offset());
    // [end]
    // [together]
    let put = |key, value| TxnOp::Put {
        key,
        value,
        meta: b"",
    };
    let steps = [put(b"stock", b"9"), put(b"4713", br#"{"state":"open"}"#)];
    let first_time = [Expect::KeyAbsent(Some(b"stock"))];
    let both = orders.txn(&steps, &first_time)?;
    let later = orders.txn(&steps, &first_time)?; // `stock` has a value now
    assert_eq!((both.records(), later.records()), (2, 0));
    // [end]
    // [close]
    let digest = weir.store()?.digest();
    drop((orders, session)); // they keep the store open too
    weir.close()?;
    let weir = Weir::open(directory)?;
    assert_eq!(weir.store()?.digest(), digest); // an equal history
    // [end]
    Ok(())
}
