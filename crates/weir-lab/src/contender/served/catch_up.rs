//! A node that joins a cluster with many records, while a client writes.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::fs;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use weir::{ClientId, Intention, Operation, Session, Weir};

use super::{Node, POLL_INTERVAL, READY_TIMEOUT, Server, accepted};
use crate::clock::Stopwatch;
use crate::contender::store::{Load, Payload, failed, remove};
use crate::contender::{Contender, ContenderError, parameter};
use crate::protocol::{Answer, Fields, Timed};

/// Time for which the speed of the client is measured before the node joins.
const ALONE_FOR: Duration = Duration::from_secs(3);
/// Nodes before the join.
const NODES: u16 = 3;
/// The topic of all messages.
const TOPIC: &str = "catch-up";

/// A cluster of three nodes at the durability `level` that holds `messages` messages of `bytes`
/// bytes, and one client that writes more: `batch` messages a call, with up to `window` calls
/// without an answer. `run` starts a fourth node on an empty directory. Its wall time ends when the
/// node votes, which the leader permits after the node has caught up. Reports `kept`: the share of
/// its speed that the client keeps meanwhile. The node is removed after the measurement.
#[derive(Debug, Default)]
pub struct CatchUp {
    inputs: BTreeMap<usize, Cluster>,
}

#[derive(Debug)]
struct Cluster {
    server: Server,
    load: Load,
    payload: Payload,
    level: String,
    /// Number of joins so far, for the names of directories and clients.
    joins: u64,
}

impl Cluster {
    /// Writes messages until `end` returns true. Returns the number of acknowledged messages.
    fn write(
        &self,
        session: &mut Session,
        end: impl Fn(u64) -> bool,
    ) -> Result<u64, ContenderError> {
        let batch = self.load.batch as u64;
        let mut waiting = VecDeque::new();
        let mut sent = 0;
        while !end(sent) {
            let call: Vec<Intention<'_>> = (sent..sent + batch)
                .map(|number| {
                    let value = self.payload.message(number);
                    Intention::new(TOPIC, Operation::Put { key: &[], value })
                })
                .collect();
            waiting.push_back(session.send(&call).map_err(failed)?);
            sent += batch;
            if waiting.len() > self.load.window
                && let Some(first) = waiting.pop_front()
            {
                accepted(first)?;
            }
        }
        waiting.into_iter().try_for_each(accepted)?;
        Ok(sent)
    }

    /// A session with an id that no other session of this cluster uses.
    fn session(&self, weir: &Weir, purpose: u8) -> Session {
        let mut id = [purpose; 16];
        id.iter_mut()
            .zip(self.joins.to_le_bytes())
            .for_each(|(to, from)| *to = from);
        weir.session(ClientId(id))
    }

    /// Messages a second of a client that writes until `end` is set or `time` has passed.
    #[allow(clippy::cast_precision_loss)] // counts below 2^53
    fn speed(
        &self,
        session: &mut Session,
        end: &AtomicBool,
        time: Duration,
    ) -> Result<f64, ContenderError> {
        let start = Instant::now();
        let is_over = |_| end.load(Ordering::Relaxed) || start.elapsed() >= time;
        let count = self.write(session, is_over)?;
        Ok(count as f64 / start.elapsed().as_secs_f64())
    }

    /// One join beside a client. Returns its time, and the share of its speed that the client kept.
    fn join(&mut self) -> Result<(Duration, f64), ContenderError> {
        self.server.wait_until_ready()?;
        self.joins += 1;
        let weir = Weir::connect(&self.server.url).map_err(failed)?;
        let mut session = self.session(&weir, 1);
        let end = AtomicBool::new(false);
        let alone = self.speed(&mut session, &end, ALONE_FOR)?;
        let dir = self.server.dir.join(format!("joins-{}", self.joins));
        let (time, beside) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| self.speed(&mut session, &end, Duration::MAX));
            let joined = self.join_and_leave(&dir, &end);
            end.store(true, Ordering::Relaxed);
            let beside = writer.join().map_err(|_| failed("the writer panicked"))?;
            Ok::<_, ContenderError>((joined?, beside?))
        })?;
        remove(&dir)?;
        Ok((time, beside / alone))
    }

    /// Starts a node in `dir`, waits until it votes, sets `end`, and removes the node from the
    /// cluster. Returns the time until the node voted.
    fn join_and_leave(
        &self,
        dir: &std::path::Path,
        end: &AtomicBool,
    ) -> Result<Duration, ContenderError> {
        let statuses = self.server.cluster_status();
        let members = statuses.iter().flat_map(|status| &status.members);
        let mut peers: Vec<String> = members.map(|member| member.peer.clone()).collect();
        peers.sort_unstable();
        peers.dedup();
        fs::create_dir_all(dir).map_err(failed)?;
        let (place, peers, peer) = (dir.display().to_string(), peers.join(","), free_address()?);
        let words = [
            "serve",
            "--at",
            &place,
            "--join",
            &peers,
            "--peer",
            &peer,
            "--http",
            "127.0.0.1:0",
            "--native",
            "127.0.0.1:0",
            "--durability",
            &self.level,
        ];
        let start = Instant::now();
        let mut node = Node::start(words.map(str::to_owned).into(), &mut None)?;
        let voted = self.wait_until_votes(&peer);
        let time = start.elapsed();
        end.store(true, Ordering::Relaxed);
        let removed = voted.and_then(|number| {
            let weir = Weir::connect(&self.server.url).map_err(failed)?;
            weir.remove_node(number).map_err(failed)
        });
        node.end();
        removed?;
        Ok(time)
    }

    /// Waits until a member with this peer address votes. Returns its number.
    fn wait_until_votes(&self, peer: &str) -> Result<u64, ContenderError> {
        let until = Instant::now() + READY_TIMEOUT;
        while Instant::now() < until {
            let statuses = self.server.nodes.first().and_then(Node::cluster_status);
            let members = statuses.into_iter().flat_map(|status| status.members);
            let mut voters = members.filter(|member| member.votes);
            if let Some(found) = voters.find(|member| member.peer == peer) {
                return Ok(found.node);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Err(failed("the node did not become a voter"))
    }
}

/// An address of the loopback interface with a free port.
fn free_address() -> Result<String, ContenderError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    Ok(listener.local_addr().map_err(failed)?.to_string())
}

impl Contender for CatchUp {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let load = Load::read(fields)?;
        if load.producers != 1 {
            return Err(ContenderError::Parameter("producers"));
        }
        let level: String = parameter(fields, "level")?;
        let cluster = Cluster {
            server: Server::start(&level, NODES, fields, input)?,
            payload: load.payload(0),
            load,
            level,
            joins: 0,
        };
        cluster.server.signal(Signal::CONT)?;
        cluster.server.wait_until_ready()?;
        let weir = Weir::connect(&cluster.server.url).map_err(failed)?;
        weir.topic(TOPIC)
            .map_err(failed)?
            .ensure()
            .map_err(failed)?;
        let mut session = cluster.session(&weir, 0);
        cluster.write(&mut session, |sent| sent >= load.messages)?;
        cluster.server.signal(Signal::STOP)?;
        self.inputs.insert(input, cluster);
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        self.run(input, 1)?;
        Ok(Answer {
            touch: 1,
            ..Answer::default()
        })
    }

    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let cluster = self
            .inputs
            .get_mut(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let mut sum = Timed::default();
        for _ in 0..iterations {
            cluster.server.signal(Signal::CONT)?;
            let watch = Stopwatch::start();
            let (time, kept) = cluster.join()?;
            let (_, cpu_ns) = watch.stop();
            cluster.server.signal(Signal::STOP)?;
            sum.wall_ns += u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            sum.cpu_ns += cpu_ns;
            sum.touch += 1;
            *sum.extra.entry("kept".to_owned()).or_default() += kept;
        }
        Ok(sum)
    }
}
