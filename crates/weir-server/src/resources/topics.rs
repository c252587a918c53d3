//! Topics: create, alter, destroy, describe, list.

use super::route::Resource;
use super::table::{BodyMax, Content, Operation as Action, Response, Row, Table, WRITE_FIELDS};
use crate::http::head::Method;
use crate::security::Right;
use serde_json::{Map, Value, json};
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use weir_core::{Compaction, ErrorCode, GroupName, Operation, StateMode, TopicOptions};
use weir_protocol::Consistency;
use weir_store::TopicInfo;

use crate::http::head::FieldName;
use crate::http::json::Object;
use crate::http::offload;
use crate::http::problem::{Kind, Problem};
use crate::http::query::encode;
use crate::http::reply::Reply;
use crate::limits::budget::Reservation;
use crate::limits::{PAGE_BYTES, TOPICS_PAGE, TOPICS_PAGE_MAX};
use crate::listing;
use crate::resources::condition::{Conditions, TagKind};
use crate::resources::consistency;
use crate::resources::context::{Call, Edge};
use crate::resources::events::read::{is_not_modified, no_topic};
use crate::resources::execute::{execute, execute_with, json_object, reply_head};
use crate::resources::problems;
use crate::resources::programs::reserve_description;
use crate::shared::Shared;

/// Maximum number of attempts to change options that are changed meanwhile through another interface.
const ALTER_ATTEMPTS_MAX: usize = 3;
const TOPIC: &str = r#"{"name":"orders","incarnation":1,"first":1,"last":3,"keys":2,"bytes":66,"options":{"compaction":"off"}}"#;
const TOPIC_ANSWER: &[Content] = &[Content::json("Topic", TOPIC)];

/// The end of a list.
const LIST_END: &[u8] = b"]}\n";

/// The table of this module.
pub(crate) const TABLE: Table = Table {
    rows: &[
        Row {
            resource: Resource::Topics,
            template: "/v1/topics",
            operations: &[Action {
                method: Method::Get,
                summary: "List topics by name.",
                right: Some(Right::Read),
                body: BodyMax::Json,
                query: &["prefix", "after", "limit", "consistency"],
                fields: &[],
                request: &[],
                responses: &[Response {
                    status: 200,
                    content: &[Content::json(
                        "TopicList",
                        r#"{"topics":[{"name":"orders","incarnation":1,"first":1,"last":3,"keys":2,"bytes":66,"options":{"compaction":"off"}}]}"#,
                    )],
                }],
                problems: &[],
                immediate: None,
                handler: |edge, call, _| Box::pin(list(edge, call)),
            }],
        },
        Row {
            resource: Resource::Topic,
            template: "/v1/topics/{topic}",
            operations: &[
                Action {
                    method: Method::Get,
                    summary: "Describe a topic.",
                    right: Some(Right::Read),
                    body: BodyMax::Json,
                    query: &["consistency"],
                    fields: &["If-None-Match"],
                    request: &[],
                    responses: &[
                        Response {
                            status: 200,
                            content: TOPIC_ANSWER,
                        },
                        Response::empty(304),
                    ],
                    problems: &[404],
                    immediate: None,
                    handler: |edge, call, _| Box::pin(get(edge, call)),
                },
                Action {
                    method: Method::Put,
                    summary: "Create a topic if it does not exist.",
                    right: Some(Right::Create),
                    body: BodyMax::Json,
                    query: &[],
                    fields: WRITE_FIELDS,
                    request: &[Content::json(
                        "TopicSettings",
                        r#"{"options":{"compaction":"latest"}}"#,
                    )],
                    responses: &[
                        Response {
                            status: 200,
                            content: TOPIC_ANSWER,
                        },
                        Response {
                            status: 201,
                            content: TOPIC_ANSWER,
                        },
                    ],
                    problems: &[],
                    immediate: None,
                    handler: |edge, call, body| {
                        Box::pin(async move { create(edge, call, &body).await })
                    },
                },
                Action {
                    method: Method::Patch,
                    summary: "Change options of a topic.",
                    right: Some(Right::Create),
                    body: BodyMax::Json,
                    query: &[],
                    fields: WRITE_FIELDS,
                    request: &[Content::new(
                        "application/merge-patch+json",
                        "TopicSettings",
                        r#"{"options":{"retention_records":1000}}"#,
                    )],
                    responses: &[Response {
                        status: 200,
                        content: TOPIC_ANSWER,
                    }],
                    problems: &[],
                    immediate: None,
                    handler: |edge, call, body| {
                        Box::pin(async move { alter(edge, call, &body).await })
                    },
                },
                Action {
                    method: Method::Delete,
                    summary: "Destroy a topic.",
                    right: Some(Right::Destroy),
                    body: BodyMax::Json,
                    query: &[],
                    fields: WRITE_FIELDS,
                    request: &[],
                    responses: &[Response {
                        status: 200,
                        content: &[Content::json("Destroyed", r#"{"last":4,"intention":4}"#)],
                    }],
                    problems: &[],
                    immediate: None,
                    handler: |edge, call, _| Box::pin(destroy(edge, call)),
                },
            ],
        },
    ],
    schemas,
};

fn schemas() -> Value {
    let number = json!({"type": "integer", "minimum": 0});
    let text = json!({"type": "string"});
    let mut options = Map::new();
    let mut settings = Map::new();
    for name in NUMBERS {
        options.insert((*name).to_owned(), number.clone());
        let nullable = json!({"type": ["integer", "null"], "minimum": 0});
        settings.insert((*name).to_owned(), nullable);
    }
    let names = json!({"type": "array", "items": text});
    options.insert("compaction".to_owned(), json!({"enum": ["off", "latest"]}));
    options.insert("hold_for_groups".to_owned(), names);
    options.insert("state".to_owned(), json!({"enum": ["kv", "memory"]}));
    let words = json!({"enum": ["off", "latest", null]});
    settings.insert("compaction".to_owned(), words);
    let names = json!({"type": ["array", "null"], "items": text});
    settings.insert("hold_for_groups".to_owned(), names);
    let words = json!({"enum": ["none", "kv", "memory", null]});
    settings.insert("state".to_owned(), words);
    json!({
        "TopicOptions": {"type": "object", "required": ["compaction"], "properties": options},
        "TopicSettings": {
            "type": "object",
            "description": "Options to set; null resets an option to its default.",
            "properties": {"options": {"type": "object", "properties": settings, "additionalProperties": false}},
            "additionalProperties": false,
        },
        "Topic": {
            "type": "object",
            "required": ["name", "first", "last", "keys", "bytes", "options"],
            "properties": {
                "name": text,
                "incarnation": number,
                "first": number,
                "last": number,
                "keys": number,
                "bytes": number,
                "options": {"$ref": "#/components/schemas/TopicOptions"},
                "program": {"$ref": "#/components/schemas/Program"},
            },
        },
        "TopicList": {
            "type": "object",
            "required": ["topics"],
            "properties": {"topics": {"type": "array", "items": {"$ref": "#/components/schemas/Topic"}}},
        },
        "Destroyed": {
            "type": "object",
            "description": "Offset of the last record of the topic, and the position of the write.",
            "properties": {"last": number, "intention": number},
        },
    })
}

/// Options with numeric values.
const NUMBERS: &[&str] = &[
    "tombstone_ttl_ms",
    "compaction_lag_ms",
    "key_bytes_max",
    "value_bytes_max",
    "keys_max",
    "retention_age_ms",
    "retention_bytes",
    "retention_records",
    "fuel_max",
    "memory_bytes_max",
    "emits_max",
    "emit_bytes_max",
    "state_entries_max",
    "state_bytes_max",
];

/// The body of a PUT.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Create {
    options: serde_json::Map<String, serde_json::Value>,
}

/// Applies a merge patch (RFC 7396): null resets an option.
fn patch(
    options: &mut TopicOptions,
    members: &serde_json::Map<String, serde_json::Value>,
) -> Result<(), Problem> {
    let wrong = |name: &str, what: &str| {
        Problem::new(Kind::InvalidOption, format!("the option {name} {what}"))
            .code(ErrorCode::BadOption)
            .text("option", name)
    };
    for (name, value) in members {
        let number = match value {
            serde_json::Value::Null => Ok(None),
            serde_json::Value::Number(number) => number.as_u64().map(Some).ok_or(()),
            _ => Err(()),
        };
        let number = || number.map_err(|()| wrong(name, "must be a whole number or null"));
        match name.as_str() {
            "compaction" => {
                options.compaction = match value.as_str() {
                    Some("latest") => Compaction::Latest,
                    Some("off") => Compaction::Off,
                    None if value.is_null() => Compaction::Off,
                    _ => return Err(wrong(name, "must be off or latest")),
                };
            }
            "state" => {
                let modes = [StateMode::None, StateMode::Kv, StateMode::Memory];
                let mode = match value.as_str() {
                    None if value.is_null() => Some(StateMode::default()),
                    text => modes.into_iter().find(|mode| Some(mode.name()) == text),
                };
                options.program.state =
                    mode.ok_or_else(|| wrong(name, "must be none, kv or memory"))?;
            }
            "hold_for_groups" => {
                let names = group_names(value);
                let list = || wrong(name, "must be a list of groups or null");
                options.retention.hold_for_groups = names.ok_or_else(list)?;
            }
            "retention_age_ms" => options.retention.age_ms = number()?,
            "retention_bytes" => options.retention.bytes = number()?,
            "retention_records" => options.retention.records = number()?,
            "tombstone_ttl_ms" => options.tombstone_ttl_ms = number()?,
            "compaction_lag_ms" => options.compaction_lag_ms = number()?,
            "key_bytes_max" => options.key_bytes_max = number()?,
            "value_bytes_max" => options.value_bytes_max = number()?,
            "keys_max" => options.keys_max = number()?,
            "fuel_max" => options.program.fuel_max = number()?,
            "memory_bytes_max" => options.program.memory_bytes_max = number()?,
            "emits_max" => options.program.emits_max = number()?,
            "emit_bytes_max" => options.program.emit_bytes_max = number()?,
            "state_entries_max" => options.program.state_entries_max = number()?,
            "state_bytes_max" => options.program.state_bytes_max = number()?,
            _ => return Err(wrong(name, "is unknown")),
        }
    }
    options.check().map_err(|name| {
        wrong(
            name,
            "is above its limit, or is 0 although it must be positive",
        )
    })
}

/// Parses the groups that retention waits for. Sorts them and removes duplicates.
fn group_names(value: &serde_json::Value) -> Option<Vec<GroupName>> {
    if value.is_null() {
        return Some(Vec::new());
    }
    let names = value.as_array()?.iter();
    let names: Option<Vec<_>> = names.map(|name| GroupName::new(name.as_str()?)).collect();
    let mut names = names?;
    names.sort_unstable();
    names.dedup();
    Some(names)
}

/// Writes the options that are set.
fn describe(options: &TopicOptions, out: &mut Vec<u8>) {
    let mut object = Object::new(out);
    object.text(
        "compaction",
        if options.compaction == Compaction::Latest {
            "latest"
        } else {
            "off"
        },
    );
    let program = &options.program;
    for (name, value) in [
        ("tombstone_ttl_ms", options.tombstone_ttl_ms),
        ("compaction_lag_ms", options.compaction_lag_ms),
        ("key_bytes_max", options.key_bytes_max),
        ("value_bytes_max", options.value_bytes_max),
        ("keys_max", options.keys_max),
        ("retention_age_ms", options.retention.age_ms),
        ("retention_bytes", options.retention.bytes),
        ("retention_records", options.retention.records),
        ("fuel_max", program.fuel_max),
        ("memory_bytes_max", program.memory_bytes_max),
        ("emits_max", program.emits_max),
        ("emit_bytes_max", program.emit_bytes_max),
        ("state_entries_max", program.state_entries_max),
        ("state_bytes_max", program.state_bytes_max),
    ] {
        if let Some(value) = value {
            object.number(name, value);
        }
    }
    let hold = &options.retention.hold_for_groups;
    if !hold.is_empty() {
        let names = object.member("hold_for_groups");
        names.push(b'[');
        for (at, name) in hold.iter().enumerate() {
            names.extend_from_slice(if at > 0 { b"," } else { b"" });
            crate::http::json::text(names, name.as_str());
        }
        names.push(b']');
    }
    if program.state != StateMode::default() {
        object.text("state", program.state.name());
    }
    object.end();
}

/// Responds to PUT: creates a topic, or checks that the existing topic has these options.
pub(crate) async fn create(edge: &Arc<Edge>, call: &Call, body: &Bytes) -> Result<Reply, Problem> {
    let request: Create = if body.trim_ascii().is_empty() {
        Create::default()
    } else {
        json_object(body)?
    };
    let mut options = TopicOptions::default();
    patch(&mut options, &request.options)?;
    let must_be_new = call.head.list(FieldName::IfNoneMatch).any(|tag| tag == "*");
    let outcome = execute(edge, call, Operation::Create { options: &options }, body).await;
    let store = &edge.shared.store;
    match outcome {
        Ok(outcome) => {
            let mut reply = reply_head(201, &outcome);
            reply.add(
                "location",
                format_args!("/v1/topics/{}", call.matched.topic),
            );
            let info = store.topic(&call.matched.topic).ok_or_else(no_topic)?;
            Ok(body_of(edge, reply, &info))
        }
        Err(problem) if problem.kind == Kind::TopicExists => {
            let info = store.topic(&call.matched.topic).filter(|info| info.live);
            // The topic may have been destroyed after the verdict.
            let Some(info) = info else {
                return Err(problem);
            };
            if must_be_new {
                let mut problem = Problem {
                    kind: Kind::Conflict,
                    ..problem
                };
                problem.fields.push(("etag", tag(&info)));
                return Err(problem.text("condition", "topic-absent"));
            }
            if info.options != options || store.program(&info.name).is_some() {
                return Err(problem);
            }
            Ok(body_of(edge, Reply::new(200), &info))
        }
        Err(problem) => Err(problem),
    }
}

/// Refuses a request with `If-None-Match: *` if the topic exists (RFC 9110, 13.1.2).
fn check_absent(edge: &Edge, call: &Call) -> Result<(), Problem> {
    let must_be_absent = call.head.list(FieldName::IfNoneMatch).any(|tag| tag == "*");
    let info = edge.shared.store.topic(&call.matched.topic);
    match info.filter(|info| info.live && must_be_absent) {
        None => Ok(()),
        Some(info) => {
            let code = ErrorCode::Conflict;
            let problem = Problem::new(Kind::Conflict, code.sentence()).code(code);
            let problem = problem.field("etag", tag(&info));
            Err(problem.text("condition", "topic-absent"))
        }
    }
}

/// Responds to PATCH: changes options.
pub(crate) async fn alter(edge: &Arc<Edge>, call: &Call, body: &Bytes) -> Result<Reply, Problem> {
    let media = call.head.text(FieldName::ContentType).unwrap_or_default();
    let essence = media.split(';').next().unwrap_or_default().trim();
    let supported = ["application/merge-patch+json", "application/json"];
    if !supported
        .iter()
        .any(|media_type| essence.eq_ignore_ascii_case(media_type))
    {
        return Err(
            Problem::new(Kind::MediaType, "a change of options must be a merge patch")
                .raw("accept", b"[\"application/merge-patch+json\"]".to_vec()),
        );
    }
    let members: Create = json_object(body)?;
    // Refuses a bad option before anything that may wait.
    patch(&mut TopicOptions::default(), &members.options)?;
    let has_conditions = !Conditions::read(&call.head, TagKind::Topic)?.is_empty();
    let mut answer = Box::pin(merge(edge, call, &members, body)).await;
    for _ in 1..ALTER_ATTEMPTS_MAX {
        let is_conflict = |problem: &Problem| problem.kind == Kind::Conflict;
        if has_conditions || !answer.as_ref().is_err_and(is_conflict) {
            break;
        }
        answer = Box::pin(merge(edge, call, &members, body)).await;
    }
    answer
}

/// Changes options that are not changed meanwhile. Fails with a conflict if they are, through another
/// interface or another leader.
async fn merge(
    edge: &Arc<Edge>,
    call: &Call,
    members: &Create,
    body: &Bytes,
) -> Result<Reply, Problem> {
    let mut conditions = Conditions::read(&call.head, TagKind::Topic)?;
    let (shared, topic) = (&edge.shared, call.matched.topic.as_str());
    // The log sets all options together. So a change must begin with the options of the previous
    // change, on this node or an earlier leader.
    let limit = shared.config.store_timeout;
    let lock = edge.option_changes.acquire(limit, (topic, b"")).await?;
    let is_current = shared.wait_for_consistency(Consistency::Linear).await;
    is_current.map_err(|error| problems::of_store(&error))?;
    let info = shared.store.topic(topic).filter(|info| info.live);
    let mut options = info.ok_or_else(no_topic)?.options;
    conditions.options = Some(options.fingerprint());
    patch(&mut options, &members.options)?;
    check_absent(edge, call)?;
    let operation = Operation::Alter { options: &options };
    let outcome = execute_with(edge, call, operation, body, conditions, Some(lock)).await?;
    let info = shared.store.topic(topic).ok_or_else(no_topic)?;
    Ok(body_of(edge, reply_head(200, &outcome), &info))
}

/// Responds to DELETE: destroys a topic.
pub(crate) async fn destroy(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    check_absent(edge, call)?;
    let outcome = execute(edge, call, Operation::Destroy, b"").await?;
    let mut body = Vec::new();
    let mut object = Object::new(&mut body);
    if let Some(commit) = outcome.commit() {
        object
            .number("last", commit.first.0)
            .number("intention", commit.intention.0);
    }
    object.end();
    Ok(reply_head(200, &outcome).with("application/json", body))
}

fn tag(info: &TopicInfo) -> String {
    format!(
        "\"i{}.o{}\"",
        info.incarnation.map_or(0, |offset| offset.0),
        info.last.0
    )
}

fn write_info(shared: &Shared, info: &TopicInfo, object: &mut Object<'_>) {
    object.text("name", &info.name);
    if let Some(incarnation) = info.incarnation {
        object.number("incarnation", incarnation.0);
    }
    object
        .number("first", info.first.0)
        .number("last", info.last.0)
        .number("keys", info.keys)
        .number("bytes", info.bytes);
    describe(&info.options, object.member("options"));
    if let Some(program) = shared.store.program(&info.name) {
        let mut inner = Object::new(object.member("program"));
        inner
            .text("sha256", &program.code.to_string())
            .text("state", program.mode.name())
            .base64("args64", &program.args)
            .number("state_entries", program.state_entries)
            .number("state_bytes", program.state_bytes);
        inner.end();
    }
}

fn body_of(edge: &Edge, mut reply: Reply, info: &TopicInfo) -> Reply {
    reply.add("etag", tag(info));
    reply.add("cache-control", "no-cache");
    reply.add("vary", "accept-encoding");
    let mut body = Vec::new();
    let mut object = Object::new(&mut body);
    write_info(&edge.shared, info, &mut object);
    object.end();
    body.push(b'\n');
    reply.with("application/json", body)
}

/// Responds to GET of a topic.
pub(crate) async fn get(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let reservation = reserve_description(edge, call).await?;
    let info = edge
        .shared
        .store
        .topic(&call.matched.topic)
        .filter(|info| info.live)
        .ok_or_else(no_topic)?;
    let tag = tag(&info);
    if is_not_modified(&call.head, &tag) {
        return Ok(Reply::new(304)
            .field("etag", tag)
            .field("vary", "accept-encoding"));
    }
    Ok(body_of(edge, Reply::new(200), &info).reserved(reservation))
}

/// Responds to GET of all topics.
pub(crate) async fn list(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let prefix = call.query.text("prefix")?.unwrap_or_default().to_owned();
    let after = call.query.text("after")?.unwrap_or_default().to_owned();
    let limit = call
        .query
        .number("limit", 1, TOPICS_PAGE_MAX)?
        .unwrap_or(TOPICS_PAGE);
    let limit = usize::try_from(limit).unwrap_or(1);
    let shared = Arc::clone(&edge.shared);
    let principal = Arc::clone(&call.principal);
    let mut reservation =
        Reservation::for_principal(&edge.shared.admission.answers, call.principal.share_key());
    let (found, more, body, reservation) = offload::run(move || {
        let mut found = listing::topics(&shared, &principal, &after, &prefix, limit + 1, false);
        let all = found.len();
        let mut body = b"{\"topics\":[".to_vec();
        let mut count = 0;
        for info in found.iter().take(limit) {
            // The arguments of a program may be long.
            if body.len() >= PAGE_BYTES {
                break;
            }
            let before = body.len();
            if count > 0 {
                body.extend_from_slice(b",\n");
            }
            let mut object = Object::new(&mut body);
            write_info(&shared, info, &mut object);
            object.end();
            // Without memory, the page ends earlier.
            if count > 0 && !reservation.try_cover(body.len() + LIST_END.len()) {
                body.truncate(before);
                break;
            }
            count += 1;
        }
        found.truncate(count);
        body.extend_from_slice(LIST_END);
        Ok((found, all > count, body, reservation))
    })
    .await?;
    let mut reply = Reply::new(200).number("weir-count", found.len() as u64);
    reply.add("cache-control", "no-cache");
    reply.add("vary", "accept-encoding");
    if let Some(last) = found.last().filter(|_| more) {
        let mut pairs = vec![format!("after={}", last.name)];
        for name in [consistency::PARAMETER, "limit", "prefix"] {
            if let Some(value) = call.query.bytes(name) {
                pairs.push(format!("{name}={}", encode(value)));
            }
        }
        reply.add(
            "link",
            format_args!("</v1/topics?{}>; rel=\"next\"", pairs.join("&")),
        );
    }
    Ok(reply.with("application/json", body).reserved(reservation))
}
