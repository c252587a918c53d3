//! The fields of a certificate: names, validity, whether it may sign other certificates.
//!
//! Reads the few fields that are displayed or become principals (RFC 5280, DER). This module does
//! not decide whether a certificate is trusted: the TLS library has verified it, or a person
//! inspects it.
//!
//! Invariant: input that is not understood is an error, never a guess.

use std::net::IpAddr;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Name;

/// Maximum number of names that are read from one certificate.
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
    /// Subject alternative names in their order: host names, addresses, mail addresses, URIs. Other
    /// kinds are omitted.
    pub names: Vec<String>,
    /// Start of its validity, milliseconds since 1970.
    pub not_before_ms: u64,
    /// Last millisecond of its validity.
    pub not_after_ms: u64,
    /// Whether the certificate may sign other certificates.
    pub is_authority: bool,
    /// The subject, DER-encoded.
    pub subject_der: Vec<u8>,
    /// The issuer, DER-encoded.
    pub issuer_der: Vec<u8>,
}

/// Bytes that are not a certificate: the field at which parsing stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid certificate: {0}")]
pub struct CertificateError(&'static str);

impl CertificateFields {
    /// Parses a DER certificate.
    ///
    /// # Errors
    /// If the bytes are not a certificate, if bytes follow it, or if a name in it is not valid.
    pub fn read(der: &[u8]) -> Result<Self, CertificateError> {
        let wrong = |field| move |_| CertificateError(field);
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|_| CertificateError("certificate"))?;
        if !rest.is_empty() {
            return Err(CertificateError("bytes after the certificate"));
        }
        let validity = certificate.validity();
        let mut fields = Self {
            serial: certificate.raw_serial().to_vec(),
            common_name: common_name(certificate.subject()),
            issuer_name: common_name(certificate.issuer()),
            names: Vec::new(),
            not_before_ms: ms(validity.not_before),
            not_after_ms: ms(validity.not_after),
            is_authority: false,
            subject_der: certificate.subject().as_raw().to_vec(),
            issuer_der: certificate.issuer().as_raw().to_vec(),
        };
        let constraints = certificate
            .basic_constraints()
            .map_err(wrong("constraints"))?;
        fields.is_authority = constraints.is_some_and(|found| found.value.ca);
        let names = certificate
            .subject_alternative_name()
            .map_err(wrong("names"))?;
        for name in names.iter().flat_map(|found| &found.value.general_names) {
            let name = match name {
                GeneralName::RFC822Name(text)
                | GeneralName::DNSName(text)
                | GeneralName::URI(text) => visible(text)?.to_owned(),
                GeneralName::IPAddress(bytes) => address(bytes)?.to_string(),
                GeneralName::Invalid(..) => return Err(CertificateError("a name")),
                _ => continue,
            };
            if fields.names.len() == NAMES_MAX {
                return Err(CertificateError("too many names"));
            }
            fields.names.push(name);
        }
        Ok(fields)
    }
}

/// Accepts only visible ASCII. A name with a NUL or a line end could look like another name.
fn visible(text: &str) -> Result<&str, CertificateError> {
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text)
    } else {
        Err(CertificateError("a name"))
    }
}

fn address(bytes: &[u8]) -> Result<IpAddr, CertificateError> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .map_err(|_| CertificateError("an address"))
}

/// Returns the first common name without control characters; empty if there is none.
fn common_name(name: &X509Name<'_>) -> String {
    let Some(found) = name.iter_common_name().next() else {
        return String::new();
    };
    let text = String::from_utf8_lossy(found.as_slice());
    text.chars().filter(|c| !c.is_control()).collect()
}

/// Converts a time. 9999-12-31T23:59:59Z means "never"; a time before 1970 becomes 0.
fn ms(time: ASN1Time) -> u64 {
    u64::try_from(time.timestamp()).map_or(0, |seconds| seconds * 1_000)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::CertificateFields;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, SanType};

    fn certificate() -> Vec<u8> {
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
    fn fields_are_read() {
        let fields = CertificateFields::read(&certificate()).unwrap();
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
    fn damaged_certificates_do_not_panic() {
        let der = certificate();
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
                // Some fields may still parse; the parser must not panic.
                drop(CertificateFields::read(&changed));
            }
        }
    }
}
