//! Configurations with which a server refuses to start.

use std::sync::Arc;

use weir_server::security::{ClientCertificates, IdentitiesError, TlsError};
use weir_server::{Address, MissingProtection, Server, ServerConfig, ServerError};

use crate::world::{Authority, Files};

fn start(files: &Files, config: ServerConfig) -> Result<Server, ServerError> {
    Server::start(config, files.store())
}

/// Every combination of address, TLS, identities and flags.
#[test]
fn a_public_address_needs_each_protection_or_its_flag() {
    let files = Files::new();
    files.token("a", &[]);
    files.certificate(&files.authority, &["localhost"]);
    let everywhere: Address = "0.0.0.0:0".parse().unwrap();
    let here: Address = "127.0.0.1:0".parse().unwrap();
    let store = files.store();
    let mut refused = 0;
    for case in 0..32_u32 {
        let [open, tls, known, no_tls, no_auth] = [1, 2, 4, 8, 16].map(|bit| case & bit != 0);
        let mut config = files.config();
        config.native = Some(if open { everywhere } else { here });
        if !tls {
            (config.tls_cert, config.tls_key) = (None, None);
        }
        config.identities = config.identities.filter(|_| known);
        config.insecure_no_tls = no_tls;
        config.insecure_no_auth = no_auth;
        let started = Server::start(config, Arc::clone(&store));
        let expected = match () {
            () if open && !tls && !no_tls => Some((MissingProtection::Tls, "--insecure-no-tls")),
            () if open && !known && !no_auth => {
                Some((MissingProtection::Identities, "--insecure-no-auth"))
            }
            () => None,
        };
        match (started, expected) {
            (Ok(server), None) => {
                let warnings = usize::from(open && !tls) + usize::from(open && !known);
                assert_eq!(server.warnings().len(), warnings, "case {case:05b}");
            }
            (Err(ServerError::Exposed { missing, .. }), Some((wanted, flag))) => {
                assert_eq!(missing, wanted);
                assert!(missing.to_string().contains(flag), "{missing}");
                refused += 1;
            }
            (other, _) => panic!("case {case:05b}: {other:?}"),
        }
    }
    assert_eq!(
        refused,
        4 + 3,
        "four without TLS, and three more without identities"
    );
}

#[test]
fn contradictory_settings_are_reported() {
    let files = Files::new();
    files.token("a", &[]);
    files.certificate(&files.authority, &["localhost"]);
    files.write("clients.pem", &files.authority.pem);
    let check = |words: &str, change: fn(&mut ServerConfig)| {
        let mut config = files.config();
        config.tls_client = ClientCertificates::Required;
        change(&mut config);
        let error = start(&files, config).unwrap_err();
        assert!(matches!(error, ServerError::Config { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    };
    check("tls_cert and tls_key", |config| config.tls_key = None);
    check("needs tls_client_ca", |config| config.tls_client_ca = None);
    check("needs identities", |config| config.identities = None);
    check("tls_client_ca needs tls_client", |config| {
        config.tls_client = ClientCertificates::Off;
    });
    check("needs tls_cert", |config| {
        (config.tls_cert, config.tls_key) = (None, None);
    });
}

#[test]
fn unusable_files_are_reported_with_a_remedy() {
    use std::os::unix::fs::PermissionsExt;
    let files = Files::new();
    files.token("a", &[]);
    files.certificate(&files.authority, &["localhost"]);
    let failed = || start(&files, files.config()).unwrap_err();
    let mode = |name: &str, mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(files.path(name), mode).unwrap();
    };

    mode("server.key", 0o644);
    let error = failed();
    assert!(
        matches!(error, ServerError::Tls(TlsError::Open { .. })),
        "{error:?}"
    );
    assert!(error.to_string().contains("chmod 600"), "{error}");
    mode("server.key", 0o600);
    mode("identities.toml", 0o666);
    let error = failed();
    assert!(matches!(
        error,
        ServerError::Identities(IdentitiesError::Open { .. })
    ));
    mode("identities.toml", 0o600);

    let (_, other_key) = files.authority.sign(&["localhost"]);
    files.write("server.key", &other_key);
    let error = failed();
    assert!(
        matches!(error, ServerError::Tls(TlsError::Refused { .. })),
        "{error:?}"
    );

    let (expired, key) = files.authority.sign_until(&["localhost"], 2020);
    files.write("server.pem", &expired);
    files.write("server.key", &key);
    let error = failed().to_string();
    assert!(
        error.contains("server.pem") && error.contains("expired on 2020-01-01"),
        "{error}"
    );

    files.certificate(&Authority::new("x"), &["localhost"]);
    files.write("server.pem", "hello");
    let error = failed().to_string();
    assert!(
        error.contains("server.pem: no certificate in PEM format"),
        "{error}"
    );

    files.write("identities.toml", "[[token]]\nid = \"no\"\n");
    let error = failed().to_string();
    assert!(
        error.contains("identities.toml:1: missing field"),
        "{error}"
    );
}
