//! `weir_codes.h`: the error numbers for C.

use crate::error_table::Entry;
use std::fmt::Write as _;

const HEAD: &str = "\
/*
 * weir_codes.h: every error that a call of weir.h can return, or a verdict can name.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Made by `cargo xtask gen` from vectors/errors.toml; do not edit. docs/formats/errors.md
 * explains each code; weir_code_describe returns its meaning at run time.
 */
#ifndef WEIR_CODES_H
#define WEIR_CODES_H

enum {
";

/// Generates the header.
pub(super) fn generate(entries: &[Entry]) -> anyhow::Result<String> {
    let mut out = HEAD.to_owned();
    for (at, entry) in entries.iter().enumerate() {
        let comma = if at + 1 < entries.len() { "," } else { "" };
        writeln!(out, "    WEIR_E_{} = -{}{comma}", entry.name, entry.number)?;
    }
    out.push_str("};\n\n#endif\n");
    Ok(out)
}
