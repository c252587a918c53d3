//! The description of the interface (`OpenAPI` 3.1), generated from the tables of the resources. It
//! describes only routed operations. A test checks that docs/api/openapi.yaml is this document.

use serde_json::{Map, Value, json};
use weir_core::limits::GROUP_LEASE_MS_MAX;

use super::consistency;
use super::route::Resource;
use super::streams::terms as ds;
use super::table::{Content, Operation, Row, Table};
use crate::http::head::Method;
use crate::http::problem::Kind;
use crate::limits::{GROUPS_PAGE_MAX, PAGE_RECORDS_MAX, TOPICS_PAGE_MAX};
use crate::security::Right;

/// Meaning of the parameter `order`.
const ORDER: &str =
    "Oldest or newest first. With desc, after selects the records before this offset.";

/// Describes a query parameter: its schema and its meaning.
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
            "Return entries after this offset, key or topic name.",
        ),
        "from" => (
            text(),
            "Start position: start, end, an offset, -N for the last N records, a time ago such as 10m, or a time.",
        ),
        "order" => (word(&["asc", "desc"]), ORDER),
        "limit" => (number(1, entries), "Entries of a page."),
        "max-bytes" => (
            number(1, 16 << 20),
            "Bytes after which a page ends; it has at least one record.",
        ),
        "key" if method.writes() => (json!({"type": "string", "minLength": 1}), "The key."),
        "key" => (
            text(),
            "Only records of this key; empty: only records without a key.",
        ),
        "prefix" => (text(), "Prefix of the key or name."),
        "type" => (
            word(&["put", "delete", "create", "destroy", "alter", "replace"]),
            "Only records of this type.",
        ),
        "fields" => (
            json!({"type": "string", "pattern": "^(offset|intention|time|type|key|value|last|meta|client|nonce|term)(,(offset|intention|time|type|key|value|last|meta|client|nonce|term))*$"}),
            "Members of a record, as a list.",
        ),
        "wait" if method.writes() => (number(0, 30), "Seconds to wait for a record."),
        "wait" => (number(0, 60), "Seconds to wait for a record."),
        "member" => (
            json!({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}),
            "Name of the member that claims.",
        ),
        "max" => (number(1, 1000), "Maximum number of records."),
        "lease-ms" => (
            number(1, GROUP_LEASE_MS_MAX),
            "Milliseconds until other members may claim the records.",
        ),
        "consistency" => (
            word(&["local", "leader", "linear"]),
            "Writes that a read at a node of a cluster must see.",
        ),
        "at-least" => (
            number(0, 1 << 53),
            "An offset that the topic must have reached.",
        ),
        "reset" => (
            word(&["earliest"]),
            "Start at the oldest remaining record if retention has removed the position.",
        ),
        "offset" => (
            json!({"type": "string", "pattern": "^(-1|now|[0-9]{16}_0{16})$"}),
            "Start position, as returned by a response.",
        ),
        "cursor" => (text(), "The last Stream-Cursor."),
        "live" if row.resource == Resource::Stream => (
            word(&["long-poll", "sse"]),
            "Wait for more data, or follow the stream by server-sent events.",
        ),
        "live" => (word(&["sse"]), "Follow the topic by server-sent events."),
        "last-event-id" => (
            text(),
            "The id of the last received event, for clients that cannot set the field Last-Event-ID.",
        ),
        "data" => (
            word(&["value", "record"]),
            "Content of the data of an event.",
        ),
        "numbers" => (word(&["number", "string"]), "Format of numbers."),
        "mode" => (
            word(&["values", "records"]),
            "Form of the items of a batch.",
        ),
        "values" => (flag(), "Return values in addition to keys."),
        "atomic" => (flag(), "All items or none."),
        "as" => (
            word(&["cloudevent"]),
            "Attributes of the event as header fields.",
        ),
        "state" => (
            word(&["none", "kv", "memory"]),
            "Kind of state of the program of a new topic.",
        ),
        "verbose" => (flag(), "Return each check with its name."),
        _ => (text(), ""),
    };
    let required = name == "member";
    json!({"name": name, "in": "query", "required": required, "schema": schema, "description": about})
}

/// Describes a header field of a request.
fn field(name: &str, method: Method) -> Value {
    let tag = || json!({"type": "string"});
    let number = |max: u64| json!({"type": "integer", "minimum": 0, "maximum": max});
    let text = |max: usize| json!({"type": "string", "minLength": 1, "maxLength": max});
    let (schema, about) = match name {
        "Idempotency-Key" => (
            text(257),
            "Executes the request at most once, even if it is sent several times.",
        ),
        "Weir-Client" => (
            json!({"type": "string", "pattern": "^[0-9a-fA-F]{32}$"}),
            "The session; with Weir-Nonce.",
        ),
        "Weir-Nonce" => (
            json!({"type": "integer", "minimum": 1}),
            "The number of the write in its session.",
        ),
        "If-Match" => (tag(), "Only if this is the current version."),
        "If-None-Match" if method.writes() => (tag(), "`*`: only if the resource does not exist."),
        "If-None-Match" => (tag(), "Not if this is the current version."),
        "Weir-Expect" => (tag(), "Further conditions, as name=number."),
        "Prefer" => (tag(), "return=minimal, respond-async, conflicts=N."),
        "Weir-Key" => (tag(), "The key of the event."),
        "Weir-Program-Args" => (tag(), "Arguments of the program, in base64."),
        "Stream-Closed" => (
            json!({"type": "string", "enum": ["true", "false"]}),
            "Closes the stream after the data of the body.",
        ),
        "Stream-TTL" => (
            number(ds::TTL_SECONDS_MAX),
            "Seconds without a read or write after which the stream expires.",
        ),
        "Stream-Expires-At" => (
            json!({"type": "string", "format": "date-time"}),
            "Time at which the stream expires.",
        ),
        "Stream-Forked-From" => (
            json!({"type": "string", "pattern": "^/[A-Za-z0-9_-]+$"}),
            "Path of the source of the fork.",
        ),
        "Stream-Fork-Offset" => (
            json!({"type": "string", "pattern": "^[0-9]{16}_0{16}$"}),
            "Position in the source at which the fork starts; default: its end.",
        ),
        "Stream-Fork-Sub-Offset" => (
            number(ds::FORK_SUB_OFFSET_MAX),
            "Bytes or messages after that position.",
        ),
        "Stream-Seq" => (
            text(ds::ORDER_BYTES_MAX),
            "Must sort after the Stream-Seq of the previous write.",
        ),
        "Producer-Id" => (
            text(ds::PRODUCER_ID_BYTES_MAX),
            "Id of the producer, for writes that may be retried; requires Producer-Epoch and Producer-Seq.",
        ),
        "Producer-Epoch" => (number(ds::PRODUCER_NUMBER_MAX), "Epoch of the producer."),
        "Producer-Seq" => (
            number(ds::PRODUCER_NUMBER_MAX),
            "Number of the write in its epoch.",
        ),
        _ => (tag(), ""),
    };
    json!({"name": name, "in": "header", "required": false, "schema": schema, "description": about})
}

/// Describes bodies by media type.
fn content(list: &[Content]) -> Value {
    let mut content = Map::new();
    for one in list {
        let example = if one.media.contains("json")
            && !one.media.contains("json-seq")
            && !one.media.contains("jsonl")
            && !one.media.contains("ndjson")
        {
            // A test parses all examples.
            serde_json::from_str(one.example).unwrap_or_default()
        } else {
            Value::from(one.example)
        };
        let schema = json!({"$ref": format!("#/components/schemas/{}", one.schema)});
        content.insert(
            one.media.to_owned(),
            json!({"schema": schema, "example": example}),
        );
    }
    Value::Object(content)
}

/// Statuses of problems that an operation can return.
fn problems(operation: &Operation, method: Method) -> Vec<u16> {
    let mut list: Vec<u16> = vec![400, 405, 406, 413, 414, 417, 421, 431, 500, 501, 505];
    if operation.right.is_some() {
        list.extend([401, 403, 429]);
    }
    if operation.query.contains(&consistency::PARAMETER) {
        list.extend([307, 503]);
    }
    if method.writes() {
        list.extend([
            307, 403, 404, 408, 409, 410, 412, 415, 422, 428, 503, 504, 507,
        ]);
    }
    list.extend(operation.problems);
    list.sort_unstable();
    list.dedup();
    list
}

/// Links from a response to other operations.
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

fn described(row: &Row, operation: &Operation, method: Method) -> Value {
    let mut responses = Map::new();
    for one in operation.responses {
        let mut response = Map::new();
        let reason = crate::http::reply::reason(one.status);
        response.insert("description".to_owned(), reason.into());
        if !one.content.is_empty() && method != Method::Head {
            response.insert("content".to_owned(), content(one.content));
        }
        if let Some(links) = links(row, method, one.status) {
            response.insert("links".to_owned(), links);
        }
        responses.insert(one.status.to_string(), Value::Object(response));
    }
    for status in problems(operation, method) {
        responses.insert(
            status.to_string(),
            json!({"$ref": format!("#/components/responses/Problem{status}")}),
        );
    }
    let query = operation.query.iter();
    let mut parameters: Vec<Value> = query.map(|name| parameter(row, method, name)).collect();
    parameters.extend(operation.fields.iter().map(|name| field(name, method)));
    let mut described = json!({
        "operationId": format!("{}{:?}", method.name().to_ascii_lowercase(), row.resource),
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if !operation.request.is_empty()
        && let Some(members) = described.as_object_mut()
    {
        // A step of a group needs a body; other bodies may be empty.
        let required = operation.right == Some(Right::Group) && method == Method::Post;
        members.insert(
            "requestBody".to_owned(),
            json!({"required": required, "content": content(operation.request)}),
        );
    }
    described
}

/// Describes the path parameters of a template.
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

fn problem_schema() -> Value {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer"});
    json!({
        "Problem": {
            "type": "object",
            "description": "A problem (RFC 9457). Some kinds have further members.",
            "required": ["type", "title", "status"],
            "properties": {"type": text, "title": text, "status": number, "detail": text, "instance": text, "code": number},
        },
    })
}

/// The problem object of the first kind with this status.
fn problem_example(status: u16) -> Value {
    let kind = Kind::ALL.iter().find(|kind| kind.status() == status);
    kind.map_or(Value::Null, |kind| {
        json!({"type": format!("/problems/{}", kind.name()), "title": kind.title(), "status": status, "instance": "5f3c9a2b00000001"})
    })
}

/// Builds the document.
pub(crate) fn document(tables: &[Table]) -> Value {
    let mut paths = Map::new();
    let mut schemas = problem_schema();
    for table in tables {
        if let (Value::Object(all), Value::Object(own)) = (&mut schemas, (table.schemas)()) {
            all.extend(own);
        }
        for row in table.rows {
            let mut item = Map::new();
            let parameters = path_parameters(row.template);
            if !parameters.is_empty() {
                item.insert("parameters".to_owned(), Value::Array(parameters));
            }
            for method in row.methods() {
                if let Some(operation) = row.operation(method) {
                    let name = method.name().to_ascii_lowercase();
                    item.insert(name, described(row, operation, method));
                }
            }
            paths.insert(row.template.to_owned(), Value::Object(item));
        }
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
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}, "example": problem_example(status)}},
        }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Weir", "version": env!("CARGO_PKG_VERSION"), "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"}, "description": "An event store over HTTP. Reference: docs/api/http.md."},
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}],
        "paths": paths,
        "components": {"schemas": schemas, "responses": responses, "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    })
}
