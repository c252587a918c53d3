//! A queue and an index that are cheap to clone, because a snapshot copies the machine while
//! writers wait. Clones share the chunks that neither side has changed since; a change copies one
//! chunk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::ids::ClientId;

/// Entries of a full chunk of the queue.
const CHUNK_ENTRIES: usize = 512;
/// Number of parts of the index.
const PARTS: usize = 256;

/// A queue with access by index.
#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    /// All chunks except the last are full.
    chunks: VecDeque<Arc<Vec<T>>>,
    /// Number of removed entries of the first chunk; fewer than it has.
    removed: usize,
    len: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            chunks: VecDeque::new(),
            removed: 0,
            len: 0,
        }
    }
}

impl<T: Clone> Queue<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        let at = self.removed + at;
        self.chunks.get(at / CHUNK_ENTRIES)?.get(at % CHUNK_ENTRIES)
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.get(0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.iter())
            .skip(self.removed)
    }

    pub(super) fn push_back(&mut self, entry: T) {
        if self
            .chunks
            .back()
            .is_none_or(|last| last.len() == CHUNK_ENTRIES)
        {
            self.chunks
                .push_back(Arc::new(Vec::with_capacity(CHUNK_ENTRIES)));
        }
        if let Some(last) = self.chunks.back_mut() {
            Arc::make_mut(last).push(entry);
            self.len += 1;
        }
    }

    /// Removes the first entry. Its memory is freed with the whole chunk.
    pub(super) fn drop_front(&mut self) {
        if self.len == 0 {
            return;
        }
        self.len -= 1;
        self.removed += 1;
        if self.removed == CHUNK_ENTRIES || self.len == 0 {
            self.chunks.pop_front();
            self.removed = 0;
        }
    }
}

/// Numbers by client id.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    parts: Vec<Arc<BTreeMap<ClientId, u64>>>,
}

fn part(client: ClientId) -> usize {
    client.0.iter().fold(0, |sum, byte| sum ^ byte).into()
}

impl Index {
    pub(super) fn get(&self, client: ClientId) -> Option<u64> {
        self.parts.get(part(client))?.get(&client).copied()
    }

    /// Sets the number of a client; returns the previous one.
    pub(super) fn insert(&mut self, client: ClientId, number: u64) -> Option<u64> {
        if self.parts.is_empty() {
            self.parts.resize_with(PARTS, Arc::default);
        }
        let part = self.parts.get_mut(part(client))?;
        Arc::make_mut(part).insert(client, number)
    }

    pub(super) fn remove(&mut self, client: ClientId) {
        if let Some(part) = self.parts.get_mut(part(client)) {
            Arc::make_mut(part).remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_behaves_like_a_deque() {
        let (mut queue, mut model) = (Queue::default(), VecDeque::new());
        let mut state = 1_u32;
        for n in 0..20_000_u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // The queue grows and shrinks to nothing in turn.
            let grows = n / 4_000 % 2 == 0;
            if (state >> 16).is_multiple_of(4) || !grows {
                queue.drop_front();
                model.pop_front();
            } else {
                queue.push_back(n);
                model.push_back(n);
            }
            assert_eq!((queue.len(), queue.front()), (model.len(), model.front()));
            let at = (state >> 8) as usize % (model.len() + 1);
            assert_eq!(queue.get(at), model.get(at));
        }
        queue.push_back(7);
        assert!(queue.iter().eq(model.iter().chain(&[7])));
    }

    #[test]
    fn a_clone_does_not_change() {
        let (mut queue, mut index) = (Queue::default(), Index::default());
        let id = |n: u64| ClientId(u128::from(n).to_be_bytes());
        for n in 0..2_000 {
            queue.push_back(n);
            index.insert(id(n), n);
        }
        let (before, numbers) = (queue.clone(), index.clone());
        queue.drop_front();
        queue.push_back(9_999);
        index.insert(id(5), 0);
        index.remove(id(6));
        assert!(before.iter().copied().eq(0..2_000));
        assert!((0..2_000).all(|n| numbers.get(id(n)) == Some(n)));
        assert_eq!((index.get(id(5)), index.get(id(6))), (Some(0), None));
        assert_eq!(index.get(id(7)), Some(7));
    }
}
