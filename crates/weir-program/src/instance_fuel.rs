//! Fuel of instances in addition to their instructions: for a new instance, and for memory that is
//! restored after a call.
//!
//! An instance is dropped after a call that failed or grew its memory, and after each call of a
//! module that changes tables or drops segments. The topic is charged for the next instance after
//! the call, and beyond the limit of the call, so the charge cannot make the call fail. The charge
//! depends only on the module and the call, so every node charges the same. The host does not know
//! which pages a call read, so it charges for the pages that the call can have read.

use std::ops::Range;

use weir_core::limits::MEMORY_BYTES_DEFAULT;

use crate::report::Report;

/// Fuel of a new instance.
const NEW_INSTANCE_FUEL: u64 = 8_000;
/// Fuel of each global of a new instance.
const GLOBAL_FUEL: u64 = 5;
/// Fuel of a page of memory that is written for the first time, by data
/// segments or by the call.
const WRITTEN_FUEL: u64 = 1_000;
/// Fuel of a page that may have been read for the first time, within the first [`READ_BYTES`] of a
/// memory. It is low, so that programs that allocate in such a memory, and so grow it in each call,
/// stay cheap.
const READ_FUEL: u64 = 100;
/// Fuel of a page after the first [`READ_BYTES`] that may have been read for the first time.
const READ_MORE_FUEL: u64 = 400;
/// Default memory limit of a topic.
const READ_BYTES: u64 = MEMORY_BYTES_DEFAULT;
/// Fuel of the cheapest instructions that read a page.
const TOUCH_FUEL: u64 = 2;
/// Size of a page of the operating system, in bytes.
const PAGE_BYTES: u64 = 4096;
/// Bytes that are restored after a call without a charge.
const UNCHARGED_BYTES: u64 = 64 << 10;
/// Bytes beyond [`UNCHARGED_BYTES`] that cost one unit of fuel.
const BYTES_PER_FUEL: u64 = 128;

/// Upper bound of the pages that a data segment of this size touches.
pub(crate) fn pages_of(segment_bytes: usize) -> u64 {
    match segment_bytes as u64 {
        0 => 0,
        bytes => bytes.div_ceil(PAGE_BYTES) + 1,
    }
}

/// Sum of the lengths of `parts`.
pub(crate) fn bytes_of(parts: impl Iterator<Item = Range<usize>>) -> u64 {
    parts.map(|part| part.len() as u64).sum()
}

/// Fuel of an instance that replaces a dropped one. The last call used `used`
/// units of fuel, in a memory of `memory` bytes of which it wrote `written`.
/// `kept` is the number of pages that the next instance begins with in mode
/// `memory`.
pub(crate) fn replacement_fuel(
    report: &Report,
    used: u64,
    memory: u64,
    written: u64,
    kept: u64,
) -> u64 {
    let all = memory.div_ceil(PAGE_BYTES);
    let written = report.data_pages + written.div_ceil(PAGE_BYTES) + kept;
    let read = (used / TOUCH_FUEL).min(all);
    let first = read.min(READ_BYTES / PAGE_BYTES);
    NEW_INSTANCE_FUEL
        + u64::from(report.global_count) * GLOBAL_FUEL
        + written.min(all) * WRITTEN_FUEL
        + first * READ_FUEL
        + (read - first) * READ_MORE_FUEL
}

/// Fuel of `bytes` of memory that are restored after a call, or compared in order to keep them.
pub(crate) fn restore_fuel(bytes: u64) -> u64 {
    bytes.saturating_sub(UNCHARGED_BYTES) / BYTES_PER_FUEL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charge_is_limited_by_the_size_of_the_memory() {
        let report = Report {
            data_pages: 10_000,
            ..Report::default()
        };
        for (memory, fuel) in [
            (0, NEW_INSTANCE_FUEL),
            (65_536, NEW_INSTANCE_FUEL + 16 * 1_100),
            (1 << 20, NEW_INSTANCE_FUEL + 256 * 1_100),
            (16 << 20, NEW_INSTANCE_FUEL + 256 * 1_100 + 3_840 * 1_400),
        ] {
            let most = replacement_fuel(&report, u64::MAX, memory, memory, 4096);
            assert_eq!(most, fuel, "{memory}");
        }
        assert_eq!(
            replacement_fuel(&Report::default(), 1, 65_536, 0, 0),
            NEW_INSTANCE_FUEL
        );
    }

    #[test]
    fn restoring_a_small_memory_is_free() {
        let fuel = [
            0,
            UNCHARGED_BYTES,
            UNCHARGED_BYTES + 127,
            UNCHARGED_BYTES + 128,
            16 << 20,
        ]
        .map(restore_fuel);
        assert_eq!(fuel, [0, 0, 0, 1, 130_560]);
    }
}
