//! The description of a stream: parsed from a request, and as stored.

use serde::{Deserialize, Serialize};

use super::position;
use super::terms::{FORK_SUB_OFFSET_MAX, TTL_SECONDS_MAX, TYPE_BYTES_MAX, essence, topic_of};
use crate::http::head::{FieldName, Head};
use crate::http::problem::Problem;
use crate::http::query::offset_of;
use crate::security::from_rfc3339;

/// The content type of bytes without a declared type.
pub(crate) const TYPE_DEFAULT: &str = "application/octet-stream";

/// When a stream expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Expiry {
    /// Never.
    #[default]
    Never,
    /// After it was idle, neither read nor written, for this many seconds.
    Idle(u64),
    /// At this time, in milliseconds since 1970.
    At(u64),
}

/// The description of a stream: the record under the key `.ds/config`, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) content_type: String,
    #[serde(default)]
    pub(crate) expiry: Expiry,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fork: Option<Fork>,
}

/// The origin of a fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fork {
    /// Topic of the source.
    pub(crate) from: String,
    /// Incarnation of the source.
    pub(crate) incarnation: u64,
    /// Requested position in the source.
    pub(crate) at: u64,
    /// Requested bytes or messages after `at`.
    pub(crate) sub: u64,
    /// Position from which on the fork has its own records.
    pub(crate) base: u64,
    /// The parts that precede its own records, in order.
    pub(crate) parts: Vec<Part>,
}

/// The records of one topic that are a part of a stream: those at positions above `base`, up to
/// `end`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) topic: String,
    pub(crate) incarnation: u64,
    /// Offset of the record at position `base`.
    pub(crate) first: u64,
    pub(crate) base: u64,
    pub(crate) end: u64,
}

/// The parameters of a PUT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateRequest {
    pub(crate) content_type: Option<String>,
    pub(crate) expiry: Option<Expiry>,
    pub(crate) closed: bool,
    pub(crate) fork: Option<ForkRequest>,
}

/// The fork that a PUT requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForkRequest {
    pub(crate) from: String,
    /// Position in the source; `None`: its end.
    pub(crate) at: Option<u64>,
    pub(crate) sub: u64,
}

/// Returns the value of a field that may occur only once.
pub(crate) fn single(head: &Head, known: FieldName) -> Result<Option<&str>, Problem> {
    if head.is_repeated(known) {
        return Err(Problem::bad(format!("{} occurs twice", known.name())));
    }
    if head.has(known) && head.text(known).is_none() {
        return Err(Problem::bad(format!("{} is not UTF-8", known.name())));
    }
    Ok(head.text(known))
}

/// Returns the declared content type of a body.
pub(crate) fn content_type(head: &Head) -> Result<Option<String>, Problem> {
    let text = single(head, FieldName::ContentType)?.filter(|text| !text.is_empty());
    let Some(text) = text else { return Ok(None) };
    if text.len() > TYPE_BYTES_MAX {
        return Err(Problem::bad(format!(
            "the content type is longer than {TYPE_BYTES_MAX} bytes"
        )));
    }
    let essence = essence(text);
    let token = |word: &str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+%*'`|~".contains(&byte);
        !word.is_empty() && word.bytes().all(letter)
    };
    let parts = essence.split_once('/');
    let plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if !plain || !parts.is_some_and(|(family, rest)| token(family) && token(rest)) {
        return Err(Problem::bad("the content type is not a media type"));
    }
    Ok(Some(text.to_owned()))
}

/// Whether the request closes the stream.
pub(crate) fn closes(head: &Head) -> Result<bool, Problem> {
    match single(head, FieldName::StreamClosed)? {
        None => Ok(false),
        Some(word) if word.eq_ignore_ascii_case("true") => Ok(true),
        Some(word) if word.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => Err(Problem::bad("Stream-Closed must be true or false")),
    }
}

fn expiry(head: &Head) -> Result<Option<Expiry>, Problem> {
    let idle = single(head, FieldName::StreamTtl)?;
    let at = single(head, FieldName::StreamExpiresAt)?;
    match (idle, at) {
        (None, None) => Ok(None),
        (Some(text), None) => {
            let seconds = offset_of(text).filter(|seconds| *seconds <= TTL_SECONDS_MAX);
            let seconds = seconds.ok_or_else(|| {
                Problem::bad(format!(
                    "Stream-TTL must be a number of seconds up to {TTL_SECONDS_MAX}"
                ))
            })?;
            Ok(Some(Expiry::Idle(seconds)))
        }
        (None, Some(text)) => {
            let ms = from_rfc3339(text);
            let ms = ms.ok_or_else(|| {
                Problem::bad("Stream-Expires-At must be an RFC 3339 time in or after 1970")
            })?;
            Ok(Some(Expiry::At(ms)))
        }
        (Some(_), Some(_)) => Err(Problem::bad(
            "use either Stream-TTL or Stream-Expires-At, not both",
        )),
    }
}

fn fork(head: &Head) -> Result<Option<ForkRequest>, Problem> {
    let at = single(head, FieldName::StreamForkOffset)?;
    let sub = single(head, FieldName::StreamForkSubOffset)?;
    let Some(from) = single(head, FieldName::StreamForkedFrom)? else {
        if at.is_some() || sub.is_some() {
            return Err(Problem::bad(
                "Stream-Fork-Offset and Stream-Fork-Sub-Offset need Stream-Forked-From",
            ));
        }
        return Ok(None);
    };
    let path = match from.split_once("://") {
        Some((_, rest)) => rest.find('/').and_then(|at| rest.get(at..)),
        None => Some(from),
    };
    let path = path.and_then(|path| path.strip_prefix("/ds/").or(path.strip_prefix('/')));
    let path =
        path.ok_or_else(|| Problem::bad("Stream-Forked-From must be the path of a stream"))?;
    let at = match at {
        None => None,
        Some(text) => Some(
            position::parse(text)
                .ok_or_else(|| Problem::bad("Stream-Fork-Offset is not an offset of a stream"))?,
        ),
    };
    let number = sub.map_or(Some(0), offset_of);
    let sub = number.filter(|sub| *sub <= FORK_SUB_OFFSET_MAX);
    let sub = sub.ok_or_else(|| {
        Problem::bad(format!(
            "Stream-Fork-Sub-Offset must be a number up to {FORK_SUB_OFFSET_MAX}"
        ))
    })?;
    if sub > 0 && at.is_none() {
        return Err(Problem::bad(
            "Stream-Fork-Sub-Offset needs a Stream-Fork-Offset",
        ));
    }
    Ok(Some(ForkRequest {
        from: topic_of(path)?,
        at,
        sub,
    }))
}

impl CreateRequest {
    pub(crate) fn read(head: &Head) -> Result<Self, Problem> {
        Ok(Self {
            content_type: content_type(head)?,
            expiry: expiry(head)?,
            closed: closes(head)?,
            fork: fork(head)?,
        })
    }

    /// Whether an existing stream matches this request. For a fork, an omitted parameter matches
    /// any value; for any other stream, it means the default.
    pub(crate) fn matches(&self, config: &Config, closed: bool) -> bool {
        let content_type = self.content_type.as_deref();
        let is_fork = self.fork.is_some();
        let same_type = match content_type {
            None if is_fork => true,
            content_type => {
                essence(content_type.unwrap_or(TYPE_DEFAULT)) == essence(&config.content_type)
            }
        };
        let same_expiry = match self.expiry {
            None if is_fork => true,
            expiry => expiry.unwrap_or_default() == config.expiry,
        };
        let same_fork = match (&self.fork, &config.fork) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(request), Some(fork)) => {
                let same_position = request
                    .at
                    .is_none_or(|at| (at, request.sub) == (fork.at, fork.sub));
                request.from == fork.from && same_position
            }
        };
        same_type && same_expiry && same_fork && self.closed == closed
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use crate::http::head::parse;

    fn read(fields: &str) -> Option<CreateRequest> {
        let text = format!("PUT / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        CreateRequest::read(&parse(text.as_bytes(), 20).unwrap().head).ok()
    }

    #[test]
    fn malformed_parameters_are_refused() {
        assert_eq!(read("Stream-TTL: 0").unwrap().expiry, Some(Expiry::Idle(0)));
        let at = read("Stream-Expires-At: 1970-01-01T00:00:01.25+00:00");
        assert_eq!(at.unwrap().expiry, Some(Expiry::At(1250)));
        let fork = read("Stream-Forked-From: /ds/a/b").unwrap().fork.unwrap();
        assert_eq!((fork.from.as_str(), fork.at, fork.sub), ("a.b", None, 0));
        let fork = read("Stream-Forked-From: http://h:1/ds/a/b").unwrap();
        assert_eq!(fork.fork.unwrap().from, "a.b");
        for wrong in [
            "Stream-TTL: 01",
            "Stream-TTL: +1",
            "Stream-TTL: 1e3",
            "Stream-TTL: 3155760001",
            "Stream-TTL: 1\r\nStream-TTL: 1",
            "Stream-TTL: 1\r\nStream-Expires-At: 2030-01-01T00:00:00Z",
            "Stream-Expires-At: 2030-01-01T00:00:00",
            "Stream-Expires-At: soon",
            "Stream-Closed: yes",
            "Stream-Fork-Sub-Offset: 0",
            "Stream-Forked-From: a",
            "Stream-Forked-From: /ds/",
            "Stream-Forked-From: /a\r\nStream-Fork-Offset: now",
            "Stream-Forked-From: /a\r\nStream-Fork-Sub-Offset: 1",
            "Content-Type: text",
            "Content-Type: text/",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_put_matches_only_equal_settings() {
        let config = Config {
            content_type: "text/plain".to_owned(),
            expiry: Expiry::Idle(5),
            fork: None,
        };
        for (fields, closed, expected) in [
            (
                "Content-Type: TEXT/plain;charset=utf-8\r\nStream-TTL: 5",
                false,
                true,
            ),
            ("Content-Type: text/plain\r\nStream-TTL: 5", true, false),
            (
                "Content-Type: text/plain\r\nStream-TTL: 5\r\nStream-Closed: true",
                true,
                true,
            ),
            ("Content-Type: text/plain\r\nStream-TTL: 6", false, false),
            ("Content-Type: text/plain", false, false),
            ("Stream-TTL: 5", false, false),
        ] {
            assert_eq!(
                read(fields).unwrap().matches(&config, closed),
                expected,
                "{fields}"
            );
        }
    }
}
