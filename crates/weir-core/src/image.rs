//! Memory of a program between two calls, in state mode `memory`.
//!
//! The image consists of pages. A page of zeros uses no memory. Clones share the pages that neither
//! has changed, because a snapshot clones the machine while writers wait.
//!
//! Invariant: no page of zeros is stored, so equal memories have equal images.

use std::ops::Range;
use std::sync::Arc;

/// Bytes of a page of memory, the unit of comparison and storage.
pub const IMAGE_PAGE_BYTES: usize = 4096;

/// Linear memory and mutable globals after the last committed call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The whole memory; empty before the first committed call.
    pub memory: ImageMemory,
    /// Mutable globals, in order of their index, as raw bits.
    pub globals: Vec<u64>,
}

/// A memory whose length is a multiple of the page size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageMemory {
    /// `None` is a page of zeros.
    pages: Vec<Option<Arc<[u8]>>>,
}

impl ImageMemory {
    /// A memory of `bytes` zeros, rounded down to whole pages.
    #[must_use]
    pub fn zeros(bytes: usize) -> Self {
        Self {
            pages: vec![None; bytes / IMAGE_PAGE_BYTES],
        }
    }

    /// Length in bytes, zeros included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len() * IMAGE_PAGE_BYTES
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The pages that are not all zeros, with their numbers, ascending.
    pub fn pages(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let pages = self.pages.iter().enumerate();
        pages.filter_map(|(number, page)| Some((number, page.as_deref()?)))
    }

    /// Copies the pages that are not all zeros to `memory`, which has the same length. Pages of
    /// zeros are not written.
    pub fn copy_to(&self, memory: &mut [u8]) {
        for (number, page) in self.pages() {
            let from = number * IMAGE_PAGE_BYTES;
            if let Some(to) = memory.get_mut(from..from + IMAGE_PAGE_BYTES) {
                to.copy_from_slice(page);
            }
        }
    }

    /// Restores the range `part` of `memory`, which has the same length as the image. O(part).
    pub fn restore(&self, part: Range<usize>, memory: &mut [u8]) {
        let mut at = part.start;
        while at < part.end {
            let (number, within) = (at / IMAGE_PAGE_BYTES, at % IMAGE_PAGE_BYTES);
            let end = part.end.min((number + 1) * IMAGE_PAGE_BYTES);
            let page = self.pages.get(number).and_then(|page| page.as_deref());
            if let Some(to) = memory.get_mut(at..end) {
                match page.and_then(|page| page.get(within..within + to.len())) {
                    Some(page) => to.copy_from_slice(page),
                    None => to.fill(0),
                }
            }
            at = end;
        }
    }

    /// Sets the length in bytes, rounded down to whole pages. New bytes are zeros.
    pub fn resize(&mut self, bytes: usize) {
        self.pages.resize(bytes / IMAGE_PAGE_BYTES, None);
    }

    /// Stores a page. Returns whether it differs from the old one.
    pub fn set_page(&mut self, number: usize, new: &[u8]) -> bool {
        let Some(page) = self.pages.get_mut(number) else {
            return false;
        };
        let is_zero = || new.iter().all(|byte| *byte == 0);
        match page {
            None if is_zero() => return false,
            Some(old) if **old == *new => return false,
            Some(_) if is_zero() => *page = None,
            Some(old) => match Arc::get_mut(old).filter(|old| old.len() == new.len()) {
                Some(old) => old.copy_from_slice(new),
                None => *old = Arc::from(new),
            },
            None => *page = Some(Arc::from(new)),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_zeros_are_not_stored_and_clones_do_not_change() {
        let (zeros, ones) = ([0; IMAGE_PAGE_BYTES], [1; IMAGE_PAGE_BYTES]);
        let mut memory = ImageMemory::zeros(4 * IMAGE_PAGE_BYTES);
        assert!(!memory.set_page(1, &zeros), "the page is already zero");
        assert!(memory.set_page(1, &ones) && memory.set_page(3, &ones));
        assert!(!memory.set_page(1, &ones));
        let before = memory.clone();
        assert!(memory.set_page(3, &zeros) && memory.set_page(1, &[2; IMAGE_PAGE_BYTES]));
        assert!(before.pages().eq([(1, &ones[..]), (3, &ones[..])]));
        assert_eq!(memory.pages().count(), 1);
        assert!(!memory.set_page(4, &ones), "there is no such page");
        let mut bytes = vec![9; 4 * IMAGE_PAGE_BYTES];
        before.restore(4000..8200, &mut bytes);
        assert!(bytes[..4000].iter().all(|byte| *byte == 9));
        assert!(bytes[4000..4096].iter().all(|byte| *byte == 0));
        assert!(bytes[4096..8192].iter().all(|byte| *byte == 1));
        assert!(bytes[8192..8200].iter().all(|byte| *byte == 0));
        assert!(bytes[8200..].iter().all(|byte| *byte == 9));
    }
}
