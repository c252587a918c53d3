//! The few loops that look at every byte, once for each instruction set, chosen at run time.
//!
//! A kernel passes over a value without looking into it, finds the end of a string, finds the end of
//! a line, checks UTF-8. It says where it got to, or that something is wrong; what is wrong and where
//! is then found by the portable kernel, which therefore decides all errors.
//!
//! Invariants: all kernels accept the same inputs with the same result; none reads outside of the
//! slice it was given. What must never happen here: choosing at compile time what the machine can do.

pub(crate) mod scalar;

use std::sync::OnceLock;

/// Instruction sets that a kernel exists for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Simd {
    /// No more than the language has.
    Scalar,
}

impl Simd {
    /// All there are, best first.
    pub const ALL: &'static [Self] = &[Self::Scalar];

    /// Name for messages and for the environment variable `WEIR_SIMD`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
        }
    }

    /// Whether this machine has it.
    pub fn available(self) -> bool {
        Kernel::of(self).is_some()
    }
}

/// Brackets that are open where a run begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// How many, of both kinds; at least 1.
    pub(crate) total: u32,
    /// How many of them are `{`.
    pub(crate) curly: u32,
    /// How many may be open at a time.
    pub(crate) max: u32,
}

/// A run of bytes that was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    /// First byte after it.
    pub(crate) end: usize,
    /// Whether a byte that is not ASCII may have been in it. May be true without need, not the other
    /// way: a kernel looks at whole blocks.
    pub(crate) high: bool,
}

/// A string that was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassedString {
    /// Of its closing quote.
    pub(crate) close: usize,
    /// Whether a byte that is not ASCII may have been in it.
    pub(crate) high: bool,
    /// Whether a backslash is in it.
    pub(crate) escaped: bool,
}

/// The functions of one kernel. `None` and `false` mean: something is wrong.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) simd: Simd,
    /// From `at` to where the brackets that are open are closed.
    pass: fn(&[u8], usize, Open) -> Option<Passed>,
    /// From after the opening quote at `at - 1` to the closing quote.
    string: fn(&[u8], usize) -> Option<PassedString>,
    /// From `at` to the next line feed, or the end.
    line: fn(&[u8], usize) -> usize,
    /// Whether all of it is UTF-8.
    utf8: fn(&[u8]) -> bool,
}

impl Kernel {
    /// The best that this machine has, or what `WEIR_SIMD` names if the machine has that.
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
        }
    }

    /// Passes from `at` to after the bracket that closes the last of those that are `open`.
    pub(crate) fn pass(&self, bytes: &[u8], at: usize, open: Open) -> Option<Passed> {
        (self.pass)(bytes, at, open)
    }

    /// Passes from `at`, just after an opening quote, to the closing one.
    pub(crate) fn string(&self, bytes: &[u8], at: usize) -> Option<PassedString> {
        (self.string)(bytes, at)
    }

    /// Offset of the next line feed from `at`, or the length.
    pub(crate) fn line(&self, bytes: &[u8], at: usize) -> usize {
        (self.line)(bytes, at)
    }

    /// Whether `bytes` are UTF-8.
    pub(crate) fn utf8(&self, bytes: &[u8]) -> bool {
        (self.utf8)(bytes)
    }
}

/// What this build uses on this machine, for reports: `weir-scan 0.1.0, kernel scalar`.
pub fn build_info() -> String {
    format!(
        "weir-scan {}, kernel {}",
        env!("CARGO_PKG_VERSION"),
        Kernel::chosen().simd.name()
    )
}
