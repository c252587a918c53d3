//! Telling event loops that an answer is there.
//!
//! Wakers run on threads of the store, which must not wait for the interpreter: they only leave a
//! number in a queue. One thread of ours takes it from there and calls into Python.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Wake, Waker};

use pyo3::prelude::*;

/// What is called: `call(argument)`. Errors of it are dropped: a loop that is closed has nobody who
/// waits.
struct Call {
    call: Py<PyAny>,
    argument: Py<PyAny>,
}

/// A call to be made once, from any thread.
struct Notice(Mutex<Option<Call>>);

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        let call = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(call), Some(queue)) = (call, queue()) {
            // It fails only when the thread is gone, with the process.
            drop(queue.send(call));
        }
    }
}

/// The way to the thread, which is made when it is needed first; nothing if the system has no
/// thread to give.
fn queue() -> Option<&'static Sender<Call>> {
    static QUEUE: OnceLock<Option<Sender<Call>>> = OnceLock::new();
    let queue = QUEUE.get_or_init(|| {
        // One call for each answer that somebody waits for, so as bounded as these are.
        let (sender, receiver) = channel::<Call>();
        let made = std::thread::Builder::new().name("weir-notify".to_owned());
        let made = made.spawn(move || {
            for first in &receiver {
                let attached = Python::try_attach(|py| {
                    let mut next = Some(first);
                    while let Some(call) = next {
                        drop(call.call.bind(py).call1((call.argument,)));
                        next = receiver.try_recv().ok();
                    }
                });
                if attached.is_none() {
                    // The interpreter is going away.
                    return;
                }
            }
        });
        made.is_ok().then_some(sender)
    });
    queue.as_ref()
}

/// A waker that calls `call(argument)`, once.
pub(crate) fn waker(call: Py<PyAny>, argument: Py<PyAny>) -> Waker {
    Waker::from(Arc::new(Notice(Mutex::new(Some(Call { call, argument })))))
}
