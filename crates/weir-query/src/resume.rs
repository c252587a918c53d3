//! Stopping and resuming a query with tokens.

use std::sync::Arc;

use crate::engine::{Last, Query};
use crate::error::QueryError;
use crate::order::{Boundary, Precedence};

use crate::options::{Budgets, Mode};
use crate::plan::Plan;
use crate::rows::LoadedPage;
use crate::source::{Clip, Source};
use crate::token::{ResumePoint, SourcePosition, Token};
use weir_core::codec::Reader;
use weir_core::error_code::ErrorCode;

impl Query {
    /// Resumes a run from a token. The caller adds the sources again with their old names.
    /// Finished sources stay finished, and stable sources continue at their old position.
    ///
    /// # Errors
    /// `TOKEN_CORRUPT`, `TOKEN_MISMATCH`.
    pub fn resume(plan: Arc<Plan>, budgets: Budgets, token: &[u8]) -> Result<Self, QueryError> {
        let mut token = Token::decode(token, &plan)?;
        let mut query = Self::new(plan, budgets);
        query.forced = mode(token.mode);
        if token.mode == Mode::Sort as u8 {
            query.stages.offset = query.stages.offset.saturating_add(token.results);
            query.flow.results = token.results;
            let limit = &mut query.stages.limit;
            *limit = limit.map(|limit| limit.saturating_sub(token.results));
            query.resumed = Some(token);
            return Ok(query);
        }
        query.stages.offset = token.offset;
        query.stages.limit = token.limit;
        query.flow.results = token.results;
        if let Some(distinct) = &mut query.stages.distinct {
            distinct.last = token.distinct;
        }
        if let Some(fold) = &mut query.stages.fold {
            let loaded = fold.load(&query.plan, &mut Reader::new(&token.fold));
            loaded.map_err(|_| {
                let what = "its aggregates cannot be read";
                QueryError::new(ErrorCode::TokenCorrupt).because(what)
            })?;
        }
        query.boundary = std::mem::take(&mut token.boundary);
        // Whether the token had a boundary determines how unknown sources begin.
        token.boundary.clone_from(&query.boundary);
        query.resumed = Some(token);
        Ok(query)
    }

    /// Returns the reason why there can be no token now; `None` if there can.
    fn token_obstacle(&self) -> Option<&'static str> {
        let retired = |source: &&Source| source.pages_left.is_some() && !source.pages.is_empty();
        for source in self.sources.iter().filter(retired) {
            let page = source.pages.front();
            if !source.stable || page.is_some_and(|page| !page.starts.is_empty()) {
                // The remaining items cannot be requested alone.
                return Some("a source without stable pages was replaced, and has items left");
            }
        }
        None
    }

    /// Returns the reason why this query can have no token; `None` if it can.
    pub(super) fn token_refusal(&self) -> Option<&'static str> {
        let plan = &self.plan;
        match self.planned_mode() {
            Mode::Arrival => return Some("the results are in the order of arrival"),
            Mode::Sort if plan.limit.is_none() => return Some("a sort without limit"),
            Mode::Sort if self.sources.iter().any(|source| !source.stable) => {
                return Some("a sort over sources that are not stable");
            }
            Mode::Sort => return self.names_twice(),
            Mode::Sequential | Mode::RoundRobin | Mode::Merge => {}
        }
        if !plan.group.is_empty() && !plan.groups_in_order() {
            return Some("the order does not keep the items of a group adjacent");
        }
        if plan.distinct && !plan.constructs_results() && !plan.distinct_in_order() {
            return Some("the order does not keep equal values adjacent");
        }
        if let Some(what) = self.names_twice() {
            return Some(what);
        }
        let merge = self.planned_mode() == Mode::Merge;
        let lost = |source: &Source| !source.stable && (source.tie.is_none() || !merge);
        if self.sources.iter().any(lost) {
            return Some("a source that is neither stable nor has a tie in a merge");
        }
        None
    }

    fn names_twice(&self) -> Option<&'static str> {
        let mut names: Vec<&[u8]> = self.sources.iter().map(|source| &*source.name).collect();
        names.sort_unstable();
        let twice = names.array_windows().any(|[one, other]| one == other);
        twice.then_some("two sources have one name")
    }

    /// Returns a token to resume the query from the next result; at most 64 KiB.
    ///
    /// # Errors
    /// `NO_TOKEN` for a query that cannot be resumed or that failed; `TOKEN_TOO_LARGE`.
    pub fn token(&self) -> Result<Vec<u8>, QueryError> {
        if self.has_failed() {
            let what = "it has failed and released its pages";
            return Err(QueryError::new(ErrorCode::NoToken).because(what));
        }
        if let Some(what) = self.token_refusal() {
            return Err(QueryError::new(ErrorCode::NoToken).because(what));
        }
        let mode = self.planned_mode();
        if mode != Mode::Sort
            && let Some(what) = self.token_obstacle()
        {
            return Err(QueryError::new(ErrorCode::NoToken).because(what));
        }
        let mut token = Token {
            mode: mode as u8,
            results: self.flow.results,
            offset: self.stages.offset,
            limit: self.stages.limit,
            turn: self.turn().map_or(0, u64::from),
            distinct: self.stages.distinct.as_ref().and_then(|d| d.last),
            ..Token::default()
        };
        if mode != Mode::Sort
            && let Some(fold) = &self.stages.fold
        {
            fold.save(&mut token.fold);
        }
        if mode == Mode::Merge {
            token.boundary = match self.last() {
                Some(last) => self.boundary_at(last),
                None => self.boundary_before(),
            };
        }
        for source in &self.sources {
            token.sources.push(ResumePoint {
                name: source.name.clone(),
                precedence: source.precedence.clone(),
                at: match mode {
                    Mode::Sort => Self::beginning(source),
                    _ => self.position_of(source, &token.boundary),
                },
            });
        }
        // Sources that were not added again retain their position.
        for point in self.resumed.iter().flat_map(|token| &token.sources) {
            if token.sources.iter().all(|known| known.name != point.name) {
                let mut point = point.clone();
                if let SourcePosition::Position { equal, .. } = &mut point.at {
                    *equal = self.equal_if_unchanged(&point.precedence, *equal, &token.boundary);
                }
                token.sources.push(point);
            }
        }
        token.encode(&self.plan)
    }

    /// Returns the boundary of the previous run. With a tie, the boundary identifies the
    /// items to exclude, whenever they arrive again. Without a tie, it only counts them.
    fn boundary_before(&self) -> Vec<Boundary> {
        let mut left = self.boundary.clone();
        let before = self.resumed.iter().flat_map(|token| &token.boundary);
        for (left, before) in left.iter_mut().zip(before) {
            if before.tie.is_some() {
                left.equal = before.equal;
            }
        }
        left
    }

    /// Excludes `equal` items at the boundary from the parts of a source. Only items of the
    /// page with which the parts begin count. Items before that page do not.
    pub(super) fn clip_page(&mut self, precedence: &Precedence, equal: u64) {
        let Some(innermost) = Boundary::innermost(&self.boundary, precedence) else {
            return;
        };
        let own = Boundary {
            precedence: precedence.clone(),
            equal,
            own_page_only: true,
            ..innermost.clone()
        };
        let before = self.resumed.iter_mut().map(|token| &mut token.boundary);
        for boundaries in before.chain([&mut self.boundary]) {
            match boundaries
                .iter_mut()
                .find(|known| known.precedence == *precedence)
            {
                Some(known) => known.clone_from(&own),
                None => boundaries.insert(1, own.clone()),
            }
        }
    }

    /// Returns the boundary after the last item, with those boundaries of earlier runs that
    /// are equal to it or still restrict other sources.
    fn boundary_at(&self, last: Last) -> Vec<Boundary> {
        let Some(source) = self.sources.get(last.source as usize) else {
            return Vec::new();
        };
        let mut new = Boundary {
            keys: last.keys,
            precedence: source.precedence.clone(),
            tie: last.tie,
            equal: last.run,
            own_page_only: false,
        };
        let mut around = Vec::new();
        let before = self.resumed.iter().flat_map(|token| &token.boundary);
        let left = self.boundary_before();
        for ((before, now), left) in before.zip(&self.boundary).zip(left) {
            if before.is_at(&new, &self.plan) {
                // A source without a clip began after these items and did not supply them
                // again.
                let unseen = if source.clip == Clip::Boundary {
                    now.equal
                } else {
                    0
                };
                new.equal = new.equal.saturating_add(before.equal - unseen);
            } else if left.still_restricts(&new, &self.plan) {
                around.push(left);
            }
        }
        around.insert(0, new);
        around
    }

    /// Returns the position of a source for a token with these boundaries.
    fn position_of(&self, source: &Source, boundary: &[Boundary]) -> SourcePosition {
        if source.is_over() {
            return SourcePosition::Over;
        }
        if !source.stable {
            return SourcePosition::Boundary;
        }
        if let Some(page) = source.pages.front() {
            if let Some(continuation) = page.start(page.next) {
                return SourcePosition::Position {
                    continuation: Some(continuation),
                    skip: 0,
                    equal: 0,
                    pages_left: None,
                };
            }
            let Some(here) = source.pages_in.checked_sub(page.number) else {
                unreachable!("a page in memory was counted")
            };
            return SourcePosition::Position {
                continuation: page.continuation.clone(),
                skip: page.index(page.next),
                equal: self.equal_in_page(source, Some(page), boundary),
                pages_left: source.pages_left.map(|left| left.saturating_add(here)),
            };
        }
        let continuation = source.continuation.clone();
        if source.clip == Clip::Boundary && source.last_kept.is_none() {
            return SourcePosition::Clipped { continuation };
        }
        SourcePosition::Position {
            continuation,
            skip: source.skip,
            equal: self.equal_in_page(source, None, boundary),
            pages_left: source.pages_left,
        }
    }

    /// Returns the position where a sort reads a source again from its start. A replaced
    /// source ends after the pages that it had.
    fn beginning(source: &Source) -> SourcePosition {
        SourcePosition::Position {
            continuation: source.first.clone(),
            skip: 0,
            equal: 0,
            pages_left: source
                .pages_left
                .map(|left| left.saturating_add(source.pages_in)),
        }
    }

    /// Returns the number of items at the boundary that are in the current page, before the
    /// current position of the source.
    fn equal_in_page(
        &self,
        source: &Source,
        page: Option<&LoadedPage>,
        boundary: &[Boundary],
    ) -> u64 {
        if source.pages_left.is_some() {
            // The source cannot be split again.
            return 0;
        }
        let left_out = page.map_or(source.equal, |page| page.left_out);
        let left_out = self.equal_if_unchanged(&source.precedence, left_out, boundary);
        let now = Boundary::innermost(boundary, &source.precedence);
        let (Some(now), Some(page)) = (now, page) else {
            return left_out;
        };
        let rows = (0..page.next).rev();
        let given = rows.take_while(|row| page.is_at(&self.plan, source, *row, now));
        left_out.saturating_add(given.count() as u64)
    }

    /// Returns `equal` if the boundary of the previous run is unchanged, else 0.
    fn equal_if_unchanged(
        &self,
        precedence: &Precedence,
        equal: u64,
        boundary: &[Boundary],
    ) -> u64 {
        let before = self.resumed.as_ref().map(|token| &*token.boundary);
        let before = before.and_then(|before| Boundary::innermost(before, precedence));
        match (before, Boundary::innermost(boundary, precedence)) {
            (Some(before), Some(now)) if before.has_keys_of(now, &self.plan) => equal,
            _ => 0,
        }
    }

    /// Returns the source whose turn it is, in the mode `RoundRobin`.
    fn turn(&self) -> Option<u32> {
        let at = self.order.get(self.flow.turn).or(self.order.first());
        at.copied()
            .filter(|_| self.planned_mode() == Mode::RoundRobin)
    }

    /// Restores the turn: to the source that had it, or to the next source if that source is
    /// missing.
    pub(super) fn restore_turn(&mut self) {
        let Some(token) = &self.resumed else {
            return;
        };
        let at = usize::try_from(token.turn).unwrap_or(usize::MAX);
        let point = token.sources.get(at);
        if let Some(ResumePoint { precedence, .. }) =
            point.filter(|_| token.mode == Mode::RoundRobin as u8)
        {
            let before = |at: &u32| {
                let source = self.sources.get(*at as usize);
                source.is_some_and(|source| source.precedence < *precedence)
            };
            self.flow.turn = self.order.partition_point(before);
        }
    }

    /// Returns the names of the sources in the token; `None` without a token.
    #[must_use]
    pub fn sources_before(&self) -> Option<impl Iterator<Item = &[u8]>> {
        let token = self.resumed.as_ref()?;
        Some(token.sources.iter().map(|point| &*point.name))
    }

    /// Returns the names of sources that have rows left in the token and were not added.
    pub(super) fn missing_sources(&self) -> impl Iterator<Item = &[u8]> {
        let points = self.resumed.iter().flat_map(|token| &token.sources);
        let left = points.filter(|point| point.at != SourcePosition::Over);
        left.map(|point| &*point.name)
            .filter(|name| !self.has_source(name))
    }

    fn has_source(&self, name: &[u8]) -> bool {
        self.sources.iter().any(|source| *source.name == *name)
    }

    /// Abandons a source of the token: its remaining items are omitted, in this run and in
    /// those that resume from it.
    ///
    /// # Errors
    /// `BAD_OPTION` if the token has no such source, or if the source was added. A sort
    /// always fails with it, because it begins again and counts the returned items of all
    /// sources together.
    pub fn abandon(&mut self, name: &[u8]) -> Result<(), QueryError> {
        let bad = |what| QueryError::new(ErrorCode::BadOption).because(what);
        if self.has_source(name) {
            return Err(bad(
                "a source that was added cannot be abandoned; finish it",
            ));
        }
        if self.forced == Some(Mode::Sort) {
            return Err(bad(
                "a sort cannot continue without one of its sources; start it again",
            ));
        }
        let points = self.resumed.iter_mut().flat_map(|token| &mut token.sources);
        let mut known = points.filter(|point| *point.name == *name);
        let point = known.next();
        let point = point.ok_or_else(|| bad("the token has no source with this name"))?;
        point.at = SourcePosition::Over;
        Ok(())
    }

    /// Returns the precedence of a source in the token.
    pub(super) fn precedence_before(&self, name: &[u8]) -> Option<&Precedence> {
        let token = self.resumed.as_ref()?;
        let point = token.sources.iter().find(|point| *point.name == *name);
        point.map(|point| &point.precedence)
    }
}

fn mode(number: u8) -> Option<Mode> {
    [
        Mode::Sequential,
        Mode::Arrival,
        Mode::RoundRobin,
        Mode::Merge,
        Mode::Sort,
    ]
    .into_iter()
    .find(|mode| *mode as u8 == number)
}
