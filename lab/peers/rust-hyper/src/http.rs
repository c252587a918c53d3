//! Finds the end of an answer, and checks its head.

use crate::Error;

/// Longest head of an answer, bytes.
const HEAD_MAX: usize = 64 << 10;

/// A complete answer at the start of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Where its body begins.
    pub body: usize,
    /// Where it ends.
    pub end: usize,
}

/// The answer at the start of `bytes`, or `None` while it is incomplete. Its length must be given
/// by `content-length`; 204 and 304 have no body.
pub fn answer(bytes: &[u8]) -> Result<Option<Answer>, Error> {
    let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return match bytes.len() {
            0..HEAD_MAX => Ok(None),
            _ => Err(Error::Answer("a head that is too long".to_owned())),
        };
    };
    let odd = || {
        let first = bytes
            .split(|byte| *byte == b'\r')
            .next()
            .unwrap_or_default();
        Error::Answer(String::from_utf8_lossy(first).into_owned())
    };
    let status = bytes
        .strip_prefix(b"HTTP/1.1 ")
        .and_then(|rest| std::str::from_utf8(rest.get(..3)?).ok()?.parse().ok())
        .ok_or_else(odd)?;
    let length = bytes[..head].split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at(colon);
        if !name.eq_ignore_ascii_case(b"content-length") {
            return None;
        }
        std::str::from_utf8(&value[1..])
            .ok()?
            .trim()
            .parse::<usize>()
            .ok()
    });
    let length = match (length, status) {
        (Some(length), _) => length,
        (None, 204 | 304) => 0,
        (None, _) => return Err(odd()),
    };
    let end = head + 4 + length;
    Ok((bytes.len() >= end).then_some(Answer {
        status,
        body: head + 4,
        end,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_at_every_cut() {
        let whole = b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\ndate: x\r\n\r\nabcHTTP";
        let end = whole.len() - 4;
        for cut in 0..=whole.len() {
            let found = answer(&whole[..cut]).unwrap();
            let expected = Answer {
                status: 201,
                body: end - 3,
                end,
            };
            assert_eq!(found, (cut >= end).then_some(expected), "cut at {cut}");
        }
    }

    #[test]
    fn what_has_no_length_is_refused() {
        assert!(answer(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(answer(b"hello\r\n\r\n").is_err());
        assert_eq!(answer(b"HTTP/1.1 204 No\r\n\r\n").unwrap().unwrap().end, 19);
    }
}
