//! Creates keys and signed certificates, and writes their files.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use weir::ErrorCode;
use weir_server::security::{CertificateFields, now_ms, write_private};

use super::{Purpose, read};
use crate::report::{Failure, FailureContext};

const DAY_MS: u64 = 86_400_000;
/// How long before the current time a certificate becomes valid, because clocks differ.
const EARLY_MS: u64 = 3_600_000;
/// Maximum characters in the name of an authority. X.509 limits a common name to this length.
const NAME_CHARS_MAX: usize = 64;

/// Creates an authority. Returns the path of its certificate.
pub(super) fn create(dir: &Path, name: &str, days: u32) -> anyhow::Result<PathBuf> {
    let what = || format!("cannot create an authority in {}", dir.display());
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.contains(char::is_control) {
        let why =
            format!("the name of the authority must have 1 to {NAME_CHARS_MAX} visible characters");
        return Err(Failure::new(ErrorCode::BadOption, what())
            .because(why)
            .into());
    }
    let now = now_ms();
    let mut params = params(name, now, now + u64::from(days) * DAY_MS);
    // The authority may sign certificates of servers and clients, but no other authority.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(|error| internal_failure(what(), &error))?;
    let certificate = params.self_signed(&key);
    let certificate = certificate.map_err(|error| internal_failure(what(), &error))?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .failed(what)?;
    let paths = (dir.join("ca.pem"), dir.join("ca.key"));
    write_pair(&paths, &certificate.pem(), &key.serialize_pem()).map_err(|error| {
        let failure = Failure::new(ErrorCode::Io, what()).because(&error);
        match error.kind() {
            io::ErrorKind::AlreadyExists => failure.advise(
                "choose another directory: a new authority would invalidate the certificates of the old one",
            ),
            _ => failure,
        }
    })?;
    Ok(paths.0)
}

/// Creates a certificate. Returns its path.
pub(super) fn issue(
    dir: &Path,
    names: &[String],
    purpose: Purpose,
    days: u32,
) -> anyhow::Result<PathBuf> {
    let first = names.first().map_or("", String::as_str);
    let what = || format!("cannot issue a certificate for {first}");
    let refuse = |why: &str| Failure::new(ErrorCode::BadOption, what()).because(why);
    let (authority, issuer) = load(dir)?;
    let now = now_ms();
    if authority.not_after_ms <= now {
        return Err(refuse("the authority has expired").into());
    }
    let end = (now + u64::from(days) * DAY_MS).min(authority.not_after_ms);
    let mut params = params(first, now, end);
    params.subject_alt_names = names
        .iter()
        .map(|name| {
            alternative_name(name)
                .ok_or_else(|| refuse(&format!("{name} is not a host name, address or URI")))
        })
        .collect::<Result<_, _>>()?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let (server, client) = (
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    );
    params.extended_key_usages = match purpose {
        Purpose::Server => vec![server],
        Purpose::Client => vec![client],
        Purpose::Node => vec![server, client],
    };
    let key = KeyPair::generate().map_err(|error| internal_failure(what(), &error))?;
    let certificate = params.signed_by(&key, &issuer);
    let certificate = certificate.map_err(|error| internal_failure(what(), &error))?;
    let fields = CertificateFields::read(certificate.der());
    // The issuer is built from the name of the authority, and must have the same bytes as its
    // subject.
    if fields.map(|fields| fields.issuer_der) != Ok(authority.subject_der) {
        return Err(refuse("`weir cert ca` did not create the authority").into());
    }
    let file = file_name(first);
    let paths = (
        dir.join(format!("{file}.pem")),
        dir.join(format!("{file}.key")),
    );
    write_pair(&paths, &certificate.pem(), &key.serialize_pem()).map_err(|error| {
        let failure = Failure::new(ErrorCode::Io, what()).because(&error);
        match error.kind() {
            io::ErrorKind::AlreadyExists => failure.advise(format!(
                "move {0} and its key away first; a server loads new files of the same names \
                 without a restart",
                paths.0.display()
            )),
            _ => failure,
        }
    })?;
    Ok(paths.0)
}

fn params(name: &str, now_ms: u64, end_ms: u64) -> CertificateParams {
    let at = |ms: u64| date_time_ymd(1970, 1, 1) + Duration::from_millis(ms);
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    // X.509 limits the length of a common name. Verifiers check the alternative names.
    let short: String = name.chars().take(NAME_CHARS_MAX).collect();
    params.distinguished_name.push(DnType::CommonName, short);
    params.not_before = at(now_ms.saturating_sub(EARLY_MS));
    params.not_after = at(end_ms);
    params
}

/// Loads the authority in a directory.
fn load(dir: &Path) -> anyhow::Result<(CertificateFields, Issuer<'static, KeyPair>)> {
    let (certificate, key) = (dir.join("ca.pem"), dir.join("ca.key"));
    let what = || format!("cannot use the authority in {}", dir.display());
    let read = read(&certificate)?.into_iter().next();
    let authority = read.filter(|authority| authority.is_authority);
    let authority = authority.ok_or_else(|| {
        let why = format!(
            "the certificate {} may not sign other certificates",
            certificate.display()
        );
        Failure::new(ErrorCode::BadOption, what()).because(why)
    })?;
    let text = fs::read_to_string(&key).failed(what)?;
    // The error of the library could quote the text of an invalid key.
    let pair = KeyPair::from_pem(&text).map_err(|_| {
        let why = format!("{} contains no private key in PEM format", key.display());
        Failure::new(ErrorCode::BadLine, what()).because(why)
    })?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let name = authority.common_name.as_str();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok((authority, Issuer::new(params, pair)))
}

fn alternative_name(name: &str) -> Option<SanType> {
    if let Ok(address) = name.parse() {
        return Some(SanType::IpAddress(address));
    }
    let shown = name.bytes().all(|byte| byte.is_ascii_graphic());
    if name.contains("://") {
        return shown.then(|| name.try_into().ok().map(SanType::URI))?;
    }
    let part = |part: &str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&part.len()) && part.bytes().all(letter)
    };
    let (head, rest) = name.split_once('.').unwrap_or((name, ""));
    let is_wildcard = head == "*" && !rest.is_empty();
    let formed = is_wildcard || part(head);
    let rest =
        rest.is_empty() && !name.ends_with('.') || !rest.is_empty() && rest.split('.').all(part);
    (formed && rest && name.len() <= 253).then(|| name.try_into().ok().map(SanType::DnsName))?
}

/// Converts a name to a file name: a character with a meaning in paths becomes `_`.
fn file_name(name: &str) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || "-.".contains(c) {
            c
        } else {
            '_'
        }
    };
    let file: String = name.chars().map(safe).take(100).collect();
    // The file is never hidden, and never replaces a file of the authority.
    match file.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None if file == "ca" => "ca_".to_owned(),
        None => file,
    }
}

/// Writes both files, or neither.
fn write_pair((certificate, key): &(PathBuf, PathBuf), pem: &str, key_pem: &str) -> io::Result<()> {
    let named = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    if certificate.exists() {
        return Err(named(certificate, io::ErrorKind::AlreadyExists.into()));
    }
    write_private(key, key_pem.as_bytes(), false).map_err(|error| named(key, error))?;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o644);
    let written = options.open(certificate).and_then(|mut file| {
        let written = file
            .write_all(pem.as_bytes())
            .and_then(|()| file.sync_all());
        if written.is_err() {
            drop(fs::remove_file(certificate));
        }
        written
    });
    written.map_err(|error| {
        // The error of the write is reported, not one of a removal.
        drop(fs::remove_file(key));
        named(certificate, error)
    })
}

fn internal_failure(what: String, error: &rcgen::Error) -> Failure {
    Failure::new(ErrorCode::Internal, what).because(error)
}

#[cfg(test)]
mod tests {
    use super::{alternative_name, file_name};

    #[test]
    fn names_are_hosts_addresses_or_uris() {
        for name in [
            "localhost",
            "a.example",
            "*.example",
            "192.0.2.1",
            "::1",
            "spiffe://a/b",
        ] {
            assert!(alternative_name(name).is_some(), "{name}");
        }
        for name in [
            "", ".", "a.", ".a", "a..b", "a b", "a_b", "*", "*.", "a.*", "a://b c", "ä",
        ] {
            assert!(alternative_name(name).is_none(), "{name}");
        }
    }

    #[test]
    fn a_file_name_contains_no_path_and_is_not_that_of_the_authority() {
        assert_eq!(file_name("../../x"), "_._.._x");
        assert_eq!(file_name("*.example"), "_.example");
        assert_eq!(file_name("ca"), "ca_");
        assert_eq!(file_name("spiffe://a/b"), "spiffe___a_b");
    }
}
