//! Compares keys of every kind and length, in the rows of a sort and of merges, with plain
//! comparisons.

use std::cmp::Ordering;
use std::fmt::Write as _;

use bytes::Bytes;
use proptest::prelude::*;
use weir_query::{
    Bounds, Budgets, Frames, Meta, PageIn, Query, QueryText, Shape, SourceOptions, Span, Step,
    Strings,
};

use crate::drive::compile;

/// Numbers are stored as integers in units of `10^-PLACES`.
const PLACES: i32 = 60;

/// A value, and its notation.
#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Number { negative: bool, digits: String },
}

#[derive(Clone, Debug)]
struct Key {
    value: Value,
    literal: String,
}

/// A string with a prefix that many other strings share. Its length is near the length at
/// which keys are cut.
fn text() -> impl Strategy<Value = Key> {
    let parts = prop::sample::select(vec![
        "a", "b", "0", "\0", "é", "\u{ffff}", "\u{e000}", "😀", "\"", "\\",
    ]);
    let more = prop::collection::vec((parts, any::<bool>()), 0..7);
    (0..16usize, more).prop_map(|(begin, more)| {
        let begin = &"customer-1234567"[..begin];
        let (mut value, mut literal) = (begin.to_owned(), format!("\"{begin}"));
        for (part, escaped) in more {
            value += part;
            if escaped || matches!(part, "\"" | "\\" | "\0") {
                for unit in part.encode_utf16() {
                    write!(literal, "\\u{unit:04x}").unwrap();
                }
            } else {
                literal += part;
            }
        }
        literal.push('"');
        Key {
            value: Value::Text(value),
            literal,
        }
    })
}

/// A number of 1 to 34 digits, with a prefix that many others share.
fn number() -> impl Strategy<Value = Key> {
    let more = prop::collection::vec(prop::sample::select(vec!['0', '1', '9']), 0..12);
    let power = prop::sample::select(vec![0, 0, 0, -3, -20, 5]);
    (any::<bool>(), 0..23usize, more, power, 0..3usize).prop_map(
        |(negative, begin, more, power, form)| {
            let mut digits = "1234567890123456789012"[..begin].to_owned();
            digits.extend(more);
            let digits = digits.trim_start_matches('0');
            let digits = if digits.is_empty() { "0" } else { digits };
            let zeros = usize::try_from(PLACES + power).unwrap();
            let whole = format!("{digits}{}", "0".repeat(zeros));
            let negative = negative && digits != "0";
            let sign = if negative { "-" } else { "" };
            let (head, tail) = digits.split_at(1);
            let literal = match form {
                0 if power == 0 => format!("{sign}{digits}"),
                1 => format!(
                    "{sign}{head}.{tail}0e{}",
                    power + i32::try_from(tail.len()).unwrap()
                ),
                _ => format!("{sign}{digits}E{power}"),
            };
            Key {
                value: Value::Number {
                    negative,
                    digits: whole.trim_start_matches('0').to_owned(),
                },
                literal,
            }
        },
    )
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![text(), number()]
}

fn compare(a: &Value, b: &Value, strings: Strings) -> Ordering {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => match strings {
            Strings::Scalar => a.chars().cmp(b.chars()),
            Strings::Utf16 => a.encode_utf16().cmp(b.encode_utf16()),
        },
        (Value::Number { .. }, Value::Text(_)) => Ordering::Less,
        (Value::Text(_), Value::Number { .. }) => Ordering::Greater,
        (
            Value::Number {
                negative: m,
                digits: a,
            },
            Value::Number {
                negative: n,
                digits: b,
            },
        ) => {
            let size = a.len().cmp(&b.len()).then_with(|| a.cmp(b));
            n.cmp(m).then(if *m { size.reverse() } else { size })
        }
    }
}

/// Runs the query and returns all results.
fn run(query: &mut Query) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        match query.next(Bounds::default()).unwrap() {
            Step::Ready(page) => {
                found.extend(
                    page.iter()
                        .map(|item| String::from_utf8(item.to_vec()).unwrap()),
                );
            }
            Step::Need(needs) => panic!("{needs:?}"),
            Step::Done => return found,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_ordered_as_their_values(
        mut keys in prop::collection::vec((key(), prop::bool::ANY), 1..24),
        descending in any::<bool>(),
        second in any::<bool>(),
        utf16 in any::<bool>(),
        cut in 0..24usize,
    ) {
        let strings = if utf16 { Strings::Utf16 } else { Strings::Scalar };
        let word = if descending { " desc" } else { "" };
        let order = if second { format!("$.one, $.k{word}") } else { format!("$.k{word}") };
        let text = QueryText { order, strings, ..QueryText::default() };
        let plan = compile(&text);
        let write = |keys: &[(Key, bool)]| {
            let items: Vec<String> = keys.iter()
                .map(|(key, long)| format!("{{\"k\":{}{}}}", key.literal, if *long { ",\"one\":null" } else { "" }))
                .collect();
            items
        };
        // The presence of `one` matters only if the query reads it.
        let by_keys = |(a, x): &(Key, bool), (b, y): &(Key, bool)| {
            let order = compare(&a.value, &b.value, strings);
            let order = if descending { order.reverse() } else { order };
            if second { x.cmp(y).then(order) } else { order }
        };
        let add = |query: &mut Query, keys: &[(Key, bool)], sorted| {
            let id = query.add_source(SourceOptions { sorted, ..SourceOptions::default() }).unwrap();
            let page = format!("[{}]", write(keys).join(","));
            query.enqueue(id, Bytes::from(page), None).unwrap();
        };
        let mut sort = Query::new(plan.clone(), Budgets::default());
        add(&mut sort, &keys, false);
        // Two sources, each sorted by the plain comparison.
        let cut = cut.min(keys.len());
        let (mut one, mut two) = (keys[..cut].to_vec(), keys[cut..].to_vec());
        one.sort_by(by_keys);
        two.sort_by(by_keys);
        keys.sort_by(by_keys);
        prop_assert_eq!(run(&mut sort), write(&keys));
        let mut merge = Query::new(plan, Budgets::default());
        add(&mut merge, &one, true);
        add(&mut merge, &two, true);
        prop_assert_eq!(run(&mut merge), write(&keys));
    }

    /// Keys of records are bytes, and those of a source are JSON.
    #[test]
    fn properties_are_ordered_by_their_bytes(
        keys in prop::collection::vec(text(), 1..24),
        constant in text(),
        descending in any::<bool>(),
    ) {
        let word = if descending { " desc" } else { "" };
        let text = QueryText { order: format!("meta.key{word}"), ..QueryText::default() };
        let mut query = Query::new(compile(&text), Budgets::default());
        let value = |key: &Key| match &key.value {
            Value::Text(text) => text.clone(),
            Value::Number { digits, .. } => digits.clone(),
        };
        let mut all: Vec<String> = keys.iter().map(value).collect();
        let by_bytes = |a: &String, b: &String| {
            let order = a.as_bytes().cmp(b.as_bytes());
            if descending { order.reverse() } else { order }
        };
        all.sort_by(by_bytes);
        let framed = SourceOptions { shape: Shape::Framed, sorted: true, ..SourceOptions::default() };
        let id = query.add_source(framed).unwrap();
        let (mut bytes, mut frames) = (Vec::new(), Frames::default());
        for key in &all {
            let begin = u32::try_from(bytes.len()).unwrap();
            bytes.extend_from_slice(key.as_bytes());
            let end = u32::try_from(bytes.len()).unwrap();
            let item = serde_json::to_string(key).unwrap();
            bytes.extend_from_slice(item.as_bytes());
            frames.spans.push(Span { offset: end, len: u32::try_from(item.len()).unwrap() });
            frames.meta.push(Meta::Bytes(Span { offset: begin, len: end - begin }));
        }
        query.enqueue(id, PageIn { bytes: Bytes::from(bytes), frames: Some(frames) }, None).unwrap();
        let whole = SourceOptions {
            sorted: true,
            meta: vec![("key".to_owned(), constant.literal.clone())],
            ..SourceOptions::default()
        };
        let id = query.add_source(whole).unwrap();
        let item = serde_json::to_string(&value(&constant)).unwrap();
        query.enqueue(id, Bytes::from(format!("[{item}]")), None).unwrap();
        all.push(value(&constant));
        all.sort_by(by_bytes);
        let expected: Vec<String> = all.iter().map(|key| serde_json::to_string(key).unwrap()).collect();
        prop_assert_eq!(run(&mut query), expected);
    }
}
