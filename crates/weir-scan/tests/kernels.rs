//! All kernels return the result of the portable kernel, including errors and offsets. The portable
//! kernel returns the result of a naive implementation.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use proptest::prelude::*;
use weir_scan::{
    BadItem, Items, Level, Limits, Path, Plan, ScanError, ScanErrorKind, Shape, Simd, scan,
};

fn kernels() -> Vec<Simd> {
    let there = Simd::ALL.iter().filter(|simd| simd.available());
    there.copied().collect()
}

fn plans(simd: Simd) -> Vec<Plan> {
    let path = |text: &str| -> Path { text.parse().unwrap() };
    let paths = [path("$.a"), path("$.b.a"), path("$[1]"), path("$.b[-1]")];
    let shapes = [
        Shape::Array,
        Shape::Member(path("$.a")),
        Shape::Lines,
        Shape::Single,
    ];
    let limits = Limits {
        depth_max: 6,
        ..Limits::default()
    };
    let mut plans = Vec::new();
    for shape in shapes {
        for level in [Level::Structural, Level::Strict] {
            for paths in [&paths[..0], &paths[..]] {
                let plan = Plan::new(shape.clone(), level, paths).unwrap();
                plans.push(plan.with_simd(simd).unwrap().with_limits(limits).unwrap());
            }
        }
        if shape == Shape::Lines {
            let last = plans.last().unwrap().clone();
            plans.push(last.with_bad_item(BadItem::Skip).unwrap());
        }
    }
    plans
}

#[test]
fn the_kernels_of_this_machine_are_tested() {
    #[cfg(target_arch = "x86_64")]
    for (simd, there) in [
        (Simd::Avx512, is_x86_feature_detected!("avx512bw")),
        (Simd::Avx2, is_x86_feature_detected!("avx2")),
        (Simd::Sse42, is_x86_feature_detected!("sse4.2")),
    ] {
        assert_eq!(kernels().contains(&simd), there, "{simd:?}");
    }
    #[cfg(target_arch = "aarch64")]
    assert!(kernels().contains(&Simd::Neon));
    assert_eq!(kernels().last(), Some(&Simd::Scalar));
    // `cargo xtask miri` sets the instruction sets; without them, the kernels with unsafe code are
    // not compiled.
    #[cfg(all(miri, target_arch = "x86_64"))]
    assert_eq!(kernels().len(), 4);
}

/// Plans of all kernels, kernel by kernel.
fn all() -> Vec<Vec<Plan>> {
    kernels().into_iter().map(plans).collect()
}

#[track_caller]
fn agree(plans: &[Vec<Plan>], page: &[u8]) {
    let (scalar, others) = plans.split_last().unwrap();
    for (number, plan) in scalar.iter().enumerate() {
        let expected = scan(page, plan);
        for other in others {
            let found = scan(page, &other[number]);
            assert_eq!(
                found,
                expected,
                "{:?} {}",
                other[number],
                page.escape_ascii()
            );
        }
    }
}

/// A plan that only skips over the one item of the page.
fn pass_plan(simd: Simd, depth_max: u32) -> Plan {
    let limits = Limits {
        depth_max,
        ..Limits::default()
    };
    let plan = Plan::new(Shape::Single, Level::Structural, &[]).unwrap();
    plan.with_limits(limits).unwrap().with_simd(simd).unwrap()
}

/// The naive result of `structural` for a container: first removes strings, then counts brackets.
fn naive(page: &[u8], depth_max: usize) -> Result<(), (ScanErrorKind, usize)> {
    use ScanErrorKind as K;
    let mut outside: Vec<(usize, u8)> = Vec::new();
    let mut faults = Vec::new();
    let mut at = 0;
    while at < page.len() {
        if page[at] != b'"' {
            if page[at] == b'\\' {
                faults.push((at, K::NotJson));
            }
            outside.push((at, page[at]));
            at += 1;
            continue;
        }
        let open = at;
        at += 1;
        loop {
            match page.get(at) {
                None => {
                    // The string is read to the end of the page, and reported at its quote.
                    faults.push((page.len(), K::UnterminatedString));
                    outside.push((open, b'"'));
                    break;
                }
                Some(b'"') => break,
                Some(b'\\') if page.get(at + 1).is_some_and(|b| *b >= 0x20) => at += 2,
                Some(..0x20) => {
                    faults.push((at, K::ControlCharacter));
                    at += 1;
                }
                Some(_) => at += 1,
            }
        }
        at += 1;
    }
    let (mut square, mut curly) = (0_i64, 0_i64);
    let mut end = None;
    for (at, byte) in &outside {
        let depth = usize::try_from(square + curly).unwrap_or(0);
        match byte {
            b'[' | b'{' if depth >= depth_max => faults.push((*at, K::TooDeep)),
            _ => {}
        }
        match byte {
            b'[' => square += 1,
            b']' => square -= 1,
            b'{' => curly += 1,
            b'}' => curly -= 1,
            _ => {}
        }
        if square + curly == 0 {
            if square != 0 {
                faults.push((*at, K::Unbalanced));
            }
            end = Some(*at);
            break;
        }
    }
    let end = end.unwrap_or(page.len());
    faults.push((page.len(), K::Unbalanced));
    faults.retain(|fault| fault.0 <= end);
    faults.sort_by_key(|fault| fault.0);
    let quote = outside
        .iter()
        .rfind(|byte| byte.1 == b'"')
        .map(|byte| byte.0);
    let mut first = faults.first().map(|(at, kind)| (*kind, *at));
    if let Some((K::UnterminatedString, at)) = &mut first {
        *at = quote.unwrap();
    }
    if first.is_none() || end < page.len() && first.is_some_and(|f| f.1 > end) {
        let rest = &page[end + 1..];
        let blank = |b: &u8| matches!(b, b' ' | b'\n' | b'\r' | b'\t');
        let more = rest.iter().position(|b| !blank(b));
        first = more.map(|more| (K::TrailingData, end + 1 + more));
    }
    if let Err(error) = std::str::from_utf8(page) {
        let utf8 = error.valid_up_to();
        if first.is_none_or(|first| first.1 >= utf8) {
            first = Some((K::NotUtf8, utf8));
        }
    }
    first.map_or(Ok(()), Err)
}

#[track_caller]
fn agree_with_naive(plans: &[Plan], page: &[u8], depth_max: usize) {
    let expected = naive(page, depth_max);
    for plan in plans {
        let found = scan(page, plan).map(|_| ());
        let found = found.map_err(|ScanError { kind, offset, .. }| (kind, offset));
        assert_eq!(found, expected, "{plan:?} {}", page.escape_ascii());
    }
}

/// All words over the significant bytes.
fn words(length: usize) -> impl Iterator<Item = Vec<u8>> {
    const LETTERS: &[u8] = b"\"\\{}[]a\x01 ";
    let count = LETTERS.len().pow(u32::try_from(length).unwrap());
    (0..count).map(move |mut number| {
        let mut word = Vec::with_capacity(length);
        for _ in 0..length {
            word.push(LETTERS[number % LETTERS.len()]);
            number /= LETTERS.len();
        }
        word
    })
}

#[test]
fn kernels_agree_with_the_naive_scan_across_a_block_boundary() {
    let plans: Vec<Plan> = kernels().iter().map(|simd| pass_plan(*simd, 3)).collect();
    let longest = if cfg!(miri) { 2 } else { 5 };
    for length in 0..=longest {
        for word in words(length) {
            // The word alone, and then repeated so that a block ends inside of it.
            let mut page = b"[".to_vec();
            page.extend(&word);
            agree_with_naive(&plans, &page, 3);
            if length + 1 >= longest {
                let mut page = b"[".to_vec();
                page.resize(63, b' ');
                page.extend(&word);
                page.extend(b"\"]");
                agree_with_naive(&plans, &page, 3);
            }
        }
    }
}

#[test]
fn kernels_agree_on_every_construct_at_every_offset() {
    let plans = all();
    let constructs: &[&[u8]] = &[
        b"{\"a\":{\"b\":[1,{}]},\"b\":{\"a\":\"x\"}}",
        b"{\"b\":{\"a\":\"\\\\\\\"\\u0061\",\"c\":\"\\\\\"},\"a\":-1.5e+7}",
        b"[[],[[[[[]]]]],{\"a\":\"\xc3\xa9\"},null]",
        b"{\"a\":[1,2,{\"a\":[\"\xf0\x9f\x98\x80\"]}],\"b\":[true,false]}",
        b"{\"a\":\"\x01\"}",
        b"{\"a\":\"\xc3\"}",
        b"{\"b\":\"\xed\xa0\x80\"}",
        b"{\"b\":{\"a\":[[[[[]]]]]}}",
        b"{\"b\":[}],\"a\":1}",
        b"{\"b\":[\"}]\",\"a\":1}",
        b"{\"b\":\\\"\",\"a\":1}",
        b"\"\\\\\\\\\\\\\"",
    ];
    for construct in constructs.iter().step_by(if cfg!(miri) { 5 } else { 1 }) {
        for offset in (0..=130).step_by(if cfg!(miri) { 62 } else { 1 }) {
            let inners = [&b" "[..], b"\"x\",", b"[{}],"];
            for inner in inners.into_iter().skip(if cfg!(miri) { 2 } else { 0 }) {
                let mut page = b"[".to_vec();
                while page.len() < offset {
                    page.extend(inner);
                }
                page.extend(*construct);
                page.extend(b",{\"a\":0}]");
                agree(&plans, &page);
            }
            // Then with a run of ordinary bytes before the word, inside of one string.
            let mut page = b"{\"a\":[\"".to_vec();
            page.resize(7 + offset, b'x');
            page.extend(b"\",");
            page.extend(*construct);
            page.extend(b"]}\n[1,2]");
            agree(&plans, &page);
        }
    }
}

#[test]
fn kernels_agree_on_a_page_truncated_at_any_byte() {
    let plans = all();
    let page = "{\"n\":0,\"a\":[{\"a\":\"é\\n\",\"b\":[1,2]},\
                {\"b\":{\"a\":{\"deep\":[[\"😀\",{}]]}},\"x\":\"\\ud83d\\ude00\"}, -0.5e-3 ,true],\
                \"tail\":[\"a long enough tail to need another block\",null]}\n";
    for end in (0..=page.len()).step_by(if cfg!(miri) { 37 } else { 1 }) {
        agree(&plans, &page.as_bytes()[..end]);
        agree(&plans, &page.as_bytes()[end..]);
    }
}

#[test]
fn the_limit_of_depth_is_exact() {
    for depth in [1_usize, 2, 63, 64, 65, 129, 512] {
        let plans: Vec<Plan> = kernels()
            .iter()
            .map(|simd| pass_plan(*simd, u32::try_from(depth).unwrap()))
            .collect();
        for extra in 0..2 {
            for spaces in [0, 1, 40] {
                let mut page = vec![b' '; spaces];
                page.splice(0..0, *b"[");
                page.extend(vec![b'['; depth - 1 + extra]);
                page.extend(vec![b']'; depth + extra]);
                agree_with_naive(&plans, &page, depth);
            }
        }
    }
}

/// Text with the significant bytes, and every fault of UTF-8.
fn any_bytes_and_json_tokens() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => proptest::sample::select(&br#""\{}[],:  "#[..]).prop_map(|b| vec![b]),
        2 => Just(b"\"a\":".to_vec()),
        2 => Just(b"\"b\":{".to_vec()),
        1 => Just(b"\\\\\\\\\\\\".to_vec()),
        1 => Just(b"\n".to_vec()),
        1 => Just("aé€😀".as_bytes().to_vec()),
        1 => Just(b"0123456789abcdefghijklmnopqrstuvwxyz".to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1..3),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// A JSON value, as text.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i32>().prop_map(|n| n.to_string()),
        proptest::sample::select(&["-0.0", "1e5", "12.25E-3", "0"][..]).prop_map(str::to_owned),
        "[ -~é😀]{0,70}".prop_map(|s| serde_json::to_string(&s).unwrap()),
        proptest::sample::select(&["\"\\u0061\\\\\"", "\"\\ud800\\n\"", "\"\\\"\""][..])
            .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let blank = proptest::sample::select(&["", " ", "\n\t", "  \r"][..]);
        prop_oneof![
            (
                proptest::collection::vec(inner.clone(), 0..6),
                blank.clone()
            )
                .prop_map(|(all, b)| format!("[{b}{}{b}]", all.join(&format!("{b},{b}")))),
            (proptest::collection::btree_map("[a-e]", inner, 0..6), blank).prop_map(|(all, b)| {
                let members = all
                    .iter()
                    .map(|(name, value)| format!("\"{name}\"{b}:{b}{value}"));
                let members: Vec<String> = members.collect();
                format!("{{{b}{}{b}}}", members.join(&format!("{b},{b}")))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 400 }, failure_persistence: None, ..Default::default() })]

    #[test]
    fn kernels_agree_on_any_bytes(page in any_bytes_and_json_tokens()) {
        agree(&all(), &page);
        let mut inside = b"[".to_vec();
        inside.extend(&page);
        agree(&all(), &inside);
        let plans: Vec<Plan> = kernels().iter().map(|simd| pass_plan(*simd, 5)).collect();
        agree_with_naive(&plans, &inside, 5);
    }

    #[test]
    fn kernels_agree_on_json_with_one_fault(
        text in json(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut page = format!("[{text},{text}]").into_bytes();
        agree(&all(), &page);
        let place = place.index(page.len());
        page[place] = byte;
        agree(&all(), &page);
    }

    #[test]
    fn strict_accepts_what_another_parser_accepts(
        text in json(),
        place in any::<prop::sample::Index>(),
        byte in prop_oneof![any::<u8>(), proptest::sample::select(&br#"{}[]",:\0-+eE."#[..])],
    ) {
        let plan = Plan::new(Shape::Single, Level::Strict, &[]).unwrap();
        prop_assert!(scan(text.as_bytes(), &plan).is_ok());
        let mut page = text.into_bytes();
        let place = place.index(page.len());
        page[place] = byte;
        let other = serde_json::from_slice::<Box<serde_json::value::RawValue>>(&page);
        prop_assert_eq!(
            scan(&page, &plan).is_ok(),
            other.is_ok(),
            "{} {:?}", page.escape_ascii(), other
        );
        // A page that `strict` accepts is also accepted by `structural`, with the same values.
        let paths = [Path::parse("$.a").unwrap(), Path::parse("$.b[0]").unwrap()];
        let found = |level| -> Option<Items> {
            scan(&page, &Plan::new(Shape::Single, level, &paths).unwrap()).ok()
        };
        if let Some(strict) = found(Level::Strict) {
            prop_assert_eq!(found(Level::Structural), Some(strict));
        }
    }

    #[test]
    fn values_equal_those_of_another_parser(text in json()) {
        let names = ["a", "b", "c"];
        let mut paths: Vec<Path> = names.iter().map(|n| format!("$.{n}").parse().unwrap()).collect();
        paths.extend(["$[0]", "$.a.b", "$.a[1]", "$.b.a.c"].map(|p| p.parse().unwrap()));
        let pointers = ["/a", "/b", "/c", "/0", "/a/b", "/a/1", "/b/a/c"];
        let value: Option<serde_json::Value> = serde_json::from_str(&text).ok();
        // The other parser rejects halves of surrogate pairs.
        let Some(value) = value else {
            return Ok(());
        };
        for simd in kernels() {
            let plan = Plan::new(Shape::Single, Level::Structural, &paths).unwrap();
            let items = scan(text.as_bytes(), &plan.with_simd(simd).unwrap()).unwrap();
            for (path, pointer) in pointers.iter().enumerate() {
                let found = items.value(0, path).span.of(text.as_bytes());
                let found: Option<serde_json::Value> = serde_json::from_slice(found).ok();
                // A number in a pointer may also be a member name.
                let expected = value.pointer(pointer);
                prop_assert_eq!(found.as_ref(), expected, "{} {}", pointer, text);
            }
        }
    }
}
