//! Memory budgets that all connections share.
//!
//! Data that a client sends or receives slowly is reserved from a budget first. A request that
//! needs more than [`MemoryBudget::small_bytes`] reserves memory before it reads and renders.
//!
//! Invariants:
//! - A buffer above `small_bytes` is reserved before it is allocated, and released when dropped.
//! - Every wait for a budget has a deadline.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes for each permit of the semaphore.
const UNIT_BYTES: usize = 1 << 10;
/// Longest wait for a reservation.
const WAIT: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 2000 });

/// Other requests use all of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BudgetExhausted {
    /// Which limit is reached, for the client.
    pub(crate) text: &'static str,
    /// The limit, in bytes or as a number.
    pub(crate) limit: usize,
}

/// A maximum number of bytes in use at a time. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget {
    units: Arc<Semaphore>,
    units_max: u32,
    small_bytes: usize,
    /// Text of the error when the budget is used up.
    used_up: &'static str,
}

impl MemoryBudget {
    /// Creates a budget of `max` bytes. Requests of up to `small_bytes` need no reservation.
    /// `used_up` is the text of the error when the budget is used up.
    pub(crate) fn new(used_up: &'static str, max: usize, small_bytes: usize) -> Self {
        let units = (max / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS.min(1 << 31));
        Self {
            units: Arc::new(Semaphore::new(units)),
            units_max: u32::try_from(units).unwrap_or(u32::MAX),
            small_bytes,
            used_up,
        }
    }

    /// Bytes of one request or response that need no reservation.
    pub(crate) fn small_bytes(&self) -> usize {
        self.small_bytes
    }

    /// Size of the budget.
    pub(crate) fn max(&self) -> usize {
        self.units_max as usize * UNIT_BYTES
    }

    /// Bytes that are reserved.
    pub(crate) fn used(&self) -> usize {
        self.max() - self.units.available_permits() * UNIT_BYTES
    }

    /// Reserves `bytes`, including the small ones; `None` if they are not free. A request above the
    /// size of the budget reserves the whole budget.
    pub(crate) fn try_reserve(&self, bytes: usize) -> Option<Reservation> {
        let mut reservation = Reservation::all_counted(self);
        reservation.try_cover(bytes).then_some(reservation)
    }

    /// As `try_reserve`, but waits up to two seconds.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<Reservation, BudgetExhausted> {
        let mut reservation = Reservation::all_counted(self);
        reservation.cover(bytes).await?;
        Ok(reservation)
    }

    fn exhausted(&self) -> BudgetExhausted {
        BudgetExhausted {
            text: self.used_up,
            limit: self.max(),
        }
    }

    fn units(&self, bytes: usize) -> u32 {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES));
        units.unwrap_or(u32::MAX).min(self.units_max)
    }
}

/// A reserved part of a budget, released when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// `None`: no budget applies.
    budget: Option<MemoryBudget>,
    permit: Option<OwnedSemaphorePermit>,
    /// Bytes that are not charged to the budget.
    free: usize,
    /// Bytes that this reservation covers.
    covered: usize,
}

impl Reservation {
    /// Creates a reservation that covers the small bytes of the budget.
    pub(crate) fn new(budget: &MemoryBudget) -> Self {
        let free = budget.small_bytes;
        Self {
            budget: Some(budget.clone()),
            permit: None,
            free,
            covered: free,
        }
    }

    fn all_counted(budget: &MemoryBudget) -> Self {
        Self {
            budget: Some(budget.clone()),
            permit: None,
            free: 0,
            covered: 0,
        }
    }

    /// Creates a reservation that covers everything, for servers without budgets.
    pub(crate) fn unlimited() -> Self {
        Self {
            budget: None,
            permit: None,
            free: usize::MAX,
            covered: usize::MAX,
        }
    }

    /// Whether this many bytes are the whole budget.
    pub(crate) fn is_budget(&self, bytes: usize) -> bool {
        let budget = self.budget.as_ref();
        budget.is_some_and(|budget| budget.max() == bytes)
    }

    /// Whether the reservation occupies memory that other requests may wait for.
    pub(crate) fn is_held(&self) -> bool {
        self.permit.is_some()
    }

    /// Extends the reservation to `bytes` in total, if they are free. Otherwise it is unchanged,
    /// and the result is false.
    pub(crate) fn try_cover(&mut self, bytes: usize) -> bool {
        if bytes <= self.covered {
            return true;
        }
        let Some(more) = self.missing_units(bytes) else {
            self.covered = bytes;
            return true;
        };
        let Some(budget) = &self.budget else {
            return true;
        };
        match Arc::clone(&budget.units).try_acquire_many_owned(more) {
            Ok(permit) => {
                self.add(permit, bytes);
                true
            }
            Err(_) => false,
        }
    }

    /// Changes the reservation to `bytes` in total, and releases what exceeds them. Waits up to two
    /// seconds for missing bytes; on failure, the reservation is unchanged.
    pub(crate) async fn cover(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        if bytes <= self.covered {
            self.shrink(bytes);
            return Ok(());
        }
        let Some(more) = self.missing_units(bytes) else {
            self.covered = bytes;
            return Ok(());
        };
        let Some(budget) = &self.budget else {
            return Ok(());
        };
        let exhausted = budget.exhausted();
        let wait = Arc::clone(&budget.units).acquire_many_owned(more);
        match tokio::time::timeout(WAIT, wait).await {
            Ok(Ok(permit)) => {
                self.add(permit, bytes);
                Ok(())
            }
            _ => Err(exhausted),
        }
    }

    /// Releases the part that exceeds this many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let Some(budget) = &self.budget else { return };
        let bytes = bytes.max(self.free).min(self.covered);
        let counted = if bytes > self.free { bytes } else { 0 };
        let (keep, had) = (budget.units(counted), self.held_units());
        if keep == 0 {
            self.permit = None;
        } else if let Some(permit) = &mut self.permit
            && let Some(more) = had.checked_sub(keep)
        {
            drop(permit.split(more as usize));
        }
        self.covered = bytes;
    }

    /// Units that are missing for this many bytes; `None`: none.
    fn missing_units(&self, bytes: usize) -> Option<u32> {
        if bytes <= self.free {
            return None;
        }
        let units = self.budget.as_ref()?.units(bytes);
        units
            .checked_sub(self.held_units())
            .filter(|more| *more > 0)
    }

    fn held_units(&self) -> u32 {
        let permit = self.permit.as_ref();
        let held = permit.map_or(0, OwnedSemaphorePermit::num_permits);
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    fn add(&mut self, permit: OwnedSemaphorePermit, bytes: usize) {
        match &mut self.permit {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
        self.covered = bytes;
    }

    /// Returns the bytes with the part of the reservation that they need. Dropping the last
    /// reference releases it.
    pub(crate) fn attach(mut self, bytes: Bytes) -> Bytes {
        self.shrink(bytes.len());
        if self.is_held() {
            Bytes::from_owner(Attached {
                bytes,
                _reservation: self,
            })
        } else {
            bytes
        }
    }
}

/// Returns the bytes with a shared reservation, which is released after the last of its users is
/// dropped.
pub(crate) fn share(reservation: Arc<Reservation>, bytes: Bytes) -> Bytes {
    Bytes::from_owner(Attached {
        bytes,
        _reservation: reservation,
    })
}

struct Attached<R> {
    bytes: Bytes,
    _reservation: R,
}

impl<R> AsRef<[u8]> for Attached<R> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{MemoryBudget, Reservation};

    const SMALL: usize = 16 << 10;
    const MAX: usize = 1 << 20;

    #[tokio::test]
    async fn large_requests_reserve_and_release() {
        let budget = MemoryBudget::new("it is used up", MAX, SMALL);
        let mut body = Reservation::new(&budget);
        assert_eq!(body.cover(SMALL).await, Ok(()));
        assert!(!body.is_held());
        assert_eq!(body.cover(SMALL + 1).await, Ok(()));
        assert!(body.is_held());
        assert!(budget.used() > SMALL);
        assert!(budget.try_reserve(MAX).is_none());
        // A wait that times out leaves the reservation unchanged.
        let error = budget.reserve(MAX).await.err();
        let error = error.map(|error| (error.text, error.limit));
        assert_eq!(error, Some(("it is used up", MAX)));
        body.shrink(SMALL);
        assert_eq!(budget.used(), 0);
        assert!(
            budget.try_reserve(10 * MAX).is_some(),
            "a request above the budget reserves all of it"
        );
    }

    #[tokio::test]
    async fn bytes_keep_their_reservation() {
        let budget = MemoryBudget::new("it is used up", MAX, SMALL);
        let mut answer = Reservation::new(&budget);
        assert!(answer.try_cover(MAX));
        let bytes = answer.attach(vec![0; MAX / 2].into());
        assert_eq!(budget.used(), MAX / 2);
        let part = bytes.slice(5..9);
        drop(bytes);
        assert_eq!(budget.used(), MAX / 2);
        drop(part);
        assert_eq!(budget.used(), 0);
        let small = Reservation::new(&budget).attach(vec![0; SMALL].into());
        assert_eq!((small.len(), budget.used()), (SMALL, 0));
    }

    #[test]
    fn without_a_budget_everything_is_covered() {
        assert!(Reservation::unlimited().try_cover(usize::MAX));
    }
}
