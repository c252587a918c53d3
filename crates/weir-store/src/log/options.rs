//! Options for opening a log.

use std::hash::{BuildHasher, RandomState};

use super::sectors::mask_to_try;

/// Settings of a log. All sizes are in bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogOptions {
    /// Creates the log if it does not exist. If off, a missing log fails with
    /// [`StoreError::Missing`]. Must be off for a store that has had a log.
    ///
    /// [`StoreError::Missing`]: crate::error::StoreError::Missing
    pub create: bool,
    /// Size of the first segment; later ones grow with the log.
    pub segment_bytes_first: u64,
    /// Maximum size of an ordinary segment. A batch that does not fit gets a larger segment.
    pub segment_bytes_max: u64,
    /// Creating a segment fails with a full disk if less than this would remain free.
    pub reserve_bytes: u64,
    /// Small batches are followed by zeros up to a multiple of this, so that later syncs do not
    /// change file metadata. 0 turns the zeros off. The bytes of the batches do not depend on this
    /// option.
    pub zero_ahead_bytes: u64,
    /// Whether a roll waits for the sync of the full segment. Off for levels that do not wait for
    /// syncs: the sync then runs on a separate thread and lags by at most one segment.
    pub sync_on_roll: bool,
    /// The current time in Unix seconds, from which the age of cut files is computed.
    pub now_unix_s: u64,
    /// How long cut files are retained, in seconds.
    pub cut_keep_s: u64,
    /// A random number that makes batch headers unpredictable for authors of payloads. Random per
    /// process by default, fixed in a simulation.
    pub entropy: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            create: true,
            segment_bytes_first: 4 << 20,
            segment_bytes_max: 64 << 20,
            reserve_bytes: 16 << 20,
            zero_ahead_bytes: 1 << 20,
            sync_on_roll: true,
            now_unix_s: 0,
            cut_keep_s: 7 * 24 * 3600,
            entropy: RandomState::new().hash_one(0_u8),
        }
    }
}

impl LogOptions {
    /// The salt of a new segment.
    pub(crate) fn salt(&self, segment_id: u64) -> u64 {
        mask_to_try(self.entropy, segment_id, 0)
    }
}
