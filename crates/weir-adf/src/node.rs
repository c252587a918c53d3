//! Accesses the parts of a node. A part that is absent, `null` or of another type reads as empty.

use serde_json::{Map, Value, json};

/// Type of a node or mark; empty if it has none.
pub(crate) fn kind(node: &Value) -> &str {
    node.get("type").and_then(Value::as_str).unwrap_or("")
}

/// Children of a node.
pub(crate) fn content(node: &Value) -> &[Value] {
    node.get("content")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Marks of a node.
pub(crate) fn marks(node: &Value) -> &[Value] {
    node.get("marks")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Text of a text node.
pub(crate) fn text(node: &Value) -> &str {
    node.get("text").and_then(Value::as_str).unwrap_or("")
}

/// An attribute of a node or mark.
pub(crate) fn attr<'v>(node: &'v Value, name: &str) -> Option<&'v Value> {
    node.get("attrs").and_then(|attrs| attrs.get(name))
}

/// An attribute that is a string.
pub(crate) fn attr_str<'v>(node: &'v Value, name: &str) -> Option<&'v str> {
    attr(node, name).and_then(Value::as_str)
}

/// Whether a node is a text node with no other fields than text and marks.
pub(crate) fn is_plain_text(node: &Value) -> bool {
    let known = |key: &String| matches!(key.as_str(), "type" | "text" | "marks");
    kind(node) == "text" && node.as_object().is_some_and(|node| node.keys().all(known))
}

/// A node with children.
pub(crate) fn parent(kind: &str, attrs: Map<String, Value>, content: Vec<Value>) -> Value {
    let mut node = leaf(kind, attrs);
    if let Some(node) = node.as_object_mut() {
        node.insert("content".to_owned(), Value::Array(content));
    }
    node
}

/// A node without children.
pub(crate) fn leaf(kind: &str, attrs: Map<String, Value>) -> Value {
    let mut node = Map::new();
    node.insert("type".to_owned(), kind.into());
    if !attrs.is_empty() {
        node.insert("attrs".to_owned(), Value::Object(attrs));
    }
    Value::Object(node)
}

/// Attributes from pairs.
pub(crate) fn attrs<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    let owned = |(name, value): (&str, Value)| (name.to_owned(), value);
    pairs.into_iter().map(owned).collect()
}

/// A text node. `text` must not be empty.
pub(crate) fn text_node(text: &str, marks: &[Value]) -> Value {
    if marks.is_empty() {
        json!({ "type": "text", "text": text })
    } else {
        json!({ "type": "text", "text": text, "marks": marks })
    }
}

/// Type of the placeholder for a stored node or mark during parsing; no real type contains a space.
const REFERENCE: &str = "stored node";

/// The placeholder for the stored node or mark `number`.
pub(crate) fn reference(number: usize) -> Value {
    json!({ "type": REFERENCE, "number": number })
}

/// The number in a placeholder of [`reference`]; `None` for other nodes.
pub(crate) fn referred(node: &Value) -> Option<usize> {
    if kind(node) != REFERENCE {
        return None;
    }
    let number = node.get("number").and_then(Value::as_u64)?;
    usize::try_from(number).ok()
}
