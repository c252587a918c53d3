//! Runs scripts with programs in text form.

use std::fmt::Write as _;
use std::sync::Arc;

use weir_core::intention::{Intention, IntentionLimits};
use weir_core::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use weir_core::{
    ApplyError, Batch, BatchBuilder, ConsequenceSink, Machine, Outcome, Outcomes, ProgramHost,
    Record, TopicId, TopicName,
};
use weir_program::script::{RunOptions, run};
use weir_program::{WasmiHost, WasmtimeHost};

pub(crate) fn hosts() -> [Arc<dyn ProgramHost>; 2] {
    [
        Arc::new(WasmtimeHost::default()),
        Arc::new(WasmiHost::default()),
    ]
}

/// Every imported function.
const IMPORTS: [(&str, usize, &str); 16] = [
    ("input_info", 1, ""),
    ("input_read", 4, "i32"),
    ("emit_put", 4, ""),
    ("emit_delete", 2, ""),
    ("emit_input", 0, ""),
    ("emit_value", 4, ""),
    ("reject_text", 2, ""),
    ("state_get", 5, "i32"),
    ("state_put", 4, ""),
    ("state_delete", 2, ""),
    ("state_next", 4, "i32"),
    ("key_get", 5, "i32"),
    ("key_offset", 2, "i64"),
    ("hash", 4, ""),
    ("json_find", 5, "i32"),
    ("log", 3, ""),
];

/// A module with one page that may grow to two, these imports, further parts, and this body of
/// `weir_apply`.
pub(crate) fn module(imports: &str, parts: &str, apply: &str) -> String {
    let mut out = String::from("(module ");
    for (name, count, result) in IMPORTS {
        if imports.split(' ').any(|wanted| wanted == name) {
            let params = " i32".repeat(count);
            let result = match result {
                "" => String::new(),
                kind => format!("(result {kind})"),
            };
            let _ = write!(
                out,
                r#"(import "weir1" "{name}" (func ${name} (param{params}) {result}))"#
            );
        }
    }
    let _ = write!(
        out,
        r#"(memory (export "memory") 1 2) {parts}
        (func (export "weir_abi") (result i32) i32.const 1)
        (func (export "weir_apply") (result i32) {apply}))"#
    );
    out
}

/// Runs a script with all combinations of options on every engine. Returns the printed results.
pub(crate) fn run_script(script: &str, programs: &[(&str, &str)]) -> String {
    run_script_on(&hosts(), script, programs).0
}

/// As `run_script`, on these engines. Also returns the machine at the end.
pub(crate) fn run_script_on(
    hosts: &[Arc<dyn ProgramHost>],
    script: &str,
    programs: &[(&str, &str)],
) -> (String, Machine) {
    let codes: Vec<(&str, Vec<u8>)> = programs
        .iter()
        .map(|(name, wat)| (*name, wat::parse_str(wat).unwrap()))
        .collect();
    let code = |name: &str| {
        let found = codes.iter().find(|(known, _)| *known == name);
        found.map(|(_, code)| code.clone())
    };
    let script = format!("{}\n----\n", script.trim_end());
    let mut first: Option<(String, Machine, Vec<u8>)> = None;
    for host in hosts {
        for (restarts, twice) in [(false, false), (true, false), (false, true), (true, true)] {
            let options = RunOptions { restarts, twice };
            let (blocks, machine) = run(&script, host, options, &code).unwrap();
            let text = blocks[0].actual.clone();
            let mut state = Vec::new();
            machine.save(&mut state).unwrap();
            let Some((first, before, bytes)) = &first else {
                first = Some((text, machine, state));
                continue;
            };
            let engine = host.fingerprint();
            assert_eq!(*first, text, "{engine} {options:?}");
            assert_eq!(before.digest(), machine.digest(), "{engine} {options:?}");
            assert_eq!(*bytes, state, "M5: equal states, equal bytes");
        }
    }
    let (text, machine, _) = first.unwrap();
    (text, machine)
}

/// Records as text.
#[derive(Default)]
pub(crate) struct Lines(pub(crate) Vec<String>);

impl ConsequenceSink for Lines {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}
    fn record(&mut self, id: TopicId, record: &Record<'_>) {
        self.0.push(format!("{id:?} {record:?}"));
    }
}

/// A machine and its records.
pub(crate) struct TestMachine {
    pub(crate) machine: Machine,
    pub(crate) records: Lines,
    time_ms: u64,
}

impl TestMachine {
    pub(crate) fn new(seed: u64, host: &Arc<dyn ProgramHost>) -> Self {
        Self {
            machine: Machine::new(seed).with_host(Some(Arc::clone(host))),
            records: Lines::default(),
            time_ms: 0,
        }
    }

    /// Advances the time in the log.
    pub(crate) fn advance(&mut self, time_ms: u64) {
        self.time_ms += time_ms;
    }

    /// Sends one intention as a separate batch.
    pub(crate) fn send(&mut self, intention: &Intention<'_>) -> Result<Outcome, ApplyError> {
        self.time_ms += 10;
        let bytes = encoded(intention, self.time_ms);
        self.apply(&bytes)
    }

    pub(crate) fn apply(&mut self, bytes: &[u8]) -> Result<Outcome, ApplyError> {
        let batch = Batch::read(bytes, 1).unwrap();
        let mut outcomes = Outcomes::default();
        self.machine
            .apply(&batch, &mut self.records, &mut outcomes)?;
        Ok(outcomes.iter().next().unwrap())
    }

    /// Continues with another host, from a snapshot.
    pub(crate) fn reloaded(&self, seed: u64, host: &Arc<dyn ProgramHost>) -> Self {
        let saved = self.saved();
        let machine = Machine::load_with(&mut &saved[..], seed, Some(Arc::clone(host)));
        Self {
            machine: machine.unwrap(),
            records: Lines::default(),
            time_ms: self.time_ms,
        }
    }

    pub(crate) fn saved(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.machine.save(&mut bytes).unwrap();
        bytes
    }
}

pub(crate) fn encoded(intention: &Intention<'_>, time_ms: u64) -> Vec<u8> {
    let limits = IntentionLimits {
        key_bytes_max: KEY_BYTES_MAX,
        value_bytes_max: VALUE_BYTES_MAX,
    };
    let mut builder = BatchBuilder::default();
    builder.push(intention, &limits).unwrap();
    builder.to_bytes(time_ms)
}
