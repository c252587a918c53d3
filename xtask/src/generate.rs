//! Generates files, and checks that the files in the tree are up to date.
//!
//! Invariant: generation is a pure function of `vectors/errors.toml`, `lab/figures.md` and the
//! records in `lab/record`, so two runs give equal bytes.

mod c;
mod figures;
mod go;
mod java;
mod page;
mod rust;

use crate::{error_table, tree};
use anyhow::ensure;

type Generator = fn(&[error_table::Entry]) -> anyhow::Result<String>;

/// Each generated file, and the function that generates it.
const GENERATED: &[(&str, Generator)] = &[
    ("crates/weir-core/src/error_code.rs", rust::generate),
    ("docs/formats/errors.md", page::generate),
    ("crates/weir-capi/include/weir_codes.h", c::generate),
    ("bindings/go/errors_table.go", go::generate),
    (
        "bindings/java/src/main/java/weir/ErrorCode.java",
        java::generate,
    ),
];

/// Writes the files that differ.
pub(crate) fn write() -> anyhow::Result<()> {
    let entries = error_table::load()?;
    for (name, generate) in GENERATED {
        let text = generate(&entries)?;
        if tree::text(name).ok().as_deref() != Some(text.as_str()) {
            std::fs::write(tree::root().join(name), text)?;
            println!("wrote {name}");
        }
    }
    for (name, text) in figures::generate()? {
        if tree::text(&name)? != text {
            std::fs::write(tree::root().join(&name), text)?;
            println!("wrote {name}");
        }
    }
    Ok(())
}

/// Fails if a file differs from its generated content.
pub(crate) fn compare() -> anyhow::Result<()> {
    let entries = error_table::load()?;
    for (name, generate) in GENERATED {
        ensure!(
            tree::text(name)? == generate(&entries)?,
            "{name} differs from {}; run `cargo xtask gen`",
            error_table::PATH
        );
    }
    for (name, text) in figures::generate()? {
        ensure!(
            tree::text(&name)? == text,
            "the figures of {name} are not those of the records in lab/record; run `cargo xtask gen`"
        );
    }
    println!(
        "{} errors, {} files up to date",
        entries.len(),
        GENERATED.len()
    );
    Ok(())
}
