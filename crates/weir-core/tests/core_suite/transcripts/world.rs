//! A machine with all its records, driven by the commands of a transcript. The output must not
//! depend on the [`RunMode`].

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weir_core::batch::{Batch, BatchBuilder};
use weir_core::intention::IntentionLimits;
use weir_core::options::Compaction;
use weir_core::{ClientId, Commit, Detail, Digest, Machine, Outcome, Outcomes, TopicOptions};

use super::file::Command;
use super::record_checker::RecordChecker;
use super::words::{OwnedIntention, bytes, client_name, named_client, number, pair, print};

/// How the commands of a transcript are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunMode {
    /// Each command is a separate batch.
    Plain,
    /// Each intention is sent a second time under the same nonce.
    Twice,
    /// Between every two commands, the machine is saved, and loaded with another seed.
    Reloaded,
    /// Successive intentions of a block are one batch.
    Together,
}

impl RunMode {
    pub(crate) const ALL: [Self; 4] = [Self::Plain, Self::Twice, Self::Reloaded, Self::Together];
}

/// A sent intention, to be sent again.
struct Sent {
    intention: OwnedIntention,
    nonce: u64,
}

/// A machine, its records, and the client side of its sessions.
pub(crate) struct World {
    mode: RunMode,
    machine: Machine,
    record_checker: RecordChecker,
    limits: IntentionLimits,
    time_ms: u64,
    term: u64,
    seed: u64,
    latest: Vec<OwnedIntention>,
}

impl World {
    pub(crate) fn new(mode: RunMode) -> Self {
        Self {
            mode,
            machine: Machine::new(1),
            record_checker: RecordChecker::default(),
            limits: IntentionLimits::default(),
            time_ms: 0,
            term: 1,
            seed: 1,
            latest: Vec::new(),
        }
    }

    /// Executes the commands of a block and prints the results.
    pub(crate) fn block(&mut self, commands: &[Command]) -> String {
        let mut out = String::new();
        let mut waiting = Vec::new();
        for command in commands {
            if self.mode == RunMode::Reloaded {
                self.reload();
            }
            match OwnedIntention::parse(command) {
                Some(intention) if self.mode == RunMode::Together && !intention.expires() => {
                    waiting.push(intention);
                }
                intention => {
                    self.send(&std::mem::take(&mut waiting), &mut out);
                    match intention {
                        Some(intention) => self.send(&[intention], &mut out),
                        None => self.other(command, &mut out),
                    }
                }
            }
        }
        self.send(&waiting, &mut out);
        out
    }

    /// Sends intentions as one batch.
    fn send(&mut self, intentions: &[OwnedIntention], out: &mut String) {
        if intentions.is_empty() {
            return;
        }
        let mut builder = BatchBuilder::default();
        let mut next: BTreeMap<ClientId, u64> = BTreeMap::new();
        let mut sent = Vec::new();
        let mut refused = Vec::new();
        for intention in intentions {
            let nonce = self.nonce(intention, &mut next);
            let before = (builder.len(), builder.bytes());
            match intention.with_intention(nonce, |intention| builder.push(intention, &self.limits))
            {
                Ok(()) => {
                    if let Some(client) = intention.client {
                        let next = next.entry(client).or_default();
                        *next += u64::from(*next == nonce);
                    }
                    refused.push(None);
                    sent.push(Sent {
                        intention: intention.clone(),
                        nonce,
                    });
                }
                Err(error) => {
                    assert_eq!(before, (builder.len(), builder.bytes()), "N1: no trace");
                    refused.push(Some(error));
                }
            }
        }
        let outcomes = self.apply(&builder);
        self.resend(&sent, &outcomes);
        self.latest = sent
            .iter()
            .map(|sent| {
                let mut intention = sent.intention.clone();
                intention.nonce = Some(sent.nonce);
                intention
            })
            .collect();
        let mut answers = sent.iter().zip(outcomes);
        for refused in refused {
            if let Some(error) = refused {
                let _ = writeln!(out, "not accepted: {error}");
                continue;
            }
            let (sent, outcome) = answers.next().unwrap();
            self.print_outcome(&outcome, sent.intention.client, out);
        }
    }

    fn nonce(&self, intention: &OwnedIntention, next: &mut BTreeMap<ClientId, u64>) -> u64 {
        let Some(client) = intention.client else {
            return intention.nonce.unwrap_or(0);
        };
        let last = || self.machine.sessions().last_nonce(client);
        let next = *next.entry(client).or_insert_with(|| last() + 1);
        intention.nonce.unwrap_or(next)
    }

    fn apply(&mut self, builder: &BatchBuilder) -> Vec<Outcome> {
        if builder.is_empty() {
            return Vec::new();
        }
        let bytes = builder.to_bytes(self.time_ms);
        let batch = Batch::read(&bytes, self.term).unwrap();
        let mut outcomes = Outcomes::default();
        let before = self.machine.applied().0;
        let applied = self
            .machine
            .apply(&batch, &mut self.record_checker, &mut outcomes)
            .unwrap();
        assert_eq!(outcomes.len(), builder.len(), "one answer for each item");
        assert_eq!(applied.last, self.machine.applied());
        assert_eq!(applied.executed, applied.last.0 - before);
        outcomes.iter().collect()
    }

    /// With `RunMode::Twice`, sends all committed intentions again. The outcomes must equal the
    /// first ones, and nothing else may change (I6).
    fn resend(&mut self, sent: &[Sent], outcomes: &[Outcome]) {
        if self.mode != RunMode::Twice {
            return;
        }
        let mut builder = BatchBuilder::default();
        let mut commits = Vec::new();
        for (sent, outcome) in sent.iter().zip(outcomes) {
            if let (Some(_), Outcome::Committed(commit)) = (sent.intention.client, outcome) {
                commits.push(Outcome::Replayed(commit.clone()));
                let limits = &self.limits;
                sent.intention
                    .with_intention(sent.nonce, |intention| builder.push(intention, limits))
                    .unwrap();
            }
        }
        let before = self.fingerprint();
        assert_eq!(self.apply(&builder), commits, "the first outcome again");
        assert_eq!(self.fingerprint(), before, "a repetition changes nothing");
    }

    /// State that a repeat must not change. The digest takes time linear in the number of sessions,
    /// so with very many sessions it is computed only sometimes.
    fn fingerprint(&self) -> (u64, usize, Option<Digest>) {
        let applied = self.machine.applied().0;
        let compute = self.machine.sessions().len() < 100 || applied.is_multiple_of(256);
        let records = self.record_checker.count();
        (applied, records, compute.then(|| self.machine.digest()))
    }

    /// Saves the machine, loads it with another seed, and continues with the loaded one.
    fn reload(&mut self) {
        let mut bytes = Vec::new();
        self.machine.save(&mut bytes).unwrap();
        self.seed += 1;
        let mut source = bytes.as_slice();
        let loaded = Machine::load(&mut source, self.seed).unwrap();
        assert!(source.is_empty(), "load reads all that save wrote");
        let mut saved_again = Vec::new();
        loaded.save(&mut saved_again).unwrap();
        assert_eq!(saved_again, bytes, "equal states have equal bytes");
        assert_eq!(loaded.digest(), self.machine.digest(), "and equal digests");
        self.machine = loaded;
    }

    fn other(&mut self, command: &Command, out: &mut String) {
        let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["batch"] => {
                let parse =
                    |c| OwnedIntention::parse(c).unwrap_or_else(|| panic!("{c:?} in a batch"));
                let intentions: Vec<OwnedIntention> = command.below.iter().map(parse).collect();
                self.send(&intentions, out);
            }
            ["resend"] => {
                let latest = self.latest.pop();
                self.send(latest.as_slice(), out);
            }
            ["resend", "batch"] => {
                let latest = std::mem::take(&mut self.latest);
                self.send(&latest, out);
            }
            ["repeat", count, rest @ ..] => self.repeat(number(count), rest, out),
            ["time", ms] => self.time_ms = number(ms),
            ["term", term] => self.term = number(term),
            ["accept", settings @ ..] => self.accept(settings),
            ["groups", topic] => super::groups::print_groups(&self.machine, topic, out),
            ["now"] => {
                let (applied, time) = (self.machine.applied(), self.machine.time_ms());
                let _ = writeln!(out, "intention {applied}, time {time}");
            }
            ["digest"] => {
                let _ = writeln!(out, "{}", self.machine.digest());
            }
            ["digest-equal-after-reload"] => {
                self.reload();
                let _ = writeln!(out, "equal digest, equal bytes");
            }
            ["records", topic, from @ ..] => self.print_records(topic, from, out),
            ["keys", topic] => self.print_keys(topic, out),
            ["topics"] => self.print_topics(out),
            ["session", client] => self.print_session(client, out),
            ["sessions"] => {
                let _ = writeln!(out, "{} sessions", self.machine.sessions().len());
            }
            ["outcome", client, nonce] => {
                let client = named_client(client);
                match self.machine.sessions().outcome(client, number(nonce)) {
                    Some(commit) => self.print_commit(&commit, Some(client), out),
                    None => out.push_str("not stored\n"),
                }
            }
            _ => panic!("no command is called {words:?}"),
        }
    }

    fn accept(&mut self, settings: &[&str]) {
        for setting in settings {
            let value = usize::try_from(number(pair(setting).1)).unwrap();
            match pair(setting).0 {
                "key_bytes_max" => self.limits.key_bytes_max = value,
                "value_bytes_max" => self.limits.value_bytes_max = value,
                other => panic!("no limit is called {other}"),
            }
        }
    }

    /// Executes `repeat N command`, in which `{n}` is 1 to N, and prints a summary.
    fn repeat(&mut self, count: u64, words: &[&str], out: &mut String) {
        let mut counts = [0_u64; 3];
        let mut last = String::new();
        for n in 1..=count {
            let fill = |word: &&str| word.replace("{n}", &n.to_string());
            let command = Command {
                words: words.iter().map(fill).collect(),
                below: Vec::new(),
            };
            last.clear();
            self.send(&[OwnedIntention::parse(&command).unwrap()], &mut last);
            let kind = match last.split(' ').next() {
                Some("replayed") => 1,
                Some("refused") => 2,
                _ => 0,
            };
            counts[kind] += 1;
        }
        let [committed, replayed, refused] = counts;
        let _ = write!(
            out,
            "{committed} committed, {replayed} replayed, {refused} refused; last: {last}"
        );
    }

    fn print_outcome(&self, outcome: &Outcome, client: Option<ClientId>, out: &mut String) {
        match outcome {
            Outcome::Committed(commit) => self.print_commit(commit, client, out),
            Outcome::Replayed(commit) => {
                out.push_str("replayed ");
                self.print_commit(commit, client, out);
            }
            Outcome::Refused { code, expected } => {
                let _ = writeln!(out, "refused {}, expected {expected}", code.name());
            }
        }
    }

    /// Prints a commit, such as `3 c1/2 VALID: orders 2 PUT a=1 last`. The default client has no
    /// name.
    fn print_commit(&self, commit: &Commit, client: Option<ClientId>, out: &mut String) {
        let _ = write!(out, "{}", commit.intention);
        if let Some(client) = client.filter(|client| *client != named_client("c0")) {
            let _ = write!(out, " {}/{}", client_name(client), commit.nonce);
        }
        if client.is_none() {
            assert_eq!(commit.nonce, 0, "no session, no nonce");
        }
        let _ = write!(out, " {}", commit.effect.name());
        if let Some(reason) = commit.reason {
            let _ = write!(out, " {}", reason.name());
        }
        match commit.detail {
            Detail::None => {}
            Detail::Actual(offset) => {
                let _ = write!(out, " actual {offset}");
            }
            Detail::Limit(max) => {
                let _ = write!(out, " limit {max}");
            }
            Detail::Operation { index, reason } => {
                let _ = write!(out, " step {index}: {}", reason.name());
            }
            ref other => panic!("a detail of a program: {other:?}"),
        }
        out.push_str(&self.record_checker.of(commit));
        out.push('\n');
    }

    fn print_records(&self, topic: &str, from: &[&str], out: &mut String) {
        let from = from.last().map_or(1, |n| number(n));
        for (_, line) in (1..)
            .zip(self.record_checker.lines(topic))
            .filter(|(n, _)| *n >= from)
        {
            let _ = writeln!(out, "{line}");
        }
    }

    fn print_keys(&self, topic: &str, out: &mut String) {
        let keys = self.machine.topic(topic).and_then(|topic| topic.keys);
        let Some(keys) = keys else {
            out.push_str("no topic\n");
            return;
        };
        for (key, offset) in keys.sorted() {
            assert_eq!(keys.get(key), Some(offset));
            let _ = writeln!(out, "{} @{offset}", print(key));
        }
        let _ = writeln!(out, "{} keys", keys.len());
    }

    fn print_topics(&self, out: &mut String) {
        for topic in self.machine.topics() {
            let _ = write!(out, "{} {}: last {}", topic.id.0, topic.name, topic.last);
            if topic.trimmed.0 > 0 {
                let _ = write!(out, ", trimmed {}", topic.trimmed);
            }
            let (Some(incarnation), Some(options), Some(keys)) =
                (topic.incarnation, topic.options, topic.keys)
            else {
                out.push_str(", gone\n");
                continue;
            };
            let _ = write!(out, ", incarnation {incarnation}, {} keys", keys.len());
            let _ = writeln!(out, "{}", print_options(options));
        }
    }

    fn print_session(&self, name: &str, out: &mut String) {
        let sessions = self.machine.sessions();
        let client = named_client(name);
        let last = sessions.last_nonce(client);
        let kept = |nonce: &u64| sessions.outcome(client, *nonce).is_some();
        let first = (1..=last).rev().take_while(kept).last();
        let _ = match first {
            Some(first) => writeln!(out, "{name}: last nonce {last}, stored from {first}"),
            None => writeln!(out, "{name}: not known"),
        };
    }
}

fn print_options(options: &TopicOptions) -> String {
    let mut out = String::new();
    if options.compaction == Compaction::Latest {
        out.push_str(", compaction=latest");
    }
    for (name, value) in [
        ("tombstone_ttl_ms", options.tombstone_ttl_ms),
        ("compaction_lag_ms", options.compaction_lag_ms),
        ("key_bytes_max", options.key_bytes_max),
        ("value_bytes_max", options.value_bytes_max),
        ("keys_max", options.keys_max),
        ("retention_age_ms", options.retention.age_ms),
        ("retention_bytes", options.retention.bytes),
        ("retention_records", options.retention.records),
    ] {
        if let Some(value) = value {
            let _ = write!(out, ", {name}={value}");
        }
    }
    let hold = &options.retention.hold_for_groups;
    if !hold.is_empty() {
        let names: Vec<&str> = hold.iter().map(weir_core::GroupName::as_str).collect();
        let _ = write!(out, ", hold_for_groups={}", names.join(","));
    }
    out
}

// `bytes` and `print` must be inverse. Otherwise a transcript would show something other than what
// was sent.
#[test]
fn words_and_bytes_round_trip() {
    for word in ["a", "", "{x*1024}", "\\xff\\x00", "\\x5c", "{\\x00*21}"] {
        assert_eq!(print(&bytes(word)), word);
    }
}
