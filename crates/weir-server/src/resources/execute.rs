//! Executes one intention without a payload, from a request to its verdict.

use std::sync::Arc;

use serde::Deserialize;
use weir_core::{Detail, Effect, Intention, Operation, Outcome};

use super::compile;
use super::condition::{Conditions, TagKind};
use super::problems;
use super::propose::{outcomes, refused};
use super::session::Session;
use crate::http::problem::{Kind, Problem};
use crate::http::reply::Reply;
use crate::resources::context::{Call, Edge};

/// Parses a body that is a JSON object.
pub(crate) fn json_object<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| Problem::bad(format!("the body is malformed: {error}")))
}

/// Executes one intention without a payload.
pub(crate) async fn execute(
    edge: &Arc<Edge>,
    call: &Call,
    operation: Operation<'_>,
    body: &[u8],
) -> Result<Outcome, Problem> {
    let conditions = Conditions::read(&call.head, TagKind::Topic)?;
    execute_with(edge, call, operation, body, conditions, None::<()>).await
}

/// As `execute`, without conditions on the topic.
pub(crate) async fn execute_plain(
    edge: &Arc<Edge>,
    call: &Call,
    operation: Operation<'_>,
    body: &[u8],
) -> Result<Outcome, Problem> {
    let conditions = Conditions::default();
    execute_with(edge, call, operation, body, conditions, None::<()>).await
}

/// As `execute`, with these conditions. Keeps `held` until the verdict, even if the request ends
/// before.
pub(crate) async fn execute_with(
    edge: &Arc<Edge>,
    call: &Call,
    operation: Operation<'_>,
    body: &[u8],
    conditions: Conditions,
    held: Option<impl Send + Sync + 'static>,
) -> Result<Outcome, Problem> {
    if !conditions.tags.is_empty() {
        return Err(Problem::bad("a write to a topic accepts only one tag"));
    }
    let session = Session::read(edge, call, body)?.identified_by_request(call, body);
    let expects = conditions.expects(None);
    let intention = Intention {
        client: session.client,
        nonce: session.nonce,
        expect: &expects,
        principal: call.principal.name.as_bytes(),
        fingerprint: session.fingerprint,
        ..Intention::new(&call.matched.topic, operation)
    };
    let mut queued = compile::propose(edge, call, &session, &intention, expects.clone()).await?;
    queued.hold(held);
    let outcomes = outcomes(edge, queued).await?;
    let outcome = outcomes.runs().first().map(|run| run.outcome.clone());
    match outcome {
        None => Err(Problem::new(
            Kind::Internal,
            "the store returned no outcome",
        )),
        Some(Outcome::Refused { code, expected }) => Err(refused(code, expected)),
        Some(outcome) => {
            let commit = outcome
                .commit()
                .filter(|commit| commit.effect != Effect::Valid);
            match commit {
                Some(commit) => {
                    let problem = problems::of_commit(commit);
                    let problem = if problem.kind == Kind::Conflict {
                        conditions.explain(problem)
                    } else {
                        problem
                    };
                    Err(match &commit.detail {
                        Detail::Actual(actual)
                            if problem.kind == Kind::Conflict && *actual != 0 =>
                        {
                            problem.field("etag", format!("\"i{actual}\""))
                        }
                        _ => problem,
                    })
                }
                None => Ok(outcome),
            }
        }
    }
}

/// The head of the response to a write to the topic itself.
pub(crate) fn reply_head(status: u16, outcome: &Outcome) -> Reply {
    let mut reply = Reply::new(status);
    if let Some(commit) = outcome.commit() {
        reply = reply
            .number("weir-offset", commit.first.0)
            .number("weir-intention", commit.intention.0);
        reply.add("weir-effect", "valid");
    }
    if matches!(outcome, Outcome::Replayed(_)) {
        reply.add("weir-replayed", "?1");
    }
    reply
}
