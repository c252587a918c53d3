//! `weir cluster init`: makes a store the first node of a cluster.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use weir::{ErrorCode, with_engine};
use weir_server::ServerConfig;
use weir_server::cluster::ClusterNode;

use crate::caller::Caller;
use crate::place::{self, Access};
use crate::progress::Progress;
use crate::report::{Failure, note};
use crate::serve;
use crate::serve::node::{self, Ports};

/// Highest number that a first node can have: nodes that join later get higher numbers.
const NODE_MAX: u64 = 1 << 63;

#[derive(Debug, Args)]
#[command(after_long_help = "\
The store keeps its data. Its id becomes the id of the cluster. In an empty directory, a store is created.
The addresses are those of `weir serve`, from flags, WEIR_SERVE_PEER, WEIR_SERVE_HTTP and so on, or from
the table [serve] of the configuration file. No process may have the store open. If an address is not
loopback, `weir serve` needs TLS: see `weir help guide cluster`. For --force, see \"A lost majority\" there.

Examples:
  weir cluster init --at ./data --peer 127.0.0.1:7072
  weir serve --at ./data --peer 127.0.0.1:7072")]
pub(crate) struct InitArgs {
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
    /// Number of the node [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=NODE_MAX))]
    node: Option<u64>,
    /// Accept a store with the members of another cluster, of which no node will start again
    #[arg(long)]
    force: bool,
}

/// Runs `weir cluster init`.
pub(crate) fn run(caller: &Caller, args: &InitArgs) -> anyhow::Result<ExitCode> {
    let flags = [
        ("peer", &args.peer),
        ("advertise", &args.advertise),
        ("native", &args.native),
        ("http", &args.http),
    ];
    let config = configure(caller, &flags)?;
    let at = place::directory(caller, "weir cluster init", "give a directory: `--at DIR`")?;
    let is_new = !place::is_store(Path::new(at))?;
    let number = init(caller, at, &config, args.node, args.force)?;
    if is_new {
        note(caller.quiet, &format!("created a new store in {at}"));
    }
    let serve = serve_command(at, &config);
    note(
        caller.quiet,
        &format!("{at} is node {number} of a new cluster; serve it: `{serve}`"),
    );
    Ok(ExitCode::SUCCESS)
}

/// The command that serves a node with the settings of this call. Leaves out defaults.
pub(super) fn serve_command(at: &str, config: &ServerConfig) -> String {
    let mut command = vec![format!("weir serve --at {at}")];
    for name in [
        "peer",
        "advertise",
        "native",
        "http",
        "peer_cert",
        "peer_key",
        "peer_ca",
    ] {
        let Some(key) = ServerConfig::KEYS.iter().find(|key| key.name == name) else {
            continue;
        };
        let value = (key.get)(config);
        if value != (key.get)(&ServerConfig::default()) {
            command.push(format!("--{} {value}", name.replace('_', "-")));
        }
    }
    command.join(" ")
}

/// Reads the configuration of `weir serve`, and applies the flags of this call.
pub(super) fn configure(
    caller: &Caller,
    flags: &[(&str, &Option<String>)],
) -> anyhow::Result<ServerConfig> {
    let mut config = serve::configure_plain(caller)?;
    for (name, text) in flags {
        let key = ServerConfig::KEYS.iter().find(|key| key.name == *name);
        if let (Some(key), Some(text)) = (key, text) {
            (key.set)(&mut config, text).map_err(|error| {
                let what = format!("cannot use --{}", name.replace('_', "-"));
                Failure::new(ErrorCode::BadOption, what).because(error)
            })?;
        }
    }
    Ok(config)
}

/// Makes the directory the first node. Returns the number of the node.
pub(super) fn init(
    caller: &Caller,
    at: &str,
    config: &ServerConfig,
    number: Option<u64>,
    force: bool,
) -> anyhow::Result<u64> {
    let what = format!("cannot make {at} a node");
    let failure = || Failure::new(ErrorCode::BadOption, &*what);
    let Some(peer) = config.peer else {
        return Err(failure()
            .because("no port for the other nodes is given")
            .advise("name the address of the node for peers: `--peer HOST:PORT`")
            .tool()
            .into());
    };
    let directory = Path::new(at);
    let is_node = ClusterNode::is_node(directory);
    if is_node.map_err(|error| place::cannot_open(caller, directory, &error))? {
        return Err(failure()
            .because("the directory is already a node of a cluster")
            .advise(
                "serve it: `weir serve`; for a new cluster with its data, follow `weir help guide \
                 cluster`: \"A lost majority\" if no majority of the nodes can run again, else \
                 \"Backup and restore\"",
            )
            .tool()
            .into());
    }
    let ports = Ports {
        http: config.http.map(|address| address.0),
        native: config.native.map(|address| address.0),
        has_tls: config.tls_cert.is_some(),
    };
    let fixed = [Some(peer.0), ports.http, ports.native];
    if fixed
        .into_iter()
        .flatten()
        .any(|address| address.port() == 0)
    {
        return Err(failure()
            .because(
                "port 0 selects another port at each start, so other nodes cannot find this node",
            )
            .advise("set fixed ports")
            .tool()
            .into());
    }
    let member = node::member(peer.0, config, ports);
    node::check_reachable(&what, &member)?;
    if !place::is_store(directory)? && !caller.create {
        place::check_empty(caller, directory)?;
    }
    let progress = Progress::default();
    let mut options = place::options(caller, Access::Write, "weir cluster init", &progress);
    config.tune(&mut options);
    let number = ClusterNode::init(directory, &with_engine(&options), number, &member, force);
    number.map_err(|error| node::failure(&what, &error))
}
