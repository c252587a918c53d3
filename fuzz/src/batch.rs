//! Any bytes as a batch. Reading never panics, an error has a position within the bytes, and a
//! batch that can be read can be applied unless it needs a program. The resulting state can be
//! saved and loaded.

use weir_core::record::ConsequenceSink;
use weir_core::{ApplyError, Batch, Machine, Outcomes, Record, TopicId, TopicName};

struct Nothing;

impl ConsequenceSink for Nothing {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}
    fn record(&mut self, _: TopicId, _: &Record<'_>) {}
}

/// The fuzz target.
pub fn run(bytes: &[u8]) {
    let Ok(batch) = Batch::read(bytes, 1) else {
        return;
    };
    let broken = batch.items().find_map(Result::err);
    assert!(broken.is_none_or(|error| error.at <= bytes.len()));
    let (mut machine, mut outcomes) = (Machine::new(1), Outcomes::default());
    // Applied twice: the second time, sessions and topics exist already.
    for _ in 0..2 {
        match machine.apply(&batch, &mut Nothing, &mut outcomes) {
            Ok(_) => assert!(broken.is_none()),
            Err(ApplyError::ProgramNeeded(_)) => return,
            Err(_) => return assert!(broken.is_some()),
        }
    }
    let mut state = Vec::new();
    machine.save(&mut state).expect("memory takes all");
    let loaded = Machine::load(&mut &state[..], 2).expect("what was saved");
    assert_eq!(loaded.digest(), machine.digest());
}
