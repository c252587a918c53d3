//! Protection against foreign web pages: checks of the host name and of the origin.

use std::net::IpAddr;

use super::head::{FieldName, Head, Method};
use super::problem::{Kind, Problem};
use super::reply::Reply;
use crate::config::ServerConfig;
use crate::limits::PREFLIGHT_SECONDS;

/// Value of `content-security-policy`: a browser must not run stored content as a page of this
/// server.
pub(crate) const SANDBOX: &str = "sandbox; default-src 'none'";

/// Response fields that a page may read.
const EXPOSED: &str = "accept-ranges, ce-dataschema, ce-id, ce-partitionkey, ce-sequence, \
ce-source, ce-specversion, ce-subject, ce-time, ce-type, content-range, etag, link, location, \
preference-applied, retry-after, vary, weir-client, weir-count, weir-effect, weir-first, weir-gap, \
weir-intention, weir-key, weir-key-b64, weir-last, weir-next, weir-nonce, weir-offset, \
weir-reframed, weir-replayed, weir-request-id, weir-time, weir-type, weir-up-to-date, \
producer-epoch, producer-expected-seq, producer-received-seq, producer-seq, stream-closed, \
stream-cursor, stream-expires-at, stream-next-offset, stream-sse-data-encoding, stream-ttl, \
stream-up-to-date";

/// Request fields that a page may send.
const ACCEPTED: &str = "accept, authorization, ce-dataschema, ce-id, ce-partitionkey, ce-sequence, \
ce-source, ce-specversion, ce-subject, ce-time, ce-type, content-encoding, content-type, \
idempotency-key, if-match, if-none-match, if-range, last-event-id, prefer, producer-epoch, \
producer-id, producer-seq, range, stream-closed, stream-expires-at, stream-fork-offset, \
stream-fork-sub-offset, stream-forked-from, stream-seq, stream-ttl, traceparent, weir-client, \
weir-expect, weir-key, weir-key-b64, weir-nonce, weir-program-args";

/// Checks that the client addressed the server by one of its names. This prevents DNS rebinding,
/// where a page points its own name at this server.
pub(crate) fn check_host(head: &Head, config: &ServerConfig) -> Result<(), Problem> {
    let wrong = || {
        Problem::new(
            Kind::WrongHost,
            "the host is none of the names of this server",
        )
    };
    let host = head.host().ok_or_else(wrong)?;
    let host = std::str::from_utf8(host).map_err(|_| wrong())?;
    let name = match host.strip_prefix('[') {
        Some(rest) => rest
            .split_once(']')
            .map(|(name, _)| name)
            .ok_or_else(wrong)?,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    if name.eq_ignore_ascii_case("localhost")
        || config
            .hosts
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name))
    {
        return Ok(());
    }
    if let Ok(ip) = name.parse::<IpAddr>() {
        // DNS rebinding needs a name, so an address is safe. If the server listens on an address
        // that others can reach, any address is accepted.
        let is_exposed = config
            .http
            .is_some_and(|address| !address.0.ip().is_loopback());
        if ip.is_loopback() || is_exposed {
            return Ok(());
        }
    }
    Err(wrong())
}

/// Whether an origin is among the configured ones: equal, or below the host after a leading `*.`.
fn is_allowed(origin: &str, config: &ServerConfig) -> bool {
    config
        .cors_origins
        .iter()
        .any(|allowed| match allowed.split_once("*.") {
            None => allowed == origin,
            Some((scheme, domain)) => {
                let host = origin.strip_prefix(scheme);
                let label = host.and_then(|host| host.strip_suffix(domain)?.strip_suffix('.'));
                label.is_some_and(|label| !label.is_empty() && !label.contains(['.', '/', ':']))
            }
        })
}

/// What the origin of a page permits for its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageOrigin {
    /// The request is not from a page of another origin.
    None,
    /// The page may use the server.
    Allowed(String),
    /// The page may not use the server.
    Foreign,
}

pub(crate) fn page(head: &Head, config: &ServerConfig) -> PageOrigin {
    let Some(origin) = head.raw(FieldName::Origin) else {
        return PageOrigin::None;
    };
    let Ok(origin) = std::str::from_utf8(origin) else {
        return PageOrigin::Foreign;
    };
    if is_allowed(origin, config) {
        return PageOrigin::Allowed(origin.to_owned());
    }
    if is_own(origin, head, config) {
        return PageOrigin::None;
    }
    PageOrigin::Foreign
}

/// Whether the origin is the host of the request, which [`check_host`] checks. The scheme may
/// differ, because a proxy may end TLS before a server without TLS.
fn is_own(origin: &str, head: &Head, config: &ServerConfig) -> bool {
    let host = match origin.split_once("://") {
        Some(("https", host)) => host,
        Some(("http", host)) if config.tls_cert.is_none() => host,
        _ => return false,
    };
    let target = head.host().unwrap_or_default();
    target.eq_ignore_ascii_case(host.as_bytes())
}

/// Refuses writes from pages that may not use the server. Without this check, any page could send a
/// POST without reading the response.
pub(crate) fn check_write(page: &PageOrigin, method: Method) -> Result<(), Problem> {
    if method.writes() && *page == PageOrigin::Foreign {
        return Err(
            Problem::new(Kind::Forbidden, "pages of this origin may not write")
                .text("right", "origin"),
        );
    }
    Ok(())
}

/// Adds the fields that a page needs to read the response.
pub(crate) fn add_cors_fields(reply: &mut Reply, page: &PageOrigin) {
    if let PageOrigin::Allowed(origin) = page {
        reply.add("access-control-allow-origin", origin);
        reply.add("access-control-allow-credentials", "true");
        reply.add("access-control-expose-headers", EXPOSED);
    }
}

/// Responds to OPTIONS.
pub(crate) fn options(head: &Head, allow: &str, page: &PageOrigin) -> Reply {
    let mut reply = Reply::new(204).field("allow", allow);
    if head.has(FieldName::RequestMethod) && matches!(page, PageOrigin::Allowed(_)) {
        reply.add("access-control-allow-methods", allow);
        reply.add("access-control-allow-headers", ACCEPTED);
        reply.add("access-control-max-age", PREFLIGHT_SECONDS);
    }
    reply
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use crate::http::head::parse;

    fn head(fields: &str) -> Head {
        let text = format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n");
        parse(text.as_bytes(), 20).unwrap().head
    }

    #[test]
    fn hosts_are_checked() {
        let config = ServerConfig {
            hosts: vec!["weir.example".to_owned()],
            ..ServerConfig::default()
        };
        for good in [
            "localhost:1",
            "127.0.0.1",
            "[::1]:7070",
            "WEIR.example:1",
            "LocalHost",
        ] {
            assert!(
                check_host(&head(&format!("Host: {good}")), &config).is_ok(),
                "{good}"
            );
        }
        for wrong in [
            "evil.example",
            "localhost.evil",
            "10.0.0.1",
            "",
            "[::1",
            "localhost@evil",
        ] {
            assert!(
                check_host(&head(&format!("Host: {wrong}")), &config).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_page_of_the_server_itself_may_write() {
        let plain = ServerConfig::default();
        let tls = ServerConfig {
            tls_cert: Some("cert.pem".into()),
            ..ServerConfig::default()
        };
        for (origin, config, own) in [
            ("http://localhost:7070", &plain, true),
            ("https://LOCALHOST:7070", &plain, true),
            ("https://localhost:7070", &tls, true),
            ("http://localhost:7070", &tls, false),
            ("http://localhost", &plain, false),
            ("http://localhost:7071", &plain, false),
            ("null", &plain, false),
        ] {
            let head = head(&format!("Host: localhost:7070\r\nOrigin: {origin}"));
            let may = check_write(&page(&head, config), Method::Post).is_ok();
            assert_eq!(may, own, "{origin}");
        }
    }

    #[test]
    fn fields_of_requests_and_responses_are_readable_by_pages() {
        let has = |list: &str, name: &str| list.split(',').any(|one| one.trim() == name);
        for name in [
            "ce-id",
            "ce-partitionkey",
            "ce-sequence",
            "ce-source",
            "ce-specversion",
            "ce-subject",
            "ce-time",
            "ce-type",
        ] {
            assert!(has(ACCEPTED, name) && has(EXPOSED, name), "{name}");
        }
        for name in ["weir-client", "weir-key", "weir-key-b64", "weir-nonce"] {
            assert!(has(ACCEPTED, name) && has(EXPOSED, name), "{name}");
        }
        assert!(has(ACCEPTED, "weir-program-args"));
        for name in ["content-range", "preference-applied"] {
            assert!(has(EXPOSED, name), "{name}");
        }
    }

    #[test]
    fn an_origin_matches_exactly_or_one_label_below_a_wildcard() {
        let origins = vec![
            "https://a.example".to_owned(),
            "https://*.b.example".to_owned(),
        ];
        let config = ServerConfig {
            cors_origins: origins,
            ..ServerConfig::default()
        };
        for (origin, allowed) in [
            ("https://a.example", true),
            ("http://a.example", false),
            ("https://x.a.example", false),
            ("https://x.b.example", true),
            ("https://x.y.b.example", false),
            ("https://.b.example", false),
            ("https://b.example", false),
            ("https://evil/.b.example", false),
            ("null", false),
        ] {
            let page = page(&head(&format!("Host: a\r\nOrigin: {origin}")), &config);
            assert_eq!(matches!(page, PageOrigin::Allowed(_)), allowed, "{origin}");
        }
    }
}
