//! Keeps the first item of each distinct value.

use std::collections::BTreeSet;

use weir_scan::Span;

use crate::error::QueryError;
use weir_core::digest::hash;
use weir_core::error_code::ErrorCode;

/// Hashes of 128 bits of the values seen so far; only that of the last value if equal
/// values are adjacent.
#[derive(Debug, Default)]
pub(crate) struct Distinct {
    in_order: bool,
    max: usize,
    pub(crate) last: Option<u128>,
    seen: BTreeSet<u128>,
}

fn hash_128(bytes: &[u8]) -> u128 {
    u128::from(hash(3, bytes)) << 64 | u128::from(hash(4, bytes))
}

/// Returns a hash of the value at this span of a page: equal values have equal hashes. 0
/// for an empty span.
pub(crate) fn value_hash(page: &[u8], span: Span) -> Result<u128, QueryError> {
    if span.len == 0 {
        return Ok(0);
    }
    weir_scan::fingerprint(span.of(page), hash_128).map_err(|error| {
        let what = "a value to compare is not valid JSON";
        QueryError::new(ErrorCode::NotJson)
            .because(what)
            .at(span.offset as usize + error.offset)
    })
}

/// Returns a hash of several values, in their order.
pub(crate) fn values_hash(
    page: &[u8],
    spans: impl Iterator<Item = Span>,
) -> Result<u128, QueryError> {
    let mut hashes = Vec::new();
    for span in spans {
        hashes.extend_from_slice(&value_hash(page, span)?.to_le_bytes());
    }
    Ok(hash_128(&hashes))
}

impl Distinct {
    pub(crate) fn new(in_order: bool, max: usize) -> Self {
        Self {
            in_order,
            max,
            ..Self::default()
        }
    }

    /// Adds a hash. Returns whether it was not there before.
    pub(crate) fn is_new(&mut self, value_hash: u128) -> Result<bool, QueryError> {
        if self.in_order {
            return Ok(self.last.replace(value_hash) != Some(value_hash));
        }
        let new = self.seen.insert(value_hash);
        if self.seen.len() > self.max {
            let (max, found) = (self.max as u64, self.seen.len() as u64);
            return Err(QueryError::limit(
                ErrorCode::DistinctBudget,
                "distinct values",
                max,
                found,
            ));
        }
        Ok(new)
    }
}
