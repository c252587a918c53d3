//! The thread that applies synced batches while the commit thread syncs the next ones. It starts
//! when it is first needed.

use parking_lot::Mutex;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use weir_core::program::PROGRAM_STACK_BYTES;

use super::apply::{Applier, LoggedBatches};
use crate::error::StoreError;

struct Job {
    applier: Arc<Mutex<Applier>>,
    batches: LoggedBatches,
    done: mpsc::SyncSender<Result<(), StoreError>>,
}

impl Job {
    fn run(self) {
        let applied = self.applier.lock().apply_all(self.batches);
        // The send fails if the commit thread has ended.
        drop(self.done.send(applied));
    }
}

#[derive(Default)]
pub(super) struct Helper(Option<(mpsc::Sender<Job>, JoinHandle<()>)>);

/// Batches that are being applied.
pub(super) struct RunningApply(mpsc::Receiver<Result<(), StoreError>>);

impl Helper {
    /// Applies the batches on the thread, or on the calling thread if no thread can be started.
    pub(super) fn begin(
        &mut self,
        applier: &Arc<Mutex<Applier>>,
        batches: LoggedBatches,
    ) -> RunningApply {
        let (done, result) = mpsc::sync_channel(1);
        let applier = Arc::clone(applier);
        let job = Job {
            applier,
            batches,
            done,
        };
        if self.0.is_none() {
            let (sender, jobs) = mpsc::channel::<Job>();
            let thread = std::thread::Builder::new().name("weir-apply".to_owned());
            let thread = thread.stack_size(PROGRAM_STACK_BYTES);
            let thread = thread.spawn(move || jobs.into_iter().for_each(Job::run));
            self.0 = match thread {
                Ok(thread) => Some((sender, thread)),
                Err(error) => {
                    tracing::warn!(%error, "cannot start a thread to apply during a sync; writes wait for both");
                    None
                }
            };
        }
        match &self.0 {
            Some((sender, _)) => {
                if let Err(mpsc::SendError(job)) = sender.send(job) {
                    job.run();
                }
            }
            None => job.run(),
        }
        RunningApply(result)
    }

    /// Ends the thread and blocks until it has ended. The thread must have no job.
    pub(super) fn end(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            // The thread has no job. A panic was already returned as the result of its last job.
            drop(thread.join());
        }
    }
}

impl RunningApply {
    /// Waits until the batches are applied.
    pub(super) fn finish(self) -> Result<(), StoreError> {
        let thread = "the apply thread";
        self.0
            .recv()
            .unwrap_or(Err(StoreError::Panicked { thread }))
    }
}
