//! Calls in any order, with handles in any state: each call returns a result or an error, and each
//! accepted loan is returned once.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use weir_capi::raw::{Buffer, Loan, Page, Query, Slice};
use weir_capi::*;

use crate::kit::*;

/// The number of runs, and the calls of each run.
const RUNS: u64 = 200;
const CALLS: usize = 300;

const PAGES: [&[u8]; 8] = [
    b"[]",
    br#"[{"n":1},{"n":2},{"n":3}]"#,
    br#"[{"n":null},{"n":"x"},{"n":[1]}]"#,
    br#"[{"n":9}]"#,
    b"[1,",
    b"\xff",
    b"",
    br#" [ {"n" : 1e3 } ] "#,
];
const ORDERS: [&[u8]; 4] = [b"", b"$.n", b"$.n desc", b"$["];
const FILTERS: [&[u8]; 3] = [b"", b"@.n > 1", b"@.n"];
const SELECTS: [&[u8]; 3] = [b"", b"$.n", b"count"];

/// A pseudorandom number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len())])
    }
}

/// How often each loan was returned.
type Returns = Mutex<Vec<u32>>;

struct ReturnCounter {
    at: usize,
    returns: *const Returns,
}

extern "C" fn release(user: *mut c_void, _: *const u8, _: usize) {
    let counter = unsafe { Box::from_raw(user.cast::<ReturnCounter>()) };
    unsafe { &*counter.returns }.lock().unwrap()[counter.at] += 1;
}

/// Handles that were returned, including those that were released.
#[derive(Default)]
struct CallState {
    queries: Vec<*mut Query>,
    pages: Vec<*mut Page>,
    buffers: Vec<*mut Buffer>,
    accepted: usize,
    returns: Box<Returns>,
}

impl CallState {
    fn lend(&mut self, query: *mut Query, source: u32, page: Slice, next: u32) -> i32 {
        let counter = Box::new(ReturnCounter {
            at: self.accepted,
            returns: &raw const *self.returns,
        });
        let user = Box::into_raw(counter);
        let loan = Loan {
            release: Some(release),
            user: user.cast(),
            loans: null_mut(),
            cookie: 0,
        };
        self.returns.lock().unwrap().push(0);
        let done = unsafe {
            let name = NOTHING;
            let loan = &raw const loan;
            weir_query_enqueue_loan(query, source, page, null(), name, next, loan, null_mut())
        };
        if done == OK {
            self.accepted += 1;
        } else {
            assert_eq!(self.returns.lock().unwrap().pop(), Some(0));
            drop(unsafe { Box::from_raw(user) });
        }
        done
    }

    fn step(&mut self, random: &mut Random) -> i32 {
        let page = slice(PAGES[random.below(PAGES.len())]);
        let source = u32::try_from(random.below(4)).unwrap();
        let more = u32::from(random.below(5) > 0);
        // One of the last queries, which may be released already.
        let first = self.queries.len().saturating_sub(4);
        let query = random.pick(&self.queries[first..]).unwrap_or_default();
        let old = random.pick(&self.pages).unwrap_or_default();
        let buffer = random.pick(&self.buffers).unwrap_or_default();
        let (e, mut given, mut number) = (null_mut(), null_mut(), 0);
        let done = unsafe {
            match random.below(24) {
                0 => self.open(random),
                1 | 2 => {
                    let mut options = sized!(weir_capi::raw::SourceOptions);
                    // Mostly arrays.
                    options.shape = u32::try_from(random.below(5).saturating_sub(3)).unwrap();
                    options.flags = if random.below(2) == 0 { 4 } else { 0 };
                    weir_query_source(query, &raw const options, &raw mut number, e)
                }
                3 | 4 => weir_query_enqueue_copy(query, source, page, null(), NOTHING, more, e),
                8 => {
                    let mut made = null_mut();
                    let done = weir_buffer_new(random.below(100), &raw mut made, e);
                    self.buffers.push(made);
                    done
                }
                9 => {
                    let len = random.below(100);
                    weir_query_enqueue_buffer(query, source, buffer, len, null(), NOTHING, more, e)
                }
                10..=13 => weir_query_next(query, 2, 0, &raw mut given, e),
                14 => weir_query_finish(query, source, e),
                15 => weir_query_token(query, &raw mut given, e),
                16 => weir_page_retain(old),
                17 => {
                    weir_page_release(old);
                    OK
                }
                18 if random.below(8) == 0 => weir_query_cancel(query),
                19 if random.below(3) == 0 => {
                    weir_query_free(query);
                    weir_buffer_free(buffer);
                    OK
                }
                _ => self.lend(query, source, page, more),
            }
        };
        if !given.is_null() {
            self.pages.push(given);
        }
        done
    }

    fn open(&mut self, random: &mut Random) -> i32 {
        let mut options = sized!(weir_capi::raw::QueryOptions);
        options.order = slice(ORDERS[random.below(ORDERS.len())]);
        options.r#where = slice(FILTERS[random.below(FILTERS.len())]);
        options.select = slice(SELECTS[random.below(SELECTS.len())]);
        let mut query = null_mut();
        let done = unsafe { weir_query_open(&raw const options, &raw mut query, null_mut()) };
        if done == OK {
            self.queries.push(query);
        }
        done
    }
}

#[test]
fn random_sequences_of_calls_are_safe() {
    let mut accepted = 0;
    for seed in 0..RUNS {
        let (mut state, mut random) = (CallState::default(), Random(seed));
        let mut results = std::collections::BTreeSet::new();
        for _ in 0..CALLS {
            let done = state.step(&mut random);
            assert!(
                done != 0 && done != PANIC && done != HANDLE_POISONED,
                "seed {seed}: {done}"
            );
            results.insert(done);
        }
        unsafe {
            for query in &state.queries {
                weir_query_free(*query);
            }
            for buffer in &state.buffers {
                weir_buffer_free(*buffer);
            }
            for page in &state.pages {
                while weir_page_retain(*page) == OK {
                    weir_page_release(*page);
                    weir_page_release(*page);
                }
            }
        }
        let returns = state.returns.lock().unwrap();
        assert!(
            returns.iter().all(|count| *count == 1),
            "seed {seed}: {returns:?}"
        );
        accepted += state.accepted;
    }
    assert!(accepted > 1000, "{accepted} loans");
}
