//! A client that is redirected.
//!
//! The redirecting server is a script: a socket and the codec of the product. The target of the
//! redirect is a real server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir::{ConnectOptions, ErrorCode, StoreError, Weir, WeirError};
use weir_protocol::{Deframer, Encoder, HelloOk, Listen, Message, Packet, RefusalMessage};

use crate::world::{CLIENT, UNREACHABLE, World, put};

/// What the script does with a connection: redirects its HELLO to an address, or its first request
/// after HELLO.
#[derive(Clone)]
pub(crate) enum Script {
    /// Responds to HELLO and, with `true`, reports that a topic exists; ignores all other requests.
    Silent(bool),
    Hello(String),
    /// Has a topic with this page, and lags: refuses two requests for records up to an intention,
    /// and ends those for all records at once.
    Lagging(Vec<u8>),
    /// Responds to HELLO with this store id; refuses all other requests, as it knows no leader.
    Leaderless([u8; 16]),
    /// Executes writes, describes the exclusive group `g` before the first write, and refuses all
    /// other requests.
    Owner,
    /// Redirects the first request, with this store id in HELLO.
    Request(String, [u8; 16]),
}

/// The accepted connections, with the token of each; also the writes of `Script::Owner`.
pub(crate) type Seen = Arc<Mutex<Vec<Vec<u8>>>>;

/// Runs a script for each connection; the last script is repeated.
pub(crate) fn peer(scripts: Vec<Script>) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Seen::default();
    let tokens = Arc::clone(&seen);
    // Ends with the process.
    std::thread::spawn(move || {
        let last = scripts.last().cloned();
        let mut scripts = scripts.into_iter();
        for stream in listener.incoming() {
            let script = scripts.next().or_else(|| last.clone()).unwrap();
            let tokens = Arc::clone(&tokens);
            std::thread::spawn(move || serve(stream.unwrap(), &script, &tokens));
        }
    });
    (address, seen)
}

fn serve<S: Read + Write>(mut stream: S, script: &Script, tokens: &Seen) {
    let (mut deframer, mut bytes) = (Deframer::default(), Vec::new());
    let mut refusals_left = 2;
    let send = |stream: &mut S, packet: &Packet<'_>| {
        let mut out = Vec::new();
        Encoder::default().encode(packet, &mut out);
        stream.write_all(&out).is_ok()
    };
    send(&mut stream, &Packet::new(Message::Empty));
    loop {
        while let Some(size) = deframer.find(&bytes).unwrap() {
            let packet = deframer.read(&bytes[..size]).unwrap();
            let mut refusal = RefusalMessage::new(ErrorCode::Redirect);
            match (&packet.message, script) {
                (Message::Hello(hello), _) => {
                    tokens.lock().unwrap().push(hello.token.to_vec());
                    if let Script::Hello(to) = script {
                        refusal.fatal = true;
                        refusal.address = to.as_bytes();
                        send(&mut stream, &Packet::new(Message::Refusal(refusal)));
                        return;
                    }
                    let store = match script {
                        Script::Request(_, store) | Script::Leaderless(store) => store,
                        _ => &[3; 16],
                    };
                    let hello = HelloOk {
                        version: b"weir/1",
                        store: *store,
                        level: b"memory",
                        next: u64::from(!hello.client.is_none()),
                        window: 100,
                        window_bytes: 1 << 20,
                        key_bytes_max: 1000,
                        value_bytes_max: 1 << 20,
                        features: b"groups query chain",
                        ..HelloOk::default()
                    };
                    send(&mut stream, &Packet::new(Message::HelloOk(hello)));
                }
                (Message::Write { count, .. }, Script::Leaderless(_)) => {
                    let mut refusal = RefusalMessage::new(ErrorCode::NoLeader);
                    refusal.retry_ms = Some(100);
                    refusal.count = Some(u64::from(*count));
                    send(&mut stream, &Packet::new(Message::Refusal(refusal)));
                }
                (Message::Write { count, .. }, Script::Request(to, _)) => {
                    let session = tokens.lock().unwrap().len() > 1;
                    refusal.address = to.as_bytes();
                    refusal.nonce = Some(u64::from(session));
                    refusal.count = Some(u64::from(*count));
                    send(&mut stream, &Packet::new(Message::Refusal(refusal)));
                }
                (Message::Listen(listen), Script::Lagging(page)) => {
                    for message in lagging(listen, page, &mut refusals_left) {
                        send(&mut stream, &Packet::tagged(packet.tag, message));
                    }
                }
                (Message::Applied, Script::Silent(true) | Script::Lagging(_)) => {
                    let response = Message::AppliedResponse {
                        applied: 2,
                        settled: 2,
                        created: 1,
                        lagging: b"",
                    };
                    send(&mut stream, &Packet::tagged(packet.tag, response));
                }
                (Message::Topic { topic }, Script::Silent(true) | Script::Lagging(_)) => {
                    let line = format!("{topic} 1 1 1 2 1 10 -");
                    let (more, lines) = (false, line.as_bytes());
                    let response = Message::TopicsResponse { more, lines };
                    send(&mut stream, &Packet::tagged(packet.tag, response));
                }
                (Message::Empty, _) | (_, Script::Silent(_) | Script::Lagging(_)) => {}
                (message, Script::Owner) => {
                    let response = owner(message, tokens);
                    send(&mut stream, &Packet::tagged(packet.tag, response));
                }
                (_, Script::Leaderless(_)) => {
                    let mut refusal = RefusalMessage::new(ErrorCode::NoLeader);
                    refusal.retry_ms = Some(100);
                    let response = Packet::tagged(packet.tag, Message::Refusal(refusal));
                    send(&mut stream, &response);
                }
                (_, Script::Request(to, _)) => {
                    refusal.address = to.as_bytes();
                    let response = Packet::tagged(packet.tag, Message::Refusal(refusal));
                    send(&mut stream, &response);
                }
                (other, Script::Hello(_)) => panic!("{other:?}"),
            }
            bytes.drain(..size);
        }
        let mut more = [0; 4096];
        match stream.read(&mut more) {
            Ok(0) | Err(_) => return,
            Ok(count) => bytes.extend_from_slice(&more[..count]),
        }
    }
}

/// The response of `Script::Owner`.
fn owner(message: &Message<'_>, seen: &Seen) -> Message<'static> {
    let mut seen = seen.lock().unwrap();
    match message {
        Message::Write { .. } => {
            seen.push(b"write".to_vec());
            let lines = b"0 1 VALID 0 7 0 0 0 -";
            Message::Committed { lines }
        }
        Message::Group { .. } if seen.iter().all(|one| *one != b"write") => {
            let lines = b"g 1 5 5 5 0 0 0 - 0 0 0 30000 0 100 - - -";
            Message::GroupsResponse { more: false, lines }
        }
        _ => Message::Refusal(RefusalMessage::new(ErrorCode::Forbidden)),
    }
}

/// The responses of a node that refuses `refusals_left` requests because it lags, and then has a
/// topic with this page.
fn lagging<'a>(listen: &Listen<'_>, page: &'a [u8], refusals_left: &mut u32) -> Vec<Message<'a>> {
    let is_bounded = listen.query.until.is_some();
    if is_bounded && *refusals_left > 0 {
        *refusals_left -= 1;
        let refusal = RefusalMessage::new(ErrorCode::Lagging);
        return vec![Message::Refusal(refusal)];
    }
    let listening = Message::Listening {
        position: 1,
        first: 1,
        last: 2,
    };
    let (from, replay) = (1, false);
    let records = Message::Records { from, replay, page };
    let end = Message::End { position: 3 };
    let all = [Some(listening), is_bounded.then_some(records), Some(end)];
    all.into_iter().flatten().collect()
}

fn code(error: WeirError) -> (ErrorCode, String) {
    match error {
        WeirError::Store(StoreError::Remote { code, text }) => (code, text),
        other => panic!("{other:?}"),
    }
}

fn with_patience(ms: u64, token: Option<&str>) -> ConnectOptions {
    let mut options = ConnectOptions::default();
    options.patience = Duration::from_millis(ms);
    options.token = token.map(str::to_owned);
    options
}

#[test]
fn a_client_follows_a_redirect_of_its_hello() {
    let world = World::new();
    let there = format!("weir://{}", world.address);
    let (last, last_seen) = peer(vec![Script::Hello(there)]);
    let (first, seen) = peer(vec![Script::Hello(format!("weir://{last}"))]);
    let url = format!("weir://{first}");
    let remote = Weir::connect_with(&url, &with_patience(30_000, Some("secret"))).unwrap();
    remote.topic("t").unwrap().ensure().unwrap();
    assert!(remote.topic("t").unwrap().put("k", "1").unwrap().is_valid());
    let mut session = remote.session(CLIENT);
    assert!(session.execute(&[put("t", "k", "2")]).unwrap()[0].is_valid());
    assert_eq!(world.values("t"), ["1", "2"]);
    // The user named this host, so it gets the token, at any port.
    for seen in [seen, last_seen] {
        assert_eq!(*seen.lock().unwrap(), [b"secret", b"secret"]);
    }
}

#[test]
fn redirected_requests_are_executed_once() {
    let world = World::new();
    world.connect().topic("t").unwrap().ensure().unwrap();
    let store = world.local().store_id().unwrap();
    let there = format!("weir://{}", world.address);
    let script = Script::Request(there, store);
    // A connection for each kind: writes, reads, records, and those of a session.
    let connect = || {
        let (address, seen) = peer(vec![script.clone()]);
        (Weir::connect(&format!("weir://{address}")).unwrap(), seen)
    };
    let (remote, seen) = connect();
    let values: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    let call = |value: &String| remote.propose(&[put("t", "k", value)]).unwrap();
    for proposal in values.iter().map(call).collect::<Vec<_>>() {
        assert_eq!(proposal.wait().unwrap().len(), 1);
    }
    assert_eq!(world.values("t"), values, "each once and in order");
    assert_eq!(seen.lock().unwrap().len(), 1);

    let (remote, _) = connect();
    assert_eq!(
        remote
            .topic("t")
            .unwrap()
            .get("k")
            .unwrap()
            .unwrap()
            .value(),
        b"49"
    );
    let (remote, _) = connect();
    let latest = remote.topic("t").unwrap().latest(Duration::ZERO).unwrap();
    assert_eq!(
        latest
            .filter(|current| current.as_ref().unwrap().replay)
            .count(),
        1
    );
    let (remote, seen) = connect();
    let mut session = remote.session(CLIENT);
    for n in 50..60 {
        assert!(session.execute(&[put("t", "k", &n.to_string())]).unwrap()[0].is_valid());
    }
    assert_eq!(seen.lock().unwrap().len(), 2);
    assert_eq!(world.values("t").len(), 60);
}

#[test]
fn a_cycle_of_hello_redirects_is_followed_slowly_and_ends_with_an_error() {
    // The first script needs the address of the second listener.
    let second = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = format!("weir://{}", second.local_addr().unwrap());
    let (first, seen) = peer(vec![Script::Hello(there)]);
    let back = format!("weir://{first}");
    std::thread::spawn(move || {
        for stream in second.incoming() {
            serve(
                stream.unwrap(),
                &Script::Hello(back.clone()),
                &Seen::default(),
            );
        }
    });
    let error =
        Weir::connect_with(&format!("weir://{first}"), &with_patience(1_400, None)).unwrap_err();
    assert_eq!(code(error).0, ErrorCode::Unreachable);
    let hops = seen.lock().unwrap().len();
    assert!((4..40).contains(&hops), "{hops} hops");
}

#[test]
fn a_cycle_of_request_redirects_ends_with_the_patience() {
    let second = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = format!("weir://{}", second.local_addr().unwrap());
    let (first, seen) = peer(vec![Script::Request(there, [3; 16])]);
    let back = Script::Request(format!("weir://{first}"), [3; 16]);
    std::thread::spawn(move || {
        for stream in second.incoming() {
            let back = back.clone();
            std::thread::spawn(move || serve(stream.unwrap(), &back, &Seen::default()));
        }
    });
    let remote =
        Weir::connect_with(&format!("weir://{first}"), &with_patience(2000, None)).unwrap();
    let topic = remote.topic("t").unwrap();
    let read = code(topic.get("k").unwrap_err()).0;
    assert!(
        matches!(read, ErrorCode::Deadline | ErrorCode::Unreachable),
        "{read:?}"
    );
    let write = code(topic.put("k", "v").unwrap_err()).0;
    assert!(
        matches!(write, ErrorCode::Redirect | ErrorCode::Unreachable),
        "{write:?}"
    );
    let hops = seen.lock().unwrap().len();
    assert!(hops < 60, "{hops} hops");
}

#[test]
fn a_client_redirected_to_an_unreachable_address_returns_and_retries() {
    let world = World::new();
    let scripts = vec![
        Script::Hello(format!("weir://{UNREACHABLE}")),
        Script::Hello(format!("weir://{}", world.address)),
    ];
    let (first, seen) = peer(scripts);
    let remote = Weir::connect(&format!("weir://{first}")).unwrap();
    assert_eq!(
        remote.store_id().unwrap(),
        world.local().store_id().unwrap()
    );
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[test]
fn a_token_is_not_sent_without_tls_to_an_unnamed_host() {
    // This block is reserved for documentation, so no host has the address.
    let (first, seen) = peer(vec![Script::Hello("weir://192.0.2.1:7071".to_owned())]);
    let url = format!("weir://{first}");
    let error = Weir::connect_with(&url, &with_patience(3_000, Some("secret"))).unwrap_err();
    let (code, text) = code(error);
    assert_eq!(code, ErrorCode::Protocol);
    assert!(
        text.contains("192.0.2.1") && text.contains("token"),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[test]
fn a_silent_server_leaves_time_for_the_next_address() {
    let world = World::new();
    // The system accepts connections for this listener, but no server responds.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap();
    let url = format!("weir://{silent},{}", world.address);
    let remote = Weir::connect_with(&url, &with_patience(30_000, None)).unwrap();
    assert_eq!(
        remote.store_id().unwrap(),
        world.local().store_id().unwrap()
    );

    // The error names each address and its cause.
    let url = format!("weir://{silent},{UNREACHABLE}");
    let mut options = with_patience(30_000, None);
    options.connect_timeout = Duration::from_millis(2500);
    let (code, text) = code(Weir::connect_with(&url, &options).unwrap_err());
    assert_eq!(code, ErrorCode::Unreachable);
    let silent = format!("weir://{silent} cannot be reached: no answer");
    let closed = format!("weir://{UNREACHABLE} cannot be reached: Connection refused");
    assert!(text.contains(&silent) && text.contains(&closed), "{text}");
}

#[test]
fn a_client_leaves_a_node_that_knows_no_leader() {
    static IS_WAITING: AtomicBool = AtomicBool::new(false);
    let world = World::new();
    world.connect().topic("t").unwrap().ensure().unwrap();
    let store = world.local().store_id().unwrap();
    let (alone, seen) = peer(vec![Script::Leaderless(store)]);
    let url = format!("weir://{alone},{}", world.address);
    let remote = Weir::connect_with(&url, &with_patience(30_000, None)).unwrap();
    let topic = remote.topic("t").unwrap();
    assert!(topic.put("k", "1").unwrap().is_valid());
    assert_eq!(world.values("t"), ["1"]);
    let remote = Weir::connect_with(&url, &with_patience(30_000, None)).unwrap();
    assert!(remote.topic("t").unwrap().get("k").unwrap().is_some());
    assert_eq!(seen.lock().unwrap().len(), 2);

    // A client that knows no other address reports that it waits, and stays.
    let mut options = with_patience(3_000, None);
    options.on_wait = Some(|reason| {
        assert_eq!(reason, "waiting for a leader");
        IS_WAITING.store(true, Ordering::Relaxed);
        panic!("by the test; the connection continues");
    });
    let remote = Weir::connect_with(&format!("weir://{alone}"), &options).unwrap();
    let error = code(remote.topic("t").unwrap().put("k", "2").unwrap_err());
    assert_eq!(error.0, ErrorCode::NoLeader);
    assert!(IS_WAITING.load(Ordering::Relaxed));
    assert_eq!(seen.lock().unwrap().len(), 3);
}

#[cfg(unix)]
#[test]
fn a_client_of_a_unix_socket_follows_a_redirect_to_tcp() {
    let world = World::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("peer.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let there = format!("weir://{}", world.address);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve(
                stream.unwrap(),
                &Script::Hello(there.clone()),
                &Seen::default(),
            );
        }
    });
    let url = format!("unix:{}", path.display());
    let client = Weir::connect(&url).unwrap();
    let store = client.store_id().unwrap();
    assert_eq!(store, world.local().store_id().unwrap());
}

#[cfg(unix)]
#[test]
fn a_client_of_a_network_address_follows_no_redirect_to_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let (first, _) = peer(vec![Script::Hello(format!("unix:{}", path.display()))]);
    let url = format!("weir://{first}");
    let error = Weir::connect_with(&url, &with_patience(3_000, None)).unwrap_err();
    let (code, text) = code(error);
    assert_eq!(code, ErrorCode::Protocol);
    assert!(text.ends_with("a socket of this machine"), "{text}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
}
