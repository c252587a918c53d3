//! Reading what holds now, and then what comes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::ConsequenceOffset;
use weir_store::{Page, Store, StoreError};

use crate::error::WeirError;
use crate::far;
use crate::place::Place;
use crate::reader::TopicReader;
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
    replay: Option<Replay>,
    live: TopicReader,
    /// The records of the newest page that were not handed out.
    ready: std::vec::IntoIter<Value>,
    patience: Duration,
}

/// The part that comes first.
#[derive(Debug)]
enum Replay {
    Near(Arc<Store>, weir_store::Latest),
    Far(far::replay::Replay),
}

impl Replay {
    fn next(&mut self) -> Result<Option<Page>, StoreError> {
        match self {
            Self::Near(store, latest) => latest.next(store),
            Self::Far(replay) => replay.next(),
        }
    }
}

impl Topic {
    /// What holds now and then what comes; at the end, waits up to `patience`
    /// for a new record. The topic need not be there yet.
    ///
    /// # Errors
    /// Those of a server.
    pub fn latest(&self, patience: Duration) -> Result<Latest, WeirError> {
        let name = self.name().as_str();
        let (replay, live) = match self.place() {
            Place::Near(store) => {
                let latest = store.latest(name);
                let live = TopicReader::near(latest.live(store));
                (Replay::Near(Arc::clone(store), latest), live)
            }
            Place::Far(remote) => {
                let replay = far::replay::Replay::new(Arc::clone(remote), name)?;
                let mut live = self.place().listen(name);
                live.seek(ConsequenceOffset(replay.position().saturating_sub(1)));
                (Replay::Far(replay), live)
            }
        };
        Ok(Latest {
            live,
            replay: Some(replay),
            ready: Vec::new().into_iter(),
            patience,
        })
    }
}

impl Latest {
    fn step(&mut self) -> Result<Option<Current>, WeirError> {
        if let Some(replay) = &mut self.replay {
            if let Some(page) = replay.next()? {
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
