//! Servers that break the protocol.

use std::cell::Cell;
use std::fmt::Debug;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use weir::{ConnectOptions, ErrorCode, ReadFrom, StoreError, Weir, WeirError};
use weir_core::codec::{put_bytes, put_varint};
use weir_core::{ClientId, ConsequenceOffset, IntentionOffset, Record, RecordFlags, RecordKind};
use weir_protocol::{After, Deframer, Encoder, HelloOk, Message, Packet, RefusalMessage};
use weir_store::PageBuilder;

use crate::world::World;

/// Longest wait; only a test that fails reaches it.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

fn hello_ok() -> Message<'static> {
    Message::HelloOk(HelloOk {
        version: b"weir/1",
        store: [3; 16],
        level: b"memory",
        window: 100,
        window_bytes: 1 << 20,
        key_bytes_max: 1000,
        value_bytes_max: 1 << 20,
        features: b"groups query chain query-latest",
        ..HelloOk::default()
    })
}

fn send(stream: &mut TcpStream, packet: &Packet<'_>) {
    let mut bytes = Vec::new();
    assert!(Encoder::default().encode(packet, &mut bytes));
    // The client may have closed the connection.
    let _ = stream.write_all(&bytes);
}

/// Connects to a server that responds to each request after HELLO with the messages of `respond`.
fn connect(respond: impl Fn(&Message<'_>) -> Vec<Message<'static>> + Send + 'static) -> Weir {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("weir://{}", listener.local_addr().unwrap());
    // Ends with the connection.
    std::thread::spawn(move || serve(listener.accept().unwrap().0, respond));
    Weir::connect(&url).unwrap()
}

fn serve(mut stream: TcpStream, respond: impl Fn(&Message<'_>) -> Vec<Message<'static>>) {
    let (mut deframer, mut bytes) = (Deframer::default(), Vec::new());
    let mut chunk = [0; 4096];
    send(&mut stream, &Packet::new(Message::Empty));
    loop {
        while let Some(size) = deframer.find(&bytes).unwrap() {
            let packet = deframer.read(&bytes[..size]).unwrap();
            let responses = match packet.message {
                Message::Empty => Vec::new(),
                Message::Hello(_) => vec![hello_ok()],
                message => respond(&message),
            };
            for message in responses {
                send(&mut stream, &Packet::tagged(packet.tag, message));
            }
            bytes.drain(..size);
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

fn code<T: Debug>(result: Result<T, WeirError>) -> ErrorCode {
    match result.unwrap_err() {
        WeirError::Store(StoreError::Remote { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

/// Answers lists of topics, and redirects writes after the first list.
fn redirect_writes(to: &'static [u8]) -> impl Fn(&Message<'_>) -> Vec<Message<'static>> {
    let (has_answered, write) = (Cell::new(false), Cell::new(None));
    move |message| {
        let mut responses = Vec::new();
        match message {
            Message::Topics { .. } => {
                has_answered.set(true);
                let (more, lines) = (false, &b""[..]);
                responses.push(Message::TopicsResponse { more, lines });
            }
            Message::Write { count, .. } => write.set(Some(u64::from(*count))),
            _ => {}
        }
        if has_answered.get() {
            responses.extend(write.take().map(|count| {
                let mut refusal = RefusalMessage::new(ErrorCode::Redirect);
                refusal.address = to;
                refusal.nonce = Some(0);
                refusal.count = Some(count);
                Message::Refusal(refusal)
            }));
        }
        responses
    }
}

#[test]
fn answers_to_reads_do_not_make_a_cycle_of_redirects_fast() {
    let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let urls = [0, 1].map(|n: usize| format!("weir://{}", listeners[n].local_addr().unwrap()));
    let connections = Arc::new(AtomicU32::new(0));
    for (n, listener) in listeners.into_iter().enumerate() {
        let to: &'static str = urls[1 - n].clone().leak();
        let to = to.as_bytes();
        let connections = Arc::clone(&connections);
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                connections.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || serve(stream.unwrap(), redirect_writes(to)));
            }
        });
    }
    let mut options = ConnectOptions::default();
    options.patience = Duration::from_secs(2);
    let remote = Weir::connect_with(&urls[0], &options).unwrap();
    let is_over = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // Fails while there is no connection.
                let _ = remote.topics(false);
                std::thread::yield_now();
            }
        });
        let written = remote.topic("t").and_then(|topic| topic.put("k", "v"));
        is_over.store(true, Ordering::Relaxed);
        written
    });
    let written = code(written);
    assert!(
        matches!(written, ErrorCode::Redirect | ErrorCode::Unreachable),
        "{written:?}"
    );
    let connections = connections.load(Ordering::Relaxed);
    assert!(connections < 60, "{connections} connections");
}

#[test]
fn a_request_that_ends_its_connection_does_not_end_later_calls() {
    for refused in [ErrorCode::TooLarge, ErrorCode::Internal] {
        let respond = move |message: &Message<'_>| {
            let mut refusal = RefusalMessage::new(refused);
            refusal.fatal = true;
            let (more, lines) = (false, &b""[..]);
            match message {
                Message::Write { .. } => vec![Message::Refusal(refusal)],
                Message::Topics { .. } => vec![Message::TopicsResponse { more, lines }],
                _ => Vec::new(),
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("weir://{}", listener.local_addr().unwrap());
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), respond);
            }
        });
        let remote = Weir::connect(&url).unwrap();
        for _ in 0..2 {
            let topic = remote.topic("t").unwrap();
            assert_eq!(code(topic.put("k", "v")), ErrorCode::Indeterminate);
            assert!(remote.topics(false).unwrap().is_empty());
        }
    }
}

#[test]
fn a_request_that_ends_each_connection_is_sent_twice() {
    for refused in [ErrorCode::TooLarge, ErrorCode::Internal] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("weir://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&requests);
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), |message| {
                    let mut refusal = RefusalMessage::new(refused);
                    refusal.fatal = true;
                    match message {
                        Message::Topics { .. } => {
                            counter.fetch_add(1, Ordering::Relaxed);
                            vec![Message::Refusal(refusal)]
                        }
                        _ => Vec::new(),
                    }
                });
            }
        });
        let remote = Weir::connect(&url).unwrap();
        assert_eq!(code(remote.topics(false)), refused);
        assert_eq!(requests.load(Ordering::Relaxed), 2);
    }
}

#[test]
fn a_listener_that_ends_each_connection_is_sent_three_times() {
    for refused in [ErrorCode::TooLarge, ErrorCode::Internal] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("weir://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&requests);
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), |message| {
                    let mut refusal = RefusalMessage::new(refused);
                    refusal.fatal = true;
                    match message {
                        Message::Listen(_) => {
                            counter.fetch_add(1, Ordering::Relaxed);
                            vec![Message::Refusal(refusal)]
                        }
                        _ => Vec::new(),
                    }
                });
            }
        });
        let remote = Weir::connect(&url).unwrap();
        let topic = remote.topic("t").unwrap();
        let mut pages = topic.follow(ReadFrom::Start, TEST_TIMEOUT).unwrap();
        let error = pages.next().unwrap().unwrap_err();
        let StoreError::Remote { code, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(code, refused);
        assert_eq!(requests.load(Ordering::Relaxed), 3);
    }
}

#[test]
fn a_listener_at_position_0_starts_at_the_first_offset() {
    let starts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&starts);
    let remote = connect(move |message| {
        let Message::Listen(listen) = message else {
            return Vec::new();
        };
        seen.lock().unwrap().push(listen.after);
        let (position, first, last) = (0, 0, 0);
        let listening = Message::Listening {
            position,
            first,
            last,
        };
        vec![listening, Message::End { position }]
    });
    let topic = remote.topic("t").unwrap();
    let mut pages = topic.follow(ReadFrom::End, Duration::ZERO).unwrap();
    assert!(pages.next().is_none());
    let starts = starts.lock().unwrap();
    assert_eq!(starts[..2], [After::Last(0), After::Offset(0)]);
}

#[test]
fn a_refusal_that_names_a_record_is_an_error_without_a_query() {
    let remote = connect(|message| {
        let mut refusal = RefusalMessage::new(ErrorCode::Internal);
        refusal.record = Some(1);
        match message {
            Message::Listen(_) => vec![Message::Refusal(refusal)],
            _ => Vec::new(),
        }
    });
    let topic = remote.topic("t").unwrap();
    let mut pages = topic.follow(ReadFrom::Start, Duration::ZERO).unwrap();
    let error = pages.next().unwrap().unwrap_err();
    let StoreError::Remote { code, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(code, ErrorCode::Internal);
}

#[test]
fn a_list_that_repeats_its_items_is_refused() {
    const TOPIC: &[u8] = b"t 1 1 1 2 1 10 -";
    const GROUP: &[u8] = b"g 1 5 5 5 0 0 0 - 0 0 0 30000 0 100 - - -";
    let requests = AtomicU32::new(0);
    let remote = connect(move |message| {
        // Repeats the list, but not without end, so that a client that accepts it returns.
        let more = requests.fetch_add(1, Ordering::Relaxed) < 100;
        let response = match message {
            Message::Topics { .. } => Message::TopicsResponse { more, lines: TOPIC },
            _ => Message::GroupsResponse { more, lines: GROUP },
        };
        vec![response]
    });
    assert_eq!(code(remote.topics(false)), ErrorCode::Protocol);
    let groups = remote.topic("t").unwrap().groups();
    assert_eq!(code(groups), ErrorCode::Protocol);
}

#[test]
fn a_key_that_is_longer_than_any_key_is_refused() {
    let mut entries = Vec::new();
    put_varint(&mut entries, 1);
    put_bytes(&mut entries, &vec![0; 65_536]);
    let entries: &'static [u8] = entries.leak();
    let remote = connect(move |_| {
        let more = false;
        vec![Message::Keys { more, entries }]
    });
    let keys = remote.topic("t").unwrap().scan(b"", None, 10);
    assert_eq!(code(keys), ErrorCode::Protocol);
}

#[test]
fn a_client_leaves_a_server_that_sends_packets_instead_of_a_response_to_hello() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "weir://{},{}",
        listener.local_addr().unwrap(),
        world.address
    );
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // Empty packets, until the client closes the connection.
        let packets = b"|\n".repeat(1000);
        while stream.write_all(&packets).is_ok() {}
    });
    let remote = Weir::connect(&url).unwrap();
    let store = world.local().store_id().unwrap();
    assert_eq!(remote.store_id().unwrap(), store);
}

/// Not hostile, but slow: the client gives up.
#[test]
fn a_cancelled_search_for_a_position_ends_its_listener() {
    let (sender, received) = channel();
    let remote = connect(move |message| {
        if matches!(message, Message::Listen(_) | Message::Unlisten) {
            let is_end = matches!(message, Message::Unlisten);
            sender.send(is_end).unwrap();
        }
        Vec::new()
    });
    let topic = remote.topic("t").unwrap();
    let mut search = topic.listener_async(ReadFrom::End);
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut search).poll(&mut context).is_pending());
    assert_eq!(received.recv_timeout(TEST_TIMEOUT), Ok(false));
    drop(search);
    assert_eq!(received.recv_timeout(TEST_TIMEOUT), Ok(true));
}

/// The bytes of a page with one record.
fn page_of(offset: u64, key: &[u8]) -> &'static [u8] {
    let mut builder = PageBuilder::default();
    builder.push(&Record {
        offset: ConsequenceOffset(offset),
        intention: IntentionOffset(offset),
        term: 1,
        time_ms: 1,
        client: ClientId::NONE,
        nonce: 0,
        flags: RecordFlags(RecordFlags::LAST),
        kind: RecordKind::Put,
        key,
        value: b"1",
        meta: b"",
    });
    let mut bytes = Vec::new();
    builder.take().unwrap().write_to(&mut bytes);
    bytes.leak()
}

const LISTENING: Message<'static> = Message::Listening {
    position: 1000,
    first: 1,
    last: 999,
};

/// Connects to a server that repeats a record without end, as fast as the client reads it.
fn connect_to_repetitions(replay: bool) -> Weir {
    let page = page_of(2, b"k");
    let from = 2;
    connect(move |message| {
        let (mut responses, count) = match message {
            Message::Listen(_) => (vec![LISTENING], 20_000),
            Message::Credit { records, .. } => (Vec::new(), *records),
            _ => return Vec::new(),
        };
        let record = Message::Records { from, replay, page };
        responses.extend((0..count).map(|_| record));
        responses
    })
}

#[test]
fn repeated_records_do_not_extend_a_read() {
    const PATIENCE: Duration = Duration::from_secs(2);
    let remotes = [true, false].map(connect_to_repetitions);
    let [replayed, read] = [0, 1].map(|n| remotes[n].within(PATIENCE).topic("t").unwrap());
    let (sender, received) = channel();
    let other_sender = sender.clone();
    std::thread::spawn(move || {
        let mut latest = replayed.latest(Duration::ZERO).unwrap();
        latest.next().unwrap().unwrap();
        sender.send(code(latest.next().unwrap())).unwrap();
    });
    std::thread::spawn(move || {
        let mut listener = read.listener(ReadFrom::Start).unwrap();
        listener.next_page().unwrap().unwrap();
        other_sender
            .send(code(listener.next_page().map_err(WeirError::from)))
            .unwrap();
    });
    for _ in 0..2 {
        let ended = received.recv_timeout(TEST_TIMEOUT);
        assert_eq!(ended, Ok(ErrorCode::Deadline));
    }
}

#[test]
fn a_replay_continues_after_the_last_key_at_the_next_server() {
    let starts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&starts);
    let (from, replay) = (1, true);
    let remote = connect(move |message| {
        let Message::Listen(listen) = message else {
            return Vec::new();
        };
        let mut seen = seen.lock().unwrap();
        seen.push(listen.query.from.map(<[u8]>::to_vec));
        // The value of `b` is newer than the replay.
        let (first, second) = (page_of(2, b"a"), page_of(1000, b"b"));
        let records = [first, second].map(|page| Message::Records { from, replay, page });
        if seen.len() == 1 {
            let draining = Message::Refusal(RefusalMessage::new(ErrorCode::Draining));
            return vec![LISTENING, records[0], records[1], draining];
        }
        let position = 1000;
        vec![LISTENING, Message::End { position }]
    });
    let topic = remote.topic("t").unwrap();
    let mut latest = topic.latest(Duration::ZERO).unwrap();
    let first = latest.next().unwrap().unwrap();
    assert_eq!(first.value.record().key, b"a");
    assert!(latest.next().is_none());
    let starts = starts.lock().unwrap();
    assert_eq!(starts[..2], [None, Some(b"b\0".to_vec())]);
}
