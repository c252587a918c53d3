//! Connections that take descriptors.

use crate::world::{World, start_with};

/// More connections than the server has descriptors left.
const BARE: usize = 1010;
/// Enough writes for several segments of the log.
const WRITES: usize = 200;

#[test]
fn idle_connections_stop_no_write() {
    let mut world = World::new();
    let bare: Vec<_> = (0..BARE).map(|_| world.connect()).collect();
    let value = vec![b'x'; 100_000];
    for n in 0..WRITES {
        world.write(n, &value);
    }
    world.survived("1,010 bare connections");
    drop(bare);
    world.wait_metric("weir_connections_unauthenticated ", |count| count <= 1);
    world.write(WRITES, &value);
    world.wait_metric("weir_store_poisoned ", |poisoned| poisoned == 0);
}

#[test]
fn a_start_serves_or_says_that_there_are_too_few_descriptors() {
    for descriptors in [12, 30, 64] {
        let ended = start_with(descriptors);
        let (status, said) = ended.unwrap_or_else(|| panic!("{descriptors} are too few"));
        assert!(said.contains("E413"), "{descriptors}: {said}");
        assert_eq!(status.code(), Some(78), "{descriptors}: {said}");
    }
    for descriptors in [96, 256, 1024] {
        assert_eq!(start_with(descriptors), None, "{descriptors}");
    }
}
