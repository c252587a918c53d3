//! The load client: one thread, many connections, closed or open loop.
//!
//! Invariants:
//! - In an open loop, a latency starts when the request is due, even if no
//!   connection is free. So a server that stalls cannot hide the requests that
//!   it delayed.
//! - Every request that is due is sent.
//! - The status of every response is checked, and its body if the expected body is known.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::bench::inflate;
use crate::http::answer;
use crate::machine::now_ns;
use crate::params::{Params, Rhythm};
use crate::{Error, fnv, io};

/// Size of the read buffer.
const READ_BYTES: usize = 64 << 10;
/// Longest time without a response.
const SILENCE: Duration = Duration::from_secs(60);

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Due time of the first request, in nanoseconds of the monotonic clock.
    pub begun_ns: u64,
    /// Nanoseconds from the due time of the first request to the last response.
    pub wall_ns: u64,
    /// Latency of each request in nanoseconds, in the order of the responses.
    pub latencies: Vec<u64>,
    /// FNV-1a of the last body, after inflating it if requested.
    pub content: u64,
}

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    filled: usize,
    /// Number of bytes of the request that were sent.
    sent: usize,
    /// Due time of the current request.
    due: Option<u64>,
}

/// Connections that are open.
pub struct Client {
    poll: Poll,
    connections: Vec<Connection>,
}

impl Client {
    /// Opens `count` connections to `address`.
    pub fn connect(address: SocketAddr, count: usize) -> Result<Client, Error> {
        let poll = Poll::new().map_err(io("epoll"))?;
        let mut connections = Vec::with_capacity(count);
        for number in 0..count {
            let stream = std::net::TcpStream::connect(address).map_err(io("connect"))?;
            stream.set_nodelay(true).map_err(io("connect"))?;
            stream.set_nonblocking(true).map_err(io("connect"))?;
            let mut stream = TcpStream::from_std(stream);
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry()
                .register(&mut stream, Token(number), interest)
                .map_err(io("epoll"))?;
            let input = vec![0; READ_BYTES];
            connections.push(Connection {
                stream,
                input,
                filled: 0,
                sent: 0,
                due: None,
            });
        }
        Ok(Client { poll, connections })
    }

    /// Sends `params.requests` requests and waits for all responses.
    pub fn run(&mut self, params: &Params, seed: u64) -> Result<Outcome, Error> {
        let mut outcome = Outcome {
            latencies: Vec::with_capacity(params.requests),
            ..Outcome::default()
        };
        let mut free: VecDeque<usize> = (0..self.connections.len()).collect();
        let mut events = Events::with_capacity(1_024);
        let begun = now_ns();
        let mut schedule = Schedule::new(params, seed, begun);
        let mut heard = begun;
        while outcome.latencies.len() < params.requests {
            while let Some(due) = schedule.peek(now_ns())
                && let Some(number) = free.pop_front()
            {
                schedule.next();
                let connection = &mut self.connections[number];
                connection.due = Some(due);
                connection.sent = 0;
                connection.send(&params.request)?;
            }
            // In an open loop the next request may be due at any moment.
            let wait = match params.rhythm {
                Rhythm::Open(_) => Duration::ZERO,
                Rhythm::Closed => SILENCE,
            };
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => other.map_err(io("epoll"))?,
            }
            if events.is_empty() {
                if now_ns() - heard > SILENCE.as_nanos() as u64 {
                    return Err(Error::Silent);
                }
                continue;
            }
            for event in &events {
                let number = event.token().0;
                let connection = &mut self.connections[number];
                if connection.due.is_some() && connection.sent < params.request.len() {
                    connection.send(&params.request)?;
                }
                if connection.due.is_some() && connection.receive(params, &mut outcome)? {
                    free.push_back(number);
                }
            }
            heard = now_ns();
        }
        outcome.begun_ns = begun;
        outcome.wall_ns = heard - begun;
        Ok(outcome)
    }
}

impl Connection {
    fn send(&mut self, request: &[u8]) -> Result<(), Error> {
        while self.sent < request.len() {
            match self.stream.write(&request[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(io("send")(error)),
            }
        }
        Ok(())
    }

    /// Reads the available bytes. Returns whether the response is complete.
    fn receive(&mut self, params: &Params, outcome: &mut Outcome) -> Result<bool, Error> {
        loop {
            if self.filled == self.input.len() {
                self.input.resize(self.input.len() * 2, 0);
            }
            let room = self.input.len() - self.filled;
            let count = match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => {
                    return Err(Error::Answer(
                        "nothing, and closed the connection".to_owned(),
                    ));
                }
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(io("receive")(error)),
            };
            self.filled += count;
            if let Some(found) = answer(&self.input[..self.filled])? {
                let body = &self.input[found.body..found.end];
                let differs = params.echo.as_ref().is_some_and(|echo| echo != body);
                if !(200..300).contains(&found.status) || differs || found.end != self.filled {
                    let text = String::from_utf8_lossy(&self.input[..self.filled.min(300)]);
                    return Err(Error::Answer(text.into_owned()));
                }
                let due = self.due.take().unwrap_or_default();
                outcome.latencies.push(now_ns() - due);
                if outcome.latencies.len() == params.requests {
                    outcome.content = match params.inflate {
                        true => fnv(&inflate(body).map_err(|_| {
                            Error::Answer("a body that is not a zlib stream".to_owned())
                        })?),
                        false => fnv(body),
                    };
                }
                self.filled = 0;
                return Ok(true);
            }
            // A short read has emptied the socket; the next event reports new bytes.
            if count < room {
                return Ok(false);
            }
        }
    }
}

/// The due times of requests.
struct Schedule {
    left: usize,
    due: Option<f64>,
    gap: f64,
    state: u64,
}

impl Schedule {
    fn new(params: &Params, seed: u64, begun: u64) -> Schedule {
        let (due, gap) = match params.rhythm {
            Rhythm::Closed => (None, 0.0),
            Rhythm::Open(rate) => (Some(begun as f64), 1e9 / rate),
        };
        Schedule {
            left: params.requests,
            due,
            gap,
            state: seed,
        }
    }

    /// The due time of the next request, if it is not after `now`.
    fn peek(&self, now: u64) -> Option<u64> {
        match self.due {
            _ if self.left == 0 => None,
            None => Some(now),
            Some(due) => (due as u64 <= now).then_some(due as u64),
        }
    }

    fn next(&mut self) {
        self.left -= 1;
        if let Some(due) = &mut self.due {
            // SplitMix64, as a number above 0 and up to 1.
            self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^= z >> 31;
            let unit = ((z >> 11) + 1) as f64 / (1u64 << 53) as f64;
            *due -= unit.ln() * self.gap;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Fields;
    use std::net::TcpListener;

    fn params(words: &[(&str, &str)]) -> Params {
        let fields: Fields = words
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Params::read(&fields).unwrap()
    }

    #[test]
    fn a_schedule_keeps_its_rate() {
        let params = params(&[
            ("requests", "10000"),
            ("connections", "1"),
            ("rate", "1000"),
        ]);
        let mut schedule = Schedule::new(&params, 7, 0);
        let mut last = 0;
        while let Some(due) = schedule.peek(u64::MAX) {
            assert!(due >= last);
            last = due;
            schedule.next();
        }
        let seconds = last as f64 / 1e9;
        assert!((9.5..10.5).contains(&seconds), "{seconds}");
    }

    /// A server that responds only after all requests are due: every latency
    /// must include the wait, although one connection can send only one.
    #[test]
    fn waiting_for_a_connection_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stall = Duration::from_millis(50);
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 4096];
            for number in 0..20 {
                assert!(stream.read(&mut buffer).unwrap() > 0);
                let begun = std::time::Instant::now();
                while number == 0 && begun.elapsed() < stall {
                    std::thread::yield_now();
                }
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                    .unwrap();
            }
        });
        let params = params(&[
            ("requests", "20"),
            ("connections", "1"),
            ("rate", "1000000"),
        ]);
        let mut client = Client::connect(address, 1).unwrap();
        let outcome = client.run(&params, 1).unwrap();
        server.join().unwrap();
        assert_eq!(outcome.latencies.len(), 20);
        let shortest = outcome.latencies.iter().min().unwrap();
        assert!(*shortest > 45_000_000, "{shortest}");
    }

    const REQUESTS: usize = 300;
    const STALL: Duration = Duration::from_millis(200);

    /// When a server had a request, and when it began to respond.
    struct Served {
        received: u64,
        responded: u64,
    }

    /// Whether the server stalls before it answers request `number`.
    fn is_stalled(number: usize) -> bool {
        number % 100 == 50
    }

    /// Runs `REQUESTS` requests on one connection against a server that stalls at 1 % of them.
    fn against_a_stalling_server(params: &Params) -> (Outcome, Vec<Served>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            let mut buffer = [0; 4096];
            let mut serve = |number| {
                assert!(stream.read(&mut buffer).unwrap() > 0);
                let received = now_ns();
                if is_stalled(number) {
                    std::thread::sleep(STALL);
                }
                let responded = now_ns();
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                    .unwrap();
                Served {
                    received,
                    responded,
                }
            };
            (0..REQUESTS).map(&mut serve).collect::<Vec<Served>>()
        });
        let mut client = Client::connect(address, 1).unwrap();
        let outcome = client.run(params, 1).unwrap();
        let served = server.join().unwrap();
        assert_eq!(outcome.latencies.len(), REQUESTS);
        (outcome, served)
    }

    /// The computed latency of a request is that of a server which needs no time except the stalls.
    /// The client must report at least this. It cannot have an answer before the server responded, and
    /// it had the answer when the server received the next request. So the bounds do not depend on the
    /// speed of the machine.
    #[test]
    fn latencies_of_an_open_loop_include_each_stall() {
        let params = params(&[("requests", "300"), ("connections", "1"), ("rate", "1000")]);
        let (outcome, served) = against_a_stalling_server(&params);
        let mut schedule = Schedule::new(&params, 1, outcome.begun_ns);
        let (mut done, mut computed) = (0, Vec::new());
        while let Some(due) = schedule.peek(u64::MAX) {
            schedule.next();
            let number = computed.len();
            let stall = if is_stalled(number) {
                STALL.as_nanos() as u64
            } else {
                0
            };
            done = due.max(done) + stall;
            computed.push(done - due);
            let latency = outcome.latencies[number];
            assert!(latency >= done - due, "{number}: {latency}");
            assert!(latency >= served[number].responded.saturating_sub(due));
            if let Some(next) = served.get(number + 1) {
                assert!(latency <= next.received - due, "{number}: {latency}");
            }
        }
        // Requests that were due during a stall are late, so more than 1 % are.
        computed.sort_unstable();
        let mut latencies = outcome.latencies;
        latencies.sort_unstable();
        let p90 = REQUESTS * 9 / 10 - 1;
        assert!(computed[p90] > STALL.as_nanos() as u64);
        assert!(latencies[p90] >= computed[p90]);
    }

    #[test]
    fn latencies_of_a_closed_loop_include_only_their_own_stall() {
        let params = params(&[("requests", "300"), ("connections", "1")]);
        let (outcome, served) = against_a_stalling_server(&params);
        for (number, latency) in outcome.latencies.iter().enumerate() {
            let stalled = *latency >= STALL.as_nanos() as u64;
            assert!(stalled || !is_stalled(number), "{number}: {latency}");
            let before = number.checked_sub(1).map(|before| served[before].responded);
            if let (Some(before), Some(next)) = (before, served.get(number + 1)) {
                assert!(*latency <= next.received - before, "{number}: {latency}");
            }
        }
        assert!(outcome.latencies.iter().sum::<u64>() <= outcome.wall_ns);
    }

    #[test]
    fn a_lost_response_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            // The connection closes without a response.
        });
        let params = params(&[("requests", "2"), ("connections", "1")]);
        let result = Client::connect(address, 1).unwrap().run(&params, 1);
        server.join().unwrap();
        assert!(result.is_err());
    }
}
