//! Frames between peers (docs/formats/cluster.md, "Peer protocol").
//!
//! Invariants: no byte of a frame is used before its checksum is verified; a declared length
//! reserves at most 64 KiB before the bytes arrive.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, Digest};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes before the body.
pub(crate) const HEAD_BYTES: usize = 20;
/// Bytes of the longest body: an entry of the largest batch, and some reserve.
pub(crate) const BODY_BYTES_MAX: usize = 96 << 20;
/// Bytes of the longest body before the handshake has ended.
pub(crate) const HELLO_BYTES_MAX: usize = 1 << 10;
/// Bytes that are reserved before they have arrived.
const RESERVED_BYTES_MAX: usize = 64 << 10;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Hello = 1,
    Welcome = 2,
    /// The peer rejects the connection; the body has the reason.
    Refused = 3,
    /// A process requests a number for its directory.
    Join = 4,
    Append = 16,
    Vote = 17,
    PreVote = 18,
    Transfer = 19,
    /// A learner asks to become a voter.
    Promote = 20,
    /// A node asks which entry it must have applied before it returns a read.
    ReadIndex = 21,
    /// A leader begins to send a snapshot.
    Snapshot = 22,
    /// Bytes of a file of the snapshot.
    Part = 23,
    /// The leader has sent the whole snapshot.
    Install = 24,
    /// A node asks whether the receiver had the same state after an entry.
    Compare = 25,
    /// A node reports the progress of its directory, and what it has seen of the receiver.
    Report = 26,
    /// A node whose state differs from that of the leader requests the state of the leader.
    Repair = 27,
    /// The leader has sent a whole snapshot, which replaces the state.
    Restore = 28,
    Answer = 32,
    /// The request has failed; the body has the reason.
    Failed = 33,
}

impl Kind {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Hello,
            2 => Self::Welcome,
            3 => Self::Refused,
            4 => Self::Join,
            16 => Self::Append,
            17 => Self::Vote,
            18 => Self::PreVote,
            19 => Self::Transfer,
            20 => Self::Promote,
            21 => Self::ReadIndex,
            22 => Self::Snapshot,
            23 => Self::Part,
            24 => Self::Install,
            25 => Self::Compare,
            26 => Self::Report,
            27 => Self::Repair,
            28 => Self::Restore,
            32 => Self::Answer,
            33 => Self::Failed,
            _ => return None,
        })
    }
}

/// A frame that was read, with a verified checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    /// Number of the request; the reply repeats it.
    pub(crate) number: u64,
    pub(crate) body: Bytes,
}

pub(crate) fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(head);
    digest.update(body);
    let Ok(sum) = u32::try_from(digest.finalize()) else {
        unreachable!("a CRC-32C has 32 bits")
    };
    sum
}

/// Writes a frame and sends it.
pub(crate) async fn write<W: AsyncWrite + Unpin>(
    stream: &mut W,
    kind: Kind,
    number: u64,
    body: &[u8],
) -> io::Result<()> {
    let len = u32::try_from(body.len()).ok();
    let len = len.filter(|len| *len as usize <= BODY_BYTES_MAX);
    let len = len.ok_or_else(|| invalid("a frame to a peer is too long"))?;
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&len.to_le_bytes());
    head[4] = kind as u8;
    head[8..16].copy_from_slice(&number.to_le_bytes());
    let crc = checksum(&head[..16], body);
    head[16..].copy_from_slice(&crc.to_le_bytes());
    // One system call, so that the peer does not wake for the head alone.
    stream
        .write_all_buf(&mut Buf::chain(&head[..], body))
        .await?;
    stream.flush().await
}

/// The head of a frame, whose body has not been read yet.
pub(crate) struct Head {
    bytes: [u8; HEAD_BYTES],
    kind: Kind,
    /// Bytes of the body.
    pub(crate) len: usize,
}

/// Reads a frame with a body of at most `bytes_max` bytes. Returns `None` if the stream ends before
/// the frame.
pub(crate) async fn read<R: AsyncRead + Unpin>(
    stream: &mut R,
    bytes_max: usize,
) -> io::Result<Option<Frame>> {
    match read_head(stream, bytes_max).await? {
        Some(head) => read_body(stream, head).await.map(Some),
        None => Ok(None),
    }
}

/// Reads the head of a frame with a body of at most `bytes_max` bytes. Returns `None` if the stream
/// ends before the frame.
pub(crate) async fn read_head<R: AsyncRead + Unpin>(
    stream: &mut R,
    bytes_max: usize,
) -> io::Result<Option<Head>> {
    let mut head = [0; HEAD_BYTES];
    if stream.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut head[1..]).await?;
    let [l0, l1, l2, l3, kind, z0, z1, z2, ..] = head;
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if len > bytes_max || (z0, z1, z2) != (0, 0, 0) {
        return Err(invalid("a peer sent a frame that is too long"));
    }
    let kind = Kind::from_byte(kind).ok_or_else(|| invalid("a peer sent an unknown frame"))?;
    let bytes = head;
    Ok(Some(Head { bytes, kind, len }))
}

/// Reads the body of a frame.
pub(crate) async fn read_body<R: AsyncRead + Unpin>(
    stream: &mut R,
    head: Head,
) -> io::Result<Frame> {
    let Head {
        bytes: head,
        kind,
        len,
    } = head;
    let mut body = BytesMut::new();
    while body.len() < len {
        let part = (len - body.len()).min(RESERVED_BYTES_MAX.max(body.len()));
        let at = body.len();
        body.resize(at + part, 0);
        let (_, unfilled) = body.split_at_mut(at);
        stream.read_exact(unfilled).await?;
    }
    let (covered, crc) = head.split_at(16);
    if crc != checksum(covered, &body).to_le_bytes() {
        return Err(invalid("a frame of a peer is not as it was sent"));
    }
    let Some(number) = covered.last_chunk() else {
        unreachable!("a head ends with a number of 8 bytes")
    };
    Ok(Frame {
        kind,
        number: u64::from_le_bytes(*number),
        body: body.freeze(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_are_read_as_written_and_any_flipped_bit_is_detected() {
        let body = vec![7; 200_000];
        let mut bytes = Vec::new();
        write(&mut bytes, Kind::Append, 9, &body).await.unwrap();
        let read_back = read(&mut &bytes[..], BODY_BYTES_MAX)
            .await
            .unwrap()
            .unwrap();
        assert_eq!((read_back.kind, read_back.number), (Kind::Append, 9));
        assert_eq!(read_back.body, body);
        assert_eq!(read(&mut &[][..], 1).await.unwrap(), None);
        let mut short = Vec::new();
        write(&mut short, Kind::Vote, 1, b"vote").await.unwrap();
        for bit in 0..short.len() * 8 {
            let mut bad = short.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(
                read(&mut &bad[..], BODY_BYTES_MAX).await.is_err(),
                "bit {bit}"
            );
        }
        for cut in 1..short.len() {
            assert!(read(&mut &short[..cut], BODY_BYTES_MAX).await.is_err());
        }
    }

    #[tokio::test]
    async fn a_declared_length_above_the_limit_is_rejected() {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        head[4] = Kind::Hello as u8;
        assert!(read(&mut &head[..], BODY_BYTES_MAX).await.is_err());
        let limit = u32::try_from(BODY_BYTES_MAX).unwrap();
        head[..4].copy_from_slice(&limit.to_le_bytes());
        assert!(read(&mut &head[..], BODY_BYTES_MAX).await.is_err());
    }
}
