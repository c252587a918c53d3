//! Tests errors: three lines, a code, and the exit code of the table.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use crate::run::Place;

/// Checks the form of an error.
#[track_caller]
fn check(err: &str, code: &str) {
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 3, "{err}");
    assert!(
        lines[0].starts_with("weir: ") && lines[0].ends_with(&format!("({code})")),
        "{err}"
    );
    assert!(lines[1].starts_with("  why: "), "{err}");
    assert!(lines[2].starts_with("  try: "), "{err}");
}

#[test]
fn errors_have_three_lines_and_codes_that_help_explains() {
    let place = Place::new();
    for (line, code, exit) in [
        ("get t 1", "E406", 4),
        ("--at weir://127.0.0.1:1 --lock-wait 0s get t 1", "E503", 1),
        ("--at http://host get t 1", "E505", 2),
        ("get t 1 --at ftp://host", "E505", 2),
        ("put bad/name x", "E321", 2),
        ("context show none", "E406", 4),
        ("import nothing -t t", "E401", 1),
    ] {
        let done = place.run(line).code(exit);
        let errors: Vec<&str> = done
            .err
            .lines()
            .filter(|line| !line.contains("created a"))
            .collect();
        check(&errors.join("\n"), code);
        let help = place.run(&format!("help {code}")).ok().text();
        assert!(help.starts_with(code) && help.contains("Try:"), "{help}");
    }
    place.run("put t x").ok();
    check(&place.run("get t 7").code(4).err, "E318");
    check(&place.run("get t --key k").code(4).err, "E317");
    check(&place.run("tail u").code(4).err, "E316");
    check(&place.run("topic ls --columns nothing").code(2).err, "E415");
}

#[test]
fn help_reports_an_unknown_error_code() {
    let place = Place::new();
    for code in ["E999", "e7", "E99999999999"] {
        let help = place.run(&format!("help {code}")).code(2);
        let wanted = format!("there is no error code {code};");
        assert!(help.err.contains(&wanted), "{}", help.err);
        assert!(!help.err.contains("no command"), "{}", help.err);
    }
    // A word that only begins like a code is an unknown command.
    for word in ["E", "E1x", "exits"] {
        let help = place.run(&format!("help {word}")).code(2);
        assert!(
            help.err.contains(&format!("there is no command {word};")),
            "{}",
            help.err
        );
    }
}

#[test]
fn help_reports_a_word_after_a_command_without_subcommands() {
    let help = Place::new().run("help topic create extra").code(2);
    let wanted = "`weir topic create` has no subcommands; `weir help topic create` describes it\n";
    assert!(help.err.contains(wanted), "{}", help.err);
}

#[test]
fn an_invalid_command_line_exits_with_2_and_suggests_a_correction() {
    let place = Place::new();
    let typo = place.run("topik ls").code(2);
    assert!(
        typo.err.contains("similar subcommand exists: 'topic'"),
        "{}",
        typo.err
    );
    let typo = place.run("gte orders").code(2);
    assert!(
        typo.err.contains("similar subcommand exists: 'get'"),
        "{}",
        typo.err
    );
    let typo = place.run("help topics").code(2);
    assert!(typo.err.contains("did you mean topic?"), "{}", typo.err);
    place.run("put").code(2);
    place.run("get t").code(2);
    place.run("get t 1 --key k").code(2);
    place.run("put t x --durability slow").code(2);
    let option = place.run("put t x --if-absnt").code(2);
    assert!(option.err.contains("--if-absent"), "{}", option.err);
}

#[test]
fn a_directory_in_use_names_its_owner() {
    let place = Place::new();
    let mut owner = place
        .weir()
        .args(["put", "t", "-", "--format", "jsonl", "-o", "jsonl"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = owner.stdin.take().unwrap();
    input.write_all(b"{\"value\":1}\n").unwrap();
    let mut first = String::new();
    let mut output = BufReader::new(owner.stdout.take().unwrap());
    output.read_line(&mut first).unwrap();
    assert!(
        first.contains("VALID"),
        "the owner has the store open: {first}"
    );
    let second = place.run("put t 2 --lock-wait 0s").code(5);
    check(second.err.trim_end(), "E404");
    let pid = owner.id().to_string();
    assert!(
        second.err.contains(&format!("process {pid} (weir)")),
        "{}",
        second.err
    );
    assert!(
        second.err.contains(&format!("kill {pid}")),
        "{}",
        second.err
    );
    drop(input);
    assert!(owner.wait().unwrap().success());
    place.run("get t 2").ok();
}

/// The text of the lock file may be missing, for example if the holder has locked it for reading.
#[test]
fn an_unknown_holder_of_a_directory_is_not_process_0() {
    let place = Place::new();
    place.run("put t x").ok();
    let lock = std::fs::File::open(place.path("weir-data/LOCK")).unwrap();
    lock.lock_shared().unwrap();
    let refused = place.run("put t y --lock-wait 0s").code(5);
    check(refused.err.trim_end(), "E404");
    assert!(
        refused.err.contains("another process has"),
        "{}",
        refused.err
    );
    // `kill 0` would end the shell of the user.
    for wrong in ["process 0", "kill", "1970"] {
        assert!(!refused.err.contains(wrong), "{}", refused.err);
    }
    let read = place.run("get t 2").ok();
    assert!(read.err.contains("another process has"), "{}", read.err);
}

#[test]
fn a_read_without_a_store_creates_no_files() {
    let place = Place::new();
    std::fs::create_dir(place.path("weir-data")).unwrap();
    let lines = [
        "get t 1",
        "tail t",
        "tail t -f",
        "topic ls",
        "topic rm t --yes",
        "export t",
        "compact",
    ];
    for line in lines {
        check(place.run(line).code(4).err.trim_end(), "E406");
    }
    for line in ["verify", "backup copy", "topic verify t"] {
        check(place.run(line).code(78).err.trim_end(), "E406");
    }
    let mut left = std::fs::read_dir(place.path("weir-data")).unwrap();
    assert!(left.next().is_none());
}

#[test]
fn the_exit_code_reports_the_verdict_if_standard_output_is_closed() {
    let place = Place::new();
    place.run("put t 1 --key k").ok();
    place.write("data", "1\noops\n");
    let unread = |line: &str, input: &str| {
        let mut command = place.weir();
        let mut child = command
            .args(line.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut to = child.stdin.take().unwrap();
        to.write_all(input.as_bytes()).unwrap();
        drop(to);
        crate::run::command_output(child.wait_with_output().unwrap())
    };
    let put = unread("put t 2 --key k --if-absent", "").code(3);
    assert!(put.err.contains("E104"), "{}", put.err);
    let import = unread("import data -t u", "").code(1);
    assert!(import.err.contains("line 2"), "{}", import.err);
    let lines = "{\"value\":1}\n".repeat(5000) + "oops\n";
    let put = unread("put v - --format jsonl -o jsonl --batch 1", &lines).code(1);
    assert!(put.err.contains("line 5001"), "{}", put.err);
    assert_eq!(place.run("topic show v -o json").ok().json()["last"], 5001);
}

/// As with a pager, whose user reads the first screen.
#[test]
fn a_reader_whose_output_stalls_does_not_block_writers() {
    let place = Place::new();
    // More than the capacity of a pipe.
    let values: Vec<String> = (0..3000).map(|n| format!("{n:0100}\n")).collect();
    let values = values.concat();
    place.pipe("put t - -q", &values).ok();
    for line in [
        "tail t --type put -o raw",
        "tail t --type put -o raw -f -n 3001",
        "export t -o raw",
    ] {
        let mut command = place.weir();
        command.args(line.split(' ')).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut printed = vec![0; 101];
        out.read_exact(&mut printed).unwrap();
        place.run("put t new --lock-wait 20s").ok();
        out.read_to_end(&mut printed).unwrap();
        assert!(child.wait().unwrap().success(), "{line}");
        assert!(printed.starts_with(values.as_bytes()), "{line}");
    }
}

#[test]
fn a_second_writer_waits_for_a_short_first_one() {
    let place = Place::new();
    place.run("put t 0").ok();
    let spawn = |n: u32| {
        let mut command = place.weir();
        command.args(["put", "t", &n.to_string(), "--lock-wait", "60s"]);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (1..=5).map(spawn).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(place.run("topic show t -o json").ok().json()["last"], 7);
}

#[test]
fn weaker_durability_is_noted_once() {
    let place = Place::new();
    let weak = place.run("put t x --durability interval:50ms").ok();
    assert!(
        weak.err.contains("a power cut can lose the last 50 ms"),
        "{}",
        weak.err
    );
    let weak = place.run("put t x --durability memory").ok();
    assert_eq!(weak.err.lines().count(), 1, "{}", weak.err);
    assert_eq!(place.run("put t x --durability each").ok().err, "");
    assert_eq!(place.run("put t x --durability memory -q").ok().err, "");
}

#[test]
fn a_full_file_system_of_standard_output_is_named() {
    let place = Place::new();
    place.run("put t x").ok();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut command = place.weir();
    command.args(["tail", "t"]).stdout(full.unwrap());
    let done = crate::run::command_output(command.output().unwrap()).code(5);
    check(done.err.trim_end(), "E403");
    let advice = "free space on the file system of standard output";
    assert!(done.err.contains(advice), "{}", done.err);
}

#[test]
fn a_fuel_limit_is_raised_at_a_server_only() {
    let place = Place::new();
    place.run("topic create t").ok();
    let over = place.run("topic set t fuel-max=20000000").code(1);
    check(over.err.trim_end(), "E309");
    let advice = "only a server accepts more, with a higher `program_fuel_max`";
    assert!(over.err.contains(advice), "{}", over.err);
}

#[test]
fn a_missing_file_and_a_bad_line_are_named() {
    let place = Place::new();
    for line in ["import none -t t", "program check none"] {
        let missing = place.run(line).code(1);
        check(missing.err.trim_end(), "E401");
        assert!(missing.err.contains("check the path;"), "{}", missing.err);
    }
    place.write("d.ndjson", "1\n2\nx\n");
    let bad = place.run("import d.ndjson -t t").code(1);
    let what = "line 3 column 1 of d.ndjson cannot be used";
    assert!(bad.err.contains(what), "{}", bad.err);
    place.write("d.json", "[1,");
    let bad = place.run("import d.json -t t").code(1);
    assert!(bad.err.contains(" of d.json cannot be used"), "{}", bad.err);
    let bad = place.pipe("import - -t t", "x\n").code(1);
    let what = "line 1 column 1 of the input cannot be used";
    assert!(bad.err.contains(what), "{}", bad.err);
}

#[test]
fn a_confirmation_needs_an_answer_and_an_existing_topic() {
    const SPAWN: &str = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    let place = Place::new();
    place.run("put t x").ok();
    let remove = |topic: &str, typed: &str| {
        let mut python = place.command("python3");
        python.args(["-c", SPAWN, env!("CARGO_BIN_EXE_weir")]);
        python.args(["topic", "rm", topic]);
        python.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let mut terminal = child.stdin.take().unwrap();
        terminal.write_all(typed.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        drop(terminal);
        crate::run::command_output(output).text()
    };
    // The end of the input, as Ctrl-D sends it.
    for typed in ["\u{4}", "\n"] {
        let done = remove("t", typed);
        assert!(done.contains("there was no answer"), "{done}");
    }
    let done = remove("t", "u\n");
    assert!(done.contains("another text was typed"), "{done}");
    let missing = remove("none", "\u{4}");
    assert!(missing.contains("there is no topic none"), "{missing}");
    assert!(!missing.contains("to remove the topic"), "{missing}");
    let done = remove("t", "t\n");
    assert!(done.contains("VALID"), "{done}");
    let again = remove("t", "t\n");
    assert!(again.contains("there is no topic t"), "{again}");
}

#[test]
fn a_closed_standard_error_changes_nothing() {
    let place = Place::new();
    let mut command = place.weir();
    command.args(["put", "t", "x", "--if-absent", "--key", "k"]);
    let mut child = command
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    let first = crate::run::command_output(child.wait_with_output().unwrap());
    assert_eq!(first.code, 0);
    let mut command = place.weir();
    command.args(["put", "t", "x", "--if-absent", "--key", "k"]);
    let mut child = command
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert_eq!(
        crate::run::command_output(child.wait_with_output().unwrap()).code,
        3
    );
}

#[test]
fn errors_are_json_if_rows_are_json() {
    let place = Place::new();
    place.run("put t x").ok();
    for line in ["get t 7 -o json", "-o jsonl get t 7"] {
        let done = place.run(line).code(4);
        let error: serde_json::Value = serde_json::from_str(&done.err).unwrap();
        assert_eq!(error["code"], "E318", "{error}");
        for key in ["error", "what", "why", "try"] {
            assert!(!error[key].as_str().unwrap().is_empty(), "{key}: {error}");
        }
    }
    check(&place.run("get t 7 -o table").code(4).err, "E318");
    // U+009B begins a command of some terminals.
    let name = place.words(&["get", "t\u{9b}2J", "1", "-o", "json"]);
    assert!(name.err.contains("t\\u009b2J"), "{}", name.err);
    assert!(!name.err.contains('\u{9b}'), "{}", name.err);
    let done = place.run("topic rm t -o json").code(2);
    let error: serde_json::Value = serde_json::from_str(&done.err).unwrap();
    assert_eq!(error["error"], "USAGE");
}

#[test]
fn a_value_is_found_under_the_names_that_it_has_in_json() {
    let place = Place::new();
    place.run("put t words --key k").ok();
    for (columns, row) in [
        ("key,text", "{\"key\":\"k\",\"text\":\"words\"}"),
        ("key64,value64", "{\"key\":\"k\",\"text\":\"words\"}"),
    ] {
        let done = place.run(&format!("get t --key k -o json --columns {columns}"));
        assert_eq!(done.ok().text().trim(), row);
    }
}

#[test]
fn a_file_that_is_larger_than_any_value_is_not_read_into_memory() {
    let place = Place::new();
    let large = std::fs::File::create(place.path("large")).unwrap();
    large.set_len(1 << 42).unwrap();
    let over = place.run("put t @large").code(1);
    check(over.err.trim_end(), "E309");
    assert!(over.err.contains("67108864 bytes"), "{}", over.err);
    assert!(!place.path("weir-data").exists());
}

/// A newer weir may have written the file, so unknown keys are preserved.
#[test]
fn unknown_keys_of_contexts_are_noted_once_and_preserved() {
    let place = Place::new();
    place.run("context create here ./data").ok();
    let path = place.path(".config/weir/contexts.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = format!("colour = \"red\"\n{text}ttl = 5\n");
    std::fs::write(&path, &text).unwrap();
    let done = place.run("context ls").ok();
    let expected = "contexts.toml has unknown keys: colour, contexts.here.ttl";
    assert_eq!(done.err.matches(expected).count(), 1, "{}", done.err);
    place.run("context create there ./other").ok();
    let text = std::fs::read_to_string(&path).unwrap();
    for kept in ["colour = \"red\"", "ttl = 5", "[contexts.there]"] {
        assert!(text.contains(kept), "{text}");
    }
}

#[test]
fn values_that_help_excludes_are_rejected() {
    let place = Place::new();
    let over = place.run("put t x --value-max 100MiB").code(2);
    assert!(over.err.contains("over the limit of 64MiB"), "{}", over.err);
    for line in [
        "get t 1 --lock-wait 2",
        "group create t g lease=2",
        "token create a --expires 2",
    ] {
        let unit = place.run(line).code(2);
        assert!(
            unit.err.contains("2 has no unit: write 2ms, 2s"),
            "{}",
            unit.err
        );
    }
    for line in [
        "cert ca --expires 2",
        "cert ca --expires 36h",
        "cert ca --expires 40000d",
    ] {
        place.run(line).code(2);
    }
    let option = place.run("topic create t retention-age=2").code(2);
    assert!(option.err.contains("2 has no unit"), "{}", option.err);
    let setting = place.run("serve --drain 2 --print-config").code(2);
    assert!(setting.err.contains("2 has no unit"), "{}", setting.err);
}
