//! Parses HTTP/1.1 from bytes that arrive in pieces, without a connection. Tests and fuzzers use
//! this module.
//!
//! The module calls the code of the connection for heads and bodies, and adds no rule. Invariant:
//! the result does not depend on where the pieces end.

use bytes::BytesMut;

use super::body::UnreadBody;
use super::{NextHead, Scan, next_head};
use crate::http::head::HeadLimits;

/// Size limits for requests; the default is that of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a request line.
    pub line: usize,
    /// Bytes of all header fields.
    pub head: usize,
    /// Header fields.
    pub fields: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let config = crate::config::ServerConfig::default();
        Self {
            line: config.request_line_max.0,
            head: config.head_max.0,
            fields: config.head_fields_max,
        }
    }
}

/// The result of parsing the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Each request that was started: how its head was parsed.
    pub heads: Vec<String>,
    /// The bodies of these requests, as far as they arrived.
    pub bodies: Vec<Vec<u8>>,
    /// How parsing ended: a refusal and its reason, or what was still missing.
    pub end: String,
}

/// Parses bytes that arrive in pieces. `ends` are the ends of the pieces; the rest is the last
/// piece. Ends that are out of range or decrease count as empty pieces.
#[must_use]
pub fn read(bytes: &[u8], ends: impl IntoIterator<Item = usize>, limits: Limits) -> Reading {
    let sizes = HeadLimits {
        line_max: limits.line,
        head_max: limits.head,
    };
    let (mut reading, mut input) = (Reading::default(), BytesMut::new());
    let (mut scan, mut body): (Scan, Option<UnreadBody>) = Default::default();
    let mut from = 0;
    for end in ends.into_iter().chain([bytes.len()]) {
        let piece = bytes.get(from..end).unwrap_or_default();
        from += piece.len();
        input.extend_from_slice(piece);
        loop {
            if let Some(left) = &mut body {
                match left.take(&mut input) {
                    Ok(Some(data)) if data.is_empty() => break,
                    Ok(Some(data)) => {
                        let last = reading.bodies.last_mut();
                        last.unwrap_or(&mut Vec::new()).extend_from_slice(&data);
                    }
                    Ok(None) => body = None,
                    Err(error) => {
                        reading.end = format!("{error:?}");
                        return reading;
                    }
                }
                continue;
            }
            match next_head(&mut scan, &mut input, sizes, limits.fields) {
                NextHead::Nothing => break,
                NextHead::Refused(bad) => {
                    reading.end = format!("{bad:?}");
                    return reading;
                }
                NextHead::Request(parsed) => {
                    reading.heads.push(format!("{parsed:?}"));
                    reading.bodies.push(Vec::new());
                    body = Some(UnreadBody::new(parsed.framing));
                    if !parsed.keep_alive {
                        // A connection reads the body of this request and then closes.
                        "closes".clone_into(&mut reading.end);
                    }
                }
            }
        }
    }
    reading.end.push_str(match body {
        Some(_) => " within a body",
        None if scan.has_begun(&input) => " within a head",
        None => " between requests",
    });
    reading
}
