//! The structures of `weir_psyc.h`, field by field. The rules of `crate::raw` apply.

#![allow(clippy::doc_markdown, reason = "the header has these sentences too")]
#![allow(
    missing_docs,
    reason = "a field without a sentence here has none in the header either"
)]

use crate::raw::Slice;

/// A parser. Set `struct_size` to sizeof, then call weir_psyc_parser_init.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycParser {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    pub reserved: u32,
    pub opaque: [u64; 39],
}

/// Limits. 0 means the default of docs/formats/psyc.md. Sizes are in bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycParserOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// 0: `WEIR_PSYC_FULL`.
    pub mode: u32,
    /// Of `WEIR_PSYC_BARE_CONTENT`: its bytes, including the final line feed.
    pub content_length: u64,
    pub unsized_content: u64,
    pub unsized_value: u64,
    pub routing_header: u64,
    pub sized_content: u64,
    pub sized_value: u64,
    pub routing_modifiers: u32,
    pub entity_modifiers: u32,
    pub name: u32,
    pub reserved: u32,
}

/// A part of a packet. Slices point into the bytes of the call. This structure never changes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycEvent {
    pub kind: u16,
    /// ':', '=', '+', '-', '@', '?' or '!'; else 0.
    pub operation: u8,
    /// 1: the length was announced.
    pub sized: u8,
    pub reserved: u32,
    pub name: Slice,
    pub value: Slice,
    /// Of `..._START`: sum of the bytes of all parts; else 0.
    pub total: u64,
}

/// The state of a parser.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycParserInfo {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// CLEAN: it is between two packets; `..._SIZED`: the length below was announced.
    pub flags: u32,
    /// Position of the next byte, counted from `weir_psyc_parser_init`.
    pub offset: u64,
    /// Of the current content.
    pub content_length: u64,
    /// Of the last returned value or data.
    pub value_length: u64,
    /// After `WEIR_NEED`: lower bound of the missing bytes; 0 if unknown.
    pub wanted: u64,
}

/// The position of a walk. Before the first call, set `what`, and set all other bytes to zero.
/// Invalid bytes are safe: they give an error or a wrong result.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycCursor {
    /// `WEIR_PSYC_LIST`, ...
    pub what: u32,
    /// Set before each call: 1 if more bytes of the list follow its bytes, else 0.
    pub partial: u32,
    pub state: [u64; 6],
}

/// A part of a value. Slices point into the bytes of the call. This structure never changes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycPart {
    pub kind: u32,
    pub operation: u32,
    /// `ptr` NULL: none.
    pub r#type: Slice,
    pub value: Slice,
    pub number: u64,
    pub sized: u32,
    pub reserved: u32,
}

/// A packet id, which is a list of exactly five elements. An absent element is empty. This
/// structure never changes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycPacketId {
    pub context: Slice,
    pub source: Slice,
    pub target: Slice,
    pub counter: Slice,
    pub fragment: Slice,
}

/// An address. Slices point into the bytes of the call; `ptr` NULL means absent.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycUniform {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    pub kind: u32,
    /// Port without its sign; 0: none.
    pub port_number: u32,
    /// UNREACHABLE: the port is negative.
    pub flags: u32,
    pub scheme: Slice,
    pub slashes: Slice,
    pub host: Slice,
    pub port: Slice,
    pub transport: Slice,
    pub slash: Slice,
    pub resource: Slice,
    pub channel: Slice,
    /// Host through transport.
    pub host_port: Slice,
    /// Start through transport.
    pub root: Slice,
    /// Start through resource.
    pub entity: Slice,
    /// Slash to the end.
    pub path: Slice,
    /// Host to the end.
    pub body: Slice,
    pub full: Slice,
    /// Resource without its type byte.
    pub nick: Slice,
}

/// A compact name, and the long name for which the two ends of a circuit use it. This structure
/// never changes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycCompact {
    pub compact: Slice,
    pub name: Slice,
}

/// The meaning of a name. Numbers are 0 if unknown.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycName {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// `WEIR_PSYC_IS_...`.
    pub flags: u32,
    /// As a routing variable.
    pub routing: u32,
    /// As a variable or a type.
    pub r#type: u32,
    /// Number of the known method that it equals or inherits from.
    pub method: u32,
    /// Family of the method.
    pub family: u32,
    /// `WEIR_PSYC_METHOD_...` of the family.
    pub method_flags: u32,
    pub reserved: u32,
    /// Name of the method, static.
    pub known: Slice,
}

/// A template.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycTemplate {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    pub reserved: u32,
    pub text: Slice,
    /// Empty: "[".
    pub open: Slice,
    /// Empty: "]".
    pub close: Slice,
}

/// The replacement of a name. Of equal names, the last one applies. This structure never changes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycBinding {
    pub name: Slice,
    pub value: Slice,
}

/// A modifier to render. This structure never changes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycModifier {
    /// The byte: ':', '=', '+', '-', '@', '?', '!'.
    pub operation: u32,
    /// `WEIR_PSYC_LENGTH_...`; has no effect in a routing header.
    pub length: u32,
    pub name: Slice,
    pub value: Slice,
}

/// A packet to render: at most 65,536 modifiers in each header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycPacket {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// RAW: `content` replaces state, entity, method and data; THRESHOLD: `threshold` is set.
    pub flags: u32,
    /// 0 none, '=' reset, '?' resync.
    pub state: u32,
    /// `WEIR_PSYC_LENGTH_...` of the content.
    pub length: u32,
    pub threshold: u64,
    pub routing: *const PsycModifier,
    /// Number of elements of `routing`.
    pub routing_count: usize,
    pub entity: *const PsycModifier,
    /// Number of elements of `entity`.
    pub entity_count: usize,
    /// Empty: none.
    pub method: Slice,
    /// Empty: none.
    pub data: Slice,
    pub content: Slice,
}

/// The sizes of a rendered packet, in bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycSizes {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// HAS_CONTENT: it has a content part; WITH_LENGTH: its length is written.
    pub flags: u32,
    /// The routing header.
    pub routing: u64,
    /// The content through its last line feed.
    pub content: u64,
    pub total: u64,
}

/// An element of a list, or the value of an entry or an update. This structure never changes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycItem {
    /// Empty: none.
    pub r#type: Slice,
    pub value: Slice,
    /// `WEIR_PSYC_LENGTH_...`.
    pub length: u32,
    pub reserved: u32,
}

/// An entry of a dict. This structure never changes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycEntry {
    pub key: Slice,
    /// `WEIR_PSYC_LENGTH_...`.
    pub key_length: u32,
    pub reserved: u32,
    pub value: PsycItem,
}

/// A step of an index. This structure never changes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PsycStep {
    /// `WEIR_PSYC_POS`, `WEIR_PSYC_FIELD` or `WEIR_PSYC_KEY`.
    pub kind: u32,
    /// Of a key: `WEIR_PSYC_LENGTH_...`.
    pub length: u32,
    /// Of a position.
    pub number: u64,
    /// Of a field or key.
    pub name: Slice,
}
