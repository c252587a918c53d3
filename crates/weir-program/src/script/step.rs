//! The commands of a script.

use weir_core::intention::{Expect, Intention, Operation, TxnOp};
use weir_core::{StateMode, TopicOptions};

use super::ScriptError;
use super::bytes::{parse_at, split_pair, words};

/// A command with owned bytes.
pub(super) struct Step {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) topic: String,
    pub(super) at_ms: Option<u64>,
    key: Vec<u8>,
    value: Vec<u8>,
    options: TopicOptions,
    code: Option<Vec<u8>>,
    args: Vec<u8>,
    principal: Vec<u8>,
    meta: Vec<u8>,
    key_offset: Option<u64>,
    steps: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

type Programs<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

impl Step {
    /// Parses commands. Lines that begin with a space are steps of the transaction before them.
    pub(super) fn all(
        lines: &[(usize, &str)],
        programs: Programs<'_>,
    ) -> Result<Vec<Self>, ScriptError> {
        let mut steps: Vec<Self> = Vec::new();
        for (line, text) in lines {
            let failed = |what: String| ScriptError { line: *line, what };
            let read = match (text.strip_prefix("  "), steps.last_mut()) {
                (Some(text), Some(above)) => above.add_step(text),
                _ => Self::read(*line, text, programs).map(|step| steps.push(step)),
            };
            read.map_err(failed)?;
        }
        Ok(steps)
    }

    fn read(line: usize, text: &str, programs: Programs<'_>) -> Result<Self, String> {
        let mut words = words(text)?.into_iter();
        let name = words.next().unwrap_or_default().to_owned();
        let topic = words.next().ok_or("the command has no topic")?.to_owned();
        let mut step = Self {
            line,
            topic,
            at_ms: None,
            key: Vec::new(),
            value: Vec::new(),
            options: TopicOptions::default(),
            code: None,
            args: Vec::new(),
            principal: Vec::new(),
            meta: Vec::new(),
            key_offset: None,
            steps: Vec::new(),
            name,
        };
        match step.name.as_str() {
            "put" => {
                let word = words.next().ok_or("a put needs key=value")?;
                let (key, value) = split_pair(word).ok_or("a put needs key=value")?;
                (step.key, step.value) = (bytes(key)?, bytes(value)?);
            }
            "delete" => step.key = bytes(words.next().ok_or("a delete needs a key")?)?,
            "create" | "replace" | "destroy" | "alter" | "txn" | "state" | "quarantine"
            | "release" => {}
            other => return Err(format!("unknown command {other}")),
        }
        for word in words {
            let (what, value) =
                split_pair(word).ok_or(format!("expected OPTION=VALUE, found {word}"))?;
            step.option(what, value, programs)?;
        }
        Ok(step)
    }

    fn option(&mut self, what: &str, value: &str, programs: Programs<'_>) -> Result<(), String> {
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("{value} is not a number"))
        };
        let program = &mut self.options.program;
        match what {
            "program" => {
                self.code = Some(programs(value).ok_or(format!("unknown program {value}"))?);
            }
            "code" => self.code = Some(bytes(value)?),
            "args" => self.args = bytes(value)?,
            "principal" => self.principal = bytes(value)?,
            "meta" => self.meta = bytes(value)?,
            "at" => self.at_ms = Some(number()?),
            "key_offset" => self.key_offset = Some(number()?),
            "keys_max" => self.options.keys_max = Some(number()?),
            "key_bytes_max" => self.options.key_bytes_max = Some(number()?),
            "value_bytes_max" => self.options.value_bytes_max = Some(number()?),
            "fuel_max" => program.fuel_max = Some(number()?),
            "memory_bytes_max" => program.memory_bytes_max = Some(number()?),
            "emits_max" => program.emits_max = Some(number()?),
            "emit_bytes_max" => program.emit_bytes_max = Some(number()?),
            "state_entries_max" => program.state_entries_max = Some(number()?),
            "state_bytes_max" => program.state_bytes_max = Some(number()?),
            "state" => {
                let modes = [StateMode::None, StateMode::Kv, StateMode::Memory];
                let mode = modes.into_iter().find(|mode| mode.name() == value);
                program.state = mode.ok_or(format!("unknown state mode {value}"))?;
            }
            other => return Err(format!("unknown option {other}")),
        }
        Ok(())
    }

    fn add_step(&mut self, text: &str) -> Result<(), String> {
        let words = words(text)?;
        let &[name, word] = words.as_slice() else {
            return Err(format!(
                "a step is `put KEY=VALUE` or `delete KEY`, with quotes around blanks: {text}"
            ));
        };
        let step = match (name, split_pair(word)) {
            ("put", Some((key, value))) => (bytes(key)?, Some(bytes(value)?)),
            ("delete", _) => (bytes(word)?, None),
            _ => return Err(format!("unknown step {text}")),
        };
        self.steps.push(step);
        Ok(())
    }

    /// Passes the command to `take` as an intention without a session.
    pub(super) fn with_intention<T>(&self, take: impl FnOnce(Intention<'_>) -> T) -> T {
        let (options, args) = (&self.options, self.args.as_slice());
        let (key, value) = (self.key.as_slice(), self.value.as_slice());
        let ops: Vec<TxnOp<'_>> = self
            .steps
            .iter()
            .map(|(key, value)| match value {
                Some(value) => TxnOp::Put {
                    key,
                    value,
                    meta: &[],
                },
                None => TxnOp::Delete { key, meta: &[] },
            })
            .collect();
        let operation = match (self.name.as_str(), &self.code) {
            ("create", Some(code)) => Operation::CreateProgram {
                options,
                code,
                args,
            },
            ("create", None) => Operation::Create { options },
            ("replace", code) => Operation::Replace {
                expected: None,
                code: code.as_deref().unwrap_or(&[]),
                args,
            },
            ("alter", _) => Operation::Alter { options },
            ("destroy", _) => Operation::Destroy,
            ("quarantine", _) => Operation::Quarantine { stopped: true },
            ("release", _) => Operation::Quarantine { stopped: false },
            ("delete", _) => Operation::Delete { key },
            ("txn", _) => Operation::Txn { ops: &ops },
            _ => Operation::Put { key, value },
        };
        let expect = self.key_offset.map(|n| Expect::KeyOffset(None, n));
        let mut intention = Intention::new(&self.topic, operation);
        intention.expect = expect.as_slice();
        intention.principal = &self.principal;
        intention.meta = &self.meta;
        take(intention)
    }
}

fn bytes(word: &str) -> Result<Vec<u8>, String> {
    parse_at(word).map_err(|at| {
        let bad = word.get(at..).unwrap_or_default();
        format!("{word} is not valid from byte {at} on: {bad}")
    })
}
