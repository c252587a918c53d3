//! Base64 (RFC 4648), with padding and both alphabets on the way in.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the text of bytes.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group
            .iter()
            .fold(0_u32, |word, byte| word << 8 | u32::from(*byte))
            << (8 * (3 - group.len()));
        for place in 0..4 {
            let six = (word >> (18 - 6 * place)) & 63;
            let letter = ALPHABET.get(six as usize).copied().unwrap_or(b'=');
            out.push(if place <= group.len() { letter } else { b'=' });
        }
    }
}

/// Reads a text, with or without padding; `None` for anything that is not what
/// [`encode`] writes in one of the two alphabets.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let padding = text.len() - text.trim_end_matches('=').len();
    let text = text.trim_end_matches('=').as_bytes();
    if padding > 2
        || (padding > 0 && !(text.len() + padding).is_multiple_of(4))
        || text.len() % 4 == 1
    {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut word = 0_u32;
        for letter in group {
            let six = match letter {
                b'A'..=b'Z' => letter - b'A',
                b'a'..=b'z' => letter - b'a' + 26,
                b'0'..=b'9' => letter - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                _ => return None,
            };
            word = word << 6 | u32::from(six);
        }
        word <<= 6 * (4 - group.len());
        let [_, bytes @ ..] = word.to_be_bytes();
        let (kept, rest) = bytes.split_at(group.len() - 1);
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        out.extend_from_slice(kept);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = Vec::new();
            encode(bytes.as_bytes(), &mut out);
            assert_eq!(out, text.as_bytes());
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
            assert_eq!(
                decode(text.trim_end_matches('=')).as_deref(),
                Some(bytes.as_bytes())
            );
        }
        assert_eq!(decode("-_-_"), decode("+/+/"));
        for wrong in ["Z", "Zg=", "Zh==", "Zg===", "Z g=", "Zm9=v", "é==="] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
