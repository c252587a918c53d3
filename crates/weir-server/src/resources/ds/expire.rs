//! Removal of streams: DELETE, expiry, and deleted sources that were retained for their forks.
//!
//! A stream that a live fork reads is marked as gone instead of destroyed, and is destroyed with
//! the last of these forks. Only one creation of a fork or removal of a stream runs at a time, so a
//! fork never loses its source.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use weir_core::{Effect, ErrorCode, Expect, Intention, Operation};

use super::forks;
use super::leader::wait_until_current;
use super::registry::{self, Change};
use super::view::{self, View};
use crate::http::offload;
use crate::http::problem::{Kind, Problem};
use crate::phase::Phase;
use crate::resources::context::Edge;
use crate::resources::problems;
use crate::resources::propose::{outcomes, propose_unchecked};
use crate::resources::streams::config::Expiry;
use crate::resources::streams::state::lock;
use crate::resources::streams::terms::{FORK_PARTS_MAX, GONE, SWEEP_SECONDS};

/// Removes a stream that has expired, or that was deleted and has no more forks. Returns false if a
/// stream of this name remains.
pub(super) async fn remove_expired(edge: &Arc<Edge>, topic: &str) -> Result<bool, Problem> {
    let _guard = lock(edge.shared.config.store_timeout, &edge.ds.structure).await?;
    wait_until_current(edge).await?;
    let Some(view) = view::find(edge, topic).await? else {
        registry::change(edge, vec![registry::delete_expiry(topic)]).await?;
        edge.ds.remove(topic);
        return Ok(true);
    };
    if !view.gone && !edge.ds.is_expired(&view, &edge.shared) {
        if view.config.expiry == Expiry::Never {
            // The expiry was recorded for a creation that lost a race.
            registry::change(edge, vec![registry::delete_expiry(topic)]).await?;
            edge.ds.remove(topic);
        }
        return Ok(false);
    }
    if remove(edge, &view, b"").await? {
        Ok(true)
    } else {
        Err(view::gone())
    }
}

/// Removes a stream, and then the sources that were retained only for it. Returns false if the
/// stream has forks and is only marked.
pub(super) async fn remove(
    edge: &Arc<Edge>,
    view: &View,
    principal: &[u8],
) -> Result<bool, Problem> {
    let ds = &edge.ds;
    if forks::has_forks(edge, view).await? {
        if !view.gone {
            let gone = registry::put_gone(&view.topic, view.incarnation);
            registry::change(edge, vec![gone, registry::delete_expiry(&view.topic)]).await?;
            ds.remove(&view.topic);
            // Writes in flight fail because of this mark.
            mark(edge, view, principal).await?;
        }
        return Ok(false);
    }
    let mut view = view.clone();
    // A chain of forks is finite, because each fork is newer than its source.
    for _ in 0..=FORK_PARTS_MAX {
        destroy(edge, &view, principal).await?;
        ds.remove(&view.topic);
        let topic = &view.topic;
        let mut changes = vec![registry::delete_expiry(topic), registry::delete_gone(topic)];
        let source = view.config.fork.as_ref();
        changes.extend(source.map(|fork| registry::delete_fork(&fork.from, &view.topic)));
        registry::change(edge, changes).await?;
        let Some(fork) = &view.config.fork else { break };
        let source = view::find(edge, &fork.from).await?;
        match source {
            Some(source)
                if source.gone
                    && source.incarnation == fork.incarnation
                    && !forks::has_forks(edge, &source).await? =>
            {
                view = source;
            }
            _ => break,
        }
    }
    Ok(true)
}

async fn mark(edge: &Arc<Edge>, view: &View, principal: &[u8]) -> Result<(), Problem> {
    let expect = [Expect::Incarnation(view.incarnation)];
    let put = Operation::Put {
        key: GONE,
        value: b"",
    };
    write(edge, &view.topic, put, &expect, principal).await
}

async fn destroy(edge: &Arc<Edge>, view: &View, principal: &[u8]) -> Result<(), Problem> {
    let expect = [Expect::Incarnation(view.incarnation)];
    write(edge, &view.topic, Operation::Destroy, &expect, principal).await
}

/// Runs one step of a removal. Succeeds if the topic was already destroyed.
async fn write(
    edge: &Arc<Edge>,
    topic: &str,
    operation: Operation<'_>,
    expect: &[Expect<'_>],
    principal: &[u8],
) -> Result<(), Problem> {
    let queued = {
        let intention = Intention {
            expect,
            principal,
            ..Intention::new(topic, operation)
        };
        propose_unchecked(edge, None, std::slice::from_ref(&intention))?
    };
    let outcomes = outcomes(edge, queued).await?;
    let outcome = outcomes.iter().next();
    let commit = outcome.as_ref().and_then(weir_core::Outcome::commit);
    let commit =
        commit.ok_or_else(|| Problem::new(Kind::Internal, "the store returned no outcome"))?;
    match commit.reason {
        Some(ErrorCode::Conflict | ErrorCode::TopicAbsent | ErrorCode::NoTopic) => Ok(()),
        _ if commit.effect != Effect::Valid => Err(problems::of_commit(commit)),
        _ => Ok(()),
    }
}

/// Removes expired streams, until the server ends. When this server starts, or begins to lead, it
/// first completes the removals that an earlier server has left incomplete.
pub(crate) async fn sweep(edge: Arc<Edge>, mut phase: watch::Receiver<Phase>) {
    let mut loaded = None;
    loop {
        let term = edge.ds.leading_term(&edge.shared);
        if term.is_some() && term != loaded {
            match load(&edge).await {
                Ok(()) => loaded = term,
                Err(problem) => log_failure(registry::REGISTRY, Err(problem)),
            }
        }
        let pause = Duration::from_secs(SWEEP_SECONDS);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = phase.wait_for(|phase| *phase >= Phase::Draining) => return,
        }
        if edge.ds.leading_term(&edge.shared).is_none() {
            continue;
        }
        for topic in edge.ds.expired_topics(edge.shared.store.now_ms()) {
            if edge.shared.phase() >= Phase::Draining {
                return;
            }
            log_failure(&topic, remove_expired(&edge, &topic).await.map(drop));
        }
    }
}

/// Loads the registry, and completes the removals that an earlier server has left incomplete.
async fn load(edge: &Arc<Edge>) -> Result<(), Problem> {
    wait_until_current(edge).await?;
    let loader = Arc::clone(edge);
    for (source, fork) in offload::run(move || forks::load(&loader)).await? {
        log_failure(&source, remove_stale_fork(edge, &source, &fork).await);
    }
    Ok(())
}

/// Removes the registry entry of a fork that does not exist, and then its source if it was retained
/// for that fork.
async fn remove_stale_fork(edge: &Arc<Edge>, source: &str, fork: &str) -> Result<(), Problem> {
    let guard = lock(edge.shared.config.store_timeout, &edge.ds.structure).await?;
    wait_until_current(edge).await?;
    let view = view::find(edge, fork).await?;
    let fork_of = view.as_ref().and_then(|view| view.config.fork.as_ref());
    if fork_of.is_some_and(|fork| fork.from == source) {
        return Ok(());
    }
    let change: Change = registry::delete_fork(source, fork);
    registry::change(edge, vec![change]).await?;
    drop(guard);
    match view::find(edge, source).await? {
        Some(view) if view.gone => remove_expired(edge, source).await.map(drop),
        _ => Ok(()),
    }
}

fn log_failure(topic: &str, result: Result<(), Problem>) {
    match result {
        Err(problem) if problem.kind != Kind::StreamGone => {
            tracing::warn!(
                topic,
                problem = problem.kind.name(),
                detail = problem.detail,
                "a stream could not be removed; the server retries the removal"
            );
        }
        _ => {}
    }
}
