//! Positions in a stream.
//!
//! A position is the number of records before it; a fork continues the count of its source. The
//! token of a position has 16 digits, an underscore and 16 zeros, which are reserved for a position
//! within a record. Tokens of one stream sort like their positions.

/// Digits of each half.
const DIGITS: usize = 16;

/// Where a reader starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamPosition {
    /// At the first byte: `-1`, or no parameter.
    Start,
    /// After the last byte: `now`.
    Now,
    /// After this position.
    After(u64),
}

/// Parses a token.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let (position, within) = text.split_once('_')?;
    let is_half =
        |text: &str| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_half(position) || !is_half(within) || within.bytes().any(|byte| byte != b'0') {
        return None;
    }
    position.parse().ok()
}

/// Returns the token of a position.
pub(crate) fn token(position: u64) -> String {
    format!("{position:016}_{:016}", 0)
}

impl StreamPosition {
    /// Parses the parameter `offset`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        match text {
            "-1" => Some(Self::Start),
            "now" => Some(Self::Now),
            text => parse(text).map(Self::After),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{StreamPosition, parse, token};

    #[test]
    fn tokens_sort_and_malformed_tokens_are_refused() {
        assert_eq!(parse(&token(42)), Some(42));
        assert_eq!(
            StreamPosition::read(&token(0)),
            Some(StreamPosition::After(0))
        );
        assert_eq!(StreamPosition::read("-1"), Some(StreamPosition::Start));
        assert_eq!(StreamPosition::read("now"), Some(StreamPosition::Now));
        for wrong in [
            "",
            "0",
            "-2",
            "NOW",
            "0000000000000000",
            "0000000000000000_0000000000000001",
            "000000000000000_00000000000000000",
            "+000000000000000_0000000000000000",
            "0000000000000000_0000000000000000,",
        ] {
            assert_eq!(StreamPosition::read(wrong), None, "{wrong}");
        }
        let tokens: Vec<String> = [0, 9, 10, 99, 1 << 40].map(token).into();
        assert!(tokens.is_sorted());
    }
}
