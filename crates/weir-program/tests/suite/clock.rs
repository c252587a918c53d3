//! Z4: no clock decides an outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_core::intention::{Intention, Operation};
use weir_core::{Outcome, ProgramHost, TopicOptions};
use weir_program::WasmtimeHost;

use crate::world::{TestMachine, module};

/// Iterations of the loop: some 200,000,000 units of fuel, a tenth of a second.
const ROUNDS: u32 = 30_000_000;

/// Outcome, records and fuel of a long call.
fn long(rounds: u32, time_ms: u64) -> (Outcome, Vec<String>, u64) {
    let body = format!(
        "(local $n i32) (local.set $n (i32.const {rounds}))
        (loop $more (br_if $more (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
        (call $emit_input) i32.const 0"
    );
    let code = wat::parse_str(module("emit_input", "", &body)).unwrap();
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let mut tested = TestMachine::new(7, &host);
    let mut options = TopicOptions::default();
    options.program.fuel_max = Some(1_000_000_000);
    let (options, code) = (&options, &code[..]);
    let args = &b""[..];
    let create = Operation::CreateProgram {
        options,
        code,
        args,
    };
    tested.send(&Intention::new("t", create)).unwrap();
    tested.advance(time_ms);
    let (key, value) = (&b"k"[..], &b"v"[..]);
    let put = Operation::Put { key, value };
    let outcome = tested.send(&Intention::new("t", put)).unwrap();
    let fuel = tested
        .machine
        .topic("t")
        .unwrap()
        .program
        .unwrap()
        .counts
        .fuel;
    (outcome, tested.records.0, fuel)
}

#[test]
fn the_duration_of_a_call_does_not_change_its_outcome() {
    let alone = long(ROUNDS, 0);
    assert!(alone.0.commit().unwrap().reason.is_none(), "{alone:?}");
    let stop = AtomicBool::new(false);
    let crowded = std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let crowded = long(ROUNDS, 0);
        stop.store(true, Ordering::Relaxed);
        crowded
    });
    assert_eq!(alone, crowded);
}

#[test]
fn the_time_in_the_log_does_not_limit_a_call() {
    let soon = long(1000, 0);
    let years = long(1000, 100 * 365 * 24 * 3_600_000);
    let reason = |run: &(Outcome, Vec<String>, u64)| run.0.commit().unwrap().reason;
    assert_eq!((reason(&soon), soon.2), (None, years.2));
    assert_eq!(reason(&years), None);
}
