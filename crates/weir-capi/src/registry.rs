//! The table of handles: numbers that are passed as pointers, each for an object of the library.
//!
//! A handle is the number of a slot and the generation of the slot, so that a released handle
//! differs from the next one in its slot.
//!
//! Invariants:
//! - A handle refers to the object that it was created for, or to no object.
//! - The object lives until the last call that uses it has ended.
//! - A handle is never dereferenced.
//!
//! | bits | contents |
//! |---|---|
//! | 63 to 48 | `0x5745`; no address begins with it |
//! | 47 to 26 | generation, from 1; a slot whose generations are exhausted is not reused |
//! | 25 to 3 | slot; its low 4 bits are the shard |
//! | 2 to 0 | 0 |

use std::any::Any;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

use weir::ErrorCode;

use crate::error::Fail;
use crate::guard;

const MAGIC: u64 = 0x5745;
const GENERATION_BITS: u32 = 22;
const SLOT_BITS: u32 = 23;
const SHARD_BITS: u32 = 4;
const GENERATIONS: u64 = 1 << GENERATION_BITS;
const SHARDS: usize = 1 << SHARD_BITS;
/// Largest number of handles and pages of a process in one shard.
const SHARD_SLOTS_MAX: usize = 1 << (SLOT_BITS - SHARD_BITS);

type Object = Arc<dyn Any + Send + Sync>;

#[derive(Default)]
struct Slot {
    generation: u64,
    object: Option<Object>,
}

#[derive(Default)]
struct Shard {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

struct Registry {
    shards: [RwLock<Shard>; SHARDS],
    next: AtomicUsize,
    open: AtomicU64,
}

static REGISTRY: Registry = Registry {
    shards: [const {
        RwLock::new(Shard {
            slots: Vec::new(),
            free: Vec::new(),
        })
    }; SHARDS],
    next: AtomicUsize::new(0),
    open: AtomicU64::new(0),
};

/// The number of open handles and pages.
pub(crate) fn open() -> u64 {
    REGISTRY.open.load(Ordering::Acquire)
}

/// A reserved slot without an object. Dropping it frees the slot.
///
/// A call reserves a slot before it does anything that cannot be repeated. So a full table is
/// reported before anything is lost.
#[derive(Debug)]
pub(crate) struct ReservedSlot {
    shard: usize,
    at: usize,
    is_filled: bool,
}

/// Reserves a slot.
pub(crate) fn reserve() -> Result<ReservedSlot, Fail> {
    let full = || Fail::of(ErrorCode::TooManyHandles);
    if guard::is_full_requested() {
        return Err(full());
    }
    let shard_at = REGISTRY.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
    let shard = REGISTRY.shards.get(shard_at);
    let shard = shard.ok_or_else(|| Fail::of(ErrorCode::Internal))?;
    let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
    let at = match shard.free.pop() {
        Some(at) => at,
        None if shard.slots.len() < SHARD_SLOTS_MAX => {
            shard.slots.push(Slot::default());
            shard.slots.len() - 1
        }
        None => return Err(full()),
    };
    Ok(ReservedSlot {
        shard: shard_at,
        at,
        is_filled: false,
    })
}

impl ReservedSlot {
    /// Creates a handle for an object in the reserved slot.
    pub(crate) fn fill<T: Any + Send + Sync, H>(mut self, object: Arc<T>) -> Result<*mut H, Fail> {
        let internal = || Fail::of(ErrorCode::Internal);
        let shard = REGISTRY.shards.get(self.shard).ok_or_else(internal)?;
        let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
        let slot = shard.slots.get_mut(self.at).ok_or_else(internal)?;
        slot.generation += 1;
        slot.object = Some(object);
        let number = slot_number(self.at, self.shard);
        let value = MAGIC << 48 | slot.generation << (SLOT_BITS + 3) | number << 3;
        drop(shard);
        self.is_filled = true;
        REGISTRY.open.fetch_add(1, Ordering::AcqRel);
        Ok(std::ptr::without_provenance_mut(
            usize::try_from(value).unwrap_or_default(),
        ))
    }
}

impl Drop for ReservedSlot {
    fn drop(&mut self) {
        if self.is_filled {
            return;
        }
        if let Some(shard) = REGISTRY.shards.get(self.shard) {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.free.push(self.at);
        }
    }
}

/// Creates a handle for an object.
pub(crate) fn insert<T: Any + Send + Sync, H>(object: Arc<T>) -> Result<*mut H, Fail> {
    reserve()?.fill(object)
}

fn slot_number(at: usize, shard: usize) -> u64 {
    ((at << SHARD_BITS) | shard) as u64
}

/// Generation, slot and shard of a value that may be a handle.
fn parts<H>(handle: *const H) -> Option<(u64, usize, &'static RwLock<Shard>)> {
    let value = handle.addr() as u64;
    if value >> 48 != MAGIC || value & 7 != 0 {
        return None;
    }
    let generation = value >> (SLOT_BITS + 3) & (GENERATIONS - 1);
    let number = usize::try_from(value >> 3 & ((1 << SLOT_BITS) - 1)).ok()?;
    let shard = REGISTRY.shards.get(number % SHARDS)?;
    Some((generation, number >> SHARD_BITS, shard))
}

/// The object of a handle.
pub(crate) fn get<T: Any + Send + Sync, H>(handle: *const H) -> Result<Arc<T>, Fail> {
    if handle.is_null() {
        return Err(Fail::of(ErrorCode::NullPointer));
    }
    let bad = || Fail::of(ErrorCode::BadHandle);
    let (generation, at, shard) = parts(handle).ok_or_else(bad)?;
    let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
    let slot = shard.slots.get(at).ok_or_else(bad)?;
    let object = slot
        .object
        .as_ref()
        .filter(|_| slot.generation == generation);
    let object = object.ok_or_else(bad)?;
    if !(**object).is::<T>() {
        return Err(bad());
    }
    let object = Arc::clone(object);
    drop(shard);
    object.downcast::<T>().map_err(|_| bad())
}

/// Releases a handle. Returns its object, if it has this type.
pub(crate) fn remove<T: Any + Send + Sync, H>(handle: *const H) -> Result<Arc<T>, Fail> {
    if handle.is_null() {
        return Err(Fail::of(ErrorCode::NullPointer));
    }
    let bad = || Fail::of(ErrorCode::BadHandle);
    let (generation, at, shard) = parts(handle).ok_or_else(bad)?;
    let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
    let slot = shard.slots.get_mut(at).ok_or_else(bad)?;
    let of_type = |object: &Object| (**object).is::<T>();
    if slot.generation != generation || !slot.object.as_ref().is_some_and(of_type) {
        return Err(bad());
    }
    let object = slot.object.take().ok_or_else(bad)?;
    if slot.generation + 1 < GENERATIONS {
        shard.free.push(at);
    }
    drop(shard);
    REGISTRY.open.fetch_sub(1, Ordering::AcqRel);
    object.downcast::<T>().map_err(|_| bad())
}

/// An object that one thread at a time may use.
#[derive(Debug)]
pub(crate) struct Exclusive<T>(Mutex<T>);

impl<T> Exclusive<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Locks the object. Fails if another thread uses it, or if a panic ended an earlier use.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>, Fail> {
        match self.0.try_lock() {
            Ok(locked) => {
                guard::maybe_panic(guard::PanicPoint::Inside);
                Ok(locked)
            }
            Err(TryLockError::WouldBlock) => Err(Fail::of(ErrorCode::HandleBusy)),
            Err(TryLockError::Poisoned(_)) => Err(Fail::of(ErrorCode::HandlePoisoned)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::{GENERATION_BITS, SLOT_BITS, get, insert, remove};
    use std::sync::Arc;
    use weir::ErrorCode;

    enum Mark {}

    #[test]
    fn the_fields_of_a_handle_have_64_bits() {
        assert_eq!(16 + GENERATION_BITS + SLOT_BITS + 3, 64);
    }

    #[test]
    fn a_released_handle_is_invalid_even_if_its_slot_is_reused() {
        let mut old: Vec<*mut Mark> = Vec::new();
        for n in 0..100_u64 {
            let handle: *mut Mark = insert(Arc::new(n)).unwrap();
            assert!(!old.contains(&handle));
            assert_eq!(*get::<u64, _>(handle).unwrap(), n);
            assert_eq!(
                get::<u32, _>(handle).unwrap_err().code,
                ErrorCode::BadHandle
            );
            assert!(remove::<u32, _>(handle).is_err());
            assert_eq!(*remove::<u64, _>(handle).unwrap(), n);
            assert!(remove::<u64, _>(handle).is_err());
            old.push(handle);
        }
        for handle in old {
            assert_eq!(
                get::<u64, _>(handle).unwrap_err().code,
                ErrorCode::BadHandle
            );
        }
    }

    #[test]
    fn a_value_that_is_not_a_handle_is_not_dereferenced() {
        for address in [1_usize, 8, 4096, usize::MAX, usize::MAX - 7, 0x5745 << 48] {
            let handle = std::ptr::without_provenance::<Mark>(address);
            assert_eq!(
                get::<u64, _>(handle).unwrap_err().code,
                ErrorCode::BadHandle
            );
        }
        let null = std::ptr::null::<Mark>();
        assert_eq!(
            get::<u64, _>(null).unwrap_err().code,
            ErrorCode::NullPointer
        );
    }
}
