//! A merge and its results read no byte of a payload: the pages are unreadable in the meantime.
//!
//! A read would end the process, and so this test, with SIGSEGV.

use std::ffi::c_void;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use weir_capi::raw::{Loan, PageInfo, QueryOptions, Slice, SourceOptions};
use weir_capi::*;

use crate::kit::*;

/// Items of a page.
const ITEMS: usize = 500;

/// Complete memory pages of the machine.
struct Memory {
    start: *mut c_void,
    bytes: usize,
    used: usize,
}

impl Memory {
    fn new(content: &[u8]) -> Self {
        let bytes = content.len().next_multiple_of(1 << 16);
        let (read, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        unsafe {
            let start = mmap_anonymous(null_mut(), bytes, read, private).unwrap();
            std::ptr::copy_nonoverlapping(content.as_ptr(), start.cast(), content.len());
            let used = content.len();
            Self { start, bytes, used }
        }
    }

    fn slice(&self) -> Slice {
        let (ptr, len) = (self.start.cast_const().cast(), self.used);
        Slice { ptr, len }
    }

    fn allow(&self, what: MprotectFlags) {
        unsafe { mprotect(self.start, self.bytes, what).unwrap() };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        unsafe { munmap(self.start, self.bytes).unwrap() };
    }
}

/// Every second number, starting at `first`, in items with a payload.
fn content(first: usize) -> Vec<u8> {
    let items = (0..ITEMS).map(|at| {
        let (n, payload) = (first + 2 * at, "payload ".repeat(20));
        format!("{{\"n\":{n},\"s\":\"{n:06}\",\"payload\":[\"{payload}\"]}}")
    });
    format!("[{}]", items.collect::<Vec<_>>().join(",")).into_bytes()
}

/// Merges two pages by `order` while they are unreadable. Returns the items in the order of the
/// results.
fn merged(order: &str, select: &str) -> Vec<String> {
    let pages = [0, 1].map(|first| Memory::new(&content(first)));
    let mut spans: Vec<(*const u8, usize)> = Vec::new();
    unsafe {
        let mut options = sized!(QueryOptions);
        options.order = slice(order.as_bytes());
        options.select = slice(select.as_bytes());
        let mut query = null_mut();
        let opened = weir_query_open(&raw const options, &raw mut query, null_mut());
        assert_eq!(opened, OK);
        let mut loans = null_mut();
        assert_eq!(weir_loans_new(&raw mut loans, null_mut()), OK);
        for page in &pages {
            let mut sorted = sized!(SourceOptions);
            sorted.flags = 4;
            let mut source = 0;
            let added = weir_query_source(query, &raw const sorted, &raw mut source, null_mut());
            assert_eq!(added, OK);
            let mut loan = zero::<Loan>();
            loan.loans = loans;
            let (page, loan) = (page.slice(), &raw const loan);
            let (frames, error) = (std::ptr::null(), null_mut());
            let enqueued =
                weir_query_enqueue_loan(query, source, page, frames, NOTHING, 0, loan, error);
            assert_eq!(enqueued, OK);
        }
        for page in &pages {
            page.allow(MprotectFlags::empty());
        }
        loop {
            let mut page = null_mut();
            let step = weir_query_next(query, 64, 0, &raw mut page, null_mut());
            if step == DONE {
                break;
            }
            assert_eq!(step, READY);
            let mut info = sized!(PageInfo);
            assert_eq!(weir_page_describe(page, &raw mut info, null_mut()), OK);
            let items = std::slice::from_raw_parts(info.items, info.item_count);
            spans.extend(
                items
                    .iter()
                    .map(|item| (item.ptr, usize::try_from(item.len).unwrap())),
            );
            weir_page_release(page);
        }
        weir_query_free(query);
        let (mut cookies, mut returned) = ([0; 4], 0);
        let (room, error) = (cookies.as_mut_ptr(), null_mut());
        weir_loans_collect(loans, room, 4, &raw mut returned, null_mut(), error);
        assert_eq!(returned, 2);
        weir_loans_free(loans);
        for page in &pages {
            page.allow(MprotectFlags::READ);
        }
        let text = |(ptr, len)| std::slice::from_raw_parts(ptr, len).to_vec();
        let texts = spans.into_iter().map(text);
        texts
            .map(|bytes| String::from_utf8(bytes).unwrap())
            .collect()
    }
}

#[test]
fn no_byte_of_a_page_is_read_after_its_scan() {
    for order in ["$.n", "$.s", "$.s, $.n"] {
        let items = merged(order, "");
        assert_eq!(items.len(), 2 * ITEMS);
        for (n, item) in items.iter().enumerate() {
            assert!(
                item.starts_with(&format!("{{\"n\":{n},")),
                "{order} {n}: {item}"
            );
        }
    }
    let selected = merged("$.n", "$.s");
    assert_eq!(selected.len(), 2 * ITEMS);
    assert!(
        selected
            .iter()
            .enumerate()
            .all(|(n, text)| *text == format!("\"{n:06}\""))
    );
}
