//! Tests of clusters in one process, with real directories and real connections.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::net::TcpListener;
use weir_core::intention::{Intention, Operation};
use weir_core::{ClientId, ConsequenceOffset, ErrorCode, TopicOptions};
use weir_raft::{JoinRequest, Member, Node, NodeConfig, NodeError, Role, Status, join};
use weir_store::clock::Clock;
use weir_store::replica::NodeOptions;
use weir_store::{Durability, LogIndex, OpenOptions, Store, StoreError, verify};

use crate::storage::NoProposals;

pub const CLUSTER: [u8; 16] = [0xc1; 16];
const CLIENT: ClientId = ClientId([0x11; 16]);
/// No node listens at this address: the system never assigns its port to a socket by itself.
const NOWHERE: &str = "127.0.0.1:2";
/// Longest time until a request succeeds; only a cluster without progress reaches it.
const PATIENCE: Duration = Duration::from_mins(1);
/// Last byte of the IP address of the next cluster.
static NEXT_IP: AtomicU8 = AtomicU8::new(1);

fn options() -> OpenOptions {
    OpenOptions {
        retention_every: None,
        log_segment_bytes: 32 << 10,
        log_keep_bytes: Some(0),
        ..OpenOptions::default()
    }
}

/// Nodes 1 to n, each in a separate directory.
pub struct Cluster {
    id: [u8; 16],
    /// An IP address of its own, so that no other socket takes the port of a stopped node.
    ip: Ipv4Addr,
    options: OpenOptions,
    directories: TempDir,
    pub members: BTreeMap<u64, Member>,
    pub nodes: BTreeMap<u64, Node>,
    /// Clocks of nodes that do not use the clocks of the system.
    pub clocks: BTreeMap<u64, Arc<dyn Clock>>,
}

impl Cluster {
    pub async fn start(count: u64, id: [u8; 16]) -> Self {
        Self::start_with(count, id, options()).await
    }

    async fn start_with(count: u64, id: [u8; 16], options: OpenOptions) -> Self {
        let mut started = Self {
            id,
            ip: Ipv4Addr::new(127, 77, 0, NEXT_IP.fetch_add(1, Ordering::Relaxed)),
            options,
            directories: tempfile::tempdir().unwrap(),
            members: BTreeMap::new(),
            nodes: BTreeMap::new(),
            clocks: BTreeMap::new(),
        };
        for node in 1..=count {
            started.add(node).await;
        }
        started
    }

    fn directory(&self, node: u64) -> PathBuf {
        self.directories.path().join(node.to_string())
    }

    async fn listen(&self) -> TcpListener {
        TcpListener::bind((self.ip, 0)).await.unwrap()
    }

    pub async fn add(&mut self, node: u64) {
        let listener = self.listen().await;
        let peer = listener.local_addr().unwrap().to_string();
        let client = format!("client-{node}");
        let member = Member {
            peer,
            client,
            ..Member::default()
        };
        self.members.insert(node, member);
        self.open(node, listener).await;
    }

    async fn open(&mut self, node: u64, listener: TcpListener) {
        let config = NodeConfig {
            node,
            cluster: self.id,
            incarnation: 0,
        };
        let directory = self.directory(node);
        let mut options = self.options.clone();
        if let Some(clock) = self.clocks.get(&node) {
            options.clock = Arc::clone(clock);
        }
        let opened = Node::open(&directory, &options, config, listener).await;
        self.nodes.insert(node, opened.unwrap());
    }

    pub async fn restart(&mut self, node: u64) {
        let listener = TcpListener::bind(&self.members[&node].peer).await.unwrap();
        self.open(node, listener).await;
    }

    pub async fn stop(&mut self, node: u64) {
        self.nodes.remove(&node).unwrap().close().await.unwrap();
    }

    /// Removes the newest entries from the log of a stopped node.
    fn lose_entries(&self, node: u64, count: u64) {
        let identity = NodeOptions {
            node,
            cluster: self.id,
            incarnation: 0,
            allow_gaps: false,
        };
        let (directory, provider) = (self.directory(node), Arc::new(NoProposals));
        let opened = Store::open_node(&directory, &self.options, &identity, provider);
        let (store, replica) = opened.unwrap();
        let last = replica.log_state().last.unwrap().index;
        let remaining = LogIndex(last.0 - count);
        let (sender, truncated) = mpsc::channel();
        replica.truncate_after(remaining, Box::new(move |done| sender.send(done).unwrap()));
        truncated.recv().unwrap().unwrap();
        store.close().unwrap();
    }

    /// Waits until a running node reports a leader that runs too, and returns the leader.
    pub async fn leader(&self) -> u64 {
        let any = self.nodes.values().next().unwrap();
        let runs = |status: &Status| status.leader.is_some_and(|id| self.nodes.contains_key(&id));
        any.until(runs).await.unwrap().leader.unwrap()
    }

    /// Makes a node the leader, and waits until all running nodes know it.
    pub async fn lead(&self, node: u64) {
        let knows = |running: &Node| running.status().leader == Some(node);
        while !self.nodes.values().all(knows) {
            let leader = self.leader().await;
            // Another node may lead meanwhile.
            drop(self.nodes[&leader].transfer_leadership(node).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Sends a request to the leader until it succeeds. Another node may lead meanwhile.
    async fn at_leader<T>(&self, request: &impl AsyncFn(&Node) -> Result<T, NodeError>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            let leader = self.leader().await;
            match request(&self.nodes[&leader]).await {
                Ok(done) => return done,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Sends a request to the leader until it is refused with this text. Another node may lead
    /// meanwhile.
    async fn refused_at_leader(
        &self,
        expected: &str,
        request: &impl AsyncFn(&Node) -> Result<(), NodeError>,
    ) {
        let end = Instant::now() + PATIENCE;
        loop {
            let leader = self.leader().await;
            let refused = request(&self.nodes[&leader]).await.unwrap_err();
            let text = refused.to_string();
            if text.contains(expected) {
                return;
            }
            assert!(Instant::now() < end, "{text}");
            tokio::task::yield_now().await;
        }
    }

    async fn add_learner(&self, node: u64) {
        let member = &self.members[&node];
        let add = async |leader: &Node| leader.add_learner(node, member.clone()).await;
        self.at_leader(&add).await;
    }

    async fn change_voters(&self, voters: &[u64]) {
        let change = async |leader: &Node| leader.change_voters(voters.iter().copied()).await;
        self.at_leader(&change).await;
    }

    async fn remove(&self, node: u64) {
        let remove = async |leader: &Node| {
            let removed = leader.remove(node).await;
            // An attempt whose outcome was not known may have removed the node.
            if leader.status().members.contains_key(&node) {
                removed
            } else {
                Ok(())
            }
        };
        self.at_leader(&remove).await;
    }

    async fn reserve(&self, peer: &str) -> u64 {
        let reserve = async |leader: &Node| {
            let reserved = leader.reserve(peer).await;
            // An attempt whose outcome was not known may have reserved a number.
            let members = leader.status().members;
            let mut members = members.into_iter();
            let known = members.find(|(_, (member, _))| member.peer == peer);
            known.map_or(reserved, |(node, _)| Ok(node))
        };
        self.at_leader(&reserve).await
    }

    /// Waits until all running nodes know this number of members.
    async fn wait_members(&self, count: usize) {
        for node in self.nodes.values() {
            let known = node.until(|status| status.members.len() == count);
            let known = tokio::time::timeout(PATIENCE, known).await;
            known.expect("the members are known").unwrap();
        }
    }

    /// Writes under a session until a leader returns the outcome.
    async fn write(&self, nonce: u64, operation: Operation<'_>) {
        let intention = Intention {
            client: CLIENT,
            nonce,
            ..Intention::new("orders", operation)
        };
        loop {
            let leader = self.leader().await;
            let done = propose(self.nodes[&leader].store(), &intention).await;
            match done.map_err(|error| error.code()) {
                Ok(()) => return,
                Err(ErrorCode::Redirect | ErrorCode::NoLeader | ErrorCode::Indeterminate) => {
                    tokio::task::yield_now().await;
                }
                Err(code) => panic!("{code:?}"),
            }
        }
    }

    pub async fn create(&self) {
        let options = &TopicOptions::default();
        self.write(1, Operation::Create { options }).await;
    }

    pub async fn put(&self, nonce: u64) {
        let key = nonce.to_string().into_bytes();
        let value = &[7; 100];
        self.write(nonce, Operation::Put { key: &key, value }).await;
    }

    /// Waits until all running nodes have applied the newest entry of their logs, and compares
    /// their digests.
    async fn wait_agreed(&self) {
        loop {
            let newest = self.nodes.values().map(|node| node.status().last).max();
            let newest = newest.unwrap();
            for node in self.nodes.values() {
                let caught_up =
                    |status: &Status| status.applied >= newest && status.applied == status.last;
                node.until(caught_up).await.unwrap();
            }
            let applied = || -> Vec<_> {
                let nodes = self.nodes.values();
                nodes.map(|node| node.status().applied).collect()
            };
            let before = applied();
            let digests: Vec<_> = self.nodes.values().map(|n| n.store().digest()).collect();
            if before == applied() && before.iter().all(|one| *one == before[0]) {
                let is_equal = digests.iter().all(|digest| *digest == digests[0]);
                assert!(is_equal, "{digests:?} after {before:?}");
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

pub async fn propose(store: &Store, intention: &Intention<'_>) -> Result<(), StoreError> {
    let outcomes = store.propose(std::slice::from_ref(intention))?.await?;
    assert_eq!(outcomes.iter().count(), 1);
    Ok(())
}

pub fn records(store: &Store) -> usize {
    let mut reader = store.read("orders", ConsequenceOffset::ZERO).unwrap();
    let mut count = 0;
    while let Some(page) = reader.next_page().unwrap() {
        count += page.iter().count();
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_nodes_lose_their_leader_and_agree_after_its_return() {
    let mut cluster = Cluster::start(3, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members.clone()).await.unwrap();
    cluster.create().await;
    for nonce in 2..=50 {
        cluster.put(nonce).await;
    }
    cluster.wait_agreed().await;
    let again = cluster.nodes[&2].initialize(members).await;
    assert!(again.is_err(), "a cluster is formed once");

    let first = loop {
        let leader = cluster.leader().await;
        let status = cluster.nodes[&leader].status();
        // A node that the others do not acknowledge yet has another role.
        if status.role == Role::Leader {
            assert_eq!(status.matching.len(), 3);
            break leader;
        }
        tokio::task::yield_now().await;
    };
    cluster.stop(first).await;
    let start = Instant::now();
    cluster.put(51).await;
    println!("the next write was committed after {:?}", start.elapsed());
    for nonce in 52..=100 {
        cluster.put(nonce).await;
    }
    assert_ne!(cluster.leader().await, first);
    cluster.restart(first).await;
    cluster.wait_agreed().await;
    // For a nonce that was sent before, the session table has the outcome.
    cluster.put(30).await;
    cluster.wait_agreed().await;
    for node in cluster.nodes.values() {
        assert_eq!(records(node.store()), 100);
    }

    // Reopen all nodes from their disks.
    for node in 1..=3 {
        cluster.stop(node).await;
        let found = verify(&cluster.directory(node)).unwrap();
        assert!(found.is_clean(), "{:?}", found.findings);
    }
    for node in 1..=3 {
        cluster.restart(node).await;
    }
    cluster.put(101).await;
    cluster.wait_agreed().await;
    for node in 1..=3 {
        cluster.stop(node).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_becomes_a_cluster_of_three_nodes_without_loss() {
    let mut cluster = Cluster::start(0, CLUSTER).await;
    let directory = cluster.directory(1);
    let store = Store::open(&directory, &options()).unwrap();
    let topic = &TopicOptions::default();
    let create = Intention::new("orders", Operation::Create { options: topic });
    propose(&store, &create).await.unwrap();
    let (key, value) = (&b"a"[..], &b"1"[..]);
    let put = Intention::new("orders", Operation::Put { key, value });
    propose(&store, &put).await.unwrap();
    store.close().unwrap();

    let listener = cluster.listen().await;
    let peer = listener.local_addr().unwrap().to_string();
    let client = String::new();
    let member = Member {
        peer,
        client,
        ..Member::default()
    };
    let converted = Node::convert(&directory, &options(), 1, &member, false).unwrap();
    cluster.id = converted.cluster;
    cluster.members.insert(1, member);
    cluster.open(1, listener).await;
    assert_eq!(cluster.leader().await, 1);
    for node in [2, 3] {
        cluster.add(node).await;
        cluster.add_learner(node).await;
    }
    cluster.change_voters(&[1, 2, 3]).await;
    cluster.put(1).await;
    cluster.wait_agreed().await;
    cluster.stop(1).await;
    cluster.put(2).await;
    cluster.restart(1).await;
    cluster.wait_agreed().await;
    for node in 1..=3 {
        assert_eq!(records(cluster.nodes[&node].store()), 4);
        cluster.stop(node).await;
    }
}

/// The wait for a leader begins before the node is a member.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_does_not_lead_if_another_one_is_found_during_the_wait() {
    let mut cluster = Cluster::start(2, CLUSTER).await;
    let first = BTreeMap::from([(1, cluster.members[&1].clone())]);
    cluster.nodes[&1].initialize(first).await.unwrap();
    // The only voter leads. The learner can never lead.
    let leads = |status: &Status| status.role == Role::Leader;
    cluster.nodes[&1].until(leads).await.unwrap();
    let mut waiting = Box::pin(cluster.nodes[&2].linearize_on_leader(PATIENCE));
    let begun = tokio::time::timeout(Duration::ZERO, &mut waiting).await;
    assert!(begun.is_err(), "the node knows no leader yet");
    cluster.add_learner(2).await;
    let code = waiting.await.unwrap_err().code();
    // On a busy machine, the leader may be silent for a moment.
    let is_refused = matches!(code, ErrorCode::Redirect | ErrorCode::NoLeader);
    assert!(is_refused, "{code:?}");
    for node in [1, 2] {
        cluster.stop(node).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_follower_redirects_and_a_minority_refuses_writes() {
    let mut cluster = Cluster::start(3, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    cluster.wait_agreed().await;
    let (key, value) = (&b"a"[..], &b"1"[..]);
    let put = Intention::new("orders", Operation::Put { key, value });
    let end = Instant::now() + PATIENCE;
    let follower = loop {
        let leader = cluster.leader().await;
        let follower = if leader == 1 { 2 } else { 1 };
        let refused = propose(cluster.nodes[&follower].store(), &put).await;
        if let Err(refused) = &refused
            && refused.to_string().contains(&format!("client-{leader}"))
        {
            assert_eq!(refused.code(), ErrorCode::Redirect);
            break follower;
        }
        // The follower does not know this leader yet, or leads itself.
        assert!(Instant::now() < end, "{refused:?}");
        tokio::task::yield_now().await;
    };

    cluster.lead(follower).await;
    cluster.wait_agreed().await;
    let count = records(cluster.nodes[&follower].store());
    for node in 1..=3 {
        if node != follower {
            cluster.stop(node).await;
        }
    }
    let alone = &cluster.nodes[&follower];
    // During its lease, a leader still accepts proposals. Each of them fails in bounded time, with
    // an unknown outcome.
    let first = loop {
        let code = propose(alone.store(), &put).await.unwrap_err().code();
        // The node may know another leader, which has just stopped.
        if code != ErrorCode::Redirect {
            break code;
        }
        tokio::task::yield_now().await;
    };
    let expected = [ErrorCode::Indeterminate, ErrorCode::NoLeader];
    assert!(expected.contains(&first), "{first:?}");
    let refused = loop {
        let attempt = propose(alone.store(), &put);
        if let Ok(result) = tokio::time::timeout(Duration::from_millis(50), attempt).await {
            break result.unwrap_err();
        }
    };
    assert_eq!(refused.code(), ErrorCode::NoLeader);
    assert_eq!(records(alone.store()), count, "reads continue");
    cluster.stop(follower).await;
}

/// At the level `memory`, a power cut may remove entries that the leader has counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_has_lost_unsynced_entries_gets_them_again_from_the_same_leader() {
    let options = OpenOptions {
        retention_every: None,
        durability: Durability::Memory,
        ..OpenOptions::default()
    };
    let mut cluster = Cluster::start_with(3, CLUSTER, options).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    for nonce in 2..=20 {
        cluster.put(nonce).await;
    }
    cluster.wait_agreed().await;
    let cut = cluster.leader().await % 3 + 1;
    cluster.stop(cut).await;
    cluster.lose_entries(cut, 5);
    cluster.restart(cut).await;
    let caught_up = async {
        cluster.put(21).await;
        cluster.wait_agreed().await;
    };
    let caught_up = tokio::time::timeout(PATIENCE, caught_up).await;
    caught_up.expect("the node gets the lost entries");
    for node in 1..=3 {
        assert_eq!(records(cluster.nodes[&node].store()), 21);
        cluster.stop(node).await;
    }
}

/// Forwards bytes to an address while it is open.
struct Proxy {
    address: String,
    open: tokio::sync::watch::Sender<bool>,
}

impl Proxy {
    async fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (open, is_open) = tokio::sync::watch::channel(true);
        let to = to.to_owned();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (mut is_open, to) = (is_open.clone(), to.clone());
                tokio::spawn(async move {
                    if !*is_open.borrow() {
                        return;
                    }
                    let Ok(mut far) = tokio::net::TcpStream::connect(to).await else {
                        return;
                    };
                    tokio::select! {
                        _ = is_open.wait_for(|open| !open) => {}
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    }
                });
            }
        });
        Self { address, open }
    }
}

impl Cluster {
    /// Compacts the log of a node, and waits until entries are purged.
    async fn purge(&self, node: u64) {
        let node = &self.nodes[&node];
        let store = std::sync::Arc::clone(node.store());
        let compacted = tokio::task::spawn_blocking(move || store.compact_log());
        compacted.await.unwrap().unwrap();
        while node.status().purged.is_none() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_lacks_purged_entries_gets_a_snapshot_and_its_readers_continue() {
    let mut cluster = Cluster::start(3, CLUSTER).await;
    let follower = 2;
    let mut members = cluster.members.clone();
    let behind = Proxy::start(&members[&follower].peer).await;
    members.get_mut(&follower).unwrap().peer = behind.address.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    for nonce in 2..=100 {
        cluster.put(nonce).await;
    }
    cluster.wait_agreed().await;
    cluster.lead(1).await;
    // Only the network isolates the follower. It is not closed, so its readers remain.
    let reader = {
        let store = cluster.nodes[&follower].store();
        let mut reader = store.read("orders", ConsequenceOffset::ZERO).unwrap();
        let first = reader.next_page().unwrap().unwrap();
        assert!(first.iter().count() > 0);
        reader
    };
    behind.open.send_replace(false);
    for nonce in 101..=1000 {
        cluster.put(nonce).await;
    }
    for node in 1..=3 {
        if node != follower {
            cluster.purge(node).await;
        }
    }
    let purged = cluster.nodes[&1].status().purged.unwrap();
    assert!(purged > cluster.nodes[&follower].status().last.unwrap());
    behind.open.send_replace(true);
    cluster.put(1001).await;
    cluster.wait_agreed().await;
    let mut reader = reader;
    let mut next = reader.position();
    let mut count = 0;
    while let Some(page) = reader.next_page().unwrap() {
        for record in &page {
            let record = record.unwrap();
            assert_eq!(record.offset, next, "without a gap");
            next = ConsequenceOffset(next.0 + 1);
            count += 1;
        }
    }
    assert_eq!((next.0, count > 0), (1002, true));
    assert!(cluster.nodes[&follower].status().purged.is_some());

    // An empty directory joins under a new number. Then all nodes reopen from their disks.
    cluster.add(4).await;
    cluster.add_learner(4).await;
    cluster.change_voters(&[1, 2, 3, 4]).await;
    cluster.put(1002).await;
    cluster.wait_agreed().await;
    for node in 1..=4 {
        assert_eq!(records(cluster.nodes[&node].store()), 1002);
        cluster.stop(node).await;
        let found = verify(&cluster.directory(node)).unwrap();
        assert!(found.is_clean(), "{:?}", found.findings);
    }
    for node in 1..=4 {
        cluster.restart(node).await;
    }
    cluster.put(1003).await;
    cluster.wait_agreed().await;
    for node in 1..=4 {
        cluster.stop(node).await;
    }
}

impl Cluster {
    /// Runs retention at a node. Returns the number of removed segments.
    async fn retain(&self, node: u64) -> u64 {
        let store = std::sync::Arc::clone(self.nodes[&node].store());
        let retained = tokio::task::spawn_blocking(move || store.retain(None));
        retained.await.unwrap().unwrap().segments
    }

    /// Waits until all running nodes agree, and returns the offset of their first record. Their
    /// readers must begin at it.
    async fn first(&self) -> u64 {
        self.wait_agreed().await;
        let mut firsts = Vec::new();
        for node in self.nodes.values() {
            let info = node.store().topic("orders").unwrap();
            let count = info.last.0 + 1 - info.first.0;
            assert_eq!(records(node.store()) as u64, count);
            if info.first.0 > 2 {
                let after = ConsequenceOffset(info.first.0 - 2);
                let mut reader = node.store().read("orders", after).unwrap();
                let Err(StoreError::RecordsGone { first, .. }) = reader.next_page() else {
                    panic!("the record before the first one can be read");
                };
                assert_eq!(first, info.first.0);
            }
            firsts.push(info.first.0);
        }
        assert!(firsts.iter().all(|first| *first == firsts[0]), "{firsts:?}");
        firsts[0]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn retention_gives_all_nodes_the_same_first_record() {
    let mut cluster = Cluster::start(3, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    let mut limited = TopicOptions::default();
    limited.retention.records = Some(20);
    let options = &limited;
    cluster.write(1, Operation::Create { options }).await;
    let leader = cluster.leader().await;
    let followers: Vec<u64> = (1..=3).filter(|node| *node != leader).collect();
    // Segments end at different offsets on each node: one follower closes its segment every 7
    // records, the other one never.
    for nonce in 2..=100 {
        cluster.put(nonce).await;
        if nonce % 7 == 0 {
            cluster.lead(leader).await;
            cluster.retain(followers[0]).await;
        }
    }
    assert_eq!(cluster.first().await, 1, "a follower trims nothing");
    cluster.lead(leader).await;
    cluster.retain(leader).await;
    for nonce in 101..=130 {
        cluster.put(nonce).await;
    }
    cluster.lead(leader).await;
    assert_eq!(cluster.retain(leader).await, 1);
    assert_eq!(
        cluster.first().await,
        101,
        "the first record is after a segment of the leader"
    );
    cluster.lead(leader).await;
    assert!(cluster.retain(followers[0]).await > 10);
    assert_eq!(cluster.retain(followers[1]).await, 0);
    assert_eq!(cluster.first().await, 101);

    // A new leader continues.
    cluster.stop(leader).await;
    let next = cluster.leader().await;
    let mut nonce = 131;
    for _ in 0..2 {
        for _ in 0..30 {
            cluster.put(nonce).await;
            nonce += 1;
        }
        cluster.lead(next).await;
        cluster.retain(next).await;
    }
    let first = cluster.first().await;
    assert!(first > 130, "{first}");
    cluster.restart(leader).await;
    assert_eq!(
        cluster.first().await,
        first,
        "the entries of the log trim the topic"
    );

    // Add a node that gets a snapshot.
    for node in 1..=3 {
        cluster.purge(node).await;
    }
    cluster.add(4).await;
    cluster.add_learner(4).await;
    assert_eq!(cluster.first().await, first);
    assert!(cluster.nodes[&4].status().purged.is_some());
    for node in 1..=4 {
        cluster.stop(node).await;
        let found = verify(&cluster.directory(node)).unwrap();
        assert!(found.is_clean(), "{:?}", found.findings);
    }
    for node in 1..=4 {
        cluster.restart(node).await;
    }
    for _ in 0..30 {
        cluster.put(nonce).await;
        nonce += 1;
    }
    assert_eq!(cluster.first().await, first, "also after a restart");
    cluster.retain(cluster.leader().await).await;
    assert!(cluster.first().await > first);
}

/// The timer runs at a follower that was opened before the topic had limits.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_node_removes_the_files_of_trimmed_records() {
    let every = Some(Duration::from_millis(20));
    let timed = OpenOptions {
        retention_every: every,
        ..options()
    };
    let cluster = Cluster::start_with(3, CLUSTER, timed).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    let mut limited = TopicOptions::default();
    limited.retention.records = Some(20);
    let options = &limited;
    cluster.write(1, Operation::Create { options }).await;
    // Without the timer, a follower would have the few records in memory and no file.
    let is_removed = |node: u64| {
        let topic = cluster.directory(node).join("topics/00000000");
        let Ok(files) = std::fs::read_dir(topic) else {
            return false;
        };
        let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        !names.is_empty() && names.iter().all(|name| name != "0000000001.seg")
    };
    let mut nonce = 2;
    while !(1..=3).all(is_removed) {
        assert!(nonce < 5_000, "{:?}", [1, 2, 3].map(is_removed));
        cluster.put(nonce).await;
        nonce += 1;
    }
}

/// A voter that lacks many entries would delay the commits of a leader that has lost another
/// voter.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_learner_is_added_when_it_lacks_few_entries() {
    let mut cluster = Cluster::start(1, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    for nonce in 2..=200 {
        cluster.put(nonce).await;
    }
    cluster.add(2).await;
    let member = cluster.members[&2].clone();
    cluster.nodes[&1].add_learner(2, member).await.unwrap();
    let status = cluster.nodes[&1].status();
    let known = status.matching[&2].map_or(0, |id| id.index.0);
    let last = status.last.unwrap().index.0;
    assert!(last - known <= 64, "{known} of {last}");
    for node in [1, 2] {
        cluster.stop(node).await;
    }
}

/// Requests a join from a member; returns the text of a rejection.
async fn request_join(peer: &str, request: &JoinRequest) -> Result<NodeConfig, String> {
    let joined = join(&[peer.to_owned()], request, Duration::from_secs(30)).await;
    joined.map_err(|error| match error {
        NodeError::Refused(text) => text,
        other => panic!("{other}"),
    })
}

fn join_request(peer: &str) -> JoinRequest {
    JoinRequest {
        known: None,
        node: None,
        member: Member {
            peer: peer.to_owned(),
            ..Member::default()
        },
        engine: String::new(),
        is_synced: true,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_with_another_engine_does_not_join() {
    let mut cluster = Cluster::start(1, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.leader().await;
    let peer = cluster.members[&1].peer.clone();
    let mut other = join_request("127.0.0.1:1");
    other.engine = "wasmtime 1 x86_64".to_owned();
    let text = request_join(&peer, &other).await.unwrap_err();
    assert!(text.contains("`wasmtime 1 x86_64`"), "{text}");
    assert!(text.contains("no engine"), "{text}");
    assert_eq!(cluster.nodes[&1].status().members.len(), 1);
    cluster.stop(1).await;
}

/// Each of these requests is rejected with a text, and the cluster continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn impossible_joins_are_refused_without_effect() {
    let mut cluster = Cluster::start(3, CLUSTER).await;
    let mut members = cluster.members.clone();
    let first = members.get_mut(&1).unwrap();
    "weir://a:1 http://b:2".clone_into(&mut first.client);
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    let leader = cluster.leader().await;
    let peer = cluster.members[&leader].peer.clone();
    let known = |node, cluster| JoinRequest {
        known: Some(NodeConfig {
            node,
            cluster,
            incarnation: 7,
        }),
        ..join_request("127.0.0.1:1")
    };
    let mut taken = join_request("127.0.0.1:1");
    taken.node = Some(2);
    let mut high = join_request("127.0.0.1:1");
    high.node = Some(u64::MAX);
    let mut long = join_request("127.0.0.1:1");
    long.member.client = "x".repeat(256);
    let mut unsynced = join_request("127.0.0.1:1");
    unsynced.is_synced = false;
    let with_client = |client: &str| {
        let mut request = join_request("127.0.0.1:1");
        client.clone_into(&mut request.member.client);
        request
    };
    for (request, expected) in [
        (join_request("nonsense"), "`nonsense` is not a peer address"),
        (join_request(""), "is not a peer address"),
        (join_request("127.0.0.1:0"), "is not a peer address"),
        (
            join_request("a\u{1b}b:1"),
            "`a\\u{1b}b:1` is not a peer address",
        ),
        (
            with_client("javascript:alert(1)"),
            "are not client addresses",
        ),
        (
            with_client("weir://a:1\nhttp://b:2"),
            "are not client addresses",
        ),
        (
            with_client("weir://a:1 weir://"),
            "are not client addresses",
        ),
        (known(2, [9; 16]), "belongs to another cluster"),
        (known(7, CLUSTER), "node 7 is no longer a member"),
        (known(2, CLUSTER), "has another disk than node 2"),
        (taken, "an empty directory cannot be that node"),
        (join_request(&peer), "has the peer address"),
        (
            with_client("https://c:3 weir://a:1"),
            "has the client address weir://a:1; use another one (`--native HOST:PORT`)",
        ),
        (
            with_client("http://b:2"),
            "has the client address http://b:2; use another one (`--http HOST:PORT`)",
        ),
        (long, "256 bytes are too long"),
        (high, "is too large"),
        (unsynced, "start the node with --durability group"),
    ] {
        let text = request_join(&peer, &request).await.unwrap_err();
        assert!(text.contains(expected), "{text}");
    }
    let again = cluster.nodes[&leader].initialize(cluster.members.clone());
    assert!(again.await.is_err(), "a cluster is formed once");
    assert_eq!(cluster.nodes[&leader].status().members.len(), 3);
    cluster.put(2).await;

    // A learner that never catches up blocks no write.
    let added = request_join(&peer, &join_request(NOWHERE)).await.unwrap();
    cluster.wait_members(4).await;
    cluster.put(3).await;
    cluster.remove(added.node).await;
    // The number was removed, so the directory cannot join again under it.
    let text = request_join(&peer, &known(added.node, CLUSTER))
        .await
        .unwrap_err();
    assert!(text.contains("was removed from the cluster"), "{text}");
    // An empty directory cannot join under it either, even if other members were removed later.
    let mut again = join_request(NOWHERE);
    let newer = request_join(&peer, &again).await.unwrap();
    cluster.remove(newer.node).await;
    for number in [added.node, newer.node] {
        again.node = Some(number);
        let text = request_join(&peer, &again).await.unwrap_err();
        let expected = format!("node {number} was removed, and a number is used once");
        assert!(text.contains(&expected), "{text}");
    }
    cluster.wait_members(3).await;
    cluster.put(4).await;
    cluster.wait_agreed().await;
    for node in 1..=3 {
        cluster.stop(node).await;
    }
}

/// The configuration file of another node was copied to a node: the other nodes would send the
/// requests for the node to the other one. The address of a node that has ended is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_cannot_take_the_address_of_another_member_that_answers() {
    let mut cluster = Cluster::start(5, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    cluster.wait_agreed().await;
    let leader = cluster.leader().await;
    let before = cluster.nodes[&leader].status().members;
    let [moved, other] = [leader % 5 + 1, (leader + 1) % 5 + 1];
    let address = &before[&other].0.peer;
    let request = JoinRequest {
        known: Some(NodeConfig {
            node: moved,
            cluster: CLUSTER,
            incarnation: before[&moved].0.incarnation,
        }),
        ..join_request(address)
    };
    let peer = &before[&leader].0.peer;
    let text = request_join(peer, &request).await.unwrap_err();
    let expected = format!("node {other} has the peer address");
    assert!(text.contains(&expected), "{text}");
    assert_eq!(cluster.nodes[&leader].status().members, before);

    cluster.stop(other).await;
    request_join(peer, &request).await.unwrap();
    let has_moved = |status: &Status| status.members[&moved].0.peer == *address;
    cluster.nodes[&leader].until(has_moved).await.unwrap();
    for node in (1..=5).filter(|node| *node != other) {
        cluster.stop(node).await;
    }
}

/// Another leader could undo the change, and the node would not report its address again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_changed_address_is_acknowledged_after_its_commit() {
    let mut cluster = Cluster::start(2, CLUSTER).await;
    let mut members = cluster.members.clone();
    let proxy = Proxy::start(&members[&2].peer).await;
    members.get_mut(&2).unwrap().peer = proxy.address.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    cluster.lead(1).await;
    let known = cluster.nodes[&1].status().members;
    let request = JoinRequest {
        known: Some(NodeConfig {
            node: 2,
            cluster: CLUSTER,
            incarnation: known[&2].0.incarnation,
        }),
        ..join_request(NOWHERE)
    };
    // The leader does not reach a majority. The first request ends after 5 s without a commit.
    proxy.open.send_replace(false);
    let leader = [known[&1].0.peer.clone()];
    let joined = join(&leader, &request, Duration::from_secs(8)).await;
    assert!(
        matches!(joined, Err(NodeError::Unreachable(_))),
        "{joined:?}"
    );
    // The wrong address is not committed, and its commit needs the node at its earlier address.
    proxy.open.send_replace(true);
    let right = JoinRequest {
        known: request.known,
        ..join_request(&proxy.address)
    };
    // On a busy machine, node 2 may lead by now.
    let members = [leader[0].clone(), proxy.address.clone()];
    let corrected = join(&members, &right, PATIENCE).await;
    assert!(corrected.is_ok(), "{corrected:?}");
    for node in 1..=2 {
        cluster.stop(node).await;
    }
}

/// The leader has clients from before the change.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_reaches_a_node_at_its_new_address() {
    let mut cluster = Cluster::start(3, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    cluster.wait_agreed().await;
    let leader = cluster.leader().await;
    let moved = leader % 3 + 1;
    let known = cluster.nodes[&leader].status().members;
    cluster.stop(moved).await;
    let listener = cluster.listen().await;
    let address = listener.local_addr().unwrap().to_string();
    cluster.open(moved, listener).await;
    let request = JoinRequest {
        known: Some(NodeConfig {
            node: moved,
            cluster: CLUSTER,
            incarnation: known[&moved].0.incarnation,
        }),
        ..join_request(&address)
    };
    request_join(&known[&leader].0.peer, &request)
        .await
        .unwrap();
    let agreed = tokio::time::timeout(PATIENCE, cluster.wait_agreed()).await;
    agreed.expect("the leader reaches the node");
    for node in 1..=3 {
        cluster.stop(node).await;
    }
}

/// The other member names the earlier address of the leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_that_has_moved_records_its_address() {
    let mut cluster = Cluster::start(2, CLUSTER).await;
    let first = BTreeMap::from([(2, cluster.members[&2].clone())]);
    cluster.nodes[&2].initialize(first).await.unwrap();
    let leads = |status: &Status| status.role == Role::Leader;
    cluster.nodes[&2].until(leads).await.unwrap();
    let learner = cluster.members[&1].clone();
    cluster.nodes[&2].add_learner(1, learner).await.unwrap();
    let term = cluster.nodes[&2].status().term;
    cluster.stop(2).await;
    let listener = cluster.listen().await;
    let member = Member {
        peer: listener.local_addr().unwrap().to_string(),
        ..Member::default()
    };
    cluster.open(2, listener).await;
    let follows = |status: &Status| status.leader == Some(2) && status.term > term;
    cluster.nodes[&1].until(follows).await.unwrap();
    let announced = cluster.nodes[&2].announce(&member, &[]);
    let announced = tokio::time::timeout(PATIENCE, announced).await;
    announced.expect("the leader records its address");
    let known = cluster.nodes[&2].status().members;
    assert_eq!(known[&2].0.peer, member.peer);
    for node in [1, 2] {
        cluster.stop(node).await;
    }
}

/// A node was started with a wrong address, and then with its address again. Its log does not have
/// the wrong address.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_returns_to_its_address_after_it_has_reported_a_wrong_one() {
    let mut cluster = Cluster::start(3, CLUSTER).await;
    let mut members = cluster.members.clone();
    for member in members.values_mut() {
        member.client.clear();
    }
    cluster.nodes[&1].initialize(members.clone()).await.unwrap();
    cluster.create().await;
    cluster.wait_agreed().await;
    let leader = cluster.leader().await;
    let moved = leader % 3 + 1;
    let known = cluster.nodes[&leader].status().members;
    cluster.stop(moved).await;
    let wrong = JoinRequest {
        known: Some(NodeConfig {
            node: moved,
            cluster: CLUSTER,
            incarnation: known[&moved].0.incarnation,
        }),
        ..join_request(NOWHERE)
    };
    request_join(&known[&leader].0.peer, &wrong).await.unwrap();
    cluster.restart(moved).await;
    let returned = async {
        cluster.nodes[&moved].announce(&members[&moved], &[]).await;
        cluster.wait_agreed().await;
    };
    let returned = tokio::time::timeout(PATIENCE, returned).await;
    returned.expect("the leader reaches the node");
    for node in 1..=3 {
        cluster.stop(node).await;
    }
}

/// No leader has reached the node, so its log is empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_joined_with_a_wrong_address_reports_its_address() {
    let mut cluster = Cluster::start(1, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    let peer = cluster.members[&1].peer.clone();
    let joined = request_join(&peer, &join_request(NOWHERE)).await.unwrap();
    let listener = cluster.listen().await;
    let member = Member {
        peer: listener.local_addr().unwrap().to_string(),
        ..Member::default()
    };
    let directory = cluster.directory(joined.node);
    let node = Node::open(&directory, &cluster.options, joined, listener).await;
    let node = node.unwrap();
    let announced = tokio::time::timeout(PATIENCE, node.announce(&member, &[peer])).await;
    announced.expect("the leader reaches the node");
    let (known, votes) = node.status().members[&joined.node].clone();
    assert_eq!((known.peer, votes), (member.peer, true));
    node.close().await.unwrap();
    cluster.stop(1).await;
}

/// After it has reported its address, the node knows only members from before its join at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_catches_up_slowly_votes_at_last() {
    let mut cluster = Cluster::start(1, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    for nonce in 2..=1000 {
        cluster.put(nonce).await;
    }
    let peer = cluster.members[&1].peer.clone();
    let listener = cluster.listen().await;
    let proxy = Proxy::start(&listener.local_addr().unwrap().to_string()).await;
    proxy.open.send_replace(false);
    let request = join_request(&proxy.address);
    let joined = request_join(&peer, &request).await.unwrap();
    let directory = cluster.directory(joined.node);
    let node = Node::open(&directory, &cluster.options, joined, listener).await;
    let node = node.unwrap();
    let peers = [peer];
    let mut announcing = Box::pin(node.announce(&request.member, &peers));
    // The node waits 3 s for a leader before it reports its address.
    let waiting = tokio::time::timeout(Duration::from_secs(4), &mut announcing).await;
    assert!(waiting.is_err(), "no leader reaches the node");
    proxy.open.send_replace(true);
    let announced = tokio::time::timeout(PATIENCE, announcing).await;
    announced.expect("the node catches up");
    assert!(node.status().members[&joined.node].1, "the node votes");
    node.close().await.unwrap();
    cluster.stop(1).await;
}

/// The node knows no member, so its reports reach none.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_was_removed_before_a_leader_reached_it_learns_its_removal() {
    let mut cluster = Cluster::start(1, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    let peer = cluster.members[&1].peer.clone();
    let joined = request_join(&peer, &join_request(NOWHERE)).await.unwrap();
    cluster.remove(joined.node).await;
    let listener = cluster.listen().await;
    let directory = cluster.directory(joined.node);
    let node = Node::open(&directory, &cluster.options, joined, listener).await;
    let node = node.unwrap();
    let member = join_request(NOWHERE).member;
    let removed = async {
        tokio::select! {
            () = node.announce(&member, std::slice::from_ref(&peer)) => {}
            () = node.removed() => {}
        }
    };
    tokio::time::timeout(PATIENCE, removed).await.unwrap();
    assert_eq!(node.status().role, Role::Removed);
    node.close().await.unwrap();
    cluster.stop(1).await;
}

/// An empty directory gets the remedy that fits a number that no node has used.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reserved_number_is_named_to_an_empty_directory() {
    let mut cluster = Cluster::start(1, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.leader().await;
    let peer = cluster.members[&1].peer.clone();
    let number = cluster.nodes[&1].reserve("127.0.0.1:1").await.unwrap();
    let text = request_join(&peer, &join_request("127.0.0.1:1"))
        .await
        .unwrap_err();
    assert!(text.contains(&format!("`--node {number}`")), "{text}");
    let mut elsewhere = join_request("127.0.0.1:2");
    elsewhere.node = Some(number);
    let text = request_join(&peer, &elsewhere).await.unwrap_err();
    let expected = format!("the number {number} is reserved for a node with the peer address");
    assert!(text.contains(&expected), "{text}");
    let mut reserved = join_request("127.0.0.1:1");
    reserved.node = Some(number);
    assert_eq!(request_join(&peer, &reserved).await.unwrap().node, number);
    // The number now belongs to a disk.
    let text = request_join(&peer, &reserved).await.unwrap_err();
    assert!(text.contains("it has forgotten its votes"), "{text}");
    cluster.stop(1).await;
}

/// Each of these changes is rejected with a text, and the cluster continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn impossible_changes_are_refused_without_effect() {
    let mut cluster = Cluster::start(1, CLUSTER).await;
    let alone = cluster.members.clone();
    let mut members = alone.clone();
    let unreachable = Member {
        peer: NOWHERE.to_owned(),
        ..Member::default()
    };
    members.insert(2, unreachable);
    let refused = cluster.nodes[&1].initialize(members).await.unwrap_err();
    assert!(
        matches!(&refused, NodeError::Unreachable(text) if text.contains(NOWHERE)),
        "{refused}"
    );
    cluster.nodes[&1].initialize(alone).await.unwrap();
    cluster.create().await;
    let node = &cluster.nodes[&1];
    let learner = node.reserve(NOWHERE).await.unwrap();
    for (refused, expected) in [
        (node.remove(1).await, "node 1 is the only voter"),
        (node.remove(7).await, "node 7 is not a member"),
        (node.transfer_leadership(7).await, "node 7 does not vote"),
        (node.transfer_leadership(learner).await, "does not vote"),
        (node.change_voters([1, 7]).await, "node 7 is not a member"),
        (
            node.reserve("nonsense").await.map(drop),
            "is not a peer address",
        ),
        (
            node.reserve(NOWHERE).await.map(drop),
            "has the peer address",
        ),
    ] {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(node.status().members.len(), 2);
    // The reply to the first request may be lost.
    node.remove(learner).await.unwrap();
    let text = node.remove(learner).await.unwrap_err().to_string();
    let expected = format!("node {learner} is not a member: it was removed");
    assert!(text.contains(&expected), "{text}");
    cluster.put(2).await;
    cluster.stop(1).await;
}

/// Without this voter, no majority could commit the joint membership or revert it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_voter_that_the_majority_needs_is_not_removed() {
    let mut cluster = Cluster::start(3, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    cluster.wait_agreed().await;
    let leader = cluster.leader().await;
    let [lost, other] = [leader % 3 + 1, (leader + 1) % 3 + 1];
    cluster.stop(lost).await;
    cluster.put(2).await;
    let silent = format!("do not answer: {lost};");
    let remove = async |node: &Node| node.remove(other).await;
    cluster.refused_at_leader(&silent, &remove).await;
    let change = async |node: &Node| node.change_voters([leader, lost]).await;
    cluster.refused_at_leader(&silent, &change).await;
    // The unreachable node does not become the leader either: the election would stop the writes.
    let why = format!("node {lost} does not answer");
    let end = Instant::now() + PATIENCE;
    loop {
        let node = &cluster.nodes[&cluster.leader().await];
        let term = node.status().term;
        let refused = node.transfer_leadership(lost).await.unwrap_err();
        let is_unready = matches!(&refused, NodeError::NotReady(text) if text.contains(&why));
        if is_unready && node.status().term == term {
            break;
        }
        // Another election may have ended meanwhile, but not in each attempt.
        assert!(Instant::now() < end, "{refused} in term {term}");
    }
    cluster.put(3).await;
    cluster.remove(lost).await;
    cluster.put(4).await;
    cluster.wait_agreed().await;
    // The members report the removal to the removed node.
    cluster.restart(lost).await;
    let is_removed = |status: &Status| status.role == Role::Removed;
    let removed = cluster.nodes[&lost].until(is_removed).await.unwrap();
    assert_eq!(removed.leader, None);
    for node in [leader, other, lost] {
        cluster.stop(node).await;
    }
}

/// A membership with more nodes could not be read.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cluster_has_at_most_64_nodes() {
    let mut cluster = Cluster::start(1, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    for port in 2..=64 {
        let address = format!("127.0.0.1:{port}");
        cluster.nodes[&1].reserve(&address).await.unwrap();
    }
    let more = cluster.nodes[&1].reserve("127.0.0.1:65").await;
    let more = more.unwrap_err().to_string();
    assert!(more.contains("64 nodes, which is the limit"), "{more}");
    let peer = cluster.members[&1].peer.clone();
    let text = request_join(&peer, &join_request("127.0.0.1:65"))
        .await
        .unwrap_err();
    assert!(text.contains("64 nodes, which is the limit"), "{text}");
    cluster.put(2).await;
    cluster.stop(1).await;
    cluster.restart(1).await;
    cluster.put(3).await;
    assert_eq!(cluster.nodes[&1].status().members.len(), 64);
    cluster.stop(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lost_disk_is_refused_and_replaced_under_a_new_number() {
    let mut cluster = Cluster::start(3, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    cluster.put(2).await;
    cluster.wait_agreed().await;
    let leader = cluster.leader().await;
    let lost = leader % 3 + 1;
    cluster.stop(lost).await;
    std::fs::remove_dir_all(cluster.directory(lost)).unwrap();
    cluster.restart(lost).await;
    let empty = cluster.nodes.remove(&lost).unwrap();
    cluster.put(3).await;
    cluster.wait_agreed().await;
    // No request must make the node adopt a term.
    let status = empty.status();
    assert_eq!((status.term, status.last), (0, None));
    assert!(status.members.is_empty(), "{status:?}");
    empty.close().await.unwrap();

    cluster.remove(lost).await;
    cluster.add(4).await;
    cluster.add_learner(4).await;
    let third = lost % 3 + 1;
    cluster.change_voters(&[leader, third, 4]).await;
    cluster.put(4).await;
    cluster.wait_agreed().await;
    // The number of a removed node is never used again, for voters and learners.
    let peer = cluster.members[&leader].peer.clone();
    let learner = cluster.reserve(NOWHERE).await;
    let change = async |node: &Node| node.change_voters([leader, third, 4, learner]).await;
    let unready = format!("node {learner} has entry 0");
    cluster.refused_at_leader(&unready, &change).await;
    cluster.remove(learner).await;
    for removed in [lost, learner] {
        let mut empty = join_request("127.0.0.1:1");
        empty.node = Some(removed);
        let text = request_join(&peer, &empty).await.unwrap_err();
        assert!(text.contains("a number is used once"), "{text}");
    }
    for node in [leader, third, 4] {
        assert_eq!(records(cluster.nodes[&node].store()), 4);
        cluster.stop(node).await;
    }
}

fn copy_directory(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

impl Cluster {
    /// Replaces the directory of a stopped node with an older copy.
    fn replace(&self, node: u64, copy: &std::path::Path) {
        std::fs::remove_dir_all(self.directory(node)).unwrap();
        copy_directory(copy, &self.directory(node));
    }

    /// Opens a node that must be rejected, and returns the text of the error.
    async fn open_refused(&self, node: u64) -> String {
        let listener = TcpListener::bind(&self.members[&node].peer).await.unwrap();
        let config = NodeConfig {
            node,
            cluster: self.id,
            incarnation: 0,
        };
        let opened = Node::open(&self.directory(node), &options(), config, listener).await;
        match opened.unwrap_err() {
            NodeError::OlderCopy(text) => text,
            other => panic!("{other}"),
        }
    }
}

/// Once with a backup and once with a copy of the directory. The new node 1 has another disk than
/// node 1 of the old cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_join_a_copy_of_a_lost_cluster_even_if_they_stop_after_the_snapshot() {
    let mut old = Cluster::start(3, CLUSTER).await;
    let members = old.members.clone();
    old.nodes[&1].initialize(members).await.unwrap();
    old.create().await;
    for nonce in 2..=20 {
        old.put(nonce).await;
    }
    old.wait_agreed().await;
    old.purge(2).await;
    let backup = old.directories.path().join("backup");
    old.nodes[&2].store().backup(&backup).unwrap();
    let copied = old.directories.path().join("copied");
    old.stop(2).await;
    copy_directory(&old.directory(2), &copied);
    std::fs::remove_dir_all(copied.join("cluster")).unwrap();
    for (from, force) in [(backup, false), (copied, true)] {
        let mut new = Cluster::start(0, CLUSTER).await;
        let directory = new.directory(1);
        std::fs::rename(&from, &directory).unwrap();
        let listener = new.listen().await;
        let peer = listener.local_addr().unwrap().to_string();
        let member = join_request(&peer).member;
        new.members.insert(1, member.clone());
        if force {
            // The old cluster still runs, and acknowledges writes.
            let refused = Node::convert(&directory, &options(), 1, &member, false);
            let refused = refused.unwrap_err();
            assert!(
                matches!(&refused, NodeError::OtherVoters { voters } if voters == "1, 2, 3"),
                "{refused}"
            );
        }
        Node::convert(&directory, &options(), 1, &member, force).unwrap();
        new.open(1, listener).await;
        assert_eq!(new.leader().await, 1);

        let listener = new.listen().await;
        let own = listener.local_addr().unwrap();
        let joined = request_join(&peer, &join_request(&own.to_string()))
            .await
            .unwrap();
        let directory = new.directory(joined.node);
        let node = Node::open(&directory, &options(), joined, listener).await;
        let node = node.unwrap();
        let has_snapshot = || {
            let names = directory.join("snapshots").read_dir();
            names.is_ok_and(|mut names| {
                names.any(|name| {
                    name.unwrap()
                        .path()
                        .extension()
                        .is_some_and(|e| e == "snap")
                })
            })
        };
        while !has_snapshot() {
            tokio::task::yield_now().await;
        }
        node.close().await.unwrap();
        let listener = TcpListener::bind(own).await.unwrap();
        let node = Node::open(&directory, &options(), joined, listener).await;
        let node = node.unwrap();
        let join = async {
            let is_member = |status: &Status| status.members.contains_key(&status.node);
            node.until(is_member).await.unwrap();
            node.become_voter().await.unwrap();
        };
        let joined = tokio::time::timeout(Duration::from_mins(1), join);
        joined.await.expect("the node joins");
        node.close().await.unwrap();
        new.stop(1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_older_copy_of_a_directory_is_refused() {
    let mut cluster = Cluster::start(3, CLUSTER).await;
    let members = cluster.members.clone();
    cluster.nodes[&1].initialize(members).await.unwrap();
    cluster.create().await;
    cluster.put(2).await;
    cluster.wait_agreed().await;
    let old = cluster.leader().await % 3 + 1;
    let copies = tempfile::tempdir().unwrap();
    let [before, last] = ["before", "last"].map(|name| copies.path().join(name));
    cluster.stop(old).await;
    copy_directory(&cluster.directory(old), &before);
    cluster.restart(old).await;
    cluster.put(3).await;
    cluster.wait_agreed().await;
    // A copy of the log of a running process lacks the entries that are not written yet.
    copy_directory(&cluster.directory(old), &last);
    for nonce in 4..=20 {
        cluster.put(nonce).await;
    }
    cluster.wait_agreed().await;
    cluster.stop(old).await;
    for copy in [&before, &last] {
        let now = copies.path().join("now");
        std::fs::rename(cluster.directory(old), &now).unwrap();
        copy_directory(copy, &cluster.directory(old));
        let text = cluster.open_refused(old).await;
        let expected = format!("the directory of node {old} is an older copy");
        assert!(text.contains(&expected), "{text}");
        // The original directory still works.
        cluster.replace(old, &now);
        std::fs::remove_dir_all(&now).unwrap();
        cluster.restart(old).await;
        cluster.put(21).await;
        cluster.wait_agreed().await;
        cluster.stop(old).await;
    }

    // The nodes that have the report of the newer state restart: the report is on their disks.
    for node in 1..=3 {
        if node != old {
            cluster.stop(node).await;
        }
    }
    cluster.replace(old, &last);
    cluster.restart(old).await;
    for node in 1..=3 {
        if node != old {
            cluster.restart(node).await;
        }
    }
    let copy = &cluster.nodes[&old];
    copy.until(|status| status.role == Role::Ended).await.ok();
    assert_eq!(copy.status().role, Role::Ended);
    cluster.stop(old).await;
    cluster.put(22).await;
    cluster.wait_agreed().await;
    for node in 1..=3 {
        if node != old {
            assert_eq!(records(cluster.nodes[&node].store()), 22);
            cluster.stop(node).await;
        }
    }
}
