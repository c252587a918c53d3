//! TLS handshakes: accepted and refused clients, and the reasons they get.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::version::{TLS12, TLS13};
use weir_server::security::{ClientCertificates, read_certificates};

use crate::peer::{Peer, assert_line};
use crate::world::{Authority, Files, TEST_TIMEOUT, client, loopback};

fn files() -> Files {
    let files = Files::new();
    files.certificate(&files.authority, &["localhost", "127.0.0.1"]);
    files
}

#[test]
fn a_file_of_certificates_above_the_limit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.pem");
    let text = Authority::new("a").pem + &"\n".repeat(1 << 20);
    std::fs::write(&path, text).unwrap();
    let error = read_certificates(&path).unwrap_err().to_string();
    assert!(error.contains("large.pem"), "{error}");
    assert!(error.contains("1048576 bytes"), "{error}");
}

#[test]
fn a_client_that_trusts_the_authority_is_served() {
    let world = files().start(|_| {});
    let mut peer = world.secure();
    assert_line(&peer.hello(""), "_notice_hello");
    world.create("t");
    assert_line(&peer.put("t", "over tls"), "_notice_committed");
    assert!(world.values("t").contains(&"over tls".to_owned()));
}

#[test]
fn a_client_rejects_another_authority_or_another_name() {
    let world = files().start(|_| {});
    let other = Authority::new("other");
    let wrong = Peer::secure(world.native, "localhost", client(&[&other.pem], None));
    let error = wrong.err().unwrap().to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
    let roots = &[world.files.authority.pem.as_str()];
    let wrong = Peer::secure(world.native, "elsewhere.example", client(roots, None));
    let error = wrong.err().unwrap().to_string();
    assert!(error.contains("not valid for name"), "{error}");
    assert_line(&world.secure().hello(""), "_notice_hello");
}

#[test]
fn plain_text_on_a_tls_port_is_refused_and_explained_over_http() {
    let world = files().start(|config| config.http = Some(loopback()));
    let mut peer = world.plain();
    peer.send(b"|\n\n_request_hello\n|\n");
    assert_eq!(peer.read(), None);

    let mut socket = TcpStream::connect(world.http.unwrap()).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    // The client sends its whole body before it reads.
    let head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16777216\r\n\r\n";
    socket.write_all(head).unwrap();
    socket.write_all(&vec![0; 16 << 20]).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer:?}");
    assert!(answer.ends_with("use https://.\r\n"), "{answer:?}");
}

/// Connects from another address of this machine.
fn from(address: [u8; 4], to: SocketAddr) -> TcpStream {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_io().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((address, 0).into()).unwrap();
        let stream = socket.connect(to).await.unwrap().into_std().unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    })
}

/// A connection does not wait for stalled handshakes: all of them are still open after it was
/// served.
#[test]
fn a_stalled_handshake_delays_no_other_connection() {
    const STALLED: usize = 300;
    let world = files().start(|config| {
        config.http = Some(loopback());
        // The limit on unauthenticated connections is tested in the abuse suite.
        config.connections_unauthenticated_max = 2 * STALLED;
    });
    for (address, sends_byte) in [([127, 0, 0, 1], false), ([127, 0, 0, 2], true)] {
        let stalled: Vec<TcpStream> = (0..STALLED)
            .map(|_| from(address, world.http.unwrap()))
            .collect();
        if sends_byte {
            for mut socket in &stalled {
                socket.write_all(&[0x16]).unwrap();
            }
        }
        assert_line(&world.secure().hello(""), "_notice_hello");
        for mut socket in &stalled {
            let error = socket.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        }
    }
}

#[test]
fn tls_1_2_is_used_only_if_enabled() {
    let only_12 = |files: &Files| {
        let mut roots = rustls::RootCertStore::empty();
        let pem = files.authority.pem.as_bytes();
        let root = rustls::pki_types::pem::PemObject::from_pem_slice(pem).unwrap();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS12])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    };
    assert!(TLS13.version != TLS12.version);
    let world = files().start(|_| {});
    let refused = Peer::secure(world.native, "localhost", only_12(&world.files));
    assert!(refused.is_err());
    let world = files().start(|config| config.tls12 = true);
    let mut peer = Peer::secure(world.native, "localhost", only_12(&world.files)).unwrap();
    assert_line(&peer.hello(""), "_notice_hello");
    assert_line(&world.secure().hello(""), "_notice_hello");
}

/// `clients` signs client certificates; it is not the authority of the server.
fn with_clients(mode: ClientCertificates) -> (crate::world::World, Authority) {
    let (files, clients) = (files(), Authority::new("clients"));
    files.write("clients.pem", &clients.pem);
    let text = "[[certificate]]\nname = \"loader.example\"\nrights = [\"put orders\"]\n";
    files.write("identities.toml", text);
    (files.start(|config| config.tls_client = mode), clients)
}

#[test]
fn the_name_of_a_certificate_is_the_principal() {
    let (world, clients) = with_clients(ClientCertificates::Required);
    world.create("orders");
    world.create("other");
    let roots = &[world.files.authority.pem.as_str()];
    let connect = |own: Option<&(String, String)>| {
        let own = own.map(|(certificate, key)| (certificate.as_str(), key.as_str()));
        Peer::secure(world.native, "localhost", client(roots, own))
    };
    // Any name of the certificate may be the known identity.
    let own = clients.sign(&["desk.example", "loader.example"]);
    let mut peer = connect(Some(&own)).unwrap();
    assert_line(&peer.hello(""), "_notice_hello");
    assert_line(&peer.put("orders", "1"), "_notice_committed");
    assert_line(&peer.put("other", "1"), "_error_forbidden");
    world.audited(&["\"denied\"", "\"put\"", "\"other\"", "loader.example"]);
    // A valid certificate of a client without rights.
    let unknown = clients.sign(&["guest.example"]);
    let mut peer = connect(Some(&unknown)).unwrap();
    assert_line(&peer.hello(""), "_notice_hello");
    assert_line(&peer.put("orders", "1"), "_error_forbidden");
    world.audited(&["\"denied\"", "guest.example"]);
    // No certificate, one from another authority, and an expired one.
    assert!(connect(None).is_err());
    assert!(connect(Some(&world.files.authority.sign(&["loader.example"]))).is_err());
    assert!(connect(Some(&clients.sign_until(&["loader.example"], 2020))).is_err());
}

#[test]
fn a_token_replaces_an_optional_certificate() {
    let (world, clients) = with_clients(ClientCertificates::Optional);
    world.create("orders");
    let token = world.files.token("reader", &["read orders"]);
    world.server.reload().unwrap();
    let mut peer = world.secure();
    assert_line(&peer.hello(token.expose()), "_notice_hello");
    assert_line(&peer.list("orders"), "_data_topics");
    assert_line(&peer.put("orders", "1"), "_error_forbidden");
    // Without a certificate and a token, the client is not authenticated.
    assert_line(&world.secure().hello(""), "_error_unauthenticated");
    // With both, the token takes precedence.
    let own = clients.sign(&["loader.example"]);
    let roots = &[world.files.authority.pem.as_str()];
    let config = client(roots, Some((&own.0, &own.1)));
    let mut peer = Peer::secure(world.native, "localhost", config).unwrap();
    assert_line(&peer.hello(token.expose()), "_notice_hello");
    assert_line(&peer.put("orders", "1"), "_error_forbidden");
}
