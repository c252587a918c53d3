//! Who is known, ready to be asked.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::identities::{IdentitiesError, IdentitiesFile};
use super::principal::Proof;
use super::rights::Grants;
use super::seen::Seen;
use super::tokens::{TokenHash, id_of};

/// One who is known.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) grants: Grants,
    /// Of a token; a certificate was verified by others.
    hash: Option<TokenHash>,
    expires_ms: Option<u64>,
    revoked: bool,
}

impl Identity {
    /// Whether it is taken at this moment.
    pub(super) fn holds(&self, now_ms: u64) -> bool {
        !self.revoked && self.expires_ms.is_none_or(|end| now_ms < end)
    }
}

/// All of them, as one file said.
#[derive(Debug)]
pub(super) struct Table {
    tokens: HashMap<String, Identity>,
    certificates: HashMap<String, Identity>,
    /// Compared with when there is no entry, so that it takes as long.
    nobody: TokenHash,
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
            nobody: TokenHash::of(""),
        }
    }

    /// The identity that a token proves, with its id. The same work is done
    /// for one that proves none.
    pub(super) fn prove<'t>(&self, token: &'t str, now_ms: u64) -> Option<(&'t str, &Identity)> {
        let shown = TokenHash::of(token);
        let id = id_of(token);
        let found = id.and_then(|id| self.tokens.get(id));
        let kept = found.and_then(|identity| identity.hash.as_ref());
        let equal = kept.unwrap_or(&self.nobody).matches(&shown);
        let found = found.filter(|identity| equal && identity.holds(now_ms));
        id.zip(found)
    }

    /// Returns the identity that was proved before, if the proof still holds.
    pub(super) fn find(&self, name: &str, proof: &Proof) -> Option<&Identity> {
        match proof {
            // The owner is in no file.
            Proof::None | Proof::Owner => None,
            Proof::Token(id) => self.tokens.get(&**id).filter(|found| found.name == name),
            Proof::Certificate => self.certificates.get(name),
        }
    }

    /// Tokens and certificates.
    pub(super) fn len(&self) -> usize {
        self.tokens.len() + self.certificates.len()
    }
}

/// The file and what it said last.
#[derive(Debug)]
pub(super) struct Identities {
    path: PathBuf,
    seen: Seen,
    table: RwLock<Arc<Table>>,
}

impl Identities {
    pub(super) fn read(path: PathBuf) -> Result<Self, IdentitiesError> {
        let seen = Seen::default();
        seen.note(std::iter::once(&*path));
        let table = Table::new(IdentitiesFile::read(&path)?);
        Ok(Self {
            path,
            seen,
            table: RwLock::new(Arc::new(table)),
        })
    }

    /// What the file says now; not yet in force. A file that is wrong is not
    /// tried again until it changes.
    pub(super) fn reread(&self) -> Result<Table, IdentitiesError> {
        self.seen.note(std::iter::once(&*self.path));
        IdentitiesFile::read(&self.path).map(Table::new)
    }

    /// Puts a table in force, for open connections too.
    pub(super) fn put(&self, table: Table) {
        *self.table.write() = Arc::new(table);
    }

    pub(super) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read())
    }

    /// Whether the file is another one than when it was read.
    pub(super) fn has_changed(&self) -> bool {
        self.seen.has_changed(std::iter::once(&*self.path))
    }
}
