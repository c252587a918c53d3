//! The errors of the store.
//!
//! Each error names the file or item that failed, whose fault it is ([`StoreError::fault`]), and
//! whether a retry can help ([`StoreError::retry`]).
//!
//! Invariant: an error is a typed value, never only a text; its fields name the file or item.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use weir_core::intention::IntentionError;
use weir_core::{ApplyError, ErrorCode, IntentionOffset};

use crate::log_index::LogIndex;

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The caller requested something that is not possible.
    Caller,
    /// The disk, the file system, limits of the process, or another process.
    Environment,
    /// The bytes on disk are not what was written.
    Data,
}

/// Whether the same call can succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// No; these arguments or bytes always fail.
    Never,
    /// Yes, once the cause is removed (space, the other process).
    Later,
    /// Only after the store is closed and opened again.
    Reopen,
}

/// The operation on a file or directory that the operating system rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoVerb {
    /// Opening or creating.
    Open,
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Syncing.
    Sync,
    /// Reserving space or setting the length.
    Resize,
    /// Renaming.
    Rename,
    /// Removing.
    Remove,
    /// Listing names.
    List,
    /// Locking.
    Lock,
    /// Looking for a name.
    Find,
}

impl fmt::Display for IoVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Resize => "resize",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::List => "list",
            Self::Lock => "lock",
            Self::Find => "find",
        })
    }
}

/// Any failure of the store. Paths are relative to the store directory unless a field states
/// otherwise. Positions are byte offsets in the named file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Required bytes are missing or wrong. Nothing was changed.
    #[error("damaged: {file} at byte {position}: {what} (from sequence {sequence})")]
    Damage {
        /// The file.
        file: String,
        /// Offset of the first wrong byte.
        position: u64,
        /// What is wrong with it.
        what: &'static str,
        /// First affected batch sequence; 0 if unknown or not a log file.
        sequence: u64,
    },
    /// A file of a later format; the file was not changed.
    #[error(
        "{file} has format {found}; this program supports formats up to {supported}: use a newer program"
    )]
    NewerFormat {
        /// The file.
        file: String,
        /// Format number found.
        found: u16,
        /// Highest format number that this program supports.
        supported: u16,
    },
    /// Bytes with a valid checksum that this format does not define; a later program wrote them.
    /// The file was not changed.
    #[error("{file} at byte {position} was written by a newer program: use that program")]
    UnknownContent {
        /// The file.
        file: String,
        /// Byte offset in the file.
        position: u64,
    },
    /// A file that belongs to another store.
    #[error("{file} belongs to another store")]
    ForeignStore {
        /// The file.
        file: String,
    },
    /// The log, or another item that was looked for, does not exist and was not created.
    #[error("there is no {what} in this directory")]
    Missing {
        /// What was looked for.
        what: &'static str,
    },
    /// Another process has the store open.
    #[error("{directory} is in use by process {pid} ({program})")]
    Locked {
        /// Directory, as the caller specified it.
        directory: String,
        /// Process id of the holder; 0 if it could not be read.
        pid: u32,
        /// Program name of the holder; may be empty.
        program: String,
        /// When the holder opened the store, in seconds since 1970-01-01 UTC; 0 if unknown.
        started_unix_s: u64,
        /// Socket in the directory on which the holder's server may be reachable; `None` if there
        /// is no socket. The socket of a killed server remains.
        socket: Option<PathBuf>,
    },
    /// A write or sync failed; nothing more can be written through this handle. Reads continue.
    /// Every later write returns this cause.
    #[error("the store accepts no more writes: {cause}; close the store and open it again")]
    Poisoned {
        /// The first failure. Never itself `Poisoned`.
        cause: Arc<StoreError>,
    },
    /// The log write or sync of this call failed, or the log could not be applied. Whether the
    /// intentions are in the log is unknown until the store is opened again. Under a session,
    /// sending the same nonces again returns their outcomes. The store accepts no more writes.
    #[error("the outcome of the write is unknown: {cause}; close the store and open it again")]
    InDoubt {
        /// The failure. Never itself `Poisoned` or `InDoubt`.
        cause: Arc<StoreError>,
    },
    /// A part of the call is or will be in the log, and the rest is not. Under a session, sending
    /// the same nonces again executes the missing intentions, each at most once. The store still
    /// accepts writes.
    #[error("only a part of the call may have been executed: {cause}")]
    PartlyLogged {
        /// Why the rest is not in the log. Never itself `Poisoned`, `InDoubt` or
        /// `PartlyLogged`.
        cause: Box<StoreError>,
    },
    /// A thread of this process panicked before it returned a result.
    #[error("{thread} panicked before it returned a result")]
    Panicked {
        /// Description of the thread.
        thread: &'static str,
    },
    /// Not enough space; nothing was written. Reads continue.
    #[error("disk full: {}", disk_full_text(*needed_bytes, *free_bytes))]
    DiskFull {
        /// Bytes requested, including the reserve.
        needed_bytes: u64,
        /// Bytes that the file system reported as free.
        free_bytes: u64,
    },
    /// Records cannot be written to the files of topics, and the memory for such records is used up.
    /// Nothing was written. Reads continue, and writes resume when the files can be written.
    #[error(
        "the store accepts no writes, because {unwritten_bytes} bytes of topics cannot be written: \
         {cause}"
    )]
    TopicsUnwritable {
        /// Bytes that wait in memory.
        unwritten_bytes: u64,
        /// The last failure. Not a lack of space, which is [`DiskFull`](Self::DiskFull).
        cause: Arc<StoreError>,
    },
    /// A size or count above its limit; nothing was written.
    #[error("{what}: {value}, the limit is {limit}")]
    LimitExceeded {
        /// The measured quantity, with its unit.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// The value.
        value: u64,
    },
    /// A log index outside of the range that the call accepts.
    #[error("{what}: {index} is not between {low} and {high}")]
    IndexOutOfRange {
        /// The purpose of the index.
        what: &'static str,
        /// The index of the call.
        index: u64,
        /// Lowest accepted index.
        low: u64,
        /// Highest accepted index.
        high: u64,
    },
    /// An intention that cannot be replayed: the log before it was purged, and no snapshot is old
    /// enough.
    #[error(
        "intention {intention} cannot be replayed: the log before it was purged, and no snapshot is \
         older; the first that can be replayed is {first}"
    )]
    Gone {
        /// The intention.
        intention: IntentionOffset,
        /// The first intention that can be replayed.
        first: IntentionOffset,
    },
    /// An intention exceeds a limit or is invalid. Nothing of its call was written.
    #[error("intention {index} of the call is invalid: {error}")]
    Refused {
        /// Position of the intention in the call, from 0.
        index: usize,
        /// Why.
        error: IntentionError,
    },
    /// A name that no topic has ever had.
    #[error("there is no topic {name}")]
    TopicUnknown {
        /// The name.
        name: String,
    },
    /// The topic has no group of this name.
    #[error("topic {topic} has no group {group}")]
    GroupUnknown {
        /// The topic.
        topic: String,
        /// The name.
        group: String,
    },
    /// Retention has removed the requested records. Reading can start at `first`.
    #[error("records before {first} were removed; the topic has {first} to {last}")]
    RecordsGone {
        /// Offset of the first record that exists, or of the next record if none exists.
        first: u64,
        /// Offset of the newest record.
        last: u64,
    },
    /// A log entry that the machine cannot apply.
    #[error("log entry {index} cannot be applied: {error}")]
    Apply {
        /// The entry.
        index: LogIndex,
        /// Why.
        error: ApplyError,
    },
    /// The store has topics with programs, or the call creates one, but the store was opened
    /// without an engine for programs.
    #[error("the store was opened without an engine for programs")]
    ProgramsOff,
    /// This computer cannot run a program.
    #[error("this computer cannot run the program: {why}")]
    ProgramUnable {
        /// What is missing.
        why: String,
    },
    /// The directory is not of the requested kind: a node of this cluster, or a store that is not a
    /// node.
    #[error("{why}")]
    NodeRefused {
        /// What the directory contains, and what to do.
        why: String,
    },
    /// The vote file of a node is missing or damaged. The node has forgotten whom it voted for and
    /// what it acknowledged, so it must not take part in the cluster again, and is not a separate
    /// store.
    #[error(
        "the directory is a node of a cluster that has lost its vote (cluster/vote {what}): it has \
         forgotten its votes and what it acknowledged"
    )]
    VoteLost {
        /// What is wrong with the file.
        what: &'static str,
    },
    /// Another process reported this error or cannot be reached: the server of a remote store, or
    /// the log provider of a replica.
    #[error("{text}")]
    Remote {
        /// Its error code.
        code: ErrorCode,
        /// Its message.
        text: String,
    },
    /// Another node of the cluster is the leader. Nothing was appended.
    #[error("node {node} is the leader; connect to {client}")]
    Elsewhere {
        /// Number of the leader.
        node: u64,
        /// Client addresses of the leader, separated by spaces; empty if they are unknown.
        client: String,
    },
    /// The store is being closed.
    #[error("the store is closed")]
    Closed,
    /// The call writes, but the store was opened for reading only.
    #[error("the store was opened for reading only")]
    ReadOnly,
    /// The process that writes the store changed or removed files while a read-only open or its
    /// reader read them.
    #[error("the store was changed while it was read ({attempts} attempts): {cause}")]
    ChangedWhileRead {
        /// How often the files were read.
        attempts: u32,
        /// The error of the last attempt.
        cause: Box<StoreError>,
    },
    /// The log after the newest snapshot creates more records than a read-only open may store
    /// outside of the directory.
    #[error(
        "the log after the newest snapshot has {bytes} bytes of records or more; a read-only open \
         keeps at most {limit_bytes}"
    )]
    ReadOnlyLimit {
        /// [`OpenOptions::read_only_bytes_max`](crate::OpenOptions::read_only_bytes_max).
        limit_bytes: u64,
        /// Bytes of records when the open failed.
        bytes: u64,
    },
    /// The topic has compaction off.
    #[error("compaction of topic {name} is off")]
    CompactionOff {
        /// The topic.
        name: String,
    },
    /// The directory must be empty, but is not.
    #[error("{directory} is not empty")]
    NotEmpty {
        /// Directory, as the caller specified it.
        directory: String,
    },
    /// The operating system rejected an operation.
    #[error("cannot {verb} {subject}{}: {source}", at_byte(*offset))]
    Io {
        /// File or directory.
        subject: String,
        /// Byte offset of a read or write, if known.
        offset: Option<u64>,
        /// The operation.
        verb: IoVerb,
        /// The error of the operating system.
        source: io::Error,
    },
}

fn disk_full_text(needed_bytes: u64, free_bytes: u64) -> String {
    if free_bytes < needed_bytes {
        return format!(
            "{needed_bytes} bytes are needed, including the reserve of 16 MiB; {free_bytes} are free"
        );
    }
    format!(
        "a file cannot grow to {needed_bytes} bytes, although {free_bytes} are free: check the limit on \
         the size of files (RLIMIT_FSIZE, `ulimit -f`) and quotas"
    )
}

fn at_byte(offset: Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at byte {offset}"))
}

impl StoreError {
    /// Builds [`StoreError::Io`], for use in `map_err`.
    pub fn io(verb: IoVerb, subject: &str) -> impl FnOnce(io::Error) -> Self + use<'_> {
        move |source| Self::Io {
            subject: subject.to_owned(),
            offset: None,
            verb,
            source,
        }
    }

    /// Builds [`StoreError::Io`] for a read or write at a byte offset.
    pub fn io_at(
        verb: IoVerb,
        subject: &str,
        offset: u64,
    ) -> impl FnOnce(io::Error) -> Self + use<'_> {
        move |source| Self::Io {
            subject: subject.to_owned(),
            offset: Some(offset),
            verb,
            source,
        }
    }

    /// The failure that poisoned the store, or this error itself.
    #[must_use]
    pub fn root(&self) -> &Self {
        match self {
            Self::Poisoned { cause } | Self::InDoubt { cause } => cause,
            Self::PartlyLogged { cause } => cause,
            other => other,
        }
    }

    /// The error of a call whose intentions may be in the log.
    #[must_use]
    pub(crate) fn in_doubt(self) -> Self {
        match self {
            Self::Poisoned { cause } => Self::InDoubt { cause },
            other => other,
        }
    }

    /// Converts the error of a part of a call into the error of the whole call: an earlier part may
    /// be in the log.
    #[must_use]
    pub(crate) fn partly_logged(self) -> Self {
        match self.in_doubt() {
            error @ (Self::InDoubt { .. } | Self::PartlyLogged { .. }) => error,
            error => Self::PartlyLogged {
                cause: Box::new(error),
            },
        }
    }

    /// This error for a call whose intentions are not in the log.
    pub(crate) fn not_logged(&self) -> Self {
        match self.copy_for_caller() {
            Self::InDoubt { cause } => Self::Poisoned { cause },
            other => other,
        }
    }

    /// A copy of this failure for another caller that shares the batch.
    pub(crate) fn copy_for_caller(&self) -> Self {
        match self {
            Self::DiskFull {
                needed_bytes,
                free_bytes,
            } => Self::DiskFull {
                needed_bytes: *needed_bytes,
                free_bytes: *free_bytes,
            },
            Self::TopicsUnwritable {
                unwritten_bytes,
                cause,
            } => Self::TopicsUnwritable {
                unwritten_bytes: *unwritten_bytes,
                cause: Arc::clone(cause),
            },
            Self::Poisoned { cause } => Self::Poisoned {
                cause: Arc::clone(cause),
            },
            Self::InDoubt { cause } => Self::InDoubt {
                cause: Arc::clone(cause),
            },
            Self::Io {
                subject,
                offset,
                verb,
                source,
            } => Self::Io {
                subject: subject.clone(),
                offset: *offset,
                verb: *verb,
                source: match source.raw_os_error() {
                    Some(errno) => io::Error::from_raw_os_error(errno),
                    None => io::Error::new(source.kind(), source.to_string()),
                },
            },
            Self::LimitExceeded { what, limit, value } => Self::LimitExceeded {
                what,
                limit: *limit,
                value: *value,
            },
            other => Self::Io {
                subject: "the log".to_owned(),
                offset: None,
                verb: IoVerb::Write,
                source: io::Error::other(other.to_string()),
            },
        }
    }

    /// This error as the cause of a poisoned store.
    pub(crate) fn into_cause(self) -> Arc<Self> {
        match self {
            Self::Poisoned { cause } | Self::InDoubt { cause } => cause,
            other => Arc::new(other),
        }
    }

    /// [`root`](Self::root) by value, if the cause has no other owner.
    pub(crate) fn into_root(self) -> Self {
        match self {
            Self::Poisoned { cause } => {
                Arc::try_unwrap(cause).unwrap_or_else(|cause| Self::Poisoned { cause })
            }
            other => other,
        }
    }

    /// Builds [`StoreError::Damage`].
    pub fn damage(file: &str, position: u64, what: &'static str, sequence: u64) -> Self {
        Self::Damage {
            file: file.to_owned(),
            position,
            what,
            sequence,
        }
    }

    /// The error code, which is equal in every language.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Damage { .. } | Self::ForeignStore { .. } | Self::VoteLost { .. } => {
                ErrorCode::Damaged
            }
            Self::Apply { .. } => ErrorCode::Diverged,
            Self::NewerFormat { .. } | Self::UnknownContent { .. } => ErrorCode::FormatNewer,
            Self::Missing { .. } => ErrorCode::NotAStore,
            Self::Locked { .. } => ErrorCode::Locked,
            Self::Poisoned { .. } => ErrorCode::IoFatal,
            Self::InDoubt { .. } | Self::PartlyLogged { .. } => ErrorCode::Indeterminate,
            Self::Panicked { .. } => ErrorCode::Internal,
            Self::DiskFull { .. } => ErrorCode::DiskFull,
            Self::TopicsUnwritable { .. } => ErrorCode::ReadOnly,
            Self::LimitExceeded { .. } => ErrorCode::TooLarge,
            Self::IndexOutOfRange { .. } => ErrorCode::BadRequest,
            Self::Gone { .. } | Self::RecordsGone { .. } => ErrorCode::Gone,
            Self::GroupUnknown { .. } => ErrorCode::GroupUnknown,
            Self::Refused { error, .. } => error.code(),
            Self::TopicUnknown { .. } => ErrorCode::TopicUnknown,
            Self::ProgramsOff | Self::ProgramUnable { .. } => ErrorCode::EngineMissing,
            Self::Closed => ErrorCode::Closed,
            Self::ReadOnly => ErrorCode::OpenedReadOnly,
            Self::ChangedWhileRead { .. } => ErrorCode::ChangedWhileRead,
            Self::ReadOnlyLimit { .. } => ErrorCode::ReadOnlyLimit,
            Self::NotEmpty { .. } => ErrorCode::StoreExists,
            Self::CompactionOff { .. } | Self::NodeRefused { .. } => ErrorCode::BadOption,
            Self::Remote { code, .. } => *code,
            Self::Elsewhere { .. } => ErrorCode::Redirect,
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    ErrorCode::NotPermitted
                }
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge => ErrorCode::DiskFull,
                _ if lacks_descriptors(source) => ErrorCode::TooFewDescriptors,
                _ => ErrorCode::Io,
            },
        }
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Damage { .. }
            | Self::ForeignStore { .. }
            | Self::VoteLost { .. }
            | Self::Apply { .. } => Fault::Data,
            Self::LimitExceeded { .. }
            | Self::IndexOutOfRange { .. }
            | Self::Gone { .. }
            | Self::Missing { .. }
            | Self::Refused { .. }
            | Self::TopicUnknown { .. }
            | Self::GroupUnknown { .. }
            | Self::RecordsGone { .. }
            | Self::NotEmpty { .. }
            | Self::CompactionOff { .. }
            | Self::NodeRefused { .. }
            | Self::Closed
            | Self::ReadOnly
            | Self::ProgramsOff
            | Self::NewerFormat { .. }
            | Self::UnknownContent { .. } => Fault::Caller,
            Self::Locked { .. }
            | Self::Poisoned { .. }
            | Self::InDoubt { .. }
            | Self::PartlyLogged { .. }
            | Self::Panicked { .. }
            | Self::ChangedWhileRead { .. }
            | Self::ReadOnlyLimit { .. }
            | Self::DiskFull { .. }
            | Self::TopicsUnwritable { .. }
            | Self::Io { .. }
            | Self::ProgramUnable { .. }
            | Self::Elsewhere { .. }
            | Self::Remote { .. } => Fault::Environment,
        }
    }

    /// Whether a retry can succeed.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Locked { .. } | Self::DiskFull { .. } | Self::TopicsUnwritable { .. } => {
                Retry::Later
            }
            Self::Poisoned { .. }
            | Self::InDoubt { .. }
            | Self::Panicked { .. }
            | Self::ChangedWhileRead { .. }
            | Self::ReadOnlyLimit { .. }
            | Self::Io { .. } => Retry::Reopen,
            Self::PartlyLogged { cause } => cause.retry(),
            _ => Retry::Never,
        }
    }

    /// Whether the process or the system has no free descriptor (EMFILE, ENFILE). A retry can
    /// succeed.
    pub(crate) fn lacks_descriptors(&self) -> bool {
        matches!(self, Self::Io { source, .. } if lacks_descriptors(source))
    }

    /// Whether a file does not exist.
    pub fn is_missing_file(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether this is [`StoreError::Damage`].
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damage { .. })
    }
}

/// Whether the process or the system has no free descriptor (EMFILE, ENFILE).
pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let number = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE]
        .map(|errno| Some(errno.raw_os_error()))
        .contains(&number)
}
