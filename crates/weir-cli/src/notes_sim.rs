//! `weir notes-sim`: a server of notes, used to measure HTTP clients.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use weir::ErrorCode;
use weir_jira::notes::{NOTES_PORT, NotesOptions, NotesServer};

use crate::caller::Caller;
use crate::jira_sim::identity;
use crate::report::{Failure, note};

#[derive(Debug, Args)]
#[command(after_long_help = "\
The server listens on 127.0.0.1 only, keeps its notes in memory, and writes no log. `GET /notes` lists
the notes, `POST /notes` adds a note, `GET /notes/ID` reads and `PUT /notes/ID` replaces a note. A
second, slow listener on the next port delays its responses like a remote server. Ctrl-C ends both.

Examples:
  weir notes-sim --port 0 --check
  weir notes-sim --port 0 --think 300 --connect-latency 100 --check")]
pub(crate) struct NotesSimArgs {
    /// Port on 127.0.0.1; the slow listener uses the next one; 0: free ports
    #[arg(long, default_value_t = NOTES_PORT)]
    port: u16,
    /// Number of notes at the start
    #[arg(long, default_value_t = 3)]
    notes: usize,
    /// Delay of the slow listener, once per connection, in milliseconds
    #[arg(long, default_value_t = 100, value_name = "MS")]
    connect_latency: u64,
    /// Delay of the slow listener before each response, in milliseconds
    #[arg(long, default_value_t = 300, value_name = "MS")]
    think: u64,
    /// Close each connection after one response
    #[arg(long)]
    no_keep_alive: bool,
    /// Answer over TLS, with a new certificate for 127.0.0.1 and localhost, which is written to FILE
    #[arg(long, value_name = "FILE")]
    tls: Option<PathBuf>,
    /// Listen, then end at once
    #[arg(long)]
    check: bool,
}

/// Runs `weir notes-sim`.
pub(crate) fn run(caller: &Caller, args: &NotesSimArgs) -> anyhow::Result<ExitCode> {
    let options = NotesOptions {
        port: args.port,
        notes: args.notes,
        connect_latency: Duration::from_millis(args.connect_latency),
        think: Duration::from_millis(args.think),
        keep_alive: !args.no_keep_alive,
        tls: args.tls.as_deref().map(identity).transpose()?,
    };
    let server = NotesServer::start(&options).map_err(|error| {
        let ports = format!("cannot listen at port {} and the next one", args.port);
        Failure::new(ErrorCode::AddressTaken, ports)
            .because(error)
            .advise("choose another port: `--port 0` selects two free ports")
    })?;
    let (url, slow) = (server.url(), server.slow_url());
    note(caller.quiet, &format!("notes at {url}, delayed at {slow}"));
    if !args.check {
        server.wait();
    }
    Ok(ExitCode::SUCCESS)
}
