//! The functions of `weir_psyc.h`: the name, parameters and implementation of each.
//!
//! `tests/header.rs` reads this list like that of `crate::entry`. Invariant: this module only names
//! functions.
#![allow(
    unsafe_code,
    reason = "a name that C can link needs `unsafe(no_mangle)`"
)]
#![allow(
    clippy::wildcard_imports,
    reason = "it imports nearly all structures of the header"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the header has the requirements of all functions"
)]
#![allow(
    clippy::too_many_arguments,
    reason = "the header has these parameters: a caller would have to fill a structure for each call"
)]

use super::{names, parser, raw::*, render, text, uniform, walk};
use crate::guard;
use crate::handle::Caller;
use crate::raw::{Error, Slice};

/// Defines functions with a last parameter for the error.
macro_rules! codec {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $implementation:path;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type,)* error: *mut Error) -> i32 {
            // SAFETY: the pointers are those of this call, as the header says.
            let caller = unsafe { Caller::new() };
            guard::codec(stringify!($name), &caller, error, |caller| $implementation(caller, $($arg),*))
        }
    )* };
}

/// The places at which a byte is permitted.
#[unsafe(no_mangle)]
pub extern "C" fn weir_psyc_byte(byte: u8) -> u32 {
    names::byte(byte)
}

codec! {
    /// Initialises a parser.
    fn weir_psyc_parser_init(parser: *mut PsycParser, options: *const PsycParserOptions) = parser::init;
    /// Parses the next bytes.
    fn weir_psyc_parser_read(parser: *mut PsycParser, bytes: Slice, events: *mut PsycEvent, room: usize, count: *mut usize, used: *mut usize) = parser::read;
    /// The state of a parser.
    fn weir_psyc_parser_describe(parser: *const PsycParser, out: *mut PsycParserInfo) = parser::describe;

    /// The next parts of a value.
    fn weir_psyc_walk(cursor: *mut PsycCursor, bytes: Slice, parts: *mut PsycPart, room: usize, count: *mut usize, used: *mut usize) = walk::walk;
    /// The next fields of a struct value.
    fn weir_psyc_walk_struct(cursor: *mut PsycCursor, declaration: Slice, bytes: Slice, parts: *mut PsycPart, room: usize, count: *mut usize) = walk::walk_struct;
    /// Parses a packet id.
    fn weir_psyc_parse_packet_id(bytes: Slice, out: *mut PsycPacketId) = walk::packet_id;
    /// Parses an address.
    fn weir_psyc_parse_uniform(bytes: Slice, any: u32, out: *mut PsycUniform) = uniform::parse;
    /// Parses an integer.
    fn weir_psyc_integer(bytes: Slice, out: *mut i64) = names::integer;
    /// Parses a position in a list.
    fn weir_psyc_list_index(bytes: Slice, out: *mut u64) = names::list_index;
    /// Converts a date to Unix seconds.
    fn weir_psyc_date(bytes: Slice, unix_seconds: *mut i64) = names::date;
    /// Converts Unix seconds to a date.
    fn weir_psyc_date_from_unix(unix_seconds: i64, out: *mut i64) = names::date_from_unix;

    /// Whether a word inherits from another.
    fn weir_psyc_inherits(base: Slice, word: Slice) = names::inherits;
    /// Whether a word has all subwords of another.
    fn weir_psyc_matches(shorter: Slice, longer: Slice) = names::matches;
    /// The longest key that a word inherits from.
    fn weir_psyc_lookup(keys: *const Slice, count: usize, word: Slice, index: *mut usize) = names::lookup;
    /// The long name of a compact one.
    fn weir_psyc_expand(table: *const PsycCompact, count: usize, word: Slice, out: *mut Slice) = names::expand;
    /// The compact name of a long one.
    fn weir_psyc_contract(table: *const PsycCompact, count: usize, word: Slice, out: *mut Slice) = names::contract;
    /// The meaning of a name.
    fn weir_psyc_describe_name(name: Slice, out: *mut PsycName) = names::describe;
    /// The kind of peer, by its first bytes.
    fn weir_psyc_talk(bytes: Slice, out: *mut u32) = names::talk;

    /// The standard template of a method.
    fn weir_psyc_standard_template(word: Slice, out: *mut Slice) = text::standard;
    /// Fills a template.
    fn weir_psyc_render_text(text: *const PsycTemplate, cursor: *mut PsycCursor, bindings: *const PsycBinding, count: usize, out: *mut u8, room: usize, written: *mut usize) = text::render;

    /// Computes the sizes of a packet.
    fn weir_psyc_measure(packet: *const PsycPacket, out: *mut PsycSizes) = render::measure;
    /// Renders a packet.
    fn weir_psyc_render(packet: *const PsycPacket, out: *mut u8, room: usize, size: *mut usize) = render::packet;
    /// Renders the line of a modifier.
    fn weir_psyc_render_modifier(modifier: *const PsycModifier, threshold: u64, out: *mut u8, room: usize, size: *mut usize) = render::modifier;
    /// Renders a list.
    fn weir_psyc_render_list(r#type: Slice, items: *const PsycItem, count: usize, threshold: u64, out: *mut u8, room: usize, size: *mut usize) = render::list;
    /// Renders a dict.
    fn weir_psyc_render_dict(r#type: Slice, entries: *const PsycEntry, count: usize, threshold: u64, out: *mut u8, room: usize, size: *mut usize) = render::dict;
    /// Renders the key of a dict entry.
    fn weir_psyc_render_key(key: Slice, length: u32, threshold: u64, out: *mut u8, room: usize, size: *mut usize) = render::key;
    /// Renders the value of a dict entry.
    fn weir_psyc_render_value(value: *const PsycItem, threshold: u64, out: *mut u8, room: usize, size: *mut usize) = render::value;
    /// Renders an index.
    fn weir_psyc_render_index(steps: *const PsycStep, count: usize, threshold: u64, out: *mut u8, room: usize, size: *mut usize) = render::index;
    /// Renders an update.
    fn weir_psyc_render_update(steps: *const PsycStep, count: usize, operation: u32, item: *const PsycItem, threshold: u64, out: *mut u8, room: usize, size: *mut usize) = render::update;
    /// Renders a packet id.
    fn weir_psyc_render_packet_id(id: *const PsycPacketId, out: *mut u8, room: usize, size: *mut usize) = render::packet_id;
}
