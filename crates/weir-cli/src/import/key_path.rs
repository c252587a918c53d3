//! Paths into JSON: `$.a.b`, `$['a'][0]`; the dollar is optional.

use std::fmt;
use std::str::FromStr;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyPath {
    text: String,
    steps: Vec<Step>,
}

/// One step down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// To the member of an object.
    Name(String),
    /// To the element of an array, from 0.
    Index(usize),
}

impl FromStr for KeyPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is not a path such as $.a.b or $['a'][0]");
        let mut steps = Vec::new();
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        if !text.starts_with('$') && !text.starts_with('[') {
            let (name, after) = name(rest);
            steps.push(Step::Name(name.to_owned()));
            rest = after;
        }
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let (name, after) = name(after);
                steps.push(Step::Name(name.to_owned()));
                rest = after;
            } else if let Some(after) = rest.strip_prefix("['") {
                let (name, after) = after.split_once("']").ok_or_else(wrong)?;
                steps.push(Step::Name(name.to_owned()));
                rest = after;
            } else {
                let after = rest.strip_prefix('[').ok_or_else(wrong)?;
                let (index, after) = after.split_once(']').ok_or_else(wrong)?;
                steps.push(Step::Index(index.parse().map_err(|_| wrong())?));
                rest = after;
            }
        }
        if steps.contains(&Step::Name(String::new())) && !text.contains("['']") {
            return Err(wrong());
        }
        Ok(Self {
            text: text.to_owned(),
            steps,
        })
    }
}

fn name(text: &str) -> (&str, &str) {
    text.split_at(text.find(['.', '[']).unwrap_or(text.len()))
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl KeyPath {
    /// The steps.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The key bytes of an item: the content of a string, or the text of a number or boolean.
    pub(super) fn key(&self, item: &RawValue) -> Result<Vec<u8>, String> {
        let mut at = item;
        for step in &self.steps {
            let below = step.find(at).map_err(|error| error.to_string())?;
            at = below.ok_or_else(|| format!("the item has no value at {}", self.text))?;
        }
        let text = at.get();
        match text.bytes().next() {
            Some(b'"') => {
                let key: String = serde_json::from_str(text).map_err(|error| error.to_string())?;
                if key.is_empty() {
                    return Err(format!("the key at {} is empty", self.text));
                }
                Ok(key.into_bytes())
            }
            Some(b'{' | b'[' | b'n') | None => Err(format!(
                "the value at {} is not a string, number or boolean",
                self.text
            )),
            Some(_) => Ok(text.as_bytes().to_vec()),
        }
    }
}

impl Step {
    fn find<'a>(&self, json: &'a RawValue) -> serde_json::Result<Option<&'a RawValue>> {
        let wanted = match self {
            Self::Name(_) => b'{',
            Self::Index(_) => b'[',
        };
        if json.get().as_bytes().first() != Some(&wanted) {
            return Ok(None);
        }
        let mut from = serde_json::Deserializer::from_str(json.get());
        FindStep(self).deserialize(&mut from)
    }
}

/// Finds the value after a step. If several members have the name, the first one counts.
struct FindStep<'s>(&'s Step);

impl<'de> DeserializeSeed<'de> for FindStep<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FindStep<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_wanted) = map.next_key_seed(NameEquals(self.0))? {
            if is_wanted && found.is_none() {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        let mut at = 0;
        loop {
            if *self.0 == Step::Index(at) {
                found = list.next_element()?;
            } else if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            at += 1;
        }
    }
}

/// Compares a name without copying it.
struct NameEquals<'s>(&'s Step);

impl<'de> DeserializeSeed<'de> for NameEquals<'_> {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for NameEquals<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<bool, E> {
        Ok(matches!(self.0, Step::Name(wanted) if wanted == name))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;

    fn key(path: &str, json: &str) -> Result<String, String> {
        let raw: &RawValue = serde_json::from_str(json).unwrap();
        let key = path.parse::<KeyPath>()?.key(raw)?;
        Ok(String::from_utf8(key).unwrap())
    }

    #[test]
    fn keys_are_found_by_path() {
        let json = r#"{"a":{"b":[10,{"c":"x\u0041\n"}],"n":-1.50e3},"a b":true,"":7,"a":{"b":[1,{"c":"late"}],"t":"é"}}"#;
        assert_eq!(key("$.a.b[1].c", json).as_deref(), Ok("xA\n"));
        assert!(key("a.t", json).is_err(), "only the first member counts");
        assert_eq!(key("a.n", json).as_deref(), Ok("-1.50e3"));
        assert_eq!(key("t", r#"{"t":"é"}"#).as_deref(), Ok("é"));
        assert_eq!(key("$['a b']", json).as_deref(), Ok("true"));
        assert_eq!(key("$['']", json).as_deref(), Ok("7"));
        assert_eq!(key("$.n", r#"{"n":-1.50e3}"#).as_deref(), Ok("-1.50e3"));
        assert_eq!(key("$", "12").as_deref(), Ok("12"));
        assert_eq!(key("$[1]", r#"["p","q\"r"]"#).as_deref(), Ok("q\"r"));
    }

    #[test]
    fn an_item_without_a_key_and_an_invalid_path_are_errors() {
        for (path, json) in [
            ("$.a", "{}"),
            ("$.a", r#"{"a":null}"#),
            ("$.a", r#"{"a":{}}"#),
            ("$.a", r#"{"a":""}"#),
            ("$.a.b", r#"{"a":1}"#),
            ("$[2]", "[1,2]"),
            ("$.a", "[1]"),
        ] {
            assert!(key(path, json).is_err(), "{path} {json}");
        }
        for path in ["$.", "$..a", "$[x]", "$['a", "$a", ""] {
            let parsed = path.parse::<KeyPath>();
            assert!(parsed.is_err(), "{path}: {parsed:?}");
        }
    }
}
