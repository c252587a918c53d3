//! Tracing changes no outcome and records the calls; the lines are bounded.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};
use weir_core::{IntentionOffset, Machine, ProgramCounts, ProgramHost};
use weir_program::script::{RunOptions, run};
use weir_program::trace::{Answer, Argument, CALLS_MAX, CallStack, RecordedCalls, Traced, Tracer};
use weir_program::{LINE_BYTES_MAX, LINES_PER_SECOND, Level, WasmtimeHost};

const EVERYTHING: std::ops::RangeInclusive<IntentionOffset> =
    IntentionOffset(0)..=IntentionOffset(u64::MAX);

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn program(name: &str) -> Option<Vec<u8>> {
    std::fs::read(folder("programs/prebuilt").join(format!("{name}.wasm"))).ok()
}

fn counts(machine: &Machine) -> Vec<ProgramCounts> {
    let programs = machine.topics().filter_map(|topic| topic.program);
    programs.map(|program| program.counts).collect()
}

#[test]
fn a_traced_host_gives_the_same_outcomes_at_the_same_fuel() {
    let (mut names, mut fuel) = (BTreeSet::new(), 0);
    for entry in std::fs::read_dir(folder("vectors/programs")).unwrap() {
        let script = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let plain: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
        let tracer = Arc::new(Tracer::new(RecordedCalls::All, &EVERYTHING));
        let watched: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::traced(Arc::clone(&tracer)));
        let (blocks, machine) = run(&script, &plain, RunOptions::default(), &program).unwrap();
        let (again, other) = run(&script, &watched, RunOptions::default(), &program).unwrap();
        assert_eq!(blocks, again);
        assert_eq!(machine.digest(), other.digest());
        assert_eq!(counts(&machine), counts(&other));
        let Traced {
            calls, left_out, ..
        } = tracer.take();
        assert_eq!(left_out, 0);
        let paid: u64 = calls.iter().map(|call| call.fuel).sum();
        assert!(paid > 0, "nothing was traced");
        names.extend(calls.iter().map(|call| call.name));
        fuel += counts(&machine).iter().map(|c| c.fuel).sum::<u64>();
    }
    assert_eq!(names.len(), 16, "every function is called: {names:?}");
    assert!(fuel > 0);
}

#[test]
fn the_trace_of_a_transfer_names_what_was_read_and_emitted() {
    let script = "create bank program=balance
put bank {id:0}={id:1}{i64:100}{u64:0}{u64:0}
put bank {id:1}={id:2}{i64:30}{u64:0}{u64:0}
put bank {id:1}={id:2}{i64:71}{u64:0}{u64:0}
----

";
    let tracer = Tracer::new(
        RecordedCalls::All,
        &(IntentionOffset(3)..=IntentionOffset(4)),
    );
    let tracer = Arc::new(tracer);
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::traced(Arc::clone(&tracer)));
    run(script, &host, RunOptions::default(), &program).unwrap();
    let calls = tracer.take().calls;
    let names = |intention: u64| -> Vec<&str> {
        let of = calls.iter().filter(|call| call.intention.0 == intention);
        of.map(|call| call.name).collect()
    };
    let valid = [
        "input_info",
        "input_read",
        "input_read",
        "key_get",
        "emit_put",
        "key_get",
        "emit_put",
        "emit_put",
    ];
    assert_eq!(names(3), valid);
    assert_eq!(names(4).last(), Some(&"reject_text"));
    assert!(names(2).is_empty(), "only what was asked for");
    let get = &calls[3];
    let Argument::Bytes(key) = &get.arguments[0].1 else {
        panic!("{get:?}")
    };
    assert_eq!((key.len, key.bytes[0]), (32, 1));
    let Answer::Bytes(found) = &get.answer else {
        panic!("{get:?}")
    };
    assert_eq!(found.bytes, 100_i64.to_be_bytes());
    let absent = &calls[5];
    assert_eq!(absent.answer, Answer::Absent, "{absent:?}");
    let Argument::Bytes(value) = &calls[4].arguments[1].1 else {
        panic!("{:?}", calls[4])
    };
    assert_eq!(value.bytes, 70_i64.to_be_bytes());
}

/// A program that writes as many lines as the first byte of the value.
const CHATTY: &str = r#"(module
  (import "weir1" "log" (func $log (param i32 i32 i32)))
  (import "weir1" "input_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1 1)
  (data (i32.const 16) "a line")
  (func (export "weir_abi") (result i32) i32.const 1)
  (func (export "weir_apply") (result i32) (local $n i32)
    (drop (call $read (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 1)))
    (local.set $n (i32.load8_u (i32.const 0)))
    (block $out (loop $more
      (br_if $out (i32.eqz (local.get $n)))
      (call $log (i32.const 2) (i32.const 16) (i32.const 6))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (br $more)))
    (call $log (i32.const 9) (i32.const 0) (i32.const 4000))
    i32.const 0))"#;

fn logging_program(name: &str) -> Option<Vec<u8>> {
    (name == "logging_program").then(|| wat::parse_str(CHATTY).unwrap())
}

#[test]
fn excess_lines_are_cut_and_counted() {
    let native = Arc::new(WasmtimeHost::default());
    let host: Arc<dyn ProgramHost> = Arc::clone(&native) as Arc<dyn ProgramHost>;
    let script = "create t program=logging_program\nput t k={u8:1} at=5000\nput t k={u8:200}\nput t k={u8:0} at=6000\n----\n\n";
    run(script, &host, RunOptions::default(), &logging_program).unwrap();
    let (lines, dropped) = native.lines();
    let taken = u64::from(LINES_PER_SECOND);
    assert_eq!(lines.len() as u64, taken + 1);
    assert_eq!(dropped, 2 + 201 - taken);
    let first = &lines[0];
    assert_eq!(&*first.topic, "t");
    assert_eq!((first.intention.0, first.time_ms), (2, 5000));
    assert_eq!((first.level, first.text.as_str()), (Level::Warn, "a line"));
    let last = lines.last().unwrap();
    assert_eq!((last.intention.0, last.level), (4, Level::Info));
    assert!(last.text.len() <= LINE_BYTES_MAX * 3 && lines[1].level == Level::Info);
}

#[test]
fn a_tracer_of_lines_records_only_lines() {
    let tracer = Arc::new(Tracer::new(RecordedCalls::Log, &EVERYTHING));
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::traced(Arc::clone(&tracer)));
    let script = "create t program=logging_program\nput t k={u8:2}\n----\n\n";
    run(script, &host, RunOptions::default(), &logging_program).unwrap();
    let calls = tracer.take().calls;
    let levels: Vec<_> = calls.iter().map(|call| &call.arguments[0].1).collect();
    let (warn, info) = (Argument::Name("warn"), Argument::Name("info"));
    assert_eq!(levels, [&warn, &warn, &info]);
    let (_, Argument::Bytes(text)) = &calls[2].arguments[1] else {
        panic!("{calls:?}")
    };
    assert_eq!((text.len, text.bytes.len()), (4000, 1024));
}

/// A program that fails as the first byte of the value requests. Its names are in the name section,
/// one of them mangled by the compiler of Rust.
const FAILING: &str = r#"(module
  (import "weir1" "input_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1 1)
  (func $abi (export "weir_abi") (result i32) i32.const 1)
  (func $_ZN5seats3row17h0123456789abcdefE (param i32)
    (if (i32.eq (local.get 0) (i32.const 1)) (then unreachable))
    (if (i32.eq (local.get 0) (i32.const 2)) (then (loop $for_ever (br $for_ever))))
    (drop (call $read (i32.const 1) (i32.const 0) (i32.const 65536) (i32.const 1))))
  (func $judge (param i32)
    (call $_ZN5seats3row17h0123456789abcdefE (local.get 0)))
  (func (export "weir_apply") (result i32)
    (drop (call $read (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 1)))
    (if (i32.load8_u (i32.const 0)) (then (call $judge (i32.load8_u (i32.const 0)))))
    i32.const 0))"#;

fn failing(name: &str) -> Option<Vec<u8>> {
    (name == "failing").then(|| wat::parse_str(FAILING).unwrap())
}

fn traced(
    wanted: RecordedCalls,
    script: &str,
    program: &dyn Fn(&str) -> Option<Vec<u8>>,
) -> Traced {
    let tracer = Arc::new(Tracer::new(wanted, &EVERYTHING));
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::traced(Arc::clone(&tracer)));
    run(script, &host, RunOptions::default(), program).unwrap();
    tracer.take()
}

fn names(stack: &CallStack) -> Vec<&str> {
    let frames = stack.frames.iter();
    frames.map(|frame| frame.name.as_deref().unwrap()).collect()
}

#[test]
fn a_failed_call_has_a_call_stack() {
    // A trap, a lack of fuel, and a pointer that the host rejects.
    for how in 1..=3 {
        let script =
            format!("create t program=failing fuel_max=20000\nput t k={{u8:{how}}}\n----\n\n");
        let stack = traced(RecordedCalls::All, &script, &failing).stack.unwrap();
        assert_eq!(stack.intention, IntentionOffset(2));
        assert_eq!(names(&stack), ["seats::row", "judge", "weir_apply"]);
        // The indexes are those of the deployed module: the function of the version is not
        // compiled.
        let functions: Vec<u32> = stack.frames.iter().map(|f| f.function).collect();
        assert_eq!(functions, [2, 3, 4], "{how}");
        assert_eq!(traced(RecordedCalls::Log, &script, &failing).stack, None);
    }
    let script = "create t program=failing\nput t k={u8:0}\n----\n\n";
    assert_eq!(traced(RecordedCalls::All, script, &failing).stack, None);
}

#[test]
fn a_call_stack_omits_malformed_names() {
    let script = "create t program=failing\nput t k={u8:1}\n----\n\n";
    // A name section whose first part is longer than the section, and no name section.
    for section in [&b"\x00\x08\x04name\x01\x7f\x01"[..], b""] {
        let nameless = |_: &str| {
            let code = wat::parse_str(FAILING).unwrap();
            let names = code.windows(4).position(|four| four == b"name").unwrap();
            let before = code[..names].iter().rposition(|byte| *byte == 0).unwrap();
            Some([&code[..before], section].concat())
        };
        let stack = traced(RecordedCalls::All, script, &nameless).stack.unwrap();
        let names: Vec<_> = stack.frames.iter().map(|f| f.name.as_deref()).collect();
        assert_eq!(names, [None, None, Some("weir_apply")]);
    }
}

#[test]
fn a_call_stack_is_bounded() {
    let deep = r#"(module (memory (export "memory") 1 1)
      (func (export "weir_abi") (result i32) i32.const 1)
      (func $deep (param i32)
        (if (i32.eqz (local.get 0)) (then unreachable))
        (call $deep (i32.sub (local.get 0) (i32.const 1))))
      (func (export "weir_apply") (result i32) (call $deep (i32.const 500)) i32.const 0))"#;
    let deep = |_: &str| Some(wat::parse_str(deep).unwrap());
    let script = "create t program=deep\nput t k=v\n----\n\n";
    let stack = traced(RecordedCalls::All, script, &deep).stack.unwrap();
    assert_eq!(names(&stack), ["deep"; weir_program::trace::FRAMES_MAX]);
}

#[test]
fn fuel_of_omitted_calls_is_counted() {
    // More host calls than the tracer keeps.
    let code = format!(
        r#"(module (import "weir1" "key_offset" (func $offset (param i32 i32) (result i64)))
        (memory (export "memory") 1 1)
        (func (export "weir_abi") (result i32) i32.const 1)
        (func (export "weir_apply") (result i32) (local $n i32)
          (local.set $n (i32.const {}))
          (loop $more
            (drop (call $offset (i32.const 0) (i32.const 1)))
            (local.set $n (i32.sub (local.get $n) (i32.const 1)))
            (br_if $more (local.get $n)))
          i32.const 0))"#,
        CALLS_MAX + 5
    );
    let busy = |_: &str| Some(wat::parse_str(&code).unwrap());
    let script = "create t program=busy fuel_max=100000000\nput t k=v\n----\n\n";
    let traced = traced(RecordedCalls::All, script, &busy);
    let each = traced.calls[0].fuel;
    assert!(traced.calls.iter().all(|call| call.fuel == each));
    assert_eq!((traced.calls.len(), traced.left_out), (CALLS_MAX, 5));
    assert_eq!(traced.left_out_fuel, 5 * each);
}

/// Collects the events of a target.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<String>>>);

impl Subscriber for Listener {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.target() == "weir::program"
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

#[test]
fn a_subscriber_of_the_process_receives_the_lines() {
    let listener = Listener::default();
    let script = "create t program=logging_program\nput t k={u8:1}\n----\n\n";
    tracing::subscriber::with_default(listener.clone(), || {
        let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
        run(script, &host, RunOptions::default(), &logging_program).unwrap();
    });
    let heard = listener.0.lock().unwrap();
    assert_eq!(heard[0], "WARN message=a line topic=\"t\" intention=2");
    assert_eq!(heard.len(), 2, "{heard:?}");
}
