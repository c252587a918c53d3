//! Chapters "bank" and "replay": concurrent writers cannot overdraw the accounts of a topic with a
//! program.
//!
//! A seed determines the transfers of each writer, but the threads determine the order of all
//! transfers. So each verdict is compared with a model, which applies the transfers in the order of
//! the log. The balances are summed after each transfer.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use weir::{
    Detail, Digest, Effect, Intention, Operation, ReadFrom, RecordKind, Session, TopicOptions, Weir,
};

use super::facts::{Facts, seconds};
use super::output::{DemoOutput, check_interrupt, count, rate, time};
use super::recheck::verify_files;
use super::write::{client, join};
use crate::interrupt::Interrupt;

/// The program: a module in the repository, built from `programs/reference/examples/balance.rs`.
const PROGRAM: &[u8] = include_bytes!("../../../../programs/prebuilt/balance.wasm");
/// The topic.
const TOPIC: &str = "bank";
/// The arguments of the program: only this principal may take money from the bank.
const ARGUMENTS: &[u8] = b"\x01mint";
/// Concurrent sessions that write.
const WRITERS: u8 = 8;
/// Accounts, numbered from 1; 0 is the bank.
const ACCOUNTS: u8 = 100;
/// Initial balance of each account.
const START: i64 = 1000;
/// Transfers in one call.
const CALL_TRANSFERS: usize = 50;
/// Maximum number of pending calls of a writer.
const CALLS_IN_FLIGHT_MAX: usize = 4;

/// A requested transfer of money.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    from: u8,
    to: u8,
    amount: i64,
    /// Whether the transfer names an offset at which the source account was never written.
    stale: bool,
    /// Whether the value of the transfer is too short.
    broken: bool,
}

/// A requested transfer and its result.
struct Answer {
    intention: u64,
    transfer: Transfer,
    /// Code and message of a reject.
    reject: Option<(u16, String)>,
}

impl Transfer {
    /// Generates the n-th transfer of a writer. Most are valid; each kind of error occurs in a few.
    fn generate(writer: u8, n: u64) -> Self {
        let mixed = mix(u64::from(writer) << 32 | n);
        let part = |shift: u32, below: u64| (mixed >> shift) % below;
        let account = |shift| u8::try_from(part(shift, u64::from(ACCOUNTS))).unwrap_or(0) + 1;
        let kind = part(0, 100);
        let amount = i64::try_from(part(8, 400)).unwrap_or(0) + 1;
        Self {
            from: if kind == 0 { 0 } else { account(20) },
            to: account(30),
            amount: if kind == 1 { -amount } else { amount },
            stale: kind == 2,
            broken: kind == 3,
        }
    }

    fn value(&self) -> Vec<u8> {
        if self.broken {
            return b"all of it".to_vec();
        }
        let seen = u64::from(self.stale);
        let numbers = [self.amount.to_be_bytes(), seen.to_be_bytes(), [0; 8]];
        [&account(self.to)[..], &numbers.concat()].concat()
    }
}

/// Distributes a number over 64 bits (the splitmix generator).
fn mix(n: u64) -> u64 {
    let mut mixed = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// The key of an account.
fn account(number: u8) -> [u8; 32] {
    let mut key = [0; 32];
    key[0] = number;
    key
}

/// A model of the program, written independently of the program's source.
struct Model([i64; 256]);

impl Model {
    fn expected_refusal(&mut self, transfer: &Transfer) -> Option<u16> {
        let (from, to) = (usize::from(transfer.from), usize::from(transfer.to));
        let has = self.0.get(from).copied().unwrap_or(0);
        let refused = match transfer {
            _ if transfer.broken => Some(1),
            _ if transfer.amount <= 0 => Some(2),
            _ if from == to => Some(3),
            _ if transfer.stale => Some(4),
            _ if from == 0 => Some(8),
            _ if has < transfer.amount => Some(6),
            _ => None,
        };
        if refused.is_none() {
            for (number, change) in [(from, -transfer.amount), (to, transfer.amount)] {
                if let Some(balance) = self.0.get_mut(number) {
                    *balance += change;
                }
            }
        }
        refused
    }
}

/// Runs 8 concurrent writers on a bank in a separate store, and checks all verdicts and balances.
pub(super) fn run(
    output: &mut DemoOutput,
    facts: &mut Facts,
    directory: &Path,
    transfers: u64,
) -> anyhow::Result<()> {
    let (weir, refusals) = output.step("bank", |output| {
        let weir = Weir::open(directory)?;
        let minted = open_bank(&weir)?;
        let bar = output.bar("paying", transfers);
        let start = Instant::now();
        let share = transfers / u64::from(WRITERS);
        let mut answers = thread::scope(|scope| {
            let writers: Vec<_> = (1..=WRITERS)
                .map(|writer| {
                    let (bar, weir, interrupt) = (&bar, &weir, output.interrupt());
                    scope.spawn(move || {
                        send_transfers(weir, writer, share, interrupt, |n| bar.inc(n))
                    })
                })
                .collect();
            let mut answers = Vec::new();
            for writer in writers {
                answers.extend(join(writer)?);
            }
            Ok::<_, anyhow::Error>(answers)
        })?;
        let took = start.elapsed();
        bar.finish_and_clear();
        answers.sort_unstable_by_key(|answer| answer.intention);
        let model = compare_verdicts(&answers)?;
        let states = check_sums(&weir, minted)?;
        check_balances(&weir, &model, minted)?;
        let refused = answers.iter().filter(|answer| answer.reject.is_some());
        let refused = refused.count() as u64;
        let sent = answers.len() as u64;
        let program = weir.store()?.program(TOPIC).context("no program")?;
        ensure!(
            program.counts.rejects == refused && program.counts.traps == 0,
            "the program counted {:?}, but {refused} transfers were rejected",
            program.counts
        );
        let refusals = refusals(&answers);
        facts.insert(
            "bank".into(),
            json!({"writers": WRITERS, "transfers": sent, "done": sent - refused,
                   "refused": refused,
                   "refusals": refusals.iter().map(refusal_json).collect::<Vec<_>>(),
                   "minted": minted, "sum": minted, "negative": 0, "states": states,
                   "seconds": seconds(took), "per_s": rate(sent, took),
                   "fuel": program.counts.fuel}),
        );
        let line = format!(
            "{} transfers by {WRITERS} writers at {}/s: {} executed, {} rejected; no account was \
             overdrawn, and the total is still {}",
            count(sent),
            count(rate(sent, took)),
            count(sent - refused),
            count(refused),
            count(u64::try_from(minted)?),
        );
        Ok((line, (weir, refusals)))
    })?;
    for ((_, words), number) in &refusals {
        output.print_line(&format!("                 {:>6}  {words}", count(*number)))?;
    }
    replay(output, facts, weir, directory)
}

/// Creates the topic, and puts the initial balance of each account. Returns the total amount.
fn open_bank(weir: &Weir) -> anyhow::Result<i64> {
    let topic = weir.topic(TOPIC)?;
    let made = topic.create_program(&TopicOptions::default(), PROGRAM, ARGUMENTS)?;
    ensure!(made.is_valid(), "the bank was not created: {made:?}");
    let values: Vec<Vec<u8>> = (1..=ACCOUNTS).map(|to| mint(to).value()).collect();
    let mut intentions: Vec<Intention<'_>> =
        values.iter().map(|value| put(&[0; 32], value)).collect();
    for intention in &mut intentions {
        intention.principal = b"mint";
    }
    let outcomes = weir.propose(&intentions)?.wait()?;
    for outcome in outcomes.iter() {
        let valid = outcome.commit().map(|commit| commit.effect) == Some(Effect::Valid);
        ensure!(valid, "an account got no initial balance: {outcome:?}");
    }
    Ok(START * i64::from(ACCOUNTS))
}

fn mint(to: u8) -> Transfer {
    Transfer {
        from: 0,
        to,
        amount: START,
        stale: false,
        broken: false,
    }
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Intention<'a> {
    Intention::new(TOPIC, Operation::Put { key, value })
}

/// Sends the transfers of a writer, with several pending calls.
fn send_transfers(
    weir: &Weir,
    writer: u8,
    transfers: u64,
    interrupt: &Interrupt,
    answered: impl Fn(u64),
) -> anyhow::Result<Vec<Answer>> {
    let mut session = weir.session(client(100 + writer));
    let mut in_flight = VecDeque::new();
    let mut answers = Vec::new();
    let all: Vec<Transfer> = (0..transfers)
        .map(|n| Transfer::generate(writer, n))
        .collect();
    for call in all.chunks(CALL_TRANSFERS) {
        check_interrupt(interrupt)?;
        in_flight.push_back((send(&mut session, call)?, call));
        if in_flight.len() > CALLS_IN_FLIGHT_MAX
            && let Some((pending, call)) = in_flight.pop_front()
        {
            collect(pending, call, &mut answers)?;
            answered(call.len() as u64);
        }
    }
    for (pending, call) in in_flight {
        collect(pending, call, &mut answers)?;
        answered(call.len() as u64);
    }
    Ok(answers)
}

fn send(session: &mut Session, call: &[Transfer]) -> anyhow::Result<weir::Pending> {
    let bytes: Vec<_> = call
        .iter()
        .map(|transfer| (account(transfer.from), transfer.value()))
        .collect();
    let puts: Vec<_> = bytes.iter().map(|(key, value)| put(key, value)).collect();
    Ok(session.send(&puts)?)
}

fn collect(
    pending: weir::Pending,
    call: &[Transfer],
    answers: &mut Vec<Answer>,
) -> anyhow::Result<()> {
    let outcomes = pending.into_proposal().wait()?;
    ensure!(outcomes.len() == call.len(), "answers are missing");
    for (outcome, transfer) in outcomes.iter().zip(call) {
        let commit = outcome.commit().context("a transfer was refused")?;
        let reject = match (commit.effect, &commit.detail) {
            (Effect::Valid, _) => None,
            (Effect::Invalid, Detail::Rejected { code, text }) => Some((*code, text.to_string())),
            _ => bail!("a transfer got the outcome {commit:?}"),
        };
        answers.push(Answer {
            intention: commit.intention.0,
            transfer: *transfer,
            reject,
        });
    }
    Ok(())
}

/// Checks that each verdict, in the order of the log, is equal to that of the model.
fn compare_verdicts(answers: &[Answer]) -> anyhow::Result<Model> {
    let mut model = Model([0; 256]);
    for number in 1..=ACCOUNTS {
        if let Some(balance) = model.0.get_mut(usize::from(number)) {
            *balance = START;
        }
    }
    for answer in answers {
        let expected = model.expected_refusal(&answer.transfer);
        let code = answer.reject.as_ref().map(|(code, _)| *code);
        ensure!(
            code == expected,
            "{:?} at {} got the verdict {code:?}, the model expects {expected:?}",
            answer.transfer,
            answer.intention
        );
    }
    Ok(model)
}

/// Reads the topic from its start, and sums all balances after the last record of each transfer.
/// Returns the number of sums.
fn check_sums(weir: &Weir, minted: i64) -> anyhow::Result<u64> {
    let mut balances = BTreeMap::new();
    let (mut sum, mut mints, mut states) = (0, 0, 0);
    for page in weir.topic(TOPIC)?.pages(ReadFrom::Start)? {
        for record in &page? {
            let record = record?;
            if record.kind != RecordKind::Put {
                continue;
            }
            let amount = i64::from_be_bytes(record.value.try_into().context("no balance")?);
            if record.key != account(0) {
                ensure!(
                    amount >= 0,
                    "an account has {amount} at record {}",
                    record.offset
                );
                sum += amount - balances.insert(record.key.to_vec(), amount).unwrap_or(0);
            }
            if record.flags.last() {
                states += 1;
                mints += i64::from(mints < i64::from(ACCOUNTS));
                let so_far = START * mints;
                ensure!(
                    sum == so_far,
                    "the sum is {sum} of {so_far} at record {}",
                    record.offset
                );
            }
        }
    }
    ensure!(sum == minted, "the sum is {sum} of {minted} at the end");
    Ok(states)
}

/// Checks that the values of the keys are equal to the balances of the model.
fn check_balances(weir: &Weir, model: &Model, minted: i64) -> anyhow::Result<()> {
    let topic = weir.topic(TOPIC)?;
    let mut sum = 0;
    for (number, expected) in (0_u8..=u8::MAX).zip(model.0).skip(1) {
        let value = topic.get(account(number))?;
        let balance = match &value {
            Some(value) => i64::from_be_bytes(value.value().try_into()?),
            None => 0,
        };
        ensure!(
            balance == expected,
            "account {number} has {balance}, not {expected}"
        );
        sum += balance;
    }
    ensure!(sum == minted, "the balances are {sum} of {minted}");
    Ok(())
}

type Refusals = BTreeMap<(u16, String), u64>;

/// Counts the rejects by reason, in the words of the program.
fn refusals(answers: &[Answer]) -> Refusals {
    let mut refusals = BTreeMap::new();
    for reject in answers.iter().filter_map(|answer| answer.reject.clone()) {
        *refusals.entry(reject).or_default() += 1;
    }
    refusals
}

fn refusal_json(((code, text), count): (&(u16, String), &u64)) -> Value {
    json!({"code": code, "text": text, "count": count})
}

/// Checks that a new machine which applies the log reaches an equal state.
fn replay(
    output: &mut DemoOutput,
    facts: &mut Facts,
    weir: Weir,
    directory: &Path,
) -> anyhow::Result<()> {
    output.step("replay", |_| {
        let (digest, applied): (Digest, u64) = (weir.store()?.digest(), weir.store()?.applied().0);
        weir.close()?;
        let start = Instant::now();
        let report = verify_files(directory)?;
        ensure!(
            report.digest == Some(digest),
            "the log gives the digest {:?}, the bank had {digest}",
            report.digest
        );
        let took = start.elapsed();
        if let Some(Value::Object(bank)) = facts.get_mut("bank") {
            bank.insert("digest".into(), digest.to_string().into());
            bank.insert("replay_seconds".into(), seconds(took));
        }
        let line = format!(
            "{} intentions of the bank replayed from the log in {}: the digest is still {digest}",
            count(applied),
            time(took),
        );
        Ok((line, ()))
    })
}
