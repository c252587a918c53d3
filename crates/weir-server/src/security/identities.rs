//! The file of identities: tokens and names of certificates, each with its rights. The format is in
//! docs/operating/security.md.
//!
//! Invariants:
//! - A file is accepted whole or not at all.
//! - An error names the file and the line, and contains no value of the file.
//! - The id of an entry is unique.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;
use toml::value::Datetime;
use weir_core::limits::PRINCIPAL_BYTES_MAX;

use super::moment::{from_toml, rfc3339};
use super::rights::Grants;
use super::tokens::{Token, TokenHash, is_id};

/// Maximum size of the file in bytes.
pub const IDENTITIES_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of entries of the file.
pub const ENTRIES_MAX: usize = 10_000;

/// Why a file of identities is not accepted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IdentitiesError {
    /// An error of the system.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// The operation that failed.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The content is not valid.
    #[error("{}:{line}: {what}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, without values of the file.
        what: String,
    },
    /// Other users could change the file, or read a key.
    #[error("{0}: mode {1:04o} gives other users access; run `chmod 600 {0}`", path.display(), mode)]
    Open {
        /// The file.
        path: PathBuf,
        /// The mode of the file.
        mode: u32,
    },
    /// No entry has this id.
    #[error("{}: there is no token {id}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The id.
        id: String,
    },
    /// The token was revoked before.
    #[error("{}: token {id} is already revoked", path.display())]
    Revoked {
        /// The file.
        path: PathBuf,
        /// The id.
        id: String,
    },
}

/// One token of the file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TokenEntry {
    /// The id, 8 hexadecimal digits.
    pub id: String,
    /// Name of the principal.
    pub name: String,
    /// Time of its creation, in milliseconds since 1970.
    pub created_ms: u64,
    /// Time of its expiry, in milliseconds since 1970; `None`: never.
    pub expires_ms: Option<u64>,
    /// Time of its revocation, in milliseconds since 1970.
    pub revoked_ms: Option<u64>,
    /// The rights as written.
    pub rights: Vec<String>,
    pub(crate) hash: TokenHash,
    pub(crate) grants: Grants,
    /// Index of the byte after the line of the id.
    id_line_end: usize,
}

/// A certificate name in the file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CertificateEntry {
    /// A subject alternative name; also the name of the principal.
    pub name: String,
    /// The rights as written.
    pub rights: Vec<String>,
    pub(crate) grants: Grants,
}

/// The parsed and checked file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct IdentitiesFile {
    /// Path of the file.
    pub path: PathBuf,
    /// The tokens, in the order of the file.
    pub tokens: Vec<TokenEntry>,
    /// The certificates, in the order of the file.
    pub certificates: Vec<CertificateEntry>,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    token: Vec<RawToken>,
    #[serde(default)]
    certificate: Vec<RawCertificate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawToken {
    id: Spanned<String>,
    name: Spanned<String>,
    hash: Spanned<String>,
    created: Spanned<Datetime>,
    expires: Option<Spanned<Datetime>>,
    revoked: Option<Spanned<Datetime>>,
    #[serde(default)]
    rights: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCertificate {
    name: Spanned<String>,
    #[serde(default)]
    rights: Vec<Spanned<String>>,
}

impl IdentitiesFile {
    /// Reads and parses a file.
    ///
    /// # Errors
    /// If it cannot be read, other users could change it, or its content is not valid.
    pub fn read(path: &Path) -> Result<Self, IdentitiesError> {
        let io = |source| IdentitiesError::Io {
            verb: "read",
            path: path.into(),
            source,
        };
        let file = fs::File::open(path).map_err(io)?;
        let mode = file.metadata().map_err(io)?.mode() & 0o7777;
        if mode & 0o022 != 0 {
            return Err(IdentitiesError::Open {
                path: path.into(),
                mode,
            });
        }
        let mut text = String::new();
        let mut limited = file.take(IDENTITIES_BYTES_MAX + 1);
        limited.read_to_string(&mut text).map_err(io)?;
        Self::parse(path, text)
    }

    /// Parses the text of a file. `path` is used for errors and changes.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn parse(path: &Path, text: String) -> Result<Self, IdentitiesError> {
        let wrong = |at: usize, what: String| {
            let before = text.as_bytes().iter().take(at);
            IdentitiesError::Invalid {
                path: path.into(),
                line: before.filter(|byte| **byte == b'\n').count() + 1,
                what,
            }
        };
        if text.len() as u64 > IDENTITIES_BYTES_MAX {
            let what = format!("the file is over its limit of {IDENTITIES_BYTES_MAX} bytes");
            return Err(wrong(0, what));
        }
        let raw: RawFile = toml::from_str(&text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            wrong(at, without_values(error.message()))
        })?;
        if raw.token.len() + raw.certificate.len() > ENTRIES_MAX {
            let what = format!("more than {ENTRIES_MAX} entries");
            return Err(wrong(text.len(), what));
        }
        let wrong_ref: &MakeError<'_> = &wrong;
        let mut tokens = Vec::with_capacity(raw.token.len());
        for entry in &raw.token {
            tokens.push(token(entry, &text, wrong_ref)?);
        }
        let mut certificates = Vec::with_capacity(raw.certificate.len());
        for entry in &raw.certificate {
            certificates.push(CertificateEntry {
                name: name(&entry.name, wrong_ref)?,
                rights: entry.rights.iter().map(|r| r.get_ref().clone()).collect(),
                grants: grants(&entry.rights, wrong_ref)?,
            });
        }
        check_unique(raw.token.iter().map(|t| &t.id), wrong_ref)?;
        check_unique(raw.certificate.iter().map(|c| &c.name), wrong_ref)?;
        Ok(Self {
            path: path.into(),
            tokens,
            certificates,
            text,
        })
    }

    /// Returns this file with a new token at its end. Does not write it.
    ///
    /// # Errors
    /// If the name, the rights or the number of entries are not allowed. The line of the error is
    /// that of the new entry.
    pub fn with_token(
        &self,
        token: &Token,
        name: &str,
        rights: &[String],
        created_ms: u64,
        expires_ms: Option<u64>,
    ) -> Result<Self, IdentitiesError> {
        let mut text = self.text.clone();
        if !text.is_empty() && !text.ends_with("\n\n") {
            text.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
        }
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let rights: Vec<String> = rights.iter().map(|right| quoted(right)).collect();
        let mut lines = vec![
            "[[token]]".to_owned(),
            format!("id = {}", quoted(token.id())),
            format!("name = {}", quoted(name)),
            format!("hash = {}", quoted(&token.hash().to_string())),
            format!("created = {}", rfc3339(created_ms)),
        ];
        lines.extend(expires_ms.map(|ms| format!("expires = {}", rfc3339(ms))));
        lines.push(format!("rights = [{}]", rights.join(", ")));
        text.push_str(&lines.join("\n"));
        text.push('\n');
        Self::parse(&self.path, text)
    }

    /// Returns this file with a token marked as revoked. The entry remains, so that its id keeps
    /// its meaning in old audit records.
    ///
    /// # Errors
    /// If there is no such token, or it is already revoked.
    pub fn without_token(&self, id: &str, now_ms: u64) -> Result<Self, IdentitiesError> {
        let (path, id) = (self.path.clone(), id.to_owned());
        let Some(entry) = self.tokens.iter().find(|token| token.id == id) else {
            return Err(IdentitiesError::Unknown { path, id });
        };
        if entry.revoked_ms.is_some() {
            return Err(IdentitiesError::Revoked { path, id });
        }
        let (before, after) = self.text.split_at(entry.id_line_end);
        let newline = if before.ends_with('\n') { "" } else { "\n" };
        let revoked = rfc3339(now_ms);
        let text = format!("{before}{newline}revoked = {revoked}\n{after}");
        Self::parse(&self.path, text)
    }

    /// Locks the file against changes by other processes, while the returned guard lives. Blocks
    /// while another process holds the lock. Acquire the lock before a read that a write follows.
    ///
    /// # Errors
    /// The error of the system.
    pub fn lock(path: &Path) -> Result<fs::File, IdentitiesError> {
        let folder = folder_of(path);
        // The lock is on the folder, because a write replaces the file.
        let locked = fs::File::open(folder).and_then(|file| file.lock().map(|()| file));
        locked.map_err(|source| IdentitiesError::Io {
            verb: "lock the folder of",
            path: path.into(),
            source,
        })
    }

    /// Writes a temporary file with mode 0600 and renames it, which replaces the old file
    /// atomically. The owner is unchanged, so that a server under another user can read the file.
    ///
    /// # Errors
    /// The error of the system, also if the owner cannot be preserved. The old file is then
    /// unchanged.
    pub fn write(&self) -> Result<(), IdentitiesError> {
        let io = |source| IdentitiesError::Io {
            verb: "write",
            path: self.path.clone(),
            source,
        };
        let mut new_path = self.path.clone().into_os_string();
        new_path.push(".new");
        let new_path = PathBuf::from(new_path);
        let written = write_private(&new_path, self.text.as_bytes(), true)
            .and_then(|()| copy_owner(&self.path, &new_path))
            .and_then(|()| fs::rename(&new_path, &self.path))
            .and_then(|()| sync_folder(&self.path));
        written.map_err(io)
    }

    /// Returns a file without entries for `path`.
    #[must_use]
    pub fn empty(path: &Path) -> Self {
        Self {
            path: path.into(),
            tokens: Vec::new(),
            certificates: Vec::new(),
            text: String::new(),
        }
    }
}

/// Changes the owner of a new file to that of the file that it replaces, if any.
fn copy_owner(old: &Path, new: &Path) -> io::Result<()> {
    let before = match fs::metadata(old) {
        Ok(before) => before,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let now = fs::metadata(new)?;
    if (before.uid(), before.gid()) == (now.uid(), now.gid()) {
        return Ok(());
    }
    chown(new, Some(before.uid()), Some(before.gid()))
}

/// Writes a file that only its owner may read, and syncs it. Without `replace`, an existing file is
/// an error.
///
/// # Errors
/// The error of the system.
pub fn write_private(path: &Path, bytes: &[u8], replace: bool) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).mode(0o600);
    if replace {
        // A file from an interrupted write may have another mode.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let mut file = options.create_new(true).open(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if written.is_err() {
        // The error of the write is reported, not one of the removal.
        drop(fs::remove_file(path));
    }
    written
}

fn sync_folder(path: &Path) -> io::Result<()> {
    fs::File::open(folder_of(path))?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

type MakeError<'w> = dyn Fn(usize, String) -> IdentitiesError + 'w;

fn token(raw: &RawToken, text: &str, wrong: &MakeError<'_>) -> Result<TokenEntry, IdentitiesError> {
    let id_at = raw.id.span();
    if !is_id(raw.id.get_ref()) {
        return Err(wrong(
            id_at.start,
            "`id` must be 8 hexadecimal digits".into(),
        ));
    }
    let hash = TokenHash::parse(raw.hash.get_ref()).ok_or_else(|| {
        let what = "`hash` must be sha256: and 64 hexadecimal digits, never the token itself";
        wrong(raw.hash.span().start, what.into())
    })?;
    let time = |value: &Spanned<Datetime>| {
        from_toml(value.get_ref()).ok_or_else(|| {
            let what = "a time must have the form 2026-11-20T09:30:00Z";
            wrong(value.span().start, what.into())
        })
    };
    let rest = text.get(id_at.end..).unwrap_or_default();
    Ok(TokenEntry {
        id: raw.id.get_ref().clone(),
        name: name(&raw.name, wrong)?,
        created_ms: time(&raw.created)?,
        expires_ms: raw.expires.as_ref().map(time).transpose()?,
        revoked_ms: raw.revoked.as_ref().map(time).transpose()?,
        rights: raw.rights.iter().map(|r| r.get_ref().clone()).collect(),
        hash,
        grants: grants(&raw.rights, wrong)?,
        id_line_end: id_at.end + rest.find('\n').map_or(rest.len(), |at| at + 1),
    })
}

fn name(raw: &Spanned<String>, wrong: &MakeError<'_>) -> Result<String, IdentitiesError> {
    let name = raw.get_ref();
    let is_visible = name.bytes().all(|byte| byte.is_ascii_graphic());
    if name.is_empty() || name.len() > PRINCIPAL_BYTES_MAX || !is_visible {
        let what = format!("`name` must be 1 to {PRINCIPAL_BYTES_MAX} visible ASCII characters");
        return Err(wrong(raw.span().start, what));
    }
    Ok(name.clone())
}

fn grants(raw: &[Spanned<String>], wrong: &MakeError<'_>) -> Result<Grants, IdentitiesError> {
    let texts = raw.iter().map(|text| text.get_ref().as_str());
    Grants::parse(texts).map_err(|(index, error)| {
        let at = raw.get(index).map_or(0, |text| text.span().start);
        wrong(at, format!("`rights`: {error}"))
    })
}

fn check_unique<'a>(
    names: impl Iterator<Item = &'a Spanned<String>>,
    wrong: &MakeError<'_>,
) -> Result<(), IdentitiesError> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if !seen.insert(name.get_ref()) {
            let what = "an earlier entry has this id or name".into();
            return Err(wrong(name.span().start, what));
        }
    }
    Ok(())
}

/// Returns the message without the values that it quotes from the file.
fn without_values(message: &str) -> String {
    let parts = message.lines().next().unwrap_or_default().split('"');
    let parts: Vec<&str> = parts
        .enumerate()
        .map(|(index, part)| if index % 2 == 0 { part } else { "…" })
        .collect();
    parts.join("\"")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::{IdentitiesError, IdentitiesFile};
    use crate::security::rights::Right;
    use crate::security::tokens::Token;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use std::path::Path;

    const HASH: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn parse(text: &str) -> Result<IdentitiesFile, IdentitiesError> {
        IdentitiesFile::parse(Path::new("ids.toml"), text.to_owned())
    }

    fn entry(extra: &str) -> String {
        format!(
            "# identities\n[[token]]\nid = \"0123abcd\" # first\nname = \"loader\"\n\
             hash = \"{HASH}\"\ncreated = 2026-11-20T09:30:00Z\n{extra}"
        )
    }

    #[test]
    fn concurrent_changes_and_the_owner_are_kept() {
        const EACH: usize = 10;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids.toml");
        IdentitiesFile::empty(&path).write().unwrap();
        // Only a process that may change owners can test this.
        let can_chown = chown(&path, Some(12_345), Some(12_345)).is_ok();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let _lock = IdentitiesFile::lock(&path).unwrap();
                        let token = Token::random().unwrap();
                        let file = IdentitiesFile::read(&path).unwrap();
                        let rights = ["admin".to_owned()];
                        let file = file.with_token(&token, "a", &rights, 0, None).unwrap();
                        file.write().unwrap();
                    }
                });
            }
        });
        let file = IdentitiesFile::read(&path).unwrap();
        assert_eq!(file.tokens.len(), 4 * EACH);
        let metadata = path.metadata().unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o600);
        assert!(!can_chown || (metadata.uid(), metadata.gid()) == (12_345, 12_345));
    }

    #[test]
    fn a_file_is_parsed() {
        let rights = "rights = [\"put,read a.**\", \"admin\"]\n\
                      [[certificate]]\nname = \"node-1.example\"\nrights = [\"all **\"]\n";
        let file = parse(&entry(rights)).unwrap();
        let [token] = &file.tokens[..] else { panic!() };
        assert_eq!(
            (token.id.as_str(), token.name.as_str()),
            ("0123abcd", "loader")
        );
        assert_eq!(token.expires_ms, None);
        assert!(token.grants.allow(Right::Put, "a.b"));
        assert!(!token.grants.allow(Right::Put, "b"));
        assert!(file.certificates[0].grants.allow(Right::Destroy, "x"));
    }

    #[test]
    fn errors_name_the_line_and_quote_no_value() {
        let secret = Token::random().unwrap();
        let secret = secret.expose();
        let token = entry("");
        for (text, line, what) in [
            ("token = 3".to_owned(), 1, "invalid type"),
            (format!("\n\nextra = \"{secret}\""), 3, "unknown field"),
            (token.replace(HASH, secret), 5, "never the token itself"),
            (token.replace("0123abcd", secret), 3, "8 hexadecimal digits"),
            (entry(&format!("expires = \"{secret}\"")), 7, ""),
            (entry("expires = 2026-11-20"), 7, "a time"),
            (
                entry(&format!("rights = [\"{secret}\"]")),
                7,
                "unknown right",
            ),
            (
                entry("rights = [\"read a\",\n\"put\"]"),
                8,
                "without a pattern",
            ),
            (entry(&token), 9, "an earlier entry"),
            (token.replace("loader", "load er"), 4, "visible ASCII"),
            (token.replace("name", "nome"), 4, "unknown field"),
            (token.replace("= \"loader\"", "= "), 4, ""),
        ] {
            let error = parse(&text).map(drop).unwrap_err().to_string();
            let prefix = format!("ids.toml:{line}: ");
            assert!(error.starts_with(&prefix), "{error} is not {prefix}");
            assert!(error.contains(what), "{error}");
            assert!(!error.contains(&secret[5..]), "{error}");
        }
    }

    #[test]
    fn tokens_are_added_and_revoked_without_other_changes() {
        let file = parse(&entry("# mine\n")).unwrap();
        let token = Token::random().unwrap();
        let rights = ["read orders.**".to_owned()];
        let more = file
            .with_token(&token, "reader", &rights, 1_000, Some(2_000))
            .unwrap();
        assert_eq!(more.tokens[1].id, token.id());
        assert_eq!(more.tokens[1].expires_ms, Some(2_000));
        assert!(more.tokens[1].hash.matches(&token.hash()));
        assert!(more.text.contains("# mine") && more.text.contains("# first"));
        assert!(!more.text.contains(token.expose()));
        let less = more.without_token("0123abcd", 5_000).unwrap();
        assert_eq!(less.tokens[0].revoked_ms, Some(5_000));
        assert_eq!(less.tokens[1].revoked_ms, None);
        assert!(less.text.contains("id = \"0123abcd\" # first\nrevoked ="));
        let again = less.without_token("0123abcd", 6_000);
        assert!(matches!(again, Err(IdentitiesError::Revoked { .. })));
        let unknown = less.without_token("00000000", 6_000);
        assert!(matches!(unknown, Err(IdentitiesError::Unknown { .. })));
        let bad = ["put".to_owned()];
        let refused = file.with_token(&token, "reader", &bad, 1_000, None);
        assert!(matches!(refused, Err(IdentitiesError::Invalid { .. })));
    }

    #[test]
    fn the_file_is_private_and_replaced_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids.toml");
        let token = Token::random().unwrap();
        let file = IdentitiesFile::empty(&path);
        let file = file.with_token(&token, "a", &[], 1_000, None).unwrap();
        file.write().unwrap();
        file.write().unwrap();
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(IdentitiesFile::read(&path).unwrap().tokens.len(), 1);
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o620)).unwrap();
        let error = IdentitiesFile::read(&path).map(drop).unwrap_err();
        assert!(matches!(error, IdentitiesError::Open { mode: 0o620, .. }));
        assert!(error.to_string().contains("chmod 600"));
    }
}
