//! Prints all data: rows of named fields as table, JSON, CSV or raw.
//!
//! A command declares its fields once, and every format is derived from them: JSON has every field
//! of the table. In JSON and CSV, sizes, counts and durations are plain numbers in base units; in
//! tables they are formatted for people. Times are RFC 3339 UTC.
//!
//! Invariants:
//! - No message is printed among the data.
//! - A table contains no control character.

use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal, Write};

use clap::ValueEnum;

use crate::bytes;
use crate::paint;
use crate::report::{self, Failure};
use crate::stall::StallDetector;
use weir::ErrorCode;

/// Maximum rows of a table that are buffered to find the widths of its columns.
const TABLE_ROWS_HELD: usize = 500;
/// Bytes of buffered output with which the output can count as stalled.
const STALL_BYTES: usize = 64 << 10;
/// Bytes of output that are buffered at most while stalls are detected. The rows of a table that
/// are printed together fit, except for rows that are longer.
const STALL_BYTES_MAX: usize = 8 << 20;
/// Bytes of the buffered rows of a table after which they are printed.
const TABLE_BYTES_HELD: usize = 4 << 20;
/// Maximum characters of a cell in a narrow table if the width of the terminal is unknown.
const CELL_CHARS_MAX: usize = 60;

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people
    Table,
    /// All columns, nothing cut off
    Wide,
    /// One JSON document
    Json,
    /// One JSON object a line
    Jsonl,
    /// Comma-separated values with a header
    Csv,
    /// Bare values
    Raw,
    /// The fields with their types
    Help,
}

impl Format {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Wide => "wide",
            Self::Json => "json",
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
            Self::Raw => "raw",
            Self::Help => "help",
        }
    }
}

/// The shape of the rows, which determines the default format and the structure of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One thing with properties: an object in JSON, one line for each property in a table.
    One,
    /// Several things: an array in JSON.
    List,
    /// A stream of things: lines of JSON in a pipe.
    Stream,
}

/// One named field of a row.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// Name in JSON. In capitals, the heading of the column.
    pub(crate) name: Cow<'static, str>,
    /// Type, as printed by `-o help`.
    pub(crate) kind: &'static str,
    /// Whether only `-o wide` shows it in a table.
    pub(crate) wide: bool,
    /// Description, with its unit.
    pub(crate) about: &'static str,
}

/// A field that every table shows.
pub(crate) const fn field(name: &'static str, kind: &'static str, about: &'static str) -> Field {
    let (name, wide) = (Cow::Borrowed(name), false);
    Field {
        name,
        kind,
        wide,
        about,
    }
}

/// A field that only wide tables show.
pub(crate) const fn wide(name: &'static str, kind: &'static str, about: &'static str) -> Field {
    let (name, wide) = (Cow::Borrowed(name), true);
    Field {
        name,
        kind,
        wide,
        about,
    }
}

/// The content of one field.
#[derive(Clone, Debug)]
pub(crate) enum Cell<'a> {
    /// Nothing: null, or an empty cell.
    Nothing,
    /// A text.
    Text(Cow<'a, str>),
    /// A number.
    Count(u64),
    /// Bytes, as a number.
    Size(u64),
    /// Milliseconds since 1970-01-01 UTC.
    Time(u64),
    /// Yes or no.
    Flag(bool),
    /// A key or other short bytes.
    Bytes(Cow<'a, [u8]>),
    /// A value.
    Value(Cow<'a, [u8]>),
    /// JSON, copied byte for byte.
    Json(Cow<'a, [u8]>),
    /// Nested things, each as a JSON object and as a line for people.
    Many(Vec<(String, String)>),
}

impl Cell<'_> {
    /// A number that may be below 0.
    pub(crate) fn signed(number: i64) -> Self {
        Cell::Json(number.to_string().into_bytes().into())
    }
}

/// The options for the output.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    /// `--output`.
    pub(crate) format: Option<Format>,
    /// `--columns`.
    pub(crate) columns: Option<Vec<String>>,
    /// `--no-headers`.
    pub(crate) no_headers: bool,
}

/// Prints rows.
pub(crate) struct Output {
    out: BufWriter<StallDetector>,
    format: Format,
    shape: Shape,
    fields: Cow<'static, [Field]>,
    /// Indexes of the shown fields, in order.
    shown: Vec<usize>,
    headers: bool,
    rows: usize,
    held: Vec<Vec<String>>,
    /// Bytes of the texts in `held`.
    held_bytes: usize,
    widths: Vec<usize>,
    /// Columns of the terminal; `None` if the table has no limit.
    width_max: Option<usize>,
    colours: bool,
    /// Whether standard output is a terminal.
    is_terminal: bool,
}

impl Style {
    /// The effective format for rows of this shape.
    pub(crate) fn format(&self, shape: Shape) -> Format {
        let piped = || !io::stdout().is_terminal();
        match self.format {
            Some(format) => format,
            None if shape == Shape::Stream && piped() => Format::Jsonl,
            None => Format::Table,
        }
    }

    /// Starts printing rows. `None` if `-o help` was given; the fields are then already printed.
    pub(crate) fn open(
        &self,
        shape: Shape,
        fields: impl Into<Cow<'static, [Field]>>,
    ) -> anyhow::Result<Option<Output>> {
        let fields = fields.into();
        let format = self.format(shape);
        if format == Format::Help {
            self.explain(&fields)?;
            return Ok(None);
        }
        let narrow = format == Format::Table;
        let shown = match &self.columns {
            Some(names) => columns(names, &fields)?,
            None => (0..fields.len())
                .filter(|at| !narrow || fields.get(*at).is_some_and(|field| !field.wide))
                .collect(),
        };
        Ok(Some(Output {
            out: BufWriter::new(StallDetector::default()),
            format,
            shape,
            fields,
            shown,
            headers: !self.no_headers,
            rows: 0,
            held: Vec::new(),
            held_bytes: 0,
            widths: Vec::new(),
            width_max: narrow.then(terminal_width).flatten(),
            colours: paint::is_on(io::stdout().is_terminal()),
            is_terminal: io::stdout().is_terminal(),
        }))
    }

    /// Prints the fields, for `-o help`.
    pub(crate) fn explain(&self, fields: &[Field]) -> anyhow::Result<()> {
        const HELP: &[Field] = &[
            field("field", "text", "name of the field"),
            field("type", "text", "its type in JSON"),
            field("about", "text", "what it means"),
        ];
        // Wide: a description is never cut off.
        let wide = Style {
            format: Some(Format::Wide),
            columns: None,
            no_headers: self.no_headers,
        };
        let Some(mut out) = wide.open(Shape::List, HELP)? else {
            return Ok(());
        };
        for field in fields {
            let text = |text| Cell::Text(Cow::Borrowed(text));
            out.row(&[text(&*field.name), text(field.kind), text(field.about)])?;
        }
        out.finish()
    }
}

fn columns(names: &[String], fields: &[Field]) -> anyhow::Result<Vec<usize>> {
    // In JSON, a value may be named `text` or `value64`, and a key `key64`.
    let plain = |name: &str| match name {
        "text" => "value".to_owned(),
        name => name.trim_end_matches("64").to_owned(),
    };
    let at = |name: &String| {
        let position = |name: &str| fields.iter().position(|field| field.name == name);
        let found = position(name).or_else(|| position(&plain(name)));
        found.ok_or_else(|| {
            let known: Vec<&str> = fields.iter().map(|field| &*field.name).collect();
            Failure::new(ErrorCode::BadOption, "cannot show the columns")
                .because(format!("there is no column {name}"))
                .advise(format!("choose from {}", known.join(",")))
                .into()
        })
    };
    names.iter().map(at).collect()
}

/// Columns of the terminal, or `COLUMNS`; `None` if there is no limit.
pub(crate) fn terminal_width() -> Option<usize> {
    let set = std::env::var("COLUMNS").ok().and_then(|n| n.parse().ok());
    let of_terminal = || {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        (size.ws_col > 0).then_some(usize::from(size.ws_col))
    };
    set.or_else(of_terminal).filter(|width| *width >= 20)
}

impl Output {
    /// Prints a row: one cell for each field.
    pub(crate) fn row(&mut self, cells: &[Cell<'_>]) -> anyhow::Result<()> {
        assert_eq!(cells.len(), self.fields.len(), "one cell for each field");
        let result = match self.format {
            Format::Table | Format::Wide => self.table(cells),
            Format::Json | Format::Jsonl => self.json(cells),
            Format::Csv => self.csv(cells),
            Format::Raw | Format::Help => self.raw(cells),
        };
        self.rows += 1;
        report::stdout(result)
    }

    /// Sets whether [`is_stalled`](Self::is_stalled) detects a stalled output. During the
    /// detection, rows do not block, except for very long ones.
    pub(crate) fn detect_stalls(&mut self, is_wanted: bool) -> anyhow::Result<()> {
        if is_wanted && self.out.capacity() < STALL_BYTES_MAX {
            report::stdout(self.out.flush())?;
            self.out = BufWriter::with_capacity(STALL_BYTES_MAX, StallDetector::default());
        }
        self.out.get_mut().is_wanted = is_wanted;
        Ok(())
    }

    /// Whether the reader of the output has paused. Writes the buffered output as far as the
    /// output accepts it; the rest stays buffered. Returns `false` while little is buffered.
    pub(crate) fn is_stalled(&mut self) -> anyhow::Result<bool> {
        if !self.out.get_ref().is_wanted || self.out.buffer().len() < STALL_BYTES {
            return Ok(false);
        }
        // Nothing may remain in the buffer of the standard library, which is not used below.
        report::stdout(io::stdout().flush())?;
        self.out.get_mut().is_active = true;
        let flushed = self.out.flush();
        self.out.get_mut().is_active = false;
        match flushed {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            flushed => report::stdout(flushed).map(|()| false),
        }
    }

    /// Writes all buffered output.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        let result = self.flush_table().and_then(|()| self.out.flush());
        report::stdout(result)
    }

    /// Ends the document.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        let end = match (self.format, self.shape, self.rows) {
            (Format::Json, Shape::One, _) | (Format::Jsonl, _, _) => "",
            (Format::Json, _, 0) => "[]\n",
            (Format::Json, _, _) => "\n]\n",
            _ => "",
        };
        let result = self
            .flush_table()
            .and_then(|()| self.out.write_all(end.as_bytes()));
        report::stdout(result)?;
        if self.rows == 0 && self.shape != Shape::One && self.headers {
            let result = self.headings();
            report::stdout(result)?;
        }
        report::stdout(self.out.flush())
    }

    fn json(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        let start = match (self.format, self.shape) {
            (Format::Json, Shape::List | Shape::Stream) if self.rows == 0 => "[\n",
            (Format::Json, Shape::List | Shape::Stream) => ",\n",
            _ => "",
        };
        self.out.write_all(start.as_bytes())?;
        let mut separator = "{";
        for (field, cell) in self
            .shown
            .iter()
            .filter_map(|at| pair(&self.fields, cells, *at))
        {
            self.out.write_all(separator.as_bytes())?;
            let mut member = member(&field.name, cell);
            if self.is_terminal {
                member = bytes::escape_controls_in_json(member);
            }
            let painted = if self.colours {
                paint::json(&member)
            } else {
                member
            };
            self.out.write_all(painted.as_bytes())?;
            separator = ",";
        }
        self.out.write_all(b"}")?;
        if self.format == Format::Jsonl || self.shape == Shape::One {
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    fn csv(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        if self.rows == 0 && self.headers {
            self.headings()?;
        }
        let line: Vec<String> = self
            .shown
            .iter()
            .filter_map(|at| cells.get(*at))
            .map(|cell| quoted(&plain(cell)))
            .collect();
        self.out.write_all(line.join(",").as_bytes())?;
        self.out.write_all(b"\r\n")
    }

    /// Prints the value of a row unchanged. If there is none, or if the user has chosen other
    /// columns, prints the cells separated by tabs.
    fn raw(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        let shown = self.shown.iter().filter_map(|at| cells.get(*at));
        let shown: Vec<&Cell<'_>> = shown.collect();
        let value = match shown.as_slice() {
            [Cell::Value(bytes)] => Some(bytes),
            all if all.len() == self.fields.len() => all.iter().find_map(|cell| match cell {
                Cell::Value(bytes) => Some(bytes),
                _ => None,
            }),
            _ => None,
        };
        if let Some(bytes) = value {
            self.out.write_all(bytes)?;
        } else {
            let line: Vec<String> = shown.into_iter().map(plain).collect();
            self.out.write_all(line.join("\t").as_bytes())?;
        }
        self.out.write_all(b"\n")
    }

    fn table(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        if self.shape == Shape::One {
            let shown = self.shown.iter();
            let pairs: Vec<_> = shown
                .filter_map(|at| pair(&self.fields, cells, *at))
                .collect();
            let width = pairs.iter().map(|(field, _)| field.name.len()).max();
            for (field, cell) in pairs {
                let name = format!("{:width$}", field.name, width = width.unwrap_or(0));
                let text = self.painted(field, human(cell));
                if self.headers {
                    writeln!(self.out, "{name}  {text}")?;
                } else {
                    writeln!(self.out, "{text}")?;
                }
            }
            return Ok(());
        }
        let row = self.shown.iter().filter_map(|at| cells.get(*at)).map(human);
        let row: Vec<String> = row.collect();
        self.held_bytes += row.iter().map(String::len).sum::<usize>();
        self.held.push(row);
        if self.held.len() >= TABLE_ROWS_HELD || self.held_bytes >= TABLE_BYTES_HELD {
            self.flush_table()?;
        }
        Ok(())
    }

    /// Prints the buffered rows of a table.
    fn flush_table(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let first = self.widths.is_empty();
        self.widths.resize(self.shown.len(), 0);
        if self.headers {
            let names = self.shown.iter().filter_map(|at| self.fields.get(*at));
            for (width, field) in self.widths.iter_mut().zip(names) {
                *width = (*width).max(field.name.len());
            }
        }
        for row in &self.held {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        self.fit();
        if first && self.headers {
            self.headings()?;
        }
        self.held_bytes = 0;
        for row in std::mem::take(&mut self.held) {
            self.line(&row, false)?;
        }
        Ok(())
    }

    /// Narrows the widest column until the table fits.
    fn fit(&mut self) {
        if self.format == Format::Wide {
            return;
        }
        let Some(width_max) = self.width_max else {
            for width in &mut self.widths {
                *width = (*width).min(CELL_CHARS_MAX);
            }
            return;
        };
        let gaps = 2 * self.widths.len().saturating_sub(1);
        loop {
            let used: usize = self.widths.iter().sum::<usize>() + gaps;
            let widest = self.widths.iter_mut().max_by_key(|width| **width);
            match widest {
                Some(width) if used > width_max && *width > 6 => {
                    *width = width.saturating_sub(used - width_max).max(6);
                }
                _ => return,
            }
        }
    }

    fn headings(&mut self) -> io::Result<()> {
        let names = self.shown.iter().filter_map(|at| self.fields.get(*at));
        match self.format {
            Format::Table | Format::Wide => {
                let names: Vec<String> = names.map(|field| field.name.to_uppercase()).collect();
                if self.widths.is_empty() {
                    self.widths = names.iter().map(String::len).collect();
                }
                self.line(&names, true)
            }
            Format::Csv => {
                let names: Vec<String> = names.map(|field| quoted(&field.name)).collect();
                write!(self.out, "{}\r\n", names.join(","))
            }
            _ => Ok(()),
        }
    }

    fn line(&mut self, cells: &[String], heading: bool) -> io::Result<()> {
        let mut line = String::new();
        let last = cells.len().saturating_sub(1);
        for (at, (cell, width)) in cells.iter().zip(&self.widths).enumerate() {
            let chars = cell.chars().count();
            let text = if chars > *width {
                let start = cell.chars().take(width.saturating_sub(1));
                start.chain(['…']).collect()
            } else {
                cell.clone()
            };
            let field = self.shown.get(at).and_then(|at| self.fields.get(*at));
            match field.filter(|_| !heading) {
                Some(field) => line.push_str(&self.painted(field, text)),
                None => line.push_str(&text),
            }
            if at < last {
                line.extend(std::iter::repeat_n(' ', width.saturating_sub(chars) + 2));
            }
        }
        writeln!(self.out, "{}", line.trim_end())
    }

    /// Colours a cell: a value, or the effect of a write.
    fn painted(&self, field: &Field, text: String) -> String {
        match &*field.name {
            _ if !self.colours => text,
            "effect" if text == "VALID" => paint::paint(&text, paint::GREEN, true),
            "effect" => paint::paint(&text, paint::RED, true),
            "value" => paint::json(&text),
            _ if field.kind == "json" => paint::json(&text),
            _ => text,
        }
    }
}

impl Drop for Output {
    /// After an error, prints the rows of a table that are still buffered.
    fn drop(&mut self) {
        // The error of the command is reported, not one of this write.
        drop(self.flush_table());
    }
}

fn pair<'a, 'c>(
    fields: &'a [Field],
    cells: &'a [Cell<'c>],
    at: usize,
) -> Option<(&'a Field, &'a Cell<'c>)> {
    fields.get(at).zip(cells.get(at))
}

/// A member of a JSON object.
fn member(name: &str, cell: &Cell<'_>) -> String {
    match cell {
        Cell::Nothing => format!("{}:null", bytes::json_string(name)),
        Cell::Text(text) => format!("\"{name}\":{}", bytes::json_string(text)),
        Cell::Count(n) | Cell::Size(n) => format!("\"{name}\":{n}"),
        Cell::Time(ms) => format!("\"{name}\":\"{}\"", time(*ms)),
        Cell::Flag(flag) => format!("\"{name}\":{flag}"),
        Cell::Bytes(bytes) => bytes::json_bytes(name, bytes),
        Cell::Value(bytes) => bytes::json_value(bytes),
        Cell::Json(json) => {
            let json = String::from_utf8_lossy(json).replace(['\n', '\r'], " ");
            format!("{}:{json}", bytes::json_string(name))
        }
        Cell::Many(list) => {
            let objects: Vec<&str> = list.iter().map(|(json, _)| json.as_str()).collect();
            format!("\"{name}\":[{}]", objects.join(","))
        }
    }
}

/// Formats a cell for programs that read columns.
fn plain(cell: &Cell<'_>) -> String {
    match cell {
        Cell::Bytes(bytes) | Cell::Value(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => format!("base64:{}", bytes::base64(bytes)),
        },
        Cell::Size(n) => n.to_string(),
        Cell::Json(json) => bare_json(json),
        cell => human(cell),
    }
}

/// JSON for a column: a string without quotes and escapes, everything else unchanged.
fn bare_json(json: &[u8]) -> String {
    if json.first() == Some(&b'"') {
        weir::query::unquoted(json)
    } else {
        String::from_utf8_lossy(json).into_owned()
    }
}

/// Formats a cell for people.
fn human(cell: &Cell<'_>) -> String {
    match cell {
        Cell::Nothing => String::new(),
        Cell::Text(text) => bytes::printable(text.as_bytes()),
        Cell::Count(n) => n.to_string(),
        Cell::Size(n) => size(*n),
        Cell::Time(ms) => time(*ms),
        Cell::Flag(flag) => flag.to_string(),
        Cell::Bytes(bytes) | Cell::Value(bytes) => bytes::printable(bytes),
        Cell::Json(json) => bytes::printable(bare_json(json).as_bytes()),
        Cell::Many(list) if list.is_empty() => "none".to_owned(),
        Cell::Many(list) => {
            let lines = list
                .iter()
                .map(|(_, line)| bytes::printable(line.as_bytes()));
            lines.collect::<Vec<_>>().join("; ")
        }
    }
}

/// RFC 3339, UTC, with milliseconds.
pub(crate) fn time(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => ms.to_string(),
    }
}

/// Bytes in binary units.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut whole, mut tenths, mut unit) = (bytes, 0, "B");
    for next in UNITS {
        if whole < 1024 {
            break;
        }
        (tenths, whole, unit) = ((whole % 1024) * 10 / 1024, whole / 1024, next);
    }
    if unit == "B" {
        format!("{whole} B")
    } else {
        format!("{whole}.{tenths} {unit}")
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units_for_people() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(u64::MAX), "16383.9 PiB");
        assert_eq!(time(1_790_000_000_000), "2026-09-21T14:13:20.000Z");
    }

    #[test]
    fn a_table_buffers_a_limited_number_of_bytes() {
        let style = Style {
            format: Some(Format::Table),
            columns: None,
            no_headers: true,
        };
        let fields = vec![field("value", "bytes", "a value")];
        let mut out = style.open(Shape::List, fields).ok().flatten().unwrap();
        let value = vec![b'x'; 1 << 20];
        let mut held_max = 0;
        for _ in 0..10 {
            out.row(&[Cell::Value(Cow::Borrowed(&value))]).unwrap();
            held_max = held_max.max(out.held.len());
        }
        assert_eq!(held_max, 3);
        // Nothing is printed.
        out.held.clear();
        let empty = BufWriter::new(StallDetector::default());
        let written = std::mem::replace(&mut out.out, empty);
        drop(written.into_parts());
    }

    /// The columns of a query have names of the user.
    #[test]
    fn a_name_is_escaped_with_a_value_and_without() {
        let json = Cell::Json(Cow::Borrowed(&b"1"[..]));
        assert_eq!(member("a\"b", &json), "\"a\\\"b\":1");
        assert_eq!(member("a\"b", &Cell::Nothing), "\"a\\\"b\":null");
    }

    #[test]
    fn a_number_below_zero_is_a_number() {
        let number = Cell::signed(-5);
        assert_eq!(member("n", &number), "\"n\":-5");
        assert_eq!(plain(&number), "-5");
        assert_eq!(human(&number), "-5");
    }

    #[test]
    fn csv_cells_are_quoted_when_they_must_be() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
