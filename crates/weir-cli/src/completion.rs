//! `weir completion`: scripts that complete commands, options and the names of topics.
//!
//! The script of a shell runs `weir` with `COMPLETE=SHELL` and the typed words. Invariant: a
//! completion prints candidates only, writes nothing, and ends within `WAIT`.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::Shells;
use weir::Weir;

use crate::caller::Caller;
use crate::place::{self, Access, Location};
use crate::report;

/// The function that bash calls. It calls the function of the completer.
const BASH: &str = r#"# bash splits a word at `:` and `=`. This function joins such parts. bash replaces only the last part,
# so the function removes the beginning of the candidates.
_weir() {
    local words=() index=0 prefix= at
    for at in "${!COMP_WORDS[@]}"; do
        if ((at > 0)) && [[ ${COMP_WORDS[at]} == [:=]* || ${COMP_WORDS[at - 1]} == *[:=] ]]; then
            words[${#words[@]} - 1]+=${COMP_WORDS[at]}
        else
            words+=("${COMP_WORDS[at]}")
        fi
        if ((at == COMP_CWORD)); then
            index=$((${#words[@]} - 1))
            prefix=${words[index]}
            [[ $prefix == *[:=] ]] || prefix=${prefix%"${COMP_WORDS[at]}"}
        fi
    done
    local COMP_WORDS=("${words[@]}") COMP_CWORD=$index
    _clap_complete_weir "$1" "$prefix$2"
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}
"#;

/// Maximum wait of a completion for the names of topics.
pub(crate) const WAIT: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(after_long_help = "\
The script completes commands, options and the names of topics. Topics are those of the store that
the typed command would use: --at, WEIR_AT, the context, or ./weir-data.

To install it in bash, add `source <(weir completion bash)` to ~/.bashrc.

Examples:
  weir completion bash > weir.bash
  weir completion zsh > _weir
  weir completion fish > weir.fish")]
pub(crate) struct CompletionArgs {
    /// Shell that reads the script
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs `weir completion`.
pub(crate) fn run(args: &CompletionArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    let shell = args.shell.to_string();
    let shells = Shells::builtins();
    let completer = shells.completer(&shell);
    let completer = completer.unwrap_or_else(|| unreachable!("each shell has one"));
    completer.write_registration("COMPLETE", "weir", "weir", "weir", &mut script)?;
    let mut script = String::from_utf8(script)?;
    if args.shell == Shell::Bash {
        script = BASH.to_owned() + &script.replace("-F _clap_complete_weir", "-F _weir");
    }
    report::stdout(std::io::stdout().write_all(script.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the words of an incomplete command, and resolves the store that it would use.
pub(crate) type ReadCaller = fn(&[OsString]) -> anyhow::Result<Caller>;

/// Completes the arguments with the value name TOPIC by the names of topics.
pub(crate) fn with_topics(command: clap::Command, caller: ReadCaller) -> clap::Command {
    let command = command.mut_args(|arg| {
        let names = arg.get_value_names().unwrap_or_default();
        if names.iter().any(|name| name == "TOPIC") {
            arg.add(ArgValueCompleter::new(move |typed: &OsStr| {
                topics(typed, caller)
            }))
        } else {
            arg
        }
    });
    command.mut_subcommands(|sub| with_topics(sub, caller))
}

/// Names of topics that begin with `typed`. Empty if they cannot be read within `WAIT`.
fn topics(typed: &OsStr, caller: ReadCaller) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else {
        return Vec::new();
    };
    // The words of the command come after the separator of the completer.
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    let words = words.collect::<Vec<_>>();
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        // The receiver no longer exists if the names come too late.
        let _ = send.send(caller(&words).ok().and_then(|caller| names(&caller)));
    });
    let names = receive.recv_timeout(WAIT).unwrap_or(None);
    let mut names = names.unwrap_or_default();
    names.retain(|name| name.starts_with(typed));
    names.into_iter().map(CompletionCandidate::new).collect()
}

fn names(caller: &Caller) -> Option<Vec<String>> {
    let weir = match place::location(caller).ok()? {
        // Without a lock, so that a completion blocks no other process.
        Location::Directory(at) => Weir::open_read_only(at).ok()?,
        Location::Server(_) => place::open(caller, Access::Read).ok()?,
    };
    let topics = weir.topics(false).ok()?;
    Some(topics.into_iter().map(|topic| topic.name).collect())
}
