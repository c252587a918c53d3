//! Tests reads at a node of a cluster that lags or has no majority: each kind of read returns what
//! its consistency promises, or is rejected. Also tests sessions that are opened without a leader.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir::query::Bounds;
use weir::{
    ClientId, ConnectOptions, ConsequenceOffset, Consistency, ErrorCode, Intention, Operation,
    ReadFrom, StoreError, TopicQueryOptions, TopicStep, Weir, WeirError,
};

use crate::cluster::{Cluster, refusal, signal};
use crate::{TIMEOUT, ask, weir};

/// Whether a read sees the record at an offset of the topic. A query waits up to the given time.
type Sees = fn(&Weir, u64, Duration) -> Result<bool, WeirError>;

/// Every kind of read except those of keys, which are linear by default.
const READS: [(&str, Sees); 6] = [
    ("topic", |weir, offset, _| {
        let info = weir.topic("orders")?.try_info()?;
        Ok(info.is_some_and(|info| info.last.0 >= offset))
    }),
    ("topics", |weir, offset, _| {
        let topics = weir.topics(false)?;
        let orders = topics.iter().find(|topic| topic.name == "orders");
        Ok(orders.is_some_and(|topic| topic.last.0 >= offset))
    }),
    ("group", |weir, offset, _| {
        let group = weir.topic("orders")?.group_info("g")?;
        Ok(group.is_some_and(|group| group.last.0 >= offset))
    }),
    ("record", |weir, offset, _| {
        let record = weir.topic("orders")?.at(ConsequenceOffset(offset))?;
        Ok(record.is_some())
    }),
    ("listener", |weir, offset, _| {
        let from = ReadFrom::After(ConsequenceOffset(offset - 1));
        let mut listener = weir.topic("orders")?.listener(from)?;
        Ok(listener.next_page()?.is_some())
    }),
    ("query", |weir, offset, patience| {
        let mut options = TopicQueryOptions::new(["orders"]);
        options.from = ReadFrom::After(ConsequenceOffset(offset - 1));
        options.patience = patience;
        let step = weir.query(options)?.next(Bounds::default(), None)?;
        Ok(matches!(step, TopicStep::Page(_)))
    }),
];

fn connect(at: &str, consistency: Option<Consistency>) -> Weir {
    let mut options = ConnectOptions::default();
    options.consistency = consistency;
    options.patience = TIMEOUT;
    Weir::connect_with(at, &options).unwrap()
}

/// The reads over HTTP.
const REQUESTS: [&str; 8] = [
    "GET /v1/topics?",
    "GET /v1/topics/orders?",
    "GET /v1/topics/orders/events?limit=1&",
    "GET /v1/topics/orders/events/2?",
    "GET /v1/topics/orders/keys?",
    "GET /v1/topics/orders/groups?",
    "GET /v1/topics/orders/groups/g?",
    "POST /v1/topics/orders/groups/idle/claim?member=m&",
];

#[test]
fn every_linear_read_returns_acknowledged_writes() {
    let place = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(place.path(), 3);
    let client = Weir::connect(&cluster.at).unwrap();
    let topic = client.topic("orders").unwrap();
    topic.ensure().unwrap();
    let put = |n: u64| {
        let verdict = topic.put("k", n.to_string()).unwrap();
        verdict.offset().unwrap().0
    };
    put(0);
    let leader = cluster.leader();
    let leader_http = cluster.nodes[&leader].http.clone();
    let open = |group: &str| {
        let line = format!("PUT /v1/topics/orders/groups/{group}");
        let answer = ask(&leader_http, &line, r#"{"from":"end"}"#);
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    };
    open("g");
    cluster.wait_until_equal();
    let mut others = cluster.nodes.keys().filter(|node| **node != leader);
    let (follower, other) = (*others.next().unwrap(), *others.next().unwrap());
    let (native, http, pid) = {
        let follower = &cluster.nodes[&follower];
        (follower.native.clone(), follower.http.clone(), follower.pid)
    };
    let linear = connect(&native, Some(Consistency::Linear));
    for (kind, sees) in READS {
        for n in 1..=3 {
            // The node misses the write, and must not respond before it has applied it.
            assert!(signal(pid, "STOP"));
            let offset = put(n);
            assert!(signal(pid, "CONT"));
            assert!(sees(&linear, offset, TIMEOUT).unwrap(), "{kind} {n}");
        }
    }
    let newest = put(4);
    // Only the leader responds under its lease, so the client follows the redirect of this node.
    let leased = connect(&native, Some(Consistency::Leader));
    for (kind, sees) in READS {
        assert!(sees(&leased, newest, TIMEOUT).unwrap(), "{kind}");
    }
    // All records are done in this group, so a claim needs no entry of the log.
    open("idle");
    cluster.wait_until_equal();

    cluster.kill(leader);
    cluster.kill(other);
    let local = connect(&native, None);
    std::thread::scope(|threads| {
        for (kind, sees) in READS {
            assert!(sees(&local, newest, TIMEOUT).unwrap(), "{kind}");
            let native = &native;
            threads.spawn(move || {
                let linear = connect(native, None).with_consistency(Consistency::Linear);
                let refused = refusal(|patience| sees(&linear.within(patience), newest, patience));
                let is_refused = matches!(
                    &refused,
                    WeirError::Store(StoreError::Remote {
                        code: ErrorCode::NoLeader,
                        ..
                    })
                );
                assert!(is_refused, "{kind}: {refused}");
            });
        }
        for request in REQUESTS {
            let http = &http;
            threads.spawn(move || {
                for (level, status) in [("local", "200"), ("linear", "503")] {
                    let line = format!("{request}consistency={level}");
                    let answer = ask(http, &line, "");
                    let head = format!("HTTP/1.1 {status} ");
                    assert!(answer.starts_with(&head), "{line}: {answer}");
                }
            });
        }
        threads.spawn(|| reads_of_one_connection_wait_together(&native));
        threads.spawn(|| a_position_that_is_not_applied_is_not_an_error_of_the_client(&http));
    });
}

/// Reads at a position, or from a stream, that the node does not have. The other nodes may have it.
fn a_position_that_is_not_applied_is_not_an_error_of_the_client(http: &str) {
    for line in [
        "GET /ds/orders?offset=0000000000009999_0000000000000000",
        "GET /ds/none?offset=0000000000000001_0000000000000000",
    ] {
        let answer = ask(http, line, "");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{line}: {answer}");
    }
    let answer = ask(http, "GET /ds/none?offset=-1", "");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}

/// Each read alone would wait for 2 s, and the connection would do nothing else meanwhile.
fn reads_of_one_connection_wait_together(native: &str) {
    const READS: usize = 60;
    let address = native.trim_start_matches("weir://");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut requests = "|\n\n_request_hello\n|\n".to_owned();
    let read = "\n:_topic\torders\n:_key\tk\n_request_get\n|\n";
    requests.push_str(&read.repeat(READS));
    let begun = Instant::now();
    stream.write_all(requests.as_bytes()).unwrap();
    let mut answers = Vec::new();
    let refused = "_failure_leader_absent";
    while String::from_utf8_lossy(&answers).matches(refused).count() < READS {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&answers));
        answers.extend_from_slice(&part[..count]);
    }
    assert!(begun.elapsed() < TIMEOUT, "{:?}", begun.elapsed());
}

/// A query that began at one node and continues at another one has every record up to its last
/// intention, even if the other node lags.
#[test]
fn a_query_that_moves_to_a_node_that_lags_ends_with_its_last_record() {
    const RECORDS: u64 = 3_000;
    let place = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(place.path(), 3);
    let client = Weir::connect(&cluster.at).unwrap();
    let topic = client.topic("orders").unwrap();
    topic.ensure().unwrap();
    cluster.wait_until_equal();
    let leader = cluster.leader();
    let lagging = *cluster.nodes.keys().find(|node| **node != leader).unwrap();
    let pid = cluster.nodes[&lagging].pid;
    assert!(signal(pid, "STOP"));
    let mut session = client.session(ClientId([7; 16]));
    let (key, value) = (b"k", vec![b'x'; 4 << 10]);
    let put = Operation::Put { key, value: &value };
    let put = Intention::new("orders", put);
    for _ in 0..RECORDS / 100 {
        let verdicts = session.execute(&vec![put; 100]).unwrap();
        assert!(verdicts.iter().all(weir::Verdict::is_valid), "{verdicts:?}");
    }
    let at = format!(
        "{},{}",
        cluster.nodes[&leader].native,
        cluster.nodes[&lagging].native.trim_start_matches("weir://")
    );
    let reader = Weir::connect(&at).unwrap();
    let mut query = reader.query(TopicQueryOptions::new(["orders"])).unwrap();
    let mut found = 0;
    let bounds = Bounds {
        items_max: 10,
        ..Bounds::default()
    };
    let mut is_moved = false;
    loop {
        match query.next(bounds, None).unwrap() {
            TopicStep::Page(page) => found += page.items().len() as u64,
            TopicStep::Done => break,
            TopicStep::Idle => panic!("a query without a deadline waits"),
        }
        if !is_moved {
            is_moved = true;
            cluster.kill(leader);
            assert!(signal(pid, "CONT"));
        }
    }
    assert_eq!(found, RECORDS);
}

#[test]
fn a_command_that_follows_continues_after_a_time_without_a_leader() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(place.path(), 3);
    let client = Weir::connect(&cluster.at).unwrap();
    let topic = client.topic("orders").unwrap();
    topic.ensure().unwrap();
    topic.put("k", "1").unwrap().ensure_valid().unwrap();
    cluster.wait_until_equal();
    let leader = cluster.leader();
    let node = *cluster.nodes.keys().find(|node| **node != leader).unwrap();
    let others: Vec<_> = cluster
        .nodes
        .iter()
        .filter(|(other, _)| **other != node)
        .map(|(_, other)| other.pid)
        .collect();
    for pid in &others {
        assert!(signal(*pid, "STOP"));
    }
    // Through the directory of the node, whose clients wait for 3 s instead of 30 s.
    let at = format!("nodes/node-{node}");
    let mut tail = weir(place.path())
        .args(["--at", &at, "--consistency", "linear"])
        .args(["tail", "orders", "-f", "--type", "put", "-o", "raw"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut notes = BufReader::new(tail.stderr.take().unwrap()).lines();
    let mut values = BufReader::new(tail.stdout.take().unwrap()).lines();
    let retries = notes.any(|note| note.unwrap().ends_with(": retrying"));
    for pid in &others {
        assert!(signal(*pid, "CONT"));
    }
    assert!(retries);
    topic.put("k", "2").unwrap().ensure_valid().unwrap();
    for expected in ["1", "2"] {
        assert_eq!(values.next().unwrap().unwrap(), expected);
    }
    tail.kill().unwrap();
    tail.wait().unwrap();
}

/// The session tries the stopped leader first.
#[test]
fn a_session_that_is_opened_while_the_leader_is_stopped_waits_for_the_next_leader() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(place.path(), 3);
    let leader = cluster.leader();
    let others = cluster.nodes.keys().filter(|node| **node != leader);
    let nodes = std::iter::once(&leader).chain(others);
    let addresses: Vec<_> = nodes
        .map(|node| cluster.nodes[node].native.trim_start_matches("weir://"))
        .collect();
    let mut options = ConnectOptions::default();
    // Less than an election takes.
    options.connect_timeout = Duration::from_secs(1);
    let at = format!("weir://{}", addresses.join(","));
    let client = Weir::connect_with(&at, &options).unwrap();
    client.topic("orders").unwrap().ensure().unwrap();
    let pid = cluster.nodes[&leader].pid;
    assert!(signal(pid, "STOP"));
    let mut session = client.session(ClientId([3; 16]));
    let next = session.try_next_nonce();
    let (key, value) = (b"k", b"v");
    let put = Intention::new("orders", Operation::Put { key, value });
    let verdicts = session.execute(&[put]);
    assert!(signal(pid, "CONT"));
    assert_eq!(next.unwrap(), 1);
    let verdicts = verdicts.unwrap();
    assert!(verdicts[0].is_valid(), "{verdicts:?}");
}

#[test]
fn a_session_that_is_opened_without_a_majority_fails_with_no_leader() {
    static IS_WAITING: AtomicBool = AtomicBool::new(false);
    let place = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(place.path(), 3);
    let leader = cluster.leader();
    let nodes: Vec<u64> = cluster.nodes.keys().copied().collect();
    let left = *nodes.iter().find(|node| **node != leader).unwrap();
    let mut options = ConnectOptions::default();
    // Each of the three nodes has more than the 2 s after which it refuses the session.
    options.connect_timeout = Duration::from_secs(30);
    options.patience = Duration::from_secs(8);
    options.on_wait = Some(|_| IS_WAITING.store(true, Ordering::Relaxed));
    let client = Weir::connect_with(&cluster.nodes[&left].native, &options).unwrap();
    for node in nodes.into_iter().filter(|node| *node != left) {
        cluster.kill(node);
    }
    let session = client.session(ClientId([3; 16]));
    let error = session.try_next_nonce().unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoLeader, "{error}");
    let native = &cluster.nodes[&left].native;
    let text = format!("{native} answered NO_LEADER: ");
    assert!(error.to_string().contains(&text), "{error}");
    assert!(IS_WAITING.load(Ordering::Relaxed));
}
