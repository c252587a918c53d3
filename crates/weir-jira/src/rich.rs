//! Rich text of any site as org text for people.

use serde_json::Value;
use weir_adf::{Options, to_org};

use crate::{jql, wiki};

/// Converts rich text to org text under a headline with `stars` stars. Wiki markup of Data Center
/// stays unchanged; null becomes no text. For an invalid document, returns its words and a line
/// that reports the fault. Control characters except line ends and tabs are removed, because a
/// terminal would execute them.
pub fn shown(value: &Value, stars: usize) -> String {
    let mut text = org(value, stars);
    text.retain(|c| matches!(c, '\n' | '\t') || !c.is_control());
    text
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
