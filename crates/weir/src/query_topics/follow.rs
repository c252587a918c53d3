//! The progress of a query that follows: which records of the store it has searched, and which
//! topics exist.
//!
//! Invariants:
//! - Before a watermark is sent to the engine, every record up to it was searched for. That search
//!   began after the store reported the watermark as settled.
//! - Records are returned in ascending order of intentions.

use std::collections::BTreeMap;
use std::time::Instant;

use weir_core::IntentionOffset;
use weir_query::{Query, QueryError, Shape, SourceId, SourceOptions};

use super::options::pattern_matches;
use crate::backend::Backend;
use crate::error::WeirError;

/// Name of the source that represents the topics that are not known yet. It is not a topic, but the
/// patterns `*` and `**` match it.
pub(super) const UNKNOWN: &str = "*";

/// The progress of a query that follows.
#[derive(Debug)]
pub(super) struct Follow {
    patterns: Vec<String>,
    /// All topics created up to this intention are known.
    listed: IntentionOffset,
    /// A source that represents the topics that are not known yet.
    unknown: Option<SourceId>,
    /// The watermark that was sent for each source.
    watermarks: BTreeMap<SourceId, u64>,
    /// The least intention that a new topic may have.
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
                name: UNKNOWN.as_bytes().to_vec(),
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
            watermarks: BTreeMap::new(),
            passed: IntentionOffset::ZERO,
        })
    }

    /// Names of topics that may be new. A call after a mark returns all topics that match the
    /// patterns and were created up to that mark.
    pub(super) fn new_topics(&mut self, backend: &Backend) -> Result<Vec<String>, WeirError> {
        if self.patterns.is_empty() {
            return Ok(Vec::new());
        }
        let Some(newest) = backend.progress()?.map(|progress| progress.created) else {
            return Ok(Vec::new());
        };
        if newest <= self.listed {
            return Ok(Vec::new());
        }
        let topics = backend.topics(false)?;
        self.listed = newest;
        let patterns = &self.patterns;
        let is_selected = |name: &str| patterns.iter().any(|p| pattern_matches(p, name));
        let names = topics.into_iter().map(|info| info.name);
        Ok(names.filter(|name| is_selected(name)).collect())
    }

    /// The lower bound for the intentions of a new topic.
    pub(super) fn passed(&self) -> IntentionOffset {
        self.passed
    }

    /// Sends the engine a watermark: the source has no further records up to the mark. Returns
    /// `false` if a watermark at or after the mark was sent before.
    pub(super) fn send_watermark(
        &mut self,
        query: &mut Query,
        source: SourceId,
        mark: IntentionOffset,
    ) -> Result<bool, QueryError> {
        let key = mark.0.saturating_add(1);
        let before = self.watermarks.insert(source, key);
        if before.is_some_and(|before| before >= key) {
            return Ok(false);
        }
        query.watermark(source, &[key.to_string()])?;
        Ok(true)
    }

    /// Whether a watermark after this key was sent for the source.
    pub(super) fn is_past(&self, source: SourceId, key: u64) -> bool {
        self.watermarks
            .get(&source)
            .is_some_and(|watermark| *watermark > key)
    }

    /// Sends the engine a watermark: topics that are not known yet have no records up to the mark.
    pub(super) fn send_unknown_watermark(
        &mut self,
        query: &mut Query,
        mark: IntentionOffset,
    ) -> Result<bool, QueryError> {
        let Some(unknown) = self.unknown else {
            return Ok(false);
        };
        let after = IntentionOffset(mark.0.saturating_add(1));
        self.passed = self.passed.max(after);
        self.send_watermark(query, unknown, mark)
    }
}

/// What an idle query over topics waits for, so that another thread can wait instead; see
/// [`TopicQuery::news`](crate::TopicQuery::news).
#[derive(Clone, Debug)]
pub struct TopicQueryNews {
    pub(super) backend: Backend,
    pub(super) idle: Idle,
}

/// The progress of a query when it became idle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Idle {
    /// In a local store: every record up to this intention was searched for.
    pub(super) mark: IntentionOffset,
    /// The number of packets that a server had sent.
    pub(super) seen: u64,
    /// The server sends new records without further requests.
    pub(super) detects_news: bool,
}

impl TopicQueryNews {
    /// Waits until the query may have more results, but no longer than `until`. Returns `false` at
    /// that time. After `true`, the next call of the query may still find nothing.
    #[must_use]
    pub fn wait(&self, until: Instant) -> bool {
        if self.detects_news() {
            let idle = &self.idle;
            self.backend
                .wait_news(idle.mark, idle.seen, true, Some(until));
        } else {
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(left);
        }
        Instant::now() < until
    }

    /// Whether the store is local. Only a call of the query detects a server that no longer
    /// responds.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.backend.is_local()
    }

    /// Whether [`wait`](Self::wait) detects new records. If not, call the query periodically.
    #[must_use]
    pub fn detects_news(&self) -> bool {
        self.is_local() || self.idle.detects_news
    }
}
