//! The seven modifier operators.

use core::fmt;

/// How a modifier changes its variable. The discriminant is the byte on the wire.
///
/// The codec reports operators and never applies them: the layer above owns the stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Operator {
    /// `:` applies to this packet only.
    Set = b':',
    /// `=` becomes part of the stored state of the context.
    Assign = b'=',
    /// `+` adds to the stored list, set, dict or number.
    Augment = b'+',
    /// `-` removes from the stored value, or subtracts.
    Diminish = b'-',
    /// `@` changes one element inside the stored value; the value is an update expression.
    Update = b'@',
    /// `?` requests the stored value.
    Query = b'?',
    /// `!` is reserved; the codec forwards it unchanged.
    Reserved = b'!',
}

impl Operator {
    /// All operators, in the order of the format page.
    pub const ALL: [Operator; 7] = [
        Operator::Set,
        Operator::Assign,
        Operator::Augment,
        Operator::Diminish,
        Operator::Update,
        Operator::Query,
        Operator::Reserved,
    ];

    /// The operator with the byte `byte`, or `None` if no operator has it.
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<Operator> {
        Some(match byte {
            b':' => Operator::Set,
            b'=' => Operator::Assign,
            b'+' => Operator::Augment,
            b'-' => Operator::Diminish,
            b'@' => Operator::Update,
            b'?' => Operator::Query,
            b'!' => Operator::Reserved,
            _ => return None,
        })
    }

    /// The byte on the wire.
    #[inline]
    pub const fn byte(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        f.write_char(char::from(self.byte()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_operators_map_both_ways() {
        for byte in 0..=u8::MAX {
            let operator = Operator::from_byte(byte);
            assert_eq!(operator.is_some(), crate::class::is_operator(byte));
            if let Some(operator) = operator {
                assert_eq!(operator.byte(), byte);
                assert!(Operator::ALL.contains(&operator));
            }
        }
    }
}
