//! Stops and resumes every kind of plan after each page of results. The results are those
//! without a stop, and a token is unavailable only if `explain` predicted it.

use std::sync::Arc;

use proptest::prelude::*;
use weir_core::ErrorCode;
use weir_query::{Bounds, Budgets, Mode, Plan, Query, QueryError, QueryText, SourceOptions};

use crate::drive::{Host, Supply, compile};
use crate::properties::{Case, case, texts};

const AGGREGATES: &str = "count as n, sum($.id) as ids, avg($.id) as mean, min($.b) as least, \
                          max($.b) as most";

/// The results that a query constructs of the items of a case.
#[derive(Clone, Copy, Debug)]
enum ResultKind {
    Items,
    SingleValue,
    Aggregates,
    Groups,
    /// Groups by both members; one or both of them are order keys.
    PairsOfGroups,
}

fn result_kind() -> impl Strategy<Value = ResultKind> {
    use ResultKind::{Aggregates, Groups, Items, PairsOfGroups, SingleValue};
    prop::sample::select(vec![Items, SingleValue, Aggregates, Groups, PairsOfGroups])
}

fn text(case: &Case, kind: ResultKind, mode: Option<Mode>) -> QueryText {
    let mut text = QueryText {
        mode,
        ..case.text()
    };
    if mode.is_some() {
        text.order = String::new();
    }
    let (select, group) = match kind {
        ResultKind::Items => return text,
        ResultKind::SingleValue => ("max($.b)", ""),
        ResultKind::Aggregates => (AGGREGATES, ""),
        ResultKind::Groups => (AGGREGATES, "$.a"),
        ResultKind::PairsOfGroups => ("count", "$.a, $.b"),
    };
    text.select = select.into();
    text.group = group.into();
    text.distinct = false;
    text
}

/// Returns the results of a run that stops after each page, or the error of a token that is
/// not available.
fn run_with_stops(
    plan: &Arc<Plan>,
    supplies: &[Supply],
    bounds: Bounds,
) -> Result<Vec<Vec<u8>>, QueryError> {
    let mut host = Host::new(plan, supplies);
    let mut found = Vec::new();
    while let Some(items) = host.advance(bounds, &mut |_| ())? {
        found.extend(items);
        let token = host.query.token()?;
        let query = Query::resume(Arc::clone(plan), Budgets::default(), &token)?;
        host = Host::with(query, supplies);
    }
    // Also take a token at the end.
    let token = host.query.token()?;
    let query = Query::resume(Arc::clone(plan), Budgets::default(), &token)?;
    let after = Host::with(query, supplies).advance(bounds, &mut |_| ())?;
    assert!(after.is_none(), "{after:?} after the end");
    Ok(found)
}

fn check(plan: &Arc<Plan>, supplies: &[Supply], bounds: Bounds) {
    let mut whole = Host::new(plan, supplies);
    let no_token = whole.query.explain().no_token;
    let expected = whole.run(bounds, |_| ()).unwrap();
    match run_with_stops(plan, supplies, bounds) {
        Ok(found) => {
            assert_eq!(texts(&found), texts(&expected));
            assert_eq!(no_token, None);
        }
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::NoToken, "{error}");
            assert!(no_token.is_some(), "{error}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1200))]

    #[test]
    fn every_kind_of_plan_resumes_after_every_page(
        case in case(),
        kind in result_kind(),
        mode in prop::sample::select(vec![
            None, None, None, Some(Mode::Sequential), Some(Mode::RoundRobin), Some(Mode::Arrival),
        ]),
    ) {
        let plan = compile(&text(&case, kind, mode));
        let mut supplies = case.supplies();
        for supply in &mut supplies {
            supply.options.sorted &= mode.is_none();
        }
        check(&plan, &supplies, case.bounds());
    }

    #[test]
    fn every_kind_of_plan_resumes_over_unstable_sources(case in case(), kind in result_kind()) {
        let plan = compile(&text(&case, kind, None));
        check(&plan, &case.tied(&case.cuts, false), case.bounds());
    }
}

/// If a resumed run lacks a source with remaining rows, each call fails until the source is
/// added or abandoned.
#[test]
fn a_missing_source_is_required() {
    for (mode, sorted, order) in [
        (None, true, "$.n"),
        (Some(Mode::Sequential), false, ""),
        (Some(Mode::RoundRobin), false, ""),
        (Some(Mode::Sort), false, "$.n"),
    ] {
        let text = QueryText {
            order: order.into(),
            limit: Some(10),
            mode,
            ..QueryText::default()
        };
        let plan = compile(&text);
        let supply = |items: &str| Supply {
            options: SourceOptions {
                sorted,
                ..SourceOptions::default()
            },
            pages: vec![items.as_bytes().to_vec()],
        };
        let supplies = [
            supply(r#"[{"n":1},{"n":4}]"#),
            supply(r#"[{"n":2},{"n":3}]"#),
        ];
        let one = Bounds {
            items_max: 1,
            ..Bounds::default()
        };
        let mut host = Host::new(&plan, &supplies);
        host.advance(one, &mut |_| ()).unwrap();
        let token = host.query.token().unwrap();
        let resume = || Query::resume(Arc::clone(&plan), Budgets::default(), &token).unwrap();
        // First one source is missing, then both.
        let mut host = Host::with(resume(), &supplies[..1]);
        for _ in 0..2 {
            let error = host.query.next(one).unwrap_err();
            assert_eq!(error.code(), ErrorCode::SourcesOwed, "{mode:?}");
            let why = error.to_string();
            assert!(why.contains("s1") && !why.contains("s0"), "{why}");
        }
        let error = resume().next(one).unwrap_err().to_string();
        assert!(error.contains("s0, s1"), "{error}");
        // The source may still be added.
        let mut options = supplies[1].options.clone();
        options.name = b"s1".to_vec();
        let source = host.query.add_source(options).unwrap();
        host.supplies.insert(source, &supplies[1]);
        let all = host.run(one, |_| ()).unwrap();
        assert_eq!(all.len(), 3, "{mode:?}");
        // Or it may be abandoned, also for later tokens.
        let mut host = Host::with(resume(), &supplies[..1]);
        if mode == Some(Mode::Sort) {
            // A sort counts the returned items of all sources together.
            let error = host.query.abandon(b"s1").unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadOption);
            continue;
        }
        host.query.abandon(b"s1").unwrap();
        host.query.abandon(b"s1").unwrap();
        let token = host.query.token().unwrap();
        let rest = host.run(one, |_| ()).unwrap();
        let expected = [r#"{"n":4}"#];
        assert_eq!(texts(&rest), expected, "{mode:?}");
        let query = Query::resume(Arc::clone(&plan), Budgets::default(), &token).unwrap();
        let rest = Host::with(query, &supplies[..1]).run(one, |_| ()).unwrap();
        assert_eq!(texts(&rest), expected, "{mode:?}");
        // Only sources that are in the token and were not added can be abandoned.
        for name in [&b"s0"[..], b"other"] {
            let mut host = Host::with(resume(), &supplies[..1]);
            let error = host.query.abandon(name).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadOption);
        }
        let new_query = Query::new(Arc::clone(&plan), Budgets::default()).abandon(b"s1");
        assert_eq!(new_query.unwrap_err().code(), ErrorCode::BadOption);
    }
}

/// An item that cannot be added completes a group: the group is returned once, then every
/// call fails.
#[test]
fn an_error_after_a_page_leaves_a_token_of_the_page() {
    let text = QueryText {
        order: "$.k".into(),
        group: "$.k".into(),
        select: "count as n, min($.v) as least, sum($.v) as v".into(),
        ..QueryText::default()
    };
    let plan = compile(&text);
    let mut supply = Supply {
        options: SourceOptions {
            sorted: true,
            ..SourceOptions::default()
        },
        pages: vec![br#"[{"k":1,"v":2},{"k":2,"v":1e9999},{"k":2,"v":3}]"#.to_vec()],
    };
    let mut host = Host::new(&plan, std::slice::from_ref(&supply));
    let first = host
        .advance(Bounds::default(), &mut |_| ())
        .unwrap()
        .unwrap();
    assert_eq!(texts(&first), [r#"{"k":1,"n":1,"least":2,"v":2}"#]);
    let token = host.query.token().unwrap();
    let resume = |supply: &Supply| {
        let query = Query::resume(Arc::clone(&plan), Budgets::default(), &token).unwrap();
        Host::with(query, std::slice::from_ref(supply)).run(Bounds::default(), |_| ())
    };
    assert_eq!(resume(&supply).unwrap_err().code(), ErrorCode::NumberRange);
    // No part of the rejected item was stored.
    supply.pages = vec![br#"[{"k":1,"v":2},{"k":2,"v":4},{"k":2,"v":3}]"#.to_vec()];
    let rest = resume(&supply).unwrap();
    assert_eq!(texts(&rest), [r#"{"k":2,"n":2,"least":3,"v":7}"#]);
}
