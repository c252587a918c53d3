//! What a certificate says: names, time, whether it may sign others.
//!
//! Reads the few fields that are shown to people and turned into principals
//! (RFC 5280, DER). Whether a certificate is to be trusted is not decided here:
//! the TLS library has verified it before, or a person looks at it.
//!
//! Invariant: a length is checked against what is left before it is used; what
//! is not understood is an error, never a guess.

use std::net::IpAddr;

use super::moment::Civil;

/// Names that are read from one certificate.
const NAMES_MAX: usize = 256;

/// The fields of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateFields {
    /// Serial number, big-endian.
    pub serial: Vec<u8>,
    /// Common name of the subject; empty if there is none.
    pub common_name: String,
    /// Common name of the issuer; empty if there is none.
    pub issuer_name: String,
    /// Subject alternative names in their order: host names, addresses, mail
    /// addresses, URIs. Others are left out.
    pub names: Vec<String>,
    /// First moment at which it holds, milliseconds since 1970.
    pub not_before_ms: u64,
    /// Last moment at which it holds.
    pub not_after_ms: u64,
    /// Whether it may sign others.
    pub is_authority: bool,
    /// The subject as encoded.
    pub subject_der: Vec<u8>,
    /// The issuer as encoded.
    pub issuer_der: Vec<u8>,
}

/// Why bytes are no certificate: at which field reading stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no certificate: {0}")]
pub struct CertificateError(&'static str);

mod tag {
    pub(super) const BOOLEAN: u8 = 0x01;
    pub(super) const INTEGER: u8 = 0x02;
    pub(super) const OCTETS: u8 = 0x04;
    pub(super) const OID: u8 = 0x06;
    pub(super) const UTC_TIME: u8 = 0x17;
    pub(super) const GENERAL_TIME: u8 = 0x18;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const SET: u8 = 0x31;
    pub(super) const VERSION: u8 = 0xa0;
    pub(super) const EXTENSIONS: u8 = 0xa3;
    pub(super) const MAIL: u8 = 0x81;
    pub(super) const HOST: u8 = 0x82;
    pub(super) const URI: u8 = 0x86;
    pub(super) const ADDRESS: u8 = 0x87;
}

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];

impl CertificateFields {
    /// Reads a certificate's DER.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(der: &[u8]) -> Result<Self, CertificateError> {
        let mut outer = Der(der);
        let mut certificate = outer.inside(tag::SEQUENCE, "certificate")?;
        let mut body = certificate.inside(tag::SEQUENCE, "body")?;
        let mut fields = Self::default();
        body.optional(tag::VERSION)?;
        fields.serial = body.value(tag::INTEGER, "serial number")?.to_vec();
        body.value(tag::SEQUENCE, "signature algorithm")?;
        let issuer = body.value(tag::SEQUENCE, "issuer")?;
        fields.issuer_der = issuer.to_vec();
        fields.issuer_name = common_name(issuer)?;
        let mut validity = body.inside(tag::SEQUENCE, "validity")?;
        fields.not_before_ms = time(&mut validity)?;
        fields.not_after_ms = time(&mut validity)?;
        let subject = body.value(tag::SEQUENCE, "subject")?;
        fields.subject_der = subject.to_vec();
        fields.common_name = common_name(subject)?;
        body.value(tag::SEQUENCE, "public key")?;
        while !body.0.is_empty() {
            let (kind, value) = body.next("extensions")?;
            if kind == tag::EXTENSIONS {
                fields.read_extensions(value)?;
            }
        }
        Ok(fields)
    }

    fn read_extensions(&mut self, der: &[u8]) -> Result<(), CertificateError> {
        let mut list = Der(der).inside(tag::SEQUENCE, "extensions")?;
        while !list.0.is_empty() {
            let mut extension = list.inside(tag::SEQUENCE, "extension")?;
            let oid = extension.value(tag::OID, "extension")?;
            extension.optional(tag::BOOLEAN)?;
            let content = extension.value(tag::OCTETS, "extension")?;
            if oid == ALTERNATIVE_NAMES {
                self.read_names(content)?;
            } else if oid == BASIC_CONSTRAINTS {
                let mut constraints = Der(content).inside(tag::SEQUENCE, "constraints")?;
                let authority = constraints.optional(tag::BOOLEAN)?;
                self.is_authority = authority.is_some_and(|value| value != [0]);
            }
        }
        Ok(())
    }

    fn read_names(&mut self, der: &[u8]) -> Result<(), CertificateError> {
        let mut list = Der(der).inside(tag::SEQUENCE, "names")?;
        while !list.0.is_empty() {
            let (kind, value) = list.next("name")?;
            let name = match (kind, value) {
                (tag::MAIL | tag::HOST | tag::URI, text) => visible(text)?.to_owned(),
                (tag::ADDRESS, bytes) => address(bytes)?.to_string(),
                _ => continue,
            };
            if self.names.len() == NAMES_MAX {
                return Err(CertificateError("too many names"));
            }
            self.names.push(name);
        }
        Ok(())
    }
}

/// A name of visible ASCII: one that holds a NUL or a line end is not what it
/// looks like.
fn visible(bytes: &[u8]) -> Result<&str, CertificateError> {
    let text = std::str::from_utf8(bytes).ok();
    text.filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))
        .ok_or(CertificateError("a name"))
}

fn address(bytes: &[u8]) -> Result<IpAddr, CertificateError> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .map_err(|_| CertificateError("an address"))
}

fn common_name(name: &[u8]) -> Result<String, CertificateError> {
    let mut sets = Der(name);
    while !sets.0.is_empty() {
        let mut set = sets.inside(tag::SET, "name")?;
        while !set.0.is_empty() {
            let mut pair = set.inside(tag::SEQUENCE, "name")?;
            let oid = pair.value(tag::OID, "name")?;
            let (_, value) = pair.next("name")?;
            if oid == COMMON_NAME {
                let shown = String::from_utf8_lossy(value);
                return Ok(shown.chars().filter(|c| !c.is_control()).collect());
            }
        }
    }
    Ok(String::new())
}

fn time(from: &mut Der<'_>) -> Result<u64, CertificateError> {
    let wrong = CertificateError("a moment");
    let (kind, text) = from.next("validity")?;
    let (century, rest) = match kind {
        tag::GENERAL_TIME => {
            let (century, rest) = text.split_at_checked(2).ok_or(wrong)?;
            (i64::from(pair(century).ok_or(wrong)?), rest)
        }
        // Years from 50 on are those of the last century.
        tag::UTC_TIME => match text.first() {
            Some(b'5'..=b'9') => (19, text),
            _ => (20, text),
        },
        _ => return Err(wrong),
    };
    let digits = rest.strip_suffix(b"Z").ok_or(wrong)?;
    let mut pairs = digits.chunks(2).map(pair);
    let mut next = || pairs.next().flatten().ok_or(wrong);
    let civil = Civil {
        year: century * 100 + i64::from(next()?),
        month: next()?,
        day: next()?,
        hour: next()?,
        minute: next()?,
        second: next()?,
    };
    // 9999-12-31T23:59:59Z stands for "never"; years before 1970 for "always".
    if civil.year < 1970 {
        return Ok(0);
    }
    civil.ms().ok_or(wrong)
}

fn pair(digits: &[u8]) -> Option<u8> {
    match digits {
        [high @ b'0'..=b'9', low @ b'0'..=b'9'] => Some((high - b'0') * 10 + low - b'0'),
        _ => None,
    }
}

/// What is left of some DER.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value with its tag.
    fn next(&mut self, what: &'static str) -> Result<(u8, &'a [u8]), CertificateError> {
        let short = CertificateError(what);
        let (&kind, rest) = self.0.split_first().ok_or(short)?;
        let (&first, mut rest) = rest.split_first().ok_or(short)?;
        let length = match first {
            0..=0x7f => usize::from(first),
            // At most 2^24 bytes, shortest form not insisted on.
            0x81..=0x83 => {
                let (bytes, behind) = rest
                    .split_at_checked(usize::from(first & 0x7f))
                    .ok_or(short)?;
                rest = behind;
                bytes
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
            }
            _ => return Err(short),
        };
        let (value, behind) = rest.split_at_checked(length).ok_or(short)?;
        self.0 = behind;
        Ok((kind, value))
    }

    fn value(&mut self, kind: u8, what: &'static str) -> Result<&'a [u8], CertificateError> {
        match self.next(what)? {
            (found, value) if found == kind => Ok(value),
            _ => Err(CertificateError(what)),
        }
    }

    fn inside(&mut self, kind: u8, what: &'static str) -> Result<Self, CertificateError> {
        self.value(kind, what).map(Self)
    }

    fn optional(&mut self, kind: u8) -> Result<Option<&'a [u8]>, CertificateError> {
        if self.0.first() == Some(&kind) {
            return self.next("optional").map(|(_, value)| Some(value));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::CertificateFields;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, SanType};

    fn made() -> Vec<u8> {
        let names = vec![
            "a.example".to_owned(),
            "192.0.2.1".into(),
            "2001:db8::1".into(),
        ];
        let mut params = CertificateParams::new(names).unwrap();
        let uri = "spiffe://example/loader".try_into().unwrap();
        params.subject_alt_names.push(SanType::URI(uri));
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Ö");
        params.distinguished_name.push(DnType::CommonName, "loader");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2026, 11, 20);
        params.not_after = rcgen::date_time_ymd(2051, 2, 28);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn fields_are_those_that_were_put_in() {
        let fields = CertificateFields::read(&made()).unwrap();
        assert_eq!(fields.common_name, "loader");
        assert_eq!(fields.issuer_name, "loader");
        assert_eq!(fields.subject_der, fields.issuer_der);
        let names = [
            "a.example",
            "192.0.2.1",
            "2001:db8::1",
            "spiffe://example/loader",
        ];
        assert_eq!(fields.names, names);
        assert!(fields.is_authority);
        assert_eq!(fields.not_before_ms, 1_795_132_800_000);
        assert_eq!(fields.not_after_ms, 2_561_155_200_000);
        assert!(!fields.serial.is_empty());
    }

    #[test]
    fn cut_and_changed_bytes_do_no_harm() {
        let der = made();
        for end in 0..der.len() {
            assert!(
                CertificateFields::read(&der[..end]).is_err(),
                "cut at {end}"
            );
        }
        for at in 0..der.len() {
            for value in [0x00, 0x30, 0x7f, 0x80, 0x83, 0x84, 0xff] {
                let mut changed = der.clone();
                changed[at] = value;
                // Some fields may be read; nothing may panic.
                drop(CertificateFields::read(&changed));
            }
        }
    }
}
