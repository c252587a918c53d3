//! Time without acknowledged writes in a cluster: after its leader was killed, and while leadership
//! is transferred.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use weir::{Topic, Weir};

use super::{Node, POLL_INTERVAL, READY_TIMEOUT, Server};
use crate::clock::Stopwatch;
use crate::contender::store::failed;
use crate::contender::{Contender, ContenderError, parameter};
use crate::protocol::{Answer, Fields, Timed};

/// Time for which the client writes before and after the event.
const MARGIN: Duration = Duration::from_millis(100);
/// The topic of all writes.
const TOPIC: &str = "failover";

/// A cluster of `nodes` nodes at the durability `level`, and a client that puts one message at a
/// time. `event` is `kill` (the leader is killed, and started again after the measurement) or
/// `transfer` (leadership moves to the next node). A sample is the longest time between two answers.
#[derive(Debug, Default)]
pub struct Failover {
    inputs: BTreeMap<usize, Running>,
}

#[derive(Debug)]
struct Running {
    server: Server,
    kill: bool,
}

impl Running {
    /// Index of a node in the list, from its number.
    fn index(&self, number: u64) -> Result<usize, ContenderError> {
        let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
        index
            .filter(|index| *index < self.server.nodes.len())
            .ok_or_else(|| failed("a node has an unknown number"))
    }

    /// Longest time between two answers to a client during the event.
    fn event(&mut self) -> Result<Duration, ContenderError> {
        let leader = self.server.wait_until_ready()?;
        let index = self.index(leader)?;
        let weir = Weir::connect(&self.server.url).map_err(failed)?;
        let topic = weir.topic(TOPIC).map_err(failed)?;
        topic.ensure().map_err(failed)?;
        let end = AtomicBool::new(false);
        let longest = std::thread::scope(|scope| {
            let writer = scope.spawn(|| longest_gap(&topic, &end));
            std::thread::sleep(MARGIN);
            let triggered = self.trigger(index, leader);
            // The client writes until a put after the event was answered.
            std::thread::sleep(MARGIN);
            end.store(true, Ordering::Relaxed);
            let longest = writer.join().map_err(|_| failed("the writer panicked"))?;
            triggered.and(longest)
        })?;
        if self.kill {
            let words = self.server.nodes.get(index).map(|node| node.words.clone());
            let again = Node::start(words.unwrap_or_default(), &mut self.server.http)?;
            if let Some(node) = self.server.nodes.get_mut(index) {
                *node = again;
            }
        }
        Ok(longest)
    }

    fn trigger(&mut self, index: usize, leader: u64) -> Result<(), ContenderError> {
        if self.kill {
            self.server.nodes.get_mut(index).map(Node::end);
            return Ok(());
        }
        let next = leader % self.server.nodes.len() as u64 + 1;
        let weir = Weir::connect(&self.server.url).map_err(failed)?;
        // A leader that was stopped until now may not have a connection to the other node yet.
        // It then refuses, and continues to lead.
        let until = Instant::now() + READY_TIMEOUT;
        loop {
            match weir.transfer_lead(next) {
                Err(error) if Instant::now() > until => return Err(failed(error)),
                Err(_) => std::thread::sleep(POLL_INTERVAL),
                Ok(()) => return Ok(()),
            }
        }
    }
}

/// Puts one message after the other until `end`, and then one more. Returns the longest time from
/// one answer to the next. A put that fails is sent again.
fn longest_gap(topic: &Topic, end: &AtomicBool) -> Result<Duration, ContenderError> {
    let until = Instant::now() + READY_TIMEOUT;
    let mut longest = Duration::ZERO;
    let mut last = Instant::now();
    let mut more = true;
    while more {
        more = !end.load(Ordering::Relaxed);
        while let Err(error) = topic.put("", "a message") {
            if Instant::now() > until {
                return Err(failed(error));
            }
        }
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    Ok(longest)
}

impl Contender for Failover {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let kill = match parameter::<String>(fields, "event")?.as_str() {
            "kill" => true,
            "transfer" => false,
            _ => return Err(ContenderError::Parameter("event")),
        };
        let nodes = parameter(fields, "nodes")?;
        if ![3, 5, 7].contains(&nodes) {
            return Err(ContenderError::Parameter("nodes"));
        }
        let level: String = parameter(fields, "level")?;
        let server = Server::start(&level, nodes, fields, input)?;
        self.inputs.insert(input, Running { server, kill });
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
        let running = self
            .inputs
            .get_mut(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let mut sum = Timed::default();
        for _ in 0..iterations {
            running.server.signal(Signal::CONT)?;
            let watch = Stopwatch::start();
            let longest = running.event()?;
            let (_, cpu_ns) = watch.stop();
            running.server.signal(Signal::STOP)?;
            sum.wall_ns += u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
            sum.cpu_ns += cpu_ns;
            sum.touch += 1;
        }
        Ok(sum)
    }
}
