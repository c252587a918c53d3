//! Writes to a topic with a program, until all answers have arrived.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use weir::{Durability, Effect, Intention, Operation, Proposal, Weir};

use super::{fresh, module};
use crate::clock::Stopwatch;
use crate::contender::store::{DISTINCT, TOPIC, durability, failed, read_all, remove, scratch};
use crate::contender::wire::part;
use crate::contender::{Contender, ContenderError, parameter};
use crate::protocol::{Answer, Fields, Timed};
use crate::rng::SplitMix64;

/// Bytes of an account of `balance`.
const ACCOUNT_BYTES: usize = 32;
/// Bytes of a transfer: an account, an amount, and 16 bytes of text.
const TRANSFER_BYTES: usize = 56;
/// Puts in one call while the state is filled.
const FILL_BATCH: usize = 1_000;

/// The form of the puts. Key n is equal in every form, so a plain topic and a topic with a program
/// get equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// 100 random bytes under a key of 20.
    Bytes,
    /// 8 bytes, a number to add, under a key of 20.
    Number,
    /// A transfer of 1 from the bank to one of the accounts.
    Transfer,
}

/// One producer puts `messages` messages into a topic with the program `program`: `batch` in a
/// call, with at most `window` unanswered calls. Before, the topic gets one put for each of
/// `entries` keys. Reports `fuel`.
#[derive(Debug, Default)]
pub struct ProgramPut {
    inputs: BTreeMap<usize, Input>,
}

#[derive(Clone, Debug)]
struct Input {
    program: String,
    form: Form,
    messages: usize,
    batch: usize,
    window: usize,
    entries: usize,
    durability: Durability,
    path: PathBuf,
}

/// Key and value of a transfer of 1 from the bank to account `entry`, in the form that the program
/// `balance` reads.
pub fn transfer(entry: usize) -> ([u8; ACCOUNT_BYTES], [u8; TRANSFER_BYTES]) {
    let mut value = Vec::with_capacity(TRANSFER_BYTES);
    value.extend_from_slice(format!("{entry:020}------------").as_bytes());
    value.extend_from_slice(&1_i64.to_be_bytes());
    value.resize(TRANSFER_BYTES, 0);
    let mut whole = [0; TRANSFER_BYTES];
    whole.copy_from_slice(&value);
    ([0; ACCOUNT_BYTES], whole)
}

/// Key and value of every put, created before the clock starts.
struct Puts {
    keys: Vec<u8>,
    key_bytes: usize,
    values: Vec<u8>,
    value_bytes: usize,
}

impl Input {
    fn read(fields: &Fields, input: usize) -> Result<Input, ContenderError> {
        let form: String = parameter(fields, "form")?;
        let read = Input {
            program: parameter(fields, "program")?,
            form: match form.as_str() {
                "bytes" => Form::Bytes,
                "number" => Form::Number,
                "transfer" => Form::Transfer,
                _ => return Err(ContenderError::Parameter("form")),
            },
            messages: parameter(fields, "messages")?,
            batch: parameter(fields, "batch")?,
            window: parameter(fields, "window").unwrap_or(10),
            entries: parameter(fields, "entries")?,
            durability: durability(fields)?,
            path: scratch(fields, "program", input)?,
        };
        module(&read.program)?;
        for (name, bad) in [
            ("messages", read.messages == 0),
            ("batch", read.batch == 0),
            ("window", read.window == 0),
            ("entries", read.entries == 0),
        ] {
            if bad {
                return Err(ContenderError::Parameter(name));
            }
        }
        Ok(read)
    }

    /// Creates `count` puts. Key n is that of entry n, in scattered order.
    fn puts(&self, count: usize, scattered: bool) -> Puts {
        let mut rng = SplitMix64::new(7);
        let mut puts = Puts {
            keys: Vec::new(),
            key_bytes: 20,
            values: Vec::new(),
            value_bytes: 100,
        };
        match self.form {
            Form::Bytes => {}
            Form::Number => puts.value_bytes = 8,
            Form::Transfer => (puts.key_bytes, puts.value_bytes) = (ACCOUNT_BYTES, TRANSFER_BYTES),
        }
        for n in 0..count {
            let entry = if scattered {
                rng.below(self.entries)
            } else {
                n % self.entries
            };
            self.put(n, entry, &mut puts);
        }
        puts
    }

    fn put(&self, n: usize, entry: usize, puts: &mut Puts) {
        let name = format!("{entry:020}");
        match self.form {
            Form::Bytes => {
                puts.keys.extend_from_slice(name.as_bytes());
                let mut rng = SplitMix64::new((n % DISTINCT) as u64);
                let end = puts.values.len() + puts.value_bytes;
                while puts.values.len() < end {
                    puts.values.extend_from_slice(&rng.next_u64().to_le_bytes());
                }
                puts.values.truncate(end);
            }
            Form::Number => {
                puts.keys.extend_from_slice(name.as_bytes());
                puts.values.extend_from_slice(&1_i64.to_be_bytes());
            }
            Form::Transfer => {
                let (key, value) = transfer(entry);
                puts.keys.extend_from_slice(&key);
                puts.values.extend_from_slice(&value);
            }
        }
    }

    /// A store with its state filled.
    fn store(&self) -> Result<Weir, ContenderError> {
        let weir = fresh(&self.path, self.durability, module(&self.program)?)?;
        let fill = self.puts(self.entries, false);
        put(&weir, &fill, FILL_BATCH, self.window)?;
        Ok(weir)
    }
}

impl Puts {
    fn all(&self) -> impl Iterator<Item = Intention<'_>> {
        let values = self.values.chunks_exact(self.value_bytes);
        let pairs = self.keys.chunks_exact(self.key_bytes).zip(values);
        pairs.map(|(key, value)| Intention::new(TOPIC, Operation::Put { key, value }))
    }
}

/// Puts all messages. Returns the used fuel.
fn put(weir: &Weir, puts: &Puts, batch: usize, window: usize) -> Result<u64, ContenderError> {
    let mut fuel = 0;
    let mut waiting: VecDeque<Proposal> = VecDeque::with_capacity(window);
    let mut call = Vec::with_capacity(batch);
    let mut all = puts.all().peekable();
    while all.peek().is_some() {
        call.clear();
        call.extend(all.by_ref().take(batch));
        if waiting.len() == window
            && let Some(oldest) = waiting.pop_front()
        {
            fuel += await_valid(oldest)?;
        }
        waiting.push_back(weir.propose(&call).map_err(failed)?);
    }
    for proposal in waiting {
        fuel += await_valid(proposal)?;
    }
    Ok(fuel)
}

/// Waits for an answer. Any verdict other than VALID is an error here.
fn await_valid(proposal: Proposal) -> Result<u64, ContenderError> {
    let outcomes = proposal.wait().map_err(failed)?;
    let mut fuel = 0;
    for outcome in outcomes.iter() {
        match outcome.commit() {
            Some(commit) if commit.effect == Effect::Valid => fuel += commit.fuel,
            _ => return Err(failed("a put was not VALID")),
        }
    }
    Ok(fuel)
}

impl ProgramPut {
    fn input(&self, input: usize) -> Result<&Input, ContenderError> {
        self.inputs
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))
    }
}

impl Contender for ProgramPut {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        self.inputs.insert(input, Input::read(fields, input)?);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let input = self.input(input)?;
        let weir = input.store()?;
        put(&weir, &input.puts(1_000, true), input.batch, input.window)?;
        let content = read_all(&weir, |value| part(b'r', value))?;
        weir.close().map_err(failed)?;
        remove(&input.path)?;
        Ok(Answer {
            content,
            touch: input.messages as u64,
            ..Answer::default()
        })
    }

    #[allow(clippy::cast_precision_loss)] // counts below 2^53
    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let input = self.input(input)?;
        let mut sum = Timed::default();
        for _ in 0..iterations {
            let weir = input.store()?;
            let puts = input.puts(input.messages, true);
            let before = weir.store().map_err(failed)?.stats();
            let watch = Stopwatch::start();
            let fuel = put(&weir, &puts, input.batch, input.window)?;
            let (wall_ns, cpu_ns) = watch.stop();
            let after = weir.store().map_err(failed)?.stats();
            sum.wall_ns += wall_ns;
            sum.cpu_ns += cpu_ns;
            sum.touch = sum.touch.wrapping_add(after.valid - before.valid);
            for (name, value) in [("fuel", fuel), ("syncs", after.syncs - before.syncs)] {
                *sum.extra.entry(name.to_owned()).or_default() += value as f64;
            }
            weir.close().map_err(failed)?;
            remove(&input.path)?;
        }
        Ok(sum)
    }
}

impl Drop for ProgramPut {
    fn drop(&mut self) {
        for input in self.inputs.values() {
            let _ = remove(&input.path);
        }
    }
}
