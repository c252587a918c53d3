//! Compares random queries with the oracle.

use std::fmt::Write as _;

use bytes::Bytes;
use proptest::prelude::*;
use weir_query::{Bounds, Budgets, Mode, Query, QueryText, Shape, SourceOptions, Step};

use crate::drive::{Host, Supply, compile};
use crate::oracle::{Keys, OwnedItem, by_keys, member};

/// A key: one of a few values, of all types, in several notations.
fn key() -> impl Strategy<Value = Option<&'static str>> {
    prop::sample::select(vec![
        None,
        Some("null"),
        Some("false"),
        Some("true"),
        Some("0"),
        Some("-0.0"),
        Some("1"),
        Some("1.0"),
        Some("10e-1"),
        Some("2.5"),
        Some("-3"),
        Some("\"\""),
        Some("\"a\""),
        Some("\"\\u0061\""),
        Some("\"a long string\""),
        Some("\"a long st\\u0072\""),
        Some("\"a long string, longer than sixteen bytes\""),
        Some("\"a long string, longer than sixteen bytez\""),
        Some("\"é\""),
    ])
}

prop_compose! {
    fn item()(a in key(), b in key(), pad in 0..3usize) -> (Option<&'static str>, Option<&'static str>, usize) {
        (a, b, pad)
    }
}

/// Sources, each a list of items.
fn sources() -> impl Strategy<Value = Vec<Vec<OwnedItem>>> {
    let list = prop::collection::vec(item(), 0..12);
    prop::collection::vec(list, 1..5).prop_map(|sources| {
        let mut id = 0;
        let write = |items: Vec<(Option<&str>, Option<&str>, usize)>, id: &mut u32| {
            let mut known = Vec::new();
            for (a, b, pad) in items {
                *id += 1;
                let space = " ".repeat(pad);
                let mut text = format!("{{\"id\":{space}{id}");
                for (name, value) in [("a", a), ("b", b)] {
                    if let Some(value) = value {
                        write!(text, ",{space}\"{name}\":{value}").unwrap();
                    }
                }
                text += &space;
                text.push('}');
                known.push(OwnedItem::new(text.as_bytes()));
            }
            known
        };
        sources
            .into_iter()
            .map(|items| write(items, &mut id))
            .collect()
    })
}

fn orders() -> impl Strategy<Value = (&'static str, Keys)> {
    prop::sample::select(vec![
        ("$.a", vec![("a", false)]),
        ("$.a desc", vec![("a", true)]),
        ("$.a, $.b desc", vec![("a", false), ("b", true)]),
        ("$['b'] desc, @.a asc", vec![("b", true), ("a", false)]),
    ])
}

/// Pages of a source in a shape. `cuts` are the item counts of all pages except the last.
fn pages(items: &[OwnedItem], cuts: &[usize], shape: usize) -> (Shape, Vec<Vec<u8>>) {
    let mut pages = Vec::new();
    let mut rest = items;
    for cut in cuts {
        let (page, after) = rest.split_at((*cut).min(rest.len()));
        pages.push(page);
        rest = after;
    }
    pages.push(rest);
    let join = |page: &[OwnedItem], separator: &[u8]| {
        let items: Vec<&[u8]> = page.iter().map(|item| item.bytes.as_slice()).collect();
        items.join(separator)
    };
    let shape = match shape {
        0 => Shape::Array,
        1 => Shape::Lines,
        _ => Shape::Member("$.docs".parse().unwrap()),
    };
    let pages = pages.iter().map(|page| match shape {
        Shape::Array => [b"[", join(page, b" ,").as_slice(), b"]"].concat(),
        Shape::Lines => join(page, b"\n\n"),
        _ => [
            b"{\"n\":[1],\"docs\":[",
            join(page, b",").as_slice(),
            b"],\"x\":{}}",
        ]
        .concat(),
    });
    let pages = pages.collect();
    (shape, pages)
}

/// A filter, and a function for a parsed item that is equivalent to it.
type Filter = (&'static str, fn(&serde_json::Value) -> bool);

fn filters() -> impl Strategy<Value = Filter> {
    let all: Vec<Filter> = vec![
        ("", |_| true),
        ("@.id >= 5 && $.a != null", |item| {
            item["id"].as_u64() >= Some(5) && item.get("a") != Some(&serde_json::Value::Null)
        }),
        ("!(@.b) || @['a'] == 1", |item| {
            item.get("b").is_none()
                || item.get("a").and_then(serde_json::Value::as_f64) == Some(1.0)
        }),
        ("starts(@.b, 'a') || @.a < 2.50", |item| {
            let starts = |text: &str| text.starts_with('a');
            let text = item.get("b").and_then(serde_json::Value::as_str);
            text.is_some_and(starts)
                || item
                    .get("a")
                    .is_some_and(|a| a.as_f64() < Some(2.5) && a.is_number())
        }),
        ("@.a == @.c", |item| item.get("a").is_none()),
    ];
    prop::sample::select(all)
}

#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent variations")]
pub(crate) struct Case {
    filter: Filter,
    sources: Vec<Vec<OwnedItem>>,
    order: (&'static str, Keys),
    pub(crate) cuts: Vec<usize>,
    shape: usize,
    pub(crate) offset: u64,
    pub(crate) limit: Option<u64>,
    distinct: bool,
    select: bool,
    sorted: bool,
    arrive: u64,
    batch: usize,
    turns: bool,
}

prop_compose! {
    pub(crate) fn case()(
        filter in filters(),
        sources in sources(),
        order in orders(),
        cuts in prop::collection::vec(0..5usize, 0..4),
        shape in 0..3usize,
        offset in 0..3u64,
        limit in prop::option::of(0..20u64),
        distinct in any::<bool>(),
        select in any::<bool>(),
        sorted in any::<bool>(),
        arrive in any::<u64>(),
        batch in 1..5usize,
        turns in any::<bool>(),
    ) -> Case {
        Case { filter, sources, order, cuts, shape, offset, limit, distinct, select, sorted, arrive, batch, turns }
    }
}

impl Case {
    pub(crate) fn text(&self) -> QueryText {
        QueryText {
            filter: self.filter.0.into(),
            order: self.order.0.into(),
            select: if self.select {
                "$.b".into()
            } else {
                String::new()
            },
            distinct: self.distinct,
            offset: self.offset,
            limit: self.limit,
            ..QueryText::default()
        }
    }

    pub(crate) fn supplies(&self) -> Vec<Supply> {
        let supply = |items: &Vec<OwnedItem>| {
            let mut items = items.clone();
            if self.sorted {
                items.sort_by(|x, y| by_keys(&self.order.1, &x.value, &y.value));
            }
            let (shape, pages) = pages(&items, &self.cuts, self.shape);
            let options = SourceOptions {
                shape,
                sorted: self.sorted,
                ..SourceOptions::default()
            };
            Supply { options, pages }
        };
        self.sources.iter().map(supply).collect()
    }

    /// The items that pass the filter, in order.
    pub(crate) fn merged(&self) -> Vec<&OwnedItem> {
        let all = self.sources.iter().flatten();
        let mut all: Vec<&OwnedItem> = all.filter(|item| (self.filter.1)(&item.value)).collect();
        all.sort_by(|x, y| by_keys(&self.order.1, &x.value, &y.value));
        all
    }

    pub(crate) fn expected(&self) -> Vec<Vec<u8>> {
        let all = self.merged();
        let mut seen: Vec<serde_json::Value> = Vec::new();
        let mut out = Vec::new();
        for item in all {
            let selected = if self.select {
                let Some(value) = member(&item.value, "b") else {
                    continue;
                };
                value.clone()
            } else {
                item.value.clone()
            };
            if self.distinct {
                let same = |known: &serde_json::Value| match (known.as_f64(), selected.as_f64()) {
                    (Some(a), Some(b)) => {
                        a.total_cmp(&b).is_eq() || (a + b).abs() < 1e-9 && a.abs() < 1e-9
                    }
                    _ => *known == selected,
                };
                if seen.iter().any(same) {
                    continue;
                }
                seen.push(selected.clone());
            }
            out.push(selected_bytes(item, self.select));
        }
        let offset = usize::try_from(self.offset).unwrap();
        let limit = self
            .limit
            .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap());
        out.into_iter().skip(offset).take(limit).collect()
    }

    /// Sources of lines with a tie.
    pub(crate) fn tied(&self, cuts: &[usize], stable: bool) -> Vec<Supply> {
        let supply = |items: &Vec<OwnedItem>| {
            let mut items = items.clone();
            // The numbers ascend in order of creation. `$.none` is equal for all items, so
            // that only their count distinguishes them.
            items.sort_by(|x, y| by_keys(&self.order.1, &x.value, &y.value));
            let (shape, pages) = pages(&items, cuts, 1);
            let tie = if stable || self.turns {
                "$.id"
            } else {
                "$.none"
            };
            let options = SourceOptions {
                shape,
                sorted: true,
                stable,
                tie: tie.into(),
                ..SourceOptions::default()
            };
            Supply { options, pages }
        };
        self.sources.iter().map(supply).collect()
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            items_max: self.batch,
            ..Bounds::default()
        }
    }
}

/// The bytes of the item, or of its last member `b`.
fn selected_bytes(item: &OwnedItem, select: bool) -> Vec<u8> {
    if !select {
        return item.bytes.clone();
    }
    let text = String::from_utf8(item.bytes.clone()).unwrap();
    let (_, value) = text.split_once("\"b\":").unwrap();
    value.trim_end_matches('}').trim_end().as_bytes().to_vec()
}

pub(crate) fn texts(items: &[Vec<u8>]) -> Vec<String> {
    let text = |item: &Vec<u8>| String::from_utf8(item.clone()).unwrap();
    items.iter().map(text).collect()
}

/// A choice that depends only on the seed.
fn choose(seed: &mut u64, among: usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    usize::try_from(*seed >> 33).unwrap() % among.max(1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn results_equal_the_oracle(case in case()) {
        let plan = compile(&case.text());
        let supplies = case.supplies();
        let mut host = Host::new(&plan, &supplies);
        let found = host.run(case.bounds(), |_| ()).unwrap();
        prop_assert_eq!(texts(&found), texts(&case.expected()));
        prop_assert_eq!(host.query.buffered_bytes(), 0);
    }

    #[test]
    fn results_do_not_depend_on_the_order_of_arrival(case in case()) {
        let plan = compile(&case.text());
        let supplies = case.supplies();
        let mut seed = case.arrive;
        let mut host = Host::new(&plan, &supplies);
        let found = host.run(case.bounds(), |needs| {
            // Supply one of the requested pages, or several in some order.
            let keep = 1 + choose(&mut seed, needs.len());
            for at in (1..needs.len()).rev() {
                let other = choose(&mut seed, at + 1);
                needs.swap(at, other);
            }
            needs.truncate(keep);
        });
        prop_assert_eq!(texts(&found.unwrap()), texts(&case.expected()));
    }

    #[test]
    fn a_query_resumes_after_every_result(case in case()) {
        let plan = compile(&case.text());
        let supplies = case.supplies();
        let expected = case.expected();
        let one = Bounds { items_max: 1, ..Bounds::default() };
        let mut host = Host::new(&plan, &supplies);
        let mut found = Vec::new();
        loop {
            let token = match host.query.token() {
                Ok(token) => token,
                Err(error) => {
                    prop_assert_eq!(error.code(), weir_core::ErrorCode::NoToken);
                    return Ok(());
                }
            };
            let query = Query::resume(plan.clone(), Budgets::default(), &token).unwrap();
            host = Host::with(query, &supplies);
            match host.advance(one, &mut |_| ()).unwrap() {
                Some(items) => found.extend(items),
                None => break,
            }
        }
        prop_assert_eq!(texts(&found), texts(&expected));
    }

    #[test]
    fn results_lie_in_the_pages(case in case()) {
        let plan = compile(&case.text());
        let mut query = Query::new(plan, Budgets::default());
        let mut pages = Vec::new();
        for supply in case.supplies() {
            let source = query.add_source(supply.options.clone()).unwrap();
            let count = supply.pages.len();
            for (at, page) in supply.pages.into_iter().enumerate() {
                let page = Bytes::from(page);
                let next = (at + 1 < count).then(Bytes::new);
                query.enqueue(source, page.clone(), next).unwrap();
                pages.push(page);
            }
        }
        while let Step::Ready(results) = query.next(case.bounds()).unwrap() {
            for item in results.iter().filter(|item| !item.is_empty()) {
                let range = item.as_ptr_range();
                let inside = pages.iter().map(|page| page.as_ptr_range());
                prop_assert!(inside.into_iter().any(|p| p.start <= range.start && range.end <= p.end));
            }
        }
    }

    #[test]
    fn sources_without_an_order_are_read_in_sequence(case in case(), turns in any::<bool>()) {
        let mode = if turns { Mode::RoundRobin } else { Mode::Sequential };
        let text = QueryText { mode: Some(mode), limit: case.limit, ..QueryText::default() };
        let supplies: Vec<Supply> = case.supplies().into_iter().map(|mut supply| {
            supply.options.sorted = false;
            supply
        }).collect();
        let lists: Vec<Vec<Vec<u8>>> = case.sources.iter().map(|items| {
            let mut items = items.clone();
            if case.sorted {
                items.sort_by(|x, y| by_keys(&case.order.1, &x.value, &y.value));
            }
            items.into_iter().map(|item| item.bytes).collect()
        }).collect();
        let mut expected = Vec::new();
        if turns {
            let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
            for at in 0..longest {
                expected.extend(lists.iter().filter_map(|list| list.get(at).cloned()));
            }
        } else {
            expected = lists.concat();
        }
        expected.truncate(case.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap()));
        let plan = compile(&text);
        let found = Host::new(&plan, &supplies).run(case.bounds(), |_| ()).unwrap();
        prop_assert_eq!(texts(&found), texts(&expected));
        // The query is also stopped after each page of results.
        let mut host = Host::new(&plan, &supplies);
        let mut found = Vec::new();
        while let Some(items) = host.advance(case.bounds(), &mut |_| ()).unwrap() {
            found.extend(items);
            let token = host.query.token().unwrap();
            let query = Query::resume(plan.clone(), Budgets::default(), &token).unwrap();
            host = Host::with(query, &supplies);
        }
        prop_assert_eq!(texts(&found), texts(&expected));
    }

    #[test]
    fn a_query_resumes_from_keys_and_ties(case in case(), other in prop::collection::vec(1..3usize, 0..10)) {
        let case = Case { sorted: true, distinct: false, ..case };
        let plan = compile(&case.text());
        let expected = case.expected();
        let mut found = Vec::new();
        let mut token: Option<Vec<u8>> = None;
        for round in 0.. {
            prop_assert!(round < 200, "the query does not end");
            // Each run has differently cut pages.
            let cuts = if round % 2 == 0 { &case.cuts } else { &other };
            let supplies = case.tied(cuts, false);
            let query = match &token {
                None => Query::new(plan.clone(), Budgets::default()),
                Some(token) => Query::resume(plan.clone(), Budgets::default(), token).unwrap(),
            };
            let mut host = Host::with(query, &supplies);
            match host.advance(case.bounds(), &mut |_| ()).unwrap() {
                Some(items) => found.extend(items),
                None => break,
            }
            token = Some(host.query.token().unwrap());
        }
        prop_assert_eq!(texts(&found), texts(&expected));
    }

    #[test]
    fn results_do_not_depend_on_a_split_between_two_runs(case in case()) {
        let case = Case { sorted: true, distinct: false, select: false, offset: 0, limit: None, ..case };
        let plan = compile(&case.text());
        let expected = case.expected();
        let supplies = case.tied(&case.cuts, true);
        let mut host = Host::new(&plan, &supplies);
        let Some(first) = host.advance(case.bounds(), &mut |_| ()).unwrap() else {
            prop_assert!(expected.is_empty());
            return Ok(());
        };
        let mut found = first;
        let token = host.query.token().unwrap();
        let query = Query::resume(plan.clone(), Budgets::default(), &token).unwrap();
        let mut host = Host::with(query, &supplies);
        // Every unfinished source splits into two parts, which begin at its position.
        let halves: Vec<Supply> = supplies.iter().flat_map(|supply| {
            let half = |odd: bool| halved(supply, odd);
            [half(false), half(true)]
        }).collect();
        let needs: Vec<_> = host.query.needs().into_iter().filter(|need| need.required).collect();
        for need in needs {
            let at = need.source.0 as usize;
            let parts: Vec<SourceOptions> = (0..2).map(|half| {
                let mut options = halves[2 * at + half].options.clone();
                options.name = format!("s{at}-{half}").into_bytes();
                options.first.clone_from(&need.continuation);
                options
            }).collect();
            let ids = host.query.replace(need.source, parts).unwrap();
            for (half, id) in ids.into_iter().enumerate() {
                host.supplies.insert(id, &halves[2 * at + half]);
            }
        }
        found.extend(host.run(case.bounds(), |_| ()).unwrap());
        // Equal items of two parts are returned part by part; all other items are in the
        // same order.
        let keys = |items: &[Vec<u8>]| {
            let mut parsed: Vec<_> = items.iter().map(|item| OwnedItem::new(item).value).collect();
            parsed.sort_by(|x, y| by_keys(&case.order.1, x, y).then(x["id"].as_u64().cmp(&y["id"].as_u64())));
            parsed
        };
        prop_assert_eq!(keys(&found), keys(&expected));
        let ascends = |pair: &[Vec<u8>]| {
            by_keys(&case.order.1, &OwnedItem::new(&pair[0]).value, &OwnedItem::new(&pair[1]).value).is_le()
        };
        prop_assert!(found.windows(2).all(ascends));
    }
}

/// The items of a source with an even or odd index, on as many pages.
fn halved(supply: &Supply, odd: bool) -> Supply {
    let pages = supply.pages.iter().map(|page| {
        let text = std::str::from_utf8(page).unwrap();
        let items: Vec<&str> = text
            .lines()
            .filter(|line| {
                let item: Option<serde_json::Value> = serde_json::from_str(line).ok();
                item.is_some_and(|item| (item["id"].as_u64().unwrap() % 2 == 1) == odd)
            })
            .collect();
        items.join("\n").into_bytes()
    });
    Supply {
        options: supply.options.clone(),
        pages: pages.collect(),
    }
}

/// Returns the next pseudo-random number below `end`.
fn below(state: &mut u64, end: usize) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    usize::try_from(*state >> 33).unwrap() % end
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Pages arrive at any time, and lower bounds are set and raised between them. Items
    /// have few distinct keys, so that the second key or the source decides most
    /// comparisons.
    #[test]
    fn results_do_not_depend_on_arrival_and_lower_bounds(
        mut lists in prop::collection::vec(prop::collection::vec((0..3u8, 0..6u8), 0..10), 1..7),
        descending in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut state = seed;
        let order = if descending { "$.a desc, $.b desc" } else { "$.a, $.b" };
        let text = QueryText { order: order.into(), ..QueryText::default() };
        let mut query = Query::new(compile(&text), Budgets::default());
        let mut expected = Vec::new();
        let mut sources = Vec::new();
        for (at, list) in lists.iter_mut().enumerate() {
            list.sort_unstable();
            if descending {
                list.reverse();
            }
            expected.extend(list.iter().map(|keys| (*keys, at)));
            let options = SourceOptions { sorted: true, ..SourceOptions::default() };
            sources.push((query.add_source(options).unwrap(), 0, false));
        }
        // The sort is stable: equal items are in the order of their sources.
        expected.sort_by(|(x, _), (y, _)| if descending { y.cmp(x) } else { x.cmp(y) });
        let expected: Vec<String> = expected
            .iter()
            .map(|((a, b), at)| format!("{{\"a\":{a},\"b\":{b},\"s\":{at}}}"))
            .collect();
        let mut found = Vec::new();
        loop {
            let at = below(&mut state, sources.len());
            let (id, given, ended) = &mut sources[at];
            let rest = &lists[at][*given..];
            match below(&mut state, 5) {
                0 if !*ended => {
                    let count = below(&mut state, 4).min(rest.len());
                    let page: Vec<String> = rest[..count]
                        .iter()
                        .map(|(a, b)| format!("{{\"a\":{a},\"b\":{b},\"s\":{at}}}"))
                        .collect();
                    *given += count;
                    *ended = *given == lists[at].len();
                    let next = (!*ended).then(|| Bytes::from_static(b"more"));
                    query.enqueue(*id, Bytes::from(format!("[{}]", page.join(","))), next).unwrap();
                }
                1 | 2 if !rest.is_empty() => {
                    let (a, b) = rest[0];
                    query.watermark(*id, &[a.to_string(), b.to_string()]).unwrap();
                }
                0..3 => {}
                _ => {
                    let items_max = 1 + below(&mut state, 3);
                    match query.next(Bounds { items_max, ..Bounds::default() }).unwrap() {
                        Step::Ready(page) => found.extend(
                            page.iter().map(|item| String::from_utf8(item.to_vec()).unwrap()),
                        ),
                        Step::Need(_) => {}
                        Step::Done => break,
                    }
                }
            }
        }
        prop_assert_eq!(found, expected);
    }
}
