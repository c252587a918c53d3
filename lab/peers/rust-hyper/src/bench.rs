//! The endpoints below `/bench` of the Rust contenders of the experiment http-json, without sockets
//! or HTTP. `lab/peers/README.md` has the rules, `lab/peers/bench.txt` the vectors.
//!
//! Invariants: memory is bounded by [`BODY_MAX`] and [`PLAIN_MAX`]; a response
//! depends on the request alone.

// Explicit paths, because other crates include this file.
#[path = "bench/json.rs"]
mod json;
#[path = "bench/sieve.rs"]
mod sieve;
#[path = "bench/zlib.rs"]
mod zlib;

/// Maximum bytes of a body.
pub const BODY_MAX: usize = 4 << 20;
/// Maximum bytes of a body after inflation.
pub const PLAIN_MAX: usize = 16 << 20;

const JSON: &str = "application/json";

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The value of `content-type`.
    pub media_type: &'static str,
    /// The methods of the resource, for 405; else empty.
    pub allow: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    fn json(body: Vec<u8>) -> Answer {
        Answer {
            status: 200,
            media_type: JSON,
            allow: "",
            body,
        }
    }

    /// An error response with the body `{"error":"WHAT"}`.
    pub fn error(status: u16, what: &str) -> Answer {
        Answer {
            status,
            ..Answer::json(format!("{{\"error\":\"{what}\"}}").into_bytes())
        }
    }

    fn method(allow: &'static str) -> Answer {
        Answer {
            allow,
            ..Answer::error(405, "method")
        }
    }
}

/// Whether the response to this request is its own body.
pub fn is_echo(method: &str, path: &str) -> bool {
    path == "/bench/echo" && method == "POST"
}

/// Answers a request; `query` is the text after the question mark.
pub fn answer(method: &str, path: &str, query: Option<&str>, body: &[u8]) -> Answer {
    match (path, method) {
        ("/bench/json", "GET") => Answer::json(json::hello()),
        ("/bench/json", "POST") => match json::item(body) {
            Some(body) => Answer::json(body),
            None => Answer::error(400, "bad json"),
        },
        ("/bench/json", _) => Answer::method("GET, POST"),
        ("/bench/echo", "POST") => Answer {
            media_type: "application/octet-stream",
            ..Answer::json(body.to_vec())
        },
        ("/bench/zlib", "POST") => items(body),
        ("/bench/echo" | "/bench/zlib", _) => Answer::method("POST"),
        ("/bench/cpu", "GET") => match sieve::read(query) {
            Some(n) => Answer::json(sieve::answer(n)),
            None => Answer::error(400, "bad n"),
        },
        ("/bench/cpu", _) => Answer::method("GET"),
        _ => Answer::error(404, "not found"),
    }
}

fn items(body: &[u8]) -> Answer {
    let plain = match zlib::inflate(body) {
        Ok(plain) => plain,
        Err(zlib::Bad::Stream) => return Answer::error(400, "bad zlib"),
        Err(zlib::Bad::Size) => return Answer::error(413, "too large"),
    };
    match json::items(&plain) {
        Some(items) => Answer {
            media_type: "application/zlib",
            ..Answer::json(zlib::deflate(&items))
        },
        None => Answer::error(400, "bad json"),
    }
}

pub use zlib::{deflate, inflate};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_inflates_without_end_is_refused() {
        let bomb = deflate(&vec![b' '; PLAIN_MAX + 1]);
        assert!(bomb.len() < BODY_MAX);
        assert_eq!(answer("POST", "/bench/zlib", None, &bomb).status, 413);
    }

    #[test]
    fn a_stream_that_goes_on_or_ends_early_is_refused() {
        let good = deflate(b"[]");
        assert_eq!(answer("POST", "/bench/zlib", None, &good).status, 200);
        for cut in 0..good.len() {
            let answer = answer("POST", "/bench/zlib", None, &good[..cut]);
            assert_eq!(answer, Answer::error(400, "bad zlib"), "cut at {cut}");
        }
        let more = [&good[..], b"x"].concat();
        assert_eq!(answer("POST", "/bench/zlib", None, &more).status, 400);
    }
}
