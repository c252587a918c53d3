//! Edits by a user: unchanged parts keep their original form.

use crate::{doc, marked, paragraph, text};
use serde_json::{Value, json};
use weir_adf::{
    Options, empty, from_org, from_org_all, from_plain, merge, to_org, to_org_all, to_plain,
};

/// Edits the text of a document.
fn edit(document: &Value, from: &str, to: &str) -> Value {
    let org = to_org(document, &Options::default()).unwrap();
    assert!(org.text.contains(from), "{}", org.text);
    from_org(
        &org.text.replacen(from, to, 1),
        document,
        &Options::default(),
    )
    .unwrap()
}

fn unknown() -> Value {
    json!({ "type": "futureNode", "attrs": { "a": [1, { "b": null }] }, "later": true,
        "content": [{ "type": "text", "text": "x" }] })
}

#[test]
fn only_the_changed_block_differs() {
    let local = |name: &str| {
        json!({ "type": "paragraph", "attrs": { "localId": name }, "marks":
            [{ "type": "alignment", "attrs": { "align": "end" } }], "content": [text(name)] })
    };
    let document =
        doc(json!([local("a"), unknown(), local("b"), { "type": "paragraph" }, local("c")]));
    let edited = edit(&document, "b\n", "new *text*\n");
    let mut expected = document.clone();
    expected["content"][2]["content"] = json!([text("new "), marked("text", &["strong"])]);
    assert_eq!(edited, expected);
    // Deleted, added and moved blocks.
    let mut expected = document.clone();
    expected["content"].as_array_mut().unwrap().remove(1);
    assert_eq!(edit(&document, "{{{adf(1)}}}\n\n", ""), expected);
    let mut expected = document.clone();
    let added = paragraph(json!([text("d")]));
    expected["content"].as_array_mut().unwrap().insert(2, added);
    assert_eq!(
        edit(&document, "{{{adf(1)}}}\n\n", "{{{adf(1)}}}\n\nd\n\n"),
        expected
    );
    let moved = edit(&document, "a\n\n{{{adf(1)}}}", "{{{adf(1)}}}\n\na");
    assert_eq!(moved["content"][0], unknown());
    assert_eq!(moved["content"][1]["content"], json!([text("a")]));
}

/// A person combines the two sides of a conflict. Each reference still means its own part.
#[test]
fn the_texts_of_several_documents_can_be_combined() {
    let node = |name: &str| json!({ "type": "futureNode", "attrs": { "name": name } });
    let line = |words: &str| paragraph(json!([text(words)]));
    let theirs = doc(json!([node("theirs"), line("their line"), unknown()]));
    let mine = doc(json!([line("my line"), unknown()]));
    let before = doc(json!([node("gone"), unknown()]));
    let options = Options::default();
    let texts = to_org_all(&[&theirs, &mine, &before], &options).unwrap();
    let single = to_org(&theirs, &options).unwrap().text;
    assert_eq!(texts[0], single);
    assert_eq!(texts[1], "my line\n\n{{{adf(2)}}}\n");
    assert_eq!(texts[2], "{{{adf(3)}}}\n\n{{{adf(2)}}}\n");
    let convert = |text: &str| from_org_all(text, &theirs, &[&mine, &before], &options);
    assert_eq!(convert(&texts[0]).unwrap(), theirs);
    assert_eq!(convert(&texts[1]).unwrap(), mine);
    assert_eq!(convert(&texts[2]).unwrap(), before);
    let both = convert("{{{adf(1)}}}\n\nmy line\n\n{{{adf(3)}}}\n").unwrap();
    let parts = json!([node("theirs"), line("my line"), node("gone")]);
    assert_eq!(both, doc(parts));
    assert!(convert("{{{adf(4)}}}\n").is_err());
}

#[test]
fn a_changed_node_keeps_what_the_text_hides() {
    let media = json!({ "type": "media", "attrs":
        { "type": "file", "id": "m", "alt": "a.png", "collection": "c", "width": 66.666, "height": 7 } });
    let document = doc(json!([
        { "type": "mediaSingle", "attrs": { "layout": "wide", "width": 50 }, "content": [media] },
        { "type": "codeBlock", "attrs": { "language": "c", "uniqueId": "u", "wrap": true },
          "marks": [{ "type": "breakout", "attrs": { "mode": "wide" } }], "content": [text("int a;")] },
        { "type": "table", "attrs": { "layout": "wide", "localId": "t" }, "content": [
            { "type": "tableRow", "content": [
                { "type": "tableCell", "attrs": { "colwidth": [10], "background": "#fff" },
                  "content": [paragraph(json!([text("one")]))] }] }] },
        paragraph(json!([{ "type": "text", "text": "here", "marks":
            [{ "type": "link", "attrs": { "href": "https://a.example", "title": "T", "id": "i" } }] }]))
    ]));
    let mut expected = document.clone();
    expected["content"][0]["content"][0]["attrs"]["alt"] = json!("b.png");
    assert_eq!(edit(&document, "a.png", "b.png"), expected);
    let mut expected = document.clone();
    expected["content"][1]["content"] = json!([text("int b;")]);
    assert_eq!(edit(&document, "int a;", "int b;"), expected);
    let mut expected = document.clone();
    let cell = &mut expected["content"][2]["content"][0]["content"][0];
    cell["content"][0]["content"] = json!([text("two")]);
    assert_eq!(edit(&document, "one", "two"), expected);
    let mut expected = document.clone();
    expected["content"][3]["content"][0]["text"] = json!("there");
    assert_eq!(edit(&document, "[here]", "[there]"), expected);
}

#[test]
fn another_emoji_does_not_keep_the_id_of_the_old_one() {
    let smile = json!({ "type": "emoji", "attrs":
        { "shortName": ":smile:", "id": "1f604", "text": "\u{1f604}", "localId": "e" } });
    let document = doc(json!([paragraph(json!([text("a "), smile, text(" b")]))]));
    let edited = edit(&document, ":smile:", ":sob:");
    let mut expected = document.clone();
    let attrs = json!({ "shortName": ":sob:", "localId": "e" });
    expected["content"][0]["content"][1]["attrs"] = attrs;
    assert_eq!(edited, expected);
    assert_eq!(to_plain(&edited).unwrap(), "a :sob: b");
    // An edit of the text around it changes no emoji.
    let edited = edit(&document, "a ", "c ");
    assert_eq!(edited["content"][0]["content"][1], smile);
}

#[test]
fn another_attachment_does_not_keep_the_size_of_the_old_one() {
    let block = |attrs: Value| {
        json!({ "type": "mediaSingle", "attrs": { "layout": "wide", "width": 50 },
            "content": [{ "type": "media", "attrs": attrs }] })
    };
    let file = json!({ "type": "file", "id": "m1", "alt": "a.png", "collection": "c",
        "width": 640, "height": 480 });
    let other = json!({ "type": "file", "id": "m2", "alt": "a.png", "collection": "c" });
    let document = doc(json!([block(file)]));
    let edited = edit(&document, "jira-att:m1", "jira-att:m2");
    assert_eq!(edited, doc(json!([block(other)])));
    let inline = |attrs: Value| {
        let node = json!({ "type": "mediaInline", "attrs": attrs });
        doc(json!([paragraph(json!([text("see "), node]))]))
    };
    let document = inline(json!({ "id": "m1", "collection": "c", "width": 64, "height": 48 }));
    let edited = edit(&document, "jira-att:m1", "jira-att:m2");
    assert_eq!(edited, inline(json!({ "id": "m2", "collection": "c" })));
}

#[test]
fn coloured_text_is_edited_within_its_colour() {
    let red = json!({ "type": "textColor", "attrs": { "color": "#ff0000" } });
    let nodes = json!([text("a "), { "type": "text", "text": "red", "marks": [{ "type": "strong" }, red] }]);
    let document = doc(json!([paragraph(nodes)]));
    let org = to_org(&document, &Options::default()).unwrap();
    assert_eq!(org.text, "a {{{adf(1,*red*)}}}\n");
    assert_eq!(org.opaque[0].value, red);
    let edited = edit(&document, "red", "crimson");
    let mut expected = document.clone();
    expected["content"][0]["content"][1]["text"] = json!("crimson");
    let marks = expected["content"][0]["content"][1]["marks"]
        .as_array_mut()
        .unwrap();
    marks.reverse();
    assert_eq!(edited, expected);
}

#[test]
fn a_new_text_is_a_valid_document() {
    let text = "- [ ] a\n- [X] b\n\n-\n\n[[jira-att:9]]\n\n#+begin_quote\n#+end_quote\n\n*~x~*\n";
    let document = from_org(text, &empty(), &Options::default()).unwrap();
    let expected = doc(json!([
        { "type": "taskList", "attrs": { "localId": "weir-3" }, "content": [
            { "type": "taskItem", "attrs": { "localId": "weir-1", "state": "TODO" },
              "content": [{ "type": "text", "text": "a" }] },
            { "type": "taskItem", "attrs": { "localId": "weir-2", "state": "DONE" },
              "content": [{ "type": "text", "text": "b" }] }] },
        { "type": "bulletList", "content": [{ "type": "listItem", "content": [paragraph(json!([]))] }] },
        { "type": "mediaSingle", "attrs": { "layout": "center" }, "content": [
            { "type": "media", "attrs": { "type": "file", "id": "9", "collection": "" } }] },
        { "type": "blockquote", "content": [paragraph(json!([]))] },
        // Code with another mark than a link is invalid.
        paragraph(json!([marked("x", &["code"])]))
    ]));
    assert_eq!(document, expected);
}

#[test]
fn typing_into_an_empty_paragraph_fills_it() {
    let document = doc(json!([{ "type": "paragraph", "attrs": { "localId": "p" } }]));
    let edited = from_org("a\n", &document, &Options::default()).unwrap();
    let filled =
        json!([{ "type": "paragraph", "attrs": { "localId": "p" }, "content": [text("a")] }]);
    assert_eq!(edited, doc(filled));
}

#[test]
fn plain_text_keeps_lines_and_signs() {
    let document = from_plain("a *b*\nc\n\n\nd\n");
    let broken = json!([text("a *b*"), { "type": "hardBreak" }, text("c")]);
    assert_eq!(
        document,
        doc(json!([paragraph(broken), paragraph(json!([text("d")]))]))
    );
    assert_eq!(to_plain(&document).unwrap(), "a *b*\nc\n\nd");
    assert_eq!(from_plain(""), empty());
}

#[test]
fn edits_of_different_blocks_merge() {
    let with = |texts: &[&str]| {
        let blocks: Vec<Value> = texts
            .iter()
            .map(|name| paragraph(json!([text(name)])))
            .collect();
        doc(json!(blocks))
    };
    let base = with(&["a", "b", "c", "d"]);
    let merged = merge(
        &base,
        &with(&["a", "B", "c", "d"]),
        &with(&["a", "b", "c", "D", "e"]),
    )
    .unwrap();
    assert_eq!(merged.conflicts, []);
    assert_eq!(merged.document, with(&["a", "B", "c", "D", "e"]));
    let merged = merge(&base, &with(&["a", "B", "c"]), &with(&["a", "x", "c", "d"])).unwrap();
    assert_eq!(merged.document, with(&["a", "B", "c"]));
    let [conflict] = merged.conflicts.as_slice() else {
        panic!("{:?}", merged.conflicts)
    };
    assert_eq!(conflict.at, 1);
    assert_eq!(conflict.theirs, [paragraph(json!([text("x")]))]);
    let same = merge(&base, &with(&["a", "z"]), &with(&["a", "z"])).unwrap();
    assert_eq!((same.conflicts, same.document), (vec![], with(&["a", "z"])));
}
