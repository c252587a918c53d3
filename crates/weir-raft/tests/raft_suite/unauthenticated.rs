//! Connections to the peer port that do not authenticate.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use weir_raft::{Member, Node, NodeConfig, Role, peer_frame, peer_hello};
use weir_store::OpenOptions;

const CLUSTER: [u8; 16] = [5; 16];
/// Kinds of frames (docs/formats/cluster.md).
const HELLO: u8 = 1;
const WELCOME: u8 = 2;
/// Time limit for a connection that sends nothing.
const SILENCE: Duration = Duration::from_secs(10);

async fn leader(directory: &std::path::Path) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let member = Member {
        peer: listener.local_addr().unwrap().to_string(),
        ..Member::default()
    };
    let config = NodeConfig {
        node: 1,
        cluster: CLUSTER,
        incarnation: 0,
    };
    let node = Node::open(directory, &OpenOptions::default(), config, listener).await;
    let node = node.unwrap();
    let members = BTreeMap::from([(1, member)]);
    node.initialize(members).await.unwrap();
    let leads = |status: &weir_raft::Status| status.role == Role::Leader;
    node.until(leads).await.unwrap();
    node
}

async fn connect(from: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(from.parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Sends a hello and returns the kind of the reply.
async fn greet(stream: &mut TcpStream) -> u8 {
    let hello = peer_frame(HELLO, 0, &peer_hello(CLUSTER, 2, 1));
    stream.write_all(&hello).await.unwrap();
    // The header, and the shortest body of a reply: that of a welcome.
    let mut reply = [0; 28];
    stream.read_exact(&mut reply).await.unwrap();
    reply[4]
}

/// Silent connections beyond the limit do not prevent the connection of a peer. The port closes
/// only silent connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_do_not_block_a_peer() {
    let directory = tempfile::tempdir().unwrap();
    let node = leader(directory.path()).await;
    let start = Instant::now();
    let mut elsewhere = connect("127.0.0.2:0", node.address()).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(connect("127.0.0.1:0", node.address()).await);
    }
    let mut peer = connect("127.0.0.1:0", node.address()).await;
    assert_eq!(greet(&mut peer).await, WELCOME);
    // A connection from another address still works.
    assert_eq!(greet(&mut elsewhere).await, WELCOME);
    for mut early in silent.drain(..200) {
        assert_eq!(early.read(&mut [0]).await.unwrap_or(0), 0);
    }
    assert!(
        start.elapsed() < SILENCE,
        "the silent connections were not closed in time"
    );
    // Further connections replace silent connections, and not those of peers.
    for _ in 0..300 {
        silent.push(connect("127.0.0.1:0", node.address()).await);
    }
    for stream in [&mut peer, &mut elsewhere] {
        assert!(
            stream.try_read(&mut [0]).is_err(),
            "the connection of a peer is open and silent"
        );
    }
    node.close().await.unwrap();
}
