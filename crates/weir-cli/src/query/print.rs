//! Prints results of a query as bare JSON or as rows.

use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use weir::query::{self, Explain, Item, Path, PathSet, ResultPage, SourceId, Value};

use crate::output::{Cell, Field, Format, Output, Shape, Style, field};
use crate::paint;
use crate::report;

/// A column of a result. Empty JSON is a missing value.
fn cell(json: &[u8]) -> Cell<'_> {
    if json.is_empty() {
        Cell::Nothing
    } else {
        Cell::Json(Cow::Borrowed(json))
    }
}

/// Fields of a row.
const FIELDS: &[Field] = &[
    field(
        "source",
        "text",
        "file or topic of the item, null: aggregate",
    ),
    field("value", "bytes", "result, byte for byte"),
];

const EXPLAIN: &[Field] = &[
    field(
        "mode",
        "text",
        "order of the results: sequential, round_robin, arrival, merge or sort",
    ),
    field(
        "streaming",
        "bool",
        "whether results are printed before all pages are read",
    ),
    field(
        "paths",
        "text",
        "paths that are found while a page is scanned",
    ),
    field(
        "properties",
        "text",
        "properties of records (meta) that the query reads",
    ),
    field("decoded", "text", "values that are decoded, besides names"),
    field(
        "holds",
        "text",
        "data that must stay in memory, and its bound",
    ),
    field(
        "resumable",
        "text",
        "whether a checkpoint can resume the query: yes, or the reason why not",
    ),
];

/// Prints results.
pub(super) enum Printer {
    /// JSON as stored, one result per line or all in one array.
    Bare {
        out: BufWriter<Stdout>,
        bare: BareFormat,
        count: u64,
    },
    /// Rows with the source.
    Rows(Output),
    /// Rows with the columns of the results.
    Columns {
        out: Output,
        /// The members of a result that the query built.
        members: PathSet,
    },
}

/// How bare results are printed.
#[derive(Debug)]
pub(super) struct BareFormat {
    format: Format,
    /// Whether strings are printed without quotes and escapes.
    strings: bool,
    /// The names of a projection, each a comma, a JSON string and a colon, in colour if that is on.
    names: Vec<String>,
    /// The members that are columns of a result that the query built; `None` if the result is
    /// printed as JSON.
    members: Option<PathSet>,
    colours: bool,
}

/// The members of a result that the query built, in the order of its columns.
fn members(columns: &[String]) -> anyhow::Result<PathSet> {
    let member = |name: &String| format!("$[{}]", query::quoted(name)).parse::<Path>();
    let members: Result<Vec<Path>, _> = columns.iter().map(member).collect();
    Ok(PathSet::new(&members?)?)
}

impl Printer {
    /// Returns `None` after it has printed the output of `-o help`. `columns`: the columns of the
    /// results; empty if each result is one value. `constructed`: results have no source.
    /// `strings`: strings are printed without quotes.
    pub(super) fn open(
        style: &Style,
        columns: &[String],
        constructed: bool,
        strings: bool,
    ) -> anyhow::Result<Option<Self>> {
        let format = match style.format(Shape::Stream) {
            _ if strings => Format::Raw,
            format => format,
        };
        let bare = matches!(format, Format::Json | Format::Jsonl | Format::Raw);
        if bare && style.columns.is_none() {
            let colours = paint::is_on(io::stdout().is_terminal());
            let names = columns.iter().map(|name| {
                let name = format!("{}:", query::quoted(name));
                let name = if colours { paint::json(&name) } else { name };
                format!(",{name}")
            });
            let in_columns = strings && !columns.is_empty();
            let bare = BareFormat {
                format,
                strings,
                names: names.collect(),
                members: in_columns.then(|| members(columns)).transpose()?,
                colours,
            };
            return Ok(Some(Self::Bare {
                out: BufWriter::with_capacity(1 << 16, io::stdout()),
                bare,
                count: 0,
            }));
        }
        if !columns.is_empty() && format != Format::Help {
            let fields = columns.iter().map(|name| Field {
                name: Cow::Owned(name.clone()),
                ..field("", "json", "a column of the results")
            });
            let fields: Vec<Field> = fields.collect();
            let members = members(columns)?;
            let out = style.open(Shape::Stream, fields)?;
            return Ok(out.map(|out| Self::Columns { out, members }));
        }
        let alone = constructed && style.columns.is_none() && format != Format::Help;
        let style = Style {
            format: style.format,
            columns: if alone {
                Some(vec!["value".to_owned()])
            } else {
                style.columns.clone()
            },
            no_headers: style.no_headers,
        };
        Ok(style.open(Shape::Stream, FIELDS)?.map(Self::Rows))
    }

    pub(super) fn page(
        &mut self,
        page: &ResultPage,
        name: impl Fn(SourceId) -> String,
    ) -> anyhow::Result<()> {
        match self {
            Self::Bare { out, bare, count } => {
                for (at, item) in page.items().iter().enumerate() {
                    report::stdout(bare.item(out, *count, page, (at, item)))?;
                    *count += 1;
                }
            }
            Self::Columns { out, members } => {
                let mut found = Vec::new();
                for (at, item) in page.items().iter().enumerate() {
                    let bytes = page.bytes(item);
                    let cells: Vec<Cell<'_>> = if item.constructed {
                        query::find(bytes, members, &mut found)?;
                        found
                            .iter()
                            .map(|value| cell(value.span.of(bytes)))
                            .collect()
                    } else {
                        let values = page.values(at).iter();
                        values.map(|value| cell(page.value(item, *value))).collect()
                    };
                    out.row(&cells)?;
                }
            }
            Self::Rows(out) => {
                for item in page.items() {
                    let source = if item.constructed {
                        Cell::Nothing
                    } else {
                        Cell::Text(Cow::Owned(name(item.source)))
                    };
                    out.row(&[source, Cell::Value(Cow::Borrowed(page.bytes(item)))])?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Bare { out, .. } => report::stdout(out.flush()),
            Self::Rows(out) | Self::Columns { out, .. } => out.flush(),
        }
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Bare {
                mut out,
                bare,
                count,
            } => {
                let end: &[u8] = match (bare.format, count) {
                    (Format::Json, 0) => b"[]\n",
                    (Format::Json, _) => b"\n]\n",
                    _ => b"",
                };
                report::stdout(out.write_all(end).and_then(|()| out.flush()))
            }
            Self::Rows(out) | Self::Columns { out, .. } => out.finish(),
        }
    }
}

impl BareFormat {
    /// Prints a result of a page. `count` results were printed before.
    fn item(
        &self,
        out: &mut impl Write,
        count: u64,
        page: &ResultPage,
        (at, item): (usize, &Item),
    ) -> io::Result<()> {
        let is_array = self.format == Format::Json;
        if is_array {
            out.write_all(if count == 0 { b"[\n" } else { b",\n" })?;
        }
        let values = page.values(at);
        if let Some(members) = self.members.as_ref().filter(|_| item.constructed) {
            let (bytes, mut found) = (page.bytes(item), Vec::new());
            query::find(bytes, members, &mut found).map_err(io::Error::other)?;
            self.columns(out, found.iter().map(|value| value.span.of(bytes)))?;
        } else if values.is_empty() {
            self.value(out, page.bytes(item), None)?;
        } else if self.format == Format::Raw {
            self.columns(out, values.iter().map(|value| page.value(item, *value)))?;
        } else {
            self.object(out, page, (item, values))?;
        }
        if is_array {
            return Ok(());
        }
        out.write_all(b"\n")
    }

    /// Prints columns with tabs between them.
    fn columns<'a>(
        &self,
        out: &mut impl Write,
        values: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        for (column, value) in values.enumerate() {
            out.write_all(if column > 0 { b"\t" } else { b"" })?;
            self.value(out, value, Some(b'\t'))?;
        }
        Ok(())
    }

    /// Prints a projection as an object, without missing values.
    fn object(
        &self,
        out: &mut impl Write,
        page: &ResultPage,
        (item, values): (&Item, &[Value]),
    ) -> io::Result<()> {
        out.write_all(b"{")?;
        // The first member has no comma.
        let mut omitted = 1;
        for (name, value) in self.names.iter().zip(values) {
            let bytes = page.value(item, *value);
            if !bytes.is_empty() {
                out.write_all(name.as_bytes().get(omitted..).unwrap_or_default())?;
                self.value(out, bytes, None)?;
                omitted = 0;
            }
        }
        out.write_all(b"}")
    }

    /// Prints a value. `separator`: the separator of columns, which an unquoted string must not
    /// contain.
    fn value(&self, out: &mut impl Write, value: &[u8], separator: Option<u8>) -> io::Result<()> {
        if self.strings && value.first() == Some(&b'"') {
            let text = query::unquoted(value);
            if separator.is_none() {
                return out.write_all(text.as_bytes());
            }
            let text = text.replace('\\', "\\\\").replace('\t', "\\t");
            let text = text.replace('\n', "\\n").replace('\r', "\\r");
            return out.write_all(text.as_bytes());
        }
        let value = match (self.format, value) {
            (Format::Json | Format::Jsonl, []) => b"null",
            (_, value) => value,
        };
        let on_one_line = self.format == Format::Jsonl || separator.is_some();
        let separator = separator.unwrap_or(b'\n');
        // The search has no branches and does not end early, so that it compares many bytes at a
        // time.
        let is = |byte: u8, other: u8| u8::from(byte == other);
        let ends = |byte: u8| is(byte, b'\n') | is(byte, b'\r') | is(byte, separator);
        let or = |found: u8, byte: &u8| found | ends(*byte);
        let value = if on_one_line && value.iter().fold(0, or) != 0 {
            // In JSON, such a byte occurs only as white space between tokens.
            let line = value
                .iter()
                .map(|byte| if ends(*byte) == 0 { *byte } else { b' ' });
            Cow::Owned(line.collect())
        } else {
            Cow::Borrowed(value)
        };
        if self.colours
            && let Ok(text) = std::str::from_utf8(&value)
        {
            return out.write_all(paint::json(text).as_bytes());
        }
        out.write_all(&value)
    }
}

/// Starts the output of a plan. `None` after it has printed the output of `-o help`.
pub(super) fn open_plan(style: &Style) -> anyhow::Result<Option<Output>> {
    style.open(Shape::One, EXPLAIN)
}

/// Prints a plan.
pub(super) fn explain(mut out: Output, plan: &Explain) -> anyhow::Result<()> {
    let list = |items: &[String]| Cell::Text(Cow::Owned(items.join("; ")));
    out.row(&[
        Cell::Text(Cow::Borrowed(plan.mode.name())),
        Cell::Flag(plan.streaming),
        list(&plan.paths),
        list(&plan.properties),
        list(&plan.decoded),
        list(&plan.holds),
        Cell::Text(match plan.no_token {
            None => Cow::Borrowed("yes"),
            Some(why) => Cow::Owned(format!("no: {why}")),
        }),
    ])?;
    out.finish()
}
