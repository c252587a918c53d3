//! Topics as sources: records as they lie in their blocks.
//!
//! Invariant: a page that the engine gets is the block that the reader has, not
//! a copy (but for the current values of keys, which are gathered); what names a page is the last offset before it. What must never
//! happen here: a record beyond the end that was fixed when the query began,
//! unless it follows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir::query::{
    Frames, Meta, Need, PageIn, Query, QueryError, Shape, SourceId, SourceOptions, Span,
};
use weir::{
    ConsequenceOffset, ErrorCode, IntentionOffset, Latest, Page, ReadFrom, Record, RecordKind,
    Store, TopicReader, Weir,
};

use super::{QueryArgs, Supply, query_failure};
use crate::cli::Caller;
use crate::place::{self, Access};
use crate::report::{Because, Failure};
use crate::tail::matches;

/// Before each look whether there is more, with several topics.
const FOLLOW_PAUSE: Duration = Duration::from_millis(50);
/// The same with one, which tells by itself.
const FOLLOW_WAIT: Duration = Duration::from_secs(1);
/// Bytes of current values that make a page.
const GATHERED_BYTES: usize = 1 << 20;
/// Properties that a query can ask for.
const KNOWN: &[&str] = &["topic", "offset", "intention", "time_ms", "key"];
/// Longest wait for records that a server is known to have.
const PATIENCE: Duration = Duration::from_secs(30);

/// A topic that is read.
struct Reading {
    name: String,
    reader: TopicReader,
    /// The current value of each key, in place of all records.
    latest: Option<Latest>,
    /// The last record of the query; none when it follows.
    until: Option<ConsequenceOffset>,
}

/// All topics of a query.
pub(super) struct Topics<'a> {
    args: &'a QueryArgs,
    readings: Vec<Reading>,
    sources: BTreeMap<SourceId, usize>,
    metas: Vec<String>,
    /// The last intention of the query, where that is known.
    cut: Option<IntentionOffset>,
    /// Whether a page came since the last rest.
    came: bool,
    /// Keeps the store open.
    _weir: Weir,
}

impl<'a> Topics<'a> {
    /// Opens the topics; up to the given ends, if the query began before.
    pub(super) fn new(
        caller: &Caller,
        args: &'a QueryArgs,
        ends: Option<&BTreeMap<String, u64>>,
    ) -> anyhow::Result<Self> {
        let weir = place::open(caller, Access::Read)?;
        if args.follow && weir.local().is_some() {
            let failure = Failure::new(ErrorCode::BadOption, "cannot follow in a directory");
            let why = "nobody else could write while this command has the store open";
            return Err(failure
                .because(why)
                .advise("run `weir serve` there, or use `weir tail -f`")
                .into());
        }
        // Before the ends, so that these are at or behind it.
        let local = weir.local().filter(|_| ends.is_none());
        let cut = local.map(Store::applied);
        let mut names: Vec<String> = Vec::new();
        for info in weir.topics(false).failed(|| "cannot query".to_owned())? {
            if args.from.iter().any(|pattern| matches(pattern, &info.name)) {
                names.push(info.name);
            }
        }
        for name in args.from.iter().filter(|name| !name.contains('*')) {
            if !names.contains(name) {
                let what = format!("cannot query {name}");
                return Err(Failure::new(ErrorCode::TopicUnknown, what).into());
            }
        }
        names.sort_unstable();
        let mut readings = Vec::with_capacity(names.len());
        for name in names {
            let failed = || format!("cannot query {name}");
            let topic = weir.topic(&name).failed(failed)?;
            let reader = topic.reader(ReadFrom::Start).failed(failed)?;
            let until = match ends {
                // A topic that was not there when the query began.
                Some(ends) => Some(
                    ends.get(&name)
                        .map_or(ConsequenceOffset::ZERO, |end| ConsequenceOffset(*end)),
                ),
                None => (!args.follow).then(|| reader.last()),
            };
            let latest = if args.latest {
                Some(topic.latest(Duration::ZERO).failed(failed)?)
            } else {
                None
            };
            readings.push(Reading {
                name,
                reader,
                latest,
                until,
            });
        }
        Ok(Self {
            args,
            readings,
            sources: BTreeMap::new(),
            metas: Vec::new(),
            cut,
            came: false,
            _weir: weir,
        })
    }

    /// Whether records come in the order of the query as they lie there.
    fn is_sorted(&self, query: &Query) -> bool {
        let order = self.args.order_by.trim();
        let order = order.strip_suffix("asc").unwrap_or(order).trim_end();
        if self.args.latest {
            return matches!(order, "" | "meta.key") && query.plan().is_ordered();
        }
        let one = self.readings.len() == 1 && order == "meta.offset";
        let known = matches!(order, "" | "meta.intention" | "meta.time_ms");
        (known || one) && query.plan().is_ordered()
    }
}

impl Reading {
    /// The next values of keys, gathered: they lie in blocks of their own. Ends
    /// with what was there when the query began.
    fn values(&mut self, names: &[String]) -> anyhow::Result<Option<PageIn>> {
        let failed = || format!("cannot query {}", self.name);
        let Some(latest) = &mut self.latest else {
            return Ok(None);
        };
        let (mut bytes, mut frames) = (Vec::new(), Frames::default());
        let mut add = |part: &[u8]| {
            let span = Span {
                offset: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
                len: u32::try_from(part.len()).unwrap_or(u32::MAX),
            };
            bytes.extend_from_slice(part);
            (span, bytes.len())
        };
        for current in latest {
            let current = current.failed(failed)?;
            if !current.replay {
                break;
            }
            let record = current.value.record();
            let (key, _) = add(record.key);
            let (value, length) = add(record.value);
            frames.spans.push(value);
            metas(names, &record, |_| key, &mut frames.meta);
            if length >= GATHERED_BYTES {
                break;
            }
        }
        let frames = (!frames.spans.is_empty()).then_some(frames);
        Ok(frames.map(|frames| PageIn {
            bytes: Bytes::from(bytes),
            frames: Some(frames),
        }))
    }

    /// The next page; nothing when there is none now.
    fn page(&mut self) -> anyhow::Result<Option<Page>> {
        let failed = || format!("cannot query {}", self.name);
        loop {
            if self
                .until
                .is_some_and(|until| self.reader.position() > until)
            {
                return Ok(None);
            }
            if let Some(page) = self.reader.next_page().failed(failed)? {
                return Ok(Some(page));
            }
            if self.until.is_none() {
                return Ok(None);
            }
            // A server has them, and they are on their way.
            if !self.reader.wait(Some(Instant::now() + PATIENCE)) {
                let failure = Failure::new(ErrorCode::Deadline, failed());
                return Err(failure
                    .because("records that are there did not come")
                    .into());
            }
        }
    }
}

impl Supply for Topics<'_> {
    fn join(&mut self, query: &mut Query) -> anyhow::Result<()> {
        self.metas = query.plan().meta_names().map(str::to_owned).collect();
        if let Some(name) = self
            .metas
            .iter()
            .find(|name| !KNOWN.contains(&name.as_str()))
        {
            let failure = Failure::new(ErrorCode::BadOption, "cannot query");
            let failure = failure.because(format!("records have no property {name}"));
            return Err(failure
                .advise(format!("choose from {}", KNOWN.join(", ")))
                .into());
        }
        let sorted = self.is_sorted(query);
        for (at, reading) in self.readings.iter().enumerate() {
            let name = serde_json::Value::from(reading.name.as_str()).to_string();
            let options = SourceOptions {
                name: reading.name.clone().into_bytes(),
                shape: Shape::Framed,
                sorted,
                // A key can change before it is read again.
                stable: !self.args.latest,
                meta: vec![("topic".to_owned(), name)],
                ..SourceOptions::default()
            };
            let source = query.add_source(options);
            let source = source.map_err(|error| super::text::failed(&error))?;
            self.sources.insert(source, at);
        }
        Ok(())
    }

    fn serve(&mut self, query: &mut Query, need: &Need) -> anyhow::Result<()> {
        let Some(reading) = self
            .sources
            .get(&need.source)
            .and_then(|at| self.readings.get_mut(*at))
        else {
            return Ok(());
        };
        if reading.latest.is_some() {
            let taken = match reading.values(&self.metas)? {
                Some(page) => query.enqueue(need.source, page, Some(Bytes::new())),
                None => query.finish(need.source),
            };
            return taken.map_err(|error| self.failed(&error));
        }
        let after = need.continuation.as_deref().unwrap_or(b"0");
        let after: Option<u64> = std::str::from_utf8(after)
            .ok()
            .and_then(|at| at.parse().ok());
        let after = ConsequenceOffset(after.unwrap_or(0));
        if reading.reader.position().0 != after.0 + 1 && after.0 > 0 {
            reading.reader.seek(after);
        }
        let Some(page) = reading.page()? else {
            if reading.until.is_some() {
                let done = query.finish(need.source);
                return done.map_err(|error| self.failed(&error));
            }
            return Ok(());
        };
        let whole = page.bytes();
        let base = whole.as_ptr().addr();
        let at = |bytes: &[u8]| Span {
            offset: u32::try_from(bytes.as_ptr().addr().wrapping_sub(base)).unwrap_or(0),
            len: u32::try_from(bytes.len()).unwrap_or(0),
        };
        let mut frames = Frames::default();
        for record in &page {
            let record = record.failed(|| format!("cannot query {}", reading.name))?;
            let late = reading.until.is_some_and(|until| record.offset > until)
                || self.cut.is_some_and(|cut| record.intention > cut);
            if record.kind != RecordKind::Put || late {
                continue;
            }
            frames.spans.push(at(record.value));
            metas(&self.metas, &record, at, &mut frames.meta);
        }
        self.came = true;
        let end = reading.until.is_some_and(|until| page.last() >= until);
        let next = (!end).then(|| Bytes::from(page.last().to_string()));
        let page = PageIn {
            bytes: whole,
            frames: Some(frames),
        };
        let taken = query.enqueue(need.source, page, next);
        taken.map_err(|error| self.failed(&error))
    }

    fn rest(&mut self) {
        if !self.args.follow || std::mem::take(&mut self.came) {
            return;
        }
        if let [only] = self.readings.as_mut_slice() {
            // What it found, or why it failed, comes with the next page.
            let _ = only.reader.wait(Some(Instant::now() + FOLLOW_WAIT));
            return;
        }
        let now = Instant::now();
        let mut found = false;
        for reading in &mut self.readings {
            // All of them, so that each one listens.
            found |= reading.reader.wait(Some(now));
        }
        if !found {
            std::thread::sleep(FOLLOW_PAUSE);
        }
    }

    fn ends(&self) -> BTreeMap<String, u64> {
        let ends = self.readings.iter();
        ends.filter_map(|reading| Some((reading.name.clone(), reading.until?.0)))
            .collect()
    }

    fn failed(&self, error: &QueryError) -> anyhow::Error {
        let source = error
            .place()
            .source
            .and_then(|source| self.sources.get(&source));
        let Some(reading) = source.and_then(|at| self.readings.get(*at)) else {
            return super::text::failed(error);
        };
        query_failure(
            format!("cannot query {}", reading.name),
            error,
            error.to_string(),
        )
    }

    fn name(&self, source: SourceId) -> String {
        let reading = self.sources.get(&source);
        let reading = reading.and_then(|at| self.readings.get(*at));
        reading
            .map(|reading| reading.name.clone())
            .unwrap_or_default()
    }
}

/// Values of the properties that a query asks for.
fn metas(names: &[String], record: &Record<'_>, at: impl Fn(&[u8]) -> Span, out: &mut Vec<Meta>) {
    for name in names {
        out.push(match name.as_str() {
            "offset" => Meta::Number(record.offset.0),
            "intention" => Meta::Number(record.intention.0),
            "time_ms" => Meta::Number(record.time_ms),
            "key" => Meta::Bytes(at(record.key)),
            _ => Meta::Nothing,
        });
    }
}
