//! The program of a topic.
//!
//! PUT of a module makes a topic with it, or puts it in the place of the one
//! that the topic has; `If-Match` with the hash of the old one guards that.
//! A module that some topic has is found by its hash as well.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_core::{CodeHash, ErrorCode, Expect, Intention, Operation, TopicOptions};
use weir_store::Proposal;

use super::propose;
use super::topics::{done, execute, execute_plain};
use crate::http::accept;
use crate::http::base64;
use crate::http::head::Known;
use crate::http::json::Object;
use crate::http::offload;
use crate::http::problem::{self, Kind, Problem};
use crate::http::reply::Reply;
use crate::limits::admission::Permit;
use crate::resources::events::read::{is_known, no_topic};
use crate::service::{Call, Edge};

/// Media type of a module.
const WASM: &str = "application/wasm";
/// How often, and with which pause, a program asks for its turn to be compiled.
const TURN_TRIES: u32 = 500;
const TURN_PAUSE: Duration = Duration::from_millis(20);

fn read_tag(text: &str) -> Option<CodeHash> {
    read_hash(text.strip_prefix('"')?.strip_suffix('"')?)
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

/// PUT of a module. Its arguments are in `Weir-Program-Args`, in base64.
pub(crate) async fn put(edge: &Arc<Edge>, call: &Call, body: Bytes) -> Result<Reply, Problem> {
    let media = call.head.text(Known::ContentType).unwrap_or_default();
    if !media.eq_ignore_ascii_case("application/wasm") {
        return Err(
            Problem::new(Kind::MediaType, "a program is a WebAssembly module")
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
        Some(args) => args.ok_or_else(|| Problem::bad("Weir-Program-Args is no base64"))?,
    };
    let store = &edge.shared.store;
    let topic = call.matched.topic.as_str();
    let lives = store
        .standing(topic)
        .is_some_and(|topic| topic.incarnation.is_some());
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
    // The module is compiled before it is logged, which takes its time.
    let outcome = if lives {
        if call.head.list(Known::IfNoneMatch).any(|tag| tag == "*") {
            return Err(Problem::new(Kind::Conflict, "the topic has a program"));
        }
        let expected = match call.head.text(Known::IfMatch) {
            None | Some("*") => None,
            Some(tag) => Some(
                read_tag(tag).ok_or_else(|| Problem::bad("the tag of a program is its SHA-256"))?,
            ),
        };
        // The tag of a program is no tag of its topic, so it is not read as one.
        execute_plain(
            edge,
            call,
            Operation::Replace {
                expected,
                code: &body,
                args: &args,
            },
            &body,
        )
        .await?
    } else {
        execute(
            edge,
            call,
            Operation::CreateProgram {
                options: &options,
                code: &body,
                args: &args,
            },
            &body,
        )
        .await?
    };
    let mut reply = done(if lives { 200 } else { 201 }, &outcome);
    let program = store.program(topic).ok_or_else(no_topic)?;
    reply.add("etag", format_args!("\"{}\"", program.code));
    reply.add("location", format_args!("/v1/topics/{topic}/program"));
    Ok(describe(reply, &program))
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

/// GET: what the program is, or its module.
pub(crate) fn get(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let store = &edge.shared.store;
    let topic = call.matched.topic.as_str();
    if store
        .standing(topic)
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
    if is_known(&call.head, &tag) {
        reply.status = 304;
        return Ok(reply);
    }
    if wasm {
        // It may have been replaced meanwhile, together with its hash.
        let module = store.module(program.code).ok_or_else(no_topic)?;
        return Ok(reply.with(WASM, module.to_vec()));
    }
    Ok(describe(reply, &program))
}

/// Operations that bring a program, with bytes of their own.
enum Brings {
    Create(Box<TopicOptions>),
    Replace(Option<CodeHash>),
}

/// Hands over an intention that brings a program, if it does. The module is
/// compiled before it is logged, which takes its time: on a thread that may,
/// and few at a time.
pub(super) async fn propose(
    edge: &Arc<Edge>,
    call: &Call,
    intention: &Intention<'_>,
    expect: Vec<Expect<'static>>,
) -> Result<(Proposal, Permit), Problem> {
    let (brings, code, args) = match intention.operation {
        Operation::CreateProgram {
            options,
            code,
            args,
        } => (Brings::Create(Box::new(options.clone())), code, args),
        Operation::Replace {
            expected,
            code,
            args,
        } => (Brings::Replace(expected), code, args),
        _ => return propose::propose(edge, call, std::slice::from_ref(intention)),
    };
    edge.allow(call, std::slice::from_ref(intention))
        .map_err(|(_, problem)| problem)?;
    let turn = turn(edge).await?;
    let (code, args) = (code.to_vec(), args.to_vec());
    let (topic, principal) = (intention.topic.to_owned(), intention.principal.to_vec());
    let (client, nonce) = (intention.client, intention.nonce);
    let fingerprint = intention.fingerprint;
    let edge = Arc::clone(edge);
    offload::run(move || {
        let _turn = turn;
        let (code, args) = (&code[..], &args[..]);
        let operation = match &brings {
            Brings::Create(options) => Operation::CreateProgram {
                options,
                code,
                args,
            },
            Brings::Replace(expected) => Operation::Replace {
                expected: *expected,
                code,
                args,
            },
        };
        let intention = Intention {
            client,
            nonce,
            expect: &expect,
            principal: &principal,
            fingerprint,
            ..Intention::new(&topic, operation)
        };
        let shared = &edge.shared;
        let room = shared.room(std::slice::from_ref(&intention), intention.size_hint());
        let room = room.ok_or_else(busy)?;
        let proposal = shared.store.propose(&[intention]);
        let proposal = proposal.map_err(|error| problem::of_store(&error))?;
        let room = shared.admission.follow(room, &proposal);
        Ok((proposal, room))
    })
    .await
}

/// Leave to compile, once there is some.
async fn turn(edge: &Edge) -> Result<Permit, Problem> {
    for _ in 0..TURN_TRIES {
        if let Some(turn) = edge.shared.admission.admit_compile() {
            return Ok(turn);
        }
        tokio::time::sleep(TURN_PAUSE).await;
    }
    Err(busy())
}

fn busy() -> Problem {
    Problem::new(Kind::Busy, ErrorCode::Busy.sentence()).code(ErrorCode::Busy)
}

/// GET of a module by its hash. The bytes behind a hash never change.
pub(crate) fn module(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let name = &call.matched.name;
    let hash = read_hash(name).filter(|hash| hash.to_string() == *name);
    let hash = hash
        .ok_or_else(|| Problem::bad("a module is named by its SHA-256, 64 digits in lower case"))?;
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
    if is_known(&call.head, &tag) {
        reply.status = 304;
        return Ok(reply);
    }
    Ok(reply.with(WASM, module.to_vec()))
}
