//! An array in pages that clones share after a freeze. Freezing and cloning touch each page once,
//! but none of its elements. The first change of a shared page copies only that page. If no clone
//! uses the page any more, nothing is copied.

use std::sync::Arc;

/// Elements of a page. A page is small enough to be copied in microseconds, and large enough that
/// the list of pages stays in the cache.
const PAGE: usize = 1 << 12;

#[derive(Clone, Debug)]
struct Page<T> {
    /// Elements that no clone shares, so that a change needs no reference count. Empty if `shared`
    /// is set.
    own: Vec<T>,
    shared: Option<Arc<Vec<T>>>,
}

impl<T: Copy> Page<T> {
    #[inline]
    fn get(&self) -> &[T] {
        self.shared.as_deref().unwrap_or(&self.own)
    }

    #[inline]
    fn get_mut(&mut self) -> &mut Vec<T> {
        if self.shared.is_some() {
            self.unshare();
        }
        &mut self.own
    }

    #[cold]
    #[inline(never)]
    fn unshare(&mut self) {
        if let Some(shared) = self.shared.take() {
            self.own = Arc::try_unwrap(shared).unwrap_or_else(|shared| shared.to_vec());
        }
    }
}

/// The array. Access by index takes O(1). Elements are never removed.
#[derive(Clone, Debug)]
pub(super) struct Pages<T> {
    /// All pages except the last are full.
    pages: Vec<Page<T>>,
    len: usize,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self {
            pages: Vec::new(),
            len: 0,
        }
    }
}

impl<T: Copy> Pages<T> {
    /// An array of `len` copies of `element`.
    pub(super) fn filled(element: T, len: usize) -> Self {
        let page = |at| Page {
            own: vec![element; PAGE.min(len - at)],
            shared: None,
        };
        Self {
            pages: (0..len).step_by(PAGE).map(page).collect(),
            len,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.pages.get(at / PAGE)?.get().get(at % PAGE)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        let page = self.pages.get_mut(at / PAGE)?;
        page.get_mut().get_mut(at % PAGE)
    }

    pub(super) fn push(&mut self, element: T) {
        if self.len.is_multiple_of(PAGE) {
            self.pages.push(Page {
                // The first page grows with its elements, because most arrays are small.
                own: Vec::with_capacity(if self.len == 0 { 0 } else { PAGE }),
                shared: None,
            });
        }
        if let Some(last) = self.pages.last_mut() {
            last.get_mut().push(element);
            self.len += 1;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(Page::get)
    }

    /// Lets later clones share all pages until a page is changed. An array of one page is not
    /// frozen: a copy of it is as cheap.
    pub(super) fn freeze(&mut self) {
        if self.pages.len() < 2 {
            return;
        }
        for page in &mut self.pages {
            if page.shared.is_none() {
                page.shared = Some(Arc::new(std::mem::take(&mut page.own)));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_one_clone_does_not_change_another() {
        let mut pages = Pages::default();
        for n in 0..5 * PAGE + 7 {
            pages.push(n);
        }
        pages.freeze();
        let mut other = pages.clone();
        let again = other.clone();
        for at in [0, PAGE, PAGE + 1, 5 * PAGE + 6] {
            *pages.get_mut(at).unwrap() = 0;
            *other.get_mut(at).unwrap() += 1;
        }
        pages.push(1);
        assert!(again.iter().copied().eq(0..5 * PAGE + 7));
        assert_eq!((pages.len(), other.len()), (5 * PAGE + 8, 5 * PAGE + 7));
        let changed = |pages: &Pages<usize>| {
            let found = pages.iter().enumerate().filter(|(at, n)| at != *n);
            found.map(|(at, n)| (at, *n)).collect::<Vec<_>>()
        };
        let (one, last) = (PAGE + 1, 5 * PAGE + 6);
        let mine = [(PAGE, 0), (one, 0), (last, 0), (last + 1, 1)];
        assert_eq!(changed(&pages), mine);
        let theirs = [(0, 1), (PAGE, one), (one, one + 1), (last, last + 1)];
        assert_eq!(changed(&other), theirs);
        assert_eq!(pages.get(last + 2), None);
    }

    #[test]
    fn a_page_without_other_references_is_not_copied() {
        let mut pages = Pages::filled(7_u64, 3 * PAGE);
        let place = |pages: &Pages<u64>, at: usize| std::ptr::from_ref(pages.get(at).unwrap());
        let before = [place(&pages, 0), place(&pages, PAGE)];
        pages.freeze();
        let other = pages.clone();
        assert_eq!(place(&other, 0), before[0]);
        *pages.get_mut(0).unwrap() = 8;
        drop(other);
        *pages.get_mut(PAGE).unwrap() = 8;
        assert_ne!(place(&pages, 0), before[0]);
        assert_eq!(place(&pages, PAGE), before[1]);
        assert_eq!(pages.iter().sum::<u64>(), 7 * 3 * PAGE as u64 + 2);
    }
}
