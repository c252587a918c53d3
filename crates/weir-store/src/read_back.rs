//! How far the segments of topics were read back from the disk and checked.

use parking_lot::Mutex;
use std::collections::BTreeMap;

use weir_core::TopicId;

/// How far each topic segment was read back since the store was opened. A
/// segment is only appended to, and its number is never used again.
#[derive(Debug, Default)]
pub(crate) struct ReadBack(pub(crate) Mutex<BTreeMap<(TopicId, u32), u64>>);
