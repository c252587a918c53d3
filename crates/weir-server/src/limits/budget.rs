//! Memory budgets that all connections share.
//!
//! Data that a client sends or receives slowly is reserved from a budget first. A request that
//! needs more than [`MemoryBudget::small_bytes`] reserves memory before it reads and renders.
//!
//! Invariants:
//! - A buffer above `small_bytes` is reserved before it is allocated, and released when dropped.
//! - The reservations of one principal together use at most half of a budget with shares, so that
//!   slow transfers of one principal leave memory to others. A larger reservation uses more only
//!   while it is the only one of its principal.
//! - Every wait for a budget has a deadline.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

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
    memory: Arc<Memory>,
    /// The principal whose share is used; `None`: no share limits the reservations.
    share: Option<ShareKey>,
}

/// A principal that has a share: a hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ShareKey(NonZeroU64);

impl ShareKey {
    /// Returns the key of a principal. `None` for the name whose hash is zero.
    pub(crate) fn new(principal: &str) -> Option<Self> {
        let mut hasher = DefaultHasher::new();
        principal.hash(&mut hasher);
        NonZeroU64::new(hasher.finish()).map(Self)
    }
}

#[derive(Debug)]
struct Memory {
    units: Arc<Semaphore>,
    units_max: u32,
    small_bytes: usize,
    /// Text of the error when the budget is used up.
    used_up: &'static str,
    shares: Option<Shares>,
}

/// The shares of principals.
#[derive(Debug)]
struct Shares {
    /// Units of one share.
    units_max: u32,
    /// Text of the error when a share is used up.
    used_up: &'static str,
    /// The free units of each principal that has a reservation.
    principals: Mutex<HashMap<ShareKey, Weak<Semaphore>>>,
}

impl Shares {
    fn of(&self, principal: ShareKey) -> Arc<Semaphore> {
        let mut principals = self.principals.lock();
        if let Some(units) = principals.get(&principal).and_then(Weak::upgrade) {
            return units;
        }
        principals.retain(|_, units| units.strong_count() > 0);
        let units = Arc::new(Semaphore::new(self.units_max as usize));
        principals.insert(principal, Arc::downgrade(&units));
        units
    }

    fn exhausted(&self) -> BudgetExhausted {
        BudgetExhausted {
            text: self.used_up,
            limit: self.units_max as usize * UNIT_BYTES,
        }
    }
}

impl MemoryBudget {
    /// Creates a budget of `max` bytes. Requests of up to `small_bytes` need no reservation.
    /// `used_up` is the text of the error when the budget is used up.
    pub(crate) fn new(used_up: &'static str, max: usize, small_bytes: usize) -> Self {
        Self::create(used_up, max, small_bytes, None)
    }

    /// As `new`, with a share of half of the budget for each principal. The second text is that of
    /// the error when a share is used up.
    pub(crate) fn with_shares(
        [used_up, share_used_up]: [&'static str; 2],
        max: usize,
        small_bytes: usize,
    ) -> Self {
        Self::create(used_up, max, small_bytes, Some(share_used_up))
    }

    fn create(
        used_up: &'static str,
        max: usize,
        small_bytes: usize,
        share_used_up: Option<&'static str>,
    ) -> Self {
        let units = (max / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS.min(1 << 31));
        let units_max = u32::try_from(units).unwrap_or(u32::MAX);
        let shares = share_used_up.map(|used_up| Shares {
            units_max: units_max.div_ceil(2),
            used_up,
            principals: Mutex::default(),
        });
        let memory = Memory {
            units: Arc::new(Semaphore::new(units)),
            units_max,
            small_bytes,
            used_up,
            shares,
        };
        Self {
            memory: Arc::new(memory),
            share: None,
        }
    }

    /// Limits the reservations from this value to the share of a principal.
    pub(crate) fn set_share(&mut self, share: Option<ShareKey>) {
        self.share = share;
    }

    /// Bytes of one request or response that need no reservation.
    pub(crate) fn small_bytes(&self) -> usize {
        self.memory.small_bytes
    }

    /// Size of the budget.
    pub(crate) fn max(&self) -> usize {
        self.memory.units_max as usize * UNIT_BYTES
    }

    /// Bytes that are reserved.
    pub(crate) fn used(&self) -> usize {
        self.max() - self.memory.units.available_permits() * UNIT_BYTES
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

    /// The error when the budget is used up.
    pub(crate) fn exhausted(&self) -> BudgetExhausted {
        BudgetExhausted {
            text: self.memory.used_up,
            limit: self.max(),
        }
    }

    fn units(&self, bytes: usize) -> u32 {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES));
        units.unwrap_or(u32::MAX).min(self.memory.units_max)
    }
}

/// A reserved part of a budget, released when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// `None`: no budget applies.
    budget: Option<MemoryBudget>,
    permit: Option<OwnedSemaphorePermit>,
    /// The part of the share of the principal.
    share: Option<OwnedSemaphorePermit>,
    /// Bytes that are not charged to the budget.
    free: usize,
    /// Bytes that this reservation covers.
    covered: usize,
}

impl Reservation {
    /// Creates a reservation that covers the small bytes of the budget.
    pub(crate) fn new(budget: &MemoryBudget) -> Self {
        let free = budget.small_bytes();
        Self {
            budget: Some(budget.clone()),
            permit: None,
            share: None,
            free,
            covered: free,
        }
    }

    /// As `new`, within the share of a principal.
    pub(crate) fn for_principal(budget: &MemoryBudget, share: Option<ShareKey>) -> Self {
        let mut reservation = Self::new(budget);
        reservation.set_share(share);
        reservation
    }

    /// Limits what is reserved from now on to the share of a principal.
    pub(crate) fn set_share(&mut self, share: Option<ShareKey>) {
        if let Some(budget) = &mut self.budget {
            budget.set_share(share);
        }
    }

    fn all_counted(budget: &MemoryBudget) -> Self {
        Self {
            budget: Some(budget.clone()),
            permit: None,
            share: None,
            free: 0,
            covered: 0,
        }
    }

    /// Creates a reservation that covers everything, for servers without budgets.
    pub(crate) fn unlimited() -> Self {
        Self {
            budget: None,
            permit: None,
            share: None,
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
        let mut share = None;
        if let Some((_, units, more)) = self.missing_share(bytes) {
            let Ok(permit) = units.try_acquire_many_owned(more) else {
                return false;
            };
            share = Some(permit);
        }
        match Arc::clone(&budget.memory.units).try_acquire_many_owned(more) {
            Ok(permit) => {
                self.add(permit, share, bytes);
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
        let end = Instant::now() + WAIT;
        let mut share = None;
        if let Some((shares, units, more)) = self.missing_share(bytes) {
            let wait = timeout_at(end, units.acquire_many_owned(more)).await;
            let Ok(Ok(permit)) = wait else {
                return Err(shares.exhausted());
            };
            share = Some(permit);
        }
        let wait = Arc::clone(&budget.memory.units).acquire_many_owned(more);
        let Ok(Ok(permit)) = timeout_at(end, wait).await else {
            return Err(budget.exhausted());
        };
        self.add(permit, share, bytes);
        Ok(())
    }

    /// Releases the part that exceeds this many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let Some(budget) = &self.budget else { return };
        let bytes = bytes.max(self.free).min(self.covered);
        let counted = if bytes > self.free { bytes } else { 0 };
        let keep = budget.units(counted);
        shrink(&mut self.permit, keep);
        if let Some(shares) = &budget.memory.shares {
            shrink(&mut self.share, keep.min(shares.units_max));
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
            .checked_sub(held_units(self.permit.as_ref()))
            .filter(|more| *more > 0)
    }

    /// The share of the principal, and its units that are missing for this many bytes; `None`:
    /// none.
    fn missing_share(&self, bytes: usize) -> Option<(&Shares, Arc<Semaphore>, u32)> {
        let budget = self.budget.as_ref()?;
        let principal = budget.share?;
        let shares = budget.memory.shares.as_ref()?;
        let needed = budget.units(bytes).min(shares.units_max);
        let more = needed.checked_sub(held_units(self.share.as_ref()))?;
        let units = match &self.share {
            Some(held) => Arc::clone(held.semaphore()),
            None => shares.of(principal),
        };
        (more > 0).then_some((shares, units, more))
    }

    fn add(
        &mut self,
        permit: OwnedSemaphorePermit,
        share: Option<OwnedSemaphorePermit>,
        bytes: usize,
    ) {
        merge(&mut self.permit, Some(permit));
        merge(&mut self.share, share);
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

fn held_units(permit: Option<&OwnedSemaphorePermit>) -> u32 {
    let held = permit.map_or(0, OwnedSemaphorePermit::num_permits);
    u32::try_from(held).unwrap_or(u32::MAX)
}

fn merge(held: &mut Option<OwnedSemaphorePermit>, more: Option<OwnedSemaphorePermit>) {
    match (held.as_mut(), more) {
        (Some(held), Some(more)) => held.merge(more),
        (None, more) => *held = more,
        (Some(_), None) => {}
    }
}

/// Releases the units above `keep`.
fn shrink(permit: &mut Option<OwnedSemaphorePermit>, keep: u32) {
    if keep == 0 {
        *permit = None;
    } else if let Some(permit) = permit
        && let Some(more) = permit.num_permits().checked_sub(keep as usize)
    {
        drop(permit.split(more));
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
    use super::{MemoryBudget, Reservation, ShareKey};

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
    async fn one_principal_leaves_half_of_the_budget_to_others() {
        let budget = MemoryBudget::with_shares(["all", "share"], MAX, SMALL);
        let [a, b] = ["a", "b"].map(ShareKey::new);
        assert!(a.is_some() && b.is_some());
        let reservation = |principal| Reservation::for_principal(&budget, principal);
        let mut first = reservation(a);
        assert!(first.try_cover(MAX / 4) && first.try_cover(MAX / 2));
        let mut second = reservation(a);
        assert!(second.try_cover(SMALL) && !second.try_cover(SMALL + 1));
        let error = second.cover(MAX / 4).await.err();
        let error = error.map(|error| (error.text, error.limit));
        assert_eq!(error, Some(("share", MAX / 2)));
        let mut other = reservation(b);
        assert_eq!(other.cover(MAX / 2).await, Ok(()));
        let error = Reservation::new(&budget).cover(MAX / 2).await.err();
        assert_eq!(error.map(|error| error.text), Some("all"));
        drop(other);
        // A reservation of the whole share may exceed it.
        assert!(first.try_cover(MAX));
        first.shrink(MAX / 4);
        assert_eq!(budget.used(), MAX / 4);
        assert!(second.try_cover(MAX / 4) && !reservation(a).try_cover(MAX / 4));
        drop((first, second));
        assert_eq!(budget.used(), 0);
        assert!(reservation(a).try_cover(MAX));
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
