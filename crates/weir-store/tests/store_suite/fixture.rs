//! Store directories of every released format open with their original content.
//!
//! The example `make_fixture` wrote `fixtures/format-N` once. A test copies it before
//! opening it, and it is never written again.

use std::path::{Path, PathBuf};

use weir_core::{ClientId, Compaction, Effect, ErrorCode, Outcome, RecordKind};
use weir_store::{OpenOptions, Store};

use crate::world::{Rec, execute, keys, outcomes, put, records};

const WRITER: ClientId = ClientId([0xa1; 16]);
const OTHER: ClientId = ClientId([0xb2; 16]);
/// Printed by `make_fixture`.
const WHOLE: u64 = 0x549f_09ed_389c_7a78;
const PURGED: u64 = 0x979b_650e_3c45_eedc;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::write(target, std::fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

fn fixture(format: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(format)
        .join(name)
}

/// The key and value of an order, as `make_fixture` wrote them.
fn order(n: u64) -> (Vec<u8>, Vec<u8>) {
    let letter = b"abcdefghijklmnopqrstuvwxyz"[n as usize % 26];
    let key = format!("order-{}", n % 25).into_bytes();
    (key, vec![letter; n as usize * 13 % 500])
}

fn check_orders(found: &[Rec]) {
    assert_eq!(found.len(), 63);
    assert_eq!(found[0].kind, RecordKind::Create);
    for n in 0..60_u64 {
        let record = &found[n as usize + 1];
        let (key, value) = order(n);
        assert_eq!((record.offset, record.nonce), (n + 2, n + 2));
        assert_eq!(record.intention, 4 + 2 * n);
        assert_eq!((record.client, record.kind), (WRITER, RecordKind::Put));
        assert_eq!((&record.key, &record.value), (&key, &value));
        let meta: &[u8] = if n % 10 == 0 {
            b"{\"type\":\"order\"}"
        } else {
            b""
        };
        assert_eq!(record.meta, meta);
        assert_eq!(record.flags, 1);
    }
    assert_eq!(
        (&found[61].key[..], found[61].value.len()),
        (&b"\xff\x00"[..], 20_000)
    );
    assert_eq!(
        (found[62].offset, &found[62].value[..]),
        (63, &b"the last one"[..])
    );
}

fn check_prices(found: &[Rec], purged: bool) {
    // The CREATE, sixty prices, and the two steps of the transaction.
    let offsets: Vec<u64> = found.iter().map(|record| record.offset).collect();
    if purged {
        assert_eq!(
            offsets,
            [1, 62, 63],
            "compacted: CREATE, the new key, the tombstone"
        );
    } else {
        assert_eq!(offsets, (1..=63).collect::<Vec<_>>());
        for (record, n) in found[1..61].iter().zip(0_u64..) {
            assert_eq!(
                (&record.key[..], &record.value[..]),
                (&b"eur"[..], &n.to_be_bytes()[..])
            );
            assert!(record.client.is_none());
        }
    }
    let [.., put, delete] = found else { panic!() };
    assert_eq!(
        (put.kind, put.flags, &put.value[..]),
        (RecordKind::Put, 2, &b"1.08"[..])
    );
    assert_eq!(
        (delete.kind, delete.flags, &delete.key[..]),
        (RecordKind::Delete, 3, &b"eur"[..])
    );
}

fn check(name: &str, digest: u64, purged: bool) {
    let source = fixture("format-1", name);
    let dir = tempfile::tempdir().unwrap();
    copy(&source, dir.path());
    let report = weir_store::verify(dir.path()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    assert_eq!(report.digest.map(|digest| digest.0), Some(digest));
    let options = OpenOptions {
        create: false,
        ..OpenOptions::default()
    };
    let store = Store::open(dir.path(), &options).unwrap();
    assert!(store.report().log.clean && store.report().set_aside.is_empty());
    assert!(store.report().snapshot.is_some());
    assert_eq!(store.digest().0, digest);
    assert_eq!(store.applied().0, 128);
    check_orders(&records(&store, "orders"));
    check_prices(&records(&store, "prices.eu"), purged);
    assert_eq!(keys(&store, "orders").len(), 26);
    assert_eq!(
        keys(&store, "orders")[&b"order-0"[..]],
        (63, b"the last one".to_vec())
    );
    let prices = keys(&store, "prices.eu");
    assert_eq!(prices.len(), 1);
    assert_eq!(prices[&b"usd"[..]].1, b"1.08");
    let topic = store.topic("prices.eu").unwrap();
    assert_eq!(topic.options.compaction, Compaction::Latest);
    assert_eq!(
        (topic.options.keys_max, topic.incarnation.unwrap().0),
        (Some(100), 2)
    );
    let gone = store.topic("gone").unwrap();
    assert_eq!((gone.live, gone.last.0), (false, 2));
    // Sessions have their outcomes.
    assert_eq!((store.last_nonce(WRITER), store.last_nonce(OTHER)), (61, 1));
    let conflict = store.outcome(OTHER, 1).unwrap();
    assert_eq!(
        (conflict.effect, conflict.reason),
        (Effect::Invalid, Some(ErrorCode::Conflict))
    );
    let (key, value) = order(59);
    let again = outcomes(&store, &[put("orders", &key, &value).under(WRITER, 61)])[0].clone();
    assert!(matches!(again, Outcome::Replayed(commit) if commit.first.0 == 61));
    // The store accepts writes.
    assert_eq!(execute(&store, &[put("orders", b"k", b"v")])[0].first.0, 64);
    store.close().unwrap();
    let store = Store::open(dir.path(), &options).unwrap();
    assert_eq!(records(&store, "orders").len(), 64);
}

#[test]
fn format_1_with_a_complete_log_opens_with_its_content() {
    check("whole", WHOLE, false);
}

#[test]
fn format_1_with_a_purged_log_opens_with_its_content() {
    check("purged", PURGED, true);
}
