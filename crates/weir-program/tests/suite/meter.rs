//! Meter 1: how much fuel each kind of work takes. A change of one of these
//! numbers is another meter (docs/formats/batch.md): a store that was written
//! with the old one would be read into another history.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use weir_core::intention::{Intention, Operation};
use weir_core::limits::METER;
use weir_core::{ErrorCode, ProgramHost, TopicOptions};
use weir_program::WasmtimeHost;

use crate::world::{Life, module};

/// A program for each kind of work: name, imports, parts, body.
fn works() -> Vec<(&'static str, &'static str, &'static str, String)> {
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
        (
            "log 80",
            "log",
            "",
            times(1, "(call $log (i32.const 3) (i32.const 0) (i32.const 80))"),
        ),
    ]
}

/// Fuel of a PUT of 8 bytes, and the reason when it is not VALID.
fn fuel(
    host: &Arc<dyn ProgramHost>,
    code: &[u8],
    fuel_max: Option<u64>,
) -> (u64, Option<ErrorCode>) {
    let mut options = TopicOptions::default();
    options.program.fuel_max = fuel_max;
    let mut life = Life::new(1, host);
    let create = Operation::CreateProgram {
        options: &options,
        code,
        args: b"",
    };
    life.send(&Intention::new("t", create)).unwrap();
    let put = Operation::Put {
        key: b"",
        value: &[7; 8],
    };
    let outcome = life.send(&Intention::new("t", put)).unwrap();
    let commit = outcome.commit().unwrap();
    (commit.fuel, commit.reason)
}

#[test]
fn the_meter_counts_what_it_always_counted() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../vectors/meter-{METER}.txt"));
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let mut found = format!(
        "# Fuel of one call in meter {METER}, by what its program does. A number that\n# changes is another meter: docs/formats/batch.md.\n"
    );
    for (name, imports, parts, body) in works() {
        let code = wat::parse_str(module(imports, parts, &body)).unwrap();
        let (used, reason) = fuel(&host, &code, None);
        assert_eq!(reason, None, "{name}");
        assert_eq!(fuel(&host, &code, Some(used)), (used, None), "{name}");
        // Looked at where a loop goes on, and where a function is called.
        if body.contains("(loop") || !imports.is_empty() {
            let half = used / 2;
            let short = fuel(&host, &code, Some(half));
            assert_eq!(short, (half, Some(ErrorCode::OutOfFuel)), "{name}");
        }
        let _ = writeln!(found, "{used:>8}  {name}");
    }
    if std::env::var_os("WEIR_REWRITE").is_some_and(|value| value == "1") {
        std::fs::write(&path, &found).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap();
    assert_eq!(found, known, "another meter needs another number");
}

/// The number stands for one version of the engine and of the validator, whose
/// words are in verdicts.
#[test]
fn the_meter_names_the_versions_that_are_built() {
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
    assert_eq!(
        fingerprint,
        format!("wasmtime 48.0.8 {} meter 1", std::env::consts::ARCH)
    );
    assert!(built("wasmtime 48.0.8\""), "the engine of meter 1");
    assert!(built("wasmparser 0.254."), "the validator of meter 1");
}
