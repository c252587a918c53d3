//! Trees of JSON. The content of a packet has the kinds `k` key, `s` string and `n` any other value as
//! text.

use simd_json::prelude::{
    ValueAsArray as _, ValueAsObject as _, ValueAsScalar as _, Writable as _,
};
use sonic_rs::{JsonContainerTrait as _, JsonValueTrait as _};

use crate::Part;

/// Parses with sonic-rs.
pub(crate) fn sonic(packet: &[u8], each: &mut impl FnMut(Part<'_>) -> u64) -> Option<u64> {
    let tree: sonic_rs::Value = sonic_rs::from_slice(packet).ok()?;
    sonic_walk(&tree, each)
}

fn sonic_walk(tree: &sonic_rs::Value, each: &mut impl FnMut(Part<'_>) -> u64) -> Option<u64> {
    if let Some(text) = tree.as_str() {
        return Some(each(Part::One(b's', text.as_bytes())));
    }
    let mut sum = 0_u64;
    if let Some(members) = tree.as_object() {
        for (key, value) in members.iter() {
            sum = sum.wrapping_add(each(Part::One(b'k', key.as_bytes())));
            sum = sum.wrapping_add(sonic_walk(value, each)?);
        }
        return Some(sum);
    }
    if let Some(items) = tree.as_array() {
        for item in items.iter() {
            sum = sum.wrapping_add(sonic_walk(item, each)?);
        }
        return Some(sum);
    }
    let text = sonic_rs::to_string(tree).ok()?;
    Some(each(Part::One(b'n', text.as_bytes())))
}

/// Parses with simd-json, which writes into the packet.
pub(crate) fn simd(packet: &mut [u8], each: &mut impl FnMut(Part<'_>) -> u64) -> Option<u64> {
    let tree = simd_json::to_borrowed_value(packet).ok()?;
    Some(simd_walk(&tree, each))
}

fn simd_walk(tree: &simd_json::BorrowedValue<'_>, each: &mut impl FnMut(Part<'_>) -> u64) -> u64 {
    if let Some(text) = tree.as_str() {
        return each(Part::One(b's', text.as_bytes()));
    }
    let mut sum = 0_u64;
    if let Some(members) = tree.as_object() {
        for (key, value) in members.iter() {
            sum = sum.wrapping_add(each(Part::One(b'k', key.as_bytes())));
            sum = sum.wrapping_add(simd_walk(value, each));
        }
        return sum;
    }
    if let Some(items) = tree.as_array() {
        for item in items {
            sum = sum.wrapping_add(simd_walk(item, each));
        }
        return sum;
    }
    each(Part::One(b'n', tree.encode().as_bytes()))
}
