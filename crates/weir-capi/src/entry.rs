//! The list of all functions: the name, parameters and implementation of each.
//!
//! `tests/header.rs` reads this list and has a C compiler compare it with the prototypes of the
//! header. Invariant: this module only names functions.
#![allow(unsafe_code, reason = "C can only link names with `unsafe(no_mangle)`")]
#![allow(
    clippy::wildcard_imports,
    reason = "it imports nearly all structures of the header"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the header has the requirements of all functions"
)]

use std::ffi::c_char;
use std::ptr::NonNull;

use crate::handle::Caller;
use crate::query::InputPage;
use crate::raw::*;
use crate::{about, buffer, group, guard, loan, page, query, read, registry, source, store, write};

/// Defines functions with a last parameter for the error.
macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $implementation:path;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type,)* error: *mut Error) -> i32 {
            // SAFETY: the pointers are those of this call, as the header says.
            let caller = unsafe { Caller::new() };
            guard::call(stringify!($name), &caller, error, |caller| $implementation(caller, $($arg),*))
        }
    )* };
}

/// Defines functions without a text for the error: the error number is sufficient.
macro_rules! calls_without_error {
    ($($(#[$doc:meta])* fn $name:ident($arg:ident: $type:ty) = $implementation:path;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($arg: $type) -> i32 {
            // SAFETY: this call has no memory of the caller.
            let caller = unsafe { Caller::new() };
            guard::call(stringify!($name), &caller, std::ptr::null_mut(), |_| $implementation($arg))
        }
    )* };
}

/// Defines functions that cannot fail.
macro_rules! releases {
    ($($(#[$doc:meta])* fn $name:ident($arg:ident: $type:ty) = $implementation:path;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($arg: $type) {
            guard::without_error(stringify!($name), || $implementation($arg));
        }
    )* };
}

/// Defines functions that return a pointer, NULL on failure, and write a number.
macro_rules! page_parts {
    ($($(#[$doc:meta])* fn $name:ident($arg:ident: $type:ty, $count:ident: *mut usize) -> $out:ty = $implementation:path;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($arg: $type, $count: *mut usize) -> $out {
            // SAFETY: the pointers are those of this call, as the header says.
            let caller = unsafe { Caller::new() };
            // The pointer is not converted to an address, which would lose its provenance.
            let part = guard::without_error(stringify!($name), || {
                let part: *const u8 = $implementation(&caller, $arg, $count).cast();
                NonNull::new(part.cast_mut())
            });
            part.map_or(std::ptr::null_mut(), NonNull::as_ptr).cast()
        }
    )* };
}

/// Version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn weir_abi_version() -> u32 {
    about::ABI_VERSION
}

/// Describes this library.
#[unsafe(no_mangle)]
pub extern "C" fn weir_build_info() -> *const c_char {
    about::build_info()
}

/// Describes an error for people.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_code_describe(code: i32, out: *mut CodeInfo) -> i32 {
    // SAFETY: the pointers are those of this call, as the header says.
    let caller = unsafe { Caller::new() };
    guard::call(
        "weir_code_describe",
        &caller,
        std::ptr::null_mut(),
        |caller| about::code(caller, code, out),
    )
}

/// Empties the pool.
#[unsafe(no_mangle)]
pub extern "C" fn weir_trim() {
    guard::without_error("weir_trim", buffer::trim);
}

/// Number of open handles and pages.
#[unsafe(no_mangle)]
pub extern "C" fn weir_handles_open() -> u64 {
    registry::open()
}

type EntryResult = Result<crate::error::Kind, crate::error::Fail>;

#[allow(clippy::too_many_arguments, reason = "the header has these parameters")]
fn enqueue_copy(
    c: &Caller,
    query: *mut Query,
    source: u32,
    page: Slice,
    frames: *const Frames,
    next: Slice,
    has_next: u32,
) -> EntryResult {
    let input = InputPage {
        source,
        frames,
        next,
        has_next,
    };
    query::enqueue_copy(c, query, &input, page)
}

#[allow(clippy::too_many_arguments, reason = "the header has these parameters")]
fn enqueue_loan(
    c: &Caller,
    query: *mut Query,
    source: u32,
    page: Slice,
    frames: *const Frames,
    next: Slice,
    has_next: u32,
    loan: *const Loan,
) -> EntryResult {
    let input = InputPage {
        source,
        frames,
        next,
        has_next,
    };
    query::enqueue_loan(c, query, &input, page, loan)
}

#[allow(clippy::too_many_arguments, reason = "the header has these parameters")]
fn enqueue_buffer(
    c: &Caller,
    query: *mut Query,
    source: u32,
    buffer: *mut Buffer,
    len: usize,
    frames: *const Frames,
    next: Slice,
    has_next: u32,
) -> EntryResult {
    let input = InputPage {
        source,
        frames,
        next,
        has_next,
    };
    query::enqueue_buffer(c, query, &input, buffer, len)
}

page_parts! {
    /// The items of a page.
    fn weir_page_items(page: *const Page, count: *mut usize) -> *const Item = page::items;
    /// The records of a page.
    fn weir_page_records(page: *const Page, count: *mut usize) -> *const Record = page::records;
    /// The buffers of a page.
    fn weir_page_buffers(page: *const Page, count: *mut usize) -> *const Slice = page::buffers;
    /// The memory of a buffer.
    fn weir_buffer_data(buffer: *mut Buffer, size: *mut usize) -> *mut u8 = buffer::data;
}

calls! {
    /// Describes a page.
    fn weir_page_describe(page: *const Page, out: *mut PageInfo) = page::describe;
    /// Values at a path.
    fn weir_page_get(page: *const Page, first: usize, count: usize, path: Slice, out: *mut Slice) = page::get;
    /// Values at several paths.
    fn weir_page_values(page: *const Page, first: usize, count: usize, paths: *const Slice, path_count: usize, out: *mut Slice) = page::values;
    /// Values in a text of the caller.
    fn weir_find(json: Slice, paths: *const Slice, path_count: usize, out: *mut Frame) = page::find_in_text;

    /// Opens a directory.
    fn weir_open(directory: Slice, options: *const OpenOptions, out: *mut *mut Weir) = store::open;
    /// Connects to a server.
    fn weir_connect(address: Slice, options: *const ConnectOptions, out: *mut *mut Weir) = store::connect;
    /// Describes a store.
    fn weir_describe(store: *mut Weir, out: *mut Info) = store::describe;
    /// Makes all acknowledged writes durable.
    fn weir_sync(store: *mut Weir) = store::sync;
    /// Creates a handle with a deadline.
    fn weir_within(store: *mut Weir, timeout_ms: u64, out: *mut *mut Weir) = store::within;
    /// Creates a handle with a consistency of reads.
    fn weir_with_consistency(store: *mut Weir, consistency: u32, out: *mut *mut Weir) = store::with_consistency;
    /// Closes a store.
    fn weir_close(store: *mut Weir) = store::close;

    /// Executes intentions.
    fn weir_submit(store: *mut Weir, intentions: *const Intention, count: usize, verdicts: *mut Verdict, texts: *mut *mut Page) = write::submit;
    /// Sends intentions.
    fn weir_send(store: *mut Weir, intentions: *const Intention, count: usize, out: *mut *mut Pending) = write::send;
    /// Waits for verdicts.
    fn weir_pending_wait(pending: *mut Pending, timeout_ms: u64, verdicts: *mut Verdict, room: usize, texts: *mut *mut Page) = write::wait;
    /// Waits until intentions are queued.
    fn weir_pending_received(pending: *mut Pending, timeout_ms: u64) = write::pending_received;
    /// Opens a session.
    fn weir_session_open(store: *mut Weir, client: Slice, out: *mut *mut Session) = write::session_open;
    /// Executes intentions of a session.
    fn weir_session_submit(session: *mut Session, intentions: *const Intention, count: usize, verdicts: *mut Verdict, texts: *mut *mut Page) = write::session_submit;
    /// Sends intentions of a session.
    fn weir_session_send(session: *mut Session, intentions: *const Intention, count: usize, out: *mut *mut Pending) = write::session_send;
    /// The next nonce.
    fn weir_session_next_nonce(session: *mut Session, out: *mut u64) = write::session_next_nonce;
    /// Continues at a nonce.
    fn weir_session_resume(session: *mut Session, nonce: u64) = write::session_resume;

    /// Creates a topic if it does not exist.
    fn weir_topic_ensure(store: *mut Weir, topic: Slice, options: *const TopicOptions, created: *mut u32) = store::ensure;
    /// Describes a topic.
    fn weir_topic_describe(store: *mut Weir, topic: Slice, out: *mut TopicInfo) = store::topic_describe;
    /// Names of topics.
    fn weir_topics(store: *mut Weir, with_destroyed: u32, out: *mut *mut Page) = store::topics;
    /// The record with the value of a key.
    fn weir_get(store: *mut Weir, topic: Slice, key: Slice, out: *mut *mut Page) = store::get;
    /// The record at an offset.
    fn weir_at(store: *mut Weir, topic: Slice, offset: u64, out: *mut *mut Page) = store::at;
    /// Keys in order.
    fn weir_scan(store: *mut Weir, topic: Slice, prefix: Slice, after: Slice, limit: u64, flags: u32, out: *mut *mut Page) = store::scan;

    /// Parses a position.
    fn weir_position(text: Slice, from: *mut u32, value: *mut u64) = read::position;
    /// Opens a reader.
    fn weir_reader_open(store: *mut Weir, topic: Slice, options: *const ReadOptions, out: *mut *mut Reader) = read::open;
    /// The next records.
    fn weir_reader_next(reader: *mut Reader, timeout_ms: u64, out: *mut *mut Page) = read::next;

    /// Opens a group as a member.
    fn weir_group_open(store: *mut Weir, topic: Slice, group: Slice, options: *const GroupOptions, out: *mut *mut Group) = group::open;
    /// Claims records for this member.
    fn weir_group_claim(group: *mut Group, limit: u64, timeout_ms: u64, out: *mut *mut Page) = group::claim;
    /// Acknowledges, rejects or extends records.
    fn weir_group_settle(group: *mut Group, claims: *const Claim, count: usize, verb: u32, time_ms: u64, reason: Slice, lost: *mut u64, lost_count: *mut usize) = group::settle;
    /// Changes a group.
    fn weir_group_step(group: *mut Group, verb: u32, from: u32, value: u64) = group::step;
    /// Describes a group.
    fn weir_group_describe(group: *mut Group, out: *mut GroupInfo) = group::describe;

    /// A query over pages.
    fn weir_query_open(options: *const QueryOptions, out: *mut *mut Query) = query::open;
    /// A query over topics.
    fn weir_query_open_topics(store: *mut Weir, topics: *const TopicsOptions, options: *const QueryOptions, out: *mut *mut Query) = query::open_topics;
    /// Results of a query over topics.
    fn weir_query_wait(query: *mut Query, timeout_ms: u64, max_items: u32, max_bytes: u64, out: *mut *mut Page) = query::wait;
    /// A descriptor for event loops.
    fn weir_query_fd(query: *mut Query, out: *mut i32) = query::fd;
    /// The name of a source.
    fn weir_query_source_name(query: *mut Query, source: u32, out: *mut *mut Page) = query::source_name;
    /// Parses a shape.
    fn weir_shape(text: Slice, shape: *mut u32, member: *mut Slice) = source::shape;
    /// Adds a source.
    fn weir_query_source(query: *mut Query, options: *const SourceOptions, source: *mut u32) = query::add_source;
    /// Adds a page by copying it.
    fn weir_query_enqueue_copy(query: *mut Query, source: u32, page: Slice, frames: *const Frames, next: Slice, has_next: u32) = enqueue_copy;
    /// Adds a page by borrowing it.
    fn weir_query_enqueue_loan(query: *mut Query, source: u32, page: Slice, frames: *const Frames, next: Slice, has_next: u32, loan: *const Loan) = enqueue_loan;
    /// Adds a page by moving a buffer.
    fn weir_query_enqueue_buffer(query: *mut Query, source: u32, buffer: *mut Buffer, len: usize, frames: *const Frames, next: Slice, has_next: u32) = enqueue_buffer;
    /// Ends a source.
    fn weir_query_finish(query: *mut Query, source: u32) = query::finish;
    /// Abandons a source of the resumed run.
    fn weir_query_abandon(query: *mut Query, name: Slice) = query::abandon;
    /// Replaces a source by parts.
    fn weir_query_replace(query: *mut Query, source: u32, parts: *const SourceOptions, count: usize, sources: *mut u32) = query::replace;
    /// Sets a lower bound for the later items of a source.
    fn weir_query_watermark(query: *mut Query, source: u32, keys: *const Slice, count: usize) = query::watermark;
    /// Results, needs, or the end.
    fn weir_query_next(query: *mut Query, max_items: u32, max_bytes: u64, out: *mut *mut Page) = query::next;
    /// The pages that are needed now.
    fn weir_query_needs(query: *mut Query, out: *mut *mut Page) = query::needs;
    /// The token to resume the query.
    fn weir_query_token(query: *mut Query, out: *mut *mut Page) = query::token;
    /// The plan of the query.
    fn weir_query_explain(query: *mut Query, out: *mut *mut Page) = query::explain;
    /// Properties that the query uses.
    fn weir_query_metas(query: *mut Query, out: *mut *mut Page) = query::metas;

    /// Allocates a buffer.
    fn weir_buffer_new(size: usize, out: *mut *mut Buffer) = buffer::new;
    /// Creates a list for cookies.
    fn weir_loans_new(out: *mut *mut Loans) = loan::new;
    /// Takes the cookies of returned loans.
    fn weir_loans_collect(loans: *mut Loans, cookies: *mut u64, room: usize, count: *mut usize, left: *mut u64) = loan::collect;
}

calls_without_error! {
    /// Adds a reference to a page.
    fn weir_page_retain(page: *mut Page) = page::retain;
    /// Ends all waits of a handle.
    fn weir_cancel(store: *mut Weir) = store::cancel;
    /// Cancels a wait.
    fn weir_session_cancel(session: *mut Session) = write::session_cancel;
    /// Cancels a wait.
    fn weir_reader_cancel(reader: *mut Reader) = read::cancel;
    /// Cancels a wait.
    fn weir_group_cancel(group: *mut Group) = group::cancel;
    /// Cancels a query.
    fn weir_query_cancel(query: *mut Query) = query::cancel;
}

releases! {
    /// Releases a page.
    fn weir_page_release(page: *mut Page) = page::release;
    /// Releases pending verdicts.
    fn weir_pending_free(pending: *mut Pending) = write::pending_free;
    /// Releases a session.
    fn weir_session_free(session: *mut Session) = write::session_free;
    /// Releases a reader.
    fn weir_reader_free(reader: *mut Reader) = read::free;
    /// Releases a member.
    fn weir_group_free(group: *mut Group) = group::free;
    /// Releases a query.
    fn weir_query_free(query: *mut Query) = query::free;
    /// Releases a buffer.
    fn weir_buffer_free(buffer: *mut Buffer) = buffer::free;
    /// Releases a list.
    fn weir_loans_free(loans: *mut Loans) = loan::free;
}
