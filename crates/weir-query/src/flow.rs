//! Finds the next item in each mode, and the missing pages.

use std::collections::VecDeque;
use weir_core::exact::to_u32;

use crate::engine::{Flow, Last, NextItem, PageBuilder, Query, located};
use crate::error::QueryError;
use crate::input::{Need, SourceId};
use crate::key::{OwnedKey, PREFIX, ReducedKey};
use crate::options::Mode;
use crate::order::{compare, row};
use crate::plan::Plan;

use crate::sort::Sorter;
use crate::source::Source;
use crate::tournament::Entry;
use weir_core::error_code::ErrorCode;

impl Query {
    /// Fixes the mode.
    pub(super) fn start(&mut self) -> Result<(), QueryError> {
        if self.mode.is_some() {
            return Ok(());
        }
        let mode = self.planned_mode();
        if mode == Mode::Merge
            && let Some(at) = self.sources.iter().position(|source| !source.sorted)
        {
            let id = SourceId(to_u32(at, "a query has fewer than 2^32 sources"));
            let error = QueryError::new(ErrorCode::BadOption);
            let name = self.source(id)?.name.clone();
            return Err(error.because("a merge needs sorted sources").of(id, &name));
        }
        if mode == Mode::Sort {
            let items_max = match (&self.stages.fold, &self.stages.distinct, self.stages.limit) {
                (None, None, Some(limit)) => {
                    usize::try_from(limit.saturating_add(self.stages.offset)).ok()
                }
                _ => None,
            };
            self.flow.sorter = Sorter::new(items_max, self.budgets.sort_bytes_max);
        }
        self.mode = Some(mode);
        if !matches!(mode, Mode::Arrival | Mode::Sort) {
            self.flow.arrivals = VecDeque::new();
        }
        for at in 0..self.sources.len() {
            self.update_merge(to_u32(at, "a query has fewer than 2^32 sources"));
        }
        Ok(())
    }

    /// Returns the fixed mode, or the mode that the current sources imply.
    pub(super) fn planned_mode(&self) -> Mode {
        let fixed = self.mode.or(self.forced).or(self.plan.mode);
        fixed.unwrap_or_else(|| {
            if self.plan.keys.is_empty() {
                Mode::Sequential
            } else if self.sources.iter().all(|source| source.sorted) {
                Mode::Merge
            } else {
                Mode::Sort
            }
        })
    }

    /// Updates a source in the merge. To be called after each change of the source.
    pub(super) fn update_merge(&mut self, source: u32) {
        if self.mode == Some(Mode::Merge) {
            self.refresh(source);
        }
    }

    /// Returns the location of the next item.
    pub(super) fn pull(&mut self) -> Result<NextItem, QueryError> {
        Ok(match self.mode {
            Some(Mode::Merge) => self.pull_merged(),
            Some(Mode::Sort) => return self.pull_sorted(),
            Some(Mode::Arrival) => self.pull_arrived(),
            Some(Mode::RoundRobin) => self.pull_round_robin(),
            Some(Mode::Sequential) | None => self.pull_sequential(),
        })
    }

    fn pull_merged(&self) -> NextItem {
        match self.flow.heads.top() {
            None => NextItem::End,
            Some(top) if top.is_bound() => NextItem::Blocked,
            Some(top) => NextItem::Source(top.source()),
        }
    }

    /// Sets the head of a source in the merge to its current item.
    fn refresh(&mut self, source: u32) {
        let new = entry(&self.plan, &self.sources, source);
        let (plan, sources) = (&self.plan, &self.sources);
        let heads = &mut self.flow.heads;
        heads.set(source, new, |a, b| less_in_full(plan, sources, a, b));
    }

    /// Returns a bound of key prefixes: the source stays on top of the merge while its keys
    /// are below the bound. `None` if the last item was not from this source: then finding
    /// the bound costs more than it saves. In the mode `Sequential`, above all prefixes.
    fn run_bound(&mut self, source: u32) -> Option<u128> {
        if self.mode == Some(Mode::Sequential) {
            return Some(u128::MAX);
        }
        let again = self.flow.streak == Some(source);
        self.flow.streak = Some(source);
        if !again {
            return None;
        }
        let (plan, sources) = (&self.plan, &self.sources);
        let heads = &self.flow.heads;
        let next = heads.challenger(source, |a, b| less_in_full(plan, sources, a, b));
        Some(next.map_or(u128::MAX, |next| next.key() & PREFIX))
    }

    /// Passes items of a page of a source through the stages: of the top source of a merge
    /// while the source stays on top, or of the source in use in the mode `Sequential`.
    pub(super) fn pass_run_through_stages(
        &mut self,
        source: u32,
        out: &mut PageBuilder,
    ) -> Result<(), QueryError> {
        let bound = self.run_bound(source);
        let descending = self.plan.keys.first().is_some_and(|key| key.descending);
        let (stages, flow) = (&mut self.stages, &mut self.flow);
        let Some(from) = self.sources.get_mut(source as usize) else {
            return Ok(());
        };
        let Some(page) = from.pages.front_mut() else {
            return Ok(());
        };
        let began = page.next;
        loop {
            let row = page.next;
            let applied = stages.apply(&self.plan, page, row, SourceId(source), out);
            if let Err(error) = applied {
                let number = page.number;
                let error = located(error, SourceId(source), from, number);
                // The items before it were passed on.
                if row > began {
                    flow.last_row = Some((source, row - 1));
                    flow.used = Some(source);
                    self.update_merge(source);
                }
                return Err(error);
            }
            let Some(head) = page.heads.get(row + 1) else {
                break;
            };
            page.next = row + 1;
            let key = head.key.reduced().prefix(descending);
            if bound.is_none_or(|bound| key >= bound) || out.is_full() || stages.limit == Some(0) {
                flow.last_row = Some((source, row));
                flow.used = Some(source);
                self.update_merge(source);
                return Ok(());
            }
        }
        self.advance(source);
        Ok(())
    }

    fn pull_sorted(&mut self) -> Result<NextItem, QueryError> {
        let mut over = true;
        while let Some(source) = self.flow.arrivals.pop_front() {
            let from = self.sources.get_mut(source as usize);
            let Some(page) = from.and_then(|from| from.pages.pop_front()) else {
                continue;
            };
            let sorter = &mut self.flow.sorter;
            sorter.add(&self.plan, &self.sources, SourceId(source), page)?;
        }
        for source in &self.sources {
            over &= source.ended;
        }
        Ok(if over {
            NextItem::Sorted
        } else {
            NextItem::Blocked
        })
    }

    fn pull_arrived(&mut self) -> NextItem {
        if let Some(source) = self.flow.arrivals.front() {
            return NextItem::Source(*source);
        }
        if self.sources.iter().all(|source| source.ended) {
            NextItem::End
        } else {
            NextItem::Blocked
        }
    }

    fn pull_sequential(&mut self) -> NextItem {
        while let Some(source) = self.order.get(self.flow.turn) {
            match self.sources.get(*source as usize) {
                Some(from) if from.is_waiting() => return NextItem::Blocked,
                Some(from) if !from.is_over() => return NextItem::Source(*source),
                _ => self.flow.turn += 1,
            }
        }
        NextItem::End
    }

    fn pull_round_robin(&mut self) -> NextItem {
        for _ in 0..=self.order.len() {
            if self.flow.turn >= self.order.len() {
                self.flow.turn = 0;
            }
            let Some(source) = self.order.get(self.flow.turn) else {
                break;
            };
            match self.sources.get(*source as usize) {
                Some(from) if from.is_waiting() => return NextItem::Blocked,
                Some(from) if !from.is_over() => return NextItem::Source(*source),
                _ => self.flow.turn += 1,
            }
        }
        NextItem::End
    }

    /// Moves a source past its front item.
    pub(super) fn advance(&mut self, source: u32) {
        let Some(from) = self.sources.get_mut(source as usize) else {
            return;
        };
        let Some(page) = from.pages.front_mut() else {
            return;
        };
        let row = page.next;
        page.next += 1;
        let gone = page.next >= page.heads.len();
        if self.mode == Some(Mode::Merge) {
            if gone {
                self.flow.last_row = None;
                self.flow.last = last(&self.plan, from, source, row);
            } else {
                self.flow.last_row = Some((source, row));
            }
        }
        if gone {
            from.pages.pop_front();
            if self.mode == Some(Mode::Arrival) {
                self.flow.arrivals.pop_front();
            }
        }
        match self.mode {
            Some(Mode::Merge) => self.refresh(source),
            Some(Mode::RoundRobin) => self.flow.turn += 1,
            Some(Mode::Sequential) => self.flow.used = Some(source),
            _ => {}
        }
    }

    /// Returns the last item that a merge passed on.
    pub(super) fn last(&self) -> Option<Last> {
        match self.flow.last_row {
            Some((source, row)) => {
                let from = self.sources.get(source as usize)?;
                last(&self.plan, from, source, row)
            }
            None => self.flow.last.clone(),
        }
    }

    /// Returns the pages that the query needs now, required pages first. After `Ready`,
    /// these are pages to read ahead.
    #[must_use]
    pub fn needs(&self) -> Vec<Need> {
        let mut needs = Vec::new();
        if self.is_over() || self.stages.limit == Some(0) {
            return needs;
        }
        let mode = self.planned_mode();
        let required: Vec<u32> = match mode {
            Mode::Sequential | Mode::RoundRobin => {
                let wraps = mode == Mode::RoundRobin;
                let again = if wraps { self.flow.turn } else { 0 };
                let order = self.order.iter().skip(self.flow.turn);
                let mut order = order.chain(self.order.iter().take(again));
                let found = order.find(|at| !self.is_over_at(**at));
                let found = found.filter(|at| self.is_waiting_at(**at));
                found.copied().into_iter().collect()
            }
            Mode::Arrival | Mode::Sort => self.waiting().collect(),
            Mode::Merge => {
                let least = self.least();
                let waiting = self.waiting();
                waiting
                    .filter(|at| self.blocks(*at, least.as_ref()))
                    .collect()
            }
        };
        let hint = self.budgets.page_bytes_hint.max(self.flow.page_seen);
        let mut room = self
            .budgets
            .buffer_bytes_max
            .saturating_sub(self.account.bytes());
        for source in &required {
            room = room.saturating_sub(hint);
            needs.extend(self.need(*source, true));
        }
        if mode == Mode::Sort || self.budgets.pages_ahead == 0 {
            return needs;
        }
        let mut is_required = vec![false; self.sources.len()];
        for source in &required {
            if let Some(flag) = is_required.get_mut(*source as usize) {
                *flag = true;
            }
        }
        let mut ahead = 0;
        for source in &self.order {
            let Some(from) = self.sources.get(*source as usize) else {
                continue;
            };
            let pages = from.pages.len();
            let wanted = !from.ended && pages <= self.budgets.pages_ahead as usize;
            if !wanted || is_required.get(*source as usize) == Some(&true) {
                continue;
            }
            if room < hint || (mode == Mode::Sequential && ahead > 0) {
                break;
            }
            room -= hint;
            ahead += 1;
            needs.extend(self.need(*source, false));
        }
        needs
    }

    fn need(&self, source: u32, required: bool) -> Option<Need> {
        let from = self.sources.get(source as usize)?;
        Some(Need {
            source: SourceId(source),
            continuation: from.continuation.clone(),
            required,
            bytes: self.budgets.page_bytes_hint,
        })
    }

    fn is_over_at(&self, at: u32) -> bool {
        self.sources.get(at as usize).is_none_or(Source::is_over)
    }

    fn is_waiting_at(&self, at: u32) -> bool {
        self.sources
            .get(at as usize)
            .is_some_and(Source::is_waiting)
    }

    fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        self.order
            .iter()
            .copied()
            .filter(|at| self.is_waiting_at(*at))
    }

    /// Returns the least item in memory.
    fn least(&self) -> Option<Entry> {
        let (plan, sources) = (&self.plan, &self.sources);
        let heads = self.flow.heads.iter().filter(|entry| !entry.is_bound());
        let mut least: Option<Entry> = None;
        for head in heads {
            if least.is_none_or(|least| less(plan, sources, &head, &least)) {
                least = Some(head);
            }
        }
        least
    }

    /// Returns whether a waiting source may still supply an item below `least`.
    fn blocks(&self, at: u32, least: Option<&Entry>) -> bool {
        let Some(own) = entry(&self.plan, &self.sources, at) else {
            return false;
        };
        least.is_none_or(|least| !less(&self.plan, &self.sources, least, &own))
    }
}

impl Flow {
    /// Returns whether a merge has passed on an item.
    pub(super) fn has_begun(&self) -> bool {
        self.last.is_some() || self.last_row.is_some()
    }
}

fn last(plan: &Plan, from: &Source, source: u32, row: usize) -> Option<Last> {
    let page = from.pages.front()?;
    let run = page.run(plan, from, row);
    let whole = if run > row { page.run_before } else { 0 };
    Some(Last {
        source,
        keys: page.owned(plan, &from.constants, row),
        tie: page.tie(plan, from, row),
        run: whole + run as u64,
    })
}

/// Returns the entry of a source in the merge; `None` if the source is over.
fn entry(plan: &Plan, sources: &[Source], source: u32) -> Option<Entry> {
    let from = sources.get(source as usize)?;
    let descending = plan.keys.first().is_some_and(|key| key.descending);
    if let Some(page) = from.pages.front() {
        let key = page.head(page.next).key.reduced().in_direction(descending);
        return Some(Entry::new(key, source, false));
    }
    if from.ended {
        return None;
    }
    let bound = from.watermark.as_ref().and_then(|keys| keys.first());
    let key = bound.map_or(0, |key| key.reduced.in_direction(descending));
    Some(Entry::new(key, source, true))
}

/// Returns whether `a` comes before `b`, by keys, then by rank.
#[inline]
fn less(plan: &Plan, sources: &[Source], a: &Entry, b: &Entry) -> bool {
    if (a.key() ^ b.key()) & PREFIX != 0 {
        return a.key() < b.key();
    }
    less_in_full(plan, sources, a, b)
}

fn less_in_full(plan: &Plan, sources: &[Source], a: &Entry, b: &Entry) -> bool {
    let (Some(x), Some(y)) = (
        sources.get(a.source() as usize),
        sources.get(b.source() as usize),
    ) else {
        return false;
    };
    let decided = plan.keys.len() == 1 && a.key() == b.key() && !a.is_bound() && !b.is_bound();
    let descending = plan.keys.first().is_some_and(|key| key.descending);
    if decided && ReducedKey::is_exact_in_direction(a.key(), descending) {
        return x.rank < y.rank;
    }
    // A source without a bound may supply any item, so it comes before all items.
    let open = |entry: &Entry, source: &Source| entry.is_bound() && source.watermark.is_none();
    match (open(a, x), open(b, y)) {
        (true, false) => return true,
        (false, true) => return false,
        (true, true) => return x.rank < y.rank,
        (false, false) => {}
    }
    let order = match (a.is_bound(), b.is_bound()) {
        (false, false) => compare(plan, head(plan, x), head(plan, y)),
        (true, false) => compare(plan, row(bound(x)), head(plan, y)),
        (false, true) => compare(plan, head(plan, x), row(bound(y))),
        (true, true) => compare(plan, row(bound(x)), row(bound(y))),
    };
    order.then_with(|| x.rank.cmp(&y.rank)).is_lt()
}

fn bound(source: &Source) -> &[OwnedKey] {
    source.watermark.as_deref().unwrap_or_default()
}

fn head<'a>(plan: &'a Plan, source: &'a Source) -> impl Fn(usize) -> crate::key::Key<'a> {
    move |at| match source.pages.front() {
        Some(page) => page.key(plan, &source.constants, page.next, at),
        None => row(&[])(at),
    }
}
