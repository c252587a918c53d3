//! Makes every mutable global of a module visible to the host.
//!
//! A program must not be able to keep anything in a global between two calls,
//! and in mode `memory` its globals are part of the state. So the module that
//! is compiled exports each mutable global once more, under a reserved name;
//! not a byte of its code changes.

use wasmparser::{BinaryReaderError, Parser, Payload};

/// First bytes of the reserved names.
pub(crate) const RESERVED: &str = "weir:";

/// Name under which a global is exported.
pub(crate) fn global_name(index: u32) -> String {
    format!("{RESERVED}{index}")
}

const EXPORT_SECTION: u8 = 7;

/// The module with further exports for these globals.
pub(crate) fn export_globals(code: &[u8], globals: &[u32]) -> Result<Vec<u8>, BinaryReaderError> {
    if globals.is_empty() {
        return Ok(code.to_vec());
    }
    let mut entries = Vec::new();
    for index in globals {
        let name = global_name(*index);
        number(&mut entries, name.len() as u64);
        entries.extend_from_slice(name.as_bytes());
        entries.push(3);
        number(&mut entries, u64::from(*index));
    }
    // A valid module that a program can be has an export section.
    let mut out = Vec::with_capacity(code.len() + entries.len() + 16);
    for payload in Parser::new(0).parse_all(code) {
        if let Payload::ExportSection(section) = payload? {
            let range = section.range();
            let count = u64::from(section.count()) + globals.len() as u64;
            let old = number_length(code.get(range.clone()).unwrap_or(&[]));
            let old_entries = code.get(range.start + old..range.end).unwrap_or(&[]);
            let mut body = Vec::new();
            number(&mut body, count);
            body.extend_from_slice(old_entries);
            body.extend_from_slice(&entries);
            // The head of the section: its id and a length of any form.
            let head = section_head(code, range.start);
            out.extend_from_slice(code.get(..head).unwrap_or(&[]));
            out.push(EXPORT_SECTION);
            number(&mut out, body.len() as u64);
            out.extend_from_slice(&body);
            out.extend_from_slice(code.get(range.end..).unwrap_or(&[]));
            break;
        }
    }
    Ok(out)
}

/// Where the section starts whose content starts at `content`: in front of
/// its length, whose bytes but the last have their top bit set, and its id.
fn section_head(code: &[u8], content: usize) -> usize {
    let mut at = content.saturating_sub(1);
    while at > 1 && code.get(at - 1).is_some_and(|byte| byte & 0x80 != 0) {
        at -= 1;
    }
    at.saturating_sub(1)
}

fn number_length(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .position(|byte| byte & 0x80 == 0)
        .map_or(0, |at| at + 1)
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        if value == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}
