//! Clients that read responses late. Their receive window is a pipe of a few bytes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use weir_core::{Intention, Operation, TopicOptions};
use weir_store::{Durability, OpenOptions, Store};

use super::{Port, connect};
use crate::config::ServerConfig;
use crate::http::self_signed;
use crate::security::Security;
use crate::shared::Shared;

/// Much longer than a test needs: a test that takes this long hangs.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);
/// The TLS session can hold the whole value, the window only a small part.
const VALUE_BYTES: usize = 40_000;

pub(super) fn port(folder: &std::path::Path, config: ServerConfig) -> Arc<Port> {
    let options = OpenOptions {
        durability: Durability::Memory,
        ..OpenOptions::default()
    };
    let store = Arc::new(Store::open(folder, &options).unwrap());
    let (options, value) = (TopicOptions::default(), vec![b'x'; VALUE_BYTES]);
    let (key, value) = (&b"k"[..], &value[..]);
    for operation in [
        Operation::Create { options: &options },
        Operation::Put { key, value },
    ] {
        let proposed = store.propose(&[Intention::new("t", operation)]);
        proposed.unwrap().wait().unwrap();
    }
    port_of(store, config)
}

pub(super) fn port_of(store: Arc<Store>, config: ServerConfig) -> Arc<Port> {
    let security = Security::open(&config).unwrap();
    Arc::new(Port::new(Arc::new(
        Shared::new(
            config,
            store,
            security,
            crate::descriptors::raise().unwrap(),
            Vec::new(),
        )
        .unwrap(),
    )))
}

pub(super) fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().build().unwrap();
    let done = async { tokio::time::timeout(TEST_TIMEOUT, test).await };
    assert!(runtime.block_on(done).is_ok(), "the test hangs");
}

/// The time limit of a client starts when bytes begin to wait for it.
#[test]
fn a_client_gets_a_long_response_after_a_quiet_time() {
    const LIMIT: Duration = Duration::from_secs(1);
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let config = ServerConfig {
            write_timeout: LIMIT,
            ..ServerConfig::default()
        };
        let port = port(folder.path(), config);
        let (server_io, mut client) = duplex(1000);
        let owner = port.shared.security.owner();
        tokio::spawn(async move { connect(&port, server_io, owner, None).await });
        let hello = b"|\n\n_request_hello\n|\n";
        client.write_all(hello).await.unwrap();
        let mut answer = Vec::new();
        let responses = async { while client.read_buf(&mut answer).await.unwrap() > 0 {} };
        // The connection stays quiet for longer than the limit.
        let ended = tokio::time::timeout(LIMIT * 3 / 2, responses).await;
        assert!(ended.is_err(), "the connection ended");
        let get = b"\n:_topic\tt\n:_key\tk\n_request_get\n|\n";
        client.write_all(get).await.unwrap();
        answer.clear();
        while answer.len() < VALUE_BYTES {
            assert!(client.read_buf(&mut answer).await.unwrap() > 0);
        }
    });
}

#[test]
fn a_response_over_tls_arrives_whole_at_a_late_reader() {
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let port = port(folder.path(), ServerConfig::default());
        let (acceptor, connector) = self_signed::tls_ends();
        let (server_io, client_io) = duplex(1000);
        let owner = port.shared.security.owner();
        let server = tokio::spawn(async move {
            let stream = acceptor.accept(server_io).await.unwrap();
            connect(&port, stream, owner, None).await;
        });
        let name = "localhost".try_into().unwrap();
        let mut client = connector.connect(name, client_io).await.unwrap();
        let mut answer = Vec::new();
        for request in [
            &b"|\n\n_request_hello\n|\n"[..],
            b"\n:_topic\tt\n:_key\tk\n_request_get\n|\n",
        ] {
            client.write_all(request).await.unwrap();
            client.flush().await.unwrap();
        }
        while !answer
            .windows(VALUE_BYTES)
            .any(|run| run[0] == b'x' && run.iter().all(|byte| *byte == b'x'))
        {
            assert!(client.read_buf(&mut answer).await.unwrap() > 0);
        }
        // Read the rest of the packet with the value, and the response to BYE.
        client.write_all(b"\n_request_bye\n|\n").await.unwrap();
        client.flush().await.unwrap();
        while client.read_buf(&mut answer).await.unwrap_or(0) > 0 {}
        let end = String::from_utf8_lossy(&answer[answer.len() - 40..]).into_owned();
        assert!(end.contains("_notice_bye"), "{end:?}");
        server.await.unwrap();
    });
}
