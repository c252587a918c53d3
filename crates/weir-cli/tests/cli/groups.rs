//! Tests group, tail --group, and the retention of topics.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::run::Place;
use crate::served::Served;

#[test]
fn a_work_queue_over_several_commands() {
    let place = Place::new();
    for n in 1..=3 {
        place.run(&format!("put jobs job{n}")).ok();
    }
    place
        .run("group create jobs work attempts-max=2 dead-letters=jobs.dead")
        .ok();
    for lease in ["0s", "25h"] {
        let line = format!("group create jobs other lease={lease}");
        let done = place.run(&line).code(2);
        let option = format!("cannot use the option lease={lease}");
        assert!(done.err.contains(&option), "{}", done.err);
        assert!(done.err.contains("from 1ms to 24h"), "{}", done.err);
    }
    let again = place.run("group create jobs work").code(3);
    assert!(again.err.contains("E107"), "{}", again.err);
    let claimed = place
        .run("group claim jobs work --max 2 -o json")
        .ok()
        .json();
    let claim = claimed[0]["claim"].as_u64().unwrap();
    assert_eq!(claimed[0]["offset"], 2);
    assert_eq!(claimed[0]["text"], "job1");
    assert_eq!(claimed[1]["attempts"], 1);
    place
        .run(&format!("group ack jobs work 2 --claim {claim}"))
        .ok();
    place
        .run(&format!(
            "group nack jobs work 3 --claim {claim} --reason broken"
        ))
        .ok();
    let late = place
        .run(&format!("group ack jobs work 3 --claim {claim}"))
        .code(3);
    assert!(late.err.contains("E109"), "{}", late.err);
    let shown = place.run("group show jobs work -o json").ok().json();
    assert_eq!(shown["cursor"], 2);
    assert_eq!((&shown["lag"], &shown["waiting"]), (&json!(2), &json!(1)));
    let claimed = place
        .run("group claim jobs work --max 1 --member other -o json")
        .ok()
        .json();
    assert_eq!(
        (&claimed[0]["offset"], &claimed[0]["attempts"]),
        (&json!(3), &json!(2))
    );
    let claim = claimed[0]["claim"].as_u64().unwrap();
    place
        .run(&format!(
            "group nack jobs work 3 --claim {claim} --reason broken"
        ))
        .ok();
    // The next claim writes the dead letter of the record, and continues.
    let claimed = place
        .run("group claim jobs work --max 9 -o json")
        .ok()
        .json();
    assert_eq!(claimed.as_array().unwrap().len(), 1);
    assert_eq!(claimed[0]["text"], "job3");
    let letters = place.run("tail jobs.dead --type put -o json").ok().json();
    assert_eq!(letters[0]["value"]["reason"], "broken");
    assert_eq!(letters[1]["text"], "job2");
    let list = place.run("group ls -o json").ok().json();
    assert_eq!(
        (&list[0]["topic"], &list[0]["leased"]),
        (&json!("jobs"), &json!(1))
    );
    place.run("group reset jobs work start").ok();
    assert_eq!(
        place.run("group show jobs work -o json").ok().json()["cursor"],
        0
    );
    place.run("group rm jobs work --yes").ok();
    place.run("group show jobs work").code(4);
    place.run("group claim nothing work").code(4);
    place.run("group rm jobs work --yes").code(3);
}

#[test]
fn a_claim_waits_until_a_lease_ends() {
    let (local, remote) = (Place::new(), Place::new());
    let server = Served::new(&remote, "127.0.0.1:0", &[]);
    for (place, at) in [(&local, "data"), (&remote, server.url.as_str())] {
        let run = |line: &str| place.run(&format!("{line} --at {at}")).ok();
        run("put jobs job1");
        run("group create jobs work");
        run("group claim jobs work --lease 2s");
        let claimed = run("group claim jobs work --wait 10m -o json").json();
        let (offset, attempts) = (&claimed[0]["offset"], &claimed[0]["attempts"]);
        assert_eq!((offset, attempts), (&json!(2), &json!(2)));
        let claim = claimed[0]["claim"].as_u64().unwrap();
        run(&format!("group ack jobs work 2 --claim {claim}"));
        let none = run("group claim jobs work --wait 10ms -o jsonl");
        assert_eq!(none.text(), "");
    }
    local
        .run("group claim jobs work --wait soon --at data")
        .code(2);
}

#[test]
fn tail_as_a_group_prints_each_record_once() {
    let place = Place::new();
    for n in 1..=3 {
        place.run(&format!("put orders o{n}")).ok();
    }
    let tail = |words: &str| {
        place
            .run(&format!("tail orders --group mail -o raw{words}"))
            .ok()
            .text()
    };
    assert_eq!(tail(" -n 2"), "o1\no2\n");
    assert_eq!(tail(""), "o3\n");
    assert_eq!(tail(""), "");
    place.run("put orders o4").ok();
    assert_eq!(tail(""), "o4\n");
    // A group in another mode needs claims.
    for mode in ["shared", "keyed"] {
        place
            .run(&format!("group create orders {mode} mode={mode}"))
            .ok();
        let other = place.run(&format!("tail orders --group {mode}")).code(3);
        let claim = format!("`weir group claim orders {mode}`");
        for expected in [
            "(E110)",
            &format!("the mode of the group is {mode},"),
            &claim,
        ] {
            assert!(other.err.contains(expected), "{expected}: {}", other.err);
        }
        assert_eq!(other.text(), "");
    }
    let help = place.run("tail --help").ok().text();
    assert!(help.contains("needs a group of the mode `exclusive`"));
    place.run("tail orders other --group mail").code(2);
}

/// The pipe holds all records that the reader does not read.
#[test]
fn a_tail_acknowledges_only_the_records_that_the_reader_of_its_pipe_has_read() {
    let place = Place::new();
    let values: Vec<String> = (1..=300).map(|n| format!("{n}\n")).collect();
    place.pipe("put jobs - -q", values.concat()).ok();
    let mut command = place.weir();
    command.args("tail jobs --group work -o raw".split(' '));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut first = [0; 4];
    out.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"1\n2\n");
    drop(out);
    child.wait().unwrap();
    let shown = || place.run("group show jobs work -o json").ok().json();
    assert_eq!(shown()["cursor"], 0);
    let again = place.run("tail jobs --group work -o raw").ok().text();
    assert_eq!(again, values.concat());
    assert_eq!(shown()["cursor"], 301);
}

#[test]
fn a_group_of_a_directory_is_followed_while_other_processes_write() {
    let place = Place::new();
    place.run("put orders o1").ok();
    let mut command = place.weir();
    command.args("tail orders --group mail -o raw -f -n 4 --lock-wait 30s".split(' '));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    assert_eq!(line(), "o1");
    for n in 2..=3 {
        place.run(&format!("put orders o{n} --lock-wait 30s")).ok();
        assert_eq!(line(), format!("o{n}"));
    }
    // The records that it printed are done.
    place.run("put other x --lock-wait 30s").ok();
    let list = place
        .run("group show orders mail -o json --lock-wait 30s")
        .ok()
        .json();
    assert_eq!(list["lag"], 0);
    place.run("put orders o4 --lock-wait 30s").ok();
    assert_eq!(line(), "o4");
    assert!(child.wait().unwrap().success());
}

/// Records that were printed before the server was lost count too.
#[test]
fn the_limit_of_a_group_holds_across_the_loss_of_its_server() {
    let place = Place::new();
    let mut server = Served::new(&place, "127.0.0.1:0", &[]);
    let put = |value: &str| {
        place
            .run(&format!("put jobs {value} --at data --lock-wait 30s"))
            .ok();
    };
    put("a");
    let mut command = place.weir();
    command.args("tail jobs --group mail -o raw -f -n 2 --at data".split(' '));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = || lines.next().map(Result::unwrap);
    assert_eq!(line().as_deref(), Some("a"));
    let lag = || {
        let shown = place.run("group show jobs mail -o json --at data").ok();
        shown.json()["lag"].as_u64()
    };
    while lag() != Some(0) {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.kill();
    put("b");
    put("c");
    assert_eq!(line().as_deref(), Some("b"));
    assert_eq!(line(), None);
    assert!(child.wait().unwrap().success());
}

#[test]
fn retention_waits_for_a_group_and_a_later_read_fails() {
    let place = Place::new();
    place
        .run("topic create log retention-records=0 hold-for-groups=b,a")
        .ok();
    let info = place.run("topic show log -o json").ok().json();
    assert_eq!(info["hold_for_groups"], "a,b");
    assert_eq!(info["retention_records"], 0);
    place.run("put log x").ok();
    let retained = |first: u64| {
        let report = place.run("topic retain log -o json").ok().json();
        assert_eq!(report["first"], first, "{report}");
    };
    retained(1);
    place.run("topic set log hold-for-groups=a").ok();
    retained(1);
    place.run("tail log --group a").ok();
    // The ALTER is the newest record; groups skip it automatically.
    retained(0);
    place.run("put log y").ok();
    let gone = place.run("tail log --from 2").code(4);
    assert!(gone.err.contains("E313"), "{}", gone.err);
    assert_eq!(place.run("tail log -o raw").ok().text(), "y\n");
    assert_eq!(place.run("tail log --from -9 -o raw").ok().text(), "y\n");
    place
        .run("topic set log retention-age=7d retention-bytes=1GiB retention-records=none")
        .ok();
    let info = place.run("topic show log -o json").ok().json();
    assert_eq!(info["retention_age_ms"], 604_800_000);
    place.run("topic set log hold-for-groups=a/b").code(2);
}

#[test]
fn groups_give_equal_results_at_a_server_and_in_a_directory() {
    let local_place = Place::new();
    let remote_place = Place::new();
    let server = Served::new(&remote_place, "127.0.0.1:0", &[]);
    let lines = [
        "put jobs a",
        "put jobs b",
        "put jobs c",
        "group create jobs work attempts-max=1 dead-letters=jobs.dead",
        "group create jobs work",
        "group ls -o json --columns topic,group,mode,cursor,lag,leased,dead_letters",
        "group claim jobs work --max 2 -o json --columns claim,offset,attempts,value",
        "group ack jobs work 2 --claim 6",
        "group nack jobs work 3 --claim 6 --reason broken",
        "group ack jobs work 3 --claim 6",
        "group claim jobs work --max 9 -o json --columns claim,offset,attempts,value",
        "tail jobs.dead -o jsonl --columns offset,kind,value --from 3",
        "group show jobs work -o json --columns mode,cursor,lag,leased,waiting,members,dead_lettered",
        "group show jobs none",
        "group claim none work",
        "tail jobs --group mail -n 2 -o raw",
        "tail jobs --group mail -o raw",
        "tail jobs --group work",
        "group ls jobs -o json --columns group,mode,lag",
        "group reset jobs work start",
        "group rm jobs work --yes",
        "group rm jobs work --yes",
    ];
    for line in lines {
        let local = local_place.run(line);
        let remote = remote_place.run(&format!("{line} --at {}", server.url));
        assert_eq!(
            local.code, remote.code,
            "{line}: {} {}",
            local.err, remote.err
        );
        assert_eq!(local.text(), remote.text(), "{line}");
        if line == "tail jobs --group work" {
            assert_eq!(local.code, 3, "{}", local.err);
            assert!(remote.err.contains("(E110)"), "{}", remote.err);
        }
    }
    // Following ends after the limit.
    let remote = remote_place.run(&format!(
        "tail jobs --group new -f -n 3 -o raw --at {}",
        server.url
    ));
    assert_eq!(remote.ok().text().lines().count(), 3);
}
