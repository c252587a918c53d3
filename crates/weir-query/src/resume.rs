//! Stopping and going on: tokens of a run.

use std::sync::Arc;

use crate::engine::{Last, Query};
use crate::error::QueryError;
use crate::order::{Boundary, Precedence};

use crate::options::{Budgets, Mode};
use crate::plan::Plan;
use crate::rows::Loaded;
use crate::source::{Clip, Source};
use crate::token::{At, Mark, Token};
use weir_core::codec::Reader;
use weir_core::error_code::ErrorCode;

impl Query {
    /// A run that goes on where a token was taken. Sources are added as before,
    /// with the same names; those that were finished are at once, those that
    /// are stable continue where they stood.
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
        // Whether there was one still says what unknown sources are.
        token.boundary.clone_from(&query.boundary);
        query.resumed = Some(token);
        Ok(query)
    }

    /// Why there can be no token now.
    fn token_obstacle(&self) -> Option<&'static str> {
        let retired = |source: &&Source| source.left.is_some() && !source.pages.is_empty();
        for source in self.sources.iter().filter(retired) {
            let page = source.pages.front();
            if !source.stable || page.is_some_and(|page| !page.starts.is_empty()) {
                // It could not be asked for the rest alone.
                return Some("a source without stable pages was replaced, and has items left");
            }
        }
        None
    }

    /// Why no token can exist for this query; nothing if one can.
    pub(super) fn token_refusal(&self) -> Option<&'static str> {
        let plan = &self.plan;
        match self.planned_mode() {
            Mode::Arrival => return Some("results come as pages do"),
            Mode::Sort if plan.limit.is_none() => return Some("a sort without limit"),
            Mode::Sort if self.sources.iter().any(|source| !source.stable) => {
                return Some("a sort over sources that are not stable");
            }
            Mode::Sort => return self.names_twice(),
            Mode::Sequential | Mode::RoundRobin | Mode::Merge => {}
        }
        if !plan.group.is_empty() && !plan.groups_in_order() {
            return Some("groups that the order does not keep together");
        }
        if plan.distinct && !plan.makes() && !plan.distinct_in_order() {
            return Some("distinct values that the order does not keep together");
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

    /// Where the query stands, to go on later from the next result: at most
    /// 64 KiB.
    ///
    /// # Errors
    /// `NO_TOKEN` for what cannot be resumed, and for a query that failed;
    /// `TOKEN_TOO_LARGE`.
    pub fn token(&self) -> Result<Vec<u8>, QueryError> {
        if self.has_failed() {
            let what = "it has failed, and what it held is gone";
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
            token.sources.push(Mark {
                name: source.name.clone(),
                precedence: source.precedence.clone(),
                at: match mode {
                    Mode::Sort => Self::beginning(source),
                    _ => self.mark(source, &token.boundary),
                },
            });
        }
        // Sources that were not added again are still where they were.
        for mark in self.resumed.iter().flat_map(|token| &token.sources) {
            if token.sources.iter().all(|known| known.name != mark.name) {
                let mut mark = mark.clone();
                if let At::Position { equal, .. } = &mut mark.at {
                    *equal = self.still_at(&mark.precedence, *equal, &token.boundary);
                }
                token.sources.push(mark);
            }
        }
        token.encode(&self.plan)
    }

    /// The boundary of the run before. A tie says which items it counts: they are
    /// left out whenever they come again. Without one they are only so many.
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

    /// Lets the parts of a source leave out so many items at the boundary: those
    /// of the page they begin with, whatever came before it.
    pub(super) fn clip_page(&mut self, precedence: &Precedence, equal: u64) {
        let Some(innermost) = Boundary::innermost(&self.boundary, precedence) else {
            return;
        };
        let own = Boundary {
            precedence: precedence.clone(),
            equal,
            alone: true,
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

    /// The boundary after the last item, with those of earlier runs that are
    /// equal to it, around it, or of parts after it.
    fn boundary_at(&self, last: Last) -> Vec<Boundary> {
        let Some(source) = self.sources.get(last.source as usize) else {
            return Vec::new();
        };
        let mut new = Boundary {
            keys: last.keys,
            precedence: source.precedence.clone(),
            tie: last.tie,
            equal: last.run,
            alone: false,
        };
        let mut around = Vec::new();
        let before = self.resumed.iter().flat_map(|token| &token.boundary);
        let left = self.boundary_before();
        for ((before, now), left) in before.zip(&self.boundary).zip(left) {
            if before.is_at(&new, &self.plan) {
                // One that is not clipped stood after them and did not see them again.
                let unseen = if source.clip == Clip::Boundary {
                    now.equal
                } else {
                    0
                };
                new.equal = new.equal.saturating_add(before.equal - unseen);
            } else if left.is_around(&new, &self.plan) {
                around.push(left);
            }
        }
        around.insert(0, new);
        around
    }

    /// Where a source stands, if these are the boundaries.
    fn mark(&self, source: &Source, boundary: &[Boundary]) -> At {
        if source.is_over() {
            return At::Over;
        }
        if !source.stable {
            return At::Boundary;
        }
        if let Some(page) = source.pages.front() {
            if let Some(asked) = page.start(page.next) {
                return At::Position {
                    asked: Some(asked),
                    skip: 0,
                    equal: 0,
                    left: None,
                };
            }
            let here = source.pages_in.saturating_sub(page.number);
            return At::Position {
                asked: page.asked.clone(),
                skip: page.index(page.next),
                equal: self.equal_in_page(source, Some(page), boundary),
                left: source.left.map(|left| left.saturating_add(here)),
            };
        }
        let asked = source.asked.clone();
        if source.clip == Clip::Boundary && source.last_kept.is_none() {
            return At::Clipped { asked };
        }
        At::Position {
            asked,
            skip: source.skip,
            equal: self.equal_in_page(source, None, boundary),
            left: source.left,
        }
    }

    /// Where a sort begins with a source again; one that was replaced has the pages
    /// that it had.
    fn beginning(source: &Source) -> At {
        At::Position {
            asked: source.first.clone(),
            skip: 0,
            equal: 0,
            left: source.left.map(|left| left.saturating_add(source.pages_in)),
        }
    }

    /// How many items at the boundary are in the page at hand, before the place
    /// where the source stands.
    fn equal_in_page(&self, source: &Source, page: Option<&Loaded>, boundary: &[Boundary]) -> u64 {
        if source.left.is_some() {
            // It cannot be split again.
            return 0;
        }
        let left_out = page.map_or(source.equal, |page| page.left_out);
        let left_out = self.still_at(&source.precedence, left_out, boundary);
        let now = Boundary::innermost(boundary, &source.precedence);
        let (Some(now), Some(page)) = (now, page) else {
            return left_out;
        };
        let rows = (0..page.next).rev();
        let given = rows.take_while(|row| page.is_at(&self.plan, source, *row, now));
        left_out.saturating_add(given.count() as u64)
    }

    /// So many items at the boundary of the run before, if it still is where it was.
    fn still_at(&self, precedence: &Precedence, equal: u64, boundary: &[Boundary]) -> u64 {
        let before = self.resumed.as_ref().map(|token| &*token.boundary);
        let before = before.and_then(|before| Boundary::innermost(before, precedence));
        match (before, Boundary::innermost(boundary, precedence)) {
            (Some(before), Some(now)) if before.has_keys_of(now, &self.plan) => equal,
            _ => 0,
        }
    }

    /// Which source has its turn, where they have turns.
    fn turn(&self) -> Option<u32> {
        let at = self.order.get(self.flow.turn).or(self.order.first());
        at.copied()
            .filter(|_| self.planned_mode() == Mode::RoundRobin)
    }

    /// Gives the turn to the source that had it, or the one after where that
    /// would be.
    pub(super) fn restore_turn(&mut self) {
        let Some(token) = &self.resumed else {
            return;
        };
        let at = usize::try_from(token.turn).unwrap_or(usize::MAX);
        let mark = token.sources.get(at);
        if let Some(Mark { precedence, .. }) = mark.filter(|_| token.mode == Mode::RoundRobin as u8)
        {
            let before = |at: &u32| {
                let source = self.sources.get(*at as usize);
                source.is_some_and(|source| source.precedence < *precedence)
            };
            self.flow.turn = self.order.partition_point(before);
        }
    }

    /// Names of the sources of the run that the token is of. Nothing without one.
    #[must_use]
    pub fn sources_before(&self) -> Option<impl Iterator<Item = &[u8]>> {
        let token = self.resumed.as_ref()?;
        Some(token.sources.iter().map(|mark| &*mark.name))
    }

    /// Names of sources that have rows left in the token, and are not there.
    pub(super) fn owed(&self) -> impl Iterator<Item = &[u8]> {
        let marks = self.resumed.iter().flat_map(|token| &token.sources);
        let left = marks.filter(|mark| mark.at != At::Over);
        left.map(|mark| &*mark.name)
            .filter(|name| !self.has_source(name))
    }

    fn has_source(&self, name: &[u8]) -> bool {
        self.sources.iter().any(|source| *source.name == *name)
    }

    /// Says that a source of the run that the token is of is gone for good: what
    /// it has left does not come, in this run and in those that go on from it.
    ///
    /// # Errors
    /// `BAD_OPTION` if the token knows no such source, or it was added; of a sort,
    /// which begins again and counts what it handed out of all sources together.
    pub fn abandon(&mut self, name: &[u8]) -> Result<(), QueryError> {
        let bad = |what| QueryError::new(ErrorCode::BadOption).because(what);
        if self.has_source(name) {
            return Err(bad(
                "a source that was added cannot be abandoned; finish it",
            ));
        }
        if self.forced == Some(Mode::Sort) {
            return Err(bad(
                "a sort cannot go on without one of its sources; begin it again",
            ));
        }
        let marks = self.resumed.iter_mut().flat_map(|token| &mut token.sources);
        let mut known = marks.filter(|mark| *mark.name == *name);
        let mark = known.next();
        let mark = mark.ok_or_else(|| bad("the token knows no source of the name"))?;
        mark.at = At::Over;
        Ok(())
    }

    /// Where a source was in the run that the token is of.
    pub(super) fn precedence_before(&self, name: &[u8]) -> Option<&Precedence> {
        let token = self.resumed.as_ref()?;
        let mark = token.sources.iter().find(|mark| *mark.name == *name);
        mark.map(|mark| &mark.precedence)
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
