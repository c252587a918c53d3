//! Every node and mark of the published schema (version 57.7 of its package) by name, each with its
//! attributes and at a valid position. All convert back without a change, and most are shown as
//! markup.

use crate::{doc, paragraph, text};
use serde_json::{Value, json};
use weir_adf::{Options, from_org, to_org};

/// How a part of the schema is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// As markup: without a reference.
    Markup,
    /// By a reference.
    Reference,
}
use Shown::{Markup, Reference};

/// A document with the part, the name of the part, and how it is shown.
fn check(name: &str, shown: Shown, blocks: Value) {
    let document = doc(blocks);
    assert!(
        document
            .to_string()
            .contains(&format!("\"type\":\"{name}\"")),
        "{name}"
    );
    let options = Options::default();
    let org = to_org(&document, &options).unwrap();
    assert_eq!(
        org.opaque.is_empty(),
        shown == Markup,
        "{name}: {}",
        org.text
    );
    assert_eq!(
        from_org(&org.text, &document, &options).unwrap(),
        document,
        "{name}"
    );
    // The part keeps its form next to a change.
    let edited = format!("{}\nadded\n", org.text);
    let edited = from_org(&edited, &document, &options).unwrap();
    let blocks = edited["content"].as_array().unwrap();
    let kept = &blocks[..blocks.len() - 1];
    assert_eq!(kept, document["content"].as_array().unwrap(), "{name}");
}

fn a() -> Value {
    paragraph(json!([text("a")]))
}

fn node(kind: &str, attrs: Value, content: Value) -> Value {
    json!({ "type": kind, "attrs": attrs, "content": content })
}

fn leaf(kind: &str, attrs: Value) -> Value {
    json!({ "type": kind, "attrs": attrs })
}

/// Nodes, with the block that holds one of them.
#[allow(clippy::too_many_lines, reason = "a table")]
pub(crate) fn nodes() -> Vec<(&'static str, Shown, Value)> {
    let id = || json!({ "localId": "1" });
    let inline = |node: Value| paragraph(json!([text("a "), node]));
    let item = |kind: &str| node(kind, id(), json!([node("listItem", id(), json!([a()]))]));
    let task = || {
        node(
            "taskItem",
            json!({ "localId": "2", "state": "TODO" }),
            json!([text("a")]),
        )
    };
    let media = || {
        leaf(
            "media",
            json!({ "type": "file", "id": "m", "collection": "c", "width": 7.5 }),
        )
    };
    let cell = |kind: &str| {
        let cell = node(
            kind,
            json!({ "colspan": 1, "colwidth": [9], "valign": "top" }),
            json!([a()]),
        );
        node(
            "table",
            json!({ "layout": "wide" }),
            json!([node("tableRow", id(), json!([cell]))]),
        )
    };
    let extension =
        json!({ "extensionKey": "k", "extensionType": "t", "parameters": { "x": [1] } });
    let sync = json!({ "resourceId": "r", "localId": "1" });
    let column = node("layoutColumn", json!({ "width": 100 }), json!([a()]));
    let layout = json!({ "type": "layoutSection", "content": [column] });
    let caption = json!({ "type": "mediaSingle", "attrs": { "layout": "center" },
        "content": [media(), node("caption", id(), json!([text("a")]))] });
    let single =
        json!({ "type": "mediaSingle", "attrs": { "layout": "center" }, "content": [media()] });
    let decision = node(
        "decisionItem",
        json!({ "localId": "2", "state": "DECIDED" }),
        json!([text("a")]),
    );
    let nested = node("nestedExpand", json!({ "title": "n" }), json!([a()]));
    let expand = |content: Value| node("expand", json!({ "title": "t", "localId": "1" }), content);
    vec![
        ("doc", Markup, a()),
        (
            "paragraph",
            Markup,
            node("paragraph", id(), json!([text("a")])),
        ),
        ("text", Markup, a()),
        (
            "hardBreak",
            Markup,
            inline(leaf("hardBreak", json!({ "text": "\n" }))),
        ),
        (
            "heading",
            Markup,
            node(
                "heading",
                json!({ "level": 3, "localId": "1" }),
                json!([text("a")]),
            ),
        ),
        ("bulletList", Markup, item("bulletList")),
        ("orderedList", Markup, item("orderedList")),
        ("listItem", Markup, item("bulletList")),
        ("taskList", Markup, node("taskList", id(), json!([task()]))),
        ("taskItem", Markup, node("taskList", id(), json!([task()]))),
        (
            "blockTaskItem",
            Reference,
            node(
                "taskList",
                id(),
                json!([node(
                    "blockTaskItem",
                    json!({ "localId": "3", "state": "DONE" }),
                    json!([a()])
                )]),
            ),
        ),
        (
            "decisionList",
            Reference,
            node("decisionList", id(), json!([decision])),
        ),
        (
            "decisionItem",
            Reference,
            node("decisionList", id(), json!([decision])),
        ),
        (
            "codeBlock",
            Markup,
            node(
                "codeBlock",
                json!({ "language": "c", "wrap": true }),
                json!([text("a")]),
            ),
        ),
        ("blockquote", Markup, node("blockquote", id(), json!([a()]))),
        (
            "panel",
            Markup,
            node(
                "panel",
                json!({ "panelType": "custom", "panelIcon": ":a:" }),
                json!([a()]),
            ),
        ),
        ("rule", Markup, leaf("rule", id())),
        ("table", Markup, cell("tableCell")),
        ("tableRow", Markup, cell("tableCell")),
        ("tableCell", Markup, cell("tableCell")),
        ("tableHeader", Markup, cell("tableHeader")),
        ("expand", Markup, expand(json!([a()]))),
        ("nestedExpand", Markup, expand(json!([nested]))),
        ("media", Markup, single.clone()),
        ("mediaSingle", Markup, single),
        (
            "mediaGroup",
            Markup,
            json!({ "type": "mediaGroup", "content": [media()] }),
        ),
        ("caption", Reference, caption),
        (
            "mediaInline",
            Markup,
            inline(leaf("mediaInline", json!({ "id": "m", "collection": "c" }))),
        ),
        (
            "mention",
            Markup,
            inline(leaf(
                "mention",
                json!({ "id": "u", "text": "@a", "userType": "APP" }),
            )),
        ),
        (
            "emoji",
            Markup,
            inline(leaf(
                "emoji",
                json!({ "shortName": ":a:", "id": "1", "text": "x" }),
            )),
        ),
        (
            "date",
            Markup,
            inline(leaf(
                "date",
                json!({ "timestamp": "86400000", "localId": "1" }),
            )),
        ),
        (
            "status",
            Markup,
            inline(leaf(
                "status",
                json!({ "text": "a", "color": "blue", "style": "bold" }),
            )),
        ),
        (
            "inlineCard",
            Markup,
            inline(leaf("inlineCard", json!({ "url": "https://a.example" }))),
        ),
        (
            "blockCard",
            Reference,
            leaf("blockCard", json!({ "url": "https://a.example" })),
        ),
        (
            "embedCard",
            Reference,
            leaf(
                "embedCard",
                json!({ "url": "https://a.example", "layout": "wide" }),
            ),
        ),
        (
            "placeholder",
            Reference,
            inline(leaf("placeholder", json!({ "text": "a" }))),
        ),
        ("extension", Reference, leaf("extension", extension.clone())),
        (
            "inlineExtension",
            Reference,
            inline(leaf("inlineExtension", extension.clone())),
        ),
        (
            "bodiedExtension",
            Reference,
            node("bodiedExtension", extension, json!([a()])),
        ),
        ("syncBlock", Reference, leaf("syncBlock", sync.clone())),
        (
            "bodiedSyncBlock",
            Reference,
            node("bodiedSyncBlock", sync, json!([a()])),
        ),
        ("layoutSection", Reference, layout.clone()),
        ("layoutColumn", Reference, layout),
    ]
}

/// Marks, and whether they apply to a text; the others apply to a block.
pub(crate) fn marks() -> Vec<(&'static str, Shown, bool, Value)> {
    vec![
        ("strong", Markup, true, json!(null)),
        ("em", Markup, true, json!(null)),
        ("strike", Markup, true, json!(null)),
        ("underline", Markup, true, json!(null)),
        ("code", Markup, true, json!(null)),
        (
            "link",
            Markup,
            true,
            json!({ "href": "https://a.example", "title": "t", "id": "i" }),
        ),
        ("subsup", Markup, true, json!({ "type": "sub" })),
        ("textColor", Reference, true, json!({ "color": "#ff0000" })),
        (
            "backgroundColor",
            Reference,
            true,
            json!({ "color": "#ff0000" }),
        ),
        (
            "annotation",
            Reference,
            true,
            json!({ "id": "1", "annotationType": "inlineComment" }),
        ),
        ("alignment", Markup, false, json!({ "align": "end" })),
        ("indentation", Markup, false, json!({ "level": 2 })),
        ("breakout", Markup, false, json!({ "mode": "wide" })),
        ("fontSize", Markup, false, json!({ "fontSize": "small" })),
        (
            "fragment",
            Markup,
            false,
            json!({ "localId": "1", "name": "n" }),
        ),
        (
            "border",
            Markup,
            false,
            json!({ "size": 1, "color": "#ff0000" }),
        ),
        ("dataConsumer", Markup, false, json!({ "sources": ["s"] })),
    ]
}

/// A paragraph with a mark on one of its words, or on the paragraph.
pub(crate) fn with_mark(name: &str, on_text: bool, attrs: Value) -> Value {
    let mut mark = json!({ "type": name });
    if !attrs.is_null() {
        mark["attrs"] = attrs;
    }
    let (mut block, mut word) = (a(), text("b"));
    if on_text {
        word["marks"] = json!([mark]);
        block["content"] = json!([text("a "), word]);
    } else {
        block["marks"] = json!([mark]);
    }
    block
}

#[test]
fn every_node_converts_back() {
    let nodes = nodes();
    assert_eq!(nodes.len(), 43);
    for (name, shown, block) in nodes {
        check(name, shown, json!([a(), block]));
    }
}

#[test]
fn every_mark_converts_back() {
    let marks = marks();
    assert_eq!(marks.len(), 17);
    for (name, shown, on_text, attrs) in marks {
        check(name, shown, json!([with_mark(name, on_text, attrs)]));
    }
}
