//! The routing variables that every node knows.

/// A routing variable. Names are matched exactly; there is no inheritance while routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RoutingVariable {
    /// `_amount_fragments`: how many pieces the packet was cut into.
    AmountFragments = 1,
    /// `_context`: multicast to everybody in the context.
    Context = 2,
    /// `_counter`: number of the packet for its context and source.
    Counter = 3,
    /// `_fragment`: number of this piece.
    Fragment = 4,
    /// `_source`: who sends it.
    Source = 5,
    /// `_source_relay`: whose words it passes on.
    SourceRelay = 6,
    /// `_tag`: to be repeated as `_tag_relay` in the answer.
    Tag = 7,
    /// `_tag_relay`: the tag of what this answers.
    TagRelay = 8,
    /// `_target`: who receives it.
    Target = 9,
    /// `_target_relay`: for whom it is passed on.
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
    /// The variable called `name`. `None` for unknown ones, which are legal and passed on.
    pub fn from_name(name: &[u8]) -> Option<RoutingVariable> {
        NAMES
            .iter()
            .find(|(known, _)| known.as_bytes() == name)
            .map(|&(_, variable)| variable)
    }

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        NAMES
            .iter()
            .find(|(_, variable)| *variable == self)
            .map_or("", |(name, _)| name)
    }

    /// Its number, from 1; 0 stands for an unknown name.
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
