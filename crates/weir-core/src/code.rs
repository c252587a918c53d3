//! Types for the code of programs: its identity, its state mode, and its kinds of traps.

use std::fmt;

/// SHA-256 of a module's bytes: its identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeHash(pub [u8; 32]);

impl fmt::Display for CodeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The state that a program keeps between two calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum StateMode {
    /// No state.
    None = 1,
    /// A map of keys and values, ordered by the bytes of the keys.
    #[default]
    Kv = 2,
    /// Its linear memory and its mutable globals.
    Memory = 3,
}

impl StateMode {
    /// The mode with this number; `None` if there is none.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::None,
            2 => Self::Kv,
            3 => Self::Memory,
            _ => return None,
        })
    }

    /// Lower-case name, as written in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Kv => "kv",
            Self::Memory => "memory",
        }
    }
}

macro_rules! trap_kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Why a program trapped. The numbers are stored in snapshots and never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum TrapKind { $($(#[$doc])* $name = $number,)* }

        impl TrapKind {
            /// The kind with this number; `None` if there is none.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }

            /// Its description, equal on every engine.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

trap_kinds! {
    /// An `unreachable` instruction: a panic of the guest.
    Unreachable = 1, "unreachable";
    /// A load or store outside of the memory.
    Memory = 2, "memory out of bounds";
    /// A table index outside of the table.
    Table = 3, "table out of bounds";
    /// A call through an empty table entry.
    NullCall = 4, "call of a null reference";
    /// A call through a table entry of another type.
    Signature = 5, "call with a wrong signature";
    /// An integer overflow.
    Overflow = 6, "integer overflow";
    /// A division by zero.
    Division = 7, "division by zero";
    /// A float that fits in no integer.
    Conversion = 8, "bad conversion to integer";
    /// Calls nested too deeply.
    Stack = 9, "stack overflow";
    /// A pointer or length that a host function rejected.
    Pointer = 10, "bad pointer or length";
    /// An argument that a host function does not support.
    Argument = 11, "bad argument";
    /// A return value that is not a valid decision.
    Return = 12, "bad return value";
    /// A call of a host function that belongs to another state mode.
    Mode = 13, "function of another state mode";
    /// Anything else.
    Other = 14, "trap";
}
