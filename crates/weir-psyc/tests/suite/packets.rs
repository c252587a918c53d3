//! The packet vectors and the packet files.

use crate::feed::{feed, printed};
use crate::render::rerender;
use crate::{oracle, vectors};
use weir_psyc::{Limits, Mode, PacketReader, PacketView, Variable};

fn mode_of(case: &vectors::Case, input: &[u8]) -> Mode {
    match case.setting("mode") {
        None => Mode::Full,
        Some("routing-only") => Mode::RoutingOnly,
        Some("content") => Mode::Content {
            length: input.len() as u64,
        },
        Some(other) => panic!("{}: mode {other}", case.title),
    }
}

#[test]
fn packet_vectors_hold_for_every_cut() {
    let cases = vectors::read("packets.txt", &["in", "mode"]);
    let mut feeds = 0;
    for case in &cases {
        let input = case.bytes("in").expect("input");
        let mode = mode_of(case, &input);
        case.check(&printed(mode, false, std::iter::once(&input[..])), "whole");
        case.check(&printed(mode, false, input.chunks(1)), "byte by byte");
        for cut in (0..=input.len()).step_by(if cfg!(miri) { 67 } else { 1 }) {
            let (front, after) = input.split_at(cut);
            case.check(
                &printed(mode, false, [front, after].into_iter()),
                "in two pieces",
            );
        }
        let expected = oracle::parse(mode, Limits::DEFAULT, &input);
        assert_eq!(
            feed(mode, Limits::DEFAULT, input.chunks(1)),
            expected,
            "{}",
            case.title
        );
        feeds += input.len() + 3;
    }
    println!("packets.txt: {} cases in {feeds} feedings", cases.len());
    assert!(cases.len() >= 36);
}

#[test]
fn a_sized_body_fed_byte_by_byte_is_reported_byte_by_byte() {
    let cases = vectors::read("packets.txt", &["in", "mode"]);
    let case = cases
        .iter()
        .find(|case| case.title.contains("E05"))
        .expect("E05");
    let input = case.bytes("in").expect("input");
    let text = printed(Mode::Full, true, input.chunks(1));
    let body: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("body"))
        .collect();
    assert_eq!(body.len(), 19);
    assert_eq!(body[0], "body-start\t_message\t18\t");
    assert!(
        body[1..18]
            .iter()
            .all(|line| line.starts_with("body-cont\t") && line.len() == 11)
    );
    assert_eq!(body[18], "body-end\t.");
}

/// The benchmark packet files with the extension `ending`.
fn files(ending: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(vectors::folder().join("packets"))
        .expect("folder")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .map(|path| {
            (
                path.display().to_string(),
                std::fs::read(path).expect("file"),
            )
        })
        .collect();
    files.sort();
    files
}

#[test]
fn packet_files_parse_and_render_to_themselves() {
    let files = files("psyc");
    assert_eq!(files.len(), 12);
    for (name, bytes) in &files {
        let (packet, size) = PacketView::parse(bytes).expect(name).expect(name);
        assert_eq!(size, bytes.len(), "{name}");
        assert!(!packet.method().is_empty(), "{name}");
        assert_eq!(&rerender(bytes), bytes, "{name}");
        let outcome = feed(Mode::Full, Limits::DEFAULT, bytes.chunks(7));
        assert_eq!(
            outcome,
            oracle::parse(Mode::Full, Limits::DEFAULT, bytes),
            "{name}"
        );
    }
    println!("packets/*.psyc: {} files", files.len());
}

/// The `SplitMix64` sequence seeded with `size`, each value low byte first, truncated to `size`
/// bytes.
fn noise(size: usize) -> Vec<u8> {
    let mut state = size as u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = state;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(value ^ (value >> 31)).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

#[test]
fn the_generator_reproduces_the_first_binary_packet() {
    let data = noise(7000);
    let content = [&b":_type\traw\n_data\n"[..], &data, b"\n"].concat();
    let packet = [format!("{}\n", content.len()).as_bytes(), &content, b"|\n"].concat();
    let stored = std::fs::read(vectors::folder().join("packets/binary-7K.psyc")).expect("file");
    assert_eq!(packet, stored);
    let (view, _) = PacketView::parse(&packet).expect("packet").expect("whole");
    assert_eq!(view.data(), data);
    assert_eq!(
        view.entity_variable(b"_type").map(|found| found.value),
        Some(&b"raw"[..])
    );
}

#[test]
fn a_packet_view_equals_the_events_of_the_parser() {
    let bytes = b":_tag\t7\n=_x\t\n40\n?\n:_a 3\tx\ny\n+_b\tz\n:_a\tagain\n_m\nhi\n|\nyou\n|\n|\n";
    let (packet, size) = PacketView::parse(bytes).expect("packet").expect("whole");
    assert_eq!(size, bytes.len() - 2);
    let pairs =
        |variable: Variable<'static>| (variable.operator.byte(), variable.name, variable.value);
    let routing: Vec<_> = packet.routing().map(pairs).collect();
    assert_eq!(
        routing,
        [(b':', &b"_tag"[..], &b"7"[..]), (b'=', b"_x", b"")]
    );
    let entity: Vec<_> = packet.entity().map(pairs).collect();
    let expected = [
        (b':', &b"_a"[..], &b"x\ny"[..]),
        (b'+', b"_b", b"z"),
        (b':', b"_a", b"again"),
    ];
    assert_eq!(entity, expected);
    assert_eq!(packet.state(), Some(weir_psyc::StateOperation::Resync));
    assert_eq!(
        (packet.method(), packet.data()),
        (&b"_m"[..], &b"hi\n|\nyou"[..])
    );
    assert_eq!(packet.content().map(<[u8]>::len), Some(40));
    assert!(packet.is_sized());
    assert_eq!(
        packet.entity_variable(b"_a").map(|found| found.value),
        Some(&b"again"[..])
    );
    for cut in 0..size {
        assert_eq!(PacketView::parse(&bytes[..cut]), Ok(None), "cut at {cut}");
    }
    let (empty, _) = PacketView::parse(b"|\n").expect("packet").expect("whole");
    assert_eq!((empty.content(), empty.routing().count()), (None, 0));
    // Sized values at the end of a header, with and without a method after them.
    for bytes in [
        &b"12\n:_foo 3\tbar\n|\n"[..],
        b"\n:_foo 3\tbar\n|\n",
        b"\n:_foo 3\tbar\n_m\n|\n",
    ] {
        let (packet, _) = PacketView::parse(bytes).expect("packet").expect("whole");
        assert_eq!(
            packet.entity().map(|found| found.value).collect::<Vec<_>>(),
            [b"bar"]
        );
    }
}

#[test]
fn a_reader_returns_whole_packets_for_every_piece_size() {
    let stream: Vec<u8> = files("psyc")
        .into_iter()
        .flat_map(|(_, bytes)| bytes)
        .collect();
    let pieces = [1, 2, 3, 17, 100, 4096, stream.len()];
    for piece in pieces.into_iter().skip(if cfg!(miri) { 3 } else { 0 }) {
        let mut reader = PacketReader::new();
        let mut packets = 0;
        let mut bytes = 0;
        for piece in stream.chunks(piece) {
            reader.feed(piece);
            while let Some(packet) = reader.next_packet().expect("packets") {
                packets += 1;
                bytes += packet.data().len();
            }
        }
        assert!(reader.is_clean());
        assert_eq!((packets, bytes > 7000), (12, true));
    }
    let mut reader = PacketReader::new();
    reader.feed(b"|\n.");
    assert!(reader.next_packet().expect("greeting").is_some());
    assert!(reader.next_packet().is_err());
    reader.feed(b"|\n");
    assert!(reader.next_packet().is_err(), "nothing after an error");
}

#[test]
fn long_lines_fed_byte_by_byte_are_reported_whole() {
    let length = if cfg!(miri) { 600 } else { 60_000 };
    let long = vec![b'a'; length];
    let inputs = [
        [b":_v\t", &long[..], b"\n|\n"].concat(),
        [b"\n:_v\t", &long[..], b"\n|\n"].concat(),
        [b"\n_m\n", &long[..], b"\n|\n"].concat(),
        [b"\n_m\n", &b"\n|".repeat(length / 2)[..], b"\n|\n"].concat(),
    ];
    let limits = Limits {
        routing_header: 1 << 20,
        ..Limits::DEFAULT
    };
    for input in &inputs {
        let outcome = feed(Mode::Full, limits, input.chunks(1));
        assert_eq!(outcome.error, None);
        assert!(outcome.clean);
    }
}

#[test]
fn accessors_return_the_announced_lengths() {
    let bytes = b":_t\t1\n22\n:_a 3\tx\ny\n:_b\tz\n_m\nhi\n|\n\n:_a 0\t\n_m\nhi\n|\n";
    let mut parser = weir_psyc::Parser::new(Mode::Full);
    let mut seen = Vec::new();
    loop {
        let step = parser.step(bytes);
        if let weir_psyc::ParseStep::NeedMore(_) = step {
            break;
        }
        seen.push((parser.content_length(), parser.value_length()));
    }
    let expected = [
        (None, None),
        (Some(22), Some(3)),
        (Some(22), None),
        (Some(22), Some(2)),
        (None, None),
        (None, Some(0)),
        (None, None),
        (None, None),
    ];
    assert_eq!(seen, expected);
    assert_eq!(
        (parser.offset(), parser.remaining(bytes)),
        (bytes.len() as u64, 0)
    );
}

#[test]
fn a_length_of_an_earlier_value_is_not_reported_again() {
    // The end mark of the last packet is missing, so the parser waits for it.
    let cases: [(Mode, &[u8]); 5] = [
        (Mode::Full, b"5\n_m\nx\n|\n8\n:_a\tbcd\n"),
        (Mode::Full, b"5\n_m\nx\n|\n0\n"),
        (Mode::RoutingOnly, b"3\n_m\n"),
        (Mode::RoutingOnly, b"0\n"),
        (Mode::Content { length: 0 }, b""),
    ];
    for (mode, bytes) in cases {
        let mut parser = weir_psyc::Parser::new(mode);
        assert_eq!(parser.value_length(), None, "{mode:?}");
        loop {
            match parser.step(bytes) {
                weir_psyc::ParseStep::Error(error) => panic!("{mode:?}: {error}"),
                weir_psyc::ParseStep::NeedMore(_) => break,
                _ => {}
            }
        }
        assert_eq!(parser.value_length(), None, "{}", bytes.escape_ascii());
    }
}

/// The bytes that occur in the contents below.
const ALPHABET: &[u8] = b":=a012\t\n |";

/// Checks that each accepted start of a packet can be completed: an error is at the first byte
/// after which no input completes the packet. Returns the number of starts that were checked.
fn check_every_start_can_be_completed(packet: &mut Vec<u8>) -> usize {
    let mut checked = 0;
    let mut stuck = true;
    for &byte in ALPHABET {
        packet.push(byte);
        let outcome = feed(Mode::Full, Limits::DEFAULT, std::iter::once(&packet[..]));
        if outcome.error.is_none() {
            stuck = false;
            checked += 1;
            if !outcome.clean {
                checked += check_every_start_can_be_completed(packet);
            }
        }
        packet.pop();
    }
    assert!(!stuck, "nothing can follow {}", packet.escape_ascii());
    checked
}

#[test]
fn an_error_is_at_the_first_byte_that_no_packet_can_contain() {
    let starts = [
        "0\n", "2\n", "3\n", "4\n", "5\n", "6\n:", "7\n:a ", "8\n:a ", "9\n:a ", "10\n:a ",
        "11\n:a 0", "9\n=\n:", "8\n:a\t",
    ];
    // Every continuation is tried; under Miri, only those of the two shortest starts.
    let most = if cfg!(miri) { 2 } else { starts.len() };
    for start in starts.into_iter().take(most) {
        let checked = check_every_start_can_be_completed(&mut start.as_bytes().to_vec());
        assert!(checked > 1, "{start:?}");
    }
    for (input, offset) in [
        ("1\n", 1),
        ("3\n=", 2),
        ("3\n?", 2),
        ("8\n:a 1", 5),
        ("7\n:a 000", 7),
        ("8\n:a 00\t", 7),
        ("6\n:a\tx\n", 6),
    ] {
        let outcome = feed(
            Mode::Full,
            Limits::DEFAULT,
            std::iter::once(input.as_bytes()),
        );
        assert_eq!(outcome.error, Some((-2, offset)), "{input:?}");
    }
}
