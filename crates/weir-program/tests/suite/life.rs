//! From CREATE to DESTROY: start, replacement, conditions, options (P2, P7, T2, C2, X1).

use crate::world::{module, run_script};

/// A program whose start depends on its arguments: 0 succeeds, 1 rejects, 2 traps, 3 loops without
/// end.
fn starter(entry: &str) -> String {
    let start = format!(
        r#"(func (export "{entry}") (result i32)
            (drop (call $input_read (i32.const 2) (i32.const 0) (i32.const 0) (i32.const 1)))
            (call $emit_put (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 1))
            (call $state_put (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 1))
            (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 49)) (then i32.const 5 return))
            (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 50)) (then unreachable))
            (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 51)) (then (loop (call $log (i32.const 3) (i32.const 0) (i32.const 65536)) br 0)))
            i32.const 0)"#
    );
    module(
        "input_read emit_put emit_input state_put log",
        &start,
        "(call $emit_input) i32.const 0",
    )
}

#[test]
fn a_failed_start_creates_no_topic_and_uses_no_offset() {
    let wat = starter("weir_init");
    let script = "create t program=p args=1\ncreate t program=p args=2\ncreate t program=p args=3\n\
        create t code=\\x00\nput t a=1\ndestroy t\ncreate t program=p args=0\nput t a=1\nstate t";
    assert_eq!(
        run_script(script, &[("p", &wat)]),
        "1 INVALID REJECTED 5\n2 ERROR TRAP unreachable\n3 ERROR OUT_OF_FUEL limit 100000000\n\
         4 ERROR BAD_PROGRAM this is no WebAssembly module: a binary one begins with the bytes 00 61 73 6d\n\
         5 ERROR NO_TOPIC\n6 INVALID TOPIC_ABSENT\n\
         7 VALID: t 1 CREATE; t 2 PUT 0=0 last\n8 VALID: t 3 PUT a=1 last\n0=0\n1 entries\n"
    );
}

#[test]
fn a_replacement_is_atomic() {
    let old = module(
        "emit_input state_put",
        r#"(data (i32.const 0) "s1")"#,
        "(call $state_put (i32.const 0) (i32.const 1) (i32.const 1) (i32.const 1)) (call $emit_input) i32.const 0",
    );
    let new = starter("weir_upgrade");
    let script = "create t program=old\nput t a=1\nreplace t program=new args=1\n\
        replace t program=new args=2\nreplace t program=new args=3\nreplace t code=\\x00\nput t a=2\nstate t\n\
        replace t program=new args=0\nput t a=3\nstate t\nreplace t program=old\nput t a=4\nstate t";
    assert_eq!(
        run_script(script, &[("old", &old), ("new", &new)]),
        "1 VALID: t 1 CREATE last\n2 VALID: t 2 PUT a=1 last\n3 INVALID REJECTED 5\n\
         4 ERROR TRAP unreachable\n5 ERROR OUT_OF_FUEL limit 100000000\n\
         6 ERROR BAD_PROGRAM this is no WebAssembly module: a binary one begins with the bytes 00 61 73 6d\n\
         7 VALID: t 3 PUT a=2 last\ns=1\n1 entries\n\
         8 VALID: t 4 REPLACE; t 5 PUT 0=0 last\n9 VALID: t 6 PUT a=3 last\n0=0\ns=1\n2 entries\n\
         10 VALID: t 7 REPLACE last\n11 VALID: t 8 PUT a=4 last\n0=0\ns=1\n2 entries\n"
    );
}

/// A program that expects another version of the state does not get the old state.
#[test]
fn a_replacement_of_another_state_version_needs_an_upgrade() {
    let write = "(call $state_put (i32.const 0) (i32.const 1) (i32.const 1) (i32.const 1)) (call $emit_input) i32.const 0";
    let of = |version: i32, more: &str| {
        let part = format!(
            r#"(data (i32.const 0) "s1") (func (export "weir_state") (result i32) i32.const {version}) {more}"#
        );
        module("emit_input state_put", &part, write)
    };
    let none = module(
        "emit_input state_put",
        r#"(data (i32.const 0) "s1")"#,
        write,
    );
    let upgrade = r#"(func (export "weir_upgrade") (result i32) i32.const 0)"#;
    let (one, two, upgrades) = (of(1, ""), of(2, ""), of(2, upgrade));
    let computed = module(
        "emit_input state_put",
        r#"(data (i32.const 0) "s1") (func (export "weir_state") (result i32) (i32.add (i32.const 1) (i32.const 1)))"#,
        write,
    );
    let script = "create t program=one\nput t a=1\nreplace t program=two\nreplace t program=none\n\
        put t a=2\nreplace t program=one\nreplace t program=upgrades\nreplace t program=two\n\
        replace t program=computed\nstate t\n\
        create u program=one state=none\nreplace u program=two";
    let no = |was: i32, now: i32| {
        format!(
            "ERROR BAD_PROGRAM the state of the topic has version {was}, that of the program is {now}: \
             it has to export weir_upgrade"
        )
    };
    let text = run_script(
        script,
        &[
            ("one", &one),
            ("two", &two),
            ("none", &none),
            ("upgrades", &upgrades),
            ("computed", &computed),
        ],
    );
    assert_eq!(
        text,
        format!(
            "1 VALID: t 1 CREATE last\n2 VALID: t 2 PUT a=1 last\n3 {}\n4 {}\n\
             5 VALID: t 3 PUT a=2 last\n6 VALID: t 4 REPLACE last\n7 VALID: t 5 REPLACE last\n\
             8 VALID: t 6 REPLACE last\n\
             9 ERROR BAD_PROGRAM the function weir_state does more than return a number: use a literal, and an optimised build\n\
             s=1\n1 entries\n10 VALID: u 1 CREATE last\n11 VALID: u 2 REPLACE last\n",
            no(1, 2),
            no(1, 0),
        )
    );
}

/// In mode `memory` every byte of the old memory remains if the replacement fails.
#[test]
fn memory_survives_a_replacement_that_fails() {
    let count = "(i32.store8 (i32.const 0) (i32.add (i32.load8_u (i32.const 0)) (i32.const 1)))
        (call $emit_put (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1)) i32.const 0";
    let old = module("emit_put", "", count);
    let upgrade = |end: &str| {
        let part = format!(
            r#"(func (export "weir_upgrade") (result i32) (i32.store8 (i32.const 0) (i32.const 64)) {end})"#
        );
        module("emit_put", &part, count)
    };
    let (fine, rejects, traps) = (
        upgrade("i32.const 0"),
        upgrade("i32.const 1"),
        upgrade("unreachable"),
    );
    let script = "create t program=old state=memory\nput t =\nreplace t program=old\n\
        replace t program=rejects\nput t =\nreplace t program=traps\nput t =\nreplace t program=fine\nput t =";
    let text = run_script(
        script,
        &[
            ("old", &old),
            ("fine", &fine),
            ("rejects", &rejects),
            ("traps", &traps),
        ],
    );
    assert_eq!(
        text.lines().skip(1).collect::<Vec<_>>(),
        [
            "2 VALID: t 2 PUT =\\x01 last",
            "3 ERROR BAD_PROGRAM a program of state mode memory can only be replaced by one that exports weir_upgrade",
            "4 INVALID REJECTED 1",
            "5 VALID: t 3 PUT =\\x02 last",
            "6 ERROR TRAP unreachable",
            "7 VALID: t 4 PUT =\\x03 last",
            "8 VALID: t 5 REPLACE last",
            "9 VALID: t 6 PUT =A last",
        ]
    );
}

#[test]
fn an_upgrade_can_read_the_replaced_program() {
    let old = module("", "", "i32.const 0");
    let upgrade = r#"(func (export "weir_upgrade") (result i32)
        (drop (call $input_read (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 99)))
        (call $emit_put (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 32)) i32.const 0)"#;
    let new = module(
        "input_read emit_put",
        upgrade,
        "(call $input_read (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 99))",
    );
    let code = wat::parse_str(&old).unwrap();
    let hash = weir_core::ProgramHost::hash(&weir_program::WasmtimeHost::default(), &code);
    let shown = weir_program::script::show(&hash.0);
    let text = run_script(
        "create t program=old\nreplace t program=new\nput t =",
        &[("old", &old), ("new", &new)],
    );
    assert_eq!(
        text,
        format!("1 VALID: t 1 CREATE last\n2 VALID: t 2 REPLACE; t 3 PUT ={shown} last\n3 VALID\n"),
        "and nothing of it is there in a later call"
    );
}

/// C2: if a condition fails, the program is not called, so it cannot trap.
#[test]
fn conditions_are_checked_before_the_program() {
    let wat = module("", "", "unreachable");
    let text = run_script(
        "create t program=p\nput t a=1 key_offset=7\nput t a=1",
        &[("p", &wat)],
    );
    assert_eq!(
        text.lines().skip(1).collect::<Vec<_>>(),
        ["2 INVALID CONFLICT actual 0", "3 ERROR TRAP unreachable"]
    );
}

/// Options that conflict with the program would create a state that no open could load.
#[test]
fn options_must_remain_valid_for_the_program() {
    let wat = module("emit_input", "", "(call $emit_input) i32.const 0");
    let script = "create t program=p\nalter t memory_bytes_max=65536\nput t a=1\nalter t state=memory\n\
        alter t memory_bytes_max=131072 value_bytes_max=2\nput t a=123\nput t a=12";
    assert_eq!(
        run_script(script, &[("p", &wat)])
            .lines()
            .skip(1)
            .collect::<Vec<_>>(),
        [
            "2 ERROR BAD_PROGRAM the memory may grow to 2 pages of 64 KiB, allowed are 1 (option memory-bytes-max)",
            "3 VALID: t 2 PUT a=1 last",
            "4 ERROR BAD_PROGRAM the state mode of a topic is fixed when it is created",
            "5 VALID: t 3 ALTER last",
            "6 ERROR LIMIT limit 2",
            "7 VALID: t 4 PUT a=12 last",
        ]
    );
}

/// P4: the contents of the header, field by field.
#[test]
fn the_header_has_exactly_its_fields() {
    let start = r#"(func (export "weir_init") (result i32)
        (call $input_info (i32.const 0)) (call $emit_put (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 128)) i32.const 0)"#;
    let body = "(call $input_info (i32.const 0)) (call $emit_put (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 128)) i32.const 0";
    let wat = module("input_info emit_put", start, body);
    let script = "create t program=p args=abc at=5000\nput t key=value principal=ann at=6000\n\
        delete t key\ntxn t\n  put k=v\n  delete k";
    let header = |op: u32,
                  flags: u32,
                  intention: u64,
                  next: u64,
                  time: u64,
                  nonce: u64,
                  lens: [u32; 4],
                  index: u32,
                  count: u32| {
        let mut out = Vec::new();
        out.extend([op, flags].map(u32::to_le_bytes).concat());
        out.extend(
            [intention, next, 1, time, nonce]
                .map(u64::to_le_bytes)
                .concat(),
        );
        out.extend([7; 16]);
        out.extend(lens.map(u32::to_le_bytes).concat());
        out.extend([index, count].map(u32::to_le_bytes).concat());
        out.resize(128, 0);
        weir_program::script::show(&out)
    };
    let text = run_script(script, &[("p", &wat)]);
    let expected = [
        format!(
            "1 VALID: t 1 CREATE; t 2 PUT ={} last",
            header(0, 0, 1, 2, 5000, 1, [0, 0, 3, 0], 0, 1)
        ),
        format!(
            "2 VALID: t 3 PUT ={} last",
            header(1, 2, 2, 3, 6000, 2, [3, 5, 3, 3], 0, 1)
        ),
        format!(
            "3 VALID: t 4 PUT ={} last",
            header(2, 0, 3, 4, 6000, 3, [3, 0, 3, 0], 0, 1)
        ),
        format!(
            "4 VALID: t 5 PUT ={} txn; t 6 PUT ={} txn last",
            header(1, 1, 4, 5, 6000, 4, [1, 1, 3, 0], 0, 2),
            header(2, 1, 4, 6, 6000, 4, [1, 0, 3, 0], 1, 2)
        ),
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}
