//! Decides which parts of a node the org text shows, and which parts are hidden.
//!
//! Hidden parts are attributes without markup (`localId`, widths), empty paragraphs, and the
//! boundary of two text nodes with equal marks. A part that is neither shown nor hidden is stored,
//! and the text refers to it.

use crate::node::{attr, attr_str, attrs, content, is_plain_text, kind, marks, referred, text};
use crate::opaque::Table;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Panels that have a specific block in org.
pub(crate) const PANELS: &[&str] = &[
    "info", "note", "tip", "warning", "error", "success", "custom",
];

/// Marks that have specific markup and no attributes.
const SIMPLE_MARKS: &[&str] = &["strong", "em", "underline", "strike", "code"];

/// A child as the text shows it, and the children that it represents.
pub(crate) struct Unit<'v> {
    /// The shown value: a child, or the joined text of several children.
    pub(crate) shown: Cow<'v, Value>,
    /// The represented children: the shown one and then hidden ones, or all children whose text was
    /// joined.
    pub(crate) nodes: &'v [Value],
}

impl<'v> Unit<'v> {
    /// The hidden children after the shown one.
    pub(crate) fn hidden(&self) -> &'v [Value] {
        match self.shown {
            Cow::Borrowed(_) => self.nodes.get(1..).unwrap_or(&[]),
            Cow::Owned(_) => &[],
        }
    }
}

/// The children of a node as the text shows them.
pub(crate) struct Units<'v> {
    /// Hidden children before the first shown one.
    pub(crate) leading: &'v [Value],
    /// The shown children.
    pub(crate) units: Vec<Unit<'v>>,
}

/// Divides the children of a node into units.
pub(crate) fn units(node: &Value) -> Units<'_> {
    let children = content(node);
    match kind(node) {
        "paragraph" | "heading" | "taskItem" | "codeBlock" => inline_units(children),
        "doc" | "listItem" | "blockquote" | "panel" | "expand" | "nestedExpand" => {
            grouped(children, is_empty_paragraph)
        }
        _ => grouped(children, |_| false),
    }
}

fn is_empty_paragraph(node: &Value) -> bool {
    kind(node) == "paragraph" && content(node).iter().all(is_empty_text)
}

fn is_empty_text(node: &Value) -> bool {
    kind(node) == "text" && text(node).is_empty()
}

fn grouped(children: &[Value], hidden: impl Fn(&Value) -> bool) -> Units<'_> {
    let first = children.iter().position(|child| !hidden(child));
    let (leading, mut rest) = children.split_at(first.unwrap_or(children.len()));
    let mut units = Vec::new();
    while let Some(shown) = rest.first() {
        let next = rest.iter().skip(1).position(|child| !hidden(child));
        let (nodes, after) = rest.split_at(next.map_or(rest.len(), |next| next + 1));
        let shown = Cow::Borrowed(shown);
        units.push(Unit { shown, nodes });
        rest = after;
    }
    Units { leading, units }
}

/// Joins texts with equal marks.
fn inline_units(children: &[Value]) -> Units<'_> {
    let Units { leading, units } = grouped(children, is_empty_text);
    let mut joined: Vec<Unit<'_>> = Vec::new();
    let mut from = leading.len();
    for unit in units {
        let to = from + unit.nodes.len();
        match joined.last_mut() {
            Some(last) if joins(&last.shown, &unit.shown) => {
                let whole = format!("{}{}", text(&last.shown), text(&unit.shown));
                let mut node = last.shown.as_ref().clone();
                if let Some(node) = node.as_object_mut() {
                    node.insert("text".to_owned(), whole.into());
                }
                last.shown = Cow::Owned(node);
                last.nodes = &children[to - unit.nodes.len() - last.nodes.len()..to];
            }
            _ => joined.push(unit),
        }
        from = to;
    }
    Units {
        leading,
        units: joined,
    }
}

fn joins(one: &Value, two: &Value) -> bool {
    if !is_plain_text(one) || !is_plain_text(two) {
        return false;
    }
    let (one, two) = (marks(one), marks(two));
    let as_shown = |mark: &Value| shown_mark(mark).unwrap_or_else(|| mark.clone());
    one.len() == two.len()
        && one
            .iter()
            .all(|mark| two.iter().any(|other| as_shown(other) == as_shown(mark)))
}

/// A mark as its markup shows it; `None` if it has no markup.
pub(crate) fn shown_mark(mark: &Value) -> Option<Value> {
    let attributes = mark.get("attrs").and_then(Value::as_object);
    let count = attributes.map_or(0, Map::len);
    match kind(mark) {
        name if SIMPLE_MARKS.contains(&name) && count == 0 => Some(json!({ "type": name })),
        "subsup" if count == 1 => match attr_str(mark, "type")? {
            way @ ("sub" | "sup") => Some(json!({ "type": "subsup", "attrs": { "type": way } })),
            _ => None,
        },
        "link" => {
            let href = attr_str(mark, "href")?;
            Some(json!({ "type": "link", "attrs": { "href": href } }))
        }
        _ => None,
    }
}

/// The attributes of a node that its markup shows; `None` if markup cannot show the node.
pub(crate) fn shown_attrs(node: &Value) -> Option<Map<String, Value>> {
    let whole = |name: &str| attr(node, name).filter(|value| !value.is_null());
    Some(match kind(node) {
        "paragraph" | "bulletList" | "listItem" | "taskList" | "blockquote" | "rule" | "table"
        | "tableRow" | "mediaSingle" | "mediaGroup" | "hardBreak" => Map::new(),
        "heading" => {
            let level = whole("level")?.as_u64()?;
            (1..=6)
                .contains(&level)
                .then(|| attrs([("level", level.into())]))?
        }
        "orderedList" => match whole("order") {
            None => Map::new(),
            Some(order) => match order.as_u64()? {
                1 => Map::new(),
                order => attrs([("order", order.into())]),
            },
        },
        "taskItem" => {
            let state = attr_str(node, "state")?;
            let known = ["TODO", "DONE"].contains(&state);
            known.then(|| attrs([("state", state.into())]))?
        }
        "codeBlock" => optional(whole("language"), "language")?,
        "expand" | "nestedExpand" => optional(whole("title"), "title")?,
        "panel" => {
            let panel = attr_str(node, "panelType")?;
            PANELS
                .contains(&panel)
                .then(|| attrs([("panelType", panel.into())]))?
        }
        "tableCell" | "tableHeader" => {
            let single = |name| whole(name).is_none_or(|span| span.as_u64() == Some(1));
            (single("colspan") && single("rowspan")).then(Map::new)?
        }
        "media" => {
            let mut shown = media(node)?;
            let file = attr_str(node, "type") == Some("file");
            shown.insert("type".to_owned(), "file".into());
            file.then_some(shown)?
        }
        "mediaInline" => media(node)?,
        "mention" => {
            let mut shown = attrs([("id", attr_str(node, "id")?.into())]);
            shown.append(&mut optional(whole("text"), "text")?);
            shown
        }
        "emoji" => attrs([("shortName", attr_str(node, "shortName")?.into())]),
        "date" => attrs([("timestamp", attr_str(node, "timestamp")?.into())]),
        "status" => attrs([
            ("color", attr_str(node, "color")?.into()),
            ("text", attr_str(node, "text")?.into()),
        ]),
        "inlineCard" => attrs([("url", attr_str(node, "url")?.into())]),
        _ => return None,
    })
}

fn media(node: &Value) -> Option<Map<String, Value>> {
    let mut shown = attrs([("id", attr_str(node, "id")?.into())]);
    let alt = attr(node, "alt").filter(|value| !value.is_null());
    shown.append(&mut optional(alt, "alt")?);
    Some(shown)
}

/// A string that may be absent; an empty one counts as absent.
fn optional(value: Option<&Value>, name: &str) -> Option<Map<String, Value>> {
    match value {
        None => Some(Map::new()),
        Some(value) => match value.as_str()? {
            "" => Some(Map::new()),
            text => Some(attrs([(name, text.into())])),
        },
    }
}

/// Whether `read`, which was read from a text, shows the node `base`.
pub(crate) fn shows(base: &Value, read: &Value, table: &Table) -> bool {
    if let Some(number) = referred(read) {
        return table.get(number).is_some_and(|entry| entry.value == *base);
    }
    if kind(base) != kind(read) {
        return false;
    }
    if kind(base) == "text" {
        return is_plain_text(base)
            && text(base) == text(read)
            && marks_show(marks(base), marks(read), table);
    }
    if kind(base) != "doc" {
        let Some(shown) = shown_attrs(base) else {
            return false;
        };
        let attributes = read.get("attrs").and_then(Value::as_object);
        if attributes.map_or(!shown.is_empty(), |attributes| *attributes != shown) {
            return false;
        }
    }
    let units = units(base).units;
    let children = content(read);
    units.len() == children.len()
        && units
            .iter()
            .zip(children)
            .all(|(unit, child)| shows(&unit.shown, child, table))
}

fn marks_show(base: &[Value], read: &[Value], table: &Table) -> bool {
    let shows = |base: &Value, read: &Value| match referred(read) {
        Some(number) => table.get(number).is_some_and(|entry| entry.value == *base),
        None => shown_mark(base).as_ref() == Some(read),
    };
    base.len() == read.len()
        && base
            .iter()
            .all(|base| read.iter().any(|read| shows(base, read)))
}
