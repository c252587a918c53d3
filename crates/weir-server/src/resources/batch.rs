//! Batches and transactions.
//!
//! A batch is read as it arrives, and split at item boundaries into log entries of at most 10,000
//! items or 4 MiB. At most one such entry is in memory. Each item has an outcome; the response
//! lists them run-length coded.
//!
//! | module | purpose |
//! |---|---|
//! | `stream`, `cursor` | find items in a body that is arriving, and in a complete body |
//! | `item` | parses an item |
//! | `writer`, `summary` | log entries, and their outcomes |
//! | `transaction` | transactions: all items or none |

mod cursor;
mod item;
mod stream;
mod summary;
mod transaction;
mod writer;

use super::table::{BodyMax, Content, Operation, Response, Row, Table, WRITE_FIELDS};
use crate::security::Right;
use serde_json::{Value, json};
use std::sync::Arc;

use bytes::Bytes;
use weir_core::limits::{CALL_ITEMS_MAX, TXN_OPS_MAX};

use self::cursor::Cursor;
use self::item::{Item, Mode, Position, Reader, bad};
use self::stream::ItemStream;
use self::summary::answer;
pub(crate) use self::transaction::transaction;
use self::transaction::{run_atomic, too_many};
use self::writer::Writer;
use super::cloudevents;
use super::condition::{Conditions, TagKind};
use super::route::Resource;
use super::session::Session;
use crate::http::coding;
use crate::http::exchange::{Input, busy, whole};
use crate::http::head::Method;
use crate::http::offload;
use crate::http::problem::Problem;
use crate::http::reply::Reply;
use crate::limits::ENTRY_BYTES_MAX;
use crate::limits::budget::Reservation;
use crate::resources::context::{Call, Edge};
use crate::resources::framing::{Framing, framing, key_of};

/// The table of this module.
pub(crate) const TABLE: Table = Table {
    rows: &[Row {
        resource: Resource::Transactions,
        template: "/v1/topics/{topic}/transactions",
        operations: &[Operation {
            method: Method::Post,
            summary: "Execute several writes: all or none.",
            right: Some(Right::Put),
            body: BodyMax::Batch,
            query: &[],
            fields: WRITE_FIELDS,
            request: &[Content::json(
                "Transaction",
                r#"{"operations":[{"op":"put","key":"a","value":1},{"op":"delete","key":"b"}],"expect":[{"key":"a","key-offset":0}]}"#,
            )],
            responses: &[Response {
                status: 201,
                content: &[Content::json(
                    "Written",
                    r#"{"offset":4,"count":2,"intention":4,"effect":"valid"}"#,
                )],
            }],
            problems: &[],
            immediate: None,
            handler: |edge, call, body| {
                Box::pin(async move { transaction(edge, call, &body).await })
            },
        }],
    }],
    schemas,
};

fn schemas() -> Value {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer", "minimum": 0});
    json!({
        "Transaction": {
            "type": "object",
            "required": ["operations"],
            "properties": {
                "operations": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Change"}},
                "expect": {"type": "array", "items": {"$ref": "#/components/schemas/Expectation"}},
            },
            "additionalProperties": false,
        },
        "Change": {
            "type": "object",
            "description": "One write. A put has one of value, text and value64.",
            "properties": {
                "op": {"enum": ["put", "delete"]},
                "key": text,
                "key64": text,
                "value": {"description": "A JSON payload."},
                "text": text,
                "value64": text,
                "meta": {"type": "object", "additionalProperties": text},
            },
        },
        "Expectation": {
            "type": "object",
            "description": "A condition on a key (key-offset, key-absent or key-present) or on the topic.",
            "properties": {
                "key": text,
                "key64": text,
                "key-offset": number,
                "topic-offset": number,
            },
        },
        "BatchResult": {
            "type": "object",
            "description": "Outcomes of the items; equal consecutive outcomes are one run: [from, count, \"valid\", first offset], or [from, count, \"invalid\", \"error\" or \"refused\", code, text].",
            "required": ["items", "valid", "runs"],
            "properties": {
                "items": number,
                "valid": number,
                "runs": {"type": "array", "items": {"type": "array", "minItems": 3, "maxItems": 5, "items": {"type": ["integer", "string"]}}},
                "runs_left_out": number,
            },
        },
    })
}

/// Runs a batch.
pub(crate) async fn run(edge: &Arc<Edge>, call: &Call, input: Input<'_>) -> Result<Reply, Problem> {
    let framing = framing(call).unwrap_or(Framing::Lines);
    let mode = call.query.word(
        "mode",
        &[("values", Mode::Values), ("records", Mode::Records)],
    )?;
    let atomic = call.query.flag("atomic")?;
    let conditions = Conditions::read(&call.head, TagKind::Events)?;
    if !conditions.is_empty() && !atomic {
        return Err(bad(
            "a condition on the whole batch needs `atomic=true`; without it, set conditions on each item",
        ));
    }
    if !conditions.tags.is_empty() {
        return Err(bad("a batch accepts only one tag"));
    }
    let config = &edge.shared.config;
    let reader = Reader {
        framing,
        mode: mode.unwrap_or(Mode::Values),
        key: key_of(call)?,
        value_max: config.payload_max.0,
    };
    let is_coded = !coding::of_request(&call.head)?.is_empty();
    if atomic || is_coded || framing == Framing::Events {
        let max = config.body_max.0;
        let mut reservation =
            Reservation::for_principal(&edge.shared.admission.bodies, call.principal.share_key());
        let body = whole(input, max, &mut reservation).await?;
        let body = coding::decode(&call.head, body, max, &mut reservation).await?;
        // The items are copies of the body.
        reservation.cover(body.len() * 2).await.map_err(busy)?;
        return run_whole(edge, call, &reader, &body, atomic.then_some(conditions)).await;
    }
    let mut writer = Writer::new(edge, call, Session::counted(edge, call, b"")?);
    let mut stream = ItemStream {
        input,
        reservation: Reservation::for_principal(
            &edge.shared.admission.bodies,
            call.principal.share_key(),
        ),
        buffer: Vec::new(),
        from: 0,
        is_end: false,
    };
    // The position of the next item.
    let mut position = Position { line: 1, byte: 0 };
    let failed = loop {
        // Items wait for more items only with a reservation, and for a slow client not long.
        let bytes = stream.buffer.len() + writer.memory;
        let is_covered = stream.reservation.try_cover(bytes);
        let is_late = stream.is_arriving() && stream.reservation.is_held() && writer.is_old();
        if (!is_covered || is_late)
            && let Err(problem) = writer.flush().await
        {
            break Some(problem);
        }
        let pending_bytes = writer.memory;
        let (source, used) = match stream.item(framing, reader.value_max, pending_bytes).await {
            Ok(Some(found)) => found,
            Ok(None) => break None,
            Err(problem) => break Some(position.add_to(problem)),
        };
        let source = stream.buffer.get(source).unwrap_or_default();
        if !source.trim_ascii().is_empty() {
            let pushed = match reader.read(source, position) {
                Ok(item) => writer.push(item).await,
                Err(problem) => Err(problem),
            };
            if let Err(problem) = pushed {
                break Some(problem);
            }
        }
        position.line += 1;
        position.byte += used as u64;
    };
    // The items of the writer precede the one that failed.
    let failed = writer.flush().await.err().or(failed);
    answer(edge, call, writer.summary, failed).await
}

/// Runs a batch whose body has arrived.
async fn run_whole(
    edge: &Arc<Edge>,
    call: &Call,
    reader: &Reader,
    body: &Bytes,
    atomic: Option<Conditions>,
) -> Result<Reply, Problem> {
    if reader.framing == Framing::Events {
        cloudevents::check_format(&call.head)?;
    }
    let (framing, whole) = (reader.framing, body.clone());
    let mut cursor = offload::run_by_size(body.len(), move || Cursor::new(framing, &whole)).await?;
    if let Some(conditions) = atomic {
        let (own, whole) = (reader.clone(), body.clone());
        let items = offload::run_by_size(body.len(), move || {
            let mut items = Vec::new();
            while let Some(source) = cursor.next(&whole) {
                if items.len() == TXN_OPS_MAX {
                    return Err(too_many());
                }
                items.push(own.read(source.bytes, source.position)?);
            }
            Ok(items)
        });
        let items = items.await?;
        let session = Session::read(edge, call, body)?;
        return run_atomic(edge, call, session, &conditions, &items).await;
    }
    let mut writer = Writer::new(edge, call, Session::counted(edge, call, body)?);
    let mut failed = None;
    while failed.is_none() {
        let (own, whole) = (reader.clone(), body.clone());
        let run = offload::run_by_size(body.len(), move || Ok(gather(&own, &whole, cursor)));
        let run = run.await?;
        for item in run.items {
            if let Err(problem) = writer.push(item).await {
                failed = Some(problem);
                break;
            }
        }
        cursor = run.cursor;
        failed = failed.or(run.failed);
        if run.is_end {
            break;
        }
    }
    // The items of the writer precede the one that failed.
    let failed = writer.flush().await.err().or(failed);
    answer(edge, call, writer.summary, failed).await
}

/// Items of a body, and the reason why reading stopped.
struct ItemRun {
    items: Vec<Item>,
    cursor: Cursor,
    failed: Option<Problem>,
    is_end: bool,
}

/// Reads the next items, up to one log entry.
fn gather(reader: &Reader, body: &[u8], mut cursor: Cursor) -> ItemRun {
    let (mut items, mut bytes) = (Vec::new(), 0);
    let (mut failed, mut is_end) = (None, false);
    while items.len() < CALL_ITEMS_MAX && bytes < ENTRY_BYTES_MAX {
        let Some(source) = cursor.next(body) else {
            is_end = true;
            break;
        };
        match reader.read(source.bytes, source.position) {
            Ok(item) => {
                bytes += source.bytes.len();
                items.push(item);
            }
            Err(problem) => {
                failed = Some(problem);
                break;
            }
        }
    }
    ItemRun {
        items,
        cursor,
        failed,
        is_end,
    }
}
