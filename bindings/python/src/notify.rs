//! Notifies event loops that a result has arrived.
//!
//! Wakers run on threads of the store, which must not wait for the interpreter. A waker only adds
//! its call to a queue. One thread of this module reads the queue and calls into Python.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Wake, Waker};

use pyo3::prelude::*;

/// The call `call(argument)`. Its exceptions are dropped: if the event loop is closed, nobody waits
/// for the result.
struct Call {
    call: Py<PyAny>,
    argument: Py<PyAny>,
}

/// A call to be made once, from any thread.
struct NotifyWaker(Mutex<Option<Call>>);

impl Wake for NotifyWaker {
    fn wake(self: Arc<Self>) {
        let call = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(call), Some(queue)) = (call, queue()) {
            // This fails only if the thread has ended with the process.
            drop(queue.send(call));
        }
    }
}

/// The queue of the thread, which starts at the first use. `None` if the system cannot start a
/// thread.
fn queue() -> Option<&'static Sender<Call>> {
    static QUEUE: OnceLock<Option<Sender<Call>>> = OnceLock::new();
    let queue = QUEUE.get_or_init(|| {
        // The queue has at most one call for each result that a task waits for, so it is bounded.
        let (sender, receiver) = channel::<Call>();
        let thread = std::thread::Builder::new().name("weir-notify".to_owned());
        let thread = thread.spawn(move || {
            for first in &receiver {
                let attached = Python::try_attach(|py| {
                    let mut next = Some(first);
                    while let Some(call) = next {
                        drop(call.call.bind(py).call1((call.argument,)));
                        next = receiver.try_recv().ok();
                    }
                });
                if attached.is_none() {
                    // The interpreter is shutting down.
                    return;
                }
            }
        });
        thread.is_ok().then_some(sender)
    });
    queue.as_ref()
}

/// A waker that calls `call(argument)`, once.
pub(crate) fn waker(call: Py<PyAny>, argument: Py<PyAny>) -> Waker {
    Waker::from(Arc::new(NotifyWaker(Mutex::new(Some(Call {
        call,
        argument,
    })))))
}
