//! Durable Streams: topics under the protocol of that name, at `/ds/{name}`.
//!
//! A stream is a topic. Its bytes or messages are the records without a
//! reserved key; what else a stream has (content type, end, producers, order)
//! is in records of the same topic under keys that begin with [`RESERVED`], so
//! that a write and what it changes are one transaction, and everything is
//! there again after a crash. Which streams expire, and which are forks of
//! which, is in the topic [`REGISTRY`](registry::REGISTRY).
//!
//! | module | room |
//! |---|---|
//! | `place` | positions, as tokens |
//! | `config` | what a stream was made with |
//! | `view` | what a stream is now |
//! | `walk` | its records, through its forks |
//! | `create`, `append`, `producer` | writes |
//! | `read`, `follow` | reads |
//! | `lease`, `registry`, `remove` | the end of streams |
//!
//! Rules in words, for users: docs/api/durable-streams.md; why it is so:
//! docs/decisions/0021-durable-streams.md. What must never happen here: a state
//! that is only in memory and that a client could miss, or a condition that is
//! judged anywhere but in the store.

mod append;
mod config;
mod create;
mod follow;
mod lease;
mod place;
mod producer;
mod read;
mod registry;
mod remove;
mod view;
mod walk;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::MutexGuard;
use weir_core::TopicName;

use self::config::Config;
use self::lease::Leases;
use crate::http::head::Method;
use crate::http::problem::{Kind, Problem};
use crate::http::query::decode;
use crate::http::reply::Reply;
use crate::service::{Call, Edge};

pub(crate) use self::remove::sweep;

/// What keys begin with that are no data of a stream.
pub(crate) const RESERVED: &[u8] = b".ds/";
/// What the stream was made with.
const CONFIG: &[u8] = b".ds/config";
/// There when the stream has ended.
const CLOSED: &[u8] = b".ds/closed";
/// There when the stream was deleted and forks still read it.
const GONE: &[u8] = b".ds/gone";
/// The last `Stream-Seq`.
const ORDER: &[u8] = b".ds/seq";
/// What the key of a producer's state begins with.
const PRODUCER: &[u8] = b".ds/producer/";

/// Producers that a stream knows.
const PRODUCERS_MAX: u64 = 10_000;
/// Keys of a stream that producers leave free: for its end, above all.
const KEYS_SPARE: u64 = 16;
/// Bytes of a producer's id.
pub(crate) const PRODUCER_ID_BYTES_MAX: usize = 256;
/// Largest epoch and number of a producer: what JavaScript counts exactly.
pub(crate) const PRODUCER_NUMBER_MAX: u64 = (1 << 53) - 1;
/// Bytes of a `Stream-Seq`.
pub(crate) const ORDER_BYTES_MAX: usize = 1024;
/// Bytes of a content type.
const TYPE_BYTES_MAX: usize = 255;
/// Seconds of a time to live: a hundred years.
pub(crate) const TTL_SECONDS_MAX: u64 = 3_155_760_000;
/// Streams with an expiry.
const EXPIRING_MAX: usize = 100_000;
/// Streams that one is read through, itself included.
const FORK_PARTS_MAX: usize = 64;
/// Bytes or messages behind the position of a fork that it takes as well.
pub(crate) const FORK_SUB_OFFSET_MAX: u64 = 16 << 20;
/// Seconds for which a long poll waits unless the client prefers otherwise.
const POLL_SECONDS: u64 = 4;
/// Seconds for which a cursor holds.
const CURSOR_SECONDS: u64 = 20;
/// Where cursors begin to count, in seconds since 1970: 2024-10-09.
const CURSOR_BEGIN: u64 = 1_728_432_000;
/// By how much a cursor that came back is moved on, at most.
const CURSOR_JITTER: u64 = 180;
/// Attempts at a write whose stream changes under it.
const ATTEMPTS_MAX: usize = 8;
/// Descriptions of streams that are kept in memory.
const CONFIGS_MAX: usize = 4096;
/// Rows of turns; more than there are processors to take them.
const TURNS: usize = 64;
/// Seconds between two looks for streams that have expired.
const SWEEP_SECONDS: u64 = 2;
/// Entries of the registry that are read together.
const REGISTRY_PAGE: usize = 1000;

/// Turns of requests that must come one behind the other. They guard no data,
/// and nobody is let in by them: conditions in the store decide. What they save
/// is attempts that fail.
#[derive(Debug)]
struct Turns(Vec<tokio::sync::Mutex<()>>, RandomState);

impl Default for Turns {
    fn default() -> Self {
        let rows = std::iter::repeat_with(tokio::sync::Mutex::default);
        Self(rows.take(TURNS).collect(), RandomState::new())
    }
}

impl Turns {
    /// Waits for the turn of whoever has this name.
    async fn take(
        &self,
        edge: &Edge,
        name: (&str, &[u8]),
    ) -> Result<Option<MutexGuard<'_, ()>>, Problem> {
        let row = self.1.hash_one(name) % TURNS as u64;
        match self.0.get(usize::try_from(row).unwrap_or(0)) {
            Some(row) => turn(edge, row).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Waits for a turn, no longer than for the store.
async fn turn<'a>(
    edge: &Edge,
    row: &'a tokio::sync::Mutex<()>,
) -> Result<MutexGuard<'a, ()>, Problem> {
    let taken = tokio::time::timeout(edge.shared.config.store_timeout, row.lock()).await;
    taken.map_err(|_| Problem::new(Kind::Busy, "others who change the stream take too long"))
}

/// What requests for streams share. All of it can be made again from the store.
#[derive(Debug, Default)]
pub(crate) struct Ds {
    /// When streams were used that live only as long as they are.
    leases: Mutex<Leases>,
    /// Descriptions, with the incarnation that they are of.
    configs: Mutex<HashMap<String, (u64, Arc<Config>)>>,
    /// Turns of producers.
    producers: Turns,
    /// Turns of writes with `Stream-Seq`.
    orders: Turns,
    /// The turn of whoever makes a fork or a stream that expires, or ends one.
    structure: tokio::sync::Mutex<()>,
}

/// Carries out a request for a stream.
pub(crate) async fn run(edge: &Arc<Edge>, call: &Call, body: Bytes) -> Result<Reply, Problem> {
    match call.head.method {
        Method::Put => create::put(edge, call, &body).await,
        Method::Post => append::post(edge, call, &body).await,
        Method::Delete => remove::delete(edge, call).await,
        Method::Head => read::head(edge, call).await,
        _ => read::get(edge, call).await,
    }
}

/// The topic of a path below `/ds/`: its parts, joined by dots.
pub(crate) fn topic_of(path: &str) -> Result<String, Problem> {
    let wrong = |why: String| Problem::bad(why).code(weir_core::ErrorCode::BadName);
    let mut name = String::with_capacity(path.len());
    for part in path.split('/') {
        let part = decode(part, false).and_then(|part| String::from_utf8(part).ok());
        let part = part.filter(|part| !matches!(part.as_str(), "" | "." | ".."));
        let part = part.ok_or_else(|| {
            wrong("a part of the path is empty, a dot, or has a wrong escape".to_owned())
        })?;
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&part);
    }
    TopicName::new(&name).map_err(|error| wrong(error.to_string()))?;
    Ok(name)
}

/// Whether a media type stands for JSON, whose values are kept apart.
fn is_json(content_type: &str) -> bool {
    use super::meta::{Declared, declared};
    matches!(
        declared(Some(content_type)),
        Declared::Json | Declared::LikeJson
    )
}

/// The part of a media type before its parameters, in lower case.
fn essence(content_type: &str) -> String {
    let end = content_type.find(';').unwrap_or(content_type.len());
    let essence = content_type.get(..end).unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::topic_of;

    #[test]
    fn a_path_is_a_topic() {
        assert_eq!(topic_of("a/b/c").ok().as_deref(), Some("a.b.c"));
        assert_eq!(topic_of("a.b%2Ec").ok().as_deref(), Some("a.b.c"));
        for wrong in [
            "", "a/", "/a", "a//b", "..", "a/../b", "a%2Fb", ".weir", "a%2", "é",
        ] {
            assert!(topic_of(wrong).is_err(), "{wrong}");
        }
    }
}
