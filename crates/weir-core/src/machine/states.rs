//! Limits the memory for the states of programs, in all topics and for each principal.
//!
//! The state of a program is charged to the store and to the principal that created its topic. A
//! call that would exceed either cap is rejected with QUOTA before it is committed. A call that
//! needs no more bytes than before always passes, so state can be deleted when a cap is reached.
//! The caps decide outcomes: they are constants of the machine version, and the charges follow from
//! the log alone (docs/decisions/0054).
//!
//! Invariant: the sums are the charges of the existing programs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::effect::Rejection;
use crate::error_code::ErrorCode;
use crate::limits::{PRINCIPAL_STATES_BYTES_MAX, STATES_BYTES_MAX};

/// Bytes charged to the store and to each principal.
#[derive(Clone, Debug, Default)]
pub(super) struct States {
    total: u64,
    by_principal: BTreeMap<Arc<[u8]>, u64>,
}

impl States {
    /// Replaces a charge of `old` bytes by one of `new` bytes.
    pub(super) fn charge(
        &mut self,
        principal: &Arc<[u8]>,
        old: u64,
        new: u64,
    ) -> Result<(), Rejection> {
        let own = self.principal(principal) - if principal.is_empty() { 0 } else { old };
        let others = self.total - old;
        if new > old {
            if others + new > STATES_BYTES_MAX {
                return Err(Rejection::limit(ErrorCode::Quota, STATES_BYTES_MAX));
            }
            if !principal.is_empty() && own + new > PRINCIPAL_STATES_BYTES_MAX {
                return Err(Rejection::limit(
                    ErrorCode::Quota,
                    PRINCIPAL_STATES_BYTES_MAX,
                ));
            }
        }
        self.set(principal, others + new, own + new);
        Ok(())
    }

    /// Charges the state of a program from a snapshot. Checks no limit, because the state was
    /// accepted before.
    pub(super) fn add(&mut self, principal: &Arc<[u8]>, bytes: u64) {
        let own = self.principal(principal);
        self.set(principal, self.total + bytes, own + bytes);
    }

    /// Releases the charge of a program, of `bytes` bytes.
    pub(super) fn release(&mut self, principal: &Arc<[u8]>, bytes: u64) {
        let own = self.principal(principal);
        let is_charged = principal.is_empty() || bytes <= own;
        assert!(
            bytes <= self.total && is_charged,
            "a release is not larger than the charge"
        );
        // An empty principal has no sum of its own: only the store is charged.
        let own = if principal.is_empty() { 0 } else { own - bytes };
        self.set(principal, self.total - bytes, own);
    }

    fn set(&mut self, principal: &Arc<[u8]>, total: u64, own: u64) {
        self.total = total;
        if principal.is_empty() {
            return;
        }
        if own == 0 {
            self.by_principal.remove(principal);
        } else {
            self.by_principal.insert(Arc::clone(principal), own);
        }
    }

    /// Bytes charged to the store.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Bytes charged to a principal.
    pub(super) fn principal(&self, principal: &[u8]) -> u64 {
        self.by_principal.get(principal).copied().unwrap_or(0)
    }
}
