//! `weir help`: commands, error codes, exit codes.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use weir::ErrorCode;

use crate::report;

/// The exit codes, in words.
const EXITS: &str = "\
0    done
1    failed: input or output, a line that cannot be used
2    usage: the command line makes no sense
3    the verdict was not VALID (--accept-invalid turns this off)
4    not found
5    refused, may succeed later: busy, locked, disk full
6    outcome unknown
7    not allowed
70   internal error, a mistake of ours
130  interrupted

verify, topic verify, repair, backup, restore and serve say more about a store:
65   damaged data
73   cannot create: the target is not empty
74   a read or write failed
75   another process has the store open, or the port
77   not permitted
78   wrong place, version or configuration
";

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  weir help put
  weir help topic create
  weir help E104
  weir help exit")]
pub(crate) struct HelpArgs {
    /// A command, an error code such as E104, or `exit`
    words: Vec<String>,
}

/// Carries out `weir help`.
pub(crate) fn run(args: &HelpArgs, grammar: clap::Command) -> anyhow::Result<ExitCode> {
    let text = match args.words.as_slice() {
        [word] if word == "exit" => EXITS.to_owned(),
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

/// Whether `word` is written as an error code: E and digits alone.
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

fn explain(code: ErrorCode) -> String {
    let mut text = format!(
        "E{} {}\n\n{}\n",
        code.number(),
        code.name(),
        code.sentence()
    );
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\nTry: {}", code.advice());
    let fault = format!("{:?}", code.fault()).to_lowercase();
    let retry = format!("{:?}", code.retry()).to_lowercase();
    let _ = writeln!(text, "\nwhose doing   {fault}\nsame again    {retry}");
    let (exit, store) = (code.exit_code(), code.exit_code_store());
    let _ = writeln!(
        text,
        "exit code     {exit} ({store} from serve, verify, repair, backup, restore)"
    );
    text
}

fn command(mut command: clap::Command, words: &[String]) -> anyhow::Result<String> {
    command.build();
    let mut at = &mut command;
    for word in words {
        let known: Vec<String> = at
            .get_subcommands()
            .map(|sub| sub.get_name().to_owned())
            .collect();
        let Some(next) = known.iter().position(|name| name == word) else {
            let text = format!(
                "there is no command {word}; there are: {}\n",
                known.join(" ")
            );
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
