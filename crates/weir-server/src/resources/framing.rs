//! The framing of a body with several events, and the key of an event.

use super::cloudevents;
use super::context::Call;
use super::route::Resource;
use crate::http::base64;
use crate::http::head::{FieldName, Method};
use crate::http::problem::Problem;

/// The framing of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Lines,
    Sequence,
    Events,
}

/// Parses the key of an event from `Weir-Key`, `Weir-Key-B64` or `?key=`; empty for no key.
pub(crate) fn key_of(call: &Call) -> Result<Vec<u8>, Problem> {
    let head = &call.head;
    let plain = head.raw(FieldName::WeirKey).map(<[u8]>::to_vec);
    let coded = match head.text(FieldName::WeirKeyB64) {
        None => None,
        Some(text) => Some(
            base64::decode(text.trim_matches(':'))
                .ok_or_else(|| Problem::bad("Weir-Key-B64 is not base64"))?,
        ),
    };
    let query = call.query.bytes("key").map(<[u8]>::to_vec);
    let repeated = head.is_repeated(FieldName::WeirKey) || head.is_repeated(FieldName::WeirKeyB64);
    let mut keys = [plain, coded, query].into_iter().flatten();
    let key = keys.next();
    if keys.next().is_some() || repeated {
        return Err(Problem::bad(
            "use only one of Weir-Key, Weir-Key-B64 and the parameter key, once",
        ));
    }
    if key.as_ref().is_some_and(Vec::is_empty) {
        return Err(Problem::bad("a key must have at least one byte"));
    }
    Ok(key.unwrap_or_default())
}

/// Returns the framing if the body has several events.
pub(crate) fn framing(call: &Call) -> Option<Framing> {
    if call.matched.resource != Resource::Events || call.head.method != Method::Post {
        return None;
    }
    let media = call.head.text(FieldName::ContentType)?;
    let essence = media.split(';').next().unwrap_or_default().trim();
    let is = |name: &str| essence.eq_ignore_ascii_case(name);
    if is("application/x-ndjson") || is("application/jsonl") || is("application/ndjson") {
        Some(Framing::Lines)
    } else if is("application/json-seq") {
        Some(Framing::Sequence)
    } else {
        cloudevents::is_batch(&call.head).then_some(Framing::Events)
    }
}

/// Whether the body has several events. Such a body is read piece by piece.
pub(crate) fn is_batch(call: &Call) -> bool {
    framing(call).is_some()
}
