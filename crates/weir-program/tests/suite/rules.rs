//! Invalid modules: each is rejected with a sentence that names the rule and the position, and
//! never by a failure of the engine.

use crate::world::{hosts, module, run_script};

fn assert_rejected(wat: &str, sentence: &str) {
    let text = run_script("create t program=p", &[("p", wat)]);
    assert!(
        text.starts_with("1 ERROR BAD_PROGRAM ") && text.contains(sentence),
        "{text}\nshould say: {sentence}"
    );
}

fn parts(parts: &str) -> String {
    module("", parts, "i32.const 0")
}

#[test]
fn segments_lie_inside_their_memory_or_table() {
    for (from, len, fine) in [
        (65_535, 1, true),
        (65_536, 0, true),
        (65_535, 2, false),
        (65_537, 0, false),
        (-1, 1, false),
    ] {
        let wat = parts(&format!(
            r#"(data (i32.const {from}) "{}")"#,
            "x".repeat(len)
        ));
        if fine {
            assert_eq!(
                run_script("create t program=p\nput t =", &[("p", &wat)])
                    .lines()
                    .nth(1)
                    .unwrap(),
                "2 VALID"
            );
        } else {
            let sentence = format!(
                "the data segment 0 of {len} bytes lies outside of the memory of 65536 bytes (at byte "
            );
            assert_rejected(&wat, &sentence);
        }
    }
    assert_rejected(
        &parts("(table 3 funcref) (func $f) (elem (i32.const 0) $f) (elem (i32.const 2) $f $f)"),
        "the element segment 1 of 2 elements lies outside of its table of 3 (at byte ",
    );
}

#[test]
fn unsupported_features_are_rejected() {
    for (wat, sentence) in [
        (parts("(table 1 externref)"), "reference types"),
        (parts("(table 1 funcref) (func (drop (table.grow 0 (ref.null func) (i32.const 1))))"), "reference types"),
        (parts("(table 1 funcref) (table 1 funcref)"), "multiple tables"),
        (parts("(type (struct (field i32)))"), "gc"),
        (parts("(func (param (ref null 0)))").replace("(ref null 0)", "funcref"), "reference types"),
        (parts("(func (try_table (nop)))"), "exceptions"),
        (parts("(global i32 (i32.add (i32.const 1) (i32.const 1)))"), "constant expression"),
        (parts("(func (drop (i64.add128 (i64.const 0) (i64.const 0) (i64.const 0) (i64.const 0))) drop)").replace("(drop (i64.add128 (i64.const 0) (i64.const 0) (i64.const 0) (i64.const 0))) drop", "(i64.add128 (i64.const 0) (i64.const 0) (i64.const 0) (i64.const 0)) drop drop"), "wide arithmetic"),
        (parts("(memory $m2 1 1)"), "more than one memory"),
        (parts("(rec (type (func)))"), "gc"),
    ] {
        assert_rejected(&wat, sentence);
    }
    let component = wat::parse_str("(component)").unwrap();
    let sentence = weir_program::inspect(&component).unwrap_err();
    assert!(sentence.contains("component"), "{sentence}");
    let text = weir_program::inspect(b"(module)").unwrap_err();
    assert!(text.contains("no WebAssembly module"), "{text}");
}

#[test]
fn names_are_utf8() {
    for place in ["emit_input", "weir_apply", "weir1"] {
        let wat = module("emit_input", "", "i32.const 0");
        let mut code = wat::parse_str(&wat).unwrap();
        let at = code
            .windows(place.len())
            .position(|bytes| bytes == place.as_bytes())
            .unwrap();
        code[at] = 0xff;
        let sentence = weir_program::inspect(&code).unwrap_err();
        assert!(sentence.contains("UTF-8 encoding (at byte "), "{sentence}");
    }
    // The contents of the custom section of names are not checked.
    let text = run_script(
        "create t program=p\nput t =",
        &[("p", &parts(r#"(@custom "name" "\ff\ff\ff")"#))],
    );
    assert_eq!(text.lines().nth(1).unwrap(), "2 VALID", "{text}");
}

/// Any damage of a module is reported with its position; nothing panics.
#[test]
fn damaged_modules_are_rejected_with_a_position() {
    let wat = module(
        "emit_put state_get",
        "(global (mut i32) (i32.const 0)) (data (i32.const 9) \"data\")",
        "i32.const 0",
    );
    let code = wat::parse_str(&wat).unwrap();
    // A truncated module may be valid only where its last sections begin.
    let whole = (0..code.len()).filter(|len| weir_program::inspect(&code[..*len]).is_ok());
    assert!(whole.count() <= 2);
    let host = &hosts()[0];
    let mut rejected = 0;
    for at in 0..code.len() {
        for flip in [0x01, 0x80, 0x7f] {
            let mut broken = code.clone();
            broken[at] ^= flip;
            if let Err(sentence) = weir_program::inspect(&broken) {
                assert!(!sentence.is_empty() && sentence.len() < 1000);
                rejected += 1;
            } else if at % 16 == 0 {
                // The engine accepts every module that passes the rules.
                let admitted = host.admit(&broken, &weir_program::largest_setup());
                assert!(
                    !matches!(admitted, Err(weir_program::Refusal::Unable(_))),
                    "byte {at}"
                );
            }
        }
    }
    assert!(rejected > 100, "{rejected}");
}

/// Floats: a NaN has one bit pattern, whatever produced it.
#[test]
fn every_nan_has_one_bit_pattern() {
    let store = |at: u32, value: &str| format!("(f32.store (i32.const {at}) {value})");
    let odd = "(f32.reinterpret_i32 (i32.const 0x7fa12345))";
    let minus = "(f32.reinterpret_i32 (i32.const 0xffc54321))";
    let body = [
        store(0, "(f32.div (f32.const 0) (f32.const 0))"),
        store(4, "(f32.sub (f32.const inf) (f32.const inf))"),
        store(8, "(f32.sqrt (f32.const -1))"),
        store(12, &format!("(f32.add {odd} (f32.const 1))")),
        store(16, &format!("(f32.mul {minus} {odd})")),
        store(20, &format!("(f32.min {minus} (f32.const 1))")),
        store(24, &format!("(f32.demote_f64 (f64.promote_f32 {odd}))")),
        store(28, &format!("(f32.nearest {minus})")),
        "(f64.store (i32.const 32) (f64.div (f64.const 0) (f64.const -0)))".to_owned(),
        format!("(f64.store (i32.const 40) (f64.promote_f32 {minus}))"),
        format!(
            "(v128.store (i32.const 48) (f32x4.add (f32x4.splat {odd}) (f32x4.splat {minus})))"
        ),
        "(v128.store (i32.const 64) (f64x2.sqrt (v128.const f64x2 -1 -2)))".to_owned(),
        "(call $emit_put (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 80)) i32.const 0"
            .to_owned(),
    ]
    .concat();
    let text = run_script(
        "create t program=p\nput t =",
        &[("p", &module("emit_put", "", &body))],
    );
    let single = 0x7fc0_0000_u32.to_le_bytes();
    let double = 0x7ff8_0000_0000_0000_u64.to_le_bytes();
    let bits = [
        single.repeat(8),
        double.repeat(2),
        single.repeat(4),
        double.repeat(2),
    ]
    .concat();
    assert_eq!(
        text.lines().nth(1).unwrap(),
        format!(
            "2 VALID: t 2 PUT ={} last",
            weir_program::script::show(&bits)
        )
    );
}
