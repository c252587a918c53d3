//! Records for JavaScript: one buffer with their bytes, and tables of positions in it.

use napi::bindgen_prelude::{BigUint64Array, Uint8Array, Uint32Array};
use napi_derive::napi;
use weir::{Page, Record, Value, Work};

use crate::error::Result;

/// Numbers for each record in [`RecordsOut::numbers`].
const NUMBERS: usize = 4;
/// Numbers for each record in [`RecordsOut::spans`].
const SPANS: usize = 8;

/// Adjacent records.
#[napi(object)]
pub struct RecordsOut {
    /// The bytes of keys, values and metadata, in memory of JavaScript.
    pub bytes: Uint8Array,
    /// For each record: offset, intention, time, nonce.
    pub numbers: BigUint64Array,
    /// For each record: kind, flags, and start and length of key, value, metadata.
    pub spans: Uint32Array,
    /// For records that a member of a group has claimed: their claims.
    pub claims: Option<BigUint64Array>,
    /// For records that a member of a group has claimed: how often each was delivered.
    pub attempts: Option<Uint32Array>,
    /// For a reading of latest values: whether the record was written before the reading began.
    pub replay: Option<bool>,
}

/// A `RecordsOut` under construction.
#[derive(Default)]
struct Table {
    bytes: Vec<u8>,
    numbers: Vec<u64>,
    spans: Vec<u32>,
}

fn small(number: usize) -> u32 {
    // Blocks and values are smaller than 4 GiB.
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Table {
    fn with_capacity(records: usize) -> Self {
        Self {
            bytes: Vec::new(),
            numbers: Vec::with_capacity(records * NUMBERS),
            spans: Vec::with_capacity(records * SPANS),
        }
    }

    /// Adds a record. `position_of` returns the position of a part in the buffer.
    fn add(
        &mut self,
        record: &Record<'_>,
        mut position_of: impl FnMut(&mut Vec<u8>, &[u8]) -> usize,
    ) {
        self.numbers.extend([
            record.offset.0,
            record.intention.0,
            record.time_ms,
            record.nonce,
        ]);
        self.spans
            .extend([record.kind as u32, u32::from(record.flags.0)]);
        for part in [record.key, record.value, record.meta] {
            let at = position_of(&mut self.bytes, part);
            self.spans.extend([small(at), small(part.len())]);
        }
    }

    fn add_copy(&mut self, record: &Record<'_>) {
        self.add(record, |bytes, part| {
            bytes.extend_from_slice(part);
            bytes.len() - part.len()
        });
    }

    fn into_records(self) -> RecordsOut {
        RecordsOut {
            bytes: self.bytes.into(),
            numbers: self.numbers.into(),
            spans: self.spans.into(),
            claims: None,
            attempts: None,
            replay: None,
        }
    }
}

impl RecordsOut {
    /// A page. Its block is copied: other readers share it, and JavaScript could write into it.
    pub(crate) fn page(page: &Page) -> Result<Self> {
        let block = page.bytes();
        let start = block.as_ptr() as usize;
        let mut table = Table::with_capacity(page.len());
        for record in page {
            // Parts are ranges of the block; an empty part may have any address.
            table.add(&record?, |_, part| {
                if part.is_empty() {
                    0
                } else {
                    (part.as_ptr() as usize).saturating_sub(start)
                }
            });
        }
        table.bytes = block.to_vec();
        Ok(table.into_records())
    }

    /// One record.
    pub(crate) fn value(value: &Value) -> Self {
        let mut table = Table::with_capacity(1);
        table.add_copy(&value.record());
        table.into_records()
    }

    /// Records that a member of a group has claimed.
    pub(crate) fn works(works: &[Work]) -> Self {
        let mut table = Table::with_capacity(works.len());
        for work in works {
            table.add_copy(&work.record());
        }
        let claims: Vec<u64> = works.iter().map(Work::claim).collect();
        let attempts: Vec<u32> = works.iter().map(Work::attempts).collect();
        Self {
            claims: Some(claims.into()),
            attempts: Some(attempts.into()),
            ..table.into_records()
        }
    }
}
