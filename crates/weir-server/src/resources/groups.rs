//! Groups of a topic: members share its records and acknowledge them.
//!
//! The store implements the rules; this module parses requests and writes responses. Invariant: a
//! response contains only records whose lease is in the log.

use super::table::{BodyMax, Content, Operation as Action, Response, Row, Table};
use crate::http::head::Method;
use crate::security::Right;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use weir_core::limits::{GROUP_ATTEMPTS_MAX, GROUP_LEASE_MS_MAX, GROUP_PENDING_MAX};

use bytes::Bytes;
use serde::Deserialize;
use tokio::time::{Duration, Instant};
use weir_core::group::Offsets;
use weir_core::limits::{GROUP_LIST_MAX, GROUP_MEMBER_BYTES_MAX};
use weir_core::{
    ConsequenceOffset, ErrorCode, GroupMode, GroupName, GroupSetup, GroupStep, Operation, Outcome,
};
use weir_protocol::{CLAIM_RECORDS_MAX, CLAIM_WAIT_MS_MAX};
use weir_store::{Claimed, GroupInfo, ReadFrom, Store, StoreError};

use super::events::read::seek;
use super::execute::{execute_plain, json_object};
use super::records::{self, Fields};
use super::route::Resource;
use crate::claiming::{Claim, ClaimFailure, reason};
use crate::http::exchange::busy;
use crate::http::head::FieldName;
use crate::http::json::{Number, Object, some};
use crate::http::offload;
use crate::http::problem::{self, Kind, Problem};
use crate::http::query::encode;
use crate::http::reply::Reply;
use crate::limits::budget::Reservation;
use crate::limits::{CLAIM_RECORDS, GROUPS_PAGE_MAX, MEMBERS_MAX, PAGE_BYTES};
use crate::phase::Phase;
use crate::resources::context::{Call, Edge, denial};
use crate::resources::{consistency, problems};

const GROUP: &str = r#"{"name":"mail","mode":"shared","cursor":0,"frontier":0,"last":3,"lag":3,"leased":0,"waiting":0,"redeliveries":0,"dead_lettered":0,"unwritten_dead_letters":0,"lease_ms":30000,"attempts_max":0,"pending_max":100000,"members":[]}"#;
const GROUP_ANSWER: &[Content] = &[Content::json("Group", GROUP)];

/// The response to a step with only its position in the log.
const STEP_DONE: &[Response] = &[Response {
    status: 200,
    content: &[Content::json(
        "StepResult",
        r#"{"intention":18,"effect":"valid"}"#,
    )],
}];

/// A POST operation for a step that is a JSON object.
const fn step_operation(
    summary: &'static str,
    request: &'static [Content],
    responses: &'static [Response],
) -> Action {
    Action {
        method: Method::Post,
        summary,
        right: Some(Right::Group),
        body: BodyMax::Json,
        query: &[],
        fields: ONCE_FIELDS,
        request,
        responses,
        problems: &[],
        immediate: None,
        handler: |edge, call, body| Box::pin(async move { step(edge, call, &body).await }),
    }
}

/// Header fields that make a step safe to retry.
const ONCE_FIELDS: &[&str] = &["Idempotency-Key", "Weir-Client", "Weir-Nonce"];

/// The end of a list.
const LIST_END: &[u8] = b"]}\n";

/// The table of this module.
pub(crate) const TABLE: Table = Table {
    rows: &[
        Row {
            resource: Resource::Groups,
            template: "/v1/topics/{topic}/groups",
            operations: &[Action {
                method: Method::Get,
                summary: "List the groups of a topic by name.",
                right: Some(Right::Group),
                body: BodyMax::Json,
                query: &["after", "limit", "consistency"],
                fields: &[],
                request: &[],
                responses: &[Response {
                    status: 200,
                    content: &[Content::json(
                        "GroupList",
                        r#"{"groups":[{"name":"mail","mode":"shared","cursor":0,"frontier":0,"last":3,"lag":3,"leased":0,"waiting":0,"redeliveries":0,"dead_lettered":0,"unwritten_dead_letters":0,"lease_ms":30000,"attempts_max":0,"pending_max":100000,"members":[]}]}"#,
                    )],
                }],
                problems: &[404],
                immediate: None,
                handler: |edge, call, _| Box::pin(list(edge, call)),
            }],
        },
        Row {
            resource: Resource::Group,
            template: "/v1/topics/{topic}/groups/{group}",
            operations: &[
                Action {
                    method: Method::Get,
                    summary: "Describe a group and its progress.",
                    right: Some(Right::Group),
                    body: BodyMax::Json,
                    query: &["consistency"],
                    fields: &[],
                    request: &[],
                    responses: &[Response {
                        status: 200,
                        content: GROUP_ANSWER,
                    }],
                    problems: &[404],
                    immediate: None,
                    handler: |edge, call, _| Box::pin(get(edge, call)),
                },
                Action {
                    method: Method::Put,
                    summary: "Create a group if it does not exist.",
                    right: Some(Right::Group),
                    body: BodyMax::Json,
                    query: &[],
                    fields: ONCE_FIELDS,
                    request: &[Content::json(
                        "GroupSettings",
                        r#"{"mode":"shared","lease_ms":30000}"#,
                    )],
                    responses: &[
                        Response {
                            status: 200,
                            content: GROUP_ANSWER,
                        },
                        Response {
                            status: 201,
                            content: GROUP_ANSWER,
                        },
                    ],
                    problems: &[],
                    immediate: None,
                    handler: |edge, call, body| {
                        Box::pin(async move { open(edge, call, &body).await })
                    },
                },
                Action {
                    method: Method::Delete,
                    summary: "Delete a group and its position.",
                    right: Some(Right::Group),
                    body: BodyMax::Json,
                    query: &[],
                    fields: ONCE_FIELDS,
                    request: &[],
                    responses: STEP_DONE,
                    problems: &[],
                    immediate: None,
                    handler: |edge, call, _| Box::pin(delete(edge, call)),
                },
            ],
        },
        Row {
            resource: Resource::GroupClaim,
            template: "/v1/topics/{topic}/groups/{group}/claim",
            operations: &[Action {
                method: Method::Post,
                summary: "Claim records of a keyed or shared group.",
                right: Some(Right::Group),
                body: BodyMax::Json,
                query: &["member", "max", "lease-ms", "wait", "consistency"],
                fields: &[],
                request: &[],
                responses: &[Response {
                    status: 200,
                    content: &[Content::json(
                        "Claim",
                        r#"{"claim":17,"frontier":6,"records":[{"attempts":1,"offset":4,"intention":4,"time":1700000000000,"type":"PUT","value":{"id":1},"last":true}]}"#,
                    )],
                }],
                problems: &[],
                immediate: None,
                handler: |edge, call, _| Box::pin(claim(edge, call)),
            }],
        },
        Row {
            resource: Resource::GroupAck,
            template: "/v1/topics/{topic}/groups/{group}/ack",
            operations: &[step_operation(
                "Acknowledge records of a claim.",
                &[Content::json("Ack", r#"{"claim":17,"offsets":[4,5]}"#)],
                STEP_DONE,
            )],
        },
        Row {
            resource: Resource::GroupNack,
            template: "/v1/topics/{topic}/groups/{group}/nack",
            operations: &[step_operation(
                "Release records of a claim for redelivery.",
                &[Content::json(
                    "Nack",
                    r#"{"claim":17,"offsets":[6],"delay_ms":1000,"reason":"mailbox full"}"#,
                )],
                STEP_DONE,
            )],
        },
        Row {
            resource: Resource::GroupExtend,
            template: "/v1/topics/{topic}/groups/{group}/extend",
            operations: &[step_operation(
                "Extend the leases of records of a claim.",
                &[Content::json(
                    "Extend",
                    r#"{"claim":17,"offsets":[6],"lease_ms":60000}"#,
                )],
                STEP_DONE,
            )],
        },
        Row {
            resource: Resource::GroupJoin,
            template: "/v1/topics/{topic}/groups/{group}/join",
            operations: &[step_operation(
                "Become the owner of an exclusive group.",
                &[Content::json("Join", r#"{"member":"worker-1"}"#)],
                &[Response {
                    status: 200,
                    content: &[Content::json(
                        "JoinResult",
                        r#"{"intention":22,"generation":22,"effect":"valid"}"#,
                    )],
                }],
            )],
        },
        Row {
            resource: Resource::GroupRenew,
            template: "/v1/topics/{topic}/groups/{group}/renew",
            operations: &[step_operation(
                "Renew the ownership of an exclusive group.",
                &[Content::json("Ownership", r#"{"generation":22}"#)],
                STEP_DONE,
            )],
        },
        Row {
            resource: Resource::GroupLeave,
            template: "/v1/topics/{topic}/groups/{group}/leave",
            operations: &[step_operation(
                "Release the ownership of an exclusive group.",
                &[Content::json("Ownership", r#"{"generation":22}"#)],
                STEP_DONE,
            )],
        },
        Row {
            resource: Resource::GroupMove,
            template: "/v1/topics/{topic}/groups/{group}/move",
            operations: &[step_operation(
                "Acknowledge all records up to an offset.",
                &[Content::json("Move", r#"{"generation":22,"offset":9}"#)],
                STEP_DONE,
            )],
        },
        Row {
            resource: Resource::GroupReset,
            template: "/v1/topics/{topic}/groups/{group}/reset",
            operations: &[step_operation(
                "Set the cursor of a group; leases and ownership end.",
                &[Content::json("Reset", r#"{"to":"start"}"#)],
                STEP_DONE,
            )],
        },
    ],
    schemas,
};

/// The schema of a group.
fn group_schema(number: &Value) -> Value {
    let text = json!({"type": "string"});
    let mode = json!({"enum": ["exclusive", "keyed", "shared"]});
    let mut group = Map::new();
    let names = [
        "cursor",
        "frontier",
        "last",
        "lag",
        "leased",
        "waiting",
        "redeliveries",
        "dead_lettered",
        "unwritten_dead_letters",
        "lease_ms",
        "attempts_max",
    ];
    for name in names {
        group.insert(name.to_owned(), number.clone());
    }
    for (name, schema) in [
        ("name", &text),
        ("mode", &mode),
        ("pending_max", number),
        ("oldest_ms", number),
        ("dead_letters", &text),
    ] {
        group.insert(name.to_owned(), schema.clone());
    }
    let owner = json!({"type": "object", "required": ["generation", "until_ms"], "properties": {"member": text, "member64": text, "generation": number, "until_ms": number}});
    group.insert("owner".to_owned(), owner);
    let holder = json!({"type": "object", "required": ["records"], "properties": {"member": text, "member64": text, "records": number}});
    group.insert(
        "members".to_owned(),
        json!({"type": "array", "items": holder}),
    );
    let mut required = vec!["name", "mode", "members"];
    required.extend(names);
    json!({"type": "object", "required": required, "properties": group})
}

fn schemas() -> Value {
    let text = json!({"type": "string"});
    let flag = json!({"type": "boolean"});
    let number = json!({"type": "integer", "minimum": 0, "maximum": u64::MAX});
    let positive = json!({"type": "integer", "minimum": 1, "maximum": u64::MAX});
    let lease = json!({"type": "integer", "minimum": 1, "maximum": GROUP_LEASE_MS_MAX});
    let delay = json!({"type": "integer", "minimum": 0, "maximum": GROUP_LEASE_MS_MAX});
    let offsets = json!({"type": "array", "minItems": 1, "maxItems": 10_000, "items": positive});
    let member = json!({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"});
    let mode = json!({"enum": ["exclusive", "keyed", "shared"]});
    let position = json!({"oneOf": [number, text]});
    let of = |members: Value, required: &[&str]| json!({"type": "object", "properties": members, "required": required, "additionalProperties": false});
    json!({
        "Group": group_schema(&number),
        "GroupList": {
            "type": "object",
            "required": ["groups"],
            "properties": {"groups": {"type": "array", "items": {"$ref": "#/components/schemas/Group"}}},
        },
        "GroupSettings": of(
            json!({
                "mode": mode,
                "from": position,
                "lease_ms": lease,
                "attempts_max": {"type": "integer", "minimum": 0, "maximum": GROUP_ATTEMPTS_MAX},
                "pending_max": {"type": "integer", "minimum": 1, "maximum": GROUP_PENDING_MAX},
                "dead_letters": text,
            }),
            &[],
        ),
        "Claim": {
            "type": "object",
            "description": "Claimed records; empty if no record can be claimed. due_ms: time at which that may change, in milliseconds since 1970.",
            "required": ["frontier", "records"],
            "properties": {
                "claim": number,
                "frontier": number,
                "due_ms": number,
                "records": {"type": "array", "items": {"$ref": "#/components/schemas/Delivery"}},
            },
        },
        "Delivery": {
            "description": "A record, and the number of its deliveries.",
            "allOf": [
                {"$ref": "#/components/schemas/Record"},
                {"type": "object", "required": ["attempts", "offset"], "properties": {"attempts": positive, "offset": number}},
            ],
        },
        "Ack": of(json!({"claim": positive, "offsets": offsets}), &["claim", "offsets"]),
        "Nack": of(
            json!({"claim": positive, "offsets": offsets, "delay_ms": delay, "reason": {"type": "string", "maxLength": 60}}),
            &["claim", "offsets"],
        ),
        "Extend": of(
            json!({"claim": positive, "offsets": offsets, "lease_ms": lease}),
            &["claim", "offsets", "lease_ms"],
        ),
        "Join": of(json!({"member": member, "takeover": flag}), &["member"]),
        "Ownership": of(json!({"generation": positive}), &["generation"]),
        "Move": of(json!({"generation": number, "offset": number}), &["offset"]),
        "Reset": of(json!({"to": position}), &["to"]),
        "StepResult": {
            "type": "object",
            "required": ["intention", "effect"],
            "properties": {"intention": number, "effect": {"const": "valid"}},
        },
        "JoinResult": {
            "type": "object",
            "required": ["intention", "generation", "effect"],
            "properties": {"intention": number, "generation": number, "effect": {"const": "valid"}},
        },
    })
}

/// The body of a PUT.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Setup {
    #[serde(deserialize_with = "some")]
    mode: Option<Mode>,
    #[serde(deserialize_with = "some")]
    from: Option<Position>,
    #[serde(deserialize_with = "some")]
    lease_ms: Option<Number>,
    attempts_max: Number,
    #[serde(deserialize_with = "some")]
    pending_max: Option<Number>,
    dead_letters: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Exclusive,
    Keyed,
    Shared,
}

/// The first record that a group delivers: an offset, or a text for [`ReadFrom::parse`].
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Position {
    Offset(Number),
    Text(String),
}

/// Returns the offset up to which all records count as processed if a group starts at `from`.
async fn cursor_at(edge: &Arc<Edge>, call: &Call, from: Position) -> Result<u64, Problem> {
    let from = match from {
        Position::Offset(Number(offset)) => {
            ReadFrom::After(ConsequenceOffset(offset.saturating_sub(1)))
        }
        Position::Text(text) => {
            ReadFrom::parse(&text).map_err(|error| Problem::bad(error.to_string()))?
        }
    };
    Ok(match from {
        ReadFrom::Start => 0,
        ReadFrom::After(offset) => offset.0,
        from => {
            let topic = &call.matched.topic;
            let reader = edge.shared.store.listen(topic, ConsequenceOffset::ZERO);
            seek(reader, from).await?.position().0 - 1
        }
    })
}

/// Saturates: a larger number exceeds its limit in any case.
fn saturating_u32(number: Number) -> u32 {
    u32::try_from(number.0).unwrap_or(u32::MAX)
}

impl Setup {
    fn group_setup(&self, start: u64) -> GroupSetup<'_> {
        let mode = match self.mode {
            Some(Mode::Exclusive) => GroupMode::Exclusive,
            Some(Mode::Keyed) => GroupMode::Keyed,
            Some(Mode::Shared) | None => GroupMode::Shared,
        };
        let default = GroupSetup::new(mode);
        GroupSetup {
            mode,
            start,
            lease_ms: self.lease_ms.map_or(default.lease_ms, |number| number.0),
            attempts_max: saturating_u32(self.attempts_max),
            pending_max: self.pending_max.map_or(default.pending_max, saturating_u32),
            dead_letters: &self.dead_letters,
        }
    }
}

fn no_group() -> Problem {
    Problem::new(Kind::NoGroup, ErrorCode::GroupUnknown.sentence()).code(ErrorCode::GroupUnknown)
}

/// Returns the current state of the group; may block on a disk.
async fn group_info(edge: &Arc<Edge>, call: &Call) -> Result<GroupInfo, Problem> {
    let store = Arc::clone(&edge.shared.store);
    let (topic, group) = (call.matched.topic.clone(), call.matched.name.clone());
    offload::run(move || {
        let found = store.group(&topic, &group);
        found.ok_or_else(|| match store.topic_state(&topic) {
            Some(_) => no_group(),
            None => problems::of_store(&StoreError::TopicUnknown { name: topic }),
        })
    })
    .await
}

/// Responds to GET of a group.
pub(crate) async fn get(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let info = group_info(edge, call).await?;
    Ok(body_of(Reply::new(200), &info))
}

/// Responds to GET of all groups of a topic, by name.
pub(crate) async fn list(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let after = call.query.text("after")?.unwrap_or_default().to_owned();
    let limit = call.query.number("limit", 1, GROUPS_PAGE_MAX)?;
    let limit = limit.unwrap_or(GROUPS_PAGE_MAX);
    let store = Arc::clone(&edge.shared.store);
    let topic = call.matched.topic.clone();
    let mut reservation =
        Reservation::for_principal(&edge.shared.admission.answers, call.principal.share_key());
    let page = offload::run(move || {
        let page = page_of_groups(&store, &topic, &after, limit, &mut reservation);
        let page = page.map_err(|error| problems::of_store(&error))?;
        Ok((page, reservation))
    });
    let (page, reservation) = page.await?;
    let GroupPage { body, count, next } = page;
    let mut reply = Reply::new(200).number("weir-count", count);
    reply.add("cache-control", "no-cache");
    reply.add("vary", "accept-encoding");
    if let Some(last) = next {
        let (topic, after) = (&call.matched.topic, encode(last.as_str().as_bytes()));
        let mut target = format!("/v1/topics/{topic}/groups?after={after}");
        if let Some(level) = call.query.bytes(consistency::PARAMETER) {
            target.push_str("&consistency=");
            target.push_str(&encode(level));
        }
        reply.add(
            "link",
            format_args!("<{target}&limit={limit}>; rel=\"next\""),
        );
    }
    Ok(reply.with("application/json", body).reserved(reservation))
}

/// A page of the list of groups.
struct GroupPage {
    body: Vec<u8>,
    count: u64,
    /// The group after which the next page starts; `None` for the last page.
    next: Option<GroupName>,
}

fn page_of_groups(
    store: &Store,
    topic: &str,
    after: &str,
    limit: u64,
    reservation: &mut Reservation,
) -> Result<GroupPage, StoreError> {
    let mut body = b"{\"groups\":[".to_vec();
    let (mut count, mut last, mut next) = (0, None, None);
    for name in store.group_names(topic, after)? {
        // A group may have many members with long names.
        if count == limit || body.len() >= PAGE_BYTES {
            next = last;
            break;
        }
        // The group may have been deleted after its name was read.
        if let Some(info) = store.group(topic, name.as_str()) {
            let before = body.len();
            if count > 0 {
                body.extend_from_slice(b",\n");
            }
            describe(&info, &mut body);
            // Without memory, the page ends earlier.
            if count > 0 && !reservation.try_cover(body.len() + LIST_END.len()) {
                body.truncate(before);
                next = last;
                break;
            }
            count += 1;
            last = Some(name);
        }
    }
    body.extend_from_slice(LIST_END);
    Ok(GroupPage { body, count, next })
}

fn body_of(mut reply: Reply, info: &GroupInfo) -> Reply {
    reply.add("cache-control", "no-cache");
    reply.add("vary", "accept-encoding");
    let mut body = Vec::new();
    describe(info, &mut body);
    body.push(b'\n');
    reply.with("application/json", body)
}

fn describe(info: &GroupInfo, out: &mut Vec<u8>) {
    let mut object = Object::new(out);
    object
        .text("name", &info.name)
        .text("mode", info.mode.name());
    for (name, number) in [
        ("cursor", info.cursor.0),
        ("frontier", info.frontier.0),
        ("last", info.last.0),
        ("lag", info.lag),
        ("leased", info.leased),
        ("waiting", info.waiting),
        ("redeliveries", info.redeliveries),
        ("dead_lettered", info.dead_lettered),
        ("unwritten_dead_letters", info.unwritten_dead_letters),
        ("lease_ms", info.lease_ms),
        ("attempts_max", info.attempts_max.into()),
    ] {
        object.number(name, number);
    }
    if info.mode != GroupMode::Exclusive {
        object.number("pending_max", info.pending_max.into());
    }
    if let Some(oldest) = info.oldest_ms {
        object.number("oldest_ms", oldest);
    }
    if !info.dead_letters.is_empty() {
        object.text("dead_letters", &info.dead_letters);
    }
    if let Some(owner) = &info.owner {
        let mut inner = Object::new(object.member("owner"));
        put_member(&mut inner, &owner.member);
        inner
            .number("generation", owner.generation)
            .number("until_ms", owner.until_ms);
        inner.end();
    }
    let members = object.member("members");
    members.push(b'[');
    for (at, (member, held)) in info.members.iter().take(MEMBERS_MAX).enumerate() {
        if at > 0 {
            members.push(b',');
        }
        let mut inner = Object::new(members);
        put_member(&mut inner, member);
        inner.number("records", *held);
        inner.end();
    }
    members.push(b']');
    object.end();
}

fn put_member(object: &mut Object<'_>, member: &[u8]) {
    match std::str::from_utf8(member) {
        Ok(text) => object.text("member", text),
        Err(_) => object.base64("member64", member),
    };
}

/// Responds to PUT: creates a group, or checks that the existing group has these settings.
pub(crate) async fn open(edge: &Arc<Edge>, call: &Call, body: &Bytes) -> Result<Reply, Problem> {
    let mut request: Setup = if body.trim_ascii().is_empty() {
        Setup::default()
    } else {
        json_object(body)?
    };
    let start = match request.from.take() {
        Some(from) => cursor_at(edge, call, from).await?,
        None => 0,
    };
    let setup = request.group_setup(start);
    let step = GroupStep::Open(setup);
    let must_be_new = call.head.list(FieldName::IfNoneMatch).any(|tag| tag == "*");
    match cursor(edge, call, step, body).await {
        Ok(outcome) => {
            let mut reply = reply_head(201, &outcome);
            let (topic, group) = (&call.matched.topic, &call.matched.name);
            reply.add(
                "location",
                format_args!("/v1/topics/{topic}/groups/{group}"),
            );
            // The group may have been deleted after this write, which may be a retry.
            Ok(match group_info(edge, call).await {
                Ok(info) => body_of(reply, &info),
                Err(_) => reply,
            })
        }
        Err(problem) if problem.kind == Kind::GroupExists => {
            if must_be_new {
                let kind = Kind::Conflict;
                return Err(Problem { kind, ..problem }.text("condition", "group-absent"));
            }
            // The group may have been deleted after the verdict.
            let Ok(info) = group_info(edge, call).await else {
                return Err(problem);
            };
            let is_same = info.mode == setup.mode
                && info.lease_ms == setup.lease_ms
                && info.attempts_max == setup.attempts_max
                && info.dead_letters == setup.dead_letters
                && (info.mode == GroupMode::Exclusive || info.pending_max == setup.pending_max);
            if is_same {
                Ok(body_of(Reply::new(200), &info))
            } else {
                Err(problem)
            }
        }
        Err(problem) => Err(problem),
    }
}

/// Responds to DELETE: deletes the group and its position.
pub(crate) async fn delete(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let outcome = cursor(edge, call, GroupStep::Delete, b"").await?;
    Ok(step_response(200, &outcome, None))
}

async fn cursor(
    edge: &Arc<Edge>,
    call: &Call,
    step: GroupStep<'_>,
    body: &[u8],
) -> Result<Outcome, Problem> {
    let fields = [
        FieldName::IfMatch,
        FieldName::WeirExpect,
        FieldName::IfNoneMatch,
    ];
    for known in fields {
        // The store checks no conditions of a step. A PUT checks `If-None-Match` itself.
        let is_checked = known == FieldName::IfNoneMatch && matches!(step, GroupStep::Open(_));
        if call.head.has(known) && !is_checked {
            let name = known.name();
            return Err(Problem::bad(format!("a write to a group has no {name}")));
        }
    }
    let group = &call.matched.name;
    execute_plain(edge, call, Operation::Cursor { group, step }, body).await
}

/// The head of the response to a step.
fn reply_head(status: u16, outcome: &Outcome) -> Reply {
    let mut reply = Reply::new(status);
    if let Some(commit) = outcome.commit() {
        reply = reply.number("weir-intention", commit.intention.0);
        reply.add("weir-effect", "valid");
    }
    if matches!(outcome, Outcome::Replayed(_)) {
        reply.add("weir-replayed", "?1");
    }
    reply
}

/// The response to a step; with `field`, the offset of the intention is also in the member of that
/// name.
fn step_response(status: u16, outcome: &Outcome, field: Option<&str>) -> Reply {
    let mut body = Vec::new();
    let mut object = Object::new(&mut body);
    if let Some(commit) = outcome.commit() {
        object.number("intention", commit.intention.0);
        if let Some(name) = field {
            object.number(name, commit.intention.0);
        }
    }
    object.text("effect", "valid");
    object.end();
    body.push(b'\n');
    reply_head(status, outcome).with("application/json", body)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ack {
    claim: Number,
    offsets: Vec<Number>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nack {
    claim: Number,
    offsets: Vec<Number>,
    #[serde(default)]
    delay_ms: Number,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Extend {
    claim: Number,
    offsets: Vec<Number>,
    lease_ms: Number,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Join {
    member: String,
    #[serde(default)]
    takeover: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ownership {
    generation: Number,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Move {
    #[serde(default)]
    generation: Number,
    offset: Number,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reset {
    to: Position,
}

/// Returns the offsets sorted and without duplicates.
fn sorted(offsets: Vec<Number>) -> Result<Vec<u64>, Problem> {
    if offsets.len() > GROUP_LIST_MAX {
        return Err(Problem::too_large("the number of offsets", GROUP_LIST_MAX));
    }
    let mut offsets: Vec<u64> = offsets.into_iter().map(|number| number.0).collect();
    offsets.sort_unstable();
    offsets.dedup();
    Ok(offsets)
}

/// Responds to POST of a step that is a JSON object.
pub(crate) async fn step(edge: &Arc<Edge>, call: &Call, body: &Bytes) -> Result<Reply, Problem> {
    let mut field = None;
    let outcome = match call.matched.resource {
        Resource::GroupAck => {
            let request: Ack = json_object(body)?;
            let step = GroupStep::Ack {
                claim: request.claim.0,
                offsets: Offsets::Plain(&sorted(request.offsets)?),
            };
            cursor(edge, call, step, body).await
        }
        Resource::GroupNack => {
            let request: Nack = json_object(body)?;
            let step = GroupStep::Nack {
                claim: request.claim.0,
                delay_ms: request.delay_ms.0,
                reason: &request.reason,
                offsets: Offsets::Plain(&sorted(request.offsets)?),
            };
            cursor(edge, call, step, body).await
        }
        Resource::GroupExtend => {
            let request: Extend = json_object(body)?;
            let step = GroupStep::Extend {
                claim: request.claim.0,
                lease_ms: request.lease_ms.0,
                offsets: Offsets::Plain(&sorted(request.offsets)?),
            };
            cursor(edge, call, step, body).await
        }
        Resource::GroupJoin => {
            let Join { member, takeover } = json_object(body)?;
            let member = member.as_bytes();
            field = Some("generation");
            cursor(edge, call, GroupStep::Join { member, takeover }, body).await
        }
        Resource::GroupRenew => {
            let generation = json_object::<Ownership>(body)?.generation.0;
            cursor(edge, call, GroupStep::Renew { generation }, body).await
        }
        Resource::GroupLeave => {
            let generation = json_object::<Ownership>(body)?.generation.0;
            cursor(edge, call, GroupStep::Leave { generation }, body).await
        }
        Resource::GroupMove => {
            let request: Move = json_object(body)?;
            let (generation, offset) = (request.generation.0, request.offset.0);
            cursor(edge, call, GroupStep::Move { generation, offset }, body).await
        }
        _ => {
            let offset = cursor_at(edge, call, json_object::<Reset>(body)?.to).await?;
            cursor(edge, call, GroupStep::Reset { offset }, body).await
        }
    };
    Ok(step_response(200, &outcome?, field))
}

/// The result of a claim.
struct ClaimResult {
    reason: Option<ErrorCode>,
    frontier: u64,
    due_ms: Option<u64>,
    claim: u64,
    count: u64,
    /// The array of records.
    records: Vec<u8>,
}

fn claim_result(claimed: &Claimed) -> Result<ClaimResult, StoreError> {
    let mut result = ClaimResult {
        reason: reason(claimed),
        frontier: claimed.frontier.0,
        due_ms: claimed.due_ms,
        claim: (claimed.commit.as_ref()).map_or(0, |commit| commit.intention.0),
        count: 0,
        records: b"[".to_vec(),
    };
    for delivery in &claimed.deliveries {
        let Some(record) = delivery.page.iter().next().transpose()? else {
            continue;
        };
        let out = &mut result.records;
        out.extend_from_slice(if result.count > 0 { b",\n" } else { b"" });
        let mut object = Object::new(out);
        object.number("attempts", delivery.attempts.into());
        records::members(&record, Fields::default(), false, false, &mut object);
        object.end();
        result.count += 1;
    }
    result.records.push(b']');
    Ok(result)
}

/// Responds to POST of a claim: returns records, and waits for one if the request asks for it.
pub(crate) async fn claim(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    let query = &call.query;
    let member = query.bytes("member").unwrap_or_default();
    if !(1..=GROUP_MEMBER_BYTES_MAX).contains(&member.len()) {
        return Err(Problem::bad("member must be a name of 1 to 64 bytes"));
    }
    let max = query.number("max", 1, CLAIM_RECORDS_MAX)?;
    let wait = query.number("wait", 0, CLAIM_WAIT_MS_MAX / 1000)?;
    let lease_ms = query.number("lease-ms", 1, weir_core::limits::GROUP_LEASE_MS_MAX)?;
    let claim = Arc::new(Claim {
        shared: Arc::clone(&edge.shared),
        principal: (*call.principal).clone(),
        topic: call.matched.topic.clone(),
        group: call.matched.name.clone(),
        member: member.to_vec(),
        max: usize::try_from(max.unwrap_or(CLAIM_RECORDS)).unwrap_or(1),
        lease_ms: lease_ms.unwrap_or(0),
        deadline: Instant::now() + Duration::from_secs(wait.unwrap_or(0)),
    });
    let mut phase = edge.shared.phase.subscribe();
    let mut seen = None;
    loop {
        let attempt = claim
            .try_claim(claim_result)
            .await
            .map_err(|error| match error {
                ClaimFailure::Denied(denied) => denial(denied, &claim.topic),
                ClaimFailure::Busy(exhausted) => busy(exhausted),
                ClaimFailure::Store(error) => problems::of_store(&error),
            });
        let (result, reservation) = attempt?;
        if let Some(code) = result.reason {
            let mut problem = Problem::new(problem::kind_of(code), code.sentence()).code(code);
            problem.intention = Some(result.claim);
            return Err(problem);
        }
        let is_over = Instant::now() >= claim.deadline || *phase.borrow() >= Phase::Draining;
        if result.count > 0 || is_over {
            return Ok(claim_reply(&result).reserved(reservation));
        }
        drop(reservation);
        tokio::select! {
            () = claim.pause(&mut seen, result.frontier, result.due_ms) => {}
            _ = phase.wait_for(|phase| *phase >= Phase::Draining) => {}
        }
    }
}

fn claim_reply(result: &ClaimResult) -> Reply {
    let mut reply = Reply::new(200).number("weir-count", result.count);
    reply.add("cache-control", "no-store");
    reply.add("vary", "accept-encoding");
    let mut body = Vec::with_capacity(result.records.len() + 128);
    let mut object = Object::new(&mut body);
    if result.count > 0 {
        object.number("claim", result.claim);
        reply = reply.number("weir-intention", result.claim);
    }
    object.number("frontier", result.frontier);
    if let Some(due) = result.due_ms {
        object.number("due_ms", due);
    }
    object.raw("records", &result.records);
    object.end();
    body.push(b'\n');
    reply.with("application/json", body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_sorted() {
        assert_eq!(
            sorted([3, 1, 3, 2].map(Number).into()).ok(),
            Some(vec![1, 2, 3])
        );
        assert!(sorted(vec![Number(1); GROUP_LIST_MAX + 1]).is_err());
    }

    #[test]
    fn a_setup_has_defaults() {
        let setup: Result<Setup, _> = serde_json::from_str(r#"{"from":"end","mode":"keyed"}"#);
        let setup = setup.unwrap_or_default();
        assert!(matches!(&setup.from, Some(Position::Text(text)) if text == "end"));
        let group = setup.group_setup(7);
        assert_eq!((group.mode, group.start), (GroupMode::Keyed, 7));
        let setup = Setup::default();
        assert_eq!(setup.group_setup(0), GroupSetup::new(GroupMode::Shared));
    }
}
