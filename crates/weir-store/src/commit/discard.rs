//! The thread that drops state which nothing refers to any more: that of a
//! destroyed topic may have millions of keys. Made when it is first needed.

use std::sync::mpsc;
use std::thread::JoinHandle;

type State = Box<dyn Send + Sync>;

#[derive(Default)]
pub(crate) struct Discard(Option<(mpsc::Sender<State>, JoinHandle<()>)>);

impl Discard {
    /// Drops the state on the thread; here if there is none to be had.
    pub(crate) fn add(&mut self, state: State) {
        if self.0.is_none() {
            let (sender, states) = mpsc::channel::<State>();
            let thread = std::thread::Builder::new().name("weir-discard".to_owned());
            let thread = thread.spawn(move || states.into_iter().for_each(drop));
            self.0 = match thread {
                Ok(thread) => Some((sender, thread)),
                Err(error) => {
                    tracing::warn!(%error, "no thread drops destroyed topics: writes wait for it");
                    None
                }
            };
        }
        if let Some((sender, _)) = &self.0 {
            // A thread that has ended gives the state back: dropped here.
            drop(sender.send(state));
        }
    }
}

impl Drop for Discard {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            // It only drops; a panic in a destructor has nobody to hear of it.
            drop(thread.join());
        }
    }
}
