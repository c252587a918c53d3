//! The page `docs/formats/errors.md`: the error table for readers.

use crate::error_table::{CLASSES, Entry};
use std::fmt::Write as _;

const HEAD: &str = "\
# Errors

<!-- Made by `cargo xtask gen` from vectors/errors.toml; do not edit. -->

Every error has one number, one name and one meaning in every language and protocol. Numbers are
never reused. `weir help E101` prints an entry.

- **fault**: the cause of the error.
- **retry**: *yes*, a retry at once may succeed; *after*, a retry may succeed later, or after the
  advice was followed; *no*, a retry fails with an equal error.
- **exit**: exit code of the daily commands / of `serve`, `verify`, `repair`, `backup`, `restore`.
";

/// One heading for each class, with a sentence about the class.
fn title(class: &str) -> &'static str {
    match class {
        "invalid" => {
            "## Effect INVALID\n\nA valid request that the state rejects. Every node reaches an equal \
             verdict. It consumes an\noffset and a nonce, and changes nothing else.\n"
        }
        "error" => {
            "## Effect ERROR\n\nA request that cannot be executed. Every node reaches an equal verdict. \
             It consumes an offset\nand a nonce, and changes nothing else.\n"
        }
        "refusal" => {
            "## Refusals\n\nA response of one node. It logs nothing and consumes neither an offset nor \
             a nonce, so the nonce\nmay be sent again.\n"
        }
        "store" => "## Store\n\nThe store could not be opened, read or written.\n",
        "client" => "## Client\n\nDetected by a client library or a command.\n",
        "call" => {
            "## Calls\n\nA call of the C interface, or of a library over it, that violated a rule of \
             the interface.\nExcept for `PANIC`, nothing was attempted.\n"
        }
        "query" => {
            "## Queries\n\nAn error in a query, in a page that it read, or a limit of its memory. An \
             error in a page has\nthe position of the byte.\n"
        }
        _ => "## Internal\n\nBugs in Weir.\n",
    }
}

/// Generates the page.
pub(super) fn generate(entries: &[Entry]) -> anyhow::Result<String> {
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
