//! Generates packets, valid and damaged, from random choices.

use proptest::collection::vec;
use proptest::prelude::*;
use weir_psyc::Limits;

/// A keyword, mostly short.
pub fn keyword() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![8 => Just(b'_'), 1 => Just(b'7'), 1 => Just(b'Z'), 20 => b'a'..=b'e'];
    vec(byte, 1..14)
}

/// Bytes that resemble syntax.
pub fn data() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => Just(b'\n'),
        3 => Just(b'|'),
        1 => Just(b'\t'),
        1 => Just(b' '),
        1 => Just(b':'),
        1 => Just(0u8),
        8 => b'a'..=b'z',
        1 => any::<u8>(),
    ];
    vec(byte, 0..40)
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    data().prop_map(|bytes| bytes.into_iter().filter(|&byte| byte != b'\n').collect())
}

fn operator() -> impl Strategy<Value = u8> {
    proptest::sample::select(b":=+-@?!".to_vec())
}

fn routing() -> impl Strategy<Value = Vec<u8>> {
    (operator(), keyword(), line())
        .prop_map(|(operator, name, value)| [&[operator], &name[..], b"\t", &value, b"\n"].concat())
}

fn entity() -> impl Strategy<Value = Vec<u8>> {
    let sized =
        (operator(), keyword(), data(), 0i8..12).prop_map(|(operator, name, value, off)| {
            // Sometimes the length is wrong by one.
            let length = match off {
                0 => value.len() + 1,
                1 => value.len().saturating_sub(1),
                _ => value.len(),
            };
            let length = format!(" {length}\t").into_bytes();
            [&[operator], &name[..], &length, &value, b"\n"].concat()
        });
    prop_oneof![2 => routing(), 1 => sized]
}

/// A content, usually valid.
pub fn content() -> impl Strategy<Value = Vec<u8>> {
    let state = prop_oneof![4 => Just(&b""[..]), 1 => Just(&b"=\n"[..]), 1 => Just(&b"?\n"[..])];
    let body = prop_oneof![
        1 => Just(Vec::new()),
        1 => keyword().prop_map(|method| [&method[..], b"\n"].concat()),
        3 => (keyword(), data()).prop_map(|(method, data)| [&method[..], b"\n", &data, b"\n"].concat()),
    ];
    (state, vec(entity(), 0..3), body)
        .prop_map(|(state, entity, body)| [state, &entity.concat(), &body].concat())
}

fn packet() -> impl Strategy<Value = Vec<u8>> {
    (vec(routing(), 0..3), content(), 0u8..10).prop_map(|(routing, content, kind)| {
        let mut packet = routing.concat();
        match kind {
            0 => {}
            1..5 => packet.extend([b"\n", &content[..]].concat()),
            5 => packet.extend(format!("{}\n", content.len() + 1).bytes().chain(content)),
            _ => packet.extend(format!("{}\n", content.len()).bytes().chain(content)),
        }
        packet.extend(b"|\n");
        packet
    })
}

/// One way of damaging a stream.
#[derive(Clone, Debug)]
enum Damage {
    Replace(usize, u8),
    Insert(usize, u8),
    Remove(usize),
    Truncate(usize),
}

/// A stream of packets, with up to three damages.
pub fn stream() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => proptest::sample::select(b"\n|\t :=?0195_a".to_vec()),
        1 => any::<u8>()
    ];
    let damage = (any::<prop::sample::Index>(), byte, 0u8..4).prop_map(|(place, byte, kind)| {
        let place = place.index(400);
        match kind {
            0 => Damage::Replace(place, byte),
            1 => Damage::Insert(place, byte),
            2 => Damage::Remove(place),
            _ => Damage::Truncate(place),
        }
    });
    let damages = prop_oneof![1 => Just(Vec::new()), 2 => vec(damage, 1..4)];
    (vec(packet(), 1..4), damages).prop_map(|(packets, damages)| {
        let mut bytes = packets.concat();
        for damage in damages {
            if bytes.is_empty() {
                break;
            }
            let len = bytes.len();
            match damage {
                Damage::Replace(place, byte) => bytes[place % len] = byte,
                Damage::Insert(place, byte) => bytes.insert(place % len, byte),
                Damage::Remove(place) => {
                    bytes.remove(place % len);
                }
                Damage::Truncate(place) => bytes.truncate(place % len),
            }
        }
        bytes
    })
}

/// Random bytes from the alphabet of the syntax.
pub fn noise() -> impl Strategy<Value = Vec<u8>> {
    vec(
        proptest::sample::select(b"\n\n|\t :=?+0123_ab{}#.".to_vec()),
        0..60,
    )
}

/// Limits small enough to be reached.
pub fn limits() -> impl Strategy<Value = Limits> {
    let small = (
        0u64..60,
        0u64..20,
        0u64..60,
        0u32..4,
        0u32..4,
        0u64..80,
        0u64..30,
        0u32..10,
    );
    let small = small.prop_map(|limits| Limits {
        unsized_content: limits.0,
        unsized_value: limits.1,
        routing_header: limits.2,
        routing_modifiers: limits.3,
        entity_modifiers: limits.4,
        sized_content: limits.5,
        sized_value: limits.6,
        name: limits.7,
    });
    prop_oneof![1 => Just(Limits::DEFAULT), 2 => small]
}

/// Values from the alphabet of the containers.
pub fn container() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        6 => proptest::sample::select(b"||||{{}}==::  ##..0123_ab+-@\n".to_vec()).prop_map(|byte| vec![byte]),
        1 => Just(b"| ab".to_vec()),
        1 => Just(b"|3 a|b".to_vec()),
        1 => Just(b"|=_t:2 ||".to_vec()),
        1 => Just(b"{k} v".to_vec()),
        1 => Just(b"{2 4}} v".to_vec()),
        1 => Just(b"99999999999999999999".to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    vec(token, 0..14).prop_map(|tokens| tokens.concat())
}

/// The number of cases for each property: `default`, or `PROPTEST_CASES` if it is set.
pub(crate) fn cases(default: u32) -> ProptestConfig {
    let setting = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: setting
            .and_then(|cases| cases.parse().ok())
            .unwrap_or(default),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
