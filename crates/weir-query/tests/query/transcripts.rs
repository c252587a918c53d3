//! Runs every transcript of `vectors/query`: commands above a rule, and their output below
//! it. With `WEIR_REWRITE=1`, the output is written to the files instead; such a change
//! needs review.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::script::World;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/query")
}

/// Returns the file with the current output of each block, and the number of commands.
fn rewritten(text: &str) -> (String, usize) {
    let (mut out, mut commands) = (String::new(), 0);
    let mut world = World::default();
    for block in text.trim_end().split("\n\n") {
        if !out.is_empty() {
            out.push('\n');
        }
        let mut printed = String::new();
        let mut begun = false;
        for line in block.lines().take_while(|line| *line != "----") {
            writeln!(out, "{line}").unwrap();
            if !line.starts_with('#') && !line.trim().is_empty() {
                begun = true;
                commands += 1;
                world.run(line, &mut printed);
            }
        }
        if begun {
            writeln!(out, "----").unwrap();
            out += &printed;
        }
    }
    (out, commands)
}

#[test]
fn every_transcript_has_its_output() {
    let rewrite = std::env::var_os("WEIR_REWRITE").is_some_and(|value| value == "1");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "txt"))
        .collect();
    paths.sort();
    let (mut commands, mut wrong) = (0, String::new());
    for path in &paths {
        let text = std::fs::read_to_string(path).unwrap();
        let (new, count) = rewritten(&text);
        commands += count;
        if rewrite {
            std::fs::write(path, new).unwrap();
        } else if new != text {
            let name = path.file_name().unwrap().to_string_lossy();
            for (old, new) in text
                .lines()
                .zip(new.lines())
                .filter(|(old, new)| old != new)
            {
                writeln!(wrong, "{name}:\n- {old}\n+ {new}").unwrap();
            }
            writeln!(wrong, "{name} differs").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(commands > 0);
    println!("{} transcripts, {commands} commands", paths.len());
}
