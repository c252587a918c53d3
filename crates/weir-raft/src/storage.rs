//! The log of a store as the log storage of openraft.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use tokio::sync::oneshot;
use weir_core::ErrorCode;
use weir_store::LogIndex;
use weir_store::replica::{Callback, EntryReader, Replica};

use crate::convert::{
    entry, entry_id, index_of, io_error, log_id, stored_entry, stored_vote, vote,
};
use crate::disk_space::{DiskSpace, SPACE_PAUSE};
use crate::types::{Entry, LogId, Types, Vote};

/// Limit on the payload bytes of one request to a peer; a single longer entry is still sent.
const REQUEST_BYTES: usize = 8 << 20;

/// The log of a node.
#[derive(Clone, Debug)]
pub struct LogStore {
    replica: Replica,
    disk_space: Arc<DiskSpace>,
}

impl LogStore {
    /// The log that a replica writes.
    #[must_use]
    pub fn new(replica: Replica) -> Self {
        let disk_space = Arc::default();
        Self {
            replica,
            disk_space,
        }
    }

    /// A log that reports to `disk_space` whether the disk is full.
    pub(crate) fn with_disk_space(replica: Replica, disk_space: Arc<DiskSpace>) -> Self {
        Self {
            replica,
            disk_space,
        }
    }
}

/// Reads entries; each reader has its own position.
#[derive(Debug)]
pub struct LogReader {
    replica: Replica,
    reader: EntryReader,
}

/// Runs an operation of the writer thread and waits for its result.
async fn wait(act: impl FnOnce(Callback)) -> io::Result<()> {
    let (sender, result) = oneshot::channel();
    act(Box::new(move |done| {
        // The waiter may have been dropped.
        drop(sender.send(done));
    }));
    result.await.map_err(|_| closed())?.map_err(io_error)
}

fn closed() -> io::Error {
    io::Error::other("the store is closed")
}

impl LogReader {
    fn read(&mut self, first: LogIndex, last: LogIndex, bytes: usize) -> io::Result<Vec<Entry>> {
        let entries = self.reader.read(first, last, bytes).map_err(io_error)?;
        entries.into_iter().map(entry).collect()
    }
}

impl RaftLogReader<Types> for LogReader {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, io::Error> {
        let first = match range.start_bound() {
            Bound::Included(first) => index_of(*first),
            Bound::Excluded(before) => index_of(*before).next(),
            Bound::Unbounded => LogIndex(1),
        };
        let last = match range.end_bound() {
            Bound::Included(last) => index_of(*last),
            // The exclusive end of openraft, counted from 0, is our index of the last entry.
            Bound::Excluded(end) => LogIndex(*end),
            Bound::Unbounded => LogIndex(u64::MAX),
        };
        self.read(first, last, usize::MAX)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        self.read(index_of(start), LogIndex(end), REQUEST_BYTES)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.replica.vote().map(vote))
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let state = self.replica.log_state();
        Ok(LogState {
            last_purged_log_id: state.purged.map(log_id),
            last_log_id: state.last.map(log_id),
        })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        LogReader {
            reader: self.replica.reader(),
            replica: self.replica.clone(),
        }
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let vote = stored_vote(vote);
        wait(|done| self.replica.save_vote(vote, done)).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        match committed {
            Some(id) => self.replica.save_committed(entry_id(&id)).map_err(io_error),
            None => Ok(()),
        }
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.replica.committed().map(log_id))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut entries = entries.into_iter().map(stored_entry).collect();
        let mut durable: Callback =
            Box::new(|result| callback.io_completed(result.map_err(io_error)));
        loop {
            let (sender, written) = oneshot::channel();
            let written_to = Box::new(move |result| {
                // The waiter may have been dropped.
                drop(sender.send(result));
            });
            self.replica.append(entries, written_to, durable);
            let failed = match written.await.map_err(|_| closed())? {
                Ok(()) => {
                    self.disk_space.record_space();
                    return Ok(());
                }
                Err(failed) => failed,
            };
            // READ_ONLY: the files of topics cannot be written at present.
            let code = failed.error.code();
            let is_full = matches!(code, ErrorCode::DiskFull | ErrorCode::ReadOnly);
            if !is_full || !self.disk_space.record_full() {
                return Err(io_error(failed.error));
            }
            (entries, durable) = (failed.entries, failed.durable);
            tokio::time::sleep(SPACE_PAUSE).await;
        }
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let index = last.map_or(LogIndex::ZERO, |id| index_of(id.index));
        wait(|done| self.replica.truncate_after(index, done)).await
    }

    async fn purge(&mut self, id: LogId) -> Result<(), io::Error> {
        wait(|done| self.replica.purge_through(entry_id(&id), done)).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use tokio::net::TcpListener;
    use weir_store::OpenOptions;
    use weir_store::replica::EntryId;

    use crate::error::NodeError;
    use crate::node::{Node, NodeConfig, Role, Status};
    use crate::types::Member;

    async fn open(directory: &Path) -> Result<Node, NodeError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let config = NodeConfig {
            node: 1,
            cluster: [6; 16],
            incarnation: 0,
        };
        Node::open(directory, &OpenOptions::default(), config, listener).await
    }

    /// The committed index is not synced, so it may survive a power cut that the entries do not
    /// survive.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_starts_after_its_log_has_lost_committed_entries() {
        let directory = tempfile::tempdir().unwrap();
        let node = open(directory.path()).await.unwrap();
        let member = Member {
            peer: node.address().to_string(),
            ..Member::default()
        };
        let members = BTreeMap::from([(1, member)]);
        node.initialize(members).await.unwrap();
        let leads = |status: &Status| {
            let all = [status.committed, status.applied];
            status.role == Role::Leader && all.iter().all(|id| id.is_some() && *id == status.last)
        };
        let last = node.until(leads).await.unwrap().last.unwrap();
        let ahead = EntryId {
            index: last.index.next(),
            ..last
        };
        node.replica.save_committed(ahead).unwrap();
        node.close().await.unwrap();
        let node = open(directory.path()).await.unwrap();
        let status = node.until(leads).await.unwrap();
        assert!(status.term > last.term, "{status:?}");
        node.close().await.unwrap();
    }
}
