//! Any bytes as a page. The first byte chooses the plan. Checked:
//! - Every kernel gives the result of the portable one.
//! - A scan in parts finds the same.
//! - Spans are inside the page, and their content has the reported type.
//! - A page that is valid at level `strict` is also valid at level `structural`, with the same
//!   values.
//! - A value found in the page is also found in its item alone.

use weir_scan::{
    BadItem, Items, Level, Limits, Path, Plan, Shape, Simd, Tag, find, scan, scan_parts,
};

fn paths() -> Vec<Path> {
    let texts = ["$.a", "$.b.a", "$[1]", "$.b[-1]", "$"];
    texts
        .iter()
        .map(|text| text.parse().expect("a path"))
        .collect()
}

fn plan(choice: u8, level: Level, simd: Simd) -> Plan {
    let shape = match choice % 5 {
        0 => Shape::Array,
        1 => Shape::Member("$.a".parse().expect("a path")),
        2 => Shape::Member("$[-2].b".parse().expect("a path")),
        3 => Shape::Lines,
        _ => Shape::Single,
    };
    let lines = shape == Shape::Lines;
    let plan = Plan::new(shape, level, &paths()).expect("a plan");
    let limits = Limits {
        depth_max: 8,
        ..Limits::default()
    };
    let plan = plan.with_limits(limits).expect("limits");
    let plan = plan.with_simd(simd).expect("a kernel");
    let bad = [BadItem::Error, BadItem::Skip, BadItem::Undefined][usize::from(choice >> 6) % 3];
    if lines {
        plan.with_bad_item(bad).expect("lines")
    } else {
        plan
    }
}

/// Whether these bytes can be a value of this type.
fn fits(tag: Tag, bytes: &[u8]) -> bool {
    match tag {
        Tag::Undefined => bytes.is_empty(),
        Tag::Null => bytes == b"null",
        Tag::False => bytes == b"false",
        Tag::True => bytes == b"true",
        Tag::Number => weir_scan::Number::parse(bytes).is_some(),
        Tag::String => bytes.len() > 1 && bytes[0] == b'"' && bytes.ends_with(b"\""),
        Tag::Array => bytes[0] == b'[',
        Tag::Object => bytes[0] == b'{',
    }
}

/// The fuzz target.
pub fn run(input: &[u8]) {
    let [choice, page @ ..] = input else {
        return;
    };
    let mut answers: Vec<Option<Items>> = Vec::new();
    for level in [Level::Strict, Level::Structural] {
        let expected = scan(page, &plan(*choice, level, Simd::Scalar));
        for simd in Simd::ALL.iter().filter(|simd| simd.available()) {
            assert_eq!(
                scan(page, &plan(*choice, level, *simd)),
                expected,
                "{simd:?}"
            );
        }
        // A scan in parts must find the same items, in several steps.
        let (mut parts, mut spans, mut values) = (Items::default(), Vec::new(), Vec::new());
        let best = plan(
            *choice,
            level,
            Simd::ALL
                .iter()
                .copied()
                .find(|s| s.available())
                .expect("one"),
        );
        let done = scan_parts(page, None, &best, &mut parts, &mut |part| {
            spans.extend_from_slice(part.spans());
            (0..part.len()).for_each(|index| values.extend_from_slice(part.values(index)));
        });
        match &expected {
            Ok(items) => {
                assert!(
                    done.is_ok() && spans == items.spans() && parts.skipped() == items.skipped()
                );
                assert!(
                    values
                        .iter()
                        .copied()
                        .eq((0..items.len()).flat_map(|i| items.values(i).to_vec()))
                );
            }
            Err(error) => assert_eq!(done.as_ref(), Err(error)),
        }
        if let Err(error) = &expected {
            assert!(error.offset <= page.len());
        }
        answers.push(expected.ok());
    }
    if let [Some(strict), structural] = &answers[..]
        && strict.skipped() == 0
        && choice >> 6 != 2
    {
        assert_eq!(structural.as_ref(), Some(strict));
    }
    let Some(items) = &answers[1] else { return };
    let set = weir_scan::PathSet::new(&paths()).expect("paths");
    let mut found = Vec::new();
    for index in 0..items.len() {
        let item = items.item(index).expect("an item");
        assert!(item.end() <= page.len());
        let alone = find(item.of(page), &set, &mut found);
        for (value, again) in items.values(index).iter().zip(&found) {
            assert!(fits(value.tag, value.span.of(page)));
            let same = value.span.of(page) == again.span.of(item.of(page));
            // A bad item that is passed on has undefined values, and `find` has another limit of
            // depth.
            assert!(same || value.tag == Tag::Undefined || alone.is_err());
        }
    }
}
