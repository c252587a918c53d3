//! Tokens, with which clients authenticate.
//!
//! A token is `weir_` ID `_` SECRET. The id (8 hexadecimal digits) identifies the entry. The secret
//! (64 digits, 256 random bits from the system) authenticates the client. The file stores the
//! SHA-256 of the whole text. A slow hash would protect secrets that can be guessed, at a cost for
//! each request. 256 random bits cannot be guessed.
//!
//! Invariants:
//! - No token is in a log, an error or debug output ([`Token`] has no
//!   `Display`, and its `Debug` prints nothing).
//! - The time of a comparison does not depend on how many bytes of a secret are correct.

use std::fmt;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Maximum length of a token in bytes; longer ones are refused.
pub const TOKEN_BYTES_MAX: usize = 4_096;

const PREFIX: &str = "weir_";
const ID_BYTES: usize = 4;
const SECRET_BYTES: usize = 32;

/// A token in plain text. It exists only at its creation, to be printed once.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Creates a token from the randomness of the system.
    ///
    /// # Errors
    /// If the system provides no randomness.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; ID_BYTES + SECRET_BYTES];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
        }
        let (id, secret) = bytes.split_at(ID_BYTES);
        Ok(Self(format!(
            "{PREFIX}{}_{}",
            HEXLOWER.encode(id),
            HEXLOWER.encode(secret)
        )))
    }

    /// The text, for the user who requested the token.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The id, which is not secret.
    #[must_use]
    pub fn id(&self) -> &str {
        id_of(&self.0).unwrap_or_default()
    }

    /// The hash, which may be stored.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// SHA-256 of a token. The time of a comparison does not depend on the bytes.
#[derive(Clone, Copy)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    pub(crate) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Parses `sha256:` and 64 hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        let hash = HEXLOWER.decode(digits.as_bytes()).ok()?;
        hash.try_into().ok().map(Self)
    }

    pub(crate) fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(..)")
    }
}

/// Returns the id in the text of a token; `None` if the text is not a token.
pub(crate) fn id_of(text: &str) -> Option<&str> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let is_token = is_id(id) && secret.len() == SECRET_BYTES * 2 && secret.bytes().all(is_digit);
    is_token.then_some(id)
}

/// Whether the text is the id of a token.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == ID_BYTES * 2 && text.bytes().all(is_digit)
}

fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{Token, TokenHash, id_of};

    #[test]
    fn a_token_is_found_by_its_id_and_proved_by_its_hash() {
        let (one, two) = (Token::random().unwrap(), Token::random().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.expose().len(), 78);
        assert_eq!(id_of(one.expose()), Some(one.id()));
        let stored = TokenHash::parse(&one.hash().to_string()).unwrap();
        assert!(stored.matches(&TokenHash::of(one.expose())));
        assert!(!stored.matches(&TokenHash::of(two.expose())));
        // Any single digit changed.
        for at in 0..78 {
            let mut bytes = one.expose().as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            let wrong = String::from_utf8(bytes).unwrap();
            assert!(!stored.matches(&TokenHash::of(&wrong)), "digit {at}");
        }
    }

    #[test]
    fn the_hash_is_plain_sha_256_of_the_text() {
        // printf %s abc | sha256sum
        let known = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenHash::of("abc").to_string(), known);
    }

    #[test]
    fn nothing_prints_a_secret() {
        let token = Token::random().unwrap();
        let secret = token.expose().rsplit('_').next().unwrap();
        let printed = format!("{token:?} {token:#?} {:?}", token.hash());
        assert!(!printed.contains(secret));
        assert!(!printed.contains(&secret[..8]));
    }

    #[test]
    fn malformed_tokens_have_no_id() {
        let token = Token::random().unwrap();
        let text = token.expose();
        assert_eq!(id_of(&text[1..]), None);
        assert_eq!(id_of(&text[..77]), None);
        assert_eq!(id_of(&format!("{text}0")), None);
        assert_eq!(id_of(&text.to_uppercase()), None);
        assert_eq!(id_of(""), None);
        assert!(TokenHash::parse("sha256:00").is_none());
        assert!(TokenHash::parse(&"0".repeat(64)).is_none());
        assert!(TokenHash::parse(&format!("sha256:{}", "é".repeat(32))).is_none());
    }
}
