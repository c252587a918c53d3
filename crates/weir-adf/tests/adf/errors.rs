//! Invalid documents and texts: the error has the position of the fault.

use crate::{doc, paragraph, text};
use serde_json::{Value, json};
use weir_adf::{
    AdfError, DEPTH_MAX, NODES_MAX, Options, OrgErrorKind, check, empty, from_org, parse, to_org,
};

#[test]
fn the_error_of_an_invalid_document_has_the_position() {
    let fault = |document: Value, place: &str| match check(&document) {
        Err(AdfError::Shape { pointer, .. }) => assert_eq!(pointer, place),
        other => panic!("{other:?}"),
    };
    fault(json!(null), "");
    fault(json!({ "type": "paragraph" }), "");
    fault(json!({ "type": "doc", "version": 1 }), "/content");
    fault(doc(json!([1])), "/content/0");
    fault(doc(json!([{}])), "/content/0/type");
    fault(
        doc(json!([paragraph(json!([{ "type": "text" }]))])),
        "/content/0/content/0/text",
    );
    fault(doc(json!([paragraph(json!("x"))])), "/content/0/content");
    fault(
        doc(json!([{ "type": "rule", "attrs": [] }])),
        "/content/0/attrs",
    );
    let mark = json!({ "type": "text", "text": "a", "marks": [{ "type": "em" }, 7] });
    fault(
        doc(json!([paragraph(json!([mark]))])),
        "/content/0/content/0/marks/1",
    );
    assert_eq!(
        parse(b"{\"type\":\n  x"),
        Err(AdfError::Json { line: 2, column: 3 })
    );
    check(&doc(
        json!([{ "type": "rule", "attrs": null, "marks": null, "content": null }]),
    ))
    .unwrap();
}

#[test]
fn depth_and_size_are_limited() {
    let nested = |depth: usize| {
        let mut node = json!({ "type": "blockquote", "content": [] });
        for _ in 2..depth {
            node = json!({ "type": "blockquote", "content": [node] });
        }
        doc(json!([node]))
    };
    let options = Options::default();
    let deep = nested(DEPTH_MAX);
    let org = to_org(&deep, &options).unwrap();
    assert_eq!(from_org(&org.text, &deep, &options).unwrap(), deep);
    let limit = DEPTH_MAX;
    assert!(matches!(to_org(&nested(DEPTH_MAX + 1), &options),
        Err(AdfError::TooDeep { pointer, limit: at }) if at == limit && pointer.len() == limit * 10));
    let many: Vec<Value> = (0..NODES_MAX).map(|_| json!({ "type": "rule" })).collect();
    assert_eq!(
        check(&doc(json!(many))),
        Err(AdfError::TooManyNodes { limit: NODES_MAX })
    );
    let huge = doc(json!([paragraph(json!([text(&"x".repeat(17 << 20))]))]));
    assert!(matches!(check(&huge), Err(AdfError::TooLarge { .. })));
    assert!(matches!(
        parse(&vec![b' '; 17 << 20]),
        Err(AdfError::TooLarge { .. })
    ));
    // Nesting beyond the limit of the JSON parser.
    assert!(matches!(
        parse("[".repeat(100_000).as_bytes()),
        Err(AdfError::Json { .. })
    ));
}

/// A text is either rejected, or becomes a document within the limits.
#[test]
fn a_text_becomes_no_document_that_is_nested_too_deeply() {
    let options = Options::default();
    let read = |text: &str, base: &Value| match from_org(text, base, &options) {
        Ok(document) => {
            check(&document).unwrap();
            true
        }
        Err(error) => {
            assert!(
                matches!(error.kind, OrgErrorKind::TooDeep { .. }),
                "{error}"
            );
            false
        }
    };
    let list = |levels: usize, bullet: &str| -> String {
        let line = |level| ["  ".repeat(level), format!("{bullet} a\n")].concat();
        (0..levels).map(line).collect()
    };
    let quoted = |levels: usize, inner: &str| {
        let (begin, end) = ("#+begin_quote\n", "#+end_quote\n");
        format!("{}{inner}\n{}", begin.repeat(levels), end.repeat(levels))
    };
    let accepted = |text: &dyn Fn(usize) -> String| {
        let levels = 1..80;
        levels
            .filter(|levels| read(&text(*levels), &empty()))
            .count()
    };
    assert_eq!(accepted(&|levels| list(levels, "-")), 28);
    assert_eq!(accepted(&|levels| list(levels, "- [ ]")), 57);
    assert_eq!(accepted(&|levels| quoted(levels, "a")), 57);
    assert_eq!(accepted(&|levels| quoted(levels, "| a |")), 54);
    // A part of the base is within the quotes of the text.
    let mut stored = json!({ "type": "unknown" });
    for _ in 0..30 {
        stored = json!({ "type": "unknown", "content": [stored] });
    }
    let base = doc(json!([stored]));
    assert!(read(&quoted(20, "{{{adf(1)}}}"), &base));
    assert!(!read(&quoted(40, "{{{adf(1)}}}"), &base));
}

#[test]
fn the_error_of_an_invalid_text_has_the_line() {
    let fault = |text: &str, line: usize, kind: OrgErrorKind| {
        let error = from_org(text, &empty(), &Options::default()).unwrap_err();
        assert_eq!((error.line, error.kind), (line, kind));
    };
    let name = |name: &str| name.to_owned();
    fault(
        "a\n\n#+begin_quote\nb",
        3,
        OrgErrorKind::UnclosedBlock {
            name: name("quote"),
        },
    );
    fault(
        "#+begin_center\n#+end_center",
        1,
        OrgErrorKind::UnknownBlock {
            name: name("center"),
        },
    );
    fault(
        "a\nb {{{adf(1)}}}",
        2,
        OrgErrorKind::UnknownReference { number: 1 },
    );
    fault("a\n\n******* a", 3, OrgErrorKind::HeadingTooDeep);
    fault(
        "#+begin_quote\n* a\n#+end_quote",
        2,
        OrgErrorKind::Headline { stars: 1 },
    );
    fault("- [ ] a\n\n  b", 1, OrgErrorKind::TaskContent);
    fault(
        "#+begin_media\nx\n#+end_media",
        2,
        OrgErrorKind::MediaContent,
    );
    let indented = |depth| ["  ".repeat(depth), "- a\n".to_owned()].concat();
    let deep: String = (0..80).map(indented).collect();
    let error = from_org(&deep, &empty(), &Options::default()).unwrap_err();
    assert!(
        matches!(error.kind, OrgErrorKind::TooDeep { .. }),
        "{error}"
    );
    let above = from_org("* a", &empty(), &Options::under(1)).unwrap_err();
    assert_eq!(
        above.to_string(),
        "line 1: a headline is not possible here; the first level has 2 stars"
    );
    let base = doc(json!([{ "type": "unknown" }, paragraph(json!([text("a")]))]));
    let error = from_org("a {{{adf(1)}}}", &base, &Options::default()).unwrap_err();
    assert_eq!(error.kind, OrgErrorKind::BlockInText { number: 1 });
    let error = from_org("", &json!({}), &Options::default()).unwrap_err();
    assert!(matches!(error.kind, OrgErrorKind::Base(_)));
}

#[test]
fn hostile_texts_take_linear_time() {
    // Each case would take minutes if the search for a missing end were repeated.
    for sign in [
        "*a ",
        "[[a][",
        "{{{adf(1,",
        "_{",
        "<2",
        ":a",
        "~a ",
        "[[",
        "/a [[",
    ] {
        let text = sign.repeat(200_000);
        let read = from_org(&text, &empty(), &Options::default());
        assert!(read.is_ok() || read.is_err());
    }
}
