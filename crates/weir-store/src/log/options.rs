//! How a log is opened.

use std::hash::{BuildHasher, RandomState};

use super::sectors::mask_to_try;

/// Settings of a log. All sizes in bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogOptions {
    /// Make the log if there is none; else that is [`StoreError::Missing`].
    /// Off for a store which has had a log before.
    ///
    /// [`StoreError::Missing`]: crate::error::StoreError::Missing
    pub create: bool,
    /// Size of the first segment; later ones grow with the log.
    pub segment_bytes_first: u64,
    /// Largest ordinary segment; a batch that does not fit gets its own size.
    pub segment_bytes_max: u64,
    /// A new segment is refused as disk full when less than this would stay
    /// free.
    pub reserve_bytes: u64,
    /// Small batches are written with zeros up to a multiple of this, so that
    /// the sync of later ones changes no file metadata. 0 turns it off. The
    /// bytes are the same either way.
    pub zero_ahead_bytes: u64,
    /// Wait for the sync of a full segment before going on in the next one. Off
    /// for levels that do not wait for syncs: it then runs after, on a thread
    /// of its own, by at most one segment.
    pub sync_on_roll: bool,
    /// The time, Unix seconds; ages what was cut off.
    pub now_unix_s: u64,
    /// How long bytes that were cut off are kept, in seconds.
    pub cut_keep_s: u64,
    /// A random number. Makes batch headers unguessable for those who write
    /// payloads; random per process by default, fixed in a simulation.
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
