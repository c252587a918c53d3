//! The first of each equal value.

use std::collections::BTreeSet;

use crate::error::QueryError;
use weir_core::digest::hash;
use weir_core::error_code::ErrorCode;

/// Which values were seen: 128 bits of each, or of the last one where equal
/// values come together.
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

impl Distinct {
    pub(crate) fn new(in_order: bool, max: usize) -> Self {
        Self {
            in_order,
            max,
            ..Self::default()
        }
    }

    /// Whether a value was not seen before; it is from now on.
    pub(crate) fn is_new(&mut self, value: &[u8]) -> Result<bool, QueryError> {
        let print = weir_scan::fingerprint(value, hash_128).map_err(|error| {
            let what = "a value to compare is not JSON throughout";
            QueryError::new(ErrorCode::NotJson)
                .because(what)
                .at(error.offset)
        })?;
        if self.in_order {
            return Ok(self.last.replace(print) != Some(print));
        }
        let new = self.seen.insert(print);
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
