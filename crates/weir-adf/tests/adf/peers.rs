//! Two other crates that read ADF find the same words in the same order as the org text.

use crate::doc;
use proptest::collection::vec;
use proptest::prelude::{
    BoxedStrategy, Just, ProptestConfig, Strategy, prop_assert_eq, prop_oneof, proptest,
};
use serde_json::{Value, json};
use weir_adf::{Options, to_org, to_plain};

/// The words of the documents below: `w`, digits, `w`.
fn words(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric());
    let word = |part: &&str| part.len() > 2 && part.starts_with('w') && part.ends_with('w');
    parts.filter(word).map(str::to_owned).collect()
}

fn word() -> BoxedStrategy<Value> {
    let marks = proptest::sample::select(&["", "strong", "em", "strike", "code"][..]);
    (0..1000, marks)
        .prop_map(|(number, mark)| {
            let text = format!("w{number}w");
            match mark {
                "" => json!({ "type": "text", "text": text }),
                mark => json!({ "type": "text", "text": text, "marks": [{ "type": mark }] }),
            }
        })
        .boxed()
}

fn paragraph() -> BoxedStrategy<Value> {
    vec(word(), 1..5)
        .prop_map(|words| {
            let space = || json!({ "type": "text", "text": " and " });
            let nodes = words.into_iter().flat_map(|word| [word, space()]);
            let mut nodes: Vec<Value> = nodes.collect();
            nodes.pop();
            json!({ "type": "paragraph", "content": nodes })
        })
        .boxed()
}

fn block() -> BoxedStrategy<Value> {
    let plain =
        || (0..1000).prop_map(|number| json!({ "type": "text", "text": format!("w{number}w") }));
    let leaf = prop_oneof![
        4 => paragraph(),
        1 => (1..7, plain()).prop_map(|(level, text)| {
            json!({ "type": "heading", "attrs": { "level": level }, "content": [text] })
        }),
        1 => plain().prop_map(|text| {
            json!({ "type": "codeBlock", "attrs": { "language": "c" }, "content": [text] })
        }),
        1 => Just(json!({ "type": "rule" })),
    ];
    leaf.prop_recursive(3, 24, 3, |_| {
        let items = vec(paragraph(), 1..4).prop_map(|items| {
            let item = |block| json!({ "type": "listItem", "content": [block] });
            items.into_iter().map(item).collect::<Vec<_>>()
        });
        prop_oneof![
            items
                .clone()
                .prop_map(|items| json!({ "type": "bulletList", "content": items })),
            items.prop_map(|items| json!({ "type": "orderedList", "content": items })),
            vec(paragraph(), 1..3)
                .prop_map(|blocks| json!({ "type": "blockquote", "content": blocks })),
            vec(paragraph(), 1..3).prop_map(|blocks| {
                json!({ "type": "panel", "attrs": { "panelType": "info" }, "content": blocks })
            }),
        ]
    })
    .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_readers_find_the_same_words(blocks in vec(block(), 1..8)) {
        let document = doc(blocks.into());
        let org = to_org(&document, &Options::default()).unwrap();
        prop_assert_eq!(org.opaque.len(), 0, "{}", org.text);
        let ours = words(&org.text);
        prop_assert_eq!(&words(&to_plain(&document).unwrap()), &ours);
        prop_assert_eq!(&words(&jc_adf::to_markdown(&document)), &ours);
        let options = amdc::Options::default();
        let theirs = amdc::convert(&document.to_string(), amdc::Format::Adf, amdc::Format::Gfm, &options);
        prop_assert_eq!(&words(&theirs.unwrap().text), &ours);
    }
}
