//! The query engine over pages of JSON from any source.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use napi::Env;
use napi::bindgen_prelude::{BigInt, Either, Object, Uint8Array, Uint32Array};
use napi_derive::napi;
use weir::ErrorCode;
use weir::query::{
    BadItem, Bounds, Budgets, Complex, Level, Missing, Mode, PageIn, Path, PathSet, QueryText,
    ResultPage, SourceId, SourceOptions, Span, Step, Strings, Tag, Value, path_error_code,
};

use crate::error::{Failure, Result};
use crate::frames::FramesIn;
use crate::input::{Setting, maybe, whole};
use crate::pool::promise;
use crate::reader::with_lock;

/// A name and a JSON scalar.
#[napi(object)]
pub struct Named {
    pub name: String,
    pub value: String,
}

/// The fields of a query.
#[napi(object)]
pub struct QueryIn {
    pub filter: Option<String>,
    pub order: Option<String>,
    pub select: Option<String>,
    pub group: Option<String>,
    pub distinct: Option<bool>,
    pub offset: Option<BigInt>,
    pub limit: Option<BigInt>,
    pub top: Option<BigInt>,
    pub params: Option<Vec<Named>>,
    pub strings: Option<String>,
    pub complex: Option<String>,
    pub missing: Option<String>,
    pub level: Option<String>,
    pub on_bad_item: Option<String>,
    pub mode: Option<String>,
    pub budgets: Option<Vec<Setting>>,
    pub token: Option<Uint8Array>,
}

/// The value of an option that accepts certain words; `default` if the option is absent.
fn word<T: Copy>(what: &str, words: &[(&str, T)], value: Option<&String>, default: T) -> Result<T> {
    let Some(value) = value else {
        return Ok(default);
    };
    let found = words.iter().find(|(word, _)| word == value);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| Failure::option(what, value))
}

const LEVELS: &[(&str, Level)] = &[
    ("none", Level::None),
    ("structural", Level::Structural),
    ("strict", Level::Strict),
];

impl QueryIn {
    /// The text of the query.
    pub(crate) fn text(&self) -> Result<QueryText> {
        let modes = [
            Mode::Sequential,
            Mode::Arrival,
            Mode::RoundRobin,
            Mode::Merge,
            Mode::Sort,
        ];
        let modes = modes.map(|mode| (mode.name(), Some(mode)));
        let strings = [("scalar", Strings::Scalar), ("utf16", Strings::Utf16)];
        let complex = [("error", Complex::Error), ("rank", Complex::Rank)];
        let missing = [("first", Missing::First), ("drop", Missing::Drop)];
        let bad_items = [
            ("error", BadItem::Error),
            ("skip", BadItem::Skip),
            ("undefined", BadItem::Undefined),
        ];
        let params = self.params.iter().flatten();
        Ok(QueryText {
            filter: self.filter.clone().unwrap_or_default(),
            order: self.order.clone().unwrap_or_default(),
            select: self.select.clone().unwrap_or_default(),
            group: self.group.clone().unwrap_or_default(),
            distinct: self.distinct.unwrap_or(false),
            offset: maybe("offset", self.offset.as_ref())?.unwrap_or(0),
            limit: maybe("limit", self.limit.as_ref())?,
            top: maybe("top", self.top.as_ref())?,
            params: params
                .map(|param| (param.name.clone(), param.value.clone()))
                .collect(),
            strings: word("strings", &strings, self.strings.as_ref(), Strings::Scalar)?,
            complex: word("complex", &complex, self.complex.as_ref(), Complex::Error)?,
            missing: word("missing", &missing, self.missing.as_ref(), Missing::First)?,
            level: word("level", LEVELS, self.level.as_ref(), Level::Structural)?,
            on_bad_item: word(
                "onBadItem",
                &bad_items,
                self.on_bad_item.as_ref(),
                BadItem::Error,
            )?,
            mode: word("mode", &modes, self.mode.as_ref(), None)?,
        })
    }

    /// The limits of the memory of the query.
    pub(crate) fn budgets(&self, mut budgets: Budgets) -> Result<Budgets> {
        for setting in self.budgets.iter().flatten() {
            let Some(value) = maybe(&setting.name, setting.value.as_ref())? else {
                continue;
            };
            let small = u32::try_from(value).unwrap_or(u32::MAX);
            let count = usize::try_from(value).unwrap_or(usize::MAX);
            match setting.name.as_str() {
                "bufferBytesMax" => budgets.buffer_bytes_max = value,
                "pagesAhead" => budgets.pages_ahead = small,
                "sortBytesMax" => budgets.sort_bytes_max = value,
                "groupsMax" => budgets.groups_max = count,
                "distinctMax" => budgets.distinct_max = count,
                "sourcesMax" => budgets.sources_max = count,
                "pageBytesMax" => budgets.page_bytes_max = value,
                "itemBytesMax" => budgets.item_bytes_max = value,
                "depthMax" => budgets.depth_max = small,
                "pageBytesHint" => budgets.page_bytes_hint = value,
                other => return Err(Failure::option("a budget", other)),
            }
        }
        Ok(budgets)
    }
}

/// The options of a source.
#[napi(object)]
pub struct SourceIn {
    pub name: Option<Uint8Array>,
    pub ordinal: Option<BigInt>,
    pub shape: Option<String>,
    pub level: Option<String>,
    pub first: Option<Uint8Array>,
    pub sorted: Option<bool>,
    pub trust_order: Option<bool>,
    pub stable: Option<bool>,
    pub tie: Option<String>,
    pub meta: Option<Vec<Named>>,
    pub bound: Option<Vec<String>>,
    pub partial: Option<bool>,
}

fn copy(array: &Uint8Array) -> Bytes {
    Bytes::copy_from_slice(array)
}

impl SourceIn {
    fn options(self) -> Result<SourceOptions> {
        let default = SourceOptions::default();
        let shape = match self.shape.as_deref() {
            None => default.shape,
            Some(text) => weir::query::parse_shape(text)?,
        };
        let level = match &self.level {
            None => None,
            some => Some(word("level", LEVELS, some.as_ref(), Level::Structural)?),
        };
        let meta = self.meta.into_iter().flatten();
        Ok(SourceOptions {
            name: self.name.map(|name| name.to_vec()).unwrap_or_default(),
            ordinal: maybe("ordinal", self.ordinal.as_ref())?,
            shape,
            level,
            first: self.first.as_ref().map(copy),
            sorted: self.sorted.unwrap_or(default.sorted),
            trust_order: self.trust_order.unwrap_or(default.trust_order),
            stable: self.stable.unwrap_or(default.stable),
            tie: self.tie.unwrap_or_default(),
            meta: meta.map(|meta| (meta.name, meta.value)).collect(),
            bound: self.bound,
            partial: self.partial.unwrap_or(default.partial),
        })
    }
}

/// A page that the query requests.
#[napi(object)]
pub struct NeedOut {
    pub source: u32,
    pub continuation: Option<Uint8Array>,
    pub required: bool,
    pub bytes: BigInt,
}

impl From<weir::query::Need> for NeedOut {
    fn from(need: weir::query::Need) -> Self {
        Self {
            source: need.source.0,
            continuation: need.continuation.map(|bytes| bytes.to_vec().into()),
            required: need.required,
            bytes: need.bytes.into(),
        }
    }
}

/// Results that a thread created; see [`fill`].
#[napi(object)]
pub struct PageOut {
    pub table: Uint32Array,
    pub bytes: Uint8Array,
}

/// Counts of numbers in a table: its head, and the first and second part of each item.
const HEAD: usize = 4;
const SPAN: usize = 2;
const MARKS: usize = 5;

/// The head of the table of a page: its number of items and of bytes, then the number of skipped
/// bad items, low half and high half.
#[allow(clippy::cast_possible_truncation, reason = "a number's two halves")]
fn head(page: &ResultPage) -> [u32; HEAD] {
    let lengths = page.items().iter().map(|item| item.len);
    let bytes = lengths.fold(0, u32::saturating_add);
    let skipped = page.skipped();
    let count = page.items().len() as u32;
    [count, bytes, skipped as u32, (skipped >> 32) as u32]
}

/// Copies results: the bytes of all items, and a table that describes the items. After its head,
/// the table has offset and length of each item. Then follow, for each item: its source, its index
/// in its page, whether the query constructed it, and the number of its page within the source (low
/// half, high half).
///
/// If the buffers are too small, only the head is written.
fn fill(page: &ResultPage, table: &mut [u32], bytes: &mut [u8]) -> bool {
    let head = head(page);
    let count = page.items().len();
    let Some((first, rest)) = table.split_at_mut_checked(HEAD) else {
        return false;
    };
    first.copy_from_slice(&head);
    if rest.len() < count * (SPAN + MARKS) || bytes.len() < head[1] as usize {
        return false;
    }
    let (spans, marks) = rest.split_at_mut(count * SPAN);
    let rows = spans
        .chunks_exact_mut(SPAN)
        .zip(marks.chunks_exact_mut(MARKS));
    let mut free = bytes;
    let mut at = 0;
    for (item, (span, marks)) in page.items().iter().zip(rows) {
        let from = page.bytes(item);
        let Some((to, rest)) = free.split_at_mut_checked(from.len()) else {
            return false;
        };
        to.copy_from_slice(from);
        free = rest;
        span.copy_from_slice(&[at, item.len]);
        at += item.len;
        let number = page.page_of(item);
        #[allow(clippy::cast_possible_truncation, reason = "its two halves")]
        let halves = [number as u32, (number >> 32) as u32];
        let constructed = u32::from(item.constructed);
        marks.copy_from_slice(&[item.source.0, item.index, constructed, halves[0], halves[1]]);
    }
    true
}

impl From<ResultPage> for PageOut {
    fn from(page: ResultPage) -> Self {
        let [count, size, ..] = head(&page);
        let mut table = vec![0; HEAD + count as usize * (SPAN + MARKS)];
        let mut bytes = vec![0; size as usize];
        fill(&page, &mut table, &mut bytes);
        Self {
            table: table.into(),
            bytes: bytes.into(),
        }
    }
}

/// The limits of a page. One item may exceed them; its offsets are still below 2^32.
///
/// # Errors
/// `BAD_OPTION` if one of them is not a whole number from 0.
pub(crate) fn bounds(max_items: f64, max_bytes: f64) -> Result<Bounds> {
    if !(max_bytes >= 0.0 && max_bytes.fract() == 0.0) {
        return Err(Failure::option("maxBytes", &max_bytes.to_string()));
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked, and a cast of a float saturates"
    )]
    let bytes_max = (max_bytes as u64).min(1 << 30);
    Ok(Bounds {
        items_max: whole("maxItems", max_items)? as usize,
        bytes_max,
    })
}

/// Memory of JavaScript that is written during a call.
type CallBuffer<'a, T> = &'a mut [T];

/// A running query, and results for which there was no room yet.
#[napi]
pub struct Query {
    query: Arc<Mutex<weir::query::Query>>,
    ready: Cell<Option<ResultPage>>,
}

/// Starts a query, from the beginning or from a token.
///
/// # Errors
/// An error in the query or in the token.
#[napi]
pub fn make_query(from_js: QueryIn) -> napi::Result<Query> {
    let plan = Arc::new(from_js.text()?.compile().map_err(Failure::from)?);
    let budgets = from_js.budgets(Budgets::default())?;
    let query = match &from_js.token {
        None => weir::query::Query::new(plan, budgets),
        Some(token) => weir::query::Query::resume(plan, budgets, token).map_err(Failure::from)?,
    };
    Ok(Query {
        query: Arc::new(Mutex::new(query)),
        ready: Cell::new(None),
    })
}

#[napi]
impl Query {
    /// Adds a source and returns its number.
    #[napi]
    pub fn add_source(&self, from_js: SourceIn) -> napi::Result<u32> {
        let options = from_js.options()?;
        Ok(with_lock(&self.query, |query| {
            Ok(query.add_source(options)?.0)
        })?)
    }

    /// Enqueues a page.
    #[napi]
    pub fn enqueue(
        &self,
        source: u32,
        page: Uint8Array,
        next: Option<Uint8Array>,
        frames: Option<FramesIn>,
    ) -> napi::Result<()> {
        let (bytes, next) = (copy(&page), next.as_ref().map(copy));
        Ok(with_lock(&self.query, |query| {
            let frames = frames.map(|frames| frames.of(query.plan())).transpose()?;
            Ok(query.enqueue(SourceId(source), PageIn { bytes, frames }, next)?)
        })?)
    }

    /// Like `enqueue`, in a thread.
    #[napi]
    pub fn enqueue_large<'env>(
        &self,
        env: &'env Env,
        source: u32,
        page: Uint8Array,
        next: Option<Uint8Array>,
        frames: Option<FramesIn>,
    ) -> napi::Result<Object<'env>> {
        let (query, bytes, next) = (
            Arc::clone(&self.query),
            copy(&page),
            next.as_ref().map(copy),
        );
        promise(env, move || {
            with_lock(&query, |query| {
                let frames = frames.map(|frames| frames.of(query.plan())).transpose()?;
                Ok(query.enqueue(SourceId(source), PageIn { bytes, frames }, next)?)
            })
        })
    }

    /// Declares that a source has no more pages.
    #[napi]
    pub fn finish(&self, source: u32) -> napi::Result<()> {
        Ok(with_lock(&self.query, |query| {
            Ok(query.finish(SourceId(source))?)
        })?)
    }

    /// Declares that a source of the query that returned the token no longer exists.
    #[napi]
    pub fn abandon(&self, name: Uint8Array) -> napi::Result<()> {
        Ok(with_lock(&self.query, |query| Ok(query.abandon(&name)?))?)
    }

    /// Declares that the source has no more items below these keys, JSON scalars.
    #[napi]
    pub fn watermark(&self, source: u32, keys: Vec<String>) -> napi::Result<()> {
        Ok(with_lock(&self.query, |query| {
            Ok(query.watermark(SourceId(source), &keys)?)
        })?)
    }

    /// Replaces a source by others and returns their numbers.
    #[napi]
    pub fn replace(&self, source: u32, parts: Vec<SourceIn>) -> napi::Result<Vec<u32>> {
        let parts = parts
            .into_iter()
            .map(SourceIn::options)
            .collect::<Result<Vec<_>>>()?;
        let ids = with_lock(&self.query, |query| {
            Ok(query.replace(SourceId(source), parts)?)
        })?;
        Ok(ids.into_iter().map(|id| id.0).collect())
    }

    /// Returns whether there are results or pages are needed. Results are in `table` and `bytes`
    /// (see [`fill`]). If the head of the table announces more than these can hold, the next call
    /// returns them.
    #[napi]
    pub fn next(
        &self,
        max_items: f64,
        max_bytes: f64,
        table: CallBuffer<'_, u32>,
        bytes: CallBuffer<'_, u8>,
    ) -> napi::Result<Either<bool, Vec<NeedOut>>> {
        let step = if let Some(page) = self.ready.take() {
            Step::Ready(page)
        } else {
            let bounds = bounds(max_items, max_bytes)?;
            with_lock(&self.query, |query| Ok(query.next(bounds)?))?
        };
        Ok(match step {
            Step::Ready(page) => {
                if !fill(&page, table, bytes) {
                    self.ready.set(Some(page));
                }
                Either::A(true)
            }
            Step::Done => Either::A(false),
            Step::Need(needs) => Either::B(needs.into_iter().map(NeedOut::from).collect()),
        })
    }

    /// The pages that the query requests now.
    #[napi]
    pub fn needs(&self) -> napi::Result<Vec<NeedOut>> {
        let needs = with_lock(&self.query, |query| Ok(query.needs()))?;
        Ok(needs.into_iter().map(NeedOut::from).collect())
    }

    /// The token of the current position.
    #[napi]
    pub fn token(&self) -> napi::Result<Uint8Array> {
        Ok(with_lock(&self.query, |query| Ok(query.token()?))?.into())
    }

    /// A description of the execution.
    #[napi]
    pub fn explain(&self) -> napi::Result<String> {
        Ok(with_lock(&self.query, |query| {
            Ok(query.explain().to_string())
        })?)
    }

    /// The name of a source.
    #[napi]
    pub fn source_name(&self, source: u32) -> napi::Result<Option<Uint8Array>> {
        let id = SourceId(source);
        let name = with_lock(&self.query, |query| {
            Ok(query.source_name(id).map(<[u8]>::to_vec))
        })?;
        Ok(name.map(Into::into))
    }

    /// Throws the error for a required page that was not enqueued.
    #[napi]
    pub fn missing_page_error(&self, source: u32, fetched: bool) -> napi::Result<()> {
        let id = SourceId(source);
        let name = with_lock(&self.query, |query| {
            Ok(query.source_name(id).map(<[u8]>::to_vec))
        })?;
        let name = match String::from_utf8_lossy(&name.unwrap_or_default()) {
            name if name.is_empty() => format!("number {id}"),
            name => name.into_owned(),
        };
        let text = if fetched {
            format!("`fetch` enqueued nothing, and a page of source {name} is needed")
        } else {
            format!("a page of source {name} is needed; give `fetch`")
        };
        Err(Failure::new(ErrorCode::BadOption, text).into())
    }

    /// Bytes of referenced pages.
    #[napi]
    pub fn buffered_bytes(&self) -> napi::Result<BigInt> {
        Ok(with_lock(&self.query, |query| {
            Ok(query.buffered_bytes().into())
        })?)
    }

    /// Number of bad items that were skipped.
    #[napi]
    pub fn skipped(&self) -> napi::Result<BigInt> {
        Ok(with_lock(&self.query, |query| Ok(query.skipped().into()))?)
    }
}

/// Compiles paths.
fn path_set(texts: &[String]) -> Result<PathSet> {
    let path = |text: &String| {
        Path::parse(text).map_err(|error| {
            let code = path_error_code(error.kind);
            Failure::new(code, format!("path {text:?}: {error}"))
        })
    };
    let paths = texts.iter().map(path).collect::<Result<Vec<_>>>()?;
    PathSet::new(&paths).map_err(|error| Failure::new(ErrorCode::TooComplex, error.to_string()))
}

/// Offset and length of the value at each path in each item of a page. `items` has offset and
/// length of each item in `bytes`. Returns a row for each item; the length 0 means that there is no
/// value.
///
/// # Errors
/// `SYNTAX`, `NOT_SINGULAR`; `TOO_COMPLEX` for more than 64 paths.
#[napi]
pub fn find_each(bytes: &[u8], items: &[u32], paths: Vec<String>) -> napi::Result<Uint32Array> {
    let paths = path_set(&paths)?;
    let spans = || {
        items
            .as_chunks::<2>()
            .0
            .iter()
            .map(|&[offset, len]| Span { offset, len })
    };
    let mut found = Vec::new();
    weir::query::find_each(spans().map(|span| span.of(bytes)), &paths, &mut found);
    let mut table = Vec::with_capacity(2 * found.len());
    for (item, row) in spans().zip(found.chunks(paths.len().max(1))) {
        for Value { span, .. } in row {
            table.extend([item.offset.saturating_add(span.offset), span.len]);
        }
    }
    Ok(table.into())
}

/// Offset and length of the value at a path in JSON, and whether it is an array or object.
///
/// # Errors
/// `SYNTAX`, `NOT_JSON`.
#[napi]
pub fn find(item: &[u8], path: String) -> napi::Result<Option<Vec<u32>>> {
    let paths = path_set(&[path])?;
    let mut found = Vec::new();
    weir::query::find(item, &paths, &mut found)
        .map_err(|error| Failure::new(ErrorCode::NotJson, error.to_string()))?;
    let value = found.first().filter(|value| value.tag != Tag::Undefined);
    Ok(value.map(|value| {
        vec![
            value.span.offset,
            value.span.len,
            u32::from(value.tag >= Tag::Array),
        ]
    }))
}

/// Releases the memory of a page at once; its views then have no bytes.
///
/// # Errors
/// If the runtime does not release the memory.
#[napi]
pub fn detach(buffer: napi::bindgen_prelude::ArrayBuffer<'_>) -> napi::Result<()> {
    buffer.detach()
}
