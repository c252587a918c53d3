//! Checks whether a value is a valid document within the limits.

use crate::error::AdfError;
use serde_json::Value;

/// Limit on the levels of nodes in a document, including the document itself. Editors create about
/// 20.
pub const DEPTH_MAX: usize = 60;

/// Limit on the nodes in a document.
pub const NODES_MAX: usize = 200_000;

/// Limit on the bytes of a document: of its JSON for [`parse`], of its texts for [`check`].
pub const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// Parses JSON as a document and checks it.
///
/// # Errors
///
/// [`AdfError::Json`] with line and column, and what [`check`] returns.
pub fn parse(bytes: &[u8]) -> Result<Value, AdfError> {
    within(bytes.len())?;
    let value = serde_json::from_slice(bytes).map_err(|fault| AdfError::Json {
        line: fault.line(),
        column: fault.column(),
    })?;
    check(&value)?;
    Ok(value)
}

/// Checks that a value is a document: an object of type `doc` with a list of nodes. Each node must
/// be an object with a `type`; `content` and `marks` must be lists of objects with a `type`;
/// `attrs` must be an object; `text` of a text node must be a string. `null` counts as absent.
/// Types and attributes outside of the published schema are accepted.
///
/// # Errors
///
/// [`AdfError::Shape`] with a JSON pointer to the first faulty part, or the exceeded limit.
pub fn check(document: &Value) -> Result<(), AdfError> {
    if document.get("type").and_then(Value::as_str) != Some("doc") {
        return Err(shape("an object of type `doc`"));
    }
    if !document.get("content").is_some_and(Value::is_array) {
        return Err(shape("a list as `content`").under("content"));
    }
    let mut count = Count::default();
    node(document, 1, &mut count)
}

/// Nodes and bytes seen so far.
#[derive(Default)]
struct Count {
    nodes: usize,
    bytes: usize,
}

fn within(bytes: usize) -> Result<(), AdfError> {
    if bytes > DOCUMENT_BYTES_MAX {
        let limit = DOCUMENT_BYTES_MAX;
        return Err(AdfError::TooLarge { bytes, limit });
    }
    Ok(())
}

fn node(value: &Value, depth: usize, count: &mut Count) -> Result<(), AdfError> {
    let Some(object) = value.as_object() else {
        return Err(shape("a node, which is an object"));
    };
    if depth > DEPTH_MAX {
        return Err(AdfError::TooDeep {
            pointer: String::new(),
            limit: DEPTH_MAX,
        });
    }
    count.nodes += 1;
    if count.nodes > NODES_MAX {
        return Err(AdfError::TooManyNodes { limit: NODES_MAX });
    }
    let Some(kind) = object.get("type").and_then(Value::as_str) else {
        return Err(shape("a string as `type`").under("type"));
    };
    if kind == "text" {
        let Some(text) = object.get("text").and_then(Value::as_str) else {
            return Err(shape("a string as `text`").under("text"));
        };
        count.bytes = count.bytes.saturating_add(text.len());
        within(count.bytes)?;
    }
    if let Some(attrs) = object.get("attrs")
        && !attrs.is_object()
        && !attrs.is_null()
    {
        return Err(shape("an object as `attrs`").under("attrs"));
    }
    for (index, mark) in list(object.get("marks"), "marks")?.iter().enumerate() {
        if mark.get("type").and_then(Value::as_str).is_none() {
            let fault = shape("a mark, which is an object with a `type`");
            return Err(fault.under(&index.to_string()).under("marks"));
        }
    }
    for (index, child) in list(object.get("content"), "content")?.iter().enumerate() {
        node(child, depth + 1, count)
            .map_err(|fault| fault.under(&index.to_string()).under("content"))?;
    }
    Ok(())
}

fn list<'v>(value: Option<&'v Value>, name: &str) -> Result<&'v [Value], AdfError> {
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(shape("a list").under(name)),
    }
}

fn shape(expected: &'static str) -> AdfError {
    AdfError::Shape {
        pointer: String::new(),
        expected,
    }
}

impl AdfError {
    /// Returns this fault with `step` added at the start of its pointer.
    fn under(mut self, step: &str) -> Self {
        if let Self::Shape { pointer, .. } | Self::TooDeep { pointer, .. } = &mut self {
            *pointer = format!("/{step}{pointer}");
        }
        self
    }
}
