//! Query parameters. Unknown, repeated and malformed parameters are refused.

use std::fmt::Write as _;

use super::problem::Problem;

/// The parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(&'static str, Vec<u8>)>,
}

/// Decodes percent escapes and, with `form`, `+` as a space; `None` for an invalid escape.
pub(crate) fn decode(text: &str, form: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                u8::try_from(high << 4 | low).ok()?
            }
            b'+' if form => b' ',
            other => other,
        });
    }
    Some(out)
}

/// Percent-encodes bytes for a path or query.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            out.push(char::from(*byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

impl Query {
    /// Parses a query; any parameter that is not in `known` is refused.
    pub(crate) fn read(query: Option<&str>, known: &[&'static str]) -> Result<Self, Problem> {
        Self::parse(query, known, false)
    }

    /// As `read`, but ignores unknown parameters, because the protocol leaves them to other layers.
    pub(crate) fn read_known(query: Option<&str>, known: &[&'static str]) -> Result<Self, Problem> {
        Self::parse(query, known, true)
    }

    fn parse(query: Option<&str>, known: &[&'static str], lax: bool) -> Result<Self, Problem> {
        let mut pairs: Vec<(&'static str, Vec<u8>)> = Vec::new();
        for pair in query
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
        {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let wrong = || Problem::bad("a query parameter has an invalid percent escape");
            let name = decode(name, true).ok_or_else(wrong)?;
            let value = decode(value, true).ok_or_else(wrong)?;
            let Some(name) = known.iter().find(|known| known.as_bytes() == name) else {
                if lax {
                    continue;
                }
                let shown: String = String::from_utf8_lossy(&name).chars().take(40).collect();
                let list = known.join(", ");
                return Err(Problem::bad(format!(
                    "{shown:?} is not a parameter of this resource; supported: {list}"
                )));
            };
            if pairs.iter().any(|(other, _)| other == name) {
                return Err(Problem::bad(format!("the parameter {name} occurs twice")));
            }
            pairs.push((name, value));
        }
        Ok(Self { pairs })
    }

    /// The bytes of a parameter.
    pub(crate) fn bytes(&self, name: &str) -> Option<&[u8]> {
        let pair = self.pairs.iter().find(|(one, _)| *one == name)?;
        Some(&pair.1)
    }

    /// The parameter as text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        let Some(bytes) = self.bytes(name) else {
            return Ok(None);
        };
        let text = std::str::from_utf8(bytes);
        text.map(Some)
            .map_err(|_| Problem::bad(format!("{name} is not UTF-8")))
    }

    /// The parameter as a number from `low` to `high`.
    pub(crate) fn number(&self, name: &str, low: u64, high: u64) -> Result<Option<u64>, Problem> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let number = offset_of(text).filter(|number| (low..=high).contains(number));
        let wrong = || Problem::bad(format!("{name} must be a number from {low} to {high}"));
        number.map(Some).ok_or_else(wrong)
    }

    /// The parameter as a boolean; absent: false.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.text(name)? {
            None | Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(_) => Err(Problem::bad(format!("{name} must be true or false"))),
        }
    }

    /// Returns the value of `words` whose word equals the parameter.
    pub(crate) fn word<T: Copy>(
        &self,
        name: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*value));
        }
        let list: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        Err(Problem::bad(format!(
            "{name} must be one of: {}",
            list.join(", ")
        )))
    }
}

/// Parses a number written as digits, without a sign or leading zeros.
pub(crate) fn offset_of(text: &str) -> Option<u64> {
    let plain =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn malformed_parameters_are_refused() {
        let known = &["limit", "key", "atomic"];
        let query = Query::read(Some("limit=10&key=a%20b+c&atomic"), known).unwrap();
        assert_eq!(query.number("limit", 1, 10).unwrap(), Some(10));
        assert_eq!(query.bytes("key"), Some(&b"a b c"[..]));
        assert!(query.flag("atomic").unwrap());
        for wrong in ["limits=1", "limit=1&limit=2", "key=%2", "key=%+1"] {
            assert!(Query::read(Some(wrong), known).is_err(), "{wrong}");
        }
        for wrong in [
            "limit=+3",
            "limit=03",
            "limit=",
            "limit=1x",
            "limit=11",
            "limit=99999999999999999999",
        ] {
            let query = Query::read(Some(wrong), known).unwrap();
            assert!(query.number("limit", 0, 10).is_err(), "{wrong}");
        }
        assert_eq!(encode(b"a/b \xff"), "a%2Fb%20%FF");
    }
}
