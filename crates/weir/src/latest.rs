//! Reading what holds now, and then what comes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::ErrorCode;
use weir_store::{Store, StoreError};

use crate::error::WeirError;
use crate::place::Place;
use crate::topic::Topic;
use crate::value::Value;

/// A record of [`Topic::latest`].
#[derive(Clone, Debug)]
pub struct Current {
    /// The record.
    pub value: Value,
    /// Whether it is from before the reading began: the value that its key had
    /// then.
    pub replay: bool,
}

/// The current value of each key, in byte order of keys, each once and marked
/// as replay; then new records, in order.
#[derive(Debug)]
pub struct Latest {
    store: Arc<Store>,
    replay: Option<weir_store::Latest>,
    live: weir_store::TopicReader,
    /// The records of the newest page that were not handed out.
    ready: std::vec::IntoIter<Value>,
    patience: Duration,
}

impl Topic {
    /// What holds now and then what comes; at the end, waits up to `patience`
    /// for a new record. The topic need not be there yet.
    ///
    /// # Errors
    /// `Far` with `Unsupported` for a store behind a server.
    pub fn latest(&self, patience: Duration) -> Result<Latest, WeirError> {
        let Place::Near(store) = self.place() else {
            return Err(WeirError::Store(StoreError::Far {
                code: ErrorCode::Unsupported,
                text: "the latest values of a store behind a server are read by a listener"
                    .to_owned(),
            }));
        };
        let replay = store.latest(self.name().as_str());
        Ok(Latest {
            live: replay.live(store),
            store: Arc::clone(store),
            replay: Some(replay),
            ready: Vec::new().into_iter(),
            patience,
        })
    }
}

impl Latest {
    fn step(&mut self) -> Result<Option<Current>, WeirError> {
        if let Some(replay) = &mut self.replay {
            if let Some(page) = replay.next(&self.store)? {
                let value = Value::new(page)?;
                return Ok(value.map(|value| Current {
                    value,
                    replay: true,
                }));
            }
            self.replay = None;
        }
        loop {
            if let Some(value) = self.ready.next() {
                let replay = false;
                return Ok(Some(Current { value, replay }));
            }
            let mut page = self.live.next_page()?;
            if page.is_none() {
                let deadline = Instant::now().checked_add(self.patience);
                if !self.live.wait(deadline) {
                    return Ok(None);
                }
                page = self.live.next_page()?;
            }
            let Some(page) = page else { return Ok(None) };
            let mut ready = Vec::new();
            for record in &page {
                ready.extend(Value::new(page.starting(record?.offset))?);
            }
            self.ready = ready.into_iter();
        }
    }
}

impl Iterator for Latest {
    type Item = Result<Current, WeirError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}
