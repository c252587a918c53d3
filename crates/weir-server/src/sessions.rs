//! Ownership of sessions (docs/decisions/0045).
//!
//! Clients choose their client ids. If principals are known, the store gets another id: a hash of
//! principal and client id. So no principal can use the nonces of another one, even with its client
//! id. Each principal also has a maximum number of sessions in the store.
//!
//! Uses are counted since the start of the server. An older session counts from its next use.
//!
//! Invariant: the store is never called under the lock.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use weir_core::ClientId;
use weir_core::limits::SESSION_TTL_MS;

use crate::security::Principal;

/// Time without use after which a session no longer counts.
const IDLE: Duration = Duration::from_millis(SESSION_TTL_MS);
/// Error text for a principal that has its maximum number of sessions.
pub(crate) const SESSIONS_FULL: &str =
    "this principal has as many sessions as it may have within a day";
/// Shortest interval between two searches for unused sessions of a principal.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// The sessions of all principals.
#[derive(Debug)]
pub(crate) struct Sessions {
    /// Maximum number of sessions of one principal.
    max: usize,
    principals: Mutex<HashMap<String, PrincipalSessions>>,
}

/// The sessions of one principal.
#[derive(Debug, Default)]
struct PrincipalSessions {
    uses: HashMap<ClientId, Use>,
    searched: Option<Instant>,
}

#[derive(Debug)]
struct Use {
    /// Number of requests and connections that use it now.
    open: usize,
    /// When the last use ended.
    used: Instant,
}

impl Use {
    fn is_over(&self, now: Instant) -> bool {
        self.open == 0 && now.saturating_duration_since(self.used) >= IDLE
    }
}

/// Why a session cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionError {
    /// The session was used before principals were known, so its owner is not known.
    Expired,
    /// The principal has its maximum number of sessions.
    Full,
}

/// A session in use.
#[derive(Debug)]
pub(crate) struct InUse {
    /// The client id in the store.
    pub(crate) client: ClientId,
    /// The counter of the session and the name of its principal; `None` if it is not counted.
    counted: Option<(Arc<Sessions>, String)>,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let Some((sessions, name)) = &self.counted else {
            return;
        };
        let mut principals = sessions.lock();
        let entry = principals.get_mut(name);
        if let Some(one) = entry.and_then(|entry| entry.uses.get_mut(&self.client)) {
            one.open = one.open.saturating_sub(1);
            one.used = Instant::now();
        }
    }
}

/// Returns the client id in the store for the session `client` of a principal. It is the first 16
/// bytes of SHA-256 over the name and the id, each after its length in 8 bytes. Without a
/// principal, the id is `client` itself. For the owner of the directory, too, because the owner can
/// access the files anyway.
pub(crate) fn stored(principal: &Principal, client: ClientId) -> ClientId {
    if client.is_none() || principal.name.is_empty() || principal.is_owner() {
        return client;
    }
    let mut hash = Sha256::new();
    for part in [principal.name.as_bytes(), &client.0] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut id = [0_u8; 16];
    let hash = hash.finalize();
    id.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
    ClientId(id)
}

impl Sessions {
    /// Allows at most `max` sessions for each principal.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            principals: Mutex::default(),
        }
    }

    /// Starts a use of the session that `principal` calls `client`. `first` is the lowest nonce
    /// that the request names, if any. `last_nonce` returns the last nonce of an id in the store.
    pub(crate) fn enter(
        self: &Arc<Self>,
        principal: &Principal,
        client: ClientId,
        first: Option<u64>,
        last_nonce: impl Fn(ClientId) -> u64,
    ) -> Result<InUse, SessionError> {
        let id = stored(principal, client);
        let last = last_nonce(id);
        if id != client && last == 0 && first.is_some_and(|first| first <= last_nonce(client)) {
            return Err(SessionError::Expired);
        }
        // The store refuses a new session with another first nonce.
        let begins = last > 0 || first.is_none_or(|first| first == 1);
        self.count(principal, id, begins, last_nonce)
    }

    /// As `enter`, for an id that already belongs to the principal.
    pub(crate) fn enter_own(
        self: &Arc<Self>,
        principal: &Principal,
        id: ClientId,
        last_nonce: impl Fn(ClientId) -> u64,
    ) -> Result<InUse, SessionError> {
        self.count(principal, id, true, last_nonce)
    }

    fn count(
        self: &Arc<Self>,
        principal: &Principal,
        id: ClientId,
        begins: bool,
        last_nonce: impl Fn(ClientId) -> u64,
    ) -> Result<InUse, SessionError> {
        if id.is_none() || principal.name.is_empty() || principal.is_owner() || !begins {
            return Ok(InUse {
                client: id,
                counted: None,
            });
        }
        let name = &principal.name;
        let is_known = last_nonce(id) > 0;
        if !self.take(name, id, is_known) {
            // Sessions without a write occupy no place in the store.
            let unused = self.closed(name);
            let unused = unused.filter(|id| last_nonce(*id) == 0).collect();
            self.forget(name, unused);
            if !self.take(name, id, is_known) {
                return Err(SessionError::Full);
            }
        }
        Ok(InUse {
            client: id,
            counted: Some((Arc::clone(self), name.clone())),
        })
    }

    /// Counts one more use of the session. Returns false if the principal has its maximum number of
    /// sessions.
    fn take(&self, name: &str, id: ClientId, is_known: bool) -> bool {
        let now = Instant::now();
        let mut principals = self.lock();
        if !principals.contains_key(name) {
            principals.retain(|_, entry| {
                entry.uses.retain(|_, one| !one.is_over(now));
                !entry.uses.is_empty()
            });
        }
        let entry = principals.entry(name.to_owned()).or_default();
        let has_room = is_known || entry.uses.len() < self.max;
        if !has_room && !entry.uses.contains_key(&id) {
            return false;
        }
        let one = entry.uses.entry(id).or_insert(Use { open: 0, used: now });
        one.open += 1;
        true
    }

    /// Returns the sessions of a principal that are not in use, and drops expired ones. Returns
    /// none if the last search was less than `SEARCH_INTERVAL` ago.
    fn closed(&self, name: &str) -> impl Iterator<Item = ClientId> + use<> {
        let now = Instant::now();
        let mut principals = self.lock();
        let entry = principals.get_mut(name).filter(|entry| {
            let searched = entry.searched;
            searched.is_none_or(|at| now.saturating_duration_since(at) >= SEARCH_INTERVAL)
        });
        let closed: Vec<ClientId> = entry.map_or_else(Vec::new, |entry| {
            entry.searched = Some(now);
            entry.uses.retain(|_, one| !one.is_over(now));
            let closed = entry.uses.iter().filter(|(_, one)| one.open == 0);
            closed.map(|(id, _)| *id).collect()
        });
        closed.into_iter()
    }

    fn forget(&self, name: &str, unused: Vec<ClientId>) {
        let mut principals = self.lock();
        if let Some(entry) = principals.get_mut(name) {
            for id in unused {
                if entry.uses.get(&id).is_some_and(|one| one.open == 0) {
                    entry.uses.remove(&id);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, PrincipalSessions>> {
        self.principals.lock()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]
    use super::*;

    fn principal(name: &str) -> Principal {
        let mut principal = Principal::default();
        name.clone_into(&mut principal.name);
        principal
    }

    fn client(n: u8) -> ClientId {
        ClientId([n; 16])
    }

    #[test]
    fn an_id_depends_on_principal_and_client() {
        let [a, b] = ["a", "b"].map(principal);
        assert_ne!(stored(&a, client(1)), stored(&b, client(1)));
        assert_ne!(stored(&a, client(1)), stored(&a, client(2)));
        assert_eq!(stored(&principal(""), client(1)), client(1));
        assert_eq!(stored(&a, ClientId::NONE), ClientId::NONE);
        // Computed as in docs/formats/native.md.
        let id = stored(&principal("loader"), client(0x11));
        assert_eq!(id.to_string(), "a4a4797f3a49f5a96d18282b2cdf57e8");
    }

    #[test]
    fn a_share_is_full_until_something_of_it_is_over() {
        let sessions = Arc::new(Sessions::new(2));
        let a = principal("a");
        let none = |_| 0;
        let [one, two] = [1, 2].map(|n| sessions.enter(&a, client(n), Some(1), none).unwrap());
        let full = sessions.enter(&a, client(3), Some(1), none);
        assert_eq!(full.unwrap_err(), SessionError::Full);
        // Allowed: a session again, a later nonce of an unknown session, other principals.
        drop(sessions.enter(&a, client(2), Some(1), none).unwrap());
        drop(sessions.enter(&a, client(3), Some(2), none).unwrap());
        drop(
            sessions
                .enter(&principal("b"), client(3), None, none)
                .unwrap(),
        );
        drop(
            sessions
                .enter(&principal(""), client(3), None, none)
                .unwrap(),
        );
        // A session that the store already has needs no new place.
        drop(sessions.enter(&a, client(4), Some(2), |_| 1).unwrap());
        drop((one, two));
        let forget = |sessions: &Sessions| {
            for entry in sessions.lock().values_mut() {
                entry.searched = None;
            }
        };
        forget(&sessions);
        // Sessions with a write keep their place.
        let full = sessions.enter(&a, client(3), Some(1), |id| {
            u64::from(id != stored(&a, client(3)) && id != client(3))
        });
        assert_eq!(full.unwrap_err(), SessionError::Full);
        forget(&sessions);
        drop(sessions.enter(&a, client(3), Some(1), none).unwrap());
    }

    #[test]
    fn a_session_of_nobody_is_not_begun_again() {
        let sessions = Arc::new(Sessions::new(2));
        let known = |id| if id == client(1) { 7 } else { 0 };
        let enter = |first| sessions.enter(&principal("a"), client(1), first, known);
        assert_eq!(enter(Some(7)).unwrap_err(), SessionError::Expired);
        assert_eq!(enter(Some(1)).unwrap_err(), SessionError::Expired);
        assert!(enter(None).is_ok());
        assert!(
            sessions
                .enter(&principal(""), client(1), Some(7), known)
                .is_ok()
        );
    }
}
