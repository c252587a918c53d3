//! Tokens in the keyring of the desktop, through `secret-tool` of libsecret.
//!
//! Invariants: a token is never in an argument of a process; the wait for the keyring takes at most
//! two minutes.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::error::{JiraError, Result};

/// The program that accesses the keyring.
const PROGRAM: &str = "secret-tool";
/// Limit on the wait for the keyring, which may ask the user to unlock it.
const WAIT_MAX: Duration = Duration::from_mins(2);
/// Limit on the bytes of a token.
const TOKEN_BYTES_MAX: u64 = 4096;

fn failed(what: &str) -> JiraError {
    JiraError::Settings(format!(
        "{what}; log in again, and store the token in a file that only you may read"
    ))
}

/// The attributes of the token of an account.
fn attributes<'a>(site: &'a str, email: &'a str) -> [&'a str; 6] {
    ["service", "weir-jira", "site", site, "account", email]
}

fn start(command: &mut Command) -> Result<Child> {
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    child.map_err(|error| {
        failed(&format!(
            "cannot start {PROGRAM}, which stores tokens in the keyring (Debian: libsecret-tools): {error}"
        ))
    })
}

/// Waits for the end of the program. Returns its output if it succeeded.
fn wait_for_output(mut child: Child) -> Result<Option<String>> {
    let output = child.stdout.take();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = output.map(|output| output.take(TOKEN_BYTES_MAX).read_to_string(&mut text));
        drop(sender.send(matches!(read, Some(Ok(_))).then_some(text)));
    });
    let Ok(text) = receiver.recv_timeout(WAIT_MAX) else {
        drop(child.kill());
        drop(child.wait());
        return Err(failed("the keyring did not answer within two minutes"));
    };
    let status = child.wait();
    let succeeded = status.is_ok_and(|status| status.success());
    Ok(text.filter(|_| succeeded))
}

/// Stores the token of an account at a site.
pub(crate) fn store(site: &str, email: &str, token: &str) -> Result<()> {
    let label = format!("Weir: token of {email} for Jira at {site}");
    let mut child = start(
        Command::new(PROGRAM)
            .args(["store", "--label", &label])
            .args(attributes(site, email)),
    )?;
    let sent = child
        .stdin
        .take()
        .map(|mut input| input.write_all(token.as_bytes()));
    let output = wait_for_output(child)?;
    match (sent, output) {
        (Some(Ok(())), Some(_)) => Ok(()),
        _ => Err(failed("the keyring did not store the token")),
    }
}

/// The token of an account at a site.
pub(crate) fn token(site: &str, email: &str) -> Result<String> {
    let mut child = start(
        Command::new(PROGRAM)
            .arg("lookup")
            .args(attributes(site, email)),
    )?;
    drop(child.stdin.take());
    let found = wait_for_output(child)?.map(|text| text.trim().to_owned());
    found.filter(|token| !token.is_empty()).ok_or_else(|| {
        JiraError::Settings(format!(
            "the keyring has no token of {email} for {site}; log in again"
        ))
    })
}
