//! Budgets of memory that all connections share.
//!
//! What a client sends or takes slowly is reserved from a budget before the bytes are there:
//! a request that needs more than [`MemoryBudget::small_bytes`] reserves first, then reads and renders.
//!
//! Invariants:
//! - bytes above the small ones are reserved before they are made, and given back when dropped;
//! - every wait for a budget has a deadline.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that one permit of the semaphore stands for.
const UNIT_BYTES: usize = 1 << 10;
/// Longest wait for a reservation.
const WAIT: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 2000 });

/// Nobody gave enough of the budget back in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BudgetExhausted;

/// A number of bytes that may be in use at a time. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget {
    units: Arc<Semaphore>,
    units_max: u32,
    small_bytes: usize,
}

impl MemoryBudget {
    /// A budget of `max` bytes, of which requests up to `small_bytes` need no reservation.
    pub(crate) fn new(max: usize, small_bytes: usize) -> Self {
        let units = (max / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS.min(1 << 31));
        Self {
            units: Arc::new(Semaphore::new(units)),
            units_max: u32::try_from(units).unwrap_or(u32::MAX),
            small_bytes,
        }
    }

    /// Bytes of one request or answer that need no reservation.
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

    /// A reservation of `bytes`, all of them counted; `None`: not now. One that is larger than
    /// the budget gets all of it.
    pub(crate) fn try_reserve(&self, bytes: usize) -> Option<Reservation> {
        let mut reservation = Reservation::all_counted(self);
        reservation.try_cover(bytes).then_some(reservation)
    }

    /// As `try_reserve`; waits for up to two seconds.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<Reservation, BudgetExhausted> {
        let mut reservation = Reservation::all_counted(self);
        reservation.cover(bytes).await?;
        Ok(reservation)
    }

    fn units(&self, bytes: usize) -> u32 {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES));
        units.unwrap_or(u32::MAX).min(self.units_max)
    }
}

/// A part of a budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// `None`: there is no budget.
    budget: Option<MemoryBudget>,
    permit: Option<OwnedSemaphorePermit>,
    /// Up to so many bytes nothing is counted.
    free: usize,
    /// Bytes that it covers.
    covered: usize,
}

impl Reservation {
    /// One that covers the small bytes of the budget.
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

    /// One that covers everything, for servers without budgets.
    pub(crate) fn unlimited() -> Self {
        Self {
            budget: None,
            permit: None,
            free: usize::MAX,
            covered: usize::MAX,
        }
    }

    /// Whether so many bytes are all that its budget has.
    pub(crate) fn is_budget(&self, bytes: usize) -> bool {
        let budget = self.budget.as_ref();
        budget.is_some_and(|budget| budget.max() == bytes)
    }

    /// Whether others may wait for what it holds.
    pub(crate) fn is_held(&self) -> bool {
        self.permit.is_some()
    }

    /// Covers so many bytes in all if that needs no wait; else it stays as it is.
    pub(crate) fn try_cover(&mut self, bytes: usize) -> bool {
        if bytes <= self.covered {
            return true;
        }
        let Some(more) = self.lacks(bytes) else {
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

    /// Covers so many bytes in all, from now on; gives back what is more. Waits for up to two
    /// seconds, and stays as it is if that was in vain.
    pub(crate) async fn cover(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        if bytes <= self.covered {
            self.shrink(bytes);
            return Ok(());
        }
        let Some(more) = self.lacks(bytes) else {
            self.covered = bytes;
            return Ok(());
        };
        let Some(budget) = &self.budget else {
            return Ok(());
        };
        let wait = Arc::clone(&budget.units).acquire_many_owned(more);
        match tokio::time::timeout(WAIT, wait).await {
            Ok(Ok(permit)) => {
                self.add(permit, bytes);
                Ok(())
            }
            _ => Err(BudgetExhausted),
        }
    }

    /// Gives back what is not needed for so many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let Some(budget) = &self.budget else { return };
        let bytes = bytes.max(self.free).min(self.covered);
        let counted = if bytes > self.free { bytes } else { 0 };
        let (keep, had) = (budget.units(counted), self.held());
        if keep == 0 {
            self.permit = None;
        } else if let Some(permit) = &mut self.permit
            && let Some(more) = had.checked_sub(keep)
        {
            drop(permit.split(more as usize));
        }
        self.covered = bytes;
    }

    /// Units that are missing for so many bytes; `None`: none are.
    fn lacks(&self, bytes: usize) -> Option<u32> {
        if bytes <= self.free {
            return None;
        }
        let units = self.budget.as_ref()?.units(bytes);
        units.checked_sub(self.held()).filter(|more| *more > 0)
    }

    fn held(&self) -> u32 {
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

    /// The bytes together with what they need of the reservation, until the last of them is
    /// dropped.
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

/// Bytes with a reservation that others share, until the last of them is dropped.
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
    use super::{BudgetExhausted, MemoryBudget, Reservation};

    const SMALL: usize = 16 << 10;
    const MAX: usize = 1 << 20;

    #[tokio::test]
    async fn large_requests_reserve_and_give_back() {
        let budget = MemoryBudget::new(MAX, SMALL);
        let mut body = Reservation::new(&budget);
        assert_eq!(body.cover(SMALL).await, Ok(()));
        assert!(!body.is_held());
        assert_eq!(body.cover(SMALL + 1).await, Ok(()));
        assert!(body.is_held());
        assert!(budget.used() > SMALL);
        assert!(budget.try_reserve(MAX).is_none());
        // A wait in vain ends, and leaves what was there.
        assert_eq!(budget.reserve(MAX).await.err(), Some(BudgetExhausted));
        body.shrink(SMALL);
        assert_eq!(budget.used(), 0);
        assert!(budget.try_reserve(10 * MAX).is_some(), "alone");
    }

    #[tokio::test]
    async fn bytes_keep_their_reservation() {
        let budget = MemoryBudget::new(MAX, SMALL);
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
