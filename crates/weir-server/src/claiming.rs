//! Claims of records from groups on behalf of clients, whichever port they
//! came by.
//!
//! Each attempt checks the rights again, because a claim may wait for a long
//! time and rights can be revoked meanwhile.
//!
//! Invariants:
//! - Each attempt has reserved memory for its records.
//! - A pause precedes each attempt unless the topic has changed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_core::group::Offsets;
use weir_core::limits::META_BYTES_MAX;
use weir_core::{ConsequenceOffset, ErrorCode, GroupStep, Intention, Operation};
use weir_protocol::ANSWER_BYTES_MAX;
use weir_store::{Ask, Claimed, StoreError};

use crate::limits::budget::Reservation;
use crate::security::Denied;
use crate::security::{Principal, Right};
use crate::shared::Shared;

/// How long to wait at most before looking again while somebody else may give
/// something back.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes of the log that a claim is counted with, for each record and for
/// itself.
const RECORD_BYTES: usize = 18;
const CLAIM_BYTES: usize = 128;

/// Who asks for records of which group, and until when.
pub(crate) struct Claim {
    pub(crate) shared: Arc<Shared>,
    pub(crate) principal: Principal,
    pub(crate) topic: String,
    pub(crate) group: String,
    /// Name of the member, 1 to 64 bytes.
    pub(crate) member: Vec<u8>,
    /// Records.
    pub(crate) max: usize,
    /// Milliseconds; 0: the group's own.
    pub(crate) lease_ms: u64,
    pub(crate) until: Instant,
}

/// Why a look brought no answer at all.
#[derive(Debug)]
pub(crate) enum NoLook {
    /// The right is missing, or was taken back.
    Denied(Denied),
    /// There is no room.
    Busy,
    /// The store cannot.
    Store(StoreError),
}

/// Why a claim was not VALID. A group that was put back meanwhile is looked at
/// again instead.
pub(crate) fn reason(claimed: &Claimed) -> Option<ErrorCode> {
    let commit = claimed.commit.as_ref();
    let reason = commit.and_then(|commit| commit.reason);
    reason.filter(|code| *code != ErrorCode::Conflict)
}

impl Claim {
    /// Looks once, and makes an answer on a thread that may wait. The
    /// reservation is for a long answer, to be held until it is sent.
    pub(crate) async fn look<T: Send + 'static>(
        self: &Arc<Self>,
        make: fn(&Claimed) -> Result<T, StoreError>,
    ) -> Result<(T, Reservation), NoLook> {
        let shared = &self.shared;
        shared
            .authorize(&self.principal, Right::Group, &self.topic)
            .map_err(NoLook::Denied)?;
        let bytes = self.max * RECORD_BYTES + CLAIM_BYTES;
        let permit = if shared.store.is_costly(&[self.step()]) {
            shared.admission.admit_costly_claim()
        } else {
            shared.admission.admit(bytes)
        };
        let permit = permit.ok_or(NoLook::Busy)?;
        let room = self.room().await?;
        let claim = Arc::clone(self);
        let looked = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let ask = Ask {
                member: &claim.member,
                max: claim.max,
                lease_ms: claim.lease_ms,
                bytes_max: ANSWER_BYTES_MAX,
            };
            let store = &claim.shared.store;
            make(&store.claim(&claim.topic, &claim.group, &ask)?)
        });
        let looked = looked.await.unwrap_or(Err(StoreError::Panicked {
            thread: "a thread that claims",
        }));
        Ok((looked.map_err(NoLook::Store)?, room))
    }

    /// A step of the group, to ask what it would wait for.
    fn step(&self) -> Intention<'_> {
        let (claim, offsets) = (0, Offsets::Plain(&[]));
        let step = GroupStep::Ack { claim, offsets };
        let group = &self.group;
        Intention::new(&self.topic, Operation::Cursor { group, step })
    }

    /// What will come is not known: room for the longest record.
    async fn room(&self) -> Result<Reservation, NoLook> {
        let limits = self.shared.store.limits();
        let record = limits.key_bytes_max + limits.value_bytes_max + META_BYTES_MAX;
        let answers = &self.shared.admission.answers;
        let room = answers.reserve(record.max(ANSWER_BYTES_MAX)).await;
        room.map_err(|_| NoLook::Busy)
    }

    /// Waits until looking again may bring something. `seen` is the frontier of
    /// the last look but one.
    pub(crate) async fn pause(&self, seen: &mut Option<u64>, frontier: u64, due_ms: Option<u64>) {
        let due = due_ms.map_or(LOOK_EVERY, |due| {
            Duration::from_millis(due.saturating_sub(self.shared.store.now_ms()).max(1))
        });
        let pause = (Instant::now() + due.min(LOOK_EVERY)).min(self.until);
        // Records that could not be had last time are no news.
        let stands = seen.replace(frontier) == Some(frontier);
        let reader = (self.shared.store).listen(&self.topic, ConsequenceOffset(frontier));
        tokio::select! {
            _ = reader.changed(), if !stands => {}
            () = tokio::time::sleep_until(pause) => {}
        }
    }
}
