//! Room for what a client sends or takes at leisure: little of it is free, the
//! rest comes out of budgets that all connections share.
//!
//! What must never happen here: a wait without an end.

use std::time::Duration;

use bytes::Bytes;

use crate::limits::admission::{Admission, Permit};

/// Bytes that every request and every answer may have.
pub(crate) const SMALL_BYTES: usize = 256 << 10;
/// How often, and with which pause, somebody asks who found no room.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Nobody gave room back in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// What a body has of the budget for bodies; given back when dropped.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    /// None: there is no budget.
    admission: Option<&'a Admission>,
    taken: usize,
}

impl<'a> Room<'a> {
    pub(crate) fn new(admission: &'a Admission) -> Self {
        Self {
            admission: Some(admission),
            taken: 0,
        }
    }

    /// Without a budget.
    pub(crate) fn free() -> Self {
        Self {
            admission: None,
            taken: 0,
        }
    }

    /// Whether others may wait for it.
    pub(crate) fn is_held(&self) -> bool {
        self.taken > 0
    }

    /// Room for so many bytes in all, from now on.
    pub(crate) async fn cover(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let Some(admission) = self.admission else {
            return Ok(());
        };
        let bytes = if bytes > SMALL_BYTES { bytes } else { 0 };
        if bytes <= self.taken {
            admission.give_body(self.taken - bytes);
            self.taken = bytes;
            return Ok(());
        }
        for _ in 0..TRIES {
            if admission.take_body(bytes - self.taken) {
                self.taken = bytes;
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(NoRoom)
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Some(admission) = self.admission {
            admission.give_body(self.taken);
        }
    }
}

/// What a page takes while it is made; given back when dropped.
#[derive(Debug)]
pub(crate) struct Making {
    admission: Admission,
    taken: Vec<Permit>,
    bytes: usize,
}

impl Making {
    pub(crate) fn new(admission: &Admission) -> Self {
        Self {
            admission: admission.clone(),
            taken: Vec::new(),
            bytes: SMALL_BYTES,
        }
    }

    /// Whether there is room for so many bytes in all; false: the page ends.
    pub(crate) fn covers(&mut self, bytes: usize) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else {
            return true;
        };
        let more = more.next_multiple_of(SMALL_BYTES);
        let Some(permit) = self.admission.admit_answer(more) else {
            return false;
        };
        self.taken.push(permit);
        self.bytes += more;
        true
    }
}

/// Bytes of an answer with the room that they take.
struct Held {
    bytes: Bytes,
    _room: Permit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// An answer that takes room until the last of it is dropped, if it is a large
/// one.
pub(crate) async fn hold(admission: &Admission, bytes: Bytes) -> Result<Bytes, NoRoom> {
    if bytes.len() <= SMALL_BYTES {
        return Ok(bytes);
    }
    for _ in 0..TRIES {
        if let Some(room) = admission.admit_answer(bytes.len()) {
            let held = Held { bytes, _room: room };
            return Ok(Bytes::from_owner(held));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(NoRoom)
}

#[cfg(test)]
mod tests {
    use super::{Room, SMALL_BYTES, hold};
    use crate::limits::admission::{ANSWERS_BYTES_MAX, Admission, BODIES_BYTES_MAX};

    fn run<T>(test: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build();
        runtime.map_or_else(|error| panic!("{error}"), |runtime| runtime.block_on(test))
    }

    #[test]
    fn what_is_large_takes_room_and_gives_it_back() {
        run(async {
            let admission = Admission::default();
            let mut room = Room::new(&admission);
            assert_eq!(room.cover(SMALL_BYTES).await, Ok(()));
            assert!(!room.is_held());
            assert_eq!(room.cover(SMALL_BYTES + 1).await, Ok(()));
            assert!(room.is_held());
            assert!(!admission.take_body(BODIES_BYTES_MAX));
            drop(room);
            assert!(admission.take_body(BODIES_BYTES_MAX));
            admission.give_body(BODIES_BYTES_MAX);
            let large = vec![0; SMALL_BYTES + 1];
            let answer = hold(&admission, large.into()).await;
            let part = answer.map(|bytes| bytes.slice(5..9));
            assert!(admission.admit_answer(ANSWERS_BYTES_MAX).is_none());
            drop(part);
            assert!(admission.admit_answer(ANSWERS_BYTES_MAX).is_some());
        });
    }
}
