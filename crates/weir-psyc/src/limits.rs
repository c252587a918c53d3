//! What a decoder accepts at most.

/// Upper bounds of a [`Parser`](crate::Parser), checked on the announcing byte, before anything is
/// kept. All of them are settings; [`Limits::DEFAULT`] is what a public port should start from.
///
/// Sizes are bytes. A value exactly as large as its limit is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Content without an announced length, from its first byte through its last LF.
    pub unsized_content: u64,
    /// Value without an announced length, in the routing header as in the entity header.
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

/// Most digits a length may have. Not a setting: it is part of the grammar.
pub const LENGTH_DIGITS_MAX: u8 = 20;

impl Limits {
    /// 64 KiB without a length, 128 MiB with one, 16 KiB and 64 modifiers of routing header,
    /// 4096 entity modifiers, names of 255 bytes.
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
