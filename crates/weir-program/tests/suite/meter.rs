//! Meter 1: the fuel of each kind of work. A change of one of these numbers needs another meter
//! (docs/formats/batch.md): a store that was written with the old number would get another history
//! on replay.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use weir_core::intention::{Intention, Operation};
use weir_core::limits::METER;
use weir_core::{ErrorCode, ProgramHost, StateMode, TopicOptions};
use weir_program::WasmtimeHost;

use crate::world::{TestMachine, module};

/// JSON paths in the memory.
const PATHS: &str = r#"(data (i32.const 0) "$.a\n$.b\n$.c\n$.d\n$.e\n$.f\n$.g\n$.h")
    (data (i32.const 40) "$[-1][-1]")"#;

/// Name, imports, parts, body.
type Work = (&'static str, &'static str, &'static str, String);

/// A program for each kind of work.
fn works() -> Vec<Work> {
    let json = |name: &'static str, from: u32, len: u32| -> Work {
        let call = format!(
            "(drop (call $json_find (i32.const 1) (i32.const 1) (i32.const {from}) (i32.const {len}) (i32.const 1000))) i32.const 0"
        );
        (name, "json_find", PATHS, call)
    };
    let times = |count: usize, what: &str| what.repeat(count) + "i32.const 0";
    let turns = |what: &str| {
        format!(
            "(local $i i32) (loop {what} (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000)))) i32.const 0"
        )
    };
    let table = "(table 1 funcref) (type $f (func)) (func $g) (elem (i32.const 0) $g)";
    vec![
        ("nothing", "", "", times(0, "")),
        ("nop", "", "", times(100, "nop ")),
        ("drop", "", "", times(100, "(drop (i32.const 1))")),
        (
            "i32.add",
            "",
            "",
            times(100, "(drop (i32.add (i32.const 1) (i32.const 2)))"),
        ),
        (
            "i64.div",
            "",
            "",
            times(100, "(drop (i64.div_u (i64.const 1) (i64.const 2)))"),
        ),
        (
            "f64.sqrt",
            "",
            "",
            times(100, "(drop (f64.sqrt (f64.const 2)))"),
        ),
        (
            "i8x16.add",
            "",
            "",
            times(
                100,
                "(drop (i8x16.add (v128.const i64x2 1 2) (v128.const i64x2 1 2)))",
            ),
        ),
        (
            "load",
            "",
            "",
            times(100, "(drop (i32.load (i32.const 8)))"),
        ),
        (
            "store",
            "",
            "",
            times(100, "(i64.store (i32.const 8) (i64.const 8))"),
        ),
        ("block", "", "", times(100, "(block nop)")),
        ("loop", "", "", turns("")),
        (
            "if",
            "",
            "",
            turns("(if (i32.and (local.get $i) (i32.const 1)) (then nop) (else nop nop))"),
        ),
        (
            "br_table",
            "",
            "",
            turns("(block (block (br_table 0 1 (local.get $i))) nop)"),
        ),
        ("call", "", "(func $g)", turns("call $g")),
        (
            "call_indirect",
            "",
            table,
            turns("(call_indirect (type $f) (i32.const 0))"),
        ),
        (
            "global",
            "",
            "(global $g (mut i32) (i32.const 0))",
            turns("(global.set $g (global.get $g))"),
        ),
        (
            "memory.fill 1",
            "",
            "",
            times(1, "(memory.fill (i32.const 0) (i32.const 1) (i32.const 1))"),
        ),
        (
            "memory.fill 60000",
            "",
            "",
            times(
                1,
                "(memory.fill (i32.const 0) (i32.const 1) (i32.const 60000))",
            ),
        ),
        (
            "memory.copy 60000",
            "",
            "",
            times(
                1,
                "(memory.copy (i32.const 0) (i32.const 1) (i32.const 60000))",
            ),
        ),
        (
            "memory.grow",
            "",
            "",
            times(1, "(drop (memory.grow (i32.const 1)))"),
        ),
        (
            "input_info",
            "input_info",
            "",
            times(1, "(call $input_info (i32.const 0))"),
        ),
        (
            "input_read 4 of 8",
            "input_read",
            "",
            times(
                1,
                "(drop (call $input_read (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 4)))",
            ),
        ),
        (
            "input_read 8 of 8",
            "input_read",
            "",
            times(
                1,
                "(drop (call $input_read (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 99)))",
            ),
        ),
        (
            "emit_input",
            "emit_input",
            "",
            times(1, "(call $emit_input)"),
        ),
        (
            "emit_put 800",
            "emit_put",
            "",
            times(
                1,
                "(call $emit_put (i32.const 0) (i32.const 400) (i32.const 0) (i32.const 400))",
            ),
        ),
        (
            "emit_delete 80",
            "emit_delete",
            "",
            times(1, "(call $emit_delete (i32.const 0) (i32.const 80))"),
        ),
        (
            "emit_value 16",
            "emit_value",
            "",
            times(
                1,
                "(call $emit_value (i32.const 0) (i32.const 8) (i32.const 0) (i32.const 8))",
            ),
        ),
        (
            "reject_text 80",
            "reject_text",
            "",
            times(1, "(call $reject_text (i32.const 0) (i32.const 80))"),
        ),
        (
            "state_put 88",
            "state_put",
            "",
            times(
                1,
                "(call $state_put (i32.const 0) (i32.const 8) (i32.const 0) (i32.const 80))",
            ),
        ),
        (
            "state_put 88 in the place of 88",
            "state_put",
            "",
            times(
                2,
                "(call $state_put (i32.const 0) (i32.const 8) (i32.const 0) (i32.const 80))",
            ),
        ),
        (
            "state_put 88, state_delete 88",
            "state_put state_delete",
            "",
            times(
                1,
                "(call $state_put (i32.const 0) (i32.const 8) (i32.const 0) (i32.const 80))
                 (call $state_delete (i32.const 0) (i32.const 8))",
            ),
        ),
        (
            "state_get",
            "state_get",
            "",
            times(
                1,
                "(drop (call $state_get (i32.const 0) (i32.const 80) (i32.const 0) (i32.const 0) (i32.const 80)))",
            ),
        ),
        (
            "state_delete 80",
            "state_delete",
            "",
            times(1, "(call $state_delete (i32.const 0) (i32.const 80))"),
        ),
        (
            "state_next",
            "state_next",
            "",
            times(
                1,
                "(drop (call $state_next (i32.const 0) (i32.const 80) (i32.const 0) (i32.const 80)))",
            ),
        ),
        (
            "emit_put 88, emit_delete of a key that is read",
            "emit_put emit_delete key_offset",
            "",
            times(
                1,
                "(call $emit_put (i32.const 0) (i32.const 8) (i32.const 0) (i32.const 80))
                 (call $emit_delete (i32.const 0) (i32.const 8))",
            ),
        ),
        (
            "key_offset",
            "key_offset",
            "",
            times(1, "(drop (call $key_offset (i32.const 0) (i32.const 80)))"),
        ),
        (
            "SHA-256 of 1000",
            "hash",
            "",
            times(
                1,
                "(call $hash (i32.const 1) (i32.const 0) (i32.const 1000) (i32.const 0))",
            ),
        ),
        (
            "BLAKE3 of 1000",
            "hash",
            "",
            times(
                1,
                "(call $hash (i32.const 2) (i32.const 0) (i32.const 1000) (i32.const 0))",
            ),
        ),
        json("json_find of all of 8", 0, 1),
        json("json_find of a name in 8", 0, 3),
        json("json_find of eight names in 8", 0, 31),
        json("json_find of the last in 8", 40, 5),
        json("json_find of the last of the last in 8", 40, 9),
        json("json_find of no path in 8", 1, 2),
        (
            "json_find of paths of 60000",
            "json_find",
            "",
            times(
                1,
                "(drop (call $json_find (i32.const 1) (i32.const 1) (i32.const 0) (i32.const 60000) (i32.const 0)))",
            ),
        ),
        (
            "log 80",
            "log",
            "",
            times(1, "(call $log (i32.const 3) (i32.const 0) (i32.const 80))"),
        ),
    ]
}

/// Programs whose calls need a new instance, or a restore of much memory: name, pages of 64 KiB,
/// parts, body and mode.
fn ends() -> Vec<(&'static str, u32, String, String, StateMode)> {
    let kv = StateMode::Kv;
    let many = |count: usize, step: usize| {
        let segment = |n: usize| format!("(data (i32.const {}) \"x\")", n * step);
        (0..count).map(segment).collect::<String>()
    };
    let each = |what: &str, step: u32, end: &str| {
        format!(
            "(local $i i32) (loop {what} (br_if 0 (i32.lt_u
                (local.tee $i (i32.add (local.get $i) (i32.const {step}))) (i32.const 16777216)))) {end}"
        )
    };
    let trap = || "unreachable".to_owned();
    let (store, load) = (
        "(i32.store8 (local.get $i) (i32.const 1))",
        "(drop (i32.load8_u (local.get $i)))",
    );
    let far = 1 << 18;
    let fine = "i32.const 0";
    let grow = "(drop (memory.grow (i32.const 1))) i32.const 0";
    let drop = "(elem.drop 0) i32.const 0";
    let elements = "(table 1 funcref) (func $g) (elem func $g)";
    let globals = "(global i32 (i32.const 0))".repeat(1000);
    let begins = r#"(func (export "weir_init") (result i32) i32.const 0)"#;
    vec![
        ("trap", 1, String::new(), trap(), kv),
        ("trap of 256 pages", 256, String::new(), trap(), kv),
        ("trap with 1000 globals", 1, globals, trap(), kv),
        ("trap with 1000 segments", 256, many(1000, 4096), trap(), kv),
        (
            "trap after 4096 loads",
            256,
            String::new(),
            each(load, 4096, "unreachable"),
            kv,
        ),
        (
            "trap after 4096 stores",
            256,
            String::new(),
            each(store, 4096, "unreachable"),
            kv,
        ),
        (
            "memory.grow of one page",
            1,
            String::new(),
            grow.to_owned(),
            kv,
        ),
        ("elem.drop", 1, elements.to_owned(), drop.to_owned(), kv),
        (
            "64 stores in 256 pages",
            256,
            String::new(),
            each(store, far, fine),
            kv,
        ),
        (
            "the same in mode memory",
            256,
            String::new(),
            each(store, far, fine),
            StateMode::Memory,
        ),
        (
            "reject before there is a memory to go back to, 1000 segments",
            256,
            many(1000, 4096),
            "i32.const 1".to_owned(),
            StateMode::Memory,
        ),
        (
            "reject in mode memory",
            16,
            begins.to_owned(),
            "i32.const 1".to_owned(),
            StateMode::Memory,
        ),
        (
            "reject after memory.grow in mode memory",
            16,
            begins.to_owned(),
            "(drop (memory.grow (i32.const 1))) i32.const 1".to_owned(),
            StateMode::Memory,
        ),
    ]
}

/// Fuel of a PUT of 8 bytes, and the reason if it is not VALID.
fn fuel(
    host: &Arc<dyn ProgramHost>,
    code: &[u8],
    fuel_max: Option<u64>,
    mode: StateMode,
) -> (u64, Option<ErrorCode>) {
    let mut options = TopicOptions::default();
    options.program.fuel_max = fuel_max;
    options.program.memory_bytes_max = Some(16 << 20);
    options.program.state = mode;
    let mut tested = TestMachine::new(1, host);
    let create = Operation::CreateProgram {
        options: &options,
        code,
        args: b"",
    };
    tested.send(&Intention::new("t", create)).unwrap();
    let put = Operation::Put {
        key: b"",
        value: &[7; 8],
    };
    let outcome = tested.send(&Intention::new("t", put)).unwrap();
    let commit = outcome.commit().unwrap();
    (commit.fuel, commit.reason)
}

#[test]
fn the_meter_counts_the_recorded_fuel() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../vectors/meter-{METER}.txt"));
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let mut found = format!(
        "# Fuel of one call in meter {METER}, for each kind of work. A changed number is\n# a new meter: docs/formats/batch.md.\n"
    );
    for (name, imports, parts, body) in works() {
        let code = wat::parse_str(module(imports, parts, &body)).unwrap();
        let kv = StateMode::Kv;
        let (used, reason) = fuel(&host, &code, None, kv);
        assert_eq!(reason, None, "{name}");
        assert_eq!(fuel(&host, &code, Some(used), kv), (used, None), "{name}");
        // Fuel is checked at each iteration of a loop and at each call of a function.
        if body.contains("(loop") || !imports.is_empty() {
            let half = used / 2;
            let (paid, reason) = fuel(&host, &code, Some(half), kv);
            assert_eq!(reason, Some(ErrorCode::OutOfFuel), "{name}");
            assert!(paid > half, "{name}: the limit, and another instance");
        }
        let _ = writeln!(found, "{used:>8}  {name}");
    }
    for (name, pages, parts, body, mode) in ends() {
        let text = module("", &parts, &body).replace(" 1 2)", &format!(" {pages} 256)"));
        let code = wat::parse_str(text).unwrap();
        let (used, _) = fuel(&host, &code, None, mode);
        let _ = writeln!(found, "{used:>8}  {name}");
    }
    if std::env::var_os("WEIR_REWRITE").is_some_and(|value| value == "1") {
        std::fs::write(&path, &found).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap();
    assert_eq!(found, known, "another meter needs another number");
}

/// A successful call may belong to an intention that is rejected. If its changes cannot be undone,
/// it is charged like a call that rejects.
#[test]
fn a_call_rejected_by_a_quota_is_charged_an_instance() {
    let grow = "(drop (memory.grow (i32.const 1))) (call $emit_input)";
    let code = |returned| {
        let body = format!("{grow} i32.const {returned}");
        let text = module("emit_input", "", &body).replace(" 1 2)", " 1 256)");
        wat::parse_str(text).unwrap()
    };
    let charge = |code: &[u8], keys_max| {
        let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
        let mut options = TopicOptions::default();
        options.keys_max = keys_max;
        options.program.memory_bytes_max = Some(16 << 20);
        options.program.state = StateMode::Memory;
        let mut tested = TestMachine::new(1, &host);
        let create = Operation::CreateProgram {
            options: &options,
            code,
            args: b"",
        };
        tested.send(&Intention::new("t", create)).unwrap();
        let mut put = |key| {
            let value = &[7; 8][..];
            let outcome = tested.send(&Intention::new("t", Operation::Put { key, value }));
            let outcome = outcome.unwrap();
            let commit = outcome.commit().unwrap();
            (commit.fuel, commit.reason)
        };
        put(b"first");
        put(b"other")
    };
    let (quota, reason) = charge(&code(0), Some(1));
    assert_eq!(reason, Some(ErrorCode::Quota));
    let (good, reason) = charge(&code(0), None);
    assert_eq!(reason, None);
    // The fuel of an instance in the reference (decision 0041).
    assert!(quota >= good + 8_000, "{quota} after {good}");
}

/// The meter belongs to one version of the engine and of the validator, whose texts are in
/// verdicts.
#[test]
fn the_meter_names_the_versions_of_its_engine() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let lock = std::fs::read_to_string(lock).unwrap();
    let built = |version: &str| {
        lock.contains(&format!(
            "name = \"{}\"\nversion = \"{}",
            version.split_once(' ').unwrap().0,
            version.split_once(' ').unwrap().1
        ))
    };
    let fingerprint = WasmtimeHost::default().fingerprint();
    let words: Vec<&str> = fingerprint.split(' ').collect();
    // The features of the CPU follow the versions.
    let versions = ["wasmtime", "48.0.8", std::env::consts::ARCH, "meter", "1"];
    assert!(words.starts_with(&versions), "{fingerprint}");
    assert!(built("wasmtime 48.0.8\""), "the engine of meter 1");
    assert!(built("wasmparser 0.254."), "the validator of meter 1");
}
