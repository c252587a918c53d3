//! Base64 (RFC 4648). Output has padding; input may be in both alphabets.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

/// Appends the text of `bytes`, in the standard alphabet with padding.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
}

/// Returns the bytes of `text`: in the standard or the URL alphabet, with all of its padding or
/// none. `None` for any other text.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.replace('-', "+").replace('_', "/");
    let engine = if text.ends_with('=') {
        STANDARD
    } else {
        STANDARD_NO_PAD
    };
    engine.decode(text).ok()
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
