//! Finds values in one item, or in each of several.

use crate::error::ScanError;
use crate::items::Value;
use crate::kernel::Kernel;
use crate::path_set::PathSet;
use crate::plan::{Limits, PAGE_BYTES_LIMIT};
use crate::scan::{at_item, too_large};
use crate::token::blanks;
use crate::walk::Walk;

/// Finds the values under `paths` in `item`, one JSON value with or without surrounding white
/// space. Writes one entry for each path to `out`; spans count from the start of `item`. The search
/// ends after the last requested value: only the bytes up to it on the paths are checked, and the
/// first byte after it, which must be able to follow a value. For a path without a value, the
/// search continues to the end of the object or array that could contain the value.
///
/// # Errors
/// The item is not JSON on a path; all entries of `out` are then undefined.
pub fn find(item: &[u8], paths: &PathSet, out: &mut Vec<Value>) -> Result<(), ScanError> {
    out.clear();
    out.resize(paths.len(), Value::default());
    find_values(item, paths, true, out)
}

/// As [`find`] for each of `items`. Writes a table with a row of [`PathSet::len`] entries for each
/// item, in order. Spans count from the start of the item of the row. If an item is not JSON on a
/// path, its whole row is undefined.
///
/// ```
/// use weir_scan::{Path, PathSet, find_each};
///
/// let paths = PathSet::new(&[Path::parse("$.id")?, Path::parse("$.at[0]")?])?;
/// let items = [&br#"{"id":7,"at":[1,2]}"#[..], br#"{"at":[3]}"#];
/// let mut table = Vec::new();
/// find_each(items, &paths, &mut table);
/// let rows = table.chunks(paths.len()).zip(items);
/// let texts = rows.map(|(row, item)| [row[0].span.of(item), row[1].span.of(item)]);
/// assert_eq!(texts.collect::<Vec<_>>(), [[&b"7"[..], b"1"], [&b""[..], b"3"]]);
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
        // The row of a rejected item was cleared.
        let _ = find_values(item, paths, true, row);
    }
}

/// As [`find`], but reads the whole item: a fault after the last value is an error.
pub(crate) fn find_in_whole(
    item: &[u8],
    paths: &PathSet,
    out: &mut Vec<Value>,
) -> Result<(), ScanError> {
    out.clear();
    out.resize(paths.len(), Value::default());
    find_values(item, paths, false, out)
}

/// Writes the values to `out`, one entry for each path. All entries must be undefined before.
fn find_values(
    item: &[u8],
    paths: &PathSet,
    stops_early: bool,
    out: &mut [Value],
) -> Result<(), ScanError> {
    if item.len() as u64 > PAGE_BYTES_LIMIT {
        return Err(too_large(0, 0));
    }
    if stops_early && paths.is_empty() {
        return Ok(());
    }
    let mut walk = Walk {
        bytes: item,
        readable: item,
        paths,
        kernel: Kernel::chosen(),
        strict: false,
        wanted: stops_early.then_some(paths.len()),
        depth_max: Limits::default().depth_max,
        high: false,
    };
    let found = walk.value(blanks(item, 0), 0, 0, out);
    found.map(|_| ()).map_err(|fault| {
        out.fill(Value::default());
        at_item(fault, 0)
    })
}
