//! Applies an edit of a text to the document that was converted to the text.
//!
//! There are three trees: the document, the nodes parsed from its text, and the nodes parsed from
//! the edited text. The second and the third tree are compared. Equal nodes are taken from the
//! document. A node that differs keeps the parts that the text does not show.

use crate::node::{attr_str, content, is_plain_text, kind, marks, parent, referred};
use crate::opaque::Table;
use crate::render::Projection;
use crate::sequence::common;
use crate::shown::{Unit, shown_mark, units};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// The document after the edit; `after` has the nodes parsed from the edited text.
pub(crate) fn document(base: &Value, projection: &Projection, after: &[Value]) -> Value {
    let mut identifiers = HashSet::new();
    collect_identifiers(base, &mut identifiers);
    let mut edit = Edit {
        table: &projection.table,
        identifiers,
        next: 1,
    };
    let before = parent("doc", Map::new(), projection.read.clone());
    let after = parent("doc", Map::new(), after.to_vec());
    edit.edited_node(base, &before, &after)
}

fn collect_identifiers(node: &Value, into: &mut HashSet<String>) {
    if let Some(identifier) = attr_str(node, "localId") {
        into.insert(identifier.to_owned());
    }
    for child in content(node) {
        collect_identifiers(child, into);
    }
}

struct Edit<'t> {
    table: &'t Table,
    /// Identifiers that are in use.
    identifiers: HashSet<String>,
    /// Number of the next new identifier.
    next: u64,
}

/// Marks of a text: as shown, and as in the document.
type Hidden<'v> = Vec<(Value, &'v Value)>;

impl Edit<'_> {
    /// A node of the document, after an edit that changed it.
    fn edited_node(&mut self, base: &Value, before: &Value, after: &Value) -> Value {
        let mut node = base.clone();
        let Some(fields) = node.as_object_mut() else {
            return node;
        };
        let attributes = |node: &Value| node.get("attrs").and_then(Value::as_object).cloned();
        let old = attributes(before).unwrap_or_default();
        let new = attributes(after).unwrap_or_default();
        if old != new {
            let mut whole = attributes(base).unwrap_or_default();
            // The id and the character of an emoji belong to its old name, the size of a file to
            // its old id.
            let is_other_file = old.get("id") != new.get("id");
            let is_stale = |name: &str| match kind(base) {
                "emoji" => ["id", "text"].contains(&name),
                "media" | "mediaInline" => is_other_file && ["width", "height"].contains(&name),
                _ => false,
            };
            let is_removed = |name: &str| old.contains_key(name) && !new.contains_key(name);
            whole.retain(|name, _| !is_stale(name) && !is_removed(name));
            let differs = |(name, value): &(String, Value)| old.get(name) != Some(value);
            whole.extend(new.into_iter().filter(differs));
            fields.insert("attrs".to_owned(), Value::Object(whole));
        }
        if after.get("content").is_some() && content(before) != content(after) {
            let children = self.children(base, content(before), content(after));
            fields.insert("content".to_owned(), Value::Array(children));
        }
        self.add_required(&mut node);
        node
    }

    fn children(&mut self, base: &Value, before: &[Value], after: &[Value]) -> Vec<Value> {
        let split = units(base);
        let hidden = hidden_marks(base);
        let mut leading = split.leading.to_vec();
        let mut out = Vec::new();
        let (mut one, mut two) = (0, 0);
        let mut anchors = common(before, after);
        anchors.push((before.len(), after.len()));
        for (to_one, to_two) in anchors {
            let gap = Gap {
                units: &split.units[one.min(split.units.len())..to_one.min(split.units.len())],
                before: &before[one..to_one],
                after: &after[two..to_two],
            };
            // A new paragraph after an empty one replaces the empty one.
            let fills = two == 0 && gap.before.is_empty() && !gap.after.is_empty();
            if fills && kind(&gap.after[0]) == "paragraph" && !leading.is_empty() {
                let mut filled = leading.remove(0);
                let new = self.new_node(&gap.after[0], &hidden);
                if let (Some(node), Some(children)) = (filled.as_object_mut(), new.get("content")) {
                    node.insert("content".to_owned(), children.clone());
                }
                out.push(filled);
                let rest = Gap {
                    after: &gap.after[1..],
                    ..gap
                };
                self.gap(&rest, &hidden, &mut out);
            } else {
                self.gap(&gap, &hidden, &mut out);
            }
            if let Some(unit) = split.units.get(to_one)
                && to_one < before.len()
            {
                out.extend(unit.nodes.iter().cloned());
            }
            (one, two) = (to_one + 1, to_two + 1);
        }
        leading.extend(out);
        leading
    }

    /// Adds the nodes between two unchanged nodes. A node before the edit is matched with a node of
    /// its type after the edit.
    fn gap(&mut self, gap: &Gap<'_>, hidden: &Hidden<'_>, out: &mut Vec<Value>) {
        let mut old = gap.units.iter().zip(gap.before).peekable();
        for after in gap.after {
            let same = |before: &Value| kind(before) == kind(after) && referred(before).is_none();
            let mut ahead = old.clone();
            let found = ahead.position(|(_, before)| same(before));
            let Some((unit, before)) = found.and_then(|skip| old.nth(skip)) else {
                out.push(self.new_node(after, hidden));
                continue;
            };
            if kind(after) == "text" {
                out.push(self.new_node(after, hidden));
                continue;
            }
            out.push(self.edited_node(&unit.shown, before, after));
            out.extend(unit.hidden().iter().cloned());
        }
    }

    /// A node that is not in the document yet.
    fn new_node(&mut self, node: &Value, hidden: &Hidden<'_>) -> Value {
        if let Some(entry) = referred(node).and_then(|number| self.table.get(number)) {
            return entry.value.clone();
        }
        let mut whole = node.clone();
        let Some(fields) = whole.as_object_mut() else {
            return whole;
        };
        if !marks(node).is_empty() {
            let full = |mark: &Value| {
                if let Some(entry) = referred(mark).and_then(|number| self.table.get(number)) {
                    return entry.value.clone();
                }
                let known = hidden.iter().find(|(shown, _)| shown == mark);
                known.map_or_else(|| mark.clone(), |(_, full)| (*full).clone())
            };
            let marks = marks(node).iter().map(full).collect();
            fields.insert("marks".to_owned(), Value::Array(marks));
        }
        if !content(node).is_empty() {
            let children = content(node)
                .iter()
                .map(|child| self.new_node(child, hidden));
            let children: Vec<Value> = children.collect();
            fields.insert("content".to_owned(), Value::Array(children));
        }
        self.add_required(&mut whole);
        whole
    }

    /// Adds the parts that the schema requires and the text does not show.
    fn add_required(&mut self, node: &mut Value) {
        let (name, empty) = (kind(node).to_owned(), content(node).is_empty());
        let Some(fields) = node.as_object_mut() else {
            return;
        };
        let needs_block = matches!(
            name.as_str(),
            "listItem" | "blockquote" | "panel" | "expand" | "nestedExpand"
        );
        if needs_block && empty {
            let paragraph = json!({ "type": "paragraph", "content": [] });
            fields.insert("content".to_owned(), json!([paragraph]));
        }
        let required: &[(&str, &str)] = match name.as_str() {
            "taskList" | "taskItem" => &[("localId", "")],
            "mediaSingle" => &[("layout", "center")],
            "media" | "mediaInline" => &[("collection", "")],
            "nestedExpand" => &[("title", "")],
            _ => return,
        };
        let attrs = fields.entry("attrs").or_insert_with(|| json!({}));
        if attrs.is_null() {
            *attrs = json!({});
        }
        let Some(attrs) = attrs.as_object_mut() else {
            return;
        };
        for (name, value) in required {
            if attrs.contains_key(*name) {
                continue;
            }
            let value = match *name {
                "localId" => self.identifier(),
                _ => (*value).to_owned(),
            };
            attrs.insert((*name).to_owned(), value.into());
        }
    }

    /// An identifier that the document does not use. Equal edits give equal identifiers.
    fn identifier(&mut self) -> String {
        loop {
            let identifier = format!("weir-{}", self.next);
            self.next += 1;
            if self.identifiers.insert(identifier.clone()) {
                return identifier;
            }
        }
    }
}

/// The nodes between two unchanged nodes.
#[derive(Clone, Copy)]
struct Gap<'v> {
    units: &'v [Unit<'v>],
    before: &'v [Value],
    after: &'v [Value],
}

/// The marks of the texts in a node that have hidden parts.
fn hidden_marks(node: &Value) -> Hidden<'_> {
    let texts = content(node).iter().filter(|child| is_plain_text(child));
    let marks = texts.flat_map(marks);
    marks
        .filter_map(|mark| Some((shown_mark(mark)?, mark)))
        .filter(|(shown, mark)| shown != *mark)
        .collect()
}
