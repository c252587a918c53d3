//! Lists of issues: rows of columns with fixed widths, and exports.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use unicode_width::UnicodeWidthChar as _;
use weir_jira::index::Row;

use super::page::Page;

/// Limit on the indentation in a tree, in columns.
const INDENT_MAX: usize = 20;

/// A column: its name and its width; width 0 is the rest of the line.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) width: usize,
}

/// Adds a text with a width of `width` columns: pads it with spaces, or truncates it with an
/// ellipsis. With width 0, the text stays unchanged.
fn fit(page: &mut Page, text: &str, width: usize) {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    // Each of these bytes is one column wide.
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_plain && (width == 0 || text.len() <= width) {
        page.add_ascii(text);
        page.pad(width.saturating_sub(text.len()));
        return;
    }
    let of = |c: char| c.width().unwrap_or(0);
    let whole: usize = text.chars().map(of).sum();
    let is_cut = width > 0 && whole > width;
    let most = match width {
        0 => usize::MAX,
        width => width - usize::from(is_cut),
    };
    let mut used = 0;
    for c in text.chars().map(clean) {
        if used + of(c) > most {
            break;
        }
        used += of(c);
        page.add_char(c);
    }
    if is_cut {
        page.add_char('…');
        used += 1;
    }
    page.pad(width.saturating_sub(used));
}

/// The time since `then_ms`: a number and its unit.
fn age(then_ms: i64, now_ms: i64) -> (i64, char) {
    let minutes = (now_ms - then_ms).max(0) / 60_000;
    match minutes {
        0..60 => (minutes, 'm'),
        60..1440 => (minutes / 60, 'h'),
        1440..525_600 => (minutes / 1440, 'd'),
        _ => (minutes / 525_600, 'y'),
    }
}

/// The content of a column for an issue.
pub(crate) fn cell<'r>(row: &'r Row, name: &str, now_ms: i64) -> Cow<'r, str> {
    match name {
        "key" => (&row.key).into(),
        "summary" => (&row.summary).into(),
        "status" => (&row.status).into(),
        "type" => (&row.kind).into(),
        "assignee" => (&row.assignee).into(),
        "priority" => (&row.priority).into(),
        "labels" => row.labels.join(" ").into(),
        "parent" => (&row.parent).into(),
        "project" => (&row.project).into(),
        "due" => (&row.due).into(),
        "updated" => {
            let (number, unit) = age(row.updated_ms, now_ms);
            format!("{number}{unit}").into()
        }
        _ => "".into(),
    }
}

/// The face property of a column.
fn face(row: &Row, name: &str) -> Option<&'static str> {
    match name {
        "key" => Some("key"),
        "status" => Some(match row.category.as_str() {
            "done" => "status-done",
            "indeterminate" => "status-active",
            _ => "status-new",
        }),
        "updated" | "assignee" | "type" | "priority" => Some("dim"),
        _ => None,
    }
}

/// The layout of the rows of a list.
pub(crate) struct Layout {
    columns: Vec<Column>,
    /// The time at which ages are shown.
    now_ms: i64,
    /// Whether a column shows an age.
    has_age: bool,
    /// A hasher to which the columns were written.
    hasher: DefaultHasher,
}

impl Layout {
    /// The layout with these columns at this time.
    pub(crate) fn new(columns: Vec<Column>, now_ms: i64) -> Self {
        let mut hasher = DefaultHasher::new();
        columns.hash(&mut hasher);
        Self {
            has_age: columns.iter().any(|column| column.name == "updated"),
            columns,
            now_ms,
            hasher,
        }
    }

    /// A number that is equal for equal lines. `hash` is that of the row.
    pub(crate) fn state(&self, row: &Row, hash: u64, depth: usize) -> u64 {
        let mut hasher = self.hasher.clone();
        let age = self.has_age.then(|| age(row.updated_ms, self.now_ms));
        (hash, depth, age).hash(&mut hasher);
        hasher.finish()
    }

    /// Adds the line of an issue. `depth` is its depth in a tree. Columns of one face that follow
    /// each other are one run, with the spaces between them: Emacs allocates memory for each run.
    pub(crate) fn line(&self, page: &mut Page, row: &Row, depth: usize) {
        let start = page.position();
        page.add(if row.pending > 0 { "● " } else { "  " });
        let mut run: Option<(&'static str, usize)> = None;
        for column in &self.columns {
            let face = face(row, &column.name);
            if run.map(|(face, _)| face) != face {
                if let Some((face, start)) = run {
                    page.mark_face(start, face);
                }
                run = face.map(|face| (face, page.position()));
            }
            let mut text = cell(row, &column.name, self.now_ms);
            if column.name == "summary" && depth > 0 {
                text.to_mut()
                    .insert_str(0, &"  ".repeat(depth.min(INDENT_MAX)));
            }
            fit(page, &text, column.width);
            page.pad(usize::from(column.width > 0));
        }
        if let Some((face, start)) = run {
            page.mark_face(start, face);
        }
        page.mark(start, "issue", &row.key);
        page.add("\n");
    }
}

/// Columns of an export.
const EXPORT: &[&str] = &[
    "key", "type", "status", "priority", "assignee", "labels", "parent", "due", "summary",
];

/// Rows as `org`, `md`, `csv` or `json`; `None` for another format.
pub(crate) fn export(rows: &[&Row], format: &str) -> Option<String> {
    let mut out = String::new();
    let cells = |row: &Row| -> Vec<String> {
        EXPORT
            .iter()
            .map(|name| cell(row, name, 0).into_owned())
            .collect()
    };
    match format {
        "csv" => {
            _ = writeln!(out, "{}", EXPORT.join(","));
            for row in rows {
                let fields: Vec<String> = cells(row).iter().map(|text| quoted(text)).collect();
                _ = writeln!(out, "{}", fields.join(","));
            }
        }
        "json" => {
            // One object on each line.
            for row in rows {
                _ = writeln!(out, "{}", serde_json::to_string(row).ok()?);
            }
        }
        "org" | "md" => {
            _ = writeln!(out, "| {} |", EXPORT.join(" | "));
            let (left, between) = if format == "org" {
                ("|-", "-+-")
            } else {
                ("| ", " | ")
            };
            let dashes: Vec<&str> = EXPORT.iter().map(|_| "---").collect();
            let right = if format == "org" { "-|" } else { " |" };
            _ = writeln!(out, "{left}{}{right}", dashes.join(between));
            let bar = if format == "org" { "\\vert{}" } else { "\\|" };
            for row in rows {
                let fields: Vec<String> = cells(row)
                    .iter()
                    .map(|text| text.replace(['\n', '\r'], " ").replace('|', bar))
                    .collect();
                _ = writeln!(out, "| {} |", fields.join(" | "));
            }
        }
        _ => return None,
    }
    Some(out)
}

/// A field of CSV. A text that a spreadsheet would execute gets an apostrophe.
fn quoted(text: &str) -> String {
    let text = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{text}")
    } else {
        text.to_owned()
    };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}
