//! The functions of `weir_psyc.h`: what each is called, what it takes, where it is done.
//!
//! `tests/header.rs` reads this list like that of `crate::entry`. Invariant: this module only names
//! functions.
#![allow(unsafe_code, reason = "a name that C finds is `unsafe(no_mangle)`")]
#![allow(
    clippy::wildcard_imports,
    reason = "the structures of the header, nearly all of them"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "what a caller has to keep to is the header, for all functions alike"
)]
#![allow(
    clippy::too_many_arguments,
    reason = "those of the header: structures for them would have to be filled for each call"
)]

use super::{names, parser, raw::*, render, text, uniform, walk};
use crate::guard;
use crate::handle::Caller;
use crate::raw::{Error, Slice};

/// Functions that say what went wrong: each gets a last parameter for it.
macro_rules! codec {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $place:path;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type,)* error: *mut Error) -> i32 {
            // SAFETY: the pointers are those of this call, as the header says.
            let caller = unsafe { Caller::new() };
            guard::codec(stringify!($name), &caller, error, |caller| $place(caller, $($arg),*))
        }
    )* };
}

/// Where a byte may stand.
#[unsafe(no_mangle)]
pub extern "C" fn weir_psyc_byte(byte: u8) -> u32 {
    names::byte(byte)
}

codec! {
    /// Begins.
    fn weir_psyc_parser_init(parser: *mut PsycParser, options: *const PsycParserOptions) = parser::init;
    /// Reads on.
    fn weir_psyc_parser_read(parser: *mut PsycParser, bytes: Slice, events: *mut PsycEvent, room: usize, count: *mut usize, used: *mut usize) = parser::read;
    /// Where a parser stands.
    fn weir_psyc_parser_describe(parser: *const PsycParser, out: *mut PsycParserInfo) = parser::describe;

    /// Walks on in a value.
    fn weir_psyc_walk(cursor: *mut PsycCursor, bytes: Slice, parts: *mut PsycPart, room: usize, count: *mut usize, used: *mut usize) = walk::walk;
    /// A packet id.
    fn weir_psyc_parse_packet_id(bytes: Slice, out: *mut PsycPacketId) = walk::packet_id;
    /// An address.
    fn weir_psyc_parse_uniform(bytes: Slice, any: u32, out: *mut PsycUniform) = uniform::parse;
    /// A whole number.
    fn weir_psyc_integer(bytes: Slice, out: *mut i64) = names::integer;
    /// A position in a list.
    fn weir_psyc_list_index(bytes: Slice, out: *mut u64) = names::list_index;
    /// Unix seconds of a date.
    fn weir_psyc_date(bytes: Slice, unix_seconds: *mut i64) = names::date;
    /// The other way.
    fn weir_psyc_date_from_unix(unix_seconds: i64, out: *mut i64) = names::date_from_unix;

    /// Whether a word continues another.
    fn weir_psyc_inherits(base: Slice, word: Slice) = names::inherits;
    /// Whether subwords are in a word.
    fn weir_psyc_matches(shorter: Slice, longer: Slice) = names::matches;
    /// The longest key that a word inherits from.
    fn weir_psyc_lookup(keys: *const Slice, count: usize, word: Slice, index: *mut usize) = names::lookup;
    /// What a name means.
    fn weir_psyc_describe_name(name: Slice, out: *mut PsycName) = names::describe;
    /// Who talks.
    fn weir_psyc_talk(bytes: Slice, out: *mut u32) = names::talk;

    /// The standard template of a method.
    fn weir_psyc_standard_template(word: Slice, out: *mut Slice) = text::standard;
    /// Fills a template.
    fn weir_psyc_render_text(text: *const PsycTemplate, cursor: *mut PsycCursor, bindings: *const PsycBinding, count: usize, out: *mut u8, room: usize, written: *mut usize) = text::render;

    /// Sizes of a packet.
    fn weir_psyc_measure(packet: *const PsycPacket, out: *mut PsycSizes) = render::measure;
    /// A packet's bytes.
    fn weir_psyc_render(packet: *const PsycPacket, out: *mut u8, room: usize, size: *mut usize) = render::packet;
    /// A modifier's line.
    fn weir_psyc_render_modifier(modifier: *const PsycModifier, threshold: u64, out: *mut u8, room: usize, size: *mut usize) = render::modifier;
    /// A list.
    fn weir_psyc_render_list(r#type: Slice, items: *const PsycItem, count: usize, threshold: u64, out: *mut u8, room: usize, size: *mut usize) = render::list;
    /// A dict.
    fn weir_psyc_render_dict(r#type: Slice, entries: *const PsycEntry, count: usize, threshold: u64, out: *mut u8, room: usize, size: *mut usize) = render::dict;
    /// An update.
    fn weir_psyc_render_update(steps: *const PsycStep, count: usize, operation: u32, item: *const PsycItem, threshold: u64, out: *mut u8, room: usize, size: *mut usize) = render::update;
    /// A packet id.
    fn weir_psyc_render_packet_id(id: *const PsycPacketId, out: *mut u8, room: usize, size: *mut usize) = render::packet_id;
}
