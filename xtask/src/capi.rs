//! Builds the C library, hides all names except its own, and installs it.
//!
//! Invariants:
//! - Both installed libraries define no global name except those of the headers.
//! - Nothing is installed outside of the prefix.
//! - The build uses an existing profile.

use crate::steps::{COMMAND_FEATURES, FEATURES, cargo, succeed};
use crate::tree;
use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The main header.
pub(crate) const HEADER: &str = "crates/weir-capi/include/weir.h";
/// The header of the codec. The two headers list the public names.
const CODEC: &str = "crates/weir-capi/include/weir_psyc.h";
/// The header of the error codes, which is installed too.
const CODES: &str = "crates/weir-capi/include/weir_codes.h";
/// Version of the files; the first number is that of the interface.
const FILE: &str = "libweir.so.0.1.0";
const SONAME: &str = "libweir.so.0";
/// System libraries that the static library needs.
const SYSTEM: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// The error for an unset variable in the command of a page.
const EMPTY_PREFIX: &str = "the prefix is empty: set PREFIX to a directory for the library";

/// The profile of the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// The profile of the tests.
    Dev,
    /// The profile of releases.
    Release,
}

/// Runs `capi install --prefix P [--debug] [--shared]`.
pub(crate) fn command(rest: &[&str]) -> anyhow::Result<()> {
    let mut prefix = None;
    let (mut profile, mut with_static) = (Profile::Release, true);
    let mut words = rest.iter();
    ensure!(words.next() == Some(&"install"), "expected `install`");
    while let Some(word) = words.next() {
        match *word {
            "--prefix" => prefix = words.next().map(PathBuf::from),
            "--debug" => profile = Profile::Dev,
            "--shared" => with_static = false,
            other => bail!("no option `{other}`"),
        }
    }
    let prefix = prefix.context("expected `--prefix DIRECTORY`")?;
    ensure!(!prefix.as_os_str().is_empty(), EMPTY_PREFIX);
    install(&prefix, profile, with_static)?;
    println!("installed in {}", prefix.display());
    Ok(())
}

/// Builds the library, and installs the library, its headers and `weir.pc` below a directory.
pub(crate) fn install(prefix: &Path, profile: Profile, with_static: bool) -> anyhow::Result<()> {
    let libraries = build(profile, with_static)?;
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    std::fs::create_dir_all(&include)?;
    std::fs::create_dir_all(lib.join("pkgconfig"))?;
    for header in [HEADER, CODEC, CODES] {
        let name = Path::new(header).file_name().context("a header")?;
        std::fs::write(include.join(name), tree::bytes(header)?)?;
    }
    let shared = lib.join(FILE);
    // A program that has mapped the old file retains it.
    drop(std::fs::remove_file(&shared));
    std::fs::copy(find(&libraries, "so")?, &shared).context("cannot copy the library")?;
    for name in [SONAME, "libweir.so"] {
        let link = lib.join(name);
        drop(std::fs::remove_file(&link));
        std::os::unix::fs::symlink(FILE, link)?;
    }
    if with_static {
        hide_names(&find(&libraries, "a")?, &lib)?;
    }
    std::fs::write(lib.join("pkgconfig/weir.pc"), pkg_config())?;
    Ok(())
}

fn pkg_config() -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\nincludedir=${{prefix}}/include\nlibdir=${{prefix}}/lib\n\n\
         Name: weir\nDescription: Event store and query engine to open in a process\nVersion: {}\n\
         Cflags: -I${{includedir}}\nLibs: -L${{libdir}} -lweir\nLibs.private: {SYSTEM}\n",
        FILE.trim_start_matches("libweir.so.")
    )
}

/// Builds the library with cargo. Returns its files.
fn build(profile: Profile, with_static: bool) -> anyhow::Result<Vec<PathBuf>> {
    let kinds = if with_static {
        "cdylib,staticlib"
    } else {
        "cdylib"
    };
    let mut command = cargo(&["rustc", "--locked", "--package", "weir-capi"]);
    command.args(["--lib", "--crate-type", kinds]);
    command.arg("--message-format=json-render-diagnostics");
    match profile {
        Profile::Release => command.arg("--release").args(COMMAND_FEATURES),
        Profile::Dev => command.args(FEATURES),
    };
    command.args(["--", "-C", &format!("link-arg=-Wl,-soname,{SONAME}")]);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo rustc")?;
    ensure!(output.status.success(), "the C library does not build");
    let mut files = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let ours = message["target"]["name"] == "weir_capi";
        for file in message["filenames"].as_array().into_iter().flatten() {
            files.extend(file.as_str().filter(|_| ours).map(PathBuf::from));
        }
    }
    Ok(files)
}

fn find(files: &[PathBuf], extension: &str) -> anyhow::Result<PathBuf> {
    let of = |file: &&PathBuf| file.extension().is_some_and(|found| found == extension);
    let found = files.iter().find(of);
    found
        .cloned()
        .with_context(|| format!("cargo built no .{extension}"))
}

/// The names that the headers declare.
pub(crate) fn names() -> anyhow::Result<BTreeSet<String>> {
    let header = tree::text(HEADER)? + &tree::text(CODEC)?;
    let name = |line: &str| {
        let (before, _) = line.split_once('(')?;
        let declares = line.starts_with(|first: char| first.is_ascii_alphabetic());
        let name = before.rsplit([' ', '*']).next()?;
        (declares && name.starts_with("weir_")).then(|| name.to_owned())
    };
    let names: BTreeSet<String> = header.lines().filter_map(name).collect();
    ensure!(names.len() > 50, "{HEADER} declares too few names");
    Ok(names)
}

/// A linker script that merges sections. Compilers create one section for each function, which
/// would make the archive large.
const SECTIONS: &str = "SECTIONS {
  .text : { *(.text .text.*) }
  .rodata : { *(.rodata .rodata.*) }
  .eh_frame : { *(.eh_frame) }
  .gcc_except_table : { *(.gcc_except_table .gcc_except_table.*) }
  .init_array : { *(.init_array .init_array.* .ctors) }
  .data.rel.ro : { *(.data.rel.ro .data.rel.ro.*) }
  .data : { *(.data .data.*) }
  .tdata : { *(.tdata .tdata.*) }
  .tbss : { *(.tbss .tbss.*) }
  .bss : { *(.bss .bss.* COMMON) }
  /DISCARD/ : { *(.llvmbc) *(.llvmcmd) *(.comment) }
}
";

/// Links the static library into one object in which all names except the public ones are local,
/// and archives that object. So the library can be linked beside another one that contains equal
/// crates.
fn hide_names(archive: &Path, lib: &Path) -> anyhow::Result<()> {
    let names = names()?;
    let (object, list) = (lib.join("weir.o"), lib.join("weir.names"));
    let (parts, script) = (lib.join("weir.parts.o"), lib.join("weir.sections"));
    std::fs::write(&script, SECTIONS)?;
    let lines: Vec<&str> = names
        .iter()
        .flat_map(|name| [name.as_str(), "\n"])
        .collect();
    std::fs::write(&list, lines.concat())?;
    let mut link = Command::new("ld");
    link.args(["-r", "--gc-sections", "--strip-debug", "-o"])
        .arg(&parts);
    for name in &names {
        link.args(["-u", name]);
    }
    succeed(link.arg(archive))?;
    let mut join = Command::new("ld");
    join.args(["-r", "--force-group-allocation", "-o"])
        .arg(&object)
        .arg("-T")
        .arg(&script);
    succeed(join.arg(&parts))?;
    let mut keep = String::from("--keep-global-symbols=");
    keep.push_str(&list.to_string_lossy());
    succeed(
        Command::new("objcopy")
            .args(["--discard-all", &keep])
            .arg(&object),
    )?;
    let target = lib.join("libweir.a");
    drop(std::fs::remove_file(&target));
    succeed(Command::new("ar").arg("rcs").arg(&target).arg(&object))?;
    for file in [object, list, parts, script] {
        std::fs::remove_file(file)?;
    }
    Ok(())
}

/// Global names that a library defines.
fn defined(library: &Path, flags: &[&str]) -> anyhow::Result<BTreeSet<String>> {
    let output = Command::new("nm").args(flags).arg(library).output();
    let output = output.context("cannot start nm")?;
    ensure!(
        output.status.success(),
        "nm failed on {}",
        library.display()
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let name = |line: &str| line.split_whitespace().nth(2).map(str::to_owned);
    Ok(text.lines().filter_map(name).collect())
}

/// Checks that both libraries define exactly the names of the headers, and that the shared library
/// has its soname.
pub(crate) fn check_names(prefix: &Path) -> anyhow::Result<()> {
    let names = names()?;
    let lib = prefix.join("lib");
    for (file, flags) in [
        ("libweir.so", &["-D", "--defined-only"][..]),
        ("libweir.a", &["-g", "--defined-only"][..]),
    ] {
        let found = defined(&lib.join(file), flags)?;
        let extra: Vec<&String> = found.difference(&names).take(5).collect();
        ensure!(extra.is_empty(), "{file} defines {extra:?} as well");
        let missing: Vec<&String> = names.difference(&found).collect();
        ensure!(missing.is_empty(), "{file} lacks {missing:?}");
    }
    let output = Command::new("objdump")
        .arg("-p")
        .arg(lib.join("libweir.so"))
        .output();
    let text = output.context("cannot start objdump")?.stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    let soname = text.lines().find(|line| line.contains("SONAME"));
    let soname = soname.unwrap_or_default();
    ensure!(
        soname.ends_with(SONAME),
        "the soname of the shared library is `{}`",
        soname.trim()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{EMPTY_PREFIX, command};

    #[test]
    fn an_empty_prefix_is_an_error() {
        let result = command(&["install", "--prefix", ""]);
        let error = result.map_err(|error| error.to_string());
        assert_eq!(error, Err(EMPTY_PREFIX.to_owned()));
    }
}
