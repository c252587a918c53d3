//! Passes versions and the build profile to the program. A contender reports how it was built, and
//! the lab refuses one that is not optimised.

use std::env;
use std::fs;
use std::process::Command;

/// Libraries that are contenders, each with the variable for its version.
const LIBRARIES: [(&str, &str); 2] = [
    ("quick-xml", "WEIR_LAB_QUICK_XML"),
    ("serde_json", "WEIR_LAB_SERDE_JSON"),
];

fn main() {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .ok()
        .and_then(|out| String::from_utf8(out.stdout).ok())
        .unwrap_or_default();
    let level = env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo::rustc-env=WEIR_LAB_RUSTC={}", version.trim());
    println!("cargo::rustc-env=WEIR_LAB_OPT_LEVEL={level}");
    let lock = fs::read_to_string("../../Cargo.lock").unwrap_or_default();
    for (library, variable) in LIBRARIES {
        println!("cargo::rustc-env={variable}={}", locked(&lock, library));
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../../Cargo.lock");
}

/// Version of `library` in the text of a lock file.
fn locked(lock: &str, library: &str) -> String {
    let name = format!("name = \"{library}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    let version = lines
        .nth(1)
        .and_then(|line| line.strip_prefix("version = "));
    version.unwrap_or("unknown").trim_matches('"').to_owned()
}
