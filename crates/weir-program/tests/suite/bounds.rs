//! Tests each limit one below, at, and one above its value.

use std::fmt::Write as _;
use std::sync::Arc;

use weir_core::intention::{Intention, IntentionLimits, Operation};
use weir_core::limits::{ARGUMENT_BYTES_MAX, START_FUEL, UNDO_BYTES_MIN, UNDO_ENTRY_BYTES};
use weir_core::{BatchBuilder, Detail, ErrorCode, ProgramHost, TopicOptions};
use weir_program::{WasmtimeHost, inspect, largest_setup, limits};

use crate::world::{TestMachine, module, run_script};

/// Returns the verdict of a PUT without key and value.
fn put(imports: &str, options: &str, body: &str) -> String {
    let wat = module(imports, "", body);
    let script = format!("create t program=p {options}\nput t =");
    let text = run_script(&script, &[("p", &wat)]);
    let line = text.lines().nth(1).unwrap();
    line.strip_prefix("2 ").unwrap().to_owned()
}

#[test]
fn records_by_number_and_bytes() {
    for (count, fine) in [(2, true), (3, true), (4, false)] {
        let emit = "(call $emit_put (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1))";
        let verdict = put(
            "emit_put",
            "emits_max=3",
            &(emit.repeat(count) + "i32.const 0"),
        );
        assert_eq!(verdict.starts_with("VALID"), fine, "{verdict}");
        assert!(fine || verdict == "ERROR LIMIT limit 3", "{verdict}");
    }
    for (bytes, fine) in [(9, true), (10, true), (11, false)] {
        let emit = format!(
            "(call $emit_put (i32.const 0) (i32.const 4) (i32.const 0) (i32.const {})) i32.const 0",
            bytes - 4
        );
        let verdict = put("emit_put", "emit_bytes_max=10", &emit);
        assert_eq!(verdict.starts_with("VALID"), fine, "{verdict}");
        assert!(fine || verdict == "ERROR LIMIT limit 10", "{verdict}");
    }
    // The input may be emitted once, whatever the limit is.
    let wat = module("emit_input", "", "(call $emit_input) i32.const 0");
    let twice = module(
        "emit_input",
        "",
        "(call $emit_input) (call $emit_input) i32.const 0",
    );
    let script = "create t program=p emit_bytes_max=1\nput t abc=defg";
    assert!(run_script(script, &[("p", &wat)]).contains("2 VALID"));
    assert!(run_script(script, &[("p", &twice)]).contains("2 ERROR LIMIT limit 1"));
}

#[test]
fn keys_and_values_of_records() {
    for (what, klen, vlen) in [("key_bytes_max", "N", "0"), ("value_bytes_max", "0", "N")] {
        for (n, fine) in [(4, true), (5, true), (6, false)] {
            let n = n.to_string();
            let (klen, vlen) = (klen.replace('N', &n), vlen.replace('N', &n));
            let emit = format!(
                "(call $emit_put (i32.const 0) (i32.const {klen}) (i32.const 0) (i32.const {vlen})) i32.const 0"
            );
            let verdict = put("emit_put", &format!("{what}=5"), &emit);
            assert_eq!(verdict.starts_with("VALID"), fine, "{what} {n}: {verdict}");
            assert!(fine || verdict == "ERROR LIMIT limit 5", "{verdict}");
        }
    }
    for (len, fine) in [(65_534, true), (65_535, true), (65_536, false)] {
        let emit = format!(
            "(call $emit_put (i32.const 0) (i32.const {len}) (i32.const 0) (i32.const 0)) i32.const 0"
        );
        let verdict = put("emit_put", "", &emit);
        assert_eq!(verdict.starts_with("VALID"), fine, "{len}");
        assert!(fine || verdict == "ERROR LIMIT limit 65535", "{verdict}");
    }
}

/// A key that exists can be deleted, whatever the present options are.
#[test]
fn a_key_that_became_too_long_can_be_deleted() {
    for imports in ["emit_input", "emit_input key_offset"] {
        let wat = module(imports, "", "(call $emit_input) i32.const 0");
        let text = run_script(
            "create t program=p\nput t abcdef=1\nalter t key_bytes_max=3 state_bytes_max=1\ndelete t abcdef\nput t abcdef=2",
            &[("p", &wat)],
        );
        let lines: Vec<&str> = text.lines().skip(3).collect();
        assert_eq!(lines[0], "4 VALID: t 4 DELETE abcdef last");
        assert_eq!(lines[1], "5 ERROR LIMIT limit 3");
    }
}

#[test]
fn entries_and_bytes_of_state() {
    // The value is the number of entries, each of 1 + 4 bytes.
    let body = r"(local $n i32) (local $i i32)
        (local.set $n (i32.sub (i32.load8_u (i32.const 8)) (i32.const 48)))
        (block (loop
            (br_if 1 (i32.eq (local.get $i) (local.get $n)))
            (i32.store (i32.const 0) (local.get $i))
            (call $state_put (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 4))
            (local.set $i (i32.add (local.get $i) (i32.const 1))) br 0))
        i32.const 0";
    let read = "(drop (call $input_read (i32.const 1) (i32.const 0) (i32.const 8) (i32.const 1)))";
    let wat = module(
        "input_read state_put",
        "",
        &body.replace("(local.set $n", &format!("{read} (local.set $n")),
    );
    let script =
        "create t program=p state_entries_max=3\nput t =2\nput t =3\nput t =4\nput t =3\nstate t";
    assert_eq!(
        run_script(script, &[("p", &wat)])
            .lines()
            .skip(1)
            .collect::<Vec<_>>(),
        [
            "2 VALID",
            "3 VALID",
            "4 ERROR LIMIT limit 3",
            "5 VALID",
            "\\x00=\\x00\\x00\\x00\\x00",
            "\\x01=\\x01\\x00\\x00\\x00",
            "\\x02=\\x02\\x00\\x00\\x00",
            "3 entries",
        ]
    );
    for (max, verdict) in [
        (16, "2 VALID"),
        (15, "2 VALID"),
        (14, "2 ERROR LIMIT limit 14"),
    ] {
        let script = format!("create t program=p state_bytes_max={max}\nput t =3");
        let text = run_script(&script, &[("p", &wat)]);
        assert_eq!(text.lines().nth(1).unwrap(), verdict);
    }
}

#[test]
fn keys_of_state() {
    for (len, verdict) in [
        (0, "ERROR TRAP bad argument"),
        (1, "VALID"),
        (65_535, "VALID"),
        (65_536, "ERROR TRAP bad argument"),
    ] {
        let body = format!(
            "(call $state_put (i32.const 0) (i32.const {len}) (i32.const 0) (i32.const 0)) i32.const 0"
        );
        assert_eq!(put("state_put", "", &body), verdict, "{len}");
    }
}

/// The copy of the topic's own keys is charged as state.
#[test]
fn keys_that_a_program_reads() {
    let wat = module(
        "emit_input key_offset",
        "",
        "(call $emit_input) i32.const 0",
    );
    // A key is charged with its bytes, 8 for its offset, and the bytes of its value. It is charged
    // once, and the charge is released when it is deleted.
    let script = "create t program=p state_bytes_max=24\nput t a=123456789012345\nput t a=543210987654321\nput t b=\ndelete t a\nput t b=123456789012345";
    let text = run_script(script, &[("p", &wat)]);
    let verdicts: Vec<bool> = text.lines().map(|line| line.contains(" VALID")).collect();
    assert_eq!(verdicts, [true, true, true, false, true, true], "{text}");
    for (len, fine) in [(14, true), (15, true), (16, false)] {
        let value = "x".repeat(len);
        let script = format!("create t program=p state_bytes_max=24\nput t a={value}");
        let text = run_script(&script, &[("p", &wat)]);
        assert_eq!(text.contains("2 VALID"), fine, "{len}: {text}");
    }
    let script = "create t program=p state_entries_max=2\nput t a=\nput t b=\nput t c=\nput t b=1\nput t =no-key\ndelete t a\nput t c=";
    let text = run_script(script, &[("p", &wat)]);
    let verdicts: Vec<bool> = text.lines().map(|line| line.contains(" VALID")).collect();
    assert_eq!(verdicts, [true, true, true, false, true, true, true, true]);
}

#[test]
fn text_of_a_reject() {
    for (len, verdict) in [
        (255, "INVALID REJECTED 7"),
        (256, "INVALID REJECTED 7"),
        (257, "ERROR TRAP bad pointer or length"),
    ] {
        let body = format!("(call $reject_text (i32.const 0) (i32.const {len})) i32.const 7");
        let found = put("reject_text", "", &body);
        assert!(found.starts_with(verdict), "{len}: {found}");
    }
    for (code, verdict) in [
        (0, "VALID"),
        (1, "INVALID REJECTED 1"),
        (65_535, "INVALID REJECTED 65535"),
        (65_536, "ERROR TRAP bad return value"),
        (-1, "ERROR TRAP bad return value"),
    ] {
        assert_eq!(put("", "", &format!("i32.const {code}")), verdict);
    }
}

/// The size of the undo log of a call is bounded.
#[test]
fn the_undo_log_of_a_call_is_bounded() {
    let storm = "(loop (call $state_put (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 60000)) br 0) unreachable";
    let options = "fuel_max=100000000 state_bytes_max=1000000";
    assert_eq!(
        put("state_put", options, storm),
        "ERROR LIMIT limit 67108864"
    );
    let storm = "(loop (call $state_put (i32.const 0) (i32.const 60000) (i32.const 0) (i32.const 0)) (call $state_delete (i32.const 0) (i32.const 60000)) br 0) unreachable";
    let verdict = put("state_put state_delete", options, storm);
    assert_eq!(verdict, "ERROR LIMIT limit 67108864");
}

/// The limit of the undo log is exact. It includes the bytes of keys and old values, and 40 bytes
/// for each earlier change.
#[test]
fn the_limit_of_the_undo_log_is_exact() {
    // 1,023 times a key of one byte with a value of 65,535 bytes; then a key of one byte with the
    // remaining size.
    let limit = UNDO_BYTES_MIN;
    let left = limit - 1_023 * (1 + 65_535 + UNDO_ENTRY_BYTES) - 1;
    assert_eq!(left, 24_615);
    let put = |key: u32, len: u64| {
        format!("(call $state_put (i32.const {key}) (i32.const 1) (i32.const 0) (i32.const {len}))")
    };
    for (len, verdict) in [
        (left - 1, Detail::None),
        (left, Detail::None),
        (left + 1, Detail::Limit(limit)),
    ] {
        let body = format!(
            "(local $i i32)
            (drop (call $input_read (i32.const 1) (i32.const 0) (i32.const 2) (i32.const 1)))
            (if (i32.eq (i32.load8_u (i32.const 2)) (i32.const 49))
              (then {} {} i32.const 0 return))
            (loop {}
              (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1023))))
            {} i32.const 0",
            put(0, 65_535),
            put(1, len),
            put(0, 65_535),
            put(1, 0),
        );
        let parts = r#"(data (i32.const 0) "ab")"#;
        let code = wat::parse_str(module("input_read state_put", parts, &body)).unwrap();
        let mut options = TopicOptions::default();
        options.program.fuel_max = Some(100_000_000);
        options.program.state_bytes_max = Some(1_000_000);
        let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
        let mut tested = TestMachine::new(1, &host);
        let put = |value| Operation::Put { key: b"", value };
        let create = Operation::CreateProgram {
            options: &options,
            code: &code,
            args: b"",
        };
        let said = [create, put(b"1"), put(b"2")].map(|operation| {
            let outcome = tested.send(&Intention::new("t", operation)).unwrap();
            outcome.commit().unwrap().detail.clone()
        });
        assert_eq!(said, [Detail::None, Detail::None, verdict], "{len}");
    }
}

/// A module that burns fuel at its start: a log line costs 100 and an eighth of its bytes, a
/// constant costs 1. Fuel is checked at host calls, so the last instruction is one.
fn fuel_using_module(lines: u64, bytes: u64, constants: u64) -> Vec<u8> {
    let line = |len: u64| format!("(call $log (i32.const 3) (i32.const 0) (i32.const {len}))");
    let burn = format!(
        "(local $i i64) i32.const 0 (loop {} (br_if 0 (i64.lt_u
            (local.tee $i (i64.add (local.get $i) (i64.const 1))) (i64.const {lines}))))
        {} {}",
        line(65_536),
        "(drop (i32.const 0))".repeat(usize::try_from(constants).unwrap()),
        line(bytes),
    );
    let parts = format!(
        r#"(func (export "weir_init") (result i32) {burn})
        (func (export "weir_upgrade") (result i32) {burn})"#
    );
    wat::parse_str(module("log", &parts, "i32.const 0")).unwrap()
}

/// Returns the fuel that the start of a program used, in a new topic or as a replacement, where a
/// call may use `fuel`.
fn begin(
    host: &Arc<dyn ProgramHost>,
    code: &[u8],
    fuel_max: u64,
    replaces: bool,
) -> (Option<ErrorCode>, u64) {
    let quiet = wat::parse_str(module("", "", "i32.const 0")).unwrap();
    let mut tested = TestMachine::new(1, host);
    let mut options = TopicOptions::default();
    options.program.fuel_max = Some(fuel_max);
    let create = Operation::CreateProgram {
        options: &options,
        code: if replaces { &quiet } else { code },
        args: b"",
    };
    let mut outcome = tested.send(&Intention::new("t", create)).unwrap();
    if replaces {
        let replace = Operation::Replace {
            expected: None,
            code,
            args: b"",
        };
        outcome = tested.send(&Intention::new("t", replace)).unwrap();
    }
    let commit = outcome.commit().unwrap();
    if let Detail::Limit(limit) = commit.detail {
        assert_eq!(limit, fuel_max.max(START_FUEL));
    }
    (commit.reason, commit.fuel)
}

/// The limit for starts and upgrades is exact: the fuel of a start, or that of a call if that is
/// more.
#[test]
fn fuel_of_a_start() {
    let host: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let more = START_FUEL + 1_000_000;
    for (fuel_max, limit) in [(1, START_FUEL), (START_FUEL, START_FUEL), (more, more)] {
        let of = |lines| begin(&host, &fuel_using_module(lines, 0, 0), fuel_max, false).1;
        let (one, round) = (of(1), of(2) - of(1));
        let lines = 1 + (limit - one - 1) / round;
        let before = one + (lines - 1) * round;
        let left = limit - before;
        let (bytes, constants) = (8 * (left - 1), 1);
        for replaces in [false, true] {
            let used = |n: u64| {
                let code = fuel_using_module(lines, bytes, n + constants - limit);
                begin(&host, &code, fuel_max, replaces)
            };
            assert_eq!(used(limit - 1), (None, limit - 1));
            assert_eq!(used(limit), (None, limit));
            let (reason, paid) = used(limit + 1);
            assert_eq!(reason, Some(ErrorCode::OutOfFuel));
            assert!(paid > limit, "and another instance");
        }
    }
}

/// The steps of a transaction share one limit, so they do not delay other topics longer than a
/// start may.
#[test]
fn steps_share_their_fuel() {
    let burn = "(local $i i32) (loop (call $log (i32.const 3) (i32.const 0) (i32.const 65536))
        (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 4800)))) i32.const 0";
    let wat = module("log", "", burn);
    let script = "create t program=p fuel_max=50000000\ntxn t\n  put =\n  put =\n\
        txn t\n  put =\n  put =\n  put =\nput t =\nalter t fuel_max=200000000\ntxn t\n  put =\n  put =\n  put =\n";
    let text = run_script(script, &[("p", &wat)]);
    assert_eq!(
        text.lines().skip(1).collect::<Vec<_>>(),
        [
            "2 VALID",
            "3 INVALID TXN_ABORTED step 2: OUT_OF_FUEL",
            "4 VALID",
            "5 VALID: t 2 ALTER last",
            "6 VALID",
        ]
    );
}

#[test]
fn arguments() {
    let options = TopicOptions::default();
    let args = vec![7; ARGUMENT_BYTES_MAX + 1];
    let mut builder = BatchBuilder::default();
    for (len, fine) in [
        (ARGUMENT_BYTES_MAX - 1, true),
        (ARGUMENT_BYTES_MAX, true),
        (ARGUMENT_BYTES_MAX + 1, false),
    ] {
        let create = Operation::CreateProgram {
            options: &options,
            code: b"x",
            args: &args[..len],
        };
        let pushed = builder.push(&Intention::new("t", create), &IntentionLimits::default());
        assert_eq!(pushed.is_ok(), fine, "{len}");
    }
    let body = "(drop (call $input_read (i32.const 2) (i32.const 1048575) (i32.const 0) (i32.const 9))) (call $emit_put (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1)) i32.const 0";
    let wat = module("input_read emit_put", "", body);
    let text = run_script(
        "create t program=p args={x*1048575}z\nput t =",
        &[("p", &wat)],
    );
    assert!(text.contains("2 VALID: t 2 PUT =z last"), "{text}");
}

#[test]
fn memory() {
    for (pages, fine) in [(1, true), (2, true), (3, false)] {
        let wat = module("", "", "i32.const 0").replace("1 2)", &format!("1 {pages})"));
        let text = run_script("create t program=p memory_bytes_max=131072", &[("p", &wat)]);
        assert_eq!(text.starts_with("1 VALID"), fine, "{text}");
        let sentence = "BAD_PROGRAM the memory may grow to 3 pages of 64 KiB, allowed are 2";
        assert!(fine || text.contains(sentence), "{text}");
    }
    // Memory grows to the declared maximum; beyond it, `memory.grow` fails.
    let body = "(i32.ne (memory.grow (i32.const 1)) (i32.const 1)) (if (then i32.const 1 return))
        (i32.ne (memory.grow (i32.const 1)) (i32.const -1)) (if (then i32.const 2 return))
        (i32.ne (memory.grow (i32.const 65536)) (i32.const -1)) (if (then i32.const 3 return))
        (i32.ne (memory.grow (i32.const -1)) (i32.const -1)) (if (then i32.const 4 return))
        (i32.ne (memory.grow (i32.const 0)) (i32.const 2)) (if (then i32.const 5 return))
        i32.const 0";
    for options in ["state=none", "", "state=memory"] {
        let wat = module("", "", body);
        let text = run_script(
            &format!("create t program=p {options}\nput t ="),
            &[("p", &wat)],
        );
        assert_eq!(text.lines().nth(1).unwrap(), "2 VALID", "{options}");
    }
}

/// The initial size of the memory is checked before the module is instantiated.
#[test]
fn memory_at_the_start() {
    let host = WasmtimeHost::default();
    for (pages, fine) in [(255, true), (256, true), (257, false), (65_536, false)] {
        let wat = module("", "", "i32.const 0").replace("1 2)", &format!("{pages} {pages})"));
        let found = inspect(&wat::parse_str(&wat).unwrap());
        assert_eq!(found.is_ok(), fine, "{pages}: {found:?}");
        let sentence = format!("may grow to {pages} pages of 64 KiB, allowed are 256");
        assert!(fine || found.unwrap_err().contains(&sentence));
    }
    let wat = module("", "", "i32.const 0").replace("1 2)", "256 256)");
    let code = wat::parse_str(wat).unwrap();
    assert!(host.admit(&code, &largest_setup()).is_ok());
}

/// The structural limits of a module are checked before it is compiled.
#[test]
fn forms() {
    let with = |parts: &str, body: &str| wat::parse_str(module("", parts, body)).unwrap();
    let fine = |n: u64, max: u64, code: Vec<u8>, sentence: &str| {
        let found = inspect(&code);
        if n <= max {
            assert!(found.is_ok(), "{n} of {max}: {found:?}");
        } else {
            let said = found.unwrap_err();
            assert!(said.contains(sentence), "{said}\nshould say: {sentence}");
        }
    };
    let around = |max: u64| [max - 1, max, max + 1].map(|n| (n, max));
    for (n, max) in around(limits::LOCALS_MAX) {
        let body = format!("(local{}) i32.const 0", " i32".repeat(n as usize));
        fine(n, max, with("", &body), "local variables (at byte");
    }
    for (n, max) in around(limits::LOCALS_TOTAL_MAX) {
        let mut parts = String::new();
        let mut left = n;
        while left > 0 {
            let here = left.min(4000);
            let _ = write!(parts, "(func (local{}))", " i32".repeat(here as usize));
            left -= here;
        }
        fine(
            n,
            max,
            with(&parts, "i32.const 0"),
            "have 200001 local variables",
        );
    }
    for (n, max) in around(limits::NESTING_MAX as u64) {
        let n_ = n as usize;
        let body = "block ".repeat(n_) + &"end ".repeat(n_) + "i32.const 0";
        fine(n, max, with("", &body), "nested more than 4096 deep");
    }
    for (n, max) in around(limits::BRANCHES_MAX) {
        let targets = " 0".repeat(n as usize - 2);
        for body in [
            "block end ".repeat(n as usize),
            "i32.const 0 if end ".repeat(n as usize),
            "i32.const 0 br_if 0 ".repeat(n as usize),
            // The last target is the default one, which every table has.
            format!("block i32.const 0 br_table{targets} 0 end "),
        ] {
            let parts = format!("(func {body})");
            let sentence = "more than 8192 blocks and branches (at byte";
            fine(n, max, with(&parts, "i32.const 0"), sentence);
        }
    }
    for (n, max) in around(limits::BRANCHES_TOTAL_MAX) {
        let mut parts = String::new();
        let mut left = n;
        while left > 0 {
            let here = left.min(8000);
            let _ = write!(parts, "(func {})", "block end ".repeat(here as usize));
            left -= here;
        }
        let sentence = "have more than 100000 blocks and branches";
        fine(n, max, with(&parts, "i32.const 0"), sentence);
    }
    for (n, max) in around(limits::PARAMETERS_MAX as u64) {
        let parts = format!("(func (param{}))", " i32".repeat(n as usize));
        fine(n, max, with(&parts, "i32.const 0"), "has 129 parameters");
    }
    for (n, max) in around(limits::RESULTS_MAX as u64) {
        let kinds = " i32".repeat(n as usize);
        let parts = format!("(func (result{kinds}) unreachable)");
        fine(n, max, with(&parts, "i32.const 0"), "has 17 results");
    }
    for (n, max) in around(u64::from(limits::SEGMENTS_MAX)) {
        let data = r#"(data "")"#.repeat(n as usize);
        fine(
            n,
            max,
            with(&data, "i32.const 0"),
            "10001 data segments (at byte",
        );
        let parts = format!("(table 1 funcref) {}", "(elem func)".repeat(n as usize));
        fine(
            n,
            max,
            with(&parts, "i32.const 0"),
            "10001 element segments (at byte",
        );
    }
    for (n, max) in around(limits::TABLE_ELEMENTS_MAX) {
        let parts = format!("(table {n} funcref)");
        fine(n, max, with(&parts, "i32.const 0"), "10001 elements");
    }
    for (n, max) in around(u64::from(limits::ITEMS_MAX)) {
        let n = n as usize;
        // A module without `parts` has one type, no import, three exports.
        for (parts, before, sentence) in [
            ("(type (func (param i32)))", 1, "has 10001 types (at byte"),
            (
                "(global i32 (i32.const 0))",
                0,
                "has 10001 globals (at byte",
            ),
            (
                r#"(import "weir1" "emit_input" (func))"#,
                0,
                "has more than 10000 imports (at byte",
            ),
        ] {
            // The text format has the imports before the memory.
            let text = module("", "", "i32.const 0");
            let text = text.replacen(
                "(module ",
                &format!("(module {}", parts.repeat(n - before)),
                1,
            );
            fine(n as u64, max, wat::parse_str(text).unwrap(), sentence);
        }
        let mut parts = String::from("(func $f)");
        for number in 0..n - 3 {
            let _ = write!(parts, r#"(export "e{number}" (func $f))"#);
        }
        let sentence = "has 10001 exports (at byte";
        fine(n as u64, max, with(&parts, "i32.const 0"), sentence);
    }
    for (n, max) in around(1000) {
        let parts = "(global (mut i32) (i32.const 0))".repeat(n as usize);
        fine(
            n,
            max,
            with(&parts, "i32.const 0"),
            "more than 1000 mutable globals",
        );
    }
    for (n, max) in around(u64::from(limits::FUNCTIONS_MAX)) {
        let parts = "(func)".repeat(n as usize - 2);
        fine(n, max, with(&parts, "i32.const 0"), "10001 functions");
    }
    for (n, max) in around(limits::FUNCTION_BYTES_MAX as u64) {
        // One byte for the number of locals, two for the constant, one for the end.
        let body = "nop ".repeat(n as usize - 4) + "i32.const 0";
        fine(
            n,
            max,
            with("", &body),
            "a function has 131073 bytes (at byte",
        );
    }
    let empty = with(r#"(@custom "x" "")"#, "i32.const 0").len() as u64;
    for (n, max) in around(limits::MODULE_BYTES_MAX as u64) {
        // The length of the section needs two more bytes at this size.
        let text = "x".repeat((n - empty - 2) as usize);
        let code = with(&format!(r#"(@custom "x" "{text}")"#), "i32.const 0");
        assert_eq!(code.len() as u64, n);
        fine(n, max, code, "has 1048577 bytes, allowed are 1048576");
    }
}

#[test]
fn json_find_reads_records_without_other_imports() {
    let find = "(i32.add (i32.const 10) (call $json_find (i32.const 1) (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))";
    let find = module("json_find", r#"(data (i32.const 0) "$")"#, find);
    let played = run_script(
        "create t program=p\nput t a=7\nput t a=x\n",
        &[("p", &find)],
    );
    assert_eq!(
        played,
        "1 VALID: t 1 CREATE last\n2 INVALID REJECTED 11\n3 INVALID REJECTED 9\n"
    );
}
