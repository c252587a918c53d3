//! Runs every transcript of `vectors/machine` in four modes, which must print the same output:
//! - each command as a separate batch
//! - each intention sent twice
//! - the machine saved and loaded between every two commands
//! - successive intentions in one batch
//!
//! `WEIR_REWRITE=1` writes the output of the first mode to the files. Such a change is reviewed
//! like code.

mod file;
mod groups;
mod record_checker;
mod words;
mod world;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use world::{RunMode, World};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/machine")
}

#[test]
fn every_transcript_has_its_output_in_every_mode() {
    let rewrite = std::env::var_os("WEIR_REWRITE").is_some_and(|value| value == "1");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "txt"))
        .collect();
    paths.sort();
    let (mut commands, mut wrong) = (0, String::new());
    for path in &paths {
        let name = path.file_name().unwrap().to_string_lossy();
        let text = std::fs::read_to_string(path).unwrap();
        let blocks = file::read(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        commands += blocks
            .iter()
            .map(|block| block.commands.len())
            .sum::<usize>();
        for mode in RunMode::ALL {
            let mut world = World::new(mode);
            let outputs: Vec<String> = blocks
                .iter()
                .map(|block| world.block(&block.commands))
                .collect();
            if rewrite && mode == RunMode::Plain {
                std::fs::write(path, file::write(&blocks, &outputs)).unwrap();
            }
            let known = blocks.iter().zip(&outputs).filter(|_| !rewrite);
            for (block, output) in known.filter(|(block, output)| block.expected != **output) {
                let (line, expected) = (block.line, &block.expected);
                let _ = writeln!(
                    wrong,
                    "{name}, line {line}, {mode:?}: expected\n{expected}but got\n{output}"
                );
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(commands > 0, "there are transcripts");
    println!(
        "{} transcripts, {commands} commands, {} modes",
        paths.len(),
        RunMode::ALL.len()
    );
}
