//! The buffers of incoming pages, and a pool that reuses them.
//!
//! The first write to a page of fresh memory is slow; reused memory avoids this cost. Invariants:
//! - The pool holds at most [`POOL_BYTES_MAX`], and is empty while there is no query.
//! - A buffer in the pool has no reader.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Fail, Kind};
use crate::handle::{Caller, Fillable, memory, zeros};
use crate::raw;
use crate::registry::{self, Exclusive};

/// Largest sum of the capacities in the pool, in bytes.
const POOL_BYTES_MAX: usize = 256 << 20;
/// Smaller buffers are not pooled: allocating them costs less than a search of the pool.
const POOLED_BYTES_MIN: usize = 64 << 10;
/// Largest number of buffers in the pool.
const POOLED_MAX: usize = 64;

static POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
static QUERIES: AtomicUsize = AtomicUsize::new(0);

fn pool() -> MutexGuard<'static, Vec<Vec<u8>>> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a query while it exists.
#[derive(Debug)]
pub(crate) struct QueryGuard(());

impl QueryGuard {
    pub(crate) fn new() -> Self {
        QUERIES.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for QueryGuard {
    fn drop(&mut self) {
        if QUERIES.fetch_sub(1, Ordering::AcqRel) == 1 {
            trim();
        }
    }
}

/// Empties the pool.
pub(crate) fn trim() {
    let all = std::mem::take(&mut *pool());
    drop(all);
}

/// Removes from the pool the smallest buffer that fits, with a capacity of at most four times
/// `size`. The buffer still has its old contents.
fn take_from_pool(size: usize) -> Option<Vec<u8>> {
    if size < POOLED_BYTES_MIN {
        return None;
    }
    let mut pool = pool();
    let fitting = pool.iter().enumerate();
    let fitting =
        fitting.filter(|(_, buffer)| buffer.capacity() >= size && buffer.capacity() / 4 <= size);
    let at = fitting.min_by_key(|(_, buffer)| buffer.capacity())?.0;
    Some(pool.swap_remove(at))
}

/// Copies `bytes` into a buffer of the pool, or into a new one if none fits.
pub(crate) fn copy(bytes: &[u8]) -> Result<Vec<u8>, Fail> {
    let mut buffer = match take_from_pool(bytes.len()) {
        Some(buffer) => buffer,
        None => memory(bytes.len())?,
    };
    buffer.clear();
    buffer.extend_from_slice(bytes);
    Ok(buffer)
}

/// Adds a buffer to the pool, or frees it if the pool is full or there is no query.
pub(crate) fn recycle(buffer: Vec<u8>) {
    if buffer.capacity() < POOLED_BYTES_MIN || QUERIES.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut pool = pool();
    let pooled: usize = pool.iter().map(Vec::capacity).sum();
    if pool.len() < POOLED_MAX && pooled + buffer.capacity() <= POOL_BYTES_MAX {
        pool.push(buffer);
    }
}

/// A buffer that the caller owns through a handle.
pub(crate) type Buffer = Exclusive<Fillable>;

pub(crate) fn new(c: &Caller, size: usize, out: *mut *mut raw::Buffer) -> Result<Kind, Fail> {
    c.check_output(out, 1)?;
    let memory = if let Some(mut memory) = take_from_pool(size) {
        memory.resize(size, 0);
        memory
    } else {
        zeros(size)?
    };
    let buffer: Buffer = Exclusive::new(Fillable::new(memory));
    c.write(out, registry::insert(Arc::new(buffer))?)?;
    Ok(Kind::Ok)
}

pub(crate) fn data(c: &Caller, buffer: *mut raw::Buffer, size: *mut usize) -> *mut u8 {
    let parts = || -> Result<(*mut u8, usize), Fail> {
        let buffer = registry::get::<Buffer, _>(buffer)?;
        let parts = buffer.lock()?.as_raw_parts();
        Ok(parts)
    };
    let (ptr, len) = parts().unwrap_or((std::ptr::null_mut(), 0));
    if c.write_if(size, len).is_err() || len == 0 {
        return std::ptr::null_mut();
    }
    ptr
}

pub(crate) fn free(buffer: *mut raw::Buffer) {
    let Ok(buffer) = registry::remove::<Buffer, _>(buffer) else {
        return;
    };
    let memory = buffer.lock().ok().and_then(|mut buffer| buffer.take());
    if let Some(memory) = memory {
        recycle(memory);
    }
}
