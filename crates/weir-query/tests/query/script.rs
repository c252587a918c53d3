//! Parses and runs the commands of the transcripts.
//!
//! ```text
//! set FIELD VALUE        sets a field of the next query (where, order, select, ...)
//! budget NAME N          sets a budget of the next query
//! open                   creates the query
//! source NAME OPTION...  adds a source: sorted, unstable, partial, shape=, level=, ordinal=,
//!                        tie=, first=, bound=, meta.NAME=
//! page NAME NEXT BYTES   adds a page of a source, and the continuation of the next page
//! last NAME BYTES        adds the last page of a source
//! frames NAME ITEMS BYTES  adds the last page with frames: for each item OFFSET+LENGTH, then
//!                        /PROPERTY=VALUE, a number or OFFSET+LENGTH; commas between items
//! finish NAME            ends a source without another page
//! split NAME PART...     replaces a source by parts with its options
//! watermark NAME KEY...  sets the lower bound of the further items of a source
//! next [N]               prints results, needs, or the end
//! values PATH...         as `next`, but prints for each item the values at these paths,
//!                        separated by ` | `; `-` for undefined
//! needs                  prints the pages that are needed now
//! stop                   takes a token and drops the query
//! resume                 resumes from the token; sources must be added again
//! explain                prints the plan
//! ```
//!
//! In `BYTES`, `\n` is a line feed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use weir_query::{
    BadItem, Bounds, Budgets, Complex, Frames, Level, Meta, Missing, Mode, Need, PageIn, Path,
    PathSet, Plan, Query, QueryError, QueryText, SourceId, SourceOptions, Span, Step, Strings, Tag,
    find_each, parse_shape,
};

#[derive(Default)]
pub(crate) struct World {
    text: QueryText,
    budgets: Budgets,
    query: Option<Query>,
    names: BTreeMap<String, SourceId>,
    options: BTreeMap<String, SourceOptions>,
    token: Vec<u8>,
}

impl World {
    pub(crate) fn run(&mut self, line: &str, out: &mut String) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let done = match word {
            "set" => {
                self.set(rest);
                Ok(())
            }
            "budget" => {
                self.budget(rest);
                Ok(())
            }
            "open" => self.open(),
            "resume" => self.resume(),
            "stop" => self.stop(),
            "next" => self.next(rest, None, out),
            "values" => {
                let paths = rest.split(' ').map(|path| path.parse().unwrap());
                let paths = PathSet::new(&paths.collect::<Vec<Path>>()).unwrap();
                self.next("", Some(&paths), out)
            }
            _ => self.other(word, rest, out),
        };
        if let Err(error) = done {
            writeln!(out, "{}: {error}", error.code().name()).unwrap();
        }
    }

    fn set(&mut self, rest: &str) {
        let (field, value) = rest.split_once(' ').unwrap_or((rest, ""));
        let text = &mut self.text;
        match field {
            "none" => *text = QueryText::default(),
            "where" => text.filter = value.into(),
            "order" => text.order = value.into(),
            "select" => text.select = value.into(),
            "group" => text.group = value.into(),
            "distinct" => text.distinct = true,
            "offset" => text.offset = value.parse().unwrap(),
            "limit" => text.limit = Some(value.parse().unwrap()),
            "top" => text.top = Some(value.parse().unwrap()),
            "param" => {
                let (name, value) = value.split_once(' ').unwrap();
                text.params.push((name.into(), value.into()));
            }
            "strings" => text.strings = Strings::Utf16,
            "complex" => text.complex = Complex::Rank,
            "missing" => text.missing = Missing::Drop,
            "strict" => text.level = Level::Strict,
            "bad" if value == "skip" => text.on_bad_item = BadItem::Skip,
            "bad" => text.on_bad_item = BadItem::Undefined,
            "mode" => {
                text.mode = Some(match value {
                    "sequential" => Mode::Sequential,
                    "arrival" => Mode::Arrival,
                    "round_robin" => Mode::RoundRobin,
                    "merge" => Mode::Merge,
                    "sort" => Mode::Sort,
                    other => panic!("no mode {other}"),
                });
            }
            other => panic!("no field {other}"),
        }
    }

    fn budget(&mut self, rest: &str) {
        let (name, value) = rest.split_once(' ').unwrap();
        let value: u64 = value.parse().unwrap();
        let small = usize::try_from(value).unwrap();
        match name {
            "buffer" => self.budgets.buffer_bytes_max = value,
            "ahead" => self.budgets.pages_ahead = u32::try_from(value).unwrap(),
            "sort" => self.budgets.sort_bytes_max = value,
            "groups" => self.budgets.groups_max = small,
            "distinct" => self.budgets.distinct_max = small,
            "sources" => self.budgets.sources_max = small,
            "item" => self.budgets.item_bytes_max = value,
            "depth" => self.budgets.depth_max = u32::try_from(value).unwrap(),
            other => panic!("no budget {other}"),
        }
    }

    fn open(&mut self) -> Result<(), QueryError> {
        self.names.clear();
        self.query = None;
        let plan = Arc::new(self.text.compile()?);
        self.query = Some(Query::new(plan, self.budgets));
        Ok(())
    }

    fn stop(&mut self) -> Result<(), QueryError> {
        self.token = self.query.as_ref().expect("a query").token()?;
        self.query = None;
        Ok(())
    }

    fn resume(&mut self) -> Result<(), QueryError> {
        self.names.clear();
        let plan = Arc::new(self.text.compile()?);
        self.query = Some(Query::resume(plan, self.budgets, &self.token)?);
        Ok(())
    }

    fn next(
        &mut self,
        rest: &str,
        paths: Option<&PathSet>,
        out: &mut String,
    ) -> Result<(), QueryError> {
        let bounds = Bounds {
            items_max: rest.parse().unwrap_or(256),
            ..Bounds::default()
        };
        let query = self.query.as_mut().expect("a query");
        match query.next(bounds)? {
            Step::Done => writeln!(out, "done").unwrap(),
            Step::Need(needs) => {
                for need in &needs {
                    self.need(need, out);
                }
            }
            Step::Ready(page) => {
                if let Some(paths) = paths {
                    let mut table = Vec::new();
                    find_each(page.iter(), paths, &mut table);
                    for (item, row) in page.iter().zip(table.chunks(paths.len())) {
                        let values = row.iter().map(|value| match value.tag {
                            Tag::Undefined => "-".into(),
                            _ => String::from_utf8_lossy(value.span.of(item)),
                        });
                        let values: Vec<_> = values.collect();
                        writeln!(out, "{}", values.join(" | ")).unwrap();
                    }
                    return Ok(());
                }
                for item in page.items() {
                    let bytes = String::from_utf8_lossy(page.bytes(item));
                    let bytes = bytes.replace('\n', "\\n");
                    let name = if item.constructed {
                        "constructed"
                    } else {
                        self.name(item.source)
                    };
                    writeln!(out, "{name} {bytes}").unwrap();
                }
                if page.skipped() > 0 {
                    writeln!(out, "skipped {}", page.skipped()).unwrap();
                }
            }
        }
        Ok(())
    }

    fn name(&self, source: SourceId) -> &str {
        let found = self.names.iter().find(|(_, id)| **id == source);
        found.map_or("?", |(name, _)| name)
    }

    fn need(&self, need: &Need, out: &mut String) {
        let word = if need.required { "need" } else { "ahead" };
        write!(out, "{word} {}", self.name(need.source)).unwrap();
        if let Some(text) = &need.continuation {
            write!(out, " {}", String::from_utf8_lossy(text)).unwrap();
        }
        out.push('\n');
    }

    fn other(&mut self, word: &str, rest: &str, out: &mut String) -> Result<(), QueryError> {
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "explain" => {
                write!(out, "{}", self.query.as_ref().expect("a query").explain()).unwrap();
                return Ok(());
            }
            "abandon" => {
                let query = self.query.as_mut().expect("a query");
                return query.abandon(name.as_bytes());
            }
            "needs" => {
                for need in self.query.as_ref().expect("a query").needs() {
                    self.need(&need, out);
                }
                return Ok(());
            }
            "source" => {
                let options = options(name, rest)?;
                let query = self.query.as_mut().expect("a query");
                let id = query.add_source(options.clone())?;
                self.names.insert(name.into(), id);
                self.options.insert(name.into(), options);
                return Ok(());
            }
            _ => {}
        }
        let query = self.query.as_mut().expect("a query");
        let id = self.names.get(name).copied().unwrap_or(SourceId(99));
        let bytes = |text: &str| Bytes::from(text.replace("\\n", "\n"));
        match word {
            "page" => {
                let (next, page) = rest.split_once(' ').unwrap_or((rest, ""));
                query.enqueue(id, bytes(page), Some(Bytes::from(next.to_owned())))
            }
            "frames" => {
                let (items, page) = rest.split_once(' ').unwrap();
                let page = PageIn {
                    bytes: bytes(page),
                    frames: Some(frames(query.plan(), items)),
                };
                query.enqueue(id, page, None)
            }
            "last" => query.enqueue(id, bytes(rest), None),
            "finish" => query.finish(id),
            "watermark" => {
                let keys: Vec<String> = rest.split(' ').map(str::to_owned).collect();
                query.watermark(id, &keys)
            }
            "split" => {
                let mut parts = Vec::new();
                for part in rest.split(' ').filter(|part| !part.is_empty()) {
                    let (part, first) = part.split_once('=').unwrap_or((part, ""));
                    let mut options = self.options[name].clone();
                    options.name = part.as_bytes().to_vec();
                    options.ordinal = None;
                    options.first = (!first.is_empty()).then(|| Bytes::from(first.to_owned()));
                    parts.push((part.to_owned(), options));
                }
                let options = parts.iter().map(|(_, options)| options.clone()).collect();
                let ids = query.replace(id, options)?;
                for ((name, options), id) in parts.into_iter().zip(ids) {
                    self.names.insert(name.clone(), id);
                    self.options.insert(name, options);
                }
                Ok(())
            }
            other => panic!("no command {other}"),
        }
    }
}

fn frames(plan: &Plan, text: &str) -> Frames {
    let span = |text: &str| {
        let (offset, len) = text.split_once('+')?;
        Some(Span {
            offset: offset.parse().unwrap(),
            len: len.parse().unwrap(),
        })
    };
    let mut frames = Frames::default();
    for item in text.split(',') {
        let mut words = item.split('/');
        frames.spans.push(words.next().and_then(span).unwrap());
        let words: BTreeMap<&str, &str> = words.map(|word| word.split_once('=').unwrap()).collect();
        frames.meta.extend(
            plan.meta_names()
                .map(|name| {
                    let value = words.get(name)?;
                    Some(match span(value) {
                        Some(span) => Meta::Bytes(span),
                        None => Meta::Number(value.parse().unwrap()),
                    })
                })
                .map(Option::unwrap_or_default),
        );
    }
    frames
}

fn options(name: &str, rest: &str) -> Result<SourceOptions, QueryError> {
    let mut options = SourceOptions {
        name: name.as_bytes().to_vec(),
        ..SourceOptions::default()
    };
    for word in rest.split(' ').filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "sorted" => options.sorted = true,
            "trusted" => options.trust_order = true,
            "unstable" => options.stable = false,
            "partial" => options.partial = true,
            "ordinal" => options.ordinal = Some(value.parse().unwrap()),
            "tie" => options.tie = value.into(),
            "first" => options.first = Some(Bytes::from(value.to_owned())),
            "bound" => options.bound = Some(value.split(',').map(str::to_owned).collect()),
            "strict" => options.level = Some(Level::Strict),
            "none" => options.level = Some(Level::None),
            "shape" => options.shape = parse_shape(value)?,
            _ => {
                let name = key.strip_prefix("meta.").expect("an option");
                options.meta.push((name.into(), value.into()));
            }
        }
    }
    Ok(options)
}
