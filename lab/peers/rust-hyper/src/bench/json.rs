//! Reads objects and answers their sums, with serde_json.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

#[derive(Serialize)]
struct Hello {
    message: &'static str,
}

/// The input. Other members are ignored; a repeated member is an error.
#[derive(Deserialize)]
struct Item<'a> {
    id: u64,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    tags: Vec<Cow<'a, str>>,
    values: Vec<i64>,
}

/// The output, in this order.
#[derive(Serialize)]
struct Sums<'a> {
    id: u64,
    name: &'a str,
    tags: usize,
    count: usize,
    sum: i64,
    min: i64,
    max: i64,
}

impl Item<'_> {
    fn sums(&self) -> Option<Sums<'_>> {
        let mut sum = 0_i64;
        for value in &self.values {
            sum = sum.checked_add(*value)?;
        }
        Some(Sums {
            id: self.id,
            name: &self.name,
            tags: self.tags.len(),
            count: self.values.len(),
            sum,
            min: self.values.iter().min().copied().unwrap_or(0),
            max: self.values.iter().max().copied().unwrap_or(0),
        })
    }
}

pub(super) fn hello() -> Vec<u8> {
    let hello = Hello {
        message: "Hello, World!",
    };
    // Writing to memory does not fail.
    serde_json::to_vec(&hello).unwrap_or_default()
}

/// The answer to one object.
pub(super) fn item(body: &[u8]) -> Option<Vec<u8>> {
    let item: Item<'_> = serde_json::from_slice(body).ok()?;
    serde_json::to_vec(&item.sums()?).ok()
}

/// The answer to an array of objects.
pub(super) fn items(body: &[u8]) -> Option<Vec<u8>> {
    let items: Vec<Item<'_>> = serde_json::from_slice(body).ok()?;
    let sums: Option<Vec<Sums<'_>>> = items.iter().map(Item::sums).collect();
    serde_json::to_vec(&sums?).ok()
}
