//! A blocking HTTP client for one site, with retries, limits and errors that name the failed
//! request.
//!
//! Reads are retried after a broken connection, and after 429, 502, 503 and 504, but not after a
//! timeout. A write is sent once; the caller decides about a retry. Writes are throttled: at most
//! ten in a burst, then five per second.
//!
//! Invariant: no error contains the token or the value of `Authorization`, even if the site echoes
//! it.

use parking_lot::Mutex;
use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ureq::http::Request;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Proxy};

use crate::error::{JiraError, Result};

/// Limit on the attempts of a request.
const ATTEMPTS_MAX: u32 = 5;
/// The longest pause that the client waits; a longer one is an error with its length.
const PAUSE_MAX: Duration = Duration::from_mins(5);
/// Pause before the next write to an issue with too many writes, if the site names no pause.
const ISSUE_PAUSE: Duration = Duration::from_secs(30);
/// Pause before the next write after a 429, if the site names no pause.
const WRITE_PAUSE: Duration = Duration::from_secs(2);
/// Time between two writes after the first ten.
const WRITE_SPACING: Duration = Duration::from_millis(200);
/// Number of writes without a pause.
const WRITE_BURST: u32 = 10;
/// Limit on the size of an answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Default timeout for a whole request.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Limit on the time for the headers of an answer, after the request was sent.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(20);
/// Limit on the time for a new connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit on the characters of a non-JSON answer in a message.
const MESSAGE_CHARS_MAX: usize = 200;
/// Limit on the levels of an answer; deeper ones are cut. `serde_json` reads 128.
const DEPTH_MAX: usize = 100;
/// The replacement for an object below that level.
pub(crate) const CUT: &str = r#"{"type":"nested-too-deeply"}"#;
/// Files with the certificate authorities that systems trust.
const AUTHORITIES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// The interface of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deployment {
    /// Jira Cloud: version 3 of the interface, documents as ADF, pages by token.
    #[default]
    Cloud,
    /// Jira Data Center: version 2 of the interface, wiki markup, pages by offset. Read-only.
    DataCenter,
}

/// The function that the client calls to wait; in tests, it only records the time.
pub type Pause = Arc<dyn Fn(Duration) + Send + Sync>;

/// A client of one site.
pub struct Client {
    agent: Agent,
    base: String,
    deployment: Deployment,
    authorization: Option<String>,
    /// The token, and its encoded form in `authorization`.
    secrets: Vec<String>,
    /// Limit on the time of a whole request.
    timeout: Duration,
    pause: Pause,
    requests: AtomicU64,
    /// Start of the request in progress.
    began: Mutex<Option<Instant>>,
    /// The time at which the next write would be sent if writes were evenly spaced.
    next_write: Mutex<Option<Instant>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is left out.
        f.debug_struct("Client")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

/// The result of one attempt.
enum AttemptResult {
    Answer(Vec<u8>),
    /// The request can be retried after a pause. The error is returned if no attempt is left.
    Retry(Option<Duration>, JiraError),
    Failed(JiraError),
}

impl Client {
    /// A client of Jira Cloud for requests to `api_url`. `login` is an e-mail address and a token,
    /// sent with Basic authentication. With an empty address the token is sent as a bearer token.
    ///
    /// # Errors
    /// `Settings` if the address has TLS, and the file that `SSL_CERT_FILE` names cannot be used.
    pub fn new(api_url: &str, login: Option<(&str, &str)>) -> Result<Self> {
        Self::with(api_url, login, TIMEOUT, Arc::new(std::thread::sleep))
    }

    /// As [`new`](Self::new), with a timeout for one request and another function to wait.
    pub fn with(
        api_url: &str,
        login: Option<(&str, &str)>,
        timeout: Duration,
        pause: Pause,
    ) -> Result<Self> {
        let trusted = if api_url.starts_with("https://") {
            authorities(std::env::var_os("SSL_CERT_FILE"))?
        } else {
            Vec::new()
        };
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&trusted))
            .build();
        // A proxy would read the token in a request without TLS.
        let proxy = Proxy::try_from_env().filter(|_| !is_loopback(api_url));
        let config = Agent::config_builder()
            .proxy(proxy)
            .http_status_as_error(false)
            .timeout_global(Some(timeout))
            .timeout_connect(Some(timeout.min(CONNECT_TIMEOUT)))
            .timeout_recv_response(Some(timeout.min(HEADERS_TIMEOUT)))
            // A redirect could send the token to another host.
            .max_redirects(0)
            .user_agent(concat!("weir-jira/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls)
            .build();
        let mut secrets = Vec::new();
        let authorization = login.map(|(email, token)| {
            secrets.push(token.to_owned());
            if email.is_empty() {
                return format!("Bearer {token}");
            }
            let encoded = STANDARD.encode(format!("{email}:{token}"));
            secrets.push(encoded.clone());
            format!("Basic {encoded}")
        });
        secrets.retain(|secret| !secret.is_empty());
        Ok(Self {
            agent: Agent::new_with_config(config),
            base: api_url.trim_end_matches('/').to_owned(),
            deployment: Deployment::Cloud,
            authorization,
            secrets,
            timeout,
            pause,
            requests: AtomicU64::new(0),
            began: Mutex::default(),
            next_write: Mutex::default(),
        })
    }

    /// Sets the kind of the site; default Cloud.
    #[must_use]
    pub fn deployed(mut self, deployment: Deployment) -> Self {
        self.deployment = deployment;
        self
    }

    /// The kind of the site.
    pub fn deployment(&self) -> Deployment {
        self.deployment
    }

    /// Fails with `ReadOnly` at a read-only site.
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.deployment {
            Deployment::Cloud => Ok(()),
            Deployment::DataCenter => Err(JiraError::ReadOnly),
        }
    }

    /// Waits until the throttle permits the next write.
    fn throttle(&self) {
        let now = Instant::now();
        let wait = {
            let mut next = self.next_write.lock();
            let due = next.filter(|due| *due > now).unwrap_or(now);
            *next = Some(due + WRITE_SPACING);
            due.saturating_duration_since(now + WRITE_SPACING * WRITE_BURST)
        };
        if !wait.is_zero() {
            (self.pause)(wait);
        }
    }

    /// Number of requests that were sent, retries included.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Duration of the request in progress, with its retries and the pauses between them; `None`: no
    /// request is in progress.
    pub fn waiting(&self) -> Option<Duration> {
        let began = *self.began.lock();
        began.map(|began| began.elapsed())
    }

    /// Reads a resource under `/rest/api/3/`; at Data Center under `/rest/api/2/`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.decoded("GET", path, None)
    }

    /// Sends a POST that only reads, such as a search.
    pub fn read_by_post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T> {
        self.decoded("POST", path, Some(body))
    }

    /// The version of the interface.
    fn version(&self) -> u8 {
        match self.deployment {
            Deployment::Cloud => 3,
            Deployment::DataCenter => 2,
        }
    }

    fn decoded<T: DeserializeOwned>(
        &self,
        method: &'static str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T> {
        let answer = pruned(&self.send_with_retries(method, path, body, true)?);
        serde_json::from_slice(&answer).map_err(|error| self.garbage(method, path, &error))
    }

    fn garbage(&self, method: &'static str, path: &str, error: &serde_json::Error) -> JiraError {
        JiraError::Garbage {
            method,
            path: without_query(path),
            cause: self.redacted(error.to_string()),
        }
    }

    /// A text of the site without the token.
    fn redacted(&self, text: String) -> String {
        let hidden = |text: String, secret: &String| text.replace(secret.as_str(), "…");
        self.secrets.iter().fold(text, hidden)
    }

    /// Waits for `time` up to 1.3 times `time`, so that clients do not retry at the same moment.
    pub fn wait(&self, time: Duration) {
        let chance = RandomState::new().build_hasher().finish() % 300;
        let chance = u32::try_from(chance).unwrap_or(0);
        (self.pause)(time + time * chance / 1000);
    }

    /// Sends a write once. If it fails, [`JiraError::is_unknown`] returns whether it may have been
    /// executed. With a null `body`, the request has no body.
    ///
    /// # Errors
    /// `ReadOnly` at Data Center: no write is sent to it.
    pub fn write(&self, method: &'static str, path: &str, body: &Value) -> Result<Value> {
        self.check_writable()?;
        self.throttle();
        let body = Some(body).filter(|body| !body.is_null());
        let answer = self.send_with_retries(method, path, body, false)?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).map_err(|error| self.garbage(method, path, &error))
    }

    fn send_with_retries(
        &self,
        method: &'static str,
        path: &str,
        body: Option<&Value>,
        reads: bool,
    ) -> Result<Vec<u8>> {
        *self.began.lock() = Some(Instant::now());
        let answer = self.send_attempts(method, path, body, reads);
        *self.began.lock() = None;
        answer
    }

    fn send_attempts(
        &self,
        method: &'static str,
        path: &str,
        body: Option<&Value>,
        reads: bool,
    ) -> Result<Vec<u8>> {
        let mut attempt = 1;
        loop {
            let (pause, error) = match self.send(method, path, body, reads) {
                AttemptResult::Answer(answer) => return Ok(answer),
                AttemptResult::Failed(error) => return Err(error),
                AttemptResult::Retry(pause, error) => (pause, error),
            };
            let pause = pause.unwrap_or(Duration::from_secs(1 << attempt));
            if attempt == ATTEMPTS_MAX || pause > PAUSE_MAX {
                return Err(error);
            }
            self.wait(pause);
            attempt += 1;
        }
    }

    /// The reason why a request failed, for people.
    fn cause(&self, error: &ureq::Error) -> String {
        let within = |limit: Duration| {
            let limit = self.timeout.min(limit).as_secs_f64();
            format!("within {limit} s")
        };
        match error {
            ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => {
                format!("no connection to the site {}", within(CONNECT_TIMEOUT))
            }
            ureq::Error::Timeout(ureq::Timeout::RecvResponse) => {
                format!("the site did not answer {}", within(HEADERS_TIMEOUT))
            }
            ureq::Error::Timeout(_) => format!("the site did not answer {}", within(self.timeout)),
            ureq::Error::Io(error) => format!("the connection failed: {error}"),
            error => error.to_string(),
        }
    }

    fn send(
        &self,
        method: &'static str,
        path: &str,
        body: Option<&Value>,
        reads: bool,
    ) -> AttemptResult {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let broken = |error: &ureq::Error, sent: bool| {
            let timed_out = matches!(error, ureq::Error::Timeout(_));
            let error = JiraError::Transport {
                method,
                path: without_query(path),
                cause: self.redacted(self.cause(error)),
                sent,
            };
            // A request to a site that cannot be reached or does not answer is not retried: the
            // caller is offline.
            if reads && sent && !timed_out {
                AttemptResult::Retry(None, error)
            } else {
                AttemptResult::Failed(error)
            }
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}/rest/api/{}/{path}", self.base, self.version()))
            .header("Accept", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        let sent = match body {
            Some(body) => request
                .header("Content-Type", "application/json")
                .body(body.to_string())
                .map_err(ureq::Error::from)
                .and_then(|request| self.agent.run(request)),
            None => request
                .body(())
                .map_err(ureq::Error::from)
                .and_then(|request| self.agent.run(request)),
        };
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => return broken(&error, may_be_sent(&error)),
        };
        let status = response.status().as_u16();
        let header = |name: &str| {
            let value = response.headers().get(name);
            value
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let own_limit =
            header("ratelimit-reason").is_some_and(|reason| reason.contains("per-issue"));
        let pause = header("retry-after").and_then(|text| retry_after(&text));
        let location = header("location").filter(|_| (300..400).contains(&status));
        let captcha = header("x-authentication-denied-reason")
            .or_else(|| header("x-seraph-loginreason"))
            .is_some_and(|reason| reason.contains("CAPTCHA") || reason.contains("DENIED"));
        let read = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec();
        let answer = match read {
            Ok(answer) => answer,
            Err(error) if status < 400 => return broken(&error, true),
            Err(_) => Vec::new(),
        };
        if (200..300).contains(&status) {
            return AttemptResult::Answer(answer);
        }
        match status {
            401 => return AttemptResult::Failed(JiraError::Unauthenticated),
            403 if captcha => return AttemptResult::Failed(JiraError::Captcha),
            _ => {}
        }
        let message = match location {
            Some(location) => format!("it leads to {}", without_query(&location)),
            None => message(&self.redacted(String::from_utf8_lossy(&answer).into_owned())),
        };
        let error = JiraError::Status {
            method,
            path: without_query(path),
            status,
            message: self.redacted(message),
            wait: pause,
        };
        match status {
            // The caller waits, after it has recorded that the write was not executed.
            429 if !reads => AttemptResult::Failed(JiraError::Limited {
                path: without_query(path),
                wait: pause.unwrap_or(if own_limit { ISSUE_PAUSE } else { WRITE_PAUSE }),
                issue: own_limit,
            }),
            429 => AttemptResult::Retry(pause, error),
            502..=504 if reads => AttemptResult::Retry(pause, error),
            _ => AttemptResult::Failed(error),
        }
    }
}

/// A path or address without its query string, which is long and of no use to people.
fn without_query(path: &str) -> String {
    let end = path.find(['?', '#']).unwrap_or(path.len());
    path[..end].to_owned()
}

/// Replaces the parts of an answer that are nested too deeply to parse: an object becomes [`CUT`],
/// an array becomes an array of one [`CUT`]. Otherwise the whole answer would be lost.
fn pruned(answer: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(answer.len());
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for &byte in answer {
        let inside = depth > DEPTH_MAX;
        if in_text {
            in_text = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else {
            match byte {
                b'"' => in_text = true,
                b'{' | b'[' => {
                    depth += 1;
                    if depth == DEPTH_MAX + 1 {
                        let array = byte == b'[';
                        kept.extend(array.then_some(b'['));
                        kept.extend_from_slice(CUT.as_bytes());
                        kept.extend(array.then_some(b']'));
                    }
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if !inside && depth <= DEPTH_MAX {
            kept.push(byte);
        }
    }
    kept
}

/// Whether an address is on this machine.
pub(crate) fn is_loopback(url: &str) -> bool {
    let rest = url.strip_prefix("http://");
    let host = rest.or_else(|| url.strip_prefix("https://")).unwrap_or(url);
    // In `http://127.0.0.1:80@example.com`, the host follows `@`.
    if host.contains('@') {
        return false;
    }
    ["127.0.0.1", "localhost", "[::1]"].iter().any(|own| {
        let rest = host.strip_prefix(own);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
    })
}

/// Whether the site may have received a request that failed with this error.
fn may_be_sent(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect)
        | ureq::Error::BadUri(_) => false,
        ureq::Error::Io(error) => {
            let inner = error.get_ref();
            let tls = inner.and_then(|error| error.downcast_ref::<rustls::Error>());
            let untrusted = matches!(tls, Some(rustls::Error::InvalidCertificate(_)));
            error.kind() != std::io::ErrorKind::ConnectionRefused && !untrusted
        }
        _ => true,
    }
}

/// Parses seconds or a date.
fn retry_after(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = rfc2822::DateTimeParser::new()
        .parse_timestamp(text.trim())
        .ok()?;
    let ms = date.as_millisecond() - Timestamp::now().as_millisecond();
    Some(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

/// The message in an answer with an error status.
fn message(text: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return text
            .chars()
            .filter(|c| !c.is_control())
            .take(MESSAGE_CHARS_MAX)
            .collect();
    };
    let mut parts: Vec<String> = Vec::new();
    for part in value["errorMessages"].as_array().into_iter().flatten() {
        parts.extend(part.as_str().map(str::to_owned));
    }
    for (field, part) in value["errors"].as_object().into_iter().flatten() {
        parts.push(format!(
            "{field}: {}",
            part.as_str()
                .map_or_else(|| part.to_string(), str::to_owned)
        ));
    }
    parts.join("; ")
}

/// The certificate authorities in the file `path`; `None`: those of the system.
///
/// # Errors
/// `Settings` if the file cannot be read, or has no certificate.
fn authorities(path: Option<OsString>) -> Result<Vec<Certificate<'static>>> {
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        let bundle = AUTHORITIES.iter().find_map(|path| std::fs::read(path).ok());
        return Ok(certificates(&bundle.unwrap_or_default()));
    };
    let unusable = |why: &dyn fmt::Display| {
        let path = Path::new(&path).display();
        let text = format!("cannot use {path}, which SSL_CERT_FILE names: {why}");
        JiraError::Settings(text)
    };
    let bundle = std::fs::read(&path).map_err(|error| unusable(&error))?;
    let found = certificates(&bundle);
    if found.is_empty() {
        return Err(unusable(&"it has no certificate"));
    }
    Ok(found)
}

/// The certificates in a PEM file.
fn certificates(bundle: &[u8]) -> Vec<Certificate<'static>> {
    let items = parse_pem(bundle).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    items.collect()
}
