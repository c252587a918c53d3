//! Connections that break at every byte.

use std::time::Duration;

use weir::{
    ClientId, ConnectOptions, ErrorCode, ReadFrom, StoreError, TopicQueryOptions, TopicView, Weir,
    WeirError,
};

use crate::proxy::Proxy;
use crate::query::next_rows;
use crate::world::{CLIENT, World, put};

/// Puts 1 to `count` in a session through the proxy, many in flight. Checks that each value is
/// stored once and in order.
fn run(world: &World, proxy: &Proxy, client: ClientId, topic: &str, count: u64) {
    let remote = Weir::connect(&format!("weir://{}", proxy.address)).unwrap();
    let mut session = remote.session(client);
    let mut pending = Vec::new();
    for n in 1..=count {
        let value = n.to_string();
        pending.push(session.send(&[put(topic, "k", &value)]).unwrap());
    }
    let mut last = 0;
    for pending in pending {
        for verdict in pending.wait().unwrap() {
            assert!(verdict.is_valid());
            assert!(verdict.intention().0 > last, "answers are in order");
            last = verdict.intention().0;
        }
    }
    let wanted: Vec<String> = (1..=count).map(|n| n.to_string()).collect();
    assert!(world.values(topic) == wanted, "each once and in order");
}

#[test]
fn a_run_of_writes_survives_a_cut_at_many_positions_of_its_requests() {
    let world = World::new();
    let direct = world.connect();
    let mut cut = 0;
    let mut number = 0_u8;
    let mut cuts = 0;
    loop {
        number += 1;
        let topic = format!("t{number}");
        direct.topic(&topic).unwrap().ensure().unwrap();
        let proxy = Proxy::new(world.address, cut, i64::MAX);
        run(&world, &proxy, ClientId([number; 16]), &topic, 1000);
        if proxy.connections() > 2 {
            cuts += 1;
        }
        cut += 397;
        if number == 60 {
            break;
        }
    }
    assert!(cuts >= 20, "{cuts} runs were cut");
}

#[test]
fn a_run_of_writes_survives_a_cut_at_many_positions_of_its_responses() {
    let world = World::new();
    let direct = world.connect();
    for number in 0..60_u8 {
        let topic = format!("t{number}");
        direct.topic(&topic).unwrap().ensure().unwrap();
        let proxy = Proxy::new(world.address, i64::MAX, 23 * i64::from(number));
        run(&world, &proxy, ClientId([number + 1; 16]), &topic, 1000);
    }
}

#[test]
fn a_session_continues_after_a_restart_of_the_server() {
    let mut world = World::new();
    let remote = world.connect();
    remote.topic("t").unwrap().ensure().unwrap();
    let mut session = remote.session(CLIENT);
    for round in 0..5 {
        let mut pending = Vec::new();
        for n in 0..500 {
            let value = (round * 500 + n).to_string();
            pending.push(session.send(&[put("t", "k", &value)]).unwrap());
        }
        world.restart();
        for pending in pending {
            assert!(pending.wait().unwrap()[0].is_valid());
        }
    }
    let wanted: Vec<String> = (0..2500).map(|n| n.to_string()).collect();
    assert!(world.values("t") == wanted);
    // Reads reconnect as well.
    assert_eq!(
        remote
            .topic("t")
            .unwrap()
            .get("k")
            .unwrap()
            .unwrap()
            .value(),
        b"2499"
    );
}

#[test]
fn readers_continue_after_a_drain_of_the_server() {
    const RECORDS: usize = 800;
    let mut world = World::new();
    let topic = world.local().topic("t").unwrap();
    topic.ensure().unwrap();
    // 6 MB. A server sends 1 MiB before the client has read anything.
    let value = format!("\"{}\"", "x".repeat(8_000));
    for n in 0..RECORDS {
        topic
            .put(format!("k{n:03}"), value.as_str())
            .unwrap()
            .ensure_valid()
            .unwrap();
    }
    let remote = world.connect();
    let topic = remote.topic("t").unwrap();
    let mut pages = topic.pages(ReadFrom::Start).unwrap();
    let mut found = pages.next().unwrap().unwrap().iter().count();
    world.drain();
    found += pages
        .map(|page| page.unwrap().iter().count())
        .sum::<usize>();
    assert_eq!(found, RECORDS + 1, "CREATE and the puts");

    let mut latest = topic.latest(Duration::ZERO).unwrap();
    assert!(latest.next().unwrap().unwrap().replay);
    world.drain();
    assert_eq!(latest.map(Result::unwrap).count(), RECORDS - 1);

    for view in [TopicView::Log, TopicView::Latest] {
        for push_down in [true, false] {
            let mut options = TopicQueryOptions::new(["t"]);
            options.view = view;
            options.push_down = push_down;
            let mut query = remote.query(options).unwrap();
            let before = next_rows(&mut query, 1).len();
            world.drain();
            let after = next_rows(&mut query, usize::MAX).len();
            assert_eq!(before + after, RECORDS, "{view:?} {push_down}");
        }
    }
}

#[test]
fn without_a_session_a_broken_connection_leaves_the_outcome_unknown() {
    let world = World::new();
    world.connect().topic("t").unwrap().ensure().unwrap();
    // Enough for HELLO and its response, but not for the outcome of the write.
    let proxy = Proxy::new(world.address, i64::MAX, 520);
    let remote = Weir::connect(&format!("weir://{}", proxy.address)).unwrap();
    let topic = remote.topic("t").unwrap();
    let mut unknown = 0;
    for n in 0..50 {
        match topic.put("k", n.to_string()) {
            Ok(verdict) => assert!(verdict.is_valid()),
            Err(WeirError::Store(StoreError::Remote { code, .. })) => {
                assert_eq!(code, ErrorCode::Indeterminate);
                unknown += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(unknown, 1);
    let values = world.values("t");
    assert!(values.len() >= 49, "every acknowledged write is stored");
    assert!(
        values.is_sorted_by_key(|v| v.parse::<u32>().unwrap()),
        "no write is stored twice"
    );
}

#[test]
fn a_second_session_with_an_id_supersedes_the_first_one() {
    let world = World::new();
    let remote = world.connect();
    remote.topic("t").unwrap().ensure().unwrap();
    let mut old = remote.session(CLIENT);
    old.execute(&[put("t", "k", "1")]).unwrap();
    let mut new = remote.session(CLIENT);
    assert_eq!(new.next_nonce(), 2);
    new.execute(&[put("t", "k", "2")]).unwrap();
    let mut code = || {
        let error = old.execute(&[put("t", "k", "3")]).unwrap_err();
        let WeirError::Store(StoreError::Remote { code, .. }) = error else {
            panic!("{error:?}");
        };
        code
    };
    // A write in flight when the session was superseded has an unknown outcome.
    let first = code();
    assert!(
        matches!(first, ErrorCode::Superseded | ErrorCode::Indeterminate),
        "{first:?}"
    );
    assert_eq!(code(), ErrorCode::Superseded);
    assert_eq!(world.values("t"), ["1", "2"]);
}

#[test]
fn a_session_fails_while_the_server_is_down_and_continues_afterwards() {
    let mut world = World::new();
    let mut options = ConnectOptions::default();
    options.patience = Duration::from_millis(1_300);
    let url = format!("weir://{}", world.address);
    let remote = Weir::connect_with(&url, &options).unwrap();
    remote.topic("t").unwrap().ensure().unwrap();
    let mut session = remote.session(CLIENT);
    session.execute(&[put("t", "k", "1")]).unwrap();
    drop(world.server.take());
    let unknown = session
        .send(&[put("t", "k", "2")])
        .and_then(weir::Pending::wait);
    let WeirError::Store(StoreError::Remote { code, .. }) = unknown.unwrap_err() else {
        panic!("another error");
    };
    assert!(matches!(
        code,
        ErrorCode::Unreachable | ErrorCode::Draining | ErrorCode::Indeterminate
    ));
    world.restart();
    // The session continues after the last nonce of the store.
    let verdict = loop {
        match session.execute(&[put("t", "k", "3")]) {
            Ok(mut verdicts) => break verdicts.remove(0),
            Err(WeirError::Store(StoreError::Remote { .. })) => std::thread::yield_now(),
            Err(other) => panic!("{other:?}"),
        }
    };
    assert!(verdict.is_valid());
    assert_eq!(world.values("t"), ["1", "3"]);
}
