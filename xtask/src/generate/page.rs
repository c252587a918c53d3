//! The page `docs/formats/errors.md`: the error table for readers.

use crate::error_table::{CLASSES, Entry};
use std::fmt::Write as _;

const HEAD: &str = "\
# Errors

<!-- Made by `cargo xtask gen` from vectors/errors.toml; do not edit. -->

Every error has one number, one name and one meaning in every language and on every door. Numbers
are never reused. `weir help E101` prints an entry.

- **fault**: whose doing it is.
- **retry**: *yes*, sending the same again at once may succeed; *after*, it may succeed later or once
  the advice was followed; *no*, the same again gets the same answer.
- **exit**: exit code of the daily commands / of `serve`, `verify`, `repair`, `backup`, `restore`.
";

/// One heading for each class, with a sentence about the class.
fn title(class: &str) -> &'static str {
    match class {
        "invalid" => {
            "## Effect INVALID\n\nUnderstood, and said no to. Every node comes to the same verdict; \
             it uses up an offset\nand a nonce, and nothing changes.\n"
        }
        "error" => {
            "## Effect ERROR\n\nCould not be carried out. Every node comes to the same verdict; it \
             uses up an offset and a\nnonce, and nothing changes.\n"
        }
        "refusal" => {
            "## Refusals\n\nThe answer of one node. Nothing was logged, and neither offset nor nonce \
             is used up, so the\nsame nonce may be sent again.\n"
        }
        "store" => "## Store\n\nThe store could not be opened, read or written.\n",
        "client" => "## Client\n\nFound out by a client library or a command itself.\n",
        "call" => {
            "## Calls\n\nA call over the C interface, or by a library on it, that broke a rule of the \
             interface.\nNothing was tried, but for `PANIC`.\n"
        }
        "query" => {
            "## Queries\n\nOf a query, a page it was given, or what it would have to hold. An error \
             about a page\nsays at which byte.\n"
        }
        _ => "## Internal\n\nMistakes of ours.\n",
    }
}

/// Generates the page.
pub(super) fn make(entries: &[Entry]) -> anyhow::Result<String> {
    let mut page = HEAD.to_owned();
    for (class, _) in CLASSES {
        write!(page, "\n{}\n", title(class))?;
        page.push_str(
            "| number | name | fault | retry | HTTP | PSYC method | exit | meaning | try |\n",
        );
        page.push_str("|---|---|---|---|---|---|---|---|---|\n");
        for entry in entries.iter().filter(|entry| entry.class == *class) {
            writeln!(
                page,
                "| {} | `{}` | {} | {} | {} | `{}` | {} / {} | {} | {} |",
                entry.number,
                entry.name,
                entry.fault,
                entry.retry,
                entry.http,
                entry.psyc,
                entry.exit,
                entry.exit_store,
                entry.sentence,
                entry.advice,
            )?;
        }
    }
    Ok(page)
}
