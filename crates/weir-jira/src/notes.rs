//! A server that keeps notes in memory, for measurements of HTTP clients, and a client to measure.
//!
//! The server listens on 127.0.0.1 only and writes no log. Its second listener delays each answer,
//! to simulate a remote server.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use ureq::Agent;

use crate::error::{JiraError, Result};
use crate::sim::TlsIdentity;
use crate::wire::{self, Delivery, Listener, Request, Response, Stream};

/// The default port of `weir notes-sim`.
pub const NOTES_PORT: u16 = 1937;
/// Largest number of notes that the server holds.
pub const NOTES_MAX: usize = 1_000_000;

/// How the server is set up.
#[derive(Clone, Debug)]
pub struct NotesOptions {
    /// Port; 0 selects a free one; default 1937. The slow listener uses the next port, or a free
    /// one if this is 0.
    pub port: u16,
    /// Notes at the start; default 3, at most 1,000,000.
    pub notes: usize,
    /// Delay of the slow listener for each new connection; default 100 ms.
    pub connect_latency: Duration,
    /// Delay of the slow listener before each answer; default 300 ms.
    pub think: Duration,
    /// Whether a connection accepts more than one request; default yes.
    pub keep_alive: bool,
    /// The identity of a server with TLS; default none: without TLS.
    pub tls: Option<TlsIdentity>,
}

impl Default for NotesOptions {
    fn default() -> Self {
        Self {
            port: NOTES_PORT,
            notes: 3,
            connect_latency: Duration::from_millis(100),
            think: Duration::from_millis(300),
            keep_alive: true,
            tls: None,
        }
    }
}

/// A running server of notes. Dropping it ends the server.
#[derive(Debug)]
pub struct NotesServer {
    fast: Listener,
    slow: Listener,
    has_tls: bool,
}

impl NotesServer {
    /// Starts to listen on two ports.
    ///
    /// # Errors
    /// One of the ports is in use, or the certificate cannot be used.
    pub fn start(options: &NotesOptions) -> io::Result<Self> {
        let tls = options.tls.clone().map(TlsIdentity::config).transpose()?;
        let has_tls = tls.is_some();
        let slow_tls = tls.clone();
        let count = options.notes.min(NOTES_MAX);
        let notes: Vec<String> = (0..count).map(|id| format!("note {id}")).collect();
        let notes = Arc::new(Mutex::new(notes));
        let keep_alive = options.keep_alive;
        let own = Arc::clone(&notes);
        let fast = Listener::start(options.port, "notes-sim", move |socket, ends| {
            let stream = Stream::new(socket, tls.as_ref())?;
            handle_connection(stream, &own, ends, Duration::ZERO, keep_alive)
        })?;
        let (connect, think) = (options.connect_latency, options.think);
        let port = options.port.checked_add(1).unwrap_or(0);
        let port = if options.port == 0 { 0 } else { port };
        let slow = Listener::start(port, "notes-sim-slow", move |socket, ends| {
            std::thread::sleep(connect);
            let stream = Stream::new(socket, slow_tls.as_ref())?;
            handle_connection(stream, &notes, ends, think, keep_alive)
        })?;
        Ok(Self {
            fast,
            slow,
            has_tls,
        })
    }

    /// The URL of the fast listener, `http://127.0.0.1:PORT`; `https` with TLS.
    pub fn url(&self) -> String {
        self.fast.url(self.has_tls)
    }

    /// The URL of the slow listener, `http://127.0.0.1:PORT`; `https` with TLS.
    pub fn slow_url(&self) -> String {
        self.slow.url(self.has_tls)
    }

    /// Blocks for as long as the server runs; it does not end by itself.
    pub fn wait(mut self) {
        self.fast.wait();
    }
}

fn handle_connection(
    mut stream: Stream,
    notes: &Mutex<Vec<String>>,
    ends: &AtomicBool,
    think: Duration,
    keep_alive: bool,
) -> io::Result<()> {
    let mut kept = Vec::new();
    while let Some(request) = wire::read(&mut stream, &mut kept)? {
        if ends.load(Ordering::SeqCst) {
            return Ok(());
        }
        if !think.is_zero() {
            std::thread::sleep(think);
        }
        let mut response = answer(&mut notes.lock(), &request);
        let connection = request.header("connection");
        let closes =
            !keep_alive || connection.is_some_and(|text| text.eq_ignore_ascii_case("close"));
        if closes {
            response.headers.push(("Connection", "close".to_owned()));
        }
        wire::write(&mut stream, &response, Delivery::default())?;
        if closes {
            return Ok(());
        }
    }
    Ok(())
}

fn answer(notes: &mut Vec<String>, request: &Request) -> Response {
    let note = |id: usize, message: &str| json!({"id": id, "message": message});
    let (status, body) = match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/") => {
            return Response {
                status: 200,
                headers: vec![("Content-Type", "text/plain".to_owned())],
                body: b"notes\n".to_vec(),
            };
        }
        ("GET", "/notes") => {
            let all = notes.iter().enumerate();
            (200, all.map(|(id, message)| note(id, message)).collect())
        }
        ("POST", "/notes") => match message(request) {
            Some((true, message)) if notes.len() < NOTES_MAX => {
                notes.push(message);
                let id = notes.len() - 1;
                (201, note(id, notes.last().map_or("", String::as_str)))
            }
            _ => (400, Value::Null),
        },
        (method, path) => {
            let id = path.strip_prefix("/notes/").and_then(|id| id.parse().ok());
            let found = id.and_then(|id: usize| Some((id, notes.get_mut(id)?)));
            match (method, found) {
                (_, None) => (404, Value::Null),
                ("GET", Some((id, stored))) => (200, note(id, stored)),
                // Both methods change a note: the original server accepted POST, but its client
                // sent PUT.
                ("PUT" | "POST", Some((id, stored))) => match message(request) {
                    Some((_, message)) => {
                        *stored = message;
                        (200, note(id, stored))
                    }
                    None => (400, Value::Null),
                },
                _ => (405, Value::Null),
            }
        }
    };
    Response {
        status,
        headers: vec![("Content-Type", "application/json".to_owned())],
        body: body.to_string().into_bytes(),
    }
}

/// The message of a note in a request, and whether the note has no id.
fn message(request: &Request) -> Option<(bool, String)> {
    let note: Value = serde_json::from_slice(&request.body).ok()?;
    let message = note["message"].as_str()?.to_owned();
    Some((note["id"].is_null(), message))
}

/// The client of [`read`], which reuses connections.
static AGENT: LazyLock<Agent> = LazyLock::new(Agent::new_with_defaults);

/// Reads the messages of all notes from `url`, such as `http://HOST:PORT/notes`. With `fresh` it
/// opens a new connection. Other servers have lists of objects with a name, such as Jira's fields.
///
/// # Errors
/// `Transport` if there is no answer; `Garbage` if the answer is not a list of notes.
pub fn read(url: &str, fresh: bool) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Note {
        #[serde(alias = "name")]
        message: String,
    }
    let (method, path) = ("GET", url.to_owned());
    let answer = if fresh {
        Agent::new_with_defaults().get(url).call()
    } else {
        AGENT.get(url).call()
    };
    let body = answer.and_then(|mut answer| answer.body_mut().read_to_vec());
    let body = match body {
        Ok(body) => body,
        Err(error) => {
            let cause = error.to_string();
            return Err(JiraError::Transport {
                method,
                path,
                cause,
                sent: true,
            });
        }
    };
    let notes: std::result::Result<Vec<Note>, _> = serde_json::from_slice(&body);
    match notes {
        Ok(notes) => Ok(notes.into_iter().map(|note| note.message).collect()),
        Err(error) => Err(JiraError::Garbage {
            method,
            path,
            cause: error.to_string(),
        }),
    }
}
