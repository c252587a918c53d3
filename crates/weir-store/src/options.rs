//! How a store is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use weir_core::ProgramHost;
use weir_core::intention::IntentionLimits;
use weir_core::limits::FUEL_ASKED_DEFAULT;
#[cfg(doc)]
use weir_core::limits::FUEL_DEFAULT;

use crate::clock::{Clock, SystemClock};
use crate::lock::OnLocked;

/// When an intention is answered. What survives a crash is a prefix of the log
/// at every level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the write that holds it is synced; everything that waits shares
    /// one write and one sync. A crash loses nothing that was answered.
    Group,
    /// As `Group`, with a write and a sync of its own for each call. For
    /// measuring.
    Each,
    /// When it is written; synced after this time. A power cut loses at most
    /// that much.
    Interval(Duration),
    /// When it is written; never synced before the store is closed. A power
    /// cut can lose everything since it was opened; a killed process cannot.
    Memory,
}

impl Durability {
    /// The level's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Each => "each",
            Self::Interval(_) => "interval",
            Self::Memory => "memory",
        }
    }

    /// Whether an answer means "synced".
    #[must_use]
    pub const fn is_synced(self) -> bool {
        matches!(self, Self::Group | Self::Each)
    }
}

/// How a store is scrubbed in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrub {
    /// Bytes read in a second, at most.
    pub bytes_per_s: u64,
    /// Time from the beginning of a round to that of the next, at least. The
    /// first round begins so long after the open, and at most 10 minutes.
    pub every: Duration,
}

/// Options for [`Store::open`](crate::Store::open).
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// When an intention is answered; default `Group`.
    pub durability: Durability,
    /// Whether a directory without a store becomes one; default yes.
    pub create: bool,
    /// Whether the store is only read; default no. Nothing is written into the
    /// directory, no file is created there, and no lock is taken, so that
    /// another process may write to the store meanwhile. What can be read is
    /// the state at the moment of the open: everything that was acknowledged by
    /// then. Writes fail with [`StoreError::ReadOnly`](crate::StoreError).
    /// See docs/decisions/0059.
    pub read_only: bool,
    /// Bytes of records that a read-only open keeps outside of the directory, at
    /// most: those that only the log has, in a file without a name in the
    /// directory for temporary files, and in memory where that file cannot be
    /// written. Default 4 GiB. The open fails with
    /// [`StoreError::ReadOnlyLimit`](crate::StoreError) when there are more.
    pub read_only_bytes_max: u64,
    /// How long an open waits while another process has the directory open for
    /// writing; default 0. A read-only open never waits.
    pub lock_wait: Duration,
    /// Is called when another process has the directory open for writing.
    pub on_locked: Option<OnLocked>,
    /// Limits for keys and values, below those of the model.
    pub limits: IntentionLimits,
    /// Bytes of log after the newest snapshot that make a new one; default
    /// 1 GiB (docs/decisions/0008). One is made earlier, and at a close, when
    /// the programs in it would make a replay take long (docs/decisions/0058).
    pub snapshot_log_bytes: u64,
    /// Newest bytes of log that stay when the log is purged after a snapshot;
    /// default 256 MiB. A purge removes whole segments that the snapshot before
    /// the newest one covers. `None`: only
    /// [`Store::compact_log`](crate::Store::compact_log) purges.
    pub log_keep_bytes: Option<u64>,
    /// Name of the program, for the message a second opener gets.
    pub program: String,
    /// Bytes of one ordinary log segment; default 64 MiB.
    pub log_segment_bytes: u64,
    /// Seed of hash tables; changes no outcome. `None`: taken from the system.
    pub seed: Option<u64>,
    /// How long a cursor of a group that is moved without waiting may wait to
    /// be written; default 500 ms. Each group is written at most so often.
    pub cursor_flush: Duration,
    /// How often topics with limits are looked at for records that may go;
    /// default 60 s. `None`: only when [`Store::retain`](crate::Store::retain)
    /// is called.
    pub retention_every: Option<Duration>,
    /// Whether a thread reads the whole store again now and then, to find
    /// damage early; default `None`: only [`Store::scrub`](crate::Store::scrub)
    /// does. A server sets it.
    pub scrub: Option<Scrub>,
    /// Runs the programs of topics. Without it a store that has any cannot be
    /// opened, and none can be created.
    pub host: Option<Arc<dyn ProgramHost>>,
    /// Where time comes from; default the clocks of the system.
    pub clock: Arc<dyn Clock>,
    /// Whether a wall clock is believed that is more than
    /// [`CLOSED_MS_MAX`](crate::clock::CLOSED_MS_MAX) ahead of the newest stamp
    /// when the store is opened; default no.
    pub believe_clock: bool,
    /// Fuel of one call that the options of a topic may ask for (`fuel_max`)
    /// when they are handed over; default [`FUEL_ASKED_DEFAULT`]. What is less than
    /// [`FUEL_DEFAULT`], which topics have that ask for nothing, counts as that.
    /// Topics that have more already keep it, and replays ask nobody.
    pub program_fuel_max: u64,
    /// Hears how far an open is with the replay of the log, after each entry of
    /// it, on the thread that opens.
    pub on_progress: Option<OnProgress>,
}

/// How far an open is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenProgress {
    /// Log entries that are replayed.
    pub entries_done: u64,
    /// Log entries to replay, these included.
    pub entries: u64,
}

impl OpenProgress {
    /// The share of the entries that are replayed, in percent.
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
    /// Calls `observer`, which should return soon.
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
    /// Default options of a store that is only read; see
    /// [`read_only`](Self::read_only).
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
            program_fuel_max: FUEL_ASKED_DEFAULT,
            on_progress: None,
            clock: Arc::new(SystemClock),
            believe_clock: false,
        }
    }
}
