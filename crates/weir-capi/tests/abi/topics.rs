//! Queries over topics.

use std::ptr::{null, null_mut};

use weir_capi::raw::{
    Error, Intention, OpenOptions, Page, Query, QueryOptions, TopicsOptions, Verdict,
};
use weir_capi::*;

use crate::kit::*;

fn put(store: &Store, value: &str) {
    let mut intention = sized!(Intention);
    intention.operation = 1;
    intention.topic = slice(b"t");
    intention.value = slice(value.as_bytes());
    let mut verdict = zero::<Verdict>();
    let (one, out) = (&raw const intention, &raw mut verdict);
    let done = unsafe { weir_submit(store.store, one, 1, out, null_mut(), null_mut()) };
    assert_eq!((done, verdict.effect), (OK, 1));
}

fn open(store: &Store, pattern: &str, end: u32, fields: &QueryOptions) -> Result<*mut Query, i32> {
    let names = [slice(pattern.as_bytes())];
    let mut topics = sized!(TopicsOptions);
    topics.topics = names.as_ptr();
    topics.topic_count = 1;
    topics.end = end;
    open_with(store, &topics, fields)
}

fn open_with(
    store: &Store,
    topics: &TopicsOptions,
    fields: &QueryOptions,
) -> Result<*mut Query, i32> {
    let (mut query, mut error) = (null_mut(), zero::<Error>());
    let opened = unsafe {
        weir_query_open_topics(
            store.store,
            &raw const *topics,
            &raw const *fields,
            &raw mut query,
            &raw mut error,
        )
    };
    if opened == OK { Ok(query) } else { Err(opened) }
}

fn wait(query: *mut Query, timeout_ms: u64) -> (i32, *mut Page) {
    let mut page = null_mut();
    let kind = unsafe { weir_query_wait(query, timeout_ms, 0, 0, &raw mut page, null_mut()) };
    (kind, page)
}

/// The results of a query until its end.
fn all(query: *mut Query) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    loop {
        let (kind, page) = wait(query, 60_000);
        if kind == DONE {
            unsafe { weir_query_free(query) };
            return found;
        }
        assert_eq!(kind, READY);
        found.extend(items(page));
    }
}

#[test]
fn records_are_filtered_ordered_and_named() {
    let store = Store::new();
    for value in [r#"{"n":2}"#, r#"{"n":9}"#, r#"{"n":1}"#] {
        put(&store, value);
    }
    let mut fields = sized!(QueryOptions);
    fields.r#where = slice(b"@.n < 5");
    fields.order = slice(b"$.n");
    let query = open(&store, "*", 0, &fields).unwrap();
    let (kind, page) = wait(query, 60_000);
    assert_eq!(kind, READY);
    assert_eq!(items(page), [br#"{"n":1}"#, br#"{"n":2}"#]);
    assert_eq!(wait(query, 0).0, DONE);
    assert_eq!(next(query).0, DONE);
    unsafe {
        let mut name = null_mut();
        assert_eq!(
            weir_query_source_name(query, 0, &raw mut name, null_mut()),
            OK
        );
        assert_eq!(items(name), [b"t"]);
        // A query over topics fetches its pages itself.
        let page = slice(b"[]");
        let given = weir_query_enqueue_copy(query, 0, page, null(), NOTHING, 0, null_mut());
        assert_eq!(given, -311);
        weir_query_free(query);
    }
    assert_eq!(open(&store, "nowhere", 0, &fields), Err(-316));
}

#[test]
fn a_query_begins_at_its_position() {
    let store = Store::new();
    for value in ["1", "2", "3"] {
        put(&store, value);
    }
    let fields = sized!(QueryOptions);
    let name = slice(b"t");
    let mut topics = sized!(TopicsOptions);
    (topics.topics, topics.topic_count) = (&raw const name, 1);
    // The topic begins with the record of its creation, so `2` has the offset 3.
    let positions: [((u32, u64), &[&str]); 8] = [
        ((0, 7), &["1", "2", "3"]),
        ((1, 7), &[]),
        ((2, 2), &["2", "3"]),
        ((2, u64::MAX), &[]),
        ((3, 1), &["3"]),
        ((3, u64::MAX), &["1", "2", "3"]),
        ((4, 0), &["1", "2", "3"]),
        ((4, u64::MAX), &[]),
    ];
    for ((from, value), expected) in positions {
        (topics.from, topics.value) = (from, value);
        let found = all(open_with(&store, &topics, &fields).unwrap());
        let expected: Vec<_> = expected.iter().map(|text| text.as_bytes()).collect();
        assert_eq!(found, expected, "{from} {value}");
    }

    topics.from = 5;
    assert_eq!(open_with(&store, &topics, &fields), Err(BAD_OPTION));
    (topics.from, topics.view) = (1, 1);
    assert_eq!(open_with(&store, &topics, &fields), Err(BAD_OPTION));
    // The structure of version 0.6 has no `value`, which is then 0.
    (topics.from, topics.value, topics.view) = (2, 3, 0);
    topics.struct_size = 56;
    let found = all(open_with(&store, &topics, &fields).unwrap());
    assert_eq!(found, [b"1", b"2", b"3"]);
    topics.struct_size = 55;
    assert_eq!(open_with(&store, &topics, &fields), Err(BAD_STRUCT));
}

#[test]
fn a_missing_interval_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = slice(directory.path().to_str().unwrap().as_bytes());
    let mut options = sized!(OpenOptions);
    options.durability = 3;
    let (mut store, mut error) = (null_mut(), zero::<Error>());
    let opened = unsafe { weir_open(path, &raw const options, &raw mut store, &raw mut error) };
    assert_eq!(opened, BAD_OPTION);
    let text = words(&error);
    assert!(text.ends_with("the interval is 0"), "{text}");
}

#[test]
fn a_query_that_follows_waits_and_resumes_from_its_token() {
    let store = Store::new();
    let mut fields = sized!(QueryOptions);
    let query = open(&store, "t", 2, &fields).unwrap();
    assert_eq!(wait(query, 0).0, TIMEOUT);
    put(&store, "1");
    let (kind, page) = wait(query, 60_000);
    assert_eq!((kind, items(page)), (READY, vec![b"1".to_vec()]));
    let mut token = null_mut();
    unsafe {
        assert_eq!(weir_query_token(query, &raw mut token, null_mut()), OK);
        assert_eq!(weir_query_cancel(query), OK);
        assert_eq!(wait(query, 0).0, CANCELLED);
        weir_query_free(query);
    }
    let token = items(token).remove(0);
    put(&store, "2");
    fields.token = slice(&token);
    let query = open(&store, "t", 2, &fields).unwrap();
    let (kind, page) = wait(query, 60_000);
    assert_eq!((kind, items(page)), (READY, vec![b"2".to_vec()]));
    unsafe {
        weir_close(store.store, null_mut());
        assert_eq!(wait(query, 60_000).0, CLOSED);
        weir_query_free(query);
    }
}
