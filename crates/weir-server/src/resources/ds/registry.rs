//! The topic `.weir.ds`: which streams expire, which are forks of others, and which are retained
//! only for their forks.
//!
//! `expiry/NAME` is written before a stream that expires is created, and `fork/SOURCE/NAME` before
//! a fork is created. Both are deleted after the stream was removed. So there may be an entry
//! without a stream, but never a stream without its entry. The state of the stream shows whether an
//! entry is stale.
//!
//! Clients can write the topics of streams, but not this topic. So a description makes a stream
//! expire, or lets it read other topics, only if an entry here has the hash of that description.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use weir_core::{Compaction, Intention, Operation, TopicOptions};
use weir_store::{Store, StoreError};

use crate::http::exchange::busy;
use crate::http::problem::{Kind, Problem};
use crate::queued_write::QueuedWrite;
use crate::resources::context::Edge;
use crate::resources::problems;
use crate::resources::propose::outcomes;
use crate::resources::streams::config::{Config, Expiry};
use crate::resources::streams::terms::{REGISTRY_PAGE, TYPE_BYTES_MAX};

/// Name of the topic.
pub(super) const REGISTRY: &str = ".weir.ds";

/// A change of the registry.
pub(super) enum Change {
    Put(String, Vec<u8>),
    Delete(String),
}

/// The value of `expiry/NAME`, as JSON.
#[derive(Serialize, Deserialize)]
pub(super) struct Expiring {
    pub(super) expiry: Expiry,
    /// Seal of the description for which the entry was written.
    seal: String,
}

/// The hash of the bytes of a description, which identifies the description.
pub(super) fn seal(description: &[u8]) -> String {
    let hash = Sha256::digest(description);
    hash.iter().fold(String::new(), |mut text, byte| {
        // Writing to memory cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn expiry_key(topic: &str) -> String {
    format!("expiry/{topic}")
}

fn fork_key(source: &str, fork: &str) -> String {
    format!("fork/{source}/{fork}")
}

fn gone_key(topic: &str) -> String {
    format!("gone/{topic}")
}

/// Writes the entry of a stream that expires.
pub(super) fn put_expiry(topic: &str, expiry: Expiry, seal: &str) -> Change {
    let seal = seal.to_owned();
    // A number and a text always serialize.
    let value = serde_json::to_vec(&Expiring { expiry, seal }).unwrap_or_default();
    Change::Put(expiry_key(topic), value)
}

/// Deletes the entry of `put_expiry`.
pub(super) fn delete_expiry(topic: &str) -> Change {
    Change::Delete(expiry_key(topic))
}

/// Writes the entry of a fork.
pub(super) fn put_fork(source: &str, fork: &str, seal: &str) -> Change {
    Change::Put(fork_key(source, fork), seal.as_bytes().to_vec())
}

/// Deletes the entry of `put_fork`.
pub(super) fn delete_fork(source: &str, fork: &str) -> Change {
    Change::Delete(fork_key(source, fork))
}

/// Writes the entry of a stream that is retained for its forks.
pub(super) fn put_gone(topic: &str, incarnation: u64) -> Change {
    Change::Put(gone_key(topic), incarnation.to_string().into_bytes())
}

/// Deletes the entry of `put_gone`.
pub(super) fn delete_gone(topic: &str) -> Change {
    Change::Delete(gone_key(topic))
}

/// Returns the value of an entry; `None` if there is none.
fn value(store: &Store, key: &str) -> Result<Option<Vec<u8>>, Problem> {
    if store.key_offset(REGISTRY, key.as_bytes()).is_none() {
        return Ok(None);
    }
    let error = |error: StoreError| problems::of_store(&error);
    let page = store.get(REGISTRY, key.as_bytes()).map_err(error)?;
    let record = page.as_ref().and_then(|page| page.iter().next());
    let record = record.transpose().map_err(error)?;
    Ok(record.map(|record| record.value.to_vec()))
}

/// Whether any stream of this name is retained only for its forks. Reads only memory.
pub(super) fn may_be_gone(store: &Store, topic: &str) -> bool {
    let key = gone_key(topic);
    store.key_offset(REGISTRY, key.as_bytes()).is_some()
}

/// Whether this incarnation of a stream is retained only for its forks.
pub(super) fn is_gone(store: &Store, topic: &str, incarnation: u64) -> Result<bool, Problem> {
    let entry = value(store, &gone_key(topic))?;
    Ok(entry.is_some_and(|entry| entry == incarnation.to_string().as_bytes()))
}

/// Parses the description of a stream, and checks it against the registry. A fork without its entry,
/// and a longer content type than a client may set, give `None`; an expiry without its entry is
/// ignored.
pub(super) fn validated(
    store: &Store,
    topic: &str,
    description: &[u8],
) -> Result<Option<Config>, Problem> {
    let Ok(mut config) = serde_json::from_slice::<Config>(description) else {
        return Ok(None);
    };
    // Clients can write any description. The server caches the type, and sends it in each response.
    if config.content_type.len() > TYPE_BYTES_MAX {
        return Ok(None);
    }
    if config.fork.is_none() && config.expiry == Expiry::Never {
        return Ok(Some(config));
    }
    let seal = seal(description);
    if let Some(fork) = &config.fork
        && value(store, &fork_key(&fork.from, topic))?.as_deref() != Some(seal.as_bytes())
    {
        return Ok(None);
    }
    if config.expiry != Expiry::Never {
        let entry = value(store, &expiry_key(topic))?;
        let entry = entry.and_then(|entry| serde_json::from_slice::<Expiring>(&entry).ok());
        if entry.is_none_or(|entry| entry.seal != seal) {
            config.expiry = Expiry::Never;
        }
    }
    Ok(Some(config))
}

/// Applies changes in order. Deleting an entry that does not exist succeeds.
pub(super) async fn change(edge: &Arc<Edge>, changes: Vec<Change>) -> Result<(), Problem> {
    let store = &edge.shared.store;
    let mut options = TopicOptions::default();
    options.compaction = Compaction::Latest;
    options.tombstone_ttl_ms = Some(0);
    let create = Operation::Create { options: &options };
    let is_missing = store.topic(REGISTRY).is_none_or(|topic| !topic.live);
    let create = is_missing.then(|| Intention::new(REGISTRY, create));
    let exists = |key: &[u8]| store.key_offset(REGISTRY, key).is_some();
    let operations = changes.iter().filter_map(|change| match change {
        Change::Put(key, value) => {
            let key = key.as_bytes();
            Some(Operation::Put { key, value })
        }
        Change::Delete(key) => {
            let key = key.as_bytes();
            exists(key).then_some(Operation::Delete { key })
        }
    });
    let operations = operations.map(|operation| Intention::new(REGISTRY, operation));
    let intentions: Vec<Intention<'_>> = create.into_iter().chain(operations).collect();
    if intentions.is_empty() {
        return Ok(());
    }
    let bytes = intentions.iter().map(Intention::size_hint).sum();
    let permit = edge.shared.admission.admit(bytes);
    let permit = permit.ok_or_else(|| busy(edge.shared.admission.exhausted(false)))?;
    let proposal = store.propose_own(&intentions);
    let proposal = proposal.map_err(|error| problems::of_store(&error))?;
    drop(intentions);
    let queued = QueuedWrite::new(&edge.shared.admission, proposal, permit);
    let outcomes = outcomes(edge, queued).await?;
    let succeeded = |outcome: weir_core::Outcome| {
        let commit = outcome.commit().cloned();
        // Another request may have created the topic first.
        commit.is_some_and(|commit| {
            commit.reason.is_none() || commit.reason == Some(weir_core::ErrorCode::TopicExists)
        })
    };
    if outcomes.iter().all(succeeded) {
        return Ok(());
    }
    Err(Problem::new(
        Kind::Internal,
        "the registry of streams refused an entry",
    ))
}

/// Calls `each` with the name of each entry after the prefix, until it returns false. Reads values
/// only if `with_values` is set. May block on a disk.
pub(super) fn entries(
    edge: &Edge,
    prefix: &str,
    with_values: bool,
    mut each: impl FnMut(&str, &[u8]) -> Result<bool, Problem>,
) -> Result<(), Problem> {
    let store = &edge.shared.store;
    let error = |error: StoreError| problems::of_store(&error);
    let mut after: Option<Box<[u8]>> = None;
    loop {
        let found = store.scan(REGISTRY, prefix.as_bytes(), after.as_deref(), REGISTRY_PAGE);
        let found = match found {
            Err(StoreError::TopicUnknown { .. }) => return Ok(()),
            found => found.map_err(error)?,
        };
        for entry in &found {
            let key = String::from_utf8_lossy(&entry.key);
            let rest = key.strip_prefix(prefix).unwrap_or_default();
            let page = if with_values {
                store.value(REGISTRY, entry).map_err(error)?
            } else {
                None
            };
            let record = page.as_ref().and_then(|page| page.iter().next());
            let record = record.transpose().map_err(error)?;
            if !each(rest, record.map(|record| record.value).unwrap_or_default())? {
                return Ok(());
            }
        }
        match found.into_iter().next_back() {
            Some(last) => after = Some(last.key),
            None => return Ok(()),
        }
    }
}
