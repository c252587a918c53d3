//! The program of a topic.
//!
//! PUT of a module creates a topic with it, or replaces the program of an existing topic.
//! `If-Match` with the hash of the old module makes the replacement conditional. A module that any
//! topic uses can also be read by its hash.

use super::route::Resource;
use super::table::{BodyMax, Content, Operation as Action, Response, Row, Table};
use crate::http::head::Method;
use crate::security::Right;
use serde_json::{Value, json};
use std::sync::Arc;

use bytes::Bytes;
use weir_core::{CodeHash, Operation, Outcome, TopicOptions};

use super::condition::{Conditions, TagKind, check_readable};
use super::execute::{execute, execute_with, reply_head};
use crate::http::accept;
use crate::http::base64;
use crate::http::exchange::busy;
use crate::http::head::{FieldName, Head};
use crate::http::json::Object;
use crate::http::problem::{Kind, Problem};
use crate::http::reply::Reply;
use crate::limits::budget::Reservation;
use crate::resources::context::{Call, Edge};
use crate::resources::events::read::{is_not_modified, no_topic};

const PROGRAM: &[Content] = &[Content::json("Program", PROGRAM_EXAMPLE)];
const PROGRAM_EXAMPLE: &str = r#"{"sha256":"0b1e1bd0b9d2b4d7d1a4a9f5ee47a2fdb95d5e2b8f3a4a4f3b2f2b0c1d2e3f40","state":"kv","args64":"","state_entries":2,"state_bytes":18}"#;
/// A minimal module, as an example.
const MODULE: Content = Content::new(WASM, "Bytes", "\0asm\u{1}\0\0\0");

/// The table of this module.
pub(crate) const TABLE: Table = Table {
    rows: &[
        Row {
            resource: Resource::Program,
            template: "/v1/topics/{topic}/program",
            operations: &[
                Action {
                    method: Method::Get,
                    summary: "Describe the program of a topic, or fetch its module.",
                    right: Some(Right::Read),
                    body: BodyMax::Json,
                    query: &["consistency"],
                    fields: &[],
                    request: &[],
                    responses: &[
                        Response {
                            status: 200,
                            content: &[Content::json("Program", PROGRAM_EXAMPLE), MODULE],
                        },
                        Response::empty(304),
                    ],
                    problems: &[404],
                    immediate: None,
                    handler: |edge, call, _| Box::pin(get(edge, call)),
                },
                Action {
                    method: Method::Put,
                    summary: "Create a topic with a program, or replace its program.",
                    right: Some(Right::Program),
                    body: BodyMax::Module,
                    query: &["state"],
                    fields: &["Weir-Program-Args"],
                    request: &[MODULE],
                    responses: &[
                        Response {
                            status: 200,
                            content: PROGRAM,
                        },
                        Response {
                            status: 201,
                            content: PROGRAM,
                        },
                    ],
                    problems: &[],
                    immediate: None,
                    handler: |edge, call, body| Box::pin(put(edge, call, body)),
                },
            ],
        },
        Row {
            resource: Resource::Module,
            template: "/v1/programs/{sha256}",
            operations: &[Action {
                method: Method::Get,
                summary: "Fetch a module that a topic uses, by its hash.",
                right: Some(Right::Program),
                body: BodyMax::Json,
                query: &[],
                fields: &[],
                request: &[],
                responses: &[
                    Response {
                        status: 200,
                        content: &[MODULE],
                    },
                    Response::empty(304),
                ],
                problems: &[404],
                immediate: None,
                handler: |edge, call, _| Box::pin(async { module(edge, call) }),
            }],
        },
    ],
    schemas,
};

fn schemas() -> Value {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer", "minimum": 0});
    json!({
        "Bytes": {"type": "string", "format": "binary"},
        "Program": {
            "type": "object",
            "required": ["sha256", "state", "args64", "state_entries", "state_bytes"],
            "properties": {
                "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                "state": {"enum": ["none", "kv", "memory"]},
                "args64": text,
                "state_entries": number,
                "state_bytes": number,
            },
        },
    })
}

/// Media type of a module.
const WASM: &str = "application/wasm";

fn read_tag(text: &str) -> Option<CodeHash> {
    let text = text.strip_prefix('"')?.strip_suffix('"')?;
    // The tag of a coded response has a suffix.
    read_hash(text.split_once('-').map_or(text, |(hash, _)| hash))
}

fn read_hash(text: &str) -> Option<CodeHash> {
    let mut hash = [0_u8; 32];
    if text.len() != 64 || text.bytes().any(|byte| !byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(CodeHash(hash))
}

/// Responds to PUT of a module. The arguments of the module are in `Weir-Program-Args`, in base64.
pub(crate) async fn put(edge: &Arc<Edge>, call: &Call, body: Bytes) -> Result<Reply, Problem> {
    let media = call.head.text(FieldName::ContentType).unwrap_or_default();
    if !media.eq_ignore_ascii_case("application/wasm") {
        return Err(
            Problem::new(Kind::MediaType, "a program must be a WebAssembly module")
                .raw("accept", b"[\"application/wasm\"]".to_vec()),
        );
    }
    let args = call
        .head
        .fields()
        .find(|(name, _)| *name == "weir-program-args");
    let args = match args.map(|(_, value)| std::str::from_utf8(value).ok().and_then(base64::decode))
    {
        None => Vec::new(),
        Some(args) => args.ok_or_else(|| Problem::bad("Weir-Program-Args is not base64"))?,
    };
    let store = &edge.shared.store;
    let topic = call.matched.topic.as_str();
    let incarnation = || store.topic_state(topic).and_then(|topic| topic.incarnation);
    let mut options = TopicOptions::default();
    let state = call.query.word(
        "state",
        &[
            ("none", weir_core::StateMode::None),
            ("kv", weir_core::StateMode::Kv),
            ("memory", weir_core::StateMode::Memory),
        ],
    )?;
    options.program.state = state.unwrap_or_default();
    let must_be_new = call.head.list(FieldName::IfNoneMatch).any(|tag| tag == "*");
    let has_tag = call.head.has(FieldName::IfMatch);
    let replaces = !must_be_new && (has_tag || incarnation().is_some());
    // The module is compiled before it is logged, which may take a long time.
    let outcome = if replaces {
        let operation = Operation::Replace {
            expected: expected_program(&call.head)?,
            code: &body,
            args: &args,
        };
        // `If-Match` has the tag of the program here, so it must not be parsed as a tag of the
        // topic.
        let conditions = Conditions::without_tags(&call.head, TagKind::Topic)?;
        execute_with(edge, call, operation, &body, conditions, None::<()>).await?
    } else {
        let operation = Operation::CreateProgram {
            options: &options,
            code: &body,
            args: &args,
        };
        let outcome = execute(edge, call, operation, &body).await;
        outcome.map_err(|problem| match problem.kind {
            Kind::TopicExists if must_be_new => {
                let kind = Kind::Conflict;
                Problem { kind, ..problem }.text("condition", "topic-absent")
            }
            _ => problem,
        })?
    };
    let has_created = match &outcome {
        // The first execution may have created the topic that the retry found.
        Outcome::Replayed(commit) if replaces => incarnation() == Some(commit.intention),
        _ => !replaces,
    };
    let mut reply = reply_head(if has_created { 201 } else { 200 }, &outcome);
    reply.add("location", format_args!("/v1/topics/{topic}/program"));
    // The topic may have been destroyed after this write, which may be a retry.
    let Some(program) = store.program(topic) else {
        return Ok(reply);
    };
    reply.add("etag", format_args!("\"{}\"", program.code));
    Ok(describe(reply, &program))
}

/// Returns the hash in `If-Match`, of the program to be replaced.
fn expected_program(head: &Head) -> Result<Option<CodeHash>, Problem> {
    check_readable(head, FieldName::IfMatch)?;
    let mut tags = head.list(FieldName::IfMatch);
    match (tags.next(), tags.next()) {
        (None | Some("*"), None) => Ok(None),
        (Some(tag), None) => match read_tag(tag) {
            None => Err(Problem::bad("the tag of a program must be its SHA-256")),
            expected => Ok(expected),
        },
        _ => Err(Problem::bad("a write to a program accepts only one tag")),
    }
}

fn describe(reply: Reply, program: &weir_store::ProgramInfo) -> Reply {
    let mut body = Vec::new();
    let mut object = Object::new(&mut body);
    object
        .text("sha256", &program.code.to_string())
        .text("state", program.mode.name());
    object.base64("args64", &program.args);
    object
        .number("state_entries", program.state_entries)
        .number("state_bytes", program.state_bytes);
    object.end();
    body.push(b'\n');
    reply.with("application/json", body)
}

/// Reserves memory for a description with the arguments of the topic's program.
pub(crate) async fn reserve_description(edge: &Edge, call: &Call) -> Result<Reservation, Problem> {
    let topic = &call.matched.topic;
    let mut reservation =
        Reservation::for_principal(&edge.shared.admission.answers, call.principal.share_key());
    let program = edge.shared.store.program(topic);
    // The copy of the arguments is dropped before the wait.
    if let Some(bytes) = program.map(|program| program.args.len()) {
        let in_base64 = bytes + bytes / 3;
        let reserved = reservation.cover(bytes + in_base64).await;
        reserved.map_err(busy)?;
    }
    Ok(reservation)
}

/// Responds to GET: the description of the program, or its module.
pub(crate) async fn get(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let store = &edge.shared.store;
    let topic = call.matched.topic.as_str();
    let reservation = reserve_description(edge, call).await?;
    if store
        .topic_state(topic)
        .is_none_or(|topic| topic.incarnation.is_none())
    {
        return Err(no_topic());
    }
    let program = store
        .program(topic)
        .ok_or_else(|| Problem::new(Kind::NotFound, "the topic has no program"))?;
    let offers = [("application/json", false), (WASM, true)];
    let wasm = accept::media(&call.head, &offers);
    let wasm = wasm.ok_or_else(|| {
        let offers = b"[\"application/json\",\"application/wasm\"]";
        Problem::new(Kind::NotAcceptable, "").raw("accept", offers.to_vec())
    })?;
    let tag = format!("\"{}\"", program.code);
    let mut reply = Reply::new(200).field("etag", &tag);
    reply.add("cache-control", "no-cache");
    reply.add("vary", "accept, accept-encoding");
    // The tag is that of the module. The state and the arguments of the program change without it.
    if wasm && is_not_modified(&call.head, &tag) {
        reply.status = 304;
        return Ok(reply);
    }
    if wasm {
        // The program may have been replaced meanwhile.
        let module = store.module(program.code).ok_or_else(no_topic)?;
        return Ok(reply.with(WASM, Bytes::from_owner(module)));
    }
    Ok(describe(reply, &program).reserved(reservation))
}

/// Responds to GET of a module by its hash. The module of a hash never changes.
pub(crate) fn module(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let name = &call.matched.name;
    let hash = read_hash(name).filter(|hash| hash.to_string() == *name);
    let hash = hash.ok_or_else(|| {
        Problem::bad(
            "the name of a module must be its SHA-256: 64 hexadecimal digits in lower case",
        )
    })?;
    let module = edge.shared.store.module(hash);
    let module = module.ok_or_else(|| Problem::new(Kind::NotFound, "no topic has this module"))?;
    if accept::media(&call.head, &[(WASM, ())]).is_none() {
        let offers = b"[\"application/wasm\"]";
        return Err(Problem::new(Kind::NotAcceptable, "").raw("accept", offers.to_vec()));
    }
    let tag = format!("\"{hash}\"");
    let mut reply = Reply::new(200).field("etag", &tag);
    reply.add("cache-control", "private, max-age=31536000, immutable");
    reply.add("vary", "accept, accept-encoding");
    if is_not_modified(&call.head, &tag) {
        reply.status = 304;
        return Ok(reply);
    }
    Ok(reply.with(WASM, Bytes::from_owner(module)))
}
