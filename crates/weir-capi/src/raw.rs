//! The structures of `weir.h`, field by field.
//!
//! Invariants:
//! - `tests/header.rs` compares each size, offset and name here with those that a C compiler finds
//!   in the header, and with the tables of `docs/formats/abi.md`.
//! - Every type is valid for all bit patterns. Enumerations are integers, which are checked when
//!   they are read.

#![allow(clippy::doc_markdown, reason = "these are the sentences of the header")]

use std::ffi::{c_char, c_void};

pub use crate::psyc::raw::*;

/// Gives lent memory back.
pub type Release = extern "C" fn(user: *mut c_void, ptr: *const u8, len: usize);

/// A handle: a store: a directory, or a connection to a server.
#[derive(Debug)]
#[repr(C)]
pub struct Weir {
    _nothing: [u8; 0],
}

/// A handle: a writer whose intentions are executed once.
#[derive(Debug)]
#[repr(C)]
pub struct Session {
    _nothing: [u8; 0],
}

/// A handle: verdicts that are on their way.
#[derive(Debug)]
#[repr(C)]
pub struct Pending {
    _nothing: [u8; 0],
}

/// A handle: reads one topic in order.
#[derive(Debug)]
#[repr(C)]
pub struct Reader {
    _nothing: [u8; 0],
}

/// A handle: a member of a group.
#[derive(Debug)]
#[repr(C)]
pub struct Group {
    _nothing: [u8; 0],
}

/// A handle: a run of a query.
#[derive(Debug)]
#[repr(C)]
pub struct Query {
    _nothing: [u8; 0],
}

/// A handle: something that was given out; immutable, counted.
#[derive(Debug)]
#[repr(C)]
pub struct Page {
    _nothing: [u8; 0],
}

/// A handle: memory of ours to be filled and given to a query.
#[derive(Debug)]
#[repr(C)]
pub struct Buffer {
    _nothing: [u8; 0],
}

/// A handle: where the numbers of returned loans arrive.
#[derive(Debug)]
#[repr(C)]
pub struct Loans {
    _nothing: [u8; 0],
}

/// Bytes of somebody else.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Slice {
    /// Ptr.
    pub ptr: *const u8,
    /// Len.
    pub len: usize,
}

/// What went wrong. Optional everywhere; need not be initialised; written whole. Never changes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Error {
    /// 0.
    pub reserved: u32,
    /// What the call returned.
    pub code: i32,
    /// Of a query, or `WEIR_NO_SOURCE`.
    pub source: u32,
    /// Index of what was refused in the caller's array, or of the item; else 0.
    pub detail: u32,
    /// First wrong byte of a page or text; first offset left; next nonce.
    pub offset: u64,
    /// UTF-8, ended by a zero, cut at a character.
    pub message: [c_char; 240],
}

/// A span. In a page of records: the value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Item {
    /// Ptr.
    pub ptr: *const u8,
    /// Len.
    pub len: u64,
    /// Of ptr in buffer `buffer` of the page.
    pub offset: u64,
    /// Index; `UINT32_MAX` for an empty item that lies in none.
    pub buffer: u32,
    /// Of a query, or `WEIR_NO_SOURCE`.
    pub source: u32,
    /// `WEIR_ITEM_`
    pub flags: u32,
    /// Number of the item in the page it came in, from 0.
    pub index: u32,
}

/// What belongs to item i of a page of records, at index i.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Record {
    /// In its topic, from 1.
    pub offset: u64,
    /// What caused it, in the order of the whole store.
    pub intention: u64,
    /// Since 1970-01-01 UTC.
    pub time_ms: u64,
    /// Of the session; 0 without.
    pub nonce: u64,
    /// Of the session; zeros without.
    pub client: [u8; 16],
    /// Key.
    pub key: *const u8,
    /// Key len.
    pub key_len: u64,
    /// In buffer `buffer`.
    pub key_offset: u64,
    /// Meta.
    pub meta: *const u8,
    /// Meta len.
    pub meta_len: u64,
    /// In buffer `buffer`.
    pub meta_offset: u64,
    /// Term.
    pub term: u64,
    /// Of a group's record.
    pub claim: u64,
    /// `WEIR_RECORD_`
    pub kind: u32,
    /// 1: last of its intention, 2: of a transaction.
    pub flags: u32,
    /// Of a group's record: deliveries, this one included.
    pub attempts: u32,
    /// In which key and meta lie.
    pub buffer: u32,
}

/// All of a page with one call. The pointers are good until the page is released; NULL with 0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PageInfo {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// `WEIR_PAGE_`
    pub kind: u32,
    /// Items.
    pub items: *const Item,
    /// Item count.
    pub item_count: usize,
    /// Records.
    pub records: *const Record,
    /// Item_count, or 0.
    pub record_count: usize,
    /// Buffers.
    pub buffers: *const Slice,
    /// Buffer count.
    pub buffer_count: usize,
    /// Of all items.
    pub bytes: u64,
    /// Of results: bad items left out so far, in the whole query.
    pub skipped: u64,
    /// Of needs: suggested bytes of a page.
    pub hint: u64,
    /// Of records: where reading goes on: after this offset.
    pub position: u64,
    /// Reserved.
    pub reserved: u64,
}

/// An error number for people: all texts static and without an ending zero.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CodeInfo {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// Code.
    pub code: i32,
    /// 1 caller, 2 peer, 3 environment, 4 us.
    pub fault: u32,
    /// 1 at once, 2 later or after the advice, 3 never.
    pub retry: u32,
    /// Name.
    pub name: Slice,
    /// Sentence.
    pub sentence: Slice,
    /// Advice.
    pub advice: Slice,
}

/// `weir_open_options` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OpenOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// 0 the default (1), 1 group, 2 each, 3 interval, 4 memory.
    pub durability: u32,
    /// With `interval`, at least 1.
    pub interval_ms: u64,
    /// `WEIR_OPEN_`
    pub flags: u32,
    /// Reserved.
    pub reserved: u32,
    /// Name of the program, for who finds the store locked.
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
    /// Flags.
    pub flags: u32,
    /// Proof of identity.
    pub token: Slice,
    /// For weirs://: file with the authority, PEM; else the system's.
    pub authority: Slice,
    /// For weirs://: file with the own certificate, PEM.
    pub certificate: Slice,
    /// The file with its key.
    pub key: Slice,
    /// Name and version of the program, for people.
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
    /// 1: open in this process; 2: behind a server.
    pub place: u32,
    /// As in weir_open_options.
    pub durability: u32,
    /// Reserved.
    pub reserved: u32,
    /// With `interval`.
    pub interval_ms: u64,
    /// Store id.
    pub store_id: [u8; 16],
}

/// A condition. All conditions of an intention hold, or it is INVALID with WEIR_E_CONFLICT.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Expect {
    /// `WEIR_EXPECT_`
    pub kind: u32,
    /// 0: the intention's own key.
    pub has_key: u32,
    /// Key.
    pub key: Slice,
    /// Offset.
    pub offset: u64,
}

/// A step of a transaction.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Step {
    /// `WEIR_PUT` or `WEIR_DELETE`.
    pub operation: u32,
    /// Reserved.
    pub reserved: u32,
    /// Key.
    pub key: Slice,
    /// Value.
    pub value: Slice,
    /// Meta.
    pub meta: Slice,
}

/// `weir_topic_options` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TopicOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// `WEIR_TOPIC_`: which of the numbers below hold.
    pub set: u32,
    /// 0 off, 1 latest.
    pub compaction: u32,
    /// Of a program: 0 default (2), 1 none, 2 keys and values, 3 its memory.
    pub state: u32,
    /// Tombstone ttl ms.
    pub tombstone_ttl_ms: u64,
    /// Compaction lag ms.
    pub compaction_lag_ms: u64,
    /// Key bytes max.
    pub key_bytes_max: u64,
    /// Value bytes max.
    pub value_bytes_max: u64,
    /// Keys max.
    pub keys_max: u64,
    /// Retention age ms.
    pub retention_age_ms: u64,
    /// Retention bytes.
    pub retention_bytes: u64,
    /// Retention records.
    pub retention_records: u64,
    /// Fuel max.
    pub fuel_max: u64,
    /// Memory bytes max.
    pub memory_bytes_max: u64,
    /// Emits max.
    pub emits_max: u64,
    /// Emit bytes max.
    pub emit_bytes_max: u64,
    /// State entries max.
    pub state_entries_max: u64,
    /// State bytes max.
    pub state_bytes_max: u64,
    /// Names.
    pub hold_for_groups: *const Slice,
    /// Hold for groups count.
    pub hold_for_groups_count: usize,
}

/// One thing that is asked for. Arrays of it step by the struct_size of their first element, which all have.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Intention {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// `WEIR_PUT`, ...
    pub operation: u32,
    /// Topic.
    pub topic: Slice,
    /// Of PUT (empty: no key) and DELETE.
    pub key: Slice,
    /// Of PUT.
    pub value: Slice,
    /// For its record, at most 4 KiB, not read by the store.
    pub meta: Slice,
    /// At most 64.
    pub expects: *const Expect,
    /// Expect count.
    pub expect_count: usize,
    /// Of TRANSACTION.
    pub steps: *const Step,
    /// Step count.
    pub step_count: usize,
    /// Of CREATE and ALTER; NULL: defaults.
    pub options: *const TopicOptions,
    /// Of CREATE (with a program) and REPLACE: the module.
    pub code: Slice,
    /// Of the program.
    pub args: Slice,
    /// Of REPLACE: SHA-256 of the code that must be there; empty: any.
    pub replaced: Slice,
}

/// What became of an intention. One that is not VALID is a value, not an error of the call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Verdict {
    /// `WEIR_VALID`, ...
    pub effect: i32,
    /// 0, or `WEIR_E_`
    pub reason: i32,
    /// Place in the order of the whole store; 0 when REFUSED.
    pub intention: u64,
    /// Of its first record; 0 without.
    pub offset: u64,
    /// Of the session; 0 without.
    pub nonce: u64,
    /// That the topic's program used.
    pub fuel: u64,
    /// By `detail_kind`.
    pub detail: u64,
    /// Records.
    pub records: u32,
    /// 1: the answer to an earlier sending of the same nonce.
    pub flags: u32,
    /// `WEIR_DETAIL_`
    pub detail_kind: u32,
    /// Of `WEIR_DETAIL_STEP`.
    pub detail_reason: i32,
}

/// `weir_topic_info` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TopicInfo {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// Live.
    pub live: u32,
    /// Id.
    pub id: u64,
    /// Intention that made it; 0 when it does not live.
    pub incarnation: u64,
    /// Offset of the oldest record that is there; 0 for none.
    pub first: u64,
    /// Offset of the newest record.
    pub last: u64,
    /// With a value.
    pub keys: u64,
    /// Of records, as stored.
    pub bytes: u64,
}

/// `weir_read_options` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ReadOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// `WEIR_FROM_`
    pub from: u32,
    /// Of AFTER an offset, of LAST a number, of TIME milliseconds since 1970.
    pub value: u64,
    /// `WEIR_READ_`
    pub flags: u32,
    /// Reserved.
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
    /// `WEIR_GROUP_EXISTING`: it is not made; `WEIR_E_GROUP_UNKNOWN`.
    pub flags: u32,
    /// `WEIR_FROM_...`: the position at which a new group starts.
    pub from: u32,
    /// 1 to 64 bytes; empty: made of process and time.
    pub member: Slice,
    /// Of what this member claims; 0: the group's.
    pub claim_lease_ms: u64,
    /// As `value` of `weir_read_options`.
    pub value: u64,
    /// 0: 30,000.
    pub lease_ms: u64,
    /// 0: any number.
    pub attempts_max: u32,
    /// 0: 100,000.
    pub pending_max: u32,
    /// Topic; not empty exactly with `attempts_max`.
    pub dead_letters: Slice,
}

/// `weir_group_info` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GroupInfo {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// Mode.
    pub mode: u32,
    /// Everything up to here is done.
    pub cursor: u64,
    /// Everything after here is new.
    pub frontier: u64,
    /// Newest record of the topic.
    pub last: u64,
    /// Offsets that are not done.
    pub lag: u64,
    /// Records that members have.
    pub leased: u64,
    /// Seen, and to be claimed again.
    pub waiting: u64,
    /// Redeliveries.
    pub redeliveries: u64,
    /// Records that were given up.
    pub deaths: u64,
    /// Dead letters that are not written yet.
    pub letters: u64,
}

/// A record that a member has: both numbers are in its weir_record.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Claim {
    /// Offset.
    pub offset: u64,
    /// Claim.
    pub claim: u64,
}

/// A name and a JSON scalar.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Param {
    /// Name.
    pub name: Slice,
    /// Value.
    pub value: Slice,
}

/// The fields of docs/guide/query.md. Budgets: 0 is the default.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QueryOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// `WEIR_QUERY_`
    pub flags: u32,
    /// Where.
    pub r#where: Slice,
    /// Order.
    pub order: Slice,
    /// Select.
    pub select: Slice,
    /// Group.
    pub group: Slice,
    /// Offset.
    pub offset: u64,
    /// With `WEIR_QUERY_LIMIT`.
    pub limit: u64,
    /// With `WEIR_QUERY_TOP`; with both, the smaller counts.
    pub top: u64,
    /// Params.
    pub params: *const Param,
    /// Param count.
    pub param_count: usize,
    /// To go on where an earlier run stopped; empty: from the beginning.
    pub token: Slice,
    /// 0 by the order, 1 sequential, 2 arrival, 3 round robin, 4 merge, 5 sort.
    pub mode: u32,
    /// `WEIR_LEVEL_`
    pub level: u32,
    /// 0 error, 1 skip, 2 undefined.
    pub on_bad_item: u32,
    /// With `WEIR_QUERY_PAGES_AHEAD`; else 1.
    pub pages_ahead: u32,
    /// Buffer bytes max.
    pub buffer_bytes_max: u64,
    /// Sort bytes max.
    pub sort_bytes_max: u64,
    /// Groups max.
    pub groups_max: u64,
    /// Distinct max.
    pub distinct_max: u64,
    /// Page bytes max.
    pub page_bytes_max: u64,
    /// Item bytes max.
    pub item_bytes_max: u64,
    /// Page bytes hint.
    pub page_bytes_hint: u64,
    /// Sources max.
    pub sources_max: u32,
    /// Depth max.
    pub depth_max: u32,
}

/// `weir_source_options` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SourceOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// `WEIR_SOURCE_`
    pub flags: u32,
    /// For messages and tokens; empty: its number.
    pub name: Slice,
    /// `WEIR_SHAPE_`
    pub shape: u32,
    /// `WEIR_LEVEL_`; default: the query's.
    pub level: u32,
    /// Of `WEIR_SHAPE_MEMBER`: path of the array.
    pub member: Slice,
    /// With `WEIR_SOURCE_ORDINAL`; else after those that are there.
    pub ordinal: u64,
    /// With `WEIR_SOURCE_FIRST`: what names the first page.
    pub first: Slice,
    /// Path that orders items of equal keys; empty: none.
    pub tie: Slice,
    /// Properties that all its items share.
    pub meta: *const Param,
    /// Meta count.
    pub meta_count: usize,
    /// With `WEIR_SOURCE_BOUND`: lower bound of its keys, JSON scalars.
    pub bound: *const Slice,
    /// Bound count.
    pub bound_count: usize,
}

/// `weir_topics_options` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TopicsOptions {
    /// Bytes of the structure as the caller knows it.
    pub struct_size: u32,
    /// 0: all records; 1: of each key the latest.
    pub view: u32,
    /// Names of topics, or patterns: `a.*` one more part, `a.**` any number.
    pub from: *const Slice,
    /// From count.
    pub from_count: usize,
    /// `WEIR_END_`
    pub end: u32,
    /// 1 << `WEIR_RECORD_` of what is an item; 0: of PUT.
    pub kinds: u32,
    /// An intention, of `WEIR_END_AS_OF`.
    pub as_of: u64,
    /// `WEIR_TOPICS_`
    pub flags: u32,
    /// Reserved.
    pub reserved: u32,
    /// Longest wait for records that are there; 0: 30,000.
    pub patience_ms: u64,
}

/// How a loan is returned: by `release`, or by `cookie` at `loans`; one of the two.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Loan {
    /// Release.
    pub release: Option<Release>,
    /// User.
    pub user: *mut c_void,
    /// Loans.
    pub loans: *mut Loans,
    /// Cookie.
    pub cookie: u64,
}

/// Where the items of a page of the shape FRAMED lie. `metas` has, item by item, one entry for each property that the query asks for, in the order of `weir_query_metas`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Frame {
    /// Offset.
    pub offset: u32,
    /// Len.
    pub len: u32,
}

/// `weir_meta` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Meta {
    /// 0 nothing, 1 number, 2 bytes of the page.
    pub kind: u32,
    /// Of bytes.
    pub len: u32,
    /// Or offset of bytes.
    pub number: u64,
}

/// `weir_frames` of the header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Frames {
    /// Spans.
    pub spans: *const Frame,
    /// Span count.
    pub span_count: usize,
    /// Metas.
    pub metas: *const Meta,
    /// Meta count.
    pub meta_count: usize,
}
