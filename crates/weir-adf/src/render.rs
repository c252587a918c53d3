//! Converts a document to org text.
//!
//! Each block is written, read back and compared with the parts that it must show. A block that
//! differs is stored, and the text refers to it. At the end, the whole text is checked again.

use crate::check::check;
use crate::error::AdfError;
use crate::inline::{
    ATTACHMENT, GUARD, REFERENCE_CLOSE, REFERENCE_OPEN, push_guard, write as write_inline,
};
use crate::lines::{Shape, escape_code, shape};
use crate::node::{attr_str, content, kind, parent};
use crate::opaque::{Opaque, OpaqueKind, Table};
use crate::options::Options;
use crate::shown::{shown_attrs, shows, units};
use crate::text::{is_media_line, read};
use serde_json::{Map, Value};

/// A document as org text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Org {
    /// The text; empty if the document shows nothing, otherwise it ends with a newline.
    pub text: String,
    /// Parts that the text refers to, by number from 1.
    pub opaque: Vec<Opaque>,
}

/// Converts a document to org text. [`from_org`](crate::from_org) converts the edited text to a
/// document.
///
/// # Errors
///
/// The error of [`check`].
///
/// # Examples
///
/// ```
/// let document = serde_json::json!({"type": "doc", "version": 1, "content": [
///     {"type": "heading", "attrs": {"level": 1}, "content": [{"type": "text", "text": "Steps"}]},
///     {"type": "bulletList", "content": [{"type": "listItem", "content": [
///         {"type": "paragraph", "content": [{"type": "text", "text": "one",
///             "marks": [{"type": "strong"}]}]}]}]}]});
/// let org = weir_adf::to_org(&document, &weir_adf::Options::under(1))?;
/// assert_eq!(org.text, "** Steps\n\n- *one*\n");
/// # Ok::<(), weir_adf::AdfError>(())
/// ```
pub fn to_org(document: &Value, options: &Options) -> Result<Org, AdfError> {
    check(document)?;
    let projection = project(document, *options);
    Ok(Org {
        text: projection.text,
        opaque: projection.table.into_entries(),
    })
}

/// Converts documents to org texts whose references have common numbers, so that one text can
/// combine them. [`from_org_all`](crate::from_org_all) converts the combined text to a document.
///
/// # Errors
///
/// The error of [`check`] for one of the documents.
pub fn to_org_all(documents: &[&Value], options: &Options) -> Result<Vec<String>, AdfError> {
    let mut table = Table::default();
    let mut texts = Vec::with_capacity(documents.len());
    for document in documents {
        check(document)?;
        let projection = project_after(document, *options, &table);
        texts.push(projection.text);
        table = projection.table;
    }
    Ok(texts)
}

/// A text, the parts that it refers to, and the nodes parsed from it: one for each unit of the
/// document.
pub(crate) struct Projection {
    pub(crate) text: String,
    pub(crate) table: Table,
    pub(crate) read: Vec<Value>,
}

/// How a document is written.
#[derive(Clone, Copy, PartialEq)]
enum Attempt {
    /// Blocks are separated by an empty line.
    Plain,
    /// Blocks are separated by a comment, so that no block joins the block before it.
    Separated,
    /// Every block is stored.
    Stored,
}

/// Writes a document that [`check`] accepts.
pub(crate) fn project(document: &Value, options: Options) -> Projection {
    project_after(document, options, &Table::default())
}

/// As [`project`]. `earlier` has the parts of other documents, whose numbers stay.
pub(crate) fn project_after(document: &Value, options: Options, earlier: &Table) -> Projection {
    let mut last = None;
    for attempt in [Attempt::Plain, Attempt::Separated, Attempt::Stored] {
        let mut writer = Writer {
            table: earlier.for_next_document(),
            options,
        };
        let text = writer.document(document, attempt);
        let table = writer.table;
        let read = read(&text, &table, options).unwrap_or_default();
        let whole = parent("doc", Map::new(), read);
        let same = shows(document, &whole, &table);
        let read = content(&whole).to_vec();
        last = Some(Projection { text, table, read });
        if same {
            break;
        }
    }
    last.unwrap_or_else(|| Projection {
        text: String::new(),
        table: Table::default(),
        read: Vec::new(),
    })
}

struct Writer {
    table: Table,
    options: Options,
}

/// Lines of a block, without indentation.
type Lines = Vec<String>;

impl Writer {
    fn document(&mut self, document: &Value, attempt: Attempt) -> String {
        let mut pieces = Vec::new();
        for unit in units(document).units {
            let lines = match attempt {
                Attempt::Stored => self.stored(&unit.shown),
                Attempt::Plain | Attempt::Separated => self.checked(&unit.shown),
            };
            if attempt == Attempt::Separated && !pieces.is_empty() {
                pieces.push(vec!["#".to_owned()]);
            }
            pieces.push(lines);
        }
        let mut text = joined(pieces).join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }

    /// Writes a block of the document, reads it back and compares.
    fn checked(&mut self, node: &Value) -> Lines {
        let saved = self.table.len();
        let lines = self.block(node, false);
        let back = read(&lines.join("\n"), &self.table, self.options);
        if let Ok([single]) = back.as_deref()
            && shows(node, single, &self.table)
        {
            return lines;
        }
        self.table.truncate(saved);
        self.stored(node)
    }

    fn stored(&mut self, node: &Value) -> Lines {
        let number = self.table.add(OpaqueKind::Block, node);
        vec![format!("{REFERENCE_OPEN}{number}{REFERENCE_CLOSE}")]
    }

    /// Writes a block, or stores it. `inner` is true inside of a list or block.
    fn block(&mut self, node: &Value, inner: bool) -> Lines {
        let saved = self.table.len();
        let lines = self.shown(node, inner).filter(|lines| !lines.is_empty());
        lines.unwrap_or_else(|| {
            self.table.truncate(saved);
            self.stored(node)
        })
    }

    /// Writes a block; `None` if it has no markup. `inner` is true inside of a list or block.
    fn shown(&mut self, node: &Value, inner: bool) -> Option<Lines> {
        let shown = shown_attrs(node)?;
        let attr = |name: &str| shown.get(name).and_then(Value::as_str).unwrap_or("");
        match kind(node) {
            "paragraph" => Some(paragraph(&self.inline(node, true)?)),
            "heading" => {
                let text = with_guards(&self.inline(node, false)?);
                let level = shown.get("level")?.as_u64()?;
                let stars = usize::try_from(level).ok()? + self.options.heading_offset;
                let line = if inner {
                    format!("#+h{level}: {text}")
                } else {
                    format!("{} {text}", "*".repeat(stars))
                };
                Some(vec![line.trim_end_matches(' ').to_owned()])
            }
            "rule" => Some(vec!["-----".to_owned()]),
            "bulletList" | "orderedList" => {
                let first = shown.get("order").map_or(Some(1), Value::as_u64);
                let ordered = kind(node) == "orderedList";
                self.list(node, ordered.then_some(first?))
            }
            "taskList" => self.tasks(node),
            "codeBlock" => code(node, attr("language")),
            "blockquote" => Some(self.wrapped(node, "quote", "")),
            "panel" => Some(self.wrapped(node, attr("panelType"), "")),
            "expand" | "nestedExpand" => Some(self.wrapped(node, "expand", attr("title"))),
            "table" => self.rows(node),
            "mediaSingle" => match content(node) {
                [media] => Some(vec![media_line(media)?]),
                _ => None,
            },
            "mediaGroup" => {
                let mut lines = vec!["#+begin_media".to_owned()];
                for media in content(node) {
                    lines.push(media_line(media)?);
                }
                lines.push("#+end_media".to_owned());
                Some(lines)
            }
            _ => None,
        }
    }

    fn inline(&mut self, node: &Value, breaks: bool) -> Option<String> {
        let units = units(node).units;
        let nodes: Vec<&Value> = units.iter().map(|unit| unit.shown.as_ref()).collect();
        write_inline(&nodes, breaks, &mut self.table)
    }

    fn blocks(&mut self, node: &Value) -> Lines {
        let pieces = units(node).units;
        let pieces = pieces.iter().map(|unit| self.block(&unit.shown, true));
        joined(pieces.collect())
    }

    fn wrapped(&mut self, node: &Value, name: &str, title: &str) -> Lines {
        let begin = format!("#+begin_{name} {title}");
        let mut lines = vec![begin.trim_end_matches(' ').to_owned()];
        lines.extend(self.blocks(node));
        lines.push(format!("#+end_{name}"));
        lines
    }

    fn list(&mut self, node: &Value, first: Option<u64>) -> Option<Lines> {
        let mut lines = Lines::new();
        for (item, at) in content(node).iter().zip(0..) {
            if kind(item) != "listItem" {
                return None;
            }
            let bullet = match first {
                Some(first) => format!("{}.", first.checked_add(at)?),
                None => "-".to_owned(),
            };
            let texts = units(item).units;
            let starts = texts
                .first()
                .is_some_and(|unit| kind(&unit.shown) == "paragraph");
            let mut body = self.blocks(item);
            if starts && first.is_none() && looks_like_task(&body) {
                body[0].insert(0, GUARD);
            }
            lines.extend(item_lines(&bullet, body, starts));
        }
        Some(lines)
    }

    fn tasks(&mut self, node: &Value) -> Option<Lines> {
        let mut lines = Lines::new();
        for item in content(node) {
            match kind(item) {
                "taskItem" => {
                    let state = shown_attrs(item)?;
                    let done = state.get("state")?.as_str()? == "DONE";
                    let bullet = if done { "- [X]" } else { "- [ ]" };
                    let text = self.inline(item, true)?;
                    let body = if text.is_empty() {
                        Lines::new()
                    } else {
                        paragraph(&text)
                    };
                    let mut item = item_lines("-", body, true);
                    item[0].replace_range(..1, bullet);
                    lines.extend(item);
                }
                "taskList" => {
                    let nested = self.tasks(item)?;
                    lines.extend(nested.into_iter().map(|line| format!("  {line}")));
                }
                _ => return None,
            }
        }
        Some(lines)
    }

    fn rows(&mut self, node: &Value) -> Option<Lines> {
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut heads = 0;
        for row in content(node) {
            let mut cells = Vec::new();
            for cell in content(row) {
                let [single] = content(cell) else {
                    return None;
                };
                shown_attrs(cell)?;
                if kind(single) != "paragraph" {
                    return None;
                }
                cells.push(with_guards(&self.inline(single, false)?).replace('|', r"\vert{}"));
            }
            let head = content(row).iter().all(|cell| kind(cell) == "tableHeader");
            if head && heads == rows.len() {
                heads += 1;
            }
            rows.push(cells);
        }
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut lines = Lines::new();
        for (at, row) in rows.iter().enumerate() {
            if at == heads && at > 0 {
                lines.push(rule_of(&widths));
            }
            let mut line = String::from("|");
            for (cell, width) in row.iter().zip(&widths) {
                let space = width - cell.chars().count();
                line.extend([" ", cell, &" ".repeat(space), " |"]);
            }
            lines.push(line);
        }
        if heads == rows.len() {
            lines.push(rule_of(&widths));
        }
        Some(lines)
    }
}

fn rule_of(widths: &[usize]) -> String {
    let dashes: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
    format!("|{}|", dashes.join("+"))
}

/// Separates blocks by an empty line, except a list after its text. A comment separates two lists.
fn joined(pieces: Vec<Lines>) -> Lines {
    let mut lines = Lines::new();
    for piece in pieces {
        let item = |line: Option<&String>| line.and_then(|line| bullet_of(line));
        let before = lines
            .iter()
            .rev()
            .find(|line| !line.is_empty() && !line.starts_with(' '));
        if let (Some(one), Some(two)) = (item(before), item(piece.first())) {
            let joins = one.joins(two);
            lines.push(if joins { "#" } else { "" }.to_owned());
        } else if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(piece);
    }
    lines
}

fn bullet_of(line: &str) -> Option<crate::lines::Bullet> {
    match shape(line) {
        Shape::Item(item) => Some(item.bullet),
        _ => None,
    }
}

/// An item. Its lines begin after the bullet, or below it if the item does not begin with a text.
fn item_lines(bullet: &str, body: Lines, starts: bool) -> Lines {
    let space = " ".repeat(bullet.len() + 1);
    let mut lines = Lines::new();
    let mut body = without_gap(body, starts).into_iter();
    match if starts { body.next() } else { None } {
        Some(first) if !first.is_empty() => lines.push(format!("{bullet} {first}")),
        _ => lines.push(bullet.to_owned()),
    }
    lines.extend(body.map(|line| match line.as_str() {
        "" => line,
        _ => format!("{space}{line}"),
    }));
    lines
}

/// The lines of an item without the empty line between its text and a list below it.
fn without_gap(body: Lines, starts: bool) -> Lines {
    let end = body.iter().position(String::is_empty);
    let list = |at: usize| {
        body.get(at + 1)
            .is_some_and(|line| bullet_of(line).is_some())
    };
    match end {
        Some(at) if starts && at > 0 && list(at) => {
            let (text, rest) = body.split_at(at);
            [text, &rest[1..]].concat()
        }
        _ => body,
    }
}

fn looks_like_task(body: &Lines) -> bool {
    let first = body.first().map_or("", String::as_str);
    bullet_of(&format!("- {first}")).is_some_and(|bullet| bullet != crate::lines::Bullet::Plain)
}

/// A text in which the agenda of Emacs finds no Lisp form: it would evaluate `%%(FORM)`.
fn inert(text: &str) -> String {
    text.replace("%%(", &format!("%%{GUARD}("))
}

/// A text with guards at its ends, to preserve spaces.
fn with_guards(text: &str) -> String {
    let mut out = String::new();
    if text.starts_with([' ', '\t']) {
        out.push(GUARD);
    }
    out.push_str(&inert(text));
    if text.ends_with([' ', '\t']) {
        push_guard(&mut out);
    }
    out
}

/// The lines of a text; each hard break is a `\\` at the end of a line.
fn paragraph(text: &str) -> Lines {
    let text = inert(text);
    let parts: Vec<&str> = text.split('\n').collect();
    let last = parts.len() - 1;
    let mut lines = Lines::new();
    for (at, part) in parts.iter().enumerate() {
        let mut line = String::new();
        let whole = if at < last {
            format!("{part}\\\\")
        } else {
            (*part).to_owned()
        };
        let odd = !matches!(shape(&whole), Shape::Text | Shape::Blank)
            || part.starts_with([' ', '\t'])
            // Emacs would obey a keyword: `#+SETUPFILE: URL` makes it read the URL.
            || part.starts_with("#+");
        if odd || (parts.len() == 1 && is_media_line(&whole)) {
            line.push(GUARD);
        }
        line.push_str(part);
        if at < last {
            line.push_str(r"\\");
        } else if part.is_empty() && at > 0 {
            break;
        } else if part.ends_with([' ', '\t']) || part.ends_with(r"\\") {
            push_guard(&mut line);
        }
        lines.push(line);
    }
    lines
}

fn code(node: &Value, language: &str) -> Option<Lines> {
    let units = units(node).units;
    let text = match units.as_slice() {
        [] => "",
        [single] if kind(&single.shown) == "text" => single.shown.get("text")?.as_str()?,
        _ => return None,
    };
    let name = if language.is_empty() {
        "example"
    } else {
        "src"
    };
    let begin = format!("#+begin_{name} {language}");
    let mut lines = vec![begin.trim_end_matches(' ').to_owned()];
    if !text.is_empty() {
        lines.extend(text.split('\n').map(escape_code));
    }
    lines.push(format!("#+end_{name}"));
    Some(lines)
}

fn media_line(media: &Value) -> Option<String> {
    shown_attrs(media)?;
    if kind(media) != "media" {
        return None;
    }
    let id = attr_str(media, "id")?;
    Some(match attr_str(media, "alt").unwrap_or("") {
        "" => format!("[[{ATTACHMENT}{id}]]"),
        alt => format!("[[{ATTACHMENT}{id}][{alt}]]"),
    })
}
