//! Resume tokens: the position of a query, as bytes that the caller stores
//! (`docs/formats/query-token.md`).
//!
//! ```text
//! version      u8, 4
//! fingerprint  16 bytes: hashes of the query
//! body         below, in this order; numbers as LEB128
//! checksum     8 bytes: XXH3-64, seed 5, of all before
//! ```
//!
//! A token contains no payload except order keys, ties, and the current values of
//! aggregates.
//!
//! Invariants:
//! - No input causes a panic, or an allocation of a size that the input chooses.
//! - A token of another version is an error.

use bytes::Bytes;

use crate::error::QueryError;
use crate::key::{OwnedKey, ReducedKey};
use crate::order::{Boundary, Precedence};
use crate::plan::Plan;
use weir_core::codec::{Reader, Short, put_bytes, put_varint};
use weir_core::digest::hash;
use weir_core::error_code::ErrorCode;

/// Largest size of a token in bytes.
pub const TOKEN_BYTES_MAX: usize = 64 << 10;
/// Largest size in bytes of one key in a token.
pub const TOKEN_KEY_BYTES_MAX: usize = 4 << 10;
const VERSION: u8 = 4;
const HEADER_BYTES: usize = 17;

/// Position of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SourcePosition {
    /// The source is finished.
    Over,
    /// In the page `continuation`, after `skip` items. `equal` of these are at the boundary.
    /// `pages_left` is the number of pages from this one on, if known.
    Position {
        continuation: Option<Bytes>,
        skip: u32,
        equal: u64,
        pages_left: Option<u64>,
    },
    /// Before the page `continuation`. No item of that page was after the boundary yet.
    Clipped { continuation: Option<Bytes> },
    /// Determined by the items themselves: those up to the boundary were returned.
    Boundary,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResumePoint {
    pub(crate) name: Box<[u8]>,
    pub(crate) precedence: Precedence,
    pub(crate) at: SourcePosition,
}

/// The content of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Token {
    /// Number of the mode.
    pub(crate) mode: u8,
    /// Number of returned results, for a query that has to sort again.
    pub(crate) results: u64,
    pub(crate) offset: u64,
    pub(crate) limit: Option<u64>,
    /// Index of the source whose turn it is.
    pub(crate) turn: u64,
    pub(crate) distinct: Option<u128>,
    /// The boundary after the last item of a merge, and those that still restrict other
    /// sources.
    pub(crate) boundary: Vec<Boundary>,
    /// The current group.
    pub(crate) fold: Vec<u8>,
    pub(crate) sources: Vec<ResumePoint>,
}

fn put_option(out: &mut Vec<u8>, value: Option<u64>) {
    out.push(u8::from(value.is_some()));
    put_varint(out, value.unwrap_or(0));
}

fn put_key(out: &mut Vec<u8>, key: &OwnedKey) -> Result<(), QueryError> {
    if key.literal.len() > TOKEN_KEY_BYTES_MAX {
        return Err(too_large(
            "bytes of a key",
            TOKEN_KEY_BYTES_MAX,
            key.literal.len(),
        ));
    }
    out.extend_from_slice(&key.reduced.to_bytes());
    out.push(u8::from(key.raw));
    put_bytes(out, &key.literal);
    Ok(())
}

fn too_large(what: &'static str, max: usize, found: usize) -> QueryError {
    QueryError::limit(ErrorCode::TokenTooLarge, what, max as u64, found as u64)
}

impl Token {
    /// Encodes the token.
    pub(crate) fn encode(&self, plan: &Plan) -> Result<Vec<u8>, QueryError> {
        let mut out = vec![VERSION];
        for half in plan.fingerprint {
            out.extend_from_slice(&half.to_le_bytes());
        }
        out.push(self.mode);
        put_varint(&mut out, self.results);
        put_varint(&mut out, self.offset);
        put_option(&mut out, self.limit);
        put_varint(&mut out, self.turn);
        out.push(u8::from(self.distinct.is_some()));
        out.extend_from_slice(&self.distinct.unwrap_or(0).to_le_bytes());
        put_varint(&mut out, self.boundary.len() as u64);
        for boundary in &self.boundary {
            put_precedence(&mut out, &boundary.precedence);
            put_varint(&mut out, boundary.equal);
            out.push(u8::from(boundary.own_page_only));
            put_varint(&mut out, boundary.keys.len() as u64);
            for key in &boundary.keys {
                put_key(&mut out, key)?;
            }
            out.push(u8::from(boundary.tie.is_some()));
            if let Some(tie) = &boundary.tie {
                put_key(&mut out, tie)?;
            }
        }
        put_bytes(&mut out, &self.fold);
        put_varint(&mut out, self.sources.len() as u64);
        for source in &self.sources {
            put_bytes(&mut out, &source.name);
            put_precedence(&mut out, &source.precedence);
            match &source.at {
                SourcePosition::Over => out.push(0),
                SourcePosition::Boundary => out.push(1),
                SourcePosition::Clipped { continuation } => {
                    out.push(if continuation.is_some() { 5 } else { 4 });
                    put_bytes(&mut out, continuation.as_deref().unwrap_or_default());
                }
                SourcePosition::Position {
                    continuation,
                    skip,
                    equal,
                    pages_left: left,
                } => {
                    let kind = match (left, equal) {
                        (Some(_), _) => 6,
                        (None, 0) => 2,
                        (None, _) => 8,
                    };
                    out.push(kind + u8::from(continuation.is_some()));
                    put_varint(&mut out, u64::from(*skip));
                    match left {
                        Some(left) => put_varint(&mut out, *left),
                        None if *equal > 0 => put_varint(&mut out, *equal),
                        None => {}
                    }
                    put_bytes(&mut out, continuation.as_deref().unwrap_or_default());
                }
            }
        }
        let sum = hash(5, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        if out.len() > TOKEN_BYTES_MAX {
            return Err(too_large("bytes", TOKEN_BYTES_MAX, out.len()));
        }
        Ok(out)
    }

    /// Decodes a token of the query `plan`.
    pub(crate) fn decode(bytes: &[u8], plan: &Plan) -> Result<Self, QueryError> {
        let corrupt = |what| QueryError::new(ErrorCode::TokenCorrupt).because(what);
        if bytes.len() > TOKEN_BYTES_MAX {
            return Err(corrupt("too long"));
        }
        let (body, sum) = bytes
            .split_last_chunk::<8>()
            .ok_or_else(|| corrupt("too short"))?;
        if u64::from_le_bytes(*sum) != hash(5, body) {
            return Err(corrupt("its checksum is wrong"));
        }
        let version = body.first().copied().unwrap_or(0);
        if version != VERSION {
            return Err(corrupt("its version is not known"));
        }
        let head = body.get(1..HEADER_BYTES).unwrap_or_default();
        let print = plan.fingerprint.map(u64::to_le_bytes).concat();
        if head != print {
            return Err(QueryError::new(ErrorCode::TokenMismatch));
        }
        let mut reader = Reader::after(body, HEADER_BYTES);
        let token = Self::read(&mut reader).map_err(|Short| corrupt("it ends early"))?;
        if !reader.is_empty() {
            return Err(corrupt("bytes follow its end"));
        }
        Ok(token)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Short> {
        let mut token = Self {
            mode: from.u8()?,
            results: from.varint()?,
            offset: from.varint()?,
            ..Self::default()
        };
        let some = from.u8()? != 0;
        let limit = from.varint()?;
        token.limit = some.then_some(limit);
        token.turn = from.varint()?;
        let some = from.u8()? != 0;
        let print = u128::from_le_bytes(from.array()?);
        token.distinct = some.then_some(print);
        for _ in 0..from.varint()? {
            token.boundary.push(boundary(from)?);
        }
        token.fold = from.bytes()?.to_vec();
        for _ in 0..from.varint()? {
            let name = from.bytes()?.into();
            let precedence = precedence(from)?;
            let at = match from.u8()? {
                0 => SourcePosition::Over,
                1 => SourcePosition::Boundary,
                kind @ (2 | 3 | 6..=9) => {
                    let skip = u32::try_from(from.varint()?).map_err(|_| Short)?;
                    let (left, equal) = match kind {
                        6 | 7 => (Some(from.varint()?), 0),
                        8 | 9 => (None, from.varint()?),
                        _ => (None, 0),
                    };
                    let continuation = from.bytes()?;
                    let continuation =
                        (kind & 1 == 1).then(|| Bytes::copy_from_slice(continuation));
                    SourcePosition::Position {
                        continuation,
                        skip,
                        equal,
                        pages_left: left,
                    }
                }
                kind @ (4 | 5) => {
                    let continuation = from.bytes()?;
                    let continuation = (kind == 5).then(|| Bytes::copy_from_slice(continuation));
                    SourcePosition::Clipped { continuation }
                }
                _ => return Err(Short),
            };
            token.sources.push(ResumePoint {
                name,
                precedence,
                at,
            });
        }
        Ok(token)
    }
}

fn put_precedence(out: &mut Vec<u8>, precedence: &Precedence) {
    put_varint(out, precedence.ordinal);
    put_varint(out, precedence.part.len() as u64);
    for number in &precedence.part {
        put_varint(out, u64::from(*number));
    }
}

fn precedence(from: &mut Reader<'_>) -> Result<Precedence, Short> {
    let mut precedence = Precedence::whole(from.varint()?);
    for _ in 0..from.varint()? {
        let number = u32::try_from(from.varint()?).map_err(|_| Short)?;
        precedence.part.push(number);
    }
    Ok(precedence)
}

fn boundary(from: &mut Reader<'_>) -> Result<Boundary, Short> {
    let (precedence, equal) = (precedence(from)?, from.varint()?);
    let own_page_only = from.u8()? != 0;
    let mut keys = Vec::new();
    for _ in 0..from.varint()? {
        keys.push(key(from)?);
    }
    let tie = if from.u8()? != 0 {
        Some(key(from)?)
    } else {
        None
    };
    Ok(Boundary {
        keys,
        precedence,
        tie,
        equal,
        own_page_only,
    })
}

fn key(from: &mut Reader<'_>) -> Result<OwnedKey, Short> {
    Ok(OwnedKey {
        reduced: ReducedKey::from_bytes(from.array()?),
        raw: from.u8()? != 0,
        literal: from.bytes()?.into(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::{ResumePoint, SourcePosition, TOKEN_KEY_BYTES_MAX, Token};
    use crate::key::{Key, Literal, OwnedKey, ReducedKey};
    use crate::kind::{Kind, Strings};
    use crate::order::{Boundary, Precedence};
    use crate::{Plan, QueryText};
    use bytes::Bytes;
    use weir_core::ErrorCode;

    fn key(text: &str) -> OwnedKey {
        let literal = Literal::Json(text.as_bytes());
        OwnedKey::of(&Key {
            reduced: ReducedKey::of(Kind::String, literal, Strings::Scalar),
            literal,
        })
    }

    fn plan(order: &str) -> Plan {
        let order = order.to_owned();
        QueryText {
            order,
            ..QueryText::default()
        }
        .compile()
        .unwrap()
    }

    fn token() -> Token {
        let point = |name: &str, at: SourcePosition| ResumePoint {
            name: name.as_bytes().into(),
            precedence: Precedence::whole(name.len() as u64).below(1),
            at,
        };
        let continuation = Some(Bytes::from_static(b"page 7"));
        Token {
            mode: 3,
            results: 300,
            offset: 1,
            limit: Some(u64::MAX),
            turn: 2,
            distinct: Some(u128::MAX - 1),
            boundary: vec![Boundary {
                keys: vec![key("\"a long enough string\""), key("\"\"")],
                precedence: Precedence::whole(9).below(2).below(70_000),
                tie: Some(key("\"t\"")),
                equal: 4,
                own_page_only: true,
            }],
            fold: vec![1, 2, 3],
            sources: vec![
                point("over", SourcePosition::Over),
                point(
                    "new",
                    SourcePosition::Position {
                        continuation: None,
                        skip: 0,
                        equal: 0,
                        pages_left: None,
                    },
                ),
                point(
                    "in",
                    SourcePosition::Position {
                        continuation: continuation.clone(),
                        skip: 70_000,
                        equal: 0,
                        pages_left: None,
                    },
                ),
                point(
                    "within",
                    SourcePosition::Position {
                        continuation: continuation.clone(),
                        skip: 7,
                        equal: 3,
                        pages_left: None,
                    },
                ),
                point(
                    "last",
                    SourcePosition::Position {
                        continuation: continuation.clone(),
                        skip: 1,
                        equal: 0,
                        pages_left: Some(3),
                    },
                ),
                point("part", SourcePosition::Clipped { continuation }),
                point("", SourcePosition::Boundary),
            ],
        }
    }

    #[test]
    fn a_token_round_trips_and_a_damaged_token_is_rejected() {
        let plan = plan("$.a, $.b");
        let bytes = token().encode(&plan).unwrap();
        assert_eq!(Token::decode(&bytes, &plan).unwrap(), token());
        let refused = |bytes: &[u8]| {
            let error = Token::decode(bytes, &plan).unwrap_err();
            assert_eq!(error.code(), ErrorCode::TokenCorrupt);
        };
        for at in 0..bytes.len() {
            refused(&bytes[..at]);
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            refused(&flipped);
        }
        let other = crate::QueryText::default().compile().unwrap();
        let error = Token::decode(&bytes, &other).unwrap_err();
        assert_eq!(error.code(), ErrorCode::TokenMismatch);
    }

    /// Tokens of any other version, including older ones, are refused as a whole.
    #[test]
    fn a_token_of_another_version_is_rejected() {
        let plan = plan("$.a");
        for version in [0, 1, 2, 3, 5, 255] {
            let mut bytes = token().encode(&plan).unwrap();
            bytes.truncate(bytes.len() - 8);
            bytes[0] = version;
            let sum = weir_core::digest::hash(5, &bytes);
            bytes.extend(sum.to_le_bytes());
            let error = Token::decode(&bytes, &plan).unwrap_err();
            assert_eq!(error.code(), ErrorCode::TokenCorrupt);
            assert!(error.to_string().contains("version"), "{error}");
        }
    }

    /// Adds a valid checksum to any bytes.
    #[test]
    fn a_changed_token_with_a_valid_checksum_never_panics() {
        let plan = plan("$.a, $.b");
        let bytes = token().encode(&plan).unwrap();
        let body = &bytes[..bytes.len() - 8];
        let mut good = 0;
        for at in super::HEADER_BYTES..body.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = body.to_vec();
                changed[at] = value;
                let sum = weir_core::digest::hash(5, &changed);
                changed.extend_from_slice(&sum.to_le_bytes());
                good += usize::from(Token::decode(&changed, &plan).is_ok());
            }
        }
        assert!(good > 0);
    }

    #[test]
    fn a_key_that_is_too_long_is_rejected() {
        let mut token = token();
        let long = format!("\"{}\"", "x".repeat(TOKEN_KEY_BYTES_MAX));
        token.boundary[0].keys.push(key(&long));
        let error = token.encode(&plan("$.a")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::TokenTooLarge);
    }
}
