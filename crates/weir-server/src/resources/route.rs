//! Routing: the resource of a path, and the values of its parameters.

use weir_core::{ErrorCode, GroupName, TopicName};

use super::streams::terms::topic_of;
use crate::http::base64;
use crate::http::problem::{Kind, Problem};
use crate::http::query::{decode, offset_of};

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
    /// The module of a program, by its hash.
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
    Status,
    Compact,
    Metrics,
    OpenApi,
    Problem,
    /// A topic under the protocol of Durable Streams.
    Stream,
    /// A path without a resource.
    Unknown,
}

/// Number of resources, including the unknown one; the length of tables of counters.
pub(crate) const RESOURCES: usize = Resource::Unknown as usize + 1;

/// The resource of a path, and its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Matched {
    pub(crate) resource: Resource,
    /// The path with the names of its parameters, as a label of metrics and logs.
    pub(crate) template: &'static str,
    pub(crate) topic: String,
    pub(crate) key: Vec<u8>,
    pub(crate) offset: u64,
    /// Name of a group or a problem, or the hash of a module.
    pub(crate) name: String,
}

impl Matched {
    pub(crate) fn of(resource: Resource, template: &'static str) -> Self {
        Self {
            resource,
            template,
            topic: String::new(),
            key: Vec::new(),
            offset: 0,
            name: String::new(),
        }
    }

    /// The result for a path that matches no template.
    pub(crate) fn unknown() -> Self {
        Self::of(Resource::Unknown, "unknown")
    }
}

/// Maximum number of parameters of a path.
const PARAMETERS_MAX: usize = 2;
/// The path segment that precedes a key in base64url.
const BASE64_PREFIX: &str = "~b64";

/// Matches a path with a template; `None` if it does not match. The path is split before it is
/// decoded, so an escaped slash is part of a key.
pub(crate) fn match_path(
    resource: Resource,
    template: &'static str,
    path: &str,
) -> Result<Option<Matched>, Problem> {
    let mut found = Matched::of(resource, template);
    if resource == Resource::Stream {
        // The name of a stream is the rest of the path.
        let Some(name) = path.strip_prefix("/ds/") else {
            return Ok(None);
        };
        found.topic = topic_of(name)?;
        return Ok(Some(found));
    }
    let mut parts = path.split('/').peekable();
    let mut parameters = [("", "", false); PARAMETERS_MAX];
    let mut slots = parameters.iter_mut();
    for expected in template.split('/') {
        let Some(part) = parts.next() else {
            return Ok(None);
        };
        let name = expected
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'));
        let Some(name) = name else {
            if part == expected {
                continue;
            }
            return Ok(None);
        };
        let is_base64 = name == "key" && part == BASE64_PREFIX && parts.peek().is_some();
        let part = if is_base64 {
            parts.next().unwrap_or(part)
        } else {
            part
        };
        if let Some(slot) = slots.next() {
            *slot = (name, part, is_base64);
        }
    }
    if parts.next().is_some() {
        return Ok(None);
    }
    for (name, part, is_base64) in parameters {
        match name {
            "topic" => found.topic = topic(part)?,
            "group" => found.name = group(part)?,
            "key" => found.key = key(part, is_base64)?,
            "offset" => {
                let number = offset_of(part).filter(|offset| *offset != 0);
                found.offset =
                    number.ok_or_else(|| Problem::bad("an offset must be a number from 1"))?;
            }
            "" => {}
            _ => part.clone_into(&mut found.name),
        }
    }
    Ok(Some(found))
}

fn bad_name(why: impl Into<String>) -> Problem {
    Problem::new(Kind::BadRequest, why.into()).code(ErrorCode::BadName)
}

fn topic(part: &str) -> Result<String, Problem> {
    let name = decode(part, false).and_then(|name| String::from_utf8(name).ok());
    let name = name.ok_or_else(|| bad_name("the topic name has an invalid percent escape"))?;
    // Topics of the store itself can be read; the store refuses to write to them.
    TopicName::any(&name).map_err(|error| bad_name(error.to_string()))?;
    Ok(name)
}

fn group(part: &str) -> Result<String, Problem> {
    let name = decode(part, false).and_then(|name| String::from_utf8(name).ok());
    let name =
        name.ok_or_else(|| bad_name("the name of the group has an invalid percent escape"))?;
    if GroupName::new(&name).is_none() {
        return Err(bad_name(
            "the name of a group must be 1 to 64 letters, digits, dots, hyphens and underscores, without a leading dot",
        ));
    }
    Ok(name)
}

fn key(part: &str, is_base64: bool) -> Result<Vec<u8>, Problem> {
    let key = if is_base64 {
        base64::decode(part).ok_or_else(|| Problem::bad("the key is not base64url"))?
    } else if part.starts_with('~') {
        return Err(Problem::bad(
            "write a key that begins with ~ as ~b64/ followed by its base64url",
        ));
    } else {
        decode(part, false).ok_or_else(|| Problem::bad("the key has an invalid percent escape"))?
    };
    if key.is_empty() {
        return Err(Problem::bad("a key must have at least one byte"));
    }
    Ok(key)
}
