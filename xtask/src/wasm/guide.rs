//! Runs the guide to programs unchanged: each `console` block in one shell, in an empty folder. The
//! output of each command is compared with the page.
//!
//! Invariant: the complete output is compared, except blanks at line ends.

use super::finish;
use super::language::CHANGE_MODULES;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// The page.
pub(super) const GUIDE: &str = "docs/guide/programs.md";

/// Precedes the output of each command.
const MARK: &str = "=== weir guide command ===";

/// A command of the page, and its printed output.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    command: String,
    printed: String,
}

/// Runs the page in the empty `directory`, with `weir` as the command of that name.
pub(super) fn run(weir: &Path, directory: &Path) -> Result<(), String> {
    let page = crate::tree::text(GUIDE).map_err(|error| format!("{error:#}"))?;
    let steps = steps(&page);
    if steps.is_empty() {
        return Err(format!("{GUIDE} has no commands"));
    }
    std::fs::create_dir_all(directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut script = "exec 2>&1\n".to_owned();
    for step in &steps {
        script.extend(["echo '", MARK, "'\n", &step.command, "\n"]);
    }
    script.push_str("true\n");
    let mut shell = shell(weir, directory);
    let printed = finish(shell.args(["-c", &script])).map_err(|_| "the shell failed".to_owned())?;
    compare(&steps, &String::from_utf8_lossy(&printed))
}

/// A shell in `directory`, with `weir` as the command of that name.
pub(super) fn shell(weir: &Path, directory: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.current_dir(directory);
    shell.env("PATH", path_with(weir)).env("LC_ALL", "C");
    for name in CHANGE_MODULES.iter().chain(&["WEIR_AT", "WEIR_OUTPUT"]) {
        shell.env_remove(name);
    }
    shell
}

/// The search path, with the folder of `weir` first.
fn path_with(weir: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = weir.parent().map(Path::to_path_buf);
    let all = own.into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(all).unwrap_or(path)
}

/// The commands of all `console` blocks, in order. A line with `>` continues a command.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
            continue;
        }
        if !inside {
            continue;
        }
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                command: command.to_owned(),
                printed: String::new(),
            });
        } else if let Some(step) = steps.last_mut() {
            let (to, line) = match line.strip_prefix('>') {
                Some(more) => (&mut step.command, format!("\n{}", more.trim_start())),
                None => (&mut step.printed, format!("{}\n", line.trim_end())),
            };
            to.push_str(&line);
        }
    }
    steps
}

fn compare(steps: &[Step], printed: &str) -> Result<(), String> {
    let mark = format!("{MARK}\n");
    let mut parts = printed.split(&mark).skip(1);
    for step in steps {
        let part = parts.next().unwrap_or_default();
        let lines: Vec<&str> = part.lines().map(str::trim_end).collect();
        let expected: Vec<&str> = step.printed.lines().collect();
        if lines != expected {
            return Err(format!(
                "{GUIDE}: `{}` printed\n{part}instead of\n{}",
                step.command, step.printed
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{MARK, compare, steps};

    #[test]
    fn a_page_is_parsed_into_commands_and_outputs() {
        let page =
            "text\n```sh\n$ not this\n```\n```console\n$ cat <<END\n> a\n> END\na\n$ true\n```\n";
        let steps = steps(page);
        let read: Vec<_> = steps
            .iter()
            .map(|step| (step.command.as_str(), step.printed.as_str()))
            .collect();
        assert_eq!(read, [("cat <<END\na\nEND", "a\n"), ("true", "")]);
        assert!(compare(&steps, &format!("{MARK}\na  \n{MARK}\n")).is_ok());
        assert!(compare(&steps, &format!("{MARK}\nb\n{MARK}\n")).is_err());
        assert!(compare(&steps, &format!("{MARK}\na\n{MARK}\nmore\n")).is_err());
        assert!(compare(&steps, "").is_err());
    }
}
