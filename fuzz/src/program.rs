//! Any bytes as a module. Its validation never panics. Both engines accept a module, or both reject
//! it with the same text. If neither engine runs out of fuel or stack, both give the same verdicts,
//! records and bytes of state.
//!
//! The first byte chooses the state mode. The second byte is the number of bytes before the module
//! that are used as keys and values.

use std::sync::{Arc, LazyLock};

use weir_core::intention::{Intention, IntentionLimits, Operation};
use weir_core::record::ConsequenceSink;
use weir_core::{
    Batch, BatchBuilder, Detail, ErrorCode, Machine, Outcome, Outcomes, ProgramHost, Record,
    StateMode, TopicId, TopicName, TopicOptions, TrapKind,
};
use weir_program::{WasmiHost, WasmtimeHost};

static HOSTS: LazyLock<[Arc<dyn ProgramHost>; 2]> = LazyLock::new(|| {
    [
        Arc::new(WasmtimeHost::default()),
        Arc::new(WasmiHost::default()),
    ]
});

#[derive(Default)]
struct Lines(Vec<String>);

impl ConsequenceSink for Lines {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}
    fn record(&mut self, _: TopicId, record: &Record<'_>) {
        self.0.push(format!("{record:?}"));
    }
}

/// The outcome without its fuel; `None` if the engine ran out of fuel or stack.
fn send(machine: &mut Machine, lines: &mut Lines, operation: Operation<'_>) -> Option<Outcome> {
    let mut builder = BatchBuilder::default();
    let intention = Intention::new("t", operation);
    builder.push(&intention, &IntentionLimits::default()).ok()?;
    let bytes = builder.to_bytes(7);
    let batch = Batch::read(&bytes, 1).expect("what was built");
    let mut outcomes = Outcomes::default();
    machine
        .apply(&batch, lines, &mut outcomes)
        .expect("an effect");
    let Some(Outcome::Committed(mut commit)) = outcomes.iter().next() else {
        return None;
    };
    commit.fuel = 0;
    let stack = commit.detail == Detail::Trapped(TrapKind::Stack);
    (!stack && commit.reason != Some(ErrorCode::OutOfFuel)).then_some(Outcome::Committed(commit))
}

/// The fuzz target.
pub fn run(input: &[u8]) {
    let [mode, split, rest @ ..] = input else {
        return;
    };
    let (writes, code) = rest.split_at(usize::from(*split).min(rest.len()));
    if code.is_empty() {
        return;
    }
    let mut options = TopicOptions::default();
    options.program.fuel_max = Some(50_000);
    options.program.state = match mode % 3 {
        0 => StateMode::Kv,
        1 => StateMode::None,
        _ => StateMode::Memory,
    };
    let create = Operation::CreateProgram {
        options: &options,
        code,
        args: writes,
    };
    let mut worlds: Vec<_> = HOSTS
        .iter()
        .map(|host| {
            (
                Machine::new(1).with_host(Some(Arc::clone(host))),
                Lines::default(),
            )
        })
        .collect();
    let puts = writes.chunks(9).map(|chunk| {
        let (key, value) = chunk.split_at(chunk.len() / 3);
        Operation::Put { key, value }
    });
    for operation in std::iter::once(create).chain(puts) {
        let said: Vec<_> = worlds
            .iter_mut()
            .map(|(machine, lines)| send(machine, lines, operation))
            .collect();
        if said.contains(&None) {
            return;
        }
        assert_eq!(said[0], said[1]);
        assert_eq!(worlds[0].1.0, worlds[1].1.0);
    }
    let saved = worlds.iter().map(|(machine, _)| {
        let mut bytes = Vec::new();
        machine.save(&mut bytes).expect("memory takes all");
        bytes
    });
    let saved: Vec<_> = saved.collect();
    assert_eq!(saved[0], saved[1]);
    let host = Some(Arc::clone(&HOSTS[0]));
    let loaded = Machine::load_with(&mut &saved[0][..], 2, host).expect("what was saved");
    assert_eq!(loaded.digest(), worlds[0].0.digest());
}
