//! Deadlines and cancellation of waits, against a server that accepts requests and does not
//! respond.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ptr::{null, null_mut, with_exposed_provenance_mut};
use std::sync::mpsc::{Receiver, Sender, channel};

use weir_capi::raw::{
    ConnectOptions, Error, Group, GroupInfo, GroupOptions, Info, Intention, Page, Query,
    QueryOptions, ReadOptions, Reader, Session, TopicInfo, TopicsOptions, Verdict, Weir,
};
use weir_capi::*;
use weir_core::GroupMode;
use weir_protocol::{
    Consistency, Deframer, Encoder, GroupLine, HelloOk, Message, Packet, write_group,
};

use crate::kit::*;

const DEADLINE: i32 = -502;
const INDETERMINATE: i32 = -501;
const UNSUPPORTED: i32 = -311;
const TOO_MANY_HANDLES: i32 = -610;
/// Times in milliseconds that are long enough for a response. A longer one is for a machine that was
/// too busy for the one before.
pub(crate) const ENOUGH: [u64; 3] = [500, 5_000, 50_000];
/// Longer than any of these tests.
const LONG: u64 = 60_000;
const FOREVER: u64 = u64::MAX;

/// A server that does not respond. It reports the requests that it receives to the test.
pub(crate) struct SilentServer {
    pub(crate) store: *mut Weir,
    requests: Receiver<&'static str>,
}

impl SilentServer {
    fn new() -> Self {
        Self::with(false)
    }

    /// Starts a server. `topic`: whether it reports a topic with records.
    pub(crate) fn with(topic: bool) -> Self {
        Self::with_patience(topic, 0).unwrap()
    }

    /// As `with`, for a client with this patience; 0: the default. `None` if this machine was too busy
    /// to connect within it.
    fn with_patience(topic: bool, patience_ms: u64) -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("weir://{}", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        // The thread ends with the process: no further client connects.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let sender = sender.clone();
                std::thread::spawn(move || listen(stream.unwrap(), topic, &sender));
            }
        });
        let mut options = sized!(ConnectOptions);
        options.patience_ms = patience_ms;
        let (mut store, error) = (null_mut(), null_mut());
        let address = slice(address.as_bytes());
        let made = unsafe { weir_connect(address, &raw const options, &raw mut store, error) };
        (made == OK).then_some(Self { store, requests })
    }

    fn within(&self, timeout_ms: u64) -> *mut Weir {
        within(self.store, timeout_ms)
    }

    /// Waits until the server has received this request.
    fn await_request(&self, what: &str) {
        while self.requests.recv().unwrap() != what {}
    }
}

fn within(store: *mut Weir, timeout_ms: u64) -> *mut Weir {
    let mut handle = null_mut();
    let made = unsafe { weir_within(store, timeout_ms, &raw mut handle, null_mut()) };
    assert_eq!(made, OK);
    handle
}

/// Responds only to the requests that open a reader, a session or a member.
fn listen(mut stream: TcpStream, topic: bool, sender: &Sender<&'static str>) {
    let (mut deframer, mut bytes) = (Deframer::default(), Vec::new());
    let mut line = Vec::new();
    write_group(
        &mut line,
        &GroupLine {
            name: "g",
            mode: GroupMode::Shared,
            cursor: 0,
            frontier: 0,
            last: 1,
            lag: 1,
            leased: 0,
            waiting: 0,
            oldest_ms: None,
            redeliveries: 0,
            dead_lettered: 0,
            unwritten_dead_letters: 0,
            lease_ms: 1000,
            attempts_max: 0,
            pending_max: 10,
            dead_letters: "",
            owner: None,
            members: Vec::new(),
        },
    );
    let mut out = Vec::new();
    Encoder::default().encode(&Packet::new(Message::Empty), &mut out);
    let mut members = 0;
    loop {
        while let Some(size) = deframer.find(&bytes).unwrap() {
            let packet = deframer.read(&bytes[..size]).unwrap();
            let mut answer = None;
            let what = match packet.message {
                Message::Hello(hello) => {
                    answer = Some(Message::HelloOk(HelloOk {
                        version: b"weir/1",
                        store: [3; 16],
                        level: b"memory",
                        next: u64::from(!hello.client.is_none()),
                        window: 100,
                        window_bytes: 1 << 20,
                        key_bytes_max: 1000,
                        value_bytes_max: 1 << 20,
                        features: b"groups query chain",
                        ..HelloOk::default()
                    }));
                    "hello"
                }
                // The request that opens a member gets a response, a later one does not.
                Message::Group { .. } => {
                    members += 1;
                    if members == 1 {
                        let (more, lines) = (false, &*line);
                        answer = Some(Message::GroupsResponse { more, lines });
                    }
                    "group"
                }
                Message::Applied if topic => {
                    answer = Some(Message::AppliedResponse {
                        applied: 2,
                        settled: 2,
                        created: 1,
                        lagging: b"",
                    });
                    "applied"
                }
                Message::Topic { .. } if topic => {
                    let (more, lines) = (false, b"t 1 1 1 2 1 10 -".as_slice());
                    answer = Some(Message::TopicsResponse { more, lines });
                    "topic"
                }
                Message::Empty => "",
                Message::Get { .. } => packet.consistency.map_or("get", Consistency::name),
                Message::Listen(_) => "listen",
                Message::Write { .. } => "write",
                Message::GroupClaim(_) => "claim",
                _ => "else",
            };
            if let Some(answer) = answer {
                Encoder::default().encode(&Packet::tagged(packet.tag, answer), &mut out);
            }
            // The test may have ended.
            let _ = sender.send(what);
            bytes.drain(..size);
        }
        if stream.write_all(&std::mem::take(&mut out)).is_err() {
            return;
        }
        let mut more = [0; 4096];
        match stream.read(&mut more) {
            Ok(0) | Err(_) => return,
            Ok(count) => bytes.extend_from_slice(&more[..count]),
        }
    }
}

fn get(store: *mut Weir) -> i32 {
    let mut page = null_mut();
    unsafe { weir_get(store, slice(b"t"), slice(b"k"), &raw mut page, null_mut()) }
}

fn submit(store: *mut Weir) -> i32 {
    let (intention, mut verdict) = (put(), zero::<Verdict>());
    let (one, out) = (&raw const intention, &raw mut verdict);
    unsafe { weir_submit(store, one, 1, out, null_mut(), null_mut()) }
}

fn put() -> Intention {
    let mut intention = sized!(Intention);
    intention.operation = 1;
    intention.topic = slice(b"t");
    intention.key = slice(b"k");
    intention
}

fn open_session(store: *mut Weir) -> (i32, *mut Session) {
    let mut session = null_mut();
    let opened = unsafe { weir_session_open(store, slice(&[7; 16]), &raw mut session, null_mut()) };
    (opened, session)
}

fn session(store: *mut Weir) -> *mut Session {
    let (opened, session) = open_session(store);
    assert_eq!(opened, OK);
    session
}

fn session_submit(session: *mut Session) -> i32 {
    let (intention, mut verdict) = (put(), zero::<Verdict>());
    let (one, out) = (&raw const intention, &raw mut verdict);
    unsafe { weir_session_submit(session, one, 1, out, null_mut(), null_mut()) }
}

fn next_nonce(session: *mut Session) -> i32 {
    let mut nonce = 0;
    unsafe { weir_session_next_nonce(session, &raw mut nonce, null_mut()) }
}

/// A reader that follows: each read sends a request to the server.
fn reader(store: *mut Weir) -> *mut Reader {
    let mut options = sized!(ReadOptions);
    options.flags = 1;
    let mut reader = null_mut();
    let (topic, options) = (slice(b"t"), &raw const options);
    let opened = unsafe { weir_reader_open(store, topic, options, &raw mut reader, null_mut()) };
    assert_eq!(opened, OK);
    reader
}

fn read(reader: *mut Reader, timeout_ms: u64) -> i32 {
    let mut page = null_mut();
    unsafe { weir_reader_next(reader, timeout_ms, &raw mut page, null_mut()) }
}

fn open_group(store: *mut Weir) -> (i32, *mut Group) {
    let mut options = sized!(GroupOptions);
    options.mode = 3;
    let mut group = null_mut();
    let (topic, name, options) = (slice(b"t"), slice(b"g"), &raw const options);
    let opened =
        unsafe { weir_group_open(store, topic, name, options, &raw mut group, null_mut()) };
    (opened, group)
}

fn claim(group: *mut Group, timeout_ms: u64) -> i32 {
    let mut page = null_mut();
    unsafe { weir_group_claim(group, 1, timeout_ms, &raw mut page, null_mut()) }
}

fn settle(group: *mut Group) -> i32 {
    let claim = weir_capi::raw::Claim {
        offset: 1,
        claim: 1,
    };
    let (one, lost, count) = (&raw const claim, null_mut(), null_mut());
    unsafe { weir_group_settle(group, one, 1, 1, 0, NOTHING, lost, count, null_mut()) }
}

/// Runs a call on another thread. When the server has received its request, `end` ends the call.
/// Returns the result of the call.
fn ended<H: 'static>(
    server: &SilentServer,
    what: &str,
    handle: *mut H,
    call: fn(*mut H) -> i32,
    end: impl FnOnce(),
) -> i32 {
    let address = handle.expose_provenance();
    let waiting = std::thread::spawn(move || call(with_exposed_provenance_mut(address)));
    server.await_request(what);
    end();
    waiting.join().unwrap()
}

#[test]
fn a_call_through_a_handle_with_a_deadline_ends_with_it() {
    let server = SilentServer::new();
    let short = server.within(20);
    let topic = slice(b"t");
    let (mut page, mut error): (*mut Page, _) = (null_mut(), zero::<Error>());
    unsafe {
        assert_eq!(get(short), DEADLINE);
        let at = weir_at(short, topic, 3, &raw mut page, &raw mut error);
        assert_eq!((at, error.code), (DEADLINE, DEADLINE));
        let none = null_mut();
        let scanned = weir_scan(short, topic, NOTHING, NOTHING, 0, 0, &raw mut page, none);
        assert_eq!(scanned, DEADLINE);
        assert_eq!(weir_topics(short, 0, &raw mut page, none), DEADLINE);
        let mut info = sized!(TopicInfo);
        assert_eq!(
            weir_topic_describe(short, topic, &raw mut info, none),
            DEADLINE
        );
        assert_eq!(weir_sync(short, none), DEADLINE);
        assert_eq!(
            weir_topic_ensure(short, topic, null(), null_mut(), none),
            DEADLINE
        );
        let (mut reader, mut query): (*mut Reader, *mut Query) = (null_mut(), null_mut());
        assert_eq!(
            weir_reader_open(short, topic, null(), &raw mut reader, none),
            DEADLINE
        );
        let mut topics = sized!(TopicsOptions);
        (topics.topics, topics.topic_count) = (&raw const topic, 1);
        let (topics, options) = (&raw const topics, sized!(QueryOptions));
        let options = &raw const options;
        let opened = weir_query_open_topics(short, topics, options, &raw mut query, none);
        assert_eq!(opened, DEADLINE);
        // `weir_describe` returns what the client received when it connected; it sends no request.
        let mut info = sized!(Info);
        assert_eq!(weir_describe(short, &raw mut info, none), OK);
        // The outcome of these writes is unknown.
        assert_eq!(submit(short), INDETERMINATE);
        // Releasing the session would wait for its write.
        let opened = ENOUGH.into_iter().find_map(|enough| {
            let (opened, session) = open_session(server.within(enough));
            (opened == OK).then_some(session)
        });
        let session = opened.unwrap();
        assert_eq!(session_submit(session), INDETERMINATE);
        assert_eq!(weir_close(short, none), OK);
    }
}

#[test]
fn objects_opened_through_a_handle_have_its_deadline() {
    let opened = ENOUGH.into_iter().find_map(|enough| {
        // The server responds to one request for a member.
        let short = SilentServer::new().within(enough);
        let (opened, group) = open_group(short);
        (opened == OK).then_some((short, group))
    });
    let (short, group) = opened.unwrap();
    let reader = reader(short);
    assert_eq!(read(reader, 0), DEADLINE);
    assert_eq!(claim(group, 0), DEADLINE);
    assert_eq!(settle(group), INDETERMINATE);
    unsafe {
        let step = weir_group_step(group, 3, 2, 1, null_mut());
        assert_eq!(step, INDETERMINATE);
        // The group may still exist, so the call can be repeated.
        for _ in 0..2 {
            let delete = weir_group_step(group, 4, 0, 0, null_mut());
            assert_eq!(delete, INDETERMINATE);
        }
        let mut info = sized!(GroupInfo);
        assert_eq!(
            weir_group_describe(group, &raw mut info, null_mut()),
            DEADLINE
        );
        weir_group_free(group);
        weir_reader_free(reader);
        weir_close(short, null_mut());
    }
}

#[test]
fn the_timeout_of_a_call_limits_the_wait_for_the_server() {
    let server = SilentServer::new();
    let reader = reader(server.store);
    // The timeout of the connection is 30 s.
    assert_eq!(read(reader, 20), TIMEOUT);
    assert_eq!(read(reader, 20), TIMEOUT);
    unsafe { weir_reader_free(reader) };
}

#[test]
fn a_cancel_ends_all_calls_of_its_handle_only() {
    let server = SilentServer::new();
    let one = server.within(FOREVER);
    let cancel = || unsafe { assert_eq!(weir_cancel(one), OK) };
    assert_eq!(ended(&server, "get", one, get, cancel), CANCELLED);
    // No further request is sent.
    assert_eq!(get(one), CANCELLED);
    assert_eq!(submit(one), CANCELLED);
    let two = server.within(FOREVER);
    let cancel = || unsafe { assert_eq!(weir_cancel(two), OK) };
    assert_eq!(ended(&server, "write", two, submit, cancel), INDETERMINATE);
    let three = server.within(20);
    assert_eq!(get(three), DEADLINE);
    unsafe {
        for handle in [one, two, three] {
            assert_eq!(weir_close(handle, null_mut()), OK);
        }
    }
}

#[test]
fn derived_handles_end_with_their_parent() {
    let server = SilentServer::new();
    let outer = server.within(20);
    // The shorter timeout applies.
    let inner = within(outer, LONG);
    assert_eq!(get(inner), DEADLINE);
    unsafe { assert_eq!(weir_cancel(inner), OK) };
    assert_eq!((get(inner), get(outer)), (CANCELLED, DEADLINE));
    let inner = within(outer, LONG);
    unsafe { assert_eq!(weir_cancel(outer), OK) };
    assert_eq!(get(inner), CANCELLED);

    let mut handles = vec![server.store];
    while handles.len() <= 64 {
        handles.push(within(handles[handles.len() - 1], LONG));
    }
    let (deepest, mut out) = (handles[64], null_mut());
    let refused = unsafe { weir_within(deepest, LONG, &raw mut out, null_mut()) };
    assert_eq!(refused, TOO_MANY_HANDLES);
    for handle in handles.drain(1..) {
        unsafe { assert_eq!(weir_close(handle, null_mut()), OK) };
    }
}

#[test]
fn a_cancel_ends_calls_of_objects_opened_through_the_handle() {
    let server = SilentServer::new();
    let one = server.within(FOREVER);
    let (reader, session) = (reader(one), session(one));
    let cancel = || unsafe { assert_eq!(weir_cancel(one), OK) };
    let wait = |reader| read(reader, LONG);
    assert_eq!(ended(&server, "listen", reader, wait, cancel), CANCELLED);
    assert_eq!(read(reader, 0), CANCELLED);
    assert_eq!(next_nonce(session), CANCELLED);
    unsafe {
        weir_reader_free(reader);
        weir_session_free(session);
        weir_close(one, null_mut());
    }
}

#[test]
fn a_mark_ends_one_call_of_a_reader_a_session_or_a_member() {
    let server = SilentServer::new();
    let reader = reader(server.store);
    let cancel = || unsafe { assert_eq!(weir_reader_cancel(reader), OK) };
    // With a timeout of 0, the call waits for the response of the server.
    let wait = |reader| read(reader, 0);
    assert_eq!(ended(&server, "listen", reader, wait, cancel), CANCELLED);
    assert_eq!(read(reader, 20), TIMEOUT);

    let session = session(server.store);
    let cancel = || unsafe { assert_eq!(weir_session_cancel(session), OK) };
    assert_eq!(
        ended(&server, "write", session, session_submit, cancel),
        INDETERMINATE
    );
    cancel();
    // The cancellation preceded the call. It cancels this call, and not the next one.
    assert_eq!(next_nonce(session), CANCELLED);
    assert_eq!(next_nonce(session), OK);
    // `resume` waits for the writes in flight.
    cancel();
    assert_eq!(
        unsafe { weir_session_resume(session, 1, null_mut()) },
        CANCELLED
    );

    let (opened, group) = open_group(server.store);
    assert_eq!(opened, OK);
    let cancel = || unsafe { assert_eq!(weir_group_cancel(group), OK) };
    let wait = |group| claim(group, LONG);
    assert_eq!(ended(&server, "claim", group, wait, cancel), CANCELLED);
    assert_eq!(
        ended(&server, "write", group, settle, cancel),
        INDETERMINATE
    );
    let describe = |group| {
        let mut info = sized!(GroupInfo);
        unsafe { weir_group_describe(group, &raw mut info, null_mut()) }
    };
    assert_eq!(ended(&server, "group", group, describe, cancel), CANCELLED);
    unsafe {
        weir_group_free(group);
        weir_reader_free(reader);
    }
}

#[test]
fn a_release_ends_the_running_calls_of_its_handle_only() {
    let server = SilentServer::new();
    let one = server.within(FOREVER);
    let close = || unsafe { assert_eq!(weir_close(one, null_mut()), OK) };
    assert_eq!(ended(&server, "get", one, get, close), CANCELLED);
    assert_eq!(get(one), BAD_HANDLE);
    assert_eq!(unsafe { weir_cancel(one) }, BAD_HANDLE);

    let store = Store::new();
    let one = within(store.store, LONG);
    let reader = reader(one);
    unsafe { assert_eq!(weir_close(one, null_mut()), OK) };
    assert_eq!(submit(store.store), OK);
    assert_eq!(read(reader, LONG), READY);
    unsafe { weir_reader_free(reader) };
}

#[test]
fn handles_of_a_directory_behave_alike_and_end_with_the_store() {
    let store = Store::new();
    let one = within(store.store, LONG);
    assert_eq!(submit(one), OK);
    assert_eq!(get(one), OK);
    let session = session(one);
    assert_eq!(session_submit(session), OK);
    unsafe { weir_session_cancel(session) };
    assert_eq!(session_submit(session), CANCELLED);
    assert_eq!(session_submit(session), OK);
    unsafe { assert_eq!(weir_cancel(one), OK) };
    assert_eq!(get(one), CANCELLED);
    assert_eq!(session_submit(session), CANCELLED);
    let two = within(store.store, LONG);
    unsafe { assert_eq!(weir_close(store.store, null_mut()), OK) };
    assert_eq!(get(two), CLOSED);
    unsafe {
        assert_eq!(weir_close(two, null_mut()), OK);
        assert_eq!(weir_close(one, null_mut()), OK);
        weir_session_free(session);
    }
}

/// Closes a store. Its session and its group, whose handles remain valid, are then closed.
fn check_that_handles_end_with(store: *mut Weir) {
    let session = session(store);
    let (opened, group) = open_group(store);
    assert_eq!(opened, OK);
    let (mut nonce, mut info) = (0, sized!(GroupInfo));
    let out = &raw mut nonce;
    unsafe {
        assert_eq!(weir_session_next_nonce(session, out, null_mut()), OK);
        assert_eq!(weir_close(store, null_mut()), OK);
        assert_eq!(weir_session_next_nonce(session, out, null_mut()), CLOSED);
        assert_eq!(weir_session_resume(session, 1, null_mut()), CLOSED);
        assert_eq!(session_submit(session), CLOSED);
        let described = weir_group_describe(group, &raw mut info, null_mut());
        assert_eq!(described, CLOSED);
        weir_session_free(session);
        weir_group_free(group);
    }
}

#[test]
fn a_session_and_a_group_end_with_their_store() {
    check_that_handles_end_with(Store::new().store);
    check_that_handles_end_with(SilentServer::new().store);
}

/// A session at a server whose client has little patience.
fn impatient_session() -> (SilentServer, *mut Session) {
    let opened = ENOUGH.into_iter().find_map(|enough| {
        let server = SilentServer::with_patience(false, enough)?;
        let (opened, session) = open_session(server.store);
        (opened == OK).then_some((server, session))
    });
    opened.unwrap()
}

#[test]
fn a_close_ends_the_wait_for_a_write_that_a_session_sent() {
    let (server, session) = impatient_session();
    let (intention, mut pending, mut verdict) = (put(), null_mut(), zero::<Verdict>());
    let (one, out) = (&raw const intention, &raw mut verdict);
    let none = null_mut();
    unsafe {
        let sent = weir_session_send(session, one, 1, &raw mut pending, none);
        assert_eq!(sent, OK);
        assert_eq!(weir_close(server.store, none), OK);
        let wait = |ms| weir_pending_wait(pending, ms, out, 1, null_mut(), none);
        assert_eq!(wait(FOREVER), INDETERMINATE);
        assert_eq!(wait(0), INDETERMINATE);
        weir_pending_free(pending);
    }
}

#[test]
fn a_close_ends_calls_of_a_session_that_wait_at_a_server() {
    // A session is not released here: the release would wait for its write.
    let (server, writer) = impatient_session();
    let close = || unsafe { assert_eq!(weir_close(server.store, null_mut()), OK) };
    // The verdict may still arrive within the patience of the connection.
    assert_eq!(
        ended(&server, "write", writer, session_submit, close),
        INDETERMINATE
    );
    assert_eq!(session_submit(writer), CLOSED);

    // `resume` waits for the writes in flight, and sends nothing.
    let server = SilentServer::new();
    let session = session(server.store);
    let (intention, mut pending) = (put(), null_mut());
    let (one, out) = (&raw const intention, &raw mut pending);
    unsafe { assert_eq!(weir_session_send(session, one, 1, out, null_mut()), OK) };
    let resume = |session| unsafe { weir_session_resume(session, 1, null_mut()) };
    let close = || unsafe { assert_eq!(weir_close(server.store, null_mut()), OK) };
    assert_eq!(ended(&server, "write", session, resume, close), CLOSED);
    unsafe { weir_pending_free(pending) };
}

#[test]
fn reads_have_the_consistency_of_their_handle() {
    let server = SilentServer::new();
    // Keys are linear by default, so the packet does not name it.
    for (number, request) in [(1, "local"), (2, "leader"), (3, "get")] {
        let mut handle = null_mut();
        let (out, none) = (&raw mut handle, null_mut());
        let made = unsafe { weir_with_consistency(server.store, number, out, none) };
        assert_eq!(made, OK);
        let short = within(handle, 20);
        assert_eq!(get(short), DEADLINE);
        server.await_request(request);
        unsafe {
            assert_eq!(weir_cancel(handle), OK);
            assert_eq!(get(short), CANCELLED);
            assert_eq!(weir_close(short, null_mut()), OK);
            assert_eq!(weir_close(handle, null_mut()), OK);
        }
    }
    let (mut handle, mut error) = (null_mut(), zero::<Error>());
    for number in [0, 4, u32::MAX] {
        let out = &raw mut handle;
        let made = unsafe { weir_with_consistency(server.store, number, out, &raw mut error) };
        assert_eq!((made, handle), (BAD_OPTION, null_mut()));
        let wrong = format!("the consistency is {number}");
        assert!(words(&error).ends_with(&wrong), "{}", words(&error));
    }
}

#[test]
fn a_directory_accepts_every_consistency() {
    let store = Store::new();
    assert_eq!(submit(store.store), OK);
    for number in 1..=3 {
        let mut handle = null_mut();
        let (out, none) = (&raw mut handle, null_mut());
        let made = unsafe { weir_with_consistency(store.store, number, out, none) };
        assert_eq!((made, get(handle)), (OK, OK));
        let reader = reader(handle);
        unsafe { assert_eq!(weir_close(handle, null_mut()), OK) };
        assert_eq!(read(reader, 0), READY);
        unsafe { weir_reader_free(reader) };
    }
    assert_eq!(get(store.store), OK);
}

#[test]
fn other_handles_have_no_deadline_and_no_consistency() {
    let store = Store::new();
    let (other, _) = query("");
    let mut out = null_mut();
    unsafe {
        let nothing = null_mut();
        assert_eq!(
            weir_within(nothing, 1, &raw mut out, nothing.cast()),
            NULL_POINTER
        );
        assert_eq!(
            weir_with_consistency(nothing, 1, &raw mut out, nothing.cast()),
            NULL_POINTER
        );
        assert_eq!(
            weir_with_consistency(store.store, 1, null_mut(), null_mut()),
            NULL_POINTER
        );
        assert_eq!(
            weir_with_consistency(other.cast(), 1, &raw mut out, null_mut()),
            BAD_HANDLE
        );
        assert_eq!(
            weir_within(store.store, 1, null_mut(), null_mut()),
            NULL_POINTER
        );
        assert_eq!(
            weir_within(other.cast(), 1, &raw mut out, null_mut()),
            BAD_HANDLE
        );
        assert!(out.is_null());
        assert_eq!(weir_cancel(null_mut()), NULL_POINTER);
        assert_eq!(weir_cancel(other.cast()), BAD_HANDLE);
        assert_eq!(weir_cancel(store.store), UNSUPPORTED);
        assert_eq!(weir_session_cancel(null_mut()), NULL_POINTER);
        assert_eq!(weir_session_cancel(store.store.cast()), BAD_HANDLE);
        weir_query_free(other);
    }
    assert_eq!(get(store.store), 6);
}
