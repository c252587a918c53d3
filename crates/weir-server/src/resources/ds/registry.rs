//! The topic `.weir.ds`: which streams expire, which are forks of which, and
//! which are kept for their forks only.
//!
//! `expiry/NAME` stands before a stream that expires is made, `fork/SOURCE/NAME`
//! before a fork is, and both go after it has ended: so an entry may be one too
//! many, never one too few. One too many is found out by looking at the stream.
//!
//! Clients cannot write this topic, and they can write those of streams. So
//! what a stream says of itself ends it, or lets other topics be read through
//! it, only if an entry here has the hash of what it says.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use weir_core::{Compaction, Intention, Operation, TopicOptions};
use weir_store::{Store, StoreError};

use crate::http::problem::{Kind, Problem};
use crate::resources::context::Edge;
use crate::resources::problems;
use crate::resources::propose::outcomes;
use crate::resources::streams::config::{Config, Expiry};
use crate::resources::streams::terms::REGISTRY_PAGE;

/// Name of the topic.
pub(super) const REGISTRY: &str = ".weir.ds";

/// A change of the registry.
pub(super) enum Change {
    Put(String, Vec<u8>),
    Delete(String),
}

/// What stands under `expiry/NAME`, as JSON.
#[derive(Serialize, Deserialize)]
pub(super) struct Expiring {
    pub(super) expiry: Expiry,
    /// Seal of the description that it is of.
    seal: String,
}

/// What tells the description of a stream, as it is written, from any other.
pub(super) fn seal(description: &[u8]) -> String {
    let hash = Sha256::digest(description);
    hash.iter().fold(String::new(), |mut text, byte| {
        // Writing to memory does not fail.
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

/// Entry of a stream that expires.
pub(super) fn expiring(topic: &str, expiry: Expiry, seal: &str) -> Change {
    let seal = seal.to_owned();
    // What is a number and a text can always be written.
    let value = serde_json::to_vec(&Expiring { expiry, seal }).unwrap_or_default();
    Change::Put(expiry_key(topic), value)
}

/// As `expiring`, taken away.
pub(super) fn expired(topic: &str) -> Change {
    Change::Delete(expiry_key(topic))
}

/// Entry of a fork.
pub(super) fn forked(source: &str, fork: &str, seal: &str) -> Change {
    Change::Put(fork_key(source, fork), seal.as_bytes().to_vec())
}

/// As `forked`, taken away.
pub(super) fn unforked(source: &str, fork: &str) -> Change {
    Change::Delete(fork_key(source, fork))
}

/// Entry of a stream that is kept for its forks.
pub(super) fn gone(topic: &str, incarnation: u64) -> Change {
    Change::Put(gone_key(topic), incarnation.to_string().into_bytes())
}

/// As `gone`, taken away.
pub(super) fn forgotten(topic: &str) -> Change {
    Change::Delete(gone_key(topic))
}

/// The value of an entry; `None` when there is none.
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

/// Whether there is an entry that says a stream of this name is kept for its
/// forks only; no question to a disk.
pub(super) fn may_be_gone(store: &Store, topic: &str) -> bool {
    let key = gone_key(topic);
    store.key_offset(REGISTRY, key.as_bytes()).is_some()
}

/// Whether a stream is kept for its forks only.
pub(super) fn is_gone(store: &Store, topic: &str, incarnation: u64) -> Result<bool, Problem> {
    let kept = value(store, &gone_key(topic))?;
    Ok(kept.is_some_and(|kept| kept == incarnation.to_string().as_bytes()))
}

/// What a stream says of itself, as far as it is to be believed; `None`: not
/// at all.
pub(super) fn believed(
    store: &Store,
    topic: &str,
    description: &[u8],
) -> Result<Option<Config>, Problem> {
    let Ok(mut config) = serde_json::from_slice::<Config>(description) else {
        return Ok(None);
    };
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

/// Carries changes out, in order; what is to be taken away may be gone.
pub(super) async fn change(edge: &Arc<Edge>, changes: Vec<Change>) -> Result<(), Problem> {
    let store = &edge.shared.store;
    let mut options = TopicOptions::default();
    options.compaction = Compaction::Latest;
    options.tombstone_ttl_ms = Some(0);
    let create = Operation::Create { options: &options };
    let missing = store.topic(REGISTRY).is_none_or(|topic| !topic.live);
    let create = missing.then(|| Intention::new(REGISTRY, create));
    let there = |key: &[u8]| store.key_offset(REGISTRY, key).is_some();
    let steps = changes.iter().filter_map(|change| match change {
        Change::Put(key, value) => {
            let key = key.as_bytes();
            Some(Operation::Put { key, value })
        }
        Change::Delete(key) => {
            let key = key.as_bytes();
            there(key).then_some(Operation::Delete { key })
        }
    });
    let steps = steps.map(|operation| Intention::new(REGISTRY, operation));
    let intentions: Vec<Intention<'_>> = create.into_iter().chain(steps).collect();
    if intentions.is_empty() {
        return Ok(());
    }
    let bytes = intentions.iter().map(Intention::size_hint).sum();
    let permit = edge.shared.admission.admit(bytes);
    let permit = permit.ok_or_else(|| Problem::new(Kind::Busy, ""))?;
    let proposal = store.propose_own(&intentions);
    let proposal = proposal.map_err(|error| problems::of_store(&error))?;
    drop(intentions);
    let outcomes = outcomes(edge, proposal, permit).await?;
    let fine = |outcome: weir_core::Outcome| {
        let commit = outcome.commit().cloned();
        // Another request may have created the topic first.
        commit.is_some_and(|commit| {
            commit.reason.is_none() || commit.reason == Some(weir_core::ErrorCode::TopicExists)
        })
    };
    if outcomes.iter().all(fine) {
        return Ok(());
    }
    Err(Problem::new(
        Kind::Internal,
        "the registry of streams does not take an entry",
    ))
}

/// All entries with a prefix, each without it, until one is enough. Reads
/// values only where somebody wants them; may wait for a disk.
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
