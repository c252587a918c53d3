//! Queries over topics: near and far, with and without the server's part, give
//! the same results, faults and tokens.

use std::time::{Duration, Instant};

use weir::query::{Bounds, QueryText};
use weir::{
    ErrorCode, RecordKind, TopicEnd, TopicOptions, TopicQuery, TopicQueryOptions, TopicStep,
    TopicView, Weir, WeirError,
};

use crate::world::World;

fn far_off() -> Option<Instant> {
    Instant::now().checked_add(Duration::from_secs(20))
}

/// The next results, with their topics.
fn some(query: &mut TopicQuery, items_max: usize) -> Vec<String> {
    let bounds = Bounds {
        items_max,
        ..Bounds::default()
    };
    let mut found = Vec::new();
    while found.len() < items_max {
        match query.next(bounds, far_off()).unwrap() {
            TopicStep::Page(page) => {
                for (item, bytes) in page.items().iter().zip(page.iter()) {
                    let topic = query.topic(item.source).unwrap_or("-");
                    found.push(format!("{topic} {}", String::from_utf8_lossy(bytes)));
                }
            }
            TopicStep::Done => break,
            TopicStep::Idle => panic!("nothing came in time: {found:?}"),
        }
    }
    found
}

fn rows(weir: &Weir, options: &TopicQueryOptions) -> Vec<String> {
    some(&mut weir.query(options.clone()).unwrap(), usize::MAX)
}

fn orders(world: &World) -> [Weir; 2] {
    let near = world.near();
    for name in ["o.a", "o.b", "x"] {
        near.topic(name).unwrap().ensure().unwrap();
    }
    for n in 0..40 {
        let topic = near.topic(["o.a", "o.b", "x"][n % 3]).unwrap();
        let value = format!(r#"{{"n":{},"s":"{}"}}"#, n * 7 % 40, n % 4);
        topic.put(format!("k{}", n % 10), value).unwrap();
    }
    [near, world.connect()]
}

fn text(filter: &str, order: &str, select: &str) -> QueryText {
    QueryText {
        filter: filter.into(),
        order: order.into(),
        select: select.into(),
        ..QueryText::default()
    }
}

#[test]
fn records_of_topics_come_in_the_order_in_which_they_were_decided() {
    let world = World::new();
    for weir in orders(&world) {
        let all = TopicQueryOptions::new(["o.*"]);
        let found = rows(&weir, &all);
        assert_eq!(found.len(), 27);
        assert_eq!(
            found[..3],
            [
                r#"o.a {"n":0,"s":"0"}"#,
                r#"o.b {"n":7,"s":"1"}"#,
                r#"o.a {"n":21,"s":"3"}"#
            ]
        );
        let some = all.clone().text(text("@.s == '1'", "$.n desc", "$.n"));
        assert_eq!(rows(&weir, &some)[..2], ["o.a 31", "o.a 27"]);
        let sum = all.clone().text(text("", "", "count, max($.n)"));
        assert_eq!(rows(&weir, &sum), [r#"- {"count":27,"max($.n)":38}"#]);
        let mut latest = all.clone().text(text("meta('key') <= 'k1'", "", ""));
        latest.view = TopicView::Latest;
        let found = rows(&weir, &latest);
        assert_eq!(
            found,
            [
                r#"o.a {"n":10,"s":"2"}"#,
                r#"o.b {"n":30,"s":"2"}"#,
                r#"o.a {"n":27,"s":"1"}"#,
                r#"o.b {"n":17,"s":"3"}"#,
            ]
        );
        let mut made = TopicQueryOptions::new(["x"]).text(text("", "", ""));
        made.kinds = vec![RecordKind::Create, RecordKind::Put];
        made.text = text("meta('type') == 'CREATE' || @.n == 14", "meta.offset", "");
        assert_eq!(rows(&weir, &made), ["x ", r#"x {"n":14,"s":"2"}"#]);
    }
}

#[test]
fn a_query_sees_one_cut_and_goes_on_elsewhere() {
    let world = World::new();
    let [near, far] = orders(&world);
    let options = TopicQueryOptions::new(["o.*", "x"]).text(text("@.n != 3", "", "$.n"));
    let expected = rows(&near, &options);
    let mut query = near.query(options.clone()).unwrap();
    let mut found = Vec::new();
    let mut next = &far;
    loop {
        let more = some(&mut query, 3);
        if more.is_empty() {
            break;
        }
        found.extend(more);
        // Later records are not part of it.
        near.topic("o.b").unwrap().append(r#"{"n":99}"#).unwrap();
        let mut rest = options.clone();
        rest.token = Some(query.token().unwrap());
        query = next.query(rest).unwrap();
        next = if std::ptr::eq(next, &raw const far) {
            &near
        } else {
            &far
        };
    }
    assert_eq!(found, expected);
    let mut other = TopicQueryOptions::new(["o.*"]).text(text("@.n != 3", "", "$.n"));
    other.token = Some(query.token().unwrap());
    let error = near.query(other).unwrap_err();
    let WeirError::Query(error) = error else {
        panic!("{error:?}")
    };
    assert_eq!(error.code(), ErrorCode::TokenMismatch);
}

#[test]
fn what_is_followed_stays_in_order_when_topics_come() {
    let world = World::new();
    for weir in orders(&world) {
        let near = world.near();
        let mut options = TopicQueryOptions::new(["o.*", "later.**"]);
        options.end = TopicEnd::Follow;
        options.text = text("", "", "$.n");
        let mut query = weir.query(options).unwrap();
        let before = rows(&near, &TopicQueryOptions::new(["o.*", "later.**"])).len();
        assert_eq!(some(&mut query, before).len(), before);
        let now = Some(Instant::now());
        assert!(matches!(
            query.next(Bounds::default(), now),
            Ok(TopicStep::Idle)
        ));
        let mut expected = Vec::new();
        for round in 0..30 {
            let name = match round % 3 {
                0 => "o.a".to_owned(),
                1 => "o.b".to_owned(),
                _ => format!("later.{}{round}", weir.local().is_some()),
            };
            let topic = near.topic(&name).unwrap();
            topic.ensure().unwrap();
            topic.append(format!(r#"{{"n":{}}}"#, 100 + round)).unwrap();
            expected.push(format!("{name} {}", 100 + round));
            if round % 7 == 6 {
                assert_eq!(some(&mut query, expected.len()), expected);
                expected.clear();
            }
        }
        assert_eq!(some(&mut query, expected.len()), expected);
        query.canceller().cancel();
        assert!(query.next(Bounds::default(), None).is_err());
    }
}

#[test]
fn a_fault_names_the_record_and_what_stood_before_it_comes() {
    let world = World::new();
    let [near, far] = orders(&world);
    let topic = near.topic("o.a").unwrap();
    let at = topic.append(r#"{"n":1,"s":"x"#).unwrap().offset().unwrap();
    topic.append(r#"{"n":5}"#).unwrap();
    let options = TopicQueryOptions::new(["o.a"]).text(text("@.n > 20", "", "$.n"));
    let mut said = Vec::new();
    for (weir, push_down) in [(&near, true), (&far, false), (&far, true)] {
        let mut options = options.clone();
        options.push_down = push_down;
        let mut query = weir.query(options).unwrap();
        let mut found = Vec::new();
        let error = loop {
            match query.next(Bounds::default(), far_off()) {
                Ok(TopicStep::Page(page)) => found.extend(page.iter().map(<[u8]>::to_vec)),
                Ok(step) => panic!("{step:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(found.len(), 7);
        assert_eq!(
            query.next(Bounds::default(), None).unwrap_err().to_string(),
            error.to_string()
        );
        said.push(error.to_string());
    }
    let place = format!("at byte 11 of record {} of topic o.a", at.0);
    assert!(said[0].ends_with(&place), "{}", said[0]);
    assert!(said.iter().all(|one| *one == said[0]), "{said:?}");
}

#[test]
fn queries_that_cannot_be_are_refused() {
    let world = World::new();
    let [near, far] = orders(&world);
    for weir in [near, far] {
        let refuse = |change: &dyn Fn(&mut TopicQueryOptions)| {
            let mut options = TopicQueryOptions::new(["o.*"]);
            change(&mut options);
            weir.query(options).unwrap_err().to_string()
        };
        assert!(refuse(&|o| o.text.order = "meta.nothing".into()).contains("no property"));
        assert!(refuse(&|o| o.from.push("gone".into())).contains("gone"));
        assert!(refuse(&|o| o.token = Some(vec![1, 2, 3])).contains("too short"));
        assert!(
            refuse(&|o| {
                o.end = TopicEnd::Follow;
                o.text.order = "$.n".into();
            })
            .contains("meta.intention")
        );
        assert!(
            refuse(&|o| {
                o.end = TopicEnd::AsOf(weir::IntentionOffset(1 << 40));
                o.patience = Duration::from_millis(1);
            })
            .contains("has not got")
        );
        let mut options = TopicOptions::default();
        options.keys_max = Some(1);
        weir.topic("empty.one").unwrap().create(&options).unwrap();
        assert!(rows(&weir, &TopicQueryOptions::new(["empty.*"])).is_empty());
        assert!(rows(&weir, &TopicQueryOptions::new(["none.*"])).is_empty());
    }
}
