//! Reads: one record, one key, keys in order, pages of records.
//!
//! A page ends behind a number of records or of bytes, whichever comes first,
//! but never before its first record. What lies in one block is read in place
//! if nothing has to be waited for; everything else on a thread that may block.
//!
//! | module | room |
//! |---|---|
//! | `one` | one record, by offset or by key |
//! | `page`, `descending`, `filter` | records of a topic, forwards and backwards |
//! | `keys` | keys in order |

mod descending;
mod filter;
mod keys;
mod one;
mod page;

use std::sync::Arc;
use std::time::Duration;

use weir_core::{ConsequenceOffset, ErrorCode, Record};
use weir_store::{Page, StoreError, TopicReader};

pub(crate) use self::filter::Filter;
pub(crate) use self::keys::keys;
pub(crate) use self::one::{event, key};
use self::one::{event_now, key_now};
pub(crate) use self::page::page;
use crate::http::head::{Head, Known};
use crate::http::offload;
use crate::http::problem::{self, Kind, Problem};
use crate::http::reply::Reply;
use crate::limits::{LAG_SECONDS, WAIT_SECONDS_MAX};
use crate::resources::records::Form;
use crate::resources::route::Resource;
use crate::service::{Call, Edge};
use crate::shared::Phase;

/// Whatever somebody has put there, it runs as no page of this server.
pub(crate) const NO_PAGE: &str = "sandbox; default-src 'none'";

/// Bytes of records that a page with a filter looks through; behind them it
/// ends, with what it found, and says where to go on.
const LOOK_BYTES_MAX: usize = 64 << 20;

/// Answers at once what needs no wait; `None` for everything else.
pub(crate) fn quick(edge: &Arc<Edge>, call: &Call) -> Option<Result<Reply, Problem>> {
    if call.head.method.writes() || call.head.has(Known::AcceptEncoding) {
        return None;
    }
    match call.matched.resource {
        Resource::Event => event_now(edge, call),
        Resource::Key if call.query.bytes("at-least").is_none() => key_now(edge, call),
        Resource::Healthz | Resource::Readyz => Some(crate::resources::ops::get(
            edge,
            call,
            call.matched.resource,
        )),
        _ => None,
    }
}

/// There is one node, so every read sees everything that was answered.
fn consistency(call: &Call) -> Result<(), Problem> {
    call.query
        .word("consistency", &[("local", ()), ("linear", ())])
        .map(|_| ())
}

/// Waits until the topic has the offset that the reader asks for.
async fn at_least(edge: &Arc<Edge>, call: &Call) -> Result<(), Problem> {
    consistency(call)?;
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
    let there = tokio::select! {
        there = reader.changed() => there,
        () = tokio::time::sleep(Duration::from_secs(wait.unwrap_or(LAG_SECONDS))) => false,
        _ = phase.wait_for(|phase| *phase >= Phase::Draining) => false,
    };
    if there {
        return Ok(());
    }
    let problem =
        Problem::new(Kind::Lagging, ErrorCode::Lagging.sentence()).code(ErrorCode::Lagging);
    Err(problem.number("last", reader.last().0))
}

/// Where a reader starts.
pub(crate) async fn start(
    edge: &Arc<Edge>,
    call: &Call,
    waits: bool,
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
    match call.query.text("from")? {
        Some(_) if after.is_some() => {
            return Err(Problem::bad("a position is given by after or by from"));
        }
        None | Some("first") => {}
        Some("tail") => reader.seek(reader.last()),
        Some(other) => {
            let time = other
                .strip_prefix("time:")
                .and_then(crate::resources::route::offset_of);
            let time =
                time.ok_or_else(|| Problem::bad("from is first, tail or time: with milliseconds"))?;
            reader = offload::run(move || {
                let sought = reader.seek_time(time);
                sought.map_err(|error| store_error(&error))?;
                Ok(reader)
            })
            .await?;
        }
    }
    let reset = call.query.word("reset", &[("earliest", ())])?.is_some();
    let gap = gone(edge, call, &mut reader, after.unwrap_or(0), reset)?;
    let after = reader.position().0 - 1;
    Ok((reader, after, gap))
}

/// Whether the first records that the reader wants are gone. A topic that is
/// compacted has holes anywhere; they are no loss.
pub(crate) fn gone(
    edge: &Arc<Edge>,
    call: &Call,
    reader: &mut TopicReader,
    after: u64,
    reset: bool,
) -> Result<bool, Problem> {
    // Compaction leaves holes; what retention removed is gone.
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

/// Whether the client has this version already.
pub(crate) fn is_known(head: &Head, tag: &str) -> bool {
    let plain = |text: &str| -> Option<String> {
        let text = text
            .strip_prefix("W/")
            .unwrap_or(text)
            .strip_prefix('"')?
            .strip_suffix('"')?;
        let codings = ["-gzip", "-deflate", "-zstd"];
        let coding = codings.iter().find_map(|coding| text.strip_suffix(coding));
        Some(coding.unwrap_or(text).to_owned())
    };
    let ours = plain(tag);
    head.list(Known::IfNoneMatch)
        .any(|theirs| theirs == "*" || (plain(theirs) == ours && ours.is_some()))
}

/// The first record of a page.
fn first(page: &Page) -> Result<Option<Record<'_>>, Problem> {
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

fn store_error(error: &StoreError) -> Problem {
    problem::of_store(error)
}
