//! Two threads, and calls that wait.

use std::ptr::{null, null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use weir_capi::raw::{GroupOptions, Intention, Reader, Verdict};
use weir_capi::*;

use crate::kit::*;

/// Longer than any of these tests, so that a wait that does not end is a failure and not a hang.
const FOREVER: u64 = 60_000;

fn reader(store: &Store, from: u32) -> *mut Reader {
    let mut options = sized!(weir_capi::raw::ReadOptions);
    options.from = from;
    let mut reader = null_mut();
    let opened = unsafe {
        weir_reader_open(
            store.store,
            slice(b"t"),
            &raw const options,
            &raw mut reader,
            null_mut(),
        )
    };
    assert_eq!(opened, OK);
    reader
}

/// Runs a call that waits without a limit on another thread. Returns its result after `end` ended
/// it.
fn ended<H>(
    handle: *mut H,
    wait: impl Fn(*mut H) -> i32 + Send + Copy + 'static,
    end: impl FnOnce(*mut H),
) -> i32 {
    let address = handle.expose_provenance();
    let waiting = std::thread::spawn(move || {
        loop {
            // The check of the other thread may be inside first.
            match wait(with_exposed_provenance_mut(address)) {
                HANDLE_BUSY => {}
                result => return result,
            }
        }
    });
    // The call is inside when a second call finds the handle busy.
    while wait_now(handle) != HANDLE_BUSY {
        std::thread::yield_now();
        assert!(!waiting.is_finished());
    }
    let begun = Instant::now();
    end(handle);
    let result = waiting.join().unwrap();
    assert!(begun.elapsed() < Duration::from_mins(1));
    result
}

/// The result of a call of a reader or a group that does not wait.
fn wait_now<H>(handle: *mut H) -> i32 {
    let mut page = null_mut();
    unsafe {
        let read = weir_reader_next(handle.cast(), 0, &raw mut page, null_mut());
        if read != BAD_HANDLE {
            return read;
        }
        weir_group_claim(handle.cast(), 1, 0, &raw mut page, null_mut())
    }
}

fn read(reader: *mut Reader) -> i32 {
    let mut page = null_mut();
    unsafe { weir_reader_next(reader, FOREVER, &raw mut page, null_mut()) }
}

#[test]
fn a_wait_ends_when_it_is_cancelled_freed_or_the_store_is_closed() {
    let store = Store::new();
    let one = reader(&store, 1);
    assert_eq!(
        ended(one, read, |one| unsafe {
            assert_eq!(weir_reader_cancel(one), OK);
        }),
        CANCELLED
    );
    // The call has cleared the mark. A mark that is set before a call also counts.
    assert_eq!(wait_now(one), TIMEOUT);
    unsafe {
        weir_reader_cancel(one);
        weir_reader_cancel(one);
    }
    assert_eq!(wait_now(one), CANCELLED);
    assert_eq!(wait_now(one), TIMEOUT);
    assert_eq!(
        ended(one, read, |one| unsafe {
            weir_reader_free(one);
        }),
        CANCELLED
    );
    assert_eq!(wait_now(one), BAD_HANDLE);
    let two = reader(&store, 1);
    let closed = ended(two, read, |_| unsafe {
        assert_eq!(weir_close(store.store, null_mut()), OK);
    });
    assert_eq!(closed, CLOSED);
    assert_eq!(wait_now(two), CLOSED);
    unsafe { weir_reader_free(two) };
}

#[test]
fn a_cancel_ends_one_call_and_not_the_next() {
    const CANCELS: usize = 2_000;
    let store = Store::new();
    let one = reader(&store, 1);
    let address = one.expose_provenance();
    let counts = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let [calls, cancelled] = &*Arc::clone(&counts);
    let calling = std::thread::spawn(move || {
        let [calls, cancelled] = &*counts;
        while cancelled.load(Ordering::Acquire) < CANCELS {
            if wait_now(with_exposed_provenance_mut::<Reader>(address)) == CANCELLED {
                cancelled.fetch_add(1, Ordering::AcqRel);
            }
            calls.fetch_add(1, Ordering::AcqRel);
        }
    });
    let until = |is_so: &dyn Fn() -> bool| {
        while !is_so() && !calling.is_finished() {
            std::thread::yield_now();
        }
    };
    for given in 1..=CANCELS {
        assert_eq!(unsafe { weir_reader_cancel(one) }, OK);
        until(&|| cancelled.load(Ordering::Acquire) >= given);
        // The call that saw the handle has ended, and one more complete call follows.
        let seen = calls.load(Ordering::Acquire);
        until(&|| calls.load(Ordering::Acquire) >= seen + 2);
        assert_eq!(cancelled.load(Ordering::Acquire), given);
    }
    calling.join().unwrap();
    assert_eq!(wait_now(one), TIMEOUT);
    unsafe { weir_reader_free(one) };
}

#[test]
fn a_claim_that_waits_ends_when_it_is_cancelled_freed_or_the_store_is_closed() {
    let store = Store::new();
    let mut options = sized!(GroupOptions);
    options.mode = 3;
    let mut group = null_mut();
    unsafe {
        let (topic, name) = (slice(b"t"), slice(b"g"));
        let made = weir_group_open(
            store.store,
            topic,
            name,
            &raw const options,
            &raw mut group,
            null_mut(),
        );
        assert_eq!(made, OK);
        let claim = |group| {
            let mut page = null_mut();
            weir_group_claim(group, 1, FOREVER, &raw mut page, null_mut())
        };
        assert_eq!(
            ended(group, claim, |group| {
                weir_group_cancel(group);
            }),
            CANCELLED
        );
        assert_eq!(
            ended(group, claim, |group| weir_group_free(group)),
            CANCELLED
        );
    }
}

#[test]
fn a_query_is_used_by_one_thread_at_a_time() {
    // Two threads call as fast as possible: each call succeeds or finds the handle busy.
    let (query, _) = query("");
    let address = query.expose_provenance();
    let begin = Barrier::new(2);
    let work = || {
        begin.wait();
        let query = with_exposed_provenance_mut::<weir_capi::raw::Query>(address);
        let mut done = 0;
        while done < 5_000 {
            match next(query) {
                (NEED, page) => {
                    unsafe { weir_page_release(page) };
                    done += 1;
                }
                (kind, _) => assert_eq!(kind, HANDLE_BUSY),
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    assert_eq!(next(query).0, NEED);
    unsafe { weir_query_free(query) };
}

#[test]
fn a_store_is_used_by_many_threads_at_a_time() {
    let store = Store::new();
    let address = store.store.expose_provenance();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut intention = sized!(Intention);
                    intention.operation = 1;
                    intention.topic = slice(b"t");
                    intention.key = slice(b"k");
                    let mut verdict = zero::<Verdict>();
                    let store = with_exposed_provenance_mut(address);
                    let (one, out) = (&raw const intention, &raw mut verdict);
                    let done = unsafe { weir_submit(store, one, 1, out, null_mut(), null_mut()) };
                    assert_eq!((done, verdict.effect), (OK, 1));
                }
            });
        }
    });
    let mut info = sized!(weir_capi::raw::TopicInfo);
    unsafe { weir_topic_describe(store.store, slice(b"t"), &raw mut info, null_mut()) };
    assert_eq!((info.last, info.keys), (201, 1));
}

#[test]
fn pending_verdicts_are_returned_once() {
    let store = Store::new();
    let mut intention = sized!(Intention);
    intention.operation = 1;
    intention.topic = slice(b"t");
    let mut pending = null_mut();
    let mut verdicts = [zero::<Verdict>()];
    unsafe {
        let sent = weir_send(
            store.store,
            &raw const intention,
            1,
            &raw mut pending,
            null_mut(),
        );
        assert_eq!(sent, OK);
        let mut wait = |room| {
            let out = verdicts.as_mut_ptr();
            weir_pending_wait(pending, FOREVER, out, room, null_mut(), null_mut())
        };
        assert_eq!(wait(0), BAD_LENGTH);
        assert_eq!(wait(1), OK);
        assert_eq!(wait(1), BAD_OPTION);
        weir_pending_free(pending);
        let none = weir_submit(store.store, null(), 0, null_mut(), null_mut(), null_mut());
        assert_eq!(none, BAD_OPTION);
    }
    assert_eq!((verdicts[0].effect, verdicts[0].offset), (1, 2));
}
