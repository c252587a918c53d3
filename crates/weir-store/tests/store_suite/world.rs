//! Helpers for tests: intentions, stores, and the content of a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::intention::{Intention, Operation};
use weir_core::{ClientId, Commit, ConsequenceOffset, Effect, Outcome, RecordKind, TopicOptions};
use weir_store::disk::Disk;
use weir_store::{OpenOptions, SCAN_KEYS_MAX, Store, StoreError, TopicReader};

/// Pseudo-random numbers from a seed (the splitmix generator).
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Factor for the number of seeds: `WEIR_TEST_TIMES`, for long runs; 1 if unset.
pub fn times() -> u64 {
    let given = std::env::var("WEIR_TEST_TIMES").ok();
    given.map_or(1, |times| {
        times.parse().expect("WEIR_TEST_TIMES is a number")
    })
}

pub const CLIENT: ClientId = ClientId([0x11; 16]);

/// Options with small log segments, so that small tests use several segments.
pub fn options() -> OpenOptions {
    OpenOptions {
        log_segment_bytes: 32 << 10,
        program: "test".to_owned(),
        // Tests call retention themselves, because a timer is not deterministic.
        retention_every: None,
        seed: Some(7),
        ..OpenOptions::default()
    }
}

pub fn open(disk: Arc<dyn Disk>) -> Store {
    Store::open_disk(disk, &options()).unwrap()
}

pub fn put<'a>(topic: &'a str, key: &'a [u8], value: &'a [u8]) -> Intention<'a> {
    Intention::new(topic, Operation::Put { key, value })
}

/// Executes intentions and returns their commits.
pub fn execute(store: &Store, intentions: &[Intention<'_>]) -> Vec<Commit> {
    try_execute(store, intentions).unwrap()
}

pub fn try_execute(store: &Store, intentions: &[Intention<'_>]) -> Result<Vec<Commit>, StoreError> {
    let outcomes = store.propose(intentions)?.wait()?;
    Ok(outcomes
        .iter()
        .map(|o| o.commit().expect("executed").clone())
        .collect())
}

/// Writes keys and values, one call each, without a wait between calls: on a busy machine,
/// each wait costs a time slice.
pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    store: &Store,
    topic: &str,
    items: impl IntoIterator<Item = (K, V)>,
) {
    let sent: Vec<_> = items
        .into_iter()
        .map(|(key, value)| store.propose(&[put(topic, key.as_ref(), value.as_ref())]))
        .collect();
    for proposal in sent {
        let outcomes = proposal.unwrap().wait().unwrap();
        assert!(outcomes.iter().all(|o| o.commit().is_some()));
    }
}

pub fn outcomes(store: &Store, intentions: &[Intention<'_>]) -> Vec<Outcome> {
    let outcomes = store.propose(intentions).unwrap().wait().unwrap();
    outcomes.iter().collect()
}

pub fn create(store: &Store, topic: &str) {
    create_with(store, topic, &TopicOptions::default());
}

pub fn create_with(store: &Store, topic: &str, options: &TopicOptions) {
    let made = execute(
        store,
        &[Intention::new(topic, Operation::Create { options })],
    );
    assert_eq!(made[0].effect, Effect::Valid);
}

/// Options of a topic that retains the last record of each key.
pub fn latest() -> TopicOptions {
    let mut options = TopicOptions::default();
    options.compaction = weir_core::Compaction::Latest;
    options
}

/// A record that owns its bytes, without the time stamp, which differs between runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rec {
    pub offset: u64,
    pub intention: u64,
    pub client: ClientId,
    pub nonce: u64,
    pub kind: RecordKind,
    pub flags: u8,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub meta: Vec<u8>,
}

impl From<weir_core::Record<'_>> for Rec {
    fn from(record: weir_core::Record<'_>) -> Self {
        Self {
            offset: record.offset.0,
            intention: record.intention.0,
            client: record.client,
            nonce: record.nonce,
            kind: record.kind,
            flags: record.flags.0,
            key: record.key.to_vec(),
            value: record.value.to_vec(),
            meta: record.meta.to_vec(),
        }
    }
}

/// Returns all remaining records of a reader.
pub fn drain(reader: &mut TopicReader) -> Result<Vec<Rec>, StoreError> {
    let mut found = Vec::new();
    while let Some(page) = reader.next_page()? {
        for record in &page {
            found.push(Rec::from(record?));
        }
    }
    Ok(found)
}

pub fn records(store: &Store, topic: &str) -> Vec<Rec> {
    drain(&mut store.read(topic, ConsequenceOffset::ZERO).unwrap()).unwrap()
}

/// Returns keys in order with their values, read one by one and in all other ways.
pub fn keys(store: &Store, topic: &str) -> BTreeMap<Vec<u8>, (u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let part = store
            .scan(topic, b"", after.as_deref(), SCAN_KEYS_MAX)
            .unwrap();
        let Some(last) = part.last() else {
            return found;
        };
        after = Some(last.key.to_vec());
        for entry in &part {
            let page = store
                .get(topic, &entry.key)
                .unwrap()
                .expect("a scanned key");
            let record = page.iter().next().unwrap().unwrap();
            assert_eq!(record.key, &*entry.key);
            assert_eq!(record.offset, entry.offset);
            let value = (record.offset.0, record.value.to_vec());
            assert!(found.insert(entry.key.to_vec(), value).is_none());
        }
    }
}

/// The visible state of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicState {
    pub live: bool,
    pub incarnation: u64,
    pub last: u64,
    pub options: TopicOptions,
    pub records: Vec<Rec>,
    pub keys: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
}

/// Returns the content of a store except its sessions.
pub fn state(store: &Store) -> BTreeMap<String, TopicState> {
    let topics = store.topics(true).into_iter();
    topics
        .map(|info| {
            let topic = TopicState {
                live: info.live,
                incarnation: info.incarnation.map_or(0, |offset| offset.0),
                last: info.last.0,
                options: info.options.clone(),
                records: records(store, &info.name),
                keys: keys(store, &info.name),
            };
            assert_eq!(info.keys, topic.keys.len() as u64, "{}", info.name);
            (info.name, topic)
        })
        .collect()
}
