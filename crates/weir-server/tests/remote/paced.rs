//! A client that the server throttles slows down and loses no write.

use std::time::Duration;

use weir::{
    ConnectOptions, Effect, ErrorCode, Intention, Proposal, ReadFrom, StoreError, TopicOptions,
    Weir, WeirError,
};
use weir_server::Rate;

use crate::world::{CLIENT, World, put};

#[test]
fn a_session_over_the_rate_waits_and_continues() {
    const BATCHES: usize = 6;
    const ITEMS: usize = 1000;
    let world = World::with(|config| config.rate_requests = Rate::Units(2000));
    let options = TopicOptions::default();
    let topic = world.local().topic("t").unwrap();
    assert!(topic.create(&options).unwrap().is_valid());
    let remote = world.connect();
    let mut session = remote.session(CLIENT);
    for batch in 0..BATCHES {
        let values: Vec<String> = (0..ITEMS).map(|n| format!("{batch}.{n}")).collect();
        let puts: Vec<Intention<'_>> = values.iter().map(|value| put("t", "k", value)).collect();
        let verdicts = session.execute(&puts).unwrap();
        assert!(verdicts.iter().all(weir::Verdict::is_valid));
    }
    let found = world.values("t");
    assert_eq!(found.len(), BATCHES * ITEMS);
    assert_eq!(found.last().unwrap(), "5.999");
}

/// Connects a client to a server that accepts `items` items per second.
fn world_with_rate(items: u64) -> (World, Weir) {
    let world = World::with(|config| config.rate_requests = Rate::Units(items));
    let topic = world.local().topic("t").unwrap();
    assert!(topic.create(&TopicOptions::default()).unwrap().is_valid());
    let remote = world.connect();
    (world, remote)
}

/// Proposes calls of `items` values without waiting. Each value is the next number.
fn import(remote: &Weir, calls: usize, items: usize) -> Vec<Proposal> {
    let call = |call: usize| {
        let numbers = call * items..(call + 1) * items;
        let values: Vec<String> = numbers.map(|n| n.to_string()).collect();
        let puts: Vec<Intention<'_>> = values.iter().map(|value| put("t", "k", value)).collect();
        remote.propose(&puts).unwrap()
    };
    (0..calls).map(call).collect()
}

fn check(world: &World, count: usize) {
    let wanted: Vec<String> = (0..count).map(|n| n.to_string()).collect();
    assert!(world.values("t") == wanted, "each once and in order");
}

#[test]
fn an_import_without_session_over_the_rate_waits_and_continues() {
    let (world, remote) = world_with_rate(3000);
    for proposal in import(&remote, 12, 1000) {
        assert!(proposal.wait().unwrap().iter().all(|one| {
            one.commit()
                .is_some_and(|commit| commit.effect == Effect::Valid)
        }));
    }
    check(&world, 12_000);
}

#[test]
fn calls_of_one_item_without_session_keep_their_order() {
    let (world, remote) = world_with_rate(2000);
    // Waiting for each tenth proposal creates packets of many sizes, with many in flight.
    let mut proposals = std::collections::VecDeque::new();
    for n in 0..4000 {
        let value = n.to_string();
        proposals.push_back(remote.propose(&[put("t", "k", &value)]).unwrap());
        if proposals.len() > 10 {
            let proposal: Proposal = proposals.pop_front().unwrap();
            assert!(proposal.wait().unwrap().iter().all(|one| {
                one.commit()
                    .is_some_and(|commit| commit.effect == Effect::Valid)
            }));
        }
    }
    for proposal in proposals {
        assert!(proposal.wait().unwrap().iter().all(|one| {
            one.commit()
                .is_some_and(|commit| commit.effect == Effect::Valid)
        }));
    }
    check(&world, 4000);
}

#[test]
fn a_read_over_the_rate_waits_and_returns() {
    let (_world, remote) = world_with_rate(200);
    let topic = remote.topic("t").unwrap();
    topic.put("k", "v").unwrap().ensure_valid().unwrap();
    for _ in 0..500 {
        assert_eq!(topic.get("k").unwrap().unwrap().value(), b"v");
    }
}

#[test]
fn a_reader_over_the_rate_waits_and_starts() {
    let (_world, remote) = world_with_rate(100);
    let topic = remote.topic("t").unwrap();
    topic.put("k", "v").unwrap().ensure_valid().unwrap();
    for _ in 0..150 {
        let mut pages = topic.pages(ReadFrom::Start).unwrap();
        assert_eq!(pages.next().unwrap().unwrap().iter().count(), 2);
    }
    for _ in 0..150 {
        let mut latest = topic.latest(Duration::ZERO).unwrap();
        assert!(latest.next().unwrap().unwrap().replay);
    }
}

#[test]
fn a_rate_used_up_by_another_client_delays_and_loses_no_write() {
    let (world, remote) = world_with_rate(3000);
    let other = world.connect();
    other.topic("o").unwrap().ensure().unwrap();
    let topic = remote.topic("t").unwrap();
    std::thread::scope(|scope| {
        let overload = scope.spawn(|| {
            let puts = vec![put("o", "k", "v"); 1000];
            for proposal in (0..6).map(|_| other.propose(&puts).unwrap()) {
                assert_eq!(proposal.wait().unwrap().len(), 1000);
            }
        });
        let mut session = remote.session(CLIENT);
        for n in 0..100 {
            let value = n.to_string();
            if n % 2 == 0 {
                assert!(topic.put("k", &value).unwrap().is_valid());
            } else {
                assert!(session.execute(&[put("t", "k", &value)]).unwrap()[0].is_valid());
            }
            let found = topic.get("k").unwrap().unwrap();
            assert_eq!(found.value(), value.as_bytes());
        }
        overload.join().unwrap();
    });
    check(&world, 100);
    assert_eq!(world.values("o").len(), 6000);
}

#[test]
fn a_pause_longer_than_the_patience_is_an_error() {
    let world = World::with(|config| config.rate_requests = Rate::Units(10));
    let topic = world.local().topic("t").unwrap();
    assert!(topic.create(&TopicOptions::default()).unwrap().is_valid());
    let mut options = ConnectOptions::default();
    options.patience = Duration::from_secs(5);
    let url = format!("weir://{}", world.address);
    let remote = Weir::connect_with(&url, &options).unwrap();
    // A debt of ten minutes.
    let puts = vec![put("t", "k", "v"); 6000];
    assert_eq!(remote.propose(&puts).unwrap().wait().unwrap().len(), 6000);
    let assert_rate_error = |error: WeirError| match error {
        WeirError::Store(StoreError::Remote { code, .. }) => assert_eq!(code, ErrorCode::Rate),
        other => panic!("{other:?}"),
    };
    let topic = remote.topic("t").unwrap();
    assert_rate_error(topic.put("k", "w").unwrap_err());
    assert_rate_error(topic.get("k").unwrap_err());
    let mut session = remote.session(CLIENT);
    assert_rate_error(session.execute(&[put("t", "k", "w")]).unwrap_err());
    // Nothing was written, and the session is unchanged.
    assert_eq!(world.values("t").len(), 6000);
    assert_eq!(session.next_nonce(), 1);
}
