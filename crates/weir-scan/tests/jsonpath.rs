//! Tests of the cases in `vectors/jsonpath`.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::Write as _;
use weir_scan::{
    Bindings, Filter, Level, OutOfSteps, PathError, PathErrorKind, PatternFault, PatternText, Plan,
    Query, Shape, pattern_fault, scan,
};

const QUERIES: &str = include_str!("../../../vectors/jsonpath/queries.txt");
const FILTERS: &str = include_str!("../../../vectors/jsonpath/filters.txt");

struct TestBindings;

impl Bindings for TestBindings {
    fn param(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let value: &[u8] = match name {
            "low" => b"3",
            "who" => b"\"Kim\"",
            "none" => b"null",
            _ => return None,
        };
        Some(Cow::Borrowed(value))
    }

    fn meta(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        match name {
            "offset" => Some(Cow::Owned(17.to_string().into_bytes())),
            "key" => Some(Cow::Borrowed(b"\"ENG-7\"")),
            _ => None,
        }
    }
}

fn error_line(error: PathError) -> String {
    let kind = match error.kind {
        PathErrorKind::Syntax(_) => "syntax",
        PathErrorKind::NotSingular => "singular",
        PathErrorKind::TooComplex(_) => "complex",
        PathErrorKind::UnknownFunction => "function",
        PathErrorKind::WrongType => "type",
        _ => "another",
    };
    format!("!> {} {kind}", error.offset)
}

fn query_line(text: &str, item: &str) -> String {
    let query = match Query::parse(text) {
        Ok(query) => query,
        Err(error) => return error_line(error),
    };
    let values = query.all(item.as_bytes(), &TestBindings).unwrap();
    let values = values.iter().map(|value| {
        let text = value.span.of(item.as_bytes());
        std::str::from_utf8(text).unwrap()
    });
    format!("=> [{}]", values.collect::<Vec<_>>().join(","))
}

/// Asserts that a filter has the same result alone and in the scan of a page; returns it.
fn filter_line(text: &str, item: &str) -> String {
    let filter = match Filter::parse(text) {
        Ok(filter) => filter,
        Err(error) => return error_line(error),
    };
    let alone = filter.matches(item.as_bytes(), &TestBindings);
    let plan = Plan::new(Shape::Array, Level::Structural, filter.paths()).unwrap();
    let page = format!("[0, {item} ,1]");
    let items = scan(page.as_bytes(), &plan).unwrap();
    let (span, found) = (items.item(1).unwrap(), items.values(1));
    let in_page = filter.matches_found(page.as_bytes(), span, found, &TestBindings);
    assert_eq!(alone, in_page, "{text}");
    format!("=> {}", alone.unwrap())
}

#[track_caller]
fn check(vectors: &str, least: usize) {
    let (mut item, mut count, mut wrong) = ("0", 0, String::new());
    for line in vectors.lines() {
        let sign = if line.contains(" => ") {
            " => "
        } else {
            " !> "
        };
        let Some((text, expected)) = line.rsplit_once(sign) else {
            item = line.strip_prefix("in ").unwrap_or(item);
            continue;
        };
        let found = match text.strip_prefix("? ") {
            Some(text) => filter_line(text, item),
            None => query_line(text, item),
        };
        count += 1;
        if found != format!("{}{expected}", sign.trim_start()) {
            writeln!(wrong, "{line}\n  found {found}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= least, "{count} cases");
}

#[test]
fn queries_return_the_values_of_the_vectors() {
    check(QUERIES, 90);
}

#[test]
fn filters_have_the_results_of_the_vectors() {
    check(FILTERS, 80);
}

#[test]
fn a_filter_lists_its_parameters_and_properties() {
    let filter = Filter::parse("@.a == $.b && @.a > param('p') || param('p') == 1").unwrap();
    let paths: Vec<String> = filter.paths().iter().map(ToString::to_string).collect();
    assert_eq!(paths, ["$['a']", "$['b']"]);
    assert_eq!(filter.params().collect::<Vec<_>>(), ["p"]);
    assert!(!filter.walks());
    assert!(Filter::parse("@.a == 1 && @..b").unwrap().walks());
    assert!(Filter::parse("count(@.*) == 1").unwrap().walks());
}

#[test]
fn no_data_causes_an_error_of_a_filter() {
    let filter = Filter::parse("@.a == 1 || @..b == 2 || count(@.*) > 1").map(|_| ());
    assert_eq!(filter.unwrap_err().kind, PathErrorKind::NotSingular);
    let filter = Filter::parse("@.a == 1 || @..b || count(@.*) > 1").unwrap();
    for broken in [
        "",
        " ",
        "{",
        "{\"a\":}",
        "[1,",
        "\"x",
        "{\"a\" 1}",
        "nul",
        "]",
        "{\"b\":[\"}",
    ] {
        assert!(!filter.matches(broken.as_bytes(), &()).unwrap(), "{broken}");
    }
    // The evaluation covers the part before the fault.
    assert!(filter.matches(b"{\"a\":1,\"c\":[,]}", &()).unwrap());
}

#[cfg_attr(miri, ignore = "parses 64 KiB and 4,096 parts with safe code alone")]
#[test]
fn expressions_have_limits() {
    let complex = |text: &str| {
        let kind = Filter::parse(text).map(|_| ()).unwrap_err().kind;
        assert!(matches!(kind, PathErrorKind::TooComplex(_)), "{kind:?}");
    };
    let named = |text: &str, limit: &str| {
        let error = Filter::parse(text).map(|_| ()).unwrap_err();
        assert!(error.to_string().starts_with(limit), "{error}");
    };
    named(
        &format!("@.a == '{}'", "x".repeat(64 << 10)),
        "more than 65536 bytes",
    );
    named(&format!("@{}", ".a".repeat(65)), "more than 64 steps");
    named(
        &format!("{}@.a{}", "(".repeat(65), ")".repeat(65)),
        "more than 64 brackets",
    );
    named("@..a..a..a..a..a", "more than 4 walks");
    named(
        &format!("@[{}0]", "0,".repeat(1024)),
        "more than 1024 selectors",
    );
    named(
        &format!("@.a{}", "||@.a".repeat(4096)),
        "more than 4096 parts",
    );
    let paths: Vec<String> = (0..65).map(|n| format!("@.n{n}")).collect();
    named(&paths.join("||"), "more than 64 paths");
    complex(&format!("{}@.a{}", "(".repeat(65), ")".repeat(65)));
    complex(&format!("@{}", ".a".repeat(65)));
    complex(&format!("@.a == '{}'", "x".repeat(64 << 10)));
    complex(&format!("@{}", "[?@".repeat(65)));
    // Expressions whose work grows with a power of the size of the item.
    complex("@..a..a..a..a..a");
    complex("@..a[?@..a[?@..a[?@..a[?@..a]]]]");
    complex("@[?$.*[?$.*[?$.*[?$.*[?$.*]]]]]");
    assert!(Filter::parse("@..a[?@..a[?@..a[?@.a == $.b]]] || @..b..c").is_ok());
    let many: Vec<String> = (0..65).map(|n| format!("@.a{n}")).collect();
    complex(&many.join("||"));
    assert!(Filter::parse(&many[..64].join("||")).is_ok());
    let wide = vec!["1==1"; 5000];
    complex(&wide.join("&&"));
}

/// The last patterns are compiled for each evaluation.
#[cfg_attr(miri, ignore = "compiles 100 patterns with safe code alone")]
#[test]
fn many_large_patterns_are_evaluated() {
    let many = vec!["match(@.a, 'b(a?){400}')"; 100].join("||");
    let filter = Filter::parse(&format!("{many} || match(@.a, 'x[0-9]\\\\.')")).unwrap();
    for (item, expected) in [
        (&br#"{"a":"x1."}"#[..], true),
        (br#"{"a":"x1,"}"#, false),
        (br#"{"a":"ba"}"#, true),
    ] {
        assert_eq!(filter.matches(item, &()), Ok(expected));
    }
}

#[test]
fn deep_data_is_evaluated_without_recursion() {
    let levels = if cfg!(miri) { 40 } else { 500 };
    let deep = format!("{}{{\"x\":1}}{}", "[".repeat(levels), "]".repeat(levels));
    let query = Query::parse("$..[?@.x]").unwrap();
    assert!(!query.all(deep.as_bytes(), &()).unwrap().is_empty());
    let too_deep = nested(if cfg!(miri) { 600 } else { 100_000 });
    assert!(
        Query::parse("$..*")
            .unwrap()
            .all(too_deep.as_bytes(), &())
            .unwrap()
            .is_empty()
    );
}

fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[cfg_attr(miri, ignore = "runs a million steps of safe code for each expression")]
#[test]
fn steps_are_limited_by_the_size_of_the_item() {
    let long = format!("{{\"a\":\"{}\"}}", "a".repeat(100_000));
    let wide = format!("[{}[\"x\"]]", "[],".repeat(3000));
    let selectors = format!("count(@{}) == 0", "[*,*]".repeat(30));
    let compared = format!(
        "[{}{}]",
        format!("{},", nested(400)).repeat(40),
        nested(400)
    );
    for (text, item) in [
        // The work grows with the fourth power of the nesting depth.
        ("@..*..*..*..a", &nested(500)),
        ("count(@..*..*..*) == 0", &nested(500)),
        ("@[?@..*..*..*..a]", &nested(500)),
        // The work grows with the square of the width.
        ("@[?count($[?@[0] == $[-1][0]]) == 7]", &wide),
        // The work grows exponentially with the nesting depth.
        (&selectors, &nested(100)),
        // The work grows with the size of the regular expression.
        ("search(@.a, '(a?){400}b')", &long),
        // The work grows with the size of the compared values.
        (
            "@[?@ == $[0] && @ == $[1] && @ != $[2] && @[0] == $[3][0] && @ == $]",
            &compared,
        ),
    ] {
        let filter = Filter::parse(text).unwrap();
        let result = filter.matches(item.as_bytes(), &());
        assert_eq!(result, Err(OutOfSteps), "{text}");
    }
    let query = Query::parse("$..*..*..*").unwrap();
    assert_eq!(query.all(nested(500).as_bytes(), &()), Err(OutOfSteps));
    let mut visited = 0;
    let done = query.visit(nested(500).as_bytes(), &(), |_| {
        visited += 1;
        std::ops::ControlFlow::Break(())
    });
    assert_eq!((done, visited), (Ok(()), 1));
}

/// Objects and arrays with `levels` levels, each with `width` children.
fn tree(levels: u32, width: usize) -> String {
    if levels == 0 {
        return "\"some text\"".to_owned();
    }
    let part = tree(levels - 1, width);
    let members = (0..width).map(|n| format!("\"n{n}\":[{part}]"));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

#[cfg_attr(miri, ignore = "walks over 300,000 bytes with safe code, 14 times")]
#[test]
fn common_filters_stay_within_the_limit_of_steps() {
    let (tree, deep) = (tree(7, 4), nested(100));
    assert!(tree.len() > 300_000);
    for text in [
        "@..n9",
        "@..n1..n2..n9",
        "count(@..*) < 0",
        "@..[?@.n9 == 'x' || @.n8 == 'y']",
        "@.*[?search(@.n1, 'x+')]",
        "length(@.n1) == 7 && match(@.n1[0].n1, '[a-z]*')",
        "@..*..n9",
    ] {
        for item in [&tree, &deep] {
            let result = Filter::parse(text).unwrap().matches(item.as_bytes(), &());
            assert_eq!(result, Ok(false), "{text} of {} bytes", item.len());
        }
    }
}

struct Countdown(Cell<u32>);

impl Bindings for Countdown {
    fn param(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn meta(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn is_needed(&self) -> bool {
        self.0.set(self.0.get().saturating_sub(1));
        self.0.get() > 0
    }
}

#[cfg_attr(
    miri,
    ignore = "walks over 300,000 bytes: the evaluation of a smaller tree ends before the first check"
)]
#[test]
fn an_evaluation_can_be_cancelled() {
    let (filter, item) = (Filter::parse("@..*..n9").unwrap(), tree(7, 4));
    let unlimited = Countdown(Cell::new(u32::MAX));
    assert_eq!(filter.matches(item.as_bytes(), &unlimited), Ok(false));
    assert!(unlimited.0.get() < u32::MAX - 1);
    let limited = Countdown(Cell::new(2));
    assert_eq!(filter.matches(item.as_bytes(), &limited), Err(OutOfSteps));
}

/// The steps of a comparison are counted before they are taken, so that it can be cancelled.
#[cfg_attr(miri, ignore = "reads 300,000 bytes at each of 128 levels")]
#[test]
fn a_comparison_of_deep_values_can_be_cancelled() {
    let (open, close) = ("[".repeat(400), "]".repeat(400));
    let deep = format!("{open}{}0{close}", "1,".repeat(75_000));
    let item = format!("{{\"a\":{deep},\"b\":{deep}}}");
    let filter = Filter::parse("@.a == @.b").unwrap();
    let unlimited = Countdown(Cell::new(u32::MAX));
    assert_eq!(filter.matches(item.as_bytes(), &unlimited), Err(OutOfSteps));
    assert!(unlimited.0.get() < u32::MAX - 1);
}

#[test]
fn a_pattern_outside_the_standard_has_a_reason() {
    for known in ["a+", "[0-9]{2,}", "\\p{L}", "", "a|b", "\\?", "\\$"] {
        assert_eq!(pattern_fault(known), None, "{known}");
    }
    for (pattern, why) in [
        ("\\d+", "`\\d` is not supported; write `[0-9]`"),
        ("a\\w", "`\\w` is not supported; write `[A-Za-z0-9_]`"),
        ("[\\s]", "`\\s` is not supported; write `[ \\t\\r\\n]`"),
        ("\\bx", "`\\b` is not supported"),
        (
            "(?i)abc",
            "`(?` is not supported: no options, no look around; write `[aA]` for both cases",
        ),
        (
            "a(?:b)",
            "`(?` is not supported: no options, no look around; write `[aA]` for both cases",
        ),
        (
            "a*?",
            "there is nothing before `?` to repeat; write `\\?` for the character",
        ),
        (
            "[",
            "a bracket is not closed; write `\\[`, `\\(` or `\\{` for the character",
        ),
        (
            "(a",
            "a bracket is not closed; write `\\[`, `\\(` or `\\{` for the character",
        ),
        (
            "a{2",
            "a bracket is not closed; write `\\[`, `\\(` or `\\{` for the character",
        ),
    ] {
        let fault = PatternFault::Invalid(why.to_owned());
        assert_eq!(pattern_fault(pattern), Some(fault), "{pattern}");
    }
    let deep = "(".repeat(65) + &")".repeat(65);
    for (pattern, why) in [
        ("(a{1000}){1000}", "it needs more than 4096 steps"),
        ("a{1001}", "a number in `{n,m}` is larger than 1000"),
        ("[a-z]{1,5000}", "a number in `{n,m}` is larger than 1000"),
        (deep.as_str(), "it has more than 64 nested brackets"),
    ] {
        let fault = PatternFault::TooLarge(why.to_owned());
        assert_eq!(pattern_fault(pattern), Some(fault), "{pattern}");
    }
    // For any text, there is a reason if and only if the text is not a pattern.
    for pattern in [
        "*", ")", "]", "a**", "{", "a{2,1}", "\\", "[]", "[b-a]", "[[a]]", "\\p{X}",
    ] {
        assert!(
            matches!(pattern_fault(pattern), Some(PatternFault::Invalid(why)) if !why.is_empty()),
            "{pattern}"
        );
    }
    let filter = Filter::parse("match(@.a, 'x') && search(@.b, param('p'))").unwrap();
    let patterns = [
        PatternText::Fixed("x".into()),
        PatternText::Param("p".into()),
    ];
    assert_eq!(filter.patterns(), patterns);
}
