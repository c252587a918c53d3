//! The loops that read every byte, one version for each instruction set, chosen at run time.
//!
//! A kernel skips a value, finds the end of a string, finds the end of a line, and checks UTF-8. It
//! returns a position, or that it found a fault. The portable kernel then finds the kind and the
//! position of the fault, so it determines all errors.
//!
//! Invariants:
//! - All kernels return equal results for equal inputs.
//! - No kernel reads outside of its slice.
//! - The kernel is chosen at run time, by the features of the CPU.

#![allow(
    unsafe_code,
    reason = "calls of functions that need an instruction set"
)]

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod block;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(crate) mod scalar;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod utf8;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

/// Instruction sets that a kernel exists for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Simd {
    /// x86-64 with AVX-512BW.
    Avx512,
    /// x86-64 with AVX2.
    Avx2,
    /// x86-64 with SSE4.2.
    Sse42,
    /// 64-bit ARM.
    Neon,
    /// Only portable code.
    Scalar,
}

impl Simd {
    /// All kernels, fastest first.
    pub const ALL: &'static [Self] = &[
        Self::Avx512,
        Self::Avx2,
        Self::Sse42,
        Self::Neon,
        Self::Scalar,
    ];

    /// Name for messages and for the environment variable `WEIR_SIMD`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "avx512bw",
            Self::Avx2 => "avx2",
            Self::Sse42 => "sse4.2",
            Self::Neon => "neon",
            Self::Scalar => "scalar",
        }
    }

    /// Whether this machine has the instruction set.
    pub fn available(self) -> bool {
        Kernel::of(self).is_some()
    }
}

/// The open brackets at the start of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// Number of open brackets of both kinds; at least 1.
    pub(crate) total: u32,
    /// Number of open `{`.
    pub(crate) curly: u32,
    /// Limit on brackets that are open at a time.
    pub(crate) max: u32,
}

/// A run of bytes that was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SkippedRun {
    /// Offset of the first byte after the run.
    pub(crate) end: usize,
    /// Whether the run may contain a byte that is not ASCII. May be true for an ASCII run, because
    /// a kernel reads whole blocks; never false for another run.
    pub(crate) high: bool,
}

/// A string that was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SkippedString {
    /// Offset of the closing quote.
    pub(crate) close: usize,
    /// Whether the string may contain a byte that is not ASCII.
    pub(crate) high: bool,
    /// Whether the string contains a backslash.
    pub(crate) escaped: bool,
}

/// The functions of one kernel. `None` and `false` report a fault. Calls are unsafe on a machine
/// that lacks the instruction set; `Kernel::of`, which checks the machine, is the only way to get a
/// kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) simd: Simd,
    /// Skips from `at` to after the bracket that closes all open brackets.
    pass: unsafe fn(&[u8], usize, Open) -> Option<SkippedRun>,
    /// Skips from after the opening quote at `at - 1` to the closing quote.
    string: unsafe fn(&[u8], usize) -> Option<SkippedString>,
    /// Returns the position of the next line feed from `at`, or the end.
    line: unsafe fn(&[u8], usize) -> usize,
    /// Whether all bytes are UTF-8.
    utf8: unsafe fn(&[u8]) -> bool,
}

impl Kernel {
    /// The best kernel of this machine, or the kernel in `WEIR_SIMD` if the machine has it.
    pub(crate) fn chosen() -> &'static Self {
        static CHOSEN: OnceLock<&'static Kernel> = OnceLock::new();
        CHOSEN.get_or_init(|| {
            let wanted = std::env::var("WEIR_SIMD").unwrap_or_default();
            let named = |simd: &&Simd| simd.name() == wanted;
            let wanted = Simd::ALL
                .iter()
                .find(named)
                .and_then(|simd| Self::of(*simd));
            let best = || Simd::ALL.iter().find_map(|simd| Self::of(*simd));
            wanted.or_else(best).unwrap_or(&scalar::KERNEL)
        })
    }

    /// The kernel for an instruction set, if this machine has it.
    #[allow(
        clippy::unnecessary_wraps,
        reason = "the other kernels are not everywhere"
    )]
    pub(crate) fn of(simd: Simd) -> Option<&'static Self> {
        match simd {
            Simd::Scalar => Some(&scalar::KERNEL),
            #[cfg(target_arch = "aarch64")]
            Simd::Neon => Some(&neon::KERNEL),
            #[cfg(target_arch = "x86_64")]
            simd => x86::of(simd),
            #[cfg(not(target_arch = "x86_64"))]
            _ => None,
        }
    }

    /// Skips from `at` to after the bracket that closes all brackets in `open`.
    pub(crate) fn pass(&self, bytes: &[u8], at: usize, open: Open) -> Option<SkippedRun> {
        // SAFETY: only `of` returns a kernel, so the machine has its instruction set.
        unsafe { (self.pass)(bytes, at, open) }
    }

    /// Skips from `at`, just after an opening quote, to the closing quote.
    pub(crate) fn string(&self, bytes: &[u8], at: usize) -> Option<SkippedString> {
        // SAFETY: only `of` returns a kernel, so the machine has its instruction set.
        unsafe { (self.string)(bytes, at) }
    }

    /// Offset of the next line feed from `at`, or the length.
    pub(crate) fn line(&self, bytes: &[u8], at: usize) -> usize {
        // SAFETY: only `of` returns a kernel, so the machine has its instruction set.
        unsafe { (self.line)(bytes, at) }
    }

    /// Whether `bytes` are UTF-8.
    pub(crate) fn utf8(&self, bytes: &[u8]) -> bool {
        // SAFETY: only `of` returns a kernel, so the machine has its instruction set.
        unsafe { (self.utf8)(bytes) }
    }
}

/// Version and kernel in use, for reports: `weir-scan 0.1.0, kernel scalar`.
pub fn build_info() -> String {
    format!(
        "weir-scan {}, kernel {}",
        env!("CARGO_PKG_VERSION"),
        Kernel::chosen().simd.name()
    )
}

#[cfg(test)]
mod tests {
    use super::{Kernel, Open, Simd};

    /// Checks that each kernel of this machine agrees with the standard library on `bytes`.
    fn check(kernels: &[&Kernel], bytes: &[u8]) {
        let expected = std::str::from_utf8(bytes).is_ok();
        for kernel in kernels {
            let simd = kernel.simd;
            assert_eq!(
                kernel.utf8(bytes),
                expected,
                "{simd:?} {}",
                bytes.escape_ascii()
            );
        }
    }

    #[test]
    fn utf8_agrees_with_the_standard_library() {
        let kernels: Vec<_> = Simd::ALL
            .iter()
            .filter_map(|simd| Kernel::of(*simd))
            .collect();
        // Every start of a character: complete, cut and continued. They end at positions around the
        // boundaries of all vectors.
        let mut places = (12..20).chain(28..36).chain(60..68).cycle();
        let (first_step, second_step) = if cfg!(miri) { (17, 101) } else { (1, 1) };
        for first in (0x80..=0xff).step_by(first_step) {
            for second in (0..=0xff).step_by(second_step) {
                for third in [0x20, 0x80, 0xbf, 0xe1] {
                    for fourth in [0x20, 0x80, 0xc2] {
                        let mut bytes = vec![b'x'; places.next().unwrap_or(0)];
                        bytes.extend([first, second, third, fourth]);
                        check(&kernels, &bytes);
                    }
                }
            }
        }
        let text = "aé€😀".repeat(if cfg!(miri) { 41 } else { 700 });
        let cut_step = if cfg!(miri) { 39 } else { 1 };
        let cuts = (0..200).chain(text.len() - 200..=text.len());
        for cut in cuts.step_by(cut_step) {
            check(&kernels, &text.as_bytes()[..cut]);
            check(&kernels, &text.as_bytes()[cut..]);
        }
    }

    /// A kernel that reports needless faults would still give the right results, but slowly.
    #[test]
    fn no_kernel_reports_a_fault_in_valid_input() {
        let pieces = [
            "1,2,",
            "\"a\",",
            "\"\\\"]\\\\\",",
            "{\"b\":[{}]},",
            "[[[[]]]],",
            "\"é€😀\",\n\t",
            "null, ",
        ];
        let open = Open {
            total: 1,
            curly: 0,
            max: 5,
        };
        for kernel in Simd::ALL.iter().filter_map(|simd| Kernel::of(*simd)) {
            let simd = kernel.simd;
            for length in (0..150).step_by(if cfg!(miri) { 37 } else { 1 }) {
                let parts: String = pieces
                    .iter()
                    .cycle()
                    .skip(length % 7)
                    .take(length)
                    .copied()
                    .collect();
                let page = format!("[{parts}0]");
                let end = kernel
                    .pass(page.as_bytes(), 1, open)
                    .map(|passed| passed.end);
                assert_eq!(end, Some(page.len()), "{simd:?} {page}");
                let text = format!("{}\"", "x\\\"é".repeat(length));
                let close = kernel.string(text.as_bytes(), 0).map(|passed| passed.close);
                assert_eq!(close, Some(text.len() - 1), "{simd:?} {text}");
            }
        }
    }

    #[test]
    fn lines_end_at_line_feeds() {
        for kernel in Simd::ALL.iter().filter_map(|simd| Kernel::of(*simd)) {
            for length in (0..200).step_by(if cfg!(miri) { 13 } else { 1 }) {
                let mut bytes = vec![b'x'; length];
                assert_eq!(kernel.line(&bytes, length / 2), length);
                bytes.extend(b"\n\n");
                assert_eq!(kernel.line(&bytes, length / 2), length);
            }
        }
    }
}
