//! Tests the C interface as a user installs it: its names, the transcripts of all languages under
//! sanitizers, the vectors of the codec, the examples, and the quick start of the README.
//!
//! Invariants:
//! - Without a C compiler, make or pkg-config, all tests count as skipped.
//! - The compiler treats each warning as an error.

use crate::capi;
use crate::cluster::Cluster;
use crate::served::{Native, Running};
use crate::tree;
use crate::wasm::{self, ReportVerdict, Verdict, finish};
use anyhow::Context as _;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The folder of the binding.
const FOLDER: &str = "bindings/c";
/// Maximum time until a program ends after it has closed its output.
const END_WITHIN: Duration = Duration::from_secs(30);

/// Tests the installed library below `prefix`.
pub(crate) fn run(prefix: &Path, report_verdict: ReportVerdict<'_>) -> anyhow::Result<()> {
    for tool in ["cc", "make", "pkg-config"] {
        if finish(Command::new(tool).arg("--version")).is_err() {
            report_verdict(
                "the C interface",
                Verdict::Skipped(format!("there is no {tool}")),
            );
            return Ok(());
        }
    }
    println!("-- the C interface");
    report_verdict(
        "names of the libraries",
        match capi::check_names(prefix) {
            Ok(()) => Verdict::Passed,
            Err(error) => Verdict::Failed(format!("{error:#}")),
        },
    );
    let out = tree::root().join("target/c");
    drop(std::fs::remove_dir_all(&out));
    for (link, sanitize) in [("shared", "address,undefined"), ("static", "")] {
        let directory = out.join(link);
        let mut make = Command::new("make");
        make.arg("-C")
            .arg(tree::root().join(FOLDER))
            .args(["--silent", "-B"]);
        make.arg(format!("OUT={}", directory.display()));
        make.arg(format!(
            "PKG_CONFIG_PATH={}",
            prefix.join("lib/pkgconfig").display()
        ));
        make.args([format!("LINK={link}"), format!("SANITIZE={sanitize}")]);
        let built = finish(&mut make);
        report_verdict(&format!("{link}: build"), verdict(&built));
        if built.is_ok() {
            programs(&directory, link, report_verdict)?;
        }
    }
    let started = quick_start(prefix, &out.join("first"))?;
    report_verdict("README: quick start", started);
    Ok(())
}

fn verdict<T>(result: &Result<T, String>) -> Verdict {
    match result {
        Ok(_) => Verdict::Passed,
        Err(why) => Verdict::Failed(why.clone()),
    }
}

/// Runs the built programs.
fn programs(directory: &Path, link: &str, report_verdict: ReportVerdict<'_>) -> anyhow::Result<()> {
    for set in ["query", "api"] {
        let mut run = Command::new(directory.join("transcripts"));
        run.arg(set);
        if set == "api" {
            let stores = directory.join("stores");
            std::fs::create_dir_all(&stores)?;
            run.arg(stores);
        }
        let result = finish(run.args(transcripts(set)?));
        if let Ok(output) = &result {
            print!("C, {link}: {}", String::from_utf8_lossy(output));
        }
        report_verdict(&format!("{link}: transcripts of {set}"), verdict(&result));
    }
    report_verdict(
        &format!("{link}: transcripts of api, served"),
        run_served_transcripts(directory)?,
    );
    report_verdict(&format!("{link}: a leader is lost"), fails_over(directory)?);
    let result = finish(Command::new(directory.join("misuse")).arg(directory.join("misuse-store")));
    report_verdict(&format!("{link}: misuse"), verdict(&result));
    codec(directory, link, report_verdict)?;
    let result = finish(Command::new(directory.join("store")).arg(directory.join("example-store")));
    report_verdict(
        &format!("{link}: examples/store"),
        prints(&result, "3 4711 {\"state\":\"paid\"}"),
    );
    let result =
        finish(Command::new(directory.join("work_queue")).arg(directory.join("example-queue")));
    for line in ["job 3, delivery 2: failed", "dead letter: job 3"] {
        report_verdict(
            &format!("{link}: examples/work_queue, `{line}`"),
            prints(&result, line),
        );
    }
    let result = finish(&mut Command::new(directory.join("query")));
    report_verdict(
        &format!("{link}: examples/query"),
        prints(&result, "5 pages were lent and returned, 0 are out"),
    );
    let folder = directory.join("served");
    std::fs::create_dir_all(&folder)?;
    let server = Native::start(&wasm::weir()?, &folder)?;
    let result = finish(Command::new(directory.join("remote")).arg(&server.address));
    report_verdict(
        &format!("{link}: examples/remote"),
        prints(&result, "from \"c\""),
    );
    Ok(())
}

/// Runs the failover program, and executes its requests to the cluster.
fn fails_over(directory: &Path) -> anyhow::Result<Verdict> {
    let folder = directory.join("cluster");
    let mut cluster = Cluster::start(&wasm::weir()?, &folder)?;
    let mut program = Command::new(directory.join("failover"));
    program.arg(&cluster.address);
    program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = Running(program.spawn().context("cannot start failover")?);
    let output = program.0.stdout.take().context("no output")?;
    let mut answers = program.0.stdin.take().context("no input")?;
    let killed = cluster.serve_requests(BufReader::new(output), &mut answers)?;
    let ended = program.ends_well(END_WITHIN)?;
    Ok(if ended == Some(true) && killed == 1 {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("{ended:?} after {killed} kills"))
    })
}

/// Number of inputs for the codec, derived from its seeds and the packets of the vectors.
const FUZZED: &str = "20000";

/// A seed that differs for each commit, so that other inputs are tried; 1 outside of a repository.
fn seed_of_commit() -> String {
    let commit = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(tree::root())
        .output();
    let commit = commit.map(|result| String::from_utf8_lossy(&result.stdout).into_owned());
    let digits = commit.ok().and_then(|commit| {
        let digits = commit.get(..15)?;
        u64::from_str_radix(digits, 16).ok()
    });
    digits.filter(|seed| *seed > 0).unwrap_or(1).to_string()
}

/// Runs the codec programs: each vector, all vectors, arbitrary input, and the check of
/// allocations.
fn codec(directory: &Path, link: &str, report_verdict: ReportVerdict<'_>) -> anyhow::Result<()> {
    let folder = tree::root().join("vectors/psyc");
    let mut cases = 0;
    let mut packets = Vec::new();
    for file in std::fs::read_dir(&folder)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let text = std::fs::read_to_string(&path)?;
            cases += text.lines().filter(|line| line.starts_with("== ")).count();
        }
    }
    for file in std::fs::read_dir(folder.join("packets"))? {
        let path = file?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "psyc")
        {
            packets.push(path);
        }
    }
    packets.sort();
    let result = finish(Command::new(directory.join("psyc_vectors")).arg(&folder));
    let all = format!("psyc vectors: {cases} cases, 0 wrong");
    println!("C, {link}: {all}");
    report_verdict(
        &format!("{link}: vectors of the codec"),
        prints(&result, &all),
    );
    let fuzz = || Command::new(directory.join("psyc_fuzz"));
    let seed = seed_of_commit();
    let result = finish(fuzz().args([FUZZED, &seed]))
        .and_then(|_| finish(fuzz().args(["2000", &seed]).args(packets)));
    report_verdict(
        &format!("{link}: any bytes to all functions of the codec, seed {seed}"),
        verdict(&result),
    );
    let result = finish(Command::new(directory.join("psyc_allocs")).args(["2000", &seed]));
    report_verdict(
        &format!("{link}: the codec allocates nothing, seed {seed}"),
        verdict(&result),
    );
    let mut shell = Command::new("sh");
    // The length of the second content is announced, so its data arrives in parts.
    let script =
        r#"printf ':_tag\t7\n\n_notice_set\n|\n|\n:_tag\t8\n18\n_notice_set\nhello\n|\n' | "$0""#;
    let result = finish(shell.args(["-c", script]).arg(directory.join("psyc")));
    for line in [":_tag_relay\t7", ":_tag_relay\t8"] {
        report_verdict(
            &format!("{link}: examples/psyc, `{line}`"),
            prints(&result, line),
        );
    }
    let result = finish(&mut Command::new(directory.join("psyc_values")));
    let text = "text: psyc://lock.example/~heron has entered psyc://lock.example/@reed";
    for line in ["member two|part", text] {
        report_verdict(
            &format!("{link}: examples/psyc_values, `{line}`"),
            prints(&result, line),
        );
    }
    Ok(())
}

/// Runs the transcripts of the interface at servers, each over a separate store. Transcripts of
/// directories are skipped.
fn run_served_transcripts(directory: &Path) -> anyhow::Result<Verdict> {
    let weir = wasm::weir()?;
    let (mut count, mut commands) = (0, 0);
    for file in transcripts("api")? {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        if name.starts_with("directory-") {
            continue;
        }
        let folder = directory.join("served-transcripts").join(&*name);
        std::fs::create_dir_all(&folder)?;
        let server = Native::start(&weir, &folder)?;
        let mut run = Command::new(directory.join("transcripts"));
        match finish(run.args(["served", &server.address]).arg(&file)) {
            Err(why) => return Ok(Verdict::Failed(format!("{name}: {why}"))),
            Ok(output) => {
                let output = String::from_utf8_lossy(&output).into_owned();
                let number = output
                    .rsplit(' ')
                    .next()
                    .and_then(|word| word.trim().parse().ok());
                commands += number.unwrap_or(0);
                count += 1;
            }
        }
    }
    println!("C: transcripts of api, served: {count}, commands: {commands}");
    Ok(match commands {
        0 => Verdict::Failed("there are no transcripts".to_owned()),
        _ => Verdict::Passed,
    })
}

/// Whether a program succeeded and printed this line.
fn prints(result: &Result<Vec<u8>, String>, line: &str) -> Verdict {
    match result {
        Err(why) => Verdict::Failed(why.clone()),
        Ok(output)
            if String::from_utf8_lossy(output)
                .lines()
                .any(|output| output == line) =>
        {
            Verdict::Passed
        }
        Ok(output) => {
            let output = String::from_utf8_lossy(output).into_owned();
            Verdict::Failed(format!("`{line}` is not in its output: {output}"))
        }
    }
}

fn transcripts(set: &str) -> anyhow::Result<Vec<PathBuf>> {
    let folder = tree::root().join("vectors").join(set);
    let mut files = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Runs the quick start of the README in an empty directory, without its installation step, which
/// was done before.
fn quick_start(prefix: &Path, directory: &Path) -> anyhow::Result<Verdict> {
    let readme = tree::text(&format!("{FOLDER}/README.md"))?;
    let block = |language: &str| {
        let (_, rest) = readme.split_once(&format!("```{language}\n"))?;
        rest.split_once("```").map(|(text, _)| text.to_owned())
    };
    let missing = |what: &'static str| move || format!("the README has no block of {what}");
    let program = block("c").with_context(missing("c"))?;
    let commands = block("sh").with_context(missing("sh"))?;
    let expected = block("text").with_context(missing("text"))?;
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join("first.c"), program)?;
    let commands: Vec<&str> = commands
        .lines()
        .filter(|line| !line.starts_with("cargo xtask capi install"))
        .collect();
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &commands.join("\n")]);
    shell.current_dir(directory).env("PREFIX", prefix);
    Ok(match finish(&mut shell) {
        Ok(output) if output == expected.as_bytes() => Verdict::Passed,
        Ok(output) => Verdict::Failed(format!("it printed {}", String::from_utf8_lossy(&output))),
        Err(why) => Verdict::Failed(why),
    })
}
