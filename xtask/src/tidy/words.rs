//! Phrases that force a reader to read a sentence twice.
//!
//! The list is short on purpose. Each entry was once common, has no correct use, and has advice for
//! a better sentence.

use super::Findings;
use crate::tree;

/// Phrases in lower case, each with its replacement.
const PHRASES: &[(&str, &str)] = &[
    (
        "whoever",
        "name the client, caller, member or reader that is meant",
    ),
    ("one behind the other", "write `one after the other`"),
    ("behind each other", "write `one after the other`"),
    ("behind one another", "write `one after the other`"),
    ("in the clothes of", "say what the value is"),
    ("no matter of ours", "say what does not affect us"),
    ("behind the end", "write `after the end`"),
    ("behind its end", "write `after its end`"),
    ("behind the last", "write `after the last`"),
    ("behind the given", "write `after the given`"),
    ("behind an error", "write `after an error`"),
    ("behind offset", "write `after offset`"),
    ("behind that offset", "write `after that offset`"),
    ("behind this offset", "write `after this offset`"),
    ("behind the key", "write `after the key`"),
    ("behind the newest", "write `after the newest`"),
    ("behind these items", "write `after these items`"),
    ("records behind", "write `records after`"),
    ("comes behind", "write `comes after`"),
    ("key behind", "write `key after`"),
    ("goes on behind", "write `continues after`"),
    ("go on behind", "write `continue after`"),
    ("must never happen", "write a list of `Invariants:`"),
    ("what must never", "write a list of `Invariants:`"),
];

/// Openings of a comment that refer to another comment.
const OPENINGS: &[&str] = &["// the same", "/// the same", "//! the same"];

/// Participles and images, which do not describe a type.
const TYPE_NAMES: &[&str] = &[
    "Arrivals",
    "Away",
    "Desk",
    "Doorkeeper",
    "Found",
    "Given",
    "Guests",
    "Hands",
    "Held",
    "Judging",
    "Kept",
    "Known",
    "Looks",
    "Making",
    "Missed",
    "Pace",
    "Seat",
    "Sieve",
    "Taken",
    "Told",
    "Touches",
    "Turnstile",
    "Upkeep",
];

/// Folders whose type names are checked. The guest library is excluded, because a type name changes
/// the bytes of the prebuilt programs.
const TYPE_FOLDERS: &[&str] = &["bindings/", "crates/", "fuzz/", "lab/", "xtask/"];

/// Kinds of files with prose.
const KINDS: &[&str] = &[
    "c", "el", "go", "h", "java", "js", "md", "mjs", "org", "py", "pyi", "rs", "toml", "ts",
    "yaml", "zig",
];

/// Checks the prose of all files: comments, documents, help and error texts.
pub(super) fn check(files: &[String], findings: &mut Findings) -> anyhow::Result<()> {
    let has_prose = |name: &&String| {
        // Measurements must not change, and this file contains the list.
        KINDS.iter().any(|kind| tree::has_extension(name, kind))
            && !name.starts_with("lab/record/")
            && !name.ends_with("tidy/words.rs")
    };
    for name in files.iter().filter(has_prose) {
        let text = tree::text(name)?;
        for (number, what) in found(&text) {
            findings.wrong(&format!("{name}:{number}"), &what);
        }
        if tree::has_extension(name, "rs") {
            for number in openings(&text) {
                let what = "a comment that opens with `The same`: say what is the same as what";
                findings.wrong(&format!("{name}:{number}"), what);
            }
            if TYPE_FOLDERS.iter().any(|folder| name.starts_with(folder)) {
                for (number, type_name) in type_names(&text) {
                    let what = format!("a type named `{type_name}`: name what it is or holds");
                    findings.wrong(&format!("{name}:{number}"), &what);
                }
            }
        }
    }
    Ok(())
}

/// The phrases in a text: the line number, and the advice.
fn found(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.to_lowercase();
        for (phrase, advice) in PHRASES {
            if has(&line, phrase) {
                found.push((at + 1, format!("`{phrase}`: {advice}")));
            }
        }
    }
    found
}

/// The types in a text that have one of these names, with their lines.
fn type_names(text: &str) -> Vec<(usize, &str)> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let named = |line: &'_ str| {
        let words: Vec<&str> = line.split_whitespace().take(4).collect();
        let kind = |word: &&str| ["enum", "struct", "trait", "type"].contains(word);
        let at = words.iter().position(kind)?;
        let name = words.get(at + 1)?.split(|c| !is_part(c)).next()?;
        TYPE_NAMES.iter().copied().find(|listed| *listed == name)
    };
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(at, line)| Some((at + 1, named(line)?)))
        .collect()
}

/// The lines on which a comment starts with an opening of the list.
fn openings(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let is_comment = |at: usize| lines.get(at).is_some_and(|line| line.starts_with("//"));
    let opens = |at: usize| {
        let line = lines.get(at).map(|line| line.to_lowercase());
        line.is_some_and(|line| OPENINGS.iter().any(|opening| line.starts_with(opening)))
    };
    (0..lines.len())
        .filter(|at| opens(*at) && !at.checked_sub(1).is_some_and(is_comment))
        .map(|at| at + 1)
        .collect()
}

/// Whether the line contains the phrase as whole words.
fn has(line: &str, phrase: &str) -> bool {
    let is_letter = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    line.match_indices(phrase).any(|(at, _)| {
        let (before, rest) = line.split_at(at);
        !is_letter(before.chars().next_back())
            && !is_letter(
                rest.get(phrase.len()..)
                    .and_then(|rest| rest.chars().next()),
            )
    })
}

#[cfg(test)]
mod tests {
    use super::{found, openings, type_names};

    #[test]
    fn phrases_are_found_with_their_line() {
        let text = "A caller.\n// Whoever calls\nfn f() {}\n// one behind the other\n";
        let lines: Vec<usize> = found(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [2, 4]);
    }

    #[test]
    fn only_the_first_line_of_a_comment_opens_it() {
        let text = "/// The same for two.\nfn f() {}\n/// A page, and\n    /// the same page.\n";
        assert_eq!(openings(text), [1]);
        assert_eq!(openings("f();\n    // The same again.\n"), [2]);
    }

    #[test]
    fn types_name_what_they_hold() {
        let text =
            "pub(super) enum Found<'a> {\n    Known,\n}\nstruct Desk(u8);\nstruct KeptPage;\n";
        assert_eq!(type_names(text), [(1, "Found"), (4, "Desk")]);
    }

    #[test]
    fn parts_of_words_do_not_count() {
        assert!(found("whoevers\n").is_empty());
    }
}
