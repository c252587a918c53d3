//! The loops over blocks of 64 bytes, written once for all vector instruction sets.
//!
//! ```text
//! quotes, backslashes, four kinds of brackets, control bytes: one bit for each byte of the block
//! a byte is escaped         if an odd run of backslashes ends before it       (carry arithmetic)
//! a byte is in a string     if an odd number of quotes that count stand before  (running xor)
//! brackets and controls     count outside, respectively inside, of strings only
//! while the block has fewer closing brackets than are open, it cannot hold the end:
//!                           only population counts are taken
//! ```
//!
//! Invariants: the same results as the portable kernel for every input; a block is read through a
//! reference to an array, so that no byte outside of the slice is. Whatever looks wrong ends in
//! `None`: the portable kernel then finds out what it is.
#![allow(unsafe_code, reason = "vector instructions; each block says why")]
#![allow(
    clippy::inline_always,
    reason = "only what is inlined into a function with the instruction set may use it"
)]

use super::{Open, Passed, PassedString};

/// Bytes in a block.
pub(super) const BLOCK: usize = 64;

/// 64 bytes in registers. A value exists only where `load` was allowed, so that the other methods
/// have their instruction set.
pub(super) trait Block: Copy {
    /// # Safety
    /// The machine has the instruction set of the type.
    unsafe fn load(bytes: &[u8; BLOCK]) -> Self;

    /// One bit for each byte that is `byte`, the first byte being bit 0.
    fn equal(self, byte: u8) -> u64;

    /// One bit for each byte below 0x20.
    fn control(self) -> u64;

    /// The bits of both, byte by byte.
    fn or(self, other: Self) -> Self;

    /// Whether a byte is not ASCII.
    fn high(self) -> bool;

    /// Each bit becomes the parity of the bits up to it, itself included.
    fn running_xor(self, mask: u64) -> u64;
}

/// The bits below `bit`.
#[inline(always)]
fn below(bit: u32) -> u64 {
    (1_u64 << bit) - 1
}

/// The block at `at`; the last one is filled up with spaces. `None` at the end.
///
/// # Safety
/// The machine has the instruction set of `B`.
#[inline(always)]
unsafe fn block_at<B: Block>(bytes: &[u8], at: usize) -> Option<B> {
    let rest = bytes.get(at..)?;
    if let Some(block) = rest.first_chunk() {
        // SAFETY: what the caller promised.
        return Some(unsafe { B::load(block) });
    }
    if rest.is_empty() {
        return None;
    }
    let mut block = [b' '; BLOCK];
    for (to, from) in block.iter_mut().zip(rest) {
        *to = *from;
    }
    // SAFETY: what the caller promised.
    Some(unsafe { B::load(&block) })
}

/// Bytes after an odd run of backslashes. `carry` is 1 if such a run ended with the block before,
/// and is left so for the next.
#[inline(always)]
fn escaped(backslashes: u64, carry: &mut u64) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let first = *carry;
    // An escaped backslash begins nothing.
    let runs = backslashes & !first;
    let starts = runs & !(runs << 1);
    // Adding the start of a run to the run moves the bit to the place after its end.
    let from_even = runs.wrapping_add(starts & EVEN);
    let (from_odd, over) = runs.overflowing_add(starts & !EVEN);
    // Place 64 is even: only a run from an odd place that ends there is odd.
    *carry = u64::from(over);
    first | (from_even & !EVEN | from_odd & EVEN) & !runs
}

/// Inside and outside of strings, block after block.
#[derive(Default)]
struct Strings {
    /// 1 if the next byte is escaped.
    carry: u64,
    /// All ones inside of a string.
    inside: u64,
}

impl Strings {
    /// The bytes of strings, opening quote included, closing quote not; and those that are wrong:
    /// control characters inside, backslashes outside.
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

/// Brackets of one block, outside of strings.
struct Brackets {
    open: u64,
    close: u64,
    open_curly: u64,
    close_curly: u64,
}

impl Brackets {
    #[inline(always)]
    fn of<B: Block>(block: B, strings: u64) -> Self {
        let open_curly = block.equal(b'{') & !strings;
        let close_curly = block.equal(b'}') & !strings;
        Self {
            open: block.equal(b'[') & !strings | open_curly,
            close: block.equal(b']') & !strings | close_curly,
            open_curly,
            close_curly,
        }
    }

    /// The closing bracket with which `total` open ones reach none, if it is in this block.
    #[inline(always)]
    fn end(&self, total: u32) -> Option<u32> {
        let (mut rest, mut closed) = (self.close, 0);
        while rest != 0 {
            let place = rest.trailing_zeros();
            closed += 1;
            if total + (self.open & below(place)).count_ones() == closed {
                return Some(place);
            }
            rest &= rest - 1;
        }
        None
    }

    /// Whether more than `max` are open at some place before `end`.
    #[cold]
    #[inline(never)]
    fn too_deep(&self, total: u32, max: u32, end: u32) -> bool {
        let mut rest = self.open;
        while rest != 0 {
            let place = rest.trailing_zeros();
            if place >= end {
                return false;
            }
            // It can be below zero after the end only.
            let upto = below(place);
            let open = i64::from(total) + i64::from((self.open & upto).count_ones())
                - i64::from((self.close & upto).count_ones());
            if open >= i64::from(max) {
                return true;
            }
            rest &= rest - 1;
        }
        false
    }
}

/// See `Kernel::pass`.
///
/// # Safety
/// The machine has the instruction set of `B`.
#[inline(always)]
pub(super) unsafe fn pass<B: Block>(bytes: &[u8], at: usize, open: Open) -> Option<Passed> {
    let mut at = at;
    let (mut total, mut curly) = (open.total, i64::from(open.curly));
    let mut strings = Strings::default();
    let mut seen: Option<B> = None;
    loop {
        // SAFETY: what the caller promised.
        let block = unsafe { block_at::<B>(bytes, at) }?;
        seen = Some(seen.map_or(block, |seen| seen.or(block)));
        let (inside, wrong) = strings.step(block);
        let brackets = Brackets::of(block, inside);
        let (opens, closes) = (brackets.open.count_ones(), brackets.close.count_ones());
        if total <= closes
            && let Some(end) = brackets.end(total)
        {
            let upto = below(end);
            let curly = curly + i64::from((brackets.open_curly & upto).count_ones())
                - i64::from((brackets.close_curly & (upto | 1 << end)).count_ones());
            let deep = total + opens > open.max && brackets.too_deep(total, open.max, end);
            let fine = wrong & upto == 0 && curly == 0 && !deep;
            return fine.then(|| Passed {
                end: at + end as usize + 1,
                high: seen.is_some_and(B::high),
            });
        }
        if wrong != 0 || total + opens > open.max && brackets.too_deep(total, open.max, 64) {
            return None;
        }
        total = total + opens - closes;
        curly += i64::from(brackets.open_curly.count_ones());
        curly -= i64::from(brackets.close_curly.count_ones());
        at += BLOCK;
    }
}

/// See `Kernel::string`.
///
/// # Safety
/// The machine has the instruction set of `B`.
#[inline(always)]
pub(super) unsafe fn string<B: Block>(bytes: &[u8], at: usize) -> Option<PassedString> {
    let (mut at, mut carry) = (at, 0);
    let (mut high, mut any) = (false, false);
    loop {
        // SAFETY: what the caller promised.
        let block = unsafe { block_at::<B>(bytes, at) }?;
        high |= block.high();
        let backslashes = block.equal(b'\\');
        let mut quotes = block.equal(b'"');
        if backslashes | carry != 0 {
            quotes &= !escaped(backslashes, &mut carry);
        }
        // Up to the closing quote, or all of it.
        let upto = (quotes & quotes.wrapping_neg()).wrapping_sub(1);
        if block.control() & upto != 0 {
            return None;
        }
        any |= backslashes & upto != 0;
        if quotes != 0 {
            return Some(PassedString {
                close: at + quotes.trailing_zeros() as usize,
                high,
                escaped: any,
            });
        }
        at += BLOCK;
    }
}

/// See `Kernel::line`.
///
/// # Safety
/// The machine has the instruction set of `B`.
#[inline(always)]
pub(super) unsafe fn line<B: Block>(bytes: &[u8], at: usize) -> usize {
    let mut at = at;
    // SAFETY: what the caller promised.
    while let Some(block) = unsafe { block_at::<B>(bytes, at) } {
        let feeds = block.equal(b'\n');
        if feeds != 0 {
            return at + feeds.trailing_zeros() as usize;
        }
        at += BLOCK;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::escaped;

    /// Bit by bit.
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
        for round in 0..200_000_u64 {
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
            // Whether a backslash itself is escaped is of no interest.
            assert_eq!(found & !mask, want & !mask, "{mask:x}");
            assert_eq!(carries[0], carries[1], "{mask:x}");
        }
    }
}
