//! The table of resources: the router, `Allow`, the query parameters that are
//! known, the label of metrics, and the `OpenAPI` document are all held to it.

use weir_core::{ErrorCode, GroupName, TopicName};

use super::ds;
use crate::http::base64;
use crate::http::head::Method;
use crate::http::problem::{Kind, Problem};
use crate::http::query::decode;

/// One resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Resource {
    Root,
    Topics,
    Topic,
    Events,
    Event,
    Transactions,
    Keys,
    Key,
    Program,
    /// The module of programs, by its hash.
    Module,
    Groups,
    Group,
    GroupClaim,
    GroupAck,
    GroupNack,
    GroupExtend,
    GroupJoin,
    GroupRenew,
    GroupLeave,
    GroupMove,
    GroupReset,
    Healthz,
    Readyz,
    Metrics,
    OpenApi,
    Problem,
    /// A topic under the protocol of Durable Streams.
    Stream,
    /// Anything else.
    Unknown,
}

/// A resource, its path and what can be done with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) resource: Resource,
    pub(crate) template: &'static str,
    /// Methods with the query parameters that each takes.
    pub(crate) methods: &'static [(Method, &'static [&'static str])],
}

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
const READ_STREAM: &[&str] = &["offset", "live", "cursor"];
const READ_KEY: &[&str] = &["consistency", "at-least", "wait"];
const READ_KEYS: &[&str] = &[
    "prefix",
    "after",
    "limit",
    "values",
    "consistency",
    "at-least",
    "wait",
];

/// All resources. `Unknown` has no row.
pub(crate) const ROWS: &[Row] = &[
    Row {
        resource: Resource::Root,
        template: "/v1",
        methods: &[(Method::Get, &[]), (Method::Head, &[])],
    },
    Row {
        resource: Resource::Topics,
        template: "/v1/topics",
        methods: &[
            (Method::Get, &["prefix", "after", "limit"]),
            (Method::Head, &["prefix", "after", "limit"]),
        ],
    },
    Row {
        resource: Resource::Topic,
        template: "/v1/topics/{topic}",
        methods: &[
            (Method::Get, &[]),
            (Method::Head, &[]),
            (Method::Put, &[]),
            (Method::Patch, &[]),
            (Method::Delete, &[]),
        ],
    },
    Row {
        resource: Resource::Events,
        template: "/v1/topics/{topic}/events",
        methods: &[
            (Method::Get, READ_EVENTS),
            (Method::Head, READ_EVENTS),
            (Method::Post, &["key", "mode", "atomic"]),
        ],
    },
    Row {
        resource: Resource::Event,
        template: "/v1/topics/{topic}/events/{offset}",
        methods: &[(Method::Get, &["as"]), (Method::Head, &["as"])],
    },
    Row {
        resource: Resource::Transactions,
        template: "/v1/topics/{topic}/transactions",
        methods: &[(Method::Post, &[])],
    },
    Row {
        resource: Resource::Keys,
        template: "/v1/topics/{topic}/keys",
        methods: &[(Method::Get, READ_KEYS), (Method::Head, READ_KEYS)],
    },
    Row {
        resource: Resource::Key,
        template: "/v1/topics/{topic}/keys/{key}",
        methods: &[
            (Method::Get, READ_KEY),
            (Method::Head, READ_KEY),
            (Method::Put, &[]),
            (Method::Delete, &[]),
        ],
    },
    Row {
        resource: Resource::Program,
        template: "/v1/topics/{topic}/program",
        methods: &[
            (Method::Get, &[]),
            (Method::Head, &[]),
            (Method::Put, &["state"]),
        ],
    },
    Row {
        resource: Resource::Module,
        template: "/v1/programs/{sha256}",
        methods: &[(Method::Get, &[]), (Method::Head, &[])],
    },
    Row {
        resource: Resource::Groups,
        template: "/v1/topics/{topic}/groups",
        methods: &[
            (Method::Get, &["after", "limit"]),
            (Method::Head, &["after", "limit"]),
        ],
    },
    Row {
        resource: Resource::Group,
        template: "/v1/topics/{topic}/groups/{group}",
        methods: &[
            (Method::Get, &[]),
            (Method::Head, &[]),
            (Method::Put, &[]),
            (Method::Delete, &[]),
        ],
    },
    Row {
        resource: Resource::GroupClaim,
        template: "/v1/topics/{topic}/groups/{group}/claim",
        methods: &[(Method::Post, &["member", "max", "lease-ms", "wait"])],
    },
    Row {
        resource: Resource::GroupAck,
        template: "/v1/topics/{topic}/groups/{group}/ack",
        methods: &[(Method::Post, &[])],
    },
    Row {
        resource: Resource::GroupNack,
        template: "/v1/topics/{topic}/groups/{group}/nack",
        methods: &[(Method::Post, &[])],
    },
    Row {
        resource: Resource::GroupExtend,
        template: "/v1/topics/{topic}/groups/{group}/extend",
        methods: &[(Method::Post, &[])],
    },
    Row {
        resource: Resource::GroupJoin,
        template: "/v1/topics/{topic}/groups/{group}/join",
        methods: &[(Method::Post, &[])],
    },
    Row {
        resource: Resource::GroupRenew,
        template: "/v1/topics/{topic}/groups/{group}/renew",
        methods: &[(Method::Post, &[])],
    },
    Row {
        resource: Resource::GroupLeave,
        template: "/v1/topics/{topic}/groups/{group}/leave",
        methods: &[(Method::Post, &[])],
    },
    Row {
        resource: Resource::GroupMove,
        template: "/v1/topics/{topic}/groups/{group}/move",
        methods: &[(Method::Post, &[])],
    },
    Row {
        resource: Resource::GroupReset,
        template: "/v1/topics/{topic}/groups/{group}/reset",
        methods: &[(Method::Post, &[])],
    },
    Row {
        resource: Resource::Healthz,
        template: "/healthz",
        methods: &[(Method::Get, &[]), (Method::Head, &[])],
    },
    Row {
        resource: Resource::Readyz,
        template: "/readyz",
        methods: &[(Method::Get, &["verbose"]), (Method::Head, &["verbose"])],
    },
    Row {
        resource: Resource::Metrics,
        template: "/metrics",
        methods: &[(Method::Get, &[]), (Method::Head, &[])],
    },
    Row {
        resource: Resource::OpenApi,
        template: "/openapi.json",
        methods: &[(Method::Get, &[]), (Method::Head, &[])],
    },
    Row {
        resource: Resource::Problem,
        template: "/problems/{name}",
        methods: &[(Method::Get, &[]), (Method::Head, &[])],
    },
    Row {
        resource: Resource::Stream,
        template: "/ds/{topic}",
        methods: &[
            (Method::Get, READ_STREAM),
            (Method::Head, &[]),
            (Method::Put, &[]),
            (Method::Post, &[]),
            (Method::Delete, &[]),
        ],
    },
];

/// Resources, the unknown one included; for tables of counts.
pub(crate) const RESOURCES: usize = Resource::Unknown as usize + 1;

/// Label of the resource with this number.
pub(crate) fn label(resource: usize) -> &'static str {
    ROWS.get(resource).map_or("unknown", |row| row.template)
}

impl Resource {
    pub(crate) fn row(self) -> Option<&'static Row> {
        ROWS.get(self as usize)
    }

    /// Whether it is a group, or what is done with one.
    pub(crate) fn is_of_group(self) -> bool {
        (Self::Groups as u8..=Self::GroupReset as u8).contains(&(self as u8))
    }

    /// Label of metrics and logs.
    pub(crate) fn label(self) -> &'static str {
        self.row().map_or("unknown", |row| row.template)
    }
}

impl Row {
    /// The value of `Allow`.
    pub(crate) fn allow(&self) -> String {
        let mut names: Vec<&str> = self
            .methods
            .iter()
            .map(|(method, _)| method.name())
            .collect();
        names.push("OPTIONS");
        names.join(", ")
    }

    /// Parameters that a method takes; `None`: it has no such method.
    pub(crate) fn params(&self, method: Method) -> Option<&'static [&'static str]> {
        let found = self.methods.iter().find(|(one, _)| *one == method);
        found.map(|(_, params)| *params)
    }
}

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Matched {
    pub(crate) resource: Resource,
    pub(crate) topic: String,
    pub(crate) key: Vec<u8>,
    pub(crate) offset: u64,
    /// Of a group, of a problem, or the hash of a module.
    pub(crate) name: String,
}

impl Matched {
    fn of(resource: Resource) -> Self {
        Self {
            resource,
            topic: String::new(),
            key: Vec::new(),
            offset: 0,
            name: String::new(),
        }
    }
}

/// Finds the resource of a path. The path is split before it is decoded, so an
/// escaped slash belongs to a key.
pub(crate) fn find(path: &str) -> Result<Matched, Problem> {
    let unknown = || Problem::new(Kind::NotFound, "no resource has this path");
    if let Some(name) = path.strip_prefix("/ds/") {
        let mut found = Matched::of(Resource::Stream);
        found.topic = ds::topic_of(name)?;
        return Ok(found);
    }
    let mut parts = [""; 6];
    let mut count = 0;
    for part in path.strip_prefix('/').ok_or_else(unknown)?.split('/') {
        *parts.get_mut(count).ok_or_else(unknown)? = part;
        count += 1;
    }
    let parts = parts.get(..count).unwrap_or_default();
    match parts {
        ["v1", "topics", topic, "events"] => on_topic(Resource::Events, topic),
        ["v1", "topics", topic, "events", offset] => {
            let mut found = on_topic(Resource::Event, topic)?;
            let number = offset_of(offset).filter(|offset| *offset != 0);
            found.offset = number.ok_or_else(|| Problem::bad("an offset is a number from 1"))?;
            Ok(found)
        }
        ["v1", "topics", topic, "keys", "~b64", key] => {
            let mut found = on_topic(Resource::Key, topic)?;
            found.key =
                base64::decode(key).ok_or_else(|| Problem::bad("the key is no base64url"))?;
            some_key(found)
        }
        ["v1", "topics", topic, "keys", key] => {
            let mut found = on_topic(Resource::Key, topic)?;
            if key.starts_with('~') {
                return Err(Problem::bad(
                    "a key that begins with ~ is given as ~b64/ and its base64url",
                ));
            }
            found.key =
                decode(key, false).ok_or_else(|| Problem::bad("the key has a wrong escape"))?;
            some_key(found)
        }
        ["v1", "topics", topic, "keys"] => on_topic(Resource::Keys, topic),
        ["v1", "topics", topic, "transactions"] => on_topic(Resource::Transactions, topic),
        ["v1", "topics", topic, "program"] => on_topic(Resource::Program, topic),
        ["v1", "topics", topic, "groups"] => on_topic(Resource::Groups, topic),
        ["v1", "topics", topic, "groups", group] => on_group(Resource::Group, topic, group),
        ["v1", "topics", topic, "groups", group, step] => {
            let found = STEPS.iter().find(|(name, _)| name == step);
            on_group(found.ok_or_else(unknown)?.1, topic, group)
        }
        ["v1", "topics", topic] => on_topic(Resource::Topic, topic),
        ["v1", "programs", hash] => {
            let mut found = Matched::of(Resource::Module);
            (*hash).clone_into(&mut found.name);
            Ok(found)
        }
        ["v1", "topics"] => Ok(Matched::of(Resource::Topics)),
        ["v1"] => Ok(Matched::of(Resource::Root)),
        ["healthz"] => Ok(Matched::of(Resource::Healthz)),
        ["readyz"] => Ok(Matched::of(Resource::Readyz)),
        ["metrics"] => Ok(Matched::of(Resource::Metrics)),
        ["openapi.json"] => Ok(Matched::of(Resource::OpenApi)),
        ["problems", name] => {
            let mut found = Matched::of(Resource::Problem);
            (*name).clone_into(&mut found.name);
            Ok(found)
        }
        _ => Err(unknown()),
    }
}

fn on_topic(resource: Resource, topic: &str) -> Result<Matched, Problem> {
    let wrong = |why: String| Problem::new(Kind::BadRequest, why).code(ErrorCode::BadName);
    let name = decode(topic, false).and_then(|name| String::from_utf8(name).ok());
    let name = name.ok_or_else(|| wrong("the topic name has a wrong escape".to_owned()))?;
    // Topics of the store itself can be read; the store refuses to write to them.
    TopicName::any(&name).map_err(|error| wrong(error.to_string()))?;
    let mut found = Matched::of(resource);
    found.topic = name;
    Ok(found)
}

/// Last parts of paths: what can be done with a group.
const STEPS: &[(&str, Resource)] = &[
    ("claim", Resource::GroupClaim),
    ("ack", Resource::GroupAck),
    ("nack", Resource::GroupNack),
    ("extend", Resource::GroupExtend),
    ("join", Resource::GroupJoin),
    ("renew", Resource::GroupRenew),
    ("leave", Resource::GroupLeave),
    ("move", Resource::GroupMove),
    ("reset", Resource::GroupReset),
];

fn on_group(resource: Resource, topic: &str, group: &str) -> Result<Matched, Problem> {
    let mut found = on_topic(resource, topic)?;
    let wrong = |why: String| Problem::new(Kind::BadRequest, why).code(ErrorCode::BadName);
    let name = decode(group, false).and_then(|name| String::from_utf8(name).ok());
    let name = name.ok_or_else(|| wrong("the group's name has a wrong escape".to_owned()))?;
    if GroupName::new(&name).is_none() {
        return Err(wrong(
            "a group's name is 1 to 64 letters, digits, dots, hyphens and underscores, no dot first"
                .to_owned(),
        ));
    }
    found.name = name;
    Ok(found)
}

fn some_key(found: Matched) -> Result<Matched, Problem> {
    if found.key.is_empty() {
        return Err(Problem::bad("a key has at least one byte"));
    }
    Ok(found)
}

/// A number as it is written: digits without sign and leading zeros.
pub(crate) fn offset_of(text: &str) -> Option<u64> {
    let plain =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn rows_stand_where_their_number_says() {
        for (at, row) in ROWS.iter().enumerate() {
            assert_eq!(row.resource as usize, at, "{}", row.template);
            let path = row
                .template
                .replace("{topic}", "t")
                .replace("{key}", "k")
                .replace("{offset}", "7")
                .replace("{group}", "g")
                .replace("{name}", "n");
            assert_eq!(find(&path).unwrap().resource, row.resource, "{path}");
        }
        assert_eq!(ROWS.len(), RESOURCES - 1);
    }

    #[test]
    fn keys_are_decoded_behind_the_split() {
        let key = |path: &str| find(&format!("/v1/topics/t/keys/{path}")).map(|found| found.key);
        assert_eq!(key("a%2Fb").unwrap(), b"a/b");
        assert_eq!(key("%ff+").unwrap(), b"\xff+");
        assert_eq!(key("~b64/Li4").unwrap(), b"..");
        for wrong in ["a/b", "%2", "%zz", "~a", "", "~b64/", "~b64/%"] {
            assert!(key(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_and_numbers_are_strict() {
        for wrong in [
            "/v1/topics/a%20b",
            "/v1/topics/.x%20",
            "/v1/topics/",
            "/v1/",
            "/v2",
            "//v1",
            "/v1/topics/t/events/07",
            "/v1/topics/t/events/0",
            "/v1/topics/t/events/-1",
            "/v1/topics/t/events/99999999999999999999",
            "/v1/topics/t/events/7/",
            "*",
        ] {
            assert!(find(wrong).is_err(), "{wrong}");
        }
        assert_eq!(find("/v1/topics/a%2eb").unwrap().topic, "a.b");
    }
}
