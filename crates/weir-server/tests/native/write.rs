//! Writes and their outcomes.

use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use weir_core::{ClientId, Effect, ErrorCode, Outcome};
use weir_protocol::{CHAIN, Hello, Message, Packet};
use weir_server::Rate;

use crate::hold::BlockedThread;
use crate::peer::{CLIENT, Peer, TEST_TIMEOUT, World, puts};

fn effects(outcomes: &[(u64, Outcome)]) -> Vec<Effect> {
    let effect = |(_, outcome): &(u64, Outcome)| outcome.commit().unwrap().effect;
    outcomes.iter().map(effect).collect()
}

#[test]
fn text_requests_get_text_responses() {
    let world = World::new();
    let mut peer = world.raw();
    peer.send_text("|\n\n_request_hello\n|\n");
    assert!(matches!(
        peer.next().unwrap().packet().message,
        Message::HelloOk(_)
    ));
    peer.send_text(":_tag\t1\n\n:_topic\torders\n_request_create\n|\n");
    let got = peer.next().unwrap();
    assert_eq!(got.packet().tag, b"1");
    let Message::Committed { lines } = got.packet().message else {
        panic!("{:?}", got.packet());
    };
    assert_eq!(lines, b"0 1 VALID 0 1 1 1 0 -");
    peer.send_text("\n:_topic\torders\n:_key\t4711\n:_expect\tkey_absent\n_request_put\nopen\n|\n");
    peer.send_text("\n:_topic\torders\n:_key\t4711\n:_expect\tkey_absent\n_request_put\npaid\n|\n");
    peer.send_text("\n:_topic\tnowhere\n:_key\ta\n_request_delete\n|\n");
    let outcomes = peer.outcomes(3);
    assert_eq!(
        effects(&outcomes),
        [Effect::Valid, Effect::Invalid, Effect::Error]
    );
    assert_eq!(world.values("orders"), [b"open"]);
}

#[test]
fn the_outcomes_of_a_batch_are_sent_as_one_run() {
    let world = World::new();
    world.create("t");
    let (mut peer, next) = world.session(CLIENT);
    assert_eq!(next, 1);
    peer.send_puts(CLIENT, "t", 1, 1000);
    let got = peer.next().unwrap();
    let runs = got.runs();
    assert_eq!(runs.len(), 1);
    assert_eq!((runs[0].0, runs[0].1.count), (1, 1000));
    let commit = runs[0].1.outcome.commit().unwrap();
    assert_eq!((commit.intention.0, commit.first.0), (2, 2));
    assert_eq!(world.values("t").len(), 1000);
}

#[test]
fn a_failed_item_does_not_affect_other_items_of_the_batch() {
    let world = World::new();
    world.create("t");
    let mut peer = world.plain();
    let mut items = puts(ClientId::NONE, "t", 1, 1);
    items.extend(puts(ClientId::NONE, "missing", 2, 1));
    items.extend(puts(ClientId::NONE, "t", 3, 1));
    let (count, items) = (3, &items[..]);
    peer.send(&Packet::new(Message::Write { count, items }));
    let outcomes = peer.outcomes(3);
    assert_eq!(
        effects(&outcomes),
        [Effect::Valid, Effect::Error, Effect::Valid]
    );
    assert_eq!(world.values("t"), [b"1", b"3"]);
}

#[test]
fn received_is_sent_before_the_outcome_on_request() {
    let world = World::new();
    world.create("t");
    let mut peer = world.raw();
    peer.hello(&Hello {
        client: CLIENT,
        received: true,
        ..Hello::default()
    });
    peer.send_puts(CLIENT, "t", 1, 5);
    let received = Message::Received { nonce: 1, count: 5 };
    assert_eq!(peer.next().unwrap().packet().message, received);
    assert_eq!(peer.outcomes(5).len(), 5);
}

#[test]
fn a_packet_over_a_limit_is_refused_as_a_whole_and_uses_up_no_nonce() {
    let world = World::new();
    world.create("t");
    let (mut peer, _) = world.session(CLIENT);
    let mut items = puts(CLIENT, "t", 1, 1);
    let mut reserved = puts(CLIENT, "_reserved", 2, 1);
    let at = reserved.iter().position(|&byte| byte == b'_').unwrap();
    reserved[at] = b'.';
    items.extend(reserved);
    let (count, items) = (2, &items[..]);
    peer.send(&Packet::new(Message::Write { count, items }));
    peer.send_puts(CLIENT, "t", 3, 1);
    let got = peer.next().unwrap();
    let refusal = got.refusal();
    assert_eq!(refusal.code(), Some(ErrorCode::BadName));
    assert_eq!(
        (refusal.nonce, refusal.count, refusal.item),
        (Some(1), Some(2), Some(1))
    );
    assert_eq!(refusal.expected, Some(1));
    let got = peer.next().unwrap();
    assert_eq!(got.refusal().code(), Some(ErrorCode::NonceGap));
    assert!(world.values("t").is_empty());
    peer.send_puts(CLIENT, "t", 1, 3);
    assert_eq!(peer.outcomes(3).len(), 3);
}

#[test]
fn packets_sent_byte_by_byte_are_accepted() {
    let world = World::new();
    world.create("t");
    let mut peer = world.raw();
    let hello = Hello {
        client: CLIENT,
        ..Hello::default()
    };
    let mut bytes = b"|\n".to_vec();
    bytes.extend(Peer::bytes(&Packet::new(Message::Hello(hello))));
    let items = puts(CLIENT, "t", 1, 3);
    let (count, items) = (3, &items[..]);
    bytes.extend(Peer::bytes(&Packet::new(Message::Write { count, items })));
    for byte in bytes {
        peer.stream.write_all(&[byte]).unwrap();
    }
    assert!(matches!(
        peer.next().unwrap().packet().message,
        Message::HelloOk(_)
    ));
    assert_eq!(peer.outcomes(3).len(), 3);
    assert_eq!(world.values("t"), [b"1", b"2", b"3"]);
}

#[test]
fn a_half_closed_client_gets_every_outcome_and_bye() {
    let world = World::new();
    world.create("t");
    let (mut peer, _) = world.session(CLIENT);
    for first in 0..200 {
        peer.send_puts(CLIENT, "t", first * 10 + 1, 10);
    }
    peer.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(peer.outcomes(2000).len(), 2000);
    assert_eq!(peer.next().unwrap().packet().message, Message::ByeNotice);
    assert!(peer.is_closed());
    assert_eq!(world.values("t").len(), 2000);
}

#[test]
fn bye_is_sent_after_all_outcomes() {
    let world = World::new();
    world.create("t");
    let (mut peer, _) = world.session(CLIENT);
    peer.send_puts(CLIENT, "t", 1, 100);
    peer.send(&Packet::new(Message::Bye));
    assert_eq!(peer.outcomes(100).len(), 100);
    assert_eq!(peer.next().unwrap().packet().message, Message::ByeNotice);
    assert!(peer.is_closed());
}

#[test]
fn a_value_of_sixteen_mebibytes_is_returned_unchanged() {
    let world = World::new();
    world.create("t");
    let mut peer = world.plain();
    let value: Vec<u8> = (0..16_u32 << 20)
        .map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[2])
        .collect();
    let kind = weir_protocol::TextOperation::Put {
        key: b"big",
        value: &value,
    };
    let one = weir_protocol::TextWrite {
        topic: "t",
        kind,
        nonce: None,
        expect: weir_protocol::Conditions::default(),
        meta: b"",
    };
    peer.send(&Packet::new(Message::TextWrite(one)));
    assert_eq!(effects(&peer.outcomes(1)), [Effect::Valid]);
    let get = Message::Get {
        topic: "t",
        key: b"big",
        at_least: 0,
        applied: 0,
    };
    peer.send(&Packet::tagged(b"g", get));
    let got = peer.next().unwrap();
    let Message::Value { page } = got.packet().message else {
        panic!("{:?}", got.packet().message);
    };
    let page = weir_store::Page::read_from(&bytes::Bytes::copy_from_slice(page), 0).unwrap();
    let record = page.iter().next().unwrap().unwrap();
    assert!(record.value == value, "the value is unchanged");
}

#[test]
fn writes_beyond_the_window_are_read_later_and_not_lost() {
    let world = World::new();
    world.create("t");
    let mut peer = world.raw();
    peer.hello(&Hello {
        client: CLIENT,
        window: Some(1),
        ..Hello::default()
    });
    let mut bytes = Vec::new();
    for first in 0..500 {
        let items = puts(CLIENT, "t", first * 10 + 1, 10);
        let (count, items) = (10, &items[..]);
        bytes.extend(Peer::bytes(&Packet::new(Message::Write { count, items })));
    }
    peer.stream.write_all(&bytes).unwrap();
    assert_eq!(peer.outcomes(5000).len(), 5000);
}

#[test]
fn a_client_that_reads_no_outcomes_is_throttled_and_delays_no_other_client() {
    let world = World::new();
    world.create("t");
    let (mut slow, _) = world.session(CLIENT);
    let write_timeout = std::time::Duration::from_secs(1);
    slow.stream.set_write_timeout(Some(write_timeout)).unwrap();
    // Outcomes that cannot be merged into runs, because every other topic is missing.
    let mut sent = 0_u64;
    let unsent = loop {
        let mut items = Vec::new();
        for n in 0..100 {
            let topic = if n % 2 == 0 { "t" } else { "missing" };
            items.extend(puts(CLIENT, topic, sent + n + 1, 1));
        }
        sent += 100;
        let (count, items) = (100, &items[..]);
        let packet = Peer::bytes(&Packet::new(Message::Write { count, items }));
        let mut rest = &packet[..];
        while !rest.is_empty()
            && let Ok(bytes) = slow.stream.write(rest)
        {
            rest = &rest[bytes..];
        }
        if !rest.is_empty() {
            break rest.to_vec();
        }
        assert!(sent < 10_000_000, "the server does not stop reading");
    };
    let other = ClientId([0x22; 16]);
    let (mut peer, _) = world.session(other);
    peer.send_puts(other, "t", 1, 10);
    assert_eq!(peer.outcomes(10).len(), 10);
    let mut writer = slow.stream.try_clone().unwrap();
    writer.set_write_timeout(None).unwrap();
    let rest = std::thread::spawn(move || writer.write_all(&unsent).unwrap());
    let count = usize::try_from(sent).unwrap();
    assert!(
        slow.outcomes(count)
            .iter()
            .map(|(nonce, _)| *nonce)
            .eq(1..=sent)
    );
    rest.join().unwrap();
}

/// Sends a put without a session. Returns `Err` with the server's retry time if it was refused.
fn put_one(peer: &mut Peer, chained: bool) -> Result<(), Option<u64>> {
    let items = &puts(ClientId::NONE, "t", 0, 1);
    let message = Message::Write { count: 1, items };
    peer.send(&Packet {
        require: if chained { CHAIN } else { b"" },
        ..Packet::new(message)
    });
    let got = peer.next().unwrap();
    match got.packet().message {
        Message::Committed { .. } => Ok(()),
        Message::Refusal(refusal) => {
            assert_eq!(refusal.code(), Some(ErrorCode::Rate));
            Err(refusal.retry_ms)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_chained_write_is_refused_if_its_predecessor_was_refused() {
    let world = World::with(|config| config.rate_requests = Rate::Units(1000));
    world.create("t");
    let (mut peer, mut other) = (world.plain(), world.plain());
    // Two seconds more than the allowed debt.
    peer.send_puts(ClientId::NONE, "t", 0, 3000);
    peer.next().unwrap();
    assert!(matches!(put_one(&mut peer, false), Err(Some(_))));
    let end = Instant::now() + TEST_TIMEOUT;
    while put_one(&mut other, false).is_err() {
        assert!(Instant::now() < end, "no other client may write");
    }
    // Other clients may write by now, but no chained write overtakes the refused one.
    assert_eq!(put_one(&mut peer, true), Err(None));
    while put_one(&mut peer, false).is_err() {
        assert!(Instant::now() < end, "no write is accepted");
    }
    // After an accepted write, a chained write is limited only by the rate.
    assert_ne!(put_one(&mut peer, true), Err(None));
}

/// The time limit of a client does not apply while the server waits for the store.
#[test]
fn a_client_that_has_sent_bye_gets_the_outcome_of_a_slow_write() {
    const LIMIT: Duration = Duration::from_millis(50);
    let world = World::with(|config| config.write_timeout = LIMIT);
    world.create("t");
    let blocked = BlockedThread::new(&world.store, "t");
    let mut peer = world.plain();
    peer.send_puts(ClientId::NONE, "t", 0, 1);
    peer.send(&Packet::new(Message::Bye));
    // Enough time for a server that applies the limit to close the connection.
    let mut other = world.plain();
    let started = Instant::now();
    while started.elapsed() < LIMIT * 20 {
        other.send(&Packet::new(Message::Ping));
        other.next().unwrap();
    }
    drop(blocked);
    assert!(matches!(peer.outcomes(1)[0], (_, Outcome::Committed(_))));
    let bye = peer.next().unwrap();
    assert!(matches!(bye.packet().message, Message::ByeNotice));
}
