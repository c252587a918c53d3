//! A node whose state differs from that of the leader, with real directories and connections.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use weir_core::TopicOptions;
use weir_core::intention::{Intention, Operation};
use weir_raft::{Member, Node, NodeConfig, Status};
use weir_store::{Durability, OpenOptions};

/// Time after which the test does not begin again.
const PATIENCE: Duration = Duration::from_mins(1);

/// A node with its directory and its address.
type Opened = (tempfile::TempDir, Node, Member);

async fn open(node: u64) -> Opened {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let member = Member {
        peer: listener.local_addr().unwrap().to_string(),
        ..Member::default()
    };
    let config = NodeConfig {
        node,
        cluster: [8; 16],
        incarnation: 0,
    };
    let options = OpenOptions {
        durability: Durability::Memory,
        ..OpenOptions::default()
    };
    let node = Node::open(directory.path(), &options, config, listener).await;
    (directory, node.unwrap(), member)
}

async fn propose(node: &Node, topic: &str, operation: Operation<'_>) -> Result<(), String> {
    let proposal = node.store().propose(&[Intention::new(topic, operation)]);
    let outcomes = proposal.unwrap().await.unwrap();
    let mut outcomes = outcomes.iter();
    let rejected = outcomes.find_map(|outcome| outcome.commit().and_then(|commit| commit.reason));
    rejected.map_or(Ok(()), |code| Err(format!("{code:?}")))
}

async fn put(node: &Node, topic: &str, value: &str) -> Result<(), String> {
    let (key, value) = (&b"k"[..], value.as_bytes());
    propose(node, topic, Operation::Put { key, value }).await
}

async fn create(node: &Node, topic: &str) {
    let options = &TopicOptions::default();
    let operation = Operation::Create { options };
    propose(node, topic, operation).await.unwrap();
}

/// Replaces the state of a node, which has applied all of its log, with a state that has another
/// record in topic `odd`.
async fn replace_state(node: &Node) {
    let applied = node.status().applied.unwrap();
    let (_directory, other, member) = open(1).await;
    other
        .initialize(BTreeMap::from([(1, member)]))
        .await
        .unwrap();
    let leads = |status: &Status| status.leader == Some(1);
    other.until(leads).await.unwrap();
    create(&other, "t").await;
    create(&other, "odd").await;
    put(&other, "odd", "another value").await.unwrap();
    while other.status().applied.unwrap().index < applied.index {
        put(&other, "t", "v").await.unwrap();
    }
    assert_eq!(
        other.status().applied,
        Some(applied),
        "equal terms and lengths of the log"
    );
    let differing = node.copy_state_of(&other).unwrap();
    assert!(differing.contains(&"odd".to_owned()), "{differing:?}");
    other.close().await.unwrap();
}

/// Writes until a node was repaired `times` times.
async fn wait_repaired(leader: &Node, node: &Node, times: u64) {
    while node.status().repairs < times {
        // The topic may be quarantined. The entry is appended nevertheless.
        drop(put(leader, "t", "v").await);
    }
    let last = leader.status().last;
    let caught_up = |status: &Status| status.applied >= last;
    node.until(caught_up).await.unwrap();
    assert!(!node.status().diverged);
}

/// Repairs the second of three voters twice. The first one leads.
async fn check(nodes: Rc<[Opened; 3]>) {
    let [(_, leader, one), (_, second, two), (_, third, three)] = &*nodes;
    leader
        .initialize(BTreeMap::from([(1, one.clone())]))
        .await
        .unwrap();
    let leads = |status: &Status| status.leader == Some(1);
    leader.until(leads).await.unwrap();
    leader.add_learner(2, two.clone()).await.unwrap();
    leader.add_learner(3, three.clone()).await.unwrap();
    leader.change_voters([1, 2, 3]).await.unwrap();
    create(leader, "t").await;
    create(leader, "odd").await;
    put(leader, "odd", "a value").await.unwrap();
    for times in 1..=2 {
        let last = leader.status().last;
        let caught_up = |status: &Status| status.applied >= last;
        second.until(caught_up).await.unwrap();
        third.until(caught_up).await.unwrap();
        replace_state(second).await;
        assert_ne!(second.store().digest(), leader.store().digest());
        wait_repaired(leader, second, times).await;
        assert_eq!(second.store().digest(), leader.store().digest());
        let result = put(leader, "odd", "a value").await;
        match times {
            1 => result.unwrap(),
            _ => assert_eq!(result.unwrap_err(), "Quarantined"),
        }
    }
    for node in [second, third, leader] {
        assert_eq!((node.status().diverged, node.status().term), (false, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_diverged_node_is_repaired_once_and_then_the_topic_is_quarantined() {
    let end = Instant::now() + PATIENCE;
    loop {
        let nodes = Rc::new([open(1).await, open(2).await, open(3).await]);
        let local = tokio::task::LocalSet::new();
        let checked = local.spawn_local(check(Rc::clone(&nodes)));
        let checked = local.run_until(checked).await;
        let terms = nodes.each_ref().map(|(_, node, _)| node.status().term);
        for (_, node, _) in &*nodes {
            node.shut_down().await.unwrap();
        }
        // The replaced state is one of term 1. On a busy machine, another node may have been
        // elected; then the test begins again.
        if checked.is_ok() || terms == [1; 3] || end < Instant::now() {
            checked.unwrap();
            return;
        }
    }
}
