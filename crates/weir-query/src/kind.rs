//! The types of JSON values, in their order, and how strings are ordered.

/// The type of a value, in the ascending order of types.
pub use weir_scan::Tag as Kind;

/// How strings are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strings {
    /// By Unicode scalar values, which is the byte order of UTF-8.
    #[default]
    Scalar,
    /// By UTF-16 code units, as some services sort.
    Utf16,
}
