//! Queries over topics in an event loop.

use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir_capi::raw::{Intention, Query, QueryOptions, TopicsOptions, Verdict};
use weir_capi::*;

use crate::kit::*;
use crate::waits::{ENOUGH, SilentServer};

const UNSUPPORTED: i32 = -311;
const DEADLINE: i32 = -502;

fn follow(store: *mut weir_capi::raw::Weir) -> *mut Query {
    let names = [slice(b"t")];
    let mut topics = sized!(TopicsOptions);
    (topics.topics, topics.topic_count) = (names.as_ptr(), 1);
    topics.end = 2;
    let (topics, options) = (&raw const topics, sized!(QueryOptions));
    let mut query = null_mut();
    let options = &raw const options;
    let opened =
        unsafe { weir_query_open_topics(store, topics, options, &raw mut query, null_mut()) };
    assert_eq!(opened, OK);
    query
}

fn put(store: *mut weir_capi::raw::Weir, value: &'static [u8]) {
    let mut intention = sized!(Intention);
    intention.operation = 1;
    intention.topic = slice(b"t");
    intention.value = slice(value);
    let mut verdict = zero::<Verdict>();
    let (one, out) = (&raw const intention, &raw mut verdict);
    let done = unsafe { weir_submit(store, one, 1, out, null_mut(), null_mut()) };
    assert_eq!((done, verdict.effect), (OK, 1));
}

fn descriptor(query: *mut Query) -> i32 {
    let mut fd = -1;
    assert_eq!(unsafe { weir_query_fd(query, &raw mut fd, null_mut()) }, OK);
    fd
}

/// Waits at most `time` until `fd` is readable. Returns whether it is.
fn readable(fd: i32, time: Duration) -> bool {
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let time = Timespec::try_from(time).unwrap();
    poll(&mut fds, Some(&time)).unwrap() == 1
}

const NOW: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_mins(1);

/// Reads the query until `fd` stays unreadable. The descriptor may wake without a result.
fn settle(query: *mut Query, fd: i32) {
    let begun = Instant::now();
    loop {
        assert_eq!(next(query).0, TIMEOUT);
        if !readable(fd, NOW) {
            return;
        }
        assert!(begun.elapsed() < LONG, "it stays readable");
    }
}

#[test]
fn a_descriptor_is_readable_while_the_query_may_have_results() {
    let store = Store::new();
    let query = follow(store.store);
    let fd = descriptor(query);
    assert_eq!(descriptor(query), fd);
    // A new descriptor is readable, because the query was never read.
    assert!(readable(fd, NOW));
    settle(query, fd);
    for value in [b"1", b"2"] {
        put(store.store, value);
        assert!(readable(fd, LONG));
        let (kind, page) = next(query);
        assert_eq!((kind, items(page)), (READY, vec![value.to_vec()]));
        // The query may have more results.
        assert!(readable(fd, NOW));
        settle(query, fd);
    }
    unsafe { assert_eq!(weir_query_cancel(query), OK) };
    assert!(readable(fd, NOW));
    assert_eq!(next(query).0, CANCELLED);
    assert!(readable(fd, NOW));
    unsafe { weir_query_free(query) };
}

#[test]
fn a_descriptor_is_readable_after_its_store_or_handle_ends() {
    let store = Store::new();
    let query = follow(store.store);
    let fd = descriptor(query);
    settle(query, fd);
    unsafe {
        assert_eq!(weir_close(store.store, null_mut()), OK);
        assert!(readable(fd, LONG));
        assert_eq!(next(query).0, CLOSED);
        weir_query_free(query);
    }
    let store = Store::new();
    let mut handle = null_mut();
    unsafe {
        assert_eq!(
            weir_within(store.store, u64::MAX, &raw mut handle, null_mut()),
            OK
        );
        let query = follow(handle);
        let fd = descriptor(query);
        settle(query, fd);
        assert_eq!(weir_cancel(handle), OK);
        assert!(readable(fd, LONG));
        assert_eq!(next(query).0, CANCELLED);
        weir_query_free(query);
        assert_eq!(weir_close(handle, null_mut()), OK);
    }
}

#[test]
fn a_descriptor_is_readable_at_the_end_and_a_query_over_pages_has_none() {
    let store = Store::new();
    let names = [slice(b"t")];
    let mut topics = sized!(TopicsOptions);
    (topics.topics, topics.topic_count) = (names.as_ptr(), 1);
    let (topics, options) = (&raw const topics, sized!(QueryOptions));
    let (mut one, options) = (null_mut(), &raw const options);
    unsafe {
        let opened = weir_query_open_topics(store.store, topics, options, &raw mut one, null_mut());
        assert_eq!(opened, OK);
        let fd = descriptor(one);
        assert_eq!(next(one).0, DONE);
        assert!(readable(fd, NOW));
        weir_query_free(one);
        let (pages, _) = query("");
        let mut fd = -1;
        assert_eq!(weir_query_fd(pages, &raw mut fd, null_mut()), UNSUPPORTED);
        assert_eq!(weir_query_fd(pages, null_mut(), null_mut()), NULL_POINTER);
        assert_eq!(
            weir_query_fd(store.store.cast(), &raw mut fd, null_mut()),
            BAD_HANDLE
        );
        assert_eq!(fd, -1);
        weir_query_free(pages);
    }
}

/// Opens a query at a silent server, and reads until its patience ends. Returns how often there was
/// no result before; `None` if the patience ended before the query was open.
fn waits_at_a_silent_server(patience_ms: u64) -> Option<usize> {
    let server = SilentServer::with(true);
    let names = [slice(b"t")];
    let mut topics = sized!(TopicsOptions);
    (topics.topics, topics.topic_count) = (names.as_ptr(), 1);
    topics.patience_ms = patience_ms;
    let (topics, options) = (&raw const topics, sized!(QueryOptions));
    let (mut query, options) = (null_mut(), &raw const options);
    let opened = unsafe {
        weir_query_open_topics(server.store, topics, options, &raw mut query, null_mut())
    };
    if opened != OK {
        assert_eq!(opened, DEADLINE);
        return None;
    }
    let fd = descriptor(query);
    let mut idle = 0;
    loop {
        assert!(readable(fd, LONG));
        match next(query).0 {
            TIMEOUT => idle += 1,
            kind => {
                assert_eq!(kind, DEADLINE);
                break;
            }
        }
    }
    unsafe { weir_query_free(query) };
    Some(idle)
}

#[test]
fn a_query_at_a_silent_server_fails_after_its_patience() {
    let mut waits = ENOUGH.into_iter().map(waits_at_a_silent_server);
    let waited = waits.any(|idle| idle.is_some_and(|idle| idle > 0));
    assert!(waited, "it did not wait");
}
