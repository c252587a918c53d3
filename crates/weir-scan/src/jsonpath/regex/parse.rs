//! Parses the text of a regular expression by the grammar of RFC 9485.
//!
//! Invariant: recursion stops at `NESTING_MAX`.

use super::super::unicode;
use super::{Class, Node};
use std::sync::Arc;

/// Maximum nesting of brackets.
const NESTING_MAX: u32 = 64;

/// Largest number in `{n,m}`.
const REPEAT_MAX: u32 = 1000;

/// A limit that stopped the parser.
#[derive(Clone, Copy, Debug)]
enum Limit {
    Nesting,
    Repeat,
}

/// A position in the text of an expression.
pub(super) struct Parser {
    rest: Vec<char>,
    at: usize,
    depth: u32,
    limit: Option<Limit>,
}

impl Parser {
    pub(super) fn new(text: &str) -> Self {
        Self {
            rest: text.chars().collect(),
            at: 0,
            depth: 0,
            limit: None,
        }
    }

    /// Parses the whole text; `None` if it is not an expression.
    pub(super) fn all(&mut self) -> Option<Node> {
        let node = self.any()?;
        self.peek().is_none().then_some(node)
    }

    /// The limit that stopped the parser, as a text.
    pub(super) fn exceeded(&self) -> Option<String> {
        Some(match self.limit? {
            Limit::Nesting => format!("it has more than {NESTING_MAX} nested brackets"),
            Limit::Repeat => format!("a number in `{{n,m}}` is larger than {REPEAT_MAX}"),
        })
    }

    /// Explains why the text is not an expression, at the position where the parser stopped.
    pub(super) fn fault(&self) -> String {
        let before = |n: usize| {
            self.at
                .checked_sub(n)
                .and_then(|at| self.rest.get(at))
                .copied()
        };
        if let (Some('\\'), Some(c)) = (before(2), before(1)) {
            let instead = match c {
                'd' => "; write `[0-9]`",
                'D' => "; write `[^0-9]`",
                'w' => "; write `[A-Za-z0-9_]`",
                'W' => "; write `[^A-Za-z0-9_]`",
                's' => "; write `[ \\t\\r\\n]`",
                'S' => "; write `[^ \\t\\r\\n]`",
                _ => "",
            };
            return format!("`\\{c}` is not supported{instead}");
        }
        if self.rest.get(self.at) == Some(&'?') || before(1) == Some('?') {
            let after_bracket = [before(1), before(2)].contains(&Some('('));
            return if after_bracket {
                "`(?` is not supported: no options, no look around; write `[aA]` for both cases"
                    .to_owned()
            } else {
                "there is nothing before `?` to repeat; write `\\?` for the character".to_owned()
            };
        }
        let Some(c) = before(1).filter(|_| self.at < self.rest.len()) else {
            return "a bracket is not closed; write `\\[`, `\\(` or `\\{` for the character"
                .to_owned();
        };
        format!("`{c}` is not allowed at character {}", self.at)
    }

    fn peek(&self) -> Option<char> {
        self.rest.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        self.at += usize::from(found);
        found
    }

    fn any(&mut self) -> Option<Node> {
        let mut branches = vec![self.branch()?];
        while self.eat('|') {
            branches.push(self.branch()?);
        }
        if branches.len() == 1 {
            return branches.pop();
        }
        Some(Node::Any(branches))
    }

    /// Parses a sequence. Omits pieces without steps, because they would cost time, but no step, in
    /// each repetition of the sequence.
    fn branch(&mut self) -> Option<Node> {
        let mut pieces = Vec::new();
        while let Some(c) = self.peek()
            && c != '|'
            && c != ')'
        {
            let atom = self.atom()?;
            let piece = self.quantified(atom)?;
            if !piece.has_no_steps() {
                pieces.push(piece);
            }
        }
        if pieces.len() == 1 {
            return pieces.pop();
        }
        Some(Node::All(pieces))
    }

    fn atom(&mut self) -> Option<Node> {
        Some(match self.next()? {
            '(' => {
                if self.depth == NESTING_MAX {
                    self.limit = Some(Limit::Nesting);
                    return None;
                }
                self.depth += 1;
                let inner = self.any()?;
                self.depth -= 1;
                if !self.eat(')') {
                    return None;
                }
                inner
            }
            '.' => Node::One(Arc::new(Class {
                negated: true,
                ranges: vec![(10, 10), (13, 13)],
                categories: Vec::new(),
            })),
            '[' => Node::One(Arc::new(self.class()?)),
            '\\' => {
                let mut class = Class::default();
                match self.escape()? {
                    Escape::One(c) => class = Class::one(c),
                    Escape::Category(bits, negated) => class.categories.push((bits, negated)),
                }
                Node::One(Arc::new(class))
            }
            '^' => Node::Start,
            '$' => Node::End,
            ')' | '*' | '+' | '?' | ']' | '{' | '}' | '|' => return None,
            c => Node::One(Arc::new(Class::one(u32::from(c)))),
        })
    }

    fn quantified(&mut self, atom: Node) -> Option<Node> {
        let (least, most) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                self.at += 1;
                let least = self.number()?;
                let mut most = Some(least);
                if self.eat(',') {
                    most = match self.peek()? {
                        '}' => None,
                        _ => Some(self.number()?),
                    };
                }
                if self.peek() != Some('}') || most.is_some_and(|most| most < least) {
                    return None;
                }
                (least, most)
            }
            _ => return Some(atom),
        };
        self.at += 1;
        Some(Node::Repeat(Box::new(atom), least, most))
    }

    fn number(&mut self) -> Option<u32> {
        let mut number = None;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            self.at += 1;
            let value = number.unwrap_or(0) * 10 + digit;
            if value > REPEAT_MAX {
                self.limit = Some(Limit::Repeat);
                return None;
            }
            number = Some(value);
        }
        number
    }

    /// Parses a class after its `[`, the closing bracket included.
    fn class(&mut self) -> Option<Class> {
        let mut class = Class {
            negated: self.eat('^'),
            ..Class::default()
        };
        let minus = u32::from('-');
        if self.eat('-') {
            class.ranges.push((minus, minus));
        } else if self.peek() == Some(']') {
            return None;
        }
        loop {
            let from = match self.next()? {
                ']' => return Some(class),
                '-' => {
                    // A minus is a literal only as the last character.
                    class.ranges.push((minus, minus));
                    return self.eat(']').then_some(class);
                }
                '[' => return None,
                '\\' => match self.escape()? {
                    Escape::One(c) => c,
                    Escape::Category(bits, negated) => {
                        class.categories.push((bits, negated));
                        continue;
                    }
                },
                c => u32::from(c),
            };
            let mut to = from;
            if self.peek() == Some('-') && self.rest.get(self.at + 1) != Some(&']') {
                self.at += 1;
                to = match self.next()? {
                    '[' | ']' | '-' => return None,
                    '\\' => match self.escape()? {
                        Escape::One(c) => c,
                        Escape::Category(..) => return None,
                    },
                    c => u32::from(c),
                };
            }
            if to < from {
                return None;
            }
            class.ranges.push((from, to));
        }
    }

    /// Parses an escape after its backslash.
    fn escape(&mut self) -> Option<Escape> {
        Some(match self.next()? {
            'n' => Escape::One(10),
            'r' => Escape::One(13),
            't' => Escape::One(9),
            kind @ ('p' | 'P') => {
                if !self.eat('{') {
                    return None;
                }
                let mut name = String::new();
                while name.len() < 3 && self.peek() != Some('}') {
                    name.push(self.next()?);
                }
                if !self.eat('}') {
                    return None;
                }
                Escape::Category(category(&name)?, kind == 'P')
            }
            c @ ('(' | ')' | '*' | '+' | '-' | '.' | '?' | '[' | '\\' | ']' | '^' | '{' | '|'
            | '}') => Escape::One(u32::from(c)),
            // RFC 9485 lacks this escape, but a literal `$` cannot be written without it, because
            // `$` is the end of the string.
            '$' => Escape::One(u32::from('$')),
            _ => return None,
        })
    }
}

enum Escape {
    One(u32),
    Category(u32, bool),
}

/// Bits of the categories that `name` selects: one category, or all with this first letter.
fn category(name: &str) -> Option<u32> {
    // Surrogates are not characters.
    let known = unicode::NAMES
        .iter()
        .enumerate()
        .filter(|(_, known)| **known != "Cs");
    let bits = known
        .filter(|(_, known)| **known == name || (name.len() == 1 && known.starts_with(name)))
        .fold(0, |bits, (number, _)| bits | 1 << number);
    (bits != 0).then_some(bits)
}
