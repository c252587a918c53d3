//! `weir tail`: prints records in order, and new ones when they arrive.
//!
//! The records of several topics are merged in the order of their intentions. When the command
//! follows a directory (`-f`), it opens the store only after another process may have written, so
//! that other processes can write. `follower` detects this from the lock file. Group members use it
//! too. At a server, the command listens all the time (`follow`), and merges the records that have
//! arrived: a record of one topic may arrive after later ones of another topic.
//!
//! Invariants:
//! - No record is printed twice, or after a later one of its topic. A member of a group prints a
//!   record again if its acknowledgement was lost.
//! - A pause precedes each check for new records.
//! - Without new records, the command ends soon after the reader of its output.
//! - While its output is stalled, the command has no directory open, unless a single row is very
//!   long or the command reads as a member of a group.

mod follow;
mod merge;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use weir::query::RecordFilter;
use weir::{ConsequenceOffset, ReadFrom, Record, RecordKind, TopicReader, Weir, pattern_matches};

use self::follow::Follow;
use self::merge::Merge;
use crate::arguments::position;
use crate::caller::Caller;
use crate::follower::{FOLLOW_PAUSE, FollowerProgress, access, open, open_now};
use crate::group::{self, Until};
use crate::output::{Output, Shape};
use crate::place::{self, Access, Location};
use crate::query::{check_consumer, check_matches, check_patterns, filter_failed, parse_param};
use crate::record;
use crate::report::{FailureContext, note, temporary, usage};

#[derive(Debug, Args)]
#[command(after_long_help = "\
TOPIC may be a pattern: in `orders.*`, `*` matches one part of a name. In `orders.**`, `**` matches
one or more parts. Records of several topics are printed in the order in which the store applied them.
With -f at a server, a new record can be printed before an earlier record of another topic;
`weir query --follow` keeps the order of all topics.

-f follows the topics until Ctrl-C. At a server, the command receives each new record at once. In a
directory, it opens the store only while it reads, so other commands can write. While it reads, they
wait up to their --lock-wait. It checks every 100 ms whether another command had the store open. The
records of a command are printed after that command ends. Any number of followers may run at once.
If the reader of the output pauses, for example a pager, the command closes the directory until the
reader continues. It then also prints records that were written meanwhile.

--group needs a group of the mode `exclusive` (`weir group create TOPIC NAME mode=exclusive`). It
creates the group if it does not exist. Use `weir group claim` to read as a member of a shared or
keyed group. With -f in a directory, the command is a member only while it reads new records. Records
are acknowledged after they are printed and, if the output is a pipe, read by the other end. So up to
100 records can be printed again, if the reader of the pipe or a server ends in between.

Examples:
  weir put orders '{\"id\":1}' && weir tail orders
  weir put orders '{\"id\":2}' && weir tail orders --from -10 -o jsonl
  weir put orders '{\"n\":5}' && weir tail orders --where '@.n > 3'
  weir put a.x 1 && weir put a.y 2 && weir tail 'a.*' --type put -o raw
  weir put orders '{\"id\":3}' && weir tail orders -f -n 2
  weir put orders '{\"id\":4}' && weir tail orders --group mail")]
pub(crate) struct TailArgs {
    /// Topics or patterns to read
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Continue with new records
    #[arg(short, long)]
    follow: bool,
    /// First record: start, end, an offset, -N for the last N records, or a time (10m, 2026-11-01)
    #[arg(long, default_value = "start", value_name = "POSITION", value_parser = position)]
    #[arg(allow_hyphen_values = true)]
    from: ReadFrom,
    /// Stop after this number of records
    #[arg(short = 'n', long, value_name = "N")]
    #[arg(value_parser = crate::settings::count, allow_negative_numbers = true)]
    limit: Option<u64>,
    /// Only records of this kind
    #[arg(long = "type", value_enum, value_name = "KIND")]
    kind: Option<Kind>,
    /// Only records whose key begins with TEXT
    #[arg(long, value_name = "TEXT")]
    key_prefix: Option<String>,
    /// Only records for which EXPRESSION is true, as in `weir query --where`
    ///
    /// A value that is not JSON has no paths.
    #[arg(long = "where", value_name = "EXPRESSION", allow_hyphen_values = true)]
    filter: Option<String>,
    /// Value of param('NAME') in --where: JSON, or a string if it is not JSON
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_param, requires = "filter")]
    #[arg(hide_short_help = true)]
    params: Vec<(String, String)>,
    /// Read as a member of this exclusive group, which is created if it does not exist
    ///
    /// Prints the records that the group has not acknowledged yet, and acknowledges them.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["from", "kind", "key_prefix", "filter"])]
    group: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Put,
    Delete,
    Create,
    Alter,
    Replace,
    Destroy,
}

impl TailArgs {
    fn selects(&self, record: &Record<'_>) -> bool {
        let kind = match self.kind {
            None => true,
            Some(Kind::Put) => record.kind == RecordKind::Put,
            Some(Kind::Delete) => record.kind == RecordKind::Delete,
            Some(Kind::Create) => record.kind == RecordKind::Create,
            Some(Kind::Alter) => record.kind == RecordKind::Alter,
            Some(Kind::Replace) => record.kind == RecordKind::Replace,
            Some(Kind::Destroy) => record.kind == RecordKind::Destroy,
        };
        let prefix = self.key_prefix.as_deref().unwrap_or_default().as_bytes();
        kind && record.key.starts_with(prefix)
    }
}

/// Runs `weir tail`.
pub(crate) fn run(caller: &Caller, args: &TailArgs) -> anyhow::Result<ExitCode> {
    let several = args.topics.len() > 1 || args.topics.iter().any(|name| name.contains('*'));
    let (style, short) = match &args.group {
        Some(_) => (caller.style.clone(), false),
        None => record::short(&caller.style, several),
    };
    let Some(mut out) = style.open(Shape::Stream, record::FIELDS)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let filter = args
        .filter
        .as_deref()
        .map(|text| RecordFilter::new(text, &args.params));
    let filter = filter.transpose().map_err(|error| filter_failed(&error))?;
    for text in filter.iter().flat_map(RecordFilter::notes) {
        note(caller.quiet, &text);
    }
    if let Some(group) = &args.group {
        let limit = args.limit.unwrap_or(u64::MAX);
        let [topic] = args.topics.as_slice() else {
            return Err(usage("--group needs exactly one topic"));
        };
        as_group(caller, (topic, group), limit, args.follow, &mut out)?;
        out.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    check_patterns(&args.topics)?;
    let mut state = State {
        args,
        filter,
        short,
        quiet: caller.quiet,
        retries: false,
        from: args.from,
        positions: BTreeMap::new(),
        left: args.limit.unwrap_or(u64::MAX),
    };
    if !args.follow {
        let mut weir = place::open(caller, Access::Read)?;
        state.check(&weir)?;
        while !state.read(&weir, &mut out)? {
            drop(weir);
            out.flush()?;
            // Topics that appear from now on are new, so they are read from their start.
            state.from = ReadFrom::Start;
            weir = place::open(caller, Access::Read)?;
        }
        drop(weir);
        out.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    match place::location(caller)? {
        Location::Server(_) => {
            let weir = place::open(caller, Access::Read)?;
            state.note_missing(&weir)?;
            while state.left > 0 {
                // Ends at a temporary error, and later continues after the printed records.
                Follow::new(&weir).run(&mut state, &mut out)?;
            }
        }
        Location::Directory(at) => directory(caller, Path::new(at), &mut state, &mut out)?,
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Reads as a member of a group.
fn as_group(
    caller: &Caller,
    names: (&str, &str),
    limit: u64,
    follow: bool,
    out: &mut Output,
) -> anyhow::Result<()> {
    if follow && let Location::Directory(at) = place::location(caller)? {
        return directory_as_group(caller, Path::new(at), names, limit, out);
    }
    let weir = place::open(caller, Access::Change)?;
    let until = if follow { Until::Never } else { Until::End };
    let mut left = limit;
    group::tail(&weir, names, &mut left, until, out)?;
    weir.close().failed(|| cannot_read(names))
}

fn cannot_read((topic, group): (&str, &str)) -> String {
    format!("cannot read {topic} as group {group}")
}

/// Reads as a member of a group in a directory. The store is open only if another process may have
/// written.
fn directory_as_group(
    caller: &Caller,
    at: &Path,
    names: (&str, &str),
    mut left: u64,
    out: &mut Output,
) -> anyhow::Result<()> {
    let mut watch = FollowerProgress::new(at);
    let mut opened = Some(open(caller, Access::Change, caller.lock_wait)?);
    while left > 0 {
        if let Some(weir) = opened.take() {
            let served = weir.local().is_none();
            let until = if served {
                Until::Never
            } else {
                Until::EndIfAny
            };
            match group::tail(&weir, names, &mut left, until, out) {
                // Records that were printed and acknowledged are not printed again.
                Err(error) if served && temporary(&error).is_some() => continue,
                ended => ended?,
            }
            let line = watch.read(&weir);
            weir.close().failed(|| cannot_read(names))?;
            if let Some(line) = line {
                line.write();
            }
        }
        if left > 0 {
            std::thread::sleep(FOLLOW_PAUSE);
            check_consumer()?;
            if !watch.may_skip_open() {
                opened = open_now(caller, Access::Change)?;
            }
        }
    }
    Ok(())
}

/// Follows topics of a directory. Opens the store only briefly, or uses the server that has it
/// open.
fn directory(
    caller: &Caller,
    at: &Path,
    state: &mut State<'_>,
    out: &mut Output,
) -> anyhow::Result<()> {
    let mut watch = FollowerProgress::new(at);
    let first = open(caller, Access::Read, caller.lock_wait)?;
    state.note_missing(&first)?;
    let access = access(&first, at);
    let mut opened = Some(first);
    while state.left > 0 {
        if let Some(weir) = opened.as_ref().filter(|weir| weir.local().is_none()) {
            Follow::new(weir).run(state, out)?;
        } else if let Some(weir) = opened {
            let is_complete = state.read(&weir, out)?;
            let line = if is_complete { watch.read(&weir) } else { None };
            drop(weir);
            if let Some(line) = line {
                line.write();
            }
            out.flush()?;
            // Topics that appear from now on are new, so they are read from their start.
            state.from = ReadFrom::Start;
        }
        opened = None;
        if state.left > 0 {
            std::thread::sleep(FOLLOW_PAUSE);
            check_consumer()?;
            if !watch.may_skip_open() {
                opened = open_now(caller, access)?;
            }
        }
    }
    Ok(())
}

/// The progress of the command.
struct State<'a> {
    args: &'a TailArgs,
    /// `--where`.
    filter: Option<RecordFilter>,
    /// Whether rows have no column for the kind.
    short: bool,
    quiet: bool,
    /// Whether the last attempt ended with a temporary error.
    retries: bool,
    from: ReadFrom,
    /// Topics with the offset of the last read record.
    positions: BTreeMap<String, ConsequenceOffset>,
    left: u64,
}

impl State<'_> {
    /// Fails if a name is neither a pattern nor an existing topic, or if no pattern matches.
    fn check(&self, weir: &Weir) -> anyhow::Result<()> {
        for name in self.args.topics.iter().filter(|name| !name.contains('*')) {
            let failed = || format!("cannot read {name}");
            weir.topic(name)
                .failed(failed)?
                .reader(ReadFrom::Start)
                .failed(failed)?;
        }
        check_matches(self.quiet, &self.args.topics, false, || {
            weir.topics(false)
                .failed(|| "cannot list the topics".to_owned())
        })
    }

    /// Prints a note for each name and pattern without a topic.
    fn note_missing(&self, weir: &Weir) -> anyhow::Result<()> {
        let names = &self.args.topics;
        let noted = check_matches(self.quiet, names, true, || {
            let failed = || "cannot list the topics".to_owned();
            let mut topics = weir.topics(true).failed(failed)?;
            // As for the readers, only a name selects a removed topic.
            topics.retain(|info| info.live || names.contains(&info.name));
            Ok(topics)
        });
        match noted {
            // The command retries later.
            Err(error) if temporary(&error).is_some() => Ok(()),
            noted => noted,
        }
    }

    /// Prints the records after the positions. Returns `false` if the output is stalled: the caller
    /// must then close the store before it flushes the output, and read again.
    fn read(&mut self, weir: &Weir, out: &mut Output) -> anyhow::Result<bool> {
        let mut readers = BTreeMap::new();
        self.open(weir, &mut readers)?;
        out.detect_stalls(place::holds_lock(weir))?;
        let is_complete = self.print(&mut readers, out);
        out.detect_stalls(false)?;
        is_complete
    }

    /// Adds a reader, after its position, for each selected topic that has none yet.
    fn open(
        &mut self,
        weir: &Weir,
        readers: &mut BTreeMap<String, TopicReader>,
    ) -> anyhow::Result<()> {
        let known = weir
            .topics(true)
            .failed(|| "cannot list the topics".to_owned())?;
        for info in known {
            // A pattern selects no removed topic, but the command finishes one that it was reading.
            let by_pattern = info.live || self.positions.contains_key(&info.name);
            let selects = |pattern: &String| {
                *pattern == info.name || by_pattern && pattern_matches(pattern, &info.name)
            };
            if readers.contains_key(&info.name) || !self.args.topics.iter().any(selects) {
                continue;
            }
            let topic = weir.topic(&info.name).failed(|| "cannot read".to_owned())?;
            let position = self.positions.get(&info.name);
            let from = position.map_or(self.from, |last| ReadFrom::After(*last));
            let reader = topic
                .reader(from)
                .failed(|| format!("cannot read {}", info.name))?;
            if position.is_none() {
                let before = ConsequenceOffset(reader.position().0 - 1);
                self.positions.insert(info.name.clone(), before);
            }
            readers.insert(info.name, reader);
        }
        Ok(())
    }

    /// Prints the records that the readers return. Returns `false` if it ended because the output
    /// is stalled.
    fn print(
        &mut self,
        readers: &mut BTreeMap<String, TopicReader>,
        out: &mut Output,
    ) -> anyhow::Result<bool> {
        if self.left == 0 {
            return Ok(true);
        }
        let mut is_complete = true;
        let mut merge = Merge::default();
        for (name, reader) in readers {
            merge.add(name, reader);
        }
        let (args, positions, left) = (self.args, &mut self.positions, &mut self.left);
        let (filter, short) = (&self.filter, self.short);
        merge.run(|topic, record| {
            let passes = |filter: &RecordFilter| filter.matches(topic, record);
            let passes = match filter {
                Some(filter) if args.selects(record) => {
                    passes(filter).map_err(|error| filter_failed(&error))?
                }
                _ => args.selects(record),
            };
            if passes {
                if short {
                    out.row(&record::short_row(topic, record))?;
                } else {
                    out.row(&record::row(topic, record))?;
                }
                *left -= 1;
            }
            if let Some(last) = positions.get_mut(topic) {
                *last = record.offset;
            }
            if *left > 0 && out.is_stalled()? {
                is_complete = false;
                return Ok(false);
            }
            Ok(*left > 0)
        })?;
        Ok(is_complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_parts_of_names() {
        let matching = [
            ("a", "a"),
            ("a.*", "a.b"),
            ("a.**", "a.b.c"),
            ("**", "a.b"),
            ("*.b", "a.b"),
        ];
        let other = [
            ("a", "b"),
            ("a.*", "a"),
            ("a.*", "a.b.c"),
            ("a.**", "a"),
            ("a.b", "a"),
        ];
        assert!(
            matching
                .iter()
                .all(|(pattern, name)| pattern_matches(pattern, name))
        );
        assert!(
            !other
                .iter()
                .any(|(pattern, name)| pattern_matches(pattern, name))
        );
    }
}
