//! Rules about source files: required and forbidden content.

use super::Findings;
use super::rust_source::{code, lines_with, without_tests};
use crate::metadata::Package;
use crate::tree;

/// Crates whose root denies unsafe code instead of forbidding it, with the files or folders that
/// may allow unsafe blocks. Each block needs a justification.
const UNSAFE_ALLOWED: &[(&str, &[&str])] = &[
    ("weir-scan", &["src/"]),
    ("weir-capi", &["src/"]),
    ("weir-emacs", &["src/"]),
    // The buffer protocol is a C interface; macros generate the rest.
    (
        "weir-python",
        &["src/buffer.rs", "src/record.rs", "src/result.rs"],
    ),
    // Macros generate the unsafe code.
    ("weir-node", &[]),
    // One allocator function, which takes no pointer.
    ("weir-cli", &["src/allocator.rs"]),
    // The counting allocator, which proves that nothing is allocated. Not shipped.
    ("weir-lab", &["src/alloc.rs"]),
];

/// Attributes that allow unsafe code.
const ALLOWING_UNSAFE: &[&str] = &[
    "allow(unsafe_code",
    "expect(unsafe_code",
    "warn(unsafe_code",
];

/// Kinds of targets that users run or link.
const SHIPPED: &[&str] = &["lib", "rlib", "cdylib", "staticlib", "bin", "proc-macro"];

/// Markers of unfinished or disabled code, in any Rust file.
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "#[ignore"];

/// Crates without I/O, clock, threads, floats and hash order.
const PURE: &[&str] = &["weir-core", "weir-query", "weir-protocol"];

/// What the pure core must not use: I/O, clock, randomness, floats, unordered iteration.
const FORBIDDEN_IN_CORE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::io",
    "std::env",
    "std::process",
    "std::thread",
    "thread::",
    "Instant",
    "SystemTime",
    "HashMap",
    "HashSet",
    "RandomState",
    "f32",
    "f64",
    "static mut",
    "thread_local!",
];

/// Libraries must not write to the terminal of their process.
const FORBIDDEN_IN_LIBRARIES: &[&str] = &["println!", "print!", "eprintln!", "eprint!"];

/// Crates whose libraries belong to a command and may print.
const MAY_PRINT: &[&str] = &["weir-lab", "weir-cli", "xtask"];

/// Variants that distinguish a store of this process from a store at a server.
const LOCAL_OR_REMOTE: &[&str] = &["Local", "Remote"];

/// The only folder of the crate `weir` whose code may name those variants.
const BACKEND: &str = "src/backend";

/// The line that identifies generated files.
const GENERATED_MARK: &str = "Made by `cargo xtask gen`";

/// A file with more lines gets a note.
const LINES_NOTED: usize = 600;

/// A file with more bytes needs a reason.
const BYTES_NOTED: usize = 2 << 20;

/// A marker of unfinished work, in two parts so that this file does not contain it.
const MARKER: &str = concat!("FIX", "ME");

/// Folders of one machine, in two parts so that this file does not contain them.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/tm", "p/"),
];

/// Checks all files.
pub(super) fn check(
    packages: &[Package],
    files: &[String],
    findings: &mut Findings,
) -> anyhow::Result<()> {
    crate_roots(packages, findings);
    for name in files {
        let bytes = tree::bytes(name)?;
        if bytes.len() > BYTES_NOTED {
            findings.note(name, &format!("{} bytes", bytes.len()));
        }
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        any_text(name, &text, findings);
        if tree::has_extension(name, "rs") {
            rust_file(name, &text, findings);
        }
    }
    Ok(())
}

/// Checks that crate roots forbid unsafe code.
fn crate_roots(packages: &[Package], findings: &mut Findings) {
    for package in packages.iter().filter(|package| package.member) {
        let named = UNSAFE_ALLOWED.iter().any(|(name, _)| *name == package.name);
        for (root, kind) in &package.targets {
            if !SHIPPED.contains(&kind.as_str()) {
                continue;
            }
            match tree::text(root) {
                Ok(text) if code(&text).contains("#![forbid(unsafe_code)]") => {}
                Ok(text) if named && code(&text).contains("#![deny(unsafe_code)]") => {}
                Ok(_) => findings.wrong(root, "the crate root has no `#![forbid(unsafe_code)]`"),
                Err(error) => findings.wrong(root, &format!("{error:#}")),
            }
        }
    }
}

/// Rules for every text file.
fn any_text(name: &str, text: &str, findings: &mut Findings) {
    for (number, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", number + 1);
        for path in MACHINE_PATHS {
            if line.contains(path) {
                findings.wrong(&place, &format!("a path of one machine ({path})"));
            }
        }
        if line.contains(MARKER) {
            findings.wrong(&place, "a marker of unfinished work");
        }
    }
}

/// Rules for Rust files.
fn rust_file(name: &str, text: &str, findings: &mut Findings) {
    let lines = text.lines().count();
    if lines > LINES_NOTED && !text.contains(GENERATED_MARK) {
        findings.note(name, &format!("{lines} lines"));
    }
    let code = code(text);
    let found = |code: &str, words: &[&str], why: &str, findings: &mut Findings| {
        for word in words {
            for line in lines_with(code, word) {
                findings.wrong(&format!("{name}:{line}"), &format!("`{word}` {why}"));
            }
        }
    };
    found(
        &code,
        UNFINISHED,
        "is unfinished or disabled code",
        findings,
    );
    for line in lines_with(&code, "thread::sleep") {
        findings.note(
            &format!("{name}:{line}"),
            "sleeps; wait for an event if there is one",
        );
    }
    let Some((package, inside)) = place_in_crate(name) else {
        return;
    };
    let unsafe_here = UNSAFE_ALLOWED.iter().any(|(named, places)| {
        *named == package && places.iter().any(|place| inside.starts_with(place))
    });
    if !unsafe_here {
        found(
            &code,
            ALLOWING_UNSAFE,
            "is not permitted by xtask/src/tidy/sources.rs",
            findings,
        );
    }
    if !inside.starts_with("src/") {
        return;
    }
    if !has_header(text) {
        findings.wrong(name, "no module header (`//!`)");
    }
    if is_test_file(inside) {
        return;
    }
    let shipped = without_tests(&code);
    if PURE.contains(&package) {
        found(
            &shipped,
            FORBIDDEN_IN_CORE,
            "must not be in the pure core",
            findings,
        );
    }
    if package == "weir" && !inside.starts_with(BACKEND) {
        for (line, variant) in local_or_remote(&shipped) {
            let what = format!("`{variant}` belongs to crates/weir/src/backend.rs: add a method");
            findings.wrong(&format!("{name}:{line}"), &what);
        }
    }
    let command = inside == "src/main.rs" || inside.starts_with("src/bin/");
    if !command && !MAY_PRINT.contains(&package) {
        found(
            &shipped,
            FORBIDDEN_IN_LIBRARIES,
            "must not be in a library",
            findings,
        );
    }
}

/// The paths in code that end in a variant of [`LOCAL_OR_REMOTE`], with their lines. Error codes
/// do not count.
fn local_or_remote(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let is_path = |letter: char| letter.is_alphanumeric() || "_:".contains(letter);
        for path in line.split(|letter| !is_path(letter)) {
            if let Some((kind, variant)) = path.rsplit_once("::")
                && LOCAL_OR_REMOTE.contains(&variant)
                && !kind.ends_with("Error")
            {
                found.push((number + 1, path.to_owned()));
            }
        }
    }
    found
}

/// Splits `crates/weir-core/src/lib.rs` into (`weir-core`, `src/lib.rs`).
fn place_in_crate(name: &str) -> Option<(&str, &str)> {
    if let Some(inside) = name.strip_prefix("xtask/") {
        return Some(("xtask", inside));
    }
    if let Some(inside) = name.strip_prefix("fuzz/") {
        return Some(("fuzz", inside));
    }
    if let Some(inside) = name.strip_prefix("bindings/python/") {
        return Some(("weir-python", inside));
    }
    if let Some(inside) = name.strip_prefix("bindings/node/") {
        return Some(("weir-node", inside));
    }
    name.strip_prefix("crates/")?.split_once('/')
}

/// Whether a file is compiled for tests only.
fn is_test_file(inside: &str) -> bool {
    let stem = inside.strip_suffix(".rs").unwrap_or(inside);
    stem.ends_with("/tests") || stem.ends_with("_tests") || inside.contains("/tests/")
}

/// Whether a `//!` line precedes the first item. Only file attributes may precede that line.
fn has_header(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("#!["))
        .is_some_and(|line| line.starts_with("//!"))
}

#[cfg(test)]
mod tests {
    use super::{any_text, has_header, rust_file};
    use crate::tidy::Findings;

    fn check(name: &str, text: &str, expected: &[&str]) {
        let mut findings = Findings::default();
        any_text(name, text, &mut findings);
        rust_file(name, text, &mut findings);
        assert_eq!(findings.wrong.len(), expected.len(), "{:?}", findings.wrong);
        for (wrong, expected) in findings.wrong.iter().zip(expected) {
            assert!(
                wrong.contains(expected),
                "{wrong:?} does not contain {expected:?}"
            );
        }
    }

    #[test]
    fn the_core_uses_nothing_forbidden() {
        let name = "crates/weir-core/src/machine.rs";
        check(name, "//! M.\nuse std::collections::BTreeMap;\n", &[]);
        check(name, "//! M.\nuse std::fs;\n", &["machine.rs:2: `std::fs`"]);
        check(name, "//! M.\nlet a: f64;\n", &["`f64`"]);
        check(
            name,
            "//! M.\n#[cfg(test)]\nmod tests { use std::fs; }\n",
            &[],
        );
        check(
            "crates/weir-core/src/machine/tests.rs",
            "//! M.\nuse std::fs;\n",
            &[],
        );
        check(
            "crates/weir-core/tests/transcripts.rs",
            "use std::fs;\n",
            &[],
        );
        check(
            "crates/weir-store/src/disk.rs",
            "//! M.\nuse std::fs;\n",
            &[],
        );
    }

    #[test]
    fn unfinished_and_disabled_code_is_found_anywhere() {
        check(
            "crates/weir/tests/a.rs",
            "fn a() { todo!() }\n",
            &["`todo!`"],
        );
        check(
            "crates/weir/tests/a.rs",
            "#[ignore = \"slow\"]\n",
            &["`#[ignore`"],
        );
        check(
            "lab/peers/a/src/main.rs",
            "unimplemented!(\"b\")",
            &["`unimplemented!`"],
        );
        check(
            "crates/weir/tests/a.rs",
            concat!("// FIX", "ME\n"),
            &["unfinished work"],
        );
        check(
            "docs/a.md",
            concat!("see /ho", "me/someone/a\n"),
            &["one machine"],
        );
    }

    #[test]
    fn only_the_backend_distinguishes_local_from_remote() {
        let text = "//! A.\nmatch at { Backend::Local(_) => {}\nSource::Remote { .. } => {} }\n";
        let name = "crates/weir/src/topic.rs";
        check(name, text, &["topic.rs:2: `Backend::Local`", "topic.rs:3:"]);
        check("crates/weir/src/backend/reader.rs", text, &[]);
        check("crates/weir-server/src/topic.rs", text, &[]);
        let text =
            "//! A.\nuse crate::remote::RemoteOptions;\nStoreError::Remote { code, text };\n";
        check(name, text, &[]);
    }

    #[test]
    fn libraries_do_not_print() {
        check(
            "crates/weir/src/a.rs",
            "//! A.\nprintln!();\n",
            &["`println!`"],
        );
        check("crates/weir/src/bin/a.rs", "//! A.\nprintln!();\n", &[]);
        check("crates/weir-cli/src/a.rs", "//! A.\nprintln!();\n", &[]);
        check("crates/weir/examples/a.rs", "println!();\n", &[]);
    }

    #[test]
    fn unsafe_code_is_in_listed_files() {
        let text = "//! A.\n#![allow(unsafe_code, reason = \"x\")]\n";
        check("crates/weir-lab/src/alloc.rs", text, &[]);
        check("crates/weir-lab/src/clock.rs", text, &["allow(unsafe_code"]);
        check(
            "crates/weir-store/src/disk.rs",
            text,
            &["allow(unsafe_code"],
        );
        check("crates/weir-scan/src/kernel/avx2.rs", text, &[]);
    }

    #[test]
    fn a_header_is_first() {
        assert!(has_header("//! A.\n"));
        assert!(has_header("#![forbid(unsafe_code)]\n\n//! A.\n"));
        assert!(!has_header("use a;\n//! A.\n"));
        assert!(!has_header("// A.\n"));
    }
}
