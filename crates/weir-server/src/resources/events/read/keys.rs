//! The keys of a topic in byte order, optionally with their values.

use std::sync::Arc;

use weir_store::{SCAN_KEYS_MAX, key_after};

use super::one::reserve_block_of;
use super::position::{at_least, first, no_topic, not_acceptable, store_error};
use crate::http::accept;
use crate::http::problem::Problem;
use crate::http::query::encode;
use crate::http::reply::Reply;
use crate::limits::budget::Reservation;
use crate::limits::{PAGE_BYTES, PAGE_BYTES_MAX, PAGE_RECORDS};
use crate::resources::consistency;
use crate::resources::context::{Call, Edge};
use crate::resources::reading::{self, Attempt};
use crate::resources::records::{Fit, Form, Writer};

/// Returns keys in byte order.
pub(crate) async fn keys(edge: &Arc<Edge>, call: &Call) -> Result<Reply, Problem> {
    at_least(edge, call).await?;
    let query = &call.query;
    let form = accept::media(&call.head, Form::OFFERS).ok_or_else(not_acceptable)?;
    let limit = query
        .number("limit", 1, SCAN_KEYS_MAX as u64)?
        .unwrap_or(PAGE_RECORDS);
    let limit = usize::try_from(limit).unwrap_or(SCAN_KEYS_MAX);
    let values = query.flag("values")?;
    let prefix = query.bytes("prefix").unwrap_or_default().to_vec();
    let from = query.bytes("after").map(key_after).unwrap_or_default();
    let (store, topic) = (Arc::clone(&edge.shared.store), call.matched.topic.clone());
    if store
        .topic_state(&topic)
        .is_none_or(|topic| topic.incarnation.is_none())
    {
        return Err(no_topic());
    }
    let reservation =
        Reservation::for_principal(&edge.shared.admission.answers, call.principal.share_key());
    let ((writer, next), reservation) =
        reading::read(&edge.shared, reservation, move |reservation| {
            let (found, more) = store
                .scan_page(&topic, &prefix, &from, limit, PAGE_BYTES)
                .map_err(|error| store_error(&error))?;
            let mut writer = Writer::new(form);
            let mut last = None;
            for entry in &found {
                if writer.out.len() >= PAGE_BYTES_MAX {
                    break;
                }
                if !values {
                    // At most six bytes for each byte of the key, and a few members.
                    if !reservation.try_cover(writer.out.len() + entry.key.len() * 6 + 64) {
                        if last.is_none() {
                            return Ok(Attempt::NeedsMemory(entry.key.len() * 6 + 64));
                        }
                        break;
                    }
                    last = Some(entry.key.clone());
                    writer.key(&entry.key, entry.offset.0);
                    continue;
                }
                if let Some(bytes) =
                    reserve_block_of(&store, &topic, entry.offset, writer.out.len(), reservation)
                {
                    if last.is_none() {
                        return Ok(Attempt::NeedsMemory(bytes));
                    }
                    break;
                }
                let page = store
                    .value(&topic, entry)
                    .map_err(|error| store_error(&error))?;
                // A key that was changed meanwhile is omitted; a later page has its new value.
                if let Some(record) = page.as_ref().map(first).transpose()?.flatten() {
                    match writer.fit(&topic, &record, reservation) {
                        Fit::Added => {}
                        Fit::Full => break,
                        Fit::NeedsMemory(bytes) => return Ok(Attempt::NeedsMemory(bytes)),
                    }
                }
                last = Some(entry.key.clone());
            }
            let more = more || last.as_ref() != found.last().map(|entry| &entry.key);
            Ok(Attempt::Done((writer, last.filter(|_| more))))
        })
        .await?;
    let mut reply = Reply::new(200)
        .number("weir-count", writer.count)
        .field("cache-control", "no-cache");
    reply.add("vary", "accept, accept-encoding");
    if let Some(next) = next {
        let mut pairs = vec![format!("after={}", encode(&next))];
        for name in [consistency::PARAMETER, "limit", "prefix", "values"] {
            if let Some(value) = call.query.bytes(name) {
                pairs.push(format!("{name}={}", encode(value)));
            }
        }
        pairs.sort_unstable();
        let target = format!("/v1/topics/{}/keys?{}", call.matched.topic, pairs.join("&"));
        reply.add("link", format_args!("<{target}>; rel=\"next\""));
    }
    if writer.reframed {
        reply.add("weir-reframed", "?1");
    }
    let reply = reply.with(form.media_type(), writer.end());
    Ok(reply.reserved(reservation))
}
