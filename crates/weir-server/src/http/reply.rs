//! A response: status, fields, body.
//!
//! Fields are stored as the bytes that HTTP/1.1 sends, so that a response needs one buffer. Control
//! characters never enter a value.

use std::fmt::{self, Write as _};
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::limits::budget::Reservation;

/// A future that a connection owns.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A body that is produced in pieces.
pub(crate) trait Source: Send {
    /// Returns the next piece; `None` at the end. Each piece is written at once.
    fn next(&mut self) -> Boxed<'_, Option<Bytes>>;

    /// Whether the body may be endless. Then a client that closes its side ends the body.
    fn is_tail(&self) -> bool {
        false
    }
}

/// The body of a response.
pub(crate) enum Body {
    /// No body, and no length.
    None,
    /// A body of these bytes.
    Bytes(Bytes),
    /// The length of a body that is not sent: the response to a HEAD.
    Length(u64),
    /// No body is sent, and its length is not known.
    Omitted,
    /// A body in pieces.
    Source(Box<dyn Source>),
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Length(length) => write!(f, "{length} bytes, unsent"),
            Self::Omitted => f.write_str("omitted"),
            Self::Source(_) => f.write_str("source"),
        }
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Lines `name: value CR LF`, names in lower case.
    pub(crate) fields: Vec<u8>,
    pub(crate) body: Body,
    /// Whether the connection closes after the response.
    pub(crate) close: bool,
    /// Memory that is reserved for the body.
    pub(crate) reservation: Option<Box<Reservation>>,
}

/// Writes a field value without the characters that could end the line.
struct Value<'a>(&'a mut Vec<u8>);

impl fmt::Write for Value<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let clean = |byte: u8| {
            if byte < 0x20 || byte == 0x7f {
                b' '
            } else {
                byte
            }
        };
        self.0.extend(text.bytes().map(clean));
        Ok(())
    }
}

impl Reply {
    pub(crate) fn new(status: u16) -> Self {
        Self {
            status,
            fields: Vec::with_capacity(320),
            body: Body::None,
            close: false,
            reservation: None,
        }
    }

    /// Attaches the memory that is reserved for the body.
    pub(crate) fn reserved(mut self, reservation: Reservation) -> Self {
        self.reservation = Some(Box::new(reservation));
        self
    }

    /// Adds a field.
    pub(crate) fn field(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.add(name, value);
        self
    }

    /// As `field`, in place.
    pub(crate) fn add(&mut self, name: &str, value: impl fmt::Display) {
        self.fields.extend_from_slice(name.as_bytes());
        self.fields.extend_from_slice(b": ");
        // Writing to memory cannot fail.
        let _ = write!(Value(&mut self.fields), "{value}");
        self.fields.extend_from_slice(b"\r\n");
    }

    /// Adds a field with a number. Most fields are numbers, so this method avoids the cost of
    /// `format!`.
    pub(crate) fn number(mut self, name: &str, value: u64) -> Self {
        self.fields.extend_from_slice(name.as_bytes());
        self.fields.extend_from_slice(b": ");
        super::json::number(&mut self.fields, value);
        self.fields.extend_from_slice(b"\r\n");
        self
    }

    /// Sets the body and its type.
    pub(crate) fn with(mut self, media_type: &str, body: impl Into<Bytes>) -> Self {
        self.add("content-type", media_type);
        self.body = Body::Bytes(body.into());
        self
    }

    /// The value of the first field with this lower-case name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let text = std::str::from_utf8(&self.fields).ok()?;
        text.split("\r\n")
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Length of the body, if known.
    pub(crate) fn length(&self) -> Option<u64> {
        match &self.body {
            Body::None => Some(0),
            Body::Bytes(bytes) => Some(bytes.len() as u64),
            Body::Length(length) => Some(*length),
            Body::Omitted | Body::Source(_) => None,
        }
    }

    /// Drops the body but keeps its length, for the response to a HEAD.
    pub(crate) fn without_body(mut self) -> Self {
        self.body = match &self.body {
            Body::None => Body::None,
            Body::Bytes(bytes) => Body::Length(bytes.len() as u64),
            Body::Length(length) => Body::Length(*length),
            Body::Omitted | Body::Source(_) => Body::Omitted,
        };
        self
    }
}

/// The reason phrase of a status.
pub(crate) const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::Reply;

    #[test]
    fn a_value_cannot_end_its_line() {
        let reply = Reply::new(200).field("a", "b\r\nc: d").number("e", 120);
        assert_eq!(reply.fields, b"a: b  c: d\r\ne: 120\r\n");
        assert_eq!(reply.get("e"), Some("120"));
    }
}
