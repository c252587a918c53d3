//! Lists of issues: rows of columns with fixed widths, and exports.

use std::borrow::Cow;
use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar as _;
use weir_jira::index::Row;

use super::page::Page;

/// Limit on the indentation in a tree, in columns.
const INDENT_MAX: usize = 20;

/// A column: its name and its width; width 0 is the rest of the line.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) width: usize,
}

/// Fits a text into `width` columns of a screen: pads it, or truncates it with an ellipsis. Width 0
/// leaves it unchanged.
pub(crate) fn fitted(text: &str, width: usize) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    // Each of these bytes is one column wide.
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_plain && (width == 0 || text.len() <= width) {
        let mut out = String::with_capacity(width.max(text.len()));
        out.push_str(text);
        out.extend(std::iter::repeat_n(' ', width.saturating_sub(text.len())));
        return out;
    }
    if width == 0 {
        return text.chars().map(clean).collect();
    }
    let of = |c: char| c.width().unwrap_or(0);
    let whole: usize = text.chars().map(of).sum();
    let most = if whole > width { width - 1 } else { width };
    let (mut out, mut used) = (String::with_capacity(width), 0);
    for c in text.chars().map(clean) {
        if used + of(c) > most {
            break;
        }
        used += of(c);
        out.push(c);
    }
    if whole > width {
        out.push('…');
        used += 1;
    }
    out.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
    out
}

/// The time since `then_ms`, in at most four characters.
pub(crate) fn age(then_ms: i64, now_ms: i64) -> String {
    let minutes = (now_ms - then_ms).max(0) / 60_000;
    match minutes {
        0..60 => format!("{minutes}m"),
        60..1440 => format!("{}h", minutes / 60),
        1440..525_600 => format!("{}d", minutes / 1440),
        _ => format!("{}y", minutes / 525_600),
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
        "updated" => age(row.updated_ms, now_ms).into(),
        _ => "".into(),
    }
}

/// The face property of a status.
fn face(row: &Row) -> &'static str {
    match row.category.as_str() {
        "done" => "status-done",
        "indeterminate" => "status-active",
        _ => "status-new",
    }
}

/// Adds a row for an issue. `depth` is its depth in a tree.
pub(crate) fn line(page: &mut Page, row: &Row, columns: &[Column], depth: usize, now_ms: i64) {
    let start = page.here();
    page.add(if row.pending > 0 { "● " } else { "  " });
    for column in columns {
        let mut text = cell(row, &column.name, now_ms);
        if column.name == "summary" && depth > 0 {
            text.to_mut()
                .insert_str(0, &"  ".repeat(depth.min(INDENT_MAX)));
        }
        let text = fitted(&text, column.width);
        match column.name.as_str() {
            "key" => page.run("key", "", &text),
            "status" => page.run(face(row), "", &text),
            "updated" | "assignee" | "type" | "priority" => page.run("dim", "", &text),
            _ => page.add(&text),
        }
        if column.width > 0 {
            page.add(" ");
        }
    }
    page.mark(start, "issue", &row.key);
    page.add("\n");
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
    let text = if text.starts_with(['=', '+', '-', '@']) {
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
