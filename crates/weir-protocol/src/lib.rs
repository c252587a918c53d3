//! The native protocol, `weir/1`: the messages, and their packets (docs/formats/native.md).
//!
//! [`Message`] is one packet, which borrows from the buffer it was read from; [`Encoder`]
//! renders it; [`Deframer`] finds packets in a stream. [`ServerConnection`] and
//! [`ClientConnection`] track the state of a connection on each side: its phase, nonces,
//! credits and unanswered writes.
//!
//! Invariants:
//! - The crate has no I/O and no clock.
//! - Reading copies no value.
//! - A number announced by the peer allocates no memory by itself.
#![forbid(unsafe_code)]

mod client;
mod decode;
mod encode;
mod fields;
mod framing;
mod groups;
mod items;
mod lines;
mod message;
mod server;
mod status;

pub use client::{ClientConnection, Fault, Unanswered, is_retryable};
pub use decode::ProtocolError;
pub use encode::Encoder;
pub use fields::{parse_id, write_id};
pub use framing::{Deframer, FrameError};
pub use groups::{GroupAnswer, GroupClaim, GroupLine, GroupLines, GroupOwner, write_group};
pub use items::{DecodedItem, ItemsError, read_items};
pub use lines::{OutcomeLines, TopicLine, TopicLines, join_runs, write_outcome, write_topic};
pub use message::{
    After, Conditions, Consistency, Hello, HelloOk, Listen, ListenQuery, Message, Packet,
    ProgramAnswer, PushdownQuery, RefusalMessage, TextOperation, TextWrite,
};
pub use server::{Phase, ServerConnection, WriteFault};
pub use status::{StatusLine, StatusLines, StatusValue, write_status};

/// The protocol version of this crate.
pub const VERSION: &str = "weir/1";

/// Feature word: the server runs parts of queries.
pub const QUERY: &[u8] = b"query";
/// Feature word: the server runs parts of queries on the latest values too.
pub const QUERY_LATEST: &[u8] = b"query-latest";
/// Feature word: a write without a session that names this feature is refused with a
/// retryable error if the previous write on the connection was.
pub const CHAIN: &[u8] = b"chain";
/// Feature word: the server knows the consistency of all reads, not only of reads of keys.
pub const CONSISTENCY: &[u8] = b"consistency";
/// Largest size in bytes of each text of a query.
pub const QUERY_TEXT_BYTES_MAX: usize = 64_000;
/// Largest size in bytes of the parameters of a query.
pub const QUERY_PARAMS_BYTES_MAX: usize = 64_000;

/// Largest size in bytes of the content of a packet before HELLO is answered.
pub const HELLO_BYTES_MAX: usize = 8 << 10;
/// Largest size in bytes of the content of a packet: the largest item, and room for its
/// header.
pub const PACKET_BYTES_MAX: usize = weir_core::limits::ITEM_BYTES_MAX + (64 << 10);
/// Largest size in bytes of the value of a variable.
pub const VARIABLE_BYTES_MAX: usize = 65_535;
/// Maximum number of variables in an entity header.
pub const VARIABLES_MAX: u32 = 64;
/// Maximum number of variables in a routing header.
pub const ROUTING_VARIABLES_MAX: u32 = 16;
/// Largest size in bytes of a routing header.
pub const ROUTING_BYTES_MAX: usize = 4 << 10;
/// Largest size in bytes of the name of a variable or method.
pub const NAME_BYTES_MAX: u32 = 64;
/// Largest size in bytes of a tag.
pub const TAG_BYTES_MAX: usize = 64;
/// Largest size in bytes of the peer address of a node of a cluster.
pub const PEER_ADDRESS_BYTES_MAX: usize = 255;
/// Largest size in bytes of a token.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// Largest size in bytes of the name and version of a client or server program.
pub const AGENT_BYTES_MAX: usize = 128;
/// Maximum number of words in a list of versions or features.
pub const WORDS_MAX: usize = 16;
/// Maximum number of unanswered nonces of a session.
pub const WINDOW_MAX: u64 = weir_core::limits::SESSION_WINDOW;
/// Maximum number of unanswered write packets of a connection.
pub const WRITES_MAX: usize = 10_000;
/// Maximum number of operations in all transactions of a write. An operation takes more memory
/// while it is decoded than in the packet. A write of 4 MiB never has so many.
pub const OPERATIONS_MAX: usize = 1 << 20;
/// Maximum number of listeners of a connection.
pub const LISTENERS_MAX: usize = 1024;
/// Largest size in bytes of the topics, keys and queries of all listeners of a connection.
pub const LISTENERS_BYTES_MAX: usize = 8 << 20;
/// Soft limit in bytes of a list of keys, topics or groups, and of the records of a claim.
pub const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Largest part of a file in one answer, in bytes.
pub const FILE_BYTES_MAX: usize = 64 << 10;
/// Largest size in bytes of the path of a file.
pub const PATH_BYTES_MAX: usize = 255;
/// Maximum number of records of a claim.
pub const CLAIM_RECORDS_MAX: u64 = 1000;
/// Maximum number of claims of a connection that wait for records.
pub const CLAIMS_MAX: usize = 256;
/// Longest time in milliseconds that a claim may wait for records.
pub const CLAIM_WAIT_MS_MAX: u64 = 30_000;
/// Maximum number of members in the line of a group.
pub const GROUP_MEMBERS_MAX: usize = 1000;
/// Largest size in bytes of the text of a refusal.
pub const TEXT_BYTES_MAX: usize = 1024;
pub use weir_core::record::PAGE_HEAD_BYTES;
/// Number of records that a filter omits between two PROGRESS messages.
pub const PROGRESS_RECORDS: u64 = 1000;

const _: () = assert!(PACKET_BYTES_MAX > weir_core::limits::BATCH_BYTES_MAX);
const _: () = assert!(VARIABLE_BYTES_MAX >= weir_core::limits::KEY_BYTES_MAX);
