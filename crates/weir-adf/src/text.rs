//! Parses org text into nodes.

use crate::check::DEPTH_MAX;
use crate::error::{OrgError, OrgErrorKind};
use crate::inline::{ATTACHMENT, REFERENCE_CLOSE, REFERENCE_OPEN, read as read_inline};
use crate::lines::{Bullet, Item, Line, Shape, indent, outdent, shape, trim, unescape_code};
use crate::node::{attr_str, attrs, content, kind, leaf, parent, reference, text_node};
use crate::opaque::{OpaqueKind, Table};
use crate::options::Options;
use crate::shown::PANELS;
use serde_json::{Map, Value};

/// Limit on the levels of nodes around a paragraph: the document, the paragraph and its text are
/// three more.
const LEVELS_MAX: usize = DEPTH_MAX - 3;

/// Parses a whole text.
pub(crate) fn read(text: &str, table: &Table, options: Options) -> Result<Vec<Value>, OrgError> {
    let line = |(index, text): (usize, &str)| Line {
        number: index + 1,
        text: text.strip_suffix('\r').unwrap_or(text).to_owned(),
    };
    let lines: Vec<Line> = text.split('\n').enumerate().map(line).collect();
    let reader = Reader { table, options };
    reader.blocks(&lines, LineContext::default())
}

struct Reader<'t> {
    table: &'t Table,
    options: Options,
}

/// The context of a range of lines.
#[derive(Clone, Copy, Default)]
struct LineContext {
    /// Number of enclosing nodes, without the document.
    depth: usize,
    /// Whether an expandable block encloses the lines.
    expands: bool,
}

impl LineContext {
    /// The context within `levels` more nodes.
    fn within(self, levels: usize) -> Self {
        let depth = self.depth + levels;
        Self { depth, ..self }
    }
}

impl Reader<'_> {
    fn blocks(&self, lines: &[Line], context: LineContext) -> Result<Vec<Value>, OrgError> {
        if let (Some(line), true) = (lines.first(), context.depth > LEVELS_MAX) {
            let limit = LEVELS_MAX;
            return Err(OrgErrorKind::TooDeep { limit }.at(line.number));
        }
        let mut nodes = Vec::new();
        let mut rest = lines;
        while let Some(line) = rest.first() {
            let mut used = 1;
            match shape(&line.text) {
                Shape::Blank | Shape::Comment => {}
                Shape::Rule => nodes.push(leaf("rule", Map::new())),
                Shape::Headline(stars, text) => {
                    nodes.push(self.headline(line, stars, &text, context)?);
                }
                Shape::Heading(level, text) => {
                    nodes.push(self.heading(line, level, &text)?);
                }
                Shape::Begin(name, argument) => {
                    let (node, lines) = self.block(rest, &name, &argument, context)?;
                    nodes.push(node);
                    used = lines;
                }
                Shape::Row => {
                    let row = |line: &&Line| shape(&line.text) == Shape::Row;
                    used = rest.iter().take_while(row).count();
                    nodes.push(self.table_of(&rest[..used])?);
                }
                Shape::Item(item) => {
                    let (node, lines) = self.list(rest, &item, context)?;
                    nodes.push(node);
                    used = lines;
                }
                Shape::Text | Shape::End(_) => {
                    let text = |line: &&Line| shape(&line.text) == Shape::Text;
                    used += rest.iter().skip(1).take_while(text).count();
                    nodes.push(self.paragraph(&rest[..used])?);
                }
            }
            rest = &rest[used..];
        }
        Ok(nodes)
    }

    fn headline(
        &self,
        line: &Line,
        stars: usize,
        text: &str,
        context: LineContext,
    ) -> Result<Value, OrgError> {
        let offset = self.options.heading_offset;
        match stars.checked_sub(offset) {
            Some(1..) if context.depth > 0 => {}
            Some(level @ 1..=6) => return self.heading(line, level as u64, text),
            Some(7..) => return Err(OrgErrorKind::HeadingTooDeep.at(line.number)),
            _ => {}
        }
        let stars = offset + 1;
        Err(OrgErrorKind::Headline { stars }.at(line.number))
    }

    fn heading(&self, line: &Line, level: u64, text: &str) -> Result<Value, OrgError> {
        let nodes = self.inline(text, line.number)?;
        Ok(parent("heading", attrs([("level", level.into())]), nodes))
    }

    /// Parses a text within one line.
    fn inline(&self, text: &str, line: usize) -> Result<Vec<Value>, OrgError> {
        read_inline(text, self.table).map_err(|(_, kind)| kind.at(line))
    }

    fn paragraph(&self, lines: &[Line]) -> Result<Value, OrgError> {
        let first = lines.first().map_or("", |line| trim(&line.text));
        if lines.len() == 1
            && let Some(number) = lone_reference(first)
        {
            let entry = self.table.get(number);
            if entry.is_some_and(|entry| entry.kind == OpaqueKind::Block) {
                return Ok(reference(number));
            }
        }
        let nodes = self.joined(lines)?;
        let alone = lines.len() == 1 && nodes.len() == 1;
        if alone
            && first.starts_with("[[")
            && first.ends_with("]]")
            && let Some(media) = media(&nodes[0])
        {
            return Ok(parent("mediaSingle", Map::new(), vec![media]));
        }
        Ok(parent("paragraph", Map::new(), nodes))
    }

    /// Parses lines as one text: `\\` at the end of a line is a hard break, any other line end a
    /// space.
    fn joined(&self, lines: &[Line]) -> Result<Vec<Value>, OrgError> {
        let mut whole = String::new();
        let mut length = 0;
        // The starts of lines, in characters.
        let mut begins = Vec::with_capacity(lines.len());
        for (at, line) in lines.iter().enumerate() {
            begins.push((length, line.number));
            let inner = trim(&line.text);
            let before = whole.len();
            if let Some(text) = inner.strip_suffix(r"\\") {
                whole.push_str(text);
                whole.push('\n');
            } else {
                whole.push_str(inner);
                if at + 1 < lines.len() {
                    whole.push(' ');
                }
            }
            length += whole[before..].chars().count();
        }
        read_inline(&whole, self.table).map_err(|(place, kind)| {
            let line = begins.iter().rev().find(|(begin, _)| *begin <= place);
            kind.at(line.map_or(1, |(_, number)| *number))
        })
    }

    /// Parses a block, and returns the number of its lines.
    fn block(
        &self,
        lines: &[Line],
        name: &str,
        argument: &str,
        context: LineContext,
    ) -> Result<(Value, usize), OrgError> {
        let number = lines[0].number;
        let verbatim = matches!(name, "src" | "example");
        let mut open = 1_usize;
        let mut end = None;
        for (at, line) in lines.iter().enumerate().skip(1) {
            match shape(&line.text) {
                Shape::Begin(other, _) if !verbatim && other == name => open += 1,
                Shape::End(other) if other == name => {
                    open -= 1;
                    if open == 0 {
                        end = Some(at);
                        break;
                    }
                }
                _ => {}
            }
        }
        let Some(end) = end else {
            let name = name.to_owned();
            return Err(OrgErrorKind::UnclosedBlock { name }.at(number));
        };
        let columns = indent(&lines[0].text);
        let inner: Vec<Line> = lines[1..end]
            .iter()
            .map(|line| Line {
                number: line.number,
                text: outdent(&line.text, columns),
            })
            .collect();
        let title = |name: &str| match argument {
            "" => Map::new(),
            title => attrs([(name, title.into())]),
        };
        let node = match name {
            "src" | "example" => code(&inner, argument),
            "quote" => parent(
                "blockquote",
                Map::new(),
                self.blocks(&inner, context.within(1))?,
            ),
            "expand" => {
                let kind = if context.expands {
                    "nestedExpand"
                } else {
                    "expand"
                };
                let expands = true;
                let depth = context.depth + 1;
                parent(
                    kind,
                    title("title"),
                    self.blocks(&inner, LineContext { depth, expands })?,
                )
            }
            "media" => self.media_group(&inner, context)?,
            panel if PANELS.contains(&panel) => {
                let shown = attrs([("panelType", panel.into())]);
                parent("panel", shown, self.blocks(&inner, context.within(1))?)
            }
            _ => {
                let name = name.to_owned();
                return Err(OrgErrorKind::UnknownBlock { name }.at(number));
            }
        };
        Ok((node, end + 1))
    }

    fn media_group(&self, lines: &[Line], context: LineContext) -> Result<Value, OrgError> {
        let mut group = Vec::new();
        for line in lines {
            if shape(&line.text) == Shape::Blank {
                continue;
            }
            let fault = || OrgErrorKind::MediaContent.at(line.number);
            let blocks = self.blocks(std::slice::from_ref(line), context.within(1))?;
            let [single] = blocks.as_slice() else {
                return Err(fault());
            };
            if kind(single) != "mediaSingle" {
                return Err(fault());
            }
            group.extend(content(single).iter().cloned());
        }
        Ok(parent("mediaGroup", Map::new(), group))
    }

    fn table_of(&self, lines: &[Line]) -> Result<Value, OrgError> {
        let is_line = |line: &Line| trim(&line.text).starts_with("|-");
        let heads = lines.iter().position(is_line).unwrap_or(0);
        let mut rows = Vec::new();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| !is_line(line)) {
            let kind = if at < heads {
                "tableHeader"
            } else {
                "tableCell"
            };
            let inner = trim(&line.text);
            let inner = inner.strip_prefix('|').unwrap_or(inner);
            let inner = inner.strip_suffix('|').unwrap_or(inner);
            let mut cells = Vec::new();
            for cell in inner.split('|') {
                let text = trim(cell).replace(r"\vert{}", "|");
                let nodes = self.inline(&text, line.number)?;
                let paragraph = parent("paragraph", Map::new(), nodes);
                cells.push(parent(kind, Map::new(), vec![paragraph]));
            }
            rows.push(parent("tableRow", Map::new(), cells));
        }
        Ok(parent("table", Map::new(), rows))
    }

    /// Parses a list, and returns the number of its lines.
    fn list(
        &self,
        lines: &[Line],
        first: &Item,
        context: LineContext,
    ) -> Result<(Value, usize), OrgError> {
        let mut nodes = Vec::new();
        let mut at = 0;
        let mut used = 0;
        while let Some(line) = lines.get(at) {
            let Shape::Item(item) = shape(&line.text) else {
                break;
            };
            if item.indent != first.indent || !item.bullet.joins(first.bullet) {
                break;
            }
            let inside =
                |line: &&Line| trim(&line.text).is_empty() || indent(&line.text) > first.indent;
            let after = lines[at + 1..].iter().take_while(inside).count();
            let mut body = vec![Line {
                number: line.number,
                text: item.rest.clone(),
            }];
            body.extend(lines[at + 1..=at + after].iter().map(|line| Line {
                number: line.number,
                text: outdent(&line.text, first.indent + item.width),
            }));
            self.item(item.bullet, &body, context, &mut nodes)?;
            at += 1 + after;
            used = at;
        }
        let node = match first.bullet {
            Bullet::Plain => parent("bulletList", Map::new(), nodes),
            Bullet::Task(_) => parent("taskList", Map::new(), nodes),
            Bullet::Number(1) => parent("orderedList", Map::new(), nodes),
            Bullet::Number(order) => parent("orderedList", attrs([("order", order.into())]), nodes),
        };
        Ok((node, used))
    }

    fn item(
        &self,
        bullet: Bullet,
        body: &[Line],
        context: LineContext,
        nodes: &mut Vec<Value>,
    ) -> Result<(), OrgError> {
        // Other items than tasks contain the lists below them.
        let levels = if matches!(bullet, Bullet::Task(_)) {
            1
        } else {
            2
        };
        let blocks = self.blocks(body, context.within(levels))?;
        let Bullet::Task(done) = bullet else {
            nodes.push(parent("listItem", Map::new(), blocks));
            return Ok(());
        };
        let mut blocks = blocks.into_iter().peekable();
        let text = blocks.next_if(|block| kind(block) == "paragraph");
        let text = text.map(|text| content(&text).to_vec()).unwrap_or_default();
        let state = if done { "DONE" } else { "TODO" };
        nodes.push(parent("taskItem", attrs([("state", state.into())]), text));
        for block in blocks {
            if kind(&block) != "taskList" {
                return Err(OrgErrorKind::TaskContent.at(body[0].number));
            }
            nodes.push(block);
        }
        Ok(())
    }
}

fn code(lines: &[Line], argument: &str) -> Value {
    let language = argument.split([' ', '\t']).next().unwrap_or("");
    let shown = match language {
        "" => Map::new(),
        language => attrs([("language", language.into())]),
    };
    let lines: Vec<String> = lines.iter().map(|line| unescape_code(&line.text)).collect();
    let text = lines.join("\n");
    let nodes = match text.as_str() {
        "" => Vec::new(),
        text => vec![text_node(text, &[])],
    };
    parent("codeBlock", shown, nodes)
}

/// The number N if a text is only `{{{adf(N)}}}`.
fn lone_reference(text: &str) -> Option<usize> {
    let digits = text
        .strip_prefix(REFERENCE_OPEN)?
        .strip_suffix(REFERENCE_CLOSE)?;
    let only = digits.bytes().all(|byte| byte.is_ascii_digit());
    only.then(|| digits.parse().ok())?
}

/// The media block that an inline media represents if it is alone in its line.
fn media(node: &Value) -> Option<Value> {
    if kind(node) != "mediaInline" {
        return None;
    }
    let mut shown = attrs([
        ("id", attr_str(node, "id")?.into()),
        ("type", "file".into()),
    ]);
    if let Some(alt) = attr_str(node, "alt") {
        shown.insert("alt".to_owned(), alt.into());
    }
    Some(leaf("media", shown))
}

/// Whether a line by itself would be read as media.
pub(crate) fn is_media_line(line: &str) -> bool {
    line.starts_with(&format!("[[{ATTACHMENT}")) && line.ends_with("]]")
}
