//! What a program of a topic needs: its input, its records, its state.
//!
//! A program is a function that looks at one write and says yes or no:
//!
//! ```ignore
//! #![no_std]
//! #![forbid(unsafe_code)]
//! use weir_guest::{Input, Outcome, emit_input, reject};
//!
//! weir_guest::program!(apply);
//!
//! fn apply(input: &Input) -> Outcome {
//!     if input.value_len() > 100 {
//!         return reject(1, "at most 100 bytes");
//!     }
//!     emit_input();
//!     Ok(())
//! }
//! ```
//!
//! Everything is kept or taken back as a whole: records and state of a call
//! that is rejected, or that traps, never were. A panic is a trap; with the
//! feature `panic-text` (default) its message and place become a line of
//! [`log`], which `weir program trace` and `weir program logs` show.
//!
//! A caller that reads bytes lends the buffer for them and gets the filled part
//! of it. With the feature `alloc` there is a heap as well, so that `format!`,
//! `vec!` and `String` of the crate `alloc` work. The heap is empty again when all
//! that was allocated is dropped: a program in mode `memory` that keeps one
//! allocation from call to call fills the gaps never, so it keeps a fixed table
//! instead. A pointer or a length that the host would refuse cannot be
//! written in safe code; only `host.rs`, `heap.rs` and the macro [`program!`]
//! hold unsafe code.
#![no_std]
#![deny(missing_docs)]

#[cfg(feature = "alloc")]
extern crate alloc;

mod bytes;
#[cfg(all(feature = "alloc", target_arch = "wasm32"))]
mod heap;
mod host;
#[cfg(feature = "panic-text")]
mod panics;

pub use bytes::{be_i32, be_i64, be_u16, be_u32, be_u64};

/// A program's verdict: `Ok`, or a code from 1 to 65,535.
pub type Outcome = Result<(), Reject>;

/// A program says no, with a code from 1 to 65,535; 0 is a trap, because it
/// would say yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject(pub u16);

/// Rejects the call, with a text for the caller (at most 256 bytes).
pub fn reject(code: u16, text: &str) -> Outcome {
    host::reject_text(text.as_bytes());
    Err(Reject(code))
}

/// What is asked of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The topic is created.
    Init,
    /// A key shall have a value.
    Put,
    /// A key shall have none.
    Delete,
    /// The program takes the place of another one.
    Upgrade,
}

/// The write to be judged, and what is known about it.
#[derive(Clone, Copy)]
pub struct Input {
    header: [u8; 128],
}

impl Input {
    /// Asks the host.
    #[must_use]
    pub fn read() -> Self {
        Self {
            header: host::input_info(),
        }
    }

    fn u32(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.header[at..at + 4]);
        u32::from_le_bytes(bytes)
    }

    fn u64(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.header[at..at + 8]);
        u64::from_le_bytes(bytes)
    }

    /// What is asked.
    #[must_use]
    pub fn op(&self) -> Op {
        match self.u32(0) {
            0 => Op::Init,
            1 => Op::Put,
            2 => Op::Delete,
            _ => Op::Upgrade,
        }
    }

    /// Whether the write is a step of a transaction.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.u32(4) & 1 != 0
    }

    /// Whether the store knows who writes; then [`Input::principal`] says it.
    #[must_use]
    pub fn has_principal(&self) -> bool {
        self.u32(4) & 2 != 0
    }

    /// Which step of its transaction the write is, from 0; 0 outside of one.
    #[must_use]
    pub fn step(&self) -> u32 {
        self.u32(80)
    }

    /// Number of steps of the transaction; 1 outside of one.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.u32(84)
    }

    /// Position of the write in the order of the whole store.
    #[must_use]
    pub fn intention_offset(&self) -> u64 {
        self.u64(8)
    }

    /// Offset that the next emitted record gets.
    #[must_use]
    pub fn next_offset(&self) -> u64 {
        self.u64(16)
    }

    /// Term of the leader that ordered the write; 1 in a store without cluster.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.u64(24)
    }

    /// Milliseconds since 1970, as stamped by the store: equal on every node.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.u64(32)
    }

    /// The client's number of the write; 0 without session.
    #[must_use]
    pub fn nonce(&self) -> u64 {
        self.u64(40)
    }

    /// Who writes, as it calls itself.
    #[must_use]
    pub fn client(&self) -> [u8; 16] {
        let mut id = [0; 16];
        id.copy_from_slice(&self.header[48..64]);
        id
    }

    /// Bytes of the key.
    #[must_use]
    pub fn key_len(&self) -> usize {
        self.u32(64) as usize
    }

    /// Bytes of the value.
    #[must_use]
    pub fn value_len(&self) -> usize {
        self.u32(68) as usize
    }

    /// Bytes of the arguments.
    #[must_use]
    pub fn args_len(&self) -> usize {
        self.u32(72) as usize
    }

    /// Bytes of the name of the authenticated principal; 0 without one.
    #[must_use]
    pub fn principal_len(&self) -> usize {
        self.u32(76) as usize
    }

    /// The key, as far as it fits.
    pub fn key<'a>(&self, into: &'a mut [u8]) -> &'a [u8] {
        host::input(0, 0, into)
    }

    /// The key.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn key_to_vec(&self) -> alloc::vec::Vec<u8> {
        let mut bytes = alloc::vec![0; self.key_len()];
        self.key(&mut bytes);
        bytes
    }

    /// The value.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn value_to_vec(&self) -> alloc::vec::Vec<u8> {
        let mut bytes = alloc::vec![0; self.value_len()];
        self.value(&mut bytes);
        bytes
    }

    /// The key from a byte on, as far as it fits.
    pub fn key_from<'a>(&self, from: usize, into: &'a mut [u8]) -> &'a [u8] {
        host::input(0, from, into)
    }

    /// The value, as far as it fits.
    pub fn value<'a>(&self, into: &'a mut [u8]) -> &'a [u8] {
        host::input(1, 0, into)
    }

    /// The value from a byte on, as far as it fits.
    pub fn value_from<'a>(&self, from: usize, into: &'a mut [u8]) -> &'a [u8] {
        host::input(1, from, into)
    }

    /// The arguments, as far as they fit.
    pub fn args<'a>(&self, into: &'a mut [u8]) -> &'a [u8] {
        host::input(2, 0, into)
    }

    /// The arguments from a byte on, as far as they fit.
    pub fn args_from<'a>(&self, from: usize, into: &'a mut [u8]) -> &'a [u8] {
        host::input(2, from, into)
    }

    /// The principal, as far as it fits.
    pub fn principal<'a>(&self, into: &'a mut [u8]) -> &'a [u8] {
        host::input(3, 0, into)
    }

    /// SHA-256 of the code that this program takes the place of; `None` when
    /// it is not asked to ([`Op::Upgrade`]).
    #[must_use]
    pub fn replaced_code(&self) -> Option<[u8; 32]> {
        let mut hash = [0; 32];
        (host::input(4, 0, &mut hash).len() == 32).then_some(hash)
    }
}

/// A PUT record.
pub fn emit_put(key: &[u8], value: &[u8]) {
    host::emit_put(key, value);
}

/// A DELETE record.
pub fn emit_delete(key: &[u8]) {
    host::emit_delete(key);
}

/// The write itself as a record; its bytes are not copied.
pub fn emit_input() {
    host::emit_input();
}

/// A PUT record with a part of the written value, which is not copied.
pub fn emit_value(key: &[u8], from: usize, len: usize) {
    host::emit_value(key, from, len);
}

/// State of mode `kv`: a map of bytes, ordered by key.
pub mod state {
    use crate::host;

    /// The value of a key, as far as it fits; its full length.
    pub fn get<'a>(key: &[u8], into: &'a mut [u8]) -> Option<(&'a [u8], usize)> {
        host::state_get(key, 0, into)
    }

    /// The value of a key from a byte on, as far as it fits; its full length.
    pub fn get_from<'a>(key: &[u8], from: usize, into: &'a mut [u8]) -> Option<(&'a [u8], usize)> {
        host::state_get(key, from, into)
    }

    /// A value of exactly `N` bytes; `None` when there is none of that size.
    #[must_use]
    pub fn get_array<const N: usize>(key: &[u8]) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let (_, len) = host::state_get(key, 0, &mut bytes)?;
        (len == N).then_some(bytes)
    }

    /// The whole value of a key.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn get_vec(key: &[u8]) -> Option<alloc::vec::Vec<u8>> {
        let (_, len) = host::state_get(key, 0, &mut [])?;
        let mut bytes = alloc::vec![0; len];
        host::state_get(key, 0, &mut bytes);
        Some(bytes)
    }

    /// Sets a key.
    pub fn put(key: &[u8], value: &[u8]) {
        host::state_put(key, value);
    }

    /// Removes a key.
    pub fn delete(key: &[u8]) {
        host::state_delete(key);
    }

    /// The smallest key after the given one, as far as it fits; its full
    /// length. An empty key comes before all others.
    pub fn next<'a>(key: &[u8], into: &'a mut [u8]) -> Option<(&'a [u8], usize)> {
        host::state_next(key, into)
    }
}

/// The topic's own keys, as its readers see them, this call's records included.
pub mod keys {
    use crate::host;

    /// The value of a key, as far as it fits; its full length.
    pub fn get<'a>(key: &[u8], into: &'a mut [u8]) -> Option<(&'a [u8], usize)> {
        host::key_get(key, 0, into)
    }

    /// The value of a key from a byte on, as far as it fits; its full length.
    pub fn get_from<'a>(key: &[u8], from: usize, into: &'a mut [u8]) -> Option<(&'a [u8], usize)> {
        host::key_get(key, from, into)
    }

    /// A value of exactly `N` bytes; `None` when there is none of that size.
    #[must_use]
    pub fn get_array<const N: usize>(key: &[u8]) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let (_, len) = host::key_get(key, 0, &mut bytes)?;
        (len == N).then_some(bytes)
    }

    /// The whole value of a key.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn get_vec(key: &[u8]) -> Option<alloc::vec::Vec<u8>> {
        let (_, len) = host::key_get(key, 0, &mut [])?;
        let mut bytes = alloc::vec![0; len];
        host::key_get(key, 0, &mut bytes);
        Some(bytes)
    }

    /// Offset of the record with the key's value; 0 without one.
    #[must_use]
    pub fn offset(key: &[u8]) -> u64 {
        host::key_offset(key)
    }
}

/// Looking into JSON without reading it: the store does it.
pub mod json {
    use crate::host;

    /// What a value is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        /// There is none.
        Undefined,
        /// `null`.
        Null,
        /// `true` or `false`.
        Boolean,
        /// A number.
        Number,
        /// A string.
        String,
        /// An array.
        Array,
        /// An object.
        Object,
    }

    /// A value: what it is, and where its literal stands.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Found {
        /// What it is.
        pub kind: Kind,
        /// First byte of its literal in the written value.
        pub at: usize,
        /// Bytes of its literal.
        pub len: usize,
    }

    impl Found {
        /// Nothing.
        pub const NONE: Self = Self {
            kind: Kind::Undefined,
            at: 0,
            len: 0,
        };
    }

    /// Why nothing was found.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// The value is not JSON, from this byte on.
        NotJson(u32),
        /// A path is not understood, or there are more than `N` or 64.
        Paths,
    }

    /// Finds values in the written value by their paths (names and indexes of
    /// JSONPath, RFC 9535), which stand on lines. The whole value is checked.
    pub fn find<const N: usize>(paths: &[u8]) -> Result<[Found; N], Fault> {
        let mut out = [[0; 12]; N];
        let found = host::json_find(1, 1, paths, &mut out);
        let number = |bytes: &[u8; 12], at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        if found < 0 {
            return Err(match out.first() {
                Some(first) if found == -1 => Fault::NotJson(number(first, 0)),
                _ => Fault::Paths,
            });
        }
        Ok(out.map(|bytes| Found {
            kind: match number(&bytes, 0) {
                1 => Kind::Null,
                2 | 3 => Kind::Boolean,
                4 => Kind::Number,
                5 => Kind::String,
                6 => Kind::Array,
                7 => Kind::Object,
                _ => Kind::Undefined,
            },
            at: number(&bytes, 4) as usize,
            len: number(&bytes, 8) as usize,
        }))
    }
}

/// SHA-256.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    host::hash(1, bytes)
}

/// BLAKE3.
#[must_use]
pub fn blake3(bytes: &[u8]) -> [u8; 32] {
    host::hash(2, bytes)
}

/// Writes a line to the log of the operator; it is no part of the outcome,
/// and the program cannot learn whether anybody reads it.
pub fn log(level: Level, text: &str) {
    host::log(level as u32, text.as_bytes());
}

/// How much a line of [`log`] matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something is wrong.
    Error = 1,
    /// Something may be wrong.
    Warn = 2,
    /// Worth knowing.
    Info = 3,
    /// Helps to find a mistake.
    Debug = 4,
    /// Everything.
    Trace = 5,
}

/// Ends the call as a trap: for what can never be.
pub fn trap() -> ! {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    panic!("trap")
}

/// Ends the call as a trap, after saying what the panic says.
#[doc(hidden)]
pub fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    #[cfg(feature = "panic-text")]
    panics::tell(info);
    #[cfg(not(feature = "panic-text"))]
    let _ = info;
    trap()
}

/// The number that the host expects of an outcome.
#[doc(hidden)]
#[must_use]
pub fn returned(outcome: Outcome) -> i32 {
    match outcome {
        Ok(()) => 0,
        Err(Reject(0)) => trap(),
        Err(Reject(code)) => i32::from(code),
    }
}

/// Makes functions the entry points of the module: `program!(apply)`,
/// `program!(apply, init = start)`, `program!(apply, upgrade = take_over)`.
/// Each takes `&Input` and returns an [`Outcome`]. `state = 2`, after them, is the
/// version of the layout of the state: a program of another version may take the
/// place of this one only with `upgrade`. It is 0 if nothing says it.
#[macro_export]
macro_rules! program {
    (
        $apply:path $(, init = $init:path)? $(, upgrade = $upgrade:path)? $(, state = $state:literal)?
    ) => {
        #[unsafe(no_mangle)]
        extern "C" fn weir_abi() -> i32 {
            1
        }
        #[unsafe(no_mangle)]
        extern "C" fn weir_apply() -> i32 {
            $crate::returned($apply(&$crate::Input::read()))
        }
        $(#[unsafe(no_mangle)]
        extern "C" fn weir_init() -> i32 {
            $crate::returned($init(&$crate::Input::read()))
        })?
        $(#[unsafe(no_mangle)]
        extern "C" fn weir_upgrade() -> i32 {
            $crate::returned($upgrade(&$crate::Input::read()))
        })?
        $(#[unsafe(no_mangle)]
        extern "C" fn weir_state() -> i32 {
            $state
        })?
        #[cfg(target_arch = "wasm32")]
        #[panic_handler]
        fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
            $crate::panicked(info)
        }
    };
}
