//! A panic ends in the entry point that was called, for every entry point.

use std::ptr::null_mut;

use weir_capi::raw::Error;
use weir_capi::{PanicPoint, panic_at, weir_query_explain, weir_query_free};

use crate::kit::*;

/// Calls every function of the list with zeros as arguments, and lists the results.
macro_rules! every {
    ($($name:ident($($zero:expr),*);)*) => {
        [$((stringify!($name), (|| unsafe { weir_capi::$name($($zero),*) }) as fn() -> i32)),*]
    };
}

#[test]
#[allow(clippy::too_many_lines)] // a line for each entry
fn a_panic_ends_at_each_entry_point() {
    let all = every! {
        weir_page_describe(null_mut(), null_mut(), null_mut());
        weir_page_get(null_mut(), 0, 0, NOTHING, null_mut(), null_mut());
        weir_page_values(null_mut(), 0, 0, null_mut(), 0, null_mut(), null_mut());
        weir_find(NOTHING, null_mut(), 1, null_mut(), null_mut());
        weir_page_retain(null_mut());
        weir_code_describe(0, null_mut());
        weir_open(NOTHING, null_mut(), null_mut(), null_mut());
        weir_connect(NOTHING, null_mut(), null_mut(), null_mut());
        weir_describe(null_mut(), null_mut(), null_mut());
        weir_sync(null_mut(), null_mut());
        weir_within(null_mut(), 0, null_mut(), null_mut());
        weir_with_consistency(null_mut(), 0, null_mut(), null_mut());
        weir_cancel(null_mut());
        weir_close(null_mut(), null_mut());
        weir_submit(null_mut(), null_mut(), 0, null_mut(), null_mut(), null_mut());
        weir_send(null_mut(), null_mut(), 0, null_mut(), null_mut());
        weir_pending_wait(null_mut(), 0, null_mut(), 0, null_mut(), null_mut());
        weir_pending_received(null_mut(), 0, null_mut());
        weir_session_open(null_mut(), NOTHING, null_mut(), null_mut());
        weir_session_submit(null_mut(), null_mut(), 0, null_mut(), null_mut(), null_mut());
        weir_session_send(null_mut(), null_mut(), 0, null_mut(), null_mut());
        weir_session_next_nonce(null_mut(), null_mut(), null_mut());
        weir_session_resume(null_mut(), 0, null_mut());
        weir_session_cancel(null_mut());
        weir_topic_ensure(null_mut(), NOTHING, null_mut(), null_mut(), null_mut());
        weir_topic_describe(null_mut(), NOTHING, null_mut(), null_mut());
        weir_topics(null_mut(), 0, null_mut(), null_mut());
        weir_get(null_mut(), NOTHING, NOTHING, null_mut(), null_mut());
        weir_at(null_mut(), NOTHING, 0, null_mut(), null_mut());
        weir_scan(null_mut(), NOTHING, NOTHING, NOTHING, 0, 0, null_mut(), null_mut());
        weir_position(NOTHING, null_mut(), null_mut(), null_mut());
        weir_reader_open(null_mut(), NOTHING, null_mut(), null_mut(), null_mut());
        weir_reader_next(null_mut(), 0, null_mut(), null_mut());
        weir_reader_cancel(null_mut());
        weir_group_open(null_mut(), NOTHING, NOTHING, null_mut(), null_mut(), null_mut());
        weir_group_claim(null_mut(), 0, 0, null_mut(), null_mut());
        weir_group_settle(null_mut(), null_mut(), 0, 0, 0, NOTHING, null_mut(), null_mut(), null_mut());
        weir_group_step(null_mut(), 0, 0, 0, null_mut());
        weir_group_describe(null_mut(), null_mut(), null_mut());
        weir_group_cancel(null_mut());
        weir_query_open(null_mut(), null_mut(), null_mut());
        weir_query_open_topics(null_mut(), null_mut(), null_mut(), null_mut(), null_mut());
        weir_query_wait(null_mut(), 0, 0, 0, null_mut(), null_mut());
        weir_query_fd(null_mut(), null_mut(), null_mut());
        weir_shape(NOTHING, null_mut(), null_mut(), null_mut());
        weir_query_source(null_mut(), null_mut(), null_mut(), null_mut());
        weir_query_source_name(null_mut(), 0, null_mut(), null_mut());
        weir_query_enqueue_copy(null_mut(), 0, NOTHING, null_mut(), NOTHING, 0, null_mut());
        weir_query_enqueue_loan(null_mut(), 0, NOTHING, null_mut(), NOTHING, 0, null_mut(), null_mut());
        weir_query_enqueue_buffer(null_mut(), 0, null_mut(), 0, null_mut(), NOTHING, 0, null_mut());
        weir_query_finish(null_mut(), 0, null_mut());
        weir_query_abandon(null_mut(), NOTHING, null_mut());
        weir_query_replace(null_mut(), 0, null_mut(), 0, null_mut(), null_mut());
        weir_query_watermark(null_mut(), 0, null_mut(), 0, null_mut());
        weir_query_next(null_mut(), 0, 0, null_mut(), null_mut());
        weir_query_needs(null_mut(), null_mut(), null_mut());
        weir_query_token(null_mut(), null_mut(), null_mut());
        weir_query_explain(null_mut(), null_mut(), null_mut());
        weir_query_metas(null_mut(), null_mut(), null_mut());
        weir_query_cancel(null_mut());
        weir_buffer_new(0, null_mut(), null_mut());
        weir_loans_new(null_mut(), null_mut());
        weir_loans_collect(null_mut(), null_mut(), 0, null_mut(), null_mut(), null_mut());
        weir_psyc_parser_init(null_mut(), null_mut(), null_mut());
        weir_psyc_parser_read(null_mut(), NOTHING, null_mut(), 0, null_mut(), null_mut(), null_mut());
        weir_psyc_parser_describe(null_mut(), null_mut(), null_mut());
        weir_psyc_walk(null_mut(), NOTHING, null_mut(), 0, null_mut(), null_mut(), null_mut());
        weir_psyc_walk_struct(null_mut(), NOTHING, NOTHING, null_mut(), 0, null_mut(), null_mut());
        weir_psyc_parse_packet_id(NOTHING, null_mut(), null_mut());
        weir_psyc_parse_uniform(NOTHING, 0, null_mut(), null_mut());
        weir_psyc_integer(NOTHING, null_mut(), null_mut());
        weir_psyc_list_index(NOTHING, null_mut(), null_mut());
        weir_psyc_date(NOTHING, null_mut(), null_mut());
        weir_psyc_date_from_unix(0, null_mut(), null_mut());
        weir_psyc_inherits(NOTHING, NOTHING, null_mut());
        weir_psyc_matches(NOTHING, NOTHING, null_mut());
        weir_psyc_lookup(null_mut(), 0, NOTHING, null_mut(), null_mut());
        weir_psyc_expand(null_mut(), 0, NOTHING, null_mut(), null_mut());
        weir_psyc_contract(null_mut(), 0, NOTHING, null_mut(), null_mut());
        weir_psyc_describe_name(NOTHING, null_mut(), null_mut());
        weir_psyc_talk(NOTHING, null_mut(), null_mut());
        weir_psyc_standard_template(NOTHING, null_mut(), null_mut());
        weir_psyc_render_text(null_mut(), null_mut(), null_mut(), 0, null_mut(), 0, null_mut(), null_mut());
        weir_psyc_measure(null_mut(), null_mut(), null_mut());
        weir_psyc_render(null_mut(), null_mut(), 0, null_mut(), null_mut());
        weir_psyc_render_modifier(null_mut(), 0, null_mut(), 0, null_mut(), null_mut());
        weir_psyc_render_list(NOTHING, null_mut(), 0, 0, null_mut(), 0, null_mut(), null_mut());
        weir_psyc_render_dict(NOTHING, null_mut(), 0, 0, null_mut(), 0, null_mut(), null_mut());
        weir_psyc_render_key(NOTHING, 0, 0, null_mut(), 0, null_mut(), null_mut());
        weir_psyc_render_value(null_mut(), 0, null_mut(), 0, null_mut(), null_mut());
        weir_psyc_render_index(null_mut(), 0, 0, null_mut(), 0, null_mut(), null_mut());
        weir_psyc_render_update(null_mut(), 0, 0, null_mut(), 0, null_mut(), 0, null_mut(), null_mut());
        weir_psyc_render_packet_id(null_mut(), null_mut(), 0, null_mut(), null_mut());
    };
    for (name, call) in all {
        panic_at(Some((name, PanicPoint::Enter)));
        assert_eq!(call(), PANIC, "{name}");
        // Without a panic: zeros are rejected by every function, except that closing a NULL handle
        // succeeds.
        let plain = call();
        assert!(plain < 0 || name == "weir_close", "{name} returned {plain}");
    }
    // Functions that cannot fail do nothing.
    macro_rules! without_result {
        ($($name:ident)*) => { $(
            panic_at(Some((stringify!($name), PanicPoint::Enter)));
            unsafe { weir_capi::$name(null_mut()) };
        )* };
    }
    without_result! {
        weir_page_release weir_pending_free weir_session_free weir_reader_free weir_group_free
        weir_query_free weir_buffer_free weir_loans_free
    }
    panic_at(Some(("weir_page_items", PanicPoint::Enter)));
    let mut count = 7;
    assert!(unsafe { weir_capi::weir_page_items(null_mut(), &raw mut count) }.is_null());
    panic_at(None);
    assert_eq!(counted(), all.len() + 8 + 4);
}

/// The number of functions in the list that can panic, from its source text.
fn counted() -> usize {
    let list = concat!(
        include_str!("../../src/entry.rs"),
        include_str!("../../src/psyc/entry.rs")
    );
    let listed = list
        .lines()
        .filter(|line| line.starts_with("    fn weir_"))
        .count();
    // `weir_code_describe` is outside of the lists.
    listed + 1
}

#[test]
fn a_handle_with_a_panic_can_only_be_released() {
    let (query, _) = query("");
    let mut error = zero::<Error>();
    let mut page = null_mut();
    let mut explain = || unsafe { weir_query_explain(query, &raw mut page, &raw mut error) };
    panic_at(Some(("weir_query_explain", PanicPoint::Inside)));
    assert_eq!(explain(), PANIC);
    assert_eq!(explain(), HANDLE_POISONED);
    assert_eq!(next(query).0, HANDLE_POISONED);
    assert_eq!(error.code, HANDLE_POISONED);
    unsafe { weir_query_free(query) };
    assert_eq!(next(query).0, BAD_HANDLE);
}

#[test]
fn the_error_has_the_message_of_the_panic() {
    let (query, _) = query("");
    let mut error = zero::<Error>();
    panic_at(Some(("weir_query_explain", PanicPoint::Inside)));
    unsafe {
        weir_query_explain(query, null_mut(), &raw mut error);
        weir_query_free(query);
    }
    assert_eq!(words(&error), "weir_query_explain: injected");
}
