//! A sorted view of the keys of a topic.

/// Keys of one topic in ascending byte order, with their slots.
#[derive(Debug, Default)]
pub(crate) struct KeyOrder {
    /// Number of installed snapshots of other nodes when this view was built.
    pub(crate) installs: u64,
    pub(crate) incarnation: u64,
    pub(crate) generation: u64,
    pub(crate) slots: u32,
    pub(crate) keys: Vec<(Box<[u8]>, u32)>,
}
