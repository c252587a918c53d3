//! Sessions and idempotency keys, which make writes safe to retry.
//!
//! Invariant: an idempotency key has at most one request in flight, and identifies only one
//! request.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use weir_core::intention::ONCE;
use weir_core::{ClientId, ErrorCode};

use super::propose::refused;
use crate::http::head::FieldName;
use crate::http::problem::{Kind, Problem};
use crate::http::query::offset_of;
use crate::limits::{IDEMPOTENCY_KEY_MAX, KEYS_FULL_RETRY_MS};
use crate::queued_write::QueuedWrite;
use crate::resources::context::{Call, Edge, KeyInFlight};
use crate::sessions::{SESSIONS_FULL, SessionError, SessionGuard};

/// The session of a write that is executed at most once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub(crate) client: ClientId,
    pub(crate) nonce: u64,
    pub(crate) fingerprint: Option<u64>,
    /// Held until the response and the verdict.
    pub(crate) key_in_flight: Option<Arc<KeyInFlight>>,
    /// The session while it is in use. Held until the response and the verdict.
    pub(crate) in_use: Option<Arc<SessionGuard>>,
}

impl Session {
    /// Parses `Weir-Client` with `Weir-Nonce`, or `Idempotency-Key`.
    pub(crate) fn read(edge: &Arc<Edge>, call: &Call, body: &[u8]) -> Result<Self, Problem> {
        let head = &call.head;
        let fields = [
            FieldName::WeirClient,
            FieldName::WeirNonce,
            FieldName::IdempotencyKey,
        ];
        let [client, nonce, key] = fields.map(|known| head.raw(known));
        if fields.iter().any(|known| head.is_repeated(*known)) {
            return Err(Problem::bad(
                "Weir-Client, Weir-Nonce and Idempotency-Key must occur only once",
            ));
        }
        match (client, nonce, key) {
            (None, None, None) => Ok(Self::default()),
            (Some(client), Some(nonce), None) => {
                let client = read_client(client).ok_or_else(|| {
                    Problem::bad("Weir-Client must be 32 hexadecimal digits, not all 0")
                })?;
                let nonce = std::str::from_utf8(nonce)
                    .ok()
                    .and_then(offset_of)
                    .filter(|nonce| (1..ONCE).contains(nonce));
                let nonce =
                    nonce.ok_or_else(|| Problem::bad("Weir-Nonce must be a number from 1"))?;
                let sessions = &edge.shared.sessions;
                let last_nonce = |id| edge.shared.store.last_nonce(id);
                let session = sessions.enter(&call.principal, client, Some(nonce), last_nonce);
                let session = session.map_err(|error| session_problem(edge, error, nonce))?;
                Ok(Self {
                    client: session.client,
                    nonce,
                    in_use: Some(Arc::new(session)),
                    ..Self::default()
                })
            }
            (None, None, Some(key)) => Self::from_key(edge, call, key, body),
            _ => Err(Problem::bad(
                "a write needs Weir-Client and Weir-Nonce together, or an Idempotency-Key alone",
            )),
        }
    }

    /// Parses the session of a request with several intentions in sequence, each with its own
    /// nonce.
    pub(crate) fn counted(edge: &Arc<Edge>, call: &Call, body: &[u8]) -> Result<Self, Problem> {
        let mut session = Self::read(edge, call, body)?;
        if session.nonce == ONCE {
            session.nonce = 1;
            let last_nonce = |id| edge.shared.store.last_nonce(id);
            let sessions = &edge.shared.sessions;
            let entered = sessions.enter_own(&call.principal, session.client, last_nonce);
            let entered = entered.map_err(|error| session_problem(edge, error, 1))?;
            session.in_use = Some(Arc::new(entered));
        }
        Ok(session)
    }

    /// Identifies the write by the words of its request, not by the content of its intention. Used
    /// for writes whose intention depends on the state of the store, or contains the trace of the
    /// request: the intention of a retry may differ.
    #[must_use]
    pub(crate) fn identified_by_request(mut self, call: &Call, body: &[u8]) -> Self {
        if self.nonce != 0 && self.fingerprint.is_none() {
            self.fingerprint = Some(fingerprint(call, body, changes_write));
        }
        self
    }

    /// Keeps the key and the session in use until the verdict of a write, even if the request ends
    /// before.
    pub(crate) fn hold_in(&self, queued: &mut QueuedWrite) {
        queued.hold(self.key_in_flight.clone());
        queued.hold(self.in_use.clone());
    }

    /// Converts an idempotency key to a client id: a hash of principal, topic and key. The id is
    /// valid for one intention.
    fn from_key(edge: &Arc<Edge>, call: &Call, key: &[u8], body: &[u8]) -> Result<Self, Problem> {
        let key = read_idempotency_key(key).ok_or_else(|| {
            Problem::bad("Idempotency-Key must be a text of 1 to 255 characters in double quotes")
        })?;
        let mut hash = Sha256::new();
        for part in [
            call.principal.name.as_bytes(),
            call.matched.topic.as_bytes(),
            &key,
        ] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash = hash.finalize();
        let mut id = [0_u8; 16];
        id.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
        let client = ClientId(id);
        let fingerprint = fingerprint(call, body, is_payload);
        let key_in_flight = edge.start_key(&call.principal, client)?;
        Ok(Self {
            client,
            nonce: ONCE,
            fingerprint: Some(fingerprint),
            key_in_flight: Some(Arc::new(key_in_flight)),
            in_use: None,
        })
    }
}

/// The problem for a session that may not be used.
fn session_problem(edge: &Edge, error: SessionError, nonce: u64) -> Problem {
    match error {
        SessionError::Expired => refused(ErrorCode::SessionExpired, nonce),
        SessionError::Full => {
            let max = edge.shared.config.sessions_per_principal_max;
            let problem = Problem::new(Kind::Busy, SESSIONS_FULL).code(ErrorCode::Busy);
            let mut problem = problem.number("limit", max as u64);
            problem.retry_after_ms = Some(KEYS_FULL_RETRY_MS);
            problem
        }
    }
}

/// A hash of method, target, key and body, and of the fields for which `counts` is true. It
/// distinguishes requests with one idempotency key or nonce.
fn fingerprint(call: &Call, body: &[u8], counts: fn(&str) -> bool) -> u64 {
    let head = &call.head;
    let seed = twox_hash::XxHash3_64::oneshot(body);
    let mut text = Vec::with_capacity(128);
    let mut add = |part: &[u8]| {
        text.extend_from_slice(&(part.len() as u64).to_be_bytes());
        text.extend_from_slice(part);
    };
    for part in [
        head.method.name().as_bytes(),
        head.path().as_bytes(),
        head.query().unwrap_or_default().as_bytes(),
        head.raw(FieldName::WeirKey).unwrap_or_default(),
        head.raw(FieldName::WeirKeyB64).unwrap_or_default(),
    ] {
        add(part);
    }
    for (name, value) in head.fields().filter(|(name, _)| counts(name)) {
        add(name.as_bytes());
        add(value);
    }
    twox_hash::XxHash3_64::oneshot_with_seed(seed, &text)
}

/// The field with a part of the payload of a write.
fn is_payload(name: &str) -> bool {
    name == "weir-program-args"
}

/// The fields that change a write, except its key. Tracing fields differ in each attempt.
fn changes_write(name: &str) -> bool {
    let fields = [
        FieldName::ContentType,
        FieldName::IfMatch,
        FieldName::IfNoneMatch,
        FieldName::WeirExpect,
    ];
    is_payload(name) || name.starts_with("ce-") || fields.iter().any(|field| field.name() == name)
}

fn read_client(text: &[u8]) -> Option<ClientId> {
    let mut id = [0_u8; 16];
    if text.len() != 32 {
        return None;
    }
    for (byte, digits) in id.iter_mut().zip(text.chunks(2)) {
        let digits = std::str::from_utf8(digits)
            .ok()
            .filter(|text| !text.starts_with('+'))?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(ClientId(id)).filter(|client| !client.is_none())
}

/// Parses a quoted string (RFC 9651), or a bare word, because many clients send one.
fn read_idempotency_key(text: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(text.len());
    if let [b'"', inner @ .., b'"'] = text {
        let mut bytes = inner.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'\\' => key.push(*bytes.next().filter(|next| matches!(next, b'"' | b'\\'))?),
                b'"' => return None,
                0x20..0x7f => key.push(*byte),
                _ => return None,
            }
        }
    } else {
        let word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:~+/=".contains(byte);
        if !text.iter().all(word) {
            return None;
        }
        key.extend_from_slice(text);
    }
    (1..=IDEMPOTENCY_KEY_MAX)
        .contains(&key.len())
        .then_some(key)
}

#[cfg(test)]
mod tests {
    use super::{read_client, read_idempotency_key};

    #[test]
    fn malformed_keys_and_clients_are_refused() {
        let key = |text: &str| read_idempotency_key(text.as_bytes());
        assert_eq!(key("\"a b\\\"c\""), Some(b"a b\"c".to_vec()));
        assert_eq!(key("\"a\""), key("a"));
        for wrong in ["", "\"\"", "\"a", "\"a\"b\"", "a b", "\"\\a\"", "\"é\""] {
            assert_eq!(key(wrong), None, "{wrong}");
        }
        assert_eq!(key(&format!("\"{}\"", "x".repeat(256))), None);
        assert!(read_client(b"0123456789abcdefABCDEF0123456789").is_some());
        for wrong in [
            &b"00000000000000000000000000000000"[..],
            b"+123456789abcdefABCDEF0123456789",
            b"0",
        ] {
            assert!(read_client(wrong).is_none());
        }
    }
}
