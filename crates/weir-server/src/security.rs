//! Authentication, authorization, rate limits, TLS and the audit log of the server.
//! The guide for operators is docs/operating/security.md.
//!
//! Without identities every request is allowed, so a server without them listens
//! on loopback unless its configuration names another address. With identities
//! a request is denied unless a grant allows it.
//!
//! Invariants:
//! - a file is loaded whole or not at all, and a malformed one changes nothing;
//! - a grant that is revoked no longer holds for connections that are open;
//! - no secret is in a log, an error, a record or a debug print;
//! - no request waits for a file or for the audit log.

mod accept;
mod audit;
mod certificate;
mod identities;
mod moment;
mod needs;
mod principal;
mod rate;
mod rights;
mod seen;
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
pub(crate) use self::rights::EVERY_TOPIC;
pub(crate) use self::stream::Stream;

use self::accept::Handshakes;
use self::principal::Proof;
use self::rate::{Limits, Rates};
use self::table::Identities;
pub(crate) use self::tls::peer_tls;
use self::tls::{Tls, TlsFiles};
pub use crate::config::ClientCertificates;
use crate::config::{Rate, ServerConfig};

/// Name of the principal of the Unix socket. It has a blank, and names in the file of
/// identities have none, so the two never collide.
const OWNER: &str = "store owner";
/// How often files are looked at for a change.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Files of identities or TLS that cannot be used.
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
    /// The right that is missing.
    pub(crate) right: Right,
    /// UNAUTHENTICATED or FORBIDDEN.
    pub(crate) code: ErrorCode,
}

/// Intentions that are not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotAllowed {
    /// Number of the first of them, from 0.
    pub(crate) index: usize,
    /// The topic on which the right is missing.
    pub(crate) topic: String,
    pub(crate) denied: Denied,
}

/// A token that proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unproved {
    /// How long the address should wait; none: not at all.
    pub(crate) retry: Option<Duration>,
}

/// All of it, for all ports of a server.
#[derive(Debug)]
pub(crate) struct Security {
    identities: Option<Identities>,
    tls: Option<Tls>,
    /// Rates of connections from this machine, and from others.
    rates: [Rates; 2],
    audit: Option<Audit>,
    handshakes: Handshakes,
    epoch: AtomicU64,
    counts: Counts,
}

/// What happened at the doors since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Requests without a right.
    pub(crate) forbidden: AtomicU64,
    /// Requests and proofs of nobody who is known.
    pub(crate) unauthenticated: AtomicU64,
    /// Requests that came too fast.
    pub(crate) paused: AtomicU64,
    /// Times that files were read anew, and that one was wrong.
    pub(crate) reloads: AtomicU64,
    /// Times that a file was wrong.
    pub(crate) reloads_failed: AtomicU64,
}

fn count(of: &AtomicU64) {
    of.fetch_add(1, Ordering::Relaxed);
}

impl Security {
    /// Reads what the configuration names.
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

    /// Whether callers must say who they are.
    pub(crate) fn required(&self) -> bool {
        self.identities.is_some()
    }

    /// What happened at the doors.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// End of the own certificate, milliseconds since 1970.
    pub(crate) fn certificate_expires_ms(&self) -> Option<u64> {
        self.tls.as_ref().map(|tls| tls.served().expires_ms)
    }

    /// Whether connections are encrypted.
    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The audit, if there is one.
    pub(crate) fn audit(&self) -> Option<&Audit> {
        self.audit.as_ref()
    }

    /// Who a new connection is, by where it comes from and the certificate it
    /// has shown.
    pub(crate) fn caller(
        &self,
        peer: Option<SocketAddr>,
        certificates: Option<&[CertificateDer<'_>]>,
    ) -> Principal {
        let shown = certificates.and_then(<[_]>::first);
        let (name, proof) = match shown.and_then(|shown| self.certificate(shown)) {
            Some(name) => (name, Proof::Certificate),
            None => (String::new(), Proof::None),
        };
        self.principal(name, peer, proof)
    }

    /// Who comes in by the socket of this machine.
    pub(crate) fn owner(&self) -> Principal {
        let name = if self.required() { OWNER } else { "" };
        self.principal(name.to_owned(), None, Proof::Owner)
    }

    /// The name in a certificate that is known; else the first one, which has
    /// no rights and tells the audit who it was.
    fn certificate(&self, shown: &CertificateDer<'_>) -> Option<String> {
        let fields = CertificateFields::read(shown).ok()?;
        let table = self.identities.as_ref()?.table();
        let mut names = fields.names.iter();
        let known = names.find(|name| table.find(name, &Proof::Certificate).is_some());
        known.or(fields.names.first()).cloned()
    }

    fn principal(&self, name: String, peer: Option<SocketAddr>, proof: Proof) -> Principal {
        let charged = self.rates(peer).charged(&name, peer.map(|peer| peer.ip()));
        Principal {
            name,
            peer,
            proof,
            charged,
        }
    }

    fn rates(&self, peer: Option<SocketAddr>) -> &Rates {
        let [local, others] = &self.rates;
        match peer {
            Some(peer) if !peer.ip().to_canonical().is_loopback() => others,
            _ => local,
        }
    }

    /// Who shows this token on a connection of `caller`. Without identities a
    /// token says nothing. A right one is taken however many wrong ones came
    /// from the same address.
    ///
    /// # Errors
    /// When it proves nothing; no caller learns why.
    pub(crate) fn authenticate(
        &self,
        token: &[u8],
        caller: &Principal,
    ) -> Result<Principal, Unproved> {
        let Some(identities) = &self.identities else {
            return Ok(caller.clone());
        };
        let table = identities.table();
        let text = std::str::from_utf8(token).ok();
        let text = text
            .filter(|text| text.len() <= TOKEN_BYTES_MAX)
            .unwrap_or_default();
        if let Some((id, identity)) = table.prove(text, now_ms()) {
            let proof = Proof::Token(id.into());
            return Ok(self.principal(identity.name.clone(), caller.peer, proof));
        }
        count(&self.counts.unauthenticated);
        if let Some(audit) = &self.audit {
            // The id is no secret and says which token somebody tries.
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
        Err(Unproved {
            retry: failed.and_then(Result::err),
        })
    }

    /// Whether the principal may do this to the topic. Empty topic: to the
    /// server as a whole, or to any topic. The one question that each request
    /// of each port asks; what is taken back meanwhile is denied.
    pub(crate) fn authorize(
        &self,
        principal: &Principal,
        right: Right,
        topic: &str,
    ) -> Result<(), Denied> {
        let allowed = self.asked(principal, right, topic);
        match allowed {
            Ok(()) => {}
            Err(ErrorCode::Unauthenticated) => count(&self.counts.unauthenticated),
            Err(_) => count(&self.counts.forbidden),
        }
        if let Some(audit) = &self.audit {
            let decision = match allowed {
                Ok(()) if right.is_administration() => Some(Decision::Allowed),
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

    /// Whether the principal may propose all of these; each right is asked once
    /// for a run of intentions that need it, and not again if it was `asked`.
    pub(crate) fn allow(
        &self,
        principal: &Principal,
        asked: Option<(Right, &str)>,
        intentions: &[Intention<'_>],
    ) -> Result<(), NotAllowed> {
        let mut before = asked;
        for (index, intention) in intentions.iter().enumerate() {
            for need in needs::needs(intention) {
                if before == Some(need) || asked == Some(need) {
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

    /// Whether the principal has a right; nobody is told that it was asked.
    pub(crate) fn has(&self, principal: &Principal, right: Right, topic: &str) -> bool {
        self.asked(principal, right, topic).is_ok()
    }

    fn asked(&self, principal: &Principal, right: Right, topic: &str) -> Result<(), ErrorCode> {
        let Some(identities) = &self.identities else {
            return Ok(());
        };
        if principal.proof == Proof::Owner {
            return Ok(());
        }
        let table = identities.table();
        let identity = table.find(&principal.name, &principal.proof);
        match identity.filter(|identity| identity.holds(now_ms())) {
            Some(identity) if identity.grants.allow(right, topic) => Ok(()),
            Some(_) => Err(ErrorCode::Forbidden),
            None if principal.proof == Proof::Certificate => Err(ErrorCode::Forbidden),
            None => Err(ErrorCode::Unauthenticated),
        }
    }

    /// Whether the principal may read the topic: for lists, whose entries are
    /// left out and not denied, and for listeners that are open.
    pub(crate) fn visible(&self, principal: &Principal, topic: &str) -> bool {
        self.asked(principal, Right::Read, topic).is_ok()
    }

    /// Whether the principal is still known.
    pub(crate) fn holds(&self, principal: &Principal) -> bool {
        let Some(identities) = &self.identities else {
            return true;
        };
        if principal.proof == Proof::Owner {
            return true;
        }
        let table = identities.table();
        let identity = table.find(&principal.name, &principal.proof);
        identity.is_some_and(|identity| identity.holds(now_ms()))
    }

    /// Another number whenever identities have changed.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Lets a request of so many items and bytes pass.
    ///
    /// # Errors
    /// How long to wait: answer RATE.
    pub(crate) fn admit(
        &self,
        principal: &Principal,
        items: u64,
        bytes: u64,
    ) -> Result<(), Duration> {
        let rates = self.rates(principal.peer);
        let admitted = rates.admit(&principal.charged, items, bytes);
        admitted.inspect_err(|_| count(&self.counts.paused))
    }

    /// Adds bytes that came with a request whose length was not declared.
    pub(crate) fn charge_bytes(&self, principal: &Principal, bytes: u64) {
        self.rates(principal.peer)
            .charge_bytes(&principal.charged, bytes);
    }

    /// Adds the fuel that the answer to a request says was used.
    pub(crate) fn charge_fuel(&self, principal: &Principal, fuel: u64) {
        self.rates(principal.peer)
            .charge_fuel(&principal.charged, fuel);
    }

    /// Reads all files anew. Either all of them are in force afterwards, for
    /// open connections too, or nothing has changed.
    pub(crate) fn reload(&self) -> Result<(), SecurityError> {
        let reloaded = self.try_reload();
        count(&self.counts.reloads);
        if reloaded.is_err() {
            count(&self.counts.reloads_failed);
        }
        let text = match &reloaded {
            Ok(()) => {
                let known = self.identities.as_ref().map(|known| known.table().len());
                tracing::info!(
                    identities = known,
                    tls = self.has_tls(),
                    "files of identities and TLS read anew"
                );
                String::new()
            }
            Err(error) => {
                tracing::error!(%error, "nothing is changed by a file that is wrong");
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
        // Both are noted as seen, whichever is wrong.
        let table = self.identities.as_ref().map(Identities::reread).transpose();
        let served = self
            .tls
            .as_ref()
            .map(|tls| tls.reread(now_ms()))
            .transpose();
        let (table, served) = (table?, served?);
        if let Some((identities, table)) = self.identities.as_ref().zip(table) {
            identities.put(table);
            self.epoch.fetch_add(1, Ordering::Release);
        }
        if let Some((tls, served)) = self.tls.as_ref().zip(served) {
            tls.put(served);
        }
        Ok(())
    }

    /// Reads the files anew if one of them is another one. Blocks on the disk.
    pub(crate) fn look(&self) {
        let changed = self
            .identities
            .as_ref()
            .is_some_and(Identities::has_changed)
            || self.tls.as_ref().is_some_and(Tls::has_changed);
        if changed {
            // It is logged and written down where it happens.
            drop(self.reload());
        }
    }

    /// Returns warnings for the operator who starts the server.
    pub(crate) fn warnings(&self, config: &ServerConfig) -> Vec<String> {
        let mut warnings = Vec::new();
        let addresses = [config.http, config.native].into_iter().flatten();
        for address in addresses.filter(|address| !address.0.ip().is_loopback()) {
            if self.tls.is_none() {
                warnings.push(format!(
                    "{address} is served without TLS: everything can be read and changed on the way"
                ));
            }
            if self.identities.is_none() {
                warnings.push(format!(
                    "{address} is served without identities: everyone who reaches it may do everything"
                ));
            }
        }
        if let Some(tls) = &self.tls {
            let left_ms = tls.served().expires_ms.saturating_sub(now_ms());
            if left_ms < 14 * 86_400_000 {
                let days = left_ms / 86_400_000;
                warnings.push(format!(
                    "the certificate of the server expires in {days} days"
                ));
            }
        }
        warnings
    }
}
