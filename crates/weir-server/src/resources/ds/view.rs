//! The state of a stream at one moment.
//!
//! Whether the stream is closed is read before its end. So a stream that is reported as closed is
//! reported with all of its records.

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
use crate::resources::streams::position;
use crate::resources::streams::state::Streams;
use crate::resources::streams::terms::{
    CLOSED, CONFIG, CONFIGS_MAX, TYPE_BYTES_MAX, is_data, is_json,
};

/// Pages of a topic without a description that are searched for a content type.
const PLAIN_PAGES_MAX: usize = 4;

/// A stream.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) topic: String,
    pub(crate) incarnation: u64,
    pub(crate) config: Arc<Config>,
    /// Whether the payloads are JSON values.
    pub(crate) json: bool,
    /// Whether no content type is known: neither a description nor a record has one.
    pub(crate) untyped: bool,
    /// Position of the record that closed the stream; `None`: not closed.
    pub(crate) closed: Option<u64>,
    /// Whether the stream was deleted and only forks read it.
    pub(crate) gone: bool,
    /// Position after the last record.
    pub(crate) tail: u64,
    /// Offset of the record that created the topic.
    created: u64,
    /// Offset and position from which on the stream has its own records, not those of its source.
    first: u64,
    base: u64,
}

impl View {
    /// Finds a stream; `None` if there is none. Does not check the expiry. May block on a disk;
    /// [`find`] does not.
    pub(super) fn find(ds: &Streams, store: &Store, topic: &str) -> Result<Option<Self>, Problem> {
        let state = store.topic_state(topic);
        let live = state.and_then(|topic| Some((topic.incarnation?.0, topic.created?.0)));
        let Some((incarnation, created)) = live else {
            return Ok(None);
        };
        let offset = |key: &[u8]| store.key_offset(topic, key).map(|offset| offset.0);
        let (described, closed) = (offset(CONFIG), offset(CLOSED));
        let found = config(
            ds,
            store,
            topic,
            (incarnation, created),
            described.is_some(),
        )?;
        let Some((config, is_final)) = found else {
            return Ok(None);
        };
        let reader = store.read(topic, ConsequenceOffset::ZERO);
        let reader = reader.map_err(|error| problems::of_store(&error))?;
        let last = reader.last().0;
        let mut view = Self {
            topic: topic.to_owned(),
            incarnation,
            json: is_json(&config.content_type),
            untyped: !is_final,
            closed: None,
            gone: registry::is_gone(store, topic, incarnation)?,
            tail: 0,
            created,
            first: created,
            base: created,
            config,
        };
        // For a fork, its own records start with the record of its description.
        if let (Some(fork), Some(described)) = (&view.config.fork, described) {
            (view.first, view.base) = (described, fork.base);
        }
        view.tail = view.position(last);
        view.closed = closed.map(|offset| view.position(offset));
        Ok(Some(view))
    }

    /// Converts an offset of its own topic to a position.
    pub(crate) fn position(&self, offset: u64) -> u64 {
        self.base + offset.saturating_sub(self.first)
    }

    /// Converts a position to an offset of its own topic.
    pub(crate) fn offset(&self, position: u64) -> u64 {
        self.first + position.saturating_sub(self.base)
    }

    /// The parts of the stream in order. The last part is its own records, up to the current end.
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

    /// Whether a reader at this position has all records of a closed stream.
    pub(crate) fn ends_at(&self, position: u64) -> bool {
        position >= self.tail && self.closed.is_some_and(|closed| position >= closed)
    }

    /// Whether a position belongs to an earlier stream of this name.
    pub(crate) fn is_before(&self, position: u64) -> bool {
        self.config.fork.is_none() && position != 0 && position < self.created
    }

    /// Whether this is a topic that another API created, without data yet.
    pub(crate) fn is_empty_topic(&self) -> bool {
        self.untyped && self.tail == self.created
    }

    /// Whether the data must be encoded in base64 to be sent as text.
    pub(crate) fn is_binary(&self) -> bool {
        !self.json
            && !crate::resources::streams::terms::essence(&self.config.content_type)
                .starts_with("text/")
    }

    /// Adds the end of the stream, and whether it is closed.
    pub(crate) fn add_fields(&self, reply: &mut Reply) {
        reply.add("stream-next-offset", position::token(self.tail));
        if self.closed.is_some() {
            reply.add("stream-closed", "true");
        }
    }

    /// Creates a problem with the state of the stream that a writer needs.
    pub(crate) fn refuse(&self, kind: Kind, detail: &str) -> Problem {
        let problem = Problem::new(kind, detail);
        let problem = problem.field("stream-next-offset", position::token(self.tail));
        match self.closed {
            Some(_) => problem.field("stream-closed", "true"),
            None => problem,
        }
    }
}

/// Finds the stream of a name. Reads its description on a blocking thread, unless it is in memory.
pub(super) async fn find(edge: &Arc<Edge>, topic: &str) -> Result<Option<View>, Problem> {
    if is_cached(edge, topic) {
        return View::find(&edge.ds, &edge.shared.store, topic);
    }
    let (edge, topic) = (Arc::clone(edge), topic.to_owned());
    offload::run(move || View::find(&edge.ds, &edge.shared.store, &topic)).await
}

/// Whether the description of a stream is in memory.
fn is_cached(edge: &Edge, topic: &str) -> bool {
    let store = &edge.shared.store;
    let state = store.topic_state(topic);
    let Some(incarnation) = state.and_then(|topic| topic.incarnation) else {
        // There is no such stream.
        return true;
    };
    let is_cached = {
        let configs = &edge.ds.configs;
        let configs = configs.lock();
        configs
            .get(topic)
            .is_some_and(|(of, _)| *of == incarnation.0)
    };
    is_cached && !registry::may_be_gone(store, topic)
}

/// The problem of a request for a stream that only its forks still read.
pub(crate) fn gone() -> Problem {
    Problem::new(
        Kind::StreamGone,
        "its name can be used again after the forks are deleted",
    )
}

/// Returns the description of a stream, and whether it is final. For a topic that another API
/// created, it is derived from the first record.
fn config(
    ds: &Streams,
    store: &Store,
    topic: &str,
    (incarnation, created): (u64, u64),
    is_described: bool,
) -> Result<Option<(Arc<Config>, bool)>, Problem> {
    {
        let configs = ds.configs.lock();
        if let Some((of, config)) = configs.get(topic)
            && *of == incarnation
        {
            return Ok(Some((Arc::clone(config), true)));
        }
    }
    let found = if is_described {
        match store.get(topic, CONFIG) {
            Ok(page) => {
                let record = page.as_ref().and_then(|page| page.iter().next());
                let record = record
                    .transpose()
                    .map_err(|error| problems::of_store(&error))?;
                // The topic may have been destroyed meanwhile.
                let Some(record) = record else {
                    return Ok(None);
                };
                match registry::validated(store, topic, record.value)? {
                    Some(config) => (config, true),
                    None => derive_config(store, topic, created)?,
                }
            }
            // Retention has removed the description.
            Err(StoreError::RecordsGone { .. }) => derive_config(store, topic, created)?,
            Err(error) => return Err(problems::of_store(&error)),
        }
    } else {
        derive_config(store, topic, created)?
    };
    let (config, is_final) = found;
    let config = Arc::new(config);
    if is_final {
        let mut configs = ds.configs.lock();
        if configs.len() >= CONFIGS_MAX {
            configs.clear();
        }
        configs.insert(topic.to_owned(), (incarnation, Arc::clone(&config)));
    }
    Ok(Some((config, is_final)))
}

/// Derives a description from the first record with data, and returns whether it is final.
fn derive_config(store: &Store, topic: &str, created: u64) -> Result<(Config, bool), Problem> {
    let config_of = |content_type: &str| Config {
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
                let meta = Meta::of(record.meta, record.value);
                let derived = match shape(&meta, record.value) {
                    Shape::Json => "application/json",
                    Shape::Text => "text/plain; charset=utf-8",
                    Shape::Bytes => TYPE_DEFAULT,
                };
                let stated = meta.media_type();
                let stated = stated.filter(|text| text.len() <= TYPE_BYTES_MAX);
                return Ok((config_of(stated.unwrap_or(derived)), true));
            }
        }
    }
    Ok((config_of(TYPE_DEFAULT), false))
}
