//! Prints results of a query as bare JSON or as rows.

use std::borrow::Cow;
use std::io::{self, BufWriter, Stdout, Write};

use weir::query::{Explain, ResultPage, SourceId};

use crate::output::{Cell, Field, Format, Output, Shape, Style, field};
use crate::report;

/// Fields of a row.
const FIELDS: &[Field] = &[
    field(
        "source",
        "text",
        "file or topic; null for what was aggregated",
    ),
    field("value", "bytes", "the result"),
];

const EXPLAIN: &[Field] = &[
    field("mode", "text", "in which order results come"),
    field(
        "streaming",
        "bool",
        "whether results come before all pages have",
    ),
    field("paths", "text", "what is found while a page is scanned"),
    field("properties", "text", "properties of records that are read"),
    field("decoded", "text", "what is decoded beside names"),
    field("holds", "text", "what has to be held, and its bound"),
    field("resumable", "text", "yes, or why not"),
];

/// Prints results.
pub(super) enum Printer {
    /// JSON as it was stored, one result a line or all as one array.
    Bare {
        out: BufWriter<Stdout>,
        format: Format,
        count: u64,
    },
    /// Rows with the source.
    Rows(Output),
}

impl Printer {
    /// Returns `None` after it has printed the help of `-o help`. `made`: no result has a source.
    pub(super) fn open(style: &Style, made: bool) -> anyhow::Result<Option<Self>> {
        let format = style.format(Shape::Stream);
        let bare = matches!(format, Format::Json | Format::Jsonl | Format::Raw);
        if bare && style.columns.is_none() {
            return Ok(Some(Self::Bare {
                out: BufWriter::with_capacity(1 << 16, io::stdout()),
                format,
                count: 0,
            }));
        }
        let bare_table = made && format == Format::Table && style.columns.is_none();
        let style = Style {
            format: style.format,
            columns: if bare_table {
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
            Self::Bare { out, format, count } => {
                for item in page.iter() {
                    report::stdout(bare(out, *format, *count, item))?;
                    *count += 1;
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
            Self::Rows(out) => out.flush(),
        }
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Bare {
                mut out,
                format,
                count,
            } => {
                let end: &[u8] = match (format, count) {
                    (Format::Json, 0) => b"[]\n",
                    (Format::Json, _) => b"\n]\n",
                    _ => b"",
                };
                report::stdout(out.write_all(end).and_then(|()| out.flush()))
            }
            Self::Rows(out) => out.finish(),
        }
    }
}

fn bare(out: &mut impl Write, format: Format, count: u64, item: &[u8]) -> io::Result<()> {
    match format {
        Format::Json => {
            out.write_all(if count == 0 { b"[\n" } else { b",\n" })?;
            out.write_all(if item.is_empty() { b"null" } else { item })
        }
        Format::Jsonl => {
            // A line feed in JSON is white space between tokens.
            if item.is_empty() {
                out.write_all(b"null")?;
            }
            for line in item.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
                match line.split_last() {
                    Some((b'\n' | b'\r', before)) => {
                        out.write_all(before)?;
                        out.write_all(b" ")?;
                    }
                    _ => out.write_all(line)?,
                }
            }
            out.write_all(b"\n")
        }
        _ => {
            out.write_all(item)?;
            out.write_all(b"\n")
        }
    }
}

/// Prints a plan.
pub(super) fn explain(style: &Style, plan: &Explain) -> anyhow::Result<()> {
    let Some(mut out) = style.open(Shape::One, EXPLAIN)? else {
        return Ok(());
    };
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
