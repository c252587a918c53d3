//! Tokens of queries over topics: the token of the engine, and the last intention to read
//! (`docs/formats/query-token.md`).

use crate::error::QueryError;
use crate::plan::Plan;
use weir_core::IntentionOffset;
use weir_core::codec::{Reader, Short, put_varint};
use weir_core::digest::hash;
use weir_core::error_code::ErrorCode;

const VERSION: u8 = 1;

/// The content of a token of a query over topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicToken<'a> {
    /// The last intention that the query reads; `None` if the query follows.
    pub cut: Option<IntentionOffset>,
    /// Token of the engine.
    pub engine: &'a [u8],
}

impl<'a> TopicToken<'a> {
    /// Encodes the token.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, u8::from(self.cut.is_some())];
        put_varint(&mut out, self.cut.map_or(0, |cut| cut.0));
        out.extend_from_slice(self.engine);
        let sum = hash(6, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes the token, except the part of the engine.
    ///
    /// # Errors
    /// `TOKEN_CORRUPT`.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, QueryError> {
        let corrupt = |what| QueryError::new(ErrorCode::TokenCorrupt).because(what);
        let Some((body, sum)) = bytes.split_last_chunk::<8>() else {
            return Err(corrupt("too short"));
        };
        if u64::from_le_bytes(*sum) != hash(6, body) {
            return Err(corrupt("its checksum is wrong"));
        }
        let mut reader = Reader::new(body);
        let mut head = || Ok((reader.u8()?, reader.u8()?, reader.varint()?));
        let read: Result<_, Short> = head();
        match read {
            Ok((VERSION, cut @ (0 | 1), at)) => Ok(Self {
                cut: (cut == 1).then_some(IntentionOffset(at)),
                engine: reader.rest(),
            }),
            Ok((VERSION, ..)) | Err(Short) => Err(corrupt("it cannot be read")),
            Ok(_) => Err(corrupt("its version is not known")),
        }
    }
}

impl Plan {
    /// Binds the query to these sources: its tokens are valid only for them.
    #[must_use]
    pub fn over(mut self, sources: &[u8]) -> Self {
        let mut bytes = self.fingerprint.map(u64::to_le_bytes).concat();
        bytes.extend_from_slice(sources);
        self.fingerprint = [hash(1, &bytes), hash(2, &bytes)];
        self
    }
}
