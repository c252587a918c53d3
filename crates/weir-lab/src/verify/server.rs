//! A server process, and non-blocking connections to it.
//!
//! Invariant: every wait ends. A connection counts as silent if it receives nothing while the
//! server answers a given number of times on another connection, or for a given time.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::error::{LabError, Result};

/// Time limit for an answer that must arrive.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of an answer, in bytes.
const ANSWER_MAX: usize = 64 << 20;
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// The request on the other connection.
const PROBE: &[u8] = b"GET /bench/json HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// When a connection counts as silent.
#[derive(Clone, Copy, Debug)]
pub enum SilenceLimit {
    /// After this number of answers on the other connection. This suffices for a server with one
    /// thread that handles events in turn: it has received everything that was sent.
    Rounds(u32),
    /// After this number of seconds, for any server.
    Seconds(u64),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its fields, with names in lower case.
    pub fields: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The first field with this `name`, which is in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    buffer: Vec<u8>,
    ended: bool,
}

impl Connection {
    /// Sends the bytes that the socket accepts at once. Returns their number.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        // A server that has closed the connection appears as silent.
        self.stream.write(bytes).unwrap_or(0)
    }

    /// Reads the available bytes. Returns whether there were any.
    fn pull(&mut self) -> bool {
        match self.stream.read(&mut self.buffer) {
            Ok(0) => {
                let first = !self.ended;
                self.ended = true;
                first
            }
            Ok(count) => {
                let read = self.buffer.get(..count).unwrap_or_default();
                self.input.extend_from_slice(read);
                true
            }
            Err(error) => {
                self.ended |=
                    !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
                false
            }
        }
    }

    /// Removes the answer at the start of the received bytes, if it is complete.
    fn take(&mut self) -> Option<Answer> {
        let end = self.input.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(self.input.get(..end)?).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse();
        let fields: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length = fields.iter().find(|(name, _)| name == "content-length");
        let length: usize = length.map_or(Some(0), |(_, value)| value.parse().ok())?;
        let whole = (end + 4).checked_add(length).filter(|n| *n <= ANSWER_MAX)?;
        let body = self.input.get(end + 4..whole)?.to_vec();
        self.input.drain(..whole);
        Some(Answer {
            status: status.ok()?,
            fields,
            body,
        })
    }

    /// Whether unread bytes were received.
    pub fn has_more(&self) -> bool {
        !self.input.is_empty()
    }
}

/// A running server.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    /// Kept open, because the server could not write to a closed pipe.
    _output: Option<BufReader<ChildStdout>>,
    address: SocketAddr,
    silence_limit: SilenceLimit,
    probe: TcpStream,
}

impl Running {
    /// Starts a server. In its words, `{port}` is replaced by 0, and the server prints its address
    /// after `listening on` to standard output.
    pub fn start(name: &str, words: &[String], silence_limit: SilenceLimit) -> Result<Running> {
        let failure = |what: &str| LabError::contender(name, what);
        let words: Vec<String> = words.iter().map(|w| w.replace("{port}", "0")).collect();
        let (program, rest) = words.split_first().ok_or_else(|| failure("no words"))?;
        let mut child = Command::new(program)
            .args(rest)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|source| LabError::Start {
                contender: name.to_owned(),
                program: program.clone(),
                source,
            })?;
        let mut output = child.stdout.take().map(BufReader::new);
        let printed = output.as_mut().and_then(|out| {
            let mut lines = out.lines().map_while(std::io::Result::ok);
            lines.find_map(|line| line.strip_prefix("listening on ")?.parse().ok())
        });
        let connected = printed.and_then(|address: SocketAddr| {
            let probe = TcpStream::connect(address).ok()?;
            probe.set_nodelay(true).ok()?;
            probe.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
            Some((address, probe))
        });
        let Some((address, probe)) = connected else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failure("does not print the address on which it listens"));
        };
        let name = name.to_owned();
        let mut server = Running {
            name,
            child,
            _output: output,
            address,
            silence_limit,
            probe,
        };
        server.settle()?;
        Ok(server)
    }

    /// An error of this server.
    pub fn failure(&self, what: impl Into<String>) -> LabError {
        LabError::contender(&self.name, what)
    }

    /// A new connection on which one request was answered already. So the server has accepted the
    /// connection, and receives further bytes in the order of sending.
    pub fn connect(&mut self) -> Result<Connection> {
        let mut connection = self.connect_only()?;
        self.send(&mut connection, PROBE)?;
        match self.next(&mut connection)? {
            Some(answer) if answer.status == 200 => Ok(connection),
            _ => Err(self.failure("does not answer the first request of a connection")),
        }
    }

    /// A new connection.
    pub fn connect_only(&self) -> Result<Connection> {
        let open = || {
            let stream = TcpStream::connect(self.address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        };
        let stream = open().map_err(|error: std::io::Error| self.failure(error.to_string()))?;
        Ok(Connection {
            stream,
            input: Vec::new(),
            buffer: vec![0; READ_BYTES],
            ended: false,
        })
    }

    /// Returns when the server has handled all earlier bytes that it will handle: it has answered
    /// twice on another connection.
    pub fn settle(&mut self) -> Result<()> {
        for _ in 0..2 {
            let sent = self.probe.write_all(PROBE);
            sent.map_err(|_| self.failure("has ended"))?;
            let mut seen = Vec::new();
            let mut buffer = [0; 1024];
            while !seen.ends_with(b"}") {
                let count = self.probe.read(&mut buffer).unwrap_or(0);
                if count == 0 {
                    return Err(self.failure("answers on no connection any more"));
                }
                seen.extend_from_slice(buffer.get(..count).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Repeats `step` until it returns a value. Returns `None` after a time without progress.
    /// `step` reports progress.
    fn until<T>(&mut self, mut step: impl FnMut() -> (bool, Option<T>)) -> Result<Option<T>> {
        let (mut rounds, mut moved) = (0, Instant::now());
        loop {
            let (has_moved, value) = step();
            if value.is_some() {
                return Ok(value);
            }
            if has_moved {
                (rounds, moved) = (0, Instant::now());
                continue;
            }
            rounds += 1;
            let silent = match self.silence_limit {
                SilenceLimit::Rounds(most) => rounds > most,
                SilenceLimit::Seconds(most) => moved.elapsed() > Duration::from_secs(most),
            };
            if silent {
                return Ok(None);
            }
            self.settle()?;
        }
    }

    /// Sends all of `bytes`. Returns whether the server accepted them.
    pub fn send(&mut self, connection: &mut Connection, bytes: &[u8]) -> Result<bool> {
        let mut sent = 0;
        let done = self.until(|| {
            let rest = bytes.get(sent..).unwrap_or_default();
            let count = if rest.is_empty() {
                0
            } else {
                connection.push(rest)
            };
            sent += count;
            (count > 0, (sent == bytes.len()).then_some(()))
        })?;
        Ok(done.is_some())
    }

    /// The next answer, whatever its status; `None` if there is none.
    pub fn next(&mut self, connection: &mut Connection) -> Result<Option<Answer>> {
        self.until(|| match connection.take() {
            Some(answer) => (true, Some(answer)),
            None => (connection.pull(), None),
        })
    }

    /// The next answer that is final.
    pub fn answer(&mut self, connection: &mut Connection) -> Result<Option<Answer>> {
        loop {
            match self.next(connection)? {
                Some(answer) if answer.status < 200 => {}
                other => return Ok(other),
            }
        }
    }

    /// Stops the process, so that bytes that are sent meanwhile arrive at once.
    pub fn suspend(&self) -> Result<()> {
        let pid = self.signal(Signal::STOP)?;
        // A signal is only sent so far. A server that still runs could see the first of the bytes.
        match waitpid(Some(pid), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if status.stopped() => Ok(()),
            _ => Err(self.failure("has ended")),
        }
    }

    /// Continues the process.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT).map(drop)
    }

    fn signal(&self, signal: Signal) -> Result<Pid> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.filter(|pid| kill_process(*pid, signal).is_ok())
            .ok_or_else(|| self.failure("has ended"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A process that has already ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
