//! Blocks the verdicts of a store, to test what a server does meanwhile.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use weir_core::{Intention, Operation};
use weir_store::Store;

/// Blocks the thread that returns verdicts, until it is dropped.
pub(crate) struct BlockedThread {
    _release: SyncSender<()>,
}

/// A waker that blocks until the other end of the channel is dropped.
struct BlockingWaker {
    blocked: SyncSender<()>,
    release: Mutex<Receiver<()>>,
}

impl Wake for BlockingWaker {
    fn wake(self: Arc<Self>) {
        let _ = self.blocked.send(());
        let _ = self.release.lock().unwrap().recv();
    }
}

impl BlockedThread {
    pub(crate) fn new(store: &Store, topic: &str) -> Self {
        let (blocked, is_blocked) = sync_channel(1);
        let (release, released) = sync_channel(0);
        let waker = Waker::from(Arc::new(BlockingWaker {
            blocked,
            release: Mutex::new(released),
        }));
        loop {
            let put = Operation::Put {
                key: b"hold",
                value: b"",
            };
            let proposed = store.propose(&[Intention::new(topic, put)]);
            let mut proposal = std::pin::pin!(proposed.unwrap());
            // In rare cases the write completes before it is polled.
            let context = &mut Context::from_waker(&waker);
            if proposal.as_mut().poll(context).is_pending() {
                is_blocked.recv().unwrap();
                return Self { _release: release };
            }
        }
    }
}
