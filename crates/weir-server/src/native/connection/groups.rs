//! Requests about groups: claims that wait for records, and descriptions of groups.
//!
//! Each claim is a separate task, so that it does not block later requests of the connection.
//!
//! Invariants:
//! - At most one claim of a connection is in the store or has unsent records, which
//!   bounds the memory of all claims.
//! - No claim is attempted after the client has disconnected.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use weir_core::ErrorCode;
use weir_protocol::{
    ANSWER_BYTES_MAX, CLAIM_WAIT_MS_MAX, CLAIMS_MAX, Consistency, GROUP_MEMBERS_MAX, GroupAnswer,
    GroupClaim, GroupLine, GroupOwner, Message, Packet, write_group,
};
use weir_store::{Claimed, GroupInfo, PageBuilder, Store, StoreError};

use super::Connection;
use super::guard;
use crate::claiming::{self, Claim, ClaimFailure};
use crate::limits::budget::Reservation;
use crate::native::refuse::{self, Refused};
use crate::phase::Phase;
use crate::security::{Principal, Right};

/// The result of a claim.
struct ClaimResult {
    claim: u64,
    reason: u64,
    frontier: u64,
    due_ms: Option<u64>,
    data: Vec<u8>,
    is_empty: bool,
    /// Reserves the memory of a long response until it is sent.
    reservation: Option<Reservation>,
}

/// A completed claim.
struct CompletedClaim {
    tag: Box<[u8]>,
    result: Result<ClaimResult, Refused>,
    /// Held until the response is sent, so that no other claim of the connection starts.
    _permit: Option<OwnedSemaphorePermit>,
}

/// The claims of a connection.
pub(super) struct Claims {
    tasks: JoinSet<CompletedClaim>,
    completed: VecDeque<CompletedClaim>,
    /// A claim has panicked, and has no response.
    has_panicked: bool,
    exclusive: Arc<Semaphore>,
    closing: watch::Sender<bool>,
}

impl Default for Claims {
    fn default() -> Self {
        Self {
            tasks: JoinSet::new(),
            completed: VecDeque::new(),
            has_panicked: false,
            exclusive: Arc::new(Semaphore::new(1)),
            closing: watch::Sender::new(false),
        }
    }
}

impl Claims {
    /// Whether no claim is in progress.
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.completed.is_empty()
    }

    /// Ends the wait of all claims. Each one responds with the records that it has.
    pub(super) fn stop_waiting(&self) {
        self.closing.send_replace(true);
    }

    /// Ready if a claim has completed; otherwise wakes the task when one does.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(Some(ended)) = self.tasks.poll_join_next(context) {
            self.on_end(ended);
        }
        if self.completed.is_empty() && !self.has_panicked {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }

    fn on_end(&mut self, ended: Result<CompletedClaim, JoinError>) {
        match ended {
            Ok(completed) => self.completed.push_back(completed),
            // The panic hook has printed the panic.
            Err(_) => self.has_panicked = true,
        }
    }

    fn next(&mut self) -> Option<CompletedClaim> {
        while let Some(ended) = self.tasks.try_join_next() {
            self.on_end(ended);
        }
        self.completed.pop_front()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Starts a claim.
    pub(super) fn claim(
        &mut self,
        tag: &[u8],
        claim: &GroupClaim<'_>,
        consistency: Consistency,
    ) -> Result<(), Refused> {
        self.check_request(Right::Group, claim.topic)?;
        if self.port.shared.phase() >= Phase::Draining {
            return Err(Refused::plain(ErrorCode::Draining));
        }
        if self.claims.tasks.len() + self.claims.completed.len() >= CLAIMS_MAX {
            let mut refused = Refused::new(ErrorCode::TooLarge, "too many waiting claims");
            refused.message.limit = Some(CLAIMS_MAX as u64);
            return Err(refused);
        }
        let wait = Duration::from_millis(claim.wait_ms.min(CLAIM_WAIT_MS_MAX));
        let claim = Claim {
            shared: Arc::clone(&self.port.shared),
            principal: Principal::clone(&self.principal),
            topic: claim.topic.to_owned(),
            group: claim.group.to_owned(),
            member: claim.member.to_vec(),
            max: usize::try_from(claim.max).unwrap_or(1),
            lease_ms: claim.lease_ms,
            deadline: Instant::now() + wait,
        };
        let tag = tag.into();
        let exclusive = Arc::clone(&self.claims.exclusive);
        let closing = self.claims.closing.subscribe();
        self.claims.tasks.spawn(async move {
            let (result, permit) = match run(claim, consistency, exclusive, closing).await {
                Ok((result, permit)) => (Ok(result), Some(permit)),
                Err(refused) => (Err(refused), None),
            };
            CompletedClaim {
                tag,
                result,
                _permit: permit,
            }
        });
        Ok(())
    }

    /// Sends the responses of completed claims while the send buffer has room. A claim without a
    /// response, because it panicked, closes the connection. Returns whether there was any claim.
    pub(super) fn send_claims(&mut self) -> bool {
        let mut progress = false;
        while !self.out.is_high()
            && let Some(claim) = self.claims.next()
        {
            progress = true;
            match claim.result {
                Ok(mut result) => {
                    if let Some(reservation) = result.reservation.take() {
                        self.out.hold(reservation);
                    }
                    let answer = GroupAnswer {
                        claim: result.claim,
                        reason: result.reason,
                        frontier: result.frontier,
                        due_ms: result.due_ms,
                        data: &result.data,
                    };
                    self.send(&Packet::tagged(&claim.tag, Message::GroupRecords(answer)));
                }
                Err(refused) => {
                    refused.encode(&claim.tag, &mut self.encoder, &mut self.out.bytes);
                }
            }
        }
        if std::mem::take(&mut self.claims.has_panicked) {
            progress = true;
            let text = "a claim panicked; its outcome is unknown";
            self.fatal(&Refused::new(ErrorCode::Internal, text).fatal());
        }
        progress
    }

    /// Sends the description of a group.
    pub(super) async fn group(
        &mut self,
        tag: &[u8],
        topic: &str,
        group: &str,
        consistency: Consistency,
    ) -> Result<(), Refused> {
        self.check_read(Right::Group, topic, consistency).await?;
        let (topic, group) = (topic.to_owned(), group.to_owned());
        let info = self.blocking(move |store| {
            let topic_exists = store.topic(&topic).is_some();
            let found = store.group(&topic, &group);
            found.ok_or(if topic_exists {
                StoreError::GroupUnknown { topic, group }
            } else {
                StoreError::TopicUnknown { name: topic }
            })
        });
        let info = info.await?;
        let mut lines = Vec::new();
        write_group(&mut lines, &line(&info));
        let more = false;
        let message = Message::GroupsResponse {
            more,
            lines: &lines,
        };
        self.send(&Packet::tagged(tag, message));
        Ok(())
    }

    /// Sends the list of the groups of a topic.
    pub(super) async fn groups(
        &mut self,
        tag: &[u8],
        topic: &str,
        after: &str,
        consistency: Consistency,
    ) -> Result<(), Refused> {
        self.check_read(Right::Group, topic, consistency).await?;
        let (topic, after) = (topic.to_owned(), after.to_owned());
        let listed = self.blocking(move |store| {
            let mut lines = Vec::new();
            for name in store.group_names(&topic, &after)? {
                if lines.len() >= ANSWER_BYTES_MAX {
                    return Ok((lines, true));
                }
                // The group may have been deleted after its name was read.
                if let Some(info) = store.group(&topic, name.as_str()) {
                    if !lines.is_empty() {
                        lines.push(b'\n');
                    }
                    write_group(&mut lines, &line(&info));
                }
            }
            Ok((lines, false))
        });
        let (lines, more) = listed.await?;
        let message = Message::GroupsResponse {
            more,
            lines: &lines,
        };
        self.send(&Packet::tagged(tag, message));
        Ok(())
    }

    /// Calls the store on a thread that may block.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Refused> {
        let store = Arc::clone(&self.port.shared.store);
        let result = tokio::task::spawn_blocking(move || work(&store)).await;
        result
            .unwrap_or(Err(StoreError::Panicked {
                thread: "a thread that calls the store",
            }))
            .map_err(|error| refuse::of_store(&error))
    }
}

/// Repeats the claim until there are records, its deadline has passed, or the client stops waiting.
async fn run(
    claim: Claim,
    consistency: Consistency,
    exclusive: Arc<Semaphore>,
    mut closing: watch::Receiver<bool>,
) -> Result<(ClaimResult, OwnedSemaphorePermit), Refused> {
    let confirmed = claim.shared.wait_for_consistency(consistency).await;
    confirmed.map_err(|error| refuse::of_store(&error))?;
    let claim = Arc::new(claim);
    let mut seen = None;
    loop {
        let permit = Arc::clone(&exclusive).acquire_owned().await;
        let permit = permit.map_err(|_| Refused::plain(ErrorCode::Internal))?;
        let claimed = claim.try_claim(claim_result).await;
        let (mut result, mut reservation) = claimed.map_err(|error| match error {
            ClaimFailure::Denied(denied) => guard::refused(denied, &claim.topic),
            ClaimFailure::Busy(exhausted) => Refused::exhausted(exhausted),
            ClaimFailure::Store(error) => refuse::of_store(&error),
        })?;
        let is_over = Instant::now() >= claim.deadline || *closing.borrow();
        if !result.is_empty || result.reason != 0 || is_over {
            // It covered the longest possible record.
            reservation.shrink(result.data.len());
            result.reservation = Some(reservation).filter(Reservation::is_held);
            return Ok((result, permit));
        }
        drop((permit, reservation));
        tokio::select! {
            () = claim.pause(&mut seen, result.frontier, result.due_ms) => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
    }
}

fn claim_result(claimed: &Claimed) -> Result<ClaimResult, StoreError> {
    let commit = claimed.commit.as_ref();
    let reason = claiming::reason(claimed);
    let mut attempts = Vec::new();
    let mut page = PageBuilder::default();
    for delivery in &claimed.deliveries {
        if let Some(record) = delivery.page.iter().next().transpose()? {
            attempts.push(delivery.attempts);
            page.push(&record);
        }
    }
    let mut bytes = Vec::new();
    if let Some(page) = page.take() {
        page.write_to(&mut bytes);
    }
    let mut data = Vec::with_capacity(bytes.len() + 2 * attempts.len() + 10);
    GroupAnswer::write(&mut data, &attempts, &bytes);
    Ok(ClaimResult {
        claim: commit.map_or(0, |commit| commit.intention.0),
        reason: reason.map_or(0, |code| u64::from(code.number())),
        frontier: claimed.frontier.0,
        due_ms: claimed.due_ms,
        data,
        is_empty: attempts.is_empty(),
        reservation: None,
    })
}

fn line(info: &GroupInfo) -> GroupLine<'_> {
    let members = info.members.iter().take(GROUP_MEMBERS_MAX);
    GroupLine {
        name: &info.name,
        mode: info.mode,
        cursor: info.cursor.0,
        frontier: info.frontier.0,
        last: info.last.0,
        lag: info.lag,
        leased: info.leased,
        waiting: info.waiting,
        oldest_ms: info.oldest_ms,
        redeliveries: info.redeliveries,
        dead_lettered: info.dead_lettered,
        unwritten_dead_letters: info.unwritten_dead_letters,
        lease_ms: info.lease_ms,
        attempts_max: info.attempts_max,
        pending_max: info.pending_max,
        dead_letters: &info.dead_letters,
        owner: info.owner.as_ref().map(|owner| GroupOwner {
            member: owner.member.to_vec(),
            generation: owner.generation,
            until_ms: owner.until_ms,
        }),
        members: members
            .map(|(member, records)| (member.to_vec(), *records))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::future::poll_fn;
    use std::sync::Arc;
    use std::task::Poll;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, duplex};
    use tokio::sync::{Semaphore, watch};
    use tokio::time::Instant;
    use weir_core::{GroupMode, GroupSetup, GroupStep, Intention, Operation};
    use weir_protocol::{ANSWER_BYTES_MAX, Consistency};

    use super::{Claim, CompletedClaim, Connection, run};
    use crate::config::ServerConfig;
    use crate::native::{Port, late};

    fn claim(port: &Port, wait: Duration) -> Claim {
        Claim {
            shared: Arc::clone(&port.shared),
            principal: port.shared.security.owner(),
            topic: "t".to_owned(),
            group: "g".to_owned(),
            member: b"m".to_vec(),
            max: 10,
            lease_ms: 0,
            deadline: Instant::now() + wait,
        }
    }

    /// The topic has two records.
    #[test]
    fn a_claim_rarely_asks_again_while_all_records_are_done() {
        let folder = tempfile::tempdir().unwrap();
        let port = late::port(folder.path(), ServerConfig::default());
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let claim = claim(&port, Duration::from_hours(1));
            for (frontier, due_ms, pause_ms) in
                [(2, None, 1000), (2, Some(u64::MAX), 100), (1, None, 100)]
            {
                let start = Instant::now();
                claim.pause(&mut Some(frontier), frontier, due_ms).await;
                // The time is simulated.
                let ms = start.elapsed().as_millis();
                assert!(
                    (pause_ms..pause_ms + 10).contains(&ms),
                    "{frontier} {due_ms:?} {ms}"
                );
            }
        });
    }

    /// A client may read its response slowly.
    #[test]
    fn a_short_response_does_not_reserve_the_memory_of_the_longest_record() {
        let folder = tempfile::tempdir().unwrap();
        late::run(async {
            let port = late::port(folder.path(), ServerConfig::default());
            let step = GroupStep::Open(GroupSetup::new(GroupMode::Shared));
            let open = Operation::Cursor { group: "g", step };
            let opened = port.shared.store.propose(&[Intention::new("t", open)]);
            opened.unwrap().wait().unwrap();
            let claim = claim(&port, Duration::ZERO);
            let (exclusive, closing) = (Arc::new(Semaphore::new(1)), watch::Sender::new(false));
            let claimed = run(claim, Consistency::Local, exclusive, closing.subscribe());
            let (result, _permit) = claimed.await.map_err(|_| "refused").unwrap();
            assert!(!result.data.is_empty());
            let used = port.shared.admission.answers.used();
            assert!(
                (result.data.len()..=ANSWER_BYTES_MAX).contains(&used),
                "{used}"
            );
        });
    }

    #[test]
    fn a_claim_that_panics_closes_the_connection_with_an_error() {
        let folder = tempfile::tempdir().unwrap();
        late::run(async {
            let port = late::port(folder.path(), ServerConfig::default());
            let (server_io, mut client) = duplex(1000);
            let principal = port.shared.security.owner();
            let mut connection = Connection::new(port, 1, server_io, principal);
            let panics = poll_fn(|_| -> Poll<CompletedClaim> { panic!("by the test") });
            connection.claims.tasks.spawn(panics);
            let received = async move {
                let mut received = Vec::new();
                client.read_to_end(&mut received).await.unwrap();
                String::from_utf8(received).unwrap()
            };
            let ((), received) = tokio::join!(connection.run(), received);
            assert!(received.contains("_failure_internal"), "{received:?}");
        });
    }
}
