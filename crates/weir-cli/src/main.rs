//! The `weir` command, for people and scripts.
//!
//! Data goes to standard output, everything else to standard error. A write to a closed standard
//! output ends the program by SIGPIPE. Exit codes are those of the error table (`weir help exit`).
//! The command implements no rule of the store (the rules are in `weir-core`), and uses only the
//! public API of the library.
#![deny(unsafe_code)]

mod allocator;
mod arguments;
mod backup;
mod bench;
mod bytes;
mod caller;
mod cert;
mod cli;
mod cluster;
mod compact;
mod completion;
mod config;
mod confirm;
mod context;
mod context_file;
mod crash;
mod credentials;
mod delete;
mod demo;
mod disk;
mod doctor;
mod export;
mod follower;
mod get;
mod group;
mod help;
mod import;
mod interrupt;
mod item;
mod jira;
mod jira_sim;
mod key;
mod lab;
mod man;
mod notes_sim;
mod output;
mod overview;
mod paint;
mod place;
mod program;
mod progress;
mod psyc;
mod put;
mod query;
mod record;
mod repair;
mod report;
mod restore;
mod row_fields;
mod scratch;
mod serve;
mod settings;
mod stall;
mod status;
mod tail;
mod target;
mod token;
mod topic;
mod topic_options;
mod txn;
mod verdict;
mod verify;
mod version;
mod write;

use std::process::ExitCode;

fn main() -> ExitCode {
    crash::watch();
    // If the handler cannot be installed, only a write beyond the limit on file sizes kills the
    // process; no warning is needed.
    drop(interrupt::ignore_file_size_signal());
    clap_complete::CompleteEnv::with_factory(cli::Cli::build).complete();
    let cli = cli::Cli::read();
    let code = crash::catch(|| cli::run(cli).unwrap_or_else(|error| report::print(&error)));
    report::flush();
    code
}
