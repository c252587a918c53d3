//! Any bytes as a page: every kernel gives the answer of the portable one, a scan in parts finds the
//! same, spans lie inside the page and hold what they say, what is accepted strictly is accepted structurally with the same values,
//! and a value found in the page is found in its item alone. The first byte chooses the plan.

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

/// What begins with this byte is of this type.
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

/// The target.
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
        // In parts, which is the same found one after the other.
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
            // A bad item that was handed on shows nothing, and a limit of depth is not that of `find`.
            assert!(same || value.tag == Tag::Undefined || alone.is_err());
        }
    }
}
