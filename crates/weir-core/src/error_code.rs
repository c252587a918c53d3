//! Every error of Weir: one number, one name, one meaning in every language.
//!
//! Made by `cargo xtask gen` from `vectors/errors.toml`; do not edit. The table for readers is
//! `docs/formats/errors.md`.
//!
//! Invariants:
//! - Numbers are never reused, and no number is typed by hand.
//! - 0 is neither success nor error.
//! - `ErrorCode::from_number(code.number()) == Some(code)`.

use core::fmt;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Reason of the effect INVALID: a valid request that the state rejects, equally on every node.
    Invalid,
    /// Reason of the effect ERROR: a request that cannot be executed, equally on every node.
    Error,
    /// Refusal by one node: nothing was logged, so the nonce may be sent again.
    Refusal,
    /// The store could not be opened, read or written.
    Store,
    /// Detected by a client library or a command.
    Client,
    /// A call of the C interface violated a rule of the interface.
    Call,
    /// An error in a query, in a page that it read, or a limit of its memory.
    Query,
    /// A bug in Weir.
    Internal,
}

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The caller requested something invalid or impossible.
    Caller,
    /// The other side of a connection broke the protocol.
    Peer,
    /// Disk, network, operating system or load.
    Environment,
    /// Weir itself.
    Us,
}

/// Whether a retry can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// At once.
    Yes,
    /// Later, or after the advice was followed.
    After,
    /// Never: a retry fails with an equal error.
    No,
}

/// An error by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u16)]
pub enum ErrorCode {
    /// The topic to create already exists.
    TopicExists = 101,
    /// The topic to change or destroy does not exist.
    TopicAbsent = 102,
    /// The program of the topic rejected the intention.
    Rejected = 103,
    /// The topic does not have the state that the intention expected.
    Conflict = 104,
    /// A quota is used up: keys or groups of the topic, or memory of the state of programs.
    Quota = 105,
    /// Another operation of the same transaction failed, so none was executed.
    TxnAborted = 106,
    /// The group to create already exists.
    GroupExists = 107,
    /// The topic has no group of this name.
    GroupAbsent = 108,
    /// Another consumer owns the record or the group now.
    NotOwner = 109,
    /// The mode of the group does not allow this operation.
    GroupMode = 110,
    /// The topic to write to does not exist.
    NoTopic = 201,
    /// The program of the topic trapped.
    Trap = 202,
    /// The program of the topic used up its fuel.
    OutOfFuel = 203,
    /// A limit was reached: of the topic (size of a key or value), the store (number of topics) or the program.
    Limit = 204,
    /// The code is not a program that this store can run.
    BadProgram = 205,
    /// The topic is stopped because nodes disagreed about it.
    Quarantined = 206,
    /// Another node is the leader and accepts the writes.
    Redirect = 301,
    /// No leader is known at present.
    NoLeader = 302,
    /// The queue of the store is full.
    Busy = 303,
    /// The caller exceeds its rate limit.
    Rate = 304,
    /// Nonces before this one have not arrived.
    NonceGap = 305,
    /// The session was idle for too long and has expired.
    SessionExpired = 306,
    /// The request has no credentials, or they are not valid.
    Unauthenticated = 307,
    /// The caller has no right to do this.
    Forbidden = 308,
    /// A name, key, value, batch or count is over its limit.
    TooLarge = 309,
    /// The request cannot be read or contradicts itself.
    BadRequest = 310,
    /// This build or version does not support what the caller asked for.
    Unsupported = 311,
    /// The store accepts no writes at present; reads and listeners continue.
    ReadOnly = 312,
    /// The offset is before the first record that is retained.
    Gone = 313,
    /// The nonce was used before, for an intention with other bytes.
    NonceReused = 314,
    /// The client id has opened a newer session, so this one has ended.
    Superseded = 315,
    /// The topic to read does not exist.
    TopicUnknown = 316,
    /// The topic holds no value for the key.
    KeyAbsent = 317,
    /// The topic has no record at the offset.
    RecordAbsent = 318,
    /// The node has not yet applied the offset that the reader requires.
    Lagging = 319,
    /// The node is shutting down and accepts no new requests.
    Draining = 320,
    /// The topic name is empty, too long, reserved, or has a character outside its alphabet.
    BadName = 321,
    /// The topic has no group of this name.
    GroupUnknown = 322,
    /// The server is opening its store and accepts no requests yet.
    Opening = 323,
    /// The operating system could not carry out an operation on a file of the store.
    Io = 401,
    /// A write or sync of the log failed, so this handle accepts no more writes.
    IoFatal = 402,
    /// The file system has no space left for the store.
    DiskFull = 403,
    /// Another process has the directory open.
    Locked = 404,
    /// Bytes of the store have changed or are missing.
    Damaged = 405,
    /// The directory holds no store.
    NotAStore = 406,
    /// The directory to create a store in is not empty.
    StoreExists = 407,
    /// The store was written by a newer version; nothing was changed.
    FormatNewer = 408,
    /// The operating system does not allow this process to use the directory.
    NotPermitted = 409,
    /// The file system loses everything in a power cut, and the caller did not allow that.
    Volatile = 410,
    /// The store runs programs, and this build has no program engine.
    EngineMissing = 411,
    /// A replay of the log gave a state that differs from the recorded one.
    Diverged = 412,
    /// The process may not open as many files as the store needs.
    TooFewDescriptors = 413,
    /// The store was closed before or during the call.
    Closed = 414,
    /// An option has a value outside its range, or contradicts the options the store was created with.
    BadOption = 415,
    /// The store was opened for reading only, and the call writes.
    OpenedReadOnly = 416,
    /// The process that writes the store changed or removed files that were being read.
    ChangedWhileRead = 417,
    /// The log after the newest snapshot holds more records than a read-only open may keep in memory.
    ReadOnlyLimit = 418,
    /// The intention was sent, and its outcome is not known.
    Indeterminate = 501,
    /// The deadline passed before anything was changed.
    Deadline = 502,
    /// No connection to the address could be made.
    Unreachable = 503,
    /// The peer sent bytes that the protocol does not allow.
    Protocol = 504,
    /// The value of `--at` is neither a directory nor an address of a known kind.
    BadAddress = 505,
    /// A line or item of the input cannot be read.
    BadLine = 506,
    /// The input differs from the one that the import began with.
    SourceChanged = 507,
    /// The caller cancelled the operation.
    Cancelled = 508,
    /// Another process listens at the address that was to be served.
    AddressTaken = 509,
    /// A required pointer is NULL.
    NullPointer = 601,
    /// A pointer is not aligned for the type of its target.
    Misaligned = 602,
    /// A length or count is larger than memory, or than the call allows.
    BadLength = 603,
    /// The handle was released, is of another type, or never was a handle.
    BadHandle = 604,
    /// Another thread is inside a call with this handle.
    HandleBusy = 605,
    /// A bug in Weir ended the call.
    Panic = 606,
    /// A bug in Weir ended an earlier call with this handle.
    HandlePoisoned = 607,
    /// A structure does not state its size, or sets fields that this version of the library does not know.
    BadStruct = 608,
    /// The version of the library differs from the one that the program was built for.
    AbiMismatch = 609,
    /// The process has the maximum number of handles and pages.
    TooManyHandles = 610,
    /// The text of a query cannot be read at the place that is named.
    Syntax = 701,
    /// A path that may select several values is used where one value is needed.
    NotSingular = 702,
    /// A query has more text, nesting, paths, keys or sources than is allowed.
    TooComplex = 703,
    /// A query uses a parameter that was given no value.
    NoParam = 704,
    /// The resume token is of another query.
    TokenMismatch = 705,
    /// The resume token is damaged, or has an unknown format.
    TokenCorrupt = 706,
    /// A resume token for this position would be larger than is allowed.
    TokenTooLarge = 707,
    /// A query of this kind cannot be resumed.
    NoToken = 708,
    /// A page holds bytes that are not UTF-8.
    NotUtf8 = 709,
    /// A page breaks the grammar of JSON where the query has to read it.
    NotJson = 710,
    /// A string in a page holds a control character.
    ControlCharacter = 711,
    /// A string in a page does not end.
    UnterminatedString = 712,
    /// Brackets or braces in a page do not match.
    Unbalanced = 713,
    /// Bytes other than white space follow the end of a page.
    TrailingData = 714,
    /// A value in a page is nested deeper than is allowed.
    TooDeep = 715,
    /// A page or an item in it is larger than is allowed.
    PageTooLarge = 716,
    /// A page lacks the array of items that its shape names.
    BadEnvelope = 717,
    /// A member name on the path to a selected value occurs twice in one object.
    RepeatedName = 718,
    /// A source that was declared as sorted has an item out of order.
    SourceNotSorted = 719,
    /// A value to order by is an array or an object.
    OrderKeyType = 720,
    /// A value to group by is an array or an object.
    GroupKeyType = 721,
    /// A number to sum is larger than 10^400, or closer to 0 than 10^-400.
    NumberRange = 722,
    /// The query has no source of this number or name.
    UnknownSource = 723,
    /// The source was finished or replaced before.
    SourceFinished = 724,
    /// The page was not accepted, because pages in memory would exceed the budget.
    OverBudget = 725,
    /// Sorting would hold more bytes than the budget allows.
    SortBudget = 726,
    /// There are more groups than the budget allows.
    GroupBudget = 727,
    /// There are more distinct values than the budget allows.
    DistinctBudget = 728,
    /// A source was split too often without a page in between.
    SplitLoop = 729,
    /// The resume token names sources that have rows left and were not added.
    SourcesOwed = 730,
    /// A bug in Weir: an assertion failed.
    Internal = 901,
}

impl ErrorCode {
    /// All codes, by ascending number.
    pub const ALL: [Self; 107] = [
        Self::TopicExists,
        Self::TopicAbsent,
        Self::Rejected,
        Self::Conflict,
        Self::Quota,
        Self::TxnAborted,
        Self::GroupExists,
        Self::GroupAbsent,
        Self::NotOwner,
        Self::GroupMode,
        Self::NoTopic,
        Self::Trap,
        Self::OutOfFuel,
        Self::Limit,
        Self::BadProgram,
        Self::Quarantined,
        Self::Redirect,
        Self::NoLeader,
        Self::Busy,
        Self::Rate,
        Self::NonceGap,
        Self::SessionExpired,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::TooLarge,
        Self::BadRequest,
        Self::Unsupported,
        Self::ReadOnly,
        Self::Gone,
        Self::NonceReused,
        Self::Superseded,
        Self::TopicUnknown,
        Self::KeyAbsent,
        Self::RecordAbsent,
        Self::Lagging,
        Self::Draining,
        Self::BadName,
        Self::GroupUnknown,
        Self::Opening,
        Self::Io,
        Self::IoFatal,
        Self::DiskFull,
        Self::Locked,
        Self::Damaged,
        Self::NotAStore,
        Self::StoreExists,
        Self::FormatNewer,
        Self::NotPermitted,
        Self::Volatile,
        Self::EngineMissing,
        Self::Diverged,
        Self::TooFewDescriptors,
        Self::Closed,
        Self::BadOption,
        Self::OpenedReadOnly,
        Self::ChangedWhileRead,
        Self::ReadOnlyLimit,
        Self::Indeterminate,
        Self::Deadline,
        Self::Unreachable,
        Self::Protocol,
        Self::BadAddress,
        Self::BadLine,
        Self::SourceChanged,
        Self::Cancelled,
        Self::AddressTaken,
        Self::NullPointer,
        Self::Misaligned,
        Self::BadLength,
        Self::BadHandle,
        Self::HandleBusy,
        Self::Panic,
        Self::HandlePoisoned,
        Self::BadStruct,
        Self::AbiMismatch,
        Self::TooManyHandles,
        Self::Syntax,
        Self::NotSingular,
        Self::TooComplex,
        Self::NoParam,
        Self::TokenMismatch,
        Self::TokenCorrupt,
        Self::TokenTooLarge,
        Self::NoToken,
        Self::NotUtf8,
        Self::NotJson,
        Self::ControlCharacter,
        Self::UnterminatedString,
        Self::Unbalanced,
        Self::TrailingData,
        Self::TooDeep,
        Self::PageTooLarge,
        Self::BadEnvelope,
        Self::RepeatedName,
        Self::SourceNotSorted,
        Self::OrderKeyType,
        Self::GroupKeyType,
        Self::NumberRange,
        Self::UnknownSource,
        Self::SourceFinished,
        Self::OverBudget,
        Self::SortBudget,
        Self::GroupBudget,
        Self::DistinctBudget,
        Self::SplitLoop,
        Self::SourcesOwed,
        Self::Internal,
    ];

    /// The number, equal in every language.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The code with this number; `None` if there is none.
    #[allow(clippy::too_many_lines, reason = "one line an error")]
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            101 => Some(Self::TopicExists),
            102 => Some(Self::TopicAbsent),
            103 => Some(Self::Rejected),
            104 => Some(Self::Conflict),
            105 => Some(Self::Quota),
            106 => Some(Self::TxnAborted),
            107 => Some(Self::GroupExists),
            108 => Some(Self::GroupAbsent),
            109 => Some(Self::NotOwner),
            110 => Some(Self::GroupMode),
            201 => Some(Self::NoTopic),
            202 => Some(Self::Trap),
            203 => Some(Self::OutOfFuel),
            204 => Some(Self::Limit),
            205 => Some(Self::BadProgram),
            206 => Some(Self::Quarantined),
            301 => Some(Self::Redirect),
            302 => Some(Self::NoLeader),
            303 => Some(Self::Busy),
            304 => Some(Self::Rate),
            305 => Some(Self::NonceGap),
            306 => Some(Self::SessionExpired),
            307 => Some(Self::Unauthenticated),
            308 => Some(Self::Forbidden),
            309 => Some(Self::TooLarge),
            310 => Some(Self::BadRequest),
            311 => Some(Self::Unsupported),
            312 => Some(Self::ReadOnly),
            313 => Some(Self::Gone),
            314 => Some(Self::NonceReused),
            315 => Some(Self::Superseded),
            316 => Some(Self::TopicUnknown),
            317 => Some(Self::KeyAbsent),
            318 => Some(Self::RecordAbsent),
            319 => Some(Self::Lagging),
            320 => Some(Self::Draining),
            321 => Some(Self::BadName),
            322 => Some(Self::GroupUnknown),
            323 => Some(Self::Opening),
            401 => Some(Self::Io),
            402 => Some(Self::IoFatal),
            403 => Some(Self::DiskFull),
            404 => Some(Self::Locked),
            405 => Some(Self::Damaged),
            406 => Some(Self::NotAStore),
            407 => Some(Self::StoreExists),
            408 => Some(Self::FormatNewer),
            409 => Some(Self::NotPermitted),
            410 => Some(Self::Volatile),
            411 => Some(Self::EngineMissing),
            412 => Some(Self::Diverged),
            413 => Some(Self::TooFewDescriptors),
            414 => Some(Self::Closed),
            415 => Some(Self::BadOption),
            416 => Some(Self::OpenedReadOnly),
            417 => Some(Self::ChangedWhileRead),
            418 => Some(Self::ReadOnlyLimit),
            501 => Some(Self::Indeterminate),
            502 => Some(Self::Deadline),
            503 => Some(Self::Unreachable),
            504 => Some(Self::Protocol),
            505 => Some(Self::BadAddress),
            506 => Some(Self::BadLine),
            507 => Some(Self::SourceChanged),
            508 => Some(Self::Cancelled),
            509 => Some(Self::AddressTaken),
            601 => Some(Self::NullPointer),
            602 => Some(Self::Misaligned),
            603 => Some(Self::BadLength),
            604 => Some(Self::BadHandle),
            605 => Some(Self::HandleBusy),
            606 => Some(Self::Panic),
            607 => Some(Self::HandlePoisoned),
            608 => Some(Self::BadStruct),
            609 => Some(Self::AbiMismatch),
            610 => Some(Self::TooManyHandles),
            701 => Some(Self::Syntax),
            702 => Some(Self::NotSingular),
            703 => Some(Self::TooComplex),
            704 => Some(Self::NoParam),
            705 => Some(Self::TokenMismatch),
            706 => Some(Self::TokenCorrupt),
            707 => Some(Self::TokenTooLarge),
            708 => Some(Self::NoToken),
            709 => Some(Self::NotUtf8),
            710 => Some(Self::NotJson),
            711 => Some(Self::ControlCharacter),
            712 => Some(Self::UnterminatedString),
            713 => Some(Self::Unbalanced),
            714 => Some(Self::TrailingData),
            715 => Some(Self::TooDeep),
            716 => Some(Self::PageTooLarge),
            717 => Some(Self::BadEnvelope),
            718 => Some(Self::RepeatedName),
            719 => Some(Self::SourceNotSorted),
            720 => Some(Self::OrderKeyType),
            721 => Some(Self::GroupKeyType),
            722 => Some(Self::NumberRange),
            723 => Some(Self::UnknownSource),
            724 => Some(Self::SourceFinished),
            725 => Some(Self::OverBudget),
            726 => Some(Self::SortBudget),
            727 => Some(Self::GroupBudget),
            728 => Some(Self::DistinctBudget),
            729 => Some(Self::SplitLoop),
            730 => Some(Self::SourcesOwed),
            901 => Some(Self::Internal),
            _ => None,
        }
    }

    /// The name, as in `TOPIC_EXISTS`.
    #[allow(clippy::too_many_lines, reason = "one line an error")]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TopicExists => "TOPIC_EXISTS",
            Self::TopicAbsent => "TOPIC_ABSENT",
            Self::Rejected => "REJECTED",
            Self::Conflict => "CONFLICT",
            Self::Quota => "QUOTA",
            Self::TxnAborted => "TXN_ABORTED",
            Self::GroupExists => "GROUP_EXISTS",
            Self::GroupAbsent => "GROUP_ABSENT",
            Self::NotOwner => "NOT_OWNER",
            Self::GroupMode => "GROUP_MODE",
            Self::NoTopic => "NO_TOPIC",
            Self::Trap => "TRAP",
            Self::OutOfFuel => "OUT_OF_FUEL",
            Self::Limit => "LIMIT",
            Self::BadProgram => "BAD_PROGRAM",
            Self::Quarantined => "QUARANTINED",
            Self::Redirect => "REDIRECT",
            Self::NoLeader => "NO_LEADER",
            Self::Busy => "BUSY",
            Self::Rate => "RATE",
            Self::NonceGap => "NONCE_GAP",
            Self::SessionExpired => "SESSION_EXPIRED",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::Forbidden => "FORBIDDEN",
            Self::TooLarge => "TOO_LARGE",
            Self::BadRequest => "BAD_REQUEST",
            Self::Unsupported => "UNSUPPORTED",
            Self::ReadOnly => "READ_ONLY",
            Self::Gone => "GONE",
            Self::NonceReused => "NONCE_REUSED",
            Self::Superseded => "SUPERSEDED",
            Self::TopicUnknown => "TOPIC_UNKNOWN",
            Self::KeyAbsent => "KEY_ABSENT",
            Self::RecordAbsent => "RECORD_ABSENT",
            Self::Lagging => "LAGGING",
            Self::Draining => "DRAINING",
            Self::BadName => "BAD_NAME",
            Self::GroupUnknown => "GROUP_UNKNOWN",
            Self::Opening => "OPENING",
            Self::Io => "IO",
            Self::IoFatal => "IO_FATAL",
            Self::DiskFull => "DISK_FULL",
            Self::Locked => "LOCKED",
            Self::Damaged => "DAMAGED",
            Self::NotAStore => "NOT_A_STORE",
            Self::StoreExists => "STORE_EXISTS",
            Self::FormatNewer => "FORMAT_NEWER",
            Self::NotPermitted => "NOT_PERMITTED",
            Self::Volatile => "VOLATILE",
            Self::EngineMissing => "ENGINE_MISSING",
            Self::Diverged => "DIVERGED",
            Self::TooFewDescriptors => "TOO_FEW_DESCRIPTORS",
            Self::Closed => "CLOSED",
            Self::BadOption => "BAD_OPTION",
            Self::OpenedReadOnly => "OPENED_READ_ONLY",
            Self::ChangedWhileRead => "CHANGED_WHILE_READ",
            Self::ReadOnlyLimit => "READ_ONLY_LIMIT",
            Self::Indeterminate => "INDETERMINATE",
            Self::Deadline => "DEADLINE",
            Self::Unreachable => "UNREACHABLE",
            Self::Protocol => "PROTOCOL",
            Self::BadAddress => "BAD_ADDRESS",
            Self::BadLine => "BAD_LINE",
            Self::SourceChanged => "SOURCE_CHANGED",
            Self::Cancelled => "CANCELLED",
            Self::AddressTaken => "ADDRESS_TAKEN",
            Self::NullPointer => "NULL_POINTER",
            Self::Misaligned => "MISALIGNED",
            Self::BadLength => "BAD_LENGTH",
            Self::BadHandle => "BAD_HANDLE",
            Self::HandleBusy => "HANDLE_BUSY",
            Self::Panic => "PANIC",
            Self::HandlePoisoned => "HANDLE_POISONED",
            Self::BadStruct => "BAD_STRUCT",
            Self::AbiMismatch => "ABI_MISMATCH",
            Self::TooManyHandles => "TOO_MANY_HANDLES",
            Self::Syntax => "SYNTAX",
            Self::NotSingular => "NOT_SINGULAR",
            Self::TooComplex => "TOO_COMPLEX",
            Self::NoParam => "NO_PARAM",
            Self::TokenMismatch => "TOKEN_MISMATCH",
            Self::TokenCorrupt => "TOKEN_CORRUPT",
            Self::TokenTooLarge => "TOKEN_TOO_LARGE",
            Self::NoToken => "NO_TOKEN",
            Self::NotUtf8 => "NOT_UTF8",
            Self::NotJson => "NOT_JSON",
            Self::ControlCharacter => "CONTROL_CHARACTER",
            Self::UnterminatedString => "UNTERMINATED_STRING",
            Self::Unbalanced => "UNBALANCED",
            Self::TrailingData => "TRAILING_DATA",
            Self::TooDeep => "TOO_DEEP",
            Self::PageTooLarge => "PAGE_TOO_LARGE",
            Self::BadEnvelope => "BAD_ENVELOPE",
            Self::RepeatedName => "REPEATED_NAME",
            Self::SourceNotSorted => "SOURCE_NOT_SORTED",
            Self::OrderKeyType => "ORDER_KEY_TYPE",
            Self::GroupKeyType => "GROUP_KEY_TYPE",
            Self::NumberRange => "NUMBER_RANGE",
            Self::UnknownSource => "UNKNOWN_SOURCE",
            Self::SourceFinished => "SOURCE_FINISHED",
            Self::OverBudget => "OVER_BUDGET",
            Self::SortBudget => "SORT_BUDGET",
            Self::GroupBudget => "GROUP_BUDGET",
            Self::DistinctBudget => "DISTINCT_BUDGET",
            Self::SplitLoop => "SPLIT_LOOP",
            Self::SourcesOwed => "SOURCES_OWED",
            Self::Internal => "INTERNAL",
        }
    }

    /// The meaning, as a full sentence without values.
    #[allow(clippy::too_many_lines, reason = "one line an error")]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::TopicExists => "The topic to create already exists.",
            Self::TopicAbsent => "The topic to change or destroy does not exist.",
            Self::Rejected => "The program of the topic rejected the intention.",
            Self::Conflict => "The topic does not have the state that the intention expected.",
            Self::Quota => {
                "A quota is used up: keys or groups of the topic, or memory of the state of programs."
            }
            Self::TxnAborted => {
                "Another operation of the same transaction failed, so none was executed."
            }
            Self::GroupExists => "The group to create already exists.",
            Self::GroupAbsent => "The topic has no group of this name.",
            Self::NotOwner => "Another consumer owns the record or the group now.",
            Self::GroupMode => "The mode of the group does not allow this operation.",
            Self::NoTopic => "The topic to write to does not exist.",
            Self::Trap => "The program of the topic trapped.",
            Self::OutOfFuel => "The program of the topic used up its fuel.",
            Self::Limit => {
                "A limit was reached: of the topic (size of a key or value), the store (number of topics) or the program."
            }
            Self::BadProgram => "The code is not a program that this store can run.",
            Self::Quarantined => "The topic is stopped because nodes disagreed about it.",
            Self::Redirect => "Another node is the leader and accepts the writes.",
            Self::NoLeader => "No leader is known at present.",
            Self::Busy => "The queue of the store is full.",
            Self::Rate => "The caller exceeds its rate limit.",
            Self::NonceGap => "Nonces before this one have not arrived.",
            Self::SessionExpired => "The session was idle for too long and has expired.",
            Self::Unauthenticated => "The request has no credentials, or they are not valid.",
            Self::Forbidden => "The caller has no right to do this.",
            Self::TooLarge => "A name, key, value, batch or count is over its limit.",
            Self::BadRequest => "The request cannot be read or contradicts itself.",
            Self::Unsupported => {
                "This build or version does not support what the caller asked for."
            }
            Self::ReadOnly => {
                "The store accepts no writes at present; reads and listeners continue."
            }
            Self::Gone => "The offset is before the first record that is retained.",
            Self::NonceReused => "The nonce was used before, for an intention with other bytes.",
            Self::Superseded => "The client id has opened a newer session, so this one has ended.",
            Self::TopicUnknown => "The topic to read does not exist.",
            Self::KeyAbsent => "The topic holds no value for the key.",
            Self::RecordAbsent => "The topic has no record at the offset.",
            Self::Lagging => "The node has not yet applied the offset that the reader requires.",
            Self::Draining => "The node is shutting down and accepts no new requests.",
            Self::BadName => {
                "The topic name is empty, too long, reserved, or has a character outside its alphabet."
            }
            Self::GroupUnknown => "The topic has no group of this name.",
            Self::Opening => "The server is opening its store and accepts no requests yet.",
            Self::Io => {
                "The operating system could not carry out an operation on a file of the store."
            }
            Self::IoFatal => {
                "A write or sync of the log failed, so this handle accepts no more writes."
            }
            Self::DiskFull => "The file system has no space left for the store.",
            Self::Locked => "Another process has the directory open.",
            Self::Damaged => "Bytes of the store have changed or are missing.",
            Self::NotAStore => "The directory holds no store.",
            Self::StoreExists => "The directory to create a store in is not empty.",
            Self::FormatNewer => "The store was written by a newer version; nothing was changed.",
            Self::NotPermitted => {
                "The operating system does not allow this process to use the directory."
            }
            Self::Volatile => {
                "The file system loses everything in a power cut, and the caller did not allow that."
            }
            Self::EngineMissing => "The store runs programs, and this build has no program engine.",
            Self::Diverged => {
                "A replay of the log gave a state that differs from the recorded one."
            }
            Self::TooFewDescriptors => "The process may not open as many files as the store needs.",
            Self::Closed => "The store was closed before or during the call.",
            Self::BadOption => {
                "An option has a value outside its range, or contradicts the options the store was created with."
            }
            Self::OpenedReadOnly => "The store was opened for reading only, and the call writes.",
            Self::ChangedWhileRead => {
                "The process that writes the store changed or removed files that were being read."
            }
            Self::ReadOnlyLimit => {
                "The log after the newest snapshot holds more records than a read-only open may keep in memory."
            }
            Self::Indeterminate => "The intention was sent, and its outcome is not known.",
            Self::Deadline => "The deadline passed before anything was changed.",
            Self::Unreachable => "No connection to the address could be made.",
            Self::Protocol => "The peer sent bytes that the protocol does not allow.",
            Self::BadAddress => {
                "The value of `--at` is neither a directory nor an address of a known kind."
            }
            Self::BadLine => "A line or item of the input cannot be read.",
            Self::SourceChanged => "The input differs from the one that the import began with.",
            Self::Cancelled => "The caller cancelled the operation.",
            Self::AddressTaken => "Another process listens at the address that was to be served.",
            Self::NullPointer => "A required pointer is NULL.",
            Self::Misaligned => "A pointer is not aligned for the type of its target.",
            Self::BadLength => "A length or count is larger than memory, or than the call allows.",
            Self::BadHandle => {
                "The handle was released, is of another type, or never was a handle."
            }
            Self::HandleBusy => "Another thread is inside a call with this handle.",
            Self::Panic => "A bug in Weir ended the call.",
            Self::HandlePoisoned => "A bug in Weir ended an earlier call with this handle.",
            Self::BadStruct => {
                "A structure does not state its size, or sets fields that this version of the library does not know."
            }
            Self::AbiMismatch => {
                "The version of the library differs from the one that the program was built for."
            }
            Self::TooManyHandles => "The process has the maximum number of handles and pages.",
            Self::Syntax => "The text of a query cannot be read at the place that is named.",
            Self::NotSingular => {
                "A path that may select several values is used where one value is needed."
            }
            Self::TooComplex => {
                "A query has more text, nesting, paths, keys or sources than is allowed."
            }
            Self::NoParam => "A query uses a parameter that was given no value.",
            Self::TokenMismatch => "The resume token is of another query.",
            Self::TokenCorrupt => "The resume token is damaged, or has an unknown format.",
            Self::TokenTooLarge => {
                "A resume token for this position would be larger than is allowed."
            }
            Self::NoToken => "A query of this kind cannot be resumed.",
            Self::NotUtf8 => "A page holds bytes that are not UTF-8.",
            Self::NotJson => "A page breaks the grammar of JSON where the query has to read it.",
            Self::ControlCharacter => "A string in a page holds a control character.",
            Self::UnterminatedString => "A string in a page does not end.",
            Self::Unbalanced => "Brackets or braces in a page do not match.",
            Self::TrailingData => "Bytes other than white space follow the end of a page.",
            Self::TooDeep => "A value in a page is nested deeper than is allowed.",
            Self::PageTooLarge => "A page or an item in it is larger than is allowed.",
            Self::BadEnvelope => "A page lacks the array of items that its shape names.",
            Self::RepeatedName => {
                "A member name on the path to a selected value occurs twice in one object."
            }
            Self::SourceNotSorted => {
                "A source that was declared as sorted has an item out of order."
            }
            Self::OrderKeyType => "A value to order by is an array or an object.",
            Self::GroupKeyType => "A value to group by is an array or an object.",
            Self::NumberRange => {
                "A number to sum is larger than 10^400, or closer to 0 than 10^-400."
            }
            Self::UnknownSource => "The query has no source of this number or name.",
            Self::SourceFinished => "The source was finished or replaced before.",
            Self::OverBudget => {
                "The page was not accepted, because pages in memory would exceed the budget."
            }
            Self::SortBudget => "Sorting would hold more bytes than the budget allows.",
            Self::GroupBudget => "There are more groups than the budget allows.",
            Self::DistinctBudget => "There are more distinct values than the budget allows.",
            Self::SplitLoop => "A source was split too often without a page in between.",
            Self::SourcesOwed => {
                "The resume token names sources that have rows left and were not added."
            }
            Self::Internal => "A bug in Weir: an assertion failed.",
        }
    }

    /// The advice, as a sentence in the imperative.
    #[allow(clippy::too_many_lines, reason = "one line an error")]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::TopicExists => "Use the topic as it is, or destroy it first.",
            Self::TopicAbsent => "Check the name with `weir topic ls`.",
            Self::Rejected => "Read the code and text the program gave, and change the intention.",
            Self::Conflict => "Read the actual offset, decide again, and send a new intention.",
            Self::Quota => {
                "Delete keys, groups or topics with programs, or raise the limit of the topic."
            }
            Self::TxnAborted => "Check the operation whose index and reason are named.",
            Self::GroupExists => "Use the group as it is, or delete it first.",
            Self::GroupAbsent => "Check the name with `weir group ls`, or create the group.",
            Self::NotOwner => "Discard the claimed records, and claim again.",
            Self::GroupMode => "Check the mode with `weir group show`.",
            Self::NoTopic => {
                "Create it with `weir topic create`, or check the name with `weir topic ls`."
            }
            Self::Trap => "Test the program with this intention; the message names the trap.",
            Self::OutOfFuel => {
                "Make the program do less for each intention, or raise the fuel of the topic."
            }
            Self::Limit => {
                "Write or emit less, or raise the limit that is named, for example with `weir topic set`."
            }
            Self::BadProgram => {
                "Correct what is named; `weir program check FILE` tries a module without a store."
            }
            Self::Quarantined => {
                "Let an operator find the cause; then `weir program quarantine TOPIC --release` or `weir program replace TOPIC FILE` lets the topic accept writes again."
            }
            Self::Redirect => "Send the request again to the address that is named.",
            Self::NoLeader => {
                "Send the request again after a pause; an election takes about a second."
            }
            Self::Busy => "Send the request again after the pause that is named.",
            Self::Rate => {
                "Send the request again after the pause that is named, and send more slowly."
            }
            Self::NonceGap => "Send again, starting with the expected nonce.",
            Self::SessionExpired => {
                "Open a new session, and read the topic to find out which intentions in flight were executed."
            }
            Self::Unauthenticated => "Give valid credentials.",
            Self::Forbidden => "Ask for the right that is named.",
            Self::TooLarge => {
                "Send less in one call, or raise the limit that is named, up to its maximum."
            }
            Self::BadRequest => "Correct the request at the place that is named.",
            Self::Unsupported => "Use a build or version that supports it.",
            Self::ReadOnly => {
                "Free disk space, or repair the file that is named; writes resume by themselves."
            }
            Self::Gone => "Start from an offset in the range that is named.",
            Self::NonceReused => {
                "Use a separate nonce for each intention; two writers must not share a client id."
            }
            Self::Superseded => "Use a separate client id for each writer.",
            Self::TopicUnknown => "Check the name with `weir topic ls`.",
            Self::KeyAbsent => {
                "Check the key; `weir export TOPIC --latest --columns key` lists all keys."
            }
            Self::RecordAbsent => "Check the first and last offset with `weir topic show`.",
            Self::Lagging => "Read again after a pause, or read from another node.",
            Self::Draining => {
                "Send the request to another node, or send it again after the restart."
            }
            Self::BadName => "Use 1 to 255 of A-Z a-z 0-9 . _ - and do not begin with a dot.",
            Self::GroupUnknown => "Check the name with `weir group ls`.",
            Self::Opening => {
                "Send the request again after the pause that is named; /readyz answers 200 when the store is open."
            }
            Self::Io => "Check the operation, file and cause that are named.",
            Self::IoFatal => {
                "Check the disk, then close and reopen the store; no acknowledged write is lost."
            }
            Self::DiskFull => "Free space on the file system that is named.",
            Self::Locked => "Use the process whose id is named, or end this process and try again.",
            Self::Damaged => "Run `weir verify` for the full list, then restore from a backup.",
            Self::NotAStore => "Check the path given to `--at`.",
            Self::StoreExists => "Name an empty or new directory.",
            Self::FormatNewer => "Open it with that version or a later one.",
            Self::NotPermitted => "Check owner, mode and mount options of the path that is named.",
            Self::Volatile => "Use a directory on a disk, or allow a volatile file system.",
            Self::EngineMissing => "Open it with a build that has the engine.",
            Self::Diverged => {
                "Keep a copy of the directory and report it: equal logs must give equal states."
            }
            Self::TooFewDescriptors => "Raise the limit of open files, as with `ulimit -n`.",
            Self::Closed => "Open the store again.",
            Self::BadOption => "Correct the option that is named.",
            Self::OpenedReadOnly => "Open the store for writing.",
            Self::ChangedWhileRead => "Open the store again.",
            Self::ReadOnlyLimit => {
                "Let the program that writes the store write a snapshot, or close the program and open the store for writing once; then open it again."
            }
            Self::Indeterminate => {
                "Send it again with the same client id and nonce: it is executed at most once."
            }
            Self::Deadline => "Try again, or allow more time.",
            Self::Unreachable => "Check the address, and that the server is running.",
            Self::Protocol => {
                "Check that the address is that of a Weir server of a matching version."
            }
            Self::BadAddress => {
                "Give a directory, `unix:PATH`, `weir://HOST[:PORT]` or `weirs://HOST[:PORT]`."
            }
            Self::BadLine => {
                "Correct it at the line and column that are named, or choose `--on-error skip`."
            }
            Self::SourceChanged => "Give the same input again, or begin a new import.",
            Self::Cancelled => "Start it again if it is still needed.",
            Self::AddressTaken => "End that process, or serve at another address.",
            Self::NullPointer => "Pass a valid address.",
            Self::Misaligned => "Pass the address of an object of the type.",
            Self::BadLength => "Pass the true length, within the limits that `weir.h` states.",
            Self::BadHandle => {
                "Use only handles that the library returned, until they are released."
            }
            Self::HandleBusy => "Use the handle from one thread at a time.",
            Self::Panic => "Release the handle, and report the bug with the message.",
            Self::HandlePoisoned => "Release the handle, and create a new one.",
            Self::BadStruct => {
                "Set `struct_size` to the size of the structure, and everything unknown to zero."
            }
            Self::AbiMismatch => "Install the library of the version that is named.",
            Self::TooManyHandles => "Release handles and pages that are not needed.",
            Self::Syntax => {
                "Correct the text at that place; `weir help guide query` prints the grammar."
            }
            Self::NotSingular => "Use names and indexes only, such as `$.a.b` or `$['a'][0]`.",
            Self::TooComplex => "Make it simpler, or raise the limit that is named.",
            Self::NoParam => "Give the parameter a value.",
            Self::TokenMismatch => {
                "Ask the same query with the same options, or begin without a token."
            }
            Self::TokenCorrupt => "Pass the token unchanged, or begin without one.",
            Self::TokenTooLarge => "Order by shorter keys, or use fewer sources.",
            Self::NoToken => {
                "Read what `explain` says about resuming, and order the query accordingly."
            }
            Self::NotUtf8 => "Correct the data at the byte that is named.",
            Self::NotJson => "Correct the data at the byte that is named.",
            Self::ControlCharacter => "Escape the character at the byte that is named.",
            Self::UnterminatedString => "Correct the data at the byte that is named.",
            Self::Unbalanced => "Correct the data at the byte that is named.",
            Self::TrailingData => {
                "Check the shape that was named for the page, and the byte that is named."
            }
            Self::TooDeep => "Raise the limit of depth if the data is to be trusted.",
            Self::PageTooLarge => "Ask for smaller pages, or raise the limit that is named.",
            Self::BadEnvelope => "Check the shape that was named for the page.",
            Self::RepeatedName => {
                "Correct the data, or check at the level `structural`, where the first one counts."
            }
            Self::SourceNotSorted => "Sort the source, or let the query sort it.",
            Self::OrderKeyType => "Order by a scalar, or choose `complex` = `rank`.",
            Self::GroupKeyType => "Group by a scalar.",
            Self::NumberRange => "Correct the number that is named, or leave it out with a filter.",
            Self::UnknownSource => "Use a number that was returned when the source was added.",
            Self::SourceFinished => "Add no more pages to it.",
            Self::OverBudget => {
                "Read results, release result pages, and pass the page again; or raise the budget."
            }
            Self::SortBudget => "Set a limit, read sources that are sorted, or raise the budget.",
            Self::GroupBudget => "Order by the group keys, filter, or raise the budget.",
            Self::DistinctBudget => "Order by the selected value, filter, or raise the budget.",
            Self::SplitLoop => "Check the service that answers with splits.",
            Self::SourcesOwed => {
                "Add the sources that are named, or mark those that no longer exist as abandoned."
            }
            Self::Internal => "Report it with the text of the message.",
        }
    }

    /// The method of the PSYC response.
    #[allow(clippy::too_many_lines, reason = "one line an error")]
    pub const fn psyc_method(self) -> &'static str {
        match self {
            Self::TopicExists => "_error_topic_exists",
            Self::TopicAbsent => "_error_topic_absent",
            Self::Rejected => "_error_rejected",
            Self::Conflict => "_error_conflict",
            Self::Quota => "_failure_quota",
            Self::TxnAborted => "_error_transaction_aborted",
            Self::GroupExists => "_error_group_exists",
            Self::GroupAbsent => "_error_group_absent",
            Self::NotOwner => "_error_not_owner",
            Self::GroupMode => "_error_group_mode",
            Self::NoTopic => "_error_topic_missing",
            Self::Trap => "_failure_program_trap",
            Self::OutOfFuel => "_failure_program_fuel",
            Self::Limit => "_failure_program_limit",
            Self::BadProgram => "_error_program_bad",
            Self::Quarantined => "_failure_topic_quarantined",
            Self::Redirect => "_failure_redirect",
            Self::NoLeader => "_failure_leader_absent",
            Self::Busy => "_failure_busy",
            Self::Rate => "_failure_rate",
            Self::NonceGap => "_error_nonce_gap",
            Self::SessionExpired => "_error_session_expired",
            Self::Unauthenticated => "_error_unauthenticated",
            Self::Forbidden => "_error_forbidden",
            Self::TooLarge => "_error_too_large",
            Self::BadRequest => "_error_request_bad",
            Self::Unsupported => "_error_unsupported",
            Self::ReadOnly => "_failure_read_only",
            Self::Gone => "_error_gone",
            Self::NonceReused => "_error_nonce_reused",
            Self::Superseded => "_error_session_superseded",
            Self::TopicUnknown => "_error_topic_unknown",
            Self::KeyAbsent => "_error_key_absent",
            Self::RecordAbsent => "_error_record_absent",
            Self::Lagging => "_failure_lagging",
            Self::Draining => "_failure_draining",
            Self::BadName => "_error_name_bad",
            Self::GroupUnknown => "_error_group_unknown",
            Self::Opening => "_failure_opening",
            Self::Io => "_failure_io",
            Self::IoFatal => "_failure_io_fatal",
            Self::DiskFull => "_failure_disk_full",
            Self::Locked => "_failure_locked",
            Self::Damaged => "_failure_damaged",
            Self::NotAStore => "_error_store_absent",
            Self::StoreExists => "_error_store_exists",
            Self::FormatNewer => "_error_format_newer",
            Self::NotPermitted => "_failure_not_permitted",
            Self::Volatile => "_error_volatile",
            Self::EngineMissing => "_error_engine_missing",
            Self::Diverged => "_failure_diverged",
            Self::TooFewDescriptors => "_failure_descriptors",
            Self::Closed => "_failure_closed",
            Self::BadOption => "_error_option_bad",
            Self::OpenedReadOnly => "_error_opened_read_only",
            Self::ChangedWhileRead => "_failure_changed_while_read",
            Self::ReadOnlyLimit => "_failure_read_only_limit",
            Self::Indeterminate => "_failure_indeterminate",
            Self::Deadline => "_failure_deadline",
            Self::Unreachable => "_failure_unreachable",
            Self::Protocol => "_failure_protocol",
            Self::BadAddress => "_error_address_bad",
            Self::BadLine => "_error_line_bad",
            Self::SourceChanged => "_error_source_changed",
            Self::Cancelled => "_failure_cancelled",
            Self::AddressTaken => "_failure_address_taken",
            Self::NullPointer => "_error_call_null",
            Self::Misaligned => "_error_call_misaligned",
            Self::BadLength => "_error_call_length",
            Self::BadHandle => "_error_call_handle",
            Self::HandleBusy => "_error_call_busy",
            Self::Panic => "_error_call_panic",
            Self::HandlePoisoned => "_error_call_poisoned",
            Self::BadStruct => "_error_call_struct",
            Self::AbiMismatch => "_error_call_version",
            Self::TooManyHandles => "_error_call_handles",
            Self::Syntax => "_error_query_syntax",
            Self::NotSingular => "_error_query_singular",
            Self::TooComplex => "_error_query_complex",
            Self::NoParam => "_error_query_param",
            Self::TokenMismatch => "_error_token_mismatch",
            Self::TokenCorrupt => "_error_token_corrupt",
            Self::TokenTooLarge => "_error_token_large",
            Self::NoToken => "_error_token_none",
            Self::NotUtf8 => "_error_page_utf8",
            Self::NotJson => "_error_page_json",
            Self::ControlCharacter => "_error_page_control",
            Self::UnterminatedString => "_error_page_string",
            Self::Unbalanced => "_error_page_unbalanced",
            Self::TrailingData => "_error_page_trailing",
            Self::TooDeep => "_error_page_deep",
            Self::PageTooLarge => "_error_page_large",
            Self::BadEnvelope => "_error_page_envelope",
            Self::RepeatedName => "_error_page_repeated",
            Self::SourceNotSorted => "_error_source_unsorted",
            Self::OrderKeyType => "_error_key_order",
            Self::GroupKeyType => "_error_key_group",
            Self::NumberRange => "_error_number_range",
            Self::UnknownSource => "_error_source_unknown",
            Self::SourceFinished => "_error_source_finished",
            Self::OverBudget => "_failure_budget_buffer",
            Self::SortBudget => "_failure_budget_sort",
            Self::GroupBudget => "_failure_budget_group",
            Self::DistinctBudget => "_failure_budget_distinct",
            Self::SplitLoop => "_failure_source_split",
            Self::SourcesOwed => "_error_sources_owed",
            Self::Internal => "_failure_internal",
        }
    }

    /// The kind of the error.
    #[allow(clippy::too_many_lines, reason = "one line an error")]
    pub const fn class(self) -> Class {
        match self {
            Self::TopicExists
            | Self::TopicAbsent
            | Self::Rejected
            | Self::Conflict
            | Self::Quota
            | Self::TxnAborted
            | Self::GroupExists
            | Self::GroupAbsent
            | Self::NotOwner
            | Self::GroupMode => Class::Invalid,
            Self::NoTopic
            | Self::Trap
            | Self::OutOfFuel
            | Self::Limit
            | Self::BadProgram
            | Self::Quarantined => Class::Error,
            Self::Redirect
            | Self::NoLeader
            | Self::Busy
            | Self::Rate
            | Self::NonceGap
            | Self::SessionExpired
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::TooLarge
            | Self::BadRequest
            | Self::Unsupported
            | Self::ReadOnly
            | Self::Gone
            | Self::NonceReused
            | Self::Superseded
            | Self::TopicUnknown
            | Self::KeyAbsent
            | Self::RecordAbsent
            | Self::Lagging
            | Self::Draining
            | Self::BadName
            | Self::GroupUnknown
            | Self::Opening => Class::Refusal,
            Self::Io
            | Self::IoFatal
            | Self::DiskFull
            | Self::Locked
            | Self::Damaged
            | Self::NotAStore
            | Self::StoreExists
            | Self::FormatNewer
            | Self::NotPermitted
            | Self::Volatile
            | Self::EngineMissing
            | Self::Diverged
            | Self::TooFewDescriptors
            | Self::Closed
            | Self::BadOption
            | Self::OpenedReadOnly
            | Self::ChangedWhileRead
            | Self::ReadOnlyLimit => Class::Store,
            Self::Indeterminate
            | Self::Deadline
            | Self::Unreachable
            | Self::Protocol
            | Self::BadAddress
            | Self::BadLine
            | Self::SourceChanged
            | Self::Cancelled
            | Self::AddressTaken => Class::Client,
            Self::NullPointer
            | Self::Misaligned
            | Self::BadLength
            | Self::BadHandle
            | Self::HandleBusy
            | Self::Panic
            | Self::HandlePoisoned
            | Self::BadStruct
            | Self::AbiMismatch
            | Self::TooManyHandles => Class::Call,
            Self::Syntax
            | Self::NotSingular
            | Self::TooComplex
            | Self::NoParam
            | Self::TokenMismatch
            | Self::TokenCorrupt
            | Self::TokenTooLarge
            | Self::NoToken
            | Self::NotUtf8
            | Self::NotJson
            | Self::ControlCharacter
            | Self::UnterminatedString
            | Self::Unbalanced
            | Self::TrailingData
            | Self::TooDeep
            | Self::PageTooLarge
            | Self::BadEnvelope
            | Self::RepeatedName
            | Self::SourceNotSorted
            | Self::OrderKeyType
            | Self::GroupKeyType
            | Self::NumberRange
            | Self::UnknownSource
            | Self::SourceFinished
            | Self::OverBudget
            | Self::SortBudget
            | Self::GroupBudget
            | Self::DistinctBudget
            | Self::SplitLoop
            | Self::SourcesOwed => Class::Query,
            Self::Internal => Class::Internal,
        }
    }

    /// The cause of the error.
    #[allow(clippy::too_many_lines, reason = "one line an error")]
    pub const fn fault(self) -> Fault {
        match self {
            Self::TopicExists
            | Self::TopicAbsent
            | Self::Rejected
            | Self::Conflict
            | Self::Quota
            | Self::TxnAborted
            | Self::GroupExists
            | Self::GroupAbsent
            | Self::NotOwner
            | Self::GroupMode
            | Self::NoTopic
            | Self::Trap
            | Self::OutOfFuel
            | Self::Limit
            | Self::BadProgram
            | Self::Rate
            | Self::NonceGap
            | Self::SessionExpired
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::TooLarge
            | Self::BadRequest
            | Self::Unsupported
            | Self::Gone
            | Self::NonceReused
            | Self::Superseded
            | Self::TopicUnknown
            | Self::KeyAbsent
            | Self::RecordAbsent
            | Self::BadName
            | Self::GroupUnknown
            | Self::NotAStore
            | Self::StoreExists
            | Self::FormatNewer
            | Self::Volatile
            | Self::EngineMissing
            | Self::Closed
            | Self::BadOption
            | Self::OpenedReadOnly
            | Self::BadAddress
            | Self::BadLine
            | Self::SourceChanged
            | Self::Cancelled
            | Self::NullPointer
            | Self::Misaligned
            | Self::BadLength
            | Self::BadHandle
            | Self::HandleBusy
            | Self::BadStruct
            | Self::TooManyHandles
            | Self::Syntax
            | Self::NotSingular
            | Self::TooComplex
            | Self::NoParam
            | Self::TokenMismatch
            | Self::TokenCorrupt
            | Self::TokenTooLarge
            | Self::NoToken
            | Self::NotUtf8
            | Self::NotJson
            | Self::ControlCharacter
            | Self::UnterminatedString
            | Self::Unbalanced
            | Self::TrailingData
            | Self::TooDeep
            | Self::PageTooLarge
            | Self::BadEnvelope
            | Self::RepeatedName
            | Self::SourceNotSorted
            | Self::OrderKeyType
            | Self::GroupKeyType
            | Self::NumberRange
            | Self::UnknownSource
            | Self::SourceFinished
            | Self::OverBudget
            | Self::SortBudget
            | Self::GroupBudget
            | Self::DistinctBudget
            | Self::SplitLoop
            | Self::SourcesOwed => Fault::Caller,
            Self::Quarantined
            | Self::Diverged
            | Self::Panic
            | Self::HandlePoisoned
            | Self::Internal => Fault::Us,
            Self::Redirect
            | Self::NoLeader
            | Self::Busy
            | Self::ReadOnly
            | Self::Lagging
            | Self::Draining
            | Self::Opening
            | Self::Io
            | Self::IoFatal
            | Self::DiskFull
            | Self::Locked
            | Self::Damaged
            | Self::NotPermitted
            | Self::TooFewDescriptors
            | Self::ChangedWhileRead
            | Self::ReadOnlyLimit
            | Self::Indeterminate
            | Self::Deadline
            | Self::Unreachable
            | Self::AddressTaken
            | Self::AbiMismatch => Fault::Environment,
            Self::Protocol => Fault::Peer,
        }
    }

    /// Whether a retry can succeed.
    #[allow(clippy::too_many_lines, reason = "one line an error")]
    pub const fn retry(self) -> Retry {
        match self {
            Self::TopicExists
            | Self::TopicAbsent
            | Self::Rejected
            | Self::TxnAborted
            | Self::GroupExists
            | Self::GroupAbsent
            | Self::NotOwner
            | Self::GroupMode
            | Self::Trap
            | Self::OutOfFuel
            | Self::Limit
            | Self::BadProgram
            | Self::SessionExpired
            | Self::TooLarge
            | Self::BadRequest
            | Self::Unsupported
            | Self::Gone
            | Self::NonceReused
            | Self::Superseded
            | Self::BadName
            | Self::GroupUnknown
            | Self::IoFatal
            | Self::Damaged
            | Self::NotAStore
            | Self::StoreExists
            | Self::FormatNewer
            | Self::Volatile
            | Self::EngineMissing
            | Self::Diverged
            | Self::Closed
            | Self::BadOption
            | Self::OpenedReadOnly
            | Self::Protocol
            | Self::BadAddress
            | Self::BadLine
            | Self::SourceChanged
            | Self::NullPointer
            | Self::Misaligned
            | Self::BadLength
            | Self::BadHandle
            | Self::Panic
            | Self::HandlePoisoned
            | Self::BadStruct
            | Self::AbiMismatch
            | Self::Syntax
            | Self::NotSingular
            | Self::TooComplex
            | Self::NoParam
            | Self::TokenMismatch
            | Self::TokenCorrupt
            | Self::TokenTooLarge
            | Self::NoToken
            | Self::NotUtf8
            | Self::NotJson
            | Self::ControlCharacter
            | Self::UnterminatedString
            | Self::Unbalanced
            | Self::TrailingData
            | Self::TooDeep
            | Self::PageTooLarge
            | Self::BadEnvelope
            | Self::RepeatedName
            | Self::SourceNotSorted
            | Self::OrderKeyType
            | Self::GroupKeyType
            | Self::NumberRange
            | Self::UnknownSource
            | Self::SourceFinished
            | Self::SortBudget
            | Self::GroupBudget
            | Self::DistinctBudget
            | Self::SplitLoop
            | Self::Internal => Retry::No,
            Self::Conflict
            | Self::Quota
            | Self::NoTopic
            | Self::Quarantined
            | Self::Redirect
            | Self::NoLeader
            | Self::Busy
            | Self::Rate
            | Self::NonceGap
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::ReadOnly
            | Self::TopicUnknown
            | Self::KeyAbsent
            | Self::RecordAbsent
            | Self::Lagging
            | Self::Draining
            | Self::Opening
            | Self::Io
            | Self::DiskFull
            | Self::Locked
            | Self::NotPermitted
            | Self::TooFewDescriptors
            | Self::ChangedWhileRead
            | Self::ReadOnlyLimit
            | Self::Unreachable
            | Self::AddressTaken
            | Self::TooManyHandles
            | Self::OverBudget
            | Self::SourcesOwed => Retry::After,
            Self::Indeterminate | Self::Deadline | Self::Cancelled | Self::HandleBusy => Retry::Yes,
        }
    }

    /// The status of the HTTP response.
    #[allow(clippy::too_many_lines, reason = "one line an error")]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::TopicExists
            | Self::TxnAborted
            | Self::GroupExists
            | Self::NotOwner
            | Self::GroupMode
            | Self::NonceGap
            | Self::Superseded
            | Self::StoreExists
            | Self::SourceChanged
            | Self::TokenMismatch
            | Self::NoToken
            | Self::SourceNotSorted
            | Self::SourceFinished
            | Self::SplitLoop
            | Self::SourcesOwed => 409,
            Self::TopicAbsent
            | Self::GroupAbsent
            | Self::NoTopic
            | Self::TopicUnknown
            | Self::KeyAbsent
            | Self::RecordAbsent
            | Self::GroupUnknown
            | Self::UnknownSource => 404,
            Self::Rejected
            | Self::Trap
            | Self::OutOfFuel
            | Self::Limit
            | Self::BadProgram
            | Self::NonceReused
            | Self::NotUtf8
            | Self::NotJson
            | Self::ControlCharacter
            | Self::UnterminatedString
            | Self::Unbalanced
            | Self::TrailingData
            | Self::TooDeep
            | Self::BadEnvelope
            | Self::RepeatedName
            | Self::OrderKeyType
            | Self::GroupKeyType
            | Self::NumberRange => 422,
            Self::Conflict => 412,
            Self::Quota => 507,
            Self::Quarantined
            | Self::NoLeader
            | Self::Busy
            | Self::ReadOnly
            | Self::Draining
            | Self::Opening
            | Self::DiskFull
            | Self::Locked
            | Self::TooFewDescriptors
            | Self::Closed
            | Self::ChangedWhileRead
            | Self::ReadOnlyLimit
            | Self::Cancelled
            | Self::AddressTaken => 503,
            Self::Redirect => 307,
            Self::Rate | Self::OverBudget => 429,
            Self::SessionExpired | Self::Gone => 410,
            Self::Unauthenticated => 401,
            Self::Forbidden | Self::OpenedReadOnly => 403,
            Self::TooLarge
            | Self::TokenTooLarge
            | Self::PageTooLarge
            | Self::SortBudget
            | Self::GroupBudget
            | Self::DistinctBudget => 413,
            Self::BadRequest
            | Self::BadName
            | Self::BadOption
            | Self::BadAddress
            | Self::BadLine
            | Self::Syntax
            | Self::NotSingular
            | Self::TooComplex
            | Self::NoParam
            | Self::TokenCorrupt => 400,
            Self::Unsupported => 501,
            Self::Lagging | Self::Indeterminate | Self::Deadline => 504,
            Self::Io
            | Self::IoFatal
            | Self::Damaged
            | Self::NotAStore
            | Self::FormatNewer
            | Self::NotPermitted
            | Self::Volatile
            | Self::EngineMissing
            | Self::Diverged
            | Self::NullPointer
            | Self::Misaligned
            | Self::BadLength
            | Self::BadHandle
            | Self::HandleBusy
            | Self::Panic
            | Self::HandlePoisoned
            | Self::BadStruct
            | Self::AbiMismatch
            | Self::TooManyHandles
            | Self::Internal => 500,
            Self::Unreachable | Self::Protocol => 502,
        }
    }

    /// The exit code of the daily commands.
    #[allow(clippy::too_many_lines, reason = "one line an error")]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::TopicExists
            | Self::TopicAbsent
            | Self::Rejected
            | Self::Conflict
            | Self::Quota
            | Self::TxnAborted
            | Self::GroupExists
            | Self::GroupAbsent
            | Self::NotOwner
            | Self::GroupMode
            | Self::NoTopic
            | Self::Trap
            | Self::OutOfFuel
            | Self::Limit
            | Self::BadProgram
            | Self::Quarantined => 3,
            Self::Redirect
            | Self::NoLeader
            | Self::Busy
            | Self::Rate
            | Self::ReadOnly
            | Self::Lagging
            | Self::Draining
            | Self::Opening
            | Self::DiskFull
            | Self::Locked
            | Self::Deadline
            | Self::AddressTaken => 5,
            Self::NonceGap
            | Self::TooLarge
            | Self::BadRequest
            | Self::Unsupported
            | Self::NonceReused
            | Self::Superseded
            | Self::Io
            | Self::IoFatal
            | Self::Damaged
            | Self::StoreExists
            | Self::FormatNewer
            | Self::Volatile
            | Self::EngineMissing
            | Self::TooFewDescriptors
            | Self::Closed
            | Self::ChangedWhileRead
            | Self::ReadOnlyLimit
            | Self::Unreachable
            | Self::Protocol
            | Self::BadLine
            | Self::SourceChanged
            | Self::TokenTooLarge
            | Self::NoToken
            | Self::SourceFinished
            | Self::OverBudget
            | Self::SortBudget
            | Self::GroupBudget
            | Self::DistinctBudget
            | Self::SplitLoop => 1,
            Self::SessionExpired | Self::Indeterminate => 6,
            Self::Unauthenticated | Self::Forbidden | Self::NotPermitted => 7,
            Self::Gone
            | Self::TopicUnknown
            | Self::KeyAbsent
            | Self::RecordAbsent
            | Self::GroupUnknown
            | Self::NotAStore => 4,
            Self::BadName
            | Self::BadOption
            | Self::OpenedReadOnly
            | Self::BadAddress
            | Self::Syntax
            | Self::NotSingular
            | Self::TooComplex
            | Self::NoParam
            | Self::TokenMismatch
            | Self::TokenCorrupt
            | Self::UnknownSource
            | Self::SourcesOwed => 2,
            Self::Diverged
            | Self::NullPointer
            | Self::Misaligned
            | Self::BadLength
            | Self::BadHandle
            | Self::HandleBusy
            | Self::Panic
            | Self::HandlePoisoned
            | Self::BadStruct
            | Self::AbiMismatch
            | Self::TooManyHandles
            | Self::Internal => 70,
            Self::Cancelled => 130,
            Self::NotUtf8
            | Self::NotJson
            | Self::ControlCharacter
            | Self::UnterminatedString
            | Self::Unbalanced
            | Self::TrailingData
            | Self::TooDeep
            | Self::PageTooLarge
            | Self::BadEnvelope
            | Self::RepeatedName
            | Self::SourceNotSorted
            | Self::OrderKeyType
            | Self::GroupKeyType
            | Self::NumberRange => 65,
        }
    }

    /// The exit code of `serve`, `verify`, `repair`, `backup` and `restore`.
    #[allow(clippy::too_many_lines, reason = "one line an error")]
    pub const fn exit_code_store(self) -> u8 {
        match self {
            Self::TopicExists
            | Self::TopicAbsent
            | Self::Rejected
            | Self::Conflict
            | Self::Quota
            | Self::TxnAborted
            | Self::GroupExists
            | Self::GroupAbsent
            | Self::NotOwner
            | Self::GroupMode
            | Self::NoTopic
            | Self::Trap
            | Self::OutOfFuel
            | Self::Limit
            | Self::BadProgram
            | Self::Quarantined => 3,
            Self::Redirect
            | Self::Busy
            | Self::Rate
            | Self::Lagging
            | Self::Draining
            | Self::Opening
            | Self::Deadline => 5,
            Self::NoLeader | Self::Unreachable => 69,
            Self::NonceGap
            | Self::TooLarge
            | Self::BadRequest
            | Self::Unsupported
            | Self::NonceReused
            | Self::Superseded
            | Self::Closed
            | Self::ReadOnlyLimit
            | Self::Protocol
            | Self::BadLine
            | Self::SourceChanged
            | Self::TokenTooLarge
            | Self::NoToken
            | Self::SourceFinished
            | Self::OverBudget
            | Self::SortBudget
            | Self::GroupBudget
            | Self::DistinctBudget
            | Self::SplitLoop => 1,
            Self::SessionExpired | Self::Indeterminate => 6,
            Self::Unauthenticated | Self::Forbidden | Self::NotPermitted => 77,
            Self::ReadOnly | Self::Io | Self::IoFatal | Self::DiskFull => 74,
            Self::Gone
            | Self::TopicUnknown
            | Self::KeyAbsent
            | Self::RecordAbsent
            | Self::GroupUnknown => 4,
            Self::BadName
            | Self::OpenedReadOnly
            | Self::BadAddress
            | Self::Syntax
            | Self::NotSingular
            | Self::TooComplex
            | Self::NoParam
            | Self::TokenMismatch
            | Self::TokenCorrupt
            | Self::UnknownSource
            | Self::SourcesOwed => 2,
            Self::Locked | Self::ChangedWhileRead | Self::AddressTaken => 75,
            Self::Damaged
            | Self::NotUtf8
            | Self::NotJson
            | Self::ControlCharacter
            | Self::UnterminatedString
            | Self::Unbalanced
            | Self::TrailingData
            | Self::TooDeep
            | Self::PageTooLarge
            | Self::BadEnvelope
            | Self::RepeatedName
            | Self::SourceNotSorted
            | Self::OrderKeyType
            | Self::GroupKeyType
            | Self::NumberRange => 65,
            Self::NotAStore
            | Self::FormatNewer
            | Self::Volatile
            | Self::EngineMissing
            | Self::TooFewDescriptors
            | Self::BadOption => 78,
            Self::StoreExists => 73,
            Self::Diverged
            | Self::NullPointer
            | Self::Misaligned
            | Self::BadLength
            | Self::BadHandle
            | Self::HandleBusy
            | Self::Panic
            | Self::HandlePoisoned
            | Self::BadStruct
            | Self::AbiMismatch
            | Self::TooManyHandles
            | Self::Internal => 70,
            Self::Cancelled => 130,
        }
    }
}

impl fmt::Display for ErrorCode {
    /// Writes the name and the number, as in `CONFLICT (E104)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (E{})", self.name(), self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn every_number_maps_to_its_code() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_number(code.number()), Some(code));
        }
    }

    #[test]
    fn numbers_ascend_and_others_are_unknown() {
        let known: Vec<u16> = ErrorCode::ALL.iter().map(|code| code.number()).collect();
        assert!(known.is_sorted_by(|a, b| a < b));
        for number in 0..=u16::MAX {
            assert_eq!(
                ErrorCode::from_number(number).is_some(),
                known.contains(&number)
            );
        }
    }
}
