//! Transactions: several writes, all or none, in one intention.
//!
//! Invariants:
//! - A transaction is one intention.
//! - Its conditions apply to all of its operations.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use weir_core::limits::{EXPECTS_MAX, TXN_OPS_MAX};
use weir_core::{Detail, Effect, Expect, Intention, Operation, Outcome, TxnOp};

use super::item::{Item, bad, read_expect, read_record};
use crate::http::head::FieldName;
use crate::http::json::Object;
use crate::http::problem::{Kind, Problem};
use crate::http::reply::Reply;
use crate::http::{base64, offload};
use crate::resources::bounded::{Bounded, ConditionValue, Members};
use crate::resources::condition::{Condition, Conditions, TagKind};
use crate::resources::context::{Call, Edge};
use crate::resources::problems;
use crate::resources::propose::{outcomes, propose, refused};
use crate::resources::session::Session;

/// Runs a transaction.
pub(crate) async fn transaction(
    edge: &Arc<Edge>,
    call: &Call,
    body: &Bytes,
) -> Result<Reply, Problem> {
    let media = call
        .head
        .text(FieldName::ContentType)
        .unwrap_or("application/json");
    let essence = media.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json")
        && !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
    {
        return Err(Problem::new(Kind::MediaType, "a transaction must be JSON")
            .raw("accept", b"[\"application/json\"]".to_vec()));
    }
    let whole = body.clone();
    let (items, keys) = offload::run_by_size(body.len(), move || read_transaction(&whole)).await?;
    let mut expects = Conditions::read(&call.head, TagKind::Events)?.expects(None);
    for (key, conditions) in &keys {
        for condition in conditions {
            expects.push(match (condition.expect(), key) {
                (Expect::KeyOffset(_, n), Some(key)) => Expect::KeyOffset(Some(key), n),
                (Expect::KeyAbsent(_), Some(key)) => Expect::KeyAbsent(Some(key)),
                (Expect::KeyPresent(_), Some(key)) => Expect::KeyPresent(Some(key)),
                (Expect::KeyOffset(..) | Expect::KeyAbsent(_) | Expect::KeyPresent(_), None) => {
                    return Err(bad("a condition on a key must name the key"));
                }
                (other, None) => other,
                (_, Some(_)) => return Err(bad("a condition on the topic must not name a key")),
            });
        }
    }
    let ops: Vec<TxnOp<'_>> = items.iter().map(Item::operation).collect();
    let session = Session::read(edge, call, body)?;
    txn(edge, call, session, &ops, &expects).await
}

/// Writes all items in one intention.
pub(super) async fn run_atomic(
    edge: &Arc<Edge>,
    call: &Call,
    session: Session,
    conditions: &Conditions,
    items: &[Item],
) -> Result<Reply, Problem> {
    if items.len() > TXN_OPS_MAX {
        return Err(too_many());
    }
    if items.iter().any(|item| !item.expect.is_empty()) {
        return Err(bad(
            "an operation of a transaction must not have conditions; set them on the transaction",
        ));
    }
    let ops: Vec<TxnOp<'_>> = items.iter().map(Item::operation).collect();
    let expects = conditions.expects(None);
    txn(edge, call, session, &ops, &expects).await
}

async fn txn(
    edge: &Arc<Edge>,
    call: &Call,
    session: Session,
    ops: &[TxnOp<'_>],
    expects: &[Expect<'_>],
) -> Result<Reply, Problem> {
    let mut queued = {
        let intention = Intention {
            client: session.client,
            nonce: session.nonce,
            expect: expects,
            principal: call.principal.name.as_bytes(),
            fingerprint: session.fingerprint,
            ..Intention::new(&call.matched.topic, Operation::Txn { ops })
        };
        propose(edge, call, std::slice::from_ref(&intention))?
    };
    session.hold_in(&mut queued);
    let outcomes = outcomes(edge, queued).await?;
    let outcome = outcomes.runs().first().map(|run| &run.outcome);
    let commit = match outcome {
        None => {
            return Err(Problem::new(
                Kind::Internal,
                "the store returned no outcome",
            ));
        }
        Some(Outcome::Refused { code, expected }) => return Err(refused(*code, *expected)),
        Some(Outcome::Committed(commit) | Outcome::Replayed(commit)) => commit,
    };
    if commit.effect != Effect::Valid {
        let mut problem = problems::of_commit(commit);
        // With several conditions, the failed one is unknown.
        if let [expect] = expects
            && problem.kind == Kind::Conflict
            && let Some(condition) = Condition::of(expect)
        {
            problem = condition.explain(problem);
            if let (Condition::TopicOffset(_), Detail::Actual(now)) = (condition, &commit.detail) {
                problem = problem.field("etag", format!("\"o{now}\""));
            }
        }
        return Err(problem);
    }
    let (first, records) = (commit.first.0, u64::from(commit.records));
    let mut reply = Reply::new(201)
        .number("weir-count", records)
        .number("weir-intention", commit.intention.0);
    reply.add("weir-effect", "valid");
    if matches!(outcome, Some(Outcome::Replayed(_))) {
        reply.add("weir-replayed", "?1");
    }
    if records > 0 {
        reply = reply.number("weir-offset", first);
        reply.add(
            "location",
            format_args!("/v1/topics/{}/events/{first}", call.matched.topic),
        );
    }
    let mut body = Vec::new();
    let mut object = Object::new(&mut body);
    object
        .number("offset", first)
        .number("count", records)
        .number("intention", commit.intention.0)
        .text("effect", "valid");
    object.end();
    body.push(b'\n');
    Ok(reply.with("application/json", body))
}

/// The body of a transaction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transaction<'a> {
    #[serde(borrow)]
    operations: Bounded<&'a RawValue, TXN_OPS_MAX>,
    #[serde(borrow, default)]
    expect: Bounded<Members<'a, ConditionValue<'a>>, EXPECTS_MAX>,
}

/// The key that a condition names, and its conditions. A transaction can have conditions on several
/// keys.
type KeyConditions = (Option<Vec<u8>>, Vec<Condition>);

/// Parses the operations and conditions of a transaction.
fn read_transaction(body: &[u8]) -> Result<(Vec<Item>, Vec<KeyConditions>), Problem> {
    let source: Transaction<'_> = serde_json::from_slice(body)
        .map_err(|error| bad(format!("the transaction is malformed: {error}")))?;
    if source.operations.more {
        return Err(too_many());
    }
    if source.expect.more {
        return Err(Problem::too_large("the number of conditions", EXPECTS_MAX));
    }
    let mut items = Vec::with_capacity(source.operations.items.len());
    for (index, raw) in (0_u64..).zip(&source.operations.items) {
        items.push(read_record(raw.get()).map_err(|problem| problem.number("index", index))?);
    }
    if items.is_empty() {
        return Err(bad("a transaction needs at least one operation"));
    }
    if items.iter().any(|item| !item.expect.is_empty()) {
        return Err(bad(
            "an operation of a transaction must not have conditions; set them on the transaction",
        ));
    }
    let mut keys = Vec::with_capacity(source.expect.items.len());
    for Members(members) in &source.expect.items {
        let key = match (members.get("key"), members.get("key64")) {
            (None, None) => None,
            (Some(ConditionValue::Text(key)), None) => Some(key.as_bytes().to_vec()),
            (None, Some(ConditionValue::Text(key))) => {
                Some(base64::decode(key).ok_or_else(|| bad("key64 is not base64"))?)
            }
            _ => return Err(bad("the key of a condition must be a text")),
        };
        let rest = members.iter();
        let rest = rest.filter(|(name, _)| !matches!(name.as_ref(), "key" | "key64"));
        keys.push((key, read_expect(rest)?));
    }
    Ok((items, keys))
}

pub(super) fn too_many() -> Problem {
    Problem::too_large("the number of operations", TXN_OPS_MAX)
}
