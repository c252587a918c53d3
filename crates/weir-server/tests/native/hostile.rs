//! Clients that try to use more than their share of memory, of the server's threads, and of their
//! rate.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use weir_core::batch::BatchBuilder;
use weir_core::intention::IntentionLimits;
use weir_core::{ClientId, ErrorCode, Intention, Operation, Outcome, TopicOptions};
use weir_core::{GroupMode, GroupSetup, GroupStep};
use weir_protocol::{After, Hello, Listen, ListenQuery, Message, Packet, PushdownQuery};
use weir_protocol::{CLAIM_WAIT_MS_MAX, CLAIMS_MAX, GroupClaim, LISTENERS_MAX};
use weir_server::{Rate, Size};

use crate::hold::BlockedThread;
use crate::peer::{CLIENT, Peer, ReceivedPacket, TEST_TIMEOUT, World, puts};

#[test]
fn refusals_queued_behind_a_write_are_bounded() {
    const SENT_BYTES_MAX: usize = 96 << 20;
    let world = World::new();
    world.create("t");
    let blocked = BlockedThread::new(&world.store, "t");
    let (mut peer, next) = world.session(CLIENT);
    peer.send_puts(CLIENT, "t", next, 1);
    // Each of these writes is refused, after the outcome of the write above.
    let write_after_gap = format!(
        "\n:_topic\tt\n:_key\tk\n:_nonce\t{}\n_request_put\n{}\n|\n",
        next + 1000,
        "x".repeat(4000)
    );
    let writes = write_after_gap.repeat(256);
    let write_timeout = Some(Duration::from_millis(500));
    peer.stream.set_write_timeout(write_timeout).unwrap();
    let mut sent = 0;
    while sent < SENT_BYTES_MAX {
        let from = sent % writes.len();
        match peer.stream.write(&writes.as_bytes()[from..]) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(sent < SENT_BYTES_MAX, "the server does not stop reading");
    drop(blocked);
    // No response is lost, and their order is correct.
    assert!(matches!(peer.outcomes(1)[0], (_, Outcome::Committed(_))));
    for _ in 0..sent / write_after_gap.len() {
        let got = peer.next().unwrap();
        assert_eq!(got.refusal().code(), Some(ErrorCode::NonceGap));
    }
}

#[test]
fn unread_values_are_bounded() {
    const READERS: usize = 20;
    let world = World::new();
    world.create("t");
    let value = vec![7; 16 << 20];
    for (key, value) in [(b"large", &value[..]), (b"small", b"v")] {
        let put = Operation::Put { key, value };
        let proposed = world.store.propose(&[Intention::new("t", put)]);
        proposed.unwrap().wait().unwrap();
    }
    let get = "\n:_topic\tt\n:_key\tlarge\n_request_get\n|\n";
    let mut readers: Vec<Peer> = (0..READERS).map(|_| world.plain()).collect();
    for peer in &mut readers {
        peer.send_text(get);
    }
    // Small requests are served meanwhile. Afterwards, the server has processed all large requests.
    let mut other = world.plain();
    for _ in 0..200 {
        other.send_text("\n:_topic\tt\n:_key\tsmall\n_request_get\n|\n");
        let got = other.next().unwrap();
        assert!(matches!(got.packet().message, Message::Value { .. }));
    }
    let is_waiting = |peer: &Peer| {
        peer.stream.set_nonblocking(true).unwrap();
        let is_empty = peer.stream.peek(&mut [0]).is_err();
        peer.stream.set_nonblocking(false).unwrap();
        is_empty
    };
    let waiting = readers.iter().filter(|peer| is_waiting(peer)).count();
    assert!(
        waiting >= READERS - 16,
        "{waiting} readers wait, but the budget of 256 MiB covers 16 values"
    );
    // Each client gets its value after the earlier clients have read theirs.
    readers.sort_by_cached_key(is_waiting);
    for peer in &mut readers {
        let got = peer.next().unwrap();
        let Message::Value { page } = got.packet().message else {
            panic!("{:?}", got.packet().message);
        };
        assert!(page.len() > value.len());
    }
}

#[test]
fn listeners_continue_when_memory_is_free_again() {
    const READERS: usize = 17;
    let world = World::new();
    world.create("t");
    let value = vec![7; 16 << 20];
    let put = Operation::Put {
        key: b"large",
        value: &value,
    };
    let proposed = world.store.propose(&[Intention::new("t", put)]);
    proposed.unwrap().wait().unwrap();
    for after in [After::Offset(0), After::Latest] {
        let listen = Listen {
            topic: "t",
            after,
            follow: false,
            bytes: 1 << 40,
            records: 1 << 40,
            key: None,
            prefix: None,
            kinds: 0,
            reset_earliest: false,
            query: ListenQuery::default(),
        };
        let mut readers: Vec<Peer> = (0..READERS).map(|_| world.plain()).collect();
        for peer in &mut readers {
            peer.send(&Packet::tagged(b"l", Message::Listen(listen)));
        }
        let value_bytes = value.len();
        std::thread::scope(|scope| {
            for peer in &mut readers {
                scope.spawn(move || {
                    let mut large = 0;
                    loop {
                        match peer.next().unwrap().packet().message {
                            Message::Records { page, .. } if page.len() > value_bytes => large += 1,
                            Message::End { position } => break assert_eq!(position, 3),
                            _ => {}
                        }
                    }
                    assert_eq!(large, 1);
                });
            }
        });
    }
}

#[test]
fn a_filter_without_a_match_does_not_block_other_requests() {
    let world = World::new();
    world.create("t");
    let value = vec![b'v'; 8000];
    let put = Operation::Put {
        key: b"k",
        value: &value,
    };
    let puts = vec![Intention::new("t", put); 400];
    for _ in 0..10 {
        world.store.propose(&puts).unwrap().wait().unwrap();
    }
    let mut peer = world.plain();
    let nothing = Listen {
        topic: "t",
        after: After::Offset(0),
        follow: false,
        bytes: 1,
        records: 1,
        key: Some(b"there is no such key"),
        prefix: None,
        kinds: 0,
        reset_earliest: false,
        query: ListenQuery::default(),
    };
    // More packets than one turn processes, and then the end of the listener, in one write.
    let mut bytes = Peer::bytes(&Packet::tagged(b"f", Message::Listen(nothing)));
    for _ in 0..100 {
        bytes.extend(Peer::bytes(&Packet::new(Message::Ping)));
    }
    bytes.extend(Peer::bytes(&Packet::tagged(b"f", Message::Unlisten)));
    peer.stream.write_all(&bytes).unwrap();
    let position = loop {
        if let Message::End { position } = peer.next().unwrap().packet().message {
            break position;
        }
    };
    assert!(position < 4000, "all records were read at once: {position}");
}

#[test]
fn a_read_that_waits_for_a_lagging_node_is_charged_once() {
    let world = World::with(|config| {
        config.rate_requests = Rate::Units(5);
    });
    world.create("t");
    let mut peer = world.plain();
    // The first record is CREATE; the second one never exists.
    peer.send_text("\n:_topic\tt\n:_key\tk\n:_at_least\t2\n_request_get\n|\n");
    let got = peer.next().unwrap();
    assert_eq!(got.refusal().code(), Some(ErrorCode::Lagging));
}

#[test]
fn a_write_that_waits_for_free_memory_is_charged_once() {
    let world = World::with(|config| {
        config.rate_requests = Rate::Units(20);
    });
    world.create("t");
    let blocked = BlockedThread::new(&world.store, "t");
    // A single write above the limit is admitted if no other is in progress.
    let mut large = world.raw();
    large.hello(&Hello {
        received: true,
        ..Hello::default()
    });
    let value = vec![0; 61 << 20];
    let put = Operation::Put {
        key: b"k",
        value: &value,
    };
    let mut builder = BatchBuilder::default();
    let limits = IntentionLimits {
        value_bytes_max: 64 << 20,
        ..Default::default()
    };
    builder.push(&Intention::new("t", put), &limits).unwrap();
    let items = builder.items();
    large.send(&Packet::new(Message::Write { count: 1, items }));
    let got = large.next().unwrap();
    assert!(matches!(got.packet().message, Message::Received { .. }));
    let mut small = world.plain();
    let items = puts(weir_core::ClientId::NONE, "t", 0, 1);
    let items = &items;
    small.send(&Packet::new(Message::Write { count: 1, items }));
    // Enough time for the server to retry the small write many times.
    let mut other = world.plain();
    for _ in 0..2000 {
        other.send(&Packet::new(Message::Ping));
        other.next().unwrap();
    }
    drop(blocked);
    assert!(matches!(small.outcomes(1)[0], (_, Outcome::Committed(_))));
}

/// Returns the value of a metric.
fn metric(world: &World, name: &str) -> u64 {
    let mut http = TcpStream::connect(world.server.http_addr().unwrap()).unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    http.write_all(request).unwrap();
    let mut page = String::new();
    http.read_to_string(&mut page).unwrap();
    let mut lines = page.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap().parse().unwrap()
}

#[test]
fn a_write_of_a_lost_connection_counts_until_its_verdict() {
    let world = World::with(|config| config.http = "127.0.0.1:0".parse().ok());
    world.create("t");
    let blocked = BlockedThread::new(&world.store, "t");
    let mut peer = world.raw();
    peer.hello(&Hello {
        received: true,
        ..Hello::default()
    });
    peer.send_puts(ClientId::NONE, "t", 0, 1);
    // The client does not read the response, so closing the connection resets it.
    assert_eq!(peer.stream.peek(&mut [0]).unwrap(), 1);
    drop(peer);
    let until_zero = |name: &str| {
        let end = Instant::now() + TEST_TIMEOUT;
        while metric(&world, name) > 0 {
            assert!(Instant::now() < end, "{name} is not 0");
        }
    };
    until_zero("weir_native_connections");
    assert!(metric(&world, "weir_in_flight_bytes") > 0);
    drop(blocked);
    until_zero("weir_in_flight_bytes");
}

#[test]
fn a_write_contains_a_bounded_number_of_programs() {
    let world = World::new();
    let options = TopicOptions::default();
    let limits = IntentionLimits::default();
    let write = |count: u32| {
        let mut builder = BatchBuilder::default();
        for n in 0..count {
            let create = Operation::CreateProgram {
                options: &options,
                code: &n.to_le_bytes(),
                args: &[],
            };
            let topic = format!("p{n}");
            builder
                .push(&Intention::new(&topic, create), &limits)
                .unwrap();
        }
        let items = builder.items();
        Peer::bytes(&Packet::new(Message::Write { count, items }))
    };
    let mut peer = world.plain();
    peer.stream.write_all(&write(65)).unwrap();
    let got = peer.next().unwrap();
    assert_eq!(got.refusal().code(), Some(ErrorCode::TooLarge));
    assert_eq!(got.refusal().limit, Some(64));
    // The maximum number is admitted, and fails only because the store has no engine.
    peer.stream.write_all(&write(64)).unwrap();
    let got = peer.next().unwrap();
    assert_eq!(got.refusal().code(), Some(ErrorCode::EngineMissing));
}

/// Settings that end a client soon if it holds contended memory, so that no test waits for the
/// default deadlines.
fn short_deadlines(config: &mut weir_server::ServerConfig) {
    config.body_rate_after = Duration::ZERO;
    config.body_rate_min = weir_server::Size(1 << 30);
}

#[test]
fn a_client_that_sends_a_large_packet_too_slowly_is_disconnected() {
    let world = World::with(short_deadlines);
    world.create("t");
    let mut peer = world.plain();
    let value = vec![b'x'; 2 << 20];
    let put = Operation::Put {
        key: b"k",
        value: &value,
    };
    let mut builder = BatchBuilder::default();
    let limits = IntentionLimits {
        value_bytes_max: 64 << 20,
        ..IntentionLimits::default()
    };
    builder.push(&Intention::new("t", put), &limits).unwrap();
    let (count, items) = (1, builder.items());
    let bytes = Peer::bytes(&Packet::new(Message::Write { count, items }));
    // The client holds part of the shared budget, and sends nothing more. The server may close the
    // connection already while the client sends.
    drop(peer.stream.write_all(&bytes[..1 << 20]));
    assert!(peer.is_closed());
    // A small packet may arrive slowly, up to the usual deadline.
    let mut small = world.plain();
    let bytes = Peer::bytes(&Packet::tagged(b"p", Message::Ping));
    small.stream.write_all(&bytes[..3]).unwrap();
    let mut other = world.plain();
    other.send(&Packet::tagged(b"q", Message::Ping));
    assert!(other.next().is_some());
    small.stream.write_all(&bytes[3..]).unwrap();
    assert!(small.next().is_some());
}

#[test]
fn a_client_that_does_not_read_large_responses_is_disconnected() {
    let world = World::with(short_deadlines);
    world.create("t");
    let value = vec![b'x'; 48 << 20];
    let put = Operation::Put {
        key: b"k",
        value: &value,
    };
    let put = world.store.propose(&[Intention::new("t", put)]).unwrap();
    put.wait().unwrap();
    let mut peer = world.plain();
    peer.send(&Packet::tagged(
        b"g",
        Message::Get {
            topic: "t",
            key: b"k",
            at_least: 0,
            applied: 0,
        },
    ));
    // The client reads nothing, and the server reads nothing meanwhile. This write fails when the
    // server has closed the connection.
    let bytes = Peer::bytes(&Packet::new(Message::Ping));
    let error = loop {
        if let Err(error) = peer.stream.write_all(&bytes) {
            break error;
        }
    };
    let closed = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    assert!(closed.contains(&error.kind()), "{error}");
}

#[test]
fn the_number_of_connections_per_address_is_limited() {
    let world = World::with(|config| config.connections_per_address_max = 2);
    let first = world.plain();
    let mut second = world.plain();
    assert!(world.raw().is_closed());
    drop(first);
    // The slot is free as soon as the server has detected the end.
    loop {
        let mut peer = world.raw();
        peer.send_text("|\n");
        if peer.stream.peek(&mut [0]).is_ok_and(|size| size > 0) {
            break;
        }
    }
    second.send(&Packet::tagged(b"q", Message::Ping));
    assert!(second.next().is_some());
}

/// A listener that follows topic `t`.
fn listen<'a>() -> Listen<'a> {
    Listen {
        topic: "t",
        after: After::Tail,
        follow: true,
        bytes: 1,
        records: 1,
        key: None,
        prefix: None,
        kinds: 0,
        reset_earliest: false,
        query: ListenQuery::default(),
    }
}

#[test]
fn the_queries_of_the_listeners_of_all_connections_are_bounded() {
    let world = World::with(|config| config.answers_budget = Some(Size(4 << 20)));
    world.create("t");
    let ask = |peer: &mut Peer, tag: u8, letters: usize| {
        let filter = format!("@.a == '{}'", "x".repeat(letters));
        let mut request = listen();
        request.query.pushdown = Some(PushdownQuery {
            filter: filter.as_bytes(),
            ..PushdownQuery::default()
        });
        peer.send(&Packet::tagged(&[tag], Message::Listen(request)));
        let got = peer.next().unwrap();
        if matches!(got.packet().message, Message::Listening { .. }) {
            return None;
        }
        got.refusal().code()
    };
    let mut greedy = world.plain();
    for tag in b'a'..b'f' {
        assert_eq!(ask(&mut greedy, tag, 60_000), None);
    }
    let mut other = world.plain();
    assert_eq!(ask(&mut other, b'a', 60_000), Some(ErrorCode::Busy));
    assert_eq!(ask(&mut other, b'b', 100), None);
    drop(greedy);
    let end = Instant::now() + TEST_TIMEOUT;
    while let Some(code) = ask(&mut other, b'a', 60_000) {
        assert_eq!(code, ErrorCode::Busy);
        assert!(Instant::now() < end, "the memory is not released");
    }
}

#[test]
fn the_texts_of_all_listeners_of_a_connection_are_bounded() {
    let world = World::new();
    world.create("t");
    let mut peer = world.plain();
    let key = vec![b'k'; 65_535];
    let listen = |peer: &mut Peer, tag: &str| {
        let mut request = listen();
        request.key = Some(&key);
        let listens = Message::Listen(request);
        peer.send(&Packet::tagged(tag.as_bytes(), listens));
        let got = peer.next().unwrap();
        if matches!(got.packet().message, Message::Listening { .. }) {
            return None;
        }
        let refusal = got.refusal();
        Some((refusal.code(), refusal.limit))
    };
    // With the topic, each listener has 64 KiB.
    for number in 0..128 {
        assert_eq!(listen(&mut peer, &format!("l{number}")), None, "{number}");
    }
    let refused = Some((Some(ErrorCode::TooLarge), Some(8 << 20)));
    assert_eq!(listen(&mut peer, "more"), refused);
    // The end of a listener releases its bytes.
    peer.send(&Packet::tagged(b"l0", Message::Unlisten));
    assert!(matches!(
        peer.next().unwrap().packet().message,
        Message::End { .. }
    ));
    assert_eq!(listen(&mut peer, "more"), None);
}

#[test]
fn the_listeners_and_claims_of_a_connection_are_limited() {
    let world = World::new();
    world.create("t");
    // After the record of the creation.
    let setup = GroupSetup {
        start: 1,
        ..GroupSetup::new(GroupMode::Shared)
    };
    let step = GroupStep::Open(setup);
    let open = Operation::Cursor { group: "g", step };
    let opened = world.store.propose(&[Intention::new("t", open)]);
    opened.unwrap().wait().unwrap();
    let refused = |got: &ReceivedPacket| {
        let refusal = got.refusal();
        (refusal.code(), refusal.limit)
    };
    let over = |limit: usize| (Some(ErrorCode::TooLarge), Some(limit as u64));
    let mut greedy = world.plain();
    for number in 0..=LISTENERS_MAX {
        let tag = format!("l{number}");
        greedy.send(&Packet::tagged(tag.as_bytes(), Message::Listen(listen())));
        let got = greedy.next().unwrap();
        if number == LISTENERS_MAX {
            assert_eq!(refused(&got), over(LISTENERS_MAX));
        } else {
            assert!(matches!(got.packet().message, Message::Listening { .. }));
        }
    }
    let claim = Message::GroupClaim(GroupClaim {
        topic: "t",
        group: "g",
        member: b"m",
        max: 1,
        wait_ms: CLAIM_WAIT_MS_MAX,
        lease_ms: 0,
    });
    for number in 0..=CLAIMS_MAX {
        let tag = format!("c{number}");
        greedy.send(&Packet::tagged(tag.as_bytes(), claim));
    }
    // The other claims wait for a record.
    assert_eq!(refused(&greedy.next().unwrap()), over(CLAIMS_MAX));
    let mut other = world.plain();
    other.send_puts(ClientId::NONE, "t", 0, 1);
    assert!(matches!(other.outcomes(1)[0], (_, Outcome::Committed(_))));
}
