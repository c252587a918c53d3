//! Checks that are too slow, or need too much, for every test run: fuzzing for hours, Miri, the
//! kernels of another processor under an emulator, and the installation of the command.
//!
//! Invariant: a missing tool is an error with installation advice, never a pass.

use crate::steps::{cargo, succeed};
use crate::tree;
use anyhow::Context as _;
use std::process::{Command, Stdio};

/// Default seconds for each fuzz target.
const FUZZ_SECONDS_DEFAULT: u64 = 3600;

/// The nightly toolchain whose Miri checks this project; `WEIR_NIGHTLY` overrides it.
const NIGHTLY: &str = "nightly-2026-05-20";

/// Packages that run under Miri, with the arguments of their tests. The scanner and the codec run
/// completely. Of the C interface only the unit tests run, because its other tests open stores, and
/// Miri lacks the system calls for that. Tests use fewer repetitions under `cfg(miri)`. The
/// `ignore` attribute of a skipped test has the reason.
const MIRI: &[(&str, &[&str])] = &[
    ("weir-scan", &["--tests"]),
    ("weir-psyc", &["--tests"]),
    ("weir-capi", &["--lib"]),
];

/// Miri supports the instruction sets that are passed to the compiler, not those of the machine.
const MIRI_FEATURES: &str = "-Ctarget-feature=+ssse3,+sse4.2,+popcnt,+pclmulqdq,+avx2,+bmi1,+bmi2,\
                             +lzcnt,+avx512f,+avx512bw,+avx512vl";

/// Packages with kernels for 64-bit ARM, and the codec.
const ARM: &[&str] = &["weir-scan", "weir-psyc"];
const ARM_TARGET: &str = "aarch64-unknown-linux-gnu";

/// The command in the README that installs `weir`.
const INSTALL: &str = "cargo install --locked --path crates/weir-cli";

/// Runs every fuzz target for `seconds` seconds each, without coverage.
pub(crate) fn fuzz(seconds: Option<&str>) -> anyhow::Result<()> {
    let seconds = match seconds {
        Some(text) => text
            .parse()
            .with_context(|| format!("`{text}` is not a number of seconds"))?,
        None => FUZZ_SECONDS_DEFAULT,
    };
    let seed = std::env::var("WEIR_FUZZ_SEED").unwrap_or_else(|_| now_s().to_string());
    println!("fuzz: {seconds} s for each target, WEIR_FUZZ_SEED={seed}");
    succeed(
        cargo(&["test", "--release", "--locked", "--package", "fuzz"])
            .args(["--test", "short", "--", "--nocapture"])
            .env("WEIR_FUZZ_SECONDS", seconds.to_string())
            .env("WEIR_FUZZ_SEED", seed),
    )
}

fn now_s() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs())
}

/// Runs the packages with unsafe code, and the codec, under Miri.
pub(crate) fn miri() -> anyhow::Result<()> {
    let nightly = std::env::var("WEIR_NIGHTLY").unwrap_or_else(|_| NIGHTLY.to_owned());
    let rustup = |arguments: &[&str]| {
        let mut command = Command::new("rustup");
        command
            .args(["run", &nightly, "cargo", "miri"])
            .args(arguments)
            .current_dir(tree::root())
            // The current process may run in a different toolchain.
            .env_remove("CARGO")
            .env_remove("RUSTC")
            .env_remove("RUSTUP_TOOLCHAIN");
        command
    };
    anyhow::ensure!(
        present(&mut rustup(&["--version"])),
        "Miri is missing: rustup toolchain install {nightly} --component miri,rust-src"
    );
    for (package, arguments) in MIRI {
        println!("-- miri: {package}");
        succeed(
            rustup(&["test", "--package", package])
                .args(*arguments)
                .args(["--", "-Z", "unstable-options", "--report-time"])
                // Tests read vector files. The clock and the environment are those of the system.
                .env("MIRIFLAGS", "-Zmiri-disable-isolation")
                .env("RUSTFLAGS", MIRI_FEATURES)
                .env("PROPTEST_CASES", "2"),
        )?;
    }
    Ok(())
}

/// Runs the tests of the kernels for 64-bit ARM under qemu.
pub(crate) fn arm() -> anyhow::Result<()> {
    for (program, package) in [
        ("qemu-aarch64", "qemu-user"),
        ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ] {
        anyhow::ensure!(
            present(Command::new(program).arg("--version")),
            "{program} is missing: apt-get install {package} libc6-dev-arm64-cross, \
             rustup target add {ARM_TARGET}"
        );
    }
    let mut command = cargo(&["test", "--locked", "--target", ARM_TARGET]);
    for package in ARM {
        command.args(["--package", package]);
    }
    succeed(
        command
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
                "aarch64-linux-gnu-gcc",
            )
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
                "qemu-aarch64 -L /usr/aarch64-linux-gnu",
            ),
    )
}

/// Installs the command `weir` as in the README, but in the dev profile and below `target`, and
/// runs it. This build alone has exactly the features of an installation. It compiles most foreign
/// crates again, because they have fewer features than in tests.
pub(crate) fn install() -> anyhow::Result<()> {
    let root = tree::root().join("target/installed");
    let arguments: Vec<&str> = INSTALL.split(' ').skip(1).collect();
    succeed(cargo(&arguments).arg("--debug").arg("--root").arg(&root))?;
    succeed(Command::new(root.join("bin/weir")).arg("version"))
}

fn present(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::INSTALL;

    #[test]
    fn the_readme_prints_the_command_that_is_checked() {
        let readme = crate::tree::text("README.md").unwrap();
        assert!(readme.contains(&format!("`{INSTALL}`")));
    }
}
