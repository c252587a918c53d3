//! `weir cluster`: creates, changes and inspects a cluster.

mod change;
mod init;
mod join;
mod local;
mod reserve_port;
mod snapshot;
mod status;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::caller::Caller;

#[derive(Debug, Args)]
#[command(after_long_help = "\
A cluster is 3, 5 or 7 servers (nodes) with one store. A write is acknowledged after a majority of the
nodes has it on disk. If any minority fails, no acknowledged write is lost. One node is the leader. Clients
may connect to any node, which redirects writes to the leader.

Usually:
  weir cluster local --nodes 3 --data ./trial    a whole cluster on this machine, to try it
  weir cluster status --at weir://127.0.0.1:7071

On several machines:
  weir cluster init --at ./data                  on the first one, with the addresses in weir.toml
  weir serve --at ./data                         there
  weir serve --at ./data --join first:7072       on each of the others")]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start a whole cluster on this machine, for tests
    Local(local::LocalArgs),
    /// Make a store the first node of a new cluster
    Init(init::InitArgs),
    /// Make an empty directory a node of a running cluster
    Join(join::JoinArgs),
    /// Reserve a number for a node that will join, without waiting for the node
    Add(change::AddArgs),
    /// Remove a node; its directory cannot join again under its number
    Rm(change::RmArgs),
    /// Transfer the leadership to another node
    Transfer(change::TransferArgs),
    /// Write a snapshot on every node, so that it can remove older entries of the log
    Snapshot(snapshot::SnapshotArgs),
    /// Show every node: its role, its log position, its digest
    Status(status::StatusArgs),
}

/// Runs `weir cluster`.
pub(crate) fn run(caller: &Caller, args: &ClusterArgs) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Local(args) => local::run(caller, args),
        Verb::Init(args) => init::run(caller, args),
        Verb::Join(args) => join::run(caller, args),
        Verb::Add(args) => change::add(caller, args),
        Verb::Snapshot(args) => snapshot::run(caller, args),
        Verb::Rm(args) => change::rm(caller, args),
        Verb::Transfer(args) => change::transfer(caller, args),
        Verb::Status(args) => status::run(caller, args),
    }
}
