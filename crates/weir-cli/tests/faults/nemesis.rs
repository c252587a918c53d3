//! Injects one fault after the other. Each one is repaired before the next.

use std::time::{Duration, Instant};

use weir::{ConnectOptions, Weir};

use crate::nodes::Nodes;
use crate::random::Random;

/// Maximum time until a repaired cluster acknowledges a write.
const RECOVERY: Duration = Duration::from_secs(40);
/// Maximum time for filling a disk with writes.
const FILL: Duration = Duration::from_secs(5);
const FILLER_BYTES: usize = 64 << 10;
const FILLER: &str = "filler";

/// The fault of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    KillLeader,
    KillAny,
    KillAll,
    StopLeader,
    StopAny,
    IsolateLeader,
    IsolateAny,
    OneWay,
    Halves,
    Bridge,
    Swizzle,
    SlowNetwork,
    SlowDisk,
    FullDisk,
    ClockStep,
    BlankRestart,
    RollingRestart,
    Transfer,
}

impl Fault {
    pub(crate) const ALL: [Self; 18] = [
        Self::KillLeader,
        Self::IsolateLeader,
        Self::StopLeader,
        Self::Transfer,
        Self::RollingRestart,
        Self::Bridge,
        Self::KillAll,
        Self::OneWay,
        Self::FullDisk,
        Self::BlankRestart,
        Self::ClockStep,
        Self::SlowDisk,
        Self::KillAny,
        Self::Halves,
        Self::StopAny,
        Self::Swizzle,
        Self::SlowNetwork,
        Self::IsolateAny,
    ];

    /// The faults of a round: all of them in random order, repeated.
    pub(crate) fn order(cycles: u64, random: &mut Random) -> Vec<Self> {
        let mut order = Vec::new();
        while (order.len() as u64) < cycles {
            let mut all = Self::ALL;
            random.shuffle(&mut all);
            order.extend(all);
        }
        order.truncate(usize::try_from(cycles).unwrap());
        order
    }
}

fn pause(random: &mut Random, low_ms: u64, high_ms: u64) {
    let millis = low_ms + random.below(high_ms - low_ms + 1);
    std::thread::sleep(Duration::from_millis(millis));
}

/// Divides the nodes into two halves. If there is a bridge, the halves reach each other only
/// through that node.
fn divide(nodes: &Nodes, bridge: Option<u64>, random: &mut Random) {
    let mut others = nodes.ids();
    others.retain(|id| Some(*id) != bridge);
    random.shuffle(&mut others);
    let (left, right) = others.split_at(others.len() / 2);
    for a in left {
        for b in right {
            nodes.links.cut(*a, *b);
            nodes.links.cut(*b, *a);
        }
    }
}

fn isolate(nodes: &Nodes, id: u64) {
    for other in nodes.ids() {
        nodes.links.cut(id, other);
        nodes.links.cut(other, id);
    }
}

/// Fills the disk of a node with writes. Returns whether the node reports that it is full.
fn fill(nodes: &Nodes, id: u64) -> bool {
    nodes.limit_files(id, Some(nodes.largest_segment(id)));
    let mut options = ConnectOptions::default();
    options.patience = Duration::from_secs(2);
    let Ok(client) = Weir::connect_with(&nodes.at(id), &options) else {
        return false;
    };
    let topic = client.topic(FILLER).unwrap();
    let large = vec![b'x'; FILLER_BYTES];
    let until = Instant::now() + FILL;
    // The histories ignore these writes, so a rejected write or one with unknown outcome does not
    // matter.
    drop(topic.ensure());
    let is_full = || nodes.status(id).is_some_and(|status| status.role == "full");
    while Instant::now() < until && !is_full() {
        for _ in 0..8 {
            drop(topic.append(&large));
        }
    }
    is_full()
}

/// Injects a fault, and ends it. Returns whether it took effect: a disk may not have become full,
/// and transfers may have failed.
#[allow(clippy::too_many_lines, reason = "one arm for each fault")]
pub(crate) fn inject(nodes: &mut Nodes, fault: Fault, random: &mut Random) -> bool {
    let mut has_effect = true;
    let ids = nodes.ids();
    let any = ids[usize::try_from(random.below(ids.len() as u64)).unwrap()];
    let leader = nodes.leader().unwrap_or(any);
    match fault {
        Fault::KillLeader | Fault::KillAny => {
            let id = if fault == Fault::KillAny { any } else { leader };
            nodes.kill(id);
            pause(random, 0, 1_500);
            nodes.start_node(id);
        }
        Fault::KillAll => {
            let mut order = ids.clone();
            random.shuffle(&mut order);
            for id in &order {
                nodes.kill(*id);
            }
            random.shuffle(&mut order);
            for id in order {
                pause(random, 0, 100);
                nodes.start_node(id);
            }
        }
        Fault::StopLeader | Fault::StopAny => {
            let id = if fault == Fault::StopAny { any } else { leader };
            nodes.signal(id, "STOP");
            pause(random, 100, 3_000);
            nodes.signal(id, "CONT");
        }
        Fault::IsolateLeader | Fault::IsolateAny => {
            let id = if fault == Fault::IsolateAny {
                any
            } else {
                leader
            };
            isolate(nodes, id);
            pause(random, 500, 3_000);
        }
        Fault::OneWay => {
            let (id, is_inbound) = (leader, random.below(2) == 0);
            for other in &ids {
                let (from, to) = if is_inbound {
                    (*other, id)
                } else {
                    (id, *other)
                };
                nodes.links.cut(from, to);
            }
            pause(random, 500, 3_000);
        }
        Fault::Halves => {
            divide(nodes, None, random);
            pause(random, 500, 3_000);
        }
        Fault::Bridge => {
            divide(nodes, Some(any), random);
            pause(random, 500, 3_000);
        }
        Fault::Swizzle => {
            let links = ids.iter().flat_map(|a| ids.iter().map(move |b| (*a, *b)));
            let mut links: Vec<_> = links.filter(|(a, b)| a != b).collect();
            random.shuffle(&mut links);
            links.truncate(links.len() * 2 / 3);
            for (a, b) in &links {
                nodes.links.cut(*a, *b);
                pause(random, 20, 200);
            }
            random.shuffle(&mut links);
            for (a, b) in links {
                nodes.links.restore(a, b);
                pause(random, 20, 200);
            }
        }
        Fault::SlowNetwork => {
            nodes
                .links
                .delay(Duration::from_millis(5 + random.below(60)));
            pause(random, 500, 2_000);
            nodes.kill(any);
            pause(random, 100, 500);
            nodes.start_node(any);
        }
        Fault::SlowDisk => {
            for id in [leader, any] {
                nodes.slow_disk(id, 20 + random.below(300));
            }
            pause(random, 500, 3_000);
        }
        Fault::FullDisk => has_effect = fill(nodes, any),
        Fault::ClockStep => {
            let hours = i64::try_from(random.below(51)).unwrap() - 25;
            let id = if random.below(2) == 0 { any } else { leader };
            nodes.set_clock(id, hours * 3_600 + 7);
            pause(random, 500, 2_000);
        }
        Fault::BlankRestart => {
            nodes.kill(any);
            nodes.start_blank(any);
            nodes.start_node(any);
        }
        Fault::RollingRestart => {
            let mut order = ids.clone();
            random.shuffle(&mut order);
            for id in order {
                nodes.stop(id);
                pause(random, 0, 300);
                nodes.start_node(id);
                pause(random, 0, 700);
            }
        }
        Fault::Transfer => {
            has_effect = false;
            let mut options = ConnectOptions::default();
            options.patience = Duration::from_secs(2);
            if let Ok(client) = Weir::connect_with(&nodes.at(leader), &options) {
                for _ in 0..8 {
                    let to = ids[usize::try_from(random.below(ids.len() as u64)).unwrap()];
                    // Another election may be in progress.
                    has_effect |= client.transfer_lead(to).is_ok() && to != leader;
                    pause(random, 0, 200);
                }
            }
        }
    }
    for id in ids {
        nodes.slow_disk(id, 0);
        nodes.set_clock(id, 0);
        nodes.limit_files(id, None);
    }
    nodes.links.heal();
    has_effect
}

/// Waits until the repaired cluster acknowledges a write.
pub(crate) fn recover(nodes: &Nodes) -> Result<Duration, String> {
    let begun = Instant::now();
    let mut options = ConnectOptions::default();
    options.patience = Duration::from_secs(5);
    let mut last = String::new();
    while begun.elapsed() < RECOVERY {
        let written = Weir::connect_with(&nodes.at(1), &options).and_then(|client| {
            let topic = client.topic(FILLER)?;
            topic.ensure()?;
            topic.append("recovered")
        });
        match written {
            Ok(_) => return Ok(begun.elapsed()),
            Err(error) => last = error.to_string(),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!(
        "no write for {RECOVERY:?} after all faults: {last}"
    ))
}
