//! Bytes that no builder wrote: truncated, changed, or random. Reading them never panics, every
//! error has a position within the batch, and a batch that can be read can be applied.

use proptest::prelude::*;
use weir_core::batch::{Action, Batch, BatchBuilder};
use weir_core::intention::Intention;
use weir_core::limits::BATCH_ITEMS_MAX;
use weir_core::options::Compaction;
use weir_core::record::ConsequenceSink;
use weir_core::{
    ApplyError, ClientId, Expect, Machine, Operation, Outcomes, Record, TopicId, TopicName,
    TopicOptions, TxnOp,
};

use super::text::{WIDE, read, rewrite};

struct DiscardSink;

impl ConsequenceSink for DiscardSink {
    fn topic(&mut self, _: TopicId, _: &TopicName) {}
    fn record(&mut self, _: TopicId, _: &Record<'_>) {}
}

/// A batch with every kind of item.
fn every_kind_of_item() -> Vec<u8> {
    let mut options = TopicOptions::default();
    options.compaction = Compaction::Latest;
    options.keys_max = Some(2);
    options.value_bytes_max = Some(3000);
    let (key, value, meta) = (&b"key"[..], &vec![b'v'; 200][..], &b"meta"[..]);
    let ops = [
        TxnOp::Put { key, value, meta },
        TxnOp::Delete {
            key: b"gone",
            meta: b"",
        },
        TxnOp::Put {
            key: b"",
            value: b"",
            meta: b"",
        },
    ];
    let expect = [
        Expect::KeyOffset(None, 2),
        Expect::KeyAbsent(Some(b"other")),
        Expect::KeyPresent(None),
        Expect::TopicOffset(300),
        Expect::TopicAbsentOr(3),
        Expect::TopicEmpty,
        Expect::Incarnation(1),
    ];
    let put = Operation::Put { key, value };
    let mut full = Intention::new("orders", put).under(ClientId([2; 16]), 1);
    (full.meta, full.principal, full.fingerprint) = (meta, b"ann", Some(u64::MAX));
    let intentions = [
        Intention::new("orders", Operation::Create { options: &options }),
        Intention::new("orders", put).under(ClientId([1; 16]), 1),
        Intention::new("orders", put).under(ClientId([1; 16]), 2),
        Intention::new("orders", put)
            .under(ClientId([1; 16]), 9)
            .expecting(&expect),
        full,
        Intention::new("people", Operation::Delete { key }).under(ClientId([2; 16]), 2),
        Intention::new("orders", Operation::Txn { ops: &ops }),
        Intention::new("orders", Operation::Alter { options: &options }),
        Intention::new("", Operation::ExpireSessions { idle_ms: 77 }),
        Intention::new("orders", Operation::Destroy),
    ];
    let mut builder = BatchBuilder::default();
    for intention in &intentions {
        builder.push(intention, &WIDE).unwrap();
    }
    builder.to_bytes(123_456)
}

/// Checks the invariants for any bytes.
fn check(bytes: &[u8]) {
    let read = read(bytes);
    if let Err(error) = &read {
        assert!(error.at <= bytes.len(), "{error} of {} bytes", bytes.len());
        assert!(error.item as usize <= BATCH_ITEMS_MAX);
    }
    if let Ok((batch, items)) = &read
        && let Ok(written) = rewrite(batch, items)
    {
        // The builder omits redundant fields and writes everything else again.
        assert!(written.len() <= bytes.len());
        let (second, items) = super::text::read(&written).unwrap();
        assert_eq!(rewrite(&second, &items), Ok(written.clone()));
    }
    let Ok(batch) = Batch::read(bytes, 1) else {
        return;
    };
    let (mut machine, mut outcomes) = (Machine::new(3), Outcomes::default());
    let applied = machine.apply(&batch, &mut DiscardSink, &mut outcomes);
    match (read, applied) {
        (Ok((_, items)), Ok(_)) => assert_eq!(outcomes.len(), items.len()),
        (Ok((_, items)), Err(ApplyError::ProgramNeeded(_))) => {
            let program = |action: &Action<'_>| matches!(action, Action::Create { code, .. } if !code.is_empty());
            assert!(items.iter().any(|item| program(&item.action)));
        }
        (Err(error), Err(ApplyError::Batch(found))) => assert_eq!(error, found),
        // An earlier item may need a program before the error is reached.
        (Err(_), Err(ApplyError::ProgramNeeded(_))) => {}
        (read, applied) => panic!("{read:?} but {applied:?}"),
    }
}

#[test]
fn every_truncation_and_a_further_byte_is_an_error() {
    let bytes = every_kind_of_item();
    assert!(read(&bytes).is_ok());
    check(&bytes);
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len]).is_err(), "{len} bytes are no batch");
        check(&bytes[..len]);
    }
    let mut longer = bytes.clone();
    longer.push(0);
    let error = read(&longer).unwrap_err();
    assert_eq!(
        (error.at, error.what),
        (bytes.len(), "the end of the batch")
    );
}

#[test]
fn any_byte_may_change_without_a_panic() {
    let bytes = every_kind_of_item();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        let tries = if bytes[at] == b'v' { 4 } else { 255 };
        for step in 1..=tries {
            changed[at] = bytes[at].wrapping_add(step);
            check(&changed);
        }
    }
}

/// A declared count or length of any size is rejected without an allocation of that size.
#[test]
fn declared_sizes_are_not_allocated() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    let head = [&[1, 0, 0, 0, 1, 0, 0, 0][..], &[0; 8]].concat();
    let item =
        |op: u8, flags: u8| [&head[..], &[op, 0x07 | flags], &[1; 16], &[1], b"\x01t"].concat();
    for (start, what) in [
        (item(3, 0), "a key"),
        ([&item(3, 0)[..], &[1, b'k']].concat(), "a value"),
        (item(4, 0), "a key that is not empty"),
        (item(1, 0), "options"),
        ([&item(1, 0)[..], &[0]].concat(), "a program"),
        ([&item(1, 0)[..], &[0, 0]].concat(), "arguments"),
        (item(9, 0), "a number of steps"),
        ([&item(9, 0)[..], &[1, 3]].concat(), "a step"),
        (item(3, 0x10), "1 to 64 conditions"),
        ([&item(3, 0x10)[..], &[1, 1]].concat(), "a condition"),
        (item(3, 0x20), "metadata of 1 to 4,096 bytes"),
    ] {
        let bytes = [&start[..], &huge].concat();
        let error = read(&bytes).unwrap_err();
        assert_eq!(error.what, what);
        assert!(error.at <= bytes.len());
        check(&bytes);
    }
    // A flag for metadata, but empty metadata: a second encoding of the same content.
    let empty = [&item(3, 0x20)[..], &[0, 1, b'k', 0]].concat();
    assert_eq!(
        read(&empty).unwrap_err().what,
        "metadata of 1 to 4,096 bytes"
    );
    let mut count = every_kind_of_item();
    count[4..8].copy_from_slice(&[0xff; 4]);
    assert_eq!(read(&count).unwrap_err().at, 4);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn several_changes_at_once(changes in prop::collection::vec((any::<u16>(), any::<u8>(), 0..4_u8), 1..12)) {
        let mut bytes = every_kind_of_item();
        for (at, byte, kind) in changes {
            let at = usize::from(at) % bytes.len();
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes[at] ^= 1 << (byte % 8),
            }
        }
        check(&bytes);
    }

    #[test]
    fn random_items(items in prop::collection::vec(any::<u8>(), 0..300), count in 0..4_u8) {
        let mut bytes = vec![1, 0, 0, 0, count, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(items);
        check(&bytes);
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
    }
}
