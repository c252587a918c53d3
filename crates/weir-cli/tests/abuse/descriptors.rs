//! Tests connections that use many descriptors.

use rustix::process::{Resource, getrlimit};

use crate::limited_server::{DESCRIPTORS, Descriptors, LimitedServer, MEMORY_BYTES, start_with};

/// More connections than the server has free descriptors.
const IDLE_CONNECTIONS: usize = 1010;
/// Enough writes for several segments of the log.
const WRITES: usize = 200;

#[test]
fn idle_connections_stop_no_write() {
    let mut server = LimitedServer::new();
    let idle: Vec<_> = (0..IDLE_CONNECTIONS).map(|_| server.connect()).collect();
    let value = vec![b'x'; 100_000];
    for n in 0..WRITES {
        server.write(n, &value);
    }
    server.check_limits("1,010 idle connections");
    drop(idle);
    server.wait_metric("weir_connections_unauthenticated ", |count| count <= 1);
    server.write(WRITES, &value);
    server.wait_metric("weir_store_poisoned ", |poisoned| poisoned == 0);
}

/// The usual limits of a service: a low soft limit, which the server raises, and a high hard limit.
/// In that case, memory limits the number of connections.
#[test]
fn a_low_soft_limit_is_raised() {
    let descriptors = Descriptors {
        soft: DESCRIPTORS,
        hard: None,
    };
    let mut server = LimitedServer::prepared(descriptors, |_| {});
    let connections = server.metric("weir_connections_max ").unwrap();
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20);
    let by_descriptors = (hard - 256) * 80 / 100;
    if server.has_memory_limit() {
        assert_eq!(connections, by_descriptors.min(MEMORY_BYTES / (256 << 10)));
    } else {
        assert!(connections <= by_descriptors, "{connections}");
    }
    let idle: Vec<_> = (0..IDLE_CONNECTIONS).map(|_| server.connect()).collect();
    let value = vec![b'x'; 100_000];
    for n in 0..WRITES {
        server.write(n, &value);
    }
    server.check_limits("1,010 idle connections, and a high hard limit");
    drop(idle);
}

#[test]
fn a_start_serves_or_reports_too_few_descriptors() {
    for descriptors in [12, 30, 64] {
        let ended = start_with(descriptors);
        let (status, printed) = ended.unwrap_or_else(|| panic!("{descriptors} must be too few"));
        assert!(printed.contains("E413"), "{descriptors}: {printed}");
        assert_eq!(status.code(), Some(78), "{descriptors}: {printed}");
    }
    for descriptors in [96, 256, 1024] {
        assert_eq!(start_with(descriptors), None, "{descriptors}");
    }
}
