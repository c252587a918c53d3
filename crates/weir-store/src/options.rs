//! The options to open a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use weir_core::ProgramHost;
use weir_core::intention::IntentionLimits;
#[cfg(doc)]
use weir_core::limits::FUEL_DEFAULT;
use weir_core::limits::FUEL_OPTION_MAX_DEFAULT;

use crate::clock::{Clock, SystemClock};
use crate::lock::OnLocked;

/// The durability level: when an intention is acknowledged. At every level, the log after a crash
/// is a prefix of the log before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged after the sync of its batch. All waiting calls share one write and one sync.
    /// A crash loses no acknowledged intention.
    Group,
    /// As `Group`, but each call has a separate write and sync. For measurements.
    Each,
    /// Acknowledged after the write of its batch, which is synced within this time. A power cut
    /// loses at most the writes of this time.
    Interval(Duration),
    /// Acknowledged after the write of its batch. The log is not synced before the store is closed.
    /// A power cut can lose all writes since the open; a killed process loses none.
    Memory,
}

impl Durability {
    /// Returns the name of the level.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Each => "each",
            Self::Interval(_) => "interval",
            Self::Memory => "memory",
        }
    }

    /// Whether an acknowledged intention is synced.
    #[must_use]
    pub const fn is_synced(self) -> bool {
        matches!(self, Self::Group | Self::Each)
    }
}

/// Options of the background scrub of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrub {
    /// Maximum number of bytes read in a second.
    pub bytes_per_s: u64,
    /// Minimum time between the starts of two rounds. The first round starts this time after the
    /// open, or after 10 minutes if that is earlier.
    pub every: Duration,
}

/// Options for [`Store::open`](crate::Store::open).
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// When an intention is acknowledged; default `Group`.
    pub durability: Durability,
    /// Whether the open creates a store in a directory without one; default `true`.
    pub create: bool,
    /// Whether the store is only read; default `false`. A read-only open writes nothing into the
    /// directory and acquires no lock, so another process can write to the store at the same
    /// time. Reads return the state at the moment of the open: all writes acknowledged until
    /// then. Writes fail with [`StoreError::ReadOnly`](crate::StoreError).
    /// See docs/decisions/0059.
    pub read_only: bool,
    /// Maximum bytes of records that a read-only open stores outside of the directory; default
    /// 4 GiB. These are the records that only the log has. They are stored in an unnamed file in
    /// the directory for temporary files, or in memory if that file cannot be written. Above the
    /// limit, the open fails with [`StoreError::ReadOnlyLimit`](crate::StoreError).
    pub read_only_bytes_max: u64,
    /// How long an open waits while another process has the directory open for
    /// writing; default 0. A read-only open never waits.
    pub lock_wait: Duration,
    /// Called when another process has the directory open for writing.
    pub on_locked: Option<OnLocked>,
    /// Limits for the bytes of keys and values. The limits of the model apply too.
    pub limits: IntentionLimits,
    /// A checkpoint starts when the log after the newest snapshot has this many bytes; default
    /// 1 GiB (docs/decisions/0008). If the programs in this log would make a replay slow, a
    /// checkpoint starts earlier, and at a close (docs/decisions/0058).
    pub snapshot_log_bytes: u64,
    /// Newest bytes of the log that a purge after a snapshot retains; default 256 MiB. A purge
    /// removes whole segments that are covered by the second newest snapshot. With `None`, only
    /// [`Store::compact_log`](crate::Store::compact_log) purges.
    pub log_keep_bytes: Option<u64>,
    /// Name of this program, for the error message of another process that opens the store.
    pub program: String,
    /// Bytes of one ordinary log segment; default 64 MiB.
    pub log_segment_bytes: u64,
    /// Seed of hash tables; changes no outcome. `None`: chosen by the system.
    pub seed: Option<u64>,
    /// Maximum delay before the cursor of a group is written, if it was moved without waiting;
    /// default 500 ms. The cursor of a group is written at most once in this time.
    pub cursor_flush: Duration,
    /// Interval at which retention checks topics with limits for records to remove; default 60 s.
    /// With `None`, only [`Store::retain`](crate::Store::retain) removes records.
    pub retention_every: Option<Duration>,
    /// Options of a thread that rereads the whole store periodically, to find damage early. With
    /// `None`, the default, only [`Store::scrub`](crate::Store::scrub) rereads it. A server sets
    /// this option.
    pub scrub: Option<Scrub>,
    /// Runs the programs of topics. With `None`, a store that has programs cannot be opened, and
    /// no program can be created.
    pub host: Option<Arc<dyn ProgramHost>>,
    /// The source of time; default the clocks of the system.
    pub clock: Arc<dyn Clock>,
    /// Whether the open accepts a wall clock that is more than
    /// [`CLOSED_MS_MAX`](crate::clock::CLOSED_MS_MAX) ahead of the newest stamp; default `false`.
    pub believe_clock: bool,
    /// Maximum fuel of one call that the options of a topic may request (`fuel_max`); default
    /// [`FUEL_OPTION_MAX_DEFAULT`]. Values below [`FUEL_DEFAULT`], the fuel of topics that request
    /// none, count as [`FUEL_DEFAULT`]. The maximum is checked only when the options are
    /// submitted: a topic that already has more keeps it, and a replay does not check it.
    pub program_fuel_max: u64,
    /// Called before the first and after each log entry that an open replays, on the thread of the
    /// open.
    pub on_progress: Option<OnProgress>,
}

/// The progress of an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenProgress {
    /// Number of log entries replayed so far.
    pub entries_done: u64,
    /// Number of all log entries to replay, including `entries_done`.
    pub entries: u64,
}

impl OpenProgress {
    /// Returns the replayed share of the entries, in percent.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let done = u128::from(self.entries_done) * 100;
        let share = done.checked_div(u128::from(self.entries)).unwrap_or(100);
        u64::try_from(share).unwrap_or(100)
    }
}

/// An observer of an open; see [`OpenOptions::on_progress`].
#[derive(Clone)]
pub struct OnProgress(Arc<dyn Fn(OpenProgress) + Send + Sync>);

impl OnProgress {
    /// Creates an observer that calls `observer`, which should return soon: the open waits for it.
    #[must_use]
    pub fn new(observer: impl Fn(OpenProgress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observer))
    }

    pub(crate) fn call(&self, progress: OpenProgress) {
        (self.0)(progress);
    }
}

impl fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnProgress")
    }
}

impl OpenOptions {
    /// Returns the default options of a read-only open; see [`read_only`](Self::read_only).
    #[must_use]
    pub fn read_only() -> Self {
        Self {
            create: false,
            read_only: true,
            ..Self::default()
        }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        let program = std::env::current_exe().ok();
        let name = program.as_deref().and_then(std::path::Path::file_name);
        Self {
            durability: Durability::Group,
            create: true,
            read_only: false,
            read_only_bytes_max: 4 << 30,
            lock_wait: Duration::ZERO,
            on_locked: None,
            limits: IntentionLimits::default(),
            snapshot_log_bytes: 1 << 30,
            log_keep_bytes: Some(256 << 20),
            program: name.map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            log_segment_bytes: 64 << 20,
            seed: None,
            cursor_flush: Duration::from_millis(500),
            retention_every: Some(Duration::from_mins(1)),
            scrub: None,
            host: None,
            program_fuel_max: FUEL_OPTION_MAX_DEFAULT,
            on_progress: None,
            clock: Arc::new(SystemClock),
            believe_clock: false,
        }
    }
}
