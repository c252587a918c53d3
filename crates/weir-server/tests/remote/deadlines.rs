//! A server that stops responding: each waiting call fails by its deadline or can be
//! cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use weir::{
    ConsequenceOffset, ErrorCode, ReadFrom, StoreError, TopicQueryOptions, TopicStep, Weir,
    WeirError, interruptible,
};
use weir_query::Bounds;

use crate::query::rows;
use crate::redirect::{Script, peer};
use crate::world::World;

fn connect_to_silent_server(has_topic: bool) -> Weir {
    let (address, _) = peer(vec![Script::Silent(has_topic)]);
    Weir::connect(&format!("weir://{address}")).unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T, impl Into<WeirError>>) -> ErrorCode {
    match result.map_err(Into::into).unwrap_err() {
        WeirError::Store(StoreError::Remote { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_have_a_deadline_of_their_own() {
    let remote = connect_to_silent_server(false);
    // The patience of the connection is 30 s.
    let short = remote.within(Duration::from_millis(20));
    let topic = short.topic("t").unwrap();
    let deadline = ErrorCode::Deadline;
    assert_eq!(code(topic.get("k")), deadline);
    assert_eq!(code(topic.get_async("k").wait()), deadline);
    assert_eq!(code(topic.scan(b"", None, 10)), deadline);
    assert_eq!(code(topic.try_info()), deadline);
    assert_eq!(code(topic.reader(ReadFrom::Start)), deadline);
    assert_eq!(code(topic.listener(ReadFrom::Last(1))), deadline);
    assert_eq!(
        code(topic.listener(ReadFrom::Start).unwrap().next_page()),
        deadline
    );
    assert_eq!(code(topic.latest(Duration::ZERO)), deadline);
    assert_eq!(code(topic.groups()), deadline);
    assert_eq!(code(short.topics(false)), deadline);
    assert_eq!(code(short.sync()), deadline);
}

#[test]
fn a_query_has_a_deadline_of_its_own_and_waits_no_longer_than_its_caller() {
    let mut options = TopicQueryOptions::new(["t"]);
    options.patience = Duration::from_millis(20);
    assert_eq!(
        code(connect_to_silent_server(false).query(options.clone())),
        ErrorCode::Deadline
    );

    // The query has started, and no record arrives.
    options.patience = Duration::from_secs(1);
    let mut query = connect_to_silent_server(true).query(options).unwrap();
    let mut idle = 0;
    let error = loop {
        let soon = Instant::now().checked_add(Duration::from_millis(10));
        match query.next(Bounds::default(), soon) {
            Ok(TopicStep::Idle) => idle += 1,
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert!(idle > 0, "the deadline of the caller passes first");
    assert_eq!(code::<()>(Err(error)), ErrorCode::Deadline);
}

/// With and without a part of the query at the server.
#[test]
fn a_query_waits_for_a_node_that_lags() {
    let world = World::new();
    let topic = world.local().topic("t").unwrap();
    topic.ensure().unwrap();
    topic.put("k", "1").unwrap().ensure_valid().unwrap();
    let mut reader = world.store.read("t", ConsequenceOffset::ZERO).unwrap();
    let (page, mut bytes) = (reader.next_page().unwrap().unwrap(), Vec::new());
    page.write_to(&mut bytes);
    let (address, _) = peer(vec![Script::Lagging(bytes)]);
    for push_down in [true, false] {
        let remote = Weir::connect(&format!("weir://{address}")).unwrap();
        let mut options = TopicQueryOptions::new(["t"]);
        options.push_down = push_down;
        assert_eq!(rows(&remote, &options), ["t 1"], "{push_down}");
    }
}

#[test]
fn a_query_that_waits_for_its_server_can_be_cancelled() {
    let mut query = connect_to_silent_server(true)
        .query(TopicQueryOptions::new(["t"]))
        .unwrap();
    let canceller = query.canceller();
    // The patience is 30 s.
    let error = std::thread::scope(|scope| {
        let waits = scope.spawn(|| query.next(Bounds::default(), None).unwrap_err());
        canceller.cancel();
        waits.join().unwrap()
    });
    let WeirError::Query(error) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.code(), ErrorCode::Cancelled);
}

#[test]
fn a_waiting_thread_can_cancel_its_own_call() {
    let remote = connect_to_silent_server(false);
    let topic = remote.topic("t").unwrap();
    let checks = Arc::new(AtomicU32::new(0));
    let check = {
        let checks = Arc::clone(&checks);
        Arc::new(move || checks.fetch_add(1, Ordering::Relaxed) >= 2)
    };
    let every = Duration::from_millis(5);
    let cancelled = ErrorCode::Cancelled;
    interruptible(every, check, || {
        assert_eq!(code(topic.get("k")), cancelled);
        assert_eq!(
            checks.load(Ordering::Relaxed),
            3,
            "the call ends at the third check"
        );
        assert_eq!(code(topic.ensure()), cancelled);
        assert_eq!(code(topic.put("k", "v")), cancelled);
        assert_eq!(code(topic.reader(ReadFrom::Start)), cancelled);
        assert_eq!(code(remote.query(TopicQueryOptions::new(["t"]))), cancelled);
    });
    // Calls are no longer interrupted here.
    let short = remote.within(Duration::from_millis(20)).topic("t").unwrap();
    assert_eq!(code(short.get("k")), ErrorCode::Deadline);
}
