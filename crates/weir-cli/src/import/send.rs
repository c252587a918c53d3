//! Sends items under a session, with several pending batches.

use std::collections::VecDeque;
use std::path::Path;

use twox_hash::XxHash3_64;
use weir::{
    ClientId, ErrorCode, Intention, Pending, Proposal, ReadFrom, Session, Verdict, Weir, WeirError,
};

use super::ImportArgs;
use super::item_validator::UsableItem;
use crate::bytes::hex;
use crate::item::Items;
use crate::report::{Failure, FailureContext, OutcomeContext, print_line};
use crate::verdict;
use crate::write::client_id;

/// Bytes after which a batch is sent.
const BATCH_BYTES: usize = 1 << 20;
/// Maximum number of pending batches.
const PENDING_MAX: usize = 8;
/// Maximum number of imports (with `--again`) of one file into one incarnation of a topic.
const RUNS_MAX: u32 = 1000;
/// Maximum number of verdicts other than VALID that are explained individually.
const EXPLAINED_MAX: u64 = 3;

/// Counts of an import.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Items that this run has written.
    pub(super) imported: u64,
    /// Items that an earlier run has written.
    pub(super) already: u64,
    /// Unusable items.
    pub(super) broken: u64,
    /// Items whose verdict is not VALID.
    pub(super) rejected: u64,
    /// Bytes read.
    pub(super) bytes: u64,
}

/// Sends items.
pub(super) struct Sender<'a> {
    weir: &'a Weir,
    args: &'a ImportArgs,
    /// `None` for an input that cannot be read again.
    session: Option<Session>,
    /// Nonce of the last item that was already written when this run began.
    last: u64,
    /// Nonce of the newest item.
    nonce: u64,
    /// Hash over all items so far.
    chain: u64,
    items: Items,
    /// The chain after each item of the batch.
    chains: Vec<u64>,
    /// Lines of the items of the batch.
    lines: Vec<u64>,
    sent: VecDeque<SentBatch>,
    counts: Counts,
}

struct SentBatch {
    answer: Answer,
    lines: Vec<u64>,
}

enum Answer {
    Session(Pending),
    WithoutSession(Proposal),
}

/// The error for an input that differs from the one imported before.
pub(super) fn changed_input(file: &Path) -> Failure {
    let what = format!(
        "{} differs from the file that earlier runs imported",
        file.display()
    );
    Failure::new(ErrorCode::SourceChanged, what)
        .advise("give the original file, or import the new file from its beginning with --again")
}

impl<'a> Sender<'a> {
    /// Resumes the session of the file, or starts one.
    pub(super) fn new(
        weir: &'a Weir,
        args: &'a ImportArgs,
        identity: Option<&str>,
    ) -> anyhow::Result<Self> {
        let session = identity.map(|path| session(weir, args, path)).transpose()?;
        let last = match &session {
            Some(session) => number(session)?,
            None => 0,
        };
        if let Some(session) = session.as_ref().filter(|_| last == 0)
            && !args.again
        {
            check_session_exists(weir, args, session.client())?;
        }
        Ok(Self {
            last,
            weir,
            args,
            session,
            nonce: 0,
            chain: 0,
            items: Items::default(),
            chains: Vec::new(),
            lines: Vec::new(),
            sent: VecDeque::new(),
            counts: Counts::default(),
        })
    }

    /// Number of items that earlier runs have written.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Counts so far.
    pub(super) fn counts(&self) -> Counts {
        Counts {
            already: self.last,
            ..self.counts
        }
    }

    /// Name of the import; `None` if the import cannot be resumed.
    pub(super) fn name(&self) -> Option<String> {
        let session = self.session.as_ref()?;
        Some(hex(&session.client().0))
    }

    /// Adds the next usable item of the input. Returns whether the batch should be sent.
    pub(super) fn item(&mut self, item: &UsableItem<'_>, line: u64) -> anyhow::Result<bool> {
        self.nonce += 1;
        self.chain = self.chained_hash(item);
        if self.nonce < self.last {
            return Ok(false);
        }
        match item {
            UsableItem::Value { key, value } => self.items.put(key, value, &[]),
            // The record was checked before.
            UsableItem::Record(record, _) => self.items.item(record).unwrap_or_default(),
        }
        self.chains.push(self.chain);
        self.lines.push(line);
        if self.nonce == self.last {
            self.verify_last_item()?;
        }
        let full = self.items.len() as u64 >= self.args.batch;
        Ok(full || self.items.bytes() >= BATCH_BYTES)
    }

    /// Sends the pending items, and waits for all verdicts.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        let sent = self.send();
        // Verdicts of pending batches are awaited even if the send failed.
        self.await_verdicts(0)?;
        sent
    }

    fn chained_hash(&self, item: &UsableItem<'_>) -> u64 {
        let (key, value): (&[u8], &[u8]) = match item {
            UsableItem::Value { key, value } => (key, value),
            UsableItem::Record(_, text) => (&[], text),
        };
        let seed = XxHash3_64::oneshot_with_seed(self.chain, key);
        XxHash3_64::oneshot_with_seed(seed, value)
    }

    /// Sends the last written item again. The store returns its stored verdict if no item up to it
    /// has changed, and rejects it otherwise.
    fn verify_last_item(&mut self) -> anyhow::Result<()> {
        let last = self.last;
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        session.resume(last);
        let intentions = intentions(&self.items, &self.args.topic, &self.chains);
        let answer = session.execute(&intentions);
        session.resume(last + 1);
        self.items.clear();
        self.chains.clear();
        self.lines.clear();
        match answer {
            Ok(_) => Ok(()),
            Err(WeirError::Nonce {
                code: ErrorCode::NonceReused,
                ..
            }) => {
                let why = format!("the first {last} items of the file have changed");
                Err(changed_input(&self.args.file).because(why).into())
            }
            Err(error) => Err(error).failed(|| "cannot resume the import".to_owned()),
        }
    }

    /// Sends the pending items.
    pub(super) fn send(&mut self) -> anyhow::Result<()> {
        if self.items.is_empty() {
            return Ok(());
        }
        let topic = &self.args.topic;
        let intentions = intentions(&self.items, topic, &self.chains);
        let failed = || format!("cannot write to {topic}");
        let answer = match &mut self.session {
            Some(session) => Answer::Session(session.send(&intentions).failed(failed)?),
            None => Answer::WithoutSession(self.weir.propose(&intentions).failed(failed)?),
        };
        let lines = std::mem::take(&mut self.lines);
        self.sent.push_back(SentBatch { answer, lines });
        self.items.clear();
        self.chains.clear();
        self.await_verdicts(PENDING_MAX)
    }

    /// Waits for verdicts until at most `left` batches are pending.
    fn await_verdicts(&mut self, left: usize) -> anyhow::Result<()> {
        while self.sent.len() > left {
            let Some(sent) = self.sent.pop_front() else {
                return Ok(());
            };
            let topic = self.args.topic.as_str();
            let failed = || format!("cannot write to {topic}");
            let commits: Vec<weir::Commit> = match sent.answer {
                Answer::Session(pending) => {
                    let again = "run the same command again: nothing is written twice";
                    let verdicts = pending.wait().answered(failed, again)?;
                    verdicts.iter().map(Verdict::commit).cloned().collect()
                }
                Answer::WithoutSession(proposal) => {
                    let again = "read the topic to check which items were written before you repeat the import";
                    let outcomes = proposal.wait().answered(failed, again)?;
                    outcomes
                        .iter()
                        .filter_map(|outcome| outcome.commit().cloned())
                        .collect()
                }
            };
            for (commit, line) in commits.iter().zip(&sent.lines) {
                let Some(failure) = verdict::failure(topic, commit) else {
                    self.counts.imported += 1;
                    continue;
                };
                self.counts.rejected += 1;
                if self.counts.rejected <= EXPLAINED_MAX {
                    print_line(&format_args!("line {line}: {failure}"));
                }
            }
        }
        Ok(())
    }
}

fn intentions<'a>(items: &'a Items, topic: &'a str, chains: &[u64]) -> Vec<Intention<'a>> {
    let mut intentions = items.intentions(topic, &[]);
    for (intention, chain) in intentions.iter_mut().zip(chains) {
        intention.fingerprint = Some(*chain);
    }
    intentions
}

/// Fails if the topic has records of a client whose session the store has evicted, because the
/// client was idle for too long.
fn check_session_exists(weir: &Weir, args: &ImportArgs, client: ClientId) -> anyhow::Result<()> {
    let failed = || format!("cannot read {}", args.topic);
    let topic = weir.topic(&args.topic).failed(failed)?;
    if topic.try_info().failed(failed)?.is_none() {
        return Ok(());
    }
    for page in topic.pages(ReadFrom::Start).failed(failed)? {
        for record in &page.failed(failed)? {
            let record = record.failed(failed)?;
            if record.client == client {
                let what = format!("cannot resume the import of {}", args.file.display());
                let why = "the session of the earlier import has expired, so its position in the file is unknown";
                return Err(Failure::new(ErrorCode::SessionExpired, what)
                    .because(why)
                    .advise(
                        "check which records the topic has; --again imports the whole file again",
                    )
                    .into());
            }
        }
    }
    Ok(())
}

/// The newest session of this import, or a new one.
fn session(weir: &Weir, args: &ImportArgs, path: &str) -> anyhow::Result<Session> {
    let failed = || format!("cannot read the state of {}", args.topic);
    let store = hex(&weir.store_id().failed(failed)?);
    let topic = weir.topic(&args.topic).failed(failed)?;
    let topic = topic.try_info().failed(failed)?;
    let incarnation = topic.and_then(|topic| topic.incarnation);
    let incarnation = incarnation.map_or(0, |offset| offset.0).to_string();
    let key = args
        .key
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let place = args
        .path
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let form = if args.records { "records" } else { "values" };
    let id = |run: u32| -> ClientId {
        let run = run.to_string();
        client_id(&[
            "import",
            &store,
            &args.topic,
            &incarnation,
            path,
            &key,
            &place,
            form,
            &run,
        ])
    };
    let mut runs = 0;
    while runs < RUNS_MAX && number(&weir.session(id(runs)))? > 0 {
        runs += 1;
    }
    // The newest run is resumed, unless a new one was requested.
    let run = if args.again {
        runs
    } else {
        runs.saturating_sub(1)
    };
    Ok(weir.session(id(run)))
}

/// Number of the newest written item of a session.
fn number(session: &Session) -> anyhow::Result<u64> {
    let next = session.try_next_nonce();
    Ok(next.failed(|| "cannot read the position of the import".to_owned())? - 1)
}
