//! Regular expressions of RFC 9485 (I-Regexp), matched in linear time.
//!
//! An expression is compiled to a small program. All threads of the program advance together over
//! the characters, so the time is at most characters times program size. `^` and `$` outside of
//! brackets mean the start and the end of the string, as in the compliance suite of RFC 9535.
//!
//! Invariants:
//! - A program has at most `PROGRAM_MAX` steps, which also bounds the expansion of `{n,m}`.
//! - Recursion stops at `NESTING_MAX`.
//!
//! Matching reads each character once, from start to end.

mod parse;

use super::{PatternFault, unicode};
use parse::Parser;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Limit on the steps of a program.
const PROGRAM_MAX: usize = 4096;

/// Number of tried positions after which work is charged.
const DUE_MAX: usize = 4096;

/// Work for each step of a program that is compiled.
const STEP_WORK: usize = 8;

/// Number of ranges of characters, or of marks of program positions, that are charged as one
/// position.
const WORK_SHARE: usize = 8;

/// A compiled expression.
#[derive(Clone, Debug)]
pub(super) struct Regex {
    program: Vec<Step>,
    /// For a program of at most 64 steps: the positions reached from each position, so that
    /// matching allocates no memory.
    small: Option<Vec<[ReachedPositions; 4]>>,
}

/// The positions that are reached from a position without reading a character. One set for each
/// combination: at the start of the text or not (bit 0), at its end or not (bit 1).
#[derive(Clone, Copy, Debug, Default)]
struct ReachedPositions {
    /// Positions that wait for a character.
    places: u64,
    matched: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// Continues if the next character is in this class.
    One(Arc<Class>),
    /// Continues at both positions.
    Both(usize, usize),
    Jump(usize),
    Start,
    End,
    Match,
}

/// A set of characters.
#[derive(Clone, Debug, Default)]
struct Class {
    negated: bool,
    ranges: Vec<(u32, u32)>,
    /// Bits of categories: each entry is one set of alternatives, and whether it is negated.
    categories: Vec<(u32, bool)>,
}

impl Class {
    fn one(c: u32) -> Self {
        Self {
            ranges: vec![(c, c)],
            ..Self::default()
        }
    }

    fn work(&self) -> usize {
        1 + self.ranges.len() / WORK_SHARE + self.categories.len()
    }

    fn has(&self, c: u32) -> bool {
        let in_range = |range: &(u32, u32)| (range.0..=range.1).contains(&c);
        let in_category =
            |(bits, negated): &(u32, bool)| (bits >> unicode::category(c) & 1 == 1) != *negated;
        let found = self.ranges.iter().any(in_range) || self.categories.iter().any(in_category);
        found != self.negated
    }
}

#[derive(Clone, Debug)]
enum Node {
    One(Arc<Class>),
    Start,
    End,
    All(Vec<Self>),
    Any(Vec<Self>),
    Repeat(Box<Self>, u32, Option<u32>),
}

impl Node {
    /// Whether the program of the node is empty, so that it matches the empty text.
    fn has_no_steps(&self) -> bool {
        match self {
            Self::All(parts) => parts.is_empty(),
            Self::Repeat(part, least, most) => {
                *most == Some(0) || (*most == Some(*least) && part.has_no_steps())
            }
            Self::One(_) | Self::Start | Self::End | Self::Any(_) => false,
        }
    }
}

impl Regex {
    /// Parses an expression. `None` if the text is not an expression of RFC 9485, or is too large.
    fn parse(text: &str) -> Option<Self> {
        Self::parse_counted(text, &mut 0)
    }

    /// As [`parse`](Self::parse). Adds the work of the compilation to `work`, also if the program
    /// is too large.
    pub(super) fn parse_counted(text: &str, work: &mut usize) -> Option<Self> {
        let node = Parser::new(text).all()?;
        let mut program = Vec::new();
        let compiled = compile(&node, &mut program).and_then(|()| push(&mut program, Step::Match));
        *work += program.len() * STEP_WORK;
        compiled?;
        let small = (program.len() <= 64).then(|| {
            let mut positions = ActivePositions::new(program.len());
            let places = 0..program.len();
            places
                .map(|place| reached(&program, place, &mut positions, work))
                .collect()
        });
        Some(Self { program, small })
    }

    /// Explains why the text matches nothing; `None` if it is an expression within the limits.
    pub(super) fn fault(text: &str) -> Option<PatternFault> {
        if Self::parse(text).is_some() {
            return None;
        }
        let mut parser = Parser::new(text);
        let is_parsed = parser.all().is_some();
        Some(match parser.exceeded() {
            Some(limit) => PatternFault::TooLarge(limit),
            None if is_parsed => {
                PatternFault::TooLarge(format!("it needs more than {PROGRAM_MAX} steps"))
            }
            None => PatternFault::Invalid(parser.fault()),
        })
    }

    /// Whether the whole text, or some part of it, matches. From time to time, `charge` is called
    /// with the number of tried positions; the result is `false` if it breaks.
    pub(super) fn matches(
        &self,
        text: impl Iterator<Item = u32>,
        whole: bool,
        charge: &mut Charge<'_>,
    ) -> bool {
        let mut meter = WorkMeter { charge, due: 0 };
        let found = match &self.small {
            Some(reached) => self.matches_small(reached, text, whole, &mut meter),
            None => self.matches_large(text, whole, &mut meter),
        };
        meter.charge_due().is_continue() && found
    }

    /// As [`matches_large`](Self::matches_large), with the active positions in one word.
    fn matches_small(
        &self,
        reached: &[[ReachedPositions; 4]],
        text: impl Iterator<Item = u32>,
        whole: bool,
        meter: &mut WorkMeter<'_, '_>,
    ) -> bool {
        let at = |place: usize, start: bool, end: bool| {
            let flags = usize::from(start) | usize::from(end) << 1;
            let found = reached.get(place).and_then(|all| all.get(flags));
            found.copied().unwrap_or_default()
        };
        let mut text = text.peekable();
        let mut now = ReachedPositions::default();
        let mut start = true;
        loop {
            let end = text.peek().is_none();
            if start || !whole {
                let first = at(0, start, end);
                now.places |= first.places;
                now.matched |= first.matched;
            }
            if now.matched && (!whole || end) {
                return true;
            }
            let Some(c) = text.next() else {
                return false;
            };
            start = false;
            let end = text.peek().is_none();
            let mut next = ReachedPositions::default();
            if meter.add(1).is_break() {
                return false;
            }
            while now.places != 0 {
                let place = now.places.trailing_zeros() as usize;
                now.places &= now.places - 1;
                let Some(Step::One(class)) = self.program.get(place) else {
                    continue;
                };
                meter.due += class.work();
                if class.has(c) {
                    let then = at(place + 1, false, end);
                    next.places |= then.places;
                    next.matched |= then.matched;
                }
            }
            if whole && next.places == 0 && !next.matched {
                return false;
            }
            now = next;
        }
    }

    /// Matches with a list of the active positions.
    fn matches_large(
        &self,
        text: impl Iterator<Item = u32>,
        whole: bool,
        meter: &mut WorkMeter<'_, '_>,
    ) -> bool {
        let mut now = ActivePositions::new(self.program.len());
        let mut next = ActivePositions::new(self.program.len());
        let mut text = text.peekable();
        let mut start = true;
        loop {
            let end = text.peek().is_none();
            if start || !whole {
                now.add(&self.program, 0, start, end);
            }
            if now.matched && (!whole || end) {
                return true;
            }
            let Some(c) = text.next() else {
                return false;
            };
            start = false;
            let end = text.peek().is_none();
            let tried = now.tried + self.program.len() / WORK_SHARE;
            if meter.add(tried).is_break() {
                return false;
            }
            for place in &now.list {
                let Some(Step::One(class)) = self.program.get(*place) else {
                    continue;
                };
                meter.due += class.work();
                if class.has(c) {
                    next.add(&self.program, place + 1, false, end);
                }
            }
            if whole && next.list.is_empty() && !next.matched {
                return false;
            }
            now.clear();
            std::mem::swap(&mut now, &mut next);
        }
    }
}

/// Charges work to the budget of the caller.
pub(super) type Charge<'s> = dyn FnMut(usize) -> ControlFlow<()> + 's;

/// Collects work, and charges it in larger amounts.
struct WorkMeter<'b, 's> {
    charge: &'b mut Charge<'s>,
    due: usize,
}

impl WorkMeter<'_, '_> {
    #[inline]
    fn add(&mut self, work: usize) -> ControlFlow<()> {
        self.due += work;
        if self.due < DUE_MAX {
            return ControlFlow::Continue(());
        }
        self.charge_due()
    }

    fn charge_due(&mut self) -> ControlFlow<()> {
        (self.charge)(std::mem::take(&mut self.due))
    }
}

/// The active positions of the program, each once.
struct ActivePositions {
    /// Number of positions that were tried.
    tried: usize,
    list: Vec<usize>,
    here: Vec<bool>,
    stack: Vec<usize>,
    matched: bool,
}

impl ActivePositions {
    fn new(size: usize) -> Self {
        Self {
            tried: 0,
            list: Vec::new(),
            here: vec![false; size],
            stack: Vec::new(),
            matched: false,
        }
    }

    fn clear(&mut self) {
        self.tried = 0;
        self.list.clear();
        self.here.fill(false);
        self.matched = false;
    }

    /// Adds `place`, and all positions that are reached from it without reading a character.
    fn add(&mut self, program: &[Step], place: usize, start: bool, end: bool) {
        self.stack.push(place);
        while let Some(place) = self.stack.pop() {
            self.tried += 1;
            match self.here.get_mut(place) {
                Some(here) if !*here => *here = true,
                _ => continue,
            }
            match program.get(place) {
                Some(Step::One(_)) => self.list.push(place),
                Some(Step::Both(one, other)) => self.stack.extend([*other, *one]),
                Some(Step::Jump(to)) => self.stack.push(*to),
                Some(Step::Start) if start => self.stack.push(place + 1),
                Some(Step::End) if end => self.stack.push(place + 1),
                Some(Step::Match) => self.matched = true,
                Some(Step::Start | Step::End) | None => {}
            }
        }
    }
}

/// The positions that are reached from `place` in a program of at most 64 steps. Adds the number of
/// positions that were tried to `work`.
fn reached(
    program: &[Step],
    place: usize,
    positions: &mut ActivePositions,
    work: &mut usize,
) -> [ReachedPositions; 4] {
    [0, 1, 2, 3].map(|flags: u32| {
        positions.clear();
        positions.add(program, place, flags & 1 == 1, flags & 2 == 2);
        *work += positions.tried;
        ReachedPositions {
            places: positions
                .list
                .iter()
                .fold(0, |places, place| places | 1 << place),
            matched: positions.matched,
        }
    })
}

fn push(program: &mut Vec<Step>, step: Step) -> Option<usize> {
    if program.len() == PROGRAM_MAX {
        return None;
    }
    program.push(step);
    Some(program.len() - 1)
}

fn compile(node: &Node, program: &mut Vec<Step>) -> Option<()> {
    match node {
        Node::One(class) => push(program, Step::One(Arc::clone(class))).map(|_| ()),
        Node::Start => push(program, Step::Start).map(|_| ()),
        Node::End => push(program, Step::End).map(|_| ()),
        Node::All(parts) => parts.iter().try_for_each(|part| compile(part, program)),
        Node::Any(parts) => {
            let (last, others) = parts.split_last()?;
            let mut jumps = Vec::new();
            for part in others {
                let both = push(program, Step::Jump(0))?;
                compile(part, program)?;
                jumps.push(push(program, Step::Jump(0))?);
                let after = program.len();
                set(program, both, Step::Both(both + 1, after));
            }
            compile(last, program)?;
            let after = program.len();
            for jump in jumps {
                set(program, jump, Step::Jump(after));
            }
            Some(())
        }
        Node::Repeat(part, least, most) => repeat(part, *least, *most, program),
    }
}

fn set(program: &mut [Step], place: usize, step: Step) {
    if let Some(old) = program.get_mut(place) {
        *old = step;
    }
}

fn repeat(part: &Node, least: u32, most: Option<u32>, program: &mut Vec<Step>) -> Option<()> {
    for _ in 0..least {
        let before = program.len();
        compile(part, program)?;
        if program.len() == before {
            // A repetition of the empty expression is empty.
            break;
        }
    }
    let Some(most) = most else {
        let both = push(program, Step::Jump(0))?;
        compile(part, program)?;
        push(program, Step::Jump(both))?;
        let after = program.len();
        set(program, both, Step::Both(both + 1, after));
        return Some(());
    };
    let mut exits = Vec::new();
    for _ in least..most {
        exits.push(push(program, Step::Jump(0))?);
        compile(part, program)?;
    }
    let after = program.len();
    for exit in exits {
        set(program, exit, Step::Both(exit + 1, after));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::{Node, Parser, Regex, WorkMeter};
    use std::ops::ControlFlow;

    fn check(pattern: &str, whole: &[&str], part: &[&str], neither: &[&str]) {
        let regex = Regex::parse(pattern);
        assert!(regex.is_some(), "{pattern}");
        let Some(regex) = regex else { return };
        let matches = |text: &str, whole| {
            let chars = || text.chars().map(u32::from);
            let found = regex.matches(chars(), whole, &mut |_| ControlFlow::Continue(()));
            let mut meter = WorkMeter {
                charge: &mut |_| ControlFlow::Continue(()),
                due: 0,
            };
            assert_eq!(
                found,
                regex.matches_large(chars(), whole, &mut meter),
                "{pattern} {text:?}"
            );
            found
        };
        for text in whole {
            assert!(
                matches(text, true) && matches(text, false),
                "{pattern} {text:?}"
            );
        }
        for text in part {
            assert!(
                !matches(text, true) && matches(text, false),
                "{pattern} {text:?}"
            );
        }
        for text in neither {
            assert!(
                !matches(text, true) && !matches(text, false),
                "{pattern} {text:?}"
            );
        }
    }

    #[test]
    fn expressions_match() {
        check("", &[""], &["a"], &[]);
        check("abc", &["abc"], &["xabcx"], &["ab", ""]);
        check("a|bc|", &["a", "bc", ""], &["b"], &[]);
        check("a*b+c?", &["b", "aabbc"], &["cb", "bd"], &["a", "c", ""]);
        check(
            "(ab){2,3}",
            &["abab", "ababab"],
            &["abababab", "xabab"],
            &["ab"],
        );
        check("a{2}", &["aa"], &["aaa"], &["a"]);
        check("a{2,}", &["aa", "aaaa"], &["baa"], &["a"]);
        check("a{0}", &[""], &["a"], &[]);
        check("[a-c-]", &["a", "b", "-"], &["xb"], &["d"]);
        check("[^a-c]", &["d", "\n"], &["ad"], &["a", ""]);
        check("[-x\\]\\p{Nd}]+", &["-x]7"], &["a7"], &["a"]);
        check("a.c", &["abc", "a\u{2028}c"], &[], &["a\nc", "a\rc"]);
        check("\\p{Lu}\\P{L}", &["Ж1"], &["aЖ1"], &["Жж", "1"]);
        check("\\.\\$\\n", &[".$\n"], &[], &["a$\n"]);
        check("^ab$", &["ab"], &[], &["xab", "abx"]);
        check("(^a|b$)", &["a", "b"], &["ax", "xb"], &["xa", "bx"]);
        check("(a*)*b", &["b", "aab"], &["xb"], &["a"]);
        check("é😀", &["é😀"], &["xé😀"], &["e"]);
        // More than 64 steps.
        let long = "ab".repeat(40);
        check("(ab){40}", &[&long], &[&format!("x{long}")], &["ab"]);
    }

    #[test]
    fn invalid_expressions_are_rejected() {
        for pattern in [
            "(",
            ")",
            "a**",
            "*",
            "[",
            "[]",
            "[b-a]",
            "[a-\\p{L}]",
            "a{",
            "a{2",
            "a{3,2}",
            "a{1001}",
            "\\d",
            "\\",
            "\\p{X}",
            "\\p{Lx}",
            "\\p{Cs}",
            "\\pL",
            "{",
            "}",
            "]",
            "?a",
            "(?:a)",
            "[[a]]",
            "(a{100}){100}",
        ] {
            assert!(Regex::parse(pattern).is_none(), "{pattern}");
        }
        let deep = "(".repeat(100) + &")".repeat(100);
        assert!(Regex::parse(&deep).is_none());
    }

    /// Otherwise a repetition of many pieces without steps would take long for few steps.
    #[test]
    fn pieces_without_steps_are_omitted() {
        let node = Parser::new("(()(a{0})((){7})(b)){3}").all();
        let Some(Node::Repeat(part, 3, Some(3))) = node else {
            return assert_eq!(format!("{node:?}"), "a repetition");
        };
        assert!(matches!(*part, Node::One(_)), "{part:?}");
        check("(()(a{0})((){7})(b)){3}", &["bbb"], &["bbbb"], &["bb"]);
        check("(a{0})*b(){2,}c|(){0,9}", &["bc", ""], &["b"], &[]);
    }

    #[test]
    fn matching_takes_linear_time() {
        let Some(regex) = Regex::parse("(a?){40}a{40}(x+x+)+y") else {
            return assert!(Regex::parse("a").is_none());
        };
        let nothing = "(".repeat(30) + &"){1000}".repeat(30);
        assert!(Regex::parse(&nothing).is_some());
        let text = "a".repeat(40) + &"x".repeat(if cfg!(miri) { 8 } else { 2000 });
        let charge = &mut |_| ControlFlow::Continue(());
        assert!(!regex.matches(text.chars().map(u32::from), false, charge));
    }
}
