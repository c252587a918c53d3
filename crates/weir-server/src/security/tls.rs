//! TLS for both ports: certificates, their renewal, and client certificates.
//!
//! Invariants:
//! - The served configuration changes as a whole, after all files were read and match.
//! - Open connections continue with their configuration.
//! - A key is read only from a file that other users cannot read.
//! - A client certificate is verified before its names are used.

use parking_lot::RwLock;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};
use thiserror::Error;
use weir_raft::{PeerConfigs, PeerTls};

use super::certificate::{CertificateError, CertificateFields};
use super::file_stamps::FileStamps;
use crate::config::ClientCertificates;

/// Maximum size of a file of certificates or keys, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Mode bits that a key file must not have: other users may not access it, and the group may not
/// change it.
const KEY_MODE_FORBIDDEN: u32 = 0o027;

/// The files of TLS, and the settings for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) client_authority: Option<PathBuf>,
    pub(crate) client: ClientCertificates,
    /// Whether TLS 1.2 is accepted in addition to 1.3.
    pub(crate) tls12: bool,
}

/// Why files of TLS are not accepted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// An error of the system.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// Other users could read a key.
    #[error("{0}: mode {1:04o} lets other users read the key; run `chmod 600 {0}`", path.display(), mode)]
    Open {
        /// The file.
        path: PathBuf,
        /// The mode of the file.
        mode: u32,
    },
    /// The file lacks its expected content.
    #[error("{}: no {what} in PEM format", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// "certificate" or "private key".
        what: &'static str,
    },
    /// The file exceeds the maximum size.
    #[error("{}: the file is larger than {max} bytes; remove the certificates that are not needed", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Maximum size in bytes.
        max: u64,
    },
    /// A certificate that cannot be parsed.
    #[error("{}: {source}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The error.
        source: CertificateError,
    },
    /// An expired certificate.
    #[error("{}: the certificate expired on {}", path.display(), super::rfc3339(*expired_ms))]
    Expired {
        /// The file.
        path: PathBuf,
        /// End of its validity, in milliseconds since 1970.
        expired_ms: u64,
    },
    /// An error of the TLS library; usually the key does not match the certificate.
    #[error("{}: {source}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The error.
        source: rustls::Error,
    },
    /// The authority for client certificates is not valid.
    #[error("{}: {source}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The error.
        source: rustls::server::VerifierBuilderError,
    },
}

/// The configurations that are served now.
#[derive(Clone, Debug)]
pub(crate) struct TlsConfigs {
    pub(crate) http: Arc<ServerConfig>,
    pub(crate) native: Arc<ServerConfig>,
    /// End of the server certificate's validity, in milliseconds since 1970.
    pub(crate) expires_ms: u64,
}

/// The files, and their content at the last load.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    configs: RwLock<TlsConfigs>,
    stamps: FileStamps,
}

impl Tls {
    pub(crate) fn read(files: TlsFiles, now_ms: u64) -> Result<Self, TlsError> {
        let stamps = FileStamps::default();
        stamps.record(files.paths());
        let configs = RwLock::new(read(&files, now_ms)?);
        Ok(Self {
            files,
            configs,
            stamps,
        })
    }

    /// Parses the current files without applying them. Malformed files are not read again until
    /// they change.
    pub(crate) fn load(&self, now_ms: u64) -> Result<TlsConfigs, TlsError> {
        let has_changed = self.has_changed();
        self.stamps.record(self.files.paths());
        match read(&self.files, now_ms) {
            // The served certificate has expired since. That must not prevent a reload of the
            // identities, for example after a revocation.
            Err(TlsError::Expired { expired_ms, .. })
                if !has_changed && expired_ms == self.configs().expires_ms =>
            {
                Ok(self.configs())
            }
            loaded => loaded,
        }
    }

    /// Applies a configuration to new connections.
    pub(crate) fn apply(&self, configs: TlsConfigs) {
        *self.configs.write() = configs;
    }

    /// Whether a file has changed since it was read.
    pub(crate) fn has_changed(&self) -> bool {
        self.stamps.has_changed(self.files.paths())
    }

    pub(crate) fn configs(&self) -> TlsConfigs {
        self.configs.read().clone()
    }
}

impl TlsFiles {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let paths = [&self.certificate, &self.key].into_iter();
        paths
            .chain(self.client_authority.as_ref())
            .map(PathBuf::as_path)
    }
}

fn read(files: &TlsFiles, now_ms: u64) -> Result<TlsConfigs, TlsError> {
    let chain = certificates(&files.certificate)?;
    let path = || files.certificate.clone();
    let own = chain.first().map(AsRef::as_ref).unwrap_or_default();
    let own = CertificateFields::read(own).map_err(|source| TlsError::Certificate {
        path: path(),
        source,
    })?;
    if own.not_after_ms < now_ms {
        return Err(TlsError::Expired {
            path: path(),
            expired_ms: own.not_after_ms,
        });
    }
    let key = key(&files.key)?;
    let refused = |source| TlsError::Refused {
        path: path(),
        source,
    };
    let versions: &[_] = if files.tls12 {
        &[&version::TLS13, &version::TLS12]
    } else {
        &[&version::TLS13]
    };
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(refused)?;
    let builder = match (files.client, &files.client_authority) {
        (ClientCertificates::Off, _) | (_, None) => builder.with_no_client_auth(),
        (client, Some(path)) => {
            let roots = Arc::new(authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let verifier = match client {
                ClientCertificates::Required => verifier,
                _ => verifier.allow_unauthenticated(),
            };
            let verifier = verifier.build().map_err(|source| TlsError::Authority {
                path: path.clone(),
                source,
            })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(refused)?;
    // A new ticketer for each load, so that no session from another client authority is resumed.
    config.ticketer = ring::Ticketer::new().map_err(refused)?;
    let mut http = config.clone();
    http.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.alpn_protocols = vec![b"weir/1".to_vec()];
    Ok(TlsConfigs {
        http: Arc::new(http),
        native: Arc::new(config),
        expires_ms: own.not_after_ms,
    })
}

/// TLS files for connections between the nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFiles {
    /// Certificate of this node, and the intermediate certificates.
    pub certificate: PathBuf,
    /// Private key of this node.
    pub key: PathBuf,
    /// The authority of all nodes.
    pub authority: PathBuf,
}

/// The files of TLS between nodes, and their content at the last load. A changed file applies to
/// the next connection. If it is not valid, the error is logged and the previous content stays in
/// use.
#[derive(Debug)]
pub(crate) struct PeerCertificates {
    files: PeerFiles,
    loaded: RwLock<LoadedPeer>,
    stamps: FileStamps,
}

#[derive(Clone, Debug)]
struct LoadedPeer {
    configs: PeerConfigs,
    /// End of the validity of the node's certificate, in milliseconds since 1970.
    expires_ms: u64,
}

impl PeerCertificates {
    /// Fails if the files are not valid.
    pub(crate) fn read(files: &PeerFiles) -> Result<Arc<Self>, TlsError> {
        let stamps = FileStamps::default();
        stamps.record(files.paths());
        Ok(Arc::new(Self {
            files: files.clone(),
            loaded: RwLock::new(read_peer(files)?),
            stamps,
        }))
    }

    /// TLS with these files.
    pub(crate) fn tls(self: &Arc<Self>) -> PeerTls {
        let own = Arc::clone(self);
        PeerTls::new(move || Ok(own.current().configs))
    }

    /// End of the validity of the node's certificate, in milliseconds since 1970.
    pub(crate) fn expires_ms(&self) -> u64 {
        self.current().expires_ms
    }

    fn current(&self) -> LoadedPeer {
        if self.stamps.has_changed(self.files.paths()) {
            self.stamps.record(self.files.paths());
            match read_peer(&self.files) {
                Ok(new) => *self.loaded.write() = new,
                Err(error) => {
                    tracing::error!(%error, "the certificates of the node were not reloaded");
                }
            }
        }
        self.loaded.read().clone()
    }
}

impl PeerFiles {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let paths = [&self.certificate, &self.key, &self.authority];
        paths.into_iter().map(PathBuf::as_path)
    }
}

fn read_peer(files: &PeerFiles) -> Result<LoadedPeer, TlsError> {
    let path = &files.certificate;
    let chain = certificates(path)?;
    let own = chain.first().map(AsRef::as_ref).unwrap_or_default();
    let own = CertificateFields::read(own).map_err(|source| TlsError::Certificate {
        path: path.clone(),
        source,
    })?;
    if own.not_after_ms < super::now_ms() {
        return Err(TlsError::Expired {
            path: path.clone(),
            expired_ms: own.not_after_ms,
        });
    }
    let key = key(&files.key)?;
    let roots = Arc::new(authorities(&files.authority)?);
    let refused = |source| TlsError::Refused {
        path: path.clone(),
        source,
    };
    let provider = Arc::new(ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
    let verifier = verifier.build().map_err(|source| TlsError::Authority {
        path: files.authority.clone(),
        source,
    })?;
    let nodes =
        WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
    let nodes = nodes.build().map_err(|source| TlsError::Authority {
        path: files.authority.clone(),
        source,
    })?;
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&version::TLS13])
        .map_err(refused)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(refused)?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .map_err(refused)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(refused)?;
    let (server, client) = (Arc::new(server), Arc::new(client));
    Ok(LoadedPeer {
        configs: PeerConfigs {
            server,
            client,
            verifier: nodes,
        },
        expires_ms: own.not_after_ms,
    })
}

/// Reads a file of at most [`FILE_BYTES_MAX`] bytes; returns its content and mode.
fn read_file(path: &Path) -> Result<(Vec<u8>, u32), TlsError> {
    let io = |source| TlsError::Io {
        path: path.into(),
        source,
    };
    let file = fs::File::open(path).map_err(io)?;
    let mode = file.metadata().map_err(io)?.mode() & 0o7777;
    let mut text = Vec::new();
    let mut limited = file.take(FILE_BYTES_MAX + 1);
    limited.read_to_end(&mut text).map_err(io)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(TlsError::TooLarge {
            path: path.into(),
            max: FILE_BYTES_MAX,
        });
    }
    Ok((text, mode))
}

/// Returns the certificates of a PEM file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let missing = || TlsError::Missing {
        path: path.into(),
        what: "certificate",
    };
    let (text, _) = read_file(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|_| missing())?;
    if found.is_empty() {
        return Err(missing());
    }
    Ok(found)
}

/// Returns the fields of the certificates of a PEM file, for display.
///
/// # Errors
/// If it cannot be read, has no certificate, or one of them is not valid.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateFields>, TlsError> {
    let fields = |certificate: &CertificateDer<'_>| {
        CertificateFields::read(certificate).map_err(|source| TlsError::Certificate {
            path: path.into(),
            source,
        })
    };
    certificates(path)?.iter().map(fields).collect()
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let (text, mode) = read_file(path)?;
    if mode & KEY_MODE_FORBIDDEN != 0 {
        return Err(TlsError::Open {
            path: path.into(),
            mode,
        });
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| TlsError::Missing {
        path: path.into(),
        what: "private key",
    })
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|source| TlsError::Refused {
            path: path.into(),
            source,
        })?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Writes a certificate that has expired, and its key.
    fn write_expired(files: &TlsFiles) {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        for (path, text) in [
            (&files.certificate, certificate.pem()),
            (&files.key, key.serialize_pem()),
        ] {
            let new_path = path.with_extension("new");
            fs::write(&new_path, text).unwrap();
            fs::set_permissions(&new_path, Permissions::from_mode(0o600)).unwrap();
            fs::rename(&new_path, path).unwrap();
        }
    }

    #[test]
    fn a_served_certificate_that_expires_does_not_prevent_a_reload() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles {
            certificate: folder.path().join("server.pem"),
            key: folder.path().join("server.key"),
            client_authority: None,
            client: ClientCertificates::Off,
            tls12: false,
        };
        write_expired(&files);
        let served = Tls::read(files.clone(), 0).unwrap();
        let later_ms = served.configs().expires_ms + 1;
        assert!(served.load(later_ms).is_ok());
        // An expired certificate is not accepted as a new one.
        write_expired(&files);
        let error = served.load(later_ms).unwrap_err();
        assert!(matches!(error, TlsError::Expired { .. }), "{error}");
    }
}
