//! Checks and generators of the project: `cargo xtask help` lists them.
//!
//! Invariants:
//! - `check` is the only gate. Every rule that it applies is data at the top of the module that
//!   applies it.
//! - Only `gen` and `wasm --write` change files outside of `target`.
//! - `check` and `test` must work with network access to package registries only. Tools that the
//!   registries lack count as skipped. Exception: without the suites of `json`, `test` fails.
#![forbid(unsafe_code)]

mod c;
mod capi;
mod changed;
mod check;
mod cluster;
mod deny;
mod durable_streams;
mod emacs;
mod error_table;
mod generate;
mod go;
mod java;
mod json_suites;
mod longer;
mod metadata;
mod node;
mod openapi_client;
mod python;
mod readme;
mod schemathesis;
mod served;
mod setup;
mod steps;
mod suites;
mod tidy;
mod tree;
mod wasm;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  check          run the gate: fmt, tidy, gen --check, licences, lock-files, features, clippy, doc
  test           run `check`, then all tests of all languages; print a line for each suite, and a
                 total
  test-rust      run the tests of the Rust workspace alone
  test-changed [COMMIT]
                 run fmt, tidy, gen --check and clippy, and the tests of the Rust packages whose
                 files differ from COMMIT (default HEAD), without those of packages that use them
  tidy           check imports, forbidden content, documents, data
  gen [--check]  generate the files from vectors/errors.toml, and the figures of the README from
                 lab/record; --check: compare them with the files in the tree
  fmt            check the formatting (cargo fmt --check)
  clippy         run the lints of all targets; a warning is an error
  doc            build the documentation; a warning is an error
  lock-files     check that the lock files of the lab's peers and of the programs are current
  features       check that packages that are built alone share foreign crates with the workspace
  licences       check licences, sources, bans and duplicates in the lock file by deny.toml
  deny           run cargo-deny, which is built into target/tools if it is missing (minutes);
                 WEIR_ADVISORY_DB=DIR adds the advisories of an unpacked RustSec database
  wasm [--write] build the programs of topics from source, in each language, and compare them with
                 programs/prebuilt; build and run a new project in each language; --write: replace
                 the modules in programs/prebuilt
  bindings       install the C library below target, and test C, Go and Java with it
  cluster DIR    start a cluster of three nodes below DIR for the tests of a language: print its
                 address, execute the requests in the input (`kill` the leader, `stop` the other
                 nodes, `continue`), and end with the input
  capi install --prefix P [--debug] [--shared]
                 build the C library in release mode, and install it, its headers and weir.pc below
                 P; --debug: as the tests build it; --shared: without the static library
  api            send requests that schemathesis derives from docs/api/openapi.yaml to a server, and
                 test a generated client (both tools are fetched into target/tools if missing)
  ds             run the published conformance suite of Durable Streams (it and Node are fetched
                 into target/tools if missing)
  json           run the public suites of JSONPath and of JSON parsing (fetched into target/tools if
                 missing)
  emacs          check the Emacs package, and run its tests with the module in Emacs
  python         build the wheel of the Python package, install it into an empty environment, and
                 run its tests (the tools are fetched into target/tools if missing)
  node           pack the Node package with its native module, install it into an empty directory,
                 and run its tests (the type checker is fetched into target/tools if missing)
  fuzz [SECONDS] run each fuzz target for SECONDS (default 3,600), without coverage
  miri           run the packages with unsafe code and the codec under Miri (an hour; needs a
                 nightly toolchain with Miri; WEIR_NIGHTLY overrides the pinned one)
  arm            test the kernels for 64-bit ARM under qemu (needs qemu-user, gcc-aarch64-linux-gnu)
  install        run the `cargo install` of the README in the dev profile, and the installed command
                 (minutes)
  setup          install missing tools that checks and tests need
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_else(|| "help".to_owned());
    let rest: Vec<String> = args.collect();
    match run(&command, &rest) {
        Ok(true) => ExitCode::SUCCESS,
        // The failure is already printed, and the line of totals must be the last one.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask {command}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command. Returns `false` if it failed and has printed the reason.
fn run(command: &str, rest: &[String]) -> anyhow::Result<bool> {
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    match (command, rest.as_slice()) {
        ("test", []) => return check::test(),
        ("api", []) => return Ok(check::api()),
        ("ds", []) => return Ok(check::ds()),
        ("json", []) => return Ok(check::json()),
        ("emacs", []) => return Ok(check::emacs()),
        ("python", []) => return Ok(check::python()),
        ("node", []) => return Ok(check::node()),
        ("bindings", []) => return Ok(check::bindings()),
        ("capi", some) => {
            capi::command(some)?;
            return Ok(true);
        }
        ("cluster", [directory]) => {
            cluster::run(directory)?;
            return Ok(true);
        }
        ("wasm", []) => return wasm::wasm(false),
        ("wasm", ["--write"]) => return wasm::wasm(true),
        ("test-rust", []) => return check::test_rust(),
        ("test-changed", []) => return check::test_changed("HEAD"),
        ("test-changed", [commit]) => return check::test_changed(commit),
        ("check", []) => check::check(),
        ("tidy", []) => tidy::tidy(),
        ("gen", []) => generate::write(),
        ("gen", ["--check"]) => generate::compare(),
        ("fmt", []) => check::fmt(),
        ("clippy", []) => check::clippy(),
        ("doc", []) => check::doc(),
        ("licences", []) => deny::licences(),
        ("lock-files", []) => check::lock_files(),
        ("features", []) => check::features(),
        ("deny", []) => deny::run_cargo_deny(),
        ("fuzz", []) => longer::fuzz(None),
        ("fuzz", [seconds]) => longer::fuzz(Some(seconds)),
        ("miri", []) => longer::miri(),
        ("arm", []) => longer::arm(),
        ("install", []) => longer::install(),
        ("setup", []) => setup::setup(),
        ("help" | "-h" | "--help", _) => {
            print!("{HELP}");
            Ok(())
        }
        _ => anyhow::bail!("no such command or option; `cargo xtask help` lists them"),
    }?;
    Ok(true)
}
