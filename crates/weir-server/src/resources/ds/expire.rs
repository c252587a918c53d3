//! The end of streams: DELETE, expiry, and the sources that outlived their
//! name because a fork read them.
//!
//! A stream that a living fork reads is marked as gone instead of destroyed; it
//! is destroyed with the last of them. Forks are created and streams are
//! ended one at a time, so a fork never loses what it reads.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use weir_core::{Effect, ErrorCode, Expect, Intention, Operation};

use super::forks;
use super::registry::{self, Change};
use super::view::{self, View};
use crate::http::offload;
use crate::http::problem::{Kind, Problem};
use crate::phase::Phase;
use crate::resources::context::Edge;
use crate::resources::problems;
use crate::resources::propose::{hand_over, outcomes};
use crate::resources::streams::config::Expiry;
use crate::resources::streams::state::turn;
use crate::resources::streams::terms::{FORK_PARTS_MAX, GONE, SWEEP_SECONDS};

/// Removes a stream whose time is over, or that was deleted and has no forks
/// any more. False when there is one by this name that stays.
pub(super) async fn expired(edge: &Arc<Edge>, topic: &str) -> Result<bool, Problem> {
    let _turn = turn(edge.shared.config.store_timeout, &edge.ds.structure).await?;
    let Some(view) = view::look(edge, topic).await? else {
        registry::change(edge, vec![registry::expired(topic)]).await?;
        edge.ds.forget(topic);
        return Ok(true);
    };
    if !view.gone && !edge.ds.is_expired(&view, edge.shared.store.now_ms()) {
        if view.config.expiry == Expiry::Never {
            // Meant for a stream that another one was faster to be.
            registry::change(edge, vec![registry::expired(topic)]).await?;
            edge.ds.forget(topic);
        }
        return Ok(false);
    }
    if end(edge, &view, b"").await? {
        Ok(true)
    } else {
        Err(view::gone())
    }
}

/// Ends a stream, and then the sources that only it has kept. False when it
/// is only marked, for its forks.
pub(super) async fn end(edge: &Arc<Edge>, view: &View, principal: &[u8]) -> Result<bool, Problem> {
    let ds = &edge.ds;
    if forks::has_forks(edge, view).await? {
        if !view.gone {
            let gone = registry::gone(&view.topic, view.incarnation);
            registry::change(edge, vec![gone, registry::expired(&view.topic)]).await?;
            ds.forget(&view.topic);
            // Writes that are on their way meet this.
            mark(edge, view, principal).await?;
        }
        return Ok(false);
    }
    let mut view = view.clone();
    // A chain of forks has an end, as each one is younger than its source.
    for _ in 0..=FORK_PARTS_MAX {
        destroy(edge, &view, principal).await?;
        ds.forget(&view.topic);
        let topic = &view.topic;
        let mut changes = vec![registry::expired(topic), registry::forgotten(topic)];
        let source = view.config.fork.as_ref();
        changes.extend(source.map(|fork| registry::unforked(&fork.from, &view.topic)));
        registry::change(edge, changes).await?;
        let Some(fork) = &view.config.fork else { break };
        let source = view::look(edge, &fork.from).await?;
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
    carry_out(edge, &view.topic, put, &expect, principal).await
}

async fn destroy(edge: &Arc<Edge>, view: &View, principal: &[u8]) -> Result<(), Problem> {
    let expect = [Expect::Incarnation(view.incarnation)];
    carry_out(edge, &view.topic, Operation::Destroy, &expect, principal).await
}

/// One step of a removal. Somebody else may have ended the topic.
async fn carry_out(
    edge: &Arc<Edge>,
    topic: &str,
    operation: Operation<'_>,
    expect: &[Expect<'_>],
    principal: &[u8],
) -> Result<(), Problem> {
    let (proposal, permit) = {
        let intention = Intention {
            expect,
            principal,
            ..Intention::new(topic, operation)
        };
        hand_over(edge, std::slice::from_ref(&intention))?
    };
    let outcomes = outcomes(edge, proposal, permit).await?;
    let outcome = outcomes.iter().next();
    let commit = outcome.as_ref().and_then(weir_core::Outcome::commit);
    let commit = commit.ok_or_else(|| Problem::new(Kind::Internal, "nothing was answered"))?;
    match commit.reason {
        Some(ErrorCode::Conflict | ErrorCode::TopicAbsent | ErrorCode::NoTopic) => Ok(()),
        _ if commit.effect != Effect::Valid => Err(problems::of_commit(commit)),
        _ => Ok(()),
    }
}

/// Removes what has expired, until the server ends; and first what an earlier
/// server has left half removed.
pub(crate) async fn sweep(edge: Arc<Edge>, mut phase: watch::Receiver<Phase>) {
    let loading = Arc::clone(&edge);
    match offload::run(move || forks::load(&loading)).await {
        Ok(stale) => {
            for (source, fork) in stale {
                tell(&source, tidy(&edge, &source, &fork).await);
            }
        }
        Err(problem) => tell(registry::REGISTRY, Err(problem)),
    }
    loop {
        let pause = Duration::from_secs(SWEEP_SECONDS);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = phase.wait_for(|phase| *phase >= Phase::Draining) => return,
        }
        for topic in edge.ds.due(edge.shared.store.now_ms()) {
            if edge.shared.phase() >= Phase::Draining {
                return;
            }
            tell(&topic, expired(&edge, &topic).await.map(drop));
        }
    }
}

/// Takes away the entry of a fork that is none, and then its source if that
/// was kept for it.
async fn tidy(edge: &Arc<Edge>, source: &str, fork: &str) -> Result<(), Problem> {
    let held = turn(edge.shared.config.store_timeout, &edge.ds.structure).await?;
    let view = view::look(edge, fork).await?;
    let of = view.as_ref().and_then(|view| view.config.fork.as_ref());
    if of.is_some_and(|fork| fork.from == source) {
        return Ok(());
    }
    let change: Change = registry::unforked(source, fork);
    registry::change(edge, vec![change]).await?;
    drop(held);
    match view::look(edge, source).await? {
        Some(view) if view.gone => expired(edge, source).await.map(drop),
        _ => Ok(()),
    }
}

fn tell(topic: &str, result: Result<(), Problem>) {
    match result {
        Err(problem) if problem.kind != Kind::StreamGone => {
            tracing::warn!(
                topic,
                problem = problem.kind.name(),
                detail = problem.detail,
                "a stream could not be removed; it is tried again"
            );
        }
        _ => {}
    }
}
