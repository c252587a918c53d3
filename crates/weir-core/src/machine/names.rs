//! Lookup of topics by name, in pages, and of modules by hash.

use std::ops::Bound;

use std::sync::Arc;

use super::view::view;
use super::{Machine, TopicView};
use crate::program::CodeHash;

impl Machine {
    /// The bytes of a module that at least one topic runs.
    #[must_use]
    pub fn module(&self, code: CodeHash) -> Option<Arc<[u8]>> {
        let code = self.codes.get(code)?;
        Some(Arc::clone(&code.bytes))
    }

    /// The number of different modules that topics run.
    #[must_use]
    pub fn module_count(&self) -> usize {
        self.codes.iter().len()
    }

    /// All topics that were ever created and whose names start with `prefix` and are greater than
    /// `after`, in byte order of names. The cost is linear in the number of topics that the caller
    /// reads.
    pub fn topics_by_name<'a>(
        &'a self,
        after: &str,
        prefix: &'a str,
    ) -> impl Iterator<Item = TopicView<'a>> {
        let from = if after < prefix {
            Bound::Included(prefix)
        } else {
            Bound::Excluded(after)
        };
        self.by_name
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(move |(name, _)| name.as_str().starts_with(prefix))
            .filter_map(|(_, id)| Some(view(*id, self.topics.get(id.index())?)))
    }
}
