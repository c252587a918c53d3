//! Claims of records from groups on behalf of clients, for both ports.
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
use weir_store::{ClaimRequest, Claimed, StoreError};

use crate::limits::admission::COSTLY_CLAIMS_MAX;
use crate::limits::budget::{BudgetExhausted, Reservation};
use crate::security::Denied;
use crate::security::{Principal, Right};
use crate::shared::Shared;

/// Longest pause before the next attempt, while another member may release records.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(100);
/// Longest pause while all records are done. Only a new record, which ends the pause, or a change of
/// the group can bring records then.
const IDLE_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Log bytes to reserve in the queue: for each record, and for the claim itself.
const RECORD_BYTES: usize = 18;
const CLAIM_BYTES: usize = 128;

/// A claim of one client: the caller, the group, the limits and the deadline.
pub(crate) struct Claim {
    pub(crate) shared: Arc<Shared>,
    pub(crate) principal: Principal,
    pub(crate) topic: String,
    pub(crate) group: String,
    /// Name of the member, 1 to 64 bytes.
    pub(crate) member: Vec<u8>,
    /// Largest number of records to claim.
    pub(crate) max: usize,
    /// Duration of the lease in milliseconds; 0: the default of the group.
    pub(crate) lease_ms: u64,
    pub(crate) deadline: Instant,
}

/// Why an attempt to claim failed without a result.
#[derive(Debug)]
pub(crate) enum ClaimFailure {
    /// The principal lacks the right, or has lost it since the request began.
    Denied(Denied),
    /// Other requests use the queue or the memory.
    Busy(BudgetExhausted),
    /// The store returned an error.
    Store(StoreError),
}

/// Returns why a claim was not VALID. Returns `None` for `Conflict`: the group was reset during the
/// claim, and the caller tries again.
pub(crate) fn reason(claimed: &Claimed) -> Option<ErrorCode> {
    let commit = claimed.commit.as_ref();
    let reason = commit.and_then(|commit| commit.reason);
    reason.filter(|code| *code != ErrorCode::Conflict)
}

impl Claim {
    /// Tries once to claim records, and builds the response with `render` on a blocking thread. The
    /// caller must hold the returned reservation until a long response is sent.
    pub(crate) async fn try_claim<T: Send + 'static>(
        self: &Arc<Self>,
        render: fn(&Claimed) -> Result<T, StoreError>,
    ) -> Result<(T, Reservation), ClaimFailure> {
        let shared = &self.shared;
        shared
            .authorize(&self.principal, Right::Group, &self.topic)
            .map_err(ClaimFailure::Denied)?;
        let bytes = self.max * RECORD_BYTES + CLAIM_BYTES;
        let permit = if shared.store.is_costly(&[self.step()]) {
            let permit = shared.admission.admit_costly_claim();
            permit.ok_or(BudgetExhausted {
                text: "too many claims wait for costly calls of programs",
                limit: COSTLY_CLAIMS_MAX,
            })
        } else {
            let permit = shared.admission.admit(bytes);
            permit.ok_or_else(|| shared.admission.exhausted(false))
        };
        let permit = permit.map_err(ClaimFailure::Busy)?;
        let reservation = self.reserve().await?;
        let claim = Arc::clone(self);
        let claimed = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let request = ClaimRequest {
                member: &claim.member,
                max: claim.max,
                lease_ms: claim.lease_ms,
                bytes_max: ANSWER_BYTES_MAX,
            };
            let store = &claim.shared.store;
            render(&store.claim(&claim.topic, &claim.group, &request)?)
        });
        let claimed = claimed.await.unwrap_or(Err(StoreError::Panicked {
            thread: "a thread that claims",
        }));
        Ok((claimed.map_err(ClaimFailure::Store)?, reservation))
    }

    /// A step of the group with which the queue estimates the cost of the claim.
    fn step(&self) -> Intention<'_> {
        let (claim, offsets) = (0, Offsets::Plain(&[]));
        let step = GroupStep::Ack { claim, offsets };
        let group = &self.group;
        Intention::new(&self.topic, Operation::Cursor { group, step })
    }

    /// Reserves memory for the longest possible record, because the size of the response is not
    /// known yet.
    async fn reserve(&self) -> Result<Reservation, ClaimFailure> {
        let limits = self.shared.store.limits();
        let record = limits.key_bytes_max + limits.value_bytes_max + META_BYTES_MAX;
        let answers = &self.shared.admission.answers;
        let reservation = answers.reserve(record.max(ANSWER_BYTES_MAX)).await;
        reservation.map_err(ClaimFailure::Busy)
    }

    /// Waits until another attempt may find records. `frontier` is the frontier of the last
    /// attempt, and `seen` that of the attempt before it.
    pub(crate) async fn pause(&self, seen: &mut Option<u64>, frontier: u64, due_ms: Option<u64>) {
        let reader = (self.shared.store).listen(&self.topic, ConsequenceOffset(frontier));
        // Without `due_ms`, no record is leased and none waits.
        let is_idle = due_ms.is_none() && reader.last().0 <= frontier;
        let pause_max = if is_idle {
            IDLE_PAUSE_MAX
        } else {
            RETRY_PAUSE_MAX
        };
        let due = due_ms.map_or(pause_max, |due| {
            Duration::from_millis(due.saturating_sub(self.shared.store.now_ms()).max(1))
        });
        let pause = (Instant::now() + due.min(pause_max)).min(self.deadline);
        // If the frontier has not moved, its later records were not available: do not wake for
        // them.
        let is_unchanged = seen.replace(frontier) == Some(frontier);
        tokio::select! {
            _ = reader.changed(), if is_idle || !is_unchanged => {}
            () = tokio::time::sleep_until(pause) => {}
        }
    }
}
