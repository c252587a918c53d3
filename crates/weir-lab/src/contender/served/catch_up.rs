//! A node that joins a cluster with many records, while a client writes.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use weir::{ClientId, Consistency, Intention, Operation, Session, Weir};

use super::{Node, POLL_INTERVAL, READY_TIMEOUT, Server, accepted, cluster_status};
use crate::clock::Stopwatch;
use crate::contender::store::{Load, Payload, failed};
use crate::contender::{Contender, ContenderError, parameter};
use crate::protocol::{Answer, Fields, Timed};

/// Time for which the speed of the client is measured before the node joins.
const ALONE_FOR: Duration = Duration::from_secs(3);
/// Nodes before the join.
const NODES: u16 = 3;
/// The topic of all messages.
const TOPIC: &str = "catch-up";

/// Each iteration creates a cluster of three nodes at the durability `level` that holds `messages` messages of `bytes`
/// bytes. One client writes more: `batch` messages a call, with up to `window` calls without an
/// answer. Then a fourth node starts on an empty directory. The wall time ends when it has applied
/// everything that the leader had when the node became a voter. Reports `kept`, the speed of the
/// client during the join divided by its speed before, and `records`, the number of messages that
/// the node then has.
#[derive(Debug, Default)]
pub struct CatchUp {
    inputs: BTreeMap<usize, (Load, String, Fields)>,
}

#[derive(Debug)]
struct Cluster {
    server: Server,
    load: Load,
    payload: Payload,
    level: String,
}

/// The measurement of a join.
struct Join {
    time: Duration,
    /// The speed of the client during the join, divided by its speed before.
    kept: f64,
    /// Number of messages that the node had at the end.
    records: u64,
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

    /// Starts the nodes, and writes all messages.
    fn start(
        load: Load,
        level: &str,
        fields: &Fields,
        input: usize,
    ) -> Result<Self, ContenderError> {
        let cluster = Cluster {
            server: Server::start(level, NODES, fields, input)?,
            payload: load.payload(0),
            load,
            level: level.to_owned(),
        };
        cluster.server.signal(Signal::CONT)?;
        cluster.server.wait_until_ready()?;
        let weir = Weir::connect(&cluster.server.url).map_err(failed)?;
        let topic = weir.topic(TOPIC).map_err(failed)?;
        topic.ensure().map_err(failed)?;
        let mut session = weir.session(ClientId([1; 16]));
        cluster.write(&mut session, |sent| sent >= load.messages)?;
        Ok(cluster)
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

    /// One join beside a client.
    fn join(&self) -> Result<Join, ContenderError> {
        self.server.wait_until_ready()?;
        let weir = Weir::connect(&self.server.url).map_err(failed)?;
        let mut session = weir.session(ClientId([2; 16]));
        let end = AtomicBool::new(false);
        let alone = self.speed(&mut session, &end, ALONE_FOR)?;
        let ((time, records), beside) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| self.speed(&mut session, &end, Duration::MAX));
            let joined = self.start_node(&end);
            end.store(true, Ordering::Relaxed);
            let beside = writer.join().map_err(|_| failed("the writer panicked"))?;
            Ok::<_, ContenderError>((joined?, beside?))
        })?;
        Ok(Join {
            time,
            kept: beside / alone,
            records,
        })
    }

    /// Starts a node, waits until it has caught up, sets `end`, and ends the node. Returns the time,
    /// and the number of messages that the node had.
    fn start_node(&self, end: &AtomicBool) -> Result<(Duration, u64), ContenderError> {
        let statuses = self.server.cluster_status();
        let members = statuses.iter().flat_map(|status| &status.members);
        let mut peers: Vec<String> = members.map(|member| member.peer.clone()).collect();
        peers.sort_unstable();
        peers.dedup();
        let dir = self.server.dir.join("joins");
        fs::create_dir_all(&dir).map_err(failed)?;
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
        let caught_up = self.wait_until_caught_up(&node, &peer);
        let time = start.elapsed();
        end.store(true, Ordering::Relaxed);
        let result = caught_up.and_then(|()| {
            let joined = Weir::connect(&node.url).map_err(failed)?;
            let joined = joined.with_consistency(Consistency::Local);
            let info = joined.topic(TOPIC).map_err(failed)?.try_info();
            let records = info.map_err(failed)?.map_or(0, |info| info.last.0 - 1);
            if records < self.load.messages {
                return Err(failed(format!("the node has {records} records")));
            }
            Ok((time, records))
        });
        node.end();
        result
    }

    /// Waits until the member with this peer address votes, and has applied what the leader had
    /// then.
    fn wait_until_caught_up(&self, node: &Node, peer: &str) -> Result<(), ContenderError> {
        let first = self.server.nodes.first();
        let first = first.ok_or_else(|| failed("the cluster has no node"))?;
        let first = Weir::connect(&first.url).map_err(failed)?;
        let until = Instant::now() + READY_TIMEOUT;
        let mut wanted = None;
        while Instant::now() < until {
            if let Some(last) = wanted {
                let status = node.cluster_status();
                if status.is_some_and(|status| status.applied >= last) {
                    return Ok(());
                }
            } else if let Some(status) = cluster_status(&first) {
                let mut members = status.members.iter();
                let is_voter = members.any(|member| member.votes && member.peer == peer);
                wanted = is_voter.then_some(status.last);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Err(failed("the node did not catch up"))
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
        self.inputs.insert(input, (load, level, fields.clone()));
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
        let (load, level, fields) = self
            .inputs
            .get(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let mut sum = Timed::default();
        for _ in 0..iterations {
            let cluster = Cluster::start(*load, level, fields, input)?;
            let watch = Stopwatch::start();
            let join = cluster.join()?;
            let (_, cpu_ns) = watch.stop();
            sum.wall_ns += u64::try_from(join.time.as_nanos()).unwrap_or(u64::MAX);
            sum.cpu_ns += cpu_ns;
            sum.touch += 1;
            #[allow(clippy::cast_precision_loss)] // a count below 2^53
            let records = join.records as f64;
            for (name, value) in [("kept", join.kept), ("records", records)] {
                *sum.extra.entry(name.to_owned()).or_default() += value;
            }
        }
        Ok(sum)
    }
}
