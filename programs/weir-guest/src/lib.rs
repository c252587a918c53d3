//! The interface for a program of a topic: its input, its records, its state.
//!
//! A program is a function that checks one write and accepts or rejects it:
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
//! If a call is rejected or traps, none of its records and changes of the state
//! remain. A panic is a trap; with the feature `panic-text` (default) its
//! message and position become a line of [`log`], which
//! `weir program trace` and `weir program logs` show.
//!
//! A caller that reads bytes passes a buffer for them and gets the filled
//! part of it. With the feature `alloc` there is a heap too, so `format!`,
//! `vec!` and `String` of the crate `alloc` work. The heap is empty again
//! when all allocations are dropped. If a program in mode `memory` keeps one
//! allocation between calls, freed gaps are never reused; use a fixed table
//! instead. Safe code cannot pass a pointer outside of the memory. Only
//! `host.rs`, `heap.rs` and the macro [`program!`] contain unsafe code.
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

/// The verdict of a program: `Ok`, or a code from 1 to 65,535.
pub type Outcome = Result<(), Reject>;

/// Rejects a call, with a code from 1 to 65,535. Code 0 is a trap, because it would mean
/// VALID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject(pub u16);

/// Rejects the call, with a text for the caller. A text of more than 256 bytes is a trap.
pub fn reject(code: u16, text: &str) -> Outcome {
    host::reject_text(text.as_bytes());
    Err(Reject(code))
}

/// The operation of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The topic is created.
    Init,
    /// Sets the value of a key.
    Put,
    /// Deletes a key.
    Delete,
    /// The program replaces another one.
    Upgrade,
}

/// The write of this call, and facts about it.
#[derive(Clone, Copy)]
pub struct Input {
    header: [u8; 128],
}

impl Input {
    /// Reads the header from the host.
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

    /// The operation of the call.
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

    /// Whether the store knows the principal of the write; [`Input::principal`] returns it.
    #[must_use]
    pub fn has_principal(&self) -> bool {
        self.u32(4) & 2 != 0
    }

    /// Index of the write in its transaction, from 0; 0 outside of a transaction.
    #[must_use]
    pub fn step(&self) -> u32 {
        self.u32(80)
    }

    /// Number of steps of the transaction; 1 outside of a transaction.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.u32(84)
    }

    /// Position of the write in the order of the whole store.
    #[must_use]
    pub fn intention_offset(&self) -> u64 {
        self.u64(8)
    }

    /// Offset of the next emitted record.
    #[must_use]
    pub fn next_offset(&self) -> u64 {
        self.u64(16)
    }

    /// Term of the leader that ordered the write; 1 without a cluster.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.u64(24)
    }

    /// Time stamp of the store in milliseconds since 1970; equal on every node.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.u64(32)
    }

    /// The client's nonce of the write; 0 without a session.
    #[must_use]
    pub fn nonce(&self) -> u64 {
        self.u64(40)
    }

    /// The client id of the write.
    #[must_use]
    pub fn client(&self) -> [u8; 16] {
        let mut id = [0; 16];
        id.copy_from_slice(&self.header[48..64]);
        id
    }

    /// Length of the key in bytes.
    #[must_use]
    pub fn key_len(&self) -> usize {
        self.u32(64) as usize
    }

    /// Length of the value in bytes.
    #[must_use]
    pub fn value_len(&self) -> usize {
        self.u32(68) as usize
    }

    /// Length of the arguments in bytes.
    #[must_use]
    pub fn args_len(&self) -> usize {
        self.u32(72) as usize
    }

    /// Length of the name of the authenticated principal in bytes; 0 without one.
    #[must_use]
    pub fn principal_len(&self) -> usize {
        self.u32(76) as usize
    }

    /// The key, as much as fits.
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

    /// The key from byte `from` on, as much as fits.
    pub fn key_from<'a>(&self, from: usize, into: &'a mut [u8]) -> &'a [u8] {
        host::input(0, from, into)
    }

    /// The value, as much as fits.
    pub fn value<'a>(&self, into: &'a mut [u8]) -> &'a [u8] {
        host::input(1, 0, into)
    }

    /// The value from byte `from` on, as much as fits.
    pub fn value_from<'a>(&self, from: usize, into: &'a mut [u8]) -> &'a [u8] {
        host::input(1, from, into)
    }

    /// The arguments, as much as fits.
    pub fn args<'a>(&self, into: &'a mut [u8]) -> &'a [u8] {
        host::input(2, 0, into)
    }

    /// The arguments from byte `from` on, as much as fits.
    pub fn args_from<'a>(&self, from: usize, into: &'a mut [u8]) -> &'a [u8] {
        host::input(2, from, into)
    }

    /// The principal, as much as fits.
    pub fn principal<'a>(&self, into: &'a mut [u8]) -> &'a [u8] {
        host::input(3, 0, into)
    }

    /// SHA-256 of the code that this program replaces; `None` unless the operation is
    /// [`Op::Upgrade`].
    #[must_use]
    pub fn replaced_code(&self) -> Option<[u8; 32]> {
        let mut hash = [0; 32];
        (host::input(4, 0, &mut hash).len() == 32).then_some(hash)
    }
}

/// Emits a PUT record.
pub fn emit_put(key: &[u8], value: &[u8]) {
    host::emit_put(key, value);
}

/// Emits a DELETE record.
pub fn emit_delete(key: &[u8]) {
    host::emit_delete(key);
}

/// Emits the write itself as a record, without a copy of its bytes.
pub fn emit_input() {
    host::emit_input();
}

/// Emits a PUT record with a part of the written value, without a copy of its bytes. A part outside
/// of the value is a trap.
pub fn emit_value(key: &[u8], from: usize, len: usize) {
    host::emit_value(key, from, len);
}

/// State of mode `kv`: a map of bytes, ordered by key.
pub mod state {
    use crate::host;

    /// The value of a key, as much as fits, and its full length.
    pub fn get<'a>(key: &[u8], into: &'a mut [u8]) -> Option<(&'a [u8], usize)> {
        host::state_get(key, 0, into)
    }

    /// The value of a key from byte `from` on, as much as fits, and its full length.
    pub fn get_from<'a>(key: &[u8], from: usize, into: &'a mut [u8]) -> Option<(&'a [u8], usize)> {
        host::state_get(key, from, into)
    }

    /// A value of exactly `N` bytes; `None` if there is no value of that size.
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

    /// Sets the value of a key.
    pub fn put(key: &[u8], value: &[u8]) {
        host::state_put(key, value);
    }

    /// Removes a key.
    pub fn delete(key: &[u8]) {
        host::state_delete(key);
    }

    /// The smallest key after the given one, as much as fits, and its full length. An empty key is
    /// before all others.
    pub fn next<'a>(key: &[u8], into: &'a mut [u8]) -> Option<(&'a [u8], usize)> {
        host::state_next(key, into)
    }
}

/// The topic's own keys as its readers see them, including the records of this call.
pub mod keys {
    use crate::host;

    /// The value of a key, as much as fits, and its full length.
    pub fn get<'a>(key: &[u8], into: &'a mut [u8]) -> Option<(&'a [u8], usize)> {
        host::key_get(key, 0, into)
    }

    /// The value of a key from byte `from` on, as much as fits, and its full length.
    pub fn get_from<'a>(key: &[u8], from: usize, into: &'a mut [u8]) -> Option<(&'a [u8], usize)> {
        host::key_get(key, from, into)
    }

    /// A value of exactly `N` bytes; `None` if there is no value of that size.
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

    /// Offset of the record with the value of the key; 0 if it has none.
    #[must_use]
    pub fn offset(key: &[u8]) -> u64 {
        host::key_offset(key)
    }
}

/// Finds values in JSON; the store parses it.
pub mod json {
    use crate::host;

    /// The type of a value.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        /// There is no value.
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

    /// A value: its type, and the position of its literal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Found {
        /// The type.
        pub kind: Kind,
        /// Index of the first byte of its literal in the written value.
        pub at: usize,
        /// Length of its literal in bytes.
        pub len: usize,
    }

    impl Found {
        /// No value.
        pub const NONE: Self = Self {
            kind: Kind::Undefined,
            at: 0,
            len: 0,
        };
    }

    /// Why a search failed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// The value is not JSON; the index of the first wrong byte.
        NotJson(u32),
        /// A path is invalid, or there are more paths than `N` or 64.
        Paths,
    }

    /// Finds values in the written value by their paths (names and indexes of JSONPath, RFC 9535),
    /// one on each line. Checks the whole value.
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

/// Writes a line to the log of the operator. The line is not part of the outcome, and the program
/// cannot detect whether it was kept.
pub fn log(level: Level, text: &str) {
    host::log(level as u32, text.as_bytes());
}

/// The severity of a line of [`log`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// An error.
    Error = 1,
    /// A possible error.
    Warn = 2,
    /// Worth knowing.
    Info = 3,
    /// Helps to find a bug.
    Debug = 4,
    /// Every detail.
    Trace = 5,
}

/// Ends the call as a trap: for states that cannot occur.
pub fn trap() -> ! {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    panic!("trap")
}

/// Ends the call as a trap, after it has logged the message of the panic.
#[doc(hidden)]
pub fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    #[cfg(feature = "panic-text")]
    panics::tell(info);
    #[cfg(not(feature = "panic-text"))]
    let _ = info;
    trap()
}

/// Converts an outcome into the number that the host expects.
#[doc(hidden)]
#[must_use]
pub fn returned(outcome: Outcome) -> i32 {
    match outcome {
        Ok(()) => 0,
        Err(Reject(0)) => trap(),
        Err(Reject(code)) => i32::from(code),
    }
}

/// Exports functions as the entry points of the module: `program!(apply)`,
/// `program!(apply, init = start)`, `program!(apply, upgrade = take_over)`. Each takes
/// `&Input` and returns an [`Outcome`]. A final `state = 2` sets the version of the layout
/// of the state (default 0). A program with another version can replace this one only with
/// `upgrade`.
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
