//! Tests the Java package as a user installs it, over an installed C library. Maven builds and
//! tests it with the commands of the README. Then the program of the README runs with the jar in an
//! empty directory.
//!
//! Maven fetches plugins and `JUnit` from Maven Central into `target/tools/maven`, pinned by
//! `pom.xml`. The build uses no other packages, so it does not depend on those of the machine.
//!
//! Invariants:
//! - Each test counts once.
//! - Without Maven, or a JDK of version 22 or newer, all tests count as skipped.
//! - The `java` of the search path is never used, because its version is unknown.

use crate::readme;
use crate::tree;
use crate::wasm::{self, ReportVerdict, Verdict, finish};
use anyhow::{Context as _, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The package.
const FOLDER: &str = "bindings/java";
/// Minimum version of Java.
const MAJOR_MIN: u32 = 22;
/// Folders that contain development kits, one in each subfolder.
const PLACES: &[&str] = &[
    "/usr/lib/jvm",
    "/usr/java",
    "/opt",
    "/Library/Java/JavaVirtualMachines",
];
/// Replacements for printed commands. The library is already installed. Maven uses a separate
/// repository and shows no progress.
const REPLACEMENTS: &[(&str, &str)] = &[
    (r#"cargo xtask capi install --prefix "$PREFIX""#, "true"),
    (
        r#"mvn -f bindings/java package -Dweir.library="$WEIR_LIBRARY""#,
        r#"mvn -B -Dstyle.color=never -Dmaven.repo.local="$REPOSITORY" -f bindings/java package -Dweir.library="$WEIR_LIBRARY""#,
    ),
];
/// Beginning of the line with the number of transcripts.
const TRANSCRIPTS_PREFIX: &str = "transcripts of ";
/// Messages of Maven when it cannot fetch.
const UNFETCHED: &[&str] = &[
    "Could not transfer artifact",
    "Could not find artifact",
    "Unknown host",
];
/// Maximum characters of a failure message.
const MESSAGE_CHARS: usize = 600;

/// Tests the package over the library below `prefix`.
pub(crate) fn run(prefix: &Path, report_verdict: ReportVerdict<'_>) -> anyhow::Result<()> {
    let home = match tools() {
        Ok(home) => home,
        Err(why) => {
            report_verdict("the package", Verdict::Skipped(why));
            return Ok(());
        }
    };
    println!("-- the Java package, with {}", home.display());
    let built = tree::root().join(FOLDER).join("target");
    drop(fs::remove_dir_all(&built));
    let directory = tree::root().join("target/java-readme");
    let install = readme::installation("java", &directory, REPLACEMENTS)?;
    let mut maven = Command::new("sh");
    maven.args(["-euc", &install]).current_dir(&directory);
    maven
        .env("PREFIX", prefix)
        .env("REPOSITORY", tree::root().join("target/tools/maven"))
        .env("JAVA_HOME", &home)
        .env("WEIR_COMMAND", wasm::weir()?)
        .env("WEIR_CLUSTER", std::env::current_exe()?)
        .stdin(Stdio::null());
    // An earlier suite has built this server, if Go is installed.
    let mock = tree::root().join("target/cosmos-mock");
    if mock.exists() {
        maven.env("WEIR_COSMOS_MOCK", mock);
    }
    let output = maven.output().context("cannot start mvn")?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in printed
        .lines()
        .filter(|line| line.starts_with(TRANSCRIPTS_PREFIX))
    {
        println!("java: {line}");
    }
    let failed = read(&built.join("surefire-reports"), report_verdict)?;
    if !output.status.success() && !failed {
        let last: Vec<&str> = printed
            .lines()
            .filter(|line| line.starts_with("[ERROR]"))
            .take(4)
            .collect();
        let words = last.join(" | ");
        let unfetched = UNFETCHED.iter().any(|words| printed.contains(words));
        let verdict = if unfetched {
            Verdict::Skipped(words)
        } else {
            Verdict::Failed(words)
        };
        report_verdict("the build", verdict);
        return Ok(());
    }
    if output.status.success() {
        let library = prefix.join("lib/libweir.so.0");
        report_verdict(
            "README: install, quick start",
            quick_start(&home, &library, &directory)?,
        );
    }
    Ok(())
}

/// The folder of the newest development kit. Fails without Maven.
fn tools() -> Result<PathBuf, String> {
    finish(Command::new("mvn").arg("--version")).map_err(|_| "there is no mvn".to_owned())?;
    let mut homes: Vec<PathBuf> = std::env::var_os("JAVA_HOME")
        .map(PathBuf::from)
        .into_iter()
        .collect();
    for directory in PLACES {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        homes.extend(entries.map(|entry| entry.path()));
    }
    let kits = homes
        .into_iter()
        .filter_map(|home| Some((version(&home)?, home)));
    let newest = kits.max_by_key(|(version, _)| *version);
    match newest {
        Some((version, home)) if version >= MAJOR_MIN => Ok(home),
        Some((version, _)) => Err(format!(
            "the newest JDK is {version}; the package needs {MAJOR_MIN}"
        )),
        None => Err(format!("there is no JDK; the package needs {MAJOR_MIN}")),
    }
}

/// The version of a development kit, from its `release` file.
fn version(home: &Path) -> Option<u32> {
    if !home.join("bin/javac").exists() {
        return None;
    }
    let text = fs::read_to_string(home.join("release")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    let major = line.trim_matches('"').split(['.', '-', '+', '_']).next()?;
    major.parse().ok()
}

/// Reports each test of all reports. Returns whether any failed.
fn read(reports: &Path, report_verdict: ReportVerdict<'_>) -> anyhow::Result<bool> {
    let mut any = false;
    let Ok(entries) = fs::read_dir(reports) else {
        return Ok(false);
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    files.sort();
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "xml"))
    {
        any |= cases(&fs::read_to_string(file)?, report_verdict)?;
    }
    Ok(any)
}

/// Reports each test of one report.
fn cases(report: &str, report_verdict: ReportVerdict<'_>) -> anyhow::Result<bool> {
    let (mut count, mut any) = (0, false);
    for case in report.split("<testcase ").skip(1) {
        let case = case.split("</testcase>").next().unwrap_or_default();
        let field = |name: &str| {
            let after = case.split(&format!("{name}=\"")).nth(1).unwrap_or_default();
            after.split('"').next().unwrap_or_default()
        };
        let name = format!(
            "{} {}",
            field(" classname").trim_start_matches("weir."),
            field("name")
        );
        let own = case.split("/>").next().unwrap_or_default();
        let words = || case.chars().take(MESSAGE_CHARS).collect::<String>();
        let verdict = if own.contains("<failure")
            || own.contains("<error")
            || case.contains("</failure>")
            || case.contains("</error>")
        {
            any = true;
            Verdict::Failed(words())
        } else if case.contains("<skipped") {
            Verdict::Skipped(field("message").to_owned())
        } else {
            Verdict::Passed
        };
        count += 1;
        report_verdict(&name, verdict);
    }
    ensure!(count > 0, "a report has no test");
    Ok(any)
}

/// Runs the first program of the README in `directory`, with the jar that was built there.
fn quick_start(home: &Path, library: &Path, directory: &Path) -> anyhow::Result<Verdict> {
    let jar = "weir-0.1.0.jar";
    fs::copy(
        directory.join(FOLDER).join("target").join(jar),
        directory.join(jar),
    )?;
    let readme = tree::text("bindings/java/README.md")?;
    let (_, start) = readme
        .split_once("## Quick start")
        .context("the README has no quick start")?;
    let block = |language: &str| {
        let (_, after) = start.split_once(&format!("```{language}\n"))?;
        Some(after.split_once("```")?.0)
    };
    fs::write(
        directory.join("Quick.java"),
        block("java").context("no program")?,
    )?;
    let console = block("console").context("no command")?;
    let (command, want) = console.split_once('\n').context("no output")?;
    let command = command.trim_start_matches("$ ");
    let mut shell = Command::new("sh");
    shell.args(["-euc", command]).current_dir(directory);
    let path = std::env::var("PATH").unwrap_or_default();
    shell.env("PATH", format!("{}:{path}", home.join("bin").display()));
    shell.env("JAVA_HOME", home).env("WEIR_LIBRARY", library);
    Ok(match finish(&mut shell) {
        Ok(printed) if printed == want.as_bytes() => Verdict::Passed,
        Ok(printed) => Verdict::Failed(format!("it prints {}", String::from_utf8_lossy(&printed))),
        Err(why) => Verdict::Failed(why),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::cases;
    use crate::wasm::Verdict;

    #[test]
    fn each_case_counts_and_a_report_of_none_is_an_error() {
        let report = concat!(
            "<testsuite><testcase name=\"a\" classname=\"weir.T\" time=\"0\"/>",
            "<testcase name=\"b\" classname=\"weir.T\" time=\"0\"><failure message=\"m\">x</failure></testcase>",
            "<testcase name=\"c\" classname=\"weir.T\" time=\"0\"><skipped message=\"why\"/></testcase></testsuite>",
        );
        let mut reported = Vec::new();
        assert!(
            cases(report, &mut |name, verdict| reported
                .push((name.to_owned(), verdict)))
            .unwrap()
        );
        let [(a, first), (_, second), (_, third)] = &reported[..] else {
            panic!("{reported:?}");
        };
        assert_eq!((a.as_str(), first), ("T a", &Verdict::Passed));
        assert!(matches!(second, Verdict::Failed(_)));
        assert_eq!(third, &Verdict::Skipped("why".to_owned()));
        assert!(cases("<testsuite/>", &mut |_, _| {}).is_err());
    }
}
