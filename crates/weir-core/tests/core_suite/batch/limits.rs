//! Every limit at one below, at, and one above. The first two are accepted. The third is rejected
//! with the error that names the limit, and the builder does not change.

use weir_core::batch::{Batch, BatchBuilder};
use weir_core::intention::{Intention, IntentionError, IntentionLimits};
use weir_core::limits::{
    BATCH_BYTES_HARD_MAX, BATCH_ITEMS_MAX, EXPECTS_MAX, ITEM_BYTES_MAX, KEY_BYTES_DEFAULT,
    KEY_BYTES_MAX, META_BYTES_MAX, PRINCIPAL_BYTES_MAX, TOPIC_NAME_BYTES_MAX, TXN_OPS_MAX,
    VALUE_BYTES_DEFAULT, VALUE_BYTES_MAX,
};
use weir_core::record::ConsequenceSink;
use weir_core::{
    ClientId, Effect, Expect, Machine, NameError, Operation, Outcomes, Record, TopicId, TopicName,
    TopicOptions, TxnOp,
};

use super::text::{WIDE, read, rewrite};

const PUT: Operation<'static> = Operation::Put {
    key: b"k",
    value: b"v",
};

fn put() -> Intention<'static> {
    Intention::new("orders", PUT)
}

/// Pushes the intention, reads it back and encodes it again.
fn assert_accepted(intention: &Intention<'_>, limits: &IntentionLimits) {
    let mut builder = BatchBuilder::default();
    builder.push(intention, limits).unwrap();
    let bytes = builder.to_bytes(5);
    let (batch, items) = read(&bytes).unwrap();
    assert_eq!(items.len(), 1);
    assert_eq!(rewrite(&batch, &items), Ok(bytes));
}

/// Pushes the intention between two others, which must not be affected.
fn assert_rejected(intention: &Intention<'_>, limits: &IntentionLimits, error: &IntentionError) {
    let mut builder = BatchBuilder::default();
    let mut other = BatchBuilder::default();
    let client = ClientId([9; 16]);
    for builder in [&mut builder, &mut other] {
        builder.push(&put().under(client, 1), &WIDE).unwrap();
    }
    assert_eq!(builder.push(intention, limits).as_ref(), Err(error));
    assert_eq!(builder.items(), other.items());
    assert_eq!(builder.len(), 1);
    for builder in [&mut builder, &mut other] {
        builder.push(&put().under(client, 2), &WIDE).unwrap();
    }
    assert_eq!(builder.to_bytes(0), other.to_bytes(0));
}

fn too_large(what: &'static str, max: usize) -> IntentionError {
    let actual = max + 1;
    IntentionError::TooLarge { what, actual, max }
}

/// Tries the sizes `max - 1`, `max` and `max + 1`.
fn check_around(
    max: usize,
    limits: &IntentionLimits,
    error: &IntentionError,
    check: impl Fn(usize, &dyn Fn(&Intention<'_>)),
) {
    for size in [max - 1, max] {
        check(size, &|intention| assert_accepted(intention, limits));
    }
    check(max + 1, &|intention| {
        assert_rejected(intention, limits, error);
    });
}

#[test]
fn topic_names() {
    let error = IntentionError::Name(NameError::TooLong(TOPIC_NAME_BYTES_MAX + 1));
    check_around(
        TOPIC_NAME_BYTES_MAX,
        &WIDE,
        &error,
        |size, try_intention| {
            try_intention(&Intention::new(&"t".repeat(size), PUT));
        },
    );
    let byte = |at, byte| NameError::Byte { at, byte };
    for (name, error) in [
        ("", NameError::Empty),
        (".own", NameError::Reserved),
        ("a b", byte(1, b' ')),
        ("ö", byte(0, 0xc3)),
    ] {
        assert_rejected(
            &Intention::new(name, PUT),
            &WIDE,
            &IntentionError::Name(error),
        );
    }
}

#[test]
fn keys_and_values() {
    let default = IntentionLimits::default();
    for (limits, key_max) in [(&default, KEY_BYTES_DEFAULT), (&WIDE, KEY_BYTES_MAX)] {
        let error = too_large("key", key_max);
        check_around(key_max, limits, &error, |size, try_intention| {
            let (key, value, meta) = (&vec![7; size][..], &[][..], &[][..]);
            try_intention(&Intention::new("t", Operation::Put { key, value }));
            try_intention(&Intention::new("t", Operation::Delete { key }));
            let ops = &[TxnOp::Put { key, value, meta }];
            try_intention(&Intention::new("t", Operation::Txn { ops }));
            let ops = &[TxnOp::Delete { key, meta }];
            try_intention(&Intention::new("t", Operation::Txn { ops }));
            try_intention(&put().expecting(&[Expect::KeyAbsent(Some(key))]));
        });
    }
    for (limits, value_max) in [(&default, VALUE_BYTES_DEFAULT), (&WIDE, VALUE_BYTES_MAX)] {
        let error = too_large("value", value_max);
        check_around(value_max, limits, &error, |size, try_intention| {
            let (key, value, meta) = (&b"k"[..], &vec![7; size][..], &[][..]);
            try_intention(&Intention::new("t", Operation::Put { key, value }));
            let ops = &[TxnOp::Put { key, value, meta }];
            try_intention(&Intention::new("t", Operation::Txn { ops }));
        });
    }
}

#[test]
fn metadata_principals_and_counts() {
    let error = too_large("metadata", META_BYTES_MAX);
    check_around(META_BYTES_MAX, &WIDE, &error, |size, try_intention| {
        let meta = &vec![7; size][..];
        let mut intention = put();
        intention.meta = meta;
        try_intention(&intention);
        let ops = &[TxnOp::Delete { key: b"k", meta }];
        try_intention(&Intention::new("t", Operation::Txn { ops }));
    });
    let error = too_large("principal", PRINCIPAL_BYTES_MAX);
    check_around(PRINCIPAL_BYTES_MAX, &WIDE, &error, |size, try_intention| {
        let principal = vec![7; size];
        let mut intention = put();
        intention.principal = &principal;
        try_intention(&intention);
    });
    let too_many = |what, max| IntentionError::TooMany {
        what,
        actual: max + 1,
        max,
    };
    let error = too_many("conditions", EXPECTS_MAX);
    check_around(EXPECTS_MAX, &WIDE, &error, |size, try_intention| {
        try_intention(&put().expecting(&vec![Expect::KeyPresent(None); size]));
    });
    let error = too_many("steps", TXN_OPS_MAX);
    check_around(TXN_OPS_MAX, &WIDE, &error, |size, try_intention| {
        let (key, value, meta) = (&b"k"[..], &b"v"[..], &[][..]);
        let ops = vec![TxnOp::Put { key, value, meta }; size];
        try_intention(&Intention::new("t", Operation::Txn { ops: &ops }));
    });
}

#[test]
fn items_of_a_batch() {
    let mut builder = BatchBuilder::default();
    for _ in 0..BATCH_ITEMS_MAX {
        builder.push(&put(), &WIDE).unwrap();
    }
    let full = builder.to_bytes(0);
    assert_eq!(read(&full).unwrap().1.len(), BATCH_ITEMS_MAX);
    let error = IntentionError::TooMany {
        what: "intentions in a batch",
        actual: BATCH_ITEMS_MAX + 1,
        max: BATCH_ITEMS_MAX,
    };
    assert_eq!(builder.push(&put(), &WIDE), Err(error));
    assert_eq!(builder.to_bytes(0), full);
    builder.clear(0);
    assert!(builder.is_empty() && builder.bytes() == 0);
    builder.push(&put(), &WIDE).unwrap();
    let mut new = BatchBuilder::default();
    new.push(&put(), &WIDE).unwrap();
    assert_eq!(builder.items(), new.items(), "a cleared builder is new");
}

/// A transaction whose encoded size is about `VALUE_BYTES_MAX` plus `more`.
fn large<T>(more: usize, take: impl FnOnce(&Intention<'_>) -> T) -> T {
    let (key, meta) = (&b"k"[..], &[][..]);
    let (first, second) = (vec![1; VALUE_BYTES_MAX], vec![2; more]);
    let step = |value| TxnOp::Put { key, value, meta };
    let ops = &[step(&first), step(&second)];
    take(&Intention::new("t", Operation::Txn { ops }))
}

#[test]
fn bytes_of_an_item_and_of_a_batch() {
    let free = ITEM_BYTES_MAX - VALUE_BYTES_MAX;
    let mut builder = BatchBuilder::default();
    large(free - 100, |i| builder.push(i, &WIDE)).unwrap();
    let overhead = builder.bytes() - VALUE_BYTES_MAX - (free - 100);
    let exact = free - overhead;
    large(exact - 1, |i| assert_accepted(i, &WIDE));
    large(exact, |i| assert_accepted(i, &WIDE));
    let error = too_large("intention", ITEM_BYTES_MAX);
    large(exact + 1, |i| assert_rejected(i, &WIDE, &error));

    builder.clear(0);
    large(exact, |i| builder.push(i, &WIDE)).unwrap();
    let left = BATCH_BYTES_HARD_MAX - ITEM_BYTES_MAX;
    let mut value = vec![3; left];
    let push = |builder: &mut BatchBuilder, value: &[u8]| {
        let put = Operation::Put { key: b"k", value };
        builder.push(&Intention::new("t", put), &WIDE)
    };
    let error = push(&mut builder, &value).unwrap_err();
    let IntentionError::TooLarge { what, actual, max } = error else {
        panic!("{error}");
    };
    assert_eq!((what, max), ("batch", BATCH_BYTES_HARD_MAX));
    assert_eq!((builder.len(), builder.bytes()), (1, ITEM_BYTES_MAX));
    value.truncate(left - (actual - max));
    push(&mut builder, &value).unwrap();
    assert_eq!(builder.bytes(), BATCH_BYTES_HARD_MAX);
    assert!(builder.push(&put(), &WIDE).is_err());
    assert_eq!(read(&builder.to_bytes(0)).unwrap().1.len(), 2);
}

/// All steps refer to one value, so that 640 GB of content need only little memory.
#[test]
fn a_transaction_is_measured_before_it_is_copied() {
    let value = vec![0; VALUE_BYTES_MAX];
    let (key, meta) = (&b"k"[..], &[][..]);
    let value = &value[..];
    let ops = vec![TxnOp::Put { key, value, meta }; TXN_OPS_MAX];
    let error = IntentionError::TooLarge {
        what: "intention",
        actual: 2 * (VALUE_BYTES_MAX + 1),
        max: ITEM_BYTES_MAX,
    };
    let txn = Intention::new("t", Operation::Txn { ops: &ops });
    assert_rejected(&txn, &WIDE, &error);
}

#[test]
fn an_operation_rejects_fields_that_it_does_not_have() {
    let (key, value, meta) = (&b""[..], &b"v"[..], &[][..]);
    let missing = IntentionError::KeyMissing;
    let keyless = Intention::new("t", Operation::Put { key, value });
    assert_accepted(&keyless, &WIDE);
    let expect = [Expect::KeyAbsent(None)];
    assert_rejected(
        &keyless.expecting(&expect),
        &WIDE,
        &missing("a condition on a key"),
    );
    let delete = Intention::new("t", Operation::Delete { key });
    assert_rejected(&delete, &WIDE, &missing("DELETE"));
    let ops = &[TxnOp::Delete { key, meta }];
    let txn = Intention::new("t", Operation::Txn { ops });
    assert_rejected(&txn, &WIDE, &missing("DELETE"));
    let empty = Intention::new("t", Operation::Txn { ops: &[] });
    assert_rejected(&empty, &WIDE, &IntentionError::TxnEmpty);

    assert_rejected(
        &put().under(ClientId::NONE, 1),
        &WIDE,
        &IntentionError::Nonce(1),
    );
    assert_rejected(
        &put().under(ClientId([1; 16]), 0),
        &WIDE,
        &IntentionError::Nonce(0),
    );
    assert_accepted(&put().under(ClientId([1; 16]), u64::MAX), &WIDE);

    let expire = Intention::new("", Operation::ExpireSessions { idle_ms: u64::MAX });
    assert_accepted(&expire, &WIDE);
    let unsupported = |what| IntentionError::Unsupported {
        operation: "housekeeping",
        what,
    };
    let long = "t".repeat(300);
    for topic in ["t", &long] {
        let mut expire = expire;
        expire.topic = topic;
        assert_rejected(&expire, &WIDE, &unsupported("topic"));
    }
    let expecting = expire.expecting(&[Expect::TopicEmpty]);
    assert_rejected(&expecting, &WIDE, &unsupported("condition"));

    let options = TopicOptions::default();
    for topic in ["t", "A.b_c-9"] {
        assert_accepted(&Intention::new(topic, Operation::Destroy), &WIDE);
        let create = Operation::Create { options: &options };
        assert_accepted(&Intention::new(topic, create), &WIDE);
    }
}

/// The machine applies a value of maximum size as one record.
#[test]
fn the_largest_value_is_applied() {
    struct Largest(usize);
    impl ConsequenceSink for Largest {
        fn topic(&mut self, _: TopicId, _: &TopicName) {}
        fn record(&mut self, _: TopicId, record: &Record<'_>) {
            self.0 = self.0.max(record.value.len());
        }
    }
    let options = TopicOptions::default();
    let value = vec![0x5a; VALUE_BYTES_MAX];
    let key = vec![0x6b; KEY_BYTES_MAX];
    let mut builder = BatchBuilder::default();
    let create = Operation::Create { options: &options };
    builder.push(&Intention::new("t", create), &WIDE).unwrap();
    let (key, value) = (&key[..], &value[..]);
    let put = Operation::Put { key, value };
    builder.push(&Intention::new("t", put), &WIDE).unwrap();
    let bytes = builder.to_bytes(0);
    let batch = Batch::read(&bytes, 1).unwrap();
    let (mut machine, mut outcomes) = (Machine::new(1), Outcomes::default());
    let mut sink = Largest(0);
    machine.apply(&batch, &mut sink, &mut outcomes).unwrap();
    let valid = |outcome: weir_core::Outcome| outcome.commit().unwrap().effect == Effect::Valid;
    assert!(outcomes.iter().all(valid));
    assert_eq!(sink.0, VALUE_BYTES_MAX);
}
