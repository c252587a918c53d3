//! The parameters of an input: the request, the number of requests, and their times.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::Error;
use crate::body::body;

/// Named values from the lab.
pub type Fields = BTreeMap<String, String>;

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rhythm {
    /// A connection sends its next request after the answer to the last one.
    Closed,
    /// This number of requests a second, independent of the answers. Gaps are drawn from the
    /// exponential distribution, with a seed.
    Open(f64),
}

/// One input.
#[derive(Clone, Debug)]
pub struct Params {
    /// Requests of one iteration.
    pub requests: usize,
    /// Connections.
    pub connections: usize,
    /// When the connections send requests.
    pub rhythm: Rhythm,
    /// The bytes of a request.
    pub request: Vec<u8>,
    /// The expected body of an answer; `None`: any.
    pub echo: Option<Vec<u8>>,
    /// Answers are zlib streams; the inflated bytes are compared.
    pub inflate: bool,
    /// A request that is sent once after the start, for servers that need it.
    pub setup: Option<Vec<u8>>,
}

/// Parses parameter `name`.
fn number<T: FromStr>(fields: &Fields, name: &'static str, otherwise: T) -> Result<T, Error> {
    match fields.get(name) {
        None => Ok(otherwise),
        Some(text) => text.parse().map_err(|_| Error::Parameter(name)),
    }
}

/// A request; `extra` is further header lines, separated by `|`.
fn request(method: &str, path: &str, kind: &str, extra: &str, body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    if !body.is_empty() {
        head += &format!("content-type: {kind}\r\ncontent-length: {}\r\n", body.len());
    }
    for line in extra.split('|').filter(|line| !line.is_empty()) {
        head += &format!("{}\r\n", line.trim());
    }
    head += "\r\n";
    [head.as_bytes(), body].concat()
}

impl Params {
    /// Reads the parameters from a line of the lab.
    pub fn read(fields: &Fields) -> Result<Params, Error> {
        let text = |name: &str, otherwise: &str| {
            fields
                .get(name)
                .map_or_else(|| otherwise.to_owned(), Clone::clone)
        };
        let named = fields.get("body").map(String::as_str);
        let sent = body(named, number(fields, "bytes", 0)?)?;
        let method = text("method", if sent.is_empty() { "GET" } else { "POST" });
        let kind = text("type", "application/json");
        let header = text("header", "");
        let rate: f64 = number(fields, "rate", 0.0)?;
        let params = Params {
            requests: number(fields, "requests", 0)?,
            connections: number(fields, "connections", 0)?,
            rhythm: if rate > 0.0 {
                Rhythm::Open(rate)
            } else {
                Rhythm::Closed
            },
            request: request(&method, &text("path", "/"), &kind, &header, &sent),
            echo: number(fields, "echo", false)?.then_some(sent),
            inflate: number(fields, "inflate", false)?,
            setup: fields.get("setup").map(|path| {
                request(
                    &text("setup_method", "PUT"),
                    path,
                    &kind,
                    &header,
                    text("setup_body", "").as_bytes(),
                )
            }),
        };
        match (params.requests, params.connections) {
            (0, _) => Err(Error::Parameter("requests")),
            (_, 0) => Err(Error::Parameter("connections")),
            _ => Ok(params),
        }
    }
}
