//! Limits that are not configurable, and the budgets that connections share.

pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod memory;
pub(crate) mod minimum_rate;
pub(crate) mod readers;

/// Maximum number of blank lines before a request line.
pub(crate) const HEAD_LINES_BLANK_MAX: usize = 2;
/// Maximum number of requests of one connection that start before the response to the first one.
pub(crate) const PIPELINE_MAX: usize = 64;
/// Bytes of responses that are collected into one write.
pub(crate) const GATHER_BYTES: usize = 64 << 10;
/// Bodies up to this many bytes are copied after the head, so that both are one write.
pub(crate) const INLINE_BYTES: usize = 16 << 10;
/// Initial size of the receive buffer of a connection, and its size while idle.
pub(crate) const INPUT_BYTES: usize = 4 << 10;
/// Largest single read, in bytes.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// Maximum length of a chunk's size line in bytes, including extensions.
pub(crate) const CHUNK_LINE_MAX: usize = 1 << 10;
/// Maximum size in bytes of the trailer after the last chunk.
pub(crate) const TRAILER_MAX: usize = 8 << 10;
/// Seconds for which a connection that closes still reads, so that its last response arrives.
pub(crate) const LINGER_SECONDS: u64 = 2;
/// Work on up to this many bytes runs inline; larger work runs on a thread that may block.
pub(crate) const INLINE_WORK_BYTES: usize = 64 << 10;
/// Blocks of records up to this many bytes are rendered on a reactor thread, in some ten
/// microseconds. A write may wait for as many such blocks as there are readers.
pub(crate) const INLINE_PAGE_BYTES: usize = 2 << 10;
/// Records of a page, by default.
pub(crate) const PAGE_RECORDS: u64 = 100;
/// Maximum number of records of a page.
pub(crate) const PAGE_RECORDS_MAX: u64 = 10_000;
/// Bytes after which a page ends, by default.
pub(crate) const PAGE_BYTES: usize = 1 << 20;
/// Maximum number of bytes that a request may ask for in a page.
pub(crate) const PAGE_BYTES_MAX: usize = 16 << 20;
/// Bytes of a block that need no reservation while it is read. The permits of readers bound the
/// number of such blocks.
pub(crate) const BLOCK_BYTES_FREE: usize = 256 << 10;
/// Maximum number of seconds for which a request may wait for a record.
pub(crate) const WAIT_SECONDS_MAX: u64 = 60;
/// Seconds for which a read waits until the store has applied an offset that it names.
pub(crate) const LAG_SECONDS: u64 = 2;
/// Bytes of events that a tail collects before it sends them.
pub(crate) const TAIL_BYTES: usize = 64 << 10;
/// Records that a filter may skip before a tail reports its position.
pub(crate) const PROGRESS_RECORDS: u64 = 1000;
/// Milliseconds after which a client should retry when its idempotency key found the table full.
pub(crate) const KEYS_FULL_RETRY_MS: u64 = 60_000;
/// Maximum length of an idempotency key in bytes.
pub(crate) const IDEMPOTENCY_KEY_MAX: usize = 255;
/// The ratio of decoded to coded bytes is checked above this many decoded bytes.
pub(crate) const RATIO_FROM_BYTES: usize = 1 << 20;
/// Maximum ratio of decoded to coded bytes.
pub(crate) const RATIO_MAX: usize = 200;
/// Maximum number of content codings of one body.
pub(crate) const CODINGS_MAX: usize = 2;
/// Responses below this many bytes are not compressed.
pub(crate) const COMPRESS_FROM_BYTES: usize = 1 << 10;
/// Largest window of zstd that the decoder accepts, as a power of two (8 MiB).
pub(crate) const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Seconds for which a browser may cache the response to a preflight request.
pub(crate) const PREFLIGHT_SECONDS: u64 = 600;
/// Milliseconds after which a client should retry, by default.
pub(crate) const RETRY_MS: u64 = 1000;
/// Maximum number of streams of one HTTP/2 connection.
pub(crate) const STREAMS_MAX: u32 = 100;
/// Maximum number of tails of one HTTP/2 connection.
pub(crate) const TAILS_PER_CONNECTION_MAX: usize = 50;
/// Maximum number of attempts to write under a condition that is a list of tags.
pub(crate) const TAG_ATTEMPTS_MAX: usize = 8;
/// Maximum number of records that a backward read examines together.
pub(crate) const WINDOW_RECORDS_MAX: u64 = 1024;
/// If a window has more bytes than this, the next window is smaller.
pub(crate) const WINDOW_BYTES: usize = 256 << 10;
/// Maximum number of rendered pieces of a topic that are cached for other tails.
pub(crate) const SHARED_PIECES: usize = 8;
/// The cached pieces of all topics have a budget of this part of the budget of answers, in addition
/// to that budget.
pub(crate) const SHARED_PIECES_SHARE: usize = 8;
/// Number of tails of a topic from which they wake together instead of with each event.
pub(crate) const JOINT_WAKE_TAILS_MIN: usize = 16;
/// Pause before a joint wake-up, in microseconds for each tail.
pub(crate) const JOINT_WAKE_PAUSE_US: u64 = 50;
/// Longest pause before a joint wake-up, in milliseconds.
pub(crate) const JOINT_WAKE_PAUSE_MS_MAX: u64 = 500;
/// Maximum number of bytes of the items of one log entry.
pub(crate) const ENTRY_BYTES_MAX: usize = 4 << 20;
/// Maximum number of runs of equal outcomes that the response to a batch lists.
pub(crate) const RUNS_MAX: usize = 10_000;
/// Maximum number of records in the response to a conflict.
pub(crate) const CONFLICTS_MAX: u64 = 100;
/// Records of a claim, by default.
pub(crate) const CLAIM_RECORDS: u64 = 100;
/// Maximum number of groups of a page; a topic has no more.
pub(crate) const GROUPS_PAGE_MAX: u64 = 1024;
/// Maximum number of members that the description of a group lists.
pub(crate) const MEMBERS_MAX: usize = 1000;
/// Topics of a page, by default.
pub(crate) const TOPICS_PAGE: u64 = 100;
/// Maximum number of topics of a page.
pub(crate) const TOPICS_PAGE_MAX: u64 = 1000;
