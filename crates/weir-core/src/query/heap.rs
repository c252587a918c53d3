//! The heads of the sources of a merge, the least on top.
//!
//! A binary heap whose top is replaced in place: about log2 k comparisons for
//! an item of k interleaved sources, one or two while a run of one source
//! lasts. An entry may be stale, but only on the low side: its key is never
//! above what its source can still give. Whoever takes the top looks whether
//! it is stale first, so that nothing has to be found in the middle.

/// One source in the heap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The beginning of the first key, turned round for a descending one; 0 for
    /// what is below everything.
    pub(crate) key: u128,
    /// Index of the source.
    pub(crate) source: u32,
    /// Whether this is not an item but a promise: nothing lower will come.
    pub(crate) bound: bool,
}

/// The heap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heap(Vec<Entry>);

impl Heap {
    /// The least entry.
    pub(crate) fn top(&self) -> Option<Entry> {
        self.0.first().copied()
    }

    /// All entries, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, entry: Entry, less: impl Fn(&Entry, &Entry) -> bool) {
        self.0.push(entry);
        let mut at = self.0.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            let (Some(child), Some(above)) = (self.0.get(at), self.0.get(parent)) else {
                return;
            };
            if !less(child, above) {
                return;
            }
            self.0.swap(at, parent);
            at = parent;
        }
    }

    /// Puts an entry in the place of the top, or nothing.
    pub(crate) fn replace(&mut self, entry: Option<Entry>, less: impl Fn(&Entry, &Entry) -> bool) {
        let entry = match entry {
            Some(entry) => entry,
            None => match self.0.pop() {
                Some(last) if !self.0.is_empty() => last,
                _ => return,
            },
        };
        let entries = self.0.as_mut_slice();
        let mut at = 0;
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let Some(first) = entries.get(left) else {
                break;
            };
            let (child, lower) = match entries.get(right) {
                Some(second) if less(second, first) => (right, *second),
                _ => (left, *first),
            };
            if !less(&lower, &entry) {
                break;
            }
            if let Some(hole) = entries.get_mut(at) {
                *hole = lower;
            }
            at = child;
        }
        if let Some(hole) = entries.get_mut(at) {
            *hole = entry;
        }
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
