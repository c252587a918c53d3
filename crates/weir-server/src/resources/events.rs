//! Events of a topic and the current values of its keys: reads and writes.

pub(crate) mod read;
pub(crate) mod tail;
pub(crate) mod unseen;
pub(crate) mod write;

use serde_json::{Value, json};

use super::route::Resource;
use super::table::{BodyMax, Content, Operation, Response, Row, Table, WRITE_FIELDS};
use crate::http::head::Method;
use crate::security::Right;

const RECORD: &str = r#"{"offset":2,"intention":2,"time":1700000000000,"type":"PUT","key":"a","value":{"id":1},"last":true}"#;
const RECORDS: &str = r#"[{"offset":2,"intention":2,"time":1700000000000,"type":"PUT","key":"a","value":{"id":1},"last":true}]"#;
const CLOUD_EVENT: &str =
    r#"{"specversion":"1.0","id":"1","source":"/orders","type":"created","data":{"id":1}}"#;
const CLOUD_EVENTS: &str =
    r#"[{"specversion":"1.0","id":"1","source":"/orders","type":"created","data":{"id":1}}]"#;
const WRITTEN: &str = r#"{"offset":2,"count":1,"intention":2,"effect":"valid"}"#;
const BATCH: &str = r#"{"items":2,"valid":2,"runs":[[0,2,"valid",2]]}"#;
/// A payload of any media type.
const ANY: &str = "*/*";

/// Response bodies of reads of lists, without server-sent events.
const LISTS: [Content; 5] = [
    Content::json("RecordList", RECORDS),
    Content::new("application/x-ndjson", "RecordLines", RECORD),
    Content::new("application/jsonl", "RecordLines", RECORD),
    Content::new("application/json-seq", "RecordLines", RECORD),
    Content::new(
        "application/cloudevents-batch+json",
        "CloudEventList",
        CLOUD_EVENTS,
    ),
];
const PAYLOAD: &[Content] = &[
    Content::json("Payload", r#"{"id":1}"#),
    Content::new(ANY, "Bytes", "hello"),
];
const WRITE_ANSWER: &[Content] = &[Content::json("Written", WRITTEN)];
const PUBLISH_ANSWER: &[Content] = &[Content::json("Published", WRITTEN)];

const READ_EVENTS: &[&str] = &[
    "after",
    "from",
    "order",
    "limit",
    "max-bytes",
    "key",
    "prefix",
    "type",
    "fields",
    "wait",
    "consistency",
    "at-least",
    "reset",
    "live",
    "last-event-id",
    "data",
    "numbers",
];
const READ_KEYS: &[&str] = &[
    "prefix",
    "after",
    "limit",
    "values",
    "consistency",
    "at-least",
    "wait",
];

/// The table of this module.
pub(crate) const TABLE: Table = Table {
    rows: &[
        Row {
            resource: Resource::Events,
            template: "/v1/topics/{topic}/events",
            operations: &[
                Operation {
                    method: Method::Get,
                    summary: "Read a page of records, or follow the topic.",
                    right: Some(Right::Read),
                    body: BodyMax::Json,
                    query: READ_EVENTS,
                    fields: &["If-None-Match"],
                    request: &[],
                    responses: &[
                        Response {
                            status: 200,
                            content: &[
                                LISTS[0],
                                LISTS[1],
                                LISTS[2],
                                LISTS[3],
                                LISTS[4],
                                Content::new(
                                    "text/event-stream",
                                    "ServerSentEvents",
                                    "id: 2\nevent: put\ndata: {\"id\":1}\n\n",
                                ),
                            ],
                        },
                        Response::empty(204),
                        Response::empty(304),
                    ],
                    problems: &[404, 410, 504],
                    immediate: None,
                    handler: |edge, call, _| {
                        if tail::is_requested(call) {
                            Box::pin(tail::open(edge, call))
                        } else {
                            Box::pin(read::page(edge, call))
                        }
                    },
                },
                Operation {
                    method: Method::Post,
                    summary: "Publish one event, or a batch.",
                    right: Some(Right::Put),
                    body: BodyMax::Event,
                    query: &["key", "mode", "atomic"],
                    fields: PUBLISH_FIELDS,
                    request: &[
                        Content::json("Payload", r#"{"id":1}"#),
                        Content::new("application/x-ndjson", "Text", "{\"id\":1}\n{\"id\":2}\n"),
                        Content::new("application/json-seq", "Text", "\u{1e}{\"id\":1}\n"),
                        Content::new("application/cloudevents+json", "CloudEvent", CLOUD_EVENT),
                        Content::new(
                            "application/cloudevents-batch+json",
                            "CloudEventList",
                            CLOUD_EVENTS,
                        ),
                        Content::new(ANY, "Bytes", "hello"),
                    ],
                    responses: &[
                        Response {
                            status: 200,
                            content: &[Content::json("Published", BATCH)],
                        },
                        Response {
                            status: 201,
                            content: PUBLISH_ANSWER,
                        },
                        Response::empty(202),
                        Response::empty(204),
                    ],
                    problems: &[],
                    immediate: None,
                    handler: |edge, call, body| Box::pin(write::post(edge, call, body)),
                },
            ],
        },
        Row {
            resource: Resource::Key,
            template: "/v1/topics/{topic}/keys/{key}",
            operations: &[
                Operation {
                    method: Method::Get,
                    summary: "Read the current value of a key.",
                    right: Some(Right::Read),
                    body: BodyMax::Json,
                    query: &["consistency", "at-least", "wait"],
                    fields: &["If-None-Match"],
                    request: &[],
                    responses: &[
                        Response {
                            status: 200,
                            content: PAYLOAD,
                        },
                        Response {
                            status: 206,
                            content: PAYLOAD,
                        },
                        Response::empty(304),
                    ],
                    problems: &[404, 410, 416, 504],
                    immediate: Some(read::key_if_ready),
                    handler: |edge, call, _| Box::pin(read::key(edge, call)),
                },
                Operation {
                    method: Method::Put,
                    summary: "Set the value of a key.",
                    right: Some(Right::Put),
                    body: BodyMax::Event,
                    query: &[],
                    fields: WRITE_FIELDS,
                    request: PAYLOAD,
                    responses: &[
                        Response {
                            status: 200,
                            content: WRITE_ANSWER,
                        },
                        Response::empty(201),
                        Response::empty(202),
                        Response::empty(204),
                    ],
                    problems: &[],
                    immediate: None,
                    handler: |edge, call, body| Box::pin(write::key(edge, call, body)),
                },
                Operation {
                    method: Method::Delete,
                    summary: "Delete a key.",
                    right: Some(Right::Delete),
                    body: BodyMax::Json,
                    query: &[],
                    fields: WRITE_FIELDS,
                    request: &[],
                    responses: &[
                        Response {
                            status: 200,
                            content: WRITE_ANSWER,
                        },
                        Response::empty(202),
                        Response::empty(204),
                    ],
                    problems: &[],
                    immediate: None,
                    handler: |edge, call, body| Box::pin(write::key(edge, call, body)),
                },
            ],
        },
        Row {
            resource: Resource::Event,
            template: "/v1/topics/{topic}/events/{offset}",
            operations: &[Operation {
                method: Method::Get,
                summary: "Read one record: its payload is the body.",
                right: Some(Right::Read),
                body: BodyMax::Json,
                query: &["as", "consistency"],
                fields: &["If-None-Match"],
                request: &[],
                responses: &[
                    Response {
                        status: 200,
                        content: &[
                            PAYLOAD[0],
                            Content::new("application/cloudevents+json", "CloudEvent", CLOUD_EVENT),
                            PAYLOAD[1],
                        ],
                    },
                    Response {
                        status: 206,
                        content: PAYLOAD,
                    },
                    Response::empty(304),
                ],
                problems: &[404, 416],
                immediate: Some(read::event_if_ready),
                handler: |edge, call, _| Box::pin(read::event(edge, call)),
            }],
        },
        Row {
            resource: Resource::Keys,
            template: "/v1/topics/{topic}/keys",
            operations: &[Operation {
                method: Method::Get,
                summary: "List keys in the order of their bytes.",
                right: Some(Right::Read),
                body: BodyMax::Json,
                query: READ_KEYS,
                fields: &[],
                request: &[],
                responses: &[Response {
                    status: 200,
                    content: &LISTS,
                }],
                problems: &[404, 410, 504],
                immediate: None,
                handler: |edge, call, _| Box::pin(read::keys(edge, call)),
            }],
        },
    ],
    schemas,
};

const PUBLISH_FIELDS: &[&str] = &[
    "Idempotency-Key",
    "Weir-Client",
    "Weir-Nonce",
    "If-Match",
    "If-None-Match",
    "Weir-Expect",
    "Prefer",
    "Weir-Key",
];

fn schemas() -> Value {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer", "minimum": 0});
    let written = json!({"type": ["integer", "string"]});
    json!({
        "Payload": {"description": "The payload as it was sent."},
        "Record": {
            "type": "object",
            "description": "A record. The payload is in value if it is JSON, in text if it is UTF-8, otherwise in value64. With numbers=string, numbers are strings.",
            "properties": {
                "offset": written,
                "intention": written,
                "time": written,
                "type": {"enum": ["PUT", "DELETE", "CREATE", "DESTROY", "ALTER", "REPLACE"]},
                "key": text,
                "key64": text,
                "value": {"description": "A JSON payload."},
                "text": text,
                "value64": text,
                "last": {"type": "boolean"},
                "meta": {"type": ["object", "string"], "additionalProperties": text},
                "meta64": text,
                "client": text,
                "nonce": written,
                "term": written,
            },
        },
        "RecordList": {"type": "array", "items": {"$ref": "#/components/schemas/Record"}},
        "RecordLines": {"type": "string", "description": "One Record per line."},
        "ServerSentEvents": {"type": "string", "description": "Events. The id is a position; the data is a payload, or a Record with data=record."},
        "CloudEvent": {
            "type": "object",
            "required": ["specversion", "id", "source", "type"],
            "properties": {
                "specversion": {"const": "1.0"},
                "id": {"type": "string", "minLength": 1},
                "source": {"type": "string", "minLength": 1},
                "type": {"type": "string", "minLength": 1},
                "data": {"description": "A JSON payload."},
                "data_base64": text,
            },
        },
        "CloudEventList": {"type": "array", "items": {"$ref": "#/components/schemas/CloudEvent"}},
        "Written": {
            "type": "object",
            "required": ["count", "intention", "effect"],
            "properties": {"offset": number, "count": number, "intention": number, "effect": {"const": "valid"}},
        },
        "Published": {
            "description": "Written for one event or an atomic batch; BatchResult for any other batch.",
            "anyOf": [{"$ref": "#/components/schemas/Written"}, {"$ref": "#/components/schemas/BatchResult"}],
        },
    })
}
