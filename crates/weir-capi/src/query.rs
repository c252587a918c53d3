//! Queries: over pages that the caller adds, and over topics of a store.

use std::sync::Arc;
#[cfg(unix)]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir::query::{Bounds, Budgets, PageIn, Query as Engine, SourceId, Step};
use weir::{ErrorCode, TopicQuery, TopicQueryCanceller, TopicQueryNews, TopicStep};

use crate::buffer::{self, Buffer, QueryGuard};
use crate::deadline::CancelToken;
#[cfg(unix)]
use crate::descriptor::Descriptor;
use crate::error::{Fail, Kind};
use crate::handle::{Caller, ELEMENTS_MAX};
use crate::loan::{self, ReturnState};
use crate::page::{Page, into_handle_or};
use crate::raw;
use crate::registry::{self, Exclusive};
use crate::source;
use crate::store::get_store;

/// How often a wait checks whether it must end.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A query, as a handle of the caller: over pages of the caller, or over topics.
#[derive(Debug)]
enum Query {
    Pages(Box<Pages>),
    Topics(Box<Topics>),
}

#[derive(Debug)]
struct Pages {
    engine: Exclusive<Engine>,
    cancelled: AtomicBool,
    /// Dropped after the engine, which returns memory when it is dropped.
    _in_use: QueryGuard,
}

#[derive(Debug)]
struct Topics {
    inner: Exclusive<TopicQuery>,
    canceller: TopicQueryCanceller,
    cancel_token: Arc<CancelToken>,
    #[cfg(unix)]
    descriptor: OnceLock<Descriptor>,
}

/// An input page, common to the three functions that add one.
pub(crate) struct InputPage {
    pub(crate) source: u32,
    pub(crate) frames: *const raw::Frames,
    pub(crate) next: raw::Slice,
    pub(crate) has_next: u32,
}

/// Calls `action` with the engine of a query over pages.
fn with_engine<T>(
    query: *mut raw::Query,
    action: impl FnOnce(&mut Engine) -> Result<T, Fail>,
) -> Result<T, Fail> {
    match &*registry::get::<Query, _>(query)? {
        Query::Pages(pages) => pages.with(action),
        Query::Topics(_) => {
            let text = "a query over topics fetches its pages itself";
            Err(Fail::new(ErrorCode::Unsupported, text.to_owned()))
        }
    }
}

impl Pages {
    fn with<T>(&self, action: impl FnOnce(&mut Engine) -> Result<T, Fail>) -> Result<T, Fail> {
        let mut engine = self.engine.lock()?;
        // A query that has ended cannot be cancelled.
        if self.cancelled.swap(false, Ordering::AcqRel) && !engine.is_over() {
            engine.cancel();
            return Err(Fail::of(ErrorCode::Cancelled));
        }
        action(&mut engine)
    }
}

pub(crate) fn open(
    c: &Caller,
    options: *const raw::QueryOptions,
    out: *mut *mut raw::Query,
) -> Result<Kind, Fail> {
    c.check_output(out, 1)?;
    let options = c.options(options)?;
    let text = source::text(c, &options)?;
    let budgets = source::budgets(&options, &Budgets::default());
    let token = c.short(options.token)?;
    let plan = Arc::new(text.compile()?);
    let engine = if token.is_empty() {
        Engine::new(plan, budgets)
    } else {
        Engine::resume(plan, budgets, token)?
    };
    let query = Query::Pages(Box::new(Pages {
        engine: Exclusive::new(engine),
        cancelled: AtomicBool::new(false),
        _in_use: QueryGuard::new(),
    }));
    c.write(out, registry::insert(Arc::new(query))?)?;
    Ok(Kind::Ok)
}

pub(crate) fn open_topics(
    c: &Caller,
    store: *mut raw::Weir,
    topics: *const raw::TopicsOptions,
    options: *const raw::QueryOptions,
    out: *mut *mut raw::Query,
) -> Result<Kind, Fail> {
    let store = get_store(store)?;
    c.check_output(out, 1)?;
    let topics = c.options(topics)?;
    let mut options = source::topics(c, &topics, &c.options(options)?)?;
    if topics.patience_ms == 0
        && let Some(limit) = store.scope.limit
    {
        options.patience = limit;
    }
    let inner = store.call(|weir| Ok(weir.query(options)?))?;
    let query = Query::Topics(Box::new(Topics {
        canceller: inner.canceller(),
        inner: Exclusive::new(inner),
        cancel_token: store.cancel_token(CHECK_INTERVAL, None),
        #[cfg(unix)]
        descriptor: OnceLock::new(),
    }));
    c.write(out, registry::insert(Arc::new(query))?)?;
    Ok(Kind::Ok)
}

pub(crate) fn wait(
    c: &Caller,
    query: *mut raw::Query,
    timeout_ms: u64,
    max_items: u32,
    max_bytes: u64,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    let query = registry::get::<Query, _>(query)?;
    let Query::Topics(topics) = &*query else {
        let text = "a query over pages does not wait; its caller fetches them";
        return Err(Fail::new(ErrorCode::Unsupported, text.to_owned()));
    };
    topics.wait(c, timeout_ms, bounds(max_items, max_bytes), out)
}

#[cfg(unix)]
impl Topics {
    /// Begins a call that may change whether the descriptor is readable.
    fn begin(&self) {
        if let Some(descriptor) = self.descriptor.get() {
            descriptor.begin();
        }
    }

    /// Ends such a call. `news` is what the query waits for.
    fn end(&self, news: Option<TopicQueryNews>) {
        if let Some(descriptor) = self.descriptor.get() {
            descriptor.end(news);
        }
    }

    fn cancel(&self) {
        self.canceller.cancel();
        if let Some(descriptor) = self.descriptor.get() {
            descriptor.set_readable();
        }
    }

    fn descriptor(&self) -> Result<i32, Fail> {
        // The lock ensures that only one call creates the descriptor.
        let _lock = self.inner.lock()?;
        if self.descriptor.get().is_none() {
            let io = |error: std::io::Error| Fail::new(ErrorCode::Io, error.to_string());
            let descriptor = Descriptor::new(&self.cancel_token).map_err(io)?;
            drop(self.descriptor.set(descriptor));
        }
        let descriptor = self.descriptor.get();
        descriptor
            .map(Descriptor::number)
            .ok_or_else(|| Fail::of(ErrorCode::Internal))
    }
}

#[cfg(not(unix))]
#[allow(clippy::unused_self, reason = "this system has no descriptors")]
impl Topics {
    fn begin(&self) {}

    fn end(&self, _: Option<TopicQueryNews>) {}

    fn cancel(&self) {
        self.canceller.cancel();
    }

    fn descriptor(&self) -> Result<i32, Fail> {
        let text = "there are no descriptors on this system";
        Err(Fail::new(ErrorCode::Unsupported, text.to_owned()))
    }
}

pub(crate) fn fd(c: &Caller, query: *mut raw::Query, out: *mut i32) -> Result<Kind, Fail> {
    let query = registry::get::<Query, _>(query)?;
    c.check_output(out, 1)?;
    let Query::Topics(topics) = &*query else {
        let text = "a query over pages does not wait; its caller fetches them";
        return Err(Fail::new(ErrorCode::Unsupported, text.to_owned()));
    };
    c.write(out, topics.descriptor()?)?;
    Ok(Kind::Ok)
}

impl Topics {
    fn wait(
        &self,
        c: &Caller,
        timeout_ms: u64,
        bounds: Bounds,
        out: *mut *mut raw::Page,
    ) -> Result<Kind, Fail> {
        let mut inner = self.inner.lock()?;
        c.check_output(out, 1)?;
        let slot = registry::reserve()?;
        self.begin();
        let step = self.cancel_token.wait(timeout_ms, |until| {
            let until = until.unwrap_or_else(Instant::now);
            Ok(match inner.next(bounds, Some(until))? {
                TopicStep::Idle => None,
                step => Some(step),
            })
        });
        let idle = matches!(step, Ok(None));
        self.end(idle.then(|| inner.news()));
        match step? {
            None | Some(TopicStep::Idle) => Ok(Kind::Timeout),
            Some(TopicStep::Done) => Ok(Kind::Done),
            Some(TopicStep::Page(page)) => {
                Page::results(page).into_slot(slot, c, out)?;
                Ok(Kind::Ready)
            }
        }
    }
}

pub(crate) fn source_name(
    c: &Caller,
    query: *mut raw::Query,
    source: u32,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    let id = SourceId(source);
    let name = match &*registry::get::<Query, _>(query)? {
        Query::Pages(pages) => pages.with(|engine| {
            let name = engine.source_name(id);
            Ok(name.map(<[u8]>::to_vec))
        })?,
        Query::Topics(topics) => {
            let inner = topics.inner.lock()?;
            inner.topic(id).map(|name| name.as_bytes().to_vec())
        }
    };
    match name {
        Some(name) => write_text(c, &name, out),
        None => Ok(Kind::Absent),
    }
}

pub(crate) fn add_source(
    c: &Caller,
    query: *mut raw::Query,
    options: *const raw::SourceOptions,
    out: *mut u32,
) -> Result<Kind, Fail> {
    with_engine(query, |engine| {
        c.check_output(out, 1)?;
        let options = source::source(c, &c.options(options)?)?;
        let id = engine.add_source(options)?;
        c.write(out, id.0)?;
        Ok(Kind::Ok)
    })
}

/// Adds a page to the engine.
fn enqueue(
    c: &Caller,
    engine: &mut Engine,
    input: &InputPage,
    (bytes, return_state): (Bytes, &ReturnState),
) -> Result<(), Fail> {
    let next = match input.has_next {
        0 if input.next.len == 0 => None,
        0 => return Err(Fail::option("the next page", "named after the last one")),
        1 => Some(Bytes::from(c.owned(input.next)?)),
        other => return Err(Fail::option("has_next", other)),
    };
    let frames = source::frames(c, input.frames)?;
    engine.enqueue(SourceId(input.source), PageIn { bytes, frames }, next)?;
    return_state.accept();
    Ok(())
}

pub(crate) fn enqueue_copy(
    c: &Caller,
    query: *mut raw::Query,
    input: &InputPage,
    page: raw::Slice,
) -> Result<Kind, Fail> {
    with_engine(query, |engine| {
        let page = c.page(page)?;
        engine.admits(SourceId(input.source), page.len() as u64)?;
        let (bytes, return_state) = loan::owned(buffer::copy(page)?);
        if let Err(fail) = enqueue(c, engine, input, (bytes, &return_state)) {
            if let Some(memory) = return_state.reject() {
                buffer::recycle(memory);
            }
            return Err(fail);
        }
        Ok(Kind::Ok)
    })
}

pub(crate) fn enqueue_loan(
    c: &Caller,
    query: *mut raw::Query,
    input: &InputPage,
    page: raw::Slice,
    loan: *const raw::Loan,
) -> Result<Kind, Fail> {
    with_engine(query, |engine| {
        let (bytes, return_state) = loan::borrow(c, page, loan)?;
        enqueue(c, engine, input, (bytes, &return_state))?;
        Ok(Kind::Ok)
    })
}

pub(crate) fn enqueue_buffer(
    c: &Caller,
    query: *mut raw::Query,
    input: &InputPage,
    handle: *mut raw::Buffer,
    len: usize,
) -> Result<Kind, Fail> {
    let buffer = registry::get::<Buffer, _>(handle)?;
    let mut fillable = buffer.lock()?;
    if len > fillable.as_raw_parts().1 {
        return Err(Fail::of(ErrorCode::BadLength));
    }
    with_engine(query, |engine| {
        let gone = || Fail::of(ErrorCode::BadHandle);
        let memory = fillable.take().ok_or_else(gone)?;
        let (bytes, return_state) = loan::owned(memory);
        if let Err(fail) = enqueue(c, engine, input, (bytes.slice(..len), &return_state)) {
            drop(bytes);
            if let Some(memory) = return_state.reject() {
                fillable.put_back(memory);
            }
            return Err(fail);
        }
        drop(registry::remove::<Buffer, _>(handle));
        Ok(Kind::Ok)
    })
}

pub(crate) fn finish(_: &Caller, query: *mut raw::Query, source: u32) -> Result<Kind, Fail> {
    with_engine(query, |engine| {
        engine.finish(SourceId(source))?;
        Ok(Kind::Ok)
    })
}

pub(crate) fn abandon(c: &Caller, query: *mut raw::Query, name: raw::Slice) -> Result<Kind, Fail> {
    with_engine(query, |engine| {
        engine.abandon(c.short(name)?)?;
        Ok(Kind::Ok)
    })
}

pub(crate) fn replace(
    c: &Caller,
    query: *mut raw::Query,
    source: u32,
    parts: *const raw::SourceOptions,
    count: usize,
    out: *mut u32,
) -> Result<Kind, Fail> {
    with_engine(query, |engine| {
        let parts = c.stepped(parts, count, ELEMENTS_MAX)?;
        c.check_output(out, count)?;
        let parts = parts.iter().enumerate();
        let parts = parts.map(|(at, part)| source::source(c, part).map_err(|f| f.at_index(at)));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let ids = engine.replace(SourceId(source), parts)?;
        let ids: Vec<u32> = ids.iter().map(|id| id.0).collect();
        c.write_all(out, &ids)?;
        Ok(Kind::Ok)
    })
}

pub(crate) fn watermark(
    c: &Caller,
    query: *mut raw::Query,
    source: u32,
    keys: *const raw::Slice,
    count: usize,
) -> Result<Kind, Fail> {
    with_engine(query, |engine| {
        let keys = c.array(keys, count)?.iter();
        let keys = keys.map(|key| c.text(*key, "a key").map(str::to_owned));
        let keys: Vec<String> = keys.collect::<Result<_, _>>()?;
        engine.watermark(SourceId(source), &keys)?;
        Ok(Kind::Ok)
    })
}

/// The limits of one page of results.
pub(crate) fn bounds(max_items: u32, max_bytes: u64) -> Bounds {
    let default = Bounds::default();
    Bounds {
        items_max: match max_items {
            0 => default.items_max,
            some => some as usize,
        },
        bytes_max: match max_bytes {
            0 => default.bytes_max,
            some => some,
        },
    }
}

pub(crate) fn next(
    c: &Caller,
    query: *mut raw::Query,
    max_items: u32,
    max_bytes: u64,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    let bounds = bounds(max_items, max_bytes);
    let query = registry::get::<Query, _>(query)?;
    let pages = match &*query {
        Query::Topics(topics) => return topics.wait(c, 0, bounds, out),
        Query::Pages(pages) => pages,
    };
    pages.with(|engine| {
        c.check_output(out, 1)?;
        let slot = registry::reserve()?;
        match engine.next(bounds)? {
            Step::Done => Ok(Kind::Done),
            Step::Ready(page) => {
                Page::results(page).into_slot(slot, c, out)?;
                Ok(Kind::Ready)
            }
            Step::Need(needs) => {
                Page::needs(&needs).into_slot(slot, c, out)?;
                Ok(Kind::Need)
            }
        }
    })
}

pub(crate) fn needs(
    c: &Caller,
    query: *mut raw::Query,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    with_engine(query, |engine| {
        c.check_output(out, 1)?;
        into_handle_or(Page::needs(&engine.needs()), c, out, Kind::Done, Kind::Need)
    })
}

/// Writes a page with one text.
fn write_text(c: &Caller, text: &[u8], out: *mut *mut raw::Page) -> Result<Kind, Fail> {
    Page::texts([text]).into_handle(c, out)?;
    Ok(Kind::Ok)
}

pub(crate) fn token(
    c: &Caller,
    query: *mut raw::Query,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    match &*registry::get::<Query, _>(query)? {
        Query::Pages(pages) => pages.with(|engine| write_text(c, &engine.token()?, out)),
        Query::Topics(topics) => write_text(c, &topics.inner.lock()?.token()?, out),
    }
}

pub(crate) fn explain(
    c: &Caller,
    query: *mut raw::Query,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    let explained = match &*registry::get::<Query, _>(query)? {
        Query::Pages(pages) => pages.with(|engine| Ok(engine.explain()))?,
        Query::Topics(topics) => topics.inner.lock()?.explain(),
    };
    write_text(c, explained.to_string().as_bytes(), out)
}

pub(crate) fn metas(
    c: &Caller,
    query: *mut raw::Query,
    out: *mut *mut raw::Page,
) -> Result<Kind, Fail> {
    with_engine(query, |engine| {
        let page = Page::texts(engine.plan().meta_names());
        into_handle_or(page, c, out, Kind::Absent, Kind::Ok)
    })
}

pub(crate) fn cancel(query: *mut raw::Query) -> Result<Kind, Fail> {
    match &*registry::get::<Query, _>(query)? {
        Query::Pages(pages) => pages.cancelled.store(true, Ordering::Release),
        Query::Topics(topics) => topics.cancel(),
    }
    Ok(Kind::Ok)
}

pub(crate) fn free(query: *mut raw::Query) {
    if let Ok(query) = registry::remove::<Query, _>(query)
        && let Query::Topics(topics) = &*query
    {
        topics.cancel();
    }
}
