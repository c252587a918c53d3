//! The start of a read: its position, its wait for an offset, and its problems.

use std::sync::Arc;
use std::time::Duration;

use weir_core::{ConsequenceOffset, ErrorCode, Record};
use weir_store::{Page, ReadFrom, StoreError, TopicReader};

use crate::http::head::{FieldName, Head};
use crate::http::offload;
use crate::http::problem::{Kind, Problem};
use crate::http::query::encode;
use crate::limits::{LAG_SECONDS, WAIT_SECONDS_MAX};
use crate::phase::Phase;
use crate::resources::context::{Call, Edge};
use crate::resources::records::Form;
use crate::resources::{consistency, problems};

/// Bytes of records that a page with a filter, or a list of unseen records, scans. After them the
/// page ends with its matches and the position to continue from.
pub(crate) const SCAN_BYTES_MAX: usize = 64 << 20;

/// Waits until the topic has the offset that the request names.
pub(crate) async fn at_least(edge: &Arc<Edge>, call: &Call) -> Result<(), Problem> {
    let wait = call.query.number("wait", 0, WAIT_SECONDS_MAX)?;
    let Some(offset) = call.query.number("at-least", 0, u64::MAX)? else {
        return Ok(());
    };
    let before = ConsequenceOffset(offset.saturating_sub(1));
    let reader = edge.shared.store.listen(&call.matched.topic, before);
    if offset == 0 || reader.last().0 >= offset {
        return Ok(());
    }
    let mut phase = edge.shared.phase.subscribe();
    let has_offset = tokio::select! {
        changed = reader.changed() => changed,
        () = tokio::time::sleep(Duration::from_secs(wait.unwrap_or(LAG_SECONDS))) => false,
        _ = phase.wait_for(|phase| *phase >= Phase::Draining) => false,
    };
    edge.check_right_again(call)?;
    if has_offset {
        return Ok(());
    }
    let problem =
        Problem::new(Kind::Lagging, ErrorCode::Lagging.sentence()).code(ErrorCode::Lagging);
    Err(problem.number("last", reader.last().0))
}

/// Parses the parameter `from`.
fn from(call: &Call) -> Result<Option<ReadFrom>, Problem> {
    let Some(text) = call.query.text("from")? else {
        return Ok(None);
    };
    let from = ReadFrom::parse(text).map_err(|error| Problem::bad(error.to_string()))?;
    Ok(Some(from))
}

/// Whether the position of the request depends on the time at which it is resolved.
pub(crate) fn depends_on_time(call: &Call) -> Result<bool, Problem> {
    Ok(from(call)?.is_some_and(|from| !matches!(from, ReadFrom::After(_))))
}

/// Moves a reader to a position. A position by time is searched on the disk, on a blocking thread.
pub(crate) async fn seek(mut reader: TopicReader, from: ReadFrom) -> Result<TopicReader, Problem> {
    offload::run(move || {
        let result = reader.seek_from(from);
        result.map_err(|error| store_error(&error))?;
        Ok(reader)
    })
    .await
}

/// Returns a reader at the start of the read. If the client names the last record that it received,
/// the read continues after `resumed`: the position in the query is where its first read began.
pub(crate) async fn start(
    edge: &Arc<Edge>,
    call: &Call,
    waits: bool,
    resumed: Option<u64>,
) -> Result<(TopicReader, u64, bool), Problem> {
    let store = &edge.shared.store;
    let topic = &call.matched.topic;
    let after = call.query.number("after", 0, u64::MAX - 1)?;
    let mut reader = if waits {
        store.listen(topic, ConsequenceOffset(after.unwrap_or(0)))
    } else {
        store
            .read(topic, ConsequenceOffset(after.unwrap_or(0)))
            .map_err(|error| store_error(&error))?
    };
    let from = from(call)?;
    if from.is_some() && after.is_some() {
        return Err(Problem::bad("use either after or from, not both"));
    }
    let requested = match (resumed, from) {
        (Some(offset), _) | (None, Some(ReadFrom::After(ConsequenceOffset(offset)))) => offset,
        _ => after.unwrap_or(0),
    };
    if resumed.is_some() {
        reader.seek(ConsequenceOffset(requested));
    } else if let Some(from) = from {
        reader = seek(reader, from).await?;
    }
    let reset = call.query.word("reset", &[("earliest", ())])?.is_some();
    let gap = check_removed(edge, call, &mut reader, requested, reset)?;
    let after = reader.position().0 - 1;
    Ok((reader, after, gap))
}

/// Returns whether retention has removed records after `after`, and the reader skips them. Fails
/// with GONE if the request does not allow that. Gaps of a compacted topic do not count.
fn check_removed(
    edge: &Arc<Edge>,
    call: &Call,
    reader: &mut TopicReader,
    after: u64,
    reset: bool,
) -> Result<bool, Problem> {
    // Compaction leaves gaps that are readable; records that retention removed are not.
    let removed = edge.shared.store.removed(&call.matched.topic).0;
    if after == 0 || after >= removed {
        return Ok(false);
    }
    let first = removed.saturating_add(1);
    if reset {
        reader.seek(ConsequenceOffset(first - 1));
        return Ok(true);
    }
    Err(Problem::new(Kind::Gone, ErrorCode::Gone.sentence())
        .code(ErrorCode::Gone)
        .number("first", first)
        .number("last", reader.last().0))
}

/// Whether `If-None-Match` has this tag: the client already has this version.
pub(crate) fn is_not_modified(head: &Head, tag: &str) -> bool {
    let without_coding = |text: &str| -> Option<String> {
        let text = text
            .strip_prefix("W/")
            .unwrap_or(text)
            .strip_prefix('"')?
            .strip_suffix('"')?;
        let codings = ["-gzip", "-deflate", "-zstd"];
        let coding = codings.iter().find_map(|coding| text.strip_suffix(coding));
        Some(coding.unwrap_or(text).to_owned())
    };
    let ours = without_coding(tag);
    head.list(FieldName::IfNoneMatch)
        .any(|theirs| theirs == "*" || (without_coding(theirs) == ours && ours.is_some()))
}

/// The first record of a page.
pub(crate) fn first(page: &Page) -> Result<Option<Record<'_>>, Problem> {
    page.iter()
        .next()
        .transpose()
        .map_err(|error| store_error(&error))
}

pub(crate) fn no_topic() -> Problem {
    Problem::new(Kind::NoTopic, ErrorCode::TopicUnknown.sentence()).code(ErrorCode::TopicUnknown)
}

pub(crate) fn not_acceptable() -> Problem {
    let mut list = Vec::new();
    let mut offers: Vec<&str> = Form::OFFERS.iter().map(|(name, _)| *name).collect();
    offers.push("text/event-stream");
    list.extend_from_slice(b"[\"");
    list.extend_from_slice(offers.join("\",\"").as_bytes());
    list.extend_from_slice(b"\"]");
    Problem::new(Kind::NotAcceptable, "").raw("accept", list)
}

pub(crate) fn store_error(error: &StoreError) -> Problem {
    problems::of_store(error)
}

/// The target of the next page, with its parameters in a fixed order.
pub(crate) fn next_page(call: &Call, next: u64) -> String {
    let mut pairs = vec![format!("after={next}")];
    for name in [
        consistency::PARAMETER,
        "fields",
        "key",
        "limit",
        "max-bytes",
        "numbers",
        "prefix",
        "type",
        "wait",
    ] {
        if let Some(value) = call.query.bytes(name) {
            pairs.push(format!("{name}={}", encode(value)));
        }
    }
    pairs.sort_unstable();
    format!(
        "/v1/topics/{}/events?{}",
        call.matched.topic,
        pairs.join("&")
    )
}
