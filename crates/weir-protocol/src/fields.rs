//! Numbers, ids and texts, as variables and lines contain them.

/// Parses a decimal number without sign and without leading zeros.
pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 20 || (bytes.len() > 1 && bytes.starts_with(b"0")) {
        return None;
    }
    bytes.iter().try_fold(0_u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Appends a number.
#[inline]
pub(super) fn put_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + (rest % 10).to_le_bytes()[0];
        }
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend(digits.iter().skip(at));
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends bytes as lower-case hexadecimal digits.
pub(super) fn put_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(HEX.get(usize::from(digit)).copied().unwrap_or(b'0'));
        }
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// Reads lower-case hexadecimal digits.
pub(super) fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    pairs.iter().map(byte).collect()
}

/// Reads an id: 32 lower-case hexadecimal digits.
#[must_use]
pub fn parse_id(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() != 32 {
        return None;
    }
    hex(text)?.try_into().ok()
}

/// Appends an id as 32 lower-case hexadecimal digits.
pub fn write_id(out: &mut Vec<u8>, id: &[u8; 16]) {
    put_hex(out, id);
}

/// Appends text to the end of a line: backslash and control bytes as `\xHH`.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    for &byte in text.as_bytes() {
        if byte < 0x20 || byte == 0x7f || byte == b'\\' {
            out.extend_from_slice(b"\\x");
            put_hex(out, &[byte]);
        } else {
            out.push(byte);
        }
    }
}

/// Reads text that [`put_text`] wrote.
pub(super) fn text(bytes: &[u8]) -> Option<String> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first == b'\\' {
            let (escape, after) = rest.split_first_chunk::<3>()?;
            let [b'x', high, low] = *escape else {
                return None;
            };
            out.push(digit(high)? << 4 | digit(low)?);
            rest = after;
        } else if first < 0x20 || first == 0x7f {
            return None;
        } else {
            out.push(first);
        }
    }
    String::from_utf8(out).ok()
}

/// Splits words that are separated by single blanks. `None` for malformed words or more
/// than `max`.
pub(super) fn words(bytes: &[u8], max: usize) -> Option<impl Iterator<Item = &[u8]>> {
    let good = !bytes.is_empty()
        && bytes.split(|&byte| byte == b' ').count() <= max
        && bytes
            .split(|&byte| byte == b' ')
            .all(|word| !word.is_empty());
    good.then(|| bytes.split(|&byte| byte == b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_form() {
        for n in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_number(&mut out, n);
            assert_eq!(out, n.to_string().into_bytes());
            assert_eq!(number(&out), Some(n));
        }
        for bad in [
            "",
            "00",
            "01",
            "+1",
            "-1",
            " 1",
            "1 ",
            "18446744073709551616",
        ] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn texts_round_trip() {
        for given in [
            "",
            "plain",
            "a\\b",
            "two\nlines\u{7f}",
            "\u{fc}ber \u{1f600}",
        ] {
            let mut out = Vec::new();
            put_text(&mut out, given);
            assert!(!out.contains(&b'\n'));
            assert_eq!(text(&out).as_deref(), Some(given));
        }
        for bad in [&b"\\"[..], b"\\x0", b"\\y00", b"\\xFF", b"\n", b"\\xff"] {
            assert_eq!(text(bad), None);
        }
    }
}
