//! The types of JSON values, in their order, and how strings are ordered.

use weir_scan::Tag;

/// What a value is, in the ascending order of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// The path found nothing.
    Undefined = 0,
    /// `null`.
    Null = 1,
    /// `false`.
    False = 2,
    /// `true`.
    True = 3,
    /// A number.
    Number = 4,
    /// A string.
    String = 5,
    /// An array.
    Array = 6,
    /// An object.
    Object = 7,
}

/// How strings are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strings {
    /// By Unicode scalar values, which is the byte order of UTF-8.
    #[default]
    Scalar,
    /// By UTF-16 code units, as some services sort.
    Utf16,
}

/// The kind of a scanned value.
pub(crate) const fn kind(tag: Tag) -> Kind {
    match tag {
        Tag::Undefined => Kind::Undefined,
        Tag::Null => Kind::Null,
        Tag::False => Kind::False,
        Tag::True => Kind::True,
        Tag::Number => Kind::Number,
        Tag::String => Kind::String,
        Tag::Array => Kind::Array,
        Tag::Object => Kind::Object,
    }
}
