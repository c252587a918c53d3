//! Members of a group, which claim records and report them as done.

use tokio::time::sleep;
use weir_core::group::Offsets;
use weir_core::intention::{Intention, Operation};
use weir_core::{Commit, Effect, ErrorCode, GroupMode, GroupSetup, GroupStep};

use crate::client::Client;
use crate::cluster::{GROUP, TOPIC};
use crate::report::Violation;

/// Duration of a lease. Longer than a history, so no lease ends unless a clock jumps.
const LEASE_MS: u64 = 24 * 3_600_000;
/// Limit on records of one claim.
const CLAIM_MAX: u64 = 5;

/// A member of the group with a session.
pub(crate) struct Worker {
    pub(crate) client: Client,
    pub(crate) nonce: u64,
}

impl Worker {
    /// Claims until the history ends.
    pub(crate) async fn run(mut self) {
        if let Err(violation) = self.work().await {
            let mut state = self.client.oracle.lock();
            state.violation.get_or_insert(violation);
        }
    }

    async fn step(&mut self, step: GroupStep<'_>) -> Result<Option<Commit>, Violation> {
        self.nonce += 1;
        let operation = Operation::Cursor { group: GROUP, step };
        let intention = Intention {
            client: self.client.session(),
            nonce: self.nonce,
            ..Intention::new(TOPIC, operation)
        };
        self.client.execute(&intention).await
    }

    async fn work(&mut self) -> Result<(), Violation> {
        let setup = GroupSetup {
            lease_ms: LEASE_MS,
            ..GroupSetup::new(GroupMode::Shared)
        };
        loop {
            let Some(opened) = self.step(GroupStep::Open(setup)).await? else {
                return Ok(());
            };
            if opened.reason != Some(ErrorCode::NoTopic) {
                break;
            }
            sleep(self.client.random.millis(20, 200)).await;
        }
        while !self.client.oracle.is_over() {
            sleep(self.client.random.millis(20, 200)).await;
            let running = self.client.some_node().await;
            // The state of this node may be old; the claim then conflicts.
            let Some(seen) = running.node.store().group(TOPIC, GROUP) else {
                continue;
            };
            let (frontier, last) = (seen.frontier.0, seen.last.0);
            let through = last.min(frontier + 1 + self.client.random.below(CLAIM_MAX));
            let offsets: Vec<u64> = (frontier + 1..=through).collect();
            if offsets.is_empty() {
                continue;
            }
            let member = self.client.id.to_le_bytes();
            let claim = GroupStep::Claim {
                member: &member,
                lease_ms: 0,
                seen: frontier,
                through,
                offsets: Offsets::Plain(&offsets),
                keys: None,
            };
            let claimed = self.step(claim).await?;
            let Some(claimed) = claimed.filter(|commit| commit.effect == Effect::Valid) else {
                continue;
            };
            let claim = claimed.intention.0;
            let trace = self.client.cluster.trace.clone();
            trace.add("claim", &[self.client.id, claim, frontier, through], &[]);
            self.client.oracle.lock().claims.claimed(&offsets);
            if self.client.random.chance(80) {
                let acked = Offsets::Plain(&offsets);
                let done = GroupStep::Ack {
                    claim,
                    offsets: acked,
                };
                let done = self.step(done).await?;
                if done.is_some_and(|commit| commit.effect == Effect::Valid) {
                    self.client.oracle.lock().claims.done(&offsets);
                }
            }
        }
        Ok(())
    }
}
