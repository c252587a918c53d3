//! The description of the interface (`OpenAPI` 3.1), made from the table of the
//! router: what is not routed is not described. docs/api/openapi.yaml is the
//! same text, held to it by a test.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use weir_core::limits::{GROUP_ATTEMPTS_MAX, GROUP_LEASE_MS_MAX, GROUP_PENDING_MAX};

use super::ds;
use super::records::Form;
use super::route::{ROWS, Resource, Row};
use crate::http::head::Method;
use crate::http::problem::Kind;
use crate::limits::{GROUPS_PAGE_MAX, PAGE_RECORDS_MAX, TOPICS_PAGE_MAX};

/// The document.
pub(crate) static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// What a query parameter is: its schema and its meaning.
fn parameter(row: &Row, method: Method, name: &str) -> Value {
    let number = |low: u64, high: u64| json!({"type": "integer", "minimum": low, "maximum": high});
    let word = |words: &[&str]| json!({"type": "string", "enum": words});
    let text = || json!({"type": "string"});
    let flag = || json!({"type": "string", "enum": ["true", "false", ""]});
    let entries = match row.resource {
        Resource::Topics => TOPICS_PAGE_MAX,
        Resource::Groups => GROUPS_PAGE_MAX,
        _ => PAGE_RECORDS_MAX,
    };
    let (schema, about) = match name {
        "after" => (
            text(),
            "What is behind this: an offset, a key, or a topic name.",
        ),
        "from" => (
            json!({"type": "string", "pattern": "^(first|tail|time:(0|[1-9][0-9]*))$"}),
            "Where to start: first, tail, or time: with milliseconds since 1970.",
        ),
        "order" => (word(&["asc", "desc"]), "Oldest or newest first."),
        "limit" => (number(1, entries), "Entries of a page."),
        "max-bytes" => (
            number(1, 16 << 20),
            "Bytes behind which a page ends; it has one record at least.",
        ),
        "key" if method.writes() => (json!({"type": "string", "minLength": 1}), "The key."),
        "key" => (text(), "Records of this key only; empty: those without."),
        "prefix" => (text(), "What the key or name begins with."),
        "type" => (
            word(&["put", "delete", "create", "destroy", "alter", "replace"]),
            "Records of this type only.",
        ),
        "fields" => (
            json!({"type": "string", "pattern": "^(offset|intention|time|type|key|value|last|meta|client|nonce|term)(,(offset|intention|time|type|key|value|last|meta|client|nonce|term))*$"}),
            "Members of a record, as a list.",
        ),
        "wait" if method.writes() => (number(0, 30), "Seconds to wait for a record."),
        "wait" => (number(0, 60), "Seconds to wait for a record."),
        "member" => (
            json!({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}),
            "Who asks; must be given.",
        ),
        "max" => (number(1, 1000), "Records."),
        "lease-ms" => (
            number(1, GROUP_LEASE_MS_MAX),
            "Milliseconds until the records may be claimed by others.",
        ),
        "consistency" => (word(&["local", "linear"]), "What a read must have seen."),
        "at-least" => (
            number(0, 1 << 53),
            "An offset that the topic must have reached.",
        ),
        "reset" => (
            word(&["earliest"]),
            "Start at the first record that is kept if the position is gone.",
        ),
        "offset" => (
            json!({"type": "string", "pattern": "^(-1|now|[0-9]{16}_0{16})$"}),
            "The position behind which to read, as an answer gave it.",
        ),
        "cursor" => (text(), "The last Stream-Cursor."),
        "live" if row.resource == Resource::Stream => (
            word(&["long-poll", "sse"]),
            "Wait for more, or follow the stream by server-sent events.",
        ),
        "live" => (word(&["sse"]), "Follow the topic by server-sent events."),
        "last-event-id" => (
            text(),
            "The last event that was seen, where no header can be set.",
        ),
        "data" => (word(&["value", "record"]), "What the data of an event is."),
        "numbers" => (word(&["number", "string"]), "How numbers are written."),
        "mode" => (word(&["values", "records"]), "What an item of a batch is."),
        "values" => (flag(), "Values besides keys."),
        "atomic" => (flag(), "All items or none."),
        "as" => (
            word(&["cloudevent"]),
            "Attributes of the event as header fields.",
        ),
        "state" => (
            word(&["none", "kv", "memory"]),
            "What the program of a new topic keeps.",
        ),
        "verbose" => (flag(), "The checks by name."),
        _ => (text(), ""),
    };
    let required = name == "member";
    json!({"name": name, "in": "query", "required": required, "schema": schema, "description": about})
}

fn field(name: &str, schema: &Value, about: &str) -> Value {
    json!({"name": name, "in": "header", "required": false, "schema": schema, "description": about})
}

/// Header fields of a request.
fn fields(row: &Row, method: Method) -> Vec<Value> {
    let mut list = Vec::new();
    let tag = json!({"type": "string"});
    let writes = matches!(
        row.resource,
        Resource::Events | Resource::Key | Resource::Topic | Resource::Transactions
    ) && method.writes();
    if writes {
        let key = json!({"type": "string", "minLength": 1, "maxLength": 257});
        list.push(field(
            "Idempotency-Key",
            &key,
            "Carries the request out once, however often it comes.",
        ));
        list.push(field(
            "Weir-Client",
            &json!({"type": "string", "pattern": "^[0-9a-fA-F]{32}$"}),
            "The session; with Weir-Nonce.",
        ));
        list.push(field(
            "Weir-Nonce",
            &json!({"type": "integer", "minimum": 1}),
            "The number of the write in its session.",
        ));
        list.push(field(
            "If-Match",
            &tag,
            "Only if this is the version that is there.",
        ));
        list.push(field(
            "If-None-Match",
            &tag,
            "`*`: only if there is nothing.",
        ));
        list.push(field(
            "Weir-Expect",
            &tag,
            "Further conditions, as name=number.",
        ));
        list.push(field(
            "Prefer",
            &tag,
            "return=minimal, respond-async, conflicts=N.",
        ));
    }
    if row.resource == Resource::Stream {
        list.extend(stream_fields(method));
    }
    if row.resource == Resource::Events && method == Method::Post {
        list.push(field("Weir-Key", &tag, "The key of the event."));
    }
    if matches!(method, Method::Get | Method::Head)
        && matches!(
            row.resource,
            Resource::Event | Resource::Key | Resource::Topic | Resource::Events | Resource::Stream
        )
        && !(row.resource == Resource::Stream && method == Method::Head)
    {
        list.push(field(
            "If-None-Match",
            &tag,
            "Not if this version is known.",
        ));
    }
    list
}

/// Header fields of requests for streams.
fn stream_fields(method: Method) -> Vec<Value> {
    let number = |max: u64| json!({"type": "integer", "minimum": 0, "maximum": max});
    let text = |max: usize| json!({"type": "string", "minLength": 1, "maxLength": max});
    let closed = field(
        "Stream-Closed",
        &json!({"type": "string", "enum": ["true", "false"]}),
        "Closes the stream, with what the body adds.",
    );
    match method {
        Method::Put => vec![
            closed,
            field(
                "Stream-TTL",
                &number(ds::TTL_SECONDS_MAX),
                "Seconds without a read or write after which the stream ends.",
            ),
            field(
                "Stream-Expires-At",
                &json!({"type": "string", "format": "date-time"}),
                "When the stream ends.",
            ),
            field(
                "Stream-Forked-From",
                &json!({"type": "string", "pattern": "^/[A-Za-z0-9_-]+$"}),
                "Path of the stream whose data this one begins with.",
            ),
            field(
                "Stream-Fork-Offset",
                &json!({"type": "string", "pattern": "^[0-9]{16}_0{16}$"}),
                "Position up to which; else its end.",
            ),
            field(
                "Stream-Fork-Sub-Offset",
                &number(ds::FORK_SUB_OFFSET_MAX),
                "Bytes or messages behind that position.",
            ),
        ],
        Method::Post => vec![
            closed,
            field(
                "Stream-Seq",
                &text(ds::ORDER_BYTES_MAX),
                "Must sort behind that of the write before.",
            ),
            field(
                "Producer-Id",
                &text(ds::PRODUCER_ID_BYTES_MAX),
                "Who writes, for writes that may be sent again; with the other two.",
            ),
            field(
                "Producer-Epoch",
                &number(ds::PRODUCER_NUMBER_MAX),
                "Which life of the producer.",
            ),
            field(
                "Producer-Seq",
                &number(ds::PRODUCER_NUMBER_MAX),
                "Which write of that life.",
            ),
        ],
        _ => Vec::new(),
    }
}

fn object(members: &Value) -> Value {
    json!({"type": "object", "properties": members})
}

/// The body of a request, by media type.
fn request(row: &Row, method: Method) -> Option<Value> {
    let options = || object(&json!({"options": {"type": "object"}}));
    let content = match (row.resource, method) {
        (Resource::Events, Method::Post) => json!({
            "application/json": {"schema": true},
            "application/x-ndjson": {"schema": {"type": "string"}},
            "application/json-seq": {"schema": {"type": "string"}},
            "application/cloudevents+json": {"schema": {"$ref": "#/components/schemas/CloudEvent"}},
            "application/cloudevents-batch+json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/CloudEvent"}}},
            "*/*": {"schema": {"type": "string", "format": "binary"}},
        }),
        (Resource::Key, Method::Put) => {
            json!({"application/json": {"schema": true}, "*/*": {"schema": {"type": "string", "format": "binary"}}})
        }
        (Resource::Topic, Method::Put) => json!({"application/json": {"schema": options()}}),
        (Resource::Topic, Method::Patch) => {
            json!({"application/merge-patch+json": {"schema": options()}})
        }
        (Resource::Transactions, _) => {
            json!({"application/json": {"schema": {"$ref": "#/components/schemas/Transaction"}}})
        }
        (Resource::Stream, Method::Put | Method::Post) => json!({
            "application/json": {"schema": true},
            "*/*": {"schema": {"type": "string", "format": "binary"}},
        }),
        (Resource::Program, Method::Put) => {
            json!({"application/wasm": {"schema": {"type": "string", "format": "binary"}}})
        }
        (resource, Method::Put | Method::Post) if resource.is_of_group() => {
            json!({"application/json": {"schema": group_body(resource)?}})
        }
        _ => return None,
    };
    let required = row.resource.is_of_group() && method == Method::Post;
    Some(json!({"required": required, "content": content}))
}

/// What a step of a group says.
fn group_body(resource: Resource) -> Option<Value> {
    let number = json!({"type": "integer", "minimum": 0, "maximum": u64::MAX});
    let positive = json!({"type": "integer", "minimum": 1, "maximum": u64::MAX});
    let lease = json!({"type": "integer", "minimum": 1, "maximum": GROUP_LEASE_MS_MAX});
    let offsets = json!({"type": "array", "minItems": 1, "maxItems": 10_000, "items": positive});
    let named = |members: &[(&str, &Value)], required: &[&str]| {
        let members: Map<String, Value> = members
            .iter()
            .map(|(name, schema)| ((*name).to_owned(), (*schema).clone()))
            .collect();
        json!({"type": "object", "properties": members, "required": required, "additionalProperties": false})
    };
    let delay = json!({"type": "integer", "minimum": 0, "maximum": GROUP_LEASE_MS_MAX});
    let reason = json!({"type": "string", "maxLength": 60});
    let member = json!({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"});
    let flag = json!({"type": "boolean"});
    let claim = [("claim", &positive), ("offsets", &offsets)];
    Some(match resource {
        Resource::Group => {
            let mode = json!({"enum": ["exclusive", "keyed", "shared"]});
            let start = json!({"oneOf": [number, {"enum": ["first", "tail"]}]});
            let attempts = json!({"type": "integer", "minimum": 0, "maximum": GROUP_ATTEMPTS_MAX});
            let pending = json!({"type": "integer", "minimum": 1, "maximum": GROUP_PENDING_MAX});
            let text = json!({"type": "string"});
            let members = [
                ("mode", &mode),
                ("start", &start),
                ("lease_ms", &lease),
                ("attempts_max", &attempts),
                ("pending_max", &pending),
                ("dead_letters", &text),
            ];
            named(&members, &[])
        }
        Resource::GroupAck => named(&claim, &["claim", "offsets"]),
        Resource::GroupNack => {
            let [claim, offsets] = claim;
            let more = [("delay_ms", &delay), ("reason", &reason)];
            named(&[claim, offsets, more[0], more[1]], &["claim", "offsets"])
        }
        Resource::GroupExtend => {
            let [claim, offsets] = claim;
            let members = [claim, offsets, ("lease_ms", &lease)];
            named(&members, &["claim", "offsets", "lease_ms"])
        }
        Resource::GroupJoin => named(&[("member", &member), ("takeover", &flag)], &["member"]),
        Resource::GroupRenew | Resource::GroupLeave => {
            named(&[("generation", &positive)], &["generation"])
        }
        Resource::GroupMove => named(&[("generation", &number), ("offset", &number)], &["offset"]),
        Resource::GroupReset => named(&[("offset", &number)], &["offset"]),
        _ => return None,
    })
}

/// Statuses of success.
fn good(row: &Row, method: Method) -> &'static [u16] {
    match (row.resource, method) {
        (Resource::Topic | Resource::Program | Resource::Stream | Resource::Group, Method::Put) => {
            &[200, 201]
        }
        (Resource::Stream, Method::Post) => &[200, 204],
        (Resource::Stream, Method::Delete) => &[204],
        (Resource::Events, Method::Post) | (Resource::Key, Method::Put) => &[200, 201, 202, 204],
        (Resource::Key, Method::Delete) => &[200, 202, 204],
        (Resource::Transactions, _) => &[201],
        (Resource::Events, _) | (Resource::Stream, Method::Get) => &[200, 204, 304],
        (Resource::Event | Resource::Key, _) => &[200, 206, 304],
        (Resource::Topic | Resource::Program | Resource::Module, Method::Get | Method::Head) => {
            &[200, 304]
        }
        _ => &[200],
    }
}

/// Statuses of problems that a resource can answer.
pub(crate) fn bad(row: &Row, method: Method) -> Vec<u16> {
    let mut list: Vec<u16> = vec![400, 405, 413, 414, 417, 421, 431, 500, 501, 505];
    let open = matches!(
        row.resource,
        Resource::Root
            | Resource::Healthz
            | Resource::Readyz
            | Resource::OpenApi
            | Resource::Problem
    );
    if !open {
        list.extend([401, 403, 429]);
    }
    if method.writes() {
        list.extend([403, 404, 408, 409, 410, 412, 415, 422, 428, 503, 504, 507]);
    } else {
        list.push(406);
    }
    match row.resource {
        Resource::Event
        | Resource::Key
        | Resource::Events
        | Resource::Keys
        | Resource::Topic
        | Resource::Program
        | Resource::Module
        | Resource::Problem => list.push(404),
        resource if resource.is_of_group() => list.push(404),
        _ => {}
    }
    if matches!(
        row.resource,
        Resource::Events | Resource::Keys | Resource::Key
    ) {
        list.extend([410, 504]);
    }
    // An expired stream is removed by whoever asks for it.
    if row.resource == Resource::Stream {
        list.extend([404, 410, 503, 504]);
    }
    if matches!(row.resource, Resource::Event | Resource::Key) {
        list.push(416);
    }
    if row.resource == Resource::Readyz {
        list.push(503);
    }
    list.sort_unstable();
    list.dedup();
    list
}

/// Media types of an answer.
fn answer(row: &Row, method: Method, status: u16) -> Option<Value> {
    // A key that was made is not told about in a body.
    let silent = (row.resource == Resource::Key && status == 201)
        || (row.resource == Resource::Stream && method != Method::Get);
    if silent || matches!(status, 202 | 204 | 304) || method == Method::Head {
        return None;
    }
    let record = json!({"$ref": "#/components/schemas/Record"});
    let any = json!({"application/json": {"schema": true}, "*/*": {"schema": true}});
    Some(match (row.resource, method) {
        (Resource::Events | Resource::Keys, Method::Get) => {
            let mut content = Map::new();
            for (name, form) in Form::OFFERS {
                let schema = if *form == Form::Json {
                    json!({"type": "array", "items": record})
                } else {
                    json!(true)
                };
                content.insert(
                    (*name).to_owned(),
                    json!({"schema": schema, "x-weir-item": record}),
                );
            }
            if row.resource == Resource::Events {
                content.insert(
                    "text/event-stream".to_owned(),
                    json!({"schema": true, "x-weir-item": record}),
                );
            }
            Value::Object(content)
        }
        (Resource::Event, _) | (Resource::Key | Resource::Stream, Method::Get) => any,
        (Resource::Healthz | Resource::Problem, _) => {
            json!({"text/plain; charset=utf-8": {"schema": {"type": "string"}}})
        }
        (Resource::Readyz, _) => {
            json!({"text/plain; charset=utf-8": {"schema": {"type": "string"}}, "application/json": {"schema": {"type": "object"}}})
        }
        (Resource::Program, Method::Get) => json!({
            "application/json": {"schema": {"type": "object"}},
            "application/wasm": {"schema": {"type": "string", "format": "binary"}},
        }),
        (Resource::Module, _) => json!({
            "application/wasm": {"schema": {"type": "string", "format": "binary"}},
        }),
        (Resource::Metrics, _) => json!({
            "text/plain; version=0.0.4; charset=utf-8": {"schema": {"type": "string"}},
            "application/openmetrics-text; version=1.0.0; charset=utf-8": {"schema": {"type": "string"}},
        }),
        _ => json!({"application/json": {"schema": {"type": "object"}}}),
    })
}

/// Where an answer leads.
fn links(row: &Row, method: Method, status: u16) -> Option<Value> {
    let topic = "$request.path.topic";
    let link = |operation: &str, parameters: Value| json!({"operationId": operation, "parameters": parameters});
    Some(match (row.resource, method, status) {
        (Resource::Topic, Method::Put, 200 | 201) => json!({
            "events": link("getEvents", json!({"topic": topic})),
            "publish": link("postEvents", json!({"topic": topic})),
            "put": link("putKey", json!({"topic": topic})),
        }),
        (Resource::Events, Method::Post, 201) => json!({
            "record": link("getEvent", json!({"topic": topic, "offset": "$response.header.Weir-Offset"})),
        }),
        (Resource::Stream, Method::Put, 200 | 201) => json!({
            "append": link("postStream", json!({"topic": topic})),
            "read": link("getStream", json!({"topic": topic})),
            "end": link("deleteStream", json!({"topic": topic})),
        }),
        (Resource::Group, Method::Put, 200 | 201) => {
            let group = json!({"topic": topic, "group": "$request.path.group"});
            json!({
                "state": link("getGroup", group.clone()),
                "claim": link("postGroupClaim", group.clone()),
                "remove": link("deleteGroup", group),
            })
        }
        (Resource::Key, Method::Put, 201 | 204) => {
            let key = json!({"topic": topic, "key": "$request.path.key"});
            json!({"value": link("getKey", key.clone()), "remove": link("deleteKey", key)})
        }
        _ => return None,
    })
}

fn about(row: &Row, method: Method) -> &'static str {
    match (row.resource, method) {
        (Resource::Root, _) => "Name, version and links.",
        (Resource::Topics, _) => "Topics by name.",
        (Resource::Topic, Method::Put) => "Make a topic, or find that it is as it should be.",
        (Resource::Topic, Method::Patch) => "Change options of a topic.",
        (Resource::Topic, Method::Delete) => "End a topic.",
        (Resource::Topic, _) => "What a topic is.",
        (Resource::Events, Method::Post) => "Publish one event, or a batch.",
        (Resource::Events, _) => "A page of records, or a tail.",
        (Resource::Event, _) => "One record: its payload is the body.",
        (Resource::Transactions, _) => "Several operations, all or none.",
        (Resource::Keys, _) => "Keys in byte order.",
        (Resource::Key, Method::Put) => "Set a key.",
        (Resource::Key, Method::Delete) => "Remove a key.",
        (Resource::Key, _) => "The current value of a key.",
        (Resource::Program, Method::Put) => "Make a topic with a program, or replace its program.",
        (Resource::Program, _) => "The program of a topic.",
        (Resource::Module, _) => "A module that a topic has, by its hash.",
        (Resource::Groups, _) => "Groups of a topic by name.",
        (Resource::Group, Method::Put) => "Make a group, or find that it is as it should be.",
        (Resource::Group, Method::Delete) => "End a group.",
        (Resource::Group, _) => "What a group is, and how far it has come.",
        (Resource::GroupClaim, _) => "Take records of a keyed or shared group.",
        (Resource::GroupAck, _) => "Records of a claim are done.",
        (Resource::GroupNack, _) => "Give records of a claim back.",
        (Resource::GroupExtend, _) => "Keep records of a claim for longer.",
        (Resource::GroupJoin, _) => "Become the owner of an exclusive group.",
        (Resource::GroupRenew, _) => "Stay the owner.",
        (Resource::GroupLeave, _) => "Be the owner no longer.",
        (Resource::GroupMove, _) => "Everything up to an offset is done.",
        (Resource::GroupReset, _) => "Put the cursor anywhere; leases and ownership end.",
        (Resource::Healthz, _) => "Whether the server runs.",
        (Resource::Readyz, _) => "Whether the server should get requests.",
        (Resource::Metrics, _) => "What the server has counted.",
        (Resource::OpenApi, _) => "This description.",
        (Resource::Problem, _) => "What a kind of problem means.",
        (Resource::Stream, Method::Put) => "Make a stream, or find that it is as it should be.",
        (Resource::Stream, Method::Post) => "Append to a stream, or close it.",
        (Resource::Stream, Method::Delete) => "End a stream.",
        (Resource::Stream, Method::Head) => "What a stream is.",
        (Resource::Stream, _) => "The data of a stream, from a position on.",
        (Resource::Unknown, _) => "",
    }
}

fn operation(row: &Row, method: Method, params: &[&str]) -> Value {
    let mut responses = Map::new();
    for status in good(row, method) {
        let mut response = json!({"description": crate::http::reply::reason(*status)});
        if let (Some(content), Some(members)) =
            (answer(row, method, *status), response.as_object_mut())
        {
            members.insert("content".to_owned(), content);
        }
        if let (Some(links), Some(members)) =
            (links(row, method, *status), response.as_object_mut())
        {
            members.insert("links".to_owned(), links);
        }
        responses.insert(status.to_string(), response);
    }
    for status in bad(row, method) {
        responses.insert(
            status.to_string(),
            json!({"$ref": format!("#/components/responses/Problem{status}")}),
        );
    }
    let mut parameters: Vec<Value> = params
        .iter()
        .map(|name| parameter(row, method, name))
        .collect();
    parameters.extend(fields(row, method));
    let mut operation = json!({
        "operationId": format!("{}{:?}", method.name().to_ascii_lowercase(), row.resource),
        "summary": about(row, method),
        "parameters": parameters,
        "responses": responses,
    });
    if let (Some(body), Some(members)) = (request(row, method), operation.as_object_mut()) {
        members.insert("requestBody".to_owned(), body);
    }
    operation
}

/// Path parameters of a template.
fn path_parameters(template: &str) -> Vec<Value> {
    let names = template
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let schema = |name: &str| match name {
        "topic" => json!({"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}$"}),
        "offset" => json!({"type": "integer", "minimum": 1, "maximum": u64::MAX}),
        "sha256" => json!({"type": "string", "pattern": "^[0-9a-f]{64}$"}),
        "group" => json!({"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"}),
        _ => json!({"type": "string", "minLength": 1}),
    };
    names
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": schema(name)}))
        .collect()
}

fn schemas() -> Value {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer"});
    json!({
        "Problem": {
            "type": "object",
            "required": ["type", "title", "status"],
            "properties": {"type": text, "title": text, "status": number, "detail": text, "instance": text, "code": number},
        },
        "Record": {
            "type": "object",
            "properties": {
                "offset": number, "intention": number, "time": number, "type": text, "key": text, "key64": text,
                "value": true, "text": text, "value64": text, "last": {"type": "boolean"}, "meta": true,
                "client": text, "nonce": number, "term": number,
            },
        },
        "CloudEvent": {
            "type": "object",
            "required": ["specversion", "id", "source", "type"],
            "properties": {"specversion": {"const": "1.0"}, "id": {"type": "string", "minLength": 1}, "source": {"type": "string", "minLength": 1}, "type": {"type": "string", "minLength": 1}, "data": true, "data_base64": text},
        },
        "Transaction": {
            "type": "object",
            "required": ["operations"],
            "properties": {
                "operations": {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Operation"}},
                "expect": {"type": "array", "items": {"type": "object"}},
            },
        },
        "Operation": {
            "type": "object",
            "properties": {"op": {"enum": ["put", "delete"]}, "key": text, "key64": text, "value": true, "text": text, "value64": text, "meta": {"type": "object", "additionalProperties": text}},
        },
    })
}

/// Builds the document.
pub(crate) fn document() -> Value {
    let mut paths = Map::new();
    for row in ROWS {
        let mut item = Map::new();
        let parameters = path_parameters(row.template);
        if !parameters.is_empty() {
            item.insert("parameters".to_owned(), Value::Array(parameters));
        }
        for (method, params) in row.methods {
            item.insert(
                method.name().to_ascii_lowercase(),
                operation(row, *method, params),
            );
        }
        paths.insert(row.template.to_owned(), Value::Object(item));
    }
    let mut statuses: Vec<u16> = Kind::ALL.iter().map(|kind| kind.status()).collect();
    statuses.sort_unstable();
    statuses.dedup();
    let mut responses = Map::new();
    for status in statuses {
        let names: Vec<&str> = Kind::ALL
            .iter()
            .filter(|kind| kind.status() == status)
            .map(|kind| kind.name())
            .collect();
        responses.insert(format!("Problem{status}"), json!({
            "description": format!("{}: {}", crate::http::reply::reason(status), names.join(", ")),
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Weir", "version": env!("CARGO_PKG_VERSION"), "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"}, "description": "An event store over HTTP. The rules in words: docs/api/http.md."},
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}],
        "paths": paths,
        "components": {"schemas": schemas(), "responses": responses, "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::fmt::Write as _;

    use super::*;

    /// Block style, members in order, texts in double quotes.
    fn yaml(value: &Value, depth: usize, out: &mut String) {
        let pad = "  ".repeat(depth);
        match value {
            Value::Object(members) if !members.is_empty() => {
                for (name, value) in members {
                    let _ = write!(out, "\n{pad}{}:", Value::from(name.as_str()));
                    yaml(value, depth + 1, out);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for item in items {
                    let _ = write!(out, "\n{pad}-");
                    yaml(item, depth + 1, out);
                }
            }
            other => {
                let _ = write!(out, " {other}");
            }
        }
    }

    #[test]
    fn the_file_is_what_the_router_says() {
        let mut text = String::from(
            "# Made from the table of the router (crates/weir-server); do not edit. A test\n# holds it to that table; WEIR_BLESS=1 lets the test write it.",
        );
        yaml(&document(), 0, &mut text);
        text.push('\n');
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api/openapi.yaml");
        if std::env::var_os("WEIR_BLESS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap() == text,
            "docs/api/openapi.yaml is old"
        );
    }

    #[test]
    fn references_lead_somewhere() {
        fn walk(value: &Value, root: &Value) {
            match value {
                Value::Object(members) => {
                    if let Some(Value::String(to)) = members.get("$ref") {
                        assert!(
                            root.pointer(to.strip_prefix('#').unwrap()).is_some(),
                            "{to}"
                        );
                    }
                    members.values().for_each(|value| walk(value, root));
                }
                Value::Array(items) => items.iter().for_each(|value| walk(value, root)),
                _ => {}
            }
        }
        let document = document();
        walk(&document, &document);
    }
}
