//! One timer for all deadlines of a connection.

use std::future::Future;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that is reset only if it would fire too late, because a busy connection has many
/// deadlines and reaches none of them.
#[derive(Debug)]
pub(super) struct Watchdog {
    sleep: Pin<Box<Sleep>>,
    armed: Instant,
}

impl Watchdog {
    pub(super) fn new(after: Duration) -> Self {
        let armed = Instant::now() + after;
        Self {
            sleep: Box::pin(sleep_until(armed)),
            armed,
        }
    }

    /// Waits until `due`.
    pub(super) async fn expired(&mut self, due: Instant) {
        std::future::poll_fn(|context| {
            loop {
                if due < self.armed {
                    self.arm(due);
                }
                ready!(self.sleep.as_mut().poll(context));
                if Instant::now() >= due {
                    return Poll::Ready(());
                }
                // The timer fired for an earlier deadline.
                self.arm(due);
            }
        })
        .await;
    }

    fn arm(&mut self, at: Instant) {
        self.armed = at;
        self.sleep.as_mut().reset(at);
    }
}
