//! The messages, each with its fields. Slices point into the buffer that the
//! packet was read from.

use std::fmt;

use weir_core::ClientId;
use weir_core::error_code::ErrorCode;
use weir_core::intention::Expect;
use weir_core::program::ProgramCounts;
use weir_scan::BadItem;

use crate::fields;
use crate::groups::{GroupAnswer, GroupClaim};

/// A packet: a message, and the tag that ties an answer to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Tag of the request, or of the request that is answered; empty for none.
    pub tag: &'a [u8],
    /// Features that the sender needs understood, separated by blanks.
    pub require: &'a [u8],
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
            message,
        }
    }
}

/// HELLO.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Versions the client speaks, separated by blanks; empty: `weir/1`.
    pub versions: &'a [u8],
    /// Session; `NONE` for none.
    pub client: ClientId,
    /// Lowest nonce whose answer the client has not seen.
    pub resume: Option<u64>,
    /// Unanswered nonces it would like to have.
    pub window: Option<u64>,
    /// Whether it wants RECEIVED.
    pub received: bool,
    /// Store that the session was opened with.
    pub store: Option<[u8; 16]>,
    /// Proof of identity; empty for none.
    pub token: &'a [u8],
    /// Program and version.
    pub agent: &'a [u8],
}

/// Everything but the proof of identity, which belongs into no log.
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
    /// Version that is spoken.
    pub version: &'a [u8],
    /// Id of the store.
    pub store: [u8; 16],
    /// Id of the node.
    pub node: [u8; 16],
    /// Durability in words.
    pub level: &'a [u8],
    /// The file system of the store, if it does not survive a power cut; else
    /// empty.
    pub volatile: &'a [u8],
    /// Why writes are refused or the log cannot shrink; empty when all is well.
    pub failure: &'a [u8],
    /// Next nonce of the session.
    pub next: u64,
    /// Nonces that may be unanswered.
    pub window: u64,
    /// Bytes of write packets that may be unanswered.
    pub window_bytes: u64,
    /// Newest intention applied.
    pub applied: u64,
    /// Its term.
    pub term: u64,
    /// Bytes of a key.
    pub key_bytes_max: u64,
    /// Bytes of a value.
    pub value_bytes_max: u64,
    /// Milliseconds of silence after which the server closes; 0: never.
    pub idle_ms: u64,
    /// Features, separated by blanks.
    pub features: &'a [u8],
    /// Program and version of the server.
    pub agent: &'a [u8],
    /// What records of the session name as their client, if it is another id
    /// than that of HELLO.
    pub client: Option<ClientId>,
}

/// Where a listener begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// After this offset.
    Offset(u64),
    /// After the newest record.
    Tail,
    /// So many offsets before the end.
    Last(u64),
    /// At the first record stamped so or later, milliseconds since 1970.
    Time(u64),
    /// Each key once, then new records.
    Latest,
}

/// LISTEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// Where to begin.
    pub after: After,
    /// Whether to go on at the end.
    pub follow: bool,
    /// Credit in bytes of pages.
    pub bytes: u64,
    /// Credit in records.
    pub records: u64,
    /// Only this key.
    pub key: Option<&'a [u8]>,
    /// Only keys that begin so.
    pub prefix: Option<&'a [u8]>,
    /// Bit `n` for kind number `n`; 0 for all kinds.
    pub kinds: u8,
    /// Begin at the first record that is left instead of GONE.
    pub reset_earliest: bool,
    /// What a query adds; needs the feature [`QUERY`](crate::QUERY), with
    /// [`After::Latest`] the feature [`QUERY_LATEST`](crate::QUERY_LATEST).
    pub query: ListenQuery<'a>,
}

/// What a query adds to LISTEN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenQuery<'a> {
    /// Records are looked into.
    pub pushdown: Option<PushdownQuery<'a>>,
    /// The listener ends after so many records.
    pub limit: Option<u64>,
    /// The listener ends in front of records of later intentions.
    pub until: Option<u64>,
    /// APPLIED is wanted.
    pub marks: bool,
    /// Of the latest values those of keys that are not below.
    pub from: Option<&'a [u8]>,
}

/// The part of a query that the server does: which records are sent, and what
/// of them. Texts are fields of a query as people write them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "words that are there or not")]
pub struct PushdownQuery<'a> {
    /// `where`.
    pub filter: &'a [u8],
    /// For each parameter, bytes name and bytes JSON scalar.
    pub params: &'a [u8],
    /// `order`: where order keys are, which are checked.
    pub order: &'a [u8],
    /// `group`, likewise.
    pub group: &'a [u8],
    /// `select`.
    pub select: &'a [u8],
    /// Each item is checked entirely.
    pub strict: bool,
    /// What becomes of items that are not JSON.
    pub on_bad_item: BadItem,
    /// Strings are ordered by UTF-16 code units.
    pub utf16: bool,
    /// Arrays and objects may be order keys.
    pub rank: bool,
    /// Items without an order key are left out.
    pub drop: bool,
    /// The selected values are sent in the place of the values.
    pub cut: bool,
}

/// What a text write asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneKind<'a> {
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
pub struct OneWrite<'a> {
    /// Topic name.
    pub topic: &'a str,
    /// What is asked for.
    pub kind: OneKind<'a>,
    /// Nonce; `None`: the next one.
    pub nonce: Option<u64>,
    /// Conditions in words, about the key of the packet; empty for none.
    pub expect: Conditions<'a>,
    /// Metadata.
    pub meta: &'a [u8],
}

/// Conditions in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions<'a>(pub &'a [u8]);

impl<'a> Conditions<'a> {
    /// Reads them; `None` when one is no condition or there are too many.
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
    /// Method as it was sent.
    pub method: &'a [u8],
    /// Number as it was sent; 0 for none.
    pub number: u64,
    /// Whether the connection ends.
    pub fatal: bool,
    /// Milliseconds to wait before trying again.
    pub retry_ms: Option<u64>,
    /// First nonce of the write that was refused.
    pub nonce: Option<u64>,
    /// Its items.
    pub count: Option<u64>,
    /// The item at fault, from 0.
    pub item: Option<u64>,
    /// Next nonce that would be taken.
    pub expected: Option<u64>,
    /// The limit exceeded.
    pub limit: Option<u64>,
    /// The record at fault.
    pub record: Option<u64>,
    /// The byte of its value.
    pub byte: Option<u64>,
    /// First record there is.
    pub first: Option<u64>,
    /// Last record there is.
    pub last: Option<u64>,
    /// Where to go instead.
    pub address: &'a [u8],
    /// Byte of the stream.
    pub at: Option<u64>,
    /// Versions spoken, when none fits.
    pub versions: &'a [u8],
    /// Sentence for people.
    pub text: &'a [u8],
}

impl RefusalMessage<'_> {
    /// A refusal with nothing but its code.
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

    /// The error, if its number is known here.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        u16::try_from(self.number)
            .ok()
            .and_then(ErrorCode::from_number)
    }

    /// Whether it answers a write.
    #[must_use]
    pub const fn is_of_write(&self) -> bool {
        self.count.is_some()
    }
}

/// What is known about a topic's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramAnswer<'a> {
    /// SHA-256 of its module.
    pub hash: [u8; 32],
    /// Its arguments.
    pub args: &'a [u8],
    /// Number of its state mode.
    pub mode: u64,
    /// Entries of its state.
    pub entries: u64,
    /// Bytes of its state.
    pub bytes: u64,
    /// What it did since the store was opened.
    pub counts: ProgramCounts,
}

/// What a node of a cluster must have seen before it answers a read. At a server of
/// its own all of them mean the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// Whatever the node has applied.
    Local,
    /// What a leader has applied that a majority has followed within its lease: old
    /// values can be read only if a clock runs too fast.
    Leader,
    /// Everything that was acknowledged anywhere before the read began.
    #[default]
    Linear,
}

impl Consistency {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Leader => "leader",
            Self::Linear => "linear",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let all = [Self::Local, Self::Leader, Self::Linear];
        all.into_iter().find(|one| one.name().as_bytes() == name)
    }
}

/// One message. The docs of the variants name the section of the format page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(
    clippy::large_enum_variant,
    reason = "lives on the stack for one packet"
)]
pub enum Message<'a> {
    /// The empty packet.
    Empty,
    /// 4.
    Hello(Hello<'a>),
    /// 4.
    HelloOk(HelloOk<'a>),
    /// 4: nodes and who leads.
    Config {
        /// Term.
        term: u64,
        /// Leader, if known.
        leader: Option<[u8; 16]>,
        /// A line for each node: id and address.
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
    One(OneWrite<'a>),
    /// 6: runs of answers, a line each.
    Committed {
        /// The lines; see [`OutcomeLines`](crate::OutcomeLines).
        lines: &'a [u8],
    },
    /// 6.
    Received {
        /// First nonce.
        nonce: u64,
        /// Nonces.
        count: u64,
    },
    /// 7.
    Listen(Listen<'a>),
    /// 7: the listener is there.
    Listening {
        /// First offset to be looked at.
        position: u64,
        /// First record of the topic; 0 for none.
        first: u64,
        /// Last record of the topic; 0 for none.
        last: u64,
    },
    /// 7: a page.
    Records {
        /// Records below are to be skipped.
        from: u64,
        /// Whether it comes from before the listening began.
        replay: bool,
        /// Head and records.
        page: &'a [u8],
    },
    /// 7.
    Progress {
        /// Everything below was looked at.
        position: u64,
    },
    /// 7: the listener is gone.
    End {
        /// Everything below was looked at.
        position: u64,
    },
    /// 7, "Queries": items that are not JSON were left out.
    Skipped {
        /// So many since the last such packet.
        count: u64,
    },
    /// 7, "Queries": how far the node has got.
    Applied,
    /// 7, "Queries".
    AppliedIs {
        /// Newest intention.
        applied: u64,
        /// Newest intention up to which all records are there.
        settled: u64,
        /// Newest intention that made a topic which lives.
        created: u64,
        /// Tags of listeners for which this does not hold, a line each.
        lagging: &'a [u8],
    },
    /// 7.
    Unlisten,
    /// 7: more credit for a listener.
    Credit {
        /// Bytes.
        bytes: u64,
        /// Records.
        records: u64,
    },
    /// 8.
    Get {
        /// Topic name.
        topic: &'a str,
        /// Key.
        key: &'a [u8],
        /// Record offset that the topic must have reached.
        at_least: u64,
        /// Intention offset that the node must have reached.
        applied: u64,
        /// What the node must have seen.
        consistency: Consistency,
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
        /// Head and record.
        page: &'a [u8],
    },
    /// 8.
    Scan {
        /// Topic name.
        topic: &'a str,
        /// Keys begin so.
        prefix: &'a [u8],
        /// Keys are greater; `None` from the first.
        after: Option<&'a [u8]>,
        /// At most so many.
        limit: u64,
        /// What the node must have seen.
        consistency: Consistency,
    },
    /// 8: keys with offsets.
    Keys {
        /// Whether there are more.
        more: bool,
        /// Varint offset and bytes key, for each.
        entries: &'a [u8],
    },
    /// 8.
    Topics {
        /// Names begin so.
        prefix: &'a [u8],
        /// Names are greater.
        after: &'a [u8],
        /// At most so many.
        limit: u64,
        /// Those too that do not live.
        dead: bool,
    },
    /// 8.
    Topic {
        /// Its name.
        topic: &'a str,
    },
    /// 8: lines about topics.
    TopicsAre {
        /// Whether there are more.
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
    ProgramIs(Option<ProgramAnswer<'a>>),
    /// 8, "Groups".
    GroupClaim(GroupClaim<'a>),
    /// 8, "Groups".
    GroupRecords(GroupAnswer<'a>),
    /// 8, "Groups".
    Group {
        /// Topic name.
        topic: &'a str,
        /// Its name.
        group: &'a str,
    },
    /// 8, "Groups".
    Groups {
        /// Topic name.
        topic: &'a str,
        /// Names are greater; empty from the first.
        after: &'a str,
    },
    /// 8, "Groups": lines about groups.
    GroupsAre {
        /// Whether there are more.
        more: bool,
        /// See [`GroupLines`](crate::GroupLines).
        lines: &'a [u8],
    },
    /// 8.
    Status,
    /// 8: name and value, a line each.
    StatusIs {
        /// See [`StatusLines`](crate::StatusLines).
        lines: &'a [u8],
    },
    /// 8, "Files of a history".
    Files {
        /// A directory.
        path: &'a str,
    },
    /// 8, "Files of a history": names, a line each.
    FilesAre {
        /// The lines.
        lines: &'a [u8],
    },
    /// 8, "Files of a history".
    File {
        /// A file.
        path: &'a str,
        /// First byte that is wanted.
        at: u64,
        /// Bytes that are wanted at most.
        bytes: u64,
    },
    /// 8, "Files of a history".
    FileIs {
        /// Bytes of the file; `None` when it does not exist.
        length: Option<u64>,
        /// Those that were wanted.
        part: &'a [u8],
    },
    /// 8: compacts topics whose options say so, writes a snapshot and removes the log before it.
    Compact,
    /// 8: the log was compacted.
    Compacted {
        /// Log entry up to which the log was removed.
        index: u64,
        /// Bytes of log before.
        bytes_before: u64,
        /// Bytes of log afterwards.
        bytes_after: u64,
    },
    /// 8.
    Sync,
    /// 8: the leader keeps a number for a node that is to join.
    ClusterAdd {
        /// Peer address of the node.
        peer: &'a str,
    },
    /// 8: the node that may join.
    ClusterAdded {
        /// Its number.
        node: u64,
    },
    /// 8: the leader removes a node from the cluster.
    ClusterRemove {
        /// Number of the node.
        node: u64,
    },
    /// 8: the leader hands the lead over.
    ClusterTransfer {
        /// Number of the node that is to lead.
        node: u64,
    },
    /// 8: the change is committed.
    ClusterChanged,
    /// 8.
    Synced,
    /// 8.
    Ping,
    /// 8.
    Pong,
    /// 9.
    Window {
        /// Nonces.
        window: u64,
        /// Bytes.
        window_bytes: u64,
    },
    /// 10.
    Refusal(RefusalMessage<'a>),
    /// 11: the client leaves.
    Bye,
    /// 11: the server is about to.
    Drain {
        /// Milliseconds.
        within_ms: u64,
    },
    /// 11: nothing follows.
    ByeBye,
    /// A method that is not known here.
    Unknown {
        /// The method.
        method: &'a [u8],
    },
}

impl Message<'_> {
    /// The feature that the receiver must know; nothing where version 1 is
    /// enough.
    #[must_use]
    pub fn feature(&self) -> &'static [u8] {
        match self {
            Message::Applied => crate::QUERY,
            Message::Listen(listen) if listen.query != ListenQuery::default() => {
                match listen.after {
                    After::Latest => crate::QUERY_LATEST,
                    _ => crate::QUERY,
                }
            }
            _ => b"",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Hello, Message, Packet};

    #[test]
    fn a_hello_prints_no_token() {
        let hello = Hello {
            token: b"weir_secret",
            agent: b"somebody",
            ..Hello::default()
        };
        let printed = format!("{:?}", Packet::new(Message::Hello(hello)));
        // Bytes are printed as numbers, or as text.
        assert!(!printed.contains("119, 101, 105, 114") && !printed.contains("secret"));
        assert!(printed.contains("token: .."), "{printed}");
    }
}
