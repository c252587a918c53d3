//! Runs every transcript of `vectors/api` through the public API. The README of that directory
//! describes the language. `WEIR_REWRITE=1` writes the printed results into the files instead;
//! review that change like code.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is a failed test"
)]

#[path = "api/script.rs"]
mod script;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use script::World;

/// Replaces the output of each block by what its commands print. Also returns the number of
/// commands.
fn rewritten(text: &str) -> (String, usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(folder.path());
    let (mut out, mut commands) = (String::new(), 0);
    for block in text.trim_end_matches('\n').split("\n\n") {
        if !out.is_empty() {
            out.push('\n');
        }
        let mut printed = String::new();
        for line in block.lines().take_while(|line| *line != "----") {
            writeln!(out, "{line}").unwrap();
            if !line.starts_with('#') {
                commands += 1;
                world.run(line, &mut printed);
            }
        }
        if !printed.is_empty() {
            writeln!(out, "----").unwrap();
            out += &printed;
        }
    }
    (out, commands)
}

#[test]
fn transcripts_print_what_they_expect() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/api");
    let files = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "txt"));
    paths.sort();
    let rewrite = std::env::var_os("WEIR_REWRITE").is_some();
    let (mut wrong, mut commands) = (String::new(), 0);
    for path in &paths {
        let text = std::fs::read_to_string(path).unwrap();
        let (new, count) = rewritten(&text);
        commands += count;
        if rewrite {
            std::fs::write(path, new).unwrap();
        } else if new != text {
            let name = path.file_name().unwrap().to_string_lossy();
            let lines = text.lines().zip(new.lines());
            for (old, new) in lines.filter(|(old, new)| old != new) {
                writeln!(wrong, "{name}:\n- {old}\n+ {new}").unwrap();
            }
            writeln!(wrong, "{name} differs").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(commands > 0);
    println!("{} transcripts, {commands} commands", paths.len());
}
