//! Random documents: every node that has specific markup, unusual nodes, and unusual texts.

use crate::doc;
use proptest::collection::vec;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop_oneof};
use serde_json::{Value, json};

/// Pieces of texts: words, and everything that could be read as markup.
const PIECES: &[&str] = &[
    "word",
    "Wort",
    "x",
    " ",
    "  ",
    "*",
    "/",
    "_",
    "+",
    "~",
    "=",
    "[",
    "]",
    "[[",
    "]]",
    "][",
    "{",
    "}",
    "{{{",
    "}}}",
    "{{{adf(1)}}}",
    ")}}}",
    "|",
    "\\",
    "\\\\",
    "-",
    "- ",
    "1. ",
    "#",
    "# ",
    "#+begin_quote",
    "#+end_quote",
    "-----",
    ":",
    ":a:",
    "<2024-01-01>",
    "<",
    ">",
    "(",
    ")",
    "\"",
    "'",
    ",",
    ".",
    "_{",
    "^{",
    "\u{200b}",
    "\u{a0}",
    "é",
    "文",
    "\u{1f600}",
    "https://a.example/b?c=d",
    "\t",
    "\n",
    "[ ]",
    "\\vert{}",
];

fn odd_text() -> impl Strategy<Value = String> {
    vec(proptest::sample::select(PIECES), 1..6).prop_map(|pieces| pieces.concat())
}

fn mark() -> BoxedStrategy<Value> {
    prop_oneof![
        6 => proptest::sample::select(&["strong", "em", "strike", "underline", "code"][..])
            .prop_map(|name| json!({ "type": name })),
        1 => any::<bool>().prop_map(|sub| {
            json!({ "type": "subsup", "attrs": { "type": if sub { "sub" } else { "sup" } } })
        }),
        2 => proptest::sample::select(&["https://a.example", "a]b", "", "mailto:a"][..])
            .prop_map(|href| json!({ "type": "link", "attrs": { "href": href, "title": "t" } })),
        1 => Just(json!({ "type": "textColor", "attrs": { "color": "#ff0000" } })),
        1 => Just(json!({ "type": "annotation", "attrs": { "id": "1", "annotationType": "inlineComment" } })),
        1 => Just(json!({ "type": "futureMark", "x": 1 })),
    ]
    .boxed()
}

fn inline() -> BoxedStrategy<Value> {
    let text = (odd_text(), vec(mark(), 0..3)).prop_map(|(text, marks)| match marks.as_slice() {
        [] => json!({ "type": "text", "text": text }),
        _ => json!({ "type": "text", "text": text, "marks": marks }),
    });
    prop_oneof![
        12 => text,
        2 => Just(json!({ "type": "hardBreak" })),
        1 => odd_text().prop_map(|name| json!({ "type": "mention", "attrs": { "id": "5:a", "text": name } })),
        1 => odd_text().prop_map(|name| {
            json!({ "type": "status", "attrs": { "text": name, "color": "red", "localId": "s" } })
        }),
        1 => proptest::sample::select(&[":smile:", ":+1:", "smile", ":a b:", ""][..])
            .prop_map(|name| json!({ "type": "emoji", "attrs": { "shortName": name, "id": "1" } })),
        1 => any::<i32>().prop_map(|day| {
            json!({ "type": "date", "attrs": { "timestamp": (i64::from(day) * 8_640_000).to_string() } })
        }),
        1 => proptest::sample::select(&["https://a.example/x_y_", "a b", "]]"][..])
            .prop_map(|url| json!({ "type": "inlineCard", "attrs": { "url": url } })),
        1 => odd_text().prop_map(|alt| {
            json!({ "type": "mediaInline", "attrs": { "id": "m", "collection": "c", "alt": alt } })
        }),
        1 => Just(json!({ "type": "placeholder", "attrs": { "text": "p" } })),
        1 => Just(json!({ "type": "text", "text": "" })),
        1 => Just(json!({ "type": "text", "text": "x", "later": {} })),
    ]
    .boxed()
}

fn inlines() -> BoxedStrategy<Value> {
    vec(inline(), 0..6).prop_map(Value::from).boxed()
}

fn leaf_block() -> BoxedStrategy<Value> {
    prop_oneof![
        8 => inlines().prop_map(|nodes| json!({ "type": "paragraph", "content": nodes })),
        1 => Just(json!({ "type": "paragraph", "attrs": { "localId": "p" } })),
        2 => (0..8, inlines()).prop_map(|(level, nodes)| {
            json!({ "type": "heading", "attrs": { "level": level }, "content": nodes })
        }),
        2 => (odd_text(), odd_text(), proptest::sample::select(&["", "c++", "a b"][..])).prop_map(
            |(one, two, language)| json!({ "type": "codeBlock", "attrs": { "language": language },
                "content": [{ "type": "text", "text": format!("{one}\n{two}") }] })
        ),
        1 => Just(json!({ "type": "codeBlock" })),
        1 => Just(json!({ "type": "rule" })),
        1 => odd_text().prop_map(|alt| json!({ "type": "mediaSingle", "attrs": { "layout": "center" },
            "content": [{ "type": "media",
                "attrs": { "type": "file", "id": "m", "collection": "c", "alt": alt } }] })),
        1 => Just(json!({ "type": "mediaGroup", "content": [
            { "type": "media", "attrs": { "type": "file", "id": "m", "collection": "" } }] })),
        1 => Just(json!({ "type": "futureBlock", "attrs": { "x": [null] } })),
        1 => table(),
        1 => tasks(),
    ]
    .boxed()
}

fn table() -> BoxedStrategy<Value> {
    let cell = (inlines(), any::<bool>(), 0..8).prop_map(|(nodes, head, span)| {
        let kind = if head { "tableHeader" } else { "tableCell" };
        let paragraph = json!({ "type": "paragraph", "content": nodes });
        let colspan = if span == 0 { 2 } else { 1 };
        json!({ "type": kind, "attrs": { "colspan": colspan }, "content": [paragraph] })
    });
    let row = vec(cell, 0..4).prop_map(|cells| json!({ "type": "tableRow", "content": cells }));
    vec(row, 0..4)
        .prop_map(|rows| json!({ "type": "table", "content": rows }))
        .boxed()
}

fn tasks() -> BoxedStrategy<Value> {
    let item = (inlines(), any::<bool>()).prop_map(|(nodes, done)| {
        let state = if done { "DONE" } else { "TODO" };
        json!({ "type": "taskItem", "attrs": { "localId": "t", "state": state }, "content": nodes })
    });
    let list = |items: Vec<Value>| json!({ "type": "taskList", "attrs": { "localId": "l" }, "content": items });
    let nested = vec(item.clone(), 0..3).prop_map(list);
    vec(prop_oneof![3 => item, 1 => nested], 0..4)
        .prop_map(list)
        .boxed()
}

/// A block, with others in it.
fn block() -> BoxedStrategy<Value> {
    leaf_block()
        .prop_recursive(5, 60, 4, |inner| {
            let blocks = vec(inner, 0..4);
            let items = vec(blocks.clone(), 0..4).prop_map(|items| {
                let item = |blocks: Vec<Value>| json!({ "type": "listItem", "content": blocks });
                Value::from(items.into_iter().map(item).collect::<Vec<_>>())
            });
            prop_oneof![
                2 => items.clone().prop_map(|items| json!({ "type": "bulletList", "content": items })),
                1 => (0..4, items).prop_map(|(order, items)| {
                    json!({ "type": "orderedList", "attrs": { "order": order }, "content": items })
                }),
                1 => blocks.clone().prop_map(|blocks| json!({ "type": "blockquote", "content": blocks })),
                1 => (proptest::sample::select(&["info", "custom", "future"][..]), blocks.clone()).prop_map(
                    |(panel, blocks)| json!({ "type": "panel",
                        "attrs": { "panelType": panel, "panelColor": "#fff" }, "content": blocks })
                ),
                1 => (odd_text(), any::<bool>(), blocks).prop_map(|(title, nested, blocks)| {
                    let kind = if nested { "nestedExpand" } else { "expand" };
                    json!({ "type": kind, "attrs": { "title": title }, "content": blocks })
                }),
            ]
        })
        .boxed()
}

/// A document of up to some hundred nodes.
pub(crate) fn document() -> BoxedStrategy<Value> {
    vec(block(), 0..12)
        .prop_map(|blocks| doc(blocks.into()))
        .boxed()
}
