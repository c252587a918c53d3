//! Comparing values by their spans gives the same result as comparing decoded values.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use proptest::prelude::*;
use serde_json::Value as Json;
use std::fmt::Write as _;
use weir_scan::{Number, Text, compare_numbers, equal, fingerprint};

/// FNV-1a, sufficient to distinguish test values.
fn hash(bytes: &[u8]) -> u128 {
    let start = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    bytes.iter().fold(start, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

/// A literal, and 10^40 times its value.
fn number() -> impl Strategy<Value = (String, i128)> {
    let parts = (
        any::<bool>(),
        0_u32..12_000,
        0_usize..6,
        -8_i32..8,
        any::<bool>(),
        0_usize..3,
    );
    parts.prop_map(|(negative, digits, places, exponent, upper, zeros)| {
        let mut text = format!("{digits:0>width$}", width = places + 1);
        if places > 0 {
            text.insert(text.len() - places, '.');
            text.push_str(&"0".repeat(zeros));
        }
        if exponent != 0 {
            text.push(if upper { 'E' } else { 'e' });
            write!(text, "{exponent:+03}").unwrap();
        }
        if negative {
            text.insert(0, '-');
        }
        let power = u32::try_from(20 + exponent).unwrap() - u32::try_from(places).unwrap();
        let value = i128::from(digits) * 10_i128.pow(power);
        (text, if negative { -value } else { value })
    })
}

/// A string literal with random escapes, and its decoded text.
fn string() -> impl Strategy<Value = (String, String)> {
    let character = (any::<char>(), 0_u8..4);
    proptest::collection::vec(character, 0..8).prop_map(|parts| {
        let (mut literal, mut plain) = ("\"".to_owned(), String::new());
        for (c, how) in parts {
            plain.push(c);
            let mut units = [0; 2];
            if how == 0 || c < ' ' || c == '"' || c == '\\' {
                for unit in c.encode_utf16(&mut units) {
                    write!(literal, "\\u{unit:04x}").unwrap();
                }
            } else {
                literal.push(c);
            }
        }
        literal.push('"');
        (literal, plain)
    })
}

fn value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        (0..4_i64).prop_map(Json::from),
        "[ab\"]{0,2}".prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Json::from),
            proptest::collection::btree_map("[ab]", inner, 0..3)
                .prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}

/// Writes the value in another form: members from last to first, blanks, escapes, numbers with a
/// point.
fn rewritten(value: &Json) -> String {
    match value {
        Json::Array(all) => {
            let all: Vec<String> = all.iter().map(rewritten).collect();
            format!("[ {} ]", all.join(" ,\n"))
        }
        Json::Object(members) => {
            let members = members.iter().rev();
            let members = members.map(|(name, value)| {
                format!(
                    "\"\\u{:04x}\" : {}",
                    u32::from(name.chars().next().unwrap()),
                    rewritten(value)
                )
            });
            format!("{{\t{}}}", members.collect::<Vec<_>>().join(","))
        }
        Json::Number(number) => format!("{number}.000E+00"),
        other => other
            .to_string()
            .replace('a', "\\u0061")
            .replace("f\\u0061lse", "false"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 1000 }, failure_persistence: None, ..Default::default() })]

    #[test]
    fn numbers_compare_by_their_value((a, x) in number(), (b, y) in number()) {
        prop_assert_eq!(compare_numbers(a.as_bytes(), b.as_bytes()), x.cmp(&y), "{} {}", a, b);
        let prints = [&a, &b].map(|n| fingerprint(n.as_bytes(), hash).unwrap());
        prop_assert_eq!(prints[0] == prints[1], x == y, "{} {}", a, b);
        prop_assert_eq!(equal(a.as_bytes(), b.as_bytes()), x == y);
    }

    #[test]
    fn digits_and_magnitude_give_the_value_of_a_number((text, value) in number()) {
        let number = Number::parse(text.as_bytes()).unwrap();
        let mut digits: Vec<u8> = number.digits().collect();
        while digits.last() == Some(&0) {
            digits.pop();
        }
        let whole = digits.iter().fold(0_i128, |sum, digit| sum * 10 + i128::from(*digit));
        let places = i64::try_from(digits.len()).unwrap();
        let power = number.magnitude().map_or(0, |magnitude| magnitude - places + 20);
        let found = whole * 10_i128.pow(u32::try_from(power).unwrap());
        prop_assert_eq!(found, value.abs());
        prop_assert_eq!(number.is_negative(), value < 0);
        prop_assert_eq!(number.is_zero(), value == 0);
    }

    #[test]
    fn strings_compare_by_their_decoded_text((a, x) in string(), (b, y) in string()) {
        let (a, b) = (Text::new(a.as_bytes()), Text::new(b.as_bytes()));
        prop_assert_eq!(a.cmp(&b), x.cmp(&y));
        prop_assert!(a.is(&x));
        prop_assert_eq!(a.starts_with(b), x.starts_with(&y));
        prop_assert_eq!(a.compare_utf16(b), x.encode_utf16().cmp(y.encode_utf16()));
        let mut decoded = Vec::new();
        a.decode_into(&mut decoded);
        prop_assert_eq!(decoded, x.into_bytes());
    }

    #[test]
    fn equality_matches_another_parser(a in value(), b in value()) {
        let (x, y) = (a.to_string(), b.to_string());
        prop_assert_eq!(equal(x.as_bytes(), y.as_bytes()), a == b);
        let prints = [&x, &y].map(|v| fingerprint(v.as_bytes(), hash).unwrap());
        prop_assert_eq!(prints[0] == prints[1], a == b);
        let again = rewritten(&a);
        prop_assert!(equal(x.as_bytes(), again.as_bytes()), "{} {}", x, again);
        prop_assert_eq!(fingerprint(again.as_bytes(), hash).unwrap(), prints[0], "{}", again);
    }
}
