//! Listeners, which read all records of the topic at changing nodes.

use tokio::time::sleep;
use weir_core::ConsequenceOffset;
use weir_store::TopicReader;

use crate::client::Client;
use crate::cluster::{RunningNode, TOPIC};
use crate::report::{Planted, Violation};

/// A listener, which resumes after the last record that it has received.
pub(crate) struct Listener {
    client: Client,
    /// Offset of the last received record; 0 before the first one.
    last: u64,
}

impl Listener {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, last: 0 }
    }

    /// Reads until the history ends.
    pub(crate) async fn run(mut self) {
        let mut open: Option<(RunningNode, TopicReader)> = None;
        while !self.client.oracle.is_over() {
            let stays = self.client.random.chance(80);
            let can_stay = |running: &RunningNode| self.client.cluster.is_same_run(running);
            open = open.filter(|(running, _)| stays && can_stay(running));
            if open.is_none() {
                open = self.connect().await;
            }
            if let Some((running, reader)) = &mut open {
                match self.receive(running.id, reader) {
                    Ok(true) => {}
                    Ok(false) => open = None,
                    Err(violation) => {
                        let mut state = self.client.oracle.lock();
                        state.violation.get_or_insert(violation);
                    }
                }
            }
            sleep(self.client.random.millis(1, 60)).await;
        }
    }

    /// Opens a reader at some node. Returns `None` if the topic does not exist there yet.
    async fn connect(&mut self) -> Option<(RunningNode, TopicReader)> {
        let running = self.client.some_node().await;
        let after = match self.client.cluster.planted {
            Some(Planted::ListenerResumesEarly) => self.last.saturating_sub(1),
            Some(Planted::ListenerResumesLate) if self.last > 0 => self.last + 1,
            _ => self.last,
        };
        let store = running.node.store();
        let reader = store.read(TOPIC, ConsequenceOffset(after)).ok()?;
        Some((running, reader))
    }

    /// Receives all further records of a node. Returns `false` if a read has failed: the power of
    /// the node may be cut.
    fn receive(&mut self, node: u64, reader: &mut TopicReader) -> Result<bool, Violation> {
        loop {
            let page = match reader.next_page() {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(true),
                Err(_) => return Ok(false),
            };
            for record in &page {
                let Ok(record) = record else {
                    return Ok(false);
                };
                let offset = record.offset.0;
                let mut state = self.client.oracle.lock();
                state.delivered.add(node, self.last, offset, record.key)?;
                self.last = offset;
            }
        }
    }
}
