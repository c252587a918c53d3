//! Opening a circuit: the greeting, and detection of the protocol by the first bytes.

/// The empty packet. Each side of a circuit opens with this packet; the side that connected sends
/// it first. It proves that the peer speaks this syntax. The only reply to it is a greeting.
pub const GREETING: &[u8] = b"|\n";

/// The port for circuits over TCP.
pub const PORT: u16 = 4404;

/// The protocol of a connection, on a port that several protocols share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitProtocol {
    /// PSYC 1.0, the syntax of this crate.
    Psyc,
    /// The older protocol with `.` LF as its delimiter. Reply with one `_failure` packet and close.
    LegacyPsyc,
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
pub fn classify(bytes: &[u8]) -> CircuitProtocol {
    match bytes.first() {
        None => CircuitProtocol::NeedMore,
        Some(b'|' | b'\n' | b'0'..=b'9') => CircuitProtocol::Psyc,
        Some(&byte) if crate::class::is_operator(byte) => CircuitProtocol::Psyc,
        Some(b'.') => CircuitProtocol::LegacyPsyc,
        Some(0x16) => CircuitProtocol::Tls,
        Some(_) if HTTP.iter().any(|word| bytes.starts_with(*word)) => CircuitProtocol::Http,
        Some(_) if HTTP.iter().any(|word| word.starts_with(bytes)) => CircuitProtocol::NeedMore,
        Some(_) => CircuitProtocol::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classify_detects_each_protocol() {
        for first in [
            "|\n", ":_a\t\n", "=_a", "?", "!", "12\n", "\n", "+", "-", "@",
        ] {
            assert_eq!(
                classify(first.as_bytes()),
                CircuitProtocol::Psyc,
                "{first:?}"
            );
        }
        assert_eq!(classify(b".\n"), CircuitProtocol::LegacyPsyc);
        assert_eq!(classify(b"\x16\x03\x01"), CircuitProtocol::Tls);
        for word in HTTP {
            assert_eq!(classify(word), CircuitProtocol::Http);
            for len in 0..4 {
                assert_eq!(classify(&word[..len]), CircuitProtocol::NeedMore);
            }
        }
        for other in ["G T ", "SSH-2.0", "\0", "POSE", "_m"] {
            assert_eq!(
                classify(other.as_bytes()),
                CircuitProtocol::Unknown,
                "{other:?}"
            );
        }
    }
}
