//! Records of several topics in the order of their intentions.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use weir::{
    ClientId, ConsequenceOffset, IntentionOffset, Page, Record, RecordFlags, RecordKind,
    TopicReader,
};

use crate::report::FailureContext;

/// The topics, each with its fetched records.
#[derive(Default)]
pub(super) struct Merge<'a> {
    sources: Vec<Source<'a>>,
}

struct Source<'a> {
    name: &'a str,
    reader: &'a mut TopicReader,
    buffered: VecDeque<BufferedRecord>,
}

/// A record that owns its bytes.
struct BufferedRecord {
    offset: u64,
    intention: u64,
    term: u64,
    time_ms: u64,
    client: ClientId,
    nonce: u64,
    flags: RecordFlags,
    kind: RecordKind,
    bytes: Vec<u8>,
    key: usize,
    value: usize,
}

impl BufferedRecord {
    fn new(record: &Record<'_>) -> Self {
        Self {
            offset: record.offset.0,
            intention: record.intention.0,
            term: record.term,
            time_ms: record.time_ms,
            client: record.client,
            nonce: record.nonce,
            flags: record.flags,
            kind: record.kind,
            bytes: [record.key, record.value, record.meta].concat(),
            key: record.key.len(),
            value: record.key.len() + record.value.len(),
        }
    }

    fn record(&self) -> Record<'_> {
        let slice = |from, to| self.bytes.get(from..to).unwrap_or_default();
        Record {
            offset: ConsequenceOffset(self.offset),
            intention: IntentionOffset(self.intention),
            term: self.term,
            time_ms: self.time_ms,
            client: self.client,
            nonce: self.nonce,
            flags: self.flags,
            kind: self.kind,
            key: slice(0, self.key),
            value: slice(self.key, self.value),
            meta: slice(self.value, self.bytes.len()),
        }
    }
}

impl<'a> Merge<'a> {
    /// Adds a topic.
    pub(super) fn add(&mut self, name: &'a str, reader: &'a mut TopicReader) {
        self.sources.push(Source {
            name,
            reader,
            buffered: VecDeque::new(),
        });
    }

    /// Calls `print` for all available records, until `print` returns `false`. In all other cases,
    /// a reader may be ahead of the printed records.
    pub(super) fn run(
        mut self,
        mut print: impl FnMut(&str, &Record<'_>) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        if let [only] = self.sources.as_mut_slice() {
            // A single topic needs no buffering.
            while let Some(page) = only.page()? {
                for record in &page {
                    let record = record.failed(|| format!("cannot read {}", only.name))?;
                    if !print(only.name, &record)? {
                        return Ok(());
                    }
                }
            }
            return Ok(());
        }
        // The intention of the next record, for each source that has one.
        let mut next = BinaryHeap::new();
        for (at, source) in self.sources.iter_mut().enumerate() {
            next.extend(source.next()?.map(|intention| Reverse((intention, at))));
        }
        while let Some(Reverse((_, at))) = next.pop() {
            let Some(source) = self.sources.get_mut(at) else {
                break;
            };
            if let Some(record) = source.buffered.pop_front()
                && !print(source.name, &record.record())?
            {
                break;
            }
            next.extend(source.next()?.map(|intention| Reverse((intention, at))));
        }
        Ok(())
    }
}

impl Source<'_> {
    fn page(&mut self) -> anyhow::Result<Option<Page>> {
        let name = self.name;
        self.reader
            .next_page()
            .failed(|| format!("cannot read {name}"))
    }

    /// The intention of the next record; `None` at the end.
    fn next(&mut self) -> anyhow::Result<Option<u64>> {
        if self.buffered.is_empty()
            && let Some(page) = self.page()?
        {
            for record in &page {
                let record = record.failed(|| format!("cannot read {}", self.name))?;
                self.buffered.push_back(BufferedRecord::new(&record));
            }
        }
        Ok(self.buffered.front().map(|record| record.intention))
    }
}
