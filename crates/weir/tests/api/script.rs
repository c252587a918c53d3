//! The commands of the transcripts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir::{
    Claim, ClientId, Compaction, ConsequenceOffset, Detail, Durability, Effect, ErrorCode, Expect,
    Group, GroupMode, GroupSetup, Intention, OpenOptions, Operation, Outcome, Outcomes, Proposal,
    ReadFrom, Record, RecordKind, Session, Settle, TopicOptions, TopicReader, TxnOp, Weir,
    WeirError,
};

/// The error code of a call without a verdict.
pub(crate) struct Failed(ErrorCode);

impl From<WeirError> for Failed {
    fn from(error: WeirError) -> Self {
        Self(error.code())
    }
}

impl From<weir::StoreError> for Failed {
    fn from(error: weir::StoreError) -> Self {
        Self(error.code())
    }
}

/// An intention that was parsed but not yet sent.
struct QueuedIntention {
    topic: String,
    write: Write,
    conditions: Vec<Condition>,
    meta: Vec<u8>,
}

enum Write {
    Create(TopicOptions),
    Alter(TopicOptions),
    Destroy,
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Transaction(Vec<Step>),
}

enum Step {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
}

struct Condition {
    name: String,
    number: u64,
    key: Option<Vec<u8>>,
}

impl Condition {
    fn expect(&self) -> Expect<'_> {
        let key = self.key.as_deref();
        match self.name.as_str() {
            "offset" => Expect::KeyOffset(key, self.number),
            "absent" => Expect::KeyAbsent(key),
            "present" => Expect::KeyPresent(key),
            "topic" => Expect::TopicOffset(self.number),
            "topic-absent-or" => Expect::TopicAbsentOr(self.number),
            "topic-empty" => Expect::TopicEmpty,
            "incarnation" => Expect::Incarnation(self.number),
            other => panic!("no condition {other}"),
        }
    }
}

struct Member {
    group: Group,
    claims: BTreeMap<u64, u64>,
}

pub(crate) struct World {
    directory: PathBuf,
    weir: Option<Weir>,
    sessions: BTreeMap<String, Session>,
    readers: BTreeMap<String, TopicReader>,
    members: BTreeMap<String, Member>,
    queued: Vec<QueuedIntention>,
    steps: Vec<Step>,
    sent: Option<Proposal>,
}

fn bytes(text: &str) -> Vec<u8> {
    text.replace("\\n", "\n").into_bytes()
}

fn key(text: &str) -> Vec<u8> {
    if text == "-" { Vec::new() } else { bytes(text) }
}

fn split_word(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

fn options(words: &str) -> TopicOptions {
    let mut options = TopicOptions::default();
    for word in words.split(' ').filter(|word| !word.is_empty()) {
        let (name, value) = word.split_once('=').unwrap();
        match name {
            "compaction" => options.compaction = Compaction::Latest,
            "key_bytes_max" => options.key_bytes_max = Some(value.parse().unwrap()),
            "value_bytes_max" => options.value_bytes_max = Some(value.parse().unwrap()),
            "keys_max" => options.keys_max = Some(value.parse().unwrap()),
            other => panic!("no option {other}"),
        }
    }
    options
}

fn conditions(text: &str) -> Vec<Condition> {
    let conditions = text.split(',').filter(|text| !text.is_empty());
    conditions
        .map(|text| {
            let (text, key) = match text.split_once('@') {
                Some((text, key)) => (text, Some(bytes(key))),
                None => (text, None),
            };
            let (name, number) = text.split_once(':').unwrap_or((text, "0"));
            Condition {
                name: name.to_owned(),
                number: number.parse().unwrap(),
                key,
            }
        })
        .collect()
}

/// Parses a command that writes.
fn parse_write(line: &str, steps: &mut Vec<Step>) -> QueuedIntention {
    let (verb, rest) = split_word(line);
    let (topic, rest) = split_word(rest);
    let mut queued = QueuedIntention {
        topic: topic.to_owned(),
        write: Write::Destroy,
        conditions: Vec::new(),
        meta: Vec::new(),
    };
    queued.write = match verb {
        "create" => Write::Create(options(rest)),
        "alter" => Write::Alter(options(rest)),
        "destroy" => Write::Destroy,
        "transaction" => {
            queued.conditions = conditions(rest);
            Write::Transaction(std::mem::take(steps))
        }
        "put" => {
            let (name, value) = split_word(rest);
            Write::Put(key(name), bytes(value))
        }
        "put-meta" => {
            let (name, rest) = split_word(rest);
            let (meta, value) = split_word(rest);
            queued.meta = bytes(meta);
            Write::Put(key(name), bytes(value))
        }
        "put-if" => {
            let (name, rest) = split_word(rest);
            let (texts, value) = split_word(rest);
            queued.conditions = conditions(texts);
            Write::Put(key(name), bytes(value))
        }
        "delete" => Write::Delete(key(rest)),
        "delete-if" => {
            let (name, texts) = split_word(rest);
            queued.conditions = conditions(texts);
            Write::Delete(key(name))
        }
        other => panic!("no command {other}"),
    };
    queued
}

/// Calls `then` with the intentions.
fn with_intentions<T>(all: &[QueuedIntention], then: impl FnOnce(&[Intention<'_>]) -> T) -> T {
    let expects: Vec<Vec<Expect<'_>>> = all
        .iter()
        .map(|queued| queued.conditions.iter().map(Condition::expect).collect())
        .collect();
    let steps: Vec<Vec<TxnOp<'_>>> = all
        .iter()
        .map(|queued| match &queued.write {
            Write::Transaction(steps) => steps
                .iter()
                .map(|step| match step {
                    Step::Put(key, value) => TxnOp::Put {
                        key,
                        value,
                        meta: b"",
                    },
                    Step::Delete(key) => TxnOp::Delete { key, meta: b"" },
                })
                .collect(),
            _ => Vec::new(),
        })
        .collect();
    let intentions: Vec<Intention<'_>> = all
        .iter()
        .zip(&expects)
        .zip(&steps)
        .map(|((queued, expects), steps)| {
            let operation = match &queued.write {
                Write::Create(options) => Operation::Create { options },
                Write::Alter(options) => Operation::Alter { options },
                Write::Destroy => Operation::Destroy,
                Write::Put(key, value) => Operation::Put { key, value },
                Write::Delete(key) => Operation::Delete { key },
                Write::Transaction(_) => Operation::Txn { ops: steps },
            };
            let mut intention = Intention::new(&queued.topic, operation).expecting(expects);
            intention.meta = &queued.meta;
            intention
        })
        .collect();
    then(&intentions)
}

fn verdicts(outcomes: &Outcomes, out: &mut String) {
    for outcome in outcomes.iter() {
        verdict(&outcome, out);
    }
}

fn verdict(outcome: &Outcome, out: &mut String) {
    let commit = match outcome {
        Outcome::Committed(commit) => commit,
        Outcome::Replayed(commit) => {
            out.push_str("again ");
            commit
        }
        Outcome::Refused { code, expected } => {
            writeln!(out, "refused {} next {expected}", code.name()).unwrap();
            return;
        }
    };
    let effect = match commit.effect {
        Effect::Valid => "valid",
        Effect::Invalid => "invalid",
        Effect::Error => "error",
    };
    write!(out, "{effect} {}", commit.intention).unwrap();
    if commit.records > 0 {
        write!(out, " at {}", commit.first).unwrap();
    }
    if commit.records > 1 {
        write!(out, " +{}", commit.records - 1).unwrap();
    }
    if let Some(reason) = commit.reason {
        write!(out, " {}", reason.name()).unwrap();
    }
    match &commit.detail {
        Detail::None => {}
        Detail::Actual(offset) => write!(out, " actual {offset}").unwrap(),
        Detail::Limit(limit) => write!(out, " limit {limit}").unwrap(),
        Detail::Operation { index, reason } => {
            write!(out, " step {index} {}", reason.name()).unwrap();
        }
        Detail::Rejected { code, text } => write!(out, " rejected {code} {text}").unwrap(),
        Detail::Trapped(kind) => write!(out, " trap {}", kind.name()).unwrap(),
        Detail::Text(text) => write!(out, " text {text}").unwrap(),
    }
    out.push('\n');
}

fn escaped(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\n', "\\n")
}

fn record(record: &Record<'_>, out: &mut String) {
    write!(out, "{} {}", record.offset, record.kind.name()).unwrap();
    match record.kind {
        RecordKind::Put => {
            write!(out, " {}={}", escaped(record.key), escaped(record.value)).unwrap();
        }
        RecordKind::Delete => write!(out, " {}", escaped(record.key)).unwrap(),
        _ => {}
    }
    if !record.meta.is_empty() {
        write!(out, " meta {}", escaped(record.meta)).unwrap();
    }
}

fn start_position(text: &str) -> Result<ReadFrom, Failed> {
    Ok(match text.split_once(':') {
        None if text == "start" => ReadFrom::Start,
        None => ReadFrom::End,
        Some(("after", offset)) => ReadFrom::After(ConsequenceOffset(offset.parse().unwrap())),
        Some(("text", text)) => {
            ReadFrom::parse(text).map_err(|_| Failed(weir::ErrorCode::BadOption))?
        }
        Some((_, count)) => ReadFrom::Last(count.parse().unwrap()),
    })
}

impl World {
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_path_buf(),
            weir: None,
            sessions: BTreeMap::new(),
            readers: BTreeMap::new(),
            members: BTreeMap::new(),
            queued: Vec::new(),
            steps: Vec::new(),
            sent: None,
        }
    }

    pub(crate) fn run(&mut self, line: &str, out: &mut String) {
        if let Err(Failed(code)) = self.command(line, out) {
            writeln!(out, "! {}", code.name()).unwrap();
        }
    }

    fn weir(&self) -> Result<&Weir, Failed> {
        self.weir.as_ref().ok_or(Failed(ErrorCode::Closed))
    }

    fn command(&mut self, line: &str, out: &mut String) -> Result<(), Failed> {
        let (verb, rest) = split_word(line);
        match verb {
            "open" => {
                let options = OpenOptions {
                    durability: Durability::Memory,
                    ..OpenOptions::default()
                };
                self.weir = Some(Weir::open_with(&self.directory, &options)?);
                Ok(())
            }
            "close" => match self.weir.take() {
                Some(weir) => Ok(weir.close()?),
                None => Err(Failed(ErrorCode::Closed)),
            },
            "add" => {
                let queued = parse_write(rest, &mut self.steps);
                self.queued.push(queued);
                Ok(())
            }
            "step" => {
                let (verb, rest) = split_word(rest);
                let (name, value) = split_word(rest);
                self.steps.push(match verb {
                    "put" => Step::Put(key(name), bytes(value)),
                    _ => Step::Delete(key(name)),
                });
                Ok(())
            }
            "session" | "nonce" | "resume" | "as" => self.session_command(verb, rest, out),
            "submit" | "send" | "wait" => self.submit(verb, out),
            "ensure" | "get" | "at" | "scan" | "scan-values" | "log" | "info" | "topics" => {
                self.topic_command(verb, rest, out)
            }
            "listen" | "next" => self.reader_command(verb, rest, out),
            "group" => self.group(rest),
            "claim" | "done" | "done-soon" | "fail" | "extend" | "take-over" | "leave"
            | "reset" | "end" | "group-info" => self.member_command(verb, rest, out),
            _ => {
                let one = parse_write(line, &mut self.steps);
                let weir = self.weir()?;
                let outcomes = with_intentions(&[one], |all| weir.propose(all))?.wait()?;
                verdicts(&outcomes, out);
                Ok(())
            }
        }
    }

    fn submit(&mut self, verb: &str, out: &mut String) -> Result<(), Failed> {
        if verb == "wait" {
            let outcomes = self.sent.take().expect("something sent").wait()?;
            verdicts(&outcomes, out);
            return Ok(());
        }
        let all = std::mem::take(&mut self.queued);
        if all.is_empty() {
            return Err(Failed(ErrorCode::BadOption));
        }
        let weir = self.weir()?;
        let proposal = with_intentions(&all, |all| weir.propose(all))?;
        if verb == "submit" {
            verdicts(&proposal.wait()?, out);
        } else {
            self.sent = Some(proposal);
        }
        Ok(())
    }

    fn session_command(&mut self, verb: &str, rest: &str, out: &mut String) -> Result<(), Failed> {
        let (name, rest) = split_word(rest);
        if verb == "session" {
            let pairs = rest.as_bytes().chunks(2);
            let client: Vec<u8> = pairs
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect();
            let client: Result<[u8; 16], _> = client.try_into();
            let client = client.ok().map(ClientId).filter(|client| !client.is_none());
            let client = client.ok_or(Failed(ErrorCode::BadOption))?;
            let session = self.weir()?.session(client);
            self.sessions.insert(name.to_owned(), session);
            return Ok(());
        }
        let session = self.sessions.get_mut(name).expect("a session");
        match verb {
            "nonce" => writeln!(out, "{}", session.try_next_nonce()?).unwrap(),
            "resume" => session.resume(rest.parse().unwrap()),
            _ => {
                let all = match rest {
                    "submit" => std::mem::take(&mut self.queued),
                    line => vec![parse_write(line, &mut self.steps)],
                };
                let sent = with_intentions(&all, |all| session.send(all))?;
                verdicts(&sent.into_proposal().wait()?, out);
            }
        }
        Ok(())
    }

    fn topic_command(&mut self, verb: &str, rest: &str, out: &mut String) -> Result<(), Failed> {
        if verb == "topics" {
            for info in self.weir()?.topics(rest == "all")? {
                writeln!(out, "{}", info.name).unwrap();
            }
            return Ok(());
        }
        let (topic, rest) = split_word(rest);
        let topic = self.weir()?.topic(topic)?;
        match verb {
            "ensure" => {
                let made = topic.ensure()?;
                writeln!(out, "{}", if made { "created" } else { "there" }).unwrap();
            }
            "get" | "at" => {
                let found = if verb == "get" {
                    topic.get(key(rest))?
                } else {
                    topic.at(ConsequenceOffset(rest.parse().unwrap()))?
                };
                match found {
                    Some(value) => record(&value.record(), out),
                    None => out.push_str("absent"),
                }
                out.push('\n');
            }
            "log" => {
                for page in topic.pages(start_position(rest)?)? {
                    for found in &page? {
                        record(&found?, out);
                        out.push('\n');
                    }
                }
            }
            "info" => match topic.try_info()? {
                Some(info) => {
                    let live = if info.live { "live" } else { "dead" };
                    let (first, last, keys) = (info.first, info.last, info.keys);
                    writeln!(out, "{live} first {first} last {last} keys {keys}").unwrap();
                }
                None => out.push_str("absent\n"),
            },
            _ => {
                let words: Vec<&str> = rest.split(' ').collect();
                let after = key(words[1]);
                let after = (!after.is_empty()).then_some(after.as_slice());
                let limit = words[2].parse().unwrap();
                let found = topic.scan(&key(words[0]), after, limit)?;
                for entry in &found {
                    write!(out, "{} {}", escaped(&entry.key), entry.offset).unwrap();
                    if verb == "scan-values" {
                        let value = topic.value(entry)?.unwrap();
                        write!(out, " {}", escaped(value.value())).unwrap();
                    }
                    out.push('\n');
                }
                if found.is_empty() {
                    out.push_str("done\n");
                }
            }
        }
        Ok(())
    }

    fn reader_command(&mut self, verb: &str, rest: &str, out: &mut String) -> Result<(), Failed> {
        let words: Vec<&str> = rest.split(' ').collect();
        let name = words[0].to_owned();
        if verb == "listen" {
            let reader = self
                .weir()?
                .topic(words[1])?
                .listener(start_position(words[2])?)?;
            self.readers.insert(name, reader);
            return Ok(());
        }
        let wanted: usize = words[1].parse().unwrap();
        let patience = Duration::from_millis(words[2].parse().unwrap());
        if self.weir.is_none() {
            return Err(Failed(ErrorCode::Closed));
        }
        let reader = self.readers.get_mut(&name).expect("a reader");
        let mut found = 0;
        while found < wanted {
            let Some(page) = reader.next_page()? else {
                if reader.wait(Instant::now().checked_add(patience)) {
                    continue;
                }
                out.push_str("timeout\n");
                break;
            };
            for one in &page {
                record(&one?, out);
                out.push('\n');
                found += 1;
            }
        }
        Ok(())
    }

    fn group(&mut self, rest: &str) -> Result<(), Failed> {
        let mut words = rest.split(' ');
        let mut word = || words.next().unwrap();
        let (name, topic, group, mode, member) = (word(), word(), word(), word(), word());
        let mut setup = GroupSetup::new(match mode {
            "exclusive" => GroupMode::Exclusive,
            "keyed" => GroupMode::Keyed,
            _ => GroupMode::Shared,
        });
        let topic = self.weir()?.topic(topic)?;
        for word in words {
            let (option, value) = word.split_once('=').unwrap_or((word, ""));
            match option {
                "lease" => setup.lease_ms = value.parse().unwrap(),
                "attempts" => setup.attempts_max = value.parse().unwrap(),
                "dead" => setup.dead_letters = value,
                "start" => setup.start = topic.offset_before(start_position(value)?)?.0,
                "existing" => {
                    let known = topic.group_info(group)?;
                    known.ok_or(Failed(ErrorCode::GroupUnknown))?;
                }
                other => panic!("no option {other}"),
            }
        }
        let group = topic.group_with(group, &setup)?.member(member);
        let claims = BTreeMap::new();
        self.members
            .insert(name.to_owned(), Member { group, claims });
        Ok(())
    }

    fn member_command(&mut self, verb: &str, rest: &str, out: &mut String) -> Result<(), Failed> {
        let mut words = rest.split(' ');
        let name = words.next().unwrap();
        let millis = |word: Option<&str>| Duration::from_millis(word.unwrap().parse().unwrap());
        if verb == "end" {
            let member = self.members.get_mut(name).expect("a member");
            let verdict = member.group.delete()?;
            return verdict.reason().map_or(Ok(()), |code| Err(Failed(code)));
        }
        let member = self.members.get_mut(name).expect("a member");
        let how = match verb {
            "claim" => {
                let max = words.next().unwrap().parse().unwrap();
                let claimed = member.group.claim(max, millis(words.next()))?;
                for work in &claimed {
                    record(&work.record(), out);
                    writeln!(out, " attempt {}", work.attempts()).unwrap();
                    member.claims.insert(work.record().offset.0, work.claim());
                }
                if claimed.is_empty() {
                    out.push_str("timeout\n");
                }
                return Ok(());
            }
            "group-info" => {
                let info = member.group.info()?;
                let (cursor, lag, leased) = (info.cursor, info.lag, info.leased);
                let waiting = info.waiting;
                writeln!(
                    out,
                    "cursor {cursor} lag {lag} leased {leased} waiting {waiting}"
                )
                .unwrap();
                return Ok(());
            }
            "take-over" => return Ok(member.group.take_over()?),
            "leave" => return Ok(member.group.leave()?),
            "reset" => {
                let verdict = member.group.reset(start_position(words.next().unwrap())?)?;
                return verdict.reason().map_or(Ok(()), |code| Err(Failed(code)));
            }
            "done" => Settle::Done,
            "done-soon" => Settle::DoneSoon,
            "fail" => Settle::Fail {
                delay: millis(words.next()),
                reason: "",
            },
            _ => Settle::Extend {
                lease: millis(words.next()),
            },
        };
        let claims: Vec<Claim> = words
            .map(|word| {
                let offset: u64 = word.parse().unwrap();
                Claim {
                    claim: member.claims.get(&offset).copied().unwrap_or(0),
                    offset: ConsequenceOffset(offset),
                }
            })
            .collect();
        for offset in member.group.settle(&claims, how)? {
            writeln!(out, "lost {offset}").unwrap();
        }
        Ok(())
    }
}
