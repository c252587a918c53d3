//! `weir put`: one record, or one for each line of input.

mod item;
mod lines;

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Args;
use twox_hash::XxHash3_64;
use weir::{ClientId, ErrorCode, Expect, Intention, Operation, Outcome, Topic, Weir};

use crate::cli::Caller;
use crate::key::{self, KeyArgs};
use crate::output::Shape;
use crate::place::{self, Access};
use crate::report::{self, Answered, Because, Failure, note};
use crate::verdict;

pub(crate) use item::{Item, Items, Wrong};

#[derive(Debug, Args)]
#[command(after_long_help = "\
Without --key the record has no key. With `-`, or when VALUE is left out and the input is not a
terminal, each line of input is a record; with --jsonl each line is an object with `key` or
`key64`, `value`, `text` or `value64`, `meta`, `delete` and `expect`, whose members are `offset`,
`absent`, `present`, `topic_offset` and `topic_empty`; conditions of the command hold for each
line besides its own.

Examples:
  weir put orders '{\"id\":1}'
  weir put orders '{\"id\":2,\"state\":\"open\"}' --key 2 --if-absent
  weir put blobs --key-hex 00ff 'any bytes'
  printf '{\"key\":\"a\",\"value\":1}\\n{\"key\":\"b\",\"value\":2}\\n' | weir put things - --jsonl")]
#[allow(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(crate) struct PutArgs {
    /// Topic to write to; it is made when it is not there
    topic: String,
    /// The value, `@FILE` for the content of a file, or `-` for lines of input
    #[arg(allow_hyphen_values = false)]
    value: Option<OsString>,
    #[command(flatten)]
    key: KeyArgs,
    /// Metadata kept with the record, at most 4 KiB
    #[arg(long, value_name = "TEXT")]
    meta: Option<String>,
    /// Each line of input is a JSON object with key, value and conditions
    #[arg(long)]
    jsonl: bool,
    /// Records of input that are sent together
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Name of a session: with --nonce, a repeated call is answered, not executed again
    #[arg(long, value_name = "NAME", requires = "nonce")]
    session: Option<String>,
    /// Number of this write in its session, from 1 on without gap
    #[arg(long, value_name = "N", requires = "session")]
    nonce: Option<u64>,
    /// Do not make the topic
    #[arg(long)]
    no_create: bool,
    /// Exit with 0 even if the verdict is not VALID
    #[arg(long)]
    accept_invalid: bool,
    #[command(flatten)]
    conditions: Conditions,
}

/// Conditions on the state that the write meets.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Conditions")]
#[allow(
    clippy::struct_field_names,
    reason = "they are named after the options"
)]
pub(crate) struct Conditions {
    /// Only if the key's value was written at this offset
    #[arg(long, value_name = "N")]
    if_offset: Option<u64>,
    /// Only if the key has no value
    #[arg(long)]
    if_absent: bool,
    /// Only if the key has a value
    #[arg(long)]
    if_present: bool,
    /// Only if the last record of the topic has this offset
    #[arg(long, value_name = "N")]
    if_topic_offset: Option<u64>,
}

impl Conditions {
    /// The conditions for an intention with a key of its own.
    pub(crate) fn list(&self) -> Vec<Expect<'static>> {
        let mut list = Vec::new();
        list.extend(self.if_offset.map(|n| Expect::KeyOffset(None, n)));
        list.extend(self.if_absent.then_some(Expect::KeyAbsent(None)));
        list.extend(self.if_present.then_some(Expect::KeyPresent(None)));
        list.extend(self.if_topic_offset.map(Expect::TopicOffset));
        list
    }
}

/// Carries out `weir put`.
pub(crate) fn run(caller: &Caller, args: &PutArgs) -> anyhow::Result<ExitCode> {
    let dash = args.value.as_deref() == Some(OsStr::new("-"));
    let piped = args.value.is_none() && !std::io::stdin().is_terminal();
    if dash || piped {
        return lines::run(caller, args);
    }
    let Some(text) = &args.value else {
        return Err(usage("there is no VALUE to put"));
    };
    let Some(out) = caller.style.open(Shape::One, verdict::FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let value = key::value(text)?;
    let weir = place::open(caller, Access::Write)?;
    let topic = ensure(caller, &weir, &args.topic, args.no_create)?;
    let expect = args.conditions.list();
    let key = args.key.bytes().unwrap_or_default();
    let operation = Operation::Put { key, value: &value };
    let mut intention = Intention::new(&args.topic, operation).expecting(&expect);
    intention.meta = args.meta.as_deref().unwrap_or_default().as_bytes();
    if let Some((client, nonce)) = session(args) {
        intention = intention.under(client, nonce);
    }
    let failed = || format!("cannot put into {}", topic.name());
    let outcome = one(&weir, intention, failed)?;
    let exit = answer(out, &weir, &args.topic, &outcome, args.accept_invalid)?;
    weir.close().failed(failed)?;
    Ok(exit)
}

/// Sends one intention and waits for its outcome.
pub(crate) fn one(
    weir: &Weir,
    intention: Intention<'_>,
    what: impl Fn() -> String,
) -> anyhow::Result<Outcome> {
    let again = if intention.nonce > 0 {
        "run the same command again: the session tells, and nothing is done twice"
    } else {
        "open the store again and look whether it is there, before it is sent again"
    };
    let answer = if intention.nonce > 0 {
        // A server numbers what comes on the connection of a session.
        let mut session = weir.session(intention.client);
        session.try_next_nonce().failed(&what)?;
        session.resume(intention.nonce);
        let pending = session.send(&[intention]).failed(&what)?;
        pending.into_proposal().wait()
    } else {
        weir.propose(&[intention]).failed(&what)?.wait()
    };
    let outcomes = answer.answered(&what, again)?;
    let first = outcomes.iter().next();
    Ok(first.ok_or_else(|| Failure::new(ErrorCode::Internal, what()))?)
}

/// Prints an outcome and gives the exit code it stands for, whether or not
/// anybody reads what is printed.
pub(crate) fn answer(
    mut out: crate::output::Output,
    weir: &Weir,
    topic: &str,
    outcome: &Outcome,
    accept_invalid: bool,
) -> anyhow::Result<ExitCode> {
    let commit = match outcome {
        Outcome::Committed(commit) | Outcome::Replayed(commit) => commit,
        Outcome::Refused { code, expected } => {
            let what = format!("the intention for {topic} was refused");
            let why = format!("{} (next nonce: {expected})", code.sentence());
            return Err(Failure::new(*code, what).because(why).into());
        }
    };
    let replayed = matches!(outcome, Outcome::Replayed(_));
    let row = verdict::row(topic, commit, replayed);
    let printed = out.row(&row).and_then(|()| out.finish());
    match verdict::failure_in(weir, topic, commit) {
        Some(failure) if !accept_invalid => {
            report::tell(&failure);
            Ok(ExitCode::from(verdict::NOT_VALID))
        }
        _ => printed.map(|()| ExitCode::SUCCESS),
    }
}

/// The topic, made if that is needed and allowed.
pub(crate) fn ensure(
    caller: &Caller,
    weir: &Weir,
    name: &str,
    no_create: bool,
) -> anyhow::Result<Topic> {
    let topic = weir
        .topic(name)
        .failed(|| format!("cannot use topic {name}"))?;
    if !no_create {
        let made = topic
            .ensure()
            .failed(|| format!("cannot make topic {name}"))?;
        if made {
            note(caller.quiet, &format!("made topic {name}"));
        }
    }
    Ok(topic)
}

/// The client id and nonce of `--session` and `--nonce`.
fn session(args: &PutArgs) -> Option<(ClientId, u64)> {
    let name = args.session.as_ref()?;
    Some((client_id(&["session", name]), args.nonce?))
}

/// A client id that is always the same for the same words.
pub(crate) fn client_id(words: &[&str]) -> ClientId {
    let mut bytes = Vec::new();
    for word in words {
        bytes.extend_from_slice(&(word.len() as u64).to_le_bytes());
        bytes.extend_from_slice(word.as_bytes());
    }
    let mut id = [0; 16];
    for (seed, half) in (1..).zip(id.chunks_mut(8)) {
        let hash = XxHash3_64::oneshot_with_seed(seed, &bytes);
        half.copy_from_slice(&hash.to_le_bytes());
    }
    ClientId(id)
}

/// A usage error of a command.
pub(crate) fn usage(why: &str) -> anyhow::Error {
    let error = clap::Error::raw(
        clap::error::ErrorKind::MissingRequiredArgument,
        format!("{why}\n"),
    );
    anyhow::Error::new(error)
}

/// A line or item of input that cannot be used.
pub(crate) fn bad_line(line: u64, column: u64, why: &str) -> Failure {
    let what = format!("line {line} column {column} of the input cannot be used");
    Failure::new(ErrorCode::BadLine, what).because(why)
}

/// A line of input that is no object as it should be; `then` says what became
/// of the others.
pub(crate) fn bad_text(line: u64, wrong: &Wrong, then: &str) -> Failure {
    let (line, column) = wrong.place(line, 1);
    bad_line(line, column, &wrong.why).advise(format!("correct it there; {then}"))
}
