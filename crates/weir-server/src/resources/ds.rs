//! Durable Streams: topics under that protocol, at `/ds/{name}`.
//!
//! A stream is a topic. Its bytes or messages are the records without a reserved key. Its other
//! state (content type, end, producers, order) is in records of the topic under keys that start
//! with [`RESERVED`](super::streams::terms::RESERVED). So a write and the state that it changes are
//! one transaction, and a crash loses neither. The topic [`REGISTRY`](registry::REGISTRY) records
//! which streams expire, and which streams are forks of others.
//!
//! | module | purpose |
//! |---|---|
//! | [`streams`](super::streams) | descriptions, positions, keys, limits; state shared by requests |
//! | `view` | the current state of a stream |
//! | `walk` | the records of a stream, through its forks |
//! | `create`, `append`, `producer` | writes |
//! | `read`, `follow` | reads |
//! | `open` | finds the stream of a request, and removes an expired one |
//! | `lease`, `registry`, `forks` | which streams expire, and which have forks |
//! | `expire`, `remove` | removal of streams |
//!
//! docs/api/durable-streams.md describes the rules for users,
//! docs/decisions/0021-durable-streams.md gives the reasons.
//!
//! Invariants:
//! - State that a client could miss is never in memory only.
//! - Every condition is checked in the store.

mod append;
mod create;
mod cursor;
mod expire;
mod follow;
mod forks;
mod leader;
mod lease;
mod open;
mod producer;
mod read;
mod registry;
mod remove;
mod view;
mod walk;

use super::route::Resource;
use super::table::{BodyMax, Content, Operation, Response, Row, Table};
use crate::http::head::Method;
use crate::security::Right;

pub(crate) use self::expire::sweep;

const STREAM_TYPES: &[Content] = &[
    Content::json("Payload", r#"[{"id":1}]"#),
    Content::new("*/*", "Bytes", "hello"),
];

/// The table of this module.
pub(crate) const TABLE: Table = Table {
    rows: &[Row {
        resource: Resource::Stream,
        template: "/ds/{topic}",
        operations: &[
            Operation {
                method: Method::Get,
                summary: "Read a stream from a position.",
                right: Some(Right::Read),
                body: BodyMax::Json,
                query: &["offset", "live", "cursor"],
                fields: &["If-None-Match"],
                request: &[],
                responses: &[
                    Response {
                        status: 200,
                        content: STREAM_TYPES,
                    },
                    Response::empty(204),
                    Response::empty(304),
                ],
                problems: STREAM_PROBLEMS,
                immediate: None,
                handler: |edge, call, _| Box::pin(read::get(edge, call)),
            },
            Operation {
                method: Method::Head,
                summary: "Describe a stream in header fields.",
                right: Some(Right::Read),
                body: BodyMax::Json,
                query: &[],
                fields: &[],
                request: &[],
                responses: &[Response::empty(200)],
                problems: STREAM_PROBLEMS,
                immediate: None,
                handler: |edge, call, _| Box::pin(read::head(edge, call)),
            },
            Operation {
                method: Method::Put,
                summary: "Create a stream if it does not exist.",
                right: Some(Right::Create),
                body: BodyMax::Event,
                query: &[],
                fields: &[
                    "Stream-Closed",
                    "Stream-TTL",
                    "Stream-Expires-At",
                    "Stream-Forked-From",
                    "Stream-Fork-Offset",
                    "Stream-Fork-Sub-Offset",
                ],
                request: STREAM_TYPES,
                responses: &[Response::empty(200), Response::empty(201)],
                problems: STREAM_PROBLEMS,
                immediate: None,
                handler: |edge, call, body| {
                    Box::pin(async move { create::put(edge, call, &body).await })
                },
            },
            Operation {
                method: Method::Post,
                summary: "Append to a stream, or close it.",
                right: Some(Right::Put),
                body: BodyMax::Event,
                query: &[],
                fields: &[
                    "Stream-Closed",
                    "Stream-Seq",
                    "Producer-Id",
                    "Producer-Epoch",
                    "Producer-Seq",
                ],
                request: STREAM_TYPES,
                responses: &[Response::empty(200), Response::empty(204)],
                problems: STREAM_PROBLEMS,
                immediate: None,
                handler: |edge, call, body| {
                    Box::pin(async move { append::post(edge, call, &body).await })
                },
            },
            Operation {
                method: Method::Delete,
                summary: "Delete a stream.",
                right: Some(Right::Destroy),
                body: BodyMax::Json,
                query: &[],
                fields: &[],
                request: &[],
                responses: &[Response::empty(204)],
                problems: STREAM_PROBLEMS,
                immediate: None,
                handler: |edge, call, _| Box::pin(remove::delete(edge, call)),
            },
        ],
    }],
    schemas: || serde_json::json!({}),
};

/// A read of an expired stream removes it, so reads can have the problems of writes.
const STREAM_PROBLEMS: &[u16] = &[404, 410, 503, 504];
