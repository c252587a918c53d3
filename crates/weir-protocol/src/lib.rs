//! The native protocol, `weir/1`: which packet means what
//! (docs/formats/native.md).
//!
//! [`Message`] is one packet, borrowed from the buffer it was read from;
//! [`Encoder`] renders it; [`Deframer`] finds packets in a stream.
//! [`ServerConnection`] and [`ClientConnection`] keep what both sides must
//! know about a connection: its state, nonces, credits, what is unanswered.
//!
//! Invariants:
//! - The crate has no I/O and no clock.
//! - Reading copies no value.
//! - A declared number allocates nothing.
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

pub use client::{ClientConnection, Fault, Unanswered, is_for_now};
pub use decode::ProtocolError;
pub use encode::Encoder;
pub use fields::{parse_id, write_id};
pub use framing::{Deframer, FrameError};
pub use groups::{GroupAnswer, GroupClaim, GroupLine, GroupLines, GroupOwner, write_group};
pub use items::{DecodedItem, ItemsError, read_items};
pub use lines::{OutcomeLines, TopicLine, TopicLines, join_runs, write_outcome, write_topic};
pub use message::{
    After, Conditions, Consistency, Hello, HelloOk, Listen, ListenQuery, Message, OneKind,
    OneWrite, Packet, ProgramAnswer, PushdownQuery, RefusalMessage,
};
pub use server::{Phase, ServerConnection, WriteFault};
pub use status::{StatusLine, StatusLines, StatusValue, write_status};

/// The version that is spoken here.
pub const VERSION: &str = "weir/1";

/// The feature: parts of queries run at the server.
pub const QUERY: &[u8] = b"query";
/// The feature: they run on the latest values too.
pub const QUERY_LATEST: &[u8] = b"query-latest";
/// The feature: a write without session that names it is refused for now when
/// the write in front of it was.
pub const CHAIN: &[u8] = b"chain";
/// Bytes of each text of a query that a server takes.
pub const QUERY_TEXT_BYTES_MAX: usize = 64_000;
/// Bytes of the parameters of a query that a server takes.
pub const QUERY_PARAMS_BYTES_MAX: usize = 64_000;

/// Bytes of the content of a packet before HELLO was answered.
pub const HELLO_BYTES_MAX: usize = 8 << 10;
/// Bytes of the content of a packet: the largest item, and room for its header.
pub const PACKET_BYTES_MAX: usize = weir_core::limits::ITEM_BYTES_MAX + (64 << 10);
/// Bytes of the value of a variable.
pub const VARIABLE_BYTES_MAX: usize = 65_535;
/// Variables of an entity header.
pub const VARIABLES_MAX: u32 = 64;
/// Variables of a routing header.
pub const ROUTING_VARIABLES_MAX: u32 = 16;
/// Bytes of a routing header.
pub const ROUTING_BYTES_MAX: usize = 4 << 10;
/// Bytes of the name of a variable or method.
pub const NAME_BYTES_MAX: u32 = 64;
/// Bytes of a tag.
pub const TAG_BYTES_MAX: usize = 64;
/// Bytes of the peer address of a node of a cluster.
pub const PEER_ADDRESS_BYTES_MAX: usize = 255;
/// Bytes of a token.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// Bytes of the name of a program that connects.
pub const AGENT_BYTES_MAX: usize = 128;
/// Words in a list of versions or features.
pub const WORDS_MAX: usize = 16;
/// Unanswered nonces of a session.
pub const WINDOW_MAX: u64 = weir_core::limits::SESSION_WINDOW;
/// Unanswered write packets of a connection.
pub const WRITES_MAX: usize = 10_000;
/// Listeners of a connection.
pub const LISTENERS_MAX: usize = 1024;
/// Bytes at which a list of keys, topics or groups is cut, and what a claim brings.
pub const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Bytes of a file in one answer, and of the path of a file.
pub const FILE_BYTES_MAX: usize = 64 << 10;
/// See [`FILE_BYTES_MAX`].
pub const PATH_BYTES_MAX: usize = 255;
/// Records of a claim.
pub const CLAIM_RECORDS_MAX: u64 = 1000;
/// Claims of a connection that wait for their answer.
pub const CLAIMS_MAX: usize = 256;
/// Milliseconds that a claim may wait for records.
pub const CLAIM_WAIT_MS_MAX: u64 = 30_000;
/// Members in the line of a group.
pub const GROUP_MEMBERS_MAX: usize = 1000;
/// Bytes of the text of a refusal.
pub const TEXT_BYTES_MAX: usize = 1024;
pub use weir_core::record::PAGE_HEAD_BYTES;
/// Records that a filter leaves out between two progress marks.
pub const PROGRESS_RECORDS: u64 = 1000;

const _: () = assert!(PACKET_BYTES_MAX > weir_core::limits::BATCH_BYTES_MAX);
const _: () = assert!(VARIABLE_BYTES_MAX >= weir_core::limits::KEY_BYTES_MAX);
