//! Helpers that the tests share.

use std::ptr::{null, null_mut};

use weir_capi::raw::{
    Error, OpenOptions, Page, PageInfo, Query, QueryOptions, Slice, SourceOptions, Weir,
};
use weir_capi::{
    weir_close, weir_open, weir_page_describe, weir_page_release, weir_query_next, weir_query_open,
    weir_query_source, weir_topic_ensure,
};

pub(crate) const OK: i32 = 1;
pub(crate) const READY: i32 = 2;
pub(crate) const NEED: i32 = 3;
pub(crate) const DONE: i32 = 4;
pub(crate) const TIMEOUT: i32 = 5;
pub(crate) const NULL_POINTER: i32 = -601;
pub(crate) const MISALIGNED: i32 = -602;
pub(crate) const BAD_LENGTH: i32 = -603;
pub(crate) const BAD_HANDLE: i32 = -604;
pub(crate) const HANDLE_BUSY: i32 = -605;
pub(crate) const PANIC: i32 = -606;
pub(crate) const HANDLE_POISONED: i32 = -607;
pub(crate) const BAD_STRUCT: i32 = -608;
pub(crate) const CLOSED: i32 = -414;
pub(crate) const BAD_OPTION: i32 = -415;
pub(crate) const CANCELLED: i32 = -508;
pub(crate) const TOO_COMPLEX: i32 = -703;

pub(crate) fn slice(bytes: &[u8]) -> Slice {
    Slice {
        ptr: bytes.as_ptr(),
        len: bytes.len(),
    }
}

pub(crate) const NOTHING: Slice = Slice {
    ptr: null(),
    len: 0,
};

/// A structure of the header, all zero.
pub(crate) fn zero<T: Copy>() -> T {
    unsafe { std::mem::zeroed() }
}

/// As `zero`, with `struct_size` set.
macro_rules! sized {
    ($type:ty) => {{
        let mut value = $crate::kit::zero::<$type>();
        value.struct_size = u32::try_from(size_of::<$type>()).unwrap();
        value
    }};
}
pub(crate) use sized;

pub(crate) fn words(error: &Error) -> String {
    let bytes = error.message.iter().take_while(|byte| **byte != 0);
    String::from_utf8(bytes.map(|byte| byte.cast_unsigned()).collect()).unwrap()
}

/// A query with one source.
pub(crate) fn query(order: &str) -> (*mut Query, u32) {
    let mut options = sized!(QueryOptions);
    options.order = slice(order.as_bytes());
    let mut query = null_mut();
    let opened = unsafe { weir_query_open(&raw const options, &raw mut query, null_mut()) };
    assert_eq!(opened, OK);
    (query, source(query))
}

pub(crate) fn source(query: *mut Query) -> u32 {
    let options = sized!(SourceOptions);
    let mut source = 9;
    let added =
        unsafe { weir_query_source(query, &raw const options, &raw mut source, null_mut()) };
    assert_eq!(added, OK);
    source
}

/// The result of `weir_query_next`, and the page if there is one.
pub(crate) fn next(query: *mut Query) -> (i32, *mut Page) {
    let mut page = null_mut();
    let kind = unsafe { weir_query_next(query, 0, 0, &raw mut page, null_mut()) };
    (kind, page)
}

/// Returns the items of a page and releases it.
pub(crate) fn items(page: *mut Page) -> Vec<Vec<u8>> {
    let mut info = sized!(PageInfo);
    unsafe {
        assert_eq!(weir_page_describe(page, &raw mut info, null_mut()), OK);
        let items = std::slice::from_raw_parts(info.items, info.item_count);
        let bytes = items.iter().map(|item| {
            let len = usize::try_from(item.len).unwrap();
            if len == 0 {
                return Vec::new();
            }
            std::slice::from_raw_parts(item.ptr, len).to_vec()
        });
        let bytes = bytes.collect();
        weir_page_release(page);
        bytes
    }
}

/// A store with the topic `t`.
pub(crate) struct Store {
    pub(crate) store: *mut Weir,
    _directory: tempfile::TempDir,
}

impl Store {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = sized!(OpenOptions);
        options.durability = 4;
        let mut store = null_mut();
        let path = directory.path().to_str().unwrap();
        unsafe {
            let path = slice(path.as_bytes());
            let opened = weir_open(path, &raw const options, &raw mut store, null_mut());
            assert_eq!(opened, OK);
            let made = weir_topic_ensure(store, slice(b"t"), null(), null_mut(), null_mut());
            assert_eq!(made, OK);
        }
        Self {
            store,
            _directory: directory,
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The test may have closed it already.
        unsafe { weir_close(self.store, null_mut()) };
    }
}
