//! What a stream is at a moment.
//!
//! Whether it is closed is asked before how far it reaches, so that a stream
//! that is told as closed is told with all of its records.

use std::sync::Arc;

use weir_core::{ConsequenceOffset, RecordKind};
use weir_store::{Store, StoreError};

use super::registry;
use crate::http::offload;
use crate::http::problem::{Kind, Problem};
use crate::http::reply::Reply;
use crate::resources::context::Edge;
use crate::resources::meta::{Meta, Shape, shape};
use crate::resources::problems;
use crate::resources::streams::config::{Config, Expiry, Part, TYPE_DEFAULT};
use crate::resources::streams::place;
use crate::resources::streams::state::Streams;
use crate::resources::streams::terms::{CLOSED, CONFIG, CONFIGS_MAX, is_data, is_json};

/// Pages of a topic that is no stream yet, in which its type is looked for.
const PLAIN_PAGES_MAX: usize = 4;

/// A stream.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) topic: String,
    pub(crate) incarnation: u64,
    pub(crate) config: Arc<Config>,
    /// Its payloads are JSON values.
    pub(crate) json: bool,
    /// Nobody has said a type, and there is no record that does.
    pub(crate) untyped: bool,
    /// Position of the record that closed it.
    pub(crate) closed: Option<u64>,
    /// It was deleted; only forks read it.
    pub(crate) gone: bool,
    /// Position after its last record.
    pub(crate) tail: u64,
    /// Offset of the record that made its topic.
    created: u64,
    /// Offset and position from which on records are its own.
    first: u64,
    base: u64,
}

impl View {
    /// Finds a stream; `None` when there is none. Says nothing about expiry.
    /// May wait for a disk: elsewhere it is [`look`].
    pub(super) fn find(ds: &Streams, store: &Store, topic: &str) -> Result<Option<Self>, Problem> {
        let standing = store.standing(topic);
        let lives = standing.and_then(|topic| Some((topic.incarnation?.0, topic.created?.0)));
        let Some((incarnation, created)) = lives else {
            return Ok(None);
        };
        let offset = |key: &[u8]| store.key_offset(topic, key).map(|offset| offset.0);
        let (made, closed) = (offset(CONFIG), offset(CLOSED));
        let found = config(ds, store, topic, (incarnation, created), made.is_some())?;
        let Some((config, lasting)) = found else {
            return Ok(None);
        };
        let reader = store.read(topic, ConsequenceOffset::ZERO);
        let reader = reader.map_err(|error| problems::of_store(&error))?;
        let last = reader.last().0;
        let mut view = Self {
            topic: topic.to_owned(),
            incarnation,
            json: is_json(&config.content_type),
            untyped: !lasting,
            closed: None,
            gone: registry::is_gone(store, topic, incarnation)?,
            tail: 0,
            created,
            first: created,
            base: created,
            config,
        };
        // The record after that of the creation says what was made.
        if let (Some(fork), Some(made)) = (&view.config.fork, made) {
            (view.first, view.base) = (made, fork.base);
        }
        view.tail = view.position(last);
        view.closed = closed.map(|offset| view.position(offset));
        Ok(Some(view))
    }

    /// Position of a record of its own topic.
    pub(crate) fn position(&self, offset: u64) -> u64 {
        self.base + offset.saturating_sub(self.first)
    }

    /// Offset in its own topic of the record at a position.
    pub(crate) fn offset(&self, position: u64) -> u64 {
        self.first + position.saturating_sub(self.base)
    }

    /// What is read, in order; its own records last, up to its end now.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let inherited = self.config.fork.iter().flat_map(|fork| &fork.parts);
        let own = Part {
            topic: self.topic.clone(),
            incarnation: self.incarnation,
            first: self.first,
            base: self.base,
            end: self.tail,
        };
        inherited.cloned().chain([own]).collect()
    }

    /// Whether a reader at this position has everything there will ever be.
    pub(crate) fn ends_at(&self, position: u64) -> bool {
        position >= self.tail && self.closed.is_some_and(|closed| position >= closed)
    }

    /// Whether a position is of a stream that had this name before.
    pub(crate) fn is_before(&self, position: u64) -> bool {
        self.config.fork.is_none() && position != 0 && position < self.created
    }

    /// Whether it is a topic that another door made, without a record yet.
    pub(crate) fn is_empty_topic(&self) -> bool {
        self.untyped && self.tail == self.created
    }

    /// Whether its bytes must be coded to be told as text.
    pub(crate) fn is_binary(&self) -> bool {
        !self.json
            && !crate::resources::streams::terms::essence(&self.config.content_type)
                .starts_with("text/")
    }

    /// Adds where it ends, and whether that is for ever.
    pub(crate) fn tell(&self, reply: &mut Reply) {
        reply.add("stream-next-offset", place::write(self.tail));
        if self.closed.is_some() {
            reply.add("stream-closed", "true");
        }
    }

    /// A problem with what a writer must know of the stream.
    pub(crate) fn refuse(&self, kind: Kind, detail: &str) -> Problem {
        let problem = Problem::new(kind, detail);
        let problem = problem.field("stream-next-offset", place::write(self.tail));
        match self.closed {
            Some(_) => problem.field("stream-closed", "true"),
            None => problem,
        }
    }
}

/// The stream of a name. What it was made with is read where one may wait for
/// the disk, unless it is at hand.
pub(super) async fn look(edge: &Arc<Edge>, topic: &str) -> Result<Option<View>, Problem> {
    if is_at_hand(edge, topic) {
        return View::find(&edge.ds, &edge.shared.store, topic);
    }
    let (edge, topic) = (Arc::clone(edge), topic.to_owned());
    offload::run(move || View::find(&edge.ds, &edge.shared.store, &topic)).await
}

/// Whether all that is said about a stream is in memory.
fn is_at_hand(edge: &Edge, topic: &str) -> bool {
    let store = &edge.shared.store;
    let standing = store.standing(topic);
    let Some(incarnation) = standing.and_then(|topic| topic.incarnation) else {
        // There is none.
        return true;
    };
    let known = {
        let configs = &edge.ds.configs;
        let configs = configs.lock();
        configs
            .get(topic)
            .is_some_and(|(of, _)| *of == incarnation.0)
    };
    known && !registry::may_be_gone(store, topic)
}

/// The problem of a request for a stream that only its forks still read.
pub(crate) fn gone() -> Problem {
    Problem::new(Kind::StreamGone, "its name is free again when they are")
}

/// The description of a stream, or what a topic says of itself that was made
/// by another door; and whether that stays so.
fn config(
    ds: &Streams,
    store: &Store,
    topic: &str,
    (incarnation, created): (u64, u64),
    made: bool,
) -> Result<Option<(Arc<Config>, bool)>, Problem> {
    {
        let configs = ds.configs.lock();
        if let Some((of, config)) = configs.get(topic)
            && *of == incarnation
        {
            return Ok(Some((Arc::clone(config), true)));
        }
    }
    let found = if made {
        match store.get(topic, CONFIG) {
            Ok(page) => {
                let record = page.as_ref().and_then(|page| page.iter().next());
                let record = record
                    .transpose()
                    .map_err(|error| problems::of_store(&error))?;
                // It may have ended in between.
                let Some(record) = record else {
                    return Ok(None);
                };
                match registry::believed(store, topic, record.value)? {
                    Some(config) => (config, true),
                    None => plain(store, topic, created)?,
                }
            }
            // Its retention has removed what it was made with.
            Err(StoreError::RecordsGone { .. }) => plain(store, topic, created)?,
            Err(error) => return Err(problems::of_store(&error)),
        }
    } else {
        plain(store, topic, created)?
    };
    let (config, lasting) = found;
    let config = Arc::new(config);
    if lasting {
        let mut configs = ds.configs.lock();
        if configs.len() >= CONFIGS_MAX {
            configs.clear();
        }
        configs.insert(topic.to_owned(), (incarnation, Arc::clone(&config)));
    }
    Ok(Some((config, lasting)))
}

/// What the first record of a topic says of it, and whether that stays so.
fn plain(store: &Store, topic: &str, created: u64) -> Result<(Config, bool), Problem> {
    let made_of = |content_type: &str| Config {
        content_type: content_type.to_owned(),
        expiry: Expiry::Never,
        fork: None,
    };
    let error = |error: StoreError| problems::of_store(&error);
    let mut reader = store
        .read(topic, ConsequenceOffset(created))
        .map_err(error)?
        .or_earliest();
    for _ in 0..PLAIN_PAGES_MAX {
        let Some(page) = reader.next_page().map_err(error)? else {
            break;
        };
        for record in &page {
            let record = record.map_err(error)?;
            if record.kind == RecordKind::Put && is_data(&record) {
                let meta = Meta::read(record.meta);
                let seen = match shape(&meta, record.value) {
                    Shape::Json => "application/json",
                    Shape::Text => "text/plain; charset=utf-8",
                    Shape::Bytes => TYPE_DEFAULT,
                };
                return Ok((made_of(meta.media_type().unwrap_or(seen)), true));
            }
        }
    }
    Ok((made_of(TYPE_DEFAULT), false))
}
