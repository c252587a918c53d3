//! Reads the current values of a topic, and then its new records.

use std::time::{Duration, Instant};

use weir_store::Page;

use crate::backend::{Backend, Replay, TopicReader};
use crate::error::WeirError;
use crate::value::Value;

/// A record of [`Topic::latest`](crate::Topic::latest).
#[derive(Clone, Debug)]
pub struct Current {
    /// The record.
    pub value: Value,
    /// Whether the record is the value that its key had when the read began.
    pub replay: bool,
}

/// Iterates over the current value of each key, in byte order of keys, each once and with `replay`
/// set. Then returns new records, in order.
#[derive(Debug)]
pub struct Latest {
    replay: Option<Replay>,
    live: TopicReader,
    /// The records of the newest page that were not returned yet.
    ready: std::vec::IntoIter<Value>,
    patience: Duration,
}

impl Latest {
    pub(crate) async fn new(
        backend: &Backend,
        name: &str,
        patience: Duration,
    ) -> Result<Self, WeirError> {
        let (replay, live) = backend.replay(name).await?;
        Ok(Self {
            live,
            replay: Some(replay),
            ready: Vec::new().into_iter(),
            patience,
        })
    }

    fn step(&mut self) -> Result<Option<Current>, WeirError> {
        if let Some(replay) = &mut self.replay {
            if let Some(page) = replay.next()? {
                return replayed(page);
            }
            self.replay = None;
        }
        loop {
            if let Some(value) = self.ready.next() {
                return Ok(Some(live(value)));
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
            self.ready = values(&page)?;
        }
    }

    /// Returns the next record. Waits for one without a limit, regardless of the patience. Only one
    /// task may poll it at a time. Dropping the future loses no record.
    ///
    /// # Errors
    /// Errors of a server or a disk; `Closed` when the store is closed.
    pub async fn next_async(&mut self) -> Result<Current, WeirError> {
        if let Some(replay) = &mut self.replay {
            while let Some(page) = replay.next_async().await? {
                if let Some(current) = replayed(page)? {
                    return Ok(current);
                }
            }
            self.replay = None;
        }
        loop {
            if let Some(value) = self.ready.next() {
                return Ok(live(value));
            }
            let page = self.live.next().await?;
            self.ready = values(&page)?;
        }
    }
}

fn replayed(page: Page) -> Result<Option<Current>, WeirError> {
    let value = Value::new(page)?;
    Ok(value.map(|value| Current {
        value,
        replay: true,
    }))
}

fn live(value: Value) -> Current {
    let replay = false;
    Current { value, replay }
}

fn values(page: &Page) -> Result<std::vec::IntoIter<Value>, WeirError> {
    let mut values = Vec::new();
    for record in page {
        values.extend(Value::new(page.starting(record?.offset))?);
    }
    Ok(values.into_iter())
}

impl Iterator for Latest {
    type Item = Result<Current, WeirError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}
