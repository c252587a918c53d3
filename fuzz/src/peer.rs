//! Any bytes at the port for the other nodes of a cluster. Nothing panics, and bytes from a
//! stranger change nothing.
//!
//! The first byte chooses the form of the rest: raw bytes, or the kind and the body of a frame,
//! after a HELLO or without one. The parsers of peers read all frames. A running node gets only the
//! frames that a true leader could not have sent.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use weir_raft::{
    Member, Node, NodeConfig, Role, Status, is_join, peer_frame, peer_hello, read_as_peer,
};
use weir_store::OpenOptions;

const CLUSTER: [u8; 16] = [5; 16];
/// Far longer than a response takes: only a hang reaches it.
const PATIENCE: Duration = Duration::from_mins(1);
/// Kinds of frames that may come from a true leader after a HELLO: append, vote, pre-vote,
/// transfer.
const OF_LEADERS: std::ops::RangeInclusive<u8> = 16..=19;
/// Number of panics in the threads of the node. Such a panic ends only a task.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// A cluster of one node.
struct Target {
    node: Node,
    before: Status,
    _runtime: Runtime,
    _directory: TempDir,
}

impl Target {
    fn new() -> Self {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            before(panic);
        }));
        let directory = tempfile::tempdir().expect("a directory");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        let (node, status) = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let member = Member {
                peer: listener.local_addr().expect("a port").to_string(),
                ..Member::default()
            };
            let config = NodeConfig {
                node: 1,
                cluster: CLUSTER,
                incarnation: 0,
            };
            let options = OpenOptions::default();
            let node = Node::open(directory.path(), &options, config, listener).await;
            let node = node.expect("a node");
            let formed = node.initialize(BTreeMap::from([(1, member)])).await;
            formed.expect("a cluster");
            let leads = node.until(|status| {
                status.role == Role::Leader
                    && status.last.is_some()
                    && status.applied == status.last
            });
            let status = leads.await.expect("a leader");
            (node, status)
        });
        Self {
            node,
            before: status,
            _runtime: runtime,
            _directory: directory,
        }
    }

    /// Sends bytes, and reads until the node closes the connection.
    fn send(&self, bytes: &[u8]) {
        let mut stream = TcpStream::connect(self.node.address()).expect("the port is open");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // The node may close the connection before it has read everything.
        drop(stream.write_all(bytes));
        drop(stream.shutdown(Shutdown::Write));
        let mut said = Vec::new();
        if let Err(error) = stream.read_to_end(&mut said) {
            let is_hang = error.kind() == std::io::ErrorKind::WouldBlock;
            assert!(!is_hang, "the node keeps a connection that has ended");
        }
        let now = self.node.status();
        let seen = |status: &Status| {
            (
                status.role,
                status.term,
                status.last,
                status.members.clone(),
            )
        };
        assert_eq!(seen(&now), seen(&self.before), "a stranger had an effect");
    }
}

/// The fuzz target.
pub fn run(bytes: &[u8]) {
    static TARGET: OnceLock<Target> = OnceLock::new();
    let target = TARGET.get_or_init(Target::new);
    let panics = PANICS.load(Ordering::SeqCst);
    let [mode, rest @ ..] = bytes else { return };
    let _ = read_as_peer(rest);
    match (mode % 4, rest) {
        (0, _) => target.send(rest),
        (1, [kind, body @ ..]) if !OF_LEADERS.contains(kind) => {
            let hello = peer_frame(1, 0, &peer_hello(CLUSTER, 2, 1));
            target.send(&[hello, peer_frame(*kind, 1, body)].concat());
        }
        (2, [kind, body @ ..]) if !is_join(body) => target.send(&peer_frame(*kind, 1, body)),
        (3, [kind, body @ ..]) => {
            // A HELLO of another cluster.
            let hello = peer_frame(1, 0, &peer_hello([6; 16], 2, 1));
            target.send(&[hello, peer_frame(*kind, 1, body)].concat());
        }
        _ => {}
    }
    assert_eq!(
        PANICS.load(Ordering::SeqCst),
        panics,
        "the node has panicked"
    );
}
