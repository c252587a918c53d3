//! The loops over blocks of 64 bytes, written once for all vector instruction sets.
//!
//! ```text
//! quotes, backslashes, four kinds of brackets, control bytes: one bit for each byte of the block
//! a byte is escaped         if an odd run of backslashes ends before it       (carry arithmetic)
//! a byte is in a string     if an odd number of unescaped quotes precede it   (running xor)
//! brackets                  count only outside of strings
//! control bytes             count only inside of strings
//! while the block has fewer closing brackets than are open, the run does not end in it:
//!                           only population counts are computed
//! ```
//!
//! Invariants: the results equal those of the portable kernel for every input. A block is read
//! through a reference to an array, so no byte outside of the slice is read. Every suspected fault
//! returns `None`; the portable kernel then finds the fault.
#![allow(unsafe_code, reason = "vector instructions; each block says why")]
#![allow(
    clippy::inline_always,
    reason = "only what is inlined into a function with the instruction set may use it"
)]

use super::{Open, SkippedRun, SkippedString};

/// Bytes in a block.
pub(super) const BLOCK: usize = 64;

/// 64 bytes in registers. Only `load` creates a value, which requires the instruction set; so the
/// other methods have it.
pub(super) trait Block: Copy {
    /// # Safety
    /// The machine has the instruction set of the type.
    unsafe fn load(bytes: &[u8; BLOCK]) -> Self;

    /// One bit for each byte that is `byte`, the first byte being bit 0.
    fn equal(self, byte: u8) -> u64;

    /// One bit for each byte below 0x20.
    fn control(self) -> u64;

    /// One bit for each byte: the bit 0x20 of that byte.
    fn bit_5(self) -> u64;

    /// Sets the bit 0x20 in each byte.
    fn with_bit_5(self) -> Self;

    /// The bitwise or of both, byte by byte.
    fn or(self, other: Self) -> Self;

    /// Whether a byte is not ASCII.
    fn high(self) -> bool;

    /// Replaces each bit with the parity of the bits up to and including it.
    fn running_xor(self, mask: u64) -> u64;
}

/// The bits below `bit`.
#[inline(always)]
fn below(bit: u32) -> u64 {
    (1_u64 << bit) - 1
}

/// The bytes after the last whole block, padded with spaces.
#[inline(always)]
fn filled(rest: &[u8]) -> [u8; BLOCK] {
    let mut block = [b' '; BLOCK];
    for (to, from) in block.iter_mut().zip(rest) {
        *to = *from;
    }
    block
}

/// One bit for each byte after an odd run of backslashes. `carry` is 1 if such a run ended with the
/// block before; it is updated for the next block.
#[inline(always)]
fn escaped(backslashes: u64, carry: &mut u64) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let first = *carry;
    // An escaped backslash starts no run.
    let runs = backslashes & !first;
    let starts = runs & !(runs << 1);
    // Adding the start of a run to the run moves the bit to the position after the end of the run.
    let from_even = runs.wrapping_add(starts & EVEN);
    let (from_odd, over) = runs.overflowing_add(starts & !EVEN);
    // Position 64 is even: only a run from an odd position that ends there is odd.
    *carry = u64::from(over);
    first | (from_even & !EVEN | from_odd & EVEN) & !runs
}

/// The string state from one block to the next.
#[derive(Default)]
struct Strings {
    /// 1 if the next byte is escaped.
    carry: u64,
    /// All ones inside of a string.
    inside: u64,
}

impl Strings {
    /// Returns the bytes of strings, with the opening quote and without the closing quote. Also
    /// returns faults: control characters inside of strings, backslashes outside.
    #[inline(always)]
    fn step<B: Block>(&mut self, block: B) -> (u64, u64) {
        let mut quotes = block.equal(b'"');
        let backslashes = block.equal(b'\\');
        if backslashes | self.carry != 0 {
            quotes &= !escaped(backslashes, &mut self.carry);
        }
        let strings = block.running_xor(quotes) ^ self.inside;
        self.inside = 0_u64.wrapping_sub(strings >> 63);
        (strings, block.control() & strings | backslashes & !strings)
    }
}

/// The closing bracket that closes all `total` open brackets, if it is in this block.
#[inline(always)]
fn end_of(open: u64, close: u64, total: u32) -> Option<u32> {
    let (mut rest, mut closed) = (close, 0);
    while rest != 0 {
        let place = rest.trailing_zeros();
        closed += 1;
        if total + (open & below(place)).count_ones() == closed {
            return Some(place);
        }
        rest &= rest - 1;
    }
    None
}

/// Whether more than `max` brackets are open at a position before `end`, with `total` open before
/// the block.
#[cold]
#[inline(never)]
fn too_deep(open: u64, close: u64, total: u32, max: u32, end: u32) -> bool {
    let mut rest = open;
    while rest != 0 {
        let place = rest.trailing_zeros();
        if place >= end {
            return false;
        }
        let upto = below(place);
        // Brackets that are opened minus brackets that are closed, up to the end.
        if total + (open & upto).count_ones() >= max + (close & upto).count_ones() {
            return true;
        }
        rest &= rest - 1;
    }
    false
}

/// The state of a run whose end is not found yet.
struct Run<B> {
    strings: Strings,
    total: u32,
    curly: i64,
    max: u32,
    seen: B,
}

/// The result of a block for a run.
enum BlockResult {
    /// The run continues after the block.
    Continues,
    /// The run ends with the bracket at this position of the block.
    End(u32),
    Wrong,
}

impl<B: Block> Run<B> {
    #[inline(always)]
    fn step(&mut self, block: B) -> BlockResult {
        self.seen = self.seen.or(block);
        let (inside, wrong) = self.strings.step(block);
        // `{` and `[` differ in one bit, as do `}` and `]`.
        let (folded, bit) = (block.with_bit_5(), block.bit_5());
        let open = folded.equal(b'{') & !inside;
        let close = folded.equal(b'}') & !inside;
        let (opens, closes) = (open.count_ones(), close.count_ones());
        let deep = self.total + opens > self.max;
        if self.total <= closes
            && let Some(end) = end_of(open, close, self.total)
        {
            let upto = below(end);
            let curly = self.curly + i64::from((open & bit & upto).count_ones())
                - i64::from((close & bit & (upto | 1 << end)).count_ones());
            let deep = deep && too_deep(open, close, self.total, self.max, end);
            if wrong & upto != 0 || curly != 0 || deep {
                return BlockResult::Wrong;
            }
            return BlockResult::End(end);
        }
        if wrong != 0 || deep && too_deep(open, close, self.total, self.max, 64) {
            return BlockResult::Wrong;
        }
        self.total = self.total + opens - closes;
        self.curly += i64::from((open & bit).count_ones());
        self.curly -= i64::from((close & bit).count_ones());
        BlockResult::Continues
    }
}

/// See `Kernel::pass`.
///
/// # Safety
/// The machine has the instruction set of `B`.
#[inline(always)]
pub(super) unsafe fn pass<B: Block>(bytes: &[u8], at: usize, open: Open) -> Option<SkippedRun> {
    let (blocks, rest) = bytes.get(at..)?.as_chunks::<BLOCK>();
    let mut run = Run {
        strings: Strings::default(),
        total: open.total,
        curly: i64::from(open.curly),
        max: open.max,
        // SAFETY: here and below, the caller guarantees the instruction set.
        seen: unsafe { B::load(&[b' '; BLOCK]) },
    };
    let mut at = at;
    for block in blocks {
        // SAFETY: as above.
        match run.step(unsafe { B::load(block) }) {
            BlockResult::Continues => at += BLOCK,
            BlockResult::Wrong => return None,
            BlockResult::End(place) => {
                return Some(SkippedRun {
                    end: at + place as usize + 1,
                    high: run.seen.high(),
                });
            }
        }
    }
    // SAFETY: as above.
    match run.step(unsafe { B::load(&filled(rest)) }) {
        BlockResult::Continues | BlockResult::Wrong => None,
        BlockResult::End(place) => Some(SkippedRun {
            end: at + place as usize + 1,
            high: run.seen.high(),
        }),
    }
}

/// See `Kernel::string`.
///
/// # Safety
/// The machine has the instruction set of `B`.
#[inline(always)]
pub(super) unsafe fn string<B: Block>(bytes: &[u8], at: usize) -> Option<SkippedString> {
    let (blocks, rest) = bytes.get(at..)?.as_chunks::<BLOCK>();
    let (mut at, mut carry) = (at, 0);
    let (mut high, mut any) = (false, false);
    let mut step = |block: B| -> Option<Option<u32>> {
        high |= block.high();
        let backslashes = block.equal(b'\\');
        let mut quotes = block.equal(b'"');
        if backslashes | carry != 0 {
            quotes &= !escaped(backslashes, &mut carry);
        }
        // The bytes up to the closing quote, or the whole block.
        let upto = (quotes & quotes.wrapping_neg()).wrapping_sub(1);
        any |= backslashes & upto != 0;
        let place = (quotes != 0).then(|| quotes.trailing_zeros());
        (block.control() & upto == 0).then_some(place)
    };
    let mut close = None;
    for block in blocks {
        // SAFETY: here and below, the caller guarantees the instruction set.
        close = step(unsafe { B::load(block) })?;
        if close.is_some() {
            break;
        }
        at += BLOCK;
    }
    if close.is_none() {
        // SAFETY: as above.
        close = step(unsafe { B::load(&filled(rest)) })?;
    }
    Some(SkippedString {
        close: at + close? as usize,
        high,
        escaped: any,
    })
}

/// See `Kernel::line`.
///
/// # Safety
/// The machine has the instruction set of `B`.
#[inline(always)]
pub(super) unsafe fn line<B: Block>(bytes: &[u8], at: usize) -> usize {
    let (blocks, rest) = bytes.get(at..).unwrap_or(&[]).as_chunks::<BLOCK>();
    let mut at = at;
    for block in blocks {
        // SAFETY: the caller guarantees the instruction set.
        let feeds = unsafe { B::load(block) }.equal(b'\n');
        if feeds != 0 {
            return at + feeds.trailing_zeros() as usize;
        }
        at += BLOCK;
    }
    let feed = rest.iter().position(|b| *b == b'\n');
    feed.map_or(bytes.len(), |feed| at + feed)
}

#[cfg(test)]
mod tests {
    use super::escaped;

    /// The reference implementation, bit by bit.
    fn slowly(backslashes: u64, carry: &mut u64) -> u64 {
        let (mut out, mut next) = (0, *carry == 1);
        for bit in 0..64 {
            let here = next;
            out |= u64::from(here) << bit;
            next = !here && backslashes >> bit & 1 == 1;
        }
        *carry = u64::from(next);
        out
    }

    #[test]
    fn escapes_are_found_by_arithmetic() {
        let mut state = 1_u64;
        let rounds = if cfg!(miri) { 64 } else { 200_000 };
        for round in 0..rounds {
            // Sparse, dense and full masks.
            let mut mask = u64::MAX;
            for _ in 0..round % 4 {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                mask &= state ^ state >> 31;
            }
            if round % 8 > 3 {
                mask = !mask;
            }
            let mut carries = [round >> 4 & 1, round >> 4 & 1];
            let want = slowly(mask, &mut carries[0]);
            let found = escaped(mask, &mut carries[1]);
            // Whether a backslash itself is escaped is not specified.
            assert_eq!(found & !mask, want & !mask, "{mask:x}");
            assert_eq!(carries[0], carries[1], "{mask:x}");
        }
    }
}
