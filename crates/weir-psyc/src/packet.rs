//! The description of a packet to be rendered, in borrowed slices. Only the renderer checks it.

use crate::event::Variable;
use crate::operator::Operator;

/// Whether a length is written in front of a value, a content, an element or a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Length {
    /// If the syntax needs a length, or if the value is longer than the renderer's threshold.
    #[default]
    Auto,
    /// Always, except for an empty item, which never has a length.
    Force,
    /// Never. Rendering fails if the syntax needs a length.
    Forbid,
}

impl Length {
    /// The setting that renders an item in the form in which it was parsed.
    #[inline]
    pub const fn as_parsed(sized: bool) -> Length {
        if sized { Length::Force } else { Length::Forbid }
    }
}

/// A modifier to be rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modifier<'a> {
    /// The operator, which specifies how the variable changes.
    pub operator: Operator,
    /// The name: one or more keyword bytes.
    pub name: &'a [u8],
    /// The value: any bytes in the entity header, no LF in the routing header.
    pub value: &'a [u8],
    /// Whether to write the length. No effect in the routing header, which has no lengths.
    pub length: Length,
}

impl<'a> Modifier<'a> {
    /// A modifier whose renderer decides whether to write the length.
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

/// A line before the entity header that applies to the whole stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateOperation {
    /// `=`: drop the stored state; the modifiers that follow are the complete state.
    Reset,
    /// `?`: requests a reset from the peer.
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

/// The bytes between the routing header and the end mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A content in parts. If all parts are absent, the packet has no content.
    Parts(Parts<'a>),
    /// A content that is already rendered and is written unchanged. Empty, or ends in LF.
    Raw(&'a [u8]),
}

/// The parts of a content; each may be absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts<'a> {
    /// State operation.
    pub state: Option<StateOperation>,
    /// Entity modifiers, in order.
    pub entity: &'a [Modifier<'a>],
    /// Method; empty if there is none.
    pub method: &'a [u8],
    /// Data; empty if there is none. Data needs a method.
    pub data: &'a [u8],
}

/// A packet to be rendered. [`PacketView`](crate::PacketView) is a packet found in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Routing modifiers, in order.
    pub routing: &'a [Modifier<'a>],
    /// Content.
    pub content: Content<'a>,
    /// Whether to write the length of the content.
    pub length: Length,
}

/// The source of a packet to be rendered, for modifiers in any form.
///
/// [`Packet`] has its modifiers in slices. Other types can create their modifiers during rendering:
/// a renderer walks each iterator twice and stores nothing, so the modifiers need no memory. An
/// iterator must yield equal modifiers each time. Otherwise the output is not a packet.
pub trait PacketSource {
    /// Routing modifiers, in order.
    fn routing(&self) -> impl Iterator<Item = Modifier<'_>>;
    /// A content that is already rendered. If present, state, entity, method and data are unused.
    fn raw(&self) -> Option<&[u8]>;
    /// State operation.
    fn state(&self) -> Option<StateOperation>;
    /// Entity modifiers, in order.
    fn entity(&self) -> impl Iterator<Item = Modifier<'_>>;
    /// Method; empty if there is none.
    fn method(&self) -> &[u8];
    /// Data; empty if there is none.
    fn data(&self) -> &[u8];
    /// Whether to write the length of the content.
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

    /// A packet with a content that is written unchanged.
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
