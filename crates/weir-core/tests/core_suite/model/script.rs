//! Random scripts: batches of intentions over few topics, keys and clients, so that all of them
//! interact. A script is determined by its seed.

use weir_core::intention::Intention;
use weir_core::{ClientId, Expect, Operation, TopicOptions, TxnOp};

/// A requested operation that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnedOperation {
    Create(Limits),
    Alter(Limits),
    Destroy,
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    /// Key and value of each step; a value of `None` is a DELETE.
    Txn(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    Expire(u64),
}

/// The options that can change effects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) key_bytes: Option<u64>,
    pub(crate) value_bytes: Option<u64>,
    pub(crate) keys: Option<u64>,
}

/// A condition. A key of `None` is the intention's own key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    KeyOffset(Option<Vec<u8>>, u64),
    KeyAbsent(Option<Vec<u8>>),
    KeyPresent(Option<Vec<u8>>),
    TopicOffset(u64),
    TopicAbsentOr(u64),
    TopicEmpty,
    Incarnation(u64),
}

/// One intention.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Number of the client; 0 for no session.
    pub(crate) client: u8,
    pub(crate) nonce: u64,
    pub(crate) topic: String,
    pub(crate) operation: OwnedOperation,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) meta: Vec<u8>,
    pub(crate) fingerprint: Option<u64>,
}

impl Step {
    /// Calls `take` with the step as an intention.
    pub(crate) fn with_intention<T>(&self, take: impl FnOnce(&Intention<'_>) -> T) -> T {
        let expect: Vec<Expect<'_>> = self.conditions.iter().map(Condition::borrowed).collect();
        let (mut ops, mut options) = (Vec::new(), TopicOptions::default());
        if let OwnedOperation::Txn(steps) = &self.operation {
            let meta: &[u8] = &[];
            ops.extend(steps.iter().map(|(key, value)| match value {
                Some(value) => TxnOp::Put { key, value, meta },
                None => TxnOp::Delete { key, meta },
            }));
        }
        if let OwnedOperation::Create(limits) | OwnedOperation::Alter(limits) = &self.operation {
            options.key_bytes_max = limits.key_bytes;
            options.value_bytes_max = limits.value_bytes;
            options.keys_max = limits.keys;
        }
        take(&Intention {
            client: client(self.client),
            nonce: self.nonce,
            topic: &self.topic,
            operation: match &self.operation {
                OwnedOperation::Create(_) => Operation::Create { options: &options },
                OwnedOperation::Alter(_) => Operation::Alter { options: &options },
                OwnedOperation::Destroy => Operation::Destroy,
                OwnedOperation::Put(key, value) => Operation::Put { key, value },
                OwnedOperation::Delete(key) => Operation::Delete { key },
                OwnedOperation::Txn(_) => Operation::Txn { ops: &ops },
                OwnedOperation::Expire(idle_ms) => Operation::ExpireSessions { idle_ms: *idle_ms },
            },
            expect: &expect,
            meta: &self.meta,
            principal: &[],
            fingerprint: self.fingerprint,
        })
    }
}

impl Condition {
    fn borrowed(&self) -> Expect<'_> {
        match self {
            Self::KeyOffset(key, n) => Expect::KeyOffset(key.as_deref(), *n),
            Self::KeyAbsent(key) => Expect::KeyAbsent(key.as_deref()),
            Self::KeyPresent(key) => Expect::KeyPresent(key.as_deref()),
            Self::TopicOffset(n) => Expect::TopicOffset(*n),
            Self::TopicAbsentOr(n) => Expect::TopicAbsentOr(*n),
            Self::TopicEmpty => Expect::TopicEmpty,
            Self::Incarnation(n) => Expect::Incarnation(*n),
        }
    }
}

/// The client id for a small number.
pub(crate) fn client(number: u8) -> ClientId {
    ClientId([number; 16])
}

/// Steps that are proposed together, with their time stamp.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) time_ms: u64,
    pub(crate) steps: Vec<Step>,
}

/// Generates steps. It stores what a client would know, so that most steps are valid.
pub(crate) struct Generator {
    state: u64,
    time_ms: u64,
    /// The next nonce of each client, and the steps that it sent.
    clients: [(u64, Vec<Step>); 4],
    /// An estimate of the newest offsets, so that conditions sometimes hold.
    writes: u64,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: seed ^ 0x9e37_79b9_7f4a_7c15,
            time_ms: 0,
            clients: std::array::from_fn(|_| (1, Vec::new())),
            writes: 0,
        }
    }

    /// A number below `end` (splitmix64).
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Reports the next nonce to a client.
    pub(crate) fn set_next_nonce(&mut self, client: u8, next: u64) {
        self.clients[usize::from(client)].0 = next;
    }

    pub(crate) fn entry(&mut self) -> Entry {
        self.time_ms = match self.below(8) {
            0 => self.time_ms.saturating_sub(50),
            1 => self.time_ms + 1000,
            _ => self.time_ms + self.below(20),
        };
        let count = if self.one_in(3) { self.below(12) } else { 0 };
        let mut next = self.clients.each_ref().map(|(next, _)| *next);
        let steps = (0..=count).map(|_| self.step(&mut next)).collect();
        Entry {
            time_ms: self.time_ms,
            steps,
        }
    }

    fn step(&mut self, next: &mut [u64; 4]) -> Step {
        let client = self.below(4);
        let index = usize::try_from(client).unwrap();
        let sent = self.clients[index].1.len() as u64;
        if client != 0 && sent > 0 && self.one_in(6) {
            let again = usize::try_from(self.below(sent)).unwrap();
            let mut step = self.clients[index].1[again].clone();
            if self.one_in(3) {
                step.operation = self.operation();
                step.conditions.clear();
                self.remove_unsupported_fields(&mut step);
            }
            return step;
        }
        let mut step = Step {
            client: u8::try_from(client).unwrap(),
            nonce: 0,
            topic: ["orders", "people", "x.y-z"][usize::try_from(self.below(3)).unwrap()].into(),
            operation: self.operation(),
            conditions: Vec::new(),
            meta: vec![7; usize::try_from(self.below(3)).unwrap()],
            fingerprint: self.one_in(20).then_some(5),
        };
        if self.one_in(3) {
            step.conditions = (0..=self.below(3)).map(|_| self.condition()).collect();
        }
        self.remove_unsupported_fields(&mut step);
        if client != 0 {
            let skip = if self.one_in(15) { self.below(3) } else { 0 };
            step.nonce = next[index] + skip;
            next[index] += u64::from(skip == 0);
            self.clients[index].1.push(step.clone());
        }
        step
    }

    /// Removes the fields that the operation does not support.
    fn remove_unsupported_fields(&mut self, step: &mut Step) {
        let own_key = match &step.operation {
            OwnedOperation::Put(key, _) | OwnedOperation::Delete(key) => key.clone(),
            OwnedOperation::Expire(_) => {
                step.topic.clear();
                step.conditions.clear();
                step.meta.clear();
                return;
            }
            OwnedOperation::Txn(_) => {
                step.meta.clear();
                Vec::new()
            }
            _ => Vec::new(),
        };
        if step.topic.is_empty() {
            step.topic = "orders".into();
        }
        for condition in &mut step.conditions {
            let (Condition::KeyOffset(key, _)
            | Condition::KeyAbsent(key)
            | Condition::KeyPresent(key)) = condition
            else {
                continue;
            };
            if own_key.is_empty() && key.is_none() {
                *key = Some(self.key());
            }
        }
    }

    fn operation(&mut self) -> OwnedOperation {
        self.writes += 1;
        match self.below(40) {
            0..=2 => OwnedOperation::Create(self.limits()),
            3 => OwnedOperation::Alter(self.limits()),
            4 => OwnedOperation::Destroy,
            5..=10 => OwnedOperation::Delete(self.key()),
            11..=16 => {
                let steps = 0..=self.below(5);
                OwnedOperation::Txn(steps.map(|_| self.txn_step()).collect())
            }
            17 => OwnedOperation::Expire(self.below(3000)),
            18..=20 => OwnedOperation::Put(Vec::new(), self.value()),
            _ => OwnedOperation::Put(self.key(), self.value()),
        }
    }

    fn txn_step(&mut self) -> (Vec<u8>, Option<Vec<u8>>) {
        match self.below(6) {
            0 | 1 => (self.key(), None),
            2 => (Vec::new(), Some(self.value())),
            _ => (self.key(), Some(self.value())),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        let letter = b'a' + u8::try_from(self.below(5)).unwrap();
        vec![letter; 1 + usize::try_from(self.below(3)).unwrap() / 2]
    }

    fn value(&mut self) -> Vec<u8> {
        vec![b'v'; usize::try_from(self.below(4)).unwrap()]
    }

    fn limits(&mut self) -> Limits {
        let mut some = |from: u64| self.one_in(3).then(|| from + self.below(3));
        Limits {
            key_bytes: some(1),
            value_bytes: some(1),
            keys: some(0),
        }
    }

    fn condition(&mut self) -> Condition {
        let near = |generator: &mut Self| generator.below(generator.writes.min(60) + 2);
        let key = if self.one_in(3) {
            Some(self.key())
        } else {
            None
        };
        match self.below(7) {
            0 => Condition::KeyOffset(key, near(self)),
            1 => Condition::KeyAbsent(key),
            2 => Condition::KeyPresent(key),
            3 => Condition::TopicOffset(near(self)),
            4 => Condition::TopicAbsentOr(near(self)),
            5 => Condition::TopicEmpty,
            _ => Condition::Incarnation(near(self)),
        }
    }
}
