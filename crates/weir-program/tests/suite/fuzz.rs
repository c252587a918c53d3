//! Two engines, one outcome (Z7): random modules and random writes. If neither engine runs out of
//! fuel or stack, they agree on every verdict, every record and every byte of state. So do a
//! machine that is saved and loaded in between, and one that replays all intentions.
//!
//! `WEIR_FUZZ_MODULES` sets the number of modules of each kind, `WEIR_FUZZ_SEED` selects other
//! modules.

use std::path::Path;
use std::sync::Arc;

use arbitrary::Unstructured;
use weir_core::intention::{Expect, Intention, Operation, TxnOp};
use weir_core::{
    Detail, ErrorCode, Machine, Outcome, ProgramHost, StateMode, TopicOptions, TrapKind,
};

use crate::world::{TestMachine, encoded, hosts, module};

/// A pseudorandom number generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len() as u64) as usize]
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

fn setting(name: &str, default: u64) -> u64 {
    let value = std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok());
    value.unwrap_or(default)
}

/// Fuel of both engines: little, because the interpreter is slow here.
const FUEL: u64 = 100_000;

/// The numbers of modules and of writes.
#[derive(Debug, Default)]
struct Counts {
    modules: u64,
    rejected: u64,
    calls: u64,
    valid: u64,
    records: usize,
    exhausted: u64,
}

fn exhausted(outcome: &Outcome) -> bool {
    outcome.commit().is_some_and(|commit| {
        let stack = commit.detail == Detail::Trapped(TrapKind::Stack);
        let stack_step = matches!(
            commit.detail,
            Detail::Operation {
                reason: ErrorCode::Trap | ErrorCode::OutOfFuel,
                ..
            }
        );
        stack || stack_step || commit.reason == Some(ErrorCode::OutOfFuel)
    })
}

/// The outcome without its fuel, which the engines count differently.
fn without_fuel(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Committed(mut commit) => {
            commit.fuel = 0;
            Outcome::Committed(commit)
        }
        other => other,
    }
}

/// Sends intentions to one machine for each engine until they may differ.
struct EnginePair {
    machines: Vec<TestMachine>,
    hosts: [Arc<dyn ProgramHost>; 2],
    log: Vec<Vec<u8>>,
}

impl EnginePair {
    fn new(hosts: &[Arc<dyn ProgramHost>; 2]) -> Self {
        let machines = hosts
            .iter()
            .zip([1, 99])
            .map(|(host, seed)| TestMachine::new(seed, host));
        Self {
            machines: machines.collect(),
            hosts: hosts.clone(),
            log: Vec::new(),
        }
    }

    /// The outcome; `None` if an engine ran out of fuel or stack.
    fn send(&mut self, what: &str, intention: &Intention<'_>) -> Option<Outcome> {
        let bytes = encoded(intention, self.log.len() as u64 * 7);
        let outcomes: Vec<Outcome> = self
            .machines
            .iter_mut()
            .map(|tested| without_fuel(tested.apply(&bytes).unwrap()))
            .collect();
        if outcomes.iter().any(exhausted) {
            return None;
        }
        assert_eq!(
            outcomes[0],
            outcomes[1],
            "{what}, intention {}",
            self.log.len()
        );
        assert_eq!(
            self.machines[0].records.0, self.machines[1].records.0,
            "{what}"
        );
        self.log.push(bytes);
        outcomes.into_iter().next()
    }

    /// Loads each machine from its own bytes.
    fn restart(&mut self) {
        for (tested, host) in self.machines.iter_mut().zip(&self.hosts) {
            let saved = tested.saved();
            tested.machine =
                Machine::load_with(&mut &saved[..], 5, Some(Arc::clone(host))).unwrap();
        }
    }

    /// Checks that all machines agree at the end, and after a replay of the log. `whole` means that
    /// no engine ran out of fuel or stack.
    fn end(&mut self, what: &str, whole: bool, replay: bool) {
        if !whole {
            return;
        }
        let saved = self.machines[0].saved();
        assert_eq!(saved, self.machines[1].saved(), "{what}: state");
        assert_eq!(
            self.machines[0].machine.digest(),
            self.machines[1].machine.digest()
        );
        if replay {
            let mut replayed = TestMachine::new(12345, &self.hosts[0]);
            for bytes in &self.log {
                replayed.apply(bytes).unwrap();
            }
            assert_eq!(replayed.saved(), saved, "{what}: replay = live");
            assert_eq!(
                replayed.records.0, self.machines[0].records.0,
                "{what}: replay = live"
            );
        }
    }
}

/// JSON values with matches for the paths, and truncated ones.
const JSON: [&[u8]; 6] = [
    b"{\"a\":[1,2],\"b\":[{\"c\":\"x\"}]}",
    b"[[1,{\"a\":null}],-2.5e1]",
    b"[]",
    b"{\"\\u0061\":true, \"b\":[0]}",
    b"{\"a\":1,\"a\":2}",
    b"[1,[2]",
];

/// A CREATE and some writes.
fn send_writes(
    engines: &mut EnginePair,
    what: &str,
    code: &[u8],
    random: &mut Random,
    counts: &mut Counts,
) {
    let mut options = TopicOptions::default();
    options.program.fuel_max = Some(FUEL);
    options.program.state = match random.below(4) {
        0 => StateMode::None,
        1 => StateMode::Memory,
        _ => StateMode::Kv,
    };
    if random.below(3) == 0 {
        options.program.emits_max = Some(1 + random.below(6));
        options.program.state_entries_max = Some(1 + random.below(4));
        options.program.state_bytes_max = Some(1 + random.below(60));
        options.program.emit_bytes_max = Some(1 + random.below(60));
    }
    let args = random.bytes(8);
    counts.modules += 1;
    let create = Operation::CreateProgram {
        options: &options,
        code,
        args: &args,
    };
    let Some(made) = engines.send(what, &Intention::new("t", create)) else {
        counts.exhausted += 1;
        return;
    };
    if made.commit().unwrap().reason.is_some() {
        counts.rejected += 1;
        if std::env::var_os("WEIR_FUZZ_SAY").is_some() {
            println!("{what}: {made:?}");
        }
        return engines.end(what, true, false);
    }
    for round in 0..16 {
        let sizes = [0, 1, 8, 20].map(|size| random.bytes(size));
        let key = random.pick::<[u8]>(&[b"a", b"b", b"\0", &sizes[3], b""]);
        let json = random.pick::<[u8]>(&JSON);
        let value = match random.below(7) {
            0..3 => json,
            other => &sizes[other as usize - 3],
        };
        let mut intention = Intention::new("t", Operation::Put { key, value });
        let ops = [
            TxnOp::Put {
                key,
                value,
                meta: b"",
            },
            TxnOp::Delete {
                key: b"b",
                meta: b"m",
            },
            TxnOp::Put {
                key: b"a",
                value: b"z",
                meta: b"",
            },
        ];
        match random.below(8) {
            0 => intention.operation = Operation::Delete { key: b"a" },
            1 => {
                intention.operation = Operation::Txn {
                    ops: &ops[..1 + random.below(3) as usize],
                }
            }
            2 => intention.expect = &[Expect::KeyAbsent(Some(b"a"))],
            3 => intention.principal = b"ann",
            _ => {}
        }
        counts.calls += 1;
        let Some(outcome) = engines.send(what, &intention) else {
            counts.exhausted += 1;
            return;
        };
        counts.valid += u64::from(outcome.commit().unwrap().reason.is_none());
        if round == 7 {
            engines.restart();
        }
    }
    counts.records += engines.machines[0].records.0.len();
    engines.end(what, true, true);
}

/// The exports of a program, without its memory.
const EXPORTS: &str = r#"(module
    (func (export "weir_abi") (result i32) i32.const 1)
    (func (export "weir_apply") (result i32) i32.const 0))"#;

/// A module of random instructions with the functions of `weir1`.
fn random_module(random: &mut Random) -> Option<Vec<u8>> {
    let all = "input_info input_read emit_put emit_delete emit_input emit_value reject_text state_get state_put state_delete state_next key_get key_offset hash json_find log";
    let config = wasm_smith::Config {
        available_imports: Some(wat::parse_str(module(all, "", "i32.const 0")).unwrap()),
        exports: Some(wat::parse_str(EXPORTS).unwrap()),
        min_imports: 0,
        min_memories: 1,
        // Vectors come with mutable globals that programs must not have.
        simd_enabled: random.below(8) == 0,
        allow_start_export: random.below(20) == 0,
        exceptions_enabled: false,
        gc_enabled: false,
        reference_types_enabled: false,
        relaxed_simd_enabled: false,
        tail_call_enabled: false,
        threads_enabled: false,
        memory64_enabled: false,
        extended_const_enabled: false,
        memory_max_size_required: true,
        max_memory32_bytes: 1 << 20,
        max_table_elements: 100,
        max_memories: 1,
        max_imports: 16,
        canonicalize_nans: false,
        max_funcs: 12,
        max_instructions: 120,
        max_data_segments: 4,
        max_element_segments: 4,
        ..wasm_smith::Config::default()
    };
    // Only the possible imports; the generator selects some of them.
    let bytes = random.bytes(6000);
    let mut source = Unstructured::new(&bytes);
    let mut made = wasm_smith::Module::new(config, &mut source).ok()?;
    if random.below(8) != 0 {
        // Loops are bounded, so that more than their fuel is tested.
        made.ensure_termination(300).ok()?;
    }
    Some(with_abi_exports(&made.to_bytes()))
}

/// The module with its memory exported and with a `weir_abi` that returns 1.
fn with_abi_exports(code: &[u8]) -> Vec<u8> {
    use wasmparser::{Parser, Payload, TypeRef};
    let (mut imported, mut abi, mut apply, mut bodies) = (0, None, None, Vec::new());
    let mut edits: Vec<(std::ops::Range<usize>, Vec<u8>)> = Vec::new();
    for payload in Parser::new(0).parse_all(code) {
        match payload.unwrap() {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    imported += u32::from(matches!(import.unwrap().ty, TypeRef::Func(_)));
                }
            }
            Payload::ExportSection(exports) => {
                let range = exports.range();
                let mut content = leb(exports.count() as usize + 1);
                for export in exports {
                    let export = export.unwrap();
                    content.extend(leb(export.name.len()));
                    content.extend(export.name.as_bytes());
                    content.push(0); // all exports are functions
                    content.extend(leb(export.index as usize));
                    match export.name {
                        "weir_abi" => abi = Some(export.index),
                        "weir_apply" => apply = Some(export.index),
                        _ => {}
                    }
                }
                content.extend(b"\x06memory\x02\x00");
                edits.push((range, content));
            }
            Payload::CodeSectionStart { range, .. } => edits.push((range, Vec::new())),
            Payload::CodeSectionEntry(body) => bodies.push(code[body.range()].to_vec()),
            _ => {}
        }
    }
    if let Some(body) = abi.and_then(|abi| bodies.get_mut((abi - imported) as usize)) {
        *body = vec![0, 0x41, 1, 0x0b];
    }
    // `weir_apply` returns 0 at its end: combines its last number with 0 by AND.
    if let Some(body) = apply.and_then(|apply| bodies.get_mut((apply - imported) as usize)) {
        body.pop();
        body.extend([0x41, 0, 0x71, 0x0b]);
    }
    if let Some((_, content)) = edits.last_mut().filter(|_| !bodies.is_empty()) {
        *content = leb(bodies.len());
        for body in &bodies {
            content.extend(leb(body.len()));
            content.extend(body);
        }
    }
    let (mut out, mut done) = (Vec::new(), 0);
    for (range, content) in edits {
        // The section id and the length precede the contents.
        let mut head = range.start - 1;
        while code[head - 1] & 0x80 != 0 {
            head -= 1;
        }
        out.extend(&code[done..head]);
        out.extend(leb(content.len()));
        out.extend(content);
        done = range.end;
    }
    out.extend(&code[done..]);
    out
}

fn leb(mut n: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

/// JSON paths on lines, and the start and end of some of them.
const PATHS: &str = "$\\n$.a\\n$[-1]\\n$.b[0].c\\n$[0][-1]";
const LINES: [(u32, u32); 8] = [
    (0, 1),
    (0, 5),
    (2, 3),
    (6, 5),
    (0, 20),
    (12, 17),
    (0, 29),
    (1, 4),
];

/// A module that calls the functions of `weir1` with mostly valid arguments, stores their results,
/// and returns 0 or the number of a reject.
fn calling_module(random: &mut Random) -> Vec<u8> {
    let all = "input_info input_read emit_put emit_delete emit_input emit_value reject_text state_get state_put state_delete state_next key_get key_offset hash json_find log";
    let imports = if random.below(2) == 0 {
        all.to_owned()
    } else {
        all.replace("key_get key_offset", "")
    };
    let watches = imports.contains("key_get");
    let mut body = String::new();
    for _ in 0..1 + random.below(14) {
        body += &statement(random, watches, 2);
    }
    let end = match random.below(6) {
        0 => "(i32.load8_u (i32.const 3))",
        1 => "(i32.and (global.get $g) (i32.const 3))",
        2 => "(i32.rem_u (i32.load (i32.const 8)) (i32.const 3))",
        _ => "(i32.const 0)",
    };
    let text: String = (0..40)
        .map(|_| format!("\\{:02x}", random.next() as u8))
        .collect();
    let parts = format!(
        r#"(global $g (mut i32) (i32.const 0)) (global $d (mut f64) (f64.const 1)) (data (i32.const 16) "{text}") (data (i32.const 300) "{PATHS}")"#
    );
    wat::parse_str(module(&imports, &parts, &(body + end))).unwrap()
}

fn number(random: &mut Random) -> String {
    match random.below(6) {
        0 => "(global.get $g)".to_owned(),
        1 => format!("(i32.load8_u (i32.const {}))", random.below(200)),
        2 => "(memory.size)".to_owned(),
        3 => format!("(i32.load (i32.const {}))", random.below(200)),
        _ => format!("(i32.const {})", random.next() as i32),
    }
}

fn pointer(random: &mut Random) -> String {
    match random.below(60) {
        0 => "(i32.const 65530)".to_owned(),
        1 => number(random),
        _ => format!("(i32.const {})", random.below(100)),
    }
}

fn length(random: &mut Random) -> String {
    match random.below(40) {
        0 => number(random),
        1 => format!("(i32.and {} (i32.const 7))", number(random)),
        _ => format!("(i32.const {})", random.below(5)),
    }
}

fn statement(random: &mut Random, watches: bool, depth: u32) -> String {
    let (p, q, l, m, o) = (
        pointer(random),
        pointer(random),
        length(random),
        length(random),
        length(random),
    );
    let at = random.below(200);
    match random.below(23) {
        0 => format!("(call $input_info {p})"),
        1 => format!(
            "(i32.store (i32.const {at}) (call $input_read (i32.const {}) {o} {p} {m}))",
            random.below(5)
        ),
        2 | 3 => format!("(call $emit_put {p} {l} {q} {m})"),
        4 => format!("(call $emit_delete {p} {l})"),
        5 => "(call $emit_input)".to_owned(),
        6 => format!("(call $emit_value {p} {l} {o} {m})"),
        7 => format!("(call $reject_text {p} {l})"),
        8 => format!("(i32.store (i32.const {at}) (call $state_get {p} {l} {o} {q} {m}))"),
        9 | 10 => format!("(call $state_put {p} {l} {q} {m})"),
        11 => format!("(call $state_delete {p} {l})"),
        12 => format!("(i32.store (i32.const {at}) (call $state_next {p} {l} {q} {m}))"),
        13 if watches => {
            format!("(i32.store (i32.const {at}) (call $key_get {p} {l} {o} {q} {m}))")
        }
        14 if watches => format!("(i64.store (i32.const {at}) (call $key_offset {p} {l}))"),
        15 => format!(
            "(call $hash (i32.const {}) {p} {l} {q})",
            1 + random.below(2)
        ),
        16 => format!(
            "(global.set $g (i32.add (global.get $g) {}))",
            number(random)
        ),
        17 => {
            let op = random.pick::<str>(&["add", "sub", "mul", "div", "min", "max", "copysign"]);
            format!(
                "(global.set $d (f64.{op} (global.get $d) (f64.convert_i32_s {}))) (f64.store (i32.const {at}) (f64.sqrt (global.get $d)))",
                number(random)
            )
        }
        18 => "(drop (memory.grow (i32.const 1)))".to_owned(),
        19 if depth > 0 => {
            let inner = statement(random, watches, depth - 1);
            format!("(if {} (then {inner}))", number(random))
        }
        20 if depth > 0 => {
            let (first, second) = (
                statement(random, watches, depth - 1),
                statement(random, watches, depth - 1),
            );
            format!(
                "(i32.store8 (i32.const 250) (i32.const 0)) (loop {first} {second} (i32.store8 (i32.const 250) (i32.add (i32.load8_u (i32.const 250)) (i32.const 1))) (br_if 0 (i32.lt_u (i32.load8_u (i32.const 250)) (i32.const 3))))"
            )
        }
        21 => {
            let (from, len) = LINES[random.below(8) as usize];
            // Mostly a part that can be JSON, with mostly valid paths.
            let what = [1, 1, 1, 0, 2, 3][random.below(6) as usize];
            let (from, len) = match random.below(12) {
                0 => (p, l),
                _ => (
                    format!("(i32.const {})", 300 + from),
                    format!("(i32.const {len})"),
                ),
            };
            let flags = if random.below(40) == 0 {
                2
            } else {
                random.below(2)
            };
            format!(
                "(i32.store (i32.const {at}) (call $json_find (i32.const {what}) (i32.const {flags}) {from} {len} {q}))"
            )
        }
        _ => format!("(i32.store (i32.const {at}) {})", number(random)),
    }
}

#[test]
fn engines_agree_on_modules_of_random_instructions() {
    let (count, start) = (
        setting("WEIR_FUZZ_MODULES", 120),
        setting("WEIR_FUZZ_SEED", 1),
    );
    let (mut counts, hosts) = (Counts::default(), hosts());
    for seed in start..start + count {
        let mut random = Random(seed);
        if let Some(code) = random_module(&mut random) {
            send_writes(
                &mut EnginePair::new(&hosts),
                &format!("random_module {seed}"),
                &code,
                &mut random,
                &mut counts,
            );
        }
    }
    println!("{counts:?}");
    assert!(counts.calls * 2 > count, "{counts:?}");
}

#[test]
fn engines_agree_on_programs_of_random_calls() {
    let (count, start) = (
        setting("WEIR_FUZZ_MODULES", 120),
        setting("WEIR_FUZZ_SEED", 1),
    );
    let (mut counts, hosts) = (Counts::default(), hosts());
    for seed in start..start + count {
        let mut random = Random(seed ^ 0x5555_0000);
        let code = calling_module(&mut random);
        send_writes(
            &mut EnginePair::new(&hosts),
            &format!("calling_module {seed}"),
            &code,
            &mut random,
            &mut counts,
        );
    }
    println!("{counts:?}");
    assert!(
        counts.valid > count && counts.records as u64 > count,
        "{counts:?}"
    );
}

/// Z7: the reference programs, with writes in formats that they understand.
#[test]
fn engines_agree_on_the_reference_programs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/prebuilt");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "wasm"))
        .collect();
    names.sort();
    let (hosts, mut counts) = (hosts(), Counts::default());
    for (number, path) in names.iter().enumerate() {
        let (what, code) = (path.display().to_string(), std::fs::read(path).unwrap());
        let mut random = Random(number as u64 + setting("WEIR_FUZZ_SEED", 1));
        let mut engines = EnginePair::new(&hosts);
        let options = TopicOptions::default();
        for args in [
            &[0, 4][..],
            &[0, 0, 0, 9, 0, 0, 0, 2, 0, 50, 1],
            b"anything",
        ] {
            let create = Operation::CreateProgram {
                options: &options,
                code: &code,
                args,
            };
            let made = engines.send(&what, &Intention::new("t", create)).unwrap();
            counts.modules += 1;
            for _ in 0..setting("WEIR_FUZZ_MODULES", 120) / 2 {
                write(&mut engines, &what, &mut random, &mut counts);
            }
            engines.restart();
            for _ in 0..10 {
                write(&mut engines, &what, &mut random, &mut counts);
            }
            if made.commit().unwrap().reason.is_none() {
                engines
                    .send(&what, &Intention::new("t", Operation::Destroy))
                    .unwrap();
            }
        }
        engines.end(&what, true, true);
    }
    println!("{counts:?}");
    assert!(counts.valid * 20 > counts.calls, "{counts:?}");
}

/// A write that some program may accept.
fn write(engines: &mut EnginePair, what: &str, random: &mut Random, counts: &mut Counts) {
    let account = |random: &mut Random| [&[random.below(4) as u8][..], &[0; 31]].concat();
    let (from, to) = (account(random), account(random));
    let amount = random.below(300) as i64 - 20;
    let seen = random.below(engines.log.len() as u64 + 1);
    let small = (amount as i32).to_be_bytes();
    let value = match random.below(7) {
        0 => [&to[..], &seen.to_be_bytes(), &small, &small, &[0; 4]].concat(),
        1 => [&to[..], &amount.to_be_bytes(), &[0; 16]].concat(),
        2 => [&to[..], &amount.to_be_bytes(), &seen.to_be_bytes(), &[0; 8]].concat(),
        3 => [&seen.to_be_bytes()[..], b"hello \xc3\xa9"].concat(),
        4 => amount.to_be_bytes().to_vec(),
        5 => (random.below(4) as u32).to_be_bytes().to_vec(),
        _ => {
            let len = random.below(60) as usize;
            random.bytes(len)
        }
    };
    let key = match random.below(3) {
        0 => &from[..],
        1 => b"ann",
        _ => b"lock",
    };
    let mut intention = Intention::new("t", Operation::Put { key, value: &value });
    if random.below(9) == 0 {
        intention.operation = Operation::Delete { key };
    }
    if random.below(3) == 0 {
        intention.principal = b"ann";
    }
    counts.calls += 1;
    let outcome = engines.send(what, &intention).unwrap();
    counts.valid += u64::from(outcome.commit().unwrap().reason.is_none());
}
