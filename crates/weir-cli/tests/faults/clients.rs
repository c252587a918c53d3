//! Clients, each a thread with a separate connection, which run until the end of the history.
//!
//! All written values are distinct.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir::{
    ClientId, ConnectOptions, ConsequenceOffset, Consistency, ErrorCode, Expect, Group, GroupMode,
    GroupSetup, Intention, Operation, ReadFrom, Session, Topic, TxnOp, Verdict, Weir, WeirError,
};

use crate::history::{History, Op, Outcome};
use crate::random::Random;

const REGISTERS: &str = "registers";
const LOG: &str = "log";
const BANK: &str = "bank";
const JOBS: &str = "jobs";
/// The topics whose values are compared at the end.
pub(crate) const TOPICS: [&str; 4] = [REGISTERS, LOG, BANK, JOBS];
const ACCOUNTS: u64 = 4;
/// Initial balance of each account, equal to that in `porcupine/main.go`.
const FIRST_BALANCE: i64 = 100;
/// How long registers are written. Short histories are checked quickly.
const REGISTER_TIME: Duration = Duration::from_secs(5);
/// Lease of a member.
const LEASE: Duration = Duration::from_secs(2);
const KEY: &str = "tail";

/// State that all clients share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) history: History,
    pub(crate) is_over: Arc<AtomicBool>,
    last_value: Arc<AtomicI64>,
    begun: Instant,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            history: History::new(),
            is_over: Arc::default(),
            last_value: Arc::default(),
            begun: Instant::now(),
        }
    }

    fn value(&self) -> i64 {
        self.last_value.fetch_add(1, Ordering::Relaxed) + 1
    }
}

struct Client {
    id: u64,
    weir: Weir,
    /// Whether all reads are linear, not only those of keys.
    is_linear: bool,
    shared: Shared,
    random: Random,
}

/// Creates the topics, the accounts and the groups.
pub(crate) fn prepare(at: &str) -> Result<(), WeirError> {
    let weir = Weir::connect(at)?;
    for topic in TOPICS {
        weir.topic(topic)?.ensure()?;
    }
    for account in 0..ACCOUNTS {
        let value = format!("{FIRST_BALANCE}:first-{account}");
        weir.topic(BANK)?
            .put(account.to_string(), value)?
            .ensure_valid()?;
    }
    let mut setup = GroupSetup::new(GroupMode::Shared);
    setup.lease_ms = u64::try_from(LEASE.as_millis()).unwrap();
    weir.topic(JOBS)?.group_with("work", &setup)?;
    setup.mode = GroupMode::Exclusive;
    weir.topic(JOBS)?.group_with("lease", &setup)?;
    Ok(())
}

/// Starts all clients. Each one starts at the next of these addresses.
pub(crate) fn start(at: &[String], shared: &Shared, random: &mut Random) -> Vec<JoinHandle<()>> {
    let work: [fn(&mut Client); 12] = [
        Client::registers,
        Client::registers,
        Client::registers,
        Client::append,
        Client::append,
        Client::bank,
        Client::bank,
        Client::produce,
        Client::work,
        Client::work,
        Client::lease,
        Client::lease,
    ];
    let all = (1..).zip(work);
    let start = |(id, run): (u64, fn(&mut Client))| {
        let mut options = ConnectOptions::default();
        options.patience = Duration::from_secs(8);
        let is_linear = id % 2 == 0;
        options.consistency = is_linear.then_some(Consistency::Linear);
        let at = at[usize::try_from(id).unwrap() % at.len()].clone();
        let (shared, random) = (shared.clone(), random.fork());
        std::thread::spawn(move || {
            let weir = Weir::connect_with(&at, &options).unwrap();
            let mut client = Client {
                id,
                weir,
                is_linear,
                shared,
                random,
            };
            run(&mut client);
        })
    };
    all.map(start).collect()
}

fn is_unknown(error: &WeirError) -> bool {
    error.code() == ErrorCode::Indeterminate
}

/// The number at the beginning of a value of an account.
fn balance(value: &[u8]) -> i64 {
    let text = std::str::from_utf8(value).unwrap();
    text.split_once(':').unwrap().0.parse().unwrap()
}

impl Client {
    fn continues_after_pause(&mut self) -> bool {
        std::thread::sleep(Duration::from_millis(5 + self.random.below(40)));
        !self.shared.is_over.load(Ordering::Relaxed)
    }

    fn topic(&self, name: &str) -> Topic {
        self.weir.topic(name).unwrap()
    }

    fn op(&self, model: &'static str, op: &'static str) -> Op {
        Op {
            model,
            part: String::new(),
            client: self.id,
            call: Instant::now(),
            op,
            numbers: [0; 4],
            outcome: Outcome::Ok,
            writes: None,
        }
    }

    /// Records the outcome of a write.
    fn record_write(&self, mut op: Op, verdict: Result<Verdict, WeirError>) {
        match verdict {
            Ok(verdict) if verdict.is_valid() => {
                let offset = verdict.offset().map(|offset| offset.0);
                self.shared.history.add(op, offset);
            }
            Ok(verdict) => {
                assert_eq!(verdict.reason(), Some(ErrorCode::Conflict), "{verdict:?}");
                self.shared.history.reject(op.writes.take());
                op.outcome = Outcome::No;
                self.shared.history.add(op, None);
            }
            Err(error) if is_unknown(&error) => {
                op.outcome = Outcome::Open;
                self.shared.history.add(op, None);
            }
            Err(_) => self.shared.history.reject(op.writes),
        }
    }

    /// Puts, conditional puts and reads of a few keys, without a session.
    fn registers(&mut self) {
        let topic = self.topic(REGISTERS);
        while self.continues_after_pause() {
            let epoch = self.shared.begun.elapsed().as_secs() / REGISTER_TIME.as_secs();
            let key = format!("{epoch}-{}", self.random.below(2));
            let part = key.clone();
            let mut op = Op {
                part: part.clone(),
                ..self.op("register", "get")
            };
            let kind = self.random.below(10);
            let found = (kind < 7).then(|| topic.get(&key));
            let seen = match found {
                Some(Ok(found)) => {
                    let seen = found.map(|value| {
                        let text = std::str::from_utf8(value.value()).unwrap();
                        (text.parse::<i64>().unwrap(), value.record().offset.0)
                    });
                    op.numbers[0] = seen.map_or(0, |(value, _)| value);
                    self.shared.history.add(op, None);
                    seen
                }
                Some(Err(_)) => continue,
                None => None,
            };
            let value = self.shared.value();
            let text = value.to_string();
            let writes = Some((REGISTERS, text.clone()));
            if kind < 4 {
                continue;
            }
            if kind < 7 {
                let expect = match seen {
                    Some((_, offset)) => Expect::KeyOffset(None, offset),
                    None => Expect::KeyAbsent(None),
                };
                let expected = seen.map_or(0, |(value, _)| value);
                let op = Op {
                    part,
                    numbers: [expected, value, 0, 0],
                    writes,
                    ..self.op("register", "cas")
                };
                let verdict = topic.put_if(&key, &text, &[expect]);
                self.record_write(op, verdict);
            } else {
                let op = Op {
                    part,
                    numbers: [value, 0, 0, 0],
                    writes,
                    ..self.op("register", "put")
                };
                let verdict = topic.put(&key, &text);
                self.record_write(op, verdict);
            }
        }
    }

    fn session(&self) -> Session {
        let mut id = [0x22; 16];
        id[..8].copy_from_slice(&self.id.to_le_bytes());
        self.weir.session(ClientId(id))
    }

    /// Retries a write of a session until its outcome is known, or the history ends.
    fn execute_until_known(
        &mut self,
        session: &mut Session,
        nonce: u64,
        what: Intention<'_>,
    ) -> Option<u64> {
        loop {
            match session.execute(&[what]) {
                Ok(verdicts) => {
                    assert!(verdicts[0].is_valid(), "{verdicts:?}");
                    return verdicts[0].offset().map(|offset| offset.0);
                }
                Err(error) => {
                    assert!(
                        !matches!(error, WeirError::Nonce { code, .. } if code != ErrorCode::Busy),
                        "nonce {nonce}: {error}"
                    );
                    if !self.continues_after_pause() {
                        return None;
                    }
                    session.resume(nonce);
                }
            }
        }
    }

    /// The newest offset of a value, read in one of several ways. The records up to `seen` were
    /// already read.
    fn newest(&mut self, topic: &Topic, seen: u64) -> Result<u64, WeirError> {
        let way = if self.is_linear {
            self.random.below(4)
        } else {
            0
        };
        let last = match way {
            0 => topic.get(KEY)?.map(|value| value.record().offset),
            1 => topic.try_info()?.map(|info| info.last),
            2 => {
                let topics = self.weir.topics(false)?;
                let log = topics.iter().find(|info| info.name == LOG);
                log.map(|info| info.last)
            }
            _ => {
                let after = ConsequenceOffset(seen);
                let mut listener = topic.listener(ReadFrom::After(after))?;
                let mut last = after;
                while let Some(page) = listener.next_page()? {
                    last = page.last();
                }
                Some(last)
            }
        };
        // The first record is no value: it creates the topic.
        let last = last.filter(|last| last.0 > 1);
        Ok(last.map_or(0, |last| last.0))
    }

    /// Appends to one topic through a session, and reads its newest offset.
    fn append(&mut self) {
        let (topic, mut session) = (self.topic(LOG), self.session());
        let (mut nonce, mut seen) = (0, 0);
        while self.continues_after_pause() {
            if self.random.below(2) == 0 {
                let mut op = self.op("append", "last");
                if let Ok(last) = self.newest(&topic, seen) {
                    seen = last;
                    op.numbers[0] = i64::try_from(last).unwrap();
                    self.shared.history.add(op, None);
                }
                continue;
            }
            nonce += 1;
            let value = self.shared.value().to_string();
            let mut op = self.op("append", "append");
            op.writes = Some((LOG, value.clone()));
            let (key, value) = (KEY.as_bytes(), value.as_bytes());
            let put = Intention::new(LOG, Operation::Put { key, value });
            let offset = self.execute_until_known(&mut session, nonce, put);
            match offset {
                Some(offset) => op.numbers[0] = i64::try_from(offset).unwrap(),
                None => op.outcome = Outcome::Open,
            }
            self.shared.history.add(op, offset);
        }
    }

    /// The balance of an account, and the offset of its record.
    fn account(&self, topic: &Topic, account: u64) -> Option<(i64, u64)> {
        let mut op = self.op("bank", "read");
        let value = topic.get(account.to_string()).ok()??;
        let balance = balance(value.value());
        op.numbers = [i64::try_from(account).unwrap(), balance, 0, 0];
        self.shared.history.add(op, None);
        Some((balance, value.record().offset.0))
    }

    /// Moves money between accounts by transactions with conditions.
    fn bank(&mut self) {
        let topic = self.topic(BANK);
        while self.continues_after_pause() {
            let from = self.random.below(ACCOUNTS);
            let to = (from + 1 + self.random.below(ACCOUNTS - 1)) % ACCOUNTS;
            let (Some(a), Some(b)) = (self.account(&topic, from), self.account(&topic, to)) else {
                continue;
            };
            if a.0 == 0 {
                continue;
            }
            let amount = 1 + i64::try_from(self.random.below(a.0.unsigned_abs())).unwrap();
            let transfer = self.shared.value();
            let values = [
                format!("{}:{transfer}-from", a.0 - amount),
                format!("{}:{transfer}-to", b.0 + amount),
            ];
            let keys = [from.to_string(), to.to_string()];
            let ops = [0, 1].map(|which| TxnOp::Put {
                key: keys[which].as_bytes(),
                value: values[which].as_bytes(),
                meta: &[],
            });
            let expect = [
                Expect::KeyOffset(Some(keys[0].as_bytes()), a.1),
                Expect::KeyOffset(Some(keys[1].as_bytes()), b.1),
            ];
            let [n_from, n_to] = [from, to].map(|account| i64::try_from(account).unwrap());
            let op = Op {
                numbers: [n_from, n_to, amount, a.0 << 32 | b.0],
                writes: Some((BANK, values[0].clone())),
                ..self.op("bank", "transfer")
            };
            let verdict = topic.txn(&ops, &expect);
            self.record_write(op, verdict);
        }
    }

    /// Adds jobs through a session.
    fn produce(&mut self) {
        let mut session = self.session();
        let mut nonce = 0;
        while self.continues_after_pause() {
            nonce += 1;
            let value = self.shared.value().to_string();
            let mut op = self.op("queue", "add");
            (op.part, op.writes) = (value.clone(), Some((JOBS, value.clone())));
            let (key, value) = (&b""[..], value.as_bytes());
            let put = Intention::new(JOBS, Operation::Put { key, value });
            let offset = self.execute_until_known(&mut session, nonce, put);
            if offset.is_none() {
                op.outcome = Outcome::Open;
            }
            self.shared.history.add(op, offset);
        }
    }

    fn group(&self, name: &str, mode: GroupMode) -> Option<Group> {
        let group = self.topic(JOBS).group(name, mode).ok()?;
        Some(group.member(format!("member-{}", self.id)))
    }

    /// Claims jobs, and acknowledges each one.
    fn work(&mut self) {
        let mut group = None;
        while self.continues_after_pause() {
            if group.is_none() {
                group = self.group("work", GroupMode::Shared);
            }
            let Some(group) = &mut group else { continue };
            let claimed = self.op("queue", "claim");
            let Ok(works) = group.claim(4, Duration::from_millis(100)) else {
                continue;
            };
            for work in &works {
                let part = String::from_utf8(work.record().value.to_vec()).unwrap();
                let op = Op {
                    part,
                    ..claimed.clone()
                };
                self.shared.history.add(op, None);
            }
            for work in works {
                let part = String::from_utf8(work.record().value.to_vec()).unwrap();
                let op = Op {
                    part,
                    ..self.op("queue", "done")
                };
                let outcome = match group.ack(&[work]) {
                    Ok(lost) if lost.is_empty() => Outcome::Ok,
                    // An earlier attempt of this call may have acknowledged the job.
                    Ok(_) => Outcome::Open,
                    Err(error) if is_unknown(&error) => Outcome::Open,
                    Err(_) => continue,
                };
                self.shared.history.add(Op { outcome, ..op }, None);
            }
        }
    }

    /// Takes over the ownership of a group, and uses it. A member that lost the ownership must
    /// fail.
    fn lease(&mut self) {
        let mut group = None;
        while self.continues_after_pause() {
            if group.is_none() {
                group = self.group("lease", GroupMode::Exclusive);
            }
            let Some(group) = &mut group else { continue };
            let mut take = self.op("lease", "take");
            if group.take_over().is_err() {
                continue;
            }
            let taken = Instant::now();
            let Ok(works) = group.claim(1, Duration::ZERO) else {
                continue;
            };
            let Some(work) = works.first() else { continue };
            let generation = i64::try_from(work.claim()).unwrap();
            take.numbers[0] = generation;
            self.shared.history.add_at(take, taken);
            if !self.continues_after_pause() {
                return;
            }
            let mut used = self.op("lease", "use");
            used.numbers[0] = generation;
            used.outcome = match group.ack(&works) {
                Ok(lost) if lost.is_empty() => Outcome::Ok,
                Ok(_) => Outcome::No,
                Err(error) if is_unknown(&error) => Outcome::Open,
                Err(_) => continue,
            };
            self.shared.history.add(used, None);
        }
    }
}
