//! The process that the demo kills: three sessions, each of which writes one event at a time and
//! prints each verdict when it arrives.
//!
//! Each verdict is printed as the line `SESSION NONCE OFFSET HOW`. `HOW` is `new`, or `kept` for
//! the stored verdict of a repeated nonce.
//!
//! Invariants:
//! - A line is printed only after its verdict has arrived.
//! - Lines are not interleaved.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, ensure};
use weir::{ClientId, Intention, Operation, Weir};

use super::write::{client, join};

/// Concurrent sessions that write.
pub(super) const SESSIONS: usize = 3;
/// The topic that the sessions write to.
pub(super) const TOPIC: &str = "readings";

/// Writes until the process is killed, or its output is closed.
pub(super) fn run(directory: &Path, first: &[u64]) -> anyhow::Result<ExitCode> {
    ensure!(first.len() == SESSIONS, "--resume needs {SESSIONS} nonces");
    let weir = Weir::open(directory)?;
    weir.topic(TOPIC)?.ensure()?;
    thread::scope(|scope| {
        let writers: Vec<_> = first
            .iter()
            .enumerate()
            .map(|(session, first)| {
                let weir = &weir;
                scope.spawn(move || write(weir, session, *first))
            })
            .collect();
        writers.into_iter().try_for_each(join)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn write(weir: &Weir, session: usize, first: u64) -> anyhow::Result<()> {
    for nonce in first.. {
        let (offset, kept) = put(weir, session, nonce)?;
        let how = if kept { "kept" } else { "new" };
        let line = format!("{session} {nonce} {offset} {how}\n");
        if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
            break;
        }
    }
    Ok(())
}

/// Writes the event of a nonce. Returns its offset, and whether the store had already executed it.
pub(super) fn put(weir: &Weir, session: usize, nonce: u64) -> anyhow::Result<(u64, bool)> {
    let (key, value) = event(session, nonce);
    let operation = Operation::Put {
        key: key.as_bytes(),
        value: value.as_bytes(),
    };
    let mut writer = weir.session(writer(session)?);
    writer.resume(nonce);
    let verdicts = writer.execute(&[Intention::new(TOPIC, operation)])?;
    let verdict = verdicts.first().context("no verdict")?;
    let offset = verdict.offset().context("the event was rejected")?;
    Ok((offset.0, verdict.is_replayed()))
}

/// Client id of a session.
pub(super) fn writer(session: usize) -> anyhow::Result<ClientId> {
    Ok(client(u8::try_from(session)?))
}

/// Key and value of the event with this nonce; a pure function of its arguments.
pub(super) fn event(session: usize, nonce: u64) -> (String, String) {
    let key = format!("station-{session}.{nonce:06}");
    let value = format!(r#"{{"station":{session},"reading":{nonce}}}"#);
    (key, value)
}
