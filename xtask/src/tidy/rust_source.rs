//! Blanks everything in Rust text that is not code, so that rules about code ignore comments,
//! strings and tests.
//!
//! Invariant: blanking replaces bytes by spaces and preserves line ends, so positions do not
//! change.

/// The text with comments and the contents of string and character literals blanked.
pub(super) fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = if rest.starts_with(b"//") {
            rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            block_comment(rest)
        } else if let Some(length) = raw_string(bytes, at) {
            length
        } else if rest[0] == b'"' {
            quoted(rest, b'"')
        } else if rest[0] == b'\'' && is_character(rest) {
            quoted(rest, b'\'')
        } else {
            at += 1;
            continue;
        };
        for byte in &mut out[at..at + length] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at += length;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The result of `code` with the bodies of `#[cfg(test)] mod … { … }` blanked as well.
pub(super) fn without_tests(code: &str) -> String {
    let mut out = code.as_bytes().to_vec();
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let start = from + found;
        from = start + 1;
        let Some(open) = code[start..].find(['{', ';']).map(|open| start + open) else {
            break;
        };
        if code.as_bytes()[open] == b';' {
            continue;
        }
        let end = open + braces(&code.as_bytes()[open..]);
        for byte in &mut out[open..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        from = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The lines, from 1, on which `word` occurs in code. If `word` begins or ends with a letter, digit
/// or `_`, no such character may be adjacent on that side.
pub(super) fn lines_with(code: &str, word: &str) -> Vec<usize> {
    let part = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let mut lines = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let bytes = line.as_bytes();
        let mut hits = line.match_indices(word);
        let hit = hits.any(|(at, _)| {
            let before = at.checked_sub(1).and_then(|before| bytes.get(before));
            let after = bytes.get(at + word.len());
            let longer_before = part(word.as_bytes().first()) && part(before);
            let longer_after = part(word.as_bytes().last()) && part(after);
            !longer_before && !longer_after
        });
        if hit {
            lines.push(number + 1);
        }
    }
    lines
}

fn block_comment(bytes: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// Length of the raw string that begins at `at`, if any: `r"…"`, `r#"…"#`, `br…`, `cr…`.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).map(|before| bytes[before]);
    if before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    let rest = &bytes[at..];
    let prefix = [&b"r"[..], b"br", b"cr"]
        .into_iter()
        .find(|p| rest.starts_with(p))?
        .len();
    let hashes = rest[prefix..].iter().take_while(|b| **b == b'#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let body = &rest[open + 1..];
    let close = body.windows(end.len()).position(|window| window == end);
    Some(close.map_or(rest.len(), |close| open + 1 + close + end.len()))
}

fn quoted(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        if bytes[at] == b'\\' {
            at += 2;
        } else if bytes[at] == quote {
            return at + 1;
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// Whether the `'` at the start begins a character literal, not a lifetime or label.
fn is_character(bytes: &[u8]) -> bool {
    match bytes.get(1) {
        Some(b'\\') => true,
        // One character of up to four bytes, then the closing quote.
        Some(_) => (2..=5).any(|end| {
            bytes.get(end) == Some(&b'\'')
                && std::str::from_utf8(&bytes[1..end]).is_ok_and(|text| text.chars().count() == 1)
        }),
        None => false,
    }
}

/// Length of the block that starts with the `{` at the start of `bytes`.
fn braces(bytes: &[u8]) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::{code, lines_with, without_tests};

    fn check(text: &str, word: &str, expected: &[usize]) {
        assert_eq!(
            lines_with(&without_tests(&code(text)), word),
            expected,
            "{word} in {text:?}"
        );
    }

    #[test]
    fn only_code_counts() {
        check("let a: f64 = 1.0;", "f64", &[1]);
        check(
            "// f64\n/* f64 /* f64 */ f64 */ \"f64 \\\" f64\" r#\"f64 \" f64\"#",
            "f64",
            &[],
        );
        check("let quote = '\"'; f64", "f64", &[1]);
        check("fn a<'a>(x: &'a str) -> f64 { '\\'' }", "f64", &[1]);
        check("let e = 'é'; let s = \"f64\"; f32", "f64", &[]);
        check("from_f64_bits(xf64, f64x)", "f64", &[]);
        check("br\"f64\"; bar\"f64\"; f64", "f64", &[1]);
    }

    #[test]
    fn test_modules_do_not_count() {
        check("a\n#[cfg(test)]\nmod tests {\n{ f64 }\n}\nf64", "f64", &[6]);
        check("#[cfg(test)]\nmod tests;\nf64", "f64", &[3]);
    }
}
