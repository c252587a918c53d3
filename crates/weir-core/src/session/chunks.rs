//! A queue and an index that are cheap to clone, because a snapshot copies the machine while
//! writers wait. Clones share the pieces that neither side has changed since; a change copies one
//! piece.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::ids::ClientId;

/// Entries of a piece of the queue.
const PIECE: usize = 512;
/// Number of parts of the index.
const PARTS: usize = 256;

/// A queue with access by index.
#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    /// All pieces except the last are full.
    pieces: VecDeque<Arc<Vec<T>>>,
    /// Number of removed entries of the first piece; fewer than it has.
    gone: usize,
    len: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            pieces: VecDeque::new(),
            gone: 0,
            len: 0,
        }
    }
}

impl<T: Clone> Queue<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        let at = self.gone + at;
        self.pieces.get(at / PIECE)?.get(at % PIECE)
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.get(0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces
            .iter()
            .flat_map(|piece| piece.iter())
            .skip(self.gone)
    }

    pub(super) fn push_back(&mut self, entry: T) {
        if self.pieces.back().is_none_or(|last| last.len() == PIECE) {
            self.pieces.push_back(Arc::new(Vec::with_capacity(PIECE)));
        }
        if let Some(last) = self.pieces.back_mut() {
            Arc::make_mut(last).push(entry);
            self.len += 1;
        }
    }

    /// Removes the first entry. Its memory is freed with the whole piece.
    pub(super) fn drop_front(&mut self) {
        if self.len == 0 {
            return;
        }
        self.len -= 1;
        self.gone += 1;
        if self.gone == PIECE || self.len == 0 {
            self.pieces.pop_front();
            self.gone = 0;
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
    fn a_queue_is_one_whatever_comes_and_goes() {
        let (mut queue, mut model) = (Queue::default(), VecDeque::new());
        let mut state = 1_u32;
        for n in 0..20_000_u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // The queue grows for a while, then shrinks to nothing, and so on.
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
    fn a_clone_stays_as_it_was() {
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
