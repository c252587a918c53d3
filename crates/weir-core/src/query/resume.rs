//! Stopping and going on: tokens of a run.

use std::sync::Arc;

use super::engine::{Last, Query};
use super::error::QueryError;
use super::load::Boundary;
use super::options::{Budgets, Mode};
use super::plan::Plan;
use super::source::{Clip, Source};
use super::token::{At, Mark, Token};
use crate::codec::Reader;
use crate::error_code::ErrorCode;

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
        query.flow.turn = usize::try_from(token.turn).unwrap_or(0);
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
        query.boundary = token.boundary.take();
        // Whether there was one still says what unknown sources are.
        token.boundary.clone_from(&query.boundary);
        query.resumed = Some(token);
        Ok(query)
    }

    /// Why no token can exist for this query; nothing if one can.
    pub(super) fn token_refusal(&self) -> Option<&'static str> {
        let plan = &self.plan;
        match self.planned_mode() {
            Mode::Arrival => return Some("results come as pages do"),
            Mode::Sort if plan.limit.is_none() => return Some("a sort without limit"),
            Mode::Sort => {
                let stable = self.sources.iter().all(|source| source.stable);
                return (!stable).then_some("a sort over sources that are not stable");
            }
            Mode::Sequential | Mode::RoundRobin | Mode::Merge => {}
        }
        if !plan.group.is_empty() && !plan.groups_in_order() {
            return Some("groups that the order does not keep together");
        }
        if plan.distinct && !plan.makes() && !plan.distinct_in_order() {
            return Some("distinct values that the order does not keep together");
        }
        let merge = self.planned_mode() == Mode::Merge;
        let lost = |source: &Source| !source.stable && (source.tie.is_none() || !merge);
        if self.sources.iter().any(lost) {
            return Some("a source that is neither stable nor has a tie in a merge");
        }
        None
    }

    /// Where the query stands, to go on later from the next result: at most
    /// 64 KiB.
    ///
    /// # Errors
    /// `NO_TOKEN` for what cannot be resumed, and for a query that failed;
    /// `TOKEN_TOO_LARGE`.
    pub fn token(&self) -> Result<Vec<u8>, QueryError> {
        if let Some(what) = self.token_refusal() {
            return Err(QueryError::new(ErrorCode::NoToken).because(what));
        }
        let mode = self.planned_mode();
        let mut token = Token {
            mode: mode as u8,
            results: self.flow.results,
            offset: self.stages.offset,
            limit: self.stages.limit,
            turn: self.flow.turn as u64,
            distinct: self.stages.distinct.as_ref().and_then(|d| d.last),
            ..Token::default()
        };
        if mode == Mode::Sort {
            return token.encode(&self.plan);
        }
        if let Some(fold) = &self.stages.fold
            && !fold.save(&mut token.fold)
        {
            let what = "groups are being handed out";
            return Err(QueryError::new(ErrorCode::NoToken).because(what));
        }
        if mode == Mode::Merge {
            let last = self.last().and_then(|last| self.boundary_at(last));
            token.boundary = last.or_else(|| self.boundary.clone());
        }
        for source in &self.sources {
            token.sources.push(Mark {
                name: source.name.clone(),
                at: Self::mark(source),
            });
        }
        // Sources that were not added again are still where they were.
        for mark in self.resumed.iter().flat_map(|token| &token.sources) {
            if token.sources.iter().all(|known| known.name != mark.name) {
                token.sources.push(mark.clone());
            }
        }
        token.encode(&self.plan)
    }

    /// The boundary behind the last item, with those of earlier runs that are
    /// equal to it.
    fn boundary_at(&self, last: Last) -> Option<Boundary> {
        let source = self.sources.get(last.source as usize)?;
        let mut new = Boundary {
            keys: last.keys,
            ordinal: source.ordinal,
            tie: last.tie,
            equal: last.run,
        };
        let before = self
            .resumed
            .as_ref()
            .and_then(|token| token.boundary.as_ref());
        if let Some(before) = before
            && before.is_at(&new, &self.plan)
        {
            let left = match (source.clip, &self.boundary) {
                (Clip::Boundary, Some(left)) => left.equal,
                // It stood behind them and did not see them again.
                _ => 0,
            };
            new.equal += before.equal - left;
        }
        Some(new)
    }

    fn mark(source: &Source) -> At {
        if source.is_over() {
            return At::Over;
        }
        if !source.stable {
            return At::Boundary;
        }
        if let Some(page) = source.pages.front() {
            if let Some(asked) = page.start(page.next) {
                return At::Place {
                    asked: Some(asked),
                    skip: 0,
                };
            }
            return At::Place {
                asked: page.asked.clone(),
                skip: page.head(page.next).index,
            };
        }
        let asked = source.asked.clone();
        if source.clip == Clip::Boundary && source.last_kept.is_none() {
            return At::Clipped { asked };
        }
        At::Place {
            asked,
            skip: source.skip,
        }
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
