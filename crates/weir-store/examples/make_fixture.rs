//! Writes the store directory of a format that later programs must still open.
//!
//! `cargo run -p weir-store --example make_fixture -- DIR` writes two stores and prints the
//! digests of their states: `DIR/whole`, whose log begins with the first entry, and
//! `DIR/purged`, whose log begins at a snapshot. Run it once for each format: a committed
//! fixture is never written again. Time stamps and the store id differ between runs, so the
//! printed digests belong in the test.
#![allow(
    clippy::print_stdout,
    reason = "the output of the example is for the person who runs it"
)]

use std::error::Error;
use std::path::Path;

use weir_core::intention::{Expect, Intention, Operation};
use weir_core::{ClientId, Compaction, TopicOptions, TxnOp};
use weir_store::{OpenOptions, Store};

/// Small log segments, for several segments in a small fixture.
const SEGMENT_BYTES: u64 = 16 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let target = std::env::args()
        .nth(1)
        .ok_or("the argument DIR is missing")?;
    for (name, purged) in [("whole", false), ("purged", true)] {
        let directory = Path::new(&target).join(name);
        let options = OpenOptions {
            log_segment_bytes: SEGMENT_BYTES,
            program: "make_fixture".to_owned(),
            ..OpenOptions::default()
        };
        let store = Store::open(&directory, &options)?;
        fill(&store, purged)?;
        println!(
            "{name}: digest {:#018x}, {} intentions, store id {:02x?}",
            store.digest().0,
            store.applied(),
            store.identity().store_id
        );
        store.close()?;
        std::fs::remove_file(directory.join("LOCK"))?;
    }
    Ok(())
}

fn fill(store: &Store, purged: bool) -> Result<(), Box<dyn Error>> {
    let send = |intention: Intention<'_>| store.propose(&[intention]).map(drop);
    let plain = TopicOptions::default();
    let mut latest = TopicOptions::default();
    latest.compaction = Compaction::Latest;
    latest.keys_max = Some(100);
    let writer = ClientId([0xa1; 16]);
    send(Intention::new(
        "orders",
        Operation::Create { options: &plain },
    ))?;
    send(Intention::new("prices.eu", Operation::Create { options: &latest }).under(writer, 1))?;
    send(Intention::new(
        "gone",
        Operation::Create { options: &plain },
    ))?;
    for n in 0..60_u64 {
        let key = format!("order-{}", n % 25).into_bytes();
        let value = vec![b'a' + u8::try_from(n % 26)?; usize::try_from(n * 13 % 500)?];
        let (key, value) = (key.as_slice(), value.as_slice());
        let put = Intention::new("orders", Operation::Put { key, value }).under(writer, n + 2);
        send(Intention {
            meta: if n % 10 == 0 {
                b"{\"type\":\"order\"}"
            } else {
                b""
            },
            ..put
        })?;
        let value = n.to_be_bytes();
        let key = b"eur";
        send(Intention::new(
            "prices.eu",
            Operation::Put { key, value: &value },
        ))?;
        if n == 30 {
            store.checkpoint()?;
        }
    }
    let big = vec![b'z'; 20_000];
    send(Intention::new(
        "orders",
        Operation::Put {
            key: b"\xff\x00",
            value: &big,
        },
    ))?;
    let ops = [
        TxnOp::Put {
            key: b"usd",
            value: b"1.08",
            meta: b"",
        },
        TxnOp::Delete {
            key: b"eur",
            meta: b"",
        },
    ];
    send(Intention::new("prices.eu", Operation::Txn { ops: &ops }))?;
    let clash = [Expect::KeyAbsent(None)];
    let late = Operation::Put {
        key: b"usd",
        value: b"2",
    };
    let other = ClientId([0xb2; 16]);
    send(
        Intention::new("prices.eu", late)
            .under(other, 1)
            .expecting(&clash),
    )?;
    send(Intention::new("gone", Operation::Destroy))?;
    store.sync()?;
    if purged {
        store.compact_topic("prices.eu")?;
        store.compact_log()?;
    }
    let (key, value) = (&b"order-0"[..], &b"the last one"[..]);
    store
        .propose(&[Intention::new("orders", Operation::Put { key, value })])?
        .wait()?;
    Ok(())
}
