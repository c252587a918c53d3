//! Files made from others: what is made, and whether what stands in the tree is what would be made.
//!
//! Invariant: making is a pure function of `vectors/errors.toml`, of `lab/figures.md` and the
//! records in `lab/record`; two runs give equal bytes.

mod c;
mod figures;
mod go;
mod java;
mod page;
mod rust;

use crate::{error_table, tree};
use anyhow::ensure;

type Make = fn(&[error_table::Entry]) -> anyhow::Result<String>;

/// Each file that is made, and the function that makes it.
const MADE: &[(&str, Make)] = &[
    ("crates/weir-core/src/error_code.rs", rust::make),
    ("docs/formats/errors.md", page::make),
    ("crates/weir-capi/include/weir_codes.h", c::make),
    ("bindings/go/errors_table.go", go::make),
    (
        "bindings/java/src/main/java/weir/ErrorCode.java",
        java::make,
    ),
];

/// Writes the files that differ.
pub(crate) fn write() -> anyhow::Result<()> {
    let entries = error_table::load()?;
    for (name, make) in MADE {
        let text = make(&entries)?;
        if tree::text(name).ok().as_deref() != Some(text.as_str()) {
            std::fs::write(tree::root().join(name), text)?;
            println!("wrote {name}");
        }
    }
    let page = figures::make()?;
    if tree::text(figures::PAGE)? != page {
        std::fs::write(tree::root().join(figures::PAGE), page)?;
        println!("wrote {}", figures::PAGE);
    }
    Ok(())
}

/// Fails when a file is not what would be written.
pub(crate) fn compare() -> anyhow::Result<()> {
    let entries = error_table::load()?;
    for (name, make) in MADE {
        ensure!(
            tree::text(name)? == make(&entries)?,
            "{name} is not what {} says; run `cargo xtask gen`",
            error_table::PATH
        );
    }
    ensure!(
        tree::text(figures::PAGE)? == figures::make()?,
        "the figures of {} are not those of the records in lab/record; run `cargo xtask gen`",
        figures::PAGE
    );
    println!("{} errors, {} files up to date", entries.len(), MADE.len());
    Ok(())
}
