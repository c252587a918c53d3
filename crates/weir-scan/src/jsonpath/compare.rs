//! Values during evaluation, and their comparison (RFC 9535, 2.3.5.2.2).

use super::ast::Comparison;
use crate::children::tag_of;
use crate::equality::{Spend, equal_within};
use crate::items::Tag;
use crate::number::compare_numbers;
use crate::text::Text;
use std::borrow::Cow;
use std::cmp::Ordering;

/// A value, or nothing.
#[derive(Clone, Debug)]
pub(super) enum ComparedValue<'a> {
    Nothing,
    /// JSON without surrounding white space.
    Json(Cow<'a, [u8]>),
    /// A decoded string.
    Plain(&'a str),
    /// A count, as JSON.
    Count(String),
}

/// Bytes of a string that are read for one step.
const BYTES_READ: usize = 8;

impl ComparedValue<'_> {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Json(json) => json.len(),
            Self::Plain(text) => text.len(),
            Self::Count(count) => count.len(),
        }
    }

    /// Steps for reading the value: strings are searched for escapes.
    #[inline]
    pub(super) fn work(&self) -> usize {
        self.bytes() / BYTES_READ
    }

    /// Steps for comparing two values, without those for arrays and objects.
    #[inline]
    pub(super) fn work_with(&self, other: &ComparedValue<'_>) -> usize {
        self.work() + other.work() + self.bytes().min(other.bytes())
    }

    pub(super) fn tag(&self) -> Tag {
        match self {
            Self::Nothing => Tag::Undefined,
            Self::Json(json) => tag_of(json.first()),
            Self::Plain(_) => Tag::String,
            Self::Count(_) => Tag::Number,
        }
    }

    /// The value as a string, if it is a string.
    pub(super) fn text(&self) -> Option<Text<'_>> {
        match self {
            Self::Plain(text) => Some(Text::plain(text)),
            Self::Json(json) if json.first() == Some(&b'"') => Some(Text::new(json)),
            _ => None,
        }
    }

    /// The value as JSON; empty for a decoded string or nothing.
    pub(super) fn json(&self) -> &[u8] {
        match self {
            Self::Json(json) => json,
            Self::Count(count) => count.as_bytes(),
            Self::Nothing | Self::Plain(_) => &[],
        }
    }
}

/// Compares two values. `spend` receives the steps for arrays and objects before they are taken.
pub(super) fn compare(
    comparison: Comparison,
    a: &ComparedValue<'_>,
    b: &ComparedValue<'_>,
    spend: &mut Spend<'_>,
) -> bool {
    match comparison {
        Comparison::Equal => same(a, b, spend),
        Comparison::NotEqual => !same(a, b, spend),
        Comparison::Less => less(a, b),
        Comparison::Greater => less(b, a),
        Comparison::LessOrEqual => less(a, b) || same(a, b, spend),
        Comparison::GreaterOrEqual => less(b, a) || same(a, b, spend),
    }
}

fn same(a: &ComparedValue<'_>, b: &ComparedValue<'_>, spend: &mut Spend<'_>) -> bool {
    if a.tag() != b.tag() {
        return false;
    }
    match a.tag() {
        Tag::Undefined | Tag::Null | Tag::False | Tag::True => true,
        Tag::String => a.text() == b.text(),
        Tag::Number => compare_numbers(a.json(), b.json()) == Ordering::Equal,
        Tag::Array | Tag::Object => equal_within(a.json(), b.json(), spend),
    }
}

fn less(a: &ComparedValue<'_>, b: &ComparedValue<'_>) -> bool {
    match (a.tag(), b.tag()) {
        (Tag::Number, Tag::Number) => compare_numbers(a.json(), b.json()) == Ordering::Less,
        (Tag::String, Tag::String) => a.text() < b.text(),
        _ => false,
    }
}
