//! Limits that nobody can set, and the budgets that connections share.

pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod memory;
pub(crate) mod minimum_rate;
pub(crate) mod readers;

/// Blank lines before a request line.
pub(crate) const HEAD_LINES_BLANK_MAX: usize = 2;
/// Requests of one connection that are begun before the first is answered.
pub(crate) const PIPELINE_MAX: usize = 64;
/// Bytes of answers that are gathered before they are written.
pub(crate) const GATHER_BYTES: usize = 64 << 10;
/// Bytes of a body up to which it is copied after its head, so that both are
/// one write.
pub(crate) const INLINE_BYTES: usize = 16 << 10;
/// First size of the buffer that a connection reads into, and what it keeps
/// while it is idle.
pub(crate) const INPUT_BYTES: usize = 4 << 10;
/// Most that is read at once.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// Bytes of a chunk's size line, extensions included.
pub(crate) const CHUNK_LINE_MAX: usize = 1 << 10;
/// Bytes of the trailer after the last chunk.
pub(crate) const TRAILER_MAX: usize = 8 << 10;
/// Seconds for which a connection that ends early still reads, so that its
/// last answer arrives.
pub(crate) const LINGER_SECONDS: u64 = 2;
/// Work on bytes up to which it is done in place; above, on a thread that may
/// block.
pub(crate) const INLINE_WORK_BYTES: usize = 64 << 10;
/// Bytes of a block of records up to which it is rendered by the thread that serves the sockets:
/// some ten microseconds. A write may wait for as many of them as there are readers.
pub(crate) const INLINE_PAGE_BYTES: usize = 2 << 10;
/// Records of a page unless asked otherwise, and at most.
pub(crate) const PAGE_RECORDS: u64 = 100;
/// Most records of a page.
pub(crate) const PAGE_RECORDS_MAX: u64 = 10_000;
/// Bytes after which a page ends unless asked otherwise.
pub(crate) const PAGE_BYTES: usize = 1 << 20;
/// Most bytes that a request may ask of a page.
pub(crate) const PAGE_BYTES_MAX: usize = 16 << 20;
/// Bytes of a block that need no reservation while it is read: there are as many of them as
/// permits of readers.
pub(crate) const BLOCK_BYTES_FREE: usize = 256 << 10;
/// Seconds for which a request may wait for a record.
pub(crate) const WAIT_SECONDS_MAX: u64 = 60;
/// Seconds for which a read waits for an offset that it names.
pub(crate) const LAG_SECONDS: u64 = 2;
/// Bytes of events that a tail gathers before it sends them.
pub(crate) const TAIL_BYTES: usize = 64 << 10;
/// Records that a filter may skip before a tail says where it is.
pub(crate) const PROGRESS_RECORDS: u64 = 1000;
/// Milliseconds after which somebody comes again whose idempotency key found
/// no room.
pub(crate) const KEYS_FULL_RETRY_MS: u64 = 60_000;
/// Bytes of an idempotency key.
pub(crate) const IDEMPOTENCY_KEY_MAX: usize = 255;
/// Decoded bytes from which their ratio to the coded ones counts.
pub(crate) const RATIO_FROM_BYTES: usize = 1 << 20;
/// That ratio.
pub(crate) const RATIO_MAX: usize = 200;
/// Content codings of one body.
pub(crate) const CODINGS_MAX: usize = 2;
/// Bytes below which an answer is not compressed.
pub(crate) const COMPRESS_FROM_BYTES: usize = 1 << 10;
/// Window of zstd that a decoder needs, as a power of two (8 MiB).
pub(crate) const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Seconds that a browser may keep the answer to a preflight.
pub(crate) const PREFLIGHT_SECONDS: u64 = 600;
/// Milliseconds after which a client is told to come again.
pub(crate) const RETRY_MS: u64 = 1000;
/// Streams of one HTTP/2 connection.
pub(crate) const STREAMS_MAX: u32 = 100;
/// Tails among them.
pub(crate) const TAILS_PER_CONNECTION_MAX: usize = 50;
/// Attempts at a write whose condition is a list of tags.
pub(crate) const TAG_ATTEMPTS_MAX: usize = 8;
/// Records that a backward read looks at together, at most.
pub(crate) const WINDOW_RECORDS_MAX: u64 = 1024;
/// Bytes of a window above which the next one is smaller.
pub(crate) const WINDOW_BYTES: usize = 256 << 10;
/// Pieces of a topic's events that are kept for other tails at the same place.
pub(crate) const SHARED_PIECES: usize = 8;
/// Tails of a topic from which on they are woken together, not with each event.
pub(crate) const CROWD: usize = 16;
/// Microseconds of pause for each tail of a crowd.
pub(crate) const CROWD_PAUSE_US: u64 = 50;
/// Longest such pause in milliseconds.
pub(crate) const CROWD_PAUSE_MS_MAX: u64 = 500;
/// Bytes of the items that are one log entry.
pub(crate) const ENTRY_BYTES_MAX: usize = 4 << 20;
/// Runs of equal outcomes that the answer to a batch lists.
pub(crate) const RUNS_MAX: usize = 10_000;
/// Records that the answer to a conflict has, at most.
pub(crate) const CONFLICTS_MAX: u64 = 100;
/// Records of a claim unless asked otherwise.
pub(crate) const CLAIM_RECORDS: u64 = 100;
/// Groups that one page lists, at most; a topic has no more.
pub(crate) const GROUPS_PAGE_MAX: u64 = 1024;
/// Members that the description of a group names.
pub(crate) const MEMBERS_MAX: usize = 1000;
/// Topics that one page lists unless asked otherwise, and at most.
pub(crate) const TOPICS_PAGE: u64 = 100;
/// Most topics of a page.
pub(crate) const TOPICS_PAGE_MAX: u64 = 1000;
