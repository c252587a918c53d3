//! Text templates: `[_name]` replaced by values.

use alloc::vec::Vec;

use memchr::memmem;

/// How a rendering ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendered {
    /// At least one name was replaced.
    Substituted,
    /// Nothing was replaced: the result is the template itself.
    NoSubstitution,
}

/// A template and its brackets.
///
/// ```
/// use weir_psyc::{Rendered, Template};
///
/// let mut text = Vec::new();
/// let lookup = |name: &[u8]| (name == b"_nick").then_some(&b"heron"[..]);
/// let how = Template::new(b"Hello [_nick]!").render(lookup, &mut text);
/// assert_eq!((how, &text[..]), (Rendered::Substituted, &b"Hello heron!"[..]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Template<'t> {
    text: &'t [u8],
    open: &'t [u8],
    close: &'t [u8],
}

/// A piece of a template, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'t> {
    Literal(&'t [u8]),
    /// A name, and the whole bracket expression around it.
    Name(&'t [u8], &'t [u8]),
}

impl<'t> Template<'t> {
    /// A template with the brackets `[` and `]`.
    pub const fn new(text: &'t [u8]) -> Template<'t> {
        Template {
            text,
            open: b"[",
            close: b"]",
        }
    }

    /// Sets the brackets of the template, of any length. Returns `None` if one of them is empty.
    pub const fn with_brackets(self, open: &'t [u8], close: &'t [u8]) -> Option<Template<'t>> {
        if open.is_empty() || close.is_empty() {
            return None;
        }
        Some(Template {
            open,
            close,
            ..self
        })
    }

    /// Renders to the end of `out`. A name that `lookup` does not know, or an empty one, stays with
    /// its brackets; values are inserted as they are and never scanned. Linear.
    pub fn render<'v>(
        &self,
        lookup: impl Fn(&[u8]) -> Option<&'v [u8]>,
        out: &mut Vec<u8>,
    ) -> Rendered {
        let mut rendered = Rendered::NoSubstitution;
        let mut rest = self.text;
        while let Some(piece) = self.piece(&mut rest) {
            match piece {
                Piece::Literal(text) => out.extend_from_slice(text),
                Piece::Name(name, whole) => match lookup(name) {
                    Some(value) => {
                        rendered = Rendered::Substituted;
                        out.extend_from_slice(value);
                    }
                    None => out.extend_from_slice(whole),
                },
            }
        }
        rendered
    }

    /// A rendering into buffers of a fixed size, one after the other.
    pub const fn writer<'v, L>(self, lookup: L) -> TemplateWriter<'t, 'v, L>
    where
        L: Fn(&[u8]) -> Option<&'v [u8]>,
    {
        TemplateWriter {
            template: self,
            lookup,
            rest: self.text,
            pending: Pending::None,
            rendered: Rendered::NoSubstitution,
        }
    }

    /// Takes the next piece off `rest`; a literal may be empty.
    fn piece(&self, rest: &mut &'t [u8]) -> Option<Piece<'t>> {
        let text = *rest;
        if text.is_empty() {
            return None;
        }
        let found = memmem::find(text, self.open).and_then(|open| {
            let name = open + self.open.len();
            let close = memmem::find(text.get(name..)?, self.close)?;
            Some((open, name, name + close, name + close + self.close.len()))
        });
        let Some((open, name, close, end)) = found else {
            *rest = &[];
            return Some(Piece::Literal(text));
        };
        if open != 0 {
            *rest = text.get(open..)?;
            return text.get(..open).map(Piece::Literal);
        }
        *rest = text.get(end..)?;
        let whole = text.get(..end)?;
        Some(if name == close {
            Piece::Literal(whole)
        } else {
            Piece::Name(text.get(name..close)?, whole)
        })
    }
}

/// How far a [`TemplateWriter`] got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The buffer is full after so many bytes; go on with the next one.
    Incomplete(usize),
    /// Everything is written, so many bytes of it to this buffer.
    Done(usize, Rendered),
}

#[derive(Clone, Copy, Debug)]
enum Pending<'t, 'v> {
    None,
    Literal(&'t [u8]),
    Value(&'v [u8]),
}

/// Renders a template into one buffer after the other, going on exactly where it stopped. The
/// joined output equals that of [`Template::render`] for every size of at least one byte.
#[derive(Clone, Debug)]
pub struct TemplateWriter<'t, 'v, L> {
    template: Template<'t>,
    lookup: L,
    rest: &'t [u8],
    pending: Pending<'t, 'v>,
    rendered: Rendered,
}

impl<'v, L: Fn(&[u8]) -> Option<&'v [u8]>> TemplateWriter<'_, 'v, L> {
    /// Writes on into `out`.
    #[allow(clippy::match_same_arms, reason = "the arms differ in their lifetimes")]
    pub fn write(&mut self, out: &mut [u8]) -> Progress {
        let mut written = 0;
        loop {
            let room = out.get_mut(written..).unwrap_or_default();
            let (count, done) = match &mut self.pending {
                Pending::None => (0, true),
                Pending::Literal(text) => fill(text, room),
                Pending::Value(text) => fill(text, room),
            };
            written += count;
            if !done {
                return Progress::Incomplete(written);
            }
            self.pending = Pending::None;
            if !self.advance() {
                return Progress::Done(written, self.rendered);
            }
        }
    }

    fn advance(&mut self) -> bool {
        let Some(piece) = self.template.piece(&mut self.rest) else {
            return false;
        };
        self.pending = match piece {
            Piece::Literal(text) => Pending::Literal(text),
            Piece::Name(name, whole) => match (self.lookup)(name) {
                Some(value) => {
                    self.rendered = Rendered::Substituted;
                    Pending::Value(value)
                }
                None => Pending::Literal(whole),
            },
        };
        true
    }
}

/// Moves the front of `text` to `room`: how many bytes, and whether that was all of it.
fn fill(text: &mut &[u8], room: &mut [u8]) -> (usize, bool) {
    let count = text.len().min(room.len());
    let (front, rest) = text.split_at(count);
    if let Some(room) = room.get_mut(..count) {
        room.copy_from_slice(front);
    }
    *text = rest;
    (count, rest.is_empty())
}

const STANDARD: [(&str, &str); 12] = [
    ("_notice_alias_add", "[_nick] now also means [_uniform]"),
    (
        "_notice_alias_change",
        "[_nick_old] goes by [_nick_new] from here on",
    ),
    (
        "_notice_alias_remove",
        "[_nick] does not mean [_uniform] any more",
    ),
    (
        "_failure_alias_unavailable",
        "[_nick] already means [_uniform]",
    ),
    ("_failure_alias_nonexistant", "nobody is called [_nick]"),
    (
        "_request_context_enter",
        "[_source] would like to enter [_context]",
    ),
    ("_notice_context_enter", "[_source] has entered [_context]"),
    ("_notice_context_leave", "[_source] has left [_context]"),
    ("_echo_context_enter", "you are now in [_source]"),
    ("_echo_context_leave", "you are no longer in [_source]"),
    ("_echo_hello", "hello received, key [_key_public]"),
    ("_status_hello", "your hello reads [_hello]"),
];

/// The standard template of the method that `word` is or inherits from, if there is one.
pub fn standard_template(word: &[u8]) -> Option<Template<'static>> {
    crate::keyword::lookup(&STANDARD, word).map(|(_, text)| Template::new(text.as_bytes()))
}
