//! HELLO and its response.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use weir_core::{ClientId, ErrorCode, Outcome, OutcomeRun, Outcomes};
use weir_protocol::{Hello, HelloOk, Message, Packet, TEXT_BYTES_MAX, VERSION, WINDOW_MAX};
use weir_store::{Durability, Store};

use super::Connection;
use crate::native::refuse::{self, Refused};
use crate::native::{SessionOwner, WINDOW_BYTES};
use crate::phase::Phase;
use crate::sessions::{SESSIONS_FULL, SessionError};

/// Name and version of this server.
const AGENT: &str = concat!("weir-server/", env!("CARGO_PKG_VERSION"));

/// Milliseconds after which a client should retry if its stored outcomes exceed the free memory
/// budget.
const MEMORY_RETRY_MS: u64 = 200;

/// Milliseconds after which a client should retry if its principal has its maximum number of
/// sessions.
const SESSIONS_RETRY_MS: u64 = 60_000;

/// Supported features in addition to version 1.
pub(super) const FEATURES: &[u8] = b"groups query chain query-latest consistency";

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Responds to HELLO; a refusal closes the connection.
    pub(super) async fn hello(&mut self, hello: &Hello<'_>) -> Result<(), Refused> {
        let shared = Arc::clone(&self.port.shared);
        if shared.phase() >= Phase::Draining {
            return Err(Refused::plain(ErrorCode::Draining));
        }
        let mut versions = hello.versions.split(|&byte| byte == b' ');
        if !hello.versions.is_empty() && !versions.any(|word| word == VERSION.as_bytes()) {
            let mut refused = Refused::plain(ErrorCode::Unsupported);
            refused.message.versions = VERSION.as_bytes();
            return Err(refused);
        }
        self.authenticate(hello.token)?;
        self.wants_received = hello.received;
        let cluster = shared.cluster.as_deref();
        if let Some(node) = cluster
            && !hello.client.is_none()
        {
            // If this node does not lead, its state of a session may be stale.
            let confirmed = Box::pin(node.lead()).await;
            confirmed.map_err(|error| refuse::of_store(&error))?;
        }
        let store = shared.store.identity().store_id;
        let client = self.enter(hello)?;
        let last = shared.store.last_nonce(client);
        let stored = match self.resume(hello, client, store, last)? {
            Some(first) => self.stored_outcomes(client, first, last).await?,
            None => Vec::new(),
        };
        let window = hello.window.unwrap_or(WINDOW_MAX).clamp(1, WINDOW_MAX);
        self.state
            .open(hello.client, last + 1, window, WINDOW_BYTES);
        let level = level(shared.store.durability());
        let failure = shared.store.failure().unwrap_or_default();
        let end = failure.floor_char_boundary(TEXT_BYTES_MAX);
        let limits = shared.store.limits();
        let answer = HelloOk {
            version: VERSION.as_bytes(),
            store,
            node: cluster.map_or(store, |node| node_id(node.number())),
            level: level.as_bytes(),
            volatile: shared.store.volatile().unwrap_or_default().as_bytes(),
            failure: failure.get(..end).unwrap_or_default().as_bytes(),
            next: last + 1,
            window,
            window_bytes: WINDOW_BYTES as u64,
            applied: shared.store.applied().0,
            term: cluster.map_or(1, |node| node.config().0),
            key_bytes_max: limits.key_bytes_max as u64,
            value_bytes_max: limits.value_bytes_max as u64,
            idle_ms: u64::try_from(self.idle.as_millis()).unwrap_or(u64::MAX),
            features: FEATURES,
            agent: AGENT.as_bytes(),
            client: Some(client).filter(|client| *client != hello.client),
        };
        self.send(&Packet::new(Message::HelloOk(answer)));
        self.send_config();
        if !stored.is_empty() {
            self.send(&Packet::new(Message::Committed { lines: &stored }));
        }
        Ok(())
    }

    /// Sends CONFIG: the nodes of the cluster, and which one leads.
    pub(super) fn send_config(&mut self) {
        let (term, leader, nodes) = if let Some(node) = &self.port.shared.cluster {
            let (term, leader, nodes) = node.config();
            (term, leader.map(node_id), nodes)
        } else {
            let store = self.port.shared.store.identity().store_id;
            (1, Some(store), String::new())
        };
        self.send(&Packet::new(Message::Config {
            term,
            leader,
            nodes: nodes.as_bytes(),
        }));
    }

    /// Enters the session, and returns its client id in the store.
    fn enter(&mut self, hello: &Hello<'_>) -> Result<ClientId, Refused> {
        let shared = &self.port.shared;
        let last_nonce = |client| shared.store.last_nonce(client);
        let sessions = &shared.sessions;
        let session = sessions.enter(&self.principal, hello.client, hello.resume, last_nonce);
        let session = session.map_err(|error| match error {
            SessionError::Expired => {
                let mut refused = Refused::plain(ErrorCode::SessionExpired);
                refused.message.expected = Some(1);
                refused
            }
            SessionError::Full => {
                let mut refused = Refused::new(ErrorCode::Busy, SESSIONS_FULL);
                let max = shared.config.sessions_per_principal_max;
                refused.message.limit = Some(max as u64);
                refused.message.retry_ms = Some(SESSIONS_RETRY_MS);
                refused
            }
        })?;
        let client = session.client;
        self.session = Some(session);
        Ok(client)
    }

    /// Makes this connection the owner of the session. Returns the first nonce whose outcomes the
    /// client requests again, if any.
    fn resume(
        &mut self,
        hello: &Hello<'_>,
        client: ClientId,
        store: [u8; 16],
        last: u64,
    ) -> Result<Option<u64>, Refused> {
        if client.is_none() {
            return Ok(None);
        }
        let expired = || {
            let mut refused = Refused::plain(ErrorCode::SessionExpired);
            refused.message.expected = Some(last + 1);
            refused
        };
        if hello.store.is_some_and(|id| id != store) {
            return Err(expired());
        }
        let first = match hello.resume {
            Some(first) if first > last + 1 => return Err(expired()),
            Some(first) if first <= last => Some(first),
            _ => None,
        };
        let shared = &self.port.shared;
        let is_stored = |nonce| shared.store.outcome(client, nonce).is_some();
        if first.is_some_and(|first| !is_stored(first)) {
            return Err(expired());
        }
        let owner = SessionOwner {
            connection: self.number,
            superseded: Arc::clone(&self.superseded),
        };
        self.port.claim(client, owner);
        Ok(first)
    }

    /// Returns the stored outcomes of these nonces. They are sent as one packet, so the send buffer
    /// must have memory for them.
    async fn stored_outcomes(
        &mut self,
        client: ClientId,
        first: u64,
        last: u64,
    ) -> Result<Vec<u8>, Refused> {
        let lines = self.blocking(move |store| Ok(format_outcomes(store, client, first, last)));
        let lines = lines.await?;
        if self.out.admit(lines.len()) {
            return Ok(lines);
        }
        self.port.release(client, self.number);
        let mut refused = Refused::exhausted(self.port.shared.admission.answers.exhausted());
        refused.message.retry_ms = Some(MEMORY_RETRY_MS);
        Err(refused)
    }
}

/// The id of a node of a cluster: its number.
fn node_id(number: u64) -> [u8; 16] {
    u128::from(number).to_be_bytes()
}

/// Formats the stored outcomes, with equal consecutive outcomes in one line.
fn format_outcomes(store: &Store, client: ClientId, first: u64, last: u64) -> Vec<u8> {
    // `Outcomes` merges only committed outcomes, not replayed ones.
    let mut outcomes = Outcomes::default();
    for nonce in first..=last {
        if let Some(commit) = store.outcome(client, nonce) {
            outcomes.push(Outcome::Committed(commit));
        }
    }
    let mut lines = Vec::new();
    for run in outcomes.runs() {
        let Some(commit) = run.outcome.commit() else {
            continue;
        };
        if !lines.is_empty() {
            lines.push(b'\n');
        }
        let run = OutcomeRun {
            count: run.count,
            outcome: Outcome::Replayed(commit.clone()),
        };
        weir_protocol::write_outcome(&mut lines, commit.nonce, &run);
    }
    lines
}

fn level(durability: Durability) -> String {
    match durability {
        Durability::Interval(interval) => format!("interval {}", interval.as_millis()),
        other => other.name().to_owned(),
    }
}
