//! A loan of a successful call is returned once, in every case; a loan of a failed call is never
//! returned.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use weir_capi::raw::{Loan, Loans, Query};
use weir_capi::*;

use crate::kit::*;

static PAGE: &[u8] = br#"[{"n":1},{"n":2}]"#;

extern "C" fn count(user: *mut c_void, ptr: *const u8, len: usize) {
    assert_eq!((ptr, len), (PAGE.as_ptr(), PAGE.len()));
    let counter = unsafe { &*user.cast::<AtomicU32>() };
    counter.fetch_add(1, Ordering::SeqCst);
}

fn lend(query: *mut Query, source: u32, counter: &AtomicU32) -> i32 {
    let loan = Loan {
        release: Some(count),
        user: (&raw const *counter).cast_mut().cast(),
        loans: null_mut(),
        cookie: 0,
    };
    unsafe {
        let page = slice(PAGE);
        weir_query_enqueue_loan(
            query,
            source,
            page,
            null(),
            NOTHING,
            0,
            &raw const loan,
            null_mut(),
        )
    }
}

fn returned(counter: &AtomicU32) -> u32 {
    counter.load(Ordering::SeqCst)
}

#[test]
fn a_loan_returns_with_the_last_page_that_uses_it() {
    let counter = AtomicU32::new(0);
    let (query, source) = query("");
    assert_eq!(lend(query, source, &counter), OK);
    let (kind, page) = next(query);
    assert_eq!((kind, returned(&counter)), (READY, 0));
    assert_eq!(next(query).0, DONE);
    unsafe { weir_query_free(query) };
    assert_eq!(returned(&counter), 0);
    // Released on another thread, after the query.
    let page = page.addr();
    let thread =
        std::thread::spawn(move || items(std::ptr::with_exposed_provenance_mut(page)).len());
    assert_eq!(thread.join().unwrap(), 2);
    assert_eq!(returned(&counter), 1);
}

#[test]
fn a_loan_returns_when_the_query_is_freed_cancelled_or_fails() {
    let counter = AtomicU32::new(0);
    let (query, source) = query("$.n");
    assert_eq!(lend(query, source, &counter), OK);
    unsafe { weir_query_free(query) };
    assert_eq!(returned(&counter), 1);

    let (query, source) = crate::kit::query("$.n");
    assert_eq!(lend(query, source, &counter), OK);
    unsafe { weir_query_cancel(query) };
    assert_eq!(next(query).0, CANCELLED);
    assert_eq!(returned(&counter), 2);
    assert_eq!(next(query).0, CANCELLED);
    unsafe { weir_query_free(query) };
    assert_eq!(returned(&counter), 2);
}

#[test]
fn a_cancel_does_not_change_a_query_that_has_ended() {
    let counter = AtomicU32::new(0);
    let (query, source) = query("");
    assert_eq!(lend(query, source, &counter), OK);
    let (kind, page) = next(query);
    assert_eq!(kind, READY);
    assert_eq!(next(query).0, DONE);
    assert_eq!(unsafe { weir_query_cancel(query) }, OK);
    assert_eq!(next(query).0, DONE);
    unsafe {
        weir_page_release(page);
        weir_query_free(query);
    }
    assert_eq!(returned(&counter), 1);
}

extern "C" fn count_any(user: *mut c_void, _: *const u8, _: usize) {
    let counter = unsafe { &*user.cast::<AtomicU32>() };
    counter.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_loan_without_results_returns_at_once() {
    let counter = AtomicU32::new(0);
    let (query, source) = query("");
    let empty = Loan {
        release: Some(count_any),
        user: (&raw const counter).cast_mut().cast(),
        loans: null_mut(),
        cookie: 0,
    };
    unsafe {
        let page = slice(b"[]");
        let loan = &raw const empty;
        let enqueued =
            weir_query_enqueue_loan(query, source, page, null(), NOTHING, 0, loan, null_mut());
        assert_eq!(enqueued, OK);
    }
    assert_eq!(returned(&counter), 1);
    unsafe { weir_query_free(query) };
    assert_eq!(returned(&counter), 1);
}

#[test]
fn a_loan_of_a_failed_call_is_not_returned() {
    let counter = AtomicU32::new(0);
    let (query, source) = query("$.n desc");
    // An unknown source, a query that has ended, a source after its last page.
    assert_eq!(lend(query, 99, &counter), -723);
    let (strict, other) = crate::kit::query("");
    assert_eq!(lend(strict, other, &counter), OK);
    assert_eq!(lend(strict, other, &counter), -724);
    assert_eq!(returned(&counter), 0);
    unsafe {
        // Both ways to return the loan, or none; a name after the last page.
        let mut loan = Loan {
            release: None,
            user: null_mut(),
            loans: null_mut(),
            cookie: 0,
        };
        let page = slice(PAGE);
        let lend = |loan: *const Loan, next| {
            weir_query_enqueue_loan(query, source, page, null(), next, 0, loan, null_mut())
        };
        assert_eq!(lend(&raw const loan, NOTHING), BAD_OPTION);
        loan.release = Some(count);
        loan.user = (&raw const counter).cast_mut().cast();
        assert_eq!(lend(&raw const loan, slice(b"x")), BAD_OPTION);
        // A page that is rejected.
        let bad = slice(b"[1,");
        let refused = weir_query_enqueue_loan(
            query,
            source,
            bad,
            null(),
            NOTHING,
            0,
            &raw const loan,
            null_mut(),
        );
        assert_eq!(refused, -713);
        weir_query_free(query);
        assert_eq!(returned(&counter), 0);
        weir_query_free(strict);
    }
    assert_eq!(returned(&counter), 1);
}

#[test]
fn each_cookie_is_collected_once() {
    unsafe {
        let mut loans = null_mut::<Loans>();
        assert_eq!(weir_loans_new(&raw mut loans, null_mut()), OK);
        let (query, first) = query("$.n");
        let second = source(query);
        for (source, cookie) in [(first, 10), (second, 20)] {
            let loan = Loan {
                release: None,
                user: null_mut(),
                loans,
                cookie,
            };
            let page = slice(PAGE);
            let enqueued = weir_query_enqueue_loan(
                query,
                source,
                page,
                null(),
                NOTHING,
                0,
                &raw const loan,
                null_mut(),
            );
            assert_eq!(enqueued, OK);
        }
        let collect = |room: usize| {
            let (mut cookies, mut count, mut left) = ([0_u64; 4], 9, 9);
            let done = weir_loans_collect(
                loans,
                cookies.as_mut_ptr(),
                room,
                &raw mut count,
                &raw mut left,
                null_mut(),
            );
            assert_eq!(done, OK);
            (cookies[..count].to_vec(), left)
        };
        assert_eq!(collect(4), (vec![], 2));
        weir_query_free(query);
        let (some, left) = collect(1);
        assert_eq!((some.len(), left), (1, 1));
        let (rest, left) = collect(4);
        assert_eq!(left, 0);
        let mut all = [some, rest].concat();
        all.sort_unstable();
        assert_eq!(all, [10, 20]);
        weir_loans_free(loans);
    }
}

#[test]
fn a_buffer_is_transferred_only_if_the_call_succeeds() {
    unsafe {
        let (query, source) = query("");
        let (mut buffer, mut size) = (null_mut(), 0);
        assert_eq!(weir_buffer_new(100, &raw mut buffer, null_mut()), OK);
        let data = weir_buffer_data(buffer, &raw mut size);
        assert_eq!(size, 100);
        let enqueue = |len: usize| {
            weir_query_enqueue_buffer(query, source, buffer, len, null(), NOTHING, 0, null_mut())
        };
        data.copy_from_nonoverlapping(b"[1,".as_ptr(), 3);
        assert_eq!(enqueue(3), -713);
        assert_eq!(enqueue(101), BAD_LENGTH);
        assert_eq!(weir_buffer_data(buffer, null_mut()), data);
        data.copy_from_nonoverlapping(b"[7]".as_ptr(), 3);
        assert_eq!(enqueue(3), OK);
        assert!(weir_buffer_data(buffer, null_mut()).is_null());
        assert_eq!(enqueue(3), BAD_HANDLE);
        let (kind, page) = next(query);
        assert_eq!((kind, items(page)), (READY, vec![b"7".to_vec()]));
        weir_query_free(query);
        weir_trim();
    }
}

extern "C" fn nothing(_: *mut c_void, _: *const u8, _: usize) {}

#[test]
fn a_change_of_lent_bytes_affects_only_results() {
    unsafe {
        let (query, first) = query("$.n");
        let second = source(query);
        let mut lent = br#"[{"n":1},{"n":2},{"n":3}]"#.to_vec();
        let loan = Loan {
            release: Some(nothing),
            user: null_mut(),
            loans: null_mut(),
            cookie: 0,
        };
        let (ptr, len) = (lent.as_mut_ptr(), lent.len());
        let page = weir_capi::raw::Slice { ptr, len };
        let enqueued = weir_query_enqueue_loan(
            query,
            first,
            page,
            null(),
            NOTHING,
            0,
            &raw const loan,
            null_mut(),
        );
        assert_eq!(enqueued, OK);
        let other = slice(br#"[{"n":1e400},{"n":"x"}]"#);
        weir_query_enqueue_copy(query, second, other, null(), NOTHING, 0, null_mut());
        for at in 0..len {
            *ptr.add(at) = b'\\';
        }
        for _ in 0..10 {
            let (kind, page) = next(query);
            if kind != READY {
                break;
            }
            items(page);
        }
        weir_query_free(query);
    }
}

/// Lent bytes change while a sort compares them: each item is still returned once.
#[test]
fn a_change_of_lent_bytes_causes_no_panic_in_a_sort() {
    const ITEMS: usize = 20_000;
    let lines: Vec<String> = (0..ITEMS)
        .map(|at| format!("{{\"n\":\"common prefix {:06}\"}}\n", at * 7_919 % ITEMS))
        .collect();
    let text = lines.concat();
    let lent: Vec<AtomicU8> = text.bytes().map(AtomicU8::new).collect();
    let width = text.len() / ITEMS;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = 1_usize;
            while !over.load(Ordering::Relaxed) {
                at = at
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695);
                // Changes one of the digits.
                let digit = (at >> 20) % ITEMS * width + width - 8 + (at >> 40) % 5;
                lent[digit].store(
                    b'0' + u8::try_from((at >> 50) % 10).unwrap(),
                    Ordering::Relaxed,
                );
            }
        });
        let _end = StopOnDrop(&over);
        for _ in 0..5 {
            unsafe {
                let (query, source) = query_of_lines("$.n");
                let loan = Loan {
                    release: Some(nothing),
                    user: null_mut(),
                    loans: null_mut(),
                    cookie: 0,
                };
                let page = weir_capi::raw::Slice {
                    ptr: lent.as_ptr().cast(),
                    len: lent.len(),
                };
                let none = null_mut();
                let loan = &raw const loan;
                let enqueued =
                    weir_query_enqueue_loan(query, source, page, null(), NOTHING, 0, loan, none);
                assert_eq!(enqueued, OK);
                let mut found = 0;
                loop {
                    let (kind, page) = next(query);
                    if kind != READY {
                        assert_eq!((kind, found), (DONE, ITEMS));
                        break;
                    }
                    found += items(page).len();
                }
                weir_query_free(query);
            }
        }
    });
}

/// Sets the flag at the end of the test, even after a panic.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A query with one unsorted source of lines.
fn query_of_lines(order: &str) -> (*mut weir_capi::raw::Query, u32) {
    let mut options = sized!(weir_capi::raw::QueryOptions);
    options.order = slice(order.as_bytes());
    let (mut query, mut source) = (null_mut(), 9);
    let mut lines = sized!(weir_capi::raw::SourceOptions);
    lines.shape = 2;
    unsafe {
        assert_eq!(
            weir_query_open(&raw const options, &raw mut query, null_mut()),
            OK
        );
        let added = weir_query_source(query, &raw const lines, &raw mut source, null_mut());
        assert_eq!(added, OK);
    }
    (query, source)
}
