//! Text templates, in which values replace `[_name]`.

use alloc::vec::Vec;

use memchr::memmem;

/// The result of a rendering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendered {
    /// At least one name was replaced.
    Substituted,
    /// No name was replaced: the output equals the template.
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

/// A piece of a template: its end, and the range of the name if the piece is a bracket expression
/// with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    end: usize,
    name: Option<(usize, usize)>,
}

/// The progress of a rendering, as plain numbers, for callers that cannot keep a borrow. A place of
/// another template is safe to use, but the output is then meaningless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TemplatePlace {
    /// Start and end of the current piece in the template; equal between two pieces.
    pub piece: [u64; 2],
    /// Whether the piece is a name in brackets.
    pub is_name: bool,
    /// Bytes already written of the piece, or of the value that replaces it.
    pub written: u64,
    /// Whether a name was replaced.
    pub substituted: bool,
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

    /// The bytes of the template.
    pub const fn text(&self) -> &'t [u8] {
        self.text
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

    /// Appends the rendered text to `out`. An empty name, or a name for which `lookup` returns
    /// `None`, is copied with its brackets. Values are inserted unchanged and not scanned. Linear.
    pub fn render<'v>(
        &self,
        lookup: impl Fn(&[u8]) -> Option<&'v [u8]>,
        out: &mut Vec<u8>,
    ) -> Rendered {
        let mut rendered = Rendered::NoSubstitution;
        let mut from = 0;
        while let Some(piece) = self.piece(from) {
            let value = piece
                .name
                .and_then(|(start, end)| lookup(self.text.get(start..end)?));
            if value.is_some() {
                rendered = Rendered::Substituted;
            }
            let whole = self.text.get(from..piece.end).unwrap_or_default();
            out.extend_from_slice(value.unwrap_or(whole));
            from = piece.end;
        }
        rendered
    }

    /// Renders from `place` into `out`, and moves `place` to the start of the next call. Start with
    /// the default place. If a value did not fit, the next call runs `lookup` again, which must
    /// return an equal value. Linear, if `out` is longer than a few bytes.
    pub fn render_on<'v>(
        &self,
        place: &mut TemplatePlace,
        lookup: impl Fn(&[u8]) -> Option<&'v [u8]>,
        out: &mut [u8],
    ) -> Progress {
        let mut filled = 0;
        loop {
            let [from, end] = place
                .piece
                .map(|at| usize::try_from(at).unwrap_or(usize::MAX));
            if from >= end {
                let Some(piece) = self.piece(end) else {
                    let rendered = if place.substituted {
                        Rendered::Substituted
                    } else {
                        Rendered::NoSubstitution
                    };
                    return Progress::Done(filled, rendered);
                };
                place.piece = [end as u64, piece.end as u64];
                place.is_name = piece.name.is_some();
                place.written = 0;
                continue;
            }
            let value = (place.is_name)
                .then(|| from.checked_add(self.open.len()))
                .flatten()
                .and_then(|start| {
                    let end = end.checked_sub(self.close.len())?;
                    lookup(self.text.get(start..end)?)
                });
            place.substituted |= value.is_some();
            let all = value.or(self.text.get(from..end)).unwrap_or_default();
            let written = usize::try_from(place.written).unwrap_or(usize::MAX);
            let rest = all.get(written..).unwrap_or_default();
            let free = out.get_mut(filled..).unwrap_or_default();
            let count = rest.len().min(free.len());
            if let (Some(free), Some(front)) = (free.get_mut(..count), rest.get(..count)) {
                free.copy_from_slice(front);
            }
            filled += count;
            place.written += count as u64;
            if count < rest.len() {
                return Progress::Incomplete(filled);
            }
            place.piece = [end as u64; 2];
        }
    }

    /// A writer that renders into several buffers of a fixed size.
    pub const fn writer<'v, L>(self, lookup: L) -> TemplateWriter<'t, L>
    where
        L: Fn(&[u8]) -> Option<&'v [u8]>,
    {
        TemplateWriter {
            template: self,
            lookup,
            place: TemplatePlace {
                piece: [0; 2],
                is_name: false,
                written: 0,
                substituted: false,
            },
        }
    }

    /// The piece that starts at `from`, or `None` at the end.
    fn piece(&self, from: usize) -> Option<Piece> {
        let text = self.text.get(from..).filter(|text| !text.is_empty())?;
        let found = memmem::find(text, self.open).and_then(|open| {
            let name = open + self.open.len();
            let close = memmem::find(text.get(name..)?, self.close)?;
            Some((open, name, name + close))
        });
        Some(match found {
            None => Piece {
                end: self.text.len(),
                name: None,
            },
            Some((0, name, close)) => Piece {
                end: from + close + self.close.len(),
                name: (name < close).then_some((from + name, from + close)),
            },
            Some((open, ..)) => Piece {
                end: from + open,
                name: None,
            },
        })
    }
}

/// The progress of a [`TemplateWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The buffer is full after this number of bytes. Continue with the next buffer.
    Incomplete(usize),
    /// The rendering is complete, with this number of bytes in the last buffer.
    Done(usize, Rendered),
}

/// Renders a template into several buffers; each call continues where the last one stopped. The
/// joined output equals that of [`Template::render`], for any buffer size of at least one byte.
#[derive(Clone, Debug)]
pub struct TemplateWriter<'t, L> {
    template: Template<'t>,
    lookup: L,
    place: TemplatePlace,
}

impl<'v, L: Fn(&[u8]) -> Option<&'v [u8]>> TemplateWriter<'_, L> {
    /// Writes the next part of the output to `out`.
    pub fn write(&mut self, out: &mut [u8]) -> Progress {
        let TemplateWriter {
            template,
            lookup,
            place,
        } = self;
        template.render_on(place, &*lookup, out)
    }
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

/// The standard template of the method `word`, or of the method that `word` inherits from.
pub fn standard_template(word: &[u8]) -> Option<Template<'static>> {
    crate::keyword::lookup(&STANDARD, word).map(|(_, text)| Template::new(text.as_bytes()))
}
