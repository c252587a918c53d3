//! The machine of a store as the state machine of openraft.

use std::io;
use std::sync::mpsc;

use futures_util::{Stream, StreamExt};
use openraft::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::storage::{ApplyResponder, EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{OptionalSend, SnapshotMeta};
use tokio::sync::oneshot;
use weir_core::program::PROGRAM_STACK_BYTES;
use weir_store::StoreError;
use weir_store::replica::{Replica, ReplicaEntry};

use crate::convert::{io_error, log_id, stored_entry, stored_membership};
use crate::types::{LogId, StoredMembership, Types};

/// Entries that are applied before openraft hears of them.
const ENTRIES_AT_ONCE: usize = 64;

type Applied = (ReplicaEntry, Option<ApplyResponder<Types>>);

struct Job {
    entries: Vec<Applied>,
    done: oneshot::Sender<Result<(), StoreError>>,
}

/// The machine of a node. Entries are applied by a thread of its own, which has
/// the stack that programs need.
#[derive(Debug)]
pub struct StateMachine {
    replica: Replica,
    jobs: mpsc::Sender<Job>,
    newest: Option<SnapshotMetaOf<Types>>,
}

/// A snapshot of a state machine: which one.
#[derive(Clone, Debug)]
pub struct StateMachineSnapshot {
    /// What it covers.
    pub meta: SnapshotMetaOf<Types>,
}

/// Builds a snapshot of the state when it was made.
#[derive(Debug)]
pub struct SnapshotBuilder {
    meta: io::Result<SnapshotMetaOf<Types>>,
}

impl StateMachine {
    /// Starts the thread that applies.
    ///
    /// # Errors
    /// When the system has no thread.
    pub fn new(replica: Replica) -> io::Result<Self> {
        let (jobs, received) = mpsc::channel::<Job>();
        let applier = replica.clone();
        std::thread::Builder::new()
            .name("weir-apply".to_owned())
            .stack_size(PROGRAM_STACK_BYTES)
            .spawn(move || {
                for job in received {
                    // openraft may be gone; then nobody wants to know.
                    drop(job.done.send(apply(&applier, job.entries)));
                }
            })?;
        Ok(Self {
            replica,
            jobs,
            newest: None,
        })
    }

    fn meta(&self) -> io::Result<SnapshotMetaOf<Types>> {
        let (last_log_id, last_membership) = self.state()?;
        Ok(SnapshotMeta {
            last_log_id,
            last_membership,
        })
    }

    fn state(&self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let applied = self.replica.applied();
        let membership = stored_membership(applied.membership)?;
        Ok((applied.last.map(log_id), membership))
    }
}

fn apply(replica: &Replica, entries: Vec<Applied>) -> Result<(), StoreError> {
    for (entry, responder) in entries {
        let outcomes = replica.apply(entry)?;
        if let Some(responder) = responder {
            responder.send(outcomes);
        }
    }
    Ok(())
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = StateMachineSnapshot;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        self.state()
    }

    async fn apply<S>(&mut self, entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        let mut chunks = entries.ready_chunks(ENTRIES_AT_ONCE);
        while let Some(chunk) = chunks.next().await {
            let entry = |one: Result<EntryResponder<Types>, io::Error>| {
                one.map(|(entry, responder)| (stored_entry(entry), responder))
            };
            let entries = chunk.into_iter().map(entry).collect::<Result<_, _>>()?;
            let (done, applied) = oneshot::channel();
            let gone = || io::Error::other("the thread that applies has ended");
            let job = Job { entries, done };
            self.jobs.send(job).map_err(|_| gone())?;
            applied.await.map_err(|_| gone())?.map_err(io_error)?;
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        let meta = self.meta();
        if let Ok(meta) = &meta {
            self.newest = Some(meta.clone());
        }
        SnapshotBuilder { meta }
    }

    async fn install_snapshot(
        &mut self,
        _: &SnapshotMetaOf<Types>,
        _: StateMachineSnapshot,
    ) -> Result<(), io::Error> {
        // No node purges its log, so none needs this (docs/decisions/0065, point 5).
        let what = "a node of this version installs no snapshot of another node";
        Err(io::Error::new(io::ErrorKind::Unsupported, what))
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<Types, StateMachineSnapshot>>, io::Error> {
        let newest = self.newest.clone();
        Ok(newest.map(|meta| SnapshotOf::<Types, _> {
            snapshot: StateMachineSnapshot { meta: meta.clone() },
            meta,
        }))
    }
}

impl RaftSnapshotBuilder<Types> for SnapshotBuilder {
    type SnapshotData = StateMachineSnapshot;

    async fn build_snapshot(
        &mut self,
    ) -> Result<SnapshotOf<Types, StateMachineSnapshot>, io::Error> {
        let meta = match &self.meta {
            Ok(meta) => meta.clone(),
            Err(error) => return Err(io::Error::new(error.kind(), error.to_string())),
        };
        Ok(SnapshotOf::<Types, _> {
            snapshot: StateMachineSnapshot { meta: meta.clone() },
            meta,
        })
    }
}
