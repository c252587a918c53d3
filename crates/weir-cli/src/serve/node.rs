//! `weir serve` as a node of a cluster.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use weir::{ErrorCode, OpenOptions, StoreError, with_engine};
use weir_server::ServerConfig;
use weir_server::cluster::{ClusterError, ClusterNode, Member, NodeError, NodeSettings, PeerFiles};

use crate::caller::Caller;
use crate::place::{self, Access};
use crate::progress::Progress;
use crate::report::{Failure, FailureContext, LOST_NODE, note};

/// Time after which a process that joins a cluster prints what it waits for.
const WAIT_LINE_AFTER: Duration = Duration::from_secs(2);
/// Time limit for a connection that only shows why a member does not answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The addresses at which a server listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) http: Option<SocketAddr>,
    pub(crate) native: Option<SocketAddr>,
    pub(crate) has_tls: bool,
}

/// Whether a directory is a node of a cluster.
pub(crate) fn is_member(caller: &Caller, directory: &Path) -> anyhow::Result<bool> {
    let is_node = ClusterNode::is_node(directory);
    is_node.map_err(|error| place::cannot_open(caller, directory, &error))
}

/// How the server of a store or node writes a backup.
pub(crate) const BACKUP_BY_SERVER: &str = "let the server write the backup: start it with \
     `weir serve --backups DIR`, and send it SIGUSR1 (`kill -USR1 PID`); `--at DIR` backs up a \
     stopped store that is not a node of a cluster";

/// Fails with `what` if a directory that should be copied is a node of a cluster. The copy would
/// have the vote of the node.
pub(crate) fn refuse_copy(caller: &Caller, directory: &Path, what: String) -> anyhow::Result<()> {
    if !is_member(caller, directory)? {
        return Ok(());
    }
    let at = directory.display();
    Err(Failure::new(ErrorCode::BadOption, what)
        .because(format!("{at} is the directory of a node of a cluster"))
        .advise(format!(
            "let the node write a backup: start it with `weir serve --at {at} --backups DIR`, and \
             send it SIGUSR1 (`kill -USR1 PID`)"
        ))
        .tool()
        .into())
}

/// Whether a server in this directory is a node of a cluster, or will join one. `what` is the
/// command that fails otherwise.
pub(crate) fn is_node(
    caller: &Caller,
    at: &str,
    config: &ServerConfig,
    what: &str,
) -> anyhow::Result<bool> {
    let is_node = is_member(caller, Path::new(at))?;
    let what = || what.to_owned();
    if is_node && config.peer.is_none() {
        return Err(Failure::new(ErrorCode::BadOption, what())
            .because("the directory is a node of a cluster, but no peer address is set")
            .advise("set the peer address of the node: `--peer HOST:PORT`")
            .tool()
            .into());
    }
    if config.peer.is_some_and(|peer| peer.0.port() == 0) {
        return Err(Failure::new(ErrorCode::BadOption, what())
            .because(
                "port 0 selects another port at each start, so other nodes cannot find this node",
            )
            .advise("set a fixed peer port: `--peer HOST:PORT`")
            .tool()
            .into());
    }
    if is_node || !config.join.is_empty() {
        if !is_node && place::is_store(Path::new(at)).failed(what)? {
            return Err(Failure::new(ErrorCode::StoreExists, what())
                .because("the directory contains a store, but a new node copies the store of its cluster")
                .advise(
                    "join with an empty directory, or make this store the first node of a new \
                     cluster with `weir cluster init`",
                )
                .tool()
                .into());
        }
        return Ok(true);
    }
    if config.peer.is_some() {
        return Err(Failure::new(ErrorCode::BadOption, what())
            .because("a peer address is set, but the directory is not a node of a cluster")
            .advise(
                "create a cluster with `weir cluster init`, or join one with `--join HOST:PORT`",
            )
            .tool()
            .into());
    }
    Ok(false)
}

/// The address of a port for other machines.
fn advertised_address(address: SocketAddr, advertise: &str) -> String {
    match advertise {
        "" => address.to_string(),
        host if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) => {
            format!("[{host}]:{}", address.port())
        }
        host => format!("{host}:{}", address.port()),
    }
}

/// The description of this server for the other members of the cluster. Leaves out a port at which
/// no other machine reaches this server, and prints a warning about it.
pub(crate) fn member(peer: SocketAddr, config: &ServerConfig, ports: Ports) -> Member {
    let (native, http) = if ports.has_tls {
        ("weirs", "https")
    } else {
        ("weir", "http")
    };
    let advertised_peer = advertised_address(peer, &config.advertise);
    let (host, _) = advertised_peer.rsplit_once(':').unwrap_or_default();
    let is_on_one_machine = is_loopback(host);
    let addresses = [
        ("--native", native, ports.native),
        ("--http", http, ports.http),
    ];
    let mut client = Vec::new();
    for (flag, scheme, address) in addresses {
        let Some(address) = address else { continue };
        if address.ip().is_loopback() && !is_on_one_machine {
            let port = address.port();
            note(
                false,
                &format!(
                    "warning: {flag} listens at {address}, which other machines cannot reach, so \
                     clients of the cluster do not get this address; set \
                     `{flag} {host}:{port}`"
                ),
            );
        } else {
            client.push(format!(
                "{scheme}://{}",
                advertised_address(address, &config.advertise)
            ));
        }
    }
    let client = client.join(" ");
    Member {
        client,
        peer: advertised_peer,
        ..Member::default()
    }
}

/// Whether the host of an address is a loopback name or address.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Rejects addresses to which other nodes cannot connect.
pub(crate) fn check_reachable(what: &str, member: &Member) -> anyhow::Result<()> {
    let everywhere = ["0.0.0.0:", "[::]:"];
    let all = member.client.split(' ').chain([&*member.peer]);
    let mut hosts = all.map(|one| one.split_once("://").map_or(one, |(_, host)| host));
    let is_wrong = |host: &str| everywhere.iter().any(|any| host.starts_with(any));
    match hosts.find(|host| is_wrong(host)) {
        Some(host) => Err(Failure::new(ErrorCode::BadOption, what)
            .because(format!("other machines cannot connect to {host}"))
            .advise("set the name or address of this machine for others: `--advertise HOST`")
            .tool()
            .into()),
        None => Ok(()),
    }
}

/// Opens the node in a directory. An empty directory joins a cluster first.
pub(crate) fn open(
    caller: &Caller,
    at: &str,
    config: &ServerConfig,
    ports: Ports,
    progress: &Progress,
) -> anyhow::Result<Arc<ClusterNode>> {
    let what = format!("cannot serve {at} as a node of a cluster");
    let (options, settings) = prepare(caller, at, config, ports, progress, &what)?;
    let directory = Path::new(at);
    let _shown = if is_member(caller, directory)? {
        if !settings.join.is_empty() {
            let text = format!(
                "{at} is already a node of a cluster, so `--join` has no effect while a leader \
                 reaches the node"
            );
            note(false, &format!("warning: {text}"));
        }
        None
    } else {
        Some(JoinWait::start(caller, at, &settings.join)?)
    };
    let opened = ClusterNode::open(directory, &with_engine(&options), &settings);
    opened.map_err(|error| failure(&what, &error))
}

/// Makes an empty directory a node of a cluster, without opening it. Returns its number.
pub(crate) fn join(
    caller: &Caller,
    at: &str,
    config: &ServerConfig,
    ports: Ports,
) -> anyhow::Result<u64> {
    let progress = Progress::default();
    let what = join_failed(at);
    let (options, settings) = prepare(caller, at, config, ports, &progress, &what)?;
    let _shown = JoinWait::start(caller, at, &settings.join)?;
    let joined = ClusterNode::join(Path::new(at), &with_engine(&options), &settings);
    joined.map_err(|error| failure(&what, &error))
}

/// The first line of the errors of a directory that cannot join a cluster.
pub(crate) fn join_failed(at: &str) -> String {
    format!("cannot join {at} to a cluster")
}

/// Prints a line if the cluster does not answer for [`WAIT_LINE_AFTER`]. Dropping this ends the
/// wait.
struct JoinWait {
    _end: Sender<()>,
}

impl JoinWait {
    /// Starts to wait. Fails if none of the names has an address.
    fn start(caller: &Caller, at: &str, members: &[String]) -> anyhow::Result<Self> {
        let mut unknown = None;
        for member in members {
            match member.to_socket_addrs() {
                Ok(_) => {
                    unknown = None;
                    break;
                }
                Err(error) => unknown = Some(format!("{member}: {error}")),
            }
        }
        if let Some(why) = unknown {
            return Err(Failure::new(ErrorCode::Unreachable, join_failed(at))
                .because(why)
                .advise("check the addresses given to --join")
                .tool()
                .into());
        }
        let (end, ended) = channel();
        let (members, quiet) = (members.to_vec(), caller.quiet);
        let print = move || {
            if ended.recv_timeout(WAIT_LINE_AFTER) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let causes: Vec<_> = members.iter().map(|member| probe(member)).collect();
            if ended.try_recv() == Err(TryRecvError::Empty) {
                let text = format!("waiting for the cluster: {}", causes.join("; "));
                note(quiet, &text);
            }
        };
        // If the thread cannot be started, no line is printed. The thread is not joined, because
        // its last connection may take long.
        drop(
            std::thread::Builder::new()
                .name("weir-join".into())
                .spawn(print),
        );
        Ok(Self { _end: end })
    }
}

/// Why a member of the cluster does not answer.
fn probe(member: &str) -> String {
    let mut cause = "the name has no address".to_owned();
    for address in member.to_socket_addrs().into_iter().flatten() {
        match TcpStream::connect_timeout(&address, PROBE_TIMEOUT) {
            Ok(_) => return format!("{member}: connected, but no leader has answered yet"),
            Err(error) => cause = error.to_string(),
        }
    }
    format!("{member}: {cause}")
}

fn prepare(
    caller: &Caller,
    at: &str,
    config: &ServerConfig,
    ports: Ports,
    progress: &Progress,
    what: &str,
) -> anyhow::Result<(OpenOptions, NodeSettings)> {
    let directory = Path::new(at);
    if !place::is_store(directory).failed(|| what.to_owned())? && !caller.create {
        place::check_empty(caller, directory)?;
    }
    let mut options = place::options(caller, Access::Write, "weir serve", progress);
    config.tune(&mut options);
    let peer = config
        .peer
        .map_or_else(|| ([127, 0, 0, 1], 0).into(), |peer| peer.0);
    let member = member(peer, config, ports);
    check_reachable(what, &member)?;
    let settings = NodeSettings {
        peer,
        member,
        join: config.join.clone(),
        node: u64::try_from(config.node).ok().filter(|node| *node > 0),
        tls: peer_files(config),
    };
    Ok((options, settings))
}

/// The files for TLS between the nodes: all three or none.
fn peer_files(config: &ServerConfig) -> Option<PeerFiles> {
    Some(PeerFiles {
        certificate: config.peer_cert.clone()?,
        key: config.peer_key.clone()?,
        authority: config.peer_ca.clone()?,
    })
}

/// Converts an error of a node to a failure for people. `what` is the command that failed.
pub(crate) fn failure(what: &str, error: &ClusterError) -> anyhow::Error {
    let failure = match error {
        ClusterError::Node(NodeError::Store(error)) => {
            let failure = Failure::store(what, error);
            // The majority has the data that the directory has lost; a backup may not have it.
            if error.is_damage() || matches!(error, StoreError::Missing { what: "log" }) {
                failure.advise(LOST_NODE)
            } else {
                failure
            }
        }
        ClusterError::Node(NodeError::OtherVoters { .. }) => Failure::new(
            ErrorCode::BadOption,
            what,
        )
        .because(error)
        .advise(
            "join that cluster with an empty directory; if no majority of its nodes can run again, \
             follow \"A lost majority\" in `weir help guide cluster`",
        ),
        ClusterError::Node(NodeError::Unreachable(_)) => Failure::new(ErrorCode::Unreachable, what)
            .because(error)
            .advise("check the addresses given to --join, and that a majority of the nodes runs"),
        ClusterError::Io { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
            Failure::new(ErrorCode::AddressTaken, what).because(error)
        }
        ClusterError::Io { .. } => Failure::new(ErrorCode::Io, what).because(error),
        ClusterError::Node(NodeError::Refused(_)) => Failure::new(ErrorCode::BadOption, what)
            .because(error)
            .advise("correct what the reason names, then run the command again"),
        ClusterError::Node(NodeError::OlderCopy(_)) => Failure::new(ErrorCode::BadOption, what)
            .because(error)
            .advise(LOST_NODE),
        ClusterError::Tls(_) => Failure::new(ErrorCode::BadOption, what)
            .because(error)
            .advise("check the files of `--peer-cert`, `--peer-key` and `--peer-ca`"),
        _ => Failure::new(ErrorCode::BadOption, what)
            .because(error)
            .advise("check the members with `weir cluster status` at another node"),
    };
    failure.tool().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_without_a_majority_is_a_chapter_of_the_guide() {
        let guide = include_str!("../../../../docs/operating/cluster.md");
        assert!(guide.contains("\n## A lost majority\n"));
        let voters = "1, 2, 3".to_owned();
        let other_voters = NodeError::OtherVoters { voters };
        let older_copy = NodeError::OlderCopy("another node has seen a later state".to_owned());
        for error in [other_voters, older_copy] {
            let failure = failure("cannot make ./new a node", &ClusterError::Node(error));
            let text = failure.to_string();
            let chapter = "\"A lost majority\" in `weir help guide cluster`";
            assert!(text.contains(chapter), "{text}");
            assert!(!text.contains("--force"), "{text}");
        }
    }
}
