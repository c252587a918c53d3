//! The bodies of requests, generated from their names, with equal bytes on every machine.

use crate::Error;
use crate::bench::deflate;

/// The smallest object with all members.
const SMALL: &[u8] = br#"{"id":7,"name":"abc","tags":["x"],"values":[1,-2]}"#;

/// JSON of exactly `bytes` bytes: an object with one string, if there is room.
fn string(bytes: usize) -> Vec<u8> {
    let frame = r#"{"v":""}"#.len();
    if bytes < frame {
        return vec![b'1'; bytes];
    }
    let letters = (0..bytes - frame).map(|i| b'a' + (i % 26) as u8);
    let mut body = br#"{"v":""#.to_vec();
    body.extend(letters);
    body.extend_from_slice(br#""}"#);
    body
}

/// An object of the endpoint `/bench/json`, of exactly `bytes` bytes if they are
/// more than 100: a quarter each of name and tags, the rest values.
fn object(id: u64, bytes: usize) -> String {
    let letter = |i: usize| char::from(b'a' + ((id as usize + i * 7) % 26) as u8);
    let name: String = (0..bytes / 4).map(letter).collect();
    let mut tags = String::new();
    while tags.len() < bytes / 4 {
        let comma = if tags.is_empty() { "" } else { "," };
        tags += &format!("{comma}\"t{}\"", tags.len() % 97);
    }
    let frame = format!(r#"{{"id":{id},"name":"{name}","tags":[{tags}],"values":[]}}"#);
    let mut values = String::new();
    let mut state = id;
    while frame.len() + values.len() + 12 < bytes {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let sign = if state & 1 == 0 { "" } else { "-" };
        let comma = if values.is_empty() { "" } else { "," };
        values += &format!("{comma}{sign}{}", state >> 44);
    }
    // White space fills the rest.
    let rest = " ".repeat(bytes.saturating_sub(frame.len() + values.len()));
    format!(r#"{{"id":{id},"name":"{name}","tags":[{tags}],"values":[{values}{rest}]}}"#)
}

/// An array of `items` objects of 110 bytes.
fn array(items: u64) -> String {
    let items: Vec<String> = (1..=items).map(|id| object(id, 110)).collect();
    format!("[{}]", items.join(","))
}

/// The body called `name`; without a name, a body of `bytes` bytes.
pub fn body(name: Option<&str>, bytes: usize) -> Result<Vec<u8>, Error> {
    Ok(match name {
        None => string(bytes),
        Some("json-s") => SMALL.to_vec(),
        Some("json-m") => object(2, 1_100).into_bytes(),
        Some("json-l") => object(3, 18_000).into_bytes(),
        Some("json-xl") => object(4, 256_000).into_bytes(),
        Some("zlib-m") => deflate(array(10).as_bytes()),
        Some("zlib-l") => deflate(array(160).as_bytes()),
        Some(_) => return Err(Error::Parameter("body")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{answer, inflate};
    use crate::fnv;

    #[test]
    fn bodies_have_their_length() {
        for bytes in [0, 1, 7, 8, 9, 100] {
            assert_eq!(body(None, bytes).unwrap().len(), bytes);
        }
        assert_eq!(body(None, 10).unwrap(), br#"{"v":"ab"}"#);
        assert!(body(Some("json"), 0).is_err());
    }

    #[test]
    fn bodies_of_a_name_are_always_the_same() {
        let known = [
            ("json-s", 50, 0xFE6E_4BC6_8437_71C1),
            ("json-m", 1_100, 0x8E15_8637_D7F7_8036),
            ("json-l", 18_000, 0xAC51_7565_336D_73B0),
            ("json-xl", 256_000, 0xF6A0_215C_D674_A64D),
            ("zlib-m", 1_111, 0xD1DC_B39B_90EC_C9D0),
            ("zlib-l", 17_761, 0x05E6_0D1C_91CE_03DC),
        ];
        let made = known.map(|(name, ..)| {
            let body = body(Some(name), 0).unwrap();
            let (path, plain) = match name.starts_with("zlib") {
                true => ("/bench/zlib", inflate(&body).unwrap()),
                false => ("/bench/json", body.clone()),
            };
            assert_eq!(answer("POST", path, None, &body).status, 200, "{name}");
            (name, plain.len(), fnv(&plain))
        });
        assert_eq!(made, known);
    }
}
