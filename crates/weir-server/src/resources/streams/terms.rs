//! Keys, limits, media types and names of streams.

use weir_core::{Record, RecordKind, TopicName};

use crate::http::problem::Problem;
use crate::http::query::decode;

/// What keys begin with that are no data of a stream.
pub(crate) const RESERVED: &[u8] = b".ds/";
/// What the stream was made with.
pub(crate) const CONFIG: &[u8] = b".ds/config";
/// There when the stream has ended.
pub(crate) const CLOSED: &[u8] = b".ds/closed";
/// There when the stream was deleted and forks still read it.
pub(crate) const GONE: &[u8] = b".ds/gone";
/// The last `Stream-Seq`.
pub(crate) const ORDER: &[u8] = b".ds/seq";
/// What the key of a producer's state begins with.
pub(crate) const PRODUCER: &[u8] = b".ds/producer/";

/// Producers that a stream knows.
pub(crate) const PRODUCERS_MAX: u64 = 10_000;
/// Keys of a stream that producers leave free: for its end, above all.
pub(crate) const KEYS_SPARE: u64 = 16;
/// Bytes of a producer's id.
pub(crate) const PRODUCER_ID_BYTES_MAX: usize = 256;
/// Largest epoch and number of a producer: what JavaScript counts exactly.
pub(crate) const PRODUCER_NUMBER_MAX: u64 = (1 << 53) - 1;
/// Bytes of a `Stream-Seq`.
pub(crate) const ORDER_BYTES_MAX: usize = 1024;
/// Bytes of a content type.
pub(crate) const TYPE_BYTES_MAX: usize = 255;
/// Seconds of a time to live: a hundred years.
pub(crate) const TTL_SECONDS_MAX: u64 = 3_155_760_000;
/// Streams with an expiry.
pub(crate) const EXPIRING_MAX: usize = 100_000;
/// Streams that one is read through, itself included.
pub(crate) const FORK_PARTS_MAX: usize = 64;
/// Bytes or messages after the position of a fork that it takes as well.
pub(crate) const FORK_SUB_OFFSET_MAX: u64 = 16 << 20;
/// Seconds for which a long poll waits unless the client prefers otherwise.
pub(crate) const POLL_SECONDS: u64 = 4;
/// Seconds for which a cursor holds.
pub(crate) const CURSOR_SECONDS: u64 = 20;
/// Where cursors begin to count, in seconds since 1970: 2024-10-09.
pub(crate) const CURSOR_BEGIN: u64 = 1_728_432_000;
/// By how much a cursor that came back is moved on, at most.
pub(crate) const CURSOR_JITTER: u64 = 180;
/// Attempts at a write whose stream changes under it.
pub(crate) const ATTEMPTS_MAX: usize = 8;
/// Descriptions of streams that are kept in memory.
pub(crate) const CONFIGS_MAX: usize = 4096;
/// Rows of turns; more than there are processors to take them.
pub(crate) const TURNS: usize = 64;
/// Seconds between two looks for streams that have expired.
pub(crate) const SWEEP_SECONDS: u64 = 2;
/// Entries of the registry that are read together.
pub(crate) const REGISTRY_PAGE: usize = 1000;

/// Whether a record is data of its stream.
pub(crate) fn is_data(record: &Record<'_>) -> bool {
    record.kind == RecordKind::Put && !record.key.starts_with(RESERVED)
}

/// Whether a media type stands for JSON, whose values are kept apart.
pub(crate) fn is_json(content_type: &str) -> bool {
    use crate::resources::meta::{Declared, declared};
    matches!(
        declared(Some(content_type)),
        Declared::Json | Declared::LikeJson
    )
}

/// The part of a media type before its parameters, in lower case.
pub(crate) fn essence(content_type: &str) -> String {
    let end = content_type.find(';').unwrap_or(content_type.len());
    let essence = content_type.get(..end).unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// The topic of a path below `/ds/`: its parts, joined by dots.
pub(crate) fn topic_of(path: &str) -> Result<String, Problem> {
    let wrong = |why: String| Problem::bad(why).code(weir_core::ErrorCode::BadName);
    let mut name = String::with_capacity(path.len());
    for part in path.split('/') {
        let part = decode(part, false).and_then(|part| String::from_utf8(part).ok());
        let part = part.filter(|part| !matches!(part.as_str(), "" | "." | ".."));
        let part = part.ok_or_else(|| {
            wrong("a part of the path is empty, a dot, or has a wrong escape".to_owned())
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
    fn a_path_is_a_topic() {
        assert_eq!(topic_of("a/b/c").ok().as_deref(), Some("a.b.c"));
        assert_eq!(topic_of("a.b%2Ec").ok().as_deref(), Some("a.b.c"));
        for wrong in [
            "", "a/", "/a", "a//b", "..", "a/../b", "a%2Fb", ".weir", "a%2", "é",
        ] {
            assert!(topic_of(wrong).is_err(), "{wrong}");
        }
    }
}
