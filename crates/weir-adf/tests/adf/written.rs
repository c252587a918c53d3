//! The org text of each construct.

use crate::{doc, marked, org, paragraph, text};
use serde_json::{Value, json};
use weir_adf::{Options, empty, from_org, to_org};

/// Checks that the blocks are written as `expected`. Read without a base, that text gives blocks
/// that are written as `expected` again.
fn check(blocks: Value, expected: &str) {
    let document = doc(blocks);
    assert_eq!(org(&document), expected);
    let fresh = from_org(expected, &empty(), &Options::default());
    if let Ok(fresh) = fresh {
        assert_eq!(org(&fresh), expected);
    } else {
        assert!(expected.contains("{{{adf("), "{fresh:?}");
    }
}

fn item(blocks: Value) -> Value {
    json!({ "type": "listItem", "content": blocks })
}

#[test]
fn paragraphs_and_breaks() {
    let broken = json!([text("one"), { "type": "hardBreak" }, text("two")]);
    check(
        json!([paragraph(broken), paragraph(json!([text("three")]))]),
        "one\\\\\ntwo\n\nthree\n",
    );
    let ends = json!([text("one"), { "type": "hardBreak" }, { "type": "hardBreak" }]);
    check(json!([paragraph(ends)]), "one\\\\\n\\\\\n");
    let spaces = paragraph(json!([text(" a  b ")]));
    check(json!([spaces]), "\u{200b} a  b \u{200b}\n");
}

#[test]
fn empty_paragraphs_are_hidden_and_kept() {
    let blank = json!({ "type": "paragraph" });
    let one = paragraph(json!([text("a")]));
    let document = doc(json!([blank, one, blank, paragraph(json!([])), blank]));
    assert_eq!(org(&document), "a\n");
    assert_eq!(org(&doc(json!([blank]))), "");
}

#[test]
fn headings_are_below_the_section() {
    let heading =
        |level| json!({ "type": "heading", "attrs": { "level": level }, "content": [text("a")] });
    check(json!([heading(1), heading(3)]), "* a\n\n*** a\n");
    let document = doc(json!([heading(2)]));
    let options = Options::under(3);
    let org = to_org(&document, &options).unwrap();
    assert_eq!(org.text, "***** a\n");
    assert_eq!(
        from_org("****** a\n", &document, &options).unwrap(),
        doc(json!([heading(3)]))
    );
    let panel =
        json!({ "type": "panel", "attrs": { "panelType": "info" }, "content": [heading(2)] });
    check(json!([panel]), "#+begin_info\n#+h2: a\n#+end_info\n");
}

#[test]
fn emphasis() {
    let nodes = json!([
        text("a "),
        marked("b", &["strong"]),
        text(" "),
        marked("c", &["em"]),
        text(" "),
        marked("d", &["strike"]),
        text(" "),
        marked("e", &["code"]),
        text(" "),
        marked("f", &["underline"]),
        text(" "),
        marked("g", &["strong", "em"]),
        text(".")
    ]);
    check(json!([paragraph(nodes)]), "a *b* /c/ +d+ ~e~ _f_ */g/*.\n");
    let within = json!([text("un"), marked("believ", &["strong"]), text("able")]);
    check(
        json!([paragraph(within)]),
        "un\u{200b}*believ*\u{200b}able\n",
    );
    let subsup = json!([
        text("H"),
        { "type": "text", "text": "2",
          "marks": [{ "type": "subsup", "attrs": { "type": "sub" } }] },
        text("O")
    ]);
    check(json!([paragraph(subsup)]), "H_{2}O\n");
    let tilde = json!([marked("~", &["code"])]);
    check(json!([paragraph(tilde)]), "=~=\n");
}

#[test]
fn emphasis_with_a_space_at_its_end_stays_editable() {
    let nodes = json!([marked("bold ", &["strong"]), text("x")]);
    let document = doc(json!([paragraph(nodes)]));
    assert_eq!(org(&document), "{{{adf(1,bold )}}}x\n");
    let edited = from_org("{{{adf(1,bolder)}}}x\n", &document, &Options::default()).unwrap();
    let nodes = json!([marked("bolder", &["strong"]), text("x")]);
    assert_eq!(edited, doc(json!([paragraph(nodes)])));
}

#[test]
fn links_and_nodes_of_links() {
    let link = json!({ "type": "link", "attrs": { "href": "https://a.example/?q=1" } });
    let nodes = json!([
        { "type": "text", "text": "name", "marks": [link] }, text(" "),
        { "type": "mention", "attrs": { "id": "5:a-b", "text": "@Ann B" } }, text(" "),
        { "type": "status", "attrs": { "color": "green", "text": "DONE" } }, text(" "),
        { "type": "inlineCard", "attrs": { "url": "https://a.example/B-1" } }, text(" "),
        { "type": "mediaInline", "attrs": { "id": "m1", "alt": "a.png", "collection": "" } }
    ]);
    check(
        json!([paragraph(nodes)]),
        "[[https://a.example/?q=1][name]] [[jira-user:5:a-b][@Ann B]] [[jira-status:green][DONE]] \
         [[https://a.example/B-1]] [[jira-att:m1][a.png]]\n",
    );
}

#[test]
fn emoji_and_dates() {
    let nodes = json!([
        { "type": "emoji", "attrs": { "shortName": ":smile:", "id": "1f604", "text": "x" } },
        text(" at "),
        { "type": "date", "attrs": { "timestamp": "1732838400000" } }
    ]);
    check(json!([paragraph(nodes)]), ":smile: at <2024-11-29 Fri>\n");
    // A date with a time of the day has no markup.
    let odd = json!([{ "type": "date", "attrs": { "timestamp": "1732838400001" } }]);
    assert_eq!(org(&doc(json!([paragraph(odd)]))), "{{{adf(1)}}}\n");
}

#[test]
fn lists() {
    let one = |nested: Value| item(json!([paragraph(json!([text("a")])), nested]));
    let inner =
        json!({ "type": "bulletList", "content": [item(json!([paragraph(json!([text("b")]))]))] });
    let list = json!({ "type": "orderedList", "attrs": { "order": 9 },
        "content": [one(inner), item(json!([paragraph(json!([text("c")]))]))] });
    check(json!([list]), "9. a\n   - b\n10. c\n");
    let code = json!({ "type": "codeBlock", "content": [text("x\n\n  y")] });
    let list = json!({ "type": "bulletList", "content": [one(code)] });
    check(
        json!([list]),
        "- a\n\n  #+begin_example\n  x\n\n    y\n  #+end_example\n",
    );
    let plain =
        json!({ "type": "bulletList", "content": [item(json!([paragraph(json!([text("a")]))]))] });
    check(json!([plain, plain]), "- a\n#\n- a\n");
    let task = item(json!([paragraph(json!([text("[ ] no task")]))]));
    let list = json!({ "type": "bulletList", "content": [task] });
    check(json!([list]), "- \u{200b}[ ] no task\n");
}

#[test]
fn tasks() {
    let task = |state: &str, name: &str| {
        json!({ "type": "taskItem", "attrs": { "localId": name, "state": state },
            "content": [text(name)] })
    };
    let nested =
        json!({ "type": "taskList", "attrs": { "localId": "n" }, "content": [task("DONE", "b")] });
    let list = json!({ "type": "taskList", "attrs": { "localId": "l" },
        "content": [task("TODO", "a"), nested, task("TODO", "c")] });
    check(json!([list]), "- [ ] a\n  - [X] b\n- [ ] c\n");
}

#[test]
fn blocks() {
    let one = paragraph(json!([text("a")]));
    let code = json!({ "type": "codeBlock", "attrs": { "language": "rust" },
        "content": [text("* no headline\n#+end_src\n,* x")] });
    check(
        json!([code]),
        "#+begin_src rust\n,* no headline\n,#+end_src\n,,* x\n#+end_src\n",
    );
    check(
        json!([{ "type": "codeBlock" }]),
        "#+begin_example\n#+end_example\n",
    );
    check(
        json!([{ "type": "blockquote", "content": [one] }]),
        "#+begin_quote\na\n#+end_quote\n",
    );
    check(json!([{ "type": "rule" }]), "-----\n");
    for panel in [
        "info", "note", "tip", "warning", "error", "success", "custom",
    ] {
        let node =
            json!({ "type": "panel", "attrs": { "panelType": panel }, "content": [one, one] });
        check(
            json!([node]),
            &format!("#+begin_{panel}\na\n\na\n#+end_{panel}\n"),
        );
    }
    let nested = json!({ "type": "nestedExpand", "attrs": { "title": "in" }, "content": [one] });
    let expand =
        json!({ "type": "expand", "attrs": { "title": "More" }, "content": [one, nested] });
    check(
        json!([expand]),
        "#+begin_expand More\na\n\n#+begin_expand in\na\n#+end_expand\n#+end_expand\n",
    );
}

#[test]
fn tables_of_single_paragraphs() {
    let cell = |kind: &str, name: &str| json!({ "type": kind, "content": [paragraph(json!([text(name)]))] });
    let row = |kind: &str, one: &str, two: &str| json!({ "type": "tableRow", "content": [cell(kind, one), cell(kind, two)] });
    let table = json!({ "type": "table",
        "content": [row("tableHeader", "Name", "x"), row("tableCell", "a|b", "c")] });
    check(
        json!([table]),
        "| Name      | x |\n|-----------+---|\n| a\\vert{}b | c |\n",
    );
    let plain = json!({ "type": "table", "content": [row("tableCell", "a", "b")] });
    check(json!([plain]), "| a | b |\n");
    let two =
        json!({ "type": "tableCell", "content": [paragraph(json!([])), paragraph(json!([]))] });
    let table = json!({ "type": "table", "content": [{ "type": "tableRow", "content": [two] }] });
    assert_eq!(org(&doc(json!([table]))), "{{{adf(1)}}}\n");
}

#[test]
fn media() {
    let media = json!({ "type": "media",
        "attrs": { "type": "file", "id": "m1", "collection": "c", "alt": "a.png" } });
    let single =
        json!({ "type": "mediaSingle", "attrs": { "layout": "wide" }, "content": [media] });
    let group = json!({ "type": "mediaGroup", "content": [media, media] });
    check(
        json!([single, group]),
        "[[jira-att:m1][a.png]]\n\n#+begin_media\n[[jira-att:m1][a.png]]\n[[jira-att:m1][a.png]]\n#+end_media\n",
    );
}

#[test]
fn text_that_looks_like_markup_stays_text() {
    for line in [
        "* no headline",
        "- no item",
        "1. no item",
        "| no row",
        "# no comment",
        "#+begin_src",
        "-----",
        "a *no bold* b",
        "/no italics/",
        "~no code~",
        "[[no][link]]",
        "{{{adf(1)}}}",
        "<2024-11-29>",
        ":no_emoji:",
        "x_{1}",
        "ends with \\\\",
        "\u{200b}",
        "a\u{200b}\u{200b}b",
        "\\vert{}",
        "%%(beep)",
        "a <%%(beep)>",
    ] {
        let document = doc(json!([paragraph(json!([text(line)]))]));
        let org = to_org(&document, &Options::default()).unwrap();
        assert_eq!(org.opaque, [], "{line}");
        // The agenda of Emacs would evaluate the form.
        assert!(!org.text.contains("%%("), "{line}");
        assert_eq!(crate::org(&document), org.text);
        let fresh = from_org(&org.text, &empty(), &Options::default()).unwrap();
        assert_eq!(fresh, document, "{line}: {}", org.text);
    }
    // Emacs would obey this line.
    let setup = doc(json!([paragraph(json!([text("#+setupfile: x")]))]));
    assert_eq!(org(&setup), "\u{200b}#+setupfile: x\n");
    let read = from_org("\u{200b}#+setupfile: x\n", &empty(), &Options::default());
    assert_eq!(read.unwrap(), setup);
    // Text that cannot be read as markup is written unchanged.
    for line in [
        "a / b",
        "2 * 3 * 4",
        "snake_case_name",
        "https://a.example/b_c",
        "/usr/bin",
        "10:30:15",
        "a -- b",
    ] {
        let document = doc(json!([paragraph(json!([text(line)]))]));
        assert_eq!(org(&document), format!("{line}\n"));
    }
}

#[test]
fn text_of_an_editor_that_fills_and_indents_with_tabs() {
    let read = |text: &str| from_org(text, &empty(), &Options::default()).unwrap();
    let list = read("- a\n  b\n\t- c\r\n");
    assert_eq!(org(&list), "- a b\n  - c\n");
    assert_eq!(
        read("one\ntwo"),
        doc(json!([paragraph(json!([text("one two")]))]))
    );
}
