//! The limits of a decoder.

/// Upper bounds of a [`Parser`](crate::Parser). Each bound is checked at the byte that announces
/// the size, before anything is stored. All bounds are settings; start a public port with
/// [`Limits::DEFAULT`].
///
/// Sizes are in bytes. A value exactly as large as its limit is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Content without an announced length, from its first byte through its last LF.
    pub unsized_content: u64,
    /// Value without an announced length, in the routing header and in the entity header.
    pub unsized_value: u64,
    /// All routing modifier lines of one packet together, line feeds included.
    pub routing_header: u64,
    /// Number of routing modifiers of one packet.
    pub routing_modifiers: u32,
    /// Number of entity modifiers of one packet.
    pub entity_modifiers: u32,
    /// Content with an announced length.
    pub sized_content: u64,
    /// Value with an announced length.
    pub sized_value: u64,
    /// Variable name or method.
    pub name: u32,
}

/// Maximum number of digits of a length. Not a setting: it is part of the grammar.
pub const LENGTH_DIGITS_MAX: u8 = 20;

impl Limits {
    /// Content and value: 64 KiB without a length, 128 MiB with one. Routing header: 16 KiB and 64
    /// modifiers. 4096 entity modifiers. Names of 255 bytes.
    pub const DEFAULT: Limits = Limits {
        unsized_content: 64 << 10,
        unsized_value: 64 << 10,
        routing_header: 16 << 10,
        routing_modifiers: 64,
        entity_modifiers: 4096,
        sized_content: 128 << 20,
        sized_value: 128 << 20,
        name: 255,
    };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}
