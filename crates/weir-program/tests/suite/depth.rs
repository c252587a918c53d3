//! The rewritten module counts how deep calls nest. So both engines stop at the same call, and the
//! native stack never decides an outcome.

use std::fmt::Write as _;
use std::sync::Arc;

use weir_core::intention::{Intention, Operation};
use weir_core::{Detail, ProgramHost, TopicOptions, TrapKind};

use crate::world::{TestMachine, hosts, module};

/// Fuel of a call: more than the deepest recursion uses on either engine.
const FUEL: u64 = 500_000_000;

/// A topic whose program nests as many calls as a PUT requests.
struct NestedCalls(TestMachine);

impl NestedCalls {
    fn new(host: &Arc<dyn ProgramHost>, code: &[u8]) -> Self {
        let mut options = TopicOptions::default();
        options.program.fuel_max = Some(FUEL);
        let mut tested = TestMachine::new(1, host);
        let create = Operation::CreateProgram {
            options: &options,
            code,
            args: b"",
        };
        let made = tested.send(&Intention::new("t", create)).unwrap();
        assert_eq!(made.commit().unwrap().reason, None, "{made:?}");
        Self(tested)
    }

    /// Whether this number of nested calls succeeds. Otherwise they must overflow.
    fn nests(&mut self, calls: u32) -> bool {
        let put = Operation::Put {
            key: b"k",
            value: &calls.to_le_bytes(),
        };
        let outcome = self.0.send(&Intention::new("t", put)).unwrap();
        let commit = outcome.commit().unwrap();
        if commit.reason.is_some() {
            assert_eq!(commit.detail, Detail::Trapped(TrapKind::Stack), "{calls}");
        }
        commit.reason.is_none()
    }

    /// The largest number of nested calls that succeeds.
    fn deepest(&mut self) -> u32 {
        let (mut good, mut bad) = (0, 1 << 17);
        assert!(self.nests(good) && !self.nests(bad));
        while bad - good > 1 {
            let middle = u32::midpoint(good, bad);
            if self.nests(middle) {
                good = middle;
            } else {
                bad = middle;
            }
        }
        good
    }
}

/// A program that calls `$deep` with the number in the value, and rejects if `$deep` returns
/// another number.
fn recursive_program(parts: &str) -> Vec<u8> {
    let read = "(drop (call $input_read (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 4)))";
    let number = "(i32.load (i32.const 0))";
    let apply = format!("{read} (i32.ne (call $deep {number}) {number})");
    wat::parse_str(module("input_read", parts, &apply)).unwrap()
}

/// A function that returns its parameter after recursive calls down to 0.
fn function(name: &str, begin: &str, call: &str, end: &str) -> String {
    format!(
        "(func ${name} (param $n i32) (result i32) {begin}
            (if (i32.eqz (local.get $n)) (then (return (i32.const 0))))
            (i32.add (i32.const 1) {call}) {end})"
    )
}

const LESS: &str = "(i32.sub (local.get $n) (i32.const 1))";

/// Both engines allow the same number of nested calls.
fn check_equal_depth(what: &str, parts: &str) -> u32 {
    let code = recursive_program(parts);
    let depths = hosts().map(|host| {
        let mut diver = NestedCalls::new(&host, &code);
        let deepest = diver.deepest();
        // A failed call does not change the count.
        assert!(!diver.nests(deepest + 1) && diver.nests(deepest), "{what}");
        deepest
    });
    assert_eq!(depths[0], depths[1], "{what}");
    depths[0]
}

/// Local variables that are set before the call and read after it.
fn locals(kind: &str, count: usize) -> (String, String) {
    let (mut begin, mut end) = (
        format!("(local {})", format!("{kind} ").repeat(count)),
        String::new(),
    );
    let (load, test) = match kind {
        "v128" => ("v128.load", "v128.any_true"),
        "f64" => ("f64.load", "i32.trunc_sat_f64_s"),
        "i64" => ("i64.load", "i64.eqz"),
        _ => ("i32.load", "i32.eqz"),
    };
    for local in 1..=count {
        let _ = write!(
            begin,
            "(local.set {local} ({load} (i32.const {})))",
            local * 8
        );
        let _ = write!(end, "(drop ({test} (local.get {local})))");
    }
    (begin, end)
}

#[test]
fn both_engines_stop_at_the_same_call() {
    let direct = check_equal_depth(
        "direct",
        &function("deep", "", &format!("(call $deep {LESS})"), ""),
    );
    assert!(direct > 5_000, "{direct}");
    let mutual = function("deep", "", &format!("(call $other {LESS})"), "")
        + &function(
            "other",
            "(local i64 i64 i64)",
            &format!("(call $deep {LESS})"),
            "",
        );
    let mutual = check_equal_depth("mutual", &mutual);
    assert!(mutual < direct, "{mutual}");
    let table = format!(
        "(table 2 funcref) (elem (i32.const 0) $deep $deep) (type $t (func (param i32) (result i32))) {}",
        function(
            "deep",
            "",
            &format!("(call_indirect (type $t) {LESS} (i32.const 1))"),
            ""
        )
    );
    check_equal_depth("through a table", &table);
    for (kind, count) in [("i32", 500), ("i64", 1000), ("f64", 300), ("v128", 200)] {
        let (begin, end) = locals(kind, count);
        let deep = function("deep", &begin, &format!("(call $deep {LESS})"), &end);
        let depth = check_equal_depth(kind, &deep);
        assert!(depth > 20 && depth < direct / 20, "{kind}: {depth}");
    }
    let many = format!(
        "(func $deep (param i32) (result i32) (call $many (local.get 0)) drop)
        (func $many (param $n i32) (result i32 i64) (local $x i64)
            (i32.const 0) (i64.const 7) (br_if 0 (i32.eqz (local.get $n))) drop drop
            (call $many {LESS}) (local.set $x) (i32.add (i32.const 1)) (local.get $x)
            (br_table 0 0 (local.get $n)))"
    );
    check_equal_depth("several results", &many);
}

#[test]
fn an_unreachable_of_the_program_is_not_an_overflow() {
    let body = "(func $deep (param i32) (result i32) unreachable)";
    for host in hosts() {
        let mut diver = NestedCalls::new(&host, &recursive_program(body));
        let put = Operation::Put {
            key: b"k",
            value: &[0; 4],
        };
        let outcome = diver.0.send(&Intention::new("t", put)).unwrap();
        let detail = &outcome.commit().unwrap().detail;
        assert_eq!(*detail, Detail::Trapped(TrapKind::Unreachable));
    }
}

/// Functions of random sizes that call each other in a random order.
#[test]
fn random_recursion_ends_at_the_same_call() {
    let mut seed = 7_u64;
    let mut below = |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % end
    };
    for round in 0..12 {
        let functions = 1 + below(4);
        let mut parts = String::from("(type $t (func (param i32) (result i32)))");
        let mut names = String::new();
        for number in 0..functions {
            let kind = ["i32", "i64", "f64", "v128"][below(4) as usize];
            let (begin, end) = locals(kind, below(60) as usize);
            let next = below(functions);
            let call = if below(2) == 0 {
                format!("(call $f{next} {LESS})")
            } else {
                format!("(call_indirect (type $t) {LESS} (i32.const {next}))")
            };
            // Values on the stack, a block with more results, a branch out of both.
            let call = match below(3) {
                0 => format!("(i32.add (i32.const 5) (i32.sub {call} (i32.const 5)))"),
                1 => format!("(block (result i32) (br 0 {call}))"),
                _ => call,
            };
            parts += &function(&format!("f{number}"), &begin, &call, &end);
            let _ = write!(names, " $f{number}");
        }
        let _ = write!(
            parts,
            "(table {functions} funcref) (elem (i32.const 0){names})
             (func $deep (param i32) (result i32) (call $f0 (local.get 0)))"
        );
        check_equal_depth(&format!("round {round}: {parts}"), &parts);
    }
}
