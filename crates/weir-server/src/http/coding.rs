//! Content codings of requests and responses.
//!
//! A body is decoded up to the limit of its resource. A body that expands by an extreme ratio is
//! refused early. Large bodies are compressed and decompressed on threads that may block.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};

use super::accept;
use super::head::{FieldName, Head};
use super::offload;
use super::problem::{Kind, Problem};
use super::reply::{Body, Reply};
use crate::http::exchange::busy;
use crate::limits::budget::Reservation;
use crate::limits::{
    CODINGS_MAX, COMPRESS_FROM_BYTES, INLINE_WORK_BYTES, RATIO_FROM_BYTES, RATIO_MAX,
    ZSTD_WINDOW_LOG_MAX,
};

/// A coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Zstd,
    Gzip,
    Deflate,
}

/// The codings of responses, in order of preference.
const OFFERS: &[(&str, Coding)] = &[
    ("zstd", Coding::Zstd),
    ("gzip", Coding::Gzip),
    ("deflate", Coding::Deflate),
];

/// The codings that requests may use.
const ACCEPTED: &str = "zstd, gzip, deflate";

impl Coding {
    fn read(name: &str) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("gzip") || is("x-gzip") {
            Some(Self::Gzip)
        } else if is("deflate") {
            Some(Self::Deflate)
        } else if is("zstd") {
            Some(Self::Zstd)
        } else {
            None
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }
}

/// The codings of a request, in the order in which they were applied.
pub(crate) fn of_request(head: &Head) -> Result<Vec<Coding>, Problem> {
    let mut codings = Vec::new();
    for name in head.list(FieldName::ContentEncoding) {
        if name.eq_ignore_ascii_case("identity") {
            continue;
        }
        match Coding::read(name) {
            Some(coding) if codings.len() < CODINGS_MAX => codings.push(coding),
            _ => return Err(Problem::new(Kind::Coding, "").field("accept-encoding", ACCEPTED)),
        }
    }
    Ok(codings)
}

/// Decodes a body. `reservation` covers the memory for it.
pub(crate) async fn decode(
    head: &Head,
    body: Bytes,
    max: usize,
    reservation: &mut Reservation,
) -> Result<Bytes, Problem> {
    let codings = of_request(head)?;
    if codings.is_empty() {
        return Ok(body);
    }
    // The decoded sizes are not known in advance.
    let (mut most, mut needed) = (body.len(), body.len());
    for _ in &codings {
        most = most
            .saturating_mul(RATIO_MAX)
            .max(RATIO_FROM_BYTES)
            .min(max);
        needed = needed.saturating_add(most);
    }
    reservation.cover(needed).await.map_err(busy)?;
    let body = offload::run(move || {
        let mut body = body;
        for coding in codings.iter().rev() {
            body = decode_one(*coding, &body, max)?.into();
        }
        Ok(body)
    })
    .await?;
    reservation.cover(body.len()).await.map_err(busy)?;
    Ok(body)
}

fn decode_one(coding: Coding, body: &[u8], max: usize) -> Result<Vec<u8>, Problem> {
    match coding {
        Coding::Gzip => read_all(MultiGzDecoder::new(body), body.len(), max),
        Coding::Deflate => {
            // Some clients send raw deflate, without the zlib header.
            let zlib = matches!(body, [a, b, ..] if a & 15 == 8 && (u16::from(*a) << 8 | u16::from(*b)).is_multiple_of(31));
            if zlib {
                let mut decoder = ZlibDecoder::new(body);
                let out = read_all(&mut decoder, body.len(), max)?;
                check_end(decoder.total_in(), body.len())?;
                Ok(out)
            } else {
                let mut decoder = DeflateDecoder::new(body);
                let out = read_all(&mut decoder, body.len(), max)?;
                check_end(decoder.total_in(), body.len())?;
                Ok(out)
            }
        }
        Coding::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(body).map_err(|_| malformed())?;
            decoder
                .window_log_max(ZSTD_WINDOW_LOG_MAX)
                .map_err(|_| malformed())?;
            read_all(decoder, body.len(), max)
        }
    }
}

fn malformed() -> Problem {
    Problem::new(
        Kind::BadCoding,
        "the body is truncated or corrupted, or more bytes follow its end",
    )
}

fn check_end(consumed: u64, length: usize) -> Result<(), Problem> {
    if consumed == length as u64 {
        Ok(())
    } else {
        Err(malformed())
    }
}

/// Reads the whole output of a decoder, up to `max` bytes.
fn read_all(mut decoder: impl Read, coded: usize, max: usize) -> Result<Vec<u8>, Problem> {
    let mut out = Vec::new();
    let mut piece = vec![0_u8; 32 << 10];
    loop {
        let got = match decoder.read(&mut piece) {
            Ok(0) => return Ok(out),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(malformed()),
        };
        out.extend_from_slice(piece.get(..got).unwrap_or_default());
        if out.len() > max {
            return Err(Problem::too_large("the decoded body", max));
        }
        if out.len() > RATIO_FROM_BYTES && out.len() / RATIO_MAX > coded {
            return Err(Problem::new(Kind::Ratio, "").number("limit", RATIO_MAX as u64));
        }
    }
}

/// Whether compressing this media type reduces its size enough to be worth the work.
fn is_compressible(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    essence.starts_with("text/")
        || essence.ends_with("json")
        || essence.ends_with("jsonl")
        || essence.ends_with("xml")
        || matches!(
            essence,
            "application/json-seq"
                | "application/octet-stream"
                | "application/wasm"
                | "application/openmetrics-text"
        )
}

/// Checks that the client accepts the plain form of a response, or a supported coding.
pub(crate) fn check_acceptable(head: &Head) -> Result<(), Problem> {
    if head.has(FieldName::AcceptEncoding) && accept::coding(head, OFFERS).is_err() {
        return Err(not_acceptable());
    }
    Ok(())
}

fn not_acceptable() -> Problem {
    Problem::new(
        Kind::NotAcceptable,
        "accept-encoding excludes the plain form and every supported coding",
    )
    .field("accept-encoding", ACCEPTED)
}

/// Compresses a response if the client accepts a coding. If the compression fails, the response stays
/// plain.
pub(crate) async fn encode(head: &Head, mut reply: Reply) -> Result<Reply, Problem> {
    if !head.has(FieldName::AcceptEncoding) {
        return Ok(reply);
    }
    let choice = accept::coding(head, OFFERS);
    let Body::Bytes(bytes) = &reply.body else {
        return Ok(reply);
    };
    let small = bytes.len() < COMPRESS_FROM_BYTES || reply.status != 200;
    let compressible = reply.get("content-type").is_some_and(is_compressible);
    let coding = match choice {
        Err(()) if bytes.is_empty() => return Ok(reply),
        Err(()) => return Err(not_acceptable()),
        Ok(None) => return Ok(reply),
        Ok(Some(coding)) => coding,
    };
    if small || !compressible {
        return Ok(reply);
    }
    let plain = bytes.clone();
    let work = move || {
        compress(coding, &plain).map_err(|_| Problem::new(Kind::Internal, "the compression failed"))
    };
    let coded = if bytes.len() <= INLINE_WORK_BYTES {
        work()
    } else {
        offload::run(work).await
    };
    let Ok(coded) = coded else { return Ok(reply) };
    reply.body = Body::Bytes(coded.into());
    reply.add("content-encoding", coding.name());
    if reply.get("vary").is_none() {
        reply.add("vary", "accept-encoding");
    }
    retag(&mut reply, coding);
    Ok(reply)
}

fn compress(coding: Coding, plain: &[u8]) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Zstd => zstd::encode_all(plain, 1),
        Coding::Gzip => {
            let mut encoder =
                GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::new(1));
            encoder.write_all(plain)?;
            encoder.finish()
        }
        Coding::Deflate => {
            let mut encoder =
                ZlibEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::new(1));
            encoder.write_all(plain)?;
            encoder.finish()
        }
    }
}

/// Changes the entity tag, because a coded response is another representation.
fn retag(reply: &mut Reply, coding: Coding) {
    let Some(tag) = reply.get("etag").map(str::to_owned) else {
        return;
    };
    let Some(inner) = tag.strip_suffix('"') else {
        return;
    };
    let (old, new) = (
        format!("etag: {tag}\r\n"),
        format!("etag: {inner}-{}\"\r\n", coding.name()),
    );
    if let Ok(text) = std::str::from_utf8(&reply.fields) {
        reply.fields = text.replacen(&old, &new, 1).into_bytes();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use crate::http::head::parse;
    use crate::limits::budget::MemoryBudget;

    #[test]
    fn each_coding_decodes_its_output_and_refuses_damage() {
        let plain: Vec<u8> = (0..50_000_u32)
            .flat_map(|n| (n * 7 % 251).to_be_bytes())
            .collect();
        for coding in [Coding::Gzip, Coding::Deflate, Coding::Zstd] {
            let packed = compress(coding, &plain).unwrap();
            assert_eq!(decode_one(coding, &packed, plain.len()).unwrap(), plain);
            let large = decode_one(coding, &packed, plain.len() - 1).unwrap_err();
            assert_eq!(large.kind, Kind::TooLarge);
            for cut in [0, 1, packed.len() / 2, packed.len() - 1] {
                let short = decode_one(coding, packed.get(..cut).unwrap(), plain.len());
                assert!(short.is_err() || cut == 0, "{coding:?} cut at {cut}");
            }
            let mut longer = packed.clone();
            longer.extend_from_slice(b"rest");
            assert_eq!(
                decode_one(coding, &longer, plain.len()).unwrap_err().kind,
                Kind::BadCoding,
                "{coding:?}"
            );
        }
        let bare = {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), Compression::new(6));
            encoder.write_all(&plain).unwrap();
            encoder.finish().unwrap()
        };
        assert_eq!(
            decode_one(Coding::Deflate, &bare, plain.len()).unwrap(),
            plain
        );
    }

    #[tokio::test]
    async fn the_output_of_each_coding_is_reserved() {
        let budget = MemoryBudget::new("", 4 << 20, 0);
        let _held = budget.try_reserve(2 << 20).unwrap();
        for (codings, fits) in [("gzip", true), ("gzip, gzip", false)] {
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: {codings}\r\n\r\n");
            let head = parse(head.as_bytes(), 20).unwrap().head;
            let mut body = b"hello".to_vec();
            for _ in codings.split(',') {
                body = compress(Coding::Gzip, &body).unwrap();
            }
            let mut reservation = Reservation::new(&budget);
            let decoded = decode(&head, body.into(), 3 << 20, &mut reservation).await;
            assert_eq!(decoded.is_ok(), fits, "{codings}");
        }
    }

    #[test]
    fn a_body_that_expands_too_much_is_refused_early() {
        let bomb = vec![0_u8; 8 << 20];
        for coding in [Coding::Gzip, Coding::Deflate, Coding::Zstd] {
            let packed = match coding {
                Coding::Zstd => compress(coding, &bomb).unwrap(),
                Coding::Gzip => {
                    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
                    encoder.write_all(&bomb).unwrap();
                    encoder.finish().unwrap()
                }
                Coding::Deflate => {
                    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
                    encoder.write_all(&bomb).unwrap();
                    encoder.finish().unwrap()
                }
            };
            assert!(
                matches!(
                    decode_one(coding, &packed, usize::MAX).unwrap_err().kind,
                    Kind::Ratio
                ),
                "{coding:?}"
            );
        }
    }
}
