//! NULL, alignment, lengths, handles and sizes of structures.

use std::ptr::{null, null_mut, without_provenance_mut};

use weir_capi::raw::{
    Error, Frame, GroupOptions, Intention, OpenOptions, Page, PageInfo, Param, Query, QueryOptions,
    ReadOptions, Slice, SourceOptions, Step, Verdict, Weir,
};
use weir_capi::*;

use crate::kit::*;

#[test]
fn null_is_an_error_for_required_arguments_only() {
    unsafe {
        let (query, source) = query("");
        let e = null_mut();
        assert_eq!(weir_query_open(null(), null_mut(), e), NULL_POINTER);
        assert_eq!(
            weir_query_source(null_mut(), null(), null_mut(), e),
            NULL_POINTER
        );
        assert_eq!(
            weir_query_source(query, null(), null_mut(), e),
            NULL_POINTER
        );
        assert_eq!(weir_query_next(query, 0, 0, null_mut(), e), NULL_POINTER);
        let many = Slice {
            ptr: null(),
            len: 1,
        };
        assert_eq!(
            weir_query_enqueue_copy(query, source, many, null(), NOTHING, 0, e),
            NULL_POINTER
        );
        assert_eq!(
            weir_query_enqueue_loan(query, source, NOTHING, null(), NOTHING, 0, null(), e),
            NULL_POINTER
        );
        assert_eq!(weir_open(NOTHING, null(), null_mut(), e), NULL_POINTER);
        assert_eq!(weir_sync(null_mut(), e), NULL_POINTER);
        assert_eq!(weir_close(null_mut(), e), OK);
        let mut count = 7;
        assert!(weir_page_items(null(), &raw mut count).is_null());
        assert_eq!(count, 0);
        assert!(weir_page_items(null(), null_mut()).is_null());
        weir_page_release(null_mut());
        weir_query_free(null_mut());
        weir_buffer_free(null_mut());
        weir_loans_free(null_mut());
        weir_reader_free(null_mut());
        weir_group_free(null_mut());
        weir_session_free(null_mut());
        weir_pending_free(null_mut());
        weir_query_free(query);
    }
}

#[test]
fn misaligned_memory_is_not_accessed() {
    fn odd<T>(address: usize) -> *mut T {
        without_provenance_mut(address + 1)
    }
    let place = 0_u64;
    let near = (&raw const place).addr();
    unsafe {
        let options = odd::<QueryOptions>(near);
        let mut query = null_mut::<Query>();
        assert_eq!(
            weir_query_open(options, &raw mut query, null_mut()),
            MISALIGNED
        );
        let out = odd::<*mut Query>(near);
        assert_eq!(weir_query_open(null(), out, null_mut()), MISALIGNED);
        // An error structure that is misaligned is not written.
        let error = odd::<Error>(near);
        assert_eq!(weir_sync(null_mut(), error), NULL_POINTER);
    }
    assert_eq!(place, 0);
}

#[test]
fn impossible_lengths_are_errors_before_any_read() {
    let byte = 0_u8;
    let long = Slice {
        ptr: &raw const byte,
        len: usize::MAX,
    };
    unsafe {
        let (query, source) = query("");
        let e = null_mut();
        assert_eq!(
            weir_query_enqueue_copy(query, source, long, null(), NOTHING, 0, e),
            BAD_LENGTH
        );
        let mut options = sized!(QueryOptions);
        options.r#where = long;
        let mut other = null_mut();
        assert_eq!(
            weir_query_open(&raw const options, &raw mut other, e),
            BAD_LENGTH
        );
        let keys = [NOTHING];
        assert_eq!(
            weir_query_watermark(query, source, keys.as_ptr(), usize::MAX / 2, e),
            BAD_LENGTH
        );
        let mut buffer = null_mut();
        assert_eq!(weir_buffer_new(usize::MAX, &raw mut buffer, e), BAD_LENGTH);
        assert_eq!(weir_buffer_new(1 << 60, &raw mut buffer, e), BAD_LENGTH);
        let store = Store::new();
        assert_eq!(
            weir_submit(store.store, null(), usize::MAX, null_mut(), null_mut(), e),
            BAD_LENGTH
        );
        weir_query_free(query);
    }
}

const PAGE_TOO_LARGE: i32 = -716;
const SOURCE_FINISHED: i32 = -724;
/// Flag of `weir_source_options`.
const FIRST: u32 = 2;

/// One byte with a length that exceeds all memory, for every argument with a length.
#[test]
#[allow(clippy::too_many_lines, reason = "a list of places")]
fn lengths_beyond_the_memory_are_errors_for_every_argument() {
    let byte = b'"';
    let slice_of = |len: usize| Slice {
        ptr: &raw const byte,
        len,
    };
    let e = null_mut();
    let store = Store::new();
    for long in [1 << 62, 1 << 46, 1 << 33].map(slice_of) {
        unsafe {
            // Queries: the next page, sources, fields and keys.
            let (query, source) = query("$.n");
            let page = slice(b"[]");
            let copy = weir_query_enqueue_copy(query, source, page, null(), long, 1, e);
            assert_eq!(copy, BAD_LENGTH);
            let loans = {
                let mut loans = null_mut();
                assert_eq!(weir_loans_new(&raw mut loans, e), OK);
                loans
            };
            let loan = weir_capi::raw::Loan {
                release: None,
                user: null_mut(),
                loans,
                cookie: 7,
            };
            let loan = &raw const loan;
            let lent = weir_query_enqueue_loan(query, source, page, null(), long, 1, loan, e);
            assert_eq!(lent, BAD_LENGTH);
            let (mut count, mut more) = (9, 9);
            let (count, more) = (&raw mut count, &raw mut more);
            let none = weir_loans_collect(loans, null_mut(), 0, count, more, e);
            assert_eq!((none, *count, *more), (OK, 0, 0));
            weir_loans_free(loans);
            let mut buffer = null_mut();
            assert_eq!(weir_buffer_new(8, &raw mut buffer, e), OK);
            let given = weir_query_enqueue_buffer(query, source, buffer, 2, null(), long, 1, e);
            assert_eq!(given, BAD_LENGTH);
            weir_buffer_free(buffer);
            let added = |set: &dyn Fn(&mut SourceOptions)| {
                let mut options = sized!(SourceOptions);
                set(&mut options);
                let mut number = 0;
                weir_query_source(query, &raw const options, &raw mut number, e)
            };
            assert_eq!(added(&|source| source.name = long), BAD_LENGTH);
            assert_eq!(
                added(&|source| (source.flags, source.first) = (FIRST, long)),
                BAD_LENGTH
            );
            assert_eq!(added(&|source| source.tie = long), BAD_LENGTH);
            assert_eq!(
                added(&|source| (source.shape, source.member) = (1, long)),
                BAD_LENGTH
            );
            let keys = [long];
            assert_eq!(
                added(&|source| (source.bound, source.bound_count) = (keys.as_ptr(), 1)),
                BAD_LENGTH
            );
            let param = Param {
                name: slice(b"n"),
                value: long,
            };
            assert_eq!(
                added(&|source| (source.meta, source.meta_count) = (&raw const param, 1)),
                BAD_LENGTH
            );
            assert_eq!(
                weir_query_watermark(query, source, keys.as_ptr(), 1, e),
                BAD_LENGTH
            );
            assert_eq!(weir_query_abandon(query, long, e), BAD_LENGTH);
            let opened = |set: &dyn Fn(&mut QueryOptions)| {
                let mut options = sized!(QueryOptions);
                set(&mut options);
                let mut other = null_mut();
                weir_query_open(&raw const options, &raw mut other, e)
            };
            assert_eq!(opened(&|query| query.r#where = long), BAD_LENGTH);
            assert_eq!(opened(&|query| query.order = long), BAD_LENGTH);
            assert_eq!(opened(&|query| query.token = long), BAD_LENGTH);
            assert_eq!(
                opened(&|query| (query.params, query.param_count) = (&raw const param, 1)),
                BAD_LENGTH
            );
            weir_query_free(query);
            // Stores.
            let mut other = null_mut();
            assert_eq!(weir_open(long, null(), &raw mut other, e), BAD_LENGTH);
            assert_eq!(weir_connect(long, null(), &raw mut other, e), BAD_LENGTH);
            assert_eq!(
                weir_topic_ensure(store.store, long, null(), null_mut(), e),
                BAD_LENGTH
            );
            let (topic, mut page) = (slice(b"t"), null_mut());
            let out = &raw mut page;
            assert_eq!(weir_get(store.store, topic, long, out, e), BAD_LENGTH);
            assert_eq!(
                weir_scan(store.store, topic, long, NOTHING, 0, 0, out, e),
                BAD_LENGTH
            );
            assert_eq!(
                weir_scan(store.store, topic, NOTHING, long, 0, 1, out, e),
                BAD_LENGTH
            );
            let mut session = null_mut();
            assert_eq!(
                weir_session_open(store.store, long, &raw mut session, e),
                BAD_LENGTH
            );
            let submitted = |operation: u32, set: &dyn Fn(&mut Intention)| {
                let mut intention = sized!(Intention);
                (intention.operation, intention.topic) = (operation, topic);
                set(&mut intention);
                let mut verdict = zero::<Verdict>();
                let (given, out) = (&raw const intention, &raw mut verdict);
                weir_submit(store.store, given, 1, out, null_mut(), e)
            };
            assert_eq!(submitted(1, &|put| put.value = long), BAD_LENGTH);
            assert_eq!(submitted(1, &|put| put.key = long), BAD_LENGTH);
            assert_eq!(submitted(1, &|put| put.meta = long), BAD_LENGTH);
            assert_eq!(submitted(2, &|delete| delete.key = long), BAD_LENGTH);
            assert_eq!(submitted(4, &|create| create.code = long), BAD_LENGTH);
            assert_eq!(submitted(7, &|replace| replace.args = long), BAD_LENGTH);
            // Memory.
            let mut buffer = null_mut();
            assert_eq!(weir_buffer_new(1 << 62, &raw mut buffer, e), BAD_LENGTH);
        }
    }
}

#[test]
fn a_page_that_is_too_large_is_refused_before_it_is_copied() {
    let byte = 0_u8;
    let page = Slice {
        ptr: &raw const byte,
        len: 3 << 29,
    };
    unsafe {
        let (query, source) = query("");
        let copied = weir_query_enqueue_copy(query, source, page, null(), NOTHING, 0, null_mut());
        assert_eq!(copied, PAGE_TOO_LARGE);
        // A source that accepts no more pages.
        assert_eq!(weir_query_finish(query, source, null_mut()), OK);
        let copied = weir_query_enqueue_copy(query, source, page, null(), NOTHING, 0, null_mut());
        assert_eq!(copied, SOURCE_FINISHED);
        weir_query_free(query);
    }
}

#[test]
fn a_handle_is_valid_for_its_type_until_its_release() {
    unsafe {
        let (query, _) = query("");
        let e = null_mut();
        // A handle of another type.
        assert_eq!(weir_sync(query.cast::<Weir>(), e), BAD_HANDLE);
        assert_eq!(weir_page_retain(query.cast::<Page>()), BAD_HANDLE);
        weir_page_release(query.cast::<Page>());
        weir_buffer_free(query.cast());
        assert_eq!(next(query).0, NEED);
        // A pointer that is not a handle.
        let value = 5_u64;
        let pointer = (&raw const value).cast_mut().cast::<Query>();
        assert_eq!(next(pointer).0, BAD_HANDLE);
        // A handle that was released.
        weir_query_free(query);
        weir_query_free(query);
        assert_eq!(next(query).0, BAD_HANDLE);
        assert_eq!(weir_query_cancel(query), BAD_HANDLE);
    }
}

#[test]
fn a_page_lives_until_every_reference_is_released() {
    unsafe {
        let (query, source) = query("");
        let bytes = b"[1,2]";
        let done =
            weir_query_enqueue_copy(query, source, slice(bytes), null(), NOTHING, 0, null_mut());
        assert_eq!(done, OK);
        let (kind, page) = next(query);
        assert_eq!(kind, READY);
        weir_query_free(query);
        assert_eq!(weir_page_retain(page), OK);
        weir_page_release(page);
        assert_eq!(items(page), [b"1", b"2"]);
        let mut info = sized!(PageInfo);
        assert_eq!(
            weir_page_describe(page, &raw mut info, null_mut()),
            BAD_HANDLE
        );
        weir_page_release(page);
        assert_eq!(weir_page_retain(page), BAD_HANDLE);
    }
}

#[test]
fn struct_size_is_checked() {
    #[repr(C)]
    struct Later {
        options: QueryOptions,
        new: u64,
    }
    unsafe {
        let mut query = null_mut();
        let mut error = zero::<Error>();
        let mut open = |options: *const QueryOptions, error: *mut Error| {
            let opened = weir_query_open(options, &raw mut query, error);
            if opened == OK {
                weir_query_free(query);
            }
            opened
        };
        let mut options = zero::<QueryOptions>();
        assert_eq!(open(&raw const options, &raw mut error), BAD_STRUCT);
        assert!(
            words(&error).contains("struct_size is 0"),
            "{}",
            words(&error)
        );
        options = sized!(QueryOptions);
        assert_eq!(open(&raw const options, null_mut()), OK);
        options.struct_size = u32::MAX;
        assert_eq!(open(&raw const options, null_mut()), BAD_STRUCT);
        // A structure of a later version: accepted if its new fields are zero.
        let mut later = Later {
            options: sized!(QueryOptions),
            new: 0,
        };
        later.options.struct_size = u32::try_from(size_of::<Later>()).unwrap();
        assert_eq!(open((&raw const later).cast(), null_mut()), OK);
        later.new = 1;
        assert_eq!(open((&raw const later).cast(), null_mut()), BAD_STRUCT);
        options = sized!(QueryOptions);
        options.flags = 1 << 31;
        assert_eq!(open(&raw const options, null_mut()), BAD_OPTION);
    }
}

#[test]
fn a_reserved_field_that_is_set_is_an_error() {
    let store = Store::new();
    let e = null_mut();
    let (t, mut other, mut reader) = (slice(b"t"), null_mut(), null_mut());
    let mut opening = sized!(OpenOptions);
    opening.reserved = 1;
    let mut reading = sized!(ReadOptions);
    reading.reserved = 1;
    let mut step = zero::<Step>();
    (step.operation, step.key, step.reserved) = (1, slice(b"k"), 1);
    let mut intention = sized!(Intention);
    (intention.operation, intention.topic) = (3, t);
    (intention.steps, intention.step_count) = (&raw const step, 1);
    let mut verdict = zero::<Verdict>();
    unsafe {
        let opened = weir_open(slice(b"none"), &raw const opening, &raw mut other, e);
        assert_eq!(opened, BAD_OPTION);
        let opened = weir_reader_open(store.store, t, &raw const reading, &raw mut reader, e);
        assert_eq!(opened, BAD_OPTION);
        let (given, out) = (&raw const intention, &raw mut verdict);
        let submitted = weir_submit(store.store, given, 1, out, null_mut(), e);
        assert_eq!(submitted, BAD_OPTION);
    }
}

#[test]
fn a_group_with_an_invalid_member_is_not_created() {
    const GROUP_UNKNOWN: i32 = -322;
    let store = Store::new();
    let (t, g, mut group) = (slice(b"t"), slice(b"g"), null_mut());
    let mut options = sized!(GroupOptions);
    options.mode = 3;
    options.member = Slice {
        ptr: null(),
        len: 1,
    };
    unsafe {
        let given = &raw mut options;
        let group = &raw mut group;
        let open = |given| weir_group_open(store.store, t, g, given, group, null_mut());
        assert_eq!(open(given), NULL_POINTER);
        // Only an existing group.
        ((*given).member, (*given).flags) = (NOTHING, 1);
        assert_eq!(open(given), GROUP_UNKNOWN);
    }
}

#[test]
fn an_info_of_a_later_version_is_filled_with_zeros() {
    #[repr(C)]
    struct Later {
        info: PageInfo,
        new: [u64; 2],
    }
    unsafe {
        let (query, _) = query("");
        let (_, page) = next(query);
        let mut later = Later {
            info: zero(),
            new: [7, 7],
        };
        later.info.struct_size = u32::try_from(size_of::<PageInfo>() + 8).unwrap();
        let out = (&raw mut later).cast::<PageInfo>();
        assert_eq!(weir_page_describe(page, out, null_mut()), OK);
        assert_eq!(later.info.item_count, 1);
        assert_eq!(later.info.struct_size as usize, size_of::<PageInfo>() + 8);
        assert_eq!(later.new, [0, 7]);
        weir_page_release(page);
        weir_query_free(query);
    }
}

#[test]
fn out_parameters_are_written_on_success_only() {
    unsafe {
        let mut query = without_provenance_mut::<Query>(7);
        let mut options = sized!(QueryOptions);
        options.order = slice(b"$..x");
        let mut error = zero::<Error>();
        let opened = weir_query_open(&raw const options, &raw mut query, &raw mut error);
        assert_eq!((opened, error.code, error.offset), (-702, -702, 1));
        assert_eq!(query.addr(), 7);
        options.order = NOTHING;
        error.code = 5;
        let opened = weir_query_open(&raw const options, &raw mut query, &raw mut error);
        assert_eq!((opened, error.code), (OK, 5));
        weir_query_free(query);
    }
}

#[test]
fn values_at_one_path_are_found_in_many_items() {
    unsafe {
        let (query, source) = query("");
        let page = slice(br#"[{"a":{"b":1}},{"a":2},{"a":{"b":"x y"}}]"#);
        weir_query_enqueue_copy(query, source, page, null(), NOTHING, 0, null_mut());
        let (_, page) = next(query);
        let mut found = [NOTHING; 3];
        let path = slice(b"$.a.b");
        let e = null_mut();
        assert_eq!(weir_page_get(page, 0, 3, path, found.as_mut_ptr(), e), OK);
        let shown = found.map(|slice| {
            (!slice.ptr.is_null()).then(|| std::slice::from_raw_parts(slice.ptr, slice.len))
        });
        assert_eq!(shown, [Some(&b"1"[..]), None, Some(&b"\"x y\""[..])]);
        let out = found.as_mut_ptr();
        assert_eq!(weir_page_get(page, 2, 2, path, out, e), BAD_LENGTH);
        assert_eq!(weir_page_get(page, usize::MAX, 2, path, out, e), BAD_LENGTH);
        assert_eq!(weir_page_get(page, 0, 1, slice(b"$..a"), out, e), -702);
        assert_eq!(weir_page_get(page, 0, 1, slice(b"$["), out, e), -701);
        weir_page_release(page);
        weir_query_free(query);
    }
}

#[test]
fn values_are_found_in_a_text_of_the_caller() {
    let place = |offset, len| Frame { offset, len };
    let shown = |found: &[Frame]| {
        found
            .iter()
            .map(|at| (at.offset, at.len))
            .collect::<Vec<_>>()
    };
    unsafe {
        let json = slice(br#"{"a":{"b":12},"c":"x"}"#);
        let paths = [slice(b"$.c"), slice(b"$.a.b"), slice(b"$.d")];
        let mut found = [place(7, 7); 4];
        let (paths, out, e) = (paths.as_ptr(), found.as_mut_ptr(), null_mut());
        assert_eq!(weir_find(json, paths, 3, out, e), OK);
        assert_eq!(shown(&found), [(18, 3), (10, 2), (0, 0), (7, 7)]);
        assert_eq!(weir_find(slice(b"text"), paths, 1, out, e), OK);
        assert_eq!(
            weir_find(NOTHING, paths.wrapping_add(1), 1, out.wrapping_add(1), e),
            OK
        );
        assert_eq!(shown(&found), [(0, 0), (0, 0), (0, 0), (7, 7)]);
        assert_eq!(weir_find(json, null(), 0, null_mut(), e), OK);
        // A text that breaks after a value was found has no values.
        let broken = slice(br#"{"c":1,"a":"#);
        assert_eq!(weir_find(broken, paths, 2, out, e), OK);
        assert_eq!(shown(&found), [(0, 0), (0, 0), (0, 0), (7, 7)]);

        // Errors write nothing.
        for at in 0..4 {
            out.add(at).write(place(7, 7));
        }
        assert_eq!(weir_find(json, [slice(b"$..a")].as_ptr(), 1, out, e), -702);
        assert_eq!(weir_find(json, [slice(b"$[")].as_ptr(), 1, out, e), -701);
        let many = [slice(b"$.c"); 65];
        assert_eq!(weir_find(json, many.as_ptr(), 65, out, e), TOO_COMPLEX);
        assert_eq!(weir_find(json, null(), 1, out, e), NULL_POINTER);
        assert_eq!(weir_find(json, paths, 1, null_mut(), e), NULL_POINTER);
        assert_eq!(
            weir_find(json, paths, 1, out.wrapping_byte_add(1), e),
            MISALIGNED
        );
        let huge = Slice {
            ptr: json.ptr,
            len: 1 << 32,
        };
        assert_eq!(weir_find(huge, paths, 1, out, e), BAD_LENGTH);
        assert_eq!(shown(&found), [(7, 7); 4]);
    }
}

#[test]
fn values_at_several_paths_are_a_table() {
    unsafe {
        let (query, source) = query("");
        let page = slice(br#"[{"a":{"b":1},"c":[2, 3]},{"a":2},{"c":"x","a":{"b":nul}}]"#);
        weir_query_enqueue_copy(query, source, page, null(), NOTHING, 0, null_mut());
        let (_, page) = next(query);
        let seven = slice(b"7");
        let mut found = [seven; 10];
        let paths = [slice(b"$.c"), slice(b"$.a.b"), slice(b"$.c")];
        let out = found.as_mut_ptr();
        let mut error = zero::<Error>();
        let e = &raw mut error;
        assert_eq!(weir_page_values(page, 0, 3, paths.as_ptr(), 3, out, e), OK);
        let shown = found.map(|slice| {
            (!slice.ptr.is_null()).then(|| std::slice::from_raw_parts(slice.ptr, slice.len))
        });
        let (list, none) = (Some(&b"[2, 3]"[..]), None);
        let rows = [
            [list, Some(&b"1"[..]), list],
            [none; 3],
            [none; 3], // the item is not JSON before the value
        ];
        assert_eq!(shown[..9], *rows.as_flattened());
        assert_eq!(shown[9], Some(&b"7"[..]));

        // A call that fails writes nothing, and neither does one without paths or items.
        let mut found = [seven; 3];
        let out = found.as_mut_ptr();
        let paths = paths.as_ptr();
        assert_eq!(weir_page_values(page, 3, 0, paths, 3, out, e), OK);
        assert_eq!(weir_page_values(page, 0, 3, null(), 0, null_mut(), e), OK);
        let wrong = [slice(b"$.c"), slice(b"$..c")];
        let wrong = wrong.as_ptr();
        assert_eq!(weir_page_values(page, 0, 1, wrong, 2, out, e), -702);
        assert_eq!((error.detail, error.offset), (1, 1));
        let open = [slice(b"$["), slice(b"$.c")];
        let open = open.as_ptr();
        assert_eq!(weir_page_values(page, 0, 1, open, 2, out, e), -701);
        assert_eq!(error.detail, 0);
        assert_eq!(weir_page_values(page, 2, 2, paths, 3, out, e), BAD_LENGTH);
        assert_eq!(
            weir_page_values(page, usize::MAX, 2, paths, 3, out, e),
            BAD_LENGTH
        );
        let many = [slice(b"$.c"); 65];
        let many = many.as_ptr();
        assert_eq!(weir_page_values(page, 0, 1, many, 65, out, e), TOO_COMPLEX);
        assert_eq!(words(&error), "more than 64 paths");
        assert_eq!(weir_page_values(page, 0, 0, many, 64, out, e), OK);
        assert_eq!(
            weir_page_values(page, 0, 1, null(), 1, out, e),
            NULL_POINTER
        );
        assert_eq!(
            weir_page_values(page, 0, 1, paths, 3, null_mut(), e),
            NULL_POINTER
        );
        let crooked = out.wrapping_byte_add(1);
        assert_eq!(
            weir_page_values(page, 0, 1, paths, 2, crooked, e),
            MISALIGNED
        );
        assert!(found.iter().all(|found| found.ptr == seven.ptr));
        weir_page_release(page);
        assert_eq!(weir_page_values(page, 0, 1, paths, 3, out, e), BAD_HANDLE);
        weir_query_free(query);
    }
}
