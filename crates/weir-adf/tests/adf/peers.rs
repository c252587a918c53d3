//! Compares the org text with two other crates that read ADF: all must find the same words in the
//! same order. Covers random documents, and every node and mark of the schema.

use crate::doc;
use crate::schema::{marks, nodes, with_mark};
use proptest::collection::vec;
use proptest::prelude::{
    BoxedStrategy, Just, ProptestConfig, Strategy, prop_assert_eq, prop_oneof, proptest,
};
use serde_json::{Value, json};
use weir_adf::{Options, to_org, to_plain};

/// The words of the documents below: `w`, digits, `w`.
fn words(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric());
    let word = |part: &&str| part.len() > 2 && part.starts_with('w') && part.ends_with('w');
    parts.filter(word).map(str::to_owned).collect()
}

fn word() -> BoxedStrategy<Value> {
    let marks = proptest::sample::select(&["", "strong", "em", "strike", "code"][..]);
    (0..1000, marks)
        .prop_map(|(number, mark)| {
            let text = format!("w{number}w");
            match mark {
                "" => json!({ "type": "text", "text": text }),
                mark => json!({ "type": "text", "text": text, "marks": [{ "type": mark }] }),
            }
        })
        .boxed()
}

fn paragraph() -> BoxedStrategy<Value> {
    vec(word(), 1..5)
        .prop_map(|words| {
            let space = || json!({ "type": "text", "text": " and " });
            let nodes = words.into_iter().flat_map(|word| [word, space()]);
            let mut nodes: Vec<Value> = nodes.collect();
            nodes.pop();
            json!({ "type": "paragraph", "content": nodes })
        })
        .boxed()
}

fn block() -> BoxedStrategy<Value> {
    let plain =
        || (0..1000).prop_map(|number| json!({ "type": "text", "text": format!("w{number}w") }));
    let leaf = prop_oneof![
        4 => paragraph(),
        1 => (1..7, plain()).prop_map(|(level, text)| {
            json!({ "type": "heading", "attrs": { "level": level }, "content": [text] })
        }),
        1 => plain().prop_map(|text| {
            json!({ "type": "codeBlock", "attrs": { "language": "c" }, "content": [text] })
        }),
        1 => Just(json!({ "type": "rule" })),
    ];
    leaf.prop_recursive(3, 24, 3, |_| {
        let items = vec(paragraph(), 1..4).prop_map(|items| {
            let item = |block| json!({ "type": "listItem", "content": [block] });
            items.into_iter().map(item).collect::<Vec<_>>()
        });
        prop_oneof![
            items
                .clone()
                .prop_map(|items| json!({ "type": "bulletList", "content": items })),
            items.prop_map(|items| json!({ "type": "orderedList", "content": items })),
            vec(paragraph(), 1..3)
                .prop_map(|blocks| json!({ "type": "blockquote", "content": blocks })),
            vec(paragraph(), 1..3).prop_map(|blocks| {
                json!({ "type": "panel", "attrs": { "panelType": "info" }, "content": blocks })
            }),
        ]
    })
    .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_readers_find_the_same_words(blocks in vec(block(), 1..8)) {
        let document = doc(blocks.into());
        let org = to_org(&document, &Options::default()).unwrap();
        prop_assert_eq!(org.opaque.len(), 0, "{}", org.text);
        let ours = words(&org.text);
        prop_assert_eq!(&words(&to_plain(&document).unwrap()), &ours);
        prop_assert_eq!(&words(&jc_adf::to_markdown(&document)), &ours);
        let options = amdc::Options::default();
        let theirs = amdc::convert(&document.to_string(), amdc::Format::Adf, amdc::Format::Gfm, &options);
        prop_assert_eq!(&words(&theirs.unwrap().text), &ours);
    }
}

/// Text and other inline nodes, separated by ` and `; `numbered` replaces their texts with unique
/// words.
fn wide_inlines() -> BoxedStrategy<Value> {
    let mark = prop_oneof![
        4 => proptest::sample::select(&["strong", "em", "strike", "underline"][..])
            .prop_map(|name| json!({ "type": name })),
        1 => Just(json!({ "type": "link", "attrs": { "href": "https://a.example/b" } })),
        1 => Just(json!({ "type": "textColor", "attrs": { "color": "#ff0000" } })),
        1 => Just(json!({ "type": "subsup", "attrs": { "type": "sub" } })),
    ];
    let text = vec(mark, 0..3).prop_map(|mut marks| {
        let mut seen = Vec::new();
        marks.retain(|mark| {
            let new = !seen.contains(&mark["type"]);
            seen.push(mark["type"].clone());
            new
        });
        match marks.as_slice() {
            [] => json!({ "type": "text", "text": "w" }),
            _ => json!({ "type": "text", "text": "w", "marks": marks }),
        }
    });
    let node = prop_oneof![
        10 => text,
        1 => Just(json!({ "type": "text", "text": "w", "marks": [{ "type": "code" }] })),
        1 => Just(json!({ "type": "mention", "attrs": { "id": "5:a", "text": "@w" } })),
        1 => Just(json!({ "type": "status", "attrs": { "text": "w", "color": "red", "localId": "s" } })),
        1 => Just(json!({ "type": "emoji", "attrs": { "shortName": ":smile:", "text": "\u{1f604}" } })),
        1 => Just(json!({ "type": "date", "attrs": { "timestamp": "1732752000000" } })),
        1 => Just(json!({ "type": "inlineCard", "attrs": { "url": "https://a.example/c" } })),
        1 => Just(json!({ "type": "hardBreak" })),
    ];
    vec(node, 1..6)
        .prop_map(|nodes| {
            let space = || json!({ "type": "text", "text": " and " });
            let start = [json!({ "type": "text", "text": "w" })];
            let nodes = start.into_iter().chain(nodes);
            let nodes = nodes.flat_map(|node| [node, space()]);
            let mut nodes: Vec<Value> = nodes.collect();
            nodes.pop();
            nodes.into()
        })
        .boxed()
}

/// Every block that contains text, inside of other blocks.
fn wide_block() -> BoxedStrategy<Value> {
    let paragraph =
        || wide_inlines().prop_map(|nodes| json!({ "type": "paragraph", "content": nodes }));
    let word = || json!([{ "type": "text", "text": "w" }]);
    let task = (wide_inlines(), proptest::bool::ANY).prop_map(|(nodes, done)| {
        let state = if done { "DONE" } else { "TODO" };
        json!({ "type": "taskItem", "attrs": { "localId": "t", "state": state }, "content": nodes })
    });
    let decision = wide_inlines().prop_map(|nodes| {
        json!({ "type": "decisionItem", "attrs": { "localId": "d", "state": "DECIDED" },
            "content": nodes })
    });
    let row = |kind: &'static str| {
        vec(paragraph(), 2..3).prop_map(move |cells| {
            let cell = |block| json!({ "type": kind, "attrs": {}, "content": [block] });
            json!({ "type": "tableRow", "content": cells.into_iter().map(cell).collect::<Vec<_>>() })
        })
    };
    let table = (row("tableHeader"), vec(row("tableCell"), 1..3)).prop_map(|(head, rows)| {
        let rows: Vec<Value> = [head].into_iter().chain(rows).collect();
        json!({ "type": "table", "content": rows })
    });
    let leaf = prop_oneof![
        6 => paragraph(),
        2 => (1..7, wide_inlines()).prop_map(|(level, nodes)| {
            json!({ "type": "heading", "attrs": { "level": level }, "content": nodes })
        }),
        1 => Just(json!({ "type": "codeBlock", "attrs": { "language": "c" }, "content": word() })),
        1 => Just(json!({ "type": "rule" })),
        1 => vec(task, 1..4).prop_map(|items| {
            json!({ "type": "taskList", "attrs": { "localId": "l" }, "content": items })
        }),
        1 => vec(decision, 1..3).prop_map(|items| {
            json!({ "type": "decisionList", "attrs": { "localId": "l" }, "content": items })
        }),
        1 => table,
    ];
    leaf.prop_recursive(4, 60, 4, move |inner| {
        let first = wide_inlines().prop_map(|nodes| json!({ "type": "paragraph", "content": nodes }));
        let list = vec((first, vec(inner.clone(), 0..3)), 1..4).prop_map(|items| {
            let item = |(first, rest): (Value, Vec<Value>)| {
                let blocks: Vec<Value> = [first].into_iter().chain(rest).collect();
                json!({ "type": "listItem", "content": blocks })
            };
            items.into_iter().map(item).collect::<Vec<_>>()
        });
        let blocks = vec(inner, 1..4);
        let kinds = &["info", "note", "warning", "success", "error"][..];
        prop_oneof![
            2 => list.clone().prop_map(|items| json!({ "type": "bulletList", "content": items })),
            2 => list.prop_map(|items| json!({ "type": "orderedList", "content": items })),
            1 => blocks.clone().prop_map(|blocks| json!({ "type": "blockquote", "content": blocks })),
            1 => (proptest::sample::select(kinds), blocks.clone()).prop_map(|(kind, blocks)| {
                json!({ "type": "panel", "attrs": { "panelType": kind }, "content": blocks })
            }),
            1 => (proptest::bool::ANY, blocks).prop_map(|(nested, blocks)| {
                let kind = if nested { "nestedExpand" } else { "expand" };
                json!({ "type": kind, "attrs": { "title": "Title" }, "content": blocks })
            }),
        ]
    })
    .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Our plain text, our org text and both peers have each word of a document, in order.
    #[test]
    fn all_readers_find_every_word(blocks in vec(wide_block(), 1..8)) {
        let mut document = doc(blocks.into());
        let mut wanted = Vec::new();
        numbered(&mut document, &mut wanted);
        prop_assert_eq!(&words(&to_plain(&document).unwrap()), &wanted);
        let org = to_org(&document, &Options::default()).unwrap();
        if org.opaque.is_empty() {
            prop_assert_eq!(&words(&org.text), &wanted, "{}", org.text);
        }
        let peer = jc_adf::to_markdown(&document);
        prop_assert_eq!(&words(&peer), &wanted, "{}\n{}", document, peer);
        let options = amdc::Options::default();
        let theirs = amdc::convert(&document.to_string(), amdc::Format::Adf, amdc::Format::Gfm, &options);
        let theirs = theirs.unwrap().text;
        prop_assert_eq!(&words(&theirs), &wanted, "{}\n{}", document, theirs);
    }
}

/// Parts of the schema whose text a peer loses or reorders.
const PEERS_DIFFER: &[(&str, &str)] = &[("jc-adf", "caption")];

/// Replaces each text of a document with a unique word. Returns the words in the order of the
/// document.
fn numbered(value: &mut Value, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| numbered(item, found)),
        Value::Object(fields) => {
            let named = fields.get("type").and_then(Value::as_str);
            let shows = matches!(named, Some("text" | "mention" | "status"));
            let place = match named {
                Some("text") => fields.get_mut("text"),
                Some(_) if shows => fields
                    .get_mut("attrs")
                    .and_then(|attrs| attrs.get_mut("text")),
                _ => None,
            };
            if let Some(place) = place.filter(|place| **place != " and ") {
                let before = place.as_str().unwrap_or_default();
                let start = if before.starts_with('@') { "@" } else { "" };
                let space = if before.ends_with(' ') { " " } else { "" };
                let word = format!("w{}w", found.len());
                *place = format!("{start}{word}{space}").into();
                found.push(word);
            }
            for (_, child) in fields.iter_mut().filter(|(name, _)| *name == "content") {
                numbered(child, found);
            }
        }
        _ => {}
    }
}

/// Every node and mark, beside a paragraph: our plain text and both peers have each word, except
/// for the listed differences.
#[test]
fn all_readers_find_every_part_of_the_schema() {
    let mut parts: Vec<(&str, Value)> = nodes()
        .into_iter()
        .map(|(name, _, block)| (name, block))
        .collect();
    let on_marks = marks().into_iter();
    parts.extend(on_marks.map(|(name, _, on_text, attrs)| (name, with_mark(name, on_text, attrs))));
    let mut differ = Vec::new();
    for (name, block) in parts {
        let mut document = doc(json!([crate::paragraph(json!([crate::text("a")])), block]));
        let mut wanted = Vec::new();
        numbered(&mut document, &mut wanted);
        assert!(!wanted.is_empty(), "{name}");
        assert_eq!(
            words(&to_plain(&document).unwrap()),
            wanted,
            "{name}: plain"
        );
        let org = to_org(&document, &Options::default()).unwrap();
        if org.opaque.is_empty() {
            assert_eq!(words(&org.text), wanted, "{name}: {}", org.text);
        }
        if words(&jc_adf::to_markdown(&document)) != wanted {
            differ.push(("jc-adf", name));
        }
        let options = amdc::Options::default();
        let text = document.to_string();
        let theirs = amdc::convert(&text, amdc::Format::Adf, amdc::Format::Gfm, &options);
        if theirs.map(|theirs| words(&theirs.text)).ok() != Some(wanted) {
            differ.push(("amdc", name));
        }
    }
    assert_eq!(differ, PEERS_DIFFER);
}
