//! The cost of compiling a module is known before it is compiled. Each kind of code that slows a
//! compiler down is rejected with its position; large ordinary modules are accepted.

use std::fmt::Write as _;

use weir_program::inspect;
use weir_program::limits::{FUNCTION_BYTES_MAX, MODULE_BYTES_MAX};

/// A module with these types and tables, and these functions.
fn module(parts: &str, functions: &str) -> Vec<u8> {
    let text = format!(
        r#"(module {parts} (memory (export "memory") 1 1) (global $g (mut f64) (f64.const 1))
        (func (export "weir_abi") (result i32) i32.const 1)
        (func (export "weir_apply") (result i32) i32.const 0) {functions})"#
    );
    wat::parse_str(text).unwrap()
}

fn assert_rejected(code: &[u8], what: &str) {
    let sentence = inspect(code).unwrap_err();
    assert!(
        sentence.starts_with(what) && sentence.ends_with("units of work to compile"),
        "{sentence}"
    );
}

const FUNCTION: &str = "the function at byte ";
const MODULE: &str = "the module up to byte ";

/// A function that sets `locals` variables, runs `loops` loops, and reads the variables again.
fn function_with_live_variables(locals: usize, loops: usize) -> String {
    let mut body = format!("(func (local{})", " i32".repeat(locals));
    for local in 0..locals {
        write!(body, "(local.set {local} (i32.const 1))").unwrap();
    }
    body += &"(loop (br_if 0 (local.get 0)))".repeat(loops);
    for local in 0..locals {
        write!(body, "(local.set 0 (local.get {local}))").unwrap();
    }
    body + ")"
}

#[test]
fn variables_that_are_live_in_loops_are_counted_for_each_loop() {
    assert_rejected(
        &module("", &function_with_live_variables(1000, 600)),
        FUNCTION,
    );
    assert_eq!(
        inspect(&module("", &function_with_live_variables(100, 300))).err(),
        None
    );
    assert_rejected(
        &module("", &function_with_live_variables(1, 4_000)),
        FUNCTION,
    );
    let many = function_with_live_variables(500, 500).repeat(12);
    assert_rejected(&module("", &many), MODULE);
}

#[test]
fn the_cost_of_compiling_a_module_is_estimated() {
    let estimate = |code: &[u8]| inspect(code).unwrap().facts.compile_us;
    assert!(estimate(&module("", "")) < 1_000);
    let costly = function_with_live_variables(500, 500).repeat(8);
    assert!(estimate(&module("", &costly)) > 1_000_000);
}

#[test]
fn long_chains_of_floats_are_rejected() {
    let chain = |count: usize| {
        let sums = "(f64.sqrt)".repeat(count);
        format!("(func (global.get $g) {sums} (global.set $g))")
    };
    assert_rejected(&module("", &chain(30_000)), FUNCTION);
    let functions = chain(20_000).repeat(6);
    assert_rejected(&module("", &functions), MODULE);
}

#[test]
fn trampolines_are_counted_for_types_and_tables() {
    let mut types = String::new();
    for number in 0..4000 {
        let kind = |bit: u32| {
            if number >> bit & 1 == 0 {
                " i32"
            } else {
                " i64"
            }
        };
        let params: String = (0..100).map(|n| kind(n % 12)).collect();
        write!(types, "(type (func (param{params})))").unwrap();
    }
    assert_rejected(&module(&types, ""), MODULE);
    let items = "$f ".repeat(9_000);
    let table = format!("(table 10000 funcref) (func $f) {}", {
        let segment = format!("(elem (i32.const 0) func {items})");
        segment.repeat(9)
    });
    assert_rejected(&module(&table, ""), MODULE);
}

#[test]
fn many_live_values_increase_the_cost_of_each_instruction() {
    let deep = |depth: usize| {
        let loads = "(i32.load (i32.const 0))".repeat(depth);
        let sums = "(i32.add)".repeat(depth - 1);
        format!("(func {loads} {sums} drop)")
    };
    assert_eq!(inspect(&module("", &deep(3_000))).err(), None);
    assert_rejected(&module("", &deep(20_000)), FUNCTION);
}

/// Of common instructions, stores cost most. A module and functions of the largest size may consist
/// almost only of stores.
#[test]
fn large_ordinary_modules_are_accepted() {
    // 14 bytes: a load, a store, an addition and their operands.
    let line = "(i32.store (local.get 0) (i32.add (i32.load (local.get 0)) (i32.const 1)))";
    let body = line.repeat((FUNCTION_BYTES_MAX - 100) / 14);
    let functions = format!("(func (param i32) {body})").repeat(7);
    let code = module("", &functions);
    assert!(code.len() > MODULE_BYTES_MAX * 3 / 4);
    assert_eq!(inspect(&code).err(), None);
}
