//! Packet ids, each of which identifies one packet of a context.

use core::fmt;

use crate::container::{ContainerError, Element};
use crate::list::{List, ListEvent};

/// The five routing variables that identify a packet. An absent variable is empty. On the wire, an
/// id is a list of exactly five elements in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PacketId<'a> {
    /// `_context`
    pub context: &'a [u8],
    /// `_source`
    pub source: &'a [u8],
    /// `_target`
    pub target: &'a [u8],
    /// `_counter`
    pub counter: &'a [u8],
    /// `_fragment`
    pub fragment: &'a [u8],
}

/// Why a value is not a packet id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacketIdError {
    /// The value is not a list.
    List(ContainerError),
    /// The list does not have exactly five elements.
    Count,
    /// The list or one of its elements has a type.
    Typed,
}

impl fmt::Display for PacketIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PacketIdError::List(error) => write!(f, "malformed packet id: {error}"),
            PacketIdError::Count => f.write_str("a packet id has exactly five elements"),
            PacketIdError::Typed => f.write_str("a packet id has no types"),
        }
    }
}

impl core::error::Error for PacketIdError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            PacketIdError::List(error) => Some(error),
            _ => None,
        }
    }
}

impl<'a> PacketId<'a> {
    /// Parses a packet id.
    ///
    /// ```
    /// use weir_psyc::PacketId;
    ///
    /// let id = PacketId::parse(b"|| x|3 a|b| 7|")?;
    /// assert_eq!((id.context, id.source, id.target), (&b""[..], &b"x"[..], &b"a|b"[..]));
    /// # Ok::<(), weir_psyc::PacketIdError>(())
    /// ```
    pub fn parse(bytes: &'a [u8]) -> Result<PacketId<'a>, PacketIdError> {
        let mut parts = [&b""[..]; 5];
        let mut count = 0;
        for event in List::new(bytes) {
            match event.map_err(PacketIdError::List)? {
                ListEvent::Elem(Element {
                    ty: None, value, ..
                }) => {
                    *parts.get_mut(count).ok_or(PacketIdError::Count)? = value;
                    count += 1;
                }
                _ => return Err(PacketIdError::Typed),
            }
        }
        if count != parts.len() {
            return Err(PacketIdError::Count);
        }
        let [context, source, target, counter, fragment] = parts;
        Ok(PacketId {
            context,
            source,
            target,
            counter,
            fragment,
        })
    }
}
