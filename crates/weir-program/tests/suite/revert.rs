//! A call that failed leaves no change, whatever it did before (P6, A1 to A3, PR3): no record, no
//! state, no memory, no global, no page.

use std::fmt::Write as _;

use weir_program::script::show;

use crate::world::{module, run_script};

/// A program that shows the state that it finds, changes everything that can be changed, and ends
/// as the value requests.
fn dirty(kv: bool, grows: bool) -> String {
    let (load, store) = if kv {
        (
            "(drop (call $state_get (i32.const 64) (i32.const 1) (i32.const 0) (i32.const 200) (i32.const 1)))",
            "(i32.store8 (i32.const 200) (i32.add (i32.load8_u (i32.const 200)) (i32.const 1)))
             (call $state_put (i32.const 64) (i32.const 1) (i32.const 200) (i32.const 1))
             (call $state_put (i32.const 65) (i32.const 1) (i32.const 200) (i32.const 1))
             (call $state_delete (i32.const 65) (i32.const 1))",
        )
    } else {
        ("", "")
    };
    let imports = if kv {
        "input_read emit_put state_get state_put state_delete"
    } else {
        "input_read emit_put"
    };
    let grow = if grows {
        "(drop (memory.grow (i32.const 1)))"
    } else {
        ""
    };
    let parts = r#"(global $g (mut i32) (i32.const 0)) (global $h (mut i64) (i64.const 0))
        (global $i (mut f64) (f64.const 0)) (data (i32.const 64) "st") (func $deep (local i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64
        i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64
        i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64
        i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64)
        call $deep)"#;
    let body = format!(
        "{load}
        (i32.store8 (i32.const 201) (i32.load8_u (i32.const 5000)))
        (i32.store8 (i32.const 202) (global.get $g))
        (i32.store8 (i32.const 203) (memory.size))
        (i32.store8 (i32.const 204) (i32.trunc_f64_u (f64.add (global.get $i) (f64.convert_i64_u (global.get $h)))))
        (call $emit_put (i32.const 0) (i32.const 0) (i32.const 200) (i32.const 5))
        {store}
        (i32.store8 (i32.const 5000) (i32.add (i32.load8_u (i32.const 5000)) (i32.const 1)))
        (global.set $g (i32.add (global.get $g) (i32.const 1)))
        (global.set $h (i64.add (global.get $h) (i64.const 2)))
        (global.set $i (f64.add (global.get $i) (f64.const 3)))
        {grow}
        (i32.store8 (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 1)) (i32.const 77))
        (drop (call $input_read (i32.const 1) (i32.const 0) (i32.const 300) (i32.const 1)))
        (block (block (block (block (block (block (block (block (block
            (br_table 0 1 2 3 4 5 6 7 8 (i32.sub (i32.load8_u (i32.const 300)) (i32.const 48))))
            i32.const 0 return)
            i32.const 9 return)
            unreachable)
            (loop (call $emit_put (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 5)) br 0))
            (loop br 0))
            (call $emit_put (i32.const -1) (i32.const 2) (i32.const 0) (i32.const 0)))
            i32.const -1 return)
            (drop (i32.div_u (i32.const 1) (i32.const 0))))
        call $deep i32.const 0"
    );
    module(imports, parts, &body)
}

const ENDINGS: [&str; 9] = [
    "VALID",
    "INVALID REJECTED 9",
    "ERROR TRAP unreachable",
    "ERROR LIMIT limit 20",
    "ERROR OUT_OF_FUEL limit 100000",
    "ERROR TRAP bad pointer or length",
    "ERROR TRAP bad return value",
    "ERROR TRAP division by zero",
    "ERROR TRAP stack overflow",
];

#[test]
fn a_failed_call_leaves_no_change() {
    // An instance that grew is never used again; any other is restored.
    let modes = [
        ("kv", true, false),
        ("kv", true, true),
        ("none", false, false),
        ("memory", false, false),
        ("memory", false, true),
    ];
    for (mode, kv, grows) in modes {
        let wat = dirty(kv, grows);
        let mut script = format!("create t program=p state={mode} fuel_max=100000 emits_max=20\n");
        let mut expected = vec!["1 VALID: t 1 CREATE last".to_owned()];
        let (mut offset, mut record, mut kept) = (1, 1, 0_u8);
        let mut line = |ending: usize, kept: &mut u8| {
            let _ = writeln!(script, "put t ={ending}");
            offset += 1;
            let mut text = format!("{offset} {}", ENDINGS[ending]);
            if ending == 0 {
                record += 1;
                let found = match mode {
                    "kv" => [*kept, 0, 0, 1, 0],
                    "none" => [0, 0, 0, 1, 0],
                    _ => [
                        0,
                        *kept,
                        *kept,
                        if *kept > 0 && grows { 2 } else { 1 },
                        5 * *kept,
                    ],
                };
                let _ = write!(text, ": t {record} PUT ={} last", show(&found));
                *kept += 1;
            }
            expected.push(text);
        };
        // First, before anything was kept; then one after the other.
        for ending in 1..9 {
            line(ending, &mut kept);
        }
        for ending in 1..9 {
            line(0, &mut kept);
            line(ending, &mut kept);
        }
        line(0, &mut kept);
        let text = run_script(&script, &[("p", &wat)]);
        let found: Vec<&str> = text.lines().collect();
        assert_eq!(found, expected, "state mode {mode}");
    }
}

#[test]
fn a_transaction_of_a_program_is_atomic() {
    for (mode, kv) in [("kv", true), ("memory", false)] {
        let wat = dirty(kv, true);
        let mut script =
            format!("create t program=p state={mode} fuel_max=100000 emits_max=20\nput t =0\n");
        for ending in 1..9 {
            let _ = write!(script, "txn t\n  put =0\n  put =0\n  put ={ending}\n");
        }
        script += "txn t\n  put =0\n  put =0\nput t =0";
        let text = run_script(&script, &[("p", &wat)]);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        for (number, line) in lines[..8].iter().enumerate() {
            let reason = ENDINGS[number + 1].split(' ').nth(1).unwrap();
            let said = format!("{} INVALID TXN_ABORTED step 2: {reason}", number + 3);
            assert_eq!(*line, said);
        }
        // Each step sees the changes of the steps before, and the next write sees those of both.
        let shown = |n: u8| match mode {
            "kv" => show(&[n, 0, 0, 1, 0]),
            _ => show(&[0, n, n, 2, 5 * n]),
        };
        let (one, two, three) = (shown(1), shown(2), shown(3));
        assert_eq!(
            lines[8],
            format!("11 VALID: t 3 PUT ={one} txn; t 4 PUT ={two} txn last")
        );
        assert_eq!(lines[9], format!("12 VALID: t 5 PUT ={three} last"));
    }
}

/// Tables and passive segments are part of an instance too.
#[test]
fn tables_and_segments_are_restored() {
    let parts = r#"(table 2 funcref) (elem (i32.const 0) $one) (elem $e func $two) (data $d "x")
        (type $f (func (result i32)))
        (func $one (result i32) i32.const 0) (func $two (result i32) i32.const 2)"#;
    for body in [
        // A changed table would return 2 in the next call.
        "(local $r i32) (local.set $r (call_indirect (type $f) (i32.const 0)))
         (table.init $e (i32.const 0) (i32.const 0) (i32.const 1)) (elem.drop $e) (local.get $r)",
        "(local $r i32) (local.set $r (call_indirect (type $f) (i32.const 0)))
         (table.copy (i32.const 0) (i32.const 1) (i32.const 1)) (local.get $r)",
        // A dropped segment would trap in the next call.
        "(memory.init $d (i32.const 0) (i32.const 0) (i32.const 1)) (data.drop $d) i32.const 0",
        "(table.init $e (i32.const 1) (i32.const 0) (i32.const 1)) (elem.drop $e) i32.const 0",
    ] {
        let wat = module("", parts, body);
        for mode in ["none", "kv"] {
            let script = format!("create t program=p state={mode}\nput t =\nput t =\nput t =");
            let text = run_script(&script, &[("p", &wat)]);
            let verdicts: Vec<&str> = text.lines().skip(1).collect();
            assert_eq!(verdicts, ["2 VALID", "3 VALID", "4 VALID"], "{body}");
        }
        let text = run_script("create t program=p state=memory", &[("p", &wat)]);
        assert!(
            text.contains("which state mode memory does not keep"),
            "{text}"
        );
    }
}

/// A program in mode `memory` needs a page, even if its whole state is in globals.
#[test]
fn mode_memory_needs_memory() {
    let wat = module("", "", "i32.const 0").replace("1 2)", "0 1)");
    let text = run_script(
        "create t program=p state=memory\ncreate u program=p\nput u =",
        &[("p", &wat)],
    );
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("BAD_PROGRAM state mode memory needs a memory of at least one page"));
    assert_eq!(lines[2], "3 VALID");
}
