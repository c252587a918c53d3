//! ADF and org text, checked in three ways: documents of a generator, every node and mark of the
//! published schema, and two other crates that read ADF.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(
    clippy::needless_pass_by_value,
    reason = "documents are built from literals"
)]

mod edits;
mod errors;
mod generate;
mod peers;
mod round_trip;
mod schema;
mod written;

use serde_json::{Value, json};
use weir_adf::{Options, from_org, to_org};

/// A document with these blocks.
fn doc(blocks: Value) -> Value {
    json!({ "type": "doc", "version": 1, "content": blocks })
}

/// A paragraph with these inline nodes.
fn paragraph(nodes: Value) -> Value {
    json!({ "type": "paragraph", "content": nodes })
}

/// A text without marks.
fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// A text with these marks, each without attributes.
fn marked(text: &str, marks: &[&str]) -> Value {
    let marks: Vec<Value> = marks.iter().map(|mark| json!({ "type": mark })).collect();
    json!({ "type": "text", "text": text, "marks": marks })
}

/// The org text of a document; checks that it converts back to the document.
fn org(document: &Value) -> String {
    let options = Options::default();
    let org = to_org(document, &options).unwrap();
    let back = from_org(&org.text, document, &options).unwrap();
    assert_eq!(back, *document, "{}", org.text);
    org.text
}
