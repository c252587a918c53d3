//! A server that simulates Jira Cloud or Jira Data Center, with faults on request, for tests and
//! demonstrations.
//!
//! It listens only on 127.0.0.1, and generates equal data for equal seeds. Its state is in memory,
//! or in topics of a store (`stored`). `routes` implements requests of jira.md, section 2; `faults`
//! implements the faults of section 9.3. Requests to `/_sim/…` control the server.

mod account;
mod faults;
mod routes;
mod rows;
mod stored;
mod version2;
mod world;
mod writes;

use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::tz::TimeZone;
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Map, Value, json};
use weir::Weir;

use crate::error::Result as JiraResult;
use crate::time;
use crate::wire::{self, Listener, Request, Response, Stream};
use account::Account;
pub use faults::FAULTS;
use faults::{Fault, Rule};
use stored::StoredState;
use world::World;

/// The default port of `weir jira-sim`.
pub const SIM_PORT: u16 = 1938;
/// Limit on the requests in the log; later ones are not logged.
const LOG_MAX: usize = 100_000;

/// Options of the simulator.
#[allow(clippy::struct_excessive_bools, reason = "independent options")]
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Port; 0 selects a free one; default 1938.
    pub port: u16,
    /// Seed of the data; default 1.
    pub seed: u64,
    /// Number of projects; default 2.
    pub projects: usize,
    /// Number of issues; default 100.
    pub issues: usize,
    /// Average number of comments per issue; default 2.
    pub comments: usize,
    /// Average number of worklogs per issue; default 0.
    pub worklogs: usize,
    /// Number of users, at least 3; default 5.
    pub users: usize,
    /// Whether half of the issues are subtasks, linked or moved, or have long or nested texts;
    /// default no.
    pub varied: bool,
    /// Lag of the search index in milliseconds; default 0.
    pub search_lag_ms: i64,
    /// Limit on the issues of a page; default 100.
    pub page_cap: usize,
    /// Time zone of the account, in which times in JQL are read: an IANA name, or an offset such as
    /// `GMT+05:30`; default `Etc/UTC`.
    pub time_zone: String,
    /// Whether the server simulates Data Center, which is read-only; default no.
    pub data_center: bool,
    /// Required e-mail address and token; with an empty address, a bearer token. Default none. The
    /// accounts `member@example.com` and `outsider@example.com` have the same token.
    pub auth: Option<(String, String)>,
    /// Permissions that all accounts lack; default none.
    pub denied: Vec<String>,
    /// Whether time advances only by `POST /_sim/clock`; default no.
    pub virtual_clock: bool,
    /// Delay before each answer in milliseconds; default 0.
    pub latency_ms: u64,
    /// Largest random addition to this delay in milliseconds; default 0.
    pub latency_jitter_ms: u64,
    /// Delay before the first answer of a connection in milliseconds; default 0.
    pub connect_latency_ms: u64,
    /// Requests per second, and the burst; more get 429. Default: no limit.
    pub rate: Option<(u32, u32)>,
    /// Whether writes to one issue are limited as in Jira; default yes.
    pub issue_write_limits: bool,
    /// The identity of a server with TLS; default none: without TLS.
    pub tls: Option<TlsIdentity>,
    /// Store with the state; default none: the state is in memory. If the store has the state of an
    /// earlier run, no data is generated. It must accept values of
    /// [`VALUE_BYTES_MAX`](crate::replica::VALUE_BYTES_MAX).
    pub store: Option<Weir>,
}

/// A certificate and its private key.
#[derive(Clone)]
pub struct TlsIdentity {
    /// The certificate as DER.
    pub certificate: Vec<u8>,
    /// The private key as DER (PKCS #8).
    pub key: Vec<u8>,
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is left out.
        f.debug_struct("TlsIdentity").finish_non_exhaustive()
    }
}

impl TlsIdentity {
    pub(crate) fn config(self) -> io::Result<Arc<ServerConfig>> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivatePkcs8KeyDer::from(self.key);
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(invalid)?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.into()], key.into())
            .map_err(invalid)?;
        Ok(Arc::new(config))
    }
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            port: SIM_PORT,
            seed: 1,
            projects: 2,
            issues: 100,
            comments: 2,
            worklogs: 0,
            users: 5,
            varied: false,
            search_lag_ms: 0,
            page_cap: 100,
            time_zone: "Etc/UTC".to_owned(),
            data_center: false,
            auth: None,
            denied: Vec::new(),
            virtual_clock: false,
            latency_ms: 0,
            latency_jitter_ms: 0,
            connect_latency_ms: 0,
            rate: None,
            issue_write_limits: true,
            tls: None,
            store: None,
        }
    }
}

/// A running simulator. Dropping it ends the server.
#[derive(Debug)]
pub struct Simulator {
    listening: Listener,
    shared: Arc<Shared>,
    tls: bool,
}

#[derive(Debug)]
struct Shared {
    /// Locked while changes are stored, so that answers and topics have one order.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    world: World,
    rules: Vec<Rule>,
    log: Vec<Value>,
    bucket: Bucket,
    /// `None`: the state is only in memory.
    stored: Option<StoredState>,
}

impl State {
    fn new(options: SimOptions, zone: TimeZone) -> JiraResult<Self> {
        let stored = options.store.clone().map(StoredState::new);
        let world = match &stored {
            Some(stored) => stored.load(options, zone)?,
            None => World::new(options, zone),
        };
        let mut state = Self {
            world,
            rules: Vec::new(),
            log: Vec::new(),
            bucket: Bucket::default(),
            stored,
        };
        state.store()?;
        Ok(state)
    }

    /// Logs a request. Returns its fault, and the delay before it is executed.
    fn accept(&mut self, request: &Request) -> (Option<Fault>, Duration) {
        let fault = faults::choose(&mut self.rules, request);
        let delay = fault.as_ref().and_then(Fault::delay).unwrap_or_default();
        let delay = delay.saturating_add(self.world.next_latency());
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        if self.log.len() < LOG_MAX {
            self.log.push(json!({
                "at": self.world.now_ms(), "method": request.method, "path": request.path,
                "bytes": request.body.len(), "delay_ms": delay_ms,
            }));
        }
        (fault, delay)
    }

    /// Stores the changes of the world, if there is a store.
    fn store(&mut self) -> JiraResult<()> {
        match &self.stored {
            Some(stored) => stored.store(&mut self.world),
            None => Ok(()),
        }
    }
}

/// A token bucket for requests: the rate refills it up to the burst.
#[derive(Debug, Default)]
struct Bucket {
    /// Tokens in thousandths of a request; `None`: never used, so full.
    level: Option<i64>,
    at_ms: i64,
}

impl Bucket {
    /// Takes a token for one request. If there is none, returns the seconds to wait.
    fn take(&mut self, (rate, burst): (u32, u32), now_ms: i64) -> Result<(), i64> {
        let (rate, most) = (i64::from(rate.max(1)), 1000 * i64::from(burst.max(1)));
        // A rate in requests per second equals thousandths of requests per millisecond.
        let filled = (now_ms - self.at_ms).max(0).saturating_mul(rate);
        let level = self.level.unwrap_or(most).saturating_add(filled).min(most);
        self.at_ms = now_ms;
        self.level = Some(level);
        if level < 1000 {
            // Whole seconds until the bucket has the next request.
            return Err((1000 - level - 1) / (1000 * rate) + 1);
        }
        self.level = Some(level - 1000);
        Ok(())
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Simulator {
    /// Generates the data and starts to listen.
    ///
    /// # Errors
    /// The port is in use, the time zone is unknown, or the certificate or the store cannot be
    /// used.
    pub fn start(options: SimOptions) -> io::Result<Self> {
        let port = options.port;
        let tls = options.tls.clone().map(TlsIdentity::config).transpose()?;
        let has_tls = tls.is_some();
        let zone = time::zone(&options.time_zone).ok_or_else(|| {
            let text = format!("{} is no time zone", options.time_zone);
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let state = State::new(options, zone).map_err(io::Error::other)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
        });
        let answering = Arc::clone(&shared);
        let listening = Listener::start(port, "jira-sim", move |socket, ends| {
            handle_connection(Stream::new(socket, tls.as_ref())?, &answering, ends)
        })?;
        Ok(Self {
            listening,
            shared,
            tls: has_tls,
        })
    }

    /// `http://127.0.0.1:PORT`, or `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        self.listening.url(self.tls)
    }

    /// Blocks until the simulator ends; it does not end by itself.
    pub fn wait(mut self) {
        self.listening.wait();
    }

    /// Executes a request to `/_sim/…` without a connection.
    pub fn control(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            body: body.to_string().into_bytes(),
            ..Request::default()
        };
        let response = control(&mut self.shared.state(), &request);
        serde_json::from_slice(&response.body).unwrap_or_default()
    }
}

fn handle_connection(mut stream: Stream, shared: &Shared, ends: &AtomicBool) -> io::Result<()> {
    let connect_ms = shared.state().world.options.connect_latency_ms;
    std::thread::sleep(Duration::from_millis(connect_ms));
    let mut kept = Vec::new();
    while let Some(request) = wire::read(&mut stream, &mut kept)? {
        if ends.load(Ordering::SeqCst) {
            return Ok(());
        }
        if request.path.starts_with("/_sim/") {
            let response = control(&mut shared.state(), &request);
            wire::write(&mut stream, &response, wire::Delivery::default())?;
            continue;
        }
        if !answer(&mut stream, shared, &request)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Answers a request. Returns whether the connection can be reused.
fn answer(stream: &mut Stream, shared: &Shared, request: &Request) -> io::Result<bool> {
    let (fault, delay) = shared.state().accept(request);
    if !delay.is_zero() {
        std::thread::sleep(delay);
    }
    let name = fault.as_ref().map_or("", |fault| fault.name.as_str());
    if name == "reset-before" {
        wire::reset(stream)?;
        return Ok(false);
    }
    let replacement = fault.as_ref().and_then(Fault::replacement);
    let limited = {
        let state = &mut *shared.state();
        let (rate, now) = (state.world.options.rate, state.world.now_ms());
        rate.and_then(|rate| state.bucket.take(rate, now).err())
    };
    let mut response = if let Some(seconds) = limited {
        Response {
            status: 429,
            headers: vec![
                ("Retry-After", seconds.to_string()),
                ("RateLimit-Reason", "jira-burst-based".to_owned()),
            ],
            body: Vec::new(),
        }
    } else if let Some(response) = replacement {
        response
    } else {
        let mut state = shared.state();
        let world = &mut state.world;
        if let Some(account) = Account::of_request(world.options.auth.as_ref(), request) {
            world.account = account;
            let response = routes::route(world, request, fault.as_ref());
            state.store().map_err(io::Error::other)?;
            response
        } else {
            Response {
                status: 401,
                headers: vec![("Content-Type", "text/html".to_owned())],
                body: b"<html>Unauthorized</html>".to_vec(),
            }
        }
    };
    if name == "reset-after" {
        wire::reset(stream)?;
        return Ok(false);
    }
    if let Some(other) = fault.as_ref().and_then(Fault::afterwards) {
        response = other;
    }
    let mut delivery = wire::Delivery::default();
    if let Some(fault) = &fault {
        fault.damage_bytes(&mut response);
        delivery = fault.delivery();
    }
    wire::write(stream, &response, delivery)
}

#[allow(clippy::too_many_lines, reason = "a table of requests")]
fn control(state: &mut State, request: &Request) -> Response {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let world = &mut state.world;
    world.account = Account::Admin;
    let issue = body["issue"].as_str();
    let issue = issue.and_then(|name| world.find_any(name));
    let done = match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/_sim/faults") => {
            let rule = serde_json::from_value::<Rule>(body.clone());
            match rule
                .map_err(|error| error.to_string())
                .and_then(Rule::check)
            {
                Ok(rule) => {
                    state.rules.push(rule);
                    json!({"rules": state.rules.len()})
                }
                Err(error) => json!({"error": error}),
            }
        }
        ("DELETE", "/_sim/faults") => {
            state.rules.clear();
            json!({})
        }
        ("GET", "/_sim/log") => Value::Array(state.log.clone()),
        ("DELETE", "/_sim/log") => {
            state.log.clear();
            json!({})
        }
        ("POST", "/_sim/clock") => {
            world.advance(body["advance_ms"].as_i64().unwrap_or(0));
            json!({"now_ms": world.now_ms()})
        }
        ("POST", "/_sim/edit") => {
            let empty = Map::new();
            let now = time::format(world.now_ms());
            for (name, value) in body["fields"].as_object().unwrap_or(&empty) {
                if let Some(id) = issue {
                    world.set_as(id, name, value.clone(), &world.another());
                }
            }
            // Sets fields without a new time of change, as Jira does for a rank.
            for (name, value) in body["silent"].as_object().unwrap_or(&empty) {
                if let Some(issue) = issue.and_then(|id| world.issues.get_mut(id)) {
                    issue.fields.insert(name.clone(), value.clone());
                }
            }
            // Changes a comment or worklog, found by its id.
            for list in ["comment", "worklog"] {
                let Some(given) = body[list].as_object() else {
                    continue;
                };
                let issue = issue.and_then(|id| world.issues.get_mut(id));
                let parts = issue.into_iter().flat_map(|issue| issue.parts_mut(list));
                for part in parts.filter(|part| part["id"] == given["id"]) {
                    for (name, value) in given {
                        part[name.as_str()] = value.clone();
                    }
                    part["updated"] = now.clone().into();
                }
            }
            if let Some(id) = issue {
                world.index(id, world.now_ms());
            }
            json!({"found": issue.is_some()})
        }
        ("POST", "/_sim/comments") => {
            let now = world.now_ms();
            let count = body["count"].as_u64().unwrap_or(1);
            for number in 0..count {
                let id = world.new_id();
                let comment =
                    world.comment(id, &world::document(&format!("comment {number}")), now);
                if let Some(issue) = issue.and_then(|id| world.issues.get_mut(id)) {
                    issue.comments.push(comment);
                }
            }
            if let Some(id) = issue {
                world.touch(id, now);
            }
            json!({"found": issue.is_some()})
        }
        ("POST", "/_sim/move") => {
            let project = body["project"].as_str().unwrap_or_default();
            let target = world
                .projects
                .iter()
                .find(|(_, found)| found["key"] == project);
            let target = target.map(|(id, _)| *id);
            let done = issue
                .zip(target)
                .is_some_and(|(id, project)| world.relocate(id, project));
            json!({"moved": done})
        }
        ("POST", "/_sim/delete") => {
            let parts = ["comment", "worklog"].into_iter();
            let mut parts = parts.filter_map(|list| Some((list, body[list].as_str()?)));
            let part = parts.next();
            let deleted = issue.is_some_and(|id| match part {
                Some((list, part)) => world.delete_part(id, list, part),
                None => world.delete(id),
            });
            json!({"deleted": deleted})
        }
        ("POST", "/_sim/revoke") => {
            let project = body["project"].as_str().unwrap_or_default();
            let target = world
                .projects
                .iter()
                .find(|(_, found)| found["key"] == project);
            if let Some(id) = target.map(|(id, _)| *id) {
                if body["visible"].as_bool().unwrap_or(false) {
                    world.revoked.remove(&id);
                } else {
                    world.revoked.insert(id);
                }
            }
            json!({})
        }
        ("POST", "/_sim/deny") => {
            let right = body["right"].as_str().unwrap_or_default().to_owned();
            world.options.denied.retain(|denied| *denied != right);
            if body["on"].as_bool().unwrap_or(true) {
                world.options.denied.push(right);
            }
            json!({"denied": world.options.denied})
        }
        ("GET", "/_sim/state") if world.options.data_center => version2::converted(world.dump()),
        ("GET", "/_sim/state") => world.dump(),
        _ => json!({"error": "no such control"}),
    };
    let done = match state.store() {
        Ok(()) => done,
        Err(error) => json!({"error": error.to_string()}),
    };
    let headers = vec![("Content-Type", "application/json".to_owned())];
    let status = if done.get("error").is_some() {
        400
    } else {
        200
    };
    Response {
        status,
        headers,
        body: done.to_string().into_bytes(),
    }
}
