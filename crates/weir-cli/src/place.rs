//! Opening the store that a command works on: in a directory, or behind a
//! server. A directory that another process serves is worked on through it.
//!
//! What must never happen here: a new store where somebody wanted to read, or
//! a weaker durability than asked for without a word.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir::{
    ConnectOptions, Durability, ErrorCode, OnProgress, OpenOptions, Store, StoreError, Weir,
    WeirError,
};

use crate::cli::Caller;
use crate::report::{Failure, note};

/// What the lock file calls this program.
pub(crate) const PROGRAM: &str = "weir";
/// The same for one that follows, opens often and waits for nobody.
pub(crate) const FOLLOWER: &str = "weir tail -f";
/// How often a held lock is tried again.
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Time after which an open prints how far it is.
const PROGRESS_AFTER: Duration = Duration::from_millis(300);
/// Time between two such lines.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Least time for a first connection.
const CONNECT_MIN: Duration = Duration::from_millis(100);
/// Time without an answer of the server of a directory before a follower looks
/// at the directory itself again.
const FOLLOWER_PATIENCE: Duration = Duration::from_secs(3);

/// What the command will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read only: the store must be there.
    Read,
    /// Write: the store is made if it is not there.
    Write,
}

/// Where a command works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where<'a> {
    /// On the files.
    Directory(&'a str),
    /// On a server: an address that `Weir::connect` takes.
    Server(&'a str),
}

/// Opens the store of the call, or connects to it.
pub(crate) fn open(caller: &Caller, access: Access) -> anyhow::Result<Weir> {
    open_as(caller, access, PROGRAM, caller.lock_wait)
}

/// The same under a name of its own and with a wait while somebody else has it.
pub(crate) fn open_as(
    caller: &Caller,
    access: Access,
    program: &str,
    wait: Duration,
) -> anyhow::Result<Weir> {
    let weir = match place(caller)? {
        Where::Server(url) => connect(caller, url)?,
        Where::Directory(at) => {
            open_at(caller, Path::new(at), access, program, wait, true, |_| {})?
        }
    };
    if let Some(store) = weir.local() {
        said(caller, access, store);
    } else if caller.settings.durability.origin != "default" {
        let text = "the durability is the server's; what was asked for holds for directories only";
        note(caller.quiet, text);
    }
    Ok(weir)
}

/// Opens the store of the call in this process, which `verb` needs; `instead`
/// says what to do where it is not possible.
pub(crate) fn open_files(
    caller: &Caller,
    access: Access,
    verb: &str,
    instead: &str,
) -> anyhow::Result<Weir> {
    let at = directory(caller, verb, instead)?;
    let at = Path::new(at);
    let weir = open_at(caller, at, access, PROGRAM, caller.lock_wait, false, |_| {})?;
    if let Some(store) = weir.local() {
        said(caller, access, store);
    }
    Ok(weir)
}

/// Says what opening the store meant.
pub(crate) fn said(caller: &Caller, access: Access, store: &Store) {
    let (at, report) = (&caller.settings.at, store.report());
    if report.created {
        note(caller.quiet, &format!("made a new store in {}", at.value));
    }
    if caller.verbose {
        let text = format!(
            "opened {} ({}): {} log entries applied again, {} files derived again",
            at.value,
            at.origin,
            report.replayed_entries,
            report.set_aside.len(),
        );
        note(false, &text);
    }
    if access == Access::Write {
        warn(caller);
    }
}

/// Connects to the server at this address.
fn connect(caller: &Caller, url: &str) -> anyhow::Result<Weir> {
    let options = connect_options(caller)?;
    if options.token.is_some() && can_be_read(url) {
        let text = format!("{url} has no TLS: the token can be read on the way; weirs:// has");
        note(caller.quiet, &text);
    }
    let weir = Weir::connect_with(url, &options).map_err(|error| cannot_connect(url, &error))?;
    if caller.verbose {
        let origin = &caller.settings.at.origin;
        let level = weir.durability().map_or("?", |level| level.name());
        note(
            false,
            &format!("connected to {url} ({origin}), durability {level}"),
        );
    }
    Ok(weir)
}

fn cannot_connect(url: &str, error: &WeirError) -> Failure {
    let failure = Failure::weir(format!("cannot work at {url}"), error);
    match failure.code {
        ErrorCode::Unreachable if error.to_string().contains("certificate") => {
            failure.advise("name the authority that the server has: `--server-ca FILE`")
        }
        ErrorCode::Unauthenticated => failure
            .advise("give a token that holds: `--token-file FILE`, WEIR_TOKEN, or in a context"),
        _ => failure,
    }
}

/// How to connect, as the call says.
pub(crate) fn connect_options(caller: &Caller) -> anyhow::Result<ConnectOptions> {
    let credentials = &caller.settings.credentials;
    let mut options = ConnectOptions::default();
    options.token = credentials.token()?;
    options.authority.clone_from(&credentials.server_ca);
    options.identity = credentials.identity()?;
    options.connect_timeout = caller.lock_wait.max(CONNECT_MIN);
    Ok(options)
}

/// Whether others could see what is sent to an address.
fn can_be_read(url: &str) -> bool {
    let Some(host) = url.strip_prefix("weir://") else {
        return false;
    };
    let host = host.strip_suffix('/').unwrap_or(host);
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let address = name.parse::<std::net::IpAddr>();
    name != "localhost" && !address.is_ok_and(|address| address.is_loopback())
}

/// Opens the store in a directory; waits a little when another process has it.
/// With `served`, a process that serves it is asked instead. `tune` changes the
/// options that no flag of this command sets.
#[allow(clippy::fn_params_excessive_bools, reason = "one of them")]
pub(crate) fn open_at(
    caller: &Caller,
    at: &Path,
    access: Access,
    program: &str,
    wait: Duration,
    served: bool,
    tune: impl FnOnce(&mut OpenOptions),
) -> anyhow::Result<Weir> {
    let mut options = OpenOptions {
        create: access == Access::Write,
        durability: caller.settings.durability.value,
        limits: caller.limits,
        program: program.to_owned(),
        ..OpenOptions::default()
    };
    if !caller.quiet {
        options.on_progress = Some(progress(at));
    }
    tune(&mut options);
    if access == Access::Read && !is_store(at) {
        let missing = StoreError::Missing { what: "store" };
        return Err(cannot_open(caller, at, &missing));
    }
    let deadline = Instant::now() + wait;
    loop {
        match Weir::open_with(at, &options) {
            Ok(weir) => return Ok(weir),
            Err(WeirError::Store(ref locked @ StoreError::Locked { pid, .. })) => {
                if served && let Some(weir) = through(caller, at, program, (locked, pid))? {
                    return Ok(weir);
                }
                if Instant::now() >= deadline {
                    return Err(cannot_open(caller, at, locked));
                }
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(WeirError::Store(ref error)) => return Err(cannot_open(caller, at, error)),
            Err(error) => {
                let what = format!("cannot open the store in {}", at.display());
                return Err(Failure::weir(what, &error).into());
            }
        }
    }
}

/// Prints how far an open is that takes long.
fn progress(at: &Path) -> OnProgress {
    let at = at.display().to_string();
    let next: Mutex<Option<Instant>> = Mutex::new(None);
    OnProgress::new(move |progress| {
        let now = Instant::now();
        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
        let due = *next.get_or_insert(now + PROGRESS_AFTER);
        if now >= due {
            *next = Some(now + PROGRESS_EVERY);
            let percent = progress.percent();
            note(
                false,
                &format!("opening {at}: {percent} % of the log is replayed"),
            );
        }
    })
}

/// The server that has the directory open, if there is one.
fn through(
    caller: &Caller,
    at: &Path,
    program: &str,
    (locked, pid): (&StoreError, u32),
) -> anyhow::Result<Option<Weir>> {
    let mut options = connect_options(caller)?;
    // Whoever may read the files needs no token.
    options.token = None;
    if program == FOLLOWER {
        options.patience = FOLLOWER_PATIENCE;
    }
    let Some(Ok(weir)) = Weir::served(locked, &options) else {
        return Ok(None);
    };
    let at = at.display();
    note(
        caller.quiet,
        &format!("process {pid} serves {at}: working through its socket"),
    );
    Ok(Some(weir))
}

/// Whether there is a store, or what is left of one. An open would leave a
/// lock file in any directory.
pub(crate) fn is_store(at: &Path) -> bool {
    let there = |name: &str| at.join(name).try_exists();
    // What cannot be looked at is the open's to complain about.
    there("weir.id").unwrap_or(true) || there("log").unwrap_or(true)
}

fn cannot_open(caller: &Caller, at: &Path, error: &StoreError) -> anyhow::Error {
    let what = format!("cannot open the store in {}", at.display());
    let failure = Failure::store(what, error);
    if caller.tool { failure.tool() } else { failure }.into()
}

/// The place of the call.
pub(crate) fn place(caller: &Caller) -> anyhow::Result<Where<'_>> {
    let at = caller.settings.at.value.as_str();
    let scheme = match at.split_once("://") {
        _ if at.starts_with("unix:") => return Ok(Where::Server(at)),
        None => return Ok(Where::Directory(at)),
        Some(("weir" | "weirs", _)) => return Ok(Where::Server(at)),
        Some((scheme, _)) => scheme,
    };
    let failure = Failure::new(ErrorCode::BadAddress, format!("cannot work at {at}"));
    Err(match scheme {
        "http" | "https" => failure
            .because("commands speak the native protocol of a server, not HTTP")
            .advise("give its native port: `--at weir://HOST:7071`, with TLS weirs://"),
        _ => failure
            .because(format!("{scheme} is no kind of address that is known"))
            .advise("give a directory, weir://HOST:PORT, weirs://HOST:PORT or unix:PATH"),
    }
    .into())
}

/// The directory of the call, whose files `verb` needs; `instead` says what to
/// do at a server.
pub(crate) fn directory<'a>(
    caller: &'a Caller,
    verb: &str,
    instead: &str,
) -> anyhow::Result<&'a str> {
    match place(caller)? {
        Where::Directory(at) => Ok(at),
        Where::Server(url) => {
            let what = format!("{verb} cannot work at {url}");
            let why = "it needs the files of the store, and this is a server";
            let failure = Failure::new(ErrorCode::BadAddress, what);
            Err(failure.because(why).advise(instead).into())
        }
    }
}

fn warn(caller: &Caller) {
    let text = match caller.settings.durability.value {
        Durability::Interval(time) => format!(
            "durability interval: a power cut can lose the last {} ms",
            time.as_millis()
        ),
        Durability::Memory => {
            "durability memory: a power cut can lose everything of this run".to_owned()
        }
        _ => return,
    };
    note(caller.quiet, &text);
}

#[cfg(test)]
mod tests {
    use super::can_be_read;

    #[test]
    fn what_goes_to_this_machine_or_over_tls_cannot_be_read() {
        for url in [
            "weirs://a.example",
            "unix:/run/weir.sock",
            "weir://localhost",
            "weir://localhost:7071/",
            "weir://127.0.0.9:1",
            "weir://[::1]:7071",
            "weir://[::1]",
        ] {
            assert!(!can_be_read(url), "{url}");
        }
        // Names that only begin like those of this machine.
        for url in [
            "weir://a.example",
            "weir://10.0.0.1:7071",
            "weir://[2001:db8::1]:7071",
            "weir://localhost.example",
            "weir://127.example:7071",
        ] {
            assert!(can_be_read(url), "{url}");
        }
    }
}
