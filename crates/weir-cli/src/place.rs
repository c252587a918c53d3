//! Opens the store of a command: in a directory, or at a server. If another process serves the
//! directory, the command uses that server.
//!
//! Invariants:
//! - A read never creates a store.
//! - A durability level lower than the requested one is reported.

use std::fs::TryLockError;
use std::io;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

use weir::{
    ConnectOptions, Durability, ErrorCode, OpenOptions, Store, StoreError, Weir, WeirError,
};

use crate::caller::Caller;
use crate::progress::Progress;
use crate::report::{Failure, FailureContext, counted, note};

/// The name of this program in the lock file.
pub(crate) const PROGRAM: &str = "weir";
/// The name of a follower in the lock file. A follower opens the store often and does not wait for
/// the lock.
pub(crate) const FOLLOWER: &str = "weir --follow";
/// Pause between two attempts to get the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// How long a command that only reads waits for another process to close the store.
const READ_WAIT: Duration = Duration::from_millis(100);

/// The command warns if the clock is before the newest record by more than this time.
const CLOCK_BACK_MS: u64 = 1_000;

/// Minimum time limit for the first connection.
const CONNECT_MIN: Duration = Duration::from_millis(100);
/// Time without a response of the server of a directory. After it, a follower tries to open the
/// directory again.
pub(crate) const FOLLOWER_PATIENCE: Duration = Duration::from_secs(3);

/// How a command uses the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads. The store must exist. It is opened read-only if another process has it open, or if
    /// this process may not write to it.
    Read,
    /// Writes to a store that must exist.
    Change,
    /// Writes. The store is created if it does not exist.
    Write,
}

/// The location of the store of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location<'a> {
    /// In a directory.
    Directory(&'a str),
    /// At a server. The text is an address for `Weir::connect`.
    Server(&'a str),
}

/// Opens the store of the call, or connects to it.
pub(crate) fn open(caller: &Caller, access: Access) -> anyhow::Result<Weir> {
    open_as(caller, access, PROGRAM, caller.lock_wait)
}

/// As `open`, with the name of the program in the lock file, and with the maximum wait for another
/// process that has the store open.
pub(crate) fn open_as(
    caller: &Caller,
    access: Access,
    program: &str,
    wait: Duration,
) -> anyhow::Result<Weir> {
    let weir = match location(caller)? {
        Location::Server(url) => connect(caller, url)?,
        Location::Directory(at) => {
            let (at, progress) = (Path::new(at), Progress::default());
            open_at(caller, at, access, program, wait, true, &progress, |_| {})?
        }
    };
    if let Some(store) = weir.local() {
        print_report(caller, access, store);
    } else if caller.settings.durability.origin != "default" {
        let text =
            "the server determines the durability; the requested level applies to directories only";
        note(caller.quiet, text);
    }
    Ok(weir)
}

/// Opens the store of the call in this process. `verb` is the command, which needs the files;
/// `instead` is the advice if the call names a server.
pub(crate) fn open_files(
    caller: &Caller,
    access: Access,
    verb: &str,
    instead: &str,
) -> anyhow::Result<Weir> {
    let at = directory(caller, verb, instead)?;
    let at = Path::new(at);
    let progress = Progress::default();
    let wait = caller.lock_wait;
    let weir = open_at(caller, at, access, PROGRAM, wait, false, &progress, |_| {})?;
    if let Some(store) = weir.local() {
        print_report(caller, access, store);
    }
    Ok(weir)
}

/// Prints what the user should know about the open: a new store, the durability, and the clock.
pub(crate) fn print_report(caller: &Caller, access: Access, store: &Store) {
    let (at, report) = (&caller.settings.at, store.report());
    if report.created {
        note(
            caller.quiet,
            &format!("created a new store in {}", at.value),
        );
    }
    if caller.verbose {
        let text = format!(
            "opened {} ({}): replayed {}, rebuilt {}",
            at.value,
            at.origin,
            counted(report.replayed_entries, "log entry", "log entries"),
            counted(report.set_aside.len() as u64, "file", "files"),
        );
        note(false, &text);
    }
    if access == Access::Write {
        warn(caller);
    }
    let clock = report.clock;
    if clock.ahead_ms > 0 {
        let text = format!(
            "the clock of this machine is {} min ahead of the time of the store: the store accepts \
             this time after ten minutes, or at once with --believe-clock",
            clock.ahead_ms.div_ceil(60_000)
        );
        note(false, &format!("warning: {text}"));
    }
    if clock.back_ms > CLOCK_BACK_MS {
        let text = format!(
            "the clock of this machine is {} s before the newest record: the time of the store continues from that record",
            clock.back_ms / 1000
        );
        note(false, &format!("warning: {text}"));
    }
}

/// Connects to the server at this address.
fn connect(caller: &Caller, url: &str) -> anyhow::Result<Weir> {
    let options = connect_options(caller)?;
    if options.token.is_some() && can_be_read(url) {
        let text =
            format!("{url} has no TLS, so others on the network can read the token: use weirs://");
        note(caller.quiet, &text);
    }
    let weir = Weir::connect_with(url, &options)
        .map_err(|error| cannot_connect(&with_origin(caller, url), &error))?;
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

/// The place of the call for an error, with its origin unless it is a flag.
fn with_origin(caller: &Caller, at: &str) -> String {
    match caller.settings.at.origin.as_str() {
        "flag" => at.to_owned(),
        origin => format!("{at} (from {origin})"),
    }
}

fn cannot_connect(url: &str, error: &WeirError) -> Failure {
    let failure = Failure::weir(format!("cannot connect to {url}"), error);
    match failure.code {
        ErrorCode::Unreachable if error.to_string().contains("certificate") => {
            failure.advise("name the certificate authority of the server: `--server-ca FILE`")
        }
        ErrorCode::Unauthenticated => {
            failure.advise("give a valid token with `--token-file FILE`, WEIR_TOKEN or a context")
        }
        _ => failure,
    }
}

/// The options for a connection, from the settings of the call.
pub(crate) fn connect_options(caller: &Caller) -> anyhow::Result<ConnectOptions> {
    let credentials = &caller.settings.credentials;
    let mut options = ConnectOptions::default();
    options.token = credentials.token()?;
    options.authority.clone_from(&credentials.server_ca);
    options.identity = credentials.identity()?;
    options.consistency = caller.consistency;
    options.connect_timeout = caller.lock_wait.max(CONNECT_MIN);
    options.on_wait = (!caller.quiet).then_some(print_wait as fn(&str));
    Ok(options)
}

fn print_wait(why: &str) {
    note(false, why);
}

/// Whether others on the network can read the bytes that are sent to an address.
fn can_be_read(url: &str) -> bool {
    host_names(url).any(is_elsewhere)
}

/// The host names in an address without TLS. There are none in other addresses.
fn host_names(url: &str) -> impl Iterator<Item = &str> {
    let hosts = url.strip_prefix("weir://");
    let hosts = hosts.map(|hosts| hosts.strip_suffix('/').unwrap_or(hosts));
    hosts
        .into_iter()
        .flat_map(|hosts| hosts.split(','))
        .map(host_name)
}

/// The name of a host with or without a port.
fn host_name(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    };
    name.trim_start_matches('[').trim_end_matches(']')
}

/// Whether a host is another machine.
fn is_elsewhere(name: &str) -> bool {
    let address = name.parse::<std::net::IpAddr>();
    name != "localhost" && !address.is_ok_and(|address| address.is_loopback())
}

/// Connects to a member of the cluster at `at`, whose address the cluster has returned. A token is
/// not sent to another machine without TLS, unless `at` names that machine without TLS. The error is
/// a sentence for people.
pub(crate) fn connect_member(
    at: &str,
    url: &str,
    options: &ConnectOptions,
) -> Result<Weir, String> {
    if options.token.is_some() && !may_get_token(at, url) {
        return Err(format!("{url} has no TLS, so it does not get the token"));
    }
    Weir::connect_with(url, options).map_err(|error| error.to_string())
}

fn may_get_token(at: &str, url: &str) -> bool {
    let is_named = |name: &str| host_names(at).any(|named| named == name);
    host_names(url).all(|name| !is_elsewhere(name) || is_named(name))
}

/// The options with which a command opens a directory.
pub(crate) fn options(
    caller: &Caller,
    access: Access,
    program: &str,
    progress: &Progress,
) -> OpenOptions {
    let mut options = OpenOptions {
        create: access == Access::Write,
        durability: caller.settings.durability.value,
        limits: caller.limits,
        program: program.to_owned(),
        // The user who starts a command can see the date.
        believe_clock: true,
        ..OpenOptions::default()
    };
    options.on_progress = Some(progress.observer());
    options
}

/// Opens the store in a directory. Waits up to `wait` while another process has it open. With
/// `served`, connects to a process that serves the directory. `tune` changes the options that no
/// flag of this command sets.
#[allow(clippy::too_many_arguments, reason = "few callers use the same values")]
pub(crate) fn open_at(
    caller: &Caller,
    at: &Path,
    access: Access,
    program: &str,
    wait: Duration,
    served: bool,
    progress: &Progress,
    tune: impl FnOnce(&mut OpenOptions),
) -> anyhow::Result<Weir> {
    let mut options = options(caller, access, program, progress);
    tune(&mut options);
    if !is_store(at).failed(|| cannot_open_text(at))? {
        match access {
            Access::Read | Access::Change => {
                let missing = StoreError::Missing { what: "store" };
                return Err(cannot_open(caller, at, &missing));
            }
            Access::Write if !caller.create => check_empty(caller, at)?,
            Access::Write => {}
        }
    }
    let wait = match access {
        Access::Read => wait.min(READ_WAIT),
        Access::Change | Access::Write => wait,
    };
    let deadline = Instant::now() + wait;
    let _shown = progress.show(
        caller.quiet || program == FOLLOWER,
        &at.display().to_string(),
    );
    loop {
        progress.clear_owner();
        match Weir::open_with(at, &options) {
            Ok(weir) => return Ok(weir),
            Err(WeirError::Store(ref locked @ StoreError::Locked { pid, .. })) => {
                if served && let Some(weir) = connect_owner(caller, at, program, (locked, pid))? {
                    return Ok(weir);
                }
                if Instant::now() >= deadline {
                    return match access {
                        Access::Read => {
                            let why = format!("{} has {} open", holder(pid), at.display());
                            read_only(caller, at, options, &why)
                        }
                        _ => Err(cannot_open(caller, at, locked)),
                    };
                }
                progress.set_owner(pid);
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(WeirError::Store(ref error)) if access == Access::Read && may_not_write(error) => {
                let why = format!("{} cannot be written to", at.display());
                return read_only(caller, at, options, &why);
            }
            Err(WeirError::Store(ref error)) => return Err(cannot_open(caller, at, error)),
            Err(error) => {
                return Err(Failure::weir(cannot_open_text(at), &error).into());
            }
        }
    }
}

/// Whether this process may not write to the directory or to its file system, or the disk is full.
fn may_not_write(error: &StoreError) -> bool {
    let forbidden = matches!(error, StoreError::Io { source, .. } if matches!(
        source.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    ));
    forbidden || error.code() == ErrorCode::DiskFull
}

/// Opens the store read-only, and prints the reason.
fn read_only(
    caller: &Caller,
    at: &Path,
    mut options: OpenOptions,
    why: &str,
) -> anyhow::Result<Weir> {
    // A follower opens the store repeatedly.
    static NOTED: Once = Once::new();
    options.read_only = true;
    let weir = match Weir::open_with(at, &options) {
        Err(WeirError::Store(ref error)) => return Err(cannot_open(caller, at, error)),
        opened => opened.failed(|| cannot_open_text(at))?,
    };
    NOTED.call_once(|| {
        let text = format!("{why}: reading its last published state, read-only");
        note(caller.quiet, &text);
    });
    Ok(weir)
}

/// Connects to the server that has the directory open; `None` if no server does.
fn connect_owner(
    caller: &Caller,
    at: &Path,
    program: &str,
    (locked, pid): (&StoreError, u32),
) -> anyhow::Result<Option<Weir>> {
    let mut options = connect_options(caller)?;
    // A process that may read the files needs no token.
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
        &format!("{} serves {at}: working through its socket", holder(pid)),
    );
    Ok(Some(weir))
}

/// The process that has a directory open. `pid` is 0 if it is unknown.
fn holder(pid: u32) -> String {
    match pid {
        0 => "another process".to_owned(),
        pid => format!("process {pid}"),
    }
}

/// Whether the directory contains a store, or a part of one. The check creates no lock file, as an
/// open would.
pub(crate) fn is_store(at: &Path) -> io::Result<bool> {
    let exists = |name: &str| at.join(name).try_exists();
    Ok(exists("weir.id")? || exists("log")?)
}

/// Whether the open store prevents writes of other processes.
pub(crate) fn holds_lock(weir: &Weir) -> bool {
    weir.local().is_some_and(|store| !store.is_read_only())
}

/// Whether another process has the directory open.
pub(crate) fn is_locked(at: &Path) -> bool {
    let lock = std::fs::File::open(at.join("LOCK"));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

/// The process that has the directory open.
pub(crate) fn owner(at: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(at.join("LOCK")).ok()?;
    let pid = text.lines().find_map(|line| line.strip_prefix("pid="))?;
    pid.parse().ok().filter(|_| is_locked(at))
}

/// Files that do not prevent the creation of a store in a directory: those of an interrupted
/// creation, and those of a new file system.
const HARMLESS: [&str; 4] = ["LOCK", "weir.id.new", "weir.sock", "lost+found"];

/// Rejects a directory that has other files, because it is probably the wrong directory.
pub(crate) fn check_empty(caller: &Caller, at: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot create a store in {}", at.display());
    let entries = match at.read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.failed(failed)?,
    };
    for entry in entries {
        let name = entry.failed(failed)?.file_name();
        if HARMLESS.iter().all(|harmless| name != *harmless) {
            let name = name.to_string_lossy();
            let why =
                format!("the directory is not a store and contains other files, such as {name}");
            let failure = Failure::new(ErrorCode::StoreExists, failed())
                .because(why)
                .advise("name an empty or new directory, or give --create to use this one");
            return Err(if caller.tool { failure.tool() } else { failure }.into());
        }
    }
    Ok(())
}

fn cannot_open_text(at: &Path) -> String {
    format!("cannot open the store in {}", at.display())
}

pub(crate) fn cannot_open(caller: &Caller, at: &Path, error: &StoreError) -> anyhow::Error {
    let what = cannot_open_text(at);
    let mut failure = Failure::store(what, error);
    if matches!(error, StoreError::NodeRefused { .. }) {
        let at = at.display();
        failure = failure.advise(format!(
            "serve the directory with `weir serve --at {at}`, and give the address of the node: \
             `--at weir://HOST:PORT`"
        ));
    }
    if caller.tool { failure.tool() } else { failure }.into()
}

/// The location of the store of the call.
pub(crate) fn location(caller: &Caller) -> anyhow::Result<Location<'_>> {
    let at = &caller.settings.at.value;
    parse_as(at, || with_origin(caller, at))
}

/// Whether a text without a scheme is `HOST:PORT`.
fn is_address(at: &str) -> bool {
    let Some((host, port)) = at.rsplit_once(':') else {
        return false;
    };
    !host.contains('/') && port.parse::<u16>().is_ok()
}

/// Parses a directory or the address of a server.
pub(crate) fn parse(at: &str) -> anyhow::Result<Location<'_>> {
    parse_as(at, || at.to_owned())
}

/// As `parse`. `shown` is the place for an error.
fn parse_as(at: &str, shown: impl FnOnce() -> String) -> anyhow::Result<Location<'_>> {
    let scheme = match at.split_once("://") {
        _ if at.starts_with("unix:") => return Ok(Location::Server(at)),
        None if is_address(at) => {
            let host = if at.starts_with(':') { "localhost" } else { "" };
            let what = format!("cannot use the address {}", shown());
            let failure = Failure::new(ErrorCode::BadAddress, what);
            return Err(failure
                .because("the address of a server must begin with a scheme")
                .advise(format!(
                    "for the server, `--at weir://{host}{at}`; for a directory of this name, \
                     `--at ./{at}`"
                ))
                .into());
        }
        None => return Ok(Location::Directory(at)),
        Some(("weir" | "weirs", _)) => return Ok(Location::Server(at)),
        Some((scheme, _)) => scheme,
    };
    let what = format!("cannot use the address {}", shown());
    let failure = Failure::new(ErrorCode::BadAddress, what);
    Err(match scheme {
        "http" | "https" => failure
            .because("commands use the native protocol of a server, not HTTP")
            .advise(
                "give the native port of the server: `--at weir://HOST:7071`, or weirs:// with TLS",
            ),
        _ => failure
            .because(format!("{scheme} is not a known scheme"))
            .advise("give a directory, weir://HOST:PORT, weirs://HOST:PORT or unix:PATH"),
    }
    .into())
}

/// The directory of the call. `verb` is the command, which needs the files; `instead` is the advice
/// if the call names a server.
pub(crate) fn directory<'a>(
    caller: &'a Caller,
    verb: &str,
    instead: &str,
) -> anyhow::Result<&'a str> {
    match location(caller)? {
        Location::Directory(at) => Ok(at),
        Location::Server(url) => {
            let url = with_origin(caller, url);
            let what = format!("{verb} cannot use the server {url}");
            let why = "this command needs the directory of a store, not the address of a server";
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
            "durability memory: a power cut can lose all writes of this run".to_owned()
        }
        _ => return,
    };
    note(caller.quiet, &text);
}

#[cfg(test)]
mod tests {
    use super::{Location, can_be_read, is_address, may_get_token, parse};

    #[test]
    fn an_address_without_a_scheme_is_no_directory() {
        for at in ["127.0.0.1:7071", "localhost:7071", "[::1]:7071", ":7071"] {
            assert!(is_address(at) && parse(at).is_err(), "{at}");
        }
        for at in ["data", "./127.0.0.1:7071", "a:b", "store:99999", "/x/y:1"] {
            assert_eq!(parse(at).ok(), Some(Location::Directory(at)), "{at}");
        }
    }

    #[test]
    fn a_member_gets_the_token_over_tls_or_if_the_user_has_named_it() {
        for (at, url) in [
            ("weirs://a.example", "weirs://b.example:7071"),
            ("weir://a.example:7071,b.example", "weir://b.example:7081"),
            ("weirs://localhost", "weir://127.0.0.1:7081"),
            ("./data", "weir://[::1]:7081"),
        ] {
            assert!(may_get_token(at, url), "{at} {url}");
        }
        for (at, url) in [
            ("weirs://a.example", "weir://a.example:7071"),
            ("weirs://a.example", "weir://b.example:7071"),
            ("weir://a.example", "weir://b.example:7071"),
            ("unix:/run/weir.sock", "weir://10.0.0.1:7071"),
            ("./data", "weir://10.0.0.1:7071"),
        ] {
            assert!(!may_get_token(at, url), "{at} {url}");
        }
    }

    #[test]
    fn bytes_to_this_machine_or_over_tls_cannot_be_read() {
        for url in [
            "weirs://a.example",
            "unix:/run/weir.sock",
            "weir://localhost",
            "weir://localhost:7071/",
            "weir://127.0.0.9:1",
            "weir://[::1]:7071",
            "weir://[::1]",
            "weir://localhost:1,127.0.0.1:2",
        ] {
            assert!(!can_be_read(url), "{url}");
        }
        // Including names that only begin like those of this machine.
        for url in [
            "weir://a.example",
            "weir://10.0.0.1:7071",
            "weir://localhost:1,10.0.0.1:7071",
            "weir://[2001:db8::1]:7071",
            "weir://localhost.example",
            "weir://127.example:7071",
        ] {
            assert!(can_be_read(url), "{url}");
        }
    }
}
