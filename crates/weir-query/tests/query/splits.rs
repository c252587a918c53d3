//! Splits sources and takes tokens at any time, and compares the results of a random caller
//! with the plain order of all items.

use bytes::Bytes;
use proptest::prelude::*;
use weir_core::ErrorCode;
use weir_query::{Bounds, Budgets, Mode, Need, Query, QueryText, SourceId, SourceOptions, Step};

use crate::drive::compile;

/// A key, and a number that distinguishes items.
type Item = (u8, u32);

/// The state of a source at the caller.
struct Range {
    name: String,
    pages: Vec<Vec<Item>>,
    /// The source was split: items after its pages are in its parts, and cannot be
    /// requested from it.
    split: bool,
    parts: Vec<usize>,
    /// Whether only a count determines which equal items of this part and its sibling parts
    /// were returned.
    counted: bool,
    id: Option<SourceId>,
}

#[allow(clippy::struct_excessive_bools, reason = "independent variations")]
struct RandomCaller {
    mode: Mode,
    stable: bool,
    tie: bool,
    filter: bool,
    ranges: Vec<Range>,
    /// Number of sources that are not a part of another source.
    whole: usize,
    query: Query,
    found: Vec<Item>,
    /// Whether parts contain items that the whole source had already returned.
    clipped: bool,
    state: u64,
}

/// Returns whether an item passes the filter, if there is one.
fn passes_filter(item: Item) -> bool {
    !item.1.is_multiple_of(4)
}

impl RandomCaller {
    fn below(&mut self, end: usize) -> usize {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.state >> 33).unwrap() % end
    }

    fn options(&self, name: &str) -> SourceOptions {
        SourceOptions {
            name: name.as_bytes().to_vec(),
            sorted: self.mode == Mode::Merge,
            stable: self.stable,
            tie: if self.tie { "$.id" } else { "" }.into(),
            ..SourceOptions::default()
        }
    }

    fn range(&self, id: SourceId) -> usize {
        self.ranges
            .iter()
            .position(|range| range.id == Some(id))
            .unwrap()
    }

    fn serve(&mut self, need: &Need) {
        let range = &self.ranges[self.range(need.source)];
        let at = page_number(need);
        let Some(page) = range.pages.get(at) else {
            assert!(
                !range.split,
                "{} is asked for items of its parts",
                range.name
            );
            return self.query.finish(need.source).unwrap();
        };
        let items: Vec<String> = page
            .iter()
            .map(|(k, id)| {
                format!(
                    "{{\"k\":{k},\"id\":{id},\"on\":{}}}",
                    passes_filter((*k, *id))
                )
            })
            .collect();
        let more = at + 1 < range.pages.len() || range.split;
        let next = more.then(|| Bytes::from((at + 1).to_string()));
        self.query
            .enqueue(
                need.source,
                Bytes::from(format!("[{}]", items.join(","))),
                next,
            )
            .unwrap();
    }

    fn split(&mut self, need: &Need) {
        let at = self.range(need.source);
        let from = page_number(need).min(self.ranges[at].pages.len());
        // Often the source only moves.
        let count = [1, 1, 2, 3][self.below(4)];
        let names: Vec<String> = (0..count)
            .map(|part| format!("{}.{part}", self.ranges[at].name))
            .collect();
        let parts = names.iter().map(|name| self.options(name)).collect();
        let ids = match self.query.replace(need.source, parts) {
            Ok(ids) => ids,
            Err(error) => {
                // The source is within a page without keys, or was already split and
                // resumed.
                assert_eq!(error.code(), ErrorCode::BadOption);
                return;
            }
        };
        let moved = self.ranges[at].pages.split_off(from);
        let clipped = moved.iter().flatten().any(|item| self.found.contains(item));
        self.clipped |= clipped;
        // It is unknown which of the equal items of several parts was returned.
        let counted = !self.tie || self.mode == Mode::Sort;
        let counted = self.ranges[at].counted || (clipped && counted && count > 1);
        self.ranges[at].split = true;
        for (part, (name, id)) in names.into_iter().zip(ids).enumerate() {
            let mine = |item: &&Item| item.1 as usize % count == part;
            let pages = moved
                .iter()
                .map(|page| page.iter().filter(mine).copied().collect());
            let pages = pages.collect();
            let new = self.ranges.len();
            self.ranges[at].parts.push(new);
            self.ranges.push(Range {
                name,
                pages,
                split: false,
                parts: Vec::new(),
                counted,
                id: Some(id),
            });
        }
    }

    /// Stops and resumes, with the sources added in a random order.
    fn resume(&mut self) {
        let token = match self.query.token() {
            Ok(token) => token,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::NoToken);
                assert!(!self.stable, "{error}");
                return;
            }
        };
        let plan = self.query.plan().clone();
        self.query = Query::resume(plan, Budgets::default(), &token).unwrap();
        let mut order: Vec<usize> = (0..self.ranges.len()).collect();
        for at in (1..order.len()).rev() {
            let other = self.below(at + 1);
            order.swap(at, other);
        }
        for at in order {
            self.ranges[at].id = None;
            // A source whose items were all returned need not be added again, if it is
            // abandoned. But if items are only counted, the query may have excluded an equal
            // item of another part instead of a returned item of this source. The query then
            // still has to return the item of this source, which must not be abandoned.
            let (range, found) = (&self.ranges[at], &self.found);
            let given = |item: &Item| {
                let returned = found.contains(item) && !range.counted;
                returned || (self.filter && !passes_filter(*item))
            };
            let all = range.pages.iter().flatten().all(given);
            let over = all && range.split && self.mode != Mode::Sort;
            if over && self.below(2) == 0 {
                let name = self.ranges[at].name.clone();
                self.query.abandon(name.as_bytes()).unwrap();
                continue;
            }
            let options = self.options(&self.ranges[at].name);
            self.ranges[at].id = Some(self.query.add_source(options).unwrap());
        }
    }

    /// Returns `false` at the end.
    fn next(&mut self) -> bool {
        let items_max = 1 + self.below(3);
        match self
            .query
            .next(Bounds {
                items_max,
                ..Bounds::default()
            })
            .unwrap()
        {
            Step::Done => return false,
            Step::Ready(page) => {
                for item in page.iter() {
                    let item: serde_json::Value = serde_json::from_slice(item).unwrap();
                    let number = |name: &str| item[name].as_u64().unwrap();
                    let (k, id) = (number("k"), number("id"));
                    self.found
                        .push((k.try_into().unwrap(), id.try_into().unwrap()));
                }
            }
            Step::Need(needs) => {
                let need = &needs[self.below(needs.len())];
                self.serve(need);
            }
        }
        true
    }

    fn run(&mut self) {
        for round in 0.. {
            assert!(round < 5000, "the query does not end");
            match self.below(10) {
                // A sort begins again after each stop, so endless stops would make no
                // progress.
                0 if round < 500 => self.resume(),
                kind @ 1..4 => {
                    let needs = self.query.needs();
                    if !needs.is_empty() {
                        let need = &needs[self.below(needs.len())];
                        if kind == 1 && self.ranges.len() < 9 {
                            self.split(need);
                        } else {
                            self.serve(need);
                        }
                    }
                }
                _ => {
                    if !self.next() {
                        return;
                    }
                }
            }
        }
    }

    /// All items, those of each source before those of its parts.
    fn all(&self) -> Vec<Item> {
        fn visit(caller: &RandomCaller, at: usize, out: &mut Vec<Item>) {
            out.extend(caller.ranges[at].pages.iter().flatten());
            for part in &caller.ranges[at].parts {
                visit(caller, *part, out);
            }
        }
        let mut out = Vec::new();
        for at in 0..self.whole {
            visit(self, at, &mut out);
        }
        out.retain(|item| !self.filter || passes_filter(*item));
        out
    }
}

/// Returns the number of the requested page.
fn page_number(need: &Need) -> usize {
    let text = need.continuation.as_deref().unwrap_or(b"0");
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn results_do_not_depend_on_splits_and_tokens(
        lists in prop::collection::vec(prop::collection::vec((0..4u8, 1..4usize), 0..10), 1..4),
        mode in prop::sample::select(vec![
            Mode::Merge, Mode::Merge, Mode::Merge, Mode::Sort, Mode::Sequential, Mode::RoundRobin,
        ]),
        keys in 1..4u8,
        stable in any::<bool>(),
        tie in any::<bool>(),
        filter in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let stable = stable || mode != Mode::Merge;
        let tie = tie || !stable;
        let ordered = matches!(mode, Mode::Merge | Mode::Sort);
        let text = QueryText {
            mode: Some(mode),
            order: if ordered { "$.k" } else { "" }.into(),
            filter: if filter { "@.on == true" } else { "" }.into(),
            limit: (mode == Mode::Sort).then_some(1000),
            ..QueryText::default()
        };
        let query = Query::new(compile(&text), Budgets::default());
        let whole = lists.len();
        let mut caller = RandomCaller {
            mode, stable, tie, filter, ranges: Vec::new(), whole, query, found: Vec::new(),
            clipped: false, state: seed,
        };
        let mut id = 0;
        for (at, mut list) in lists.into_iter().enumerate() {
            for (k, _) in &mut list {
                *k %= keys;
            }
            list.sort_by_key(|(k, _)| *k);
            let mut pages: Vec<Vec<Item>> = Vec::new();
            for (k, size) in list {
                id += 1;
                match pages.last_mut() {
                    Some(page) if page.len() < size => page.push((k, id)),
                    _ => pages.push(vec![(k, id)]),
                }
            }
            let name = format!("s{at}");
            let source = caller.query.add_source(caller.options(&name)).unwrap();
            caller.ranges.push(Range {
                name, pages, split: false, parts: Vec::new(), counted: false, id: Some(source),
            });
        }
        caller.run();
        let (mut found, mut expected) = (caller.found.clone(), caller.all());
        if ordered {
            prop_assert!(found.is_sorted_by_key(|(k, _)| *k), "{:?}", found);
            expected.sort_by_key(|(k, _)| *k);
        }
        if caller.ranges.iter().any(|range| range.counted) {
            for item in found.iter_mut().chain(&mut expected) {
                item.1 = 0;
            }
        }
        if caller.clipped || mode == Mode::RoundRobin {
            found.sort_unstable();
            expected.sort_unstable();
        }
        prop_assert_eq!(found, expected);
    }
}
