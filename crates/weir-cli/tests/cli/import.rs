//! Tests import and export: every item is written once, whatever happens.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::run::Place;

/// NDJSON of `count` items with distinct keys.
fn items(count: u64) -> String {
    let mut text = String::new();
    for n in 0..count {
        let filler = "x".repeat(usize::try_from(n % 50).unwrap());
        writeln!(text, "{{\"id\":\"{n}\",\"text\":\"{filler}\"}}").unwrap();
    }
    text
}

/// A pseudo-random number, computed from `n`.
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^ n >> 29
}

#[test]
fn an_import_that_is_killed_repeatedly_writes_each_item_once() {
    const ITEMS: u64 = 20_000;
    let place = Place::new();
    place.write("data", items(ITEMS));
    let words = [
        "import", "data", "-t", "t", "-k", "$.id", "--batch", "50", "-o", "json",
    ];
    let mut kills = 0;
    let done = loop {
        let mut command = place.weir();
        command
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The moment of the kill depends on the machine. The assertions hold for every moment.
        std::thread::sleep(Duration::from_millis(20 + mixed(kills) % 150));
        if kills < 8 {
            child.kill().unwrap();
        }
        let done = crate::run::command_output(child.wait_with_output().unwrap());
        if done.code == 0 {
            break done;
        }
        kills += 1;
        assert!(kills < 20, "{}", done.err);
    };
    assert_eq!(done.json()["complete"], true);
    let records = place.run("export t").ok().lines();
    assert_eq!(records.len() as u64, ITEMS, "after {kills} kills");
    let keys: HashSet<&str> = records.iter().filter_map(|r| r["key"].as_str()).collect();
    assert_eq!(keys.len() as u64, ITEMS);
    let again = place.words(&words).ok().json();
    assert_eq!(
        (&again["imported"], &again["already"]),
        (&json!(0), &json!(ITEMS))
    );
    assert_eq!(place.run("topic show t -o json").ok().json()["keys"], ITEMS);
}

#[test]
fn the_import_of_a_longer_file_resumes_and_that_of_a_changed_file_is_rejected() {
    let place = Place::new();
    place.write("data", items(10));
    place.run("import data -t t -k id").ok();
    place.write("data", items(15));
    let more = place.run("import data -t t -k id -o json").ok().json();
    assert_eq!(
        (&more["imported"], &more["already"]),
        (&json!(5), &json!(10))
    );
    place.write("data", items(20).replacen("\"3\"", "\"three\"", 1));
    let changed = place.run("import data -t t -k id").code(1);
    assert!(changed.err.contains("E507"), "{}", changed.err);
    place.write("data", items(4));
    let shorter = place.run("import data -t t -k id").code(1);
    assert!(shorter.err.contains("now has only 4"), "{}", shorter.err);
    let whole = place
        .run("import data -t t -k id --again -o json")
        .ok()
        .json();
    assert_eq!(whole["imported"], 4);
    let whole = place.run("import data -t t -k id -o json").ok().json();
    assert_eq!(
        (&whole["imported"], &whole["already"]),
        (&json!(0), &json!(4))
    );
    place.run("topic rm t --yes").ok();
    let anew = place.run("import data -t t -k id -o json").ok().json();
    assert_eq!(
        anew["imported"], 4,
        "the new incarnation of the topic has no items yet"
    );
}

#[test]
fn an_invalid_line_is_reported_and_the_caller_selects_what_happens() {
    let place = Place::new();
    let text = "{\"id\":1}\n{\"id\":2,}\n\n  {\"id\":3}\n{\"x\":4}\n{\"id\":5}";
    place.write("data", text);
    let stopped = place.run("import data -t t -k $.id -o json").code(1);
    assert!(stopped.err.contains("line 2 column 9"), "{}", stopped.err);
    assert!(stopped.err.contains("E506"), "{}", stopped.err);
    assert_eq!(stopped.json()["imported"], 1);
    assert_eq!(stopped.json()["complete"], false);
    let rest = place
        .run("import data -t t -k $.id --on-error dead-letter=dead -o json")
        .ok();
    let rest = rest.json();
    let expect = json!([2, 1, 2, true]);
    assert_eq!(
        json!([
            rest["imported"],
            rest["already"],
            rest["broken"],
            rest["complete"]
        ]),
        expect
    );
    let dead = std::fs::read_to_string(place.path("dead")).unwrap();
    let letters: Vec<serde_json::Value> = dead
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let items = letters.iter().map(|letter| &letter["item"]);
    assert_eq!(items.collect::<Vec<_>>(), ["{\"id\":2,}", "{\"x\":4}"]);
    assert_eq!(
        (&letters[0]["line"], &letters[0]["column"]),
        (&json!(2), &json!(9))
    );
    assert_eq!(letters[0]["whole"], true);
    place
        .run("import data -t t -k $.id --on-error dead-letter=dead")
        .ok();
    let dead = std::fs::read_to_string(place.path("dead")).unwrap();
    assert_eq!(dead.lines().count(), 2, "dead letters are written once");
    assert_eq!(place.run("get t --key 3").ok().text(), "{\"id\":3}");
    place.write("data", text.replace(",}", "}"));
    let mended = place
        .run("import data -t t -k $.id --on-error skip")
        .code(1);
    assert!(mended.err.contains("E507"), "{}", mended.err);
    let fresh = place
        .run("import data -t u -k $.id --on-error skip -o json")
        .ok()
        .json();
    assert_eq!(
        (&fresh["imported"], &fresh["broken"]),
        (&json!(4), &json!(1))
    );
}

#[test]
fn a_compressed_input_is_refused_with_advice() {
    let place = Place::new();
    place.write(
        "a.gz",
        b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x03\0\0\0\0\0\0\0\0\0",
    );
    place.write("a.zst", zstd::encode_all(&b"1\n"[..], 0).unwrap());
    for name in ["a.gz", "a.zst"] {
        let line = format!("import {name} -t t --on-error skip");
        let done = place.run(&line).code(1);
        assert!(done.err.contains("the input is compressed"), "{}", done.err);
    }
}

#[test]
fn dead_letters_are_written_once_and_never_by_a_dry_run() {
    let place = Place::new();
    let long = format!("\"{}\"", "x".repeat(3 << 20));
    place.write("data", format!("oops\n1\n{long}\n{{\n"));
    let line = "import data -t t --on-error dead-letter=dead -o json";
    let dry = place.run(&format!("{line} --dry-run")).ok();
    assert!(
        dry.err.contains("skipped line 1 column 1: expected value"),
        "{}",
        dry.err
    );
    let many = place
        .pipe("import - -t t --dry-run --on-error skip", "x\n".repeat(20))
        .ok();
    assert_eq!(many.err.matches("skipped line").count(), 10);
    assert!(
        many.err.contains("further invalid items are only counted"),
        "{}",
        many.err
    );
    let dry = dry.json();
    assert_eq!(dry["broken"], 3);
    assert!(!place.path("dead").exists());
    let letters = || {
        let text = std::fs::read_to_string(place.path("dead")).unwrap();
        let spots = text.lines().map(|letter| {
            let letter: serde_json::Value = serde_json::from_str(letter).unwrap();
            (letter["line"].as_u64().unwrap(), letter["whole"] == true)
        });
        spots.collect::<Vec<_>>()
    };
    let expect = [(1, true), (3, false), (4, true)];
    for _ in 0..2 {
        assert_eq!(place.run(line).ok().json()["broken"], 3);
        assert_eq!(
            letters(),
            expect,
            "the letters after the last valid line too"
        );
    }
    // A letter that a crash truncated is written again, complete.
    let text = std::fs::read_to_string(place.path("dead")).unwrap();
    place.write("dead", &text[..text.len() - 5]);
    place.run(line).ok();
    let text = std::fs::read_to_string(place.path("dead")).unwrap();
    let whole = text.lines().filter(|line| line.ends_with('}')).count();
    assert_eq!((text.lines().count(), whole), (4, 3), "{text}");
    place
        .run("import data -t other --on-error dead-letter=dead")
        .ok();
    let text = std::fs::read_to_string(place.path("dead")).unwrap();
    assert_eq!(
        text.lines().count(),
        7,
        "another import writes its own letters"
    );
}

#[test]
fn dead_letters_are_never_written_to_the_input() {
    let place = Place::new();
    place.write("data", "oops\n");
    std::fs::hard_link(place.path("data"), place.path("link")).unwrap();
    for letters in ["./data", "link"] {
        let line = format!("import data -t t --on-error dead-letter={letters}");
        let refused = place.run(&line).code(2);
        let why = "must not be the input";
        assert!(refused.err.contains(why), "{}", refused.err);
    }
    let left = std::fs::read_to_string(place.path("data")).unwrap();
    assert_eq!(left, "oops\n");
}

#[test]
fn conditions_of_records_are_never_ignored() {
    let place = Place::new();
    let text =
        "{\"key\":\"a\",\"value\":1}\n{\"key\":\"a\",\"value\":2,\"expect\":{\"absent\":true}}\n";
    place.write("data", text);
    let refused = place.run("import data -t t --records").code(1);
    assert!(refused.err.contains("line 2"), "{}", refused.err);
    assert!(refused.err.contains("expect"), "{}", refused.err);
    assert_eq!(place.run("get t --key a").ok().text(), "1");
    let lines = "{\"key\":\"a\",\"value\":2,\"expect\":{\"absent\":true}}\n{\"key\":\"b\",\"value\":2}\n{\"key\":\"a\",\"value\":3}\n";
    let verdicts = place
        .pipe("put t - --format jsonl --if-present -o jsonl", lines)
        .code(3)
        .lines();
    let effects: Vec<_> = verdicts.iter().map(|line| line["effect"].clone()).collect();
    assert_eq!(effects, ["INVALID", "INVALID", "VALID"]);
}

#[test]
fn arrays_are_read_by_element_and_their_bytes_are_unchanged() {
    let place = Place::new();
    let text =
        "{\"about\":{\"x\":[0]},\n\"list\":[ {\"n\" : 1.0},\n\"two\\n\" ,[3] ,{\"n\":x} ]}\n";
    place.write("data", text);
    let stopped = place.run("import data -t t --path $.list").code(1);
    assert!(stopped.err.contains("line 3 column 20"), "{}", stopped.err);
    place
        .run("import data -t t --path $.list --on-error skip")
        .ok();
    let values = place.run("tail t --type put -o raw").ok().text();
    assert_eq!(values, "{\"n\" : 1.0}\n\"two\\n\"\n[3]\n");
    place.write("cut", &text[..text.len() - 3]);
    let cut = place
        .run("import cut -t u --path $.list --on-error skip")
        .code(1);
    assert!(cut.err.contains("E506"), "{}", cut.err);
    place.pipe("import - -t v", "[1,2]\n").ok();
    assert_eq!(place.run("tail v --type put -o raw").ok().text(), "1\n2\n");
    place
        .pipe("import - -t w --format jsonl", "\u{feff}[1,2]\n[3]\n")
        .ok();
    assert_eq!(
        place.run("tail w --type put -o raw").ok().text(),
        "[1,2]\n[3]\n"
    );
}

#[test]
fn an_import_restores_exported_records() {
    let place = Place::new();
    let input = "{\"key\":\"a\",\"value\":{\"x\": 1}}
{\"key64\":\"/wD/\",\"value64\":\"AAH/Aw==\",\"meta\":\"m\"}
{\"text\":\"line\\nline\"}
{\"key\":\"a\",\"delete\":true}
{\"value\":null}
{\"key\":\"b\",\"text\":\"\"}
";
    place.pipe("put t --format jsonl", input).ok();
    for format in ["jsonl", "json"] {
        let exported = place.run(&format!("export t -o {format}")).ok().out;
        let copy = format!("import - -t {format} --records");
        place.pipe(&copy, exported).ok();
        let fields = "--columns kind,key,value,meta -o jsonl";
        let before = place.run(&format!("export t {fields}")).ok().text();
        assert_eq!(
            place.run(&format!("export {format} {fields}")).ok().text(),
            before
        );
        assert_eq!(before.lines().count(), 6);
    }
    // Each byte of such a value has six bytes in JSON.
    let value = vec![1; 1 << 20];
    place.write("escaped", &value);
    place.run("put escaped @escaped").ok();
    let exported = place.run("export escaped").ok().out;
    assert!(exported.len() > 6 << 20, "{} bytes", exported.len());
    place.pipe("import - -t copy --records", &exported).ok();
    place.pipe("put lines - --format jsonl", exported).ok();
    for topic in ["copy", "lines"] {
        let read = place.run(&format!("get {topic} 2")).ok();
        assert!(read.out == value, "{topic}");
    }
    let latest = place
        .run("export t --latest --columns key,value")
        .ok()
        .text();
    assert_eq!(
        latest,
        "{\"key\":\"b\",\"text\":\"\"}\n{\"key64\":\"/wD/\",\"value64\":\"AAH/Aw==\"}\n"
    );
}

#[test]
fn items_that_the_topic_rejects_are_counted_with_the_reason() {
    let place = Place::new();
    place.run("topic create t keys-max=3").ok();
    place.write("data", items(10));
    let done = place.run("import data -t t -k id -o json").code(3);
    assert_eq!(
        (&done.json()["imported"], &done.json()["rejected"]),
        (&json!(3), &json!(7))
    );
    assert!(
        done.err.contains("line 4: INVALID QUOTA in t (E105)"),
        "{}",
        done.err
    );
    place.write("big", format!("\"{}\"\n1\n", "x".repeat(3 << 19)));
    let big = place.run("import big -t u").code(1);
    assert!(big.err.contains("over the limit of 1048576"), "{}", big.err);
    place.run("import big -t u --value-max 4MiB").ok();
    let dry = place
        .run("import data -t none -k id --dry-run -o json")
        .ok()
        .json();
    assert_eq!(dry["imported"], 10);
    place.run("topic show none").code(4);
}

#[test]
fn an_import_whose_session_was_removed_fails_without_again() {
    let place = Place::new();
    place.write("data", items(3));
    place.run("import data -t t -k id").ok();
    let store = weir::Weir::open(place.path("weir-data")).unwrap();
    let all = weir::Operation::ExpireSessions { idle_ms: 0 };
    store
        .propose(&[weir::Intention::new("", all)])
        .unwrap()
        .wait()
        .unwrap();
    store.close().unwrap();
    let forgotten = place.run("import data -t t -k id").code(6);
    assert!(forgotten.err.contains("E306"), "{}", forgotten.err);
    assert_eq!(place.run("topic show t -o json").ok().json()["last"], 4);
    place.run("import data -t t -k id --again").ok();
    assert_eq!(place.run("topic show t -o json").ok().json()["last"], 7);
}
