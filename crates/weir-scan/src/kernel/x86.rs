//! The kernels for x86-64: SSE4.2, AVX2, AVX-512BW. The algorithms are in `block` and `utf8`.
//!
//! Each kernel also uses carry-less multiplication and population count, which machines with its
//! set have. Invariant: `Kernel::of` returns a kernel of this file only after it has checked that
//! the machine has all features in its `target_feature`.
#![allow(
    clippy::inline_always,
    reason = "only what is inlined into a function with the instruction set may use it"
)]
#![allow(unsafe_code, reason = "vector instructions; each block says why")]
#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_ptr_alignment,
    clippy::cast_sign_loss,
    reason = "intrinsics take bytes as signed numbers and pointers as vectors; unaligned loads are used"
)]

use super::block::{self, BLOCK, Block};
use super::utf8::{self, Lanes};
use super::{Kernel, Open, Simd, SkippedRun, SkippedString};
#[allow(clippy::wildcard_imports, reason = "several dozen intrinsics")]
use std::arch::x86_64::*;

/// The four functions of a kernel for one instruction set.
macro_rules! kernel {
    ($name:ident, $simd:expr, $features:literal, $block:ty, $lanes:ty) => {
        pub(super) mod $name {
            use super::*;

            pub(in super::super) static KERNEL: Kernel = Kernel {
                simd: $simd,
                pass,
                string,
                line,
                utf8,
            };

            #[target_feature(enable = $features)]
            fn pass(bytes: &[u8], at: usize, open: Open) -> Option<SkippedRun> {
                // SAFETY: this function is compiled for, and only called with, the instruction set.
                unsafe { block::pass::<$block>(bytes, at, open) }
            }

            #[target_feature(enable = $features)]
            fn string(bytes: &[u8], at: usize) -> Option<SkippedString> {
                // SAFETY: as above.
                unsafe { block::string::<$block>(bytes, at) }
            }

            #[target_feature(enable = $features)]
            fn line(bytes: &[u8], at: usize) -> usize {
                // SAFETY: as above.
                unsafe { block::line::<$block>(bytes, at) }
            }

            #[target_feature(enable = $features)]
            fn utf8(bytes: &[u8]) -> bool {
                // SAFETY: as above.
                unsafe { utf8::check::<$lanes>(bytes) }
            }
        }
    };
}

kernel!(
    sse42,
    Simd::Sse42,
    "sse4.2,ssse3,pclmulqdq,popcnt",
    Sse,
    __m128i
);
kernel!(
    avx2,
    Simd::Avx2,
    "avx2,pclmulqdq,popcnt,bmi1,bmi2,lzcnt",
    Avx2,
    __m256i
);
kernel!(
    avx512,
    Simd::Avx512,
    "avx512f,avx512bw,avx512vl,avx2,pclmulqdq,popcnt,bmi1,bmi2,lzcnt",
    Avx512,
    __m512i
);

/// The kernel for `simd`, if the machine has all features that it needs.
pub(super) fn of(simd: Simd) -> Option<&'static Kernel> {
    let multiply = || is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("popcnt");
    let bits = || {
        is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("avx2")
    };
    let avx512 = || {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
    };
    let ssse = || is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("ssse3");
    match simd {
        Simd::Avx512 if multiply() && bits() && avx512() => Some(&avx512::KERNEL),
        Simd::Avx2 if multiply() && bits() => Some(&avx2::KERNEL),
        Simd::Sse42 if multiply() && ssse() => Some(&sse42::KERNEL),
        _ => None,
    }
}

/// Carry-less multiplication by all ones: each bit becomes the parity of the bits up to it.
///
/// # Safety
/// The machine has `pclmulqdq`.
#[inline(always)]
unsafe fn running_xor(mask: u64) -> u64 {
    // SAFETY: the caller guarantees the feature.
    unsafe {
        let product = _mm_clmulepi64_si128::<0>(_mm_set_epi64x(0, mask as i64), _mm_set1_epi8(-1));
        _mm_cvtsi128_si64(product) as u64
    }
}

/// Four times 16 bytes.
#[derive(Clone, Copy)]
struct Sse([__m128i; 4]);

impl Sse {
    /// One bit for each byte, from the result of `test` for the four parts: all ones or zero in
    /// each byte.
    #[inline(always)]
    fn mask(self, test: impl Fn(__m128i) -> __m128i) -> u64 {
        let part = |index: usize| {
            // SAFETY: a value of this type exists only on machines with its instruction set.
            let bits = unsafe { _mm_movemask_epi8(test(self.0[index])) };
            u64::from(bits as u32)
        };
        part(0) | part(1) << 16 | part(2) << 32 | part(3) << 48
    }
}

impl Block for Sse {
    #[inline(always)]
    unsafe fn load(bytes: &[u8; BLOCK]) -> Self {
        let from = bytes.as_ptr().cast::<__m128i>();
        // SAFETY: `bytes` has four times 16 bytes; loads may be unaligned.
        Self(unsafe {
            [
                _mm_loadu_si128(from),
                _mm_loadu_si128(from.add(1)),
                _mm_loadu_si128(from.add(2)),
                _mm_loadu_si128(from.add(3)),
            ]
        })
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> u64 {
        // SAFETY: a value of this type exists only on machines with its instruction set.
        self.mask(|part| unsafe { _mm_cmpeq_epi8(part, _mm_set1_epi8(byte as i8)) })
    }

    #[inline(always)]
    fn control(self) -> u64 {
        // SAFETY: as above.
        self.mask(|part| unsafe {
            let most = _mm_set1_epi8(0x1f);
            _mm_cmpeq_epi8(_mm_max_epu8(part, most), most)
        })
    }

    #[inline(always)]
    fn bit_5(self) -> u64 {
        // SAFETY: as above. A shift by two moves the bit to the top, which makes the mask.
        self.mask(|part| unsafe { _mm_slli_epi16::<2>(part) })
    }

    #[inline(always)]
    fn with_bit_5(self) -> Self {
        // SAFETY: as above.
        Self(
            self.0
                .map(|part| unsafe { _mm_or_si128(part, _mm_set1_epi8(0x20)) }),
        )
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        let part = |index: usize| {
            // SAFETY: as above.
            unsafe { _mm_or_si128(self.0[index], other.0[index]) }
        };
        Self([part(0), part(1), part(2), part(3)])
    }

    #[inline(always)]
    fn high(self) -> bool {
        self.mask(|part| part) != 0
    }

    #[inline(always)]
    fn running_xor(self, mask: u64) -> u64 {
        // SAFETY: as above.
        unsafe { running_xor(mask) }
    }
}

/// Two times 32 bytes.
#[derive(Clone, Copy)]
struct Avx2(__m256i, __m256i);

impl Avx2 {
    #[inline(always)]
    fn mask(first: __m256i, second: __m256i) -> u64 {
        // SAFETY: called with parts of a value of this type, which exists only on machines with its
        // instruction set; the same below.
        let bits = unsafe { [_mm256_movemask_epi8(first), _mm256_movemask_epi8(second)] };
        u64::from(bits[0] as u32) | u64::from(bits[1] as u32) << 32
    }
}

impl Block for Avx2 {
    #[inline(always)]
    unsafe fn load(bytes: &[u8; BLOCK]) -> Self {
        let from = bytes.as_ptr().cast::<__m256i>();
        // SAFETY: `bytes` has two times 32 bytes; loads may be unaligned.
        unsafe { Self(_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1))) }
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> u64 {
        // SAFETY: a value of this type exists only on machines with its instruction set.
        let (first, second) = unsafe {
            let wanted = _mm256_set1_epi8(byte as i8);
            (
                _mm256_cmpeq_epi8(self.0, wanted),
                _mm256_cmpeq_epi8(self.1, wanted),
            )
        };
        Self::mask(first, second)
    }

    #[inline(always)]
    fn control(self) -> u64 {
        // SAFETY: as above.
        let (first, second) = unsafe {
            let most = _mm256_set1_epi8(0x1f);
            (
                _mm256_cmpeq_epi8(_mm256_max_epu8(self.0, most), most),
                _mm256_cmpeq_epi8(_mm256_max_epu8(self.1, most), most),
            )
        };
        Self::mask(first, second)
    }

    #[inline(always)]
    fn bit_5(self) -> u64 {
        // SAFETY: as above. A shift by two moves the bit to the top, which makes the mask.
        let (first, second) = unsafe {
            (
                _mm256_slli_epi16::<2>(self.0),
                _mm256_slli_epi16::<2>(self.1),
            )
        };
        Self::mask(first, second)
    }

    #[inline(always)]
    fn with_bit_5(self) -> Self {
        // SAFETY: as above.
        unsafe {
            let bit = _mm256_set1_epi8(0x20);
            Self(_mm256_or_si256(self.0, bit), _mm256_or_si256(self.1, bit))
        }
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe {
            Self(
                _mm256_or_si256(self.0, other.0),
                _mm256_or_si256(self.1, other.1),
            )
        }
    }

    #[inline(always)]
    fn high(self) -> bool {
        Self::mask(self.0, self.1) != 0
    }

    #[inline(always)]
    fn running_xor(self, mask: u64) -> u64 {
        // SAFETY: as above.
        unsafe { running_xor(mask) }
    }
}

/// 64 bytes.
#[derive(Clone, Copy)]
struct Avx512(__m512i);

impl Block for Avx512 {
    #[inline(always)]
    unsafe fn load(bytes: &[u8; BLOCK]) -> Self {
        // SAFETY: `bytes` has 64 bytes; loads may be unaligned.
        Self(unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) })
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> u64 {
        // SAFETY: a value of this type exists only on machines with its instruction set.
        unsafe { _mm512_cmpeq_epi8_mask(self.0, _mm512_set1_epi8(byte as i8)) }
    }

    #[inline(always)]
    fn control(self) -> u64 {
        // SAFETY: as above.
        unsafe { _mm512_cmplt_epu8_mask(self.0, _mm512_set1_epi8(0x20)) }
    }

    #[inline(always)]
    fn bit_5(self) -> u64 {
        // SAFETY: as above.
        unsafe { _mm512_test_epi8_mask(self.0, _mm512_set1_epi8(0x20)) }
    }

    #[inline(always)]
    fn with_bit_5(self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_or_si512(self.0, _mm512_set1_epi8(0x20)) })
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        // SAFETY: as above.
        Self(unsafe { _mm512_or_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn high(self) -> bool {
        // SAFETY: as above.
        unsafe { _mm512_movepi8_mask(self.0) != 0 }
    }

    #[inline(always)]
    fn running_xor(self, mask: u64) -> u64 {
        // SAFETY: as above.
        unsafe { running_xor(mask) }
    }
}

/// `Lanes` for one register type. The types differ in the names of their intrinsics, and in
/// `shifted`.
macro_rules! lanes {
    (
        $type:ty, $bytes:literal, $load:ident, $splat:ident, $table:expr, $shuffle:ident,
        $shift:ident, $minus:ident, $and:ident, $or:ident, $xor:ident, $any:expr, $high:expr,
        $before:expr, $align:ident
    ) => {
        impl Lanes for $type {
            const BYTES: usize = $bytes;

            #[inline(always)]
            unsafe fn load(bytes: &[u8]) -> Self {
                debug_assert!(bytes.len() >= Self::BYTES);
                // SAFETY: the caller has the instruction set and that many bytes.
                unsafe { $load(bytes.as_ptr().cast()) }
            }

            #[inline(always)]
            unsafe fn splat(byte: u8) -> Self {
                // SAFETY: the caller has the instruction set.
                unsafe { $splat(byte as i8) }
            }

            #[inline(always)]
            fn look_up(self, table: &[u8; 16]) -> Self {
                // SAFETY: here and below, the value was loaded by a caller that has the instruction
                // set; the table has the 16 bytes that are read.
                unsafe { $shuffle($table(_mm_loadu_si128(table.as_ptr().cast())), self) }
            }

            #[inline(always)]
            fn upper(self) -> Self {
                // SAFETY: as above.
                unsafe { $and($shift::<4>(self), $splat(15)) }
            }

            #[inline(always)]
            fn shifted<const N: usize>(self, before: Self) -> Self {
                // SAFETY: as above.
                unsafe {
                    let before = $before(self, before);
                    match N {
                        1 => $align::<15>(self, before),
                        2 => $align::<14>(self, before),
                        _ => $align::<13>(self, before),
                    }
                }
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $minus(self, other) }
            }

            #[inline(always)]
            fn and(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $and(self, other) }
            }

            #[inline(always)]
            fn or(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $or(self, other) }
            }

            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $xor(self, other) }
            }

            #[inline(always)]
            fn any(self) -> bool {
                // SAFETY: as above.
                unsafe { $any(self) }
            }

            #[inline(always)]
            fn high(self) -> bool {
                // SAFETY: as above.
                unsafe { $high(self) }
            }
        }
    };
}

lanes!(
    __m128i,
    16,
    _mm_loadu_si128,
    _mm_set1_epi8,
    |table| table,
    _mm_shuffle_epi8,
    _mm_srli_epi16,
    _mm_subs_epu8,
    _mm_and_si128,
    _mm_or_si128,
    _mm_xor_si128,
    |v| _mm_testz_si128(v, v) == 0,
    |v| _mm_movemask_epi8(v) != 0,
    |_, before| before,
    _mm_alignr_epi8
);

// Tables and shifts work within 16 bytes each. So the 16 bytes before each part are combined first.
lanes!(
    __m256i,
    32,
    _mm256_loadu_si256,
    _mm256_set1_epi8,
    |t| _mm256_broadcastsi128_si256(t),
    _mm256_shuffle_epi8,
    _mm256_srli_epi16,
    _mm256_subs_epu8,
    _mm256_and_si256,
    _mm256_or_si256,
    _mm256_xor_si256,
    |v| _mm256_testz_si256(v, v) == 0,
    |v| _mm256_movemask_epi8(v) != 0,
    |now, before| _mm256_permute2x128_si256::<0x21>(before, now),
    _mm256_alignr_epi8
);

lanes!(
    __m512i,
    64,
    _mm512_loadu_si512,
    _mm512_set1_epi8,
    |t| _mm512_broadcast_i32x4(t),
    _mm512_shuffle_epi8,
    _mm512_srli_epi16,
    _mm512_subs_epu8,
    _mm512_and_si512,
    _mm512_or_si512,
    _mm512_xor_si512,
    |v| _mm512_test_epi8_mask(v, v) != 0,
    |v| _mm512_movepi8_mask(v) != 0,
    |now, before| _mm512_alignr_epi64::<6>(now, before),
    _mm512_alignr_epi8
);
