//! Queries over topics, local and remote: filter, order, merge and aggregate their
//! records without parsing them.
//!
//! The engine is that of [`crate::query`]; this module fetches the pages that it needs.
//!
//! Invariants:
//! - Results, faults and tokens depend neither on where the store is, nor on how records are
//!   divided into pages.
//! - This module implements no stage of a query, and reads no value.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_core::{ErrorCode, IntentionOffset};
use weir_query::{
    BadItem, Bounds, Budgets, Explain, Level, Mode, Need, PageIn, Plan, Properties, Query,
    QueryError, QueryText, ResultPage, Shape, SourceId, SourceOptions, Step, TopicToken,
};
use weir_store::ReadFrom;

use self::fetched::{Fetched, Shared};
pub use self::follow::TopicQueryNews;
use self::follow::{Follow, Idle, UNKNOWN};
use self::options::{TopicEnd, TopicQueryOptions, TopicView, pattern_matches};
use self::reading::Reading;
use crate::backend::Backend;
use crate::error::WeirError;
use crate::remote::pushdown::{PushdownRequest, QueryPart};
use crate::reply::check_cancelled;
use crate::topic::Topic;
use crate::weir::Weir;

mod faults;
mod fetched;
mod follow;
mod latest;
pub(crate) mod options;
mod reading;

/// How long a wait may last before it checks whether the query was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(100);

/// The result of [`TopicQuery::next`].
#[derive(Clone, Debug)]
pub enum TopicStep {
    /// Results, at least one.
    Page(ResultPage),
    /// No result arrived before the deadline.
    Idle,
    /// The query has ended.
    Done,
}

/// The outcome of a request of the engine for more input.
enum Served {
    /// The engine has new input.
    Input,
    /// There is no input now.
    Nothing,
    /// The query cannot read the next record.
    Fault,
}

/// A running query over topics. One thread may use it at a time; it may move between threads.
/// Result pages remain valid after it is dropped.
#[derive(Debug)]
pub struct TopicQuery {
    backend: Backend,
    options: TopicQueryOptions,
    shared: Shared,
    query: Query,
    /// The query with all its stages, if a server runs a part of it.
    whole: Option<Query>,
    readings: BTreeMap<SourceId, Reading>,
    follow: Option<Follow>,
    cancelled: Arc<AtomicBool>,
    failed: Option<QueryError>,
    idle: Idle,
}

/// Cancels a query from any thread.
#[derive(Clone, Debug)]
pub struct TopicQueryCanceller(Arc<AtomicBool>);

impl TopicQueryCanceller {
    /// Cancels the query: [`TopicQuery::next`] fails with `CANCELLED`, also while it waits.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Weir {
    /// Begins a query over topics.
    ///
    /// # Errors
    /// `Query` if the query is not valid. `TopicUnknown` for a name, not a pattern, that never was
    /// created. Errors of a server.
    pub fn query(&self, options: TopicQueryOptions) -> Result<TopicQuery, WeirError> {
        // The patience of the query limits its waits.
        let backend = self.within(options.patience).backend().clone();
        TopicQuery::new(backend, options)
    }

    /// Returns the plan of a query over topics. Reads no records.
    ///
    /// # Errors
    /// As for [`query`](Self::query).
    pub fn explain(&self, options: TopicQueryOptions) -> Result<Explain, WeirError> {
        Ok(self.query(options)?.explain())
    }
}

/// The query, with the default order of its topics if it names none.
fn completed(options: &TopicQueryOptions) -> Result<QueryText, QueryError> {
    let bad = |what| Err(QueryError::about(ErrorCode::BadOption, what));
    let mut text = options.text.clone();
    let follows = options.end == TopicEnd::Follow;
    let ordered = !text.order.trim().is_empty();
    if follows && options.view == TopicView::Latest {
        return bad("a query of latest values cannot follow");
    }
    if options.from != ReadFrom::Start && options.view == TopicView::Latest {
        return bad("a query of latest values has no start position");
    }
    if matches!(options.end, TopicEnd::AsOf(_)) && options.view == TopicView::Latest {
        return bad("a query of latest values cannot end at an intention: old values are not kept");
    }
    if follows && !matches!(text.mode, None | Some(Mode::Merge)) {
        return bad("a query that follows must have the mode `merge`");
    }
    if follows && ordered && !matches!(normalized_order(&text.order), "meta.intention") {
        return bad("a query that follows must have the order `meta.intention`");
    }
    if follows && (!text.group.trim().is_empty() || is_computed(&text.select)) {
        return bad("a query that follows never ends, so it has no groups and no aggregates");
    }
    if !ordered && text.mode.is_none() {
        let property = match options.view {
            TopicView::Log => "meta.intention",
            TopicView::Latest => "meta.key",
        };
        property.clone_into(&mut text.order);
        text.mode = Some(Mode::Merge);
    }
    Ok(text)
}

/// Whether a selection computes results instead of selecting values.
fn is_computed(select: &str) -> bool {
    let select = select.trim();
    !select.is_empty() && !select.starts_with(['$', '@'])
}

/// The order without the parts that have no effect.
fn normalized_order(order: &str) -> &str {
    let order = order.trim();
    let order = order.strip_suffix(" asc").unwrap_or(order).trim_end();
    if order == "meta.intention_offset" {
        return "meta.intention";
    }
    order
}

/// Waits until the store has reached the cut of a query.
///
/// # Errors
/// `TokenMismatch` if a resumed query needs records that the store does not have and will not get
/// from another node.
fn reach(
    backend: &Backend,
    cut: IntentionOffset,
    is_resumed: bool,
    until: Option<Instant>,
) -> Result<(), WeirError> {
    if is_resumed && backend.applied()? < cut && backend.is_standalone() {
        let what = "the store has fewer records than the query had read, so it is another store, \
                    or was restored from an older backup";
        return Err(QueryError::about(ErrorCode::TokenMismatch, what).into());
    }
    Ok(backend.reach(cut, until)?)
}

impl TopicQuery {
    fn new(backend: Backend, options: TopicQueryOptions) -> Result<Self, WeirError> {
        let text = completed(&options)?;
        let plan = text.compile()?.over(&sources(&options));
        Properties::of(&plan)?;
        let resumed = options.token.as_deref().map(TopicToken::decode);
        let resumed = resumed.transpose()?;
        let until = Instant::now().checked_add(options.patience);
        let cut = match (&resumed, options.end) {
            (_, TopicEnd::Follow) => None,
            (Some(resumed), _) if resumed.cut.is_some() => resumed.cut,
            (Some(_), _) => {
                let what = "the token is of a query that follows";
                return Err(QueryError::about(ErrorCode::TokenMismatch, what).into());
            }
            (None, TopicEnd::AsOf(cut)) => Some(cut),
            (None, TopicEnd::Now) => Some(backend.applied()?),
        };
        if let Some(cut) = cut {
            reach(&backend, cut, resumed.is_some(), until)?;
        }
        let kinds = options.kinds.iter().map(|kind| 1_u8 << *kind as u8);
        let kinds = kinds.fold(0, |all, kind| all | kind);
        let is_log = options.view == TopicView::Log;
        let can_query = backend.queries(is_log)?;
        let pushes_down = options.push_down && can_query;
        let query_part =
            if pushes_down && plan.may_push_down() && has_default_limits(&options.budgets) {
                QueryPart::new(&text, plan.may_cut())
            } else {
                None
            };
        let whole = Arc::new(plan);
        let plan = match &query_part {
            Some(query_part) => Arc::new(whole.after_pushdown(&text, query_part.cuts())?),
            None => Arc::clone(&whole),
        };
        let run = |plan: &Arc<Plan>| match &resumed {
            Some(resumed) => Query::resume(Arc::clone(plan), options.budgets, resumed.engine),
            None => Ok(Query::new(Arc::clone(plan), options.budgets)),
        };
        let mut query = run(&plan)?;
        // A server does not know which items this process will skip, so it cannot apply the limit.
        let is_strict = text.on_bad_item == BadItem::Skip && text.level == Level::Strict;
        let may_skip = query_part.is_none() && (whole.may_push_down() || is_strict);
        let pushdown = PushdownRequest {
            kinds,
            // A limit at the server would also count the items that are dropped at a boundary.
            limit: query.wanted().filter(|_| {
                let streams = !plan.is_ordered() || is_sorted(&options);
                pushes_down && streams && !may_skip && cut.is_some() && resumed.is_none()
            }),
            // Without it, a node that lags would end before these records.
            until: cut.filter(|_| can_query && is_log),
            marks: cut.is_none(),
            begins: can_query && !is_log,
            query_part: query_part.map(Arc::new),
        };
        let shared = Shared {
            properties: Properties::of(&plan)?,
            kinds,
            cut,
            view: options.view,
            reset_earliest: options.reset_earliest,
            pushdown,
        };
        let whole = match &shared.pushdown.query_part {
            Some(_) => Some(run(&whole)?),
            None => None,
        };
        let cancelled = Arc::<AtomicBool>::default();
        query.stop_by(Arc::clone(&cancelled));
        let mut new = Self {
            backend,
            shared,
            query,
            whole,
            readings: BTreeMap::new(),
            follow: None,
            cancelled,
            failed: None,
            idle: Idle::default(),
            options,
        };
        new.join()?;
        Ok(new)
    }

    /// Adds the topics.
    fn join(&mut self) -> Result<(), WeirError> {
        let follows = self.options.end == TopicEnd::Follow;
        // Read before the list of topics, so that no new topic is missed.
        let newest_topic = if follows {
            self.backend.newest_topic()?
        } else {
            IntentionOffset::ZERO
        };
        let before = self.topics_before();
        // A resumed query that ended at a cut ignores topics created since.
        let is_complete = !follows && before.is_some();
        let mut names = before.unwrap_or_default();
        let is_pattern = |name: &&String| name.contains('*');
        if !is_complete && self.options.topics.iter().any(|name| is_pattern(&name)) {
            for info in self.backend.topics(false)? {
                if self
                    .options
                    .topics
                    .iter()
                    .any(|p| pattern_matches(p, &info.name))
                    && !names.contains(&info.name)
                {
                    names.push(info.name);
                }
            }
        }
        for name in self.options.topics.iter().filter(|name| !is_pattern(name)) {
            if !is_complete && !names.contains(name) {
                if !follows && self.backend.topic(name)?.is_none() {
                    return Err(weir_store::StoreError::TopicUnknown { name: name.clone() }.into());
                }
                names.push(name.clone());
            }
        }
        names.sort_unstable();
        for name in names {
            self.add(&name, None)?;
        }
        if follows {
            let patterns = self.options.topics.iter().filter(is_pattern).cloned();
            let patterns: Vec<String> = patterns.collect();
            self.follow = Some(Follow::new(&mut self.query, patterns, newest_topic)?);
        }
        Ok(())
    }

    /// The topics of the earlier run that this query resumes.
    fn topics_before(&self) -> Option<Vec<String>> {
        let names = self.query.sources_before()?;
        let names = names.filter_map(|name| std::str::from_utf8(name).ok());
        let patterns = &self.options.topics;
        let is_selected =
            |name: &&str| *name != UNKNOWN && patterns.iter().any(|p| pattern_matches(p, name));
        Some(names.filter(is_selected).map(str::to_owned).collect())
    }

    /// Adds a topic. `bound`: a lower bound for the intentions of its records, if the topic is
    /// added after the query began.
    fn add(&mut self, name: &str, bound: Option<IntentionOffset>) -> Result<(), WeirError> {
        let topic = Topic::new(self.backend.clone(), weir_core::TopicName::any(name)?);
        let resumed = self.options.token.is_some();
        let is_new = resumed || bound.is_some();
        let from = match self.options.from {
            ReadFrom::Start => ReadFrom::Start,
            _ if is_new || topic.try_info()?.is_none() => ReadFrom::Start,
            from => from,
        };
        let reading = Reading::new(&topic, &self.shared, (from, bound), resumed)?;
        let sorts = self.query.plan().is_ordered() && !is_sorted(&self.options)
            || self.options.text.mode == Some(Mode::Sort);
        let options = SourceOptions {
            name: name.as_bytes().to_vec(),
            shape: Shape::Framed,
            first: reading.first(from),
            sorted: self.query.plan().is_ordered() && is_sorted(&self.options),
            // A value can change between two sorts; the order of keys cannot.
            stable: self.shared.view == TopicView::Log || !sorts,
            // The characters of names need no escapes in JSON.
            meta: vec![("topic".to_owned(), format!("\"{name}\""))],
            bound: bound.map(|bound| vec![bound.0.to_string()]),
            ..SourceOptions::default()
        };
        if let Some(whole) = &mut self.whole {
            whole.add_source(options.clone())?;
        }
        let source = self.query.add_source(options)?;
        self.readings.insert(source, reading);
        Ok(())
    }

    /// Returns the next results. Waits until `deadline` (`None`: without a limit). A query that
    /// follows waits for new records; any other query waits only for a server to send existing
    /// ones. Returns `Idle` at the deadline; the call can then be repeated. If a server sends
    /// nothing within the patience of the options, the error is `Remote` with `Deadline`. The
    /// patience counts across calls.
    ///
    /// # Errors
    /// Errors are final, except those of a connection: each further call returns the same error. A
    /// fault of a record names its topic, offset and byte. The results before the record were
    /// returned first.
    pub fn next(
        &mut self,
        bounds: Bounds,
        deadline: Option<Instant>,
    ) -> Result<TopicStep, WeirError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone().into());
        }
        loop {
            if self.cancelled.load(Ordering::Acquire) {
                self.query.cancel();
            }
            // Records that exist are read without a wait, which would check this.
            check_cancelled()?;
            let needs = match self
                .query
                .next(bounds)
                .map_err(|error| self.placed(error))?
            {
                Step::Ready(page) => {
                    return Ok(TopicStep::Page(page.with_skipped(self.skipped())));
                }
                Step::Done => return Ok(TopicStep::Done),
                Step::Need(needs) => needs,
            };
            // Read before the search for records, so that the wait below misses no record.
            let seen = self.backend.deliveries();
            let mark = match &self.follow {
                Some(_) => self.backend.progress()?.map(|progress| progress.settled),
                None => None,
            };
            // Limits the wait, so that a cancelled query ends soon.
            let check = Instant::now().checked_add(CANCEL_CHECK);
            let soon = deadline.map_or(check, |deadline| check.map(|check| check.min(deadline)));
            let mut idle = Vec::new();
            let (mut has_input, mut faulty) = (false, Vec::new());
            for need in needs.iter().filter(|need| need.required) {
                match self.serve(need, soon)? {
                    Served::Input => has_input = true,
                    Served::Nothing => idle.push(need.source),
                    Served::Fault => faulty.push(need.source),
                }
            }
            // The results before the faulty record are returned first.
            let moved = self.send_fault_watermarks(&faulty)?;
            if let Some(source) = self.due(&faulty, &idle).filter(|_| !has_input && !moved) {
                let reading = self.readings.get_mut(&source);
                if let Some(fault) = reading.and_then(|reading| reading.fault.take()) {
                    return Err(self.fail(fault));
                }
            }
            if has_input || moved || self.advance(mark, &idle)? {
                continue;
            }
            let check = Instant::now().checked_add(CANCEL_CHECK);
            let until = deadline.map_or(check, |deadline| check.map(|check| check.min(deadline)));
            self.wait(mark, seen, &idle, until);
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(TopicStep::Idle);
            }
        }
    }

    /// Gives the engine the input that it requested.
    fn serve(&mut self, need: &Need, deadline: Option<Instant>) -> Result<Served, WeirError> {
        let Some(reading) = self.readings.get_mut(&need.source) else {
            return Ok(Served::Nothing);
        };
        if reading.fault.is_some() {
            return Ok(Served::Fault);
        }
        let fetched = reading.next_page(need.continuation.as_deref(), &self.shared, deadline);
        let mut items = match fetched? {
            Fetched::Nothing => return Ok(Served::Nothing),
            Fetched::Fault(fault) => {
                reading.fault = Some(fault);
                return Ok(Served::Fault);
            }
            Fetched::End => {
                self.query.finish(need.source)?;
                return Ok(Served::Input);
            }
            Fetched::Page(items) => items,
        };
        let mut next = items.next.take();
        loop {
            let count = items.frames.spans.len();
            let page = PageIn {
                bytes: items.bytes.clone(),
                frames: Some(items.frames.clone()),
            };
            let Err(error) = self.query.enqueue(need.source, page, next) else {
                reading.enqueued += count as u64;
                return Ok(Served::Input);
            };
            // Items before the faulty record still count. There may be another fault among them.
            let place = error.location();
            let item = place
                .item
                .and_then(|item| item.checked_sub(reading.enqueued));
            let item = item.and_then(|item| usize::try_from(item).ok());
            let found = item.and_then(|item| Some((item, items.record(item)?)));
            let Some((item, (record, start))) = found else {
                return Err(error.into());
            };
            let span = items.frames.spans.get(item).copied().unwrap_or_default();
            let byte = place.offset;
            let byte = byte.map(|byte| byte.saturating_sub(u64::from(span.offset)));
            let fault = error.in_record(&reading.name, record, byte);
            reading.fault = Some(fault);
            self.shared.properties.truncate(&mut items.frames, item);
            next = Some(start);
        }
    }

    /// Moves watermarks and adds new topics. Returns `false` if nothing changed.
    fn advance(
        &mut self,
        mark: Option<IntentionOffset>,
        idle: &[SourceId],
    ) -> Result<bool, WeirError> {
        let Some(mark) = mark else {
            return Ok(false);
        };
        let Some(mut follow) = self.follow.take() else {
            return Ok(false);
        };
        let moved = self.follow_to(&mut follow, mark, idle);
        self.follow = Some(follow);
        moved
    }

    fn follow_to(
        &mut self,
        follow: &mut Follow,
        mark: IntentionOffset,
        idle: &[SourceId],
    ) -> Result<bool, WeirError> {
        let mut moved = false;
        for name in follow.new_topics(&self.backend)? {
            let known = self.readings.values().any(|reading| reading.name == name);
            if !known {
                self.add(&name, Some(follow.passed()))?;
                moved = true;
            }
        }
        for source in idle {
            let Some(reading) = self.readings.get_mut(source) else {
                continue;
            };
            if let Some(mark) = reading.reader().and_then(|reader| reader.mark(mark)) {
                moved |= follow.send_watermark(&mut self.query, *source, mark)?;
            }
        }
        // Topics that are not known yet have no records up to this mark.
        moved |= follow.send_unknown_watermark(&mut self.query, mark)?;
        Ok(moved)
    }

    /// Waits for news, until `deadline` at most.
    fn wait(
        &mut self,
        mark: Option<IntentionOffset>,
        seen: u64,
        idle: &[SourceId],
        until: Option<Instant>,
    ) {
        // The source of unknown topics has no listener that could report news.
        let has_listener = idle.iter().any(|id| self.readings.contains_key(id));
        let detects_news = self.follow.is_none() || has_listener;
        self.idle = Idle {
            mark: mark.unwrap_or_default(),
            seen,
            detects_news,
        };
        let mark = self.idle.mark;
        // In a query that follows at a server, only topics with a listener can report news.
        let mut listening = self.follow.is_none() || self.backend.is_local();
        if !listening {
            for source in idle {
                if let Some(reading) = self.readings.get_mut(source) {
                    // The next page returns the record that was found, or the error.
                    if reading.wait(Some(Instant::now())) {
                        return;
                    }
                    listening = true;
                }
            }
        }
        self.backend.wait_news(mark, seen, listening, until);
    }

    /// Stores the error that every further call returns.
    fn fail(&mut self, error: QueryError) -> WeirError {
        self.query.cancel();
        self.failed = Some(error.clone());
        error.into()
    }

    /// Returns a token with the position after the last result. Any node can resume the query with
    /// it. A resumed sort sorts again and skips the returned results. If retention or compaction
    /// has removed records, results can be missing or returned twice.
    ///
    /// # Errors
    /// `NO_TOKEN` if the query cannot be resumed ([`explain`](Self::explain) reports this in
    /// advance); `TOKEN_TOO_LARGE`.
    pub fn token(&self) -> Result<Vec<u8>, WeirError> {
        let engine = self.query.token()?;
        let token = TopicToken {
            cut: self.shared.cut.map(|cut| self.required_intention(cut)),
            engine: &engine,
        };
        Ok(token.encode())
    }

    /// The intention that the store must have reached before a resumed query reads, so that values
    /// are not older than those read before.
    fn required_intention(&self, cut: IntentionOffset) -> IntentionOffset {
        let newest = self.readings.values().map(Reading::newest).max();
        newest.map_or(cut, |newest| newest.max(cut))
    }

    /// Returns the plan of the query.
    #[must_use]
    pub fn explain(&self) -> Explain {
        self.whole.as_ref().unwrap_or(&self.query).explain()
    }

    /// The compiled query.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.whole.as_ref().unwrap_or(&self.query).plan()
    }

    /// The last intention that the query includes; `None` when it follows. Over latest values,
    /// every value is of this intention or a later one.
    #[must_use]
    pub fn as_of(&self) -> Option<IntentionOffset> {
        self.shared.cut
    }

    /// The topic that a result came from; `None` for a computed result.
    #[must_use]
    pub fn topic(&self, source: SourceId) -> Option<&str> {
        let reading = self.readings.get(&source);
        reading.map(|reading| reading.name.as_str())
    }

    /// The number of items so far that are not JSON and were skipped. It counts the items that were
    /// read. With a limit, these can be more than the items that contribute to the results.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        let at_server = self.readings.values().map(Reading::skipped);
        self.query.skipped() + at_server.sum::<u64>()
    }

    /// What the query waits for after [`next`](Self::next) has returned `Idle`. Another thread or
    /// an event loop can wait for it.
    #[must_use]
    pub fn news(&self) -> TopicQueryNews {
        let (backend, idle) = (self.backend.clone(), self.idle);
        TopicQueryNews { backend, idle }
    }

    /// Returns a handle that cancels the query from another thread.
    #[must_use]
    pub fn canceller(&self) -> TopicQueryCanceller {
        TopicQueryCanceller(Arc::clone(&self.cancelled))
    }

    /// Adds the topic to an error of the engine.
    fn placed(&self, error: QueryError) -> WeirError {
        let source = error.location().source;
        match source.and_then(|source| self.readings.get(&source)) {
            Some(reading) => error.in_topic(&reading.name).into(),
            None => error.into(),
        }
    }
}

/// Whether records are stored in the order of the query.
fn is_sorted(options: &TopicQueryOptions) -> bool {
    let order = normalized_order(&options.text.order);
    match options.view {
        TopicView::Latest => matches!(order, "" | "meta.key"),
        TopicView::Log => matches!(
            order,
            "" | "meta.intention" | "meta.time_ms" | "meta.offset"
        ),
    }
}

/// Whether a server, which has its own limits, accepts the same items as this process.
fn has_default_limits(budgets: &Budgets) -> bool {
    let default = Budgets::default();
    (budgets.depth_max, budgets.item_bytes_max) == (default.depth_max, default.item_bytes_max)
}

/// The sources of a query, for its tokens.
fn sources(options: &TopicQueryOptions) -> Vec<u8> {
    let mut topics: Vec<&str> = options.topics.iter().map(String::as_str).collect();
    topics.sort_unstable();
    topics.dedup();
    let mut kinds: Vec<&str> = options.kinds.iter().map(|kind| kind.name()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let view = match options.view {
        TopicView::Log => "log",
        TopicView::Latest => "latest",
    };
    let follow = if options.end == TopicEnd::Follow {
        "follow"
    } else {
        ""
    };
    [
        topics.join("\n"),
        kinds.join("\n"),
        view.into(),
        follow.into(),
    ]
    .join("\0")
    .into_bytes()
}
