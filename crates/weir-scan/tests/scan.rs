//! Items and values of pages, through the public interface; spans lie inside their page (I8).
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use weir_scan::{
    BadItem, Items, Level, Limits, PART_ITEMS, Path, PathSet, Plan, ScanError, ScanErrorKind,
    Shape, Simd, Span, Tag, Value, find, find_each, scan, scan_framed, scan_into, scan_parts,
};

fn plan(shape: Shape, paths: &[&str]) -> Plan {
    let paths: Vec<Path> = paths.iter().map(|p| p.parse().unwrap()).collect();
    Plan::new(shape, Level::Structural, &paths).unwrap()
}

fn member(path: &str) -> Shape {
    Shape::Member(path.parse().unwrap())
}

/// Items as text, each followed by its values.
fn item_texts(page: &str, plan: &Plan) -> Vec<Vec<String>> {
    let items = scan(page.as_bytes(), plan).unwrap();
    let text = |span: Span| String::from_utf8(span.of(page.as_bytes()).to_vec()).unwrap();
    (0..items.len())
        .map(|i| {
            let values = items.values(i).iter().map(|v| match v.tag {
                Tag::Undefined => "-".to_owned(),
                _ => text(v.span),
            });
            std::iter::once(text(items.item(i).unwrap()))
                .chain(values)
                .collect()
        })
        .collect()
}

#[track_caller]
fn check(shape: Shape, paths: &[&str], page: &str, expected: &[&[&str]]) {
    assert_eq!(item_texts(page, &plan(shape, paths)), expected);
}

#[test]
fn items_are_found_in_each_shape() {
    let array = r#" [ {"a":1} , 2,"x", [ ] ,null ] "#;
    check(
        Shape::Array,
        &["$.a", "$"],
        array,
        &[
            &[r#"{"a":1}"#, "1", r#"{"a":1}"#],
            &["2", "-", "2"],
            &[r#""x""#, "-", r#""x""#],
            &["[ ]", "-", "[ ]"],
            &["null", "-", "null"],
        ],
    );
    check(Shape::Array, &["$.a"], "[]", &[]);
    let envelope = r#"{"n":[1,{"x":[]}],"d":{"e":[{"a":true}]},"d":[], "z":"é"}"#;
    check(
        member("$.d.e"),
        &["$.a"],
        envelope,
        &[&[r#"{"a":true}"#, "true"]],
    );
    check(member("$[1]"), &[], "[[1],[2,3]]", &[&["2"], &["3"]]);
    check(member("$[-1]"), &[], "[[1],[2,3]]", &[&["2"], &["3"]]);
    check(
        Shape::Lines,
        &["$.a"],
        "{\"a\":1}\r\n\n \t\n  {\"a\":\"b\"} \n3",
        &[
            &["{\"a\":1}", "1"],
            &["{\"a\":\"b\"}", "\"b\""],
            &["3", "-"],
        ],
    );
    check(
        Shape::Single,
        &["$.a"],
        " {\"a\":1}\n",
        &[&[" {\"a\":1}\n", "1"]],
    );
}

#[test]
fn paths_select_names_and_indexes() {
    let page = r#"[{"\u0061":{"b":[1,[2,3],{"c":4}]},"x":0},{"a":[5]},{"a":{"b":[]}}]"#;
    check(
        Shape::Array,
        &[
            "$.a.b[1][0]",
            "$.a.b[-1].c",
            "$.a[0]",
            "$.a.b",
            "$.a.b[-3]",
            "$.a.b[-3]",
        ],
        page,
        &[
            &[
                r#"{"\u0061":{"b":[1,[2,3],{"c":4}]},"x":0}"#,
                "2",
                "4",
                "-",
                r#"[1,[2,3],{"c":4}]"#,
                "1",
                "1",
            ],
            &[r#"{"a":[5]}"#, "-", "-", "5", "-", "-", "-"],
            &[r#"{"a":{"b":[]}}"#, "-", "-", "-", "[]", "-", "-"],
        ],
    );
    // The first member of a repeated name counts.
    check(
        Shape::Array,
        &["$.a"],
        r#"[{"a":1,"a":2}]"#,
        &[&[r#"{"a":1,"a":2}"#, "1"]],
    );
    // Names that must be escaped, and a prefix of a name.
    check(
        Shape::Array,
        &["$['\"\\\\\\n']", "$.ab"],
        r#"[{"abc":1,"a":2,"\"\\\n":3,"ab":4}]"#,
        &[&[r#"{"abc":1,"a":2,"\"\\\n":3,"ab":4}"#, "3", "4"]],
    );
}

#[test]
fn structural_accepts_malformed_values_beside_the_paths() {
    let page = r#"[{"a":1,"b":[1,,2],"c" 5},{"b":{]},"a":2}}]"#;
    let page = page.replace("{]}", "{\"q\" 1}");
    let page = page.replace("2}}", "2}");
    check(
        Shape::Array,
        &["$.a"],
        &page,
        &[
            &[r#"{"a":1,"b":[1,,2],"c" 5}"#, "1"],
            &[r#"{"b":{"q" 1},"a":2}"#, "2"],
        ],
    );
    assert!(
        scan(
            page.as_bytes(),
            &Plan::new(Shape::Array, Level::Strict, &[]).unwrap()
        )
        .is_err()
    );
}

#[track_caller]
fn assert_error(plan: &Plan, page: &[u8], kind: ScanErrorKind, offset: usize, item: usize) {
    let error = scan(page, plan).unwrap_err();
    assert_eq!((error.kind, error.offset, error.item), (kind, offset, item));
}

#[test]
fn errors_have_a_kind_and_a_position() {
    use ScanErrorKind as K;
    let array = plan(Shape::Array, &["$.a"]);
    assert_error(&array, b"", K::BadEnvelope, 0, 0);
    assert_error(&array, b"{}", K::BadEnvelope, 0, 0);
    assert_error(&array, b"\xef\xbb\xbf[]", K::NotJson, 0, 0);
    assert_error(&array, b"[1 2]", K::NotJson, 3, 1);
    assert_error(&array, b"[1,]", K::NotJson, 3, 1);
    assert_error(&array, b"[01]", K::NotJson, 2, 1);
    assert_error(&array, b"[1", K::Unbalanced, 2, 1);
    assert_error(&array, b"[1}", K::Unbalanced, 2, 1);
    assert_error(&array, b"[{\"b\":[}]}]", K::Unbalanced, 7, 0);
    assert_error(&array, b"[1] 2", K::TrailingData, 4, 1);
    assert_error(&array, b"[1,{\"b\":\"x", K::UnterminatedString, 8, 1);
    assert_error(&array, b"[1,[\"x\n\"]]", K::ControlCharacter, 6, 1);
    assert_error(&array, b"[1,\"\xff\",]", K::NotUtf8, 4, 1);
    assert_error(&array, b"[1,\"\xff\"]", K::NotUtf8, 4, 1);
    assert_error(&array, b"[1,x\"\xff\"]", K::NotJson, 3, 1);
    assert_error(&array, b"[1,\xff]", K::NotUtf8, 3, 1);
    assert_error(&array, b"[{\"a\":\"\\q\"}]", K::NotJson, 8, 0);
    assert_error(&array, b"[[\\\"]]", K::NotJson, 2, 0);
    assert_error(
        &plan(member("$.d"), &[]),
        b"{\"e\":[]}",
        K::BadEnvelope,
        7,
        0,
    );
    assert_error(
        &plan(member("$.d"), &[]),
        b"{\"d\":{}}",
        K::BadEnvelope,
        5,
        0,
    );
    assert_error(
        &plan(member("$.d"), &[]),
        b"{\"e\":[1,],\"d\":[]}",
        K::NotJson,
        8,
        0,
    );
    let deep = Limits {
        depth_max: 2,
        ..Limits::default()
    };
    let array = array.with_limits(deep).unwrap();
    assert_error(&array, b"[0,[[]],[[[]]]]", K::TooDeep, 10, 2);
    assert_error(&array, b"[{\"a\":[[]]}]", K::TooDeep, 7, 0);
    let small = Limits {
        item_bytes_max: 3,
        ..Limits::default()
    };
    let array = array.with_limits(small).unwrap();
    assert_error(&array, b"[123,1234]", K::TooLarge, 5, 1);
    let strict = Plan::new(Shape::Array, Level::Strict, &["$.a".parse().unwrap()]).unwrap();
    assert_error(
        &strict,
        b"[{\"a\":1,\"b\":0,\"b\":0,\"\\u0061\":2}]",
        K::DuplicateName,
        20,
        0,
    );
    assert_error(&strict, b"[{\"a\":1,\"b\":[1,]}]", K::NotJson, 15, 0);
}

#[test]
fn bad_lines_are_skipped_if_requested() {
    let page = b"{\"a\":1}\n{\"a\":\n{\"a\":\"\xff\"}\n4 5\n{\"a\":2}";
    let lines = plan(Shape::Lines, &["$.a"]);
    assert_error(&lines, page, ScanErrorKind::Unbalanced, 13, 1);
    let passing = lines.clone().with_bad_item(BadItem::Skip).unwrap();
    let items = scan(page, &passing).unwrap();
    assert_eq!((items.len(), items.skipped()), (2, 3));
    assert_eq!(items.value(1, 0).span.of(page), b"2");
    let undefined = lines.with_bad_item(BadItem::Undefined).unwrap();
    let items = scan(page, &undefined).unwrap();
    let tags: Vec<Tag> = (0..5).map(|i| items.value(i, 0).tag).collect();
    let (n, u) = (Tag::Number, Tag::Undefined);
    assert_eq!(tags, [n, u, u, u, n]);
    assert_eq!(items.item(3).unwrap().of(page), b"4 5");
}

#[test]
fn frames_have_the_given_spans() {
    let page = b"xx{\"a\":1} yy 7 ";
    let frames = [Span { offset: 2, len: 8 }, Span { offset: 12, len: 3 }];
    let by_hand = plan(Shape::Framed, &["$.a"]);
    let mut items = Items::default();
    scan_framed(page, &frames, &by_hand, &mut items).unwrap();
    assert_eq!(items.spans(), frames);
    assert_eq!(items.value(0, 0).span, Span { offset: 7, len: 1 });
    let outside = [Span { offset: 12, len: 4 }];
    let error = scan_framed(page, &outside, &by_hand, &mut items).unwrap_err();
    assert_eq!(error.kind, ScanErrorKind::TooLarge);
    assert!(items.is_empty());
    let none = Plan::new(Shape::Framed, Level::None, &[]).unwrap();
    scan_framed(page, &frames, &none, &mut items).unwrap();
    assert_eq!(items.spans(), frames);
}

#[test]
fn values_are_read_in_sequence() {
    let values = plan(Shape::Values, &["$.a"]);
    let texts = |page: &str| -> Vec<String> {
        let items = scan(page.as_bytes(), &values).unwrap();
        let spans = items.spans().iter();
        spans
            .map(|span| page[span.offset as usize..span.end()].to_owned())
            .collect()
    };
    assert_eq!(texts(""), [""; 0]);
    assert_eq!(texts(" \n\t "), [""; 0]);
    assert_eq!(texts("{\"a\":1}{\"a\":2}"), ["{\"a\":1}", "{\"a\":2}"]);
    assert_eq!(
        texts("{\n  \"a\": 1\n}\n[2]\n"),
        ["{\n  \"a\": 1\n}", "[2]"]
    );
    assert_eq!(
        texts("1 2\n\"x\"\"y\"true[null]-3"),
        ["1", "2", "\"x\"", "\"y\"", "true", "[null]", "-3"]
    );
    let fault = |page: &str| {
        let error = scan(page.as_bytes(), &values).unwrap_err();
        (error.kind, error.offset, error.item)
    };
    assert_eq!(fault("1true"), (ScanErrorKind::NotJson, 1, 1));
    assert_eq!(fault("truefalse"), (ScanErrorKind::NotJson, 4, 1));
    assert_eq!(fault("1-2"), (ScanErrorKind::NotJson, 1, 1));
    assert_eq!(fault("{} ,{}"), (ScanErrorKind::NotJson, 3, 1));
    assert_eq!(fault("{}{"), (ScanErrorKind::Unbalanced, 3, 1));
    assert_eq!(fault("{}]"), (ScanErrorKind::NotJson, 2, 1));
    assert_eq!(fault("{\"a\":tru}"), (ScanErrorKind::NotJson, 8, 0));
    let latin = [&b"{}\"\xe4\""[..], b"{}"].concat();
    let error = scan(&latin, &values).unwrap_err();
    assert_eq!((error.kind, error.offset), (ScanErrorKind::NotUtf8, 3));
    assert!(values.clone().with_bad_item(BadItem::Skip).is_err());
    assert!(Plan::new(Shape::Values, Level::None, &[]).is_err());
    // More items than one part: the item index of a fault counts from the first item of the page.
    let many = format!("{}[1,]", "{\"a\":1}".repeat(PART_ITEMS + 7));
    let strict = Plan::new(Shape::Values, Level::Strict, &[]).unwrap();
    let mut items = Items::default();
    let error = scan_parts(many.as_bytes(), None, &strict, &mut items, &mut |_| {}).unwrap_err();
    assert_eq!(error.item, PART_ITEMS + 7);
}

#[test]
fn a_single_item_is_searched() {
    let paths = PathSet::new(&["$.b[0]".parse().unwrap(), "$.a".parse().unwrap()]).unwrap();
    let text = br#" {"a":null,"b":["x\n"]}"#;
    let mut out = Vec::new();
    find(text, &paths, &mut out).unwrap();
    assert_eq!(out[0].span.of(text), br#""x\n""#);
    assert!(out[0].escaped);
    assert_eq!(out[1].tag, Tag::Null);
    assert!(find(b"{\"a\":1,\"b\":[x]}", &paths, &mut out).is_err());
    assert_eq!(out.iter().filter(|v| v.tag != Tag::Undefined).count(), 0);
}

/// The texts that a search for `paths` finds; `None` if the item is rejected.
fn found<'a>(item: &'a str, paths: &[&str]) -> Option<Vec<&'a str>> {
    let paths: Vec<Path> = paths.iter().map(|path| path.parse().unwrap()).collect();
    let paths = PathSet::new(&paths).unwrap();
    let mut out = Vec::new();
    find(item.as_bytes(), &paths, &mut out).ok()?;
    let texts = out
        .iter()
        .map(|v| &item[v.span.offset as usize..v.span.end()]);
    Some(texts.collect())
}

/// The bytes after the last value are not JSON, so a search that read them would fail.
#[test]
fn a_search_ends_after_the_last_requested_value() {
    let ends = |item: &str, paths: &[&str], texts: &[&str]| {
        assert_eq!(
            found(item, paths).as_deref(),
            Some(texts),
            "{item} {paths:?}"
        );
    };
    ends("{\"a\":1,x", &["$.a"], &["1"]);
    ends("{\"a\":{\"b\":[1,{\"c\":2 ,x", &["$.a.b[1].c"], &["2"]);
    ends("{\"a\":1,\"b\":2,x", &["$.b", "$.a"], &["2", "1"]);
    ends("{\"a\":1,\"b\":2} x", &["$.b", "$.b"], &["2", "2"]);
    ends(" 1 ", &["$"], &["1"]);
    ends("[[1,2],x", &["$[0][-1]", "$[0][0]"], &["2", "1"]);
    ends("[1,2,x", &["$[1]"], &["2"]);
    // The search for a path without a value ends where the path cannot continue, at the top of the
    // item.
    ends("{\"a\":{},x", &["$.a.b"], &[""]);
    ends("{\"a\":1,x", &["$.a.b", "$.a"], &["", "1"]);
    ends("[0,x", &["$[0].b"], &[""]);
    // A value that contains others ends after them. An array with an index from its end is read
    // whole.
    ends(
        "{\"a\":{\"b\":1,\"c\":2},x",
        &["$.a.b", "$.a"],
        &["1", "{\"b\":1,\"c\":2}"],
    );
    for (item, path) in [
        ("{\"a\":1,x", "$"),
        ("{\"a\":1,x", "$.b"),
        ("[1,x", "$[-1]"),
        ("[1,x", "$[1]"),
        ("{\"a\":tru,", "$.a"),
        ("", "$.a"),
    ] {
        assert_eq!(found(item, &[path]), None, "{item} {path}");
    }
    assert_eq!(found("x", &[]), Some(Vec::new()));
}

/// Without a look at the next byte, each of these would have a value: 1, 0, null or a string.
#[test]
fn a_value_ends_before_a_comma_or_a_bracket() {
    for value in [
        "1_000", "012", "0x10", "1 2", "1.2.3", "1e2e3", "nulll", "true1", "\"a\"x", "[]1",
    ] {
        let object = format!("{{\"a\":{value},\"b\":2}}");
        let last = format!("{{\"b\":2,\"a\":{value}}}");
        let array = format!("[{value},2]");
        let inner = format!("{{\"c\":{{\"a\":{value}}},\"b\":2}}");
        for (item, paths) in [
            (&object, &["$.a"][..]),
            (&object, &["$.a", "$.b"]),
            (&object, &["$.a", "$.x"]),
            (&last, &["$.a"]),
            (&array, &["$[0]"]),
            (&array, &["$[-1]"]),
            (&inner, &["$.c.a"]),
            (&inner, &["$.c.a", "$.b"]),
            (&inner, &["$.c.a", "$.c"]),
            (&value.to_owned(), &["$"]),
        ] {
            assert_eq!(found(item, paths), None, "{item} {paths:?}");
            let scanned = scan(item.as_bytes(), &plan(Shape::Lines, paths));
            assert!(scanned.is_err(), "{item} {paths:?}");
        }
    }
}

#[test]
fn a_table_has_a_row_for_each_item() {
    let paths: Vec<Path> = ["$.a", "$.b.c"]
        .iter()
        .map(|p| p.parse().unwrap())
        .collect();
    let paths = PathSet::new(&paths).unwrap();
    let items = [
        "{\"a\":1,\"b\":{\"c\":\"x\"}}",
        "{\"a\":2,\"b\":x}",
        "[]",
        "{\"b\":{\"c\":3}}",
    ];
    let mut table = Vec::new();
    find_each(items.map(str::as_bytes), &paths, &mut table);
    let texts = table.chunks(2).zip(items).map(|(row, item)| {
        let text = |value: &Value| item[value.span.offset as usize..value.span.end()].to_owned();
        (text(&row[0]), text(&row[1]))
    });
    let row = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let rows = [row("1", "\"x\""), row("", ""), row("", ""), row("", "3")];
    assert_eq!(texts.collect::<Vec<_>>(), rows);
    // The memory of a table is reused, and no old value remains.
    find_each([&b"{}"[..]], &paths, &mut table);
    assert_eq!(table, [Value::default(); 2]);
}

/// A search does not check the whole item first: the end of this large item is missing. The
/// claim of `lab/experiments/query-file.toml` bounds the time.
#[test]
fn the_first_member_of_a_truncated_item_is_found() {
    let rest = "[\"value\",{}],".repeat(10_000);
    let item = format!("{{\"first\":1,\"rest\":[{rest}\"\u{e9}");
    assert_eq!(found(&item, &["$.first"]), Some(vec!["1"]));
    assert_eq!(found(&item, &["$.rest[0][0]"]), Some(vec!["\"value\""]));
    for path in ["$.rest[10000]", "$.last", "$.rest"] {
        assert_eq!(found(&item, &[path]), None, "{path}");
    }
}

#[test]
fn memory_is_reused_for_the_next_page() {
    let array = plan(Shape::Array, &["$.a"]);
    let mut items = scan(b"[1,2,3]", &array).unwrap();
    scan_into(b"[{\"a\":0}]", &array, &mut items).unwrap();
    assert_eq!((items.len(), items.width()), (1, 1));
    assert_eq!(items.value(0, 0).tag, Tag::Number);
    assert_eq!(items.value(7, 0).tag, Tag::Undefined);
}

/// The items that `scan_parts` passes on, in order.
fn in_parts(page: &[u8], frames: Option<&[Span]>, plan: &Plan) -> Result<Scanned, ScanError> {
    let (mut spans, mut values) = (Vec::new(), Vec::new());
    let mut items = Items::default();
    scan_parts(page, frames, plan, &mut items, &mut |part| {
        assert!(part.len() <= PART_ITEMS);
        spans.extend_from_slice(part.spans());
        for at in 0..part.len() {
            values.extend_from_slice(part.values(at));
        }
    })?;
    Ok((spans, values, items.skipped()))
}

type Scanned = (Vec<Span>, Vec<Value>, usize);

#[test]
fn parts_have_the_items_of_a_scan() {
    let path: Path = "$.a".parse().unwrap();
    let plan = |shape: Shape, bad| {
        let plan = Plan::new(shape, Level::Structural, std::slice::from_ref(&path)).unwrap();
        plan.with_bad_item(bad).unwrap()
    };
    for count in [
        0,
        1,
        PART_ITEMS - 1,
        PART_ITEMS,
        PART_ITEMS + 1,
        3 * PART_ITEMS,
        1000,
    ] {
        if cfg!(miri) && count > PART_ITEMS + 1 {
            continue;
        }
        // No fault, and a fault in an item of each part.
        for fault in [usize::MAX, 0, PART_ITEMS + 7, 900] {
            let item = |at: usize| match at {
                at if at == fault => "{\"a\":tru}".to_owned(),
                at if at % 5 == 0 => "{\"b\":\"\u{e9}\"}".to_owned(),
                at => format!("{{\"a\":{at}}}"),
            };
            let items: Vec<String> = (0..count).map(item).collect();
            let array = format!("[{}]", items.join(","));
            let lines = items.join("\n");
            let cases = [
                (Shape::Array, BadItem::Error, array.as_bytes()),
                (Shape::Lines, BadItem::Error, lines.as_bytes()),
                (Shape::Lines, BadItem::Skip, lines.as_bytes()),
            ];
            for (shape, bad, page) in cases {
                let plan = plan(shape, bad);
                let whole = scan(page, &plan).map(|found| {
                    let values = (0..found.len()).flat_map(|at| found.values(at).to_vec());
                    (found.spans().to_vec(), values.collect(), found.skipped())
                });
                assert_eq!(in_parts(page, None, &plan), whole, "{count} {fault}");
            }
            let mut frames: Vec<Span> = Vec::new();
            for item in &items {
                let offset = frames.last().map_or(0, |last| last.end() + 1);
                frames.push(Span {
                    offset: u32::try_from(offset).unwrap(),
                    len: u32::try_from(item.len()).unwrap(),
                });
            }
            let plan = plan(Shape::Framed, BadItem::Error);
            let found = in_parts(lines.as_bytes(), Some(&frames), &plan);
            match found {
                Ok((spans, ..)) => assert_eq!(spans, frames),
                Err(error) => assert_eq!(error.item, fault),
            }
        }
    }
}

/// A kernel may read bytes after a line. They do not change the result of the line.
#[test]
fn a_line_does_not_depend_on_the_next_line() {
    let path: Path = "$.a".parse().unwrap();
    let parts = [
        "{\"b\":[1",
        "]}",
        "{\"a\":\"x",
        "\",\"b\":0}",
        "{\"b\":[\"\\",
        "{\"a\":\"x\"}",
        "{\"b\":[{}],\"a\":\"y\"}",
        "{\"a\":\"\u{e9}\",\"c\":[[]]}",
    ];
    for simd in Simd::ALL.iter().filter(|simd| simd.available()) {
        let plan = |shape: Shape| {
            let plan = Plan::new(shape, Level::Structural, std::slice::from_ref(&path));
            plan.unwrap().with_simd(*simd).unwrap()
        };
        let alone = plan(Shape::Single);
        let lines = plan(Shape::Lines).with_bad_item(BadItem::Skip).unwrap();
        for pair in parts
            .iter()
            .flat_map(|a| parts.iter().map(move |b| [*a, *b]))
        {
            let page = format!("{}\n{}\n{}", pair[0], pair[1], "[1]\n".repeat(20));
            let valid = pair.into_iter().filter_map(|line| {
                let item = scan(line.as_bytes(), &alone).ok()?;
                Some(item.value(0, 0).span.of(line.as_bytes()))
            });
            let valid: Vec<&[u8]> = valid.collect();
            let found = scan(page.as_bytes(), &lines).unwrap();
            let counts = (found.len(), found.skipped());
            assert_eq!(counts, (valid.len() + 20, 2 - valid.len()), "{pair:?}");
            for (at, value) in valid.into_iter().enumerate() {
                assert_eq!(
                    found.value(at, 0).span.of(page.as_bytes()),
                    value,
                    "{pair:?}"
                );
            }
        }
    }
}

#[test]
fn a_fault_after_the_last_item_counts_the_items() {
    // The bytes that are not UTF-8 are found after the last item, far from their own item.
    let mut page = b"[".to_vec();
    for at in 0..1000 {
        page.extend_from_slice(if at == 300 { b"\"\xff\"," } else { b"\"a\"," });
    }
    page.extend_from_slice(b"0]");
    let plan = Plan::new(Shape::Array, Level::Structural, &[]).unwrap();
    let error = in_parts(&page, None, &plan).unwrap_err();
    assert_eq!(error.kind, ScanErrorKind::NotUtf8);
    assert_eq!((error.item, error.offset), (300, 1 + 300 * 4 + 1));
}
