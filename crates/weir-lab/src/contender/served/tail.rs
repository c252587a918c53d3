//! Many listeners of one topic over server-sent events, at a steady rate.
//!
//! One thread writes over the native port when a record is due. Another thread reads all listeners
//! through epoll. A record contains the time at which it was due. So when a read returns, the age
//! of its newest record is the lag of the listener, including the delay of the writer.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::time::Duration;

use rustix::event::epoll;
use rustix::process::Signal;
use weir::{ClientId, Intention, Operation, Weir};

use super::Server;
use crate::clock::{process_cpu_ns, wall_ns};
use crate::contender::store::failed;
use crate::contender::{Contender, ContenderError, parameter};
use crate::protocol::{Answer, Fields, Timed};

/// Bytes read from a listener's connection at once.
const READ_BYTES: usize = 256 << 10;
/// Digits of a time, between two `@`.
const DIGITS: usize = 20;
/// Bytes of a record's value.
const VALUE_BYTES: usize = 100;
/// A run fails if nothing arrives for this time.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// `listeners` listeners, and `messages` records at `rate` a second. Reports `worst_ms` (the
/// largest lag of all listeners), `p99_ms` (of the reads), `server_rss` (maximum, bytes) and
/// `server_us` (microseconds for each delivery).
#[derive(Debug, Default)]
pub struct Tail {
    inputs: BTreeMap<usize, Load>,
    server: Option<Server>,
    passes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    listeners: usize,
    messages: u64,
    rate: u64,
}

struct Listener {
    stream: TcpStream,
    /// The end of the last read, which may be an incomplete record.
    rest: Vec<u8>,
    received: u64,
}

impl Listener {
    fn open(address: &str, topic: &str) -> Result<Listener, ContenderError> {
        let mut stream = TcpStream::connect(address).map_err(failed)?;
        write!(
            stream,
            "GET /v1/topics/{topic}/events?live=sse HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )
        .map_err(failed)?;
        let mut head = Vec::new();
        let mut byte = [0];
        // Reads byte by byte, so that nothing after the head is consumed.
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).map_err(failed)?;
            head.extend_from_slice(&byte);
        }
        if !head.starts_with(b"HTTP/1.1 200") {
            return Err(failed(String::from_utf8_lossy(&head)));
        }
        stream.set_nonblocking(true).map_err(failed)?;
        Ok(Listener {
            stream,
            rest: Vec::new(),
            received: 0,
        })
    }

    /// Reads the available bytes. Returns the lag of the newest record in nanoseconds.
    fn read(&mut self, buffer: &mut [u8]) -> Result<Option<u64>, ContenderError> {
        let read = match self.stream.read(buffer) {
            Ok(0) => return Err(failed("the server closed the connection of a listener")),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let now = wall_ns();
        self.rest
            .extend_from_slice(buffer.get(..read).unwrap_or_default());
        let mut newest = None;
        let mut at = 0;
        while let Some(found) = memchr::memchr(b'@', self.rest.get(at..).unwrap_or_default()) {
            let from = at + found;
            let Some(text) = self.rest.get(from + 1..from + 2 + DIGITS) else {
                at = from;
                break;
            };
            if let Some((digits, b"@")) = text.split_at_checked(DIGITS)
                && let Some(due) = std::str::from_utf8(digits)
                    .ok()
                    .and_then(|d| d.parse().ok())
            {
                self.received += 1;
                newest = Some(now.saturating_sub(due));
                at = from + 2 + DIGITS;
            } else {
                at = from + 1;
            }
        }
        let done = match memchr::memchr(b'@', self.rest.get(at..).unwrap_or_default()) {
            Some(found) => at + found,
            None => self.rest.len(),
        };
        self.rest.drain(..done);
        Ok(newest)
    }
}

/// Writes `load.messages` records when they are due.
fn write_all(weir: &Weir, topic: &str, load: Load, id: u64) -> Result<(), ContenderError> {
    let mut client = [7; 16];
    client
        .iter_mut()
        .zip(id.to_le_bytes())
        .for_each(|(to, from)| *to = from);
    let mut session = weir.session(ClientId(client));
    let start = wall_ns();
    let mut waiting = Vec::new();
    for message in 0..load.messages {
        let due = start + message * 1_000_000_000 / load.rate;
        if let Some(wait) = due.checked_sub(wall_ns()) {
            std::thread::sleep(Duration::from_nanos(wait));
        }
        let value = format!("{:.<VALUE_BYTES$}", format!("@{due:0DIGITS$}@"));
        let put = Operation::Put {
            key: &[],
            value: value.as_bytes(),
        };
        let put = Intention::new(topic, put);
        waiting.push(session.send(&[put]).map_err(failed)?);
    }
    for pending in waiting {
        let verdicts = pending.wait().map_err(failed)?;
        if !verdicts.iter().all(weir::Verdict::is_valid) {
            return Err(failed("a put was not VALID"));
        }
    }
    Ok(())
}

/// Reads until every listener has every record. Returns the lag of the newest record of each read.
fn read_all(listeners: &mut [Listener], messages: u64) -> Result<Vec<u64>, ContenderError> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
    for (number, listener) in (0..).zip(listeners.iter()) {
        let data = epoll::EventData::new_u64(number);
        epoll::add(&poll, &listener.stream, data, epoll::EventFlags::IN).map_err(failed)?;
    }
    let mut buffer = vec![0; READ_BYTES];
    let mut lags = Vec::new();
    let mut open = listeners.len();
    let mut events = [MaybeUninit::<epoll::Event>::uninit(); 256];
    let silence = SILENCE_MAX.try_into().map_err(failed)?;
    while open > 0 {
        let (ready, _) = epoll::wait(&poll, &mut events, Some(&silence)).map_err(failed)?;
        if ready.is_empty() {
            return Err(failed(format!("{open} listeners receive nothing")));
        }
        for event in ready {
            let number = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let Some(listener) = listeners.get_mut(number) else {
                continue;
            };
            lags.extend(listener.read(&mut buffer)?);
            if listener.received == messages {
                epoll::delete(&poll, &listener.stream).map_err(failed)?;
                open -= 1;
            } else if listener.received > messages {
                return Err(failed("a listener received a record twice"));
            }
        }
    }
    Ok(lags)
}

impl Tail {
    #[allow(clippy::cast_precision_loss)] // nanoseconds and bytes below 2^53
    fn pass(server: &Server, load: Load, number: u64) -> Result<Timed, ContenderError> {
        let topic = format!("tail{number}");
        let weir = Weir::connect(&server.url).map_err(failed)?;
        weir.topic(&topic)
            .and_then(|topic| topic.ensure())
            .map_err(failed)?;
        let address = server.http.as_deref().unwrap_or_default();
        let mut listeners = (0..load.listeners)
            .map(|_| Listener::open(address, &topic))
            .collect::<Result<Vec<_>, _>>()?;
        let (server_before, cpu, wall) = (server.cpu_ns(), process_cpu_ns(), wall_ns());
        let lags = std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_all(&weir, &topic, load, number));
            let lags = read_all(&mut listeners, load.messages);
            writer.join().map_err(|_| failed("the writer panicked"))??;
            lags
        });
        let mut lags = lags?;
        let (wall_ns, cpu_ns) = (wall_ns() - wall, process_cpu_ns() - cpu);
        let (used, _) = server.cpu_since(&server_before);
        let rss = server.status("VmHWM");
        lags.sort_unstable();
        let at = |share: usize| {
            let index = (lags.len() * share / 100).min(lags.len().saturating_sub(1));
            lags.get(index).copied().unwrap_or(0) as f64 / 1e6
        };
        let deliveries = load.listeners as f64 * load.messages as f64;
        let extra = [
            ("worst_ms", at(100)),
            ("p99_ms", at(99)),
            ("p50_ms", at(50)),
            ("server_rss", rss as f64),
            ("server_us", used as f64 / 1e3 / deliveries),
        ];
        Ok(Timed {
            wall_ns,
            cpu_ns,
            touch: load.messages,
            extra: extra.map(|(name, value)| (name.to_owned(), value)).into(),
        })
    }

    fn once(&mut self, input: usize, most: u64) -> Result<Timed, ContenderError> {
        self.passes += 1;
        let load = *self
            .inputs
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let server = self
            .server
            .as_ref()
            .ok_or(ContenderError::NotLoaded(input))?;
        let small = Load {
            messages: load.messages.min(most),
            ..load
        };
        server.signal(Signal::CONT)?;
        let timed = Self::pass(server, small, self.passes);
        server.signal(Signal::STOP)?;
        timed
    }
}

impl Contender for Tail {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let load = Load {
            listeners: parameter(fields, "listeners")?,
            messages: parameter(fields, "messages")?,
            rate: parameter(fields, "rate")?,
        };
        if load.listeners == 0 || load.messages == 0 || load.rate == 0 {
            return Err(ContenderError::Parameter("messages"));
        }
        if self.server.is_none() {
            let level: String = parameter(fields, "level")?;
            self.server = Some(Server::start(&level, 1, fields, input)?);
        }
        self.inputs.insert(input, load);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        self.once(input, 100)?;
        let load = self.inputs.get(&input);
        Ok(Answer {
            touch: load.map_or(0, |load| load.messages),
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let mut sum = Timed::default();
        for _ in 0..iterations {
            sum.add(self.once(input, u64::MAX)?);
        }
        Ok(sum)
    }
}
