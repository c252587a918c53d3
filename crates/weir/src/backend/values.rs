//! Reads the latest values of a topic for a query, in byte order of keys.

use std::sync::Arc;
use std::time::Instant;

use weir_core::ConsequenceOffset;
use weir_store::{Store, StoreError};

use super::Backend;
use crate::remote::listener::{Listener, Next};
use crate::remote::pushdown::{Fault, PushdownRequest};
use crate::reply::block_on;

/// Reads the value that each key has at the time of the read, from any key on.
#[derive(Debug)]
pub(crate) struct Values {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Local(Arc<Store>, Box<str>, weir_store::Latest),
    Remote(Box<Listener>),
}

impl Backend {
    /// Reads the values of a topic from its first key on. `in_advance`: requests them from a server
    /// before the first call of [`Values::next`].
    pub(crate) fn values(
        &self,
        topic: &str,
        pushdown: PushdownRequest,
        in_advance: bool,
    ) -> Result<Values, StoreError> {
        let source = match self {
            Self::Local(store) => {
                Source::Local(Arc::clone(store), topic.into(), store.current(topic, b""))
            }
            Self::Remote(remote) => {
                let listener = Listener::new(Arc::clone(remote), topic, ConsequenceOffset::ZERO);
                let mut listener = listener.latest(pushdown.clone(), b"");
                if in_advance {
                    listener.prepare(pushdown)?;
                }
                Source::Remote(listener.into())
            }
        };
        Ok(Values { source })
    }
}

impl Values {
    /// Continues at the first key that is equal to or greater than `from`.
    pub(crate) fn seek(&mut self, from: &[u8]) {
        match &mut self.source {
            Source::Local(store, topic, latest) => *latest = store.current(topic, from),
            Source::Remote(listener) => listener.seek_key(from),
        }
    }

    /// Returns the next value. If `waits`, waits for a server until `deadline` at most.
    pub(crate) fn next(
        &mut self,
        waits: bool,
        deadline: Option<Instant>,
    ) -> Result<Next, StoreError> {
        match &mut self.source {
            Source::Local(store, _, latest) => {
                Ok(latest.next(store)?.map_or(Next::End, Next::Page))
            }
            Source::Remote(listener) if waits => block_on(listener.next_by(deadline)),
            Source::Remote(listener) => block_on(listener.next_ready()),
        }
    }

    /// The number of values that were not JSON and that a server skipped.
    pub(crate) fn skipped(&self) -> u64 {
        match &self.source {
            Source::Local(..) => 0,
            Source::Remote(listener) => listener.skipped(),
        }
    }

    /// The record at which the server's part of a query stopped.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match &self.source {
            Source::Local(..) => None,
            Source::Remote(listener) => listener.fault(),
        }
    }
}
