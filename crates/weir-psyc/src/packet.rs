//! Description of a packet to be rendered: borrowed slices, nothing owned, nothing checked yet.

use crate::event::Variable;
use crate::operator::Operator;

/// Whether a length is written in front of a value, a content, an element or a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Length {
    /// When the syntax needs it or the renderer's threshold asks for it.
    #[default]
    Auto,
    /// Always, except for something empty, which never has a length.
    Force,
    /// Never; an error where the syntax needs it.
    Forbid,
}

impl Length {
    /// The setting that writes an item the way it was parsed.
    #[inline]
    pub const fn as_parsed(sized: bool) -> Length {
        if sized { Length::Force } else { Length::Forbid }
    }
}

/// A modifier to be rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modifier<'a> {
    /// What happens to the variable.
    pub operator: Operator,
    /// Its name: one or more keyword bytes.
    pub name: &'a [u8],
    /// Its value: any bytes in the entity header, no LF in the routing header.
    pub value: &'a [u8],
    /// Whether to write its length; has no effect in the routing header, where there is none.
    pub length: Length,
}

impl<'a> Modifier<'a> {
    /// A modifier with its length left to the renderer.
    #[inline]
    pub const fn new(operator: Operator, name: &'a [u8], value: &'a [u8]) -> Modifier<'a> {
        Modifier {
            operator,
            name,
            value,
            length: Length::Auto,
        }
    }

    /// `:name` TAB `value`.
    #[inline]
    pub const fn set(name: &'a [u8], value: &'a [u8]) -> Modifier<'a> {
        Modifier::new(Operator::Set, name, value)
    }

    /// `=name` TAB `value`.
    #[inline]
    pub const fn assign(name: &'a [u8], value: &'a [u8]) -> Modifier<'a> {
        Modifier::new(Operator::Assign, name, value)
    }
}

impl<'a> From<Variable<'a>> for Modifier<'a> {
    /// The modifier that renders to the bytes the variable was parsed from.
    fn from(variable: Variable<'a>) -> Modifier<'a> {
        let Variable {
            operator,
            name,
            value,
            sized,
        } = variable;
        Modifier {
            operator,
            name,
            value,
            length: Length::as_parsed(sized),
        }
    }
}

/// The line before the entity header that acts on the whole stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateOperation {
    /// `=`: forget what is stored; what follows is the complete state.
    Reset,
    /// `?`: asks the peer for a reset.
    Resync,
}

impl StateOperation {
    /// The byte on the wire.
    #[inline]
    pub const fn byte(self) -> u8 {
        match self {
            StateOperation::Reset => b'=',
            StateOperation::Resync => b'?',
        }
    }
}

/// What stands between the routing header and the end mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// Built from its parts. With no part at all the packet has no content.
    Parts(Parts<'a>),
    /// A content rendered elsewhere, passed on as it is. Empty, or ending in LF.
    Raw(&'a [u8]),
}

/// The parts of a content; everything may be absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts<'a> {
    /// State operation.
    pub state: Option<StateOperation>,
    /// Entity modifiers, in order.
    pub entity: &'a [Modifier<'a>],
    /// Method; empty means none.
    pub method: &'a [u8],
    /// Data; empty means none. Needs a method.
    pub data: &'a [u8],
}

/// A packet to be rendered. For the packet found in a buffer see
/// [`PacketView`](crate::PacketView).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Routing modifiers, in order.
    pub routing: &'a [Modifier<'a>],
    /// Content.
    pub content: Content<'a>,
    /// Whether to write the content's length.
    pub length: Length,
}

/// What a packet to be rendered consists of, wherever its modifiers are kept.
///
/// [`Packet`] keeps them in slices. Who has them in a form of their own makes them on the way: a
/// renderer walks the iterators twice and keeps nothing, so that no memory is needed for them. They
/// have to give the same modifiers each time; else what is written is no packet.
pub trait PacketSource {
    /// Routing modifiers, in order.
    fn routing(&self) -> impl Iterator<Item = Modifier<'_>>;
    /// A content rendered elsewhere; then state, entity, method and data are not asked for.
    fn raw(&self) -> Option<&[u8]>;
    /// State operation.
    fn state(&self) -> Option<StateOperation>;
    /// Entity modifiers, in order.
    fn entity(&self) -> impl Iterator<Item = Modifier<'_>>;
    /// Method; empty means none.
    fn method(&self) -> &[u8];
    /// Data; empty means none.
    fn data(&self) -> &[u8];
    /// Whether to write the content's length.
    fn length(&self) -> Length;
}

impl Packet<'_> {
    const fn parts(&self) -> Option<&Parts<'_>> {
        match &self.content {
            Content::Parts(parts) => Some(parts),
            Content::Raw(_) => None,
        }
    }
}

impl PacketSource for Packet<'_> {
    #[inline]
    fn routing(&self) -> impl Iterator<Item = Modifier<'_>> {
        self.routing.iter().copied()
    }

    #[inline]
    fn raw(&self) -> Option<&[u8]> {
        match self.content {
            Content::Raw(raw) => Some(raw),
            Content::Parts(_) => None,
        }
    }

    #[inline]
    fn state(&self) -> Option<StateOperation> {
        self.parts()?.state
    }

    #[inline]
    fn entity(&self) -> impl Iterator<Item = Modifier<'_>> {
        let entity = self.parts().map_or(&[][..], |parts| parts.entity);
        entity.iter().copied()
    }

    #[inline]
    fn method(&self) -> &[u8] {
        self.parts().map_or(&[], |parts| parts.method)
    }

    #[inline]
    fn data(&self) -> &[u8] {
        self.parts().map_or(&[], |parts| parts.data)
    }

    #[inline]
    fn length(&self) -> Length {
        self.length
    }
}

impl<'a> Packet<'a> {
    /// The empty packet, which is also the greeting on a new circuit.
    pub const EMPTY: Packet<'static> = Packet::new(&[], &[], b"", b"");

    /// A packet with routing header, entity header, method and data.
    #[inline]
    pub const fn new(
        routing: &'a [Modifier<'a>],
        entity: &'a [Modifier<'a>],
        method: &'a [u8],
        data: &'a [u8],
    ) -> Packet<'a> {
        let parts = Parts {
            state: None,
            entity,
            method,
            data,
        };
        Packet {
            routing,
            content: Content::Parts(parts),
            length: Length::Auto,
        }
    }

    /// A packet around a content that is passed on as it is.
    #[inline]
    pub const fn raw(routing: &'a [Modifier<'a>], content: &'a [u8]) -> Packet<'a> {
        Packet {
            routing,
            content: Content::Raw(content),
            length: Length::Auto,
        }
    }

    /// Puts a state operation before the entity header of the packet. Has no effect on a raw
    /// content.
    #[inline]
    #[must_use]
    pub const fn with_state(mut self, state: StateOperation) -> Packet<'a> {
        if let Content::Parts(parts) = &mut self.content {
            parts.state = Some(state);
        }
        self
    }

    /// Forces or forbids the content length of the packet.
    #[inline]
    #[must_use]
    pub const fn with_length(mut self, length: Length) -> Packet<'a> {
        self.length = length;
        self
    }
}
