//! Shared bytes of pages, without copies.
//!
//! A page arrives as [`Bytes`], which owns its memory or borrows that of its owner
//! (`Bytes::from_owner`). Everything returned later is a span of the page and keeps the
//! page alive. When the last reference is dropped, on any thread, the memory returns to its
//! owner and the account of the query is updated.
//! Invariant: no payload byte is copied.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// Number of bytes of pages that are still referenced.
#[derive(Debug, Default)]
pub(crate) struct Account(AtomicU64);

impl Account {
    /// Returns the current number of bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

struct AccountedBytes {
    bytes: Bytes,
    account: Arc<Account>,
}

impl Drop for AccountedBytes {
    fn drop(&mut self) {
        let bytes = self.bytes.len() as u64;
        self.account.0.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// The shared bytes of a page. Cloning increments a reference count and copies nothing.
/// `Send` and `Sync`; may outlive its query.
#[derive(Clone)]
pub struct Buffer(Arc<AccountedBytes>);

impl Buffer {
    pub(crate) fn new(bytes: Bytes, account: &Arc<Account>) -> Self {
        account.0.fetch_add(bytes.len() as u64, Ordering::AcqRel);
        Self(Arc::new(AccountedBytes {
            bytes,
            account: Arc::clone(account),
        }))
    }

    /// Returns `len` bytes from `offset`; empty if they are not inside of the buffer (I8).
    pub(crate) fn span(&self, offset: u32, len: u32) -> &[u8] {
        let (offset, len) = (offset as usize, len as usize);
        self.get(offset..offset.saturating_add(len))
            .unwrap_or_default()
    }

    /// Returns whether both are the same memory.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}
