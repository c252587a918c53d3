//! What instances cost beside the instructions that they run: to be made anew,
//! and to be put back.
//!
//! An instance is thrown away after a call that failed, one that grew its
//! memory, and each call of a module that changes tables or drops segments. The
//! topic pays for the next one in fuel, after the call and beyond its limit:
//! it is a bill, and makes no call fail that has ended. Prices depend on the
//! module and on the call alone, so that every node bills alike: which pages
//! were read is not known, so they are those that can have been.

use std::ops::Range;

use weir_core::limits::MEMORY_BYTES_DEFAULT;

use crate::report::Report;

/// Fuel of a fresh instance.
const FRESH_FUEL: u64 = 8_000;
/// Fuel of each of its globals.
const GLOBAL_FUEL: u64 = 5;
/// Fuel of a page of memory that is written for the first time, by data
/// segments or by the call.
const WRITTEN_FUEL: u64 = 1_000;
/// Fuel of a page that may have been read for the first time, in so much as
/// topics allow unless they are told to, and beyond. A program that allocates
/// in such a memory, and so grows it in each call, is to stay cheap.
const READ_FUEL: u64 = 100;
const READ_MORE_FUEL: u64 = 400;
const READ_BYTES: u64 = MEMORY_BYTES_DEFAULT;
/// Fuel of the cheapest instructions that read one.
const TOUCH_FUEL: u64 = 2;
/// Bytes of such a page.
const PAGE_BYTES: u64 = 4096;
/// Bytes that are put back after a call for nothing.
const FREE_BYTES: u64 = 64 << 10;
/// Bytes beyond that for a unit of fuel.
const BACK_BYTES: u64 = 128;

/// Pages that a data segment may touch, wherever it begins.
pub(crate) fn pages_of(segment_bytes: usize) -> u64 {
    match segment_bytes as u64 {
        0 => 0,
        bytes => bytes.div_ceil(PAGE_BYTES) + 1,
    }
}

/// Bytes of some parts.
pub(crate) fn bytes_of(parts: impl Iterator<Item = Range<usize>>) -> u64 {
    parts.map(|part| part.len() as u64).sum()
}

/// Fuel of an instance in the place of one that is thrown away: after a call
/// that used so much, in a memory of so many bytes of which some were written.
/// `kept` are the pages that the next one begins with in mode `memory`.
pub(crate) fn renewal(report: &Report, used: u64, memory: u64, written: u64, kept: u64) -> u64 {
    let all = memory.div_ceil(PAGE_BYTES);
    let written = report.data_pages + written.div_ceil(PAGE_BYTES) + kept;
    let read = (used / TOUCH_FUEL).min(all);
    let first = read.min(READ_BYTES / PAGE_BYTES);
    FRESH_FUEL
        + u64::from(report.global_count) * GLOBAL_FUEL
        + written.min(all) * WRITTEN_FUEL
        + first * READ_FUEL
        + (read - first) * READ_MORE_FUEL
}

/// Fuel of so many bytes that are put back, or looked through to be kept.
pub(crate) fn put_back(bytes: u64) -> u64 {
    bytes.saturating_sub(FREE_BYTES) / BACK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_pays_for_more_than_the_memory() {
        let report = Report {
            data_pages: 10_000,
            ..Report::default()
        };
        for (memory, fuel) in [
            (0, FRESH_FUEL),
            (65_536, FRESH_FUEL + 16 * 1_100),
            (1 << 20, FRESH_FUEL + 256 * 1_100),
            (16 << 20, FRESH_FUEL + 256 * 1_100 + 3_840 * 1_400),
        ] {
            let most = renewal(&report, u64::MAX, memory, memory, 4096);
            assert_eq!(most, fuel, "{memory}");
        }
        assert_eq!(renewal(&Report::default(), 1, 65_536, 0, 0), FRESH_FUEL);
    }

    #[test]
    fn a_small_memory_is_put_back_for_nothing() {
        let fuel = [0, FREE_BYTES, FREE_BYTES + 127, FREE_BYTES + 128, 16 << 20].map(put_back);
        assert_eq!(fuel, [0, 0, 0, 1, 130_560]);
    }
}
