//! Notifies event loops that a result has arrived.
//!
//! Wakers run on threads of the store, which must not wait for the interpreter. A waker only adds
//! its calls to a queue. One thread of this module reads the queue and calls into Python.

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

/// The calls of all tasks that wait for one result, each to be made once, from any thread.
#[derive(Default)]
pub(crate) struct Calls(Mutex<Vec<Call>>);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        let calls = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(queue) = queue() else { return };
        for call in calls {
            // This fails only if the thread has ended with the process.
            drop(queue.send(call));
        }
    }
}

impl Calls {
    /// Adds `call(argument)`. Returns the waker that makes all calls.
    pub(crate) fn add(self: &Arc<Self>, call: Py<PyAny>, argument: Py<PyAny>) -> Waker {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(Call { call, argument });
        Waker::from(Arc::clone(self))
    }
}

/// The queue of the thread, which starts at the first use. `None` if the system cannot start a
/// thread.
fn queue() -> Option<&'static Sender<Call>> {
    static QUEUE: OnceLock<Option<Sender<Call>>> = OnceLock::new();
    let queue = QUEUE.get_or_init(|| {
        // The queue has at most one call for each wait of a task, so it is bounded.
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
