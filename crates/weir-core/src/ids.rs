//! Names and numbers of the model. Each has its own type, so that one kind of offset cannot be
//! passed in place of another.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::limits::TOPIC_NAME_BYTES_MAX;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// 0, the number before the first.
            pub const ZERO: Self = Self(0);

            /// The number `n` after this one.
            #[must_use]
            pub const fn plus(self, n: u64) -> Self {
                Self(self.0 + n)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Position of an intention in the global order of the store: 1-based and dense. Assigned on
    /// apply, and therefore equal on every node.
    IntentionOffset
}
number! {
    /// Position of a record in its topic: 1-based, dense when assigned, never reused or renumbered.
    /// Compaction may leave gaps.
    ConsequenceOffset
}

/// Number of a topic name within one store, dense and in order of first creation. A name keeps its
/// number across destroy and create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub u32);

impl TopicId {
    /// The number as an index into a dense table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Identity of a writer: 128 bits, chosen by the client at random.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub [u8; 16]);

impl ClientId {
    /// No session: the intention is executed when it is applied, and its outcome is not stored.
    pub const NONE: Self = Self([0; 16]);

    /// Whether this is [`ClientId::NONE`].
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Why a text is not a topic name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("a topic name must not be empty")]
    Empty,
    /// Longer than [`TOPIC_NAME_BYTES_MAX`].
    #[error("a topic name has at most {TOPIC_NAME_BYTES_MAX} bytes, this name has {0}")]
    TooLong(usize),
    /// A byte outside `A-Z a-z 0-9 . _ -`.
    #[error("byte {at} of the topic name is {byte:#04x}; allowed are A-Z a-z 0-9 . _ -")]
    Byte {
        /// Index of the byte, from 0.
        at: usize,
        /// The byte.
        byte: u8,
    },
    /// A leading dot: reserved for topics of the store.
    #[error("topic names with a leading dot are reserved for the store")]
    Reserved,
}

/// Name of a topic: 1 to 255 bytes of `A-Z a-z 0-9 . _ -`. By convention, dots form a hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Box<str>);

impl TopicName {
    /// Checks a name from a client.
    pub fn new(name: &str) -> Result<Self, NameError> {
        if name.starts_with('.') {
            return Err(NameError::Reserved);
        }
        Self::any(name)
    }

    /// Checks a name, including names reserved for the store.
    pub fn any(name: &str) -> Result<Self, NameError> {
        let bytes = name.as_bytes();
        if bytes.is_empty() {
            return Err(NameError::Empty);
        }
        if bytes.len() > TOPIC_NAME_BYTES_MAX {
            return Err(NameError::TooLong(bytes.len()));
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let mut bytes = bytes.iter().copied().enumerate();
        match bytes.find(|(_, byte)| !allowed(*byte)) {
            Some((at, byte)) => Err(NameError::Byte { at, byte }),
            None => Ok(Self(name.into())),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TopicName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        Self::new(name)
    }
}

impl std::borrow::Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_at_every_rule() {
        let long = "x".repeat(TOPIC_NAME_BYTES_MAX);
        assert!(TopicName::new(&long).is_ok());
        assert_eq!(
            TopicName::new(&format!("{long}x")),
            Err(NameError::TooLong(256))
        );
        assert_eq!(TopicName::new(""), Err(NameError::Empty));
        assert_eq!(
            TopicName::new("a b"),
            Err(NameError::Byte { at: 1, byte: b' ' })
        );
        assert_eq!(
            TopicName::new("é"),
            Err(NameError::Byte { at: 0, byte: 0xc3 })
        );
        assert_eq!(TopicName::new(".weir"), Err(NameError::Reserved));
        assert!(TopicName::any(".weir").is_ok());
        assert!(TopicName::new("Orders.eu-1_x").is_ok());
    }
}
