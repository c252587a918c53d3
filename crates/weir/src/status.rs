//! The state of a store, and of the server that has it open, at one moment.

use weir_protocol::{StatusLine, StatusLines};
use weir_store::disk::DiskSpace;
use weir_store::{Stats, Store};

/// The state of a store at one moment: [`Weir::status`](crate::Weir::status).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Counts since the store was opened, and the positions of its log.
    pub stats: Stats,
    /// First entry that the log still has; greater than `stats.applied_index` if the log is empty.
    pub log_first_index: u64,
    /// Topics that are live.
    pub topics: u64,
    /// Sessions whose nonces are stored.
    pub sessions: u64,
    /// Idempotency keys that are stored.
    pub idempotency_keys: u64,
    /// Why the store rejects writes; `None` if it accepts them.
    pub poison_cause: Option<String>,
    /// Why the last checkpoint failed; `None` if it succeeded.
    pub checkpoint_failure: Option<String>,
    /// Type of the file system if a power cut may erase it; otherwise `None`.
    pub volatile: Option<String>,
    /// Name of the file system; `None` if unknown.
    pub file_system: Option<String>,
    /// Bytes that can still be written to the file system; `None` if unknown.
    pub free_bytes: Option<u64>,
    /// Size of the file system in bytes; `None` if unknown.
    pub total_bytes: Option<u64>,
    /// The time of the store in milliseconds since 1970. Time stamps and leases use it.
    pub time_ms: u64,
    /// The server that has the store open; `None` if this process has it open.
    pub server: Option<ServerStatus>,
}

/// The state of a server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Version of the server.
    pub version: String,
    /// Milliseconds since it was started.
    pub uptime_ms: u64,
    /// Whether the server accepts requests: it has an open store and is not stopping.
    pub ready: bool,
    /// Wall clock of the server's machine, milliseconds since 1970.
    pub clock_ms: u64,
    /// Memory that the server may use, in bytes; `None` if unknown.
    pub memory_max: Option<u64>,
    /// Memory that the server uses, in bytes; `None` if unknown.
    pub resident_bytes: Option<u64>,
    /// Writes without a response so far.
    pub writes: BudgetStatus,
    /// Writes that wait in the slow lane, for costly programs.
    pub costly_writes: BudgetStatus,
    /// Request bodies and packets that are not complete.
    pub bodies: BudgetStatus,
    /// Responses that clients have not read yet.
    pub answers: BudgetStatus,
    /// Open connections of the HTTP port.
    pub connections_http: u64,
    /// Open connections of the native port and of the socket.
    pub connections_native: u64,
    /// Connections on which no request has passed authentication yet.
    pub connections_unauthenticated: u64,
    /// Maximum number of connections under the limit of open files.
    pub connections_max: u64,
    /// The state of the node; `None` if the server is not a node of a cluster.
    pub cluster: Option<ClusterStatus>,
}

/// The state of a node of a cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// Number of the node.
    pub node: u64,
    /// `leader`, `follower`, `candidate`, `learner`, `full` (no space on its disk) or `ended`.
    pub role: String,
    /// Term of the node.
    pub term: u64,
    /// Number of the leader; `None` if the node knows none.
    pub leader: Option<u64>,
    /// Index of the newest entry of its log.
    pub last: u64,
    /// Term of the newest entry of its log: a node may vote in a later term without an entry of that
    /// term. Of two logs, the one with the higher term is newer; of equal terms, the one with the
    /// higher `last`. `None` if the node is of a version that does not report it.
    pub last_term: Option<u64>,
    /// Index of the newest entry that it knows to be committed.
    pub committed: u64,
    /// Index of the newest entry that it has applied.
    pub applied: u64,
    /// Milliseconds since the node last had contact with a leader; on the leader, since a majority
    /// last responded. `None` before the first contact.
    pub contact_ms: Option<u64>,
    /// Whether a majority has synced what this node acknowledges as a leader. If not
    /// (`interval`, `memory`), a power cut of all nodes loses acknowledged writes.
    pub synced: bool,
    /// Milliseconds by which the wall clock of the node is ahead of the wall clocks of a majority.
    pub clock_ahead_ms: u64,
    /// Digest of the applied state: equal on all nodes with equal `applied`.
    pub digest: String,
    /// The members of the cluster that the node knows.
    pub members: Vec<MemberStatus>,
}

/// A member of a cluster, as a node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Number of the member.
    pub node: u64,
    /// Whether the member votes.
    pub votes: bool,
    /// Index of the newest entry that the member is known to have. Only the leader knows it.
    pub has: Option<u64>,
    /// Address of the member for peers, `HOST:PORT`.
    pub peer: String,
    /// Addresses of the member for clients: `weir://HOST:PORT` and `http://HOST:PORT`.
    pub client: Vec<String>,
}

impl ClusterStatus {
    /// Sets the field of a line of a status; `None` if the line is malformed.
    fn take(&mut self, name: &str, line: &StatusLine<'_>) -> Option<()> {
        match name {
            "node" => self.node = line.number()?,
            "role" => self.role = line.text()?,
            "term" => self.term = line.number()?,
            "leader" => self.leader = Some(line.number()?),
            "last" => self.last = line.number()?,
            "last_term" => self.last_term = Some(line.number()?),
            "committed" => self.committed = line.number()?,
            "applied" => self.applied = line.number()?,
            "contact_ms" => self.contact_ms = Some(line.number()?),
            "synced" => self.synced = line.number()? == 1,
            "clock_ahead_ms" => self.clock_ahead_ms = line.number()?,
            "digest" => self.digest = line.text()?,
            "members" => {
                let text = line.text()?;
                let parts = text.split("; ").filter(|part| !part.is_empty());
                self.members = parts.map(MemberStatus::read).collect::<Option<_>>()?;
            }
            _ => {}
        }
        Some(())
    }
}

impl MemberStatus {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut word = || words.next();
        Some(Self {
            node: word()?.parse().ok()?,
            votes: word()? == "voter",
            has: word()?.parse().ok(),
            peer: word()?.to_owned(),
            client: words.map(str::to_owned).collect(),
        })
    }
}

/// A memory budget that all connections of a server share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetStatus {
    /// Bytes in use.
    pub bytes: u64,
    /// Bytes that may be in use.
    pub max_bytes: u64,
}

impl Status {
    /// The status of a store that this process has open.
    pub(crate) fn of_store(store: &Store) -> Self {
        let stats = store.stats();
        let (sessions, keys) = store.sessions();
        let space = store.space();
        Self {
            stats,
            log_first_index: stats.purged_index + 1,
            topics: store.topic_count(),
            sessions: sessions as u64,
            idempotency_keys: keys as u64,
            poison_cause: store.poison_cause().map(|cause| cause.to_string()),
            checkpoint_failure: store.checkpoint_failure(),
            volatile: store.volatile().map(str::to_owned),
            file_system: space.map(|space: DiskSpace| space.file_system.to_owned()),
            free_bytes: space.map(|space| space.free_bytes),
            total_bytes: space.map(|space| space.total_bytes),
            time_ms: store.now_ms(),
            server: None,
        }
    }

    /// Parses the lines of a server; `None` if one is malformed. Ignores unknown names, which a
    /// newer server may send.
    pub(crate) fn read(lines: &[u8]) -> Option<Self> {
        let mut status = Self::default();
        let mut server = ServerStatus::default();
        for line in StatusLines::new(lines) {
            let line = line?;
            if let Some(field) = status
                .number(line.name)
                .or_else(|| server.number(line.name))
            {
                *field = line.number()?;
            } else {
                status.other(&mut server, &line)?;
            }
        }
        status.server = Some(server);
        Some(status)
    }

    fn number(&mut self, name: &str) -> Option<&mut u64> {
        let stats = &mut self.stats;
        Some(match name {
            "batches" => &mut stats.batches,
            "intentions" => &mut stats.intentions,
            "syncs" => &mut stats.syncs,
            "sync_ns" => &mut stats.sync_ns,
            "valid" => &mut stats.valid,
            "invalid" => &mut stats.invalid,
            "errors" => &mut stats.errors,
            "replayed" => &mut stats.replayed,
            "refused" => &mut stats.refused,
            "snapshots" => &mut stats.snapshots,
            "derived_write_errors" => &mut stats.derived_write_errors,
            "applied_index" => &mut stats.applied_index,
            "durable_index" => &mut stats.durable_index,
            "purged_index" => &mut stats.purged_index,
            "log_bytes" => &mut stats.log_bytes,
            "scrubbed_bytes" => &mut stats.scrubbed_bytes,
            "scrub_rounds" => &mut stats.scrub_rounds,
            "damage" => &mut stats.damage,
            "log_first_index" => &mut self.log_first_index,
            "topics" => &mut self.topics,
            "sessions" => &mut self.sessions,
            "idempotency_keys" => &mut self.idempotency_keys,
            "time_ms" => &mut self.time_ms,
            _ => return None,
        })
    }

    /// Sets a field that is a text or a flag, or that may be absent.
    fn other(&mut self, server: &mut ServerStatus, line: &StatusLine<'_>) -> Option<()> {
        match line.name {
            "poison_cause" => self.poison_cause = Some(line.text()?),
            "checkpoint_failure" => self.checkpoint_failure = Some(line.text()?),
            "volatile" => self.volatile = Some(line.text()?),
            "file_system" => self.file_system = Some(line.text()?),
            "free_bytes" => self.free_bytes = Some(line.number()?),
            "total_bytes" => self.total_bytes = Some(line.number()?),
            "version" => server.version = line.text()?,
            "ready" => server.ready = line.number()? != 0,
            "memory_max" => server.memory_max = Some(line.number()?),
            "resident_bytes" => server.resident_bytes = Some(line.number()?),
            name => {
                if let Some(name) = name.strip_prefix("cluster_") {
                    let cluster = server.cluster.get_or_insert_default();
                    cluster.take(name, line)?;
                }
            }
        }
        Some(())
    }
}

impl ServerStatus {
    fn number(&mut self, name: &str) -> Option<&mut u64> {
        Some(match name {
            "uptime_ms" => &mut self.uptime_ms,
            "clock_ms" => &mut self.clock_ms,
            "writes_bytes" => &mut self.writes.bytes,
            "writes_bytes_max" => &mut self.writes.max_bytes,
            "costly_writes_bytes" => &mut self.costly_writes.bytes,
            "costly_writes_bytes_max" => &mut self.costly_writes.max_bytes,
            "bodies_bytes" => &mut self.bodies.bytes,
            "bodies_bytes_max" => &mut self.bodies.max_bytes,
            "answers_bytes" => &mut self.answers.bytes,
            "answers_bytes_max" => &mut self.answers.max_bytes,
            "connections_http" => &mut self.connections_http,
            "connections_native" => &mut self.connections_native,
            "connections_unauthenticated" => &mut self.connections_unauthenticated,
            "connections_max" => &mut self.connections_max,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_an_earlier_version_reports_no_term_of_its_newest_entry() {
        let last_term = |lines: &[u8]| {
            let cluster = Status::read(lines)?.server?.cluster?;
            Some((cluster.term, cluster.last, cluster.last_term))
        };
        let earlier = b"cluster_term 7\ncluster_last 41";
        assert_eq!(last_term(earlier), Some((7, 41, None)));
        let now = b"cluster_term 7\ncluster_last 41\ncluster_last_term 5";
        assert_eq!(last_term(now), Some((7, 41, Some(5))));
    }
}
