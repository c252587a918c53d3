//! Writes: from the packet to the queue of the store.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use weir_core::{ClientId, ErrorCode, Intention, Operation, TopicOptions};
use weir_protocol::{
    DecodedItem, ItemsError, Message, Packet, ServerConnection, TextOperation, TextWrite,
    is_retryable, read_items,
};
use weir_store::{Proposal, Store, StoreError};

use super::Connection;
use super::guard;
use crate::limits::admission::Permit;
use crate::native::answers::PendingWrite;
use crate::native::refuse::{self, Refused};
use crate::phase::Phase;
use crate::queued_write::QueuedWrite;
use crate::security::Principal;
use crate::shared::Shared;

/// Attempts to admit a write before it takes priority over later writes. They take some 60 ms.
const PRIORITY_ATTEMPTS: u32 = 6;
/// Maximum number of programs in one write. Each one is compiled, and stays in memory until the
/// write is applied.
const PROGRAMS_MAX: usize = 64;

/// Whether a packet of writes was admitted.
pub(super) enum WriteAdmission {
    /// The packet is proposed or finally refused, and removed from the input.
    Admitted,
    /// There is no memory for the packet at present; it stays in the input.
    NoMemory,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Proposes a packet of items. A chained packet is refused temporarily if the previous one was.
    pub(super) async fn write(
        &mut self,
        tag: &[u8],
        count: u32,
        items: &[u8],
        size: usize,
        chained: bool,
    ) -> Result<WriteAdmission, Refused> {
        if let Some(code) = self.chain_refusal.filter(|_| chained) {
            return Err(self.refuse_write(Refused::plain(code), 0, count));
        }
        self.chain_refusal = None;
        let admission = self.write_items(tag, count, items, size).await;
        if let Err(refused) = &admission {
            let code = refused.message.code();
            let has_session = !self.state.client().is_none();
            self.chain_refusal = code.filter(|&code| is_retryable(code) && !has_session);
        }
        admission
    }

    async fn write_items(
        &mut self,
        tag: &[u8],
        count: u32,
        items: &[u8],
        size: usize,
    ) -> Result<WriteAdmission, Refused> {
        let Some(permit) = self.reserve(size) else {
            return Ok(WriteAdmission::NoMemory);
        };
        let client = self.state.client();
        let decoded = match read_items(client, count, items) {
            Ok(decoded) => decoded,
            Err(error) => return Err(bad_items(&error)),
        };
        let first = decoded.first().map_or(0, DecodedItem::nonce);
        let principal = Arc::clone(&self.principal);
        let stored = self.stored();
        let intentions = intentions(&decoded, stored, &principal.name);
        let programs = intentions.iter().filter(|one| has_program(one)).count();
        if programs > PROGRAMS_MAX {
            let mut refused = Refused::new(ErrorCode::TooLarge, "too many programs in one write");
            refused.message.limit = Some(PROGRAMS_MAX as u64);
            return Err(self.refuse_write(refused, first, count));
        }
        let Some(permit) = self.exchange_permit(permit, &intentions, size) else {
            return Ok(WriteAdmission::NoMemory);
        };
        let mut compile_permit = None;
        if programs > 0 {
            compile_permit = self.port.shared.admission.admit_compile();
            if compile_permit.is_none() {
                return Ok(WriteAdmission::NoMemory);
            }
        }
        let before = self.admit(first, &intentions, size)?;
        let shared = Arc::clone(&self.port.shared);
        let queued = if programs > 0 {
            // Compiling takes time, so it runs on a thread that may block.
            let items = items.to_vec();
            let propose = move || {
                let _compile_permit = compile_permit;
                let clients = [client, stored];
                let proposal =
                    propose_items(&shared.store, clients, count, &items, &principal.name)?;
                Ok::<_, StoreError>(charged_write(&shared, &principal, proposal, permit))
            };
            match tokio::task::spawn_blocking(propose).await {
                Ok(queued) => queued,
                Err(_) => Err(StoreError::Panicked {
                    thread: "a thread that compiles",
                }),
            }
        } else {
            let proposal = shared.propose(&intentions);
            proposal.map(|proposal| charged_write(&shared, &principal, proposal, permit))
        };
        self.queue_outcome(tag, first, count, size, before, queued)
    }

    /// Proposes one intention in text form.
    pub(super) fn write_one(
        &mut self,
        tag: &[u8],
        one: &TextWrite<'_>,
        size: usize,
    ) -> Result<WriteAdmission, Refused> {
        let Some(permit) = self.reserve(size) else {
            return Ok(WriteAdmission::NoMemory);
        };
        let client = self.state.client();
        if client.is_none() && one.nonce.is_some() {
            return Err(Refused::new(ErrorCode::BadRequest, "a nonce needs a session").fatal());
        }
        let nonce = one.nonce.unwrap_or(self.state.expected());
        let options;
        let operation = match one.kind {
            TextOperation::Put { key, value } => Operation::Put { key, value },
            TextOperation::Delete { key } => Operation::Delete { key },
            TextOperation::Create { options: bytes } => {
                let Some(read) = TopicOptions::decode(bytes) else {
                    return Err(Refused::plain(ErrorCode::BadOption));
                };
                options = read;
                Operation::Create { options: &options }
            }
            TextOperation::Destroy => Operation::Destroy,
        };
        let principal = Arc::clone(&self.principal);
        let expect = one.expect.read().unwrap_or_default();
        let intention = Intention {
            client: self.stored(),
            nonce,
            topic: one.topic,
            operation,
            expect: &expect,
            meta: one.meta,
            principal: principal.name.as_bytes(),
            fingerprint: None,
        };
        let Some(permit) = self.exchange_permit(permit, &[intention], size) else {
            return Ok(WriteAdmission::NoMemory);
        };
        let before = self.admit(nonce, &[intention], size)?;
        let shared = &self.port.shared;
        let proposal = shared.propose(&[intention]);
        let queued = proposal.map(|proposal| charged_write(shared, &principal, proposal, permit));
        self.queue_outcome(tag, nonce, 1, size, before, queued)
    }

    /// The client id of the session in the store; `ClientId::NONE` without a session.
    fn stored(&self) -> ClientId {
        let session = self.session.as_ref();
        session.map_or(ClientId::NONE, |session| session.client)
    }

    /// Reserves queue capacity for a write of this size. This runs before the write is decoded or
    /// charged, because a write without capacity is retried many times.
    fn reserve(&mut self, size: usize) -> Option<Permit> {
        let admission = &self.port.shared.admission;
        let is_costly = self.waits_for_costly;
        let permit = match self.next_write.take() {
            Some(next) => match next.admit() {
                Ok(permit) => Some(permit),
                Err(next) => {
                    self.next_write = Some(next);
                    return None;
                }
            },
            None if is_costly => admission.admit_costly(size),
            None => admission.admit(size),
        };
        if permit.is_some() {
            self.write_attempts = 0;
            return permit;
        }
        self.write_attempts = self.write_attempts.saturating_add(1);
        if self.write_attempts >= PRIORITY_ATTEMPTS {
            self.next_write = admission.take_priority(size, is_costly);
        }
        None
    }

    /// Exchanges the permit for one in the lane of the write, once its intentions are decoded.
    /// `None`: the limit of that lane is reached.
    fn exchange_permit(
        &mut self,
        permit: Permit,
        intentions: &[Intention<'_>],
        size: usize,
    ) -> Option<Permit> {
        let is_costly = self.port.shared.store.is_costly(intentions);
        if is_costly == std::mem::replace(&mut self.waits_for_costly, false) {
            return Some(permit);
        }
        drop(permit);
        let permit = self.port.shared.admit(intentions, size).ok();
        self.waits_for_costly = is_costly && permit.is_none();
        permit
    }

    /// Runs all checks that precede a proposal. Returns the state of the connection before the
    /// write.
    fn admit(
        &mut self,
        first: u64,
        intentions: &[Intention<'_>],
        size: usize,
    ) -> Result<ServerConnection, Refused> {
        let count = u32::try_from(intentions.len()).unwrap_or(u32::MAX);
        let shared = Arc::clone(&self.port.shared);
        if shared.phase() >= Phase::Draining {
            let refused = Refused::plain(ErrorCode::Draining);
            return Err(self.refuse_write(refused, first, count));
        }
        let checked = self.check_rate(u64::from(count), size);
        if let Err(refused) = checked.and_then(|()| self.allowed(intentions)) {
            return Err(self.refuse_write(refused, first, count));
        }
        let before = self.state.clone();
        match self.state.write(first, count, size) {
            Ok(()) => Ok(before),
            Err(fault) => Err(self.refuse_write(Refused::plain(fault.code), first, count)),
        }
    }

    fn refuse_write(&self, mut refused: Refused, first: u64, count: u32) -> Refused {
        refused.message.nonce = Some(first);
        refused.message.count = Some(u64::from(count));
        refused.message.expected = Some(self.state.expected()).filter(|nonce| *nonce != 0);
        refused
    }

    fn queue_outcome(
        &mut self,
        tag: &[u8],
        first: u64,
        count: u32,
        bytes: usize,
        before: ServerConnection,
        queued: Result<QueuedWrite, StoreError>,
    ) -> Result<WriteAdmission, Refused> {
        let queued = match queued {
            Ok(queued) => queued,
            Err(error) => {
                self.state = before;
                return Err(self.refuse_write(refuse::of_store(&error), first, count));
            }
        };
        if self.wants_received {
            let message = Message::Received {
                nonce: first,
                count: u64::from(count),
            };
            self.send(&Packet::tagged(tag, message));
        }
        self.answers.wait(PendingWrite {
            queued,
            first,
            count,
            bytes,
            tag: tag.into(),
        });
        Ok(WriteAdmission::Admitted)
    }

    fn allowed(&self, intentions: &[Intention<'_>]) -> Result<(), Refused> {
        let security = &self.port.shared.security;
        let allowed = security.allow(&self.principal, None, intentions);
        allowed.map_err(|error| {
            let mut refused = guard::refused(error.denied, &error.topic);
            refused.message.item = Some(error.index as u64);
            refused
        })
    }
}

fn has_program(intention: &Intention<'_>) -> bool {
    matches!(
        intention.operation,
        Operation::CreateProgram { .. } | Operation::Replace { .. }
    )
}

fn bad_items(error: &ItemsError) -> Refused {
    let mut refused = Refused::new(ErrorCode::BadRequest, error.to_string()).fatal();
    refused.message.item = Some(u64::from(error.item()));
    refused
}

/// Creates the write of a proposal, and charges it to its caller.
fn charged_write(
    shared: &Shared,
    caller: &Arc<Principal>,
    proposal: Proposal,
    permit: Permit,
) -> QueuedWrite {
    let queued = QueuedWrite::new(&shared.admission, proposal, permit);
    queued.charged_to(&shared.security, caller)
}

/// Decodes the items again, on a thread that may block.
fn propose_items(
    store: &Store,
    [client, stored]: [ClientId; 2],
    count: u32,
    items: &[u8],
    principal: &str,
) -> Result<Proposal, StoreError> {
    let decoded = read_items(client, count, items).unwrap_or_default();
    store.propose(&intentions(&decoded, stored, principal))
}

/// Converts the items to intentions of the store.
fn intentions<'a>(
    decoded: &'a [DecodedItem<'a>],
    stored: ClientId,
    principal: &'a str,
) -> Vec<Intention<'a>> {
    let intention = |item: &'a DecodedItem<'a>| Intention {
        client: stored,
        ..item.intention(principal.as_bytes())
    };
    decoded.iter().map(intention).collect()
}
