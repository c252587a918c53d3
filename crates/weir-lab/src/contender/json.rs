//! JSON contenders: `serde_json` with an owned tree, and with a tree that borrows strings without
//! escapes from the packet.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::ContenderError;
use super::wire::{Parser, part, touch};
use crate::protocol::Fields;

/// `serde_json::Value`.
#[derive(Debug)]
pub struct Owned;

/// A tree of borrowed strings.
#[derive(Debug)]
pub struct Borrowed;

pub(super) fn refused(error: &serde_json::Error) -> ContenderError {
    ContenderError::Refused(error.to_string())
}

/// The version that every form of `serde_json` reports.
pub(super) fn versions() -> Fields {
    let version = env!("WEIR_LAB_SERDE_JSON");
    Fields::from([("serde_json".to_owned(), version.to_owned())])
}

impl Parser for Owned {
    fn versions(&self) -> Fields {
        versions()
    }

    fn pass(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        let tree: Value = serde_json::from_slice(packet).map_err(|error| refused(&error))?;
        Ok(walk(&tree, &mut |_, bytes| touch(bytes)))
    }

    fn content(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        let tree: Value = serde_json::from_slice(packet).map_err(|error| refused(&error))?;
        Ok(walk(&tree, &mut part))
    }
}

fn walk(tree: &Value, each: &mut impl FnMut(u8, &[u8]) -> u64) -> u64 {
    match tree {
        Value::String(text) => each(b's', text.as_bytes()),
        Value::Array(items) => items
            .iter()
            .fold(0, |sum, item| sum.wrapping_add(walk(item, each))),
        Value::Object(members) => members.iter().fold(0, |sum, (key, value)| {
            sum.wrapping_add(each(b'k', key.as_bytes()))
                .wrapping_add(walk(value, each))
        }),
        Value::Null => each(b'n', b"null"),
        Value::Bool(yes) => each(b'n', if *yes { b"true" } else { b"false" }),
        Value::Number(number) => each(b'n', number.to_string().as_bytes()),
    }
}

impl Parser for Borrowed {
    fn versions(&self) -> Fields {
        versions()
    }

    fn pass(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        let tree: Node<'_> = serde_json::from_slice(packet).map_err(|error| refused(&error))?;
        Ok(walk_node(&tree, &mut |_, bytes| touch(bytes)))
    }

    fn content(&mut self, packet: &[u8]) -> Result<u64, ContenderError> {
        let tree: Node<'_> = serde_json::from_slice(packet).map_err(|error| refused(&error))?;
        Ok(walk_node(&tree, &mut part))
    }
}

enum Node<'a> {
    Text(Cow<'a, str>),
    Other(String),
    List(Vec<Node<'a>>),
    Members(Vec<(Cow<'a, str>, Node<'a>)>),
}

fn walk_node(node: &Node<'_>, each: &mut impl FnMut(u8, &[u8]) -> u64) -> u64 {
    match node {
        Node::Text(text) => each(b's', text.as_bytes()),
        Node::Other(text) => each(b'n', text.as_bytes()),
        Node::List(items) => items
            .iter()
            .fold(0, |sum, item| sum.wrapping_add(walk_node(item, each))),
        Node::Members(members) => members.iter().fold(0, |sum, (key, value)| {
            sum.wrapping_add(each(b'k', key.as_bytes()))
                .wrapping_add(walk_node(value, each))
        }),
    }
}

struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        from.deserialize_str(Reader)
    }
}

impl<'de> Deserialize<'de> for Node<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Node<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Node<'de>, E> {
                Ok(Node::Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Node<'de>, E> {
                Ok(Node::Text(Cow::Owned(text.to_owned())))
            }
            fn visit_unit<E>(self) -> Result<Node<'de>, E> {
                Ok(Node::Other("null".to_owned()))
            }
            fn visit_bool<E>(self, yes: bool) -> Result<Node<'de>, E> {
                Ok(Node::Other(yes.to_string()))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Node<'de>, E> {
                Ok(Node::Other(number.to_string()))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Node<'de>, E> {
                Ok(Node::Other(number.to_string()))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Node<'de>, E> {
                Ok(Node::Other(number.to_string()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Node<'de>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = from.next_element()? {
                    items.push(item);
                }
                Ok(Node::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Node<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(key), value)) = from.next_entry()? {
                    members.push((key, value));
                }
                Ok(Node::Members(members))
            }
        }
        from.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::tests::content;
    use super::*;

    #[test]
    fn both_trees_have_the_same_content() {
        let packet = br#"{"a":"x\ty","b":["z",true,null,-4]}"#;
        let expected = [
            (b'k', "a"),
            (b's', "x\ty"),
            (b'k', "b"),
            (b's', "z"),
            (b'n', "true"),
        ]
        .into_iter()
        .chain([(b'n', "null"), (b'n', "-4")])
        .fold(0u64, |sum, (kind, text)| {
            sum.wrapping_add(part(kind, text.as_bytes()))
        });
        assert_eq!(content(Owned, packet), expected);
        assert_eq!(content(Borrowed, packet), expected);
    }
}
