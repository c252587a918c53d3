//! Compares the machine with a model: random scripts must have the same effects, reasons, details,
//! offsets, records, keys and sessions.
//!
//! Machines that apply the same log must also agree for every division into batches, for every seed
//! of their hash tables, and after every save and load.

mod oracle;
mod pair;
mod script;

use pair::Pair;
use proptest::prelude::*;
use script::{Entry, Generator, Limits, OwnedOperation, Step};
use weir_core::limits::{SESSION_WINDOW, SESSIONS_MAX};

fn long_run(seed: u64, entries: usize, check_every: usize) {
    let mut generator = Generator::new(seed);
    let mut pair = Pair::new(seed);
    for n in 0..entries {
        let entry = generator.entry();
        pair.apply(&entry);
        for client in 1..4 {
            generator.set_next_nonce(client, pair.next_nonce(client));
        }
        if n % check_every == 0 {
            pair.compare_states();
        }
    }
    pair.compare_states();
    pair.assert_every_outcome_occurred();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn short_scripts_agree_with_the_model_at_every_step(seed in any::<u64>(), entries in 1..60_usize) {
        let mut generator = Generator::new(seed);
        let mut pair = Pair::new(seed);
        for _ in 0..entries {
            let entry = generator.entry();
            pair.apply(&entry);
            pair.compare_states();
            for client in 1..4 {
                generator.set_next_nonce(client, pair.next_nonce(client));
            }
        }
    }
}

#[test]
fn long_scripts_agree_with_the_model() {
    for seed in 0..4 {
        long_run(seed, 2_000, 100);
    }
}

fn put(client: u8, nonce: u64, value: &[u8]) -> Step {
    Step {
        client,
        nonce,
        topic: "orders".into(),
        operation: OwnedOperation::Put(b"k".to_vec(), value.to_vec()),
        conditions: Vec::new(),
        meta: Vec::new(),
        fingerprint: None,
    }
}

fn create() -> Step {
    Step {
        operation: OwnedOperation::Create(Limits::default()),
        ..put(0, 0, &[])
    }
}

#[test]
fn the_window_of_a_session_agrees_with_the_model() {
    let mut pair = Pair::new(3);
    let mut generator = Generator::new(3);
    let steps = vec![create()];
    pair.apply(&Entry { time_ms: 0, steps });
    let mut nonce = 1;
    while nonce < 3 * SESSION_WINDOW {
        let mut steps = Vec::new();
        for _ in 0..=generator.below(400) {
            let (again, to) = match generator.below(50) {
                0 => (nonce.saturating_sub(SESSION_WINDOW + 2).max(1), nonce),
                1 => (nonce.saturating_sub(SESSION_WINDOW).max(1), nonce),
                2 => (nonce.saturating_sub(1).max(1), nonce),
                _ => (nonce, nonce + 1),
            };
            // Interspersed failures keep the runs short.
            let mut step = put(1, again, &again.to_le_bytes());
            if again.is_multiple_of(7) {
                step.topic = "nowhere".into();
            }
            steps.push(step);
            nonce = to;
        }
        let time_ms = nonce;
        pair.apply(&Entry { time_ms, steps });
    }
    pair.compare_states();
}

#[test]
fn a_full_table_of_sessions_agrees_with_the_model() {
    let mut pair = Pair::new(4);
    let mut generator = Generator::new(4);
    let steps = vec![create()];
    pair.apply(&Entry { time_ms: 0, steps });
    // More new clients arrive in a day than the table can have. Some evict a session that has
    // expired, others find none.
    let pause = 86_400_000 * 5 / (SESSIONS_MAX as u64 * 8);
    for round in 1..=3 * SESSIONS_MAX as u64 {
        let client = match generator.below(8) {
            0 => 1 + generator.below(round),
            _ => round,
        };
        let gap = generator.below(9) / 8;
        pair.apply_one_of(client, gap, round * pause);
    }
    assert!(pair.occurred("BUSY") && pair.occurred("VALID") && pair.occurred("SESSION_EXPIRED"));
    pair.compare_states();
}
