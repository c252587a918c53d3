//! Hands the compiler's version and the build profile to the program, so
//! that a contender can say how it was built and be refused when it was not
//! optimised.

use std::env;
use std::process::Command;

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
    println!("cargo::rerun-if-changed=build.rs");
}
