//! Compares groups and aggregates with plain arithmetic, also when stopped and resumed.
//! Also checks that random texts and damaged pages have no effect.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use weir_query::{BadItem, Budgets, Level, Query, QueryText, Shape, SourceOptions, Step};

use crate::drive::{Host, compile};
use crate::oracle::{compare, member};
use crate::properties::{Case, case, texts};

/// Converts all numbers of a value to one notation.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            // Converts -0 to 0.
            json!(number.as_f64().unwrap() + 0.0)
        }
        other => other.clone(),
    }
}

/// A group: its key, and its items.
type Group<'a> = (Option<Value>, Vec<&'a Value>);

fn groups<'a>(items: &[&'a Value]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for item in items {
        let key = member(item, "a").map(plain);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, items)) => items.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// Smallest or largest of the defined values.
fn extreme(items: &[&Value], largest: bool) -> Option<Value> {
    let values = items.iter().filter_map(|item| member(item, "b"));
    let order = |x: &&Value, y: &&Value| compare(Some(x), Some(y));
    let found = if largest {
        values.max_by(order)
    } else {
        values.min_by(order)
    };
    found.map(plain)
}

fn expected(case: &Case, grouped: bool) -> Vec<Value> {
    let known = case.merged();
    let items: Vec<&Value> = known.iter().map(|known| &known.value).collect();
    let groups = if grouped {
        groups(&items)
    } else {
        vec![(None, items)]
    };
    let result = |(key, items): &Group<'_>| {
        let mut object = Map::new();
        object.extend(key.clone().map(|key| ("a".to_owned(), key)));
        let ids: u64 = items.iter().map(|item| item["id"].as_u64().unwrap()).sum();
        let present = items.iter().filter(|item| member(item, "b").is_some());
        object.insert("n".into(), plain(&json!(items.len())));
        object.insert("present".into(), plain(&json!(present.count())));
        object.insert("ids".into(), plain(&json!(ids)));
        object.extend(extreme(items, false).map(|value| ("least".to_owned(), value)));
        object.extend(extreme(items, true).map(|value| ("most".to_owned(), value)));
        Value::Object(object)
    };
    let limit = case
        .limit
        .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap());
    let offset = usize::try_from(case.offset).unwrap();
    groups.iter().map(result).skip(offset).take(limit).collect()
}

fn text(case: &Case, grouped: bool) -> QueryText {
    QueryText {
        select: "count as n, count($.b) as present, sum($.id) as ids, min($.b) as least, \
                 max($.b) as most"
            .into(),
        group: if grouped { "$.a".into() } else { String::new() },
        distinct: false,
        ..case.text()
    }
}

fn parsed(items: &[Vec<u8>]) -> Vec<Value> {
    let parse = |item: &Vec<u8>| {
        let value: Value = serde_json::from_slice(item).unwrap();
        let members = value.as_object().unwrap().iter();
        let object: Map<String, Value> = members.map(|(k, v)| (k.clone(), plain(v))).collect();
        Value::Object(object)
    };
    items.iter().map(parse).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn groups_and_aggregates_equal_the_oracle(case in case(), grouped in any::<bool>()) {
        let plan = compile(&text(&case, grouped));
        let supplies = case.supplies();
        let found = Host::new(&plan, &supplies).run(case.bounds(), |_| ()).unwrap();
        prop_assert_eq!(parsed(&found), expected(&case, grouped));
    }

    #[test]
    fn an_incomplete_group_is_resumed(case in case(), grouped in any::<bool>(), turns in 0..40usize) {
        let plan = compile(&text(&case, grouped));
        let supplies = case.supplies();
        let mut host = Host::new(&plan, &supplies);
        let mut found = Vec::new();
        // Stop and resume after each of the first `turns` steps, also after requests for
        // pages.
        for turn in 0.. {
            match host.query.next(case.bounds()).unwrap() {
                Step::Ready(page) => found.extend(page.iter().map(<[u8]>::to_vec)),
                Step::Need(needs) => {
                    for need in needs {
                        host.serve(&need).unwrap();
                    }
                }
                Step::Done => break,
            }
            if turn < turns && let Ok(token) = host.query.token() {
                let query = Query::resume(plan.clone(), Budgets::default(), &token).unwrap();
                host = Host::with(query, &supplies);
                // The requested pages are requested again.
                let needs = host.query.needs();
                for need in needs.iter().filter(|need| need.required) {
                    host.serve(need).unwrap();
                }
            }
            prop_assert!(turn < 400, "the query does not end");
        }
        prop_assert_eq!(parsed(&found), expected(&case, grouped));
    }

    #[test]
    fn any_text_compiles_or_is_an_error(text in "[$@.a-c\\[\\]'\"0-9=<>!&|(), *?:\\\\]{0,40}", which in 0..4usize) {
        let mut fields = [String::new(), String::new(), String::new(), String::new()];
        fields[which].clone_from(&text);
        let [filter, order, select, group] = fields;
        let query = QueryText { filter, order, select, group, ..QueryText::default() };
        if let Err(error) = query.compile() {
            let place = error.location();
            prop_assert!(place.offset.is_none_or(|at| at <= text.len() as u64));
        }
    }

    #[test]
    fn a_damaged_page_has_no_effect(
        case in case(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<bool>(),
        strict in any::<bool>(),
        bad in 0..3usize,
    ) {
        let bad = [BadItem::Error, BadItem::Skip, BadItem::Undefined][bad];
        let plan = compile(&QueryText { on_bad_item: bad, ..case.text() });
        let supplies = case.supplies();
        let mut query = Query::new(plan.clone(), Budgets::default());
        let level = Some(if strict { Level::Strict } else { Level::Structural });
        for supply in &supplies {
            let options = SourceOptions { level, ..supply.options.clone() };
            let source = query.add_source(options).unwrap();
            for (at, page) in supply.pages.iter().enumerate() {
                let next = (at + 1 < supply.pages.len()).then(Bytes::new);
                let mut broken = page.clone();
                for (place, byte) in &damage {
                    if !broken.is_empty() {
                        let place = place.index(broken.len());
                        if cut { broken.truncate(place) } else { broken[place] = *byte }
                    }
                }
                // Rejected, unless the damaged bytes are another valid page.
                let tried = Query::new(plan.clone(), Budgets::default());
                let rejected = try_page(tried, &supply.options, level, &broken);
                if rejected {
                    let error = query.enqueue(source, Bytes::from(broken.clone()), None).unwrap_err();
                    prop_assert!(error.location().offset.is_none_or(|at| at <= broken.len() as u64));
                    prop_assert_eq!(error.location().page, Some(at as u64));
                }
                query.enqueue(source, Bytes::from(page.clone()), next).unwrap();
            }
        }
        let mut found = Vec::new();
        while let Step::Ready(page) = query.next(case.bounds()).unwrap() {
            found.extend(page.iter().map(<[u8]>::to_vec));
        }
        prop_assert_eq!(texts(&found), texts(&case.expected()));
    }
}

/// Returns whether a source refuses the page. If not, the items must still be spans of the
/// page.
fn try_page(mut query: Query, options: &SourceOptions, level: Option<Level>, page: &[u8]) -> bool {
    let unsorted = SourceOptions {
        level,
        sorted: false,
        ..options.clone()
    };
    let shape = unsorted.shape.clone();
    let source = query.add_source(unsorted).unwrap();
    if query
        .enqueue(source, Bytes::from(page.to_vec()), None)
        .is_err()
    {
        return true;
    }
    // Without frames, an item is never empty.
    if let Ok(Step::Ready(results)) = query.next(weir_query::Bounds::default()) {
        assert!(shape == Shape::Single || results.iter().all(|item| !item.is_empty()));
    }
    false
}
