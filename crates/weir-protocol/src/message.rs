//! The messages and their fields. Slices borrow from the buffer of the packet.

use std::fmt;

use weir_core::ClientId;
use weir_core::error_code::ErrorCode;
use weir_core::intention::Expect;
use weir_core::program::ProgramCounts;
use weir_scan::BadItem;

use crate::fields;
use crate::groups::{GroupAnswer, GroupClaim};

/// A packet: a message, and the tag that associates an answer with its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Tag of the request, or on an answer the tag of its request; empty for none.
    pub tag: &'a [u8],
    /// Features that the receiver must support, separated by blanks.
    pub require: &'a [u8],
    /// For a read: the writes that the node must have applied. `None`: as
    /// [`Message::default_consistency`].
    pub consistency: Option<Consistency>,
    /// The message.
    pub message: Message<'a>,
}

impl<'a> Packet<'a> {
    /// A packet without tag.
    #[must_use]
    pub const fn new(message: Message<'a>) -> Self {
        Self::tagged(&[], message)
    }

    /// A packet with a tag.
    #[must_use]
    pub const fn tagged(tag: &'a [u8], message: Message<'a>) -> Self {
        Self {
            tag,
            require: &[],
            consistency: None,
            message,
        }
    }

    /// A request that names the features it needs. `consistency` applies if the message is a read.
    #[must_use]
    pub fn request(tag: &'a [u8], message: Message<'a>, consistency: Option<Consistency>) -> Self {
        let default = message.default_consistency();
        let consistency = consistency.filter(|level| default.is_some_and(|one| one != *level));
        // Version 1 without features knows the consistency of reads of keys.
        let needs_word = default == Some(Consistency::Local) && consistency.is_some();
        Self {
            require: message.features(needs_word),
            consistency,
            ..Self::tagged(tag, message)
        }
    }

    /// Returns the consistency of the read; `Local` for a message that is not a read.
    #[must_use]
    pub fn effective_consistency(&self) -> Consistency {
        let level = self.consistency.or(self.message.default_consistency());
        level.unwrap_or(Consistency::Local)
    }
}

/// HELLO.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Versions that the client supports, separated by blanks; empty: `weir/1`.
    pub versions: &'a [u8],
    /// Session; `NONE` for none.
    pub client: ClientId,
    /// Lowest nonce whose answer the client has not received; `None`: nothing is in flight.
    pub resume: Option<u64>,
    /// Number of unanswered nonces that the client requests.
    pub window: Option<u64>,
    /// Whether the client wants RECEIVED.
    pub received: bool,
    /// Store that the session was opened with.
    pub store: Option<[u8; 16]>,
    /// Proof of identity; empty for none.
    pub token: &'a [u8],
    /// Program and version of the client.
    pub agent: &'a [u8],
}

/// Omits the proof of identity, which must not appear in a log.
impl fmt::Debug for Hello<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = if self.token.is_empty() { "none" } else { ".." };
        f.debug_struct("Hello")
            .field("versions", &self.versions)
            .field("client", &self.client)
            .field("resume", &self.resume)
            .field("window", &self.window)
            .field("received", &self.received)
            .field("store", &self.store)
            .field("token", &format_args!("{token}"))
            .field("agent", &self.agent)
            .finish()
    }
}

/// `HELLO_OK`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HelloOk<'a> {
    /// Version of the protocol after this message.
    pub version: &'a [u8],
    /// Id of the store.
    pub store: [u8; 16],
    /// Id of the node.
    pub node: [u8; 16],
    /// Durability level in words, as COMMITTED promises it.
    pub level: &'a [u8],
    /// Name of the file system of the store if it does not survive a power cut; else empty.
    pub volatile: &'a [u8],
    /// The reason why writes are refused or the log cannot shrink; empty without a failure.
    pub failure: &'a [u8],
    /// Next nonce of the session; 0 without a session.
    pub next: u64,
    /// Maximum number of nonces that may be unanswered.
    pub window: u64,
    /// Maximum number of bytes of write packets that may be unanswered.
    pub window_bytes: u64,
    /// Offset of the newest applied intention.
    pub applied: u64,
    /// Term of the newest applied intention.
    pub term: u64,
    /// Largest size of a key in bytes.
    pub key_bytes_max: u64,
    /// Largest size of a value in bytes.
    pub value_bytes_max: u64,
    /// Milliseconds after which the server closes a silent connection; 0: never.
    pub idle_ms: u64,
    /// Features of the server beyond version 1, separated by blanks.
    pub features: &'a [u8],
    /// Program and version of the server.
    pub agent: &'a [u8],
    /// Client id in the records of the session, if it differs from that of HELLO.
    pub client: Option<ClientId>,
}

/// Start position of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// After this offset.
    Offset(u64),
    /// After the newest record.
    Tail,
    /// The given number of offsets before the end.
    Last(u64),
    /// At the first record with this or a later time stamp, in milliseconds since 1970.
    Time(u64),
    /// The latest value of each key once, then new records.
    Latest,
}

/// LISTEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// Start position.
    pub after: After,
    /// Whether the listener waits for new records at the end.
    pub follow: bool,
    /// Initial credit in bytes of pages.
    pub bytes: u64,
    /// Initial credit in records.
    pub records: u64,
    /// Only records with this key.
    pub key: Option<&'a [u8]>,
    /// Only records whose keys begin with this prefix.
    pub prefix: Option<&'a [u8]>,
    /// Only records of the kinds whose bits are set, bit `n` for kind number `n`; 0 for all
    /// kinds.
    pub kinds: u8,
    /// Whether to begin at the first remaining record instead of the refusal GONE.
    pub reset_earliest: bool,
    /// Fields of a query. They need the feature [`QUERY`](crate::QUERY), or with
    /// [`After::Latest`] the feature [`QUERY_LATEST`](crate::QUERY_LATEST).
    pub query: ListenQuery<'a>,
}

/// Fields that a query adds to LISTEN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenQuery<'a> {
    /// Filter that the server applies to the values of records.
    pub pushdown: Option<PushdownQuery<'a>>,
    /// Number of records after which the listener ends.
    pub limit: Option<u64>,
    /// Intention offset; the listener ends before records of later intentions.
    pub until: Option<u64>,
    /// Whether the server sends APPLIED for this listener.
    pub marks: bool,
    /// With [`After::Latest`]: smaller keys are omitted.
    pub from: Option<&'a [u8]>,
}

/// The part of a query that the server runs: it decides which records are sent, and which
/// part of their values. The texts are fields of a query in their source form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent words")]
pub struct PushdownQuery<'a> {
    /// `where`.
    pub filter: &'a [u8],
    /// Parameters of `where`: for each, bytes name and bytes JSON scalar.
    pub params: &'a [u8],
    /// `order`: the server checks the values of order keys.
    pub order: &'a [u8],
    /// `group`: the server checks the values at its paths.
    pub group: &'a [u8],
    /// `select`.
    pub select: &'a [u8],
    /// Whether each item is checked completely.
    pub strict: bool,
    /// Treatment of items that are not JSON.
    pub on_bad_item: BadItem,
    /// Whether strings are ordered by UTF-16 code units.
    pub utf16: bool,
    /// Whether arrays and objects may be order keys.
    pub rank: bool,
    /// Whether items without an order key are omitted.
    pub drop: bool,
    /// Whether the selected value replaces the value of a record.
    pub cut: bool,
}

/// The operation of a text write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextOperation<'a> {
    /// PUT.
    Put {
        /// Key; empty for none.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
    },
    /// DELETE.
    Delete {
        /// Key.
        key: &'a [u8],
    },
    /// CREATE of a plain topic.
    Create {
        /// Encoded options; empty for none.
        options: &'a [u8],
    },
    /// DESTROY.
    Destroy,
}

/// A write of one intention, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextWrite<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// Operation.
    pub kind: TextOperation<'a>,
    /// Nonce; `None`: the next nonce of the session.
    pub nonce: Option<u64>,
    /// Conditions in words about the key of the write; empty for none.
    pub expect: Conditions<'a>,
    /// Metadata.
    pub meta: &'a [u8],
}

/// Conditions in words, separated by blanks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions<'a>(pub &'a [u8]);

impl<'a> Conditions<'a> {
    /// Parses the conditions; `None` if a word is not a condition or there are too many.
    #[must_use]
    pub fn read(self) -> Option<Vec<Expect<'a>>> {
        if self.0.is_empty() {
            return Some(Vec::new());
        }
        let words = fields::words(self.0, weir_core::limits::EXPECTS_MAX)?;
        words.map(condition).collect()
    }
}

fn condition(word: &[u8]) -> Option<Expect<'static>> {
    let at = word.iter().position(|&byte| byte == b'=');
    let (name, value) = match at {
        Some(at) => (word.get(..at)?, Some(fields::number(word.get(at + 1..)?)?)),
        None => (word, None),
    };
    Some(match (name, value) {
        (b"key_offset", Some(n)) => Expect::KeyOffset(None, n),
        (b"key_absent", None) => Expect::KeyAbsent(None),
        (b"key_present", None) => Expect::KeyPresent(None),
        (b"topic_offset", Some(n)) => Expect::TopicOffset(n),
        (b"topic_absent_or", Some(n)) => Expect::TopicAbsentOr(n),
        (b"topic_empty", None) => Expect::TopicEmpty,
        (b"incarnation", Some(n)) => Expect::Incarnation(n),
        _ => return None,
    })
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalMessage<'a> {
    /// Method of the error, as received.
    pub method: &'a [u8],
    /// Number of the error, as received; 0 for none.
    pub number: u64,
    /// Whether the server closes the connection afterwards.
    pub fatal: bool,
    /// Milliseconds to wait before the request may be sent again.
    pub retry_ms: Option<u64>,
    /// First nonce of the refused write.
    pub nonce: Option<u64>,
    /// Number of items of the refused write.
    pub count: Option<u64>,
    /// Index of the wrong item, from 0.
    pub item: Option<u64>,
    /// Next nonce that would be accepted.
    pub expected: Option<u64>,
    /// The limit that was exceeded.
    pub limit: Option<u64>,
    /// Offset of the record at which a query stopped.
    pub record: Option<u64>,
    /// Byte of the value of that record, from its start.
    pub byte: Option<u64>,
    /// Offset of the first remaining record.
    pub first: Option<u64>,
    /// Offset of the last record.
    pub last: Option<u64>,
    /// Address of the server to use instead.
    pub address: &'a [u8],
    /// Byte of the stream at which the error is.
    pub at: Option<u64>,
    /// Versions that the server supports, if the client offered none of them.
    pub versions: &'a [u8],
    /// Text for users.
    pub text: &'a [u8],
}

impl RefusalMessage<'_> {
    /// Creates a refusal with only a code.
    #[must_use]
    pub const fn new(code: ErrorCode) -> RefusalMessage<'static> {
        RefusalMessage {
            method: code.psyc_method().as_bytes(),
            number: code.number() as u64,
            fatal: false,
            retry_ms: None,
            nonce: None,
            count: None,
            item: None,
            expected: None,
            limit: None,
            record: None,
            byte: None,
            first: None,
            last: None,
            address: &[],
            at: None,
            versions: &[],
            text: code.sentence().as_bytes(),
        }
    }

    /// Returns the error, or `None` if its number is unknown.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        u16::try_from(self.number)
            .ok()
            .and_then(ErrorCode::from_number)
    }

    /// Returns whether the refusal answers a write.
    #[must_use]
    pub const fn is_of_write(&self) -> bool {
        self.count.is_some()
    }
}

/// The program of a topic and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramAnswer<'a> {
    /// SHA-256 of the module.
    pub hash: [u8; 32],
    /// Arguments of the program.
    pub args: &'a [u8],
    /// Number of its state mode.
    pub mode: u64,
    /// Number of entries of the state.
    pub entries: u64,
    /// Size of the state in bytes.
    pub bytes: u64,
    /// Counts of the calls since the store was opened.
    pub counts: ProgramCounts,
}

/// The writes that a node of a cluster must have applied before it answers a read. On a
/// single server, all values are equivalent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// The writes that the node has applied.
    Local,
    /// The writes that the leader has applied, while its lease by a majority is valid. Old
    /// values can be read only if a clock runs too fast.
    Leader,
    /// All writes that were acknowledged anywhere before the read began.
    Linear,
}

impl Consistency {
    /// Returns the word for the level.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Leader => "leader",
            Self::Linear => "linear",
        }
    }

    /// Parses the word for a level.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let all = [Self::Local, Self::Leader, Self::Linear];
        all.into_iter().find(|one| one.name().as_bytes() == name)
    }
}

/// A message. The number in the docs of a variant is its section in docs/formats/native.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(
    clippy::large_enum_variant,
    reason = "is on the stack for one packet only"
)]
pub enum Message<'a> {
    /// The empty packet.
    Empty,
    /// 4.
    Hello(Hello<'a>),
    /// 4.
    HelloOk(HelloOk<'a>),
    /// 4: the nodes and the leader.
    Config {
        /// Current term.
        term: u64,
        /// Id of the leader, if known.
        leader: Option<[u8; 16]>,
        /// One line for each node: number and address.
        nodes: &'a [u8],
    },
    /// 5: items as in a log batch.
    Write {
        /// Number of items.
        count: u32,
        /// The items.
        items: &'a [u8],
    },
    /// 5: one intention as text.
    TextWrite(TextWrite<'a>),
    /// 6: runs of answers, one line each.
    Committed {
        /// The lines; see [`OutcomeLines`](crate::OutcomeLines).
        lines: &'a [u8],
    },
    /// 6.
    Received {
        /// First nonce.
        nonce: u64,
        /// Number of nonces.
        count: u64,
    },
    /// 7.
    Listen(Listen<'a>),
    /// 7: the listener has started.
    Listening {
        /// First offset that will be read.
        position: u64,
        /// First record of the topic; 0 for none.
        first: u64,
        /// Last record of the topic; 0 for none.
        last: u64,
    },
    /// 7: a page of records.
    Records {
        /// Records below this offset are to be skipped.
        from: u64,
        /// Whether the page has values of [`After::Latest`] from before the new records.
        replay: bool,
        /// Page head and records.
        page: &'a [u8],
    },
    /// 7.
    Progress {
        /// All records below this offset were read.
        position: u64,
    },
    /// 7: the listener has ended.
    End {
        /// All records below this offset were read.
        position: u64,
    },
    /// 7, "Queries": items that are not JSON were omitted.
    Skipped {
        /// Number of items omitted since the last such message.
        count: u64,
    },
    /// 7, "Queries": requests the progress of the node.
    Applied,
    /// 7, "Queries".
    AppliedResponse {
        /// Offset of the newest applied intention.
        applied: u64,
        /// Newest intention up to which all records can be read.
        settled: u64,
        /// Newest intention that created an existing topic.
        created: u64,
        /// Tags of listeners to which the mark does not apply, one line each.
        lagging: &'a [u8],
    },
    /// 7.
    Unlisten,
    /// 7: adds to the credit of a listener.
    Credit {
        /// Number of bytes to add.
        bytes: u64,
        /// Number of records to add.
        records: u64,
    },
    /// 8.
    Get {
        /// Topic name.
        topic: &'a str,
        /// Key.
        key: &'a [u8],
        /// Record offset that the node must have applied in the topic.
        at_least: u64,
        /// Intention offset that the node must have applied.
        applied: u64,
    },
    /// 8.
    GetRecord {
        /// Topic name.
        topic: &'a str,
        /// Offset.
        offset: u64,
    },
    /// 8: a page of one record.
    Value {
        /// Page head and record.
        page: &'a [u8],
    },
    /// 8.
    Scan {
        /// Topic name.
        topic: &'a str,
        /// Only keys with this prefix.
        prefix: &'a [u8],
        /// Only keys greater than this key; `None`: from the first key.
        after: Option<&'a [u8]>,
        /// Maximum number of keys to return.
        limit: u64,
    },
    /// 8: keys with offsets.
    Keys {
        /// Whether there are more keys.
        more: bool,
        /// For each key, varint offset and bytes key.
        entries: &'a [u8],
    },
    /// 8.
    Topics {
        /// Only names with this prefix.
        prefix: &'a [u8],
        /// Only names greater than this name; empty: from the first name.
        after: &'a [u8],
        /// Maximum number of topics to return.
        limit: u64,
        /// Whether to include destroyed topics.
        dead: bool,
    },
    /// 8.
    Topic {
        /// Topic name.
        topic: &'a str,
    },
    /// 8: lines about topics.
    TopicsResponse {
        /// Whether there are more topics.
        more: bool,
        /// See [`TopicLines`](crate::TopicLines).
        lines: &'a [u8],
    },
    /// 8.
    Program {
        /// Topic name.
        topic: &'a str,
    },
    /// 8.
    ProgramResponse(Option<ProgramAnswer<'a>>),
    /// 8, "Groups".
    GroupClaim(GroupClaim<'a>),
    /// 8, "Groups".
    GroupRecords(GroupAnswer<'a>),
    /// 8, "Groups".
    Group {
        /// Topic name.
        topic: &'a str,
        /// Name of the group.
        group: &'a str,
    },
    /// 8, "Groups".
    Groups {
        /// Topic name.
        topic: &'a str,
        /// Only names greater than this name; empty: from the first name.
        after: &'a str,
    },
    /// 8, "Groups": lines about groups.
    GroupsResponse {
        /// Whether there are more groups.
        more: bool,
        /// See [`GroupLines`](crate::GroupLines).
        lines: &'a [u8],
    },
    /// 8.
    Status,
    /// 8: name and value, one line each.
    StatusResponse {
        /// See [`StatusLines`](crate::StatusLines).
        lines: &'a [u8],
    },
    /// 8, "Files of a history".
    Files {
        /// Path of a directory, relative to that of the store.
        path: &'a str,
    },
    /// 8, "Files of a history": names, one line each.
    FilesResponse {
        /// The lines.
        lines: &'a [u8],
    },
    /// 8, "Files of a history".
    File {
        /// Path of a file, relative to the directory of the store.
        path: &'a str,
        /// First requested byte.
        at: u64,
        /// Maximum number of bytes to return.
        bytes: u64,
    },
    /// 8, "Files of a history".
    FileResponse {
        /// Length of the file in bytes; `None` if it does not exist.
        length: Option<u64>,
        /// The requested bytes.
        part: &'a [u8],
    },
    /// 8: compacts topics with compaction in their options, writes a snapshot and removes
    /// the log before it.
    Compact,
    /// 8: the log was compacted.
    Compacted {
        /// Log entry up to which the log was removed.
        index: u64,
        /// Size of the log in bytes before.
        bytes_before: u64,
        /// Size of the log in bytes afterwards.
        bytes_after: u64,
    },
    /// 8.
    Sync,
    /// 8: the leader assigns a number to a node that is about to join.
    ClusterAdd {
        /// Peer address of the node.
        peer: &'a str,
    },
    /// 8: the node may join.
    ClusterAdded {
        /// Number of the node.
        node: u64,
    },
    /// 8: the leader removes a node from the cluster.
    ClusterRemove {
        /// Number of the node.
        node: u64,
    },
    /// 8: the leader transfers its leadership.
    ClusterTransfer {
        /// Number of the new leader.
        node: u64,
    },
    /// 8: the change of the cluster is committed.
    ClusterChanged,
    /// 8.
    Synced,
    /// 8.
    Ping,
    /// 8.
    Pong,
    /// 9.
    Window {
        /// Maximum number of unanswered nonces.
        window: u64,
        /// Maximum number of unanswered bytes.
        window_bytes: u64,
    },
    /// 10.
    Refusal(RefusalMessage<'a>),
    /// 11: the client leaves.
    Bye,
    /// 11: the server is about to leave.
    Drain {
        /// Milliseconds after which the server leaves at the latest.
        within_ms: u64,
    },
    /// 11: no message follows.
    ByeNotice,
    /// A message with an unknown method.
    Unknown {
        /// The method.
        method: &'a [u8],
    },
}

impl Message<'_> {
    /// Returns the consistency of a read whose packet names none; `None` if the message is
    /// not a read.
    #[must_use]
    pub const fn default_consistency(&self) -> Option<Consistency> {
        match self {
            Message::Get { .. } | Message::Scan { .. } => Some(Consistency::Linear),
            Message::GetRecord { .. }
            | Message::Topic { .. }
            | Message::Topics { .. }
            | Message::Program { .. }
            | Message::Group { .. }
            | Message::Groups { .. }
            | Message::GroupClaim(_)
            | Message::Listen(_)
            | Message::Applied => Some(Consistency::Local),
            _ => None,
        }
    }

    /// Returns the features that the receiver must support, separated by blanks; empty if
    /// version 1 is sufficient. `with_consistency`: [`CONSISTENCY`](crate::CONSISTENCY) is one.
    fn features(&self, with_consistency: bool) -> &'static [u8] {
        let query = match self {
            Message::Applied => crate::QUERY,
            Message::Listen(listen) if listen.query != ListenQuery::default() => {
                match listen.after {
                    After::Latest => crate::QUERY_LATEST,
                    _ => crate::QUERY,
                }
            }
            _ => b"",
        };
        match query {
            query if !with_consistency => query,
            crate::QUERY => b"consistency query",
            crate::QUERY_LATEST => b"consistency query-latest",
            _ => crate::CONSISTENCY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Consistency, Hello, Message, Packet};

    /// A server that does not know a variable ignores it, so the feature must be named.
    #[test]
    fn a_consistency_is_named_with_its_feature() {
        use Consistency::{Leader, Linear, Local};
        let topic = Message::Topic { topic: "t" };
        let request = |message, level| {
            let packet = Packet::request(b"1", message, level);
            (packet.consistency, packet.require)
        };
        let word: &[u8] = b"consistency";
        for level in [Leader, Linear] {
            assert_eq!(request(topic, Some(level)), (Some(level), word));
        }
        assert_eq!(request(topic, Some(Local)), (None, &b""[..]));
        assert_eq!(request(topic, None), (None, &b""[..]));
        let both: &[u8] = b"consistency query";
        assert_eq!(
            request(Message::Applied, Some(Linear)),
            (Some(Linear), both)
        );
        // The first servers know it for keys.
        let key = Message::Get {
            topic: "t",
            key: b"k",
            at_least: 0,
            applied: 0,
        };
        assert_eq!(request(key, Some(Local)), (Some(Local), &b""[..]));
        assert_eq!(request(key, Some(Linear)), (None, &b""[..]));
        assert_eq!(
            request(Message::Status, Some(Linear)),
            (None, &b""[..]),
            "no read"
        );
    }

    #[test]
    fn a_hello_prints_no_token() {
        let hello = Hello {
            token: b"weir_secret",
            agent: b"somebody",
            ..Hello::default()
        };
        let printed = format!("{:?}", Packet::new(Message::Hello(hello)));
        // The bytes could be printed as numbers or as text.
        assert!(!printed.contains("119, 101, 105, 114") && !printed.contains("secret"));
        assert!(printed.contains("token: .."), "{printed}");
    }
}
