//! Two threads call functions at random with handles that are valid, released, of another kind or
//! invented. Each call succeeds or returns an error, none panics, and each loan is returned once.

use std::ptr::{null, null_mut};
use std::sync::{Barrier, Mutex};

use weir_capi::raw::{
    Buffer, Error, Loan, Loans, Page, PageInfo, Query, QueryOptions, Slice, SourceOptions,
};
use weir_capi::*;

use crate::kit::*;

const RUNS: u64 = 24;
/// Threads of each run.
const THREADS: u64 = 2;
/// Calls of each thread.
const CALLS: usize = 1_500;

const PAGES: [&[u8]; 5] = [
    br#"[{"n":1},{"n":2},{"n":2},{"n":7}]"#,
    br#"[{"n":"a long text, so that its key does not fit"}]"#,
    b"[]",
    b"[{]",
    br#"{"n":3}"#,
];
const ORDERS: [&[u8]; 3] = [b"", b"$.n", b"meta.m, $.n desc"];

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// What the threads of one run share.
#[derive(Default)]
struct SharedState {
    /// All handles that the library returned, of every kind, as numbers.
    handles: Mutex<Vec<usize>>,
    /// Number of loans that the library accepted.
    accepted: Mutex<u64>,
    loans: usize,
}

impl SharedState {
    fn register<H>(&self, handle: *mut H) {
        if !handle.is_null() {
            self.handles.lock().unwrap().push(handle.addr());
        }
    }

    /// Returns one of the newest handles, of any kind; sometimes an invented number.
    fn handle<H>(&self, random: &mut Random) -> *mut H {
        let handles = self.handles.lock().unwrap();
        let recent = handles.len().min(24);
        let some = match recent {
            0 => 0,
            recent => handles[handles.len() - 1 - random.below(recent)],
        };
        drop(handles);
        let value = match random.below(40) {
            0 => 0,
            1 => some ^ 1 << random.below(64),
            2 => random.below(1 << 30),
            _ => some,
        };
        // The threads never use the list of loans; the test collects it after them.
        let value = if value == self.loans { 0 } else { value };
        std::ptr::without_provenance_mut(value)
    }

    fn open(&self, random: &mut Random, error: *mut Error) -> i32 {
        let mut options = sized!(QueryOptions);
        options.order = slice(ORDERS[random.below(ORDERS.len())]);
        let (mut query, mut number) = (null_mut(), 0);
        unsafe {
            let done = weir_query_open(&raw const options, &raw mut query, error);
            let mut source = sized!(SourceOptions);
            source.flags = 4 * u32::from(random.below(2) > 0);
            for _ in 0..random.below(3) {
                weir_query_source(query, &raw const source, &raw mut number, error);
            }
            self.register(query);
            done
        }
    }

    fn lend(&self, random: &mut Random, page: Slice, next: (Slice, u32), e: *mut Error) -> i32 {
        let loan = Loan {
            release: None,
            user: null_mut(),
            loans: std::ptr::without_provenance_mut(self.loans),
            cookie: 7,
        };
        let query = self.handle::<Query>(random);
        let source = u32::try_from(random.below(3)).unwrap();
        let done = unsafe {
            let loan = &raw const loan;
            weir_query_enqueue_loan(query, source, page, null(), next.0, next.1, loan, e)
        };
        if done == OK {
            *self.accepted.lock().unwrap() += 1;
        }
        done
    }

    #[allow(
        clippy::too_many_lines,
        reason = "one line for each call of the interface"
    )]
    fn step(&self, random: &mut Random) -> i32 {
        let (mut error, mut given, mut number) = (zero::<Error>(), null_mut(), 0);
        let e = if random.below(2) == 0 {
            null_mut()
        } else {
            &raw mut error
        };
        // Sometimes the output argument is null.
        let out = if random.below(30) == 0 {
            null_mut()
        } else {
            &raw mut given
        };
        let page = slice(PAGES[random.below(PAGES.len())]);
        let next = match random.below(6) {
            0 => (NOTHING, 0),
            1 => (slice(b"x"), 0),
            _ => (slice(b"x"), 1),
        };
        let source = u32::try_from(random.below(3)).unwrap();
        let query = self.handle::<Query>(random);
        let old = self.handle::<Page>(random);
        let done = unsafe {
            match random.below(26) {
                0 => self.open(random, e),
                1 => {
                    let options = sized!(SourceOptions);
                    weir_query_source(query, &raw const options, &raw mut number, e)
                }
                2 | 3 => weir_query_enqueue_copy(query, source, page, null(), next.0, next.1, e),
                4..=7 => self.lend(random, page, next, e),
                8 => {
                    let mut made = null_mut();
                    let done = weir_buffer_new(random.below(64), &raw mut made, e);
                    self.register(made);
                    done
                }
                9 => {
                    let buffer = self.handle::<Buffer>(random);
                    let (len, more) = (random.below(64), next.1);
                    weir_query_enqueue_buffer(query, source, buffer, len, null(), next.0, more, e)
                }
                10..=13 => weir_query_next(query, 1, 0, out, e),
                14 => weir_query_finish(query, source, e),
                15 => weir_query_token(query, out, e),
                16 => weir_query_needs(query, out, e),
                17 => weir_query_explain(query, out, e),
                18 => {
                    let keys = [slice(b"5"), slice(b"\"")];
                    let count = random.below(3);
                    weir_query_watermark(query, source, keys.as_ptr(), count, e)
                }
                19 => {
                    let parts = [sized!(SourceOptions), sized!(SourceOptions)];
                    let mut made = [0; 2];
                    let (parts, out) = (parts.as_ptr(), made.as_mut_ptr());
                    weir_query_replace(query, source, parts, random.below(3), out, e)
                }
                20 => {
                    let mut info = sized!(PageInfo);
                    weir_page_describe(old, &raw mut info, e)
                }
                21 => {
                    let mut value = NOTHING;
                    weir_page_get(old, random.below(3), 1, slice(b"$.n"), &raw mut value, e)
                }
                22 => weir_page_retain(old),
                23 => {
                    weir_page_release(old);
                    OK
                }
                24 => weir_query_cancel(query),
                _ => {
                    weir_query_free(query);
                    weir_buffer_free(self.handle::<Buffer>(random));
                    OK
                }
            }
        };
        self.register(given);
        done
    }

    /// Releases every handle that is left, whatever its kind.
    fn end(&self) {
        for handle in self.handles.lock().unwrap().iter() {
            unsafe {
                weir_query_free(std::ptr::without_provenance_mut(*handle));
                weir_buffer_free(std::ptr::without_provenance_mut(*handle));
                let page = std::ptr::without_provenance_mut::<Page>(*handle);
                while weir_page_retain(page) == OK {
                    weir_page_release(page);
                    weir_page_release(page);
                }
            }
        }
    }
}

#[test]
fn two_threads_may_make_any_calls() {
    let mut accepted = 0;
    for seed in 0..RUNS {
        let mut loans: *mut Loans = null_mut();
        assert_eq!(unsafe { weir_loans_new(&raw mut loans, null_mut()) }, OK);
        let shared = SharedState {
            loans: loans.addr(),
            ..SharedState::default()
        };
        let begin = Barrier::new(usize::try_from(THREADS).unwrap());
        let (shared, begin) = (&shared, &begin);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let mut random = Random(seed * THREADS + thread);
                    begin.wait();
                    for call in 0..CALLS {
                        let done = shared.step(&mut random);
                        assert!(
                            done != 0 && done != PANIC && done != HANDLE_POISONED,
                            "seed {seed}, thread {thread}, call {call}: {done}"
                        );
                    }
                });
            }
        });
        shared.end();
        let mut returned = 0;
        let (mut cookies, mut count, mut left) = ([0; 64], 0, 0);
        loop {
            let (room, all) = (cookies.len(), cookies.as_mut_ptr());
            let (count_at, left_at) = (&raw mut count, &raw mut left);
            let done =
                unsafe { weir_loans_collect(loans, all, room, count_at, left_at, null_mut()) };
            assert_eq!(done, OK);
            assert!(cookies[..count].iter().all(|cookie| *cookie == 7));
            returned += count as u64;
            if count == 0 {
                break;
            }
        }
        unsafe { weir_loans_free(loans) };
        assert_eq!(
            (returned, left),
            (*shared.accepted.lock().unwrap(), 0),
            "seed {seed}"
        );
        accepted += returned;
    }
    assert!(accepted > 200, "{accepted} loans");
}
