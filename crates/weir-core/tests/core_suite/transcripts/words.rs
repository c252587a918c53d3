//! Converts words of a command to intentions that own their bytes, and bytes to words.
//!
//! Printable bytes are written as they are. `\xff` is any byte, and `{x*100}` is a hundred times
//! `x`, in both directions.

use weir_core::intention::Intention;
use weir_core::options::Compaction;
use weir_core::{ClientId, Expect, GroupName, Operation, TopicOptions, TxnOp};

use super::file::Command;
use super::groups::OwnedGroupStep;

/// An intention that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) struct OwnedIntention {
    pub(crate) client: Option<ClientId>,
    /// Nonce; `None` for the next one of the session.
    pub(crate) nonce: Option<u64>,
    pub(crate) topic: String,
    operation: OwnedOperation,
    expect: Vec<Condition>,
    meta: Vec<u8>,
    principal: Vec<u8>,
    fingerprint: Option<u64>,
}

#[derive(Clone, Debug)]
enum OwnedOperation {
    Create(TopicOptions),
    Alter(TopicOptions),
    Destroy,
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Txn(Vec<Step>),
    Expire(u64),
    Trim(u64),
    Group(OwnedGroupStep),
}

#[derive(Clone, Debug)]
struct Step {
    key: Vec<u8>,
    /// Value; `None` for a DELETE.
    value: Option<Vec<u8>>,
    meta: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Condition {
    kind: String,
    key: Option<Vec<u8>>,
    number: u64,
}

impl OwnedIntention {
    /// Parses a command; `None` if the command is not an intention.
    pub(crate) fn parse(command: &Command) -> Option<Self> {
        let mut words = command.words.iter().map(String::as_str);
        let name = words.next()?;
        let topic = if name == "expire" {
            ""
        } else {
            words.next().unwrap_or_default()
        };
        let mut options = TopicOptions::default();
        let mut intention = Self {
            client: Some(named_client("c0")),
            nonce: None,
            topic: text(topic),
            operation: match name {
                "create" | "alter" => OwnedOperation::Create(options.clone()),
                "destroy" => OwnedOperation::Destroy,
                "put" => {
                    let (key, value) = pair(words.next()?);
                    OwnedOperation::Put(bytes(key), bytes(value))
                }
                "delete" => OwnedOperation::Delete(bytes(words.next()?)),
                "txn" => OwnedOperation::Txn(command.below.iter().map(step).collect()),
                "expire" => OwnedOperation::Expire(number(pair(words.next()?).1)),
                "trim" => OwnedOperation::Trim(number(words.next()?)),
                "group" => OwnedOperation::Group(OwnedGroupStep::parse(&mut words)),
                _ => return None,
            },
            expect: Vec::new(),
            meta: Vec::new(),
            principal: Vec::new(),
            fingerprint: None,
        };
        while let Some(word) = words.next() {
            let (what, value) = pair(word);
            match what {
                "expect" => {
                    intention.expect = words.by_ref().map(condition).collect();
                }
                "client" if value == "none" => intention.client = None,
                "client" => intention.client = Some(named_client(value)),
                "nonce" => intention.nonce = Some(number(value)),
                "meta" => intention.meta = bytes(value),
                "principal" => intention.principal = bytes(value),
                "fingerprint" => intention.fingerprint = Some(number(value)),
                "topic" => intention.topic = text(value),
                word => match &mut intention.operation {
                    OwnedOperation::Group(group) => group.set(word, value),
                    _ => set_option(&mut options, word, value),
                },
            }
        }
        match name {
            "create" => intention.operation = OwnedOperation::Create(options),
            "alter" => intention.operation = OwnedOperation::Alter(options),
            _ => {}
        }
        Some(intention)
    }

    /// Whether the intention may drop sessions.
    pub(crate) fn expires(&self) -> bool {
        matches!(self.operation, OwnedOperation::Expire(_))
    }

    /// Calls `take` with this value as an intention.
    pub(crate) fn with_intention<T>(
        &self,
        nonce: u64,
        take: impl FnOnce(&Intention<'_>) -> T,
    ) -> T {
        let expect: Vec<Expect<'_>> = self.expect.iter().map(Condition::borrowed).collect();
        let steps: Vec<TxnOp<'_>>;
        let operation = match &self.operation {
            OwnedOperation::Create(options) => Operation::Create { options },
            OwnedOperation::Alter(options) => Operation::Alter { options },
            OwnedOperation::Destroy => Operation::Destroy,
            OwnedOperation::Put(key, value) => Operation::Put { key, value },
            OwnedOperation::Delete(key) => Operation::Delete { key },
            OwnedOperation::Expire(idle_ms) => Operation::ExpireSessions { idle_ms: *idle_ms },
            OwnedOperation::Trim(through) => Operation::Trim { through: *through },
            OwnedOperation::Group(group) => Operation::Cursor {
                group: &group.name,
                step: group.borrowed(),
            },
            OwnedOperation::Txn(owned) => {
                steps = owned.iter().map(Step::borrowed).collect();
                Operation::Txn { ops: &steps }
            }
        };
        take(&Intention {
            client: self.client.unwrap_or(ClientId::NONE),
            nonce,
            topic: &self.topic,
            operation,
            expect: &expect,
            meta: &self.meta,
            principal: &self.principal,
            fingerprint: self.fingerprint,
        })
    }
}

impl Step {
    fn borrowed(&self) -> TxnOp<'_> {
        let (key, meta) = (&self.key, &self.meta);
        match &self.value {
            Some(value) => TxnOp::Put { key, value, meta },
            None => TxnOp::Delete { key, meta },
        }
    }
}

impl Condition {
    fn borrowed(&self) -> Expect<'_> {
        let key = self.key.as_deref();
        match self.kind.as_str() {
            "key_offset" => Expect::KeyOffset(key, self.number),
            "key_absent" => Expect::KeyAbsent(key),
            "key_present" => Expect::KeyPresent(key),
            "topic_offset" => Expect::TopicOffset(self.number),
            "topic_absent_or" => Expect::TopicAbsentOr(self.number),
            "topic_empty" => Expect::TopicEmpty,
            "incarnation" => Expect::Incarnation(self.number),
            kind => panic!("no condition is called {kind}"),
        }
    }
}

/// Parses a topic name; `''` is the empty name.
fn text(word: &str) -> String {
    String::from_utf8(bytes(word.strip_prefix("''").unwrap_or(word))).unwrap()
}

fn step(command: &Command) -> Step {
    let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
    let meta = words.get(2).map(|word| pair(word).1).unwrap_or_default();
    let (key, value) = match words[0] {
        "put" => (pair(words[1]).0, Some(bytes(pair(words[1]).1))),
        "delete" => (words[1], None),
        other => panic!("no step is called {other}"),
    };
    Step {
        key: bytes(key),
        value,
        meta: bytes(meta),
    }
}

/// Parses a condition, such as `key_offset(b)=3` or a shorter form.
fn condition(word: &str) -> Condition {
    let (head, value) = match word.split_once(")=") {
        Some((head, value)) => (head, value),
        None if word.ends_with(')') => (word.trim_end_matches(')'), "0"),
        None => word.split_once('=').unwrap_or((word, "0")),
    };
    let (kind, key) = match head.split_once('(') {
        Some((kind, key)) => (kind, Some(bytes(key))),
        None => (head, None),
    };
    Condition {
        kind: kind.to_owned(),
        key,
        number: number(value),
    }
}

fn set_option(options: &mut TopicOptions, option: &str, value: &str) {
    match option {
        "compaction" if value == "latest" => options.compaction = Compaction::Latest,
        "tombstone_ttl_ms" => options.tombstone_ttl_ms = Some(number(value)),
        "compaction_lag_ms" => options.compaction_lag_ms = Some(number(value)),
        "key_bytes_max" => options.key_bytes_max = Some(number(value)),
        "value_bytes_max" => options.value_bytes_max = Some(number(value)),
        "keys_max" => options.keys_max = Some(number(value)),
        "retention_age_ms" => options.retention.age_ms = Some(number(value)),
        "retention_bytes" => options.retention.bytes = Some(number(value)),
        "retention_records" => options.retention.records = Some(number(value)),
        "hold_for_groups" => {
            let names = value.split(',').map(|name| GroupName::new(name).unwrap());
            options.retention.hold_for_groups = names.collect();
        }
        _ => panic!("nothing is called {option}={value}"),
    }
}

/// The client whose id is its name, padded with zeros.
pub(crate) fn named_client(name: &str) -> ClientId {
    let mut id = [0; 16];
    id[..name.len()].copy_from_slice(name.as_bytes());
    ClientId(id)
}

/// The name of a client that has one.
pub(crate) fn client_name(client: ClientId) -> String {
    let name: Vec<u8> = client.0.into_iter().take_while(|byte| *byte != 0).collect();
    print(&name)
}

pub(crate) fn pair(word: &str) -> (&str, &str) {
    word.split_once('=').unwrap_or((word, ""))
}

pub(crate) fn number(word: &str) -> u64 {
    word.parse()
        .unwrap_or_else(|_| panic!("{word} is not a number"))
}

/// The bytes that a word denotes.
pub(crate) fn bytes(word: &str) -> Vec<u8> {
    if let Some((byte, count)) = word
        .strip_prefix('{')
        .and_then(|word| word.strip_suffix('}'))
        .and_then(|word| word.split_once('*'))
    {
        let count = usize::try_from(number(count)).unwrap();
        return bytes(byte).repeat(count);
    }
    let mut out = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'\\' {
            let (digits, after) = after.split_at(3);
            let digits = std::str::from_utf8(&digits[1..]).unwrap();
            out.push(u8::from_str_radix(digits, 16).unwrap());
            rest = after;
        } else {
            out.push(*first);
            rest = after;
        }
    }
    out
}

/// The word that denotes some bytes.
pub(crate) fn print(bytes: &[u8]) -> String {
    let one = |byte: u8| {
        if byte.is_ascii_graphic() && byte != b'\\' {
            char::from(byte).to_string()
        } else {
            format!("\\x{byte:02x}")
        }
    };
    match bytes {
        [first, ..] if bytes.len() > 20 && bytes.iter().all(|byte| byte == first) => {
            format!("{{{}*{}}}", one(*first), bytes.len())
        }
        _ => bytes.iter().copied().map(one).collect(),
    }
}
