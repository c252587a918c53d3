//! A session that is cheap to clone after a freeze, because a snapshot clones the machine while
//! writers wait. A session with all its outcomes may have a megabyte, and there may be thousands.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::Session;

/// A session. Its first change after a freeze copies it, unless no clone uses it any more.
#[derive(Clone, Debug)]
pub(super) enum SharedSession {
    /// No clone shares it, so that a change needs no reference count.
    Own(Session),
    /// Clones may share it.
    Shared(Arc<Session>),
}

impl SharedSession {
    /// Lets later clones share the session until it changes.
    pub(super) fn freeze(&mut self) {
        if let Self::Own(session) = self {
            *self = Self::Shared(Arc::new(std::mem::take(session)));
        }
    }
}

impl Default for SharedSession {
    fn default() -> Self {
        Self::Own(Session::default())
    }
}

impl Deref for SharedSession {
    type Target = Session;

    #[inline]
    fn deref(&self) -> &Session {
        match self {
            Self::Own(session) => session,
            Self::Shared(session) => session,
        }
    }
}

impl DerefMut for SharedSession {
    #[inline]
    fn deref_mut(&mut self) -> &mut Session {
        if let Self::Shared(shared) = self {
            let session = match Arc::get_mut(shared) {
                Some(session) => std::mem::take(session),
                None => Session::clone(shared),
            };
            *self = Self::Own(session);
        }
        match self {
            Self::Own(session) => session,
            Self::Shared(_) => unreachable!("the session is not shared after its copy"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::super::SessionTable;
    use super::*;
    use crate::ids::ClientId;

    #[test]
    fn a_clone_of_a_frozen_table_shares_its_sessions_until_they_change() {
        let client = ClientId([7; 16]);
        let mut table = SessionTable::default();
        table.sessions.entry(client).or_default().last = 5;
        table.freeze();
        let clone = table.clone();
        let session = |table: &SessionTable| -> *const Session {
            let session: &Session = table.sessions.get(&client).unwrap();
            session
        };
        assert!(std::ptr::eq(session(&table), session(&clone)));
        table.sessions.get_mut(&client).unwrap().last = 6;
        assert_eq!((table.last_nonce(client), clone.last_nonce(client)), (6, 5));
        drop(clone);
        table.freeze();
        table.sessions.get_mut(&client).unwrap().last = 7;
        assert_eq!(table.last_nonce(client), 7);
    }
}
