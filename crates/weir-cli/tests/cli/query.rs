//! Tests `weir query` over files and topics.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::run::{CommandOutput, Place, command_output};
use crate::served::Served;

const A: &str =
    "{\"id\":\"a1\",\"n\":3,\"s\":\"open\"}\n\n{\"id\":\"a2\",\"n\":1}\n{\"id\":\"a3\",\"n\":2.5}";
const B: &str = "[ {\"id\":\"b1\",\"n\":10},\n  {\"id\":\"b2\"} ]";
const C: &str = "{\"more\":true,\"items\":[{\"id\":\"c1\",\"n\":0}]}";

fn files() -> Place {
    let place = Place::new();
    place.write("a.ndjson", A);
    place.write("b.json", B);
    place.write("c.json", C);
    place
}

/// A line with an object for each number.
fn numbers(range: std::ops::Range<u32>) -> String {
    let lines: Vec<String> = range.map(|n| format!("{{\"n\":{n}}}\n")).collect();
    lines.concat()
}

fn lines(place: &Place, words: &[&str]) -> Vec<String> {
    let out = place.words(words).ok().text();
    out.lines().map(str::to_owned).collect()
}

#[test]
fn items_of_all_shapes_are_returned_in_order_and_unchanged() {
    let place = files();
    let found = lines(
        &place,
        &[
            "query",
            "a.ndjson",
            "--file",
            "c.json",
            "--shape",
            "member:$.items",
            "--order-by",
            "$.n desc",
            "-o",
            "raw",
        ],
    );
    let expected = [
        "{\"id\":\"a1\",\"n\":3,\"s\":\"open\"}",
        "{\"id\":\"a3\",\"n\":2.5}",
        "{\"id\":\"a2\",\"n\":1}",
        "{\"id\":\"c1\",\"n\":0}",
    ];
    assert_eq!(found, expected);
    let found = lines(
        &place,
        &[
            "query", "b.json", "a.ndjson", "--select", "$.id", "-o", "raw",
        ],
    );
    assert_eq!(found, ["\"b1\"", "\"b2\"", "\"a1\"", "\"a2\"", "\"a3\""]);
}

#[test]
fn a_filter_may_begin_with_a_negative_number() {
    let place = files();
    for filter in ["-1 < @.n", "-0.5e1 < @.n"] {
        let words = ["query", "a.ndjson", "--where", filter, "--select", "$.n"];
        assert_eq!(lines(&place, &words), ["3", "1", "2.5"], "{filter}");
    }
    let words = ["query", "a.ndjson", "--where", "-1 > @.n"];
    assert!(lines(&place, &words).is_empty());
}

#[test]
fn filters_groups_and_limits_work_together() {
    let place = files();
    let raw = |words: &[&str]| lines(&place, words);
    assert_eq!(
        raw(&[
            "query",
            "a.ndjson",
            "--where",
            "@.n > param('least')",
            "--param",
            "least=2",
            "--select",
            "$.n",
            "-n",
            "1"
        ]),
        ["3"]
    );
    assert_eq!(
        raw(&[
            "query",
            "a.ndjson",
            "b.json",
            "--group-by",
            "$.s",
            "--select",
            "count, sum($.n)"
        ]),
        [
            "{\"s\":\"open\",\"count\":1,\"sum($.n)\":3}",
            "{\"count\":4,\"sum($.n)\":13.5}"
        ]
    );
    assert_eq!(raw(&["query", "a.ndjson", "--select", "max($.n)"]), ["3"]);
}

#[test]
fn standard_input_and_every_format_work() {
    let place = files();
    let done = place.pipe("query - --select $.n -o json", A);
    assert_eq!(done.ok().text(), "[\n3,\n1,\n2.5\n]\n");
    // The name of this file determines its shape: another --shape does not apply, and a note says so.
    for (shape, is_noted) in [("lines", false), ("values", true)] {
        let line = format!("query a.ndjson --shape {shape} --select $.n");
        let done = place.run(&line).ok();
        let noted = done.err.contains("a.ndjson is read as lines");
        assert_eq!(noted, is_noted, "{}", done.err);
    }
    let pretty = place.write("p.json", "[\n  {\n    \"n\": 1\n  }\n]");
    let pretty = pretty.display().to_string();
    assert_eq!(
        lines(&place, &["query", &pretty, "-o", "jsonl"]),
        ["{     \"n\": 1   }"]
    );
    let csv = lines(
        &place,
        &["query", "b.json", "--select", "$.id", "-o", "csv"],
    );
    assert_eq!(
        csv,
        [
            "source,value",
            "b.json,\"\"\"b1\"\"\"",
            "b.json,\"\"\"b2\"\"\""
        ]
    );
}

#[test]
fn a_checkpoint_resumes_after_the_last_result() {
    let place = files();
    let words = [
        "query",
        "a.ndjson",
        "b.json",
        "-n",
        "2",
        "--select",
        "$.id",
        "--checkpoint",
        "here",
    ];
    assert_eq!(lines(&place, &words), ["\"a1\"", "\"a2\""]);
    assert_eq!(lines(&place, &words), ["\"a3\"", "\"b1\""]);
    assert_eq!(lines(&place, &words), ["\"b2\""]);
    let over = place.words(&words).ok();
    assert!(
        over.out.is_empty() && over.err.contains("query of this checkpoint is complete"),
        "{}",
        over.err
    );
    let other = place.words(&["query", "a.ndjson", "--checkpoint", "here"]);
    assert!(other.err.contains("(E705)"), "{}", other.err);
    // A query that could not be resumed is not started.
    let sort = [
        "query",
        "a.ndjson",
        "--order-by",
        "$.n",
        "--checkpoint",
        "new",
    ];
    let done = place.words(&sort).code(1);
    assert!(done.err.contains("a sort without limit"), "{}", done.err);
    assert!(done.out.is_empty());
    let done = place.pipe("query - --checkpoint new", A).code(1);
    let advice = "standard input cannot be read again";
    assert!(done.err.contains(advice), "{}", done.err);
}

/// For example, a backup that is older than the checkpoint was restored.
#[test]
fn a_checkpoint_from_beyond_the_end_of_a_store_is_refused() {
    let place = Place::new();
    for at in ["longer", "longer", "longer", "data"] {
        place.words(&["put", "t", "1", "-q", "--at", at]).ok();
    }
    let query = |at: &str| place.words(&["query", "-t", "t", "--checkpoint", "here", "--at", at]);
    query("longer").ok();
    let check = |at: &str| {
        let refused = query(at).code(2);
        assert!(refused.err.contains("(E705)"), "{}", refused.err);
        assert!(refused.err.contains("has fewer records"), "{}", refused.err);
    };
    check("data");
    let served = Served::new(&place, "127.0.0.1:0", &[]);
    check(&served.url);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn compressed_files_are_read_by_their_content() {
    let place = Place::new();
    // Two members, as in `cat a.gz b.gz`, and two frames.
    let line = |n: usize| format!("{{\"n\":{n},\"pad\":\"{}\"}}\n", "x".repeat(100));
    let half = |from: usize| (from..from + 500).map(line).collect::<String>();
    let gz = [gzip(half(0).as_bytes()), gzip(half(500).as_bytes())].concat();
    let frame = |from| zstd::encode_all(half(from).as_bytes(), 0).unwrap();
    place.write("a.ndjson.gz", &gz);
    place.write("b.zst", [frame(1000), frame(1500)].concat());
    let words = [
        "query",
        "a.ndjson.gz",
        "b.zst",
        "--select",
        "$.n",
        "-o",
        "raw",
    ];
    let found = lines(&place, &words);
    assert_eq!(found, (0..2000).map(|n| n.to_string()).collect::<Vec<_>>());

    // Page after page and run after run, across members, frames and files.
    let mut found = Vec::new();
    let more = ["--page-size", "4096", "-n", "300", "--checkpoint", "here"];
    for _ in 0..7 {
        found.extend(lines(&place, &[&words[..], &more[..]].concat()));
    }
    assert_eq!(found, (0..2000).map(|n| n.to_string()).collect::<Vec<_>>());

    // A file with an equal beginning, but fewer bytes than the previous run has read.
    place.write("c.gz", &gz);
    let words = ["query", "c.gz", "-n", "900", "--page-size", "4096"];
    let words = [&words[..], &["--checkpoint", "there"]].concat();
    place.words(&words).ok();
    place.write("c.gz", gzip(half(0).as_bytes()));
    let done = place.words(&words).code(1);
    assert!(done.err.contains("cannot read c.gz"), "{}", done.err);
    for (name, bytes) in [("D.NDJSON.GZ", gzip(b"7\n")), ("E.Zst", frame(3))] {
        place.write(name, bytes);
        place.words(&["query", name, "--select", "count"]).ok();
    }
}

#[test]
fn a_compressed_file_that_is_cut_off_or_damaged_is_an_error() {
    let place = Place::new();
    let text = "{\"n\":1}\n".repeat(10_000);
    let gz = gzip(text.as_bytes());
    // As the command zstd writes it; the library omits the checksum by default.
    let mut frame = zstd::Encoder::new(Vec::new(), 0).unwrap();
    frame.include_checksum(true).unwrap();
    frame.write_all(text.as_bytes()).unwrap();
    let zst = frame.finish().unwrap();
    for (name, whole) in [("a.gz", &gz), ("a.zst", &zst)] {
        for cut in [whole.len() - 1, whole.len() / 2, 5] {
            place.write(name, &whole[..cut]);
            let done = place.words(&["query", name, "--select", "count"]).code(1);
            let what = format!("cannot read {name}");
            assert!(done.err.contains(&what), "{cut} of {name}: {}", done.err);
        }
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 0x40;
        place.write(name, &damaged);
        let done = place.words(&["query", name, "--select", "count"]).code(1);
        assert!(done.err.contains(name), "{}", done.err);
        place.write(name, text.as_bytes());
        let done = place.words(&["query", name, "--select", "count"]).code(1);
        assert!(done.err.contains(name), "{}", done.err);
    }
}

/// Groups and aggregates are printed once, wherever the runs stop.
#[test]
fn a_checkpoint_of_groups_completes() {
    let place = Place::new();
    place.write("k.ndjson", "{\"k\":1}\n{\"k\":1}\n{\"k\":2}\n{\"k\":3}\n");
    let groups = [
        "query",
        "k.ndjson",
        "--order-by",
        "$.k",
        "--sorted",
        "--group-by",
        "$.k",
        "--select",
        "count",
        "-o",
        "raw",
        "--checkpoint",
    ];
    let all = [
        "{\"k\":1,\"count\":2}",
        "{\"k\":2,\"count\":1}",
        "{\"k\":3,\"count\":1}",
    ];
    let run = |words: &[&str]| {
        let run = place.words(words).ok();
        let lines: Vec<String> = run.text().lines().map(str::to_owned).collect();
        (
            lines,
            run.err.contains("query of this checkpoint is complete"),
        )
    };
    let at_once = [&groups[..], &["all"]].concat();
    assert_eq!(run(&at_once).0, all);
    assert_eq!(run(&at_once), (Vec::new(), true));
    let one = [&groups[..], &["one", "-n", "1"]].concat();
    for group in all {
        assert_eq!(run(&one).0, [group]);
    }
    assert_eq!(run(&one), (Vec::new(), true));
    let sum = [
        "query",
        "k.ndjson",
        "--select",
        "sum($.k)",
        "-o",
        "raw",
        "--checkpoint",
        "sum",
    ];
    assert_eq!(run(&sum).0, ["7"]);
    assert_eq!(run(&sum), (Vec::new(), true));
}

#[test]
fn an_omitted_file_is_required_until_it_is_abandoned() {
    let place = Place::new();
    place.write("a.ndjson", "{\"n\":1}\n{\"n\":3}\n");
    place.write("b.ndjson", "{\"n\":2}\n{\"n\":4}\n");
    let rest = [
        "--order-by",
        "$.n",
        "--sorted",
        "--select",
        "$.n",
        "-o",
        "raw",
        "--checkpoint",
        "c",
    ];
    let run = |words: &[&str]| place.words(&[&["query"], words, &rest].concat());
    assert_eq!(run(&["a.ndjson", "b.ndjson", "-n", "1"]).ok().text(), "1\n");
    let missing = run(&["a.ndjson"]).code(2);
    assert!(
        missing.out.is_empty() && missing.err.contains("--abandon"),
        "{}",
        missing.err
    );
    for abandoned in ["a.ndjson", "other"] {
        let wrong = run(&["a.ndjson", "--abandon", "b.ndjson", "--abandon", abandoned]).code(2);
        assert!(wrong.err.contains("(E415)"), "{}", wrong.err);
    }
    let gone = run(&["a.ndjson", "--abandon", "b.ndjson", "-n", "1"]);
    assert_eq!(gone.ok().text(), "3\n");
    assert!(run(&["a.ndjson"]).ok().text().is_empty());
}

#[test]
fn a_run_ends_when_its_checkpoint_cannot_be_written() {
    let place = Place::new();
    // Much more than the capacity of a pipe, so that the run cannot advance far before its first
    // line is read.
    let input = "{\"n\":1}\n".repeat(100_000);
    place.write("a.ndjson", &input);
    let mut command = place.weir();
    command.args(["query", "a.ndjson", "--page-size", "4KiB", "-o", "raw"]);
    command.args(["--checkpoint", "state/here"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    std::fs::create_dir(place.path("state")).unwrap();
    let mut run = command.spawn().unwrap();
    let mut out = BufReader::new(run.stdout.take().unwrap());
    let mut printed = String::new();
    out.read_line(&mut printed).unwrap();
    std::fs::rename(place.path("state"), place.path("moved")).unwrap();
    out.read_to_string(&mut printed).unwrap();
    let done = command_output(run.wait_with_output().unwrap()).code(1);
    assert!(done.err.contains("cannot write state/here"), "{}", done.err);
    assert!(printed.len() < input.len() / 2, "{}", printed.len());
}

#[test]
fn a_checkpoint_belongs_to_its_files() {
    let place = Place::new();
    let old = "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n";
    place.write("a b%.ndjson", old);
    let run = |file, limit| {
        let words = ["query", file, "-n", limit, "--select", "$.id"];
        place.words(&[&words[..], &["--checkpoint", "here", "-o", "raw"]].concat())
    };
    assert_eq!(run("a b%.ndjson", "1").ok().text(), "1\n");
    let other = run("./a b%.ndjson", "1").code(2);
    assert!(
        other.err.contains("(E705)") && other.out.is_empty(),
        "{}",
        other.err
    );
    assert!(other.err.contains("a b%25.ndjson"), "{}", other.err);
    for (text, why) in [
        ("{\"id\":1}\n", "shorter"),
        (&old.replace('1', "7"), "has changed"),
    ] {
        place.write("a b%.ndjson", text);
        let other = run("a b%.ndjson", "1").code(2);
        assert!(
            other.err.contains("(E705)") && other.err.contains(why),
            "{}",
            other.err
        );
        assert!(other.out.is_empty());
    }
    // Data added before the run has seen the end belongs to the run.
    place.write("a b%.ndjson", format!("{old}{{\"id\":4}}\n"));
    assert_eq!(run("a b%.ndjson", "2").ok().text(), "2\n3\n");
    let end = run("a b%.ndjson", "9").ok();
    assert_eq!(end.text(), "4\n");
    assert!(
        !end.err.contains("query of this checkpoint is complete"),
        "{}",
        end.err
    );
    place.write("a b%.ndjson", format!("{old}{{\"id\":4}}\n{{\"id\":5}}\n"));
    let grown = run("a b%.ndjson", "9").ok();
    assert!(
        grown.out.is_empty() && grown.err.contains("query of this checkpoint is complete"),
        "{}",
        grown.err
    );
}

#[test]
fn a_checkpoint_resumes_with_another_page_size() {
    let place = Place::new();
    let all = numbers(0..100);
    place.write("a.ndjson", all);
    let mut found = Vec::new();
    for size in ["4096", "64", "300", "16", "4096"] {
        let words = ["query", "a.ndjson", "--select", "$.n", "-n", "30"];
        let more = ["--page-size", size, "--checkpoint", "here"];
        found.extend(lines(&place, &[&words[..], &more].concat()));
    }
    let expected: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    assert_eq!(found, expected);
}

/// A file is identified by the bytes that were read, not by those of the file that replaced it.
#[test]
fn a_checkpoint_does_not_belong_to_a_file_that_replaced_its_file() {
    let place = Place::new();
    let lines = |pad: &str| -> String {
        let pad = pad.repeat(100);
        let line = |n| format!("{{\"n\":{n},\"pad\":\"{pad}\"}}\n");
        (0..1000).map(line).collect()
    };
    place.write("a.ndjson", lines("x"));
    place.write("b.ndjson", lines("y"));
    let words = ["query", "a.ndjson", "--checkpoint", "here"];
    let mut child = place
        .weir()
        .args(words)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The command has opened the file, and waits until its first results are read.
    let mut out = BufReader::with_capacity(64, child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    std::fs::rename(place.path("b.ndjson"), place.path("a.ndjson")).unwrap();
    out.read_to_end(&mut Vec::new()).unwrap();
    assert!(child.wait().unwrap().success());
    let done = place.words(&words).code(2);
    let refused = done.err.contains("(E705)") && done.err.contains("has changed");
    assert!(refused && done.out.is_empty(), "{}", done.err);
}

/// Writes the XXH3 hash of all other bytes into the last eight.
fn seal(token: &mut [u8], seed: u64) {
    let (body, sum) = token.split_at_mut(token.len() - 8);
    let hash = twox_hash::XxHash3_64::oneshot_with_seed(seed, body);
    sum.copy_from_slice(&hash.to_le_bytes());
}

/// A position that is not a number is not the start of the file or topic.
#[test]
fn a_checkpoint_with_a_forged_position_is_refused() {
    let place = Place::new();
    let lines = numbers(100..400);
    place.write("a.ndjson", lines);
    place.run("import a.ndjson -t t -q").ok();
    // The file has pages of five lines of ten bytes. Both runs end between the results 261 to 270.
    let file = ["query", "a.ndjson", "--page-size", "50", "-n", "262"];
    let topic = ["query", "--topic", "t", "-n", "262"];
    for (words, name, position) in [(&file[..], "a", b"\x0426"), (&topic[..], "b", b"\x0326")] {
        let words = [words, &["--checkpoint", name]].concat();
        place.words(&words).ok();
        let mut bytes = std::fs::read(place.path(name)).unwrap();
        let at = bytes.windows(3).rposition(|part| part == position);
        bytes[at.unwrap() + 1] = b'x';
        // The token begins after the empty line.
        let token = 2 + bytes.windows(2).position(|part| part == b"\n\n").unwrap();
        let token = &mut bytes[token..];
        if name == "a" {
            seal(token, 5);
        } else {
            // A version, a flag and a number precede the token of the engine.
            let head = 3 + token[2..].iter().position(|byte| *byte < 0x80).unwrap();
            let end = token.len() - 8;
            seal(&mut token[head..end], 5);
            seal(token, 6);
        }
        place.write(name, bytes);
        let done = place.words(&words);
        assert!(done.code != 0 && done.out.is_empty(), "{}", done.text());
        assert!(done.err.contains("(E706)"), "{}", done.err);
        assert!(done.err.contains("position"), "{}", done.err);
    }
}

/// Kills a query in the middle of its output. Checks the complete lines that it printed, and returns
/// their number.
fn kill(place: &Place, words: &[&str], expected: &[String]) -> usize {
    let mut command = place.weir();
    let mut child = command.args(words).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut bytes = Vec::new();
    // The pipe and the buffer cannot hold all of the remaining output.
    for _ in 0..1000 {
        out.read_until(b'\n', &mut bytes).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    out.read_to_end(&mut bytes).unwrap();
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').unwrap();
    let text = String::from_utf8(bytes[..whole].to_vec()).unwrap();
    let printed: Vec<&str> = text.lines().collect();
    assert!(printed.len() < expected.len(), "the query was not killed");
    assert_eq!(printed, expected[..printed.len()]);
    printed.len()
}

#[test]
fn a_killed_query_resumes_at_its_checkpoint() {
    let place = Place::new();
    let pad = "x".repeat(90);
    let item = |n| format!("{{\"k\":\"k{n:04}\",\"pad\":\"{pad}\"}}");
    let items: Vec<String> = (0..6000).map(item).collect();
    place.write("a.ndjson", items.join("\n"));
    place.run("import a.ndjson -t t -k $.k -q").ok();
    let topic = |words: &[&'static str]| [&["query", "--topic", "t"], words].concat();
    for (words, file) in [
        (vec!["query", "a.ndjson"], "a"),
        (topic(&[]), "b"),
        (topic(&["--latest"]), "c"),
    ] {
        let words = [words, vec!["-o", "raw", "--checkpoint", file]].concat();
        let printed = kill(&place, &words, &items);
        // The next run repeats the results that the killed process did not record: at most a page.
        let rest = lines(&place, &words);
        let again = (rest.len() + printed).checked_sub(items.len());
        assert!(again.is_some_and(|again| again <= 256), "{again:?}");
        assert!(rest[..] == items[items.len() - rest.len()..]);
        assert!(lines(&place, &words).is_empty());
        assert!(!place.path(&format!("{file}.new")).exists());
    }
}

#[test]
fn errors_name_the_byte_of_the_file() {
    let place = files();
    // Pages of ten bytes, so that the error is not in the first page.
    let words = [
        "query",
        "a.ndjson",
        "--order-by",
        "$.n",
        "--sorted",
        "--page-size",
        "10B",
    ];
    let done = place.words(&words);
    assert_eq!(done.code, 65);
    assert!(done.err.contains("(E719)"), "{}", done.err);
    assert!(
        done.err.contains("at byte 30 of the file, item 1"),
        "{}",
        done.err
    );
    let done = place.words(&["query", "c.json", "--order-by", "$.items"]);
    assert!(done.err.contains("(E720)"), "{}", done.err);
    let done = place.words(&["query", "orders"]).code(1);
    let advice = "`weir query --topic orders`";
    assert!(done.err.contains(advice), "{}", done.err);
    let done = place.words(&["query", "./no/orders"]).code(1);
    assert!(!done.err.contains("--topic"), "{}", done.err);
    place.write("d.txt", "{\n\"n\":1}");
    let done = place.words(&["query", "d.txt"]);
    assert!(done.err.contains("--shape single"), "{}", done.err);
    let done = place.pipe("query -", "[1,2]\n[3,4]\n").code(65);
    assert!(done.err.contains("`--shape lines`"), "{}", done.err);
    let deep = format!("{}1{}", "[".repeat(600), "]".repeat(600));
    let done = place.pipe("query -", &deep).code(65);
    assert!(done.err.contains("at most 512 levels"), "{}", done.err);
    let names = ["query", "a.ndjson", "--select", "$.n,$.m.n"];
    let done = place.words(&names);
    assert!(done.err.contains("`as NAME`"), "{}", done.err);
    let done = place.words(&["query", "a.ndjson", "--where", "$.n ="]);
    assert_eq!(done.code, 2);
    assert!(done.err.contains("at byte 4 of `where`"), "{}", done.err);
    let done = place.words(&["query", "a.ndjson", "--where", "$.n = 1"]);
    assert!(done.err.contains("expected `==`, not `=`"), "{}", done.err);
    // An option is not accepted in place of the expression.
    let done = place.words(&["query", "a.ndjson", "--where", "--limit", "1"]);
    assert_eq!(done.code, 2);
    place.write("e.json", "\u{feff}[1]");
    let done = place.words(&["query", "e.json"]).code(65);
    assert!(done.err.contains("byte order mark"), "{}", done.err);
    let done = place.words(&["query", "a.ndjson", "--limit", "-1"]).code(2);
    assert!(
        done.err.contains("-1 is not a whole number from 0"),
        "{}",
        done.err
    );
}

#[test]
fn a_table_of_aggregates_has_no_column_of_sources() {
    let place = files();
    let table = |select: &str| {
        let done = place.words(&["query", "b.json", "--select", select, "-o", "table"]);
        done.ok().text().lines().next().unwrap().to_owned()
    };
    assert_eq!(table("count"), "VALUE");
    assert_eq!(table("$.id"), "SOURCE  VALUE");
}

#[test]
fn records_of_topics_are_returned_in_the_order_of_the_store() {
    let place = Place::new();
    for (topic, value) in [
        ("o.a", "{\"n\":1}"),
        ("o.b", "{\"n\":3}"),
        ("o.a", "{\"n\":2}"),
        ("x", "no"),
    ] {
        place.words(&["put", topic, value, "-k", "k", "-q"]).ok();
    }
    assert_eq!(
        lines(&place, &["query", "--topic", "o.*"]),
        ["{\"n\":1}", "{\"n\":3}", "{\"n\":2}"]
    );
    assert_eq!(
        lines(
            &place,
            &[
                "query",
                "--topic",
                "o.*",
                "--order-by",
                "$.n desc",
                "-n",
                "2"
            ]
        ),
        ["{\"n\":3}", "{\"n\":2}"]
    );
    assert_eq!(
        lines(
            &place,
            &[
                "query",
                "--topic",
                "o.*,x",
                "--where",
                "meta('topic') == 'x'",
                "-o",
                "raw"
            ]
        ),
        ["no"]
    );
    // A CREATE has an offset, but is not an item.
    assert_eq!(
        lines(
            &place,
            &[
                "query",
                "--topic",
                "o.a",
                "--order-by",
                "meta.offset desc",
                "--select",
                "$.n"
            ]
        ),
        ["2", "1"]
    );
    // The key in both topics is `k`.
    assert_eq!(
        lines(&place, &["query", "--topic", "o.*", "--latest"]),
        ["{\"n\":2}", "{\"n\":3}"]
    );
    let latest = [
        "query",
        "--topic",
        "o.*",
        "--latest",
        "--select",
        "sum($.n)",
        "--where",
        "meta('key') == 'k'",
    ];
    assert_eq!(lines(&place, &latest), ["5"]);
    let words = ["query", "--topic", "o.*", "-n", "2", "--checkpoint", "c"];
    assert_eq!(lines(&place, &words), ["{\"n\":1}", "{\"n\":3}"]);
    place.words(&["put", "o.b", "{\"n\":4}", "-q"]).ok();
    // New records are not part of the resumed query.
    assert_eq!(lines(&place, &words), ["{\"n\":2}"]);
    assert!(lines(&place, &words).is_empty());
    let done = place.words(&["query", "--topic", "nothing"]);
    assert!(done.err.contains("(E316)"), "{}", done.err);
    let done = place.words(&["query", "--topic", "o.a", "--order-by", "meta.nothing"]);
    assert!(done.err.contains("no property `nothing`"), "{}", done.err);
}

#[test]
fn the_page_size_does_not_change_the_results() {
    let place = Place::new();
    let items: Vec<String> = (0..40)
        .map(|n| {
            format!(
                "{{\"n\":{},\"t\":\"],[\\\"{{,\",\"l\":[{n},[]]}}",
                n * 7 % 40
            )
        })
        .collect();
    place.write("a.json", format!(" [ {} ]\n", items.join(" ,\n")));
    place.write("a.ndjson", items.join("\r\n"));
    let sorted = |file: &str, size: &str| {
        let words = [
            "query",
            file,
            "--order-by",
            "$.n",
            "-o",
            "raw",
            "--page-size",
            size,
        ];
        lines(&place, &words)
    };
    let expected = sorted("a.ndjson", "1MiB");
    assert_eq!(expected.len(), 40);
    for size in ["1B", "7B", "100B", "1MiB"] {
        assert_eq!(sorted("a.json", size), expected, "{size}");
        assert_eq!(sorted("a.ndjson", size), expected, "{size}");
    }
    // Invalid arrays are invalid in pieces too.
    for (name, text) in [
        ("b.json", "[1,2,]"),
        ("c.json", "[1,,2]"),
        ("d.json", "[1,2],3"),
        ("e.json", "[1,2"),
        ("f.json", "[1 ,  ]"),
        ("g.json", "[,1]"),
    ] {
        place.write(name, text);
        let error = |size: &str| {
            let done = place.words(&["query", name, "--page-size", size]);
            assert_eq!(done.code, 65, "{name} {size} {}", done.text());
            let (_, byte) = done.err.split_once("at byte ").unwrap();
            byte.split_once(',').unwrap().0.to_owned()
        };
        for size in ["1B", "2B", "3B", "4B", "5B"] {
            assert_eq!(error(size), error("1MiB"), "{name} {size}");
        }
    }
    // The query resumes in the middle.
    let words = [
        "query",
        "a.json",
        "-n",
        "15",
        "--page-size",
        "100B",
        "--checkpoint",
        "c",
        "-o",
        "raw",
    ];
    let found = [
        lines(&place, &words),
        lines(&place, &words),
        lines(&place, &words),
    ]
    .concat();
    assert_eq!(found, items);
}

#[test]
fn a_server_is_queried_and_followed() {
    let place = Place::new();
    place
        .words(&["put", "o.a", "{\"n\":1}", "--at", "data", "-q"])
        .ok();
    let served = Served::new(&place, "127.0.0.1:0", &[]);
    let at = served.url.as_str();
    place
        .words(&["put", "o.b", "{\"n\":3}", "--at", at, "-q"])
        .ok();
    place
        .words(&["put", "o.a", "{\"n\":2}", "--at", at, "-q"])
        .ok();
    let found = lines(&place, &["query", "--topic", "o.*", "--at", at]);
    assert_eq!(found, ["{\"n\":1}", "{\"n\":3}", "{\"n\":2}"]);
    let words = [
        "query",
        "--topic",
        "o.*",
        "--at",
        at,
        "--order-by",
        "$.n desc",
        "--select",
        "$.n",
        "-n",
        "2",
    ];
    assert_eq!(lines(&place, &words), ["3", "2"]);
    let latest = [
        "query", "--topic", "o.*", "--at", at, "--latest", "-o", "raw",
    ];
    place
        .words(&["put", "o.a", "{\"n\":-7}", "-k", "x", "--at", at, "-q"])
        .ok();
    place
        .words(&["put", "o.a", "{\"n\":1}", "-k", "x", "--at", at, "-q"])
        .ok();
    assert_eq!(lines(&place, &latest), ["{\"n\":1}"]);
    // The query resumes after a key, whatever happens to that key.
    let put = |key: &str, n: &str| {
        place
            .words(&["put", "l", n, "-k", key, "--at", at, "-q"])
            .ok();
    };
    for (key, n) in [("a", "1"), ("b", "2"), ("c", "3")] {
        put(key, n);
    }
    let some = [
        "query",
        "--topic",
        "l",
        "--at",
        at,
        "--latest",
        "-n",
        "2",
        "--checkpoint",
        "k",
    ];
    assert_eq!(lines(&place, &some), ["1", "2"]);
    for (key, n) in [("a", "7"), ("c", "8"), ("d", "9")] {
        put(key, n);
    }
    assert_eq!(lines(&place, &some), ["8", "9"]);
    assert!(lines(&place, &some).is_empty());
    let mut follow = place.weir();
    follow.args([
        "query", "--topic", "o.*", "--at", at, "-f", "--where", "@.n > 2", "-n", "2", "-o", "raw",
    ]);
    let child = follow.stdout(Stdio::piped()).spawn().unwrap();
    // The record is printed, whether the query starts before or after the write.
    place
        .words(&["put", "o.a", "{\"n\":0}", "--at", at, "-q"])
        .ok();
    place
        .words(&["put", "o.a", "{\"n\":9}", "--at", at, "-q"])
        .ok();
    let output = child.wait_with_output().unwrap();
    let mut found: Vec<&str> = std::str::from_utf8(&output.stdout)
        .unwrap()
        .lines()
        .collect();
    found.sort_unstable();
    assert_eq!(found, ["{\"n\":3}", "{\"n\":9}"]);
}

#[test]
fn records_that_are_not_json_stop_a_query_or_are_left_out() {
    let place = Place::new();
    for (key, value) in ["{\"n\":1}", "no", "{\"n\":x}", "{\"n\":2}"]
        .iter()
        .enumerate()
    {
        let key = key.to_string();
        let words = ["put", "o", value, "-k", &key, "--at", "data", "-q"];
        place.words(&words).ok();
    }
    let check = |at: &str| {
        let run = |words: &[&str]| {
            let begin = ["query", "--topic", "o", "--at", at, "-q"];
            place.words(&[&begin, words].concat())
        };
        // For each query and each output format.
        for words in [
            &["-o", "json"][..],
            &["-o", "jsonl"],
            &["-o", "csv"],
            &["-o", "table"],
            &["--select", "count"],
            &["--select", "count", "-o", "raw"],
            &["--on-bad-item", "error", "-o", "raw"],
            &["--where", "meta('offset') > 0"],
            &["--latest"],
        ] {
            let done = run(words);
            assert!(done.err.contains("E710"), "{at} {words:?} {}", done.err);
            assert!(done.err.contains("`--on-bad-item skip`"), "{}", done.err);
            assert_eq!(done.code, 65, "{words:?}");
        }
        let stopped = run(&["-o", "jsonl"]);
        assert_eq!(stopped.text(), "{\"n\":1}\n");
        assert!(
            stopped.err.contains("of record 3 of topic o"),
            "{}",
            stopped.err
        );
        let skip = |words: &[&str]| run(&[words, &["--on-bad-item", "skip"]].concat()).ok();
        let all = serde_json::json!([{"n": 1}, {"n": 2}]);
        assert_eq!(skip(&["-o", "json"]).json(), all);
        assert_eq!(skip(&["-o", "json", "--where", "@.n > 0"]).json(), all);
        assert_eq!(skip(&["-o", "csv"]).text().lines().count(), 3);
        assert_eq!(skip(&["-o", "raw"]).text(), "{\"n\":1}\n{\"n\":2}\n");
        assert_eq!(skip(&["--select", "count"]).text(), "2\n");
        // Skipped items do not count.
        assert_eq!(skip(&["-n", "2"]).text(), "{\"n\":1}\n{\"n\":2}\n");
        // Items that the query does not read are passed through unchanged.
        let raw = run(&["-o", "raw"]).ok().text();
        assert_eq!(raw, "{\"n\":1}\nno\n{\"n\":x}\n{\"n\":2}\n");
        let whole = run(&["--on-bad-item", "undefined", "-o", "json"]).code(2);
        assert!(
            whole.err.contains("`-o json` prints JSON only"),
            "{}",
            whole.err
        );
        let count = run(&["--on-bad-item", "undefined", "--select", "count"]);
        assert_eq!(count.ok().text(), "4\n");
    };
    check("data");
    let served = Served::new(&place, "127.0.0.1:0", &[]);
    check(&served.url);
    // Through the socket of the directory.
    check("data");
}

#[test]
fn lines_from_a_pipe_are_processed_when_they_arrive() {
    let place = Place::new();
    let mut command = place.weir();
    let command = command.args(["query", "-", "--select", "$.id", "-o", "raw"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    for id in 0..3 {
        // The end of a line arrives later than its beginning.
        write!(input, "{{\"id\":{id}}}\n{{\"id\"").unwrap();
        input.flush().unwrap();
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, format!("{id}\n"));
        writeln!(input, ":\"-\"}}").unwrap();
        line.clear();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "\"-\"\n");
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn options_of_topics_are_rejected_for_files() {
    for option in ["--follow", "--latest"] {
        let done = files().words(&["query", "a.ndjson", option]).code(2);
        assert!(
            done.out.is_empty() && done.err.contains("--topic"),
            "{}",
            done.err
        );
    }
}

#[test]
fn an_input_or_a_parameter_that_is_given_twice_is_rejected() {
    let place = files();
    for line in ["query - -", "query - --file -"] {
        let done = place.pipe(line, "12\n34\n").code(2);
        assert!(
            done.out.is_empty() && done.err.contains("only once"),
            "{line}: {}",
            done.err
        );
    }
    let words = ["query", "a.ndjson", "--where", "$.n == param('q')"];
    let once = ["--param", "q=1", "--param", "r=2"];
    assert_eq!(lines(&place, &[&words[..], &once].concat()).len(), 1);
    let twice = ["--param", "q=1", "--param", "q=2"];
    let done = place.words(&[&words[..], &twice].concat()).code(2);
    assert!(
        done.err.contains("--param sets q more than once"),
        "{}",
        done.err
    );
}

/// Peak memory of a query in KiB, after the first `lines` lines of its output were read.
fn peak(place: &Place, words: &[&str], lines: usize) -> u64 {
    let mut command = place.weir();
    let mut child = command.args(words).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    // The remaining output exceeds the pipe, so the process still runs.
    for _ in 0..lines {
        out.next().unwrap().unwrap();
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let peak = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    let rest = out.map(Result::unwrap).count();
    assert!(child.wait().unwrap().success());
    assert!(rest >= 500, "the query has ended");
    peak
}

#[test]
fn a_merge_of_files_holds_two_pages_of_each() {
    const FILES: usize = 10;
    const PAGE: u64 = 64 << 10;
    let place = Place::new();
    let pad = "x".repeat(480);
    let item = |key| format!("{{\"k\":{key},\"pad\":\"{pad}\"}}\n");
    let names: Vec<String> = (0..FILES).map(|file| format!("{file}.ndjson")).collect();
    for (file, name) in names.iter().enumerate() {
        let items = (0..6000).map(|n| item(n * FILES + file));
        place.write(name, items.collect::<String>());
    }
    let options = [
        "--order-by",
        "$.k",
        "--sorted",
        "-o",
        "raw",
        "--page-size",
        "65536",
    ];
    let files: Vec<&str> = names.iter().map(String::as_str).collect();
    let merge = [&["query"][..], &files, &options].concat();
    let alone = [&["query", "0.ndjson"][..], &options].concat();
    let (ten, one) = (peak(&place, &merge, 59_000), peak(&place, &alone, 5000));
    // The files have thirty megabytes in total. The bound allows three pages for each of nine more
    // files.
    let bound = 9 * 3 * PAGE / 1024;
    assert!(
        ten.saturating_sub(one) < bound,
        "{ten} KiB, one file {one} KiB"
    );
}

/// The blanks have 64 MiB.
#[test]
fn blanks_before_the_first_item_are_not_kept_in_memory() {
    let place = Place::new();
    let pad = "x".repeat(480);
    let items = (0..6000).map(|n| format!("{{\"k\":{n},\"pad\":\"{pad}\"}}\n"));
    let items = items.collect::<String>();
    place.write(
        "a.txt",
        [vec![b'\n'; 64 << 20], items.into_bytes()].concat(),
    );
    let peak = peak(&place, &["query", "a.txt", "-o", "raw"], 5000);
    assert!(peak < 60 << 10, "{peak} KiB");
}

#[test]
fn blanks_before_the_first_item_count_in_positions() {
    let place = Place::new();
    let blanks = "\r\n\t ".repeat(50_000);
    place.write("a.txt", format!("{blanks}{{\"n\":2}}\n{{\"n\":1}}\n"));
    let words = ["query", "a.txt", "--order-by", "$.n", "--sorted"];
    for page in ["10B", "1MiB"] {
        let done = place.words(&[&words[..], &["--page-size", page]].concat());
        let expected = "at byte 200008 of the file, item 1";
        assert!(done.err.contains(expected), "{page}: {}", done.err);
    }
    // Pages and runs of every shape that is detected, also of a file that a thread decompresses.
    let all: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    let array = format!("{blanks}[{}]", all.join(","));
    place.write("b", &array);
    place.write("c.json", format!("{blanks}{}", all.join(" ")));
    place.write("d.gz", gzip(array.as_bytes()));
    for name in ["b", "c.json", "d.gz"] {
        let words = ["query", name, "--page-size", "16B"];
        assert_eq!(lines(&place, &words), all, "{name}");
        let checkpoint = format!("{name}.at");
        let more = ["-n", "9", "--checkpoint", &checkpoint];
        let mut found = Vec::new();
        for _ in 0..5 {
            found.extend(lines(&place, &[&words[..], &more[..]].concat()));
        }
        assert_eq!(found, all, "{name}");
    }
    let done = place.pipe("query - --page-size 16B", &array).ok().text();
    assert_eq!(done.lines().collect::<Vec<_>>(), all);
    let done = place.pipe("query - --select count", &blanks).ok();
    assert_eq!(done.text(), "0\n");
}

#[test]
fn more_files_than_may_be_open_are_read_one_after_the_other() {
    let place = Place::new();
    for n in 0..150 {
        place.write(&format!("{n:03}.json"), format!("\n[{n}]"));
    }
    place.write("150.json.gz", gzip(b"150"));
    let done = bash(&place, "ulimit -n 64; exec weir query *.json *.gz");
    let found = done.ok().text();
    let expected = (0..=150).map(|n| format!("{n}\n"));
    assert_eq!(found, expected.collect::<String>());
}

#[test]
fn a_pattern_without_a_match_is_noted() {
    let place = Place::new();
    place.run("put orders.a 1").ok();
    let done = place.words(&["query", "--topic", "orders.*,ordrs.*"]).ok();
    assert_eq!(done.text(), "1\n");
    assert_eq!(done.err, "weir: no topic matches ordrs.*\n");
}

#[test]
fn a_pattern_that_cannot_match_explains_the_syntax_of_patterns() {
    let place = Place::new();
    place.run("put orders 1").ok();
    for pattern in ["ord*", "invoices.*"] {
        let done = place.words(&["query", "--topic", pattern]).code(4);
        assert_eq!(done.text(), "", "{pattern}");
        assert!(done.err.contains("E316"), "{}", done.err);
        assert!(done.err.contains("one whole part"), "{}", done.err);
    }
    // A pattern that cannot match a topic is not followed.
    place.run("query --topic ord* --follow").code(4);
}

#[test]
fn several_paths_are_columns_in_every_format() {
    let place = Place::new();
    place.write(
        "s.ndjson",
        "{\"id\":1,\"who\":{\"name\":\"Kim \\\"K\\\", Ann\\tB\"}}\n{\"id\":[ 1,\r2]}\n{\"x\":1}\n",
    );
    let out = |more: &[&str]| {
        let words = ["query", "s.ndjson", "--select", "$.id, $.who.name as name"];
        place.words(&[&words[..], more].concat()).ok().text()
    };
    let name = "\"Kim \\\"K\\\", Ann\\tB\"";
    assert_eq!(
        out(&[]),
        format!("{{\"id\":1,\"name\":{name}}}\n{{\"id\":[ 1, 2]}}\n")
    );
    let json: serde_json::Value = serde_json::from_str(&out(&["-o", "json"])).unwrap();
    assert_eq!(json[0]["name"], "Kim \"K\", Ann\tB");
    let csv = "id,name\r\n1,\"Kim \"\"K\"\", Ann\tB\"\r\n\"[ 1,\r2]\",\r\n";
    assert_eq!(out(&["-o", "csv"]), csv);
    assert_eq!(
        out(&["-o", "csv", "--columns", "name", "-n", "1", "--no-headers"]),
        "\"Kim \"\"K\"\", Ann\tB\"\r\n"
    );
    assert_eq!(out(&["-o", "raw"]), format!("1\t{name}\n[ 1, 2]\t\n"));
    let words = ["query", "s.ndjson", "--select", "$.x, $.id"];
    let found = ["{\"id\":1}", "{\"id\":[ 1, 2]}", "{\"x\":1}"];
    assert_eq!(lines(&place, &words), found);
    assert_eq!(out(&["-r"]), "1\tKim \"K\", Ann\\tB\n[ 1, 2]\t\n");
    assert_eq!(
        out(&["-o", "table"]),
        "ID        NAME\n1         Kim \"K\", Ann\\tB\n[ 1,\\r2]\n"
    );
    // One path gives one value, without quotes with -r.
    let one = |more: &[&str]| {
        let words = ["query", "s.ndjson", "--select", "$.who.name"];
        place.words(&[&words[..], more].concat())
    };
    assert_eq!(one(&["-r"]).ok().text(), "Kim \"K\", Ann\tB\n");
    let done = one(&["-r", "-o", "csv"]).code(2);
    assert!(
        done.err.contains("cannot be combined with `-o csv`"),
        "{}",
        done.err
    );
    let done = place
        .words(&["query", "s.ndjson", "--select", "$.id, count"])
        .code(2);
    assert!(done.err.contains("at byte 6 of `select`"), "{}", done.err);
    // Quotes around a name are not part of it.
    let words = "$.id as 'the id', $.who.name as \"name\"";
    let done = place.words(&[
        "query", "s.ndjson", "--select", words, "-n", "1", "-o", "csv",
    ]);
    assert_eq!(
        done.ok().text(),
        "the id,name\r\n1,\"Kim \"\"K\"\", Ann\tB\"\r\n"
    );
    let words = [
        "query",
        "s.ndjson",
        "--group-by",
        "$.x as 'an x'",
        "--select",
        "count as 'how many'",
        "--order-by",
        "'how many' desc",
        "-n",
        "1",
    ];
    assert_eq!(place.words(&words).ok().text(), "{\"how many\":2}\n");
    let words = ["query", "s.ndjson", "--select", "$.id, meta.key"];
    let done = place.words(&words).code(2);
    assert!(
        done.err.contains("properties cannot be selected"),
        "{}",
        done.err
    );
    let done = place
        .words(&["query", "s.ndjson", "--shape", "list"])
        .code(2);
    let shapes = "shapes are array, lines, values, single and member:PATH";
    assert!(done.err.contains(shapes), "{}", done.err);
}

#[test]
fn groups_have_columns_and_are_in_the_order_of_their_counts() {
    let place = Place::new();
    let sales =
        "{\"s\":\"a\",\"n\":1}\n{\"s\":\"b\",\"n\":2}\n{\"s\":\"b\",\"n\":\"x\"}\n{\"n\":4}\n";
    place.write("g.ndjson", sales);
    let words = [
        "query",
        "g.ndjson",
        "--group-by",
        "$.s",
        "--select",
        "count, sum($.n) as n",
    ];
    let top = ["--order-by", "count desc, n desc", "-n", "2"];
    let found = place
        .words(&[&words[..], &top, &["-o", "csv"]].concat())
        .ok();
    assert_eq!(found.text(), "s,count,n\r\nb,2,\r\n,1,4\r\n");
    let found = place.words(&[&words[..], &top, &["-r"]].concat()).ok();
    assert_eq!(found.text(), "b\t2\t\n\t1\t4\n");
    let found = place
        .words(&[&words[..], &["--order-by", "points"]].concat())
        .code(2);
    assert!(found.err.contains("the name of a result"), "{}", found.err);
    // A query over records returns these groups too, locally and where a server executes a part.
    for (key, line) in sales.lines().enumerate() {
        place
            .words(&[
                "put",
                "o.g",
                line,
                "-k",
                &key.to_string(),
                "-q",
                "--at",
                "data",
            ])
            .ok();
    }
    let words = [
        "query",
        "--topic",
        "o.*",
        "--group-by",
        "$.s",
        "--select",
        "count",
    ];
    let local = place
        .words(
            &[
                &words[..],
                &["--order-by", "count desc", "-n", "1", "--at", "data"],
            ]
            .concat(),
        )
        .ok();
    assert_eq!(local.text(), "{\"s\":\"b\",\"count\":2}\n");
    let served = Served::new(&place, "127.0.0.1:0", &[]);
    let remote = ["--order-by", "count desc", "-n", "1", "--at", &served.url];
    assert_eq!(
        place.words(&[&words[..], &remote].concat()).ok().text(),
        local.text()
    );
    let remote = [
        "query",
        "--topic",
        "o.g",
        "--select",
        "$.n, $.s",
        "--at",
        &served.url,
    ];
    let expected = [
        "{\"n\":1,\"s\":\"a\"}",
        "{\"n\":2,\"s\":\"b\"}",
        "{\"n\":\"x\",\"s\":\"b\"}",
        "{\"n\":4}",
    ];
    assert_eq!(lines(&place, &remote), expected);
}

#[test]
fn concatenated_values_are_read_page_by_page() {
    let place = Place::new();
    let values = "{\n  \"n\": 1\n}\n{\"n\":2}{\"n\":3} [4]\n5 \"}\"";
    place.write("v.json", values);
    let expected = [
        "{   \"n\": 1 }",
        "{\"n\":2}",
        "{\"n\":3}",
        "[4]",
        "5",
        "\"}\"",
    ];
    for size in ["1B", "7B", "1MiB"] {
        assert_eq!(
            lines(&place, &["query", "v.json", "--page-size", size]),
            expected,
            "{size}"
        );
    }
    assert_eq!(
        place
            .pipe("query - --shape values --select $.n", values)
            .ok()
            .text(),
        "1\n2\n3\n"
    );
    // The query is resumed, and an error has its position. Bad items are skipped in lines only.
    let words = [
        "query",
        "v.json",
        "--page-size",
        "8B",
        "-n",
        "4",
        "--checkpoint",
        "here",
    ];
    assert_eq!(lines(&place, &words), expected[..4]);
    assert_eq!(lines(&place, &words), expected[4..]);
    place.write("w.json", "{\"n\":1}\n{\"n\":x}\n{\"n\":2}\n");
    let done = place
        .words(&["query", "w.json", "--select", "$.n"])
        .code(65);
    assert!(
        done.err.contains("at byte 13 of the file, item 1"),
        "{}",
        done.err
    );
    let skips = [
        "query",
        "w.json",
        "--select",
        "$.n",
        "--on-bad-item",
        "skip",
    ];
    assert_eq!(lines(&place, &skips), ["1", "2"]);
}

#[test]
fn results_that_a_consumer_did_not_read_are_returned_again() {
    let place = Place::new();
    // More than the capacity of a pipe.
    let line = |n: usize| format!("{{\"n\":{n},\"pad\":\"{}\"}}\n", "x".repeat(1000));
    place.write("a.ndjson", (0..2000).map(line).collect::<String>());
    let run = |command: &str| {
        let words = [
            "query",
            "a.ndjson",
            "--select",
            "$.n",
            "--checkpoint",
            "here",
        ];
        place.words(&[&words[..], &["--into", command]].concat())
    };
    // The command reads nothing; its exit code is that of the run.
    let done = run("exit 7").code(7);
    assert_eq!(done.text(), "");
    assert!(!place.path("here").exists());
    // The command reads some pages, and is killed before the next. Only the unread results are
    // repeated.
    let died = run("dd bs=1 count=3000 2>/dev/null; kill -9 $$");
    assert_eq!(died.code, 1, "{}", died.err);
    assert!(died.err.contains("was killed"), "{}", died.err);
    let seen: Vec<String> = died.text().lines().map(str::to_owned).collect();
    let rest = run("cat; exit 0").ok();
    let rest: Vec<usize> = rest.text().lines().map(|n| n.parse().unwrap()).collect();
    assert!(rest.iter().copied().eq(rest[0]..2000), "{:?}", &rest[..3]);
    assert!(
        rest[0] > 0 && rest[0] < seen.len(),
        "{} {}",
        rest[0],
        seen.len()
    );
    // A command that has read everything and then fails gets the last results again.
    std::fs::remove_file(place.path("here")).unwrap();
    run("cat >/dev/null; exit 7").code(7);
    let again = run("cat").ok();
    assert!(again.text().ends_with("1999\n"), "{}", again.text());
    // No results remain. An unknown command fails with the exit code of the shell.
    assert_eq!(run("cat").ok().text(), "");
    assert_eq!(
        place
            .words(&["query", "a.ndjson", "--into", "no-such-command"])
            .code,
        127
    );
    place
        .words(&["query", "a.ndjson", "--into", "cat", "--explain"])
        .code(2);
    // An error of the query takes precedence over the exit code of the command.
    place.write("bad.ndjson", "{\"n\":1}\n[\n");
    place
        .words(&["query", "bad.ndjson", "--into", "cat"])
        .code(65);
}

#[test]
fn an_explained_query_prints_only_its_plan() {
    let place = files();
    let explain = |words: &[&str]| {
        let words = [&["query", "a.ndjson", "--explain"][..], words].concat();
        place.words(&words).ok()
    };
    assert_eq!(explain(&["-o", "json"]).json()["mode"], "sequential");
    let table = explain(&["-o", "table"]).text();
    assert!(!table.contains("SOURCE"), "{table}");
    // The columns are those of the plan.
    assert_eq!(
        explain(&["-o", "csv", "--columns", "mode"]).text(),
        "mode\r\nsequential\r\n"
    );
    assert!(explain(&["-o", "help"]).text().contains("resumable"));
}

/// Without a result, nothing is written to the consumer.
#[test]
fn a_query_that_waits_for_records_ends_with_its_consumer() {
    let place = Place::new();
    place
        .words(&["put", "o", "{\"n\":1}", "-q", "--at", "data"])
        .ok();
    let follow = |at: &str| {
        let query = "timeout 120 weir query -t o -f --where '@.n > 1' --into 'exit 7'";
        bash(&place, &format!("{query} --at {at}")).code(7);
    };
    follow("data");
    let served = Served::new(&place, "127.0.0.1:0", &[]);
    follow(&served.url);
}

/// Runs a script with `weir` in the search path.
fn bash(place: &Place, script: &str) -> CommandOutput {
    let mut bash = place.command("bash");
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_weir")).parent();
    let path = std::env::var("PATH").unwrap();
    bash.env("PATH", format!("{}:{path}", bin.unwrap().display()));
    bash.args(["-c", script]);
    command_output(bash.output().unwrap())
}

/// No record arrives after the reader of the pipe has ended.
#[test]
fn a_tail_that_waits_ends_when_the_reader_of_its_output_ends() {
    let place = Place::new();
    place.words(&["put", "o", "1", "-q", "--at", "data"]).ok();
    let follow = |options: &str| {
        let tail = format!("timeout 120 weir tail o -f -q {options} | head -n 1");
        let done = bash(&place, &format!("{tail}; echo ${{PIPESTATUS[0]}} >&2"));
        assert_eq!(done.text().lines().count(), 1, "{tail}");
        assert_eq!(done.err, "141\n", "{tail}");
    };
    follow("-o raw --at data");
    follow("-o jsonl --at data --group mail");
    let served = Served::new(&place, "127.0.0.1:0", &[]);
    follow(&format!("-o raw --at {}", served.url));
    follow("-o raw --at data");
}

#[test]
fn a_closed_output_ends_the_run_by_sigpipe() {
    let place = Place::new();
    let line = |n: usize| format!("{{\"n\":{n}}}\n");
    place.write("a.ndjson", (0..200_000).map(line).collect::<String>());
    place.run("import a.ndjson -t t -q").ok();
    let shell = |script: &str| bash(&place, script);
    for command in [
        "query a.ndjson --select '$.n' -r",
        "query --topic t --select '$.n' -r",
        "tail t -o raw",
    ] {
        let done = shell(&format!(
            "weir {command} | head -n 1; echo ${{PIPESTATUS[0]}} >&2"
        ));
        assert_eq!(done.text().lines().count(), 1, "{command}");
        assert_eq!(done.err, "141\n", "{command}");
    }
    // The checkpoint is before the first result that the reader did not read.
    let query = "weir query a.ndjson --select '$.n' -r --checkpoint here";
    let some = "(for i in $(seq 1000); do read -r n && echo $n; done)";
    let taken = shell(&format!("{query} | {some}; echo ${{PIPESTATUS[0]}} >&2"));
    assert_eq!(taken.err, "141\n");
    assert_eq!(taken.text().lines().count(), 1000);
    let rest = shell(query).ok();
    let rest = rest.text();
    let first: usize = rest.lines().next().unwrap().parse().unwrap();
    assert!(first <= 1000, "{first}");
    assert_eq!(rest.lines().count(), 200_000 - first);
}

#[test]
fn a_regular_expression_of_another_dialect_is_noted() {
    let place = files();
    let words = ["query", "a.ndjson", "--where", "match(@.s, '\\\\w+')"];
    let done = place.words(&words).ok();
    assert!(done.err.contains("write `[A-Za-z0-9_]`"), "{}", done.err);
    let done = place.words(&[&words[..], &["-q"]].concat()).ok();
    assert_eq!(done.err, "");
    place.words(&["put", "o", "{\"s\":\"x\"}", "-q"]).ok();
    let done = place
        .words(&["tail", "o", "--where", "search(@.s, '[')"])
        .ok();
    assert!(done.err.contains("RFC 9485"), "{}", done.err);
    let words = [
        "query",
        "a.ndjson",
        "--where",
        "match(@.s, '[a-z]{1,5000}')",
    ];
    let done = place.words(&words).ok();
    let limit = "exceeds a limit";
    assert!(
        done.err.contains(limit) && !done.err.contains("9485"),
        "{}",
        done.err
    );
    let deep = format!("{}@.a{}", "(".repeat(65), ")".repeat(65));
    let done = place
        .words(&["query", "a.ndjson", "--where", &deep])
        .code(2);
    assert!(done.err.contains("more than 64 brackets"), "{}", done.err);
}

#[test]
fn the_note_about_skipped_items_is_true_for_all_of_them() {
    let place = Place::new();
    let open = "{\"a\":".repeat(500);
    place.write("a.ndjson", format!("{open}1{}\n", "}".repeat(500)));
    let filter = "$..*..*..*..b";
    let words = ["query", "a.ndjson", "--where", filter];
    let done = place.words(&words);
    assert!(done.err.contains("(E703)"), "{}", done.err);
    let words = [&words[..], &["--on-bad-item", "skip"]].concat();
    let done = place.words(&words).ok();
    let expected =
        "skipped 1 bad items: not JSON, nested too deeply, or above the steps of the filter";
    assert!(done.err.contains(expected), "{}", done.err);
}

#[test]
fn a_single_item_is_checked() {
    let place = Place::new();
    let words = [
        "query",
        "x",
        "--shape",
        "single",
        "--level",
        "structural",
        "-o",
        "raw",
    ];
    place.write("x", "{\"a\":[1,,2]}");
    place.words(&words).ok();
    for bytes in [&b"{\"a\":\"\xff\"}"[..], b"{\"a\":\"x}", b"{\"a\":[}"] {
        place.write("x", bytes);
        place.words(&words).code(65);
    }
}

#[test]
fn a_query_begins_at_the_position_of_each_topic_local_and_remote() {
    let place = Place::new();
    for (topic, n) in [("o.a", 1), ("o.a", 2), ("o.a", 3), ("o.b", 9)] {
        let value = format!("{{\"n\":{n}}}");
        let words = ["put", topic, &value, "-k", "k", "-q", "--at", "data"];
        place.words(&words).ok();
    }
    let check = |at: &str| {
        let found = |words: &[&str]| {
            let begin = ["query", "-t", "o.*", "--at", at, "--select", "$.n"];
            lines(&place, &[&begin, words].concat()).join(" ")
        };
        for (words, expected) in [
            // Offset 1 of each topic is its creation.
            (&["--from", "start"][..], "1 2 3 9"),
            (&["--from", "3"], "2 3"),
            (&["--from", "-1"], "3 9"),
            (&["--from", "-2", "--where", "@.n > 2", "-n", "1"], "3"),
            (&["--from", "-2", "--order-by", "$.n desc"], "9 3 2"),
            (&["--from", "end"], ""),
            (&["--from", "1h"], "1 2 3 9"),
            (&["--from", "yesterday", "--where", "@.n == 1"], "1"),
            (&["--from", "2999-01-01"], ""),
            (&["--from", "1h", "--latest"], "3 9"),
            (
                &[
                    "--from",
                    "1h",
                    "--latest",
                    "--where",
                    "@.n == 1 || @.n == 3",
                ],
                "3",
            ),
            (&["--from", "2999-01-01", "--latest"], ""),
        ] {
            assert_eq!(found(words), expected, "{at} {words:?}");
        }
    };
    check("data");
    let served = Served::new(&place, "127.0.0.1:0", &[]);
    check(&served.url);
    drop(served);
    for (words, why) in [
        ("-t o.a --from 1h --where @.n=", "at byte 3 of `where`"),
        ("--from o.a", "o.a is not a position"),
        ("--from o.a", "`--topic` names the topics"),
        ("-t o.a --from -1 --latest", "--from is a time"),
        ("-t o.a --from 1h --checkpoint c", "cannot be used with"),
        ("a.ndjson --from 1h", "--topic"),
    ] {
        let done = place.run(&format!("query {words} --at data")).code(2);
        assert!(done.err.contains(why), "{words}: {}", done.err);
    }
}

/// The position is found once, although the query closes and opens the directory again and again.
#[test]
fn a_directory_is_followed_from_its_end() {
    let place = Place::new();
    for topic in ["o.a", "o.b"] {
        place.words(&["put", topic, "{\"n\":0}", "-q"]).ok();
    }
    let mut follow = place.weir();
    follow.args([
        "query", "-t", "o.*", "-f", "--from", "end", "--select", "$.n",
    ]);
    let mut child = follow.stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, received) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in out {
            let n = line.unwrap().parse::<u64>().unwrap();
            if sender.send(n).is_err() {
                return;
            }
        }
    });
    let put = |topic: &str, n: u64| {
        let value = format!("{{\"n\":{n}}}");
        let words = ["put", topic, &value, "-q", "--lock-wait", "20s"];
        place.words(&words).ok();
    };
    // Records that were written before the query began are not printed.
    let (begin, patience) = (Instant::now(), Duration::from_mins(2));
    let mut written = 0;
    let first = loop {
        written += 1;
        put("o.a", written);
        if let Ok(n) = received.try_recv() {
            break n;
        }
        assert!(begin.elapsed() < patience, "none of {written} was printed");
    };
    // A topic without a new record since the query began, and a new topic.
    for topic in ["o.b", "o.c"] {
        written += 1;
        put(topic, written);
    }
    let rest = (first + 1..=written).map(|_| received.recv_timeout(patience).unwrap());
    assert!(first > 0 && rest.eq(first + 1..=written));
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
}

/// Another process writes to the directory, also to topics that it creates meanwhile.
#[test]
fn a_directory_is_followed_while_others_write() {
    let place = Place::new();
    place.words(&["put", "o.a", "{\"n\":1}", "-q"]).ok();
    let mut follow = place.weir();
    follow.args([
        "query", "--topic", "o.*", "-f", "--where", "@.n > 0", "-n", "4", "-o", "raw",
    ]);
    let mut child = follow.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(out.next().unwrap().unwrap(), "{\"n\":1}");
    for (topic, n) in [("o.a", 2), ("o.b", 3), ("o.a", 0), ("p", 9), ("o.a", 4)] {
        let value = format!("{{\"n\":{n}}}");
        place
            .words(&["put", topic, &value, "-q", "--lock-wait", "20s"])
            .ok();
    }
    let found: Vec<String> = out.map(Result::unwrap).collect();
    assert_eq!(found, ["{\"n\":2}", "{\"n\":3}", "{\"n\":4}"]);
    assert!(child.wait().unwrap().success());
}

#[test]
#[allow(clippy::too_many_lines)] // one place, many queries
fn tail_filters_records_local_and_remote() {
    let place = Place::new();
    for (key, value) in [
        ("a", "{\"n\":1}"),
        ("b", "{\"n\":5}"),
        ("c", "no json"),
        ("d", "{\"n\":7}"),
    ] {
        place
            .words(&["put", "o", value, "-k", key, "-q", "--at", "data"])
            .ok();
    }
    place
        .words(&["delete", "o", "--key", "d", "-q", "--at", "data"])
        .ok();
    let tail = |more: &[&str]| {
        let done = place.words(&[&["tail", "o"], more].concat()).ok();
        let offsets = done.lines();
        offsets
            .iter()
            .map(|line| line["offset"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    let mut remote = Vec::new();
    for (words, expected) in [
        (vec!["--where", "@.n > 2"], vec![3, 5]),
        (vec!["--where", "@.n > 2", "-n", "1"], vec![3]),
        (vec!["--where", "@.n > 2", "--from", "-2"], vec![5]),
        (vec!["--where", "meta('key') == 'd'"], vec![5, 6]),
        (
            vec![
                "--where",
                "meta('type') == 'DELETE' && meta('topic') == 'o'",
            ],
            vec![6],
        ),
        (
            vec!["--where", "meta('offset') < 3 && meta('time_ms') > 0"],
            vec![1, 2],
        ),
        (
            vec!["--where", "@.n == param('n')", "--param", "n=5"],
            vec![3],
        ),
        (
            vec!["--where", "-2 < @.n", "--type", "put", "--key-prefix", "b"],
            vec![3],
        ),
        // A value that is not JSON has no paths, so this is true.
        (vec!["--where", "!@.n", "--type", "put"], vec![4]),
    ] {
        let local = [&words[..], &["--at", "data"]].concat();
        assert_eq!(tail(&local), expected, "{words:?}");
        remote.push((words, expected));
    }
    let served = Served::new(&place, "127.0.0.1:0", &[]);
    for (words, expected) in remote {
        let words = [&words[..], &["--at", &served.url]].concat();
        assert_eq!(tail(&words), expected, "{words:?}");
    }
    drop(served);
    for bad in ["@.n >", "meta('keys') == 1", "param('p')"] {
        place
            .words(&["tail", "o", "--where", bad, "--at", "data"])
            .code(2);
    }
    place
        .words(&[
            "tail", "o", "--where", "@.n", "--group", "g", "--at", "data",
        ])
        .code(2);
    place.words(&["tail", "o", "--param", "n=1"]).code(2);
    // The table for people has the main columns. The kind precedes the value if it is not a put.
    let table = place
        .words(&["tail", "o", "-o", "table", "--no-headers", "--at", "data"])
        .ok()
        .text();
    let ends: Vec<String> = table
        .lines()
        .map(|line| {
            line.split_whitespace()
                .skip(1)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    let expected = [
        "CREATE",
        "a {\"n\":1}",
        "b {\"n\":5}",
        "c no json",
        "d {\"n\":7}",
        "d DELETE",
    ];
    assert_eq!(ends, expected);
    let table = place
        .words(&["tail", "*", "o", "-o", "table", "--at", "data"])
        .ok()
        .text();
    assert!(table.starts_with("TOPIC  TIME"), "{table}");
    assert!(
        place
            .words(&["tail", "o", "-o", "wide", "--at", "data"])
            .ok()
            .text()
            .contains("OFFSET")
    );
}

/// Colours are off without a terminal; these commands turn them on.
#[test]
fn json_and_verdicts_have_colours_on_request() {
    let place = Place::new();
    let coloured = |words: &[&str], set: &[(&str, &str)]| {
        let mut weir = place.weir();
        weir.args(words)
            .env("CLICOLOR_FORCE", "1")
            .envs(set.iter().copied());
        command_output(weir.output().unwrap()).text()
    };
    let put = coloured(&["put", "o", "{\"n\":1}", "-k", "a", "-o", "table"], &[]);
    assert!(put.contains("\x1b[32mVALID\x1b[0m"), "{put:?}");
    let put = coloured(
        &["put", "o", "1", "-k", "a", "--if-absent", "-o", "table"],
        &[],
    );
    assert!(put.contains("\x1b[31mINVALID\x1b[0m"), "{put:?}");
    let value = "\x1b[34m\"n\"\x1b[0m:\x1b[36m1\x1b[0m";
    for words in [
        &["tail", "o", "-o", "table"][..],
        &["tail", "o", "-o", "jsonl"],
        &["get", "o", "--key", "a", "-o", "json"],
        &["query", "--topic", "o", "-o", "json"],
        &["query", "--topic", "o", "-o", "table"],
        &[
            "query", "--topic", "o", "--select", "$.n, $.m", "-o", "jsonl",
        ],
    ] {
        let text = coloured(words, &[]);
        assert!(text.contains(value), "{words:?} {text:?}");
        let plain = coloured(words, &[("NO_COLOR", "1")]);
        assert!(!plain.contains('\x1b'), "{words:?} {plain:?}");
        assert!(
            !place.words(words).ok().text().contains('\x1b'),
            "{words:?}"
        );
    }
}

/// On a terminal, a tail prints a table, and colours need no request.
#[test]
fn a_terminal_gets_a_table_with_colours() {
    const SPAWN: &str = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    let place = Place::new();
    let on_terminal = |words: &[&str]| {
        let mut python = place.command("python3");
        python.args(["-c", SPAWN, env!("CARGO_BIN_EXE_weir")]);
        python.args(words).env("TERM", "xterm").env("COLUMNS", "80");
        command_output(python.output().unwrap()).ok().text()
    };
    let put = on_terminal(&["put", "o", "{\"n\":1}", "-k", "a"]);
    assert!(put.contains("\x1b[32mVALID\x1b[0m"), "{put:?}");
    let tail = on_terminal(&["tail", "o"]);
    assert!(tail.contains("TIME"), "{tail:?}");
    assert!(
        tail.contains("\x1b[34m\"n\"\x1b[0m:\x1b[36m1\x1b[0m"),
        "{tail:?}"
    );
}
