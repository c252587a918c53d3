//! Bytes that violate the protocol: the server refuses them, closes the connection, and still
//! serves others.

use std::io::{Read, Write};
use std::net::Shutdown;

use weir_core::ErrorCode;
use weir_protocol::{Hello, Message, Packet};

use crate::peer::{CLIENT, Peer, World, puts};

/// Checks that the server still serves another client.
fn assert_serves_others(world: &World) {
    let mut peer = world.plain();
    peer.send(&Packet::tagged(b"p", Message::Ping));
    assert_eq!(peer.next().unwrap().packet().message, Message::Pong);
}

#[test]
fn every_malformed_packet_is_refused_and_ends_the_connection() {
    let world = World::new();
    world.create("t");
    for bad in [
        // Syntax.
        "x\n|\n",
        ":_tag 1\n|\n",
        "99999999999999999999999\n",
        "999999999999\n",
        "18446744073709551616\n",
        "-5\n_request_ping\n|\n",
        "5\n_request_ping\n|\n",
        // State operations and other operators.
        "\n=\n_request_ping\n|\n",
        "\n:_topic\tt\n=_key\ta\n_request_get\n|\n",
        // Repeated, missing and malformed variables.
        "\n:_topic\tt\n:_topic\tt\n:_key\ta\n_request_get\n|\n",
        "\n:_key\ta\n_request_get\n|\n",
        "\n:_topic\tt\n_request_get\n|\n",
        "\n:_topic\tt\n:_offset\t01\n_request_record\n|\n",
        "\n:_topic\tt\n:_offset\t-1\n_request_record\n|\n",
        "\n:_topic\tt\n:_offset\t18446744073709551616\n_request_record\n|\n",
        "\n:_topic\tt\n:_follow\t2\n:_bytes\t1\n:_records\t1\n_request_listen\n|\n",
        "\n:_topic\tt\n:_after\tnever\n:_bytes\t1\n:_records\t1\n_request_listen\n|\n",
        ":_tag\t1\n:_tag\t2\n\n_request_ping\n|\n",
        ":_tag\t\n\n_request_ping\n|\n",
        // Writes.
        "\n_request_write\n|\n",
        "\n:_count\t0\n_request_write\nx\n|\n",
        "\n:_count\t10001\n_request_write\nx\n|\n",
        "\n:_count\t1\n_request_write\nnothing like an item\n|\n",
        "\n:_topic\tt\n:_key\ta\n:_expect\tkey_maybe\n_request_put\nv\n|\n",
        "\n:_topic\tt\n:_key\ta\n:_nonce\t0\n_request_put\nv\n|\n",
        "\n:_topic\tt\n_request_delete\n|\n",
        // A listener without a tag.
        "\n:_topic\tt\n:_bytes\t1\n:_records\t1\n_request_listen\n|\n",
        // HELLO again.
        "\n_request_hello\n|\n",
    ] {
        let mut peer = world.plain();
        peer.send_text(bad);
        let got = peer
            .next()
            .unwrap_or_else(|| panic!("{bad:?} was not answered"));
        let refusal = got.refusal();
        assert_eq!(refusal.code(), Some(ErrorCode::BadRequest), "{bad:?}");
        assert!(refusal.fatal, "{bad:?}");
        assert!(peer.is_closed(), "{bad:?}");
    }
    assert!(world.values("t").is_empty());
    assert_serves_others(&world);
}

#[test]
fn unknown_methods_and_variables_leave_the_connection_open() {
    let world = World::new();
    let mut peer = world.plain();
    for unsupported in [
        ":_tag\tx\n\n_request_dance\n|\n",
        ":_tag\tx\n\n:_require\tgroups dances\n_request_ping\n|\n",
        ":_tag\tx\n\n_request_group_dance\n|\n",
    ] {
        peer.send_text(unsupported);
        let got = peer.next().unwrap();
        assert_eq!(
            got.refusal().code(),
            Some(ErrorCode::Unsupported),
            "{unsupported:?}"
        );
        assert!(!got.refusal().fatal);
        assert_eq!(got.packet().tag, b"x");
    }
    // Ignored: methods that are not requests, unknown variables and routing variables.
    peer.send_text("\n_notice_nothing\n|\n|\n");
    peer.send_text(":_source\tpsyc://x/\n:_tag\ty\n\n:_mood\tgood\n_request_ping\n|\n");
    let got = peer.next().unwrap();
    assert_eq!(
        (got.packet().tag, got.packet().message),
        (&b"y"[..], Message::Pong)
    );
}

#[test]
fn large_packets_before_hello_and_malformed_hellos_are_refused() {
    let world = World::new();
    // The limit is lower before HELLO: this packet would be allowed afterwards.
    let mut peer = world.raw();
    peer.send_text("100000\n");
    assert_eq!(
        peer.next().unwrap().refusal().code(),
        Some(ErrorCode::BadRequest)
    );
    assert!(peer.is_closed());
    // A malformed HELLO is refused, and the connection closes.
    for bad in [
        "\n:_client\t00000000000000000000000000000000\n_request_hello\n|\n",
        "\n:_client\t1\n_request_hello\n|\n",
        "\n:_resume\t1\n_request_hello\n|\n",
        "\n:_client\t11111111111111111111111111111111\n:_resume\t0\n_request_hello\n|\n",
    ] {
        let mut peer = world.raw();
        peer.send_text(bad);
        assert_eq!(
            peer.next().unwrap().refusal().code(),
            Some(ErrorCode::BadRequest)
        );
        assert!(peer.is_closed());
    }
}

/// A stream with one packet of each kind, as a client would send it.
fn stream() -> Vec<u8> {
    let mut bytes = b"|\n".to_vec();
    let hello = Hello {
        client: CLIENT,
        ..Hello::default()
    };
    bytes.extend(Peer::bytes(&Packet::new(Message::Hello(hello))));
    let items = puts(CLIENT, "t", 1, 3);
    let items = &items[..];
    bytes.extend(Peer::bytes(&Packet::new(Message::Write {
        count: 3,
        items,
    })));
    bytes.extend(b":_tag\t1\n\n:_topic\tt\n:_bytes\t100\n:_records\t9\n_request_listen\n|\n");
    bytes.extend(b"\n:_topic\tt\n:_key\tk\n_request_put\nv\n|\n:_tag\t2\n\n_request_ping\n|\n");
    bytes
}

/// Reads the bytes that the server sends until it closes.
fn read_to_end(peer: &mut Peer) {
    let mut rest = Vec::new();
    // A reset is also an end.
    drop(peer.stream.read_to_end(&mut rest));
}

#[test]
fn a_connection_that_ends_at_any_byte_affects_no_other_client() {
    let world = World::new();
    world.create("t");
    let stream = stream();
    for end in 0..stream.len() {
        let mut peer = world.raw();
        peer.stream.write_all(&stream[..end]).unwrap();
        peer.stream.shutdown(Shutdown::Write).unwrap();
        read_to_end(&mut peer);
    }
    assert_serves_others(&world);
    assert_eq!(world.values("t")[..3], [b"1", b"2", b"3"]);
}

#[test]
fn a_flipped_bit_affects_no_other_client() {
    let world = World::new();
    world.create("t");
    let stream = stream();
    for bit in (0..stream.len() * 8).step_by(3) {
        let mut wrong = stream.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        let mut peer = world.raw();
        // The server may have closed before all bytes were written.
        drop(peer.stream.write_all(&wrong));
        drop(peer.stream.shutdown(Shutdown::Write));
        read_to_end(&mut peer);
    }
    assert_serves_others(&world);
}
