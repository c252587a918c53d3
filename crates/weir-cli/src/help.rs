//! `weir help`: commands, error codes, exit codes, guides.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use weir::{ErrorCode, ErrorFault, ErrorRetry};

use crate::report;

/// A guide of docs/, compiled into the command.
macro_rules! guide {
    ($name:literal, $about:literal, $file:literal) => {
        (
            $name,
            $about,
            include_str!(concat!("../../../docs/", $file, ".md")),
        )
    };
}

/// The text that explains the exit codes.
const EXITS: &str = "\
0    success
1    failure: for example an input or output error, or an invalid line
2    usage error: an option or argument is missing or invalid
3    the verdict was not VALID (--accept-invalid turns this off)
4    not found
5    temporary failure, retry later: busy, locked, disk full
6    the outcome of a write is unknown
7    the caller is not authenticated or lacks a right
65   the input of a query is not valid
70   internal error: a bug in Weir
130  interrupted
141  the reader closed standard output (SIGPIPE)

verify, topic verify, repair, backup, restore and serve use these codes for a store:
65   damaged data
69   no leader, or the server is not reachable
73   cannot create: the target is not empty
74   a read or write failed
75   another process has the store open or uses the port
77   not permitted
78   the path, address, version or configuration is wrong
";

/// The guides: name, subject, text.
const GUIDES: &[(&str, &str, &str)] = &[
    guide!(
        "first-steps",
        "write, read and follow in a Rust program",
        "guide/first-steps"
    ),
    guide!(
        "query",
        "filter, order and aggregate files and topics",
        "guide/query"
    ),
    guide!(
        "groups",
        "work queues: lease, redelivery, dead letters",
        "guide/groups"
    ),
    guide!(
        "programs",
        "reject invalid writes with a program",
        "guide/programs"
    ),
    guide!(
        "serve",
        "serve a store, and use it over HTTP",
        "guide/serve"
    ),
    guide!(
        "jira",
        "read and edit a replica of a Jira site",
        "guide/jira"
    ),
    guide!("emacs", "use a store in Emacs", "guide/emacs"),
    guide!("lab", "compare the performance of programs", "guide/lab"),
    guide!(
        "promises",
        "what the store guarantees, and how this is tested",
        "operating/promises"
    ),
    guide!("operation", "run a server", "operating/serve"),
    guide!(
        "security",
        "rights, tokens, certificates",
        "operating/security"
    ),
    guide!(
        "cluster",
        "replicate a store on several nodes",
        "operating/cluster"
    ),
    guide!("backup", "copy and restore a store", "operating/backup"),
    guide!(
        "damage",
        "what to do with a damaged store",
        "operating/damage"
    ),
    guide!("growth", "disk and memory", "operating/growth"),
    guide!("clocks", "the effects of a wrong clock", "operating/clocks"),
    guide!("metrics", "the metrics of a server", "operating/metrics"),
];

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir help put
  weir help topic create
  weir help E104
  weir help errors
  weir help exit
  weir help guide
  weir help guide query")]
pub(crate) struct HelpArgs {
    /// A command, an error code such as E104, `errors`, `exit`, `guide`, or `guide` and a name
    words: Vec<String>,
}

/// Runs `weir help`.
pub(crate) fn run(args: &HelpArgs, grammar: clap::Command) -> anyhow::Result<ExitCode> {
    let text = match args.words.as_slice() {
        [word] if word == "exit" => EXITS.to_owned(),
        [word] if word == "errors" => errors(),
        [word] if word == "guide" => guides(),
        [word, name] if word == "guide" => guide(name)?.to_owned(),
        [word] if error_code(word).is_some() => error_code(word).map(explain).unwrap_or_default(),
        [word] if looks_like_code(word) => {
            let text = format!(
                "there is no error code {word}; codes are E and three digits, as in `weir help E104`\n"
            );
            let kind = clap::error::ErrorKind::InvalidValue;
            return Err(clap::Error::raw(kind, text).into());
        }
        words => command(grammar, words)?,
    };
    report::stdout(std::io::stdout().write_all(text.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether `word` has the form of an error code: E, then only digits.
fn looks_like_code(word: &str) -> bool {
    word.strip_prefix(['E', 'e']).is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn error_code(word: &str) -> Option<ErrorCode> {
    let number = word
        .strip_prefix(['E', 'e'])
        .and_then(|digits| digits.parse().ok());
    let by_name = || {
        (100..1000)
            .filter_map(ErrorCode::from_number)
            .find(|code| code.name() == word)
    };
    number.and_then(ErrorCode::from_number).or_else(by_name)
}

/// Lists the guides with their subjects.
fn guides() -> String {
    let mut text = "Guides, printed by `weir help guide NAME`:\n".to_owned();
    for (name, about, _) in GUIDES {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:13}{about}");
    }
    text
}

fn guide(name: &str) -> anyhow::Result<&'static str> {
    let found = GUIDES.iter().find(|(title, _, _)| *title == name);
    let Some((_, _, text)) = found else {
        let text = format!("there is no guide {name}; `weir help guide` lists the guides\n");
        let kind = clap::error::ErrorKind::InvalidValue;
        return Err(clap::Error::raw(kind, text).into());
    };
    Ok(text)
}

/// Lists every error code with its name.
fn errors() -> String {
    let mut text = "Error codes, explained by `weir help CODE`:\n".to_owned();
    for code in (100..1000).filter_map(ErrorCode::from_number) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  E{}  {}", code.number(), code.name());
    }
    text
}

fn explain(code: ErrorCode) -> String {
    let mut text = format!(
        "E{} {}\n\n{}\n",
        code.number(),
        code.name(),
        code.sentence()
    );
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\nTry: {}", code.advice());
    let fault = match code.fault() {
        ErrorFault::Caller => "the caller",
        ErrorFault::Peer => "the other side of the connection",
        ErrorFault::Environment => "disk, network, operating system or load",
        ErrorFault::Us => "a bug in Weir",
    };
    let retry = match code.retry() {
        ErrorRetry::Yes => "may succeed at once",
        ErrorRetry::After => "may succeed later, or after the advice is followed",
        ErrorRetry::No => "fails again",
    };
    let _ = writeln!(text, "\ncaused by     {fault}\nretry         {retry}");
    let (exit, store) = (code.exit_code(), code.exit_code_store());
    let _ = writeln!(
        text,
        "exit code     {exit} ({store} from serve, verify, repair, backup, restore)"
    );
    text
}

/// Whether two words differ in one letter, or in the order of two adjacent letters.
pub(crate) fn is_similar(typed: &str, name: &str) -> bool {
    let (mut typed, mut name) = (typed.as_bytes(), name.as_bytes());
    while let ([a, left @ ..], [b, right @ ..]) = (typed, name)
        && a == b
    {
        (typed, name) = (left, right);
    }
    while let ([left @ .., a], [right @ .., b]) = (typed, name)
        && a == b
    {
        (typed, name) = (left, right);
    }
    match (typed, name) {
        ([a, b], [c, d]) => (a, b) == (d, c),
        (typed, name) => typed.len() <= 1 && name.len() <= 1,
    }
}

fn command(mut command: clap::Command, words: &[String]) -> anyhow::Result<String> {
    command.build();
    let mut at = &mut command;
    for (depth, word) in words.iter().enumerate() {
        let names: Vec<String> = at
            .get_subcommands()
            .map(|sub| sub.get_name().to_owned())
            .collect();
        let Some(next) = names.iter().position(|name| name == word) else {
            let text = if names.is_empty() {
                let known = words.get(..depth).unwrap_or_default().join(" ");
                format!("`weir {known}` has no subcommands; `weir help {known}` describes it\n")
            } else {
                let near = names.iter().find(|name| is_similar(word, name));
                let near = near.map_or(" ".to_owned(), |name| format!(" did you mean {name}?\n"));
                format!(
                    "there is no command {word};{near}the commands are: {}\n`weir help guide` lists the guides, `weir help errors` the error codes\n",
                    names.join(" ")
                )
            };
            let kind = clap::error::ErrorKind::InvalidSubcommand;
            return Err(clap::Error::raw(kind, text).into());
        };
        at = at
            .get_subcommands_mut()
            .nth(next)
            .unwrap_or_else(|| unreachable!("just seen"));
    }
    Ok(at.render_long_help().to_string())
}

#[cfg(test)]
mod tests {
    use super::is_similar;

    #[test]
    fn words_with_one_difference_are_similar() {
        for (typed, name) in [
            ("gte", "get"),
            ("topics", "topic"),
            ("tpic", "topic"),
            ("tail", "tails"),
            ("pot", "put"),
            ("sl", "ls"),
        ] {
            assert!(is_similar(typed, name), "{typed} {name}");
        }
        for (typed, name) in [("gte", "put"), ("", "ls"), ("teg", "get"), ("x", "ls")] {
            assert!(!is_similar(typed, name), "{typed} {name}");
        }
    }
}
