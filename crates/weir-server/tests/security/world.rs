//! A server with its files, and the authority that signs its certificates.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use weir_core::{ConsequenceOffset, Intention, Operation, TopicOptions};
use weir_server::security::{IdentitiesFile, Token};
use weir_server::{Address, Server, ServerConfig};
use weir_store::{Durability, OpenOptions, Store};

use crate::peer::Peer;

/// Longest time that a test waits; then it fails.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// Returns a certificate for these names and its key, in PEM format.
    pub(crate) fn sign(&self, names: &[&str]) -> (String, String) {
        self.sign_until(names, 2050)
    }

    /// As `sign`, but the certificate expires on the first day of a year.
    pub(crate) fn sign_until(&self, names: &[&str], year: i32) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A server, its store and its files.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) store: Arc<Store>,
    pub(crate) native: SocketAddr,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) files: Files,
}

/// The files of a server that is not started yet.
pub(crate) struct Files {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) authority: Authority,
}

impl Files {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("test authority");
        Self { folder, authority }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        // Renamed into place, as `weir` does, so that no reader sees a partial file.
        let temporary = self.path("temporary");
        std::fs::write(&temporary, text).unwrap();
        std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(&temporary, &path).unwrap();
        path
    }

    /// Adds a token for `name` to the file of identities.
    pub(crate) fn token(&self, name: &str, rights: &[&str]) -> Token {
        self.token_until(name, rights, None)
    }

    pub(crate) fn token_until(
        &self,
        name: &str,
        rights: &[&str],
        expires_ms: Option<u64>,
    ) -> Token {
        let token = Token::random().unwrap();
        let rights: Vec<String> = rights.iter().map(|right| (*right).to_owned()).collect();
        let path = self.path("identities.toml");
        let file = IdentitiesFile::read(&path).unwrap_or_else(|_| IdentitiesFile::empty(&path));
        let file = file
            .with_token(&token, name, &rights, 1_000, expires_ms)
            .unwrap();
        file.write().unwrap();
        token
    }

    /// Writes a server certificate for these names.
    pub(crate) fn certificate(&self, authority: &Authority, names: &[&str]) {
        let (certificate, key) = authority.sign(names);
        self.write("server.pem", &certificate);
        self.write("server.key", &key);
    }

    /// Returns a configuration with the existing files.
    pub(crate) fn config(&self) -> ServerConfig {
        let existing = |name: &str| Some(self.path(name)).filter(|path| path.exists());
        let mut config = ServerConfig::default();
        config.http = None;
        config.native = Some(loopback());
        config.threads = 2;
        config.identities = existing("identities.toml");
        config.tls_cert = existing("server.pem");
        config.tls_key = existing("server.key");
        config.tls_client_ca = existing("clients.pem");
        config
    }

    pub(crate) fn start(self, change: impl FnOnce(&mut ServerConfig)) -> World {
        let store = self.store();
        self.serve(store, change)
    }

    /// As `start`, for an open store.
    pub(crate) fn serve(self, store: Arc<Store>, change: impl FnOnce(&mut ServerConfig)) -> World {
        let mut config = self.config();
        change(&mut config);
        let server = Server::start(config, Arc::clone(&store)).unwrap();
        World {
            native: server.native_addr().unwrap(),
            http: server.http_addr(),
            server,
            store,
            files: self,
        }
    }

    pub(crate) fn store(&self) -> Arc<Store> {
        let options = OpenOptions {
            durability: Durability::Memory,
            ..OpenOptions::default()
        };
        Arc::new(Store::open(&self.path("store"), &options).unwrap())
    }
}

pub(crate) fn loopback() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

impl World {
    /// A connection without TLS and without HELLO.
    pub(crate) fn plain(&self) -> Peer {
        Peer::plain(self.native)
    }

    /// A TLS connection to a server of the usual authority.
    pub(crate) fn secure(&self) -> Peer {
        let roots = &[self.files.authority.pem.as_str()];
        Peer::secure(self.native, "localhost", client(roots, None)).unwrap()
    }

    pub(crate) fn create(&self, topic: &str) {
        let options = TopicOptions::default();
        let create = Intention::new(topic, Operation::Create { options: &options });
        self.store.propose(&[create]).unwrap().wait().unwrap();
    }

    /// Returns the values of the records of a topic, as text.
    pub(crate) fn values(&self, topic: &str) -> Vec<String> {
        let Ok(mut reader) = self.store.read(topic, ConsequenceOffset::ZERO) else {
            return Vec::new();
        };
        let mut values = Vec::new();
        while let Some(page) = reader.next_page().unwrap() {
            for record in &page {
                let record = record.unwrap();
                values.push(String::from_utf8(record.value.to_vec()).unwrap());
            }
        }
        values
    }

    /// Waits until the audit log has a record with all of these words.
    pub(crate) fn audited(&self, words: &[&str]) -> String {
        let topic = weir_server::security::AUDIT_TOPIC;
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            let values = self.values(topic);
            let found = values
                .iter()
                .find(|value| words.iter().all(|word| value.contains(word)));
            if let Some(found) = found {
                return found.clone();
            }
            assert!(
                Instant::now() < end,
                "no record of {words:?} in {values:#?}"
            );
            std::thread::yield_now();
        }
    }
}

/// The authorities that a client trusts, and its certificate.
pub(crate) fn client(roots: &[&str], own: Option<(&str, &str)>) -> Arc<ClientConfig> {
    let mut store = RootCertStore::empty();
    for pem in roots {
        store
            .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
            .unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(store);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    Arc::new(config)
}

/// Returns the files of this folder that contain the text.
pub(crate) fn files_containing(folder: &Path, needle: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_containing(&path, needle));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            if bytes.windows(needle.len()).any(|window| window == needle) {
                found.push(path);
            }
        }
    }
    found
}
