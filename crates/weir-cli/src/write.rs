//! Sends one write, and prints its verdict.

use std::process::ExitCode;

use clap::Args;
use twox_hash::XxHash3_64;
use weir::{ClientId, ErrorCode, Expect, Intention, Operation, Outcome, Topic, Weir};

use crate::caller::Caller;
use crate::output::{Output, Shape};
use crate::report::{self, Failure, FailureContext, OutcomeContext, note};
use crate::verdict;

/// Conditions on the state before the write.
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
    /// The conditions for an intention that has its own key.
    pub(crate) fn list(&self) -> Vec<Expect<'static>> {
        let mut list = Vec::new();
        list.extend(self.if_offset.map(|n| Expect::KeyOffset(None, n)));
        list.extend(self.if_absent.then_some(Expect::KeyAbsent(None)));
        list.extend(self.if_present.then_some(Expect::KeyPresent(None)));
        list.extend(self.if_topic_offset.map(Expect::TopicOffset));
        list
    }
}

/// Sends one intention and waits for its outcome.
pub(crate) fn propose_one(
    weir: &Weir,
    intention: Intention<'_>,
    what: impl Fn() -> String,
) -> anyhow::Result<Outcome> {
    let again = if intention.nonce > 0 {
        "run the same command again: its session prevents a second execution"
    } else {
        "before you repeat the command, read the store to check whether the change was executed"
    };
    let answer = if intention.nonce > 0 {
        // A server numbers the writes on the connection of a session.
        let mut session = weir.session(intention.client);
        session.try_next_nonce().failed(&what)?;
        session.resume(intention.nonce);
        let pending = session.send_inline(&[intention]).failed(&what)?;
        pending.into_proposal().wait()
    } else {
        weir.propose_inline(&[intention]).failed(&what)?.wait()
    };
    let outcomes = answer.answered(&what, again)?;
    let first = outcomes.iter().next();
    Ok(first.ok_or_else(|| Failure::new(ErrorCode::Internal, what()))?)
}

/// Prints an outcome and returns its exit code, even if standard output is closed.
pub(crate) fn answer(
    mut out: Output,
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
            report::print_failure(&failure);
            Ok(ExitCode::from(verdict::NOT_VALID))
        }
        _ => printed.map(|()| ExitCode::SUCCESS),
    }
}

/// Returns the topic. Creates it if that is necessary and allowed.
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
        let created = topic
            .ensure()
            .failed(|| format!("cannot create topic {name}"))?;
        if created {
            note(caller.quiet, &format!("created topic {name}"));
        }
    }
    Ok(topic)
}

/// Executes one operation on a topic, and prints the verdict.
pub(crate) fn change(
    caller: &Caller,
    weir: &Weir,
    name: &str,
    operation: Operation<'_>,
) -> anyhow::Result<ExitCode> {
    let Some(out) = caller.style.open(Shape::One, verdict::FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let failed = || format!("cannot change topic {name}");
    weir.topic(name).failed(failed)?;
    let outcome = propose_one(weir, Intention::new(name, operation), failed)?;
    answer(out, weir, name, &outcome, false)
}

/// A client id derived from the words; equal words give equal ids.
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
