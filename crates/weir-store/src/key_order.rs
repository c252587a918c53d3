//! Sorted views of the keys of topics.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::TopicId;

/// Number of views up to which no view is dropped.
const VIEWS_MIN: usize = 16;

/// The views of the topics that were scanned. Views of destroyed topics are dropped only when a view
/// is created and there are `drop_at` views. So there are at most [`VIEWS_MIN`] views, or twice as
/// many as remained after the last drop.
#[derive(Debug, Default)]
pub(crate) struct KeyOrders {
    pub(crate) views: BTreeMap<TopicId, Arc<Mutex<KeyOrder>>>,
    /// Number of views at which the views of destroyed topics are dropped.
    drop_at: usize,
}

impl KeyOrders {
    /// Returns the view of a topic. Creates it if it does not exist; `exists` then returns whether the
    /// topic of another view exists.
    pub(crate) fn view(
        &mut self,
        id: TopicId,
        exists: impl Fn(TopicId) -> bool,
    ) -> Arc<Mutex<KeyOrder>> {
        if let Some(view) = self.views.get(&id) {
            return Arc::clone(view);
        }
        if self.views.len() >= self.drop_at {
            self.views.retain(|id, _| exists(*id));
            self.drop_at = VIEWS_MIN.max(2 * self.views.len());
        }
        Arc::clone(self.views.entry(id).or_default())
    }
}

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
