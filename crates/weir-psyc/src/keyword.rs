//! Long keywords, such as `_notice_context_enter`, and their inheritance.
//!
//! A valid keyword has one or more subwords of letters and digits, each after one `_`. The packet
//! grammar also accepts other words (compact names); for those, these functions return
//! [`InvalidKeyword`].

use core::fmt;

use alloc::vec::Vec;

/// A word that is not of the form `(_[0-9A-Za-z]+)+`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidKeyword;

impl fmt::Display for InvalidKeyword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a keyword: subwords of letters and digits, each after an underscore")
    }
}

impl core::error::Error for InvalidKeyword {}

/// Whether `word` is a valid keyword.
pub fn is_keyword(word: &[u8]) -> bool {
    let Some((b'_', subwords)) = word.split_first() else {
        return false;
    };
    let mut subwords = subwords.split(|&byte| byte == b'_');
    subwords.all(|subword| !subword.is_empty() && subword.iter().all(u8::is_ascii_alphanumeric))
}

fn check(word: &[u8]) -> Result<(), InvalidKeyword> {
    if is_keyword(word) {
        Ok(())
    } else {
        Err(InvalidKeyword)
    }
}

/// Whether `word` equals `base`, or is `base` followed by further subwords.
///
/// ```
/// use weir_psyc::keyword::inherits;
///
/// assert_eq!(inherits(b"_failure_unsuccessful", b"_failure_unsuccessful_delivery"), Ok(true));
/// assert_eq!(inherits(b"_fail", b"_failure_x"), Ok(false));
/// ```
pub fn inherits(base: &[u8], word: &[u8]) -> Result<bool, InvalidKeyword> {
    check(base)?;
    check(word)?;
    Ok(continues(base, word))
}

/// [`inherits`] for words that are valid keywords.
fn continues(base: &[u8], word: &[u8]) -> bool {
    word.strip_prefix(base)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"_"))
}

/// Whether the subwords of `short` appear in `long` in this order, adjacent or not.
pub fn matches(short: &[u8], long: &[u8]) -> Result<bool, InvalidKeyword> {
    check(short)?;
    check(long)?;
    let mut have = subwords(long);
    Ok(subwords(short).all(|wanted| have.any(|subword| subword == wanted)))
}

/// The subwords of a keyword, in order.
pub fn subwords(word: &[u8]) -> impl Iterator<Item = &[u8]> {
    word.split(|&byte| byte == b'_').skip(1)
}

/// The entry of a small table with the longest key that `word` inherits from. Linear in the table.
pub fn lookup<'t, T>(table: &'t [(&str, T)], word: &[u8]) -> Option<&'t (&'t str, T)> {
    if !is_keyword(word) {
        return None;
    }
    let fitting = table
        .iter()
        .filter(|(key, _)| continues(key.as_bytes(), word));
    fitting.max_by_key(|(key, _)| key.len())
}

/// A map from keywords to values with lookup by inheritance.
///
/// A lookup needs one binary search for each subword.
#[derive(Clone, Debug, Default)]
pub struct KeywordMap<T> {
    /// Sorted by key, without duplicate keys.
    entries: Vec<(Vec<u8>, T)>,
}

impl<T> KeywordMap<T> {
    /// An empty map.
    pub const fn new() -> KeywordMap<T> {
        KeywordMap {
            entries: Vec::new(),
        }
    }

    /// Sets the value of `key` and returns its previous value.
    pub fn insert(&mut self, key: &[u8], value: T) -> Result<Option<T>, InvalidKeyword> {
        check(key)?;
        match self.position(key) {
            Ok(at) => {
                let entry = self.entries.get_mut(at).map(|entry| &mut entry.1);
                Ok(entry.map(|old| core::mem::replace(old, value)))
            }
            Err(at) => {
                self.entries.insert(at, (key.to_vec(), value));
                Ok(None)
            }
        }
    }

    /// The entry with the longest key that `word` inherits from. `None` if `word` is invalid.
    pub fn get(&self, word: &[u8]) -> Option<(&[u8], &T)> {
        if !is_keyword(word) {
            return None;
        }
        let mut base = word;
        loop {
            if let Ok(at) = self.position(base) {
                return self.entries.get(at).map(|(key, value)| (&key[..], value));
            }
            base = base.get(..memchr::memrchr(b'_', base)?)?;
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn position(&self, key: &[u8]) -> Result<usize, usize> {
        self.entries
            .binary_search_by(|(have, _)| have.as_slice().cmp(key))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    #[test]
    fn lookup_returns_the_longest_base() {
        let mut map = KeywordMap::new();
        for (key, value) in [("_notice", 1), ("_notice_context", 2), ("_note", 3)] {
            assert_eq!(map.insert(key.as_bytes(), value), Ok(None));
        }
        assert_eq!(map.insert(b"_note", 4), Ok(Some(3)));
        assert_eq!(map.insert(b"note", 4), Err(InvalidKeyword));
        assert_eq!(map.len(), 3);
        for (word, expected) in [
            ("_notice_context_enter", Some(2)),
            ("_notice_other", Some(1)),
            ("_notice", Some(1)),
            ("_noticed", None),
            ("_note_x_y", Some(4)),
            ("_", None),
            ("_notice_", None),
        ] {
            assert_eq!(
                map.get(word.as_bytes()).map(|(_, &value)| value),
                expected,
                "{word}"
            );
        }
        let table = [("_notice", 1), ("_notice_context", 2), ("_note", 3)];
        assert_eq!(lookup(&table, b"_notice_context_enter").unwrap().1, 2);
        assert_eq!(lookup(&table, b"_notices"), None);
    }
}
