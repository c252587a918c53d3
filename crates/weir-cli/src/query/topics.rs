//! Topics as sources: the query of the library, with the options of the command line.

use std::time::{Duration, Instant};

use weir::query::{Bounds, Budgets, Explain, QueryText, SourceId};
use weir::{
    ErrorCode, StoreError, TopicEnd, TopicInfo, TopicQuery, TopicQueryOptions, TopicStep,
    TopicView, Weir, WeirError, pattern_matches,
};

use super::checkpoint::Checkpoint;
use super::{Next, QueryArgs, Run, directory, query_failure};
use crate::caller::Caller;
use crate::place::{self, Access};
use crate::report::{Failure, note};

/// Maximum wait of a following query before it returns without results.
const WAIT: Duration = Duration::from_secs(1);

/// A query over topics.
pub(super) struct Topics(TopicQuery);

impl Topics {
    /// Starts a query, or resumes it at a token.
    pub(super) fn new(
        caller: &Caller,
        args: &QueryArgs,
        text: QueryText,
        budgets: Budgets,
        token: Option<Vec<u8>>,
    ) -> anyhow::Result<Self> {
        let weir = place::open(caller, Access::Read)?;
        Self::over(caller, args, &weir, (text, budgets, token))
    }

    /// Like `new`, over an open store.
    pub(super) fn over(
        caller: &Caller,
        args: &QueryArgs,
        weir: &Weir,
        (text, budgets, token): (QueryText, Budgets, Option<Vec<u8>>),
    ) -> anyhow::Result<Self> {
        check_patterns(&args.topics)?;
        if token.is_none() {
            let list = || weir.topics(false).map_err(|error| failed(&error));
            check_matches(caller.quiet, &args.topics, args.follow, list)?;
        }
        let mut options = TopicQueryOptions::new(&args.topics).text(text);
        options.budgets = budgets;
        options.token = token;
        if args.latest {
            options.view = TopicView::Latest;
        } else if let Some(from) = args.from {
            options.from = from;
        }
        if args.follow {
            options.end = TopicEnd::Follow;
        }
        if directory(caller, args)?.is_some() {
            options.patience = place::FOLLOWER_PATIENCE;
        }
        match weir.query(options) {
            Ok(query) => Ok(Self(query)),
            Err(error) => Err(failed(&error)),
        }
    }
}

/// Explanation of patterns in an error.
const PATTERNS: &str = "`*` matches one whole part of a name, between dots; `**` at the end \
                        matches one or more parts";

/// Whether a topic name could match the pattern: no part has a `*` among other characters, and `**`
/// is the last part.
fn is_pattern(pattern: &str) -> bool {
    let mut parts = pattern.split('.').peekable();
    while let Some(part) = parts.next() {
        let fits = match part {
            "*" => true,
            "**" => parts.peek().is_none(),
            part => !part.contains('*'),
        };
        if !fits {
            return false;
        }
    }
    true
}

/// The failure for a pattern that matches no topic.
fn unmatched(pattern: &str) -> Failure {
    let what = format!("no topic matches {pattern}");
    Failure::new(ErrorCode::TopicUnknown, what)
        .because(PATTERNS)
        .advise("`weir topic ls` lists the names")
}

/// Fails if a pattern can match no topic name.
pub(crate) fn check_patterns(patterns: &[String]) -> anyhow::Result<()> {
    match patterns.iter().find(|pattern| !is_pattern(pattern)) {
        Some(pattern) => Err(unmatched(pattern).into()),
        None => Ok(()),
    }
}

/// Fails if no pattern matches a topic. Otherwise prints a note for each pattern without a match.
/// Without `--follow`, names are not checked here, because an unknown name is an error of the
/// caller. `list` returns the topics that exist.
pub(crate) fn check_matches(
    quiet: bool,
    patterns: &[String],
    follow: bool,
    list: impl FnOnce() -> anyhow::Result<Vec<TopicInfo>>,
) -> anyhow::Result<()> {
    let wanted = |name: &&String| follow || name.contains('*');
    if !patterns.iter().any(|name| wanted(&name)) {
        return Ok(());
    }
    let topics = list()?;
    let matches = |name: &&String| topics.iter().any(|info| pattern_matches(name, &info.name));
    let missing: Vec<&String> = patterns.iter().filter(|name| !matches(name)).collect();
    if let [first, ..] = missing[..]
        && missing.len() == patterns.len()
        && !follow
    {
        return Err(unmatched(first).into());
    }
    for name in missing.into_iter().filter(wanted) {
        let yet = if follow { "; waiting for one" } else { "" };
        note(quiet, &format!("no topic matches {name}{yet}"));
    }
    Ok(())
}

impl Run for Topics {
    fn explain(&self) -> Explain {
        self.0.explain()
    }

    fn next(&mut self, bounds: Bounds, wait: bool) -> anyhow::Result<Next> {
        let now = Instant::now();
        let deadline = if wait {
            now.checked_add(WAIT)
        } else {
            Some(now)
        };
        match self.0.next(bounds, deadline) {
            Ok(TopicStep::Page(page)) => Ok(Next::Page(page)),
            Ok(TopicStep::Idle) => Ok(Next::Idle),
            Ok(TopicStep::Done) => Ok(Next::Done),
            Err(error) => Err(failed(&error)),
        }
    }

    fn position(&self) -> anyhow::Result<Checkpoint> {
        let token = self.0.token().map_err(|error| failed(&error))?;
        let files = Vec::new();
        Ok(Checkpoint { files, token })
    }

    fn skipped(&self) -> u64 {
        self.0.skipped()
    }

    fn name(&self, source: SourceId) -> String {
        self.0.topic(source).unwrap_or_default().to_owned()
    }
}

/// Whether the error concerns the value of a record.
fn is_not_json(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotUtf8
            | ErrorCode::NotJson
            | ErrorCode::ControlCharacter
            | ErrorCode::UnterminatedString
            | ErrorCode::Unbalanced
            | ErrorCode::TrailingData
    )
}

/// Converts an error, and names the topic in it.
fn failed(error: &WeirError) -> anyhow::Error {
    match error {
        WeirError::Query(error) if error.location().field.is_some() => super::text::failed(error),
        WeirError::Query(error) if is_not_json(error.code()) => {
            let topic = String::from_utf8_lossy(&error.location().name);
            let failure = Failure::new(error.code(), format!("cannot query {topic}"));
            let advice = "`--on-bad-item skip` skips records that are not JSON";
            failure.because(error).advise(advice).into()
        }
        WeirError::Query(error) => {
            let topic = String::from_utf8_lossy(&error.location().name);
            let what = format!("cannot query {topic}");
            query_failure(what.trim_end().to_owned(), error, error.to_string())
        }
        WeirError::Store(StoreError::TopicUnknown { name }) => {
            Failure::new(ErrorCode::TopicUnknown, format!("cannot query {name}")).into()
        }
        error => Failure::weir("cannot query", error).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_pattern;

    #[test]
    fn a_star_stands_for_a_whole_part() {
        for good in [
            "orders",
            "*",
            "**",
            "orders.*",
            "*.paid",
            "orders.**",
            "a.*.**",
        ] {
            assert!(is_pattern(good), "{good}");
        }
        for bad in ["ord*", "*s", "orders.a*", "**.a", "orders.***", "a**"] {
            assert!(!is_pattern(bad), "{bad}");
        }
    }
}
