//! Resources for operators: health, readiness, status and metrics.

use std::sync::Arc;

use serde_json::{Value, json};
use weir_core::ErrorCode;
use weir_protocol::StatusValue;

use super::route::Resource;
use super::table::{BodyMax, Content, Handler, Operation, Response, Row, Table};
use crate::http::head::Method;
use crate::security::Right;

use crate::http::accept;
use crate::http::json::Object;
use crate::http::offload;
use crate::http::problem::{Kind, Problem};
use crate::http::reply::Reply;
use crate::phase::Phase;
use crate::resources::context::{Call, Edge};
use crate::resources::problems::of_store;
use crate::shared::Shared;

/// Media types of metrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

const METRICS_EXAMPLE: &str = "# HELP weir_ready 1 while the server is ready for requests.\n\
# TYPE weir_ready gauge\nweir_ready 1\n";

const STATUS_EXAMPLE: &str = r#"{"version":"0.1.0","ready":1,"uptime_ms":5000,"clock_ms":1795400000000,"connections_http":1,"connections_native":0,"connections_unauthenticated":0,"connections_max":614,"durability":"group","file_system":"ext","free_bytes":1000000,"total_bytes":2000000,"time_ms":1795400000000,"topics":1,"sessions":0,"idempotency_keys":0,"log_first_index":1,"applied_index":41,"durable_index":41,"purged_index":0,"log_bytes":65536}"#;

/// The table of this module.
pub(crate) const TABLE: Table = Table {
    rows: &[
        Row {
            resource: Resource::Root,
            template: "/v1",
            operations: &[open(
                "Return name, version and durability of the server.",
                &[],
                &[Response {
                    status: 200,
                    content: &[Content::json(
                        "Server",
                        r#"{"name":"weir","version":"0.1.0","durability":"group","acknowledged_is_synced":true,"applied":41,"links":{"topics":"/v1/topics","openapi":"/openapi.json","health":"/healthz","ready":"/readyz","metrics":"/metrics"}}"#,
                    )],
                }],
                &[],
                |edge, _, _| Box::pin(async { Ok(root(edge)) }),
            )],
        },
        Row {
            resource: Resource::Healthz,
            template: "/healthz",
            operations: &[Operation {
                immediate: Some(|edge, _| Some(Ok(health(edge)))),
                ..open(
                    "Check that the process responds.",
                    &[],
                    &[Response {
                        status: 200,
                        content: &[Content::new(TEXT, "Text", "ok\n")],
                    }],
                    &[503],
                    |edge, _, _| Box::pin(async move { Ok(health(edge)) }),
                )
            }],
        },
        Row {
            resource: Resource::Readyz,
            template: "/readyz",
            operations: &[Operation {
                immediate: Some(|edge, call| Some(ready(edge, call))),
                ..open(
                    "Check that the server is ready for requests.",
                    &["verbose"],
                    &[Response {
                        status: 200,
                        content: &[
                            Content::new(TEXT, "Text", "ready\n"),
                            Content::json(
                                "Readiness",
                                r#"{"ready":true,"store":true,"draining":false,"in_flight_bytes":0}"#,
                            ),
                        ],
                    }],
                    &[503],
                    |edge, call, _| Box::pin(async move { ready(edge, call) }),
                )
            }],
        },
        Row {
            resource: Resource::Status,
            template: "/v1/status",
            operations: &[Operation {
                right: Some(Right::Admin),
                ..open(
                    "Return the current status of the server and its store.",
                    &[],
                    &[Response {
                        status: 200,
                        content: &[Content::json("Status", STATUS_EXAMPLE)],
                    }],
                    &[],
                    |edge, _, _| Box::pin(status(edge)),
                )
            }],
        },
        Row {
            resource: Resource::Compact,
            template: "/v1/compact",
            operations: &[Operation {
                method: Method::Post,
                right: Some(Right::Admin),
                ..open(
                    "Compact the topics that enable compaction, write a snapshot, and remove the log before it.",
                    &[],
                    &[Response {
                        status: 200,
                        content: &[Content::json(
                            "LogCompaction",
                            r#"{"index":41,"log_bytes_before":1048576,"log_bytes_after":65536}"#,
                        )],
                    }],
                    &[503],
                    |edge, _, _| Box::pin(compact(edge)),
                )
            }],
        },
        Row {
            resource: Resource::Metrics,
            template: "/metrics",
            operations: &[Operation {
                right: Some(Right::Admin),
                ..open(
                    "Return the counters and gauges of the server.",
                    &[],
                    &[Response {
                        status: 200,
                        content: &[
                            Content::new(PROMETHEUS, "Text", METRICS_EXAMPLE),
                            Content::new(OPEN_METRICS, "Text", METRICS_EXAMPLE),
                        ],
                    }],
                    &[],
                    |edge, call, _| Box::pin(metrics(edge, call)),
                )
            }],
        },
        Row {
            resource: Resource::OpenApi,
            template: "/openapi.json",
            operations: &[open(
                "Return this description.",
                &[],
                &[Response {
                    status: 200,
                    content: &[Content::json(
                        "Description",
                        r#"{"openapi":"3.1.0","info":{"title":"Weir","version":"0.1.0"},"paths":{}}"#,
                    )],
                }],
                &[],
                |edge, _, _| Box::pin(async { Ok(description(edge)) }),
            )],
        },
        Row {
            resource: Resource::Problem,
            template: "/problems/{name}",
            operations: &[open(
                "Explain a kind of problem.",
                &[],
                &[Response {
                    status: 200,
                    content: &[Content::new(
                        TEXT,
                        "Text",
                        "no-topic\n\nThe topic does not exist.\nStatus: 404\n",
                    )],
                }],
                &[404],
                |_, call, _| Box::pin(async { explain(&call.matched.name) }),
            )],
        },
    ],
    schemas,
};

/// A GET that needs no right.
const fn open(
    summary: &'static str,
    query: &'static [&'static str],
    responses: &'static [Response],
    problems: &'static [u16],
    handler: Handler,
) -> Operation {
    Operation {
        method: Method::Get,
        summary,
        right: None,
        body: BodyMax::Json,
        query,
        fields: &[],
        request: &[],
        responses,
        problems,
        immediate: None,
        handler,
    }
}

fn schemas() -> Value {
    let text = json!({"type": "string"});
    let flag = json!({"type": "boolean"});
    let number = json!({"type": "integer", "minimum": 0});
    json!({
        "Text": text,
        "Server": {
            "type": "object",
            "required": ["name", "version", "durability", "acknowledged_is_synced", "applied", "links"],
            "properties": {
                "name": text,
                "version": text,
                "durability": {"enum": ["group", "each", "interval", "memory"]},
                "acknowledged_is_synced": flag,
                "volatile": text,
                "applied": number,
                "links": {"type": "object", "additionalProperties": text},
            },
        },
        "Status": {
            "type": "object",
            "required": ["version", "ready", "uptime_ms", "durability", "applied_index", "log_bytes"],
            "properties": {
                "version": text,
                "durability": {"enum": ["group", "each", "interval", "memory"]},
                "poison_cause": text,
                "checkpoint_failure": text,
                "volatile": text,
                "file_system": text,
                "cluster_role": text,
                "cluster_members": text,
                "cluster_digest": text,
            },
            "additionalProperties": number,
        },
        "LogCompaction": {
            "type": "object",
            "required": ["index", "log_bytes_before", "log_bytes_after"],
            "properties": {"index": number, "log_bytes_before": number, "log_bytes_after": number},
        },
        "Readiness": {
            "type": "object",
            "required": ["ready", "store", "draining", "in_flight_bytes"],
            "properties": {"ready": flag, "store": flag, "draining": flag, "failure": text, "in_flight_bytes": number},
        },
        "Description": {
            "type": "object",
            "required": ["openapi", "info", "paths"],
            "properties": {
                "openapi": text,
                "info": {"type": "object", "required": ["title", "version"]},
                "paths": {"type": "object"},
            },
        },
    })
}

fn description(edge: &Edge) -> Reply {
    Reply::new(200)
        .field("cache-control", "no-cache")
        .with("application/json", (edge.description)().as_bytes())
}

/// Health: 503 with the cause if the store accepts no more writes, because the process then ends
/// soon.
fn health(edge: &Edge) -> Reply {
    match edge.shared.store.poison_cause() {
        None => plain(200, "ok\n"),
        Some(cause) => plain(503, format!("the store accepts no more writes: {cause}\n")),
    }
}

fn plain(status: u16, text: impl Into<String>) -> Reply {
    Reply::new(status)
        .field("cache-control", "no-store")
        .with("text/plain; charset=utf-8", text.into().into_bytes())
}

fn root(edge: &Edge) -> Reply {
    let store = &edge.shared.store;
    let mut body = Vec::new();
    let mut object = Object::new(&mut body);
    object
        .text("name", "weir")
        .text("version", env!("CARGO_PKG_VERSION"));
    object
        .text("durability", store.durability().name())
        .flag("acknowledged_is_synced", store.durability().is_synced());
    if let Some(kind) = store.volatile() {
        object.text("volatile", kind);
    }
    object.number("applied", store.applied().0);
    let mut links = Object::new(object.member("links"));
    links
        .text("topics", "/v1/topics")
        .text("openapi", "/openapi.json")
        .text("health", "/healthz")
        .text("ready", "/readyz")
        .text("metrics", "/metrics");
    links.end();
    object.end();
    body.push(b'\n');
    Reply::new(200)
        .field("cache-control", "no-cache")
        .with("application/json", body)
}

/// Readiness: whether clients should send requests to this server.
fn ready(edge: &Edge, call: &Call) -> Result<Reply, Problem> {
    let shared = &edge.shared;
    let verbose = call.query.flag("verbose")?;
    if !shared.is_ready() {
        return Err(not_ready(shared));
    }
    if !verbose {
        return Ok(plain(200, "ready\n"));
    }
    let mut body = Vec::new();
    let mut object = Object::new(&mut body);
    object
        .flag("ready", true)
        .flag("store", true)
        .flag("draining", false)
        .number("in_flight_bytes", shared.admission.bytes() as u64);
    object.end();
    body.push(b'\n');
    Ok(Reply::new(200)
        .field("cache-control", "no-store")
        .with("application/json", body))
}

/// The problem that explains why the server is not ready.
fn not_ready(shared: &Shared) -> Problem {
    let draining = shared.phase() != Phase::Open;
    let failure = shared.store.failure();
    let is_removed = shared.check_is_member().is_err();
    let (kind, code, detail) = match &failure {
        Some(failure) => (Kind::ReadOnly, ErrorCode::IoFatal, failure.as_str()),
        None if draining => (
            Kind::Draining,
            ErrorCode::Draining,
            ErrorCode::Draining.sentence(),
        ),
        None if is_removed => (
            Kind::NoLeader,
            ErrorCode::NoLeader,
            "this node was removed from its cluster",
        ),
        None => (
            Kind::ReadOnly,
            ErrorCode::ReadOnly,
            "the node of the cluster has ended",
        ),
    };
    let flag = |flag: bool| flag.to_string().into_bytes();
    Problem::new(kind, detail)
        .code(code)
        .raw("ready", flag(false))
        .raw("store", flag(failure.is_none()))
        .raw("draining", flag(draining))
}

/// Responds to GET of the status.
async fn status(edge: &Arc<Edge>) -> Result<Reply, Problem> {
    let shared = Arc::clone(&edge.shared);
    let fields = offload::run(move || Ok(crate::status::fields(&shared))).await?;
    let mut body = Vec::new();
    let mut object = Object::new(&mut body);
    for (name, value) in &fields {
        match value {
            StatusValue::Number(n) => object.number(name, *n),
            StatusValue::Text(text) => object.text(name, text),
        };
    }
    object.end();
    body.push(b'\n');
    Ok(Reply::new(200)
        .field("cache-control", "no-store")
        .with("application/json", body))
}

/// Responds to POST: compacts the log.
async fn compact(edge: &Arc<Edge>) -> Result<Reply, Problem> {
    let store = Arc::clone(&edge.shared.store);
    let report = offload::run(move || store.compact().map_err(|error| of_store(&error))).await?;
    let mut body = Vec::new();
    let mut object = Object::new(&mut body);
    object
        .number("index", report.index.0)
        .number("log_bytes_before", report.log_bytes_before)
        .number("log_bytes_after", report.log_bytes_after);
    object.end();
    body.push(b'\n');
    Ok(Reply::new(200)
        .field("cache-control", "no-store")
        .with("application/json", body))
}

/// Responds to GET of the metrics.
pub(crate) async fn metrics(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let open = accept::names(&call.head, "application/openmetrics-text");
    let shared = Arc::clone(&edge.shared);
    let text = offload::run(move || Ok(crate::scrape::render(&shared, open))).await?;
    let media_type = if open { OPEN_METRICS } else { PROMETHEUS };
    Ok(Reply::new(200)
        .field("cache-control", "no-store")
        .field("vary", "accept")
        .with(media_type, text))
}

/// The page that the `type` of a problem names.
fn explain(name: &str) -> Result<Reply, Problem> {
    let kind = Kind::ALL.iter().find(|kind| kind.name() == name);
    let kind = kind.ok_or_else(|| Problem::new(Kind::NotFound, "no problem has this name"))?;
    let text = format!(
        "{}\n\n{}\nStatus: {}\n",
        kind.name(),
        kind.title(),
        kind.status()
    );
    Ok(Reply::new(200)
        .field("cache-control", "max-age=86400")
        .with("text/plain; charset=utf-8", text))
}
