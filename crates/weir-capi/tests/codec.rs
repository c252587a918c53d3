//! The codec for C, called as from C: invalid bytes, invalid calls, and its allocations.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::host_endian_bytes,
    clippy::many_single_char_names,
    clippy::too_many_lines,
    reason = "a test of an interface for C calls it as C does, and may fail by panicking"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::{null, null_mut};

use weir_capi::raw::*;
use weir_capi::*;

#[path = "abi/kit.rs"]
#[allow(dead_code, reason = "shared with the tests of the rest")]
mod kit;
use kit::{BAD_HANDLE, BAD_LENGTH, BAD_OPTION, BAD_STRUCT, DONE, MISALIGNED, NEED, NOTHING};
use kit::{NULL_POINTER, OK, READY, sized, slice, words, zero};

const PROTOCOL: i32 = -504;
const BAD_REQUEST: i32 = -310;
const ABSENT: i32 = 6;
const NONE: *mut Error = null_mut();

/// Counts the allocations of a thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The number of allocations of this thread during `run`.
fn allocations(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

fn parser(mode: u32, content_length: u64) -> PsycParser {
    let mut parser = sized!(PsycParser);
    let mut options = sized!(PsycParserOptions);
    (options.mode, options.content_length) = (mode, content_length);
    let done = unsafe { weir_psyc_parser_init(&raw mut parser, &raw const options, NONE) };
    assert_eq!(done, OK);
    parser
}

/// Reads once. Returns the result of the call, the number of events and the bytes used.
fn read(parser: &mut PsycParser, bytes: &[u8], events: &mut [PsycEvent]) -> (i32, usize, usize) {
    let (mut count, mut used) = (usize::MAX, usize::MAX);
    let (events, room) = (events.as_mut_ptr(), events.len());
    let done = unsafe {
        weir_psyc_parser_read(
            parser,
            slice(bytes),
            events,
            room,
            &raw mut count,
            &raw mut used,
            NONE,
        )
    };
    (done, count, used)
}

fn bytes(slice: Slice) -> &'static [u8] {
    if slice.len == 0 {
        return &[];
    }
    unsafe { std::slice::from_raw_parts(slice.ptr, slice.len) }
}

const PACKET: &[u8] = b":_tag\t7\n37\n=_note 9\ttwo\nlines\n_message\nMind it.\n|\n";

#[test]
fn a_packet_is_one_batch_and_points_into_its_bytes() {
    let mut parser = parser(0, 0);
    let mut events = [zero::<PsycEvent>(); 8];
    let two = [PACKET, b"|\n"].concat();
    assert_eq!(
        read(&mut parser, &two, &mut events),
        (READY, 4, PACKET.len())
    );
    let kinds: Vec<u16> = events[..4].iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [1, 4, 8, 16]);
    assert_eq!(bytes(events[1].value), b"two\nlines");
    assert_eq!((events[1].operation, events[1].sized), (b'=', 1));
    assert_eq!(
        (bytes(events[2].name), bytes(events[2].value)),
        (&b"_message"[..], &b"Mind it."[..])
    );
    let inside = two.as_ptr_range();
    for event in &events[..3] {
        assert!(inside.contains(&event.name.ptr) && inside.contains(&event.value.ptr));
    }
    assert_eq!(
        read(&mut parser, &two[PACKET.len()..], &mut events),
        (READY, 1, 2)
    );
    assert_eq!(read(&mut parser, b"", &mut events), (NEED, 0, 0));
    let mut info = sized!(PsycParserInfo);
    assert_eq!(
        unsafe { weir_psyc_parser_describe(&raw const parser, &raw mut info, NONE) },
        OK
    );
    assert_eq!((info.flags & 1, info.offset), (1, two.len() as u64));
}

#[test]
fn the_result_does_not_depend_on_the_size_of_the_input_or_output() {
    let mut whole = Vec::new();
    let mut parser_of = parser(0, 0);
    let mut events = [zero::<PsycEvent>(); 1];
    let mut rest = PACKET;
    loop {
        let (done, count, used) = read(&mut parser_of, rest, &mut events);
        rest = &rest[used..];
        assert!(count <= 1);
        whole.push(events[0].kind);
        if done == READY {
            break;
        }
        assert_eq!(done, OK);
    }
    assert_eq!(whole, [1, 4, 8, 16]);
    let mut parser_of = parser(0, 0);
    let mut events = [zero::<PsycEvent>(); 4];
    let (mut from, mut values) = (0, Vec::new());
    for end in 1..=PACKET.len() {
        let (done, count, used) = read(&mut parser_of, &PACKET[from..end], &mut events);
        assert_eq!(done, if end == PACKET.len() { READY } else { NEED });
        for event in &events[..count] {
            if (4..12).contains(&event.kind) {
                values.extend_from_slice(bytes(event.value));
            }
        }
        from += used;
    }
    assert_eq!(values, b"two\nlinesMind it.");
}

#[test]
fn events_before_an_error_are_returned_first() {
    let mut parser = parser(0, 0);
    let mut events = [zero::<PsycEvent>(); 8];
    let input = b"\n:_a 3\tabcd\n|\n";
    let (done, count, used) = read(&mut parser, input, &mut events);
    assert_eq!((done, count, events[0].kind), (OK, 1, 4));
    for _ in 0..3 {
        let mut error = zero::<Error>();
        let (mut count, mut again) = (7, 7);
        let done = unsafe {
            weir_psyc_parser_read(
                &raw mut parser,
                slice(&input[used..]),
                events.as_mut_ptr(),
                8,
                &raw mut count,
                &raw mut again,
                &raw mut error,
            )
        };
        assert_eq!(
            (done, count, again),
            (PROTOCOL, 7, 7),
            "nothing is written with an error"
        );
        assert_eq!((error.detail, error.offset), (6, 10));
        assert!(!words(&error).is_empty());
    }
}

#[test]
fn invalid_calls_are_rejected() {
    let mut events = [zero::<PsycEvent>(); 8];
    let (mut count, mut used) = (0, 0);
    let (c, u) = (&raw mut count, &raw mut used);
    let mut good = parser(0, 0);
    unsafe {
        // Memory without a valid parser: filled with one byte, changed, or of another size.
        for byte in [0, 0xff, 0x57] {
            let mut other = zero::<PsycParser>();
            other.opaque = [u64::from_ne_bytes([byte; 8]); 39];
            assert_eq!(
                weir_psyc_parser_read(
                    &raw mut other,
                    slice(PACKET),
                    events.as_mut_ptr(),
                    8,
                    c,
                    u,
                    NONE
                ),
                BAD_HANDLE
            );
            assert_eq!(
                weir_psyc_parser_describe(
                    &raw const other,
                    std::ptr::from_mut(&mut sized!(PsycParserInfo)),
                    NONE
                ),
                BAD_HANDLE
            );
        }
        let mut moved = good;
        moved.opaque.rotate_left(1);
        assert_eq!(
            weir_psyc_parser_read(
                &raw mut moved,
                slice(PACKET),
                events.as_mut_ptr(),
                8,
                c,
                u,
                NONE
            ),
            BAD_HANDLE
        );
        for size in [0, 4, 8, 319, 4097, u32::MAX] {
            let mut short = zero::<PsycParser>();
            short.struct_size = size;
            assert_eq!(
                weir_psyc_parser_init(&raw mut short, null(), NONE),
                BAD_STRUCT,
                "{size}"
            );
        }
        // Options.
        for (mode, length) in [(4, 0), (1, 5), (u32::MAX, 0)] {
            let mut options = sized!(PsycParserOptions);
            (options.mode, options.content_length) = (mode, length);
            assert_eq!(
                weir_psyc_parser_init(&raw mut good, &raw const options, NONE),
                BAD_OPTION
            );
        }
        // NULL, lengths, alignment.
        let p = &raw mut good;
        let e = events.as_mut_ptr();
        let null_bytes = Slice {
            ptr: null(),
            len: 1,
        };
        let long = Slice {
            ptr: PACKET.as_ptr(),
            len: usize::MAX,
        };
        assert_eq!(
            weir_psyc_parser_read(null_mut(), slice(PACKET), e, 8, c, u, NONE),
            NULL_POINTER
        );
        assert_eq!(
            weir_psyc_parser_read(p, null_bytes, e, 8, c, u, NONE),
            NULL_POINTER
        );
        assert_eq!(weir_psyc_parser_read(p, long, e, 8, c, u, NONE), BAD_LENGTH);
        assert_eq!(
            weir_psyc_parser_read(p, slice(PACKET), null_mut(), 8, c, u, NONE),
            NULL_POINTER
        );
        assert_eq!(
            weir_psyc_parser_read(p, slice(PACKET), e, 0, c, u, NONE),
            BAD_LENGTH
        );
        assert_eq!(
            weir_psyc_parser_read(p, slice(PACKET), e, usize::MAX, c, u, NONE),
            BAD_LENGTH
        );
        assert_eq!(
            weir_psyc_parser_read(p, slice(PACKET), e, 8, null_mut(), u, NONE),
            NULL_POINTER
        );
        assert_eq!(
            weir_psyc_parser_read(p, slice(PACKET), e, 8, c, null_mut(), NONE),
            NULL_POINTER
        );
        let odd = e.wrapping_byte_add(1);
        assert_eq!(
            weir_psyc_parser_read(p, slice(PACKET), odd, 4, c, u, NONE),
            MISALIGNED
        );
        assert_eq!(
            weir_psyc_parser_read(p.wrapping_byte_add(4), slice(PACKET), e, 4, c, u, NONE),
            MISALIGNED
        );
        // Overlapping memory: bytes in the events, bytes in the parser, events in the parser.
        let over = Slice {
            ptr: e.cast(),
            len: 4,
        };
        assert_eq!(weir_psyc_parser_read(p, over, e, 8, c, u, NONE), BAD_OPTION);
        let over = Slice {
            ptr: p.cast::<u8>().wrapping_add(40),
            len: 4,
        };
        assert_eq!(weir_psyc_parser_read(p, over, e, 8, c, u, NONE), BAD_OPTION);
        assert_eq!(
            weir_psyc_parser_read(p, slice(PACKET), p.cast(), 2, c, u, NONE),
            BAD_OPTION
        );
        // After all these calls, the parser still reads.
        assert_eq!(
            weir_psyc_parser_read(p, slice(PACKET), e, 8, c, u, NONE),
            READY
        );
        // A cursor with any bytes is safe.
        let mut parts = [zero::<PsycPart>(); 4];
        for what in [1, 2, 3, 4, 7] {
            for fill in [0_u64, 1, 2, 3, 9, u64::MAX] {
                let mut cursor = zero::<PsycCursor>();
                (cursor.what, cursor.state) = (what, [fill; 6]);
                for _ in 0..4 {
                    let done = weir_psyc_walk(
                        &raw mut cursor,
                        slice(b"_t| a|3 b|c"),
                        parts.as_mut_ptr(),
                        4,
                        c,
                        u,
                        NONE,
                    );
                    assert!(done > 0 || done == PROTOCOL, "{what} {fill}: {done}");
                    assert!(used <= 11);
                }
            }
        }
        for (what, partial) in [(0, 0), (5, 0), (6, 0), (8, 0), (2, 1), (7, 1), (1, 2)] {
            let mut cursor = zero::<PsycCursor>();
            (cursor.what, cursor.partial) = (what, partial);
            assert_eq!(
                weir_psyc_walk(&raw mut cursor, NOTHING, parts.as_mut_ptr(), 4, c, u, NONE),
                BAD_OPTION
            );
        }
        let (p, declaration) = (parts.as_mut_ptr(), slice(b"|=_a|=_b"));
        for fill in [0_u64, 1, 2, 3, 9, u64::MAX] {
            let mut cursor = zero::<PsycCursor>();
            (cursor.what, cursor.state) = (6, [fill; 6]);
            for _ in 0..4 {
                let value = slice(b"_t| a|3 b|c");
                let done =
                    weir_psyc_walk_struct(&raw mut cursor, declaration, value, p, 4, c, NONE);
                assert!(done > 0 || done == PROTOCOL, "{fill}: {done}");
            }
        }
        let mut cursor = zero::<PsycCursor>();
        let k = &raw mut cursor;
        let walk =
            |k, declaration, room| weir_psyc_walk_struct(k, declaration, NOTHING, p, room, c, NONE);
        assert_eq!(walk(k, declaration, 4), BAD_OPTION);
        (*k).what = 6;
        assert_eq!(walk(k, declaration, 0), BAD_LENGTH);
        let over = Slice {
            ptr: p.cast(),
            len: 4,
        };
        assert_eq!(walk(k, over, 4), BAD_OPTION);
        let missing = null_mut();
        let done = weir_psyc_walk_struct(missing, declaration, NOTHING, p, 4, c, NONE);
        assert_eq!(done, NULL_POINTER);
        // A slice of the table that is not memory.
        let wrong = Slice {
            ptr: null(),
            len: 1,
        };
        let entry = |name| PsycCompact {
            compact: slice(b"m"),
            name,
        };
        let table = [entry(wrong), entry(slice(b"_message"))];
        let mut out = NOTHING;
        let (t, o) = (table.as_ptr(), &raw mut out);
        let word = slice(b"m");
        assert_eq!(weir_psyc_expand(t, 2, word, o, NONE), NULL_POINTER);
        assert_eq!(weir_psyc_expand(null(), 1, word, o, NONE), NULL_POINTER);
        assert_eq!(
            weir_psyc_render_key(word, 3, 9, null_mut(), 0, c, NONE),
            BAD_OPTION
        );
        assert_eq!(
            weir_psyc_render_value(null(), 9, null_mut(), 0, c, NONE),
            NULL_POINTER
        );
    }
}

#[test]
fn an_index_is_rendered_from_its_steps() {
    let step = |kind: u32, number: u64, name: &'static [u8]| PsycStep {
        kind,
        length: 0,
        number,
        name: slice(name),
    };
    let steps = [step(8, 1, b""), step(6, 0, b"a}b"), step(9, 0, b"_x")];
    let expect = b"#1{3 a}b}._x";
    let (mut out, mut size) = ([0; 32], 0);
    let (list, o, s) = (steps.as_ptr(), out.as_mut_ptr(), &raw mut size);
    let render = |list, count, room| unsafe {
        let kind = weir_psyc_render_index(list, count, 9, o, room, s, NONE);
        (kind, *s)
    };
    assert_eq!(render(list, 3, expect.len()), (OK, expect.len()));
    assert_eq!(render(list, 3, expect.len() - 1), (NEED, expect.len()));
    assert_eq!(render(list, 0, 32), (OK, 0));
    let wrong = [step(9, 0, b"_x"), step(9, 0, b"not a name")];
    assert_eq!(render(wrong.as_ptr(), 2, 32).0, BAD_REQUEST);
    let wrong = [step(7, 0, b"_x")];
    assert_eq!(render(wrong.as_ptr(), 1, 32).0, BAD_OPTION);
    assert_eq!(render(null(), 1, 32).0, NULL_POINTER);
    assert_eq!(&out[..expect.len()], expect);
}

#[test]
fn bytes_that_overlap_the_cursor_are_rejected() {
    let mut cursor = zero::<PsycCursor>();
    let k = &raw mut cursor;
    let inside = Slice {
        ptr: k.cast::<u8>().wrapping_add(16),
        len: 4,
    };
    let mut parts = [zero::<PsycPart>(); 4];
    let mut out = [0_u8; 8];
    let (mut count, mut used) = (0, 0);
    let (p, o, c, u) = (
        parts.as_mut_ptr(),
        out.as_mut_ptr(),
        &raw mut count,
        &raw mut used,
    );
    unsafe {
        (*k).what = 1;
        assert_eq!(weir_psyc_walk(k, inside, p, 4, c, u, NONE), BAD_OPTION);
        (*k).what = 6;
        for (declaration, value) in [(inside, NOTHING), (NOTHING, inside)] {
            let done = weir_psyc_walk_struct(k, declaration, value, p, 4, c, NONE);
            assert_eq!(done, BAD_OPTION);
        }
        (*k).what = 5;
        let text = |part, name, value| {
            let mut template = sized!(PsycTemplate);
            template.text = part;
            let binding = PsycBinding { name, value };
            weir_psyc_render_text(&raw const template, k, &raw const binding, 1, o, 8, c, NONE)
        };
        let word = slice(b"word");
        assert_eq!(text(inside, word, word), BAD_OPTION);
        assert_eq!(text(word, inside, word), BAD_OPTION);
        assert_eq!(text(word, word, inside), BAD_OPTION);
        assert_eq!(text(word, word, word), ABSENT);
        let mut template = sized!(PsycTemplate);
        template.reserved = 1;
        let reserved = weir_psyc_render_text(&raw const template, k, null(), 0, o, 8, c, NONE);
        assert_eq!(reserved, BAD_OPTION);
    }
}

#[test]
fn an_output_that_overlaps_the_input_or_is_too_small_is_not_written() {
    let mut memory = *b"_nameheron..........";
    let mut size = 0;
    unsafe {
        let at = memory.as_mut_ptr();
        let mut modifier = zero::<PsycModifier>();
        modifier.operation = u32::from(b':');
        modifier.name = Slice { ptr: at, len: 5 };
        modifier.value = Slice {
            ptr: at.wrapping_add(5),
            len: 5,
        };
        let m = &raw mut modifier;
        let s = &raw mut size;
        assert_eq!(
            weir_psyc_render_modifier(m, 9, at.wrapping_add(8), 12, s, NONE),
            BAD_OPTION
        );
        assert_eq!(&memory, b"_nameheron..........");
        assert_eq!(
            weir_psyc_render_modifier(m, 9, null_mut(), 0, s, NONE),
            NEED
        );
        assert_eq!(size, 13);
        let mut out = [0xaa_u8; 16];
        assert_eq!(
            weir_psyc_render_modifier(m, 9, out.as_mut_ptr(), 12, s, NONE),
            NEED
        );
        assert_eq!(out, [0xaa; 16]);
        assert_eq!(
            weir_psyc_render_modifier(m, 9, out.as_mut_ptr(), 13, s, NONE),
            OK
        );
        assert_eq!(&out[..14], b":_name\theron\n\xaa");
        // The modifiers themselves overlap the output.
        let mut packet = sized!(PsycPacket);
        (packet.routing, packet.routing_count) = (m, 1);
        let inside = m.cast::<u8>();
        assert_eq!(
            weir_psyc_render(&raw const packet, inside, 40, s, NONE),
            BAD_OPTION
        );
        // Values of the packet that do not exist.
        packet.flags = 4;
        assert_eq!(
            weir_psyc_render(&raw const packet, null_mut(), 0, s, NONE),
            BAD_OPTION
        );
        (packet.flags, packet.state) = (0, 7);
        assert_eq!(
            weir_psyc_render(&raw const packet, null_mut(), 0, s, NONE),
            BAD_OPTION
        );
        (packet.state, packet.routing_count) = (0, 65_537);
        assert_eq!(
            weir_psyc_render(&raw const packet, null_mut(), 0, s, NONE),
            BAD_LENGTH
        );
        packet.routing_count = 1;
        (*m).length = 3;
        let mut error = zero::<Error>();
        assert_eq!(
            weir_psyc_render(&raw const packet, null_mut(), 0, s, &raw mut error),
            BAD_OPTION
        );
        ((*m).length, (*m).name) = (0, NOTHING);
        assert_eq!(
            weir_psyc_render(&raw const packet, null_mut(), 0, s, &raw mut error),
            BAD_REQUEST
        );
        assert_eq!(error.detail, 1);
    }
}

/// Calls functions of each kind with valid bytes and with invalid ones.
fn all_of_it(events: &mut [PsycEvent], parts: &mut [PsycPart], out: &mut [u8]) {
    let mut error = zero::<Error>();
    let e = &raw mut error;
    let (mut count, mut used, mut size) = (0, 0, 0);
    let (c, u, s) = (&raw mut count, &raw mut used, &raw mut size);
    let (o, room) = (out.as_mut_ptr(), out.len());
    unsafe {
        for input in [PACKET, b"\n:_a 3\tabcd\n|\n", b"x", b"3\n="] {
            let mut parser = parser(0, 0);
            let mut rest = input;
            for _ in 0..3 {
                if weir_psyc_parser_read(
                    &raw mut parser,
                    slice(rest),
                    events.as_mut_ptr(),
                    events.len(),
                    c,
                    u,
                    e,
                ) > 0
                {
                    rest = &rest[used..];
                }
            }
        }
        for what in 1..=4 {
            for value in [
                "_t| a|3 abc|=_u:1 x",
                "_t{k} v{3 abc}=_u:1 x",
                "#1{k}._f",
                "{k} =_t:2 ab",
                "|3",
                "{",
                "#",
            ] {
                let mut cursor = zero::<PsycCursor>();
                cursor.what = what;
                weir_psyc_walk(
                    &raw mut cursor,
                    slice(value.as_bytes()),
                    parts.as_mut_ptr(),
                    parts.len(),
                    c,
                    u,
                    e,
                );
            }
        }
        for uniform in ["psyc://h:4404d/@a#b", "xmpp:a@b", "psyc:", ""] {
            weir_psyc_parse_uniform(
                slice(uniform.as_bytes()),
                1,
                std::ptr::from_mut(&mut sized!(PsycUniform)),
                e,
            );
        }
        let keys = [slice(b"_notice"), slice(b"_notice_context")];
        assert_eq!(
            weir_psyc_lookup(keys.as_ptr(), 2, slice(b"_notice_context_enter"), c, e),
            OK
        );
        assert_eq!(count, 1);
        assert_eq!(
            weir_psyc_lookup(keys.as_ptr(), 2, slice(b"_note"), c, e),
            ABSENT
        );
        weir_psyc_matches(slice(b"_a"), slice(b"a"), e);
        weir_psyc_describe_name(
            slice(b"_notice_foo"),
            std::ptr::from_mut(&mut sized!(PsycName)),
            e,
        );
        let mut modifier = zero::<PsycModifier>();
        modifier.operation = u32::from(b'=');
        (modifier.name, modifier.value) = (slice(b"_level"), slice(b"1234567890"));
        let mut packet = sized!(PsycPacket);
        (packet.routing, packet.routing_count) = (&raw const modifier, 1);
        (packet.entity, packet.entity_count) = (&raw const modifier, 1);
        (packet.method, packet.data) = (slice(b"_m"), slice(b"|"));
        assert_eq!(weir_psyc_render(&raw const packet, o, room, s, e), OK);
        assert_eq!(weir_psyc_render(&raw const packet, o, 3, s, e), NEED);
        assert_eq!(
            weir_psyc_measure(
                &raw const packet,
                std::ptr::from_mut(&mut sized!(PsycSizes)),
                e
            ),
            OK
        );
        packet.method = NOTHING;
        assert_eq!(
            weir_psyc_render(&raw const packet, o, room, s, e),
            BAD_REQUEST
        );
        let mut entry = zero::<PsycEntry>();
        (entry.key, entry.value.value) = (slice(b"4x"), slice(b"v{"));
        assert_eq!(
            weir_psyc_render_list(slice(b"_t"), &raw const entry.value, 1, 9, o, room, s, e),
            OK
        );
        assert_eq!(
            weir_psyc_render_dict(NOTHING, &raw const entry, 1, 9, o, room, s, e),
            OK
        );
        let mut template = sized!(PsycTemplate);
        template.text = slice(b"Hello [_nick]!");
        let binding = PsycBinding {
            name: slice(b"_nick"),
            value: slice(b"heron"),
        };
        let mut cursor = zero::<PsycCursor>();
        cursor.what = 5;
        assert_eq!(
            weir_psyc_render_text(
                &raw const template,
                &raw mut cursor,
                &raw const binding,
                1,
                o,
                4,
                s,
                e
            ),
            NEED
        );
        assert_eq!(
            weir_psyc_render_text(
                &raw const template,
                &raw mut cursor,
                &raw const binding,
                1,
                o,
                room,
                s,
                e
            ),
            DONE
        );
        assert_eq!(&out[..size], b"o heron!");
    }
}

#[test]
fn nothing_is_allocated_for_any_bytes() {
    let mut events = vec![zero::<PsycEvent>(); 16];
    let mut parts = vec![zero::<PsycPart>(); 16];
    let mut out = vec![0_u8; 256];
    // The first run allocates the data that a thread creates once.
    all_of_it(&mut events, &mut parts, &mut out);
    let counted = allocations(|| all_of_it(&mut events, &mut parts, &mut out));
    assert_eq!(counted, 0);
    assert!(allocations(|| drop(Box::new(1))) > 0, "the counter counts");
}
