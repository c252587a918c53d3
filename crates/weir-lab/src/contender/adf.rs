//! Rich text of Jira: documents that are shown as org text and read back, and a JSON library that
//! only parses and writes them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir_adf::Options;

use super::store::failed;
use super::wire::part;
use super::{Contender, ContenderError, parameter};
use crate::clock::Stopwatch;
use crate::protocol::{Answer, Fields, Timed};

/// What is done with a document. Each begins with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Parse it, and show it as org text.
    Show,
    /// Show it, read the text back, and write the document.
    RoundTrip,
    /// Parse it with a JSON library, and write it.
    Tree,
}

/// A contender for documents. Parameter: `nodes`, the number of paragraphs, headings, lists, tables
/// and code blocks.
#[derive(Debug)]
pub struct Adf {
    work: Work,
    inputs: BTreeMap<usize, Vec<u8>>,
}

impl Adf {
    /// A contender without inputs.
    pub fn new(work: Work) -> Self {
        Self {
            work,
            inputs: BTreeMap::new(),
        }
    }

    fn execute(&self, bytes: &[u8]) -> Result<Vec<u8>, ContenderError> {
        let options = Options::default();
        match self.work {
            Work::Tree => {
                let tree: Value = serde_json::from_slice(bytes).map_err(failed)?;
                serde_json::to_vec(&tree).map_err(failed)
            }
            Work::Show => {
                let document = weir_adf::parse(bytes).map_err(failed)?;
                let org = weir_adf::to_org(&document, &options).map_err(failed)?;
                Ok(org.text.into_bytes())
            }
            Work::RoundTrip => {
                let document = weir_adf::parse(bytes).map_err(failed)?;
                let org = weir_adf::to_org(&document, &options).map_err(failed)?;
                let read = weir_adf::from_org(&org.text, &document, &options).map_err(failed)?;
                serde_json::to_vec(&read).map_err(failed)
            }
        }
    }
}

fn text(text: &str, mark: Option<&str>) -> Value {
    let mut node = json!({"type": "text", "text": text});
    if let Some(mark) = mark {
        node["marks"] = json!([{"type": mark}]);
    }
    node
}

fn paragraph(number: usize) -> Value {
    let middle = format!("{} pages, printer {}", number % 90 + 1, number % 7);
    json!({"type": "paragraph", "content": [
        text("The printer on floor ", None),
        text(&middle, Some(["strong", "em", "code"][number % 3])),
        text(" stops after the first page; see the log of the queue.", None),
    ]})
}

fn list(number: usize) -> Value {
    let item = |item| json!({"type": "listItem", "content": [paragraph(number + item)]});
    json!({"type": "bulletList", "content": [item(0), item(1)]})
}

fn table(number: usize) -> Value {
    let row = |kind: &str, row| {
        let cell = |cell| json!({"type": kind, "content": [paragraph(number + row + cell)]});
        json!({"type": "tableRow", "content": [cell(0), cell(1)]})
    };
    json!({"type": "table", "content": [row("tableHeader", 0), row("tableCell", 1)]})
}

/// A document with this number of nodes below its root.
fn document(nodes: usize) -> Value {
    let node = |number: usize| match number % 8 {
        0 => json!({"type": "heading", "attrs": {"level": number / 8 % 3 + 1},
            "content": [text(&format!("Step {number}"), None)]}),
        3 => list(number),
        5 => json!({"type": "codeBlock", "attrs": {"language": "sh"},
            "content": [text("lpq -P floor2\nlprm -P floor2 -", None)]}),
        6 => table(number),
        _ => paragraph(number),
    };
    let content: Vec<_> = (0..nodes).map(node).collect();
    json!({"type": "doc", "version": 1, "content": content})
}

impl Contender for Adf {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let bytes = serde_json::to_vec(&document(parameter(fields, "nodes")?)).map_err(failed)?;
        self.inputs.insert(input, bytes);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let bytes = self.inputs.get(&input);
        let bytes = bytes.ok_or(ContenderError::NotLoaded(input))?;
        let result = self.execute(bytes)?;
        Ok(Answer {
            content: part(b'd', &result),
            touch: result.len() as u64,
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let bytes = self.inputs.get(&input);
        let bytes = bytes.ok_or(ContenderError::NotLoaded(input))?;
        let mut touch = 0;
        let watch = Stopwatch::start();
        for _ in 0..iterations {
            touch += self.execute(std::hint::black_box(bytes))?.len() as u64;
        }
        let (wall_ns, cpu_ns) = watch.stop();
        Ok(Timed {
            wall_ns,
            cpu_ns,
            touch,
            ..Timed::default()
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_the_document() {
        for nodes in ["1", "10", "100"] {
            let fields = [("nodes".to_owned(), nodes.to_owned())].into();
            let content = |work| {
                let mut adf = Adf::new(work);
                adf.load(0, &fields).unwrap();
                adf.check(0).unwrap()
            };
            let (trip, tree) = (content(Work::RoundTrip), content(Work::Tree));
            assert_eq!((trip.content, trip.touch), (tree.content, tree.touch));
            assert!(content(Work::Show).touch >= "* Step 0\n".len() as u64);
        }
    }
}
