//! The cost of an idle connection: resident memory of the server while many connections are open.
//! Each of them received one answer.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use weir::Weir;

use super::Server;
use crate::clock::{process_cpu_ns, wall_ns};
use crate::contender::store::failed;
use crate::contender::{Contender, ContenderError, parameter};
use crate::protocol::{Answer, Fields, Timed};

/// Connections that are opened and closed before the first figure, so that one-time allocations of
/// the server are not counted.
const WARM_UP: usize = 64;
/// Maximum bytes of an answer.
const ANSWER_MAX: usize = 64 << 10;
/// File descriptors that a process needs besides its connections.
const SPARE: u64 = 256;

/// `connections` connections to `port` (`http` or `native`) that are idle after their first answer.
/// Reports `bytes_each` (growth of the resident memory of the server for each connection) and
/// `server_rss` (bytes).
#[derive(Debug, Default)]
pub struct Idle {
    inputs: BTreeMap<usize, Measured>,
}

/// One server for each input, so that memory from one kind of connection is not reused by another.
#[derive(Debug)]
struct Measured {
    server: Server,
    http: bool,
    connections: usize,
    /// Resident bytes before the first connection.
    base: u64,
}

/// Raises the limit of descriptors, so that this process and its children can open this number of
/// connections.
fn allow(connections: usize) -> Result<(), ContenderError> {
    let need = connections as u64 + SPARE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= need) {
        return Ok(());
    }
    let more = Rlimit {
        current: Some(need),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, more)
        .map_err(|error| failed(format!("{need} descriptors are needed: {error}")))
}

impl Measured {
    fn start(fields: &Fields, input: usize) -> Result<Measured, ContenderError> {
        let port: String = parameter(fields, "port")?;
        let http = match port.as_str() {
            "http" => true,
            "native" => false,
            _ => return Err(ContenderError::Parameter("port")),
        };
        let connections = parameter(fields, "connections")?;
        allow(connections)?;
        let level: String = parameter(fields, "level")?;
        let server = Server::start(&level, 1, fields, input)?;
        server.signal(Signal::CONT)?;
        Weir::connect(&server.url)
            .and_then(|weir| weir.topic("idle")?.ensure())
            .map_err(failed)?;
        let mut measured = Measured {
            server,
            http,
            connections,
            base: 0,
        };
        measured.open(WARM_UP)?;
        measured.base = measured.server.status("VmRSS");
        measured.server.signal(Signal::STOP)?;
        Ok(measured)
    }

    /// Opens this number of connections, and reads one answer on each.
    fn open(&self, count: usize) -> Result<Vec<TcpStream>, ContenderError> {
        let mut open = Vec::with_capacity(count);
        for _ in 0..count {
            let mut stream = TcpStream::connect(self.address()?).map_err(failed)?;
            self.request(&mut stream)?;
            open.push(stream);
        }
        Ok(open)
    }

    fn address(&self) -> Result<&str, ContenderError> {
        let native = self.server.url.rsplit("//").next();
        let address = if self.http {
            self.server.http.as_deref()
        } else {
            native
        };
        address.ok_or_else(|| failed("no address"))
    }

    /// Sends an event over HTTP or a greeting over the native port, and reads the answer.
    fn request(&self, stream: &mut TcpStream) -> Result<(), ContenderError> {
        let (request, end): (&[u8], &[u8]) = if self.http {
            (
                b"POST /v1/topics/idle/events HTTP/1.1\r\nhost: localhost\r\nprefer: return=minimal\r\n\
content-type: application/json\r\ncontent-length: 9\r\n\r\n{\"a\":\"b\"}",
                b"\r\n\r\n",
            )
        } else {
            (b"\n_request_hello\n|\n", b"_status_config\n|\n")
        };
        stream.write_all(request).map_err(failed)?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        while !answer.ends_with(end) {
            let count = stream.read(&mut buffer).map_err(failed)?;
            answer.extend_from_slice(buffer.get(..count).unwrap_or_default());
            if count == 0 || answer.len() > ANSWER_MAX {
                return Err(failed(String::from_utf8_lossy(&answer)));
            }
        }
        if self.http && !answer.starts_with(b"HTTP/1.1 204") {
            return Err(failed(String::from_utf8_lossy(&answer)));
        }
        Ok(())
    }

    #[allow(clippy::cast_precision_loss)] // bytes below 2^53
    fn pass(&self, most: usize) -> Result<Timed, ContenderError> {
        let count = self.connections.min(most);
        self.server.signal(Signal::CONT)?;
        let (cpu, wall) = (process_cpu_ns(), wall_ns());
        let mut open = self.open(count)?;
        // Now, all other connections are idle.
        if let (true, Some(first)) = (self.http, open.first_mut()) {
            self.request(first)?;
        }
        let rss = self.server.status("VmRSS");
        self.server.signal(Signal::STOP)?;
        let each = rss.saturating_sub(self.base) as f64 / count.max(1) as f64;
        let extra = [("bytes_each", each), ("server_rss", rss as f64)];
        Ok(Timed {
            wall_ns: wall_ns() - wall,
            cpu_ns: process_cpu_ns() - cpu,
            touch: count as u64,
            extra: extra.map(|(name, value)| (name.to_owned(), value)).into(),
        })
    }
}

impl Contender for Idle {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let measured = Measured::start(fields, input)?;
        self.inputs.insert(input, measured);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let measured = self.inputs.get(&input);
        let measured = measured.ok_or(ContenderError::NotLoaded(input))?;
        measured.pass(WARM_UP)?;
        Ok(Answer {
            touch: measured.connections as u64,
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let measured = self.inputs.get(&input);
        let measured = measured.ok_or(ContenderError::NotLoaded(input))?;
        let mut sum = Timed::default();
        for _ in 0..iterations {
            let timed = measured.pass(usize::MAX)?;
            sum.wall_ns += timed.wall_ns;
            sum.cpu_ns += timed.cpu_ns;
            sum.touch = sum.touch.wrapping_add(timed.touch);
            for (name, value) in timed.extra {
                *sum.extra.entry(name).or_default() += value;
            }
        }
        Ok(sum)
    }
}
