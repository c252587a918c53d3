//! `weir cluster add`, `rm` and `transfer`: changes of the members and the leader.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use weir::{ErrorCode, WeirError};

use crate::caller::Caller;
use crate::confirm::confirm;
use crate::place::{self, Access};
use crate::report::{Failure, note, stdout};

#[derive(Debug, Args)]
#[command(after_long_help = "\
Any node accepts the request; the leader commits the change, for which it needs a majority of the nodes.
The removed node gets no more writes and does not vote; end its process. To replace it, join with an
empty directory. A cluster of 3 from which one node is removed tolerates no failure until another one
has joined. Needs the right `admin`.

Examples:
  weir cluster rm 3 --at weir://127.0.0.1:7071 --yes
  weir cluster rm 3 --at weir://127.0.0.1:7071,127.0.0.1:7081 --yes")]
pub(crate) struct RmArgs {
    /// Number of the node
    node: u64,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Any node accepts the request; the leader commits the change. Prints the number of the node. An empty
directory joins with that number, from the given peer address: `weir cluster join --node N`, or `weir
serve --join HOST:PORT --node N`. The node votes after it has caught up. The cluster does not wait for
the node: a node that never joins is harmless, and `weir cluster rm` removes it. Needs the right `admin`.

Examples:
  weir cluster add 127.0.0.1:7102 --at weir://127.0.0.1:7071
  weir cluster add 127.0.0.1:7112 --at weir://127.0.0.1:7071,127.0.0.1:7081")]
pub(crate) struct AddArgs {
    /// Address at which the node will listen for the other nodes
    #[arg(value_name = "HOST:PORT")]
    peer: String,
}

#[derive(Debug, Args)]
#[command(after_long_help = "\
Returns when the node is the leader. Writes in progress continue there. Useful before the process of the
leader is ended. Needs the right `admin`.

Examples:
  weir cluster transfer 2 --at weir://127.0.0.1:7071
  weir cluster transfer 2 --at weir://127.0.0.1:7071,127.0.0.1:7081")]
pub(crate) struct TransferArgs {
    /// Number of the node that becomes the leader
    node: u64,
}

/// Runs `weir cluster add`.
pub(crate) fn add(caller: &Caller, args: &AddArgs) -> anyhow::Result<ExitCode> {
    let weir = place::open(caller, Access::Change)?;
    let added = weir.add_node(&args.peer);
    let node =
        added.map_err(|error| refused(format!("cannot add a node at {}", args.peer), &error))?;
    stdout(writeln!(std::io::stdout(), "{node}"))?;
    note(
        caller.quiet,
        &format!(
            "an empty directory joins as node {node}: `weir serve --peer {} --node {node} --join \
             HOST:PORT`",
            args.peer
        ),
    );
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir cluster rm`.
pub(crate) fn rm(caller: &Caller, args: &RmArgs) -> anyhow::Result<ExitCode> {
    let node = args.node;
    if !args.yes {
        confirm("node", &node.to_string())?;
    }
    let weir = place::open(caller, Access::Change)?;
    let removed = weir.remove_node(node);
    removed.map_err(|error| refused(format!("cannot remove node {node}"), &error))?;
    note(caller.quiet, &format!("node {node} is no longer a member"));
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir cluster transfer`.
pub(crate) fn transfer(caller: &Caller, args: &TransferArgs) -> anyhow::Result<ExitCode> {
    let node = args.node;
    let weir = place::open(caller, Access::Change)?;
    let transferred = weir.transfer_lead(node);
    let what = || format!("cannot transfer the leadership to node {node}");
    transferred.map_err(|error| refused(what(), &error))?;
    note(caller.quiet, &format!("node {node} is the leader"));
    Ok(ExitCode::SUCCESS)
}

/// The failure of a change of the cluster.
fn refused(what: String, error: &WeirError) -> Failure {
    let failure = Failure::weir(what, error);
    match failure.code {
        ErrorCode::BadOption => failure.advise(
            "`weir cluster status -o wide` shows the members, their addresses and which of them vote",
        ),
        _ => failure,
    }
}
