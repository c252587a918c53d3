//! Generated documents convert to org text and back without a change.

use crate::generate::document;
use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};
use serde_json::Value;
use weir_adf::{Options, empty, from_org, merge, parse, to_org, to_plain};

fn cases(default: u32) -> ProptestConfig {
    // `PROPTEST_CASES` sets the number of cases.
    let cases = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig::with_cases(
        cases
            .and_then(|cases| cases.parse().ok())
            .unwrap_or(default),
    )
}

/// Counts a node and its descendants.
fn nodes(value: &Value) -> usize {
    let children = value.get("content").and_then(Value::as_array);
    1 + children.map_or(0, |children| children.iter().map(nodes).sum())
}

proptest! {
    #![proptest_config(cases(400))]

    /// An unchanged text converts back to the document. So does a text with a change that shows
    /// nothing. A block that is added at the start leaves all other blocks unchanged.
    #[test]
    fn a_document_converts_back_unchanged(document in document(), offset in 0_usize..3) {
        let options = Options::under(offset);
        let org = to_org(&document, &options).unwrap();
        let back = from_org(&org.text, &document, &options).unwrap();
        prop_assert_eq!(&back, &document);
        // The text differs but shows the same, so the whole text is parsed.
        let spaced = format!("\n{}\n\n# a comment\n", org.text);
        let back = from_org(&spaced, &document, &options).unwrap();
        prop_assert_eq!(&back, &document, "{}", org.text);
        let added = format!("#+begin_warning\nnew\n#+end_warning\n\n{}", org.text);
        let longer = from_org(&added, &document, &options).unwrap();
        let blocks = longer["content"].as_array().unwrap();
        let mut others = blocks.clone();
        let new = others.iter().position(|block| block.to_string().contains("\"new\""));
        others.remove(new.unwrap());
        prop_assert_eq!(Value::from(others), document["content"].clone());
        // The document also round-trips as bytes.
        let bytes = serde_json::to_vec(&document).unwrap();
        prop_assert_eq!(parse(&bytes).unwrap(), document.clone());
        to_plain(&document).unwrap();
        let merged = merge(&document, &longer, &document).unwrap();
        prop_assert_eq!(merged.conflicts.len(), 0);
        prop_assert_eq!(merged.document, longer);
    }

    /// Without a base, a text converts to a document that shows the same text.
    #[test]
    fn a_text_without_references_needs_no_base(document in document()) {
        let options = Options::default();
        let org = to_org(&document, &options).unwrap();
        if org.opaque.is_empty() {
            let fresh = from_org(&org.text, &empty(), &options).unwrap();
            prop_assert!(nodes(&fresh) <= 2 * nodes(&document) + 1);
            prop_assert_eq!(to_org(&fresh, &options).unwrap().text, org.text);
        }
    }
}
