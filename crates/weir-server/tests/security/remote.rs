//! The library as a client of a server with TLS and identities.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use weir::{ConnectOptions, ErrorCode, Intention, Operation, StoreError, Weir, WeirError};
use weir_server::security::{ClientCertificates, IdentitiesFile, now_ms};

use crate::world::{Authority, Files, World, loopback};

/// Limit of a connection that must fail: an attempt on a busy machine has time to fail by itself.
const FAILS_AFTER: Duration = Duration::from_secs(2);

fn options(world: &World, token: Option<&str>) -> ConnectOptions {
    let mut options = ConnectOptions::default();
    options.authority = Some(world.files.write("trusted.pem", &world.files.authority.pem));
    options.token = token.map(str::to_owned);
    // Long enough for a busy machine, and short enough for tests that expect a failure.
    options.connect_timeout = Duration::from_secs(5);
    options
}

fn url(world: &World) -> String {
    format!("weirs://localhost:{}", world.native.port())
}

fn code(error: &WeirError) -> ErrorCode {
    match error {
        WeirError::Store(StoreError::Remote { code, .. }) => *code,
        other => panic!("{other:?}"),
    }
}

fn files() -> Files {
    let files = Files::new();
    files.certificate(&files.authority, &["localhost", "127.0.0.1"]);
    files
}

#[test]
fn writes_and_reads_work_over_tls_with_a_token() {
    let files = files();
    let token = files.token("loader", &["create,put,read,delete t"]);
    let world = files.start(|_| {});
    let remote = Weir::connect_with(&url(&world), &options(&world, Some(token.expose()))).unwrap();
    let topic = remote.topic("t").unwrap();
    topic
        .create(&weir::TopicOptions::default())
        .unwrap()
        .ensure_valid()
        .unwrap();
    let value = "x".repeat(300_000);
    for n in 0..200 {
        topic
            .put(format!("k{n}").as_bytes(), value.as_bytes())
            .unwrap()
            .ensure_valid()
            .unwrap();
    }
    let read = topic.get(b"k199").unwrap().unwrap();
    assert_eq!(read.value().len(), value.len());
    let mut records = 0;
    for page in topic.pages(weir::ReadFrom::Start).unwrap() {
        records += page.unwrap().iter().count();
    }
    assert_eq!(records, 201);
    let denied = remote.topic("u").unwrap().put(b"k", b"v").unwrap_err();
    assert_eq!(code(&denied), ErrorCode::Forbidden);
}

/// Forwards the bytes of a connection to a server.
fn forward(near: TcpStream, server: SocketAddr) {
    let far = TcpStream::connect(server).unwrap();
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        std::thread::spawn(move || {
            drop(std::io::copy(&mut from, &mut to));
            drop(to.shutdown(Shutdown::Both));
        })
    };
    copy(near.try_clone().unwrap(), far.try_clone().unwrap());
    copy(far, near);
}

#[test]
fn a_client_reads_changed_certificates_after_a_failed_attempt() {
    let world = files().start(|_| {});
    let options = options(&world, None);
    let earlier = Authority::new("an earlier authority");
    world.files.write("trusted.pem", &earlier.pem);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("weirs://localhost:{port}");
    let connecting = std::thread::spawn(move || Weir::connect_with(&url, &options));
    // The client has read the files when it connects.
    drop(listener.accept().unwrap());
    world.files.write("trusted.pem", &world.files.authority.pem);
    let server = world.native;
    // Ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            forward(stream.unwrap(), server);
        }
    });
    connecting.join().unwrap().unwrap();
}

/// The files of a history contain the records of all topics.
#[test]
fn a_history_needs_the_rights_to_administer_and_to_read_everything() {
    let files = files();
    let both = files.token("operator", &["admin", "read ** .**"]);
    let admin = files.token("admin", &["admin", "read t"]);
    let reader = files.token("reader", &["read ** .**"]);
    // The files also contain the audit log.
    let clients = files.token("clients", &["all **"]);
    let world = files.start(|_| {});
    world.create("t");
    let connect =
        |token: &str| Weir::connect_with(&url(&world), &options(&world, Some(token))).unwrap();
    for token in [&admin, &reader, &clients] {
        let denied = connect(token.expose()).history(None).unwrap_err();
        assert_eq!(code(&denied), ErrorCode::Forbidden);
    }
    let denied = connect(clients.expose()).history(None).unwrap_err();
    assert!(denied.to_string().contains("`read ** .**`"), "{denied}");
    // A token is valid as the line of a file.
    let line = format!("{}\n", both.expose());
    let history = connect(&line).history(None).unwrap();
    let mut names = Vec::new();
    let all = weir::IntentionOffset(1)..=weir::IntentionOffset(u64::MAX);
    history
        .replay(all, &mut |replayed| names.push(replayed.topic.to_owned()))
        .unwrap();
    assert!(names.contains(&"t".to_owned()), "{names:?}");
}

#[test]
fn only_an_administrator_stops_a_topic() {
    let files = files();
    let admin = files.token("operator", &["admin"]);
    let writer = files.token("writer", &["create,put,delete,program,destroy **"]);
    let world = files.start(|_| {});
    world.create("t");
    let [admin, writer] = [admin, writer].map(|token| {
        Weir::connect_with(&url(&world), &options(&world, Some(token.expose()))).unwrap()
    });
    let stop = |stopped| [Intention::new("t", Operation::Quarantine { stopped })];
    let denied = writer
        .propose(&stop(true))
        .and_then(|sent| Ok(sent.wait()?));
    assert_eq!(code(&denied.unwrap_err()), ErrorCode::Forbidden);
    let put = || writer.topic("t").unwrap().append("x").unwrap().is_valid();
    assert!(put());
    admin.propose(&stop(true)).unwrap().wait().unwrap();
    assert!(!put());
    admin.propose(&stop(false)).unwrap().wait().unwrap();
    assert!(put());
    world.audited(&["\"denied\"", "admin", "writer"]);
}

#[test]
fn readers_and_writers_of_one_connection_do_not_wait_for_each_other() {
    let world = Arc::new(files().start(|_| {}));
    world.create("t");
    let remote = Arc::new(Weir::connect_with(&url(&world), &options(&world, None)).unwrap());
    let value = vec![b'x'; 100_000];
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let (remote, value) = (Arc::clone(&remote), value.clone());
            std::thread::spawn(move || {
                let topic = remote.topic("t").unwrap();
                for i in 0..100 {
                    let key = format!("{n}-{i}");
                    topic
                        .put(key.as_bytes(), &value)
                        .unwrap()
                        .ensure_valid()
                        .unwrap();
                    assert_eq!(
                        topic.get(key.as_bytes()).unwrap().unwrap().value().len(),
                        value.len()
                    );
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(world.store.topic("t").unwrap().last.0, 401);
}

#[test]
fn an_untrusted_server_is_refused() {
    let world = files().start(|_| {});
    let mut wrong = options(&world, None);
    let other = Authority::new("other");
    wrong.authority = Some(world.files.write("other.pem", &other.pem));
    wrong.connect_timeout = FAILS_AFTER;
    let mut unnamed = options(&world, None);
    unnamed.connect_timeout = FAILS_AFTER;
    // The client uses a name that the certificate lacks.
    let other_name = format!("weirs://127.0.0.2:{}", world.native.port());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let error = Weir::connect_with(&other_name, &unnamed).unwrap_err();
            assert_eq!(code(&error), ErrorCode::Unreachable);
        });
        let error = Weir::connect_with(&url(&world), &wrong).unwrap_err();
        assert_eq!(code(&error), ErrorCode::Unreachable);
        assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    });
    wrong.authority = Some(world.files.path("missing.pem"));
    let error = Weir::connect_with(&other_name, &wrong).unwrap_err();
    assert_eq!(code(&error), ErrorCode::BadOption);
    assert!(error.to_string().contains("missing.pem"), "{error}");
}

#[test]
fn the_wrong_scheme_or_port_is_reported() {
    let secure = files().start(|config| config.http = Some(loopback()));
    let clear = Files::new().start(|config| config.http = Some(loopback()));
    let http = |world: &World| world.http.unwrap().port();
    let is_http = "this port is for HTTP";
    let cases = [
        (
            &secure,
            "weir",
            secure.native.port(),
            "begins with weirs://",
        ),
        (&clear, "weirs", clear.native.port(), "begins with weir://"),
        (&clear, "weir", http(&clear), is_http),
        (&secure, "weir", http(&secure), is_http),
        (&secure, "weirs", http(&secure), is_http),
    ];
    std::thread::scope(|threads| {
        for (world, scheme, port, hint) in cases {
            let mut options = options(world, None);
            options.connect_timeout = FAILS_AFTER;
            threads.spawn(move || {
                let url = format!("{scheme}://localhost:{port}");
                let error = Weir::connect_with(&url, &options).unwrap_err().to_string();
                assert!(error.contains(hint), "{url}: {error}");
            });
        }
    });
}

#[test]
fn a_revoked_token_ends_a_connection_with_the_reason() {
    let files = files();
    let token = files.token("a", &["all **"]);
    let world = files.start(|_| {});
    world.create("t");
    let options = options(&world, Some(token.expose()));
    assert!(!format!("{options:?}").contains(token.expose()));
    let remote = Weir::connect_with(&url(&world), &options).unwrap();
    let topic = remote.topic("t").unwrap();
    topic.put(b"k", b"1").unwrap().ensure_valid().unwrap();
    let path = world.files.path("identities.toml");
    let file = IdentitiesFile::read(&path).unwrap();
    file.without_token(token.id(), now_ms())
        .unwrap()
        .write()
        .unwrap();
    world.server.reload().unwrap();
    let denied = topic.put(b"k", b"2").unwrap_err();
    assert_eq!(code(&denied), ErrorCode::Unauthenticated);
    let again = Weir::connect_with(&url(&world), &options).unwrap_err();
    assert_eq!(code(&again), ErrorCode::Unauthenticated);
}

#[test]
fn a_client_can_authenticate_with_a_certificate() {
    let (files, clients) = (files(), Authority::new("clients"));
    files.write("clients.pem", &clients.pem);
    let text = "[[certificate]]\nname = \"loader.example\"\nrights = [\"put t\"]\n";
    files.write("identities.toml", text);
    let world = files.start(|config| config.tls_client = ClientCertificates::Required);
    world.create("t");
    let (certificate, key) = clients.sign(&["loader.example"]);
    let mut options = options(&world, None);
    options.identity = Some((
        world.files.write("own.pem", &certificate),
        world.files.write("own.key", &key),
    ));
    let remote = Weir::connect_with(&url(&world), &options).unwrap();
    remote
        .topic("t")
        .unwrap()
        .put(b"k", b"v")
        .unwrap()
        .ensure_valid()
        .unwrap();
    assert_eq!(world.values("t").last().unwrap(), "v");
}

#[test]
fn a_client_leaves_a_server_that_is_too_slow_in_the_handshake() {
    let files = files();
    let token = files.token("reader", &["read **"]);
    let world = files.start(|_| {});
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The head of a long record, and then one byte at a time.
        let mut sent = stream.write_all(&[0x16, 3, 3, 0x40, 0]);
        while sent.is_ok() {
            std::thread::sleep(Duration::from_millis(10));
            sent = stream.write_all(&[0]);
        }
    });
    let url = format!("weirs://{slow},localhost:{}", world.native.port());
    let remote = Weir::connect_with(&url, &options(&world, Some(token.expose()))).unwrap();
    assert_eq!(remote.store_id().unwrap(), world.store.identity().store_id);
}
