//! The routing variables that every node knows.

/// A routing variable. Names are matched exactly: routing ignores inheritance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RoutingVariable {
    /// `_amount_fragments`: the number of fragments of the packet.
    AmountFragments = 1,
    /// `_context`: multicast to all members of the context.
    Context = 2,
    /// `_counter`: number of the packet for its context and source.
    Counter = 3,
    /// `_fragment`: the number of this fragment.
    Fragment = 4,
    /// `_source`: the sender.
    Source = 5,
    /// `_source_relay`: the original sender of a forwarded packet.
    SourceRelay = 6,
    /// `_tag`: the reply repeats it as `_tag_relay`.
    Tag = 7,
    /// `_tag_relay`: the tag of the packet to which this packet replies.
    TagRelay = 8,
    /// `_target`: the receiver.
    Target = 9,
    /// `_target_relay`: the original receiver of a forwarded packet.
    TargetRelay = 10,
}

const NAMES: [(&str, RoutingVariable); 10] = [
    ("_amount_fragments", RoutingVariable::AmountFragments),
    ("_context", RoutingVariable::Context),
    ("_counter", RoutingVariable::Counter),
    ("_fragment", RoutingVariable::Fragment),
    ("_source", RoutingVariable::Source),
    ("_source_relay", RoutingVariable::SourceRelay),
    ("_tag", RoutingVariable::Tag),
    ("_tag_relay", RoutingVariable::TagRelay),
    ("_target", RoutingVariable::Target),
    ("_target_relay", RoutingVariable::TargetRelay),
];

impl RoutingVariable {
    /// The variable with the name `name`. `None` for an unknown name, which is legal and forwarded.
    pub fn from_name(name: &[u8]) -> Option<RoutingVariable> {
        NAMES
            .iter()
            .find(|(known, _)| known.as_bytes() == name)
            .map(|&(_, variable)| variable)
    }

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        NAMES
            .iter()
            .find(|(_, variable)| *variable == self)
            .map_or("", |(name, _)| name)
    }

    /// The number of the variable, from 1. An unknown name has the number 0.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_exactly() {
        for (at, (name, variable)) in NAMES.iter().enumerate() {
            assert_eq!(RoutingVariable::from_name(name.as_bytes()), Some(*variable));
            assert_eq!(variable.name(), *name);
            assert_eq!(usize::from(variable.number()), at + 1);
        }
        for unknown in ["_source_", "_source_x", "_sourc", "source", "", "_targets"] {
            assert_eq!(RoutingVariable::from_name(unknown.as_bytes()), None);
        }
    }
}
