//! Requests to a contender and the expected answers, in the form of `lab/peers/bench.txt`. Comments
//! in that file describe the form.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use super::server::Answer;
use crate::error::{LabError, Result};

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 7;
/// Maximum number of bytes of an inflated answer.
const PLAIN_MAX: u64 = 64 << 20;

/// A request and its answer.
#[derive(Clone, Debug)]
pub struct Vector {
    /// Its first line, as a title.
    pub name: String,
    /// The bytes of the request.
    pub request: Vec<u8>,
    /// Status of the answer.
    pub status: u16,
    /// Its media type.
    pub media_type: String,
    /// Its body, inflated.
    pub body: Vec<u8>,
    /// The expected value of the field `allow`.
    pub allow: Option<String>,
    /// Whether bodies are deflated.
    pub deflated: bool,
}

/// Replaces `<XX>` by the byte.
fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (before, after) = rest.split_at(at);
        out.extend_from_slice(before.as_bytes());
        let code = after.get(1..3).filter(|_| after.get(3..4) == Some(">"));
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            out.push(byte);
            rest = after.get(4..).unwrap_or_default();
        } else {
            out.push(b'<');
            rest = after.get(1..).unwrap_or_default();
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

fn deflate(plain: &[u8]) -> Vec<u8> {
    let mut out = ZlibEncoder::new(Vec::new(), Compression::new(6));
    // Writing to memory does not fail.
    let _ = out.write_all(plain);
    out.finish().unwrap_or_default()
}

fn chunks(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in body.chunks(CHUNK_BYTES) {
        out.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

/// Reads the vectors of a file.
pub fn read(text: &str) -> Result<Vec<Vector>> {
    let mut vectors = Vec::new();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for part in lines.split(|line| line.is_empty()) {
        if !part.is_empty() {
            let vector = parse(part).ok_or_else(|| LabError::Usage {
                what: format!("invalid vector: {}", part.join(" / ")),
            })?;
            vectors.push(vector);
        }
    }
    Ok(vectors)
}

fn parse(lines: &[&str]) -> Option<Vector> {
    let (first, rest) = lines.split_first()?;
    let (mut fields, mut body, mut answer, mut allow) = (String::new(), Vec::new(), None, None);
    for line in rest {
        if let Some(text) = line.strip_prefix("> ") {
            body = bytes(text);
        } else if let Some(text) = line.strip_prefix("= ") {
            let mut words = text.splitn(3, ' ');
            let status: u16 = words.next()?.parse().ok()?;
            let media_type = words.next()?.to_owned();
            answer = Some((status, media_type, bytes(words.next().unwrap_or_default())));
        } else if let Some(text) = line.strip_prefix("allow: ") {
            allow = Some(text.to_owned());
        } else {
            fields.push_str(line);
            fields.push_str("\r\n");
        }
    }
    let (status, media_type, expected) = answer?;
    let lower = fields.to_ascii_lowercase();
    let deflated = lower.contains("content-encoding: deflate");
    if deflated {
        body = deflate(&body);
    }
    let chunked = lower.contains("transfer-encoding: chunked");
    let mut request = format!("{first} HTTP/1.1\r\nHost: localhost\r\n{fields}").into_bytes();
    if !chunked && !body.is_empty() {
        request.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request.extend(if chunked { chunks(&body) } else { body });
    Some(Vector {
        name: format!("{first}, {status}"),
        request,
        status,
        media_type,
        body: expected,
        allow,
        deflated,
    })
}

/// A time in the format of HTTP: `Fri, 20 Nov 2026 15:42:38 GMT`.
fn is_date(text: &str) -> bool {
    let form = "Aaa, 00 Aaa 0000 00:00:00 GMT";
    text.len() == form.len()
        && text.chars().zip(form.chars()).all(|(c, form)| match form {
            'A' => c.is_ascii_uppercase(),
            'a' => c.is_ascii_lowercase(),
            '0' => c.is_ascii_digit(),
            other => c == other,
        })
}

impl Vector {
    /// The error of an answer; `None` if it is correct.
    pub fn difference(&self, answer: &Answer) -> Option<String> {
        if answer.status != self.status {
            return Some(format!("status {}", answer.status));
        }
        if answer.get("content-type") != Some(self.media_type.as_str()) {
            return Some(format!("content-type {:?}", answer.get("content-type")));
        }
        if answer.get("allow") != self.allow.as_deref() {
            return Some(format!("allow {:?}", answer.get("allow")));
        }
        if !answer.get("date").is_some_and(is_date) {
            return Some(format!("date {:?}", answer.get("date")));
        }
        let known = [
            "content-type",
            "content-length",
            "date",
            "allow",
            "connection",
        ];
        let other = answer
            .fields
            .iter()
            .find(|(name, _)| !known.contains(&name.as_str()));
        if let Some((name, _)) = other {
            return Some(format!("a field {name}"));
        }
        let mut inflated = Vec::new();
        let body = if self.deflated && self.status == 200 {
            let mut plain = ZlibDecoder::new(answer.body.as_slice()).take(PLAIN_MAX);
            if plain.read_to_end(&mut inflated).is_err() {
                return Some("a body that is not a zlib stream".to_owned());
            }
            &inflated
        } else {
            &answer.body
        };
        (*body != self.body).then(|| {
            let start = body.get(..body.len().min(200)).unwrap_or_default();
            format!("a body of {} bytes: {}", body.len(), start.escape_ascii())
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed set-up is a failed test

    use super::*;

    #[test]
    fn a_vector_is_read() {
        let text = "# x\nPOST /a\nTransfer-Encoding: chunked\n> 12345678<0A>\n= 405 t/u <b<ff>\nallow: GET\n\nGET /b\n= 200 t/u\n";
        let vectors = read(text).unwrap();
        assert_eq!(vectors.len(), 2);
        let request = "POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n1234567\r\n2\r\n8\n\r\n0\r\n\r\n";
        assert_eq!(vectors[0].request, request.as_bytes());
        assert_eq!(vectors[0].body, b"<b\xff");
        assert_eq!(vectors[0].allow.as_deref(), Some("GET"));
        assert!(vectors[1].body.is_empty());
        assert!(read("GET /a\n> x\n").is_err());
    }

    #[test]
    fn every_difference_of_an_answer_is_reported() {
        let vector = &read("GET /a\n= 200 t/u x\n").unwrap()[0];
        let of = |fields: &[(&str, &str)], body: &[u8]| {
            let fields = fields
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
            vector.difference(&Answer {
                status: 200,
                fields: fields.collect(),
                body: body.to_vec(),
            })
        };
        let date = ("date", "Fri, 20 Nov 2026 15:42:38 GMT");
        assert_eq!(of(&[("content-type", "t/u"), date], b"x"), None);
        assert!(of(&[("content-type", "t/u"), date], b"y").is_some());
        assert!(of(&[("content-type", "t/v"), date], b"x").is_some());
        assert!(of(&[("content-type", "t/u"), ("date", "today")], b"x").is_some());
        assert!(of(&[("content-type", "t/u"), date, ("server", "z")], b"x").is_some());
    }
}
