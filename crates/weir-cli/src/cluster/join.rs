//! `weir cluster join`: makes an empty directory a node of a running cluster.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use weir::ErrorCode;

use crate::caller::Caller;
use crate::cluster::init::{configure, serve_command};
use crate::place;
use crate::report::{Failure, note};
use crate::serve::node::{self, Ports};

#[derive(Debug, Args)]
#[command(after_long_help = "\
The cluster assigns a number to the directory. The node does not vote, and lags, until `weir serve` has
copied the log or a snapshot; `weir serve` then needs no --join. `weir serve --join HOST:PORT` does both
in one step. The addresses are those of `weir serve`, from flags, WEIR_SERVE_PEER, WEIR_SERVE_HTTP and so
on, or from the table [serve] of the configuration file.

Examples:
  weir cluster join 127.0.0.1:7072 --at ./data-2 --peer 7082 --native 7081 --http 7080
  weir cluster join 127.0.0.1:7072 --at ./data-3 --peer 7092 --native 7091 --http off --node 9")]
pub(crate) struct JoinArgs {
    /// Peer addresses of nodes of the cluster, separated by commas
    #[arg(value_name = "HOST:PORT")]
    members: String,
    /// Address of the port for the other nodes
    #[arg(long, value_name = "HOST:PORT")]
    peer: Option<String>,
    /// Host name or address at which clients and other nodes reach this node
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// Address of the native port for clients, or `off` [default: 127.0.0.1:7071]
    #[arg(long, value_name = "HOST:PORT")]
    native: Option<String>,
    /// Address of the HTTP port for clients, or `off` [default: 127.0.0.1:7070]
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Number of the node: one that `weir cluster add` has reserved, or one that no node has used
    #[arg(long, value_name = "N")]
    node: Option<String>,
    /// File with the certificate that this node presents to the other nodes
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    peer_cert: Option<String>,
    /// File with the private key of that certificate
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    peer_key: Option<String>,
    /// File with the authority that signed the certificates of all nodes
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    peer_ca: Option<String>,
}

/// Runs `weir cluster join`.
pub(crate) fn run(caller: &Caller, args: &JoinArgs) -> anyhow::Result<ExitCode> {
    let config = configure(
        caller,
        &[
            ("join", &Some(args.members.clone())),
            ("peer", &args.peer),
            ("advertise", &args.advertise),
            ("native", &args.native),
            ("http", &args.http),
            ("node", &args.node),
            ("peer_cert", &args.peer_cert),
            ("peer_key", &args.peer_key),
            ("peer_ca", &args.peer_ca),
        ],
    )?;
    let at = place::directory(caller, "weir cluster join", "give a directory: `--at DIR`")?;
    if config.peer.is_none() {
        let failure = Failure::new(ErrorCode::BadOption, format!("cannot make {at} a node"));
        return Err(failure
            .because("no port for the other nodes is given")
            .advise("name the address of the node for peers: `--peer HOST:PORT`")
            .tool()
            .into());
    }
    if node::is_member(caller, Path::new(at))? {
        let failure = Failure::new(ErrorCode::BadOption, format!("cannot make {at} a node"));
        return Err(failure
            .because("the directory is already a node of a cluster")
            .advise("serve it: `weir serve`")
            .tool()
            .into());
    }
    node::is_node(caller, at, &config, &node::join_failed(at))?;
    let ports = Ports {
        http: config.http.map(|address| address.0),
        native: config.native.map(|address| address.0),
        has_tls: config.tls_cert.is_some(),
    };
    let number = node::join(caller, at, &config, ports)?;
    let serve = serve_command(at, &config);
    note(
        caller.quiet,
        &format!("{at} is node {number} of the cluster; serve it: `{serve}`"),
    );
    Ok(ExitCode::SUCCESS)
}
