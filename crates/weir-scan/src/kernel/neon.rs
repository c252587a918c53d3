//! The kernel for ARM: NEON, which every 64-bit ARM has. The algorithms are in `block` and `utf8`.
//!
//! Invariant: this file needs only the base instruction set, so the kernel is always available. The
//! base set lacks carry-less multiplication, so shifts replace it.
#![allow(
    clippy::inline_always,
    reason = "only what is inlined into a function with the instruction set may use it"
)]
#![allow(unsafe_code, reason = "vector instructions; each block says why")]

use super::block::{self, BLOCK, Block};
use super::utf8::{self, Lanes};
use super::{Kernel, Open, Simd, SkippedRun, SkippedString};
#[allow(clippy::wildcard_imports, reason = "several dozen intrinsics")]
use std::arch::aarch64::*;

pub(super) static KERNEL: Kernel = Kernel {
    simd: Simd::Neon,
    pass,
    string,
    line,
    utf8,
};

#[target_feature(enable = "neon")]
fn pass(bytes: &[u8], at: usize, open: Open) -> Option<SkippedRun> {
    // SAFETY: every machine with this target has the instruction set.
    unsafe { block::pass::<Neon>(bytes, at, open) }
}

#[target_feature(enable = "neon")]
fn string(bytes: &[u8], at: usize) -> Option<SkippedString> {
    // SAFETY: as above.
    unsafe { block::string::<Neon>(bytes, at) }
}

#[target_feature(enable = "neon")]
fn line(bytes: &[u8], at: usize) -> usize {
    // SAFETY: as above.
    unsafe { block::line::<Neon>(bytes, at) }
}

#[target_feature(enable = "neon")]
fn utf8(bytes: &[u8]) -> bool {
    // SAFETY: as above.
    unsafe { utf8::check::<uint8x16_t>(bytes) }
}

/// Four times 16 bytes.
#[derive(Clone, Copy)]
struct Neon([uint8x16_t; 4]);

/// One bit for each of eight positions.
const PLACES: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

impl Neon {
    /// One bit for each byte, from the result of `test` for the four parts: all ones or zero in
    /// each byte.
    #[inline(always)]
    fn mask(self, test: impl Fn(uint8x16_t) -> uint8x16_t) -> u64 {
        // SAFETY: every machine has the instruction set; 16 bytes are read from the table.
        unsafe {
            let places = vld1q_u8(PLACES.as_ptr());
            let part = |index: usize| vandq_u8(test(self.0[index]), places);
            // Adds neighbours three times: eight bytes of one bit each become one byte.
            let halves = (vpaddq_u8(part(0), part(1)), vpaddq_u8(part(2), part(3)));
            let sum = vpaddq_u8(halves.0, halves.1);
            let sum = vpaddq_u8(sum, sum);
            vgetq_lane_u64::<0>(vreinterpretq_u64_u8(sum))
        }
    }
}

impl Block for Neon {
    #[inline(always)]
    unsafe fn load(bytes: &[u8; BLOCK]) -> Self {
        let from = bytes.as_ptr();
        // SAFETY: `bytes` has four times 16 bytes; loads may be unaligned.
        Self(unsafe {
            [
                vld1q_u8(from),
                vld1q_u8(from.add(16)),
                vld1q_u8(from.add(32)),
                vld1q_u8(from.add(48)),
            ]
        })
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> u64 {
        // SAFETY: every machine has the instruction set; the same below.
        self.mask(|part| unsafe { vceqq_u8(part, vdupq_n_u8(byte)) })
    }

    #[inline(always)]
    fn control(self) -> u64 {
        // SAFETY: as above.
        self.mask(|part| unsafe { vcltq_u8(part, vdupq_n_u8(0x20)) })
    }

    #[inline(always)]
    fn bit_5(self) -> u64 {
        // SAFETY: as above.
        self.mask(|part| unsafe { vtstq_u8(part, vdupq_n_u8(0x20)) })
    }

    #[inline(always)]
    fn with_bit_5(self) -> Self {
        // SAFETY: as above.
        Self(
            self.0
                .map(|part| unsafe { vorrq_u8(part, vdupq_n_u8(0x20)) }),
        )
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        // SAFETY: as above.
        let part = |index: usize| unsafe { vorrq_u8(self.0[index], other.0[index]) };
        Self([part(0), part(1), part(2), part(3)])
    }

    #[inline(always)]
    fn high(self) -> bool {
        // SAFETY: as above.
        unsafe {
            let halves = (
                vorrq_u8(self.0[0], self.0[1]),
                vorrq_u8(self.0[2], self.0[3]),
            );
            vmaxvq_u8(vorrq_u8(halves.0, halves.1)) >= 0x80
        }
    }

    #[inline(always)]
    fn running_xor(self, mask: u64) -> u64 {
        [1, 2, 4, 8, 16, 32]
            .iter()
            .fold(mask, |mask, by| mask ^ mask << by)
    }
}

impl Lanes for uint8x16_t {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn load(bytes: &[u8]) -> Self {
        debug_assert!(bytes.len() >= Self::BYTES);
        // SAFETY: the caller has that many bytes.
        unsafe { vld1q_u8(bytes.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        // SAFETY: every machine has the instruction set; the same below.
        unsafe { vdupq_n_u8(byte) }
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16]) -> Self {
        // SAFETY: as above; the table has the 16 bytes that are read.
        unsafe { vqtbl1q_u8(vld1q_u8(table.as_ptr()), self) }
    }

    #[inline(always)]
    fn upper(self) -> Self {
        // SAFETY: as above.
        unsafe { vshrq_n_u8::<4>(self) }
    }

    #[inline(always)]
    fn shifted<const N: usize>(self, before: Self) -> Self {
        // SAFETY: as above.
        unsafe {
            match N {
                1 => vextq_u8::<15>(before, self),
                2 => vextq_u8::<14>(before, self),
                _ => vextq_u8::<13>(before, self),
            }
        }
    }

    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { vqsubq_u8(self, other) }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { vandq_u8(self, other) }
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { vorrq_u8(self, other) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { veorq_u8(self, other) }
    }

    #[inline(always)]
    fn any(self) -> bool {
        // SAFETY: as above.
        unsafe { vmaxvq_u8(self) != 0 }
    }

    #[inline(always)]
    fn high(self) -> bool {
        // SAFETY: as above.
        unsafe { vmaxvq_u8(self) >= 0x80 }
    }
}
