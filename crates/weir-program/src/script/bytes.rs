//! Bytes as words of a script.
//!
//! A printable character represents itself. `\xff` is any byte, `{x*100}` is a hundred times `x`,
//! `{i64:-5}` is a big-endian number (`u8` to `u64`, `i32`, `i64`). `{id:7}` is 32 bytes: 7, then
//! zeros. In a word that begins with `'`, every character up to the closing `'` represents itself,
//! including blanks; `''` is one `'`.

/// The bytes of a word; `None` if the word is invalid.
#[must_use]
pub fn parse(word: &str) -> Option<Vec<u8>> {
    parse_at(word).ok()
}

/// The bytes of a word.
///
/// # Errors
/// The index of the first invalid byte of the word, from 0.
pub fn parse_at(word: &str) -> Result<Vec<u8>, usize> {
    let mut out = Vec::new();
    let mut rest = word;
    if let Some(inside) = word.strip_prefix(QUOTE) {
        let inside = inside.strip_suffix(QUOTE).ok_or(0_usize)?;
        let single = inside.replace("''", "");
        return match single.find(QUOTE) {
            None => Ok(inside.replace("''", "'").into_bytes()),
            Some(_) => Err(0),
        };
    }
    while !rest.is_empty() {
        rest = piece(rest, &mut out).ok_or(word.len() - rest.len())?;
    }
    Ok(out)
}

/// The first and the last character of a quoted word.
const QUOTE: char = '\'';

/// Splits a line into words at blanks outside of quotes. A quote begins a word, or a value after
/// the first `=`.
///
/// # Errors
/// A quote without an end.
pub(super) fn words(line: &str) -> Result<Vec<&str>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = rest.split_at(word_len(rest)?);
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

/// Splits a word at its first `=` outside of quotes.
pub(super) fn split_pair(word: &str) -> Option<(&str, &str)> {
    let key = if word.starts_with(QUOTE) {
        quoted_len(word).ok()?
    } else {
        0
    };
    let at = key + word.get(key..)?.find('=')?;
    Some((word.get(..at)?, word.get(at + 1..)?))
}

/// Length of the first word, in bytes.
fn word_len(rest: &str) -> Result<usize, String> {
    let (mut len, mut may_begin, mut has_value) = (0, true, false);
    while let Some(next) = rest.get(len..).and_then(|rest| rest.chars().next()) {
        if next.is_whitespace() {
            break;
        }
        if next == QUOTE && may_begin {
            len += quoted_len(rest.get(len..).unwrap_or_default())?;
            may_begin = false;
            continue;
        }
        may_begin = next == '=' && !has_value;
        has_value |= may_begin;
        len += next.len_utf8();
    }
    Ok(len)
}

/// Length of the quoted text at the start, including its quotes, in bytes.
fn quoted_len(text: &str) -> Result<usize, String> {
    let mut from = 1;
    loop {
        let end = text.get(from..).and_then(|rest| rest.find(QUOTE));
        let end = from + end.ok_or_else(|| format!("a quote does not end: {text}"))?;
        if !text
            .get(end + 1..)
            .is_some_and(|after| after.starts_with(QUOTE))
        {
            return Ok(end + 1);
        }
        from = end + 2;
    }
}

/// Parses one piece at the start. Returns the rest.
fn piece<'a>(rest: &'a str, out: &mut Vec<u8>) -> Option<&'a str> {
    if let Some(brace) = rest.strip_prefix('{') {
        let (inside, after) = brace.split_once('}')?;
        group(inside, out)?;
        return Some(after);
    }
    if let Some(hex) = rest.strip_prefix("\\x") {
        out.push(u8::from_str_radix(hex.get(..2)?, 16).ok()?);
        return hex.get(2..);
    }
    let first = rest.chars().next()?;
    let (this, after) = rest.split_at(first.len_utf8());
    out.extend_from_slice(this.as_bytes());
    Some(after)
}

fn group(inside: &str, out: &mut Vec<u8>) -> Option<()> {
    if let Some((what, count)) = inside.rsplit_once('*') {
        let what = parse(what)?;
        let count: usize = count.parse().ok().filter(|count| *count <= 1 << 24)?;
        out.extend((0..count).flat_map(|_| what.iter().copied()));
        return Some(());
    }
    let (kind, number) = inside.split_once(':')?;
    match kind {
        "u8" => out.push(number.parse().ok()?),
        "u16" => out.extend(number.parse::<u16>().ok()?.to_be_bytes()),
        "u32" => out.extend(number.parse::<u32>().ok()?.to_be_bytes()),
        "u64" => out.extend(number.parse::<u64>().ok()?.to_be_bytes()),
        "i32" => out.extend(number.parse::<i32>().ok()?.to_be_bytes()),
        "i64" => out.extend(number.parse::<i64>().ok()?.to_be_bytes()),
        "id" => {
            out.push(number.parse().ok()?);
            out.extend([0; 31]);
        }
        _ => return None,
    }
    Some(())
}

/// Minimum number of equal consecutive bytes that are written as a group.
const RUN_MIN: usize = 6;

/// Bytes as a word that [`parse`] reads.
#[must_use]
pub fn show(bytes: &[u8]) -> String {
    let mut out = String::new();
    let mut rest = bytes;
    if let Some(after) = bytes.strip_prefix(b"'") {
        // Otherwise it would begin a quoted word.
        out.push_str("\\x27");
        rest = after;
    }
    while let Some(first) = rest.first() {
        if let Some((id, after)) = rest.split_at_checked(32)
            && id.iter().skip(1).all(|byte| *byte == 0)
        {
            out.extend(["{id:", &first.to_string(), "}"]);
            rest = after;
            continue;
        }
        let run = rest.iter().take_while(|byte| *byte == first).count();
        let (taken, word) = if run >= RUN_MIN {
            (run, format!("{{{}*{run}}}", byte(*first)))
        } else {
            (1, byte(*first))
        };
        out.push_str(&word);
        rest = rest.get(taken..).unwrap_or(&[]);
    }
    out
}

fn byte(byte: u8) -> String {
    let plain = byte.is_ascii_graphic() && !b"\\{}*=;".contains(&byte);
    if plain {
        char::from(byte).to_string()
    } else {
        format!("\\x{byte:02x}")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip() {
        let long = [7; 300];
        for bytes in [
            &b"plain"[..],
            b"'",
            b"\\{}*=; \xff\x00",
            &long,
            &[0; 33],
            b"",
        ] {
            assert_eq!(parse(&show(bytes)).unwrap(), bytes, "{}", show(bytes));
        }
        assert_eq!(
            parse("{i32:-1}{u16:258}").unwrap(),
            b"\xff\xff\xff\xff\x01\x02"
        );
        assert_eq!(parse("{id:7}").unwrap().len(), 32);
        for wrong in ["{", "{u8:256}", "\\x1", "{x*99999999999}", "{y:1}"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(parse_at("abc{u8:7}\\xzz"), Err(9));
        assert_eq!(parse_at("ä{u8:x}"), Err(2));
    }

    #[test]
    fn quotes_keep_blanks() {
        let line = r#"put t 'a key'='{"a": "it''s"}' principal=ann  at=5"#;
        let words = words(line).unwrap();
        let wanted = [
            "put",
            "t",
            r#"'a key'='{"a": "it''s"}'"#,
            "principal=ann",
            "at=5",
        ];
        assert_eq!(words, wanted);
        let (key, value) = split_pair(words[2]).unwrap();
        assert_eq!(parse(key).unwrap(), b"a key");
        assert_eq!(parse(value).unwrap(), br#"{"a": "it's"}"#);
        assert_eq!(split_pair("'a=b'='c'").unwrap(), ("'a=b'", "'c'"));
        assert_eq!(split_pair("k='=' '").unwrap(), ("k", "'=' '"));
        assert_eq!(super::words("a='b  c' d").unwrap(), ["a='b  c'", "d"]);
        assert_eq!(
            super::words("it's a=b='c d'").unwrap(),
            ["it's", "a=b='c", "d'"]
        );
        assert_eq!(parse("''").unwrap(), b"");
        assert_eq!(parse(r"'\x41{x*3}'").unwrap(), br"\x41{x*3}");
        for wrong in ["'", "'a", "'a'b", "'a'b'", "'''"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert!(super::words("put t k='open").is_err());
    }
}
