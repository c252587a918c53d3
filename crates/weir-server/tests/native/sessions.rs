//! Sessions: nonces, stored outcomes, two connections of one client, shutdown.

use weir_core::{ClientId, Effect, ErrorCode, Outcome};
use weir_protocol::{Hello, Message, Packet};

use crate::peer::{CLIENT, Peer, World, puts};

/// Sends a HELLO that requests the outcomes from `resume` on. Returns the peer and the first packet
/// of the server.
fn resume(world: &World, resume: u64) -> (Peer, crate::peer::ReceivedPacket) {
    let mut peer = world.raw();
    let hello = Hello {
        client: CLIENT,
        resume: Some(resume),
        ..Hello::default()
    };
    peer.send(&Packet::new(Message::Hello(hello)));
    let got = peer.next().unwrap();
    (peer, got)
}

fn next_of(got: &crate::peer::ReceivedPacket) -> u64 {
    match got.packet().message {
        Message::HelloOk(answer) => answer.next,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_duplicate_gets_the_stored_outcome_and_is_not_executed() {
    let world = World::new();
    world.create("t");
    let (mut peer, _) = world.session(CLIENT);
    peer.send_puts(CLIENT, "t", 1, 5);
    let first = peer.outcomes(5);
    peer.send_puts(CLIENT, "t", 1, 7);
    let second = peer.outcomes(7);
    for ((_, before), (_, again)) in first.iter().zip(&second) {
        assert!(matches!(again, Outcome::Replayed(_)));
        assert_eq!(before.commit(), again.commit());
    }
    assert_eq!(world.values("t").len(), 7);
}

#[test]
fn writes_after_a_nonce_gap_are_refused_until_it_is_filled() {
    let world = World::new();
    world.create("t");
    let (mut peer, _) = world.session(CLIENT);
    peer.send_puts(CLIENT, "t", 3, 1);
    peer.send_puts(CLIENT, "t", 4, 1);
    for first in [3, 4] {
        let got = peer.next().unwrap();
        let refusal = got.refusal();
        assert_eq!(refusal.code(), Some(ErrorCode::NonceGap));
        assert_eq!((refusal.nonce, refusal.expected), (Some(first), Some(1)));
        assert!(!refusal.fatal);
    }
    peer.send_puts(CLIENT, "t", 1, 4);
    assert_eq!(peer.outcomes(4).len(), 4);
    assert_eq!(world.values("t"), [b"1", b"2", b"3", b"4"]);
}

#[test]
fn a_nonce_with_different_content_is_refused_and_the_session_continues() {
    let world = World::new();
    world.create("t");
    let (mut peer, _) = world.session(CLIENT);
    peer.send_puts(CLIENT, "t", 1, 2);
    peer.outcomes(2);
    // Other bytes under nonce 2.
    let mut items = puts(CLIENT, "t", 2, 1);
    let last = items.len() - 1;
    items[last] = b'x';
    let (count, items) = (1, &items[..]);
    peer.send(&Packet::new(Message::Write { count, items }));
    let outcomes = peer.outcomes(1);
    let Outcome::Refused { code, expected } = outcomes[0].1 else {
        panic!("{outcomes:?}");
    };
    assert_eq!((code, expected), (ErrorCode::NonceReused, 3));
    peer.send_puts(CLIENT, "t", 3, 1);
    assert_eq!(
        peer.outcomes(1)[0].1.commit().unwrap().effect,
        Effect::Valid
    );
}

#[test]
fn unseen_outcomes_are_sent_again_after_hello() {
    let world = World::new();
    world.create("t");
    let (mut peer, _) = world.session(CLIENT);
    peer.send_puts(CLIENT, "t", 1, 100);
    let before = peer.outcomes(100);
    drop(peer);
    for from in [1, 2, 50, 100, 101] {
        let (mut peer, got) = resume(&world, from);
        assert_eq!(next_of(&got), 101);
        let count = usize::try_from(101 - from).unwrap();
        let again = peer.outcomes(count);
        for ((nonce, old), (number, new)) in before[100 - count..].iter().zip(&again) {
            assert_eq!((nonce, old.commit()), (number, new.commit()));
        }
    }
}

#[test]
fn a_resume_after_the_last_stored_nonce_is_expired() {
    let world = World::new();
    world.create("t");
    let (_, got) = resume(&world, 2);
    let refusal = got.refusal();
    assert_eq!(refusal.code(), Some(ErrorCode::SessionExpired));
    assert_eq!(refusal.expected, Some(1));
    assert!(refusal.fatal);
    let (_, got) = resume(&world, 1);
    assert_eq!(next_of(&got), 1);
}

#[test]
fn a_session_of_another_store_is_expired() {
    let world = World::new();
    let mut peer = world.raw();
    let hello = Hello {
        client: CLIENT,
        store: Some([9; 16]),
        ..Hello::default()
    };
    peer.send(&Packet::new(Message::Hello(hello)));
    let got = peer.next().unwrap();
    assert_eq!(got.refusal().code(), Some(ErrorCode::SessionExpired));
    assert!(peer.is_closed());
}

#[test]
fn a_newer_connection_of_a_client_ends_the_older_one() {
    let world = World::new();
    world.create("t");
    let (mut old, _) = world.session(CLIENT);
    old.send_puts(CLIENT, "t", 1, 3);
    old.outcomes(3);
    let (mut new, next) = world.session(CLIENT);
    assert_eq!(next, 4);
    let got = old.next().unwrap();
    assert_eq!(got.refusal().code(), Some(ErrorCode::Superseded));
    assert!(got.refusal().fatal);
    assert!(old.is_closed());
    new.send_puts(CLIENT, "t", 4, 3);
    assert_eq!(new.outcomes(3).len(), 3);
    // The end of the old connection has not released the session of the new one.
    let (_newest, _) = world.session(CLIENT);
    let got = new.next().unwrap();
    assert_eq!(got.refusal().code(), Some(ErrorCode::Superseded));
}

#[test]
fn hello_must_be_the_first_packet_and_must_not_be_repeated() {
    let world = World::new();
    let mut peer = world.raw();
    peer.send(&Packet::tagged(b"1", Message::Ping));
    assert_eq!(
        peer.next().unwrap().refusal().code(),
        Some(ErrorCode::BadRequest)
    );
    assert!(peer.is_closed());
    let mut peer = world.plain();
    peer.send(&Packet::new(Message::Hello(Hello::default())));
    assert_eq!(
        peer.next().unwrap().refusal().code(),
        Some(ErrorCode::BadRequest)
    );
    assert!(peer.is_closed());
}

#[test]
fn an_unsupported_version_is_refused_with_the_supported_ones() {
    let world = World::new();
    let mut peer = world.raw();
    let hello = Hello {
        versions: b"weir/9 weir/8",
        ..Hello::default()
    };
    peer.send(&Packet::new(Message::Hello(hello)));
    let got = peer.next().unwrap();
    let refusal = got.refusal();
    assert_eq!(refusal.code(), Some(ErrorCode::Unsupported));
    assert_eq!(refusal.versions, b"weir/1");
    assert!(peer.is_closed());
    let mut peer = world.raw();
    peer.hello(&Hello {
        versions: b"weir/9 weir/1",
        ..Hello::default()
    });
}

#[test]
fn items_of_another_client_end_the_connection() {
    let world = World::new();
    world.create("t");
    for (session, items) in [
        (CLIENT, puts(ClientId([0x33; 16]), "t", 1, 1)),
        (CLIENT, puts(ClientId::NONE, "t", 1, 1)),
        (ClientId::NONE, puts(CLIENT, "t", 1, 1)),
    ] {
        let mut peer = world.raw();
        peer.hello(&Hello {
            client: session,
            ..Hello::default()
        });
        let (count, items) = (1, &items[..]);
        peer.send(&Packet::new(Message::Write { count, items }));
        let got = peer.next().unwrap();
        assert_eq!(got.refusal().code(), Some(ErrorCode::BadRequest));
        assert!(got.refusal().fatal);
        assert!(peer.is_closed());
    }
    assert!(world.values("t").is_empty());
}

#[test]
fn a_draining_server_answers_accepted_writes_and_ends_with_bye() {
    let world = World::new();
    world.create("t");
    let (mut peer, _) = world.session(CLIENT);
    peer.send_puts(CLIENT, "t", 1, 100);
    peer.outcomes(100);
    world.server.drain();
    assert!(matches!(
        peer.next().unwrap().packet().message,
        Message::Drain { .. }
    ));
    assert_eq!(peer.next().unwrap().packet().message, Message::ByeNotice);
    assert!(peer.is_closed());
    world.server.wait().unwrap();
}

#[test]
fn ten_thousand_stored_outcomes_are_sent_as_one_run() {
    let world = World::new();
    world.create("t");
    let (mut peer, next) = world.session(CLIENT);
    for first in (next..next + 10_000).step_by(5_000) {
        peer.send_puts(CLIENT, "t", first, 5_000);
        peer.outcomes(5_000);
    }
    drop(peer);
    let (mut peer, _) = resume(&world, next);
    let got = peer.next().unwrap();
    let runs = got.runs();
    let count: u32 = runs.iter().map(|(_, run)| run.count).sum();
    assert_eq!((count, runs.len()), (10_000, 1));
    assert!(matches!(runs[0].1.outcome, Outcome::Replayed(_)));
}
