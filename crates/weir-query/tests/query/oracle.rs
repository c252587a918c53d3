//! Evaluates queries over parsed values: slow, plain, and independent of the engine.

use std::cmp::Ordering;

use serde_json::Value;

/// Rank of a value by its type; undefined is the lowest.
fn rank(value: Option<&Value>) -> u8 {
    match value {
        None => 0,
        Some(Value::Null) => 1,
        Some(Value::Bool(false)) => 2,
        Some(Value::Bool(true)) => 3,
        Some(Value::Number(_)) => 4,
        Some(Value::String(_)) => 5,
        Some(Value::Array(_)) => 6,
        Some(Value::Object(_)) => 7,
    }
}

pub(crate) fn compare(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    rank(a).cmp(&rank(b)).then_with(|| match (a, b) {
        // The values of the tests are exact in a double.
        (Some(Value::Number(a)), Some(Value::Number(b))) => {
            a.as_f64().partial_cmp(&b.as_f64()).unwrap()
        }
        (Some(Value::String(a)), Some(Value::String(b))) => a.cmp(b),
        _ => Ordering::Equal,
    })
}

/// A member of an item.
pub(crate) fn member<'a>(item: &'a Value, name: &str) -> Option<&'a Value> {
    item.get(name)
}

/// An item that owns its bytes.
#[derive(Clone, Debug)]
pub(crate) struct OwnedItem {
    pub(crate) bytes: Vec<u8>,
    pub(crate) value: Value,
}

impl OwnedItem {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
            value: serde_json::from_slice(bytes).unwrap(),
        }
    }
}

/// Order keys: name of a member, and whether descending.
pub(crate) type Keys = Vec<(&'static str, bool)>;

pub(crate) fn by_keys(keys: &Keys, a: &Value, b: &Value) -> Ordering {
    for (name, descending) in keys {
        let order = compare(member(a, name), member(b, name));
        if order != Ordering::Equal {
            return if *descending { order.reverse() } else { order };
        }
    }
    Ordering::Equal
}
