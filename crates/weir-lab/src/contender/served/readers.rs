//! Writes of one client beside many clients that read pages over HTTP/1.
//!
//! One thread puts records over the native port, one after the other, and each is synced. Another
//! drives all readers through epoll, at a lower priority, so that the writes do not wait for the
//! work of the client. A reader requests the next page of a topic, reads the whole answer, and
//! requests again: at a fixed rate for all readers together, or at once.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::epoll;
use rustix::process::{Signal, setpriority_process};
use weir::{ClientId, Intention, Operation, Weir};

use super::Server;
use crate::clock::{process_cpu_ns, wall_ns};
use crate::contender::store::failed;
use crate::contender::{Contender, ContenderError, parameter};
use crate::protocol::{Answer, Fields, Timed};

/// The topic that is read, and the topic that is written.
const READ_TOPIC: &str = "read";
const WRITTEN_TOPIC: &str = "written";
/// Records of the topic that is read, and of a page.
const RECORDS: u64 = 10_000;
const PAGE_RECORDS: u64 = 100;
/// Bytes of a record's value.
const VALUE_BYTES: usize = 100;
/// Bytes read from a reader's connection at once.
const READ_BYTES: usize = 64 << 10;
/// Maximum bytes of the head of an answer.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Maximum time to wait for events before the writer is checked again.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Nice value of the thread of the readers, above that of the writer.
const NICE: i32 = 10;

/// `puts` writes beside `readers` connections. These read `rate` pages a second together, or as
/// fast as possible if `rate` is 0. Reports `p50`, `p99` and `worst` (nanoseconds a write), `pages`
/// (a second) and `server_us` (CPU of the server, microseconds a page).
#[derive(Debug, Default)]
pub struct Readers {
    inputs: BTreeMap<usize, Load>,
    server: Option<Server>,
    passes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    readers: usize,
    rate: u64,
    puts: u64,
}

struct Reader {
    stream: TcpStream,
    /// The received part of the head of the answer.
    head: Vec<u8>,
    /// Remaining bytes of the body; `None` while the head is incomplete.
    body: Option<u64>,
    awaits_page: bool,
    page: u64,
}

impl Reader {
    fn open(address: &str, number: u64) -> Result<Reader, ContenderError> {
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut reader = Reader {
            stream,
            head: Vec::new(),
            body: None,
            awaits_page: false,
            page: number % (RECORDS / PAGE_RECORDS),
        };
        // When many connections are open, the server closes those without a request.
        reader.request()?;
        let mut buffer = vec![0; READ_BYTES];
        while !reader.read(&mut buffer)? {}
        reader.stream.set_nonblocking(true).map_err(failed)?;
        Ok(reader)
    }

    /// Requests the next page. A request fits the buffer of an idle connection.
    fn request(&mut self) -> Result<(), ContenderError> {
        let after = self.page * PAGE_RECORDS;
        self.page = (self.page + 1) % (RECORDS / PAGE_RECORDS);
        self.awaits_page = true;
        let request = format!(
            "GET /v1/topics/{READ_TOPIC}/events?after={after}&limit={PAGE_RECORDS} HTTP/1.1\r\nhost: localhost\r\n\r\n"
        );
        self.stream.write_all(request.as_bytes()).map_err(failed)
    }

    /// Reads the available bytes. Returns whether the answer is complete.
    fn read(&mut self, buffer: &mut [u8]) -> Result<bool, ContenderError> {
        let read = match self.stream.read(buffer) {
            Ok(0) => return Err(failed("the server closed the connection of a reader")),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = buffer.get(..read).unwrap_or_default();
        if self.body.is_none() {
            self.head.extend_from_slice(bytes);
            let Some(end) = memchr::memmem::find(&self.head, b"\r\n\r\n") else {
                if self.head.len() > HEAD_BYTES_MAX {
                    return Err(failed("an answer has no end of its head"));
                }
                return Ok(false);
            };
            let head = String::from_utf8_lossy(self.head.get(..end).unwrap_or_default());
            let length = head
                .lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                .and_then(|(_, value)| value.trim().parse().ok());
            let (true, Some(length)) = (head.starts_with("HTTP/1.1 200"), length) else {
                return Err(failed(head));
            };
            self.body = Some(length);
            let rest = self.head.len() - end - 4;
            bytes = bytes.get(bytes.len() - rest..).unwrap_or_default();
        }
        let left = self.body.unwrap_or_default();
        let left = left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| failed("an answer is longer than its Content-Length"))?;
        self.body = Some(left);
        if left > 0 {
            return Ok(false);
        }
        self.head.clear();
        self.body = None;
        self.awaits_page = false;
        Ok(true)
    }
}

/// Reads until `done`. Returns the number of pages.
fn read_all(readers: &mut [Reader], rate: u64, done: &AtomicBool) -> Result<u64, ContenderError> {
    // On Linux, this sets the priority of only this thread.
    setpriority_process(None, NICE).map_err(failed)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
    for (number, reader) in (0..).zip(readers.iter_mut()) {
        let data = epoll::EventData::new_u64(number);
        epoll::add(&poll, &reader.stream, data, epoll::EventFlags::IN).map_err(failed)?;
        if rate == 0 {
            reader.request()?;
        }
    }
    let mut buffer = vec![0; READ_BYTES];
    let mut events = [MaybeUninit::<epoll::Event>::uninit(); 256];
    let (start, mut turn, mut pages) = (wall_ns(), 0u64, 0u64);
    let count = readers.len() as u64;
    while !done.load(Ordering::Relaxed) {
        let mut wait = POLL_INTERVAL;
        if rate > 0 {
            let due = |turn: u64| start + turn * 1_000_000_000 / rate;
            while due(turn) <= wall_ns() {
                let index = usize::try_from(turn % count).unwrap_or_default();
                // A reader that still waits for its page skips its turn.
                if let Some(reader) = readers.get_mut(index).filter(|reader| !reader.awaits_page) {
                    reader.request()?;
                }
                turn += 1;
            }
            wait = wait.min(Duration::from_nanos(due(turn).saturating_sub(wall_ns())));
        }
        let wait = wait.try_into().map_err(failed)?;
        let (ready, _) = epoll::wait(&poll, &mut events, Some(&wait)).map_err(failed)?;
        for event in ready {
            let number = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let Some(reader) = readers.get_mut(number) else {
                continue;
            };
            if reader.read(&mut buffer)? {
                pages += 1;
                if rate == 0 {
                    reader.request()?;
                }
            }
        }
    }
    Ok(pages)
}

/// Puts records one after the other. Returns the nanoseconds of each.
fn write_all(weir: &Weir, puts: u64, id: u64) -> Result<Vec<u64>, ContenderError> {
    let mut client = [9; 16];
    client
        .iter_mut()
        .zip(id.to_le_bytes())
        .for_each(|(to, from)| *to = from);
    let mut session = weir.session(ClientId(client));
    let value = [b'w'; VALUE_BYTES];
    let put = Operation::Put {
        key: &[],
        value: &value,
    };
    let mut times = Vec::new();
    for _ in 0..puts {
        let start = wall_ns();
        let put = Intention::new(WRITTEN_TOPIC, put);
        let verdicts = session.send(&[put]).map_err(failed)?;
        let verdicts = verdicts.wait().map_err(failed)?;
        times.push(wall_ns() - start);
        if !verdicts.iter().all(weir::Verdict::is_valid) {
            return Err(failed("a put was not VALID"));
        }
    }
    Ok(times)
}

impl Readers {
    /// Creates both topics, and fills the topic that is read.
    fn fill(server: &Server) -> Result<(), ContenderError> {
        let weir = Weir::connect(&server.url).map_err(failed)?;
        for name in [READ_TOPIC, WRITTEN_TOPIC] {
            let topic = weir.topic(name).map_err(failed)?;
            topic.ensure().map_err(failed)?;
        }
        let mut session = weir.session(ClientId([3; 16]));
        let value = [b'r'; VALUE_BYTES];
        let put = Operation::Put {
            key: &[],
            value: &value,
        };
        let call: Vec<_> = (0..PAGE_RECORDS)
            .map(|_| Intention::new(READ_TOPIC, put))
            .collect();
        for _ in 0..RECORDS / PAGE_RECORDS {
            let verdicts = session.send(&call).map_err(failed)?;
            let verdicts = verdicts.wait().map_err(failed)?;
            if !verdicts.iter().all(weir::Verdict::is_valid) {
                return Err(failed("a put was not VALID"));
            }
        }
        Ok(())
    }

    #[allow(clippy::cast_precision_loss)] // nanoseconds and counts below 2^53
    fn pass(server: &Server, load: Load, number: u64) -> Result<Timed, ContenderError> {
        let weir = Weir::connect(&server.url).map_err(failed)?;
        let address = server.http.as_deref().unwrap_or_default();
        let mut readers = (0..load.readers as u64)
            .map(|number| Reader::open(address, number))
            .collect::<Result<Vec<_>, _>>()?;
        let done = AtomicBool::new(false);
        let (server_before, cpu, wall) = (server.cpu_ns(), process_cpu_ns(), wall_ns());
        let (times, pages) = std::thread::scope(|scope| {
            let done = &done;
            let reading =
                (load.readers > 0).then(|| scope.spawn(|| read_all(&mut readers, load.rate, done)));
            let times = write_all(&weir, load.puts, number);
            done.store(true, Ordering::Relaxed);
            let pages = reading.map_or(Ok(0), |reading| {
                reading.join().map_err(|_| failed("the readers panicked"))?
            });
            Ok::<_, ContenderError>((times?, pages?))
        })?;
        let (wall_ns, cpu_ns) = (wall_ns() - wall, process_cpu_ns() - cpu);
        let (used, _) = server.cpu_since(&server_before);
        let mut times = times;
        times.sort_unstable();
        let at = |share: usize| {
            let index = (times.len() * share / 100).min(times.len().saturating_sub(1));
            times.get(index).copied().unwrap_or(0) as f64
        };
        let extra = [
            ("p50", at(50)),
            ("p99", at(99)),
            ("worst", at(100)),
            ("pages", pages as f64 * 1e9 / wall_ns as f64),
            ("server_us", used as f64 / 1e3 / pages.max(1) as f64),
        ];
        Ok(Timed {
            wall_ns,
            cpu_ns,
            touch: load.puts,
            extra: extra.map(|(name, value)| (name.to_owned(), value)).into(),
        })
    }

    fn once(&mut self, input: usize, most: u64) -> Result<Timed, ContenderError> {
        self.passes += 1;
        let missing = || ContenderError::NotLoaded(input);
        let load = *self.inputs.get(&input).ok_or_else(missing)?;
        let server = self.server.as_ref().ok_or_else(missing)?;
        let load = Load {
            puts: load.puts.min(most),
            ..load
        };
        server.signal(Signal::CONT)?;
        let timed = Self::pass(server, load, self.passes);
        server.signal(Signal::STOP)?;
        timed
    }
}

impl Contender for Readers {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let load = Load {
            readers: parameter(fields, "readers")?,
            rate: parameter(fields, "rate")?,
            puts: parameter(fields, "puts")?,
        };
        if load.puts == 0 {
            return Err(ContenderError::Parameter("puts"));
        }
        if self.server.is_none() {
            let level: String = parameter(fields, "level")?;
            let server = Server::start(&level, 1, fields, input)?;
            server.signal(Signal::CONT)?;
            Self::fill(&server)?;
            server.signal(Signal::STOP)?;
            self.server = Some(server);
        }
        self.inputs.insert(input, load);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        self.once(input, 20)?;
        let load = self.inputs.get(&input);
        Ok(Answer {
            touch: load.map_or(0, |load| load.puts),
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
