//! Ownership of sessions (docs/decisions/0045).
//!
//! Clients choose their client ids. If the server has identities, it passes another id to the
//! store: a hash of principal and client id. So no principal can use the nonces of another one,
//! even with its client id. Each principal also has a maximum number of sessions in the store.
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

pub(crate) mod keys;

/// Time without use after which a session no longer counts.
const IDLE: Duration = Duration::from_millis(SESSION_TTL_MS);
/// Error text for a principal that has its maximum number of sessions.
pub(crate) const SESSIONS_FULL: &str =
    "the principal has sessions_per_principal_max sessions of the last 24 hours";
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
    uses: HashMap<ClientId, SessionUse>,
    searched: Option<Instant>,
}

#[derive(Debug)]
struct SessionUse {
    /// Number of requests and connections that use it now.
    open: usize,
    /// When the last use ended.
    used: Instant,
}

impl SessionUse {
    fn is_expired(&self, now: Instant) -> bool {
        self.open == 0 && now.saturating_duration_since(self.used) >= IDLE
    }
}

/// Why a session cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionError {
    /// The session was used before the server had identities, so its owner is unknown.
    Expired,
    /// The principal has its maximum number of sessions.
    Full,
}

/// A session in use.
#[derive(Debug)]
pub(crate) struct SessionGuard {
    /// The client id in the store.
    pub(crate) client: ClientId,
    /// The table that counts the session, and the name of its principal; `None` if it is not
    /// counted.
    counted: Option<(Arc<Sessions>, String)>,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let Some((sessions, name)) = &self.counted else {
            return;
        };
        let mut principals = sessions.lock();
        let entry = principals.get_mut(name);
        if let Some(session) = entry.and_then(|entry| entry.uses.get_mut(&self.client)) {
            session.open = session.open.saturating_sub(1);
            session.used = Instant::now();
        }
    }
}

/// Returns the client id in the store for the session `client` of a principal. It is the first 16
/// bytes of SHA-256 over the name and the id, each after its length in 8 bytes. Without a
/// principal, the id is `client` itself. It is also `client` for the owner of the directory, who can
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
    ) -> Result<SessionGuard, SessionError> {
        let id = stored(principal, client);
        let last = last_nonce(id);
        if id != client && last == 0 && first.is_some_and(|first| first <= last_nonce(client)) {
            return Err(SessionError::Expired);
        }
        // The store refuses a new session with another first nonce.
        let may_start = last > 0 || first.is_none_or(|first| first == 1);
        self.acquire(principal, id, may_start, last_nonce)
    }

    /// As `enter`, for an id that already belongs to the principal.
    pub(crate) fn enter_own(
        self: &Arc<Self>,
        principal: &Principal,
        id: ClientId,
        last_nonce: impl Fn(ClientId) -> u64,
    ) -> Result<SessionGuard, SessionError> {
        self.acquire(principal, id, true, last_nonce)
    }

    fn acquire(
        self: &Arc<Self>,
        principal: &Principal,
        id: ClientId,
        may_start: bool,
        last_nonce: impl Fn(ClientId) -> u64,
    ) -> Result<SessionGuard, SessionError> {
        if id.is_none() || principal.name.is_empty() || principal.is_owner() || !may_start {
            return Ok(SessionGuard {
                client: id,
                counted: None,
            });
        }
        let name = &principal.name;
        let is_known = last_nonce(id) > 0;
        if !self.add_use(name, id, is_known) {
            // Sessions without a write are not in the store.
            let unused = self.unused(name);
            let unused = unused.filter(|id| last_nonce(*id) == 0).collect();
            self.remove(name, unused);
            if !self.add_use(name, id, is_known) {
                return Err(SessionError::Full);
            }
        }
        Ok(SessionGuard {
            client: id,
            counted: Some((Arc::clone(self), name.clone())),
        })
    }

    /// Counts one more use of the session. Returns false if the principal has its maximum number of
    /// sessions.
    fn add_use(&self, name: &str, id: ClientId, is_known: bool) -> bool {
        let now = Instant::now();
        let mut principals = self.lock();
        if !principals.contains_key(name) {
            principals.retain(|_, entry| {
                entry.uses.retain(|_, session| !session.is_expired(now));
                !entry.uses.is_empty()
            });
        }
        let entry = principals.entry(name.to_owned()).or_default();
        let is_allowed = is_known || entry.uses.len() < self.max;
        if !is_allowed && !entry.uses.contains_key(&id) {
            return false;
        }
        let session = entry
            .uses
            .entry(id)
            .or_insert(SessionUse { open: 0, used: now });
        session.open += 1;
        true
    }

    /// Returns the sessions of a principal that are not in use, and drops expired ones. Returns
    /// none if the last search was less than `SEARCH_INTERVAL` ago.
    fn unused(&self, name: &str) -> impl Iterator<Item = ClientId> + use<> {
        let now = Instant::now();
        let mut principals = self.lock();
        let entry = principals.get_mut(name).filter(|entry| {
            let searched = entry.searched;
            searched.is_none_or(|at| now.saturating_duration_since(at) >= SEARCH_INTERVAL)
        });
        let closed: Vec<ClientId> = entry.map_or_else(Vec::new, |entry| {
            entry.searched = Some(now);
            entry.uses.retain(|_, session| !session.is_expired(now));
            let closed = entry.uses.iter().filter(|(_, session)| session.open == 0);
            closed.map(|(id, _)| *id).collect()
        });
        closed.into_iter()
    }

    fn remove(&self, name: &str, unused: Vec<ClientId>) {
        let mut principals = self.lock();
        if let Some(entry) = principals.get_mut(name) {
            for id in unused {
                if entry.uses.get(&id).is_some_and(|session| session.open == 0) {
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
    fn a_principal_at_its_maximum_gets_a_session_when_one_is_unused() {
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
        // A session that the store already has is not counted again.
        drop(sessions.enter(&a, client(4), Some(2), |_| 1).unwrap());
        drop((one, two));
        let forget = |sessions: &Sessions| {
            for entry in sessions.lock().values_mut() {
                entry.searched = None;
            }
        };
        forget(&sessions);
        // Sessions with a write remain counted.
        let full = sessions.enter(&a, client(3), Some(1), |id| {
            u64::from(id != stored(&a, client(3)) && id != client(3))
        });
        assert_eq!(full.unwrap_err(), SessionError::Full);
        forget(&sessions);
        drop(sessions.enter(&a, client(3), Some(1), none).unwrap());
    }

    #[test]
    fn a_session_without_a_principal_is_expired_for_principals() {
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
