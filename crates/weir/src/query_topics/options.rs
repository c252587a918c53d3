//! What is asked of topics.

use std::time::Duration;

use weir_core::{IntentionOffset, RecordKind};
use weir_query::{Budgets, QueryText};

/// How a topic is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopicView {
    /// All of its records, in their order.
    #[default]
    Log,
    /// The record that each key has when it is read, in byte order of keys, none
    /// older than those before: no cut over the keys, but every key that has a
    /// value all the time, once.
    Latest,
}

/// Where a query over topics ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopicEnd {
    /// After what was decided when it was opened: one consistent cut over all
    /// topics.
    #[default]
    Now,
    /// After this intention; of records, not of the latest values.
    AsOf(IntentionOffset),
    /// Never: new records come as they are decided, and those of topics that
    /// are made meanwhile, in one order.
    Follow,
}

/// A query over topics.
///
/// Without an order the records of a log come as the store decided them, over
/// all topics, and the latest ones by key. Properties of records are
/// `meta.topic`, `meta.offset`, `meta.intention`, `meta.time_ms`, `meta.key`,
/// `meta.type` and `meta.client_id` in orders and groups, `meta('topic')` and so on in filters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopicQueryOptions {
    /// Names of topics, or patterns: `orders.*` for one more part of a name,
    /// `orders.**` for any number.
    pub from: Vec<String>,
    /// The fields of the query.
    pub text: QueryText,
    /// How topics are seen.
    pub view: TopicView,
    /// Where it ends.
    pub end: TopicEnd,
    /// Records of these kinds are items. All but PUT have no value: their paths
    /// are undefined.
    pub kinds: Vec<RecordKind>,
    /// Go on at the first record that is left where retention has removed
    /// those that a token names, in place of the error `GONE`.
    pub reset_earliest: bool,
    /// What the query may hold.
    pub budgets: Budgets,
    /// Where an earlier run of the same query stood, from
    /// [`TopicQuery::token`](crate::TopicQuery::token).
    pub token: Option<Vec<u8>>,
    /// Whether a server does its part of the query (filter, selected value,
    /// limit). The results are the same without; for measurements and tests.
    pub push_down: bool,
    /// Longest wait for records that are known to be there.
    pub patience: Duration,
}

impl TopicQueryOptions {
    /// All records of these topics.
    pub fn new<S: Into<String>>(from: impl IntoIterator<Item = S>) -> Self {
        Self {
            from: from.into_iter().map(Into::into).collect(),
            text: QueryText::default(),
            view: TopicView::default(),
            end: TopicEnd::default(),
            kinds: vec![RecordKind::Put],
            reset_earliest: false,
            budgets: Budgets {
                // Pages of topics are in memory, or on their way already.
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

/// Whether a pattern means a topic: `*` stands for one part of a name, `**` at
/// the end for one or more.
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
