//! Clients that make the server retain memory for them.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::background_writer::BackgroundWriter;
use crate::limited_server::{DESCRIPTORS, Descriptors, LimitedServer};

/// Records of the topic `large`, and bytes of each.
const RECORDS: usize = 12;
const RECORD_BYTES: usize = 800_000;
/// Writes of the background writer that must be acknowledged during the abuse.
const WRITES: usize = 200;
/// Maximum resident memory after the abusive clients have disconnected.
const REST_BYTES: u64 = 112 << 20;

/// A server with large records.
fn server() -> LimitedServer {
    let server = LimitedServer::new();
    let created = crate::limited_server::put(&server.address, "PUT /v1/topics/large", b"");
    assert_eq!(created, 201);
    let value = format!("\"{}\"", "x".repeat(RECORD_BYTES - 2));
    for n in 0..RECORDS {
        let line = format!("PUT /v1/topics/large/keys/{n}");
        let status = crate::limited_server::put(&server.address, &line, value.as_bytes());
        assert_eq!(status, 201);
    }
    server
}

/// Runs an abuse beside a background writer. No write of that writer fails; the server stays within
/// its memory limit, and returns memory after the abusive clients have disconnected.
fn run_abuse<T>(what: &str, abuse: impl FnOnce(&LimitedServer) -> T) {
    run_abuse_at(server(), what, abuse);
}

/// Like `run_abuse`, on a separate server.
fn run_abuse_at<T>(mut server: LimitedServer, what: &str, abuse: impl FnOnce(&LimitedServer) -> T) {
    let writer = BackgroundWriter::start(&server);
    let abusers = abuse(&server);
    writer.wait(WRITES);
    server.check_limits(what);
    drop(abusers);
    writer.wait(WRITES);
    writer.end();
    server.wait_memory(what, REST_BYTES);
    server.check_limits(what);
}

/// Sends `bytes`. Ignores the error of a server that has closed the connection.
fn send(stream: &mut TcpStream, bytes: &[u8]) {
    if let Err(error) = stream.write_all(bytes) {
        let closed = [
            ErrorKind::BrokenPipe,
            ErrorKind::ConnectionReset,
            ErrorKind::WouldBlock,
            ErrorKind::TimedOut,
        ];
        assert!(closed.contains(&error.kind()), "{error}");
    }
}

/// Appends an HTTP/2 frame to `out`.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(payload.len()).unwrap();
    out.extend_from_slice(&length.to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The first bytes of an HTTP/2 connection with stream windows of `window` bytes, and its requests.
fn streams_with_window(window: u32, streams: u32, path: &[u8]) -> Vec<u8> {
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // INITIAL_WINDOW_SIZE is setting 4.
    let [a, b, c, d] = window.to_be_bytes();
    frame(4, 0, 0, &[0, 4, a, b, c, d], &mut out);
    // Method GET, scheme http, then path and authority as literals (RFC 7541, appendix A).
    let mut head = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    head.extend_from_slice(path);
    head.extend_from_slice(b"\x01\x09localhost");
    for stream in 0..streams {
        // END_STREAM and END_HEADERS.
        frame(1, 0x5, 2 * stream + 1, &head, &mut out);
    }
    out
}

#[test]
fn streams_of_http2_without_a_window_are_bounded() {
    run_abuse("100 x 50 streams without a window", |server| {
        let request = streams_with_window(0, 50, b"/v1/topics/large/events");
        let open = || {
            let mut stream = server.connect();
            send(&mut stream, &request);
            stream
        };
        (0..100).map(|_| open()).collect::<Vec<_>>()
    });
}

/// HTTP/2 control frames that request no work, far more than any client needs.
#[test]
fn floods_of_control_frames_are_bounded() {
    run_abuse("200 floods of control frames", |server| {
        let flood = |kind, stream, payload: &[u8]| {
            let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            frame(4, 0, 0, b"", &mut out);
            for _ in 0..20_000 {
                frame(kind, 0, stream, payload, &mut out);
            }
            out
        };
        let floods = [
            flood(4, 0, b""),
            flood(6, 0, b"12345678"),
            flood(2, 1, &[0, 0, 0, 3, 1]),
            flood(8, 0, &1_u32.to_be_bytes()),
            flood(0x20, 0, b"?"),
        ];
        let open = |number: usize| {
            let mut stream = server.connect();
            send(&mut stream, &floods[number % floods.len()]);
            stream
        };
        let mut abusers: Vec<_> = (0..200).map(open).collect();
        for stream in &mut abusers {
            // The server closes each connection; with a reset, if it had not read all bytes.
            let ended = stream.read_to_end(&mut Vec::new());
            let is_late = |error: &std::io::Error| {
                matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
            };
            assert!(
                !ended.is_err_and(|error| is_late(&error)),
                "the connection is still open"
            );
        }
        abusers
    });
}

#[test]
fn slow_readers_of_pages_are_bounded() {
    run_abuse("1,000 slow readers of pages", |server| {
        let get = b"GET /v1/topics/large/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let open = || {
            let mut stream = server.connect();
            send(&mut stream, get);
            stream
        };
        let mut readers: Vec<_> = (0..1000).map(|_| open()).collect();
        // Each accepted reader reads a little once; rejected ones get nothing.
        for stream in &mut readers {
            let _ = stream.set_nonblocking(true);
            let _ = stream.read(&mut [0; 1000]);
        }
        readers
    });
}

#[test]
fn bodies_without_end_are_bounded() {
    run_abuse("500 bodies without end", |server| {
        let piece = [b"10000\r\n".as_slice(), &vec![b'1'; 0x10000], b"\r\n"].concat();
        let head = "POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        let open = || {
            let mut stream = server.connect();
            send(&mut stream, head.as_bytes());
            stream.set_nonblocking(true).unwrap();
            stream
        };
        let mut senders: Vec<_> = (0..500).map(|_| open()).collect();
        // More than 8 MiB each, as far as the server reads.
        for _ in 0..128 {
            for stream in &mut senders {
                send(stream, &piece);
            }
        }
        senders
    });
}

/// Bytes of the initial HTTP/2 window.
const FIRST_WINDOW_BYTES: usize = 65_535;

/// An HTTP/2 body: its head without an end, then `total` bytes in DATA frames of `bytes`.
fn body_of_frames(bytes: usize, total: usize) -> Vec<u8> {
    let mut out = Vec::new();
    // Acknowledges the server's SETTINGS, after which the server's windows apply.
    frame(4, 0x1, 0, &[], &mut out);
    let path = b"/v1/topics/t/events";
    // Method POST, scheme http, then path and authority as literals (RFC 7541, appendix A).
    let mut head = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    head.extend_from_slice(path);
    head.extend_from_slice(b"\x01\x09localhost");
    frame(1, 0x4, 1, &head, &mut out);
    let piece = vec![b'1'; bytes];
    for _ in 0..total / bytes {
        frame(0, 0, 1, &piece, &mut out);
    }
    out
}

/// An HTTP/2 connection that has received the server's SETTINGS, and then sends `bytes`.
fn http2(server: &LimitedServer, bytes: &[u8]) -> TcpStream {
    let mut stream = server.connect();
    let mut begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(4, 0, 0, &[], &mut begin);
    send(&mut stream, &begin);
    let _ = stream.read(&mut [0; 1024]);
    send(&mut stream, bytes);
    stream
}

#[test]
fn bodies_over_http2_are_bounded() {
    // A client needs the server's permission to exceed the initial window. The server closes the
    // connection of a client that exceeds its window.
    for (bytes, total) in [
        (16 << 10, FIRST_WINDOW_BYTES),
        (1, FIRST_WINDOW_BYTES),
        (16 << 10, 1 << 20),
    ] {
        let what = format!("500 bodies over HTTP/2, {total} bytes in frames of {bytes}");
        run_abuse(&what, |server| {
            let request = body_of_frames(bytes, total);
            (0..500)
                .map(|_| http2(server, &request))
                .collect::<Vec<_>>()
        });
    }
}

#[test]
fn a_body_is_at_most_the_budget() {
    let server = server();
    let status = |bytes: usize| {
        let body = vec![b'1'; bytes];
        crate::limited_server::put(&server.address, "POST /v1/topics/t/events", &body)
    };
    assert_eq!(status(1 << 20), 201);
    let head = format!(
        "POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\n\
         Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n",
        48 << 20
    );
    let mut stream = server.connect();
    send(&mut stream, head.as_bytes());
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("\"setting\":\"memory_max\""), "{answer}");
}

#[test]
fn writers_that_do_not_read_conflicts_are_bounded() {
    run_abuse("500 writers that do not read conflicts", |server| {
        // Each response contains two records of 800 KB that the client has not seen.
        let put = b"POST /v1/topics/large/events HTTP/1.1\r\nHost: localhost\r\n\
                    If-Match: \"o1\"\r\nPrefer: conflicts=9\r\nContent-Length: 1\r\n\r\n1";
        let open = || {
            let mut stream = server.connect();
            send(&mut stream, put);
            stream
        };
        let mut writers: Vec<_> = (0..500).map(|_| open()).collect();
        wait_for_bytes(&mut writers, 8 << 10);
        writers
    });
}

/// HELLO, and listeners with unlimited credit (docs/formats/native.md).
fn stalled_listeners(listeners: usize) -> Vec<u8> {
    let max = u64::MAX;
    let listen = |n: usize| {
        format!(
            ":_tag\t{n}\n\n:_topic\tlarge\n:_after\t0\n:_follow\t1\n:_bytes\t{max}\n\
             :_records\t{max}\n_request_listen\n|\n"
        )
    };
    let hello = "|\n\n_request_hello\n|\n".to_owned();
    let packets: Vec<String> = std::iter::once(hello)
        .chain((0..listeners).map(listen))
        .collect();
    packets.concat().into_bytes()
}

#[test]
fn stalled_native_readers_are_bounded() {
    run_abuse("500 stalled native readers", |server| {
        let request = stalled_listeners(50);
        let open = || {
            let mut stream = crate::limited_server::connect(&server.native);
            send(&mut stream, &request);
            stream
        };
        (0..500).map(|_| open()).collect::<Vec<_>>()
    });
}

/// Bytes of the largest record that a topic may have.
const LARGEST_BYTES: usize = 64 << 20;

/// A server whose topic `big` has one record of 64 MiB, at offset 2 and under a key. Commands
/// without a memory limit have written it.
fn server_with_one_record() -> LimitedServer {
    let server = LimitedServer::prepared(Descriptors::both(DESCRIPTORS), |directory| {
        std::fs::write(directory.join("value"), vec![b'x'; LARGEST_BYTES]).unwrap();
        let run = |arguments: &[&str]| crate::limited_server::run(directory, arguments);
        run(&[
            "topic",
            "create",
            "--at",
            "data",
            "big",
            "value-bytes-max=64MiB",
        ]);
        run(&[
            "put",
            "--at",
            "data",
            "big",
            "@value",
            "-k",
            "k",
            "--value-max",
            "64MiB",
        ]);
        // A later record moves the large one into a segment.
        std::fs::write(directory.join("value"), vec![b'y'; 1 << 20]).unwrap();
        run(&["put", "--at", "data", "big", "@value", "-k", "l"]);
        std::fs::remove_file(directory.join("value")).unwrap();
    });
    // The open has read the record from the log.
    server.wait_memory("opened", REST_BYTES);
    server
}

/// Readers of the record of 64 MiB. Each one sends `request`, and reads nothing.
fn read_the_largest(what: &str, request: &[u8], native: bool) {
    run_abuse_at(server_with_one_record(), what, |server| {
        let address = if native {
            &server.native
        } else {
            &server.address
        };
        let open = || {
            let mut stream = crate::limited_server::connect(address);
            send(&mut stream, request);
            stream
        };
        let mut readers: Vec<_> = (0..100).map(|_| open()).collect();
        wait_for_bytes(&mut readers, 8 << 10);
        readers
    });
}

/// Waits until one of the connections has received `wanted` bytes. The others read nothing.
fn wait_for_bytes(streams: &mut [TcpStream], wanted: usize) {
    let end = Instant::now() + crate::limited_server::TIMEOUT;
    let mut bytes = vec![0; wanted];
    loop {
        for stream in &mut *streams {
            stream.set_nonblocking(true).unwrap();
            if stream.peek(&mut bytes).is_ok_and(|peeked| peeked == wanted) {
                return;
            }
        }
        assert!(Instant::now() < end, "no client received {wanted} bytes");
        std::thread::yield_now();
    }
}

#[test]
fn readers_of_the_largest_record_over_http1_are_bounded() {
    for path in [
        "events/2",
        "events",
        "events?order=desc",
        "keys/k",
        "keys?values",
    ] {
        let request = format!("GET /v1/topics/big/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let what = format!("100 readers of {path} with 64 MiB");
        read_the_largest(&what, request.as_bytes(), false);
    }
}

#[test]
fn readers_of_the_largest_record_over_http2_are_bounded() {
    let request = streams_with_window(32 << 10, 1, b"/v1/topics/big/events/2");
    read_the_largest("100 streams of a record of 64 MiB", &request, false);
}

#[test]
fn native_readers_of_the_largest_record_are_bounded() {
    let max = u64::MAX;
    let listen = format!(
        ":_tag\t1\n\n:_topic\tbig\n:_after\t0\n:_follow\t1\n:_bytes\t{max}\n\
         :_records\t{max}\n_request_listen\n|\n"
    );
    let query = format!(
        ":_tag\t1\n\n:_topic\tbig\n:_after\t0\n:_follow\t1\n:_limit\t9\n:_bytes\t{max}\n\
         :_records\t{max}\n_request_listen\n|\n"
    );
    let get = ":_tag\t2\n\n:_topic\tbig\n:_key\tk\n_request_get\n|\n".to_owned();
    for (what, packet) in [
        ("100 listeners at a record of 64 MiB", listen),
        ("100 queries of a record of 64 MiB", query),
        ("100 native reads of a record of 64 MiB", get),
    ] {
        let request = format!("|\n\n_request_hello\n|\n{packet}");
        read_the_largest(what, request.as_bytes(), true);
    }
}

#[test]
fn several_kinds_of_abuse_at_once_are_bounded() {
    let what = "several kinds of abuse at once";
    let mut server = server();
    let writer = BackgroundWriter::start_with(&server, 40_000);
    let get = b"GET /v1/topics/large/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let chunks = b"POST /v1/topics/t/events HTTP/1.1\r\nHost: localhost\r\n\
                   Transfer-Encoding: chunked\r\n\r\n10000\r\n";
    let endless = [chunks.as_slice(), &vec![b'1'; 0xFFFF]].concat();
    let bodies = [
        body_of_frames(16 << 10, FIRST_WINDOW_BYTES),
        body_of_frames(1, FIRST_WINDOW_BYTES),
    ];
    let http: [&[u8]; 3] = [
        get,
        &endless,
        &streams_with_window(0, 50, b"/v1/topics/large/events"),
    ];
    let native = stalled_listeners(50);
    let mut abusers = Vec::new();
    for _ in 0..80 {
        for request in http {
            let mut stream = server.connect();
            send(&mut stream, request);
            abusers.push(stream);
        }
        abusers.extend(bodies.iter().map(|body| http2(&server, body)));
        let mut stream = crate::limited_server::connect(&server.native);
        send(&mut stream, &native);
        abusers.push(stream);
    }
    writer.wait(WRITES);
    server.check_limits(what);
    drop(abusers);
    writer.wait(WRITES);
    writer.end();
    server.wait_memory(what, REST_BYTES);
    server.check_limits(what);
}
