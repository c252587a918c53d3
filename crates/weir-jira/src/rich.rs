//! Rich text of any site as org text for people.

use serde_json::{Map, Value};
use weir_adf::{Options, to_org};

use crate::{jql, wiki};

/// Converts rich text to org text under a headline with `stars` stars. Wiki markup of Data Center
/// stays unchanged; null becomes no text. For an invalid document, returns its words and a line
/// that reports the fault. Control characters except line ends and tabs are removed, because a
/// terminal would execute them. `%%(` gets a space, also in code: the agenda of Emacs would evaluate
/// a Lisp form after `%%`.
pub fn shown(value: &Value, stars: usize) -> String {
    let mut text = org(value, stars);
    text.retain(|c| matches!(c, '\n' | '\t') || !c.is_control());
    text.replace("%%(", "%% (")
}

/// Converts rich text as [`shown`] does, but only its first `chars_max` characters: the rest is cut
/// before the conversion, which would take seconds for a text of megabytes. Returns the org text
/// and the number of characters that were cut.
pub fn shown_up_to(value: &Value, stars: usize, chars_max: usize) -> (String, usize) {
    let mut budget = Budget {
        left: chars_max,
        cut: 0,
    };
    let cut = budget.part(value);
    (shown(&cut, stars), budget.cut)
}

/// The size of a text that is still converted. A node without text counts as one character.
struct Budget {
    left: usize,
    cut: usize,
}

impl Budget {
    /// The start of a node or of wiki markup, with as many characters as are left.
    fn part(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Object(node) => {
                self.left = self.left.saturating_sub(1);
                let member = |(name, value): (&String, &Value)| {
                    let value = match (name.as_str(), value) {
                        ("text", Value::String(text)) => self.text(text).into(),
                        ("content", Value::Array(nodes)) => self.nodes(nodes),
                        (_, other) => other.clone(),
                    };
                    (name.clone(), value)
                };
                Value::Object(node.iter().map(member).collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }

    fn nodes(&mut self, nodes: &[Value]) -> Value {
        let mut kept = Vec::new();
        for node in nodes {
            if self.left > 0 {
                kept.push(self.part(node));
            } else {
                self.cut += jql::plain_text(node).trim_end().chars().count();
            }
        }
        kept.into()
    }

    fn text<'t>(&mut self, text: &'t str) -> &'t str {
        let end = text.char_indices().nth(self.left);
        let end = end.map_or(text.len(), |(at, _)| at);
        let (kept, rest) = text.split_at(end);
        self.left -= kept.chars().count().min(self.left);
        self.cut += rest.chars().count();
        kept
    }
}

fn org(value: &Value, stars: usize) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(markup) => wiki::shown(markup),
        document => match to_org(document, &Options::under(stars)) {
            Ok(org) => org.text,
            Err(error) => {
                let words = jql::plain_text(document);
                let note =
                    format!("(The site sent a text that is not a valid document: {error})\n");
                match words.trim() {
                    "" => note,
                    words => format!("{words}\n{note}"),
                }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_long_text_is_cut_before_its_conversion() {
        let paragraph = |text: String| {
            let marks = json!([{"type": "strong"}]);
            json!({"type": "paragraph", "content": [{"type": "text", "text": text, "marks": marks}]})
        };
        // Too large to convert in a test: a conversion of the whole would be noticed.
        let first = paragraph("ä".repeat(5_000_000));
        let document = json!({"type": "doc", "version": 1,
            "content": [first, paragraph("rest".to_owned())]});
        let (text, cut) = shown_up_to(&document, 1, 103);
        assert_eq!(text, format!("*{}*\n", "ä".repeat(100)));
        assert_eq!(cut, 5_000_000 - 100 + 4);
        assert_eq!(
            shown_up_to(&json!("wiki text"), 0, 4),
            ("wiki\n".to_owned(), 5)
        );
        // Nodes without text count too.
        let rules = vec![json!({"type": "rule"}); 1000];
        let document = json!({"type": "doc", "version": 1, "content": rules});
        let (text, _) = shown_up_to(&document, 0, 10);
        assert_eq!(text.matches("-----").count(), 9);
        let document =
            json!({"type": "doc", "version": 1, "content": [paragraph("all".to_owned())]});
        assert_eq!(shown_up_to(&document, 0, 100), ("*all*\n".to_owned(), 0));
    }

    #[test]
    fn no_text_has_a_form_that_the_agenda_of_emacs_evaluates() {
        let line = "<%%(beep)>";
        let words = json!([{"type": "text", "text": line}]);
        let paragraph = json!([{"type": "paragraph", "content": words}]);
        let media = json!([{"type": "media", "attrs": {"type": "file", "id": "1", "alt": line}}]);
        for value in [
            json!({"type": "doc", "version": 1, "content": [{"type": "codeBlock", "content": words}]}),
            json!({"type": "doc", "version": 1,
                "content": [{"type": "expand", "attrs": {"title": line}, "content": paragraph}]}),
            json!({"type": "doc", "version": 1,
                "content": [{"type": "mediaSingle", "content": media}]}),
            json!({"type": "doc", "content": [words[0], 7]}),
            json!(line),
        ] {
            let text = shown(&value, 1);
            assert!(!text.contains("%%("), "{text}");
            assert!(text.contains("<%% (beep)>"), "{text}");
        }
    }

    #[test]
    fn a_broken_document_shows_its_words_and_says_so() {
        let part = json!({"type": "paragraph", "content": [{"type": "text", "text": "left"}]});
        for (document, words) in [
            (json!(5), ""),
            (json!({"type": "doc", "version": 1, "content": "x"}), ""),
            (
                json!({"type": "doc", "version": 1, "content": [part, 7]}),
                "left\n",
            ),
        ] {
            let text = shown(&document, 1);
            assert!(text.starts_with(words), "{text}");
            assert!(text.contains("not a valid document"), "{text}");
        }
        assert_eq!(shown(&Value::Null, 0), "");
        assert_eq!(shown(&json!("h1. x"), 0), "h1. x\n");
    }
}
