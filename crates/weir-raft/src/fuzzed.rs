//! Functions for the fuzz target of the peer port.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::frame::{self, BODY_BYTES_MAX, Frame, HELLO_BYTES_MAX, Kind};
use crate::wire::{self, Hello, Join, JoinAnswer};

/// The result of a future over bytes in memory, which never waits.
fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

/// The bytes of a frame of `kind`; if that kind does not exist, of a HELLO.
#[must_use]
pub fn peer_frame(kind: u8, number: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let kind = Kind::from_byte(kind).unwrap_or(Kind::Hello);
    // A body that exceeds the limit of a frame yields no bytes.
    drop(ready(frame::write(&mut bytes, kind, number, body)));
    bytes
}

/// The body of a HELLO for a node of this cluster.
#[must_use]
pub fn peer_hello(cluster: [u8; 16], from: u64, to: u64) -> Vec<u8> {
    let hello = Hello {
        cluster,
        from,
        to,
        from_incarnation: 1,
        to_incarnation: 0,
        is_synced: true,
    };
    hello.encode()
}

/// Whether `body` is the body of a request to join, which has an effect.
#[must_use]
pub fn is_join(body: &[u8]) -> bool {
    Join::decode(body).is_ok()
}

/// Reads bytes as a stream of a peer, and every body as each kind of message. Returns the number of
/// frames.
#[must_use]
pub fn read_as_peer(bytes: &[u8]) -> usize {
    let mut stream = bytes;
    drop(ready(frame::read(&mut stream, HELLO_BYTES_MAX)));
    let (mut stream, mut frames) = (bytes, 0);
    while let Some(Ok(Some(Frame { body, .. }))) = ready(frame::read(&mut stream, BODY_BYTES_MAX)) {
        frames += 1;
        read_body(&body);
    }
    read_body(&Bytes::copy_from_slice(bytes));
    frames
}

fn read_body(body: &Bytes) {
    let _ = Hello::decode(body).is_ok();
    drop(Join::decode(body));
    drop(JoinAnswer::decode(body));
    drop(wire::split_clock(body.clone()));
    let _ = wire::decode_welcome(body).is_ok();
    let _ = wire::decode_index(body).is_ok();
    let _ = wire::decode_compare(body).is_ok();
    drop(wire::decode_names(body));
    let _ = wire::decode_reports(body).is_ok();
    // It has nothing to drop.
    let _ = wire::decode_agreement(body).is_ok();
    drop(wire::decode_append(body));
    drop(wire::decode_append_answer(body));
    drop(wire::decode_snapshot(body));
    let _ = wire::decode_part(body).is_ok();
    drop(wire::decode_snapshot_answer(body));
    drop(wire::decode_vote(body));
    drop(wire::decode_vote_answer(body));
    drop(wire::decode_transfer(body));
    drop(wire::decode_transfer_answer(body));
}
