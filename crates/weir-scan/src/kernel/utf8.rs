//! A check of UTF-8 on vectors, written once for all instruction sets.
//!
//! The method is that of "Validating UTF-8 in less than one instruction per byte" (Software:
//! Practice and Experience 51(5), 2021). Each fault that two neighbouring bytes can show is one
//! bit. Three look-ups by four bits each (first byte high, first byte low, second byte high) are
//! combined by `and`; the remaining bits are the faults. A second or third continuation byte is
//! recognised by the byte two or three positions before it. It must coincide with the bit for two
//! continuation bytes in a row.
//!
//! Invariant: accepts exactly the bytes that the standard library accepts. The standard library
//! finds the position of a fault.
#![allow(unsafe_code, reason = "vector instructions; each block says why")]
#![allow(
    clippy::inline_always,
    reason = "only what is inlined into a function with the instruction set may use it"
)]

/// Some bytes in registers; only `load` creates a value, which requires the instruction set.
pub(super) trait Lanes: Copy {
    /// Number of bytes: a divisor of 64.
    const BYTES: usize;

    /// # Safety
    /// The machine has the instruction set of the type. `bytes` holds at least `BYTES` bytes.
    unsafe fn load(bytes: &[u8]) -> Self;

    /// A value in which all bytes are `byte`.
    ///
    /// # Safety
    /// The machine has the instruction set of the type.
    unsafe fn splat(byte: u8) -> Self;

    /// Looks up each byte in `table`, by its lower four bits; the upper four bits must be 0.
    fn look_up(self, table: &[u8; 16]) -> Self;

    /// The upper four bits of each byte.
    fn upper(self) -> Self;

    /// Replaces each byte with the byte `N` (1 to 3) positions before it; the first ones come from
    /// `before`.
    fn shifted<const N: usize>(self, before: Self) -> Self;

    /// Subtracts byte by byte, saturating at 0.
    fn minus(self, other: Self) -> Self;

    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;

    /// Whether any bit is set.
    fn any(self) -> bool;

    /// Whether a byte is not ASCII.
    fn high(self) -> bool;
}

const TOO_SHORT: u8 = 1;
const TOO_LONG: u8 = 1 << 1;
const OVERLONG_3: u8 = 1 << 2;
const TOO_LARGE: u8 = 1 << 3;
const SURROGATE: u8 = 1 << 4;
const OVERLONG_2: u8 = 1 << 5;
/// F4 90 and above. F0 80 to F0 8F share this bit, because no pair of bytes has both faults.
const TOO_LARGE_1000: u8 = 1 << 6;
const OVERLONG_4: u8 = 1 << 6;
const TWO_CONTINUATIONS: u8 = 1 << 7;
/// Faults that do not depend on the lower bits of the first byte.
const ANY_LOW: u8 = TOO_SHORT | TOO_LONG | TWO_CONTINUATIONS;

const FIRST_HIGH: [u8; 16] = {
    let mut table = [TOO_LONG; 16];
    let mut at = 8;
    while at < 12 {
        table[at] = TWO_CONTINUATIONS;
        at += 1;
    }
    table[12] = TOO_SHORT | OVERLONG_2;
    table[13] = TOO_SHORT;
    table[14] = TOO_SHORT | OVERLONG_3 | SURROGATE;
    table[15] = TOO_SHORT | TOO_LARGE | TOO_LARGE_1000 | OVERLONG_4;
    table
};

const FIRST_LOW: [u8; 16] = {
    let mut table = [ANY_LOW | TOO_LARGE | TOO_LARGE_1000; 16];
    table[0] = ANY_LOW | OVERLONG_2 | OVERLONG_3 | OVERLONG_4;
    table[1] = ANY_LOW | OVERLONG_2;
    table[2] = ANY_LOW;
    table[3] = ANY_LOW;
    table[4] = ANY_LOW | TOO_LARGE;
    table[13] |= SURROGATE;
    table
};

const SECOND_HIGH: [u8; 16] = {
    const CONTINUATION: u8 = TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS;
    let mut table = [TOO_SHORT; 16];
    table[8] = CONTINUATION | OVERLONG_3 | TOO_LARGE_1000 | OVERLONG_4;
    table[9] = CONTINUATION | OVERLONG_3 | TOO_LARGE;
    table[10] = CONTINUATION | SURROGATE | TOO_LARGE;
    table[11] = CONTINUATION | SURROGATE | TOO_LARGE;
    table
};

/// Faults in `now`, given the bytes before it.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
unsafe fn faults<L: Lanes>(now: L, before: L) -> L {
    let first = now.shifted::<1>(before);
    // SAFETY: the caller guarantees the instruction set.
    let (low, third, fourth, top) = unsafe {
        (
            L::splat(15),
            L::splat(0xe0 - 0x80),
            L::splat(0xf0 - 0x80),
            L::splat(0x80),
        )
    };
    let pairs = first
        .upper()
        .look_up(&FIRST_HIGH)
        .and(first.and(low).look_up(&FIRST_LOW))
        .and(now.upper().look_up(&SECOND_HIGH));
    // 0x80 if the byte two positions before starts a sequence of three or more bytes, or the byte
    // three positions before starts one of four.
    let continued = now.shifted::<2>(before).minus(third);
    let continued = continued.or(now.shifted::<3>(before).minus(fourth));
    continued.and(top).xor(pairs)
}

/// Not 0 if `bytes` ends inside of a character.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
unsafe fn unfinished<L: Lanes>(bytes: L) -> L {
    let mut most = [0xff; 64];
    for (place, limit) in [(3, 0xf0 - 1), (2, 0xe0 - 1), (1, 0xc0 - 1)] {
        if let Some(byte) = most.get_mut(L::BYTES - place) {
            *byte = limit;
        }
    }
    // SAFETY: the caller guarantees the instruction set; 64 bytes are enough for every type.
    bytes.minus(unsafe { L::load(&most) })
}

/// Whether `bytes` are UTF-8.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
pub(super) unsafe fn check<L: Lanes>(bytes: &[u8]) -> bool {
    // SAFETY: here and below, the caller guarantees the instruction set; each chunk has `BYTES`
    // bytes.
    let zero = unsafe { L::splat(0) };
    let (mut before, mut wrong) = (zero, zero);
    let mut chunks = bytes.chunks_exact(L::BYTES);
    // Faults are checked once in many chunks, so that a fault at the start of a long page soon ends
    // the check.
    let mut left = CHECKED_EVERY;
    for chunk in &mut chunks {
        // SAFETY: as above.
        let now = unsafe { L::load(chunk) };
        if now.high() {
            // SAFETY: as above.
            wrong = wrong.or(unsafe { faults(now, before) });
        } else {
            // SAFETY: as above.
            wrong = wrong.or(unsafe { unfinished(before) });
        }
        before = now;
        left -= 1;
        if left == 0 {
            if wrong.any() {
                return false;
            }
            left = CHECKED_EVERY;
        }
    }
    // The rest is padded with zeros, so that an unfinished character is a fault.
    let mut last = [0; 64];
    for (to, from) in last.iter_mut().zip(chunks.remainder()) {
        *to = *from;
    }
    // SAFETY: as above.
    wrong = wrong.or(unsafe { faults(L::load(&last), before) });
    !wrong.any()
}

/// Chunks between two examinations of the collected faults.
const CHECKED_EVERY: u32 = 1024;
