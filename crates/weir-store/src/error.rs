//! The errors of the store.
//!
//! Each error says what was touched, whose fault it is ([`StoreError::fault`]),
//! and whether a retry can help ([`StoreError::retry`]). Invariant: no error is
//! only a text, and none hides its place.

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
    /// The caller asked for something that cannot be.
    Caller,
    /// Disk, file system, limits of the process, another process.
    Environment,
    /// The bytes on disk are not what was written.
    Data,
}

/// Whether the same call can succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Not with these arguments or these bytes.
    Never,
    /// Yes, once the cause is gone (space, the other process).
    Later,
    /// Only after the store was closed and opened again.
    Reopen,
}

/// What was being done to a file or directory when the system refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoVerb {
    /// Opening or creating.
    Open,
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Making durable.
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

/// Any failure of the store. Paths are relative to the store directory unless
/// a field says otherwise; positions are byte offsets in that file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Bytes that must be there are missing or wrong. Nothing was changed.
    #[error("damaged: {file} at byte {position}: {what} (from sequence {sequence})")]
    Damage {
        /// The file.
        file: String,
        /// Offset of the first wrong thing.
        position: u64,
        /// What is wrong with it.
        what: &'static str,
        /// First batch sequence concerned, 0 when not known or not a log file.
        sequence: u64,
    },
    /// A file of a later format; it was left untouched.
    #[error("{file} has format {found}, this program knows up to {supported}")]
    NewerFormat {
        /// The file.
        file: String,
        /// Format number found.
        found: u16,
        /// Highest format number known here.
        supported: u16,
    },
    /// Bytes with a right checksum that this format does not know; written by a
    /// later program. Left untouched.
    #[error("{file} holds something of a later program at byte {position}")]
    UnknownContent {
        /// The file.
        file: String,
        /// Where.
        position: u64,
    },
    /// A file that belongs to another store.
    #[error("{file} belongs to another store")]
    ForeignStore {
        /// The file.
        file: String,
    },
    /// There is no log, and creating one was not allowed.
    #[error("there is no {what} in this directory")]
    Missing {
        /// What was looked for.
        what: &'static str,
    },
    /// Another process has the store open.
    #[error("{directory} is in use by process {pid} ({program})")]
    Locked {
        /// Directory as given by the caller.
        directory: String,
        /// Process id of the holder, 0 when it could not be read.
        pid: u32,
        /// Name of the holder's program, may be empty.
        program: String,
        /// When the holder opened the store, Unix time in seconds, 0 unknown.
        started_unix_s: u64,
        /// Socket in the directory on which a server of it may be reached,
        /// unless there is none; a server that was killed leaves one behind.
        socket: Option<PathBuf>,
    },
    /// A write or sync failed; nothing more can be written through this handle.
    /// Reads continue. Every later write returns the same cause.
    #[error("the store takes no more writes: {cause}; close and open the store again")]
    Poisoned {
        /// The first failure. Never itself `Poisoned`.
        cause: Arc<StoreError>,
    },
    /// The write or sync of the log that this call was part of failed, or the
    /// log could not be applied. Whether its intentions are in the log is not
    /// known before the store is opened again; under a session, the same nonces
    /// sent again tell. The store takes no more writes.
    #[error("the outcome of the write is not known: {cause}; close and open the store again")]
    InDoubt {
        /// The failure. Never itself `Poisoned` or `InDoubt`.
        cause: Arc<StoreError>,
    },
    /// A part of the call is or will be in the log, and the rest is not. Under a
    /// session, the same nonces sent again execute what is missing, each at most
    /// once. The store goes on.
    #[error("a part of the call may have been executed, the rest was not: {cause}")]
    PartlyLogged {
        /// Why the rest is not in the log. Never itself `Poisoned`, `InDoubt` or
        /// `PartlyLogged`.
        cause: Box<StoreError>,
    },
    /// A thread of this process panicked before it answered.
    #[error("{thread} panicked before it answered")]
    Panicked {
        /// What the thread did.
        thread: &'static str,
    },
    /// Not enough space; nothing was written. Reads go on.
    #[error("disk full: {}", no_room(*needed_bytes, *free_bytes))]
    DiskFull {
        /// Bytes asked for, the reserve included.
        needed_bytes: u64,
        /// Bytes the file system reported free.
        free_bytes: u64,
    },
    /// A size or count above its limit; nothing was written.
    #[error("{what} is {value}, the limit is {limit}")]
    LimitExceeded {
        /// What was measured, with its unit.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// The value.
        value: u64,
    },
    /// A log index outside of what the call accepts.
    #[error("index {index} is outside {low}..={high}: {what}")]
    IndexOutOfRange {
        /// What the index was for.
        what: &'static str,
        /// The index given.
        index: u64,
        /// Lowest accepted.
        low: u64,
        /// Highest accepted.
        high: u64,
    },
    /// An intention that cannot be run again: the log before it was compacted
    /// away, and no snapshot is old enough.
    #[error(
        "intention {intention} cannot be run again: the log before it was compacted away and no \
         snapshot is older; the first that can be is {first}"
    )]
    Gone {
        /// The intention.
        intention: IntentionOffset,
        /// The first one that can be run again.
        first: IntentionOffset,
    },
    /// An intention that is over a limit or makes no sense. None of its call
    /// was written.
    #[error("intention {index} of the call is refused: {error}")]
    Refused {
        /// Which intention of the call, from 0.
        index: usize,
        /// Why.
        error: IntentionError,
    },
    /// A name that never was a topic.
    #[error("there is no topic {name}")]
    TopicUnknown {
        /// The name.
        name: String,
    },
    /// A topic has no group of this name.
    #[error("topic {topic} has no group {group}")]
    GroupUnknown {
        /// The topic.
        topic: String,
        /// The name.
        group: String,
    },
    /// The records that were asked for are not there any more: retention has
    /// removed them. Reading can start at `first`.
    #[error("records before {first} are gone; there are {first} to {last}")]
    RecordsGone {
        /// Offset of the first record that is left, or that will come.
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
    /// The store has topics with programs, or is asked for one, and was opened
    /// without an engine that runs them.
    #[error("the store was opened without an engine for programs")]
    ProgramsOff,
    /// This machine cannot run a program.
    #[error("a program cannot be run here: {why}")]
    ProgramUnable {
        /// What is missing.
        why: String,
    },
    /// The directory is not what was asked for: a node of this cluster, or a store
    /// that is no node.
    #[error("{why}")]
    NodeRefused {
        /// What it is, and what to do.
        why: String,
    },
    /// Another process reported this error, or cannot be reached: the server of a
    /// remote store, or the log provider of a replica.
    #[error("{text}")]
    Remote {
        /// Which error it is.
        code: ErrorCode,
        /// What it says.
        text: String,
    },
    /// Another node of the cluster leads. Nothing was appended.
    #[error("node {node} leads; its clients connect to {client}")]
    Elsewhere {
        /// Number of the node that leads.
        node: u64,
        /// Addresses of that node for clients, separated by spaces; empty if they
        /// are not known.
        client: String,
    },
    /// The store is being closed.
    #[error("the store is closed")]
    Closed,
    /// The store was opened for reading only, and the call writes.
    #[error("the store was opened for reading only")]
    ReadOnly,
    /// The process that writes the store changed or removed files while a
    /// read-only open of it, or a reader of it, read them.
    #[error("the store was changed while it was read ({attempts} attempts): {cause}")]
    ChangedWhileRead {
        /// How often the files were read.
        attempts: u32,
        /// What the last attempt met.
        cause: Box<StoreError>,
    },
    /// The log after the newest snapshot makes more records than a read-only open
    /// may keep outside of the directory.
    #[error(
        "the log after the newest snapshot makes {bytes} bytes of records so far, and an open for \
         reading only keeps {limit_bytes} at most"
    )]
    ReadOnlyLimit {
        /// [`OpenOptions::read_only_bytes_max`](crate::OpenOptions::read_only_bytes_max).
        limit_bytes: u64,
        /// Bytes of records when the open stopped.
        bytes: u64,
    },
    /// A topic whose options do not allow a compaction.
    #[error("topic {name} has compaction off")]
    CompactionOff {
        /// The topic.
        name: String,
    },
    /// A directory that has to be empty is not.
    #[error("{directory} is not empty")]
    NotEmpty {
        /// Directory as given by the caller.
        directory: String,
    },
    /// The system refused.
    #[error("cannot {verb} {subject}{}: {source}", at_byte(*offset))]
    Io {
        /// File or directory.
        subject: String,
        /// Byte offset of a read or write, where it is known.
        offset: Option<u64>,
        /// What was being done.
        verb: IoVerb,
        /// The answer of the system.
        source: io::Error,
    },
}

fn no_room(needed_bytes: u64, free_bytes: u64) -> String {
    if free_bytes < needed_bytes {
        return format!(
            "{needed_bytes} bytes needed with the reserve of 16 MiB, {free_bytes} free"
        );
    }
    format!(
        "a file cannot grow to {needed_bytes} bytes although {free_bytes} are free: a limit on the \
         size of files (RLIMIT_FSIZE, `ulimit -f`) or a quota"
    )
}

fn at_byte(offset: Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at byte {offset}"))
}

impl StoreError {
    /// Builds [`StoreError::Io`]; made for `map_err`.
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

    /// This error of a part of a call, for the whole call: an earlier part may be
    /// in the log.
    #[must_use]
    pub(crate) fn after_a_part(self) -> Self {
        match self.in_doubt() {
            error @ (Self::InDoubt { .. } | Self::PartlyLogged { .. }) => error,
            error => Self::PartlyLogged {
                cause: Box::new(error),
            },
        }
    }

    /// This error for a call whose intentions are not in the log.
    pub(crate) fn without_doubt(&self) -> Self {
        match self.for_another() {
            Self::InDoubt { cause } => Self::Poisoned { cause },
            other => other,
        }
    }

    /// This failure for another one of the callers that share a batch.
    pub(crate) fn for_another(&self) -> Self {
        match self {
            Self::DiskFull {
                needed_bytes,
                free_bytes,
            } => Self::DiskFull {
                needed_bytes: *needed_bytes,
                free_bytes: *free_bytes,
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

    /// [`root`](Self::root) by value, if nobody else keeps the cause.
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

    /// Its number, which is the same in every language.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Damage { .. } | Self::ForeignStore { .. } => ErrorCode::Damaged,
            Self::Apply { .. } => ErrorCode::Diverged,
            Self::NewerFormat { .. } | Self::UnknownContent { .. } => ErrorCode::FormatNewer,
            Self::Missing { .. } => ErrorCode::NotAStore,
            Self::Locked { .. } => ErrorCode::Locked,
            Self::Poisoned { .. } => ErrorCode::IoFatal,
            Self::InDoubt { .. } | Self::PartlyLogged { .. } => ErrorCode::Indeterminate,
            Self::Panicked { .. } => ErrorCode::Internal,
            Self::DiskFull { .. } => ErrorCode::DiskFull,
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
            Self::Damage { .. } | Self::ForeignStore { .. } | Self::Apply { .. } => Fault::Data,
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
            | Self::Io { .. }
            | Self::ProgramUnable { .. }
            | Self::Elsewhere { .. }
            | Self::Remote { .. } => Fault::Environment,
        }
    }

    /// Whether trying again can help.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Locked { .. } | Self::DiskFull { .. } => Retry::Later,
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

    /// True when the process or the system has no free descriptor (EMFILE, ENFILE). Another try
    /// can succeed.
    pub(crate) fn lacks_descriptors(&self) -> bool {
        matches!(self, Self::Io { source, .. } if lacks_descriptors(source))
    }

    /// True when a file that should be there is not.
    pub fn is_missing_file(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// True for [`StoreError::Damage`].
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
