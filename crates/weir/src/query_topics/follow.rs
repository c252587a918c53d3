//! What a query that follows has to know: how far the store has got, and which
//! topics there are.
//!
//! Invariants:
//! - A watermark is sent to the engine only after every record up to it was
//!   searched for, later than the moment at which the store reported it as
//!   settled.
//! - No record follows a later one.

use std::collections::BTreeMap;
use std::time::Instant;

use weir_core::IntentionOffset;
use weir_query::{Query, QueryError, Shape, SourceId, SourceOptions};

use super::options::pattern_matches;
use crate::backend::Backend;
use crate::error::WeirError;

/// How far a query that follows has got.
#[derive(Debug)]
pub(super) struct Follow {
    patterns: Vec<String>,
    /// All topics up to this intention are known.
    listed: IntentionOffset,
    /// Stands for topics that are not known yet.
    unknown: Option<SourceId>,
    /// What was promised for each source.
    promised: BTreeMap<SourceId, u64>,
    /// The least that may come of a new topic.
    passed: IntentionOffset,
}

impl Follow {
    pub(super) fn new(
        query: &mut Query,
        patterns: Vec<String>,
        listed: IntentionOffset,
    ) -> Result<Self, QueryError> {
        let unknown = if patterns.is_empty() {
            None
        } else {
            let options = SourceOptions {
                name: b"*".to_vec(),
                shape: Shape::Framed,
                sorted: true,
                ..SourceOptions::default()
            };
            Some(query.add_source(options)?)
        };
        Ok(Self {
            patterns,
            listed,
            unknown,
            promised: BTreeMap::new(),
            passed: IntentionOffset::ZERO,
        })
    }

    /// Names of topics that may be new. Those of patterns that were made up to
    /// a mark are found by a call after it.
    pub(super) fn new_topics(&mut self, backend: &Backend) -> Result<Vec<String>, WeirError> {
        if self.patterns.is_empty() {
            return Ok(Vec::new());
        }
        let Some(newest) = backend.marks()?.map(|marks| marks.created) else {
            return Ok(Vec::new());
        };
        if newest <= self.listed {
            return Ok(Vec::new());
        }
        let topics = backend.topics(false)?;
        self.listed = newest;
        let patterns = &self.patterns;
        let meant = |name: &str| patterns.iter().any(|p| pattern_matches(p, name));
        let names = topics.into_iter().map(|info| info.name);
        Ok(names.filter(|name| meant(name)).collect())
    }

    /// What a new topic cannot be below.
    pub(super) fn passed(&self) -> IntentionOffset {
        self.passed
    }

    /// Promises that a source has nothing up to the mark; false when that was
    /// promised before.
    pub(super) fn promise(
        &mut self,
        query: &mut Query,
        source: SourceId,
        mark: IntentionOffset,
    ) -> Result<bool, QueryError> {
        let key = mark.0.saturating_add(1);
        let before = self.promised.insert(source, key);
        if before.is_some_and(|before| before >= key) {
            return Ok(false);
        }
        query.watermark(source, &[key.to_string()])?;
        Ok(true)
    }

    /// Whether it was promised that a source has nothing up to this key.
    pub(super) fn is_past(&self, source: SourceId, key: u64) -> bool {
        self.promised
            .get(&source)
            .is_some_and(|promised| *promised > key)
    }

    /// Promises the same for topics that are not known.
    pub(super) fn promise_patterns(
        &mut self,
        query: &mut Query,
        mark: IntentionOffset,
    ) -> Result<bool, QueryError> {
        let Some(unknown) = self.unknown else {
            return Ok(false);
        };
        self.passed = self.passed.max(mark.plus(1));
        self.promise(query, unknown, mark)
    }
}

/// What a query over topics waits for that is idle, for another thread to wait
/// for; see [`TopicQuery::news`](crate::TopicQuery::news).
#[derive(Clone, Debug)]
pub struct TopicQueryNews {
    pub(super) backend: Backend,
    pub(super) idle: Idle,
}

/// How far a query had got when it was idle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Idle {
    /// Everything up to here was looked for, in a store of this process.
    pub(super) mark: IntentionOffset,
    /// So many packets had come from a server.
    pub(super) seen: u64,
    /// It sends what comes by itself.
    pub(super) tells: bool,
}

impl TopicQueryNews {
    /// Waits until the query may have more, or until then. Returns whether it is
    /// worth asking before that, which may turn out to be for nothing.
    #[must_use]
    pub fn wait(&self, until: Instant) -> bool {
        if self.tells() {
            let idle = &self.idle;
            self.backend
                .wait_news(idle.mark, idle.seen, true, Some(until));
        } else {
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(left);
        }
        Instant::now() < until
    }

    /// Whether the store is in this process. A server that sends nothing any more
    /// is found out by asking the query.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.backend.is_local()
    }

    /// Whether it hears of what comes; else the query is to be asked now and then.
    #[must_use]
    pub fn tells(&self) -> bool {
        self.is_near() || self.idle.tells
    }
}
