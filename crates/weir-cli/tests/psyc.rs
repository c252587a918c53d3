//! Tests `weir psyc` with the shared vectors.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a failed unwrap is a failed test"
)]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A case of a vector file: title, settings, expected lines.
struct Case {
    title: String,
    settings: Vec<(String, String)>,
    expected: Vec<String>,
}

impl Case {
    fn setting(&self, name: &str) -> Option<&str> {
        let found = self.settings.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        let text = self.setting(name).unwrap_or_default();
        weir_psyc::unescape(text.as_bytes()).expect("escapes")
    }

    /// Compares the output with the expected lines, and the exit code with the output.
    fn check(&self, (code, output): (i32, String), how: &str) {
        let lines = output
            .lines()
            .map(|line| line.replace('\t', " ␉ ").trim_end().to_owned());
        let lines: Vec<String> = lines.collect();
        assert_eq!(lines, self.expected, "{} ({how})", self.title);
        let broken = lines
            .iter()
            .any(|line| line.starts_with("error") || line == "eof ␉ partial");
        assert_eq!(code, i32::from(broken), "{} ({how})", self.title);
    }
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/psyc"))
}

fn cases(file: &str, settings: &[&str]) -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join(file)).expect("vector file");
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "==" {
            let title = format!("{file}: {rest}");
            cases.push(Case {
                title,
                settings: Vec::new(),
                expected: Vec::new(),
            });
        } else if let Some(case) = cases.last_mut() {
            if settings.contains(&word) {
                case.settings.push((word.to_owned(), rest.to_owned()));
            } else if !line.is_empty() {
                case.expected.push(line.trim_end().to_owned());
            }
        }
    }
    assert!(!cases.is_empty(), "{file}");
    println!("{file}: {} cases", cases.len());
    cases
}

/// Runs `weir psyc` with `input`: exit code and standard output.
fn psyc(args: &[&str], input: &[u8]) -> (i32, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("psyc")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that reads an argument instead of its input may already have ended.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

#[test]
fn packets_print_their_events_for_every_piece_size() {
    for case in cases("packets.txt", &["in", "mode"]) {
        let input = case.bytes("in");
        let mode: &[&str] = match case.setting("mode") {
            Some("routing-only") => &["packet", "-r"],
            Some("content") => &["packet", "-c"],
            _ => &["packet"],
        };
        case.check(psyc(mode, &input), "whole");
        for pieces in ["1", "2", "7"] {
            case.check(psyc(&[mode, &["-b", pieces]].concat(), &input), pieces);
        }
    }
}

#[test]
fn parts_are_printed_when_they_arrive_on_request() {
    let input = b"28\n_message\nMind the eel trap.\n|\n";
    let (code, text) = psyc(&["packet", "-1", "-b", "20"], input);
    let expected =
        "body-start\t_message\t18\tMind the\nbody-end\t eel trap.\ncomplete\neof\tclean\n";
    assert_eq!((code, text.as_str()), (0, expected));
    let (_, joined) = psyc(&["packet", "-b", "20"], input);
    assert_eq!(
        joined,
        "body\t_message\tlen\tMind the eel trap.\ncomplete\neof\tclean\n"
    );
    let (_, routed) = psyc(&["packet", "-r", "-1", "-b", "20"], input);
    assert!(
        routed.starts_with("content-start\t28\t_message\\x0aMind the\ncontent-end\t"),
        "{routed}"
    );
}

#[test]
fn values_print_as_in_the_vectors() {
    for (file, command) in [
        ("lists.txt", "list"),
        ("dicts.txt", "dict"),
        ("indexes.txt", "index"),
        ("updates.txt", "update"),
    ] {
        for case in cases(file, &["in"]) {
            let input = case.bytes("in");
            case.check(psyc(&[command], &input), "from standard input");
            if command == "list" {
                case.check(psyc(&[command, "-b", "1"], &input), "byte by byte");
            }
            if let Ok(argument) = std::str::from_utf8(&input) {
                case.check(psyc(&[command, argument], b"not this"), "as an argument");
            }
        }
    }
}

#[test]
fn uniforms_print_their_parts() {
    for case in cases("uniforms.txt", &["in"]) {
        let (code, output) = psyc(&["uniform"], &case.bytes("in"));
        if code != 0 {
            case.check((code, output), "refused");
            continue;
        }
        for line in &case.expected {
            let (name, part) = line.split_once(" ␉").unwrap();
            let printed = output
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{name}\t")));
            // The kind of a person is printed like an absent part.
            let absent = printed == Some("~") && name != "kind";
            let printed = printed.filter(|_| !absent).unwrap_or_default();
            assert_eq!(printed, part.trim(), "{}: {name}", case.title);
        }
    }
    let (_, output) = psyc(&["uniform", "psyc://lock.example"], b"");
    assert!(
        output.contains("resource\t~\n") && output.contains("nick\t~\n"),
        "{output}"
    );
}

#[test]
fn templates_are_expanded_for_every_buffer_size() {
    let values = ["_a=1", "_nick=heron", "_e="];
    for case in cases("templates.txt", &["in"]) {
        let input = case.bytes("in");
        let plain = psyc(&[&["text"], &values[..]].concat(), &input);
        let (code, text) = &plain;
        assert_eq!(*code, 0);
        let mut lines = text.lines();
        let result = lines.next().unwrap().to_owned();
        let ended = lines.next().unwrap();
        match case.expected.first().map(String::as_str) {
            Some("no-substitution") => assert_eq!(ended, "no-substitution", "{}", case.title),
            Some(expected) => {
                let shown = result.replace('\t', " ␉ ").trim_end().to_owned();
                assert_eq!(
                    (shown.as_str(), ended),
                    (expected, "complete"),
                    "{}",
                    case.title
                );
            }
            None => panic!("{}: nothing expected", case.title),
        }
        for size in ["1", "3", "100"] {
            assert_eq!(
                psyc(&[&["text", "-s", size], &values[..]].concat(), &input),
                plain
            );
        }
    }
    let (_, text) = psyc(
        &["text", "-o", "<<", "-e", ">>", "_n=v=w"],
        b"a <<_n>> [_n]",
    );
    assert_eq!(text, "text\ta v=w [_n]\ncomplete\n");
}

#[test]
fn packets_are_rendered_from_descriptions() {
    for case in cases("render.txt", &["item", "threshold"]) {
        let items: Vec<&str> = case
            .settings
            .iter()
            .filter(|(name, _)| name == "item")
            .map(|(_, item)| item.as_str())
            .collect();
        // Forced lengths are not part of the description that the command reads.
        if items.iter().any(|item| item.starts_with(['!', '-', 'L'])) {
            continue;
        }
        let args: &[&str] = match case.setting("threshold") {
            None => &["render"],
            Some("max") => &["render", "--threshold", "18446744073709551615"],
            Some(threshold) => &["render", "--threshold", threshold],
        };
        let escaped = items.join("\n");
        case.check(psyc(args, escaped.as_bytes()), "escaped");
        let tabs = items
            .iter()
            .map(|item| item.replacen("\\t", "\t", 1))
            .collect::<Vec<_>>();
        case.check(psyc(args, (tabs.join("\n") + "\n").as_bytes()), "with tabs");
    }
}

#[test]
fn names_are_looked_up() {
    for case in cases("names.txt", &[]) {
        let name = case.title.rsplit(' ').next().unwrap();
        let questions = [
            ("routingvar", "routing"),
            ("vartype", "type"),
            ("islist", "list"),
            ("method", "method"),
        ];
        let answers = questions.map(|(command, word)| {
            let (code, output) = psyc(&[command, name], b"");
            assert_eq!(code, 0);
            format!("{word}\t{output}")
        });
        case.check((0, answers.concat()), "looked up");
    }
    for case in cases("keywords.txt", &["inherits", "matches"]) {
        let (command, words) = match (case.setting("inherits"), case.setting("matches")) {
            (Some(words), _) => ("inherits", words),
            (_, words) => ("match", words.unwrap()),
        };
        let (short, long) = words.split_once(' ').unwrap();
        let word = |word: &str| {
            if word == "~" {
                String::new()
            } else {
                word.to_owned()
            }
        };
        let (code, output) = psyc(&[command, &word(short), &word(long)], b"");
        let expected = match case.expected.first().map(String::as_str) {
            Some("true") => (0, "0\n"),
            Some("false") => (0, "1\n"),
            _ => (1, "-1\n"),
        };
        assert_eq!((code, output.as_str()), expected, "{}", case.title);
    }
}

#[test]
fn packet_ids_are_rendered() {
    for case in cases("packet-ids.txt", &["parts", "in"]) {
        let Some(parts) = case.setting("parts") else {
            continue;
        };
        let parts: Vec<&str> = parts.split(' ').collect();
        case.check(
            psyc(&[&["packetid"], &parts[..]].concat(), b""),
            "with dashes",
        );
        let empty: Vec<&str> = parts
            .iter()
            .map(|part| if *part == "-" { "" } else { *part })
            .collect();
        case.check(
            psyc(&[&["packetid"], &empty[..]].concat(), b""),
            "with empty ones",
        );
    }
}

#[test]
fn the_bench_prints_a_line_for_each_file() {
    let packets = folder().join("packets");
    let (chat, binary) = (packets.join("chat.psyc"), packets.join("binary-7K.psyc"));
    let files = [chat.to_str().unwrap(), binary.to_str().unwrap()];
    for option in [
        &["bench", "--count", "10"][..],
        &["bench", "--count", "10", "--render"],
    ] {
        let (code, output) = psyc(&[option, &files[..]].concat(), b"");
        assert_eq!(code, 0);
        assert_eq!(output.lines().count(), 2, "{output}");
        for (line, file) in output.lines().zip(files) {
            let fields: Vec<&str> = line.split('\t').collect();
            assert_eq!(
                (fields.len(), fields[0], fields[4]),
                (6, file, "strlen"),
                "{line}"
            );
            assert!(
                fields[2].parse::<f64>().unwrap() <= fields[3].parse().unwrap(),
                "{line}"
            );
        }
    }
    let xml = packets.join("chat.xml");
    let (code, output) = psyc(&["bench", "--count", "10", xml.to_str().unwrap()], b"");
    assert!(
        code == 1 && output.contains("not one whole packet"),
        "{output}"
    );
}

#[test]
fn usage_errors_exit_with_two() {
    for args in [
        &["packet", "-r", "-c"][..],
        &["packet", "-b", "x"],
        &["text", "-o", ""],
        &["text", "novalue"],
        &["text", "-s", "0"],
        &["packetid", "a", "b"],
        &["nothing"],
        &[],
    ] {
        assert_eq!(psyc(args, b"").0, 2, "{args:?}");
    }
    assert_eq!(psyc(&["render"], b"X\n").0, 2);
    assert_eq!(psyc(&["render"], b"R:_a no tab\n").0, 2);
}
