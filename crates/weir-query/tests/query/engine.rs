//! Tests of borrowed pages, memory and threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use weir_core::ErrorCode;
use weir_query::{
    Bounds, Budgets, Complex, Frames, Meta, PageIn, Query, QueryText, ResultPage, Shape,
    SourceOptions, Span, Step,
};

use crate::drive::compile;

/// Memory whose owner counts how often it is released.
struct CountedMemory {
    bytes: Vec<u8>,
    releases: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for CountedMemory {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedMemory {
    fn drop(&mut self) {
        self.releases.fetch_add(1, Ordering::SeqCst);
    }
}

fn counted_bytes(text: &str, releases: &Arc<AtomicUsize>) -> Bytes {
    Bytes::from_owner(CountedMemory {
        bytes: text.as_bytes().to_vec(),
        releases: Arc::clone(releases),
    })
}

fn ready(query: &mut Query) -> ResultPage {
    match query.next(Bounds::default()).unwrap() {
        Step::Ready(page) => page,
        other => panic!("{other:?}"),
    }
}

#[test]
fn memory_is_released_once_with_the_last_result() {
    let releases = Arc::new(AtomicUsize::new(0));
    let count = || releases.load(Ordering::SeqCst);
    let plan = compile(&QueryText::default());
    let mut query = Query::new(plan, Budgets::default());
    let source = query.add_source(SourceOptions::default()).unwrap();
    query
        .enqueue(source, counted_bytes("[1,2]", &releases), None)
        .unwrap();
    let page = ready(&mut query);
    assert_eq!(query.buffered_bytes(), 5);
    assert!(matches!(query.next(Bounds::default()).unwrap(), Step::Done));
    drop(query);
    assert_eq!(count(), 0);
    // Results may be read on another thread, and a copy of the page keeps the memory alive.
    let clone = page.clone();
    let seen = std::thread::spawn(move || page.iter().map(<[u8]>::to_vec).collect::<Vec<_>>());
    assert_eq!(seen.join().unwrap(), [b"1".to_vec(), b"2".to_vec()]);
    assert_eq!(count(), 0);
    drop(clone);
    assert_eq!(count(), 1);
}

#[test]
fn a_rejected_page_is_released_immediately() {
    let releases = Arc::new(AtomicUsize::new(0));
    let plan = compile(&QueryText::default());
    let mut query = Query::new(plan, Budgets::default());
    let source = query.add_source(SourceOptions::default()).unwrap();
    let error = query
        .enqueue(source, counted_bytes("[1,", &releases), None)
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unbalanced);
    assert_eq!(releases.load(Ordering::SeqCst), 1);
    assert_eq!(query.buffered_bytes(), 0);
    // Pages that were not returned are released with the query.
    query
        .enqueue(source, counted_bytes("[1]", &releases), None)
        .unwrap();
    query.cancel();
    assert_eq!(releases.load(Ordering::SeqCst), 2);
    assert_eq!(
        query.next(Bounds::default()).unwrap_err().code(),
        ErrorCode::Cancelled
    );
}

#[test]
fn the_budget_counts_referenced_pages() {
    let plan = compile(&QueryText::default());
    let budgets = Budgets {
        buffer_bytes_max: 8,
        ..Budgets::default()
    };
    let mut query = Query::new(plan, budgets);
    let source = query.add_source(SourceOptions::default()).unwrap();
    let page = || Bytes::from_static(b"[12345]");
    let more = || Some(Bytes::new());
    query.enqueue(source, page(), more()).unwrap();
    let error = query.enqueue(source, page(), more()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::OverBudget);
    // A stored result page keeps the memory, and the next page is still accepted, because
    // the query could not continue without it.
    let stored_page = ready(&mut query);
    assert_eq!(query.buffered_bytes(), 7);
    query.enqueue(source, page(), more()).unwrap();
    assert_eq!(query.buffered_bytes(), 14);
    drop(stored_page);
    assert_eq!(query.buffered_bytes(), 7);
}

#[test]
fn requests_ahead_fit_the_budget_by_the_size_of_earlier_pages() {
    let text = QueryText {
        order: "$".into(),
        ..QueryText::default()
    };
    let budgets = Budgets {
        buffer_bytes_max: 120,
        pages_ahead: 3,
        page_bytes_hint: 1,
        ..Budgets::default()
    };
    let mut query = Query::new(compile(&text), budgets);
    for _ in 0..3 {
        let options = SourceOptions {
            sorted: true,
            ..SourceOptions::default()
        };
        query.add_source(options).unwrap();
    }
    let mut ahead = 0;
    for round in 0..20 {
        let needs = match query.next(Bounds::default()).unwrap() {
            Step::Need(needs) => needs,
            other => {
                drop(other);
                query.needs()
            }
        };
        for need in needs {
            ahead += usize::from(!need.required);
            let page = format!("[{:28}]", 10 * round + need.source.0);
            let result = query.enqueue(need.source, Bytes::from(page), Some(Bytes::new()));
            assert!(result.is_ok(), "round {round}: {result:?}");
            assert!(query.buffered_bytes() <= 120);
        }
    }
    assert!(ahead > 0);
}

#[test]
fn a_sort_with_a_limit_releases_pages() {
    let text = QueryText {
        order: "$".into(),
        limit: Some(2),
        ..QueryText::default()
    };
    let mut query = Query::new(compile(&text), Budgets::default());
    let source = query.add_source(SourceOptions::default()).unwrap();
    for page in 0..100 {
        let text = format!("[{},{}]", 1000 - page, 2000 - page);
        query
            .enqueue(source, Bytes::from(text), Some(Bytes::new()))
            .unwrap();
        assert!(matches!(
            query.next(Bounds::default()).unwrap(),
            Step::Need(_)
        ));
        assert!(query.buffered_bytes() <= 22, "{}", query.buffered_bytes());
    }
    query.finish(source).unwrap();
    let page = ready(&mut query);
    let items: Vec<&[u8]> = page.iter().collect();
    assert_eq!(items, [b"901", b"902"]);
}

#[test]
fn a_sort_above_its_budget_fails_on_every_call() {
    let text = QueryText {
        order: "$".into(),
        ..QueryText::default()
    };
    let budgets = Budgets {
        sort_bytes_max: 10,
        ..Budgets::default()
    };
    let mut query = Query::new(compile(&text), budgets);
    let source = query.add_source(SourceOptions::default()).unwrap();
    for _ in 0..2 {
        query
            .enqueue(source, Bytes::from_static(b"[1,2,3]"), Some(Bytes::new()))
            .unwrap();
    }
    for _ in 0..2 {
        let error = query.next(Bounds::default()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::SortBudget);
    }
    assert_eq!(query.buffered_bytes(), 0);
}

/// With small items, the page is the smaller part of the memory of a sort.
#[test]
fn a_sort_counts_the_state_of_each_item() {
    let text = QueryText {
        order: "$".into(),
        ..QueryText::default()
    };
    let budgets = Budgets {
        sort_bytes_max: 50_000,
        ..Budgets::default()
    };
    let run = |count: usize| {
        let mut query = Query::new(compile(&text), budgets);
        let source = query.add_source(SourceOptions::default()).unwrap();
        let page = format!("[{}]", vec!["1"; count].join(","));
        query.enqueue(source, Bytes::from(page), None).unwrap();
        query.next(Bounds::default())
    };
    assert!(run(100).is_ok());
    let error = run(2000).unwrap_err();
    assert_eq!(error.code(), ErrorCode::SortBudget);
}

#[test]
fn frames_have_properties_and_their_values_are_not_parsed() {
    let text = QueryText {
        filter: "meta('key') != 'b'".into(),
        order: "meta.offset desc".into(),
        ..QueryText::default()
    };
    let plan = compile(&text);
    let names: Vec<&str> = plan.meta_names().collect();
    assert_eq!(names, ["key", "offset"]);
    let mut query = Query::new(Arc::clone(&plan), Budgets::default());
    let options = SourceOptions {
        shape: Shape::Framed,
        ..SourceOptions::default()
    };
    let source = query.add_source(options).unwrap();
    // Values that are not JSON, and one record without a value.
    let bytes = Bytes::from_static(b"aVALUEbVALUEc");
    let span = |offset, len| Span { offset, len };
    let meta = |offset, at| [Meta::Bytes(span(at, 1)), Meta::Number(offset)];
    let frames = Frames {
        spans: vec![span(1, 5), span(7, 5), span(0, 0)],
        meta: [meta(9, 0), meta(10, 6), meta(11, 12)].concat(),
        starts: Vec::new(),
        ..Frames::default()
    };
    let page = |frames: &Frames| PageIn {
        bytes: bytes.clone(),
        frames: Some(frames.clone()),
    };
    let mut short = frames.clone();
    short.meta.pop();
    assert!(query.enqueue(source, page(&short), None).is_err());
    query.enqueue(source, page(&frames), None).unwrap();
    let results = ready(&mut query);
    let items: Vec<(&[u8], u32)> = results
        .items()
        .iter()
        .map(|item| (results.bytes(item), item.index))
        .collect();
    assert_eq!(items, [(&b""[..], 2), (&b"VALUE"[..], 0)]);
}

#[test]
fn result_pages_are_send_and_sync() {
    fn assert_send_and_sync<T: Send + Sync + 'static>() {}
    fn assert_send<T: Send>() {}
    assert_send_and_sync::<ResultPage>();
    assert_send::<Query>();
}

#[test]
fn a_failed_query_has_no_token_and_rejects_pages() {
    let releases = Arc::new(AtomicUsize::new(0));
    let plan = compile(&QueryText::default());
    let mut query = Query::new(plan, Budgets::default());
    let source = query.add_source(SourceOptions::default()).unwrap();
    let more = Some(Bytes::from_static(b"more"));
    query
        .enqueue(source, counted_bytes("[1,2,3]", &releases), more)
        .unwrap();
    let one = Bounds {
        items_max: 1,
        ..Bounds::default()
    };
    drop(query.next(one).unwrap());
    query.token().unwrap();
    query.cancel();
    // The page of the remaining items was dropped, so a token cannot describe a position.
    assert_eq!(query.token().unwrap_err().code(), ErrorCode::NoToken);
    let error = query
        .enqueue(source, counted_bytes("[4]", &releases), None)
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
    assert_eq!(releases.load(Ordering::SeqCst), 2);
    assert_eq!(query.buffered_bytes(), 0);
    let error = query.next(one).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
}

/// All arrays rank equally, so an array may return after another one.
#[test]
fn equal_arrays_that_are_not_adjacent_are_omitted_by_distinct() {
    let plan = compile(&QueryText {
        order: "$.k".into(),
        select: "$.k".into(),
        distinct: true,
        complex: Complex::Rank,
        ..QueryText::default()
    });
    for sorted in [false, true] {
        let mut query = Query::new(Arc::clone(&plan), Budgets::default());
        let source = query.add_source(SourceOptions {
            sorted,
            ..SourceOptions::default()
        });
        let page = Bytes::from_static(b"[{\"k\":1},{\"k\":[1]},{\"k\":[2]},{\"k\":[1.0]}]");
        query.enqueue(source.unwrap(), page, None).unwrap();
        let items: Vec<Vec<u8>> = ready(&mut query).iter().map(<[u8]>::to_vec).collect();
        assert_eq!(items, [&b"1"[..], b"[1]", b"[2]"], "sorted: {sorted}");
    }
}

/// A file can be read again in smaller pages.
#[test]
fn returned_items_are_skipped_across_smaller_pages() {
    let plan = compile(&QueryText::default());
    let options = SourceOptions {
        name: b"file".to_vec(),
        ..SourceOptions::default()
    };
    let mut query = Query::new(Arc::clone(&plan), Budgets::default());
    let source = query.add_source(options.clone()).unwrap();
    let page = Bytes::from_static(b"[1,2,3,4,5]");
    query.enqueue(source, page, None).unwrap();
    let three = Bounds {
        items_max: 3,
        ..Bounds::default()
    };
    assert!(matches!(query.next(three).unwrap(), Step::Ready(_)));
    let token = query.token().unwrap();
    let mut query = Query::resume(Arc::clone(&plan), Budgets::default(), &token).unwrap();
    let source = query.add_source(options.clone()).unwrap();
    let next = Some(Bytes::from_static(b"next"));
    for page in [&b"[1,2]"[..], b"[]"] {
        query
            .enqueue(source, Bytes::from_static(page), next.clone())
            .unwrap();
    }
    // A token between the pages has the items that are still to be skipped.
    let token = query.token().unwrap();
    let mut query = Query::resume(plan, Budgets::default(), &token).unwrap();
    let source = query.add_source(options).unwrap();
    let page = Bytes::from_static(b"[3,4,5]");
    query.enqueue(source, page, None).unwrap();
    let items: Vec<Vec<u8>> = ready(&mut query).iter().map(<[u8]>::to_vec).collect();
    assert_eq!(items, [b"4", b"5"]);
}

#[test]
fn tokens_require_distinct_names() {
    let plan = compile(&QueryText::default());
    let mut query = Query::new(Arc::clone(&plan), Budgets::default());
    let source = query.add_source(SourceOptions::default()).unwrap();
    let parts = vec![SourceOptions::default(), SourceOptions::default()];
    let parts = query.replace(source, parts).unwrap();
    // Sources without a name are named by their numbers.
    let names = parts.iter().map(|part| query.source_name(*part).unwrap());
    assert!(names.eq([b"1", b"2"]));
    query.token().unwrap();
    let same_name = SourceOptions {
        name: b"2".to_vec(),
        ..SourceOptions::default()
    };
    query.add_source(same_name.clone()).unwrap();
    assert_eq!(query.token().unwrap_err().code(), ErrorCode::NoToken);
    assert!(query.explain().no_token.is_some());

    let mut query = Query::new(Arc::clone(&plan), Budgets::default());
    query.add_source(same_name.clone()).unwrap();
    let token = query.token().unwrap();
    let mut query = Query::resume(plan, Budgets::default(), &token).unwrap();
    query.add_source(same_name.clone()).unwrap();
    let error = query.add_source(same_name).unwrap_err();
    assert_eq!(error.code(), ErrorCode::BadOption);
}

#[test]
fn a_page_after_a_stop_is_rejected_without_effect() {
    let plan = compile(&QueryText {
        filter: "@.n > 1".into(),
        ..QueryText::default()
    });
    let mut query = Query::new(plan, Budgets::default());
    let source = query.add_source(SourceOptions::default()).unwrap();
    let stop = Arc::new(AtomicBool::new(true));
    query.stop_by(Arc::clone(&stop));
    let page = Bytes::from_static(b"[{\"n\":1},{\"n\":2}]");
    let error = query.enqueue(source, page.clone(), None).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
    assert_eq!(error.location().item, None);
    stop.store(false, Ordering::SeqCst);
    query.enqueue(source, page, None).unwrap();
    assert_eq!(ready(&mut query).iter().count(), 1);
}
