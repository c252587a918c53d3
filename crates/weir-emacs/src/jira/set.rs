//! Issues in the order of a list, and the lines of a buffer that shows them.

use std::collections::HashSet;

/// Issues by id, in order, each with its depth in a tree.
///
/// All ids are in one text: Emacs drops a set during a garbage collection, and dropping ten
/// thousand texts would make it longer.
#[derive(Debug, Default)]
pub(super) struct IssueSet {
    ids: String,
    /// The end in `ids` and the depth of each issue.
    ends: Vec<(usize, usize)>,
    /// The states of the lines that a buffer has for the first issues; `None`: no line.
    shown: Vec<Option<u64>>,
}

/// A line of a buffer. Equal lines have equal text and faces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Line<'s> {
    pub(super) id: &'s str,
    pub(super) depth: usize,
    state: u64,
}

/// A step from the lines of a buffer to those that it should have.
#[derive(Debug)]
pub(super) enum Step<'s> {
    Keep(usize),
    Delete(usize),
    Insert(Vec<Line<'s>>),
}

impl IssueSet {
    /// Adds an issue at the end.
    pub(super) fn push(&mut self, id: &str, depth: usize) {
        self.ids.push_str(id);
        self.ends.push((self.ids.len(), depth));
    }

    /// Number of issues.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Records that a buffer has lines for the issues after the first `from`, with these states.
    pub(super) fn show(&mut self, from: usize, states: &[Option<u64>]) {
        if from <= self.shown.len() {
            self.shown.truncate(from);
            self.shown.extend_from_slice(states);
        }
    }

    /// The lines of the buffer.
    fn lines(&self) -> Vec<Line<'_>> {
        let all = self.iter().zip(&self.shown);
        all.filter_map(|((id, depth), state)| {
            let state = (*state)?;
            Some(Line { id, depth, state })
        })
        .collect()
    }

    /// The steps from the lines of this set to those of another one. A line that moves up is
    /// inserted at its new place and deleted at its old one; the lines between them stay.
    pub(super) fn steps_to<'s>(&self, other: &'s Self) -> Vec<Step<'s>> {
        let (old, new) = (self.lines(), other.lines());
        let wanted: HashSet<&Line<'_>> = new.iter().collect();
        let mut inserted: HashSet<&str> = HashSet::new();
        let mut steps = Vec::new();
        let (mut at, mut next) = (0, 0);
        loop {
            match (old.get(at), new.get(next)) {
                (Some(line), Some(target)) if line == target => {
                    keep(&mut steps);
                    at += 1;
                    next += 1;
                }
                (Some(line), Some(target))
                    if wanted.contains(line) && !inserted.contains(line.id) =>
                {
                    insert(&mut steps, *target);
                    inserted.insert(target.id);
                    next += 1;
                }
                (Some(_), _) => {
                    delete(&mut steps);
                    at += 1;
                }
                (None, Some(target)) => {
                    insert(&mut steps, *target);
                    next += 1;
                }
                (None, None) => return steps,
            }
        }
    }

    /// The ids and depths, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        let mut start = 0;
        self.ends.iter().map(move |(end, depth)| {
            let id = self.ids.get(start..*end).unwrap_or_default();
            start = *end;
            (id, *depth)
        })
    }
}

impl<'i> FromIterator<&'i str> for IssueSet {
    fn from_iter<I: IntoIterator<Item = &'i str>>(ids: I) -> Self {
        let mut set = Self::default();
        for id in ids {
            set.push(id, 0);
        }
        set
    }
}

impl<'s> Step<'s> {
    /// The lines that the step inserts.
    pub(super) fn lines(&self) -> &[Line<'s>] {
        match self {
            Self::Insert(lines) => lines,
            Self::Keep(_) | Self::Delete(_) => &[],
        }
    }
}

fn keep(steps: &mut Vec<Step<'_>>) {
    match steps.last_mut() {
        Some(Step::Keep(count)) => *count += 1,
        _ => steps.push(Step::Keep(1)),
    }
}

fn delete(steps: &mut Vec<Step<'_>>) {
    match steps.last_mut() {
        Some(Step::Delete(count)) => *count += 1,
        _ => steps.push(Step::Delete(1)),
    }
}

fn insert<'s>(steps: &mut Vec<Step<'s>>, line: Line<'s>) {
    match steps.last_mut() {
        Some(Step::Insert(lines)) => lines.push(line),
        _ => steps.push(Step::Insert(vec![line])),
    }
}
