//! Malicious modules: each is rejected with a sentence, or stopped with the same verdict by both
//! engines. None of them leaves a change.
#![allow(clippy::unwrap_used, clippy::too_many_lines, reason = "tests")]

use std::fmt::Write as _;
use std::sync::Arc;

use weir_core::ProgramHost;
use weir_program::script::{RunOptions, run};
use weir_program::{WasmiHost, WasmtimeHost};

fn hosts() -> [Arc<dyn ProgramHost>; 2] {
    [
        Arc::new(WasmtimeHost::default()),
        Arc::new(WasmiHost::default()),
    ]
}

/// A module with one page, these imports, and this body of `weir_apply`.
fn module(imports: &str, body: &str) -> String {
    format!(
        r#"(module {imports}
            (memory (export "memory") 1 1)
            (func (export "weir_abi") (result i32) i32.const 1)
            (func (export "weir_apply") (result i32) {body}))"#
    )
}

/// The results of a CREATE and two PUTs, on both engines.
fn results(wat: &str, options: &str) -> String {
    let code = wat::parse_str(wat).unwrap();
    let script = format!("create t program=p {options}\nput t key=value\nput t key=value\n----\n");
    let mut first: Option<String> = None;
    for host in hosts() {
        let program = |_: &str| Some(code.clone());
        let options = RunOptions {
            restarts: true,
            twice: true,
        };
        let (blocks, _) = run(&script, &host, options, &program).unwrap();
        let actual = blocks[0].actual.clone();
        if let Some(first) = &first {
            assert_eq!(*first, actual, "{}", host.fingerprint());
        }
        first = Some(actual);
    }
    first.unwrap()
}

fn puts(wat: &str, expected: &str) {
    let results = results(wat, "");
    let lines: Vec<&str> = results.lines().skip(1).collect();
    assert_eq!(
        lines,
        [format!("2 {expected}"), format!("3 {expected}")],
        "{wat}"
    );
}

fn assert_rejected(wat: &str, sentence: &str) {
    assert_rejected_with(wat, "", sentence);
}

fn assert_rejected_with(wat: &str, options: &str, sentence: &str) {
    let results = results(wat, options);
    let first = results.lines().next().unwrap();
    assert!(
        first.starts_with("1 ERROR BAD_PROGRAM ") && first.contains(sentence),
        "{first}\nshould contain: {sentence}"
    );
}

const EMIT: &str = r#"(import "weir1" "emit_put" (func $emit (param i32 i32 i32 i32)))"#;
const STATE: &str = r#"(import "weir1" "state_put" (func $put (param i32 i32 i32 i32)))"#;

#[test]
fn each_trap_has_its_name() {
    let simple = [
        ("unreachable", "unreachable"),
        ("(i32.load (i32.const -1))", "memory out of bounds"),
        (
            "(i32.store (i32.const 65533) (i32.const 1)) i32.const 0",
            "memory out of bounds",
        ),
        (
            "(i32.div_u (i32.const 1) (i32.const 0))",
            "division by zero",
        ),
        (
            "(i32.div_s (i32.const -2147483648) (i32.const -1))",
            "integer overflow",
        ),
        (
            "(i32.trunc_f32_s (f32.const nan))",
            "bad conversion to integer",
        ),
        ("i32.const -1", "bad return value"),
        ("i32.const 65536", "bad return value"),
    ];
    for (body, name) in simple {
        puts(&module("", body), &format!("ERROR TRAP {name}"));
    }
    let table = |index: u32| {
        format!(
            r#"(module (memory (export "memory") 1 1) (table 2 funcref) (elem (i32.const 0) $other)
            (type $none (func (result i32)))
            (func $other (param i32))
            (func (export "weir_abi") (result i32) i32.const 1)
            (func (export "weir_apply") (result i32) (call_indirect (type $none) (i32.const {index}))))"#
        )
    };
    puts(&table(0), "ERROR TRAP call with a wrong signature");
    puts(&table(1), "ERROR TRAP call of a null reference");
    puts(&table(2), "ERROR TRAP table out of bounds");
    puts(&module("", "i32.const 65535"), "INVALID REJECTED 65535");
}

#[test]
fn loops_and_recursion_end() {
    puts(
        &module("", "(loop br 0) unreachable"),
        "ERROR OUT_OF_FUEL limit 2000000",
    );
    let deep = r#"(module (memory (export "memory") 1 1)
        (func $deep (param i64 i64 i64 i64) (result i32)
            (call $deep (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
        (func (export "weir_abi") (result i32) i32.const 1)
        (func (export "weir_apply") (result i32)
            (call $deep (i64.const 1) (i64.const 1) (i64.const 1) (i64.const 1))))"#;
    puts(deep, "ERROR TRAP stack overflow");
}

#[test]
fn pointers_are_checked_in_every_host_function() {
    let kinds: [(&str, usize, &str); 14] = [
        ("input_info", 1, ""),
        ("input_read", 4, "i32"),
        ("emit_put", 4, ""),
        ("emit_delete", 2, ""),
        ("emit_value", 4, ""),
        ("reject_text", 2, ""),
        ("state_get", 5, "i32"),
        ("state_put", 4, ""),
        ("state_delete", 2, ""),
        ("state_next", 4, "i32"),
        ("key_get", 5, "i32"),
        ("key_offset", 2, "i64"),
        ("json_find", 5, "i32"),
        ("log", 3, ""),
    ];
    for (name, count, result) in kinds {
        let result_type = match result {
            "" => String::new(),
            kind => format!("(result {kind})"),
        };
        let params = " i32".repeat(count);
        let import =
            format!(r#"(import "weir1" "{name}" (func $f (param{params}) {result_type}))"#);
        for bad in ["-1", "65530", "2147483647"] {
            let args = format!(" (i32.const {bad})").repeat(count);
            let drop = if result.is_empty() { "" } else { "drop" };
            let body = format!("(call $f{args}) {drop} i32.const 0");
            let results = results(&module(&import, &body), "");
            let second = results.lines().nth(1).unwrap();
            let fine = ["bad pointer or length", "bad argument"]
                .iter()
                .any(|name| second == format!("2 ERROR TRAP {name}"));
            assert!(fine, "{name} with {bad}: {second}");
        }
    }
    let hash = r#"(import "weir1" "hash" (func $f (param i32 i32 i32 i32)))"#;
    for (args, name) in [
        ("1 0 65537 0", "bad pointer or length"),
        ("1 0 1 65505", "bad pointer or length"),
        ("3 0 1 0", "bad argument"),
    ] {
        let args: Vec<String> = args
            .split(' ')
            .map(|n| format!("(i32.const {n})"))
            .collect();
        let args = args.join(" ");
        puts(
            &module(hash, &format!("(call $f{args}) i32.const 0")),
            &format!("ERROR TRAP {name}"),
        );
    }
    let json = r#"(import "weir1" "json_find" (func $f (param i32 i32 i32 i32 i32) (result i32)))
        (data (i32.const 0) "$\n$.a")"#;
    for (args, expected) in [
        ("1 1 0 65537 100", "ERROR TRAP bad pointer or length"),
        ("1 1 65536 1 100", "ERROR TRAP bad pointer or length"),
        ("1 1 0 5 65513", "ERROR TRAP bad pointer or length"),
        ("1 1 0 5 -1", "ERROR TRAP bad pointer or length"),
        ("1 2 0 5 100", "ERROR TRAP bad argument"),
        ("3 -1 0 5 100", "ERROR TRAP bad argument"),
        ("9 1 0 5 100", "ERROR TRAP bad argument"),
        // `value` is not JSON, and its first byte is wrong: -1, at 0.
        ("1 1 0 5 65512", "INVALID REJECTED 9"),
        // The paths exceed the limit and are not parsed: -2.
        ("1 1 0 65536 100", "INVALID REJECTED 8"),
        ("1 1 0 4097 65536", "INVALID REJECTED 8"),
        ("1 1 0 4096 100", "INVALID REJECTED 8"),
    ] {
        let args: Vec<String> = args
            .split(' ')
            .map(|n| format!("(i32.const {n})"))
            .collect();
        let body = format!("(i32.add (call $f{}) (i32.const 10))", args.join(" "));
        puts(&module(json, &body), expected);
    }
    let text = r#"(import "weir1" "reject_text" (func $f (param i32 i32)))"#;
    let call = |len: u32| format!("(call $f (i32.const 0) (i32.const {len})) i32.const 7");
    puts(
        &module(text, &call(257)),
        "ERROR TRAP bad pointer or length",
    );
    let results = results(&module(text, &call(256)), "");
    assert!(results.contains("2 INVALID REJECTED 7 "), "{results}");
}

#[test]
fn many_records_and_much_state_end_at_the_limit() {
    let storm = |call: &str| {
        format!(
            "(local $n i32) (loop (local.set $n (i32.add (local.get $n) (i32.const 1))) (i32.store (i32.const 0) (local.get $n)) {call} br 0) unreachable"
        )
    };
    let emit = storm("(call $emit (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 4))");
    puts(&module(EMIT, &emit), "ERROR LIMIT limit 1024");
    let wide = storm("(call $emit (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 65536))");
    puts(&module(EMIT, &wide), "ERROR LIMIT limit 1048576");
    let state = storm("(call $put (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 4))");
    let results = results(&module(STATE, &state), "state_entries_max=100");
    assert!(results.contains("2 ERROR LIMIT limit 100\n"), "{results}");
}

#[test]
fn the_limit_itself_is_allowed() {
    let emits = |n: u32| {
        let mut body = String::new();
        for _ in 0..n {
            body += "(call $emit (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1))";
        }
        results(&module(EMIT, &(body + "i32.const 0")), "emits_max=3")
    };
    assert!(emits(3).contains("2 VALID: t 2 PUT"));
    assert!(emits(4).contains("2 ERROR LIMIT limit 3"));
}

#[test]
fn no_state_remains_of_an_earlier_call() {
    // Each program checks for a mark of an earlier call, then sets the mark and ends in every
    // possible way.
    let marks = [
        (
            "",
            "(i32.load (i32.const 5000))",
            "(i32.store (i32.const 5000) (i32.const 1))",
        ),
        (
            "(global $g (mut i32) (i32.const 0))",
            "(global.get $g)",
            "(global.set $g (i32.const 1))",
        ),
        (
            "(global $g (mut i64) (i64.const 0))",
            "(i64.eqz (global.get $g)) i32.eqz",
            "(global.set $g (i64.const 1))",
        ),
        (
            "(global $g (mut f64) (f64.const 0))",
            "(f64.ne (global.get $g) (f64.const 0))",
            "(global.set $g (f64.const 1))",
        ),
    ];
    for (global, ask, leave) in marks {
        for (ending, expected) in [
            ("i32.const 0", "VALID"),
            ("i32.const 9", "INVALID REJECTED 9"),
            ("unreachable", "ERROR TRAP unreachable"),
        ] {
            let body = format!("{ask} (if (then i32.const 1 return)) {leave} {ending}");
            let wat = format!(
                r#"(module (memory (export "memory") 1 1) {global}
                (func (export "weir_abi") (result i32) i32.const 1)
                (func (export "weir_apply") (result i32) {body}))"#
            );
            puts(&wat, expected);
        }
    }
    let grown = r#"(module (memory (export "memory") 1 2)
        (func (export "weir_abi") (result i32) i32.const 1)
        (func (export "weir_apply") (result i32)
            (i32.ne (memory.size) (i32.const 1)) (if (then i32.const 1 return))
            (drop (memory.grow (i32.const 1))) i32.const 0))"#;
    puts(grown, "VALID");
    let dropped = r#"(module (memory (export "memory") 1 1) (data $d "x")
        (func (export "weir_abi") (result i32) i32.const 1)
        (func (export "weir_apply") (result i32)
            (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1)) (data.drop $d) i32.const 0))"#;
    puts(dropped, "VALID");
}

#[test]
fn in_mode_memory_the_memory_is_the_state() {
    // Counts its calls in memory and in a global. Rejects every third call, and traps at every
    // fifth one, after counting.
    let wat = r#"(module (import "weir1" "emit_put" (func $emit (param i32 i32 i32 i32)))
        (memory (export "memory") 1 2) (global $g (mut i32) (i32.const 0))
        (func (export "weir_abi") (result i32) i32.const 1)
        (func (export "weir_apply") (result i32)
            (i32.store (i32.const 9000) (i32.add (i32.load (i32.const 9000)) (i32.const 1)))
            (global.set $g (i32.add (global.get $g) (i32.const 1)))
            (if (i32.ne (global.get $g) (i32.load (i32.const 9000))) (then i32.const 99 return))
            (if (i32.eq (global.get $g) (i32.const 2)) (then (drop (memory.grow (i32.const 1)))))
            (if (i32.eq (global.get $g) (i32.const 3)) (then i32.const 3 return))
            (call $emit (i32.const 0) (i32.const 0) (i32.const 9000) (i32.const 1))
            i32.const 0))"#;
    let code = wat::parse_str(wat).unwrap();
    let script = "create t program=p state=memory\nput t a=\nput t a=\nput t a=\nput t a=\n\
                  txn t\n  put a=\n  put b=\n----\n";
    for host in hosts() {
        for restarts in [false, true] {
            let options = RunOptions {
                restarts,
                twice: true,
            };
            let (blocks, _) = run(script, &host, options, &|_| Some(code.clone())).unwrap();
            assert_eq!(
                blocks[0].actual,
                "1 VALID: t 1 CREATE last\n2 VALID: t 2 PUT =\\x01 last\n\
                 3 VALID: t 3 PUT =\\x02 last\n4 INVALID REJECTED 3\n5 INVALID REJECTED 3\n\
                 6 INVALID TXN_ABORTED step 0: REJECTED\n"
            );
        }
    }
}

#[test]
fn forbidden_modules_are_rejected_with_a_sentence() {
    let apply = r#"(func (export "weir_abi") (result i32) i32.const 1)
        (func (export "weir_apply") (result i32) i32.const 0)"#;
    let with = |parts: &str| format!("(module {parts} {apply})");
    let memory = r#"(memory (export "memory") 1 1)"#;
    assert_rejected(&with(""), "no memory of its own");
    assert_rejected(
        &with(r#"(memory (export "memory") 1)"#),
        "add --max-memory=65536",
    );
    assert_rejected(
        &with(r#"(memory (export "memory") 1 17)"#),
        "17 pages of 64 KiB, allowed are 16",
    );
    assert_rejected(
        &with(r#"(memory (export "memory") 1 65000)"#),
        "65000 pages",
    );
    assert_rejected(
        &with("(memory 1 1)"),
        "not exported under the name \"memory\"",
    );
    assert_rejected(
        &with(r#"(memory (export "memory") 1 1) (memory 1 1)"#),
        "more than one memory",
    );
    assert_rejected(
        &with(r#"(memory (export "memory") 1 1 shared)"#),
        "shared memory",
    );
    assert_rejected(
        &with(r#"(memory (export "memory") i64 1 1)"#),
        "64-bit memory",
    );
    assert_rejected(
        &with(&format!("{memory} (table 10001 funcref)")),
        "10001 elements",
    );
    assert_rejected(
        &with(&format!("{memory} (start $s) (func $s)")),
        "start function",
    );
    assert_rejected(
        &with(&format!("{memory} (tag)")),
        "exceptions are not allowed",
    );
    assert_rejected(
        &with(&format!(
            r#"{memory} (global (export "weir:0") i32 (i32.const 0))"#
        )),
        "reserved name",
    );
    assert_rejected(
        &with(&format!(
            "{memory} (global (mut v128) (v128.const i64x2 0 0))"
        )),
        "not a number of at most 64 bits",
    );
    assert_rejected(
        &with(&format!("{memory} (func (drop (atomic.fence)))"))
            .replace("(drop (atomic.fence))", "atomic.fence"),
        "threads",
    );
    assert_rejected(
        &with(&format!("{memory} (func $f return_call $f)")),
        "tail calls",
    );
    assert_rejected(
        &with(&format!(
            "{memory} (func (drop (i8x16.relaxed_swizzle (v128.const i64x2 0 0) (v128.const i64x2 0 0))))"
        )),
        "relaxed SIMD",
    );
    for (import, sentence) in [
        (r#"(import "env" "abort" (func))"#, "env.abort is not known"),
        (
            r#"(import "weir1" "clock" (func))"#,
            "weir1.clock is not known",
        ),
        (
            r#"(import "weir1" "emit_input" (func (param i32)))"#,
            "weir1.emit_input has another type",
        ),
        (
            r#"(import "weir1" "memory" (memory 1 1))"#,
            "weir1.memory is not a function",
        ),
    ] {
        assert_rejected(&with(&format!("{import} {memory}")), sentence);
    }
    let no_apply =
        format!(r#"(module {memory} (func (export "weir_abi") (result i32) i32.const 1))"#);
    assert_rejected(&no_apply, "weir_apply is not exported");
    let other = |abi: &str| {
        format!(
            r#"(module {memory} (func (export "weir_abi") (result i32) {abi})
            (func (export "weir_apply") (result i32) i32.const 0))"#
        )
    };
    assert_rejected(&other("i32.const 2"), "weir_abi returns 2");
    assert_rejected(&other("(loop br 0) unreachable"), "weir_abi fails");
    assert_rejected(
        &format!(
            r#"(module {memory} (func (export "weir_abi") (result i32) i32.const 1)
            (func (export "weir_apply") (param i32) (result i32) i32.const 0))"#
        ),
        "weir_apply is not a function without parameters",
    );
    let drops = with(&format!(r#"{memory} (data $d "x") (func data.drop $d)"#));
    assert_rejected_with(&drops, "state=memory", "state mode memory does not keep");
}

#[test]
fn modules_that_are_costly_to_compile_are_rejected_by_size() {
    let memory = r#"(memory (export "memory") 1 1)"#;
    let mut long = String::new();
    for _ in 0..60_000 {
        long += "i32.const 1 drop ";
    }
    assert_rejected(&module("", &(long + "i32.const 0")), "a function has");
    let mut many = format!("(module {memory}");
    for n in 0..10_001 {
        let _ = write!(many, "(func $f{n})");
    }
    many += ")";
    assert_rejected(&many, "10001 functions, allowed are 10000");
    let large = format!(
        r#"(module {memory} (@custom "x" "{}"))"#,
        "x".repeat(1 << 20)
    );
    assert_rejected(&large, "allowed are 1048576");
}
