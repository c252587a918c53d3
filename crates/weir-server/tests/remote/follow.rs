//! Listeners over a connection.

use std::time::{Duration, Instant};

use weir::query::Bounds;
use weir::{
    ConsequenceOffset, Page, ReadFrom, RecordKind, TopicEnd, TopicQuery, TopicQueryOptions,
    TopicStep, Weir,
};

use crate::proxy::Proxy;
use crate::world::World;

/// Longest wait; only a test that hangs reaches it.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

fn offsets(page: &Page) -> Vec<u64> {
    page.iter().map(|record| record.unwrap().offset.0).collect()
}

/// Follows a topic until it has received `last`. Returns every received offset.
fn follow(weir: &Weir, topic: &str, from: ReadFrom, last: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    for page in weir
        .topic(topic)
        .unwrap()
        .follow(from, TEST_TIMEOUT)
        .unwrap()
    {
        seen.extend(offsets(&page.unwrap()));
        if seen.last().is_some_and(|offset| *offset >= last) {
            break;
        }
    }
    seen
}

fn fill(weir: &Weir, topic: &str, count: u64) {
    let topic = weir.topic(topic).unwrap();
    topic.ensure().unwrap();
    let mut session = weir.session(weir::ClientId([9; 16]));
    let value = vec![b'v'; 100];
    let put = weir::Intention::new(
        topic.name().as_str(),
        weir::Operation::Put {
            key: b"k",
            value: &value,
        },
    );
    let all = vec![put; 100];
    for _ in 0..count / 100 {
        session.execute(&all).unwrap();
    }
}

#[test]
fn a_follower_receives_every_record_from_any_position() {
    let world = World::new();
    let remote = world.connect();
    fill(&remote, "t", 10_000);
    assert_eq!(
        follow(&remote, "t", ReadFrom::Start, 10_001),
        (1..=10_001).collect::<Vec<_>>()
    );
    let middle = ReadFrom::After(ConsequenceOffset(5000));
    assert_eq!(
        follow(&remote, "t", middle, 10_001),
        (5001..=10_001).collect::<Vec<_>>()
    );
    assert_eq!(
        follow(&remote, "t", ReadFrom::Last(3), 10_001),
        [9999, 10_000, 10_001]
    );
}

#[test]
fn a_follower_waits_for_a_topic_and_for_its_records() {
    let world = World::new();
    let remote = world.connect();
    let follower = {
        let remote = remote.clone();
        std::thread::spawn(move || follow(&remote, "later", ReadFrom::Start, 3))
    };
    let offset_follower = {
        let remote = remote.clone();
        let from = ReadFrom::After(ConsequenceOffset(2));
        std::thread::spawn(move || follow(&remote, "later", from, 3))
    };
    let topic = remote.topic("later").unwrap();
    topic.ensure().unwrap();
    topic.put("a", "1").unwrap().ensure_valid().unwrap();
    topic.put("b", "2").unwrap().ensure_valid().unwrap();
    assert_eq!(follower.join().unwrap(), [1, 2, 3]);
    assert_eq!(offset_follower.join().unwrap(), [3]);
}

#[test]
fn destroy_does_not_end_a_follower() {
    let world = World::new();
    let remote = world.connect();
    let topic = remote.topic("t").unwrap();
    topic.ensure().unwrap();
    let mut pages = topic.follow(ReadFrom::Start, TEST_TIMEOUT).unwrap();
    topic.put("a", "1").unwrap().ensure_valid().unwrap();
    topic.destroy().unwrap().ensure_valid().unwrap();
    topic.ensure().unwrap();
    let mut kinds = Vec::new();
    while kinds.len() < 4 {
        let page = pages.next().unwrap().unwrap();
        kinds.extend(page.iter().map(|record| record.unwrap().kind));
    }
    let wanted = [
        RecordKind::Create,
        RecordKind::Put,
        RecordKind::Destroy,
        RecordKind::Create,
    ];
    assert_eq!(kinds, wanted);
}

#[test]
fn a_follower_resumes_after_its_last_record_after_a_cut() {
    let world = World::new();
    let remote = world.connect();
    fill(&remote, "t", 2000);
    for cut in (600..20_000).step_by(1300) {
        let proxy = Proxy::new(world.address, i64::MAX, cut);
        let cut = Weir::connect(&format!("weir://{}", proxy.address)).unwrap();
        assert_eq!(
            follow(&cut, "t", ReadFrom::Start, 2001),
            (1..=2001).collect::<Vec<_>>()
        );
        assert_eq!(proxy.connections(), 2);
    }
}

#[test]
fn a_slow_follower_delays_neither_writes_nor_reads_of_its_connection() {
    let world = World::new();
    let remote = world.connect();
    let topic = remote.topic("t").unwrap();
    topic.ensure().unwrap();
    let mut slow = topic.follow(ReadFrom::Start, TEST_TIMEOUT).unwrap();
    assert_eq!(offsets(&slow.next().unwrap().unwrap()), [1]);
    // More than its credit, and much more than any buffer on the way.
    let value = vec![b'v'; 1 << 20];
    for n in 0..40 {
        assert!(topic.put(n.to_string(), &value).unwrap().is_valid());
    }
    assert_eq!(topic.get("39").unwrap().unwrap().value(), value);
    let mut seen = Vec::new();
    while seen.len() < 40 {
        seen.extend(offsets(&slow.next().unwrap().unwrap()));
    }
    assert_eq!(seen, (2..=41).collect::<Vec<_>>());
}

/// Whether the idle query is notified of news.
fn is_notified(query: &TopicQuery) -> bool {
    query.news().wait(Instant::now() + TEST_TIMEOUT)
}

#[test]
fn a_thread_can_wait_for_news_of_a_query() {
    let world = World::new();
    let remote = world.connect();
    for (weir, name) in [(&world.local(), "a"), (&remote, "b")] {
        let topic = weir.topic(name).unwrap();
        topic.ensure().unwrap();
        let mut options = TopicQueryOptions::new([name]);
        options.end = TopicEnd::Follow;
        let mut query = weir.query(options).unwrap();
        let mut next = |value: &str| {
            let idle = query.next(Bounds::default(), Some(Instant::now()));
            assert!(matches!(idle, Ok(TopicStep::Idle)), "{idle:?}");
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| is_notified(&query));
                topic.append(value).unwrap().ensure_valid().unwrap();
                assert!(waits.join().unwrap());
            });
            // The notification may have another cause.
            let page = loop {
                match query.next(Bounds::default(), Some(Instant::now())) {
                    Ok(TopicStep::Page(page)) => break page,
                    Ok(TopicStep::Idle) => assert!(is_notified(&query)),
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(page.iter().collect::<Vec<_>>(), [value.as_bytes()]);
        };
        next("1");
        next("2");
    }
}

/// Without a listener, the server sends nothing when a topic is created.
#[test]
fn a_query_without_topics_at_a_server_must_be_called_again() {
    let world = World::new();
    let remote = world.connect();
    for (weir, detects_news) in [(&world.local(), true), (&remote, false)] {
        let mut options = TopicQueryOptions::new(["none.*"]);
        options.end = TopicEnd::Follow;
        let mut query = weir.query(options).unwrap();
        let idle = query.next(Bounds::default(), Some(Instant::now()));
        assert!(matches!(idle, Ok(TopicStep::Idle)), "{idle:?}");
        assert_eq!(query.news().detects_news(), detects_news);
    }
}
