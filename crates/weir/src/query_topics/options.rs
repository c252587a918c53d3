//! The options of a query over topics.

use std::time::Duration;

use weir_core::{IntentionOffset, RecordKind};
use weir_query::{Budgets, QueryText};
use weir_store::ReadFrom;

/// Which records of a topic a query reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopicView {
    /// All of its records, in their order.
    #[default]
    Log,
    /// The record that each key has when it is read, in byte order of keys. Values are never older
    /// than those read before, but they are not one consistent cut. A key that has a value
    /// throughout the read is returned once. If the connection to a cluster breaks and the query
    /// continues at a node that lags, these two guarantees hold only with
    /// [`Consistency::Linear`](crate::Consistency).
    Latest,
}

/// Where a query over topics ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopicEnd {
    /// After the last intention when the query was opened: one consistent cut over all topics.
    #[default]
    Now,
    /// After this intention. Only for records, not for the latest values.
    AsOf(IntentionOffset),
    /// Never: returns new records as they are committed, also of topics created later, in one
    /// order.
    Follow,
}

/// A query over topics.
///
/// Without an order, the records of logs are merged in the order of their intentions, and the
/// latest values in the order of their keys. In orders and groups, the properties of records are
/// `meta.topic`, `meta.offset`, `meta.intention`, `meta.time_ms`, `meta.key`, `meta.type` and
/// `meta.client_id`. In filters they are `meta('topic')` and so on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopicQueryOptions {
    /// Names of topics, or patterns: `orders.*` for one more part of a name, `orders.**` for one or
    /// more.
    pub topics: Vec<String>,
    /// The first record of each topic. A topic that is created after the query began is read from
    /// its start. A resumed query continues at its token instead. Only for records, not for the
    /// latest values.
    pub from: ReadFrom,
    /// The fields of the query.
    pub text: QueryText,
    /// Which records of the topics are read.
    pub view: TopicView,
    /// Where the query ends.
    pub end: TopicEnd,
    /// Records of these kinds are items. Only PUT has a value; the paths of other records are
    /// undefined.
    pub kinds: Vec<RecordKind>,
    /// Whether a resumed query continues at the first remaining record if retention has removed the
    /// next ones. Otherwise the error is `GONE`.
    pub reset_earliest: bool,
    /// The memory limits of the query.
    pub budgets: Budgets,
    /// The position of an earlier run of the same query, from
    /// [`TopicQuery::token`](crate::TopicQuery::token).
    pub token: Option<Vec<u8>>,
    /// Whether a server runs its part of the query (filter, selected value, limit). The results do
    /// not depend on it; for measurements and tests.
    pub push_down: bool,
    /// The longest wait for records that exist.
    pub patience: Duration,
}

impl TopicQueryOptions {
    /// Reads all records of these topics.
    pub fn new<S: Into<String>>(topics: impl IntoIterator<Item = S>) -> Self {
        Self {
            topics: topics.into_iter().map(Into::into).collect(),
            from: ReadFrom::Start,
            text: QueryText::default(),
            view: TopicView::default(),
            end: TopicEnd::default(),
            kinds: vec![RecordKind::Put],
            reset_earliest: false,
            budgets: Budgets {
                // Pages of topics are already in memory or in transit.
                pages_ahead: 0,
                ..Budgets::default()
            },
            token: None,
            push_down: true,
            patience: Duration::from_secs(30),
        }
    }

    /// Sets the text of the query.
    #[must_use]
    pub fn text(mut self, text: QueryText) -> Self {
        self.text = text;
        self
    }
}

/// Whether a pattern matches a topic: `*` stands for one part of a name, `**` at the end for one or
/// more.
#[must_use]
pub fn pattern_matches(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.split('.'), name.split('.'));
    loop {
        match (pattern.next(), name.next()) {
            (Some("**"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(wanted), Some(part)) if wanted == part => {}
            _ => return false,
        }
    }
}
