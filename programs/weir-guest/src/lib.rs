//! What a program of a topic needs: its input, its records, its state.
//!
//! A program is a function that looks at one write and says yes or no:
//!
//! ```ignore
//! #![no_std]
//! #![no_main]
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
//! that is rejected, or that traps, never were. Only this file talks to the
//! host; it is the only unsafe code of a program.
#![no_std]

mod bytes;
mod host;

pub use bytes::{be_i32, be_i64, be_u16, be_u32, be_u64};

/// A program's verdict: `Ok`, or a code from 1 to 65,535.
pub type Outcome = Result<(), Reject>;

/// A program says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject(pub u16);

/// Says no, with a text for whoever asked (at most 256 bytes).
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

    /// The principal, as far as it fits.
    pub fn principal<'a>(&self, into: &'a mut [u8]) -> &'a [u8] {
        host::input(3, 0, into)
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
        host::state_get(key, into)
    }

    /// A value of exactly `N` bytes; `None` when there is none of that size.
    #[must_use]
    pub fn get_array<const N: usize>(key: &[u8]) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let (_, len) = host::state_get(key, &mut bytes)?;
        (len == N).then_some(bytes)
    }

    /// Sets a key.
    pub fn put(key: &[u8], value: &[u8]) {
        host::state_put(key, value);
    }

    /// Removes a key.
    pub fn delete(key: &[u8]) {
        host::state_delete(key);
    }

    /// The smallest key behind the given one, as far as it fits.
    pub fn next<'a>(key: &[u8], into: &'a mut [u8]) -> Option<(&'a [u8], usize)> {
        host::state_next(key, into)
    }
}

/// The topic's own keys, as its readers see them, this call's records included.
pub mod keys {
    use crate::host;

    /// The value of a key, as far as it fits; its full length.
    pub fn get<'a>(key: &[u8], into: &'a mut [u8]) -> Option<(&'a [u8], usize)> {
        host::key_get(key, into)
    }

    /// Offset of the record with the key's value; 0 without one.
    #[must_use]
    pub fn offset(key: &[u8]) -> u64 {
        host::key_offset(key)
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

/// Ends the call as a trap: for what can never be.
pub fn trap() -> ! {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    panic!("trap")
}

/// The number that the host expects of an outcome.
#[doc(hidden)]
#[must_use]
pub fn returned(outcome: Outcome) -> i32 {
    match outcome {
        Ok(()) => 0,
        Err(Reject(code)) => i32::from(code),
    }
}

/// Makes functions the entry points of the module: `program!(apply)`,
/// `program!(apply, init = start)`, `program!(apply, upgrade = take_over)`.
/// Each takes `&Input` and returns an [`Outcome`].
#[macro_export]
macro_rules! program {
    ($apply:path $(, init = $init:path)? $(, upgrade = $upgrade:path)?) => {
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
        #[cfg(target_arch = "wasm32")]
        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
            $crate::trap()
        }
    };
}
