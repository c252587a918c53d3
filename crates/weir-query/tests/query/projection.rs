//! Tests of several selected paths, and of the order of constructed results.

use bytes::Bytes;
use weir_core::ErrorCode;
use weir_query::{
    Bounds, Budgets, Query, QueryError, QueryText, ResultPage, Shape, SourceOptions, Step,
};

use crate::drive::compile;

fn select(select: &str) -> QueryText {
    QueryText {
        select: select.to_owned(),
        ..QueryText::default()
    }
}

/// All results over one page of lines.
fn run(text: &QueryText, lines: &str) -> Vec<ResultPage> {
    let mut query = Query::new(compile(text), Budgets::default());
    let shape = Shape::Lines;
    let source = query.add_source(SourceOptions {
        shape,
        ..SourceOptions::default()
    });
    let page = Bytes::copy_from_slice(lines.as_bytes());
    query.enqueue(source.unwrap(), page, None).unwrap();
    let mut pages = Vec::new();
    while let Step::Ready(page) = query
        .next(Bounds {
            items_max: 3,
            ..Bounds::default()
        })
        .unwrap()
    {
        pages.push(page);
    }
    pages
}

/// The values of each result, as texts.
fn rows(text: &QueryText, lines: &str) -> Vec<Vec<String>> {
    let pages = run(text, lines);
    let rows = pages.iter().flat_map(|page| {
        page.items().iter().enumerate().map(|(at, item)| {
            let values = page.values(at).iter();
            let texts = values.map(|value| page.value(item, *value));
            texts
                .map(|text| String::from_utf8(text.to_vec()).unwrap())
                .collect()
        })
    });
    rows.collect()
}

fn constructed(text: &QueryText, lines: &str) -> Vec<String> {
    let pages = run(text, lines);
    let items = pages.iter().flat_map(ResultPage::iter);
    items
        .map(|item| String::from_utf8(item.to_vec()).unwrap())
        .collect()
}

fn compile_error(text: &QueryText) -> QueryError {
    text.compile().unwrap_err()
}

const LINES: &str = "{\"id\":1,\"a\":{\"b\":[ 1, 2 ]},\"s\":\"x\"}\n\
                     {\"id\":2,\"s\":null}\n\
                     {\"z\":0}\n\
                     {\"s\":\"y\",\"a\":{\"b\":{}},\"id\":3}\n\
                     {\"id\":1,\"s\":\"x\"}\n";

#[test]
fn a_projection_is_a_table_of_spans() {
    let text = select("$.id, $.a.b as inner, $.s");
    assert_eq!(compile(&text).columns(), ["id", "inner", "s"]);
    let expected = [
        ["1", "[ 1, 2 ]", "\"x\""],
        ["2", "", "null"],
        ["3", "{}", "\"y\""],
        ["1", "", "\"x\""],
    ];
    assert_eq!(rows(&text, LINES), expected);
    // The values and the item are spans of the input page.
    let pages = run(&text, LINES);
    let (page, item) = (&pages[0], pages[0].items()[0]);
    let value = page.value(&item, page.values(0)[1]);
    assert!(page.buffers()[0].as_ptr_range().contains(&value.as_ptr()));
    assert_eq!(page.bytes(&item), LINES.lines().next().unwrap().as_bytes());
    assert_eq!(page.values(3), []);
    // One path with a name, the item itself, and a path that occurs twice.
    let text = select("$.id as n");
    assert_eq!(compile(&text).columns(), ["n"]);
    assert_eq!(rows(&text, LINES), [["1"], ["2"], ["3"], ["1"]]);
    let text = select("$ as all, $.z as one, $['z'] as two");
    assert_eq!(rows(&text, "{\"z\":0}\n"), [["{\"z\":0}", "0", "0"]]);
    assert_eq!(
        compile(&select("$['a b'][0], $[1]")).columns(),
        ["$['a b'][0]", "$[1]"]
    );
    // One path without a name is not a projection.
    assert_eq!(compile(&select("$.id")).columns(), [""; 0]);
    assert!(run(&select("$.id"), LINES)[0].values(0).is_empty());
}

#[test]
fn other_stages_read_a_projection() {
    let text = QueryText {
        filter: "@.id > 0".into(),
        order: "$.id desc, $.s".into(),
        offset: 1,
        limit: Some(2),
        ..select("$.s, $.id")
    };
    assert_eq!(rows(&text, LINES), [["null", "2"], ["\"x\"", "1"]]);
    let text = QueryText {
        distinct: true,
        ..select("$.s, $.id")
    };
    let lines = format!("{LINES}{{\"id\":1.0,\"s\":\"\\u0078\"}}\n{{\"id\":\"x\",\"s\":1}}\n");
    let expected = [
        ["\"x\"", "1"],
        ["null", "2"],
        ["\"y\"", "3"],
        ["1", "\"x\""],
    ];
    assert_eq!(rows(&text, &lines), expected);
}

#[test]
fn an_invalid_projection_is_rejected_with_its_position() {
    let check = |what: &str, code: ErrorCode, at: Option<u64>| {
        let error = compile_error(&select(what));
        assert_eq!(
            (error.code(), error.location().offset),
            (code, at),
            "{what}: {error}"
        );
    };
    check("$.a, count", ErrorCode::Syntax, Some(5));
    check("count, $.a", ErrorCode::Syntax, Some(7));
    check("$.a, $..b", ErrorCode::NotSingular, Some(6));
    check("$.a as", ErrorCode::Syntax, Some(4));
    check("$.a x", ErrorCode::Syntax, Some(4));
    check("$.a,", ErrorCode::Syntax, Some(4));
    check("$.a, $.b.a", ErrorCode::BadOption, None);
    let many: Vec<String> = (0..65).map(|n| format!("$.n{n}")).collect();
    let error = compile_error(&select(&many.join(",")));
    assert_eq!(error.code(), ErrorCode::TooComplex);
    assert!(
        error.to_string().contains("65 paths, at most 64"),
        "{error}"
    );
    let grouped = QueryText {
        group: "$.s".into(),
        ..select("$.a, $.b")
    };
    assert_eq!(compile_error(&grouped).location().offset, Some(0));
}

fn ordered(group: &str, what: &str, order: &str) -> QueryText {
    QueryText {
        group: group.into(),
        order: order.into(),
        ..select(what)
    }
}

const SALES: &str = "{\"c\":\"de\",\"n\":1}\n{\"c\":\"fr\",\"n\":9007199254740993}\n{\"c\":\"de\",\"n\":2}\n\
                     {\"c\":\"it\",\"n\":\"x\"}\n{\"n\":9007199254740992}\n{\"c\":\"fr\",\"n\":0}\n{\"c\":\"de\",\"n\":0}\n";

#[test]
fn groups_are_ordered_by_their_results() {
    let counts = ordered("$.c", "count", "count desc");
    let expected = [
        "{\"c\":\"de\",\"count\":3}",
        "{\"c\":\"fr\",\"count\":2}",
        "{\"c\":\"it\",\"count\":1}",
        "{\"count\":1}",
    ];
    assert_eq!(constructed(&counts, SALES), expected);
    let top = QueryText {
        limit: Some(1),
        offset: 1,
        ..counts
    };
    assert_eq!(constructed(&top, SALES), [expected[1]]);
    // By name, by a group path, and by exact values: the sum of `it` is not a number, and
    // the other sums differ by less than the precision of a float.
    let name = ordered("$.c", "count as n", "n, $.c desc");
    let expected = [
        "{\"c\":\"it\",\"n\":1}",
        "{\"n\":1}",
        "{\"c\":\"fr\",\"n\":2}",
        "{\"c\":\"de\",\"n\":3}",
    ];
    assert_eq!(constructed(&name, SALES), expected);
    let sums = ordered("$.c as land", "sum($.n)", "sum($.n) desc, land");
    let lands: Vec<String> = constructed(&sums, SALES);
    let expected = [
        "{\"land\":\"fr\",\"sum($.n)\":9007199254740993}",
        "{\"sum($.n)\":9007199254740992}",
        "{\"land\":\"de\",\"sum($.n)\":3}",
        "{\"land\":\"it\"}",
    ];
    assert_eq!(lands, expected);
    assert_eq!(constructed(&ordered("", "count", "count"), SALES), ["7"]);
    // An order by group paths alone is an order of items.
    assert!(compile(&ordered("$.c", "count", "$.c")).is_ordered());
    assert!(!compile(&ordered("$.c", "count", "count")).is_ordered());
}

#[test]
fn an_invalid_order_of_results_is_rejected() {
    let check = |group: &str, what: &str, order: &str, at: u64| {
        let error = compile_error(&ordered(group, what, order));
        let place = error.location();
        assert_eq!(
            (error.code(), place.field),
            (ErrorCode::Syntax, Some("order")),
            "{order}: {error}"
        );
        assert_eq!(place.offset, Some(at), "{order}: {error}");
    };
    check("$.c", "count", "total desc", 0);
    check("$.c", "count", "count desc, $.n", 12);
    check("$.c", "count", "count, meta.key", 7);
    check("$.c", "count", "count down", 0);
    check("", "", "count desc", 0);
    check("", "$.a, $.b", "b", 0);
    let many = ["count"; 9].join(",");
    let error = compile_error(&ordered("$.c", "count", &many));
    assert_eq!(error.code(), ErrorCode::TooComplex);
    // Results that are sorted at the end have no position to resume from.
    let query = Query::new(
        compile(&ordered("$.c", "count", "count")),
        Budgets::default(),
    );
    assert!(query.explain().no_token.is_some());
}

/// At `structural`, `single` checks as much as the other shapes do, although no path reads
/// the item.
#[test]
fn a_single_item_is_checked_at_its_level() {
    let enqueue = |page: &[u8]| {
        let mut query = Query::new(compile(&QueryText::default()), Budgets::default());
        let source = query.add_source(SourceOptions {
            shape: Shape::Single,
            ..SourceOptions::default()
        });
        let page = Bytes::copy_from_slice(page);
        query
            .enqueue(source.unwrap(), page, None)
            .map_err(|error| error.code())
    };
    assert_eq!(enqueue(b" {\"a\":[1,,2]} "), Ok(()));
    assert_eq!(enqueue(b"{\"a\":\"\xff\"}"), Err(ErrorCode::NotUtf8));
    assert_eq!(enqueue(b"{\"a\":\"x"), Err(ErrorCode::UnterminatedString));
    assert_eq!(enqueue(b"{\"a\":\"\n\"}"), Err(ErrorCode::ControlCharacter));
    assert_eq!(enqueue(b"{\"a\":[}"), Err(ErrorCode::Unbalanced));
    assert_eq!(enqueue(b"{} {}"), Err(ErrorCode::TrailingData));
    assert_eq!(enqueue(b" "), Err(ErrorCode::NotJson));
}

#[test]
fn a_pattern_that_matches_nothing_is_reported() {
    let notes = |filter: &str, params: &[(&str, &str)]| {
        let params = params
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let text = QueryText {
            filter: filter.into(),
            params: params.collect(),
            ..QueryText::default()
        };
        text.compile().unwrap().notes()
    };
    assert_eq!(notes("match(@.a, '[0-9]+') && @.b == '['", &[]), [""; 0]);
    let expected = "`\\d+` is not a regular expression of RFC 9485 and matches nothing: `\\d` is not supported; write `[0-9]`";
    assert_eq!(notes("match(@.a, '\\\\d+')", &[]), [expected]);
    assert_eq!(
        notes("search(@.a, param('p'))", &[("p", "\"\\\\d+\"")]),
        [expected]
    );
    assert_eq!(notes("search(@.a, param('p'))", &[("p", "7")]), [""; 0]);
    let expected = "`[a-z]{1,5000}` exceeds a limit of regular expressions and matches nothing: \
                    a number in `{n,m}` is larger than 1000";
    assert_eq!(notes("match(@.s, '[a-z]{1,5000}')", &[]), [expected]);
    let expected = "`(a{1,100}){1,100}b` exceeds a limit of regular expressions and matches \
                    nothing: it needs more than 4096 steps";
    assert_eq!(notes("match(@.s, '(a{1,100}){1,100}b')", &[]), [expected]);
    assert_eq!(
        notes("search(@.a, '[') || search(@.a, '(?i)x')", &[]).len(),
        2
    );
}
