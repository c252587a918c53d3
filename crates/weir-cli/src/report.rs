//! Prints errors: what failed, why, and what to try, in at most three lines, with the code that
//! `weir help CODE` explains.
//!
//! Invariants:
//! - Error numbers come from the error table.
//! - Exit codes come from the error table.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir::{ErrorCode, IntentionError, StoreError, WeirError};
use weir_server::logs::{self, BufferedLines};

use crate::bytes::{escape_controls_in_json, json_string};

/// Whether errors are printed as JSON: `-o json` and `-o jsonl`.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// If `json`, each later error is printed as one line with a JSON object: `error` (its name),
/// `code`, `what`, `why`, `try`.
pub(crate) fn as_json(json: bool) {
    AS_JSON.store(json, Ordering::Relaxed);
}

/// Exit code of a usage error, equal to that of the argument parser.
pub(crate) const USAGE: u8 = 2;

/// A usage error of a command.
pub(crate) fn usage(why: &str) -> anyhow::Error {
    let error = clap::Error::raw(
        clap::error::ErrorKind::MissingRequiredArgument,
        format!("{why}\n"),
    );
    anyhow::Error::new(error)
}

/// An error with its code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The code.
    pub(crate) code: ErrorCode,
    /// What failed.
    what: String,
    /// Why; `None`: the sentence of the code.
    why: Option<String>,
    /// What to try; `None`: the advice of the code.
    advice: Option<String>,
    /// Whether the exit codes of the store tools apply.
    tool: bool,
}

/// The advice for a node whose directory cannot be used.
pub(crate) const LOST_NODE: &str = "replace the node: `weir cluster rm N --yes` at another node, \
     then join with an empty directory, without `--node`; if no majority of the nodes can run \
     again, follow \"A lost majority\" in `weir help guide cluster`";

/// The advice after a wait for a leader. A command waits much longer than an election takes.
const NO_LEADER: &str = "run `weir cluster status`: it shows the nodes that do not answer; \
     a leader needs a majority of the nodes";

/// The advice for a topic option above the limit of the operator.
const FUEL_LIMIT: &str = "set fuel-max to at most the limit that is named; only a server accepts \
     more, with a higher `program_fuel_max`";

/// The exit code that shells report for SIGPIPE.
const UNREAD: u8 = 141;

/// The reader has closed standard output.
#[derive(Debug)]
pub(crate) struct StdoutClosed;

impl Failure {
    /// Creates an error with the reason and advice of the error table.
    pub(crate) fn new(code: ErrorCode, what: impl Into<String>) -> Self {
        Self {
            code,
            what: what.into(),
            why: None,
            advice: None,
            tool: false,
        }
    }

    /// Sets the reason.
    pub(crate) fn because(mut self, why: impl fmt::Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    /// Sets the advice.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Selects the exit codes of the store tools.
    pub(crate) fn tool(mut self) -> Self {
        self.tool = true;
        self
    }

    /// Converts an error of a store.
    pub(crate) fn store(what: impl Into<String>, error: &StoreError) -> Self {
        let failure = Self::new(store_code(error), what).because(error);
        match error {
            StoreError::Locked {
                directory,
                pid,
                program,
                started_unix_s,
                ..
            } => {
                // The advice must not be `kill 0`, which ends the processes of the caller.
                if *pid == 0 {
                    return failure
                        .because(format!(
                            "another process has {directory} open, and its id is not known"
                        ))
                        .advise(format!(
                            "wait for it (`--lock-wait 60s`); `fuser {directory}/LOCK` prints its id"
                        ));
                }
                let program = if program.is_empty() {
                    "a program"
                } else {
                    program
                };
                let since = i64::try_from(*started_unix_s).unwrap_or(0);
                let since = jiff::Timestamp::from_second(since).unwrap_or_default();
                failure
                    .because(format!(
                        "process {pid} ({program}) has {directory} open since {since}"
                    ))
                    .advise(format!(
                        "wait for it (`--lock-wait 60s`), or end it with `kill {pid}`; \
                         nothing acknowledged is lost"
                    ))
            }
            StoreError::CompactionOff { name } => failure.advise(format!(
                "turn it on: `weir topic set {name} compaction=latest`"
            )),
            StoreError::VoteLost { .. } => failure.advise(LOST_NODE),
            StoreError::Remote {
                code: ErrorCode::NoLeader,
                ..
            } => failure.advise(NO_LEADER),
            StoreError::Missing { what: "store" } => {
                failure.advise("check the path given to `--at`; `weir put` creates a new store")
            }
            // Of this store, or of a server.
            _ if failure.code == ErrorCode::TooLarge && failure.reason().contains("fuel_max") => {
                failure.advise(FUEL_LIMIT)
            }
            _ => failure,
        }
    }

    /// Converts an error of the library `weir`.
    pub(crate) fn weir(what: impl Into<String>, error: &WeirError) -> Self {
        match error {
            WeirError::Store(error) => Self::store(what, error),
            // Their text is the sentence of the code.
            WeirError::NotCreated { code } | WeirError::Group { code } => Self::new(*code, what),
            other => Self::new(other.code(), what).because(other),
        }
    }

    /// Why it failed: one sentence or more.
    pub(crate) fn reason(&self) -> &str {
        self.why.as_deref().unwrap_or(self.code.sentence())
    }

    fn advice(&self) -> &str {
        self.advice.as_deref().unwrap_or(self.code.advice())
    }

    fn json(&self) -> String {
        json(
            self.code.name(),
            Some(self.code),
            [&self.what, self.reason(), self.advice()],
        )
    }

    fn exit(&self) -> u8 {
        if self.tool {
            self.code.exit_code_store()
        } else {
            self.code.exit_code()
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (why, advice) = (self.reason(), self.advice());
        writeln!(f, "{} (E{})", one_line(&self.what), self.code.number())?;
        writeln!(f, "  why: {}", one_line(why))?;
        write!(f, "  try: {}", one_line(advice))
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for StdoutClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output is closed")
    }
}

impl std::error::Error for StdoutClosed {}

/// Selects the exit codes of the store tools for this error.
pub(crate) fn tool(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(failure) => failure.tool().into(),
        Err(error) => error,
    }
}

/// Converts the error of a write that was sent.
pub(crate) trait OutcomeContext<T> {
    /// Adds what failed. `again` is the advice if the outcome of the write is unknown.
    fn answered(self, what: impl FnOnce() -> String, again: &str) -> anyhow::Result<T>;
}

impl<T, E: Into<WeirError>> OutcomeContext<T> for Result<T, E> {
    fn answered(self, what: impl FnOnce() -> String, again: &str) -> anyhow::Result<T> {
        let error = match self {
            Ok(value) => return Ok(value),
            Err(error) => error.into(),
        };
        Err(match &error {
            // The write may be in the log.
            WeirError::Store(
                store @ (StoreError::Io { .. }
                | StoreError::InDoubt { .. }
                | StoreError::PartlyLogged { .. }
                | StoreError::Panicked { .. }
                | StoreError::Remote {
                    code: ErrorCode::Indeterminate,
                    ..
                }),
            ) => {
                let what = format!("{}: its outcome is not known", what());
                Failure::new(ErrorCode::Indeterminate, what)
                    .because(store)
                    .advise(again)
            }
            _ => Failure::weir(what(), &error),
        }
        .into())
    }
}

/// Converts an error of the library or the store.
pub(crate) trait FailureContext<T> {
    /// Adds what failed.
    fn failed(self, what: impl FnOnce() -> String) -> anyhow::Result<T>;
}

impl<T> FailureContext<T> for Result<T, WeirError> {
    fn failed(self, what: impl FnOnce() -> String) -> anyhow::Result<T> {
        self.map_err(|error| Failure::weir(what(), &error).into())
    }
}

impl<T> FailureContext<T> for Result<T, StoreError> {
    fn failed(self, what: impl FnOnce() -> String) -> anyhow::Result<T> {
        self.map_err(|error| Failure::store(what(), &error).into())
    }
}

impl<T> FailureContext<T> for io::Result<T> {
    fn failed(self, what: impl FnOnce() -> String) -> anyhow::Result<T> {
        self.map_err(|error| Failure::new(io_code(&error), what()).because(error).into())
    }
}

/// Converts the result of a write to standard output. A closed output becomes [`StdoutClosed`].
pub(crate) fn stdout<T>(result: io::Result<T>) -> anyhow::Result<T> {
    result.map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return StdoutClosed.into();
        }
        let code = io_code(&error);
        let failure = Failure::new(code, "cannot write to standard output").because(error);
        match code {
            ErrorCode::DiskFull => failure.advise(
                "free space on the file system of standard output, or redirect it to another one",
            ),
            _ => failure,
        }
        .into()
    })
}

/// Whether the error is that the reader has closed standard output.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    error.is::<StdoutClosed>()
}

/// The queue for lines to standard error while a server runs. The threads of the server must not
/// block if the lines are not read.
static BUFFERED: OnceLock<BufferedLines> = OnceLock::new();

/// Maximum wait at the end of the command until the lines are written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts a thread that writes all later lines to standard error. Returns the queue of that thread.
pub(crate) fn buffer_lines() -> io::Result<BufferedLines> {
    let lines = BufferedLines::start(io::stderr(), logs::gap)?;
    Ok(BUFFERED.get_or_init(|| lines).clone())
}

/// Blocks until the thread has written its lines, at most a second.
pub(crate) fn flush() {
    if let Some(lines) = BUFFERED.get() {
        lines.flush(FLUSH_TIMEOUT);
    }
}

/// Writes a line to standard error. A failure of this write is ignored, because the exit code
/// reports the result too.
fn line(text: &str) {
    match BUFFERED.get() {
        Some(lines) => lines.push(format!("{text}\n").as_bytes()),
        None => drop(writeln!(io::stderr(), "{text}")),
    }
}

/// Prints a line to standard error.
pub(crate) fn print_line(text: &impl fmt::Display) {
    line(&format!("weir: {text}"));
}

/// Prints an error, as text or as JSON.
pub(crate) fn print_failure(failure: &Failure) {
    if AS_JSON.load(Ordering::Relaxed) {
        line(&failure.json());
    } else {
        print_line(failure);
    }
}

fn json(name: &str, code: Option<ErrorCode>, texts: [&str; 3]) -> String {
    let [what, why, advice] = texts.map(json_string);
    let code = code.map_or("null".to_owned(), |code| format!("\"E{}\"", code.number()));
    // The texts may contain a name or a path that another user has chosen.
    escape_controls_in_json(format!(
        "{{\"error\":\"{name}\",\"code\":{code},\"what\":{what},\"why\":{why},\"try\":{advice}}}"
    ))
}

/// Prints a line for people, unless `--quiet`.
pub(crate) fn note(quiet: bool, text: &str) {
    if !quiet {
        print_line(&one_line(text));
    }
}

/// The failure to open a file that the user has named.
pub(crate) fn unopened(what: impl Into<String>, error: &io::Error) -> Failure {
    let failure = Failure::new(io_code(error), what).because(error);
    match error.kind() {
        io::ErrorKind::NotFound => {
            failure.advise("check the path; a relative path begins in the current directory")
        }
        _ => failure,
    }
}

/// A number and its noun, such as `1 file` and `2 files`.
pub(crate) fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// Prints an error, and returns the exit code.
pub(crate) fn print(error: &anyhow::Error) -> ExitCode {
    if error.is::<StdoutClosed>() {
        flush();
        // Ends like `cat` and `grep`, so that a shell with `pipefail` detects it, and an endless
        // reader ends.
        let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE);
        return ExitCode::from(UNREAD);
    }
    if let Some(error) = error.downcast_ref::<clap::Error>() {
        if AS_JSON.load(Ordering::Relaxed) && error.use_stderr() {
            let what = error.to_string();
            let what = what.trim_start_matches("error: ").trim_end();
            let advice = "`weir help COMMAND` explains it";
            drop(writeln!(
                io::stderr(),
                "{}",
                json("USAGE", None, [what, "", advice])
            ));
            return ExitCode::from(USAGE);
        }
        // If standard error is closed too, nothing can be reported.
        let _ = error.print();
        return ExitCode::from(USAGE);
    }
    if let Some(failure) = error.downcast_ref::<Failure>() {
        print_failure(failure);
        return ExitCode::from(failure.exit());
    }
    print_line(&one_line(&format!("{error:#}")));
    ExitCode::FAILURE
}

fn one_line(text: &str) -> String {
    crate::bytes::printable(text.as_bytes())
}

/// The code of an I/O error.
pub(crate) fn io_code(error: &io::Error) -> ErrorCode {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ErrorCode::NotPermitted
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            ErrorCode::DiskFull
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            ErrorCode::TooFewDescriptors
        }
        _ => ErrorCode::Io,
    }
}

/// The code of a store error.
pub(crate) fn store_code(error: &StoreError) -> ErrorCode {
    match error {
        StoreError::Damage { .. }
        | StoreError::ForeignStore { .. }
        | StoreError::VoteLost { .. } => ErrorCode::Damaged,
        StoreError::Apply { .. } => ErrorCode::Diverged,
        StoreError::NewerFormat { .. } | StoreError::UnknownContent { .. } => {
            ErrorCode::FormatNewer
        }
        StoreError::Missing { .. } => ErrorCode::NotAStore,
        StoreError::Locked { .. } => ErrorCode::Locked,
        StoreError::Poisoned { .. } => ErrorCode::IoFatal,
        StoreError::DiskFull { .. } => ErrorCode::DiskFull,
        StoreError::LimitExceeded { .. } => ErrorCode::TooLarge,
        StoreError::IndexOutOfRange { .. } => ErrorCode::BadRequest,
        StoreError::Gone { .. } | StoreError::RecordsGone { .. } => ErrorCode::Gone,
        StoreError::GroupUnknown { .. } => ErrorCode::GroupUnknown,
        StoreError::Refused { error, .. } => refusal_code(error),
        StoreError::TopicUnknown { .. } => ErrorCode::TopicUnknown,
        StoreError::Closed => ErrorCode::Closed,
        StoreError::NotEmpty { .. } => ErrorCode::StoreExists,
        StoreError::CompactionOff { .. } => ErrorCode::BadOption,
        StoreError::Remote { code, .. } => *code,
        StoreError::Io { source, .. } => io_code(source),
        other => other.code(),
    }
}

fn refusal_code(error: &IntentionError) -> ErrorCode {
    match error {
        IntentionError::Name(_) => ErrorCode::BadName,
        IntentionError::TooLarge { .. } | IntentionError::TooMany { .. } => ErrorCode::TooLarge,
        IntentionError::Option(_) => ErrorCode::BadOption,
        _ => ErrorCode::BadRequest,
    }
}

/// The error, if the server may answer a later attempt: it is unreachable, starts or stops, has too
/// much work, or its cluster has no leader.
pub(crate) fn temporary(error: &anyhow::Error) -> Option<&Failure> {
    error.downcast_ref::<Failure>().filter(|failure| {
        matches!(
            failure.code,
            ErrorCode::Unreachable
                | ErrorCode::Deadline
                | ErrorCode::Busy
                | ErrorCode::Rate
                | ErrorCode::NoLeader
                | ErrorCode::Draining
                | ErrorCode::Opening
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir::{ErrorCode, StoreError};

    use super::{Failure, OutcomeContext};

    #[test]
    fn the_advice_without_a_leader_is_the_status_of_the_cluster() {
        let error = StoreError::Remote {
            code: ErrorCode::NoLeader,
            text: "no leader is known".to_owned(),
        };
        let failure = Failure::store("cannot put", &error);
        assert!(failure.advice().contains("`weir cluster status`"));
        assert_eq!(failure.exit(), 5);
    }

    #[test]
    fn only_an_unknown_outcome_is_indeterminate() {
        let code = |error: StoreError| {
            let result = Err::<(), _>(error).answered(|| "cannot put".to_owned(), "look");
            let error = result.err();
            error.and_then(|error| error.downcast_ref::<Failure>().map(|found| found.code))
        };
        let thread = "a thread";
        let panicked = Arc::new(StoreError::Panicked { thread });
        let in_doubt = StoreError::InDoubt {
            cause: Arc::clone(&panicked),
        };
        assert_eq!(code(in_doubt), Some(ErrorCode::Indeterminate));
        let cause = Box::new(StoreError::Closed);
        let partly = StoreError::PartlyLogged { cause };
        assert_eq!(code(partly), Some(ErrorCode::Indeterminate));
        let poisoned = StoreError::Poisoned { cause: panicked };
        assert_eq!(code(poisoned), Some(ErrorCode::IoFatal));
        assert_eq!(ErrorCode::Indeterminate.exit_code(), 6);
        assert_eq!(code(StoreError::Closed), Some(ErrorCode::Closed));
    }
}
