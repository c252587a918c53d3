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

  check          the gate: fmt, tidy, gen --check, licences, lock files, features, clippy, doc
  test           check, then every test of every language; one line a suite and a total
  test-rust      the tests of the Rust workspace alone
  tidy           import directions, forbidden things, documents, data
  gen [--check]  write the files made from vectors/errors.toml, and the figures of the README from
                 lab/record; or compare them
  fmt            formatting (cargo fmt --check)
  clippy         lints of all targets, warnings denied
  doc            rustdoc, warnings denied
  lock-files     the lock files of the lab's peers and of the reference programs are current
  features       packages that are built alone for tests share foreign crates with the workspace
  licences       licences, sources, bans and duplicates from the lock file, by deny.toml
  deny           cargo-deny itself (built into target/tools when missing: minutes);
                 WEIR_ADVISORY_DB=DIR adds advisories from an unpacked RustSec database
  wasm [--write] build the programs of topics from source, in each language, and compare them with
                 programs/prebuilt or write them there; build and run a new project of each
  bindings       the C library, installed below target, and the languages that call it: C, Go, Java
  cluster DIR    a cluster of three nodes below DIR for the tests of a language: prints its address,
                 executes the requests that it reads (`kill` the leader, `stop` the other nodes,
                 `continue`), and ends with its input
  capi install --prefix P [--debug] [--shared]
                 build the C library in release mode and put it, its headers and weir.pc below P;
                 --debug: as the tests build it; --shared: without the static library
  api            requests drawn from the description of the HTTP edge, sent to a server by
                 schemathesis, and a client generated from it (both are fetched into
                 target/tools when missing)
  ds             the published conformance suite of Durable Streams, on a server (it and node are
                 fetched into target/tools when missing)
  json           the public suites of JSONPath and of JSON parsing (fetched into target/tools when
                 missing)
  emacs          the Emacs package on a real Emacs: checks and tests with the module
  python         the Python package: its wheel, installed into a clean environment, and its tests
                 (what they need is fetched into target/tools when missing)
  node           the Node package: packed with its native module, installed into a clean directory,
                 and its tests (what checks its types is fetched into target/tools when missing)
  fuzz [SECONDS] every fuzz target for so many seconds (3,600), without coverage
  miri           the packages with unsafe code and the codec under Miri (an hour; needs a nightly
                 toolchain with miri: WEIR_NIGHTLY names another one than the pinned one)
  arm            the kernels for 64-bit ARM under qemu (needs qemu-user, gcc-aarch64-linux-gnu)
  install        `cargo install` of the README in the dev profile, and a run of the installed
                 command (minutes)
  setup          toolchain parts the checks need, installed when missing
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
        ("deny", []) => deny::full(),
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
