//! `weir_core::error_code`: the error table in Rust.
//!
//! The text is passed through `rustfmt`, so that `cargo fmt --check` accepts the generated file.

use crate::error_table::{CLASSES, Entry, FAULTS, RETRIES};
use anyhow::{Context as _, ensure};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

const HEAD: &str = "\
//! Every error of Weir: one number, one name, one meaning in every language.
//!
//! Made by `cargo xtask gen` from `vectors/errors.toml`; do not edit. The table for readers is
//! `docs/formats/errors.md`.
//!
//! Invariants:
//! - Numbers are never reused, and no number is typed by hand.
//! - 0 is neither success nor error.
//! - `ErrorCode::from_number(code.number()) == Some(code)`.

use core::fmt;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Reason of the effect INVALID: a valid request that the state rejects, equally on every node.
    Invalid,
    /// Reason of the effect ERROR: a request that cannot be executed, equally on every node.
    Error,
    /// Refusal by one node: nothing was logged, so the nonce may be sent again.
    Refusal,
    /// The store could not be opened, read or written.
    Store,
    /// Detected by a client library or a command.
    Client,
    /// A call of the C interface violated a rule of the interface.
    Call,
    /// An error in a query, in a page that it read, or a limit of its memory.
    Query,
    /// A bug in Weir.
    Internal,
}

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The caller requested something invalid or impossible.
    Caller,
    /// The other side of a connection broke the protocol.
    Peer,
    /// Disk, network, operating system or load.
    Environment,
    /// Weir itself.
    Us,
}

/// Whether a retry can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// At once.
    Yes,
    /// Later, or after the advice was followed.
    After,
    /// Never: a retry fails with an equal error.
    No,
}

";

const FOOT: &str = r#"
impl fmt::Display for ErrorCode {
    /// Writes the name and the number, as in `CONFLICT (E104)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (E{})", self.name(), self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn every_number_maps_to_its_code() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_number(code.number()), Some(code));
        }
    }

    #[test]
    fn numbers_ascend_and_others_are_unknown() {
        let known: Vec<u16> = ErrorCode::ALL.iter().map(|code| code.number()).collect();
        assert!(known.is_sorted_by(|a, b| a < b));
        for number in 0..=u16::MAX {
            assert_eq!(ErrorCode::from_number(number).is_some(), known.contains(&number));
        }
    }
}
"#;

/// Generates the module.
pub(super) fn generate(entries: &[Entry]) -> anyhow::Result<String> {
    let mut out = HEAD.to_owned();
    out.push_str("/// An error by its number.\n#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]\n#[non_exhaustive]\n#[repr(u16)]\npub enum ErrorCode {\n");
    for entry in entries {
        writeln!(
            out,
            "/// {}\n{} = {},",
            entry.sentence,
            variant(&entry.name),
            entry.number
        )?;
    }
    out.push_str("}\n\nimpl ErrorCode {\n");
    writeln!(
        out,
        "/// All codes, by ascending number.\npub const ALL: [Self; {}] = [",
        entries.len()
    )?;
    for entry in entries {
        writeln!(out, "Self::{},", variant(&entry.name))?;
    }
    out.push_str("];\n\n");
    out.push_str("/// The number, equal in every language.\npub const fn number(self) -> u16 {\nself as u16\n}\n\n");
    out.push_str("/// The code with this number; `None` if there is none.\n#[allow(clippy::too_many_lines, reason = \"one line an error\")]\npub const fn from_number(number: u16) -> Option<Self> {\nmatch number {\n");
    for entry in entries {
        writeln!(
            out,
            "{} => Some(Self::{}),",
            entry.number,
            variant(&entry.name)
        )?;
    }
    out.push_str("_ => None,\n}\n}\n\n");
    each(
        &mut out,
        entries,
        "name",
        "The name, as in `TOPIC_EXISTS`.",
        |e| &e.name,
    )?;
    each(
        &mut out,
        entries,
        "sentence",
        "The meaning, as a full sentence without values.",
        |e| &e.sentence,
    )?;
    each(
        &mut out,
        entries,
        "advice",
        "The advice, as a sentence in the imperative.",
        |e| &e.advice,
    )?;
    each(
        &mut out,
        entries,
        "psyc_method",
        "The method of the PSYC response.",
        |e| &e.psyc,
    )?;
    grouped(
        &mut out,
        entries,
        ("class", "Class", "The kind of the error."),
        |e| format!("Class::{}", variant(&e.class)),
    )?;
    grouped(
        &mut out,
        entries,
        ("fault", "Fault", "The cause of the error."),
        |e| format!("Fault::{}", variant(&e.fault)),
    )?;
    grouped(
        &mut out,
        entries,
        ("retry", "Retry", "Whether a retry can succeed."),
        |e| format!("Retry::{}", variant(&e.retry)),
    )?;
    grouped(
        &mut out,
        entries,
        ("http_status", "u16", "The status of the HTTP response."),
        |e| e.http.to_string(),
    )?;
    let about = "The exit code of the daily commands.";
    grouped(&mut out, entries, ("exit_code", "u8", about), |e| {
        e.exit.to_string()
    })?;
    let about = "The exit code of `serve`, `verify`, `repair`, `backup` and `restore`.";
    grouped(&mut out, entries, ("exit_code_store", "u8", about), |e| {
        e.exit_store.to_string()
    })?;
    out.push_str("}\n");
    out.push_str(FOOT);
    // The enums in the head are text, so their sizes are compared with the table.
    ensure!(
        CLASSES.len() == 8 && FAULTS.len() == 4 && RETRIES.len() == 3,
        "HEAD is out of date"
    );
    formatted(&out)
}

/// Generates a method with one string for each code.
fn each(
    out: &mut String,
    entries: &[Entry],
    name: &str,
    about: &str,
    of: fn(&Entry) -> &String,
) -> anyhow::Result<()> {
    writeln!(
        out,
        "/// {about}\n#[allow(clippy::too_many_lines, reason = \"one line an error\")]"
    )?;
    writeln!(
        out,
        "pub const fn {name}(self) -> &'static str {{\nmatch self {{"
    )?;
    for entry in entries {
        writeln!(out, "Self::{} => {:?},", variant(&entry.name), of(entry))?;
    }
    out.push_str("}\n}\n\n");
    Ok(())
}

/// Generates a method with few values, each for many codes. The values are in the order of first
/// use.
fn grouped(
    out: &mut String,
    entries: &[Entry],
    (name, kind, about): (&str, &str, &str),
    of: fn(&Entry) -> String,
) -> anyhow::Result<()> {
    let mut values: Vec<String> = Vec::new();
    for entry in entries {
        let value = of(entry);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    writeln!(
        out,
        "/// {about}\n#[allow(clippy::too_many_lines, reason = \"one line an error\")]"
    )?;
    writeln!(out, "pub const fn {name}(self) -> {kind} {{\nmatch self {{")?;
    for value in values {
        let codes: Vec<String> = entries
            .iter()
            .filter(|entry| of(entry) == value)
            .map(|entry| format!("Self::{}", variant(&entry.name)))
            .collect();
        writeln!(out, "{} => {value},", codes.join(" | "))?;
    }
    out.push_str("}\n}\n\n");
    Ok(())
}

/// Converts `TOPIC_EXISTS` or `caller` to the name of a variant.
fn variant(name: &str) -> String {
    let mut out = String::new();
    for word in name.split('_') {
        let mut letters = word.chars();
        out.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        out.extend(letters.map(|letter| letter.to_ascii_lowercase()));
    }
    out
}

fn formatted(text: &str) -> anyhow::Result<String> {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path", "rustfmt.toml"])
        .current_dir(crate::tree::root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start rustfmt")?;
    let mut stdin = child
        .stdin
        .take()
        .context("rustfmt has no standard input")?;
    stdin.write_all(text.as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "rustfmt refused the made file");
    Ok(String::from_utf8(output.stdout)?)
}
