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
    /// A module of programs, by its hash.
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

    /// The result for a path that fits no template.
    pub(crate) fn unknown() -> Self {
        Self::of(Resource::Unknown, "unknown")
    }
}

/// Maximum number of parameters of a path.
const PARAMETERS_MAX: usize = 2;
/// The path segment that precedes a key in base64url.
const CODED: &str = "~b64";

/// Matches a path with a template; `None` if it does not fit. The path is split before it is
/// decoded, so an escaped slash is part of a key.
pub(crate) fn fit(
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
    let mut given = [("", "", false); PARAMETERS_MAX];
    let mut places = given.iter_mut();
    for wanted in template.split('/') {
        let Some(part) = parts.next() else {
            return Ok(None);
        };
        let name = wanted
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'));
        let Some(name) = name else {
            if part == wanted {
                continue;
            }
            return Ok(None);
        };
        let coded = name == "key" && part == CODED && parts.peek().is_some();
        let part = if coded {
            parts.next().unwrap_or(part)
        } else {
            part
        };
        if let Some(place) = places.next() {
            *place = (name, part, coded);
        }
    }
    if parts.next().is_some() {
        return Ok(None);
    }
    for (name, part, coded) in given {
        match name {
            "topic" => found.topic = topic(part)?,
            "group" => found.name = group(part)?,
            "key" => found.key = key(part, coded)?,
            "offset" => {
                let number = offset_of(part).filter(|offset| *offset != 0);
                found.offset =
                    number.ok_or_else(|| Problem::bad("an offset is a number from 1"))?;
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
    let name = name.ok_or_else(|| bad_name("the topic name has a wrong escape"))?;
    // Topics of the store itself can be read; the store refuses to write to them.
    TopicName::any(&name).map_err(|error| bad_name(error.to_string()))?;
    Ok(name)
}

fn group(part: &str) -> Result<String, Problem> {
    let name = decode(part, false).and_then(|name| String::from_utf8(name).ok());
    let name = name.ok_or_else(|| bad_name("the group's name has a wrong escape"))?;
    if GroupName::new(&name).is_none() {
        return Err(bad_name(
            "a group's name is 1 to 64 letters, digits, dots, hyphens and underscores, no dot first",
        ));
    }
    Ok(name)
}

fn key(part: &str, coded: bool) -> Result<Vec<u8>, Problem> {
    let key = if coded {
        base64::decode(part).ok_or_else(|| Problem::bad("the key is not base64url"))?
    } else if part.starts_with('~') {
        return Err(Problem::bad(
            "a key that begins with ~ is given as ~b64/ and its base64url",
        ));
    } else {
        decode(part, false).ok_or_else(|| Problem::bad("the key has a wrong escape"))?
    };
    if key.is_empty() {
        return Err(Problem::bad("a key has at least one byte"));
    }
    Ok(key)
}
