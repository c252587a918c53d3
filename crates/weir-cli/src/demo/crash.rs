//! Chapter "kill": a process is killed repeatedly while it writes, and every acknowledged event
//! must remain.
//!
//! `SIGKILL` ends the process but not the kernel, so this shows what a crash of the process loses.
//! The tests of the store simulate a power cut at each sync.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::json;
use weir::{ReadFrom, RecordKind, Weir};

use super::child::{SESSIONS, TOPIC, event, put, writer};
use super::facts::{Facts, seconds};
use super::output::{DemoOutput, check_interrupt, count};
use crate::interrupt::Interrupt;
use crate::scratch::random;

/// Minimum number of verdicts before the writer is killed. A random number below `ANSWERS_SPREAD`
/// is added.
const ANSWERS_MIN: u64 = 150;
const ANSWERS_SPREAD: u64 = 450;
/// Maximum time without output from the writer.
const TIMEOUT: Duration = Duration::from_secs(20);
/// In the end, the number of events of each session is a multiple of this number.
const FINISH_AT: u64 = 100;

/// One verdict: the offset of an event.
#[derive(Clone, Copy, Debug)]
struct Answer {
    session: usize,
    nonce: u64,
    offset: u64,
    kept: bool,
}

/// The acknowledged offsets: for each session, the offset of each nonce from 1 on.
pub(super) type Acknowledged = [Vec<u64>; SESSIONS];

/// Kills a writer a few times, and checks that no acknowledged event is lost.
pub(super) fn kill_writers(
    output: &mut DemoOutput,
    facts: &mut Facts,
    directory: &Path,
    kills: u32,
) -> anyhow::Result<()> {
    output.step("kill", |output| {
        let bar = output.bar("killing", u64::from(kills));
        let mut acknowledged = Acknowledged::default();
        let (mut kept, mut slowest) = (0, Duration::ZERO);
        for _ in 0..kills {
            kept += write_and_kill(directory, &mut acknowledged, output.interrupt())?;
            let start = Instant::now();
            let weir = Weir::open(directory).context("after the kill")?;
            slowest = slowest.max(start.elapsed());
            nothing_lost(&check(&weir, &acknowledged)?)?;
            weir.close()?;
            bar.inc(1);
        }
        let acknowledged_count = acknowledged.iter().map(|offsets| offsets.len() as u64).sum::<u64>();
        let weir = Weir::open(directory)?;
        kept += finish(&weir, &mut acknowledged)?;
        let found = check(&weir, &acknowledged)?;
        weir.close()?;
        bar.finish_and_clear();
        nothing_lost(&found)?;
        let TopicContents { events, lost } = found;
        let in_total: u64 = acknowledged.iter().map(|offsets| offsets.len() as u64).sum();
        ensure!(events == in_total, "{events} events for {in_total} acknowledgements");
        facts.insert(
            "kills".into(),
            json!({"kills": kills, "acknowledged": acknowledged_count, "lost": lost,
                   "kept_answers": kept, "events": events, "open_max_s": seconds(slowest)}),
        );
        let line = format!(
            "writer killed {kills} times with SIGKILL: {} events acknowledged, {lost} lost, 0 duplicated; \
             {kept} unknown outcomes resolved by a retry",
            count(acknowledged_count),
        );
        Ok((line, ()))
    })
}

/// Runs a writer, kills it at a random moment, and records its verdicts. Returns how many of the
/// verdicts were stored ones (`kept`).
fn write_and_kill(
    directory: &Path,
    acknowledged: &mut Acknowledged,
    interrupt: &Interrupt,
) -> anyhow::Result<u64> {
    let program = std::env::current_exe().context("cannot find this program again")?;
    let resume: Vec<String> = acknowledged
        .iter()
        .map(|offsets| (offsets.len() + 1).to_string())
        .collect();
    let mut child = Command::new(program)
        .args(["demo", "--child"])
        .arg(directory)
        .args(["--resume", &resume.join(",")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the writing process")?;
    let output = child.stdout.take().context("the writer has no output")?;
    let (sender, lines) = mpsc::sync_channel(1024);
    let reader = thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            // A line that the kill truncated is no acknowledgement.
            if line.last() != Some(&b'\n') || sender.send(std::mem::take(&mut line)).is_err() {
                break;
            }
        }
    });
    let enough = ANSWERS_MIN + random() % ANSWERS_SPREAD;
    let before = follow(&lines, enough, acknowledged, interrupt);
    // The process must have ended before any error is returned.
    let killed = child.kill();
    let ended = child.wait();
    let kept =
        before.and_then(|kept| Ok(kept + follow(&lines, u64::MAX, acknowledged, interrupt)?));
    drop(lines);
    ensure!(
        reader.join().is_ok(),
        "the reader of the writer's answers panicked"
    );
    let kept = kept?;
    killed.context("cannot kill the writer")?;
    let ended = ended.context("cannot wait for the writer")?;
    let signal = std::os::unix::process::ExitStatusExt::signal(&ended);
    ensure!(
        signal == Some(9),
        "the writer ended before the kill ({ended})"
    );
    Ok(kept)
}

/// Records up to `enough` verdicts. Returns how many of them were stored ones (`kept`).
fn follow(
    lines: &Receiver<Vec<u8>>,
    enough: u64,
    acknowledged: &mut Acknowledged,
    interrupt: &Interrupt,
) -> anyhow::Result<u64> {
    let mut kept = 0;
    for _ in 0..enough {
        check_interrupt(interrupt)?;
        let line = match lines.recv_timeout(TIMEOUT) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                bail!("the writer printed nothing for {} s", TIMEOUT.as_secs())
            }
        };
        let answer = parse(&line).context("the writer printed a line that is not an answer")?;
        kept += u64::from(answer.kept);
        record_verdict(acknowledged, answer)?;
    }
    Ok(kept)
}

fn parse(line: &[u8]) -> Option<Answer> {
    let mut words = std::str::from_utf8(line).ok()?.trim_end().split(' ');
    Some(Answer {
        session: words.next()?.parse().ok()?,
        nonce: words.next()?.parse().ok()?,
        offset: words.next()?.parse().ok()?,
        kept: words.next()? == "kept",
    })
}

/// Records a verdict. The verdicts of a session arrive in the order of their nonces.
fn record_verdict(acknowledged: &mut Acknowledged, answer: Answer) -> anyhow::Result<()> {
    let offsets = acknowledged
        .get_mut(answer.session)
        .context("an answer of a session that does not exist")?;
    let next = offsets.len() as u64 + 1;
    ensure!(
        answer.nonce == next,
        "answer {} instead of {next}",
        answer.nonce
    );
    offsets.push(answer.offset);
    Ok(())
}

/// Repeats the events without a verdict, and writes up to a multiple of `FINISH_AT`. Returns how
/// many of the verdicts were stored ones (`kept`).
fn finish(weir: &Weir, acknowledged: &mut Acknowledged) -> anyhow::Result<u64> {
    let mut all_kept = 0;
    for session in 0..SESSIONS {
        let answered = acknowledged.get(session).map_or(0, Vec::len) as u64;
        let end = (answered + 1).next_multiple_of(FINISH_AT);
        for nonce in answered + 1..=end {
            let (offset, kept) = put(weir, session, nonce)?;
            all_kept += u64::from(kept);
            record_verdict(
                acknowledged,
                Answer {
                    session,
                    nonce,
                    offset,
                    kept,
                },
            )?;
        }
    }
    Ok(all_kept)
}

/// Result of the comparison of the topic with the acknowledged events.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopicContents {
    pub(super) events: u64,
    /// Acknowledged events that are not at their offset.
    lost: u64,
}

pub(super) fn nothing_lost(found: &TopicContents) -> anyhow::Result<()> {
    let lost = found.lost;
    ensure!(
        lost == 0,
        "{lost} acknowledged events are not at the offset that was acknowledged"
    );
    Ok(())
}

/// Reads the topic from its start, and compares it with the acknowledged events. Fails if an event
/// occurs twice, or a session has a gap.
pub(super) fn check(weir: &Weir, acknowledged: &Acknowledged) -> anyhow::Result<TopicContents> {
    let clients: Vec<_> = (0..SESSIONS).map(writer).collect::<Result<_, _>>()?;
    let mut found = Acknowledged::default();
    for page in weir.topic(TOPIC)?.pages(ReadFrom::Start)? {
        for record in &page? {
            let record = record?;
            if record.kind == RecordKind::Create {
                continue;
            }
            let session = clients.iter().position(|client| *client == record.client);
            let session = session.context("an event of a writer that does not exist")?;
            let offsets = found.get_mut(session).context("a session")?;
            let nonce = offsets.len() as u64 + 1;
            ensure!(
                record.nonce == nonce,
                "event {} of writer {session} instead of {nonce}: one is missing or stored twice",
                record.nonce
            );
            let (key, value) = event(session, nonce);
            ensure!(
                record.key == key.as_bytes() && record.value == value.as_bytes(),
                "event {nonce} of writer {session} has other bytes"
            );
            offsets.push(record.offset.0);
        }
    }
    let mut lost = 0;
    for (acknowledged, found) in acknowledged.iter().zip(&found) {
        let present = acknowledged
            .iter()
            .zip(found)
            .filter(|(acknowledged, found)| acknowledged == found);
        lost += acknowledged.len() as u64 - present.count() as u64;
    }
    let events = found.iter().map(|offsets| offsets.len() as u64).sum();
    Ok(TopicContents { events, lost })
}
