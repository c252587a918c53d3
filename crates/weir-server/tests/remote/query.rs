//! Queries over topics: local and remote stores, with and without pushdown, return equal results,
//! errors and tokens.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use weir::query::{BadItem, Bounds, Budgets, Complex, Level, Missing, Mode, QueryText};
use weir::{
    ClientId, ErrorCode, RecordKind, TopicEnd, TopicOptions, TopicQuery, TopicQueryOptions,
    TopicStep, TopicView, Weir, WeirError,
};

use crate::world::{CLIENT, World, put};

fn distant_deadline() -> Option<Instant> {
    Instant::now().checked_add(Duration::from_secs(20))
}

/// Returns the next results, with their topics.
pub(crate) fn next_rows(query: &mut TopicQuery, items_max: usize) -> Vec<String> {
    let bounds = Bounds {
        items_max,
        ..Bounds::default()
    };
    let mut found = Vec::new();
    while found.len() < items_max {
        match query.next(bounds, distant_deadline()).unwrap() {
            TopicStep::Page(page) => {
                for (item, bytes) in page.items().iter().zip(page.iter()) {
                    let topic = query.topic(item.source).unwrap_or("-");
                    found.push(format!("{topic} {}", String::from_utf8_lossy(bytes)));
                }
            }
            TopicStep::Done => break,
            TopicStep::Idle => panic!("no result arrived in time: {found:?}"),
        }
    }
    found
}

pub(crate) fn rows(weir: &Weir, options: &TopicQueryOptions) -> Vec<String> {
    next_rows(&mut weir.query(options.clone()).unwrap(), usize::MAX)
}

fn create_orders(world: &World) -> [Weir; 2] {
    let local = world.local();
    for name in ["o.a", "o.b", "x"] {
        local.topic(name).unwrap().ensure().unwrap();
    }
    for n in 0..40 {
        let topic = local.topic(["o.a", "o.b", "x"][n % 3]).unwrap();
        let value = format!(r#"{{"n":{},"s":"{}"}}"#, n * 7 % 40, n % 4);
        topic
            .put(format!("k{}", n % 10), value)
            .unwrap()
            .ensure_valid()
            .unwrap();
    }
    [local, world.connect()]
}

pub(crate) fn query_text(filter: &str, order: &str, select: &str) -> QueryText {
    QueryText {
        filter: filter.into(),
        order: order.into(),
        select: select.into(),
        ..QueryText::default()
    }
}

#[test]
fn records_of_several_topics_are_in_the_order_of_their_intentions() {
    let world = World::new();
    for weir in create_orders(&world) {
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
        let some = all
            .clone()
            .text(query_text("@.s == '1'", "$.n desc", "$.n"));
        assert_eq!(rows(&weir, &some)[..2], ["o.a 31", "o.a 27"]);
        let sum = all.clone().text(query_text("", "", "count, max($.n)"));
        assert_eq!(rows(&weir, &sum), [r#"- {"count":27,"max($.n)":38}"#]);
        let mut latest = all.clone().text(query_text("meta('key') <= 'k1'", "", ""));
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
        let mut with_creation = TopicQueryOptions::new(["x"]).text(query_text("", "", ""));
        with_creation.kinds = vec![RecordKind::Create, RecordKind::Put];
        with_creation.text = query_text("meta('type') == 'CREATE' || @.n == 14", "meta.offset", "");
        assert_eq!(rows(&weir, &with_creation), ["x ", r#"x {"n":14,"s":"2"}"#]);
    }
}

#[test]
fn the_latest_values_include_every_key_once() {
    let world = World::new();
    for (weir, is_local) in create_orders(&world).into_iter().zip([true, false]) {
        let local = world.local();
        let mut options = TopicQueryOptions::new(["wide"]).text(query_text("", "", "$.n"));
        options.view = TopicView::Latest;
        let topic = local.topic("wide").unwrap();
        topic.ensure().unwrap();
        let put = |key: usize, n: usize| {
            let value = format!(r#"{{"n":{n},"pad":"{}"}}"#, "x".repeat(8000));
            topic
                .put(format!("k{key:04}"), value)
                .unwrap()
                .ensure_valid()
                .unwrap();
        };
        (0..900).for_each(|key| put(key, 0));
        let mut query = weir.query(options.clone()).unwrap();
        // One write before the first read, and one between two pages.
        put(1, 1);
        let mut found = next_rows(&mut query, 10);
        put(899, 2);
        found.extend(next_rows(&mut query, usize::MAX));
        assert_eq!(found.len(), 900);
        assert_eq!(found[899], "wide 2");
        // A server may have sent the record before the write.
        assert!(!is_local || found[1] == "wide 1");
        options.end = TopicEnd::AsOf(weir::IntentionOffset(1));
        let refused = weir.query(options).unwrap_err().to_string();
        assert!(refused.contains("cannot end at an intention"), "{refused}");
    }
}

#[test]
fn a_query_has_a_fixed_end_and_resumes_on_another_handle() {
    let world = World::new();
    let [local, remote] = create_orders(&world);
    let options = TopicQueryOptions::new(["o.*", "x"]).text(query_text("@.n != 3", "", "$.n"));
    let expected = rows(&local, &options);
    let mut query = local.query(options.clone()).unwrap();
    let mut found = Vec::new();
    let mut next = &remote;
    loop {
        let page = next_rows(&mut query, 3);
        if page.is_empty() {
            break;
        }
        found.extend(page);
        // Later records are not part of the query.
        local
            .topic("o.b")
            .unwrap()
            .append(r#"{"n":99}"#)
            .unwrap()
            .ensure_valid()
            .unwrap();
        let mut rest = options.clone();
        rest.token = Some(query.token().unwrap());
        query = next.query(rest).unwrap();
        next = if std::ptr::eq(next, &raw const remote) {
            &local
        } else {
            &remote
        };
    }
    assert_eq!(found, expected);
    let mut other = TopicQueryOptions::new(["o.*"]).text(query_text("@.n != 3", "", "$.n"));
    other.token = Some(query.token().unwrap());
    let error = local.query(other).unwrap_err();
    let WeirError::Query(error) = error else {
        panic!("{error:?}")
    };
    assert_eq!(error.code(), ErrorCode::TokenMismatch);
}

#[test]
fn a_followed_query_stays_in_order_when_topics_are_created() {
    let world = World::new();
    for weir in create_orders(&world) {
        let local = world.local();
        let mut options = TopicQueryOptions::new(["o.*", "later.**"]);
        options.end = TopicEnd::Follow;
        options.text = query_text("", "", "$.n");
        let mut query = weir.query(options).unwrap();
        let before = rows(&local, &TopicQueryOptions::new(["o.*", "later.**"])).len();
        assert_eq!(next_rows(&mut query, before).len(), before);
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
            let topic = local.topic(&name).unwrap();
            topic.ensure().unwrap();
            topic
                .append(format!(r#"{{"n":{}}}"#, 100 + round))
                .unwrap()
                .ensure_valid()
                .unwrap();
            expected.push(format!("{name} {}", 100 + round));
            if round % 7 == 6 {
                assert_eq!(next_rows(&mut query, expected.len()), expected);
                expected.clear();
            }
        }
        assert_eq!(next_rows(&mut query, expected.len()), expected);
        query.canceller().cancel();
        assert!(query.next(Bounds::default(), None).is_err());
    }
}

#[test]
fn an_error_names_the_bad_record_and_earlier_results_are_returned() {
    let world = World::new();
    let [local, remote] = create_orders(&world);
    let topic = local.topic("o.a").unwrap();
    let at = topic.append(r#"{"n":1,"s":"x"#).unwrap().offset().unwrap();
    topic.append(r#"{"n":5}"#).unwrap().ensure_valid().unwrap();
    let options = TopicQueryOptions::new(["o.a"]).text(query_text("@.n > 20", "", "$.n"));
    let mut output = Vec::new();
    for (weir, push_down) in [(&local, true), (&remote, false), (&remote, true)] {
        let mut options = options.clone();
        options.push_down = push_down;
        let mut query = weir.query(options).unwrap();
        let mut found = Vec::new();
        let error = loop {
            match query.next(Bounds::default(), distant_deadline()) {
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
        output.push(error.to_string());
    }
    let location = format!("at byte 11 of record {} of topic o.a", at.0);
    assert!(output[0].ends_with(&location), "{}", output[0]);
    assert!(output.iter().all(|one| *one == output[0]), "{output:?}");
}

#[test]
fn results_before_a_bad_record_of_another_topic_are_returned() {
    let world = World::new();
    let local = world.local();
    let put = |topic: &str, value: &str| {
        let topic = local.topic(topic).unwrap();
        topic.ensure().unwrap();
        topic.append(value).unwrap().ensure_valid().unwrap();
    };
    for (topic, value) in [
        ("f.c", r#"{"n":1}"#),
        ("f.a", r#"{"n":2}"#),
        ("f.b", r#"{"n":3}"#),
        ("f.c", "bad"),
        ("f.b", r#"{"n":4}"#),
        ("f.a", "worse"),
        ("f.b", r#"{"n":5}"#),
    ] {
        put(topic, value);
    }
    let remote = world.connect();
    for (weir, push_down) in [(&local, true), (&remote, false), (&remote, true)] {
        for end in [TopicEnd::Now, TopicEnd::Follow] {
            let mut options = TopicQueryOptions::new(["f.*"]).text(query_text("", "", "$.n"));
            (options.push_down, options.end) = (push_down, end);
            let output = run_query(weir, &options, 100, false);
            assert_eq!(output[..3], ["f.c 1", "f.a 2", "f.b 3"], "{end:?}");
            assert!(output[3].contains("of topic f.c"), "{output:?}");
        }
    }
}

#[test]
fn the_first_bad_record_is_reported() {
    let world = World::new();
    let local = world.local();
    let topic = local.topic("t").unwrap();
    topic.ensure().unwrap();
    // A scan of a page finds the second fault first.
    for (key, value) in [("a", r#"{"n":1}"#), ("b", r#"{"n":[]}"#), ("c", r#"{"n""#)] {
        topic.put(key, value).unwrap().ensure_valid().unwrap();
    }
    let remote = world.connect();
    for view in [TopicView::Log, TopicView::Latest] {
        for (weir, push_down) in [(&local, true), (&remote, false), (&remote, true)] {
            let mut options = TopicQueryOptions::new(["t"]).text(query_text("@.n", "$.n", ""));
            (options.view, options.push_down) = (view, push_down);
            let output = run_query(weir, &options, 9, false);
            let location = "an array or an object, at byte 5 of record 3 of topic t";
            assert!(
                output[0].ends_with(location),
                "{view:?} {push_down} {output:?}"
            );
        }
    }
}

#[test]
fn invalid_queries_are_refused() {
    let world = World::new();
    let [local, remote] = create_orders(&world);
    let mut options = TopicOptions::default();
    options.keys_max = Some(1);
    let empty = local.topic("empty.one").unwrap();
    empty.create(&options).unwrap().ensure_valid().unwrap();
    for weir in [local, remote] {
        let refuse = |change: &dyn Fn(&mut TopicQueryOptions)| {
            let mut options = TopicQueryOptions::new(["o.*"]);
            change(&mut options);
            weir.query(options).unwrap_err().to_string()
        };
        assert!(refuse(&|o| o.text.order = "meta.nothing".into()).contains("no property"));
        assert!(refuse(&|o| o.topics.push("gone".into())).contains("gone"));
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
                o.patience = Duration::from_millis(900);
            })
            .contains("has not reached")
        );
        assert!(rows(&weir, &TopicQueryOptions::new(["empty.*"])).is_empty());
        assert!(rows(&weir, &TopicQueryOptions::new(["none.*"])).is_empty());
    }
}

/// Returns the whole output of a query: its results, and its end.
pub(crate) fn run_query(
    weir: &Weir,
    options: &TopicQueryOptions,
    items_max: usize,
    resumes: bool,
) -> Vec<String> {
    let mut output = Vec::new();
    let mut query = match weir.query(options.clone()) {
        Ok(query) => query,
        Err(error) => return vec![error.to_string()],
    };
    let bounds = Bounds {
        items_max,
        ..Bounds::default()
    };
    loop {
        match query.next(bounds, distant_deadline()) {
            Ok(TopicStep::Page(page)) => {
                for (item, bytes) in page.items().iter().zip(page.iter()) {
                    let topic = query.topic(item.source).unwrap_or("-");
                    output.push(format!("{topic} {}", String::from_utf8_lossy(bytes)));
                }
                if resumes {
                    let Ok(token) = query.token() else { continue };
                    let mut rest = options.clone();
                    rest.token = Some(token);
                    query = weir.query(rest).unwrap();
                }
            }
            Ok(TopicStep::Done) => break,
            Ok(TopicStep::Idle) => panic!("no result arrived in time: {output:?}"),
            Err(error) => {
                output.push(error.to_string());
                return output;
            }
        }
    }
    // With a limit, the number of skipped records depends on the read-ahead.
    if !resumes && options.text.limit.is_none() {
        output.push(format!("skipped {}", query.skipped()));
    }
    output
}

/// Topics with values of all kinds; `bad` has one that is not JSON.
fn create_mixed_topics(world: &World) -> [Weir; 2] {
    let local = world.local();
    for name in ["p.a", "p.b", "p.c", "bad"] {
        local.topic(name).unwrap().ensure().unwrap();
    }
    let mut sessions = [CLIENT, ClientId([0xab; 16])].map(|client| local.session(client));
    for n in 0..120_usize {
        let name = ["p.a", "p.b", "p.c", "bad"][n * 7 % 11 % 4];
        let value = match n * 31 % 17 {
            0 => "7".to_owned(),
            1 => "\"text\"".to_owned(),
            2 => "[1,2]".to_owned(),
            3 => "{}".to_owned(),
            4 => format!(r#"{{"n":[{n}],"s":"x"}}"#),
            5 => format!(r#"{{"s":"a","n":{}.5}}"#, n % 5),
            6 => format!(r#"{{"n":"{}","s":null}}"#, n % 3),
            _ => format!(
                r#" {{"s" : "{}","n":{},"o":{{"p":{}}}}}"#,
                ["a", "b", "c"][n % 3],
                n % 9,
                n % 4
            ),
        };
        let topic = local.topic(name).unwrap();
        if n == 60 {
            local
                .topic("bad")
                .unwrap()
                .put("k2\"x", r#"{"n":1,"s":"a}"#)
                .unwrap()
                .ensure_valid()
                .unwrap();
        }
        if n % 13 == 5 {
            topic.append(value).unwrap().ensure_valid().unwrap();
        } else if n % 5 < 2 {
            let key = format!("k{}", n % 8);
            sessions[n % 5].execute(&[put(name, &key, &value)]).unwrap();
        } else {
            topic
                .put(format!("k{}", n % 8), value)
                .unwrap()
                .ensure_valid()
                .unwrap();
        }
        if n % 19 == 4 {
            topic.delete("k4").unwrap().ensure_valid().unwrap();
        }
    }
    [local, world.connect()]
}

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    (0..words.len()).prop_map(|at| words[at].to_owned())
}

prop_compose! {
    fn queries()(
        filter in one_of(&[
            "", "", "@.n > 3", "@.s == 'a' && @.n <= 5", "meta('key') == 'k1'", "!@.s",
            "@..p > 1", "meta('offset') > 12 || @.n == 4", "match(@.s, '[ab]')", "@.n == param('n')",
            "meta('type') == 'DELETE'", "meta('topic') != 'p.b'",
            "starts(meta('client_id'), '07')", "!undefined(meta('client_id')) && @.n > 2",
        ]),
        order in one_of(&[
            "", "", "", "meta.intention", "meta.offset", "meta.time_ms", "$.n", "$.s desc, $.n",
            "meta.key", "meta.key asc", "meta.key, meta.offset", "meta.type", "$.o.p desc",
            "meta.client_id desc, meta.offset",
        ]),
        select in one_of(&["", "", "$.n", "$.o", "$.s", "$", "count", "count($.n), sum($.o.p) as p", "max($.s)"]),
        group in one_of(&["", "", "", "$.s", "meta.topic", "meta.client_id"]),
        distinct in proptest::bool::weighted(0.2), drop in proptest::bool::weighted(0.2),
        strict in proptest::bool::weighted(0.2), rank in proptest::bool::weighted(0.8),
        offset in prop_oneof![3 => Just(0), 1 => 1..9_u64],
        limit in prop_oneof![2 => Just(None), 1 => (0..30_u64).prop_map(Some)],
        mode in prop_oneof![4 => Just(None), 1 => Just(Some(Mode::Sequential)), 1 => Just(Some(Mode::RoundRobin))],
        bad in 0..3_usize, all in proptest::bool::weighted(0.3), latest in proptest::bool::weighted(0.4),
        from in one_of(&["p.*", "p.*", "p.a", "bad", "bad,p.a"]),
    ) -> TopicQueryOptions {
        let ordered = !order.is_empty();
        let text = QueryText {
            filter, order, group, distinct, offset, limit,
            // Groups have separate results.
            select,
            params: vec![("n".into(), "4".into())],
            missing: if drop { Missing::Drop } else { Missing::First },
            level: if strict { Level::Strict } else { Level::Structural },
            complex: if rank { Complex::Rank } else { Complex::Error },
            on_bad_item: [BadItem::Error, BadItem::Skip, BadItem::Undefined][bad],
            mode: if ordered { None } else { mode },
            ..QueryText::default()
        };
        let mut options = TopicQueryOptions::new(from.split(',')).text(text);
        if latest {
            options.view = TopicView::Latest;
        }
        if all {
            options.kinds = vec![RecordKind::Create, RecordKind::Put, RecordKind::Delete];
        }
        options
    }
}

#[test]
fn results_do_not_depend_on_pushdown() {
    let world = World::new();
    let [local, remote] = create_mixed_topics(&world);
    let config = ProptestConfig {
        cases: 600,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let checked = runner.run(&(queries(), 1..40_usize), |(options, items_max)| {
        let expected = run_query(&local, &options, items_max, false);
        let mut plain = options.clone();
        plain.push_down = false;
        let unpushed = run_query(&remote, &plain, items_max, false);
        prop_assert_eq!(&unpushed, &expected, "{:?}", options);
        let pushed = run_query(&remote, &options, items_max, false);
        prop_assert_eq!(&pushed, &expected, "{:?}", options);
        Ok(())
    });
    checked.unwrap();
    // The query is also resumed after each page of results.
    let checked = runner.run(&(queries(), 1..9_usize), |(options, items_max)| {
        let expected = run_query(&local, &options, usize::MAX, false);
        let mut resumed = run_query(&remote, &options, items_max, true);
        let mut expected: Vec<String> = expected;
        if expected
            .last()
            .is_some_and(|last| last.starts_with("skipped"))
        {
            expected.pop();
        }
        prop_assert_eq!(&mut resumed, &mut expected, "{:?}", options);
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn the_session_of_a_record_is_a_property() {
    let world = World::new();
    let local = world.local();
    let topic = local.topic("t").unwrap();
    topic.ensure().unwrap();
    let mut sessions = [CLIENT, ClientId([0xab; 16])].map(|client| local.session(client));
    for n in 0..6 {
        let value = n.to_string();
        match sessions.get_mut(n % 3) {
            Some(session) => drop(session.execute(&[put("t", "k", &value)]).unwrap()),
            None => drop(topic.append(value).unwrap()),
        }
    }
    let ab = "ab".repeat(16);
    let cases = [
        (format!("meta('client_id') == '{ab}'"), "", "t 1,t 4"),
        ("undefined(meta('client_id'))".into(), "", "t 2,t 5"),
        (
            String::new(),
            "meta.client_id desc, meta.offset",
            "t 1,t 4,t 0,t 3,t 2,t 5",
        ),
    ];
    for weir in [local, world.connect()] {
        for (filter, order, found) in &cases {
            let options = TopicQueryOptions::new(["t"]).text(query_text(filter, order, ""));
            assert_eq!(rows(&weir, &options).join(","), *found);
        }
        let mut groups = query_text("", "", "count");
        groups.group = "meta.client_id as who".into();
        let groups = rows(&weir, &TopicQueryOptions::new(["t"]).text(groups));
        let who = "07".repeat(16);
        let wanted = [
            format!(r#"- {{"who":"{who}","count":2}}"#),
            format!(r#"- {{"who":"{ab}","count":2}}"#),
            r#"- {"count":2}"#.to_owned(),
        ];
        assert_eq!(groups, wanted);
    }
}

#[test]
fn a_limit_does_not_count_skipped_records() {
    let world = World::new();
    let local = world.local();
    let topic = local.topic("t").unwrap();
    topic.ensure().unwrap();
    for value in ["no", "1", "{", "2", "3"] {
        topic.append(value).unwrap().ensure_valid().unwrap();
    }
    let text = QueryText {
        level: Level::Strict,
        on_bad_item: BadItem::Skip,
        limit: Some(2),
        ..QueryText::default()
    };
    let options = TopicQueryOptions::new(["t"]).text(text);
    for weir in [local, world.connect()] {
        assert_eq!(rows(&weir, &options), ["t 1", "t 2"]);
    }
}

/// A filter with other budgets than the server's is not pushed down. Then the client counts the
/// limit after its filter.
#[test]
fn a_limit_counts_records_that_pass_the_filter_of_the_client() {
    let world = World::new();
    let local = world.local();
    let topic = local.topic("t").unwrap();
    topic.ensure().unwrap();
    for n in 0..20 {
        topic
            .append(format!(r#"{{"n":{n}}}"#))
            .unwrap()
            .ensure_valid()
            .unwrap();
    }
    let few = Budgets {
        depth_max: 100,
        ..Budgets::default()
    };
    let texts = [
        query_text("@.n >= 15", "", "$.n"),
        query_text("@.n >= 15", "meta.time_ms", ""),
        query_text("", "", "$.m"),
    ];
    for text in texts {
        for budgets in [few, Budgets::default()] {
            let text = QueryText {
                limit: Some(3),
                ..text.clone()
            };
            let mut options = TopicQueryOptions::new(["t"]).text(text);
            options.budgets = budgets;
            let local = rows(&local, &options);
            assert_eq!(local, rows(&world.connect(), &options));
        }
    }
}

#[test]
fn pages_report_how_many_records_the_server_skipped() {
    let world = World::new();
    let topic = world.local().topic("t").unwrap();
    topic.ensure().unwrap();
    for value in ["{", "1", "{", "2"] {
        topic.append(value).unwrap().ensure_valid().unwrap();
    }
    let text = QueryText {
        filter: "@ >= 1".into(),
        on_bad_item: BadItem::Skip,
        ..QueryText::default()
    };
    let options = TopicQueryOptions::new(["t"]).text(text);
    for weir in [world.local(), world.connect()] {
        let mut query = weir.query(options.clone()).unwrap();
        let TopicStep::Page(page) = query.next(Bounds::default(), distant_deadline()).unwrap()
        else {
            panic!("no results");
        };
        assert_eq!((page.items().len(), page.skipped()), (2, 2));
        assert_eq!(query.skipped(), 2);
    }
}

/// Returns JSON of the maximum depth.
fn nested() -> String {
    format!("{}{}", "[".repeat(500), "]".repeat(500))
}

/// A filter whose cost is the fourth power of the nesting.
const LONG: &str = "@..*..*..*..a";

#[test]
fn an_item_over_the_cost_limit_of_a_filter_is_a_bad_item() {
    let world = World::new();
    let local = world.local();
    let topic = local.topic("t").unwrap();
    topic.ensure().unwrap();
    let (first, last) = (r#"t [[[[{"a":1}]]]]"#, r#"t [[[[{"a":2}]]]]"#);
    for (key, value) in [
        ("a", r#"[[[[{"a":1}]]]]"#),
        ("b", &nested()),
        ("c", r#"[[[[{"a":2}]]]]"#),
    ] {
        topic.put(key, value).unwrap().ensure_valid().unwrap();
    }
    let remote = world.connect();
    // The error message contains the limit.
    let fault = "at least 4194304, at byte 0 of record 3 of topic t";
    for view in [TopicView::Log, TopicView::Latest] {
        for (on_bad_item, expected) in [
            (BadItem::Error, [first, fault].as_slice()),
            (BadItem::Skip, &[first, last, "skipped 1"]),
            // An undefined result does not match the filter, and is not counted as skipped.
            (BadItem::Undefined, &[first, last, "skipped 0"]),
        ] {
            for (weir, push_down) in [(&local, true), (&remote, false), (&remote, true)] {
                let mut options = TopicQueryOptions::new(["t"]).text(QueryText {
                    on_bad_item,
                    ..query_text(LONG, "", "")
                });
                (options.view, options.push_down) = (view, push_down);
                let output = run_query(weir, &options, 9, false);
                let is_expected = output
                    .iter()
                    .zip(expected)
                    .all(|(one, end)| one.ends_with(end));
                assert!(
                    is_expected && output.len() == expected.len(),
                    "{view:?} {on_bad_item:?} {push_down} {output:?}"
                );
            }
        }
    }
}

#[test]
fn dropped_queries_end_and_release_their_slots() {
    let world = World::new();
    let local = world.local();
    let few = local.topic("few").unwrap();
    local.topic("many").unwrap().ensure().unwrap();
    let value = nested();
    let mut written = local.session(CLIENT);
    for n in 0..30 {
        let keys: Vec<String> = (0..100).map(|key| format!("{n} {key}")).collect();
        let puts: Vec<_> = keys.iter().map(|key| put("many", key, &value)).collect();
        written.execute(&puts).unwrap();
    }
    few.ensure().unwrap();
    few.append(r#"{"n":3}"#).unwrap().ensure_valid().unwrap();
    let mut long = TopicQueryOptions::new(["many"]).text(QueryText {
        on_bad_item: BadItem::Skip,
        ..query_text(LONG, "", "")
    });
    let soon = || Instant::now().checked_add(Duration::from_millis(100));
    for view in [TopicView::Log, TopicView::Latest] {
        long.view = view;
        for _ in 0..12 {
            // The query is dropped just after its start, once with its connection.
            let weir = world.connect();
            for _ in 0..2 {
                let mut query = weir.query(long.clone()).unwrap();
                let step = query.next(Bounds::default(), soon()).unwrap();
                assert!(matches!(step, TopicStep::Idle), "{step:?}");
            }
        }
        let plain = TopicQueryOptions::new(["few"]).text(query_text("@.n == 3", "", "$.n"));
        assert_eq!(rows(&world.connect(), &plain), ["few 3"], "{view:?}");
    }
}
