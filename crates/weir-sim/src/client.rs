//! Clients, and the facts that their results prove.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep, timeout};
use weir_core::intention::{Intention, Operation};
use weir_core::{ClientId, Commit, Effect, ErrorCode, Outcome, TopicOptions};

use crate::cluster::{Cluster, RunningNode, TOPIC};
use crate::invariants::acknowledged::Acknowledged;
use crate::invariants::claims::Claims;
use crate::invariants::delivered::Delivered;
use crate::invariants::linear::{self, ReadKind};
use crate::invariants::rejected::Rejected;
use crate::random::Random;
use crate::report::{Planted, Violation};

/// Time limit for one answer to a client.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The facts that all clients together know about the store. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Oracle(Arc<Mutex<OracleState>>);

#[derive(Default)]
pub(crate) struct OracleState {
    pub(crate) acknowledged: Acknowledged,
    pub(crate) claims: Claims,
    pub(crate) delivered: Delivered,
    pub(crate) rejected: Rejected,
    /// The newest offset that a write or a linear read has returned.
    newest: u64,
    /// Linear reads that were started, and those that were answered.
    started_reads: u64,
    pub(crate) linear_reads: u64,
    pub(crate) violation: Option<Violation>,
    pub(crate) is_over: bool,
}

impl Oracle {
    pub(crate) fn lock(&self) -> MutexGuard<'_, OracleState> {
        self.0.lock()
    }

    pub(crate) fn is_over(&self) -> bool {
        let state = self.lock();
        state.is_over || state.violation.is_some()
    }
}

/// A client with a session.
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) cluster: Cluster,
    pub(crate) oracle: Oracle,
    pub(crate) random: Random,
}

impl Client {
    /// Writes and reads until the history ends.
    pub(crate) async fn run(mut self) {
        let mut nonce = 0;
        while !self.oracle.is_over() {
            let result = if self.random.chance(60) {
                nonce += 1;
                self.write(nonce).await
            } else {
                self.read().await
            };
            if let Err(violation) = result {
                self.oracle.lock().violation.get_or_insert(violation);
            }
            sleep(self.random.millis(1, 60)).await;
        }
    }

    pub(crate) async fn some_node(&mut self) -> RunningNode {
        loop {
            let mut running = self.cluster.all_running();
            let leads = running.iter().position(|running| running.node.is_leader());
            if let Some(leader) = leads.filter(|_| self.random.chance(60)) {
                return running.swap_remove(leader);
            }
            if !running.is_empty() {
                let which = self.random.below(running.len() as u64);
                return running.swap_remove(usize::try_from(which).unwrap_or_default());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends one write under its nonce until a node has answered.
    async fn write(&mut self, nonce: u64) -> Result<(), Violation> {
        let key = format!("{}-{nonce}", self.id).into_bytes();
        let options = TopicOptions::default();
        // The first write of the first client creates the topic.
        let operation = match (self.id, nonce) {
            (1, 1) => Operation::Create { options: &options },
            _ => Operation::Put {
                key: &key,
                value: &key,
            },
        };
        let intention = Intention {
            client: self.session(),
            nonce,
            ..Intention::new(TOPIC, operation)
        };
        let Some(commit) = self.execute(&intention).await? else {
            return Ok(());
        };
        match (commit.effect, commit.reason) {
            (Effect::Valid, _) => {
                let trace = &self.cluster.trace;
                trace.add("ack", &[self.id, nonce, commit.first.0], &[]);
                let mut state = self.oracle.lock();
                state.newest = state.newest.max(commit.first.0);
                let is_write = (self.id, nonce) != (1, 1);
                if is_write {
                    state.acknowledged.add(&key, commit.first.0)?;
                }
                Ok(())
            }
            // The topic does not exist yet: this nonce is used up without a record.
            (_, Some(ErrorCode::NoTopic)) => {
                self.oracle.lock().rejected.add(&key);
                Ok(())
            }
            (effect, reason) => Err(Violation::new(
                "a write is valid",
                format!("client {} nonce {nonce}: {effect:?} {reason:?}", self.id),
            )),
        }
    }

    /// The id of the session.
    pub(crate) fn session(&self) -> ClientId {
        let mut client = [0x11; 16];
        client[..8].copy_from_slice(&self.id.to_le_bytes());
        ClientId(client)
    }

    /// Sends an intention under its nonce until a node has answered. Returns `None` if the history
    /// ends before.
    pub(crate) async fn execute(
        &mut self,
        intention: &Intention<'_>,
    ) -> Result<Option<Commit>, Violation> {
        while !self.oracle.is_over() {
            let running = self.some_node().await;
            self.cluster.set_clocks();
            let proposed = running
                .node
                .store()
                .propose(std::slice::from_ref(intention));
            running.node.step();
            let answer = match proposed {
                Ok(proposal) => timeout(ANSWER_TIMEOUT, proposal).await,
                Err(error) => Ok(Err(error)),
            };
            // A crashed node has not answered, even if a result arrives.
            let is_same_run = self.cluster.is_same_run(&running);
            if let (true, Ok(Ok(outcomes))) = (is_same_run, answer)
                && let Some(outcome) = outcomes.iter().next()
            {
                return match outcome {
                    Outcome::Committed(commit) | Outcome::Replayed(commit) => {
                        Ok(Some(commit.clone()))
                    }
                    Outcome::Refused { code, expected } => Err(Violation::new(
                        "I6: a session accepts its next nonce",
                        format!(
                            "client {} sent {}: {code:?}, {expected}",
                            self.id, intention.nonce
                        ),
                    )),
                };
            }
            sleep(self.random.millis(5, 100)).await;
        }
        Ok(None)
    }

    /// Reads the newest offset, which must not be before an offset that was returned earlier.
    async fn read(&mut self) -> Result<(), Violation> {
        let running = self.some_node().await;
        let (floor, kind) = {
            let mut state = self.oracle.lock();
            state.started_reads += 1;
            (state.newest, ReadKind::nth(state.started_reads))
        };
        let started = Instant::now();
        let confirms_leader = match self.cluster.planted {
            Some(Planted::LocalRead) => false,
            Some(Planted::LeaderByClock) => !running.node.is_leader(),
            _ => true,
        };
        if confirms_leader && running.node.linearize(ANSWER_TIMEOUT).await.is_err() {
            return Ok(());
        }
        if !self.cluster.is_same_run(&running) {
            return Ok(());
        }
        let Some(last) = kind.newest(running.node.store(), floor) else {
            return Ok(());
        };
        let trace = &self.cluster.trace;
        trace.add("read", &[self.id, running.id, last], &[]);
        let mut state = self.oracle.lock();
        linear::check((floor, last), kind, running.id, started.elapsed())?;
        state.newest = state.newest.max(last);
        state.linear_reads += 1;
        Ok(())
    }
}
