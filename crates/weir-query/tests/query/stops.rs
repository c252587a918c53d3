//! Every kind of plan, stopped after each page of results and gone on: what comes is what comes
//! without a stop, and a token is refused only where `explain` said so before.

use std::sync::Arc;

use proptest::prelude::*;
use weir_core::ErrorCode;
use weir_query::{Bounds, Budgets, Mode, Plan, Query, QueryError, QueryText};

use crate::drive::{Host, Supply, compile};
use crate::properties::{Case, case, texts};

const AGGREGATES: &str = "count as n, sum($.id) as ids, avg($.id) as mean, min($.b) as least, \
                          max($.b) as most";

/// What a query makes of the items of a case.
#[derive(Clone, Copy, Debug)]
enum Makes {
    Items,
    Bare,
    Aggregates,
    Groups,
    /// Groups by both members: one or both of the order keys.
    PairsOfGroups,
}

fn makes() -> impl Strategy<Value = Makes> {
    use Makes::{Aggregates, Bare, Groups, Items, PairsOfGroups};
    prop::sample::select(vec![Items, Bare, Aggregates, Groups, PairsOfGroups])
}

fn text(case: &Case, makes: Makes, mode: Option<Mode>) -> QueryText {
    let mut text = QueryText {
        mode,
        ..case.text()
    };
    if mode.is_some() {
        text.order = String::new();
    }
    let (select, group) = match makes {
        Makes::Items => return text,
        Makes::Bare => ("max($.b)", ""),
        Makes::Aggregates => (AGGREGATES, ""),
        Makes::Groups => (AGGREGATES, "$.a"),
        Makes::PairsOfGroups => ("count", "$.a, $.b"),
    };
    text.select = select.into();
    text.group = group.into();
    text.distinct = false;
    text
}

/// The results of a run that stops after each page, and whether tokens were there.
fn stopped(
    plan: &Arc<Plan>,
    supplies: &[Supply],
    bounds: Bounds,
) -> Result<Vec<Vec<u8>>, QueryError> {
    let mut host = Host::new(plan, supplies);
    let mut found = Vec::new();
    while let Some(items) = host.turn(bounds, &mut |_| ())? {
        found.extend(items);
        let token = host.query.token()?;
        let query = Query::resume(Arc::clone(plan), Budgets::default(), &token)?;
        host = Host::with(query, supplies);
    }
    // And at the end.
    let token = host.query.token()?;
    let query = Query::resume(Arc::clone(plan), Budgets::default(), &token)?;
    let after = Host::with(query, supplies).turn(bounds, &mut |_| ())?;
    assert!(after.is_none(), "{after:?} after the end");
    Ok(found)
}

fn check(plan: &Arc<Plan>, supplies: &[Supply], bounds: Bounds) {
    let mut whole = Host::new(plan, supplies);
    let refused = whole.query.explain().no_token;
    let expected = whole.run(bounds, |_| ()).unwrap();
    match stopped(plan, supplies, bounds) {
        Ok(found) => {
            assert_eq!(texts(&found), texts(&expected));
            assert_eq!(refused, None);
        }
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::NoToken, "{error}");
            assert!(refused.is_some(), "{error}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1200))]

    #[test]
    fn every_kind_of_plan_goes_on_after_every_page(
        case in case(),
        makes in makes(),
        mode in prop::sample::select(vec![
            None, None, None, Some(Mode::Sequential), Some(Mode::RoundRobin), Some(Mode::Arrival),
        ]),
    ) {
        let plan = compile(&text(&case, makes, mode));
        let mut supplies = case.supplies();
        for supply in &mut supplies {
            supply.options.sorted &= mode.is_none();
        }
        check(&plan, &supplies, case.bounds());
    }

    #[test]
    fn and_so_it_does_over_sources_that_are_not_stable(case in case(), makes in makes()) {
        let plan = compile(&text(&case, makes, None));
        check(&plan, &case.tied(&case.cuts, false), case.bounds());
    }
}

/// A group is complete by an item that cannot be taken: the group comes once, then the error, each
/// time.
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
        options: weir_query::SourceOptions {
            sorted: true,
            ..weir_query::SourceOptions::default()
        },
        pages: vec![br#"[{"k":1,"v":2},{"k":2,"v":1e9999},{"k":2,"v":3}]"#.to_vec()],
    };
    let mut host = Host::new(&plan, std::slice::from_ref(&supply));
    let first = host.turn(Bounds::default(), &mut |_| ()).unwrap().unwrap();
    assert_eq!(texts(&first), [r#"{"k":1,"n":1,"least":2,"v":2}"#]);
    let token = host.query.token().unwrap();
    let resume = |supply: &Supply| {
        let query = Query::resume(Arc::clone(&plan), Budgets::default(), &token).unwrap();
        Host::with(query, std::slice::from_ref(supply)).run(Bounds::default(), |_| ())
    };
    assert_eq!(resume(&supply).unwrap_err().code(), ErrorCode::NumberRange);
    // Nothing of the item was kept.
    supply.pages = vec![br#"[{"k":1,"v":2},{"k":2,"v":4},{"k":2,"v":3}]"#.to_vec()];
    let rest = resume(&supply).unwrap();
    assert_eq!(texts(&rest), [r#"{"k":2,"n":2,"least":3,"v":7}"#]);
}
