//! Tests that JSON has every field of the table, and that every field is described.

use serde_json::Value;

use crate::run::{CommandOutput, Place};

/// Every command that prints rows, on the store of [`filled`].
const COMMANDS: &[&str] = &[
    "put t 1 --key k",
    "get t 2",
    "tail t",
    "export t",
    "delete t --key k",
    "topic ls",
    "topic show t",
    "topic set t keys-max=none",
    "topic verify t",
    "context ls",
    "context show here",
    "version",
    "status",
    "doctor",
    "import data -t t --again",
    "verify",
    "backup b-%",
    "restore copy r-%",
    "compact",
    "compact s",
    "config show",
    "token create n-% --right admin",
    "token ls",
    "cert ca ca-%",
    "cert issue n-% --ca pki",
    "cert show pki/ca.pem",
    "bench write -m 20 --window 3 --batch 4",
    "bench read -t t",
    "bench tail -m 5",
    "program check counter.wasm",
    "program test counter.wasm counter.txt",
    "program ls",
    "program show p",
    "program trace p 4",
    "program bench counter.wasm --count 1000",
];

fn filled() -> Place {
    let place = Place::new();
    place.run("put t 1 --key k").ok();
    place.run("context create here x").ok();
    place.write("data", "1\n");
    place.run("topic create s compaction=latest").ok();
    place.run("backup copy").ok();
    place.run("cert ca pki").ok();
    place.run("token create first --right admin").ok();
    place
}

/// Like `filled`, with a program.
fn programmed() -> Place {
    let place = filled();
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let module = std::fs::read(root.join("programs/prebuilt/counter.wasm"));
    place.write("counter.wasm", module.unwrap());
    let script = "create p program=counter\n----\n1 VALID: p 1 CREATE last\n";
    place.write("counter.txt", script);
    place.run("program deploy p counter.wasm").ok();
    place
}

/// Member names of the first object; the text forms of a field count as the field.
fn members(value: &Value) -> Vec<String> {
    let object = value.as_array().map_or(value, |array| &array[0]);
    let plain = |name: &String| match name.trim_end_matches("64") {
        "text" => "value".to_owned(),
        name => name.to_owned(),
    };
    object
        .as_object()
        .expect("an object")
        .keys()
        .map(plain)
        .collect()
}

fn columns(done: &CommandOutput, upright: bool) -> Vec<String> {
    let text = done.text();
    if upright {
        let first = |line: &str| line.split(' ').next().map(str::to_owned);
        return text.lines().filter_map(first).collect();
    }
    let head = text.lines().next().unwrap();
    head.split_whitespace().map(str::to_lowercase).collect()
}

#[test]
fn json_has_every_field_of_the_table_and_help_lists_all_fields() {
    for command in COMMANDS {
        let place = if command.starts_with("program") {
            programmed()
        } else {
            filled()
        };
        let run = |format: &str| {
            let line = format!("{command} -o {format}").replace('%', format);
            place.run(&line).ok()
        };
        let json = run("json").json();
        let upright = json.is_object() && !command.starts_with("tail");
        let json = members(&json);
        let wide = columns(&run("wide"), upright);
        let table = columns(&run("table"), upright);
        let line = &run("jsonl").lines()[0];
        let csv = run("csv").text();
        let csv: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
        let help = run("help").text();
        let help: Vec<&str> = help
            .lines()
            .skip(1)
            .filter_map(|l| l.split(' ').next())
            .collect();
        let mut sorted = wide.clone();
        sorted.sort();
        let mut json_sorted = json.clone();
        json_sorted.sort();
        assert_eq!(sorted, json_sorted, "{command}");
        assert!(
            table.iter().all(|column| wide.contains(column)),
            "{command}"
        );
        let mut line = members(line);
        line.sort();
        assert_eq!(line, json_sorted, "{command}");
        assert_eq!(csv, wide, "{command}");
        assert_eq!(help, wide, "{command}");
    }
}

#[test]
fn the_caller_selects_columns_headings_and_width() {
    let place = filled();
    let long = "v".repeat(200);
    place.run(&format!("put t {long}")).ok();
    let csv = place.run("topic ls -o csv --columns keys,name").ok().text();
    assert_eq!(csv, "keys,name\r\n0,s\r\n1,t\r\n");
    let csv = place
        .run("topic ls -o csv --columns keys,name --no-headers")
        .ok()
        .text();
    assert_eq!(csv, "0,s\r\n1,t\r\n");
    let json = place.run("topic show t -o json --columns name").ok().text();
    assert_eq!(json, "{\"name\":\"t\"}\n");
    let mut command = place.weir();
    command
        .args(["tail", "t", "-o", "table"])
        .env("COLUMNS", "80");
    let table = crate::run::command_output(command.output().unwrap())
        .ok()
        .text();
    assert!(
        table.lines().all(|line| line.chars().count() <= 80),
        "{table}"
    );
    assert!(table.contains('…'), "{table}");
    let wide = place.run("tail t -o wide").ok().text();
    assert!(wide.contains(&long));
}

#[test]
fn raw_rows_have_the_requested_columns() {
    let place = Place::new();
    place.run("put t {\"n\":1} --key k").ok();
    for (columns, expected) in [
        ("", "{\"n\":1}\n"),
        (" --columns value", "{\"n\":1}\n"),
        (" --columns key", "k\n"),
        (" --columns offset,key,value", "2\tk\t{\"n\":1}\n"),
    ] {
        let line = format!("export t -o raw{columns}");
        assert_eq!(place.run(&line).ok().text(), expected, "{line}");
    }
    let got = |options: &str| place.run(&format!("get t 2{options}")).ok().text();
    assert_eq!(got(""), "{\"n\":1}");
    assert_eq!(got(" --columns key,offset"), "key     k\noffset  2\n");
    assert_eq!(got(" -o raw --columns key"), "k\n");
}

#[test]
fn an_empty_list_is_an_empty_array_or_a_heading() {
    let place = Place::new();
    assert_eq!(place.run("context ls -o json").ok().text(), "[]\n");
    assert_eq!(place.run("context ls -o jsonl").ok().text(), "");
    assert!(place.run("context ls").ok().text().starts_with("NAME"));
    assert!(
        place
            .run("context ls -o csv")
            .ok()
            .text()
            .starts_with("name,")
    );
}

#[test]
fn weir_without_arguments_prints_one_screen() {
    let place = Place::new();
    let text = place.words(&[]).ok().text();
    assert!(text.lines().count() <= 22, "{text}");
    assert!(
        text.lines()
            .filter(|line| line.starts_with("  weir "))
            .count()
            >= 5,
        "{text}"
    );
}
