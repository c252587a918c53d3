//! `weir bench workload`: workload files of the OpenMessaging Benchmark, at a server and in a
//! directory.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::run::{Place, command_output};
use crate::served::Served;

const FILE: &str = "\
name: two topics, with keys

topics: 2
partitionsPerTopic: 3
messageSize: 256
payloadFile: payload.data
keyDistributor: KEY_ROUND_ROBIN
subscriptionsPerTopic: 2
producersPerTopic: 2
consumerPerSubscription: 1
producerRate: 1000
testDurationMinutes: 15
";

/// A directory with workload files.
fn prepared() -> Place {
    let place = Place::new();
    place.write("payload.data", [b'p'; 256]);
    place.write("keys.yaml", FILE);
    let shared = FILE.replace("consumerPerSubscription: 1", "consumerPerSubscription: 3");
    place.write("shared.yaml", shared);
    place.write(
        "backlog.yaml",
        format!("{FILE}consumerBacklogSizeGB: 0.0001\n"),
    );
    place.write(
        "closed.yaml",
        FILE.replace("producerRate: 1000", "producerRate: 0"),
    );
    place
}

/// Runs the file for 0.3 s after a warm-up. Returns the rows.
fn rows(place: &Place, file: &str, warmup: &str, at: &str) -> Vec<Value> {
    let times = format!("--warmup {warmup} --duration 300ms");
    let done = place.run(&format!("bench workload {file} {times} --at {at} -o json"));
    let done = done.ok();
    let note = "partitionsPerTopic does not apply: a topic is one ordered log";
    assert!(done.err.contains(note), "{}", done.err);
    let rows = done.json().as_array().unwrap().clone();
    for row in &rows {
        assert_eq!(row["complete"], true, "{row}");
        let us = |name: &str| row[name].as_u64();
        let latencies = ["p50_us", "p90_us", "p99_us", "p999_us", "max_us"].map(us);
        assert!(latencies.is_sorted(), "{row}");
        assert_eq!(latencies[0].is_none(), row["verb"] == "drain", "{row}");
    }
    rows
}

/// Verb, clients, messages and bytes of each row.
fn counts(rows: &[Value]) -> Vec<(&str, u64, u64, u64)> {
    let count = |row: &Value, name: &str| row[name].as_u64().unwrap();
    let of_row = |row| {
        (
            count(row, "clients"),
            count(row, "messages"),
            count(row, "bytes"),
        )
    };
    let rows = rows
        .iter()
        .map(|row| (row["verb"].as_str().unwrap(), of_row(row)));
    rows.map(|(verb, (clients, messages, bytes))| (verb, clients, messages, bytes))
        .collect()
}

#[test]
fn a_workload_publishes_and_delivers_the_messages_of_its_file() {
    let place = prepared();
    let served = Served::new(&place, ":0", &[]);
    for at in [served.url.as_str(), "other"] {
        // 1,000 messages a second for 0.3 s; each subscription gets all messages of its topic.
        let expected = |consumers| {
            [
                ("publish", 4, 300, 300 * 256),
                ("delay", 4, 300, 300 * 256),
                ("deliver", consumers, 600, 600 * 256),
            ]
        };
        let alone = rows(&place, "keys.yaml", "100ms", at);
        assert_eq!(counts(&alone), expected(4));
        // The messages with those of the warm-up, and the record that created the topic.
        for topic in ["bench-1", "bench-2"] {
            let info = place.run(&format!("topic show {topic} --at {at} -o json"));
            assert_eq!(info.ok().json()["last"], 201, "{topic}");
        }
        place
            .run(&format!("get bench-1 --key key-0 --at {at}"))
            .ok();
        place
            .run(&format!("get bench-2 --key key-0 --at {at}"))
            .code(4);
        let shared = rows(&place, "shared.yaml", "100ms", at);
        assert_eq!(counts(&shared), expected(12));
        let groups = place
            .run(&format!("group ls bench-1 --at {at} -o json"))
            .ok();
        assert_eq!(groups.json().as_array().unwrap().len(), 0);
    }
}

#[test]
fn a_backlog_is_complete_before_consumers_read_it() {
    let place = prepared();
    let rows = rows(&place, "backlog.yaml", "100ms", "data");
    // 0.0001 GB are 209.7 messages of 256 bytes for two subscriptions, and 100 messages of the warm-up.
    assert_eq!(
        counts(&rows),
        [
            ("publish", 4, 300, 300 * 256),
            ("delay", 4, 300, 300 * 256),
            ("deliver", 4, 600, 600 * 256),
            ("drain", 4, 620, 620 * 256),
        ]
    );
}

#[test]
fn without_a_rate_producers_send_as_fast_as_they_can() {
    let place = prepared();
    let rows = rows(&place, "closed.yaml", "0s", "data");
    let counted = counts(&rows);
    let messages = |row: usize| counted[row].2;
    assert!(messages(0) > 0 && messages(1) == messages(0), "{counted:?}");
    assert_eq!(messages(2), 2 * messages(0));
}

/// A topic whose program rejects the messages of the workload.
fn reject(place: &Place, topic: &str, at: &str) {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let module = std::fs::read(root.join("programs/prebuilt/balance.wasm"));
    place.write("balance.wasm", module.unwrap());
    let deploy = format!("program deploy {topic} balance.wasm --at {at}");
    place.run(&deploy).ok();
}

#[test]
fn an_error_of_a_producer_ends_the_run_and_leaves_no_group() {
    let place = prepared();
    let backlog = FILE.replace("consumerPerSubscription: 1", "consumerPerSubscription: 3");
    place.write(
        "rejected.yaml",
        format!("{backlog}consumerBacklogSizeGB: 0.0001\n"),
    );
    let served = Served::new(&place, ":0", &[]);
    for at in [served.url.as_str(), "other"] {
        reject(&place, "bench-1", at);
        let line = format!("bench workload rejected.yaml --warmup 0s --duration 20s --at {at}");
        let done = place.run(&line).code(3);
        let rejected = "INVALID REJECTED in bench-1";
        assert!(done.err.contains(rejected), "{}", done.err);
        let other = place.run(&format!("topic show bench-2 --at {at} -o json"));
        let last = other.ok().json()["last"].as_u64().unwrap();
        assert!(last < 10_000, "the other producers ended too: {last}");
        for topic in ["bench-1", "bench-2"] {
            let groups = place.run(&format!("group ls {topic} --at {at} -o json"));
            assert_eq!(groups.ok().json().as_array().unwrap().len(), 0, "{topic}");
        }
    }
}

#[test]
fn a_producer_has_no_more_messages_in_flight_than_its_window() {
    let place = prepared();
    place.write(
        "one.yaml",
        "topics: 1\nmessageSize: 100\nproducerRate: 0\nsubscriptionsPerTopic: 0\n",
    );
    reject(&place, "bench-1", "data");
    // Number of an intention that is rejected.
    let intention = || {
        let put = place.run("put bench-1 x --at data -o json").code(3);
        put.json()["intention"].as_u64().unwrap()
    };
    let before = intention();
    let line = "bench workload one.yaml --window 1 --warmup 0s --duration 10s --at data";
    place.run(line).code(3);
    // The first message is rejected, and its permit is not returned.
    assert_eq!(intention(), before + 2);
}

#[test]
fn messages_of_another_run_are_not_counted() {
    let place = prepared();
    let served = Served::new(&place, ":0", &[]);
    let start = |file: &str| {
        let line = format!("bench workload {file} --warmup 100ms --duration 500ms -o json");
        let mut command = place.weir();
        command.args(line.split(' ')).args(["--at", &served.url]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let running = ["keys.yaml", "shared.yaml"].map(start);
    for (child, consumers) in running.into_iter().zip([4, 12]) {
        let done = command_output(child.wait_with_output().unwrap()).ok();
        let rows = done.json().as_array().unwrap().clone();
        let counted = counts(&rows);
        assert_eq!(counted[2], ("deliver", consumers, 1_000, 1_000 * 256));
    }
}

#[test]
fn a_file_that_cannot_be_run_is_reported_with_the_reason() {
    let place = prepared();
    place.write("unknown.yaml", "topics: 1\nmessageSise: 100\n");
    place.write(
        "short.yaml",
        FILE.replace("messageSize: 256", "messageSize: 255"),
    );
    place.write(
        "tiny.yaml",
        FILE.replace("messageSize: 256", "messageSize: 15"),
    );
    for (file, reason) in [
        (
            "tiny.yaml",
            "line 5: messageSize must be a whole number from 16",
        ),
        ("unknown.yaml", "line 2: messageSise is not a field"),
        (
            "short.yaml",
            "payloadFile payload.data: the file has 256 bytes, and messageSize is 255",
        ),
        ("missing.yaml", "missing.yaml"),
    ] {
        let done = place.run(&format!("bench workload {file} --at data"));
        assert_ne!(done.code, 0);
        assert!(done.err.contains(reason), "{}", done.err);
    }
}
