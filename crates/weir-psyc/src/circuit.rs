//! Opening a circuit: the greeting, and detection of the protocol by the first bytes.

/// The empty packet. Each side of a circuit opens with this packet; the side that connected sends
/// it first. It proves that the peer speaks this syntax. The only reply to it is a greeting.
pub const GREETING: &[u8] = b"|\n";

/// The port for circuits over TCP.
pub const PORT: u16 = 4404;

/// The protocol of a connection, on a port that several protocols share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// PSYC 1.0, the syntax of this crate.
    Psyc,
    /// The older protocol with `.` LF as its delimiter. Reply with one `_failure` packet and close.
    OldPsyc,
    /// HTTP.
    Http,
    /// TLS.
    Tls,
    /// None of these protocols. Close without a reply.
    Unknown,
    /// Too few bytes to decide.
    NeedMore,
}

const HTTP: [&[u8; 4]; 8] = [
    b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"PRI ",
];

/// Detects the protocol of a connection from its first bytes. Reads at most four bytes.
pub fn classify(bytes: &[u8]) -> Talk {
    match bytes.first() {
        None => Talk::NeedMore,
        Some(b'|' | b'\n' | b'0'..=b'9') => Talk::Psyc,
        Some(&byte) if crate::class::is_operator(byte) => Talk::Psyc,
        Some(b'.') => Talk::OldPsyc,
        Some(0x16) => Talk::Tls,
        Some(_) if HTTP.iter().any(|word| bytes.starts_with(*word)) => Talk::Http,
        Some(_) if HTTP.iter().any(|word| word.starts_with(bytes)) => Talk::NeedMore,
        Some(_) => Talk::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell_who_talks() {
        for first in [
            "|\n", ":_a\t\n", "=_a", "?", "!", "12\n", "\n", "+", "-", "@",
        ] {
            assert_eq!(classify(first.as_bytes()), Talk::Psyc, "{first:?}");
        }
        assert_eq!(classify(b".\n"), Talk::OldPsyc);
        assert_eq!(classify(b"\x16\x03\x01"), Talk::Tls);
        for word in HTTP {
            assert_eq!(classify(word), Talk::Http);
            for len in 0..4 {
                assert_eq!(classify(&word[..len]), Talk::NeedMore);
            }
        }
        for other in ["G T ", "SSH-2.0", "\0", "POSE", "_m"] {
            assert_eq!(classify(other.as_bytes()), Talk::Unknown, "{other:?}");
        }
    }
}
