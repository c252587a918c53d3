//! Members and elements of JSON, up to a limit.
//!
//! Decoded data can be many times as large as its text. So the limit is checked while parsing, not
//! afterwards.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Maximum number of members of an object.
pub(crate) const MEMBERS_MAX: usize = 1024;

/// The first `MAX` elements of an array.
#[derive(Debug)]
pub(crate) struct Bounded<T, const MAX: usize> {
    pub(crate) items: Vec<T>,
    /// Whether there are more elements.
    pub(crate) more: bool,
}

impl<T, const MAX: usize> Default for Bounded<T, MAX> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            more: false,
        }
    }
}

struct Elements<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Elements<T, MAX> {
    type Value = Bounded<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Self::Value, A::Error> {
        let mut bounded = Bounded::default();
        while bounded.items.len() < MAX {
            match source.next_element()? {
                Some(item) => bounded.items.push(item),
                None => return Ok(bounded),
            }
        }
        while source.next_element::<IgnoredAny>()?.is_some() {
            bounded.more = true;
        }
        Ok(bounded)
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Elements(PhantomData))
    }
}

/// An object with at most [`MEMBERS_MAX`] members.
#[derive(Debug)]
pub(crate) struct Members<'a, V>(pub(crate) BTreeMap<Cow<'a, str>, V>);

struct Fields<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Fields<V> {
    type Value = Members<'de, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Self::Value, A::Error> {
        let mut members = BTreeMap::new();
        while let Some((name, value)) = source.next_entry()? {
            if members.len() == MEMBERS_MAX {
                return Err(A::Error::custom("an object has too many members"));
            }
            members.insert(name, value);
        }
        Ok(Members(members))
    }
}

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Members<'a, V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Fields(PhantomData))
    }
}

/// The value of a condition.
#[derive(Debug)]
pub(crate) enum ConditionValue<'a> {
    Flag(bool),
    Number(u64),
    Text(Cow<'a, str>),
}

struct ConditionValueVisitor;

impl<'de> Visitor<'de> for ConditionValueVisitor {
    type Value = ConditionValue<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a text or true")
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(ConditionValue::Flag(flag))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(ConditionValue::Number(number))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(ConditionValue::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(ConditionValue::Text(Cow::Owned(text.to_owned())))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ConditionValue<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ConditionValueVisitor)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    #[test]
    fn elements_above_the_limit_are_dropped() {
        let bounded: Bounded<u8, 3> = serde_json::from_str("[1,2,3]").unwrap();
        assert_eq!((bounded.items.len(), bounded.more), (3, false));
        let bounded: Bounded<u8, 3> = serde_json::from_str("[1,2,3,{\"a\":[]},5]").unwrap();
        assert_eq!((bounded.items.len(), bounded.more), (3, true));
        assert!(serde_json::from_str::<Bounded<u8, 3>>("[1,2,3,4").is_err());
        let object = |count: usize| {
            let members: Vec<String> = (0..count).map(|n| format!("\"{n}\":1")).collect();
            format!("{{{}}}", members.join(","))
        };
        let read =
            |text: &str| serde_json::from_str::<Members<'_, u8>>(text).map(|all| all.0.len());
        assert_eq!(read(&object(MEMBERS_MAX)).unwrap(), MEMBERS_MAX);
        assert!(read(&object(MEMBERS_MAX + 1)).is_err());
        for nested in ["[1]", "{}", "1.5", "-1", "null"] {
            assert!(
                serde_json::from_str::<ConditionValue<'_>>(nested).is_err(),
                "{nested}"
            );
        }
    }
}
