//! Topics by name, some at a time.

use std::ops::Bound;

use super::{Machine, TopicView, view};

impl Machine {
    /// Every name that ever was created and begins so, in byte order, from the
    /// first one behind `behind` on. Costs what is taken of it.
    pub fn topics_by_name<'a>(
        &'a self,
        behind: &str,
        prefix: &'a str,
    ) -> impl Iterator<Item = TopicView<'a>> {
        let from = if behind < prefix {
            Bound::Included(prefix)
        } else {
            Bound::Excluded(behind)
        };
        self.by_name
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(move |(name, _)| name.as_str().starts_with(prefix))
            .filter_map(|(_, id)| Some(view(*id, self.topics.get(id.index())?)))
    }
}
