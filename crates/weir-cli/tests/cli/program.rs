//! Tests `weir program`: each verb on real modules, and its errors.

use std::path::Path;

use serde_json::Value;
use weir::limits;

use crate::run::Place;

fn size(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Key of an account: a number, then zeros.
fn account(number: u8) -> String {
    format!("{number:02x}{}", "00".repeat(31))
}

/// A transfer's value: destination, amount, and any state of both accounts.
fn transfer(to: u8, amount: i64) -> Vec<u8> {
    let mut value = vec![0; 32];
    value[0] = to;
    value.extend(amount.to_be_bytes());
    value.extend([0; 16]);
    value
}

fn file(from: &str) -> Vec<u8> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    std::fs::read(root.join(from)).unwrap()
}

fn pay(place: &Place, from: u8, to: u8, amount: i64) -> crate::run::CommandOutput {
    place.write("transfer", transfer(to, amount));
    let key = account(from);
    place.run(&format!(
        "put bank @transfer --key-hex {key} --accept-invalid -o json"
    ))
}

/// A bank with a mint of 100 (intention 2), a transfer of 30 (3), and a rejected transfer of 71
/// (4); and a plain topic (5, 6).
fn bank() -> Place {
    let place = Place::new();
    place.write("balance.wasm", file("programs/prebuilt/balance.wasm"));
    place.run("program deploy bank balance.wasm").ok();
    pay(&place, 0, 1, 100).ok();
    pay(&place, 1, 2, 30).ok();
    pay(&place, 1, 2, 71).ok();
    place.run("put plain x --key k").ok();
    place
}

/// A module of these sections, each with its id. A section has fewer than 128 bytes.
fn module(sections: &[(u8, &[u8])]) -> Vec<u8> {
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    for (id, body) in sections {
        module.push(*id);
        module.push(u8::try_from(body.len()).unwrap());
        module.extend_from_slice(body);
    }
    module
}

/// A program that writes a log line for each put. The first byte of the value is the level.
fn chatty() -> Vec<u8> {
    module(&[
        // Types: log, input_read, and the exports.
        (
            1,
            b"\x03\x60\x03\x7f\x7f\x7f\x00\x60\x04\x7f\x7f\x7f\x7f\x01\x7f\x60\x00\x01\x7f",
        ),
        (
            2,
            b"\x02\x05weir1\x03log\x00\x00\x05weir1\x0ainput_read\x00\x01",
        ),
        (3, b"\x02\x02\x02"),
        (5, b"\x01\x01\x01\x01"),
        (
            7,
            b"\x03\x06memory\x02\x00\x08weir_abi\x00\x02\x0aweir_apply\x00\x03",
        ),
        // weir_abi: 1. weir_apply: read the value to 0, log(value[0], 0, n), 0.
        (
            10,
            b"\x02\x04\x00\x41\x01\x0b\x1b\x01\x01\x7f\x41\x01\x41\x00\x41\x00\x41\xc0\x00\x10\x01\
              \x21\x00\x41\x02\x41\x00\x20\x00\x10\x00\x41\x00\x0b",
        ),
    ])
}

/// A program that makes this number of host calls, each with equal arguments.
fn repeating(calls: u32) -> Vec<u8> {
    let part = |shift: u32| u8::try_from(calls >> shift & 0x7f).unwrap();
    let count = [part(0) | 0x80, part(7) | 0x80, part(14)];
    // weir_abi: 1. weir_apply: n = calls, then key_offset(0, 1) until n is 0, then 0.
    let code: [&[u8]; 3] = [
        b"\x02\x04\x00\x41\x01\x0b\x1f\x01\x01\x7f\x41",
        &count,
        b"\x21\x00\x03\x40\x41\x00\x41\x01\x10\x00\x1a\
          \x20\x00\x41\x01\x6b\x22\x00\x0d\x00\x0b\x41\x00\x0b",
    ];
    module(&[
        (1, b"\x02\x60\x02\x7f\x7f\x01\x7e\x60\x00\x01\x7f"),
        (2, b"\x01\x05weir1\x0akey_offset\x00\x00"),
        (3, b"\x02\x01\x01"),
        (5, b"\x01\x01\x01\x01"),
        (
            7,
            b"\x03\x06memory\x02\x00\x08weir_abi\x00\x01\x0aweir_apply\x00\x02",
        ),
        (10, &code.concat()),
    ])
}

#[test]
fn a_check_reports_an_invalid_module() {
    let place = Place::new();
    place.write("balance.wasm", file("programs/prebuilt/balance.wasm"));
    let json = place.run("program check balance.wasm -o json").ok().json();
    assert_eq!(json["bytes"], 2192);
    assert!(json["state_version"].is_i64(), "{json}");
    assert!(json["imports"].as_str().unwrap().contains("key_get"));
    place.write("text.wasm", "no module");
    let bad = place.run("program check text.wasm").code(3);
    assert!(
        bad.err.contains("text.wasm is not a program"),
        "{}",
        bad.err
    );
    assert!(!bad.err.contains("weir program check"), "{}", bad.err);
    place.write("empty.wasm", "");
    for line in ["check empty.wasm", "deploy t empty.wasm"] {
        let empty = place.run(&format!("program {line}")).code(3);
        assert!(empty.err.contains("the file is empty"), "{}", empty.err);
    }
    let none = place.run("program check none.wasm").code(1);
    assert!(none.err.contains("cannot read none.wasm"), "{}", none.err);
    // A file without an end.
    for line in ["check /dev/zero", "test balance.wasm /dev/zero"] {
        let endless = place.run(&format!("program {line}")).code(1);
        assert!(endless.err.contains("(E309)"), "{}", endless.err);
    }
}

#[test]
fn a_text_with_braces_gets_the_advice_to_quote_it() {
    let place = Place::new();
    place.write("counter.wasm", file("programs/prebuilt/counter.wasm"));
    for (line, option) in [
        ("program bench counter.wasm --key", "--key"),
        ("program bench counter.wasm --value", "--value"),
        ("program deploy js counter.wasm --args", "--args"),
    ] {
        let done = place.run(&format!("{line} {{\"a\":1}}")).code(2);
        let what = format!("cannot use {option} {{\"a\":1}} (E415)");
        assert!(done.err.contains(&what), "{}", done.err);
        let quoted = format!("`{option} \"'{{\\\"a\\\":1}}'\"`");
        assert!(done.err.contains(&quoted), "{}", done.err);
    }
}

#[test]
fn a_script_of_one_block_is_counted_in_the_singular() {
    let place = Place::new();
    place.write("balance.wasm", file("programs/prebuilt/balance.wasm"));
    place.write("one.txt", "create t\n----\n\n");
    let done = place.run("program test balance.wasm one.txt --write").ok();
    assert_eq!(done.err, "weir: wrote 1 block\n");
}

#[test]
fn a_failed_script_shows_the_lines_that_differ() {
    let place = Place::new();
    place.write("balance.wasm", file("programs/prebuilt/balance.wasm"));
    let script = String::from_utf8(file("vectors/programs/balance.txt")).unwrap();
    place.write("good.txt", &script);
    let good = place.run("program test balance.wasm good.txt").ok();
    assert_eq!(good.text(), "");
    assert_eq!(good.err, "weir: good.txt: 20 steps, 0 differ\n");
    let steps = place
        .run("program test balance.wasm good.txt -o json")
        .ok()
        .json();
    let steps = steps.as_array().unwrap().clone();
    assert_eq!(steps.len(), 20);
    assert!(steps.iter().all(|step| step["ok"] == true));

    let wrong = script.replace("6 \"not enough\"", "7 \"never\"");
    place.write("wrong.txt", &wrong);
    let test = place.run("program test balance.wasm wrong.txt").code(3);
    let expected = "\
wrong.txt:5: put bank {id:1}={id:2}{i64:71}{u64:0}{u64:0}
    11 - 4 INVALID REJECTED 7 \"never\"
       + 4 INVALID REJECTED 6 \"not enough\"
wrong.txt:20: put bank {id:9}={id:2}{i64:5}{u64:0}{u64:0}
    28 - 10 INVALID REJECTED 7 \"never\"
       + 10 INVALID REJECTED 6 \"not enough\"
";
    assert_eq!(test.text(), expected);
    assert_eq!(test.err, "weir: wrong.txt: 20 steps, 2 differ\n");
    let steps = place
        .run("program test balance.wasm wrong.txt -o json")
        .code(3);
    let steps = steps.json();
    let wrong: Vec<&Value> = steps
        .as_array()
        .unwrap()
        .iter()
        .filter(|s| s["ok"] == false)
        .collect();
    assert_eq!(wrong.len(), 2);
    assert_eq!(wrong[0]["line"], 5);
    assert_eq!(wrong[0]["actual"], "4 INVALID REJECTED 6 \"not enough\"");

    let mut colours = place.weir();
    colours.args(["program", "test", "balance.wasm", "wrong.txt"]);
    colours.env("CLICOLOR_FORCE", "1").env("TERM", "xterm");
    let colours = crate::run::command_output(colours.output().unwrap())
        .code(3)
        .text();
    assert!(
        colours.contains("\x1b[31m    11 - ") && colours.contains("\x1b[32m"),
        "{colours}"
    );

    place
        .run("program test balance.wasm wrong.txt --write")
        .ok();
    place.run("program test balance.wasm wrong.txt").ok();
    place.write("bad.txt", "create bank\nfly bank\n----\n\n");
    let bad = place.run("program test balance.wasm bad.txt").code(1);
    assert!(
        bad.err.contains("line 2: unknown command fly"),
        "{}",
        bad.err
    );
    place.run("program test none.wasm good.txt").code(1);
    place.run("program test balance.wasm none.txt").code(1);
}

#[test]
fn a_program_is_deployed_replaced_and_shown() {
    let place = bank();
    place.write("unique.wasm", file("programs/prebuilt/unique.wasm"));
    place.run("program deploy bank balance.wasm").code(3);
    place.write("text.wasm", "no module");
    place.run("program deploy other text.wasm").code(3);
    place
        .run("program deploy other balance.wasm state=never")
        .code(2);
    let show = place.run("program show bank -o json").ok().json();
    assert_eq!(
        (&show["calls"], &show["rejects"], &show["traps"]),
        (&3.into(), &1.into(), &0.into())
    );
    assert!(show["fuel"].as_u64().unwrap() > 1000);
    let list = place.run("program ls -o json").ok().json();
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(list[0]["sha256"], show["sha256"]);
    place
        .run("program replace bank unique.wasm --expect 00")
        .code(2);
    let hash = "0".repeat(64);
    place
        .run(&format!("program replace bank unique.wasm --expect {hash}"))
        .code(3);
    place.run("program replace bank unique.wasm").ok();
    let after = place.run("program show bank -o json").ok().json();
    assert_ne!(after["sha256"], show["sha256"]);
    assert_eq!(after["calls"], 3, "the count continues");
    let replaced = place.run("tail bank --type replace -o json").ok().json();
    assert_eq!(replaced.as_array().unwrap().len(), 1);
    assert_eq!(replaced[0]["kind"], "REPLACE");
    assert_eq!(replaced[0]["value"]["sha256"], after["sha256"]);
    place
        .run("program deploy room balance.wasm --args {u8:0}ann")
        .ok();
    let created = place.run("tail room --type create -o json").ok().json();
    assert_eq!(created[0]["value"]["args"], "\\x00ann");
    let table = place.run("tail bank --type replace -o table").ok().text();
    let sha256 = after["sha256"].as_str().unwrap();
    assert!(
        table.contains(&format!("\"sha256\":\"{}", &sha256[..16])),
        "{table}"
    );
    place.run("program replace plain unique.wasm").code(3);
    place.run("program replace none unique.wasm").code(3);
    for verb in ["deploy", "replace"] {
        let line = format!("program {verb} bank none.wasm");
        let done = place.run(&line).code(1);
        assert!(done.err.contains("cannot read none.wasm"), "{}", done.err);
    }
    place.run("program ls --at elsewhere").code(4);
    place.run("program deploy bad/name balance.wasm").code(2);
    place.run("program show plain").code(4);
    place.run("program show none").code(4);
}

#[test]
fn verdicts_have_the_fuel_of_a_write() {
    let place = bank();
    let paid = pay(&place, 1, 2, 1).ok().json();
    assert!(paid["fuel"].as_u64().unwrap() > 1000, "{paid}");
    let plain = place.run("put plain x -o json").ok().json();
    assert_eq!(plain["fuel"], 0);
    let csv = place.run("put plain x --columns fuel -o csv").ok().text();
    assert_eq!(csv, "fuel\r\n0\r\n");
}

#[test]
fn a_trace_shows_reads_emits_and_fuel() {
    let place = bank();
    let text = place.run("program trace bank 3").ok().text();
    for wanted in [
        "asked    PUT {id:1}={id:2}",
        "key_get key={id:1} -> {\\x00*7}d",
        "key_get key={id:2} -> absent",
        "emit_put key={id:1} value={\\x00*7}F",
        "verdict  VALID",
        "record   4 PUT {id:1}={\\x00*7}F",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    let json = place.run("program trace bank 3 -o json").ok().json();
    let sum: u64 = json["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["fuel"].as_u64().unwrap())
        .sum();
    assert_eq!(json["fuel_host"], sum);
    let all = json["fuel_host"].as_u64().unwrap() + json["fuel_code"].as_u64().unwrap();
    assert_eq!(json["fuel"], all);
    let by_record = place
        .run("program trace bank --record 4 -o json")
        .ok()
        .json();
    assert_eq!(by_record, json);
    let rejected = place.run("program trace bank 4 -o json").ok().json();
    assert_eq!(
        (&rejected["effect"], &rejected["detail"]),
        (&"INVALID".into(), &"code 6: not enough".into())
    );
    assert_eq!(rejected["records"], Value::Array(Vec::new()));
    assert_eq!(
        rejected["stored"], "unknown",
        "no record is in a segment yet"
    );
    let text = place.run("program trace bank 4").ok().text();
    let last = text.lines().last().unwrap();
    assert!(
        last.contains("not compared: the intention wrote no record"),
        "{text}"
    );
    assert!(last.ends_with("this is not damage"), "{text}");
    // The fuel of the original verdicts is the fuel of the replay.
    let paid = pay(&place, 2, 1, 5).ok().json();
    let again = place
        .run(&format!("program trace bank {} -o json", paid["intention"]))
        .ok()
        .json();
    assert_eq!(again["fuel"], paid["fuel"]);
}

/// A trace keeps the first 100,000 host calls, and counts the fuel of all. By default, only the
/// steps of a transaction together may make so many.
#[test]
fn a_trace_counts_the_fuel_of_host_calls_that_it_leaves_out() {
    let place = Place::new();
    let steps = "{\"key\":\"k\",\"value\":1}\n".repeat(3);
    let traced = |calls: u32| {
        let topic = format!("t{calls}");
        place.write("repeating.wasm", repeating(calls));
        let deploy = format!("program deploy {topic} repeating.wasm fuel-max=10000000");
        place.run(&deploy).ok();
        let txn = place.pipe(&format!("txn {topic} -o json"), &steps).ok();
        let intention = txn.json()["intention"].as_u64().unwrap();
        let columns = "fuel,fuel_host,fuel_code,calls_left_out";
        let line = format!("program trace {topic} {intention} -o json --columns {columns}");
        let traced = place.run(&line).ok().json();
        assert_eq!(traced["fuel"], txn.json()["fuel"]);
        let number = |name: &str| traced[name].as_u64().unwrap();
        let (host, code) = (number("fuel_host"), number("fuel_code"));
        assert_eq!(number("fuel"), host + code, "{traced}");
        (host, number("calls_left_out"))
    };
    let (each, none) = traced(1);
    assert!(each > 0 && none == 0, "{each} {none}");
    assert_eq!(traced(33_335), (33_335 * each, 5));
}

#[test]
fn a_trace_compares_with_the_stored_records_and_changes_no_file() {
    let place = bank();
    // A backup writes the state of the log to files.
    place.run("backup copy").ok();
    pay(&place, 1, 2, 1).ok();
    let listing = |name: &str| {
        let mut files = Vec::new();
        let mut folders = vec![place.path(name)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push((path.clone(), std::fs::read(path).unwrap()));
                }
            }
        }
        files.sort();
        files
    };
    let before = listing("weir-data");
    for intention in 1..=3 {
        let json = place
            .run(&format!("program trace bank {intention} -o json"))
            .ok()
            .json();
        assert_eq!(json["stored"], "equal", "{json}");
    }
    assert!(before == listing("weir-data"), "a file was changed");
    // Another process has the store open for writing.
    let mut tail = place.weir();
    tail.args(["tail", "bank", "-f"])
        .stdout(std::process::Stdio::piped());
    let mut tail = tail.spawn().unwrap();
    let mut line = String::new();
    let out = tail.stdout.as_mut().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
    place.run("program trace bank 3").ok();
    tail.kill().unwrap();
    tail.wait().unwrap();
}

#[test]
fn a_trace_of_a_panic_shows_its_message_and_stack() {
    let place = Place::new();
    place.write("words.wasm", file("programs/prebuilt/words.wasm"));
    place.run("program deploy w words.wasm").ok();
    let done = place.run("put w two --key 5").code(3);
    assert!(done.err.contains("weir program trace w 2"), "{}", done.err);
    let trace = place.run("program trace w 2").ok().text();
    let message = "index out of bounds: the len is 1 but the index is 5";
    let line = trace.lines().find(|line| line.contains(message)).unwrap();
    let begin = "log error: panicked at reference/examples/words.rs:";
    assert!(line.contains(begin), "{line}");
    assert!(trace.contains("verdict  ERROR TRAP unreachable"), "{trace}");
    assert!(
        trace.contains("\n  in       weir_guest::panicked\n"),
        "{trace}"
    );
    let bounds = "\n           core::panicking::panic_bounds_check\n           weir_apply\n";
    assert!(trace.contains(bounds), "{trace}");
    let logs = place.run("program logs w -o json").ok().json();
    assert!(logs[0]["text"].as_str().unwrap().ends_with(message));
    assert_eq!(logs[0]["level"], "error");
}

#[test]
fn a_trace_shows_the_error_message_of_each_language() {
    let place = Place::new();
    for (language, value, message, function) in [
        (
            "c",
            "assert",
            "assertion failed at broken.c:10: len != 6 || !weir_equal(value, \"assert\", 6)",
            "weir_program_apply",
        ),
        (
            "c",
            "panic",
            "the value is not `panic`",
            "weir_program_apply",
        ),
        (
            "as",
            "assert",
            "aborted at assembly/broken.ts:14:3: the value is not `assert`",
            "assembly/broken/weir_apply",
        ),
        (
            "zig",
            "assert",
            "the value is not `assert`",
            "broken.checkedLen",
        ),
        (
            "zig",
            "index",
            "index out of bounds: index 5, len 5",
            "broken.byteAfter",
        ),
    ] {
        let topic = format!("{language}-{value}");
        let name = format!("broken-{language}.wasm");
        place.write(&name, file(&format!("programs/prebuilt/{name}")));
        place.run(&format!("program deploy {topic} {name}")).ok();
        place.run(&format!("put {topic} fine --key k")).ok();
        place.run(&format!("put {topic} {value} --key k")).code(3);
        let logs = place
            .run(&format!("program logs {topic} -o json"))
            .ok()
            .json();
        assert_eq!(logs[0]["text"], message, "{topic}");
        assert_eq!(logs[0]["level"], "error", "{topic}");
        let intention = logs[0]["intention"].as_u64().unwrap();
        let trace = place.run(&format!("program trace {topic} {intention}"));
        let trace = trace.ok().text();
        assert!(trace.contains("verdict  ERROR TRAP unreachable"), "{trace}");
        let frames = trace
            .lines()
            .map(|line| line.trim_start_matches("  in ").trim());
        assert_eq!(
            frames.filter(|name| *name == function).count(),
            1,
            "{trace}"
        );
    }
    // A computed text reaches the caller complete.
    place.write("long", "12345678901234567");
    let done = place.run("put as-assert @long --key k").code(3);
    let expected = "code 1: 17 bytes, at most 16";
    assert!(done.err.contains(expected), "{}", done.err);
    let logs = place.run("program logs as-assert -o json").ok().json();
    assert_eq!(logs[1]["text"], "17 bytes, at most 16");
}

#[test]
fn a_replay_validates_a_history_with_another_program() {
    let place = Place::new();
    for name in ["vanilla", "words"] {
        let module = file(&format!("programs/prebuilt/{name}.wasm"));
        place.write(&format!("{name}.wasm"), module);
    }
    place.run("program deploy w words.wasm").ok();
    place.run("put plain x --key k").ok();
    place.run("put w sorted --key a").ok();
    place.write("two", "one two");
    place.run("put w @two --key b").ok();
    place.write("many", "1 2 3 4 5 6 7 8 9");
    place.run("put w @many --key c --accept-invalid").ok();
    place.run("delete w --key a").ok();
    place.write("three", "three one two");
    place.run("put w @three --key b").ok();
    // The original program gives equal verdicts.
    let same = place.run("program replay w --with words.wasm -o json").ok();
    assert_eq!(same.json(), Value::Array(Vec::new()));
    let expected = "w: 6 intentions, 0 differ";
    assert!(same.err.contains(expected), "{}", same.err);
    // `vanilla` accepts every write unchanged.
    let other = place.run("program replay w --with vanilla.wasm -o json");
    let other = other.code(3);
    let rows = other.json();
    let rows = rows.as_array().unwrap();
    let of = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!(of(&rows[0], "key"), "c");
    let fields = ["before", "before_reason", "after", "records"].map(|name| of(&rows[0], name));
    let reason = "REJECTED code 2: 9 words, at most 8";
    assert_eq!(fields, ["INVALID", reason, "VALID", "differ"]);
    assert_eq!(of(&rows[1], "key"), "b");
    assert_eq!(
        (of(&rows[1], "before"), of(&rows[1], "after")),
        ("VALID".into(), "VALID".into())
    );
    let expected = "6 intentions, 2 differ: 0 no longer VALID, 1 newly VALID, 1 in";
    assert!(other.err.contains(expected), "{}", other.err);
    let later = place.run("program replay w --with vanilla.wasm --from 7 -o json");
    assert_eq!(later.code(3).json().as_array().unwrap().len(), 1);
    // The other module also replaces the program that was deployed later.
    place.run("program replace w vanilla.wasm").ok();
    place.run("put w @many --key c").ok();
    let old = place
        .run("program replay w --with words.wasm -o json")
        .code(3);
    let rows = old.json();
    assert_eq!(rows.as_array().unwrap().len(), 1, "{rows}");
    assert_eq!(
        (&rows[0]["before"], &rows[0]["after_reason"]),
        (&"VALID".into(), &reason.into())
    );
    let tested = place.run("program test words.wasm --from-topic w -o json");
    assert_eq!(tested.code(3).json(), rows);
    for (line, code, why) in [
        (
            "program replay plain --with words.wasm",
            4,
            "topic plain has no program",
        ),
        (
            "program replay none --with words.wasm",
            4,
            "topic none has no program",
        ),
        (
            "program replay w --with words.wasm --from 999",
            4,
            "its newest intention is ",
        ),
        ("program replay w --with two", 3, "two is not a program"),
        ("program replay w", 2, "--with"),
        ("program test words.wasm", 2, "SCRIPT"),
        (
            "program test words.wasm s.txt --from-topic w",
            2,
            "cannot be used with",
        ),
    ] {
        let done = place.run(line).code(code);
        assert!(done.err.contains(why), "{line}: {}", done.err);
    }
    // Another topic with the module runs the other module too.
    place.run("program deploy w2 words.wasm").ok();
    let same = place.run("program replay w --with words.wasm").code(3);
    assert!(
        same.err.contains("topic w2 used the same module"),
        "{}",
        same.err
    );
    place.run("program deploy m words.wasm state=memory").ok();
    place.run("put m x").ok();
    // Without the beginning of the log, both runs start from the remaining state.
    place.run("compact").ok();
    place.run("put m x").ok();
    let refused = place.run("program replay m --with vanilla.wasm").code(1);
    assert!(refused.err.contains("memory"), "{}", refused.err);
    place.run("put w x --key d").ok();
    let rest = place.run("program replay w --with words.wasm").ok();
    let expected = "w: 1 intentions, 0 differ";
    assert!(rest.err.contains(expected), "{}", rest.err);
}

#[test]
fn a_trace_of_an_unknown_intention_gives_the_reason() {
    let place = bank();
    for (line, why) in [
        ("program trace bank 99", "the newest intention is 6"),
        ("program trace bank 0", "the first intention is 1"),
        (
            "program trace bank 6",
            "the intention belongs to topic plain",
        ),
        ("program trace plain 6", "topic plain has no program"),
        (
            "program trace bank --record 99",
            "there is no record 99 in bank",
        ),
        ("program trace bank 6", "`weir program trace plain 6`"),
        ("program trace none 2", "there is no topic none (E316)"),
        ("program trace none 99", "there is no topic none (E316)"),
        (
            "program trace none --record 1",
            "there is no topic none (E316)",
        ),
        (
            "program trace bank 2 --at elsewhere",
            "cannot read the store in elsewhere",
        ),
        ("program logs none", "no intention of topic none"),
        (
            "program logs bank --from 99",
            "the log has no intention of it from 99 on",
        ),
    ] {
        let done = place.run(line).code(4);
        assert!(done.err.contains(why), "{line}: {}", done.err);
        assert_eq!(done.err.lines().count(), 3, "{}", done.err);
    }
    place.run("program trace bank").code(2);
    place.run("program trace bank 1 --record 1").code(2);
    assert!(!place.path("elsewhere").exists());
    place.run("compact").ok();
    let gone = place.run("program trace bank 3").code(4);
    assert!(gone.err.contains("was purged"), "{}", gone.err);
    let paid = pay(&place, 1, 2, 1).ok().json();
    place
        .run(&format!("program trace bank {}", paid["intention"]))
        .ok();
}

#[test]
fn log_lines_of_programs_are_computed_again_and_shown_by_tests() {
    let place = Place::new();
    place.write("chatty.wasm", chatty());
    place.run("program deploy talk chatty.wasm").ok();
    for n in 0..5 {
        place.run(&format!("put talk line-{n} --key k")).ok();
    }
    let lines = place.run("program logs talk -o json").ok().json();
    let texts: Vec<&str> = lines
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["line-0", "line-1", "line-2", "line-3", "line-4"]);
    assert_eq!(lines[0]["level"], "warn");
    assert_eq!(lines[0]["intention"], 2);
    assert_eq!(lines[0]["topic"], "talk");
    place.run("program deploy tale chatty.wasm").ok();
    place.run("put tale once --key k").ok();
    let all = place.run("program logs").ok().lines();
    let topic_and_text = |line: &Value| (line["topic"].clone(), line["text"].clone());
    assert_eq!(topic_and_text(&all[0]), ("talk".into(), "line-0".into()));
    assert_eq!(topic_and_text(&all[5]), ("tale".into(), "once".into()));
    let last = place.run("program logs talk --last 2").ok().lines();
    assert_eq!(last.len(), 2);
    assert_eq!(last[1]["text"], "line-4");
    let from = place.run("program logs talk --from 5").ok().lines();
    assert_eq!(from[0]["text"], "line-3");
    place.run("program logs talk --last 0").code(2);

    place.write("talk.txt", "create talk program=chatty\nput talk k=hello\n----\n1 VALID: talk 1 CREATE last\n2 VALID\n");
    let test = place.run("program test chatty.wasm talk.txt").ok();
    assert!(test.text().contains("log warn: hello"), "{}", test.text());
    let rows = place
        .run("program test chatty.wasm talk.txt -o json")
        .ok()
        .json();
    assert_eq!(rows[1]["log"][0]["text"], "hello");
}

#[test]
fn a_bench_counts_its_writes_and_leaves_no_files() {
    let place = Place::new();
    for name in ["balance", "counter"] {
        let module = file(&format!("programs/prebuilt/{name}.wasm"));
        place.write(&format!("{name}.wasm"), module);
    }
    place.write("balance.txt", file("vectors/programs/balance.txt"));
    let words =
        "program bench counter.wasm --count 2000 --value {i64:1} --state-entries 3000 -o json";
    let bench = place.run(words).ok().json();
    assert_eq!(
        (&bench["valid"], &bench["rejected"], &bench["failed"]),
        (&2000.into(), &0.into(), &0.into())
    );
    assert_eq!(bench["entries"], 3000);
    assert!(bench["fuel"].as_u64().unwrap() > 1000);
    assert!(bench["extra_ns"].is_i64(), "{bench}");
    for side in ["plain", "program"] {
        let time = |rank: &str| bench[format!("{side}_{rank}_ns")].as_u64().unwrap();
        assert!(time("p50") > 0 && time("p50") <= time("p99"), "{bench}");
    }
    let words = "program bench balance.wasm --script balance.txt --count 1000 --batch 10 -o json";
    let bench = place.run(words).ok().json();
    let number = |name: &str| bench[name].as_u64().unwrap();
    let ended = ["valid", "rejected", "trapped", "failed"].map(number);
    assert_eq!(ended.iter().sum::<u64>(), 1000);
    assert_eq!(number("count"), 1000, "all requested writes were executed");
    assert!(number("valid") > 0 && number("rejected") > 0, "{bench}");
    let words = "program bench counter.wasm fuel-max=200 --count 2000 --value {i64:1} -o json";
    let bench = place.run(words).ok();
    assert_eq!(bench.json()["trapped"], 2000, "{}", bench.text());
    let note = "0 of 2000 writes were rejected, 2000 trapped, 0 failed otherwise";
    assert!(bench.err.contains(note), "{}", bench.err);
    let note = "no write was valid";
    assert!(bench.err.contains(note), "{}", bench.err);

    place.run("program bench none.wasm").code(1);
    place.write("text.wasm", "no module");
    let bad = place.run("program bench text.wasm").code(3);
    assert!(bad.err.contains("BAD_PROGRAM"), "{}", bad.err);
    place.write("none.txt", "create t\nput t k=v\n----\n\n");
    let bad = place
        .run("program bench balance.wasm --script none.txt")
        .code(1);
    assert!(
        bad.err.contains("writes nothing to the topic"),
        "{}",
        bad.err
    );
    place
        .run("program bench balance.wasm --script balance.txt --key k")
        .code(2);
    place.run("program bench balance.wasm --count 3").code(2);
    let mut own = place.weir();
    let temporary = place.path("temporary");
    std::fs::create_dir(&temporary).unwrap();
    own.args(["program", "bench", "counter.wasm", "--count", "1000"]);
    own.env("TMPDIR", &temporary);
    crate::run::command_output(own.output().unwrap()).ok();
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}

#[test]
fn a_failed_deploy_reports_that_the_topic_was_not_created() {
    let place = Place::new();
    place.write("text.wasm", "(module)");
    let failed = place.run("program deploy guarded text.wasm").code(3);
    assert!(
        failed.err.contains("no WebAssembly module"),
        "{}",
        failed.err
    );
    assert!(
        failed.err.contains("topic guarded was not created"),
        "{}",
        failed.err
    );
    place.run("put guarded x --key k --no-create").code(3);
    // An existing topic does not change, and no note is printed about it.
    place.run("put plain x --key k").ok();
    let failed = place.run("program deploy plain text.wasm").code(3);
    assert!(!failed.err.contains("was not created"), "{}", failed.err);
    let shown = place.run("program show plain").code(4);
    assert!(shown.err.contains("without a program"), "{}", shown.err);
    place.write("none.txt", "");
    place.write("balance.wasm", file("programs/prebuilt/balance.wasm"));
    let empty = place.run("program test balance.wasm none.txt").code(1);
    assert!(empty.err.contains("no step"), "{}", empty.err);
}

#[test]
fn a_check_reports_the_option_that_a_module_needs() {
    let place = Place::new();
    // The bytes of counter.wasm up to its memory section, which is changed to 17 pages.
    let module = file("programs/prebuilt/counter.wasm");
    let one_page = b"\x05\x04\x01\x01\x01\x01";
    let at = module
        .windows(one_page.len())
        .position(|bytes| bytes == one_page);
    let mut wide = module.clone();
    wide[at.expect("a memory of one page") + 5] = 17;
    place.write("wide.wasm", wide);
    place.write("small.wasm", module);
    let checked = place.run("program check wide.wasm").ok();
    assert!(checked.err.contains("memory-bytes-max"), "{}", checked.err);
    place.run("program deploy t wide.wasm").code(3);
    place
        .run("program deploy t wide.wasm memory-bytes-max=2MiB")
        .ok();
    let checked = place.run("program check small.wasm").ok();
    assert_eq!(checked.err, "");
}

/// Errors of a program have advice that can be typed.
#[test]
fn advice_names_the_option_the_intention_and_the_hash() {
    let place = Place::new();
    for name in ["stutter", "vanilla-memory"] {
        let module = file(&format!("programs/prebuilt/{name}.wasm"));
        place.write(&format!("{name}.wasm"), module);
    }
    place
        .run("program deploy twice stutter.wasm emits-max=1")
        .ok();
    let done = place.run("put twice x --key k").code(3);
    let advice = "the option emits-max; `weir topic set twice emits-max=N` changes it";
    assert!(done.err.contains(advice), "{}", done.err);
    place
        .run("program deploy poor vanilla-memory.wasm fuel-max=200")
        .ok();
    let done = place.run("put poor x --key k -o json").code(3);
    let number = done.json()["intention"].as_u64().unwrap();
    let error: Value = serde_json::from_str(done.err.trim()).unwrap();
    assert_eq!(error["error"], "OUT_OF_FUEL");
    let line = format!("`weir program trace poor {number}`");
    assert!(error["try"].as_str().unwrap().contains(&line), "{error}");
    let fuel = "fuel-max is 200; `weir topic set poor fuel-max=N` raises it";
    assert!(error["try"].as_str().unwrap().contains(fuel), "{error}");
    let line = format!("program trace poor {number}");
    let trace = place.run(&line).ok().text();
    assert!(trace.contains("\n  in       weir_apply\n"), "{trace}");
    let trace = place.run(&format!("{line} -o json")).ok().json();
    assert_eq!(trace["stack"][0]["name"], "weir_apply");
    assert!(trace["stack"][0]["function"].is_u64(), "{trace}");
    let hash = "00".repeat(32);
    let line = format!("program replace twice stutter.wasm --expect {hash}");
    let done = place.run(&line).code(3);
    assert!(
        done.err.contains("(E104)") && done.err.contains("weir program show twice"),
        "{}",
        done.err
    );
}

#[test]
fn advice_depends_on_the_kind_of_topic() {
    let place = bank();
    place.write("transfer", transfer(2, 71));
    let line = format!("put bank @transfer --key-hex {}", account(1));
    for (line, advice) in [
        (line.as_str(), "`weir program trace bank 7`"),
        (
            "program deploy bank balance.wasm",
            "`weir program replace bank FILE`",
        ),
        (
            "program deploy plain balance.wasm",
            "a topic gets a program only when it is created",
        ),
        (
            "program replace plain balance.wasm",
            "a plain topic gets no program",
        ),
    ] {
        let done = place.run(line).code(3);
        assert!(done.err.contains(advice), "{line}: {}", done.err);
        assert!(!done.err.contains("weir program check"), "{}", done.err);
    }
}

#[test]
fn an_invalid_placeholder_is_reported_with_its_position() {
    let place = Place::new();
    place.write("chat.wasm", file("programs/prebuilt/chat.wasm"));
    let done = place.run("program deploy room chat.wasm --args {u32:5}{u8:300}");
    let done = done.code(2);
    assert!(done.err.contains("from byte 7 on"), "{}", done.err);
    assert!(done.err.contains("{u8:300}"), "{}", done.err);
    place.write("s.txt", "create room program=chatt\n----\n");
    let done = place.run("program test chat.wasm s.txt").code(1);
    let missing = place.path("chatt.wasm");
    let expected = format!("which has no {}", missing.display());
    assert!(done.err.contains(&expected), "{}", done.err);
}

#[test]
fn the_guide_shows_how_reference_programs_compute_a_text() {
    let place = Place::new();
    let guide = place.run("help guide programs").ok().text();
    let (_, texts) = guide
        .split_once("## Texts that a program computes")
        .unwrap();
    let plain = |text: &str| {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        lines.join("\n")
    };
    for (language, source) in [
        ("rust,ignore", "programs/reference/examples/words.rs"),
        ("ts", "programs/assemblyscript/assembly/broken.ts"),
    ] {
        let (_, block) = texts.split_once(&format!("```{language}\n")).unwrap();
        let (block, _) = block.split_once("```").unwrap();
        let source = String::from_utf8(file(source)).unwrap();
        assert!(plain(&source).contains(&plain(block)), "{block}");
    }
}

#[test]
fn the_help_and_the_guide_explain_each_option_of_a_program() {
    let place = Place::new();
    let help = place.run("program deploy --help").ok().text();
    let guide = place.run("help guide programs").ok().text();
    let plain = |number: u64| number.to_string();
    for (option, default, max) in [
        ("state", "kv".to_owned(), String::new()),
        (
            "fuel-max",
            plain(limits::FUEL_DEFAULT),
            plain(limits::FUEL_OPTION_MAX_DEFAULT),
        ),
        (
            "memory-bytes-max",
            size(limits::MEMORY_BYTES_DEFAULT),
            size(limits::MEMORY_BYTES_MAX),
        ),
        (
            "emits-max",
            plain(limits::EMITS_DEFAULT),
            plain(limits::EMITS_MAX),
        ),
        (
            "emit-bytes-max",
            size(limits::EMIT_BYTES_DEFAULT),
            size(limits::EMIT_BYTES_MAX),
        ),
        (
            "state-entries-max",
            plain(limits::STATE_ENTRIES_DEFAULT),
            plain(limits::STATE_ENTRIES_MAX),
        ),
        (
            "state-bytes-max",
            size(limits::STATE_BYTES_DEFAULT),
            size(limits::STATE_BYTES_MAX),
        ),
    ] {
        let begin = help
            .find(&format!("  {option}="))
            .unwrap_or_else(|| panic!("{option}: {help}"));
        let expected = match max.as_str() {
            "" => format!("default {default}"),
            max => format!("default {default}, at most {max}"),
        };
        let text: String = help[begin..].chars().take(170).collect();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&expected), "{option}: {help}");
        let begin = format!("| `{option}=");
        let mut rows = guide.lines().filter(|line| line.starts_with(&begin));
        let row = rows.next().unwrap_or_else(|| panic!("{option}: {guide}"));
        let row = row.replace([',', '`'], "");
        assert_eq!(row.rsplit('|').nth(1).unwrap().trim(), default, "{row}");
        assert!(
            row.contains(&format!("at most {max}")) || max.is_empty(),
            "{row}"
        );
    }
    let help = place.run("program trace --help").ok().text();
    assert!(help.contains("[INTENTION]"), "{help}");
}
