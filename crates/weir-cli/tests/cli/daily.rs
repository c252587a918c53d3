//! Tests put, get, tail, delete, txn and topic.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::run::{Place, command_output};

#[test]
fn a_put_in_an_empty_directory_can_be_read() {
    let place = Place::new();
    let put = place.run(r#"put orders {"id":1}"#).ok();
    assert!(
        put.err.contains("created a new store in ./weir-data"),
        "{}",
        put.err
    );
    assert!(put.err.contains("created topic orders"), "{}", put.err);
    let put = place.run(r#"put orders {"id":2} --key k -o json"#).ok();
    assert_eq!(put.err, "");
    assert_eq!(put.json()["offset"], 3);
    assert_eq!(place.run("get orders --key k").ok().text(), r#"{"id":2}"#);
    assert_eq!(place.run("get orders 2").ok().text(), r#"{"id":1}"#);
    assert_eq!(place.run("get orders 9").code, 4);
    assert_eq!(place.run("get orders --key none").code, 4);
    assert_eq!(place.run("get nothing 1").code, 4);
    let refused = place.run("put nowhere x --no-create").code(3);
    assert!(refused.err.contains("E201"), "{}", refused.err);
}

#[test]
fn values_and_keys_are_any_bytes() {
    let place = Place::new();
    let bytes: Vec<u8> = (0..=255).collect();
    place.write("value", &bytes);
    place.run("put blobs @value --key-hex 00ff").ok();
    place.run("put blobs @@literal --key64 /wA=").ok();
    assert_eq!(place.run("get blobs --key64 AP8=").ok().out, bytes);
    assert_eq!(
        place.run("get blobs --key-hex ff00").ok().text(),
        "@literal"
    );
    let record = place.run("get blobs --key-hex 00ff -o json").ok().json();
    assert_eq!(record["term"], 1, "no cluster");
    assert_eq!(record["key64"], "AP8=");
    assert!(
        record["value64"]
            .as_str()
            .is_some_and(|text| text.starts_with("AAEC"))
    );
    let exported = place.run("export blobs").ok().out;
    place.pipe("import - -t copy --records", &exported).ok();
    assert_eq!(place.run("get copy --key-hex 00ff").ok().out, bytes);
    assert_eq!(place.run("put blobs x --key-hex 0g").code, 2);
}

#[test]
fn an_empty_key_is_rejected() {
    let place = Place::new();
    for key in ["--key=", "--key-hex=", "--key64="] {
        let put = place.words(&["put", "t", "x", key]).code(2);
        assert!(put.err.contains("must not be empty"), "{}", put.err);
        place.words(&["delete", "t", key]).code(2);
    }
    let line = place
        .pipe("put t --format jsonl", "{\"key\":\"\",\"value\":1}\n")
        .code(1);
    assert!(line.err.contains("the key is empty"), "{}", line.err);
    place
        .pipe("put t --format jsonl", "{\"key\":null,\"value\":1}\n")
        .ok();
    assert_eq!(place.run("topic show t -o json").ok().json()["last"], 2);
}

#[test]
fn a_put_whose_condition_fails_is_invalid() {
    let place = Place::new();
    place.run("put t 1 --key k --if-absent").ok();
    let late = place.run("put t 2 --key k --if-absent -o json").code(3);
    assert_eq!(late.json()["reason"], "CONFLICT");
    assert_eq!(late.json()["detail"], "actual offset 2");
    assert!(late.err.contains("E104"), "{}", late.err);
    place.run("put t 2 --key k --if-offset 2").ok();
    place.run("put t 3 --key k --if-offset 2").code(3);
    place
        .run("put t 3 --key k --if-offset 2 --accept-invalid")
        .ok();
    place.run("put t 3 --if-topic-offset 3").ok();
    place.run("delete t --key k --if-present").ok();
    place.run("delete t --key k --if-present").code(3);
    place.run("get t --key k").code(4);
}

#[test]
fn a_session_executes_a_repeated_put_once() {
    let place = Place::new();
    let line = "put t v --session me --nonce 1 -o json";
    let first = place.run(line).ok().json();
    let again = place.run(line).ok().json();
    assert_eq!(first["offset"], again["offset"]);
    assert_eq!(
        (&first["replayed"], &again["replayed"]),
        (&json!(false), &json!(true))
    );
    let empty = ["put", "t", "v", "--session", "", "--nonce", "1"];
    let empty = place.words(&empty).code(2);
    assert!(empty.err.contains("--session <NAME>"), "{}", empty.err);
    let other = place.run("put t other --session me --nonce 1").code(1);
    assert!(other.err.contains("E314"), "{}", other.err);
    assert_eq!(place.run("topic show t -o json").ok().json()["last"], 2);
}

#[test]
fn each_line_of_input_gets_a_verdict() {
    let place = Place::new();
    let plain = place.pipe("put t -", "one\r\ntwo\n\nfour").ok();
    assert!(
        plain.err.contains("4 records written to t, 0 not valid"),
        "{}",
        plain.err
    );
    assert_eq!(
        place.run("tail t --type put -o raw").ok().text(),
        "one\ntwo\n\nfour\n"
    );
    let input = r#"{"key":"a","value":{"n":1},"meta":"m"}
{"key64":"/w==","text":"plain"}
{"key":"a","value":null,"expect":{"absent":true}}
{"key":"a","delete":true,"expect":{"present":true}}
"#;
    let verdicts = place
        .pipe("put u --format jsonl -o jsonl", input)
        .code(3)
        .lines();
    let effects: Vec<_> = verdicts
        .iter()
        .map(|verdict| verdict["effect"].clone())
        .collect();
    assert_eq!(effects, ["VALID", "VALID", "INVALID", "VALID"]);
    assert_eq!(place.run("get u --key-hex ff").ok().text(), "plain");
    let bad = place
        .pipe(
            "put u --format jsonl",
            "{\"value\":1}\n{\"value\":1,\"kez\":2}\n",
        )
        .code(1);
    assert!(bad.err.contains("line 2 column 16"), "{}", bad.err);
    assert_eq!(
        place.run("topic show u -o json").ok().json()["last"],
        5,
        "line 1 was written"
    );
}

#[test]
fn a_transaction_is_all_or_nothing() {
    let place = Place::new();
    let steps = r#"{"key":"a","value":1}
{"key":"b","value":2}
{"key":"c","expect":{"absent":true}}
"#;
    let verdict = place.pipe("txn t -o json", steps).ok().json();
    assert_eq!(
        (&verdict["offset"], &verdict["records"]),
        (&json!(2), &json!(2))
    );
    place.run("put t x --key c").ok();
    place.pipe("txn t", steps.replace("2}", "3}")).code(3);
    assert_eq!(place.run("get t --key b").ok().text(), "2");
    place.pipe("txn t", "").code(1);
}

#[test]
fn tail_starts_at_a_position_merges_topics_and_selects_records() {
    let place = Place::new();
    for n in 1..=3 {
        place.run(&format!("put a.x x{n} --key k{n}")).ok();
        place.run(&format!("put a.y y{n}")).ok();
    }
    place.run("delete a.x --key k1").ok();
    let raw = |line: &str| place.run(line).ok().text();
    assert_eq!(
        raw("tail a.* -o raw --type put"),
        "x1\ny1\nx2\ny2\nx3\ny3\n"
    );
    assert_eq!(raw("tail a.x -o raw --type put --from 3"), "x2\nx3\n");
    assert_eq!(raw("tail a.x -o raw --from -2"), "x3\n\n");
    assert_eq!(raw("tail a.x -o raw --from end"), "");
    assert_eq!(raw("tail a.x -o raw --key-prefix k2"), "x2\n");
    assert_eq!(raw("tail a.x a.y -o raw --type put -n 2"), "x1\ny1\n");
    let last = place.run("tail a.x --from -1").ok().lines();
    assert_eq!(
        (&last[0]["kind"], &last[0]["key"]),
        (&json!("DELETE"), &json!("k1"))
    );
    let time = last[0]["time"].as_str().unwrap();
    assert_eq!(
        place
            .run(&format!("tail a.x --from {time}"))
            .ok()
            .lines()
            .len(),
        1
    );
    assert_eq!(raw("tail a.x --from 2999-01-01T00:00Z"), "");
    place.run("tail none").code(4);
    place.run("tail a.x --from soon").code(2);
}

#[test]
fn the_patterns_of_a_tail_select_the_topics_that_exist() {
    let place = Place::new();
    for topic in ["a.x", "a.y"] {
        place.run(&format!("put {topic} {topic}")).ok();
    }
    place.run("topic rm a.x --yes").ok();
    for pattern in ["a.*", "**"] {
        let tail = place.run(&format!("tail {pattern} -o raw --type put"));
        assert_eq!(tail.ok().text(), "a.y\n", "{pattern}");
    }
    let unmatched = [
        "tail b.*",
        "tail a.x.*",
        "tail a*",
        "tail a.y a*",
        "tail **.y -f",
    ];
    for line in unmatched {
        let none = place.run(line).code(4);
        assert!(none.err.contains("no topic matches"), "{}", none.err);
    }
    let part = place.run("tail a.y b.* -o raw --type put").ok();
    assert_eq!(part.text(), "a.y\n");
    assert!(part.err.contains("no topic matches b.*"), "{}", part.err);
}

#[test]
fn a_tail_that_follows_notes_the_names_without_a_topic() {
    let place = Place::new();
    place.run("put t 1").ok();
    let mut command = place.weir();
    command.args("tail t nope x.* -f -n 2 --type put -o raw".split(' '));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "1");
    place.run("put nope 2 --lock-wait 60s").ok();
    let ended = child.wait_with_output().unwrap();
    let notes = String::from_utf8(ended.stderr).unwrap();
    for name in ["nope", "x.*"] {
        let note = format!("no topic matches {name}; waiting for one");
        assert!(notes.contains(&note), "{notes}");
    }
    assert!(!notes.contains("matches t;"), "{notes}");
}

#[test]
fn a_follower_reads_the_writes_of_other_processes_and_does_not_block_them() {
    let place = Place::new();
    place.run("put t 1").ok();
    let mut command = place.weir();
    command.args(["tail", "t", "-f", "--type", "put", "-n", "4", "-o", "raw"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "1");
    for n in 2..=4 {
        // The follower has the directory open for a moment.
        place.run(&format!("put t {n} --lock-wait 60s")).ok();
        assert_eq!(lines.next().unwrap().unwrap(), n.to_string());
    }
    assert!(child.wait().unwrap().success());
    assert!(lines.next().is_none());
}

#[test]
fn followers_do_not_wake_each_other_and_wait_without_work() {
    let place = Place::new();
    place.run("put t 1").ok();
    let follow = |name: &str| {
        let mut command = place.weir();
        command.args([
            "tail", "t", "-f", "--type", "put", "-n", "2", "-o", "raw", "-v",
        ]);
        command.args(["--lock-wait", "0s"]);
        command.stderr(std::fs::File::create(place.path(name)).unwrap());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "1");
        (child, lines)
    };
    let mut followers = [follow("a"), follow("b"), follow("c")];
    // The pause gives the followers time to wake each other, if they do.
    std::thread::sleep(Duration::from_millis(1500));
    let mut writer = place.weir();
    writer.args([
        "put",
        "t",
        "-",
        "-q",
        "--format",
        "jsonl",
        "-o",
        "jsonl",
        "--lock-wait",
        "60s",
    ]);
    let mut writer = writer
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = writer.stdin.take().unwrap();
    input.write_all(b"{\"text\":\"2\"}\n").unwrap();
    let mut verdict = String::new();
    let mut output = BufReader::new(writer.stdout.take().unwrap());
    output.read_line(&mut verdict).unwrap();
    let before = followers.each_ref().map(|(child, _)| cpu_ticks(child.id()));
    std::thread::sleep(Duration::from_secs(1));
    let after = followers.each_ref().map(|(child, _)| cpu_ticks(child.id()));
    for (before, after) in before.iter().zip(after) {
        assert!(
            after - before < 20,
            "a waiting follower works: {before} {after}"
        );
    }
    drop(input);
    assert!(writer.wait().unwrap().success());
    for (child, lines) in &mut followers {
        assert_eq!(lines.next().unwrap().unwrap(), "2");
        assert!(child.wait().unwrap().success());
    }
    let opens = |name: &str| {
        let notes = std::fs::read_to_string(place.path(name)).unwrap();
        notes.matches("opened").count()
    };
    // Each follower opens the store once at its start, and once for the writer. A start beside
    // another open can cost one more each.
    let all = ["a", "b", "c"].map(opens);
    assert!(all.iter().sum::<usize>() <= 12, "{all:?}");
}

/// CPU time of a process, in hundredths of a second.
fn cpu_ticks(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = text.rsplit_once(") ").unwrap();
    let times = fields.split(' ').skip(11).take(2);
    times.map(|time| time.parse::<u64>().unwrap()).sum()
}

#[test]
fn all_nouns_have_the_same_verbs_and_old_spellings_are_rejected() {
    let place = Place::new();
    let verbs = |noun: &str| {
        let help = place.run(&format!("{noun} --help")).ok().text();
        let (_, list) = help.split_once("Commands:\n").unwrap();
        let lines = list.lines().take_while(|line| line.starts_with("  "));
        let names = lines.map(|line| line.trim().split(' ').next().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    for (noun, common) in [
        ("topic", &["create", "ls", "show", "set", "rm"][..]),
        ("group", &["create", "ls", "show", "rm"]),
        ("context", &["create", "ls", "show", "set", "rm"]),
        ("token", &["create", "ls"]),
        ("config", &["create", "show"]),
        ("program", &["ls", "show"]),
        ("cert", &["show"]),
        ("jira project", &["create", "ls", "set", "rm"]),
    ] {
        let found = verbs(noun);
        for verb in common {
            assert!(found.iter().any(|name| name == verb), "{noun}: {found:?}");
        }
        for gone in [
            "new", "add", "info", "delete", "init", "alter", "describe", "list", "edit",
        ] {
            // `program new` creates a project, not a program in a store.
            let own = (noun, gone) == ("program", "new");
            assert!(own || !found.iter().any(|name| name == gone), "{found:?}");
        }
    }
    for line in [
        "topic info t",
        "topic alter t keys-max=1",
        "topic create t keys_max=1",
        "topic create t retention-age-ms=1s",
        "group create t g --mode shared",
        "group delete t g",
        "token new a -r all",
        "context add a ./a",
        "config init",
        "check",
        "put t - --jsonl",
        "import x -t t --format ndjson",
        "tail t --raw",
        "tail t --from first",
        "tail t --since 1h",
        "query --from t",
        "query --topic t --since 1h",
        "tail t -o ndjson",
        "cert ca --days 3",
        "jira list",
        "jira edit AA-1 summary=x",
        "jira delete AA-1 --yes",
    ] {
        place.run(line).code(2);
    }
    for verb in ["create", "ls", "show", "set", "rm"] {
        // The help of `jira` lists its commands in groups.
        place.run(&format!("jira {verb} --help")).ok();
    }
    // Data is removed only with an explicit confirmation.
    place.run("put t x").ok();
    place.run("group create t g").ok();
    let asked = place.run("group rm t g").code(2);
    assert!(asked.err.contains("--yes"), "{}", asked.err);
    place.run("group rm t g --yes").ok();
    place.run("context create a ./a").ok();
    let twice = place.run("context create a ./b").code(2);
    assert!(twice.err.contains("weir context set a"), "{}", twice.err);
    place.run("context set a --default-output json").ok();
    let shown = place.run("context show a -o json").ok().json();
    assert_eq!(shown["output"], "json");
    assert!(shown["at"].as_str().unwrap().ends_with("/a"));
}

#[test]
fn positions_are_the_same_for_a_tail_a_query_and_a_group() {
    let place = Place::new();
    // The CREATE has offset 1. Each value is its offset.
    for n in 2..=5 {
        place.run(&format!("put t {n}")).ok();
    }
    // Midnight can pass between the writes and the read; then no record is of today.
    let time = command_output(place.command("date").arg("+%H%M").output().unwrap());
    let today = if time.ok().text().as_str() < "2350" {
        "today"
    } else {
        "1h"
    };
    for (from, first) in [
        ("start", 1),
        ("4", 4),
        ("-1", 5),
        ("1h", 1),
        (today, 1),
        ("2020-01-01", 1),
        ("2020-01-01T00:00Z", 1),
        ("2999-01-01", 6),
        ("end", 6),
    ] {
        let tail = place.run(&format!("tail t --from {from} -o jsonl")).ok();
        let found = tail
            .lines()
            .first()
            .map_or(6, |line| line["offset"].as_u64().unwrap());
        assert_eq!(found, first, "{from}");
        let query = place.run(&format!("query -t t --from {from}")).ok();
        let values: Vec<u64> = query
            .text()
            .lines()
            .map(|value| value.parse().unwrap())
            .collect();
        assert!(values.into_iter().eq(first.max(2)..=5), "{from}");
        place.run("group create t g from=end").ok();
        place.run(&format!("group reset t g {from}")).ok();
        let cursor = |group: &str| {
            let shown = place.run(&format!("group show t {group} -o json")).ok();
            shown.json()["cursor"].as_u64().unwrap()
        };
        // `start` is before the first record, so its offset is one lower.
        assert_eq!(cursor("g") + 1, first, "{from}");
        place.run(&format!("group create t other from={from}")).ok();
        assert_eq!(cursor("other") + 1, first, "{from}");
        place.run("group rm t g -y").ok();
        place.run("group rm t other -y").ok();
    }
    for line in [
        "tail t --from soon",
        "query -t t --from soon",
        "group reset t g soon",
        "group create t g from=soon",
    ] {
        let refused = place.run(line).code(2);
        assert!(
            refused.err.contains("write start, end, an offset, -N"),
            "{}",
            refused.err
        );
    }
}

#[test]
fn topics_are_created_altered_listed_and_removed() {
    let place = Place::new();
    place
        .run("topic create s compaction=latest keys-max=2 tombstone-ttl=1h")
        .ok();
    place.run("topic create s").code(3);
    place.run("topic set s keys-max=1 tombstone-ttl=none").ok();
    let info = place.run("topic show s -o json").ok().json();
    assert_eq!(info["compaction"], "latest");
    assert_eq!(info["keys_max"], 1);
    assert_eq!(info["tombstone_ttl_ms"], json!(null));
    place.run("put s 1 --key a").ok();
    let quota = place.run("put s 1 --key b").code(3);
    assert!(quota.err.contains("E105"), "{}", quota.err);
    let altered = place.run("tail s --type alter").ok().lines();
    assert_eq!(altered[0]["value"]["keys_max"], 1);
    let asked = place.run("topic rm s").code(2);
    assert!(asked.err.contains("--yes"), "{}", asked.err);
    place.run("topic rm s --yes").ok();
    assert_eq!(place.run("topic ls -o json").ok().json(), json!([]));
    assert_eq!(
        place.run("topic ls --all -o json").ok().json()[0]["live"],
        false
    );
    assert_eq!(
        place.run("topic verify s -o json").ok().json()["records"],
        4
    );
    place.run("topic create s wrong=1").code(2);
    place.run("topic create s value-bytes-max=0").code(2);
    place.run("topic create .hidden").code(2);
    place.run("topic show none").code(4);
}

#[test]
fn a_closed_output_ends_the_command_without_an_error() {
    let place = Place::new();
    place.pipe("put t -", "x\n".repeat(50_000)).ok();
    let mut child = place
        .weir()
        .args(["tail", "t"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    let done = crate::run::command_output(child.wait_with_output().unwrap());
    // The signal PIPE ended the command without a message.
    assert_eq!((done.code, done.err.as_str()), (-1, ""));
}
