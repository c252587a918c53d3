//! Prints a line if a command waits for its site.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_jira::client::Client;

use crate::report::note;

/// How long a command waits before the line is printed.
const LINE_AFTER: Duration = Duration::from_secs(2);
/// How often the thread checks whether the line is due.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Prints at most one line about a wait. Dropping this ends the checks.
#[derive(Debug)]
pub(super) struct WaitLine {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl WaitLine {
    /// Prints the line when `waiting` first returns [`LINE_AFTER`] or more. `waiting` returns how
    /// long the command has waited for the site at `address`; `None`: it does not wait.
    pub(super) fn start(
        quiet: bool,
        address: &str,
        waiting: impl Fn() -> Option<Duration> + Send + 'static,
    ) -> Self {
        let (end, ended) = channel::<()>();
        let text = format!("waiting for {address}; Ctrl-C ends the command");
        let thread = std::thread::Builder::new()
            .name("weir-jira-wait".into())
            .spawn(move || {
                while ended.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    if waiting().is_some_and(|time| time >= LINE_AFTER) {
                        note(quiet, &text);
                        return;
                    }
                }
            });
        Self {
            end: Some(end),
            // If the thread cannot be started, no line is printed.
            thread: thread.ok(),
        }
    }
}

impl Drop for WaitLine {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // The panic of the thread was printed when it happened.
            drop(thread.join());
        }
    }
}

/// A client of a site that prints a line if a request takes long.
#[derive(Debug)]
pub(super) struct SiteClient {
    client: Arc<Client>,
    _line: WaitLine,
}

impl SiteClient {
    /// `address` is the address of the site in the line.
    pub(super) fn new(client: Client, quiet: bool, address: &str) -> Self {
        let client = Arc::new(client);
        let observed = Arc::clone(&client);
        let line = WaitLine::start(quiet, address, move || observed.waiting());
        Self {
            client,
            _line: line,
        }
    }
}

impl Deref for SiteClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}
