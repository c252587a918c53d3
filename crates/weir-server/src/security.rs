//! Authentication, authorization, rate limits, TLS and the audit log of the server.
//! The guide for operators is docs/operating/security.md.
//!
//! Without identities every request is allowed, so a server without them listens
//! on loopback unless its configuration names another address. With identities
//! a request is denied unless a grant allows it.
//!
//! Invariants:
//! - A file is loaded whole or not at all, and a malformed one changes nothing.
//! - A grant that is revoked no longer holds for open connections.
//! - No secret is in a log, an error, a record or a debug print.
//! - No request waits for a file or for the audit log.

mod accept;
mod audit;
mod certificate;
mod file_stamps;
mod identities;
mod moment;
mod needs;
mod principal;
mod rate;
mod rights;
mod stream;
mod table;
mod tls;
mod tokens;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use weir_core::{ErrorCode, Intention};

pub use self::audit::AUDIT_TOPIC;
pub use self::certificate::{CertificateError, CertificateFields};
pub use self::identities::{
    CertificateEntry, ENTRIES_MAX, IDENTITIES_BYTES_MAX, IdentitiesError, IdentitiesFile,
    TokenEntry, write_private,
};
pub use self::moment::{now_ms, rfc3339};
pub use self::rights::{GRANTS_MAX, Grants, PATTERNS_MAX, Right, RightsError};
pub use self::tls::{PeerFiles, TlsError, read_certificates};
pub use self::tokens::{TOKEN_BYTES_MAX, Token, TokenHash};

pub(crate) use self::accept::Protocol;
pub(crate) use self::audit::{Audit, Decision};
pub(crate) use self::moment::from_rfc3339;
pub(crate) use self::principal::Principal;
pub(crate) use self::rate::network;
pub(crate) use self::rights::EVERY_TOPIC;
pub(crate) use self::stream::Stream;

use self::accept::Handshakes;
use self::principal::Proof;
use self::rate::{Limits, Rates};
use self::table::Identities;
pub(crate) use self::tls::PeerCertificates;
use self::tls::{Tls, TlsFiles};
pub use crate::config::ClientCertificates;
use crate::config::{Rate, ServerConfig};

/// Principal name for the Unix socket. It contains a space, and names in the file of identities
/// contain none, so the two never collide.
const OWNER: &str = "store owner";
/// Interval at which files are checked for changes.
pub(crate) const RELOAD_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Files of identities or TLS that are not valid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecurityError {
    /// The file of identities.
    #[error(transparent)]
    Identities(#[from] IdentitiesError),
    /// Files of TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A request that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied {
    /// The missing right.
    pub(crate) right: Right,
    /// UNAUTHENTICATED or FORBIDDEN.
    pub(crate) code: ErrorCode,
}

/// The first intention that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotAllowed {
    /// Index of the intention, from 0.
    pub(crate) index: usize,
    /// The topic for which the right is missing.
    pub(crate) topic: String,
    pub(crate) denied: Denied,
}

/// A token that proves no identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RejectedToken {
    /// How long the address should wait before its next attempt; `None`: no wait.
    pub(crate) retry: Option<Duration>,
}

/// The security state of a server, shared by all ports.
#[derive(Debug)]
pub(crate) struct Security {
    identities: Option<Identities>,
    tls: Option<Tls>,
    /// Rate limits of connections from this machine, and from other machines.
    rates: [Rates; 2],
    audit: Option<Audit>,
    handshakes: Handshakes,
    epoch: AtomicU64,
    counts: Counts,
}

/// Security counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Requests without the needed right.
    pub(crate) forbidden: AtomicU64,
    /// Requests and tokens without a known identity.
    pub(crate) unauthenticated: AtomicU64,
    /// Requests that exceeded a rate limit.
    pub(crate) paused: AtomicU64,
    /// Reloads of the files, including failed ones.
    pub(crate) reloads: AtomicU64,
    /// Reloads that failed.
    pub(crate) reloads_failed: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Security {
    /// Opens the files that the configuration names.
    pub(crate) fn open(config: &ServerConfig) -> Result<Self, SecurityError> {
        let identities = config
            .identities
            .clone()
            .map(Identities::read)
            .transpose()?;
        let files = config.tls_cert.clone().zip(config.tls_key.clone());
        let files = files.map(|(certificate, key)| TlsFiles {
            certificate,
            key,
            client_authority: config.tls_client_ca.clone(),
            client: config.tls_client,
            tls12: config.tls12,
        });
        let tls = files.map(|files| Tls::read(files, now_ms())).transpose()?;
        let rates = |local: bool| {
            let limits = Limits {
                requests: config.rate_requests.units(local, Rate::REQUESTS),
                bytes: config.rate_bytes.units(local, Rate::BYTES),
                fuel: config.rate_fuel.units(local, Rate::FUEL),
            };
            Rates::new(limits, limits)
        };
        let audited = config.audit.unwrap_or(identities.is_some());
        Ok(Self {
            identities,
            tls,
            rates: [rates(true), rates(false)],
            audit: audited.then(Audit::new),
            handshakes: Handshakes::default(),
            epoch: AtomicU64::new(1),
            counts: Counts::default(),
        })
    }

    /// Whether callers must authenticate.
    pub(crate) fn required(&self) -> bool {
        self.identities.is_some()
    }

    /// The security counters.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// End of the server certificate's validity, in milliseconds since 1970.
    pub(crate) fn certificate_expires_ms(&self) -> Option<u64> {
        self.tls.as_ref().map(|tls| tls.configs().expires_ms)
    }

    /// Whether connections use TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The audit log, if enabled.
    pub(crate) fn audit(&self) -> Option<&Audit> {
        self.audit.as_ref()
    }

    /// Returns the principal of a new connection, by its peer address and its verified certificate.
    pub(crate) fn caller(
        &self,
        peer: Option<SocketAddr>,
        certificates: Option<&[CertificateDer<'_>]>,
    ) -> Principal {
        let certificate = certificates.and_then(<[_]>::first);
        let (name, proof) =
            match certificate.and_then(|certificate| self.certificate_name(certificate)) {
                Some(name) => (name, Proof::Certificate),
                None => (String::new(), Proof::None),
            };
        self.principal(name, peer, proof)
    }

    /// Returns the principal of the Unix socket.
    pub(crate) fn owner(&self) -> Principal {
        let name = if self.required() { OWNER } else { "" };
        self.principal(name.to_owned(), None, Proof::Owner)
    }

    /// Returns the first name in the certificate that is a known identity. Otherwise returns its
    /// first name, which has no rights but appears in the audit log.
    fn certificate_name(&self, certificate: &CertificateDer<'_>) -> Option<String> {
        let fields = CertificateFields::read(certificate).ok()?;
        let table = self.identities.as_ref()?.table();
        let mut names = fields.names.iter();
        let known = names.find(|name| table.find(name, &Proof::Certificate).is_some());
        known.or(fields.names.first()).cloned()
    }

    fn principal(&self, name: String, peer: Option<SocketAddr>, proof: Proof) -> Principal {
        let accounts = self
            .rates(peer)
            .accounts_of(&name, peer.map(|peer| peer.ip()));
        Principal {
            name,
            peer,
            proof,
            accounts,
        }
    }

    fn rates(&self, peer: Option<SocketAddr>) -> &Rates {
        let [local, others] = &self.rates;
        match peer {
            Some(peer) if !peer.ip().to_canonical().is_loopback() => others,
            _ => local,
        }
    }

    /// Returns the principal of a token on a connection of `caller`. Without identities, the token
    /// is ignored. A valid token is accepted even after many failures from its address.
    ///
    /// # Errors
    /// If the token proves no identity. The error does not contain the cause.
    pub(crate) fn authenticate(
        &self,
        token: &[u8],
        caller: &Principal,
    ) -> Result<Principal, RejectedToken> {
        let Some(identities) = &self.identities else {
            return Ok(caller.clone());
        };
        let table = identities.table();
        let text = std::str::from_utf8(token).ok();
        let text = text
            .filter(|text| text.len() <= TOKEN_BYTES_MAX)
            .unwrap_or_default();
        if let Some((id, identity)) = table.authenticate(text, now_ms()) {
            let proof = Proof::Token(id.into());
            return Ok(self.principal(identity.name.clone(), caller.peer, proof));
        }
        count(&self.counts.unauthenticated);
        if let Some(audit) = &self.audit {
            // The id is not secret, and shows which token was tried.
            let id = tokens::id_of(text).unwrap_or("no token");
            audit.note(
                Decision::Unauthenticated,
                "authenticate",
                "",
                "",
                caller.peer,
                id,
            );
        }
        let failed = caller
            .peer
            .map(|peer| self.rates(Some(peer)).failed(peer.ip()));
        Err(RejectedToken {
            retry: failed.and_then(Result::err),
        })
    }

    /// Checks that the principal has the right on the topic. An empty topic means the server as a
    /// whole, or any topic. Every request of every port is checked here, so a revoked right is
    /// denied at once.
    pub(crate) fn authorize(
        &self,
        principal: &Principal,
        right: Right,
        topic: &str,
    ) -> Result<(), Denied> {
        self.authorize_and_record(principal, right, topic, right.is_administration())
    }

    /// As [`authorize`](Self::authorize), for a request for the status or the metrics, which needs
    /// the right `admin`. The audit has no record of an allowed one: the record would change the
    /// state that the request reads.
    pub(crate) fn authorize_status(&self, principal: &Principal) -> Result<(), Denied> {
        self.authorize_and_record(principal, Right::Admin, "", false)
    }

    fn authorize_and_record(
        &self,
        principal: &Principal,
        right: Right,
        topic: &str,
        records_allowed: bool,
    ) -> Result<(), Denied> {
        let allowed = self.check_right(principal, right, topic);
        match allowed {
            Ok(()) => {}
            Err(ErrorCode::Unauthenticated) => count(&self.counts.unauthenticated),
            Err(_) => count(&self.counts.forbidden),
        }
        if let Some(audit) = &self.audit {
            let decision = match allowed {
                Ok(()) if records_allowed => Some(Decision::Allowed),
                Ok(()) => None,
                Err(ErrorCode::Unauthenticated) => Some(Decision::Unauthenticated),
                Err(_) => Some(Decision::Denied),
            };
            if let Some(decision) = decision {
                let name = &principal.name;
                audit.note(decision, right.name(), topic, name, principal.peer, "");
            }
        }
        allowed.map_err(|code| Denied { right, code })
    }

    /// Checks that the principal may propose all of these intentions. Consecutive intentions with
    /// equal needs are checked once; `checked` was checked before.
    pub(crate) fn allow(
        &self,
        principal: &Principal,
        checked: Option<(Right, &str)>,
        intentions: &[Intention<'_>],
    ) -> Result<(), NotAllowed> {
        let mut before = checked;
        for (index, intention) in intentions.iter().enumerate() {
            for need in needs::needs(intention) {
                if before == Some(need) || checked == Some(need) {
                    continue;
                }
                before = Some(need);
                let (right, topic) = need;
                if let Err(denied) = self.authorize(principal, right, topic) {
                    let topic = topic.to_owned();
                    return Err(NotAllowed {
                        index,
                        topic,
                        denied,
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether the principal has a right, without an entry in the audit log.
    pub(crate) fn has(&self, principal: &Principal, right: Right, topic: &str) -> bool {
        self.check_right(principal, right, topic).is_ok()
    }

    fn check_right(
        &self,
        principal: &Principal,
        right: Right,
        topic: &str,
    ) -> Result<(), ErrorCode> {
        let Some(identities) = &self.identities else {
            return Ok(());
        };
        if principal.proof == Proof::Owner {
            return Ok(());
        }
        let table = identities.table();
        let identity = table.find(&principal.name, &principal.proof);
        match identity.filter(|identity| identity.is_valid(now_ms())) {
            Some(identity) if identity.grants.allow(right, topic) => Ok(()),
            Some(_) => Err(ErrorCode::Forbidden),
            None if principal.proof == Proof::Certificate => Err(ErrorCode::Forbidden),
            None => Err(ErrorCode::Unauthenticated),
        }
    }

    /// Whether the principal may read the topic. Lists use it, because they omit entries instead of
    /// denying the request, and so do open listeners.
    pub(crate) fn can_read(&self, principal: &Principal, topic: &str) -> bool {
        self.check_right(principal, Right::Read, topic).is_ok()
    }

    /// Whether the principal's identity is still valid.
    pub(crate) fn is_valid(&self, principal: &Principal) -> bool {
        let Some(identities) = &self.identities else {
            return true;
        };
        if principal.proof == Proof::Owner {
            return true;
        }
        let table = identities.table();
        let identity = table.find(&principal.name, &principal.proof);
        identity.is_some_and(|identity| identity.is_valid(now_ms()))
    }

    /// A number that changes with each reload of the identities.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Charges a request of this many items and bytes.
    ///
    /// # Errors
    /// The time to wait, for a RATE response.
    pub(crate) fn admit(
        &self,
        principal: &Principal,
        items: u64,
        bytes: u64,
    ) -> Result<(), Duration> {
        let rates = self.rates(principal.peer);
        let admitted = rates.admit(&principal.accounts, items, bytes);
        admitted.inspect_err(|_| count(&self.counts.paused))
    }

    /// Charges bytes of the body of a request.
    pub(crate) fn charge_bytes(&self, principal: &Principal, bytes: u64) {
        self.rates(principal.peer)
            .charge_bytes(&principal.accounts, bytes);
    }

    /// Charges the fuel that an executed write used.
    pub(crate) fn charge_fuel(&self, principal: &Principal, fuel: u64) {
        self.rates(principal.peer)
            .charge_fuel(&principal.accounts, fuel);
    }

    /// Reloads all files. On success, all of them apply, also to open connections; on failure,
    /// nothing has changed.
    pub(crate) fn reload(&self) -> Result<(), SecurityError> {
        let reloaded = self.try_reload();
        count(&self.counts.reloads);
        if reloaded.is_err() {
            count(&self.counts.reloads_failed);
        }
        let text = match &reloaded {
            Ok(()) => {
                let count = self
                    .identities
                    .as_ref()
                    .map(|identities| identities.table().len());
                tracing::info!(
                    identities = count,
                    tls = self.has_tls(),
                    "files of identities and TLS reloaded"
                );
                String::new()
            }
            Err(error) => {
                tracing::error!(%error, "a file of identities or TLS is not valid; nothing was changed");
                error.to_string()
            }
        };
        if let Some(audit) = &self.audit {
            let decision = match reloaded {
                Ok(()) => Decision::Allowed,
                Err(_) => Decision::Failed,
            };
            audit.note(decision, "reload", "", "", None, &text);
        }
        reloaded
    }

    fn try_reload(&self) -> Result<(), SecurityError> {
        // Both are read, and their stamps recorded, even if one is malformed.
        let table = self.identities.as_ref().map(Identities::load).transpose();
        let configs = self.tls.as_ref().map(|tls| tls.load(now_ms())).transpose();
        let (table, configs) = (table?, configs?);
        if let Some((identities, table)) = self.identities.as_ref().zip(table) {
            identities.apply(table);
            self.epoch.fetch_add(1, Ordering::Release);
        }
        if let Some((tls, configs)) = self.tls.as_ref().zip(configs) {
            tls.apply(configs);
        }
        Ok(())
    }

    /// Reloads the files if one of them has changed. Blocks on the disk.
    pub(crate) fn reload_changed(&self) {
        let changed = self
            .identities
            .as_ref()
            .is_some_and(Identities::has_changed)
            || self.tls.as_ref().is_some_and(Tls::has_changed);
        if changed {
            // `reload` logs the error and records it in the audit log.
            drop(self.reload());
        }
    }

    /// Returns warnings for the operator who starts the server. `peer_expires_ms` is the end of the
    /// validity of the node's certificate for its peers, in milliseconds since 1970.
    pub(crate) fn warnings(
        &self,
        config: &ServerConfig,
        peer_expires_ms: Option<u64>,
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        let addresses = [config.http, config.native].into_iter().flatten();
        for address in addresses.filter(|address| !address.0.ip().is_loopback()) {
            if self.tls.is_none() {
                warnings.push(format!(
                    "{address} is served without TLS: others can read and change the traffic"
                ));
            }
            if self.identities.is_none() {
                warnings.push(format!(
                    "{address} is served without identities: every client that reaches it has all rights"
                ));
            }
        }
        let own = self.certificate_expires_ms();
        for (expires_ms, what) in [
            (own, "the certificate of the server"),
            (peer_expires_ms, "the certificate of the node for its peers"),
        ] {
            let Some(left_ms) = expires_ms.map(|end| end.saturating_sub(now_ms())) else {
                continue;
            };
            if left_ms < 14 * 86_400_000 {
                let days = left_ms / 86_400_000;
                warnings.push(format!("{what} expires in {days} days"));
            }
        }
        warnings
    }
}
