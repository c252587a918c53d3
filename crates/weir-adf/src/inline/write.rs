//! Writes inline nodes as markup that reads back as equal nodes.
//!
//! Each text is written, read back and compared, in up to three attempts. The first attempt uses as
//! few guards as possible. The second puts a guard at every character that could be read as markup.
//! The third stores every node that did not read back in the table, and refers to it.
//!
//! Invariant: markup is returned only after it was read back as equal nodes.

use super::{
    ATTACHMENT, GUARD, REFERENCE_CLOSE, REFERENCE_OPEN, STATUS, USER, in_short_name, is_space,
    may_follow, may_precede, read,
};
use crate::node::{attr_str, is_plain_text, kind, marks, text};
use crate::opaque::{OpaqueKind, Table};
use crate::shown::{shown_attrs, shown_mark, shows};
use serde_json::Value;

/// Writes the children of a text. `breaks` is true if a hard break can be written. If no markup can
/// express the children, returns `None` and leaves the table unchanged.
pub(crate) fn write(nodes: &[&Value], breaks: bool, table: &mut Table) -> Option<String> {
    let saved = table.len();
    let all: Vec<usize> = (0..nodes.len()).collect();
    let mut stored = vec![false; nodes.len()];
    for (node, stored) in nodes.iter().zip(&mut stored) {
        *stored = !breaks && kind(node) == "hardBreak";
    }
    for guarded in [false, true] {
        if let Some(written) = attempt(nodes, &all, &stored, guarded, table) {
            return Some(written);
        }
        table.truncate(saved);
    }
    for at in &all {
        stored[*at] = stored[*at] || attempt(nodes, &[*at], &stored, true, table).is_none();
        table.truncate(saved);
    }
    let written = attempt(nodes, &all, &stored, true, table);
    if written.is_none() {
        table.truncate(saved);
    }
    written
}

/// Writes the nodes at `which`, and reads them back.
fn attempt(
    nodes: &[&Value],
    which: &[usize],
    stored: &[bool],
    guarded: bool,
    table: &mut Table,
) -> Option<String> {
    let item = |at: &usize| Item::of(nodes[*at], stored[*at]);
    let items: Vec<Item<'_>> = which.iter().map(item).collect();
    let written = Writer { guarded, table }.region(&items, 0, &mut String::new());
    let back = read(&written, table).ok()?;
    let same = back.len() == which.len()
        && which
            .iter()
            .zip(&back)
            .all(|(at, read)| shows(nodes[*at], read, table));
    same.then_some(written)
}

/// A mark in the order of nesting: links outside, code inside.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mark<'v> {
    Link(&'v str),
    Stored(&'v Value),
    /// A mark that is written as this character before and after the text.
    Sign(char),
    Sub,
    Sup,
    Code,
}

/// A node with its marks.
struct Item<'v> {
    node: &'v Value,
    marks: Vec<(Mark<'v>, &'v Value)>,
    stored: bool,
}

impl<'v> Item<'v> {
    fn of(node: &'v Value, stored: bool) -> Self {
        let stored = stored || (kind(node) == "text" && !is_plain_text(node));
        let mut own: Vec<_> = Vec::new();
        if kind(node) == "text" && !stored {
            own.extend(marks(node).iter().map(|mark| (Mark::of(mark), mark)));
        }
        own.sort_by_key(|(mark, _)| mark.rank());
        Self {
            node,
            marks: own,
            stored,
        }
    }
}

impl<'v> Mark<'v> {
    fn of(mark: &'v Value) -> Self {
        if shown_mark(mark).is_none() {
            return Self::Stored(mark);
        }
        match (kind(mark), attr_str(mark, "type")) {
            ("link", _) => Self::Link(attr_str(mark, "href").unwrap_or("")),
            ("strong", _) => Self::Sign('*'),
            ("em", _) => Self::Sign('/'),
            ("underline", _) => Self::Sign('_'),
            ("strike", _) => Self::Sign('+'),
            ("subsup", Some("sub")) => Self::Sub,
            ("subsup", _) => Self::Sup,
            _ => Self::Code,
        }
    }

    fn rank(self) -> u8 {
        match self {
            Self::Link(_) => 0,
            Self::Stored(_) => 1,
            Self::Sign('*') => 2,
            Self::Sign('/') => 3,
            Self::Sign('_') => 4,
            Self::Sign(_) => 5,
            Self::Sub | Self::Sup => 6,
            Self::Code => 7,
        }
    }
}

struct Writer<'t> {
    /// Whether every character that could be markup gets a guard.
    guarded: bool,
    table: &'t mut Table,
}

impl Writer<'_> {
    /// Writes items that share their first `level` marks. `open` has the characters of the markup
    /// around them.
    fn region(&mut self, items: &[Item<'_>], level: usize, open: &mut String) -> String {
        let mut out = String::new();
        // Whether the last markup needs a boundary after it.
        let mut ended = false;
        let mut rest = items;
        while let Some(first) = rest.first() {
            let (piece, bounded, used) = match first.marks.get(level) {
                None => (self.leaf(first), bounded(first), 1),
                Some((mark, value)) => {
                    let same = |item: &&Item<'_>| {
                        item.marks
                            .get(level)
                            .is_some_and(|(other, _)| other == mark)
                    };
                    let used = rest.iter().take_while(same).count();
                    let (piece, bounded) = self.marked(*mark, value, &rest[..used], level, open);
                    (piece, bounded, used)
                }
            };
            rest = &rest[used..];
            let Some(begin) = piece.chars().next() else {
                continue;
            };
            let before = out.chars().next_back();
            let begins = !bounded || before.is_none_or(may_precede);
            if (ended && !may_follow(begin)) || !begins {
                push_guard(&mut out);
            }
            let literal = first.marks.len() <= level && kind(first.node) == "text" && !first.stored;
            if self.guarded && literal {
                push_guarded(&mut out, &piece, rest.is_empty(), open);
            } else {
                out.push_str(&piece);
            }
            ended = bounded;
        }
        out
    }

    fn leaf(&mut self, item: &Item<'_>) -> String {
        let shown = if item.stored { None } else { leaf(item.node) };
        shown.unwrap_or_else(|| {
            let number = self.table.add(OpaqueKind::Inline, item.node);
            format!("{REFERENCE_OPEN}{number}{REFERENCE_CLOSE}")
        })
    }

    /// Writes items inside of a mark. Returns whether the markup needs boundaries.
    fn marked(
        &mut self,
        mark: Mark<'_>,
        value: &Value,
        items: &[Item<'_>],
        level: usize,
        open: &mut String,
    ) -> (String, bool) {
        if mark == Mark::Code {
            let whole: String = items.iter().map(|item| text(item.node)).collect();
            let edged = whole.starts_with(is_space) || whole.ends_with(is_space);
            let sign = ['~', '='].into_iter().find(|sign| !whole.contains(*sign));
            if let (false, Some(sign)) = (edged, sign) {
                return (format!("{sign}{whole}{sign}"), true);
            }
        }
        let within = |writer: &mut Self, sign: Option<char>, open: &mut String| {
            open.extend(sign);
            let inner = writer.region(items, level + 1, open);
            if sign.is_some() {
                open.pop();
            }
            inner
        };
        match mark {
            Mark::Link(href) => {
                let inner = within(self, Some(']'), open);
                return (format!("[[{href}][{inner}]]"), false);
            }
            Mark::Sign(sign) => {
                let inner = within(self, Some(sign), open);
                if !inner.starts_with(is_space) && !inner.ends_with(is_space) {
                    return (format!("{sign}{inner}{sign}"), true);
                }
            }
            Mark::Sub | Mark::Sup => {
                let inner = within(self, None, open);
                if !inner.contains(['{', '}']) {
                    let sign = if mark == Mark::Sub { '_' } else { '^' };
                    return (format!("{sign}{{{inner}}}"), false);
                }
            }
            Mark::Stored(_) | Mark::Code => {}
        }
        let number = self.table.add(OpaqueKind::Mark, value);
        let inner = within(self, Some('}'), open);
        (
            format!("{REFERENCE_OPEN}{number},{inner}{REFERENCE_CLOSE}"),
            false,
        )
    }
}

/// Whether the markup of a node needs boundaries.
fn bounded(item: &Item<'_>) -> bool {
    kind(item.node) == "emoji" && !item.stored
}

/// Returns the markup of a node without children; `None` if there is none. The caller checks
/// that the markup reads back as the node.
fn leaf(node: &Value) -> Option<String> {
    let shown = shown_attrs(node);
    let attr = |name: &str| shown.as_ref()?.get(name)?.as_str();
    let link = |scheme: &str, target: &str, name: Option<&str>| match name {
        Some(name) => format!("[[{scheme}{target}][{name}]]"),
        None => format!("[[{scheme}{target}]]"),
    };
    match kind(node) {
        "text" => {
            let double = |c: char| std::iter::repeat_n(c, 1 + usize::from(c == GUARD));
            Some(text(node).chars().flat_map(double).collect())
        }
        "hardBreak" => Some("\n".to_owned()),
        "mention" => Some(link(USER, attr("id")?, attr("text"))),
        "status" => Some(link(STATUS, attr("color")?, Some(attr("text")?))),
        "mediaInline" => Some(link(ATTACHMENT, attr("id")?, attr("alt"))),
        "inlineCard" => Some(link("", attr("url")?, None)),
        "emoji" => Some(attr("shortName")?.to_owned()),
        "date" => {
            let timestamp = attr("timestamp")?.parse().ok()?;
            let time = jiff::Timestamp::from_millisecond(timestamp).ok()?;
            let day = time.to_zoned(jiff::tz::TimeZone::UTC).date();
            Some(day.strftime("<%Y-%m-%d %a>").to_string())
        }
        _ => None,
    }
}

/// Adds a guard, unless the text ends with one: two guards in a row would be a character of the
/// text.
pub(crate) fn push_guard(out: &mut String) {
    let guards = out.chars().rev().take_while(|c| *c == GUARD).count();
    if guards % 2 == 0 {
        out.push(GUARD);
    }
}

/// Adds a text with a guard at every character that could be read as markup. `last` is true if
/// nothing follows; `open` has the characters of the markup around the text.
fn push_guarded(out: &mut String, piece: &str, last: bool, open: &str) {
    let mut previous = out.chars().next_back();
    let mut chars = piece.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        let begins = previous.is_none_or(may_precede);
        let continues = next.map_or(!last || !open.is_empty(), |next| !is_space(next));
        let closes = open.contains(c);
        if closes {
            push_guard(out);
        }
        out.push(c);
        let guard = match c {
            '*' | '/' | '+' | '~' | '=' => begins && continues,
            '_' | '^' => (begins && continues) || next.is_none_or(|next| next == '{'),
            '[' => next.is_none_or(|next| next == '['),
            '{' => next.is_none_or(|next| next == '{'),
            '<' => next.is_some_and(|next| next.is_ascii_digit()),
            ':' => begins && next.is_some_and(in_short_name),
            _ => false,
        };
        if guard || closes {
            push_guard(out);
        }
        previous = Some(c);
    }
}
