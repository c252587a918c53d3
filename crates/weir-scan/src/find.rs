//! Values in one item, or in each of several.

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
/// start of `item`. The search ends with the last value that is wanted: what a path walks through up to
/// there is checked, and nothing after it is looked at. A path that leads nowhere is looked for to the
/// end of the object or array in which it could continue.
///
/// # Errors
/// The item is not JSON where a path leads; `out` is then as if nothing had been found.
pub fn find(item: &[u8], paths: &PathSet, out: &mut Vec<Value>) -> Result<(), ScanError> {
    out.clear();
    out.resize(paths.len(), Value::default());
    look(item, paths, true, out)
}

/// As [`find`] for each of `items`: a table of the values, with a row of [`PathSet::len`] entries for
/// each item, in the order of the items. Spans count from the start of the item of their row. The row
/// of an item that is not JSON where a path leads is undefined throughout.
///
/// ```
/// use weir_scan::{Path, PathSet, find_each};
///
/// let paths = PathSet::new(&[Path::parse("$.id")?, Path::parse("$.at[0]")?])?;
/// let items = [&br#"{"id":7,"at":[1,2]}"#[..], br#"{"at":[3]}"#];
/// let mut table = Vec::new();
/// find_each(items, &paths, &mut table);
/// let texts: Vec<&[u8]> = table.iter().zip([0, 0, 1, 1]).map(|(v, n)| v.span.of(items[n])).collect();
/// assert_eq!(texts, [&b"7"[..], b"1", b"", b"3"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn find_each<'a>(
    items: impl IntoIterator<Item = &'a [u8]>,
    paths: &PathSet,
    out: &mut Vec<Value>,
) {
    out.clear();
    for item in items {
        let first = out.len();
        out.resize(first + paths.len(), Value::default());
        let row = out.get_mut(first..).unwrap_or_default();
        // The row of an item that is refused was cleared.
        let _ = look(item, paths, true, row);
    }
}

/// As [`find`], but the whole item is walked over: a fault after the last value counts.
pub(crate) fn find_in_whole(
    item: &[u8],
    paths: &PathSet,
    out: &mut Vec<Value>,
) -> Result<(), ScanError> {
    out.clear();
    out.resize(paths.len(), Value::default());
    look(item, paths, false, out)
}

/// Writes the values to `out`, one place for each path, all undefined before.
fn look(item: &[u8], paths: &PathSet, ends: bool, out: &mut [Value]) -> Result<(), ScanError> {
    if item.len() as u64 > PAGE_BYTES_LIMIT {
        return Err(too_large(0, 0));
    }
    if ends && paths.is_empty() {
        return Ok(());
    }
    let mut walk = Walk {
        bytes: item,
        paths,
        kernel: Kernel::chosen(),
        strict: false,
        wanted: ends.then_some(paths.len()),
        depth_max: Limits::default().depth_max,
        high: false,
    };
    let found = walk.value(blanks(item, 0), 0, 0, out);
    found.map(|_| ()).map_err(|fault| {
        out.fill(Value::default());
        at_item(fault, 0)
    })
}
