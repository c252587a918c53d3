//! Queries over the latest values that stop, resume at another node, or lose their connection while
//! keys change. Each unchanged key is returned once.

use std::collections::BTreeMap;

use weir::query::{Bounds, QueryText};
use weir::{ErrorCode, TopicOptions, TopicQueryOptions, TopicView, Weir, WeirError};

use crate::proxy::Proxy;
use crate::query::{next_rows, query_text, rows, run_query};
use crate::world::World;

fn latest(from: &[&str], text: QueryText) -> TopicQueryOptions {
    let mut options = TopicQueryOptions::new(from.iter().copied()).text(text);
    options.view = TopicView::Latest;
    options
}

fn fill(weir: &Weir, topic: &str, keys: impl Iterator<Item = usize>, pad: usize) {
    let topic = weir.topic(topic).unwrap();
    topic.ensure().unwrap();
    for key in keys {
        let value = format!(r#"{{"n":{key},"pad":"{}"}}"#, "x".repeat(pad));
        topic
            .put(format!("k{key:04}"), value)
            .unwrap()
            .ensure_valid()
            .unwrap();
    }
}

#[test]
fn each_unchanged_key_is_returned_once_wherever_the_query_resumes() {
    let world = World::new();
    let (local, remote) = (world.local(), world.connect());
    fill(&local, "l.a", (0..600).step_by(2), 0);
    fill(&local, "l.b", (0..600).step_by(3), 0);
    for push_down in [true, false] {
        let mut options = latest(&["l.*"], query_text("@.n >= 0", "", "$.n"));
        options.push_down = push_down;
        let mut query = local.query(options.clone()).unwrap();
        let (mut found, mut round) = (Vec::new(), 0);
        loop {
            let page = next_rows(&mut query, 7);
            if page.is_empty() {
                break;
            }
            found.extend(page);
            assert!(found.len() < 1000, "the query does not end");
            // Changes: a new key after the position, one before it, a deleted key, a changed key,
            // and a new topic.
            let topic = local.topic("l.a").unwrap();
            topic
                .put(format!("k{:04}", round * 11 + 400), r#"{"n":-1}"#)
                .unwrap()
                .ensure_valid()
                .unwrap();
            topic
                .put(format!("j{round}"), r#"{"n":7}"#)
                .unwrap()
                .ensure_valid()
                .unwrap();
            topic
                .put("k0001", r#"{"n":1}"#)
                .unwrap()
                .ensure_valid()
                .unwrap();
            topic.delete("k0001").unwrap().ensure_valid().unwrap();
            let name = format!("l.new{round}{push_down}");
            fill(&local, &name, 598..599, 0);
            let newest = local.topic(&name).unwrap().get("k0598").unwrap().unwrap();
            let mut rest = options.clone();
            rest.token = Some(query.token().unwrap());
            query = [&local, &remote][round % 2].query(rest).unwrap();
            assert!(query.as_of().unwrap() < newest.record().intention);
            round += 1;
        }
        // Only the deleted keys may be missing.
        let mut wanted: BTreeMap<(usize, &str), bool> = BTreeMap::new();
        for n in 0..600 {
            let is_deleted = n >= 400 && (n - 400) % 11 == 0;
            if n % 2 == 0 {
                wanted.insert((n, "l.a"), !is_deleted);
            }
            if n % 3 == 0 {
                wanted.insert((n, "l.b"), true);
            }
        }
        let mut last = None;
        for row in &found {
            let (topic, n) = row.split_once(' ').unwrap();
            let location = (n.parse().unwrap(), topic);
            assert!(
                last.is_none_or(|last| last < location),
                "{row} after {last:?}"
            );
            assert!(
                wanted.remove(&location).is_some(),
                "{row} is not a result of the query"
            );
            last = Some(location);
        }
        let missing: Vec<_> = wanted
            .iter()
            .filter(|(_, is_required)| **is_required)
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
        // Restore the first state.
        for round in 0..round {
            let deleted = local.topic("l.a").unwrap().delete(format!("j{round}"));
            deleted.unwrap().ensure_valid().unwrap();
            let name = format!("l.new{round}{push_down}");
            let destroyed = local.topic(&name).unwrap().destroy();
            destroyed.unwrap().ensure_valid().unwrap();
        }
        fill(&local, "l.a", (0..600).step_by(2), 0);
        for n in (401..8000).step_by(2) {
            if (n - 400) % 11 == 0 {
                let deleted = local.topic("l.a").unwrap().delete(format!("k{n:04}"));
                deleted.unwrap().ensure_valid().unwrap();
            }
        }
    }
}

#[test]
fn a_key_whose_record_was_removed_is_omitted() {
    let world = World::new();
    let (local, remote) = (world.local(), world.connect());
    let mut options = TopicOptions::default();
    options.retention.records = Some(0);
    let created = local.topic("t").unwrap().create(&options);
    assert!(created.unwrap().is_valid());
    fill(&local, "t", 0..4, 0);
    assert!(world.store.retain(None).unwrap().records > 0);
    fill(&local, "t", 5..6, 0);
    for (weir, push_down) in [(&local, true), (&remote, true), (&remote, false)] {
        let mut options = latest(&["t"], query_text("", "", "$.n"));
        options.push_down = push_down;
        assert_eq!(rows(weir, &options), ["t 5"]);
    }
}

#[test]
fn a_resumed_query_sees_every_write_that_was_read_before() {
    let world = World::new();
    let local = world.local();
    fill(&local, "t", 0..4, 0);
    let options = latest(&["t"], query_text("", "", "$.n"));
    let mut query = local.query(options.clone()).unwrap();
    let opened = query.as_of().unwrap();
    let topic = local.topic("t").unwrap();
    let changed = topic.put("k0000", r#"{"n":9}"#).unwrap().intention();
    assert_eq!(next_rows(&mut query, 1), ["t 9"]);
    assert!(opened < changed);
    let mut rest = options;
    rest.token = Some(query.token().unwrap());
    let mut query = world.connect().query(rest).unwrap();
    assert_eq!(query.as_of(), Some(changed));
    assert_eq!(next_rows(&mut query, 9), ["t 1", "t 2", "t 3"]);
}

#[test]
fn a_query_without_a_position_among_keys_has_no_token() {
    let world = World::new();
    let local = world.local();
    fill(&local, "t", 0..4, 0);
    for weir in [local, world.connect()] {
        let mut limited = query_text("", "$.n", "");
        limited.limit = Some(2);
        let query = weir.query(latest(&["t"], limited)).unwrap();
        assert!(query.explain().no_token.is_some());
        let WeirError::Query(error) = query.token().unwrap_err() else {
            panic!("another error");
        };
        assert_eq!(error.code(), ErrorCode::NoToken);
        let query = weir.query(latest(&["t"], query_text("", "", ""))).unwrap();
        assert_eq!(query.explain().no_token, None);
    }
}

#[test]
fn a_broken_connection_omits_no_key() {
    let world = World::new();
    let local = world.local();
    fill(&local, "wide", 0..1000, 1000);
    for (filter, limit) in [("", None), ("@.n % 2", None), ("@.n >= 100", Some(700))] {
        let filter = filter.replace("@.n % 2", "match(@.pad, 'x*') && @.n != 7");
        let mut options = latest(&["wide"], query_text(&filter, "", ""));
        options.text.limit = limit;
        let expected = rows(&local, &options);
        // The whole result has 1 MB.
        for cut in [400, 900, 100_000, 430_001] {
            let proxy = Proxy::new(world.address, i64::MAX, cut);
            let remote = Weir::connect(&format!("weir://{}", proxy.address)).unwrap();
            assert!(rows(&remote, &options) == expected, "cut at {cut}");
            assert!(proxy.connections() > 1);
        }
    }
}

#[test]
fn rows_before_a_bad_record_are_returned_and_the_error_names_it() {
    let world = World::new();
    let local = world.local();
    fill(&local, "f.a", 0..600, 0);
    fill(&local, "f.b", 0..600, 0);
    let topic = local.topic("f.b").unwrap();
    // The key is not UTF-8, so only the rows before that byte certainly precede it.
    let at = topic.put(b"k0400\xff".as_slice(), r#"{"n":1"#).unwrap();
    let location = format!("record {} of topic f.b", at.offset().unwrap().0);
    let mut expected = Vec::new();
    for (weir, push_down) in [
        (&local, true),
        (&world.connect(), false),
        (&world.connect(), true),
    ] {
        for filter in ["", "@.n >= 0"] {
            let mut options = latest(&["f.*"], query_text(filter, "", "$.n"));
            options.push_down = push_down;
            let output = run_query(weir, &options, Bounds::default().items_max, false);
            assert!(
                output.last().unwrap().contains(&location),
                "{:?}",
                output.last()
            );
            assert_eq!(output.len(), 401 + 401 + 1);
            expected.push(output);
        }
    }
    assert!(expected.iter().all(|output| *output == expected[0]));
}
