//! Runs the public compliance suite of RFC 9535: `jsonpath_suite cts.json`. The file is, for
//! example, in the npm package `jsonpath-rfc9535`. Prints a line for each case, `passed NAME` or
//! `failed NAME: why`, then the count. Exits with 1 if a case fails.
#![allow(clippy::print_stdout, reason = "the report of a command")]

use serde_json::value::RawValue;
use serde_json::{Value, from_str};
use std::process::ExitCode;
use weir_scan::Query;

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        println!("usage: jsonpath_suite FILE");
        return ExitCode::from(2);
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            println!("{path}: {error}");
            return ExitCode::from(2);
        }
    };
    let suite: Option<Value> = from_str(&text).ok();
    let raw: Option<std::collections::BTreeMap<String, Box<RawValue>>> = from_str(&text).ok();
    let cases = suite
        .as_ref()
        .and_then(|suite| suite.get("tests")?.as_array());
    let raw: Option<Vec<std::collections::BTreeMap<String, Box<RawValue>>>> =
        raw.and_then(|raw| from_str(raw.get("tests")?.get()).ok());
    let (Some(cases), Some(raw)) = (cases, raw) else {
        println!("{path}: not a suite");
        return ExitCode::from(2);
    };
    let mut failed = 0;
    for (case, raw) in cases.iter().zip(&raw) {
        // The original text of the document, so that members keep their order.
        let document = raw.get("document").map_or("null", |raw| raw.get());
        let name = case["name"].as_str().unwrap_or("?");
        match check(case, document) {
            Ok(()) => println!("passed {name}"),
            Err(why) => {
                failed += 1;
                println!("failed {name}: {} {why}", case["selector"]);
            }
        }
    }
    println!("{} cases, {failed} failed", cases.len());
    ExitCode::from(u8::from(failed > 0))
}

fn check(case: &Value, document: &str) -> Result<(), String> {
    let selector = case["selector"].as_str().unwrap_or_default();
    let query = Query::parse(selector);
    if case["invalid_selector"] == true {
        return query.map_or(Ok(()), |_| Err("accepted".to_owned()));
    }
    let query = query.map_err(|error| error.to_string())?;
    let found = query.all(document.as_bytes(), &());
    let found = found.map_err(|error| error.to_string())?;
    let found = found.iter().map(|value| {
        let text = value.span.of(document.as_bytes());
        serde_json::from_slice(text).unwrap_or(Value::Null)
    });
    let found = Value::Array(found.collect());
    let several = case.get("results").and_then(Value::as_array);
    let fine = match several {
        Some(several) => several.contains(&found),
        None => case["result"] == found,
    };
    if fine {
        Ok(())
    } else {
        Err(format!("found {found}"))
    }
}
