//! Adds, removes and splits sources, and records lower bounds of their keys.

use weir_core::exact::to_u32;
use weir_scan::{BadItem, Level, Limits, Path, PlanError, Shape};

use crate::constant::Constant;
use crate::engine::Query;
use crate::error::{QueryError, path_error};
use crate::filter::Filter;
use crate::input::SourceId;
use crate::key::{Key, Literal, OwnedKey, ReducedKey};
use crate::options::{Mode, SourceOptions};
use crate::order::{Precedence, compare, row};
use crate::plan::Column;

use crate::source::{Clip, Pages, Source};
use crate::token::SourcePosition;
use weir_core::error_code::ErrorCode;

/// Maximum number of consecutive splits of a source without a page between them.
pub const SPLITS_MAX: u32 = 10;
/// Maximum number of bytes in the name of a source.
pub const SOURCE_NAME_BYTES_MAX: usize = 1024;

impl Query {
    /// Adds a source. Before the first `next`, any source can be added. Later:
    /// - `Sequential` and `RoundRobin` accept only a source after the one in use;
    /// - `Arrival` accepts any source;
    /// - a merge that has returned items accepts only a source whose lower bound is not
    ///   below the last returned item;
    /// - a sort accepts no source.
    ///
    /// # Errors
    /// `TOO_COMPLEX` above the limit of sources; `BAD_OPTION`, `SYNTAX`, `NOT_SINGULAR` for
    /// invalid options.
    pub fn add_source(&mut self, options: SourceOptions) -> Result<SourceId, QueryError> {
        let name = self.name_of(&options, 0);
        let precedence = self.precedence_for(&name, &options)?;
        let rank = self.rank_of(&precedence);
        let bound = self.may_join(&options, rank)?;
        let mut source = self.make(options, name, precedence)?;
        source.watermark = bound;
        self.apply_token(&mut source)?;
        self.insert(source, rank)
    }

    /// Returns the name of a source, if `before` sources are created before it.
    fn name_of(&self, options: &SourceOptions, before: usize) -> Vec<u8> {
        if options.name.is_empty() {
            (self.sources.len() + before).to_string().into_bytes()
        } else {
            options.name.clone()
        }
    }

    /// Returns the precedence of a source: that of the previous run, else that of its
    /// options, else a precedence after all sources.
    fn precedence_for(
        &self,
        name: &[u8],
        options: &SourceOptions,
    ) -> Result<Precedence, QueryError> {
        let mut precedences = self.sources.iter().map(|source| &source.precedence);
        if let Some(before) = self.precedence_before(name) {
            let ordinal = options.ordinal.unwrap_or(before.ordinal);
            let part = before.part.clone();
            let precedence = Precedence { ordinal, part };
            return if precedences.any(|other| *other == precedence) {
                Err(bad("two sources have one ordinal, or one name in a token"))
            } else {
                Ok(precedence)
            };
        }
        let known = self.resumed.iter().flat_map(|token| &token.sources);
        let known = known.map(|point| &point.precedence);
        let highest = precedences
            .clone()
            .chain(known)
            .map(|precedence| precedence.ordinal)
            .max();
        let next = highest.map_or(0, |highest| highest.saturating_add(1));
        let ordinal = options.ordinal.unwrap_or(next);
        if precedences.any(|other| other.ordinal == ordinal) {
            return Err(bad("two sources have one ordinal"));
        }
        Ok(Precedence::whole(ordinal))
    }

    /// Returns the position of a precedence among all sources.
    fn rank_of(&self, precedence: &Precedence) -> usize {
        self.order.partition_point(|at| {
            let source = self.sources.get(*at as usize);
            source.is_some_and(|source| source.precedence < *precedence)
        })
    }

    /// Checks that a source may be added now. Returns its lower bound, if it has one.
    fn may_join(
        &self,
        options: &SourceOptions,
        rank: usize,
    ) -> Result<Option<Vec<OwnedKey>>, QueryError> {
        let bound = match &options.bound {
            Some(texts) => Some(self.row_of(texts)?),
            None => None,
        };
        match self.mode {
            None | Some(Mode::Arrival) => {}
            Some(Mode::Sequential | Mode::RoundRobin) => {
                if rank < self.flow.turn || (rank == self.flow.turn && self.is_in_use(rank)) {
                    return Err(bad(
                        "a source that is added late must come after the source in use",
                    ));
                }
            }
            Some(Mode::Sort) => return Err(bad("a sort accepts no source after it has begun")),
            Some(Mode::Merge) if !self.flow.has_begun() => {}
            Some(Mode::Merge) => {
                let Some(bound) = &bound else {
                    return Err(bad(
                        "a source that is added late to a merge needs a lower bound",
                    ));
                };
                let last = self.last();
                let last = last.as_ref().map(|last| last.keys.as_slice());
                if compare(&self.plan, row(bound), row(last.unwrap_or_default())).is_lt() {
                    return Err(bad("its lower bound is below the last returned item"));
                }
            }
        }
        Ok(bound)
    }

    /// Returns whether a sequential query has returned a part of the source, in this run or
    /// an earlier one.
    fn is_in_use(&self, rank: usize) -> bool {
        let Some(at) = self.order.get(rank) else {
            return false;
        };
        let source = self.sources.get(*at as usize);
        let begun = self.flow.used == Some(*at) || source.is_some_and(|source| source.skip > 0);
        begun && self.mode == Some(Mode::Sequential)
    }

    fn make(
        &self,
        options: SourceOptions,
        name: Vec<u8>,
        precedence: Precedence,
    ) -> Result<Source, QueryError> {
        let plan = &self.plan;
        if name.len() > SOURCE_NAME_BYTES_MAX {
            let (max, found) = (SOURCE_NAME_BYTES_MAX as u64, name.len() as u64);
            return Err(QueryError::limit(
                ErrorCode::BadOption,
                "bytes of a name",
                max,
                found,
            ));
        }
        if options.sorted && plan.keys.is_empty() {
            return Err(bad("a sorted source needs a query with `order`"));
        }
        let whole = plan.keys.is_empty() && plan.group.is_empty() && plan.constructs_results();
        if options.partial && !whole {
            return Err(bad("partial aggregates need a query that only aggregates"));
        }
        let mut paths = plan.paths.clone();
        let mut tie = None;
        let mut tie_path = None;
        if !options.tie.is_empty() {
            let path = Path::parse(&options.tie);
            let path = path.map_err(|error| path_error("tie", 0, &error))?;
            tie_path = Some(path.clone());
            tie = Some(
                paths
                    .iter()
                    .position(|known| *known == path)
                    .unwrap_or_else(|| {
                        paths.push(path);
                        paths.len() - 1
                    }),
            );
        }
        let framed = options.shape == Shape::Framed;
        let scan = self.scan_of(&options, &paths)?;
        let mut constants = vec![None; plan.metas.len()];
        for (name, value) in &options.meta {
            let Some(at) = plan.metas.iter().position(|known| known == name) else {
                continue;
            };
            let constant = Constant::parse(value, plan.strings).ok_or_else(|| {
                bad("a property is not a JSON scalar").with_value("property", name)
            })?;
            if let Some(slot) = constants.get_mut(at) {
                *slot = Some(constant);
            }
        }
        Ok(Source {
            name: name.into(),
            precedence,
            rank: 0,
            scan,
            framed,
            sorted: options.sorted,
            trust_order: options.trust_order,
            stable: options.stable,
            partial: options.partial,
            tie,
            tie_path,
            constants,
            pages: Pages::default(),
            ended: false,
            continuation: options.first.clone(),
            first: options.first,
            pages_left: None,
            skip: 0,
            equal: 0,
            clip: Clip::No,
            watermark: None,
            last_raw: None,
            last_kept: None,
            pages_in: 0,
            items_in: 0,
            splits: 0,
        })
    }

    /// Returns the scan plan for pages of a source.
    fn scan_of(
        &self,
        options: &SourceOptions,
        paths: &[Path],
    ) -> Result<weir_scan::Plan, QueryError> {
        let plan = &self.plan;
        let independent = matches!(options.shape, Shape::Lines | Shape::Framed);
        let level = options.level.unwrap_or(plan.level);
        let walks = plan.filter.as_ref().is_some_and(Filter::walks);
        let unread = options.shape == Shape::Framed && paths.is_empty() && !walks;
        let level = if unread && level == Level::Structural {
            Level::None
        } else {
            level
        };
        let limits = Limits {
            page_bytes_max: self.budgets.page_bytes_max,
            item_bytes_max: self.budgets.item_bytes_max,
            depth_max: self.budgets.depth_max,
        };
        let bad_item = if independent {
            plan.on_bad_item
        } else {
            BadItem::Error
        };
        weir_scan::Plan::new(options.shape.clone(), level, paths)
            .and_then(|scan| scan.with_limits(limits))
            .and_then(|scan| scan.with_bad_item(bad_item))
            .map_err(plan_error)
    }

    /// Restores the position of a source from the token.
    fn apply_token(&self, source: &mut Source) -> Result<(), QueryError> {
        let Some(token) = &self.resumed else {
            return Ok(());
        };
        let point = token.sources.iter().find(|point| point.name == source.name);
        match point.map(|point| &point.at) {
            Some(SourcePosition::Over) => source.ended = true,
            Some(SourcePosition::Position {
                continuation,
                skip,
                equal,
                pages_left: left,
            }) => {
                source.continuation.clone_from(continuation);
                source.first.clone_from(continuation);
                source.skip = *skip;
                source.equal = *equal;
                source.pages_left = *left;
                source.ended = *left == Some(0);
                // The returned items are not above the next items.
                if *skip == 0 && source.sorted {
                    source.last_raw = token.boundary.first().map(|last| last.keys.clone());
                }
            }
            Some(SourcePosition::Clipped { continuation }) => {
                source.continuation.clone_from(continuation);
                source.clip = Clip::Boundary;
            }
            Some(SourcePosition::Boundary) => source.clip = Clip::Boundary,
            // The source may be a part of an earlier one.
            None if !token.boundary.is_empty() => source.clip = Clip::Boundary,
            None => {}
        }
        let unsorted = source.clip == Clip::Boundary && !source.sorted;
        if unsorted && !token.boundary.is_empty() {
            return Err(bad("a source that resumes by its keys must be sorted"));
        }
        Ok(())
    }

    fn insert(&mut self, mut source: Source, rank: usize) -> Result<SourceId, QueryError> {
        let count = self.sources.len();
        if count >= self.budgets.sources_max {
            let max = self.budgets.sources_max as u64;
            let found = count as u64 + 1;
            return Err(QueryError::limit(
                ErrorCode::TooComplex,
                "sources",
                max,
                found,
            ));
        }
        if self.mode == Some(Mode::Merge) && !source.sorted {
            return Err(bad("a merge needs sorted sources"));
        }
        let at = to_u32(count, "a query has fewer than 2^32 sources");
        source.rank = to_u32(rank, "a query has fewer than 2^32 sources");
        self.sources.push(source);
        self.order.insert(rank, at);
        for (rank, at) in self.order.iter().enumerate().skip(rank) {
            if let Some(source) = self.sources.get_mut(*at as usize) {
                source.rank = to_u32(rank, "a query has fewer than 2^32 sources");
            }
        }
        if self.mode == Some(Mode::RoundRobin) && rank < self.flow.turn {
            self.flow.turn += 1;
        }
        if self.mode.is_none() {
            self.restore_turn();
        }
        self.update_merge(at);
        Ok(SourceId(at))
    }

    /// Replaces a source after the pages that have arrived: by the parts it was split into,
    /// or by the source that it moved to. Each new source begins with its own first
    /// continuation.
    ///
    /// If an earlier run returned some items of a page, and the source has no
    /// [`tie`](SourceOptions::tie), items of that page with equal keys are only counted. In
    /// several parts, one of them may then be returned twice, and another not at all.
    ///
    /// # Errors
    /// `UNKNOWN_SOURCE`, `SOURCE_FINISHED`, `SPLIT_LOOP`, and those of
    /// [`add_source`](Self::add_source). On an error, nothing changes.
    pub fn replace(
        &mut self,
        old: SourceId,
        new: Vec<SourceOptions>,
    ) -> Result<Vec<SourceId>, QueryError> {
        let parent = self.source(old)?;
        let (name, precedence) = (parent.name.clone(), parent.precedence.clone());
        if parent.ended {
            return Err(QueryError::new(ErrorCode::SourceFinished).of(old, &name));
        }
        if parent.pages_left.is_some() {
            let what = "a source that was replaced before the token cannot be replaced again";
            return Err(bad(what).of(old, &name));
        }
        let splits = parent.splits + 1;
        if splits > SPLITS_MAX {
            return Err(QueryError::new(ErrorCode::SplitLoop).of(old, &name));
        }
        // An earlier run has returned the first items of the parts.
        let within = (parent.skip > 0).then_some(parent.equal);
        let clip = match within {
            Some(_) => Clip::Boundary,
            // The source has supplied items after the boundary, and the parts come after
            // those.
            None if parent.last_kept.is_some() => Clip::No,
            None => parent.clip,
        };
        let keyless = self.boundary.is_empty() && self.planned_mode() != Mode::Merge;
        if within.is_some() && (keyless || parent.pages_in > 0) {
            let what = "a source with a partly returned page can be split only in a merge";
            return Err(bad(what).of(old, &name));
        }
        let inherited = (
            parent.watermark.clone(),
            parent.last_raw.clone(),
            parent.tie_path.clone(),
        );
        let count = self.sources.len() + new.len();
        if count > self.budgets.sources_max {
            let (max, found) = (self.budgets.sources_max as u64, count as u64);
            return Err(QueryError::limit(
                ErrorCode::TooComplex,
                "sources",
                max,
                found,
            ));
        }
        let mut made = Vec::with_capacity(new.len());
        for (at, mut options) in new.into_iter().enumerate() {
            if options.tie.is_empty()
                && let Some(tie) = &inherited.2
            {
                options.tie = tie.to_string();
            }
            let name_of_part = self.name_of(&options, at);
            let number = to_u32(at, "a query has fewer than 2^32 sources").saturating_add(1);
            let mut source = self.make(options, name_of_part, precedence.below(number))?;
            if self.mode == Some(Mode::Merge) && !source.sorted {
                return Err(bad("a merge needs sorted sources").of(old, &name));
            }
            source.clip = clip;
            source.splits = splits;
            source.watermark.clone_from(&inherited.0);
            source.last_raw.clone_from(&inherited.1);
            made.push(source);
        }
        if let Some(parent) = self.sources.get_mut(old.index()) {
            parent.ended = true;
            parent.continuation = None;
            parent.pages_left = Some(0);
        }
        if let Some(equal) = within {
            self.clip_page(&precedence, equal);
        }
        self.update_merge(old.0);
        let mut ids = Vec::with_capacity(made.len());
        for source in made {
            let rank = self.rank_of(&source.precedence);
            ids.push(self.insert(source, rank)?);
        }
        Ok(ids)
    }

    /// Declares that a source will supply no items with keys below these, so that a merge
    /// does not wait for it. Keys are JSON scalars, one for each order key.
    ///
    /// A page with a lower item then fails with `SOURCE_NOT_SORTED`.
    ///
    /// # Errors
    /// `UNKNOWN_SOURCE`; `BAD_OPTION` for invalid keys.
    pub fn watermark(&mut self, id: SourceId, keys: &[String]) -> Result<(), QueryError> {
        self.source(id)?;
        let keys = self.row_of(keys)?;
        let (plan, source) = (&self.plan, self.sources.get_mut(id.index()));
        if let Some(source) = source {
            let before = source.watermark.as_deref();
            // A bound only rises.
            if before.is_none_or(|before| compare(plan, row(before), row(&keys)).is_lt()) {
                source.watermark = Some(keys);
            }
        }
        self.update_merge(id.0);
        Ok(())
    }

    /// Parses order keys from JSON scalars. For a property, a string becomes a key of its
    /// bytes.
    fn row_of(&self, texts: &[String]) -> Result<Vec<OwnedKey>, QueryError> {
        if texts.len() != self.plan.keys.len() {
            return Err(bad("expected one value for each order key"));
        }
        let mut keys = Vec::with_capacity(texts.len());
        for (text, key) in texts.iter().zip(&self.plan.keys) {
            let constant = Constant::parse(text, self.plan.strings)
                .ok_or_else(|| bad("a key is not a JSON scalar"))?;
            let json = OwnedKey::of(&Key {
                reduced: constant.reduced,
                literal: Literal::Json(&constant.literal),
            });
            let string = constant.kind == crate::Kind::String;
            keys.push(match key.column {
                Column::Meta(_) if string => {
                    let mut raw = Vec::new();
                    weir_scan::Text::new(&constant.literal).decode_into(&mut raw);
                    let literal = Literal::Raw(&raw);
                    OwnedKey::of(&Key {
                        reduced: ReducedKey::of(constant.kind, literal, self.plan.strings),
                        literal,
                    })
                }
                _ => json,
            });
        }
        Ok(keys)
    }
}

fn bad(what: &'static str) -> QueryError {
    QueryError::new(ErrorCode::BadOption).because(what)
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn plan_error(error: PlanError) -> QueryError {
    let what = match error {
        PlanError::TooManyPaths => {
            return QueryError::new(ErrorCode::TooComplex).because("more than 64 paths");
        }
        PlanError::LimitTooHigh => "a limit is above the maximum of the scanner",
        PlanError::LevelNeedsChecks => {
            "the level `none` is for framed or single items without paths"
        }
        PlanError::NotIndependent => "bad items can be omitted only from lines and frames",
        _ => "the scanner does not support the source",
    };
    bad(what)
}
