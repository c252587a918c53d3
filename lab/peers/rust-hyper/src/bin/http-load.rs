//! The contender of the lab for HTTP servers: starts the server that its arguments name, on a
//! separate CPU, and loads it from the CPU to which this process is pinned.
//!
//! `http-load SERVER [WORD...]`, where `{port}` and `{data}` in the words are replaced by a free
//! port and a directory. Then it implements the line protocol of the lab.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

use rust_hyper::client::{Client, Outcome};
use rust_hyper::machine::{CPUS, idle_ns, now_ns, own_ns, stir_cpus};
use rust_hyper::params::{Fields, Params, Rhythm};
use rust_hyper::server::{GUARD, Server, guard, server_cpu};
use rust_hyper::{Error, locked};

/// Requests of a check.
const CHECK_REQUESTS: usize = 200;

/// The inputs and the server they share.
struct Load {
    words: Vec<String>,
    server: Option<Server>,
    inputs: BTreeMap<usize, Params>,
    runs: u64,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        None => {
            eprintln!("usage: http-load SERVER [WORD...]");
            return ExitCode::from(2);
        }
        Some("--version") => {
            println!("http-load, mio {}", locked("mio"));
            return ExitCode::SUCCESS;
        }
        Some(GUARD) => {
            let parent = words.get(1).map_or("", String::as_str);
            return match guard(parent, words.get(2..).unwrap_or_default()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("http-load: {error}");
                    ExitCode::FAILURE
                }
            };
        }
        Some(_) => {}
    }
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        "optimised"
    };
    print_line(&format!(
        "hello\t1\tprofile={profile}\tmio={}\tserver={}",
        locked("mio"),
        version(&words[0])
    ));
    let mut load = Load {
        words,
        server: None,
        inputs: BTreeMap::new(),
        runs: 0,
    };
    for line in std::io::stdin().lines() {
        let Ok(line) = line else { break };
        if line == "quit" {
            break;
        }
        match load.serve(&line) {
            Ok(reply) => print_line(&reply),
            Err(error) => print_line(&format!(
                "error\t{}",
                error.to_string().replace(['\t', '\n', '\r'], " ")
            )),
        }
    }
    ExitCode::SUCCESS
}

fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    // If the lab has ended, the input of this program has ended too.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// First line that the server prints for `--version`.
fn version(program: &str) -> String {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default()
        .lines()
        .next()
        .unwrap_or("unknown")
        .replace('\t', " ")
}

impl Load {
    fn serve(&mut self, line: &str) -> Result<String, Error> {
        let mut words = line.split('\t');
        let verb = words.next().unwrap_or_default();
        let input = words
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or(Error::Malformed)?;
        match verb {
            "load" => {
                let pair = |word: &str| {
                    word.split_once('=')
                        .map(|(k, v)| (k.to_owned(), v.to_owned()))
                };
                let fields = words.map(pair).collect::<Option<Fields>>();
                self.load(input, &fields.ok_or(Error::Malformed)?)?;
                Ok("ok".to_owned())
            }
            "check" => {
                let params = self.params(input)?;
                let few = Params {
                    requests: CHECK_REQUESTS.min(params.requests),
                    ..params.clone()
                };
                let (_, outcome) = self.measured(&few)?;
                Ok(format!(
                    "answer\t{:016x}\t{:x}\t0\t0",
                    outcome.content, params.requests
                ))
            }
            "run" => {
                let count = words
                    .next()
                    .and_then(|word| word.parse().ok())
                    .ok_or(Error::Malformed)?;
                self.run(input, count)
            }
            _ => Err(Error::Malformed),
        }
    }

    fn params(&self, input: usize) -> Result<Params, Error> {
        self.inputs
            .get(&input)
            .cloned()
            .ok_or(Error::NotLoaded(input))
    }

    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), Error> {
        let params = Params::read(fields)?;
        if self.server.is_none() {
            let dir = fields.get("dir").ok_or(Error::Parameter("dir"))?;
            let cpu = server_cpu(fields.get("server_cpu").map_or("auto", String::as_str))?;
            let server = Server::start(&self.words, Path::new(dir), cpu)?;
            if let Some(request) = &params.setup {
                let once = Params {
                    requests: 1,
                    connections: 1,
                    rhythm: Rhythm::Closed,
                    request: request.clone(),
                    echo: None,
                    inflate: false,
                    setup: None,
                };
                Client::connect(server.address, 1)?.run(&once, 0)?;
            }
            server.freeze()?;
            self.server = Some(server);
        }
        self.inputs.insert(input, params);
        Ok(())
    }

    fn run(&mut self, input: usize, count: u64) -> Result<String, Error> {
        let params = self.params(input)?;
        let (mut wall, mut cpu, mut touch) = (0, 0, 0u64);
        let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
        for _ in 0..count {
            let (used, outcome) = self.measured(&params)?;
            wall += outcome.wall_ns;
            cpu += used.client_ns;
            touch += outcome.latencies.len() as u64;
            let mut latencies = outcome.latencies;
            latencies.sort_unstable();
            let requests = params.requests as f64;
            // Nearest rank.
            let at = |share: f64| {
                let rank = (share * requests).ceil().max(1.0) as usize;
                latencies.get(rank - 1).map_or(0.0, |ns| *ns as f64 / 1e3)
            };
            for (name, value) in [
                ("server_us", used.server_ns as f64 / 1e3 / requests),
                ("wakeups", used.wakeups as f64 / requests),
                ("idle", used.idle),
                (
                    "client_share",
                    used.client_ns as f64 / outcome.wall_ns.max(1) as f64,
                ),
                ("p50_us", at(0.5)),
                ("p90_us", at(0.9)),
                ("p99_us", at(0.99)),
                ("p999_us", at(0.999)),
                ("max_us", at(1.0)),
                ("rate", requests * 1e9 / outcome.wall_ns.max(1) as f64),
            ] {
                *sums.entry(name).or_default() += value;
            }
        }
        let extra: String = sums
            .iter()
            .map(|(name, sum)| format!("\t{name}={sum:.6}"))
            .collect();
        Ok(format!("time\t{wall}\t{cpu}\t{touch:x}{extra}"))
    }

    /// One iteration, with its use of the machine.
    fn measured(&mut self, params: &Params) -> Result<(Used, Outcome), Error> {
        let server = self.server.as_ref().ok_or(Error::Malformed)?;
        server.thaw()?;
        let mut client = Client::connect(server.address, params.connections)?;
        self.runs += 1;
        stir_cpus();
        let (idle, from) = (idle_ns(), now_ns());
        let (server_ns, client_ns) = (server.cpu_ns(), own_ns());
        let wakeups = server.wakeups();
        let outcome = client.run(params, self.runs)?;
        let used = Used {
            client_ns: own_ns() - client_ns,
            server_ns: server.cpu_ns().saturating_sub(server_ns),
            wakeups: server.wakeups().saturating_sub(wakeups),
            idle: 0.0,
        };
        let window = (now_ns() - from) as f64 * *CPUS as f64;
        stir_cpus();
        let idle = (idle_ns().saturating_sub(idle) as f64 / window).min(1.0);
        drop(client);
        server.freeze()?;
        Ok((Used { idle, ..used }, outcome))
    }
}

/// The resources of an iteration, except time.
struct Used {
    client_ns: u64,
    server_ns: u64,
    wakeups: u64,
    idle: f64,
}
