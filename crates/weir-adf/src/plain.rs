//! Converts plain text to a document, and a document to plain text.

use crate::check::check;
use crate::error::AdfError;
use crate::node::{attr_str, attrs, content, kind, leaf, parent, text, text_node};
use serde_json::{Map, Value, json};

/// Creates a document from text without markup. An empty line ends a paragraph; a newline is a hard
/// break. Markup characters remain text.
#[must_use]
pub fn from_plain(plain: &str) -> Value {
    let mut paragraphs: Vec<Vec<Value>> = Vec::new();
    let mut open = false;
    for line in plain.lines() {
        if line.trim().is_empty() {
            open = false;
            continue;
        }
        match paragraphs.last_mut() {
            Some(last) if open => {
                last.push(leaf("hardBreak", Map::new()));
                last.push(text_node(line, &[]));
            }
            _ => paragraphs.push(vec![text_node(line, &[])]),
        }
        open = true;
    }
    let paragraphs = paragraphs
        .into_iter()
        .map(|nodes| parent("paragraph", attrs([]), nodes));
    let paragraphs: Vec<Value> = paragraphs.collect();
    json!({ "type": "doc", "version": 1, "content": paragraphs })
}

/// Returns the words of a document without markup, for search and for one-line views: blocks are
/// separated by an empty line, items and rows by a newline, cells by a tab.
///
/// # Errors
///
/// The error of [`check`].
pub fn to_plain(document: &Value) -> Result<String, AdfError> {
    check(document)?;
    let mut out = String::new();
    walk(document, &mut out);
    Ok(out.trim().to_owned())
}

fn walk(node: &Value, out: &mut String) {
    let name = kind(node);
    let shown = match name {
        "text" => text(node),
        "hardBreak" => "\n",
        "mention" | "status" | "placeholder" => attr_str(node, "text").unwrap_or(""),
        "emoji" => attr_str(node, "text")
            .or_else(|| attr_str(node, "shortName"))
            .unwrap_or(""),
        "inlineCard" | "blockCard" | "embedCard" => attr_str(node, "url").unwrap_or(""),
        "media" | "mediaInline" => attr_str(node, "alt").unwrap_or(""),
        "expand" | "nestedExpand" => attr_str(node, "title").unwrap_or(""),
        _ => "",
    };
    out.push_str(shown);
    if matches!(name, "expand" | "nestedExpand") && !shown.is_empty() {
        end_with(out, "\n\n");
    }
    for child in content(node) {
        walk(child, out);
    }
    match name {
        "listItem" | "taskItem" | "decisionItem" | "tableRow" => end_with(out, "\n"),
        "tableCell" | "tableHeader" => end_with(out, "\t"),
        "paragraph" | "heading" | "codeBlock" | "blockquote" | "panel" | "bulletList"
        | "orderedList" | "taskList" | "table" | "expand" | "nestedExpand" => end_with(out, "\n\n"),
        _ => {}
    }
}

/// Ends a text in `end`, which replaces white space at its end.
fn end_with(out: &mut String, end: &str) {
    let kept = out.trim_end_matches(['\n', '\t']).len();
    out.truncate(kept);
    if !out.is_empty() {
        out.push_str(end);
    }
}
