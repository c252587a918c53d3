//! The thread that drops unreferenced state. The state of a destroyed topic may have millions of
//! keys. The thread starts when it is first needed.

use std::sync::mpsc;
use std::thread::JoinHandle;

type State = Box<dyn Send + Sync>;

#[derive(Default)]
pub(crate) struct Discard(Option<(mpsc::Sender<State>, JoinHandle<()>)>);

impl Discard {
    /// Drops the state on the thread, or on the calling thread if no thread can be started.
    pub(crate) fn add(&mut self, state: State) {
        if self.0.is_none() {
            let (sender, states) = mpsc::channel::<State>();
            let thread = std::thread::Builder::new().name("weir-discard".to_owned());
            let thread = thread.spawn(move || states.into_iter().for_each(drop));
            self.0 = match thread {
                Ok(thread) => Some((sender, thread)),
                Err(error) => {
                    tracing::warn!(%error, "cannot start a thread to drop destroyed topics; the thread that commits drops them, and writes wait");
                    None
                }
            };
        }
        if let Some((sender, _)) = &self.0 {
            // If the thread has ended, `send` returns the state, which is dropped here.
            drop(sender.send(state));
        }
    }
}

impl Drop for Discard {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            // The thread only drops state; no caller needs to see a panic of a destructor.
            drop(thread.join());
        }
    }
}
