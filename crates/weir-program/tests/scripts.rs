//! Runs every script of `vectors/programs` on both engines: without changes, with a restart after
//! each command, and with each write sent twice. The outcomes and the digests must be equal.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_core::ProgramHost;
use weir_program::script::{RunOptions, rewritten, run};
use weir_program::{WasmiHost, WasmtimeHost};

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn program(name: &str) -> Option<Vec<u8>> {
    std::fs::read(folder("programs/prebuilt").join(format!("{name}.wasm"))).ok()
}

#[test]
fn every_script_has_equal_results_on_every_engine_and_after_restarts() {
    let rewrite = std::env::var_os("WEIR_REWRITE").is_some_and(|value| value == "1");
    let native: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let interpreted: Arc<dyn ProgramHost> = Arc::new(WasmiHost::default());
    let mut count = 0;
    for entry in std::fs::read_dir(folder("vectors/programs")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display();
        let script = std::fs::read_to_string(&path).unwrap();
        let plain = RunOptions::default();
        let (blocks, machine) = run(&script, &native, plain, &program).unwrap();
        if rewrite {
            std::fs::write(&path, rewritten(&script, &blocks)).unwrap();
        }
        for block in blocks.iter().filter(|_| !rewrite) {
            assert_eq!(block.actual, block.expected, "{name} line {}", block.line);
        }
        for host in [&native, &interpreted] {
            for (restarts, twice) in [(false, false), (true, false), (false, true), (true, true)] {
                let options = RunOptions { restarts, twice };
                let (again, other) = run(&script, host, options, &program).unwrap();
                for (block, again) in blocks.iter().zip(&again) {
                    let engine = host.fingerprint();
                    let line = block.line;
                    assert_eq!(
                        again.actual, block.actual,
                        "{name} line {line}, {options:?}, {engine}"
                    );
                }
                assert_eq!(other.digest(), machine.digest(), "{name}, {options:?}");
            }
        }
        count += blocks.len();
    }
    assert!(count > 0, "there are scripts");
    println!("{count} blocks");
}

/// The allocations of a call are freed. One page of memory, most of it heap, suffices for many
/// calls that together allocate several times as much.
#[test]
fn the_heap_is_empty_at_the_start_of_each_call() {
    let native: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let value = "word\\x20".repeat(200);
    for mode in ["none", "memory"] {
        let mut script = format!("create w program=words state={mode}\n");
        for n in 0..300 {
            script.extend(["put w k", &n.to_string(), "=", &value, "\n"]);
        }
        // More than the page has space for: the allocation fails, and so does the call.
        script.push_str("put w k={x*60000}\nput w k=after\n----\n\n");
        let (blocks, _) = run(&script, &native, RunOptions::default(), &program).unwrap();
        let actual: Vec<&str> = blocks[0].actual.lines().collect();
        let valid = |line: &&&str| line.contains(" VALID: ");
        assert_eq!(actual.iter().filter(valid).count(), 302, "{mode}");
        assert_eq!(actual[301], "302 ERROR TRAP unreachable", "{mode}");
    }
}

/// The programs of each language: the suffix of their modules, their folder, and the extension of
/// their sources.
const LANGUAGES: [(&str, &str, &str); 4] = [
    ("", "programs/reference/examples", "rs"),
    ("-c", "programs/c", "c"),
    ("-zig", "programs/zig", "zig"),
    ("-as", "programs/assemblyscript/assembly", "ts"),
];

/// `balance`, and `surface`, which calls every function, in each language: one script has the same
/// results.
#[test]
fn a_program_has_equal_results_in_every_language() {
    let native: Arc<dyn ProgramHost> = Arc::new(WasmtimeHost::default());
    let interpreted: Arc<dyn ProgramHost> = Arc::new(WasmiHost::default());
    for name in ["balance", "surface"] {
        let script = folder("vectors/programs").join(format!("{name}.txt"));
        let script = std::fs::read_to_string(script).unwrap();
        for (suffix, _, _) in LANGUAGES {
            let module = program(&format!("{name}{suffix}")).unwrap();
            if name == "surface" {
                let report = weir_program::inspect(&module).unwrap();
                assert_eq!(report.imports.len(), 16, "functions that {suffix} calls");
            }
            let program = |asked: &str| (asked == name).then(|| module.clone());
            for host in [&native, &interpreted] {
                for restarts in [false, true] {
                    let twice = restarts;
                    let options = RunOptions { restarts, twice };
                    let (blocks, _) = run(&script, host, options, &program).unwrap();
                    for block in blocks {
                        let (line, engine) = (block.line, host.fingerprint());
                        assert_eq!(
                            block.actual, block.expected,
                            "{name}{suffix} line {line}, {options:?}, {engine}"
                        );
                    }
                }
            }
        }
    }
}

/// The checked-in modules match the list of hashes, and are small.
#[test]
fn the_prebuilt_modules_match_the_list() {
    let host = WasmtimeHost::default();
    let list = std::fs::read_to_string(folder("programs/prebuilt/SHA256SUMS")).unwrap();
    let mut count = 0;
    for line in list.lines() {
        let (hash, name) = line.split_once("  ").unwrap();
        let code = std::fs::read(folder("programs/prebuilt").join(name)).unwrap();
        assert_eq!(host.hash(&code).to_string(), hash, "{name}");
        assert!(code.len() < 60 << 10, "{name}");
        let name = name.strip_suffix(".wasm").unwrap();
        let sources = LANGUAGES.map(|(suffix, place, ending)| {
            let stem = name.strip_suffix(suffix)?;
            folder(place)
                .join(format!("{stem}.{ending}"))
                .exists()
                .then_some(())
        });
        assert!(sources.contains(&Some(())), "{name} has a source");
        count += 1;
    }
    let files = std::fs::read_dir(folder("programs/prebuilt"))
        .unwrap()
        .count();
    assert_eq!(count + 1, files, "each module is in the list");
}
