//! Listeners, packet by packet.

use bytes::Bytes;
use weir_core::{ErrorCode, RecordKind};
use weir_protocol::{After, Listen, ListenQuery, Message, Packet, PushdownQuery};
use weir_store::Page;

use crate::peer::{CLIENT, Peer, ReceivedPacket, World};

const ALL: Listen<'static> = Listen {
    topic: "t",
    after: After::Offset(0),
    follow: true,
    bytes: 1 << 30,
    records: 1 << 30,
    key: None,
    prefix: None,
    kinds: 0,
    reset_earliest: false,
    query: ListenQuery {
        pushdown: None,
        limit: None,
        until: None,
        marks: false,
        from: None,
    },
};

fn listen(peer: &mut Peer, tag: &[u8], listen: Listen<'_>) -> (u64, u64, u64) {
    peer.send(&Packet::tagged(tag, Message::Listen(listen)));
    let got = peer.next().unwrap();
    assert_eq!(got.packet().tag, tag);
    match got.packet().message {
        Message::Listening {
            position,
            first,
            last,
        } => (position, first, last),
        other => panic!("{other:?}"),
    }
}

fn offsets(got: &ReceivedPacket) -> Vec<u64> {
    let Message::Records { from, page, .. } = got.packet().message else {
        panic!("{:?}", got.packet().message);
    };
    let page = Page::read_from(&Bytes::copy_from_slice(page), from).unwrap();
    page.iter().map(|record| record.unwrap().offset.0).collect()
}

/// Puts `count` records in a separate session.
fn fill(world: &World, count: u32) {
    let (mut peer, next) = world.session(CLIENT);
    for first in (0..count).step_by(5000) {
        let some = (count - first).min(5000);
        peer.send_puts(CLIENT, "t", next + u64::from(first), some);
        peer.outcomes(some as usize);
    }
}

#[test]
fn credit_is_counted_in_bytes_and_in_records() {
    let world = World::new();
    world.create("t");
    fill(&world, 10_000);
    let mut peer = world.plain();
    for (bytes, records) in [(1, 1 << 30), (1 << 30, 1)] {
        let tag = if bytes == 1 { b"b" } else { b"r" };
        let request = Listen {
            bytes,
            records,
            ..ALL
        };
        assert_eq!(listen(&mut peer, tag, request), (1, 1, 10_001));
        // One page exceeds the credit, and no other page precedes the pong.
        let first = offsets(&peer.next().unwrap());
        peer.send(&Packet::tagged(b"p", Message::Ping));
        assert_eq!(peer.next().unwrap().packet().message, Message::Pong);
        let more = Message::Credit {
            bytes: 1 << 20,
            records: 1 << 20,
        };
        peer.send(&Packet::tagged(tag, more));
        let mut seen = first;
        while seen.last() != Some(&10_001) {
            seen.extend(offsets(&peer.next().unwrap()));
        }
        assert_eq!(seen, (1..=10_001).collect::<Vec<_>>());
    }
}

#[test]
fn a_listener_without_follow_gets_an_end() {
    let world = World::new();
    world.create("t");
    fill(&world, 3);
    let mut peer = world.plain();
    let request = Listen {
        follow: false,
        after: After::Offset(2),
        ..ALL
    };
    assert_eq!(listen(&mut peer, b"1", request), (3, 1, 4));
    assert_eq!(offsets(&peer.next().unwrap()), [3, 4]);
    assert_eq!(
        peer.next().unwrap().packet().message,
        Message::End { position: 5 }
    );
    // The tag can be used again.
    listen(&mut peer, b"1", request);
}

/// After an END, a client would believe that the topic has no more records.
#[test]
fn a_draining_server_ends_unfinished_listeners_with_a_refusal() {
    let world = World::new();
    world.create("t");
    fill(&world, 10_000);
    let request = Listen {
        follow: false,
        records: 1,
        ..ALL
    };
    let mut unfinished = world.plain();
    let mut ended = world.plain();
    for peer in [&mut unfinished, &mut ended] {
        listen(peer, b"1", request);
        assert!(offsets(&peer.next().unwrap()).len() < 10_000);
    }
    ended.send(&Packet::new(Message::Bye));
    let got = ended.next().unwrap();
    assert!(matches!(got.packet().message, Message::End { .. }));
    assert_eq!(ended.next().unwrap().packet().message, Message::ByeNotice);

    world.server.drain();
    let got = unfinished.next().unwrap();
    assert!(matches!(got.packet().message, Message::Drain { .. }));
    let got = unfinished.next().unwrap();
    assert_eq!(got.packet().tag, b"1");
    assert_eq!(got.refusal().code(), Some(ErrorCode::Draining));
    assert_eq!(
        unfinished.next().unwrap().packet().message,
        Message::ByeNotice
    );
}

#[test]
fn a_listener_starts_at_the_requested_position() {
    let world = World::new();
    world.create("t");
    fill(&world, 10);
    let mut peer = world.plain();
    for (n, (after, position)) in [
        (After::Tail, 12),
        (After::Last(4), 8),
        (After::Last(100), 1),
        (After::Time(0), 1),
        (After::Time(u64::MAX), 12),
        (After::Offset(500), 501),
        (After::Offset(u64::MAX - 1), u64::MAX),
        (After::Offset(u64::MAX), u64::MAX),
    ]
    .into_iter()
    .enumerate()
    {
        let tag = n.to_string();
        let request = Listen { after, ..ALL };
        peer.send(&Packet::tagged(tag.as_bytes(), Message::Listen(request)));
        let got = peer.next().unwrap();
        let Message::Listening { position: at, .. } = got.packet().message else {
            panic!("{:?}", got.packet());
        };
        assert_eq!(at, position, "{after:?}");
        peer.send(&Packet::tagged(tag.as_bytes(), Message::Unlisten));
        while !matches!(peer.next().unwrap().packet().message, Message::End { .. }) {}
    }
}

#[test]
fn a_filter_sends_matching_records_and_reports_progress() {
    let world = World::new();
    world.create("t");
    fill(&world, 5000);
    let mut peer = world.plain();
    let request = Listen {
        key: Some(b"rare"),
        ..ALL
    };
    listen(&mut peer, b"f", request);
    let mut position = 0;
    let mut progress_messages = 0;
    while position < 5002 {
        let got = peer.next().unwrap();
        let Message::Progress { position: at } = got.packet().message else {
            panic!("{:?}", got.packet().message);
        };
        assert!(at > position);
        position = at;
        progress_messages += 1;
    }
    assert!(progress_messages >= 2, "{progress_messages} messages");
    peer.send_text("\n:_topic\tt\n:_key\trare\n_request_put\nv\n|\n");
    let mut seen = Vec::new();
    while seen.is_empty() {
        let got = peer.next().unwrap();
        match got.packet().message {
            Message::Records { .. } => seen = offsets(&got),
            Message::Committed { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, [5002]);
    let kinds = Listen {
        kinds: 1 << RecordKind::Create as u8,
        follow: false,
        ..ALL
    };
    // The outcome of the put may arrive after the record.
    peer.send(&Packet::tagged(b"k", Message::Listen(kinds)));
    let mut created = Vec::new();
    loop {
        let got = peer.next().unwrap();
        match got.packet().message {
            Message::Records { .. } => created.extend(offsets(&got)),
            Message::End { .. } => break,
            _ => {}
        }
    }
    assert_eq!(created, [1]);
}

#[test]
fn latest_sends_each_key_once_and_then_new_records() {
    let world = World::new();
    world.create("t");
    let mut peer = world.plain();
    for (key, value) in [("b", "1"), ("a", "2"), ("b", "3"), ("c", "4"), ("a", "5")] {
        peer.send_text(&format!(
            "\n:_topic\tt\n:_key\t{key}\n_request_put\n{value}\n|\n"
        ));
    }
    peer.send_text("\n:_topic\tt\n:_key\tc\n_request_delete\n|\n");
    peer.outcomes(6);
    let request = Listen {
        after: After::Latest,
        ..ALL
    };
    listen(&mut peer, b"l", request);
    for offset in [6, 4] {
        let got = peer.next().unwrap();
        assert!(matches!(
            got.packet().message,
            Message::Records { replay: true, .. }
        ));
        assert_eq!(offsets(&got), [offset]);
    }
    peer.send_text(":_tag\tw\n\n:_topic\tt\n:_key\tb\n_request_put\n9\n|\n");
    let new = loop {
        let got = peer.next().unwrap();
        if matches!(got.packet().message, Message::Records { replay: false, .. }) {
            break offsets(&got);
        }
    };
    assert_eq!(new, [8]);
}

#[test]
fn a_query_of_the_latest_values_sends_selected_values() {
    let world = World::new();
    world.create("t");
    let mut peer = world.plain();
    for n in 0..600 {
        let value = format!(r#"{{"n":{n},"even":{}}}"#, n % 2 == 0);
        peer.send_text(&format!(
            "\n:_topic\tt\n:_key\tk{n:03}\n_request_put\n{value}\n|\n"
        ));
    }
    peer.outcomes(600);
    let pushdown = PushdownQuery {
        filter: b"@.even == true",
        select: b"$.n",
        cut: true,
        ..PushdownQuery::default()
    };
    let query = ListenQuery {
        pushdown: Some(pushdown),
        limit: Some(3),
        from: Some(b"k496"),
        ..ListenQuery::default()
    };
    let request = Listen {
        after: After::Latest,
        follow: false,
        // A record that a query accepted is sent, and uses credit.
        records: 1,
        query,
        ..ALL
    };
    listen(&mut peer, b"l", request);
    let mut values = Vec::new();
    loop {
        let got = peer.next().unwrap();
        match got.packet().message {
            Message::Records {
                from,
                replay: true,
                page,
            } => {
                let page = Page::read_from(&Bytes::copy_from_slice(page), from).unwrap();
                let record = page.iter().next().unwrap().unwrap();
                values.push(String::from_utf8(record.value.to_vec()).unwrap());
            }
            Message::Progress { .. } => {}
            Message::End { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(values, ["496", "498", "500"]);
    for (tag, follow, after, query) in [
        (b"1", true, After::Latest, query),
        (
            b"2",
            false,
            After::Latest,
            ListenQuery {
                until: Some(1),
                ..query
            },
        ),
        (b"3", false, After::Offset(0), query),
    ] {
        let listen = Listen {
            follow,
            after,
            query,
            ..ALL
        };
        peer.send(&Packet::tagged(tag, Message::Listen(listen)));
        let got = peer.next().unwrap();
        let Message::Refusal(refusal) = got.packet().message else {
            panic!("{:?}", got.packet().message);
        };
        assert_eq!(refusal.code(), Some(ErrorCode::BadOption));
    }
}

/// Otherwise a lagging node of a cluster would end a query before its last records.
#[test]
fn a_listener_ends_only_after_its_last_intention() {
    let world = World::new();
    world.create("t");
    let mut peer = world.plain();
    let until = |intention| Listen {
        follow: false,
        query: ListenQuery {
            until: Some(intention),
            ..ALL.query
        },
        ..ALL
    };
    peer.send(&Packet::tagged(b"1", Message::Listen(until(4))));
    let got = peer.next().unwrap();
    assert_eq!(got.refusal().code(), Some(ErrorCode::Lagging));
    fill(&world, 3);
    assert_eq!(listen(&mut peer, b"1", until(4)), (1, 1, 4));
    let mut seen = Vec::new();
    loop {
        let got = peer.next().unwrap();
        match got.packet().message {
            Message::Records { .. } => seen.extend(offsets(&got)),
            Message::Progress { .. } => {}
            Message::End { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, [1, 2, 3, 4]);
}

#[test]
fn the_tag_of_a_listener_cannot_be_used_twice() {
    let world = World::new();
    world.create("t");
    let mut peer = world.plain();
    listen(
        &mut peer,
        b"1",
        Listen {
            after: After::Tail,
            ..ALL
        },
    );
    peer.send(&Packet::tagged(b"1", Message::Ping));
    let refused = loop {
        let got = peer.next().unwrap();
        // The listener is refused too.
        if let Message::Refusal(refusal) = got.packet().message
            && refusal.fatal
        {
            break refusal.code();
        }
    };
    assert_eq!(refused, Some(ErrorCode::BadRequest));
}

#[test]
fn many_listeners_of_a_connection_take_turns() {
    let world = World::new();
    world.create("t");
    fill(&world, 20_000);
    let mut peer = world.plain();
    for n in 0..20 {
        let tag = n.to_string();
        peer.send(&Packet::tagged(tag.as_bytes(), Message::Listen(ALL)));
    }
    let mut seen = [0_u64; 20];
    while seen.iter().any(|last| *last < 20_001) {
        let got = peer.next().unwrap();
        if matches!(got.packet().message, Message::Records { .. }) {
            let tag: usize = std::str::from_utf8(got.packet().tag)
                .unwrap()
                .parse()
                .unwrap();
            for offset in offsets(&got) {
                assert_eq!(offset, seen[tag] + 1);
                seen[tag] = offset;
            }
            // No listener is far ahead while another one has not started.
            let (least, most) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
            assert!(most - least <= 20_001);
        }
    }
}
