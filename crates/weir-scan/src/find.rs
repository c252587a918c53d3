//! Values in one item.

use crate::error::ScanError;
use crate::items::Value;
use crate::kernel::Kernel;
use crate::path_set::PathSet;
use crate::plan::{Limits, PAGE_BYTES_LIMIT};
use crate::scan::{at_item, too_large};
use crate::token::blanks;
use crate::walk::Walk;

/// Finds the values under `paths` in `item`, one JSON value with or without white space around it,
/// and puts them into `out`, which gets as many entries as there are paths; spans count from the
/// start of `item`. What a path walks through is checked, the rest of the item is not (the level
/// `structural`), and nothing after the value is looked at.
///
/// # Errors
/// The item is not JSON where a path leads; `out` is then as if nothing had been found.
pub fn find(item: &[u8], paths: &PathSet, out: &mut Vec<Value>) -> Result<(), ScanError> {
    out.clear();
    out.resize(paths.len(), Value::default());
    if item.len() as u64 > PAGE_BYTES_LIMIT {
        return Err(too_large(0, 0));
    }
    let mut walk = Walk {
        bytes: item,
        paths,
        kernel: Kernel::chosen(),
        strict: false,
        depth_max: Limits::default().depth_max,
        high: false,
    };
    let found = walk.value(blanks(item, 0), 0, 0, out);
    found.map(|_| ()).map_err(|fault| {
        out.fill(Value::default());
        at_item(fault, 0)
    })
}
