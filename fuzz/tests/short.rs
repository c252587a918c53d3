//! Runs every fuzz target on its seeds and on mutations of them, for `WEIR_FUZZ_SECONDS` seconds
//! each (default 2; `make fuzz` sets hours). `WEIR_FUZZ_SEED` selects other mutations. An input
//! that panics is written to a file whose name is printed.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fuzz::mutate::Mutator;
use weir_core::intention::{Intention, IntentionLimits, Operation};
use weir_core::{Batch, BatchBuilder, ClientId, ConsequenceSink, Machine, Outcomes, Record};
use weir_core::{TopicId, TopicName, TopicOptions};

/// Number of inputs that every target runs, even if the time is over at once.
const INPUTS_MIN: u64 = 200;

fn asked(name: &str, default: u64) -> u64 {
    let value = std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok());
    value.unwrap_or(default)
}

/// Runs a target until the time is over.
fn short(name: &str, run: fn(&[u8]), seeds: &[Vec<u8>]) {
    assert!(!seeds.is_empty(), "{name} has no seeds");
    let (begun, seconds) = (Instant::now(), asked("WEIR_FUZZ_SECONDS", 2));
    let mut mutator = Mutator::new(asked("WEIR_FUZZ_SEED", 1));
    let mut inputs = 0;
    let check = |input: &[u8]| {
        if catch_unwind(AssertUnwindSafe(|| run(input))).is_err() {
            let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.input"));
            std::fs::write(&file, input).unwrap();
            panic!("target {name} failed with the input in {}", file.display());
        }
    };
    for seed in seeds {
        check(seed);
    }
    while inputs < INPUTS_MIN || begun.elapsed() < Duration::from_secs(seconds) {
        check(&mutator.input(seeds));
        inputs += 1;
    }
    println!("{name}: {} seeds, {inputs} mutations", seeds.len());
}

/// All files below a folder of `vectors/`, split at empty lines.
fn vectors(folder: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../vectors")
        .join(folder);
    let mut files: Vec<_> = std::fs::read_dir(root)
        .unwrap()
        .map(|f| f.unwrap().path())
        .collect();
    files.sort();
    let mut seeds = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let bytes = std::fs::read(file).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        seeds.extend(text.split("\n\n").map(|piece| piece.as_bytes().to_vec()));
    }
    seeds
}

/// Each seed with the bytes `front` before it.
fn after(front: &[u8], seeds: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let with = |seed: Vec<u8>| [front, &seed].concat();
    seeds.into_iter().map(with).collect()
}

struct Nothing;

impl ConsequenceSink for Nothing {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}
    fn record(&mut self, _: TopicId, _: &Record<'_>) {}
}

fn batches() -> Vec<Vec<u8>> {
    let options = TopicOptions::default();
    let create = Operation::Create { options: &options };
    let put = Operation::Put {
        key: b"k",
        value: b"value",
    };
    let operations = [
        create,
        put,
        Operation::Delete { key: b"k" },
        Operation::Destroy,
    ];
    let mut whole = BatchBuilder::default();
    let mut all = Vec::new();
    for (nonce, operation) in (1..).zip(operations) {
        let mut intention = Intention::new("t", operation);
        (intention.client, intention.nonce) = (ClientId([7; 16]), nonce);
        whole.push(&intention, &IntentionLimits::default()).unwrap();
        let mut one = BatchBuilder::default();
        one.push(&intention, &IntentionLimits::default()).unwrap();
        all.push(one.to_bytes(5));
    }
    all.push(whole.to_bytes(9));
    all
}

fn snapshots() -> Vec<Vec<u8>> {
    let mut machine = Machine::new(1);
    let save = |machine: &Machine| {
        let mut bytes = Vec::new();
        machine.save(&mut bytes).unwrap();
        bytes
    };
    let mut all = vec![save(&machine)];
    for batch in &batches()[..3] {
        let batch = Batch::read(batch, 1).unwrap();
        machine
            .apply(&batch, &mut Nothing, &mut Outcomes::default())
            .unwrap();
        all.push(save(&machine));
    }
    all
}

fn modules() -> Vec<Vec<u8>> {
    let module = |body: &str| {
        let text = format!(
            r#"(module (import "weir1" "emit_input" (func $emit))
            (import "weir1" "state_put" (func $put (param i32 i32 i32 i32)))
            (memory (export "memory") 1 2) (global $g (mut i32) (i32.const 0))
            (func $deep (param i32) (result i32) (if (local.get 0) (then
                (drop (call $deep (i32.sub (local.get 0) (i32.const 1)))))) (local.get 0))
            (func (export "weir_abi") (result i32) i32.const 1)
            (func (export "weir_apply") (result i32) {body} i32.const 0))"#
        );
        [
            &b"\0\x0ckey values here"[..14],
            &wat::parse_str(text).unwrap(),
        ]
        .concat()
    };
    vec![
        module("call $emit"),
        module("(call $put (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 9))"),
        module("(drop (call $deep (i32.const 50)))"),
        module("(i32.store (i32.const 9) (i32.const 7)) (global.set $g (i32.const 1))"),
    ]
}

#[test]
fn batch() {
    short("batch", fuzz::batch::run, &batches());
}

#[test]
fn http() {
    let request =
        b"POST /v1/topics/t/records HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello\
        GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let chunked =
        b"PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let seeds = vec![request.to_vec(), chunked.to_vec()];
    short("http", fuzz::http::run, &after(b"\0\x09\0", seeds));
}

#[test]
fn native() {
    short("native", fuzz::native::run, &vectors("native"));
}

#[test]
fn packets() {
    let packets = b"_source\tpsyc://a\n:_target\tb\n\n:_nick\tann\n_message\nhello\n|\n".to_vec();
    let seeds = [vec![packets], vectors("psyc")].concat();
    short("packets", fuzz::packets::run, &after(b"\0\x03", seeds));
}

#[test]
fn program() {
    short("program", fuzz::program::run, &modules());
}

#[test]
fn query_token() {
    let seeds: Vec<Vec<u8>> = (0..80)
        .map(|which| vec![which, 0, 1, 2, 1, b'x', 0, 1, b'y'])
        .collect();
    short("query_token", fuzz::query_token::run, &seeds);
}

#[test]
fn scan() {
    let page = br#"[{"a":1,"b":[{"a":"x"},2]},{"a":null},{"b":{"a":1.5e3}},"\u00e9"]"#.to_vec();
    let lines = b"{\"a\":1}\n{\"b\":[1,2]}\n\n[]\n".to_vec();
    let seeds: Vec<Vec<u8>> = (0..10_u8)
        .flat_map(|choice| after(&[choice], vec![page.clone(), lines.clone()]))
        .collect();
    short("scan", fuzz::scan::run, &seeds);
}

#[test]
fn scan_path() {
    let item = b"\0{\"a\":[1,{\"b\":\"x\"}],\"c\":null}";
    let texts = [
        "$.a[1].b",
        "$..b",
        "$[?@.a > 1 && match(@.b, 'x.*')]",
        "@.a == 1",
        "$.a[-1:0:-2]",
    ];
    let own = texts.map(|text| [text.as_bytes(), item].concat()).to_vec();
    short(
        "scan_path",
        fuzz::scan_path::run,
        &[own, vectors("jsonpath")].concat(),
    );
}

#[test]
fn snapshot() {
    short("snapshot", fuzz::snapshot::run, &snapshots());
}

#[test]
fn adf() {
    let document = br##"{"type":"doc","version":1,"content":[
        {"type":"heading","attrs":{"level":2},"content":[{"type":"text","text":"a *b*"}]},
        {"type":"bulletList","content":[{"type":"listItem","content":[{"type":"paragraph","content":[
            {"type":"text","text":"b","marks":[{"type":"strong"},{"type":"textColor","attrs":{"color":"#f00"}}]},
            {"type":"hardBreak"},{"type":"mention","attrs":{"id":"1","text":"@a"}}]}]}]},
        {"type":"codeBlock","attrs":{"language":"c"},"content":[{"type":"text","text":"* a\n"}]},
        {"type":"table","content":[{"type":"tableRow","content":[{"type":"tableCell","content":[
            {"type":"paragraph","content":[{"type":"text","text":"a|b"}]}]}]}]},{"type":"x"}]}"##;
    let texts = [
        "* a\n\n- b *c* ~d~ {{{adf(1,x)}}}\n  1. c\n\n#+begin_src c\n,* a\n#+end_src\n\n| a | b |\n|---+---|\n",
        "#+begin_info\n#+h2: a\n[[jira-att:1][n]]\n#+end_info\n\n- [ ] a\\\\\n  b\n  - [X] c\n\n{{{adf(2)}}}\n",
        ":a: <2024-11-29 Fri> [[https://a.example]] x_{1} /i/ _u_ +s+ =c=\n",
    ];
    let seeds = texts.map(|text| [&document[..], b"\0", text.as_bytes()].concat());
    let alone = texts.map(|text| [b"\0", text.as_bytes()].concat());
    short("adf", fuzz::adf::run, &[seeds, alone].concat());
}

/// Every kind of frame after a HELLO, each with several bodies.
fn frames() -> Vec<Vec<u8>> {
    let join = b"WEIRPEER\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0b127.0.0.1:9";
    let bodies = [
        &b"\x05\x01\x01\x03\x04\0\0"[..],
        b"\0",
        b"",
        &[0xff; 30],
        join,
    ];
    let kinds = [1, 4, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 32];
    let with = |kind| bodies.map(|body| [&[1, kind], body].concat());
    let bare = (0..5).map(|mode| [&[mode], join.as_slice()].concat());
    kinds.into_iter().flat_map(with).chain(bare).collect()
}

#[test]
fn peer() {
    short("peer", fuzz::peer::run, &frames());
}
