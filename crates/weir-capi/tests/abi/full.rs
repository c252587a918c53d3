//! If the table of handles is full, a call fails before it takes or writes anything.

use std::ptr::{null, null_mut};

use weir_capi::raw::{
    GroupOptions, Intention, PageInfo, QueryOptions, TopicInfo, TopicsOptions, Verdict, Weir,
};
use weir_capi::*;

use crate::kit::*;

const TOO_MANY_HANDLES: i32 = -610;
const GROUP_UNKNOWN: i32 = -322;

/// Makes a call that must fail because the table is full, then repeats it with space in the table.
fn retry_when_not_full(mut call: impl FnMut() -> i32) -> i32 {
    full_table(true);
    let refused = call();
    full_table(false);
    assert_eq!(refused, TOO_MANY_HANDLES);
    call()
}

fn put() -> Intention {
    let mut intention = sized!(Intention);
    intention.operation = 1;
    intention.topic = slice(b"t");
    intention.value = slice(b"1");
    intention
}

/// A store with one value.
fn filled() -> Store {
    let store = Store::new();
    assert_eq!(submit(&store, null_mut()), OK);
    store
}

fn submit(store: &Store, texts: *mut *mut weir_capi::raw::Page) -> i32 {
    let (intention, mut verdict) = (put(), zero::<Verdict>());
    let (one, out) = (&raw const intention, &raw mut verdict);
    unsafe { weir_submit(store.store, one, 1, out, texts, null_mut()) }
}

/// The last offset of the topic.
fn last(store: *mut Weir) -> u64 {
    let mut info = sized!(TopicInfo);
    let done = unsafe { weir_topic_describe(store, slice(b"t"), &raw mut info, null_mut()) };
    assert_eq!(done, OK);
    info.last
}

#[test]
fn a_full_table_loses_no_page_of_a_reader() {
    let store = filled();
    let (mut reader, mut page) = (null_mut(), null_mut());
    unsafe {
        let t = slice(b"t");
        let opened = weir_reader_open(store.store, t, null(), &raw mut reader, null_mut());
        assert_eq!(opened, OK);
        let next = || weir_reader_next(reader, 0, &raw mut page, null_mut());
        assert_eq!(retry_when_not_full(next), READY);
        let mut info = sized!(PageInfo);
        assert_eq!(weir_page_describe(page, &raw mut info, null_mut()), OK);
        assert_eq!(info.record_count, 2, "CREATE and PUT");
        weir_page_release(page);
        weir_reader_free(reader);
    }
}

#[test]
fn a_full_table_creates_no_group_and_claims_nothing() {
    let store = filled();
    let (mut group, mut page) = (null_mut(), null_mut());
    let mut options = sized!(GroupOptions);
    options.mode = 3;
    unsafe {
        let (t, g, none) = (slice(b"t"), slice(b"g"), null_mut());
        full_table(true);
        let made = weir_group_open(store.store, t, g, &raw const options, &raw mut group, none);
        full_table(false);
        assert_eq!(made, TOO_MANY_HANDLES);
        options.flags = 1;
        let known = weir_group_open(store.store, t, g, &raw const options, &raw mut group, none);
        assert_eq!(known, GROUP_UNKNOWN);
        options.flags = 0;
        let made = weir_group_open(store.store, t, g, &raw const options, &raw mut group, none);
        assert_eq!(made, OK);
        let claim = || weir_group_claim(group, 1, 0, &raw mut page, none);
        assert_eq!(retry_when_not_full(claim), READY);
        assert_eq!(items(page), [b"1"]);
        weir_group_free(group);
    }
}

#[test]
fn a_full_table_loses_no_page_of_a_query() {
    let store = filled();
    let (t, mut page, mut query) = (slice(b"t"), null_mut(), null_mut());
    let mut topics = sized!(TopicsOptions);
    (topics.topics, topics.topic_count) = (&raw const t, 1);
    let (topics, options) = (&raw const topics, sized!(QueryOptions));
    let options = &raw const options;
    unsafe {
        let opened =
            weir_query_open_topics(store.store, topics, options, &raw mut query, null_mut());
        assert_eq!(opened, OK);
        let wait = || weir_query_wait(query, 60_000, 0, 0, &raw mut page, null_mut());
        assert_eq!(retry_when_not_full(wait), READY);
        assert_eq!(items(page), [b"1"]);
        weir_query_free(query);
    }

    let (query, source) = crate::kit::query("");
    let given = slice(br#"[{"n":1}]"#);
    unsafe {
        let enqueued =
            weir_query_enqueue_copy(query, source, given, null(), NOTHING, 0, null_mut());
        assert_eq!(enqueued, OK);
        let next = || weir_query_next(query, 0, 0, &raw mut page, null_mut());
        assert_eq!(retry_when_not_full(next), READY);
        assert_eq!(items(page), [br#"{"n":1}"#]);
        weir_query_free(query);
    }
}

#[test]
fn a_full_table_prevents_writes_without_verdicts() {
    let store = filled();
    let (intention, mut verdict) = (put(), zero::<Verdict>());
    let (one, out, none) = (&raw const intention, &raw mut verdict, null_mut());
    let (mut session, mut texts, mut pending) = (null_mut(), null_mut(), null_mut());
    unsafe {
        assert_eq!(retry_when_not_full(|| submit(&store, &raw mut texts)), OK);
        assert_eq!(last(store.store), 3);
        let send = || weir_send(store.store, one, 1, &raw mut pending, none);
        assert_eq!(retry_when_not_full(send), OK);
        let wait = || weir_pending_wait(pending, 60_000, out, 1, &raw mut texts, none);
        assert_eq!((retry_when_not_full(wait), verdict.offset), (OK, 4));
        weir_pending_free(pending);

        let client = slice(&[7; 16]);
        let opened = weir_session_open(store.store, client, &raw mut session, none);
        assert_eq!(opened, OK);
        let submit = || weir_session_submit(session, one, 1, out, &raw mut texts, none);
        assert_eq!((retry_when_not_full(submit), verdict.offset), (OK, 5));
        let send = || weir_session_send(session, one, 1, &raw mut pending, none);
        assert_eq!(retry_when_not_full(send), OK);
        assert_eq!(
            weir_pending_wait(pending, 60_000, out, 1, none.cast(), none),
            OK
        );
        assert_eq!((verdict.offset, verdict.nonce), (6, 2));
        weir_pending_free(pending);
        weir_session_free(session);
    }
}
