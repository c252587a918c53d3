//! Base64 with padding, for the header of Basic authentication.

/// Encodes bytes with the standard alphabet and padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for block in bytes.chunks(3) {
        let byte = |at: usize| usize::from(block.get(at).copied().unwrap_or(0));
        let joined = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (position, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let letter = ALPHABET.get(joined >> shift & 63).copied().unwrap_or(b'=');
            text.push(char::from(if position <= block.len() {
                letter
            } else {
                b'='
            }));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn padding_follows_the_length() {
        assert_eq!(super::encode(b"user:pass"), "dXNlcjpwYXNz");
        assert_eq!(super::encode(b"a"), "YQ==");
        assert_eq!(super::encode(b"ab"), "YWI=");
    }
}
