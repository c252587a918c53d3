//! Parses the markup of a text. An opening character without its closing one is plain text.

use super::{
    ATTACHMENT, GUARD, REFERENCE_CLOSE, REFERENCE_OPEN, STATUS, USER, has_scheme, in_short_name,
    is_space, may_follow, may_precede,
};
use crate::error::OrgErrorKind;
use crate::node::{attrs, kind, leaf, marks, reference, referred, text, text_node};
use crate::opaque::{OpaqueKind, Table};
use crate::options::ORG_DEPTH_MAX;
use crate::shown::shown_mark;
use serde_json::{Value, json};

/// A fault, and the index of its character.
pub(crate) type Fault = (usize, OrgErrorKind);

/// Maximum length of the short name of an emoji, in characters.
const SHORT_NAME_MAX: usize = 64;

/// Maximum length of a time stamp, in characters.
const TIME_STAMP_MAX: usize = 40;

/// Parses a text into inline nodes. No text node is empty, and adjacent text nodes differ in marks.
pub(crate) fn read(source: &str, table: &Table) -> Result<Vec<Value>, Fault> {
    let chars: Vec<char> = source.chars().collect();
    let mut reader = Reader {
        chars: &chars,
        table,
        nodes: Vec::new(),
    };
    reader.region(0, chars.len(), &mut Vec::new(), 0)?;
    Ok(reader.nodes)
}

struct Reader<'t> {
    chars: &'t [char],
    table: &'t Table,
    nodes: Vec<Value>,
}

/// Matched markup, and the index of the first character after it.
enum InlineMatch {
    /// A node.
    Node(Value, usize),
    /// Marked text: the mark, the first character, the end, and the character after the markup.
    Marked(Value, usize, usize, usize),
    /// Marked text whose content is not parsed, such as code.
    Verbatim(Value, usize, usize, usize),
}

/// A range of the text whose ends are boundaries.
#[derive(Clone, Copy)]
struct Region {
    from: usize,
    at: usize,
    to: usize,
}

impl Reader<'_> {
    fn region(
        &mut self,
        from: usize,
        to: usize,
        active: &mut Vec<Value>,
        depth: usize,
    ) -> Result<(), Fault> {
        if depth > ORG_DEPTH_MAX {
            let limit = ORG_DEPTH_MAX;
            return Err((from, OrgErrorKind::TooDeep { limit }));
        }
        // Opening characters without a closing one: the search is not repeated, so that parsing
        // stays linear.
        let mut unclosed = Vec::new();
        let mut plain = String::new();
        let mut at = from;
        while at < to {
            if self.chars[at] == GUARD {
                let guards = self.chars[at..to].iter().take_while(|c| **c == GUARD);
                let count = guards.count();
                plain.extend(std::iter::repeat_n(GUARD, count / 2));
                at += count;
                continue;
            }
            let in_link = active.iter().any(|mark| kind(mark) == "link");
            let Some(found) = self.find(Region { from, at, to }, in_link, &mut unclosed)? else {
                plain.push(self.chars[at]);
                at += 1;
                continue;
            };
            self.push(&plain, active);
            plain.clear();
            at = match found {
                InlineMatch::Node(node, after) => {
                    self.nodes.push(node);
                    after
                }
                InlineMatch::Marked(mark, begin, end, after) => {
                    let fresh = !active.iter().any(|other| excludes(other, &mark));
                    if fresh {
                        active.push(mark);
                    }
                    self.region(begin, end, active, depth + 1)?;
                    if fresh {
                        active.pop();
                    }
                    after
                }
                InlineMatch::Verbatim(mark, begin, end, after) => {
                    let literal: String = self.chars[begin..end].iter().collect();
                    active.push(mark);
                    self.push(&literal, active);
                    active.pop();
                    after
                }
            };
        }
        self.push(&plain, active);
        Ok(())
    }

    /// Adds a text; appends it to the last node if that has equal marks. Code keeps only the marks
    /// that the schema allows together with code.
    fn push(&mut self, added: &str, active: &[Value]) {
        if added.is_empty() {
            return;
        }
        let code = active.iter().any(|mark| kind(mark) == "code");
        let kept =
            |mark: &&Value| !code || ["code", "link"].contains(&kind(mark)) || self.annotates(mark);
        let kept: Vec<Value> = active.iter().filter(kept).cloned().collect();
        if let Some(last) = self.nodes.last_mut()
            && kind(last) == "text"
            && marks(last) == kept
        {
            let whole = format!("{}{added}", text(last));
            if let Some(last) = last.as_object_mut() {
                last.insert("text".to_owned(), whole.into());
            }
            return;
        }
        self.nodes.push(text_node(added, &kept));
    }

    fn annotates(&self, mark: &Value) -> bool {
        let entry = referred(mark).and_then(|number| self.table.get(number));
        entry.is_some_and(|entry| kind(&entry.value) == "annotation")
    }

    fn find(
        &self,
        place: Region,
        in_link: bool,
        unclosed: &mut Vec<char>,
    ) -> Result<Option<InlineMatch>, Fault> {
        let Region { from, at, to } = place;
        let sign = self.chars[at];
        let begins = at == from || may_precede(self.chars[at - 1]);
        Ok(match sign {
            '\n' => Some(InlineMatch::Node(leaf("hardBreak", attrs([])), at + 1)),
            '{' if self.is(at, to, REFERENCE_OPEN) => return self.reference(at, to, unclosed),
            '[' if !in_link && self.is(at, to, "[[") => self.link(at, to, unclosed),
            '<' => self.date(at, to),
            ':' if begins => self.emoji(at, to),
            '_' | '^' if self.is(at + 1, to, "{") => self.subsup(at, to),
            '*' | '/' | '_' | '+' | '~' | '=' if begins && !unclosed.contains(&sign) => {
                let found = self.emphasis(at, to);
                if found.is_none() {
                    unclosed.push(sign);
                }
                found
            }
            _ => None,
        })
    }

    fn is(&self, at: usize, to: usize, what: &str) -> bool {
        let mut rest = self.chars[at.min(to)..to].iter();
        what.chars().all(|c| rest.next() == Some(&c))
    }

    fn string(&self, from: usize, to: usize) -> String {
        self.chars[from..to].iter().collect()
    }

    /// Returns the first position of `what` from `at` on.
    fn place_of(&self, what: &str, at: usize, to: usize) -> Option<usize> {
        (at..to).find(|at| self.is(*at, to, what))
    }

    fn emphasis(&self, at: usize, to: usize) -> Option<InlineMatch> {
        let sign = self.chars[at];
        let begin = at + 1;
        if begin >= to || is_space(self.chars[begin]) {
            return None;
        }
        let verbatim = matches!(sign, '~' | '=');
        let mut end = begin + 1;
        // After a failed search for the end of a link, the rest of the text is not searched again.
        let mut links = !verbatim;
        while end < to {
            if links && self.is(end, to, "[[") {
                let close = self.place_of("]]", end, to);
                links = close.is_some();
                end = close.map_or(end + 1, |close| close + 2);
                continue;
            }
            let ends = self.chars[end] == sign
                && !is_space(self.chars[end - 1])
                && (end + 1 == to || may_follow(self.chars[end + 1]));
            if ends {
                let name = match sign {
                    '*' => "strong",
                    '/' => "em",
                    '_' => "underline",
                    '+' => "strike",
                    _ => "code",
                };
                let mark = json!({ "type": name });
                return Some(if verbatim {
                    InlineMatch::Verbatim(mark, begin, end, end + 1)
                } else {
                    InlineMatch::Marked(mark, begin, end, end + 1)
                });
            }
            end += 1;
        }
        None
    }

    fn subsup(&self, at: usize, to: usize) -> Option<InlineMatch> {
        let direction = if self.chars[at] == '_' { "sub" } else { "sup" };
        let begin = at + 2;
        let end = (begin..to).find(|at| matches!(self.chars[*at], '{' | '}'))?;
        if end == begin || self.chars[end] == '{' {
            return None;
        }
        let mark = json!({ "type": "subsup", "attrs": { "type": direction } });
        Some(InlineMatch::Marked(mark, begin, end, end + 1))
    }

    fn emoji(&self, at: usize, to: usize) -> Option<InlineMatch> {
        let name = self.chars[at + 1..to].iter().take(SHORT_NAME_MAX + 1);
        let count = name.take_while(|c| in_short_name(**c)).count();
        let end = at + 1 + count;
        let after = end + 1;
        let ends = self.is(end, to, ":") && (after == to || may_follow(self.chars[after]));
        let letter = self.chars[at + 1..end]
            .iter()
            .any(char::is_ascii_alphabetic);
        let short = self.string(at, after.min(to));
        (ends && letter && count <= SHORT_NAME_MAX)
            .then(|| InlineMatch::Node(leaf("emoji", attrs([("shortName", short.into())])), after))
    }

    /// `<2024-11-29 Fri>`; the text after the day is ignored.
    fn date(&self, at: usize, to: usize) -> Option<InlineMatch> {
        let within = &self.chars[at + 1..to.min(at + TIME_STAMP_MAX)];
        let end = at + 1 + within.iter().position(|c| *c == '>')?;
        let stamp = self.string(at + 1, end);
        let day = stamp.get(..10)?;
        if stamp
            .get(10..)
            .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(' '))
        {
            return None;
        }
        let day: jiff::civil::Date = day.parse().ok()?;
        let midnight = day.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        let timestamp = midnight.timestamp().as_millisecond().to_string();
        let node = leaf("date", attrs([("timestamp", timestamp.into())]));
        Some(InlineMatch::Node(node, end + 1))
    }

    fn link(&self, at: usize, to: usize, unclosed: &mut Vec<char>) -> Option<InlineMatch> {
        let begin = at + 2;
        let stops = |c: &char| matches!(c, '[' | ']' | '\n');
        let end = begin + self.chars[begin..to].iter().position(stops)?;
        let target = self.string(begin, end);
        if target.is_empty() {
            return None;
        }
        if self.is(end, to, "]]") {
            return link_node(&target, None).map(|node| InlineMatch::Node(node, end + 2));
        }
        if !self.is(end, to, "][") || unclosed.contains(&'[') {
            return None;
        }
        let name = end + 2;
        let Some(close) = self.place_of("]]", name, to) else {
            unclosed.push('[');
            return None;
        };
        if close == name {
            return None;
        }
        if let Some(node) = link_node(&target, Some(&self.string(name, close))) {
            return Some(InlineMatch::Node(node, close + 2));
        }
        let mark = json!({ "type": "link", "attrs": { "href": target } });
        Some(InlineMatch::Marked(mark, name, close, close + 2))
    }

    fn reference(
        &self,
        at: usize,
        to: usize,
        unclosed: &mut Vec<char>,
    ) -> Result<Option<InlineMatch>, Fault> {
        let begin = at + REFERENCE_OPEN.len();
        let digits = self.chars[begin..to].iter();
        let end = begin + digits.take_while(|c| c.is_ascii_digit()).count();
        let Ok(number) = self.string(begin, end).parse::<usize>() else {
            return Ok(None);
        };
        let entry = self.table.get(number);
        let unknown = (at, OrgErrorKind::UnknownReference { number });
        if self.is(end, to, REFERENCE_CLOSE) {
            return match entry.map(|entry| entry.kind) {
                Some(OpaqueKind::Inline) => {
                    let after = end + REFERENCE_CLOSE.len();
                    Ok(Some(InlineMatch::Node(reference(number), after)))
                }
                Some(OpaqueKind::Block) => Err((at, OrgErrorKind::BlockInText { number })),
                Some(OpaqueKind::Mark) | None => Err(unknown),
            };
        }
        if !self.is(end, to, ",") || unclosed.contains(&'{') {
            return Ok(None);
        }
        let Some(close) = self.reference_end(end + 1, to) else {
            unclosed.push('{');
            return Ok(None);
        };
        let Some(entry) = entry.filter(|entry| entry.kind == OpaqueKind::Mark) else {
            return Err(unknown);
        };
        let mark = shown_mark(&entry.value).unwrap_or_else(|| reference(number));
        let after = close + REFERENCE_CLOSE.len();
        Ok(Some(InlineMatch::Marked(mark, end + 1, close, after)))
    }

    /// Returns the end of a reference with a text, which may contain other references.
    fn reference_end(&self, from: usize, to: usize) -> Option<usize> {
        let mut open = 1_usize;
        let mut at = from;
        while at < to {
            if self.is(at, to, REFERENCE_OPEN) {
                open += 1;
                at += REFERENCE_OPEN.len();
            } else if self.is(at, to, REFERENCE_CLOSE) {
                open -= 1;
                if open == 0 {
                    return Some(at);
                }
                at += REFERENCE_CLOSE.len();
            } else {
                at += 1;
            }
        }
        None
    }
}

/// Whether a text cannot have both marks: two marks of one type exclude each other unless both
/// are stored in the table.
fn excludes(one: &Value, two: &Value) -> bool {
    one == two || (referred(one).is_none() && kind(one) == kind(two))
}

/// Returns the node that a link represents; `None` if the link is a mark.
fn link_node(target: &str, name: Option<&str>) -> Option<Value> {
    if let Some(id) = target.strip_prefix(USER) {
        let mut shown = attrs([("id", id.into())]);
        if let Some(name) = name {
            shown.insert("text".to_owned(), name.into());
        }
        return Some(leaf("mention", shown));
    }
    if let Some(color) = target.strip_prefix(STATUS) {
        let name = name?;
        let shown = attrs([("color", color.into()), ("text", name.into())]);
        return Some(leaf("status", shown));
    }
    if let Some(id) = target.strip_prefix(ATTACHMENT) {
        let mut shown = attrs([("id", id.into())]);
        if let Some(name) = name {
            shown.insert("alt".to_owned(), name.into());
        }
        return Some(leaf("mediaInline", shown));
    }
    (name.is_none() && has_scheme(target))
        .then(|| leaf("inlineCard", attrs([("url", target.into())])))
}
