//! Aggregates and groups: combine many items to one result.
//!
//! Sums are exact. Minimum and maximum use the order of values. Equal results have equal
//! bytes, in any order of arrival.
//!
//! Invariants:
//! - No sum wraps.
//! - No result is partial.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use weir_scan::{Path, PathSet, Step, Tag, Value};

use crate::decimal::{Number, Sum};
use crate::error::QueryError;
use crate::json;
use crate::key::{Key, Literal, OwnedKey, ReducedKey};
use crate::kind::{Kind, Strings};
use crate::plan::{Aggregate, Column, Function, Plan, Select};
use crate::rows::LoadedPage;
use crate::source::Source;
use weir_core::codec::{Reader, Short, put_bytes, put_varint};
use weir_core::error_code::ErrorCode;

/// The state of one aggregate of one group.
#[derive(Clone, Debug)]
enum AggregateState {
    Count(u64),
    /// A sum of numbers; a value of another type sets `has_other_type`.
    Sum {
        sum: Sum,
        count: u64,
        has_other_type: bool,
    },
    Best {
        best: Option<OwnedKey>,
        has_other_type: bool,
    },
}

/// A value to add to an aggregate, and how often.
struct Input<'a> {
    kind: Kind,
    literal: &'a [u8],
    count: u64,
}

impl AggregateState {
    fn new(function: Function) -> Self {
        match function {
            Function::Count => Self::Count(0),
            Function::Sum | Function::Avg => Self::Sum {
                sum: Sum::default(),
                count: 0,
                has_other_type: false,
            },
            Function::Min | Function::Max => Self::Best {
                best: None,
                has_other_type: false,
            },
        }
    }

    /// Returns whether the value can be added: a number may be out of range.
    fn accepts(&self, input: &Input<'_>) -> bool {
        match self {
            Self::Sum { .. } if input.kind == Kind::Number => Sum::accepts(input.literal),
            _ => true,
        }
    }

    /// Adds a value. Returns `false` and adds nothing if a number is out of range.
    fn add(&mut self, function: Function, input: &Input<'_>, strings: Strings) -> bool {
        if input.kind == Kind::Undefined {
            return true;
        }
        match self {
            Self::Count(count) => *count = count.saturating_add(input.count),
            Self::Sum {
                sum,
                count,
                has_other_type,
            } => {
                if input.kind == Kind::Number {
                    let added = sum.add(input.literal);
                    if added {
                        *count = count.saturating_add(input.count);
                    }
                    return added;
                }
                *has_other_type = true;
            }
            Self::Best {
                best,
                has_other_type,
            } => {
                if input.kind >= Kind::Array {
                    *has_other_type = true;
                    return true;
                }
                let literal = Literal::Json(input.literal);
                let new = Key {
                    reduced: ReducedKey::of(input.kind, literal, strings),
                    literal,
                };
                let better = best.as_ref().is_none_or(|best| {
                    let order = new.compare(&best.key(), strings);
                    if function == Function::Min {
                        order.is_lt()
                    } else {
                        order.is_gt()
                    }
                });
                if better {
                    *best = Some(OwnedKey::of(&new));
                }
            }
        }
        true
    }

    /// Appends the result. Returns `false` if it is undefined.
    fn write(&self, function: Function, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Count(count) => out.extend_from_slice(count.to_string().as_bytes()),
            Self::Sum {
                has_other_type: true,
                ..
            }
            | Self::Best {
                has_other_type: true,
                ..
            }
            | Self::Best { best: None, .. } => return false,
            Self::Sum { sum, count, .. } => match (function, count) {
                (Function::Avg, 0) => return false,
                (Function::Avg, count) => sum.value().divided(*count).write(out),
                _ => sum.value().write(out),
            },
            Self::Best {
                best: Some(best), ..
            } => json::canonical(best.reduced.kind(), &best.literal, out),
        }
        true
    }

    fn save(&self, out: &mut Vec<u8>) {
        match self {
            Self::Count(count) => put_varint(out, *count),
            Self::Sum {
                sum,
                count,
                has_other_type,
            } => {
                let mut text = Vec::new();
                sum.value().write(&mut text);
                put_bytes(out, &text);
                put_varint(out, *count);
                out.push(u8::from(*has_other_type));
            }
            Self::Best {
                best,
                has_other_type,
            } => {
                out.push(u8::from(*has_other_type));
                out.push(best.as_ref().map_or(0, |best| best.reduced.kind() as u8));
                let literal = best.as_ref().map(|best| &*best.literal);
                put_bytes(out, literal.unwrap_or_default());
            }
        }
    }

    fn load(function: Function, from: &mut Reader<'_>, strings: Strings) -> Result<Self, Short> {
        let mut new = Self::new(function);
        match &mut new {
            Self::Count(count) => *count = from.varint()?,
            Self::Sum {
                sum,
                count,
                has_other_type,
            } => {
                sum.restore(&Number::parse(from.bytes()?));
                *count = from.varint()?;
                *has_other_type = from.u8()? != 0;
            }
            Self::Best {
                best,
                has_other_type,
            } => {
                *has_other_type = from.u8()? != 0;
                let kind = from.u8()?;
                let literal = from.bytes()?;
                let kind = match kind {
                    0 => return Ok(new),
                    1 => Kind::Null,
                    2 => Kind::False,
                    3 => Kind::True,
                    4 => Kind::Number,
                    5 => Kind::String,
                    _ => return Err(Short),
                };
                let literal = Literal::Json(literal);
                *best = Some(OwnedKey::of(&Key {
                    reduced: ReducedKey::of(kind, literal, strings),
                    literal,
                }));
            }
        }
        Ok(new)
    }
}

/// One group: its keys and its aggregates. Each key is in canonical form before a line feed,
/// which canonical JSON never contains. An undefined key is empty.
#[derive(Clone, Debug)]
struct Group {
    key: Box<[u8]>,
    states: Vec<AggregateState>,
}

/// All groups, or only the current one if the items are ordered by group.
#[derive(Debug)]
pub(crate) struct Fold {
    /// Whether a group is complete when another one begins.
    in_order: bool,
    groups_max: usize,
    groups: Vec<Group>,
    indexes: BTreeMap<Box<[u8]>, usize>,
    /// Number of groups returned after the end, if the items are not ordered by group.
    out: usize,
    /// Whether the groups are in the order of the results.
    sorted: bool,
    /// Paths of the members of an item that is a partial aggregate.
    parts: PathSet,
    scratch: Vec<u8>,
    found: Vec<Value>,
}

impl Fold {
    /// Creates the state for a plan with groups or aggregates.
    pub(crate) fn new(plan: &Plan, groups_max: usize) -> Self {
        let name = |name: &str| {
            let Ok(path) = Path::new(vec![Step::Name(name.into())]) else {
                unreachable!("a path of one step is short")
            };
            path
        };
        let Ok(parts) = PathSet::new(&["count", "sum", "min", "max"].map(name)) else {
            unreachable!("four paths fit into a set")
        };
        let mut new = Self {
            in_order: plan.groups_in_order(),
            groups_max,
            groups: Vec::new(),
            indexes: BTreeMap::new(),
            out: 0,
            sorted: plan.result_keys.is_empty(),
            parts,
            scratch: Vec::new(),
            found: Vec::new(),
        };
        if plan.group.is_empty() {
            new.groups.push(Group::new(plan, &[]));
        }
        new
    }

    /// Adds an item. Sets `complete` to the group that the item completes, if any, also if
    /// the item itself is refused.
    pub(crate) fn add(
        &mut self,
        plan: &Plan,
        source: &Source,
        page: &LoadedPage,
        row: usize,
        complete: &mut Option<Vec<u8>>,
    ) -> Result<(), QueryError> {
        let (at, fresh) = if plan.group.is_empty() {
            (0, false)
        } else {
            self.key(plan, source, page, row)?;
            self.group_index(plan, complete)?
        };
        let Some(group) = self.groups.get_mut(at) else {
            return Ok(());
        };
        let added = if source.partial {
            let item = page.bytes(page.head(row).span);
            group.add_partial(plan, item, &self.parts, &mut self.found)
        } else {
            group.add(plan, page, row)
        };
        if added.is_err() && fresh {
            // Remove the new group: a token for the page with the completed group must not
            // contain it.
            self.groups.pop();
        }
        added
    }

    /// Writes the group key of an item to the scratch buffer.
    fn key(
        &mut self,
        plan: &Plan,
        source: &Source,
        page: &LoadedPage,
        row: usize,
    ) -> Result<(), QueryError> {
        self.scratch.clear();
        for named in &plan.group {
            let column = page.column(&source.constants, plan.metas.len(), row, named.what);
            match column {
                (kind, ..) if kind >= Kind::Array => {
                    let error = QueryError::new(ErrorCode::GroupKeyType);
                    return Err(match named.what {
                        Column::Path(path) => error.at(page.value(row, path).span.offset as usize),
                        Column::Meta(_) => error,
                    });
                }
                (_, _, Some(number)) => {
                    self.scratch
                        .extend_from_slice(number.to_string().as_bytes());
                }
                (_, Literal::Raw(bytes), _) => json::canonical_raw(bytes, &mut self.scratch),
                (kind, Literal::Json(literal), _) => {
                    json::canonical(kind, literal, &mut self.scratch);
                }
            }
            self.scratch.push(b'\n');
        }
        Ok(())
    }

    /// Returns the index of the group whose key is in the scratch buffer, and whether it is
    /// a new current group.
    fn group_index(
        &mut self,
        plan: &Plan,
        complete: &mut Option<Vec<u8>>,
    ) -> Result<(usize, bool), QueryError> {
        if self.in_order {
            let same = self.groups.first().is_some_and(|g| *g.key == *self.scratch);
            if !same {
                *complete = self.groups.pop().and_then(|group| group.write(plan));
                self.groups.push(Group::new(plan, &self.scratch));
            }
            return Ok((0, !same));
        }
        if let Some(at) = self.indexes.get(self.scratch.as_slice()) {
            return Ok((*at, false));
        }
        let at = self.groups.len();
        if at >= self.groups_max {
            let (max, found) = (self.groups_max as u64, at as u64 + 1);
            return Err(QueryError::limit(
                ErrorCode::GroupBudget,
                "groups",
                max,
                found,
            ));
        }
        self.indexes.insert(self.scratch.as_slice().into(), at);
        self.groups.push(Group::new(plan, &self.scratch));
        Ok((at, false))
    }

    /// Returns the next group after the end of the items.
    pub(crate) fn drain(&mut self, plan: &Plan) -> Option<Vec<u8>> {
        if self.indexes.is_empty() {
            // There is only the current group, and none after it.
            return self.groups.pop().and_then(|group| group.write(plan));
        }
        if !std::mem::replace(&mut self.sorted, true) {
            self.sort(plan);
        }
        loop {
            let group = self.groups.get(self.out)?;
            self.out += 1;
            let made = group.write(plan);
            if made.is_some() {
                return made;
            }
        }
    }

    /// Sorts the groups in the order of the results. The sort is stable.
    fn sort(&mut self, plan: &Plan) {
        let groups = std::mem::take(&mut self.groups);
        let keyed = groups
            .into_iter()
            .map(|group| (group.result_keys(plan), group));
        let mut keyed: Vec<(Vec<OwnedKey>, Group)> = keyed.collect();
        keyed.sort_by(|(a, _), (b, _)| {
            let pairs = plan.result_keys.iter().zip(a.iter().zip(b));
            let orders = pairs.map(|(key, (a, b))| {
                let order = a.key().compare(&b.key(), plan.strings);
                if key.descending {
                    order.reverse()
                } else {
                    order
                }
            });
            orders.fold(Ordering::Equal, Ordering::then)
        });
        self.groups = keyed.into_iter().map(|(_, group)| group).collect();
    }

    /// Writes the state for a token: the current group, if it is not returned yet. Queries
    /// whose groups are not in order have no token.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        out.push(u8::from(!self.groups.is_empty()));
        for group in &self.groups {
            put_bytes(out, &group.key);
            for state in &group.states {
                state.save(out);
            }
        }
    }

    /// Restores the state that `save` wrote.
    pub(crate) fn load(&mut self, plan: &Plan, from: &mut Reader<'_>) -> Result<(), Short> {
        self.groups.clear();
        if from.u8()? == 0 {
            return Ok(());
        }
        let mut group = Group::new(plan, from.bytes()?);
        for (state, named) in group.states.iter_mut().zip(&plan.aggregates) {
            *state = AggregateState::load(named.what.function, from, plan.strings)?;
        }
        self.groups.push(group);
        Ok(())
    }
}

impl Group {
    fn new(plan: &Plan, key: &[u8]) -> Self {
        let aggregates = plan.aggregates.iter();
        Self {
            key: key.into(),
            states: aggregates
                .map(|n| AggregateState::new(n.what.function))
                .collect(),
        }
    }

    fn add(&mut self, plan: &Plan, page: &LoadedPage, row: usize) -> Result<(), QueryError> {
        let value = |what: Aggregate| what.path.map(|path| page.value(row, path));
        let input = |value: Option<Value>| Input {
            kind: value.map_or(Kind::Null, |value| value.tag),
            literal: value.map_or(&[], |value| page.bytes(value.span)),
            count: 1,
        };
        let refused = self.add_all(plan, |named| input(value(named)));
        refused.map_or(Ok(()), |what| {
            let offset = value(what).map_or(0, |value| value.span.offset as usize);
            Err(QueryError::new(ErrorCode::NumberRange).at(offset))
        })
    }

    /// Adds a value to each aggregate. If an aggregate cannot accept its value, adds nothing
    /// and returns the first such aggregate.
    fn add_all<'a>(
        &mut self,
        plan: &Plan,
        input: impl Fn(Aggregate) -> Input<'a>,
    ) -> Option<Aggregate> {
        let many = self.states.len() > 1;
        let mut states = self.states.iter().zip(&plan.aggregates);
        let refused = states.find(|(state, named)| many && !state.accepts(&input(named.what)));
        if let Some((_, named)) = refused {
            return Some(named.what);
        }
        for (state, named) in self.states.iter_mut().zip(&plan.aggregates) {
            let what = named.what;
            if !state.add(what.function, &input(what), plan.strings) {
                return Some(what);
            }
        }
        None
    }

    /// Adds an item of the form `{"count":..,"sum":..,"min":..,"max":..}`.
    fn add_partial(
        &mut self,
        plan: &Plan,
        item: &[u8],
        parts: &PathSet,
        found: &mut Vec<Value>,
    ) -> Result<(), QueryError> {
        let bad = QueryError::new(ErrorCode::NotJson);
        weir_scan::find(item, parts, found).map_err(|error| bad.at(error.offset))?;
        let part = |at: usize| {
            let Some(value) = found.get(at) else {
                unreachable!("each path has an entry")
            };
            *value
        };
        let count = part(0).span.of(item);
        let count = std::str::from_utf8(count).ok().and_then(|n| n.parse().ok());
        if part(0).tag != Tag::Undefined && count.is_none() {
            let what = "the count of a partial aggregate is not a whole number";
            return Err(QueryError::new(ErrorCode::NotJson).because(what));
        }
        if count == Some(0) {
            return Ok(());
        }
        let input = |what: Aggregate| {
            let value = match what.function {
                Function::Count => part(0),
                Function::Sum | Function::Avg => part(1),
                Function::Min => part(2),
                Function::Max => part(3),
            };
            // Values were counted, but they have no result: one of them had another type.
            let kind = match (value.tag, count) {
                (Kind::Undefined, Some(1..)) => Kind::Object,
                (kind, _) => kind,
            };
            Input {
                kind,
                literal: value.span.of(item),
                count: count.unwrap_or(1),
            }
        };
        match self.add_all(plan, input) {
            None => Ok(()),
            Some(_) => Err(QueryError::new(ErrorCode::NumberRange)),
        }
    }

    /// Returns the keys by which the results are sorted.
    fn result_keys(&self, plan: &Plan) -> Vec<OwnedKey> {
        let keys = plan.result_keys.iter().map(|key| {
            let mut written = Vec::new();
            match key.position.checked_sub(plan.group.len()) {
                None => {
                    // Only the group of a forged token can lack a key.
                    let of_group = self.key.split(|byte| *byte == b'\n').nth(key.position);
                    written.extend_from_slice(of_group.unwrap_or_default());
                }
                Some(at) => {
                    if let Some((state, named)) = self.states.get(at).zip(plan.aggregates.get(at)) {
                        // An undefined result writes nothing.
                        state.write(named.what.function, &mut written);
                    }
                }
            }
            let literal = Literal::Json(&written);
            OwnedKey::of(&Key {
                reduced: ReducedKey::of(json::kind_of(&written), literal, plan.strings),
                literal,
            })
        });
        keys.collect()
    }

    fn write(&self, plan: &Plan) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut states = self.states.iter().zip(&plan.aggregates);
        if plan.select == (Select::Constructed { bare: true }) {
            let (state, named) = states.next()?;
            return state.write(named.what.function, &mut out).then_some(out);
        }
        let begin = |out: &mut Vec<u8>, name: &[u8]| {
            out.push(if out.is_empty() { b'{' } else { b',' });
            out.extend_from_slice(name);
            out.push(b':');
        };
        let keys = self.key.split(|byte| *byte == b'\n');
        for (named, key) in plan.group.iter().zip(keys) {
            if !key.is_empty() {
                begin(&mut out, &named.name);
                out.extend_from_slice(key);
            }
        }
        for (state, named) in states {
            let before = out.len();
            begin(&mut out, &named.name);
            if !state.write(named.what.function, &mut out) {
                out.truncate(before);
            }
        }
        if out.is_empty() {
            out.push(b'{');
        }
        out.push(b'}');
        Some(out)
    }
}
