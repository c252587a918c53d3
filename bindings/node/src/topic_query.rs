//! Queries over topics of a store.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use napi::Env;
use napi::bindgen_prelude::{BigInt, Object, Uint8Array};
use napi_derive::napi;
use weir::query::SourceId;
use weir::{
    IntentionOffset, RecordKind, TopicEnd, TopicQueryCanceller, TopicQueryOptions, TopicStep,
    TopicView,
};

use crate::error::{Failure, Result};
use crate::input::{maybe, millis};
use crate::pool::promise;
use crate::query::{PageOut, QueryIn, bounds};
use crate::reader::{FromIn, with_lock};

/// The topics of a query, and the view of them.
#[napi(object)]
pub struct TopicsIn {
    pub topics: Vec<String>,
    pub from: Option<FromIn>,
    pub view: Option<String>,
    pub as_of: Option<BigInt>,
    pub follow: Option<bool>,
    pub kinds: Option<Vec<String>>,
    pub reset_earliest: Option<bool>,
    pub push_down: Option<bool>,
    pub patience_ms: Option<f64>,
}

impl TopicsIn {
    /// The options of the query.
    pub(crate) fn options(self, query: &QueryIn) -> Result<TopicQueryOptions> {
        let mut options = TopicQueryOptions::new(self.topics);
        options.text = query.text()?;
        options.budgets = query.budgets(options.budgets)?;
        if let Some(from) = self.from {
            options.from = from.get()?;
        }
        options.view = match self.view.as_deref() {
            None | Some("log") => TopicView::Log,
            Some("latest") => TopicView::Latest,
            Some(other) => return Err(Failure::option("view", other)),
        };
        let as_of = maybe("asOf", self.as_of.as_ref())?;
        options.end = match (as_of, self.follow.unwrap_or(false)) {
            (None, false) => TopicEnd::Now,
            (None, true) => TopicEnd::Follow,
            (Some(intention), false) => TopicEnd::AsOf(IntentionOffset(intention)),
            (Some(_), true) => return Err(Failure::option("follow", "true with asOf")),
        };
        if let Some(names) = self.kinds {
            let all: Vec<_> = (1..=u8::MAX).map_while(RecordKind::from_number).collect();
            let kinds = names.iter().map(|name| {
                let kind = all.iter().find(|kind| kind.name() == name);
                kind.copied().ok_or_else(|| Failure::option("kinds", name))
            });
            options.kinds = kinds.collect::<Result<_>>()?;
        }
        options.reset_earliest = self.reset_earliest.unwrap_or(false);
        options.push_down = self.push_down.unwrap_or(true);
        if let Some(patience) = millis("patienceMs", self.patience_ms)? {
            options.patience = patience;
        }
        options.token = query.token.as_ref().map(|token| token.to_vec());
        Ok(options)
    }
}

/// The result of a step.
#[napi(object)]
pub struct TopicStepOut {
    pub page: Option<PageOut>,
    /// The topic of each source in the page, in the order of the numbers of the sources.
    pub topics: Vec<TopicOf>,
    pub done: bool,
}

/// A source and its topic.
#[napi(object)]
pub struct TopicOf {
    pub source: u32,
    pub topic: String,
}

/// A running query over topics.
#[napi]
pub struct TopicQuery {
    query: Arc<Mutex<weir::TopicQuery>>,
    canceller: TopicQueryCanceller,
}

impl TopicQuery {
    pub(crate) fn new(query: weir::TopicQuery) -> Self {
        let canceller = query.canceller();
        Self {
            query: Arc::new(Mutex::new(query)),
            canceller,
        }
    }
}

#[napi]
impl TopicQuery {
    /// The next results. In a query that follows, waits up to the given time for them.
    #[napi]
    pub fn next<'env>(
        &self,
        env: &'env Env,
        wait_ms: u32,
        max_items: f64,
        max_bytes: f64,
    ) -> napi::Result<Object<'env>> {
        let query = Arc::clone(&self.query);
        let bounds = bounds(max_items, max_bytes)?;
        promise(env, move || {
            with_lock(&query, |query| {
                let wait = Duration::from_millis(u64::from(wait_ms));
                let step = query.next(bounds, Instant::now().checked_add(wait))?;
                let (page, done) = match step {
                    TopicStep::Page(page) => (Some(page), false),
                    TopicStep::Idle => (None, false),
                    TopicStep::Done => (None, true),
                };
                let mut sources: Vec<u32> = page
                    .iter()
                    .flat_map(|page| page.items().iter().map(|item| item.source.0))
                    .collect();
                sources.sort_unstable();
                sources.dedup();
                let topics = sources.into_iter().filter_map(|source| {
                    let topic = query.topic(SourceId(source))?.to_owned();
                    Some(TopicOf { source, topic })
                });
                let topics = topics.collect();
                Ok(TopicStepOut {
                    page: page.map(PageOut::from),
                    topics,
                    done,
                })
            })
        })
    }

    /// The token of the current position.
    #[napi]
    pub fn token(&self) -> napi::Result<Uint8Array> {
        Ok(with_lock(&self.query, |query| Ok(query.token()?))?.into())
    }

    /// A description of the execution.
    #[napi]
    pub fn explain(&self) -> napi::Result<String> {
        Ok(with_lock(&self.query, |query| {
            Ok(query.explain().to_string())
        })?)
    }

    /// The last intention of the query.
    #[napi]
    pub fn as_of(&self) -> napi::Result<Option<BigInt>> {
        Ok(with_lock(&self.query, |query| {
            Ok(query.as_of().map(|offset| offset.0.into()))
        })?)
    }

    /// Ends the query.
    #[napi]
    pub fn cancel(&self) {
        self.canceller.cancel();
    }
}
