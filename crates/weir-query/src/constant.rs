//! Properties that all items of a source share.

use crate::json;
use crate::key::{Literal, ReducedKey};
use crate::kind::{Kind, Strings};

/// A value that all items of a source share.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    pub(crate) kind: Kind,
    pub(crate) literal: Box<[u8]>,
    pub(crate) reduced: ReducedKey,
}

impl Constant {
    /// Parses a JSON scalar; `None` for any other text.
    pub(crate) fn parse(text: &str, strings: Strings) -> Option<Self> {
        let kind = json::scalar(text.as_bytes())?;
        let literal = text.trim().as_bytes();
        Some(Self {
            kind,
            literal: literal.into(),
            reduced: ReducedKey::of(kind, Literal::Json(literal), strings),
        })
    }
}
