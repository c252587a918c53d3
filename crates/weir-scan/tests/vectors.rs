//! Tests of the cases in `vectors/scan`, with every kernel of this machine.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::fmt::Write as _;
use weir_scan::{Level, Limits, Path, Plan, ScanError, ScanErrorKind, Shape, Simd, Tag, scan};

const VERDICTS: &str = include_str!("../../../vectors/scan/verdicts.txt");
const ILL_FORMED: &str = include_str!("../../../vectors/scan/ill-formed.txt");
const SHAPES: &str = include_str!("../../../vectors/scan/shapes.txt");

/// Name, shape if given, page, and the lines of the expected result.
struct Case {
    name: String,
    shape: Shape,
    page: Vec<u8>,
    answer: String,
}

fn bytes(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((byte, more)) = rest.split_first() {
        rest = more;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let (kind, more) = rest.split_first().unwrap();
        rest = more;
        out.push(match kind {
            b'n' => b'\n',
            b't' => b'\t',
            b'\\' => b'\\',
            b'x' => {
                let digits = std::str::from_utf8(&rest[..2]).unwrap();
                rest = &rest[2..];
                u8::from_str_radix(digits, 16).unwrap()
            }
            other => panic!("escape {other}"),
        });
    }
    out
}

fn shape(name: &str) -> Shape {
    match name {
        "array" => Shape::Array,
        "lines" => Shape::Lines,
        "single" => Shape::Single,
        other => Shape::Member(other.strip_prefix("member:").unwrap().parse().unwrap()),
    }
}

fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(name) = line.strip_prefix("== ") {
            cases.push(Case {
                name: name.to_owned(),
                shape: Shape::Single,
                page: Vec::new(),
                answer: String::new(),
            });
            continue;
        }
        let case = cases.last_mut().unwrap();
        if let Some(name) = line.strip_prefix("shape ") {
            case.shape = shape(name);
        } else if line == "in" || line.starts_with("in ") {
            case.page = bytes(line.get(3..).unwrap_or(""));
        } else {
            writeln!(case.answer, "{line}").unwrap();
        }
    }
    cases
}

fn plan(shape: &Shape, level: Level, simd: Simd) -> Plan {
    let paths: [Path; 1] = ["$.a".parse().unwrap()];
    let limits = Limits {
        depth_max: 6,
        ..Limits::default()
    };
    let plan = Plan::new(shape.clone(), level, &paths).unwrap();
    plan.with_limits(limits).unwrap().with_simd(simd).unwrap()
}

fn kind(error: ScanError) -> &'static str {
    match error.kind {
        ScanErrorKind::NotUtf8 => "NOT_UTF8",
        ScanErrorKind::NotJson => "NOT_JSON",
        ScanErrorKind::ControlCharacter => "CONTROL_CHARACTER",
        ScanErrorKind::UnterminatedString => "UNTERMINATED_STRING",
        ScanErrorKind::Unbalanced => "UNBALANCED",
        ScanErrorKind::TrailingData => "TRAILING_DATA",
        ScanErrorKind::TooDeep => "TOO_DEEP",
        ScanErrorKind::TooLarge => "TOO_LARGE",
        ScanErrorKind::BadEnvelope => "BAD_ENVELOPE",
        ScanErrorKind::DuplicateName => "DUPLICATE_NAME",
        _ => "another",
    }
}

fn verdict(name: &str, case: &Case, level: Level, simd: Simd) -> String {
    match scan(&case.page, &plan(&case.shape, level, simd)) {
        Err(error) => format!("{name} {} {}\n", kind(error), error.offset),
        Ok(items) => match items.value(0, 0) {
            value if value.tag == Tag::Undefined => format!("{name} ok\n"),
            value => format!("{name} ok {}..{}\n", value.span.offset, value.span.end()),
        },
    }
}

fn verdicts(case: &Case, simd: Simd) -> String {
    verdict("structural", case, Level::Structural, simd)
        + &verdict("strict", case, Level::Strict, simd)
}

fn listing(case: &Case, simd: Simd) -> String {
    let shown = |bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        text.replace('\\', "\\\\")
            .replace('\n', "\\n")
            .replacen(' ', "\\x20", 1)
    };
    let items = match scan(&case.page, &plan(&case.shape, Level::Structural, simd)) {
        Err(error) => return format!("fault {} {} {}\n", kind(error), error.offset, error.item),
        Ok(items) => items,
    };
    let mut out = String::new();
    for index in 0..items.len() {
        let item = shown(items.item(index).unwrap().of(&case.page));
        let value = items.value(index, 0);
        let value = match value.tag {
            Tag::Undefined => "-".to_owned(),
            _ => shown(value.span.of(&case.page)),
        };
        writeln!(out, "item {item} {value}").unwrap();
    }
    out
}

#[track_caller]
fn check(text: &str, least: usize, answer: impl Fn(&Case, Simd) -> String) {
    let cases = cases(text);
    assert!(cases.len() >= least, "{} cases", cases.len());
    for simd in Simd::ALL.iter().filter(|simd| simd.available()) {
        for case in &cases {
            assert_eq!(answer(case, *simd), case.answer, "{} {simd:?}", case.name);
        }
    }
}

#[test]
fn each_level_has_the_verdicts_of_the_vectors() {
    check(VERDICTS, 100, verdicts);
}

#[test]
fn invalid_utf_8_has_the_verdicts_of_the_vectors() {
    check(ILL_FORMED, 25, |case, simd| {
        assert!(std::str::from_utf8(&case.page).is_err(), "{}", case.name);
        verdicts(case, simd)
    });
}

#[test]
fn items_equal_those_of_the_vectors() {
    check(SHAPES, 20, listing);
}
