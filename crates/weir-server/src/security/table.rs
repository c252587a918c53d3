//! The table of known identities, prepared for checks.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::file_stamps::FileStamps;
use super::identities::{IdentitiesError, IdentitiesFile};
use super::principal::Proof;
use super::rights::Grants;
use super::tokens::{TokenHash, id_of};

/// A known identity.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) grants: Grants,
    /// Hash of a token; `None` for a certificate, which the TLS library has verified.
    hash: Option<TokenHash>,
    expires_ms: Option<u64>,
    revoked: bool,
}

impl Identity {
    /// Whether the identity is valid at `now_ms`.
    pub(super) fn is_valid(&self, now_ms: u64) -> bool {
        !self.revoked && self.expires_ms.is_none_or(|end| now_ms < end)
    }
}

/// All identities of one file.
#[derive(Debug)]
pub(super) struct Table {
    tokens: HashMap<String, Identity>,
    certificates: HashMap<String, Identity>,
    /// Compared if a token has no entry, so that the check takes equally long.
    dummy_hash: TokenHash,
}

impl Table {
    fn new(file: IdentitiesFile) -> Self {
        let token = |entry: super::identities::TokenEntry| {
            let identity = Identity {
                name: entry.name,
                grants: entry.grants,
                hash: Some(entry.hash),
                expires_ms: entry.expires_ms,
                revoked: entry.revoked_ms.is_some(),
            };
            (entry.id, identity)
        };
        let certificate = |entry: super::identities::CertificateEntry| {
            let identity = Identity {
                name: entry.name.clone(),
                grants: entry.grants,
                hash: None,
                expires_ms: None,
                revoked: false,
            };
            (entry.name, identity)
        };
        Self {
            tokens: file.tokens.into_iter().map(token).collect(),
            certificates: file.certificates.into_iter().map(certificate).collect(),
            dummy_hash: TokenHash::of(""),
        }
    }

    /// Returns the identity of a token, with its id. The check of an unknown token takes equally
    /// long.
    pub(super) fn authenticate<'t>(
        &self,
        token: &'t str,
        now_ms: u64,
    ) -> Option<(&'t str, &Identity)> {
        let hash = TokenHash::of(token);
        let id = id_of(token);
        let found = id.and_then(|id| self.tokens.get(id));
        let expected = found.and_then(|identity| identity.hash.as_ref());
        let equal = expected.unwrap_or(&self.dummy_hash).matches(&hash);
        let found = found.filter(|identity| equal && identity.is_valid(now_ms));
        id.zip(found)
    }

    /// Returns the identity that was proved before, if the proof still holds.
    pub(super) fn find(&self, name: &str, proof: &Proof) -> Option<&Identity> {
        match proof {
            // The owner is not in the file.
            Proof::None | Proof::Owner => None,
            Proof::Token(id) => self.tokens.get(&**id).filter(|found| found.name == name),
            Proof::Certificate => self.certificates.get(name),
        }
    }

    /// Number of tokens and certificates.
    pub(super) fn len(&self) -> usize {
        self.tokens.len() + self.certificates.len()
    }
}

/// The file, and its content at the last load.
#[derive(Debug)]
pub(super) struct Identities {
    path: PathBuf,
    stamps: FileStamps,
    table: RwLock<Arc<Table>>,
}

impl Identities {
    pub(super) fn read(path: PathBuf) -> Result<Self, IdentitiesError> {
        let stamps = FileStamps::default();
        stamps.record(std::iter::once(&*path));
        let table = Table::new(IdentitiesFile::read(&path)?);
        Ok(Self {
            path,
            stamps,
            table: RwLock::new(Arc::new(table)),
        })
    }

    /// Parses the current file without applying it. A malformed file is not read again until it
    /// changes.
    pub(super) fn load(&self) -> Result<Table, IdentitiesError> {
        self.stamps.record(std::iter::once(&*self.path));
        IdentitiesFile::read(&self.path).map(Table::new)
    }

    /// Applies a table, also to open connections.
    pub(super) fn apply(&self, table: Table) {
        *self.table.write() = Arc::new(table);
    }

    pub(super) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read())
    }

    /// Whether the file has changed since it was read.
    pub(super) fn has_changed(&self) -> bool {
        self.stamps.has_changed(std::iter::once(&*self.path))
    }
}
