//! `weir query`: queries over files and topics, with results in order.
//!
//! The engine is in the library. This module fetches the pages that the engine needs, and prints
//! the results byte for byte. Invariant: this module parses no item, and implements no stage of a
//! query.

mod checkpoint;
mod compressed;
mod consumer;
mod cut;
mod files;
mod print;
mod text;
mod topics;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use weir::query::{
    BadItem, Bounds, Budgets, Explain, Level, Plan, QueryError, QueryText, ResultPage,
};
use weir::{ErrorCode, ReadFrom, Weir};

use self::checkpoint::Checkpoint;
use self::consumer::Consumer;
use self::files::Files;
use self::print::Printer;
use self::topics::Topics;
use crate::caller::Caller;
use crate::follower::{self, FOLLOW_PAUSE, FollowerProgress};
use crate::output::{Format, Shape};
use crate::place::{self, Access, Location};
use crate::report::{Failure, note, temporary, usage};
use crate::settings;

pub(crate) use self::consumer::{check as check_consumer, wait_until_read};
pub(crate) use self::text::{failed as filter_failed, parse_param};
pub(crate) use self::topics::{check_matches, check_patterns};

/// Bytes of a page of a file. A longer line makes its page longer.
const PAGE_BYTES: u64 = 1 << 20;
/// Maximum results of one page.
const ITEMS: usize = 256;

#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[command(after_long_help = "\
Items are the JSON values of files (FILE or --file), or the records of topics (--topic). The query
does not convert items: results are printed byte for byte.

Files ending in .ndjson or .jsonl always have one item per line. --shape sets the position of the
items in all other files. Without --shape:
  files that begin with `[`           an array of items
  other files ending in .json         values, one after the other
  all other files                     one item per line

Paths are JSONPath (RFC 9535) with names and indexes only. In --where, `@` and `$` both mean the
item. Records also have the paths meta.topic, meta.offset, meta.intention, meta.time_ms, meta.key,
meta.type and meta.client_id; in --where, write meta('topic') and so on.

Without --order-by, files are read one after the other, and records appear in the order in which the
store applied them. With --order-by, results are sorted in memory: --offset plus --limit items, or
all items without --limit. With --sorted, files are merged, with two pages of each file in memory.
A file with the shape single or member is read into memory as a whole.

A value that is not JSON stops the query, unless --on-bad-item selects another action. With -o raw,
values are printed unchecked if the query reads none of them: no --select, no --group-by, and no
paths in --where and --order-by.

`weir help guide query` describes filters, order, aggregates and checkpoints.

Examples:
  weir put orders '{\"n\":2,\"s\":\"open\"}' && weir query -t orders --where '$.s==\"open\"'
  weir put orders '{\"n\":3}' && weir query -t orders --order-by '$.n desc' --limit 1
  weir put orders '{\"n\":3}' && weir query -t orders --select 'count,sum($.n)'
  weir put orders '{\"n\":3}' -k a && weir query -t orders --latest --where '$.n < 9'
  weir put orders '{\"n\":3}' && weir query -t orders --order-by '$.n' --explain")]
pub(crate) struct QueryArgs {
    /// Files with items, also compressed (.gz, .zst); - is standard input
    #[arg(value_name = "FILE")]
    paths: Vec<PathBuf>,
    /// A file with items; may be repeated, also after other options
    #[arg(long = "file", value_name = "FILE", hide_short_help = true)]
    files: Vec<PathBuf>,
    /// Topics or patterns (`orders.*`) instead of files
    ///
    /// `*` matches one part of a name, `**` at the end one or more parts.
    #[arg(short, long = "topic", value_name = "TOPIC", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["paths", "files"])]
    topics: Vec<String>,
    /// Items of a file: array, lines, values, single, member:PATH
    #[arg(long, value_name = "SHAPE", value_parser = files::parse_shape)]
    shape: Option<weir::query::Shape>,
    /// Print only items for which EXPRESSION is true
    #[arg(long = "where", value_name = "EXPRESSION", default_value = "")]
    #[arg(hide_default_value = true, allow_hyphen_values = true)]
    filter: String,
    /// Sort by paths or aggregates, each asc or desc
    ///
    /// The default is asc. Aggregates are written as in --select: `count desc`.
    #[arg(
        long,
        value_name = "PATHS",
        default_value = "",
        hide_default_value = true
    )]
    order_by: String,
    /// Print paths, or count, sum(PATH), min, max, avg
    ///
    /// Each may be followed by `as NAME`, or by `as "NAME"` if the name has blanks. Without
    /// --select, the whole item is printed.
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "",
        hide_default_value = true
    )]
    select: String,
    /// Print one result for each value of these paths
    #[arg(
        long,
        value_name = "PATHS",
        default_value = "",
        hide_default_value = true
    )]
    group_by: String,
    /// Print strings without quotes, and columns with tabs
    ///
    /// Escapes in strings are decoded.
    #[arg(short = 'r', long)]
    raw_strings: bool,
    /// Print only the first of equal results
    #[arg(long, hide_short_help = true)]
    distinct: bool,
    /// Number of results to skip at the start
    #[arg(hide_short_help = true)]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = settings::count, allow_negative_numbers = true)]
    offset: u64,
    /// Maximum number of results
    #[arg(short = 'n', long, value_name = "N")]
    #[arg(value_parser = settings::count, allow_negative_numbers = true)]
    limit: Option<u64>,
    /// Value of param('NAME') in --where: JSON, or a string if it is not JSON
    #[arg(hide_short_help = true)]
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = text::parse_param)]
    params: Vec<(String, String)>,
    /// Merge files that are already in the order of --order-by; another order is an error
    #[arg(long, hide_short_help = true)]
    sorted: bool,
    /// Read the current value of each key, in key order
    #[arg(long, requires = "topics", conflicts_with = "follow")]
    latest: bool,
    /// First record: start, end, an offset, -N or a time
    ///
    /// It applies to each topic. -N is the last N records. A time is a duration before now (10m),
    /// `yesterday`, a date (2026-11-01) or a time of RFC 3339. With --latest, only values that were
    /// written since this time are printed.
    #[arg(long, value_name = "POSITION", requires = "topics", value_parser = text::parse_from)]
    #[arg(allow_hyphen_values = true, conflicts_with = "checkpoint")]
    from: Option<ReadFrom>,
    /// Continue with new records until Ctrl-C
    #[arg(short, long, requires = "topics", conflicts_with_all = ["order_by", "group_by", "mode"])]
    follow: bool,
    /// Print the plan of the query without running it
    #[arg(long)]
    explain: bool,
    /// Resume after the position in FILE, and update FILE
    ///
    /// The position is that of the last printed result.
    #[arg(long, value_name = "FILE", conflicts_with = "follow")]
    checkpoint: Option<PathBuf>,
    /// Pipe the results to this shell command
    ///
    /// The exit code is that of the command. A checkpoint covers only results that the command has
    /// read.
    #[arg(long, value_name = "COMMAND", conflicts_with = "explain")]
    into: Option<String>,
    /// With --checkpoint: continue without FILE of the first run, and skip its remaining items
    #[arg(hide_short_help = true)]
    #[arg(
        long,
        value_name = "FILE",
        requires = "checkpoint",
        conflicts_with = "topics"
    )]
    abandon: Vec<PathBuf>,
    /// Order of results without --order-by [default: sequential, for files]
    #[arg(long, value_enum, value_name = "MODE", hide_short_help = true)]
    mode: Option<Mode>,
    /// How much of each item is checked [default: structural; strict with -o json, and for records
    /// whose values the query does not read, except with -o raw]
    #[arg(long, value_enum, value_name = "LEVEL", hide_short_help = true)]
    level: Option<Check>,
    /// Action for lines and records that are not JSON [default: error]
    #[arg(long, value_enum, value_name = "WHAT", hide_short_help = true)]
    on_bad_item: Option<OnBadItem>,
    /// Skip items that lack a path of --order-by; by default they come first
    #[arg(long, hide_short_help = true)]
    drop_missing: bool,
    /// Allow arrays and objects as order keys: all arrays rank equally, and all objects after them
    #[arg(long, hide_short_help = true)]
    rank_complex: bool,
    /// Compare strings by UTF-16 code units [default: by Unicode scalar values]
    #[arg(long, hide_short_help = true)]
    utf16: bool,
    /// Maximum memory of a sort; above this, the query fails [default: 256MiB]
    #[arg(long, value_parser = settings::size, value_name = "SIZE", hide_short_help = true)]
    sort_max: Option<u64>,
    /// Number of bytes read from a file at a time [default: 1MiB]
    #[arg(long, value_parser = settings::size, value_name = "SIZE", hide_short_help = true)]
    page_size: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// All items of one source, then all of the next
    Sequential,
    /// One item of each source in turn
    Turns,
    /// In the order in which pages arrive; not reproducible
    Arrival,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Check {
    /// Strings, brackets and UTF-8, and all that a path passes through. Records that no path,
    /// filter or order reads are not checked
    Structural,
    /// All JSON syntax
    Strict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnBadItem {
    /// Stop the query with an error
    Error,
    /// Skip bad items, and print their number
    Skip,
    /// Treat bad items as items without values
    Undefined,
}

impl From<Check> for Level {
    fn from(check: Check) -> Self {
        match check {
            Check::Structural => Self::Structural,
            Check::Strict => Self::Strict,
        }
    }
}

impl From<OnBadItem> for BadItem {
    fn from(bad: OnBadItem) -> Self {
        match bad {
            OnBadItem::Error => Self::Error,
            OnBadItem::Skip => Self::Skip,
            OnBadItem::Undefined => Self::Undefined,
        }
    }
}

/// A running query.
trait Run {
    /// Its plan.
    fn explain(&self) -> Explain;

    /// Its next results. With `wait`, blocks for a while, and may then return `Next::Idle`.
    fn next(&mut self, bounds: Bounds, wait: bool) -> anyhow::Result<Next>;

    /// Its current position.
    fn position(&self) -> anyhow::Result<Checkpoint>;

    /// Number of skipped bad items.
    fn skipped(&self) -> u64;

    /// The name of the source of a result.
    fn name(&self, source: weir::query::SourceId) -> String;
}

/// The next event of a query.
enum Next {
    Page(ResultPage),
    /// No results now.
    Idle,
    Done,
}

impl QueryArgs {
    fn reads_stdin(&self) -> bool {
        let mut paths = self.paths.iter().chain(&self.files);
        paths.any(|path| path.as_os_str() == "-")
    }

    /// Rejects arguments that are given twice.
    fn check_repeated(&self) -> anyhow::Result<()> {
        let paths = self.paths.iter().chain(&self.files);
        if paths.filter(|path| path.as_os_str() == "-").count() > 1 {
            return Err(usage("standard input can be read only once: give one `-`"));
        }
        let mut params = self.params.iter().enumerate();
        let twice = params.find(|(at, (name, _))| {
            let mut before = self.params.iter().take(*at);
            before.any(|(known, _)| known == name)
        });
        match twice {
            Some((_, (name, _))) => Err(usage(&format!("--param sets {name} more than once"))),
            None => Ok(()),
        }
    }
}

/// Runs `weir query`.
pub(crate) fn run(caller: &Caller, args: &QueryArgs) -> anyhow::Result<ExitCode> {
    args.check_repeated()?;
    let budgets = Budgets {
        pages_ahead: 0,
        sort_bytes_max: args.sort_max.unwrap_or(Budgets::default().sort_bytes_max),
        page_bytes_hint: args.page_size.unwrap_or(PAGE_BYTES).max(1),
        ..Budgets::default()
    };
    let mut text = text::fields(args);
    let format = caller.style.format(Shape::Stream);
    text.level = level(args, &text, format);
    if args.on_bad_item == Some(OnBadItem::Undefined)
        && format == Format::Json
        && !selects_parts(args)
    {
        let why = "`-o json` prints JSON only: `--on-bad-item skip` skips items that are not JSON";
        return Err(usage(why));
    }
    if args.topics.is_empty() && (args.follow || args.latest || args.from.is_some()) {
        return Err(usage(
            "--follow, --latest and --from apply to topics: name a topic with --topic",
        ));
    }
    if args.latest && !matches!(args.from, None | Some(ReadFrom::Time(_))) {
        return Err(usage(
            "with --latest, --from is a time: 10m, yesterday, a date",
        ));
    }
    // Errors in the query are reported before errors in files and topics.
    let user_query = QueryText {
        filter: args.filter.clone(),
        ..text.clone()
    };
    user_query.compile().map_err(|error| text::failed(&error))?;
    let plan = text.compile().map_err(|error| text::failed(&error))?;
    for text in plan.notes() {
        note(caller.quiet, &text);
    }
    let other_format = caller.style.format.filter(|format| *format != Format::Raw);
    if args.raw_strings
        && let Some(format) = other_format
    {
        let why = format!(
            "-r prints bare values: it cannot be combined with `-o {}`",
            format.name()
        );
        return Err(usage(&why));
    }
    let consumer = args.into.as_deref().map(Consumer::start).transpose()?;
    let done = query(caller, args, (&text, &plan), budgets);
    let Some(consumer) = consumer else {
        return done.map(|_| ExitCode::SUCCESS);
    };
    let (result, last) = match done {
        Ok(last) => (Ok(ExitCode::SUCCESS), last),
        Err(error) => (Err(error), None),
    };
    let code = consumer.end(result)?;
    // A consumer has certainly processed the results that it has read only once it has ended.
    if code == ExitCode::SUCCESS
        && let (Some(path), Some(place)) = (&args.checkpoint, last)
    {
        checkpoint::write(path, &place, true)?;
    }
    Ok(code)
}

/// Runs the query and prints its results. Returns the last position if `run` must save it.
fn query(
    caller: &Caller,
    args: &QueryArgs,
    (text, plan): (&QueryText, &Plan),
    budgets: Budgets,
) -> anyhow::Result<Option<Checkpoint>> {
    if args.explain {
        let Some(out) = print::open_plan(&caller.style)? else {
            return Ok(None);
        };
        let query = start(caller, args, (text, budgets), checkpoint_before(args)?)?;
        print::explain(out, &query.explain())?;
        return Ok(None);
    }
    let printer = Printer::open(
        &caller.style,
        &plan.columns(),
        text.constructs_results(),
        args.raw_strings,
    )?;
    let Some(mut printer) = printer else {
        return Ok(None);
    };
    let before = checkpoint_before(args)?;
    let is_resumed = before.is_some();
    let last = if let Some(at) = directory(caller, args)? {
        follow_directory(caller, args, (text, budgets), &at, &mut printer)?
    } else {
        let mut query = start(caller, args, (text, budgets), before)?;
        drive(caller, args, &mut *query, &mut printer, is_resumed)?
    };
    printer.finish()?;
    Ok(last)
}

/// The checkpoint of the earlier run; `None` if there is none.
fn checkpoint_before(args: &QueryArgs) -> anyhow::Result<Option<Checkpoint>> {
    match &args.checkpoint {
        Some(path) => checkpoint::read(path),
        None => Ok(None),
    }
}

/// Starts the query over files or topics, or resumes it at a checkpoint.
fn start<'a>(
    caller: &Caller,
    args: &'a QueryArgs,
    (text, budgets): (&QueryText, Budgets),
    before: Option<Checkpoint>,
) -> anyhow::Result<Box<dyn Run + 'a>> {
    if !args.topics.is_empty() {
        let token = before.map(|before| before.token);
        let topics = Topics::new(caller, args, text.clone(), budgets, token)?;
        return Ok(Box::new(topics));
    }
    let paths: Vec<PathBuf> = args.paths.iter().chain(&args.files).cloned().collect();
    if paths.is_empty() {
        return Err(usage("name a file, or a topic with --topic"));
    }
    let files = Files::new(args, &paths, text, budgets, before.as_ref())?;
    for text in files.notes() {
        note(caller.quiet, &text);
    }
    Ok(Box::new(files))
}

/// The directory whose topics are followed. `None` without `--follow`, or for a server.
fn directory(caller: &Caller, args: &QueryArgs) -> anyhow::Result<Option<PathBuf>> {
    if !args.follow {
        return Ok(None);
    }
    Ok(match place::location(caller)? {
        Location::Directory(at) => Some(PathBuf::from(at)),
        Location::Server(_) => None,
    })
}

/// Follows topics of a directory. Opens the store only briefly, as `weir tail -f` does, or uses the
/// server that has it open.
fn follow_directory(
    caller: &Caller,
    args: &QueryArgs,
    (text, budgets): (&QueryText, Budgets),
    at: &std::path::Path,
    printer: &mut Printer,
) -> anyhow::Result<Option<Checkpoint>> {
    let mut watch = FollowerProgress::new(at);
    let first = follower::open(caller, Access::Read, caller.lock_wait)?;
    let access = follower::access(&first, at);
    let mut opened = Some(first);
    let mut token = None;
    loop {
        if let Some(weir) = opened.take() {
            if weir.local().is_none() {
                if follow_served(caller, args, &weir, (text, budgets), &mut token, printer)? {
                    return Ok(None);
                }
                continue;
            }
            let mut topics = Topics::over(caller, args, &weir, (text.clone(), budgets, token))?;
            if let Some(why) = topics.explain().no_token {
                let what = "cannot follow the topics of a directory with this query";
                let failure = Failure::new(ErrorCode::NoToken, what).because(why);
                let advice = "serve the directory with `weir serve`, and query the server";
                return Err(failure.advise(advice).into());
            }
            if print_until_idle(&mut topics, printer)? {
                return Ok(None);
            }
            token = Some(topics.position()?.token);
            drop(topics);
            let line = watch.read(&weir);
            drop(weir);
            if let Some(line) = line {
                line.write();
            }
        }
        std::thread::sleep(FOLLOW_PAUSE);
        consumer::check()?;
        if !watch.may_skip_open() {
            opened = follower::open_now(caller, access)?;
        }
    }
}

/// Follows topics at the server that has the directory open. Returns `true` at the end of the
/// query. Returns `false` if the server is lost; the query can then continue at the token.
fn follow_served(
    caller: &Caller,
    args: &QueryArgs,
    weir: &Weir,
    (text, budgets): (&QueryText, Budgets),
    token: &mut Option<Vec<u8>>,
    printer: &mut Printer,
) -> anyhow::Result<bool> {
    let options = (text.clone(), budgets, token.clone());
    let mut topics = match Topics::over(caller, args, weir, options) {
        Ok(topics) => topics,
        Err(error) if temporary(&error).is_some() => return Ok(false),
        Err(error) => return Err(error),
    };
    let Err(error) = drive(caller, args, &mut topics, printer, false) else {
        return Ok(true);
    };
    let Some(failure) = temporary(&error) else {
        return Err(error);
    };
    note(caller.quiet, &format!("{}: retrying", failure.reason()));
    // A query without a token cannot continue.
    let Ok(place) = topics.position() else {
        return Err(error);
    };
    printer.flush()?;
    *token = Some(place.token);
    Ok(false)
}

/// Prints the available results. Returns `true` if no more will follow.
fn print_until_idle(query: &mut Topics, printer: &mut Printer) -> anyhow::Result<bool> {
    loop {
        match query.next(Bounds::default(), false)? {
            Next::Page(page) => printer.page(&page, |source| query.name(source))?,
            Next::Idle => {
                printer.flush()?;
                return Ok(false);
            }
            Next::Done => return Ok(true),
        }
    }
}

/// Whether the query prints results other than whole items.
fn selects_parts(args: &QueryArgs) -> bool {
    !args.select.trim().is_empty() || !args.group_by.trim().is_empty()
}

/// How much of each item is checked. Output as JSON, and counted items, must be valid JSON.
/// `-o raw` passes items through unchecked if the query does not read them.
fn level(args: &QueryArgs, text: &QueryText, format: Format) -> Level {
    if let Some(level) = args.level {
        return level.into();
    }
    let plan = text.compile();
    let unread = !args.topics.is_empty() && plan.is_ok_and(|plan| !plan.reads_items());
    let bare = format == Format::Raw && !selects_parts(args) && args.on_bad_item.is_none();
    if format == Format::Json || (unread && !bare) {
        Level::Strict
    } else {
        Level::Structural
    }
}

/// Prints the results of a query. `is_resumed`: the query resumes at a checkpoint.
fn drive(
    caller: &Caller,
    args: &QueryArgs,
    query: &mut dyn Run,
    printer: &mut Printer,
    is_resumed: bool,
) -> anyhow::Result<Option<Checkpoint>> {
    if args.checkpoint.is_some()
        && let Some(why) = query.explain().no_token
    {
        let failure = Failure::new(ErrorCode::NoToken, "cannot write a checkpoint").because(why);
        let advice = if args.reads_stdin() {
            "standard input cannot be read again: write it to a file, and query the file"
        } else {
            "with a checkpoint, --limit applies to each run; if the files are already sorted, use \
             --sorted"
        };
        return Err(failure.advise(advice).into());
    }
    // With a checkpoint, the limit applies to this run, not to the whole query.
    let mut left = match args.checkpoint {
        Some(_) => args.limit.unwrap_or(u64::MAX),
        None => u64::MAX,
    };
    // Before the query waits for new input, it flushes the available results.
    let flushes_first = args.follow || args.reads_stdin();
    let mut waits = !flushes_first;
    let mut is_complete = is_resumed;
    // With `--into`, the checkpoint is one page behind, so that the consumer can process what it
    // has read.
    let mut previous = None;
    while left > 0 {
        let items_max = usize::try_from(left).unwrap_or(ITEMS).min(ITEMS);
        let bounds = Bounds {
            items_max,
            ..Bounds::default()
        };
        match query.next(bounds, waits)? {
            Next::Page(page) => {
                is_complete = false;
                left = left.saturating_sub(page.items().len() as u64);
                printer.page(&page, |source| query.name(source))?;
                waits = !flushes_first;
                if let Some(path) = &args.checkpoint {
                    printer.flush()?;
                    consumer::wait_until_read()?;
                    let mut place = position_now(query)?;
                    if args.into.is_some() {
                        std::mem::swap(&mut place, &mut previous);
                    }
                    if let Some(place) = place {
                        checkpoint::write(path, &place, false)?;
                    }
                }
            }
            Next::Idle => {
                printer.flush()?;
                consumer::check()?;
                waits = true;
            }
            Next::Done => break,
        }
    }
    if query.skipped() > 0 {
        let count = query.skipped();
        let text = format!(
            "skipped {count} bad items: not JSON, nested too deeply, or above the steps of the filter"
        );
        note(caller.quiet, &text);
    }
    if is_complete && left > 0 {
        let what = "the query of this checkpoint is complete; it does not include data that was added later";
        note(caller.quiet, what);
    }
    if let Some(path) = &args.checkpoint {
        let place = query.position()?;
        printer.flush()?;
        if args.into.is_some() {
            return Ok(Some(place));
        }
        consumer::wait_until_read()?;
        checkpoint::write(path, &place, true)?;
    }
    Ok(None)
}

/// The position of a query; `None` if it has none at this result (`NoToken`) but gets one later.
fn position_now(query: &dyn Run) -> anyhow::Result<Option<Checkpoint>> {
    match query.position() {
        Ok(place) => Ok(Some(place)),
        Err(error) => match error.downcast_ref::<Failure>() {
            Some(failure) if failure.code == ErrorCode::NoToken => Ok(None),
            _ => Err(error),
        },
    }
}

/// Converts an error of the engine to a failure for people.
fn query_failure(what: String, error: &QueryError, why: String) -> anyhow::Error {
    let failure = Failure::new(error.code(), what).because(why);
    match error.code() {
        ErrorCode::BadEnvelope => failure.advise(
            "set the shape of the input: `--shape array`, `lines`, `values`, `single` or `member:PATH`",
        ),
        ErrorCode::SortBudget => {
            failure.advise("set `--limit`, raise `--sort-max`, or use `--sorted` if the files are sorted")
        }
        // No option changes these limits.
        ErrorCode::TooDeep => failure.advise(format!(
            "an item has at most {} levels; for lines and records, `--on-bad-item skip` skips such \
             items",
            Budgets::default().depth_max
        )),
        ErrorCode::PageTooLarge => failure.advise(format!(
            "an item has at most {} bytes; split it, or set the shape of the file: `--shape lines`, \
             `--shape 'member:$.items'`",
            Budgets::default().item_bytes_max
        )),
        ErrorCode::GroupBudget => failure.advise(
            "sort by the paths of `--group-by` with `--order-by`, or select fewer items with `--where`",
        ),
        ErrorCode::DistinctBudget => failure.advise(
            "sort by the selected path with `--order-by`, or select fewer items with `--where`",
        ),
        ErrorCode::TokenMismatch | ErrorCode::TokenCorrupt => {
            failure.advise("use the data and the options of the first run, or remove the checkpoint file")
        }
        _ => failure,
    }
    .into()
}

#[cfg(test)]
mod tests {
    use weir::ErrorCode;
    use weir::query::QueryError;

    use super::query_failure;

    #[test]
    fn the_advice_for_a_limit_names_options_of_the_command() {
        let check = |code: ErrorCode, advice: &str| {
            let error = QueryError::about(code, "a limit");
            let failure = query_failure("cannot query".to_owned(), &error, error.to_string());
            let text = failure.to_string();
            assert!(text.contains(advice), "{text}");
            assert!(!text.to_lowercase().contains("raise the"), "{text}");
        };
        check(ErrorCode::TooDeep, "at most 512 levels");
        check(ErrorCode::PageTooLarge, "at most 67108864 bytes");
        check(ErrorCode::GroupBudget, "`--order-by`");
        check(ErrorCode::DistinctBudget, "`--order-by`");
    }
}
