//! Access checks of a native connection.
//!
//! Invariants:
//! - Every request of a principal is checked here first.
//! - A right that is revoked ends the open listeners that need it.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use weir_core::ErrorCode;

use super::Connection;
use crate::native::refuse::{self, Refused};
use crate::security::{Denied, EVERY_TOPIC, Right};

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Authenticates the connection by its token, or by its certificate if the token is empty.
    pub(super) fn authenticate(&mut self, token: &[u8]) -> Result<(), Refused> {
        let security = &self.port.shared.security;
        if !token.is_empty() {
            let principal = security
                .authenticate(token, &self.principal)
                .map_err(|rejected| {
                    refusal_with_retry(ErrorCode::Unauthenticated, rejected.retry)
                })?;
            self.principal = Arc::new(principal);
        } else if security.required() && self.principal.name.is_empty() {
            return Err(refusal_with_retry(ErrorCode::Unauthenticated, None));
        }
        self.epoch = security.epoch();
        Ok(())
    }

    /// Checks that the principal has the right and keeps to its rate limit. For requests that
    /// write nothing.
    pub(super) fn check_request(&self, right: Right, topic: &str) -> Result<(), Refused> {
        self.check_rate(1, 0)?;
        self.check_right(right, topic)
    }

    /// Checks that the principal has the right, without a charge to its rate limit, and that this
    /// node was not removed from its cluster.
    pub(super) fn check_right(&self, right: Right, topic: &str) -> Result<(), Refused> {
        let shared = &self.port.shared;
        shared
            .authorize(&self.principal, right, topic)
            .map_err(|denied| refused(denied, topic))?;
        let is_member = shared.check_is_member();
        is_member.map_err(|error| refuse::of_store(&error))
    }

    /// Checks a request for the status. A removed node answers it too.
    pub(super) fn check_status(&self) -> Result<(), Refused> {
        self.check_rate(1, 0)?;
        let allowed = self.port.shared.authorize_status(&self.principal);
        allowed.map_err(|denied| refused(denied, ""))
    }

    /// Checks that a request of this many items and bytes keeps to the rate limit of the principal.
    pub(super) fn check_rate(&self, items: u64, bytes: usize) -> Result<(), Refused> {
        let security = &self.port.shared.security;
        security
            .admit(&self.principal, items, bytes as u64)
            .map_err(|pause| refusal_with_retry(ErrorCode::Rate, Some(pause)))
    }

    /// Ends open listeners that the principal may no longer use.
    pub(super) fn recheck(&mut self) {
        let security = &self.port.shared.security;
        if !security.required() || self.listeners.is_empty() {
            return;
        }
        if !security.is_valid(&self.principal) {
            self.fatal(&Refused::plain(ErrorCode::Unauthenticated).fatal());
            return;
        }
        let epoch = security.epoch();
        if epoch == self.epoch {
            return;
        }
        self.epoch = epoch;
        let principal = &self.principal;
        let ended = self
            .listeners
            .remove_topics(|topic| !security.can_read(principal, topic));
        for tag in ended {
            let refused = Refused::plain(ErrorCode::Forbidden);
            refused.encode(&tag, &mut self.encoder, &mut self.out.bytes);
        }
    }
}

/// The refusal for a client that lacks a right.
pub(super) fn refused(denied: Denied, topic: &str) -> Refused {
    match denied.code {
        ErrorCode::Forbidden if topic.is_empty() => Refused::new(
            denied.code,
            format!("the right `{}` is missing", denied.right),
        ),
        ErrorCode::Forbidden if topic == EVERY_TOPIC => {
            let right = denied.right;
            let text = format!(
                "the right `{right}` on all topics, also those of the store, is missing: \
                 `{right} ** .**`"
            );
            Refused::new(denied.code, text)
        }
        ErrorCode::Forbidden => {
            let text = format!("the right `{}` on {topic} is missing", denied.right);
            Refused::new(denied.code, text)
        }
        code => Refused::plain(code),
    }
}

fn refusal_with_retry(code: ErrorCode, pause: Option<Duration>) -> Refused {
    let mut refused = Refused::plain(code);
    // Whole milliseconds plus one, so that the pause is never too short.
    refused.message.retry_ms = pause.map(|pause| {
        let ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        ms.saturating_add(1)
    });
    refused
}
