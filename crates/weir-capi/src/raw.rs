//! The structures of `weir.h`, field by field.
//!
//! Invariants:
//! - `tests/header.rs` compares each size, offset and name here with those that a C compiler finds
//!   in the header, and with the tables of `docs/formats/abi.md`.
//! - Every type is valid for all bit patterns. Enumerations are integers, which are checked when
//!   they are read.

#![allow(clippy::doc_markdown, reason = "the header has these sentences too")]
#![allow(
    missing_docs,
    reason = "a field without a sentence here has none in the header either"
)]

use std::ffi::{c_char, c_void};

pub use crate::psyc::raw::*;

/// Returns lent memory to the caller. The library calls it on any thread. It must not call the
/// library, block or throw.
pub type Release = extern "C" fn(user: *mut c_void, ptr: *const u8, len: usize);

/// A handle of a store: a directory, or a connection to a server.
#[derive(Debug)]
#[repr(C)]
pub struct Weir {
    _nothing: [u8; 0],
}

/// A handle of a session: a writer whose intentions are executed once.
#[derive(Debug)]
#[repr(C)]
pub struct Session {
    _nothing: [u8; 0],
}

/// A handle of verdicts that are pending.
#[derive(Debug)]
#[repr(C)]
pub struct Pending {
    _nothing: [u8; 0],
}

/// A handle of a reader, which reads one topic in order.
#[derive(Debug)]
#[repr(C)]
pub struct Reader {
    _nothing: [u8; 0],
}

/// A handle of a member of a group.
#[derive(Debug)]
#[repr(C)]
pub struct Group {
    _nothing: [u8; 0],
}

/// A handle of a run of a query.
#[derive(Debug)]
#[repr(C)]
pub struct Query {
    _nothing: [u8; 0],
}

/// A handle of a page: a result; immutable, reference-counted.
#[derive(Debug)]
#[repr(C)]
pub struct Page {
    _nothing: [u8; 0],
}

/// A handle of memory of the library that the caller fills and passes to a query.
#[derive(Debug)]
#[repr(C)]
pub struct Buffer {
    _nothing: [u8; 0],
}

/// A handle of a list that receives the cookies of returned loans.
#[derive(Debug)]
#[repr(C)]
pub struct Loans {
    _nothing: [u8; 0],
}

/// Borrowed bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Slice {
    /// First byte.
    pub ptr: *const u8,
    /// Number of bytes.
    pub len: usize,
}

/// The error of a call. Optional in every call; need not be initialised; a failure writes all of
/// its fields. This structure never changes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Error {
    /// 0.
    pub reserved: u32,
    /// The return value of the call.
    pub code: i32,
    /// Number of a source of a query, or `WEIR_NO_SOURCE`.
    pub source: u32,
    /// Index in the caller's array of the rejected element, or index of the item; else 0.
    pub detail: u32,
    /// First wrong byte of a page or text; first remaining offset; next nonce.
    pub offset: u64,
    /// UTF-8, zero-terminated, truncated at a character.
    pub message: [c_char; 240],
}

/// A span. In a page of records: the value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Item {
    /// First byte.
    pub ptr: *const u8,
    /// Number of bytes.
    pub len: u64,
    /// Of `ptr` in buffer `buffer` of the page.
    pub offset: u64,
    /// Index of a buffer; UINT32_MAX for an empty item outside of all buffers.
    pub buffer: u32,
    /// Number of a source of a query, or `WEIR_NO_SOURCE`.
    pub source: u32,
    /// `WEIR_ITEM_...`.
    pub flags: u32,
    /// Number of the item in its input page, from 0.
    pub index: u32,
}

/// Element i describes item i of a page of records.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Record {
    /// Position in its topic, from 1.
    pub offset: u64,
    /// Position of its intention in the order of the whole store.
    pub intention: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// Of the session; 0 without.
    pub nonce: u64,
    /// Of the session; zeros without.
    pub client: [u8; 16],
    pub key: *const u8,
    /// Bytes of `key`.
    pub key_len: u64,
    /// In buffer `buffer`.
    pub key_offset: u64,
    pub meta: *const u8,
    /// Bytes of `meta`.
    pub meta_len: u64,
    /// In buffer `buffer`.
    pub meta_offset: u64,
    pub term: u64,
    /// Of a record from a group: id of the claim.
    pub claim: u64,
    /// `WEIR_RECORD_...`.
    pub kind: u32,
    /// 1: last record of its intention; 2: part of a transaction.
    pub flags: u32,
    /// Of a record from a group: deliveries, including this one.
    pub attempts: u32,
    /// Index of the buffer with key and meta.
    pub buffer: u32,
}

/// The whole content of a page. The pointers are valid until the page is released; NULL if the
/// count is 0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PageInfo {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// `WEIR_PAGE_...`.
    pub kind: u32,
    pub items: *const Item,
    /// Number of elements of `items`.
    pub item_count: usize,
    pub records: *const Record,
    /// `item_count`, or 0.
    pub record_count: usize,
    pub buffers: *const Slice,
    /// Number of elements of `buffers`.
    pub buffer_count: usize,
    /// Of all items.
    pub bytes: u64,
    /// Of results: bad items skipped so far, in the whole query.
    pub skipped: u64,
    /// Of needs: suggested size of a page, in bytes.
    pub hint: u64,
    /// Of records: the next read continues after this offset.
    pub position: u64,
    pub reserved: u64,
}

/// The description of an error. All texts are static and not zero-terminated.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CodeInfo {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    pub code: i32,
    /// Who caused it: 1 caller, 2 peer, 3 environment, 4 Weir.
    pub fault: u32,
    /// When to retry: 1 immediately, 2 later or after following the advice, 3 never.
    pub retry: u32,
    pub name: Slice,
    pub sentence: Slice,
    pub advice: Slice,
}

/// `weir_open_options` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OpenOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// 1 group, 2 each, 3 interval, 4 memory; 0: 1.
    pub durability: u32,
    /// Of `interval`, at least 1.
    pub interval_ms: u64,
    /// `WEIR_OPEN_...`.
    pub flags: u32,
    pub reserved: u32,
    /// Name of the program, for the message to others that find the store locked.
    pub program: Slice,
    /// 0: 1 GiB.
    pub snapshot_log_bytes: u64,
    /// 0: 64 MiB.
    pub log_segment_bytes: u64,
    /// 0: 1024.
    pub key_bytes_max: u64,
    /// 0: 1 MiB; at most 64 MiB.
    pub value_bytes_max: u64,
}

/// `weir_connect_options` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ConnectOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// `WEIR_CONNECT_...`.
    pub flags: u32,
    /// Token that proves the identity of the client.
    pub token: Slice,
    /// For `weirs://`: file with the certificate authority, PEM; empty: the system's.
    pub authority: Slice,
    /// For `weirs://`: file with the client certificate, PEM.
    pub certificate: Slice,
    /// File with the key of the certificate, PEM.
    pub key: Slice,
    /// Name and version of the client program, for people.
    pub agent: Slice,
    /// 0: 5,000.
    pub connect_ms: u64,
    /// 0: 30,000.
    pub patience_ms: u64,
}

/// `weir_info` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Info {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// 1: open in this process; 2: at a server.
    pub place: u32,
    /// As in `weir_open_options`.
    pub durability: u32,
    pub reserved: u32,
    /// Of `interval`.
    pub interval_ms: u64,
    pub store_id: [u8; 16],
}

/// A condition. If a condition of an intention does not hold, the intention is INVALID with
/// `WEIR_E_CONFLICT`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Expect {
    /// `WEIR_EXPECT_...`.
    pub kind: u32,
    /// 0: the key of the intention.
    pub has_key: u32,
    pub key: Slice,
    pub offset: u64,
}

/// A step of a transaction.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Step {
    /// `WEIR_PUT` or `WEIR_DELETE`.
    pub operation: u32,
    pub reserved: u32,
    pub key: Slice,
    pub value: Slice,
    pub meta: Slice,
}

/// `weir_topic_options` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TopicOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// `WEIR_TOPIC_...`: which of the numbers below are set.
    pub set: u32,
    /// 0 off, 1 latest.
    pub compaction: u32,
    /// Of a program: 1 none, 2 keys and values, 3 its memory; 0: 2.
    pub state: u32,
    pub tombstone_ttl_ms: u64,
    pub compaction_lag_ms: u64,
    pub key_bytes_max: u64,
    pub value_bytes_max: u64,
    pub keys_max: u64,
    pub retention_age_ms: u64,
    pub retention_bytes: u64,
    pub retention_records: u64,
    pub fuel_max: u64,
    pub memory_bytes_max: u64,
    pub emits_max: u64,
    pub emit_bytes_max: u64,
    pub state_entries_max: u64,
    pub state_bytes_max: u64,
    /// Names of groups.
    pub hold_for_groups: *const Slice,
    /// Number of elements of `hold_for_groups`.
    pub hold_for_groups_count: usize,
}

/// An operation to execute. All elements of an array must have the `struct_size` of the first one,
/// which is the step of the array.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Intention {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// `WEIR_PUT`, ...
    pub operation: u32,
    pub topic: Slice,
    /// Of PUT and DELETE; empty: PUT without a key.
    pub key: Slice,
    /// Of PUT.
    pub value: Slice,
    /// Stored with the record, at most 4 KiB, not interpreted.
    pub meta: Slice,
    /// At most 64 conditions.
    pub expects: *const Expect,
    /// Number of elements of `expects`.
    pub expect_count: usize,
    /// Of TRANSACTION.
    pub steps: *const Step,
    /// Number of elements of `steps`.
    pub step_count: usize,
    /// Of CREATE and ALTER; NULL: defaults.
    pub options: *const TopicOptions,
    /// Of CREATE (with a program) and REPLACE: the module.
    pub code: Slice,
    /// Arguments of the program.
    pub args: Slice,
    /// Of REPLACE: SHA-256 of the code to be replaced; empty: any.
    pub replaced: Slice,
}

/// The verdict on an intention. A verdict other than VALID is a value, not an error of the call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Verdict {
    /// `WEIR_VALID`, ...
    pub effect: i32,
    /// 0, or `WEIR_E_...`.
    pub reason: i32,
    /// Position in the order of the whole store; 0 if REFUSED.
    pub intention: u64,
    /// Of its first record; 0 if it has none.
    pub offset: u64,
    /// Of the session; 0 without.
    pub nonce: u64,
    /// That the program of the topic used.
    pub fuel: u64,
    /// Its meaning depends on `detail_kind`.
    pub detail: u64,
    pub records: u32,
    /// 1: stored verdict of an earlier attempt with the same nonce.
    pub flags: u32,
    /// `WEIR_DETAIL_...`.
    pub detail_kind: u32,
    /// Of `WEIR_DETAIL_STEP`: `WEIR_E_...`.
    pub detail_reason: i32,
}

/// `weir_topic_info` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TopicInfo {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// 1 if it exists, else 0.
    pub live: u32,
    pub id: u64,
    /// The intention that created it; 0 if it does not exist.
    pub incarnation: u64,
    /// Offset of the oldest remaining record; 0 for none.
    pub first: u64,
    /// Offset of the newest record.
    pub last: u64,
    /// Number of keys with a value.
    pub keys: u64,
    /// Stored size of its records.
    pub bytes: u64,
}

/// `weir_read_options` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ReadOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// `WEIR_FROM_...`.
    pub from: u32,
    /// AFTER: an offset; LAST: a number of offsets; TIME: milliseconds since 1970.
    pub value: u64,
    /// `WEIR_READ_...`.
    pub flags: u32,
    pub reserved: u32,
}

/// `weir_group_options` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GroupOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// 1 exclusive, 2 keyed, 3 shared.
    pub mode: u32,
    /// `WEIR_GROUP_EXISTING`: do not create the group; `WEIR_E_GROUP_UNKNOWN`.
    pub flags: u32,
    /// `WEIR_FROM_...`: the position at which a new group starts.
    pub from: u32,
    /// Name of the member, 1 to 64 bytes; empty: from process id and time.
    pub member: Slice,
    /// Lease of the claims of this member; 0: the lease of the group.
    pub claim_lease_ms: u64,
    /// As `value` of `weir_read_options`.
    pub value: u64,
    /// 0: 30,000.
    pub lease_ms: u64,
    /// 0: no limit.
    pub attempts_max: u32,
    /// 0: 100,000.
    pub pending_max: u32,
    /// Topic; set if and only if `attempts_max` is set.
    pub dead_letters: Slice,
}

/// `weir_group_info` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GroupInfo {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    pub mode: u32,
    /// Every record up to this offset is acknowledged.
    pub cursor: u64,
    /// Every record after this offset is new.
    pub frontier: u64,
    /// Newest record of the topic.
    pub last: u64,
    /// Number of offsets that are not acknowledged.
    pub lag: u64,
    /// Records that members have claimed.
    pub leased: u64,
    /// Records to be claimed again.
    pub waiting: u64,
    pub redeliveries: u64,
    /// Records that became dead letters after `attempts_max` deliveries.
    pub dead_lettered: u64,
    /// Dead letters that are not written yet.
    pub unwritten_dead_letters: u64,
}

/// A claimed record. Its `weir_record` has both numbers.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Claim {
    pub offset: u64,
    pub claim: u64,
}

/// A name and a JSON scalar.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Param {
    pub name: Slice,
    pub value: Slice,
}

/// The fields of docs/guide/query.md. A budget of 0 is the default.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QueryOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// `WEIR_QUERY_...`.
    pub flags: u32,
    pub r#where: Slice,
    pub order: Slice,
    pub select: Slice,
    pub group: Slice,
    pub offset: u64,
    /// With `WEIR_QUERY_LIMIT`.
    pub limit: u64,
    /// With `WEIR_QUERY_TOP`; with both, the smaller one applies.
    pub top: u64,
    pub params: *const Param,
    /// Number of elements of `params`.
    pub param_count: usize,
    /// To resume an earlier run; empty: from the beginning.
    pub token: Slice,
    /// 1 sequential, 2 arrival, 3 round robin, 4 merge, 5 sort; 0: derived from `order`.
    pub mode: u32,
    /// `WEIR_LEVEL_...`.
    pub level: u32,
    /// 0 error, 1 skip, 2 undefined.
    pub on_bad_item: u32,
    /// With `WEIR_QUERY_PAGES_AHEAD`; default 1.
    pub pages_ahead: u32,
    pub buffer_bytes_max: u64,
    /// Of a sort: bytes of its pages and of what it stores for each item.
    pub sort_bytes_max: u64,
    pub groups_max: u64,
    pub distinct_max: u64,
    pub page_bytes_max: u64,
    pub item_bytes_max: u64,
    pub page_bytes_hint: u64,
    pub sources_max: u32,
    pub depth_max: u32,
}

/// `weir_source_options` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SourceOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// `WEIR_SOURCE_...`.
    pub flags: u32,
    /// Name in messages and tokens; empty: the number of the source.
    pub name: Slice,
    /// `WEIR_SHAPE_...`.
    pub shape: u32,
    /// `WEIR_LEVEL_...`; default: that of the query.
    pub level: u32,
    /// Of `WEIR_SHAPE_MEMBER`: path of the array.
    pub member: Slice,
    /// With `WEIR_SOURCE_ORDINAL`; default: after the existing sources.
    pub ordinal: u64,
    /// With `WEIR_SOURCE_FIRST`: the name of the first page.
    pub first: Slice,
    /// Path of the value that orders items with equal keys; empty: none.
    pub tie: Slice,
    /// Properties that all items of the source share.
    pub meta: *const Param,
    /// Number of elements of `meta`.
    pub meta_count: usize,
    /// With `WEIR_SOURCE_BOUND`: lower bound of the keys, JSON scalars.
    pub bound: *const Slice,
    /// Number of elements of `bound`.
    pub bound_count: usize,
}

/// `weir_topics_options` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TopicsOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// 0: all records; 1: the latest record of each key.
    pub view: u32,
    /// Names of topics, or patterns: `a.*` one more part, `a.**` one or more.
    pub topics: *const Slice,
    /// Number of elements of `topics`.
    pub topic_count: usize,
    /// `WEIR_END_...`.
    pub end: u32,
    /// Bits 1 << `WEIR_RECORD_...`: which records are items; 0: PUT.
    pub kinds: u32,
    /// Of `WEIR_END_AS_OF`: an intention.
    pub as_of: u64,
    /// `WEIR_TOPICS_...`.
    pub flags: u32,
    /// `WEIR_FROM_...`: the first record of each topic; `WEIR_FROM_START` with view 1.
    pub from: u32,
    /// Longest wait for records that exist; 0: 30,000.
    pub patience_ms: u64,
    /// As `value` of `weir_read_options`.
    pub value: u64,
}

/// How a loan is returned: with a call of `release`, or by adding `cookie` to `loans`. Set exactly
/// one of `release` and `loans`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Loan {
    pub release: Option<Release>,
    pub user: *mut c_void,
    pub loans: *mut Loans,
    pub cookie: u64,
}

/// A range of bytes in a text or a page.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Frame {
    pub offset: u32,
    /// Number of bytes.
    pub len: u32,
}

/// A property of an item of a page of the shape FRAMED.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Meta {
    /// 0 nothing, 1 number, 2 bytes of the page.
    pub kind: u32,
    /// Length of the bytes.
    pub len: u32,
    /// The number, or the offset of the bytes.
    pub number: u64,
}

/// The positions of the items of a page of the shape FRAMED. `metas` has, item by item, one entry
/// for each property that the query uses, in the order of `weir_query_metas`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Frames {
    pub spans: *const Frame,
    /// Number of elements of `spans`.
    pub span_count: usize,
    pub metas: *const Meta,
    /// Number of elements of `metas`.
    pub meta_count: usize,
}
