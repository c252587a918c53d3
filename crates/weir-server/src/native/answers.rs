//! Writes that wait for the store, and their outcomes in order.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use weir_core::{ErrorCode, Outcome, OutcomeRun, Outcomes};
use weir_protocol::{Encoder, Message, Packet, is_retryable, join_runs, write_outcome};
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
    /// The write has no session and was refused temporarily with this error.
    pub(super) chain_refusal: Option<ErrorCode>,
}

/// Whether this node of a cluster does not know the outcome of a write. The next leader knows it.
fn is_in_doubt(error: &StoreError) -> bool {
    match error {
        StoreError::Remote { code, .. } => *code == ErrorCode::Indeterminate,
        // The node has refused a part of the write.
        StoreError::PartlyLogged { cause } => {
            matches!(
                **cause,
                StoreError::Elsewhere { .. } | StoreError::Remote { .. }
            )
        }
        _ => false,
    }
}

/// Whether this node of a cluster has refused a write that it had accepted into its queue.
fn is_refusal(result: &Result<Outcomes, StoreError>) -> bool {
    match result {
        Err(StoreError::Elsewhere { .. }) => true,
        Err(StoreError::Remote { code, .. }) => is_retryable(*code),
        _ => false,
    }
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
    /// The results of the next writes, in order. They are needed early only after a refusal.
    later: VecDeque<Result<Outcomes, StoreError>>,
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
        if let Some(PendingResponse::Packet(_)) = self.pending.front() {
            return Poll::Ready(());
        }
        let mut writes = self
            .pending
            .iter_mut()
            .filter_map(|response| match response {
                PendingResponse::Outcomes(write) => Some(write),
                PendingResponse::Packet(_) => None,
            });
        let Some(oldest) = writes.next() else {
            return Poll::Pending;
        };
        if self.front.is_none() {
            self.front = Some(ready!(Pin::new(&mut oldest.queued).poll(context)));
        }
        if oldest.first == 0 && self.front.as_ref().is_some_and(is_refusal) {
            // A node that lost its lease for a moment refuses one write and executes the next.
            for write in writes.skip(self.later.len()) {
                let result = ready!(Pin::new(&mut write.queued).poll(context));
                self.later.push_back(result);
            }
        }
        Poll::Ready(())
    }

    /// Returns the result of the oldest write. Without a session, the client sends a refused write
    /// again. If a later write was executed, a refusal is therefore reported as INDETERMINATE.
    fn take_front(&mut self) -> Result<Outcomes, StoreError> {
        let result = self.front.take().unwrap_or(Err(StoreError::Closed));
        let is_overtaken = !self.later.iter().all(is_refusal);
        self.front = self.later.pop_front();
        if is_overtaken && is_refusal(&result) {
            return Err(StoreError::Remote {
                code: ErrorCode::Indeterminate,
                text: "this node refused the write, and executed a later one of this connection"
                    .to_owned(),
            });
        }
        result
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
                    let result = self.take_front();
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
            chain_refusal: None,
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
                let code = refusal.message.code().filter(|&code| is_retryable(code));
                answered.chain_refusal = code.filter(|_| waiting.first == 0);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use weir_store::{Answer, Proposal};

    use super::*;
    use crate::limits::admission::Admission;

    fn write(admission: &Admission, answers: &mut Answers) -> Answer {
        let (proposal, answer) = Proposal::pair();
        answers.wait(PendingWrite {
            queued: QueuedWrite::new(admission, proposal, admission.admit(1).unwrap()),
            first: 0,
            count: 1,
            bytes: 1,
            tag: Box::default(),
        });
        answer
    }

    fn refusal() -> Result<Outcomes, StoreError> {
        Err(StoreError::Remote {
            code: ErrorCode::NoLeader,
            text: String::new(),
        })
    }

    #[test]
    fn a_refusal_is_reported_as_indeterminate_if_a_later_write_was_executed() {
        for (third, code) in [
            (refusal(), ErrorCode::NoLeader),
            (Ok(Outcomes::default()), ErrorCode::Indeterminate),
        ] {
            let admission = Admission::default();
            let mut answers = Answers::default();
            let writes = [(); 3].map(|()| write(&admission, &mut answers));
            let [first, second, last] = writes;
            let mut context = Context::from_waker(Waker::noop());
            first.complete(refusal());
            second.complete(refusal());
            assert!(answers.poll(&mut context).is_pending());
            last.complete(third);
            for _ in 0..2 {
                assert!(answers.poll(&mut context).is_ready());
                answers.pending.pop_front();
                assert_eq!(answers.take_front().unwrap_err().code(), code);
            }
            assert!(answers.poll(&mut context).is_ready());
        }
    }
}
