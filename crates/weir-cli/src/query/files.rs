//! Files as sources: reads one page at a time, cut after a line, an element or a value.
//!
//! A page is identified by its first byte in the file, so that a query can be resumed.
//!
//! Invariant: of a file with lines, values or an array, at most two pages are in memory: one is
//! being read, and one is in the engine. A file of another shape is one page.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use weir::query::{
    Bounds, Budgets, Explain, Need, Query, QueryError, QueryText, Shape, SourceId, SourceOptions,
    Step,
};
use weir::{ErrorCode, query};

use super::checkpoint::{self, Checkpoint, Mark};
use super::compressed::{self, Input};
use super::cut::{self, Cutter, ValueCutter};
use super::{Next, OnBadItem, QueryArgs, Run, query_failure};
use crate::report::{Failure, FailureContext, io_code};

/// Maximum bytes of an item of a file that is read in pages, and of a file that is one page.
const PAGE_BYTES_MAX: usize = 1 << 30;
/// Bytes of one read from standard input: the capacity of a pipe.
const PIPE_BYTES: usize = 64 << 10;
/// The byte order mark, with which some editors start a UTF-8 file.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
/// Maximum number of threads that decompress. If there are more compressed files, the thread of
/// the query decompresses all of them.
const DECOMPRESSION_THREADS_MAX: usize = 4;
/// Maximum number of files that stay open before they are read. If there are more files, each file
/// is opened again to read it.
const OPEN_FILES_MAX: usize = 128;
/// Maximum number of buffers that are kept for later pages.
const SPARE_MAX: usize = 64;

/// Parses `array`, `lines`, `values`, `single` or `member:PATH`. Files do not support framed items.
pub(super) fn parse_shape(text: &str) -> Result<Shape, String> {
    match query::parse_shape(text) {
        Ok(Shape::Framed) => Err("only the library supports the shape `framed`".to_owned()),
        Err(error) if error.code() == ErrorCode::BadOption => {
            Err("shapes are array, lines, values, single and member:PATH".to_owned())
        }
        shape => shape.map_err(|error| error.to_string()),
    }
}

/// Buffers of earlier pages, for reuse.
#[derive(Clone, Debug, Default)]
struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

/// A page in a buffer of the pool.
struct PooledPage {
    bytes: Vec<u8>,
    pool: Pool,
}

impl Pool {
    fn take(&self) -> Vec<u8> {
        let spare = self.0.lock().map(|mut spare| spare.pop());
        spare.ok().flatten().unwrap_or_default()
    }
}

impl AsRef<[u8]> for PooledPage {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for PooledPage {
    fn drop(&mut self) {
        if let Ok(mut spare) = self.pool.0.lock()
            && spare.len() < SPARE_MAX
        {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.clear();
            spare.push(bytes);
        }
    }
}

/// A file that is being read.
struct Reading {
    path: PathBuf,
    shape: Shape,
    input: Option<Input>,
    /// Opens a file for its uncompressed bytes.
    opener: fn(&Path) -> io::Result<Input>,
    /// Whether the shape was guessed, because neither the options nor the name of the file
    /// determine it.
    guessed: bool,
    /// Whether the file begins with a byte order mark.
    has_byte_order_mark: bool,
    /// Position in the file where the first page begins: after white space that was skipped.
    start: u64,
    /// Position in the file where the next page begins.
    at: u64,
    /// Whether there is no next page.
    is_end: bool,
    /// The mark of the file in the checkpoint.
    before: Option<Mark>,
    /// The bytes that identify the file: those that were read, because the path may name another
    /// file later.
    prefix: Vec<u8>,
    /// Bytes after the last line of the previous page.
    rest: Vec<u8>,
    /// Position in the file where each page began.
    begins: Vec<u64>,
}

/// A query over files.
pub(super) struct Files<'a> {
    args: &'a QueryArgs,
    query: Query,
    readings: Vec<Reading>,
    sources: BTreeMap<SourceId, usize>,
    pool: Pool,
    page_bytes: usize,
}

impl<'a> Files<'a> {
    /// Opens the files. Resumes at a checkpoint if the files are those of the checkpoint.
    pub(super) fn new(
        args: &'a QueryArgs,
        paths: &[PathBuf],
        text: &QueryText,
        budgets: Budgets,
        before: Option<&Checkpoint>,
    ) -> anyhow::Result<Self> {
        let compressed = paths.iter().filter(|path| compressed::is(path)).count();
        let reading = |path: &PathBuf| Reading {
            path: path.clone(),
            shape: Shape::Lines,
            input: None,
            opener: if compressed::is(path) && compressed <= DECOMPRESSION_THREADS_MAX {
                compressed::open_in_thread
            } else {
                compressed::open
            },
            guessed: false,
            has_byte_order_mark: false,
            start: 0,
            at: 0,
            is_end: false,
            before: None,
            prefix: Vec::new(),
            rest: Vec::new(),
            begins: Vec::new(),
        };
        let page_bytes = args.page_size.unwrap_or(super::PAGE_BYTES);
        let page_bytes = usize::try_from(page_bytes).unwrap_or(PAGE_BYTES_MAX);
        let plan = Arc::new(
            text.compile()
                .map_err(|error| super::text::failed(&error))?,
        );
        let query = match before {
            Some(before) => {
                let resumed = Query::resume(plan, budgets, &before.token);
                resumed.map_err(|error| super::text::failed(&error))?
            }
            None => Query::new(plan, budgets),
        };
        let mut new = Self {
            args,
            query,
            readings: paths.iter().map(reading).collect(),
            sources: BTreeMap::new(),
            pool: Pool::default(),
            page_bytes: page_bytes.clamp(1, PAGE_BYTES_MAX),
        };
        if let Some(before) = before {
            new.check_files(&before.files)?;
        }
        new.join()?;
        Ok(new)
    }

    /// Notes about options that do not apply to a file.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let asked = self.args.shape.as_ref();
        let other = move |reading: &&Reading| asked.is_some_and(|asked| *asked != reading.shape);
        self.readings.iter().filter(other).map(|reading| {
            let shown = reading.shown();
            format!("{shown} is read as lines, because of its name: `--shape` does not apply to it")
        })
    }

    /// Checks that the files are those of the checkpoint. Otherwise results would be missing or
    /// repeated without an error.
    fn check_files(&mut self, before: &[Mark]) -> anyhow::Result<()> {
        let abandoned = self.args.abandon.iter();
        let abandoned: Vec<String> = abandoned.map(|path| checkpoint::name_of(path)).collect();
        let current = self.readings.iter().filter(|reading| !reading.is_stdin());
        let mut current: Vec<String> = current.map(|r| checkpoint::name_of(&r.path)).collect();
        let name = |mark: &Mark| mark.name.clone();
        // The query rejects a file that is both named and abandoned.
        let is_expected = |name: &String| !abandoned.contains(name) || current.contains(name);
        let mut expected: Vec<String> = before.iter().map(name).filter(is_expected).collect();
        expected.sort_unstable();
        current.sort_unstable();
        let refused = |what: String, why: String| {
            let failure = Failure::new(ErrorCode::TokenMismatch, what).because(why);
            failure.advise(
                "give the files of the first run under the same names, name deleted files with \
                 `--abandon`, or remove the checkpoint file",
            )
        };
        if expected != current {
            let why = format!("the checkpoint belongs to {}", expected.join(", "));
            return Err(refused("cannot resume with other files".to_owned(), why).into());
        }
        for reading in &mut self.readings {
            let name = checkpoint::name_of(&reading.path);
            let Some(mark) = before.iter().find(|mark| mark.name == name) else {
                continue;
            };
            let prefix = checkpoint::prefix_of(&reading.path, mark.read);
            let prefix = prefix.map_err(|error| reading.open_failure(&error))?;
            let differs = mark.differs(&reading.path, &prefix);
            if let Some(why) = differs.map_err(|error| reading.open_failure(&error))? {
                let what = format!("cannot resume in {}", reading.shown());
                return Err(refused(what, why.to_owned()).into());
            }
            reading.before = Some(mark.clone());
            reading.prefix = prefix;
        }
        Ok(())
    }

    /// Adds the sources to the query.
    fn join(&mut self) -> anyhow::Result<()> {
        let closes = self.readings.len() > OPEN_FILES_MAX;
        for (at, reading) in self.readings.iter_mut().enumerate() {
            let skips = self
                .args
                .on_bad_item
                .is_some_and(|bad| bad != OnBadItem::Error);
            reading.open(self.args.shape.as_ref(), skips)?;
            if closes {
                reading.close();
            }
            let options = SourceOptions {
                name: reading.path.as_os_str().as_encoded_bytes().to_vec(),
                shape: reading.shape.clone(),
                sorted: self.args.sorted,
                stable: !reading.is_stdin(),
                ..SourceOptions::default()
            };
            let source = self.query.add_source(options);
            let source = source.map_err(|error| super::text::failed(&error))?;
            self.sources.insert(source, at);
        }
        for path in &self.args.abandon {
            let name = path.as_os_str().as_encoded_bytes();
            let abandoned = self.query.abandon(name);
            abandoned.map_err(|error| {
                let what = format!("cannot abandon {}", path.display());
                query_failure(what, &error, error.reason())
            })?;
        }
        Ok(())
    }

    /// Whether a read of the source may block for long.
    fn may_wait(&self, source: SourceId) -> bool {
        let reading = self.sources.get(&source);
        let reading = reading.and_then(|at| self.readings.get(*at));
        reading.is_some_and(Reading::is_stdin)
    }

    /// Reads the page that the engine needs.
    fn serve(&mut self, need: &Need) -> anyhow::Result<()> {
        let Some(reading) = self
            .sources
            .get(&need.source)
            .and_then(|at| self.readings.get_mut(*at))
        else {
            return Ok(());
        };
        let begin = need.continuation.as_deref().unwrap_or(b"0");
        let begin = std::str::from_utf8(begin).ok();
        let Some(begin) = begin.and_then(|at| at.parse::<u64>().ok()) else {
            let what = format!("cannot resume in {}", reading.shown());
            let failure = Failure::new(ErrorCode::TokenCorrupt, what);
            return Err(failure.because("its position is not a number").into());
        };
        reading.seek(begin.max(reading.start))?;
        let (bytes, last) = reading.page(self.pool.take(), self.page_bytes)?;
        let next = (!last).then(|| Bytes::from(reading.at.to_string()));
        let page = Bytes::from_owner(PooledPage {
            bytes,
            pool: self.pool.clone(),
        });
        let enqueued = self.query.enqueue(need.source, page, next);
        enqueued.map_err(|error| self.failed(&error))
    }

    /// Converts an error of the query, and names the file in it.
    fn failed(&self, error: &QueryError) -> anyhow::Error {
        let place = error.location();
        let reading = place.source.and_then(|source| self.sources.get(&source));
        let Some(reading) = reading.and_then(|at| self.readings.get(*at)) else {
            return super::text::failed(error);
        };
        // Users know positions in the file, not in pages.
        let page = place.page.and_then(|page| usize::try_from(page).ok());
        let begin = page.and_then(|page| reading.begins.get(page));
        let mut why = error.to_string();
        if let (Some(begin), Some(offset)) = (begin, place.offset) {
            why = format!("{}, at byte {} of the file", error.reason(), begin + offset);
            if let Some(item) = place.item {
                why = format!("{why}, item {item}");
            }
        }
        let what = format!("cannot query {}", reading.shown());
        let page = matches!(error.code().number(), 709..=718);
        let is_first = begin == Some(&0) && place.offset == Some(0);
        if page && reading.has_byte_order_mark && is_first {
            let why = "the file begins with a UTF-8 byte order mark, which JSON does not allow";
            let advice = "remove the first 3 bytes: `tail -c +4 FILE | weir query - ...`";
            let failure = Failure::new(error.code(), what).because(why);
            return failure.advise(advice).into();
        }
        let is_limit = matches!(error.code(), ErrorCode::TooDeep | ErrorCode::PageTooLarge);
        if page && reading.guessed && !is_limit {
            let (detected, other) = match reading.shape {
                Shape::Array => ("an array", "lines"),
                Shape::Values => ("consecutive values", "lines"),
                _ => ("one item per line", "values"),
            };
            let advice = format!(
                "the file was read as {detected}; if this is wrong, set its shape: \
                 `--shape {other}`, `--shape single` or `--shape 'member:$.items'`"
            );
            let failure = Failure::new(error.code(), what).because(why);
            return failure.advise(advice).into();
        }
        query_failure(what, error, why)
    }
}

impl Run for Files<'_> {
    fn explain(&self) -> Explain {
        self.query.explain()
    }

    fn next(&mut self, bounds: Bounds, wait: bool) -> anyhow::Result<Next> {
        loop {
            let step = self
                .query
                .next(bounds)
                .map_err(|error| self.failed(&error))?;
            let needs = match step {
                Step::Ready(page) => return Ok(Next::Page(page)),
                Step::Done => return Ok(Next::Done),
                Step::Need(needs) => needs,
            };
            for need in needs.iter().filter(|need| need.required) {
                if !wait && self.may_wait(need.source) {
                    return Ok(Next::Idle);
                }
                self.serve(need)?;
            }
        }
    }

    fn position(&self) -> anyhow::Result<Checkpoint> {
        let token = self.query.token().map_err(|error| self.failed(&error))?;
        let files = self.readings.iter().filter(|reading| !reading.is_stdin());
        let files = files.map(Reading::mark).collect();
        Ok(Checkpoint { files, token })
    }

    fn skipped(&self) -> u64 {
        self.query.skipped()
    }

    fn name(&self, source: SourceId) -> String {
        let reading = self.sources.get(&source);
        let reading = reading.and_then(|at| self.readings.get(*at));
        reading.map(Reading::shown).unwrap_or_default()
    }
}

impl Reading {
    fn shown(&self) -> String {
        if self.is_stdin() {
            "standard input".to_owned()
        } else {
            self.path.display().to_string()
        }
    }

    /// The position up to which this run or an earlier one has read the file.
    fn mark(&self) -> Mark {
        match &self.before {
            Some(before) if before.is_end || before.read > self.at => before.clone(),
            _ => Mark::of(&self.path, self.at, self.is_end, &self.prefix),
        }
    }

    /// Moves the position past `bytes`, which were read there.
    fn advance(&mut self, bytes: &[u8]) {
        checkpoint::extend_prefix(&mut self.prefix, self.at, bytes);
        self.at += bytes.len() as u64;
    }

    fn is_stdin(&self) -> bool {
        self.path == Path::new("-")
    }

    fn failed<T>(&self, result: io::Result<T>) -> anyhow::Result<T> {
        result.failed(|| format!("cannot read {}", self.shown()))
    }

    /// The failure to open a file. A missing file may have been meant as a topic.
    fn open_failure(&self, error: &io::Error) -> Failure {
        let shown = self.shown();
        let failure = Failure::new(io_code(error), format!("cannot read {shown}")).because(error);
        if error.kind() == io::ErrorKind::NotFound && self.path.components().count() == 1 {
            return failure.advise(format!(
                "check the name of the file; to query a topic, use `weir query --topic {shown}`"
            ));
        }
        failure
    }

    /// Opens the file and detects its shape. `skips`: bad items are skipped or treated as items
    /// without values.
    fn open(&mut self, asked: Option<&Shape>, skips: bool) -> anyhow::Result<()> {
        let mut input = if self.is_stdin() {
            Input::Direct(Box::new(io::stdin()))
        } else {
            (self.opener)(&self.path).map_err(|error| self.open_failure(&error))?
        };
        let name = if compressed::is(&self.path) {
            self.path.file_stem().map(Path::new)
        } else {
            Some(self.path.as_path())
        };
        let end = name.and_then(Path::extension).unwrap_or_default();
        let lines = end == "ndjson" || end == "jsonl";
        // Values may span lines, and lines of values are a sequence of values. But bad items can be
        // skipped in lines only.
        let others = if end == "json" && !skips {
            Shape::Values
        } else {
            Shape::Lines
        };
        self.guessed = !lines && asked.is_none();
        self.shape = match asked {
            _ if lines => Shape::Lines,
            Some(shape) => shape.clone(),
            None => {
                // The first character determines the shape.
                let (opened, first) = self.skip_white_space(input)?;
                input = opened;
                match first {
                    Some(b'[') => Shape::Array,
                    _ => others,
                }
            }
        };
        self.input = Some(input);
        Ok(())
    }

    /// Skips leading white space. Returns the first byte after it; `None` at the end of the file.
    fn skip_white_space(&mut self, mut input: Input) -> anyhow::Result<(Input, Option<u8>)> {
        let mut block = vec![0; PIPE_BYTES];
        loop {
            let count = match input.read(&mut block) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => self.failed(read)?,
            };
            let bytes = block.get(..count).unwrap_or_default();
            let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            let end = bytes.iter().position(|byte| !is_blank(byte));
            let (blanks, rest) = bytes.split_at(end.unwrap_or(count));
            self.advance(blanks);
            self.start = self.at;
            if let Some(first) = rest.first() {
                return Ok((input.put_back(rest), Some(*first)));
            }
            if count == 0 {
                return Ok((input, None));
            }
        }
    }

    /// Closes a file that can be opened again when it is read.
    fn close(&mut self) {
        let is_direct = matches!(self.input, Some(Input::Direct(_)));
        let metadata = self.path.metadata();
        if is_direct && !self.is_stdin() && metadata.is_ok_and(|metadata| metadata.is_file()) {
            self.input = None;
        }
    }

    /// Seeks to the beginning of a page. Opens the file if it was closed.
    fn seek(&mut self, at: u64) -> anyhow::Result<()> {
        let is_closed = self.input.is_none() && !self.is_end;
        if self.at == at && !is_closed {
            return Ok(());
        }
        if self.is_stdin() {
            let what = "cannot resume in standard input";
            return Err(Failure::new(ErrorCode::NoToken, what).into());
        }
        self.input = Some(if compressed::is(&self.path) {
            let mut input = self.failed((self.opener)(&self.path))?;
            self.failed(compressed::skip(&mut input, at))?;
            input
        } else {
            let mut file = self.failed(File::open(&self.path))?;
            let sought = file.seek(SeekFrom::Start(at));
            self.failed(sought)?;
            Input::Direct(Box::new(file))
        });
        self.rest.clear();
        self.at = at;
        self.is_end = false;
        Ok(())
    }

    /// Reads the next page. Returns the page, and whether it is the last one.
    fn page(&mut self, mut page: Vec<u8>, page_bytes: usize) -> anyhow::Result<(Vec<u8>, bool)> {
        let (lines, is_stdin) = (self.shape == Shape::Lines, self.is_stdin());
        // A page after a comma of an array begins with an added bracket.
        let extra = usize::from(self.shape == Shape::Array && self.at > self.start);
        let mut cutter = (self.shape == Shape::Array).then(Cutter::default);
        let mut values = (self.shape == Shape::Values).then(ValueCutter::default);
        self.begins.push(self.at - extra as u64);
        if extra > 0 {
            page.push(b'[');
        }
        page.append(&mut self.rest);
        let whole = !lines && cutter.is_none() && values.is_none();
        let mut wanted = if whole { PAGE_BYTES_MAX } else { page_bytes };
        // Position from which the page was not searched for a line end yet.
        let mut new = 0;
        loop {
            let room = wanted.saturating_sub(page.len());
            // Lines from a slow writer are processed when they arrive.
            let read = match &mut self.input {
                Some(input) if !whole && cutter.is_none() && is_stdin => {
                    read_available(input, &mut page, room)
                }
                Some(input) => input.append(&mut page, room),
                None => Ok(true),
            };
            let is_over = self.failed(read)?;
            self.has_byte_order_mark |= self.at == 0 && page.starts_with(BYTE_ORDER_MARK);
            if is_over {
                self.input = None;
                self.is_end = true;
                self.advance(page.get(extra..).unwrap_or_default());
                if extra > 0 {
                    cut::last(&mut page);
                }
                return Ok((page, true));
            }
            let end = match (&mut cutter, &mut values) {
                (Some(cutter), _) => cutter.scan(&page),
                (None, Some(values)) => values.scan(&page),
                (None, None) if lines => {
                    let bytes = page.get(new..).unwrap_or_default();
                    let end = bytes.iter().rposition(|byte| *byte == b'\n');
                    end.map(|end| new + end)
                }
                (None, None) => None,
            };
            new = page.len();
            if let Some(end) = end {
                let rest = page.get(end + 1..).unwrap_or_default();
                self.rest.extend_from_slice(rest);
                page.truncate(end + 1);
                self.advance(page.get(extra..).unwrap_or_default());
                if cutter.is_some()
                    && let Some(comma) = page.last_mut()
                {
                    *comma = b']';
                }
                return Ok((page, false));
            }
            if page.len() >= PAGE_BYTES_MAX {
                let shown = self.shown();
                let failure = Failure::new(ErrorCode::PageTooLarge, format!("cannot read {shown}"));
                let what = if whole { "the file" } else { "an item" };
                let why = format!("{what} has more than {PAGE_BYTES_MAX} bytes");
                let advice =
                    "split the file, or set its shape: `--shape array`, `lines` or `values`";
                return Err(failure.because(why).advise(advice).into());
            }
            if page.len() >= wanted {
                // The item is longer than a page.
                wanted = wanted.saturating_mul(2).min(PAGE_BYTES_MAX);
            }
        }
    }
}

/// Reads the available bytes, at most `room`. Returns whether the input has ended.
fn read_available(input: &mut dyn Read, page: &mut Vec<u8>, room: usize) -> io::Result<bool> {
    if room == 0 {
        return Ok(false);
    }
    let before = page.len();
    page.resize(before + room.min(PIPE_BYTES), 0);
    let count = loop {
        let read = input.read(page.get_mut(before..).unwrap_or_default());
        match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read,
        }
    };
    page.truncate(before + count.as_ref().map_or(0, |count| *count));
    count.map(|count| count == 0)
}
