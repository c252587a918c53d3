//! The side of the contender: the trait that the lab drives, and the loop that serves it.
//!
//! A [`Contender`] is one peer with its loaded inputs. [`by_name`] returns the contenders that are
//! built into this program. All others are separate programs that implement [`crate::protocol`].
//!
//! Invariant: the timed part does only work that a program of a user would also need.

pub mod adf;
pub mod canary;
pub mod chat;
pub mod floor;
pub mod json;
pub mod micro;
pub mod program;
pub mod psyc;
pub mod query;
pub mod render;
pub mod served;
pub mod store;
pub mod synthetic;
pub mod wire;
pub mod xml;

use std::io::{self, BufRead, Write};

use self::adf::{Adf, Work};
use self::chat::Chat;
use self::floor::{Bare, Floor};
use self::micro::Micro;
use crate::protocol::{Answer, Fields, Hello, Malformed, Request, Timed};

/// One peer, in process or behind a pipe.
pub trait Contender {
    /// Versions of the libraries that do the work.
    fn versions(&self) -> Fields {
        Fields::new()
    }
    /// Prepares input `input` from its parameters.
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError>;
    /// Executes the work of the input once, untimed, and returns its answer.
    fn check(&mut self, input: usize) -> Result<Answer, ContenderError>;
    /// Executes the work of the input `iterations` times, and returns the time.
    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError>;
}

/// Why a contender could not execute a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContenderError {
    /// An input number that was never loaded.
    #[error("input {0} was not loaded")]
    NotLoaded(usize),
    /// A parameter is missing or not of its type.
    #[error("parameter `{0}` is missing or malformed")]
    Parameter(&'static str),
    /// A file could not be used.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The peer refused its input.
    #[error("the peer refused the input: {0}")]
    Refused(String),
    /// A client wrote a reply with other bytes than expected, or at the wrong time.
    #[error("the reply to packet {0} differs from the expected reply")]
    WrongReply(usize),
    /// The lab sent a line that is not a request.
    #[error(transparent)]
    Protocol(#[from] Malformed),
}

/// A parameter of `load`, parsed.
pub fn parameter<T: std::str::FromStr>(
    fields: &Fields,
    name: &'static str,
) -> Result<T, ContenderError> {
    fields
        .get(name)
        .and_then(|value| value.parse().ok())
        .ok_or(ContenderError::Parameter(name))
}

/// The value of an optional parameter. A value that cannot be parsed is an error.
pub fn optional<T: std::str::FromStr>(
    fields: &Fields,
    name: &'static str,
) -> Result<Option<T>, ContenderError> {
    if fields.contains_key(name) {
        return parameter(fields, name).map(Some);
    }
    Ok(None)
}

/// How this program was built: `optimised`, or the level it was built with.
pub fn profile() -> String {
    match (env!("WEIR_LAB_OPT_LEVEL"), cfg!(debug_assertions)) {
        ("2" | "3", false) => "optimised".to_owned(),
        (level, _) => format!(
            "opt-level {level}, debug assertions {}",
            cfg!(debug_assertions)
        ),
    }
}

/// The built-in contenders, each with a description.
pub const BUILT_IN: [(&str, &str); 58] = [
    ("empty", "an empty loop body: the cost of the harness"),
    (
        "weir-psyc",
        "this project's codec, a fresh parser for each packet",
    ),
    (
        "weir-psyc-stream",
        "this project's codec, one parser for all packets",
    ),
    (
        "psyc-lines",
        "PSYC by a naive scan for lines; the oracle of the PSYC group",
    ),
    ("serde-json", "serde_json into an owned tree"),
    (
        "serde-json-borrowed",
        "serde_json into a tree that borrows its strings",
    ),
    ("quick-xml", "quick-xml events"),
    (
        "weir-psyc-render",
        "this project's codec: each packet parsed and written again",
    ),
    (
        "serde-json-render",
        "serde_json: each packet into a tree and written again",
    ),
    (
        "quick-xml-render",
        "quick-xml: the events of each packet written again",
    ),
    (
        "chat-floor",
        "a chat client whose packets were decoded before, and which writes nothing",
    ),
    ("chat-psyc", "a chat client with this project's codec"),
    (
        "chat-psyc-compact",
        "a chat client with this project's codec and compact names",
    ),
    (
        "chat-psyc-lines",
        "a chat client with a naive scan for lines of PSYC",
    ),
    ("chat-quick-xml", "a chat client with quick-xml events"),
    (
        "chat-serde-json",
        "a chat client with serde_json into an owned tree",
    ),
    (
        "chat-serde-json-typed",
        "a chat client with serde_json into a struct",
    ),
    ("micro-codec", "this project's codec: one operation"),
    (
        "micro-codec-copy",
        "a copy of the bytes of an operation of the codec",
    ),
    (
        "micro-machine-apply",
        "this project's state machine: batches of puts",
    ),
    (
        "micro-machine-decode",
        "the batches of the state machine, read item by item",
    ),
    (
        "micro-machine-encode",
        "the batches of the state machine, encoded",
    ),
    (
        "micro-machine-copy",
        "the batches of the state machine, copied",
    ),
    (
        "micro-machine-map",
        "the keys of the state machine in a hash table",
    ),
    ("micro-store", "this project's store: one operation"),
    (
        "micro-store-floor",
        "one operation on a file or a hash table with equal records",
    ),
    (
        "micro-merge",
        "this project's query engine: an ordered merge",
    ),
    (
        "micro-merge-heap",
        "a merge of parsed keys by a binary heap",
    ),
    ("micro-merge-copy", "a copy of the pages of a merge"),
    (
        "canary",
        "an integer loop and a copy of 32 MiB: the speed of the machine",
    ),
    ("floor-copy", "copy and CRC-32C of the messages of a load"),
    (
        "floor-write",
        "the same bytes written to a file, never synced",
    ),
    (
        "floor-sync",
        "one write and fdatasync for each message, into a file that was filled before",
    ),
    (
        "floor-cluster",
        "batches written to three files and synced, two of them over a connection",
    ),
    (
        "weir-put",
        "this project's store: puts, until all are answered",
    ),
    (
        "weir-listen",
        "this project's store: a topic read from its first record",
    ),
    ("weir-open", "this project's store: opening after a kill"),
    ("weir-keys", "this project's store: memory of keys"),
    (
        "weir-program",
        "this project's store: puts into a topic with a program",
    ),
    (
        "weir-deploy",
        "this project's store: creating topics with programs",
    ),
    (
        "weir-hostile",
        "this project's store: hostile modules at the default fuel",
    ),
    (
        "weir-serve",
        "this project's server: puts over its native port",
    ),
    (
        "weir-failover",
        "this project's cluster: the time without writes when its leader changes",
    ),
    (
        "weir-catch-up",
        "this project's cluster: a node that joins while a client writes",
    ),
    (
        "weir-readers",
        "this project's server: puts beside many readers of pages",
    ),
    (
        "weir-tail",
        "this project's server: many listeners over server-sent events",
    ),
    ("weir-idle", "this project's server: many idle connections"),
    (
        "weir-query",
        "this project's command: a query of a file of JSON values",
    ),
    ("decompress", "a compressed file, decompressed and dropped"),
    (
        "find-first",
        "this project's scanner: the first member of a large object",
    ),
    (
        "weir-adf",
        "this project's rich text: a document to org text and back",
    ),
    (
        "weir-adf-show",
        "this project's rich text: a document to org text",
    ),
    (
        "json-tree",
        "serde_json: a document into an owned tree and written again",
    ),
    (
        "weir-crash",
        "writes the store that `weir-open` opens, and aborts",
    ),
    (
        "shares",
        "uses 30 % and 70 % of its time in two functions; for tests of the lab",
    ),
    (
        "spin",
        "an integer loop of `units` steps; for tests and `noise`",
    ),
    ("synthetic", "reports invented times; for tests of the lab"),
    (
        "wrong",
        "reports invented times and a wrong answer; for tests of the lab",
    ),
];

fn rendering<P: render::Writing + 'static>(parser: P) -> Box<dyn Contender> {
    Box::new(wire::Wire::new(render::Rendering::new(parser)))
}

/// The built-in contender `name`.
pub fn by_name(name: &str) -> Option<Box<dyn Contender>> {
    Some(match name {
        "empty" => Box::new(wire::Wire::new(wire::Empty)),
        "weir-psyc" => Box::new(wire::Wire::new(psyc::Ours)),
        "weir-psyc-stream" => Box::new(wire::Wire::new(psyc::OursStream::new())),
        "psyc-lines" => Box::new(wire::Wire::new(psyc::Lines)),
        "serde-json" => Box::new(wire::Wire::new(json::Owned)),
        "serde-json-borrowed" => Box::new(wire::Wire::new(json::Borrowed)),
        "quick-xml" => Box::new(wire::Wire::new(xml::QuickXml)),
        "weir-psyc-render" => rendering(psyc::Ours),
        "serde-json-render" => rendering(json::Owned),
        "quick-xml-render" => rendering(xml::QuickXml),
        "chat-floor" => Box::new(chat::Floor::default()),
        "chat-psyc" => Box::new(Chat::new(chat::psyc::Psyc::<false>::default())),
        "chat-psyc-compact" => Box::new(Chat::new(chat::psyc::Psyc::<true>::default())),
        "chat-psyc-lines" => Box::new(Chat::new(chat::psyc::Lines)),
        "chat-quick-xml" => Box::new(Chat::new(chat::xml::QuickXml::default())),
        "chat-serde-json" => Box::new(Chat::new(chat::json::Tree)),
        "chat-serde-json-typed" => Box::new(Chat::new(chat::json::Typed)),
        "micro-codec" => Box::new(Micro::new(micro::codec::operation)),
        "micro-codec-copy" => Box::new(Micro::new(micro::codec::copy)),
        "micro-machine-apply" => Box::new(Micro::new(micro::machine::applied)),
        "micro-machine-decode" => Box::new(Micro::new(micro::machine::decoded)),
        "micro-machine-encode" => Box::new(Micro::new(micro::machine::encoded)),
        "micro-machine-copy" => Box::new(Micro::new(micro::machine::copied)),
        "micro-machine-map" => Box::new(Micro::new(micro::machine::mapped)),
        "micro-store" => Box::new(Micro::new(micro::store::stored)),
        "micro-store-floor" => Box::new(Micro::new(micro::store::floor)),
        "micro-merge" => Box::new(Micro::new(micro::merge::merged)),
        "micro-merge-heap" => Box::new(Micro::new(micro::merge::heaped)),
        "micro-merge-copy" => Box::new(Micro::new(micro::merge::copied)),
        "canary" => Box::new(canary::CanaryWork::default()),
        "floor-copy" => Box::new(Bare::new(Floor::Copy)),
        "floor-write" => Box::new(Bare::new(Floor::Write)),
        "floor-sync" => Box::new(Bare::new(Floor::WriteSync)),
        "floor-cluster" => Box::new(Bare::new(Floor::Cluster)),
        "weir-put" => Box::new(store::put::Put::default()),
        "weir-listen" => Box::new(store::listen::Listen::default()),
        "weir-open" => Box::new(store::open::Open::default()),
        "weir-keys" => Box::new(store::keys::Keys::default()),
        "weir-program" => Box::new(program::write::ProgramPut::default()),
        "weir-deploy" => Box::new(program::deploy::Deploy::default()),
        "weir-hostile" => Box::new(program::hostile::Hostile::default()),
        "weir-serve" => Box::new(served::Served::default()),
        "weir-failover" => Box::new(served::failover::Failover::default()),
        "weir-catch-up" => Box::new(served::catch_up::CatchUp::default()),
        "weir-tail" => Box::new(served::tail::Tail::default()),
        "weir-readers" => Box::new(served::readers::Readers::default()),
        "weir-idle" => Box::new(served::idle::Idle::default()),
        "weir-query" => Box::new(query::QueryCommand::default()),
        "decompress" => Box::new(query::Decompress::default()),
        "find-first" => Box::new(query::FindFirst::default()),
        "weir-adf" => Box::new(Adf::new(Work::RoundTrip)),
        "weir-adf-show" => Box::new(Adf::new(Work::Show)),
        "json-tree" => Box::new(Adf::new(Work::Tree)),
        "weir-crash" => Box::new(store::open::Crash::default()),
        "shares" => Box::new(synthetic::KnownShares::default()),
        "spin" => Box::new(synthetic::Spin::default()),
        "synthetic" => Box::new(synthetic::Synthetic::new(0)),
        "wrong" => Box::new(synthetic::Synthetic::new(1)),
        _ => return None,
    })
}

/// Serves `contender` until `quit` or the end of `requests`.
pub fn serve(
    contender: &mut dyn Contender,
    requests: impl BufRead,
    mut answers: impl Write,
) -> io::Result<()> {
    let mut versions = contender.versions();
    versions.insert("rustc".into(), env!("WEIR_LAB_RUSTC").into());
    let hello = Hello {
        profile: profile(),
        versions,
    };
    writeln!(answers, "{}", hello.render())?;
    answers.flush()?;
    for line in requests.lines() {
        let reply = match Request::parse(&line?) {
            Ok(Request::Quit) => return Ok(()),
            Ok(request) => answer(contender, &request),
            Err(error) => Err(error.into()),
        };
        match reply {
            Ok(line) => writeln!(answers, "{line}")?,
            Err(error) => writeln!(answers, "error\t{}", one_line(&error.to_string()))?,
        }
        answers.flush()?;
    }
    Ok(())
}

fn answer(contender: &mut dyn Contender, request: &Request) -> Result<String, ContenderError> {
    Ok(match request {
        Request::Load(input, fields) => {
            contender.load(*input, fields)?;
            "ok".to_owned()
        }
        Request::Check(input) => contender.check(*input)?.render(),
        Request::Run(input, iterations) => contender.run(*input, *iterations)?.render(),
        Request::Quit => String::new(),
    })
}

fn one_line(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}
