//! `weir serve`: serves the store at its ports until a signal.
//!
//! The sources of settings are flag, environment, file and default, in this
//! order; `weir-server` has their table. The first signal starts an orderly
//! shutdown; the second one ends the process at once.
//!
//! Invariants:
//! - An unknown flag, or an unknown key in the file, is an error.
//! - A successful start prints its addresses.

mod backups;
pub(crate) mod node;

use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag::register_conditional_shutdown;
use weir::{Durability, ErrorCode, SOCKET_FILE, StoreError, Weir, volatile_kind};
use weir_server::cluster::ClusterNode;
use weir_server::{Bound, Key, Server, ServerConfig, ServerError};

use self::backups::Backups;
use crate::bytes::{escape_controls_in_json, json_string, printable};
use crate::caller::Caller;
use crate::place::{self, Access, Location};
use crate::progress::Progress;
use crate::report::{self, Failure, FailureContext, note, stdout};

/// Start of the names of variables that contain settings.
const VARIABLE_PREFIX: &str = "WEIR_SERVE_";
/// How often the command checks whether the server has ended by itself.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How often it checks that during a shutdown.
const SHUTDOWN_CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// How often the service manager is notified during an open.
const NOTIFY_INTERVAL: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "Usually:
  weir serve --at ./data                        HTTP on 127.0.0.1:7070, native on 7071
  weir serve --http 8080 --native off           another port, and HTTP only
  weir serve --peer 7072 --join 127.0.0.1:7172  a node that joins a cluster (weir help cluster)
  curl -i -d '{\"id\":1}' http://127.0.0.1:7070/v1/topics/orders/events

Examples:
  weir serve --print-config
  weir serve --http :0 --access-log --print-config
  WEIR_SERVE_DRAIN=5s weir serve --print-config

Settings: each flag --a-b can also be set as WEIR_SERVE_A_B in the environment, or as a_b in the table
[serve] of the configuration file. The flag overrides the environment, which overrides the file.

Signals:
  SIGTERM, SIGINT  accept no new connection, complete the open requests (up to --drain), and exit;
                   a second signal exits at once
  SIGHUP           reload tokens, certificates and keys
  SIGUSR1          write a backup of the store below --backups
With --lame-duck TIME, /readyz returns 503 for that time after SIGTERM, before the shutdown begins.

`weir help guide serve` introduces the server, `weir help guide operation` describes its operation.";

/// The flags of the command line, by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServeArgs {
    given: Vec<(&'static str, String)>,
    print: bool,
}

/// A key and the origin of its value.
struct Origin {
    key: &'static Key,
    origin: String,
}

fn flag_name(key: &Key) -> String {
    key.name.replace('_', "-")
}

/// Like `flag_name`, but for the lifetime of the process, which clap requires. Called once for each
/// key of the table.
fn long_name(key: &Key) -> &'static str {
    Box::leak(flag_name(key).into_boxed_str())
}

fn is_switch(key: &Key) -> bool {
    matches!(
        (key.get)(&ServerConfig::default()).as_str(),
        "true" | "false"
    )
}

impl Args for ServeArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let command = command.after_long_help(EXAMPLES).arg(
            Arg::new("print-config")
                .long("print-config")
                .action(ArgAction::SetTrue)
                .help("Print all settings with their values and origins, then exit"),
        );
        ServerConfig::KEYS.iter().fold(command, |command, key| {
            let default = (key.get)(&ServerConfig::default());
            let help = if default.is_empty() {
                key.about.to_owned()
            } else {
                format!("{} [default: {default}]", key.about)
            };
            let arg = Arg::new(key.name).long(long_name(key)).help(help);
            let common = matches!(key.name, "http" | "native");
            command.arg(if is_switch(key) {
                arg.num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
                    .value_parser(BoolishValueParser::new())
                    .value_name("BOOL")
                    .hide_short_help(true)
            } else {
                arg.value_name("VALUE").hide_short_help(!common)
            })
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.print = matches.get_flag("print-config");
        for key in ServerConfig::KEYS {
            let text = if is_switch(key) {
                matches.get_one::<bool>(key.name).map(ToString::to_string)
            } else {
                matches.get_one::<String>(key.name).cloned()
            };
            self.given.extend(text.map(|text| (key.name, text)));
        }
        Ok(())
    }
}

/// The configuration for a command that has no flags of `weir serve`.
pub(crate) fn configure_plain(caller: &Caller) -> anyhow::Result<ServerConfig> {
    configure(caller, &ServeArgs::default()).map(|(config, _)| config)
}

/// The configuration, and the origin of each value.
fn configure(caller: &Caller, args: &ServeArgs) -> anyhow::Result<(ServerConfig, Vec<Origin>)> {
    let settings = &caller.settings;
    let known = |name: &String| ServerConfig::KEYS.iter().any(|key| key.name == name);
    if let Some((name, _, at)) = settings.serve.iter().find(|(name, ..)| !known(name)) {
        let what = format!("cannot use the table [serve] of the configuration file, {at}");
        return Err(Failure::new(ErrorCode::BadOption, what)
            .because(format!("there is no key {name}"))
            .advise("`weir serve --print-config` lists the keys")
            .into());
    }
    let mut config = ServerConfig::default();
    config.socket = socket(caller);
    let mut origins = Vec::new();
    for key in ServerConfig::KEYS {
        let variable = format!("{VARIABLE_PREFIX}{}", key.name.to_ascii_uppercase());
        let flag_value = args.given.iter().find(|(name, _)| *name == key.name);
        let flag_value =
            flag_value.map(|(_, text)| (text.clone(), format!("flag --{}", flag_name(key))));
        let file_value = || {
            let (_, text, at) = settings.serve.iter().find(|(name, ..)| name == key.name)?;
            let file = settings.file.as_ref()?.display();
            Some((text.clone(), format!("{file}, {at}")))
        };
        let given = match flag_value {
            Some(value) => Some(value),
            None => crate::settings::variable(key.name, &variable)?.or_else(file_value),
        };
        let origin = match given {
            None => "default".to_owned(),
            Some((text, origin)) => {
                (key.set)(&mut config, &text).map_err(|error| {
                    let what = format!("cannot use {} from {origin}", key.name);
                    Failure::new(ErrorCode::BadOption, what).because(error)
                })?;
                origin
            }
        };
        origins.push(Origin { key, origin });
    }
    warn_of_unknown_variables(caller.quiet);
    Ok((config, origins))
}

/// Prints each variable with the prefix of the settings that sets none. This is no error, because
/// other software may use the prefix: a service `weir-serve` in Kubernetes sets such variables.
fn warn_of_unknown_variables(quiet: bool) {
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter_map(|name| name.into_string().ok()) {
        let Some(key) = name.strip_prefix(VARIABLE_PREFIX) else {
            continue;
        };
        let mut keys = ServerConfig::KEYS.iter();
        if !keys.any(|known| known.name.to_ascii_uppercase() == key) {
            note(
                quiet,
                &format!("warning: {name} is not a setting, so it has no effect"),
            );
        }
    }
}

/// Maximum bytes of the path of a socket, including the temporary name under which it is created.
const SOCKET_NAME_BYTES_MAX: usize = 105;

/// The socket in the directory of the call, through which other processes find the server. `None`
/// if its path would be too long for the system.
fn socket(caller: &Caller) -> Option<PathBuf> {
    let Ok(Location::Directory(at)) = place::location(caller) else {
        return None;
    };
    let path = Path::new(at).join(SOCKET_FILE);
    (path.as_os_str().len() <= SOCKET_NAME_BYTES_MAX).then_some(path)
}

/// Rejects a file system that loses synced data, unless the settings allow it.
fn check_volatile(caller: &Caller, at: &str, config: &ServerConfig) -> anyhow::Result<()> {
    let allowed = config.volatile || caller.settings.durability.value == Durability::Memory;
    match volatile_kind(Path::new(at)) {
        Some(kind) if !allowed => {
            let what = format!("cannot serve {at}: its file system is volatile ({kind})");
            let failure = Failure::new(ErrorCode::Volatile, what).because(format!(
                "data synced to {kind} may not survive a power cut or a restart"
            ));
            let advice =
                "name a directory on a disk, or accept the possible loss with `--volatile`";
            Err(failure.advise(advice).tool().into())
        }
        _ => Ok(()),
    }
}

fn open(
    caller: &Caller,
    at: &str,
    config: &ServerConfig,
    progress: &Progress,
) -> anyhow::Result<Weir> {
    let weir = place::open_at(
        caller,
        Path::new(at),
        Access::Write,
        "weir serve",
        caller.lock_wait,
        false,
        progress,
        |options| config.tune(options),
    )?;
    if let Some(store) = weir.local() {
        place::print_report(caller, Access::Write, store);
    }
    Ok(weir)
}

fn print(config: &ServerConfig, origins: &[Origin]) -> anyhow::Result<()> {
    let mut text = String::from("[serve]\n");
    for Origin { key, origin } in origins {
        // The escapes of JSON are also those of TOML.
        let value = escape_controls_in_json(json_string(&(key.get)(config)));
        let line = format!("{} = {value}", key.name);
        let origin = printable(origin.as_bytes());
        let _ = writeln!(text, "{line:<40} # {origin}: {}", key.about);
    }
    stdout(std::io::stdout().write_all(text.as_bytes()))
}

/// Runs `weir serve`.
pub(crate) fn run(caller: &Caller, args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let (config, origins) = configure(caller, args)?;
    if args.print {
        print(&config, &origins)?;
        return Ok(ExitCode::SUCCESS);
    }
    backups::check(config.backups.as_deref())?;
    weir_server::raise_descriptor_limit().map_err(|error| refusal(&error, &config))?;
    let signals = Signals::watch().failed(|| "cannot install the signal handlers".to_owned())?;
    let at = place::directory(caller, "weir serve", "give a directory: `--at DIR`")?;
    check_volatile(caller, at, &config)?;
    let bound = match bind(&config) {
        Ok(bound) => bound,
        Err(refused) => {
            // The process that has the port probably serves this directory. Then the error of the
            // open names that process.
            if place::is_locked(Path::new(at)) {
                open(caller, at, &config, &Progress::default())?;
            }
            return Err(refused);
        }
    };
    let progress = Progress::default();
    let shown = progress.clone();
    let opening = bound.open(move || shown.percent());
    let opening = opening.map_err(|error| refusal(&error, &config))?;
    let ports = node::Ports {
        http: opening.http_addr(),
        native: opening.native_addr(),
        has_tls: opening.has_tls(),
    };
    let is_node = node::is_node(caller, at, &config, &format!("cannot serve {at}"))?;
    let opened = signals.unless_ended(&progress, || {
        if is_node {
            let node = node::open(caller, at, &config, ports, &progress)?;
            let weir = Weir::with_store(Arc::clone(node.store()));
            Ok((weir, Some(node)))
        } else {
            Ok((open(caller, at, &config, &progress)?, None))
        }
    });
    let (weir, node) = opened?;
    let level = if caller.verbose {
        tracing::Level::DEBUG
    } else {
        tracing::Level::INFO
    };
    // Only this command installs a subscriber, so no other one exists.
    let lines = report::buffer_lines().failed(|| "cannot start the log".to_owned())?;
    drop(weir_server::logs::install(level, lines));
    let lame_duck = config.lame_duck;
    let unable = || {
        let what = "cannot serve the store of another server".to_owned();
        Failure::new(ErrorCode::BadAddress, what)
    };
    let store = weir.shared_store().ok_or_else(unable)?;
    let backups = Backups::new(config.backups.as_deref(), Arc::clone(&store));
    let server = match &node {
        Some(node) => opening.start_node(Arc::clone(node)),
        None => opening.start(store),
    };
    let server = server.map_err(|error| refusal(&error, &config))?;
    announce(caller, &weir, &server, node.as_deref());
    for warning in server.warnings() {
        note(false, &format!("warning: {warning}"));
    }
    notify("READY=1\nSTATUS=serving");
    let end = signals.wait(&server, lame_duck, &backups);
    notify("STOPPING=1");
    if end == End::Cut {
        server.cut();
    }
    let failure = server.store_failure();
    let has_ended = server.node_has_ended();
    let ended = server.wait();
    signals.await_backup(end, backups);
    if let Some(cause) = failure {
        // The failure below reports the result, with its cause.
        drop(weir.close());
        let what = "the server stopped because its store accepts no more writes".to_owned();
        let failure = Failure::store(what, &StoreError::Poisoned { cause });
        return Err(failure.tool().into());
    }
    close(at, weir, node.as_deref())?;
    if has_ended {
        let what = "the server stopped because the consensus of its node stopped".to_owned();
        let failure = Failure::new(ErrorCode::Io, what);
        return Err(failure
            .because("the last error in the log names the cause")
            .advise("do what that line says; if it says nothing, start the server again")
            .tool()
            .into());
    }
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(ServerError::Cut) => {
            note(
                caller.quiet,
                "the server stopped before it answered all requests",
            );
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(refusal(&error, &config)),
    }
}

/// Closes the store, after the consensus of its node.
fn close(at: &str, weir: Weir, node: Option<&ClusterNode>) -> anyhow::Result<()> {
    match node {
        Some(node) => node
            .close()
            .map_err(|error| node::failure(&format!("cannot close the node in {at}"), &error)),
        None => weir.close().map_err(|error| {
            Failure::weir("cannot close the store".to_owned(), &error)
                .tool()
                .into()
        }),
    }
}

/// Checks the settings and binds the ports.
fn bind(config: &ServerConfig) -> anyhow::Result<Bound> {
    Server::bind(config.clone()).map_err(|error| refusal(&error, config))
}

fn refusal(error: &ServerError, config: &ServerConfig) -> anyhow::Error {
    let failure = |code| Failure::new(code, "cannot serve the store".to_owned()).because(error);
    let failure = match error {
        ServerError::Listen { address, source } => port(address, source, config),
        ServerError::Runtime { .. } => failure(ErrorCode::Io),
        ServerError::Panicked => failure(ErrorCode::Internal),
        ServerError::Descriptors { .. } => failure(ErrorCode::TooFewDescriptors),
        _ => failure(ErrorCode::BadOption),
    };
    failure.tool().into()
}

/// The failure to bind an address or the socket, with the flag that changes it.
fn port(address: &str, source: &std::io::Error, config: &ServerConfig) -> Failure {
    let failure = |code| Failure::new(code, format!("cannot listen at {address}"));
    let ports = [("--http", config.http), ("--native", config.native)];
    let flag = ports
        .iter()
        .find(|(_, port)| port.is_some_and(|port| port.to_string() == address));
    let Some((flag, _)) = flag else {
        return failure(ErrorCode::NotPermitted).because(source);
    };
    let other = format!("`{flag} ADDRESS` sets the address, `{flag} :0` selects a free port");
    match source.kind() {
        ErrorKind::AddrInUse => failure(ErrorCode::AddressTaken)
            .because("another process listens there")
            .advise(format!("stop that process, or use another port: {other}")),
        ErrorKind::AddrNotAvailable => failure(ErrorCode::BadOption)
            .because("this machine does not have the address")
            .advise(format!("use an address of this machine: {other}")),
        ErrorKind::PermissionDenied => {
            failure(ErrorCode::NotPermitted)
                .because(source)
                .advise(format!(
                    "ports below 1024 need a system privilege; use another port: {other}"
                ))
        }
        _ => failure(ErrorCode::NotPermitted).because(source),
    }
}

/// Prints the addresses and the durability of the server.
fn announce(caller: &Caller, weir: &weir::Weir, server: &Server, node: Option<&ClusterNode>) {
    if caller.quiet {
        return;
    }
    let Some(store) = weir.local() else { return };
    let durability = store.durability();
    let meaning = if durability.is_synced() {
        "acknowledged means synced to disk"
    } else {
        "acknowledged does NOT mean synced to disk"
    };
    let settings = &caller.settings;
    note(
        false,
        &format!(
            "serving {} (from {})",
            settings.at.value, settings.at.origin
        ),
    );
    if let Some(address) = server.http_addr() {
        let scheme = if server.has_tls() { "https" } else { "http" };
        note(false, &format!("HTTP at {scheme}://{address}"));
    }
    if let Some(address) = server.native_addr() {
        let scheme = if server.has_tls() { "weirs" } else { "weir" };
        note(false, &format!("native at {scheme}://{address}"));
    }
    if let Some(node) = node {
        let (number, peer) = (node.number(), node.peer_addr());
        note(
            false,
            &format!("node {number} of a cluster, peers at {peer}"),
        );
    }
    if let Some(socket) = &server.config().socket {
        note(
            false,
            &format!("local clients at unix:{}", socket.display()),
        );
    }
    if let Some(kind) = store.volatile() {
        let text = format!(
            "warning: volatile file system {kind}: a power cut or restart can destroy the store"
        );
        note(false, &text);
    }
    note(
        false,
        &format!("{meaning} (durability {})", durability.name()),
    );
}

/// How the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Orderly, after its connections.
    Drained,
    /// At once.
    Cut,
}

/// The signals of a server.
struct Signals {
    wake: UnixStream,
    waker: UnixStream,
    terminate: Arc<AtomicBool>,
    interrupt: Arc<AtomicBool>,
    hangup: Arc<AtomicBool>,
    backup: Arc<AtomicBool>,
    /// The beat count of the server at the last watchdog notification.
    beats: Cell<u64>,
}

impl Signals {
    fn watch() -> std::io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_read_timeout(Some(POLL_INTERVAL))?;
        let signals = Self {
            wake,
            waker,
            terminate: Arc::default(),
            interrupt: Arc::default(),
            hangup: Arc::default(),
            backup: Arc::default(),
            beats: Cell::new(0),
        };
        for (signal, flag) in [
            (SIGTERM, &signals.terminate),
            (SIGINT, &signals.interrupt),
            (SIGHUP, &signals.hangup),
            (SIGUSR1, &signals.backup),
        ] {
            signal_hook::flag::register(signal, Arc::clone(flag))?;
            signal_hook::low_level::pipe::register(signal, signals.waker.try_clone()?)?;
        }
        Ok(signals)
    }

    /// Opens the store. A signal ends the process at once: no request was answered yet, and an open
    /// may be aborted at any moment.
    fn unless_ended<T: Send>(
        &self,
        progress: &Progress,
        open: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let mut waker = &self.waker;
        std::thread::scope(|scope| {
            let opener = scope.spawn(move || {
                let opened = open();
                // If the wake fails, the wait ends by its timeout.
                drop(waker.write(&[0]));
                opened
            });
            let mut last_notified = Instant::now();
            while !opener.is_finished() {
                if self.is_requested().is_some() {
                    notify("STOPPING=1");
                    std::process::exit(0);
                }
                if last_notified.elapsed() >= NOTIFY_INTERVAL {
                    last_notified = Instant::now();
                    let percent = progress.percent();
                    notify(&format!(
                        "STATUS=opening the store: {percent} %\nEXTEND_TIMEOUT_USEC=60000000"
                    ));
                }
                self.sleep();
            }
            match opener.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Waits for a signal, or for `POLL_INTERVAL`. Then returns memory to the system and notifies
    /// the watchdog.
    fn pause(&self, server: &Server) {
        self.sleep();
        crate::allocator::release_memory();
        // Only if the server made progress since the last notification.
        let beats = server.heartbeats();
        if self.beats.replace(beats) != beats && server.store_failure().is_none() {
            notify("WATCHDOG=1");
        }
    }

    fn sleep(&self) {
        let mut bytes = [0; 16];
        match (&self.wake).read(&mut bytes) {
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }

    /// Whether a signal has requested the end since the last call. `Some(true)`: with the lame duck
    /// period.
    fn is_requested(&self) -> Option<bool> {
        let interrupt = self.interrupt.swap(false, Ordering::Relaxed);
        let terminate = self.terminate.swap(false, Ordering::Relaxed);
        (interrupt || terminate).then_some(terminate)
    }

    /// Waits for the running backup. Ends the process instead if the server was cut, or at the next
    /// signal: closing the store would wait for the backup too. After this call, a signal ends the
    /// process at once, because closing the store may wait for a snapshot.
    fn await_backup(&self, end: End, backups: Backups) {
        while backups.is_running() {
            if end == End::Cut || self.is_requested().is_some() {
                note(false, "the server stopped before its backup was complete");
                report::flush();
                std::process::exit(1);
            }
            self.sleep();
        }
        backups.end();
        for signal in [SIGTERM, SIGINT] {
            let always = Arc::new(AtomicBool::new(true));
            // If the handler cannot be installed, the signal has no effect.
            drop(register_conditional_shutdown(signal, 1, always));
        }
        // A signal may have arrived before.
        if self.is_requested().is_some() {
            report::flush();
            std::process::exit(1);
        }
    }

    /// Serves until the server has ended.
    fn wait(&self, server: &Server, lame_duck: Duration, backups: &Backups) -> End {
        let with_lame_duck = loop {
            if server.is_ended() {
                return End::Drained;
            }
            if self.hangup.swap(false, Ordering::Relaxed) {
                // The log reports errors in a file.
                drop(server.reload());
            }
            if self.backup.swap(false, Ordering::Relaxed) {
                backups.make();
            }
            if let Some(with_lame_duck) = self.is_requested() {
                break with_lame_duck;
            }
            if server.node_has_ended() {
                break true;
            }
            if server.store_failure().is_some() {
                notify("STATUS=the store accepts no more writes");
                break true;
            }
            self.pause(server);
        };
        server.leave();
        if with_lame_duck && !lame_duck.is_zero() {
            let wait = lame_duck.as_secs_f64();
            note(
                false,
                &format!("reporting not ready, and serving for {wait} s more (--lame-duck)"),
            );
        }
        let until = Instant::now() + lame_duck;
        while with_lame_duck && Instant::now() < until {
            self.pause(server);
            if self.is_requested().is_some() {
                return End::Cut;
            }
        }
        server.drain();
        // If this fails, the end is noticed later.
        drop(self.wake.set_read_timeout(Some(SHUTDOWN_CHECK_INTERVAL)));
        while !server.is_ended() {
            self.pause(server);
            if self.is_requested().is_some() {
                return End::Cut;
            }
        }
        End::Drained
    }
}

/// Notifies the service manager, if there is one. Whether it reads the message does not
/// affect the server.
fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        drop(socket.send_to_addr(state.as_bytes(), &address));
    }
}
