//! Keys, limits, media types and names of streams.

use weir_core::{Record, RecordKind, TopicName};

use crate::http::problem::Problem;
use crate::http::query::decode;

/// Prefix of keys that are not data of a stream.
pub(crate) const RESERVED: &[u8] = b".ds/";
/// Key of the description of the stream.
pub(crate) const CONFIG: &[u8] = b".ds/config";
/// Present when the stream is closed.
pub(crate) const CLOSED: &[u8] = b".ds/closed";
/// Present when the stream was deleted and forks still read it.
pub(crate) const GONE: &[u8] = b".ds/gone";
/// Key of the last `Stream-Seq`.
pub(crate) const ORDER: &[u8] = b".ds/seq";
/// Prefix of the keys of producer states.
pub(crate) const PRODUCER: &[u8] = b".ds/producer/";

/// Maximum number of producers of a stream.
pub(crate) const PRODUCERS_MAX: u64 = 10_000;
/// Keys of a stream that are not available to producers, mainly for its end.
pub(crate) const KEYS_RESERVED: u64 = 16;
/// Maximum number of bytes of a producer's id.
pub(crate) const PRODUCER_ID_BYTES_MAX: usize = 256;
/// Largest epoch and number of a producer: the largest integer that JavaScript represents exactly.
pub(crate) const PRODUCER_NUMBER_MAX: u64 = (1 << 53) - 1;
/// Maximum number of bytes of a `Stream-Seq`.
pub(crate) const ORDER_BYTES_MAX: usize = 1024;
/// Maximum number of bytes of a content type.
pub(crate) const TYPE_BYTES_MAX: usize = 255;
/// Longest time to live in seconds: a hundred years.
pub(crate) const TTL_SECONDS_MAX: u64 = 3_155_760_000;
/// Maximum number of streams with an expiry.
pub(crate) const EXPIRING_MAX: usize = 100_000;
/// Maximum number of streams through which a fork is read, including itself.
pub(crate) const FORK_PARTS_MAX: usize = 64;
/// Maximum number of bytes or messages that a fork copies after its position.
pub(crate) const FORK_SUB_OFFSET_MAX: u64 = 16 << 20;
/// Seconds for which a long poll waits, unless the client requests another time.
pub(crate) const POLL_SECONDS: u64 = 4;
/// Seconds for which a cursor is valid.
pub(crate) const CURSOR_SECONDS: u64 = 20;
/// Start of the count of cursors, in seconds since 1970: 2024-10-09.
pub(crate) const CURSOR_BEGIN: u64 = 1_728_432_000;
/// Upper bound of the increment of a cursor that a client sends back.
pub(crate) const CURSOR_JITTER: u64 = 180;
/// Attempts to write to a stream that changes meanwhile.
pub(crate) const ATTEMPTS_MAX: usize = 8;
/// Descriptions of streams that are cached in memory.
pub(crate) const CONFIGS_MAX: usize = 4096;
/// Number of keyed locks up to which unused locks are not removed.
pub(crate) const KEYED_LOCKS_MIN: usize = 64;
/// Seconds between two searches for expired streams.
pub(crate) const SWEEP_SECONDS: u64 = 2;
/// Entries of the registry in one read.
pub(crate) const REGISTRY_PAGE: usize = 1000;

/// Whether a record is data of its stream.
pub(crate) fn is_data(record: &Record<'_>) -> bool {
    record.kind == RecordKind::Put && !record.key.starts_with(RESERVED)
}

/// Whether a media type is JSON, so that values are separate messages.
pub(crate) fn is_json(content_type: &str) -> bool {
    use crate::resources::meta::{Declared, declared};
    matches!(
        declared(Some(content_type)),
        Declared::Json | Declared::JsonLike
    )
}

/// The media type without its parameters, in lower case.
pub(crate) fn essence(content_type: &str) -> String {
    let end = content_type.find(';').unwrap_or(content_type.len());
    let essence = content_type.get(..end).unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// Returns the topic of a path below `/ds/`: its segments, joined by dots.
pub(crate) fn topic_of(path: &str) -> Result<String, Problem> {
    let wrong = |why: String| Problem::bad(why).code(weir_core::ErrorCode::BadName);
    let mut name = String::with_capacity(path.len());
    for part in path.split('/') {
        let part = decode(part, false).and_then(|part| String::from_utf8(part).ok());
        let part = part.filter(|part| !matches!(part.as_str(), "" | "." | ".."));
        let part = part.ok_or_else(|| {
            wrong(
                "a part of the path is empty, `.`, `..`, or has an invalid percent escape"
                    .to_owned(),
            )
        })?;
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&part);
    }
    TopicName::new(&name).map_err(|error| wrong(error.to_string()))?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::topic_of;

    #[test]
    fn a_path_is_converted_to_a_topic() {
        assert_eq!(topic_of("a/b/c").ok().as_deref(), Some("a.b.c"));
        assert_eq!(topic_of("a.b%2Ec").ok().as_deref(), Some("a.b.c"));
        for wrong in [
            "", "a/", "/a", "a//b", "..", "a/../b", "a%2Fb", ".weir", "a%2", "é",
        ] {
            assert!(topic_of(wrong).is_err(), "{wrong}");
        }
    }
}
