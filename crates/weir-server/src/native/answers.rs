//! Writes that wait for the store, and their outcomes in order.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use weir_core::{ErrorCode, Outcome, OutcomeRun, Outcomes};
use weir_protocol::{Encoder, Message, Packet, join_runs, write_outcome};
use weir_store::StoreError;

use super::buffer::{OUT_BYTES_HIGH, Outgoing};
use super::refuse;
use crate::queued_write::QueuedWrite;
use crate::sessions::SessionGuard;

/// Bytes of lines after which a COMMITTED is sent and a new one is started.
const LINES_BYTES: usize = 64 << 10;

/// A write that was proposed to the store.
#[derive(Debug)]
pub(super) struct PendingWrite {
    pub(super) queued: QueuedWrite,
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) bytes: usize,
    pub(super) tag: Box<[u8]>,
}

/// A response that the client has not received yet, in the order of its writes.
#[derive(Debug)]
enum PendingResponse {
    Outcomes(PendingWrite),
    /// A complete packet.
    Packet(Vec<u8>),
}

/// The result of a write, as far as the connection needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteResult {
    pub(super) count: u32,
    pub(super) bytes: usize,
    /// A nonce was refused: the session continues with this nonce.
    pub(super) expected_nonce: Option<u64>,
}

/// Whether this node of a cluster does not know the outcome of a write. The next leader knows it.
fn is_in_doubt(error: &StoreError) -> bool {
    matches!(error, StoreError::Remote { code, .. } if *code == ErrorCode::Indeterminate)
}

/// Memory of a waiting packet in bytes, including its entry in the queue.
fn memory_of(packet: &Vec<u8>) -> usize {
    packet.capacity() + size_of::<PendingResponse>()
}

/// Responses that are not sent yet.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pending: VecDeque<PendingResponse>,
    /// Memory of the packets in the queue.
    packet_bytes: usize,
    /// The outcomes of the oldest write, if they have arrived.
    front: Option<Result<Outcomes, StoreError>>,
    lines: Vec<u8>,
    /// A run of equal outcomes that the next outcome may extend.
    run: Option<(u64, OutcomeRun)>,
    /// This node does not know the outcome of a write of the session.
    has_unknown_outcome: bool,
}

impl Answers {
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn wait(&mut self, waiting: PendingWrite) {
        self.pending.push_back(PendingResponse::Outcomes(waiting));
    }

    /// Keeps the session in use until the verdict of the newest write, also after the connection.
    pub(super) fn hold(&mut self, session: SessionGuard) {
        let newest = self
            .pending
            .iter_mut()
            .rev()
            .find_map(|response| match response {
                PendingResponse::Outcomes(write) => Some(write),
                PendingResponse::Packet(_) => None,
            });
        if let Some(write) = newest {
            write.queued.hold(Some(session));
        }
    }

    /// Whether this node does not know the outcome of a write of the session. Later writes get no
    /// response: the client asks for their outcomes on its next connection.
    pub(super) fn has_unknown_outcome(&self) -> bool {
        self.has_unknown_outcome
    }

    /// Whether so many packets wait after a write that the connection must stop reading. Each
    /// refused write adds a packet and uses no credit.
    pub(super) fn is_high(&self) -> bool {
        self.packet_bytes >= OUT_BYTES_HIGH
    }

    /// Queues a packet that must not overtake the outcomes of earlier writes.
    pub(super) fn packet(&mut self, mut packet: Vec<u8>) {
        packet.shrink_to_fit();
        self.packet_bytes += memory_of(&packet);
        self.pending.push_back(PendingResponse::Packet(packet));
    }

    /// Ready if the oldest response is complete; otherwise wakes the task when it is.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.front.is_some() {
            return Poll::Ready(());
        }
        match self.pending.front_mut() {
            Some(PendingResponse::Packet(_)) => Poll::Ready(()),
            Some(PendingResponse::Outcomes(waiting)) => {
                let polled = Pin::new(&mut waiting.queued).poll(context);
                polled.map(|result| self.front = Some(result))
            }
            None => Poll::Pending,
        }
    }

    /// Writes out all complete responses, up to the limit of the send buffer.
    pub(super) fn collect(
        &mut self,
        encoder: &mut Encoder,
        out: &mut Outgoing,
        mut answered: impl FnMut(WriteResult),
    ) -> bool {
        let mut progress = false;
        while !out.is_high() {
            if self
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
            {
                break;
            }
            progress = true;
            match self.pending.pop_front() {
                Some(PendingResponse::Packet(packet)) => {
                    self.packet_bytes -= memory_of(&packet);
                    self.flush(&[], encoder, out);
                    out.bytes.extend_from_slice(&packet);
                }
                Some(PendingResponse::Outcomes(waiting)) => {
                    let result = self.front.take().unwrap_or(Err(StoreError::Closed));
                    answered(self.answer(&waiting, result, encoder, out));
                }
                None => break,
            }
        }
        self.flush(&[], encoder, out);
        progress
    }

    fn answer(
        &mut self,
        waiting: &PendingWrite,
        result: Result<Outcomes, StoreError>,
        encoder: &mut Encoder,
        out: &mut Outgoing,
    ) -> WriteResult {
        let mut answered = WriteResult {
            count: waiting.count,
            bytes: waiting.bytes,
            expected_nonce: None,
        };
        if !waiting.tag.is_empty() {
            self.flush(&[], encoder, out);
        }
        match result {
            Ok(outcomes) => {
                let mut nonce = waiting.first;
                for run in outcomes.runs() {
                    if let Outcome::Refused { expected, .. } = run.outcome {
                        answered.expected_nonce.get_or_insert(expected);
                    }
                    self.add(nonce, run);
                    if nonce != 0 {
                        nonce = nonce.saturating_add(u64::from(run.count));
                    }
                    if self.lines.len() >= LINES_BYTES {
                        self.flush(&waiting.tag, encoder, out);
                    }
                }
            }
            Err(error) if waiting.first != 0 && is_in_doubt(&error) => {
                self.flush(&[], encoder, out);
                self.has_unknown_outcome = true;
                self.pending.clear();
                self.packet_bytes = 0;
            }
            Err(error) => {
                self.flush(&[], encoder, out);
                let mut refusal = refuse::of_store(&error);
                refusal.message.nonce = Some(waiting.first);
                refusal.message.count = Some(u64::from(waiting.count));
                refusal.encode(&waiting.tag, encoder, &mut out.bytes);
            }
        }
        if !waiting.tag.is_empty() {
            self.flush(&waiting.tag, encoder, out);
        }
        answered
    }

    fn add(&mut self, nonce: u64, run: &OutcomeRun) {
        if let Some((_, last)) = &mut self.run {
            if join_runs(last, run) {
                return;
            }
            self.finish_line();
        }
        self.run = Some((nonce, run.clone()));
    }

    fn finish_line(&mut self) {
        if let Some((nonce, run)) = self.run.take() {
            if !self.lines.is_empty() {
                self.lines.push(b'\n');
            }
            write_outcome(&mut self.lines, nonce, &run);
        }
    }

    fn flush(&mut self, tag: &[u8], encoder: &mut Encoder, out: &mut Outgoing) {
        self.finish_line();
        if self.lines.is_empty() {
            return;
        }
        let message = Message::Committed { lines: &self.lines };
        encoder.encode(&Packet::tagged(tag, message), &mut out.bytes);
        self.lines.clear();
    }
}
